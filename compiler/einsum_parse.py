"""From a TVM PrimFunc to an `Einsum`: producers inlined, casts and zero points stripped and carried as algebra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..intrinsics import DType
from .einsum import Access, Axis, Einsum, Guard, Index, merge_guards, quotient
from .einsum_transform import drop_unit_axes, separate
from .reasons import Reason, Rejected


class NotEinsum(Exception):  # noqa: N818 - carries an answer, not a failure
    """Leaves the walk with the reason why the function is no sum of products."""

    def __init__(self, reason: Reason, detail: str, change: str = "") -> None:
        super().__init__(detail)
        self.rejected = Rejected(reason, detail, change or _CHANGES.get(reason, ""))


_CHANGES = {
    Reason.NOT_SUM: "keep the block on the host: it has no multiply-accumulates to lose",
    Reason.NOT_PRODUCT: "multiply by a constant tensor of ones: every sum becomes a product, at the price of one packed operand",
    Reason.NO_REDUCTION: "keep the function on the host: it has no multiply-accumulates to lose",
    Reason.OPERAND_DTYPE: "quantise the operands to int8, at the price of their precision",
    Reason.OPERAND_EXPRESSION: "compute the operand in a block of its own, at the price of one more pass over it",
    Reason.NON_AFFINE: "copy the operand into the order in which it is read, at the price of one more pass over it",
    Reason.DYNAMIC_SHAPE: "fix the extent, or pad to a bound",
    Reason.GUARDED: "run the block over all of its iterators, at the price of products with zeros where the condition fails",
}
"""Nearest change that would make a sum of products of the function, with its price, where there is none closer to the case."""

_ADD_AFTERWARDS = "sum the products alone and combine them in a block after it, at the price of one more pass over the output"


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """An operator as einsum, with what the realiser needs of its PrimFunc.

    Parameters
    ----------
    einsum : Einsum
    func : PrimFunc
        With producers inlined into the block.
    block : SBlock
        The block of ``func`` that the einsum describes.
    buffers : mapping from tensor name to TVM buffer
    """

    einsum: Einsum
    func: Any
    block: Any
    buffers: dict[str, Any]


def parse(func: Any, *, name: str = "main", constants: Iterable[int] = (1,), axes: Sequence[str] | None = None) -> Parsed | Rejected:
    """Read the einsum of a PrimFunc.

    Parameters
    ----------
    func : PrimFunc
        With one block that sums products; blocks before it may move data, widen or subtract zero points.
    name : str
        For people.
    constants : iterable of int
        Positions of the parameters that are known at compile time (weights).
    axes : sequence of str or None
        Names of the block's iterators for people; None takes those of the function.

    Returns
    -------
    Parsed, or Rejected with the reason.
    """
    weights = frozenset(constants)
    block = None
    try:
        block = _main_block(func)
        try:
            return _parse(*_inline(func, block), name, weights, axes)
        except NotEinsum:
            # What a producer reads in an odd way may be no obstacle once its result is left in memory.
            return _parse(func, block, name, weights, axes)
    except NotEinsum as reason:
        return replace(reason.rejected, macs=_products(block))


def _products(block: Any) -> int:
    """Products that a block sums, if it does and if their number is known."""
    if block is None or _kind(block.body) != "BufferStore" or _product_of(block) is None:
        return 0
    return math.prod(_constant(axis.dom.extent) or 0 for axis in block.iter_vars)


def _parse(func: Any, block: Any, name: str, constants: frozenset[int], names: Sequence[str] | None) -> Parsed:
    reader = _Reader(block, names)
    a, b = (reader.operand(factor) for factor in reader.factors())
    reader.check_product(a, b)
    require_whole(func, block)
    weights = [param for position, param in enumerate(func.params) if position in constants]
    a, b = (replace(operand, constant=any(reader.buffers[operand.tensor].same_as(weight) for weight in weights)) for operand in (a, b))
    out = block.body.buffer
    axes = tuple(Axis(reader.names[var], extent, reduction) for var, extent, reduction in reader.iterators)
    einsum = Einsum(
        name=name,
        axes=axes,
        a=a,
        b=b,
        out=out.name,
        out_shape=_static_shape(out),
        out_index=tuple(reader.index(index) for index in block.body.indices),
        acc=_dtype(out.dtype),
        macs=math.prod(axis.extent for axis in axes),
    )
    return Parsed(
        einsum=drop_unit_axes(separate(drop_unit_axes(einsum))), func=func, block=block, buffers={**reader.buffers, out.name: out}
    )


# ---- blocks


def walk(node: Any, kind: Any) -> list[Any]:
    """All nodes of one class under ``node``, in post order."""
    import tvm_ffi

    found: list[Any] = []

    def keep(match: Any) -> None:
        found.append(match)

    tvm_ffi.structural_walk(node, (kind, keep), order="post")
    return found


def blocks(func: Any) -> list[Any]:
    """The blocks of a PrimFunc but its root, in order."""
    from tvm.s_tir import SBlock

    return [block for block in walk(func.body, SBlock) if block.iter_vars]


def _main_block(func: Any) -> Any:
    for buffer in [*func.params, *(write.source for block in blocks(func) for write in block.writes)]:
        if hasattr(buffer, "shape"):
            _static_shape(buffer)
    sums = [block for block in blocks(func) if block.init is not None]
    if not sums:
        raise NotEinsum(Reason.NO_REDUCTION, "no block of the function sums anything up")
    products = [block for block in sums if _kind(block.body) == "BufferStore" and _product_of(block) is not None]
    if products:
        return max(products, key=lambda block: math.prod(int(axis.dom.extent) for axis in block.iter_vars))
    return sums[0]


def _kind(node: Any) -> str:
    return type(node).__name__


def _inline(func: Any, block: Any) -> tuple[Any, Any]:
    """Inline every block that only moves, pads, widens or shifts what the main block reads."""
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import ScheduleError

    refused: set[str] = set()
    for _ in range(8):
        target = next((b for b in blocks(func) if b.name_hint not in refused and _inlinable(b) and _reads(block, b.writes[0].source)), None)
        if target is None:
            break
        schedule = Schedule(func, debug_mask="none", error_render_level="none")
        try:
            schedule.compute_inline(schedule.get_sblock(target.name_hint))
        except ScheduleError:
            refused.add(target.name_hint)
            continue
        func = schedule.mod["main"]
        block = next(other for other in blocks(func) if other.name_hint == block.name_hint)
    return func, block


def _inlinable(block: Any) -> bool:
    from tvm.ir.expr import TensorLoad

    if block.init is not None or _kind(block.body) != "BufferStore" or any(int(axis.iter_type) != 0 for axis in block.iter_vars):
        return False
    loads = walk(block.body.value, TensorLoad)
    return len(loads) == 1 and _narrow(str(loads[0].source.dtype)) and _moves(block.body.value)


def _moves(e: Any) -> bool:
    """Whether a value is an element that is only cast, shifted by a constant, or chosen under a guard."""
    kind = _kind(e)
    if kind == "Cast":
        return _moves(e.value)
    if kind in ("Add", "Sub"):
        return (_constant(e.b) is not None and _moves(e.a)) or (kind == "Add" and _constant(e.a) is not None and _moves(e.b))
    choice = _choice(e)
    return kind == "TensorLoad" or (choice is not None and _moves(choice[1]) and _constant(choice[2]) is not None)


def _narrow(dtype: str) -> bool:
    return dtype.startswith(("int", "uint")) and dtype.lstrip("uint").isdigit() and int(dtype.lstrip("uint")) <= 32


def _reads(block: Any, buffer: Any) -> bool:
    return any(region.source.same_as(buffer) for region in block.reads)


def _static_shape(buffer: Any) -> tuple[int, ...]:
    shape = tuple(buffer.shape)
    for position, extent in enumerate(shape):
        if _kind(extent) not in ("IntImm", "int"):
            raise NotEinsum(Reason.DYNAMIC_SHAPE, f"dimension {position} of {buffer.name} is {extent}, not a number")
    return tuple(int(extent) for extent in shape)


def _dtype(dtype: Any) -> DType:
    text = str(dtype)
    if not _narrow(text) and text not in ("int64", "uint64"):
        raise NotEinsum(Reason.OPERAND_DTYPE, f"{text} data is not integer, which instructions compute with")
    return DType.of(text)


def _product_of(block: Any) -> Any:
    """The product that a block adds to what it writes, or None."""
    value, store = block.body.value, block.body
    if _kind(value) != "Add":
        return None
    for mine, term in ((value.a, value.b), (value.b, value.a)):
        if _kind(mine) == "TensorLoad" and mine.source.same_as(store.buffer):
            while _kind(term) == "Cast":
                term = term.value
            return term if _kind(term) == "Mul" else None
    return None


def _product_dtypes(block: Any) -> list[str]:
    """Types that the product of a block passes through before it is added."""
    value = block.body.value
    term = value.b if _kind(value.a) == "TensorLoad" and value.a.source.same_as(block.body.buffer) else value.a
    dtypes = [str(term.ty.dtype)]
    while _kind(term) == "Cast":
        term = term.value
        dtypes.append(str(term.ty.dtype))
    return dtypes


def require_whole(func: Any, block: Any) -> None:
    """Check that a block adds one product per point of its iterators to a sum that starts at 0.

    Raises
    ------
    NotEinsum
        If it starts elsewhere, reads another element than it writes, or does not run over all points exactly once.
    """
    import tvm_ffi
    from tvm.ir.expr import TensorLoad
    from tvm.s_tir import SBlock, SBlockRealize
    from tvm.tirx import For

    name, store = block.name_hint, block.body
    if _kind(store) != "BufferStore":
        return
    start = getattr(block.init, "value", None)
    if _constant(start) != 0:
        raise NotEinsum(Reason.NOT_SUM, f"block {name} starts its sum at {' '.join(str(start).split())}, not at 0", _ADD_AFTERWARDS)
    own = [load for load in walk(store.value, TensorLoad) if load.source.same_as(store.buffer)]
    if any(not tvm_ffi.structural_equal(list(load.indices), list(store.indices)) for load in own):
        raise NotEinsum(Reason.NOT_SUM, f"block {name} adds to another element of {store.buffer.name} than it reads", _ADD_AFTERWARDS)
    (realize,) = (node for node in walk(func.body, SBlockRealize) if node.block.same_as(block))
    if _constant(realize.predicate) != 1:
        raise NotEinsum(Reason.GUARDED, f"block {name} runs only where {' '.join(str(realize.predicate).split())}")
    loops = [loop for loop in walk(func.body, For) if any(inner.same_as(block) for inner in walk(loop.body, SBlock))]
    if not _covers(realize, loops):
        raise NotEinsum(Reason.GUARDED, f"block {name} does not run exactly once at each point of its iterators")


def _covers(realize: Any, loops: Sequence[Any]) -> bool:
    """Whether the loops around a block visit every point of its iterators exactly once."""
    from tvm.ir import Range
    from tvm.sym import Analyzer, detect_iter_map
    from tvm.sym.iter_affine_map import IterMapLevel

    domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    wanted = [axis.dom for axis in realize.block.iter_vars]
    have, need = (math.prod(_constant(span.extent) or 0 for span in spans) for spans in (domains.values(), wanted))
    bounds = Analyzer()
    for variable, span in domains.items():
        bounds.bind(variable, span)
    found = [bounds.const_int_bound(value) for value in realize.iter_values]
    inside = all((low.min_value, low.max_value) == (0, int(span.extent) - 1) for low, span in zip(found, wanted, strict=True))
    once = detect_iter_map(list(realize.iter_values), domains, True, IterMapLevel.Bijective).indices
    return inside and have == need and len(once) == len(wanted)


# ---- expressions


class _Reader:
    """Reads the expressions of one block; ``names`` gives each iterator a unique readable name."""

    def __init__(self, block: Any, names: Sequence[str] | None) -> None:
        from tvm.ir import Range
        from tvm.sym import Analyzer

        self.block = block
        self.analyzer = Analyzer()
        self.buffers: dict[str, Any] = {}
        self.iterators: list[tuple[Any, int, bool]] = []
        self.names: dict[Any, str] = {}
        given = names if names is not None and len(names) == len(block.iter_vars) else [axis.var.name for axis in block.iter_vars]
        for axis, name in zip(block.iter_vars, given, strict=True):
            if _kind(axis.dom.extent) != "IntImm":
                raise NotEinsum(Reason.DYNAMIC_SHAPE, f"axis {axis.var.name} runs over {axis.dom.extent}, not over a number")
            self.names[axis.var] = self._unique(name)
            self.iterators.append((axis.var, int(axis.dom.extent), int(axis.iter_type) == 2))
            self.analyzer.bind(axis.var, Range(0, axis.dom.extent))
        self.extents = {self.names[var]: extent for var, extent, _ in self.iterators}

    def _unique(self, name: str) -> str:
        base = name[2:] if name.startswith("v_") and len(name) > 2 else name
        candidates = itertools.chain([base], (f"{base}{number}" for number in itertools.count(2)))
        return next(candidate for candidate in candidates if candidate not in self.names.values())

    def factors(self) -> tuple[Any, Any]:
        """The two factors of the product."""
        body = self.block.body
        if _kind(body) != "BufferStore":
            raise NotEinsum(Reason.NOT_SUM, f"block {self.block.name_hint} is not one assignment")
        product = _product_of(self.block)
        if product is None:
            value = body.value
            if _kind(value) != "Add":
                detail = f"block {self.block.name_hint} combines by {_kind(value).lower()} over {self._reduced()}, not by a sum"
                raise NotEinsum(Reason.NOT_SUM, detail, _ADD_AFTERWARDS if _kind(value) == "Sub" else "")
            raise NotEinsum(
                Reason.NOT_PRODUCT, f"block {self.block.name_hint} sums values over {self._reduced()} that are no product of two operands"
            )
        return product.a, product.b

    def check_product(self, a: Access, b: Access) -> None:
        """Refuse a product that is cut to fewer bits than it is added with."""
        out = _dtype(self.block.body.buffer.dtype)
        ends = [(access.dtype.min - access.zero_point, access.dtype.max - access.zero_point) for access in (a, b)]
        products = [left * right for left in ends[0] for right in ends[1]]
        for text in _product_dtypes(self.block):
            dtype = _dtype(text)
            if dtype.width < out.width and not (dtype.min <= min(products) and max(products) <= dtype.max):
                detail = f"the product of {a.tensor} and {b.tensor} is cut to {text}, which drops bits of it"
                raise NotEinsum(Reason.OPERAND_EXPRESSION, detail, "widen both operands before they are multiplied, which costs nothing")

    def _reduced(self) -> str:
        return ", ".join(self.names[var] for var, _, reduction in self.iterators if reduction) or "nothing"

    def operand(self, expression: Any) -> Access:
        """Strip an operand of casts, zero points and guards."""
        return self._strip(expression)

    def _strip(self, e: Any) -> Access:
        kind = _kind(e)
        if kind == "TensorLoad":
            return self._load(e)
        if kind == "Cast":
            inner = self._strip(e.value)
            self._check_cast(inner, str(e.ty.dtype))
            return inner
        if kind in ("Add", "Sub"):
            sign = -1 if kind == "Add" else 1
            value = _constant(e.b)
            if value is not None:
                return self._shifted(self._strip(e.a), sign * value, str(e.ty.dtype))
            value = _constant(e.a)
            if value is not None and kind == "Add":
                return self._shifted(self._strip(e.b), -value, str(e.ty.dtype))
        if kind in ("Call", "Select"):
            parts = _choice(e)
            if parts is not None:
                condition, value, otherwise = parts
                return self._guarded(condition, value, otherwise)
        raise NotEinsum(Reason.OPERAND_EXPRESSION, f"operand {self._clip(e)} is no tensor element with casts, a zero point and guards")

    def _clip(self, e: Any) -> str:
        text = " ".join(str(e).split())
        return text if len(text) <= 60 else text[:57] + "..."

    def _load(self, e: Any) -> Access:
        buffer = e.source
        name = next((name for name, known in self.buffers.items() if known.same_as(buffer)), buffer.name)
        while name in self.buffers and not self.buffers[name].same_as(buffer):
            name += "'"
        self.buffers[name] = buffer
        index = tuple(self.index(i) for i in e.indices)
        return Access(tensor=name, shape=_static_shape(buffer), dtype=_dtype(buffer.dtype), index=index)

    def _check_cast(self, inner: Access, dtype: str) -> None:
        target = _dtype(dtype)
        low, high = inner.dtype.min - inner.zero_point, inner.dtype.max - inner.zero_point
        if not (target.min <= low and high <= target.max):
            raise NotEinsum(Reason.OPERAND_EXPRESSION, f"operand {inner.tensor} is cut to {dtype}, which drops bits of {inner.dtype} data")

    def _shifted(self, inner: Access, zero_point: int, dtype: str) -> Access:
        shifted = replace(inner, zero_point=inner.zero_point + zero_point)
        self._check_cast(shifted, dtype)
        return shifted

    def _guarded(self, condition: Any, value: Any, otherwise: Any) -> Access:
        inner, constant = self._strip(value), _constant(otherwise)
        if constant is None:
            raise NotEinsum(Reason.OPERAND_EXPRESSION, f"operand {inner.tensor} is replaced by {self._clip(otherwise)} under a guard")
        fill = constant + inner.zero_point
        if inner.guards and fill != inner.fill:
            raise NotEinsum(Reason.OPERAND_EXPRESSION, f"operand {inner.tensor} has guards with the two values {inner.fill} and {fill}")
        if not inner.dtype.min <= fill <= inner.dtype.max:
            raise NotEinsum(Reason.OPERAND_EXPRESSION, f"operand {inner.tensor} is padded with {fill}, which {inner.dtype} does not hold")
        return replace(inner, guards=merge_guards((*inner.guards, *self._conditions(condition)), self.extents), fill=fill)

    def _conditions(self, e: Any) -> list[Guard]:
        kind = _kind(e)
        if kind == "And":
            return self._conditions(e.a) + self._conditions(e.b)
        if kind == "Call" and getattr(e.op, "name", "").endswith("bitwise_and"):
            return [guard for arg in e.args for guard in self._conditions(arg)]
        comparison = {"LT": (None, 0), "LE": (None, 1), "GT": (1, None), "GE": (0, None), "EQ": (0, 1)}.get(kind)
        if comparison is None:
            raise NotEinsum(Reason.NON_AFFINE, f"guard {self._clip(e)} is no conjunction of comparisons")
        difference = self.index(e.a) - self.index(e.b)
        low, high = difference.bounds(self.extents)
        first = low if comparison[0] is None else comparison[0]
        last = high + 1 if comparison[1] is None else comparison[1]
        return [Guard(difference, first, last)]

    def index(self, e: Any) -> Index:
        """Quasi-affine form of an integer expression over the iterators."""
        try:
            return self._index(self.analyzer.simplify(e))
        except _NotAffine as bad:
            raise NotEinsum(Reason.NON_AFFINE, f"index {self._clip(bad.args[0])} is not affine in {', '.join(self.extents)}") from None

    def _index(self, e: Any) -> Index:
        kind = _kind(e)
        if kind == "IntImm":
            return Index((), int(e.value))
        if kind in ("Var", "SizeVar") and e in self.names:
            return Index.axis(self.names[e])
        if kind == "Cast":
            return self._index(e.value)
        if kind in ("Add", "Sub"):
            left, right = self._index(e.a), self._index(e.b)
            return left + right if kind == "Add" else left - right
        value = _constant(getattr(e, "b", None))
        if kind == "Mul" and value is not None:
            return self._index(e.a) * value
        if kind in ("FloorDiv", "FloorMod") and value is not None and value > 0:
            inner = self._index(e.a)
            return quotient(inner, value if kind == "FloorDiv" else 1, 0 if kind == "FloorDiv" else value, self.extents)
        raise _NotAffine(e)


def _choice(e: Any) -> tuple[Any, Any, Any] | None:
    """Condition and both values of a choice, or None."""
    if _kind(e) == "Select":
        return e.condition, e.true_value, e.false_value
    if _kind(e) == "Call" and getattr(e.op, "name", "").endswith("if_then_else"):
        condition, value, otherwise = e.args
        return condition, value, otherwise
    return None


class _NotAffine(Exception):  # noqa: N818 - internal signal
    pass


def _constant(e: Any) -> int | None:
    if e is None:
        return None
    while _kind(e) == "Cast":
        e = e.value
    return int(e.value) if _kind(e) == "IntImm" else None
