"""The instructions of real instruction sets, and the file format in which users add their own.

An instruction file is TOML with one ``[[instruction]]`` per entry::

    [[instruction]]
    name = "my_dot"
    einsum = "k,nk->n"
    extents = { n = 4, k = 4 }
    a = "uint8"
    b = "int8"
    acc = "int32"                       # these six keys and the name are required
    overflow = "wrap"                   # forbid (default), wrap, saturate, saturate-once
    latency = 3                         # cycles; default 1
    initiation_interval = 1             # cycles; default 1
    resident = "acc"                    # "acc" or "b"; default nothing
    encoding = { isa = "RISC-V custom", mnemonic = "my.dot", opcode = 0x0b, funct3 = 0, funct7 = 1 }
    aliases = ["mine"]
    source = "where semantics and timing are written down"

The catalogue itself, ``catalogue.toml`` beside this module, is such a file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .contraction import Contraction
from .errors import FormatError, ParameterError
from .instruction import Encoding, Instruction
from .tomlfile import check_keys, check_type, closest, read_toml

CATALOGUE_PATH = Path(__file__).with_name("catalogue.toml")

_REQUIRED = {"name": str, "einsum": str, "extents": dict, "a": str, "b": str, "acc": str}
_OPTIONAL = {
    "overflow": str,
    "latency": int,
    "initiation_interval": int,
    "resident": str,
    "encoding": dict,
    "aliases": list,
    "source": str,
}
_ENCODING = {"isa": str, "mnemonic": str, "opcode": int, "funct3": int, "funct7": int}
_NAME = re.compile(r"[A-Za-z0-9_]+")


def load_instructions(path: str | Path) -> tuple[Instruction, ...]:
    """Read every instruction of a TOML file, in its order.

    Raises
    ------
    FormatError
        If the file cannot be read, is not TOML, or an entry has a missing, unknown or ill-typed key or a name that was used before.
    ParameterError
        If the values of an entry describe no legal instruction. Both name the file and the entry.
    """
    return tuple(instruction for instruction, _ in _load(path))


@functools.cache
def catalogue() -> Mapping[str, Instruction]:
    """Every instruction that Celosia knows, by name (read-only).

    >>> print(catalogue()["arm_sdot_element"].contraction)
    k,nk->n [n=4, k=4] int8, int8 -> int32
    """
    return MappingProxyType({instruction.name: instruction for instruction, _ in _shipped()})


@functools.cache
def aliases() -> Mapping[str, str]:
    """Short names of the catalogue and what they stand for (read-only).

    >>> aliases()["vnni"]
    'avx512_vpdpbusd_512_broadcast'
    """
    return MappingProxyType({alias: instruction.name for instruction, names in _shipped() for alias in names})


@functools.cache
def _shipped() -> tuple[tuple[Instruction, tuple[str, ...]], ...]:
    return tuple(_load(CATALOGUE_PATH))


def resolve_instructions(name_or_path: str) -> tuple[Instruction, ...]:
    """The instructions that ``--isa NAME|FILE`` means: one of the catalogue, all of a file, or one of a file (``FILE:NAME``).

    Raises
    ------
    ParameterError
        If the name is not in the catalogue; the closest names are given.
    FormatError
        As `load_instructions`.
    """
    if not name_or_path.strip():
        raise ParameterError("an instruction must be a name of the catalogue or a TOML file, not an empty string")
    name = aliases().get(name_or_path, name_or_path)
    if name in catalogue():
        return (catalogue()[name],)
    if Path(name_or_path).is_file():
        return load_instructions(name_or_path)
    path, colon, entry = name_or_path.rpartition(":")
    if colon and Path(path).is_file():
        return (_entry_of_file(path, entry),)
    if _NAME.fullmatch(name_or_path):
        raise ParameterError(_unknown(name_or_path))
    return load_instructions(name_or_path)


def resolve_instruction(name_or_path: str) -> Instruction:
    """The single instruction that ``name_or_path`` means; see `resolve_instructions`.

    Raises
    ------
    ParameterError
        Also if a file holds several instructions and none is chosen with ``FILE:NAME``.
    """
    found = resolve_instructions(name_or_path)
    if len(found) > 1:
        raise ParameterError(
            f"{name_or_path} holds {len(found)} instructions; choose one as {name_or_path}:NAME with NAME one of "
            f"{', '.join(instruction.name for instruction in found)}"
        )
    return found[0]


def _unknown(name: str) -> str:
    near = closest(name.lower(), [*catalogue(), *aliases()], count=3)
    known = f"closest: {', '.join(near)}" if near else f"known are {', '.join(list(aliases())[:6])}, …"
    return f"unknown instruction {name!r}, and no file of that name; {known} (celosia coverage --list shows all)"


def _entry_of_file(path: str, entry: str) -> Instruction:
    found = {instruction.name: instruction for instruction in load_instructions(path)}
    if entry not in found:
        raise ParameterError(f"{path}: no instruction {entry!r}; it holds {', '.join(found)}")
    return found[entry]


def _load(path: str | Path) -> list[tuple[Instruction, tuple[str, ...]]]:
    document = read_toml(path)
    entries = document.get("instruction")
    if isinstance(entries, dict):
        raise FormatError(f"{path}: write [[instruction]] with two brackets, one per entry")
    check_keys(document, where=str(path), required=["instruction"])
    check_type(entries, list, where=str(path), key="instruction")
    if not entries:
        raise FormatError(f"{path}: holds no [[instruction]]")
    loaded: list[tuple[Instruction, tuple[str, ...]]] = []
    taken: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        instruction, names = _parse_entry(entry, path=path, number=number)
        for name in (instruction.name, *names):
            if name in taken:
                raise FormatError(f"{path}: instruction {number}: name {name!r} is already used by instruction {taken[name]}")
            taken[name] = number
        loaded.append((instruction, names))
    return loaded


def _parse_entry(entry: Any, *, path: str | Path, number: int) -> tuple[Instruction, tuple[str, ...]]:
    check_type(entry, dict, where=str(path), key=f"instruction {number}")
    name = entry.get("name")
    where = f"{path}: instruction {name!r}" if isinstance(name, str) else f"{path}: instruction {number}"
    check_keys(entry, where=where, required=_REQUIRED, optional=_OPTIONAL)
    for key, value in entry.items():
        check_type(value, {**_REQUIRED, **_OPTIONAL}[key], where=where, key=key)
    for axis, extent in entry["extents"].items():
        check_type(extent, int, where=where, key=f"extents.{axis}")
    for alias in entry.get("aliases", ()):
        check_type(alias, str, where=where, key="aliases")
    try:
        return _build(entry, where=where), tuple(entry.get("aliases", ()))
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _build(entry: Mapping[str, Any], *, where: str) -> Instruction:
    contraction = Contraction(**{key: entry[key] for key in ("einsum", "extents", "a", "b", "acc", "overflow") if key in entry})
    options = {key: entry[key] for key in ("latency", "initiation_interval", "resident", "source") if key in entry}
    return Instruction(name=entry["name"], contraction=contraction, encoding=_encoding(entry.get("encoding"), where=where), **options)


def _encoding(table: Mapping[str, Any] | None, *, where: str) -> Encoding | None:
    if table is None:
        return None
    check_keys(table, where=f"{where}: encoding", required=["isa", "mnemonic"], optional=["opcode", "funct3", "funct7"])
    for key, value in table.items():
        check_type(value, _ENCODING[key], where=where, key=f"encoding.{key}")
    return Encoding(**table)
