"""Yosys in a process of its own: in ours, its errors would end the interpreter and its log would land on stdout."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

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

_RUNNER = (
    "import os, sys; sys.path[:] = [p for p in sys.path if p]; from pyosys import libyosys as ys; "
    "os.chdir(sys.stdin.readline()[:-1]); ys.Design().run_pass('script run.ys')"
)
_KEPT_LINES = 20
_TIMEOUT_SECONDS = 1800


class Yosys:
    """A Yosys process that loads while the caller prepares its input; use as a context manager, and run it once.

    Raises
    ------
    ToolNotFoundError
        If pyosys is not installed.
    ToolFailedError
        If the process cannot be started.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("pyosys") is None:
            raise ToolNotFoundError("Yosys is missing: the Python package pyosys is not installed; run pip install pyosys")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            self._process = subprocess.Popen([sys.executable, "-c", _RUNNER], text=True, errors="replace", **pipes)  # type: ignore[call-overload]
        except OSError as error:
            raise ToolFailedError(f"Yosys did not run: {error}") from error

    def __enter__(self) -> Yosys:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, folder: Path, commands: list[str]) -> str:
        """Run ``commands`` with ``folder`` as the working directory, and return the log.

        Raises
        ------
        ToolFailedError
            If Yosys fails; the message holds its last lines.
        """
        (folder / "run.ys").write_text("\n".join(commands) + "\n", encoding="utf-8")
        try:
            log, _ = self._process.communicate(f"{folder}\n", timeout=_TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolFailedError(f"Yosys did not run: {error}") from error
        if self._process.returncode:
            lines = [line.strip() for line in log.splitlines() if line.strip()][-_KEPT_LINES:]
            raise ToolFailedError(f"Yosys failed with status {self._process.returncode}: " + " | ".join(lines))
        return str(log)

    def verilog(self, rtlil: str) -> str:
        """An RTLIL design after `OPTIMISE`, as Verilog without attributes.

        Parallel multiplexers become ``case`` over whole select words: as ``casez`` they would overlap, which linters take for a mistake.
        """
        with tempfile.TemporaryDirectory(prefix="celosia-") as name:
            folder = Path(name)
            (folder / "in.il").write_text(rtlil, encoding="utf-8")
            self.run(folder, ["read_rtlil in.il", *OPTIMISE, "write_verilog -noattr -noparallelcase out.v"])
            return (folder / "out.v").read_text(encoding="utf-8")
