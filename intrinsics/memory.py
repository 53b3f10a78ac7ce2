"""Refusing what does not fit into memory, before the operating system ends the process."""

from __future__ import annotations

from pathlib import Path

from .errors import ParameterError

BYTES_PER_VALUE = 36
"""At the peak, for each value of operands and result: random draws and the exact reference hold it in several wide arrays."""


def require_memory(values: int, what: str) -> None:
    """Check that random operands and the reference output of a run fit into memory.

    Parameters
    ----------
    values : int
        Of operands and result together.
    what : str
        Subject of the message.

    Raises
    ------
    ParameterError
    """
    needed, available = values * BYTES_PER_VALUE, _available_bytes()
    if available is not None and needed > available:
        raise ParameterError(
            f"{what} needs about {needed / 1e9:,.1f} GB for operands and reference, but {available / 1e9:,.1f} GB of memory are "
            f"available; make it smaller by a factor of {-(-needed // max(available, 1)):,}"
        )


def _available_bytes() -> int | None:
    """What the kernel would give without swapping, or None where it does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return 1024 * int(text.split("MemAvailable:", 1)[1].split()[0])
    except (OSError, ValueError, IndexError):
        return None
