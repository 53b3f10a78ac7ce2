// AXI4 memory, and a check of everything that the accelerator says to it. The image lies at kBase of a 64-bit address space.
// Reads take their data when the address is taken, and writes reach memory with their response: the least that AXI4 promises.
#pragma once
#include "run.h"

namespace {

constexpr uint64_t kBase = 0x0000001234567000ull, kPageBytes = 4096;
constexpr int kIncrementing = 1, kSlaveError = 2;

struct Address {
    uint64_t at;
    unsigned length, size, burst;
    bool operator==(const Address& other) const {
        return at == other.at && length == other.length && size == other.size && burst == other.burst;
    }
    uint64_t beats() const { return length + 1u; }
};

struct Data {
    uint8_t bytes[kPort], mask[(kPort + 7) / 8];
    bool last;
    bool operator==(const Data& other) const {
        return !std::memcmp(bytes, other.bytes, sizeof bytes) && !std::memcmp(mask, other.mask, sizeof mask) && last == other.last;
    }
};

// A channel's promise: once valid, nothing changes until it is taken.
template <typename Payload>
class Held {
public:
    bool broken(bool valid, bool ready, const Payload& payload) {
        const bool wrong = waiting_ && !(valid && payload == kept_);
        waiting_ = valid && !ready;
        kept_ = payload;
        return wrong;
    }

private:
    bool waiting_ = false;
    Payload kept_{};
};

class Port {
public:
    explicit Port(Run& run) : run_(run) {}

    static void rest(Vblock* top) {
        top->m_axi_arready = top->m_axi_awready = top->m_axi_wready = 0;
        top->m_axi_rvalid = top->m_axi_bvalid = 0;
    }

    void drive(Vblock* top, int64_t cycle) {
        const int64_t reads = run_.options.read_stall, writes = run_.options.write_stall;
        const bool awake = !run_.frozen(cycle);
        top->m_axi_arready = awake && !run_.chance.strike(reads);
        top->m_axi_awready = awake && !run_.chance.strike(writes);
        top->m_axi_wready = awake && !run_.chance.strike(writes);
        offers_read_ = !reads_.empty() && reads_.front().due <= cycle && (offers_read_ || (awake && !run_.chance.strike(reads)));
        top->m_axi_rvalid = offers_read_;
        if (offers_read_) {
            const Read& read = reads_.front();
            std::memcpy(static_cast<void*>(&top->m_axi_rdata), read.bytes, kPort);
            top->m_axi_rlast = read.last;
            top->m_axi_rresp = read.response;
        }
        offers_response_ =
            !responses_.empty() && responses_.front().due <= cycle && (offers_response_ || (awake && !run_.chance.strike(writes)));
        top->m_axi_bvalid = offers_response_;
        if (offers_response_) top->m_axi_bresp = responses_.front().response;
    }

    Status sample(Vblock* top, int64_t cycle, bool& moved) {
        if (offers_read_ && top->m_axi_rready) {
            moved = true;
            offers_read_ = false;
            reads_.pop_front();
        }
        if (offers_response_ && top->m_axi_bready) {
            moved = true;
            offers_response_ = false;
            for (const Write& write : responses_.front().writes) run_.write(write.at, write.data.bytes, write.data.mask);
            responses_.pop_front();
        }
        const Status read = sample_read(top, cycle, moved);
        return read != kDone ? read : sample_write(top, cycle, moved);
    }

    // Whether nothing is under way.
    bool settled(Vblock* top) const {
        const bool waits = top->m_axi_arvalid || top->m_axi_awvalid || top->m_axi_wvalid;
        return !waits && reads_.empty() && addresses_.empty() && data_.empty() && responses_.empty();
    }

private:
    struct Read {
        int64_t due;
        uint8_t bytes[kPort];
        bool last;
        int response;
    };
    struct Write {
        uint64_t at;
        Data data;
    };
    struct Response {
        int64_t due;
        int response;
        std::vector<Write> writes;
    };

