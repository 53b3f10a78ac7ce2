"""Study files: what they say, and one sentence for each mistake."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from celosia.explore.candidate import Candidate
from celosia.explore.folder import to_toml
from celosia.explore.study import Study
from celosia.hw.design_point import DesignPoint
from celosia.intrinsics import FormatError, HashMismatchError

from .fakes import SMALL, small_study

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_defaults_and_domains() -> None:
    study = small_study()
    domains = study.hardware[0].domains
    assert domains["rows"].values == (1, 2, 3, 4, 5)
    assert domains["cols"].values == (2, 4)
    assert study.hardware[1].domains["lanes"].values == (1, 2, 4)
    assert study.objectives == ("cycles", "area_transistors")
    assert {operator.name: operator.weight for operator in study.workload.resolve()} == {"gemm:12x16x20": 1, "gemm:7x9x33": 3}


def test_dict_and_toml_round_trips_keep_the_hash(tmp_path: Path) -> None:
    study = small_study(name='Stüdie "1"')
    assert Study.from_dict(study.to_dict()) == study
    path = tmp_path / "study.toml"
    path.write_text(to_toml(study.to_dict()), encoding="utf-8")
    assert Study.load(path).hash == study.hash
    assert Study.load(path, seed=9).hash != study.hash
    assert Study.load(path, budget=7).budget == 7


@pytest.mark.parametrize("name", ["resnet18", "quick", "accelerator"])
def test_examples_load(name: str) -> None:
    study = Study.load(EXAMPLES / f"{name}.toml")
    assert study.name == name
    assert Study.from_dict(study.to_dict()).hash == study.hash


def test_workload_files_are_found_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text('operators = ["gemm:4x4x4", {operator = "gemm:8x8x8", weight = 2}]')
    (tmp_path / "s.toml").write_text(to_toml({**SMALL, "workload": {"operators": ["w.toml", "gemm:4x4x4"]}}))
    operators = Study.load(tmp_path / "s.toml").workload.resolve()
    assert [(operator.name, operator.weight) for operator in operators] == [("gemm:4x4x4", 2), ("gemm:8x8x8", 2)]


MISTAKES: list[tuple[list[Any], Any, str]] = [
    (["bugdet"], 10, r"study has no key 'bugdet'; allowed: name, .*, accelerator; did you mean 'budget'\?"),
    (["budget"], 0, r"study\.budget must be an integer from 1 to 10000000, not 0; nearest legal value: 1"),
    (["seed"], True, r"study\.seed must be an integer from 0 to 4294967295, not True; nearest legal value: 0"),
    (["seed"], float("nan"), r"study\.seed must be an integer from 0 to 4294967295, not nan; nearest legal value: 0"),
    (["name"], "", r"study\.name must be a non-empty string, not ''"),
    *(
        (["name"], name, rf"study\.name must be the name of a folder, without .*, not .*; nearest legal value: '{near}'")
        for name, near in (("../../evil", "evil"), ("/evil", "evil"), ("a\\b", "a-b"), ("..", "study"), (".", "study"), ("a\nb", "a-b"))
    ),
    *(
        (["limits"], {"cycles": value}, r"study\.limits\.cycles must be a finite number above 0, not .*; without the key there is no limit")
        for value in (float("inf"), float("-inf"), float("nan"), 10**400, 0, "1", True)
    ),
    (["budget"], float("inf"), r"study\.budget must be an integer from 1 to 10000000, not inf; nearest legal value: 10000000"),
    (["search"], {"refine": float("inf")}, r"study\.search\.refine must be a number from 0 to 1, not inf; nearest legal value: 1"),
    (
        ["hardware", "systolic", "rows"],
        {"min": 1, "max": float("inf")},
        r"study\.hardware\.systolic\.rows\.max must be an integer from .*, not inf; nearest legal value: \d+",
    ),
    (["objectives"], ["cycels"], r"study\.objectives\[0\] must be one of cycles, .*, not 'cycels'; did you mean 'cycles'\?"),
    (["objectives"], "cycles", r"study\.objectives must be a list of distinct names out of cycles, .*, not 'cycles'"),
    (["hardware"], {}, r"study\.hardware must hold one table per family, such as \[hardware\.systolic\]; families: systolic, .*"),
    (
        ["hardware", "sistolic"],
        {},
        r"study\.hardware\.sistolic must be named one of systolic, dot-product, outer-product, accelerator or have the key family = "
        r"one of systolic, dot-product, outer-product, accelerator, not 'sistolic'; did you mean 'systolic'\?",
    ),
    (["hardware", "x"], {"family": "dot"}, r"study\.hardware\.x\.family must be one of systolic, .*, not 'dot'.*"),
    (["hardware", "systolic", "rosw"], 3, r"study\.hardware\.systolic has no key 'rosw'; allowed: family, rows, .*; did you mean 'rows'\?"),
    (
        ["hardware", "systolic", "rows"],
        0,
        r"study\.hardware\.systolic\.rows must be an integer from 1 to 256, not 0; nearest legal value: 1",
    ),
    (
        ["hardware", "systolic", "rows"],
        [4, 999],
        r"study\.hardware\.systolic\.rows\[1\] must be an integer from 1 to 256, not 999; nearest legal value: 256",
    ),
    (["hardware", "systolic", "rows"], [2, 2], r"study\.hardware\.systolic\.rows must not list a value twice: \[2, 2\]"),
    (["hardware", "systolic", "rows"], [], r"study\.hardware\.systolic\.rows must have at least one value; allowed: a value, a list, .*"),
    (
        ["hardware", "systolic", "rows"],
        {"min": 4, "max": 2},
        r"study\.hardware\.systolic\.rows\.max must be at least min = 4, not 2; nearest legal value: 4",
    ),
    (
        ["hardware", "systolic", "rows"],
        {"min": 1, "mx": 2},
        r"study\.hardware\.systolic\.rows has no key 'mx'; allowed: min, max, step, power_of_two; did you mean 'max'\?",
    ),
    (["hardware", "systolic", "rows"], {"min": 1}, r"study\.hardware\.systolic\.rows\.max is missing; allowed: .*"),
    (
        ["hardware", "systolic", "rows"],
        {"min": 3, "max": 8, "power_of_two": True},
        r"study\.hardware\.systolic\.rows\.min must be a power of two, not 3; nearest legal value: 2",
    ),
    (
        ["hardware", "systolic", "dataflow"],
        "output",
        r"study\.hardware\.systolic\.dataflow must be one of output-stationary, weight-stationary, not 'output'; "
        r"nearest legal value: 'output-stationary'",
    ),
    (["hardware", "systolic", "a"], "int80", r"study\.hardware\.systolic\.a: .*"),
    (["hardware", "dot-product", "resident"], 1, r"study\.hardware\.dot-product\.resident must be true or false, not 1"),
    (["workload", "operators"], ["gemm:4x4"], r"study\.workload\.operators\[0\]: .*"),
    (["workload", "operators"], [], r"study\.workload\.operators must be a list of workload names, .*, not \[\]"),
    (["workload", "b"], "float", r"study\.workload\.b: dtype must be intN or uintN .*"),
    (["search"], {"refine": 2}, r"study\.search\.refine must be a number from 0 to 1, not 2; nearest legal value: 1"),
    (
        ["search"],
        {"optimizer": "TwoPointDE"},
        r"study\.search\.optimizer must be one of Nevergrad's, such as TwoPointsDE, not 'TwoPointDE'; did you mean 'TwoPointsDE'\?",
    ),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of Nevergrad's own imports
@pytest.mark.parametrize(("path", "value", "message"), MISTAKES)
def test_mistakes(path: list[str], value: Any, message: str) -> None:
    data = copy.deepcopy(SMALL)
    table: Any = data
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    with pytest.raises(FormatError) as caught:
        Study.from_dict(data)
    assert re.fullmatch(message, str(caught.value)), caught.value


def test_missing_parts() -> None:
    with pytest.raises(FormatError, match=r"^study\.workload is missing$"):
        Study.from_dict({key: value for key, value in SMALL.items() if key != "workload"})
    with pytest.raises(FormatError, match=r"^study\.hardware\.systolic needs cols$"):
        small_study(hardware={"systolic": {"rows": 4}})


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"^study '.*none\.toml' cannot be read: No such file or directory$"):
        Study.load(tmp_path / "none.toml")
    for text in ("name = ", "budget = " + 5000 * "9", "budget = " + 100_000 * "["):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(FormatError, match=r"^study '.*bad\.toml' is not TOML: .*$"):
            Study.load(tmp_path / "bad.toml")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(to_toml(SMALL), encoding="utf-8-sig")
    assert Study.load(tmp_path / "s.toml") == small_study()


def test_candidates_have_a_stable_hash() -> None:
    design = DesignPoint.create("systolic", rows=3, cols=5)
    candidate = Candidate(design, (("gemm:4x4x4", (("route", "layout"), ("order", "mnk"), ("layout.m", 2))),))
    again = Candidate.from_dict(candidate.to_dict())
    assert again == candidate
    assert again.hash == candidate.hash
    assert len(candidate.hash) == 64
    other = Candidate(design, (("gemm:4x4x4", (("route", "layout"), ("order", "mnk"), ("layout.m", 1))),))
    assert other.hash != candidate.hash
    with pytest.raises(
        HashMismatchError, match=rf"^the candidate was recorded for design 0123, but its parameters are design {design.hash} now$"
    ):
        Candidate.from_dict({**candidate.to_dict(), "design_hash": "0123"})
    with pytest.raises(FormatError, match=r"^a candidate needs design, design_hash and schedules; KeyError: 'schedules'$"):
        Candidate.from_dict({"design": design.to_dict(), "design_hash": design.hash})
