#include "executor/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/math/half.h"
#include "base/math/random.h"
#include "executor/verify/blocks_priv.h"
#include "executor/verify/reference_priv.h"
#include "executor/verify/textbook_priv.h"

enum { TAG_STEP = 13, TAG_SCALE = 14 };
enum { PIECE = SBP_BLOCKS_PIECE }; /* elements of a piece of an update, too */
static const double C = 8;         /* of the bound in verify.h */

/* The values that every rank sends to rank 0 at a step's end. */
struct summary {
    double loss, grad_norm, gradient_scale;
    bool overflowed, states_changed;
    struct sbp_verify_outcome updates;
};

struct sbp_verifier {
    struct sbp_rank *rank;
    struct sbp_channel *channel;
    int ranks;     /* of all stages */
    int64_t slots; /* (chunks, tensor_count) */
    double u;      /* of the run's reals */
    double wide_u; /* of its arithmetic, statistics and optimizer states */
    double log2_ranks;
    int64_t tokens;
    struct sbp_verify_outcome outcome; /* of this rank's updates; on rank 0 all */
    struct sbp_spent spent;
    void *piece;       /* (PIECE) reals of the run */
    void *before[3];   /* (2 PIECE) wide: weight and moments before an update, and after it */
    void *rounded;     /* (PIECE) reals: a weight that has a master copy */
    uint64_t *updated; /* (chunks, tensor_count) hash of this rank's part of a weight, and of its
                          master copy, after its update */
    int *end_instr;    /* (chunks, tensor_count), see sbp_reference_end_instr */
    void **output;     /* (chunks, tensor_count) this rank's blocks of such a value, one for each
                          micro-batch, host memory; or NULL */
    struct sbp_reference *reference; /* rank 0 only */
    double squares;                  /* rank 0: of the step's gradients, each element once */
    struct sbp_loss_scaler scaler;   /* rank 0: what every rank's should be */
    bool overflows;                  /* rank 0: a gradient of the step is no finite number */
    uint64_t states; /* hash of this rank's states at the step's start, where the loss is scaled */
};

/* ---- small things -------------------------------------------------------------------------- */

static int own_rank(const struct sbp_verifier *v)
{
    return sbp_channel_rank(v->channel, v->channel->stage, v->rank->rank);
}

static bool leads(const struct sbp_verifier *v)
{
    return own_rank(v) == 0;
}

static const struct sbp_program *program_of(const struct sbp_verifier *v, int piece)
{
    return sbp_step_program(v->channel->step, piece);
}

/* Turns to the piece where this rank has it. */
static bool turn_to(struct sbp_verifier *v, int piece)
{
    const int stages = v->channel->step->stages;
    if (piece % stages != v->channel->stage)
        return false;
    sbp_rank_turn(v->rank, piece / stages);
    return true;
}

/* The place of a chunk's tensor in end_instr and output. */
static int64_t slot_of(const struct sbp_verifier *v, int chunk, int tensor)
{
    return (int64_t)chunk * v->rank->program->graph->tensor_count + tensor;
}

static double real_at(const struct sbp_verifier *v, const void *values, int64_t i)
{
    return sbp_half_get(v->rank->kernels->real, values, i);
}

static double wide_at(const struct sbp_verifier *v, const void *values, int64_t i)
{
    return values == NULL ? 0 : sbp_half_get(v->rank->wide->real, values, i);
}

bool sbp_verify_is_near(struct sbp_verify_outcome *outcome, double run, double reference,
                        double bound)
{
    const double difference = fabs(run - reference);
    if (bound > 0 && difference / bound > outcome->worst_ratio)
        outcome->worst_ratio = difference / bound;
    return isfinite(run) && isfinite(bound) && difference <= bound;
}

static void report(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                   int64_t index, double run, double reference, double bound)
{
    struct sbp_finding *first = &v->outcome.first;
    if (first->found)
        return;
    *first = (struct sbp_finding){.found = true,
                                  .index = index,
                                  .rank = rank,
                                  .step = v->rank->step,
                                  .run = run,
                                  .reference = reference,
                                  .bound = bound};
    (void)snprintf(first->what, sizeof first->what, "%s", what);
    (void)snprintf(first->tensor, sizeof first->tensor, "%s", tensor);
}

