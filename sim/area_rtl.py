"""RTL of the elements of `area_elements`: each function adds one to a module and returns its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Module, Mux, Signal, Value

from ..hw.accumulator import settle
from ..hw.block import shape_of
from ..intrinsics import DType, Overflow
from .area_elements import PARALLEL_BITS, Element


class _Ports:
    """Makes the inputs of an element."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []

    def flag(self, name: str) -> Any:
        self.inputs.append(Signal(name=name))
        return self.inputs[-1]

    def operand(self, dtype: DType, name: str) -> Any:
        self.inputs.append(Signal(shape_of(dtype), name=name))
        return self.inputs[-1]


def _dtype(short: int | str) -> DType:
    text = str(short)
    return DType(int(text[1:]), text[0] == "s")


def _register(m: Module, name: str, dtype: DType, enable: Value, value: Value) -> Any:
    register = Signal(shape_of(dtype), name=name, reset_less=True)
    with m.If(enable):
        m.d.sync += register.eq(value)
    return register


def _delay(m: Module, p: _Ports) -> list[Value]:
    """A bit of a delay line: register with enable, no reset."""
    enable = p.flag("en")
    return [_register(m, f"q_{i}", DType(1, False), enable, p.flag(f"d_{i}")) for i in range(PARALLEL_BITS)]


def _flag(m: Module, p: _Ports) -> list[Value]:
    """A flag of a delay line: register with enable and reset."""
    enable, out = p.flag("en"), []
    for i in range(PARALLEL_BITS):
        register = Signal(name=f"q_{i}")
        with m.If(enable):
            m.d.sync += register.eq(p.flag(f"d_{i}"))
        out.append(register)
    return out


def _gated(m: Module, p: _Ports) -> list[Value]:
    """A bit of an operand that a bubble clears, in front of its register."""
    enable, fire = p.flag("en"), p.flag("fire")
    return [_register(m, f"q_{i}", DType(1, False), enable, Mux(fire, p.flag(f"d_{i}"), 0)) for i in range(PARALLEL_BITS)]


def _select(m: Module, p: _Ports) -> list[Value]:
    """A bit of an output chain: register with enable that takes one of two values."""
    enable, pick = p.flag("en"), p.flag("pick")
    bits = range(PARALLEL_BITS)
    return [_register(m, f"q_{i}", DType(1, False), enable, Mux(pick, p.flag(f"x_{i}"), p.flag(f"y_{i}"))) for i in bits]


def _enable(m: Module, p: _Ports) -> list[Value]:
    """What one register pays for an enable of its own: the second condition."""
    enable = p.flag("en")
    return [_register(m, f"q_{i}", DType(1, False), enable & p.flag(f"load_{i}"), p.flag(f"d_{i}")) for i in range(PARALLEL_BITS)]


def _mac(m: Module, p: _Ports, a: str, b: str, acc: str, overflow: str) -> list[Value]:
    """Accumulator: acc = (first ? 0 : acc) + a * b."""
    enable, first = p.flag("en"), p.flag("first")
    register = Signal(shape_of(_dtype(acc)), name="acc", reset_less=True)
    total = Mux(first, 0, register) + p.operand(_dtype(a), "a") * p.operand(_dtype(b), "b")
    with m.If(enable):
        m.d.sync += register.eq(settle(m, total, _dtype(acc), Overflow(overflow), name="exact"))
    return [register]


def _product(m: Module, p: _Ports, a: str, b: str, acc: str, overflow: str) -> list[Value]:
    """Accumulator: acc = a * b."""
    total = p.operand(_dtype(a), "a") * p.operand(_dtype(b), "b")
    return [_register(m, "acc", _dtype(acc), p.flag("en"), settle(m, total, _dtype(acc), Overflow(overflow), name="exact"))]


def _partial(m: Module, p: _Ports, a: str, b: str, above: str, acc: str, overflow: str) -> list[Value]:
    """Accumulator: acc = above + a * b."""
    total = p.operand(_dtype(above), "above") + p.operand(_dtype(a), "a") * p.operand(_dtype(b), "b")
    return [_register(m, "acc", _dtype(acc), p.flag("en"), settle(m, total, _dtype(acc), Overflow(overflow), name="exact"))]


def _tree(values: list[Any]) -> Any:
    while len(values) > 1:
        values = [values[k] + values[k + 1] for k in range(0, len(values) - 1, 2)] + values[len(values) & ~1 :]
    return values[0]


def _sum(m: Module, p: _Ports, value: str, count: int) -> list[Value]:
    """The sum of ``count`` values, without a register."""
    total = _tree([p.operand(_dtype(value), f"v_{k}") for k in range(count)])
    out = Signal(total.shape(), name="total")
    m.d.comb += out.eq(total)
    return [out]


def _multiply(m: Module, p: _Ports, a: str, b: str) -> list[Value]:
    """A product, without a register."""
    total = p.operand(_dtype(a), "a") * p.operand(_dtype(b), "b")
    out = Signal(total.shape(), name="total")
    m.d.comb += out.eq(total)
    return [out]


def _finish(m: Module, p: _Ports, total: Any, acc: str, overflow: str, resident: int) -> list[Value]:
    enable, first = p.flag("en"), p.flag("first")
    register = Signal(shape_of(_dtype(acc)), name="acc", reset_less=True)
    exact = Mux(first, 0, register) + total if resident else total
    with m.If(enable):
        m.d.sync += register.eq(settle(m, exact, _dtype(acc), Overflow(overflow), name="exact"))
    return [register]


def _lane(m: Module, p: _Ports, a: str, b: str, depth: int, acc: str, overflow: str, resident: int) -> list[Value]:
    """A whole lane of a dot-product unit without pipeline registers."""
    products = [p.operand(_dtype(a), f"a_{k}") * p.operand(_dtype(b), f"b_{k}") for k in range(depth)]
    return _finish(m, p, _tree(products), acc, overflow, resident)


def _tail(m: Module, p: _Ports, value: str, count: int, acc: str, overflow: str, resident: int) -> list[Value]:
    """What follows the last pipeline register of a lane: the rest of the adder tree and the accumulator."""
    return _finish(m, p, _tree([p.operand(_dtype(value), f"v_{k}") for k in range(count)]), acc, overflow, resident)


KINDS: dict[str, Callable[..., list[Value]]] = {
    "delay": _delay,
    "flag": _flag,
    "gated": _gated,
    "select": _select,
    "enable": _enable,
    "mac": _mac,
    "product": _product,
    "partial": _partial,
    "multiply": _multiply,
    "sum": _sum,
    "lane": _lane,
    "tail": _tail,
}


def rtlil_of(element: Element) -> str:
    """RTLIL text of an element, top module ``top``."""
    m, ports = Module(), _Ports()
    outputs = KINDS[element.kind](m, ports, *element.arguments)
    exposed = [Signal(value.shape(), name=f"o_{index}") for index, value in enumerate(outputs)]
    m.d.comb += [port.eq(value) for port, value in zip(exposed, outputs, strict=True)]
    text: str = rtlil.convert(m, name="top", ports=[*ports.inputs, *exposed], emit_src=False)
    return text
