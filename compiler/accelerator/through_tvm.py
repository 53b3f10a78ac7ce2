"""An operator through TVM: cut and ordered by its primitives like a schedule of the accelerator, tensorized, compiled, recorded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...intrinsics import CelosiaError, MappingError, ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine, Program
from ...intrinsics.numerics import Array
from ...intrinsics.tensor_intrin import Tile
from ..forms import CLASSES
from ..operators import Operator
from .batch import ONE, Batch, batch_of
from .convolution import gemm
from .from_tvm import TvmProgram, lower_module, tile_instruction, tile_intrinsic
from .operator_program import Engine, lower_operator
from .placement import Placement
from .problem import Problem
from .schedule import Schedule
from .tile_layout import tile_size
from .tile_module import tile_inputs, tile_module
from .tile_near import tile_near


@dataclass(frozen=True, kw_only=True)
class OperatorModule:
    """An operator that TVM scheduled, as a program.

    Parameters
    ----------
    lowered : TvmProgram
    placement : Placement or None
        Where the module is of the operator's convolutions, not of the operator itself.
    tile : Contraction or WindowTile
    route : str
        ``direct``, or a kind of `routes.Route`.
    batch : Batch
        Convolutions of the module.
    """

    lowered: TvmProgram
    placement: Placement | None
    tile: Tile
    route: str
    batch: Batch = ONE

    @property
    def program(self) -> Program:
        """The program."""
        return self.lowered.program

    @property
    def schedule(self) -> Schedule:
        """Slots and lag, and the sizes of slots."""
        return self.lowered.schedule

    def run(self, inputs: Sequence[Array], engine: Engine) -> Array:
        """Inputs of the operator to its output, with the program run by ``engine``."""
        if self.placement is None:
            return self.lowered.run(inputs, engine)
        op = self.placement.op
        operands = self.placement.activations(inputs), self.placement.weights(inputs)
        given = tile_inputs(op, *operands, tile=self.tile, batch=self.batch)
        return self.placement.output(self.lowered.run(given, engine).reshape(-1, op.filters))


def lower_through_tvm(
    operator: Operator, placement: Placement, machine: AcceleratorMachine, schedule: Schedule
) -> tuple[OperatorModule, dict[str, Any]]:
    """The program that TVM's schedule of an operator becomes.

    Parameters
    ----------
    operator, placement : what runs, and where
    schedule : Schedule
        Of the accelerator: TVM's tile is the nearest that it tensorizes, its loops follow the order, slots and lag are kept.

    Returns
    -------
    module : OperatorModule
    mapping : dict
        Route (``direct``: tiles lie in the operands or in a padded copy; otherwise one of `routes`, whose operands are packed), tile,
        and operands that the module copies on the host.

    Raises
    ------
    MappingError, ScheduleError
        If neither the convolution nor the operator can be tensorized; the message is that of the convolution, if the operator is one,
        and names the native way if that takes the schedule.
    """
    if placement.corrected:
        raise MappingError(f"{operator.name} has a zero point, which no module through TVM corrects; allowed: the native way")
    problem = Problem(machine=machine, op=placement.op)
    inner = replace(schedule, order=schedule.order.replace("k", "") + "k")  # always legal; the module's k may be longer than a turn's
    found, obstacle = _first_direct(placement, problem, (schedule, inner))
    if found is None:
        try:
            found = _packed(operator, placement, problem, inner)
        except (MappingError, ScheduleError) as error:
            found, _ = _first_direct(placement, problem, _smaller(inner))
            if found is None:
                raise _with_way_out(obstacle or error, placement, machine, schedule) from None
    copied = list(found.lowered.copied)
    return found, {"through": "tvm", "route": found.route, "tile": list(tile_size(found.tile)), "copied": copied}


def _smaller(schedule: Schedule) -> list[Schedule]:
    """Ever fewer rows: TVM's tile may be larger than the schedule's, in filters and products that no whole blocks divide."""
    return [replace(schedule, m=schedule.m >> halvings) for halvings in range(1, schedule.m.bit_length())]


def _with_way_out(obstacle: CelosiaError, placement: Placement, machine: AcceleratorMachine, schedule: Schedule) -> CelosiaError:
    """The obstacle, and the native way if that is open."""
    try:
        lower_operator(placement, machine, schedule)
    except CelosiaError:
        return obstacle
    return type(obstacle)(f"{obstacle}; the native way, without TVM, takes it")


def _first_direct(
    placement: Placement, problem: Problem, schedules: Sequence[Schedule]
) -> tuple[OperatorModule | None, CelosiaError | None]:
    """The first schedule that the convolutions take as they lie, or the first obstacle."""
    batch = batch_of(placement)
    if batch is None:
        return None, None
    obstacle = None
    # a matrix product takes its activations whole; a slice of them is chosen by windows
    products = [False] if problem.op.is_gemm and not batch.extents and not batch.slices else []
    for windows, schedule in itertools.product([*products, True], schedules):
        try:
            return _direct(placement, problem, schedule, batch, windows=windows), None
        except (MappingError, ScheduleError) as error:
            obstacle = obstacle or error
    return None, obstacle


def _direct(placement: Placement, problem: Problem, schedule: Schedule, batch: Batch, *, windows: bool) -> OperatorModule:
    tile = tile_near(problem, schedule, windows=windows)
    module = tile_module(placement.op, problem.machine, tile=tile, order=schedule.order, batch=batch)
    return OperatorModule(
        lowered=_lowered(placement, problem, module, schedule), placement=placement, tile=tile, route="direct", batch=batch
    )


def _lowered(placement: Placement, problem: Problem, module: Any, schedule: Schedule) -> TvmProgram:
    return lower_module(
        module,
        problem.machine,
        a_slots=schedule.a_slots,
        b_slots=schedule.b_slots,
        c_slots=schedule.c_slots,
        lag=schedule.lag,
        macs=placement.macs,
    )


def _packed(operator: Operator, placement: Placement, problem: Problem, schedule: Schedule) -> OperatorModule:
    """The operator by one of the routes of the compiler; the module packs what does not lie as tiles need it."""
    from .. import tensorize
    from ..schedule import schedule_space

    classes = operator.classes
    machine, rows, cols = problem.machine, problem.block_rows, problem.machine.cols
    units = {"m": rows, "n": cols, "k": Problem(machine=machine, op=gemm(1, 1, 1)).chunk}
    wanted = {"m": schedule.m * rows, "n": schedule.n * cols, "k": schedule.k * problem.chunk}
    sizes = {axis: _near(wanted[axis], classes.get(axis, 1), units[axis]) for axis in "mnk"}
    instruction = tile_instruction(machine, **sizes)
    space = schedule_space(operator, instruction)
    names = {CLASSES[loop.role] for route in space.routes for loop in route.split_loops}
    order = "".join(axis for axis in schedule.order if axis in names)
    chosen = space.schedule({"order": order} if order else {})
    module = tensorize.apply(operator, instruction, chosen, intrinsic=tile_intrinsic(machine, **sizes))
    lowered = _lowered(placement, problem, module, schedule)
    return OperatorModule(lowered=lowered, placement=None, tile=instruction.contraction, route=chosen.route.kind)


def _near(wanted: int, extent: int, unit: int) -> int:
    """Whole units, not more than the operator has."""
    return max(min(-(-extent // unit), wanted // unit), 1) * unit
