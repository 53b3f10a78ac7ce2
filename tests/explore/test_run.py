"""Whole studies: results, resume after SIGKILL at random points, broken RTL, folders that are refused."""

import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from celosia.explore.folder import to_toml
from celosia.explore.journal import Journal, JournalLockedError, read_journal
from celosia.explore.results import StudyResult
from celosia.explore.rtl import RtlEvaluator
from celosia.explore.run import explore
from celosia.explore.study import Study
from celosia.intrinsics import CelosiaError, HashMismatchError, ParameterError, ToolFailedError, ToolNotFoundError

from .fakes import FakeVerifier, fake_area, small_study

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of Nevergrad's own imports


def go(study: Study, folder: Path, *, change: Any = None, **more: Any) -> tuple[StudyResult, FakeVerifier]:
    verifier = FakeVerifier(study.workload.resolve(), **({"change": change} if change else {}))
    return explore(study, folder, area=fake_area, verifier=verifier, **more), verifier


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(autouse=True)
def _cheap_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Verilog and no plot, but for the study of `finished`, which is made before this takes hold."""
    monkeypatch.setattr("celosia.hw.artefacts.emit_artefacts", lambda point, folder: None)
    monkeypatch.setattr("celosia.explore.plot.Plot.save", lambda plot, folder: ())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return go(small_study(), tmp_path_factory.mktemp("mit Leerzeichen") / "Größe µ")[0]


def test_results_on_disk(finished: StudyResult) -> None:
    folder = finished.folder
    assert finished.exit_code == 0
    data = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert data["seed"] == 5
    assert data["study_hash"] == finished.study.hash == Study.load(folder / "study.toml").hash
    front = json.loads((folder / "front.json").read_text(encoding="utf-8"))
    assert front["seed"] == 5
    assert [member["objectives"] for member in front["front"]] == [dict(member.objectives) for member in finished.front]
    assert all(member["sources"] == {"cycles": "rtl", "area_transistors": "estimate"} for member in front["front"])
    rows = list(csv.DictReader((folder / "front.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["name"] for row in rows] == [member.name for member in finished.front]
    assert [float(row["cycles"]) for row in rows] == [member.objectives["cycles"] for member in finished.front]
    weights = {"gemm:12x16x20": 1, "gemm:7x9x33": 3}
    assert all(float(row["cycles"]) == sum(weight * int(row[f"cycles[{name}]"]) for name, weight in weights.items()) for row in rows)


def test_front_obeys_its_limit_and_keeps_the_extremes(finished: StudyResult) -> None:
    assert len(finished.front) == finished.study.front_limit < finished.front_size
    alive = [record.measurements for record in finished.records if record.measurements]
    assert finished.front[0].objectives["cycles"] == min(entry["cycles"] for entry in alive)
    assert finished.front[-1].objectives["area_transistors"] == min(entry["area_transistors"] for entry in alive)
    assert len({member.name for member in finished.front}) == len(finished.front)


def test_verilog_of_every_member(finished: StudyResult) -> None:
    files = {path.name for path in (finished.folder / "verilog").iterdir()}
    for member in finished.front:
        assert f"{member.candidate.design.name}.v" in files
        text = (finished.folder / "verilog" / f"{member.candidate.design.name}.v").read_text(encoding="utf-8")
        assert f"module {member.candidate.design.name}" in text


def test_plots_are_valid(finished: StudyResult) -> None:
    import matplotlib.image

    image = matplotlib.image.imread(finished.folder / "front.png")
    assert image.shape[0] > 600
    assert image.shape[1] > 900
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 20
    root = ElementTree.parse(finished.folder / "front.svg").getroot()  # noqa: S314  # written a moment ago
    assert root.tag.endswith("svg")


def test_the_same_seed_gives_the_same_files_with_any_workers(finished: StudyResult, tmp_path: Path) -> None:
    again, _ = go(small_study(), tmp_path / "again", workers=3)
    for name in ("front.json", "front.csv"):
        assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes()


def test_a_finished_study_resumes_without_measuring_again(finished: StudyResult) -> None:
    before = (finished.folder / "front.json").read_bytes()
    again, verifier = go(small_study(), finished.folder, resume=True)
    assert verifier.calls == []
    assert again.exit_code == 0
    assert (finished.folder / "front.json").read_bytes() == before


def test_an_existing_study_is_not_touched_without_resume(finished: StudyResult) -> None:
    before = snapshot(finished.folder)
    with pytest.raises(
        ParameterError, match=r"^output folder '.*' holds \d+ results of this study; go on with --resume, or choose another folder$"
    ):
        go(small_study(), finished.folder)
    for resume in (False, True):
        with pytest.raises(
            HashMismatchError, match=r"^'.*' holds results of another study \(hash \w{12}\), not of this one \(hash \w{12}\); .*$"
        ):
            go(small_study(seed=6), finished.folder, resume=resume)
    with (
        Journal(finished.folder / "journal.jsonl", finished.study.hash),
        pytest.raises(JournalLockedError, match=r"^another run is writing .*$"),
    ):
        go(small_study(), finished.folder, resume=True)
    assert snapshot(finished.folder) == before


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ParameterError, match=r"^output folder '.*file' is a file; name a folder$"):
        go(small_study(), tmp_path / "file")
    with pytest.raises(CelosiaError, match=r"^output folder '.*' cannot be written: Not a directory; choose another with --out$"):
        go(small_study(), tmp_path / "file" / "below")
    with pytest.raises(CelosiaError, match=r"^output folder '/proc/celosia' cannot be written: .*; choose another with --out$"):
        go(small_study(), Path("/proc/celosia"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.json").write_text("mine")
    with pytest.raises(
        ParameterError, match=r"^output folder '.*other' has 'results.json' but no journal.jsonl, so it is not of this study; .*$"
    ):
        go(small_study(), tmp_path / "other")
    assert (tmp_path / "other" / "results.json").read_text() == "mine"
    for name, resume in (("journal.jsonl", False), ("journal.jsonl", True), ("study.toml", False), ("study.toml", True)):
        own = tmp_path / f"{name} {resume}" / name
        own.parent.mkdir()
        own.write_text("mine")
        with pytest.raises(CelosiaError, match=rf"^[^\n]*{name}'[^\n]*; choose another[^\n]*$"):
            go(small_study(), own.parent, resume=resume)
        assert own.read_text() == "mine"
    with pytest.raises(ParameterError, match=r"^workers must be an integer of at least 1, not 0; nearest legal value: 1$"):
        go(small_study(), tmp_path / "x", workers=0)


def test_a_study_file_in_its_own_output_folder_stays(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    text = "# my comment\n" + to_toml(small_study(limits={"cycles": 1}).to_dict())
    path.write_text(text)
    with pytest.raises(
        ParameterError, match=r"^output folder '.*' has a 'study.toml' that is not this study, and it would be replaced; .*$"
    ):
        go(Study.load(path, budget=3), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["study.toml"]
    for resume in (False, True):
        result, _ = go(Study.load(path), tmp_path, resume=resume)
        assert path.read_text() == text
    assert re.fullmatch(r"\w+: .*cycles.*", result.commonest_failure)


def test_a_study_that_names_files_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/w.toml").write_text('operators = ["gemm:4x4x4"]')
    Path("sub/s.toml").write_text(to_toml({**small_study(limits={"cycles": 1}).to_dict(), "workload": {"operators": ["w.toml"]}}))
    for resume in (False, True):
        result, _ = go(Study.load("sub/s.toml"), Path("out"), resume=resume)
    assert result.infeasible == result.evaluated > 0


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda run: dataclasses.replace(run, cycles=run.cycles + 1), "CyclesDifferError", r"took \d+ cycles on RTL, but \d+ in the model"),
        (lambda run: dataclasses.replace(run, matches_reference=False), "MismatchError", "differs from the reference"),
        (lambda run: dataclasses.replace(run, matches_reference=None), "MismatchError", "differs from the reference"),
        (lambda run: dataclasses.replace(run, source="model"), "CelosiaError", "needs a run on rtl"),
        (lambda run: 1 / 0, "ZeroDivisionError", "division by zero"),
    ],
    ids=["off-by-one", "wrong-output", "not-compared", "not-rtl", "crash"],
)
def test_broken_rtl_is_caught(tmp_path: Path, finished: StudyResult, change: Any, kind: str, message: str) -> None:
    victim = finished.front[1].candidate

    def broken(candidate: Any, name: str, run: Any) -> Any:
        return change(run) if candidate.hash == victim.hash and name == "gemm:7x9x33" else run

    result, _ = go(small_study(), tmp_path / "x", change=broken)
    assert result.exit_code == 1
    assert [member.name for member in result.front] == [member.name for member in finished.front if member.candidate != victim]
    (rejected,) = result.rejected
    assert (rejected["operator"], rejected["error"]["class"]) == ("gemm:7x9x33", kind)
    assert message.split(r"\d")[0] in rejected["error"]["message"]
    if "Error" in kind and kind != "ZeroDivisionError" and kind != "CelosiaError":
        assert (
            f"to repeat: seed 5, design {json.dumps(victim.design.to_dict(), sort_keys=True, separators=(',', ':'))}"
            in rejected["error"]["message"]
        )
    assert json.loads((tmp_path / "x" / "results.json").read_text())["rejected"] == [dict(rejected)]
    again, verifier = go(small_study(), tmp_path / "x", resume=True)
    assert verifier.calls == []  # a verdict stands
    assert again.exit_code == 1


def test_failures_of_tools_are_tried_again(tmp_path: Path) -> None:
    def killed(candidate: Any, name: str, run: Any) -> Any:
        raise ToolFailedError("the C++ compiler was killed by SIGKILL")

    result, _ = go(small_study(), tmp_path / "x", change=killed)
    assert result.exit_code == 3
    assert result.front == ()
    again, _ = go(small_study(), tmp_path / "x", resume=True)
    assert again.exit_code == 0


def test_a_missing_tool_ends_the_run_and_keeps_the_search(tmp_path: Path) -> None:
    def missing(candidate: Any, name: str, run: Any) -> Any:
        raise ToolNotFoundError("no C++ compiler")

    with pytest.raises(ToolNotFoundError):
        go(small_study(), tmp_path / "x", change=missing)
    assert len(read_journal(tmp_path / "x" / "journal.jsonl")[1]) > 50
    assert go(small_study(), tmp_path / "x", resume=True)[0].exit_code == 0


def test_ctrl_c_keeps_everything(tmp_path: Path) -> None:
    def press(action: str, done: float, total: float, note: str = "") -> None:
        if action == "search" and done == 40:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    result, _ = go(small_study(), tmp_path / "x", progress=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert (result.interrupted, result.exit_code, result.front) == (True, 130, ())
    assert "--resume" in result.resume_hint
    assert not (tmp_path / "x" / "results.json").exists()
    assert len(read_journal(tmp_path / "x" / "journal.jsonl")[1]) >= 30
    assert go(small_study(), tmp_path / "x", resume=True)[0].exit_code == 0


def test_ctrl_c_during_verification(tmp_path: Path) -> None:
    done = threading.Event()

    def press(candidate: Any, name: str, run: Any) -> Any:
        if not done.is_set():
            done.set()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        return run

    result, _ = go(small_study(), tmp_path / "x", change=press)
    assert result.interrupted
    again, verifier = go(small_study(), tmp_path / "x", resume=True)
    assert again.exit_code == 0
    assert 0 < len(verifier.calls) < 2 * len(again.front)


def test_failed_writing_leaves_earlier_results(finished: StudyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(finished.folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("celosia.hw.artefacts.emit_artefacts", full)
    with pytest.raises(CelosiaError, match=r"^results cannot be written to '.*': No space left on device$"):
        go(small_study(), finished.folder, resume=True)
    after = snapshot(finished.folder)
    assert {name: after[name] for name in before} == before
    assert set(after) == set(before)


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.explore.fakes import FakeVerifier, fake_area, small_study
from celosia.explore.rtl import RtlEvaluator
from celosia.explore.run import explore
study = small_study()
def slow(candidate, name, run):
    time.sleep(0.15)
    return run
def tick(action, done, total=None, note=""):
    print(action, flush=True)
    time.sleep(0.004)
explore(study, Path(sys.argv[1]), resume=True, area=fake_area, progress=tick, workers=2,
        verifier=FakeVerifier(study.workload.resolve(), change=slow))
print("finished", flush=True)
"""


