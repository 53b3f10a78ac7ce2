"""Which operators an instruction can compute, how well used it would be, and why not the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..intrinsics import Instruction, Machine, ScheduleError
from .operators import Operator
from .reasons import Reason, Rejected
from .routes import KINDS, Route, examine, instruction_of
from .schedule import schedule_space

Progress = Callable[[str, float, float, str], None]
"""Called with (what is done, pairs done, pairs in all, the pair at hand)."""


@dataclass(frozen=True, kw_only=True)
class Pair:
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


@dataclass(frozen=True)
class Coverage:
    """Answers for operators x instructions, operators in the outer loop."""

    pairs: tuple[Pair, ...]

    @property
    def summary(self) -> list[dict[str, Any]]:
        """Per instruction, in order of appearance.

        Returns
        -------
        List of ``{"instruction", "operators", "mapped", "mac_share", "utilization", "reasons"}``: how many operators there are
        and are mapped, the share of the workload's multiply-accumulates that is mapped (0..1, counts as weights), useful over
        issued multiply-accumulates of what is mapped (0 if nothing is), and how often each reason occurs.
        """
        names = dict.fromkeys(pair.instruction for pair in self.pairs)
        return [_summary(name, [pair for pair in self.pairs if pair.instruction == name]) for name in names]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"pairs": [pair.to_dict() for pair in self.pairs], "summary": self.summary}


def _summary(instruction: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    mapped = [pair for pair in pairs if pair.status == "mapped"]
    total, useful = (sum(pair.macs * pair.weight for pair in group) for group in (pairs, mapped))
    issued = sum(pair.macs * pair.weight / pair.utilization for pair in mapped)
    reasons = [pair.reason for pair in pairs if pair.reason]
    return {
        "instruction": instruction,
        "operators": len(pairs),
        "mapped": len(mapped),
        "mac_share": useful / total if total else 0.0,
        "utilization": useful / issued if issued else 0.0,
        "reasons": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
    }


def coverage(operators: Iterable[Operator], instructions: Iterable[Instruction | Machine], *, progress: Progress | None = None) -> Coverage:
    """Try every operator on every instruction through TVM.

    Parameters
    ----------
    operators : operators of a workload
    instructions : instructions, or machines
    progress : callable or None
    """
    targets = list(instructions)
    work = [(operator, target) for operator in operators for target in targets]
    pairs = []
    for done, (operator, target) in enumerate(work):
        if progress is not None:
            progress("coverage", done, len(work), f"{operator.name} on {instruction_of(target).name}")
        pairs.append(pair(operator, target))
    if progress is not None:
        progress("coverage", len(work), len(work), "")
    return Coverage(tuple(pairs))


def pair(operator: Operator, target: Instruction | Machine) -> Pair:
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
) -> Pair:
    return Pair(
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