static void compare(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                    int64_t index, double run, double reference, double bound)
{
    if (!sbp_verify_is_near(&v->outcome, run, reference, bound))
        report(v, what, tensor, rank, index, run, reference, bound);
}

static struct sbp_spent start_of_check(void)
{
    return (struct sbp_spent){sbp_thread_cpu_s(), sbp_clock_s()};
}

static void spend_since(struct sbp_verifier *v, struct sbp_spent start)
{
    v->spent.cpu_s += sbp_thread_cpu_s() - start.cpu_s;
    v->spent.wall_s += sbp_clock_s() - start.wall_s;
}

const char *sbp_verify_finding_text(const struct sbp_finding *finding, char *buffer, int size)
{
    (void)snprintf(buffer, (size_t)size,
                   "step %lld: %s%s%s, element %lld on rank %lld: run %.17g, reference %.17g, "
                   "difference %.3g, bound %.3g",
                   (long long)finding->step, finding->what, finding->tensor[0] ? " of " : "",
                   finding->tensor, (long long)finding->index, (long long)finding->rank,
                   finding->run, finding->reference, fabs(finding->run - finding->reference),
                   finding->bound);
    return buffer;
}

/* ---- collecting ---------------------------------------------------------------------------- */

/* All weights are collected, or all gradients. From some ZeRO level on they are in shards. */
struct states {
    bool gradients;
    int sharded_from;
    void (*take)(void *context, const struct sbp_rank_blocks *blocks,
                 const struct sbp_block_values *values);
};

static enum sbp_status collect_state(struct sbp_verifier *v, const struct states *states, int piece,
                                     int tensor, struct sbp_diag *diag)
{
    const struct sbp_program *program = program_of(v, piece);
    const int at = (states->gradients ? program->gradient_buffer : program->weight_buffer)[tensor];
    if (at < 0)
        return SBP_OK;
    const struct sbp_dist *dist = &program->buffer[at].dist;
    const bool is_here = turn_to(v, piece);
    const bool is_shard = program->shard[tensor].level >= states->sharded_from;
    const struct sbp_rank_blocks blocks = {
        .rank = v->rank,
        .message = v->piece,
        .context = v,
        .piece = piece,
        .tensor = tensor,
        .dist = dist,
        .memory = !is_here   ? NULL
                  : is_shard ? sbp_rank_shard(v->rank, tensor, at)
                             : sbp_rank_buffer(v->rank, at),
        .elements =
            sbp_dist_local_elements(&program->mesh, &program->graph->tensor[tensor].shape, dist),
        .is_shard = is_shard,
        .take = states->take};
    return sbp_blocks_collect(&blocks, diag);
}

static enum sbp_status collect_all(struct sbp_verifier *v, const struct states *states,
                                   struct sbp_diag *diag)
{
    for (int piece = 0; piece < v->channel->step->pieces; piece++)
        for (int t = 0; t < v->rank->program->graph->tensor_count; t++)
            SBP_TRY(collect_state(v, states, piece, t, diag));
    return SBP_OK;
}

/* Whether a rank's block of a tensor, or its shard where they are shared out over `shared`, is the
 * first of its replicas. */
static bool first_replica(const struct sbp_verifier *v, const struct sbp_rank_blocks *blocks,
                          sbp_axes shared, int64_t place)
{
    const struct sbp_mesh *mesh = &v->rank->program->mesh;
    const sbp_axes replicas = sbp_dist_of_kind(mesh, blocks->dist, SBP_BROADCAST) & ~shared;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (replicas >> axis & 1 && sbp_mesh_coordinate(mesh, place, axis) != 0)
            return false;
    return blocks->piece == sbp_step_holder(v->channel->step, blocks->tensor);
}

/* ---- the step's start: parameters ---------------------------------------------------------- */

/* Weights fill the reference; replicas, which the first rank's stand for, must be the same bits:
 * members that drift apart are a fault of their own. */
static void take_weight(void *context, const struct sbp_rank_blocks *blocks,
                        const struct sbp_block_values *values)
{
    struct sbp_verifier *const v = context;
    const int tensor = blocks->tensor;
    const struct sbp_program *program = program_of(v, blocks->piece);
    double *weight = sbp_reference_weight(v->reference, tensor) + values->global;
    float *shadow = sbp_reference_shadow_weight(v->reference, tensor) + values->global;
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const bool first = first_replica(v, blocks, shard->level == 3 ? shard->axes : 0, values->place);
    for (int64_t i = 0; i < values->count; i++) {
        const double value = real_at(v, values->at, i);
        if (first) {
            weight[i] = value;
            shadow[i] = (float)value;
        } else if (!(weight[i] == value)) {
            report(v, "replica of the weight", program->graph->tensor[tensor].name, values->rank,
                   values->global + i, value, weight[i], 0);
        }
    }
}

