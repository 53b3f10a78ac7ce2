import json
import re
import shlex

import pytest

from celosia.cli import main
from celosia.explore import accelerator_bounded, accelerator_sensitivity

DESIGN = shlex.split("--rows 3 --cols 2 --spad-kib 2 --acc-kib 2 --port-bytes 4 --channel-words 8 --residual-words 64")


def run(capfd, *arguments):
    try:
        code = main(["simulate", "accelerator", *arguments, "--quiet"])
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capfd.readouterr()
    return code, out, err


def refused(capfd, *arguments):
    """The one line of a refusal."""
    code, out, err = run(capfd, *arguments)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1, err
    return err


@pytest.fixture
def saved(tmp_path, capfd):
    path = tmp_path / "p.bin"
    code, _, err = run(
        capfd, *DESIGN, "--gemm", "9x7x20", "--output", "int8", "--residual", "--fidelity", "model", "--save-program", str(path)
    )
    assert code == 0, err
    return path


def test_model_and_rtl_are_equal_in_every_event(capfd):
    code, out, _ = run(capfd, *DESIGN, "--gemm", "9x7x20", "--output", "int8", "--residual", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["events_equal"] is True
    assert data["error"] is False
    assert data["matches_reference"] is True
    assert data["model_cycles"] == data["rtl_cycles"] == sum(data["ledger"].values()) == sum(data["critical_path"].values())


def test_a_saved_program_runs_again(saved, tmp_path, capfd):
    result = tmp_path / "after"
    code, out, err = run(capfd, *DESIGN, "--program", str(saved), "--save-result", str(result), "--json")
    assert code == 0, err
    data = json.loads(out)
    assert data["matches_functional"] is True
    assert data["events_equal"] is True
    before = saved.with_name("p.bin.image").read_bytes()
    assert len(result.read_bytes()) == len(before)
    assert result.read_bytes() != before


def test_programs_that_cannot_run_are_refused_in_one_sentence(saved, tmp_path, capfd):
    content, image = saved.read_bytes(), saved.with_name("p.bin.image").read_bytes()
    other = ["--rows", "2", *DESIGN[2:]]
    assert re.search(r"program was made for design \w{12}, not for design \w{12}$", refused(capfd, *other, "--program", str(saved)))
    small = tmp_path / "small"
    small.write_bytes(image[:-1])
    message = refused(capfd, *DESIGN, "--program", str(saved), "--image", str(small))
    assert f"memory image has {len(image) - 1} bytes; the program needs {len(image)}" in message
    for broken, reason in (
        (content[:-32], "must end with an END command"),
        (content[:-1], "whole 32-byte commands"),
        (b"x" + content, "the first bytes must be CELOPROG"),
        (content[:-32] + bytes(32), "operation code must be from 1 to 5, not 0"),
        (re.sub(rb'"memory_bytes": \d+', b'"memory_bytes": 64', content), "buffer 'a' of a program must lie inside|LOAD|inside"),
        (re.sub(rb'"memory_bytes": \d+', b'"memory_bytes": "x"', content), "needs memory_bytes as int"),
        (re.sub(rb'"dtype": "int8"', b'"dtype": "what"', content), "a buffer of a program needs"),
    ):
        path = tmp_path / "broken"
        path.write_bytes(broken)
        assert re.search(reason, refused(capfd, *DESIGN, "--program", str(path), "--image", str(small)))


def test_addresses_outside_are_refused(saved, tmp_path, capfd):
    from dataclasses import replace

    from celosia.intrinsics.accelerator import Op, Program

    program = Program.from_bytes(saved.read_bytes())
    place = next(index for index, command in enumerate(program.commands) if command.op is Op.STORE)
    for field, value, reason in (
        ("base", 1 << 20, r"\(STORE\) writes byte \d+; the memory image has \d+ bytes"),
        ("c", 60000, r"\(STORE\) reads accumulator row \d+; there are \d+"),
        ("residual", 60000, r"\(STORE\) reads word \d+ of the residuals; there are 64"),
    ):
        commands = list(program.commands)
        commands[place] = replace(commands[place], values={**commands[place].values, field: value})
        path = tmp_path / "outside"
        path.write_bytes(replace(program, commands=tuple(commands)).to_bytes())
        image = str(saved.with_name("p.bin.image"))
        assert re.search(reason, refused(capfd, *DESIGN, "--program", str(path), "--image", image))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--gemm", "9x7x20", "--latency", "0"], "must be at least 1, not 0"),
        (["--gemm", "9x7x20", "--output", "int9"], "output must be one of sums, int8, uint8"),
        (["--gemm", "9x7x20", "--residual"], "residuals are added to 8-bit outputs"),
        (["--gemm", "90x7x20", "--schedule", '{"m":30,"n":1,"k":5}'], r"too small by \d+"),
        (
            ["--gemm", "9x7x20", "--latency", "10000000000"],
            "memory latency must be an integer of at most 1000000, not 10000000000",
        ),
        (["--gemm", "9x7x20", "--latency", "9" * 30, "--fidelity", "model"], "nearest legal value: 1000000$"),
        (["--gemm", "9x7x20", "--bus", "axi4", "--write-latency", "9" * 30], "memory write_latency must be .* at most 1000000"),
        (["--gemm", "9x7x20", "--write-latency", "9"], "the native port has none; allowed with --bus axi4$"),
        (["--operator", "t2d:1x4x4x4x4x4x2x9"], "padding cuts everything off.; allowed: a smaller pad, a larger kernel or input$"),
        (["--gemm", "4x4x4", "--a", "int16", "--b", "int16"], "allowed: a reduction of at most 1, or overflow 'wrap'$"),
        (["--gemm", "9x7x20", "--schedule", '{"m":1,"n":1}'], "a schedule lacks k; allowed: m, n and k, and if need be order, a_slots"),
        (["--gemm", "9x7x20", "--schedule", '{"m":1,"n":1,"k":1,"o":2}'], "a schedule has unknown 'o'; allowed: m, n and k, and"),
        (["--gemm", "9x7x20", "--schedule", "[1]"], r"a schedule must be a JSON object such as .*, not '\[1\]'"),
        (["--gemm", "9x7x20", "--schedule", ""], "a schedule must be a JSON object such as .*, not ''"),
        (["--gemm", "9x7x20", "--schedule", '{"m":' + "9" * 5000 + ',"n":1,"k":1}'], r"a schedule must be a JSON object .{,120}\.\.\.$"),
        (
            ["--gemm", "9x7x20", "--schedule", '{"m":' + "9" * 4000 + ',"n":1,"k":1}'],
            "m of a schedule must be .* nearest legal value: 2147483647",
        ),
        (["--gemm", "9x7x20", "--schedule", "[" * 100_000], r"a schedule must be a JSON object .{,120}\.\.\.$"),
        (["--gemm", ""], "--gemm must be MxNxK with three positive integers, such as 64x64x64, not ''"),
        (["--gemm", "9" * 5000 + "x1x1"], "--gemm must be MxNxK"),
        (["--operator", ""], "operator"),
        (["--gemm", "5x0x33"], "N of a GEMM must be a positive integer, not 0; nearest legal value: 1"),
        (["--gemm", "99999999999x99999999999x99"], "GB of memory; allowed: the 4.3 GB that 32-bit addresses reach"),
        (["--gemm", "9x7x20", "--image", "i"], "--image goes with --program only"),
        (["--operator", "gemm:9x7x20", "--save-result", "r"], "--save-result goes with --program only"),
        (["--program", "p", "--schedule", "best"], "--schedule goes with --gemm or --operator only; a saved program runs as it is"),
        (["--program", "p", "--output", "sums"], "--output goes with --gemm or --operator only"),
        (["--program", "p", "--residual"], "--residual goes with --gemm or --operator only"),
        (["--program", "p", "--through", "tvm"], "--through goes with --gemm or --operator only"),
        (["--program", "p", "--no-sensitivity"], "--sensitivity goes with --gemm or --operator only"),
        (["--program", "p", "--sensitivity"], "--sensitivity goes with --gemm or --operator only"),
        (["--program", "p", "--save-program", "q"], "--save-program goes with --gemm or --operator only"),
        (["--program", "p", "--seed", "0"], "--seed goes with --gemm or --operator only"),
        (["--program", ""], "argument --program: must be a path, not ''"),
        (["--gemm", "9x7x20", "--save-program", ""], "argument --save-program: must be a path, not ''"),
        (["--gemm", "9x7x20", "--fidelity", "guess"], "fidelity must be one of model, rtl, both"),
        (["--gemm", "9x7x20", "--program", "p"], "needs one of --gemm MxNxK, --operator OP and --program FILE"),
        (["--program", "/nowhere/p"], "cannot be read"),
        (["--gemm", "9x7x20", "--port-bytes", "0"], "port.bytes"),
        (["--gemm", "9x7x20", "--spad-kib", "4096"], "2 to 65536, so spad_kib from 1 to 512; nearest legal value: 512$"),
        (
            ["--gemm", "9x7x20", "--cols", "256", "--port-bytes", "64"],
            "of B; allowed: 2 to 65536, so spad_kib from 32 to 4096; .* value: 32$",
        ),
        (
            ["--gemm", "9x7x20", "--acc-kib", "4096"],
            "rows of sums; allowed: 3 to 65536, so acc_kib from 1 to 512; nearest legal value: 512$",
        ),
        (["--operator", "nrm:1x4"], r"NRM takes 3 numbers \(batch, m, n\), not 2$"),
        (["--operator", "conv2d:1x4x4x6,8x3x3,g4"], "c_in of C2D must be a multiple of its 4 groups, not 6; nearest legal value: 8$"),
        (
            ["--operator", "conv2d:1x4x4x4,4x9x9"],
            "larger than the padded input.; allowed: a smaller window or dilation, a larger input or pad$",
        ),
        (["--gemm", "9x70x20", "--output", "int8"], "the design has 8; allowed: channel_words of at least 35, or fewer output channels$"),
        (
            ["--operator", "conv2d:1x50x50x4,4x40x40,g4", "--core", "outer-product"],
            r"of one block and one chunk, tiles need \d+ .* by \d+; allowed",
        ),
        (["--gemm", "9x7x20", "--fidelity", "model", "--save-program", "/nowhere/p"], "cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(arguments, reason, capfd):
    assert re.search(reason, refused(capfd, *DESIGN, *arguments))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--minutes", "-1"], "must be a number above 0, at most 1000000, not '-1'; see"),
        (["--minutes", "0"], "must be a number above 0, at most 1000000, not '0'; see"),
        (["--minutes", "nan"], "must be a number above 0, at most 1000000, not 'nan'; see"),
        (["--minutes", "soon"], "must be a number above 0, at most 1000000, not 'soon'; see"),
        (["--minutes", "inf"], "must be a number above 0, at most 1000000, not 'inf'; nearest legal value: 1000000; see"),
        (["--points", "0"], "must be at least 1, not 0; nearest legal value: 1"),
        (["--seed", "-1"], "must be at least 0, not -1; nearest legal value: 0"),
    ],
)
def test_mistakes_of_a_self_test_are_one_sentence(arguments, reason, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["selftest", "accelerator", *arguments])
    assert reason in capfd.readouterr().err


