"""A hand-written dot-product block, sound or broken in one named way, that builds in a moment."""

from __future__ import annotations

from dataclasses import dataclass

from celosia.intrinsics import Contraction, Instruction, Machine, StreamLayout, StreamTiming

_MUTATIONS = {
    "signedness": ("$signed(i_a_data[7:0])", "$signed({1'b0, i_a_data[7:0]})"),
    "dropped-lane": ("+ $signed(i_a_data[15:8]) * $signed(i_b_data[31:24])", ""),
    "double-firing": ("o_c_valid <= fire;", "begin o_c_valid <= fire | again; again <= fire; end"),
    "no-result": ("o_c_valid <= fire;", "o_c_valid <= 0;"),
    "deaf-b": ("assign i_b_ready = go & i_a_valid;", "assign i_b_ready = 0;"),
    "lost-beat": ("assign i_a_ready = go & i_b_valid;", "assign i_a_ready = i_b_valid;"),
    "syntax": ("endmodule", "endmodul"),
}

_VERILOG = """
module toy(input clk, input rst, input [15:0] i_a_data, input i_a_last, input i_a_valid, output i_a_ready,
           input [31:0] i_b_data, input i_b_valid, output i_b_ready,
           output reg [63:0] o_c_data, output o_c_last, output reg o_c_valid, input o_c_ready);
  wire go = ~o_c_valid | o_c_ready;
  wire fire = go & i_a_valid & i_b_valid;
  reg again;
  assign o_c_last = 1;
  assign i_a_ready = go & i_b_valid;
  assign i_b_ready = go & i_a_valid;
  wire signed [31:0] c0 = $signed(i_a_data[7:0]) * $signed(i_b_data[7:0]) + $signed(i_a_data[15:8]) * $signed(i_b_data[15:8]);
  wire signed [31:0] c1 = $signed(i_a_data[7:0]) * $signed(i_b_data[23:16]) + $signed(i_a_data[15:8]) * $signed(i_b_data[31:24]);
  always @(posedge clk)
    if (rst) begin o_c_valid <= 0; again <= 0; end
    else if (go) begin
      o_c_valid <= fire;
      if (fire) o_c_data <= {c1, c0};
    end
endmodule
"""


@dataclass(frozen=True)
class ToyPort:
    name: str
    width: int
    direction: str


@dataclass(frozen=True)
class ToyDesign:
    """What `celosia.sim` asks of an RtlDesign."""

    verilog: str
    top: str
    ports: tuple[ToyPort, ...]
    machine: Machine

    @property
    def design_hash(self) -> str:
        return self.machine.design_hash


def toy(mutation: str | None = None, design_hash: str = "0123456789ab") -> ToyDesign:
    """C[n] += sum over k of A[k] * B[k, n], with n = k = 2, one tile call per beat, no resident operand."""
    contraction = Contraction("k,kn->n", {"k": 2, "n": 2}, "int8", "int8", "int32")
    streams = (
        StreamLayout(operand="a", port="i_a", beat_axes="", lane_axes="k"),
        StreamLayout(operand="b", port="i_b", beat_axes="", lane_axes="nk"),
        StreamLayout(operand="c", port="o_c", beat_axes="", lane_axes="n"),
    )
    machine = Machine(
        name="toy",
        design_hash=design_hash,
        instruction=Instruction(name="toy", contraction=contraction),
        streams=streams,
        timing=StreamTiming(),
    )
    verilog = _VERILOG
    if mutation is not None:
        old, new = _MUTATIONS[mutation]
        assert old in verilog
        verilog = verilog.replace(old, new)
    return ToyDesign(verilog, "toy", _ports(), machine)


def _ports() -> tuple[ToyPort, ...]:
    ports = [ToyPort("clk", 1, "in"), ToyPort("rst", 1, "in")]
    for stream, width, forward in (("i_a", 16, "in"), ("i_b", 32, "in"), ("o_c", 64, "out")):
        backward = "out" if forward == "in" else "in"
        ports += [
            ToyPort(f"{stream}_data", width, forward),
            ToyPort(f"{stream}_valid", 1, forward),
            ToyPort(f"{stream}_ready", 1, backward),
        ]
        if stream != "i_b":
            ports.append(ToyPort(f"{stream}_last", 1, forward))
    return tuple(ports)
