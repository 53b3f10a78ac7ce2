"""The errors of Celosia: one root, and leaves that also inherit the builtin a caller would expect.

Only the command line turns these into one line on stderr and an exit code; everything else is a traceback.
"""

from __future__ import annotations


class CelosiaError(Exception):
    """Root of every error that Celosia raises on purpose. ``exit_code`` is what the command line returns."""

    exit_code = 2


class ParameterError(CelosiaError, ValueError):
    """A parameter is outside its domain: the message says what, what is allowed, and the nearest legal value."""


class FormatError(CelosiaError, ValueError):
    """A file or a string that the user wrote does not parse; the message names the place."""


class MappingError(CelosiaError):
    """An operator cannot be tensorized onto an instruction; the message is the reason."""


class ScheduleError(MappingError):
    """A schedule is illegal for its operator and instruction."""


class SimulationError(CelosiaError):
    """A simulation did not finish: cycle bound, hang (the stuck stream is named), or a trap."""

    exit_code = 1


class MismatchError(CelosiaError):
    """A result differs from its reference."""

    exit_code = 1


class HashMismatchError(CelosiaError, ValueError):
    """An artefact belongs to another design point; both hashes are named."""


class ToolNotFoundError(CelosiaError):
    """An external tool is missing: the message says where it was looked for and how to get it."""

    exit_code = 3


class ToolFailedError(CelosiaError, RuntimeError):
    """An external tool failed; the message keeps the last lines of what it printed."""

    exit_code = 3
