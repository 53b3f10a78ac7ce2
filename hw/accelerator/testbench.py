"""A self-checking testbench of an accelerator in plain Verilog: program, memory image and expected results inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...intrinsics.accelerator.functional import execute
from ...intrinsics.accelerator.machine import MemoryTiming
from ...intrinsics.accelerator.timing import EVENTS, Events, predict
from ...intrinsics.numerics import Array
from .emit import AcceleratorRtl
from .register_map import ID, IRQ, register_map
from .sample_program import POISON, Sample, sample_program
from .testbench_parts import AXI4, NATIVE, REGISTERS, STREAM, Part

TIMING = MemoryTiming(latency=9, write_latency=6)
"""The testbench's memory."""

_BASE = 0x0000001234567000
"""Address of the memory image behind AXI4."""

_LEAST_RING = 512

_TEMPLATE = """\
// celosia testbench of {top}
// hash {hash}
// Runs a program of {commands} commands three times without a reset between them. In the first and the third run nothing pauses: the
// end must come in cycle CYCLES (cycle 0 is that of the first command), and every event of the port `events` in its cycle. In the
// second run everything pauses at random (lfsr). All bytes of the outputs are compared after each run.
// Prints PASS, or FAIL after the first difference and ends with an error. Random operands, seed {seed}.
/* verilator lint_off WIDTH */
/* verilator lint_off PROCASSINIT */
/* verilator lint_off BLKSEQ */
/* verilator lint_off UNUSEDSIGNAL */
/* verilator lint_off UNUSEDPARAM */
module {top}_tb;
  localparam COMMANDS = {commands}, CYCLES = {cycles}, MAX_CYCLES = {max_cycles}, RUNS = 3, REST = 128, MOMENTS = {moments};
  // memory image: beats of PORT bytes; inputs, and from beat OUTPUTS on outputs
  localparam PORT = {port}, BEATS = {beats}, OUTPUTS = {outputs}, LATENCY = {latency}, WRITE_LATENCY = {write_latency}, RING = {ring};
  localparam SPLIT = {split}, SETUP = {setup}, CHECKS = {checks}, COMMAND_REGISTER = {command_register};
  localparam [63:0] BASE = 64'h{base:016x};
  localparam [7:0] POISON = 8'h{poison:02x};
  reg clk = 1'b0, rst = 1'b1;
  reg running = 1'b0, pauses = 1'b0;
  reg [31:0] lfsr = 32'h1;
  integer run = 0, cycle = 0, rest = 0, clock = 0, beat = 0, lane_index = 0, wrong = 0, moment = 0;
  wire clear = !running && rest == REST / 2 + 8;

  reg [255:0] commands [0:COMMANDS];
  reg [38:0] moments [0:MOMENTS];  // cycle, events
  reg [8 * PORT - 1:0] image [0:BEATS - 1];
  reg [8 * PORT - 1:0] wanted [OUTPUTS:BEATS - 1];

{outputs_declared}

{feed}
{memory}
  {top} dut (
    .clk(clk), .rst(rst),
{connections}
  );

  wire moment_is_now = moments[moment][38:7] == cycle;
  wire [6:0] events_wanted = moment_is_now ? moments[moment][6:0] : 7'd0;

  initial begin
{contents}
    repeat (3) @(negedge clk);
    rst = 1'b0;
  end

  always #5 clk = ~clk;

  always @(posedge clk) begin
    clock <= clock + 1;
    lfsr <= {{lfsr[30:0], lfsr[31] ^ lfsr[21] ^ lfsr[1] ^ lfsr[0]}};
    if (!rst && error) begin
      $display("FAIL: run %0d, cycle %0d: the design says error", run, cycle);
      $fatal(1);
    end
    if (running) begin
      cycle <= cycle + 1;
      moment <= moment + moment_is_now;
      if (!pauses && events !== events_wanted) begin
        $display("FAIL: run %0d, cycle %0d: events %b, expected %b", run, cycle, events, events_wanted);
        $fatal(1);
      end
      if (done) begin
        running <= 1'b0;
        rest <= 0;
      end else if (cycle == MAX_CYCLES) begin
        $display("FAIL: run %0d: no end after %0d cycles; waiting = %b", run, cycle, waiting);
        $fatal(1);
      end
    end else if (!rst) begin
      rest <= rest + 1;
      if (rest == REST / 2) begin
        if (run != 0) check;
        if (irq !== (run != 0)) begin
          $display("FAIL: run %0d: irq is %b behind the end", run, irq);
          $fatal(1);
        end
        pauses <= run == 1;
        if (run == RUNS) begin
          $display("PASS: %0d cycles, %0d bytes in each of %0d runs", CYCLES, (BEATS - OUTPUTS) * PORT, RUNS);
          $finish;
        end
      end
      if (rest == REST) begin
        if (irq !== 1'b0) begin
          $display("FAIL: run %0d: irq is %b after it was cleared", run, irq);
          $fatal(1);
        end
        running <= 1'b1;
        run <= run + 1;
        cycle <= 0;
        moment <= 0;
      end
    end
  end

  // All outputs, and the cycle of the end; `cycle` has gone one further.
  task check;
    begin
      wrong = 0;
      for (beat = OUTPUTS; beat < BEATS; beat = beat + 1)
        for (lane_index = 0; lane_index < PORT; lane_index = lane_index + 1)
          if (image[beat][8 * lane_index +: 8] !== wanted[beat][8 * lane_index +: 8]) begin
            if (wrong == 0)
              $display("run %0d: byte %0d of the memory image is %h, expected %h", run, beat * PORT + lane_index,
                       image[beat][8 * lane_index +: 8], wanted[beat][8 * lane_index +: 8]);
            wrong = wrong + 1;
          end
      if (wrong != 0 || cycle <= CYCLES || (cycle != CYCLES + 1 && !pauses)) begin
        $display("FAIL: run %0d: %0d wrong bytes; end in cycle %0d, of %0d", run, wrong, cycle - 1, CYCLES);
        $fatal(1);
      end
    end
  endtask
endmodule
"""


