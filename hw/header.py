"""C header of a design: everything that a driver needs to know, printed from the design point."""

from __future__ import annotations

from ..intrinsics.abi import flush_symbol, push_symbol, stride_axes
from .design_point import DesignPoint
from .verilog import module_name

_C_NAMES = {"a": "type of an element of A in memory", "b": "type of an element of B in memory", "c": "type of an element of C in memory"}


def c_header(point: DesignPoint, *, prefix: str | None = None) -> str:
    """C header with extents, widths, beats, timing constants, element types and the calls of `celosia.intrinsics.abi`."""
    top = module_name(point, prefix=prefix)
    macro = top.upper()
    lines = [
        f"/* celosia design {top}: {point.instruction.contraction} */",
        f"#ifndef {macro}_H",
        f"#define {macro}_H",
        "",
        "#include <stdint.h>",
        "",
    ]
    lines += [f'#define {macro}_HASH "{point.hash}"']
    lines += [f"#define {macro}_{name} {value}" for name, value in _constants(point)]
    lines += ["", *_types(point, top), "", *_prototypes(point), "", f"#endif /* {macro}_H */", ""]
    return "\n".join(lines)


def _constants(point: DesignPoint) -> list[tuple[str, int]]:
    """(name, value): tile extents of every axis, then per stream its element width, lanes and beats, then the timing."""
    parameters, contraction, timing = point.parameters, point.instruction.contraction, point.machine.timing
    constants = [(axis.upper(), extent) for axis, extent in parameters.extents.items()]
    for stream in point.machine.streams:
        name = stream.operand.upper()
        constants += [
            (f"{name}_WIDTH", contraction.dtype(stream.operand).width),
            (f"{name}_SIGNED", int(contraction.dtype(stream.operand).signed)),
            (f"{name}_LANES", stream.lanes(contraction)),
            (f"{name}_BEATS", stream.beats(contraction)),
        ]
        shape = contraction.shape(stream.operand)
        constants += [
            (f"{name}_STRIDE_{axis.upper()}", _dense_stride(shape, index))
            for index, axis in enumerate(contraction.operand_axes(stream.operand))
        ]
    fields = ("preload", "min_interval", "latency", "result_interval", "result_beats", "drain")
    constants += [(field.upper(), getattr(timing, field)) for field in fields]
    return [*constants, ("MACS_PER_CYCLE", point.macs_per_cycle)]


def _dense_stride(shape: tuple[int, ...], index: int) -> int:
    stride = 1
    for extent in shape[index + 1 :]:
        stride *= extent
    return stride


def _types(point: DesignPoint, top: str) -> list[str]:
    contraction = point.instruction.contraction
    return [f"typedef {contraction.dtype(operand).container}_t {top}_{operand}_t; /* {text} */" for operand, text in _C_NAMES.items()]


def _prototypes(point: DesignPoint) -> list[str]:
    strides = "".join(f", int32_t stride_{operand}_{axis}" for operand, axis in stride_axes(point.instruction.contraction))
    return [
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "/* One tile call, C += A x B; strides in elements. */",
        f"int32_t {push_symbol(point.hash)}(void *a, void *b, void *c{strides});",
        "/* Wait until every result is in memory. */",
        f"int32_t {flush_symbol(point.hash)}(void);",
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]
