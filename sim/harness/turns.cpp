// Exact cycles of schedules of an operator that is several convolutions of one shape, a row of the cost table each. Tiles are found by
// their keys, whatever turns share; configuration between turns waits until all is done. The scorer of single convolutions is faster.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "scorer_contract.h"

namespace {

using Int = int64_t;

// One convolution of the operator: which activations (and where in them) and which weights it reads, and where windows begin in a row.
struct Turn {
    Int a, b, left;
};
// The operator: turns from ends[i] to ends[i + 1] are added up. `confirmations`: of a store that ends with a block of columns.
struct Operator {
    const Int* ends;
    size_t sums;
    const Turn* turns;
    const Int* confirmations;
    Int blocks, left;  // blocks of columns of a group; left: as configured at first
};

// The last times of a queue; what is further back does not matter.
struct Ring {
    std::vector<Int> values;
    size_t oldest = 0;
    void reset(Int depth) { values.assign(static_cast<size_t>(depth), -1), oldest = 0; }
    Int last() const { return values[oldest]; }
    void push(Int value) {
        values[oldest] = value;
        if (++oldest == values.size()) oldest = 0;
    }
};

struct Slots {
    std::vector<Int> keys, ready, used;
    size_t next = 0;
    void reset(Int count) {
        const auto size = static_cast<size_t>(count);
        keys.assign(size, -1), ready.assign(size, 0), used.assign(size, 0), next = 0;
    }
    size_t find(Int key) const { return static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin()); }
    bool holds(size_t slot) const { return slot < keys.size(); }
    size_t take() {
        const size_t slot = next;
        if (++next == keys.size()) next = 0;
        return slot;
    }
};

class Walk {
  public:
    Int run(const Int* row, Int n_size, const Operator& op);

  private:
    struct Pending {
        Int step, ready, beats, confirmation;
        size_t slot;
    };

    const Int* row;
    Ring loads, computes, stores, taken;
    Slots a, b, c;
    std::vector<bool> live;
    std::vector<Pending> pending;
    size_t head;
    std::vector<Int> history;
    size_t history_at;
    Int dispatched, arrived, free_load, free_compute, free_store, loaded, written, stored, confirmed, left;
    bool legal;

    Int at(int column) const { return row[column]; }
    void reset(const Int* given, const Operator& op);
    Int dispatch(Ring& queue);
    void configure();
    Int last_request(Int start, Int beats);
    Int load(Int awaited, Int beats);
    size_t fetch(Slots& tiles, Int key, Int beats, const Int* corner);
    size_t claim(Int key, bool first, Int& freed);
    void store();
    void sum(const Operator& op, size_t index, Int n_size, Int& step);
    void compute(Int step, const Int* index, const Turn& turn, size_t sum, bool first, bool last, Int confirmation);
};

void Walk::reset(const Int* given, const Operator& op) {
    row = given;
    for (Ring* queue : {&loads, &computes, &stores}) queue->reset(at(queue_depth_));
    taken.reset(at(command_depth_));
    a.reset(at(a_slots_)), b.reset(at(b_slots_)), c.reset(at(c_slots_));
    live.assign(c.keys.size(), false);
    pending.clear(), head = 0;
    history.assign(static_cast<size_t>(at(outstanding_)), -(Int(1) << 40)), history_at = 0;
    dispatched = arrived = -1;
    free_load = free_compute = free_store = loaded = written = stored = confirmed = 0;
    left = op.left, legal = true;
    for (Int set = 0; set < at(sets_); ++set) configure();
    if (at(prologue_)) load(0, at(prologue_));
}

// Earliest pop of the next command of a queue.
Int Walk::dispatch(Ring& queue) {
    dispatched = std::max(dispatched, queue.last()) + 1;
    if (at(command_interval_)) {
        arrived = std::max(arrived + at(command_interval_), taken.last() + 1);
        dispatched = std::max(dispatched, arrived + 1);
        taken.push(dispatched);
    }
    return dispatched + 1;
}

// SET, and END: taken when everything so far is over.
void Walk::configure() {
    Int earliest = dispatched + 1;
    if (at(command_interval_)) {
        arrived = std::max(arrived + at(command_interval_), taken.last() + 1);
        earliest = std::max(earliest, arrived + 1);
    }
    dispatched = std::max({earliest, loaded, written, stored, confirmed});
    taken.push(dispatched);
}

Int Walk::last_request(Int start, Int beats) {
    const Int outstanding = at(outstanding_), latency = at(latency_), period = std::max(latency + 1, outstanding);
    if (outstanding > latency) return start + beats;
    const Int first = std::min(beats, outstanding), rest = beats - first, whole = rest / outstanding, more = rest % outstanding;
    auto place = static_cast<Int>(history_at);
    for (Int index = 0; index < first; ++index) {
        Int& last = history[static_cast<size_t>(place)];
        last = std::max(start + 1 + index, last + period) + period * (rest ? whole + (index < more) : 0);
        if (++place == outstanding) place = 0;
    }
    place = (place + more) % outstanding;
    history_at = static_cast<size_t>(place);
    return history[static_cast<size_t>(place ? place - 1 : outstanding - 1)];
}

// Cycle in which the load is visible.
Int Walk::load(Int awaited, Int beats) {
    const Int start = std::max({dispatch(loads), free_load, awaited});
    loads.push(start);
    const Int last = last_request(start, beats);
    free_load = last + 1;
    if (!at(split_)) free_store = free_load;
    return loaded = last + at(latency_) + 1;
}

