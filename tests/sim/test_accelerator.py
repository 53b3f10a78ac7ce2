import functools
from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Output, gemm
from celosia.compiler.accelerator.job import expected, image_of, random_operands, result_of
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.explore.accelerator_selftest import first_difference, random_case, run_case
from celosia.hw import DesignPoint
from celosia.intrinsics import HashMismatchError, SimulationError
from celosia.intrinsics.accelerator import Command, MemoryTiming, Op, Program, Register, predict, predict_interval
from celosia.intrinsics.accelerator.command import COMMON, FIELDS, REGISTERS, encode
from celosia.intrinsics.accelerator.ledger import array_ledger
from celosia.sim.accelerator import AcceleratorModel, Stalls

DESIGNS = {
    "output-stationary": {"rows": 3, "cols": 2, "port_bytes": 4},
    "weight-stationary": {"rows": 2, "cols": 3, "port_bytes": 4, "split": True},
    "outer-product": {"rows": 2, "cols": 2, "port_bytes": 2},
}


@functools.cache
def model(core):
    return AcceleratorModel(
        DesignPoint.create("accelerator", core=core, spad_kib=2, acc_kib=2, channel_words=8, residual_words=64, **DESIGNS[core])
    )


def point(core):
    return DesignPoint.create("accelerator", core=core, spad_kib=2, acc_kib=2, channel_words=8, residual_words=64, **DESIGNS[core])


@pytest.fixture
def job():
    machine = model("output-stationary").machine
    problem = Problem(machine=machine, op=gemm(10, 7, 30))
    program = lower(problem, Schedule(m=2, n=2, k=3))
    operands = random_operands(problem, np.random.default_rng(0))
    return problem, program, operands


@pytest.mark.parametrize("core", DESIGNS)
def test_random_points_are_right_in_every_bit_and_every_cycle(core):
    rng = np.random.default_rng(list(DESIGNS).index(core))
    for _ in range(25):
        case = random_case(rng, point(core))
        assert run_case(case, model(core)) == "", case.to_dict()


def test_programs_follow_each_other_without_reset(job):
    problem, program, operands = job
    for _ in range(3):
        memory = image_of(problem, operands)
        run = model("output-stationary").run(program, memory, reset=False)
        assert np.array_equal(result_of(program, memory), expected(problem, operands))
        assert run.events == predict(problem.machine, program)


def test_a_new_model_needs_no_reset(job):
    problem, program, operands = job
    fresh = AcceleratorModel(point("output-stationary"))
    assert fresh.run(program, image_of(problem, operands), reset=False).events == predict(problem.machine, program)


def test_a_word_of_channels_may_take_more_than_256_beats():
    rig = AcceleratorModel(
        DesignPoint.create("accelerator", core="outer-product", rows=1, cols=33, port_bytes=1, spad_kib=2, acc_kib=2, channel_words=2)
    )
    problem = Problem(machine=rig.machine, op=gemm(1, 33, 8), output=Output(narrow=True, bias=True, shift=34))
    program = lower(problem, Schedule(m=1, n=1, k=1, order="mnk", a_slots=1, b_slots=1, c_slots=1, lag=0))
    operands = random_operands(problem, np.random.default_rng(0))
    memory = image_of(problem, operands)
    assert rig.run(program, memory).events == predict(rig.machine, program)
    assert np.array_equal(result_of(program, memory), expected(problem, operands))


def test_counters_are_readable_from_outside(job):
    problem, program, operands = job
    for _ in range(2):
        run = model("output-stationary").run(program, image_of(problem, operands))
        counters = model("output-stationary").counters
        ledger = array_ledger(problem.machine, program, run.events)
        assert counters["cycles"] == run.cycles + 1
        assert counters["beats"] == ledger["beats"]
        assert 0 < counters["load_waits"] < run.cycles


def test_an_event_in_another_cycle_is_noticed(job):
    problem, program, operands = job
    run = model("output-stationary").run(program, image_of(problem, operands), timing=MemoryTiming(latency=9))
    other = predict(problem.machine, program, memory=MemoryTiming(latency=10))
    assert run.events != other
    assert (
        first_difference(other, run.events)
        == "load_done 0 in cycle " + f"{run.events.times['load_done'][0]}, predicted {other.times['load_done'][0]}"
    )


@pytest.mark.parametrize("word", [0, 6, 7, 1, 2, 3])
def test_an_illegal_command_raises_the_error_flag_and_does_not_hang(job, word):
    """Unknown codes, and commands with a size of zero."""
    problem, program, operands = job
    illegal = np.zeros((1, 32), np.uint8)
    illegal[0, 0] = word
    memory = image_of(problem, operands)
    run = model("output-stationary").run(np.concatenate([program.words[:5], illegal, program.words[5:]]), memory, max_cycles=50_000)
    assert run.error
    assert np.array_equal(result_of(program, memory), expected(problem, operands))
    assert not model("output-stationary").run(program, memory).error


def test_a_stream_without_end_is_named(job):
    problem, program, operands = job
    with pytest.raises(SimulationError, match=r"^the command stream ended without END being accepted"):
        model("output-stationary").run(program.words[:-1], image_of(problem, operands), hang_limit=2000)


def test_the_watchdog_names_the_awaited_counter(job):
    problem, program, operands = job
    words = program.words[[0, 1, 2, *range(4, len(program.words))]]  # without the first load
    with pytest.raises(SimulationError, match=r"compute waits for loads"):
        model("output-stationary").run(words, image_of(problem, operands), hang_limit=2000)


