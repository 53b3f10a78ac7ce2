"""Studies of accelerators: hardware and schedules together, every member and a sample on RTL, any difference stops the run."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from celosia.cli import main
from celosia.cli.parser import build_parser, design_point
from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.explore.accelerator import as_convolution, simulate_accelerator
from celosia.explore.accelerator_audit import operator_string, simulate_command
from celosia.explore.accelerator_balanced import MOST_SIZES, balanced_schedule, balanced_sizes
from celosia.explore.accelerator_evaluator import AcceleratorEvaluator, AcceleratorVerifier
from celosia.explore.accelerator_problem import AcceleratorProblem, tile_schedule
from celosia.explore.accelerator_search import best_schedule
from celosia.explore.hardware import InfeasibleError
from celosia.explore.journal import read_journal
from celosia.explore.results import StudyResult
from celosia.explore.run import explore, scheduled
from celosia.explore.study import SCHEDULES, Study
from celosia.explore.verify import AuditError
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import FormatError, MappingError, MismatchError, ToolFailedError
from celosia.intrinsics.accelerator import MemoryTiming, predict
from celosia.intrinsics.accelerator.machine import AcceleratorMachine

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of Nevergrad's own imports

TABLE = {"family": "accelerator", "spad_kib": 1, "acc_kib": 1, "port_bytes": 4, "channel_words": 0}
SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 7,
    "budget": 24,
    "front_limit": 3,
    "hardware": {
        "os": {**TABLE, "core": ["output-stationary", "weight-stationary"], "rows": [1, 2, 3], "cols": [2, 4], "split": [False, True]},
        "dot": {**TABLE, "core": "dot-product", "rows": 2, "cols": [1, 2], "lanes": [2, 4]},
    },
    "workload": {"operators": ["gemm:7x6x20", {"operator": "conv2d:1x5x5x4,6x3x3,p1", "weight": 3}, "conv2d:1x4x4x3,3x3x3,p1,g3"]},
    "accelerator": {"audit_sample": 2},
}


def small_study(**changes: Any) -> Study:
    return Study.from_dict({**SMALL, **changes})


def small_problem(**changes: Any) -> AcceleratorProblem:
    study = small_study(**changes)
    return AcceleratorProblem(study, study.workload.resolve())


def fake_area(point: DesignPoint) -> float:
    return point.macs_per_cycle * 4000.0 + 100 * point.parameters.cols


class FakeVerifier(AcceleratorVerifier):
    """Answers from the model, as RTL does if nothing is wrong; ``change`` breaks an answer."""

    def __init__(self, study: Study, change: Any = lambda candidate, name, run: run) -> None:
        super().__init__(AcceleratorProblem(study, study.workload.resolve()), seed=study.seed)
        self.change, self.calls = change, list[tuple[str, str]]()

    def run(self, candidate: Any, name: str, *, progress: Any = None) -> Any:
        self.calls.append((candidate.hash, name))
        run = simulate_accelerator(candidate.design, name, schedule=tile_schedule(candidate, name), fidelity="model")
        return self.change(candidate, name, dataclasses.replace(run, rtl_cycles=run.model_cycles, events_equal=True))


def go(study: Study, folder: Path, *, change: Any = None, **more: Any) -> tuple[StudyResult, FakeVerifier]:
    verifier = FakeVerifier(study, **({"change": change} if change else {}))
    return explore(study, folder, area=fake_area, verifier=verifier, **more), verifier


@pytest.fixture
def _cheap_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celosia.hw.artefacts.emit_artefacts", lambda point, folder: None)
    monkeypatch.setattr("celosia.explore.plot.Plot.save", lambda plot, folder: ())


# ---- on RTL

ON_RTL = {
    **SMALL,
    "budget": 4,
    "front_limit": 1,
    "hardware": {"os": {**TABLE, "core": "output-stationary", "rows": [1, 2], "cols": 2}},
    "workload": {"operators": ["gemm:3x4x8", "conv2d:1x3x3x2,3x2x2"]},
    "objectives": ["cycles", "memory_kib"],
    "accelerator": {"audit_sample": 1},
}


@pytest.fixture(scope="module")
def on_rtl(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return explore(Study.from_dict(ON_RTL), tmp_path_factory.mktemp("accelerator study"), workers=2)


def test_a_study_ends_with_a_front_and_a_sample_equal_on_rtl(on_rtl: StudyResult) -> None:
    assert on_rtl.exit_code == 0
    data = json.loads((on_rtl.folder / "results.json").read_text(encoding="utf-8"))
    assert data["audit"] == {"members": 1, "sample": 1, "runs": 4, "matches_reference": 4, "events_equal": 4}
    (member,) = json.loads((on_rtl.folder / "front.json").read_text(encoding="utf-8"))["front"]
    assert member["sources"] == {"cycles": "rtl", "memory_kib": "model"}
    assert all(run["events_equal"] and run["rtl_cycles"] == run["model_cycles"] for run in member["operators"].values())
    assert sum(run["rtl_cycles"] for run in member["operators"].values()) == member["objectives"]["cycles"]
    assert data["sample"][0]["candidate_hash"] != member["candidate_hash"]
    assert {path.suffix for path in (on_rtl.folder / "verilog").glob(f"{member['module']}*")} == {".v", ".json", ".h"}


def test_a_constant_that_is_off_by_one_stops_the_study_with_a_command_that_shows_it(
    on_rtl: StudyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    right = AcceleratorMachine.tail
    monkeypatch.setattr(AcceleratorMachine, "tail", lambda machine, k_units: right(machine, k_units) + 1)
    study = Study.from_dict(ON_RTL)
    for resume in (False, True):  # the verdict stands
        with pytest.raises(
            AuditError, match=r"^model \(\d+ cycles\) and RTL \(\d+ cycles\) differ in an event; reproduce: celosia "
        ) as caught:
            explore(study, tmp_path / "x", resume=resume)
    assert caught.value.exit_code == 1
    assert not (tmp_path / "x" / "results.json").exists()
    # the command line says the same, as a document and as a sentence
    assert main(["explore", str(tmp_path / "x" / "study.toml"), "--out", str(tmp_path / "x"), "--resume", "--json", "--quiet"]) == 1
    out, err = capfd.readouterr()
    assert err == f"celosia: {caught.value}\n"
    document = json.loads(out)
    assert document["error"] == {"class": "AuditError", "message": str(caught.value)}
    assert document["study_hash"] == study.hash
    assert str(caught.value).endswith(f"; reproduce: {document['reproduce']}")
    command = shlex.split(document["reproduce"])
    assert main([*command[1:], "--json", "--quiet"]) == 1
    shown = json.loads(capfd.readouterr().out)
    assert shown["events_equal"] is False
    assert shown["rtl_cycles"] != shown["model_cycles"]
    monkeypatch.undo()
    assert main([*command[1:], "--json", "--quiet"]) == 0


def test_outputs_of_8_bits_are_searched_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = {"os": {**TABLE, "core": "output-stationary", "rows": 2, "cols": 2, "channel_words": 2}}
    table = {**ON_RTL, "hardware": hardware, "budget": 1, "accelerator": {"audit_sample": 0, "output": "int8"}}
    cycles = {}
    for output in ("sums", "int8"):
        study = Study.from_dict({**table, "accelerator": {"audit_sample": 0, "output": output}})
        result = explore(study, tmp_path / output)
        assert result.exit_code == 0
        (member,) = json.loads((result.folder / "front.json").read_text(encoding="utf-8"))["front"]
        cycles[output] = member["objectives"]["cycles"]
    assert cycles["int8"] != cycles["sums"]
    monkeypatch.setattr("celosia.compiler.accelerator.job.shift_right", lambda value, shift, rounding: value >> (shift + 1))
    with pytest.raises(AuditError, match=r"; reproduce: celosia simulate accelerator .* --output int8 "):
        explore(Study.from_dict(table), tmp_path / "broken")


# ---- with a stand-in for the RTL


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("celosia.hw.artefacts.emit_artefacts", lambda point, folder: None)
        patch.setattr("celosia.explore.plot.Plot.save", lambda plot, folder: ())
        return go(small_study(), tmp_path_factory.mktemp("searched") / "x")[0]


def without_rtl(result: StudyResult, folder: Path) -> Path:
    """A folder with the search of a study, but without its runs on RTL."""
    lines = (result.folder / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "journal.jsonl").write_text("".join(line for line in lines if '"fidelity":"rtl"' not in line), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("_cheap_writing")
@pytest.mark.parametrize("schedules", ["balanced", "search"])
def test_the_same_seed_gives_the_same_front_with_any_workers_and_after_an_interruption(
    searched: StudyResult, tmp_path: Path, schedules: str
) -> None:
    study = small_study() if schedules == "balanced" else small_study(accelerator={"schedules": schedules, "audit_sample": 2}, budget=60)
    whole = searched if schedules == "balanced" else go(study, tmp_path / "whole")[0]
    together, _ = go(study, tmp_path / "together", workers=3)
    assert (together.folder / "front.json").read_bytes() == (whole.folder / "front.json").read_bytes()
    assert [each["candidate_hash"] for each in together.sample] == [each["candidate_hash"] for each in whole.sample]
    (tmp_path / "cut").mkdir()
    lines = (whole.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut" / "journal.jsonl").write_bytes(b"".join(lines[:11]) + lines[11][:50])
    resumed, _ = go(study, tmp_path / "cut", resume=True)
    assert (resumed.folder / "front.json").read_bytes() == (whole.folder / "front.json").read_bytes()
    again, verifier = go(study, whole.folder, resume=True)
    assert verifier.calls == []
    assert again.exit_code == 0
    verified = {member.candidate.hash for member in whole.front} | {each["candidate_hash"] for each in whole.sample}
    assert len(verified) == study.front_limit + 2


@pytest.mark.usefixtures("_cheap_writing")
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"events_equal": False}, r"^model .* differ in an event; reproduce: celosia simulate accelerator "),
        ({"matches_reference": False}, r"^the result differs from the reference; reproduce: celosia simulate accelerator "),
        (
            {"rtl_cycles": 1},
            r"^gemm:7x6x20 took 1 cycles on RTL, but \d+ by the scorer of the search; reproduce: celosia ",
        ),
    ],
)
def test_one_difference_in_the_sample_stops_the_study(searched: StudyResult, tmp_path: Path, broken: dict[str, Any], message: str) -> None:
    victim = searched.sample[0]["candidate_hash"]

    def change(candidate: Any, name: str, run: Any) -> Any:
        return dataclasses.replace(run, **broken) if candidate.hash == victim and name == "gemm:7x6x20" else run

    with pytest.raises(MismatchError, match=message):
        go(small_study(), without_rtl(searched, tmp_path), change=change, resume=True)


@pytest.mark.usefixtures("_cheap_writing")
def test_a_tool_that_fails_is_no_difference(searched: StudyResult, tmp_path: Path) -> None:
    def change(candidate: Any, name: str, run: Any) -> Any:
        raise ToolFailedError("the C++ compiler was killed by SIGKILL")

    folder = without_rtl(searched, tmp_path)
    assert go(small_study(), folder, change=change, resume=True)[0].exit_code == 3
    assert go(small_study(), folder, resume=True)[0].exit_code == 0


@pytest.mark.usefixtures("_cheap_writing")
@pytest.mark.parametrize("schedules", ["balanced", "best", "search"])
def test_what_does_not_fit_is_recorded_with_how_much_is_missing(tmp_path: Path, schedules: str) -> None:
    study = small_study(
        hardware={"os": {**TABLE, "rows": [2, 8], "cols": [2, 8], "port_bytes": [4, 128]}},
        workload={"operators": ["conv2d:1x4x4x101,4x3x3"]},
        budget=16,
        accelerator={"schedules": schedules},
    )
    result, _ = go(study, tmp_path / "x")
    assert result.exit_code == 0
    errors = [record.error for record in read_journal(tmp_path / "x" / "journal.jsonl")[1] if record.error]
    assert result.infeasible == len(errors) > 0 == result.failed
    assert {error["stage"] for error in errors} == {"schedule", "hardware"}, errors
    texts = [error["message"] for error in errors if error["stage"] == "schedule"]
    assert all("tiles need" in text and "too small by" in text for text in texts)


def test_the_cycles_of_a_candidate_are_those_of_its_programs() -> None:
    problem = small_problem(accelerator={"schedules": "search", "memory_latency": 33})
    evaluator, rng, seen = AcceleratorEvaluator(problem, fake_area), np.random.default_rng(0), 0
    for _ in range(60):
        try:
            candidate = problem.candidate([int(rng.integers(axis.size)) for axis in problem.space.axes])
        except InfeasibleError:
            continue
        measured, total = evaluator.evaluate(candidate), 0
        for operator in problem.operators:
            mapped = problem.mapped(operator.name, candidate.design)
            program = lower(mapped, tile_schedule(candidate, operator.name))  # never refused
            cycles = predict(mapped.machine, program, memory=MemoryTiming(latency=33)).cycles
            assert measured["operators"][operator.name] == cycles
            total += operator.weight * cycles
        assert measured["cycles"] == total
        seen += 1
    assert seen > 40


@pytest.mark.parametrize("schedules", ["balanced", "best"])
def test_the_schedules_that_were_found_are_kept(schedules: str) -> None:
    problem = small_problem(accelerator={"schedules": schedules})
    candidate = problem.candidate([0] * len(problem.space.axes))
    measured = AcceleratorEvaluator(problem, fake_area).evaluate(candidate)
    assert candidate.schedules == ()
    filled = candidate.scheduled(measured["schedules"])
    searched = AcceleratorEvaluator(small_problem(accelerator={"schedules": "search"}), fake_area)
    assert searched.evaluate(filled)["operators"] == measured["operators"]
    assert measured["memory_kib"] > 3
    assert measured["port_bytes"] == 4


def test_balanced_tiles_come_near_to_the_optimum() -> None:
    for rows, cols, core in ((3, 4, "output-stationary"), (2, 2, "weight-stationary"), (4, 3, "outer-product")):
        point = DesignPoint.create("accelerator", rows=rows, cols=cols, core=core, spad_kib=2, acc_kib=2, port_bytes=8)
        for op in (gemm(50, 40, 96), Convolution(height=9, width=8, channels=8, filters=12, kernel=(3, 3), pad=1)):
            mapped = Problem(machine=machine_of(point), op=op)
            schedule, cycles, looked = balanced_schedule(mapped)
            best = best_schedule(mapped)
            assert best.cycles <= cycles == predict(mapped.machine, lower(mapped, schedule)).cycles <= 1.02 * best.cycles
            assert looked < best.candidates


def test_balanced_sizes_are_the_least_of_their_number_of_tiles() -> None:
    assert balanced_sizes(7).tolist() == [1, 2, 3, 4, 5, 6, 7]
    for most in (15, 64, 3136):
        sizes = balanced_sizes(most).tolist()
        assert (sizes[0], sizes[-1]) == (1, most)
        assert len(sizes) <= MOST_SIZES
        assert all(size == 1 or -(-most // (size - 1)) > -(-most // size) for size in sizes)


# ---- commands and mistakes


def test_a_run_is_repeated_by_its_command() -> None:
    point = DesignPoint.create("accelerator", rows=3, cols=2, core="dot-product", lanes=2, split=True, rounding="floor")
    schedule = Schedule(m=2, n=1, k=3, order="nkm", lag=0)
    words = shlex.split(simulate_command(point, "gemm:3x4x5", schedule, timing=MemoryTiming(latency=7), seed=9))
    arguments = build_parser().parse_args(words[1:])
    assert design_point(arguments) == point
    assert Schedule(**json.loads(arguments.schedule)) == schedule
    assert (arguments.operator, arguments.latency, arguments.seed, arguments.fidelity) == ("gemm:3x4x5", 7, 9, "both")


@pytest.mark.parametrize(
    "op",
    [
        gemm(5, 6, 7),
        Convolution(images=2, height=5, width=6, channels=8, filters=4, kernel=(3, 2), stride=2, dilation=2, pad=1, groups=2),
    ],
)
def test_a_convolution_is_written_as_an_operator(op: Convolution) -> None:
    assert as_convolution(operator_string(op)) == op


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"hardware": {**SMALL["hardware"], "systolic": {"rows": 2, "cols": 2}}},
        r"^study\.hardware\.systolic is a block without memory: .*; make two studies$",
    ),
    ({"workload": {"operators": ["gemm:4x4x4"], "out": "int8"}}, r"^study\.workload\.out must be absent: .*$"),
    ({"objectives": ["cycles", "stream_bits"]}, r"^study\.objectives\[1\] must be one of cycles, .*, not 'stream_bits'$"),
    ({"limits": {"bytes_packed": 3}}, r"^study\.limits has no key 'bytes_packed'; allowed: .*$"),
    (
        {"accelerator": {"schedules": "bset"}},
        r"^study\.accelerator\.schedules must be one of balanced, best, search, not 'bset'; .*'best'\?$",
    ),
    (
        {"accelerator": {"audit_sample": -1}},
        r"^study\.accelerator\.audit_sample must be an integer from 0 .*; nearest legal value: 0$",
    ),
    ({"accelerator": {"output": "int4"}}, r"^study\.accelerator\.output must be one of sums, int8, uint8, not 'int4'"),
    ({"accelerator": {"latency": 3}}, r"^study\.accelerator has no key 'latency'; allowed: schedules, audit_sample, memory_latency.*$"),
    (
        {"hardware": {"systolic": {"rows": 2, "cols": 2}}},
        r"^study\.accelerator must be absent: no table of study\.hardware is of family accelerator$",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        small_study(**changes)


def test_defaults_and_round_trip() -> None:
    assert Study.from_dict(small_study().to_dict()) == small_study()
    data = {key: value for key, value in SMALL.items() if key not in ("budget", "accelerator")}
    for schedules, budget in SCHEDULES.items():
        assert Study.from_dict({**data, "accelerator": {"schedules": schedules}}).budget == budget


def test_an_operator_that_no_accelerator_takes_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for operator in ("t2d:1x4x4x8x4x4x2x1", "conv3d:1x4x4x4x2,2x2x2x2"):
        with pytest.raises(MappingError, match=r"^\S+ is [46] convolutions; a study takes operators that are one$"):
            explore(small_study(workload={"operators": ["gemm:4x4x4", operator]}), tmp_path / "x")
        assert not (tmp_path / "x").exists()


def test_a_record_without_schedules_is_its_own_candidate() -> None:
    problem = small_problem(accelerator={"schedules": "search"})
    candidate = problem.candidate([0] * len(problem.space.axes))

    class Record:
        measurements = None

        def __init__(self) -> None:
            self.candidate = candidate.to_dict()

    assert scheduled(Record()) == candidate  # type: ignore[arg-type]
