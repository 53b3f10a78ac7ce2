"""The search: ask/tell over hardware and schedules together, deterministic by construction.

Proposal i is asked for when the results of all proposals up to i - window have been told, in the order of asking. So
the sequence of proposals depends on the study alone: not on the number of workers, nor on which worker is fast. A
resumed search asks the same questions again and finds their answers in the journal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from ..intrinsics import CelosiaError
from .candidate import Candidate, digest
from .evaluator import Evaluator, Measurements, error_record, objectives_of
from .front import pareto_front
from .hardware import HardwareProblem, InfeasibleError, Vector
from .journal import Journal, Record
from .proposers import NevergradProposer, Outcome, Refiner, warm_start

Progress = Callable[..., None]
"""Called as ``progress(action, done, total, note)``."""


class DivergedError(CelosiaError):
    """A resumed search proposes something else than the journal holds: it was made by other versions."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What a search found.

    Parameters
    ----------
    records : tuple of Record
        One per distinct candidate, in the order of asking; failures included.
    asked : int
        Proposals told.
    interrupted : bool
        Whether it was stopped before its budget was spent.
    """

    records: tuple[Record, ...]
    asked: int
    interrupted: bool = False

    @property
    def succeeded(self) -> list[Record]:
        """Records with measurements."""
        return [record for record in self.records if record.measurements is not None]

    def front(self, objectives: Sequence[str]) -> list[Record]:
        """Records that no other one dominates, sorted by the objectives."""
        alive = self.succeeded
        return [alive[index] for index in pareto_front([objectives_of(record.measurements or {}, objectives) for record in alive])]


@dataclass
class Search:
    """One search of a problem; `run` it once.

    Parameters
    ----------
    problem : Problem
    evaluator : Evaluator
    journal : Journal
    versions : mapping
        Goes into every record.
    progress : callable
    stop : callable
        Asked before each proposal whether to stop.
    executor : Executor or None
        Where evaluations run; None: in this thread.
    """

    problem: HardwareProblem
    evaluator: Evaluator
    journal: Journal
    versions: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = lambda *_: None
    stop: Callable[[], bool] = lambda: False
    executor: Executor | None = None

    def run(self) -> SearchResult:
        """Spend the budget, or stop early."""
        study = self.problem.study
        seen: dict[str, Record] = {}
        pending: deque[tuple[int, str, Any, Vector, Future[Record]]] = deque()
        self._start()
        asked = told = 0
        while told < study.budget:
            stopping = self.stop()
            if asked < study.budget and len(pending) < study.search.window and not stopping:
                pending.append(self._ask(asked))
                asked += 1
                continue
            if not pending:
                break
            self._tell(*pending.popleft(), seen)
            told += 1
            self.progress("search", told, study.budget, f"{len(seen)} candidates")
        return SearchResult(records=tuple(seen.values()), asked=told, interrupted=told < study.budget)

    def _start(self) -> None:
        study = self.problem.study
        self._warm = deque(warm_start(self.problem) if study.search.warm_start else [])
        self._refiner = Refiner(self.problem, study.objectives)
        room = max(study.budget - len(self._warm), 0)
        self._refine_from = study.budget - round(room * study.search.refine)
        self._nevergrad = NevergradProposer(self.problem, budget=max(self._refine_from - len(self._warm), 1))
        self._running: dict[str, Future[Record]] = {}

    # ---- asking

    def _ask(self, number: int) -> tuple[int, str, Any, Vector, Future[Record]]:
        origin, token, vector = self._propose(number)
        return number, origin, token, vector, self._submit(number, origin, vector)

    def _propose(self, number: int) -> tuple[str, Any, Vector]:
        if self._warm:
            return "warm-start", None, self._warm.popleft()
        if number >= self._refine_from:
            vector = self._refiner.ask()
            if vector is not None:
                return "refine", None, vector
        token, vector = self._nevergrad.ask()
        return "nevergrad", token, vector

    def _submit(self, number: int, origin: str, vector: Vector) -> Future[Record]:
        started = time.time()
        base: dict[str, Any] = {"ask": number, "origin": origin, "seed": self.problem.study.seed, "versions": self.versions}
        try:
            candidate = self.problem.candidate(vector)
        except InfeasibleError as error:
            plain = {"assignment": self.problem.space.decode(vector)}
            record = error_record(error.stage, error, kind=error.cause)
            return _done(
                Record(hash=digest(plain), fidelity=self.evaluator.fidelity, candidate=plain, measurements=None, error=record, **base)
            )
        key = (candidate.hash, self.evaluator.fidelity, "")
        if key in self.journal.records:
            return _done(self.journal.records[key])
        if candidate.hash not in self._running:
            self._running[candidate.hash] = self._start_evaluation(candidate, {**base, "started": started})
        return self._running[candidate.hash]

    def _start_evaluation(self, candidate: Candidate, base: dict[str, Any]) -> Future[Record]:
        if self.executor is not None:
            return self.executor.submit(evaluate, self.evaluator, candidate, base)
        return _done(evaluate(self.evaluator, candidate, base))

    # ---- telling

    def _tell(self, number: int, origin: str, token: Any, vector: Vector, future: Future[Record], seen: dict[str, Record]) -> None:
        record = future.result()
        self._check_replay(number, record)
        self.journal.append(record)
        self._running.pop(record.hash, None)
        seen.setdefault(record.hash, record)
        outcome = Outcome.of(record, self.problem.study.objectives)
        if token is not None:
            self._nevergrad.tell(token, outcome)
        self._refiner.tell(vector, record.hash, outcome)

    def _check_replay(self, number: int, record: Record) -> None:
        known = self._by_ask.get(number)
        if known is not None and known != record.hash:
            raise DivergedError(
                f"proposal {number} is candidate {record.hash[:12]}, but the journal {str(self.journal.path)!r} has {known[:12]} there: "
                "it was made by other versions of the program or its libraries; choose another output folder"
            )

    def __post_init__(self) -> None:
        own = self.evaluator.fidelity
        self._by_ask = {record.ask: record.hash for record in self.journal.records.values() if record.fidelity == own and record.ask >= 0}


def evaluate(evaluator: Evaluator, candidate: Candidate, base: Mapping[str, Any]) -> Record:
    """Measure a candidate; whatever goes wrong becomes part of the record."""
    started = time.perf_counter()
    measurements: Measurements | None = None
    error = None
    try:
        measurements = evaluator.evaluate(candidate)
    except InfeasibleError as failure:
        error = error_record(failure.stage, failure, kind=failure.cause)
    except Exception as failure:  # one bad candidate must not end the study; the journal keeps the reason
        error = error_record(evaluator.fidelity, failure)
    return Record(
        hash=candidate.hash,
        fidelity=evaluator.fidelity,
        candidate=candidate.to_dict(),
        measurements=measurements,
        error=error,
        seconds=round(time.perf_counter() - started, 6),
        **base,
    )


def _done(record: Record) -> Future[Record]:
    future: Future[Record] = Future()
    future.set_result(record)
    return future
