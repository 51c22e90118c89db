/* Holds a compiled program's memory and its flow of data, by instructions and buffers alone. */
#include <stdlib.h>

#include "tests/support/program_oracle.h"
#include "tests/support/unit.h"

/* --- memory --- */

static bool persists(const struct sbp_buffer *buffer)
{
    return buffer->use != SBP_USE_ACTIVATION && buffer->use != SBP_USE_WORK &&
           buffer->use != SBP_USE_UNREDUCED;
}

static int64_t element_bytes(const struct sbp_program *program, const struct sbp_buffer *buffer)
{
    if (buffer->type == SBP_BUFFER_LOSS)
        return program->bytes.loss;
    if (buffer->type == SBP_BUFFER_STATISTIC) /* single precision at the least */
        return program->bytes.activation == 8 ? 8 : 4;
    if (buffer->type != SBP_BUFFER_REAL)
        return buffer->type == SBP_BUFFER_INT32 ? 4 : 1;
    switch (buffer->use) {
    case SBP_USE_WEIGHT:
    case SBP_USE_VERSION:
        return program->bytes.weight;
    case SBP_USE_GRADIENT:
        return program->bytes.gradient;
    case SBP_USE_SUM:
        return program->bytes.sum;
    case SBP_USE_MOMENT:
        return program->bytes.moment;
    case SBP_USE_MASTER:
        return program->bytes.master;
    default:
        return program->bytes.activation;
    }
}

/* The arena is no looser than half as much again as what lives at once. */
static void check_peak(const struct sbp_program *program)
{
    int64_t peak = 0;
    for (int at = 0; at < program->instr_count; at++) {
        int64_t live = 0;
        for (int i = 0; i < program->buffer_count; i++) {
            const struct sbp_buffer *buffer = &program->buffer[i];
            if (persists(buffer) || (buffer->first <= at && at <= buffer->last))
                live += (sbp_program_buffer_bytes(program, i) + 63) / 64 * 64;
        }
        peak = live > peak ? live : peak;
    }
    assert_int_equal(program->live_bytes, peak);
    if (program->arena_bytes > peak + peak / 2)
        fail_msg("an arena of %lld bytes for %lld that live at once",
                 (long long)program->arena_bytes, (long long)peak);
}

/* Persistent buffers lie first, then the frame with all that lives from forward to backward, then
 * the rest; no buffer lies in two of the three parts. */
static void check_parts(const struct sbp_program *program)
{
    const int64_t frame = program->persistent_bytes, rest = frame + program->kept_bytes;
    int turn = 0;
    while (turn < program->instr_count && program->instr[turn].section == SBP_SECTION_FORWARD)
        turn++;
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        const int64_t begin = buffer->offset_bytes;
        const int64_t end = begin + sbp_program_buffer_bytes(program, i);
        const bool kept = buffer->use == SBP_USE_INDEX ||
                          (!persists(buffer) && buffer->first < turn && buffer->last >= turn);
        const bool held = persists(buffer) && buffer->use != SBP_USE_INDEX;
        if (buffer->first < 0)
            continue;
        const bool in_frame = begin >= frame && end <= rest, above = begin >= rest;
        if (!(held ? end <= frame : kept ? in_frame : in_frame || above))
            fail_msg("buffer %d lies at %lld to %lld: held up to %lld, frame up to %lld", i,
                     (long long)begin, (long long)end, (long long)frame, (long long)rest);
    }
}

void oracle_check_memory(const struct oracle_setting *s)
{
    const struct sbp_program *program = &s->program;
    int64_t end = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *a = &program->buffer[i];
        const int64_t bytes = a->elements * element_bytes(program, a);
        assert_int_equal(sbp_program_buffer_bytes(program, i), bytes);
        assert_int_equal(a->offset_bytes % 64, 0);
        assert_true(a->offset_bytes >= 0 && bytes > 0);
        if (a->offset_bytes + bytes > end)
            end = a->offset_bytes + bytes;
        for (int j = 0; j < i; j++) {
            const struct sbp_buffer *b = &program->buffer[j];
            const bool together =
                persists(a) || persists(b) || (a->first <= b->last && b->first <= a->last);
            if (together &&
                a->offset_bytes < b->offset_bytes + sbp_program_buffer_bytes(program, j) &&
                b->offset_bytes < a->offset_bytes + bytes)
                fail_msg("buffers %d and %d overlap in %d .. %d and %d .. %d", i, j, a->first,
                         a->last, b->first, b->last);
        }
    }
    check_peak(program);
    check_parts(program);
    if (program->arena_bytes != end && program->arena_bytes != (end + 63) / 64 * 64)
        fail_msg("the arena has %lld bytes, the last buffer ends at %lld",
                 (long long)program->arena_bytes, (long long)end);
}

