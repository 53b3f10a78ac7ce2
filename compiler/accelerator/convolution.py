"""What an accelerator computes: convolutions, of which a matrix product is one, and what happens to their sums."""

from __future__ import annotations

from dataclasses import dataclass

from ...intrinsics import ParameterError


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution over NHWC activations with weights [out channel][kernel row][kernel column][in channel]; a GEMM is one of 1 x 1.

    Parameters
    ----------
    images, height, width, channels, filters : int
    kernel : (int, int)
        Rows and columns.
    stride, dilation, pad : int
    zero_point : int
        Value outside the image.
    groups : int
        Channels and filters are split into as many groups that do not see each other; as many as channels: depthwise.
    corner : (int, int), optional
        Row and column of the image where the window of the first output begins, where it is not ``-pad`` in both.
    out : (int, int), optional
        Output rows and columns, where they are not as many as fit into the padded image.
    """

    images: int = 1
    height: int
    width: int
    channels: int
    filters: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    zero_point: int = 0
    groups: int = 1
    corner: tuple[int, int] | None = None
    out: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.out_height < 1 or self.out_width < 1:
            raise ParameterError("the window of a convolution must not be larger than the padded image")
        if self.channels % self.groups or self.filters % self.groups:
            raise ParameterError(f"channels ({self.channels}) and filters ({self.filters}) must be multiples of groups ({self.groups})")

    @property
    def group_channels(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Output channels of a group."""
        return self.filters // self.groups

    @property
    def out_height(self) -> int:
        """Output rows of an image."""
        if self.out is not None:
            return self.out[0]
        return (self.height + 2 * self.pad - self.dilation * (self.kernel[0] - 1) - 1) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Output columns of an image."""
        if self.out is not None:
            return self.out[1]
        return (self.width + 2 * self.pad - self.dilation * (self.kernel[1] - 1) - 1) // self.stride + 1

    @property
    def first_window(self) -> tuple[int, int]:
        """Row and column of the image where the window of the first output begins."""
        return (-self.pad, -self.pad) if self.corner is None else self.corner

    @property
    def depth(self) -> int:
        """Products per output."""
        return self.kernel[0] * self.kernel[1] * self.group_channels

    @property
    def outputs(self) -> int:
        """Output pixels of all images."""
        return self.images * self.out_height * self.out_width

    @property
    def macs(self) -> int:
        """Multiply-accumulates, also those on the border."""
        return self.outputs * self.filters * self.depth

    @property
    def is_gemm(self) -> bool:
        """Whether it is a plain matrix product."""
        whole = self.first_window == (0, 0) and (self.out_height, self.out_width) == (self.height, self.width)
        return self.kernel == (1, 1) and self.stride == 1 and self.groups == 1 and whole


def gemm(m: int, n: int, k: int) -> Convolution:
    """C[m, n] = sum_k A[m, k] * B[n, k] as a convolution over a column of pixels."""
    for name, value in (("M", m), ("N", n), ("K", k)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"{name} of a GEMM must be a positive integer, not {value!r}; nearest legal value: 1")
    rows, columns = pixel_grid(m)
    return Convolution(height=rows, width=columns, channels=k, filters=n)


MAX_ROWS = (1 << 13) - 1
"""Most image rows that a command can name."""


def pixel_grid(pixels: int) -> tuple[int, int]:
    """Rows and columns for pixels that have no neighbours: one column, where their number allows it."""
    rows = next(rows for rows in range(min(pixels, MAX_ROWS), 0, -1) if pixels % rows == 0)
    return rows, pixels // rows


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the store path writes.

    Parameters
    ----------
    narrow : bool
        8-bit numbers instead of 32-bit sums.
    bias : bool
        Add a 32-bit number per channel.
    shift, zero_point, low, high : int
        Right shift of sum times multiplier, what is added, and the range that the result is clamped to.
    residual : bool
        Add a tensor of the output's shape and type from memory before the shift (8-bit outputs only).
    residual_multiplier, residual_zero_point : int
        32-bit factor of the residuals, and what is subtracted from them before.

    Raises
    ------
    ParameterError
    """

    narrow: bool = False
    bias: bool = False
    shift: int = 0
    zero_point: int = 0
    low: int = -128
    high: int = 127
    residual: bool = False
    residual_multiplier: int = 1
    residual_zero_point: int = 0

    def __post_init__(self) -> None:
        if self.residual and not self.narrow:
            raise ParameterError("residuals are added to 8-bit outputs, not to 32-bit sums; allowed: int8 or uint8 (narrow) with them")

    @property
    def uses_channels(self) -> bool:
        """Whether biases and multipliers must be loaded."""
        return self.narrow or self.bias

    @property
    def signed(self) -> bool:
        """Whether 8-bit results, and with them residuals, are signed."""
        return self.low < 0

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 1 if self.narrow else 4


PLAIN = Output()
"""32-bit sums."""
