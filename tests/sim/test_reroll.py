import dataclasses
import functools
import re

import numpy as np
import pytest

from celosia.hw import DesignPoint
from celosia.hw.accelerator.emit import emit_accelerator
from celosia.hw.verilog import emit_rtl
from celosia.intrinsics.numerics import random_operand
from celosia.intrinsics.reference import gemm_reference
from celosia.sim import Model, build
from celosia.sim.reroll import reroll

GRID = """module grid(clk, x, y);
  input clk;
  input [7:0] x;
  output [7:0] y;
{declarations}
  assign y = \\c.s_2_3 ;
{statements}
endmodule
"""


def grid(rows=6, cols=8, operator=lambda i, j: "+", condition=""):
    """Elements that add x to their left neighbour."""
    declarations, statements = [], []
    for i in range(rows):
        for j in range(cols):
            declarations += [f"  reg [7:0] \\c.s_{i}_{j}  = 8'h00;", f"  wire [7:0] _{i * cols + j}_;"]
            left = f"\\c.s_{i}_{j - 1} " if j else "x"
            statements.append(f"  assign _{i * cols + j}_ = {left} {operator(i, j)} x;")
            statements.append(f"  always @(posedge clk)\n    {condition}\\c.s_{i}_{j}  <= _{i * cols + j}_;")
    return GRID.format(declarations="\n".join(declarations), statements="\n".join(statements))


def loops(text):
    return [(int(rows), int(columns)) for rows, columns in re.findall(r"i < (\d+);.*?j < (\d+);", text, re.DOTALL)]


def test_equal_elements_become_one_loop_and_what_others_read_is_copied():
    text = reroll(grid())
    assert sorted(loops(text)) == [(6, 1), (6, 7), (6, 7)]  # the left column, and the rest in two steps: it reads itself
    assert r".out_0(\c.s_2_3 )" in text
    assert "wire [7:0] \\c.s_2_3 ;" in text
    assert "s_1_1" not in text
    assert "_15_" not in text


def test_an_element_that_differs_keeps_its_own_text():
    text = reroll(grid(operator=lambda i, j: "-" if (i, j) == (1, 2) else "+"))
    assert text.count("- in_0") == 1
    assert (1, 1) in loops(text)


def test_a_condition_guards_the_loop():
    assert reroll(grid(condition="if (x) ")).count("if (in_0)") == 3
    assert reroll(grid()).count("if (") == 0


def test_an_irregular_design_stays_as_it_is():
    design = grid(rows=1, cols=4)
    assert reroll(design) == design


@functools.cache
def array(dataflow):
    return emit_rtl(DesignPoint.create("systolic", rows=8, cols=8, dataflow=dataflow, acc="int20", overflow="saturate"))


def runs_right(design):
    rng = np.random.default_rng(0)
    contraction = design.machine.instruction.contraction
    a, b = random_operand(rng, (19, 64), contraction.a), random_operand(rng, (64, 16), contraction.b)
    with Model(build(design)) as model:
        return np.array_equal(model.gemm(a, b), gemm_reference(design.machine, a, b))


@pytest.mark.parametrize("dataflow", ["output-stationary", "weight-stationary"])
def test_a_rolled_array_computes_the_same(dataflow):
    design = array(dataflow)
    rolled = reroll(design.verilog)
    assert len(rolled) < len(design.verilog) * 0.8
    assert runs_right(dataclasses.replace(design, verilog=rolled))


def test_a_wrong_element_stays_wrong_in_a_rolled_array():
    design = array("output-stationary")
    product = "$signed(pe_5_6_a) * $signed(pe_5_6_b)"
    broken = design.verilog.replace(product, product.replace("*", "+"))
    assert broken != design.verilog
    assert not runs_right(dataclasses.replace(design, verilog=reroll(broken)))


@pytest.mark.parametrize("core", ["output-stationary", "weight-stationary", "outer-product"])
def test_accelerators_are_simulated_as_loops(core):
    verilog = emit_accelerator(DesignPoint.create("accelerator", core=core, rows=8, cols=8, spad_kib=2, acc_kib=8, channel_words=4)).verilog
    assert "module rolled" in reroll(verilog)


def products(source):
    """Elements that multiply a signed number, taken over from one of shape ``source``, by another one."""
    shapes = {"u": source, "v": "signed [7:0]", "w": "signed [7:0]", "p": "signed [15:0]"}
    declarations, statements = [], []
    for place in (f"{i}_{j}" for i in range(4) for j in range(4)):
        updates = {"u": "x", "w": "x", "v": f"u_{place} ", "p": f"$signed(v_{place} ) * $signed(w_{place} )"}
        declarations += [f"  reg {shape} {name}_{place} ;" for name, shape in shapes.items()]
        statements += [f"  always @(posedge clk)\n    {name}_{place}  <= {value};" for name, value in updates.items()]
    grid = GRID.replace("\\c.s_2_3", "p_2_3").format(declarations="\n".join(declarations), statements="\n".join(statements))
    return reroll(grid)


def test_signed_factors_are_kept_in_whole_words():
    text = products("signed [7:0]")
    assert all(rf"reg signed [31:0] \{name} " in text for name in "uvw")
    assert r"\v [i][j] = \u [i][j]" in text


@pytest.mark.parametrize("source", ["[7:0]", "signed [11:0]"])
def test_what_has_another_shape_is_brought_into_the_own_one_first(source):
    """An unsigned number that becomes a signed one would else lose its sign, and a wider one would not be cut."""
    text = products(source)
    assert r"reg signed [31:0] \v " in text
    assert re.search(r"(loop_\d_narrow) = \\u \[i\]\[j\];\s+\\v \[i\]\[j\] = \1;", text)
    assert re.search(r"reg signed \[7:0\] loop_\d_narrow", text)
