"""How many processors this process may use."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Processors that the system lets this process run on; where it cannot say so, those that there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