static enum sbp_status hash_memory(struct sbp_verifier *v, const char *from, int64_t bytes,
                                   uint64_t *hash, struct sbp_diag *diag)
{
    const int64_t most = PIECE * (int64_t)sizeof(double);
    for (int64_t start = 0; start < bytes; start += most) {
        const int64_t length = bytes - start < most ? bytes - start : most;
        SBP_TRY(sbp_rank_to_host(v->rank, v->piece, from + start, length, diag));
        *hash = *hash * 0x100000001b3 ^ sbp_hash_bytes(v->piece, (uint64_t)length);
    }
    return SBP_OK;
}

/* Of this rank's part of a weight, and of its master copy, as they stand. */
static enum sbp_status hash_weight(struct sbp_verifier *v, int tensor, uint64_t *hash,
                                   struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    const struct sbp_program *program = rank->program;
    const int master = program->master[tensor];
    const int64_t count = sbp_rank_stretch(program, tensor, rank->rank).count;
    *hash = 0;
    SBP_TRY(hash_memory(v, sbp_rank_shard(rank, tensor, program->weight_buffer[tensor]),
                        count * rank->kernels->real_bytes, hash, diag));
    return master < 0 ? SBP_OK
                      : hash_memory(v, sbp_rank_buffer(rank, master),
                                    count * rank->kernels->wide_bytes, hash, diag);
}

/* What an update wrote must still stand when the next step begins: the reference takes weights as
 * they are, and would train on what all replicas have lost alike. */
static enum sbp_status check_kept(struct sbp_verifier *v, int tensor, struct sbp_diag *diag)
{
    uint64_t hash;
    SBP_TRY(hash_weight(v, tensor, &hash, diag));
    if (v->rank->step > 1 && hash != v->updated[slot_of(v, v->rank->chunk, tensor)])
        report(v, "weight since its update", v->rank->program->graph->tensor[tensor].name,
               own_rank(v), -1, (double)NAN, (double)NAN, 0);
    v->updated[slot_of(v, v->rank->chunk, tensor)] = hash;
    return SBP_OK;
}

static bool is_state(const struct sbp_program *program, int buffer)
{
    const struct sbp_buffer *at = &program->buffer[buffer];
    return at->use == SBP_USE_WEIGHT || at->use == SBP_USE_MOMENT ||
           (at->use == SBP_USE_MASTER && buffer == program->master[at->tensor]);
}

/* Weights, master copies and moments of a rank's chunks. */
static enum sbp_status hash_states(struct sbp_verifier *v, uint64_t *hash, struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    *hash = 0;
    for (int chunk = 0; chunk < rank->arena->chunks; chunk++) {
        sbp_rank_turn(rank, chunk);
        for (int b = 0; b < rank->program->buffer_count; b++)
            if (is_state(rank->program, b))
                SBP_TRY(
                    hash_memory(v, sbp_rank_buffer(rank, b),
                                rank->program->buffer[b].elements * sbp_rank_element_bytes(rank, b),
                                hash, diag));
    }
    return SBP_OK;
}

enum sbp_status sbp_verify_begin_step(struct sbp_verifier *v, struct sbp_diag *diag)
{
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++) {
        sbp_rank_turn(v->rank, chunk);
        for (int t = 0; t < v->rank->program->graph->tensor_count; t++)
            if (v->rank->program->weight_buffer[t] >= 0)
                SBP_TRY(check_kept(v, t, diag));
    }
    if (v->scaler.is_on) {
        SBP_TRY(hash_states(v, &v->states, diag));
        sbp_loss_scaler_begin_step(&v->scaler);
    }
    return collect_all(v, &(struct states){false, 3, take_weight}, diag);
}

/* ---- within the step: outputs and updates -------------------------------------------------- */

