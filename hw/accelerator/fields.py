"""Fields of command words as slices of Amaranth values."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Signal, Value, signed, unsigned

from ...intrinsics.accelerator.command import FIELDS, REGISTERS, Field, Op, Register


def view(word: Value, fields: Mapping[str, Field]) -> dict[str, Value]:
    """Every field of a command word by name."""
    values = {}
    for name, spec in fields.items():
        part = word[spec.offset : spec.offset + spec.width]
        values[name] = part.as_signed() if spec.signed else part
    return values


def command_view(word: Value, op: Op) -> dict[str, Value]:
    """Fields of a command of one kind."""
    return view(word, FIELDS[op])


def register_view(word: Value, register: Register) -> dict[str, Value]:
    """Fields of the register that a SET command writes."""
    return view(word, REGISTERS[register])


def registers(fields: Mapping[str, Field], prefix: str) -> dict[str, Signal]:
    """A register per field."""
    shapes = {name: signed(spec.width) if spec.signed else unsigned(spec.width) for name, spec in fields.items()}
    return {name: Signal(shape, name=f"{prefix}_{name}", reset_less=True) for name, shape in shapes.items()}
