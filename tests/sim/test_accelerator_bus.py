"""AXI4 and memory-mapped commands around the accelerator: right in every bit and cycle, and every broken shell is named."""

import ctypes
import functools
import importlib.util
import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from amaranth.lib.wiring import In, Out

from celosia.compiler.accelerator.convolution import Convolution, Output, gemm
from celosia.compiler.accelerator.job import expected, image_of, random_operands, result_of
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.explore.accelerator_selftest import random_case, run_case
from celosia.hw import DesignPoint
from celosia.hw.accelerator import axi, axi_read, axi_write, registers, system, top, walker
from celosia.hw.accelerator.machine import machine_of
from celosia.hw.accelerator.register_map import ID
from celosia.intrinsics import ParameterError, SimulationError
from celosia.intrinsics.accelerator import Limits, MemoryTiming, predict, predict_interval
from celosia.intrinsics.accelerator.ledger import array_ledger, critical_path
from celosia.sim import accelerator_build
from celosia.sim.accelerator import AcceleratorModel, Stalls

SIZES = {"rows": 2, "cols": 3, "spad_kib": 2, "acc_kib": 2, "channel_words": 8, "port_bytes": 4}
DESIGNS = {
    "axi4": {"core": "outer-product", "bus": "axi4"},
    "axi4-split-registers": {"core": "output-stationary", "bus": "axi4", "split": True, "commands": "registers", "queue_depth": 2},
    "registers": {"core": "outer-product", "commands": "registers", "queue_depth": 1},
}


@functools.cache
def point(name):
    return DesignPoint.create("accelerator", **SIZES | DESIGNS[name])


@functools.cache
def model(name):
    return AcceleratorModel(point(name))


def job(name, op=None, *, output=None, **sizes):
    problem = Problem(machine=model(name).machine, op=op or gemm(10, 7, 30), output=output or Output())
    program = lower(problem, Schedule(**{"m": 2, "n": 2, "k": 3} | sizes))
    return problem, program, random_operands(problem, np.random.default_rng(0))


def check_result(problem, program, operands, memory):
    assert np.array_equal(result_of(program, memory), expected(problem, operands))


@pytest.mark.parametrize("name", DESIGNS)
def test_random_points_are_right_in_every_bit_and_every_cycle(name):
    rng = np.random.default_rng(list(DESIGNS).index(name))
    for _ in range(25):
        case = random_case(rng, point(name))
        assert run_case(case, model(name)) == "", case.to_dict()


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("resting", ["read", "write", "command"])
def test_back_pressure_on_every_channel_changes_no_bit_and_never_gains_time(name, resting):
    problem, program, operands = job(name)
    for share in (0.3, 0.9):
        memory = image_of(problem, operands)
        run = model(name).run(program, memory, stalls=Stalls(**{resting: share}, seed=5))
        check_result(problem, program, operands, memory)
        predicted = predict(problem.machine, program)
        assert run.cycles >= predicted.cycles
        assert run.events != predicted


@pytest.mark.parametrize("name", ["axi4", "axi4-split-registers"])
def test_late_data_and_late_responses_stay_in_the_interval(name):
    problem, program, operands = job(name)
    timing = MemoryTiming(latency=5, jitter=20, write_latency=3)
    low, high = predict_interval(problem.machine, program, memory=timing)
    for seed in range(5):
        memory = image_of(problem, operands)
        run = model(name).run(program, memory, timing=timing, stalls=Stalls(seed=seed))
        check_result(problem, program, operands, memory)
        assert low <= run.cycles <= high


@pytest.mark.parametrize("latency", [1, 7, 300])
def test_the_end_waits_for_the_last_write_and_both_ledgers_know(latency):
    problem, program, operands = job("axi4")
    timing = MemoryTiming(latency=3, write_latency=latency)
    memory = image_of(problem, operands)
    run = model("axi4").run(program, memory, timing=timing)
    assert run.events == predict(problem.machine, program, memory=timing)
    assert run.cycles >= run.events.times["store_done"][-1] + latency
    ledgers = array_ledger(problem.machine, program, run.events), critical_path(problem.machine, program, run.events, memory=timing)
    assert all(sum(ledger.values()) == run.cycles and min(ledger.values()) >= 0 for ledger in ledgers)


def test_contiguous_beats_are_one_burst():
    problem, program, operands = job("axi4", gemm(4, 3, 256), m=1, n=1, k=64)
    for outstanding, most in ((64, 24), (1, 1)):
        memory, limits = image_of(problem, operands), Limits.of(problem.machine, outstanding=outstanding)
        run = model("axi4").run(program, memory, limits=limits)
        check_result(problem, program, operands, memory)
        assert run.events == predict(problem.machine, program, limits=limits)
        assert most <= run.read_beats / run.read_bursts <= 64


