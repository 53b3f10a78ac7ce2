"""An operator as an accelerator sees it: blocks of rows and columns, chunks of k, and where their bytes are in memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ...intrinsics import ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine, Buffer
from ...intrinsics.accelerator.machine import ceil_div
from ...intrinsics.numerics import Array
from .convolution import PLAIN, Convolution, Output
from .registers import check_encodable

ADDRESS_SPACE = 1 << 32
"""Bytes that the 32-bit addresses of commands reach."""


@dataclass(frozen=True, kw_only=True)
class MTile:
    """Rows of one tile: ``rows`` of A to load in ``blocks`` passes, the first at output pixel ``first`` of image ``image``."""

    rows: int
    blocks: int
    image: int
    first: int


@dataclass(frozen=True, kw_only=True)
class NTile:
    """Columns of one tile: ``cols`` from output channel ``channel`` on, in ``blocks`` blocks from block ``first`` on."""

    blocks: int
    cols: int
    first: int
    channel: int


@dataclass(frozen=True, kw_only=True)
class KTile:
    """``chunks`` of the reduction from chunk ``first`` on: ``elements`` products."""

    chunks: int
    elements: int
    first: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One operator on one machine: all geometry that schedules, programs and costs need.

    A tile counts blocks of ``rows`` output pixels (single pixels for the weight-stationary core), blocks of ``cols`` output
    channels, and chunks of k. A chunk is the least part of k that is whole beats and whole scratchpad words, or, where runs
    of channels do not start at beats, one run.

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

    def __post_init__(self) -> None:
        machine, op = self.machine, self.op
        if self.strips and op.images > 1 and op.out_width % machine.rows:
            raise ScheduleError(
                f"vector mode takes several images only if their width is a multiple of {machine.rows} rows, not {op.out_width}"
            )
        if not machine.a.min <= op.zero_point <= machine.a.max:
            nearest = min(max(op.zero_point, machine.a.min), machine.a.max)
            raise ScheduleError(f"zero_point must be a value of {machine.a}, not {op.zero_point}; nearest legal value: {nearest}")
        if op.zero_point and machine.a_bytes > 1:
            raise ScheduleError(f"padding with {op.zero_point} needs elements of one byte, not {machine.a}; allowed: zero")
        limit = machine.max_k
        if limit is not None and op.depth > limit:
            raise ScheduleError(
                f"sums of {op.depth} products of {machine.a} x {machine.b} may not fit {machine.acc}; "
                f"allowed: a reduction of at most {limit}, a wider acc, or overflow 'wrap'"
            )
        if self.memory_bytes > ADDRESS_SPACE:
            raise ScheduleError(
                f"the tensors need {self.memory_bytes / 1e9:,.1f} GB of memory; "
                f"allowed: the {ADDRESS_SPACE / 1e9:.1f} GB that 32-bit addresses reach"
            )
        if self.output.residual and not machine.adds_residuals:
            raise ScheduleError(f"design {machine.name or machine.design_hash} adds no residuals; allowed: residual_words of at least 2")
        if self.output.residual and self.strips:
            raise ScheduleError("vector mode (depthwise on a broadcast core) adds no residuals; allowed: another core")
        if self.output.uses_channels and not machine.requantizes:
            raise ScheduleError(
                "the design's store path has no bias or requantisation; allowed: plain 32-bit output, or channel_words above 0"
            )
        if self.output.uses_channels and self.n_blocks > machine.channel_words:
            raise ScheduleError(
                f"{op.filters} output channels need {self.n_blocks} words of biases and multipliers; the design has "
                f"{machine.channel_words}; allowed: channel_words of at least {self.n_blocks}, or fewer output channels"
            )
        check_encodable(self)

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

    def strip_image_rows(self, blocks: Array | int) -> Array | int:
        """Image rows that a strip of ``blocks`` output rows needs."""
        return (blocks - 1) * self.op.stride + self.op.kernel[0]

    def strip_rows(self, blocks: Array | int) -> Array | int:
        """Beats of a column of a strip."""
        return self.strip_image_rows(blocks) * self.op.kernel[1] * self.a_run_beats

    def strip_words(self, blocks: Array | int) -> Array | int:
        """Words per bank of a strip: one per image row and kernel column."""
        return self.strip_image_rows(blocks) * self.op.kernel[1]

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

    def a_share(self, n: Array | int) -> Array | int:
        """Tiles of n, each of ``n`` blocks, that share a tile of A; 0 for all of them."""
        if self.vector:
            return n * 0 + 1
        return 0 * n if self.n_groups == 1 else -(-self.group_blocks // n)

    def residual_slot(self, m: int, n: int) -> int:
        """Words of the residuals of a tile."""
        return self.c_slot(m, n) if self.output.residual else 0

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

    # ---- tiles

    def m_tiles(self, size: int) -> list[MTile]:
        """Tiles of ``size`` blocks, image by image."""
        if self.strips:
            return self._strips(size)
        step = size * self.block_rows
        starts = [(image, first) for image in range(self.op.images) for first in range(0, self.pixels, step)]
        tiles = []
        for image, first in starts:
            rows = min(step, self.pixels - first)
            blocks = 1 if self.machine.weight_stationary else ceil_div(rows, self.block_rows)
            tiles.append(MTile(rows=rows, blocks=blocks, image=image, first=first))
        return tiles

    def _strips(self, size: int) -> list[MTile]:
        op, rows = self.op, self.machine.rows
        return [
            MTile(
                rows=min(rows, op.out_width - column), blocks=min(size, op.out_height - row), image=image, first=row * op.out_width + column
            )
            for image in range(op.images)
            for column in range(0, op.out_width, rows)
            for row in range(0, op.out_height, size)
        ]

    def n_tiles(self, size: int) -> list[NTile]:
        """Tiles of ``size`` blocks, group by group."""
        cols, total, blocks = self.machine.cols, self.op.filters // self.n_groups, self.group_blocks
        return [
            NTile(
                blocks=min(size, blocks - first),
                cols=min(size * cols, total - first * cols),
                first=group * blocks + first,
                channel=group * total + first * cols,
            )
            for group in range(self.n_groups)
            for first in range(0, blocks, size)
        ]

    def k_tiles(self, size: int) -> list[KTile]:
        """Tiles of ``size`` chunks."""
        return [
            KTile(
                chunks=min(size, self.k_chunks - first),
                elements=min(size * self.chunk, self.op.depth - first * self.chunk),
                first=first,
            )
            for first in range(0, self.k_chunks, size)
        ]

    # a row whose last beat might complete one word of the scratchpad and begin another gets a spare beat behind it

    def a_spare(self, tile: KTile) -> int:
        """Whether rows of A have a spare beat."""
        return int(self.spare("a", tile.elements, tile.chunks))

    def b_spare(self, tile: KTile) -> int:
        """Whether rows of B have a spare beat."""
        return int(self.spare("b", tile.elements, tile.chunks))

    def spare(self, operand: str, elements: Array | int, chunks: Array | int) -> Array | int:
        """1 where rows of ``elements`` products in ``chunks`` need a spare beat, else 0."""
        machine, width = self.machine, self.machine.port_bytes
        size, word = (machine.a_bytes, machine.a_word) if operand == "a" else (machine.b_bytes, machine.b_word)
        total = self.b_run if self.vector and operand == "b" else elements * size
        if self.vector and operand == "a":
            return 0 * chunks
        if self.regular or self.vector:
            last = (total - 1) % width + 1
        elif operand == "b":
            last = self.b_run - (self.b_run_beats - 1) * width
        else:
            last = min(self.a_run + (0 if self.on_beat else width - 1) - (self.a_run_beats - 1) * width, self.a_run, width)
        left = total % word
        return ((left > 0) & (left < last)) * 1

    def a_beats(self, tile: KTile) -> int:
        """Beats of a row of A."""
        return int(self.beats("a", tile.elements, tile.chunks))

    def b_beats(self, tile: KTile) -> int:
        """Beats of a column of B."""
        return int(self.beats("b", tile.elements, tile.chunks))

    def beats(self, operand: str, elements: Array | int, chunks: Array | int) -> Array | int:
        """Beats of a row of ``elements`` products in ``chunks``, the spare one included."""
        size = self.machine.a_bytes if operand == "a" else self.machine.b_bytes
        if self.regular:
            beats = -(-elements * size // self.machine.port_bytes)
        else:
            beats = chunks * (self.a_run_beats if operand == "a" else self.b_run_beats)
        return beats + self.spare(operand, elements, chunks)

    def most_beats(self, m: Array | int, n: Array | int, k: Array | int) -> Array | int:
        """Most beats of a row that any load of tiles of these sizes has."""
        chunks = np.minimum(k, self.k_chunks)
        elements = np.minimum(chunks * self.chunk, self.op.depth)
        a = self.strip_rows(m) if self.strips else self.beats("a", elements, chunks)
        most = np.maximum(a, self.beats("b", elements, chunks))
        return np.maximum(most, n * self.out_beats) if self.output.residual else most

    def units(self, tile: KTile) -> int:
        """Scratchpad reads of a pass (K blocks for the weight-stationary core); in vector mode taps."""
        if self.vector:
            return tile.elements
        return ceil_div(tile.elements, self.machine.k_unit)

    # ---- scratchpads

    def a_stride(self, k: int) -> int:
        """Words between blocks of tiles of ``k`` chunks."""
        if self.strips:
            return self.op.stride * self.op.kernel[1]
        return ceil_div(min(k * self.chunk, self.op.depth) * self.machine.a_bytes, self.machine.a_word)

    def b_stride(self, k: int) -> int:
        """Words between blocks of B (in vector mode a tap per unit)."""
        if self.vector:
            return ceil_div(self.b_run, self.machine.b_word)
        return ceil_div(min(k * self.chunk, self.op.depth) * self.machine.b_bytes, self.machine.b_word)

    def a_slot(self, m: int, k: int) -> int:
        """Words per bank of a tile of A."""
        if self.strips:
            return int(self.strip_words(m))
        return m * self.a_stride(k)

    def b_slot(self, n: int, k: int) -> int:
        """Words per bank of a tile of B."""
        return n * self.b_stride(k)

    def c_slot(self, m: int, n: int) -> int:
        """Accumulator rows of a tile, and words of its residuals."""
        return m * n * self.block_rows