enum sbp_status sbp_verify_watch(struct sbp_verifier *v, int instr, struct sbp_diag *diag)
{
    const struct sbp_program *program = v->rank->program;
    const int out = program->instr[instr].buffer[SBP_AT_OUT];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    const int64_t slot = slot_of(v, v->rank->chunk, tensor);
    if (tensor < 0 || v->end_instr[slot] != instr)
        return SBP_OK;
    const struct sbp_spent start = start_of_check();
    const int64_t elements = program->buffer[out].elements;
    char *const to =
        (char *)v->output[slot] + v->rank->micro_batch * elements * v->rank->kernels->real_bytes;
    SBP_TRY(sbp_rank_to_host(v->rank, to, sbp_rank_buffer(v->rank, out),
                             elements * v->rank->kernels->real_bytes, diag));
    spend_since(v, start);
    return SBP_OK;
}

/* The buffers of an UPDATE, at an element. */
struct update_at {
    const struct sbp_instr *instr;
    struct sbp_update update;
    struct sbp_textbook textbook;
    char *state[3]; /* wide: the weight or its master copy, moments; NULL where there is none */
    char *weight, *gradient;
    char *gradient_master; /* NULL: there is none, nor a master copy */
    int64_t start, count;
};

static void compare_update(struct sbp_verifier *v, const struct update_at *at,
                           const struct sbp_parameter *run, const struct sbp_parameter *after,
                           const struct sbp_parameter *bound, int64_t local)
{
    const struct sbp_program *program = v->rank->program;
    const double off[3] = {fabs(run->weight - after->weight) - bound->weight,
                           fabs(run->first - after->first) - bound->first,
                           fabs(run->second - after->second) - bound->second};
    if (off[0] <= 0 && off[1] <= 0 && off[2] <= 0)
        return;
    const char *name = program->graph->tensor[at->instr->tensor].name;
    struct sbp_region region;
    sbp_rank_region(v->rank, at->instr->buffer[SBP_AT_W], &region);
    const struct sbp_stretch stretch = sbp_rank_stretch(program, at->instr->tensor, v->rank->rank);
    const int64_t index =
        local < stretch.count ? sbp_region_global(&region, stretch.first + local) : -1;
    if (!(off[1] <= 0))
        report(v, "first moment", name, own_rank(v), index, run->first, after->first, bound->first);
    else if (!(off[2] <= 0))
        report(v, "second moment", name, own_rank(v), index, run->second, after->second,
               bound->second);
    else
        report(v, "updated weight", name, own_rank(v), index, run->weight, after->weight,
               bound->weight);
}

/* A weight must be its master copy, rounded. */
static void check_rounded(struct sbp_verifier *v, const struct update_at *at, int64_t i,
                          double master)
{
    const struct sbp_parameter run = {.weight = real_at(v, v->rounded, i)};
    const float wide = (float)master;
    double nearest; /* room for any real */
    v->rank->kernels->from_wide(&nearest, &wide, 1);
    const struct sbp_parameter after = {.weight = real_at(v, &nearest, 0)};
    compare_update(v, at, &run, &after, &(struct sbp_parameter){0}, at->start + i);
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
        sbp_textbook_update(&at->textbook, real_at(v, v->piece, i) / at->update.loss_scale, &before,
                            &after, &bound);
        compare_update(v, at, &run, &after, &bound, at->start + i);
        if (at->gradient_master != NULL)
            check_rounded(v, at, i, run.weight);
    }
}

/* Updates a piece with the run's kernel. */
static enum sbp_status run_piece(struct sbp_verifier *v, const struct update_at *at,
                                 char *const *state, struct sbp_diag *diag)
{
    const struct sbp_kernels *kernels = v->rank->kernels;
    const int64_t skip = at->start * kernels->real_bytes;
    const bool has_master = at->gradient_master != NULL;
    char *const converted =
        has_master ? at->gradient_master + at->start * kernels->wide_bytes : NULL;
    kernels->update(at->weight + skip, has_master ? state[0] : NULL, at->gradient + skip, converted,
                    state[1], state[2], at->count, &at->update);
    return v->rank->device->finish() == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, SBP_E_BACKEND, "device %s failed", v->rank->device->name);
}

