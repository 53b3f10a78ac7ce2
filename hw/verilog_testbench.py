"""A self-checking testbench in plain Verilog, with stimulus and expected results inside."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..intrinsics import DType
from ..intrinsics.numerics import Array
from .design_point import DesignPoint
from .stimulus import Stimulus, pack_beat, random_stimulus
from .verilog import module_name

_CALLS_PER_PASS = (1, 2, 1, 1, 3)
_CYCLES_PER_BEAT = 64

_TEMPLATE = """\
// celosia testbench of {top}
// hash {hash}
// Prints PASS or FAIL and ends. Every stream pauses at random (lfsr); random tiles, seed {seed}.
/* verilator lint_off WIDTH */
/* verilator lint_off PROCASSINIT */
module {top}_tb;
  localparam A_BEATS = {a_beats}, B_BEATS = {b_beats}, C_BEATS = {c_beats}, MAX_CYCLES = {max_cycles};
  reg clk = 1'b0, rst = 1'b1;
  reg i_a_valid = 1'b0, i_b_valid = 1'b0, o_c_ready = 1'b0;
  wire i_a_last, i_a_ready, i_b_ready, o_c_last, o_c_valid;
  wire [{a_msb}:0] i_a_data;
  wire [{b_msb}:0] i_b_data;
  wire [{c_msb}:0] o_c_data;

  // last, data
  reg [{a_msb} + 1:0] a_beats [0:A_BEATS];
  reg [{b_msb}:0] b_beats [0:B_BEATS];
  reg [{c_msb} + 1:0] c_beats [0:C_BEATS];
  integer a_index = 0, b_index = 0, c_index = 0, cycle = 0, errors = 0;
  reg [31:0] lfsr = 32'h1;
  reg a_waits = 1'b0, b_waits = 1'b0, c_waits = 1'b0;
  reg [{c_msb} + 1:0] c_held = 0;

  {top} dut (
    .clk(clk), .rst(rst),
    .i_a_data(i_a_data), .i_a_last(i_a_last), .i_a_valid(i_a_valid), .i_a_ready(i_a_ready),
    .i_b_data(i_b_data), .i_b_valid(i_b_valid), .i_b_ready(i_b_ready),
    .o_c_data(o_c_data), .o_c_last(o_c_last), .o_c_valid(o_c_valid), .o_c_ready(o_c_ready)
  );

  assign {{i_a_last, i_a_data}} = a_beats[a_index];
  assign i_b_data = b_beats[b_index];

  initial begin
{memories}
    repeat (3) @(negedge clk);
    rst = 1'b0;
  end

  always #5 clk = ~clk;

  // A beat once offered stays offered until it is taken.
  always @(negedge clk) begin
    lfsr <= {{lfsr[30:0], lfsr[31] ^ lfsr[21] ^ lfsr[1] ^ lfsr[0]}};
    i_a_valid <= !rst && a_index < A_BEATS && (a_waits || lfsr[3]);
    i_b_valid <= !rst && b_index < B_BEATS && (b_waits || lfsr[11]);
    o_c_ready <= !rst && lfsr[23];
  end

  always @(posedge clk) if (!rst) begin
    cycle <= cycle + 1;
    a_waits <= i_a_valid && !i_a_ready;
    b_waits <= i_b_valid && !i_b_ready;
    c_waits <= o_c_valid && !o_c_ready;
    c_held <= {{o_c_last, o_c_data}};
    if (i_a_valid && i_a_ready) a_index <= a_index + 1;
    if (i_b_valid && i_b_ready) b_index <= b_index + 1;
    if (c_waits && (!o_c_valid || c_held !== {{o_c_last, o_c_data}})) begin
      $display("cycle %0d: result changed while it waited", cycle);
      errors <= errors + 1;
    end else if (o_c_valid && o_c_ready) begin
      c_index <= c_index + 1;
      if (c_index >= C_BEATS || c_beats[c_index] !== {{o_c_last, o_c_data}}) begin
        $display("beat %0d: %h, expected %h (last, data)", c_index, {{o_c_last, o_c_data}}, c_beats[c_index]);
        errors <= errors + 1;
      end
    end
    if (errors != 0 || cycle == MAX_CYCLES) begin
      $display("FAIL: %0d of %0d beats after %0d cycles", c_index, C_BEATS, cycle);
      $finish;
    end else if (c_index == C_BEATS) begin
      $display("PASS: %0d beats", C_BEATS);
      $finish;
    end
  end
endmodule
"""


def verilog_testbench(point: DesignPoint, *, prefix: str | None = None, seed: int = 0) -> str:
    """Verilog source of module ``<name>_tb``.

    Parameters
    ----------
    point : DesignPoint
    prefix : str or None
        As in `emit_rtl`.
    seed : int
        Of the random tiles.
    """
    stimulus = random_stimulus(point, calls_per_pass=_calls(point), rng=np.random.default_rng(seed))
    beats = {"a": len(stimulus.a), "b": len(stimulus.b), "c": len(stimulus.c)}
    dtypes = {operand: point.instruction.contraction.dtype(operand) for operand in "abc"}
    return _TEMPLATE.format(
        top=module_name(point, prefix=prefix),
        hash=point.hash,
        seed=seed,
        max_cycles=_CYCLES_PER_BEAT * sum(beats.values()) + 1000,
        memories="\n".join(f"    {line}" for line in _memories(stimulus, dtypes)),
        **{f"{operand}_beats": count for operand, count in beats.items()},
        **{f"{operand}_msb": dtypes[operand].width * point.parameters.lanes_of(operand) - 1 for operand in "abc"},
    )


def _calls(point: DesignPoint) -> tuple[int, ...]:
    """Calls per pass, within what the accumulator provably holds."""
    limit = point.machine.max_calls_per_pass
    return _CALLS_PER_PASS if limit is None else tuple(min(calls, limit) for calls in _CALLS_PER_PASS)


def _memories(stimulus: Stimulus, dtypes: dict[str, DType]) -> Iterable[str]:
    """Assignments to the beat memories, and zero behind the end of each."""
    for name, rows, last in (("a", stimulus.a, stimulus.a_last), ("b", stimulus.b, None), ("c", stimulus.c, stimulus.c_last)):
        width = dtypes[name].width * rows.shape[1]
        total = width + (last is not None)
        for index, bits in enumerate([*_packed(rows, last, dtypes[name], width), 0]):
            yield f"{name}_beats[{index}] = {total}'h{bits:x};"


def _packed(rows: Array, last: Array | None, dtype: DType, width: int) -> list[int]:
    marks = np.zeros(len(rows), bool) if last is None else last
    return [pack_beat(row, dtype) | int(mark) << width for row, mark in zip(rows, marks, strict=True)]
