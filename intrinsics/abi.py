"""The calling convention between a compiled operator and a simulated design: the compiler emits it, sim exports it.

For a design with hash H the library exports, with C linkage:

``int32_t celosia_H_push(void *a, void *b, void *c, int32_t strides...)``
    One tile call, ``C += A x B``. One stride per axis of A, then of B, then of C (`stride_axes`), in elements of the
    container type. The call may return before the result is in C: results of one C tile arrive in order, and all
    of them have arrived when ``flush`` returns. Successive calls with the same C tile (same pointer and strides) may
    share resident accumulators, those with the same B tile may share stationary weights; so between a push and the
    next flush nothing may read or write that C tile, or write A or B.
``int32_t celosia_H_flush(void)``
    Wait until every result is in memory.

Both return 0, or nonzero once the simulation has failed (cycle bound, hang); then they do nothing more, and whoever
started the run asks the model for the reason.
"""

from __future__ import annotations

from .contraction import Contraction


def push_symbol(design_hash: str) -> str:
    """C symbol of the tile call of a design."""
    return f"celosia_{design_hash}_push"


def flush_symbol(design_hash: str) -> str:
    """C symbol that waits for all results of a design."""
    return f"celosia_{design_hash}_flush"


def stride_axes(contraction: Contraction) -> tuple[tuple[str, str], ...]:
    """(operand, axis) of every stride argument of ``push``, in order."""
    return tuple((operand, axis) for operand in "abc" for axis in contraction.operand_axes(operand))
