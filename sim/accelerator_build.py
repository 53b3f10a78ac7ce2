"""Library of an accelerator: the recipe and the cache of `builder`, with a harness of its own."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..intrinsics import HashMismatchError, SimulationError
from ..intrinsics.accelerator import AcceleratorMachine, Op
from . import builder
from .builder import Progress
from .cache import Cache, cache_root, digest
from .harness.generate import CLASS, identifier
from .library import RECORD_SYMBOL
from .netlist import narrowed
from .reroll import reroll
from .stepping import TOP, stepped
from .toolchain import require_compiler, require_verilator, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hw.accelerator.emit import AcceleratorRtl
    from ..hw.design_point import DesignPoint
    from ..hw.verilog import Port

_HARNESS = tuple(
    Path(__file__).parent / "harness" / name
    for name in ("accelerator.cpp", "run.h", "native_port.h", "axi4_port.h", "stream_feed.h", "register_feed.h")
)
_SOURCES = (
    *("hw/accelerator", "hw/systolic.py", "hw/array_row.py", "hw/processing_element.py", "hw/block.py", "hw/accumulator.py"),
    *("hw/shared.py", "hw/yosys.py", "intrinsics/accelerator/command.py", "intrinsics/accelerator/machine.py"),
    *("sim/netlist.py", "sim/reroll.py", "sim/widen.py", "sim/stepping.py", "sim/accelerator_build.py"),
)
_SMALL_ARRAY, _HALVES, _WHOLE = 64, "5000", "20000"
"""Elements of an array that is built more often than it runs long, and how many nodes functions have at most."""


class AcceleratorLibrary:
    """A loaded library of one accelerator.

    Parameters
    ----------
    path : Path
    machine : AcceleratorMachine
    build_seconds : float
        What building it took in this process; 0 if it was cached.

    Raises
    ------
    OSError
        If the file cannot be loaded.
    HashMismatchError
        If it belongs to another design.
    """

    def __init__(self, path: Path, machine: AcceleratorMachine, *, build_seconds: float = 0.0) -> None:
        self.path, self.machine, self.build_seconds = path, machine, build_seconds
        self.handle = ctypes.CDLL(os.fspath(path))
        record = json.loads(ctypes.c_char_p.in_dll(self.handle, RECORD_SYMBOL).value or b"{}")
        if record.get("design_hash") != machine.design_hash:
            raise HashMismatchError(f"library {path} was built for design {record.get('design_hash')}, not for {machine.design_hash}")
        self.handle.construct.restype = ctypes.c_void_p
        for name in ("destruct", "eval", "celosia_accelerator_run"):
            getattr(self.handle, name).restype = None

    def port(self, model: ctypes.c_void_p, name: str) -> int:
        """Present value of an output of at most 32 bits."""
        read = getattr(self.handle, f"get_{name}")
        read.restype = ctypes.c_uint32
        return int(read(model))

    def access(self, model: ctypes.c_void_p, offset: int, *, data: int | None = None, strobe: int = 15) -> tuple[int, int]:
        """Read a memory-mapped register, or write ``data``; returns the data and AXI4-Lite's response code.

        Raises
        ------
        SimulationError
            If no answer comes.
        """
        access = self.handle.celosia_register_access
        access.restype = ctypes.c_int64
        found = int(access(model, int(data is not None), ctypes.c_uint32(offset), ctypes.c_uint32(data or 0), ctypes.c_uint32(strobe)))
        if found < 0:
            raise SimulationError(f"the register at {offset:#x} does not answer")
        return found & 0xFFFFFFFF, found >> 32

    def construct(self) -> ctypes.c_void_p:
        """A new instance of the model; it takes the clock's first value for the one before."""
        model = ctypes.c_void_p(self.handle.construct())
        self.handle.eval(model)
        return model


_loaded: dict[Path, AcceleratorLibrary] = {}
_loading = threading.Lock()


