"""Small TIR: indices, elements and one-block loop nests, built as nodes (parsing script costs ten times as much)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .einsum import Access, Guard, Index, Quotient

SPATIAL, REDUCTION = 0, 2


@dataclass(frozen=True)
class Loop:
    """One loop of a nest with the block variable that it binds."""

    name: str
    extent: int
    reduction: bool = False


def index_expr(index: Index, env: Mapping[str, Any]) -> Any:
    """An index as an int32 expression; ``env`` gives the variable of each axis."""
    from tvm import tirx

    total = None
    for atom, coefficient in index.terms:
        part = _quotient_expr(atom, env) if isinstance(atom, Quotient) else env[atom]
        if coefficient != 1:
            part = part * coefficient
        total = part if total is None else total + part
    if total is None:
        return tirx.const(index.const, "int32")
    return total + index.const if index.const else total


def _quotient_expr(atom: Quotient, env: Mapping[str, Any]) -> Any:
    from tvm import tirx

    value = index_expr(atom.inner, env)
    if atom.divisor > 1:
        value = tirx.floordiv(value, atom.divisor)
    return tirx.floormod(value, atom.modulus) if atom.modulus else value


def condition(guards: Sequence[Guard], env: Mapping[str, Any], extents: Mapping[str, int]) -> Any:
    """Conjunction of guards, or None if all always hold."""
    from tvm import tirx

    tests = []
    for guard in guards:
        low, high = guard.index.bounds(extents)
        value = index_expr(guard.index, env)
        if low < guard.low:
            tests.append(value >= guard.low)
        if high >= guard.high:
            tests.append(value < guard.high)
    if not tests:
        return None
    result = tests[0]
    for test in tests[1:]:
        result = tirx.all(result, test)
    return result


def element(
    access: Access,
    buffer: Any,
    *,
    source: Sequence[Index],
    guards: Sequence[Guard],
    zero: Sequence[Guard],
    env: Mapping[str, Any],
    extents: Mapping[str, int],
) -> Any:
    """The stored value of an operand at ``source``: its fill where ``guards`` fail, 0 where ``zero`` fails."""
    from tvm import tirx

    value = tirx.BufferLoad(buffer, [index_expr(index, env) for index in source])
    inside = condition(guards, env, extents)
    if inside is not None:
        value = tirx.if_then_else(inside, value, tirx.const(access.fill, str(buffer.dtype)))
    target = access.container.name
    if access.shift:
        value = (value.astype("int32") + tirx.const(access.shift, "int32")).astype(target)
    elif str(buffer.dtype) != target:
        value = value.astype(target)
    kept = condition(zero, env, extents)
    return value if kept is None else tirx.if_then_else(kept, value, tirx.const(0, target))


class Nest:
    """Loops around one block; ``env`` holds the block's variables by name."""

    def __init__(self, name: str, loops: Sequence[Loop]) -> None:
        from tvm import tirx

        self.name = name
        self.loops = list(loops) or [Loop("unit", 1)]
        self.env: dict[str, Any] = {loop.name: tirx.Var(f"v_{plain(loop.name)}", "int32") for loop in self.loops}
        self.extents = {loop.name: loop.extent for loop in self.loops}

    def store(self, buffer: Any, index: Sequence[Any], value: Any, *, init: Any = None, predicate: Any = None) -> Any:
        """The statement ``buffer[index] = value``, or ``+=`` if there is an ``init``."""
        from tvm import tirx
        from tvm.ir import Range
        from tvm.s_tir import SBlock, SBlockRealize
        from tvm.tirx.stmt import BufferRegion, BufferStore

        position = list(index)
        total = value if init is None else tirx.BufferLoad(buffer, position) + value
        write = BufferRegion(buffer, [Range.from_min_extent(part, 1) for part in position])
        variables = [
            tirx.IterVar(Range(0, loop.extent), self.env[loop.name], REDUCTION if loop.reduction else SPATIAL) for loop in self.loops
        ]
        start = None if init is None else BufferStore(buffer, init, position)
        block = SBlock(variables, _regions(value), [write], self.name, BufferStore(buffer, total, position), start)
        counters = [tirx.Var(plain(loop.name), "int32") for loop in self.loops]
        statement = SBlockRealize(counters, True if predicate is None else self._rebound(predicate, counters), block)
        for counter, loop in reversed(list(zip(counters, self.loops, strict=True))):
            zero, extent = tirx.const(0, "int32"), tirx.const(loop.extent, "int32")
            statement = tirx.For(counter, zero, extent, tirx.ForKind.SERIAL, statement)
        return statement

    def _rebound(self, predicate: Any, counters: Sequence[Any]) -> Any:
        """A condition on block variables as one on the loops (predicates sit outside the block)."""
        import tvm_ffi
        from tvm import tirx

        pairs = list(zip((self.env[loop.name] for loop in self.loops), counters, strict=True))

        def swap(variable: Any) -> Any:
            return next((counter for inner, counter in pairs if inner.same_as(variable)), variable)

        return tvm_ffi.structural_map(predicate, (tirx.Var, swap))


def plain(name: str) -> str:
    """A name that a loop variable may have."""
    return name.replace("@", "tile_").replace("#", "p").replace("'", "_")


def _regions(value: Any) -> list[Any]:
    from tvm.ir import Range
    from tvm.ir.expr import TensorLoad
    from tvm.tirx.stmt import BufferRegion

    from .einsum_parse import walk

    return [BufferRegion(load.source, [Range.from_min_extent(part, 1) for part in load.indices]) for load in walk(value, TensorLoad)]
