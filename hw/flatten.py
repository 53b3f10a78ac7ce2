"""A block as one RTLIL module with flat ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amaranth.hdl import ClockDomain, Elaboratable, Fragment, Signal

from .block import StreamBlock
from .collector import collector_paused
from .shared import rtlil_with_parts

if TYPE_CHECKING:
    from .verilog import Port


_PORT = re.compile(r"\b(input|output) \d+ +\\(\w+)$", re.MULTILINE)


class _FlatPorts(Elaboratable):  # type: ignore[misc]
    """The block's own module plus plain signals for its ports; not a wrapper around it, so names stay flat."""

    def __init__(self, block: StreamBlock, signals: dict[str, Signal]) -> None:
        self.block, self.signals = block, signals

    def elaborate(self, platform: Any) -> Fragment:
        fragment = Fragment.get(self.block, platform)
        domain = ClockDomain("sync")
        domain.clk, domain.rst = self.signals["clk"], self.signals["rst"]
        fragment.add_domains(domain)
        for name, signal in self.signals.items():
            if name in ("clk", "rst"):
                continue
            inner = self._inner(name)
            source_outside = name.startswith("i_") != name.endswith("_ready")
            fragment.add_statements("comb", inner.eq(signal) if source_outside else signal.eq(inner))
        return fragment

    def _inner(self, name: str) -> Any:
        stream, field = name.rsplit("_", 1)
        port = getattr(self.block, stream)
        if field in ("valid", "ready"):
            return getattr(port, field)
        return port.payload.data.as_value() if field == "data" else port.payload.last


def to_rtlil(block: StreamBlock, *, top: str, ports: Sequence[Port]) -> str:
    """RTLIL of ``block`` as module ``top`` with exactly these ports."""
    from amaranth.hdl._ir import PortDirection

    direction = {"in": PortDirection.Input, "out": PortDirection.Output}
    signals = {port.name: Signal(port.width, name=port.name) for port in ports}
    named = {port.name: (signals[port.name], direction[port.direction]) for port in ports}
    with collector_paused():
        text = rtlil_with_parts(_FlatPorts(block, signals), name=top, ports=named)
    return _number_ports(text, [port.name for port in ports])


def _number_ports(text: str, order: list[str]) -> str:
    """Amaranth lists inputs before outputs; Yosys prints ports by their numbers. Only the first module is the block."""
    position = {name: index for index, name in enumerate(order, start=1)}
    block, end, parts = text.partition("\nend\n")
    return _PORT.sub(lambda match: f"{match[1]} {position[match[2]]} \\{match[2]}", block) + end + parts
