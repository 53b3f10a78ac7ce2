"""Amaranth blocks that implement the instructions of the contract."""

from .design_point import HW_VERSION, DesignPoint
from .parameters import FAMILIES, Dataflow, DotProductParameters, Option, OuterProductParameters, Parameters, SystolicParameters, options

__all__ = [
    "FAMILIES",
    "HW_VERSION",
    "Dataflow",
    "DesignPoint",
    "DotProductParameters",
    "Option",
    "OuterProductParameters",
    "Parameters",
    "SystolicParameters",
    "options",
]
