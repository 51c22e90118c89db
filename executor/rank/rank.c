#include "executor/rank/rank.h"

#include <math.h>

#include "base/text.h"
#include "executor/rank/boxing_run_priv.h"
#include "executor/rank/context_run_priv.h"
#include "executor/rank/halo_run_priv.h"
#include "executor/rank/mixture_run_priv.h"
#include "executor/rank/rank_check_priv.h"
#include "executor/rank/rank_ops_priv.h"
#include "executor/rank/rank_states.h"

/* Sees before anything is computed that the arena fits. Ranks that share a device may find it free
 * for each of them. */
static enum sbp_status check_room(const struct sbp_rank *rank, struct sbp_diag *diag)
{
    char needs[32], has[32];
    const struct sbp_device_ops *device = rank->device;
    const int64_t free_bytes = device->free_bytes != NULL ? device->free_bytes() : -1;
    if (free_bytes < 0 || rank->arena->bytes <= free_bytes)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_MEMORY,
                    "place %lld of a stage needs %s of memory on device %s, %s are free",
                    (long long)rank->rank, sbp_format_bytes((double)rank->arena->bytes, needs),
                    device->name, sbp_format_bytes((double)free_bytes, has));
}

enum sbp_status sbp_rank_open(struct sbp_rank *rank, const struct sbp_stage_layout *arena,
                              const struct sbp_device_ops *device, enum sbp_real real,
                              uint64_t seed, int64_t place, struct sbp_channel *channel,
                              struct sbp_diag *diag)
{
    const struct sbp_program *program = arena->program[0];
    *rank = (struct sbp_rank){.arena = arena,
                              .device = device,
                              .kernels = device->kernels(real),
                              .wide = device->kernels(sbp_real_wide(real)),
                              .channel = channel,
                              .rank = place,
                              .seed = seed};
    rank->layout =
        (struct sbp_layout){&program->mesh, program->graph->class_count, program->strategy.split};
    for (int chunk = arena->chunks - 1; chunk >= 0; chunk--) {
        sbp_rank_turn(rank, chunk);
        SBP_TRY(sbp_rank_check_kernels(rank, diag));
        SBP_TRY(sbp_rank_check_sizes(rank, diag));
    }
    SBP_TRY(check_room(rank, diag));
    rank->memory = device->memory->allocate(arena->bytes);
    if (rank->memory == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "place %lld of a stage: no %lld bytes on device %s",
                        (long long)place, (long long)arena->bytes, device->name);
    rank->state = device->memory->allocate(sizeof *rank->state);
    if (rank->state == NULL) {
        sbp_rank_close(rank);
        return sbp_fail(diag, SBP_E_MEMORY, "place %lld of a stage: no memory on device %s",
                        (long long)place, device->name);
    }
    if (arena->host_bytes == 0)
        return SBP_OK;
    rank->host = device->allocate_host(arena->host_bytes);
    if (rank->host != NULL)
        return SBP_OK;
    sbp_rank_close(rank);
    return sbp_fail(diag, SBP_E_MEMORY, "place %lld of a stage: no %lld bytes of host memory",
                    (long long)place, (long long)arena->host_bytes);
}

void sbp_rank_close(struct sbp_rank *rank)
{
    if (rank->memory != NULL)
        rank->device->memory->release(rank->memory);
    if (rank->host != NULL)
        rank->device->release_host(rank->host);
    if (rank->state != NULL)
        rank->device->memory->release(rank->state);
    rank->memory = rank->host = NULL;
    rank->state = NULL;
}

void sbp_rank_turn_to(struct sbp_rank *rank, const struct sbp_task *task)
{
    sbp_rank_turn(rank, task->chunk);
    rank->bucket = task->bucket;
    rank->number = rank->step + task->is_ahead - 1;
    rank->frame = sbp_stage_frame(rank->arena, task->chunk, rank->number, task->micro_batch);
}

static enum sbp_status run_data(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag)
{
    (void)diag;
    sbp_rank_fill_data(rank, instr);
    return SBP_OK;
}