/* Saves a piece, updates it with the run's kernel, and checks it. */
static enum sbp_status update_piece(struct sbp_verifier *v, const struct update_at *at,
                                    struct sbp_diag *diag)
{
    const int64_t real = v->rank->kernels->real_bytes, wide = v->rank->kernels->wide_bytes;
    char *state[3];
    void *now[3] = {NULL, NULL, NULL};
    struct sbp_spent start = start_of_check();
    for (int i = 0; i < 3; i++) {
        state[i] = at->state[i] == NULL ? NULL : at->state[i] + at->start * wide;
        if (state[i] != NULL)
            SBP_TRY(sbp_rank_to_host(v->rank, v->before[i], state[i], at->count * wide, diag));
    }
    SBP_TRY(sbp_rank_to_host(v->rank, v->piece, at->gradient + at->start * real, at->count * real,
                             diag));
    spend_since(v, start);
    SBP_TRY(run_piece(v, at, state, diag));
    start = start_of_check();
    enum sbp_status status = sbp_rank_to_host(v->rank, v->rounded, at->weight + at->start * real,
                                              at->count * real, diag);
    for (int i = 0; i < 3 && status == SBP_OK; i++) {
        now[i] = state[i] == NULL ? NULL : (char *)v->before[i] + PIECE * sizeof(double);
        if (state[i] != NULL)
            status = sbp_rank_to_host(v->rank, now[i], state[i], at->count * wide, diag);
    }
    if (status == SBP_OK)
        check_piece(v, at, now);
    spend_since(v, start);
    return status;
}

enum sbp_status sbp_verify_update(struct sbp_verifier *v, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    struct update_at at = {.instr = instr,
                           .state = {sbp_rank_buffer(rank, instr->buffer[SBP_AT_W2]),
                                     sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]),
                                     sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED2])},
                           .weight = sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_W]),
                           .gradient =
                               sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_DW]),
                           .gradient_master = sbp_rank_buffer(rank, instr->buffer[SBP_AT_DW2])};
    const int64_t elements = rank->program->shard[instr->tensor].elements;
    SBP_TRY(sbp_rank_prepare_update(rank, &at.update, diag));
    if (rank->scaler.overflowed)
        return SBP_OK;
    if (at.state[0] == NULL)
        at.state[0] = at.weight;
    at.textbook = sbp_textbook_make(&at.update, v->wide_u);
    for (; at.start < elements; at.start += PIECE) {
        at.count = elements - at.start < PIECE ? elements - at.start : PIECE;
        SBP_TRY(update_piece(v, &at, diag));
    }
    const struct sbp_spent start = start_of_check();
    const enum sbp_status status =
        hash_weight(v, instr->tensor, &v->updated[slot_of(v, rank->chunk, instr->tensor)], diag);
    spend_since(v, start);
    return status;
}

/* ---- the step's end: gradients, outputs, loss, norm ---------------------------------------- */

/* The bound of verify.h; 0 when `inherited` is negative, which says that both must be the same. */
static double bound_of(const struct sbp_verifier *v, double terms, double sum, double inherited)
{
    const double arithmetic = (sqrt(terms) + v->log2_ranks) * v->wide_u * sum;
    const double storing = v->u > v->wide_u ? (1 + v->log2_ranks) * v->u * sum / sqrt(terms) : 0;
    return inherited < 0 ? 0 : C * (arithmetic + storing + inherited);
}

/* In a run that scales its loss, values may overflow: then all ranks leave the step out. */
static bool overflows(struct sbp_verifier *v, double value)
{
    const bool overflows = v->rank->program->bytes.scales_loss && !isfinite(value);
    v->overflows |= overflows;
    return overflows;
}

/* An output that may be as large as half precision has no number for. */
static bool leaves_range(const struct sbp_verifier *v, double value, double reference, double bound)
{
    const double largest = 65504;
    return v->rank->kernels->real == SBP_REAL_FP16 && isinf(value) &&
           copysign(1, value) == copysign(1, reference) && fabs(reference) + bound > largest;
}

static void take_gradient(void *context, const struct sbp_rank_blocks *blocks,
                          const struct sbp_block_values *values)
{
    struct sbp_verifier *const v = context;
    const struct sbp_program *program = program_of(v, blocks->piece);
    const int tensor = blocks->tensor;
    const double *gradient = sbp_reference_gradient(v->reference, tensor);
    const struct sbp_magnitude *magnitude = v->reference->magnitude[tensor];
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const bool counts = first_replica(v, blocks, shard->level > 0 ? shard->axes : 0, values->place);
    double squares = 0;
    for (int64_t i = 0; i < values->count; i++) {
        const int64_t at = values->global + i;
        const double value = real_at(v, values->at, i) / v->scaler.scale;
        if (overflows(v, value))
            continue;
        const double bound = bound_of(v, (double)v->tokens, magnitude->sum[at],
                                      sbp_magnitude_inherited(magnitude, at));
        compare(v, "gradient", program->graph->tensor[tensor].name, values->rank, at, value,
                gradient[at], bound);
        squares += value * value;
    }
    if (counts)
        v->squares += squares;
}

