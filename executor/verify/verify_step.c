#include <math.h>

#include "base/math/random.h"
#include "executor/verify/choices_priv.h"
#include "executor/verify/shadows_priv.h"
#include "executor/verify/verify_priv.h"

enum { TAG_STEP = 13, TAG_SCALE = 14, TAG_DOUBT = 16 };

/* Times the bound of 16 bits up to which round-off is measured again. A correct run was off by 1.4,
 * and planted faults by less are found all the same. */
static const double SLIGHTLY_BEYOND = 3;

/* The values that every rank sends to rank 0 at a step's end. */
struct summary {
    double loss, grad_norm, gradient_scale;
    bool overflowed, states_changed;
    struct sbp_verify_outcome updates;
};

static const struct sbp_program *program_of(const struct sbp_verifier *v, int piece)
{
    return sbp_step_program(v->channel->step, piece);
}

/* Turns to the piece where this rank has it of that stage. */
static bool turn_to(struct sbp_verifier *v, int piece, int stage)
{
    if (stage != v->channel->stage)
        return false;
    sbp_rank_turn(v->rank, sbp_step_chunk_of(v->channel->step, piece));
    return true;
}

/* ---- collecting ---------------------------------------------------------------------------- */

/* All weights are collected, or all gradients. From some ZeRO level on they are in shards. */
struct states {
    bool gradients, older; /* older: weights of the step before */
    int sharded_from;
    void (*take)(void *context, const struct sbp_rank_blocks *blocks,
                 const struct sbp_block_values *values);
    bool (*asks)(const void *context, const struct sbp_rank_blocks *blocks, int64_t place);
};

static enum sbp_status collect_state(struct sbp_verifier *v, const struct states *states, int piece,
                                     int stage, int tensor, struct sbp_diag *diag)
{
    const struct sbp_program *program = program_of(v, piece);
    const int at = (states->gradients ? program->gradient_buffer : program->weight_buffer)[tensor];
    if (at < 0)
        return SBP_OK;
    const struct sbp_dist *dist = &program->buffer[at].dist;
    const bool is_here = turn_to(v, piece, stage);
    sbp_rank_turn_gradients(v->rank, v->rank->step);
    const bool is_shard = program->shard[tensor].level >= states->sharded_from;
    const struct sbp_rank_blocks blocks = {
        .rank = v->rank,
        .message = v->piece,
        .context = v,
        .piece = piece,
        .stage = stage,
        .tensor = tensor,
        .dist = dist,
        .memory = !is_here        ? NULL
                  : states->older ? v->older[sbp_verify_slot(v, v->rank->chunk, tensor)]
                  : is_shard      ? sbp_rank_shard(v->rank, tensor, at)
                                  : sbp_rank_buffer(v->rank, at),
        .on_host = states->older,
        .elements =
            sbp_dist_local_elements(&program->mesh, &program->graph->tensor[tensor].shape, dist),
        .is_shard = is_shard,
        .take = states->take,
        .asks = states->asks};
    return sbp_blocks_collect(&blocks, diag);
}

/* Of the tensors first .. end - 1. */
static enum sbp_status collect_some(struct sbp_verifier *v, const struct states *states, int first,
                                    int end, struct sbp_diag *diag)
{
    const struct sbp_step *step = v->channel->step;
    for (int piece = 0; piece < step->pieces; piece++)
        for (int copy = 0; copy < sbp_step_copies(step, piece); copy++)
            for (int t = first; t < end; t++)
                SBP_TRY(collect_state(v, states, piece, sbp_step_stage_of(step, piece) + copy, t,
                                      diag));
    return SBP_OK;
}

static enum sbp_status collect_all(struct sbp_verifier *v, const struct states *states,
                                   struct sbp_diag *diag)
{
    return collect_some(v, states, 0, v->rank->program->graph->tensor_count, diag);
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
    return blocks->piece == sbp_step_holder(v->channel->step, blocks->tensor) &&
           blocks->stage == sbp_step_stage_of(v->channel->step, blocks->piece);
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
    float *shadow = sbp_reference_shadow_weight(v->reference, tensor);
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const bool first = first_replica(v, blocks, shard->level == 3 ? shard->axes : 0, values->place);
    for (int64_t i = 0; i < values->count; i++) {
        const double value = sbp_verify_real(v, values->at, i);
        if (first) {
            weight[i] = value;
            if (shadow != NULL)
                shadow[values->global + i] = (float)value;
        } else if (!(weight[i] == value)) {
            sbp_verify_report(v, "replica of the weight", program->graph->tensor[tensor].name,
                              values->rank, values->global + i, value, weight[i], 0);
        }
    }
}

