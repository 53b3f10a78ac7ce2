"""The Pareto front of points that are all minimised, and how much it dominates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

Point = Sequence[float]
T = TypeVar("T")


def dominates(a: Point, b: Point) -> bool:
    """Whether ``a`` is nowhere worse than ``b`` and somewhere better."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other point dominates, sorted by value; of equal points the first one.

    Parameters
    ----------
    points : sequence of equally long sequences of float
        Objectives, all minimised, without NaN.
    """
    order = sorted(range(len(points)), key=lambda index: (tuple(points[index]), index))
    front: list[int] = []
    for index in order:  # a point can only be dominated by one before it in this order
        if not any(all(x <= y for x, y in zip(points[kept], points[index], strict=True)) for kept in _rivals(front, points, index)):
            front.append(index)
    return front


def _rivals(front: list[int], points: Sequence[Point], index: int) -> Sequence[int]:
    """Members that may dominate: with two objectives only the last one, which has the least second objective."""
    return front[-1:] if len(points[index]) == 2 else front


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Volume that is dominated by ``points`` and dominates ``reference``; points beyond it add nothing."""
    inside = [tuple(point) for point in points if all(x < r for x, r in zip(point, reference, strict=True))]
    return _volume(sorted(inside), tuple(reference))


def _volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    """By slices along the first objective; ``points`` sorted."""
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - points[0][0]
    volume, slab = 0.0, list[tuple[float, ...]]()
    for place, point in enumerate(points):
        slab.append(point[1:])
        following = points[place + 1][0] if place + 1 < len(points) else reference[0]
        if following > point[0]:
            volume += (following - point[0]) * _volume(sorted(slab), reference[1:])
    return volume


def thin(points: Sequence[Point], limit: int) -> list[int]:
    """At most ``limit`` indices of a front, spread evenly in log space; the best point of each objective is kept.

    Farthest-point selection: each step takes the member that is farthest from those taken. Ties go to the lower index.
    """
    if len(points) <= limit:
        return list(range(len(points)))
    scaled = _scaled(points)
    columns = [list(column) for column in zip(*points, strict=True)]
    taken = list(dict.fromkeys(column.index(min(column)) for column in columns))[:limit]
    distance = [min(math.dist(scaled[i], scaled[j]) for j in taken) for i in range(len(points))]
    while len(taken) < limit:
        farthest = max(range(len(points)), key=lambda i: (distance[i], -i))
        taken.append(farthest)
        distance = [min(old, math.dist(scaled[i], scaled[farthest])) for i, old in enumerate(distance)]
    return sorted(taken)


def _scaled(points: Sequence[Point]) -> list[tuple[float, ...]]:
    """Points with the logarithm of every objective scaled to 0..1."""
    logs = [[math.log(max(x, 1e-300)) for x in point] for point in points]
    lows, highs = [min(column) for column in zip(*logs, strict=True)], [max(column) for column in zip(*logs, strict=True)]
    return [tuple((x - low) / (high - low or 1) for x, low, high in zip(row, lows, highs, strict=True)) for row in logs]
