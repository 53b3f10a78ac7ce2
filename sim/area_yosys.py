"""Transistors and flip-flops of one RTLIL file, counted by Yosys; run as a script of its own, since Yosys talks on stdout.

``python area_yosys.py IN.il OUT.json``: ``stat -json`` of the netlist in NAND, NOR and NOT gates.
"""

import os
import sys

RECIPE = (
    "synth -flatten -noshare -noabc -top top",  # SAT-based sharing takes minutes on adder trees and finds nothing to share
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
    for step in RECIPE:
        libyosys.run_pass(step, design)
    libyosys.run_pass(f"tee -q -o {target} stat -json -tech cmos -top top", design)
    sys.stdout.flush()
    os._exit(0)  # Yosys's own tear-down is slow and has nothing left to do


if __name__ == "__main__":
    main()