static void take_output(void *context, const struct sbp_rank_blocks *blocks,
                        const struct sbp_block_values *values)
{
    struct sbp_verifier *const v = context;
    const struct sbp_graph *graph = v->rank->program->graph;
    const struct sbp_reference_output *output = v->reference->output[blocks->tensor];
    for (int64_t i = 0; i < values->count; i++) {
        const int64_t at = values->global + i;
        const double bound =
            bound_of(v, output->terms, output->sum[at], output->inherited[at / output->features]);
        const bool is_gradient = blocks->tensor == graph->input;
        const double value = real_at(v, values->at, i) / (is_gradient ? v->scaler.scale : 1);
        if (is_gradient ? !overflows(v, value) : !leaves_range(v, value, output->value[at], bound))
            compare(v, is_gradient ? "gradient" : "output", graph->tensor[blocks->tensor].name,
                    values->rank, at, value, output->value[at], bound);
    }
}

/* An output of a micro-batch, which the instruction `end` of a piece completes. */
static enum sbp_status collect_output(struct sbp_verifier *v, int piece, int end,
                                      int64_t micro_batch, struct sbp_diag *diag)
{
    const struct sbp_program *program = program_of(v, piece);
    const struct sbp_buffer *out = &program->buffer[program->instr[end].buffer[SBP_AT_OUT]];
    const int tensor = out->tensor;
    const int64_t bytes = out->elements * v->rank->kernels->real_bytes;
    const int stages = v->channel->step->stages;
    const char *output =
        piece % stages == v->channel->stage ? v->output[slot_of(v, piece / stages, tensor)] : NULL;
    const struct sbp_rank_blocks blocks = {.rank = v->rank,
                                           .message = v->piece,
                                           .context = v,
                                           .piece = piece,
                                           .tensor = tensor,
                                           .dist = &out->dist,
                                           .memory =
                                               output == NULL ? NULL : output + micro_batch * bytes,
                                           .on_host = true,
                                           .elements = out->elements,
                                           .first_row = micro_batch * program->graph->micro_batch,
                                           .take = take_output};
    return sbp_blocks_collect(&blocks, diag);
}

static enum sbp_status collect_outputs(struct sbp_verifier *v, int piece, struct sbp_diag *diag)
{
    const struct sbp_program *program = program_of(v, piece);
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const int end = sbp_reference_end_instr(program, t);
        for (int64_t m = 0; m < program->scope.micro_batches && end >= 0; m++)
            SBP_TRY(collect_output(v, piece, end, m, diag));
    }
    return SBP_OK;
}

/* The loss is a statistic: wide. */
static double bound_of_loss(const struct sbp_verifier *v, const struct sbp_reference *reference)
{
    return C * ((sqrt((double)v->tokens) + v->log2_ranks) * v->wide_u * reference->loss_sum +
                reference->loss_inherited);
}

/* Whether a rank left the step out, and whether that left its states alone. */
static void check_overflow(struct sbp_verifier *v, int64_t rank, const struct summary *summary)
{
    compare(v, "overflow", "", rank, 0, summary->overflowed, v->overflows, 0);
    if (v->overflows)
        compare(v, "states that an overflow changed", "", rank, 0, summary->states_changed, 0, 0);
}

/* Loss, norm and clipping of one rank. The norm's squares are summed in double and reduced over the
 * ranks in the run's type. */
