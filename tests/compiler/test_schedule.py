"""Routes and schedule spaces: which exist, why not, and what their schedules look like. No TVM here."""

import json
import subprocess
import sys
import timeit

import numpy as np
import pytest

from celosia.compiler import Reason, Route, Schedule, examine, parse, routes, schedule_space
from celosia.intrinsics import Contraction, Instruction, MappingError, ScheduleError


def instruction(einsum="mk,kn->mn", *types, overflow="forbid", **extents):
    return Instruction(name="block", contraction=Contraction(einsum, extents, *types, overflow=overflow))


MMA = instruction(m=4, n=4, k=16)


def kinds(operator, target):
    return {kind: "route" if isinstance(answer, Route) else answer.reason.value for kind, answer in examine(operator, target).items()}


@pytest.mark.parametrize(
    ("text", "direct", "padded", "layout"),
    [
        ("gemm:16x16x32", "route", "divisibility", "route"),
        ("gemm:16x15x32", "divisibility", "route", "route"),
        ("conv2d:1x8x8x16,8x1x1", "route", "not-einsum", "route"),
        ("conv2d:1x8x8x16,8x3x3,s2", "layout", "layout", "route"),
        ("conv2d:1x8x6x16,8x3x3,p1", "divisibility", "not-einsum", "route"),
        ("conv2d:1x8x8x32,8x3x3,p1,g2", "route", "not-einsum", "route"),
        ("cap:1x6x6x16x4x3x2x1x4", "layout", "layout", "route"),
        ("tbg:1x8x2x16", "route", "divisibility", "route"),
        ("dep:1x8x8x16x3x1x1x1", "axis-missing", "axis-missing", "axis-missing"),
        ("t2d:1x4x4x8x8x4x2x1", "guarded", "guarded", "guarded"),
        ("nrm:1x4x4", "shared-operand", "shared-operand", "shared-operand"),
    ],
)
def test_routes_of_a_tile(text, direct, padded, layout):
    assert kinds(parse(text), MMA) == {"direct": direct, "padded": padded, "layout": layout}


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        ("gemm:8x8x8", instruction("mk,kn->mn", "int4", "int8", m=2, n=2, k=2), "operand-dtype"),
        ("gemm:8x8x8", instruction("mk,kn->mn", "int12", "int8", m=2, n=2, k=2), "operand-dtype"),
        ("gemm:8x8x8", instruction("mk,kn->mn", "uint8", "int8", m=2, n=2, k=2), "operand-dtype"),
        ("gemm:8x8x8", instruction("mk,kn->mn", "int8", "int8", "int64", m=2, n=2, k=2), "accumulator"),
        ("gemm:8x8x8", instruction("mk,kn->mn", "int8", "int8", "int24", overflow="wrap", m=2, n=2, k=2), "overflow"),
        ("gemm:8x8x8", instruction("mk,kn->mn", "int8", "int8", "int32", overflow="saturate", m=2, n=2, k=2), "overflow"),
        ("gemm:8x8x8", instruction("ck,ck->c", c=4, k=2), "route"),
        ("conv2d:1x8x8x8,8x3x3", instruction("ck,ck->c", c=4, k=2), "axis-missing"),
        ("gemm:8x8x8", instruction("mxk,kn->mxn", m=2, x=2, n=2, k=2), "axes-ambiguous"),
        ("conv2d:1x4x4x1,4x1x1", MMA, "unit-reduction"),
    ],
)
def test_rejections_of_the_layout_route(text, target, reason):
    operator = parse(text)
    assert kinds(operator, target)["layout"] == reason
    if reason != "route":
        with pytest.raises(MappingError):
            routes(operator, target)


def test_accumulators_that_are_allowed():
    for acc, overflow in (("int20", "forbid"), ("int32", "wrap")):
        assert (
            kinds(parse("gemm:8x8x8"), instruction("mk,kn->mn", "int8", "int8", acc, overflow=overflow, m=2, n=2, k=2))["direct"] == "route"
        )


def test_reasons_are_of_the_closed_list():
    given = {"operand-dtype", "accumulator", "overflow", "axis-missing", "axes-ambiguous", "layout", "divisibility", "guarded"}
    assert given | {"shared-operand", "not-einsum", "unit-reduction", "refused"} <= {reason.value for reason in Reason}


def test_what_a_route_costs():
    found = {route.kind: route for route in routes(parse("gemm:7x5x20"), MMA)}
    assert set(found) == {"padded", "layout"}
    for route in found.values():
        assert route.calls == 2 * 2 * 2
        assert route.utilization == 7 * 5 * 20 / (8 * 8 * 32)
        assert route.bytes_packed == 8 * 32 + 32 * 8 + 4 * 8 * 8
    im2col = routes(parse("conv2d:1x6x6x3,5x3x3"), MMA)[-1]
    assert (im2col.kind, im2col.bytes_packed) == ("layout", 16 * 32 + 32 * 8 + 4 * 16 * 8)
    assert routes(parse("conv2d:1x8x8x16,8x1x1"), MMA)[0].bytes_packed == 0


