"""What runs in a Yosys process; a file of its own, so that starting it does not load Celosia.

The first line that it reads is a job, in JSON: the module search path, and if it shall make its own input, the function that returns
RTLIL (module, name, arguments). The second one is the folder of the script ``run.ys``; an own input becomes ``in.il`` there.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    gc.disable()  # it makes much that lives to its end, which is near
    job = json.loads(sys.stdin.readline())
    sys.path[:] = job["path"]  # not the folder of this file, whose names would hide others
    make = job["make"]
    text = getattr(importlib.import_module(make[0]), make[1])(*make[2]) if make else None
    libyosys = importlib.import_module("pyosys.libyosys")
    os.chdir(sys.stdin.readline()[:-1])
    if text is not None:
        Path("in.il").write_text(text, encoding="utf-8")
    libyosys.Design().run_pass("script run.ys")


if __name__ == "__main__":
    main()
