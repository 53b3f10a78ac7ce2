"""Amaranth blocks that implement the instructions of the contract."""

from .design_point import HW_VERSION, DesignPoint
from .options import Option, options
from .parameters import FAMILIES, Dataflow, DotProductParameters, OuterProductParameters, Parameters, SystolicParameters

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
