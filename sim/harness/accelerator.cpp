// Runs programs on one accelerator with a memory of fixed or varying latency, and records every event.
#include <cstring>
#include <vector>

namespace {

struct Options {
    int64_t latency, jitter, seed, queue_depth, outstanding, shared, reset, max_cycles, hang_limit, capacity;
    int64_t read_stall, write_stall, command_stall;  // probability times 2^32
};
struct Result {
    int64_t status, cycles, waiting, error, read_beats, write_beats, counts[7];
};
enum Status : int64_t { kDone = 0, kCycleBound = 1, kHang = 2, kClash = 3, kWriteOutside = 4, kNotEnded = 5 };

struct Chance {
    uint64_t state;
    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (state * 0x2545F4914F6CDD1Dull) >> 32;
    }
    bool strike(int64_t threshold) { return threshold && next() < static_cast<uint64_t>(threshold); }
};

constexpr size_t kPort = CELOSIA_PORT_BYTES;

void tick(Vblock* top) {
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
}

}  // namespace

extern "C" void celosia_accelerator_run(Vblock* top, const uint8_t* commands, uint64_t count, uint8_t* memory, uint64_t bytes,
                                        const Options* options, int64_t* events, Result* result) {
    const Options o = *options;
    Chance chance{static_cast<uint64_t>(o.seed) * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull};
    const int64_t slots = o.latency + o.jitter + 1;
    std::vector<uint8_t> ring(static_cast<size_t>(slots) * kPort), full(static_cast<size_t>(slots), 0);
    std::memset(result, 0, sizeof *result);
    if (o.reset) {
        top->rst = 1;
        top->command_valid = 0;
        top->response_valid = 0;
        top->irq_clear = 0;
        tick(top);
        tick(top);
        top->rst = 0;
    }
    top->limit_queue = static_cast<uint8_t>(o.queue_depth);
    top->limit_outstanding = static_cast<uint16_t>(o.outstanding);
    int64_t cycle = 0, quiet = 0, last_due = -1, slot = 0;
    uint64_t next = 0;
    result->status = kCycleBound;
    for (; cycle < o.max_cycles; ++cycle) {
        const bool answer = full[static_cast<size_t>(slot)];
        top->response_valid = answer;
        if (answer) std::memcpy(static_cast<void*>(&top->response_data), &ring[static_cast<size_t>(slot) * kPort], kPort);
        full[static_cast<size_t>(slot)] = 0;
        const bool offered = next < count && !chance.strike(o.command_stall);
        top->command_valid = offered;
        if (offered) std::memcpy(static_cast<void*>(&top->command), commands + 32 * next, 32);
        top->read_ready = !chance.strike(o.read_stall);
        top->write_ready = !chance.strike(o.write_stall);
        top->clk = 0;
        top->eval();
        const bool taken = offered && top->command_ready;
        const bool read = top->read_valid && top->read_ready, write = top->write_valid && top->write_ready;
        if (taken) ++next;
        if (top->done) {
            top->clk = 1;
            top->eval();
            result->status = next == count ? kDone : kNotEnded;
            break;
        }
        if (o.shared && read && write) {
            result->status = kClash;
            break;
        }
        if (read) {
            ++result->read_beats;
            int64_t due = cycle + o.latency;
            if (o.jitter) {
                due += static_cast<int64_t>(chance.next() % static_cast<uint64_t>(o.jitter + 1));
                if (due <= last_due) due = last_due + 1;
                last_due = due;
            }
            const size_t place = static_cast<size_t>(due % slots);
            const uint64_t at = static_cast<uint64_t>(top->read_address) * kPort;
            full[place] = 1;
            if (at + kPort <= bytes) std::memcpy(&ring[place * kPort], memory + at, kPort);
            else std::memset(&ring[place * kPort], 0xA5, kPort);  // padding outside of the image
        }
        if (write) {
            ++result->write_beats;
            const uint64_t at = static_cast<uint64_t>(top->write_address) * kPort;
            uint8_t data[kPort], mask[(kPort + 7) / 8];
            std::memcpy(data, static_cast<const void*>(&top->write_data), kPort);
            std::memcpy(mask, static_cast<const void*>(&top->write_mask), sizeof mask);
            for (size_t lane = 0; lane < kPort; ++lane) {
                if (!((mask[lane >> 3] >> (lane & 7)) & 1)) continue;
                if (at + lane >= bytes) {
                    result->status = kWriteOutside;
                    result->cycles = cycle;
                    return;
                }
                memory[at + lane] = data[lane];
            }
        }
        const unsigned seen = top->events;
        if (seen)
            for (int kind = 0; kind < 7; ++kind)
                if (seen >> kind & 1) {
                    if (result->counts[kind] < o.capacity) events[kind * o.capacity + result->counts[kind]] = cycle;
                    ++result->counts[kind];
                }
        quiet = seen || taken || read || write ? 0 : quiet + 1;
        if (quiet > o.hang_limit) {
            result->status = next == count || offered ? kHang : kNotEnded;
            if (next == count) result->status = kNotEnded;
            break;
        }
        top->clk = 1;
        top->eval();
        if (++slot >= slots) slot = 0;
    }
    result->cycles = cycle;
    result->waiting = top->waiting;
    result->error = top->error;
}
