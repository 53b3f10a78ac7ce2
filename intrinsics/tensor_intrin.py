"""TVM tensor intrinsics, generated from contractions: the only module of the contract that knows TVM.

From one `Contraction` come a *description* (what TVM matches) and an *implementation* (what it puts there): either a
call of a simulated design by the convention of `abi`, or plain loops, with which a schedule is verified without hardware.
TVM is imported when a function is called, never at import.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from .abi import push_symbol, stride_axes
from .contraction import Contraction
from .errors import MappingError, ParameterError
from .instruction import Instruction
from .numerics import Overflow
from .window_tile import WindowTile

Tile = Contraction | WindowTile
"""What a recorded intrinsic computes."""

ANNOTATION = "celosia.intrinsic"
"""Block annotation that every implementation carries, so that a pass can tell a tensorized block from any other."""

FAULTS = ("index", "signedness")
"""Broken implementations for the tests of the checks: an operand index that is always 0, an operand of the wrong sign."""

TILE_FUNCTION = "celosia.tile"
"""Function in TVM's table that a recorded tile calls: the intrinsic's name, then data pointer, offset and strides of a, b and c."""

_registered: dict[str, Tile] = {}


def install_stub() -> None:
    """Keep MetaSchedule from importing TVM's own 496 intrinsics, which takes 15 seconds and serves no design of ours.

    An empty module takes the place of ``tvm.s_tir.tensor_intrin``, unless somebody has imported the real one.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name, install_stub.__doc__)


def intrinsic_name(contraction: Contraction, *, design_hash: str | None = None, fault: str | None = None) -> str:
    """Name in TVM's table: what is computed, and by whom (a design, or plain loops).

    Examples
    --------
    >>> intrinsic_name(Contraction("mk,kn->mn", dict(m=4, n=4, k=16)))
    'celosia_mk_kn_mn_m4n4k16_s8s8s32_loops'
    """
    einsum = contraction.einsum.replace("->", "_").replace(",", "_")
    return f"celosia_{einsum}_{contraction.label}_{design_hash or 'loops'}" + (f"_faulty_{fault}" if fault else "")


def window_name(tile: WindowTile) -> str:
    """Name in TVM's table of a recorded tile of windows."""
    return f"celosia_window_{tile.label}_recorded"


def register(instruction: Instruction, *, design_hash: str | None = None, fault: str | None = None) -> str:
    """Make an instruction known to TVM and return its name there; calling it again changes nothing.

    Parameters
    ----------
    instruction : Instruction
    design_hash : str or None
        Design whose ``push`` is called; plain loops if None.
    fault : None, "index" or "signedness"
        For the tests of checks: build the plain loops wrongly.

    Raises
    ------
    MappingError
        If the accumulator saturates: no sum of products equals that.
    ParameterError
        If the name is taken by another contraction.
    """
    contraction = instruction.contraction
    if contraction.overflow not in (Overflow.FORBID, Overflow.WRAP):
        raise MappingError(f"instruction {instruction.name} saturates, so it is no sum of products that TVM could match")
    name = intrinsic_name(contraction, design_hash=design_hash, fault=fault)
    symbol = push_symbol(design_hash) if design_hash else None
    return _register(name, contraction, lambda: implementation(contraction, symbol=symbol, fault=fault))


def register_tile(tile: Tile) -> str:
    """Make a tile known to TVM whose calls are recorded, not computed (`TILE_FUNCTION`); return its name there."""
    name = window_name(tile) if isinstance(tile, WindowTile) else intrinsic_name(tile, design_hash="recorded")
    return _register(name, tile, lambda: _parse(_header(tile, strided=True) + _record(tile, name)))


def _register(name: str, contraction: Tile, implement: Callable[[], Any]) -> str:
    known = _registered.get(name)
    if known is None:
        from tvm.s_tir import TensorIntrin

        TensorIntrin.register(name, description(contraction), implement(), override=True)
        _registered[name] = contraction
    elif known != contraction:
        raise ParameterError(f"intrinsic {name} already describes {known}, so it cannot describe {contraction}")
    return name


def registered() -> dict[str, Tile]:
    """What `register` has made known so far, by name."""
    return dict(_registered)


@functools.lru_cache(maxsize=4096)
def description(tile: Tile) -> Any:
    """PrimFunc that TVM matches blocks against: ``C += A x B`` on contiguous tiles."""
    return _parse(_header(tile, strided=False) + _loops(tile, _index(tile), _product(tile)))


