"""The contract of the complete accelerator: its machine, its commands, programs, exact timing, and what a program computes."""

from .command import Command, Op, Register, Target
from .machine import AcceleratorMachine, MemoryTiming
from .program import Buffer, Program
from .timing import Events, Limits, predict, predict_interval

__all__ = [
    "AcceleratorMachine",
    "Buffer",
    "Command",
    "Events",
    "Limits",
    "MemoryTiming",
    "Op",
    "Program",
    "Register",
    "Target",
    "predict",
    "predict_interval",
]
