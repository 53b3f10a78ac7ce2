"""From a map to TIR: pack, contract, unpack; then tensorize. What already lies right is not packed.

The function keeps its signature. Its blocks are ``pack_a``, ``pack_b`` (absent where an operand stays in place), ``contract``
(a pure einsum on whole tiles), ``unpack`` (absent where results stay in place), and for zero points ``sum_a``, ``sum_b``, ``correct``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..intrinsics import Contraction, Instruction, MappingError, Overflow
from .einsum import Access, Index
from .einsum_parse import Parsed, walk
from .mapping import Mapped
from .mapping_layout import IN_PLACE, Layout
from .realise_tir import Loop, Nest, condition, element, index_expr, plain

CONTRACT = "contract"
_UNIT = Loop("unit", 1, True)


@dataclass(frozen=True)
class Realised:
    """A map as a PrimFunc, not yet tensorized.

    Parameters
    ----------
    func : PrimFunc
    mapped : Mapped
    packs : tuple of str
        Blocks of ``func`` that move data, in order.
    prepare : PrimFunc or None
        Packs the weights at compile time: from them to the arrays that ``func`` takes in their place.
    """

    func: Any
    mapped: Mapped
    packs: tuple[str, ...]
    prepare: Any = None


def realise(mapped: Mapped, parsed: Parsed, *, offline: bool = False) -> Realised:
    """Write a map as a PrimFunc with the signature of the operator's.

    Parameters
    ----------
    mapped : Mapped
        Of ``parsed.einsum``.
    parsed : Parsed
    offline : bool
        Pack weights in a function of their own, whose results take their place among the parameters.
    """
    writer = _Writer(mapped, parsed, offline=offline)
    statements = writer.statements()
    func = _spliced(parsed, statements, writer)
    prepare = _preparation(parsed, writer) if writer.prepared else None
    return Realised(func, mapped, tuple(writer.packs), prepare)


class _Writer:
    def __init__(self, mapped: Mapped, parsed: Parsed, *, offline: bool) -> None:
        self.mapped, self.parsed, self.einsum = mapped, parsed, mapped.einsum
        self.acc = mapped.instruction.contraction.acc.container.name
        self.extents = self.einsum.extents
        self.buffers: list[Any] = []
        self.packs: list[str] = []
        live = {access.tensor for access in (self.einsum.a, self.einsum.b) if not access.constant}
        constant = {name for name in "ab" if mapped.access(name).constant and mapped.access(name).tensor not in live}
        self.offline = constant if offline else set()
        self.replaced: set[str] = set()  # tensors of which only packed copies are read
        self.prepared: list[tuple[str, Any, Any]] = []  # tensor, what is made of it, the statement that does

    def _buffer(self, shape: tuple[int, ...], dtype: str, name: str, *, local: bool = True) -> Any:
        from tvm import tirx

        buffer = tirx.decl_buffer(list(shape) or [1], dtype, name)
        if local:
            self.buffers.append(buffer)
        return buffer

    def statements(self) -> list[Any]:
        """All statements in order."""
        done: list[Any] = []
        sources = {name: self._operand(name, done) for name in "ab"}
        layout = self.mapped.layouts["c"]
        out = self.parsed.buffers[self.einsum.out]
        raw = self._buffer(self.einsum.out_shape, self.einsum.acc.container.name, "raw") if self._offsets else out
        target = out if layout.kind == IN_PLACE else self._buffer(layout.shape, self.acc, "tiles")
        done.append(self._contract(sources, target))
        if layout.kind != IN_PLACE:
            done.append(self._unpack(target, raw))
        if self._offsets:
            done += self._correct(raw, out)
        return done

    @property
    def _offsets(self) -> bool:
        return bool(self.einsum.a.offset or self.einsum.b.offset)

    # ---- operands

    def _operand(self, name: str, done: list[Any]) -> Any:
        access, layout = self.mapped.access(name), self.mapped.layouts[name]
        buffer = self.parsed.buffers[access.tensor]
        if layout.kind == IN_PLACE:
            return buffer
        packed = self._buffer(layout.shape, access.container.name, f"packed_{name}", local=name not in self.offline)
        statement = self._pack(f"pack_{name}", access, layout, buffer, packed)
        if name in self.offline:
            self.prepared.append((access.tensor, packed, statement))
            self.replaced.add(access.tensor)
        else:
            self.packs.append(f"pack_{name}")
            done.append(statement)
        return packed

    def _pack(self, name: str, access: Access, layout: Layout, buffer: Any, packed: Any) -> Any:
        nest = Nest(name, [Loop(f"#{number}", extent) for number, extent in enumerate(layout.shape)])
        value = element(access, buffer, source=layout.source, guards=layout.guards, zero=layout.zero, env=nest.env, extents=nest.extents)
        return nest.store(packed, self._position(layout, nest), value)

    def _position(self, layout: Layout, nest: Nest) -> list[Any]:
        return [nest.env[f"#{number}"] for number in range(len(layout.shape))] or [index_expr(Index(), {})]

    # ---- contraction

    def _contract(self, sources: dict[str, Any], target: Any) -> Any:
        from tvm import tirx

        nest = Nest(CONTRACT, self._loops())
        layouts = self.mapped.layouts
        loads = [self._load(sources[name], layouts[name].use, nest).astype(self.acc) for name in "ab"]
        position = [index_expr(index, nest.env) for index in layouts["c"].use] or [index_expr(Index(), {})]
        return nest.store(target, position, loads[0] * loads[1], init=tirx.const(0, self.acc))

    def _load(self, buffer: Any, use: tuple[Index, ...], nest: Nest) -> Any:
        from tvm import tirx

        return tirx.BufferLoad(buffer, [index_expr(index, nest.env) for index in use] or [index_expr(Index(), {})])

    def _loops(self) -> list[Loop]:
        outer = [Loop(axis.name, axis.extent, axis.reduction) for axis in self.einsum.axes if axis.name in self.mapped.outer]
        tiles = [Loop(tile.variable, tile.padded, tile.reduction) for tile in self.mapped.tiles.values()]
        loops = [loop for part in (outer, tiles) for loop in part if not loop.reduction]
        loops += [loop for part in (outer, tiles) for loop in part if loop.reduction]
        return loops if any(loop.reduction for loop in loops) else [*loops, _UNIT]

    # ---- results

    def _out_nest(self, name: str) -> Nest:
        return Nest(name, [Loop(axis.name, axis.extent) for axis in self.einsum.axes if axis.name in self.einsum.out_axes])

    def _write(self, out: Any, value: Any, nest: Nest) -> Any:
        self.packs.append(nest.name)
        position = [index_expr(index, nest.env) for index in self.einsum.out_index]
        return nest.store(out, position, value, predicate=condition(self.einsum.out_guards, nest.env, nest.extents))

    def _unpack(self, tiles: Any, out: Any) -> Any:
        from tvm import tirx

        nest = self._out_nest("unpack")
        grouped = {tile.variable: self._fused(tile.axes) for tile in self.mapped.tiles.values()}
        use = [index.substitute(grouped, nest.extents) for index in self.mapped.layouts["c"].use]
        value = tirx.BufferLoad(tiles, [index_expr(index, nest.env) for index in use] or [index_expr(Index(), {})])
        return self._write(out, value.astype(self.einsum.acc.container.name), nest)

    def _correct(self, raw: Any, out: Any) -> list[Any]:
        """Take the zero points out.

        ``sum (a - za)(b - zb) = sum ab - zb sum a - za sum (b - zb)``
        """
        from tvm import tirx

        nest = self._out_nest("correct")
        value = tirx.BufferLoad(raw, [index_expr(index, nest.env) for index in self.einsum.out_index])
        za, zb = self.einsum.a.offset, self.einsum.b.offset
        sums = []
        for name, access, factor, offset in (("a", self.einsum.a, zb, 0), ("b", self.einsum.b, za, zb)):
            if factor:
                statement, total = self._sum(name, access, offset, nest)
                sums += statement
                value = value - tirx.const(factor, self.einsum.acc.container.name) * total
        return [*sums, self._write(out, value, nest)]

    def _fused(self, axes: tuple[str, ...]) -> Index:
        total = Index()
        for axis in axes:
            total = total * self.extents[axis] + Index.axis(axis)
        return total

    def _sum(self, name: str, access: Access, offset: int, outer: Nest) -> tuple[list[Any], Any]:
        """Sum of an operand's stored values minus ``offset`` over the reduction axes: its block, and its value in ``outer``."""
        from tvm import tirx

        einsum, dtype = self.einsum, self.einsum.acc.container.name
        domain = (*einsum.a.domain, *einsum.b.domain, *einsum.out_guards)
        used = access.axes.union(*(guard.index.axes for guard in domain))
        kept = [axis for axis in einsum.axes if axis.name in used and axis.name in einsum.out_axes]
        summed = [axis for axis in einsum.axes if axis.reduction]
        shape = tuple(axis.extent for axis in kept)
        buffer = self._buffer(shape, dtype, f"total_{name}", local=name not in self.offline)
        nest = Nest(f"sum_{name}", [Loop(axis.name, axis.extent, axis.reduction) for axis in (*kept, *summed)] or [_UNIT])
        source, guards = access.in_tensor(access.index, nest.extents) if access.view else (access.index, access.guards)
        value = element(
            access,
            self.parsed.buffers[access.tensor],
            source=source,
            guards=guards,
            zero=(),
            env=nest.env,
            extents=nest.extents,
        ).astype(dtype)
        value = value - tirx.const(offset, dtype) if offset else value
        inside = condition(domain, nest.env, nest.extents)
        if inside is not None:
            value = tirx.if_then_else(inside, value, tirx.const(0, dtype))
        zero = [index_expr(Index(), {})]
        statement = nest.store(buffer, [nest.env[axis.name] for axis in kept] or zero, value, init=tirx.const(0, dtype))
        total = tirx.BufferLoad(buffer, [outer.env[axis.name] for axis in kept] or zero)
        if name in self.offline:
            self.prepared.append((access.tensor, buffer, statement))
            return [], total
        return [statement], total