/* --- the flow of data --- */

enum { READS = 1, WRITES = 2 };

/* Convolutions: rows are fetched to SAVED before the forward pass reads them there; their
 * gradients, which the backward pass leaves in WORK, are added to OUT. */
static int access_of_rows(const struct sbp_instr *instr, int slot)
{
    const bool inner = instr->kind == SBP_INSTR_INNER, fetches = instr->buffer[SBP_AT_IN] >= 0;
    if (slot == SBP_AT_SAVED)
        return inner ? WRITES : READS;
    if (slot == SBP_AT_WORK)
        return inner && !fetches ? READS | WRITES : WRITES;
    return inner ? READS | WRITES : WRITES; /* OUT */
}

/* Says whether an instruction reads or writes the buffer in a slot, by the list of phases. */
static int access_of(const struct sbp_program *program, const struct sbp_instr *instr, int slot)
{
    const enum sbp_op_kind op =
        instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD
            ? program->graph->op[instr->op].kind
            : SBP_OP_KINDS;
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const bool norm = op == SBP_OP_LAYERNORM || op == SBP_OP_RMSNORM;
    const bool computes = op != SBP_OP_KINDS || instr->kind == SBP_INSTR_INNER;
    if (computes && instr->op >= 0 && program->graph->op[instr->op].kind == SBP_OP_CONV2D &&
        (slot == SBP_AT_SAVED || slot == SBP_AT_WORK || slot == SBP_AT_OUT))
        return access_of_rows(instr, slot);
    switch (slot) {
    case SBP_AT_OUT: /* the last phase writes it */
        if (forward && instr->phase + 1 < sbp_op_forward_phases(op))
            return 0;
        return instr->kind == SBP_INSTR_REDUCE ? READS | WRITES : WRITES;
    case SBP_AT_DW: /* the second use of a tied weight adds */
        return instr->kind == SBP_INSTR_UPDATE                           ? READS
               : instr->kind == SBP_INSTR_BACKWARD && instr->factor == 1 ? READS | WRITES
                                                                         : WRITES;
    case SBP_AT_DW2:
    case SBP_AT_DW + 2:
    case SBP_AT_DW + 3:
    case SBP_AT_OUT2:
    case SBP_AT_OUT3:
        return WRITES;
    case SBP_AT_WORK:
    case SBP_AT_WORK2:
        return WRITES;
    case SBP_AT_W:
        return instr->kind == SBP_INSTR_UPDATE ? READS | WRITES : READS;
    case SBP_AT_SAVED:
        if (instr->kind == SBP_INSTR_UPDATE)
            return READS | WRITES;
        return forward && instr->phase == 0 ? WRITES : READS;
    case SBP_AT_SAVED3:
        return forward ? WRITES : READS;
    case SBP_AT_SAVED2:
        if (instr->kind == SBP_INSTR_UPDATE)
            return READS | WRITES;
        if (op == SBP_OP_CROSS_ENTROPY && forward)
            return instr->phase == 0 ? 0 : instr->phase == 1 ? WRITES : READS;
        return norm && !forward && instr->phase == 0 ? WRITES : READS;
    default:
        return READS;
    }
}

/* In what state every buffer is before the first instruction. */
static bool given(const struct sbp_buffer *buffer)
{
    return buffer->use == SBP_USE_WEIGHT || buffer->use == SBP_USE_MOMENT ||
           buffer->use == SBP_USE_MASTER || buffer->use == SBP_USE_INDEX;
}

struct flow {
    bool *written;
    int *first, *last; /* uses */
};