def test_padding_reads_nothing_outside_of_the_image():
    op = Convolution(images=1, height=3, width=3, channels=5, filters=4, kernel=(3, 3), stride=1, dilation=2, pad=2)
    problem, program, operands = job("axi4", op, m=1, n=1, k=2)
    memory = image_of(problem, operands)[: program.memory_bytes].copy()
    run = model("axi4").run(program, memory)
    check_result(problem, program, operands, memory)
    assert run.events == predict(problem.machine, program)


def test_programs_follow_each_other_without_reset():
    for name in DESIGNS:
        problem, program, operands = job(name)
        for _ in range(2):
            memory = image_of(problem, operands)
            run = model(name).run(program, memory, reset=False)
            check_result(problem, program, operands, memory)
            assert run.events == predict(problem.machine, program)
            assert model(name).counters["cycles"] == run.cycles + 1 - 16 * problem.machine.mapped


# ---- error responses and registers


def read(rig, *names):
    return tuple(rig.read_register(name) for name in names)


@pytest.mark.parametrize(("buffer", "bit"), [("a", 4), ("c", 8)])
def test_an_error_response_raises_error_and_its_bit(buffer, bit):
    problem, program, operands = job("axi4-split-registers")
    rig, at = model("axi4-split-registers"), program.buffer(buffer).offset
    run = rig.run(program, image_of(problem, operands), poison=at)
    assert run.error
    assert rig.read_register("IRQ_STATUS") == 1 | bit
    assert not rig.run(program, image_of(problem, operands)).error
    assert model("axi4").run(job("axi4")[1], image_of(*job("axi4")[::2]), poison=at).error


@pytest.mark.parametrize("name", ["axi4-split-registers", "registers"])
def test_registers_tell_who_they_are_and_what_happened(name):
    problem, program, operands = job(name)
    rig, digest = model(name), int(point(name).hash, 16)
    run = rig.run(program, image_of(problem, operands))
    assert read(rig, "ID", "HASH_LOW", "HASH_HIGH") == (ID, digest & 0xFFFFFFFF, digest >> 32)
    depth = problem.machine.queue_depth
    assert read(rig, "STATUS", "QUEUE", "IRQ_STATUS", "PROGRAMS") == (2, depth, 1, 1)
    assert read(rig, "CYCLES", "BEATS") == (run.cycles - 15, array_ledger(problem.machine, program, run.events)["beats"])
    assert 0 < rig.read_register("LOAD_WAITS") < run.cycles
    rig.run(program, image_of(problem, operands), reset=False)
    assert rig.read_register("PROGRAMS") == 2


def test_the_interrupt_line_follows_enable_and_clear():
    problem, program, operands = job("registers")
    rig = model("registers")
    rig.run(program, image_of(problem, operands))
    assert rig.port("irq") == 0
    rig.write_register("IRQ_ENABLE", 1)
    assert rig.port("irq") == 1
    rig.write_register("IRQ_STATUS", 2)
    assert rig.port("irq") == 1
    rig.write_register("IRQ_STATUS", 1)
    assert (rig.port("irq"), rig.read_register("IRQ_STATUS"), rig.read_register("STATUS")) == (0, 0, 0)


def test_an_illegal_command_sets_its_bit():
    problem, program, operands = job("registers")
    illegal = np.zeros((1, 32), np.uint8)
    memory = image_of(problem, operands)
    run = model("registers").run(np.concatenate([program.words[:5], illegal, program.words[5:]]), memory)
    check_result(problem, program, operands, memory)
    assert run.error
    assert model("registers").read_register("IRQ_STATUS") == 3


def test_bytes_are_written_one_by_one_and_wrong_accesses_answered_with_an_error():
    rig = model("registers")
    rig.write_register("LIMITS", 0x01020304)
    rig.write_register("LIMITS", 0xA0B0C0D0, strobe=0b0101)
    assert rig.read_register("LIMITS") == 0x01B003D0
    with pytest.raises(SimulationError, match=r"^register ID answers a write with an error$"):
        rig.write_register("ID", 0)
    with pytest.raises(SimulationError, match=r"^register COMMAND_0 answers a read with an error$"):
        rig.read_register("COMMAND_0")
    assert rig.library.access(rig._model, 0x3C)[1] == 2
    with pytest.raises(ParameterError, match=r"^the design has no register 'BASE_LOW'; registers: ID, "):
        rig.read_register("BASE_LOW")
    with pytest.raises(ParameterError, match=r"^the design has no register 'ID'; registers: none$"):
        model("axi4").read_register("ID")


