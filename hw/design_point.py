"""A design point: a family of blocks and its parameters, validated and hashable. No HDL is imported before `component`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..intrinsics import FormatError, Instruction, Machine, ParameterError
from .options import options
from .parameters import Parameters, closest, family_of

if TYPE_CHECKING:
    from amaranth.lib import wiring

HW_VERSION = 6
"""Part of every design hash: raise it whenever the RTL or the timing of any block changes."""

_COMPONENTS = {
    "systolic": ("systolic", "SystolicArray"),
    "dot-product": ("dot_product", "DotProductUnit"),
    "outer-product": ("outer_product", "OuterProductUnit"),
    "accelerator": ("accelerator.system", "accelerator"),
}


@dataclass(frozen=True)
class DesignPoint:
    """One point of the hardware space.

    Parameters
    ----------
    family : str
        Key of `FAMILIES`.
    parameters : Parameters
        Record of that family.

    Raises
    ------
    ParameterError
        If the record is not the family's.
    """

    family: str
    parameters: Parameters

    def __post_init__(self) -> None:
        record = family_of(self.family)
        if type(self.parameters) is not record:
            raise ParameterError(f"parameters of family {self.family} must be a {record.__name__}, not {type(self.parameters).__name__}")

    @classmethod
    def create(cls, family: str, **parameters: Any) -> DesignPoint:
        """Validate plain values: ``DesignPoint.create("systolic", rows=8, cols=8, dataflow="weight-stationary", b="uint4")``."""
        allowed = {option.name: option for option in options(family)}
        for name in parameters:
            if name not in allowed:
                raise ParameterError(f"{family} has no parameter {name!r}; allowed: {', '.join(allowed)}{closest(name, allowed)}")
        missing = [option.name for option in allowed.values() if option.required and option.name not in parameters]
        if missing:
            raise ParameterError(f"{family} needs {' and '.join(missing)}")
        return cls(family, family_of(family)(**parameters))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DesignPoint:
        """Rebuild from `to_dict`, or from any mapping of ``family`` and parameters to plain values."""
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise FormatError(f"a design point must be a table of family and parameters, not {data!r}")
        if "family" not in data:
            raise FormatError(f"a design point needs the key 'family'; given: {', '.join(data) or 'nothing'}")
        parameters = {key: value for key, value in data.items() if key != "family"}
        return cls.create(data["family"], **parameters)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: family and every parameter, defaults filled in."""
        return {"family": self.family, **self.parameters.to_dict()}

    @functools.cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits over the parameters and `HW_VERSION`."""
        canonical = json.dumps({"hw_version": HW_VERSION, **self.to_dict()}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Module name, such as ``celosia_systolic_os_8x8_s8s8s32_0123456789ab``."""
        types = "".join(dtype.short for dtype in (self.parameters.a, self.parameters.b, self.parameters.acc))
        return f"celosia_{self.parameters.title}_{types}_{self.hash}"

    @property
    def instruction(self) -> Instruction:
        """What one tile call computes."""
        return self.parameters.instruction

    @functools.cached_property
    def machine(self) -> Machine:
        """What software may know of the design."""
        return Machine(
            name=self.name,
            design_hash=self.hash,
            instruction=self.instruction,
            streams=self.parameters.streams,
            timing=self.parameters.timing,
        )

    @property
    def macs_per_cycle(self) -> int:
        """Multipliers, so peak multiply-accumulates per cycle."""
        return self.instruction.contraction.macs // self.machine.beats_per_call

    def component(self) -> wiring.Component:
        """The block as an Amaranth component."""
        module, name = _COMPONENTS[self.family]
        component: wiring.Component = getattr(importlib.import_module(f".{module}", __package__), name)(self.parameters)
        return component
