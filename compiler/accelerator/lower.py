"""From a problem and a schedule to a program."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...intrinsics import ScheduleError
from ...intrinsics.accelerator import Command, Op, Program, Register, Target
from ...intrinsics.numerics import Array
from .convolution import Convolution
from .problem import KTile, MTile, NTile, Problem
from .registers import BEATS, BLOCKS, ROWS, a_walker, configuration
from .schedule import ONCE, Event, Schedule, Turn, events


def check_fit(problem: Problem, schedule: Schedule) -> None:
    """Refuse a schedule whose tiles do not fit.

    Raises
    ------
    ScheduleError
        Names the memory, what is needed and what there is.
    """
    machine = problem.machine
    needs = (
        ("A scratchpad", schedule.a_slots * problem.a_slot(schedule.m, schedule.k), machine.a_words, "words per bank"),
        ("B scratchpad", schedule.b_slots * problem.b_slot(schedule.n, schedule.k), machine.b_words, "words per bank"),
        ("accumulator memory", schedule.c_slots * problem.c_slot(schedule.m, schedule.n), machine.acc_rows, "rows"),
        ("memory of residuals", schedule.c_slots * problem.residual_slot(schedule.m, schedule.n), machine.residual_words, "words"),
    )
    for name, need, have, unit in needs:
        if need > have:
            raise ScheduleError(f"tiles need {need} {unit} of the {name}, which has {have}: too small by {need - have}")
    beats = problem.most_beats(schedule.m, schedule.n, schedule.k)
    if beats >= BEATS:
        raise ScheduleError(f"a row of a tile takes {beats} port beats; allowed: below {BEATS} (a smaller tile, a wider port)")
    rows = schedule.m * problem.block_rows
    if schedule.m > problem.max_m or schedule.n > problem.max_n:
        raise ScheduleError(
            f"a tile of {schedule.m} x {schedule.n} blocks is too large; allowed: at most {problem.max_m} x {problem.max_n}"
        )
    if (schedule.m >= BLOCKS and not machine.weight_stationary) or schedule.n >= BLOCKS or rows >= ROWS:
        raise ScheduleError(
            f"a tile of {schedule.m} x {schedule.n} blocks is too large for a command; allowed: below {BLOCKS} blocks and {ROWS} rows"
        )
    if schedule.n * machine.cols >= ROWS:
        raise ScheduleError(f"a tile of {schedule.n * machine.cols} columns is too large for a command; allowed: below {ROWS}")


def lower(problem: Problem, schedule: Schedule) -> Program:
    """The program of a schedule.

    Raises
    ------
    ScheduleError
        If a tile does not fit, or an unfinished output tile would be evicted.
    """
    check_fit(problem, schedule)
    tiles = tiles_of(problem, schedule)
    share, residual = int(problem.a_share(schedule.n)), problem.output.residual
    commands = events(schedule, (len(tiles[0]), len(tiles[1]), len(tiles[2])), a_share=share, residual=residual)
    return assemble(problem, schedule, tiles, commands)


Tiles = tuple[list[MTile], list[NTile], list[KTile]]


def tiles_of(problem: Problem, schedule: Schedule) -> Tiles:
    """Tiles of a schedule along m, n and k."""
    return problem.m_tiles(schedule.m), problem.n_tiles(schedule.n), problem.k_tiles(schedule.k)


def assemble(problem: Problem, schedule: Schedule, tiles: Tiles, commands: Iterable[Event], *, macs: int | None = None) -> Program:
    """The program of commands on tiles.

    Parameters
    ----------
    schedule : Schedule
        Its tile sizes are the sizes of slots.
    tiles : lists of MTile, NTile, KTile
        What the indices of the commands mean.
    macs : int, optional
        Useful multiply-accumulates; None takes those of the problem.
    """
    return _Lowering(problem, schedule, tiles).program(commands, problem.op.macs if macs is None else macs)


class _Lowering:
    def __init__(self, problem: Problem, schedule: Schedule, tiles: Tiles) -> None:
        self.problem, self.schedule = problem, schedule
        self.m, self.n, self.k = tiles

    def program(self, sequence: Iterable[Event], macs: int) -> Program:
        commands = self.configuration()
        left = self.problem.op.first_window[1]
        first = 1 if self.problem.output.uses_channels else 0
        if first:
            commands.append(self.load_channels())
        make = {"a": self.load_a, "b": self.load_b, "residual": self.load_residual, "compute": self.compute, "store": self.store}
        for event in sequence:
            corner = event.turn.corner or self.problem.op.first_window
            if event.kind == "a" and corner[1] != left:
                left = corner[1]
                commands.append(Command(Op.SET, {"register": Register.A, **a_walker(self.problem, corner)}))
            op, values = make[event.kind](event)
            loads = event.loads + first if event.loads else None
            commands.append(Command(op, values, loads, event.computes or None, event.stores or None))
        commands.append(Command(Op.END))
        problem = self.problem
        return Program(
            design_hash=problem.machine.design_hash,
            commands=tuple(commands),
            memory_bytes=problem.memory_bytes,
            buffers=problem.buffers,
            macs=macs,
            title=title_of(problem.op),
        )

    # ---- configuration

    def configuration(self) -> list[Command]:
        registers = configuration(self.problem)
        return [Command(Op.SET, {"register": register, **values}) for register, values in registers.items()]

    def load_channels(self) -> Command:
        problem = self.problem
        beats = problem.machine.channel_word // problem.machine.port_bytes
        values = {**_STILL, "base": problem.offset("channels"), "rows": problem.n_blocks, "beats": beats, "first_beats": beats}
        return Command(Op.LOAD, {**values, "target": Target.CHANNELS, "spad": 0, "row_stride": 1})

    # ---- tiles

    def load_a(self, event: Event) -> tuple[Op, dict[str, int]]:
        problem, schedule = self.problem, self.schedule
        m, k = self.m[event.m], self.k[event.k]
        values = {
            "target": Target.A,
            "spad": event.slots[0] * problem.a_slot(schedule.m, schedule.k),
            "rows": m.rows,
            "beats": int(problem.strip_rows(m.blocks)) if problem.strips else problem.a_beats(k),
            "spare": problem.a_spare(k),
            "row_stride": problem.a_stride(schedule.k),
        }
        return Op.LOAD, {**values, **a_place(problem, m, event.n, k, event.turn)}

    def load_b(self, event: Event) -> tuple[Op, dict[str, int]]:
        problem, schedule = self.problem, self.schedule
        n, k = self.n[event.n], self.k[event.k]
        values = {
            **_STILL,
            "target": Target.B,
            "spad": event.slots[1] * problem.b_slot(schedule.n, schedule.k),
            "rows": n.cols,
            "beats": problem.b_beats(k),
            "spare": problem.b_spare(k),
            "row_stride": problem.b_stride(schedule.k),
        }
        return Op.LOAD, {**values, **b_place(problem, n, k, event.turn)}

    def load_residual(self, event: Event) -> tuple[Op, dict[str, int]]:
        """Every pixel is a row, every block of columns a run."""
        problem, m, n = self.problem, self.m[event.m], self.n[event.n]
        pixel = m.image * problem.pixels + m.first
        values = {
            **_STILL,
            "target": Target.RESIDUAL,
            "base": problem.offset("residual") + pixel * problem.c_pitch + n.channel,
            "spad": self.residual_word(event),
            "rows": m.rows,
            "beats": n.blocks * problem.out_beats,
            "first_beats": problem.out_beats,
            "row_stride": n.blocks,
        }
        return Op.LOAD, values

    def residual_word(self, event: Event) -> int:
        """First word of the residuals of an output tile."""
        return event.slots[2] * self.problem.residual_slot(self.schedule.m, self.schedule.n)

    def compute(self, event: Event) -> tuple[Op, dict[str, int]]:
        problem, schedule = self.problem, self.schedule
        m, n, k = self.m[event.m], self.n[event.n], self.k[event.k]
        still = problem.machine.weight_stationary
        units = problem.units(k)
        return Op.COMPUTE, {
            "accumulate": int(event.accumulate),
            "vector": int(problem.vector),
            "a": event.slots[0] * problem.a_slot(schedule.m, schedule.k),
            "b": event.slots[1] * problem.b_slot(schedule.n, schedule.k),
            "c": event.slots[2] * problem.c_slot(schedule.m, schedule.n),
            "k_units": m.rows if still else units,
            "m_blocks": units if still else m.blocks,
            "n_blocks": n.blocks,
            "a_stride": problem.a_stride(schedule.k),
            "b_stride": problem.b_stride(schedule.k),
        }

    def store(self, event: Event) -> tuple[Op, dict[str, int]]:
        problem, schedule = self.problem, self.schedule
        m, n = self.m[event.m], self.n[event.n]
        size, cols = problem.output.size, problem.machine.cols
        rows = problem.block_rows
        pixel = event.turn.c * problem.op.outputs + m.image * problem.pixels + m.first
        still = problem.machine.weight_stationary
        valid = m.rows if still or problem.strips else rows
        last_rows = valid if still or problem.strips else m.rows - (m.blocks - 1) * rows
        return Op.STORE, {
            "base": problem.offset("c") + pixel * problem.c_pitch + n.channel * size,
            "c": event.slots[2] * problem.c_slot(schedule.m, schedule.n),
            "channel": n.first if problem.output.uses_channels else 0,
            "m_blocks": m.blocks,
            "n_blocks": n.blocks,
            "rows": valid,
            "last_rows": last_rows,
            "block_rows": m.rows if still else rows,
            "last_bytes": (n.cols - (n.blocks - 1) * cols) * size,
            "residual": self.residual_word(event),
        }


def title_of(op: Convolution) -> str:
    """A convolution's sizes for people."""
    if op.is_gemm:
        return f"matrix product {op.outputs}x{op.filters}x{op.depth}"
    rows, columns = op.kernel
    groups = f" in {op.groups} groups" if op.groups > 1 else ""
    return f"convolution {op.images}x{op.height}x{op.width}x{op.channels} by {op.filters}x{rows}x{columns}{groups}, stride {op.stride}"


