"""A whole study: search by the model, verification of the front (and of a sample) on RTL, results."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..intrinsics import ParameterError
from .candidate import Candidate
from .evaluator import Area, Evaluator, ModelEvaluator, objectives_of
from .folder import JOURNAL, prepare, write_study
from .front import thin
from .hardware import HardwareProblem
from .journal import Journal, Record
from .problem import Problem
from .results import Member, StudyResult, names_of, plain_of, write_results
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
        Candidates evaluated and members verified at the same time; results do not depend on it.
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
    AuditError
        If RTL and model of an accelerator differ in anything; the message holds a command that shows it.
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
        self.problem, own_evaluator, own_verifier = _parts(study, self.operators, area)
        self.evaluator, self.verifier = evaluator or own_evaluator, verifier or own_verifier
        self.seconds: dict[str, float] = {}

    def all(self, journal: Journal, stop: Callable[[], bool]) -> StudyResult:
        with self._timed("search"):
            found = self.search(journal, stop)
        if found.interrupted:
            return self._interrupted(found)
        front = self.thinned(found)
        sample = self.sampled(found, front)
        try:
            with self._timed("verify"):
                verdicts = self.verify([*front, *sample], journal, stop)
        except StoppedError:
            return self._interrupted(found)
        result = self.judged(found, front, verdicts[: len(front)], verdicts[len(front) :])
        write_results(result, progress=self.progress)
        return result

    def search(self, journal: Journal, stop: Callable[[], bool]) -> SearchResult:
        problem = self.problem if self.problem is not None else Problem(self.study, self.operators)
        # evaluations of blocks take less time than handing them over
        shared = self.workers > 1 and self.study.of_accelerators
        with ThreadPoolExecutor(self.workers) if shared else contextlib.nullcontext() as pool:
            search = Search(problem, self.evaluator, journal, versions=model_versions(), progress=self.progress, stop=stop, executor=pool)
            return search.run()

    def thinned(self, found: SearchResult) -> list[Record]:
        front = found.front(self.study.objectives)
        points = [objectives_of(record.measurements or {}, self.study.objectives) for record in front]
        return [front[place] for place in thin(points, self.study.front_limit)] if front else []

    def sampled(self, found: SearchResult, front: Sequence[Record]) -> list[Record]:
        """Evaluated candidates that are not verified as members of the front, drawn by the seed of the study."""
        verified = {record.hash for record in front}
        others = [record for record in found.succeeded if record.hash not in verified]
        wanted = self.study.accelerator.audit_sample if self.study.of_accelerators else 0
        places = np.random.default_rng(self.study.seed).permutation(len(others))[:wanted]
        return [others[place] for place in sorted(places)]

    def verify(self, records: Sequence[Record], journal: Journal, stop: Callable[[], bool]) -> list[Verdict]:
        verification = Verification(
            self.verifier,
            journal,
            seed=self.study.seed,
            workers=self.workers,
            progress=self.progress,
            stop=stop,
            strict=self.study.of_accelerators,
        )
        return verification.run([(scheduled(record), _expected(record)) for record in records])

    def judged(self, found: SearchResult, front: Sequence[Record], verdicts: Sequence[Verdict], audited: Sequence[Verdict]) -> StudyResult:
        names = names_of([verdict.candidate for verdict in verdicts])
        judged = list(zip(names, front, verdicts, strict=True))
        members = [self._member(name, record, verdict) for name, record, verdict in judged if not verdict.failures]
        rejected = [
            {"name": name, "design": verdict.candidate.design.to_dict(), "operator": failure.operator, "error": dict(failure.error or {})}
            for name, verdict in (*((name, verdict) for name, _, verdict in judged), *(("sample", verdict) for verdict in audited))
            for failure in verdict.failures
        ]
        return self._result(
            found,
            front=tuple(members),
            rejected=tuple(rejected),
            front_size=len(found.front(self.study.objectives)),
            sample=tuple(plain_of(verdict) for verdict in audited),
        )

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
            infeasible=sum(record.infeasible for record in found.records),
            failed=sum(record.error is not None and not record.infeasible for record in found.records),
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


def _parts(study: Study, operators: Sequence[Any], area: Area | None) -> tuple[HardwareProblem | None, Evaluator, Verifier]:
    """Space, evaluator and verifier of a kind of hardware; the space of blocks takes seconds to learn and is made when it is needed."""
    if not study.of_accelerators:
        evaluator = ModelEvaluator(operators, area or estimated_area, study.limits)
        return None, evaluator, RtlEvaluator(operators, seed=study.seed)
    from .accelerator_evaluator import AcceleratorEvaluator, AcceleratorVerifier
    from .accelerator_problem import AcceleratorProblem

    problem = AcceleratorProblem(study, operators)
    return problem, AcceleratorEvaluator(problem, area or estimated_area), AcceleratorVerifier(problem, seed=study.seed)


def scheduled(record: Record) -> Candidate:
    """The candidate of a record, with the schedules that its evaluation found."""
    return Candidate.from_dict(record.candidate).scheduled((record.measurements or {}).get("schedules"))


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
