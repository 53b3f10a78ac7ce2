// Operand tiles in memory to beats, result beats to tiles in memory, and the passes that tile calls make.
#pragma once
#include "engine.h"

namespace celosia {

// Offsets, in elements, of the beats of a tile and of the lanes of a beat, for one set of strides.
template <class S>
struct Walk {
    int32_t strides[kStrides + 1] = {};
    ptrdiff_t beat[S::kBeats], lane[S::kLanes];
    bool set = false, contiguous = false;

    void prepare(const int32_t* given) {
        if (set && !std::memcmp(strides, given, kStrides * sizeof *given)) return;
        std::memcpy(strides, given, kStrides * sizeof *given);
        spread(S::kBeatAxes, beat, S::kBeats);
        spread(S::kLaneAxes, lane, S::kLanes);
        contiguous = true;
        for (int i = 0; i < S::kLanes; ++i) contiguous &= lane[i] == i;
        set = true;
    }
    template <size_t kAxes>
    void spread(const Axis (&axes)[kAxes], ptrdiff_t* offsets, int count) {
        for (int i = 0; i < count; ++i) {
            int rest = i;
            offsets[i] = 0;
            for (size_t axis = kAxes; axis-- > 0; rest /= axes[axis].extent)
                if (axes[axis].stride >= 0) offsets[i] += ptrdiff_t(rest % axes[axis].extent) * strides[axes[axis].stride];
        }
    }
};

template <class S>
inline void pack_beat(const typename S::Element* from, const Walk<S>& walk, uint8_t* to) {
    using Element = typename S::Element;
    if constexpr (S::kWidth == 8 * sizeof(Element)) {
        constexpr size_t kUsed = S::kLanes * sizeof(Element);
        if (kUsed < S::kBytes) std::memset(to + kUsed, 0, S::kBytes - kUsed);
        if (walk.contiguous) {
            std::memcpy(to, from, kUsed);
        } else {
            Element lanes[S::kLanes];
            for (int i = 0; i < S::kLanes; ++i) lanes[i] = from[walk.lane[i]];
            std::memcpy(to, lanes, kUsed);
        }
    } else {
        constexpr uint64_t kMask = (1ull << S::kWidth) - 1;
        std::memset(to, 0, S::kBytes);
        uint64_t bits = 0;
        int count = 0;
        for (int i = 0; i < S::kLanes; ++i) {
            bits |= (static_cast<uint64_t>(from[walk.lane[i]]) & kMask) << count;
            for (count += S::kWidth; count >= 8; count -= 8, bits >>= 8) *to++ = static_cast<uint8_t>(bits);
        }
        if (count) *to = static_cast<uint8_t>(bits);
    }
}

template <class S>
inline void pack_tile(const void* base, Walk<S>& walk, const int32_t* strides, uint8_t* to) {
    walk.prepare(strides);
    const auto* elements = static_cast<const typename S::Element*>(base);
    for (int i = 0; i < S::kBeats; ++i, to += S::kBytes) pack_beat<S>(elements + walk.beat[S::kReverse ? S::kBeats - 1 - i : i], walk, to);
}

// `bits` holds a kWidth-bit number in its low bits; the result is that number.
inline ElementC extend(uint64_t bits) {
    constexpr int kUnused = 64 - StreamC::kWidth;
    bits <<= kUnused;
    return kSignedC ? static_cast<ElementC>(static_cast<int64_t>(bits) >> kUnused) : static_cast<ElementC>(bits >> kUnused);
}

inline ElementC lane_of(const uint8_t* beat, int lane) {
    const size_t first = size_t(lane) * StreamC::kWidth;
    const unsigned shift = first & 7;
    uint64_t bits;
    std::memcpy(&bits, beat + (first >> 3), 8);
    bits >>= shift;
    if (shift + StreamC::kWidth > 64) bits |= uint64_t(beat[(first >> 3) + 8]) << (64 - shift);
    return extend(bits);
}

inline ElementC add(ElementC x, ElementC y) {
    if constexpr (kOverflow == Overflow::Saturate) {
        const __int128 sum = static_cast<__int128>(x) + y;
        return static_cast<ElementC>(sum < kMinC ? kMinC : sum > kMaxC ? kMaxC : sum);
    }
    const uint64_t sum = static_cast<uint64_t>(x) + static_cast<uint64_t>(y);
    return kOverflow == Overflow::Wrap ? extend(sum) : static_cast<ElementC>(sum);
}

struct Simulation : Engine {
    Walk<StreamA> walk_a;
    Walk<StreamB> walk_b;
    Walk<StreamC> walk_c;
    bool open = false;  // the final activation beat of a pass is held back
    uint64_t calls_in_pass = 0;
    const void* pass_base = nullptr;
    int32_t pass_strides[kStrides + 1] = {};

