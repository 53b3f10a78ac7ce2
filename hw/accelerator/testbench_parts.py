"""Verilog of a testbench's memories and sources of commands: constant text, sized by the parameters that `testbench` declares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Part:
    """Declarations and processes that drive some inputs of a design.

    Parameters
    ----------
    text : str
        Verilog inside the module.
    drives : tuple of str
        Inputs of the design that it declares.
    """

    text: str
    drives: tuple[str, ...]


STREAM = Part(
    drives=("command", "command_valid", "irq_clear"),
    text="""\
  // Commands, one per cycle.
  integer next = 0;
  reg hold_command = 1'b0;
  wire command_valid = running && next < COMMANDS && !hold_command;
  wire [255:0] command = commands[next];
  wire irq_clear = clear;
  always @(posedge clk) begin
    hold_command <= pauses && lfsr[3] && !(command_valid && !command_ready);
    next <= running ? next + (command_valid && command_ready) : 0;
  end
""",
)

REGISTERS = Part(
    drives=(
        *("s_axi_awaddr", "s_axi_awvalid", "s_axi_wdata", "s_axi_wstrb", "s_axi_wvalid", "s_axi_bready"),
        *("s_axi_araddr", "s_axi_arvalid", "s_axi_rready"),
    ),
    text="""\
  // Registers are written word by word: before a run those of `setup`, in the run the commands; behind it those of `checks` are read.
  localparam WORDS = SETUP + 8 * COMMANDS;
  integer word = 0, checked = 0;
  reg address_sent = 1'b0, data_sent = 1'b0, hold_address = 1'b0, hold_data = 1'b0, hold_answer = 1'b0, asks = 1'b0;
  reg [39:0] setup [0:SETUP], checks [0:CHECKS];  // offset, data
  wire more = !rst && word < (running ? WORDS : SETUP);
  wire [255:0] written = commands[word < SETUP ? 0 : (word - SETUP) / 8];
  wire s_axi_awvalid = more && !address_sent && !hold_address;
  wire [7:0] s_axi_awaddr = word < SETUP ? setup[word][39:32] : COMMAND_REGISTER + 4 * ((word - SETUP) % 8);
  wire s_axi_wvalid = more && !data_sent && !hold_data;
  wire [31:0] s_axi_wdata = word < SETUP ? setup[word][31:0] : written >> 32 * ((word - SETUP) % 8);
  wire [3:0] s_axi_wstrb = 4'hf;
  wire s_axi_bready = !hold_answer;
  wire address_now = address_sent || (s_axi_awvalid && s_axi_awready);
  wire data_now = data_sent || (s_axi_wvalid && s_axi_wready);
  wire [7:0] s_axi_araddr = checks[checked][39:32];
  wire s_axi_arvalid = asks;
  wire s_axi_rready = 1'b1;
  wire [31:0] check_wanted = checked == CHECKS - 1 ? run : checks[checked][31:0];
  always @(posedge clk) begin
    hold_address <= pauses && lfsr[3] && !(s_axi_awvalid && !s_axi_awready);
    hold_data <= pauses && lfsr[7] && !(s_axi_wvalid && !s_axi_wready);
    hold_answer <= pauses && lfsr[13];
    address_sent <= address_now && !data_now;
    data_sent <= data_now && !address_now;
    if (clear) word <= 0;
    else if (address_now && data_now) word <= word + 1;
    if (s_axi_bvalid && s_axi_bready && s_axi_bresp != 0) begin
      $display("FAIL: run %0d, cycle %0d: a write to a register was answered with an error", run, cycle);
      $fatal(1);
    end
    if (running) checked <= 0;
    if (rest == 8 && run != 0) asks <= 1'b1;
    else if (asks && s_axi_arready) asks <= 1'b0;
    if (s_axi_rvalid) begin
      if (s_axi_rdata !== check_wanted || s_axi_rresp != 0) begin
        $display("FAIL: run %0d: register %h is %h, expected %h", run, s_axi_araddr, s_axi_rdata, check_wanted);
        $fatal(1);
      end
      checked <= checked + 1;
      asks <= checked != CHECKS - 1;
    end
    if (rest == REST / 2 - 1 && run != 0 && checked != CHECKS) begin
      $display("FAIL: run %0d: the read of register %h was not answered", run, s_axi_araddr);
      $fatal(1);
    end
  end
