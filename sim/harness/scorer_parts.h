// What a walk over a schedule consists of: rows of the table, queues, tile caches and loops. `scorer_contract.h` is generated from the
// contract: the columns of the table (enum Column, kColumns), and those of them that are the structure (kStructure).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "scorer_contract.h"

namespace {

using Int = int64_t;
constexpr size_t kLanes = 8;  // rows per vector: a register of AVX2; compilers split wider ones badly
typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));

template <class Time> inline Time later(const Time& a, const Time& b) { return a > b ? a : b; }
template <class Time> inline Time later(const Time& a, const Time& b, const Time& c) { return later(later(a, b), c); }

// Rows of the table that are scored together; a group that is not full repeats its last row.
struct Rows {
    const Int* first;
    size_t count;
    Int shared(int column) const { return first[column]; }
    template <class Time> Time read(int column) const {
        if constexpr (std::is_same_v<Time, Int>) {
            return first[column];
        } else {
            Time values;
            for (size_t lane = 0; lane < kLanes; ++lane) {
                values[lane] = static_cast<int32_t>(first[std::min(lane, count - 1) * kColumns + static_cast<size_t>(column)]);
            }
            return values;
        }
    }
};

// Pops of the last commands of a queue.
template <class Time> struct Ring {
    std::vector<Time> pops;
    size_t count, mask, depth;
    void reset(Int deep) {
        depth = static_cast<size_t>(deep);
        mask = 1;
        while (mask < depth) mask *= 2;
        pops.assign(mask, Time{} - 1);
        count = 0;
        --mask;
    }
    const Time& back(size_t place) const { return pops[(count - place) & mask]; }
    void push(const Time& cycle) { pops[count++ & mask] = cycle; }
};

// First in, first out cache of the tiles of one operand.
template <class Time> struct Slots {
    struct Slot {
        Int key;
        Time ready, used;
        int state;  // of an output tile: 0 empty, 1 unfinished, 2 store pending, 3 stored
    };
    std::vector<Slot> slots;
    size_t turn;
    Int stride[3];  // of the key, by axis
    void reset(Int count, Int m, Int n, Int k) {
        slots.assign(static_cast<size_t>(count), Slot{-1, Time{}, Time{}, 0});
        turn = 0;
        stride[0] = m, stride[1] = n, stride[2] = k;
    }
    Slot* find(Int wanted) {
        for (Slot& slot : slots)
            if (slot.key == wanted) return &slot;
        return nullptr;
    }
    Slot* take() {
        Slot* slot = &slots[turn];
        if (++turn == slots.size()) turn = 0;
        return slot;
    }
};

// One loop: which index it is at, and which kind of tile that is (+1: last of its period, +2: in the last period).
struct Axis {
    Int count, period, last_period, at, phase;
    int kind;
    void reset(Int tiles, Int every, Int last) {
        count = tiles, period = every, last_period = last;
        at = phase = 0;
        classify();
    }
    void classify() { kind = (phase == period - 1) + 2 * (at >= last_period); }
    bool next() {
        if (++phase == period) phase = 0;
        const bool more = ++at < count;
        if (!more) at = phase = 0;
        classify();
        return more;
    }
    // Indices behind this one, without a gap, that are of its kind.
    Int alike() const {
        if (phase != period - 1) return period - 2 - phase;
        return period > 1 ? 0 : (at < last_period ? last_period : count) - 1 - at;
    }
    void skip(Int many) {
        at += many;
        phase += period > 1 ? many : 0;
    }
};

// How a loop went so far, to see when its iterations begin to repeat.
struct Steadiness {
    Int compute, load, age, patience;  // ages count iterations that look alike; from `patience` on they are compared
    std::vector<Int> seen, times;
};

}  // namespace
