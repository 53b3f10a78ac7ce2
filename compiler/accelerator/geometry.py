"""An operator as an accelerator sees it, whatever its tiles: runs of bytes, blocks of rows and columns, chunks of k, tensors in memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...intrinsics.accelerator import AcceleratorMachine, Buffer
from ...intrinsics.accelerator.machine import ceil_div
from .convolution import PLAIN, Convolution, Output


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """One operator on one machine, as far as no tile sizes matter.

    A block is ``rows`` output pixels (a single pixel for the weight-stationary core), or ``cols`` output channels. A chunk is the least
    part of k that is whole beats and whole scratchpad words, or, where runs of channels do not start at beats, one run.

    Parameters
    ----------
    machine : AcceleratorMachine
    op : Convolution
    output : Output
    copies : (int, int, int)
        Convolutions' worth of activations, weights and outputs in memory, for operators that are several of them.
    """

    machine: AcceleratorMachine
    op: Convolution
    output: Output = PLAIN
    copies: tuple[int, int, int] = (1, 1, 1)

    # ---- activations

    @functools.cached_property
    def pixel(self) -> int:
        """Bytes between pixels: padded to whole beats in a GEMM, or where that takes fewer beats than dense pixels."""
        machine, op = self.machine, self.op
        dense = op.channels * machine.a_bytes
        if self.vector:
            return ceil_div(dense, machine.port_bytes) * machine.port_bytes
        padded = ceil_div(dense, machine.port_bytes) * machine.port_bytes
        if op.is_gemm or op.dilation > 1 or op.groups > 1 or dense == padded:
            return padded
        merged = ceil_div(dense * op.kernel[1] + machine.port_bytes - 1, machine.port_bytes)
        return padded if op.kernel[1] * (padded // machine.port_bytes) <= merged else dense

    @property
    def merged(self) -> bool:
        """Whether the kernel columns of one kernel row are one run of bytes."""
        return self.op.dilation == 1 and self.op.groups == 1 and self.pixel == self.op.channels * self.machine.a_bytes

    @property
    def regular(self) -> bool:
        """Whether every run is whole beats at a beat, so that k may be cut inside of runs."""
        if self.vector:
            return False
        whole = self.op.group_channels * self.machine.a_bytes % self.machine.port_bytes == 0
        return whole or (self.op.groups == 1 and self.op.depth == self.op.channels)

    @property
    def on_beat(self) -> bool:
        """Whether every run starts at a beat, or lies inside one."""
        width = self.machine.port_bytes
        if self.vector:
            return width % self.a_run == 0
        group = self.op.group_channels * self.machine.a_bytes
        return self.pixel % width == 0 and (self.op.groups == 1 or group % width == 0 or width % group == 0)

    @property
    def row_pitch(self) -> int:
        """Bytes between image rows."""
        return self.op.width * self.pixel

    @property
    def run_elements(self) -> int:
        """Products of a run."""
        return self.op.group_channels * (self.op.kernel[1] if self.merged else 1)

    @property
    def a_run(self) -> int:
        """Bytes of a run of activations: in vector mode a channel per column."""
        if self.vector:
            return self.machine.cols * self.machine.a_bytes
        return self.run_elements * self.machine.a_bytes

    @property
    def a_run_beats(self) -> int:
        """Beats of a run of activations."""
        spare = 0 if self.on_beat else self.machine.port_bytes - 1
        return ceil_div(self.a_run + spare, self.machine.port_bytes)

    # ---- weights: runs as those of the activations; padded to beats where k is cut between runs

    @property
    def b_run(self) -> int:
        """Bytes of a run of weights."""
        if self.vector:
            return self.op.depth * self.machine.b_unit
        return (self.op.depth if self.regular else self.run_elements) * self.machine.b_bytes

    @property
    def b_run_beats(self) -> int:
        """Beats of a run of weights."""
        return ceil_div(self.b_run, self.machine.port_bytes)

    @property
    def b_pitch(self) -> int:
        """Bytes between the weights of two output channels."""
        runs = 1 if self.regular or self.vector else self.runs
        return runs * self.b_run_beats * self.machine.port_bytes

    # ---- k

    @property
    def runs(self) -> int:
        """Runs of the whole reduction."""
        return self.op.depth // self.run_elements

    @functools.cached_property
    def chunk(self) -> int:
        """Products of a chunk."""
        if self.vector:
            return self.op.depth
        if not self.regular:
            return self.run_elements
        machine = self.machine
        a = math.lcm(machine.a_word, machine.port_bytes) // machine.a_bytes
        b = math.lcm(machine.b_word, machine.port_bytes) // machine.b_bytes
        return math.lcm(a, b, machine.k_unit)

    @property
    def k_chunks(self) -> int:
        """Chunks of the whole reduction."""
        return ceil_div(self.op.depth, self.chunk)

    # ---- vector mode: depthwise on a broadcast core, a column strip of output rows at a time

    @functools.cached_property
    def vector(self) -> bool:
        """Whether the core multiplies a word of channels per row."""
        op, machine = self.op, self.machine
        depthwise = op.groups > 1 and op.group_channels == 1 and op.group_filters == 1
        return depthwise and machine.broadcast and machine.a_word >= machine.cols * machine.a_bytes

    @property
    def strips(self) -> bool:
        """Whether a tile of m is a strip of output rows, one block of columns wide."""
        return self.vector

    @property
    def max_m(self) -> int:
        """Most blocks of a tile of m."""
        if not self.strips:
            return self.m_blocks
        return 1 if self.op.dilation > 1 else self.op.out_height

    # ---- rows and columns

    @property
    def depth(self) -> int:
        """Products per output."""
        return self.op.depth

    @property
    def block_rows(self) -> int:
        """Output pixels of a block."""
        return 1 if self.machine.weight_stationary else self.machine.rows

    @property
    def pixels(self) -> int:
        """Output pixels that tiles do not cross: those of an image."""
        return self.op.out_height * self.op.out_width

    @property
    def m_blocks(self) -> int:
        """Blocks of rows of an image; in vector mode output rows, the tiles of which are one block wide."""
        return self.op.out_height if self.strips else ceil_div(self.pixels, self.block_rows)

    @property
    def n_groups(self) -> int:
        """Groups that tiles of n do not cross."""
        return 1 if self.vector else self.op.groups

    @property
    def group_blocks(self) -> int:
        """Blocks of columns of a group: the most that a tile of n may hold, but one in vector mode."""
        return ceil_div(self.op.filters // self.n_groups, self.machine.cols)

    @property
    def max_n(self) -> int:
        """Most blocks of a tile of n."""
        return 1 if self.vector else self.group_blocks

    @property
    def n_blocks(self) -> int:
        """Blocks of columns of all groups."""
        return self.n_groups * self.group_blocks

    # ---- results

    @property
    def c_pitch(self) -> int:
        """Bytes between output pixels."""
        return ceil_div(self.op.filters * self.output.size, self.machine.port_bytes) * self.machine.port_bytes

    @property
    def out_beats(self) -> int:
        """Beats of an accumulator row; the worst alignment where rows do not start at beats."""
        row, width = self.machine.cols * self.output.size, self.machine.port_bytes
        group = self.op.filters // self.n_groups * self.output.size if self.n_groups > 1 else row
        if row % width == 0 and group % width == 0:
            return row // width
        return 1 if width % row == 0 and group % row == 0 else ceil_div(row + width - 1, width)

    @property
    def empty_beats(self) -> int:
        """Beats of the last row that is stored behind its last byte; every row starts at a beat."""
        size, width = self.output.size, self.machine.port_bytes
        last = self.op.filters // self.n_groups - (self.group_blocks - 1) * self.machine.cols
        start = (self.op.filters - last) * size
        return self.out_beats - ceil_div(start % width + last * size, width)

    # ---- memory

    @functools.cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Tensors in memory: ``a`` [image, y, x, channel], ``b`` [filter, bytes of packed runs], ``channels`` and ``c``."""
        machine, op, size = self.machine, self.op, self.output.size
        images, filters, outputs = op.images * self.copies[0], op.filters * self.copies[1], op.outputs * self.copies[2]
        sizes = {
            "a": images * op.height * self.row_pitch,
            "b": filters * self.b_pitch,
            "channels": self.n_blocks * machine.channel_word if self.output.uses_channels else 0,
            # whole blocks are read, beyond the last channel as well
            "residual": op.images * self.pixels * self.c_pitch + machine.cols + machine.port_bytes if self.output.residual else 0,
            "c": outputs * self.c_pitch,
        }
        offsets, end = {}, 0
        for name, length in sizes.items():
            offsets[name] = end
            end += ceil_div(length, machine.port_bytes) * machine.port_bytes
        image, a_size, b_size = op.height * self.row_pitch, machine.a_bytes, machine.b_bytes
        layouts = {
            "a": ((images, op.height, op.width, op.channels), (image, self.row_pitch, self.pixel, a_size), machine.a.numpy.name),
            "b": ((filters, self.b_pitch // b_size), (self.b_pitch, b_size), machine.b.numpy.name),
            "channels": ((self.n_blocks, machine.channel_word), (machine.channel_word, 1), "uint8"),
            "residual": ((op.images * self.pixels, op.filters), (self.c_pitch, size), self._out_dtype),
            "c": ((outputs, op.filters), (self.c_pitch, size), self._out_dtype),
        }
        return tuple(
            Buffer(name=name, offset=offsets[name], size=sizes[name], shape=shape, strides=strides, dtype=dtype)
            for name, (shape, strides, dtype) in layouts.items()
            if sizes[name]
        )

    @property
    def _out_dtype(self) -> str:
        return ("int8" if self.output.signed else "uint8") if self.output.narrow else "int32"

    @property
    def memory_bytes(self) -> int:
        """Size of the memory image."""
        last = self.buffers[-1]
        return ceil_div(last.offset + last.size, self.machine.port_bytes) * self.machine.port_bytes

    def offset(self, name: str) -> int:
        """Byte address of a buffer."""
        return next(buffer.offset for buffer in self.buffers if buffer.name == name)
