"""Whole operators against a stand-in design in plain C: the calling convention, flush, strides, hashes."""

import numpy as np
import pytest

from celosia.compiler import parse, schedule_space
from celosia.compiler.host import compile_host, untensorized
from celosia.compiler.tensorize import apply
from celosia.intrinsics import Contraction, HashMismatchError, Machine, ParameterError, ScheduleError, SimulationError

from .fakes import FakeDesign

TILE = Contraction("mk,kn->mn", {"m": 4, "n": 4, "k": 8})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("designs")


def run(operator, machine, values=None, *, seed=0):
    schedule = schedule_space(operator, machine).schedule(values or {})
    inputs = operator.random_inputs(np.random.default_rng(seed))
    output = compile_host(apply(operator, machine, schedule), operator, machine)(inputs)
    return schedule, np.array_equal(output, operator.reference(inputs)) and np.array_equal(output, untensorized(operator, inputs))


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("gemm:8x12x16", "direct"),
        ("gemm:7x5x19", "padded"),
        ("gemm:7x5x19", "layout"),
        ("conv2d:1x8x8x16,8x3x3,p1", "direct"),
        ("conv2d:1x13x13x3,6x7x7,s2,p3", "layout"),
    ],
)
def test_a_layer_runs_on_a_design(folder, text, kind, lazy):
    design = FakeDesign(folder, TILE, lazy=lazy)
    design.counts()
    schedule, right = run(parse(text), design.machine, {"route": kind, "order": "kmn"})
    assert right
    assert design.counts() == (schedule.calls, 1)


@pytest.mark.parametrize(
    "contraction",
    [
        Contraction("k,kn->n", {"n": 4, "k": 8}, "uint8", "int8"),
        Contraction("mk,nk->mn", {"m": 2, "n": 3, "k": 4}),
        Contraction("m,n->mn", {"m": 3, "n": 5}, "int8", "uint8"),
        Contraction("k,k->", {"k": 4}),
        Contraction(",->", {}),
    ],
    ids=str,
)
def test_other_tiles_and_types(folder, contraction):
    design = FakeDesign(folder, contraction, lazy=True)
    operator = parse("conv2d:1x6x6x8,7x3x3").typed(a=contraction.a, b=contraction.b)
    assert run(operator, design.machine)[1]


@pytest.mark.parametrize(("lazy", "fault"), [(False, "index"), (True, "flush")])
def test_a_broken_design_is_caught(folder, lazy, fault):
    design = FakeDesign(folder, TILE, lazy=lazy, fault=fault)
    for text in ("gemm:8x12x16", "conv2d:1x9x9x3,6x3x3,s2"):
        assert not run(parse(text), design.machine)[1]


def test_without_the_flush_a_lazy_design_gives_wrong_results(folder, monkeypatch):
    from celosia.compiler import host

    design = FakeDesign(folder, Contraction("mk,kn->mn", {"m": 2, "n": 4, "k": 8}), lazy=True)
    monkeypatch.setattr(host, "_flush", lambda module, design_hash: module)
    assert not run(parse("gemm:8x12x16"), design.machine)[1]
    assert design.counts()[1] == 0


def test_a_program_belongs_to_its_design(folder):
    design = FakeDesign(folder, TILE)
    operator = parse("gemm:8x12x16")
    program = compile_host(apply(operator, design.machine, schedule_space(operator, design.machine).default()), operator, design.machine)
    program.require(design.design_hash)
    with pytest.raises(HashMismatchError, match=f"made for design {design.design_hash}, not for 000000000000"):
        program.require("000000000000")
    with pytest.raises(ParameterError, match="an input of gemm:8x12x16 must be int8"):
        program([np.zeros((1, 8, 16), np.int32), np.zeros((1, 16, 12), np.int8)])


def test_a_library_that_is_not_loaded_is_named(folder):
    known = FakeDesign(folder, TILE).machine
    absent = Machine(name="absent", design_hash="feedfeedfeed", instruction=known.instruction, streams=known.streams, timing=known.timing)
    with pytest.raises(SimulationError, match="library of design feedfeedfeed is not loaded"):
        run(parse("gemm:8x12x16"), absent)


def test_a_module_without_tile_calls_is_refused(folder):
    import tvm

    operator = parse("gemm:8x12x16")
    with pytest.raises(ScheduleError, match="no nest of tile calls"):
        compile_host(tvm.IRModule({"main": operator.prim_func()}), operator, FakeDesign(folder, TILE).machine)
