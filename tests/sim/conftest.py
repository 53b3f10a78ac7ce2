"""One library cache for all tests of this folder, kept between runs: entries are content-addressed."""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path

import pytest

SHARED_CACHE = Path(tempfile.gettempdir()) / f"celosia-tests-{getpass.getuser()}"


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CELOSIA_CACHE", str(SHARED_CACHE))
    return SHARED_CACHE
