"""The accelerator's commands byte by byte in plain Python, from the words of `command.py`: what the functional model is compared with."""

from __future__ import annotations

from celosia.intrinsics import Rounding
from celosia.intrinsics.accelerator.command import Op, Register, Target


def in_range(value, width, signed=True):
    value %= 1 << width
    return value - (1 << width) if signed and value >> (width - 1) else value


class Scalar:
    """Scratchpads as dictionaries from (bank, word, byte), sums from (row, column)."""

    def __init__(self, machine, memory):
        self.machine, self.memory = machine, memory
        self.registers, self.pads, self.sums = {}, {target: {} for target in Target}, {}

    def run(self, program):
        steps = {Op.SET: self.set, Op.LOAD: self.load, Op.COMPUTE: self.compute, Op.STORE: self.store}
        for command in program.commands:
            if command.op in steps:
                steps[command.op](command.values)

    def set(self, values):
        self.registers[values["register"]] = values

    # ---- LOAD

    def load(self, load):
        walker, target = self.registers[load["target"]], Target(load["target"])
        banks, _, size = self.machine.memory_of(target)
        for row in range(load["rows"]):
            word, byte = load["spad"] + row // banks * load["row_stride"], 0
            for run in self.runs(load, walker, row):
                for value in run:
                    self.pads[target][row % banks, word + byte // size, byte % size] = value
                    byte += 1
                if walker["pad"]:
                    byte = -(-byte // size) * size
            while byte % size:
                self.pads[target][row % banks, word + byte // size, byte % size] = 0
                byte += 1

    def runs(self, load, walker, row):
        """Lists of bytes that lie together."""
        for x, y, base, count, _ in self.places(load, walker, row):
            yield [self.byte(walker, x + place, y, base) for place in range(count)]

    def places(self, load, walker, row):
        """Of every run of a row: x and y in the image, address of the image row, bytes and beats."""
        column = (load["column"] + row) % walker["columns"]
        down = (load["column"] + row) // walker["columns"]
        x = walker["first_x"] + column * walker["column_step"]
        if down == 0:
            x = load["x"] + row * walker["column_step"]
        y, base = load["y"] + down * walker["row_y"], load["base"] + down * walker["row_step"]
        tap, skip, origin = load["tap"], load["skip"], load["offset"] - load["skip"]
        left, beats = load["beats"] - load["spare"], load["first_beats"]
        while left:
            now = min(beats, left)
            yield x + origin + skip, y, base, min(walker["run"] - skip, now * self.machine.port_bytes), now
            left, beats, skip, tap, origin = left - now, walker["run_beats"], 0, tap + 1, origin + walker["tap_step"]
            if tap == walker["taps"]:
                tap, origin, y, base = 0, 0, y + walker["kernel_y"], base + walker["kernel_step"]

    def last_byte(self, load):
        """Of all beats that hold a byte of the image; -1 if none does."""
        walker, width, last = self.registers[load["target"]], self.machine.port_bytes, -1
        for row in range(load["rows"]):
            for x, y, base, _, beats in self.places(load, walker, row):
                for beat in range(beats):
                    skip = (base + x + beat * width) % width
                    first = x + beat * width - skip
                    if 0 <= y < walker["height"] and any(0 <= first + place < walker["width"] for place in range(width)):
                        last = max(last, (base + first) % (1 << 32) + width - 1)
        return last

    def byte(self, walker, x, y, base):
        if 0 <= x < walker["width"] and 0 <= y < walker["height"]:
            return int(self.memory[(base + x) % (1 << 32)])
        return walker["zero"]

    # ---- COMPUTE

    def element(self, target, bank, word, place):
        """Element ``place`` behind the start of a word, running on into the next words."""
        machine = self.machine
        dtype, size = (machine.a, machine.a_word) if target is Target.A else (machine.b, machine.b_word)
        width = dtype.container_width // 8
        at = place * width
        taken = [self.pads[target].get((bank, word + (at + part) // size, (at + part) % size), 0) for part in range(width)]
        return in_range(int.from_bytes(bytes(taken), "little"), dtype.width, dtype.signed)

    def compute(self, values):
        machine, still = self.machine, self.machine.weight_stationary
        blocks, rows = (1, values["k_units"]) if still else (values["m_blocks"], machine.rows)
        depth = values["m_blocks"] * machine.rows if still else values["k_units"] * (1 if values["vector"] else machine.lanes)
        for i in range(blocks):
            for j in range(values["n_blocks"]):
                for r in range(rows):
                    for c in range(machine.cols):
                        total = sum(self.product(values, i, j, r, c, k) for k in range(depth))
                        place = values["c"] + (i * values["n_blocks"] + j) * rows + r, c
                        before = self.sums.get(place, 0) if values["accumulate"] else 0
                        self.sums[place] = in_range(before + total, machine.acc.width, machine.acc.signed)

    def product(self, values, i, j, r, c, k):
        machine = self.machine
        word_b, lane = values["b"] + j * values["b_stride"], k
        if machine.weight_stationary:
            left = self.element(Target.A, 0, values["a"] + r * values["a_stride"], k)
        elif values["vector"]:  # a word per tap, a channel per column; a unit of B per tap
            left, lane = self.element(Target.A, r, values["a"] + i * values["a_stride"] + k, c), k * machine.lanes
        else:
            left = self.element(Target.A, r, values["a"] + i * values["a_stride"], k)
        return left * self.element(Target.B, c, word_b, lane)

    # ---- STORE

    def store(self, values):
        path, cols = self.registers[Register.STORE], self.machine.cols
        size = 1 if path["narrow"] else 4
        number = 0
        for i in range(values["m_blocks"]):
            last = i == values["m_blocks"] - 1
            for r in range(values["last_rows"] if last else values["rows"]):
                for j in range(values["n_blocks"]):
                    source = values["c"] + (i * values["n_blocks"] + j) * values["block_rows"] + r
                    address = values["base"] + i * path["block_pitch"] + j * cols * size + r * path["pitch"]
                    row = [self.finish(values, path, source, c, j, number * values["n_blocks"] + j) for c in range(cols)]
                    data = b"".join((value % (1 << 8 * size)).to_bytes(size, "little") for value in row)
                    count = values["last_bytes"] if j == values["n_blocks"] - 1 else len(data)
                    self.memory[address : address + count] = list(data[:count])
                number += 1

    def word(self, channel, at):
        taken = bytes(self.pads[Target.CHANNELS].get((0, channel, at + part), 0) for part in range(4))
        return in_range(int.from_bytes(taken, "little"), 32)

    def finish(self, values, path, source, column, block, residual):
        value = self.sums.get((source, column), 0)
        if path["bias"]:
            value = in_range(value + self.word(values["channel"] + block, 8 * column), 32)
        if not path["narrow"]:
            return value
        value = in_range(value, 32) * self.word(values["channel"] + block, 8 * column + 4)
        if path["residual"]:
            added = self.pads[Target.RESIDUAL].get((0, values["residual"] + residual, column), 0)
            value += (in_range(added, 8, bool(path["residual_signed"])) - path["residual_zero"]) * path["residual_multiplier"]
        value = rounded(value, path["shift"], self.machine.rounding) + path["zero"]
        return min(max(value, path["low"]), path["high"])


def rounded(value, shift, rounding):
    """A quotient by a power of two."""
    whole, rest, half = value >> shift, value % (1 << shift), (1 << shift) / 2
    if rounding is Rounding.FLOOR or rest < half or shift == 0:
        return whole
    if rest > half or rounding is Rounding.HALF_UP:
        return whole + 1
    if rounding is Rounding.HALF_EVEN:
        return whole + whole % 2
    return whole + (value > 0)
