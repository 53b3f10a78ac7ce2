// States of a walk that were met, and which state follows which: what begins alike goes on alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using Int = int64_t;
enum Ledger { kFill, kLoadWait, kStoreWait, kDispatchWait, kCommand, kPreload, kBeats, kArrayPad, kDrain, kStoreTail, kLedger };

// States are written and compared four numbers at a time. Whoever is read so has room for three more behind.
typedef Int Four __attribute__((vector_size(32), aligned(8), may_alias));
constexpr size_t kSlack = 3;
constexpr size_t whole(size_t count) { return (count + kSlack) / 4 * 4; }
inline Four& fours(Int* at) { return *reinterpret_cast<Four*>(at); }
inline const Four& fours(const Int* at) { return *reinterpret_cast<const Four*>(at); }

struct Writer {
    Int* out;
    Four mixed;
    void put(const Four& four) {
        fours(out) = four;
        out += 4;
        mixed = mixed + mixed + four;
    }
    // Times relative to a base; those up to it are all the same.
    void put(const Int* times, size_t count, Int base) {
        for (; count >= 4; count -= 4, times += 4) {
            const Four ahead = fours(times) - base;
            put(ahead & (ahead > 0));
        }
        if (!count) return;
        const Four ahead = fours(times) - base, place = {0, 1, 2, 3};
        put(ahead & (ahead > 0) & (place < static_cast<Int>(count)));
    }
};

// What a stretch of a walk adds.
struct Sums {
    Int cycles, steps;
    Int ledger[kLedger];
};

// Stretches by what they are: an iteration of the outer or of the middle loop, the end of an innermost loop, one step of it.
enum Stretch { kOuter, kMiddle, kRest, kStep, kStretches };

// From a state, a stretch of a certain kind leads to another state.
struct Move {
    Int kind;
    int to, next;
    Sums sums;
};

class Memory {
  public:
    static constexpr size_t kMost = 1024, kMostWords = 1 << 20;  // states and their words, beyond which all are to be forgotten
    int generation = 0;                                          // numbers of states hold within one
    void clear() {
        states.clear(), moves.clear();
        buckets.fill(-1);
        used = 0;
        ++generation;
    }
    bool full() const { return states.size() >= kMost || used >= kMostWords; }
    // Room for a state, to be written.
    Writer draft(size_t most) {
        if (words.size() < used + most) words.resize(2 * (used + most));
        return {&words[used], Four{}};
    }
    // Number of the state that was written.
    int number(const Writer& writer) {
        const Int* const first = &words[used];
        const size_t size = static_cast<size_t>(writer.out - first);
        const Four& mixed = writer.mixed;
        const uint64_t hash = mix(mix(mix(mixed[0]) + mixed[1]) + mixed[2]) + static_cast<uint64_t>(mixed[3]);
        int& bucket = buckets[mix(hash) >> (64 - kBits)];
        for (int known = bucket; known >= 0; known = at(known).next)
            if (at(known).hash == hash && at(known).size == size && equal(first, state(known), size)) return known;
        states.push_back({hash, used, size, bucket, -1});
        used += size;
        return bucket = static_cast<int>(states.size()) - 1;
    }
    const Int* state(int number) const { return &words[at(number).first]; }
    const Move* find(int from, Int kind) const {
        for (int move = at(from).moves; move >= 0; move = moves[static_cast<size_t>(move)].next)
            if (moves[static_cast<size_t>(move)].kind == kind) return &moves[static_cast<size_t>(move)];
        return nullptr;
    }
    Move& add(int from, Int kind, int to) {
        int& first = states[static_cast<size_t>(from)].moves;
        Move& move = moves.emplace_back();
        move.kind = kind, move.to = to, move.next = first;
        first = static_cast<int>(moves.size()) - 1;
        return move;
    }

  private:
    static constexpr int kBits = 6;
    struct State {
        uint64_t hash;
        size_t first, size;
        int next, moves;  // the next state of the bucket, the first move from here
    };
    std::vector<Int> words;
    size_t used;
    std::vector<State> states;
    std::vector<Move> moves;
    std::array<int, 1 << kBits> buckets;
    const State& at(int number) const { return states[static_cast<size_t>(number)]; }
    static uint64_t mix(uint64_t word) { return word * 0x9e3779b97f4a7c15u; }
    static bool equal(const Int* a, const Int* b, size_t size) {
        Four differ{};
        for (size_t place = 0; place < size; place += 4) differ |= fours(a + place) ^ fours(b + place);
        return !(differ[0] | differ[1] | differ[2] | differ[3]);
    }
};

}  // namespace
