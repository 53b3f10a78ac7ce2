"""An operator on an accelerator: whether the machine takes it, its tiles, and what loads, passes and slots of tiles are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...intrinsics import ScheduleError
from ...intrinsics.accelerator.machine import ACC_WIDTHS, ceil_div
from ...intrinsics.numerics import Array
from .geometry import Geometry
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
class Problem(Geometry):
    """One operator on one machine: all geometry that schedules, programs and costs need.

    A tile counts blocks of rows, blocks of columns, and chunks of k (see `Geometry`).

    Raises
    ------
    ScheduleError
        If the machine does not take the operator.
    """

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
            wider = f"an acc wider than {machine.acc}, " if machine.acc.width < ACC_WIDTHS[1] else ""
            raise ScheduleError(
                f"sums of {op.depth} products of {machine.a} x {machine.b} may not fit {machine.acc}; "
                f"allowed: a reduction of at most {limit}, {wider}or overflow 'wrap'"
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

    # in vector mode a tile of m is a strip of output rows

    def strip_image_rows(self, blocks: Array | int) -> Array | int:
        """Image rows that a strip of ``blocks`` output rows needs."""
        return (blocks - 1) * self.op.stride + self.op.kernel[0]

    def strip_rows(self, blocks: Array | int) -> Array | int:
        """Beats of a column of a strip."""
        return self.strip_image_rows(blocks) * self.op.kernel[1] * self.a_run_beats

    def strip_words(self, blocks: Array | int) -> Array | int:
        """Words per bank of a strip: one per image row and kernel column."""
        return self.strip_image_rows(blocks) * self.op.kernel[1]

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

    def a_share(self, n: Array | int) -> Array | int:
        """Tiles of n, each of ``n`` blocks, that share a tile of A; 0 for all of them."""
        if self.vector:
            return n * 0 + 1
        return 0 * n if self.n_groups == 1 else -(-self.group_blocks // n)

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

    def residual_slot(self, m: int, n: int) -> int:
        """Words of the residuals of a tile."""
        return self.c_slot(m, n) if self.output.residual else 0
