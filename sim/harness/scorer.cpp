// Exact cycles of schedules, a row of the cost table each: the recurrence of the cycle model fused with the order of commands.
// The columns (enum Column, kColumns) are generated from the contract and come first.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using Int = int64_t;
constexpr Int kNever = -(Int(1) << 40);
enum Ledger { kFill, kLoadWait, kStoreWait, kDispatchWait, kCommand, kPreload, kBeats, kArrayPad, kDrain, kStoreTail, kLedger };

// Pops of the last `depth` commands of a queue.
struct Ring {
    std::vector<Int> pops;
    size_t at = 0;
    void reset(Int depth) {
        pops.assign(static_cast<size_t>(depth), kNever);
        at = 0;
    }
    Int oldest() const { return pops[at]; }
    void push(Int cycle) {
        pops[at] = cycle;
        if (++at == pops.size()) at = 0;
    }
};

struct Slots {
    std::vector<Int> key, ready, used;
    size_t turn = 0;
    void reset(Int count) {
        key.assign(static_cast<size_t>(count), -1);
        ready.assign(static_cast<size_t>(count), 0);
        used.assign(static_cast<size_t>(count), 0);
        turn = 0;
    }
    size_t find(Int wanted) const {
        size_t slot = 0;
        while (slot < key.size() && key[slot] != wanted) ++slot;
        return slot;
    }
    size_t take() {
        const size_t slot = turn;
        if (++turn == key.size()) turn = 0;
        return slot;
    }
};

struct Pending {
    Int step, slot, ready, beats;
};

struct Scorer {
    Ring loads, computes, stores;
    Slots a, b, c;
    std::vector<Int> history, state;  // request cycles; 0 empty, 1 unfinished, 2 store pending, 3 stored
    std::vector<Pending> pending;
    size_t head, history_at;
    Int latency, outstanding, period, free_load, free_compute, free_store, dispatched, load_visible, store_visible, write_visible, store_latency;
    bool split, unbounded;

    Int dispatch(const Ring& queue) {
        dispatched = std::max(dispatched + 1, queue.oldest() + 1);
        return dispatched + 1;
    }
    Int last_request(Int start, Int beats) {
        if (unbounded) return start + beats;
        const size_t q = static_cast<size_t>(outstanding);
        Int previous = start;
        const Int first = std::min(beats, outstanding);
        size_t at = history_at;
        for (Int index = 0; index < first; ++index) {
            previous = std::max(previous + 1, history[at] + period);
            history[at] = previous;
            if (++at == q) at = 0;
        }
        if (beats > outstanding) {
            const Int rest = beats - outstanding, whole = rest / outstanding, more = rest % outstanding;
            at = history_at;
            for (Int index = 0; index < outstanding; ++index) {
                history[at] += period * (whole + (index < more));
                if (++at == q) at = 0;
            }
            history_at = (history_at + static_cast<size_t>(more)) % q;
        } else {
            history_at = at;
        }
        return history[history_at ? history_at - 1 : q - 1];
    }
    Int load(Int awaited, Int beats) {
        const Int start = std::max({dispatch(loads), free_load, awaited});
        loads.push(start);
        const Int last = last_request(start, beats);
        free_load = last + 1;
        if (!split) free_store = free_load;
        return load_visible = last + latency + 1;
    }
    void store() {
        const Pending& next = pending[head++];
        Ring& queue = split ? stores : loads;
        const Int start = std::max({dispatch(queue), free_store, next.ready});
        queue.push(start);
        free_store = start + next.beats + 1 + store_latency;
        if (!split) free_load = free_store;
        store_visible = free_store + 1;
        c.ready[static_cast<size_t>(next.slot)] = store_visible;
        state[static_cast<size_t>(next.slot)] = 3;
    }
    Int score(const Int* row, Int* ledger);
};