def _spliced(parsed: Parsed, statements: list[Any], writer: _Writer) -> Any:
    """The operator's function with its einsum replaced by other statements, and its weights by what was prepared of them."""
    from tvm.s_tir import SBlock

    func = parsed.func
    root = func.body.block
    body = list(root.body.seq) if type(root.body).__name__ == "SeqStmt" else [root.body]
    sequence: list[Any] = []
    others: list[Any] = []
    for statement in body:
        inside = walk(statement, SBlock)
        holds = any(block.same_as(parsed.block) for block in inside)
        sequence += statements if holds else [statement]
        others += [] if holds else [region.source for block in inside for region in block.reads]
    params = []
    for param in func.params:
        tensor = next((name for name, buffer in parsed.buffers.items() if buffer.same_as(param)), "")
        needed = tensor not in writer.replaced or any(buffer.same_as(param) for buffer in others)
        params += [param] if needed else []
        params += [made for name, made, _ in writer.prepared if name == tensor]
    return _function(params, sequence, [*root.alloc_buffers, *writer.buffers], func.attrs)


def _preparation(parsed: Parsed, writer: _Writer) -> Any:
    weights = [parsed.buffers[tensor] for tensor in dict.fromkeys(tensor for tensor, _, _ in writer.prepared)]
    results = [buffer for _, buffer, _ in writer.prepared]
    return _function([*weights, *results], [statement for _, _, statement in writer.prepared], [], parsed.func.attrs)