def accelerator_testbench(rtl: AcceleratorRtl, *, seed: int = 0) -> str:
    """Verilog source of module ``<name>_tb``.

    Parameters
    ----------
    rtl : AcceleratorRtl
    seed : int
        Of the random operands.

    Raises
    ------
    ParameterError
        If the design's memories do not hold what the least command needs (`sample_program`).
    """
    machine = rtl.machine
    sample = sample_program(machine, np.random.default_rng(seed))
    after = sample.memory.copy()
    execute(machine, sample.program, after)
    events = predict(machine, sample.program, memory=TIMING)
    moments, cycles = moments_of(events), events.cycles
    port, accesses = machine.port_bytes, accesses_of(rtl)
    feed, memory = REGISTERS if machine.mapped else STREAM, AXI4 if machine.axi else NATIVE
    beats, outputs = len(sample.memory) // port, sample.outputs // port
    return _TEMPLATE.format(
        top=rtl.top,
        hash=rtl.point.hash,
        seed=seed,
        commands=len(sample.program.commands),
        cycles=cycles,
        moments=len(moments),
        max_cycles=16 * cycles + 10_000,
        port=port,
        beats=beats,
        outputs=outputs,
        latency=TIMING.latency,
        write_latency=TIMING.write_latency,
        ring=max(_LEAST_RING, 1 << (beats - outputs).bit_length()),  # a response of each beat may be under way
        split=int(machine.split),
        setup=len(accesses["setup"]),
        checks=len(accesses["checks"]),
        command_register=register_map(base=False)["COMMAND_0"].offset,
        base=_BASE,
        poison=POISON,
        outputs_declared="\n".join(f"  wire [{port.width - 1}:0] {port.name};" for port in rtl.ports if port.direction == "out"),
        feed=feed.text,
        memory=memory.text,
        connections=",\n".join(_connections(rtl, feed, memory)),
        contents="\n".join(f"    {line}" for line in [*_accesses(accesses), *_contents(sample, moments, after)]),
    )


def accesses_of(rtl: AcceleratorRtl) -> dict[str, list[tuple[int, int]]]:
    """Registers to write before a run, and to read behind it: (offset, data); the last one read counts runs, whatever is said here."""
    if not rtl.machine.mapped:
        return {"setup": [], "checks": []}
    registers, done = register_map(base=rtl.machine.axi), 1 << IRQ.index("done")
    low, high = int(rtl.point.hash[-8:], 16), int(rtl.point.hash[:-8], 16)
    writes = [
        ("IRQ_ENABLE", done),
        ("IRQ_STATUS", done),
        *((("BASE_LOW", _BASE & 0xFFFFFFFF), ("BASE_HIGH", _BASE >> 32)) * rtl.machine.axi),
    ]
    reads = [("ID", ID), ("HASH_LOW", low), ("HASH_HIGH", high), ("IRQ_STATUS", done), ("PROGRAMS", 0)]
    return {
        name: [(registers[register].offset, data) for register, data in given] for name, given in (("setup", writes), ("checks", reads))
    }


def moments_of(events: Events) -> list[tuple[int, int]]:
    """Cycles in which something happens, and then the bits of the port ``events``, in order."""
    bits: dict[int, int] = {}
    for bit, name in enumerate(EVENTS):
        for cycle in events.times[name]:
            bits[cycle] = bits.get(cycle, 0) | 1 << bit
    return sorted(bits.items())


def _connections(rtl: AcceleratorRtl, *parts: Part) -> Iterator[str]:
    """Ports of the design; inputs that nothing drives are 0."""
    driven = {name for part in parts for name in part.drives}
    for port in rtl.ports[2:]:
        if port.direction == "out" or port.name in driven:
            yield f"    .{port.name}({port.name})"
        else:
            value = "BASE" if port.name == "memory_base" else f"{port.width}'d0"
            yield f"    .{port.name}({value})"


def _accesses(accesses: Mapping[str, list[tuple[int, int]]]) -> Iterator[str]:
    """Assignments to the tables of registers; a design with a command stream has none."""
    for name, pairs in accesses.items():
        for index, (offset, data) in enumerate([*pairs, (0, 0)] if pairs else []):
            yield f"{name}[{index}] = {{8'h{offset:02x}, 32'h{data:08x}}};"


_NEVER = (1 << 32) - 1


def _contents(sample: Sample, moments: list[tuple[int, int]], after: Array) -> Iterator[str]:
    """Assignments to the commands and the events, with one behind the last, to the inputs and to the expected outputs."""
    for index, word in enumerate([*sample.program.words, np.zeros(32, np.uint8)]):
        yield f"commands[{index}] = 256'h{_number(word):064x};"
    for index, (cycle, bits) in enumerate([*moments, (_NEVER, 0)]):
        yield f"moments[{index}] = {{32'd{cycle}, 7'b{bits:07b}}};"
    port = sample.port_bytes
    for name, content, span in (("image", sample.memory, (0, sample.outputs)), ("wanted", after, (sample.outputs, len(after)))):
        for start in range(*span, port):
            yield f"{name}[{start // port}] = {8 * port}'h{_number(content[start : start + port]):0{2 * port}x};"


def _number(little_endian: Array) -> int:
    return int.from_bytes(little_endian.tobytes(), "little")
