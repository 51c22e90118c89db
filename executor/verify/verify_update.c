#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/verify/textbook_priv.h"
#include "executor/verify/verify_priv.h"

static double wide_at(const struct sbp_verifier *v, const void *values, int64_t i)
{
    return values == NULL ? 0 : sbp_half_get(v->rank->wide->real, values, i);
}

/* ---- states in host memory ----------------------------------------------------------------- */

static enum sbp_status hash_part(struct sbp_verifier *v, const struct sbp_memory_ops *memory,
                                 const struct sbp_rank_states *part, uint64_t *hash,
                                 struct sbp_diag *diag)
{
    *hash = 0;
    for (int i = 0; i < 3; i++)
        if (part->state[i] != NULL)
            SBP_TRY(sbp_verify_hash_memory(v, memory, part->state[i],
                                           part->count * v->rank->kernels->wide_bytes, hash, diag));
    return SBP_OK;
}

/* That of a tensor's part of a bucket, from 0: the next tensor begins where one ends, or in the
 * same bucket. Tensors of other owners have their leader's place. */
static uint64_t *hosted_hash(const struct sbp_verifier *v, int tensor, int64_t bucket)
{
    return &v->hosted[v->rank->chunk][v->rank->program->shard[tensor].leader + bucket];
}

static enum sbp_status note_chunk(struct sbp_verifier *v, struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    const struct sbp_buckets buckets = sbp_buckets_of(rank->program);
    const int tensors = rank->program->graph->tensor_count;
    uint64_t *hash = calloc((size_t)(tensors + buckets.count), sizeof *hash);
    v->hosted[rank->chunk] = hash;
    if (hash == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tensors; t++) {
        const struct sbp_weight_shard *shard = &rank->program->shard[t];
        const int64_t updates = sbp_rank_updates(rank, t), end = shard->begin + updates;
        for (int64_t b = shard->begin / buckets.parameters;
             updates > 0 && b * buckets.parameters < end; b++) {
            const struct sbp_rank_states part = sbp_rank_hosted_states(rank, t, b + 1);
            SBP_TRY(hash_part(v, &sbp_device_host_memory, &part, hosted_hash(v, t, b), diag));
        }
    }
    return SBP_OK;
}

enum sbp_status sbp_verify_note_hosted(struct sbp_verifier *v, struct sbp_diag *diag)
{
    v->hosted = calloc((size_t)v->rank->arena->chunks, sizeof *v->hosted);
    if (v->hosted == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++) {
        sbp_rank_turn(v->rank, chunk);
        if (v->rank->program->host_bytes > 0)
            SBP_TRY(note_chunk(v, diag));
    }
    return SBP_OK;
}

/* What comes to the device must be what went back from it in the step before. */
static enum sbp_status check_hosted(struct sbp_verifier *v, int tensor,
                                    const struct sbp_rank_states *part, struct sbp_diag *diag)
{
    uint64_t hash;
    SBP_TRY(hash_part(v, v->rank->device->memory, part, &hash, diag));
    if (hash != *hosted_hash(v, tensor, v->rank->bucket - 1))
        sbp_verify_report(v, "states since their update",
                          v->rank->program->graph->tensor[tensor].name, sbp_verify_rank(v), -1,
                          (double)NAN, (double)NAN, 0);
    return SBP_OK;
}

/* ---- an update ------------------------------------------------------------------------------ */

/* An UPDATE, and the elements of its part of a shard that are at hand. */
struct update_at {
    const struct sbp_instr *instr;
    struct sbp_update update;
    struct sbp_textbook textbook;
    struct sbp_rank_states part;
    char *state[3]; /* wide: the weight or its master copy, moments; NULL where there is none */
    int64_t start, count;
};

