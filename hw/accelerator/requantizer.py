"""One column of the store path: sum + bias, times a multiplier, shifted, plus zero point, clamped."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import STORE_PATH
from ...intrinsics.numerics import Rounding
from ..shared import SharedPart


class Requantizer(SharedPart):
    """Three pipeline stages; a plain sum passes through them unchanged.

    Parameters
    ----------
    acc_width : int
        Bits of a sum.
    residual : bool
        Also add an 8-bit number from memory.
    rounding : Rounding

    Members
    -------
    value : In(signed(acc_width))
    bias_value, factor : In(signed(32))
    added : In(8), with ``residual``
    steps : In(3)
        The stages that take over what comes before them.
    settings : In
        Fields of the command: narrow, bias, shift, zero, low, high, and with ``residual`` those of the residual.
    result : Out(signed(32))
        In its lowest byte the 8-bit number if ``narrow``.
    """

    def __init__(self, *, acc_width: int, residual: bool, rounding: Rounding) -> None:
        self.acc_width, self.residual_used, self.rounding = acc_width, residual, rounding
        fields = {name: STORE_PATH[name] for name in self.names(residual=residual)}
        shapes = {name: signed(field.width) if field.signed else unsigned(field.width) for name, field in fields.items()}
        super().__init__(
            {
                "value": In(signed(acc_width)),
                "bias_value": In(signed(32)),
                "factor": In(signed(32)),
                **({"added": In(8)} if residual else {}),
                "steps": In(3),
                "settings": In(data.StructLayout(shapes)),
                "result": Out(signed(32)),
            }
        )

    @staticmethod
    def names(*, residual: bool) -> tuple[str, ...]:
        """Fields of ``settings``, lowest first."""
        plain = ("narrow", "bias", "shift", "zero", "low", "high")
        return (*plain, "residual", "residual_signed", "residual_zero", "residual_multiplier") if residual else plain

    @property
    def key(self) -> tuple[object, ...]:
        return self.acc_width, self.residual_used, self.rounding

    def body(self) -> Module:
        m = Module()
        product, scaled = (Signal(signed(64), name=name, reset_less=True) for name in ("product", "scaled"))
        final = Signal(signed(32), reset_less=True)
        use = self.settings
        biased = (self.value + Mux(use.bias, self.bias_value, 0))[:32].as_signed()
        shifted = (scaled + use.zero)[:64].as_signed()
        clamped = Mux(shifted < use.low, use.low, Mux(shifted > use.high, use.high, shifted))
        total = product + self._residual(m) if self.residual_used else product
        with m.If(self.steps[0]):
            m.d.sync += product.eq(biased * Mux(use.narrow, self.factor, 1))
        with m.If(self.steps[1]):
            m.d.sync += scaled.eq(_rounded(total[:64].as_signed(), Mux(use.narrow, use.shift, 0), self.rounding))
        with m.If(self.steps[2]):
            m.d.sync += final.eq(Mux(use.narrow, clamped, scaled))
        m.d.comb += self.result.eq(final)
        return m

    def _residual(self, m: Module) -> Value:
        """The scaled residual, beside the product."""
        use = self.settings
        value = Mux(use.residual_signed, self.added.as_signed(), self.added)
        scaled = Signal(signed(44), name="scaled_residual", reset_less=True)
        with m.If(self.steps[0]):
            m.d.sync += scaled.eq(Mux(use.residual, (value - use.residual_zero) * use.residual_multiplier, 0))
        return scaled


def _rounded(value: Value, shift: Value, rounding: Rounding) -> Value:
    """`numerics.shift_right` of a 64-bit value of at most 2**62 + 2**44: with half a unit of a shift of at most 62 it stays in 64 bits."""
    half = ((1 << shift) >> 1)[:63]
    if rounding is Rounding.HALF_UP:
        value = value + half
    elif rounding is Rounding.HALF_AWAY_FROM_ZERO:
        value = value + half - (value[-1] & (shift != 0))
    elif rounding is Rounding.HALF_EVEN:
        odd = (value >> shift)[0] & (shift != 0)
        value = value + Mux(shift == 0, 0, half - 1 + odd)
    return (value[:64].as_signed() >> shift).as_signed()
