"""Convolutions of one shape, one after the other or added up: batches, slices of volumes, phases of a transposed convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..einsum import Index
from .placement import Placement
from .window import bordered, evaluate


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Which parts of their tensors the convolutions use, along axes of their own.

    Parameters
    ----------
    outputs, sums : mapping from axis to extent
        Axes of the outputs that come before those of one convolution, and axes along which convolutions are added up.
    slices : tuple of (int, Index)
        Dimensions of the activations before those of one convolution: their sizes, and which slice is used; slices that do not exist
        are all border.
    weights : tuple of str
        Axes of the weights before those of one convolution.
    corner : (Index, Index), optional
        Row and column of the image where the window of the first output begins, where that is not the same for all.
    """

    outputs: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, int] = field(default_factory=dict)
    slices: tuple[tuple[int, Index], ...] = ()
    weights: tuple[str, ...] = ()
    corner: tuple[Index, Index] | None = None

    @property
    def extents(self) -> dict[str, int]:
        """Extents of all axes."""
        return {**self.outputs, **self.sums}

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Convolutions' worth of weights."""
        return tuple(self.extents[axis] for axis in self.weights)

    def bounds(self, index: Index) -> tuple[int, int]:
        """Least and greatest value."""
        values = evaluate(index, dict(zip(self.extents, np.ogrid[tuple(map(slice, self.extents.values()))], strict=True)))
        return int(values.min()), int(values.max())


ONE = Batch()


def batch_of(placement: Placement) -> Batch | None:
    """The batch that a placement's turns are, or None if the border of its slices is none of zeros around them."""
    einsum, extents = placement.einsum, placement.einsum.extents
    inside = {axis: Index() for axis in extents if axis not in placement.outer}
    if not all(bordered(dim, extents) for dim in placement.slices):
        return None
    lines = [Index()] * (2 - len(placement.lines)) + [dim.index.substitute(inside, extents) for dim in placement.lines]
    roles = einsum.roles
    return Batch(
        outputs={axis: extents[axis] for axis in placement.outer if "c" in roles[axis]},
        sums={axis: extents[axis] for axis in placement.outer if "c" not in roles[axis]},
        slices=tuple((dim.size, dim.index) for dim in placement.slices),
        weights=tuple(axis for axis in placement.outer if "b" in roles[axis]),
        corner=(lines[0], lines[1]) if any(line.terms for line in lines) else None,
    )
