"""All that the compiler and the cycle model may know of a design: no RTL, only capacities and timing constants."""

from __future__ import annotations

from dataclasses import dataclass

from .contraction import Contraction
from .instruction import Instruction


@dataclass(frozen=True, kw_only=True)
class StreamLayout:
    """How one operand tile travels over a stream: which axes are spread over beats and which over lanes of a beat.

    Axes are letters of the block's full einsum; an axis that the contraction dropped (extent 1) is simply absent
    there. The payload of a beat is lane 0 in the least significant bits; `lane_axes` are ordered slowest first.

    Parameters
    ----------
    operand : "a", "b" or "c"
    port : str
        Name of the stream port: ``i_a``, ``i_b``, ``o_c``.
    beat_axes, lane_axes : tuple of axis letters, slowest first
    reverse : bool
        Beats are sent from the highest index to the lowest (weights that are shifted down into an array).
    """

    operand: str
    port: str
    beat_axes: str
    lane_axes: str
    reverse: bool = False

    def beats(self, contraction: Contraction) -> int:
        """Beats of one tile."""
        return _product(contraction, self.beat_axes)

    def lanes(self, contraction: Contraction) -> int:
        """Elements of one beat."""
        return _product(contraction, self.lane_axes)


def _product(contraction: Contraction, axes: str) -> int:
    product = 1
    for axis in axes:
        product *= contraction.extents.get(axis, 1)
    return product


@dataclass(frozen=True, kw_only=True)
class StreamTiming:
    """Named timing constants of a block fed by streams; tests measure each of them on the RTL. All in cycles.

    A *pass* is a maximal run of tile calls that share what is resident (accumulators of one C tile, or one tile of
    stationary weights); its length is the number of activation beats (stream ``i_a``) in the run.

    Parameters
    ----------
    preload : int
        Cycles before the first activation beat of the first pass can be accepted (first weights).
    min_interval : int, >= 1
        Least distance of two successive passes: of their last activation beats where accumulators stay inside, else of
        their first.
    latency : int, >= 1
        From the last activation beat of a pass accepted to the first result beat that it completes being valid
        (1 = the cycle after).
    result_interval : int, >= 1
        Distance of successive result beats that one pass still owes after its last activation beat.
    result_beats : int, >= 1
        Result beats that a pass still owes after its last activation beat.
    """

    preload: int = 0
    min_interval: int = 1
    latency: int = 1
    result_interval: int = 1
    result_beats: int = 1

    @property
    def drain(self) -> int:
        """Cycles from the last activation beat accepted to the last result beat accepted."""
        return self.latency + self.result_interval * (self.result_beats - 1)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A design as software sees it.

    Parameters
    ----------
    name : str
        Name of the design, also the Verilog module name.
    design_hash : str
        Hash of the design point; every artefact made for it carries it.
    instruction : Instruction
    streams : tuple of StreamLayout
        Operand streams and the result stream, in port order.
    timing : StreamTiming
    """

    name: str
    design_hash: str
    instruction: Instruction
    streams: tuple[StreamLayout, ...]
    timing: StreamTiming

    def stream(self, operand: str) -> StreamLayout:
        """The stream of operand ``"a"``, ``"b"`` or ``"c"``."""
        return next(stream for stream in self.streams if stream.operand == operand)

    @property
    def beats_per_call(self) -> int:
        """Activation beats of one tile call."""
        return self.stream("a").beats(self.instruction.contraction)

    @property
    def max_calls_per_pass(self) -> int | None:
        """Tile calls that may share one pass, or None for no limit.

        Resident accumulators hold at most ``contraction.max_depth`` products when overflow is forbidden; a caller
        that accumulates more sums in memory instead. With WRAP the split makes no difference; with SATURATE it
        would change results, so a saturating pass is never split.
        """
        from .numerics import Overflow

        contraction = self.instruction.contraction
        if self.instruction.resident != "acc" or contraction.overflow is not Overflow.FORBID:
            return None
        return max(contraction.max_depth // contraction.depth, 1)
