"""AXI4 write channels behind the store path."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import ADDRESS_BITS, address_constants, burst_length, byte_address, write_ports
from .walker import MAX_BURST

_COUNT_BITS = 24


class AxiWriter(wiring.Component):  # type: ignore[misc]
    """One burst per output row (more where a row crosses 4 KiB), and a count of the bursts that memory has not confirmed.

    Address and first beat of a burst enter their registers in the same cycle; beats behind the last byte of a row take their
    cycle but go nowhere. A memory that is always ready never holds the store path.

    Parameters
    ----------
    port_bytes : int

    Members
    -------
    base : In(64)
        Byte address of the memory image; the low 12 bits do not count.
    valid, ready, address, data, mask, length : the beat of the store path, its address in beats, and how many beats of the row carry bytes
    pending : Out(1)
        A burst is under way.
    error : Out(1)
        A burst was answered with an error.
    m_axi_aw*, m_axi_w*, m_axi_b* : AXI4
    """

    def __init__(self, *, port_bytes: int) -> None:
        self.port_bytes = port_bytes
        super().__init__(
            {
                "base": In(ADDRESS_BITS),
                "valid": In(1),
                "ready": Out(1),
                "address": In(32),
                "data": In(8 * port_bytes),
                "mask": In(port_bytes),
                "length": In(9),
                "pending": Out(1),
                "error": Out(1),
                **write_ports(port_bytes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left = Signal(range(MAX_BURST))  # beats of the burst that have yet to come
        length, count = Signal(range(MAX_BURST + 1), name="length"), Signal(_COUNT_BITS, name="count")
        begins, takes = Signal(name="begins"), Signal(name="takes")
        room = (~self.m_axi_awvalid | self.m_axi_awready) & ~count.all()
        m.d.comb += [
            length.eq(burst_length(self.address, self.length, self.port_bytes)),
            takes.eq(self.valid & (self.length != 0) & (~self.m_axi_wvalid | self.m_axi_wready) & ((left != 0) | room)),
            begins.eq(takes & (left == 0)),
            self.ready.eq(takes | (self.length == 0)),
            self.m_axi_bready.eq(1),
            self.pending.eq(count != 0),
            self.error.eq(self.m_axi_bvalid & (self.m_axi_bresp != 0)),
            *(getattr(self, f"m_axi_aw{name}").eq(value) for name, value in address_constants(self.port_bytes).items()),
        ]
        m.d.sync += count.eq(count + begins - self.m_axi_bvalid)
        with m.If(self.m_axi_awready):
            m.d.sync += self.m_axi_awvalid.eq(0)
        with m.If(self.m_axi_wready):
            m.d.sync += self.m_axi_wvalid.eq(0)
        with m.If(takes):
            m.d.sync += [self.m_axi_wvalid.eq(1), self.m_axi_wdata.eq(self.data), self.m_axi_wstrb.eq(self.mask)]
            m.d.sync += [left.eq(left - 1), self.m_axi_wlast.eq(left == 1)]
        with m.If(begins):
            m.d.sync += [
                left.eq(length - 1),
                self.m_axi_wlast.eq(length == 1),
                self.m_axi_awvalid.eq(1),
                self.m_axi_awaddr.eq(byte_address(self.base, self.address, self.port_bytes)),
                self.m_axi_awlen.eq(length - 1),
            ]
        return m
