"""Which loops of an operator run where on an accelerator: from the mapper's einsum to convolutions, or the reason why not.

The loader follows an output pixel (two counters), a window of two dimensions and a run of channels; an operator whose activations
lie in that order is one `Convolution`. Loops that are left over become turns of one program: a batch of matrix products, the depth of
a 3-D convolution, the phases of a transposed one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...intrinsics import DType
from ...intrinsics.accelerator import AcceleratorMachine
from ...intrinsics.numerics import Array, wrap
from ..einsum import Access, Einsum, Index
from ..einsum_transform import split_phases
from ..forms import output_size
from ..reasons import Reason, Rejected
from .convolution import Convolution, pixel_grid
from .schedule import Turn
from .window import Dimension, NoPlace, Window, dimensions, evaluate, is_plain, radix, window_of

MAX_TURNS = 4096
"""Most convolutions that one program is made of."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """An operator as turns of one convolution.

    Parameters
    ----------
    einsum : Einsum
        Operand a is that of the activations.
    swapped : bool
        Whether the operator's operands changed places.
    op : Convolution
    sums : tuple of tuples of Turn
        Turns that are added up, one such sum per convolution's worth of output.
    copies : (int, int, int)
        Convolutions' worth of activations, weights and outputs.
    groups, filters, window, channels : tuple of str
        Axes along groups, output channels of a group, window (rows, columns), and channels of a group.
    pixels : tuple of str
        Axes of the output's pixels: images, rows, columns.
    outer : tuple of str
        Axes that are turns.
    slices, lines : tuples of Dimension
        Dimensions of the activations that turns choose from, and those that windows walk along (rows, columns; without those of 1).
    """

    einsum: Einsum
    swapped: bool
    op: Convolution
    sums: tuple[tuple[Turn, ...], ...]
    copies: tuple[int, int, int]
    outer: tuple[str, ...]
    pixels: tuple[str, ...]
    groups: tuple[str, ...]
    filters: tuple[str, ...]
    window: tuple[str, ...]
    channels: tuple[str, ...]
    slices: tuple[Dimension, ...]
    lines: tuple[Dimension, ...]

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: without inserted zeros, and without turns whose activations all lie outside."""
        return min(self.einsum.macs, sum(map(len, self.sums)) * self.op.macs)

    @property
    def corrected(self) -> bool:
        """Whether sums need a bias for the zero point of the activations."""
        return self.einsum.a.zero_point != 0

    @property
    def scattered(self) -> bool:
        """Whether results lie in another order than in the operator's output."""
        stride, expected = 1, dict[str, int]()
        for extent, index in zip(reversed(self.einsum.out_shape), reversed(self.einsum.out_index), strict=True):
            expected |= {axis: stride * index.linear(axis) for axis in index.axes}
            stride *= extent
        if any(index.quotients for index in self.einsum.out_index) or self.einsum.out_guards:
            return True
        place = 1
        for axis in reversed(self._out_axes):
            if expected[axis] != place:
                return True
            place *= self.einsum.extents[axis]
        return False

    @property
    def movement(self) -> dict[str, str]:
        """What happens to each operand before or after the program."""
        weights = "packed at compile time" if self.einsum.b.constant else "rows copied"
        return {"activations": "in place", "weights": weights, "output": "scattered" if self.scattered else "in place"}

    @property
    def _out_axes(self) -> tuple[str, ...]:
        outer = tuple(axis for axis in self.outer if "c" in self.einsum.roles[axis])
        return (*outer, *self.pixels, *self.groups, *self.filters)

    def activations(self, inputs: Sequence[Array]) -> Array:
        """(images of all copies, height, width, channels): the tensor as it lies."""
        op, tensor = self.op, inputs[1 if self.swapped else 0]
        return tensor.reshape(-1, op.height, op.width, op.channels)

    def weights(self, inputs: Sequence[Array]) -> Array:
        """(filters of all copies, depth): every output channel with its products in the order of the activations."""
        access = self.einsum.b
        outer = tuple(axis for axis in self.outer if "b" in self.einsum.roles[axis])
        axes = (*outer, *self.groups, *self.filters, *self.window, *self.channels)
        values = _gather(access, inputs[0 if self.swapped or len(inputs) == 1 else 1], axes, self.einsum.extents)
        rows: Array = values.reshape(-1, self.op.depth)
        return rows

    def bias(self, weights: Array) -> Array:
        """What the zero point of the activations adds to every output channel, (filters of all copies,) int64."""
        total: Array = -self.einsum.a.zero_point * weights.astype(np.int64).sum(axis=1)
        return total

    def output(self, result: Array) -> Array:
        """The operator's output from (output pixels of all copies, filters) sums."""
        extents = self.einsum.extents
        axes = self._out_axes
        grids = _grids(axes, extents)
        shape = tuple(extents[axis] for axis in axes)
        out = np.zeros(self.einsum.out_shape, np.int64)
        exists = np.ones(shape, bool)
        for guard in self.einsum.out_guards:
            at = evaluate(guard.index, grids)
            exists &= (at >= guard.low) & (at < guard.high)
        place = tuple(np.broadcast_to(evaluate(index, grids), shape)[exists] for index in self.einsum.out_index)
        out[place] = result.reshape(shape)[exists]
        wrapped: Array = wrap(out, self.einsum.acc)
        return wrapped


