"""A whole study: search by the model, verification of the front on RTL, results."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..intrinsics import ParameterError
from .candidate import Candidate
from .evaluator import Area, Evaluator, ModelEvaluator, objectives_of
from .folder import JOURNAL, prepare, write_study
from .front import thin
from .journal import Journal, Record
from .problem import Problem
from .results import Member, StudyResult, names_of, write_results
from .rtl import RtlEvaluator
from .search import Search, SearchResult
from .study import Study
from .verify import StoppedError, Verdict, Verification, Verifier, model_versions, rtl_versions

Progress = Callable[..., None]


def explore(
    study: Study,
    out_dir: Path | str,
    *,
    resume: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
    area: Area | None = None,
    evaluator: Evaluator | None = None,
    verifier: Verifier | None = None,
) -> StudyResult:
    """Search hardware and schedules together, verify the front on RTL, write the results.

    Ctrl-C stops at the next proposal or poll of a simulation: what was measured is in the journal, and the result says
    ``interrupted``. A second Ctrl-C raises `KeyboardInterrupt` at once.

    Parameters
    ----------
    study : Study
    out_dir : path
        Folder of the results, made if need be.
    resume : bool
        Go on from the journal in the folder, if there is one.
    workers : int, >= 1
        Members verified at the same time; results do not depend on it.
    progress : callable, optional
        Called as ``progress(action, done, total, note)`` from this thread.
    area, evaluator, verifier : optional
        Replace the area estimate, the model, the RTL.

    Returns
    -------
    StudyResult
        ``exit_code`` is 1 if a member failed on RTL; such members are in ``rejected`` and not in ``front``.

    Raises
    ------
    CelosiaError
        If the folder or the study is refused, or a tool is missing.
    """
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ParameterError(f"workers must be an integer of at least 1, not {workers!r}; nearest legal value: 1")
    folder = Path(out_dir)
    progress = progress or (lambda *_: None)
    run = _Run(study, folder, workers, progress, area, evaluator, verifier)  # refuses an unknown workload
    prepare(folder, study, resume=resume)
    progress("prepare", 0, 1, "")
    with Journal(folder / JOURNAL, study.hash) as journal, _interruptible() as stop:
        write_study(folder, study)
        return run.all(journal, stop)


class _Run:
    """The parts of one study in order."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        workers: int,
        progress: Progress,
        area: Area | None,
        evaluator: Evaluator | None,
        verifier: Verifier | None,
    ) -> None:
        self.study, self.folder, self.workers, self.progress = study, folder, workers, progress
        self.operators = study.workload.resolve()
        self.evaluator = evaluator or ModelEvaluator(self.operators, area or estimated_area, study.limits)
        self.verifier: Verifier = verifier or RtlEvaluator(self.operators, seed=study.seed)
        self.seconds: dict[str, float] = {}

    def all(self, journal: Journal, stop: Callable[[], bool]) -> StudyResult:
        with self._timed("search"):
            found = self.search(journal, stop)
        if found.interrupted:
            return self._interrupted(found)
        front = self.thinned(found)
        try:
            with self._timed("verify"):
                verdicts = self.verify(front, journal, stop)
        except StoppedError:
            return self._interrupted(found)
        result = self.judged(found, front, verdicts)
        self.progress("write", 0, 1, "")
        write_results(result)
        return result

    def search(self, journal: Journal, stop: Callable[[], bool]) -> SearchResult:
        problem = Problem(self.study, self.operators)
        return Search(problem, self.evaluator, journal, versions=model_versions(), progress=self.progress, stop=stop).run()

    def thinned(self, found: SearchResult) -> list[Record]:
        front = found.front(self.study.objectives)
        points = [objectives_of(record.measurements or {}, self.study.objectives) for record in front]
        return [front[place] for place in thin(points, self.study.front_limit)] if front else []

    def verify(self, front: Sequence[Record], journal: Journal, stop: Callable[[], bool]) -> list[Verdict]:
        members = [(Candidate.from_dict(record.candidate), _expected(record)) for record in front]
        verification = Verification(self.verifier, journal, seed=self.study.seed, workers=self.workers, progress=self.progress, stop=stop)
        return verification.run(members)

    def judged(self, found: SearchResult, front: Sequence[Record], verdicts: Sequence[Verdict]) -> StudyResult:
        names = names_of([verdict.candidate for verdict in verdicts])
        judged = list(zip(names, front, verdicts, strict=True))
        members = [self._member(name, record, verdict) for name, record, verdict in judged if not verdict.failures]
        rejected = [
            {"name": name, "design": verdict.candidate.design.to_dict(), "operator": failure.operator, "error": dict(failure.error or {})}
            for name, _, verdict in judged
            for failure in verdict.failures
        ]
        return self._result(found, front=tuple(members), rejected=tuple(rejected), front_size=len(found.front(self.study.objectives)))

    def _member(self, name: str, record: Record, verdict: Verdict) -> Member:
        measured = record.measurements or {}
        runs = {operator: dict(run.measurements or {}) for operator, run in verdict.records.items()}
        cycles = sum(operator.weight * runs[operator.name]["cycles"] for operator in self.operators)
        values = {key: cycles if key == "cycles" else measured[key] for key in self.study.objectives}
        sources = {key: "rtl" if key == "cycles" else measured["sources"][key] for key in self.study.objectives}
        return Member(name=name, candidate=verdict.candidate, objectives=values, sources=sources, operators=runs)

    def _interrupted(self, found: SearchResult) -> StudyResult:
        return self._result(found, interrupted=True)

    def _result(self, found: SearchResult, **more: Any) -> StudyResult:
        return StudyResult(
            study=self.study,
            folder=self.folder,
            evaluated=len(found.records),
            failed=len(found.records) - len(found.succeeded),
            records=found.records,
            seconds=self.seconds,
            versions={**model_versions(), **rtl_versions()},
            **more,
        )

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] = round(time.perf_counter() - started, 3)


def estimated_area(point: Any) -> float:
    """Transistors of a design, by the estimate from per-element figures."""
    from ..sim.area import estimate_area

    return float(estimate_area(point).transistors)


def _expected(record: Record) -> Mapping[str, int]:
    operators: Mapping[str, int] = (record.measurements or {})["operators"]
    return operators


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag; the second one is an exception again. In other threads Ctrl-C is not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: Any) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before if callable(before) else signal.default_int_handler)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
