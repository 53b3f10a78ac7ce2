"""Area of an accelerator: its core from elements, its other parts from lines through synthesised sizes, its memories from their bits.

What is around the core was synthesised part by part, over ports of 1 to 32 bytes and 1 to 16 columns; the lines below
pass within 11 % of every one of those figures. Memories count `TRANSISTORS_PER_BIT` for each bit, the accumulator
memory twice, because its two read ports make it two copies. Left out: decoders, sense amplifiers and the second port
of memories, wires, the clock tree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..hw.accelerator.parameters import AcceleratorParameters
from ..hw.parameters import Dataflow, SystolicParameters
from ..intrinsics import Overflow, ParameterError
from ..intrinsics.accelerator.command import COMMAND_BITS
from ..intrinsics.accelerator.machine import AcceleratorMachine, ceil_div
from . import area

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint

TRANSISTORS_PER_BIT = 6
"""Of a static memory cell."""

WALKER, WALKER_PER_TARGET, DISPATCHER, SPLIT = 31_500, 9_000, 7_100, 970
"""Fixed parts; the walker has a configuration register for each target of a load."""
SEQUENCER = {False: 10_900, True: 13_900}
"""By whether the core is weight-stationary."""
DRAIN, DRAIN_PER_BIT = {False: 4_300, True: 5_600}, 69.0
"""The drain has an adder and a register per bit of a row of sums."""
MUX = 13.3
"""A bit of a choice between two."""
PACKER, PACKER_PER_BIT, PACKER_PER_PORT_BIT, RESPONSE_PER_PORT_BIT = 840, 57.3, 94.2, 34.0
"""By the widest word; and the register behind the port."""
STORE, STORE_PER_BIT, STORE_PER_LEVEL, STORE_PER_PORT_BIT = 20_600, 9.9, 4.1, 76.5
REQUANTIZE = {"half-away-from-zero": 66_400, "half-up": 65_300, "floor": 62_200, "half-even": 68_100}
"""A column of bias, multiplier, rounded shift and clamp."""


def memory_bits(point: DesignPoint) -> dict[str, int]:
    """Bits of every memory of an accelerator, by what it holds; each counted once."""
    p = _parameters(point)
    machine = p.accelerator_machine("")
    tag = 2 + 8 + 16 + max((p.port_bytes - 1).bit_length(), 1) + 3 * p.port_bytes.bit_length() + 3
    return {
        "scratchpad A": 8 * machine.a_banks * machine.a_words * machine.a_word,
        "scratchpad B": 8 * machine.b_banks * machine.b_words * machine.b_word,
        "accumulators": machine.acc_rows * machine.cols * machine.acc.width,
        "biases and multipliers": 8 * machine.channel_words * machine.channel_word,
        "residuals": 8 * machine.cols * machine.residual_words,
        "queues": COMMAND_BITS * p.queue_depth * (3 if p.split else 2) + _drain_bits(machine),
        "requests in flight": tag * p.outstanding,
    }


def memory_kib(point: DesignPoint) -> float:
    """KiB of all memories of an accelerator."""
    return sum(memory_bits(point).values()) / 8192


def accelerator_parts(p: AcceleratorParameters, bits: dict[str, int]) -> dict[str, area.Part]:
    """Transistors and flip-flops of each part; flip-flops are known of the core only."""
    machine = p.accelerator_machine("")
    core = _core(p, machine)
    cells = sum(bits.values()) + bits["accumulators"]
    return {
        **core,
        "scratchpad selection": (_selection(machine), 0.0),
        "loader": (WALKER + WALKER_PER_TARGET * len(machine.targets) + _packer(machine), 0.0),
        "dispatcher": (DISPATCHER + SPLIT * p.split, 0.0),
        "sequencer": (SEQUENCER[machine.weight_stationary], 0.0),
        "drain": (DRAIN[machine.weight_stationary] + DRAIN_PER_BIT * machine.cols * machine.acc.width, 0.0),
        "store path": (_store(p, machine), 0.0),
        "memories": (float(TRANSISTORS_PER_BIT * cells), 0.0),
    }


def _parameters(point: DesignPoint) -> AcceleratorParameters:
    if not isinstance(point.parameters, AcceleratorParameters):
        raise ParameterError(f"only a design of family accelerator has memories, not one of {point.family}")
    return point.parameters


def _drain_bits(machine: AcceleratorMachine) -> int:
    """The drain's queue: 57 bits for every compute command between its start and its last row."""
    return 57 * (ceil_div(machine.tail(machine.min_interval) + 1, machine.min_interval + 1) + 2)


def _core(p: AcceleratorParameters, machine: AcceleratorMachine) -> dict[str, area.Part]:
    if machine.broadcast:
        return _broadcast(p, machine)
    flow = Dataflow.WEIGHT_STATIONARY if machine.weight_stationary else Dataflow.OUTPUT_STATIONARY
    return area.parts_of(SystolicParameters(rows=p.rows, cols=p.cols, dataflow=flow, a=p.a, b=p.b, acc=p.acc, overflow=Overflow.WRAP))


def _broadcast(p: AcceleratorParameters, machine: AcceleratorMachine) -> dict[str, area.Part]:
    elements = p.rows * p.cols
    vector = machine.a_word >= p.cols * machine.a_bytes
    row = 8 * max(machine.a_unit, p.cols * machine.a_bytes if vector else 0)
    choices = p.rows * row + elements * p.a.width if vector else 0
    return {
        "multiply-accumulate": area.times(elements, area.products_part(p.a, p.b, p.lanes, p.acc, Overflow.WRAP)),
        "operand registers": area.bits_part("delay", p.rows * row + p.cols * 8 * machine.b_unit),
        "vector mode": (MUX * choices, 0.0),
        "output copy": area.plus(
            area.bits_part("select", (p.rows - 1) * p.cols * p.acc.width), area.bits_part("delay", p.cols * p.acc.width)
        ),
    }


def _selection(machine: AcceleratorMachine) -> float:
    """One unit out of each word that is read."""
    a = machine.a_banks * (machine.a_word - machine.a_unit)
    b = machine.b_banks * (machine.b_word - machine.b_unit)
    return MUX * 8 * (a + b)


def _packer(machine: AcceleratorMachine) -> float:
    widest = max(machine.a_word, machine.b_word, machine.residual_word if machine.adds_residuals else 0)
    return PACKER + PACKER_PER_BIT * 8 * widest + (PACKER_PER_PORT_BIT + RESPONSE_PER_PORT_BIT) * 8 * machine.port_bytes


def _store(p: AcceleratorParameters, machine: AcceleratorMachine) -> float:
    row = 32 * machine.cols
    plain = STORE + row * (STORE_PER_BIT + STORE_PER_LEVEL * math.log2(machine.port_bytes)) + STORE_PER_PORT_BIT * 8 * machine.port_bytes
    return plain + machine.cols * machine.requantizes * REQUANTIZE[p.rounding.value]
