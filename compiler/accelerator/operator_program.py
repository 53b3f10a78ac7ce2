"""Any operator that has a place on the accelerator, as one program: from the mapper's einsum through its placement to commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...intrinsics.accelerator import AcceleratorMachine, Program
from ...intrinsics.numerics import Array
from ..einsum import Einsum
from ..einsum_parse import parse as parse_function
from ..operators import Operator
from ..reasons import Reason, Rejected
from .convolution import Output
from .job import result_of
from .lower import assemble, check_fit, memory_image, tiles_of
from .operators import placement_of
from .placement import Placement, fit_machine, place
from .problem import Problem
from .schedule import Schedule, emit, steps

Engine = Callable[[Program, Array], object]
"""Runs a program on a memory image, in place: the functional model, or RTL."""


@dataclass(frozen=True, kw_only=True)
class OperatorProgram:
    """An operator as a program.

    Parameters
    ----------
    placement : Placement
    problem : Problem
    schedule : Schedule
    program : Program
    """

    placement: Placement
    problem: Problem
    schedule: Schedule
    program: Program

    def image(self, inputs: Sequence[Array]) -> Array:
        """The memory image with an operator's inputs in place, uint8."""
        weights = self.placement.weights(inputs)
        bias = _bias(self.placement, weights) if self.placement.corrected else None
        return memory_image(self.problem, self.placement.activations(inputs), weights, bias=bias)

    def output(self, memory: Array) -> Array:
        """The operator's output in a memory image after a run."""
        return self.placement.output(result_of(self.program, memory))

    def run(self, inputs: Sequence[Array], engine: Engine) -> Array:
        """Inputs to output, with the program run by ``engine``."""
        memory = self.image(inputs)
        engine(self.program, memory)
        return self.output(memory)


def place_on(operator: Operator | Einsum | str | Any, machine: AcceleratorMachine) -> Placement | Rejected:
    """Where an operator (or its string, an einsum, or a TVM PrimFunc) runs on a machine, or why it does not.

    A reason is one of the mapper's list, with one sentence and, where one is known, the nearest change.
    """
    if isinstance(operator, str | Operator):
        found = placement_of(operator)
    elif isinstance(operator, Einsum):
        found = place(operator)
    else:
        parsed = parse_function(operator)
        found = parsed if isinstance(parsed, Rejected) else place(parsed.einsum)
    if isinstance(found, Rejected):
        return found
    return fit_machine(found, machine) or _uncorrectable(found, machine) or found


def problem_of(placement: Placement, machine: AcceleratorMachine) -> Problem:
    """The convolution of a placement, with memory for all of its copies.

    Raises
    ------
    ScheduleError
        If the machine's numbers do not hold it.
    """
    return Problem(machine=machine, op=placement.op, output=Output(bias=placement.corrected), copies=placement.copies)


def lower_operator(operator: Operator | Einsum | str | Placement | Any, machine: AcceleratorMachine, schedule: Schedule) -> OperatorProgram:
    """The program of an operator.

    Parameters
    ----------
    operator : Operator, operator string, Einsum, Placement, or PrimFunc
    machine : AcceleratorMachine
    schedule : Schedule
        Of one convolution of the placement; all turns follow it, and turns that are added up extend its loop over k.

    Raises
    ------
    MappingError
        If the operator has no place on the machine; the message is the reason.
    ScheduleError
        If a tile does not fit, or an unfinished output tile would be evicted.
    """
    found = operator if isinstance(operator, Placement) else place_on(operator, machine)
    if isinstance(found, Rejected):
        raise found.error()
    problem = problem_of(found, machine)
    check_fit(problem, schedule)
    tiles = tiles_of(problem, schedule)
    sizes = (len(tiles[0]), len(tiles[1]), len(tiles[2]))
    products = steps(schedule, sizes, a_share=int(problem.a_share(schedule.n)), sums=found.sums)
    program = assemble(problem, schedule, tiles, emit(schedule, products), macs=found.macs)
    return OperatorProgram(placement=found, problem=problem, schedule=schedule, program=program)


def _bias(placement: Placement, weights: Array) -> Array:
    """The correction of every output channel; all sums have the same, or `place_on` refuses."""
    parts = placement.bias(weights).reshape(placement.copies[1], placement.op.filters)
    total: Array = np.sum([parts[turn.b] for turn in placement.sums[0]], axis=0)
    return total


def _uncorrectable(placement: Placement, machine: AcceleratorMachine) -> Rejected | None:
    """Why a zero point of the activations cannot be corrected by biases."""
    if not placement.corrected:
        return None
    zero_point = placement.einsum.a.zero_point
    if len({tuple(sorted(turn.b for turn in summed)) for summed in placement.sums}) > 1:
        return Rejected(
            Reason.OPERAND_EXPRESSION,
            f"the zero point {zero_point} needs one bias per channel, but the parts of {placement.einsum.name} have weights of their own",
        )
    if not machine.requantizes:
        return Rejected(
            Reason.OPERAND_EXPRESSION,
            f"the zero point {zero_point} needs a bias per channel, which the design's store path does not add",
            "a design with channel_words above 0",
        )
    return None
