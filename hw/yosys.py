"""Yosys in a process of its own: in ours, its errors would end the interpreter and its log would land on stdout."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from ..intrinsics import ToolFailedError, ToolNotFoundError

OPTIMISE = ("proc", "flatten", "opt -fast", "opt_dff", "wreduce", "opt_clean -purge")
"""Passes between RTLIL and Verilog. They keep registers and their names, and turn multiplexers into clock enables."""

_RUNNER = "import sys; sys.path[:] = [p for p in sys.path if p]; from pyosys import libyosys as ys; ys.Design().run_pass('script run.ys')"
_KEPT_LINES = 20
_TIMEOUT_SECONDS = 1800


def rtlil_to_verilog(rtlil: str) -> str:
    """Optimise a flat RTLIL design and print it as Verilog without attributes.

    Raises
    ------
    ToolNotFoundError
        If pyosys is not installed.
    ToolFailedError
        If Yosys fails; the message holds its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="celosia-") as name:
        folder = Path(name)
        (folder / "in.il").write_text(rtlil, encoding="utf-8")
        run_yosys(folder, ["read_rtlil in.il", *OPTIMISE, "write_verilog -noattr out.v"])
        return (folder / "out.v").read_text(encoding="utf-8")


def run_yosys(folder: Path, commands: list[str]) -> str:
    """Run ``commands`` with ``folder`` as the working directory, and return the log.

    Raises
    ------
    ToolNotFoundError, ToolFailedError
        As in `rtlil_to_verilog`.
    """
    if importlib.util.find_spec("pyosys") is None:
        raise ToolNotFoundError("Yosys is missing: the Python package pyosys is not installed; run pip install pyosys")
    (folder / "run.ys").write_text("\n".join(commands) + "\n", encoding="utf-8")
    command = [sys.executable, "-c", _RUNNER]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailedError(f"Yosys did not run: {error}") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_KEPT_LINES:]
        raise ToolFailedError(f"Yosys failed with status {done.returncode}: " + " | ".join(line.strip() for line in lines if line.strip()))
    return done.stdout
