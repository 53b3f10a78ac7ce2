from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Convolution, Output, gemm
from celosia.compiler.accelerator.costs import fits, schedule_table
from celosia.compiler.accelerator.job import expected, image_of, random_operands, result_of
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.operators import convolution_of, reference, weights_of
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.compiler.operators import from_te, parse
from celosia.explore.accelerator_selftest import random_case, random_design
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import MappingError, ParameterError, ScheduleError
from celosia.intrinsics.accelerator import Limits, MemoryTiming, Op, Program, predict
from celosia.intrinsics.accelerator.costs import lower_bound
from celosia.intrinsics.accelerator.functional import execute
from celosia.intrinsics.accelerator.ledger import array_ledger, critical_path


def make(**parameters):
    return machine_of(
        DesignPoint.create("accelerator", **{"rows": 4, "cols": 4, "spad_kib": 4, "acc_kib": 4, "port_bytes": 8, **parameters})
    )


def cases(seed, count):
    rng = np.random.default_rng(seed)
    while count:
        try:
            point = random_design(rng)
        except ParameterError:
            continue
        for _ in range(2):
            yield random_case(rng, point), machine_of(point)
            count -= 1


def test_programs_compute_the_reference_on_every_core():
    for case, machine in cases(1, 60):
        problem = Problem(machine=machine, op=case.op, output=case.output)
        program = lower(problem, case.schedule)
        operands = random_operands(problem, np.random.default_rng(case.seed))
        memory = image_of(problem, operands)
        execute(machine, program, memory)
        assert np.array_equal(result_of(program, memory), expected(problem, operands)), case.to_dict()


def test_a_wrong_weight_or_a_dropped_command_is_noticed():
    problem = Problem(machine=make(), op=gemm(9, 7, 40))
    program = lower(problem, Schedule(m=1, n=1, k=2))
    operands = random_operands(problem, np.random.default_rng(0))
    want = expected(problem, operands)
    memory = image_of(problem, operands)
    problem.buffers[1].view(memory)[3, 5] ^= 1
    execute(problem.machine, program, memory)
    assert not np.array_equal(result_of(program, memory), want)
    index = next(i for i, command in enumerate(program.commands) if command.op is Op.COMPUTE)
    kept = program.commands[:index] + program.commands[index + 1 :]
    broken = replace(program, commands=tuple(replace(command, loads=None, computes=None, stores=None) for command in kept))
    memory = image_of(problem, operands)
    execute(problem.machine, broken, memory)
    assert not np.array_equal(result_of(program, memory), want)


def test_programs_say_what_they_are():
    machine = make()
    titles = {
        "matrix product 9x7x40": gemm(9, 7, 40),
        "convolution 1x5x4x6 by 8x3x2 in 2 groups, stride 2": Convolution(
            height=5, width=4, channels=6, filters=8, kernel=(3, 2), groups=2, stride=2
        ),
    }
    for title, op in titles.items():
        program = lower(Problem(machine=machine, op=op), Schedule(m=1, n=1, k=1))
        assert Program.from_bytes(program.to_bytes()).title == title


def test_serialised_programs_are_the_same_words():
    for case, machine in cases(2, 10):
        program = lower(Problem(machine=machine, op=case.op, output=case.output), case.schedule)
        again = Program.from_bytes(program.to_bytes())
        assert np.array_equal(again.words, program.words)
        assert again.buffers == program.buffers
        assert predict(machine, again, memory=case.timing).times == predict(machine, program, memory=case.timing).times


def test_both_ledgers_sum_to_the_total():
    for case, machine in cases(3, 60):
        program = lower(Problem(machine=machine, op=case.op, output=case.output), case.schedule)
        events = predict(machine, program, memory=case.timing, limits=case.limits)
        ledgers = array_ledger(machine, program, events), critical_path(machine, program, events, memory=case.timing, limits=case.limits)
        for ledger in ledgers:
            assert sum(ledger.values()) == events.cycles
            assert min(ledger.values()) >= 0


def test_the_lower_bound_holds():
    for case, machine in cases(4, 60):
        problem = Problem(machine=machine, op=case.op, output=case.output)
        bound = lower_bound(schedule_table(problem, [case.schedule], timing=case.timing, limits=case.limits))[0]
        assert bound <= predict(machine, lower(problem, case.schedule), memory=case.timing, limits=case.limits).cycles


def test_more_latency_never_ends_earlier():
    for case, machine in cases(5, 20):
        program = lower(Problem(machine=machine, op=case.op, output=case.output), case.schedule)
        ends = [predict(machine, program, memory=MemoryTiming(latency=latency), limits=case.limits).cycles for latency in (1, 2, 5, 30)]
        assert ends == sorted(ends)


