// Exact cycles of schedules, a row of the cost table each: the recurrence of the cycle model fused with the order of commands.
// Rows that share their structure go side by side, in lanes. Others go alone, and remember: where a state comes back before the same
// stretch of the loops, what follows is known and is passed over.
#include <atomic>
#include <system_error>
#include <thread>

#include "scorer_engine.h"

namespace {

constexpr size_t kBlock = 64;  // rows that a thread takes at a time
constexpr Int kJumped = 48;    // steps that are left of a long walk, about

template <class Time> class Walk {
  public:
    bool run(const Rows& rows, Int* ledger_of_row);
    Time end;
    Int passed[kStretches];  // steps that were not walked, by what was passed over

  private:
    using Clock = typename Engine<Time>::Clock;
    using Plan = typename Engine<Time>::Plan;
    static constexpr bool kSingle = Engine<Time>::kSingle;

    // A state that a step of a kind leaves as it was.
    struct Hint {
        Int kind, compute, load;
        int state;
    };
    // An innermost loop that is watched for a step that leaves all as it was.
    struct Watch {
        Int kind, compute, load, age, patience;  // age: steps that look alike; from `patience` on, states are compared
        int state, hint;
        Sums start;
    };

    Engine<Time> engine;
    Memory memory;
    std::vector<Hint> hints;
    int state;  // number of the present state, or -1
    bool real;  // the engine is in it; else only its times and sums are

    template <int kLevel> void loop();
    void steps();
    void learn_steps();
    const Move* steady(Watch& watch, const Clock& now);
    int hint(Int kind) const;
    void remember() {
        if (state < 0) engine.put(memory, state);
    }
    void realise() {
        if (!real) engine.get(memory.state(state));
        real = true;
    }
    void mark(Sums& sums) const;
    const Move* learn(int from, Int kind, const Sums& start);
    void pass(const Move& move, Int many);
};

template <class Time> void Walk<Time>::mark(Sums& sums) const {
    if constexpr (kSingle) {
        sums.cycles = engine.clock.dispatched, sums.steps = engine.step;
        if (engine.accounts) std::copy(engine.ledger, engine.ledger + kLedger, sums.ledger);
    }
}

// The stretch from a mark to the present state.
template <class Time> const Move* Walk<Time>::learn(int from, Int kind, const Sums& start) {
    Move& move = memory.add(from, kind, state);
    if constexpr (kSingle) {
        move.sums.cycles = engine.clock.dispatched - start.cycles, move.sums.steps = engine.step - start.steps;
        for (int row = 0; engine.accounts && row < kLedger; ++row) move.sums.ledger[row] = engine.ledger[row] - start.ledger[row];
    }
    return &move;
}

template <class Time> void Walk<Time>::pass(const Move& move, Int many) {
    if constexpr (kSingle) {
        engine.clock.dispatched += many * move.sums.cycles;
        engine.step += many * move.sums.steps;
        for (int kind = 0; engine.accounts && kind < kLedger; ++kind) engine.ledger[kind] += many * move.sums.ledger[kind];
        passed[move.kind % kStretches] += many * move.sums.steps;
        state = move.to;
        real = false;
    }
}

template <class Time> int Walk<Time>::hint(Int kind) const {
    int at = static_cast<int>(hints.size()) - 1;
    while (at >= 0 && hints[static_cast<size_t>(at)].kind != kind) --at;
    return at;
}

// The step that leads from the present state to itself: the last one, or one of another time around such a loop.
// Few numbers are looked at first, and all of them ever more rarely while that fails.
// Which slots kept tiles of A and B lie in may change from step to step, and yet be no part of the state: nobody waits for tiles that were
// used before, and a state that comes back knows of no use ahead of the dispatcher, or the latest would have changed its place. A use is
// never ahead only where every step ends with a store, so with an output tile, whose slot of C would have changed its place too had it
// been kept: there is one tile along k, and in the rest of the loop slots follow from its index.
template <class Time> INLINE const Move* Walk<Time>::steady(Watch& watch, const Clock& now) {
    const Int compute = now.free_compute - now.dispatched, load = now.free_load - now.dispatched;
    watch.age = compute == watch.compute && load == watch.load ? watch.age + 1 : 0;
    watch.compute = compute, watch.load = load;
    const Hint* const hint = watch.hint < 0 ? nullptr : &hints[static_cast<size_t>(watch.hint)];
    const bool known = hint && hint->compute == compute && hint->load == load, looks = watch.age >= watch.patience;
    if (!known && !looks) return nullptr;
    engine.clock = now;
    remember();
    if (known && hint->state == state) return memory.find(state, watch.kind);
    if (!looks) return nullptr;
    if (watch.age > watch.patience) {
        if (watch.state == state) {
            watch.hint = static_cast<int>(hints.size());
            hints.push_back({watch.kind, compute, load, state});
            return learn(state, watch.kind, watch.start);
        }
        watch.patience *= 2;
    }
    watch.state = state;
    mark(watch.start);
    return nullptr;
}

// The innermost loop.
template <class Time> void Walk<Time>::steps() {
    Axis& axis = engine.axis(2);
    Clock now = engine.clock;
    do engine.compute(now, engine.plan());
    while (axis.next());
    engine.clock = now;
    state = -1;
}

template <class Time> void Walk<Time>::learn_steps() {
    Axis& axis = engine.axis(2);
    const Int around = 8 * engine.axis(0).code() + engine.axis(1).code();
    Watch watch;
    watch.compute = watch.load = watch.state = -1;
    watch.age = 0, watch.patience = 2;
    int from = -1;  // the state in which steps were last passed over, and
    Int rest = 0;   // what kind of stretch was left
    Sums start;
    Clock now = engine.clock;
    Plan plan;
    Int code = -1;
    do {
        if (axis.code() != code) {
            code = axis.code();
            plan = engine.plan();
            watch.kind = kStretches * (4 * around + axis.kind) + kStep;
            watch.hint = hint(watch.kind);
        }
        engine.compute(now, plan);
        state = -1;
        const Int many = axis.alike();
        if (many <= 0) {
            watch.age = 0;
        } else if (const Move* move = steady(watch, now)) {
            pass(*move, many);
            axis.skip(many);
            rest = kStretches * (64 * axis.at + around) + kRest;
            if (const Move* known = memory.find(state, rest)) {
                pass(*known, 1);
                axis.rewind();
                return;
            }
            from = state;
            mark(start);
            realise();
            now = engine.clock;
        }
    } while (axis.next());
    engine.clock = now;
    remember();
    if (from >= 0) learn(from, rest, start);
}

template <class Time> template <int kLevel> inline void Walk<Time>::loop() {
    if constexpr (kLevel == 2 && kSingle) {
        engine.unbounded && engine.axis(2).regular() ? learn_steps() : steps();
    } else if constexpr (kLevel == 2) {
        steps();
    } else {
        Axis& axis = engine.axis(kLevel);
        const bool learns = kSingle && engine.unbounded && axis.regular() && engine.still(kLevel);
        do {
            int from = -1, generation = 0;
            Int kind = 0;
            Sums start;
            if (learns && engine.step) {  // the state before the first step never comes back
                remember();
                kind = kStretches * (axis.code() + (kLevel ? 8 * engine.axis(0).code() : 0)) + kLevel;
                if (const Move* move = memory.find(state, kind)) {
                    const bool again = move->to == state && !(axis.fresh && axis.renewal > 1);
                    const Int many = again ? 1 + std::max(axis.alike(), Int(0)) : 1;
                    pass(*move, many);
                    axis.skip(many - 1);
                    continue;
                }
                from = state, generation = memory.generation;
                mark(start);
            }
            realise();
            loop<kLevel + 1>();
            if (from >= 0 && generation == memory.generation) {
                remember();
                learn(from, kind, start);
            }
            if (kSingle && memory.full()) {
                realise();
                memory.clear(), hints.clear(), state = -1;
            }
        } while (axis.next());
    }
}

template <class Time> bool Walk<Time>::run(const Rows& rows, Int* ledger_of_row) {
    engine.reset(rows, ledger_of_row);
    memory.clear(), hints.clear(), state = -1, real = true;
    std::fill(passed, passed + kStretches, 0);
    if (!engine.legal()) return false;
    if (rows.shared(prologue_)) engine.prologue(rows.read<Time>(prologue_));
    loop<0>();
    realise();
    end = engine.finish(rows.read<Time>(confirmation_));
    if (ledger_of_row) std::copy(engine.ledger, engine.ledger + kLedger, ledger_of_row);
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
    // `ledgers` and `passed` may be null; with either, every row goes alone.
    void score(const Int* row, size_t rows, Int* cycles, Int* ledgers, Int* passed) {
        while (rows) {
            size_t count = ledgers || passed ? 1 : group(row, std::min(rows, kLanes));
            if (count > 1 && pays(row, count)) {
                const bool legal = lanes.run({row, count}, nullptr);
                for (size_t lane = 0; lane < count; ++lane) *cycles++ = legal ? lanes.end[lane] : -1;
            } else {
                count = 1;
                *cycles++ = single.run({row, 1}, ledgers) ? single.end : -1;
                if (ledgers) ledgers += kLedger;
                if (passed) passed = std::copy(single.passed, single.passed + kStretches, passed);
            }
            row += count * kColumns;
            rows -= count;
        }
    }
};

}  // namespace

extern "C" void celosia_score(const int64_t* table, uint64_t rows, int64_t* cycles, int64_t* ledgers, int64_t* passed, uint64_t threads) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
        Scorer scorer;
        for (size_t first; (first = next.fetch_add(kBlock)) < rows;) {
            Int* const accounts = ledgers ? ledgers + first * kLedger : nullptr;
            Int* const stretches = passed ? passed + first * kStretches : nullptr;
            scorer.score(table + first * kColumns, std::min<size_t>(kBlock, rows - first), cycles + first, accounts, stretches);
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
