"""Transistors and flip-flops of one RTLIL file, counted by Yosys; run as a script of its own, since Yosys talks on stdout.

``python area_yosys.py IN.il OUT.json``: ``stat -json`` of the netlist in NAND, NOR and NOT gates. Memories become cells
that are not counted; what is around them is.
"""

import os
import sys

SYNTH = "synth -flatten -noshare -noabc -top top"  # SAT-based sharing takes minutes on adder trees and finds nothing to share
SYNTH_AROUND_MEMORIES = (
    f"{SYNTH} -run begin:fine",
    'setattr -set submod "memory" t:$mem_v2',
    "submod",
    "blackbox top_memory",
    f"{SYNTH} -run fine:check",
)
RECIPE = (
    "dfflegalize -cell $_DFF_P_ 01",  # enables and resets become gates, so that stat counts every flip-flop
    "simplemap",
    "abc -g cmos2 -script +strash;dc2;map,-a",  # for area; abc's own script aims at delay and takes 40 times as long
    "opt_clean",
)


def main() -> None:
    """Read the RTLIL, map it, write the statistics."""
    source, target = sys.argv[1:3]
    from pyosys import libyosys

    design = libyosys.Design()
    libyosys.run_pass(f"read_rtlil {source}", design)
    with open(source, encoding="utf-8") as file:
        holds_memory = any(line.startswith("  memory ") for line in file)
    for step in (*(SYNTH_AROUND_MEMORIES if holds_memory else (SYNTH,)), *RECIPE):
        libyosys.run_pass(step, design)
    libyosys.run_pass(f"tee -q -o {target} stat -json -tech cmos -top top", design)
    sys.stdout.flush()
    os._exit(0)  # Yosys's own tear-down is slow and has nothing left to do


if __name__ == "__main__":
    main()
