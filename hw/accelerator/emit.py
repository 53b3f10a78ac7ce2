"""Verilog of an accelerator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...intrinsics.accelerator.machine import AcceleratorMachine
from ..collector import collector_paused
from ..design_point import DesignPoint
from ..verilog import Port, banner, module_name
from ..yosys import VerilogProcess
from .machine import machine_of

if TYPE_CHECKING:
    from ..shared import SharedPart

_CONTENTS = re.compile(r"^  cell \$meminit_v2 .*?^  end\n", re.MULTILINE | re.DOTALL)
"""Initial contents of memories. Without them they start with arbitrary ones: nothing reads a word that was not written, but for
padding that no store keeps."""

_DATAPATH = (__name__, "datapath_rtlil")


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
    """Elaborate an accelerator and print it as Verilog, its two halves at the same time.

    Raises
    ------
    ParameterError
        If the prefix is no identifier, or a keyword.
    ToolNotFoundError, ToolFailedError
        If Yosys is missing or fails.
    """
    top = module_name(point, prefix=prefix)
    inner = f"{top}_datapath"
    with VerilogProcess((*_DATAPATH, (point.to_dict(), inner))) as other, VerilogProcess() as yosys:
        from .datapath import Datapath

        with collector_paused():  # until Yosys works, too
            component = point.component()
            yosys.give(rtlil_of(component, name=top, elsewhere={Datapath: inner}))
        modules = [yosys.verilog(), other.verilog()]
    return AcceleratorRtl(verilog=banner(point, top) + "\n".join(modules), top=top, ports=ports_of(component), point=point)


def rtlil_of(component: Any, *, name: str, elsewhere: Mapping[type[SharedPart], str] | None = None) -> str:
    """RTLIL text of a part of an accelerator or of all of it, memories without contents; ``elsewhere`` as in `rtlil_with_parts`."""
    from ..shared import rtlil_with_parts

    with collector_paused():
        return _CONTENTS.sub("", rtlil_with_parts(component, name=name, elsewhere=elsewhere))


def datapath_rtlil(point: Mapping[str, Any], name: str) -> str:
    """RTLIL text of the datapath of the design point of this dictionary, as module ``name``."""
    from ..shared import part_rtlil
    from .datapath import Datapath

    with collector_paused():
        return _CONTENTS.sub("", part_rtlil(Datapath(DesignPoint.from_dict(point).parameters), name=name))  # type: ignore[arg-type]


def ports_of(component: object) -> tuple[Port, ...]:
    """Clock, reset, and the members of the component's signature."""
    from amaranth.hdl import Shape
    from amaranth.lib.wiring import Flow

    ports = [Port(name="clk", width=1, direction="in"), Port(name="rst", width=1, direction="in")]
    for name, member in component.signature.members.items():  # type: ignore[attr-defined]
        ports.append(Port(name=name, width=Shape.cast(member.shape).width, direction="in" if member.flow == Flow.In else "out"))
    return tuple(ports)
