"""Programs that no schedule leads to, and the last beats of padded runs: RTL against the functional model."""

import numpy as np
import pytest

from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator import Program
from celosia.intrinsics.accelerator.command import Command, Op, Register, Target
from celosia.intrinsics.accelerator.functional import execute
from celosia.sim.accelerator import AcceleratorModel

IMAGE = 1024
WALKER = {"run": 8, "run_beats": 2, "taps": 1, "columns": 100, "column_step": 8, "width": IMAGE, "height": 1}
ZEROS = ("tap_step", "kernel_step", "kernel_y", "row_step", "row_y", "first_x", "zero", "pad")
PATH = {"pitch": 8, "block_pitch": 8, "beats": 3, "low": -128, "high": 127, "residual_multiplier": 1}


def point(**changes):
    base = {"core": "dot-product", "rows": 2, "cols": 2, "lanes": 1, "port_bytes": 4, "spad_kib": 1, "acc_kib": 1, "channel_words": 8}
    return DesignPoint.create("accelerator", **{**base, "overflow": "wrap", "outstanding": 8, **changes})


def walk(register, **values):
    return Command(Op.SET, {"register": register, **dict.fromkeys(ZEROS, 0), **WALKER, **values})


def load(target, beats=2, **values):
    zero = dict.fromkeys(("base", "spad", "x", "y", "column", "offset", "skip", "tap", "spare"), 0)
    return Command(Op.LOAD, {"target": target, **zero, "rows": 2, "beats": beats, "first_beats": beats, "row_stride": 8, **values})


def path(**values):
    zero = dict.fromkeys(("narrow", "bias", "shift", "zero", "residual", "residual_signed", "residual_zero"), 0)
    return Command(Op.SET, {"register": Register.STORE, **zero, **PATH, **values})


def compute(loads, **values):
    zero = dict.fromkeys(("accumulate", "vector", "a", "b", "c"), 0)
    sizes = {"k_units": 1, "m_blocks": 1, "n_blocks": 1, "a_stride": 4, "b_stride": 4}
    return Command(Op.COMPUTE, {**zero, **sizes, **values}, loads=loads)


def store(**values):
    base = {"base": 512, "c": 0, "channel": 0, "m_blocks": 1, "n_blocks": 1, "rows": 1, "last_rows": 1, "block_rows": 2, "last_bytes": 8}
    return Command(Op.STORE, {**base, "residual": 0, **values}, computes=1)


OPERANDS = (walk(0), walk(1), load(Target.A), load(Target.B, base=64))
EMPTY_LAST_BEAT = (walk(0, run=4, run_beats=2, pad=1), load(Target.A, base=128, beats=4, first_beats=2))
SPARE = (walk(0, run=4, run_beats=1, pad=1), load(Target.A, base=128, first_beats=1, spare=1))
LEGAL = {
    "a run that is a whole word ends before its last beat": (*OPERANDS, *EMPTY_LAST_BEAT, path(), compute(3, k_units=8), store()),
    "a spare beat behind padded runs": (*OPERANDS, *SPARE, path(), compute(3, k_units=8), store()),
    "rows of blocks along m write over others along n": (
        *(*OPERANDS, path(block_pitch=4)),
        *(compute(2, m_blocks=2, n_blocks=2, a_stride=0, b_stride=1), store(m_blocks=2, n_blocks=2)),
    ),
}


def program_of(machine, commands):
    return Program(design_hash=machine.design_hash, commands=(*commands, Command(Op.END)), memory_bytes=IMAGE)


def run(commands, design):
    machine = machine_of(design)
    program, memory = program_of(machine, commands), np.random.default_rng(1).integers(0, 256, IMAGE, dtype=np.uint8)
    program.check(machine, memory)
    functional, rtl = memory.copy(), memory.copy()
    execute(machine, program, functional)
    assert not AcceleratorModel(design).run(program, rtl).error
    assert not np.array_equal(functional, memory)
    return functional, rtl


@pytest.mark.parametrize("name", LEGAL)
def test_rtl_agrees_on_odd_programs(name):
    functional, rtl = run(LEGAL[name], point())
    assert np.array_equal(functional, rtl)


def wide(**values):
    """Rows of 12 bytes for words of 6."""
    return (
        walk(0, run=12, run_beats=3),
        walk(1, run=12, run_beats=3),
        load(Target.A, 3, row_stride=2),
        load(Target.B, 3, row_stride=2, **values),
    )


CHANNELS = Register(Target.CHANNELS)
REFUSED = [
    (
        {"lanes": 3},
        (*wide(), walk(0), load(Target.A, base=128, row_stride=2)),
        "last beat fills a word and begins another one; .* a spare beat$",
    ),
    (
        {},
        (walk(CHANNELS, run=32, run_beats=8), load(Target.CHANNELS, 8, rows=1)),
        "brings 32 bytes per row; allowed: the 16 of a word of biases",
    ),
    ({}, (walk(CHANNELS), load(Target.CHANNELS, rows=1)), "brings 8 bytes per row; allowed: the 16 of a word of biases"),
    ({}, (walk(CHANNELS, pad=1), load(Target.CHANNELS, 4, rows=1, first_beats=2)), "brings 16 bytes per row; .* in one run if padded$"),
]


@pytest.mark.parametrize(("changes", "commands", "message"), REFUSED)
def test_loads_that_the_packer_does_not_carry_out_are_refused(changes, commands, message):
    machine = machine_of(point(**changes))
    with pytest.raises(ParameterError, match=message):
        program_of(machine, commands).check(machine, np.zeros(IMAGE, np.uint8))


def test_a_spare_beat_makes_the_row_legal():
    commands = (*wide(), walk(0), load(Target.A, 3, base=128, row_stride=2, first_beats=2, spare=1))
    functional, rtl = run((*commands, path(), compute(3, k_units=2, a_stride=2, b_stride=2), store()), point(lanes=3))
    assert np.array_equal(functional, rtl)
