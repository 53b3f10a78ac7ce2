"""Tools, cache and builds, also when they fail, are killed, or meet another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from celosia.hw.design_point import DesignPoint
from celosia.intrinsics import CelosiaError, HashMismatchError, ToolFailedError, ToolNotFoundError
from celosia.sim import Library, accelerator_scorer, build, simulate_gemm, toolchain, toolchain_report
from celosia.sim import cache as cache_module
from celosia.sim.cache import Cache, digest

from .blocks import toy
from .conftest import SHARED_CACHE

HERE = Path(__file__).parent
BUILD_SCRIPT = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from blocks import toy
from celosia.sim import build
build(toy(), progress=lambda stage: print(stage, flush=True))
"""


@pytest.fixture
def fresh_cache(shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that shares only Verilator's runtime."""
    build(toy())
    root = tmp_path / "cache of Müller"
    root.mkdir()
    (root / "runtime").symlink_to(shared_cache / "runtime")
    monkeypatch.setenv("CELOSIA_CACHE", str(root))
    return root


def fake_compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CELOSIA_CXX", f"'{path}'")


def test_a_path_with_spaces_and_letters_beyond_ascii_works(fresh_cache: Path) -> None:
    stages: list[str] = []
    library = build(toy(), progress=stages.append)
    assert library.path.is_relative_to(fresh_cache)
    assert "compile" in stages
    assert library.build_seconds > 0
    assert simulate_gemm(toy(), m=3, n=3, k=3).matches_reference
    assert json.loads((library.path.parent / "library.json").read_text()) == library.record
    assert library.record["machine"]["instruction"]["contraction"]["einsum"] == "k,kn->n"
    assert sorted(path.name for path in library.path.parent.iterdir()) == ["block.so", "block.v", "library.json"]


def test_processes_that_build_the_same_design_do_not_clash(fresh_cache: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", BUILD_SCRIPT], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0].split("\n") for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("compile" in output for output in outputs) == 1
    assert len(list((fresh_cache / "libraries").iterdir())) == 1
    assert not list((fresh_cache / "work").iterdir())


def test_a_killed_build_leaves_nothing_half_made(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh_cache / "runtime").unlink()
    with monkeypatch.context() as patch:
        fake_compiler(tmp_path, "while kill -0 $PPID 2>/dev/null; do sleep 0.05; done; exit 1", patch)
        process = subprocess.Popen([sys.executable, "-c", BUILD_SCRIPT], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while "compile" not in process.stdout.readline():
            pass
        process.kill()
        process.communicate(timeout=60)
    assert list((fresh_cache / "work").iterdir())
    assert not (fresh_cache / "libraries").exists()
    time.sleep(0.2)
    (fresh_cache / "runtime").symlink_to(SHARED_CACHE / "runtime")
    assert simulate_gemm(toy(), m=3, n=3, k=3).matches_reference
    assert not list((fresh_cache / "work").iterdir())


FAILURES = [("echo 'error: boom'; exit 7", "failed with exit code 7"), ("kill -9 $$", "was killed by SIGKILL")]


@pytest.mark.parametrize(("script", "outcome"), FAILURES)
def test_a_compiler_that_fails_or_is_killed_is_named(
    script: str, outcome: str, fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler(tmp_path, script, monkeypatch)
    (fresh_cache / "runtime").unlink()
    with pytest.raises(ToolFailedError, match=f"the C\\+\\+ compiler {outcome} on design 0123456789ab; log: ") as caught:
        build(toy())
    log = next((fresh_cache / "logs").iterdir())
    assert str(log) in str(caught.value)
    assert outcome in log.read_text()
    if "boom" in script:
        assert "error: boom" in str(caught.value)
    assert not (fresh_cache / "libraries").exists()


def test_verilog_that_does_not_parse_is_refused_with_verilators_words(fresh_cache: Path) -> None:
    with pytest.raises(ToolFailedError, match=r"Verilator failed with exit code 1 .*%Error.*syntax error") as caught:
        build(toy("syntax"))
    assert "\n" not in str(caught.value)
    assert not (fresh_cache / "libraries").exists()
    assert not list((fresh_cache / "work").iterdir())


def test_no_compiler_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CELOSIA_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "package_folder", lambda name: None if name == "ziglang" else Path("/"))
    with pytest.raises(ToolNotFoundError, match=r'g\+\+, clang\+\+, c\+\+ on PATH .*; .*pip install "celosia\[zig\]"'):
        toolchain.require_compiler()
    monkeypatch.setenv("CXX", "no-such-compiler -O9")
    with pytest.raises(ToolNotFoundError, match="CXX names the C\\+\\+ compiler 'no-such-compiler'"):
        toolchain.require_compiler()
    monkeypatch.setattr(toolchain, "package_folder", lambda name: None)
    with pytest.raises(ToolNotFoundError, match="verilator"):
        toolchain.require_verilator()
    missing = {record["tool"] for record in toolchain_report() if not record["found"]}
    assert missing == {"verilator", "compiler"}


def test_zig_is_the_last_resort_and_gets_its_own_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CELOSIA_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "package_folder", lambda name: Path("/"))
    compiler = toolchain.require_compiler()
    assert compiler.kind == "zig"
    assert "-fno-sanitize=all" in compiler.model_flags
    assert "-fno-gnu-unique" not in compiler.model_flags


def test_the_report_names_every_tool() -> None:
    records = {record["tool"]: record for record in toolchain_report()}
    assert set(records) == {"verilator", "compiler", "pyosys", "pyverilator", "apache-tvm", "nevergrad", "amaranth"}
    assert records["verilator"]["version"].startswith("5.")
    assert all(record["version"] and record["path"] and not record["hint"] for record in records.values() if record["found"])


def test_a_compiler_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "g++"
    fake.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "g++ 1";; *) echo "note" >&2; echo "fatal error: no header" >&2; exit 1;; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CELOSIA_CXX", str(fake))
    record = next(record for record in toolchain_report() if record["tool"] == "compiler")
    assert (record["found"], record["version"]) == (False, "g++ 1")
    assert record["hint"].startswith("it does not compile: fatal error: no header; install g++")


def test_an_entry_without_its_library_is_made_again(fresh_cache: Path) -> None:
    path = build(toy()).path
    entry = fresh_cache / "libraries" / path.parent.name
    assert path == entry / "block.so"
    path.unlink()
    done = subprocess.run([sys.executable, "-c", BUILD_SCRIPT], capture_output=True, text=True, check=True)
    assert "compile" in done.stdout.splitlines()
    assert path.exists()


def test_a_compiler_that_makes_nothing_is_told(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELOSIA_CXX", "true")
    record = next(record for record in toolchain_report() if record["tool"] == "compiler")
    ((name, text),) = accelerator_scorer.sources(("turns.cpp",))
    assert not record["found"]
    assert "it says nothing, and makes no file" in record["hint"]
    with pytest.raises(ToolFailedError, match=r"made no scorer of schedules .*its last lines: nothing \(exit code 0\)$"):
        accelerator_scorer.load(((name, f"{text}\n// another\n"),))
    assert not (fresh_cache / "scorers").exists()


def test_a_scorer_that_cannot_be_loaded_leaves_the_cache(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\necho garbage > scorer.so\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CELOSIA_CXX", str(fake))
    with pytest.raises(ToolFailedError, match=r"scorer\.so could not be loaded and was removed from the cache; try again"):
        accelerator_scorer.load((("turns.cpp", "// never loaded before"),))
    assert not list((fresh_cache / "scorers").iterdir())


def test_an_unwritable_cache_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CelosiaError, match=r"cannot be written .*CELOSIA_CACHE") as caught:
        build(toy())
    assert "\n" not in str(caught.value)


def test_a_cache_above_its_limit_loses_what_was_not_used_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_TRIM_EVERY", 1)
    cache, now = Cache(tmp_path), time.time()

    def fill(folder: Path) -> None:
        (folder / "file").write_bytes(b"x" * 1024)

    for key, days in (("oldest", 9), ("older", 3), ("old", 2), ("fresh", 0)):
        entry = cache.ensure("libraries", key, fill)
        os.utime(entry, (now - 86400 * days,) * 2)
    assert cache.ensure("libraries", "older", lambda folder: pytest.fail("made again")).stat().st_mtime > now - 60
    monkeypatch.setenv("CELOSIA_CACHE_GIB", str(3.5 * 1024 / 2**30))

    def left() -> set[str]:
        return {entry.name for entry in (tmp_path / "libraries").iterdir()}

    cache.ensure("libraries", "new", lambda folder: None)
    assert left() == {"older", "old", "fresh", "new"}
    monkeypatch.setenv("CELOSIA_CACHE_GIB", "0")
    cache.ensure("libraries", "newer", lambda folder: None)
    assert left() == {"older", "fresh", "new", "newer"}, "what was used today stays"


@pytest.mark.parametrize("limit", ["much", "-1", "inf", "nan"])
def test_a_limit_of_the_cache_that_is_no_size_is_one_sentence(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELOSIA_CACHE_GIB", limit)
    with pytest.raises(CelosiaError, match=f"^CELOSIA_CACHE_GIB must be a number of GiB from 0, such as 4, not '{limit}'$"):
        Cache(tmp_path).ensure("libraries", "key", lambda folder: None)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    cache = Cache(tmp_path)
    with pytest.raises(CelosiaError, match=r"is full .*free some space"):
        cache.ensure("libraries", "key", fill)
    assert not list((tmp_path / "work").iterdir())
    assert not (tmp_path / "libraries").exists()


def test_a_library_of_another_design_is_refused() -> None:
    library = build(toy())
    with pytest.raises(HashMismatchError, match="built for design 0123456789ab, not for design ffffffffffff"):
        Library(library.path, toy(design_hash="ffffffffffff").machine)
    with pytest.raises(HashMismatchError, match="key"):
        Library(library.path, library.machine, key="other")


def test_a_damaged_library_is_removed_and_built_again(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = toy(design_hash="0123456789ac")
    path = build(design).path.parent
    copied = fresh_cache.parent / "other"
    shutil.copytree(fresh_cache, copied, symlinks=True)
    damaged = copied / path.relative_to(fresh_cache) / "block.so"
    damaged.unlink()
    damaged.write_bytes(b"not a library")
    monkeypatch.setenv("CELOSIA_CACHE", str(copied))
    with pytest.raises(ToolFailedError, match="could not be loaded and was removed"):
        build(design)
    assert simulate_gemm(design, m=2, n=2, k=2).matches_reference


def test_different_rtl_of_one_design_gets_different_libraries() -> None:
    assert build(toy()).path != build(toy("signedness")).path
    assert build(toy()) is build(toy())


def test_a_design_point_has_one_library_per_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = build(DesignPoint.create("dot-product", lanes=1, depth=2))
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path))
    monkeypatch.setenv("CELOSIA_CXX", "no-such-compiler")
    assert build(DesignPoint.create("dot-product", lanes=1, depth=2)) is library
    assert library.owns_symbols
    with pytest.raises(ToolNotFoundError):
        build(DesignPoint.create("dot-product", lanes=1, depth=3))


def test_a_cached_design_needs_neither_hdl_nor_locks() -> None:
    script = (
        "import sys, time; from celosia.hw.design_point import DesignPoint; import celosia.sim.builder as builder;"
        "point = DesignPoint.create('systolic', rows=3, cols=2, depth=5); start = time.process_time(); builder.build(point);"
        "print(time.process_time() - start, *{'amaranth', 'pyosys', 'filelock', 'tvm'} & set(sys.modules))"
    )
    outputs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    seconds, *imported = outputs[1].split()
    assert imported == []
    assert float(seconds) < 0.15, "three times the goal, for a loaded machine"


def test_importing_the_package_costs_nothing() -> None:
    script = "import celosia.sim, sys; print(*{'numpy', 'amaranth', 'subprocess', 'ctypes'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_keys_see_where_strings_end() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])


@pytest.mark.slow
def test_zig_builds_a_library_that_runs(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh_cache / "runtime").unlink()
    monkeypatch.setenv("CELOSIA_CXX", f"{sys.executable} -m ziglang c++")
    run = simulate_gemm(toy(), m=5, n=6, k=7)
    assert run.matches_reference
    assert run.cycles == run.model_cycles
