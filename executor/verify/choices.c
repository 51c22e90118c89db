#include "executor/verify/choices_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "executor/rank/mixture.h"

enum { TAG_CHOICES = 15, NOT_KNOWN = -2 };

static bool is_mixture(const struct sbp_program *program, int op)
{
    return program->graph->op[op].kind == SBP_OP_MOE;
}

/* Numbers in a table of a micro-batch. */
static int64_t count_of(const struct sbp_rank_mixture *mixture)
{
    return 2 * mixture->tokens.tokens * mixture->tokens.top_k;
}

/* ---- on every rank --------------------------------------------------------------------------- */

static int64_t slot_of(const struct sbp_verifier *v, int chunk, int op)
{
    return (int64_t)chunk * v->rank->program->graph->op_count + op;
}

/* Tables of two steps take turns, since a step may begin before the one before it ends. */
static int32_t *table_of(const struct sbp_verifier *v, int chunk, int op, int64_t step,
                         int64_t micro_batch)
{
    const struct sbp_program *program = v->rank->arena->program[chunk];
    const struct sbp_rank_mixture mixture = sbp_rank_mixture_of(program, op, 0);
    return v->chosen[slot_of(v, chunk, op)] +
           ((step & 1) * program->scope.micro_batches + micro_batch) * count_of(&mixture);
}

enum sbp_status sbp_choices_open(struct sbp_verifier *v)
{
    const int ops = v->rank->program->graph->op_count;
    v->chosen = calloc((size_t)(v->rank->arena->chunks * ops), sizeof *v->chosen);
    if (v->chosen == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++) {
        const struct sbp_program *program = v->rank->arena->program[chunk];
        for (int op = program->scope.first_op; op < program->scope.end_op; op++) {
            if (!is_mixture(program, op))
                continue;
            const struct sbp_rank_mixture mixture = sbp_rank_mixture_of(program, op, 0);
            const int64_t count = 2 * program->scope.micro_batches * count_of(&mixture);
            v->chosen[slot_of(v, chunk, op)] = calloc((size_t)count, sizeof(int32_t));
            if (v->chosen[slot_of(v, chunk, op)] == NULL)
                return SBP_E_MEMORY;
        }
    }
    return SBP_OK;
}

void sbp_choices_close(struct sbp_verifier *v)
{
    const int64_t count = slot_of(v, v->rank->arena->chunks, 0);
    for (int64_t i = 0; v->chosen != NULL && i < count; i++)
        free(v->chosen[i]);
    free(v->chosen);
}

double sbp_choices_bytes(const struct sbp_program *program)
{
    double numbers = 0;
    for (int op = program->scope.first_op; op < program->scope.end_op; op++)
        if (is_mixture(program, op)) {
            const struct sbp_rank_mixture mixture = sbp_rank_mixture_of(program, op, 0);
            numbers += 2 * (double)program->scope.micro_batches * (double)count_of(&mixture);
        }
    return numbers * sizeof(int32_t);
}

enum sbp_status sbp_choices_keep(struct sbp_verifier *v, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    if (instr->kind != SBP_INSTR_FORWARD || instr->section != SBP_SECTION_FORWARD ||
        instr->phase != 0 || !is_mixture(rank->program, instr->op))
        return SBP_OK;
    const struct sbp_rank_mixture mixture = sbp_rank_mixture_of(rank->program, instr->op, 0);
    const struct sbp_spent start = sbp_verify_start_of_check();
    SBP_TRY(sbp_rank_to_host(
        rank, table_of(v, rank->chunk, instr->op, rank->gradients, rank->micro_batch),
        sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED3]),
        count_of(&mixture) * (int64_t)sizeof(int32_t), diag));
    sbp_verify_spend_since(v, start);
    return SBP_OK;
}

/* ---- on rank 0 ------------------------------------------------------------------------------- */

/* A rank's table of a micro-batch. */
struct choices {
    struct sbp_verifier *v;
    const struct sbp_program *program;
    int op, rank; /* rank: among all */
    int64_t place, micro_batch;
    struct sbp_rank_mixture mixture;
    int32_t *table; /* (tokens, top_k, 2) */
    int32_t *taken; /* (experts) scratch */
};