def test_an_operator_through_tvm(capfd):
    code, out, _ = run(capfd, *DESIGN, "--operator", "conv2d:1x4x4x4,4x3x3,p1", "--through", "tvm", "--fidelity", "model", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["matches_reference"]
    assert result["mapping"] == {"through": "tvm", "route": "direct", "tile": [2, 4, 12], "copied": ["a"]}
    assert "through must be one of native, tvm, not 'llvm'" in refused(capfd, *DESIGN, "--gemm", "4x4x4", "--through", "llvm")


@pytest.mark.parametrize("operator", ["conv2d:1x1x2x3,3x1x1,s2", "conv2d:1x4x2x1,1x3x1,s2"])
def test_one_output_pixel_through_tvm(operator, capfd):
    code, out, _ = run(capfd, *DESIGN, "--operator", operator, "--through", "tvm", "--json", "--no-sensitivity")
    assert code == 0
    result = json.loads(out)
    assert result["matches_reference"] is result["events_equal"] is True


def test_an_operator_of_several_convolutions(capfd):
    code, out, _ = run(capfd, *DESIGN, "--operator", "gmm:2x5x6x7", "--fidelity", "model")
    assert code == 0
    assert "2 convolutions; activations in place, weights packed at compile time, output in place" in out
    assert re.search(r"^of [\d,]+ schedules that fit and all 2 convolutions follow none is faster; found in ", out, re.MULTILINE)
    assert re.search(r"^rows +6 +\d+ ", out, re.MULTILINE)


def test_what_doubling_buys(capfd):
    words = ["--gemm", "9x7x20", "--fidelity", "model"]
    data = json.loads(run(capfd, *DESIGN, *words, "--json")[1])
    changes = {change["parameter"]: change for change in data["sensitivity"]}
    assert data["best_cycles"] == data["model_cycles"]
    assert set(changes) == {*data["design_point"]} - {"family"} | {"memory_latency", "memory_write_latency"}
    assert all(change["reason"] if change["cycles"] is None else change["ratio"] for change in changes.values())
    assert changes["port_bytes"]["value"] == 8
    code, out, _ = run(capfd, *DESIGN, *words, "--schedule", '{"m":1,"n":1,"k":1}')
    assert code == 0
    assert re.search(rf"^the best schedule of this design takes {data['best_cycles']} cycles \(-\d+\.\d%\)$", out, re.MULTILINE)
    assert "\nlanes not doubled: lanes of the output-stationary core must be 1, not 2\n" in out
    data = json.loads(run(capfd, *DESIGN, *words, "--json", "--no-sensitivity")[1])
    assert data["sensitivity"] is data["best_cycles"] is None
    assert "doubled" not in run(capfd, *DESIGN, *words, "--no-sensitivity")[1]


def test_what_takes_long_is_named_and_can_be_asked_for(capfd, monkeypatch):
    monkeypatch.setattr(accelerator_sensitivity, "QUICK_WORK", 1)
    words = [*DESIGN, "--gemm", "9x7x20", "--fidelity", "model"]
    out = run(capfd, *words)[1]
    assert (
        "\n--sensitivity also says what doubling rows, cols, spad_kib, acc_kib, port_bytes, split, queue_depth, memory_latency would" in out
    )
    assert "rows, cols, spad_kib, acc_kib, port_bytes, split, queue_depth, memory_latency not doubled: the search takes long" in out
    assert "takes long" not in run(capfd, *words, "--sensitivity")[1]
    own = [*words, "--schedule", '{"m":1,"n":1,"k":1}']
    assert (
        "\nwhat doubling parameters would buy is not known: the search takes long; --sensitivity does it all the same\n"
        in run(capfd, *own)[1]
    )
    monkeypatch.setattr(accelerator_bounded, "MOST_WORK", 1)
    assert "is not known: the search scores more than 1 steps of schedules; allowed" in run(capfd, *own, "--sensitivity")[1]


def test_emit_needs_a_folder(capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["emit", "accelerator", *DESIGN, "-o", ""])
    assert "argument -o/--out: must be a path, not ''" in capfd.readouterr().err
