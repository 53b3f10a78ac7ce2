"""Which signed numbers of a rolled grid may be kept in whole machine words: extending a sign takes a simulator longer than adding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeAlias

WIDE = "signed [31:0]"
"""Shape of a number that is kept with its sign extended."""
_SIGNED = re.compile(r"signed \[(\d+):0\]")
_WIDEST = 16
"""Bits of an operand whose products fit `WIDE`."""

Family: TypeAlias = tuple[str, str]
Parts: TypeAlias = tuple[object, ...]


class Read(Protocol):
    """A read of an element of a family."""

    @property
    def family(self) -> Family: ...


class Template(Protocol):
    """What `reroll` knows of an update."""

    @property
    def family(self) -> Family: ...
    @property
    def locals(self) -> tuple[tuple[str, str, Parts], ...]: ...
    @property
    def condition(self) -> Parts: ...
    @property
    def value(self) -> Parts: ...


def widened_families(templates: Sequence[Template]) -> set[Family]:
    """Families of signed numbers that are only moved and multiplied: a product is the same whatever the width of its factors."""
    found = {template.family for template in templates if 1 < _width(template.family[1]) <= _WIDEST}
    for template in templates:
        for parts in (template.condition, template.value, *(parts for _, _, parts in template.locals)):
            if not _factors(parts) and not (parts is template.value and is_move(template)):
                found -= {_family(part) for part in parts}
    return found


def is_move(template: Template) -> bool:
    """Whether an update takes over an element of the same shape as it is."""
    return len(template.value) == 1 and _family(template.value[0])[1] == template.family[1]


def exact_products(template: Template) -> set[str]:
    """Locals that hold a whole product of two elements and are only read as signed numbers: their upper bits are sign."""
    found = set()
    for name, shape, parts in template.locals:
        width = sum(_width(_family(factor)[1]) for factor in _factors(parts))
        if 1 < width <= _width(f"signed {shape}") <= 2 * _WIDEST and _only_signed(template, name):
            found.add(name)
    return found


def _only_signed(template: Template, name: str) -> bool:
    texts = (template.condition, template.value, *(parts for _, _, parts in template.locals))
    uses = [parts[max(at - 2, 0) : at + 2] for parts in texts for at, part in enumerate(parts) if part == name]
    return all(use == ("$signed", "(", name, ")") for use in uses)


def _factors(parts: Parts) -> tuple[object, ...]:
    """Both operands of ``$signed(element) * $signed(element)``, or none."""
    if len(parts) == 9 and all(_family(parts[at])[0] for at in (2, 7)):
        return (parts[2], parts[7]) if (*parts[:2], *parts[3:7], parts[8]) == ("$signed", "(", ")", "*", "$signed", "(", ")") else ()
    return ()


def _family(part: object) -> Family:
    found: Family = getattr(part, "family", ("", ""))
    return found


def _width(shape: str) -> int:
    """Bits of a signed shape, or 0."""
    found = _SIGNED.fullmatch(shape)
    return int(found[1]) + 1 if found else 0
