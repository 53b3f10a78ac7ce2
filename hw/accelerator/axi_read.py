"""AXI4 read channels around the loader's requests."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import ADDRESS_BITS, address_constants, burst_length, byte_address, read_ports
from .walker import MAX_BURST


class AxiReader(wiring.Component):  # type: ignore[misc]
    """One burst per run of beats that lie one behind the other; data go on in the cycle in which they come.

    The loader offers beat after beat. The first beat of a burst needs the address register, the others need nothing: the
    loader has set aside a place for the data of every beat of ``length``. So data of a memory that is always ready come one
    cycle later than they would without this block, and never in another rhythm.

    Parameters
    ----------
    port_bytes : int

    Members
    -------
    base : In(64)
        Byte address of the memory image; the low 12 bits do not count.
    valid, ready, address, length : the loader's beat, its address in beats, and how many beats from this one on may be one burst
    response_valid, response_data : Out
    error : Out(1)
        A beat came with an error response.
    m_axi_ar*, m_axi_r* : AXI4
    """

    def __init__(self, *, port_bytes: int) -> None:
        self.port_bytes = port_bytes
        super().__init__(
            {
                "base": In(ADDRESS_BITS),
                "valid": In(1),
                "ready": Out(1),
                "address": In(32),
                "length": In(9),
                "response_valid": Out(1),
                "response_data": Out(8 * port_bytes),
                "error": Out(1),
                **read_ports(port_bytes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left = Signal(range(MAX_BURST))  # beats of the burst that the loader has yet to pass
        length = Signal(range(MAX_BURST + 1))
        free = ~self.m_axi_arvalid | self.m_axi_arready
        m.d.comb += [
            length.eq(burst_length(self.address, self.length, self.port_bytes)),
            self.ready.eq((left != 0) | free),
            self.m_axi_rready.eq(1),
            self.response_valid.eq(self.m_axi_rvalid),
            self.response_data.eq(self.m_axi_rdata),
            self.error.eq(self.m_axi_rvalid & (self.m_axi_rresp != 0)),
            *(getattr(self, f"m_axi_ar{name}").eq(value) for name, value in address_constants(self.port_bytes).items()),
        ]
        with m.If(self.m_axi_arready):
            m.d.sync += self.m_axi_arvalid.eq(0)
        with m.If(self.valid & (left != 0)):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.valid & free):
            m.d.sync += [
                left.eq(length - 1),
                self.m_axi_arvalid.eq(1),
                self.m_axi_araddr.eq(byte_address(self.base, self.address, self.port_bytes)),
                self.m_axi_arlen.eq(length - 1),
            ]
        return m
