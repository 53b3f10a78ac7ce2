// What a walk over a schedule consists of: rows of the table, queues, memories of tiles and loops. `scorer_contract.h` is generated from
// the contract: the columns of the table (enum Column, kColumns), and those of them that are the structure (kStructure).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "scorer_contract.h"
#include "scorer_memory.h"

namespace {

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

// The last values of something that holds `depth` of them. Numbers are there twice, so that they lie in a row wherever the oldest is.
template <class Time> struct Ring {
    static constexpr bool kTwice = std::is_same_v<Time, Int>;
    std::vector<Time> values;
    size_t depth, oldest;
    void reset(Int deep, const Time& first) {
        depth = static_cast<size_t>(deep), oldest = 0;
        const size_t size = (kTwice ? 2 : 1) * depth;
        if (values.size() < size + kSlack) values.resize(size + kSlack);
        std::fill_n(values.begin(), size, first);
    }
    const Time& last() const { return values[oldest]; }  // the oldest
    void set(size_t place, const Time& value) {
        values[place] = value;
        if constexpr (kTwice) values[place + depth] = value;
    }
    void turn() {
        if (++oldest == depth) oldest = 0;
    }
    void push(const Time& value) {
        set(oldest, value);
        turn();
    }
    void put(Writer& writer, Int base) const { writer.put(&last(), depth, base); }
    const Int* get(const Int* in, Int base) {
        oldest = 0;
        for (size_t copy = 0; copy < 2; ++copy)
            for (size_t place = 0; place < depth; place += 4) fours(&values[copy * depth + place]) = fours(in + place) + base;
        return in + whole(depth);
    }
};

// First in, first out memory of the tiles of one operand. The loops along its two axes sweep over tiles, all loaded anew whenever the
// third axis, which the operand lacks, begins; what follows along that axis finds them if there is a slot for each, and else none.
template <class Time> struct Slots {
    Ring<Time> ready, used;  // by slot; that of `ready` says which slot is next, which is the oldest
    size_t behind;
    bool keeps;     // tiles outlast their step
    Int stride[3];  // by level: how the place within a sweep of kept tiles follows from the indices
    // `repeats`: how often tiles are swept over before all are new; `level`: of the axis that the operand lacks.
    void reset(Int count, Int repeats, int level, const Int* tiles) {
        ready.reset(count, Time{}), used.reset(count, Time{});
        const Int sweep = level == 2 ? 1 : level == 1 ? tiles[2] : tiles[1] * tiles[2];
        keeps = repeats > 1 && count >= sweep;
        behind = static_cast<size_t>(keeps ? count - sweep : 0);
        const bool moves = keeps && sweep > 1;
        stride[0] = 0, stride[1] = moves && level == 0 ? tiles[2] : 0, stride[2] = moves;
    }
    size_t take() {
        const size_t slot = ready.oldest;
        ready.turn();
        return slot;
    }
    size_t kept(Int middle, Int inner) const {
        size_t slot = ready.oldest + behind;
        if (stride[2]) slot += static_cast<size_t>(middle * stride[1] + inner);
        return slot >= ready.depth ? slot - ready.depth : slot;
    }
    // How long after the oldest a slot is next.
    size_t rank(size_t slot) const { return slot < ready.oldest ? slot + ready.depth - ready.oldest : slot - ready.oldest; }
    void put(Writer& writer, Int base) {
        used.oldest = ready.oldest;
        used.put(writer, base);
        if (keeps) ready.put(writer, base);
    }
    const Int* get(const Int* in, Int base) {
        ready.oldest = 0;
        in = used.get(in, base);
        return keeps ? ready.get(in, base) : in;
    }
};

// One loop: which index it is at, which kind of tile that is (+1: last of its period, +2: in the last period), and whether tiles of the
// operand that lacks this axis are loaded, as they are at every `renewal` indices.
struct Axis {
    Int count, period, last_period, renewal, at, phase;
    int kind;
    bool fresh;
    void reset(Int tiles, Int every, Int last, Int renewed) {
        count = tiles, period = every, last_period = last, renewal = renewed;
        rewind();
    }
    void rewind() {
        at = phase = 0;
        classify();
    }
    void classify() {
        kind = (phase == period - 1) + 2 * (at >= last_period);
        fresh = !at || (renewal < count && !(at % renewal));
    }
    bool next() {
        if (++phase == period) phase = 0;
        const bool more = ++at < count;
        if (!more) at = phase = 0;
        classify();
        return more;
    }
    Int code() const { return 2 * kind + fresh; }
    // Whether of all indices of one kind in a row, at most the first is fresh, or all are.
    bool regular() const { return renewal >= count || renewal == 1 || renewal == period; }
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

}  // namespace
