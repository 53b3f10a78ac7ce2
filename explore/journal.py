"""The journal: one JSON line per evaluation, appended, never changed; what survives a crash is what resume starts from."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..intrinsics import CelosiaError, FormatError, HashMismatchError

JOURNAL_FORMAT = 1
FSYNC_SECONDS = 1.0
"""Least time between two fsyncs: a crash of the machine loses at most this; a crash of the process loses nothing."""


class JournalLockedError(CelosiaError):
    """Another process appends to the same journal."""


Key = tuple[str, str, str]
"""Candidate hash, fidelity, operator name ("" for a whole candidate)."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One evaluation.

    Parameters
    ----------
    hash : str
        Of the candidate.
    fidelity : str
        ``model``, ``rtl``, …: the source of the measurements.
    operator : str
        Name of the operator that was measured, or empty for the whole candidate.
    candidate : mapping
        `Candidate.to_dict`, or the assignment where no candidate could be made of it.
    measurements : mapping or None
        None exactly where there is an error.
    error : mapping or None
        ``stage``, ``class``, ``message``.
    ask : int
        Number of the proposal in the search, from 0; -1 for verifications.
    origin : str
        Who proposed it.
    seed : int
    versions : mapping
        Of everything that the numbers depend on.
    started, seconds : float
        Unix time, and how long the evaluation took.
    """

    hash: str
    fidelity: str
    candidate: Mapping[str, Any]
    measurements: Mapping[str, Any] | None
    error: Mapping[str, str] | None = None
    operator: str = ""
    ask: int = -1
    origin: str = ""
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        """What makes two evaluations the same."""
        return (self.hash, self.fidelity, self.operator)

    @property
    def infeasible(self) -> bool:
        """Whether there is nothing to measure: the error is not of the measurement but of an earlier stage."""
        return self.error is not None and self.error["stage"] != self.fidelity

    def to_line(self) -> bytes:
        """One line of JSON with its newline."""
        return (json.dumps({"kind": "evaluation", **self.__dict__}, separators=(",", ":"), ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Rebuild from a parsed line."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


class Journal:
    """An open journal file that this process alone appends to.

    Opening cuts off a torn last line (the process died while writing it). Use as a context manager.

    Parameters
    ----------
    path : Path
    study_hash : str
        Hash of the study that the records belong to.

    Raises
    ------
    JournalLockedError
        If another process has it open.
    HashMismatchError
        If it belongs to another study; both hashes are named.
    FormatError
        If a line other than the last does not parse, or the file does not begin with a header: it stays as it is.
    """

    def __init__(self, path: Path, study_hash: str) -> None:
        from filelock import FileLock, Timeout

        self.path = path
        self._writing = threading.RLock()
        self._lock = FileLock(str(path) + ".lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise JournalLockedError(
                f"another run is writing to {str(path.parent)!r}; wait for it, or choose another output folder"
            ) from None
        try:
            self.records = self._open(study_hash)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, study_hash: str) -> dict[Key, Record]:
        lines, good = _read(self.path)
        header = (json.dumps({"kind": "header", "format": JOURNAL_FORMAT, "study_hash": study_hash}) + "\n").encode()
        if lines:
            _check_header(lines[0], study_hash, self.path)
        elif not header.startswith(_bytes(self.path)):  # what a run that died at once has written begins like ours
            raise FormatError(f"{str(self.path)!r} is no journal of a study and stays as it is; choose another output folder")
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._file, good)
        os.lseek(self._file, 0, os.SEEK_END)
        self._synced = time.monotonic()
        if not lines:
            self._write(header)
            os.fsync(self._file)
        return _by_key(_records(lines, self.path))

    def append(self, record: Record) -> bool:
        """Write ``record`` unless its key is there already; returns whether it was written."""
        with self._writing:
            if record.key in self.records:
                return False
            self._write(record.to_line())
            self.records[record.key] = record
            now = time.monotonic()
            if now - self._synced >= FSYNC_SECONDS:
                os.fsync(self._file)
                self._synced = now
            return True

    def replace(self, record: Record) -> None:
        """Append ``record`` even if its key is there (an evaluation that was worth repeating); the last one counts."""
        with self._writing:
            self.records.pop(record.key, None)
            self.append(record)

    def _write(self, line: bytes) -> None:
        start = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # another thread may still append, and only the last line may be torn
                os.ftruncate(self._file, start)
                os.lseek(self._file, start, os.SEEK_SET)
            raise CelosiaError(f"journal {str(self.path)!r} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Flush to disk and let other processes in."""
        os.fsync(self._file)
        os.close(self._file)
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_journal(path: Path) -> tuple[str, list[Record]]:
    """Study hash and records of a journal, without locking or mending it; a torn last line is left out."""
    lines, _ = _read(path)
    if not lines:
        raise FormatError(f"journal {str(path)!r} is missing or empty")
    header = _check_header(lines[0], None, path)
    return header, list(_by_key(_records(lines, path)).values())


