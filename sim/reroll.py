"""Grids of equal elements, printed as loops over arrays: Verilator and compilers read that faster, and processors run it as vectors.

Yosys prints a grid element by element. Here registers ``<stem>_<i>_<j>`` or ``<stem>_<i>_<j>.<name>`` whose next values have the same
text but for names become arrays, and one process updates them in place, those that are read by others last. Every element's text is
compared, so the design stays the same whatever it is; what is not regular stays as it was.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from .netlist import Netlist, declared, is_name, names, tokens
from .widen import WIDE, exact_products, is_move, widened_families

_ELEMENT = re.compile(r"\\?(\S+)_(\d+)_(\d+)(?:[._](\w+))?")
LOOPS = "rolled"
"""Name of the module that holds the loops."""
_FEWEST, _MOST_LOOPS = 8, 6
"""Elements of a family for which loops pay, and loops of a family that is a grid: its inside, edges and corners."""

Place = tuple[int, int]
Family = tuple[str, str]
"""Stem and shape of the elements of an array."""


def reroll(verilog: str) -> str:
    """The same design with loops in the place of regular registers.

    Parameters
    ----------
    verilog : str
        A flat module as `hw.yosys` prints it, with one clock ``clk``.
    """
    netlist = Netlist(verilog)
    elements = _candidates(netlist)
    while elements:
        loops = _loops(netlist, elements)
        unfit = _unfit(elements, loops)
        if not unfit:
            return _Printer(netlist, elements, _in_order(loops)).text()
        elements = {name: place for name, place in elements.items() if place.family not in unfit}
    return verilog


@dataclass(frozen=True)
class _Element:
    family: Family
    row: int
    column: int


@dataclass(frozen=True)
class _Read:
    """A read of the element that is ``rows`` below and ``columns`` right of the one that is updated."""

    family: Family
    rows: int
    columns: int


Part = str | int | _Read
"""Of an update's text: Verilog, the number of an outside value, a neighbour."""


@dataclass(frozen=True)
class _Template:
    """Text of an update. Locals are (name, shape, parts); outside values are numbered, with their shapes."""

    family: Family
    locals: tuple[tuple[str, str, tuple[Part, ...]], ...]
    condition: tuple[Part, ...]
    value: tuple[Part, ...]
    outside: tuple[str, ...]

    @property
    def reads(self) -> set[_Read]:
        """Neighbours, wherever they are read."""
        texts = (self.condition, self.value, *(parts for _, _, parts in self.locals))
        return {part for parts in texts for part in parts if isinstance(part, _Read)}


def _candidates(netlist: Netlist) -> dict[str, _Element]:
    found = {}
    for name in netlist.registers:
        if match := _ELEMENT.fullmatch(name):
            found[name] = _Element((f"{match[1]}.{match[4]}" if match[4] else match[1], netlist.shapes[name]), int(match[2]), int(match[3]))
    places: dict[Family, list[Place]] = defaultdict(list)
    for element in found.values():
        places[element.family].append((element.row, element.column))
    grids = {family for family, taken in places.items() if _FEWEST <= len(taken) == _area(taken)}
    return {name: element for name, element in found.items() if element.family in grids}


def _area(places: list[Place]) -> int:
    """Of the smallest rectangle around."""
    sides = [max(place[axis] for place in places) - min(place[axis] for place in places) + 1 for axis in (0, 1)]
    return sides[0] * sides[1]


