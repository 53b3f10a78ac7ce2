// Memory behind the native port: every request is answered after a fixed or varying latency, in order.
#pragma once
#include "run.h"

namespace {

class Port {
public:
    explicit Port(Run& run)
        : run_(run), slots_(run.options.latency + run.options.jitter + 1), ring_(static_cast<size_t>(slots_) * kPort), full_(static_cast<size_t>(slots_), 0) {}

    static void rest(Vblock* top) { top->response_valid = 0; }

    void drive(Vblock* top, int64_t cycle) {
        if (run_.frozen(cycle)) {
            top->response_valid = top->read_ready = top->write_ready = 0;
            return;
        }
        ++now_;
        const size_t slot = static_cast<size_t>(slot_);
        top->response_valid = full_[slot];
        if (full_[slot]) std::memcpy(static_cast<void*>(&top->response_data), &ring_[slot * kPort], kPort);
        full_[slot] = 0;
        top->read_ready = !run_.chance.strike(run_.options.read_stall);
        top->write_ready = !run_.chance.strike(run_.options.write_stall);
        if (++slot_ >= slots_) slot_ = 0;
    }

    // Handshakes of the cycle; `moved` tells whether there was one.
    Status sample(Vblock* top, int64_t, bool& moved) {
        const bool read = top->read_valid && top->read_ready, write = top->write_valid && top->write_ready;
        moved |= read || write;
        if (run_.options.shared && read && write) return kClash;
        if (read) {
            ++run_.result.read_beats;
            int64_t due = now_ + run_.options.latency;
            if (run_.options.jitter) {
                due += run_.chance.below(run_.options.jitter + 1);
                if (due <= last_due_) due = last_due_ + 1;
                last_due_ = due;
            }
            const size_t place = static_cast<size_t>(due % slots_);
            const uint64_t at = static_cast<uint64_t>(top->read_address) * kPort;
            if (!run_.inside(at, kPort)) return kReadOutside;
            full_[place] = 1;
            std::memcpy(&ring_[place * kPort], run_.memory + at, kPort);
        }
        if (write) {
            ++run_.result.write_beats;
            const uint64_t at = static_cast<uint64_t>(top->write_address) * kPort;
            uint8_t data[kPort], mask[(kPort + 7) / 8];
            std::memcpy(data, static_cast<const void*>(&top->write_data), kPort);
            std::memcpy(mask, static_cast<const void*>(&top->write_mask), sizeof mask);
            for (size_t lane = 0; lane < kPort; ++lane)
                if ((mask[lane >> 3] >> (lane & 7) & 1) && at + lane >= run_.bytes) return kWriteOutside;
            run_.write(at, data, mask);
        }
        return kDone;
    }

    bool settled(Vblock*) const { return true; }

private:
    Run& run_;
    const int64_t slots_;
    std::vector<uint8_t> ring_, full_;
    int64_t slot_ = 0, last_due_ = -1, now_ = -1;  // cycles in which the memory did not refresh
};

}  // namespace
