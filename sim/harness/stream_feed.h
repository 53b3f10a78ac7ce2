// Commands from a stream.
#pragma once
#include "run.h"

namespace {

class Feed {
public:
    Feed(Run& run, const uint8_t* commands, uint64_t count) : run_(run), commands_(commands), count_(count) {}

    static void rest(Vblock* top) { top->command_valid = top->irq_clear = 0; }

    void begin(Vblock* top) const {
        top->limit_queue = static_cast<uint8_t>(run_.options.queue_depth);
        top->limit_outstanding = static_cast<uint16_t>(run_.options.outstanding);
#ifdef CELOSIA_AXI4
        top->memory_base = kBase;
#endif
    }

    void drive(Vblock* top) {
        top->command_valid = next_ < count_ && !run_.chance.strike(run_.options.command_stall);
        if (top->command_valid) std::memcpy(static_cast<void*>(&top->command), commands_ + 32 * next_, 32);
    }

    bool sample(Vblock* top) {
        const bool taken = top->command_valid && top->command_ready;
        next_ += taken;
        return taken;
    }

    bool complete() const { return next_ == count_; }
    void finish(Vblock*) {}

private:
    Run& run_;
    const uint8_t* commands_;
    uint64_t count_, next_ = 0;
};

}  // namespace
