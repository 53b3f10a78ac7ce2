"""The compiled scorers of schedules: built once by the compiler that builds the models, then loaded from the cache."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from pathlib import Path

import numpy as np

from ..intrinsics import ParameterError, ToolFailedError
from ..intrinsics.accelerator.costs import COLUMNS, LEDGER, STRUCTURE
from ..intrinsics.numerics import Array
from ..intrinsics.processors import usable_processors
from .cache import Cache, cache_root, digest
from .toolchain import require_compiler

STRETCHES = ("outer", "middle", "rest", "step")
"""What the scorer may pass over: iterations of the outer and of the middle loop, the rest of an innermost loop, and steps of it."""

_SOURCES = ("scorer.cpp", "scorer_engine.h", "scorer_parts.h", "scorer_memory.h")
_FLAGS = ("-O2", "-pthread")


def score(table: Array, *, ledger: bool = False, threads: int | None = None) -> tuple[Array, Array | None]:
    """Exact cycles of every row of a cost table; fastest where neighbouring rows agree in their `STRUCTURE`.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64
    ledger : bool
        Also account for what the array did in every cycle.
    threads : int, optional
        As many as there are processors, unless given.

    Returns
    -------
    cycles : (rows,) int64
        -1 where the schedule would evict an unfinished output tile.
    ledger : (rows, len(LEDGER)) int64 or None
    """
    count = usable_processors() if threads is None else max(threads, 1)
    ledgers = np.empty((len(table), len(LEDGER)), np.int64) if ledger else None
    return _call(load(sources()), table, ledgers, None, count), ledgers


def passed_over(table: Array, library: ctypes.CDLL | None = None) -> tuple[Array, Array]:
    """As `score`, every row alone, and the steps of the innermost loop that were not walked, since it was known what they do.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64
    library : ctypes.CDLL, optional
        By `load`, of other sources.

    Returns
    -------
    cycles : (rows,) int64
    passed : (rows, len(STRETCHES)) int64
        By what was passed over.
    """
    passed = np.empty((len(table), len(STRETCHES)), np.int64)
    return _call(library or load(sources()), table, None, passed, 1), passed


def _call(library: ctypes.CDLL, table: Array, ledgers: Array | None, passed: Array | None, threads: int) -> Array:
    if table.ndim != 2 or table.shape[1] != len(COLUMNS):
        raise ParameterError(f"a cost table must have {len(COLUMNS)} columns, not shape {table.shape}")
    table = np.ascontiguousarray(table, np.int64)
    cycles = np.empty(len(table), np.int64)
    results = [None if array is None else ctypes.c_void_p(array.ctypes.data) for array in (cycles, ledgers, passed)]
    library.celosia_score(ctypes.c_void_p(table.ctypes.data), ctypes.c_uint64(len(table)), *results, ctypes.c_uint64(threads))
    return cycles


@functools.lru_cache(maxsize=2)
def sources(names: tuple[str, ...] = _SOURCES) -> tuple[tuple[str, str], ...]:
    """Names and texts of a scorer's sources; the first one includes the others."""
    harness = Path(__file__).parent / "harness"
    return tuple((name, (harness / name).read_text(encoding="utf-8")) for name in names)


@functools.lru_cache(maxsize=16)
def load(texts: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    """A scorer, built from these sources if it is not in the cache."""
    compiler, cache = require_compiler(), Cache(cache_root())
    columns, structure = (", ".join(f"{name}_" for name in names) for names in (COLUMNS, STRUCTURE))
    contract = f"enum Column {{ {columns}, kColumns }};\nconstexpr int kStructure[] = {{ {structure} }};\n"
    files = {"scorer_contract.h": contract} | dict(texts)
    flags = [*compiler.dialect_flags, *_FLAGS, *compiler.link_flags]
    key = digest(["scorer", *files.values(), compiler.identity, *flags])

    def make(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        command = [*compiler.command, *flags, texts[0][0], "-o", "scorer.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode or not (folder / "scorer.so").exists():
            tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-5:]) or f"nothing (exit code {done.returncode})"
            raise ToolFailedError(f"the C++ compiler made no scorer of schedules (see celosia doctor); its last lines: {tail}")

    path = cache.ensure("scorers", key, make, file="scorer.so") / "scorer.so"
    library = cache.opened("scorers", key, f"scorer {path}", lambda: ctypes.CDLL(os.fspath(path)))
    library.celosia_score.restype = None
    return library
