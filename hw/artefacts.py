"""Files for an RTL engineer: Verilog, a description, a C header and a self-checking testbench."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..intrinsics import ParameterError
from .design_point import HW_VERSION, DesignPoint
from .header import c_header
from .verilog import RtlDesign, emit_rtl
from .verilog_testbench import verilog_testbench


def emit_artefacts(point: DesignPoint, folder: Path | str, *, prefix: str | None = None, seed: int = 0) -> tuple[Path, ...]:
    """Write ``<name>.v``, ``<name>.json``, ``<name>.h`` and ``<name>_tb.v`` into ``folder``, which is made if need be.

    Parameters
    ----------
    point : DesignPoint
    folder : path
    prefix : str or None
        Goes before the module's name, and so before the file names.
    seed : int
        Of the testbench's random operands.

    Returns
    -------
    tuple of Path, in the order above.

    Raises
    ------
    ParameterError
        If the folder cannot be made or written to, or the memories of an accelerator are too small for a program; files that were there
        stay as they were.
    ToolNotFoundError, ToolFailedError
        If Yosys is missing or fails.
    """
    if point.family == "accelerator":
        from .accelerator.artefacts import emit_accelerator_artefacts

        return emit_accelerator_artefacts(point, folder, prefix=prefix, seed=seed)
    target = Path(folder)
    make_writable(target)
    rtl = emit_rtl(point, prefix=prefix)
    texts = {
        f"{rtl.top}.v": rtl.verilog,
        f"{rtl.top}.json": json.dumps(description(rtl), indent=2) + "\n",
        f"{rtl.top}.h": c_header(point, prefix=prefix),
        f"{rtl.top}_tb.v": verilog_testbench(point, prefix=prefix, seed=seed),
    }
    write_together(target, texts)
    return tuple(target / name for name in texts)


def description(rtl: RtlDesign) -> dict[str, Any]:
    """What the JSON file says: ports, parameters, hash, instruction, streams, timing."""
    point, contraction = rtl.point, rtl.point.instruction.contraction
    return {
        "name": rtl.top,
        "design_hash": point.hash,
        "hw_version": HW_VERSION,
        "design_point": point.to_dict(),
        "ports": [dataclasses.asdict(port) for port in rtl.ports],
        "instruction": instruction_record(point),
        "streams": [
            {**dataclasses.asdict(stream), "beats": stream.beats(contraction), "lanes": stream.lanes(contraction)}
            for stream in point.machine.streams
        ],
        "timing": {**dataclasses.asdict(point.machine.timing), "drain": point.machine.timing.drain},
        "macs_per_cycle": point.macs_per_cycle,
    }


def instruction_record(point: DesignPoint) -> dict[str, Any]:
    """What the JSON file says of a design's instruction."""
    instruction, contraction = point.instruction, point.instruction.contraction
    return {
        "name": instruction.name,
        "einsum": contraction.einsum,
        "extents": dict(contraction.extents),
        **{operand: contraction.dtype(operand).name for operand in "ab"},
        "acc": contraction.acc.name,
        "overflow": contraction.overflow.value,
        "resident": instruction.resident,
        "latency": instruction.latency,
        "initiation_interval": instruction.initiation_interval,
        "macs": contraction.macs,
    }


def write_together(folder: Path, texts: Mapping[str, str]) -> None:
    """Write each text to a temporary file, then rename all of them into place.

    Raises
    ------
    ParameterError
        If a file cannot be written.
    """
    temporary: dict[str, str] = {}
    try:
        for name, text in texts.items():
            handle, path = tempfile.mkstemp(dir=folder, prefix=".celosia-")
            temporary[name] = path
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(path).chmod(0o644)
        for name in texts:
            Path(temporary[name]).replace(folder / name)
            del temporary[name]
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        for path in temporary.values():
            Path(path).unlink(missing_ok=True)


def make_writable(folder: Path) -> None:
    """Fail before the slow part."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> ParameterError:
    reason = error.strerror or type(error).__name__
    return ParameterError(f"output folder must be a folder that can be written to, not {str(folder)!r} ({reason})")
