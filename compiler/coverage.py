"""Operators x instructions: mapped how, how well used, at what data movement, or why not."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..intrinsics import CelosiaError, Instruction, Machine, ParameterError
from .enumerate import best_map, useful_macs
from .mapping import Mapped
from .operators import Operator
from .reasons import Rejected
from .tasks import Task, merged, task

Progress = Callable[[str, float, float, str], None]
"""Called with (what is done: coverage, verify or TVM; pairs done, pairs in all, the pair at hand)."""

_Item = TypeVar("_Item")

DEFAULT_FLOOR = 0.1
"""Utilisation below which a map counts as not worth it in the totals."""

COLUMNS = (
    "operator",
    "instruction",
    "status",
    "map",
    "movement",
    "utilization",
    "calls",
    "cycles",
    "activation_bytes",
    "weight_bytes",
    "result_bytes",
    "macs",
    "types",
    "weight",
    "padding",
    "reason",
    "detail",
    "change",
    "verified",
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The answer for one operator and one instruction.

    Parameters
    ----------
    operator, instruction : str
    answer : Mapped or Rejected
    macs : int
        Useful multiply-accumulates of one run; 0 where the operator is no sum of products.
    types : str
        Of the operator's data, such as ``"int8 x int8 -> int32"``; empty where it could not be read.
    weight : int
        Count of the operator in its network.
    seconds : float
        CPU time that the answer took, without reading the operator, which is read once for all instructions.
    verified : bool or None
        Whether the compiled map equals the reference; None if it was not run.
    proof : str
        What the map was compared with, or how it failed.
    tvm : mapping or None
        TVM's own verdict (see `tvm_verdict`) and ``routes``, where asked for.
    """

    operator: str
    instruction: str
    answer: Mapped | Rejected
    macs: int
    types: str = ""
    weight: int = 1
    seconds: float = 0.0
    verified: bool | None = None
    proof: str = ""
    tvm: Mapping[str, Any] | None = None

    @property
    def status(self) -> str:
        """``mapped`` or ``rejected``."""
        return "mapped" if isinstance(self.answer, Mapped) else "rejected"

    @property
    def utilization(self) -> float:
        """Useful over issued multiply-accumulates; 0 if rejected."""
        return self.answer.utilization if isinstance(self.answer, Mapped) else 0.0

    @property
    def reason(self) -> str | None:
        """Of `Reason`, if rejected."""
        return self.answer.reason.value if isinstance(self.answer, Rejected) else None

    @property
    def detail(self) -> str:
        """One sentence, if rejected."""
        return self.answer.detail if isinstance(self.answer, Rejected) else ""

    @property
    def words(self) -> str:
        """The axis assignment, if mapped."""
        return self.answer.words if isinstance(self.answer, Mapped) else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        common = {
            "operator": self.operator,
            "instruction": self.instruction,
            "status": self.status,
            "weight": self.weight,
            "macs": self.macs,
            "types": self.types,
        }
        if isinstance(self.answer, Mapped):
            common |= {**self.answer.to_dict(), "macs": self.macs, "reason": None, "detail": "", "change": ""}
        else:
            common |= {"utilization": 0.0, "reason": self.reason, "detail": self.detail, "change": self.answer.change}
        return {
            **common,
            "verified": self.verified,
            "proof": self.proof,
            "seconds": self.seconds,
            "tvm": dict(self.tvm) if self.tvm is not None else None,
        }


