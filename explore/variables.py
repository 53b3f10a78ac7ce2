"""The kinds of variables: each has a finite domain, a place for every value in it, and steps between neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..intrinsics import ParameterError

Value = Any
"""JSON scalars, and tuples of them for list-valued variables and permutations."""

SHOWN = 12
"""Longest domain that is written out in messages."""


@dataclass(frozen=True)
class Axis:
    """One coordinate of a variable for an optimiser: ``size`` steps, ``ordered`` if near indices mean near values."""

    name: str
    size: int
    ordered: bool


@dataclass(frozen=True)
class Variable:
    """A named variable; the subclasses say over which domain.

    Parameters
    ----------
    name : str
    when : mapping from variable name to value or tuple of values
        The variable exists only where each named variable has (one of) the given values; empty: always.
    """

    name: str
    when: Mapping[str, Value] = field(default_factory=dict, kw_only=True, hash=False)

    ordered = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError(f"name of a variable must be a non-empty string, not {self.name!r}")
        self._check_domain()

    def _check_domain(self) -> None:
        if not self.values:
            raise ParameterError(f"variable {self.name!r} must have at least one value in its domain")
        if len(set(self.values)) != len(self.values):
            raise ParameterError(f"variable {self.name!r} must not list a value twice: {self.values!r}")

    @property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def default(self) -> Value:
        """The value in the middle of an ordered domain, else the first."""
        return self.at((self.size - 1) // 2 if self.ordered else 0)

    @property
    def domain_text(self) -> str:
        """The domain for people."""
        if self.size <= SHOWN:
            return ", ".join(map(str, self.values))
        return f"{self.values[0]}, {self.values[1]} .. {self.values[-1]} ({self.size} values)"

    def at(self, index: int) -> Value:
        """Value number ``index``."""
        return self.values[index]

    def check(self, value: Value) -> None:
        """Raise `ParameterError` unless ``value`` is in the domain."""
        if not self.contains(value):
            raise ParameterError(
                f"{self.name} must be one of {self.domain_text}, not {value!r}; nearest legal value: {self.nearest(value)!r}"
            )

    def contains(self, value: Value) -> bool:
        """Whether ``value`` is in the domain; True is not 1."""
        return any(value == legal and isinstance(value, bool) == isinstance(legal, bool) for legal in self.values)

    def nearest(self, value: Value) -> Value:
        """The value of the domain that is closest to ``value``: by distance for numbers, by spelling for strings."""
        return nearest(value, self.values)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Coordinates for an optimiser."""
        return (Axis(self.name, self.size, self.ordered),)

    def decode(self, indices: Sequence[int]) -> Value:
        """Value at axis indices."""
        return self.at(indices[0])

    def encode(self, value: Value) -> list[int]:
        """Axis indices of ``value``."""
        return [self.values.index(value)]

    def steps(self, value: Value) -> Iterator[Value]:
        """The neighbours of ``value``: the next ones of an ordered domain, else all others."""
        here = self.values.index(value)
        near = (here - 1, here + 1) if self.ordered else range(self.size)
        return (self.at(index) for index in near if 0 <= index < self.size and index != here)


def nearest(value: Value, legal: Sequence[Value]) -> Value:
    """The member of ``legal`` that is closest to ``value``."""
    import difflib

    numbers = [item for item in legal if isinstance(item, (int, float)) and not isinstance(item, bool)]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and numbers and not math.isnan(value):
        return min(numbers, key=lambda item: (abs(item - value), item))
    close = difflib.get_close_matches(str(value), [str(item) for item in legal], n=1, cutoff=0)
    return next((item for item in legal if close and str(item) == close[0]), legal[0])


@dataclass(frozen=True)
class IntRange(Variable):
    """Integers ``low, low + step, … <= high``."""

    low: int = field(kw_only=True)
    high: int = field(kw_only=True)
    step: int = field(default=1, kw_only=True)

    def _check_domain(self) -> None:
        for name in ("low", "high", "step"):
            _check_int(f"{name} of {self.name}", getattr(self, name))
        if self.step < 1:
            raise ParameterError(f"step of {self.name} must be at least 1, not {self.step}; nearest legal value: 1")
        if self.low > self.high:
            raise ParameterError(f"high of {self.name} must be at least low = {self.low}, not {self.high}; nearest legal value: {self.low}")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        return tuple(range(self.low, self.high + 1, self.step))


