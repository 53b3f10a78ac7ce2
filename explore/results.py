"""What a study leaves behind: the front as data, table, plot and Verilog, written together or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..intrinsics import CelosiaError
from .candidate import Candidate
from .evaluator import ENVIRONMENT_ERRORS, objectives_of
from .front import hypervolume, pareto_front
from .journal import Record
from .plot import Dot, Plot
from .study import Study
from .verify import Verdict

FILES = ("results.json", "front.json", "front.csv", "front.png", "front.svg", "verilog")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of the front, verified on RTL over every whole operator.

    Parameters
    ----------
    name : str
        Short and unique in the front.
    candidate : Candidate
    objectives : mapping from objective to value
    sources : mapping from objective to ``rtl``, ``model`` or ``estimate``
        Cycles of a verified member are those of the RTL.
    operators : mapping from operator name to the measurement on RTL
    """

    name: str
    candidate: Candidate
    objectives: Mapping[str, float]
    sources: Mapping[str, str]
    operators: Mapping[str, Mapping[str, Any]]

    @property
    def utilization(self) -> float:
        """Useful MACs over cycles times peak, over all operators once."""
        macs = sum(run["macs"] for run in self.operators.values())
        cycles = sum(run["cycles"] for run in self.operators.values())
        return float(macs / (cycles * self.candidate.design.macs_per_cycle))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, the same in every run of the study."""
        design = self.candidate.design
        return {
            "name": self.name,
            "candidate_hash": self.candidate.hash,
            "design": design.to_dict(),
            "design_hash": design.hash,
            "module": design.name,
            "multipliers": design.macs_per_cycle,
            "objectives": dict(self.objectives),
            "sources": dict(self.sources),
            "utilization": self.utilization,
            "schedules": self.candidate.to_dict()["schedules"],
            "operators": _timeless(self.operators),
        }


def _timeless(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Measurements of operators without what differs from run to run."""
    return {name: {key: value for key, value in run.items() if not key.endswith("_seconds")} for name, run in runs.items()}


def plain_of(verdict: Verdict) -> dict[str, Any]:
    """A verified candidate that is no member, for JSON."""
    runs = {name: record.measurements or {"error": dict(record.error or {})} for name, record in verdict.records.items()}
    return {"candidate_hash": verdict.candidate.hash, **verdict.candidate.to_dict(), "operators": _timeless(runs)}


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What a study found.

    Parameters
    ----------
    study : Study
    folder : Path
    front : tuple of Member
        Sorted by the objectives; every member is verified.
    rejected : tuple of mapping
        Members that failed their verification: name, design, operator, error. Empty if all is well.
    sample : tuple of mapping
        Candidates beside the front that were run on RTL too.
    evaluated, infeasible, failed : int
        Distinct candidates; those of them that are illegal or above a limit; and those whose measurement failed.
    front_size : int
        Members of the whole front of the search, before it was thinned to ``front_limit``.
    seconds : mapping
        Wall time by stage.
    records : tuple of Record
        Of the search.
    interrupted : bool
        Stopped before the end: nothing was written but the journal, and ``front`` is empty.
    """

    study: Study
    folder: Path
    front: tuple[Member, ...] = ()
    rejected: tuple[Mapping[str, Any], ...] = ()
    sample: tuple[Mapping[str, Any], ...] = ()
    evaluated: int = 0
    infeasible: int = 0
    failed: int = 0
    front_size: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0: all verified; 1: a member failed on RTL, or nothing is left; 3: only tools failed; 130: interrupted."""
        if self.interrupted:
            return 130
        if self.rejected and all(each["error"]["class"] in ENVIRONMENT_ERRORS for each in self.rejected):
            return 3
        return 1 if self.rejected or not self.front else 0

    @property
    def resume_hint(self) -> str:
        """What to do after an interruption."""
        return f"stopped after {self.evaluated} candidates, all kept in {str(self.folder)!r}; the same command with --resume goes on"

    @property
    def commonest_failure(self) -> str:
        """Why most candidates have no measurements, in the words of the journal, or nothing."""
        reasons = Counter(f"{record.error['class']}: {record.error['message']}" for record in self.records if record.error)
        return reasons.most_common(1)[0][0] if reasons else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "study": self.study.to_dict(),
            "study_hash": self.study.hash,
            "seed": self.study.seed,
            "folder": str(self.folder),
            "interrupted": self.interrupted,
            "evaluated": self.evaluated,
            "infeasible": self.infeasible,
            "failed": self.failed,
            "failures": _count_failures(self.records),
            "front_size": self.front_size,
            "front": [member.to_dict() for member in self.front],
            "rejected": [dict(each) for each in self.rejected],
            **self._audit(),
            "hypervolume": self.hypervolume,
            "seconds": dict(self.seconds),
            "versions": dict(self.versions),
        }

    @property
    def hypervolume(self) -> dict[str, Any]:
        """Volume that the front dominates, up to the worst value of each objective over all candidates."""
        names = self.study.objectives
        values = [[float(record.measurements[name]) for name in names] for record in self.records if record.measurements]
        reference = [max(column) for column in zip(*values, strict=True)]
        front = [[member.objectives[name] for name in names] for member in self.front]
        return {"value": hypervolume(front, reference) if front else 0.0, "reference": reference}

    def _audit(self) -> dict[str, Any]:
        """What a study of accelerators compared on RTL, and the sample beside the front."""
        if not self.study.of_accelerators:
            return {}
        runs = [run for member in self.front for run in member.operators.values()]
        runs += [run for each in self.sample for run in each["operators"].values()]
        counts = {"members": len(self.front), "sample": len(self.sample), "runs": len(runs)}
        counts |= {key: sum(bool(run.get(key)) for run in runs) for key in ("matches_reference", "events_equal")}
        return {"audit": counts, "sample": [dict(each) for each in self.sample]}


