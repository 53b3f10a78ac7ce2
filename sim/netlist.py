"""The flat Verilog that Yosys prints, taken apart into declarations, assignments and registers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_TOKEN = re.compile(r"\\\S+|\d+'s?[bdho][0-9a-fA-FxzXZ?_]+|\$\w+|[A-Za-z_][\w$]*|\d+|\s+|.", re.S)
_NAME = re.compile(r"\\\S+|[A-Za-z_][\w$]*")
_DECLARATION = re.compile(r"  (wire|reg|input|output) (?:(?:wire|reg) )?((?:signed )?(?:\[\d+:\d+\] )?)(\\\S+|\w+)\s*(?:=[^;]*)?;$")
_ASSIGN = re.compile(r"  assign (\\\S+|\w+)\s*= (.*);$", re.S)
_REGISTER = re.compile(r"  always @\(posedge clk\)\n    (?:if \(([^()]*)\) )?(\\\S+|\w+)\s*<= ([^;]*);$")
_CLEARED = re.compile(
    r"  always @\(posedge clk\)\n    if \(([^()]*)\) (\\\S+|\w+)\s*<= (\d+'h[0-9a-f]+);\n    else (\\\S+|\w+)\s*<= ([^;]*);$"
)
_PARTLY_DRIVEN = re.compile(r"  assign (_\d+_)\[(\d+):0\] = ")
_UNKNOWN = re.compile(r"  assign (_\d+_)\[[\d:]+\] = \d+'hx+;\n")
_INTERNAL = re.compile(r"(?<![\w.$\\])(_\d+_)(?:\[(\d+):0\])?")
_WIRE = re.compile(r"  wire \[\d+:0\] (_\d+_);")


@dataclass(frozen=True)
class Register:
    """``if (condition) name <= value`` at every rising edge; an empty condition is always true."""

    condition: str
    value: str


class Netlist:
    """Statements of one module in order; those that are not understood stay text.

    Attributes
    ----------
    statements : list of str
    shapes : dict
        Shape of every declared name as Verilog prints it, such as ``signed [7:0]``.
    wires : set of str
        Names that are neither ports nor registers.
    assigned : dict
        Right sides of assignments to whole wires.
    registers : dict
        Registers that one statement without reset updates.
    position : dict
        Index of the statement that drives a name of ``assigned`` or ``registers``.
    """

    def __init__(self, verilog: str) -> None:
        self.statements = list(_statements(narrowed(verilog)))
        self.shapes: dict[str, str] = {}
        self.wires: set[str] = set()
        self.assigned: dict[str, str] = {}
        self.registers: dict[str, Register] = {}
        self.position: dict[str, int] = {}
        for index, statement in enumerate(self.statements):
            self._read(index, statement)

    def _read(self, index: int, statement: str) -> None:
        if found := _DECLARATION.match(statement):
            self.shapes[found[3]] = found[2].strip()
            if found[1] == "wire":
                self.wires.add(found[3])
        elif found := _ASSIGN.match(statement):
            self.assigned[found[1]], self.position[found[1]] = found[2], index
        elif found := _REGISTER.match(statement):
            self.registers[found[2]], self.position[found[2]] = Register(found[1] or "", found[3]), index
        elif (found := _CLEARED.match(statement)) and found[2] == found[4]:
            self.registers[found[2]], self.position[found[2]] = Register("", f"({found[1]}) ? {found[3]} : {found[5]}"), index


def declared(statement: str) -> str:
    """The internal name that a statement declares, or nothing."""
    found = _DECLARATION.match(statement)
    return found[3] if found and found[1] in ("wire", "reg") else ""


def tokens(text: str) -> list[str]:
    """Names, numbers, spaces and single characters."""
    return _TOKEN.findall(text)


def is_name(token: str) -> bool:
    """Whether a token is a plain or escaped name (or a keyword)."""
    return _NAME.fullmatch(token) is not None


def names(text: str) -> set[str]:
    """Every name in a piece of Verilog."""
    return {token for token in tokens(text) if is_name(token)}


def narrowed(verilog: str) -> str:
    """The same module; wires of which only low bits are driven and read become wires of that width."""
    highs = dict(_PARTLY_DRIVEN.findall(verilog))
    verilog = _UNKNOWN.sub(lambda found: "" if found[1] in highs else found[0], verilog)
    other = Counter(name for name, high in _INTERNAL.findall(verilog) if name in highs and high != highs[name])
    narrow = {name for name in highs if other[name] == 1}  # the declaration

    def use(found: re.Match[str]) -> str:
        return found[1] if found[1] in narrow else found[0]

    def declaration(found: re.Match[str]) -> str:
        return f"  wire [{highs[found[1]]}:0] {found[1]};" if found[1] in narrow else found[0]

    return _WIRE.sub(declaration, _INTERNAL.sub(use, verilog)) if narrow else verilog


def _statements(verilog: str) -> Iterator[str]:
    pending: list[str] = []
    for line, following in pairwise([*verilog.split("\n"), ""]):
        pending.append(line)
        if _ends(pending, following):
            yield "\n".join(pending)
            pending = []


def _ends(lines: list[str], following: str) -> bool:
    """Whether a statement is complete with these lines."""
    first, last = lines[0], lines[-1]
    if first.startswith("  function"):
        return last.startswith("  endfunction")
    if first.startswith(("  always", "  initial")):
        return last == "  end" if first.endswith("begin") else last.endswith(";") and not following.startswith("    else")
    return not first.startswith("  assign") or last.endswith(";")