static void compare_update(struct sbp_verifier *v, const struct update_at *at,
                           const struct sbp_parameter *run, const struct sbp_parameter *after,
                           const struct sbp_parameter *bound, int64_t local)
{
    const struct sbp_program *program = v->rank->program;
    struct sbp_verify_outcome *outcome = &v->outcome;
    const bool weight = sbp_verify_is_near(outcome, run->weight, after->weight, bound->weight);
    const bool first = sbp_verify_is_near(outcome, run->first, after->first, bound->first);
    const bool second = sbp_verify_is_near(outcome, run->second, after->second, bound->second);
    if (weight && first && second)
        return;
    const char *name = program->graph->tensor[at->instr->tensor].name;
    struct sbp_region region;
    sbp_rank_region(v->rank, at->instr->buffer[SBP_AT_W], &region);
    const struct sbp_stretch stretch = sbp_rank_stretch(program, at->instr->tensor, v->rank->rank);
    const int64_t index =
        local < stretch.count ? sbp_region_global(&region, stretch.first + local) : -1;
    if (!first)
        sbp_verify_report(v, "first moment", name, sbp_verify_rank(v), index, run->first,
                          after->first, bound->first);
    else if (!second)
        sbp_verify_report(v, "second moment", name, sbp_verify_rank(v), index, run->second,
                          after->second, bound->second);
    else
        sbp_verify_report(v, "updated weight", name, sbp_verify_rank(v), index, run->weight,
                          after->weight, bound->weight);
}

/* A weight must be its master copy, rounded. */
static void check_rounded(struct sbp_verifier *v, const struct update_at *at, int64_t i,
                          double master)
{
    const struct sbp_parameter run = {.weight = sbp_verify_real(v, v->rounded, i)};
    const float wide = (float)master;
    double nearest; /* room for any real */
    sbp_kernels_cpu(v->rank->kernels->real)->from_wide(&nearest, &wide, 1);
    const struct sbp_parameter after = {.weight = sbp_verify_real(v, &nearest, 0)};
    compare_update(v, at, &run, &after, &(struct sbp_parameter){0}, at->part.first + at->start + i);
}

/* Compares one piece that has been updated; v->before holds what was, v->piece the gradient. */
static void check_piece(struct sbp_verifier *v, const struct update_at *at, void *const *now)
{
    for (int64_t i = 0; i < at->count; i++) {
        const struct sbp_parameter before = {
            wide_at(v, v->before[0], i), at->state[1] == NULL ? 0 : wide_at(v, v->before[1], i),
            at->state[2] == NULL ? 0 : wide_at(v, v->before[2], i)};
        const struct sbp_parameter run = {wide_at(v, now[0], i), wide_at(v, now[1], i),
                                          wide_at(v, now[2], i)};
        struct sbp_parameter after, bound;
        sbp_textbook_update(&at->textbook, sbp_verify_real(v, v->piece, i) / at->update.loss_scale,
                            &before, &after, &bound);
        compare_update(v, at, &run, &after, &bound, at->part.first + at->start + i);
        if (at->part.gradient_master != NULL)
            check_rounded(v, at, i, run.weight);
    }
}

/* Updates a piece with the run's kernel. */
static enum sbp_status run_piece(struct sbp_verifier *v, const struct update_at *at,
                                 char *const *state, struct sbp_diag *diag)
{
    const struct sbp_kernels *kernels = v->rank->kernels;
    const struct sbp_update update = sbp_rank_update(v->rank);
    const int64_t skip = at->start * kernels->real_bytes;
    const bool has_master = at->part.gradient_master != NULL;
    char *const converted =
        has_master ? at->part.gradient_master + at->start * kernels->wide_bytes : NULL;
    kernels->update(at->part.weight + skip, has_master ? state[0] : NULL, at->part.gradient + skip,
                    converted, state[1], state[2], at->count, &update, v->rank->state);
    return v->rank->device->finish(diag);
}

/* Saves a piece, updates it with the run's kernel, and checks it. */
static enum sbp_status update_piece(struct sbp_verifier *v, const struct update_at *at,
                                    struct sbp_diag *diag)
{
    const int64_t real = v->rank->kernels->real_bytes, wide = v->rank->kernels->wide_bytes;
    char *state[3];
    void *now[3] = {NULL, NULL, NULL};
    struct sbp_spent start = sbp_verify_start_of_check();
    for (int i = 0; i < 3; i++) {
        state[i] = at->state[i] == NULL ? NULL : at->state[i] + at->start * wide;
        if (state[i] != NULL)
            SBP_TRY(sbp_rank_to_host(v->rank, v->before[i], state[i], at->count * wide, diag));
    }
    SBP_TRY(sbp_rank_to_host(v->rank, v->piece, at->part.gradient + at->start * real,
                             at->count * real, diag));
    sbp_verify_spend_since(v, start);
    SBP_TRY(run_piece(v, at, state, diag));
    start = sbp_verify_start_of_check();
    enum sbp_status status = sbp_rank_to_host(
        v->rank, v->rounded, at->part.weight + at->start * real, at->count * real, diag);
    for (int i = 0; i < 3 && status == SBP_OK; i++) {
        now[i] = state[i] == NULL ? NULL : (char *)v->before[i] + SBP_VERIFY_PIECE * sizeof(double);
        if (state[i] != NULL)
            status = sbp_rank_to_host(v->rank, now[i], state[i], at->count * wide, diag);
    }
    if (status == SBP_OK)
        check_piece(v, at, now);
    sbp_verify_spend_since(v, start);
    return status;
}