@dataclass(frozen=True)
class Coverage:
    """Answers for operators x instructions, operators in the outer loop.

    Parameters
    ----------
    pairs : tuple of Pair
    floor : float
        Utilisation that a pair must reach to count in the totals.
    """

    pairs: tuple[Pair, ...]
    floor: float = DEFAULT_FLOOR

    @property
    def operators(self) -> list[str]:
        """Names of the operators, in order."""
        return list(dict.fromkeys(pair.operator for pair in self.pairs))

    @property
    def instructions(self) -> list[str]:
        """Names of the instructions, in order."""
        return list(dict.fromkeys(pair.instruction for pair in self.pairs))

    @property
    def summary(self) -> list[dict[str, Any]]:
        """Per instruction.

        Returns
        -------
        List of ``{"instruction", "operators", "mapped", "above_floor", "mac_share", "utilization", "verified", "failed", "tvm",
        "reasons"}``:
        ``mac_share`` is the share of the workload's multiply-accumulates in pairs at or above the floor, and ``utilization`` is
        useful over issued multiply-accumulates of those pairs (both 0..1, operators counted with their weights); ``tvm`` is how many
        pairs TVM's own routes tensorize, None if it was not asked.
        """
        return [_summary(name, [pair for pair in self.pairs if pair.instruction == name], self.floor) for name in self.instructions]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"floor": self.floor, "pairs": [pair.to_dict() for pair in self.pairs], "summary": self.summary}

    def to_csv(self) -> str:
        """One line per pair, with a header (`COLUMNS`)."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for pair in self.pairs:
            writer.writerow({key: "" if value is None else value for key, value in pair.to_dict().items()})
        return text.getvalue()

    def rows(self) -> list[list[str]]:
        """A table for people: operators down, instructions across; utilisation (in brackets below the floor), movement, or the reason."""
        by_pair = {(pair.operator, pair.instruction): pair for pair in self.pairs}
        header = ["operator", *self.instructions]
        return [
            header,
            *([name, *(_cell(by_pair.get((name, other)), self.floor) for other in self.instructions)] for name in self.operators),
        ]

    @property
    def failed(self) -> list[Pair]:
        """Pairs whose verification failed."""
        return [pair for pair in self.pairs if pair.verified is False]


def _cell(pair: Pair | None, floor: float) -> str:
    if pair is None:
        return ""
    if isinstance(pair.answer, Rejected):
        return pair.answer.reason.value
    mark = {None: "", True: " ok", False: " WRONG"}[pair.verified]
    share = f"{pair.utilization:.3g}" if pair.utilization >= floor else f"({pair.utilization:.2g})"
    return f"{share} {pair.answer.status}{mark}"


def _summary(instruction: str, pairs: Sequence[Pair], floor: float) -> dict[str, Any]:
    mapped = [pair for pair in pairs if pair.status == "mapped"]
    above = [pair for pair in mapped if pair.utilization >= floor]
    total, useful = (sum(pair.macs * pair.weight for pair in group) for group in (pairs, above))
    issued = sum(pair.macs * pair.weight / pair.utilization for pair in above)
    reasons = [pair.reason for pair in pairs if pair.reason]
    return {
        "instruction": instruction,
        "operators": len(pairs),
        "mapped": len(mapped),
        "above_floor": len(above),
        "mac_share": useful / total if total else 0.0,
        "utilization": useful / issued if issued else 0.0,
        "verified": sum(pair.verified is True for pair in pairs),
        "failed": sum(pair.verified is False for pair in pairs),
        "tvm": sum(bool((pair.tvm or {}).get("tensorized")) for pair in pairs) if any(pair.tvm is not None for pair in pairs) else None,
        "reasons": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
    }


def coverage(
    operators: Iterable[Operator | Task | str],
    instructions: Iterable[Instruction | Machine],
    *,
    floor: float = DEFAULT_FLOOR,
    bandwidth: float | None = None,
    verify: int | str = 0,
    seed: int = 0,
    compare_tvm: bool = False,
    progress: Progress | None = None,
) -> Coverage:
    """Answer every pair of operator and instruction.

    Parameters
    ----------
    operators : operators, tasks, or operator strings
        What is given several times counts several times in the totals.
    instructions : instructions, or machines
    floor : float, 0..1
        Utilisation that a pair must reach to count in the totals.
    bandwidth : float > 0 or None
        Bytes per cycle of packing; None for that of each instruction's own operands.
    verify : int >= 0 or "all"
        How many mapped pairs, drawn at random, are compiled, run and compared.
    seed : int
        Of that draw and of the operands.
    compare_tvm : bool
        Ask TVM's own routes too.
    progress : callable or None

    Raises
    ------
    ParameterError
        If an option is outside its domain, or two instructions, or two different operators, have one name.
    """
    if not 0 <= floor <= 1:
        raise ParameterError(f"utilisation floor must be from 0 to 1, not {floor!r}; nearest legal value: {min(max(floor, 0), 1)}")
    if verify != "all" and (not isinstance(verify, int) or isinstance(verify, bool) or verify < 0):
        raise ParameterError(f"verify must be a number of pairs, at least 0, or 'all', not {verify!r}")
    targets = [target.instruction if isinstance(target, Machine) else target for target in instructions]
    work = merged(task(operator) for operator in operators)
    _unique([target.name for target in targets])
    keys = [(item, target) for item in work for target in targets]
    pairs = [_answer(item, target, bandwidth) for item, target in _counted("coverage", keys, keys, progress)]
    drawn = _drawn(pairs, verify, seed)
    for position in _counted("verify", drawn, [keys[position] for position in drawn], progress):
        matches, proof = _verified(keys[position][0], pairs[position].answer, seed)
        pairs[position] = replace(pairs[position], verified=matches, proof=proof)
    if compare_tvm:
        verdicts = [_compared(item, target) for item, target in _counted("TVM", keys, keys, progress)]
        pairs = [replace(pair, tvm=verdict) for pair, verdict in zip(pairs, verdicts, strict=True)]
    return Coverage(tuple(pairs), floor)


def _compared(item: Task, target: Instruction) -> dict[str, Any]:
    """TVM's own verdict, and for an operator record what each of our routes through TVM's primitives reaches."""
    from .route_coverage import route_pair
    from .tvm_verdict import tvm_verdict

    routes = None if item.operator is None else dict(route_pair(item.operator, target).attempts)
    return {**tvm_verdict(item.build(), target), "routes": routes}


def _unique(names: Sequence[str]) -> None:
    twice = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if twice is not None:
        raise ParameterError(f"instruction {twice!r} is given twice")


def _counted(action: str, items: Sequence[_Item], keys: Sequence[tuple[Task, Instruction]], progress: Progress | None) -> Iterator[_Item]:
    """The items, with progress told before each and at the end."""
    for done, (item, (operator, instruction)) in enumerate(zip(items, keys, strict=True)):
        if progress is not None:
            progress(action, done, len(items), f"{operator.name} on {instruction.name}")
        yield item
    if progress is not None and items:
        progress(action, len(items), len(items), "")


def _answer(item: Task, instruction: Instruction, bandwidth: float | None) -> Pair:
    parsed = item.parsed
    start = time.process_time()
    answer = parsed if isinstance(parsed, Rejected) else best_map(parsed.einsum, instruction, bandwidth=bandwidth)
    seconds = time.process_time() - start
    macs = answer.macs if isinstance(answer, Mapped) else parsed.macs if isinstance(parsed, Rejected) else useful_macs(parsed.einsum)
    types = "" if isinstance(parsed, Rejected) else f"{parsed.einsum.a.dtype} x {parsed.einsum.b.dtype} -> {parsed.einsum.acc}"
    return Pair(
        operator=item.name, instruction=instruction.name, answer=answer, macs=macs, types=types, weight=item.weight, seconds=seconds
    )


def _drawn(pairs: Sequence[Pair], verify: int | str, seed: int) -> list[int]:
    mapped = [position for position, pair in enumerate(pairs) if pair.status == "mapped"]
    if verify == "all":
        return mapped
    count = min(int(verify), len(mapped))
    return sorted(int(position) for position in np.random.default_rng(seed).choice(mapped, count, replace=False)) if count else []


def _verified(item: Task, answer: Mapped | Rejected, seed: int) -> tuple[bool, str]:
    from .verify import verify

    parsed = item.parsed
    if isinstance(answer, Rejected) or isinstance(parsed, Rejected):
        return False, "there is no map"
    operands = None
    reference = item.reference
    if item.operator is not None:
        operands = item.operator.random_inputs(np.random.default_rng(seed))
        reference = item.operator.reference
    try:
        found = verify(answer, parsed, reference=reference, operands=operands, seed=seed)
    except CelosiaError as error:
        return False, str(error)
    if found.matches:
        return True, f"all {found.elements} elements equal the {found.reference} reference"
    return False, f"{found.differing} of {found.elements} elements differ from the {found.reference} reference"
