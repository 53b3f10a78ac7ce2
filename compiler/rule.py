"""The schedule rule: one sketch per route and loop order, as MetaSchedule traces with sampled splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

from ..intrinsics import Contraction
from .operators import Operator
from .routes import Route
from .sketch import build

Sketch = tuple[Route, str]


@derived_object
class TensorizeRule(PyScheduleRule):  # type: ignore[misc]
    """Replaces the operator's sum by one design per sketch; leaves every other block alone.

    Parameters
    ----------
    operator : Operator
    contraction : Contraction
    sketches : sequence of (Route, loop order)
    intrinsic : str
        Name in TVM's table.
    """

    def __init__(self, *, operator: Operator, contraction: Contraction, sketches: Sequence[Sketch], intrinsic: str) -> None:
        super().__init__()
        self.operator = operator
        self.contraction = contraction
        self.sketches = tuple(sketches)
        self.intrinsic = intrinsic

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Nothing is needed of the context."""

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """Designs of one block."""
        if sch.get(block).init is None:
            return [sch]
        designs = []
        for route, order in self.sketches:
            design = sch.copy()
            build(
                design,
                block=block,
                operator=self.operator,
                contraction=self.contraction,
                route=route,
                order=order,
                intrinsic=self.intrinsic,
            )
            designs.append(design)
        return designs

    def clone(self) -> Any:
        """A rule of the same sketches."""
        return TensorizeRule(operator=self.operator, contraction=self.contraction, sketches=self.sketches, intrinsic=self.intrinsic)
