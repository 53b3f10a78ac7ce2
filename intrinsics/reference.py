"""A whole GEMM on a block: how it is cut into tile calls, and what the block computes, in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .contraction import Contraction
from .errors import ParameterError
from .machine import Machine
from .numerics import Array, Overflow, bounds_of_product, saturate, wrap
from .timing import Loop, LoopNest, stream_cycles

GEMM_ROLES = {"m": "ac", "n": "bc", "k": "ab"}
"""Axes of ``C[m,n] += A[m,k] * B[k,n]`` and the operands that they move."""

ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
"""Every order of the loops around the tile calls, outermost first."""


@dataclass(frozen=True)
class GemmTiling:
    """A GEMM of ``m x n x k`` cut into tiles of one machine; sizes that do not divide are padded with zeros.

    Parameters
    ----------
    machine : Machine
        Its contraction may have axes m, n and k only; an absent one has tile extent 1.
    m, n, k : int, >= 1

    Raises
    ------
    ParameterError
    """

    machine: Machine
    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        contraction = self.machine.instruction.contraction
        for axis in contraction.axes:
            if GEMM_ROLES.get(axis) != contraction.role(axis):
                raise ParameterError(f"{self.machine.name} computes {contraction.einsum}, which is no tile of a GEMM mk,kn->mn")
        for axis in GEMM_ROLES:
            size = getattr(self, axis)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ParameterError(f"{axis.upper()} of a GEMM must be an integer of at least 1, not {size!r}; nearest legal value: 1")

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates."""
        return self.m * self.n * self.k

    def tile(self, axis: str) -> int:
        """Extent of one tile along ``axis``."""
        return self.machine.instruction.contraction.extents.get(axis, 1)

    def count(self, axis: str) -> int:
        """Tiles along ``axis``."""
        return -(-int(getattr(self, axis)) // self.tile(axis))

    def padded(self, axes: str) -> tuple[int, ...]:
        """Padded sizes along ``axes``."""
        return tuple(self.count(axis) * self.tile(axis) for axis in axes)

    def nest(self, order: str) -> LoopNest:
        """The loops around the tile calls, outermost first."""
        if order not in ORDERS:
            raise ParameterError(f"order of the loops must be one of {', '.join(ORDERS)}, not {order!r}")
        return LoopNest(tuple(Loop(self.count(axis), GEMM_ROLES[axis], axis) for axis in order))

    def cycles(self, order: str) -> int:
        """Cycles of the exact model."""
        return stream_cycles(self.machine, self.nest(order))

    @property
    def best_order(self) -> str:
        """The order with the fewest cycles; the first of `ORDERS` among equals."""
        return min(ORDERS, key=self.cycles)


def gemm_reference(machine: Machine, a: Array, b: Array, order: str = "mnk") -> Array:
    """``A x B`` as ``machine`` computes it, tile by tile, starting from C = 0.

    Parameters
    ----------
    machine : Machine
    a : (m, k) integers
    b : (k, n) integers
    order : str
        Loops around the tile calls; only a saturating accumulator sees the difference.

    Returns
    -------
    (m, n) in the container dtype of ``acc``. Sums in memory wrap in the container type (FORBID) or follow the overflow mode in
    ``acc``'s own width. The saturating modes clamp where the block clamps: resident accumulators after each beat over the whole
    pass, stationary weights after each row of a tile, everything else once per tile call, and again per sum in memory.
    """
    contraction = machine.instruction.contraction
    if contraction.overflow in (Overflow.SATURATE, Overflow.SATURATE_ONCE):
        return _saturating(machine, a.astype(np.int64), b.astype(np.int64), order)
    total = exact_matmul(a, b, contraction)
    return wrap(total, contraction.acc.container if contraction.overflow is Overflow.FORBID else contraction.acc)


def exact_matmul(a: Array, b: Array, contraction: Contraction) -> Array:
    """``a @ b`` modulo 2**64, through floating point where that is exact (many times faster)."""
    bound = max(abs(limit) for limit in bounds_of_product(contraction.a, contraction.b))
    if bound * a.shape[1] < 2**53:
        product: Array = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
        return product
    return a.astype(np.int64) @ b.astype(np.int64)


def _saturating(machine: Machine, a: Array, b: Array, order: str) -> Array:
    (m, depth), n = a.shape, b.shape[1]
    acc, tiling = machine.instruction.contraction.acc, GemmTiling(machine, m, n, depth)
    segment, step = _steps(machine, tiling, order)
    total = np.zeros((m, n), np.int64)
    for start in range(0, depth, segment):
        part = np.zeros((m, n), np.int64)
        for k in range(start, min(start + segment, depth), step):
            part = saturate(part + a[:, k : k + step] @ b[k : k + step], acc).astype(np.int64)
        total = saturate(total + part, acc).astype(np.int64)
    return total.astype(acc.numpy)


def _steps(machine: Machine, tiling: GemmTiling, order: str) -> tuple[int, int]:
    """Products per sum in memory, and products that are summed exactly before each clamp inside the block."""
    contraction = machine.instruction.contraction
    resident = machine.instruction.resident
    if resident == "b":
        return tiling.tile("k"), 1
    calls = tiling.nest(order).run_length("c") if resident == "acc" else 1
    in_lanes = [axis for axis in machine.stream("a").lane_axes if axis in contraction.reduction_axes]
    return calls * tiling.tile("k"), math.prod(contraction.extents[axis] for axis in in_lanes)
