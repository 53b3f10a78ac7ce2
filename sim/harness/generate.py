"""Constexpr tables of one block for the C++ harness, and PyVerilator's wrapper around its model."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from ...intrinsics import Contraction, Machine, Overflow, ParameterError, StreamLayout, ToolNotFoundError
from ...intrinsics.abi import flush_symbol, push_symbol, stride_axes

HARNESS_FILES = tuple(Path(__file__).with_name(name) for name in ("engine.h", "tiles.h", "entries.cpp"))

_IDENTIFIER = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*")


class Port(Protocol):
    """A port of the top module."""

    @property
    def name(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def direction(self) -> str: ...


def identifier(name: str) -> str:
    """``name`` if it is safe as a name in Verilog and C++ alike, else `ParameterError`."""
    if not _IDENTIFIER.fullmatch(name):
        raise ParameterError(
            f"a name that reaches C++ must be letters, digits and single underscores, starting with a letter, not {name!r}"
        )
    return name


def is_input(port: Port) -> bool:
    """Whether the simulation drives ``port``."""
    return str(getattr(port.direction, "value", port.direction)).lower().startswith("i")


def storage_bytes(width: int) -> int:
    """Bytes of the C++ object that Verilator keeps a port of ``width`` bits in."""
    return next((size for size in (1, 2, 4, 8) if width <= 8 * size), (width + 31) // 32 * 4)


def record_layouts(ports: Iterable[Port]) -> dict[str, Any]:
    """Fields (name, width, offset, bytes) of the packed records of inputs and outputs; the clock is not a field."""
    layouts: dict[str, Any] = {}
    for kind, wanted in (("inputs", True), ("outputs", False)):
        fields, offset = [], 0
        for port in ports:
            if is_input(port) is not wanted or port.name == "clk":
                continue
            size = storage_bytes(port.width)
            align = min(size, 8) if size in (1, 2, 4, 8) else 4
            offset = -(-offset // align) * align
            fields.append([identifier(port.name), port.width, offset, size])
            offset += size
        layouts[kind] = {"fields": fields, "bytes": max(-(-offset // 8) * 8, 8)}
    return layouts


CLASS = "block"
"""Name of every model's C++ class, after a V: the module's own name need not be a C++ name."""


def wrapper(ports: Sequence[Port], record: dict[str, Any]) -> str:
    """PyVerilator's own C++ wrapper, with ``record`` as the data that the library carries about itself."""
    pairs = {wanted: [(identifier(port.name), port.width) for port in ports if is_input(port) is wanted] for wanted in (True, False)}
    literal = json.dumps(json.dumps(record, sort_keys=True))
    return _template()(CLASS, pairs[True], pairs[False], [], literal)


@functools.lru_cache(maxsize=1)
def _template() -> Callable[..., str]:
    # by file, because importing the package runs its __init__, which needs Tcl
    package = importlib.util.find_spec("pyverilator")
    where = (package.submodule_search_locations or []) if package else []
    for folder in where:
        spec = importlib.util.spec_from_file_location("celosia_verilatorcpp", Path(folder) / "verilatorcpp.py")
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast("Callable[..., str]", module.template_cpp)
    raise ToolNotFoundError('the Python package pyverilator is not installed; pip install "pyverilator==0.7.0"')


def exports(ports: Iterable[Port], machine: Machine) -> str:
    """Linker version script: only what Python and compiled operators call is visible."""
    # exact: some linkers refuse a name that does not exist
    accessors = [f"get_{port.name};" + (f" set_{port.name};" if is_input(port) else "") for port in ports]
    fixed = (
        "construct; eval; destruct; *_vcd_trace; add_to_vcd_trace; get_finished; set_finished; set_vl_finish_callback; set_command_args;"
    )
    own = f"celosia_*; {push_symbol(machine.design_hash)}; {flush_symbol(machine.design_hash)};"
    return "{ global: _pyverilator_*; " + fixed + " " + own + " " + " ".join(accessors) + " local: *; };\n"


