"""A compiled design: a shared library that says itself which design it is."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..intrinsics import HashMismatchError, Machine
from ..intrinsics.abi import flush_symbol, push_symbol
from .harness.signatures import SIGNATURES

RECORD_SYMBOL = "_pyverilator_json_data"


class Library:
    """A loaded library of one design. Use `build` to get one.

    Parameters
    ----------
    path : Path
    machine : Machine
        The design that the library must be.
    key : str or None
        Cache key that the library must carry; None accepts any.
    build_seconds : float
        What building it took in this process; 0 if it was cached.

    Attributes
    ----------
    record : dict
        What the library carries about itself: ``design_hash``, ``key``, ``top``, ``ports``, ``machine``, record layouts.
    push_symbol, flush_symbol : str
        C symbols of the calling convention.

    Raises
    ------
    OSError
        If the file cannot be loaded.
    HashMismatchError
        If it belongs to another design.
    """

    def __init__(self, path: Path, machine: Machine, *, key: str | None = None, build_seconds: float = 0.0) -> None:
        self.path = path
        self.machine = machine
        self.build_seconds = build_seconds
        # global, so that TVM's JIT resolves push and flush by name
        self.handle = ctypes.CDLL(os.fspath(path), mode=ctypes.RTLD_GLOBAL)
        self.record = self._read_record()
        self._refuse_others(key)
        self.binding_lock = threading.Lock()
        self.binding_owner: int | None = None
        self.push_symbol = push_symbol(machine.design_hash)
        self.flush_symbol = flush_symbol(machine.design_hash)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self.handle, name)
            function.restype, function.argtypes = result, arguments

    def _read_record(self) -> dict[str, Any]:
        try:
            text = ctypes.c_char_p.in_dll(self.handle, RECORD_SYMBOL).value or b"{}"
            record = json.loads(text)
        except ValueError:
            record = {}
        return record if isinstance(record, dict) else {}

    def _refuse_others(self, key: str | None) -> None:
        found, expected = str(self.record.get("design_hash", "none")), self.machine.design_hash
        if found != expected:
            raise HashMismatchError(f"library {self.path} was built for design {found}, not for design {expected}; build it again")
        if key is not None and self.record.get("key") != key:
            raise HashMismatchError(f"library {self.path} was built with key {self.record.get('key')}, not {key}; build it again")

    @property
    def owns_symbols(self) -> bool:
        """Whether compiled operators, which find ``push`` and ``flush`` by name, call this library and no other of the same hash."""
        return all(_address(ctypes.CDLL(None), name) == _address(self.handle, name) for name in (self.push_symbol, self.flush_symbol))

    @property
    def design_hash(self) -> str:
        """Hash of the design point."""
        return self.machine.design_hash

    @property
    def input_dtype(self) -> np.dtype[Any]:
        """Packed record of all inputs but the clock, as `Model.run_records` takes it."""
        return _record_dtype(self.record["inputs"])

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """Packed record of all outputs, as `Model.run_records` returns it."""
        return _record_dtype(self.record["outputs"])

    def __repr__(self) -> str:
        return f"Library({self.machine.name!r}, {str(self.path)!r})"


def _address(library: ctypes.CDLL, symbol: str) -> int | None:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


def _record_dtype(layout: dict[str, Any]) -> np.dtype[Any]:
    fields = layout["fields"]
    formats = [f"<u{size}" if width <= 64 else ("<u4", (size // 4,)) for _, width, _, size in fields]
    return np.dtype(
        {
            "names": [field[0] for field in fields],
            "formats": formats,
            "offsets": [field[2] for field in fields],
            "itemsize": layout["bytes"],
        }
    )