static void report(const struct choices *c, const char *what, int64_t copy, int64_t run,
                   int64_t reference)
{
    sbp_verify_report(c->v, what, c->program->graph->op[c->op].name, c->rank, copy, (double)run,
                      (double)reference, 0);
}

/* The index in the batch of a token of the rank. */
static int64_t token_of(const struct choices *c, const struct sbp_region *region, int64_t local)
{
    const int64_t columns = sbp_digits_local_size(&region->dim[SBP_DIM_SEQUENCE]);
    const int64_t row = sbp_digits_global(&region->dim[SBP_DIM_BATCH], local / columns);
    return (c->micro_batch * c->program->graph->micro_batch + row) *
               sbp_digits_global_size(&region->dim[SBP_DIM_SEQUENCE]) +
           sbp_digits_global(&region->dim[SBP_DIM_SEQUENCE], local % columns);
}

/* Whether a token's experts are experts, and different ones; what is none becomes one. */
static void check_experts(const struct choices *c, int32_t *copies, int64_t first)
{
    const struct sbp_routing *m = &c->mixture.tokens;
    for (int64_t k = 0; k < m->top_k; k++) {
        bool is_other = copies[2 * k] >= 0 && copies[2 * k] < m->experts;
        for (int64_t before = 0; before < k; before++)
            is_other = is_other && copies[2 * before] != copies[2 * k];
        if (!is_other)
            report(c, "choice of experts", first + k, copies[2 * k], -1);
        if (copies[2 * k] < 0 || copies[2 * k] >= m->experts)
            copies[2 * k] = 0;
    }
}

/* Which slot each copy must have: its expert's next one, of first choices first, while there are
 * any. */
static void check_slots(const struct choices *c, const struct sbp_region *region)
{
    const struct sbp_routing *m = &c->mixture.tokens;
    memset(c->taken, 0, (size_t)m->experts * sizeof *c->taken);
    for (int64_t k = 0; k < m->top_k; k++)
        for (int64_t t = 0; t < m->tokens; t++) {
            const int32_t *copy = c->table + 2 * (t * m->top_k + k);
            const int64_t before = c->taken[copy[0]]++;
            const int64_t slot =
                before < m->capacity ? sbp_rank_mixture_slot(&c->mixture, copy[0], before) : -1;
            if (copy[1] != slot)
                report(c, "slot of a token's copy", token_of(c, region, t) * m->top_k + k, copy[1],
                       slot);
        }
}

/* Enters a rank's experts, and whether a copy was dropped, into the table of the whole batch; other
 * ranks that have the token must have chosen the same. */
static void enter(const struct choices *c, const struct sbp_region *region)
{
    const struct sbp_routing *m = &c->mixture.tokens;
    int32_t *const whole = c->v->reference->given.table[c->op];
    for (int64_t i = 0; i < m->tokens * m->top_k; i++) {
        const int64_t copy = token_of(c, region, i / m->top_k) * m->top_k + i % m->top_k;
        const int32_t dropped = c->table[2 * i + 1] < 0 ? -1 : 0;
        int32_t *const to = whole + 2 * copy;
        if (to[0] == NOT_KNOWN) {
            to[0] = c->table[2 * i];
            to[1] = dropped;
        } else if (to[0] != c->table[2 * i] || to[1] != dropped) {
            report(c, "replica of the choice of experts", copy, c->table[2 * i], to[0]);
        }
    }
}

static void take(const struct choices *c)
{
    const struct sbp_graph *graph = c->program->graph;
    const struct sbp_layout layout = {&c->program->mesh, graph->class_count,
                                      c->program->strategy.split};
    const struct sbp_routing *m = &c->mixture.tokens;
    const struct sbp_dist dist =
        sbp_strategy_input(graph, &c->program->mesh, &c->program->strategy, c->op, 0);
    struct sbp_region region;
    sbp_dist_region(&layout, &graph->tensor[graph->op[c->op].input[0]].shape, &dist, c->place,
                    &region);
    for (int64_t t = 0; t < m->tokens; t++)
        check_experts(c, c->table + 2 * t * m->top_k, token_of(c, &region, t) * m->top_k);
    check_slots(c, &region);
    enter(c, &region);
}

