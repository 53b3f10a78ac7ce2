"""A model that takes a clock cycle with one evaluation, not with one per clock edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hw.verilog import Port

TOP, _INSIDE = "block", "d"
"""Modules; the names are short because all names in the translated model begin with them."""
_RISING, _BOTH = "@(posedge clk)", "@(posedge clk or negedge clk)"


def stepped(verilog: str, top: str, ports: Sequence[Port]) -> str:
    """The same design with registers that work at both clock edges, inside a module `TOP` whose outputs are sampled.

    Each change of ``clk`` is then a whole cycle: the outputs show what the design answered in that cycle to the inputs of that
    cycle, and the registers have moved on. So nothing needs to be evaluated between the edges, which an output that depends on an input
    of the same cycle would else ask for.

    Parameters
    ----------
    verilog : str
        Modules as `hw.yosys` and `reroll` print them, with one clock ``clk``.
    top : str
        Name of the outermost one.
    ports : sequence of Port
    """
    outputs = [port for port in ports if port.direction == "out"]
    lines = [f"module {TOP}(", ",\n".join(f"  {_declared(port)}" for port in ports), ");"]
    lines += [f"  wire {_range(port)}now_{port.name};" for port in outputs]
    lines += [f"  {_INSIDE} {_INSIDE} (", ",\n".join(f"    .{port.name}({_inside(port)})" for port in ports), "  );"]
    lines += [f"  always {_BOTH} begin", *(f"    {port.name} <= now_{port.name};" for port in outputs), "  end", "endmodule", ""]
    inside = verilog.replace(_RISING, _BOTH).replace(f"module {top}(", f"module {_INSIDE}(", 1)
    return inside + "\n" + "\n".join(lines)


def _declared(port: Port) -> str:
    return f"input {_range(port)}{port.name}" if port.direction == "in" else f"output reg {_range(port)}{port.name}"


def _range(port: Port) -> str:
    return f"[{port.width - 1}:0] " if port.width > 1 else ""


def _inside(port: Port) -> str:
    return port.name if port.direction == "in" else f"now_{port.name}"
