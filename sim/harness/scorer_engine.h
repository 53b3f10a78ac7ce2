// The recurrence of the cycle model, command by command, for a row of the cost table (a time is a 64-bit number) or for a row in each
// lane (32 bits). The first also keeps the ledger, models reads that wait for credits, and can be written down as a state.
#pragma once

#include <limits>

#include "scorer_parts.h"

#define INLINE inline __attribute__((always_inline))  // the compiler would not, and a call costs as much as a command

namespace {

template <class Time> class Engine {
  public:
    static constexpr bool kSingle = std::is_same_v<Time, Int>;
    // The times that every command moves; a loop over steps keeps a copy in registers.
    struct Clock {
        Time dispatched, arrived, free_load, free_compute, free_store;
    };
    // What a step does; the same for all tiles of a kind.
    struct Plan {
        Time a_beats, b_beats, cycles, s_beats, tail;
        int m, n, k;
        bool loads_a, loads_b, begins;
    };
    Clock clock;
    Axis axes[3];
    int order[3];
    Int step;  // of the innermost loop, from the beginning
    Int ledger[kLedger];
    bool unbounded, accounts;

    void reset(const Rows& rows, bool with_ledger);
    bool legal() const { return axes[2].count == 1 || c.keeps; }
    Axis& axis(int level) { return axes[order[level]]; }
    const Axis& axis(int level) const { return axes[order[level]]; }
    // Whether the iterations of a loop look into the same slots, counted from the next one.
    bool still(int level) const { return !(a.stride[level] | b.stride[level] | c.stride[level]); }
    void prologue(const Time& beats) { load(clock, Time{}, beats); }
    Plan plan() const;
    void compute(Clock& now, const Plan& plan);
    Time finish(const Time& confirmation);
    void put(Memory& memory, int& number);
    void get(const Int* state);

  private:
    struct Pending {
        Int step;
        size_t slot;
        Time ready, beats;
    };

    Ring<Time> loads, computes, stores, taken;
    Slots<Time> a, b;
    Slots<Time> c;  // `ready` once stored
    std::vector<Pending> pending;
    size_t head;
    std::vector<Int> history;  // the last requests, oldest at history_at
    size_t history_at;
    Int lag, due;  // due: the step after which the next pending store goes out
    bool split, residual, mapped;
    Time latency, period, preload, store_latency, interval;
    Int outstanding;
    Time a_beats[4][2], b_beats[2][2], c_cycles[4][2][2], s_beats[4][2], tails[4];
    Int c_useful[4][2][2];

    void reset_loops(const Rows& rows);
    void price(const Rows& rows);
    // Cycle in which the next command of a memory-mapped queue is there.
    Time arrive(Clock& now) {
        now.arrived = later<Time>(now.arrived + interval, taken.last() + 1);
        return now.arrived + 1;
    }
    Time dispatch(Clock& now, const Ring<Time>& queue) {
        now.dispatched = later<Time>(now.dispatched, queue.last()) + 1;
        if (mapped) {
            now.dispatched = later<Time>(now.dispatched, arrive(now));
            taken.push(now.dispatched);
        }
        return now.dispatched + 1;
    }
    Time last_request(const Time& start, const Time& beats);
    Time load(Clock& now, const Time& awaited, const Time& beats);
    size_t fetch(Clock& now, Slots<Time>& tiles, bool loads, const Time& beats);
    void store(Clock& now);
    void settle() { due = head < pending.size() ? pending[head].step + lag : std::numeric_limits<Int>::max(); }
    void account(const Time& gap, bool loading, bool storing, const Plan& plan);
};

template <class Time> void Engine<Time>::reset(const Rows& rows, bool with_ledger) {
    accounts = with_ledger;
    latency = rows.read<Time>(latency_);
    outstanding = rows.shared(outstanding_);
    unbounded = outstanding > rows.shared(latency_);
    period = later<Time>(latency + 1, rows.read<Time>(outstanding_));
    split = rows.shared(split_), residual = rows.shared(residual_);
    store_latency = rows.read<Time>(store_latency_);
    preload = rows.read<Time>(preload_);
    lag = rows.shared(lag_);
    for (Ring<Time>* queue : {&loads, &computes, &stores}) queue->reset(rows.shared(queue_depth_), Time{} - 1);
    if (!unbounded) history.assign(static_cast<size_t>(outstanding), -(Int(1) << 40));
    pending.clear();
    history_at = head = 0;
    step = 0;
    settle();
    clock.free_load = clock.free_compute = clock.free_store = Time{};
    mapped = rows.shared(command_interval_), interval = rows.read<Time>(command_interval_);
    taken.reset(mapped ? rows.shared(command_depth_) : 1, Time{} - 1);
    clock.arrived = rows.read<Time>(sets_) * interval - 1;
    clock.dispatched = mapped ? clock.arrived + 1 : rows.read<Time>(sets_) - 1;
    std::fill(ledger, ledger + kLedger, 0);
    reset_loops(rows);
    price(rows);
}

// Whether all kinds of tiles cost the same: the last one along an axis is then like the others.
inline bool even(const Rows& rows, std::initializer_list<int> columns, int kinds) {
    if (rows.count > 1) return false;
    for (int column : columns)
        for (int kind = 1; kind < kinds; ++kind)
            if (rows.shared(column) != rows.shared(column + kind)) return false;
    return true;
}

template <class Time> void Engine<Time>::reset_loops(const Rows& rows) {
    const Int tiles[] = {rows.shared(tiles_m_), rows.shared(tiles_n_), rows.shared(tiles_k_)};
    const Int share = rows.shared(a_share_) ? rows.shared(a_share_) : tiles[1];
    int level_of[3];
    Int by_level[3];
    for (int level = 0; level < 3; ++level) {
        order[level] = static_cast<int>(rows.shared(outer_ + level));
        level_of[order[level]] = level;
        by_level[level] = tiles[order[level]];
    }
    a.reset(rows.shared(a_slots_), share, level_of[1], by_level);
    b.reset(rows.shared(b_slots_), tiles[0], level_of[0], by_level);
    c.reset(rows.shared(c_slots_), tiles[2], level_of[2], by_level);
    const bool even_m = even(rows, {a_m_0_, c_m_0_, s_m_0_, u_m_0_, tail_0_}, 4);
    const bool even_n = share == tiles[1] && even(rows, {b_n_0_, c_n_0_}, 2);
    const Int period_m = even_m ? tiles[0] + 1 : rows.shared(period_m_), period_n = even_n ? tiles[1] + 1 : rows.shared(period_n_);
    axes[0].reset(tiles[0], period_m, even_m ? tiles[0] : tiles[0] - period_m, b.keeps ? tiles[0] : 1);
    axes[1].reset(tiles[1], period_n, tiles[1], a.keeps ? share : 1);
    axes[2].reset(tiles[2], tiles[2], tiles[2], tiles[2]);
}

// What every kind of command costs, for every kind of tile.
template <class Time> void Engine<Time>::price(const Rows& rows) {
    for (int m = 0; m < 4; ++m) {
        tails[m] = rows.read<Time>(tail_0_ + m);
        const Time rows_c = rows.read<Time>(c_m_0_ + m), rows_a = rows.read<Time>(a_m_0_ + m), rows_s = rows.read<Time>(s_m_0_ + m);
        for (int k = 0; k < 2; ++k) a_beats[m][k] = rows_a * rows.read<Time>(a_k_0_ + k);
        for (int n = 0; n < 2; ++n) {
            const Time blocks = rows.read<Time>(c_n_0_ + n);
            s_beats[m][n] = rows_s * blocks;
            for (int k = 0; k < 2; ++k) c_cycles[m][n][k] = rows_c * blocks * rows.read<Time>(c_k_0_ + k);
            for (int k = 0; accounts && k < 2; ++k)
                c_useful[m][n][k] = rows.shared(u_m_0_ + m) * rows.shared(c_n_0_ + n) * rows.shared(u_k_0_ + k);
        }
    }
    for (int n = 0; n < 2; ++n)
        for (int k = 0; k < 2; ++k) b_beats[n][k] = rows.read<Time>(b_n_0_ + n) * rows.read<Time>(b_k_0_ + k);
}

// u_i = max(u_{i-1} + 1, h_i + P) with u_{-1} = s is max(s + 1 + i, h_i + P): the h_i are at least one apart.
template <class Time> INLINE Time Engine<Time>::last_request(const Time& start, const Time& beats) {
    if constexpr (kSingle) {
        if (!unbounded) {
            const Int first = std::min(beats, outstanding), rest = beats - first, whole = rest / outstanding, more = rest % outstanding;
            Int at = static_cast<Int>(history_at);
            for (Int index = 0; index < first; ++index) {
                history[at] = std::max(start + 1 + index, history[at] + period) + period * (rest ? whole + (index < more) : 0);
                if (++at == outstanding) at = 0;
            }
            at += more;
            if (at >= outstanding) at -= outstanding;
            history_at = static_cast<size_t>(at);
            return history[at ? at - 1 : outstanding - 1];
        }
    }
    return start + beats;
}

// Cycle in which the load is visible.
template <class Time> INLINE Time Engine<Time>::load(Clock& now, const Time& awaited, const Time& beats) {
    const Time start = later<Time>(dispatch(now, loads), now.free_load, awaited);
    loads.push(start);
    const Time last = last_request(start, beats);
    now.free_load = last + 1;
    if (!split) now.free_store = now.free_load;
    return last + latency + 1;
}

// Slot that holds a tile.
template <class Time> INLINE size_t Engine<Time>::fetch(Clock& now, Slots<Time>& tiles, bool loads, const Time& beats) {
    if (!loads) return tiles.kept(axis(1).at, axis(2).at);
    const size_t slot = tiles.take();
    tiles.ready.set(slot, load(now, tiles.used.values[slot], beats));
    return slot;
}

template <class Time> INLINE void Engine<Time>::store(Clock& now) {
    const Pending& next = pending[head++];
    Ring<Time>& queue = split ? stores : loads;
    const Time start = later<Time>(dispatch(now, queue), now.free_store, next.ready);
    queue.push(start);
    now.free_store = start + next.beats + 1 + store_latency;
    if (!split) now.free_load = now.free_store;
    c.ready.set(next.slot, now.free_store + 1);
    settle();
}

// What the array did between the last compute and the end of this one.
template <class Time> INLINE void Engine<Time>::account(const Time& gap, bool loading, bool storing, const Plan& plan) {
    if constexpr (kSingle) {
        const Int useful = c_useful[plan.m][plan.n][plan.k];
        ledger[!step ? kFill : loading ? kLoadWait : storing ? kStoreWait : kDispatchWait] += gap;
        ledger[kCommand] += 1;
        ledger[kPreload] += preload;
        ledger[kBeats] += useful;
        ledger[kArrayPad] += c_cycles[plan.m][plan.n][plan.k] - useful;
    }
}

template <class Time> INLINE typename Engine<Time>::Plan Engine<Time>::plan() const {
    const int m = axes[0].kind, n = axes[1].kind, k = axes[2].kind;
    const Time cycles = preload + c_cycles[m][n][k] + 1;
    return {a_beats[m][k], b_beats[n][k], cycles, s_beats[m][n], tails[m], m, n, k, axes[1].fresh, axes[0].fresh, axes[2].fresh};
}

// One step of the innermost loop.
template <class Time> INLINE void Engine<Time>::compute(Clock& now, const Plan& plan) {
    const size_t slot_a = fetch(now, a, plan.loads_a, plan.a_beats), slot_b = fetch(now, b, plan.loads_b, plan.b_beats);
    size_t slot_c;
    Time freed{};
    if (plan.begins) {
        slot_c = c.take();
        if (head < pending.size() && pending[head].slot == slot_c) store(now);  // the oldest slot is the first to be stored
        freed = c.ready.values[slot_c];
    } else {
        slot_c = c.kept(axis(1).at, axis(2).at);
    }
    const Time residuals = plan.k && residual ? load(now, c.ready.values[slot_c], plan.s_beats) : Time{};
    const Time operands = later<Time>(a.ready.values[slot_a], b.ready.values[slot_b]);
    const Time start = later<Time>(later<Time>(dispatch(now, computes), now.free_compute), operands, freed);
    computes.push(start);
    if constexpr (kSingle)
        if (accounts) account(start - now.free_compute, operands == start, freed == start, plan);
    now.free_compute = start + plan.cycles;
    a.used.set(slot_a, now.free_compute);
    b.used.set(slot_b, now.free_compute);
    while (due <= step) store(now);
    if (plan.k) {
        if (head == pending.size()) pending.clear(), head = 0;
        pending.push_back({step, slot_c, later<Time>(now.free_compute + plan.tail, residuals), plan.s_beats});
        settle();
        while (due <= step) store(now);
    }
    ++step;
}

// The last stores, and the cycle in which all is over: nothing is visible later than the last store.
template <class Time> Time Engine<Time>::finish(const Time& confirmation) {
    while (head < pending.size()) store(clock);
    if (mapped) clock.dispatched = later<Time>(clock.dispatched, arrive(clock) - 1);  // of END
    const Time end = later<Time>(clock.dispatched + 1, clock.free_store + 1 + confirmation);
    if constexpr (kSingle) {
        ledger[kDrain] = tails[3];  // of the last tile
        ledger[kStoreTail] = end - clock.free_compute - ledger[kDrain];
    }
    return end;
}

// Writes down all that decides what follows but the indices of the loops, relative to the dispatcher. Nothing starts before the next
// dispatch, so times up to the last one are all the same; likewise for commands that arrive.
template <class Time> void Engine<Time>::put(Memory& memory, int& number) {
    if constexpr (kSingle) {
        const Int base = clock.dispatched;
        const size_t tiles = whole(a.ready.depth) + whole(b.ready.depth) + whole(c.ready.depth), waiting = pending.size() - head;
        Writer writer = memory.draft(8 + 3 * whole(loads.depth) + whole(taken.depth) + 2 * tiles + 4 * waiting);
        const Int load_ahead = std::max(clock.free_load - base, Int(0)), store_ahead = std::max(clock.free_store - base, Int(0));
        writer.put(Four{clock.free_compute - base, load_ahead, store_ahead, static_cast<Int>(waiting)});
        loads.put(writer, base);
        computes.put(writer, base);
        if (split) stores.put(writer, base);
        if (mapped) {
            writer.put(Four{clock.arrived - base, 0, 0, 0});
            taken.put(writer, clock.arrived + interval - 1);
        }
        a.put(writer, base);
        b.put(writer, base);
        c.ready.put(writer, base);
        for (size_t index = head; index < pending.size(); ++index) {
            const Pending& next = pending[index];
            writer.put(Four{step - next.step, static_cast<Int>(c.rank(next.slot)), std::max(next.ready - base, Int(0)), next.beats});
        }
        number = memory.number(writer);
    }
}

// Back from a state; `clock.dispatched` and `step` are set already.
template <class Time> void Engine<Time>::get(const Int* in) {
    if constexpr (kSingle) {
        const Int base = clock.dispatched;
        clock.free_compute = base + in[0], clock.free_load = base + in[1], clock.free_store = base + in[2];
        Int waiting = in[3];
        in = computes.get(loads.get(in + 4, base), base);
        if (split) in = stores.get(in, base);
        if (mapped) {
            clock.arrived = base + in[0];
            in = taken.get(in + 4, clock.arrived + interval - 1);
        }
        in = c.ready.get(b.get(a.get(in, base), base), base);
        pending.clear();
        head = 0;
        for (; waiting; --waiting, in += 4) pending.push_back({step - in[0], static_cast<size_t>(in[1]), base + in[2], in[3]});
        settle();
    }
}

}  // namespace
