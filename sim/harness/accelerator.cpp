// Runs programs on one accelerator and records every event; port and feed are those of its bus and of its command input.
#include "run.h"
#ifdef CELOSIA_AXI4
#include "axi4_port.h"
#else
#include "native_port.h"
#endif
#ifdef CELOSIA_REGISTERS
#include "register_feed.h"
#else
#include "stream_feed.h"
#endif

extern "C" void celosia_accelerator_run(Vblock* top, const uint8_t* commands, uint64_t count, uint8_t* memory, uint64_t bytes,
                                        const Options* options, int64_t* events, Result* result) {
    const Options o = *options;
    Chance chance{static_cast<uint64_t>(o.seed) * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull};
    std::memset(result, 0, sizeof *result);
    Run run{o, *result, chance, memory, bytes};
    Port port(run);
    Feed feed(run, commands, count);
    Port::rest(top);
    Feed::rest(top);
    if (o.reset) {
        top->rst = 1;
        tick(top);
        tick(top);
        top->rst = 0;
    }
    feed.begin(top);
    const bool ends = count && (commands[32 * (count - 1)] & 7) == CELOSIA_OP_END;
    int64_t cycle = 0, quiet = 0;
    result->status = kCycleBound;
    for (; cycle < o.max_cycles; ++cycle) {
        port.drive(top, cycle);
        feed.drive(top);
        tick(top);
        bool moved = feed.sample(top);
        if (top->done) {
            result->status = !feed.complete() ? kNotEnded : port.settled(top) ? kDone : kUnanswered;
            feed.finish(top);
            break;
        }
        const Status status = port.sample(top, cycle, moved);
        if (status != kDone) {
            result->status = status;
            break;
        }
        const unsigned seen = top->events;
        if (seen)
            for (int kind = 0; kind < 7; ++kind)
                if (seen >> kind & 1) {
                    if (result->counts[kind] < o.capacity) events[kind * o.capacity + result->counts[kind]] = cycle;
                    ++result->counts[kind];
                }
        quiet = seen || moved ? 0 : quiet + 1;
        if (quiet > o.hang_limit) {
            result->status = ends ? kHang : kNotEnded;
            break;
        }
    }
    Port::rest(top);
    Feed::rest(top);
    tick(top);  // outputs now show what the last cycle left behind
    result->cycles = cycle;
    result->waiting = top->waiting;
    result->error = top->error;
}