    // Legality of a burst; its address becomes an offset into the image.
    Status check(Address& burst, Status outside) const {
        if (burst.burst != kIncrementing || (size_t(1) << burst.size) != kPort || burst.at % kPort) return kShape;
        if (burst.at / kPageBytes != (burst.at + burst.beats() * kPort - 1) / kPageBytes) return kPage;
        burst.at -= kBase;
        return run_.inside(burst.at, burst.beats() * kPort) ? kDone : outside;
    }

    int response(uint64_t at, uint64_t size) const {
        const uint64_t poison = static_cast<uint64_t>(run_.options.poison);
        return run_.options.poison >= 0 && at <= poison && poison < at + size ? kSlaveError : 0;
    }

    int64_t late(int64_t due, int64_t& last) {
        if (run_.options.jitter) due += run_.chance.below(run_.options.jitter + 1);
        return last = due > last ? due : last + 1;
    }

    Status sample_read(Vblock* top, int64_t cycle, bool& moved) {
        Address burst{top->m_axi_araddr, top->m_axi_arlen, top->m_axi_arsize, top->m_axi_arburst};
        if (held_read_.broken(top->m_axi_arvalid, top->m_axi_arready, burst)) return kUnstableRead;
        if (!top->m_axi_arvalid || !top->m_axi_arready) return kDone;
        moved = true;
        const Status status = check(burst, kReadOutside);
        if (status != kDone) return status;
        ++run_.result.read_bursts;
        run_.result.read_beats += static_cast<int64_t>(burst.beats());
        for (uint64_t beat = 0; beat < burst.beats(); ++beat) {
            const uint64_t at = burst.at + beat * kPort;
            Read read{late(cycle + run_.options.latency + static_cast<int64_t>(beat), last_read_), {}, beat == burst.length, response(at, kPort)};
            std::memcpy(read.bytes, run_.memory + at, kPort);
            reads_.push_back(read);
        }
        return kDone;
    }

    Status sample_write(Vblock* top, int64_t cycle, bool& moved) {
        Address burst{top->m_axi_awaddr, top->m_axi_awlen, top->m_axi_awsize, top->m_axi_awburst};
        Data data;
        std::memcpy(data.bytes, static_cast<const void*>(&top->m_axi_wdata), sizeof data.bytes);
        std::memcpy(data.mask, static_cast<const void*>(&top->m_axi_wstrb), sizeof data.mask);
        data.last = top->m_axi_wlast;
        if (held_write_.broken(top->m_axi_awvalid, top->m_axi_awready, burst)) return kUnstableWrite;
        if (held_data_.broken(top->m_axi_wvalid, top->m_axi_wready, data)) return kUnstableData;
        if (top->m_axi_awvalid && top->m_axi_awready) {
            moved = true;
            const Status status = check(burst, kWriteOutside);
            if (status != kDone) return status;
            addresses_.push_back(burst);
        }
        if (top->m_axi_wvalid && top->m_axi_wready) {
            moved = true;
            data_.push_back(data);
        }
        return gather(cycle);
    }

    // Join the data that came with the addresses that came.
    Status gather(int64_t cycle) {
        while (!addresses_.empty() && !data_.empty()) {
            const Address burst = addresses_.front();
            const bool complete = gathered_.size() == burst.length;
            if (data_.front().last != complete) return kLast;
            gathered_.push_back({burst.at + gathered_.size() * kPort, data_.front()});
            data_.pop_front();
            if (!complete) continue;
            ++run_.result.write_bursts;
            run_.result.write_beats += static_cast<int64_t>(burst.beats());
            responses_.push_back({late(cycle + run_.options.write_latency, last_response_), response(burst.at, burst.beats() * kPort), gathered_});
            gathered_.clear();
            addresses_.pop_front();
        }
        return kDone;
    }

    Run& run_;
    std::deque<Read> reads_;
    std::deque<Address> addresses_;
    std::deque<Data> data_;
    std::deque<Response> responses_;
    std::vector<Write> gathered_;
    Held<Address> held_read_, held_write_;
    Held<Data> held_data_;
    int64_t last_read_ = -1, last_response_ = -1;
    bool offers_read_ = false, offers_response_ = false;
};

}  // namespace
