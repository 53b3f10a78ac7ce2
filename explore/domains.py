"""Domains of hardware parameters as a study writes them: one value, a list, a range, powers of two."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..intrinsics import DType, FormatError, ParameterError
from .variables import Bool, Choice, IntRange, Ordered, PowerOfTwo, Value, Variable, nearest

SPELLINGS = "a value, a list, {min, max, step} or {min, max, power_of_two = true}"


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Values of one parameter, in order.

    Parameters
    ----------
    values : tuple
    kind : "list", "range", "powers" or "flags"
    ordered : bool
    """

    values: tuple[Value, ...]
    kind: str = "list"
    ordered: bool = True

    def variable(self, name: str, when: Mapping[str, Value]) -> Variable:
        """The domain as a variable of a space."""
        low, high = self.values[0], self.values[-1]
        if self.kind == "range":
            step = self.values[1] - low if len(self.values) > 1 else 1
            return IntRange(name, low=low, high=high, step=step, when=when)
        if self.kind == "powers":
            return PowerOfTwo(name, low=low, high=high, when=when)
        if self.values == (False, True):
            return Bool(name, when=when)
        return (Ordered if self.ordered else Choice)(name, options=self.values, when=when)

    def to_plain(self) -> Any:
        """The domain in a spelling of the study file."""
        if self.kind == "range":
            step = self.values[1] - self.values[0] if len(self.values) > 1 else 1
            return {"min": self.values[0], "max": self.values[-1], "step": step}
        if self.kind == "powers":
            return {"min": self.values[0], "max": self.values[-1], "power_of_two": True}
        return list(self.values)


def parse_domain(place: str, value: Any, *, kind: str, low: int | None, high: int | None, choices: tuple[str, ...]) -> Domain:
    """Check one domain of a parameter of a kind ("integer", "flag", "choice", "dtype")."""
    if isinstance(value, Mapping):
        if kind != "integer":
            raise FormatError(f"{place} must be a value or a list of values, not {dict(value)!r}: only integers have ranges")
        return _range(place, value, low, high)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise FormatError(f"{place} must have at least one value; allowed: {SPELLINGS}")
    checked = [
        _item(f"{place}[{index}]" if isinstance(value, list) else place, item, kind, low, high, choices) for index, item in enumerate(items)
    ]
    if len(set(checked)) != len(checked):
        raise FormatError(f"{place} must not list a value twice: {items!r}")
    ordered = kind == "integer"
    return Domain(values=tuple(sorted(checked) if ordered or kind == "flag" else checked), ordered=ordered)


def _item(place: str, item: Any, kind: str, low: int | None, high: int | None, choices: tuple[str, ...]) -> Value:
    if kind == "integer":
        return _integer(place, item, low, high)
    if kind == "flag":
        if not isinstance(item, bool):
            raise FormatError(f"{place} must be true or false, not {item!r}")
        return item
    if kind == "dtype":
        try:
            return DType.of(item).name
        except ParameterError as error:
            raise FormatError(f"{place}: {error}") from None
    if item not in choices:
        raise FormatError(f"{place} must be one of {', '.join(choices)}, not {item!r}; nearest legal value: {nearest(item, choices)!r}")
    return item


def _integer(place: str, value: Any, low: int | None, high: int | None) -> int:
    low, high = 1 if low is None else low, 2**31 if high is None else high
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
        near = f"; nearest legal value: {round(min(max(value, low), high))}" if number else f"; allowed: {SPELLINGS}"
        raise FormatError(f"{place} must be an integer from {low} to {high}, not {value!r}{near}")
    return value


def _range(place: str, value: Mapping[str, Any], low: int | None, high: int | None) -> Domain:
    allowed = ("min", "max", "step", "power_of_two")
    for key in value:
        if key not in allowed:
            raise FormatError(f"{place} has no key {key!r}; allowed: {', '.join(allowed)}{closest(key, allowed)}")
    for key in ("min", "max"):
        if key not in value:
            raise FormatError(f"{place}.{key} is missing; allowed: {SPELLINGS}")
    first, last = (_integer(f"{place}.{key}", value[key], low, high) for key in ("min", "max"))
    if first > last:
        raise FormatError(f"{place}.max must be at least min = {first}, not {last}; nearest legal value: {first}")
    power = value.get("power_of_two", False)
    if not isinstance(power, bool):
        raise FormatError(f"{place}.power_of_two must be true or false, not {power!r}")
    return _powers(place, value, first, last) if power else _steps(place, value, first, last)


def _steps(place: str, value: Mapping[str, Any], first: int, last: int) -> Domain:
    step = _integer(f"{place}.step", value.get("step", 1), 1, None)
    return Domain(values=tuple(range(first, last + 1, step)), kind="range")


def _powers(place: str, value: Mapping[str, Any], first: int, last: int) -> Domain:
    if "step" in value:
        raise FormatError(f"{place} must have step or power_of_two, not both")
    for key, bound in (("min", first), ("max", last)):
        if bound < 1 or bound & (bound - 1):
            legal = [1 << power for power in range(31)]
            raise FormatError(f"{place}.{key} must be a power of two, not {bound}; nearest legal value: {nearest(bound, legal)}")
    return Domain(values=tuple(1 << power for power in range(first.bit_length() - 1, last.bit_length())), kind="powers")


def closest(word: object, allowed: Iterable[str]) -> str:
    """The clause ``; did you mean 'x'?``, or nothing."""
    match = difflib.get_close_matches(str(word), list(allowed), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""
