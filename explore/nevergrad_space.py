"""A `Space` as a Nevergrad parametrisation and back.

Ordered axes share one bounded, integer-cast array (one parameter instead of dozens keeps ask and tell fast); each
unordered axis is a `Choice`. Axes with one value are left out: they are constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .space import Assignment, Space
from .variables import Value


class NevergradSpace:
    """Converts between assignments of ``space`` and values of a Nevergrad parametrisation."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._size = len(space.axes)
        self._ordered = [i for i, axis in enumerate(space.axes) if axis.ordered and axis.size > 1]
        self._unordered = [i for i, axis in enumerate(space.axes) if not axis.ordered and axis.size > 1]

    def parametrization(self, seed: int) -> Any:
        """A fresh `ng.p.Dict` whose random state starts at ``seed``."""
        import nevergrad as ng
        import numpy as np

        axes = self.space.axes
        members: dict[str, Any] = {f"c{i}": ng.p.Choice(list(range(axes[i].size))) for i in self._unordered}
        if self._ordered:
            top = np.array([axes[i].size - 1 for i in self._ordered], float)
            members["ordered"] = ng.p.Array(init=top / 2, lower=np.full(top.shape, -0.499), upper=top + 0.499).set_integer_casting()
        parametrization = ng.p.Dict(**members)
        parametrization.random_state = np.random.RandomState(seed)
        return parametrization

    def vector(self, value: Mapping[str, Any]) -> list[int]:
        """Axis indices of a proposed Nevergrad value."""
        vector = [0] * self._size
        for place, index in enumerate(self._ordered):
            vector[index] = int(value["ordered"][place])
        for index in self._unordered:
            vector[index] = int(value[f"c{index}"])
        return vector

    def decode(self, value: Mapping[str, Any]) -> Assignment:
        """Assignment of a proposed Nevergrad value."""
        return self.space.decode(self.vector(value))

    def encode(self, assignment: Mapping[str, Value]) -> dict[str, Any]:
        """Nevergrad value of an assignment (for suggestions)."""
        return self.encode_vector(self.space.encode(assignment))

    def encode_vector(self, vector: Sequence[int]) -> dict[str, Any]:
        """Nevergrad value of axis indices."""
        import numpy as np

        value: dict[str, Any] = {f"c{i}": vector[i] for i in self._unordered}
        if self._ordered:
            value["ordered"] = np.array([vector[i] for i in self._ordered], float)
        return value


def optimizer_names() -> list[str]:
    """Names that a study may give as its optimizer."""
    import nevergrad as ng

    return sorted(ng.optimizers.registry)