class _Reader:
    """Makes the templates of updates."""

    def __init__(self, netlist: Netlist, elements: Mapping[str, _Element]) -> None:
        self.netlist, self.elements = netlist, elements
        self._inside: dict[str, bool] = {}

    def read(self, name: str) -> tuple[_Template, tuple[str, ...]]:
        """Template and outside values of an element's update."""
        self._here, register = self.elements[name], self.netlist.registers[name]
        self._locals: dict[str, str] = {}
        self._texts: list[tuple[str, str, tuple[Part, ...]]] = []
        self._outside: dict[str, int] = {}
        self._shapes: list[str] = []
        condition, value = self._parts(register.condition), self._parts(register.value)
        return _Template(self._here.family, tuple(self._texts), condition, value, tuple(self._shapes)), tuple(self._outside)

    def _parts(self, text: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        words = [word for word in tokens(text) if not word.isspace()]
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if not is_name(word):
                parts.append(word)
            elif word in self.elements:
                element = self.elements[word]
                parts.append(_Read(element.family, element.row - self._here.row, element.column - self._here.column))
            elif self._depends(word):
                parts.append(self._local(word))
            else:
                end = words.index("]", at) + 1 if words[at : at + 1] == ["["] else at
                parts.append(self._value(word, "".join(words[at:end])))
                at = end
        return tuple(parts)

    def _depends(self, name: str) -> bool:
        """Whether an element takes part in a wire."""
        if name not in self._inside:
            self._inside[name] = name in self.elements
            sources = names(self.netlist.assigned.get(name, "")) if name in self.netlist.wires else ()
            self._inside[name] |= any(self._depends(source) for source in sources)
        return self._inside[name]

    def _local(self, wire: str) -> str:
        if wire not in self._locals:
            parts = self._parts(self.netlist.assigned[wire])
            self._locals[wire] = f"local_{len(self._locals)}"
            self._texts.append((self._locals[wire], self.netlist.shapes[wire], parts))
        return self._locals[wire]

    def _value(self, name: str, select: str) -> int:
        text = f"{name} {select}"
        if text not in self._outside:
            self._outside[text] = len(self._outside)
            # Yosys says at each use whether a number is signed
            self._shapes.append(_selected(select) if select else self.netlist.shapes[name].removeprefix("signed "))
        return self._outside[text]


def _selected(select: str) -> str:
    """Shape of a bit or part of a vector."""
    high, _, low = select[1:-1].partition(":")
    width = int(high) - int(low or high) + 1
    return f"[{width - 1}:0]" if width > 1 else ""


class _Loop:
    """A rectangle of elements that are updated alike."""

    def __init__(self, template: _Template, rows: range, columns: range, outside: Mapping[Place, tuple[str, ...]]) -> None:
        self.template, self.rows, self.columns, self.outside = template, rows, columns, outside
        self.places = [(i, j) for i in rows for j in columns]
        family = template.family
        self.writes = {(family, *place) for place in self.places}
        self.reads = {(read.family, i + read.rows, j + read.columns) for read in template.reads for i, j in self.places}
        own = {(read.rows, read.columns) for read in template.reads if read.family == family and self._touches(read)} - {(0, 0)}
        self.upwards = any(rows < 0 for rows, _ in own)
        self.staged = any(rows == 0 or (rows > 0 and self.upwards) for rows, _ in own)

    def _touches(self, read: _Read) -> bool:
        return any((read.family, i + read.rows, j + read.columns) in self.writes for i, j in self.places)


def _loops(netlist: Netlist, elements: Mapping[str, _Element]) -> list[_Loop]:
    groups: dict[_Template, dict[Place, tuple[str, ...]]] = defaultdict(dict)
    reader = _Reader(netlist, elements)
    for name, element in elements.items():
        template, outside = reader.read(name)
        groups[template][element.row, element.column] = outside
    return [_Loop(template, rows, columns, places) for template, places in groups.items() for rows, columns in _rectangles(set(places))]


def _rectangles(places: set[Place]) -> Iterator[tuple[range, range]]:
    while places:
        i, j = min(places)
        width = height = 1
        while (i, j + width) in places:
            width += 1
        while all((i + height, j + step) in places for step in range(width)):
            height += 1
        yield range(i, i + height), range(j, j + width)
        places = places - {(i + down, j + right) for down in range(height) for right in range(width)}


def _unfit(elements: Mapping[str, _Element], loops: list[_Loop]) -> set[Family]:
    """Families that loops do not suit: no grids, or an order in which none may be first."""
    sizes, parts = Counter(element.family for element in elements.values()), Counter(loop.template.family for loop in loops)
    unfit = {family for family in parts if parts[family] > min(_MOST_LOOPS, sizes[family] // _FEWEST)}
    if not unfit:
        try:
            _in_order(loops)
        except CycleError as error:
            unfit = {loops[error.args[1][0]].template.family}
    return unfit


def _in_order(loops: list[_Loop]) -> list[_Loop]:
    """Who reads an element comes before who writes it."""
    writer = {element: index for index, loop in enumerate(loops) for element in loop.writes}
    before: dict[int, set[int]] = {index: set() for index in range(len(loops))}
    for index, loop in enumerate(loops):
        for target in {writer[element] for element in loop.reads if element in writer} - {index}:
            before[target].add(index)
    return [loops[index] for index in TopologicalSorter(before).static_order()]


def _plus(variable: str, offset: int) -> str:
    return f"{variable} + {offset}" if offset else variable


def _power(size: int) -> int:
    """Arrays have sizes that any index of their width stays inside of, so nothing checks bounds."""
    return 1 << (size - 1).bit_length()


class _Printer:
    """The netlist without the statements of ``elements``, and a module of its own for the loops: one short function for the compiler."""

    def __init__(self, netlist: Netlist, elements: Mapping[str, _Element], loops: list[_Loop]) -> None:
        self.netlist, self.elements = netlist, elements
        self.arrays: dict[Family, str] = {}
        self.widened = widened_families([loop.template for loop in loops])
        self.inputs: dict[str, tuple[str, str]] = {}
        self.kept: list[str] = []
        self.local: list[str] = []
        self.steps: list[str] = []
        for family in dict.fromkeys(element.family for element in elements.values()):
            self.arrays[family] = self._array(family)
        for number, loop in enumerate(loops):
            _LoopPrinter(self, loop, f"loop_{number}_").print()

    def _array(self, family: Family) -> str:
        name = f"\\{family[0]}" if family[0] not in {stem for stem, _ in self.arrays} else f"\\{family[0]}#{len(self.arrays)}"
        places = [(element.row, element.column) for element in self.elements.values() if element.family == family]
        rows, columns = (_power(max(place[axis] for place in places) + 1) for axis in (0, 1))
        self.kept.append(f"reg {self.shape(family)} {name} [0:{rows - 1}][0:{columns - 1}]")
        return name

    def shape(self, family: Family) -> str:
        """Of an element in its array."""
        return WIDE if family in self.widened else family[1]

    def moves_wide(self, template: _Template) -> bool:
        """Whether an element takes over another one that is kept in the same shape."""
        return is_move(template) and isinstance(template.value[0], _Read) and template.value[0].family in self.widened

    def port(self, value: str, shape: str) -> str:
        """Name that an outside value has inside."""
        return self.inputs.setdefault(value, (f"in_{len(self.inputs)}", shape))[0]

    def text(self) -> str:
        """Both modules."""
        dropped = {self.netlist.position[name] for name in self.elements}
        uses = Counter(name for index, text in self._statements(dropped) for name in names(text) if not declared(text))
        uses.update(name for value in self.inputs for name in names(value))
        dropped |= self._unused(uses)
        outputs = [name for name in self.elements if uses[name]]
        lines = []
        for _, statement in self._statements(dropped):
            if statement == "endmodule":
                lines += self._instance(outputs)
            name = declared(statement)
            if name in outputs:
                lines.append(f"  wire {self.netlist.shapes[name]} {name} ;")
            elif not name or uses[name]:
                lines.append(statement)
        return "\n".join([*lines, *self._module(outputs)])

    def _statements(self, dropped: set[int]) -> Iterator[tuple[int, str]]:
        return ((index, text) for index, text in enumerate(self.netlist.statements) if index not in dropped)

    def _unused(self, uses: Counter[str]) -> set[int]:
        """Assignments to wires that nothing reads any more; ``uses`` counts statements, the driver among them."""
        netlist = self.netlist
        idle = [name for name in netlist.assigned if uses[name] == 1 and name in netlist.wires]
        dropped = set()
        while idle:
            name = idle.pop()
            dropped.add(netlist.position[name])
            for source in names(netlist.assigned[name]) | {name}:
                uses[source] -= 1
                if uses[source] == 1 and source in netlist.assigned and source in netlist.wires:
                    idle.append(source)
        return dropped

    def _instance(self, outputs: list[str]) -> list[str]:
        ports = [".clk(clk)", *(f".{port}({value})" for value, (port, _) in self.inputs.items())]
        ports += [f".out_{number}({name} )" for number, name in enumerate(outputs)]
        return [f"  {LOOPS} {LOOPS} (", "    " + ",\n    ".join(ports), "  );"]

    def _module(self, outputs: list[str]) -> list[str]:
        ports = ["input clk", *(f"input {shape} {port}" for port, shape in self.inputs.values())]
        ports += [f"output reg {self.netlist.shapes[name]} out_{number}" for number, name in enumerate(outputs)]
        places = [self.elements[name] for name in outputs]
        return [
            f"module {LOOPS} (",
            "  " + ",\n  ".join(ports),
            ");",
            "  /* verilator no_inline_module */",
            *(f"  {text};" for text in self.kept),
            "  always @(posedge clk) begin : step",
            *(f"    automatic {text};" for text in ("reg [31:0] i, j", *self.local)),
            "    i = 0;",  # what is set first of all does not become state of the model
            "    j = 0;",
            *(f"    {text.split()[-1]} = 0;" for text in self.local if not text.endswith("]")),
            *self.steps,
            *(f"    out_{n} <= {self.arrays[place.family]} [{place.row}][{place.column}];" for n, place in enumerate(places)),
            "  end",
            "endmodule",
            "",
        ]


class _LoopPrinter:
    """Prints one loop; ``i`` and ``j`` count from the first place, or rows from the last one if neighbours above are read."""

    def __init__(self, printer: _Printer, loop: _Loop, prefix: str) -> None:
        self.printer, self.loop, self.prefix = printer, loop, prefix
        self.row = f"{len(loop.rows) - 1} - i" if loop.upwards else "i"
        self.per_row: list[str] = []
        self.values = [self._outside(number, shape) for number, shape in enumerate(loop.template.outside)]

    def print(self) -> None:
        template, prefix = self.loop.template, self.prefix
        body = []
        products = exact_products(template)
        for name, shape, parts in template.locals:
            self.printer.local.append(f"reg {WIDE if name in products else shape} {prefix}{name}")
            body.append(f"{prefix}{name} = {self._text(parts)};")
        target, shape = self._element(_Read(template.family, 0, 0)), self.printer.shape(template.family)
        value, condition, guard = self._text(template.value), self._text(template.condition), ""
        if template.family in self.printer.widened and not self.printer.moves_wide(template):
            self.printer.local.append(f"reg {template.family[1]} {prefix}narrow")
            body.append(f"{prefix}narrow = {value};")
            value = f"{prefix}narrow"
        if condition and self._is_steady(template.condition):
            guard = condition
        elif condition:
            self.printer.local.append(f"reg {shape} {prefix}value")
            body.append(f"{prefix}value = {value};")
            value = f"{condition} ? {prefix}value : {target}"
        bodies = [[*body, f"{target} = {value};"]]
        if self.loop.staged:
            rows, columns = (_power(len(span)) - 1 for span in (self.loop.rows, self.loop.columns))
            self.printer.kept.append(f"reg {shape} {prefix}next [0:{rows}][0:{columns}]")
            bodies = [[*body, f"{prefix}next[i][j] = {value};"], [f"{target} = {prefix}next[i][j];"]]
        self._emit(guard, bodies)

    def _emit(self, guard: str, bodies: list[list[str]]) -> None:
        lines = []
        for body in bodies:
            lines += [f"if ({guard})"] if guard else []
            lines += [f"for (i = 0; i < {len(self.loop.rows)}; i = i + 1) begin", *(f"  {line}" for line in self.per_row)]
            inner = [f"for (j = 0; j < {len(self.loop.columns)}; j = j + 1) begin", *(f"  {line}" for line in body), "end"]
            lines += [*(f"  {line}" for line in inner), "end"]
        self.printer.steps += [f"    {line}" for line in lines]

    def _is_steady(self, parts: tuple[Part, ...]) -> bool:
        numbers = [part for part in parts if isinstance(part, int)]
        plain = not any(isinstance(part, _Read) or (isinstance(part, str) and part.startswith("local_")) for part in parts)
        return plain and all(len(set(self._places(number).values())) == 1 for number in numbers)

    def _text(self, parts: tuple[Part, ...]) -> str:
        return " ".join(self._part(part) for part in parts)

    def _part(self, part: Part) -> str:
        if isinstance(part, _Read):
            return self._element(part)
        if isinstance(part, int):
            return self.values[part]
        return f"{self.prefix}{part}" if part.startswith("local_") else part

    def _element(self, read: _Read) -> str:
        row, column = self.loop.rows[0] + read.rows, self.loop.columns[0] + read.columns
        up = f"{row + len(self.loop.rows) - 1} - i"
        return f"{self.printer.arrays[read.family]} [{up if self.loop.upwards else _plus('i', row)}][{_plus('j', column)}]"

    # ---- outside values: one for all, or a table over rows, columns, diagonals or places

    def _places(self, number: int) -> dict[Place, str]:
        """The value at every place, counted from the rectangle's first."""
        i, j = self.loop.rows[0], self.loop.columns[0]
        return {(row - i, column - j): self.loop.outside[row, column][number] for row, column in self.loop.places}

    def _outside(self, number: int, shape: str) -> str:
        values = self._places(number)
        if len(set(values.values())) == 1:
            return self.printer.port(next(iter(values.values())), shape)
        name = f"{self.prefix}table_{number}"
        if table := _by(values, lambda i, j: i + j):
            return self._diagonals(name, table) if not shape else self._table(name, shape, table, f"{self.row} + j")
        for index, key in ((self.row, lambda i, j: i), ("j", lambda i, j: j)):
            if table := _by(values, key):
                return self._table(name, shape, table, index)
        if table := _by({place: text.split()[0] for place, text in values.items()}, lambda i, j: j):
            bits = {place[0] for place, text in values.items() if text.split()[-1] != f"[{place[0]}]"}
            if not shape and not bits:  # a vector per column with a bit per row
                return self._table(name, self.printer.netlist.shapes[table[0]], table, "j") + f"[{self.row}]"
        rows, columns = (_power(max(place[axis] for place in values) + 1) for axis in (0, 1))
        self.printer.kept.append(f"reg {shape} {name} [0:{rows - 1}][0:{columns - 1}]")
        self.printer.steps += [f"    {name}[{i}][{j}] = {self.printer.port(value, shape)};" for (i, j), value in values.items()]
        return f"{name}[{self.row}][j]"

    def _table(self, name: str, shape: str, table: dict[int, str], index: str) -> str:
        self.printer.kept.append(f"reg {shape} {name} [0:{_power(len(table)) - 1}]")
        self.printer.steps += [f"    {name}[{key}] = {self.printer.port(value, shape)};" for key, value in table.items()]
        return f"{name}[{index}]"

    def _diagonals(self, name: str, table: dict[int, str]) -> str:
        """Flags that travel with a wave: a vector, of which every row sees its part."""
        self.printer.local.append(f"reg [{len(self.loop.columns) - 1}:0] {name}_row")
        base = _vector(table)
        if base:
            flags = self.printer.port(f"{base[0]} ", self.printer.netlist.shapes[base[0]])
            shift = _plus(self.row, base[1])
        else:
            self.printer.local.append(f"reg [{len(table) - 1}:0] {name}")
            bits = ", ".join(self.printer.port(table[key], "") for key in sorted(table, reverse=True))
            self.printer.steps.append(f"    {name} = {{{bits}}};")
            flags, shift = name, self.row
        self.per_row.append(f"{name}_row = {flags} >> ({shift});")
        return f"{name}_row[j]"


def _vector(table: dict[int, str]) -> tuple[str, int] | None:
    """Name and first bit of the vector whose bits, one behind the other, are the table."""
    found = [re.fullmatch(r"(\S+) \[(\d+)\]", table[key]) for key in sorted(table)]
    names_ = {match[1] for match in found if match}
    first = int(found[0][2]) if found[0] else 0
    whole = len(names_) == 1 and all(match and int(match[2]) == first + index for index, match in enumerate(found))
    return (names_.pop(), first) if whole else None


def _by(values: Mapping[Place, str], key: Callable[[int, int], int]) -> dict[int, str]:
    """The values as a table over ``key``; empty if they depend on more."""
    table: dict[int, str] = {}
    same = all(table.setdefault(key(*place), value) == value for place, value in values.items())
    return table if same else {}