def _grids(axes: Sequence[str], extents: Mapping[str, int]) -> dict[str, Array]:
    """An open grid over axes."""
    if not axes:
        return {}
    return dict(zip(axes, np.ogrid[tuple(slice(extents[axis]) for axis in axes)], strict=True))


def _gather(access: Access, tensor: Array, axes: tuple[str, ...], extents: Mapping[str, int]) -> Array:
    """Values of an operand over a grid of axes, 0 outside its domain."""
    grids, shape = _grids(axes, extents), tuple(extents[axis] for axis in axes)
    inside = np.ones(shape, bool)
    for guard in access.domain:
        at = evaluate(guard.index, grids)
        inside &= (at >= guard.low) & (at < guard.high)
    place = tuple(np.clip(evaluate(index, grids), 0, size - 1) for index, size in zip(access.index, access.shape, strict=True))
    return np.where(inside, np.broadcast_to(tensor[place], shape), tensor.dtype.type(0))


# ---- search


def place(einsum: Einsum) -> Placement | Rejected:
    """Where an operator's loops run.

    Parameters
    ----------
    einsum : Einsum
        From `einsum_parse.parse`, or `operators.einsum_of`.

    Returns
    -------
    Placement, or Rejected with a reason of the mapper's list: of the operand order that was tried first.
    """
    form = split_phases(einsum)
    orders = (True, False) if form.a.constant and not form.b.constant else (False, True)
    answers = [_place(form.swapped() if swapped else form, swapped=swapped) for swapped in orders]
    return next((answer for answer in answers if isinstance(answer, Placement)), answers[0])


def _place(einsum: Einsum, *, swapped: bool) -> Placement | Rejected:
    try:
        _check_operands(einsum)
        return _Search(einsum, swapped=swapped).placement()
    except NoPlace as obstacle:
        return obstacle.rejected


def _check_operands(einsum: Einsum) -> None:
    a, b = einsum.a, einsum.b
    if a.view or b.view or a.domain:
        raise NoPlace(Reason.NON_AFFINE, f"operand {a.tensor} is read through another shape")
    if b.zero_point:
        raise NoPlace(
            Reason.OPERAND_EXPRESSION,
            f"operand {b.tensor} has the zero point {b.zero_point}, which needs a sum of the activations per output",
            "quantise the weights symmetrically, at the price of up to one bit of their range",
        )
    if b.guards:
        raise NoPlace(Reason.GUARDED, f"operand {b.tensor} is read only where {b.guards[0]}")
    odd = [name for name, role in einsum.roles.items() if role in ("b", "c", "")]
    if odd:
        raise NoPlace(Reason.NOT_PRODUCT, f"axis {odd[0]} indexes operand {b.tensor} alone, so nothing is multiplied along it")


