"""The postprocessor that MetaSchedule lacks: a design without its intrinsic is no design."""

from __future__ import annotations

from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from .nest import find


@derived_object
class RequireIntrinsic(PyPostproc):  # type: ignore[misc]
    """Rejects a schedule whose tile is not tensorized, or whose nest holds anything but the tile call.

    RewriteTensorize only warns when TVM refuses a tile, and keeps the plain loops; they would be measured as if the
    hardware had run.
    """

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Nothing is needed of the context."""

    def apply(self, sch: Any) -> bool:
        """Whether the schedule is kept."""
        return find(sch.mod) is not None

    def clone(self) -> Any:
        """Another one; it has no state."""
        return RequireIntrinsic()