@functools.lru_cache(maxsize=4096)
def implementation(contraction: Contraction, *, symbol: str | None = None, fault: str | None = None) -> Any:
    """PrimFunc that takes the place of a matched block, for tiles of any strides.

    Parameters
    ----------
    contraction : Contraction
    symbol : str or None
        C function to call; plain loops if None.
    fault : None, "index" or "signedness"
        Build the plain loops wrongly, for the tests of checks.
    """
    if fault is not None and fault not in FAULTS:
        raise ParameterError(f"fault must be one of {', '.join(FAULTS)}, not {fault!r}")
    if symbol is not None:
        return _parse(_header(contraction, strided=True) + _call(contraction, symbol))
    index = _index(contraction)
    if fault == "index":
        operand = "b" if contraction.b_axes else "a"
        index[operand] = _zeros(contraction, operand)
    return _parse(_header(contraction, strided=True) + _loops(contraction, index, _product(contraction, flip=fault == "signedness")))


def _parse(body: str) -> Any:
    import tvm

    return tvm.script.from_source("@T.prim_func(s_tir=True)\n" + body)


def _header(tile: Tile, *, strided: bool) -> str:
    buffers = []
    for operand in "abc":
        strides = ", ".join("T.int32()" for _ in tile.operand_axes(operand))
        suffix = f", strides=[{strides}]" if strided and strides else ""
        shape = _tuple(str(extent) for extent in tile.shape(operand))
        buffers.append(f'{operand.upper()}: T.Buffer({shape}, "{tile.dtype(operand).container}", offset_factor=1{suffix})')
    return (
        f"def intrinsic({', '.join(buffers)}):\n"
        '    with T.sblock("root"):\n'
        + (f'        T.sblock_attr({{"{ANNOTATION}": "{tile.label}"}})\n' if strided else "")
        + f"        T.reads({', '.join(_region(tile, operand) for operand in 'cab')})\n"
        + f"        T.writes({_region(tile, 'c')})\n"
    )


def _tuple(items: Any) -> str:
    listed = list(items)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


def _region(tile: Tile, operand: str) -> str:
    extents = tile.shape(operand)
    return f"{operand.upper()}[{', '.join(f'0:{extent}' for extent in extents) or '()'}]"


def _index(tile: Tile) -> dict[str, str]:
    if isinstance(tile, WindowTile):
        return tile.index
    return {operand: ", ".join(f"v_{axis}" for axis in tile.operand_axes(operand)) or "()" for operand in "abc"}


def _zeros(contraction: Contraction, operand: str) -> str:
    axes = contraction.operand_axes(operand)
    if not axes:
        raise ParameterError(f"{contraction} has no operand axis that an index fault could leave out; allowed: 'signedness'")
    return ", ".join([*(f"v_{axis}" for axis in axes[:-1]), "0"])


def _product(tile: Tile, *, flip: bool = False) -> str:
    acc = tile.acc.container
    a = "A[{a}]"
    if flip:
        container = tile.a.container
        a = f'T.reinterpret("{"u" if container.signed else ""}int{container.width}", {a})'
    return f'T.cast({a}, "{acc}") * T.cast(B[{{b}}], "{acc}")'


def _loops(tile: Tile, index: dict[str, str], product: str) -> str:
    axes = tile.axes
    update = f"C[{index['c']}] = C[{index['c']}] + {product.format(**index)}\n"
    if not axes:
        # A tile without axes: the compiler puts a unit loop where the loops of the tile would be, and TVM compares it.
        return f'        for _unit in range(1):\n            with T.sblock("update"):\n                {update}'
    extents = [str(tile.extents[axis]) for axis in axes]
    kinds = "".join("S" if axis in tile.c_axes else "R" for axis in axes)
    loops = f"T.grid({', '.join(extents)})" if len(axes) > 1 else f"range({extents[0]})"
    return (
        f"        for {', '.join(axes)} in {loops}:\n"
        '            with T.sblock("update"):\n'
        f'                {", ".join(f"v_{axis}" for axis in axes)} = T.axis.remap("{kinds}", [{", ".join(axes)}])\n'
        f"                {update}"
    )


def _call(contraction: Contraction, symbol: str) -> str:
    # Not access_ptr: TVM lets temporary buffers of different types share storage, and then refuses to lower it.
    origin = {operand: ", ".join("0" for _ in contraction.operand_axes(operand)) or "()" for operand in "abc"}
    pointers = [f"T.address_of({operand.upper()}[{origin[operand]}])" for operand in "abc"]
    strides = [f"{operand.upper()}.strides[{contraction.operand_axes(operand).index(axis)}]" for operand, axis in stride_axes(contraction)]
    return f'        T.evaluate(T.call_extern("int32", "{symbol}", {", ".join(pointers + strides)}))\n'


def _record(tile: Tile, name: str) -> str:
    # Offsets count from the start of the buffer that the tile lies in, whatever storage TVM gives it later.
    arguments = []
    for operand in "abc":
        tensor = operand.upper()
        strides = (f"{tensor}.strides[{number}]" for number in range(len(tile.operand_axes(operand))))
        arguments += [f"{tensor}.data", f"{tensor}.elem_offset", *strides]
    return f'        T.evaluate(T.call_packed("{TILE_FUNCTION}", "{name}", {", ".join(arguments)}))\n'
