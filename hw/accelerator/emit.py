"""Verilog of an accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...intrinsics.accelerator.machine import AcceleratorMachine
from ..design_point import DesignPoint
from ..flatten import collector_paused
from ..verilog import Port, banner, module_name
from ..yosys import Yosys
from .machine import machine_of

_CONTENTS = re.compile(r"^  cell \$meminit_v2 .*?^  end\n", re.MULTILINE | re.DOTALL)
"""Initial contents of memories. Without them they start with arbitrary ones: nothing reads a word that was not written, but for
padding that no store keeps."""


@dataclass(frozen=True, kw_only=True)
class AcceleratorRtl:
    """Verilog of one accelerator.

    Parameters
    ----------
    verilog, top : str
    ports : tuple of Port
    point : DesignPoint
    """

    verilog: str
    top: str
    ports: tuple[Port, ...]
    point: DesignPoint

    @property
    def machine(self) -> AcceleratorMachine:
        """What software may know of the design."""
        return machine_of(self.point)


def emit_accelerator(point: DesignPoint, *, prefix: str | None = None) -> AcceleratorRtl:
    """Elaborate an accelerator and print it as Verilog.

    Raises
    ------
    ParameterError
        If the prefix is no identifier, or a keyword.
    ToolNotFoundError, ToolFailedError
        If Yosys is missing or fails.
    """
    top = module_name(point, prefix=prefix)
    with Yosys() as yosys:  # loads while the accelerator is elaborated
        component = point.component()
        verilog = yosys.verilog(rtlil_of(component, name=top))
    return AcceleratorRtl(verilog=banner(point, top) + verilog[verilog.index("module ") :], top=top, ports=ports_of(component), point=point)


def rtlil_of(component: Any, *, name: str) -> str:
    """RTLIL text of a part of an accelerator or of all of it, memories without contents."""
    from ..shared import rtlil_with_parts

    with collector_paused():
        return _CONTENTS.sub("", rtlil_with_parts(component, name=name))


def ports_of(component: object) -> tuple[Port, ...]:
    """Clock, reset, and the members of the component's signature."""
    from amaranth.hdl import Shape
    from amaranth.lib.wiring import Flow

    ports = [Port(name="clk", width=1, direction="in"), Port(name="rst", width=1, direction="in")]
    for name, member in component.signature.members.items():  # type: ignore[attr-defined]
        ports.append(Port(name=name, width=Shape.cast(member.shape).width, direction="in" if member.flow == Flow.In else "out"))
    return tuple(ports)
