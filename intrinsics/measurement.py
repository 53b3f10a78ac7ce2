"""What was measured or modelled of one run: every number says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import ParameterError

SOURCES = ("model", "rtl", "estimate", "synthesis")
LEDGER_KEYS = ("fill", "steady", "drain", "stall")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Cycles of one operator on one design.

    Parameters
    ----------
    cycles : int
        From the first operand beat offered to the last result beat accepted, both included.
    macs : int
        Useful multiply-accumulates (padding not counted).
    utilization : float
        ``macs / (cycles * peak MACs per cycle)``, 0..1.
    source : "model" or "rtl"
    design_hash : str
    ledger : mapping
        Cycles by what the array did (`LEDGER_KEYS`); sums to ``cycles``. Empty where the source is the model.
    matches_reference : bool or None
        Whether the output equals the reference bit for bit; None where nothing was computed.
    calls : int
        Tile calls.
    model_cycles : int or None
        What the exact cycle model says of the same run, beside RTL cycles; None where the model does not apply.
    simulation_seconds, build_seconds : float
    """

    cycles: int
    macs: int
    utilization: float
    source: str
    design_hash: str
    ledger: Mapping[str, int] = field(default_factory=dict)
    matches_reference: bool | None = None
    calls: int = 0
    model_cycles: int | None = None
    simulation_seconds: float = 0.0
    build_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ParameterError(f"source must be one of {', '.join(SOURCES)}, not {self.source!r}")
        if self.ledger and sum(self.ledger.values()) != self.cycles:
            raise ParameterError(f"ledger {dict(self.ledger)} sums to {sum(self.ledger.values())}, not to {self.cycles} cycles")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "ledger": dict(self.ledger)}
