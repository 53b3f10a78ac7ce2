import pytest

from celosia.intrinsics import Contraction, Instruction, Machine, StreamLayout, StreamTiming, abi


def machine(contraction, *, resident="acc", timing=None, a="k/m", b="k/n", c="m/n"):
    layouts = {"a": a, "b": b, "c": c}
    streams = tuple(
        StreamLayout(operand=name, port=f"p_{name}", **dict(zip(("beat_axes", "lane_axes"), text.split("/"), strict=True)))
        for name, text in layouts.items()
    )
    instruction = Instruction(name="block", contraction=contraction, resident=resident)
    return Machine(name="block", design_hash="0" * 12, instruction=instruction, streams=streams, timing=timing or StreamTiming())


def test_beats_and_lanes_multiply_to_the_operand():
    contraction = Contraction("mk,kn->mn", {"m": 4, "n": 3, "k": 5})
    block = machine(contraction)
    for operand in "abc":
        layout = block.stream(operand)
        size = 1
        for extent in contraction.shape(operand):
            size *= extent
        assert layout.beats(contraction) * layout.lanes(contraction) == size
    assert block.beats_per_call == 5


def test_a_dropped_axis_is_one_beat_or_lane():
    contraction = Contraction("mk,kn->mn", {"m": 1, "n": 3, "k": 1})
    block = machine(contraction)
    assert (block.beats_per_call, block.stream("a").lanes(contraction), block.stream("b").lanes(contraction)) == (1, 1, 3)


def test_drain():
    assert StreamTiming(latency=3).drain == 3
    assert StreamTiming(latency=3, result_interval=2, result_beats=4).drain == 9


@pytest.mark.parametrize(
    ("acc", "overflow", "resident", "limit"),
    [
        ("int32", "forbid", "acc", 131071 // 16),
        ("int20", "forbid", "acc", 1),
        ("int20", "wrap", "acc", None),
        ("int16", "saturate", "acc", None),
        ("int20", "forbid", "b", None),
        ("int20", "forbid", None, None),
    ],
)
def test_calls_per_pass(acc, overflow, resident, limit):
    contraction = Contraction("mk,kn->mn", {"m": 2, "n": 2, "k": 16}, "int8", "int8", acc, overflow)
    assert machine(contraction, resident=resident).max_calls_per_pass == limit


def test_calls_per_pass_never_overflow():
    contraction = Contraction("k,k->", {"k": 7}, "uint4", "int5", "int13")
    calls = machine(contraction).max_calls_per_pass
    assert calls * 7 * 15 * 16 <= 1 << 12
    assert (calls + 1) * 7 * 15 * 16 > 1 << 12


def test_abi_names_and_strides():
    assert abi.push_symbol("0123456789ab") == "celosia_0123456789ab_push"
    assert abi.flush_symbol("0123456789ab") == "celosia_0123456789ab_flush"
    strides = abi.stride_axes(Contraction("mk,nk->mn", {"m": 2, "n": 3, "k": 4}))
    assert strides == (("a", "m"), ("a", "k"), ("b", "n"), ("b", "k"), ("c", "m"), ("c", "n"))
    assert abi.stride_axes(Contraction("mk,kn->mn", {"m": 1, "n": 3, "k": 4})) == (("a", "k"), ("b", "k"), ("b", "n"), ("c", "n"))
