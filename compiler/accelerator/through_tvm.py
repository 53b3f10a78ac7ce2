"""An operator through TVM: cut and ordered by its primitives like a schedule of the accelerator, tensorized, compiled, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...intrinsics import MappingError, ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine, Program
from ...intrinsics.numerics import Array
from ..forms import CLASSES
from ..operators import Operator
from .convolution import gemm
from .from_tvm import TvmProgram, lower_module, tile_instruction, tile_intrinsic
from .operator_program import Engine
from .placement import Placement
from .problem import Problem
from .schedule import Schedule
from .tile_module import Tile, tile_inputs, tile_module, tile_near


@dataclass(frozen=True, kw_only=True)
class OperatorModule:
    """An operator that TVM scheduled, as a program.

    Parameters
    ----------
    lowered : TvmProgram
    placement : Placement or None
        Where the module is of the operator's convolution, not of the operator itself.
    tile : (int, int, int)
    route : str
        ``direct``, or a kind of `routes.Route`.
    """

    lowered: TvmProgram
    placement: Placement | None
    tile: Tile
    route: str

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
        given = tile_inputs(op, self.placement.activations(inputs), self.placement.weights(inputs))
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
        If neither the convolution nor the operator can be tensorized; the message is that of the last way tried.
    """
    slots = {name: getattr(schedule, name) for name in ("a_slots", "b_slots", "c_slots", "lag")}
    problem = Problem(machine=machine, op=placement.op)
    inner = replace(schedule, order=schedule.order.replace("k", "") + "k")  # always legal; the module's k may be longer than a turn's
    found = _direct(placement, problem, schedule, slots) or _direct(placement, problem, inner, slots)
    if found is None:
        tile, module, route = _packed(operator, problem, inner)
        found = OperatorModule(lowered=lower_module(module, machine, macs=placement.macs, **slots), placement=None, tile=tile, route=route)
    copied = list(found.lowered.copied)
    return found, {"through": "tvm", "route": found.route, "tile": list(found.tile), "copied": copied}


def _direct(placement: Placement, problem: Problem, schedule: Schedule, slots: dict[str, int]) -> OperatorModule | None:
    """Tiles of the convolution as it lies, if it is one and TVM takes them; a tile of one tap must be whole beats."""
    op = placement.op
    if placement.copies != (1, 1, 1) or not (problem.regular or op.is_gemm):
        return None
    tile = tile_near(problem, schedule)
    try:
        module = tile_module(op, problem.machine, tile=tile, order=schedule.order)
        lowered = lower_module(module, problem.machine, macs=placement.macs, **slots)
    except (MappingError, ScheduleError):
        return None
    return OperatorModule(lowered=lowered, placement=placement, tile=tile, route="direct")


def _packed(operator: Operator, problem: Problem, schedule: Schedule) -> tuple[Tile, Any, str]:
    """The operator by one of the routes of the compiler; the module packs what does not lie as tiles need it."""
    from .. import tensorize
    from ..schedule import schedule_space

    classes = operator.classes
    machine, rows, cols = problem.machine, problem.block_rows, problem.machine.cols
    units = {"m": rows, "n": cols, "k": Problem(machine=machine, op=gemm(1, 1, 1)).chunk}
    wanted = {"m": schedule.m * rows, "n": schedule.n * cols, "k": schedule.k * problem.chunk}
    tile = {axis: _near(wanted[axis], classes.get(axis, 1), units[axis]) for axis in "mnk"}
    instruction = tile_instruction(machine, **tile)
    space = schedule_space(operator, instruction)
    names = {CLASSES[loop.role] for route in space.routes for loop in route.split_loops}
    order = "".join(axis for axis in schedule.order if axis in names)
    chosen = space.schedule({"order": order} if order else {})
    module = tensorize.apply(operator, instruction, chosen, intrinsic=tile_intrinsic(machine, **tile))
    return (tile["m"], tile["n"], tile["k"]), module, chosen.route.kind


def _near(wanted: int, extent: int, unit: int) -> int:
    """Whole units, not more than the operator has."""
    return max(min(-(-extent // unit), wanted // unit), 1) * unit
