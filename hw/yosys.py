"""Yosys in a process of its own: in ours, its errors would end the interpreter and its log would land on stdout."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..intrinsics import ToolFailedError, ToolNotFoundError

OPTIMISE = (
    "proc -noopt",
    "opt_clean",
    "flatten -separator _",
    "opt_expr",
    "opt_merge",
    "opt_dff",
    "wreduce",
    "memory_collect",
    "opt_clean -purge",
)
"""Passes between RTLIL and Verilog. They keep registers and their names, and turn multiplexers into clock enables."""

_RUNNER = Path(__file__).with_name("yosys_process.py")
_KEPT_LINES = 20
_TIMEOUT_SECONDS = 1800


class Yosys:
    """A Yosys process that loads while the caller prepares its input; use as a context manager, and run it once.

    Parameters
    ----------
    make : (module, function, arguments) or None
        Where RTLIL comes from if the process shall make it itself: a function of a module, and what it gets (plain data).

    Raises
    ------
    ToolNotFoundError
        If pyosys is not installed.
    ToolFailedError
        If the process cannot be started.
    """

    def __init__(self, make: tuple[str, str, tuple[Any, ...]] | None = None) -> None:
        if importlib.util.find_spec("pyosys") is None:
            raise ToolNotFoundError("Yosys is missing: the Python package pyosys is not installed; run pip install pyosys")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            self._process = subprocess.Popen([sys.executable, "-S", str(_RUNNER)], text=True, errors="replace", **pipes)  # type: ignore[call-overload]
        except OSError as error:
            raise ToolFailedError(f"Yosys did not run: {error}") from error
        path = [str(Path(__file__).parents[2]), *(entry for entry in sys.path if entry)]  # it is started without those of the installation
        self._write(json.dumps({"path": path, "make": make}))

    def __enter__(self) -> Yosys:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _write(self, line: str) -> None:
        with suppress(OSError):  # it has ended; why is in its log
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def begin(self, folder: Path, commands: Sequence[str]) -> None:
        """Let it run ``commands`` with ``folder`` as the working directory; RTLIL that it makes is ``in.il`` there."""
        (folder / "run.ys").write_text("\n".join(commands) + "\n", encoding="utf-8")
        self._write(str(folder))

    def finish(self) -> str:
        """Wait for the end, and return the log.

        Raises
        ------
        ToolFailedError
            If Yosys fails; the message holds its last lines.
        """
        try:
            log, _ = self._process.communicate(timeout=_TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolFailedError(f"Yosys did not run: {error}") from error
        if self._process.returncode:
            lines = [line.strip() for line in log.splitlines() if line.strip()][-_KEPT_LINES:]
            raise ToolFailedError(f"Yosys failed with status {self._process.returncode}: " + " | ".join(lines))
        return str(log)


class VerilogProcess:
    """An RTLIL design after `OPTIMISE`, as Verilog modules without attributes; use as a context manager.

    Parallel multiplexers become ``case`` over whole select words: as ``casez`` they would overlap, which linters take for a mistake.

    Parameters
    ----------
    make : (module, function, arguments) or None
        As `Yosys` takes it: the process starts to work at once. Else it waits for `give`.

    Raises
    ------
    ToolNotFoundError, ToolFailedError
        As `Yosys`.
    """

    def __init__(self, make: tuple[str, str, tuple[Any, ...]] | None = None) -> None:
        self._yosys = Yosys(make)
        self._folder = tempfile.TemporaryDirectory(prefix="celosia-")
        if make:
            self._begin()

    def _begin(self) -> None:
        self._yosys.begin(Path(self._folder.name), ["read_rtlil in.il", *OPTIMISE, "write_verilog -noattr -noparallelcase out.v"])

    def __enter__(self) -> VerilogProcess:
        return self

    def __exit__(self, *_: object) -> None:
        with self._folder:
            self._yosys.__exit__()

    def give(self, rtlil: str) -> None:
        """Let it work on this RTLIL."""
        (Path(self._folder.name) / "in.il").write_text(rtlil, encoding="utf-8")
        self._begin()

    def verilog(self) -> str:
        """Wait for the modules.

        Raises
        ------
        ToolFailedError
            If Yosys fails; the message holds its last lines.
        """
        self._yosys.finish()
        text = (Path(self._folder.name) / "out.v").read_text(encoding="utf-8")
        return text[text.index("module ") :]