def test_a_bound_on_cycles_holds(job):
    problem, program, operands = job
    with pytest.raises(SimulationError, match=r"^the program did not end within 50 cycles$"):
        model("output-stationary").run(program, image_of(problem, operands), max_cycles=50)


def test_a_program_of_another_design_is_refused(job):
    problem, program, operands = job
    with pytest.raises(HashMismatchError, match=r"^program was made for design"):
        model("outer-product").run(program, image_of(problem, operands))
    assert Program.from_bytes(program.to_bytes()).design_hash == program.design_hash


def test_back_pressure_changes_time_but_no_bit(job):
    problem, program, operands = job
    memory = image_of(problem, operands)
    run = model("output-stationary").run(program, memory, stalls=Stalls(read=0.5, write=0.5, command=0.5, seed=3))
    assert np.array_equal(result_of(program, memory), expected(problem, operands))
    assert run.cycles > predict(problem.machine, program).cycles


def test_a_store_that_adds_its_neighbours_residuals_is_caught():
    accelerator = model("output-stationary")
    output = Output(narrow=True, shift=20, residual=True, residual_multiplier=1 << 19, residual_zero_point=-3)
    problem = Problem(machine=accelerator.machine, op=gemm(9, 5, 8), output=output)
    program = lower(problem, Schedule(m=1, n=2, k=1))
    operands, timing = random_operands(problem, np.random.default_rng(0)), MemoryTiming(latency=90)
    operands = replace(operands, multiplier=np.zeros(5, np.int64))  # nothing but the residuals counts
    memory = image_of(problem, operands)
    accelerator.run(program, memory, timing=timing)
    assert np.array_equal(result_of(program, memory), expected(problem, operands))
    commands = tuple(
        replace(command, values={**command.values, "residual": command.values["residual"] + 1}) if command.op is Op.STORE else command
        for command in program.commands
    )
    memory = image_of(problem, operands)
    accelerator.run(replace(program, commands=commands), memory, timing=timing)
    assert not np.array_equal(result_of(program, memory), expected(problem, operands))


def test_refresh_stays_inside_its_interval_and_more_of_it_does_not(job):
    problem, program, operands = job
    accelerator = model("output-stationary")

    def cycles(memory, seed):
        image = image_of(problem, operands)
        run = accelerator.run(program, image, timing=memory, stalls=Stalls(seed=seed))
        assert np.array_equal(result_of(program, image), expected(problem, operands))
        return run.cycles

    said = MemoryTiming(latency=9, jitter=3, refresh_interval=50, refresh_cycles=7)
    low, high = predict_interval(problem.machine, program, memory=said)
    seen = [cycles(said, seed) for seed in range(20)]
    assert low < min(seen) <= max(seen) <= high
    assert cycles(replace(said, refresh_cycles=40), 0) > high


def _zeros(op, **values):
    return Command(op, {name: 0 for name in FIELDS[op] if name not in COMMON} | values)


def _set(register, **values):
    return Command(Op.SET, {"register": register} | dict.fromkeys(REGISTERS[register], 0) | values)


WALKER = _set(Register.A, run=4, run_beats=1, taps=1, columns=1, width=4, height=1)
LOAD = {"rows": 1, "beats": 1, "first_beats": 1}
COMPUTE = {"k_units": 1, "m_blocks": 1, "n_blocks": 1}
STORE = {"m_blocks": 1, "n_blocks": 1, "rows": 1, "last_rows": 1, "last_bytes": 4}
ILLEGAL = {
    **{f"load {name} 0": [WALKER, _zeros(Op.LOAD, **{**LOAD, name: 0})] for name in LOAD},
    "load of nothing but a spare beat": [WALKER, _zeros(Op.LOAD, **LOAD, spare=1)],
    "load before its register is set": [_zeros(Op.LOAD, **LOAD)],
    **{f"walker {name} 0": [replace(WALKER, values={**WALKER.values, name: 0})] for name in ("run", "run_beats", "taps", "columns")},
    **{f"compute {name} 0": [_zeros(Op.COMPUTE, **{**COMPUTE, name: 0})] for name in COMPUTE},
    "load beyond the scratchpad": [WALKER, _zeros(Op.LOAD, **LOAD, spad=(1 << 16) - 1)],
    **{f"compute beyond {name}": [_zeros(Op.COMPUTE, **COMPUTE, **{name: (1 << 16) - 1})] for name in ("a", "b", "c")},
    "store beyond the sums": [_set(Register.STORE, beats=1), _zeros(Op.STORE, **STORE, c=(1 << 16) - 1)],
    "vector mode without": [_zeros(Op.COMPUTE, **COMPUTE, vector=1)],
    **{f"store {name} 0": [_set(Register.STORE, beats=1), _zeros(Op.STORE, **{**STORE, name: 0})] for name in STORE},
    "store before its register is set": [_zeros(Op.STORE, **STORE)],
    "store path without beats": [_set(Register.STORE)],
    "unknown register": [int(Op.SET) | 7 << FIELDS[Op.SET]["register"].offset],
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_every_illegal_command_raises_the_error_flag_and_end_comes(name):
    words = [item if isinstance(item, int) else encode(item) for item in (*ILLEGAL[name], Command(Op.END))]
    content = np.stack([np.frombuffer(word.to_bytes(32, "little"), np.uint8) for word in words])
    assert model("output-stationary").run(content, np.zeros(64, np.uint8), max_cycles=1000).error
