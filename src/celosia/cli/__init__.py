"""The command line: one verb per job, one line per error, exit codes that scripts can rely on.

Exit codes: 0 success, 1 a check failed, 2 the user's mistake, 3 a tool is missing, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from .command import run  # here, so that Ctrl-C while modules load is one line too

        return run(argv)
    except KeyboardInterrupt:
        print("celosia: interrupted", file=sys.stderr)
        return 130
