"""Parts that a block holds many times, elaborated once: Amaranth makes a module of its own, and text, for every instance."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
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
    """The "platform" under which equal parts are instances of one module.

    Parameters
    ----------
    elsewhere : mapping from type to str
        Parts whose modules, of these names and with both ``clk`` and ``rst``, are made by others.
    outermost : object
        The design itself, which may be a part.
    """

    def __init__(self, elsewhere: Mapping[type[SharedPart], str], outermost: object) -> None:
        self.modules: dict[tuple[object, ...], tuple[str, str]] = {}  # name and RTLIL
        self.elsewhere, self.outermost = elsewhere, outermost

    def instance(self, part: SharedPart) -> Elaboratable:
        if part is self.outermost:
            return part.body()
        key = (type(part), *part.key)
        if type(part) in self.elsewhere:
            name = self.elsewhere[type(part)]
            self.modules[key] = (name, _black_box(part, name))
        if key not in self.modules:
            name = f"part_{len(self.modules)}"
            self.modules[key] = (name, "")  # taken, for there may be parts inside
            text = rtlil.convert(_Body(part), name=name, platform=self, emit_src=False)
            self.modules[key] = (name, _TOP.sub("", text))
        name, text = self.modules[key]
        return _instance(part, name, _CLOCKING.findall(text))


def _instance(part: SharedPart, name: str, clocking: Iterable[str]) -> Instance:
    ports: dict[str, Any] = {}
    for member, description in part.signature.members.items():
        signal = Value.cast(getattr(part, member))
        signal.name = ""  # outside it is one of many wires of that name
        ports[f"{'i' if description.flow == In else 'o'}_{member}"] = signal
    for port in clocking:
        ports[f"i_{port}"] = ClockSignal() if port == "clk" else ResetSignal()
    return Instance(name, **ports)


def _black_box(part: SharedPart, name: str) -> str:
    """A module that has ports only."""
    ports = [("input", "clk", 1), ("input", "rst", 1)]
    for member, description in part.signature.members.items():
        ports.append(("input" if description.flow == In else "output", member, len(Value.cast(getattr(part, member)))))
    wires = [f"  wire width {width} {direction} {place} \\{port}\n" for place, (direction, port, width) in enumerate(ports)]
    return "".join([f"attribute \\blackbox 1\nmodule \\{name}\n", *wires, "end\n"])


def rtlil_with_parts(
    component: Any, *, name: str, ports: dict[str, Any] | None = None, elsewhere: Mapping[type[SharedPart], str] | None = None
) -> str:
    """RTLIL of a component, every `SharedPart` in it once.

    Parameters
    ----------
    component : Elaboratable
    name : str
    ports : dict or None
        As `amaranth.back.rtlil.convert` takes them.
    elsewhere : mapping from type to str
        Parts that become instances of modules of these names without being made here.
    """
    parts = _Parts(elsewhere or {}, component)
    with _loops_unchecked():
        text: str = rtlil.convert(component, name=name, platform=parts, ports=ports, emit_src=False)
    return text + "".join(module for _, module in parts.modules.values())


def part_rtlil(part: SharedPart, *, name: str) -> str:
    """RTLIL of a part as a module of its own, for a design in which it is ``elsewhere``.

    Raises
    ------
    ValueError
        If it is without clock or reset.
    """
    text = rtlil_with_parts(part, name=name)
    if missing := {"clk", "rst"} - set(_CLOCKING.findall(text.partition("\nend\n")[0])):
        raise ValueError(f"module {name} has no {' and no '.join(sorted(missing))}")
    return text