def _count_failures(records: Sequence[Record]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in records:
        if record.error:
            key = f"{record.error['stage']}: {record.error['class']}"
            counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items()))


def names_of(candidates: Sequence[Candidate]) -> list[str]:
    """Short, distinct names: family and shape; then what else tells equal ones apart; then the design's hash."""
    titles = [candidate.design.parameters.title for candidate in candidates]
    varied = _varied(candidates)
    longer = []
    for title, candidate in zip(titles, candidates, strict=True):
        plain = candidate.design.to_dict()
        extra = [_short(name, plain[name]) for name in varied if name in plain] if titles.count(title) > 1 else []
        longer.append("_".join([title, *(word for word in extra if word)]))
    return [
        name if longer.count(name) == 1 else f"{name}_{candidate.design.hash[:4]}_{candidate.hash[:4]}"
        for name, candidate in zip(longer, candidates, strict=True)
    ]


def _varied(candidates: Sequence[Candidate]) -> list[str]:
    """Parameters that differ between some two candidates of one title and are not in the title."""
    found: dict[str, None] = {}
    for one in candidates:
        for other in candidates:
            if one.design.parameters.title == other.design.parameters.title:
                mine, theirs = one.design.to_dict(), other.design.to_dict()
                found.update(dict.fromkeys(name for name in mine if mine[name] != theirs.get(name)))
    return list(found)


