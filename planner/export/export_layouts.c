/* All layouts that a target can express: degrees of layers that are split alike, ZeRO levels,
 * schedules, and where stages begin. */
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/export/export_priv.h"

struct lister {
    const struct sbp_export *export;
    const struct sbp_workload *workload;
    struct sbp_arena *arena;
    struct sbp_export_layouts *out;
    struct sbp_export_layout at; /* in the making */
    int room, blocks;
    int *block; /* (op_count) */
    bool has_experts;
    struct sbp_diag *why; /* why the first was not legal */
};

static bool can(const struct lister *l, unsigned ability)
{
    return (l->export->target->can & ability) != 0;
}

/* ---- degrees --------------------------------------------------------------------------------- */

static enum sbp_status add(struct lister *l)
{
    struct sbp_export_layouts *out = l->out;
    if (out->count == l->room) {
        const int room = 2 * l->room + 64;
        struct sbp_export_layout *grown = SBP_NEW(l->arena, struct sbp_export_layout, room);
        if (grown == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < out->count; i++)
            grown[i] = out->layout[i];
        out->layout = grown;
        l->room = room;
    }
    out->layout[out->count++] = l->at;
    return SBP_OK;
}

/* Whether the degrees so far divide what they split. */
static bool divides(struct lister *l)
{
    struct sbp_degrees all;
    struct sbp_diag why = {{0}};
    if (sbp_degrees_complete(&l->at.degrees, l->workload, &all, &why) == SBP_OK)
        return true;
    if (l->why->text[0] == '\0')
        *l->why = why;
    return false;
}

/* Levels that are written as they are beside the other degrees. */
static enum sbp_status add_zero(struct lister *l)
{
    struct sbp_degrees *d = &l->at.degrees;
    if (!divides(l))
        return SBP_OK;
    for (d->zero = 0; d->zero <= 3; d->zero++)
        if (l->export->target->zero[d->zero] == d->zero &&
            sbp_export_zero_beside(l->export, d, d->zero) == d->zero)
            SBP_TRY(add(l));
    d->zero = 0;
    return SBP_OK;
}

static enum sbp_status add_sequence(struct lister *l)
{
    struct sbp_degrees *d = &l->at.degrees;
    const bool splits = d->tensor > 1 && can(l, SBP_EXPORT_SEQUENCE_PARALLEL);
    const bool must = splits && l->has_experts && can(l, SBP_EXPORT_EXPERTS_BY_SEQUENCE);
    for (int sequence = must; sequence <= splits; sequence++) {
        d->sequence_parallel = sequence;
        SBP_TRY(add_zero(l));
    }
    d->sequence_parallel = false;
    return SBP_OK;
}

/* Ways that experts lie apart and that each of them is split. */
static enum sbp_status add_experts(struct lister *l, int64_t devices)
{
    struct sbp_degrees *d = &l->at.degrees;
    if (!l->has_experts)
        return add_sequence(l);
    const int64_t most = can(l, SBP_EXPORT_EXPERT) ? devices : 1;
    const int64_t most_split = can(l, SBP_EXPORT_EXPERTS_WHOLE) ? 1 : d->tensor;
    for (d->expert = 1; d->expert > 0; d->expert = sbp_degrees_next_divisor(most, d->expert))
        for (d->expert_tensor = 1; d->expert_tensor > 0;
             d->expert_tensor = sbp_degrees_next_divisor(most_split, d->expert_tensor))
            SBP_TRY(add_sequence(l));
    d->expert = d->expert_tensor = 1;
    return SBP_OK;
}

