"""Configuration registers of a problem: how its tensors are walked and stored, and whether the registers can hold that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...intrinsics import ScheduleError
from ...intrinsics.accelerator import Op, Register
from ...intrinsics.accelerator.command import FIELDS, REGISTERS, Field

if TYPE_CHECKING:
    from .problem import Problem

ROWS, BEATS, BLOCKS = 1 << FIELDS[Op.LOAD]["rows"].width, 1 << FIELDS[Op.LOAD]["beats"].width, 1 << FIELDS[Op.COMPUTE]["n_blocks"].width
"""Rows of a tile, beats of a row, and blocks of a tile stay below these, so that a command can hold them."""

_WORDS = {
    "run": "bytes that lie together along k",
    "run_beats": "port beats of what lies together along k",
    "taps": "kernel columns",
    "kernel_y": "dilation",
    "row_y": "stride",
    "columns": "output columns",
    "width": "bytes of an image row",
    "height": "image rows",
    "x": "bytes from the first window of a row to the last",
    "y": "image rows with their border",
    "offset": "bytes of a kernel row",
    "base": "bytes of memory",
}


def configuration(problem: Problem) -> dict[Register, dict[str, int]]:
    """Values of all registers that the problem needs."""
    output = problem.output
    registers = {Register.A: a_walker(problem), Register.B: b_walker(problem)}
    if output.uses_channels:
        registers[Register.CHANNELS] = channel_walker(problem)
    if output.residual:
        registers[Register.RESIDUAL] = residual_walker(problem)
    return {**registers, Register.STORE: store_path(problem)}


def check_encodable(problem: Problem) -> None:
    """Refuse a problem that the fields of the commands cannot hold.

    Raises
    ------
    ScheduleError
        Names the operand, what is too large, and the limit.
    """
    for register, values in configuration(problem).items():
        _check(register.name, values, REGISTERS[register])
    op, walker = problem.op, a_walker(problem)
    last_x = walker["first_x"] + (walker["columns"] - 1) * walker["column_step"]
    offset = (op.kernel[1] - 1) * walker["tap_step"] + walker["run"]
    y = (op.out_height - 1) * op.stride + op.first_window[0] + (op.kernel[0] - 1) * op.dilation
    places = {"x": max(last_x, 0), "y": y, "offset": offset, "base": problem.memory_bytes - 1}
    _check("A", places, FIELDS[Op.LOAD])


def _check(operand: str, values: Mapping[str, int], fields: Mapping[str, Field]) -> None:
    for name, value in values.items():
        low, high = fields[name].limits
        if not low <= value <= high:
            raise ScheduleError(
                f"{_WORDS.get(name, name)} of {operand} would be {value}; the commands hold {low} to {high}, so allowed: a smaller operator"
                + (" or a wider port" if name in ("run_beats", "beats") else "")
            )


def a_walker(problem: Problem, corner: tuple[int, int] | None = None) -> dict[str, int]:
    """Configuration of the loads of activations whose windows begin at ``corner``."""
    op, pixel = problem.op, problem.pixel
    merged, strips = problem.merged, problem.strips
    return {
        "run": problem.a_run,
        "run_beats": problem.a_run_beats,
        "taps": 1 if merged else op.kernel[1],
        "tap_step": 0 if merged else op.dilation * pixel,
        "kernel_step": op.dilation * problem.row_pitch if op.kernel[0] > 1 or strips else 0,
        "kernel_y": op.dilation,
        "columns": op.out_width,
        "column_step": op.stride * pixel,
        "row_step": op.stride * problem.row_pitch,
        "row_y": op.stride,
        "first_x": (corner or op.first_window)[1] * pixel,
        "width": problem.row_pitch,
        "height": op.height,
        "zero": op.zero_point % 256,
        "pad": int(problem.vector),
    }


def b_walker(problem: Problem) -> dict[str, int]:
    """Configuration of the loads of weights: every output channel is a row."""
    return {
        "run": problem.b_run,
        "run_beats": problem.b_run_beats,
        "taps": 1,
        "tap_step": 0,
        "kernel_step": problem.b_run_beats * problem.machine.port_bytes,
        "kernel_y": 0,
        "columns": 1,
        "column_step": 0,
        "row_step": problem.b_pitch,
        "row_y": 0,
        "first_x": 0,
        "width": problem.b_pitch,
        "height": 1,
        "zero": 0,
        "pad": 0,
    }


def channel_walker(problem: Problem) -> dict[str, int]:
    """Configuration of the load of biases and multipliers."""
    word, width = problem.machine.channel_word, problem.machine.port_bytes
    return {**b_walker(problem), "run": word, "run_beats": word // width, "kernel_step": 0, "row_step": word, "width": word}


def residual_walker(problem: Problem) -> dict[str, int]:
    """Configuration of the loads of residuals: a word of their memory for every block of columns."""
    cols, beats = problem.machine.cols, problem.out_beats
    walker = {**b_walker(problem), "run": cols, "run_beats": beats, "kernel_step": cols, "row_step": problem.c_pitch}
    return {**walker, "width": cols + problem.machine.port_bytes, "pad": 1}


def store_path(problem: Problem) -> dict[str, int]:
    """Configuration of the store path."""
    output = problem.output
    return {
        "pitch": problem.c_pitch,
        "block_pitch": (problem.op.out_width if problem.strips else problem.block_rows) * problem.c_pitch,
        "beats": problem.out_beats,
        "narrow": int(output.narrow),
        "bias": int(output.bias),
        "shift": output.shift,
        "zero": output.zero_point,
        "low": output.low,
        "high": output.high,
        "residual": int(output.residual),
        "residual_signed": int(output.signed),
        "residual_zero": output.residual_zero_point,
        "residual_multiplier": output.residual_multiplier,
    }