static enum sbp_status run_box(struct sbp_rank *rank, const struct sbp_instr *instr,
                               struct sbp_diag *diag)
{
    if (rank->bucket > 0)
        return sbp_rank_sum_bucket(rank, instr, diag);
    const struct sbp_boxing_run run = {
        .layout = &rank->layout,
        .shape = &rank->program->graph->tensor[instr->tensor].shape,
        .step = &instr->box,
        .rank = rank->rank,
        .in = sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]),
        .out = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]),
        .pack = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]),
        .unpack = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK2]),
    };
    return sbp_boxing_execute(&run, rank->channel, diag);
}

static enum sbp_status run_reduce(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    const struct sbp_exchange exchange = {
        .kind = SBP_ALL_REDUCE,
        .members.axes = instr->box.axes,
        .reduction = instr->reduction == 0 ? SBP_SUM : SBP_MAX,
        .receive = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]),
        .count = rank->program->buffer[instr->buffer[SBP_AT_OUT]].elements,
        .statistic = instr->statistic,
    };
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

/* The sum of a weight's gradients, from another stage that has it or to one. */
static enum sbp_status run_sum_message(struct sbp_rank *rank, const struct sbp_instr *instr,
                                       struct sbp_diag *diag)
{
    const bool takes = instr->kind == SBP_INSTR_TAKE;
    const int buffer = instr->buffer[takes ? SBP_AT_OUT : SBP_AT_IN];
    const struct sbp_sum_route route =
        sbp_task_sum_route(rank->channel->step, rank->channel->stage, rank->chunk, instr,
                           rank->number, (int)rank->micro_batch);
    void *const sum = sbp_rank_buffer(rank, buffer);
    const int64_t elements = instr->box.elements;
    return takes ? sbp_channel_take_sum(rank->channel, &route, sum, elements, diag)
                 : sbp_channel_pass_sum(rank->channel, &route, sum, elements, diag);
}

static enum sbp_status run_add_gradient(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_diag *diag)
{
    (void)diag;
    const int out = instr->buffer[SBP_AT_OUT];
    rank->kernels->add(sbp_rank_buffer(rank, out), sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]),
                       sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN2]),
                       rank->program->buffer[out].elements);
    return SBP_OK;
}

/* Where the next chunk of this device, or the one before, takes what it is sent. */
static void *mail_of_neighbour(struct sbp_rank *rank, enum sbp_section section)
{
    const int own = rank->chunk;
    int i = 0;
    sbp_rank_turn(rank, own + (section == SBP_SECTION_FORWARD ? 1 : -1));
    const struct sbp_instr *instr = rank->program->instr;
    while (instr[i].kind != SBP_INSTR_RECEIVE || instr[i].section != section)
        i++;
    void *const mail = sbp_rank_buffer(rank, instr[i].buffer[SBP_AT_WORK]);
    sbp_rank_turn(rank, own);
    return mail;
}

static enum sbp_status hand_over(struct sbp_rank *rank, void *to, int buffer)
{
    const int64_t elements = rank->program->buffer[buffer].elements;
    const int order = 0;
    rank->kernels->permute(to, sbp_rank_buffer(rank, buffer), 1, &elements, &order);
    return SBP_OK;
}

/* The stage that has the next piece, or the one before, of the micro-batch at hand. */
static int neighbour(const struct sbp_rank *rank, bool next)
{
    const struct sbp_step *step = rank->channel->step;
    const int piece = sbp_step_piece(step, rank->channel->stage, rank->chunk);
    return sbp_step_worker(step, piece + (next ? 1 : -1), rank->number, (int)rank->micro_batch);
}

/* Activations and gradients go to the next stage and back. */
static enum sbp_status run_send(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag)
{
    const int in = instr->buffer[SBP_AT_IN];
    if (instr->box.kind == SBP_LOCAL)
        return hand_over(rank, mail_of_neighbour(rank, instr->section), in);
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    return sbp_channel_pass(rank->channel, neighbour(rank, forward), forward,
                            sbp_rank_buffer(rank, in), rank->program->buffer[in].elements, diag);
}

