"""Slow, plain evaluation of an `Einsum` and of layouts, for tests: what the records say, element by element."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from celosia.compiler.einsum import Access, Einsum, Guard, Index, Quotient


def value(index: Index, at: Mapping[str, int]) -> int:
    total = index.const
    for atom, coefficient in index.terms:
        if isinstance(atom, Quotient):
            part = value(atom.inner, at) // atom.divisor
            part = part % atom.modulus if atom.modulus else part
        else:
            part = at[atom]
        total += coefficient * part
    return total


def holds(guards: tuple[Guard, ...], at: Mapping[str, int]) -> bool:
    return all(guard.low <= value(guard.index, at) < guard.high for guard in guards)


def element(access: Access, tensor: np.ndarray, at: Mapping[str, int]) -> int:
    """Value of an operand with its zero point taken out; 0 outside the domain."""
    if not holds(access.domain, at):
        return 0
    position, where = [value(index, at) for index in access.index], at
    if access.view:
        where = {f"${number}": coordinate for number, coordinate in enumerate(position)}
        position = [value(index, where) for index in access.view]
    if not holds(access.guards, where):
        return access.fill - access.zero_point
    return int(tensor[tuple(position)]) - access.zero_point


def evaluate(einsum: Einsum, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.zeros(einsum.out_shape, np.int64)
    names = [axis.name for axis in einsum.axes]
    for point in itertools.product(*(range(axis.extent) for axis in einsum.axes)):
        at = dict(zip(names, point, strict=True))
        if holds(einsum.out_guards, at):
            out[tuple(value(index, at) for index in einsum.out_index)] += element(einsum.a, a, at) * element(einsum.b, b, at)
    return out
