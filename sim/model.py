"""A simulated block: streams in, results out, every run bounded and accounted for."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..intrinsics import ParameterError, SimulationError, StreamLayout
from ..intrinsics.abi import stride_axes
from ..intrinsics.measurement import LEDGER_KEYS
from ..intrinsics.numerics import Array
from ..intrinsics.reference import GEMM_ROLES, GemmTiling
from .lanes import pack_lanes, unpack_lanes
from .library import Library

_T = TypeVar("_T")
_POLL_SECONDS = 0.1
_SHORT_RUN = 4096
_RESET_CYCLES = 2
MAX_PROBABILITY = 0.99
"""Highest probability of a gap or of back-pressure: with more, next to nothing happens."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What a model did since its last reset.

    Parameters
    ----------
    cycles : int
        Cycles of all runs; a run lasts from the first operand beat on offer to the last result beat accepted.
    fill, steady, drain, stall : int
        The cycles by kind: after the last activation beat (drain), else without an activation beat accepted (stall),
        else before the first result beat (fill), else steady.
    calls, runs : int
        Tile calls, and runs that were flushed.
    beats_a, beats_b, results : int
        Beats accepted on ``i_a``, ``i_b`` and ``o_c``.
    """

    cycles: int
    fill: int
    steady: int
    drain: int
    stall: int
    calls: int
    runs: int
    beats_a: int
    beats_b: int
    results: int

    @property
    def ledger(self) -> dict[str, int]:
        """Cycles by kind; they sum to ``cycles``."""
        return {key: getattr(self, key) for key in LEDGER_KEYS}


class Model:
    """One simulated instance of a design. Many may live at once; one thread at a time uses each.

    Parameters
    ----------
    library : Library
    max_cycles : int or None
        Bound on `Counters.cycles`; a run that needs more fails. None for no bound (the watchdog still ends a hang).
    gaps : float or mapping from ``"i_a"``, ``"i_b"`` to float, 0..0.99
        Probability that an operand beat is not offered in a cycle.
    backpressure : float, 0..0.99
        Probability that ``o_c`` is not ready in a cycle.
    seed : int
        Of gaps and back-pressure.
    hang_cycles : int or None
        A run fails after that many cycles without a handshake on any stream. Default: 10000 and what the design's timing adds.
    pointer : int or None
        Address of a Verilated model that somebody else owns; by default the model has its own.
    """

    def __init__(
        self,
        library: Library,
        *,
        max_cycles: int | None = None,
        gaps: float | Mapping[str, float] = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        hang_cycles: int | None = None,
        pointer: int | None = None,
    ) -> None:
        self.library = library
        self.machine = library.machine
        per_stream = gaps if isinstance(gaps, Mapping) else {"i_a": gaps, "i_b": gaps}
        rates = [_probability(f"gaps of {name}", per_stream.get(name, 0.0)) for name in ("i_a", "i_b")]
        rates.append(_probability("backpressure", backpressure))
        self.max_cycles = max_cycles
        self.hang_cycles = _positive("hang_cycles", hang_cycles) or self._default_hang_cycles(max(rates))
        self._lock = threading.RLock()
        self._lib = library.handle
        self._handle: int | None = self._lib.celosia_open(pointer)
        bound = _positive("max_cycles", max_cycles) or 2**64 - 1
        self._lib.celosia_configure(self._handle, bound, self.hang_cycles, *rates, seed % 2**62)
        self.reset()

    def _default_hang_cycles(self, rate: float) -> int:
        timing = self.machine.timing
        return int((10_000 + 16 * (timing.preload + timing.min_interval + timing.drain)) / (1 - rate))

    # ---- life

    def reset(self) -> None:
        """Reset the block, forget queued beats, clear counters and failure."""
        with self._lock:
            self._lib.celosia_reset(self.pointer, _RESET_CYCLES)

    def close(self) -> None:
        """Free the model; it cannot be used any more."""
        with self._lock:
            if self._handle is not None:
                self._lib.celosia_close(self._handle)
                self._handle = None

    @property
    def pointer(self) -> int:
        """Address of the simulation in C++."""
        if self._handle is None:
            raise SimulationError(f"the model of {self.machine.name} is closed")
        return self._handle

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    # ---- runs

    def run_records(self, records: Array) -> Array:
        """Step the clock once per record: inputs are set, outputs sampled before the rising edge.

        Parameters
        ----------
        records : (cycles,) of ``library.input_dtype``

        Returns
        -------
        (cycles,) of ``library.output_dtype``
        """
        if records.dtype != self.library.input_dtype or records.ndim != 1:
            raise ParameterError(
                f"records must be a 1-dimensional array of library.input_dtype, not {records.ndim}-dimensional {records.dtype}"
            )
        records = np.ascontiguousarray(records)
        out = np.zeros(len(records), self.library.output_dtype)

        def run() -> None:
            self._lib.celosia_records(self.pointer, len(records), records.ctypes.data, out.ctypes.data)

        with self._lock:
            if len(records) <= _SHORT_RUN:
                run()
            else:
                self.supervise(run)
        return out

    def stream(self, a: Array, b: Array, *, last: Array, results: int, progress: Callable[[int], None] | None = None) -> Array:
        """Offer all beats at once and collect the results.

        Parameters
        ----------
        a : (beats, lanes) integers
            Activation beats.
        b : (beats, lanes) integers
            Beats of ``i_b``, in the order in which they are sent.
        last : (beats of a,) bool
            Which activation beats end a pass.
        results : int
            Result beats to wait for.
        progress : callable, optional
            Called with the cycles so far, some ten times per second.

        Returns
        -------
        (results, lanes) in the container dtype of ``acc``
        """
        images_a, images_b = self._images("a", a), self._images("b", b)
        lasts = np.ascontiguousarray(last, np.uint8)
        if lasts.shape != (len(images_a),):
            raise ParameterError(f"last must have one flag per beat of a, so shape ({len(images_a)},), not {lasts.shape}")
        out = np.zeros((results, self._storage("c")), np.uint8)
        arguments = (len(images_a), images_a.ctypes.data, lasts.ctypes.data, len(images_b), images_b.ctypes.data, results, out.ctypes.data)
        with self._lock:
            self.supervise(lambda: self._lib.celosia_stream(self.pointer, *arguments), progress=progress)
            self.raise_for_status()
        contraction = self.machine.instruction.contraction
        return unpack_lanes(out, contraction.acc, self.machine.stream("c").lanes(contraction))

    def gemm(self, a: Array, b: Array, *, order: str = "mnk", progress: Callable[[int], None] | None = None) -> Array:
        """``A x B`` on the block, as tile calls in the given order of loops; sizes that do not divide are padded with zeros.

        Parameters
        ----------
        a : (m, k), b : (k, n)
            In the container dtypes of the operands.
        order : str
            Permutation of ``mnk``, outermost loop first.
        progress : callable, optional
            Called with the cycles so far, some ten times per second.

        Returns
        -------
        (m, n) in the container dtype of ``acc``

        Raises
        ------
        SimulationError
            If the run hits the bound on cycles, hangs, or a result comes that nobody asked for.
        """
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ParameterError(f"operands of a GEMM must have shapes (m, k) and (k, n), not {a.shape} and {b.shape}")
        tiling = GemmTiling(self.machine, a.shape[0], b.shape[1], a.shape[1])
        contraction = self.machine.instruction.contraction
        padded = {
            "a": _padded(a, tiling.padded("mk"), contraction.a.numpy, "a"),
            "b": _padded(b, tiling.padded("kn"), contraction.b.numpy, "b"),
            "c": np.zeros(tiling.padded("mn"), contraction.acc.numpy),
        }
        arguments = _nest_arguments(tiling, order, padded)
        with self._lock:
            self.supervise(lambda: self._lib.celosia_nest(self.pointer, *arguments), progress=progress)
            self.raise_for_status()
        return padded["c"][: tiling.m, : tiling.n]

    def settle(self, cycles: int | None = None) -> None:
        """Step idle cycles, which are not counted, and fail if a result comes that nobody asked for."""
        timing = self.machine.timing
        wait = cycles if cycles is not None else timing.drain + timing.min_interval + timing.preload + 8
        with self._lock:
            self._lib.celosia_idle(self.pointer, wait)
            self.raise_for_status()

    # ---- the calling convention

    @contextlib.contextmanager
    def bind(self) -> Iterator[Model]:
        """Make this model what the library's ``push`` and ``flush`` drive; other threads that want the library wait.

        Raises
        ------
        SimulationError
            If this thread has bound a model of the library already, or if another library of the same design hash was loaded
            first, so that compiled operators would call that one.
        """
        library, me = self.library, threading.get_ident()
        if not library.owns_symbols:
            raise SimulationError(
                f"this process loaded another library of design {library.design_hash} first, and compiled operators would call that one; "
                "give this RTL a hash of its own, or start a new process"
            )
        if library.binding_owner == me:
            raise SimulationError(f"this thread has already bound a model of {self.machine.name}; leave that binding first")
        with library.binding_lock:
            library.binding_owner = me
            self._lib.celosia_bind(self.pointer)
            try:
                yield self
            finally:
                self._lib.celosia_bind(None)
                library.binding_owner = None

    def push(self, a: Array, b: Array, c: Array) -> None:
        """One tile call, ``C += A x B``, on views of the tiles; the result is in ``c`` after `flush`.

        The arrays must stay alive until then. Each has the axes of its operand in the contraction.
        """
        contraction = self.machine.instruction.contraction
        arrays = {"a": a, "b": b, "c": c}
        for name, array in arrays.items():
            if array.shape != contraction.shape(name) or array.dtype != contraction.dtype(name).numpy:
                expected = f"shape {contraction.shape(name)} and dtype {contraction.dtype(name).numpy}"
                raise ParameterError(f"tile {name} must have {expected}, not {array.shape} and {array.dtype}")
        strides = [
            arrays[name].strides[contraction.operand_axes(name).index(axis)] // arrays[name].itemsize
            for name, axis in stride_axes(contraction)
        ]
        buffer = (ctypes.c_int32 * (len(strides) + 1))(*strides)
        with self._lock:
            self._lib.celosia_push(self.pointer, a.ctypes.data, b.ctypes.data, c.ctypes.data, ctypes.addressof(buffer))
            self.raise_for_status()

    def flush(self) -> None:
        """Wait until every result is in memory."""
        with self._lock:
            self._lib.celosia_flush(self.pointer)
            self.raise_for_status()

    # ---- observation

    @property
    def counters(self) -> Counters:
        """What the model did since its last reset; may be read while another thread runs it."""
        values = (ctypes.c_uint64 * 10)()
        self._lib.celosia_counters(self.pointer, ctypes.addressof(values))
        return Counters(**dict(zip(Counters.__dataclass_fields__, values, strict=True)))

    def stop(self) -> None:
        """End a run that another thread is in, within microseconds; the run then fails as stopped until `reset`."""
        self._lib.celosia_stop(self.pointer)

    def raise_for_status(self) -> None:
        """Raise `SimulationError` if the simulation has failed, with the reason."""
        values = (ctypes.c_uint64 * 11)()
        self._lib.celosia_status(self.pointer, ctypes.addressof(values))
        reason = _reason(list(values), self.max_cycles)
        if reason:
            raise SimulationError(f"simulation of {self.machine.name}: {reason}")

    def supervise(self, call: Callable[[], _T], *, progress: Callable[[int], None] | None = None) -> _T:
        """Run ``call`` (which drives this model) so that Ctrl-C ends it at once and progress is reported.

        After an interrupt the model is reset, and the exception goes on.

        Parameters
        ----------
        call : callable
            Runs in a thread of its own.
        progress : callable, optional
            Called in this thread with the cycles so far, some ten times per second.
        """
        outcome: list[tuple[bool, Any]] = []
        done = threading.Event()

        def work() -> None:
            try:
                outcome.append((True, call()))
            except BaseException as error:
                outcome.append((False, error))
            finally:
                done.set()

        worker = threading.Thread(target=work, daemon=True, name=f"celosia {self.machine.design_hash}")
        worker.start()
        try:
            while not done.wait(_POLL_SECONDS):
                if progress is not None:
                    progress(self.counters.cycles)
        except BaseException:
            self.stop()
            worker.join()
            self.reset()
            raise
        worker.join()
        succeeded, value = outcome[0]
        if not succeeded:
            raise value
        return value  # type: ignore[no-any-return]

    # ---- helpers

    def _layout(self, operand: str) -> StreamLayout:
        return self.machine.stream(operand)

    def _storage(self, operand: str) -> int:
        name = f"{self._layout(operand).port}_data"
        fields = self.library.record["inputs"]["fields"] + self.library.record["outputs"]["fields"]
        return next(int(size) for port, _, _, size in fields if port == name)

    def _images(self, operand: str, values: Array) -> Array:
        contraction = self.machine.instruction.contraction
        lanes = self._layout(operand).lanes(contraction)
        if values.ndim != 2 or values.shape[1] != lanes:
            raise ParameterError(f"beats of operand {operand} must have shape (beats, {lanes}), not {values.shape}")
        return pack_lanes(values, contraction.dtype(operand), self._storage(operand))


def _probability(name: str, value: float) -> float:
    if not 0 <= value <= MAX_PROBABILITY:
        raise ParameterError(
            f"{name} must be from 0 to {MAX_PROBABILITY}, not {value!r}; nearest legal value: {min(max(value, 0), MAX_PROBABILITY)}"
        )
    return float(value)


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ParameterError(f"{name} must be an integer of at least 1 or absent, not {value!r}; nearest legal value: 1")
    return value


def _padded(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    if array.dtype != dtype:
        raise ParameterError(f"operand {name} must have dtype {dtype}, not {array.dtype}")
    if array.shape == shape:
        return np.ascontiguousarray(array)
    padded = np.zeros(shape, dtype)
    padded[: array.shape[0], : array.shape[1]] = array
    return padded


def _nest_arguments(tiling: GemmTiling, order: str, arrays: dict[str, Array]) -> tuple[Any, ...]:
    """Arguments of celosia_nest after the model; arrays are row-major over the axes of their operand in a GEMM."""
    axes = {"a": "mk", "b": "kn", "c": "mn"}
    stride = {(name, axis): arrays[name].shape[1] if axis == axes[name][0] else 1 for name in axes for axis in axes[name]}
    nest = tiling.nest(order)
    steps = [tiling.tile(axis) * stride.get((name, axis), 0) for axis in order for name in "abc"]
    contraction = tiling.machine.instruction.contraction
    strides = [stride[pair] for pair in stride_axes(contraction)]
    pointers = [arrays[name].ctypes.data for name in "abc"]
    counts = (ctypes.c_int64 * 3)(*(loop.extent for loop in nest.loops))
    return (*pointers, len(GEMM_ROLES), counts, (ctypes.c_int64 * 9)(*steps), (ctypes.c_int32 * (len(strides) + 1))(*strides))


def _reason(values: list[int], max_cycles: int | None) -> str:
    status, quiet, *sides = values
    (wait_a, valid_a, ready_a), (wait_b, valid_b, ready_b), (due, valid_c, _) = sides[0:3], sides[3:6], sides[6:9]
    if status == 0:
        return ""
    if status == 1:
        return f"not finished after {max_cycles} cycles, the bound; {due} result beats are due, {wait_a} beats wait on i_a, {wait_b} on i_b"
    if status == 3:
        return "o_c: a result beat came though none was due"
    if status == 4:
        return "stopped"
    parts = [f"o_c: valid {'high' if valid_c else 'low'} for {quiet} cycles while {due} result beats are due"] if due else []
    for port, waiting, valid, ready in (("i_a", wait_a, valid_a, ready_a), ("i_b", wait_b, valid_b, ready_b)):
        state = f"{waiting} beats waiting, ready {'high' if ready else 'low'}" if waiting else "every beat accepted"
        parts.append(f"{port}: {state}{'' if valid or not waiting else ', not offered'}")
    return f"no handshake for {quiet} cycles; " + "; ".join(parts)