def test_variables_of_a_space():
    space = schedule_space(parse("conv2d:1x8x8x16,8x3x3,p1"), MMA)
    values = {variable.name: variable.values for variable in space.variables}
    assert values == {
        "route": ("direct", "layout"),
        "order": ("mnk", "mkn", "nmk", "nkm", "kmn", "knm"),
        "direct.h": (1, 2, 4, 8),
        "direct.w": (1, 2),
        "direct.co": (1, 2),
        "direct.rh": (1, 3),
        "direct.rw": (1, 3),
        "layout.m": (1, 2, 4, 8, 16),
        "layout.n": (1, 2),
        "layout.k": (1, 3, 9),
    }
    assert space.size == 6 * (4 * 2 * 2 * 2 * 2 + 5 * 2 * 3)
    assert {variable.route for variable in space.variables} == {None, "direct", "layout"}


def test_nest_in_closed_form():
    space = schedule_space(parse("gmm:3x32x16x64"), MMA)
    nest = space.schedule({"route": "layout", "order": "nkm", "layout.m": 4, "layout.n": 1, "layout.k": 2}).nest
    assert [(loop.name, loop.extent, loop.role) for loop in nest.loops] == [
        ("batch", 3, "abc"),
        ("n0", 4, "bc"),
        ("k0", 2, "ab"),
        ("m0", 2, "ac"),
        ("k1", 2, "ab"),
        ("m1", 4, "ac"),
    ]
    assert nest.calls == 3 * 8 * 4 * 4
    assert nest.run_length("b") == 4


def test_every_schedule_issues_the_calls_of_its_route():
    rng = np.random.default_rng(0)
    for text in ("conv2d:1x8x8x16,8x3x3,p1", "gemm:30x18x50", "conv2d:1x9x9x3,5x3x3,s2"):
        space = schedule_space(parse(text), MMA)
        for _ in range(30):
            schedule = space.random(rng)
            assert schedule.nest.calls == schedule.calls
            assert 0 < schedule.utilization <= 1


def test_schedules_are_values_that_survive_json():
    operator = parse("conv2d:1x8x8x16,8x3x3,p1")
    space = schedule_space(operator, MMA)
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(50):
        schedule = space.random(rng)
        data = json.loads(json.dumps(schedule.to_dict()))
        assert space.from_dict(data) == schedule == Schedule.from_dict(data, operator=operator, target=MMA)
        seen.add(schedule)
    assert len(seen) > 30
    assert [space.random(np.random.default_rng(7)) for _ in range(3)] == [space.random(np.random.default_rng(7))] * 3


def test_fractions_cover_the_domain():
    space = schedule_space(parse("gemm:32x32x32"), MMA)
    order = next(variable for variable in space.variables if variable.name == "order")
    assert {order.at(fraction) for fraction in np.linspace(0, 1, 100)} == set(order.values)
    assert space.at({"route": 1.0, "order": 0.0}).route.kind == "layout"
    assert space.at({}) == space.default()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rute": "direct"}, "schedule variable must be one of route, order"),
        ({"order": "mmk"}, "order must be one of mnk"),
        ({"direct.m": 3}, "direct.m must be one of 1, 2, 4"),
        ({"route": "padded"}, "divides"),
        ({"route": "best"}, "route must be one of direct, padded, layout, not 'best'"),
    ],
)
def test_bad_values_of_schedules(values, message):
    with pytest.raises(MappingError, match=message):
        schedule_space(parse("gemm:16x16x32"), MMA).schedule(values)


def test_bad_records():
    space = schedule_space(parse("gemm:16x16x32"), MMA)
    with pytest.raises(ScheduleError, match="has the keys route, order and inner"):
        space.from_dict({"route": "direct"})
    route = space.routes[0]
    with pytest.raises(ScheduleError, match="must divide 4, not 3"):
        Schedule(route, "mnk", (3, 1, 1))
    with pytest.raises(ScheduleError, match="loop order must be a permutation"):
        Schedule(route, "mn", (1, 1, 1))


def test_a_schedule_costs_microseconds_and_no_tvm():
    space = schedule_space(parse("conv2d:1x14x14x256,256x3x3,p1"), instruction(m=16, n=16, k=16))
    values = {"route": "layout", "order": "nkm", "layout.m": 13, "layout.k": 9}
    assert min(timeit.repeat(lambda: space.schedule(values).nest.calls, number=100, repeat=5)) < 100 * 200e-6
    code = "import sys, celosia.compiler; assert not {'tvm', 'nevergrad', 'amaranth'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