@dataclass(frozen=True)
class PowerOfTwo(Variable):
    """The powers of two from ``low`` to ``high``, both included (and both powers of two)."""

    low: int = field(kw_only=True)
    high: int = field(kw_only=True)

    def _check_domain(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            _check_int(f"{name} of {self.name}", value)
            if value < 1 or value & (value - 1):
                near = 1 << max(round(math.log2(value)), 0) if value > 0 else 1
                raise ParameterError(f"{name} of {self.name} must be a power of two, not {value}; nearest legal value: {near}")
        if self.low > self.high:
            raise ParameterError(f"high of {self.name} must be at least low = {self.low}, not {self.high}; nearest legal value: {self.low}")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        return tuple(1 << power for power in range(self.low.bit_length() - 1, self.high.bit_length()))


@dataclass(frozen=True)
class Divisors(Variable):
    """The divisors of ``of`` (legal tile sizes), at most ``largest``."""

    of: int = field(kw_only=True)
    largest: int | None = field(default=None, kw_only=True)

    def _check_domain(self) -> None:
        _check_int(f"of of {self.name}", self.of)
        if self.of < 1:
            raise ParameterError(f"of of {self.name} must be at least 1, not {self.of}; nearest legal value: 1")
        if self.largest is not None and self.largest < 1:
            raise ParameterError(f"largest of {self.name} must be at least 1, not {self.largest}; nearest legal value: 1")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        limit = self.of if self.largest is None else self.largest
        return tuple(size for size in range(1, min(self.of, limit) + 1) if self.of % size == 0)


@dataclass(frozen=True)
class Choice(Variable):
    """One of ``options``, in no order (``Ordered`` is its sibling with one)."""

    options: tuple[Value, ...] = field(kw_only=True)
    ordered = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        super().__post_init__()

    @property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        return self.options


@dataclass(frozen=True)
class Ordered(Choice):
    """One of ``options``, where neighbours in the list are alike: an explicit list of numbers, say."""

    ordered = True


@dataclass(frozen=True)
class Bool(Variable):
    """False or True."""

    ordered = False

    @property
    def values(self) -> tuple[Value, ...]:
        """The domain, in order."""
        return (False, True)


@dataclass(frozen=True)
class Permutation(Variable):
    """An order of ``items``, as a tuple; one axis per item but the last (which of the items left comes next)."""

    items: tuple[Value, ...] = field(kw_only=True)
    ordered = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        super().__post_init__()

    def _check_domain(self) -> None:
        if not self.items or len(set(self.items)) != len(self.items):
            raise ParameterError(f"items of {self.name} must be distinct and at least one, not {self.items!r}")

    @property
    def values(self) -> tuple[Value, ...]:
        """The domain in lexicographic order; it has n! members."""
        return tuple(self.at(index) for index in range(self.size))

    @property
    def size(self) -> int:
        """Number of orders."""
        return math.factorial(len(self.items))

    @property
    def domain_text(self) -> str:
        """The domain for people."""
        return f"the {self.size} orders of {', '.join(map(str, self.items))}"

    def at(self, index: int) -> Value:
        """Order number ``index`` in lexicographic order."""
        digits = []
        for radix in range(1, len(self.items) + 1):
            index, digit = divmod(index, radix)
            digits.append(digit)
        return self.decode(digits[:0:-1])

    def contains(self, value: Value) -> bool:
        """Whether ``value`` is an order of the items."""
        return isinstance(value, (tuple, list)) and len(value) == len(self.items) and set(value) == set(self.items)

    def nearest(self, value: Value) -> Value:
        """The items in their own order."""
        return self.items

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Which of the items left comes next, for every place but the last."""
        count = len(self.items)
        return tuple(Axis(f"{self.name}[{place}]", count - place, False) for place in range(count - 1))

    def decode(self, indices: Sequence[int]) -> Value:
        """Order at axis indices."""
        left = list(self.items)
        return tuple(left.pop(index) for index in (*indices, 0))

    def encode(self, value: Value) -> list[int]:
        """Axis indices of an order."""
        left = list(self.items)
        indices = []
        for item in value:
            indices.append(left.index(item))
            left.remove(item)
        return indices[:-1]

    def steps(self, value: Value) -> Iterator[Value]:
        """Orders with two adjacent items swapped."""
        for place in range(len(value) - 1):
            yield (*value[:place], value[place + 1], value[place], *value[place + 2 :])


@dataclass(frozen=True)
class ListOf(Variable):
    """A tuple with one value per element variable: tile sizes per loop, flags per operand, …"""

    elements: tuple[Variable, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "elements", tuple(self.elements))
        super().__post_init__()

    def _check_domain(self) -> None:
        if not self.elements:
            raise ParameterError(f"elements of {self.name} must be at least one variable")

    @property
    def values(self) -> tuple[Value, ...]:
        """The domain in lexicographic order; it is the product of the elements' domains."""
        return tuple(self.at(index) for index in range(self.size))

    @property
    def size(self) -> int:
        """Number of lists."""
        return math.prod(element.size for element in self.elements)

    @property
    def domain_text(self) -> str:
        """The domain for people."""
        return "lists of " + "; ".join(f"({element.domain_text})" for element in self.elements)

    def at(self, index: int) -> Value:
        """List number ``index`` in lexicographic order."""
        items = []
        for element in reversed(self.elements):
            index, place = divmod(index, element.size)
            items.append(element.at(place))
        return tuple(reversed(items))

    def contains(self, value: Value) -> bool:
        """Whether ``value`` has one legal item per element."""
        if not isinstance(value, (tuple, list)) or len(value) != len(self.elements):
            return False
        return all(element.contains(item) for element, item in zip(self.elements, value, strict=True))

    def nearest(self, value: Value) -> Value:
        """The default list, or the given one with each item mended."""
        if not isinstance(value, (tuple, list)) or len(value) != len(self.elements):
            return self.default
        return tuple(element.nearest(item) for element, item in zip(self.elements, value, strict=True))

    @property
    def default(self) -> Value:
        """The default of every element."""
        return tuple(element.default for element in self.elements)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of the elements, one after another."""
        return tuple(Axis(f"{self.name}.{axis.name}", axis.size, axis.ordered) for element in self.elements for axis in element.axes)

    def decode(self, indices: Sequence[int]) -> Value:
        """List at axis indices."""
        items, position = [], 0
        for element in self.elements:
            items.append(element.decode(indices[position : position + len(element.axes)]))
            position += len(element.axes)
        return tuple(items)

    def encode(self, value: Value) -> list[int]:
        """Axis indices of a list."""
        return [index for element, item in zip(self.elements, value, strict=True) for index in element.encode(item)]

    def steps(self, value: Value) -> Iterator[Value]:
        """Lists with one element moved by one step."""
        for place, element in enumerate(self.elements):
            for item in element.steps(value[place]):
                yield (*value[:place], item, *value[place + 1 :])


def _check_int(what: str, value: Value) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ParameterError(f"{what} must be an integer, not {value!r}")