""",
)

NATIVE = Part(
    drives=("read_ready", "response_valid", "response_data", "write_ready"),
    text="""\
  // Memory: a beat per cycle each way, data LATENCY cycles behind the request.
  integer lane;
  reg hold_read = 1'b0, hold_write = 1'b0;
  reg [LATENCY - 1:0] due = 0;
  reg [8 * PORT * LATENCY - 1:0] answers = 0;
  wire read_ready = !hold_read, write_ready = !hold_write;
  wire response_valid = due[LATENCY - 1];
  wire [8 * PORT - 1:0] response_data = answers[8 * PORT * LATENCY - 1 -: 8 * PORT];
  wire reads = read_valid && read_ready, writes = write_valid && write_ready;
  always @(posedge clk) begin
    hold_read <= pauses && lfsr[11];
    hold_write <= pauses && lfsr[23];
    due <= {due, reads};
    answers <= {answers, image[read_address]};
    if (reads && read_address >= OUTPUTS) begin
      $display("FAIL: run %0d, cycle %0d: beat %0d is read, which is no input", run, cycle, read_address);
      $fatal(1);
    end
    if (writes && write_mask != 0 && (write_address < OUTPUTS || write_address >= BEATS)) begin
      $display("FAIL: run %0d, cycle %0d: beat %0d is written, which is no output", run, cycle, write_address);
      $fatal(1);
    end
    if (reads && writes && !SPLIT && !pauses) begin
      $display("FAIL: run %0d, cycle %0d: read and write on the shared port", run, cycle);
      $fatal(1);
    end
    if (clear) for (lane = OUTPUTS; lane < BEATS; lane = lane + 1) image[lane] = {PORT{POISON}};
    if (writes) for (lane = 0; lane < PORT; lane = lane + 1)
      if (write_mask[lane]) image[write_address][8 * lane +: 8] = write_data[8 * lane +: 8];
  end
