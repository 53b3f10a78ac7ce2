"""From arguments to an exit code: what every verb has in common."""

from __future__ import annotations

from collections.abc import Sequence

from ..intrinsics.errors import CelosiaError
from .console import Console
from .parser import build_parser


def run(argv: Sequence[str] | None) -> int:
    """Parse, run the verb, and turn what it raises into one line on stderr and an exit code."""
    arguments = build_parser().parse_args(argv)
    with Console(json_wanted=arguments.json, quiet=arguments.quiet) as console:
        try:
            code: int = arguments.handler(arguments, console)
        except CelosiaError as error:
            console.error(str(error))
            return error.exit_code
        except KeyboardInterrupt as interrupt:
            console.error(str(interrupt) or "interrupted")
            return 130
        except MemoryError as error:
            console.error(f"this needs more memory than there is ({error or 'out of memory'}); make it smaller")
            return 2
        except SystemExit as leaving:  # files that define a workload in Python may do anything
            console.error(f"a Python file of the workload ended the process with code {leaving.code}; it must define operators only")
            return 2
        except BrokenPipeError:  # the reader of stdout has gone and wants no more
            return 1
        return code
