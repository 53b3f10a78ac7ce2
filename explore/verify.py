"""Verification of the front: every operator of every member on RTL, member after member in parallel, journaled one by one."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..intrinsics import CelosiaError, MismatchError, ToolNotFoundError
from .candidate import Candidate
from .evaluator import ENVIRONMENT_ERRORS, error_record
from .journal import Journal, Record

POLL_SECONDS = 0.2
REPRODUCE = "reproduce: "
"""What stands before the command in the message of a difference."""

DIFFERENCES = ("MismatchError", "CyclesDifferError")
"""Classes of errors that say that RTL and model, or RTL and reference, are not the same."""


class StoppedError(CelosiaError):
    """A verification was stopped on request; nothing is recorded of it."""


class AuditError(MismatchError):
    """RTL differs from the model in a cycle or from the reference in a bit, in a study that such a difference stops."""

    @property
    def reproduce(self) -> str:
        """The command that shows the difference, or nothing."""
        return str(self).partition(REPRODUCE)[2]


class Run(Protocol):
    """What a run on RTL measured."""

    @property
    def cycles(self) -> int: ...
    def to_dict(self) -> dict[str, Any]: ...


class Verifier(Protocol):
    """Runs one operator of a candidate on RTL."""

    def run(self, candidate: Candidate, name: str, *, progress: Callable[..., None] | None = None) -> Run:
        """Measure, without judging."""
        ...

    def check(self, run: Any, candidate: Candidate, name: str, *, expected: int | None) -> None:
        """Judge a run; raises `MismatchError`."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What RTL says of one member: a record per operator, and the first failure."""

    candidate: Candidate
    records: Mapping[str, Record]

    @property
    def failures(self) -> list[Record]:
        """Records with an error."""
        return [record for record in self.records.values() if record.error]


@dataclass
class Verification:
    """One verification of several candidates; `run` it once.

    Parameters
    ----------
    verifier : Verifier
    journal : Journal
    seed : int
    workers : int
        Members verified at the same time.
    progress : callable
        Called as ``progress("verify", cycles, cycles of all runs, note)``.
    stop : callable
        Asked several times per second whether to stop.
    strict : bool
        The first difference between RTL and model ends the verification.
    """

    verifier: Verifier
    journal: Journal
    seed: int
    workers: int = 1
    progress: Callable[..., None] = lambda *_: None
    stop: Callable[[], bool] = lambda: False
    strict: bool = False
    _cycles: dict[tuple[str, str], int] = field(default_factory=dict)
    _broken: threading.Event = field(default_factory=threading.Event)

    def run(self, members: Sequence[tuple[Candidate, Mapping[str, int]]]) -> list[Verdict]:
        """Verify candidates, given the model's cycles of each operator; raises `StoppedError` if stopped.

        Raises
        ------
        ToolNotFoundError
            If there is no Verilator or compiler: no member can be verified then.
        AuditError
            If the verification is strict and finds a difference, also one that the journal remembers.
        """
        self._total = sum(sum(expected.values()) for _, expected in members)
        self._versions = rtl_versions()
        longest = sorted(range(len(members)), key=lambda place: (-sum(members[place][1].values()), place))
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            futures = {place: pool.submit(self._member, *members[place]) for place in longest}
            try:
                self._watch(list(futures.values()))
            finally:
                self._broken.set()
                for future in futures.values():
                    future.cancel()
        return [futures[place].result() for place in range(len(members))]

    def _watch(self, futures: list[Future[Verdict]]) -> None:
        open_futures = set(futures)
        while open_futures:
            done, open_futures = wait(open_futures, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            finished = len(futures) - len(open_futures)
            cycles = min(sum(self._cycles.values()), self._total)
            stage = "cycles" if cycles else "cycles, building the first designs"
            self.progress("verify", cycles, self._total, f"{stage}, {finished}/{len(futures)} designs done")

    def _member(self, candidate: Candidate, expected: Mapping[str, int]) -> Verdict:
        return Verdict(candidate, {name: self._operator(candidate, name, expected[name]) for name in expected})

    def _operator(self, candidate: Candidate, name: str, expected: int) -> Record:
        known = self.journal.records.get((candidate.hash, "rtl", name))
        if known is None or (known.error and known.error["class"] in ENVIRONMENT_ERRORS):
            known = self._measure(candidate, name, expected)
            self.journal.replace(known)
        if self.strict and known.error and known.error["class"] in DIFFERENCES:
            raise AuditError(known.error["message"])
        self._cycles[candidate.hash, name] = expected
        return known

    def _measure(self, candidate: Candidate, name: str, expected: int) -> Record:
        def report(_: str, cycles: int, *__: object) -> None:
            self._cycles[candidate.hash, name] = cycles
            self._pause_point()

        self._pause_point()
        started, clock = time.time(), time.perf_counter()
        measurements, error = None, None
        try:
            run = self.verifier.run(candidate, name, progress=report)
            self.verifier.check(run, candidate, name, expected=expected)
            measurements = run.to_dict()
        except (StoppedError, ToolNotFoundError):
            raise
        except Exception as failure:  # a member that fails is reported as such; the others go on
            self._pause_point()  # Ctrl-C in a terminal also kills the compilers that we started
            error = error_record("rtl", failure)
        return Record(
            hash=candidate.hash,
            fidelity="rtl",
            operator=name,
            candidate=candidate.to_dict(),
            measurements=measurements,
            error=error,
            origin="verify",
            seed=self.seed,
            versions=self._versions,
            started=started,
            seconds=round(time.perf_counter() - clock, 6),
        )

    def _pause_point(self) -> None:
        if self._broken.is_set() or self.stop():
            raise StoppedError("stopped on request")


def model_versions() -> dict[str, str]:
    """Versions of what the model's numbers and the search's path depend on."""
    from .. import __version__
    from ..hw.design_point import HW_VERSION

    return {"celosia": __version__, "hw": str(HW_VERSION), **{name: _version(name) for name in ("nevergrad", "numpy")}}


def rtl_versions() -> dict[str, str]:
    """Versions of what a run on RTL depends on."""
    from .. import __version__
    from ..hw.design_point import HW_VERSION

    return {
        "celosia": __version__,
        "hw": str(HW_VERSION),
        **{name: _version(name) for name in ("amaranth", "apache-tvm", "pyosys", "verilator")},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
