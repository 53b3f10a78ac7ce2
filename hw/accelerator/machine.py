"""The machine of an accelerator's design point. No HDL here."""

from __future__ import annotations

from ...intrinsics import ParameterError
from ...intrinsics.accelerator.machine import AcceleratorMachine
from ..design_point import DesignPoint
from .parameters import AcceleratorParameters


def machine_of(point: DesignPoint) -> AcceleratorMachine:
    """What software may know of a design point of family ``accelerator``."""
    if not isinstance(point.parameters, AcceleratorParameters):
        raise ParameterError(f"design point must be of family accelerator, not {point.family}")
    return point.parameters.accelerator_machine(point.hash, point.name)
