"""AXI4 and AXI4-Lite as port lists: names, widths, directions, and what a manager drives with constants."""

from __future__ import annotations

from amaranth.hdl import Value
from amaranth.lib.wiring import In, Member, Out

from .walker import MAX_BURST, least

PAGE_BYTES = 4096
"""No burst crosses a multiple of this address."""

ADDRESS_BITS = 64
ID_BITS = 1
_BURST_INCREMENTING = 1
_CACHE_NORMAL = 0b0011
"""Normal memory, not cached, may be buffered."""

LITE_ADDRESS_BITS = 8


def read_ports(port_bytes: int) -> dict[str, Member]:
    """Read channels of a manager."""
    return {
        **_address_ports("ar"),
        "m_axi_rid": In(ID_BITS),
        "m_axi_rdata": In(8 * port_bytes),
        "m_axi_rresp": In(2),
        "m_axi_rlast": In(1),
        "m_axi_rvalid": In(1),
        "m_axi_rready": Out(1),
    }


def write_ports(port_bytes: int) -> dict[str, Member]:
    """Write channels of a manager."""
    return {
        **_address_ports("aw"),
        "m_axi_wdata": Out(8 * port_bytes),
        "m_axi_wstrb": Out(port_bytes),
        "m_axi_wlast": Out(1),
        "m_axi_wvalid": Out(1),
        "m_axi_wready": In(1),
        "m_axi_bid": In(ID_BITS),
        "m_axi_bresp": In(2),
        "m_axi_bvalid": In(1),
        "m_axi_bready": Out(1),
    }


_ADDRESS = {"id": ID_BITS, "addr": ADDRESS_BITS, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4}


def _address_ports(channel: str) -> dict[str, Member]:
    ports: dict[str, Member] = {f"m_axi_{channel}{name}": Out(width) for name, width in _ADDRESS.items()}
    return {**ports, f"m_axi_{channel}valid": Out(1), f"m_axi_{channel}ready": In(1)}


def address_constants(port_bytes: int) -> dict[str, int]:
    """What an address channel always says: whole beats, incrementing addresses, normal memory."""
    return {"size": port_bytes.bit_length() - 1, "burst": _BURST_INCREMENTING, "cache": _CACHE_NORMAL}


def lite_ports() -> dict[str, Member]:
    """All channels of an AXI4-Lite subordinate."""
    return {
        "s_axi_awaddr": In(LITE_ADDRESS_BITS),
        "s_axi_awprot": In(3),
        "s_axi_awvalid": In(1),
        "s_axi_awready": Out(1),
        "s_axi_wdata": In(32),
        "s_axi_wstrb": In(4),
        "s_axi_wvalid": In(1),
        "s_axi_wready": Out(1),
        "s_axi_bresp": Out(2),
        "s_axi_bvalid": Out(1),
        "s_axi_bready": In(1),
        "s_axi_araddr": In(LITE_ADDRESS_BITS),
        "s_axi_arprot": In(3),
        "s_axi_arvalid": In(1),
        "s_axi_arready": Out(1),
        "s_axi_rdata": Out(32),
        "s_axi_rresp": Out(2),
        "s_axi_rvalid": Out(1),
        "s_axi_rready": In(1),
    }


def burst_length(address: Value, beats: Value, port_bytes: int) -> Value:
    """Beats of the burst that begins at ``address`` (in beats) when ``beats`` are wanted: up to the end of the page, at most 256."""
    page = PAGE_BYTES // port_bytes
    to_end = page - address[: page.bit_length() - 1]
    return least(least(beats, to_end), MAX_BURST)


def byte_address(base: Value, address: Value, port_bytes: int) -> Value:
    """Byte address of beat ``address`` of the memory image at ``base``, whose low 12 bits do not count."""
    shift = port_bytes.bit_length() - 1
    page = PAGE_BYTES.bit_length() - 1
    pages = (base[page:] + address[page - shift :])[: ADDRESS_BITS - page]
    return (pages << page) | (address[: page - shift] << shift)