def test_kill_and_resume_at_random_points(finished: StudyResult, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    rng = np.random.default_rng(int(time.time()))
    delays = [0.1 + 0.4 * float(rng.random()), 0.4 * float(rng.random())]
    for delay in (*delays, None):
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "x"), root], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            if delay is None:
                output = process.stdout.read()
                assert output.endswith("finished\n"), output[-300:]
                continue
            for line in process.stdout:
                if line in ("search\n", "verify\n"):
                    break
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
    for name in ("front.json", "front.csv"):
        assert (tmp_path / "x" / name).read_bytes() == (finished.folder / name).read_bytes(), delays


def test_a_real_study_on_rtl(tmp_path: Path) -> None:
    study = small_study(
        budget=30,
        front_limit=1,
        objectives=["cycles"],
        hardware={"systolic": {"rows": [2, 3], "cols": 2}},
        workload={"operators": ["gemm:5x7x9"]},
    )
    result = explore(study, tmp_path / "x", area=fake_area)
    assert result.exit_code == 0
    (member,) = result.front
    (run,) = member.operators.values()
    assert run["source"] == "rtl"
    assert run["matches_reference"] is True
    assert run["cycles"] == run["model_cycles"] == sum(run["ledger"].values())
    whole = RtlEvaluator(study.workload.resolve(), seed=1).evaluate(member.candidate)
    assert whole == {"cycles": run["cycles"], "operators": {"gemm:5x7x9": run["cycles"]}, "sources": {"cycles": "rtl"}}