/* One rank's table, if this is that rank or rank 0. */
static enum sbp_status collect_place(struct choices *c, int piece, int stage, struct sbp_diag *diag)
{
    struct sbp_verifier *const v = c->v;
    const int own = sbp_verify_rank(v);
    const int64_t bytes = count_of(&c->mixture) * (int64_t)sizeof(int32_t);
    c->rank = sbp_channel_rank(v->channel, stage, c->place);
    const int32_t *mine = own != c->rank ? NULL
                                         : table_of(v, sbp_step_chunk_of(v->channel->step, piece),
                                                    c->op, v->rank->step, c->micro_batch);
    if (own != 0)
        return mine == NULL ? SBP_OK
                            : sbp_channel_send(v->channel, 0, TAG_CHOICES, mine, bytes, diag);
    if (mine != NULL)
        memcpy(c->table, mine, (size_t)bytes);
    else
        SBP_TRY(sbp_channel_receive(v->channel, c->rank, TAG_CHOICES, c->table, bytes, diag));
    take(c);
    return SBP_OK;
}

static enum sbp_status collect_op(struct sbp_verifier *v, int piece, int op, struct sbp_diag *diag)
{
    const struct sbp_step *step = v->channel->step;
    struct choices c = {.v = v, .program = sbp_step_program(step, piece), .op = op};
    enum sbp_status status = SBP_OK;
    c.mixture = sbp_rank_mixture_of(c.program, op, 0);
    c.table = malloc((size_t)count_of(&c.mixture) * sizeof *c.table);
    c.taken = malloc((size_t)c.mixture.tokens.experts * sizeof *c.taken);
    if (c.table == NULL || c.taken == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    for (c.micro_batch = 0; c.micro_batch < c.program->scope.micro_batches; c.micro_batch++) {
        const int stage = step->replicates
                              ? sbp_replicas_micro_batch(step->stages, (int)c.micro_batch)
                              : sbp_step_stage_of(step, piece);
        for (c.place = 0; c.place < step->mesh.devices && status == SBP_OK; c.place++)
            status = collect_place(&c, piece, stage, diag);
    }
    free(c.table);
    free(c.taken);
    return status;
}

static void forget(struct sbp_reference *reference, int op)
{
    const int64_t count = sbp_reference_choices(reference, op);
    for (int64_t i = 0; i < count; i++)
        reference->given.table[op][2 * i] = NOT_KNOWN;
}

/* Slots of the reference, which has room for all copies that ranks did not drop. */
static void deal_slots(struct sbp_reference *reference, int op)
{
    const struct sbp_rank_mixture m = sbp_rank_mixture_of(reference->program, op, 0);
    const int64_t count = sbp_reference_choices(reference, op);
    const int64_t at_a_time = m.tokens.tokens * m.tokens.top_k;
    int32_t *const table = reference->given.table[op];
    int32_t *const taken = reference->taken;
    for (int64_t i = 0; i < count; i++) {
        if (i % at_a_time == 0)
            memset(taken, 0, (size_t)m.tokens.experts * sizeof *taken);
        int32_t *const copy = table + 2 * i;
        assert(copy[0] != NOT_KNOWN); /* ranks have all tokens among them */
        if (copy[1] >= 0)
            copy[1] = taken[copy[0]] < m.tokens.capacity
                          ? (int32_t)(copy[0] * m.tokens.capacity + taken[copy[0]]++)
                          : -1;
    }
}

enum sbp_status sbp_choices_collect(struct sbp_verifier *v, struct sbp_diag *diag)
{
    const struct sbp_step *step = v->channel->step;
    const struct sbp_graph *graph = v->rank->program->graph;
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_MOE && sbp_verify_leads(v))
            forget(v->reference, op);
    for (int piece = 0; piece < step->pieces; piece++) {
        const struct sbp_scope *scope = &sbp_step_program(step, piece)->scope;
        for (int op = scope->first_op; op < scope->end_op; op++)
            if (graph->op[op].kind == SBP_OP_MOE)
                SBP_TRY(collect_op(v, piece, op, diag));
    }
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_MOE && sbp_verify_leads(v))
            deal_slots(v->reference, op);
    return SBP_OK;
}
