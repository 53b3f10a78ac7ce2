"""Exact cycles of an operator that is several convolutions of one shape, as the whole program takes them."""

from __future__ import annotations

import concurrent.futures
import ctypes
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import Turn
from ..intrinsics.accelerator import MemoryTiming
from ..intrinsics.accelerator.costs import Sum, Turns
from ..intrinsics.numerics import Array
from ..intrinsics.processors import usable_processors
from ..sim.accelerator_scorer import load, sources

SOURCES = ("turns.cpp",)
_BLOCK = 16  # rows that a thread takes at a time

Sums = Sequence[Sequence[Turn]]
"""Convolutions that are added up, one such sum per output (see `Placement`)."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The turns as the scorer reads them: ``ends`` of the sums; rows of activations (and where windows begin), weights and left edge."""

    ends: Array
    turns: Array
    left: int

    @classmethod
    def of(cls, problem: Problem, sums: Sums) -> _Plan:
        names = {name: number for number, name in enumerate(dict.fromkeys(map(_activations, itertools.chain(*sums))))}
        rows = [(names[_activations(turn)], turn.b, _left(problem, turn)) for turn in itertools.chain(*sums)]
        ends = np.cumsum([0, *map(len, sums)])
        return cls(ends=ends, turns=np.array(rows, np.int64), left=problem.op.first_window[1])


def _activations(turn: Turn) -> tuple[int, tuple[int, int] | None]:
    """By what tiles of activations of different turns are told apart."""
    return turn.a, turn.corner


def _left(problem: Problem, turn: Turn) -> int:
    return (turn.corner or problem.op.first_window)[1]


def turns_of(problem: Problem, sums: Sums) -> Turns:
    """What bounds know of the convolutions of an operator."""
    kinds = Counter((len(turns), len({_activations(turn) for turn in turns}), len({turn.b for turn in turns})) for turns in sums)
    switches, known = 0, set[object]()
    for before, after in itertools.pairwise(sums):
        known |= {_activations(turn) for turn in before}
        lefts = {_left(problem, turn) for turn in before}
        switches += _activations(after[0]) not in known and lefts.isdisjoint({_left(problem, after[0])})
    return Turns(
        sums=tuple(Sum(outputs=outputs, turns=turns, a=a, b=b) for (turns, a, b), outputs in kinds.items()),
        a=len({_activations(turn) for turn in itertools.chain(*sums)}),
        b=len({turn.b for turn in itertools.chain(*sums)}),
        switches=switches,
    )


def score_turns(
    problem: Problem, sums: Sums, table: Array, n_sizes: Array, *, timing: MemoryTiming | None = None, library: ctypes.CDLL | None = None
) -> Array:
    """Exact cycles of whole programs, a schedule per row that all turns follow.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64
        Costs of one of the convolutions (`costs.table`).
    n_sizes : (rows,) int64
        Tile sizes along n.
    timing : MemoryTiming, optional
        That of the table.
    library : ctypes.CDLL, optional
        By `load`, of other sources.

    Returns
    -------
    (rows,) int64; -1 where the schedule would evict an unfinished output tile.
    """
    plan, cycles, scorer = _Plan.of(problem, sums), np.empty(len(table), np.int64), library or load(sources(SOURCES))
    table, n_sizes, ends, turns, confirmed = (
        np.ascontiguousarray(array, np.int64) for array in (table, n_sizes, plan.ends, plan.turns, _confirmations(problem, timing))
    )

    def run(part: slice) -> None:
        rows, sizes, own = table[part], n_sizes[part], cycles[part]
        counts = ctypes.c_uint64(len(rows)), ctypes.c_uint64(len(sums))
        edges = ctypes.c_int64(problem.group_blocks), ctypes.c_int64(plan.left)
        scorer.celosia_score(_at(rows), counts[0], _at(sizes), _at(ends), counts[1], _at(turns), _at(confirmed), *edges, _at(own))

    with concurrent.futures.ThreadPoolExecutor(usable_processors()) as pool:
        list(pool.map(run, [slice(start, start + _BLOCK) for start in range(0, len(table), _BLOCK)]))
    return cycles


def _at(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _confirmations(problem: Problem, timing: MemoryTiming | None) -> Array:
    """What SET and END await after a store that ends with a block of columns, for every block."""
    machine, size, width = problem.machine, problem.output.size, problem.machine.port_bytes
    write_latency, total = (timing or MemoryTiming()).write_latency, problem.op.filters // problem.n_groups
    found = []
    for group in range(problem.n_groups):
        for block in range(problem.group_blocks):
            columns = min(machine.cols, total - block * machine.cols)
            start = (group * total + block * machine.cols) * size
            empty = problem.out_beats - -(-(start % width + columns * size) // width)
            found.append(machine.confirmation(write_latency, empty))
    return np.array(found, np.int64)
