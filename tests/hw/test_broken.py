"""The checks can fail: broken blocks that they catch."""

import re

import pytest
from amaranth.hdl import Const

from celosia.hw import DesignPoint
from celosia.hw.systolic import SystolicArray
from celosia.intrinsics import SimulationError

from .rig import KINDS, paused, point_of, run

CALLS = [2, 1, 1, 3]
BOTH = pytest.mark.parametrize("kind", KINDS[:2], ids=["os", "ws"])


class DroppedLane(SystolicArray):
    def _skewed(self, m, en, lanes, name):
        kept = [*lanes[:-1], Const(0, lanes[-1].shape())] if name == "a" else lanes
        return super()._skewed(m, en, kept, name)


class FiresTwice(SystolicArray):
    def fire_jointly(self, m, en, *, hold=None):
        fire = super().fire_jointly(m, en, hold=hold)
        again = type(fire)(name="again")
        m.d.sync += again.eq(fire)
        return fire | again


class IgnoresBackPressure(SystolicArray):
    def enable(self, m):
        return Const(1)


class NeverHoldsBack(SystolicArray):
    def hold_last(self, m, en):
        return None


class LateSwap(SystolicArray):
    def _weights(self, m, en, grid, swap, load):
        later = type(self.o_c.valid)(name="later")
        m.d.sync += later.eq(swap)
        return super()._weights(m, en, grid, later, load)


def outcome(point, block, **pauses):
    try:
        stimulus, trace = run(point, CALLS, block=block, max_cycles=1000, **pauses)
    except SimulationError as error:
        return str(error)
    return "matches" if trace.matches(stimulus) else "differs"


@BOTH
def test_the_right_block_passes(kind):
    point = point_of(kind, 3, 3)
    assert outcome(point, point.component()) == "matches"


@BOTH
@pytest.mark.parametrize("wrong", [{"a": "uint8"}, {"b": "uint8"}])
def test_wrong_signedness_is_caught(kind, wrong):
    assert outcome(point_of(kind, 3, 3), point_of(kind, 3, 3, **wrong).component()) == "differs"


@BOTH
def test_dropped_lane_is_caught(kind):
    point = point_of(kind, 3, 3)
    assert outcome(point, DroppedLane(point.parameters)) == "differs"


@pytest.mark.parametrize(("right", "wrong"), [("saturate", "wrap"), ("wrap", "saturate")])
@BOTH
def test_wrong_overflow_is_caught(kind, right, wrong):
    point = point_of(kind, 3, 3, overflow=right, acc="int15")
    assert outcome(point, point_of(kind, 3, 3, overflow=wrong, acc="int15").component()) == "differs"


def test_double_firing_handshake_is_caught():
    point = DesignPoint.create("systolic", rows=3, cols=3)
    assert outcome(point, FiresTwice(point.parameters), offer_a=paused(1)) != "matches"


@BOTH
def test_ignored_back_pressure_is_caught(kind):
    point = point_of(kind, 3, 3)
    told = outcome(point, IgnoresBackPressure(point.parameters), accept=paused(1))
    assert re.fullmatch(r"o_c changed in cycle \d+ while it was valid and not ready", told)


def test_colliding_rows_are_caught():
    point = DesignPoint.create("systolic", rows=4, cols=2, depth=1)
    assert outcome(point, NeverHoldsBack(point.parameters)) != "matches"


def test_late_weights_are_caught():
    point = DesignPoint.create("systolic", rows=3, cols=2, dataflow="weight-stationary", vectors=1)
    assert outcome(point, LateSwap(point.parameters)) == "differs"


def test_missing_operands_end_at_the_bound():
    point = DesignPoint.create("dot-product", lanes=1, depth=2)
    told = outcome(point, point.component(), offer_b=lambda cycle: False)
    assert told == "no end after 1000 cycles: i_a 0 of 7 beats, i_b 0 of 7 beats, o_c 0 of 7 beats"
