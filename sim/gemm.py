"""A whole GEMM on the RTL of a design, compared bit for bit and measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..intrinsics import Measurement, ParameterError
from ..intrinsics.memory import require_memory
from ..intrinsics.numerics import random_operand
from ..intrinsics.reference import GemmTiling, gemm_reference
from ..intrinsics.timing import utilization
from .builder import build
from .model import Model

if TYPE_CHECKING:
    from .builder import Design

Progress = Callable[[int, int], None]


def simulate_gemm(
    design: Design,
    *,
    m: int,
    n: int,
    k: int,
    seed: int = 0,
    order: str | None = None,
    max_cycles: int | None = None,
    gaps: float = 0.0,
    backpressure: float = 0.0,
    progress: Progress | None = None,
    building: Callable[[str], None] | None = None,
) -> Measurement:
    """Multiply random full-range operands on the RTL and compare with NumPy.

    Parameters
    ----------
    design : DesignPoint or RtlDesign
    m, n, k : int, >= 1
        Sizes of ``C[m,n] = A[m,k] x B[k,n]``; padded with zeros to whole tiles.
    seed : int, >= 0
        Of operands, gaps and back-pressure.
    order : str or None
        Permutation of ``mnk``, outermost loop first; None takes the one with the fewest cycles in the exact model.
    max_cycles : int or None
        The run fails when it needs more. Default: many times what the exact model says.
    gaps, backpressure : float, 0..0.99
        Probability per cycle that an operand is not offered, that a result is not taken.
    progress : callable, optional
        Called with the cycles so far and the cycles of the exact model, some ten times per second.
    building : callable, optional
        Called with the name of each stage, if the design must be built first.

    Returns
    -------
    Measurement
        ``source`` is ``"rtl"``; ``model_cycles`` is the exact model's answer, or None with gaps or back-pressure.

    Raises
    ------
    ParameterError
        If a size, the order or a probability is outside its domain, or the operands do not fit into memory.
    SimulationError
        If the run hits the bound on cycles or hangs.
    ToolNotFoundError, ToolFailedError
        If the design cannot be built.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ParameterError(f"seed must be an integer of at least 0, not {seed!r}; nearest legal value: 0")
    tiling = GemmTiling(design.machine, m, n, k)
    require_memory(m * k + k * n + m * n, f"a GEMM of {m}x{n}x{k}")
    order = tiling.best_order if order is None else order
    expected = tiling.cycles(order)
    library = build(design, progress=building)
    bound = max_cycles if max_cycles is not None else _default_bound(expected, gaps, backpressure)
    contraction = design.machine.instruction.contraction
    rng = np.random.default_rng(seed)
    a, b = random_operand(rng, (m, k), contraction.a), random_operand(rng, (k, n), contraction.b)
    with Model(library, max_cycles=bound, gaps=gaps, backpressure=backpressure, seed=seed) as model:
        started = time.perf_counter()
        c = model.gemm(a, b, order=order, progress=progress and (lambda cycles: progress(cycles, expected)))
        seconds = time.perf_counter() - started
        model.settle()
        counters = model.counters
    return Measurement(
        cycles=counters.cycles,
        macs=tiling.macs,
        utilization=utilization(design.machine, tiling.macs, counters.cycles),
        source="rtl",
        design_hash=design.machine.design_hash,
        ledger=counters.ledger,
        matches_reference=bool(np.array_equal(c, gemm_reference(design.machine, a, b, order))),
        model_cycles=None if gaps or backpressure else expected,
        calls=counters.calls,
        simulation_seconds=seconds,
        build_seconds=library.build_seconds,
    )


def _default_bound(expected: int, gaps: float, backpressure: float) -> int:
    rate = min(max(gaps, backpressure, 0.0), 0.99)
    return int(16 * expected / (1 - rate) ** 2) + 100_000