// Slot of a tile; `corner` is where its windows begin, or null where it has none.
size_t Walk::fetch(Slots& tiles, Int key, Int beats, const Int* corner) {
    size_t slot = tiles.find(key);
    if (tiles.holds(slot)) return slot;
    slot = tiles.take();
    if (corner && *corner != left) left = *corner, configure();
    tiles.keys[slot] = key, tiles.ready[slot] = load(tiles.used[slot], beats), tiles.used[slot] = 0;
    return slot;
}

// Slot of a tile of C, and when what it held is stored; stores that free it go first.
size_t Walk::claim(Int key, bool first, Int& freed) {
    size_t slot = c.find(key);
    if (c.holds(slot)) return slot;
    slot = c.take();
    if (!first || live[slot]) {
        legal = false;
        return slot;
    }
    const auto held = [slot](const Pending& other) { return other.slot == slot; };
    const auto last = std::find_if(pending.rbegin(), pending.rend() - static_cast<std::ptrdiff_t>(head), held);
    auto many = pending.rend() - static_cast<std::ptrdiff_t>(head) - last;
    for (; many > 0; --many) store();
    freed = c.ready[slot];
    c.keys[slot] = key, live[slot] = true;
    return slot;
}

void Walk::store() {
    const Pending next = pending[head++];
    Ring& queue = at(split_) ? stores : loads;
    const Int start = std::max({dispatch(queue), free_store, next.ready});
    queue.push(start);
    free_store = start + next.beats + 1 + at(store_latency_);
    if (!at(split_)) free_load = free_store;
    c.ready[next.slot] = stored = free_store + 1;
    confirmed = stored + next.confirmation;
}

void Walk::compute(Int step, const Int* index, const Turn& turn, size_t sum, bool first, bool last, Int confirmation) {
    const Int m = index[0], n = index[1], k = index[2], tiles_m = at(tiles_m_), tiles_n = at(tiles_n_), tiles_k = at(tiles_k_);
    const Int period_m = at(period_m_), period_n = at(period_n_), share = at(a_share_), group = share ? n / share : 0;
    const int m_kind = (m % period_m == period_m - 1) + 2 * (m >= tiles_m - period_m), n_kind = n % period_n == period_n - 1;
    const int k_kind = k == tiles_k - 1;
    const Int key_a = ((turn.a * tiles_m + m) * tiles_n + group) * tiles_k + k, key_b = (turn.b * tiles_n + n) * tiles_k + k;
    const size_t slot_a = fetch(a, key_a, at(a_m_0_ + m_kind) * at(a_k_0_ + k_kind), &turn.left);
    const size_t slot_b = fetch(b, key_b, at(b_n_0_ + n_kind) * at(b_k_0_ + k_kind), nullptr);
    Int freed = 0;
    const size_t slot_c = claim((static_cast<Int>(sum) * tiles_m + m) * tiles_n + n, first, freed);
    if (!legal) return;
    const Int blocks = at(c_n_0_ + n_kind);
    const Int start = std::max({dispatch(computes), free_compute, a.ready[slot_a], b.ready[slot_b], freed});
    computes.push(start);
    free_compute = start + at(preload_) + at(c_m_0_ + m_kind) * blocks * at(c_k_0_ + k_kind) + 1;
    a.used[slot_a] = b.used[slot_b] = free_compute;
    written = free_compute + at(tail_0_ + m_kind);
    const auto flush = [&] {
        while (head < pending.size() && pending[head].step <= step - at(lag_)) store();
    };
    flush();
    if (!last) return;
    if (head == pending.size()) pending.clear(), head = 0;
    live[slot_c] = false, c.keys[slot_c] = -1;
    pending.push_back({step, written, at(s_m_0_ + m_kind) * blocks, confirmation, slot_c});
    flush();
}

void Walk::sum(const Operator& op, size_t index, Int n_size, Int& step) {
    const Int turns = op.ends[index + 1] - op.ends[index], tiles_k = at(tiles_k_), period_n = at(period_n_);
    const Int extents[] = {at(tiles_m_), at(tiles_n_), tiles_k * turns};
    const Int order[] = {at(outer_), at(middle_), at(inner_)};
    Int place[3];
    for (place[order[0]] = 0; place[order[0]] < extents[order[0]]; ++place[order[0]])
        for (place[order[1]] = 0; place[order[1]] < extents[order[1]]; ++place[order[1]])
            for (place[order[2]] = 0; place[order[2]] < extents[order[2]]; ++place[order[2]]) {
                const Int turn = place[2] / tiles_k, tile[] = {place[0], place[1], place[2] % tiles_k};
                const Int group = place[1] / period_n, end = std::min((place[1] % period_n + 1) * n_size, op.blocks);
                const Int confirmation = op.confirmations[group * op.blocks + end - 1];
                compute(step, tile, op.turns[op.ends[index] + turn], index, !place[2], place[2] == extents[2] - 1, confirmation);
                if (!legal) return;
                ++step;
            }
}

Int Walk::run(const Int* given, Int n_size, const Operator& op) {
    reset(given, op);
    Int step = 0;
    for (size_t index = 0; index < op.sums && legal; ++index) sum(op, index, n_size, step);
    if (!legal) return -1;
    while (head < pending.size()) store();
    configure();
    return dispatched;
}

}  // namespace

extern "C" void celosia_score(
    const int64_t* table, uint64_t rows, const int64_t* n_sizes, const int64_t* ends, uint64_t sums, const int64_t* turns,
    const int64_t* confirmations, int64_t blocks, int64_t left, int64_t* cycles) {
    static_assert(sizeof(Turn) == 3 * sizeof(int64_t), "three numbers per turn");
    const Operator op{ends, sums, reinterpret_cast<const Turn*>(turns), confirmations, blocks, left};
    Walk walk;
    for (size_t index = 0; index < rows; ++index) cycles[index] = walk.run(table + index * kColumns, n_sizes[index], op);
}
