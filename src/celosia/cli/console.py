"""Where a command's output goes: one document on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from types import TracebackType
from typing import Any

from ..intrinsics.errors import CelosiaError


class Console:
    """The real stdout for the command's own document; stray prints of libraries and tools go to stderr.

    Yosys, Verilator and TVM print to file descriptor 1. While a command runs that descriptor is stderr, and the
    document is written to the real one, so ``--json`` puts exactly one document on stdout.

    Parameters
    ----------
    json_wanted : bool
        `result` prints the data as JSON instead of the text.
    quiet : bool
        No progress on stderr.
    """

    def __init__(self, *, json_wanted: bool, quiet: bool) -> None:
        _open_missing()
        self.json_wanted = json_wanted
        self.progress = ProgressLine(enabled=not quiet)
        self._stdout = -1

    def __enter__(self) -> Console:
        sys.stdout.flush()
        self._stdout = os.dup(1)
        os.dup2(2, 1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.close()
        sys.stdout.flush()
        os.dup2(self._stdout, 1)
        os.close(self._stdout)

    def result(self, data: Any, text: str) -> None:
        """Print the command's document: ``data`` as JSON or ``text`` for people."""
        self.progress.close()
        document = json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False) if self.json_wanted else text
        try:
            with os.fdopen(os.dup(self._stdout), "w", encoding="utf-8", errors="replace") as stream:
                stream.write(document.rstrip("\n") + "\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CelosiaError(f"standard output cannot be written ({error.strerror or error})") from error

    def note(self, text: str) -> None:
        """Print a remark for people on stderr."""
        self.progress.close()
        print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """Print an error as one line on stderr."""
        self.note("celosia: " + " ".join(text.split()))


def _open_missing() -> None:
    """Give descriptors 1 and 2 somewhere to go if the caller closed them, or the next file would take their numbers."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if getattr(sys, name) is None:  # so Python starts when the descriptor is closed
            setattr(sys, name, os.fdopen(os.dup(descriptor), "w"))


def _plain(value: Any) -> Any:
    """JSON has no infinities: they become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class ProgressLine:
    """Draws one line of progress with an ETA on stderr: redrawn on a terminal, printed now and then elsewhere."""

    REDRAW_SECONDS = 0.2
    REPRINT_SECONDS = 15.0

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.terminal = sys.stderr.isatty()
        self.started: dict[str, float] = {}
        self.shown = 0.0
        self.open = False
        self.stages = 0

    def __call__(self, action: str, done: float, total: float | None = None, note: str = "") -> None:
        """Show that ``done`` of ``total`` units of ``action`` are finished."""
        now = time.monotonic()
        began = self.started.setdefault(action, now)
        finished = total is not None and done >= total
        interval = self.REDRAW_SECONDS if self.terminal else self.REPRINT_SECONDS
        if not self.enabled or (now - self.shown < interval and not finished):
            return
        self.shown = now
        line = _progress_text(action, done, total, now - began, note)
        if self.terminal:
            columns = os.get_terminal_size(2).columns or 80
            print("\r\x1b[K" + line[: columns - 1], end="", file=sys.stderr, flush=True)
            self.open = True
        else:
            print(line, file=sys.stderr, flush=True)

    def stage(self, name: str) -> None:
        """Show that the next stage of a build has begun, if the build lasts."""
        self.stages += 1
        self.shown = self.shown or time.monotonic()
        self("build, stage", self.stages, note=name)

    def close(self) -> None:
        """End the line, so that other output starts on a fresh one."""
        if self.open:
            print(file=sys.stderr)
            self.open = False


def _progress_text(action: str, done: float, total: float | None, seconds: float, note: str) -> str:
    parts = [f"{action} {_count(done)}" + (f"/{_count(total)}" if total else "")]
    if total:
        parts.append(f"{100 * done / total:3.0f} %")
        if 0 < done < total and seconds > 0.5:
            parts.append(f"ETA {_clock(seconds * (total - done) / done)}")
    parts.append(f"{_clock(seconds)} elapsed")
    return "  ".join([*parts, note] if note else parts)


def _count(value: float) -> str:
    return f"{value / 1e6:.1f}M" if value >= 1e7 else f"{value:.0f}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Lay out a table: text columns left, number columns right."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    numeric = [all(_is_number(row[column]) for row in rows) for column in range(len(header))]

    def line(row: list[str]) -> str:
        padded = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *(line(row) for row in rows)])


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("%", "").replace("-", "").strip().isdigit() or cell in ("", "-")
