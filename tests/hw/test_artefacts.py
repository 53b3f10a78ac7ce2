"""Files for an RTL engineer, and the self-checking testbench."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celosia.hw import DesignPoint
from celosia.hw.artefacts import emit_artefacts, write_together
from celosia.hw.header import c_header
from celosia.intrinsics import ParameterError

from .rig import IDS, KINDS, point_of
from .test_verilog import verilator

SMALL = DesignPoint.create("dot-product", lanes=2, depth=2)


def test_files_and_description(tmp_path):
    folder = tmp_path / "new" / "mit Leerzeichen äöü"
    files = emit_artefacts(SMALL, folder, prefix="acme")
    top = f"acme_{SMALL.name}"
    assert [file.name for file in files] == [f"{top}.v", f"{top}.json", f"{top}.h", f"{top}_tb.v"]
    assert sorted(folder.iterdir()) == sorted(files)
    assert all(SMALL.hash in file.read_text() for file in files)
    said = json.loads(files[1].read_text())
    assert DesignPoint.from_dict(said["design_point"]) == SMALL
    assert (said["name"], said["design_hash"]) == (top, SMALL.hash)
    assert said["ports"][2] == {"name": "i_a_data", "width": 16, "direction": "in"}
    assert said["streams"][1] == {
        "operand": "b",
        "port": "i_b",
        "beat_axes": "",
        "lane_axes": "nk",
        "reverse": False,
        "beats": 1,
        "lanes": 4,
    }
    assert said["timing"]["latency"] == 1
    assert said["instruction"]["einsum"] == "k,kn->n"


def test_header_says_what_the_machine_says():
    point = DesignPoint.create("systolic", rows=3, cols=5, dataflow="weight-stationary", b="uint4")
    defines = dict(re.findall(r"#define \w+_[0-9A-F]{12}_(\w+) (.+)", c_header(point)))
    assert defines["HASH"] == f'"{point.hash}"'
    assert [int(defines[axis]) for axis in "MNK"] == [3, 5, 3]
    assert [int(defines[f"B_{name}"]) for name in ("WIDTH", "SIGNED", "LANES", "BEATS", "STRIDE_K", "STRIDE_N")] == [4, 0, 5, 3, 5, 1]
    assert [int(defines[name]) for name in ("PRELOAD", "MIN_INTERVAL", "LATENCY", "DRAIN", "MACS_PER_CYCLE")] == [3, 3, 8, 8, 15]
    assert "typedef uint8_t" in c_header(point)
    assert f"int32_t celosia_{point.hash}_push(void *a, void *b, void *c, int32_t stride_a_m, int32_t stride_a_k," in c_header(point)


def test_folder_that_is_a_file(tmp_path):
    place = tmp_path / "file"
    place.write_text("mine")
    with pytest.raises(ParameterError, match=r"^output folder must be a folder that can be written to, not '.*file' \(.+\)$"):
        emit_artefacts(SMALL, place)
    assert place.read_text() == "mine"


def test_failure_leaves_earlier_files_untouched(tmp_path, monkeypatch):
    (tmp_path / "a.v").write_text("old")
    monkeypatch.setattr(Path, "chmod", lambda self, mode: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ParameterError, match=r"\(No space left on device\)$"):
        write_together(tmp_path, {"a.v": "new", "b.v": "new"})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.v", "old")]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_testbench_lints(kind, tmp_path):
    files = emit_artefacts(point_of(kind, 2, 3, overflow="wrap", acc="uint11"), tmp_path)
    lint = verilator("--lint-only", "--timing", "-Wall", "--top-module", files[3].stem, files[0], files[3])
    assert (lint.returncode, lint.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_testbench_passes_and_fails(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    files = emit_artefacts(point_of(kind, 2, 3), tmp_path)
    right = files[0].read_text()
    wrong = re.sub(r"(\$signed\([^()]+\)) \* (\$signed\([^()]+\))", r"\1 + \2", right, count=1)
    assert wrong != right
    assert run_testbench(files, tmp_path).startswith("PASS")
    files[0].write_text(wrong)
    assert "FAIL" in run_testbench(files, tmp_path)


def run_testbench(files, folder):
    flags = ["--binary", "--timing", "-CFLAGS", "-O0 -std=c++20", "--Mdir", folder / "obj", "--top-module", files[3].stem]
    built = verilator(*flags, files[0], files[3])
    assert built.returncode == 0, built.stderr
    return subprocess.run([folder / "obj" / f"V{files[3].stem}"], capture_output=True, text=True, check=True, timeout=60).stdout
