"""The folder of a study's results: checked before anything is written, so that earlier results stay as they are."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..intrinsics import CelosiaError, ParameterError
from .results import FILES
from .study import Study

JOURNAL = "journal.jsonl"
STUDY = "study.toml"


def prepare(folder: Path, study: Study, *, resume: bool) -> None:
    """Make the folder if need be, and refuse one that holds something else.

    Raises
    ------
    ParameterError
        If it holds results and ``resume`` is false, or files of something else.
    HashMismatchError
        If it holds another study.
    CelosiaError
        If it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
            pass
    except FileExistsError:
        raise ParameterError(f"output folder {str(folder)!r} is a file; name a folder") from None
    except OSError as error:
        raise CelosiaError(f"output folder {str(folder)!r} cannot be written: {error.strerror}; choose another with --out") from None
    journal = folder / JOURNAL
    if journal.exists() and journal.stat().st_size:
        _check_journal(journal, study, resume=resume)
    else:
        _check_results(folder)
    _check_study(folder / STUDY, study)


def _check_results(folder: Path) -> None:
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise ParameterError(f"output folder {str(folder)!r} has {taken[0]!r} but no {JOURNAL}, so it is not of this study; choose another")


def _check_journal(journal: Path, study: Study, *, resume: bool) -> None:
    from .journal import Journal

    with Journal(journal, study.hash) as held:  # refuses another study, and one that is being written
        count = len(held.records)
    if not resume:
        raise ParameterError(
            f"output folder {str(journal.parent)!r} holds {count} results of this study; go on with --resume, or choose another folder"
        )


def _check_study(path: Path, study: Study) -> None:
    if os.path.lexists(path) and not _holds(path, study):
        raise ParameterError(
            f"output folder {str(path.parent)!r} has a {path.name!r} that is not this study, and it would be replaced; choose another"
        )


def _holds(path: Path, study: Study) -> bool:
    """Whether a file is what `write_study` writes, or says the same in other words."""
    try:
        # workload files are named as seen from where the study was run, so the text counts too
        return path.read_text(encoding="utf-8-sig") == to_toml(study.to_dict()) or Study.load(path) == study
    except (OSError, ValueError, CelosiaError):
        return False


def write_study(folder: Path, study: Study) -> None:
    """Keep the study beside its results, as a file that gives the same study again; one that is there already stays."""
    target = folder / STUDY
    if os.path.lexists(target):  # `prepare` has found it to be this study: an earlier run's, or the user's own
        return
    part = folder / f".{STUDY}.new"
    part.write_text(to_toml(study.to_dict()), encoding="utf-8")
    os.replace(part, target)


def to_toml(data: Mapping[str, Any]) -> str:
    """TOML text of nested tables of strings, numbers, booleans and lists."""
    lines: list[str] = []
    _table(data, "", lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(data: Mapping[str, Any], path: str, lines: list[str]) -> None:
    scalars = {key: value for key, value in data.items() if not _is_table(value)}
    if path and scalars:
        lines += ["", f"[{path}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in scalars.items()]
    for key, value in data.items():
        if _is_table(value):
            _table(value, f"{path}.{_key(key)}" if path else _key(key), lines)


def _is_table(value: Any) -> bool:
    """Domains ({min, max, …}) and workload entries stay inline."""
    return isinstance(value, Mapping) and "min" not in value and "operator" not in value


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
