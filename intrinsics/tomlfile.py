"""Reading TOML that a user wrote: every fault is one sentence that names the file, the entry and the key."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import FormatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "an array",
    dict: "a table",
}


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse one TOML file.

    Raises
    ------
    FormatError
        If the file does not exist, is a folder, cannot be read, is not UTF-8, or is not TOML (with line and column).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FormatError(f"{path}: is a folder, not a TOML file") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FormatError(f"{path}: not UTF-8: byte {error.object[error.start]:#04x} in line {line}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(f"{path}: cannot be read: {reason}") from None
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
    return data


def closest(name: str, options: Iterable[str], *, count: int = 1) -> list[str]:
    """The ``options`` most like ``name``, best first; empty if none is alike."""
    return difflib.get_close_matches(name, list(options), n=count, cutoff=0.5)


def check_keys(table: Mapping[str, Any], *, where: str, required: Collection[str] = (), optional: Collection[str] = ()) -> None:
    """Refuse unknown keys (naming the closest legal one) and missing ones.

    Parameters
    ----------
    table : mapping
    where : str
        File and entry, the beginning of the sentence.
    required, optional : keys
    """
    legal = [*required, *optional]
    for key in table:
        if key not in legal:
            near = closest(key, legal)
            mend = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(legal)}"
            raise FormatError(f"{where}: unknown key {key!r}; {mend}")
    missing = [key for key in required if key not in table]
    if missing:
        raise FormatError(f"{where}: missing key {', '.join(repr(key) for key in missing)}")


def check_type(value: Any, kind: type, *, where: str, key: str) -> None:
    """Refuse a value whose TOML type is not ``kind``; a boolean is no integer, an integer is a number."""
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        found = next((name for cls, name in _TYPE_NAMES.items() if type(value) is cls), type(value).__name__)
        raise FormatError(f"{where}: {key} must be {_TYPE_NAMES[kind]}, not {found}")
