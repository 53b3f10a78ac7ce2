"""Verilog of a design point, with flat and stable ports."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..intrinsics import Machine
from .collector import collector_paused
from .design_point import DesignPoint
from .keywords import check_identifier
from .yosys import VerilogProcess


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of the module.

    Parameters
    ----------
    name : str
    width : int
        Bits.
    direction : "in" or "out"
    """

    name: str
    width: int
    direction: str


@dataclass(frozen=True, kw_only=True)
class RtlDesign:
    """Verilog of one design point.

    Parameters
    ----------
    verilog : str
        Source of one module.
    top : str
        Its name.
    ports : tuple of Port
        In the order of the module's port list.
    point : DesignPoint
    """

    verilog: str
    top: str
    ports: tuple[Port, ...]
    point: DesignPoint

    @property
    def machine(self) -> Machine:
        """What software may know of the design."""
        return self.point.machine

    @property
    def design_hash(self) -> str:
        """Hash of the design point."""
        return self.point.hash


def module_name(point: DesignPoint, *, prefix: str | None = None) -> str:
    """Name of the Verilog module: that of the design point, after the prefix and an underscore.

    Raises
    ------
    ParameterError
        If the prefix is no identifier, or a keyword.
    """
    return point.name if prefix is None else f"{check_identifier('prefix', prefix).rstrip('_')}_{point.name}"


def ports_of(point: DesignPoint) -> tuple[Port, ...]:
    """Ports of the module, in order; known without elaborating anything."""
    p = point.parameters
    ports = [Port(name="clk", width=1, direction="in"), Port(name="rst", width=1, direction="in")]
    for stream, dtype in (("i_a", p.a), ("i_b", p.b), ("o_c", p.acc)):
        forward, backward = ("out", "in") if stream == "o_c" else ("in", "out")
        ports.append(Port(name=f"{stream}_data", width=dtype.width * p.lanes_of(stream[-1]), direction=forward))
        if stream != "i_b":
            ports.append(Port(name=f"{stream}_last", width=1, direction=forward))
        ports.append(Port(name=f"{stream}_valid", width=1, direction=forward))
        ports.append(Port(name=f"{stream}_ready", width=1, direction=backward))
    return tuple(ports)


def emit_rtl(point: DesignPoint, *, prefix: str | None = None) -> RtlDesign:
    """Elaborate a design point and print it as Verilog.

    Parameters
    ----------
    point : DesignPoint
    prefix : str or None
        Goes before the module's name.

    Raises
    ------
    ParameterError
        If the prefix is no identifier, or a keyword.
    ToolNotFoundError, ToolFailedError
        If Yosys is missing or fails.
    """
    top, ports = module_name(point, prefix=prefix), ports_of(point)
    with VerilogProcess() as yosys:  # loads while the block is elaborated
        from .flatten import to_rtlil

        with collector_paused():
            yosys.give(to_rtlil(point.component(), top=top, ports=ports))
        verilog = yosys.verilog()
    return RtlDesign(verilog=banner(point, top) + verilog, top=top, ports=ports, point=point)


LINT_OFF = ("WIDTH", "PROCASSINIT", "UNUSEDSIGNAL", "DECLFILENAME")
"""Verilator's remarks on the style of machine-made netlists: Yosys leaves extension to the language, and sets initial values; and on files
of several modules."""


def banner(point: DesignPoint, top: str) -> str:
    """Comment lines that say which design a generated Verilog file belongs to."""
    lines = (f"design {top}", f"hash {point.hash}", f"parameters {json.dumps(point.to_dict(), sort_keys=True)}")
    pragmas = "".join(f"/* verilator lint_off {rule} */\n" for rule in LINT_OFF)
    return "".join(f"// celosia {line}\n" for line in lines) + pragmas
