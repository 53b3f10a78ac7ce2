"""What every block shares: stream ports made from the parameter record, and delay lines."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..intrinsics import DType, StreamTiming
from .parameters import Parameters


def shape_of(dtype: DType) -> Shape:
    """Amaranth shape of an element type."""
    return signed(dtype.width) if dtype.signed else unsigned(dtype.width)


class StreamBlock(wiring.Component):  # type: ignore[misc]
    """A block that takes operand beats and gives result beats.

    Parameters
    ----------
    parameters : Parameters
        Record of the block's family.

    Members
    -------
    i_a : In(stream), payload ``{data: ArrayLayout(a, lanes), last: 1}``
        ``last`` ends a pass.
    i_b : In(stream), payload ``{data: ArrayLayout(b, lanes)}``
    o_c : Out(stream), payload ``{data: ArrayLayout(acc, lanes), last: 1}``
        While ``o_c`` is valid and not ready the whole block stands still.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        super().__init__(
            {
                "i_a": In(self._stream("a", parameters.a, last=True)),
                "i_b": In(self._stream("b", parameters.b, last=False)),
                "o_c": Out(self._stream("c", parameters.acc, last=True)),
            }
        )

    def _stream(self, operand: str, dtype: DType, *, last: bool) -> stream.Signature:
        payload = {"data": data.ArrayLayout(shape_of(dtype), self._parameters.lanes_of(operand))}
        return stream.Signature(data.StructLayout({**payload, "last": unsigned(1)} if last else payload))

    @property
    def timing(self) -> StreamTiming:
        """Timing constants that this block keeps."""
        return self._parameters.timing

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a pass accepted to the first result that it completes being valid."""
        return self.timing.latency

    @property
    def initiation_interval(self) -> int:
        """Least distance of tiles that share nothing."""
        return self._parameters.instruction.initiation_interval

    def enable(self, m: Module) -> Signal:
        """The global enable: low while a result waits to be accepted."""
        en = Signal(name="en")
        m.d.comb += en.eq(~self.o_c.valid | self.o_c.ready)
        return en

    def fire_jointly(self, m: Module, en: Value, *, hold: Value | None = None) -> Signal:
        """Accept a beat of ``i_a`` and one of ``i_b`` in the same cycle, or neither; ``hold`` keeps both back."""
        fire, go = Signal(name="fire"), Signal(name="go")
        m.d.comb += [
            go.eq(en if hold is None else en & ~hold),
            self.i_a.ready.eq(go & self.i_b.valid),
            self.i_b.ready.eq(go & self.i_a.valid),
            fire.eq(go & self.i_a.valid & self.i_b.valid),
        ]
        return fire

    def hold_last(self, m: Module, en: Value) -> Value | None:
        """High while a beat with ``last`` must wait, so that last beats stay ``min_interval`` enabled cycles apart."""
        interval = self.timing.min_interval
        if interval == 1:
            return None
        wait, last = Signal(range(interval), name="wait_last"), self.i_a.payload.last
        with m.If(self.i_a.valid & self.i_a.ready & last):
            m.d.sync += wait.eq(interval - 1)
        with m.Elif(en & (wait != 0)):
            m.d.sync += wait.eq((wait - 1)[: len(wait)])
        return (wait != 0) & last

    def first_of_pass(self, m: Module, fire: Value) -> Signal:
        """High with the first beat of a pass: after reset and after each ``last``."""
        first = Signal(name="first", init=1)
        with m.If(fire):
            m.d.sync += first.eq(self.i_a.payload.last)
        return first


def delay_line(m: Module, en: Value, value: Value, cycles: int, name: str, *, keep_reset: bool = False) -> list[Value]:
    """``value`` delayed by 0, 1, …, ``cycles`` enabled cycles, in one shift register ``<name>_delayed``, latest value lowest.

    Data needs no reset; flags set ``keep_reset``.
    """
    width, signed = len(value), value.shape().signed
    line = _shift_register(m, en, value, cycles, name, keep_reset=keep_reset)
    stages = [line.word_select(step, width) for step in range(cycles)]
    return [value, *(stage.as_signed() if signed else stage for stage in stages)]


def flag_line(m: Module, en: Value, flag: Value, cycles: int, name: str) -> Value:
    """A bit delayed by 1, 2, …, ``cycles`` enabled cycles, as a vector with a reset."""
    return _shift_register(m, en, flag, cycles, name, keep_reset=True)


def _shift_register(m: Module, en: Value, value: Value, cycles: int, name: str, *, keep_reset: bool) -> Value:
    width = len(value)
    line = Signal(width * cycles, name=f"{name}_delayed", reset_less=not keep_reset)
    if cycles:
        with m.If(en):
            m.d.sync += line.eq(Cat(value, line[: width * (cycles - 1)]))
    return line