static void check_summary(struct sbp_verifier *v, int64_t rank, const struct summary *summary)
{
    const struct sbp_step *step = v->channel->step;
    const int stage = (int)(rank / step->mesh.devices);
    const bool has_loss =
        stage == step->stages - 1 && program_of(v, step->pieces - 1)->loss_buffer >= 0;
    const double clip = v->rank->program->graph->training.clip_norm;
    const bool has_norm =
        sbp_program_has_norm(&v->rank->program->graph->training, &v->rank->program->bytes) &&
        !v->overflows;
    const struct sbp_reference *reference = v->reference;
    if (has_loss)
        compare(v, "loss", "", rank, 0, summary->loss, reference->loss,
                bound_of_loss(v, reference));
    check_overflow(v, rank, summary);
    if (has_norm && step->memory[stage].parameters > 0) {
        const double norm = sqrt(v->squares), scale = clip > 0 && norm > clip ? clip / norm : 1;
        const double elements = (double)v->rank->program->graph->parameters;
        const double bound = C * ((2 + v->log2_ranks) * v->wide_u + sqrt(elements) * 0x1p-53);
        compare(v, "gradient norm", "", rank, 0, summary->grad_norm, norm, bound * norm);
        compare(v, "clipping factor", "", rank, 0, summary->gradient_scale, scale, bound * scale);
    }
    if (summary->updates.first.found && !v->outcome.first.found)
        v->outcome.first = summary->updates.first;
}

static enum sbp_status exchange_summaries(struct sbp_verifier *v, struct sbp_diag *diag)
{
    uint64_t states = 0;
    if (v->scaler.is_on)
        SBP_TRY(hash_states(v, &states, diag));
    struct summary summary = {.loss = sbp_rank_loss(v->rank),
                              .grad_norm = v->rank->grad_norm,
                              .gradient_scale = v->rank->gradient_scale,
                              .overflowed = v->rank->scaler.overflowed,
                              .states_changed = states != v->states,
                              .updates = v->outcome};
    if (!leads(v))
        return sbp_channel_send(v->channel, 0, TAG_STEP, &summary, sizeof summary, diag);
    check_summary(v, 0, &summary);
    for (int peer = 1; peer < v->ranks; peer++) {
        SBP_TRY(sbp_channel_receive(v->channel, peer, TAG_STEP, &summary, sizeof summary, diag));
        check_summary(v, peer, &summary);
    }
    return SBP_OK;
}

/* All ranks must scale alike; said before the gradients that show it, too. */
static enum sbp_status check_scales(struct sbp_verifier *v, struct sbp_diag *diag)
{
    double scale = v->rank->scaler.scale;
    if (!v->scaler.is_on)
        return SBP_OK;
    if (!leads(v))
        return sbp_channel_send(v->channel, 0, TAG_SCALE, &scale, sizeof scale, diag);
    for (int peer = 0; peer < v->ranks; peer++) {
        if (peer > 0)
            SBP_TRY(sbp_channel_receive(v->channel, peer, TAG_SCALE, &scale, sizeof scale, diag));
        compare(v, "loss scale", "", peer, 0, scale, v->scaler.scale, 0);
    }
    return SBP_OK;
}