/* What an update wrote must still stand when the next step begins: the reference takes weights as
 * they are, and would train on what all replicas have lost alike. */
static enum sbp_status check_kept(struct sbp_verifier *v, int tensor, struct sbp_diag *diag)
{
    uint64_t hash;
    SBP_TRY(sbp_verify_hash_weight(v, tensor, &hash, diag));
    if (v->rank->step > 1 && hash != v->updated[sbp_verify_slot(v, v->rank->chunk, tensor)])
        sbp_verify_report(v, "weight since its update",
                          v->rank->program->graph->tensor[tensor].name, sbp_verify_rank(v), -1,
                          (double)NAN, (double)NAN, 0);
    v->updated[sbp_verify_slot(v, v->rank->chunk, tensor)] = hash;
    return SBP_OK;
}

/* Replicas are compared once a step. */
static bool is_first_replica(const void *context, const struct sbp_rank_blocks *blocks,
                             int64_t place)
{
    const struct sbp_verifier *const v = context;
    const struct sbp_weight_shard *shard = &program_of(v, blocks->piece)->shard[blocks->tensor];
    return first_replica(v, blocks, shard->level == 3 ? shard->axes : 0, place);
}

/* Whether a visit reads weights of the step before, as those of a micro-batch that was ahead do. */
static bool reads_older(const struct sbp_verifier *v, const struct sbp_layers_pass *visit)
{
    const int64_t first_row = visit->micro_batch * v->layers.rows;
    return v->older != NULL &&
           !sbp_delayed_reads_newest(v->channel->step, v->rank->step,
                                     first_row / v->rank->program->graph->micro_batch,
                                     v->layers.first[visit->piece]);
}

/* The newest weights of all replicas, which are compared so, and, where that is another visit or
 * others are read, those that are. */
static enum sbp_status fetch_weight(struct sbp_verifier *v, const struct sbp_layers_pass *visit,
                                    int tensor, struct sbp_diag *diag)
{
    const struct states all = {.sharded_from = 3, .take = take_weight};
    const struct states read = {.sharded_from = 3,
                                .take = take_weight,
                                .asks = is_first_replica,
                                .older = reads_older(v, visit)};
    if (visit->is_first)
        SBP_TRY(collect_some(v, &all, tensor, tensor + 1, diag));
    return visit->is_first && !read.older ? SBP_OK
                                          : collect_some(v, &read, tensor, tensor + 1, diag);
}

/* Brings the weights of a piece of the model to the reference, or gives this rank's. */
static enum sbp_status fetch_piece(void *context, const struct sbp_layers_pass *visit,
                                   struct sbp_diag *diag)
{
    struct sbp_verifier *const v = context;
    const struct sbp_graph *graph = v->rank->program->graph;
    for (int op = v->layers.first[visit->piece]; op < v->layers.first[visit->piece + 1]; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (sbp_layers_meets(&v->layers, graph, visit->piece, op, w))
                SBP_TRY(fetch_weight(v, visit, graph->op[op].weight[w], diag));
    return SBP_OK;
}

/* All ranks give their weights to it. */
static enum sbp_status run_reference_of_sample(struct sbp_verifier *v, struct sbp_diag *diag)
{
    if (!sbp_verify_leads(v))
        return sbp_layers_visit(&v->layers, fetch_piece, v, diag);
    v->reference->loss_scale = v->scaler.scale;
    v->reference->fetch = fetch_piece;
    v->reference->fetch_context = v;
    return sbp_reference_run(v->reference, v->rank->step, diag);
}

/* Keeps what this rank has of a weight of the chunk at hand. */
static enum sbp_status keep_weight(struct sbp_verifier *v, int tensor, void *older,
                                   struct sbp_diag *diag)
{
    const struct sbp_program *program = v->rank->program;
    const bool is_shard = program->shard[tensor].level >= 3;
    const int at = program->weight_buffer[tensor];
    const int64_t count = is_shard ? sbp_rank_stretch(program, tensor, v->rank->rank).count
                                   : program->buffer[at].elements;
    return sbp_rank_to_host(v->rank, older,
                            is_shard ? sbp_rank_shard(v->rank, tensor, at)
                                     : sbp_rank_buffer(v->rank, at),
                            count * v->rank->kernels->real_bytes, diag);
}

/* Without a flush the weights of this step are those before of the next one. */
static enum sbp_status run_sample(struct sbp_verifier *v, struct sbp_diag *diag)
{
    SBP_TRY(run_reference_of_sample(v, diag));
    for (int chunk = 0; v->older != NULL && chunk < v->rank->arena->chunks; chunk++) {
        sbp_rank_turn(v->rank, chunk);
        for (int t = 0; t < v->rank->program->graph->tensor_count; t++) {
            void *const older = v->older[sbp_verify_slot(v, chunk, t)];
            if (older != NULL)
                SBP_TRY(keep_weight(v, t, older, diag));
        }
    }
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
                SBP_TRY(sbp_verify_hash_memory(v, rank->device->memory, sbp_rank_buffer(rank, b),
                                               rank->program->buffer[b].elements *
                                                   sbp_rank_element_bytes(rank, b),
                                               hash, diag));
    }
    if (rank->arena->host_bytes > 0)
        *hash =
            *hash * 0x100000001b3 ^ sbp_hash_bytes(rank->host, (uint64_t)rank->arena->host_bytes);
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
    if (v->is_sampled)
        return run_sample(v, diag);
    if (sbp_verify_leads(v))
        sbp_reference_begin_step(v->reference);
    return collect_all(v, &(struct states){.sharded_from = 3, .take = take_weight}, diag);
}

