"""Operators onto instructions: what maps, as which schedule, compiled for the host that drives a simulated design.

`tensorize` and `host` import TVM (two seconds), so they are not imported here.
"""

from .coverage import Coverage, Pair, coverage
from .operators import Operator, from_te, parse
from .reasons import Reason, Rejected
from .routes import OuterLoop, Route, examine, routes
from .schedule import Schedule, ScheduleSpace, Variable, schedule_space
from .workloads import workload

__all__ = [
    "Coverage",
    "Operator",
    "OuterLoop",
    "Pair",
    "Reason",
    "Rejected",
    "Route",
    "Schedule",
    "ScheduleSpace",
    "Variable",
    "coverage",
    "examine",
    "from_te",
    "parse",
    "routes",
    "schedule_space",
    "workload",
]