static enum sbp_status run_receive(struct sbp_rank *rank, const struct sbp_instr *instr,
                                   struct sbp_diag *diag)
{
    const int out = instr->buffer[SBP_AT_OUT];
    if (instr->box.kind == SBP_LOCAL)
        return hand_over(rank, sbp_rank_buffer(rank, out), instr->buffer[SBP_AT_WORK]);
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    return sbp_channel_take(rank->channel, neighbour(rank, !forward), forward,
                            sbp_rank_buffer(rank, out), rank->program->buffer[out].elements, diag);
}

/* Adds the gradients of a weight, or its shard, that chunks hold; each of them gets the sum. */
static void run_chunk_sum(struct sbp_rank *rank, int tensor)
{
    const int last = rank->chunk, order = 0;
    const int64_t elements = sbp_rank_updates(rank, tensor);
    void *const sum = sbp_rank_shard(rank, tensor, rank->program->gradient_buffer[tensor]);
    for (int pass = 0; pass < 2; pass++)
        for (int chunk = 0; chunk < last; chunk++) {
            sbp_rank_turn(rank, chunk);
            void *part = sbp_rank_shard(rank, tensor, rank->program->gradient_buffer[tensor]);
            if (part != NULL && pass == 0)
                rank->kernels->add(sum, sum, part, elements);
            else if (part != NULL)
                rank->kernels->permute(part, sum, 1, &elements, &order);
        }
    sbp_rank_turn(rank, last);
}

/* A sum over stages: of a tied weight's gradient, or its shard, or of the norm. */
static enum sbp_status run_stage_sum(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    if (instr->box.kind == SBP_LOCAL) {
        run_chunk_sum(rank, instr->tensor);
        return SBP_OK;
    }
    const int out = instr->buffer[SBP_AT_OUT], tensor = instr->tensor;
    const struct sbp_exchange exchange = {
        .kind = SBP_ALL_REDUCE,
        .members = {instr->box.axes, true, tensor},
        .reduction = SBP_SUM,
        .receive = tensor < 0 ? sbp_rank_buffer(rank, out) : sbp_rank_shard(rank, tensor, out),
        .count = (int64_t)instr->inner_elements,
        .statistic = instr->statistic,
        .idle = tensor >= 0 && sbp_rank_updates(rank, tensor) == 0};
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

static enum sbp_status run_inner(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    const enum sbp_op_kind kind =
        instr->op >= 0 ? rank->program->graph->op[instr->op].kind : SBP_OP_KINDS;
    if (instr->cause != SBP_CAUSE_OPERATOR)
        return run_stage_sum(rank, instr, diag);
    /* The instruction behind it makes these calls. */
    if (sbp_program_is_operators_own(rank->program, instr))
        return SBP_OK;
    if (kind == SBP_OP_CONV2D)
        return sbp_rank_share_rows(rank, instr, diag);
    return (kind == SBP_OP_MOE ? sbp_rank_send_copies : sbp_rank_share_context)(rank, instr, diag);
}

/* From shards, or from the owner, whose copy is handed out as it lies in its own place. */
static enum sbp_status run_gather(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    const struct sbp_weight_shard *shard = &rank->program->shard[instr->tensor];
    const int order = 0;
    const struct sbp_exchange exchange = {
        .kind = instr->box.kind,
        .members.axes = instr->box.axes,
        .receive = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]),
        .send = sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_IN]),
        .count = shard->elements,
        .owner = shard->owner};
    if (shard->owner >= 0 && sbp_rank_updates(rank, instr->tensor) > 0)
        rank->kernels->permute(exchange.receive, exchange.send, 1, &shard->elements, &order);
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

/* The shard of a sum, or all of it where the rank owns it, goes to the gradient's own buffer, where
 * that is another. */
static void keep_shard(struct sbp_rank *rank, int tensor, void *gradient, const void *shard)
{
    const int order = 0;
    const int64_t elements = sbp_rank_updates(rank, tensor);
    if (gradient == shard || elements == 0)
        return;
    if (rank->adds)
        rank->kernels->add(gradient, gradient, shard, elements);
    else
        rank->kernels->permute(gradient, shard, 1, &elements, &order);
}

