// Exact cycles of schedules, a row of the cost table each: the recurrence of the cycle model fused with the order of commands.
// One walk serves two kinds of time: a 64-bit number, one row at a time, and lanes of 32-bit numbers, one row each, for rows that share
// their structure. The first also keeps the ledger, models reads that wait for credits, and jumps over iterations of a loop once they
// repeat.
#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "scorer_parts.h"

#define INLINE inline __attribute__((always_inline))  // the compiler would not, and a call costs as much as a command

namespace {

constexpr size_t kBlock = 64;  // rows that a thread takes at a time
constexpr Int kJumped = 48;    // steps that jumps leave of a long walk, about
enum Ledger { kFill, kLoadWait, kStoreWait, kDispatchWait, kCommand, kPreload, kBeats, kArrayPad, kDrain, kStoreTail, kLedger };

template <class Time> class Walk {
  public:
    bool run(const Rows& rows, Int* ledger_of_row);
    Time end;

  private:
    static constexpr bool kSingle = std::is_same_v<Time, Int>;
    using Slot = typename Slots<Time>::Slot;
    struct Pending {
        Int step;
        Slot* slot;
        Time ready, beats;
    };

    Ring<Time> loads, computes, stores, taken;
    Slots<Time> a, b, c;
    std::vector<Pending> pending;
    size_t head;
    std::vector<Int> history;  // the last requests, oldest at history_at
    size_t history_at;
    Axis axes[3];
    int order[3];
    Steadiness steadiness[3];
    std::vector<Int> now;
    Int step, lag, share, due;  // due: the step after which the next pending store goes out
    bool split, unbounded, residual, mapped, accounts;
    Time latency, period, preload, store_latency, interval, arrived;
    Int outstanding;
    Time free_load, free_compute, free_store, dispatched, load_visible, store_visible, write_visible;
    Time a_beats[4][2], b_beats[2][2], c_cycles[4][2][2], s_beats[4][2], tails[4];
    Int c_useful[4][2][2];
    Int ledger[kLedger];

    void reset(const Rows& rows);
    void price(const Rows& rows);
    template <int kLevel> bool loop();
    bool compute();
    // Cycle in which the next command of a memory-mapped queue is there.
    Time arrive() {
        arrived = later<Time>(arrived + interval, taken.back(taken.depth) + 1);
        return arrived + 1;
    }
    Time dispatch(const Ring<Time>& queue) {
        dispatched = later<Time>(dispatched, queue.back(queue.depth)) + 1;
        if (mapped) {
            dispatched = later<Time>(dispatched, arrive());
            taken.push(dispatched);
        }
        return dispatched + 1;
    }
    Time last_request(const Time& start, const Time& beats);
    Time load(const Time& awaited, const Time& beats);
    Slot* fetch(Slots<Time>& tiles, Int key, const Time& beats);
    void store();
    void settle() { due = head < pending.size() ? pending[head].step + lag : std::numeric_limits<Int>::max(); }
    void account(const Time& start, const Time& operands, const Time& freed, int m, int n, int k);
    bool steady(Steadiness& level, int axis);
    void relative(int axis);
    void jump(Steadiness& level, int axis, Int many);
};

template <class Time> void Walk<Time>::reset(const Rows& rows) {
    latency = rows.read<Time>(latency_);
    outstanding = rows.shared(outstanding_);
    unbounded = outstanding > rows.shared(latency_);
    period = later<Time>(latency + 1, rows.read<Time>(outstanding_));
    split = rows.shared(split_), residual = rows.shared(residual_);
    store_latency = rows.read<Time>(store_latency_);
    preload = rows.read<Time>(preload_);
    lag = rows.shared(lag_), share = rows.shared(a_share_);
    for (Ring<Time>* queue : {&loads, &computes, &stores}) queue->reset(rows.shared(queue_depth_));
    if (!unbounded) history.assign(static_cast<size_t>(outstanding), -(Int(1) << 40));
    pending.clear();
    history_at = head = 0;
    step = 0;
    settle();
    free_load = free_compute = free_store = load_visible = store_visible = write_visible = Time{};
    mapped = rows.shared(command_interval_), interval = rows.read<Time>(command_interval_);
    taken.reset(mapped ? rows.shared(command_depth_) : 1);
    arrived = rows.read<Time>(sets_) * interval - 1;
    dispatched = mapped ? arrived + 1 : rows.read<Time>(sets_) - 1;
    const Int tiles_m = rows.shared(tiles_m_), tiles_n = rows.shared(tiles_n_), tiles_k = rows.shared(tiles_k_);
    axes[0].reset(tiles_m, rows.shared(period_m_), tiles_m - rows.shared(period_m_));
    axes[1].reset(tiles_n, rows.shared(period_n_), tiles_n);
    axes[2].reset(tiles_k, tiles_k, tiles_k);
    a.reset(rows.shared(a_slots_), tiles_k, 0, 1);
    b.reset(rows.shared(b_slots_), 0, tiles_k, 1);
    c.reset(rows.shared(c_slots_), tiles_n, 1, 0);
    for (int level = 0; level < 3; ++level) order[level] = static_cast<int>(rows.shared(outer_ + level));
    std::fill(ledger, ledger + kLedger, 0);
}

// What every kind of command costs, for every kind of tile.
template <class Time> void Walk<Time>::price(const Rows& rows) {
    for (int m = 0; m < 4; ++m) {
        tails[m] = rows.read<Time>(tail_0_ + m);
        const Time rows_c = rows.read<Time>(c_m_0_ + m), rows_a = rows.read<Time>(a_m_0_ + m), rows_s = rows.read<Time>(s_m_0_ + m);
        for (int k = 0; k < 2; ++k) a_beats[m][k] = rows_a * rows.read<Time>(a_k_0_ + k);
        for (int n = 0; n < 2; ++n) {
            const Time blocks = rows.read<Time>(c_n_0_ + n);
            s_beats[m][n] = rows_s * blocks;
            for (int k = 0; k < 2; ++k) c_cycles[m][n][k] = rows_c * blocks * rows.read<Time>(c_k_0_ + k);
            if constexpr (kSingle)
                for (int k = 0; k < 2; ++k) c_useful[m][n][k] = rows.shared(u_m_0_ + m) * blocks * rows.shared(u_k_0_ + k);
        }
    }
    for (int n = 0; n < 2; ++n)
        for (int k = 0; k < 2; ++k) b_beats[n][k] = rows.read<Time>(b_n_0_ + n) * rows.read<Time>(b_k_0_ + k);
}

// u_i = max(u_{i-1} + 1, h_i + P) with u_{-1} = s is max(s + 1 + i, h_i + P): the h_i are at least one apart.
template <class Time> INLINE Time Walk<Time>::last_request(const Time& start, const Time& beats) {
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
template <class Time> INLINE Time Walk<Time>::load(const Time& awaited, const Time& beats) {
    const Time start = later<Time>(dispatch(loads), free_load, awaited);
    loads.push(start);
    const Time last = last_request(start, beats);
    free_load = last + 1;
    if (!split) free_store = free_load;
    return load_visible = last + latency + 1;
}

// Slot that holds a tile, loaded if it is not there.
template <class Time> INLINE typename Walk<Time>::Slot* Walk<Time>::fetch(Slots<Time>& tiles, Int key, const Time& beats) {
    Slot* slot = tiles.find(key);
    if (!slot) {
        slot = tiles.take();
        slot->ready = load(slot->used, beats);
        slot->key = key, slot->used = Time{};
    }
    return slot;
}

template <class Time> INLINE void Walk<Time>::store() {
    const Pending& next = pending[head++];
    Ring<Time>& queue = split ? stores : loads;
    const Time start = later<Time>(dispatch(queue), free_store, next.ready);
    queue.push(start);
    free_store = start + next.beats + 1 + store_latency;
    if (!split) free_load = free_store;
    store_visible = free_store + 1;
    next.slot->ready = store_visible;
    next.slot->state = 3;
    settle();
}

// What the array did between the last compute and the end of this one.
template <class Time> INLINE void Walk<Time>::account(const Time& start, const Time& operands, const Time& freed, int m, int n, int k) {
    if constexpr (kSingle) {
        if (!accounts) return;
        const Int gap = start - free_compute, useful = c_useful[m][n][k];
        ledger[!step ? kFill : operands == start ? kLoadWait : freed == start ? kStoreWait : kDispatchWait] += gap;
        ledger[kCommand] += 1;
        ledger[kPreload] += preload;
        ledger[kBeats] += useful;
        ledger[kArrayPad] += c_cycles[m][n][k] - useful;
    }
}

// One step of the innermost loop. False if it evicts an unfinished output tile.
template <class Time> INLINE bool Walk<Time>::compute() {
    const int m = axes[0].kind, n = axes[1].kind, k = axes[2].kind;
    const Int n_group = share ? axes[1].at / share : 0;
    Slot* const sa = fetch(a, (n_group * axes[0].count + axes[0].at) * axes[2].count + axes[2].at, a_beats[m][k]);
    Slot* const sb = fetch(b, axes[1].at * axes[2].count + axes[2].at, b_beats[n][k]);
    const Int c_key = axes[0].at * axes[1].count + axes[1].at;
    Slot* sc = c.find(c_key);
    Time freed{};
    if (!sc) {
        if (axes[2].at) return false;
        sc = c.take();
        if (sc->state == 1) return false;
        while (head < pending.size() && sc->state == 2) store();
        if (sc->state == 3) freed = sc->ready;
        sc->key = c_key, sc->state = 1;
    }
    const Time residuals = k && residual ? load(sc->ready, s_beats[m][n]) : Time{};
    const Time operands = later<Time>(sa->ready, sb->ready);
    const Time start = later<Time>(later<Time>(dispatch(computes), free_compute), operands, freed);
    computes.push(start);
    account(start, operands, freed, m, n, k);
    free_compute = start + preload + c_cycles[m][n][k] + 1;
    sa->used = sb->used = free_compute;
    write_visible = free_compute + tails[m];
    while (due <= step) store();
    if (k) {
        if (head == pending.size()) pending.clear(), head = 0;
        sc->state = 2, sc->key = -1;
        pending.push_back({step, sc, later<Time>(write_visible, residuals), s_beats[m][n]});
        settle();
        while (due <= step) store();
    }
    ++step;
    return true;
}

// All that decides what follows, relative to the dispatcher and to the index of a loop. Nothing starts before the next dispatch, so
// times up to the last one are all the same.
template <class Time> void Walk<Time>::relative(int axis) {
    if constexpr (kSingle) {
        const size_t tiles = a.slots.size() + b.slots.size() + c.slots.size(), queued = (split ? 3 : 2) * loads.depth;
        now.resize(3 + queued + (mapped ? taken.depth + 1 : 0) + 4 * (tiles + pending.size() - head));
        Int* out = now.data();
        const auto time = [&](Int cycle) { *out++ = std::max(cycle - dispatched, Int(0)); };
        *out++ = free_compute - dispatched;
        time(free_load);
        time(free_store);
        for (const Ring<Int>* queue : {&loads, &computes, &stores})
            for (size_t place = queue == &stores && !split ? 0 : queue->depth; place; --place) time(queue->back(place));
        if (mapped) {
            *out++ = arrived - dispatched;
            for (size_t place = taken.depth; place; --place) *out++ = taken.back(place) - dispatched;
        }
        for (const Slots<Int>* tiles : {&a, &b, &c}) {
            const size_t count = tiles->slots.size();
            for (size_t index = 0, at = tiles->turn; index < count; ++index, at = at + 1 == count ? 0 : at + 1) {
                const Slot& slot = tiles->slots[at];
                *out++ = slot.key < 0 ? std::numeric_limits<Int>::min() : slot.key - tiles->stride[axis] * axes[axis].at;
                *out++ = slot.state;
                time(slot.ready);
                time(slot.used);
            }
        }
        const size_t slots = c.slots.size();
        for (size_t index = head; index < pending.size(); ++index) {
            const size_t place = static_cast<size_t>(pending[index].slot - c.slots.data());
            *out++ = step - pending[index].step;
            *out++ = static_cast<Int>(place < c.turn ? place + slots - c.turn : place - c.turn);
            *out++ = pending[index].beats;
            time(pending[index].ready);
        }
    }
}

// Whether the last iteration left all as the one before had: the next ones of its kind then take as long and do the same.
// Few numbers are looked at first, and all of them ever more rarely while that fails.
template <class Time> bool Walk<Time>::steady(Steadiness& level, int axis) {
    if constexpr (kSingle) {
        const Int compute_ahead = free_compute - dispatched, load_ahead = free_load - dispatched;
        const bool same = compute_ahead == level.compute && load_ahead == level.load;
        level.compute = compute_ahead, level.load = load_ahead;
        level.age = same ? level.age + 1 : 0;
        if (!same || level.age < level.patience) return false;
        relative(axis);
        const bool repeats = level.age > level.patience && now == level.seen;
        if (level.age > level.patience && !repeats) level.patience *= 2;
        std::swap(now, level.seen);
        if (!repeats) {
            level.times = {dispatched, step, load_visible, write_visible, store_visible};
            if (accounts) level.times.insert(level.times.end(), ledger, ledger + kLedger);
        }
        return repeats;
    }
    return false;
}

// Many more iterations like the last one: times, keys and sums move on by as much each time.
template <class Time> void Walk<Time>::jump(Steadiness& level, int axis, Int many) {
    if constexpr (kSingle) {
        const Int cycles = many * (dispatched - level.times[0]), steps = many * (step - level.times[1]);
        load_visible += many * (load_visible - level.times[2]);
        write_visible += many * (write_visible - level.times[3]);
        store_visible += many * (store_visible - level.times[4]);
        for (int kind = 0; accounts && kind < kLedger; ++kind) ledger[kind] += many * (ledger[kind] - level.times[5 + kind]);
        for (Int* time : {&dispatched, &free_load, &free_compute, &free_store, &arrived}) *time += cycles;
        for (Ring<Int>* queue : {&loads, &computes, &stores, &taken})
            for (Int& pop : queue->pops) pop += cycles;
        for (Slots<Int>* tiles : {&a, &b, &c}) {
            for (Slot& slot : tiles->slots) {
                if (slot.key >= 0) slot.key += many * tiles->stride[axis];
                slot.ready += cycles, slot.used += cycles;
            }
        }
        for (size_t index = head; index < pending.size(); ++index) pending[index].ready += cycles, pending[index].step += steps;
        step += steps;
        settle();
        axes[axis].skip(many);
    }
}

template <class Time> template <int kLevel> inline bool Walk<Time>::loop() {
    if constexpr (kLevel == 3) {
        return compute();
    } else {
        const int which = order[kLevel];
        Axis& axis = axes[which];
        Steadiness& level = steadiness[kLevel];
        const bool jumps = kSingle && unbounded && !(share && which == 1);
        level.age = 0, level.patience = kLevel == 2 ? 2 : 1, level.compute = -1;
        do {
            if (!loop<kLevel + 1>()) return false;
            if (jumps) {
                const Int many = axis.alike();
                if (many <= 0) level.age = 0;
                else if (steady(level, which)) jump(level, which, many);
            }
        } while (axis.next());
        return true;
    }
}

template <class Time> bool Walk<Time>::run(const Rows& rows, Int* ledger_of_row) {
    reset(rows);
    price(rows);
    accounts = ledger_of_row;
    if (rows.shared(prologue_)) load(Time{}, rows.read<Time>(prologue_));
    if (!loop<0>()) return false;
    while (head < pending.size()) store();
    if (mapped) dispatched = later<Time>(dispatched, arrive() - 1);  // of END
    end = later<Time>(later<Time>(dispatched + 1, load_visible), write_visible, store_visible + rows.read<Time>(confirmation_));
    if constexpr (kSingle) {
        ledger[kDrain] = write_visible - free_compute;
        ledger[kStoreTail] = end - write_visible;
        if (ledger_of_row) std::copy(ledger, ledger + kLedger, ledger_of_row);
    }
    return true;
}

// Whether no time of a run can pass 32 bits: every command adds at most its beats or cycles and its latencies.
bool fits(const Int* row) {
    const auto largest = [row](int column, int count) { return 1.0 * *std::max_element(row + column, row + column + count); };
    const double loads = largest(a_m_0_, 4) * largest(a_k_0_, 2) + largest(b_n_0_, 2) * largest(b_k_0_, 2);
    const double arrays = largest(c_n_0_, 2) * (largest(c_m_0_, 4) * largest(c_k_0_, 2) + 2 * largest(s_m_0_, 4));
    const double latencies = 4.0 * row[latency_] + row[preload_] + row[store_latency_] + row[confirmation_];
    const double waits = largest(tail_0_, 4) + latencies + 6.0 * row[command_interval_] + 16;
    const double steps = static_cast<double>(row[tiles_m_]) * row[tiles_n_] * row[tiles_k_];
    return steps * (loads + arrays + waits) + row[prologue_] + row[sets_] * (row[command_interval_] + 1.0) < (1u << 31) - 1.0;
}

bool alike(const Int* row, const Int* other) {
    for (int column : kStructure)
        if (row[column] != other[column]) return false;
    return !row[prologue_] == !other[prologue_];
}

struct Scorer {
    Walk<Int> single;
    Walk<Lanes> lanes;

    // Rows from the first on that lanes can score together.
    size_t group(const Int* row, size_t most) const {
        size_t count = 0;
        for (const Int* other = row; count < most; ++count, other += kColumns)
            if (other[outstanding_] <= other[latency_] || !alike(row, other) || !fits(other)) break;
        return count;
    }
    // A step of all lanes costs less than a step of a single row, but only single rows jump.
    bool pays(const Int* row, size_t count) const {
        const Int steps = row[tiles_m_] * row[tiles_n_] * row[tiles_k_];
        return static_cast<Int>(count) * std::min(steps, kJumped) > steps;
    }
    void score(const Int* row, size_t rows, Int* cycles, Int* ledgers) {
        while (rows) {
            size_t count = ledgers ? 1 : group(row, std::min(rows, kLanes));
            if (count > 1 && pays(row, count)) {
                const bool legal = lanes.run({row, count}, nullptr);
                for (size_t lane = 0; lane < count; ++lane) *cycles++ = legal ? lanes.end[lane] : -1;
            } else {
                count = 1;
                *cycles++ = single.run({row, 1}, ledgers) ? single.end : -1;
                if (ledgers) ledgers += kLedger;
            }
            row += count * kColumns;
            rows -= count;
        }
    }
};

}  // namespace

extern "C" void celosia_score(const int64_t* table, uint64_t rows, int64_t* cycles, int64_t* ledgers, uint64_t threads) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
        Scorer scorer;
        for (size_t first; (first = next.fetch_add(kBlock)) < rows;) {
            Int* const account = ledgers ? ledgers + first * kLedger : nullptr;
            scorer.score(table + first * kColumns, std::min<size_t>(kBlock, rows - first), cycles + first, account);
        }
    };
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < std::min<size_t>(threads, (rows + kBlock - 1) / kBlock)) helpers.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads: fewer do it
    }
    work();
    for (std::thread& helper : helpers) helper.join();
}
