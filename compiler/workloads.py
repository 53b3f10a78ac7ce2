"""Workloads: named lists of operators."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from ..intrinsics import FormatError
from .operators import Operator, from_te, parse
from .parse import TE_PARAMETERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKLOADS = ("operators", "resnet18")

NOT_SUMS = {
    "SFM": "softmax is no sum of products",
    "CBR": "convolution, bias and normalisation in floating point; its integer part is C2D",
    "C2D_WIN_NHWC": "a Winograd transform has fractional coefficients",
}
"""Entries of TVM's CONFIGS that have no int8 -> int32 form, and why."""


def workload(name: str) -> list[Operator]:
    """Operators of a workload.

    Parameters
    ----------
    name : str
        ``operators``: every entry of TVM's ``te_workload.CONFIGS`` that has an int8 form. ``resnet18``: its layers of ResNet-18
        (kind C2D) and two matrix products (128 x 128 x 128, 512 x 32 x 512). Otherwise a TOML file with
        ``operators = ["conv2d:1x56x56x64,64x3x3,s2,p1", …]``, in which an entry may also be ``{operator = "…", weight = 3}``.

    Raises
    ------
    FormatError
        If the file cannot be read, is not TOML, or an entry does not parse.
    """
    if name == "operators":
        return [from_te(kind, arguments) for kind, arguments in configs()]
    if name == "resnet18":
        layers = [from_te(kind, arguments) for kind, arguments in configs() if kind == "C2D"]
        return [*layers, parse("gemm:128x128x128"), parse("gemm:512x32x512")]
    if not os.path.exists(name):
        raise FormatError(f"workload must be one of {', '.join(WORKLOADS)} or a TOML file, not {name!r}")
    return _from_file(name)


@functools.cache
def configs() -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(kind, arguments) of TVM's CONFIGS, without the kinds of `NOT_SUMS` (imports TVM)."""
    from tvm.s_tir.meta_schedule.testing.te_workload import CONFIGS

    return tuple((kind, tuple(arguments)) for kind, (_, entries) in CONFIGS.items() if kind in TE_PARAMETERS for arguments in entries)


def _from_file(path: str) -> list[Operator]:
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except OSError as error:
        raise FormatError(f"workload {path!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"workload {path!r} is not TOML: {error}") from None
    unknown = [key for key in data if key != "operators"]
    entries = data.get("operators")
    if unknown or not isinstance(entries, list) or not entries:
        raise FormatError(f"workload {path!r} must hold one list 'operators'" + (f", not the key {unknown[0]!r}" if unknown else ""))
    return [_entry(entry, f"workload {path!r}, operators[{index}]") for index, entry in enumerate(entries)]


def _entry(entry: Any, place: str) -> Operator:
    if isinstance(entry, dict):
        if set(entry) - {"operator", "weight"} or "operator" not in entry:
            raise FormatError(f"{place} must have the keys operator and weight, not {', '.join(entry)}")
        return _entry(entry["operator"], place).weighted(entry.get("weight", 1))
    try:
        return parse(entry)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from None