/* In place. What is behind the block's end must be numbers: nobody has written it. */
static enum sbp_status run_scatter(struct sbp_rank *rank, const struct sbp_instr *instr,
                                   struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    const int in = instr->buffer[SBP_AT_IN], tensor = instr->tensor;
    const int64_t block = sbp_dist_local_elements(
        &program->mesh, &program->graph->tensor[tensor].shape, &program->buffer[in].dist);
    unsigned char *whole = sbp_rank_buffer(rank, in);
    const struct sbp_exchange exchange = {.kind = instr->box.kind,
                                          .members.axes = instr->box.axes,
                                          .receive = sbp_rank_shard(rank, tensor, in),
                                          .send = whole,
                                          .count = program->shard[tensor].elements,
                                          .owner = program->shard[tensor].owner,
                                          .to_owner = true,
                                          .incoming =
                                              sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK])};
    rank->kernels->zero(whole + block * rank->kernels->real_bytes,
                        program->buffer[in].elements - block);
    SBP_TRY(sbp_channel_exchange(rank->channel, &exchange, diag));
    keep_shard(rank, tensor, sbp_rank_shard(rank, tensor, instr->buffer[SBP_AT_OUT]),
               exchange.receive);
    return SBP_OK;
}

/* Squares of a rank's share of a gradient, whether or not it holds more: so every element counts
 * once, padding does not, and all ZeRO levels add up alike. What several ranks hold in each other's
 * stead counts for one. */
static void add_squares(struct sbp_rank *rank, int tensor)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const int buffer = program->gradient_buffer[tensor];
    const sbp_axes replicas =
        sbp_dist_of_kind(&program->mesh, &program->buffer[buffer].dist, SBP_BROADCAST) &
        ~shard->axes;
    const struct sbp_stretch share = sbp_rank_share(program, tensor, rank->rank);
    const unsigned char *from = sbp_rank_shard(rank, tensor, buffer);
    const struct sbp_scope *scope = &program->scope;
    const int holders = (scope->holders == NULL ? 1 : scope->holders[tensor]) *
                        (scope->copies == NULL ? 1 : scope->copies[tensor]);
    if (shard->level == 0)
        from += share.first * rank->kernels->real_bytes;
    rank->kernels->sum_squares(
        &rank->state->squares_at_hand, from, share.count,
        1.0 / (double)(sbp_mesh_group_size(&program->mesh, replicas) * holders));
    rank->kernels->step_add(&rank->state->squares, &rank->state->squares_at_hand);
}

/* Of the chunks so far: the last one's goes on to the sum over ranks. */
static enum sbp_status run_norm(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag)
{
    (void)diag;
    rank->norm = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]);
    for (int t = 0; t < rank->program->graph->tensor_count; t++)
        if (rank->program->gradient_buffer[t] >= 0)
            add_squares(rank, t);
    rank->kernels->step_take(rank->norm, &rank->state->squares);
    rank->is_decided = false;
    return SBP_OK;
}

struct sbp_update sbp_rank_update(const struct sbp_rank *rank)
{
    struct sbp_update update = rank->program->graph->training.update;
    update.step = rank->step;
    return update;
}

void sbp_rank_decide(struct sbp_rank *rank)
{
    const struct sbp_update update = sbp_rank_update(rank);
    if (rank->is_decided)
        return;
    rank->kernels->step_decide(rank->state, rank->norm, rank->program->graph->training.clip_norm,
                               &update, rank->program->bytes.scales_loss);
    rank->is_decided = true;
    rank->is_read = false;
}

enum sbp_status sbp_rank_read_state(struct sbp_rank *rank, struct sbp_diag *diag)
{
    const enum sbp_status status =
        rank->device->memory->to_host(&rank->known, rank->state, sizeof rank->known);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "reading the loss and the norm of a step");
    rank->is_read = rank->is_decided;
    return SBP_OK;
}

enum sbp_status sbp_rank_end_step(struct sbp_rank *rank, struct sbp_diag *diag)
{
    sbp_rank_decide(rank);
    return sbp_rank_read_state(rank, diag);
}

bool sbp_rank_mends_overflow(const struct sbp_rank *rank)
{
    return rank->known.overflowed != 0 && rank->known.loss_scale > 1;
}

