"""Parts that a block holds many times, elaborated once: Amaranth makes a module of its own, and text, for every instance."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Elaboratable, Instance, Module, ResetSignal, Value, _nir
from amaranth.lib import wiring
from amaranth.lib.wiring import In

_CLOCKING = re.compile(r"^ +wire width 1 input \d+ +\\(clk|rst)$", re.MULTILINE)
_TOP = re.compile(r"^attribute \\top 1\n", re.MULTILINE)


_converting = threading.Lock()


@contextmanager
def _loops_unchecked() -> Iterator[None]:
    """Amaranth's search for combinational loops takes a fifth of its time and ends at instances; tests have Verilator look for them."""
    with _converting:
        check = _nir.Netlist.check_comb_cycles
        _nir.Netlist.check_comb_cycles = lambda netlist: None
        try:
            yield
        finally:
            _nir.Netlist.check_comb_cycles = check


class SharedPart(wiring.Component):  # type: ignore[misc]
    """A part whose instances are all alike if their `key` is; members are plain signals.

    To a simulator it is an ordinary submodule, to `rtlil_with_parts` an instance of a shared module.
    """

    @property
    def key(self) -> tuple[object, ...]:
        """What tells one part of this class from another."""
        raise NotImplementedError

    def body(self) -> Module:
        """The logic."""
        raise NotImplementedError

    def elaborate(self, platform: Any) -> Elaboratable:
        return platform.instance(self) if isinstance(platform, _Parts) else self.body()


class _Body(Elaboratable):  # type: ignore[misc]
    def __init__(self, part: SharedPart) -> None:
        self.part, self.signature = part, part.signature
        for name in part.signature.members:
            setattr(self, name, getattr(part, name))

    def elaborate(self, platform: Any) -> Module:
        return self.part.body()


class _Parts:
    """The "platform" under which equal parts are instances of one module."""

    def __init__(self) -> None:
        self.modules: dict[tuple[object, ...], tuple[str, str]] = {}  # name and RTLIL

    def instance(self, part: SharedPart) -> Instance:
        key = (type(part), *part.key)
        if key not in self.modules:
            name = f"part_{len(self.modules)}"
            self.modules[key] = (name, "")  # taken, for there may be parts inside
            text = rtlil.convert(_Body(part), name=name, platform=self, emit_src=False)
            self.modules[key] = (name, _TOP.sub("", text))
        name, text = self.modules[key]
        ports: dict[str, Any] = {}
        for member, description in part.signature.members.items():
            signal = Value.cast(getattr(part, member))
            signal.name = ""  # outside it is one of many wires of that name
            ports[f"{'i' if description.flow == In else 'o'}_{member}"] = signal
        for clocking in _CLOCKING.findall(text):
            ports[f"i_{clocking}"] = ClockSignal() if clocking == "clk" else ResetSignal()
        return Instance(name, **ports)


def rtlil_with_parts(component: Any, *, name: str, ports: dict[str, Any] | None = None) -> str:
    """RTLIL of a component, every `SharedPart` in it once; ``ports`` as `amaranth.back.rtlil.convert` takes them."""
    parts = _Parts()
    with _loops_unchecked():
        text: str = rtlil.convert(component, name=name, platform=parts, ports=ports, emit_src=False)
    return text + "".join(module for _, module in parts.modules.values())