def _short(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else ""
    return f"{name[0]}{value}"


def write_results(result: StudyResult, *, progress: Callable[..., None] = lambda *_: None) -> None:
    """Write every file of `FILES` into the study's folder; on failure the earlier ones stay.

    Parameters
    ----------
    progress : callable, optional
        Called with ``"write"``, members written, their number, and the name of the next.

    Raises
    ------
    CelosiaError
        If the folder cannot be written.
    """
    try:
        for leftover in result.folder.glob(".new-*"):  # of a process that was killed here; the journal's lock keeps others out
            shutil.rmtree(leftover, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=result.folder))
        try:
            _write(result, fresh, progress)
            _swap(fresh, result.folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise CelosiaError(f"results cannot be written to {str(result.folder)!r}: {error.strerror or error}") from error


def _write(result: StudyResult, folder: Path, progress: Callable[..., None]) -> None:
    members = [member.to_dict() for member in result.front]
    head = {"study": result.study.name, "study_hash": result.study.hash, "seed": result.study.seed}
    (folder / "front.json").write_text(_json({**head, "objectives": list(result.study.objectives), "front": members}), encoding="utf-8")
    (folder / "results.json").write_text(_json(result.to_dict()), encoding="utf-8")
    (folder / "front.csv").write_text(front_csv(result), encoding="utf-8")
    if len(result.study.objectives) > 1:
        plot_of(result).save(folder)
    from ..hw.artefacts import emit_artefacts

    (folder / "verilog").mkdir()
    for done, member in enumerate(result.front):
        progress("write", done, len(result.front), member.name)
        emit_artefacts(member.candidate.design, folder / "verilog")


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _swap(fresh: Path, folder: Path) -> None:
    """Put new files in the place of old ones; a folder is first moved out of the way."""
    for name in FILES:
        old, new = folder / name, fresh / name
        if not new.exists():
            continue
        if old.is_dir():
            os.replace(old, fresh / f"{name}.old")
        os.replace(new, old)


def front_csv(result: StudyResult) -> str:
    """The front as a table: one row per member, cycles on RTL of each operator at the end."""
    names = list(result.front[0].operators) if result.front else []
    header = ["name", "family", "design_hash", "candidate_hash", "multipliers", *result.study.objectives]
    header += [f"{name}_source" for name in result.study.objectives] + ["utilization", *(f"cycles[{name}]" for name in names)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for m in result.front:
        design = m.candidate.design
        row = [m.name, design.family, design.hash, m.candidate.hash, design.macs_per_cycle, *m.objectives.values()]
        row += [*m.sources.values(), f"{m.utilization:.6f}", *(m.operators[name]["cycles"] for name in names)]
        writer.writerow(row)
    return text.getvalue()


def plot_of(result: StudyResult) -> Plot:
    """The plot of the first two objectives."""
    first, second = result.study.objectives[:2]
    x_name, y_name = (second, first) if first == "cycles" else (first, second)
    evaluated = [
        Dot(x=float(record.measurements[x_name]), y=float(record.measurements[y_name]), group=_group(record.candidate["design"]))
        for record in result.records
        if record.measurements
    ]
    front = [
        Dot(
            x=m.objectives[x_name],
            y=m.objectives[y_name],
            group=_group(m.candidate.design.to_dict()),
            label=m.name.replace("systolic_", "").replace("accelerator_", ""),
        )
        for m in result.front
    ]
    return Plot(
        title=result.study.name,
        subtitle=_subtitle(result),
        x_name=x_name,
        y_name=y_name,
        evaluated=evaluated,
        front=front,
        line=_line(result),
    )


def _line(result: StudyResult) -> list[tuple[float, float]]:
    """The whole front of the search, where two objectives make it a line."""
    names = result.study.objectives
    if len(names) != 2:
        return []
    points = [objectives_of(record.measurements, names) for record in result.records if record.measurements]
    x, y = (1, 0) if names[0] == "cycles" else (0, 1)
    return [(points[place][x], points[place][y]) for place in pareto_front(points)]


def _subtitle(result: StudyResult) -> str:
    sources = ", ".join(dict.fromkeys(f"{name} by {source}" for m in result.front for name, source in m.sources.items()))
    counts = f"{result.evaluated:,} candidates by model, {len(result.front)} of {result.front_size} on the front verified"
    return f"seed {result.study.seed} · {counts} ({sources}) · study {result.study.hash}"


def _group(design: Mapping[str, Any]) -> str:
    kind = design.get("dataflow", design.get("core"))
    return f"{design['family']}, {kind}" if kind else str(design["family"])
