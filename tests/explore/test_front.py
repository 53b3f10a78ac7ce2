"""The front against brute force."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.explore.front import dominates, hypervolume, pareto_front, thin


@st.composite
def clouds(draw: st.DrawFn) -> list[tuple[int, ...]]:
    dimension = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[st.integers(0, 6)] * dimension), min_size=0, max_size=40))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(clouds())
def test_front_equals_brute_force(points: list[tuple[int, ...]]) -> None:
    front = pareto_front(points)
    brute = {point for point in points if not any(dominates(other, point) for other in points)}
    assert {points[index] for index in front} == brute
    assert len(front) == len(brute)  # equal points count once
    assert [points[index] for index in front] == sorted(brute)
    assert all(points.index(points[index]) == index for index in front)  # the first of equal points


@settings(deadline=None, derandomize=True, max_examples=100)
@given(clouds())
def test_hypervolume_equals_counted_cells(points: list[tuple[int, ...]]) -> None:
    dimension = len(points[0]) if points else 2
    cells = itertools.product(range(5), repeat=dimension)
    counted = sum(any(all(x <= c for x, c in zip(point, cell, strict=True)) for point in points) for cell in cells)
    assert hypervolume(points, (5,) * dimension) == pytest.approx(counted)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sets(st.integers(1, 400), min_size=1, max_size=30), st.integers(1, 12))
def test_thinning_keeps_the_extremes_and_is_deterministic(xs: set[int], limit: int) -> None:
    points = [(x, 1000 / x) for x in sorted(xs)]
    kept = thin(points, limit)
    assert len(kept) == len(set(kept)) == min(limit, len(points))
    assert kept == thin(points, limit)
    assert limit == 1 or {0, len(points) - 1} <= set(kept)


def test_thinning_spreads() -> None:
    points = [(math.exp(x), math.exp(-x)) for x in (0, 0.1, 0.2, 5, 5.1, 10)]
    assert thin(points, 3) in ([0, 3, 5], [0, 4, 5])
