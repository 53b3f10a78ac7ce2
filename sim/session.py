"""A design under PyVerilator: set a port, tick the clock, read a port, dump waves; on the same library as everything else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..intrinsics import CelosiaError, SimulationError
from ..intrinsics.numerics import Array
from .builder import build
from .model import Model

if TYPE_CHECKING:
    from .builder import Design


@contextlib.contextmanager
def interactive(design: Design, *, vcd: str | Path | None = None) -> Iterator[Session]:
    """Open a design for single steps: ``with interactive(point) as s: s.io.i_a_valid = 1; s.clock.tick(); int(s.io.o_c_valid)``.

    Parameters
    ----------
    design : DesignPoint or RtlDesign
    vcd : path, optional
        Dump every change from the start into this file.

    Yields
    ------
    Session
        The block has been reset.
    """
    session = Session(design)
    try:
        if vcd is not None:
            session.start_vcd(vcd)
        yield session
    finally:
        session.close()


class Session:
    """One model under PyVerilator and under the batch entry points at once. Use `interactive` to get one.

    Attributes
    ----------
    io
        Ports by name: assign to an input, read any of them as an integer.
    clock
        ``clock.tick()`` is one cycle.
    model : Model
        Batch entries on the same block; set what it runs with, as its cycles are dumped too.
    """

    def __init__(self, design: Design) -> None:
        self.library = build(design)
        self.library.handle.celosia_prepare()
        self._sim = pyverilator_class()(os.fspath(self.library.path))
        self.model = Model(self.library, pointer=self._sim.model)
        self.io, self.clock = self._sim.io, self._sim.clock
        self._dumping = False

    def start_vcd(self, path: str | Path) -> None:
        """Dump every change from now on into ``path``.

        Raises
        ------
        CelosiaError
            If the file cannot be written.
        SimulationError
            If a dump is running already.
        """
        if self._dumping:
            raise SimulationError(f"a dump into {self._sim.vcd_filename} is running; call stop_vcd first")
        try:
            with Path(path).open("wb"):
                pass
        except OSError as error:
            raise CelosiaError(f"wave file {path} cannot be written ({error.strerror or error}); choose another path") from error
        # PyVerilator's own method takes ASCII paths only
        start = self._sim.lib.start_vcd_trace
        start.argtypes, start.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
        self._sim.vcd_trace = start(self._sim.model, os.fsencode(path))
        self._sim.vcd_filename = os.fspath(path)
        self._sim.auto_tracing_mode = "clock"
        self._sim.curr_time = 0
        self._sim.add_to_vcd_trace()
        self._dumping = True

    def stop_vcd(self) -> None:
        """Finish the dump, if there is one."""
        if self._dumping:
            self._dumping = False
            self._sim.stop_vcd_trace()

    @property
    def vcd_time(self) -> int:
        """Time stamp of the last entry in the dump; 20 per cycle."""
        return int(self._sim.curr_time)

    def run_records(self, records: Array) -> Array:
        """`Model.run_records` on this block; the cycles are dumped."""
        with self.dumping():
            return self.model.run_records(records)

    def gemm(self, a: Array, b: Array, *, order: str = "mnk") -> Array:
        """`Model.gemm` on this block; the cycles are dumped."""
        with self.dumping():
            return self.model.gemm(a, b, order=order)

    @contextlib.contextmanager
    def dumping(self) -> Iterator[Model]:
        """The batch model, with its cycles in the dump if one is running."""
        lib, pointer = self.library.handle, self.model.pointer
        if self._dumping:
            lib.celosia_trace(pointer, self._sim.vcd_trace, self._sim.curr_time)
        try:
            yield self.model
        finally:
            if self._dumping:
                self._sim.curr_time = lib.celosia_trace_time(pointer)
                lib.celosia_trace(pointer, None, 0)
                self._sim.flush_vcd_trace()

    def close(self) -> None:
        """Finish the dump and free the block."""
        self.stop_vcd()
        self.model.close()
        del self._sim


def pyverilator_class() -> Any:
    """Class ``pyverilator.PyVerilator``; where its Tcl, needed for the control of GTKWave only, is broken, a stub stands in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _ensure_tclwrapper()
        from pyverilator import PyVerilator
    return PyVerilator


def _ensure_tclwrapper() -> None:
    try:
        import tclwrapper  # noqa: F401
    except Exception:  # no tkinter: ImportError; Python >= 3.11: AttributeError; no display: TclError
        for name in [name for name in sys.modules if name.partition(".")[0] == "tclwrapper"]:
            del sys.modules[name]
        stub: Any = types.ModuleType("tclwrapper")
        stub.TCLWrapper = _NoTcl
        sys.modules["tclwrapper"] = stub


class _NoTcl:
    def __init__(self, *_: object) -> None:
        raise SimulationError(
            "GTKWave cannot be controlled: the Python package tclwrapper does not work here; open the VCD file in GTKWave instead"
        )
