"""Which operators the routes of `routes` reach through TVM; for comparison with the mapper's answers in `coverage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..intrinsics import Instruction, Machine, ScheduleError
from .operators import Operator
from .reasons import Reason, Rejected
from .routes import KINDS, Route, examine, instruction_of
from .schedule import schedule_space


@dataclass(frozen=True, kw_only=True)
class RoutePair:
    """The answer for one operator and one instruction.

    Parameters
    ----------
    operator, instruction : str
        Names.
    status : "mapped" or "rejected"
        Mapped means that TVM really tensorized it.
    route : str or None
        The best way: highest utilization, then fewest bytes packed.
    utilization : float
        Useful over issued multiply-accumulates, 0..1; 0 if rejected.
    calls : int
        Executions of the instruction.
    bytes_packed : int
        Bytes that pack and unpack blocks write.
    reason : str or None
        Of `Reason`, if rejected.
    detail : str
        One sentence, if rejected.
    macs : int
        Of one run of the operator.
    weight : int
        Count of the operator in its network.
    attempts : mapping
        Kind of route to "mapped", "possible" (not tried, another was better) or the reason.
    tvm_proposal : bool
        Whether TVM's own mapping proposer answers; for comparison only.
    """

    operator: str
    instruction: str
    status: str
    route: str | None = None
    utilization: float = 0.0
    calls: int = 0
    bytes_packed: int = 0
    reason: str | None = None
    detail: str = ""
    macs: int = 0
    weight: int = 1
    attempts: Mapping[str, str] = field(default_factory=dict)
    tvm_proposal: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "attempts": dict(self.attempts)}


def route_pair(operator: Operator, target: Instruction | Machine) -> RoutePair:
    """The answer for one operator and one instruction."""
    examined = examine(operator, target)
    attempts = {kind: "possible" if isinstance(answer, Route) else answer.reason.value for kind, answer in examined.items()}
    found = [answer for answer in examined.values() if isinstance(answer, Route)]
    refused: Rejected | None = None
    for route in sorted(found, key=lambda route: (-route.utilization, route.bytes_packed, KINDS.index(route.kind))):
        refused = _refused(operator, target, route)
        if refused is None:
            attempts[route.kind] = "mapped"
            return _pair(operator, target, attempts, route=route)
        attempts[route.kind] = refused.reason.value
    answers = [answer for answer in examined.values() if isinstance(answer, Rejected)]
    return _pair(operator, target, attempts, rejected=refused or answers[-1])


def _pair(
    operator: Operator,
    target: Instruction | Machine,
    attempts: Mapping[str, str],
    *,
    route: Route | None = None,
    rejected: Rejected | None = None,
) -> RoutePair:
    return RoutePair(
        operator=operator.name,
        instruction=instruction_of(target).name,
        status="mapped" if route else "rejected",
        route=route.kind if route else None,
        utilization=route.utilization if route else 0.0,
        calls=route.calls if route else 0,
        bytes_packed=route.bytes_packed if route else 0,
        reason=rejected.reason.value if rejected else None,
        detail=rejected.detail if rejected else "",
        macs=operator.macs,
        weight=operator.weight,
        attempts=dict(attempts),
        tvm_proposal=_proposed(operator, target),
    )


def _refused(operator: Operator, target: Instruction | Machine, route: Route) -> Rejected | None:
    """Tensorize for real; None if TVM did it."""
    from .tensorize import apply

    try:
        apply(operator, target, schedule_space(operator, target).schedule({"route": route.kind}))
    except ScheduleError as error:
        return Rejected(Reason.REFUSED, str(error))
    return None


def _proposed(operator: Operator, target: Instruction | Machine) -> bool:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule.analysis import get_auto_tensorize_mapping_info

    from ..intrinsics import Overflow
    from ..intrinsics.tensor_intrin import description
    from .sketch import main_block

    contraction = instruction_of(target).contraction
    if contraction.overflow not in (Overflow.FORBID, Overflow.WRAP):
        return False
    sch = Schedule(operator.prim_func(), debug_mask="none", error_render_level="none")
    try:
        return get_auto_tensorize_mapping_info(sch, sch.get_sblock(main_block(sch)), description(contraction)) is not None
    except (ValueError, RuntimeError):
        # The proposer throws on some descriptions where it should decline.
        return False
