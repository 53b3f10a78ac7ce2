"""Operators x instructions: answers, totals, verification, the formats they leave in, and TVM's verdict beside them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from celosia.compiler import coverage
from celosia.compiler.coverage import COLUMNS
from celosia.compiler.heatmap import write_heatmap
from celosia.compiler.reasons import Reason
from celosia.compiler.tasks import prim_func_task, task, tasks, typed
from celosia.intrinsics import DType, FormatError, ParameterError

from .fixtures.small_operators import INSTRUCTIONS, instruction, small_tasks

TASKS = small_tasks()
BY_NAME = {entry.name: entry for entry in INSTRUCTIONS}
SOME = [TASKS[name] for name in ("GMM", "GMM_odd", "dense_s16", "SFM")]
TWO = (BY_NAME["mma4x4x16"], BY_NAME["tile16"])


@pytest.fixture(scope="module")
def report():
    return coverage(SOME, TWO, floor=0.5, verify=2, seed=1)


def test_answers_in_order(report):
    assert [(pair.operator, pair.instruction) for pair in report.pairs] == [(item.name, entry.name) for item in SOME for entry in TWO]
    assert [pair.status for pair in report.pairs] == ["mapped"] * 4 + ["rejected"] * 4
    assert [pair.reason for pair in report.pairs[4:]] == ["data-too-wide"] * 2 + ["reducer-not-sum"] * 2


def test_totals_count_only_pairs_at_the_floor(report):
    square, odd, wide = 2 * 16 * 16 * 16, 2 * 10 * 18 * 22, 16 * 16 * 32
    mma, tile = report.summary
    assert mma["mac_share"] == pytest.approx((square + odd) / (square + odd + wide))
    assert (mma["mapped"], mma["above_floor"], tile["mapped"], tile["above_floor"]) == (2, 2, 2, 1)
    assert tile["mac_share"] == pytest.approx(square / (square + odd + wide))
    assert tile["utilization"] == 1
    assert tile["reasons"] == {"data-too-wide": 1, "reducer-not-sum": 1}


def test_weights_count(report):
    twice = coverage([task("gemm:16x16x16").operator.weighted(3), "gemm:1x16x16"], [BY_NAME["mma4x4x16"]])
    (entry,) = twice.summary
    assert entry["utilization"] == pytest.approx((3 * 4096 + 256) / (3 * 4096 + 4 * 256))


def test_a_sample_is_verified(report):
    assert sorted(str(pair.verified) for pair in report.pairs) == ["None"] * 6 + ["True"] * 2
    assert report.failed == []
    assert sum(entry["verified"] for entry in report.summary) == 2


def test_a_wrong_map_is_told(monkeypatch):
    from celosia.compiler import verify

    real = verify.verify

    def broken(*arguments, **options):
        return real(*arguments, **options, fault="signedness")

    monkeypatch.setattr(verify, "verify", broken)
    wrong = coverage([TASKS["GMM"]], TWO[:1], verify="all")
    assert [pair.verified for pair in wrong.failed] == [False]
    assert "of 512 elements differ" in wrong.failed[0].proof
    assert wrong.rows()[1] == ["GMM", "1 in place WRONG"]


def test_formats(report, tmp_path):
    data = json.loads(json.dumps(report.to_dict()))
    assert data["floor"] == 0.5
    assert data["pairs"][0]["map"].startswith("i→m") or "→m" in data["pairs"][0]["map"]
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert tuple(rows[0]) == COLUMNS
    assert [row["operator"] for row in rows] == [pair.operator for pair in report.pairs]
    assert report.rows()[0] == ["operator", "mma4x4x16", "tile16"]
    assert report.rows()[3][1] == "data-too-wide"
    for ending in (".png", ".svg"):
        path = write_heatmap(report, tmp_path / f"map{ending}")
        assert path.stat().st_size > 2000


def test_a_heat_map_goes_where_a_picture_can_go(report, tmp_path):
    with pytest.raises(ParameterError, match=r"heat map must end in \.png, \.svg, \.pdf, not 'map\.txt'; nearest legal value: map\.png"):
        write_heatmap(report, tmp_path / "map.txt")
    with pytest.raises(ParameterError, match="there is no folder"):
        write_heatmap(report, tmp_path / "missing" / "map.png")


def test_progress_ends_at_its_total():
    seen = []
    coverage([TASKS["GMM"]], TWO, progress=lambda *step: seen.append(step))
    assert [step[1:3] for step in seen] == [(0, 2), (1, 2), (2, 2)]


def test_tvm_is_asked_on_request_and_keeps_quiet(capfd):
    found = coverage(["gemm:16x16x16", "dep:1x4x4x8x3x1x1"], [BY_NAME["mma4x4x16"]], compare_tvm=True)
    gemm, depthwise = (pair.tvm for pair in found.pairs)
    assert gemm["loop_map"] is gemm["proposal"] is True
    assert gemm["tensorized"] == "direct"
    assert gemm["routes"]["direct"] == "mapped"
    assert depthwise["tensorized"] is None
    assert found.pairs[1].status == "mapped"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"floor": 1.5}, "utilisation floor must be from 0 to 1, not 1.5; nearest legal value: 1"),
        ({"verify": -1}, "verify must be a number of pairs, at least 0, or 'all', not -1"),
        ({"verify": "some"}, "verify must be a number of pairs"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        coverage(["gemm:4x4x4"], TWO, **options)


def test_operators_on_other_types():
    given = [task("nrm:1x4x4"), task("t2d:1x3x3x4x4x4x2x1"), replace(task("gemm:4x4x8"), weight=3), task("sfm:256x256")]
    work = [typed(item, a=DType.of("uint8"), b=DType(8)) for item in given]
    vnni = instruction("vnni", "k,nk->n", a="uint8", overflow="wrap", n=4, k=4)
    found = coverage(work, [vnni], verify="all")
    assert [pair.types for pair in found.pairs] == ["uint8 x uint8 -> int32", *["uint8 x int8 -> int32"] * 2, ""]
    assert [pair.verified for pair in found.pairs] == [True, True, True, None]
    assert found.pairs[2].weight == 3
    assert found.pairs[2].answer.activation_bytes == 0


def test_progress_tells_what_lasts():
    seen = []
    coverage([TASKS["GMM"], TASKS["SFM"]], TWO[:1], verify="all", compare_tvm=True, progress=lambda *step: seen.append(step))
    assert [step[:3] for step in seen if step[0] == "verify"] == [("verify", 0, 1), ("verify", 1, 1)]
    assert [step[:3] for step in seen if step[0] == "TVM"] == [("TVM", 0, 2), ("TVM", 1, 2), ("TVM", 2, 2)]


def test_what_is_given_several_times_counts_several_times():
    found = coverage(["gemm:16x16x16", task("gemm:16x16x16").operator.weighted(2), "sfm:256x256", "sfm:256x256"], TWO[:1])
    assert [(pair.operator, pair.weight) for pair in found.pairs] == [("gemm:16x16x16", 3), ("sfm:256x256", 2)]


def test_names_are_unique():
    with pytest.raises(ParameterError, match="two different operators are named 'GMM'; rename one"):
        coverage([TASKS["GMM"], replace(TASKS["DEP"], name="GMM")], TWO)
    with pytest.raises(ParameterError, match="instruction 'tile16' is given twice"):
        coverage(["gemm:4x4x4"], [TWO[1], TWO[1]])


def test_maps_below_the_floor_are_in_brackets():
    found = coverage([TASKS["NRM"]], TWO, floor=0.05)
    assert found.rows()[1] == ["NRM", "0.0625 direct", "(0.0039) direct"]


def test_kinds_with_shapes_of_tvm_only():
    assert task("sfm:256x256").name == "sfm:256x256"
    with pytest.raises(FormatError, match=r"operator 'sfm:2x2', position 4: this kind has the shapes of TVM only: sfm:256x256"):
        task("sfm:2x2")


# ---- workloads


def test_configs_hold_every_kind():
    found = tasks("operators")
    kinds = [item.name.split(":")[0] for item in found]
    assert len(found) == 52
    assert kinds.count("sfm") == kinds.count("cbr") == 4
    fused = next(item for item in found if item.name.startswith("cbr"))
    assert fused.parsed.einsum.extents["co" if "co" in fused.parsed.einsum.extents else "ff"] == 64


SCRIPT = """
from tvm import te
x, y = te.placeholder((4, 8), "int8", name="X"), te.placeholder((4, 8), "int8", name="Y")
k = te.reduce_axis((0, 8), "k")
z = te.compute((4, 4), lambda i, j: te.sum(x[i, k].astype("int32") * y[j, k].astype("int32"), axis=k), name="Z")
scores = te.create_prim_func([x, y, z])
other = scores
WEIGHTS = {"other": ()}
"""


def test_functions_of_a_python_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT)
    scores, other = tasks(str(path))
    assert (scores.name, scores.constants, other.constants) == ("scores", (1,), ())
    assert [item.name for item in tasks(f"{path}:other")] == ["other"]
    assert coverage([scores], TWO, verify="all").pairs[0].verified is True


REFERENCES = "REFERENCES = {'scores': lambda inputs: (inputs[0].astype('int32') @ inputs[1].T.astype('int32'))%s}"


@pytest.mark.parametrize(
    ("wrong", "proof"),
    [
        ("", "all 16 elements equal the numpy reference"),
        (" + 1", "16 of 16 elements differ from the numpy reference"),
        (" @ None", "cannot be run: ValueError"),
        ("[0]", r"has shape \(4,\), its output \(4, 4\)"),
    ],
)
def test_functions_are_compared_with_references_of_their_own(tmp_path, wrong, proof):
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT + REFERENCES % wrong)
    (pair,) = coverage(tasks(f"{path}:scores"), TWO[:1], verify="all").pairs
    assert pair.verified is (wrong == "")
    assert re.search(proof, pair.proof)


DYNAMIC = (
    SCRIPT.replace("x, y =", "import tvm\nn = tvm.tirx.Var('n', 'int32')\nx, y =").replace("(4, 8)", "(n, 8)").replace("(4, 4)", "(n, n)")
)


@pytest.mark.parametrize(
    ("text", "suffix", "words"),
    [
        ("x = 1", "", "defines no PrimFunc at its top level"),
        (SCRIPT, ":missing", "defines no PrimFunc 'missing'; it defines scores, other"),
        (DYNAMIC, "", "function 'scores', parameter 0: dimension 0 of X must be a number, not n"),
        ("raise ValueError('no')", "", "cannot be run: ValueError: no"),
        ("import sys\nsys.exit(0)", "", "cannot be run: SystemExit: 0"),
        (SCRIPT + "WEIGHTS = 3", "", "WEIGHTS must be a dict from names of functions, not int"),
        (SCRIPT + "WEIGHTS = {'scores': (2,)}", "", r"WEIGHTS\['scores'\] must be positions of inputs, each from 0 to 1, not \(2,\)"),
        (SCRIPT + "REFERENCES = {'scores': 3}", "", r"REFERENCES\['scores'\] must be a function of the list of inputs, not 3"),
    ],
)
def test_bad_python_files(tmp_path, text, suffix, words):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(FormatError, match=words):
        tasks(str(path) + suffix)


def test_a_missing_python_file():
    with pytest.raises(FormatError, match=r"workload 'no/such\.py' is not a file"):
        tasks("no/such.py")


def test_a_function_with_a_reference_of_its_own():
    item = prim_func_task("mine", TASKS["dense_nt"].build())
    assert coverage([item], TWO[:1], verify=1).pairs[0].verified is True


def test_every_reason_of_the_mapper_is_documented():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "mapper.md").read_text(encoding="utf-8")
    for module in ("einsum_parse", "enumerate"):
        source = (Path(__file__).parents[2] / "compiler" / f"{module}.py").read_text(encoding="utf-8")
        used = {reason for reason in Reason if f"Reason.{reason.name}" in source}
        assert used
        assert all(f"`{reason.value}`" in page for reason in used)