def followers(rig, program, memory):
    """Outputs of the buses that change with an input of the same cycle, in some states of a run under back-pressure."""
    width = rig.machine.port_bytes
    ports = {**axi.read_ports(width), **axi.write_ports(width), **(axi.lite_ports() if rig.machine.mapped else {})}
    outputs = [port for port, member in ports.items() if member.flow == Out and member.shape <= 32]
    inputs = [port for port, member in ports.items() if member.flow == In and member.shape <= 32]

    def next_cycle(stop, value):
        """The outputs behind ``stop`` cycles, while all inputs have the value."""
        with pytest.raises(SimulationError, match="did not end"):
            rig.run(program, memory.copy(), max_cycles=stop, stalls=Stalls(read=0.5, write=0.5, command=0.2, seed=stop))
        for port in inputs:
            getattr(rig.library.handle, f"set_{port}")(rig._model, ctypes.c_uint32(value))
        rig.library.handle.set_clk(rig._model, ctypes.c_uint32(1 - rig.port("clk")))
        rig.library.handle.eval(rig._model)
        return [rig.port(output) for output in outputs]

    seen = [(next_cycle(stop, 0), next_cycle(stop, 1)) for stop in range(40, 400, 7)]
    return {output for pair in seen for output, low, high in zip(outputs, *pair, strict=True) if low != high}


@pytest.mark.parametrize("name", ["axi4", "axi4-split-registers"])
def test_no_output_of_a_bus_depends_on_an_input_of_the_same_cycle(name):
    problem, program, operands = job(name)
    assert followers(model(name), program, image_of(problem, operands)) == set()


# ---- broken shells: built in place of the right ones, each named by the check that it must not pass

BROKEN = {
    "pages": (axi, "least(beats, to_end)", "beats", (axi_read, "burst_length"), r"^a burst crosses a 4 KiB boundary"),
    "long bursts": (
        axi_read,
        "length.eq(burst",
        "length.eq(1 + burst",
        (system, "AxiReader"),
        "^the RTL's memory differs|^a burst crosses",
    ),
    "unheld address": (axi_read, "~self.m_axi_arvalid | self.m_axi_arready", "1", (system, "AxiReader"), "^the read address changed"),
    "strobes": (axi_write, "m_axi_wstrb.eq(self.mask)", "m_axi_wstrb.eq(-1)", (system, "AxiWriter"), "^the RTL's memory differs"),
    "confirmation": (axi_write, "count != 0", "0", (system, "AxiWriter"), "^the program ended with a transfer under way"),
    "last": (axi_write, "wlast.eq(left == 1)", "wlast.eq(0)", (system, "AxiWriter"), "^WLAST is not at the end of a burst"),
    "unheld data": (axi_write, "(~self.m_axi_wvalid | self.m_axi_wready)", "1", (system, "AxiWriter"), "^the write data changed"),
    "padding": (walker, "Mux(inside, byte[self.log :], 0)", "byte[self.log :]", (top, "Walker"), "^a read outside of the memory image"),
    "full queue": (registers, "& ~queue.w_rdy", "& 0", (system, "CommandRegisters"), "stands still|did not end"),
}
"""What is broken: source, its right and its wrong text, what it makes, and the fault that must be found."""

QUICK = ("pages", "confirmation")


def broken(monkeypatch, tmp_path, module, right, wrong, place, **parameters):
    """A model with one block of the shells changed in its source."""
    user, attribute = place
    text = inspect.getsource(module)
    assert text.count(right) == 1
    path = tmp_path / "changed.py"
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(f"{module.__package__}.changed", path)
    changed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changed)
    monkeypatch.setattr(user, attribute, getattr(changed, attribute))
    sources = accelerator_build._sources()
    monkeypatch.setattr(accelerator_build, "_sources", lambda: f"{sources}, but {wrong} for {right}")
    small = {"channel_words": 0, "rows": 1, "outstanding": 256, "port_bytes": 8}
    return AcceleratorModel(DesignPoint.create("accelerator", **SIZES | DESIGNS["axi4"] | small | parameters))


def cases(design):
    """A product of several pages, then random points."""
    rng = np.random.default_rng(1)
    yield replace(
        random_case(rng, design),
        op=gemm(8, 40, 400),
        output=Output(),
        schedule=Schedule(m=2, n=2, k=16),
        limits=Limits.of(machine_of(design)),
    )
    for _ in range(80):
        yield random_case(rng, design)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BROKEN])
def test_a_broken_shell_is_named(monkeypatch, tmp_path, name):
    *change, wanted = BROKEN[name]
    queue = {"commands": "registers", "queue_depth": 1} if name == "full queue" else {}
    rig = broken(monkeypatch, tmp_path, *change, **queue)
    fault = next(filter(None, (run_case(case, rig) for case in cases(rig.point))))
    assert re.search(wanted, fault), fault


def test_an_output_that_depends_on_an_input_of_the_same_cycle_is_found(monkeypatch, tmp_path):
    change = axi_read, "m_axi_rready.eq(1)", "m_axi_rready.eq(self.m_axi_rvalid)", (system, "AxiReader")
    rig = broken(monkeypatch, tmp_path, *change, port_bytes=4)
    problem = Problem(machine=rig.machine, op=gemm(10, 7, 30))
    program = lower(problem, Schedule(m=2, n=2, k=3))
    assert "m_axi_rready" in followers(rig, program, image_of(problem, random_operands(problem, np.random.default_rng(0))))