def test_the_closed_form_of_a_single_buffered_gemm():
    """Everything in series: the sum of what each command takes, with k innermost and whole tiles."""
    machine = make(channel_words=0, outstanding=64)
    m, n, k, latency = 3, 2, 2, 7
    problem = Problem(machine=machine, op=gemm(4 * m * 2, 4 * n * 3, problem_chunk(machine) * k * 4))
    schedule = Schedule(m=m, n=n, k=k, a_slots=1, b_slots=1, c_slots=1, lag=0)
    cycles = predict(machine, lower(problem, schedule), memory=MemoryTiming(latency=latency)).cycles
    tiles_m, tiles_n, tiles_k = 2, 3, 4
    steps = tiles_m * tiles_n * tiles_k
    beats = problem.chunk * k // machine.port_bytes
    load = steps * (4 * m * beats + 4 * n * beats + 2 + latency + machine.read_register)
    compute = steps * (1 + m * n * machine.interval(problem.chunk * k))
    store = tiles_m * tiles_n * (machine.tail(99) + 4 * m * n * problem.out_beats + 1 + machine.store_latency)
    assert cycles == 3 + 2 + load + compute + store


def problem_chunk(machine):
    return Problem(machine=machine, op=gemm(1, 1, 1)).chunk


def test_tiles_that_do_not_fit_say_by_how_much():
    machine = make()
    problem = Problem(machine=machine, op=gemm(400, 40, 400))
    with pytest.raises(ScheduleError, match=r"^tiles need 200 words per bank of the A scratchpad, which has 128: too small by 72$"):
        lower(problem, Schedule(m=50, n=1, k=2))
    with pytest.raises(ScheduleError, match=r"^schedule has too few slots for its unfinished output tiles; allowed: more c_slots"):
        lower(problem, Schedule(m=1, n=1, k=1, order="kmn", c_slots=1))
    with pytest.raises(ScheduleError, match=r"^order of a schedule must be one of mnk, .*, not 'mmk'$"):
        Schedule(m=1, n=1, k=1, order="mmk")
    with pytest.raises(ScheduleError, match=r"^k of a schedule must be an integer of at least 1, not 0; nearest legal value: 1$"):
        Schedule(m=1, n=1, k=0)


def test_fits_agrees_with_the_check_of_one_schedule():
    machine = make()
    problem = Problem(machine=machine, op=gemm(100, 40, 400))
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        schedule = Schedule(
            m=int(rng.integers(1, 26)), n=int(rng.integers(1, 11)), k=int(rng.integers(1, 51)), c_slots=int(rng.integers(1, 4))
        )
        columns = {name: np.array([getattr(schedule, name)]) for name in ("m", "n", "k", "a_slots", "b_slots", "c_slots")}
        fit = bool(fits(problem, columns)[0])
        seen.add(fit)
        try:
            lower(problem, schedule)
        except ScheduleError:
            assert not fit
        else:
            assert fit
    assert seen == {True, False}


def test_sums_that_may_overflow_are_refused():
    machine = make(acc="int18")
    with pytest.raises(ScheduleError, match=r"^sums of 100 products of int8 x int8 may not fit int18; allowed: a reduction of at most 7"):
        Problem(machine=machine, op=gemm(4, 4, 100))
    assert Problem(machine=make(acc="int18", overflow="wrap"), op=gemm(4, 4, 100)).k_chunks == 13


def test_requantisation_needs_its_hardware():
    with pytest.raises(ScheduleError, match=r"^the design's store path has no bias or requantisation"):
        Problem(machine=make(channel_words=0), op=gemm(4, 4, 4), output=Output(narrow=True))
    with pytest.raises(
        ScheduleError,
        match=r"^40 output channels need 10 words of biases and multipliers; the design has 8; allowed: channel_words of at least 10",
    ):
        Problem(machine=make(channel_words=8), op=gemm(4, 40, 4), output=Output(bias=True))


@pytest.mark.parametrize(
    "operator",
    [
        parse("conv2d:1x9x8x6,5x3x3,s2,p1"),
        parse("gemm:5x6x7"),
        from_te("DEP", (1, 8, 9, 5, 3, 1, 1)),
        from_te("GRP", (1, 8, 8, 8, 12, 3, 2, 1, 1, 4)),
        from_te("DIL", (1, 9, 9, 3, 4, 3, 1, 1, 2)),
    ],
)
def test_operators_become_convolutions_with_the_same_result(operator):
    op = convolution_of(operator)
    inputs = operator.random_inputs(np.random.default_rng(0))
    activations = inputs[0].reshape(op.images, op.height, op.width, op.channels)
    assert np.array_equal(reference(op, activations, weights_of(operator, inputs[1])).ravel(), operator.reference(inputs).ravel())
    assert op.macs == operator.macs


def test_other_operators_are_refused():
    with pytest.raises(MappingError, match=r"^gmm:2x4x4x8 is 2 convolutions; allowed: an operator that is one"):
        convolution_of(from_te("GMM", (2, 4, 4, 8)))
    with pytest.raises(ParameterError, match=r"^K of a GEMM must be a positive integer, not 0; nearest legal value: 1$"):
        gemm(1, 1, 0)
    with pytest.raises(ParameterError, match=r"window of a convolution must not be larger"):
        Convolution(height=2, width=2, channels=1, filters=1, kernel=(3, 3))