Int Scorer::score(const Int* row, Int* ledger) {
    latency = row[latency_];
    outstanding = row[outstanding_];
    period = std::max(latency + 1, outstanding);
    unbounded = outstanding >= latency + 1;
    split = row[split_];
    store_latency = row[store_latency_];
    loads.reset(row[queue_depth_]);
    computes.reset(row[queue_depth_]);
    if (split) stores.reset(row[queue_depth_]);
    a.reset(row[a_slots_]);
    b.reset(row[b_slots_]);
    c.reset(row[c_slots_]);
    state.assign(c.key.size(), 0);
    if (!unbounded) history.assign(static_cast<size_t>(outstanding), kNever);
    history_at = head = 0;
    pending.clear();
    free_load = free_compute = free_store = load_visible = store_visible = write_visible = 0;
    dispatched = row[sets_] - 1;
    for (int kind = 0; kind < kLedger; ++kind) ledger[kind] = 0;
    if (row[prologue_]) load(0, row[prologue_]);
    const Int tiles[3] = {row[tiles_m_], row[tiles_n_], row[tiles_k_]};
    const Int order[3] = {row[outer_], row[middle_], row[inner_]};
    const Int period_m = row[period_m_], period_n = row[period_n_], share = row[a_share_], preload = row[preload_], lag = row[lag_];
    const Int total = tiles[0] * tiles[1] * tiles[2], last_group = tiles[0] - period_m;
    Int at[3] = {0, 0, 0};
    for (Int step = 0; step < total; ++step) {
        const Int m = at[0], n = at[1], k = at[2];
        const Int cm = (m % period_m == period_m - 1) + 2 * (m >= last_group), cn = n % period_n == period_n - 1, ck = k == tiles[2] - 1;
        const Int a_key = ((share ? n / share : 0) * tiles[0] + m) * tiles[2] + k, b_key = n * tiles[2] + k, c_key = m * tiles[1] + n;
        size_t sa = a.find(a_key), sb = b.find(b_key), sc = c.find(c_key);
        if (sa == a.key.size()) {
            sa = a.take();
            a.ready[sa] = load(a.used[sa], row[a_m_0_ + cm] * row[a_k_0_ + ck]);
            a.key[sa] = a_key;
            a.used[sa] = 0;
        }
        if (sb == b.key.size()) {
            sb = b.take();
            b.ready[sb] = load(b.used[sb], row[b_n_0_ + cn] * row[b_k_0_ + ck]);
            b.key[sb] = b_key;
            b.used[sb] = 0;
        }
        Int freed = 0;
        if (sc == c.key.size()) {
            if (k) return -1;
            sc = c.take();
            if (state[sc] == 1) return -1;
            while (head < pending.size() && state[sc] == 2) store();
            if (state[sc] == 3) freed = c.ready[sc];
            c.key[sc] = c_key;
            state[sc] = 1;
        }
        const Int out_beats = row[s_m_0_ + cm] * row[c_n_0_ + cn];
        const Int residuals = ck && row[residual_] ? load(c.ready[sc], out_beats) : 0;
        const Int operands = std::max(a.ready[sa], b.ready[sb]);
        const Int start = std::max({dispatch(computes), free_compute, operands, freed});
        computes.push(start);
        const Int gap = start - free_compute;
        if (!step) ledger[kFill] += gap;
        else if (gap) ledger[operands == start ? kLoadWait : freed == start ? kStoreWait : kDispatchWait] += gap;
        const Int cycles = row[c_m_0_ + cm] * row[c_n_0_ + cn] * row[c_k_0_ + ck];
        const Int useful = row[u_m_0_ + cm] * row[c_n_0_ + cn] * row[u_k_0_ + ck];
        ledger[kCommand] += 1;
        ledger[kPreload] += preload;
        ledger[kBeats] += useful;
        ledger[kArrayPad] += cycles - useful;
        free_compute = start + preload + cycles + 1;
        a.used[sa] = b.used[sb] = free_compute;
        write_visible = free_compute + row[tail_0_ + cm];
        while (head < pending.size() && pending[head].step <= step - lag) store();
        if (ck) {
            state[sc] = 2;
            c.key[sc] = -1;
            pending.push_back({step, static_cast<Int>(sc), std::max(write_visible, residuals), out_beats});
            while (head < pending.size() && pending[head].step <= step - lag) store();
        }
        for (int level = 2; level >= 0; --level) {
            if (++at[order[level]] < tiles[order[level]]) break;
            at[order[level]] = 0;
        }
    }
    while (head < pending.size()) store();
    const Int end = std::max({dispatched + 1, load_visible, write_visible, store_visible});
    ledger[kDrain] = write_visible - free_compute;
    ledger[kStoreTail] = end - write_visible;
    return end;
}

}  // namespace

extern "C" void celosia_score(const int64_t* table, uint64_t rows, int64_t* cycles, int64_t* ledgers) {
    Scorer scorer;
    Int scratch[kLedger];
    for (uint64_t row = 0; row < rows; ++row) cycles[row] = scorer.score(table + row * kColumns, ledgers ? ledgers + row * kLedger : scratch);
}
