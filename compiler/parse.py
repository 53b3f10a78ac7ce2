"""Operator strings: read and written."""

from __future__ import annotations

import difflib
import re

from ..intrinsics import FormatError
from .forms import Parameters, extents

_CONV_KINDS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_OPTIONS = {"s": "stride", "p": "pad", "d": "dilation", "g": "groups"}
CONV_OPTIONS = tuple(_OPTIONS.values())
TE_PARAMETERS: dict[str, tuple[str, ...]] = {
    "C1D": ("batch", "l", "c_in", "c_out", "kernel", *CONV_OPTIONS),
    "C2D": ("batch", "h", "w", "c_in", "c_out", "kernel", *CONV_OPTIONS),
    "C3D": ("batch", "d", "h", "w", "c_in", "c_out", "kernel", *CONV_OPTIONS),
    "DIL": ("batch", "h", "w", "c_in", "c_out", "kernel", *CONV_OPTIONS),
    "GRP": ("batch", "h", "w", "c_in", "c_out", "kernel", *CONV_OPTIONS),
    "DEP": ("batch", "h", "w", "c_in", "kernel", "stride", "pad", "dilation"),
    "T2D": ("batch", "h", "w", "c_in", "c_out", "kernel", "stride", "pad"),
    "CAP": ("batch", "h", "w", "c_in", "c_out", "kernel", "stride", "pad", "capsule"),
    "GMM": ("batch", "m", "n", "k"),
    "TBG": ("batch", "length", "heads", "dim"),
    "NRM": ("batch", "m", "n"),
}
"""Arguments of the TE function of each kind, in its order."""

_NUMBER = re.compile(r"[0-9]+")


def read(text: str) -> tuple[str, Parameters | tuple[int, ...]]:
    """Kind and parameters of an operator string; a tuple of numbers where the string lists a TE function's arguments."""
    head, colon, _ = text.partition(":")
    kinds = [*_CONV_KINDS, "gemm", *(kind.lower() for kind in TE_PARAMETERS)]
    if not colon or head not in kinds:
        near = difflib.get_close_matches(head, kinds, 1)
        raise FormatError(
            f"operator {text!r}, position 0: expected one of {', '.join(kinds)} and a colon, not {head!r}"
            + (f"; nearest: {near[0]}" if near else "")
        )
    start = len(head) + 1
    if head in _CONV_KINDS:
        return _conv(text, start, _CONV_KINDS[head])
    numbers, end = _numbers(text, start)
    if end != len(text):
        raise FormatError(f"operator {text!r}, position {end}: expected 'x' and a number, or the end, not {text[end]!r}")
    if head != "gemm":
        return head.upper(), tuple(numbers)
    if len(numbers) != 3:
        raise FormatError(f"operator {text!r}, position {start}: expected 3 numbers MxNxK, not {len(numbers)}")
    return "GMM", {"batch": 1, **dict(zip("mnk", numbers, strict=True))}


def _numbers(text: str, start: int) -> tuple[list[int], int]:
    """Numbers separated by ``x`` from ``start`` on, and where they end."""
    numbers: list[int] = []
    position = start
    while True:
        match = _NUMBER.match(text, position)
        if match is None:
            found = repr(text[position]) if position < len(text) else "the end"
            raise FormatError(f"operator {text!r}, position {position}: expected a number, not {found}")
        if len(match[0]) > 9:
            raise FormatError(f"operator {text!r}, position {position}: expected a number of at most 9 digits, not {match[0]}")
        numbers.append(int(match[0]))
        position = match.end()
        if text[position : position + 1] != "x":
            return numbers, position
        position += 1


def _conv(text: str, start: int, dimensions: int) -> tuple[str, Parameters]:
    shape, position = _numbers(text, start)
    if len(shape) != dimensions + 2:
        form = "x".join(("N", *"DHW"[3 - dimensions :], "C_in"))
        raise FormatError(f"operator {text!r}, position {start}: expected {dimensions + 2} numbers {form}, not {len(shape)}")
    position = _comma(text, position)
    weights, end = _numbers(text, position)
    if len(weights) != dimensions + 1:
        form = "x".join(("C_out", *("KD", "KH", "KW")[3 - dimensions :]))
        raise FormatError(f"operator {text!r}, position {position}: expected {dimensions + 1} numbers {form}, not {len(weights)}")
    options = _options(text, end)
    parameters: Parameters = {
        "batch": shape[0],
        "size": tuple(shape[1:-1]),
        "c_in": shape[-1],
        "c_out": weights[0],
        "kernel": tuple(weights[1:]),
        **options,
    }
    return f"C{dimensions}D", parameters


def conv_kind(p: Parameters) -> str:
    """Kind of a convolution of two dimensions."""
    return "GRP" if p["groups"] != 1 else "DIL" if p["dilation"] != 1 else "C2D"


def _comma(text: str, position: int) -> int:
    if text[position : position + 1] != ",":
        found = repr(text[position]) if position < len(text) else "the end"
        raise FormatError(f"operator {text!r}, position {position}: expected a comma, not {found}")
    return position + 1


def _options(text: str, position: int) -> dict[str, int]:
    options = {"stride": 1, "pad": 0, "dilation": 1, "groups": 1}
    seen = set()
    while position < len(text):
        position = _comma(text, position)
        letter = text[position : position + 1]
        match = _NUMBER.match(text, position + 1)
        if letter not in _OPTIONS or letter == "" or match is None or len(match[0]) > 9:
            raise FormatError(f"operator {text!r}, position {position}: expected s, p, d or g and a number, not {text[position:]!r}")
        if letter in seen:
            raise FormatError(f"operator {text!r}, position {position}: option {letter!r} is given twice")
        seen.add(letter)
        options[_OPTIONS[letter]] = int(match[0])
        position = match.end()
    return options


def canonical(kind: str, p: Parameters) -> str:
    """The string of an operator; `read` gives its parameters back."""
    if kind == "GMM" and p["batch"] == 1:
        return "gemm:" + _join(p["m"], p["n"], p["k"])
    if kind in ("C1D", "C2D", "C3D", "DIL", "GRP"):
        size, kernel = extents(p, "size"), extents(p, "kernel")
        options = [f"{letter}{p[name]}" for letter, name in _OPTIONS.items() if p[name] != (0 if letter == "p" else 1)]
        head = f"conv{len(size)}d:" + _join(p["batch"], *size, p["c_in"])
        return ",".join([head, _join(p["c_out"], *kernel), *options])
    flat = dict(p)
    if "kernel" in p:
        flat |= dict(zip(("h", "w"), extents(p, "size"), strict=True)) | {"kernel": extents(p, "kernel")[0]}
    return f"{kind.lower()}:" + _join(*(flat[name] for name in TE_PARAMETERS[kind]))


def _join(*numbers: object) -> str:
    return "x".join(str(number) for number in numbers)
