"""ctypes signatures of the C entry points in entries.cpp."""

from __future__ import annotations

import ctypes as c
from typing import Any

_MODEL, _BUFFER = c.c_void_p, c.c_void_p

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "celosia_open": (c.c_void_p, [c.c_void_p]),
    "celosia_prepare": (None, []),
    "celosia_close": (None, [_MODEL]),
    "celosia_reset": (None, [_MODEL, c.c_uint64]),
    "celosia_configure": (None, [_MODEL, c.c_uint64, c.c_uint64, c.c_double, c.c_double, c.c_double, c.c_uint64]),
    "celosia_records": (c.c_uint64, [_MODEL, c.c_uint64, _BUFFER, _BUFFER]),
    "celosia_stream": (c.c_int32, [_MODEL, c.c_uint64, _BUFFER, _BUFFER, c.c_uint64, _BUFFER, c.c_uint64, _BUFFER]),
    "celosia_nest": (c.c_int32, [_MODEL, _BUFFER, _BUFFER, _BUFFER, c.c_int32, _BUFFER, _BUFFER, _BUFFER]),
    "celosia_push": (c.c_int32, [_MODEL, _BUFFER, _BUFFER, _BUFFER, _BUFFER]),
    "celosia_flush": (c.c_int32, [_MODEL]),
    "celosia_idle": (c.c_int32, [_MODEL, c.c_uint64]),
    "celosia_stop": (None, [_MODEL]),
    "celosia_trace": (None, [_MODEL, c.c_void_p, c.c_uint64]),
    "celosia_trace_time": (c.c_uint64, [_MODEL]),
    "celosia_counters": (None, [_MODEL, _BUFFER]),
    "celosia_status": (None, [_MODEL, _BUFFER]),
    "celosia_bind": (None, [_MODEL]),
}