def merge(paths: Iterable[Path]) -> tuple[str, list[Record]]:
    """Study hash and records of several journals of one study; of two records of one evaluation the first counts.

    A record without an error goes before one with an error.
    """
    study_hash, merged = None, dict[Key, Record]()
    for path in paths:
        own, records = read_journal(path)
        if study_hash not in (None, own):
            raise HashMismatchError(f"journal {str(path)!r} belongs to study {own}, but the ones before it to study {study_hash}")
        study_hash = own
        for record in records:
            if record.key not in merged or (merged[record.key].error and not record.error):
                merged[record.key] = record
    if study_hash is None:
        raise FormatError("merging needs at least one journal")
    return study_hash, list(merged.values())


def write_merged(paths: Iterable[Path], target: Path) -> None:
    """Merge journals into a new one at ``target``, which must not exist."""
    study_hash, records = merge(paths)
    if target.exists():
        raise FormatError(f"journal {str(target)!r} exists already; name a new file")
    with Journal(target, study_hash) as journal:
        for record in records:
            journal.append(record)


def _records(lines: list[dict[str, Any]], path: Path) -> Iterator[Record]:
    for number, line in enumerate(lines[1:], 2):
        missing = [name for name in ("hash", "fidelity", "candidate", "measurements") if name not in line]
        if missing:
            raise FormatError(f"journal {str(path)!r}, line {number} is no evaluation: it has no {missing[0]!r}")
        yield Record.from_dict(line)


def _by_key(records: Iterable[Record]) -> dict[Key, Record]:
    return {record.key: record for record in records}


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Parsed lines, and the length in bytes up to which the file is whole."""
    data, lines, good = _bytes(path), [], 0
    for number, line in enumerate(_split(data), 1):
        parsed = _parse(line)
        if parsed is None:
            if good + len(line) < len(data):
                raise FormatError(f"journal {str(path)!r}, line {number} is not a record; only the last line may be torn")
            break
        lines.append(parsed)
        good += len(line)
    return lines, good


def _bytes(path: Path) -> bytes:
    """The file, or nothing where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FormatError(f"journal {str(path)!r} cannot be read: {error.strerror}") from None


def _split(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and "kind" in parsed else None


def _check_header(line: Mapping[str, Any], study_hash: str | None, path: Path) -> str:
    if line.get("kind") != "header" or line.get("format") != JOURNAL_FORMAT:
        raise FormatError(f"journal {str(path)!r} must begin with a header of format {JOURNAL_FORMAT}, not {line.get('format')!r}")
    own = str(line.get("study_hash"))
    if study_hash is not None and own != study_hash:
        raise HashMismatchError(
            f"{str(path.parent)!r} holds results of another study (hash {own}), not of this one (hash {study_hash}); choose another folder"
        )
    return own
