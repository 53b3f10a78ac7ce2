"""The content-addressed cache: keys, locks, and entries that appear whole or not at all.

Of a kind that takes more than ``CELOSIA_CACHE_GIB``, what was not used for a day is removed.

Layout: ``<kind>/<key>/`` are entries, ``locks/<key>.lock`` their locks, ``work/<key>.<random>/`` entries in the making,
``logs/<key>.log`` what a failed tool said.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..intrinsics import CelosiaError, ToolFailedError

Loaded = TypeVar("Loaded")


def cache_root() -> Path:
    """``CELOSIA_CACHE``, else ``$XDG_CACHE_HOME/celosia``, else ``~/.cache/celosia``."""
    own = os.environ.get("CELOSIA_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()).absolute() / "celosia"


_DAY, _TRIM_EVERY = 86400.0, 32
_DEFAULT_GIB = 4.0


def _limit_bytes() -> float:
    """``CELOSIA_CACHE_GIB``, else 4 GiB."""
    text = os.environ.get("CELOSIA_CACHE_GIB", "")
    try:
        limit = float(text or _DEFAULT_GIB)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < math.inf:
        raise CelosiaError(f"CELOSIA_CACHE_GIB must be a number of GiB from 0, such as 4, not {text!r}")
    return limit * 2**30


def digest(parts: Iterable[str]) -> str:
    """A key from strings; their boundaries count."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:24]


@functools.lru_cache(maxsize=16)
def source_digest(folder: Path) -> str:
    """Hash of the sources in ``folder`` and below; read once per process."""
    files = sorted(path for suffix in ("*.py", "*.cpp", "*.h") for path in folder.rglob(suffix))
    return digest(part for path in files for part in (path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Cache:
    """One cache folder.

    Parameters
    ----------
    root : Path
        Absolute; made when the first entry is.
    """

    root: Path

    def entry(self, kind: str, key: str) -> Path:
        """Where the entry is or will be."""
        return self.root / kind / key

    def log(self, key: str) -> Path:
        """Where the log of a failed build is."""
        return self.root / "logs" / f"{key}.log"

    def ensure(
        self, kind: str, key: str, make: Callable[[Path], None], waiting: Callable[[], None] = lambda: None, *, file: str = ""
    ) -> Path:
        """The entry's folder; if there is none, ``make`` fills a folder beside it, which then becomes the entry.

        So does one from which somebody has removed ``file``.

        One process makes an entry, the others wait for it. A process that dies leaves only a folder under ``work``,
        which the next one to build anything removes.

        Raises
        ------
        CelosiaError
            If the cache cannot be written, or its limit is no number.
        """
        entry = self.entry(kind, key)
        if (entry / file).exists():
            self.touch(entry)
            return entry
        limit = _limit_bytes()
        with self._explained(), self._locked(key, waiting):
            if not (entry / file).exists():
                shutil.rmtree(entry, ignore_errors=True)
                self._make(entry, key, make)
                with contextlib.suppress(OSError):  # others work here, too
                    self._trim(entry.parent, limit)
        return entry

    @staticmethod
    def touch(entry: Path) -> None:
        """Mark an entry as used now."""
        with contextlib.suppress(OSError):  # a cache that can only be read
            os.utime(entry)

    def _trim(self, folder: Path, limit: float) -> None:
        """Remove what was not used for a day, the longest unused first, while the entries of a kind take more bytes than the limit."""
        entries = sorted((path.stat().st_mtime, path) for path in folder.iterdir())
        if len(entries) % _TRIM_EVERY:
            return
        sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for _, path in entries}
        excess, yesterday = sum(sizes.values()) - limit, time.time() - _DAY
        for used, path in entries:
            if excess <= 0 or used > yesterday:
                break
            if path.stat().st_mtime > used:  # another process has just begun to use it
                continue
            shutil.rmtree(path, ignore_errors=True)
            excess -= sizes[path]

    def discard(self, kind: str, key: str) -> None:
        """Remove an entry that turned out to be unusable."""
        with self._explained(), self._locked(key, lambda: None):
            shutil.rmtree(self.entry(kind, key), ignore_errors=True)

    def opened(self, kind: str, key: str, what: str, load: Callable[[], Loaded]) -> Loaded:
        """What ``load`` makes of an entry; one that the system refuses leaves the cache.

        Raises
        ------
        ToolFailedError
        """
        try:
            return load()
        except OSError as error:
            self.discard(kind, key)
            raise ToolFailedError(f"{what} could not be loaded and was removed from the cache; try again ({error})") from error

    def _make(self, entry: Path, key: str, make: Callable[[Path], None]) -> None:
        self._sweep(key)
        work = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self.root / "work"))
        try:
            make(work)
            entry.parent.mkdir(parents=True, exist_ok=True)
            work.chmod(0o755)
            os.replace(work, entry)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _sweep(self, held: str) -> None:
        """Remove what dead processes left: whoever works on an entry holds its lock."""
        for leftover in (self.root / "work").iterdir():
            key = leftover.name.partition(".")[0]
            if key == held:
                shutil.rmtree(leftover, ignore_errors=True)
                continue
            lock = _file_lock(self._lock_path(key))
            with contextlib.suppress(TimeoutError), lock.acquire(timeout=0):
                shutil.rmtree(leftover, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        for name in ("locks", "work"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        lock = _file_lock(self._lock_path(key))
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            waiting()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _lock_path(self, key: str) -> Path:
        return self.root / "locks" / f"{key}.lock"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the operating system's refusals into one sentence."""
        try:
            yield
        except OSError as error:
            if isinstance(error, CelosiaError):
                raise
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "is full" if full else "cannot be written"
            advice = "free some space there or" if full else "make it writable or"
            raise CelosiaError(
                f"cache folder {self.root} {what} ({error.strerror or error}); {advice} set CELOSIA_CACHE to another folder"
            ) from error


def _file_lock(path: Path):  # type: ignore[no-untyped-def]
    from filelock import FileLock  # here, so that a cached library loads without it

    return FileLock(path, thread_local=False)
