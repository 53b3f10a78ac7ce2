"""A stand-in for a simulated design, by the calling convention alone: plain C, compiled in a temporary folder."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

from celosia.intrinsics import Contraction, Instruction, Machine, StreamLayout, StreamTiming
from celosia.intrinsics.abi import flush_symbol, push_symbol, stride_axes


def c_type(dtype) -> str:
    return f"{'' if dtype.signed else 'u'}int{dtype.container_width}_t"


def source(contraction: Contraction, design_hash: str, *, lazy: bool = False, fault: str | None = None) -> str:
    """C of ``push`` and ``flush``; a lazy design updates C only in ``flush``, so whoever reads C before it reads nonsense.

    ``fault``: "index" leaves out a stride of B, "flush" makes ``flush`` forget the last call of a lazy design.
    """
    strides = [f"s_{operand}_{axis}" for operand, axis in stride_axes(contraction)]
    index = {o: " + ".join([f"{x}*(int64_t)s_{o}_{x}" for x in contraction.operand_axes(o)]) or "0" for o in "abc"}
    if fault == "index":
        index["b"] = " + ".join([f"{x}*(int64_t)s_b_{x}" for x in contraction.b_axes[:-1]]) or "0"
    loops = "".join(f"for (int {axis} = 0; {axis} < {extent}; {axis}++) " for axis, extent in contraction.extents.items())
    types = {operand: c_type(contraction.dtype(operand)) for operand in "abc"}
    arguments = ", ".join(["void *a", "void *b", "void *c", *(f"int32_t {name}" for name in strides)])
    names = ", ".join(["a", "b", "c", *strides])
    fields = "; ".join(["void *a, *b, *c", *(f"int32_t {name}" for name in strides)])
    last = " - 1" if fault == "flush" else ""
    unpack = "".join(f"int32_t {name} = q->{name}; " for name in strides)
    return f"""
#include <stdint.h>
#include <stdlib.h>
static int64_t pushes, flushes;
static void tile({arguments}) {{
  {loops} (({types["c"]} *)c)[{index["c"]}] = (uint32_t)(({types["c"]} *)c)[{index["c"]}]
    + (uint32_t)((int64_t)(({types["a"]} *)a)[{index["a"]}] * (({types["b"]} *)b)[{index["b"]}]);
}}
typedef struct {{ {fields}; }} call;
static call *queue; static int64_t queued, room;
int32_t {push_symbol(design_hash)}({arguments}) {{
  pushes++;
  if (!{int(lazy)}) {{ tile({names}); return 0; }}
  if (queued == room) queue = realloc(queue, (room = room * 2 + 16) * sizeof(call));
  call entry = {{ {names} }}; queue[queued++] = entry; return 0;
}}
int32_t {flush_symbol(design_hash)}(void) {{
  flushes++;
  for (int64_t i = 0; i < queued{last}; i++) {{ call *q = queue + i; void *a = q->a, *b = q->b, *c = q->c; {unpack} tile({names}); }}
  queued = 0; return 0;
}}
int64_t fake_{design_hash}_pushes(void) {{ int64_t n = pushes; pushes = 0; return n; }}
int64_t fake_{design_hash}_flushes(void) {{ int64_t n = flushes; flushes = 0; return n; }}
"""


class FakeDesign:
    """A machine whose library is loaded for TVM to find."""

    def __init__(self, folder: Path, contraction: Contraction, *, lazy: bool = False, fault: str | None = None) -> None:
        key = f"{contraction!r}{lazy}{fault}"
        self.design_hash = hashlib.sha256(key.encode()).hexdigest()[:12]
        instruction = Instruction(name="fake", contraction=contraction)
        self.machine = Machine(
            name="fake",
            design_hash=self.design_hash,
            instruction=instruction,
            streams=(StreamLayout(operand="a", port="i_a", beat_axes="", lane_axes=contraction.a_axes),),
            timing=StreamTiming(),
        )
        c_file, library = folder / f"{self.design_hash}.c", folder / f"{self.design_hash}.so"
        c_file.write_text(source(contraction, self.design_hash, lazy=lazy, fault=fault))
        compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
        assert compiler is not None
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(c_file)], check=True)
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)

    def counts(self) -> tuple[int, int]:
        """(pushes, flushes) since the last question."""
        return tuple(getattr(self._library, f"fake_{self.design_hash}_{name}")() for name in ("pushes", "flushes"))