void sbp_rank_bring_newest(struct sbp_rank *rank, int tensor)
{
    const int buffer = rank->program->weight_buffer[tensor], order = 0;
    const int64_t elements = sbp_rank_updates(rank, tensor);
    if (rank->program->other_version[tensor] < 0)
        return;
    void *const to = sbp_rank_shard(rank, tensor, buffer);
    rank->version = 1 - rank->version;
    const void *const from = sbp_rank_shard(rank, tensor, buffer);
    rank->version = 1 - rank->version;
    rank->kernels->permute(to, from, 1, &elements, &order);
}

static enum sbp_status run_update(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    const struct sbp_update update = sbp_rank_update(rank);
    (void)diag;
    sbp_rank_decide(rank);
    sbp_rank_bring_newest(rank, instr->tensor); /* also of a step that is left out */
    const struct sbp_rank_states at = sbp_rank_states(rank, instr);
    rank->kernels->update(at.weight, at.state[0], at.gradient, at.gradient_master, at.state[1],
                          at.state[2], at.count, &update, rank->state);
    return SBP_OK;
}

enum sbp_status sbp_rank_execute(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    static enum sbp_status (*const run[])(struct sbp_rank *, const struct sbp_instr *,
                                          struct sbp_diag *) = {
        [SBP_INSTR_INPUT] = run_data,
        [SBP_INSTR_FORWARD] = sbp_rank_forward,
        [SBP_INSTR_BACKWARD] = sbp_rank_backward,
        [SBP_INSTR_BOX] = run_box,
        [SBP_INSTR_REDUCE] = run_reduce,
        [SBP_INSTR_INNER] = run_inner,
        [SBP_INSTR_SEND] = run_send,
        [SBP_INSTR_RECEIVE] = run_receive,
        [SBP_INSTR_GATHER] = run_gather,
        [SBP_INSTR_SCATTER] = run_scatter,
        [SBP_INSTR_TAKE] = run_sum_message,
        [SBP_INSTR_PASS] = run_sum_message,
        [SBP_INSTR_ADD_GRADIENT] = run_add_gradient,
        [SBP_INSTR_OUTPUT_GRADIENT] = run_data,
        [SBP_INSTR_NORM] = run_norm,
        [SBP_INSTR_COPY_IN] = sbp_rank_copy_states,
        [SBP_INSTR_UPDATE] = run_update,
        [SBP_INSTR_COPY_OUT] = sbp_rank_copy_states,
    };
    return run[instr->kind](rank, instr, diag);
}

enum sbp_status sbp_rank_begin_work(struct sbp_rank *rank, const struct sbp_task *task,
                                    struct sbp_diag *diag)
{
    const int64_t step = rank->step + task->is_ahead;
    const bool is_update = task->work == SBP_WORK_UPDATE;
    rank->adds = task->adds;
    rank->done_gelu = rank->waiting_product = NULL;
    sbp_rank_turn_data(rank, step);
    sbp_rank_turn_gradients(rank, step);
    sbp_rank_turn_version(rank, is_update ? step : step - 1 - task->is_stale);
    if (task->work == SBP_WORK_FORWARD)
        return sbp_rank_begin_micro_batch(rank, task->micro_batch, diag);
    rank->micro_batch = task->micro_batch;
    return SBP_OK;
}

void sbp_rank_end_work(struct sbp_rank *rank, const struct sbp_task *task)
{
    const int loss = rank->program->loss_buffer;
    struct sbp_step_state *state = rank->state;
    if (task->work == SBP_WORK_FORWARD && loss >= 0)
        rank->kernels->step_add(task->is_ahead ? &state->loss_ahead : &state->loss,
                                sbp_rank_buffer(rank, loss));
}

/* Rows of logits of a sample: its tokens, unless one of them stands for all. */
double sbp_rank_loss(const struct sbp_rank *rank)
{
    const struct sbp_graph *graph = rank->program->graph;
    if (rank->arena->program[rank->arena->chunks - 1]->loss_buffer < 0)
        return (double)NAN;
    const int logits = graph->op[graph->loss].input[0];
    const int64_t rows = graph->tensor[logits].shape.size[SBP_DIM_SEQUENCE];
    return rank->known.loss / (double)(graph->global_batch * rows);
}
