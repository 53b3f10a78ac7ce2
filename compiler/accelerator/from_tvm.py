"""From a module that TVM scheduled, tile by tile, to a program of the accelerator.

A tile is ``C[m, n] += A[m, k] * B[n, k]``, or the same over windows (`WindowTile`); the module may lay tiles in any order and cut its
loops as it likes. Its tile calls are recorded and become the same commands, through the same caches of tiles, that the accelerator's
own schedules become.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...intrinsics import Contraction, DType, Instruction, Overflow, ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine, Program
from ...intrinsics.accelerator.machine import ceil_div
from ...intrinsics.numerics import Array
from ...intrinsics.tensor_intrin import Tile, register_tile
from ...intrinsics.window_tile import WindowTile
from .job import result_of
from .lower import Tiles, assemble, check_fit, memory_image
from .operator_program import Engine
from .problem import KTile, MTile, NTile, Problem
from .recording import RecordedModule
from .schedule import Schedule, Step, emit
from .tile_cut import check_cut
from .tile_layout import Layout, layout_of


def tile_instruction(machine: AcceleratorMachine, *, m: int, n: int, k: int) -> Instruction:
    """A tile of ``m`` x ``n`` outputs and ``k`` products each, as an instruction that TVM can be given."""
    acc = DType(32)
    contraction = Contraction("mk,nk->mn", {"m": m, "n": n, "k": k}, machine.a, machine.b, acc, Overflow.WRAP)
    return Instruction(name="tile", contraction=contraction)


def tile_intrinsic(machine: AcceleratorMachine, *, m: int, n: int, k: int) -> str:
    """Name of the tensor intrinsic of a tile, for ``sch.tensorize``; of any size, since its calls are recorded first."""
    return register_tile(tile_instruction(machine, m=m, n=n, k=k).contraction)


def window_tile(machine: AcceleratorMachine, **sizes: Any) -> WindowTile:
    """A tile of a convolution over windows, on the types of a machine; ``sizes`` are the parameters of `WindowTile`."""
    return WindowTile(a=machine.a, b=machine.b, **sizes)


def window_intrinsic(machine: AcceleratorMachine, **sizes: Any) -> str:
    """Name of the tensor intrinsic of a `window_tile`, for ``sch.tensorize``."""
    return register_tile(window_tile(machine, **sizes))


@dataclass(frozen=True, kw_only=True)
class TvmProgram:
    """A scheduled module as a program, with the module's own work before and after it.

    Parameters
    ----------
    program : Program
    problem : Problem
        What the tiles compute together.
    schedule : Schedule
        Sizes and numbers of slots, and lag; its order says nothing, for the module had its own.
    copied : tuple of str
        Operands (a, b, c) whose tiles lie in a tensor that the module makes on the host, not in an input or the output.
    """

    program: Program
    problem: Problem
    schedule: Schedule
    copied: tuple[str, ...]
    _module: RecordedModule
    _layout: Layout

    def run(self, inputs: Sequence[Array], engine: Engine) -> Array:
        """Run the module on data: blocks before the tiles, the program on ``engine``, blocks after the tiles.

        Parameters
        ----------
        inputs : arrays
            As the module takes them.
        engine : callable
            Runs a program on a memory image, in place.

        Returns
        -------
        The module's output.
        """

        def finish(a: Array, b: Array) -> Array:
            memory = memory_image(self.problem, a, self._layout.weights(b))
            engine(self.program, memory)
            return result_of(self.program, memory)

        return self._module.run(inputs, finish)


def lower_module(
    module: Any,
    machine: AcceleratorMachine,
    *,
    a_slots: int = 2,
    b_slots: int = 2,
    c_slots: int = 2,
    lag: int = 1,
    macs: int | None = None,
) -> TvmProgram:
    """The program of a module (or of a TVM schedule) whose tile is tensorized by `tile_intrinsic` or `window_intrinsic`.

    Parameters
    ----------
    module : IRModule or tvm.s_tir.Schedule
        ``main`` takes the inputs, then the output.
    a_slots, b_slots, c_slots, lag : int
        As of `Schedule`: how many tiles of each operand are held at once, and how late stores are issued.
    macs : int, optional
        Useful multiply-accumulates; those of the tiles if the module pads nothing.

    Raises
    ------
    ScheduleError
        If the module's tiles cannot be expressed by commands; says which, and what is allowed.
    """
    recorded = RecordedModule(getattr(module, "mod", module))
    _check_types(recorded.tile, machine)
    layout = layout_of(recorded.calls)
    problem = Problem(machine=machine, op=layout.op, copies=layout.copies)
    schedule, tiles, products = _products(problem, layout, (a_slots, b_slots, c_slots, lag))
    check_fit(problem, schedule)
    useful = problem.op.macs * len(layout.turns) if macs is None else macs
    program = assemble(problem, schedule, tiles, emit(schedule, products), macs=useful)
    copied = tuple(operand for operand, tensor in recorded.tensors.items() if tensor.parameter is None)
    return TvmProgram(program=program, problem=problem, schedule=schedule, copied=copied, _module=recorded, _layout=layout)


def _check_types(tile: Tile, machine: AcceleratorMachine) -> None:
    if (tile.a, tile.b) != (machine.a, machine.b):
        raise ScheduleError(f"tiles are {tile.a} x {tile.b}; the design computes with {machine.a} x {machine.b}")
    if machine.max_k is None and machine.acc.width < tile.acc.width:
        raise ScheduleError(f"the design's sums wrap in {machine.acc}, the module's in {tile.acc}; allowed: acc of {tile.acc.width} bits")


def _products(problem: Problem, layout: Layout, slots: tuple[int, int, int, int]) -> tuple[Schedule, Tiles, list[Step]]:
    """Slots, tiles, and the products of tiles in the order of the calls."""
    m_size, n_size, k_size = layout.tile
    cols = problem.machine.cols
    firsts = [np.unique(values) for values in (layout.m, layout.n, layout.k)]
    check_cut(problem, layout, firsts)
    tiles = (
        [_m_tile(problem, layout, int(at)) for at in firsts[0]],
        [NTile(blocks=ceil_div(n_size, cols), cols=n_size, first=int(at) // cols, channel=int(at)) for at in firsts[1]],
        [KTile(chunks=ceil_div(k_size, problem.chunk), elements=k_size, first=int(at) // problem.chunk) for at in firsts[2]],
    )
    schedule = Schedule(
        m=layout.pixels[0] if problem.strips else ceil_div(m_size, problem.block_rows),
        n=ceil_div(n_size, cols),
        k=ceil_div(k_size, problem.chunk),
        a_slots=slots[0],
        b_slots=slots[1],
        c_slots=slots[2],
        lag=slots[3],
    )
    indices = (np.searchsorted(first, values) for first, values in zip(firsts, (layout.m, layout.n, layout.k), strict=True))
    order = list(zip(*(index.tolist() for index in indices), layout.turn.tolist(), strict=True))
    _check_whole(layout, order, tiles)
    groups = [_group(problem, tile) for tile in tiles[1]]
    return schedule, tiles, _steps(layout, order, len(tiles[2]), groups)


def _m_tile(problem: Problem, layout: Layout, at: int) -> MTile:
    image, first = divmod(at, problem.pixels)
    if problem.strips:
        rows, columns = layout.pixels
        return MTile(rows=columns, blocks=rows, image=image, first=first)
    size = layout.tile[0]
    blocks = 1 if problem.machine.weight_stationary else ceil_div(size, problem.block_rows)
    return MTile(rows=size, blocks=blocks, image=image, first=first)


def _group(problem: Problem, tile: NTile) -> int:
    """Which channels of A a tile of output channels uses, as `steps` counts them."""
    if problem.vector:
        return tile.first
    return tile.channel // problem.op.group_filters if problem.n_groups > 1 else 0


def _steps(layout: Layout, order: list[tuple[int, int, int, int]], depth: int, groups: list[int]) -> list[Step]:
    """Products in order; the first and the last of an output tile are known by counting."""
    summed = Counter(turn.c for turn in layout.turns)
    done: Counter[tuple[int, int, int]] = Counter()
    steps = []
    for m, n, k, number in order:
        turn = layout.turns[number]
        done[m, n, turn.c] += 1
        count = done[m, n, turn.c]
        steps.append(Step(m, n, k, count == 1, count == depth * summed[turn.c], groups[n], turn))
    return steps


def _check_whole(layout: Layout, order: list[tuple[int, int, int, int]], tiles: Tiles) -> None:
    """Refuse calls that leave out, repeat or overlap products."""
    counts, extents = [len(part) for part in tiles], (layout.op.outputs, layout.op.filters, layout.op.depth)
    for axis, count, size, extent in zip("mnk", counts, layout.tile, extents, strict=True):
        if count * size != extent:
            raise ScheduleError(
                f"{count} tiles of {size} along {axis} do not make up {extent}; allowed: tiles that cover every output once"
            )
    total = counts[0] * counts[1] * counts[2] * len(layout.turns)
    if len(set(order)) != total or len(order) != total:
        raise ScheduleError(
            f"the module makes {len(order)} tile calls, {len(set(order))} of them different, where {total} products of tiles make the whole"
        )
