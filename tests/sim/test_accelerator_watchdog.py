"""What counts as a hang, and what as an error, of a design that runs a program."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import gemm
from celosia.compiler.accelerator.job import expected, image_of, random_operands, result_of
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.explore.accelerator_run import observe, simulate_program
from celosia.hw import DesignPoint
from celosia.intrinsics import SimulationError
from celosia.intrinsics.accelerator import Command, MemoryTiming, Op, Program, predict
from celosia.intrinsics.accelerator.command import FIELDS, encode, extract, extract_all
from celosia.sim.accelerator import AcceleratorModel, quiet_bound

POINT = DesignPoint.create(
    "accelerator", core="output-stationary", spad_kib=2, acc_kib=2, channel_words=8, residual_words=64, rows=3, cols=2, port_bytes=4
)


@pytest.fixture(scope="module")
def accelerator():
    return AcceleratorModel(POINT)


@pytest.fixture
def job(accelerator):
    problem = Problem(machine=accelerator.machine, op=gemm(5, 7, 33))
    return problem, lower(problem, Schedule(m=2, n=2, k=3)), random_operands(problem, np.random.default_rng(0))


def test_a_slow_memory_is_no_hang(accelerator, job):
    problem, program, operands = job
    memory, timing = image_of(problem, operands), MemoryTiming(latency=200_000)
    seen = observe(POINT, program, memory, timing=timing)
    assert seen.events_equal
    assert np.array_equal(result_of(program, memory), expected(problem, operands))
    with pytest.raises(SimulationError, match=r"^the design stands still since cycle"):
        accelerator.run(program, memory, timing=timing, hang_limit=100_000)


def test_a_long_command_is_no_hang(accelerator, job):
    program, machine = job[1], accelerator.machine
    compute = next(command for command in program.commands if command.op is Op.COMPUTE)
    words = np.frombuffer(
        encode(replace(compute, values={**compute.values, "k_units": 60_000, "m_blocks": 4})).to_bytes(32, "little"), np.uint8
    )
    longest = 60_000 * 4 * compute.values["n_blocks"]
    timing = MemoryTiming(latency=7, write_latency=8, jitter=9)
    assert quiet_bound(machine, words[None], timing) > longest + 7 + 9
    assert quiet_bound(machine, program.words[-1:], timing) < 110_000
    events = predict(machine, program, memory=timing)
    cycles = sorted({0, events.cycles, *(cycle for times in events.times.values() for cycle in times)})
    assert quiet_bound(machine, program.words, timing) > max(np.diff(cycles))


def test_a_frequent_refresh_is_no_endless_program(job):
    problem, program, operands = job
    memory, timing = image_of(problem, operands), MemoryTiming(latency=2000, refresh_interval=10_000, refresh_cycles=9_900)
    seen = observe(POINT, program, memory, timing=timing)
    assert seen.cycles > 2 * seen.predicted.cycles
    assert np.array_equal(result_of(program, memory), expected(problem, operands))


def test_a_run_that_raised_the_error_flag_does_not_pass(job, monkeypatch):
    problem, program, operands = job
    assert observe(POINT, program, image_of(problem, operands)).error is False
    assert observe(POINT, program, image_of(problem, operands), fidelity="model").error is None
    assert simulate_program(POINT, program, image_of(problem, operands)).to_dict()["error"] is False
    run = AcceleratorModel.run
    monkeypatch.setattr(AcceleratorModel, "run", lambda *given, **named: replace(run(*given, **named), error=True))
    with pytest.raises(SimulationError, match=r"^the design raised its error flag: it dropped an illegal command"):
        observe(POINT, program, image_of(problem, operands))


@pytest.mark.parametrize("op", [Op.LOAD, Op.COMPUTE, Op.STORE])
def test_a_lost_command_that_others_wait_for_ends_with_an_error(accelerator, job, op):
    problem, program, operands = job
    words = program.words.copy()
    first = next(index for index, command in enumerate(program.commands) if command.op is op)
    words[first, 0] = 0  # unknown, so dropped
    run = accelerator.run(words, image_of(problem, operands), hang_limit=2000)
    assert run.error
    memory = image_of(problem, operands)  # the next program waits as it should; the flag stays until a reset
    again = accelerator.run(program, memory, reset=False)
    assert again.error
    assert np.array_equal(result_of(program, memory), expected(problem, operands))
    assert again.cycles == predict(accelerator.machine, program).cycles


def test_a_program_without_end_says_that_the_error_flag_is_up(accelerator, job):
    problem, program, operands = job
    words = program.words[:-1].copy()
    words[next(index for index, command in enumerate(program.commands) if command.op is Op.LOAD), 0] = 0
    with pytest.raises(SimulationError, match=r"without END being accepted .*compute waits for loads; .*the design's error flag is up$"):
        accelerator.run(words, image_of(problem, operands), hang_limit=2000)


def test_a_program_of_nothing_runs(accelerator):
    program = Program(design_hash=accelerator.machine.design_hash, commands=(Command(Op.END),), memory_bytes=4, macs=5)
    result = simulate_program(POINT, program, np.zeros(4, np.uint8))
    assert result.passed
    assert result.utilization == 0


def test_fields_of_many_words_are_those_of_each(job):
    words = job[1].words
    for op, fields in FIELDS.items():
        rows = words[extract_all(words, fields["op"]) == op]
        for spec in fields.values():
            if not spec.signed:
                assert extract_all(rows, spec).tolist() == [extract(int.from_bytes(row.tobytes(), "little"), spec) for row in rows]
