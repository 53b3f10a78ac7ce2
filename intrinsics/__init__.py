"""The contract between hardware and compiler: what an instruction computes, on which types, at which cost."""

from .contraction import Contraction
from .dtypes import DType
from .errors import (
    CelosiaError,
    FormatError,
    HashMismatchError,
    MappingError,
    MismatchError,
    ParameterError,
    ScheduleError,
    SimulationError,
    ToolFailedError,
    ToolNotFoundError,
)
from .instruction import Encoding, Instruction
from .machine import Machine, StreamLayout, StreamTiming
from .measurement import Measurement
from .numerics import Overflow, Rounding
from .timing import Loop, LoopNest, stream_cycles

__all__ = [
    "CelosiaError",
    "Contraction",
    "DType",
    "Encoding",
    "FormatError",
    "HashMismatchError",
    "Instruction",
    "Loop",
    "LoopNest",
    "Machine",
    "MappingError",
    "Measurement",
    "MismatchError",
    "Overflow",
    "ParameterError",
    "Rounding",
    "ScheduleError",
    "SimulationError",
    "StreamLayout",
    "StreamTiming",
    "ToolFailedError",
    "ToolNotFoundError",
    "stream_cycles",
]
