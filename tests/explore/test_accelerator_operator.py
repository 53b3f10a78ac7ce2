"""Every kind of operator on RTL, natively and through TVM: bits, events, and the error paths."""

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Output
from celosia.compiler.accelerator.schedule import Schedule
from celosia.compiler.operators import from_te, parse
from celosia.explore import accelerator_operator
from celosia.explore.accelerator_operator import simulate_operator
from celosia.hw import DesignPoint
from celosia.intrinsics import MappingError, ParameterError
from celosia.intrinsics.accelerator import Program

POINT = DesignPoint.create("accelerator", rows=4, cols=4, spad_kib=4, acc_kib=4, port_bytes=8)
CORES = [{"core": "weight-stationary"}, pytest.param({"core": "dot-product", "lanes": 2}, marks=pytest.mark.slow)]

OPERATORS = [
    "conv1d:3x16x4,8x3,s2,p1",
    "conv2d:1x6x8x16,8x3x3,p1",
    "conv2d:1x5x6x6,5x3x3,s2,p1",
    "conv2d:1x5x6x6,5x1x1",
    "conv3d:1x4x4x4x3,4x3x3x3,s2,p1",
    "gemm:13x10x40",
    from_te("GRP", (1, 5, 5, 8, 12, 3, 2, 1, 1, 4)),
    from_te("DEP", (1, 5, 6, 5, 3, 1, 1)),
    from_te("DIL", (1, 7, 7, 3, 4, 3, 1, 1, 2)),
    from_te("CAP", (1, 3, 3, 4, 4, 3, 2, 1, 4)),
    from_te("T2D", (1, 4, 4, 3, 5, 4, 2, 1)),
    from_te("GMM", (2, 5, 6, 7)),
    from_te("TBG", (2, 5, 3, 7)),
    from_te("NRM", (2, 5, 6)),
]


def check(result):
    assert result.matches_reference
    assert result.events_equal
    assert result.rtl_cycles == result.model_cycles


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_every_kind_of_operator_on_rtl(operator):
    result = simulate_operator(POINT, operator)
    check(result)
    assert result.mapping["through"] == "native"
    assert result.mapping["movement"]["activations"] == "in place"
    through = simulate_operator(POINT, operator, through="tvm")
    check(through)
    assert through.mapping["route"] == "direct"
    assert through.macs == result.macs  # of the operator, whatever a module pads


@pytest.mark.parametrize("parameters", CORES, ids=str)
def test_operators_of_several_convolutions_on_other_cores(parameters):
    point = DesignPoint.create("accelerator", **{**POINT.parameters.to_dict(), **parameters})
    for operator in ("conv3d:1x4x4x4x3,4x3x3x3,s2,p1", "gmm:2x5x6x7"):
        check(simulate_operator(point, operator))
    check(simulate_operator(point, "gemm:13x10x40", through="tvm"))


BROADCAST = [{"core": "dot-product", "lanes": 2}, pytest.param({"core": "outer-product"}, marks=pytest.mark.slow)]


@pytest.mark.parametrize("parameters", BROADCAST, ids=str)
def test_depthwise_through_tvm_in_vector_mode_on_rtl(parameters):
    point = DesignPoint.create("accelerator", **{**POINT.parameters.to_dict(), **parameters})
    for shape in ((1, 9, 8, 8, 3, 2, 1), (1, 5, 7, 6, 3, 1, 1)):
        result = simulate_operator(point, from_te("DEP", shape), through="tvm")
        check(result)
        assert result.mapping["tile"][1:] == [4, 9]  # a block of channels, whole windows


KINDS = {
    "DEP": lambda rng: (1, *rng.integers(3, 12, 2), rng.integers(1, 12), 3, rng.integers(1, 3), 1),
    "GRP": lambda rng: (1, *rng.integers(3, 9, 2), *(4 * rng.integers(1, 5, 2)), 3, rng.integers(1, 3), 1, 1, rng.choice([2, 4])),
    "T2D": lambda rng: (1, *rng.integers(2, 6, 2), *rng.integers(1, 12, 2), rng.integers(2, 5), rng.integers(1, 4), rng.integers(2)),
    "C3D": lambda rng: (1, *rng.integers(3, 6, 3), *rng.integers(1, 6, 2), 3, rng.integers(1, 3), 1),
    "DIL": lambda rng: (1, *rng.integers(5, 9, 2), *rng.integers(1, 12, 2), 3, rng.integers(1, 3), 1, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("core", ["output-stationary", "weight-stationary", "dot-product", "outer-product"])
def test_random_operators_through_tvm_on_rtl(core, kind):
    point = DesignPoint.create("accelerator", **{**POINT.parameters.to_dict(), "core": core})
    rng = np.random.default_rng([2, *map(ord, core + kind)])
    for seed in range(6):
        operator = from_te(kind, tuple(map(int, KINDS[kind](rng))))
        schedule = Schedule(m=1, n=1, k=1, order=["mnk", "nmk"][seed % 2], lag=int(rng.integers(3))) if seed % 2 else "best"
        check(simulate_operator(point, operator, through="tvm", schedule=schedule, seed=seed))


def test_random_schedules_through_tvm_on_rtl():
    rng = np.random.default_rng(5)
    for _ in range(4):
        sizes = [int(size) for size in rng.integers(1, 4, 3)]
        schedule = Schedule(m=sizes[0], n=sizes[1], k=sizes[2], order=["mnk", "nmk"][int(rng.integers(2))], lag=int(rng.integers(3)))
        check(simulate_operator(POINT, "gemm:24x16x48", through="tvm", schedule=schedule))


def test_the_program_can_be_kept():
    kept = []
    result = simulate_operator(POINT, "gmm:2x5x6x7", keep=lambda program, memory: kept.append((program, memory)), fidelity="model")
    (program, memory), *more = kept
    assert not more
    assert len(memory) >= program.memory_bytes
    assert program.design_hash == result.design_hash
    assert np.array_equal(Program.from_bytes(program.to_bytes()).words, program.words)


def test_a_wrong_byte_in_memory_is_noticed(monkeypatch):
    right = accelerator_operator.observe

    def wrong(point, program, memory, **options):
        memory[program.buffer("b").offset] ^= 1
        return right(point, program, memory, **options)

    monkeypatch.setattr(accelerator_operator, "observe", wrong)
    for through in accelerator_operator.WAYS:
        assert not simulate_operator(POINT, "gmm:2x5x6x7", through=through, fidelity="model").matches_reference


def test_what_is_refused():
    with pytest.raises(ParameterError, match=r"^through must be one of native, tvm, not 'llvm'$"):
        simulate_operator(POINT, "gemm:5x6x7", through="llvm")
    with pytest.raises(ParameterError, match=r"^an operator that is several convolutions, or goes through TVM, has 32-bit sums"):
        simulate_operator(POINT, "gmm:2x5x6x7", output=Output(narrow=True))
    point = DesignPoint.create("accelerator", **{**POINT.parameters.to_dict(), "acc": "int20", "overflow": "wrap"})
    with pytest.raises(MappingError, match=r"^gmm:2x5x6x7 has no place on the design: sums of .* \(accumulator\)$"):
        simulate_operator(point, "gmm:2x5x6x7")
    assert simulate_operator(point, parse("gemm:5x6x7"), fidelity="model").matches_reference
