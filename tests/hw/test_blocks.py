"""Every block against the reference, bit for bit: shapes, types, overflow, gaps, back-pressure, many passes without reset."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.hw import DesignPoint

from .rig import IDS, KINDS, paused, point_of, run

SHAPES = [(1, 1), (1, 4), (3, 5), (4, 2)]
TYPES = ["int8,int8", "uint8,int4", "uint3,uint5", "int2,uint16"]
LOOSE = [
    ("wrap", "int9"),
    ("wrap", "uint7"),
    ("saturate", "int10"),
    ("saturate", "uint9"),
    ("saturate", "int2"),
    ("wrap", "uint28"),
    ("saturate", "uint28"),
]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_without_pauses(kind, shape):
    stimulus, trace = run(point_of(kind, *shape), [1, 3, 2, 1, 1, 2])
    assert trace.matches(stimulus)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("types", TYPES)
def test_types(kind, types):
    a, b = types.split(",")
    stimulus, trace = run(point_of(kind, 2, 3, a=a, b=b), [2, 1, 2], offer_a=paused(1), accept=paused(2))
    assert trace.matches(stimulus)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize(("overflow", "acc"), LOOSE)
def test_wrap_and_saturate(kind, overflow, acc):
    stimulus, trace = run(point_of(kind, 3, 2, overflow=overflow, acc=acc), [3, 1, 2], offer_b=paused(3))
    assert trace.matches(stimulus)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_widest_accumulator(kind):
    """The exact sum is then wider than any dtype."""
    stimulus, trace = run(point_of(kind, 2, 3, acc="int64"), [2, 1])
    assert trace.matches(stimulus)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("stream", ["offer_a", "offer_b", "accept"])
def test_each_stream_may_pause(kind, stream):
    """`run_streams` also checks that a waiting result stays as it is."""
    stimulus, trace = run(point_of(kind, 3, 4), [1, 2, 1, 3, 1, 1], **{stream: paused(5, 0.2)})
    assert trace.matches(stimulus)


@pytest.mark.parametrize("pipeline", range(5))
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_pipeline_depth(pipeline, depth):
    point = DesignPoint.create("dot-product", lanes=2, depth=depth, pipeline=pipeline, resident=True)
    stimulus, trace = run(point, [1, 2, 3, 1], offer_a=paused(7), accept=paused(8))
    assert trace.matches(stimulus)


def dtypes(low, high):
    return st.builds(lambda width, signed: f"{'' if signed else 'u'}int{width}", st.integers(low, high), st.booleans())


@st.composite
def points(draw):
    family = draw(st.sampled_from(["systolic", "dot-product", "outer-product"]))
    names = ("lanes", "depth") if family == "dot-product" else ("rows", "cols")
    values = {name: draw(st.integers(1, 5)) for name in names}
    values |= {"a": draw(dtypes(2, 16)), "b": draw(dtypes(2, 16)), "overflow": draw(st.sampled_from(["forbid", "wrap", "saturate"]))}
    if values["overflow"] != "forbid":
        values["acc"] = draw(dtypes(2, 40))
    if family == "systolic":
        values["dataflow"] = draw(st.sampled_from(["output-stationary", "weight-stationary"]))
        values["depth" if values["dataflow"] == "output-stationary" else "vectors"] = draw(st.integers(1, 5))
    if family == "dot-product":
        values |= {"resident": draw(st.booleans()), "pipeline": draw(st.integers(0, 4))}
    return DesignPoint.create(family, **values)


def check_random(point, calls, seed, density):
    pauses = {name: paused(seed + index, density) for index, name in enumerate(("offer_a", "offer_b", "accept"))}
    stimulus, trace = run(point, calls, seed=seed, **pauses)
    assert trace.matches(stimulus), (point.to_dict(), calls)


PASSES = st.lists(st.integers(1, 3), min_size=1, max_size=6)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(points(), PASSES, st.integers(0, 1000), st.sampled_from([0.3, 0.7, 1.0]))
def test_random_points(point, calls, seed, density):
    check_random(point, calls, seed, density)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=600)
@given(points(), PASSES, st.integers(0, 1000), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_many_random_points(point, calls, seed, density):
    check_random(point, calls, seed, density)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("shape", [(7, 7), (16, 4), (8, 8)])
def test_larger_shapes(kind, shape):
    stimulus, trace = run(point_of(kind, *shape), [1, 2, 1, 1], accept=paused(11, 0.8))
    assert trace.matches(stimulus)
