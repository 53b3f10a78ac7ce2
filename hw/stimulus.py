"""Operand tiles as stream beats, and what a block must answer: for testbenches, in NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..intrinsics import Contraction, DType, StreamLayout
from ..intrinsics.numerics import Array, random_operand
from .design_point import DesignPoint


@dataclass(frozen=True, kw_only=True, eq=False)
class Stimulus:
    """Beats of the three streams of a block over some passes.

    Parameters
    ----------
    a, b, c : (beats, lanes) integer arrays
        Operands, and the results that are expected.
    a_last, c_last : (beats,) bool
    """

    a: Array
    a_last: Array
    b: Array
    c: Array
    c_last: Array


def tile_to_beats(layout: StreamLayout, contraction: Contraction, tile: Array) -> Array:
    """``tile`` of ``contraction.shape(operand)`` as (beats, lanes), in the order in which the stream carries it."""
    axes = contraction.operand_axes(layout.operand)
    order = [axes.index(axis) for axis in layout.beat_axes + layout.lane_axes if axis in axes]
    beats = np.transpose(tile, order).reshape(layout.beats(contraction), layout.lanes(contraction))
    return beats[::-1] if layout.reverse else beats


def pack_beat(values: Array, dtype: DType) -> int:
    """One beat as the integer on the data port: lane 0 in the least significant bits."""
    mask = (1 << dtype.width) - 1
    return sum((int(value) & mask) << (lane * dtype.width) for lane, value in enumerate(values))


def unpack_beat(bits: int, dtype: DType, lanes: int) -> list[int]:
    """Inverse of `pack_beat`."""
    fields = [(bits >> (lane * dtype.width)) & ((1 << dtype.width) - 1) for lane in range(lanes)]
    return [field - (1 << dtype.width) if field > dtype.max else field for field in fields]


def random_stimulus(point: DesignPoint, *, calls_per_pass: Sequence[int], rng: np.random.Generator) -> Stimulus:
    """Random tiles over the full range of the operand types, corners included.

    Parameters
    ----------
    point : DesignPoint
    calls_per_pass : sequence of int >= 1
        Tile calls of each pass: they share the accumulators, or the weights. A block that keeps nothing inside takes
        ``last`` with the final beat of each group and passes it on.
    rng : numpy Generator
    """
    parts = [_one_pass(point, calls, rng) for calls in calls_per_pass]
    a, b, c = (np.concatenate([part[index] for part in parts]) for index in range(3))
    return Stimulus(a=a, a_last=_ends([len(part[0]) for part in parts]), b=b, c=c, c_last=_ends([len(part[2]) for part in parts]))


def _one_pass(point: DesignPoint, calls: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    contraction, machine = point.instruction.contraction, point.machine
    keeps = point.instruction.resident
    a_beats, b_beats, c_beats = [], [], []
    total: Array | int = 0
    b = random_operand(rng, contraction.shape("b"), contraction.b)
    for call in range(calls):
        a = random_operand(rng, contraction.shape("a"), contraction.a)
        if keeps != "b" and call:
            b = random_operand(rng, contraction.shape("b"), contraction.b)
        a_beats.append(tile_to_beats(machine.stream("a"), contraction, a))
        if keeps != "b" or not call:
            b_beats.append(tile_to_beats(machine.stream("b"), contraction, b))
        total = contraction.reference(a, b, total if keeps == "acc" else 0)
        if keeps != "acc" or call == calls - 1:
            c_beats.append(tile_to_beats(machine.stream("c"), contraction, total))
    return np.concatenate(a_beats), np.concatenate(b_beats), np.concatenate(c_beats)


def _ends(lengths: Sequence[int]) -> Array:
    marks = np.zeros(sum(lengths), bool)
    marks[np.cumsum(lengths) - 1] = True
    return marks