/* ---- within the step: outputs and updates -------------------------------------------------- */

enum sbp_status sbp_verify_watch(struct sbp_verifier *v, int instr, struct sbp_diag *diag)
{
    const struct sbp_program *program = v->rank->program;
    const int out = program->instr[instr].buffer[SBP_AT_OUT];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    const int64_t slot = sbp_verify_slot(v, v->rank->chunk, tensor);
    SBP_TRY(sbp_choices_keep(v, &program->instr[instr], diag));
    if (tensor < 0 || v->end_instr[slot] != instr)
        return SBP_OK;
    const struct sbp_spent start = sbp_verify_start_of_check();
    const int64_t elements = program->buffer[out].elements;
    const int64_t at =
        sbp_verify_output_at(v->channel->step, v->rank->gradients, v->rank->micro_batch);
    char *const to = (char *)v->output[slot] + at * elements * v->rank->kernels->real_bytes;
    SBP_TRY(sbp_rank_to_host(v->rank, to, sbp_rank_buffer(v->rank, out),
                             elements * v->rank->kernels->real_bytes, diag));
    sbp_verify_spend_since(v, start);
    return SBP_OK;
}

/* ---- the step's end: gradients, outputs, loss, norm ---------------------------------------- */

/* In a run that scales its loss, values may overflow: then all ranks leave the step out. */
static bool is_number(const struct sbp_verifier *v, double value)
{
    return !v->rank->program->bytes.scales_loss || isfinite(value);
}

/* An output that may be as large as half precision has no number for. */
static bool leaves_range(const struct sbp_verifier *v, double value, double reference, double bound)
{
    const double largest = 65504;
    return v->rank->kernels->real == SBP_REAL_FP16 && isinf(value) &&
           copysign(1, value) == copysign(1, reference) && fabs(reference) + bound > largest;
}

/* In 16 bits a unit behind a relu that no token of the reference passes may pass one of the run. */
static bool may_wake(const struct sbp_verifier *v, int tensor)
{
    return v->u > v->wide_u && !v->reference->magnitude[tensor]->by_row;
}

