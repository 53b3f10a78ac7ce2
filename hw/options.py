"""Parameters of a family as the command line and a study file see them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .parameters import Parameters, family_of, plain


@dataclass(frozen=True, kw_only=True)
class Option:
    """One parameter as the command line and a study file see it.

    Parameters
    ----------
    name : str
    kind : "integer", "flag", "choice" or "dtype"
    required : bool
    default : int, bool, str or None
        None where there is none, or where it depends on other parameters (then ``help`` says how).
    help : str
    low, high : int or None
        Limits of an integer.
    choices : tuple of str
        Values of a choice.
    """

    name: str
    kind: str
    required: bool
    default: Any
    help: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()


def options(family: str) -> tuple[Option, ...]:
    """Parameters of a family: those of its shape first, then the types."""
    record = family_of(family)
    fields = dataclasses.fields(record)
    shared = {spec.name for spec in dataclasses.fields(Parameters)}
    ordered = [spec for spec in fields if spec.name not in shared] + [spec for spec in fields if spec.name in shared]
    modes = tuple(mode.value for mode in record.overflow_modes)
    return tuple(_option(spec, modes if spec.name == "overflow" else spec.metadata.get("choices", ())) for spec in ordered)


def _option(spec: dataclasses.Field[Any], choices: tuple[str, ...]) -> Option:
    required = spec.default is dataclasses.MISSING
    return Option(
        name=spec.name,
        kind=spec.metadata["kind"],
        required=required,
        default=None if required else plain(spec.default),
        help=spec.metadata["help"],
        low=spec.metadata.get("low"),
        high=spec.metadata.get("high"),
        choices=choices,
    )