_STILL = {"spare": 0, "x": 0, "y": 0, "column": 0, "offset": 0, "skip": 0, "tap": 0}


def a_place(problem: Problem, m: MTile, group: int, k: KTile, turn: Turn = ONCE) -> dict[str, int]:
    """Where the first row of a tile of A begins; ``group`` is a group of channels, in vector mode one per column block."""
    op, machine = problem.op, problem.machine
    down, column = divmod(m.first, op.out_width)
    run, skip_elements = divmod(k.first * problem.chunk, problem.run_elements)
    kernel_row, tap = (run, 0) if problem.merged else divmod(run, op.kernel[1])
    skip = skip_elements * machine.a_bytes
    channel = group * (machine.cols if problem.vector else op.group_channels)
    top, left = turn.corner or op.first_window
    y = down * op.stride + top + kernel_row * op.dilation
    image = problem.offset("a") + channel * machine.a_bytes + (turn.a * op.images + m.image) * op.height * problem.row_pitch
    return {
        "base": (image + y * problem.row_pitch) % (1 << 32),
        "x": (column * op.stride + left) * problem.pixel,
        "y": y,
        "column": column,
        "offset": tap * op.dilation * problem.pixel + skip,
        "skip": skip,
        "tap": tap,
        "first_beats": problem.a_run_beats - skip // machine.port_bytes,
    }


