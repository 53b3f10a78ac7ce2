"""The area of an accelerator: its memories bit for bit those of the RTL, its logic near to what Yosys makes of it."""

import re

import pytest
from amaranth.back import rtlil

from celosia.hw import DesignPoint
from celosia.intrinsics import ParameterError
from celosia.sim.area import estimate_area, synthesize_area
from celosia.sim.area_accelerator import TRANSISTORS_PER_BIT, accelerator_parts, memory_bits, memory_kib

SMALL = {"rows": 4, "cols": 4, "spad_kib": 1, "acc_kib": 1, "port_bytes": 4, "channel_words": 0}


def make(**parameters):
    return DesignPoint.create("accelerator", **{**SMALL, **parameters})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"core": "weight-stationary", "rows": 3, "split": True, "queue_depth": 5, "outstanding": 9},
        {"core": "dot-product", "lanes": 3, "port_bytes": 16, "channel_words": 4, "spad_kib": 4},
        {
            "core": "outer-product",
            "rows": 1,
            "cols": 5,
            "port_bytes": 1,
            "acc": "int24",
            "a": "int16",
            "residual_words": 6,
            "channel_words": 2,
        },
    ],
)
def test_the_bits_of_the_memories_are_those_of_the_rtl(parameters):
    point = make(**parameters)
    text = rtlil.convert(point.component(), name="top", emit_src=False)  # every part as often as it is there
    built = sum(int(width) * int(size) for width, size in re.findall(r"^  memory width (\d+) size (\d+)", text, re.M))
    assert sum(memory_bits(point).values()) == built
    assert memory_kib(point) == built / 8192
    assert sum(memory_bits(make(**{**parameters, "queue_depth": 12})).values()) != built


def test_the_estimate_adds_up_and_counts_accumulators_twice():
    point = make()
    estimate, bits = estimate_area(point), memory_bits(point)
    assert sum(estimate.breakdown_transistors.values()) == estimate.transistors
    assert estimate.source == "estimate"
    assert estimate.breakdown_transistors["memories"] == TRANSISTORS_PER_BIT * (sum(bits.values()) + bits["accumulators"])
    assert estimate_area(make(spad_kib=2)).transistors - estimate.transistors == TRANSISTORS_PER_BIT * 2 * 8192
    assert estimate_area(make(channel_words=1)).breakdown_transistors["store path"] > 4 * 60_000
    with pytest.raises(ParameterError, match=r"^only a design of family accelerator has memories, not one of systolic$"):
        memory_bits(DesignPoint.create("systolic", rows=2, cols=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"core": "weight-stationary", "rows": 2, "cols": 3, "port_bytes": 8, "split": True},
        {"core": "dot-product", "rows": 2, "cols": 2, "lanes": 4},
        {"core": "outer-product", "rows": 3, "cols": 2, "port_bytes": 8, "channel_words": 2},
    ],
)
def test_the_logic_is_near_to_synthesis(parameters):
    point = make(**parameters)
    estimate, synthesis = estimate_area(point), synthesize_area(point)
    memories = synthesis.breakdown_transistors["memories"]
    assert memories == estimate.breakdown_transistors["memories"]
    logic = synthesis.breakdown_transistors["logic"]
    assert abs((estimate.transistors - memories) / logic - 1) < 0.1
    parts = accelerator_parts(point.parameters, memory_bits(point))
    assert estimate.transistors - memories - parts["loader"][0] < 0.95 * logic  # a part that is left out is noticed
