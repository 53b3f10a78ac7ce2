"""The search: against exhaustive enumeration, determinism, failures, and what the journal keeps."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from celosia.compiler.schedule import schedule_space
from celosia.explore.candidate import Candidate
from celosia.explore.evaluator import ModelEvaluator, objectives_of
from celosia.explore.front import hypervolume, pareto_front
from celosia.explore.journal import Journal
from celosia.explore.problem import Problem
from celosia.explore.search import DivergedError, Search, SearchResult
from celosia.explore.study import Study
from celosia.intrinsics import MappingError, ParameterError, stream_cycles

from .fakes import fake_area, small_study

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of Nevergrad's own imports


def run(study: Study, path: Path, *, evaluator: Any = None, **more: Any) -> SearchResult:
    operators = study.workload.resolve()
    with Journal(path, study.hash) as journal:
        return Search(Problem(study, operators), evaluator or ModelEvaluator(operators, fake_area), journal, **more).run()


def values(found: SearchResult, study: Study) -> list[tuple[float, ...]]:
    return [objectives_of(record.measurements or {}, study.objectives) for record in found.front(study.objectives)]


def exhaustive(study: Study) -> list[tuple[float, float]]:
    """The true front: schedules of different operators are separable given the hardware, so each is minimised by itself."""
    operators = study.workload.resolve()
    problem = Problem(study, operators)
    points = []
    for assignment in problem.hardware.enumerate():
        design = problem.design_of(assignment)
        cycles = 0
        for operator in operators:
            space = schedule_space(operator, design.machine)
            names = [variable.name for variable in space.variables]
            best = math.inf
            for schedule in every(space, names, {}):
                best = min(best, stream_cycles(design.machine, schedule.nest))
            cycles += operator.weight * best
        points.append((float(cycles), fake_area(design)))
    return [points[index] for index in pareto_front(points)]


def every(space: Any, names: list[str], chosen: dict[str, Any]) -> Any:
    if not names:
        yield space.schedule(chosen)
        return
    variable = next(variable for variable in space.variables if variable.name == names[0])
    if variable.route not in (None, chosen.get("route")):
        yield from every(space, names[1:], chosen)
        return
    for value in variable.values:
        yield from every(space, names[1:], {**chosen, variable.name: value})


def tiny_study(**changes: Any) -> Study:
    return small_study(
        hardware={
            "systolic": {"dataflow": "output-stationary", "rows": [1, 3, 4], "cols": [2, 4], "depth": 4},
            "ws": {"family": "systolic", "dataflow": "weight-stationary", "rows": [2, 3], "cols": [2, 4]},
            "dot-product": {"lanes": [1, 2, 4], "depth": [2, 8], "resident": [False, True]},
        },
        **changes,
    )


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_front_equals_exhaustive_enumeration_on_a_small_space(tmp_path: Path, seed: int) -> None:
    study = tiny_study(seed=seed, budget=400)
    assert values(run(study, tmp_path / "j"), study) == exhaustive(study)


def test_nevergrad_alone_comes_near(tmp_path: Path) -> None:
    study = tiny_study(budget=300, search={"refine": 0.0, "warm_start": False})
    found, truth = values(run(study, tmp_path / "j"), study), exhaustive(study)
    volumes = [hypervolume([tuple(map(math.log, point)) for point in points], (16.0, 16.0)) for points in (found, truth)]
    assert 0.97 * volumes[1] <= volumes[0] <= volumes[1]


def test_the_same_seed_gives_the_same_search_and_another_one_does_not(tmp_path: Path) -> None:
    hashes = []
    for place, seed in enumerate((5, 5, 6)):
        found = run(small_study(seed=seed), tmp_path / str(place))
        hashes.append([record.hash for record in found.records])
    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]


def test_workers_change_nothing(tmp_path: Path) -> None:
    study = small_study()
    alone = run(study, tmp_path / "alone")
    with ThreadPoolExecutor(4) as pool:
        together = run(study, tmp_path / "together", executor=pool)
    assert [record.hash for record in alone.records] == [record.hash for record in together.records]
    assert values(alone, study) == values(together, study)


def test_a_cut_journal_leads_to_the_same_end_without_evaluating_again(tmp_path: Path) -> None:
    study = small_study()
    whole = run(study, tmp_path / "whole")
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    for kept in (1, 60, len(lines)):
        path = tmp_path / f"cut{kept}"
        path.write_bytes(b"".join(lines[:kept]) + (lines[kept][:40] if kept < len(lines) else b""))
        counting = Counting(study.workload.resolve(), fake_area)
        again = run(study, path, evaluator=counting)
        assert [record.hash for record in again.records] == [record.hash for record in whole.records]
        assert values(again, study) == values(whole, study)
        assert counting.count == len(lines) - kept


class Counting(ModelEvaluator):
    count = 0

    def evaluate(self, candidate: Candidate) -> dict[str, Any]:
        self.count += 1
        return super().evaluate(candidate)


def test_a_journal_of_other_versions_is_noticed(tmp_path: Path) -> None:
    study = small_study()
    run(study, tmp_path / "j")
    lines = (tmp_path / "j").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[3] = lines[3].replace(f'"hash":"{lines[3].split(chr(34))[7]}"', '"hash":"' + "0" * 64 + '"')
    (tmp_path / "j").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(DivergedError, match=r"^proposal \d+ is candidate [0-9a-f]{12}, but the journal '.*' has 000000000000 there: .*$"):
        run(study, tmp_path / "j")


class Failing(ModelEvaluator):
    """Fails on wide designs, in different ways."""

    def evaluate(self, candidate: Candidate) -> dict[str, Any]:
        if candidate.design.macs_per_cycle > 8:
            raise (ZeroDivisionError if candidate.design.family == "systolic" else MappingError)("no way\nat all")
        return super().evaluate(candidate)


def test_failures_are_recorded_and_survived(tmp_path: Path) -> None:
    study = small_study()
    found = run(study, tmp_path / "j", evaluator=Failing(study.workload.resolve(), fake_area))
    assert found.asked == study.budget
    errors = [record.error for record in found.records if record.error]
    assert {error["class"] for error in errors} == {"ZeroDivisionError", "MappingError"}
    assert {error["message"] for error in errors} == {"no way at all"}
    assert {error["stage"] for error in errors} == {"model"}
    assert values(found, study)
    assert all(record.candidate["design"]["family"] for record in found.records)


def test_a_search_in_which_everything_fails_ends(tmp_path: Path) -> None:
    class Broken(ModelEvaluator):
        def evaluate(self, candidate: Candidate) -> dict[str, Any]:
            raise RuntimeError("broken")

    study = small_study(budget=60)
    found = run(study, tmp_path / "j", evaluator=Broken([], fake_area))
    assert found.asked == 60
    assert found.front(study.objectives) == []


def test_infeasible_hardware_is_recorded_at_its_stage(tmp_path: Path) -> None:
    study = small_study(hardware={"systolic": {"rows": [2, 4], "cols": 2, "vectors": [2, 4]}})  # vectors must equal rows here
    found = run(study, tmp_path / "j")
    errors = [record.error for record in found.records if record.error]
    assert errors
    assert {(error["stage"], error["class"]) for error in errors} == {("hardware", "ParameterError")}
    assert found.succeeded


def test_operators_and_domains_without_any_mapping_are_refused_at_once() -> None:
    study = small_study(workload={"operators": ["gemm:8x8x8"], "a": "int16"})
    with pytest.raises(MappingError, match=r"^operator .*gemm:8x8x8.* maps on none of the \d+ designs looked at: .*$"):
        Problem(study, study.workload.resolve())
    study = small_study(hardware={"systolic": {"rows": 3, "cols": 3, "vectors": 5}})
    with pytest.raises(ParameterError, match=r"^no design of the study's domains is legal; the first one: vectors .*$"):
        Problem(study, study.workload.resolve())


def test_one_and_three_objectives(tmp_path: Path) -> None:
    one = small_study(objectives=["cycles"], budget=60)
    assert len(values(run(one, tmp_path / "one"), one)) == 1
    three = small_study(objectives=["cycles", "area_transistors", "stream_bits"], budget=150)
    found = values(run(three, tmp_path / "three"), three)
    assert len(found) >= 3
    assert len({point[2] for point in found}) > 1


def test_stop_interrupts_between_proposals(tmp_path: Path) -> None:
    study, asked = small_study(), []
    found = run(study, tmp_path / "j", progress=lambda action, done, total, note: asked.append(done), stop=lambda: len(asked) >= 30)
    assert found.interrupted
    assert 30 <= found.asked < 60
    assert run(study, tmp_path / "j").asked == study.budget


def test_every_candidate_of_the_space_decodes_to_a_legal_schedule() -> None:
    import numpy as np

    study = small_study()
    problem = Problem(study, study.workload.resolve())
    rng = np.random.default_rng(0)
    for _ in range(200):
        candidate = problem.candidate([int(rng.integers(axis.size)) for axis in problem.space.axes])
        for operator in problem.operators:
            schedule = schedule_space(operator, candidate.design.machine).schedule(candidate.schedule(operator.name))
            assert schedule.nest.calls == schedule.calls
        assert Candidate.from_dict(candidate.to_dict()).hash == candidate.hash


def test_limits_make_candidates_infeasible(tmp_path: Path) -> None:
    study = small_study(limits={"stream_bits": 64})
    operators = study.workload.resolve()
    found = run(study, tmp_path / "j", evaluator=ModelEvaluator(operators, fake_area, study.limits))
    errors = [record.error for record in found.records if record.error]
    assert {error["stage"] for error in errors} == {"limits"}
    assert all(error["message"].endswith("above the limit of 64") for error in errors)
    assert 0 < max(record.measurements["stream_bits"] for record in found.succeeded if record.measurements) <= 64
