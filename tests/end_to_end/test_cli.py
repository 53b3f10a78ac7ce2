"""The command line as a user meets it: documents, exit codes, one line per mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celosia.cli import main

HEAVY = ("tvm", "amaranth", "nevergrad", "matplotlib", "pyosys", "scipy", "pandas")


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capfd.readouterr()
    return code, out, err


def test_help_imports_nothing_heavy():
    script = (
        "import sys\nfrom celosia.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded: []\n")
    assert "example: celosia" in done.stdout


@pytest.mark.parametrize("verb", ["emit", "simulate", "coverage", "explore", "doctor"])
def test_every_verb_has_help(capfd, verb):
    code, out, _ = run(capfd, verb, "--help")
    assert code == 0
    assert verb in out


SYSTOLIC = ("simulate", "systolic")
MISTAKES = [
    ((*SYSTOLIC, "--rows", "0", "--cols", "4", "--gemm", "4x4x4"), "rows must be an integer from 1 to 256, not 0; nearest legal value: 1"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--depth", "-3", "--gemm", "4x4x4"), "depth must be an integer from 1 to 65536, not -3"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--acc", "int8", "--gemm", "4x4x4"), "nearest legal value: int20"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--a", "float8", "--gemm", "4x4x4"), "dtype must be intN or uintN"),
    (
        (*SYSTOLIC, "--rows", "4", "--cols", "4", "--gemm", "4x4x0"),
        "K of a GEMM must be an integer of at least 1, not 0; nearest legal value: 1",
    ),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--gemm", "4x4"), "--gemm must be MxNxK"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--gemm", ""), "--gemm must be MxNxK"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--gemm", "9999999x9999999x1"), "GB of memory are available"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--operator", "conv2d:1x999999x999999x64,64x3x3"), "GB of memory are available"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4"), "needs one of --gemm MxNxK and --operator OP"),
    ((*SYSTOLIC, "--rows", "four", "--cols", "4", "--gemm", "4x4x4"), "must be an integer, not 'four'"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--order", "mm", "--gemm", "4x4x4"), "order"),
    ((*SYSTOLIC, "--rows", "4", "--cols", "4", "--operator", "conv9d:1x2"), "conv9d"),
    (("coverage", "--isa", "vnnni"), "closest: vnni"),
    (("coverage",), "--isa"),
    (("coverage", "--isa", ""), "not an empty string"),
    (("coverage", "--isa", "vnni", "--csv", "/no/such/folder/x.csv"), "there is no folder"),
    (("coverage", "--isa", "vnni", "--csv", "/"), "is a folder"),
    (("coverage", "--isa", "vnni", "--heatmap", "x.gif"), "must end in"),
    (("explore", "no/such/study.toml"), "no/such/study.toml"),
    (("simulate", "systolik"), "invalid choice"),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(capfd, arguments, says):
    code, out, err = run(capfd, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert says in err


def test_simulate_prints_one_json_document(capfd):
    code, out, _ = run(capfd, *SYSTOLIC, "--rows", "2", "--cols", "3", "--gemm", "5x7x9", "--seed", "3", "--json", "--quiet")
    data = json.loads(out)
    assert code == 0
    assert data["matches_reference"] is True
    assert data["cycles"] == data["model_cycles"] == sum(data["ledger"].values())
    assert data["macs"] == 5 * 7 * 9
    assert data["source"] == "rtl"
    assert data["design_point"]["rows"] == 2


def test_emit_into_a_folder_with_spaces_and_accents(capfd, tmp_path):
    folder = tmp_path / "mes résultats ünd so"
    code, out, _ = run(capfd, "emit", "systolic", "--rows", "2", "--cols", "2", "-o", str(folder), "--json")
    data = json.loads(out)
    assert code == 0
    assert {Path(name).suffix for name in data["files"]} == {".v", ".json", ".h"}
    assert all(Path(name).is_file() and data["design_hash"] in Path(name).read_text() for name in data["files"])


def test_emit_refuses_a_file_where_a_folder_must_be(capfd, tmp_path):
    (tmp_path / "taken").write_text("mine")
    code, _, err = run(capfd, "emit", "systolic", "--rows", "2", "--cols", "2", "-o", str(tmp_path / "taken" / "out"))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert (tmp_path / "taken").read_text() == "mine"


def test_no_compiler_is_exit_code_3(tmp_path):
    environment = {
        "PATH": str(tmp_path),
        "HOME": str(tmp_path),
        "CELOSIA_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    hide = "import sys; sys.modules['ziglang'] = None; "
    command = "from celosia.cli import main; sys.exit(main(['simulate', 'systolic', '--rows', '2', '--cols', '2', '--gemm', '2x2x2']))"
    done = subprocess.run([sys.executable, "-c", hide + command], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert "compiler" in done.stderr
    assert "celosia[zig]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_doctor_finds_the_toolchain(capfd):
    code, out, _ = run(capfd, "doctor", "--json")
    data = json.loads(out)
    assert code == 0
    assert {"verilator", "compiler", "pyosys", "apache-tvm", "nevergrad", "amaranth", "pyverilator"} <= {
        tool["tool"] for tool in data["tools"]
    }
    assert all(tool["found"] and tool["version"] for tool in data["tools"])


def celosia(*arguments: str, redirect: str) -> subprocess.CompletedProcess[str]:
    line = f'exec "$0" -m celosia "$@" {redirect}'
    return subprocess.run(["/bin/bash", "-c", line, sys.executable, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("redirect", "code", "says"), [(">/dev/full", 2, "No space left"), (">&-", 0, ""), ("2>&-", 0, "")])
def test_output_that_goes_nowhere_is_no_traceback(redirect, code, says):
    done = celosia("coverage", "--list", redirect=redirect)
    assert done.returncode == code
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == (1 if says else 0)


def test_a_reader_that_leaves_early_is_no_traceback():
    done = celosia("coverage", "--list", redirect="| true; exit ${PIPESTATUS[0]}")
    assert done.stderr == ""


def test_ctrl_c_while_modules_load_is_one_line(capfd, monkeypatch):
    monkeypatch.setattr("celosia.cli.command.build_parser", interrupted)
    code, out, err = run(capfd, "doctor")
    assert (code, out, err) == (130, "", "celosia: interrupted\n")


def interrupted() -> None:
    raise KeyboardInterrupt


def test_an_unknown_workload_leaves_no_folder(capfd, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('[hardware.systolic]\nrows = 2\ncols = 2\n[workload]\noperators = ["resnet19"]\n')
    code, _, err = run(capfd, "explore", str(study), "--out", str(tmp_path / "out"), "--quiet")
    assert (code, len(err.splitlines())) == (2, 1)
    assert not (tmp_path / "out").exists()


STUDY = "[hardware.systolic]\nrows = [1, 2]\ncols = 2\n[workload]\noperators = {operators}\n[limits]\n{limits}\n"


def explore(capfd: pytest.CaptureFixture[str], folder: Path, operators: str, limits: str = "") -> tuple[int, str, str]:
    study = folder / "study.toml"
    study.write_text(STUDY.format(operators=operators, limits=limits))
    return run(capfd, "explore", str(study), "--budget", "4", "--out", str(folder / "out"), "--quiet", "--json")


def test_an_operator_of_a_wrong_type_is_named(capfd, tmp_path):
    code, out, err = explore(capfd, tmp_path, "[5]")
    assert (code, out) == (2, "")
    assert "study.workload.operators[0] must be a workload's name" in err


def test_an_empty_front_is_a_document_and_one_sentence(capfd, tmp_path):
    (tmp_path / "out" / ".new-left-by-a-killed-run").mkdir(parents=True)
    code, out, err = explore(capfd, tmp_path, '["gemm:4x4x4"]', "cycles = 1")
    assert code == 1
    assert json.loads(out)["front"] == []
    assert "no candidate of 4 could be measured, so the front is empty; widen the domains or the limits; most often: " in err
    assert re.search(r"most often: \w+: .*cycles", err)
    assert "Warning" not in err
    assert not list((tmp_path / "out").glob(".new-*"))


def test_a_compiler_variable_that_no_shell_could_read(capfd, monkeypatch):
    monkeypatch.setenv("CELOSIA_CXX", '"g++')
    code, out, _ = run(capfd, "doctor", "--json")
    assert code == 3
    assert "CELOSIA_CXX must name a C++ compiler" in next(tool["hint"] for tool in json.loads(out)["tools"] if tool["tool"] == "compiler")


def test_a_file_that_fills_up_is_named(capfd):
    code, _, err = run(capfd, "coverage", "--isa", "vnni", "--operator", "gemm:4x4x4", "--csv", "/dev/full", "--quiet")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "'/dev/full' cannot be written" in err


def test_a_workload_that_leaves_is_no_silence(capfd, tmp_path):
    (tmp_path / "work.py").write_text("raise SystemExit(5)")
    code, out, err = run(capfd, "coverage", "--isa", "vnni", "--workload", str(tmp_path / "work.py"), "--quiet")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_a_journal_without_evaluations_names_the_line(capfd, tmp_path):
    explore(capfd, tmp_path, '["gemm:4x4x4"]', "cycles = 1")
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_text(journal.read_text().splitlines()[0] + '\n{"kind":"evaluation","hash":5}\n')
    code, out, err = run(capfd, "explore", str(tmp_path / "study.toml"), "--budget", "4", "--out", str(tmp_path / "out"), "--resume")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "line 2 is no evaluation" in err


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_is_in_the_table(path):
    assert f"| `{path.name}` | " in (BENCHMARKS / "README.md").read_text(encoding="utf-8")


def test_the_options_of_the_networks_benchmark_are_explained():
    text = subprocess.run(
        [sys.executable, str(BENCHMARKS / "accelerator_networks.py"), "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert re.search(r"--rtl +\S+", text)
    assert re.search(r"--json FILE +\S+", text)
