import itertools

import numpy as np
import pytest

from celosia.intrinsics import FormatError, HashMismatchError, ParameterError
from celosia.intrinsics.accelerator import Command, MemoryTiming, Op, Program
from celosia.intrinsics.accelerator.command import COMMAND_BITS, FIELDS, REGISTERS, decode, encode, layout_of
from celosia.intrinsics.accelerator.program import prune_waits, unwrap_waits


def random_command(rng, op):
    values = {"register": int(rng.integers(len(REGISTERS)))} if op is Op.SET else {}
    for name, spec in layout_of(op, values).items():
        if name not in FIELDS[Op.END] and name not in values:
            low, high = spec.limits
            values[name] = int(rng.integers(low, high, endpoint=True))
    waits = [int(rng.integers(4096)) if rng.integers(2) else None for _ in range(3)]
    return Command(op, values, *waits)


@pytest.mark.parametrize("op", list(Op))
def test_every_field_survives_encoding(op):
    rng = np.random.default_rng(op)
    for _ in range(50):
        command = random_command(rng, op)
        word = encode(command)
        assert word < 1 << COMMAND_BITS
        assert decode(word) == command


@pytest.mark.parametrize("op", list(Op))
def test_fields_do_not_overlap(op):
    for register in REGISTERS if op is Op.SET else (0,):
        spans = sorted((spec.offset, spec.offset + spec.width) for spec in layout_of(op, {"register": register}).values())
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
        assert spans[-1][1] <= COMMAND_BITS


def test_a_value_that_does_not_fit_is_refused():
    values = dict.fromkeys((name for name in FIELDS[Op.STORE] if name not in FIELDS[Op.END]), 0)
    with pytest.raises(ParameterError, match=r"^command field rows must be from 0 to 16383, not 16384; nearest legal value: 16383$"):
        encode(Command(Op.STORE, {**values, "rows": 16384}))
    with pytest.raises(ParameterError, match=r"^command field 'row' does not exist; did you mean 'rows'\?$"):
        encode(Command(Op.STORE, {**values, "row": 1}))
    del values["rows"]
    with pytest.raises(ParameterError, match=r"^command STORE needs the field rows"):
        encode(Command(Op.STORE, values))


@pytest.mark.parametrize("code", [0, 6, 7])
def test_unknown_operation_codes_are_refused(code):
    with pytest.raises(FormatError, match=rf"^operation code must be from 1 to 5, not {code}$"):
        decode(code)


def test_a_program_must_end_with_end():
    with pytest.raises(FormatError, match=r"^a program must end with an END command$"):
        Program(design_hash="0", commands=(), memory_bytes=0)
    with pytest.raises(FormatError, match=r"^a program must hold one END command, its last$"):
        Program(design_hash="0", commands=(Command(Op.END), Command(Op.END)), memory_bytes=0)


def test_bytes_that_are_no_program_are_refused():
    with pytest.raises(FormatError, match=r"^not a program: the first bytes must be CELOPROG$"):
        Program.from_bytes(b"\0" * 64)


def test_implied_waits_are_dropped_and_counters_may_wrap():
    values = dict.fromkeys((name for name in FIELDS[Op.COMPUTE] if name not in FIELDS[Op.END]), 1)
    load = dict.fromkeys((name for name in FIELDS[Op.LOAD] if name not in FIELDS[Op.END]), 1)
    commands = []
    for number in range(1, 9000):
        commands += [Command(Op.LOAD, load, None, max(number - 2, 0) or None), Command(Op.COMPUTE, values, number)]
    commands.append(Command(Op.COMPUTE, values, 1))
    pruned = prune_waits(commands)
    assert pruned[-1].loads is None
    assert [command.loads for command in pruned[:-1] if command.op is Op.COMPUTE] == list(range(1, 9000))
    wrapped = [decode(encode(command)) for command in pruned]
    assert unwrap_waits(wrapped) == tuple(pruned)


def test_a_wait_beyond_half_a_counter_is_refused():
    values = dict.fromkeys((name for name in FIELDS[Op.COMPUTE] if name not in FIELDS[Op.END]), 1)
    load = dict.fromkeys((name for name in FIELDS[Op.LOAD] if name not in FIELDS[Op.END]), 1)
    commands = [Command(Op.LOAD, load)] * 2049
    assert len(prune_waits([*commands[:2048], Command(Op.COMPUTE, values, 1)])) == 2049
    with pytest.raises(ParameterError, match=r"^a COMPUTE waits for a command 2048 back; allowed: at most 2047$"):
        prune_waits([*commands, Command(Op.COMPUTE, values, 1)])


def test_a_program_of_another_design_is_refused(machine):
    program = Program(design_hash="0123456789ab", commands=(Command(Op.END),), memory_bytes=0)
    with pytest.raises(HashMismatchError, match=rf"^program was made for design 0123456789ab, not for design {machine.design_hash}$"):
        program.check(machine, np.zeros(0, np.uint8))


@pytest.fixture
def machine():
    from celosia.hw import DesignPoint
    from celosia.hw.accelerator.machine import machine_of

    return machine_of(DesignPoint.create("accelerator", rows=2, cols=2, spad_kib=2, acc_kib=2, port_bytes=4))


def test_memories_that_never_answer_are_refused():
    with pytest.raises(ParameterError, match=r"^memory latency must be an integer of at least 1, not 0; nearest legal value: 1$"):
        MemoryTiming(latency=0)
    with pytest.raises(ParameterError, match=r"refresh_cycles must be below refresh_interval \(10\), not 10; nearest legal value: 9$"):
        MemoryTiming(refresh_interval=10, refresh_cycles=10)