class _Search:
    """The one way to lay an einsum's loops out in which its activations stay where they are."""

    def __init__(self, einsum: Einsum, *, swapped: bool) -> None:
        self.einsum, self.swapped = einsum, swapped
        self.roles, self.extents = einsum.roles, einsum.extents
        self.dims = dimensions(einsum.a, self.roles, self.extents)
        self.groups: list[str] = []
        self.channels: list[str] = []
        self.inside = 1
        self._take_channels()
        self.left = len(self.dims)

    # ---- channels: the last dimensions, groups before the products of a group

    def _take_channels(self) -> None:
        while self.dims and self._channel_like(self.dims[-1]):
            self._take(self.dims.pop())
        windowed = [not is_plain(dim, self.roles) for dim in self.dims]
        while len(self.dims) > 2 and sum(windowed) > 1 and not windowed[-1] and self._covers(self.dims[-1]):
            self._take(self.dims.pop())
            windowed.pop()

    def _channel_like(self, dim: Dimension) -> bool:
        axes = radix(dim.index, self.extents, dim.size)
        if axes is None or dim.guards or any(self.roles[axis] not in ("ab", "a", "abc") for axis in axes):
            return False
        products = [axis for axis in axes if self.roles[axis] != "abc"]
        return axes[len(axes) - len(products) :] == products and not (products and self.groups)

    def _covers(self, dim: Dimension) -> bool:
        return radix(dim.index, self.extents, dim.size) is not None and not dim.guards

    def _take(self, dim: Dimension) -> None:
        axes = radix(dim.index, self.extents, dim.size) or []
        products = [axis for axis in axes if self.roles[axis] in ("ab", "a")]
        self.groups = [axis for axis in axes if axis not in products] + self.groups
        self.channels = products + self.channels
        self.inside *= dim.size

    # ---- pixels

    def placement(self) -> Placement:
        """Try two dimensions of pixels, and one where two do not fit the loader."""
        self._check_order()
        for count in (2, 1, 0):
            answer = self._with_pixels(min(count, len(self.dims)))
            if answer is not None:
                return answer
        raise NoPlace(Reason.NON_AFFINE, f"operand {self.einsum.a.tensor} is read in steps that no walk over rows and columns makes")

    def _check_order(self) -> None:
        """Refuse activations whose products are not innermost: every one would be a read of its own.

        A last dimension of 1 is one channel, whose products are those of the window wherever they lie.
        """
        if self.einsum.a.shape[-1] == 1:
            return
        tensor, windowed = self.einsum.a.tensor, [{"ac", "ab"} <= {self.roles[axis] for axis in dim.index.axes} for dim in self.dims]
        # a window of one channel may have one output row or column, and groups of one channel have no other products
        single = len(self.dims) - 2 if any(windowed[-2:]) else len(self.dims)
        for dim in self.dims[:single] if not self.channels and not self.groups else ():
            if is_plain(dim, self.roles, only=("ab", "a")):
                axis = next(iter(dim.index.axes))
                raise NoPlace(
                    Reason.LAYOUT,
                    f"the reduction {axis} is not the last dimension of operand {tensor}",
                    f"store {tensor} with {axis} last (channels last), at the price of one transposition",
                )

    def _with_pixels(self, count: int) -> Placement | None:
        outside, pixels = self.dims[: len(self.dims) - count], self.dims[len(self.dims) - count :]
        if pixels and all(self.roles[axis] == "abc" for axis in pixels[0].index.axes):
            return None
        images = [next(iter(dim.index.axes)) for dim in outside if is_plain(dim, self.roles, only=("ac",)) and self._covers(dim)]
        slices = [] if len(images) == len(outside) else outside
        images = [] if slices else images
        outer = [axis for axis in self.extents if any(axis in dim.index.axes for dim in slices)]
        outer += [axis for axis in self.extents if self.roles[axis] == "abc" and any(axis in dim.index.axes for dim in pixels)]
        turns = list(self._turns(outer, slices, pixels))
        windows = [window for window, _, _ in turns]
        if not windows or any(window is None for window in windows):
            return None
        first = windows[0]
        if first is None or any(window is not None and window.shape != first.shape for window in windows):
            return None
        return self._answer(first, turns, tuple(outer), tuple(images), slices, pixels)

    def _turns(
        self, outer: Sequence[str], slices: Sequence[Dimension], pixels: Sequence[Dimension]
    ) -> Iterator[tuple[Window | None, dict[str, int], int | None]]:
        """Window, values of the outer axes, and which of the activations' copies is read, for every turn; None for those outside."""
        count = math.prod(self.extents[axis] for axis in outer)
        if count > MAX_TURNS:
            raise NoPlace(
                Reason.NON_AFFINE,
                f"{self.einsum.name} would be {count} convolutions along {', '.join(outer)}; allowed: {MAX_TURNS}",
                f"copy operand {self.einsum.a.tensor} into the order in which it is read, at the price of one more pass over it",
            )
        for values in itertools.product(*(range(self.extents[axis]) for axis in outer)):
            at = dict(zip(outer, values, strict=True))
            fixed = {axis: Index((), value) for axis, value in at.items()}
            copy: int | None = 0
            for dim in slices:
                position = dim.index.substitute(fixed, self.extents)
                guarded = [guard.substitute(fixed, self.extents) for guard in dim.guards]
                holds = all(guard.low <= guard.index.const < guard.high for guard in guarded) and 0 <= position.const < dim.size
                copy = copy * dim.size + position.const if copy is not None and holds else None
            yield window_of([dim.fixed(fixed, self.extents) for dim in pixels], self.roles, self.extents), at, copy

    # ---- answer

    def _answer(
        self,
        window: Window,
        turns: Sequence[tuple[Window | None, dict[str, int], int | None]],
        outer: tuple[str, ...],
        images: tuple[str, ...],
        slices: Sequence[Dimension],
        lines: Sequence[Dimension],
    ) -> Placement:
        einsum, extents = self.einsum, self.extents
        filters = [axis for axis in self._output_order() if self.roles[axis] == "bc" and axis not in outer]
        placed = {*outer, *images, *window.pixels, *window.taps, *self.groups, *self.channels, *filters}
        missing = [axis for axis in extents if axis not in placed]
        if missing:
            raise NoPlace(Reason.NON_AFFINE, f"axis {missing[0]} of {einsum.name} has no place in a walk over {einsum.a.tensor}")
        groups = math.prod(extents[axis] for axis in self.groups)
        op = _convolution(
            window,
            images=math.prod(extents[axis] for axis in images),
            channels=self.inside,
            filters=groups * math.prod(extents[axis] for axis in filters),
            zero_point=einsum.a.fill if einsum.a.guards else 0,
            groups=groups,
            still=all(other is None or other.corner == window.corner for other, _, _ in turns),
        )
        sums, copies = self._sums(op, turns, outer, slices)
        answer = Placement(
            einsum=einsum,
            swapped=self.swapped,
            op=op,
            sums=sums,
            copies=copies,
            outer=outer,
            pixels=(*images, *window.pixels),
            groups=tuple(self.groups),
            filters=tuple(filters),
            window=window.taps,
            channels=tuple(self.channels),
            slices=tuple(slices),
            lines=tuple(lines),
        )
        self._check_weights(answer)
        return answer

    def _output_order(self) -> list[str]:
        return [name for index in self.einsum.out_index for atom, _ in index.terms if isinstance(atom, str) for name in (atom,)]

    def _check_weights(self, answer: Placement) -> None:
        """Refuse a second operand of run time that would have to be transposed, copied per window, or summed by the host."""
        access = self.einsum.b
        if access.constant:
            return
        if answer.corrected:
            detail = (
                f"the zero point {self.einsum.a.zero_point} of operand {self.einsum.a.tensor} needs sums of {access.tensor} at run time"
            )
            raise NoPlace(Reason.OPERAND_EXPRESSION, detail)
        counted = [radix(index, self.extents, size) for index, size in zip(access.index, access.shape, strict=True) if index.terms]
        order = [axis for axes in counted for axis in axes or []]
        products = [*answer.window, *answer.channels]
        if any(axes is None for axes in counted) or order[len(order) - len(products) :] != products:
            raise NoPlace(
                Reason.LAYOUT,
                f"the reduction {', '.join(products)} is not the last dimension of operand {access.tensor}, which is no constant",
                f"store {access.tensor} with {', '.join(products)} last, at the price of one more pass over it",
            )

    def _sums(
        self,
        op: Convolution,
        turns: Sequence[tuple[Window | None, dict[str, int], int | None]],
        outer: tuple[str, ...],
        slices: Sequence[Dimension],
    ) -> tuple[tuple[tuple[Turn, ...], ...], tuple[int, int, int]]:
        """Turns by output, without those whose activations are all outside and count for nothing."""
        sizes = {operand: [axis for axis in outer if operand in self.roles[axis]] for operand in "bc"}
        by_output: dict[int, list[Turn]] = {}
        beyond = (op.height, 0)  # a corner below the image: everything that is read lies outside
        for window, at, copy in turns:
            corner = None if window is None or window.corner == op.first_window else window.corner
            b, c = (self._flat(sizes[operand], at) for operand in "bc")
            summed = by_output.setdefault(c, [])
            if copy is not None:
                summed.append(Turn(a=copy, b=b, c=c, corner=corner))
            elif self.einsum.a.fill or self.einsum.a.zero_point:
                summed.append(Turn(a=0, b=b, c=c, corner=beyond))
        whole = tuple(tuple(summed) or (Turn(a=0, b=0, c=c, corner=beyond),) for c, summed in sorted(by_output.items()))
        copies = math.prod(dim.size for dim in slices)
        return whole, (copies, *(math.prod(self.extents[axis] for axis in sizes[operand]) for operand in "bc"))  # type: ignore[return-value]

    def _flat(self, axes: Sequence[str], at: Mapping[str, int]) -> int:
        number = 0
        for axis in axes:
            number = number * self.extents[axis] + at[axis]
        return number