static void touch(const struct sbp_program *program, int at, int slot, struct flow *flow)
{
    const struct sbp_instr *instr = &program->instr[at];
    const int i = instr->buffer[slot];
    if (i < 0)
        return;
    assert_in_range(i, 0, program->buffer_count - 1);
    const struct sbp_buffer *buffer = &program->buffer[i];
    if (!persists(buffer) && (at < buffer->first || at > buffer->last))
        fail_msg("instruction %d uses buffer %d, which lives in %d .. %d", at, i, buffer->first,
                 buffer->last);
    if ((access_of(program, instr, slot) & READS) != 0 && !flow->written[i])
        fail_msg("instruction %d (%s, operator %d, phase %d) reads slot %d before it is written",
                 at, sbp_program_instr_name(instr->kind), instr->op, instr->phase, slot);
    if (flow->first[i] < 0)
        flow->first[i] = at;
    flow->last[i] = at;
}

void oracle_check_flow(const struct oracle_setting *s)
{
    const struct sbp_program *program = &s->program;
    const size_t count = (size_t)program->buffer_count;
    struct flow flow = {calloc(count, sizeof(bool)), calloc(count, sizeof(int)),
                        calloc(count, sizeof(int))};
    assert_true(flow.written != NULL && flow.first != NULL && flow.last != NULL);
    for (int i = 0; i < program->buffer_count; i++) {
        flow.written[i] = given(&program->buffer[i]);
        flow.first[i] = flow.last[i] = -1;
    }
    if (program->loss_buffer >= 0) /* read when the step is over */
        assert_int_equal(program->buffer[program->loss_buffer].last, program->instr_count - 1);
    for (int at = 0; at < program->instr_count; at++) {
        const struct sbp_instr *instr = &program->instr[at];
        for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++)
            touch(program, at, slot, &flow);
        if (instr->kind == SBP_INSTR_NORM)
            for (int t = 0; t < program->graph->tensor_count; t++)
                assert_true(program->gradient_buffer[t] < 0 ||
                            flow.written[program->gradient_buffer[t]]);
        if (instr->kind == SBP_INSTR_BACKWARD && instr->buffer[SBP_AT_DW] >= 0)
            assert_int_equal(flow.written[instr->buffer[SBP_AT_DW]], instr->factor == 1);
        for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++)
            if (instr->buffer[slot] >= 0 && (access_of(program, instr, slot) & WRITES) != 0)
                flow.written[instr->buffer[slot]] = true;
    }
    for (int i = 0; i < program->buffer_count; i++)
        if (!persists(&program->buffer[i]) && i != program->loss_buffer &&
            (flow.first[i] != program->buffer[i].first || flow.last[i] != program->buffer[i].last))
            fail_msg("buffer %d lives in %d .. %d and is used in %d .. %d", i,
                     program->buffer[i].first, program->buffer[i].last, flow.first[i],
                     flow.last[i]);
    free(flow.written);
    free(flow.first);
    free(flow.last);
}

/* --- totals --- */

void oracle_check_totals(const struct oracle_setting *s)
{
    const struct sbp_program *program = &s->program;
    const struct sbp_totals totals = sbp_program_totals(program, &s->cluster);
    double compute_s = 0, communication_s = 0, optimizer_s = 0;
    int64_t held[SBP_USES] = {0}, persistent = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        assert_true(instr->compute_s >= 0 && instr->communication_s >= 0);
        compute_s += instr->compute_s;
        communication_s += instr->communication_s;
        if (instr->kind == SBP_INSTR_UPDATE)
            optimizer_s += instr->compute_s;
    }
    oracle_near("step", totals.step_s, compute_s + communication_s);
    oracle_near("communication", totals.communication_s, communication_s);
    oracle_near("optimizer", totals.optimizer_s, optimizer_s);
    oracle_near("compute", totals.compute_s, compute_s); /* the optimizer among it */
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        const int64_t rounded = (sbp_program_buffer_bytes(program, i) + 63) / 64 * 64;
        held[buffer->use] += rounded;
        persistent += persists(buffer) && buffer->use != SBP_USE_INDEX ? rounded : 0;
    }
    assert_int_equal(totals.weight_bytes, held[SBP_USE_WEIGHT] + held[SBP_USE_VERSION]);
    assert_int_equal(totals.gradient_bytes, held[SBP_USE_GRADIENT] + held[SBP_USE_SUM]);
    assert_int_equal(totals.moment_bytes, held[SBP_USE_MOMENT]);
    assert_int_equal(totals.master_bytes, held[SBP_USE_MASTER]);
    assert_int_equal(totals.device_bytes, program->arena_bytes + s->cluster.reserve_bytes);
    assert_int_equal(totals.activation_bytes, program->arena_bytes - persistent);
}