def build_accelerator(point: DesignPoint, *, progress: Progress | None = None) -> AcceleratorLibrary:
    """Build and load the library of an accelerator, or load it from the cache.

    Raises
    ------
    ToolNotFoundError, ToolFailedError, CelosiaError
        As `builder.build`.
    """
    job = _AcceleratorJob.of_point(point, progress or (lambda stage: None))
    seconds = job.ensure()
    with _loading:
        if job.path not in _loaded:
            machine: Any = job.machine
            _loaded[job.path] = job.load(lambda: AcceleratorLibrary(job.path, machine, build_seconds=seconds))
        return _loaded[job.path]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AcceleratorJob(builder.Job):
    """The stages of `builder` with another emitter and another harness; grids are loops, nothing is traced."""

    @property
    def model_style(self) -> tuple[str, ...]:
        """Loops stay loops; functions of a small array are halved, so that two compilers share them, those of a large one run faster."""
        machine: Any = self.machine
        size = _HALVES if machine.rows * machine.cols <= _SMALL_ARRAY else _WHOLE
        return ("--unroll-count", "0", "--output-split-cfuncs", size, "--output-split", size)

    @property
    def dumps(self) -> bool:
        return False

    @classmethod
    def of_point(cls, point: DesignPoint, progress: Progress) -> _AcceleratorJob:
        from ..hw.accelerator.machine import machine_of

        verilator, compiler = require_verilator(), require_compiler()
        machine: Any = machine_of(point)
        parts = [json.dumps(builder.plain(machine), sort_keys=True), _sources(), version_of("amaranth"), version_of("pyosys")]
        own = [path.read_text(encoding="utf-8") for path in _HARNESS]
        key = digest([*parts, *own, *builder.recipe_parts(verilator, compiler)])
        return cls(
            design=point, machine=machine, cache=Cache(cache_root()), key=key, verilator=verilator, compiler=compiler, progress=progress
        )

    def make(self, folder: Path) -> None:
        from ..hw.accelerator.emit import emit_accelerator

        self.progress("emit Verilog")
        rtl = emit_accelerator(self.design)  # type: ignore[arg-type]
        (folder / "block.v").write_text(rtl.verilog, encoding="utf-8")
        runtime = self._runtime()
        self.progress("translate with Verilator")
        (folder / "simulated.v").write_text(_simulated(rtl), encoding="utf-8")
        self._verilate(folder, TOP, "simulated.v")
        self.progress("compile")
        self._write_accelerator_sources(folder, rtl)
        self._compile(folder, runtime)
        builder.tidy(folder)

    def _write_accelerator_sources(self, folder: Path, rtl: AcceleratorRtl) -> None:
        model = folder / "model"
        ports = [{"name": port.name, "width": port.width, "direction": port.direction} for port in rtl.ports]
        record = {"key": self.key, "design_hash": self.machine.design_hash, "top": rtl.top, "ports": ports}
        (model / "wrapper.cpp").write_text(_wrapper(rtl.ports, record), encoding="utf-8")
        for path in _HARNESS:
            (model / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        (model / "design.h").write_text(_constants(rtl), encoding="utf-8")
        (model / "exports.map").write_text(
            f"{{ global: construct; destruct; eval; celosia_*; {RECORD_SYMBOL}; get_*; set_*; local: *; }};\n", encoding="utf-8"
        )
        builder.write_units(model, ("wrapper.cpp", "accelerator.cpp"), cost=50_000)


def _wrapper(ports: Sequence[Port], record: dict[str, Any]) -> str:
    """What Python calls: constructor, destructor, evaluation, access to ports of a word; and what the library says of itself."""
    words = {identifier(port.name): port.direction for port in ports if port.width <= 32}
    lines = [
        f'#include "V{CLASS}.h"\nextern "C" {{',
        f"const char* {RECORD_SYMBOL} = {json.dumps(json.dumps(record, sort_keys=True))};",
        f"V{CLASS}* construct() {{ return new V{CLASS}; }}",
        f"void destruct(V{CLASS}* model) {{ delete model; }}",
        f"void eval(V{CLASS}* model) {{ model->eval(); }}",
        *(f"uint32_t get_{name}(V{CLASS}* model) {{ return model->{name}; }}" for name in words),
        *(f"void set_{name}(V{CLASS}* model, uint32_t value) {{ model->{name} = value; }}" for name in words if words[name] == "in"),
        "}\nvoid vl_finish(const char*, int, const char*) {}\n",
    ]
    return "\n".join(lines)


def _simulated(rtl: AcceleratorRtl) -> str:
    """The same design as a simulator reads it best; grids are in the last module, the datapath."""
    control, start, datapath = rtl.verilog.rpartition("\nmodule ")
    return stepped(narrowed(control) + reroll(start + datapath), rtl.top, rtl.ports)


def _constants(rtl: AcceleratorRtl) -> str:
    """``design.h``: what the harness must know of a design."""
    from ..hw.accelerator.register_map import register_map

    machine = rtl.machine
    values = {"PORT_BYTES": machine.port_bytes, "OP_END": int(Op.END)}
    if machine.axi:
        values["AXI4"] = 1
    if machine.mapped:
        values |= {"REGISTERS": 1, **{f"REGISTER_{name}": found.offset for name, found in register_map(base=machine.axi).items()}}
    return "".join(["#pragma once\n", *(f"#define CELOSIA_{name} {value}\n" for name, value in values.items())])


@functools.lru_cache(maxsize=1)
def _sources() -> str:
    """Hash of what the RTL of an accelerator is made from."""
    root = Path(__file__).parent.parent
    files = [file for name in _SOURCES for file in (sorted((root / name).glob("*.py")) if (root / name).is_dir() else [root / name])]
    return digest(part for file in files for part in (file.name, file.read_text(encoding="utf-8")))