def _function(params: list[Any], sequence: list[Any], allocated: list[Any], attrs: Any) -> Any:
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize

    whole = tirx.SeqStmt(sequence) if len(sequence) > 1 else sequence[0]
    root = SBlock([], [], [], "root", whole, None, allocated)
    return tirx.PrimFunc(params, SBlockRealize([], True, root), None, attrs)


# ---- tensorize


def matchable(instruction: Instruction) -> Instruction:
    """The instruction as TVM may match it: where no sum can saturate, one that saturates is one that wraps."""
    old = instruction.contraction
    if old.overflow in (Overflow.FORBID, Overflow.WRAP):
        return instruction
    return replace(instruction, contraction=Contraction(old.einsum, old.extents, old.a, old.b, old.acc, Overflow.WRAP))


def tensorize(realised: Realised, intrinsic: str, *, fuse: bool = False) -> Any:
    """Schedule with the contraction tensorized to a registered intrinsic, in the order the map's loops have.

    Parameters
    ----------
    realised : Realised
    intrinsic : str
        Name in TVM's table.
    fuse : bool
        Move packing and unpacking into the outermost loop around the tiles.

    Raises
    ------
    MappingError
        If TVM refuses.
    """
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import ScheduleError

    schedule = Schedule(realised.func, debug_mask="none", error_render_level="none")
    block = schedule.get_sblock(CONTRACT)
    tiles = realised.mapped.tiles
    try:
        moving = realised.packs if fuse else ()
        inner = _tile(schedule, block, {plain(tile.variable): tile for tile in tiles.values()}, moving)
        schedule.tensorize(inner, intrinsic)
    except ScheduleError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise MappingError(
            f"TVM does not tensorize {realised.mapped.words} on {realised.mapped.instruction.name}: {lines[-1][:200]}"
        ) from None
    return schedule


def _tile(schedule: Any, block: Any, tiles: dict[str, Any], moving: tuple[str, ...]) -> Any:
    """Split and reorder so that one tile is innermost; returns its first loop. The blocks ``moving`` go into the outermost one."""
    spatial: list[Any] = []
    reduction: list[Any] = []
    inner: dict[str, Any] = {}
    for loop in schedule.get_loops(block):
        name = schedule.get(loop).loop_var.name
        tile = tiles.get(name)
        outer = loop
        if tile is not None:
            outer, inner[tile.axis] = schedule.split(loop, [None, tile.extent])
        (reduction if _is_reduction(schedule, block, name) else spatial).append(outer)
    ordered = [inner[tile.axis] for tile in tiles.values()] or [schedule.add_unit_loop(block)]
    schedule.reorder(*spatial, *reduction, *ordered)
    for name in moving if spatial else ():
        if name.startswith("pack_"):
            schedule.compute_at(schedule.get_sblock(name), spatial[0])
        elif name == "unpack":
            schedule.reverse_compute_at(schedule.get_sblock(name), spatial[0])
    schedule.decompose_reduction(block, reduction[0] if reduction else ordered[0])
    return ordered[0]


def _is_reduction(schedule: Any, block: Any, loop_name: str) -> bool:
    for axis in schedule.get(block).iter_vars:
        if axis.var.name == f"v_{loop_name}":
            return int(axis.iter_type) == 2
    return False
