"""Builds, runs and measures the RTL that hw made.

Names are imported when they are used, so that ``import celosia.sim`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import build
    from .gemm import simulate_gemm
    from .library import Library
    from .model import Counters, Model
    from .session import interactive
    from .toolchain import toolchain_report

_HOMES = {
    "Counters": "model",
    "Library": "library",
    "Model": "model",
    "build": "builder",
    "interactive": "session",
    "simulate_gemm": "gemm",
    "toolchain_report": "toolchain",
}

__all__ = ["Counters", "Library", "Model", "build", "interactive", "simulate_gemm", "toolchain_report"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
