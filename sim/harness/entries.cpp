// C entry points of a simulated block. celosia_design.h describes the block and comes first.
#include <mutex>
#include "tiles.h"

static celosia::Simulation* celosia_bound = nullptr;
static std::mutex celosia_models;

// Each model has its own context, since a context remembers the models it has had and dumps all of them. Contexts are
// small and never freed: threads keep a pointer to the last one that they saw.
static VerilatedContext* celosia_fresh_context() {
    auto* context = new VerilatedContext;
    context->traceEverOn(true);
    return context;
}

extern "C" {

// A simulation of its own model, or of `model` when it is given (which then stays its owner's).
celosia::Simulation* celosia_open(celosia::Top* model) {
    auto* s = new celosia::Simulation;
    std::lock_guard<std::mutex> guard(celosia_models);
    s->owner = !model;
    s->top = model ? model : new celosia::Top(celosia_fresh_context());
    return s;
}
// Before PyVerilator's construct(), in the same thread: gives the model that comes a context of its own.
void celosia_prepare(void) {
    std::lock_guard<std::mutex> guard(celosia_models);
    celosia_fresh_context();
}
void celosia_close(celosia::Simulation* s) {
    if (celosia_bound == s) celosia_bound = nullptr;
    std::lock_guard<std::mutex> guard(celosia_models);
    if (s->owner) delete s->top;
    delete s;
}
void celosia_reset(celosia::Simulation* s, uint64_t cycles) { s->reset(cycles); }
void celosia_configure(celosia::Simulation* s, uint64_t max_cycles, uint64_t hang_limit, double gap_a, double gap_b, double back, uint64_t seed) {
    s->max_cycles = max_cycles;
    s->hang_limit = hang_limit;
    s->a.jitter.configure(gap_a, 3 * seed + 1);
    s->b.jitter.configure(gap_b, 3 * seed + 2);
    s->back_pressure.configure(back, 3 * seed + 3);
}
// One packed record of inputs in, one of outputs out per cycle; outputs are sampled before the clock's edge.
uint64_t celosia_records(celosia::Simulation* s, uint64_t count, const uint8_t* in, uint8_t* out) {
    uint64_t i = 0;
    for (; i < count && !s->stop.load(std::memory_order_relaxed); ++i, in += celosia::kInputBytes, out += celosia::kOutputBytes) {
        celosia::poke(*s->top, in);
        s->low();
        celosia::peek(*s->top, out);
        s->high();
    }
    if (i < count) s->fail(celosia::kStopped);
    return i;
}
// Everything at once: port images of all beats in, `results` port images out.
int32_t celosia_stream(celosia::Simulation* s, uint64_t beats_a, const uint8_t* a, const uint8_t* lasts, uint64_t beats_b, const uint8_t* b,
                       uint64_t results, uint8_t* out) {
    if (s->status) return s->status;
    if (beats_a) {
        std::memcpy(s->a.reserve(beats_a), a, beats_a * celosia::StreamA::kBytes);
        std::memcpy(s->a.lasts + s->a.tail, lasts, beats_a);
        s->a.commit(beats_a, false);
    }
    if (beats_b) {
        std::memcpy(s->b.reserve(beats_b), b, beats_b * celosia::StreamB::kBytes);
        s->b.commit(beats_b, false);
    }
    s->raw = out;
    s->due += results;
    s->run_out();
    s->raw = nullptr;
    return s->status;
}
int32_t celosia_nest(celosia::Simulation* s, const void* a, const void* b, void* c, int32_t loops, const int64_t* counts, const int64_t* steps,
                     const int32_t* strides) {
    s->nest(a, b, c, loops, counts, steps, strides);
    return s->flush();
}
int32_t celosia_push(celosia::Simulation* s, const void* a, const void* b, void* c, const int32_t* strides) {
    return s->push(a, b, c, strides);
}
int32_t celosia_flush(celosia::Simulation* s) { return s->flush(); }
int32_t celosia_idle(celosia::Simulation* s, uint64_t cycles) {
    s->idle(cycles);
    return s->status;
}
void celosia_stop(celosia::Simulation* s) { s->stop = 1; }
void celosia_trace(celosia::Simulation* s, VerilatedVcdC* vcd, uint64_t time) {
    s->vcd = vcd;
    s->vcd_time = time;
}
uint64_t celosia_trace_time(celosia::Simulation* s) { return s->vcd_time; }
// May be called while another thread runs the simulation.
void celosia_counters(const celosia::Simulation* s, uint64_t* to) {
    *to++ = s->cycles.load(std::memory_order_relaxed);
    for (uint64_t count : s->ledger) *to++ = count;
    for (uint64_t count : {s->calls, s->runs, s->a.accepted, s->b.accepted, s->results}) *to++ = count;
}
// What a failed run looks like: status, quiet cycles, then (beats waiting or due, valid, ready) of i_a, i_b, o_c.
void celosia_status(const celosia::Simulation* s, uint64_t* to) {
    auto& t = *s->top;
    *to++ = static_cast<uint64_t>(s->status);
    *to++ = s->quiet;
    for (uint64_t value : {uint64_t(s->a.tail - s->a.head), uint64_t(celosia::StreamA::valid(t)), uint64_t(celosia::StreamA::ready(t)),
                           uint64_t(s->b.tail - s->b.head), uint64_t(celosia::StreamB::valid(t)), uint64_t(celosia::StreamB::ready(t)), s->due,
                           uint64_t(celosia::StreamC::valid(t)), uint64_t(celosia::StreamC::ready(t))})
        *to++ = value;
}
// The model that push and flush of this library drive; null for none.
void celosia_bind(celosia::Simulation* s) { celosia_bound = s; }
int32_t CELOSIA_PUSH(void* a, void* b, void* c CELOSIA_STRIDE_PARAMETERS) {
    if (!celosia_bound) return celosia::kUnbound;
    const int32_t strides[] = {CELOSIA_STRIDE_VALUES 0};
    return celosia_bound->push(a, b, c, strides);
}
int32_t CELOSIA_FLUSH(void) { return celosia_bound ? celosia_bound->flush() : celosia::kUnbound; }

}  // extern "C"