/* Notes what a part of an update has left: the states that go to the host, and the weight, once all
 * of it is updated. */
static enum sbp_status note_update(struct sbp_verifier *v, const struct update_at *at,
                                   struct sbp_diag *diag)
{
    const struct sbp_rank *rank = v->rank;
    const int tensor = at->instr->tensor;
    if (rank->bucket > 0)
        SBP_TRY(hash_part(v, rank->device->memory, &at->part,
                          hosted_hash(v, tensor, rank->bucket - 1), diag));
    return at->part.first + at->part.count < rank->program->shard[tensor].elements
               ? SBP_OK
               : sbp_verify_hash_weight(v, tensor,
                                        &v->updated[sbp_verify_slot(v, rank->chunk, tensor)], diag);
}

/* An update of a weight with two versions must begin with the newest: the textbook takes what is
 * there. */
static enum sbp_status check_begin(struct sbp_verifier *v, int tensor, struct sbp_diag *diag)
{
    const struct sbp_program *program = v->rank->program;
    uint64_t hash;
    if (program->other_version[tensor] < 0)
        return SBP_OK;
    const struct sbp_spent start = sbp_verify_start_of_check();
    SBP_TRY(sbp_verify_hash_weight(v, tensor, &hash, diag));
    if (hash != v->updated[sbp_verify_slot(v, v->rank->chunk, tensor)])
        sbp_verify_report(v, "weight that is updated", program->graph->tensor[tensor].name,
                          sbp_verify_rank(v), -1, (double)NAN, (double)NAN, 0);
    sbp_verify_spend_since(v, start);
    return SBP_OK;
}

/* The textbook takes the scales that the device decided on. */
static struct sbp_update scaled_update(const struct sbp_rank *rank)
{
    struct sbp_update update = sbp_rank_update(rank);
    update.step -= rank->known.left_out;
    update.gradient_scale = rank->known.gradient_scale;
    update.loss_scale = rank->known.loss_scale;
    return update;
}

enum sbp_status sbp_verify_update(struct sbp_verifier *v, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    struct update_at at = {.instr = instr, .part = sbp_rank_states(rank, instr)};
    struct sbp_spent start = sbp_verify_start_of_check();
    if (rank->bucket > 0 && at.part.count > 0)
        SBP_TRY(check_hosted(v, instr->tensor, &at.part, diag));
    sbp_verify_spend_since(v, start);
    sbp_rank_decide(rank);
    SBP_TRY(sbp_rank_read_state(rank, diag));
    at.update = scaled_update(rank);
    sbp_rank_bring_newest(rank, instr->tensor);
    SBP_TRY(check_begin(v, instr->tensor, diag));
    if (rank->known.leaves_out != 0)
        return SBP_OK;
    memcpy(at.state, at.part.state, sizeof at.state);
    if (at.state[0] == NULL)
        at.state[0] = at.part.weight;
    at.textbook = sbp_textbook_make(&at.update, v->wide_u);
    for (; at.start < at.part.count; at.start += SBP_VERIFY_PIECE) {
        const int64_t left = at.part.count - at.start;
        at.count = left < SBP_VERIFY_PIECE ? left : SBP_VERIFY_PIECE;
        SBP_TRY(update_piece(v, &at, diag));
    }
    if (at.part.count == 0)
        return SBP_OK;
    start = sbp_verify_start_of_check();
    const enum sbp_status status = note_update(v, &at, diag);
    sbp_verify_spend_since(v, start);
    return status;
}
