"""What is evaluated: one design point and one schedule per operator."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..hw.design_point import DesignPoint
from ..intrinsics import FormatError, HashMismatchError

Schedule = tuple[tuple[str, Any], ...]
"""Values of an operator's schedule variables, by name, in the order of the schedule space."""


def canonical(data: Any) -> str:
    """JSON text of plain data that is the same for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(data: Any) -> str:
    """Hexadecimal SHA-256 of plain data."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


@dataclass(frozen=True)
class Candidate:
    """A design point with the schedule of every operator.

    Parameters
    ----------
    design : DesignPoint
    schedules : tuple of (operator name, schedule)
        In the order of the workload. The choice of the mapping is one of the schedule's variables.
    """

    design: DesignPoint
    schedules: tuple[tuple[str, Schedule], ...]

    @functools.cached_property
    def hash(self) -> str:
        """Hexadecimal SHA-256 of the canonical JSON."""
        return digest(self.to_dict())

    def schedule(self, operator: str) -> dict[str, Any]:
        """Values of the schedule variables of one operator."""
        return dict(next(schedule for name, schedule in self.schedules if name == operator))

    def scheduled(self, schedules: Mapping[str, Mapping[str, Any]] | None) -> Candidate:
        """The candidate with schedules that its evaluation found (None: with its own)."""
        if schedules is None:
            return self
        return Candidate(self.design, tuple((name, tuple(values.items())) for name, values in schedules.items()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the design's hash stands beside its parameters."""
        schedules = {name: {key: _plain(value) for key, value in schedule} for name, schedule in self.schedules}
        return {"design": self.design.to_dict(), "design_hash": self.design.hash, "schedules": schedules}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        """Rebuild from `to_dict`; refuses a record whose design has another hash today."""
        try:
            design = DesignPoint.from_dict(data["design"])
            schedules = tuple(
                (name, tuple((key, _frozen(item)) for key, item in values.items())) for name, values in data["schedules"].items()
            )
            stored = data["design_hash"]
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"a candidate needs design, design_hash and schedules; {type(error).__name__}: {error}") from None
        if stored != design.hash:
            raise HashMismatchError(f"the candidate was recorded for design {stored}, but its parameters are design {design.hash} now")
        return cls(design, schedules)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