def b_place(problem: Problem, n: NTile, k: KTile, turn: Turn = ONCE) -> dict[str, int]:
    """Where the first row of a tile of B begins."""
    machine = problem.machine
    base = problem.offset("b") + (turn.b * problem.op.filters + n.channel) * problem.b_pitch
    if not problem.regular:
        return {"base": base + k.first * problem.b_run_beats * machine.port_bytes, "first_beats": problem.b_run_beats}
    skip = k.first * problem.chunk * machine.b_bytes
    return {"base": base, "offset": skip, "skip": skip, "first_beats": problem.b_run_beats - skip // machine.port_bytes}


def pack_weights(problem: Problem, weights: Array) -> Array:
    """Weights [filter, depth] with every run padded to whole beats: (filter, `b_pitch` / element size)."""
    size, width = problem.machine.b_bytes, problem.machine.port_bytes
    if problem.vector:  # a tap per unit, in its first lane
        spread = np.zeros((*weights.shape, problem.machine.lanes), weights.dtype)
        spread[..., 0] = weights
        weights = spread.reshape(len(weights), -1)
    runs = weights.reshape(len(weights), -1, problem.b_run // size)
    padded = problem.b_run_beats * width // size
    out = np.zeros((len(weights), runs.shape[1], padded), weights.dtype)
    out[:, :, : runs.shape[2]] = runs
    return out.reshape(len(weights), -1)


def pack_channels(problem: Problem, bias: Array | None, multiplier: Array | None) -> Array:
    """Biases and multipliers as the store path reads them: (n_blocks, channel_word) uint8."""
    machine, filters = problem.machine, problem.op.filters
    words = np.zeros((problem.n_groups, problem.group_blocks * machine.cols, 2), "<i4")
    for index, (values, default) in enumerate(((bias, 0), (multiplier, 1))):
        given = np.full(filters, default) if values is None else values
        words[:, : filters // problem.n_groups, index] = given.reshape(problem.n_groups, -1)
    content = np.ascontiguousarray(words.reshape(problem.n_blocks, -1)).view(np.uint8)
    return np.pad(content, ((0, 0), (0, machine.channel_word - content.shape[1])))


def memory_image(
    problem: Problem,
    activations: Array,
    weights: Array,
    *,
    bias: Array | None = None,
    multiplier: Array | None = None,
    residual: Array | None = None,
) -> Array:
    """Byte image with the operands in place and 0x55 where results will be.

    Parameters
    ----------
    activations : [image, y, x, channel], or (M, K) of a GEMM
    weights : [filter, kernel row, kernel column, channel], or (N, K) of a GEMM
    bias, multiplier : (filters,) int32, optional
    residual : (output pixels, filters) of the output's type, optional
    """
    memory = np.full(problem.memory_bytes, 0x55, np.uint8)
    op = problem.op
    contents = {
        "a": activations.reshape(-1, op.height, op.width, op.channels),
        "b": pack_weights(problem, weights.reshape(-1, op.depth)),
    }
    if problem.output.uses_channels:
        contents["channels"] = pack_channels(problem, bias, multiplier)
    if residual is not None:
        contents["residual"] = residual.reshape(-1, op.filters)
    for buffer in problem.buffers:
        if buffer.name in contents:
            buffer.view(memory)[...] = contents[buffer.name]
    return memory
