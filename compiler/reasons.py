"""Why an operator does not map onto an instruction: a closed list of reasons."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..intrinsics import MappingError


class Reason(enum.Enum):
    """What stands in the way."""

    OPERAND_DTYPE = "operand-dtype"  #: the instruction's operands do not hold the operator's, or lie in memory as another type
    ACCUMULATOR = "accumulator"  #: the accumulator lies in memory as another type than the output
    OVERFLOW = "overflow"  #: the accumulator wraps or saturates where the operator's output does not
    AXIS_MISSING = "axis-missing"  #: the operator has no axis of the role that an axis of the instruction has
    AXES_AMBIGUOUS = "axes-ambiguous"  #: several axes of the instruction have one role
    LAYOUT = "layout"  #: a tile is not made of the last dimensions of its tensor
    DIVISIBILITY = "divisibility"  #: the tile does not divide the operator
    GUARDED = "guarded"  #: an operand is read, or the block runs, under a condition
    SHARED_OPERAND = "shared-operand"  #: both operands are one tensor
    NOT_EINSUM = "not-einsum"  #: an index is not a bare axis, so that it cannot be padded
    NOT_SUM = "reducer-not-sum"  #: the reduction is no sum, such as the maximum of a softmax
    NOT_PRODUCT = "not-a-product"  #: what is summed is no product of two operands
    NO_REDUCTION = "no-reduction"  #: nothing is summed at all
    OPERAND_EXPRESSION = "operand-expression"  #: an operand is more than a tensor element with casts, a zero point and guards
    NON_AFFINE = "non-affine-access"  #: an index or a guard is not affine, even with integer division, in the axes
    DYNAMIC_SHAPE = "dynamic-shape"  #: an extent is not a number
    TOO_WIDE = "data-too-wide"  #: the data has more bits than the instruction's operands, in either order
    NO_PARALLELISM = "no-shared-axis"  #: no axis of the operator fits any axis of the instruction: one product per execution
    UNIT_REDUCTION = "unit-reduction"  #: the reduction has extent 1, which TVM's layout primitives forget
    REFUSED = "refused"  #: TVM did not tensorize although the rules above allow it


@dataclass(frozen=True)
class Rejected:
    """An answer: not mapped, and why.

    Parameters
    ----------
    reason : Reason
    detail : str
        One sentence with the names and numbers of the case.
    change : str
        The nearest change that would map it, with its price; empty if none is known.
    macs : int
        Multiply-accumulates of the operator where it could not be read; 0 if it is no sum of products, or was read.
    """

    reason: Reason
    detail: str
    change: str = ""
    macs: int = 0

    def error(self) -> MappingError:
        """The answer as an exception."""
        return MappingError(self.detail)
