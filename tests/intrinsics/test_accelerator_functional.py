"""The functional model against the same commands byte by byte: programs of the compiler, and the same with fields changed at random."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.job import image_of, random_operands
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.explore.accelerator_selftest import random_case, random_design
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator import Op, functional, patterns
from celosia.intrinsics.accelerator.functional import execute

from .scalar_accelerator import Scalar

MOST = 40_000
"""Products of a program that are computed one by one in reasonable time."""


def programs(seed, count):
    """Small programs of every kind, with their memories."""
    rng = np.random.default_rng(seed)
    while count:
        try:
            point = random_design(rng, largest=4)
            if rng.integers(2):  # sums that wrap
                narrow = {"acc": str(rng.choice(["int12", "int20"])), "overflow": "wrap"}
                point = DesignPoint.create("accelerator", **{**point.parameters.to_dict(), **narrow})
        except ParameterError:
            continue
        case, machine = random_case(rng, point), machine_of(point)
        problem = Problem(machine=machine, op=case.op, output=case.output)
        program = lower(problem, case.schedule)
        if work(machine, program) > MOST:
            continue
        count -= 1
        memory = image_of(problem, random_operands(problem, rng))
        for name, dtype in (("a", machine.a), ("b", machine.b)):  # the upper bits of narrow elements say nothing
            buffer = program.buffer(name)
            memory[buffer.offset : buffer.offset + buffer.size] ^= np.uint8(0xF0 if dtype.width == 4 else 0)
        yield machine, program, memory, rng


def work(machine, program):
    """Products and bytes of a program."""
    total = 0
    for command in program.commands:
        if command.op is Op.COMPUTE:
            values = command.values
            total += values["k_units"] * values["m_blocks"] * values["n_blocks"] * machine.rows * machine.cols * machine.lanes
        elif command.op is Op.LOAD:
            total += command.values["rows"] * command.values["beats"] * machine.port_bytes
    return total


def differs(machine, program, memory):
    """Whether the two models leave different bytes in memory."""
    fast, slow = memory.copy(), memory.copy()
    execute(machine, program, fast)
    Scalar(machine, slow).run(program)
    return not np.array_equal(fast, slow)


CHANGES = {
    Op.LOAD: {
        "x": 40,
        "y": 4,
        "column": 5,
        "offset": 30,
        "skip": 9,
        "tap": 3,
        "rows": 6,
        "beats": 4,
        "first_beats": 2,
        "base": 64,
        "spad": 4,
    },
    Op.COMPUTE: {"a": 4, "b": 4, "c": 6, "k_units": 5, "m_blocks": 2, "n_blocks": 2, "a_stride": 3, "b_stride": 3, "accumulate": 1},
    Op.STORE: {"c": 6, "rows": 2, "last_rows": 2, "last_bytes": 5, "block_rows": 2, "m_blocks": 1},
    Op.SET: {"first_x": 20, "width": 9, "height": 3, "column_step": 7, "tap_step": 9, "columns": 4, "kernel_step": 40, "row_step": 40},
}
"""Fields and by how much they may change."""


def changed(program, rng):
    """The program with some fields of some commands changed."""
    commands = list(program.commands)
    for index in rng.choice(len(commands), min(2, len(commands)), replace=False):
        command = commands[index]
        fields = [name for name in CHANGES.get(command.op, {}) if name in command.values]
        if not fields:
            continue
        values = dict(command.values)
        for name in rng.choice(fields, min(int(rng.integers(1, 3)), len(fields)), replace=False):
            most = CHANGES[command.op][name]
            values[name] = max(values[name] + int(rng.integers(-most, most + 1)), -(1 << 12) if name in ("x", "y", "first_x") else 0)
        commands[index] = replace(command, values=values)
    return replace(program, commands=tuple(commands))


def test_programs_of_the_compiler():
    for machine, program, memory, _ in programs(1, 40):
        assert not differs(machine, program, memory), program.title


def test_any_legal_program():
    """Most changes are legal: tiles from elsewhere, windows beside the image, stores over other results."""
    legal = 0
    for machine, program, memory, rng in programs(2, 30):
        for _ in range(4):
            other = changed(program, rng)
            try:
                other.check(machine, memory)
            except ParameterError:
                continue
            if work(machine, other) <= MOST:
                legal += 1
                assert not differs(machine, other, memory), other.commands
    assert legal > 30


@pytest.mark.slow
def test_many_legal_programs():
    for machine, program, memory, rng in programs(3, 300):
        assert not differs(machine, program, memory), program.title
        for _ in range(6):
            other = changed(program, rng)
            try:
                other.check(machine, memory)
            except ParameterError:
                continue
            if work(machine, other) <= MOST:
                assert not differs(machine, other, memory), other.commands


def wrong_unit(right):
    """Units of twice the bytes."""

    def of(load, walker, port_bytes):
        found = right(load, walker, port_bytes)
        return replace(found, place=found.place // 2 * 2)

    return of


BROKEN = {
    "beside": (patterns.LoadPattern, "outside", lambda right: lambda self, y, height: None),
    "above": (patterns.LoadPattern, "outside", lambda right: lambda self, y, height: self.beside),
    "place": (patterns.LoadPattern, "of", wrong_unit),
    "runs": (patterns.LoadPattern, "words", lambda right: lambda self, data, size, *, padded: right(self, data, size, padded=False)),
    "shape": (functional, "LOAD_SHAPE", lambda right: tuple(name for name in right if name != "x")),
    "sources": (patterns.StorePattern, "sources", lambda right: lambda self, store: right(self, {**store, "block_rows": 0})),
    "exact": (functional, "_EXACT", lambda right: 1 << 60),
    "wrap": (functional, "wrap", lambda right: lambda values, dtype: np.asarray(values).astype(dtype.numpy)),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_model_is_noticed(fault, monkeypatch):
    owner, name, change = BROKEN[fault]
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    noticed = False
    for machine, program, memory, rng in programs(1, 40):
        try:
            noticed = differs(machine, program, memory) or differs(machine, changed(program, rng), memory)
        except ParameterError:
            continue
        except IndexError:  # beyond the memory
            noticed = True
        if noticed:
            break
    assert noticed
