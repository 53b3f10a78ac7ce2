"""Programs that a design does not carry out are refused in one sentence, whatever their bytes are."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Convolution, Output, gemm
from celosia.compiler.accelerator.job import image_of, random_operands
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import CelosiaError, FormatError, ParameterError
from celosia.intrinsics.accelerator import Command, Op, Program, Register, Target, predict
from celosia.intrinsics.accelerator.command import COMMON, FIELDS, REGISTERS, Field
from celosia.intrinsics.accelerator.functional import execute

SIZES = {"rows": 3, "cols": 2, "port_bytes": 4, "spad_kib": 2, "acc_kib": 2}
FULL = machine_of(DesignPoint.create("accelerator", channel_words=8, residual_words=64, **SIZES))
PLAIN = machine_of(DesignPoint.create("accelerator", core="weight-stationary", channel_words=0, **SIZES))
LANES = machine_of(DesignPoint.create("accelerator", core="dot-product", lanes=2, channel_words=0, **SIZES))


def job(machine, op, output, schedule):
    problem = Problem(machine=machine, op=op, output=output)
    return lower(problem, schedule), image_of(problem, random_operands(problem, np.random.default_rng(0)))


NARROW = Output(narrow=True, bias=True, shift=9, residual=True, residual_multiplier=77)
JOBS = {
    "full": (FULL, *job(FULL, gemm(9, 7, 20), NARROW, Schedule(m=2, n=2, k=2))),
    "plain": (
        PLAIN,
        *job(PLAIN, Convolution(height=5, width=5, channels=3, filters=4, kernel=(3, 3), pad=1), Output(), Schedule(m=4, n=1, k=3)),
    ),
    "lanes": (
        LANES,
        *job(LANES, Convolution(height=5, width=5, channels=4, filters=4, kernel=(3, 3), groups=4), Output(), Schedule(m=1, n=1, k=9)),
    ),
}


def changed(program, op, which, values):
    """The program with fields of its first command of a kind replaced; of a SET, that of register ``which``."""
    commands = list(program.commands)
    found = [index for index, command in enumerate(commands) if command.op is op and which in (None, command.values.get("register"))]
    command = commands[found[0]]
    commands[found[0]] = replace(command, values={**command.values, **values})
    return replace(program, commands=tuple(commands))


def test_programs_of_the_compiler_are_legal():
    for machine, program, memory in JOBS.values():
        program.check(machine, memory)
        Program.from_bytes(program.to_bytes()).check(machine, memory)


ILLEGAL = [
    *[("full", Op.LOAD, None, {name: 0}, rf"\(LOAD\) has 0 {name}; allowed: at least 1$") for name in ("rows", "beats", "first_beats")],
    *[
        ("full", Op.COMPUTE, None, {name: 0}, rf"\(COMPUTE\) has 0 {name}; allowed: at least 1$")
        for name in ("k_units", "m_blocks", "n_blocks")
    ],
    *[
        ("full", Op.STORE, None, {name: 0}, rf"\(STORE\) has 0 {name}; allowed: at least 1$")
        for name in ("m_blocks", "n_blocks", "rows", "last_rows", "last_bytes")
    ],
    *[
        ("full", Op.SET, register, {name: 0}, rf"\(SET\) has 0 {name}; allowed: at least 1$")
        for register in range(4)
        for name in ("run", "run_beats", "taps", "columns")
    ],
    ("full", Op.SET, Register.STORE, {"beats": 0}, r"has 0 beats; allowed: at least 1$"),
    ("full", Op.SET, Register.STORE, {"beats": 200}, r"has beats 200; allowed: at most 4$"),
    ("full", Op.SET, Register.STORE, {"shift": 63}, r"has shift 63; allowed: at most 62$"),
    ("full", Op.SET, Register.STORE, {"low": 100, "high": -3}, r"clamps from 100 to -3; allowed: low up to high$"),
    ("full", Op.SET, Register.STORE, {"narrow": 0}, r"adds residuals, which takes a design with a memory of residuals and 8-bit outputs$"),
    ("full", Op.SET, Register.A, {"run_beats": 4000}, r"has run_beats 4000; allowed: at most \d+$"),
    ("full", Op.LOAD, None, {"beats": 1, "spare": 1}, r"has only a spare beat per row; allowed: at least 2 beats$"),
    ("full", Op.LOAD, None, {"column": 9000}, r"has column 9000; allowed: at most 0$"),
    ("full", Op.LOAD, None, {"tap": 9}, r"has tap 9; allowed: at most 0$"),
    ("full", Op.LOAD, None, {"skip": 9000}, r"has skip 9000; allowed: at most \d+$"),
    ("full", Op.LOAD, None, {"first_beats": 4000}, r"has first_beats 4000; allowed: at most \d+$"),
    ("full", Op.LOAD, None, {"rows": 16383}, r"fills word \d+ of scratchpad \w+; it has \d+ words per bank$|has row_stride"),
    ("full", Op.LOAD, None, {"rows": 8, "row_stride": 0}, r"has row_stride 0; allowed: at least the \d+ words that a row fills$"),
    ("full", Op.LOAD, None, {"base": 1 << 20}, r"reads byte \d+; the memory image has \d+ bytes$"),
    ("full", Op.LOAD, None, {"base": 1}, r"reads a run that its beats do not hold"),
    ("full", Op.LOAD, None, {"offset": (1 << 20) - 4}, r"leaves the image by far"),
    *[
        (kind, Op.COMPUTE, None, {name: 60_000}, rf"reads word \d+ of scratchpad {name.upper()}; it has \d+ words per bank$")
        for kind in JOBS
        for name in ("a", "b")
    ],
    ("full", Op.COMPUTE, None, {"a_stride": 16_000, "m_blocks": 2}, r"reads word \d+ of scratchpad A"),
    ("plain", Op.COMPUTE, None, {"a_stride": 16_000}, r"reads word \d+ of scratchpad A"),
    ("plain", Op.COMPUTE, None, {"m_blocks": 4000}, r"reads word \d+ of scratchpad A"),
    ("full", Op.COMPUTE, None, {"b_stride": 16_000, "n_blocks": 2}, r"reads word \d+ of scratchpad B"),
    ("full", Op.COMPUTE, None, {"k_units": 60_000}, r"reads word \d+ of scratchpad A"),
    ("full", Op.COMPUTE, None, {"c": 60_000}, r"writes accumulator row \d+; there are \d+$"),
    ("full", Op.COMPUTE, None, {"vector": 1}, r"uses vector mode, which only dot-product and outer-product cores have"),
    ("plain", Op.COMPUTE, None, {"vector": 1}, r"uses vector mode"),
    ("full", Op.STORE, None, {"channel": 8}, r"reads word \d+ of biases and multipliers; there are 8$"),
    ("full", Op.STORE, None, {"residual": 60_000}, r"reads word \d+ of the residuals; there are 64$"),
    ("full", Op.STORE, None, {"last_bytes": 3}, r"has last_bytes 3; allowed: at most 2$"),
    ("full", Op.STORE, None, {"block_rows": 1}, r"has (last_)?rows 3; allowed: at most 1$"),
    ("full", Op.STORE, None, {"c": 60_000}, r"reads accumulator row \d+; there are \d+$"),
    ("full", Op.STORE, None, {"base": 1 << 20}, r"writes byte \d+; the memory image has \d+ bytes$"),
    ("lanes", Op.SET, Register.STORE, {"narrow": 1}, r"uses narrow, which the design's store path lacks$"),
    ("lanes", Op.SET, Register.STORE, {"bias": 1}, r"uses bias, which the design's store path lacks$"),
    ("lanes", Op.SET, Register.STORE, {"residual": 1}, r"adds residuals, which takes a design with a memory of residuals"),
    ("lanes", Op.SET, Register.STORE, {"beats": 1}, r"needs \d beats for a row; the register STORE says 1$"),
    ("lanes", Op.SET, Register.A, {"register": Register.CHANNELS}, r"writes the register CHANNELS, which the design lacks$"),
    ("lanes", Op.LOAD, None, {"target": Target.RESIDUAL}, r"needs the configuration register RESIDUAL, which no SET before it writes$"),
    ("lanes", Op.SET, Register.A, {"run": 9, "run_beats": 3}, r"has a run of bytes \d+; allowed: at most \d+$"),
]


@pytest.mark.parametrize(("kind", "op", "register", "values", "reason"), ILLEGAL)
def test_what_a_design_does_not_carry_out_is_refused(kind, op, register, values, reason):
    machine, program, memory = JOBS[kind]
    broken = changed(program, op, register, values)
    for given in (broken, Program.from_bytes(broken.to_bytes())):
        with pytest.raises(ParameterError, match=rf"^command \d+ .*({reason})"):
            given.check(machine, memory)


def test_waits_for_commands_that_come_later_are_refused():
    machine, program, memory = JOBS["full"]
    place = next(index for index, command in enumerate(program.commands) if command.op is Op.COMPUTE)
    loads = sum(command.op is Op.LOAD for command in program.commands[:place])

    def waiting(count):
        commands = list(program.commands)
        commands[place] = replace(commands[place], loads=count)
        return replace(program, commands=tuple(commands))

    waiting(loads).check(machine, memory)
    for count in (loads + 1, -1):
        with pytest.raises(ParameterError, match=rf"^command {place} \(COMPUTE\) waits for LOAD {count}, of {loads} before it$"):
            waiting(count).check(machine, memory)
    spec, words = COMMON["wait_load"], program.words.copy()
    for count in (loads + 1, 2000, 2060, 4095):
        words[place] = np.frombuffer(_with_field(words[place], spec, count), np.uint8)
        with pytest.raises(FormatError, match=rf"^command {place} \(COMPUTE\) waits for LOAD {count}, modulo 4096, of {loads} before it$"):
            Program.from_bytes(_with_words(program, words))


def _with_field(word, spec: Field, value):
    number = int.from_bytes(word.tobytes(), "little")
    return (number & ~(((1 << spec.width) - 1) << spec.offset) | value << spec.offset).to_bytes(32, "little")


def _with_words(program, words):
    return program.to_bytes().partition(b"\n")[0] + b"\n" + words.tobytes()


@pytest.mark.parametrize("register", [5, 6, 7])
def test_unknown_registers_are_refused(register):
    program = JOBS["full"][1]
    words = program.words.copy()
    words[0] = np.frombuffer(_with_field(words[0], FIELDS[Op.SET]["register"], register), np.uint8)
    with pytest.raises(FormatError, match=rf"^configuration register must be from 0 to 4, not {register}$"):
        Program.from_bytes(_with_words(program, words))
    assert register not in REGISTERS


def _with_header(program, **changes):
    head, _, body = program.to_bytes().partition(b"\n")
    return head[:8] + json.dumps(json.loads(head[8:]) | changes).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"[]", r"must be a JSON object, not \[\]$"),
        (b"null", r"must be a JSON object, not None$"),
        (b"5", r"must be a JSON object, not 5$"),
        (b"[" * 100_000, r"header is not JSON$"),
        (b"\xff\xfe", r"header is not JSON$"),
        ({"macs": 10**400}, r"needs macs as int from 0 to 2\*\*63 - 1, not 1000+\.\.\.0+$"),
        ({"macs": -1}, r"needs macs as int"),
        ({"memory_bytes": 1 << 33}, r"needs memory_bytes as int from 0 to 2\*\*32, not 8589934592$"),
        ({"memory_bytes": True}, r"needs memory_bytes as int"),
        ({"design_hash": "a\nb"}, r"needs design_hash as str of hexadecimal digits, not 'a\\nb'$"),
        ({"title": "\ud800"}, r"needs title as str of at most 200 printable characters"),
        ({"format": ["x"] * 99}, r"must have format celosia-program-1"),
        *[
            ({"buffers": [{"name": "a", "offset": 0, "size": 8, "shape": [8], "strides": [1], "dtype": "int8"} | change]}, reason)
            for change, reason in (
                ({"offset": 0.5}, "a buffer of a program needs"),
                ({"dtype": "O"}, "a buffer of a program needs"),
                ({"dtype": {}}, "a buffer of a program needs"),
                ({"shape": [8, 1]}, "a buffer of a program needs"),
                ({"shape": [0]}, "a buffer of a program needs"),
                ({"shape": "8"}, "a buffer of a program needs"),
                ({"name": 5}, "a buffer of a program needs"),
                ({"x\ny": 5}, "a buffer of a program needs"),
                ({"strides": [-1]}, "a buffer of a program needs"),
                ({"shape": [9]}, "buffer 'a' of a program must lie inside"),
                ({"shape": [9], "strides": [0]}, "buffer 'a' of a program must lie inside"),
                ({"offset": 1 << 30}, "buffer 'a' of a program must lie inside"),
            )
        ],
        ({"buffers": [5]}, "a buffer of a program needs"),
    ],
)
def test_headers_that_are_none_are_refused(header, reason):
    program = JOBS["full"][1]
    data = _with_header(program, **header) if isinstance(header, dict) else b"CELOPROG" + header + b"\n" + program.words.tobytes()
    with pytest.raises(FormatError, match=reason) as refusal:
        Program.from_bytes(data)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def _mutated(rng, program):
    """The bytes of the program with a few things changed."""
    head, _, body = program.to_bytes().partition(b"\n")
    words = np.frombuffer(body, np.uint8).reshape(-1, 32).copy()
    kind, (i, j) = int(rng.integers(6)), rng.integers(len(words), size=2)
    if kind == 0:
        head = bytearray(head)
        head[int(rng.integers(len(head)))] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        words[[i, j]] = words[[j, i]]
    elif kind == 2:
        words = np.delete(words, i, axis=0)
    elif kind == 3:
        words = np.insert(words, j, words[i], axis=0)
    else:
        for _ in range(int(rng.integers(1, 3))):
            words[int(rng.integers(len(words))), int(rng.integers(32))] ^= 1 << int(rng.integers(8))
    return bytes(head) + b"\n" + words.tobytes()


def _outcome(machine, data, memory):
    """``ran``, or the refusal."""
    try:
        program = Program.from_bytes(data)
        execute(machine, program, memory)
    except CelosiaError as refusal:
        return str(refusal)
    predict(machine, program)
    return "ran"


@pytest.mark.parametrize("kind", JOBS)
def test_mutated_programs_are_refused_or_run(kind):
    machine, program, memory = JOBS[kind]
    rng = np.random.default_rng(list(JOBS).index(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = [_outcome(machine, _mutated(rng, program), memory.copy()) for _ in range(300)]
    assert 30 < seen.count("ran") < 270
    assert not any("\n" in line for line in seen)


def test_a_program_of_nothing_runs():
    program = Program(design_hash=FULL.design_hash, commands=(Command(Op.END),), memory_bytes=0)
    execute(FULL, Program.from_bytes(program.to_bytes()), np.zeros(0, np.uint8))
    assert predict(FULL, program).cycles == 0