def test_limits_and_memories_are_checked():
    machine = make(outstanding=8)
    with pytest.raises(ParameterError, match=r"^outstanding must be from 1 to 8, not 9; nearest legal value: 8$"):
        Limits.of(machine, outstanding=9)
    with pytest.raises(ParameterError, match=r"^memory latency must be an integer of at least 1, not 0; nearest legal value: 1$"):
        MemoryTiming(latency=0)
    program = lower(Problem(machine=machine, op=gemm(4, 4, 8)), Schedule(m=1, n=1, k=1))
    with pytest.raises(ParameterError, match=r"^memory image has 8 bytes; the program needs 128$"):
        program.check(machine, np.zeros(8, np.uint8))
    with pytest.raises(ParameterError, match=r"^command 3 \(LOAD\) reads byte 31; the memory image has 16 bytes$"):
        replace(program, memory_bytes=16).check(machine, np.zeros(16, np.uint8))


RESIDUAL = Output(narrow=True, bias=True, shift=30, residual=True, residual_multiplier=-(1 << 31), residual_zero_point=255)


@pytest.mark.parametrize("core", ["output-stationary", "weight-stationary", "dot-product"])
def test_residuals_are_added_before_the_shift(core):
    machine = make(core=core, channel_words=8, residual_words=64)
    op = Convolution(images=2, height=5, width=4, channels=3, filters=9, kernel=(3, 3), pad=1)
    for seed, output in enumerate((RESIDUAL, replace(RESIDUAL, low=0, high=255))):
        problem = Problem(machine=machine, op=op, output=output)
        program = lower(problem, Schedule(m=2, n=2, k=1))
        operands = random_operands(problem, np.random.default_rng(seed))
        memory = image_of(problem, operands)
        execute(machine, program, memory)
        assert np.array_equal(result_of(program, memory), expected(problem, operands))
        assert not np.array_equal(expected(problem, operands), expected(problem, replace(operands, residual=None)))


def test_residuals_that_cannot_be_added_are_refused():
    with pytest.raises(ParameterError, match=r"^residuals are added to 8-bit outputs, not to 32-bit sums; allowed: int8 or uint8 "):
        Output(residual=True)
    with pytest.raises(ScheduleError, match=r"adds no residuals; allowed: residual_words of at least 2$"):
        Problem(machine=make(channel_words=8), op=gemm(4, 4, 4), output=RESIDUAL)
    depthwise = Convolution(height=5, width=5, channels=8, filters=8, kernel=(3, 3), groups=8)
    with pytest.raises(ScheduleError, match=r"vector mode .* adds no residuals"):
        Problem(machine=make(core="outer-product", channel_words=8, residual_words=8), op=depthwise, output=RESIDUAL)
    with pytest.raises(ScheduleError, match=r"^tiles need 32 words of the memory of residuals, which has 8: too small by 24$"):
        lower(Problem(machine=make(channel_words=8, residual_words=8), op=gemm(16, 8, 8), output=RESIDUAL), Schedule(m=2, n=2, k=1))
    with pytest.raises(ParameterError, match=r"^residual_words must be 0 without channel_words"):
        make(channel_words=0, residual_words=8)
    with pytest.raises(ParameterError, match=r"^residual_words must be .* 2, .*not 1; nearest legal value: 0$"):
        make(channel_words=8, residual_words=1)


@pytest.mark.parametrize(
    ("operator", "port_bytes", "reason"),
    [
        ("gemm:4x4x4096", 1, r"^port beats of what lies together along k of A would be 4096; .* or a wider port$"),
        ("gemm:4x4x70000", 64, r"^bytes that lie together along k of A would be 70000;"),
        ("conv2d:1x4x20000x4,4x1x1", 4, r"^output columns of A would be 20000;"),
        ("conv2d:1x20000x4x4,4x1x1", 4, r"^image rows of A would be 20000;"),
        ("conv2d:1x4x300x4096,4x1x1", 4, r"^bytes of an image row of A would be 1228800;"),
        ("conv2d:1x130x130x8,4x1x1,s64", 4, r"^stride of A would be 64; the commands hold 0 to 63, so allowed: a smaller operator$"),
    ],
)
def test_what_no_command_can_hold_is_refused_before_any_schedule(operator, port_bytes, reason):
    with pytest.raises(ScheduleError, match=reason):
        Problem(machine=make(port_bytes=port_bytes), op=convolution_of(operator))


def test_the_longest_reductions_are_cut_anywhere():
    machine = make(port_bytes=16)
    problem = Problem(machine=machine, op=gemm(4, 4, 65520))
    assert predict(machine, lower(problem, Schedule(m=1, n=1, k=16))).cycles > 65520


def test_tiles_with_longer_rows_than_a_command_holds_are_refused():
    op = Convolution(height=64, width=8, channels=1000, filters=4, kernel=(60, 5))
    problem = Problem(machine=make(port_bytes=16, spad_kib=4096, overflow="wrap"), op=op)
    tile = {"m": 1, "n": 1, "k": 60, "a_slots": 1, "b_slots": 1, "c_slots": 1}
    with pytest.raises(ScheduleError, match=r"^a row of a tile takes \d+ port beats; allowed: below 16384"):
        lower(problem, Schedule(**tile))
    assert not fits(problem, {name: np.array([size]) for name, size in tile.items()})[0]
