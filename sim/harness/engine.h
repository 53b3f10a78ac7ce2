// Clock, streams and accounting of one simulated block. celosia_design.h describes the block and comes first.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>

namespace celosia {

enum Status : int32_t { kRunning = 0, kCycleBound = 1, kHang = 2, kSurplus = 3, kStopped = 4, kUnbound = 5 };
enum Ledger { kFill, kSteady, kDrain, kStall, kLedgerKinds };

// Says "not in this cycle" with a fixed probability; xorshift64*.
struct Jitter {
    uint64_t state = 1;
    uint64_t threshold = 0;  // probability times 2^32
    void configure(double probability, uint64_t seed) {
        threshold = static_cast<uint64_t>(probability * 4294967296.0);
        state = seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
        if (!state) state = 1;
    }
    bool strike() {
        if (!threshold) return false;
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return ((state * 0x2545F4914F6CDD1Dull) >> 32) < threshold;
    }
};

// Beats that wait for the block, as port images back to back. The last one may be held back (see hold).
template <class S>
struct InputStream {
    static constexpr size_t kBytes = S::kBytes;
    uint8_t* beats = nullptr;
    uint8_t* lasts = nullptr;
    size_t head = 0, visible = 0, tail = 0, capacity = 0;
    bool offering = false;
    Jitter jitter;
    uint64_t accepted = 0;

    ~InputStream() {
        delete[] beats;
        delete[] lasts;
    }
    bool pending() const { return head != visible; }
    void clear() {
        head = visible = tail = 0;
        offering = false;
        accepted = 0;
    }
    // Room for `count` more beats; the caller fills them and moves tail and visible.
    uint8_t* reserve(size_t count) {
        const size_t waiting = tail - head;
        if (tail + count > capacity) {
            if (waiting + count > capacity) grow(waiting + count);
            else move_down(beats, lasts);
        }
        std::memset(lasts + tail, 0, count);
        return beats + tail * kBytes;
    }
    void commit(size_t count, bool hold) {
        tail += count;
        visible = hold ? tail - 1 : tail;
    }
    void release(bool last) {
        lasts[tail - 1] = last;
        visible = tail;
    }
    bool offer(Top& top) {
        if (!offering) {
            if (head != visible && !jitter.strike()) {
                offering = true;
                std::memcpy(static_cast<void*>(&S::data(top)), beats + head * kBytes, kBytes);
                S::set_last(top, lasts[head]);
            }
            S::valid(top) = offering;
        }
        return offering;
    }
    bool take(Top& top) {
        if (!offering || !S::ready(top)) return false;
        ++head;
        ++accepted;
        offering = false;
        return true;
    }

private:
    void move_down(uint8_t* to_beats, uint8_t* to_lasts) {
        const size_t waiting = tail - head;
        if (waiting) {
            std::memmove(to_beats, beats + head * kBytes, waiting * kBytes);
            std::memmove(to_lasts, lasts + head, waiting);
        }
        visible -= head;
        tail = waiting;
        head = 0;
    }
    void grow(size_t least) {
        const size_t size = least < 512 ? 1024 : 2 * least;
        uint8_t* more_beats = new uint8_t[size * kBytes];
        uint8_t* more_lasts = new uint8_t[size];
        move_down(more_beats, more_lasts);
        delete[] beats;
        delete[] lasts;
        beats = more_beats;
        lasts = more_lasts;
        capacity = size;
    }
};

struct Tile {
    ElementC* base;
    int32_t strides[kStrides + 1];
};

struct Engine {
    Top* top = nullptr;
    bool owner = false;  // of the model
    InputStream<StreamA> a;
    InputStream<StreamB> b;
    Jitter back_pressure;
    bool ended = false;        // both inputs have their last beat in the queue
    bool started = false;      // an operand was on offer in this run
    bool seen_result = false;  // a result was accepted in this run
    std::deque<Tile> tiles;    // where results go, when they do not go to `raw`
    size_t tile_beat = 0;
    uint8_t* raw = nullptr;
    uint64_t due = 0;          // result beats that must still come
    uint64_t results = 0, calls = 0, runs = 0;
    uint64_t ledger[kLedgerKinds] = {};
    std::atomic<uint64_t> cycles{0};
    uint64_t quiet = 0, hang_limit = 100000, max_cycles = ~0ull;
    std::atomic<int32_t> stop{0};
    int32_t status = kRunning;
    VerilatedVcdC* vcd = nullptr;
    uint64_t vcd_time = 0;

    void dump() {
        if (__builtin_expect(vcd != nullptr, 0)) vcd->dump(vcd_time += 10);
    }
    void low() {
        top->clk = 0;
        top->eval();
        dump();
    }
    void high() {
        top->clk = 1;
        top->eval();
        dump();
    }
    void quiesce() {
        StreamA::valid(*top) = 0;
        StreamB::valid(*top) = 0;
        StreamC::ready(*top) = 1;
    }
    void collect();  // tiles.h

    void cycle() {
        const bool drained = ended && !a.pending();
        const bool offered = a.offer(*top) | b.offer(*top);
        const bool ready = !back_pressure.strike();
        StreamC::ready(*top) = ready;
        low();
        const bool took_a = a.take(*top), took_b = b.take(*top);
        const bool took_c = ready && StreamC::valid(*top);
        if (took_c) collect();
        high();
        account(drained, offered, took_a, took_b, took_c);
    }
    void account(bool drained, bool offered, bool took_a, bool took_b, bool took_c) {
        seen_result |= took_c;
        started |= offered;
        if (!started) return;
        ++ledger[drained ? kDrain : !took_a ? kStall : seen_result ? kSteady : kFill];
        const uint64_t now = cycles.load(std::memory_order_relaxed) + 1;
        cycles.store(now, std::memory_order_relaxed);
        quiet = (took_a | took_b | took_c) ? 0 : quiet + 1;
        if (__builtin_expect(quiet >= hang_limit, 0)) fail(kHang);
        if (__builtin_expect(stop.load(std::memory_order_relaxed), 0)) fail(kStopped);
        if (__builtin_expect(now >= max_cycles && busy(), 0)) fail(kCycleBound);
    }
    void fail(Status why) {
        if (!status) status = why;
    }
    bool busy() const { return a.pending() || b.pending() || due || a.tail != a.visible; }
    // Time passes only while both inputs have a beat on offer, so that a caller who offers beats piece by piece
    // measures the same cycles as one who offers all of them at once.
    void run_ready() {
        while (!status && a.pending() && b.pending()) cycle();
    }
    void run_out() {
        ended = true;
        while (!status && (a.pending() || b.pending() || due)) cycle();
        ended = started = seen_result = false;
        quiet = 0;
        ++runs;
        quiesce();
    }
    // Idle cycles after a run: no result may come, and none of them is counted.
    void idle(uint64_t count) {
        quiesce();
        for (uint64_t i = 0; i < count && !status; ++i) {
            low();
            if (StreamC::valid(*top)) fail(kSurplus);
            high();
        }
    }
    void clear() {
        a.clear();
        b.clear();
        tiles.clear();
        tile_beat = 0;
        raw = nullptr;
        due = results = calls = runs = quiet = 0;
        std::memset(ledger, 0, sizeof ledger);
        cycles = 0;
        stop = 0;
        status = kRunning;
        ended = started = seen_result = false;
    }
    void reset(uint64_t count) {
        clear();
        quiesce();
        top->rst = 1;
        for (uint64_t i = 0; i < count; ++i) {
            low();
            high();
        }
        top->rst = 0;
    }
};

}  // namespace celosia
