"""The mapper's view of an operator: ``C[…] += A[…] * B[…]`` over named axes, in pure Python.

Every index is a quasi-affine `Index` over axis names, so the enumerator needs no TVM and the realiser can print it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..intrinsics import DType


@dataclass(frozen=True)
class Quotient:
    """``(inner // divisor) % modulus``; modulus 0 means none."""

    inner: Index
    divisor: int = 1
    modulus: int = 0

    def __str__(self) -> str:
        text = f"({self.inner})"
        if self.divisor > 1:
            text += f"//{self.divisor}"
        return text + (f"%{self.modulus}" if self.modulus else "")


@dataclass(frozen=True)
class Index:
    """``const + sum of coefficient * atom``, where an atom is the name of an axis or a `Quotient`."""

    terms: tuple[tuple[str | Quotient, int], ...] = ()
    const: int = 0

    @classmethod
    def of(cls, terms: Mapping[str | Quotient, int], const: int = 0) -> Index:
        """Build from a mapping; zero coefficients vanish."""
        return cls(tuple((atom, coefficient) for atom, coefficient in terms.items() if coefficient), const)

    @classmethod
    def axis(cls, name: str) -> Index:
        """The value of one axis."""
        return cls(((name, 1),))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return Index.of(merged, self.const + other.const)

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Index:
        return Index(tuple((atom, coefficient * factor) for atom, coefficient in self.terms) if factor else (), self.const * factor)

    @property
    def axes(self) -> frozenset[str]:
        """Names of all axes in it, also inside quotients."""
        return frozenset(name for atom, _ in self.terms for name in (atom.inner.axes if isinstance(atom, Quotient) else (atom,)))

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """The non-linear atoms."""
        return tuple(atom for atom, _ in self.terms if isinstance(atom, Quotient))

    def linear(self, name: str) -> int:
        """Coefficient of an axis outside quotients."""
        return next((coefficient for atom, coefficient in self.terms if atom == name), 0)

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value (an interval that holds them) when each axis runs over ``range(extent)``."""
        low = high = self.const
        for atom, coefficient in self.terms:
            first, last = (0, extents[atom] - 1) if isinstance(atom, str) else _quotient_bounds(atom, extents)
            low += min(coefficient * first, coefficient * last)
            high += max(coefficient * first, coefficient * last)
        return low, high

    def substitute(self, values: Mapping[str, Index], extents: Mapping[str, int]) -> Index:
        """Replace axes by indices over axes with the given extents, and simplify."""
        result = Index((), self.const)
        for atom, coefficient in self.terms:
            if isinstance(atom, str):
                part = values.get(atom) or Index.axis(atom)
            else:
                part = quotient(atom.inner.substitute(values, extents), atom.divisor, atom.modulus, extents)
            result = result + part * coefficient
        return result

    def __str__(self) -> str:
        parts = [str(atom) if coefficient == 1 else f"{coefficient}*{atom}" for atom, coefficient in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def _quotient_bounds(atom: Quotient, extents: Mapping[str, int]) -> tuple[int, int]:
    low, high = (bound // atom.divisor for bound in atom.inner.bounds(extents))
    if atom.modulus and not 0 <= low <= high < atom.modulus:
        return 0, atom.modulus - 1
    return low, high


def quotient(inner: Index, divisor: int, modulus: int, extents: Mapping[str, int]) -> Index:
    """``(inner // divisor) % modulus`` in the simplest form that holds for axes within their extents."""
    simple = _tabulate(inner, divisor, modulus, extents)
    if simple is not None:
        return simple
    if divisor > 1:
        whole, rest = _take_multiples(inner, divisor)
        low, high = rest.bounds(extents)
        if low // divisor == high // divisor:
            inner, divisor = whole + low // divisor, 1
        elif whole.terms or whole.const:
            divided = whole + Index(((Quotient(rest, divisor), 1),))
            if not modulus:
                return divided
            whole_mod, _ = _take_multiples(whole, modulus)
            if whole_mod * modulus == whole:
                return quotient(rest, divisor, modulus, extents)
            return Index(((Quotient(inner, divisor, modulus), 1),))
    if modulus and divisor == 1:
        inner = _take_multiples(inner, modulus)[1]
    low, high = (bound // divisor for bound in inner.bounds(extents))
    if modulus and low // modulus == high // modulus:
        shift = -(low // modulus) * modulus
        modulus = 0
        if divisor == 1:
            return inner + shift
        return Index(((Quotient(inner, divisor), 1),), shift)
    if divisor == 1 and not modulus:
        return inner
    return Index(((Quotient(inner, divisor, modulus), 1),))


_TABLE = 64
"""Largest axis over which an atom of that axis alone is evaluated to find a simpler form."""


def _tabulate(inner: Index, divisor: int, modulus: int, extents: Mapping[str, int]) -> Index | None:
    """The constant or linear form of an atom of one short axis, if it has one."""
    if len(inner.axes) != 1:
        return None
    (name,) = inner.axes
    if extents[name] > _TABLE:
        return None
    values = [_value(inner, name, value) // divisor for value in range(extents[name])]
    values = [value % modulus for value in values] if modulus else values
    step = values[1] - values[0] if len(values) > 1 else 0
    if all(value == values[0] + step * position for position, value in enumerate(values)):
        return Index.of({name: step}, values[0])
    return None


def _value(index: Index, name: str, value: int) -> int:
    total = index.const
    for atom, coefficient in index.terms:
        part = value
        if isinstance(atom, Quotient):
            part = _value(atom.inner, name, value) // atom.divisor
            part = part % atom.modulus if atom.modulus else part
        total += coefficient * part
    return total


def _take_multiples(index: Index, divisor: int) -> tuple[Index, Index]:
    """Split ``index = divisor * whole + rest``; what is left in ``rest`` has no multiples of the divisor."""
    whole = tuple((atom, coefficient // divisor) for atom, coefficient in index.terms if coefficient % divisor == 0)
    rest = tuple((atom, coefficient) for atom, coefficient in index.terms if coefficient % divisor)
    return Index(whole, index.const // divisor), Index(rest, index.const % divisor)


@dataclass(frozen=True)
class Guard:
    """``low <= index < high``."""

    index: Index
    low: int
    high: int

    def holds_always(self, extents: Mapping[str, int]) -> bool:
        """Whether no value of the axes breaks it."""
        low, high = self.index.bounds(extents)
        return self.low <= low and high < self.high

    def substitute(self, values: Mapping[str, Index], extents: Mapping[str, int]) -> Guard:
        """Replace axes in the index."""
        return replace(self, index=self.index.substitute(values, extents))

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


def merge_guards(guards: Iterable[Guard], extents: Mapping[str, int]) -> tuple[Guard, ...]:
    """One guard per index, with a positive first term and no constant; those that always hold are left out."""
    merged: dict[Index, tuple[int, int]] = {}
    for guard in guards:
        bare = guard.index - guard.index.const
        low, high = guard.low - guard.index.const, guard.high - guard.index.const
        if bare.terms and bare.terms[0][1] < 0:
            bare, low, high = bare * -1, 1 - high, 1 - low
        before = merged.get(bare, (low, high))
        merged[bare] = max(low, before[0]), min(high, before[1])
    unified = (Guard(index, low, high) for index, (low, high) in merged.items())
    return tuple(guard for guard in unified if not guard.holds_always(extents))


@dataclass(frozen=True)
class Axis:
    """One loop of the operator; ``reduction`` if the output does not depend on it."""

    name: str
    extent: int
    reduction: bool = False


@dataclass(frozen=True, kw_only=True)
class Access:
    """How one operand is read: ``(tensor[index] if guards else fill) - zero_point``, and 0 outside ``domain``.

    Parameters
    ----------
    tensor : str
    shape : tuple of int
    dtype : DType
        Type of the values in memory.
    index : tuple of Index, one per dimension
        Of the tensor, or of its ``view``.
    guards : tuple of Guard
        The operator's own conditions (padding, zero insertion).
    fill : int
        Value, in the units of the tensor, where a guard does not hold.
    zero_point : int
    domain : tuple of Guard
        Conditions of a rewritten iteration space: outside, the product counts for nothing.
    constant : bool
        Known at compile time (weights): packing costs nothing at run time.
    stored : DType or None
        Type the instruction reads; None as in memory.
    shift : int
        Added to the value when it is stored; ``zero_point`` counts from the unshifted value.
    view : tuple of Index, one per dimension of the tensor, over ``$0``, ``$1``, …
        Where the tensor is read as another one, with joined dimensions: its index there; then ``guards`` are over ``$0``, … too.
    """

    tensor: str
    shape: tuple[int, ...]
    dtype: DType
    index: tuple[Index, ...]
    guards: tuple[Guard, ...] = ()
    fill: int = 0
    zero_point: int = 0
    domain: tuple[Guard, ...] = ()
    constant: bool = False
    stored: DType | None = None
    shift: int = 0
    view: tuple[Index, ...] = ()

    def in_tensor(self, position: Sequence[Index], sizes: Mapping[str, int]) -> tuple[tuple[Index, ...], tuple[Guard, ...]]:
        """Index into the tensor, and guards, at a position of the view, whose variables have the given sizes."""
        values = {f"${number}": index for number, index in enumerate(position)}
        return tuple(index.substitute(values, sizes) for index in self.view), _live(self.guards, values, sizes)

    @property
    def axes(self) -> frozenset[str]:
        """Axes that the value depends on."""
        guards = self.domain if self.view else (*self.guards, *self.domain)
        parts = [*self.index, *(guard.index for guard in guards)]
        return frozenset().union(*(part.axes for part in parts))

    @property
    def offset(self) -> int:
        """Zero point of the stored value: what has to be subtracted from it."""
        return self.zero_point + self.shift

    @property
    def container(self) -> DType:
        """Element type of a packed copy."""
        return (self.stored or self.dtype).container

    @property
    def bytes(self) -> int:
        """Size of the tensor in memory."""
        return math.prod(self.shape) * self.dtype.container_width // 8

    def substitute(self, values: Mapping[str, Index], extents: Mapping[str, int]) -> Access:
        """Replace axes everywhere."""
        return replace(
            self,
            index=tuple(index.substitute(values, extents) for index in self.index),
            guards=self.guards if self.view else _live(self.guards, values, extents),
            domain=_live(self.domain, values, extents),
        )


def _live(guards: Iterable[Guard], values: Mapping[str, Index], extents: Mapping[str, int]) -> tuple[Guard, ...]:
    renamed = (guard.substitute(values, extents) for guard in guards)
    return tuple(guard for guard in renamed if not guard.holds_always(extents))


@dataclass(frozen=True, kw_only=True)
class Einsum:
    """``out[out_index] += a * b`` over all axes.

    Parameters
    ----------
    name : str
    axes : tuple of Axis
    a, b : Access
    out : str
        Tensor that is written.
    out_shape : tuple of int
    out_index : tuple of Index
    out_guards : tuple of Guard
        Points of a rewritten iteration space that exist in the output.
    acc : DType
        Type of the output and of the sums, which wrap.
    macs : int
        Useful multiply-accumulates: products that can differ from zero by the operator's structure.
    notes : tuple of str
        Rewrites that led here, for people.
    """

    name: str
    axes: tuple[Axis, ...]
    a: Access
    b: Access
    out: str
    out_shape: tuple[int, ...]
    out_index: tuple[Index, ...]
    out_guards: tuple[Guard, ...] = ()
    acc: DType
    macs: int
    notes: tuple[str, ...] = ()

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis by name."""
        return {axis.name: axis.extent for axis in self.axes}

    @property
    def out_axes(self) -> frozenset[str]:
        """Axes of the output."""
        return frozenset().union(*(index.axes for index in self.out_index))

    @property
    def roles(self) -> dict[str, str]:
        """Which of a, b, c each axis indexes, as in `Contraction.role`."""
        users = (("a", self.a.axes), ("b", self.b.axes), ("c", self.out_axes))
        return {axis.name: "".join(letter for letter, used in users if axis.name in used) for axis in self.axes}

    @property
    def depth(self) -> int:
        """Products per element of the output, an upper bound."""
        return math.prod(axis.extent for axis in self.axes if axis.reduction)

    def swapped(self) -> Einsum:
        """The same operator with its operands exchanged."""
        return replace(self, a=self.b, b=self.a)

    def rewrite(self, axes: tuple[Axis, ...], values: Mapping[str, Index]) -> Einsum:
        """Replace the iteration space: old axes become indices over the new ones."""
        extents = {axis.name: axis.extent for axis in axes}
        return replace(
            self,
            axes=axes,
            a=self.a.substitute(values, extents),
            b=self.b.substitute(values, extents),
            out_index=tuple(index.substitute(values, extents) for index in self.out_index),
            out_guards=_live(self.out_guards, values, extents),
        )
