// Commands written word by word into memory-mapped registers, as fast as they are taken. Offsets (CELOSIA_REGISTER_*) are generated.
#pragma once
#include "run.h"

namespace {

constexpr int kWords = 8, kPatience = 1000;

struct Answer {
    uint32_t data;
    int response;  // -1: none came
};

// One access while nothing else happens on the registers.
Answer access_register(Vblock* top, bool write, uint32_t offset, uint32_t data, unsigned strobe) {
    bool address = true, content = write;
    for (int cycle = 0; cycle < kPatience; ++cycle) {
        top->s_axi_awaddr = top->s_axi_araddr = static_cast<uint8_t>(offset);
        top->s_axi_awvalid = write && address;
        top->s_axi_arvalid = !write && address;
        top->s_axi_wvalid = content;
        top->s_axi_wdata = data;
        top->s_axi_wstrb = static_cast<uint8_t>(strobe);
        top->s_axi_bready = top->s_axi_rready = 1;
        tick(top);
        const bool answered = write ? top->s_axi_bvalid : top->s_axi_rvalid;
        const Answer answer{top->s_axi_rdata, write ? top->s_axi_bresp : top->s_axi_rresp};
        address = address && !(write ? top->s_axi_awready : top->s_axi_arready);
        content = content && !top->s_axi_wready;
        if (answered) return answer;
    }
    return {0, -1};
}

class Feed {
public:
    Feed(Run& run, const uint8_t* commands, uint64_t count) : run_(run), commands_(commands), words_(kWords * count) {}

    static void rest(Vblock* top) { top->s_axi_awvalid = top->s_axi_wvalid = top->s_axi_arvalid = 0; }

    void begin(Vblock* top) const {
        const auto& o = run_.options;
        access_register(top, true, CELOSIA_REGISTER_LIMITS, static_cast<uint32_t>(o.queue_depth | o.outstanding << 16), 15);
#ifdef CELOSIA_AXI4
        access_register(top, true, CELOSIA_REGISTER_BASE_LOW, static_cast<uint32_t>(kBase), 15);
        access_register(top, true, CELOSIA_REGISTER_BASE_HIGH, static_cast<uint32_t>(kBase >> 32), 15);
#endif
        rest(top);
        tick(top);
        tick(top);
    }

    void drive(Vblock* top) {
        const int64_t stall = run_.options.command_stall;
        const bool more = next_ < words_;
        top->s_axi_bready = !run_.chance.strike(stall);
        address_.offer(more, run_.chance, stall);
        data_.offer(more, run_.chance, stall);
        top->s_axi_awvalid = address_.offered;
        top->s_axi_wvalid = data_.offered;
        if (!more) return;
        uint32_t word;
        std::memcpy(&word, commands_ + 4 * next_, 4);
        top->s_axi_awaddr = static_cast<uint8_t>(CELOSIA_REGISTER_COMMAND_0 + 4 * (next_ % kWords));
        top->s_axi_wdata = word;
        top->s_axi_wstrb = 15;
    }

    bool sample(Vblock* top) {
        const bool moved = address_.take(top->s_axi_awready) | data_.take(top->s_axi_wready);
        if (address_.taken && data_.taken) {
            ++next_;
            address_ = data_ = Half();
        }
        return moved;
    }

    bool complete() const { return next_ == words_; }

    // Take the last answer.
    void finish(Vblock* top) {
        rest(top);
        top->s_axi_bready = 1;
        for (int cycle = 0; cycle < 4; ++cycle) tick(top);
    }

private:
    // Address or data of the present word.
    struct Half {
        bool offered = false, taken = false;
        void offer(bool more, Chance& chance, int64_t stall) { offered = more && !taken && (offered || !chance.strike(stall)); }
        bool take(bool ready) {
            const bool now = offered && ready;
            taken |= now;
            offered &= !now;
            return now;
        }
    };
    Run& run_;
    const uint8_t* commands_;
    uint64_t words_, next_ = 0;
    Half address_, data_;
};

}  // namespace

extern "C" int64_t celosia_register_access(Vblock* top, int write, uint32_t offset, uint32_t data, uint32_t strobe) {
    Port::rest(top);
    const Answer answer = access_register(top, write, offset, data, strobe);
    Feed::rest(top);
    return static_cast<int64_t>(answer.response) << 32 | answer.data;
}