/* Shares out the devices of a stage. */
static enum sbp_status add_stage(struct lister *l, int64_t devices)
{
    struct sbp_degrees *d = &l->at.degrees;
    for (d->tensor = 1; d->tensor > 0; d->tensor = sbp_degrees_next_divisor(devices, d->tensor)) {
        const int64_t most = can(l, SBP_EXPORT_CONTEXT) ? devices / d->tensor : 1;
        for (d->context = 1; d->context > 0;
             d->context = sbp_degrees_next_divisor(most, d->context))
            if (divides(l))
                SBP_TRY(add_experts(l, devices));
    }
    d->tensor = d->context = 1;
    return SBP_OK;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The blocks that begin in each piece, of which there are SBP_MOST_GIVEN_PIECES at most. False: a
 * middle piece has none. */
static bool count_blocks(const struct lister *l, const int *first, int pieces, uint16_t *blocks)
{
    const int *block = l->block;
    memset(blocks, 0, SBP_MOST_GIVEN_PIECES * sizeof *blocks);
    for (int piece = 0; piece < pieces; piece++) {
        for (int op = first[piece]; op < first[piece + 1]; op++)
            if (block[op] >= 0 && (op == 0 || block[op - 1] != block[op]))
                blocks[piece]++;
        if (blocks[piece] == 0 && piece > 0 && piece + 1 < pieces)
            return false;
    }
    return true;
}

/* Adds layouts whose stages are cut so, unless they are `other`. */
static enum sbp_status add_cut(struct lister *l, enum sbp_stage_cut cut, int64_t devices,
                               uint16_t *blocks, const uint16_t *other)
{
    struct sbp_degrees *d = &l->at.degrees;
    const int pieces = (int)(d->pipeline * d->chunks);
    struct sbp_diag unsaid = {{0}};
    int *first = SBP_NEW(l->arena, int, pieces + 1);
    bool even = true;
    if (first == NULL)
        return SBP_E_MEMORY;
    const enum sbp_status status = sbp_stages_cut(&l->workload->model, pieces, cut, first, &unsaid);
    if (status == SBP_E_INPUT || (status == SBP_OK && !count_blocks(l, first, pieces, blocks)))
        return SBP_OK;
    SBP_TRY(status);
    if (other != NULL && memcmp(blocks, other, sizeof d->stage_blocks) == 0)
        return SBP_OK;
    for (int piece = 1; piece < pieces; piece++)
        even &= blocks[piece] == blocks[0];
    d->stage_blocks_count = even ? 0 : pieces;
    memcpy(d->stage_blocks, blocks, sizeof d->stage_blocks);
    return add_stage(l, devices);
}

/* Stages of equally many blocks, and of equally many flops between blocks where that differs. */
static enum sbp_status add_cuts(struct lister *l, int64_t devices)
{
    uint16_t even[SBP_MOST_GIVEN_PIECES], by_flops[SBP_MOST_GIVEN_PIECES];
    struct sbp_degrees *d = &l->at.degrees;
    memset(even, 0, sizeof even);
    const int64_t pieces = d->pipeline * d->chunks;
    if (pieces > l->blocks)
        return SBP_OK;
    if (pieces > SBP_MOST_GIVEN_PIECES) /* even ones alone can be said */
        return l->blocks % pieces == 0 ? add_stage(l, devices) : SBP_OK;
    SBP_TRY(add_cut(l, SBP_CUT_BLOCKS, devices, even, NULL));
    SBP_TRY(add_cut(l, SBP_CUT_FLOPS, devices, by_flops, even));
    d->stage_blocks_count = 0;
    return SBP_OK;
}

static enum sbp_status add_pipeline(struct lister *l, int64_t devices)
{
    struct sbp_degrees *d = &l->at.degrees;
    const unsigned schedules = l->export->target->schedules | 1u << SBP_ONE_F_ONE_B;
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++) {
        l->at.schedule = (enum sbp_schedule)schedule;
        if ((schedules >> schedule & 1) == 0)
            continue;
        d->chunks = 1;
        if (schedule != SBP_INTERLEAVED)
            SBP_TRY(add_cuts(l, devices));
        for (d->chunks = 2; schedule == SBP_INTERLEAVED && d->chunks * d->pipeline <= l->blocks;
             d->chunks++)
            if (l->blocks % (d->chunks * d->pipeline) == 0)
                SBP_TRY(add_cuts(l, devices));
    }
    d->chunks = 1;
    return SBP_OK;
}

static enum sbp_status add_all(struct lister *l)
{
    struct sbp_degrees *d = &l->at.degrees;
    const int64_t devices = sbp_cluster_devices(&l->workload->cluster);
    const bool whole = !can(l, SBP_EXPORT_PIPELINE) ||
                       (can(l, SBP_EXPORT_STAGES_UNTIED) && sbp_export_is_tied(l->export));
    SBP_TRY(add_stage(l, devices));
    for (d->pipeline = 2; !whole && d->pipeline <= devices && d->pipeline <= l->blocks;
         d->pipeline++)
        if (devices % d->pipeline == 0)
            SBP_TRY(add_pipeline(l, devices / d->pipeline));
    return SBP_OK;
}

enum sbp_status sbp_export_list_layouts(const struct sbp_export *export, struct sbp_arena *arena,
                                        struct sbp_export_layouts *layouts, struct sbp_diag *diag)
{
    const struct sbp_workload *workload = &export->given->workload;
    struct sbp_diag why = {{0}};
    struct lister l = {.export = export,
                       .workload = workload,
                       .arena = arena,
                       .out = layouts,
                       .at = {.degrees = sbp_degrees_none(), .schedule = SBP_ONE_F_ONE_B},
                       .has_experts = sbp_export_has_experts(&workload->model),
                       .why = &why};
    struct sbp_degrees *d = &l.at.degrees;
    *layouts = (struct sbp_export_layouts){0};
    d->tensor = d->context = d->pipeline = d->chunks = d->expert = d->recompute_every = 1;
    d->zero = 0;
    d->recompute = SBP_RECOMPUTE_NONE;
    l.block = SBP_NEW(arena, int, workload->model.op_count);
    if (l.block == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    l.blocks = sbp_stages_blocks(&workload->model, l.block);
    if (add_all(&l) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return layouts->count > 0 ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", why.text);
}
