"""Files of an accelerator for an RTL engineer and a driver's author: Verilog, a description, a C header, a self-checking testbench."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ...intrinsics.accelerator.command import COMMAND_BITS, COUNTER_BITS, FIELDS, REGISTERS, Op, Target
from ...intrinsics.accelerator.machine import AcceleratorMachine
from ..artefacts import instruction_record, make_writable, write_together
from ..design_point import HW_VERSION, DesignPoint
from .driver import driver_lines, field_lines
from .emit import AcceleratorRtl, emit_accelerator
from .register_map import COMMAND_WORDS, Mapped, register_map
from .testbench import accelerator_testbench


def emit_accelerator_artefacts(point: DesignPoint, folder: Path | str, *, prefix: str | None = None, seed: int = 0) -> tuple[Path, ...]:
    """Write ``<name>.v``, ``<name>.json``, ``<name>.h`` and ``<name>_tb.v`` into ``folder``, which is made if need be.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
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
        If the folder cannot be made or written to, or the memories of the design are too small for the testbench's program (`tiling_of`);
        files that were there stay as they were.
    ToolNotFoundError, ToolFailedError
        If Yosys is missing or fails.
    """
    target = Path(folder)
    make_writable(target)
    rtl = emit_accelerator(point, prefix=prefix)
    texts = {
        f"{rtl.top}.v": rtl.verilog,
        f"{rtl.top}.json": json.dumps(description(rtl), indent=2) + "\n",
        f"{rtl.top}.h": command_header(rtl),
        f"{rtl.top}_tb.v": accelerator_testbench(rtl, seed=seed),
    }
    write_together(target, texts)
    return tuple(target / name for name in texts)


def description(rtl: AcceleratorRtl) -> dict[str, Any]:
    """What the JSON file says: ports, parameters, hash, instruction, sizes of the memories, and the fields of every command."""
    mapped = {"register_map": {name: dataclasses.asdict(found) for name, found in registers_of(rtl).items()}} if registers_of(rtl) else {}
    return {
        "name": rtl.top,
        "design_hash": rtl.point.hash,
        "hw_version": HW_VERSION,
        "design_point": rtl.point.to_dict(),
        "ports": [dataclasses.asdict(port) for port in rtl.ports],
        "instruction": instruction_record(rtl.point),
        "capacities": capacities(rtl.machine),
        "command_bits": COMMAND_BITS,
        "counter_bits": COUNTER_BITS,
        "commands": {op.name: _fields(fields) for op, fields in FIELDS.items()},
        "registers": {register.name: _fields(fields) for register, fields in REGISTERS.items()},
        **mapped,
    }


def capacities(machine: AcceleratorMachine) -> dict[str, int]:
    """Sizes of the memories that commands name; those of memories that the design lacks are 0.

    Words of A and B are what a load fills, in every bank; an accumulator row holds ``acc_cols`` sums, a word of the channel memory the
    biases and multipliers of as many channels, and a word of residuals as many bytes.
    """
    sizes: dict[str, int] = {}
    for target in (Target.A, Target.B):
        for name, size in zip(("banks", "words", "word_bytes"), machine.memory_of(target), strict=True):
            sizes[f"{target.name.lower()}_{name}"] = size
    return {
        **sizes,
        "acc_rows": machine.acc_rows,
        "acc_cols": machine.cols,
        "channel_words": machine.channel_words,
        "channel_word_bytes": machine.channel_word if machine.requantizes else 0,
        "residual_words": machine.residual_words,
        "residual_word_bytes": machine.cols if machine.adds_residuals else 0,
        "port_bytes": machine.port_bytes,
    }


def registers_of(rtl: AcceleratorRtl) -> dict[str, Mapped]:
    """Registers of the memory-mapped command queue; none with a command stream."""
    return register_map(base=rtl.machine.axi) if rtl.machine.mapped else {}


def _fields(fields: Any) -> dict[str, dict[str, Any]]:
    return {name: dataclasses.asdict(place) for name, place in fields.items()}


def command_header(rtl: AcceleratorRtl) -> str:
    """C header: hash, memories, operation codes, lowest bit and width of every field of every command, driver of memory-mapped commands."""
    macro = rtl.top.upper()
    lines = [f"/* celosia accelerator {rtl.top}: {COMMAND_BITS}-bit commands, least significant bit first */"]
    lines += [f"#ifndef {macro}_H", f"#define {macro}_H", "", "#include <stdint.h>", "", f'#define {macro}_HASH "{rtl.point.hash}"']
    lines += [f"#define {macro}_COMMAND_BITS {COMMAND_BITS}", f"#define {macro}_COMMAND_WORDS {COMMAND_WORDS}"]
    lines += [f"#define {macro}_COUNTER_BITS {COUNTER_BITS}"]
    lines += [f"#define {macro}_{name.upper()} {size}" for name, size in capacities(rtl.machine).items()]
    lines += [f"#define {macro}_OP_{op.name} {op.value}" for op in Op]
    tables = [(op.name, fields) for op, fields in FIELDS.items()]
    tables += [(f"SET_{register.name}", fields) for register, fields in REGISTERS.items()]
    for table, fields in tables:
        lines.append("")
        for name, place in fields.items():
            lines += field_lines(f"{macro}_{table}_{name.upper()}", place)
    if registers_of(rtl):
        lines += ["", *driver_lines(rtl.top, rtl.point.hash, registers_of(rtl))]
    return "\n".join([*lines, "", f"#endif /* {macro}_H */", ""])
