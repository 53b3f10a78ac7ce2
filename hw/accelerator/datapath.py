"""The half of an accelerator that holds operands and multiplies: scratchpads, core, drain and accumulator memory."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Shape, Signal, Value
from amaranth.lib.wiring import In, Out

from ...intrinsics import DType
from ...intrinsics.accelerator.command import Target
from ..parameters import Dataflow, SystolicParameters
from ..shared import SharedPart
from ..systolic import SystolicArray
from .broadcast import BroadcastCore
from .drain import Drain
from .memories import scratch_memory
from .packer import loaded_words, packer_ports
from .parameters import AcceleratorParameters
from .scratchpad import Scratchpad
from .sequencer import sequencer_ports

_READS = tuple(f"{operand}_{name}" for operand in "ab" for name in ("beat", "read", "address", "unit"))
SEQUENCED = (*_READS, "last", "vector", "drain", "drain_valid")
"""Members that the sequencer drives."""
LOADED = ("write", "write_target", "write_bank", "write_address", "write_data")
"""Members that the loader drives."""


class Datapath(SharedPart):
    """Scratchpads, a core that multiplies what they hold, and an accumulator memory to which its rows are added.

    Parameters
    ----------
    parameters : AcceleratorParameters

    Members
    -------
    write, write_target, write_bank, write_address, write_data : In
        Words from the loader, of which those of A and B are kept here.
    a_*, b_*, last, vector, drain, drain_valid : In
        As the sequencer has them.
    done : Out(1)
        The last row of a command is being written.
    address, enable, data : a read port of the accumulator memory
    """

    def __init__(self, parameters: AcceleratorParameters) -> None:
        self.parameters, self.machine = parameters, parameters.accelerator_machine("")
        from_sequencer, from_loader = sequencer_ports(), packer_ports(loaded_words(self.machine))
        super().__init__(
            {
                **{name: In(Shape.cast(from_sequencer[name].shape)) for name in SEQUENCED},
                **{name: In(from_loader[name].shape) for name in LOADED},
                "done": Out(1),
                "address": In(16),
                "enable": In(1),
                "data": Out(self.machine.cols * self.machine.acc.width),
            }
        )

    @property
    def key(self) -> tuple[object, ...]:
        return (self.machine,)

    def body(self) -> Module:
        m = Module()
        drain = m.submodules.drainer = Drain(self.machine)
        row, row_valid = self._core(m, *self._scratchpads(m))
        memory = m.submodules.sums = scratch_memory(bits=len(self.data), depth=self.machine.acc_rows)
        write, read, out = memory.write_port(), memory.read_port(), memory.read_port()
        m.d.comb += [
            drain.command.as_value().eq(self.drain),
            drain.command_valid.eq(self.drain_valid),
            drain.row.eq(row),
            drain.row_valid.eq(row_valid),
            self.done.eq(drain.done),
            write.en.eq(drain.write),
            write.addr.eq(drain.write_address),
            write.data.eq(drain.write_data),
            read.addr.eq(drain.read_address),
            read.en.eq(1),
            drain.read_data.eq(read.data),
            out.addr.eq(self.address),
            out.en.eq(self.enable),
            self.data.eq(out.data),
        ]
        return m

    def _scratchpads(self, m: Module) -> tuple[Scratchpad, Scratchpad]:
        """Of A and B: units for every row and column, and whole words of A if the core takes them, in the cycle after a beat."""
        machine, pads = self.machine, []
        shapes = {
            "a": (machine.a_banks, machine.a_words, machine.a_word, machine.a_unit, Target.A),
            "b": (machine.b_banks, machine.b_words, machine.b_word, machine.b_unit, Target.B),
        }
        for name, (banks, words, word, unit, target) in shapes.items():
            pad = Scratchpad(banks=banks, words=words, word_bytes=word, unit_bytes=unit, whole=name == "a" and machine.broadcast)
            m.submodules[f"spad_{name}"] = pad
            m.d.comb += [
                pad.write.eq(self.write & (self.write_target == target)),
                pad.write_bank.eq(self.write_bank),
                pad.write_address.eq(self.write_address),
                pad.write_data.eq(self.write_data),
                pad.beat.eq(getattr(self, f"{name}_beat")),
                pad.read.eq(getattr(self, f"{name}_read") | (self.vector if name == "a" else 0)),
                pad.address.eq(getattr(self, f"{name}_address")),
                pad.unit.eq(getattr(self, f"{name}_unit")),
            ]
            pads.append(pad)
        return pads[0], pads[1]

    def _core(self, m: Module, a: Scratchpad, b: Scratchpad) -> tuple[Value, Value]:
        """The array; its inputs are the words that the beat one cycle before has read."""
        beat_a, beat_b, last, vector = (Signal(name=name) for name in ("beat_a", "beat_b", "is_last", "is_vector"))
        m.d.sync += [beat_a.eq(self.a_beat), beat_b.eq(self.b_beat), last.eq(self.last), vector.eq(self.vector)]
        machine = self.machine
        if machine.broadcast:
            core = m.submodules.core = BroadcastCore(machine)
            m.d.comb += [core.valid.eq(beat_a), core.last.eq(last), core.vector.eq(vector)]
            m.d.comb += [core.a_units.eq(a.units), core.b_units.eq(b.units), core.a_words.eq(a.data)]
            return core.row, core.row_valid
        array = m.submodules.core = SystolicArray(_core_parameters(self.parameters))
        m.d.comb += [
            array.i_a.valid.eq(beat_a),
            array.i_a.payload.data.eq(_elements(a.units, machine.a, machine.rows)),
            array.i_a.payload.last.eq(last),
            array.i_b.valid.eq(beat_b),
            array.i_b.payload.data.eq(_elements(b.units, machine.b, machine.cols)),
            array.o_c.ready.eq(1),
        ]
        return array.o_c.payload.data.as_value(), array.o_c.valid


def _core_parameters(p: AcceleratorParameters) -> SystolicParameters:
    """The systolic block inside; its accumulator wraps, for whether that can happen is a matter of the program."""
    dataflow = Dataflow.WEIGHT_STATIONARY if p.core == "weight-stationary" else Dataflow.OUTPUT_STATIONARY
    return SystolicParameters(rows=p.rows, cols=p.cols, dataflow=dataflow, a=p.a, b=p.b, acc=p.acc, overflow="wrap")  # type: ignore[arg-type]


def _elements(units: Value, dtype: DType, count: int) -> Value:
    """Elements side by side, out of the containers in which memory holds them."""
    return Cat(*(units.word_select(index, dtype.container_width)[: dtype.width] for index in range(count)))