    bool continues(const void* b_base, const void* c_base, const int32_t* strides) const {
        constexpr int kFirst = kResident == Resident::Acc ? kFirstStrideC : kFirstStrideB;
        constexpr int kLast = kResident == Resident::Acc ? kStrides : kFirstStrideC;
        const void* base = kResident == Resident::Acc ? c_base : b_base;
        return open && base == pass_base && !std::memcmp(pass_strides + kFirst, strides + kFirst, (kLast - kFirst) * sizeof *strides);
    }
    int32_t push(const void* a_base, const void* b_base, void* c_base, const int32_t* strides) {
        if (status) return status;
        const bool same = continues(b_base, c_base, strides);
        if (open) a.release(!same);
        if (!same) {
            calls_in_pass = 0;
            pass_base = kResident == Resident::Acc ? c_base : b_base;
            std::memcpy(pass_strides, strides, kStrides * sizeof *strides);
        }
        if (!same || kResident != Resident::Acc) expect_tile(c_base, strides);
        if (!same || kResident != Resident::B) {
            pack_tile<StreamB>(b_base, walk_b, strides, b.reserve(StreamB::kBeats));
            b.commit(StreamB::kBeats, false);
        }
        pack_tile<StreamA>(a_base, walk_a, strides, a.reserve(StreamA::kBeats));
        a.commit(StreamA::kBeats, true);
        ++calls;
        open = kResident != Resident::None && ++calls_in_pass != kMaxCallsPerPass;
        if (!open) a.release(true);
        run_ready();
        return status;
    }
    void expect_tile(void* base, const int32_t* strides) {
        Tile tile;
        tile.base = static_cast<ElementC*>(base);
        std::memcpy(tile.strides, strides, kStrides * sizeof *strides);
        tiles.push_back(tile);
        due += StreamC::kBeats;
    }
    int32_t flush() {
        if (status) return status;
        if (open) a.release(true);
        open = false;
        if (busy()) run_out();
        return status;
    }
    // A loop nest of tile calls, outermost loop first; `steps` holds, per loop, the elements that A, B and C move by.
    int32_t nest(const void* a_base, const void* b_base, void* c_base, int32_t loops, const int64_t* counts, const int64_t* steps,
                 const int32_t* strides) {
        if (loops == 0) return push(a_base, b_base, c_base, strides);
        for (int64_t i = 0; i < *counts && !status; ++i) {
            nest(static_cast<const StreamA::Element*>(a_base) + i * steps[0], static_cast<const StreamB::Element*>(b_base) + i * steps[1],
                 static_cast<ElementC*>(c_base) + i * steps[2], loops - 1, counts + 1, steps + 3, strides);
        }
        return status;
    }
    void reset(uint64_t count) {
        open = false;
        Engine::reset(count);
    }
};

inline void Engine::collect() {
    if (!due) return fail(kSurplus);
    --due;
    ++results;
    if (raw) {
        std::memcpy(raw, static_cast<const void*>(&StreamC::data(*top)), StreamC::kBytes);
        raw += StreamC::kBytes;
        return;
    }
    uint8_t beat[StreamC::kBytes + 16];
    std::memcpy(beat, static_cast<const void*>(&StreamC::data(*top)), StreamC::kBytes);
    auto& walk = static_cast<Simulation*>(this)->walk_c;
    const Tile& tile = tiles.front();
    walk.prepare(tile.strides);
    ElementC* to = tile.base + walk.beat[StreamC::kReverse ? StreamC::kBeats - 1 - tile_beat : tile_beat];
    for (int i = 0; i < StreamC::kLanes; ++i) to[walk.lane[i]] = add(to[walk.lane[i]], lane_of(beat, i));
    if (++tile_beat == size_t(StreamC::kBeats)) {
        tile_beat = 0;
        tiles.pop_front();
    }
}

}  // namespace celosia
