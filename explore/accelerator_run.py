"""One program on one accelerator: predicted, and run on the functional model or on RTL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..intrinsics import ParameterError, SimulationError
from ..intrinsics.accelerator import AcceleratorMachine, Events, Limits, MemoryTiming, Program, predict, predict_interval
from ..intrinsics.accelerator.functional import execute
from ..intrinsics.accelerator.ledger import array_ledger, critical_path
from ..intrinsics.numerics import Array

Progress = Callable[[str], None]

FIDELITIES = ("model", "rtl", "both")


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a program did.

    Parameters
    ----------
    predicted : Events
        By the exact model.
    rtl : Events or None
        Of the RTL; None where it was not run.
    ledger, critical_path : mapping
        What the array did, and what was critical; each sums to `cycles`.
    simulation_seconds, build_seconds : float
    error : bool or None
        The error flag of the RTL, which a run that is reported does not raise; None where RTL was not run.
    """

    predicted: Events
    rtl: Events | None
    ledger: Mapping[str, int]
    critical_path: Mapping[str, int]
    simulation_seconds: float = 0.0
    build_seconds: float = 0.0
    error: bool | None = None

    @property
    def events_equal(self) -> bool | None:
        """Whether every event of the RTL came in the cycle that the model predicted; None where RTL was not run."""
        return None if self.rtl is None else self.rtl == self.predicted

    @property
    def cycles(self) -> int:
        """Of the RTL if it ran, else of the model."""
        return (self.rtl or self.predicted).cycles


def check_fidelity(fidelity: str) -> None:
    """Refuse another word than those of `FIDELITIES`."""
    if fidelity not in FIDELITIES:
        raise ParameterError(f"fidelity must be one of {', '.join(FIDELITIES)}, not {fidelity!r}")


def observe(
    point: DesignPoint,
    program: Program,
    memory: Array,
    *,
    fidelity: str = "both",
    timing: MemoryTiming | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Predict a program and run it; the memory image is changed in place.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
    memory : (bytes,) uint8
    fidelity : "model", "rtl" or "both"
        ``model`` computes the result functionally; the others run the RTL.

    Raises
    ------
    HashMismatchError, ParameterError, SimulationError
    """
    check_fidelity(fidelity)
    machine, timing = machine_of(point), timing or MemoryTiming()
    program.check(machine, memory)
    predicted = predict(machine, program, memory=timing, limits=limits)
    rtl, error, seconds = None, None, (0.0, 0.0)
    if fidelity == "model":
        execute(machine, program, memory)
    else:
        from ..sim.accelerator import AcceleratorModel

        model = AcceleratorModel(point, progress=progress)
        longest = predicted.cycles if timing.exact else predict_interval(machine, program, memory=timing, limits=limits)[1]
        run = model.run(program, memory, timing=timing, limits=limits, max_cycles=2 * longest + 100_000)
        if run.error:
            raise SimulationError("the design raised its error flag: it dropped an illegal command, or memory answered with an error")
        rtl, error, seconds = run.events, run.error, (run.simulation_seconds, model.library.build_seconds)
    seen = rtl or predicted
    return Observed(
        predicted=predicted,
        rtl=rtl,
        ledger=array_ledger(machine, program, seen),
        # the way back follows the model's equations, so it needs events that keep them
        critical_path=critical_path(machine, program, seen if rtl == predicted else predicted, memory=timing, limits=limits),
        simulation_seconds=seconds[0],
        build_seconds=seconds[1],
        error=error,
    )


@dataclass(frozen=True, kw_only=True)
class ProgramResult:
    """What is known of a program that came from a file.

    Parameters
    ----------
    design_hash, title : str
    observed : Observed
    matches_functional : bool
        Whether the whole memory image equals that of the functional model.
    commands : int
    macs : int
        Useful multiply-accumulates, as the program says.
    utilization : float
    """

    design_hash: str
    title: str
    observed: Observed
    matches_functional: bool
    commands: int
    macs: int
    utilization: float

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked differs."""
        return self.matches_functional and self.observed.events_equal is not False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        seen = self.observed
        names = ("design_hash", "title", "matches_functional", "commands", "macs", "utilization")
        return {
            **{name: getattr(self, name) for name in names},
            "cycles": seen.cycles,
            "source": "model" if seen.rtl is None else "rtl",
            "model_cycles": seen.predicted.cycles,
            "rtl_cycles": None if seen.rtl is None else seen.rtl.cycles,
            "events_equal": seen.events_equal,
            "error": seen.error,
            "ledger": dict(seen.ledger),
            "critical_path": dict(seen.critical_path),
            "simulation_seconds": seen.simulation_seconds,
            "build_seconds": seen.build_seconds,
        }


def simulate_program(
    point: DesignPoint,
    program: Program,
    memory: Array,
    *,
    fidelity: str = "both",
    timing: MemoryTiming | None = None,
    progress: Progress | None = None,
) -> ProgramResult:
    """Run a program on a memory image, which is changed in place, and compare all of it with the functional model.

    Raises
    ------
    HashMismatchError, ParameterError, SimulationError
    """
    machine: AcceleratorMachine = machine_of(point)
    program.check(machine, memory)
    functional = memory.copy()
    execute(machine, program, functional)
    seen = observe(point, program, memory, fidelity=fidelity, timing=timing, progress=progress)
    return ProgramResult(
        design_hash=machine.design_hash,
        title=program.title,
        observed=seen,
        matches_functional=bool(np.array_equal(memory, functional)),
        commands=len(program.commands),
        macs=program.macs,
        utilization=program.macs / (seen.cycles * machine.macs_per_cycle) if seen.cycles else 0.0,
    )
