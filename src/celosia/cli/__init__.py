"""The command line: one verb per job, one line per error, exit codes that scripts can rely on.

Exit codes: 0 success, 1 a check failed, 2 the user's mistake, 3 a tool is missing, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..intrinsics.errors import CelosiaError
from .console import Console
from .parser import build_parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    with Console(json_wanted=arguments.json, quiet=arguments.quiet) as console:
        try:
            code: int = arguments.handler(arguments, console)
        except CelosiaError as error:
            console.error(str(error))
            return error.exit_code
        except KeyboardInterrupt as interrupt:
            console.error(str(interrupt) or "interrupted")
            return 130
        except BrokenPipeError:
            sys.stderr.close()
            return 1
        return code
