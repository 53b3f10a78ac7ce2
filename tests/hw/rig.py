"""Shared by the tests of the blocks: patterns of gaps, and a run of one design point."""

import numpy as np

from celosia.hw import DesignPoint
from celosia.hw.stimulus import random_stimulus
from celosia.hw.testbench import always, run_streams


def paused(seed, density=0.5):
    """A pattern that is willing in a random share of the cycles."""
    willing = np.random.default_rng(seed).random(1009) < density
    return lambda cycle: bool(willing[cycle % 1009])


def run(point: DesignPoint, calls_per_pass, *, seed=0, block=None, offer_a=always, offer_b=always, accept=always, max_cycles=8000):
    """(stimulus, trace) of random tiles through the block of ``point``, or through ``block`` in its place."""
    stimulus = random_stimulus(point, calls_per_pass=calls_per_pass, rng=np.random.default_rng(seed))
    block = point.component() if block is None else block
    trace = run_streams(block, point.parameters, stimulus, offer_a=offer_a, offer_b=offer_b, accept=accept, max_cycles=max_cycles)
    return stimulus, trace


OUTPUT_STATIONARY = ("systolic", {"dataflow": "output-stationary"})
WEIGHT_STATIONARY = ("systolic", {"dataflow": "weight-stationary"})
DOT = ("dot-product", {})
RESIDENT_DOT = ("dot-product", {"resident": True, "pipeline": 1})
OUTER = ("outer-product", {})
KINDS = [OUTPUT_STATIONARY, WEIGHT_STATIONARY, DOT, RESIDENT_DOT, OUTER]
IDS = ["os", "ws", "dot", "resident-dot", "outer"]


def point_of(kind, rows, cols, **more):
    """A design point of one of `KINDS`; a dot-product unit has ``rows`` lanes of depth ``cols``."""
    family, fixed = kind
    shape = {"lanes": rows, "depth": cols} if family == "dot-product" else {"rows": rows, "cols": cols}
    return DesignPoint.create(family, **shape, **fixed, **more)
