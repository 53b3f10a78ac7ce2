"""Random einsums with padding, strides, zero points and mixed types, on random instructions, against loops in Python."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest

from celosia.compiler.enumerate import best_map, enumerate_maps
from celosia.compiler.reasons import Rejected
from celosia.compiler.tasks import prim_func_task
from celosia.compiler.verify import verify

from .fixtures.small_operators import I32, INSTRUCTIONS
from .test_realise import NEW_FORMS

ROLES = ("ac", "bc", "ab", "abc", "ab", "a", "b", "c", "ac")


@dataclass(frozen=True)
class Case:
    """``C += (pad(A)[strided sums of axes] - za) * (B[axes] - zb)``."""

    roles: tuple[str, ...]
    extents: tuple[int, ...]
    dims: tuple[tuple[tuple[int, int], ...], ...]
    pad: int
    zero_points: tuple[int, int]
    types: tuple[str, str]
    constants: tuple[int, ...]

    def axes(self, letter: str) -> list[int]:
        return [number for number, role in enumerate(self.roles) if letter in role]

    @property
    def shapes(self) -> list[list[int]]:
        a = [max(sum((self.extents[i] - 1) * s for i, s in dim) + 1 - 2 * self.pad, 1) for dim in self.dims] or [1]
        return [a, *([self.extents[i] for i in self.axes(letter)] or [1] for letter in "bc")]

    def build(self):
        from tvm import te, topi

        a, b = (te.placeholder(shape, dtype, name=name) for shape, dtype, name in zip(self.shapes[:2], self.types, "AB", strict=True))
        reduced = {i: te.reduce_axis((0, self.extents[i]), f"r{i}") for i, role in enumerate(self.roles) if "c" not in role}
        padded = topi.nn.pad(a, [self.pad] * len(a.shape), [self.pad] * len(a.shape)) if self.pad else a

        def value(*outer):
            at = {**dict(zip(self.axes("c"), outer, strict=True)), **reduced}
            left = [sum((at[i] * s for i, s in dim[1:]), at[dim[0][0]] * dim[0][1]) for dim in self.dims] or [0]
            right = [at[i] for i in self.axes("b")] or [0]
            za, zb = self.zero_points
            return te.sum((padded(*left).astype(I32) - za) * (b(*right).astype(I32) - zb), axis=list(reduced.values()))

        return te.create_prim_func([a, b, te.compute(self.shapes[2], value, name="C")])

    def reference(self, inputs):
        a, b = (array.astype(np.int64) for array in inputs)
        a = np.pad(a, self.pad) - self.zero_points[0]
        b = b - self.zero_points[1]
        out = np.zeros(self.shapes[2], np.int64)
        for at in itertools.product(*(range(extent) for extent in self.extents)):
            left = tuple(sum(at[i] * s for i, s in dim) for dim in self.dims) or (0,)
            out[tuple(at[i] for i in self.axes("c"))] += a[left] * b[tuple(at[i] for i in self.axes("b")) or (0,)]
        return out.astype(np.int32)


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    roles = [*(rng.choice(ROLES) for _ in range(rng.randint(0, 4))), "ab", rng.choice(("ac", "bc", "abc"))]
    axes = [number for number, role in enumerate(roles) if "a" in role]
    rng.shuffle(axes)
    dims = []
    while axes:
        taken = [axes.pop() for _ in range(min(len(axes), rng.choice((1, 1, 2))))]
        dims.append(tuple((axis, rng.choice((1, 1, 2))) for axis in taken))
    return Case(
        roles=tuple(roles),
        extents=tuple(rng.choice((1, 2, 3, 4, 5, 7)) for _ in roles),
        dims=tuple(dims),
        pad=rng.choice((0, 0, 1)),
        zero_points=(rng.choice((0, 0, 3, -7)), rng.choice((0, 0, -2))),
        types=(rng.choice(("int8", "uint8")), rng.choice(("int8", "uint8"))),
        constants=rng.choice(((), (1,), (0,), (0, 1))),
    )


def check(case: Case, seed: int) -> int:
    rng = random.Random(seed)
    parsed = prim_func_task("random", case.build(), constants=case.constants).parsed
    assert not isinstance(parsed, Rejected), parsed
    proved = 0
    for entry in rng.sample((*INSTRUCTIONS, *NEW_FORMS), 2):
        found = enumerate_maps(parsed.einsum, entry, limit=None, prune=False)
        if isinstance(found, Rejected):
            continue
        assert best_map(parsed.einsum, entry).cycles == found[0].cycles
        for mapped in (found[0], rng.choice(found)):
            assert verify(mapped, parsed, reference=case.reference, offline=rng.random() < 0.3).matches, (case, entry.name, mapped.words)
            proved += 1
    return proved


def test_random_einsums():
    assert sum(check(draw(seed), seed) for seed in range(4)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_more_random_einsums(seed):
    case = draw(seed)
    assert check(case, seed) >= 0


@pytest.mark.parametrize("entry", INSTRUCTIONS[1:5:3], ids=lambda entry: entry.name)
def test_an_operand_that_is_only_padding(entry):
    case = Case(("bc", "ab"), (5, 1), (((1, 1),),), 1, (-7, 0), ("uint8", "int8"), (1,))
    parsed = prim_func_task("padding", case.build()).parsed
    assert verify(best_map(parsed.einsum, entry), parsed, reference=case.reference).matches


def test_weights_on_both_sides_are_prepared_in_any_order():
    case = Case(("ab", "ab", "bc"), (4, 5, 4), (((1, 2),), ((0, 2),)), 0, (0, -2), ("int8", "int8"), (0, 1))
    parsed = prim_func_task("both", case.build(), constants=(0, 1)).parsed
    for entry in INSTRUCTIONS[2:4]:
        for mapped in enumerate_maps(parsed.einsum, entry, limit=None)[:6]:
            assert verify(mapped, parsed, reference=case.reference, offline=True).matches, mapped.words
