"""Tables of costs of many schedules of one problem, vectorised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...intrinsics.accelerator import Limits, MemoryTiming
from ...intrinsics.accelerator.costs import COLUMNS, INDEX
from ...intrinsics.numerics import Array
from .problem import Problem
from .registers import BEATS, BLOCKS, ROWS
from .schedule import Schedule

AXES = {"m": 0, "n": 1, "k": 2}


def _ceil(a: Array, b: Array | int) -> Array:
    return -(-a // b)


def columns(
    problem: Problem, m: Array, n: Array, k: Array, *, timing: MemoryTiming | None = None, limits: Limits | None = None
) -> dict[str, Array | int]:
    """Costs of tiles ``m`` x ``n`` x ``k``, arrays that broadcast: all columns but those of the order, the slots and the lag."""
    timing, limits = timing or MemoryTiming(), limits or Limits.of(problem.machine)
    return {
        **_along_m(problem, m),
        **_along_n(problem, n),
        **_along_k(problem, k),
        "latency": timing.latency + problem.machine.read_register,
        "outstanding": limits.outstanding,
        "queue_depth": limits.queue_depth,
        "split": int(problem.machine.split),
        "preload": problem.machine.preload,
        "store_latency": problem.machine.store_latency,
        "sets": 3 + problem.output.uses_channels + problem.output.residual,
        "residual": int(problem.output.residual),
        "prologue": problem.n_blocks * (problem.machine.channel_word // problem.machine.port_bytes) if problem.output.uses_channels else 0,
        "a_share": problem.a_share(n),
        "command_interval": problem.machine.command_interval,
        "command_depth": problem.machine.queue_depth,
        "confirmation": problem.machine.confirmation(timing.write_latency, problem.empty_beats),
    }


def table(
    problem: Problem,
    m: Array,
    n: Array,
    k: Array,
    *,
    timing: MemoryTiming | None = None,
    limits: Limits | None = None,
    **shape: Array | int,
) -> Array:
    """Cost rows of tiles ``m`` x ``n`` x ``k`` (arrays of equal length); ``shape`` holds order, slots and lag columns.

    Returns
    -------
    (rows, len(COLUMNS)) int64
    """
    m, n, k = (np.asarray(size, np.int64) for size in (m, n, k))
    out = np.zeros((len(m), len(COLUMNS)), np.int64)
    for name, value in (columns(problem, m, n, k, timing=timing, limits=limits) | shape).items():
        out[:, INDEX[name]] = value
    return out


def _interval(problem: Problem, units: Array) -> Array:
    return np.maximum(units, problem.machine.min_interval)


def _tail(problem: Problem, rows: Array) -> Array | int:
    machine = problem.machine
    if not machine.weight_stationary:
        return machine.tail(machine.min_interval)
    return machine.tail(machine.min_interval) - (_interval(problem, rows) - rows)


def _along_m(problem: Problem, m: Array) -> dict[str, Array | int]:
    if problem.strips:
        return _along_strips(problem, m)
    still = problem.machine.weight_stationary
    period = _ceil(np.full_like(m, problem.m_blocks), m)
    rows_full = np.minimum(m * problem.block_rows, problem.pixels)
    rows_last = problem.pixels - (period - 1) * m * problem.block_rows
    values: dict[str, Array | int] = {"tiles_m": period * problem.op.images, "period_m": period}
    for index, rows in enumerate((rows_full, rows_last, rows_full, rows_last)):
        blocks = _ceil(rows, problem.block_rows)
        values |= {
            f"a_m_{index}": rows,
            f"c_m_{index}": _interval(problem, rows) if still else blocks,
            f"u_m_{index}": rows if still else blocks,
            f"s_m_{index}": rows * problem.out_beats,
            f"tail_{index}": _tail(problem, rows),
        }
    return values


def _along_strips(problem: Problem, m: Array) -> dict[str, Array | int]:
    """Strips of ``m`` output rows, column group by column group; a load fetches every image row of a strip once."""
    height, width, group = problem.op.out_height, problem.op.out_width, problem.block_rows
    period = _ceil(np.full_like(m, height), m)
    groups = -(-width // group)
    values: dict[str, Array | int] = {"tiles_m": period * groups * problem.op.images, "period_m": period}
    tall = np.minimum(m, height), height - (period - 1) * m
    wide = min(group, width), width - (groups - 1) * group
    for index in range(4):
        # images repeat the groups, so that a narrow last group can be told apart only where it is the very last
        blocks, columns = tall[index % 2], wide[index // 2]
        values |= {
            f"a_m_{index}": columns * problem.strip_rows(blocks),
            f"c_m_{index}": blocks,
            f"u_m_{index}": blocks,
            f"s_m_{index}": blocks * columns * problem.out_beats,
            f"tail_{index}": _tail(problem, blocks),
        }
    return values


def _along_n(problem: Problem, n: Array) -> dict[str, Array | int]:
    period = _ceil(np.full_like(n, problem.group_blocks), n)
    blocks = np.minimum(n, problem.group_blocks), problem.group_blocks - (period - 1) * n
    cols, total = problem.machine.cols, problem.op.filters // problem.n_groups
    return {
        "tiles_n": period * problem.n_groups,
        "period_n": period,
        "b_n_0": np.minimum(n * cols, total),
        "b_n_1": total - (period - 1) * n * cols,
        "c_n_0": blocks[0],
        "c_n_1": blocks[1],
    }


def _along_k(problem: Problem, k: Array) -> dict[str, Array | int]:
    machine, tiles = problem.machine, _ceil(np.full_like(k, problem.k_chunks), k)
    values: dict[str, Array | int] = {"tiles_k": tiles}
    chunks = np.minimum(k, problem.k_chunks), problem.k_chunks - (tiles - 1) * k
    for index, count in enumerate(chunks):
        # only the last tile may end inside of a chunk
        ends = (tiles == 1) | (index == 1)
        elements = np.where(ends, problem.depth - (tiles - 1) * k * problem.chunk if index == 1 else problem.depth, count * problem.chunk)
        elements = np.minimum(elements, problem.depth)
        units = elements if problem.vector else _ceil(elements, machine.k_unit)
        values |= {
            f"a_k_{index}": 1 if problem.strips else problem.beats("a", elements, count),
            f"b_k_{index}": problem.beats("b", elements, count),
            f"c_k_{index}": units if machine.weight_stationary else _interval(problem, units),
            f"u_k_{index}": units,
        }
    return values


def schedule_table(
    problem: Problem, schedules: Sequence[Schedule], *, timing: MemoryTiming | None = None, limits: Limits | None = None
) -> Array:
    """Cost rows of some schedules."""
    names = {"outer": 0, "middle": 1, "inner": 2}
    shape: dict[str, Array | int] = {name: np.array([AXES[s.order[place]] for s in schedules]) for name, place in names.items()}
    shape |= {name: np.array([getattr(s, name) for s in schedules]) for name in ("a_slots", "b_slots", "c_slots", "lag")}
    sizes = [np.array([getattr(s, axis) for s in schedules]) for axis in "mnk"]
    return table(problem, sizes[0], sizes[1], sizes[2], timing=timing, limits=limits, **shape)


def widest(problem: Problem, m: Array, k: Array, slots: Mapping[str, Array | int]) -> Array:
    """Most blocks of n of a tile that fits the memories beside ``m`` and ``k``, arrays that broadcast; 0 where none does.

    Parameters
    ----------
    slots : mapping
        ``a_slots``, ``b_slots`` and ``c_slots``.
    """
    machine = problem.machine
    elements = np.minimum(k * problem.chunk, problem.depth)
    a_words = problem.strip_words(m) if problem.strips else m * _ceil(elements * machine.a_bytes, machine.a_word)
    b_words = problem.b_stride(1) if problem.vector else _ceil(elements * machine.b_bytes, machine.b_word)
    fit = (slots["a_slots"] * a_words <= machine.a_words) & (m * problem.block_rows < ROWS) & (problem.most_beats(m, 0, k) < BEATS)
    if not machine.weight_stationary:
        fit &= m < BLOCKS
    most = min(BLOCKS - 1, (ROWS - 1) // machine.cols)
    rows = machine.acc_rows
    if problem.output.residual:
        most, rows = min(most, (BEATS - 1) // problem.out_beats), min(rows, machine.residual_words)
    n = np.minimum(machine.b_words // (slots["b_slots"] * b_words), rows // (slots["c_slots"] * m * problem.block_rows))
    found: Array = np.where(fit, np.minimum(n, most), 0)
    return found


def fits(problem: Problem, schedule: Mapping[str, Array]) -> Array:
    """Which schedules fit the memories, for arrays of tile sizes ``m``, ``n``, ``k`` and of ``a_slots``, ``b_slots``, ``c_slots``."""
    found: Array = schedule["n"] <= widest(problem, schedule["m"], schedule["k"], schedule)
    return found


def largest(problem: Problem, axis: str, tiles: Mapping[str, int], slots: Mapping[str, int]) -> int:
    """Largest tile along ``axis`` that fits beside ``tiles``, those along the other axes being least; 0 if none does."""
    probe = {name: np.array([size]) for name, size in {**dict.fromkeys("mnk", 1), **tiles, **slots}.items()}
    least, most = 0, {"m": problem.max_m, "n": problem.max_n, "k": problem.k_chunks}[axis]
    while least < most:
        middle = (least + most + 1) // 2
        fitting = bool(fits(problem, {**probe, axis: np.array([middle])})[0])
        least, most = (middle, most) if fitting else (least, middle - 1)
    return least