def design_header(ports: Sequence[Port], machine: Machine) -> str:
    """``celosia_design.h``: types, constants and port access of one block."""
    contraction = machine.instruction.contraction
    widths = {port.name: port.width for port in ports}
    _check_ports(machine, widths)
    strides = stride_axes(contraction)
    first = {operand: sum(1 for owner, _ in strides if owner < operand) for operand in "bc"}
    names = [f"stride_{operand}_{axis}" for operand, axis in strides]
    acc = contraction.acc
    resident = {None: "None", "acc": "Acc", "b": "B"}[machine.instruction.resident]
    streams = "\n".join(_stream(layout, contraction, widths) for layout in machine.streams)
    layouts = record_layouts(ports)
    return f"""// Made for design {identifier("h" + machine.design_hash)[1:]}.
#pragma once
#define CELOSIA_PUSH {identifier(push_symbol(machine.design_hash))}
#define CELOSIA_FLUSH {identifier(flush_symbol(machine.design_hash))}
#define CELOSIA_STRIDE_PARAMETERS {"".join(f", int32_t {name}" for name in names)}
#define CELOSIA_STRIDE_VALUES {"".join(f"{name}, " for name in names)}
namespace celosia {{
using Top = V{CLASS};
enum class Resident {{ None, Acc, B }};
enum class Overflow {{ Forbid, Wrap, Saturate }};
struct Axis {{ int extent, stride; }};
constexpr int kStrides = {len(strides)}, kFirstStrideB = {first["b"]}, kFirstStrideC = {first["c"]};
constexpr Resident kResident = Resident::{resident};
constexpr uint64_t kMaxCallsPerPass = {machine.max_calls_per_pass or 0};
constexpr Overflow kOverflow = Overflow::{_overflow(contraction.overflow)};
using ElementC = {_c_type(contraction, "c")};
constexpr bool kSignedC = {_bool(acc.signed)};
constexpr __int128 kMinC = -{_bool(acc.signed)} * (static_cast<__int128>(1) << {acc.width - 1});
constexpr __int128 kMaxC = (static_cast<__int128>(1) << {acc.width - acc.signed}) - 1;
{streams}
{_record_access("poke", layouts["inputs"])}
{_record_access("peek", layouts["outputs"])}
}}  // namespace celosia
"""


def _overflow(mode: Overflow) -> str:
    # once or per step makes no difference to one sum in memory
    return {Overflow.FORBID: "Forbid", Overflow.WRAP: "Wrap", Overflow.SATURATE: "Saturate", Overflow.SATURATE_ONCE: "Saturate"}[mode]


def _check_ports(machine: Machine, widths: dict[str, int]) -> None:
    contraction = machine.instruction.contraction
    expected = {"clk": 1, "rst": 1}
    for layout in machine.streams:
        expected[f"{layout.port}_data"] = layout.lanes(contraction) * contraction.dtype(layout.operand).width
        expected |= {f"{layout.port}_valid": 1, f"{layout.port}_ready": 1}
    for name, width in expected.items():
        if widths.get(name) != width:
            found = f"is {widths[name]} bits wide" if name in widths else "is missing"
            raise ParameterError(f"port {name} of {machine.name} {found}; its streams need {width} bits")


def _c_type(contraction: Contraction, operand: str) -> str:
    return f"{contraction.dtype(operand).container.name}_t"


def _bool(value: object) -> str:
    return "true" if value else "false"


def _axes(contraction: Contraction, layout: StreamLayout, axes: str) -> str:
    index = {pair: position for position, pair in enumerate(stride_axes(contraction))}
    kept = [axis for axis in axes if axis in contraction.extents]
    entries = [f"{{{contraction.extents[axis]}, {index.get((layout.operand, axis), -1)}}}" for axis in kept]
    return ", ".join(entries) or "{1, -1}"


def _stream(layout: StreamLayout, contraction: Contraction, widths: dict[str, int]) -> str:
    port = identifier(layout.port)
    last = f"t.{port}_last = last;" if f"{port}_last" in widths and layout.operand != "c" else ""
    return f"""struct Stream{layout.operand.upper()} {{
    using Element = {_c_type(contraction, layout.operand)};
    static constexpr int kWidth = {contraction.dtype(layout.operand).width};
    static constexpr int kBeats = {layout.beats(contraction)}, kLanes = {layout.lanes(contraction)};
    static constexpr bool kReverse = {_bool(layout.reverse)};
    static constexpr size_t kBytes = {storage_bytes(widths[f"{port}_data"])};
    static constexpr Axis kBeatAxes[] = {{{_axes(contraction, layout, layout.beat_axes)}}};
    static constexpr Axis kLaneAxes[] = {{{_axes(contraction, layout, layout.lane_axes)}}};
    static auto& data(Top& t) {{ return t.{port}_data; }}
    static auto& valid(Top& t) {{ return t.{port}_valid; }}
    static auto& ready(Top& t) {{ return t.{port}_ready; }}
    static void set_last(Top& t, bool last) {{ {last} }}
}};"""


def _record_access(name: str, layout: dict[str, Any]) -> str:
    kind, copy = ("uint8_t*", "std::memcpy(record + {offset}, static_cast<const void*>(&t.{port}), {size});")
    if name == "poke":
        kind, copy = ("const uint8_t*", "std::memcpy(static_cast<void*>(&t.{port}), record + {offset}, {size});")
    body = " ".join(copy.format(port=port, offset=offset, size=size) for port, _, offset, size in layout["fields"])
    constant = "kInputBytes" if name == "poke" else "kOutputBytes"
    return f"constexpr size_t {constant} = {layout['bytes']};\nstatic inline void {name}(Top& t, {kind} record) {{ {body} }}"