static void take_gradient(void *context, const struct sbp_rank_blocks *blocks,
                          const struct sbp_block_values *values)
{
    struct sbp_verifier *const v = context;
    const struct sbp_program *program = program_of(v, blocks->piece);
    const int tensor = blocks->tensor;
    const double *gradient = sbp_reference_gradient(v->reference, tensor);
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const bool counts = first_replica(v, blocks, shard->level > 0 ? shard->axes : 0, values->place);
    const double terms = sbp_reference_terms(v->reference, tensor);
    double squares = 0;
    for (int64_t i = 0; i < values->count; i++) {
        const int64_t at = values->global + i;
        const double value = sbp_verify_real(v, values->at, i) / v->scaler.scale;
        if (!is_number(v, value)) {
            v->overflows = true;
            continue;
        }
        squares += value * value;
        const int64_t place = sbp_reference_place(v->reference, tensor, at);
        if (place < 0)
            continue;
        const double inherited = sbp_reference_inherited(v->reference, tensor, place);
        const double sum = sbp_reference_sum(v->reference, tensor, place);
        if (inherited >= 0 || !may_wake(v, tensor))
            sbp_verify_compare(v, "gradient", program->graph->tensor[tensor].name, values->rank, at,
                               value, gradient[place], sbp_verify_bound(v, terms, sum, inherited));
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
        const double bound = sbp_verify_bound(v, output->terms, output->sum[at],
                                              output->inherited[at / output->features]);
        const bool is_gradient = blocks->tensor == graph->input;
        const double value =
            sbp_verify_real(v, values->at, i) / (is_gradient ? v->scaler.scale : 1);
        /* No update takes the input's gradient, so that its overflow leaves no step out. */
        if (is_gradient ? is_number(v, value) : !leaves_range(v, value, output->value[at], bound))
            sbp_verify_compare(v, is_gradient ? "gradient" : "output",
                               graph->tensor[blocks->tensor].name, values->rank, at, value,
                               output->value[at], bound);
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
    const struct sbp_step *step = v->channel->step;
    const int stage = sbp_step_worker(step, piece, v->rank->step - 1, (int)micro_batch);
    const int64_t at = sbp_verify_output_at(step, v->rank->step & 1, micro_batch);
    const char *output = stage == v->channel->stage
                             ? v->output[sbp_verify_slot(v, sbp_step_chunk_of(step, piece), tensor)]
                             : NULL;
    const struct sbp_rank_blocks blocks = {.rank = v->rank,
                                           .message = v->piece,
                                           .context = v,
                                           .piece = piece,
                                           .stage = stage,
                                           .tensor = tensor,
                                           .dist = &out->dist,
                                           .memory = output == NULL ? NULL : output + at * bytes,
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
    return SBP_VERIFY_C *
           ((sqrt((double)v->tokens) + v->log2_ranks) * v->wide_u * reference->loss_sum +
            reference->loss_inherited);
}

/* Whether a rank left the step out, and whether that left its states alone. */
static void check_overflow(struct sbp_verifier *v, int64_t rank, const struct summary *summary)
{
    sbp_verify_compare(v, "overflow", "", rank, 0, summary->overflowed, v->overflows, 0);
    if (v->overflows)
        sbp_verify_compare(v, "states that an overflow changed", "", rank, 0,
                           summary->states_changed, 0, 0);
}

/* Loss, norm and clipping of one rank. The norm's squares are summed in double and reduced over the
 * ranks in the run's type. */
static void check_summary(struct sbp_verifier *v, int64_t rank, const struct summary *summary)
{
    const struct sbp_step *step = v->channel->step;
    const int stage = (int)(rank / step->mesh.devices);
    const bool has_loss = sbp_step_has(step, stage, step->pieces - 1) &&
                          program_of(v, step->pieces - 1)->loss_buffer >= 0;
    const int64_t place = rank % step->mesh.devices;
    double loss = summary->loss; /* of replicas that of all micro-batches, at its first stage */
    if (step->replicates && has_loss) {
        v->loss[place] = stage == 0 ? loss : v->loss[place] + loss;
        loss = v->loss[place];
    }
    const double clip = v->rank->program->graph->training.clip_norm;
    const bool has_norm =
        sbp_program_has_norm(&v->rank->program->graph->training, &v->rank->program->bytes) &&
        !v->overflows;
    const struct sbp_reference *reference = v->reference;
    if (has_loss && (!step->replicates || stage == step->stages - 1))
        sbp_verify_compare(v, "loss", "", rank, 0, loss, reference->loss,
                           bound_of_loss(v, reference));
    check_overflow(v, rank, summary);
    if (has_norm && step->memory[stage].parameters > 0) {
        const double norm = sqrt(v->squares), scale = clip > 0 && norm > clip ? clip / norm : 1;
        const double elements = (double)v->rank->program->graph->parameters;
        const double bound =
            SBP_VERIFY_C * ((2 + v->log2_ranks) * v->wide_u + sqrt(elements) * 0x1p-53);
        sbp_verify_compare(v, "gradient norm", "", rank, 0, summary->grad_norm, norm, bound * norm);
        sbp_verify_compare(v, "clipping factor", "", rank, 0, summary->gradient_scale, scale,
                           bound * scale);
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
                              .grad_norm = v->rank->known.grad_norm,
                              .gradient_scale = v->rank->known.gradient_scale,
                              .overflowed = v->rank->known.overflowed != 0,
                              .states_changed = states != v->states,
                              .updates = v->outcome};
    if (!sbp_verify_leads(v))
        return sbp_channel_send(v->channel, 0, TAG_STEP, &summary, sizeof summary, diag);
    check_summary(v, 0, &summary);
    for (int peer = 1; peer < v->ranks; peer++) {
        SBP_TRY(sbp_channel_receive(v->channel, peer, TAG_STEP, &summary, sizeof summary, diag));
        check_summary(v, peer, &summary);
    }
    return SBP_OK;
}

/* The loss scale of a rank's step, and how many steps before it changed nothing. */
struct scales {
    double scale;
    int64_t left_out;
};

/* All ranks must scale alike. Gradients of a rank that does not are off as well; so this comes
 * first, as the reason. */
static enum sbp_status check_scales(struct sbp_verifier *v, struct sbp_diag *diag)
{
    struct scales scales = {v->rank->known.loss_scale, v->rank->known.left_out};
    if (!v->scaler.is_on)
        return SBP_OK;
    if (!sbp_verify_leads(v))
        return sbp_channel_send(v->channel, 0, TAG_SCALE, &scales, sizeof scales, diag);
    for (int peer = 0; peer < v->ranks; peer++) {
        if (peer > 0)
            SBP_TRY(sbp_channel_receive(v->channel, peer, TAG_SCALE, &scales, sizeof scales, diag));
        sbp_verify_compare(v, "loss scale", "", peer, 0, scales.scale, v->scaler.scale, 0);
        sbp_verify_compare(v, "steps left out", "", peer, 0, (double)scales.left_out,
                           (double)v->scaler.left_out, 0);
    }
    return SBP_OK;
}

/* Compares gradients and outputs with the reference and the errors that its shadows show, up to one
 * that is computed now. */
static enum sbp_status compare_step(struct sbp_verifier *v, int shadow, struct sbp_diag *diag)
{
    v->squares = 0;
    v->overflows = false;
    if (sbp_verify_leads(v) && !v->is_sampled) {
        v->reference->loss_scale = v->scaler.scale;
        v->reference->shadow_number = shadow;
        SBP_TRY(sbp_reference_run(v->reference, v->rank->step, diag));
        if (v->reference->variance != NULL)
            sbp_shadows_take(v->reference, shadow);
    }
    for (int piece = 0; piece < v->channel->step->pieces; piece++)
        SBP_TRY(collect_outputs(v, piece, diag));
    return collect_all(
        v, &(struct states){.gradients = true, .sharded_from = 1, .take = take_gradient}, diag);
}

/* Tells all ranks whether rank 0 wants to compare once more. */
static enum sbp_status share_doubt(struct sbp_verifier *v, bool *doubts, struct sbp_diag *diag)
{
    if (!sbp_verify_leads(v))
        return sbp_channel_receive(v->channel, 0, TAG_DOUBT, doubts, sizeof *doubts, diag);
    for (int peer = 1; peer < v->ranks; peer++)
        SBP_TRY(sbp_channel_send(v->channel, peer, TAG_DOUBT, doubts, sizeof *doubts, diag));
    return SBP_OK;
}

/* A finding that is no more than a value slightly beyond its bound. */
static bool is_slight(const struct sbp_verify_outcome *outcome)
{
    return outcome->first.bound > 0 && outcome->worst_ratio < SLIGHTLY_BEYOND;
}

/* A shadow is one measurement of round-off. In 16 bits, where few values carry all of a token's
 * error, it may show hardly any by chance, and its bound is too narrow then. So before a slight
 * finding counts, more shadows with other roundings are computed in turn, and the mean of what all
 * of them show decides; the finding is the first one's. */
static enum sbp_status compare_with_shadows(struct sbp_verifier *v, struct sbp_diag *diag)
{
    const struct sbp_verify_outcome before = v->outcome;
    SBP_TRY(compare_step(v, 0, diag));
    if (v->u <= v->wide_u || v->is_sampled)
        return SBP_OK;
    const struct sbp_verify_outcome first = v->outcome;
    const bool stands = first.first.found && (before.first.found || !is_slight(&first));
    bool doubts = v->remeasures || (first.first.found && !stands);
    SBP_TRY(share_doubt(v, &doubts, diag));
    for (int shadow = 1; shadow < SBP_SHADOWS && doubts; shadow++) {
        v->outcome = before;
        v->outcome.remeasured = before.remeasured + 1;
        SBP_TRY(compare_step(v, shadow, diag));
        doubts = v->remeasures || v->outcome.first.found;
        SBP_TRY(share_doubt(v, &doubts, diag));
    }
    if (stands || v->outcome.first.found)
        v->outcome = first;
    return SBP_OK;
}

enum sbp_status sbp_verify_end_step(struct sbp_verifier *v, struct sbp_diag *diag)
{
    SBP_TRY(check_scales(v, diag));
    SBP_TRY(sbp_choices_collect(v, diag));
    SBP_TRY(compare_with_shadows(v, diag));
    SBP_TRY(exchange_summaries(v, diag));
    v->scaler.overflowed = v->overflows;
    return SBP_OK;
}