def _convolution(window: Window, *, images: int, channels: int, filters: int, zero_point: int, groups: int, still: bool) -> Convolution:
    """The convolution of a window, with ``pad`` where its border is the same on all sides.

    Pixels without neighbours lie in a column, unless windows of other turns begin elsewhere (not ``still``).
    """
    op = Convolution(
        images=images,
        height=window.size[0],
        width=window.size[1],
        channels=channels,
        filters=filters,
        kernel=window.kernel,
        stride=window.stride,
        dilation=window.dilation,
        corner=window.corner,
        out=window.out,
        zero_point=zero_point,
        groups=groups,
    )
    if still and op.corner == (0, 0) and images == 1 and (op.height == 1 or op.width == 1) and op.kernel == (1, 1) and op.stride == 1:
        rows, columns = pixel_grid(op.height * op.width)
        op = replace(op, height=rows, width=columns, out=(rows, columns))
    pad = max(-window.corner[0], 0)
    lines = zip((op.height, op.width), op.kernel, strict=True)
    whole = tuple(output_size(size, taps, op.stride, pad, op.dilation) for size, taps in lines)
    same = op.first_window == (-pad, -pad) and (op.out_height, op.out_width) == whole
    return replace(op, corner=None, out=None, pad=pad) if same else op


def fit_machine(placement: Placement, machine: AcceleratorMachine) -> Rejected | None:
    """Why a machine's types do not hold an operator, or None if they do."""
    einsum = placement.einsum
    for access, own in ((einsum.a, machine.a), (einsum.b, machine.b)):
        if not own.contains(access.dtype):
            return Rejected(
                Reason.TOO_WIDE,
                f"operand {access.tensor} is {access.dtype}, which {own} of the design does not hold",
                f"a design with {access.dtype} operands, or quantise to {own}",
            )
        if own.container != access.dtype.container:
            return Rejected(
                Reason.OPERAND_DTYPE,
                f"operand {access.tensor} lies in memory as {access.dtype.container}, the design reads {own.container}",
            )
    wide = DType(min(einsum.acc.width, 32))
    if machine.max_k is None and machine.acc.width < wide.width:
        return Rejected(Reason.ACCUMULATOR, f"sums of {einsum.name} wrap in {einsum.acc}, those of the design in {machine.acc}")
    if einsum.acc.width > 32 and einsum.depth * max(abs(einsum.a.dtype.min), einsum.a.dtype.max) * -einsum.b.dtype.min >= 1 << 31:
        return Rejected(Reason.ACCUMULATOR, f"sums of {einsum.name} may need more than the 32 bits that the design stores")
    return None