enum sbp_status sbp_verify_end_step(struct sbp_verifier *v, struct sbp_diag *diag)
{
    SBP_TRY(check_scales(v, diag));
    v->squares = 0;
    v->overflows = false;
    if (leads(v))
        v->reference->loss_scale = v->scaler.scale;
    if (leads(v))
        SBP_TRY(sbp_reference_run(v->reference, v->rank->step, diag));
    for (int piece = 0; piece < v->channel->step->pieces; piece++)
        SBP_TRY(collect_outputs(v, piece, diag));
    SBP_TRY(collect_all(v, &(struct states){true, 1, take_gradient}, diag));
    SBP_TRY(exchange_summaries(v, diag));
    v->scaler.overflowed = v->overflows;
    return SBP_OK;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static enum sbp_status allocate_outputs(struct sbp_verifier *v, int chunk)
{
    const struct sbp_program *program = v->rank->arena->program[chunk];
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const int64_t slot = slot_of(v, chunk, t);
        const int end = sbp_reference_end_instr(program, t);
        v->end_instr[slot] = end;
        if (end < 0)
            continue;
        const int out = program->instr[end].buffer[SBP_AT_OUT];
        v->output[slot] = calloc((size_t)program->scope.micro_batches,
                                 (size_t)program->buffer[out].elements * sizeof(double));
        if (v->output[slot] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

static enum sbp_status allocate_chunks(struct sbp_verifier *v)
{
    v->end_instr = calloc((size_t)v->slots + 1, sizeof *v->end_instr);
    v->output = calloc((size_t)v->slots + 1, sizeof *v->output);
    v->updated = calloc((size_t)v->slots + 1, sizeof *v->updated);
    if (v->end_instr == NULL || v->output == NULL || v->updated == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++)
        SBP_TRY(allocate_outputs(v, chunk));
    return SBP_OK;
}

/* Elements of a piece's outputs of all micro-batches. */
static double output_elements(const struct sbp_program *program)
{
    double elements = 0;
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const int end = sbp_reference_end_instr(program, t);
        if (end >= 0)
            elements += (double)program->scope.micro_batches *
                        (double)program->buffer[program->instr[end].buffer[SBP_AT_OUT]].elements;
    }
    return elements;
}

/* Outputs of a stage's chunks, and the pieces that `allocate` makes. */
static double rank_bytes(const struct sbp_step *step, int stage)
{
    double elements = 8.0 * PIECE;
    for (int piece = stage; piece < step->pieces; piece += step->stages)
        elements += output_elements(sbp_step_program(step, piece));
    return elements * sizeof(double);
}

enum sbp_status sbp_verify_count(const struct sbp_step *step, const struct sbp_cluster *cluster,
                                 struct sbp_verify_need *need, struct sbp_diag *diag)
{
    *need = (struct sbp_verify_need){0};
    for (int stage = 0; stage < step->stages; stage++)
        need->rank_bytes = fmax(need->rank_bytes, rank_bytes(step, stage));
    return sbp_reference_bytes(step->program[0].graph, cluster, &need->reference_bytes, diag);
}

static enum sbp_status allocate(struct sbp_verifier *v)
{
    v->piece = malloc(PIECE * sizeof(double));
    v->rounded = malloc(PIECE * sizeof(double));
    for (int i = 0; i < 3; i++) {
        v->before[i] = malloc(2 * PIECE * sizeof(double)); /* and after */
        if (v->before[i] == NULL)
            return SBP_E_MEMORY;
    }
    return v->piece == NULL || v->rounded == NULL ? SBP_E_MEMORY : allocate_chunks(v);
}

static enum sbp_status open_reference(struct sbp_verifier *v, const struct sbp_cluster *cluster,
                                      struct sbp_diag *diag)
{
    struct sbp_reference *reference = malloc(sizeof *reference);
    if (reference == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    const enum sbp_status status = sbp_reference_open(reference, v->rank->program->graph, cluster,
                                                      v->rank->seed, v->rank->kernels->real, diag);
    if (status != SBP_OK) {
        free(reference);
        return status;
    }
    reference->post = v->channel->post;
    v->reference = reference;
    return SBP_OK;
}

enum sbp_status sbp_verify_open(struct sbp_rank *rank, const struct sbp_cluster *cluster,
                                struct sbp_verifier **verifier, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = rank->program->graph;
    struct sbp_verifier *v = calloc(1, sizeof *v);
    *verifier = NULL;
    if (v == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    v->rank = rank;
    v->channel = rank->channel;
    v->u = sbp_real_roundoff(rank->kernels->real);
    v->wide_u = sbp_real_roundoff(rank->wide->real);
    v->scaler = sbp_loss_scaler(rank->program->bytes.scales_loss);
    v->ranks = (int)(rank->channel->step->stages * rank->program->mesh.devices);
    v->log2_ranks = log2((double)v->ranks);
    v->slots = slot_of(v, rank->arena->chunks, 0);
    v->tokens = graph->global_batch * graph->sequence;
    enum sbp_status status = allocate(v);
    if (status != SBP_OK)
        sbp_fail(diag, status, "out of memory for the verification");
    if (status == SBP_OK && leads(v))
        status = open_reference(v, cluster, diag);
    if (status == SBP_OK)
        *verifier = v;
    else
        sbp_verify_close(v);
    return status;
}

void sbp_verify_close(struct sbp_verifier *v)
{
    if (v == NULL)
        return;
    if (v->reference != NULL)
        sbp_reference_close(v->reference);
    free(v->reference);
    for (int64_t i = 0; v->output != NULL && i < v->slots; i++)
        free(v->output[i]);
    free(v->output);
    free(v->end_instr);
    free(v->updated);
    for (int i = 0; i < 3; i++)
        free(v->before[i]);
    free(v->rounded);
    free(v->piece);
    free(v);
}

const struct sbp_verify_outcome *sbp_verify_outcome(const struct sbp_verifier *v)
{
    return &v->outcome;
}

struct sbp_spent sbp_verify_spent(const struct sbp_verifier *v)
{
    return v == NULL ? (struct sbp_spent){0} : v->spent;
}
