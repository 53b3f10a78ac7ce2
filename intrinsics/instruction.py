"""An instruction: a contraction with a name, its timing, what it keeps inside, and where its semantics come from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .contraction import Contraction
from .errors import ParameterError

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Where an instruction sits in an instruction set.

    Parameters
    ----------
    isa : str
        Instruction set and extension, such as ``"x86 AVX512_VNNI"``.
    mnemonic : str
        Assembler mnemonic, such as ``"vpdpbusd"``.
    opcode, funct3, funct7 : int or None
        RISC-V R-type fields, where the instruction has such an encoding.
    """

    isa: str
    mnemonic: str
    opcode: int | None = None
    funct3: int | None = None
    funct7: int | None = None

    def __post_init__(self) -> None:
        for name, width in (("opcode", 7), ("funct3", 3), ("funct7", 7)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or not 0 <= value < 1 << width):
                raise ParameterError(f"{name} must be from 0 to {(1 << width) - 1}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One tensor instruction, real or proposed.

    Parameters
    ----------
    name : str
        Lower-case identifier; it reaches C symbols and TVM's table of intrinsics.
    contraction : Contraction
    latency : int, >= 1
        Cycles from the first operand beat accepted to its result valid.
    initiation_interval : int, >= 1
        Cycles between two executions that do not depend on each other.
    resident : "acc", "b" or None
        What may stay inside between executions: the accumulators, or the stationary operand.
    encoding : Encoding or None
    source : str
        Where the semantics and the timing are written down.
    """

    name: str
    contraction: Contraction
    latency: int = 1
    initiation_interval: int = 1
    resident: str | None = None
    encoding: Encoding | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _IDENTIFIER.fullmatch(self.name):
            raise ParameterError(f"instruction name must be a lower-case identifier ([a-z][a-z0-9_]*), not {self.name!r}")
        for name in ("latency", "initiation_interval"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"{name} must be an integer of at least 1, not {value!r}; nearest legal value: 1")
        if self.resident not in (None, "acc", "b"):
            raise ParameterError(f"resident must be 'acc', 'b' or absent, not {self.resident!r}")

    @property
    def macs_per_cycle(self) -> float:
        """Peak throughput."""
        return self.contraction.macs / self.initiation_interval
