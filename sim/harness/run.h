// What a run is told and what it observes; shared by the memory ports and the command feeds.
#pragma once
#include "design.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

namespace {

struct Options {
    int64_t latency, jitter, write_latency, seed, queue_depth, outstanding, shared, reset, max_cycles, hang_limit, capacity;
    int64_t read_stall, write_stall, command_stall;  // probability times 2^32
    int64_t poison;                                  // byte that an AXI4 memory answers with an error; negative: none
    int64_t refresh_interval, refresh_cycles;
};
struct Result {
    int64_t status, cycles, waiting, error, read_beats, write_beats, read_bursts, write_bursts, counts[7];
};
enum Status : int64_t {
    kDone, kCycleBound, kHang, kClash, kWriteOutside, kNotEnded, kReadOutside,
    kUnstableRead, kUnstableWrite, kUnstableData, kPage, kShape, kLast, kUnanswered,
};

struct Chance {
    uint64_t state;
    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (state * 0x2545F4914F6CDD1Dull) >> 32;
    }
    bool strike(int64_t threshold) { return threshold && next() < static_cast<uint64_t>(threshold); }
    int64_t below(int64_t bound) { return static_cast<int64_t>(next() % static_cast<uint64_t>(bound)); }
};

constexpr size_t kPort = CELOSIA_PORT_BYTES;

// One cycle; see stepping.py.
void tick(Vblock* top) {
    top->clk ^= 1;
    top->eval();
}

// One run: memory image and counts.
struct Run {
    const Options& options;
    Result& result;
    Chance& chance;
    uint8_t* memory;
    uint64_t bytes;

    // Whether the memory refreshes: it starts nothing new.
    bool frozen(int64_t cycle) const {
        return options.refresh_cycles && (cycle + options.seed) % options.refresh_interval < options.refresh_cycles;
    }
    bool inside(uint64_t at, uint64_t size) const { return at <= bytes && size <= bytes - at; }
    void write(uint64_t at, const uint8_t* data, const uint8_t* mask) const {
        for (size_t lane = 0; lane < kPort; ++lane)
            if (mask[lane >> 3] >> (lane & 7) & 1) memory[at + lane] = data[lane];
    }
};

}  // namespace