""",
)

AXI4 = Part(
    drives=(
        *("m_axi_arready", "m_axi_rdata", "m_axi_rlast", "m_axi_rvalid"),
        *("m_axi_awready", "m_axi_wready", "m_axi_bvalid"),
    ),
    text="""\
  // AXI4 memory at BASE: the first beat of a burst LATENCY cycles behind its address, then one per cycle;
  // the response WRITE_LATENCY cycles behind the last beat. Rings hold what is under way.
  integer lane;
  reg hold_ar = 1'b0, hold_r = 1'b0, hold_aw = 1'b0, hold_w = 1'b0, hold_b = 1'b0;
  wire m_axi_arready = !hold_ar, m_axi_awready = !hold_aw, m_axi_wready = !hold_w;
  reg m_axi_rvalid = 1'b0, m_axi_rlast = 1'b0, m_axi_bvalid = 1'b0;
  reg [8 * PORT - 1:0] m_axi_rdata = 0;
  reg [63:0] ar_beat [0:RING - 1], aw_beat [0:RING - 1];
  reg [7:0] ar_len [0:RING - 1], aw_len [0:RING - 1];
  reg [8 * PORT - 1:0] w_data [0:RING - 1];
  reg [PORT - 1:0] w_strb [0:RING - 1];
  reg w_last [0:RING - 1];
  integer ar_due [0:RING - 1], b_due [0:RING - 1];
  integer ar_head = 0, ar_tail = 0, aw_head = 0, aw_tail = 0, w_head = 0, w_tail = 0, b_head = 0, b_tail = 0;
  integer r_count = 0, w_count = 0;

  // A burst of whole beats that stays in one page and between two beats of the image.
  task check_burst(input [63:0] address, input [7:0] len, input [2:0] size, input [1:0] burst, input [63:0] first, input [63:0] behind);
    if (burst != 1 || (1 << size) != PORT || address % PORT != 0 || (address >> 12) != ((address + (len + 64'd1) * PORT - 1) >> 12)
        || address < BASE || (address - BASE) / PORT < first || (address - BASE) / PORT + len >= behind) begin
      $display("FAIL: run %0d, cycle %0d: burst of %0d beats at %h, where or as it may not be", run, cycle, len + 1, address);
      $fatal(1);
    end
  endtask

  always @(posedge clk) begin
    hold_ar <= pauses && lfsr[3];
    hold_r <= pauses && lfsr[9];
    hold_aw <= pauses && lfsr[14];
    hold_w <= pauses && lfsr[20];
    hold_b <= pauses && lfsr[27];
    if (clear) for (lane = OUTPUTS; lane < BEATS; lane = lane + 1) image[lane] = {PORT{POISON}};

    if (m_axi_arvalid && m_axi_arready) begin
      check_burst(m_axi_araddr, m_axi_arlen, m_axi_arsize, m_axi_arburst, 0, OUTPUTS);
      ar_beat[ar_tail % RING] = (m_axi_araddr - BASE) / PORT;
      ar_len[ar_tail % RING] = m_axi_arlen;
      ar_due[ar_tail % RING] = clock + LATENCY;
      ar_tail = ar_tail + 1;
    end
    if (!m_axi_rvalid || m_axi_rready) begin
      m_axi_rvalid <= 1'b0;
      if (ar_head != ar_tail && clock + 1 >= ar_due[ar_head % RING] && !hold_r) begin
        m_axi_rvalid <= 1'b1;
        m_axi_rdata <= image[ar_beat[ar_head % RING] + r_count];
        m_axi_rlast <= r_count == ar_len[ar_head % RING];
        r_count = r_count + 1;
        if (r_count > ar_len[ar_head % RING]) begin
          r_count = 0;
          ar_head = ar_head + 1;
        end
      end
    end

    if (m_axi_awvalid && m_axi_awready) begin
      check_burst(m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst, OUTPUTS, BEATS);
      aw_beat[aw_tail % RING] = (m_axi_awaddr - BASE) / PORT;
      aw_len[aw_tail % RING] = m_axi_awlen;
      aw_tail = aw_tail + 1;
    end
    if (m_axi_wvalid && m_axi_wready) begin
      w_data[w_tail % RING] = m_axi_wdata;
      w_strb[w_tail % RING] = m_axi_wstrb;
      w_last[w_tail % RING] = m_axi_wlast;
      w_tail = w_tail + 1;
    end
    while (aw_head != aw_tail && w_head != w_tail) begin
      if (w_last[w_head % RING] != (w_count == aw_len[aw_head % RING])) begin
        $display("FAIL: run %0d, cycle %0d: WLAST is not at the end of a burst", run, cycle);
        $fatal(1);
      end
      for (lane = 0; lane < PORT; lane = lane + 1)
        if (w_strb[w_head % RING][lane])
          image[aw_beat[aw_head % RING] + w_count][8 * lane +: 8] = w_data[w_head % RING][8 * lane +: 8];
      w_head = w_head + 1;
      w_count = w_count + 1;
      if (w_count > aw_len[aw_head % RING]) begin
        w_count = 0;
        aw_head = aw_head + 1;
        b_due[b_tail % RING] = clock + WRITE_LATENCY;
        b_tail = b_tail + 1;
      end
    end
    if (!m_axi_bvalid || m_axi_bready) begin
      m_axi_bvalid <= b_head != b_tail && clock + 1 >= b_due[b_head % RING] && !hold_b;
      if (b_head != b_tail && clock + 1 >= b_due[b_head % RING] && !hold_b) b_head = b_head + 1;
    end
  end
""",
)
