"""The loop nest around the tile calls, found in a scheduled module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..intrinsics.tensor_intrin import ANNOTATION


@dataclass(frozen=True)
class Nest:
    """A perfect nest of loops around one tensorized block, at the top level of a function.

    Parameters
    ----------
    top : Stmt
        The outermost loop.
    loops : tuple of (name, extent)
        Outermost first.
    """

    top: Any
    loops: tuple[tuple[str, int], ...]


def statements(module: Any) -> list[Any]:
    """Top-level statements of ``main``: pack, init, compute and unpack nests."""
    from tvm.tirx import SeqStmt

    body = module["main"].body.block.body
    return list(body.seq) if isinstance(body, SeqStmt) else [body]


def tensorized_blocks(root: Any) -> int:
    """Blocks under ``root`` that an intrinsic of ours has replaced."""
    from tvm.s_tir import SBlock
    from tvm_ffi import structural_walk

    count = 0

    def visit(block: Any) -> None:
        nonlocal count
        count += ANNOTATION in block.annotations

    structural_walk(root, (SBlock, visit), order="post")
    return count


def find(module: Any) -> Nest | None:
    """The nest of the tile calls, if it is as the calling convention demands it.

    Between a push and the flush nothing else may touch the operands, so the nest must hold the tensorized block and
    nothing more: pack, init and unpack blocks lie before or after it. None if there is no such nest, or several.
    """
    if tensorized_blocks(module["main"].body) != 1:
        return None
    found = [nest for nest in map(_perfect, statements(module)) if nest is not None]
    return found[0] if found else None


def _perfect(statement: Any) -> Nest | None:
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import For

    loops, node = [], statement
    while isinstance(node, For):
        loops.append((node.loop_var.name, int(node.extent)))
        node = node.body
    if not isinstance(node, SBlockRealize) or ANNOTATION not in node.block.annotations:
        return None
    return Nest(statement, tuple(loops))
