/* Weights: who holds their states, how gradients are summed, and the update.
 *
 * ZeRO (Rajbhandari et al., 2020, section 5) works on a weight over the axes where it is whole and
 * its gradient partial: states are flat shards of a block, which has room for as many of one size.
 * A whole gradient is summed, and a weight gathered, in place: member i's shard is the i-th. Level
 * 1 shards optimizer states: gradients are reduce-scattered once a step, updated weights gathered.
 * Level 2 shards gradients, too; with several micro-batches each of them has to be reduced by
 * itself, or the whole gradient would be held after all. Level 3 shards weights, which are gathered
 * before an operator's forward pass and once more before its backward pass, for each micro-batch.
 *
 * With an owner (Fournier and Oyallon, 2024, section 4.4) a member holds whole weights instead of
 * shards of all, and gradients are summed to it.
 */
#include "base/math/numeric.h"
#include "costmodel/program/buckets.h"
#include "costmodel/program/program_compile_priv.h"

/* ---- states -------------------------------------------------------------------------------- */

static int level_of(const struct sbp_compiler *c, int op)
{
    if (c->program->parallel.owner != SBP_OWNER_NONE)
        return 3;
    const uint8_t level = c->strategy->zero[op];
    return level == SBP_ZERO_DEFAULT ? (int)c->program->parallel.zero : level;
}

static void plan_weight(struct sbp_compiler *c, int op, int index)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    struct sbp_weight_plan *plan = &c->weight[node->weight[index]];
    plan->uses_left++;
    if (plan->first_user >= 0)
        return;
    const struct sbp_dist dist = sbp_strategy_weight(c->graph, c->mesh, c->strategy, op, index);
    const struct sbp_dist gradient =
        sbp_strategy_gradient(c->graph, c->mesh, c->strategy, op, index);
    plan->first_user = op;
    plan->shared = sbp_dist_of_kind(c->mesh, &gradient, SBP_PARTIAL);
    plan->members = sbp_mesh_group_size(c->mesh, plan->shared);
    plan->level = plan->members > 1 ? level_of(c, op) : 0;
    plan->local =
        sbp_dist_local_elements(c->mesh, &c->graph->tensor[node->weight[index]].shape, &dist);
    const bool is_whole = plan->level == 0 || c->program->parallel.owner != SBP_OWNER_NONE;
    plan->shard = is_whole ? plan->local : (plan->local + plan->members - 1) / plan->members;
    plan->padded = is_whole ? plan->local : plan->shard * plan->members;
    plan->unreduced = -1;
    c->program->shard[node->weight[index]] = (struct sbp_weight_shard){
        plan->level, plan->shared, plan->shard, 0, -1, node->weight[index]};
}

/* ---- owners -------------------------------------------------------------------------------- */

/* A weight of each member of the groups over `axes`. */
struct round {
    sbp_axes axes;
    int leader;
    int64_t others; /* members behind the first, which all rounds begin with, that have one */
};

/* Weights to be dealt out, and the rounds so far. */
struct dealer {
    const struct sbp_compiler *c;
    int *weight; /* (count) tensors, the largest first */
    struct round *round;
    int count, rounds;
};

/* Stages, and chunks, that hold a weight add up its gradients, each with the member at its own
 * place: the first one owns it everywhere. */
static bool is_first_members(const struct sbp_scope *scope, int tensor)
{
    return (scope->holders != NULL && scope->holders[tensor] > 1) ||
           (scope->copies != NULL && scope->copies[tensor] > 1);
}

/* Finds the member of a begun round that takes the weight; -1: none. */
static int64_t seat(struct round *round, const struct sbp_weight_plan *plan, bool takes_first)
{
    const bool fits =
        round->axes == plan->shared && !takes_first && round->others + 1 < plan->members;
    return fits ? ++round->others : -1;
}

static void deal_weight(struct dealer *dealer, int tensor)
{
    const struct sbp_compiler *c = dealer->c;
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    struct sbp_weight_shard *shard = &c->program->shard[tensor];
    const bool takes_first = is_first_members(&c->program->scope, tensor);
    for (int r = 0; shard->owner < 0; r++) {
        const bool begins = r == dealer->rounds;
        if (begins)
            dealer->round[dealer->rounds++] = (struct round){plan->shared, tensor, 0};
        shard->owner = begins ? 0 : seat(&dealer->round[r], plan, takes_first);
        shard->leader = dealer->round[r].leader;
    }
}

/* Puts a tensor in its place among those so far. */
static void add_by_size(struct dealer *dealer, int tensor)
{
    const struct sbp_weight_plan *weight = dealer->c->weight;
    int at = dealer->count++;
    for (; at > 0 && weight[dealer->weight[at - 1]].local < weight[tensor].local; at--)
        dealer->weight[at] = dealer->weight[at - 1];
    dealer->weight[at] = tensor;
}

/* Deals the weights out to their owners, the largest first. */
static enum sbp_status deal_out(struct sbp_compiler *c)
{
    const int tensors = c->graph->tensor_count;
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    struct dealer dealer = {.c = c,
                            .weight = SBP_NEW(&scratch, int, tensors),
                            .round = SBP_NEW(&scratch, struct round, tensors)};
    const bool fits = dealer.weight != NULL && dealer.round != NULL;
    for (int t = 0; t < tensors && fits; t++)
        if (c->weight[t].first_user >= 0 && c->weight[t].level > 0)
            add_by_size(&dealer, t);
    for (int i = 0; i < dealer.count; i++)
        deal_weight(&dealer, dealer.weight[i]);
    sbp_arena_free(&scratch);
    return fits ? SBP_OK : SBP_E_MEMORY;
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* A state of a weight; those of a round have one place. `of`: (tensor_count) buffers of its kind.
 */
static enum sbp_status add_state(struct sbp_compiler *c, enum sbp_buffer_use use, int tensor,
                                 const struct sbp_dist *dist, int64_t elements, int *of)
{
    const int leader = c->program->shard[tensor].leader;
    SBP_TRY(sbp_emit_buffer(c, use, SBP_BUFFER_REAL, tensor, dist, elements, &of[tensor]));
    if (leader != tensor)
        c->program->buffer[of[tensor]].shares = of[leader];
    return SBP_OK;
}

static enum sbp_status add_gradient(struct sbp_compiler *c, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    SBP_TRY(add_state(c, SBP_USE_GRADIENT, tensor, dist,
                      plan->level < 2 ? plan->padded : plan->shard, c->program->gradient_buffer));
    return sbp_parallel_hands_on(&c->program->parallel) && c->program->bytes.sum == 0
               ? add_state(c, SBP_USE_GRADIENT, tensor, dist, plan->local,
                           c->program->other_gradient)
               : SBP_OK;
}

/* Whether gradients are summed in chunks of buckets: then they lie behind each other, in the
 * buckets' order. An owner sums each by itself. */
static bool sums_chunks(const struct sbp_compiler *c)
{
    return c->program->parallel.chunk_factor > 0 && c->program->parallel.owner == SBP_OWNER_NONE;
}

static enum sbp_status add_gradients_together(struct sbp_compiler *c)
{
    for (int t = 0; t < c->graph->tensor_count && sums_chunks(c); t++) {
        const int weight = c->program->weight_buffer[t];
        if (weight < 0)
            continue;
        const struct sbp_dist dist = c->program->buffer[weight].dist;
        SBP_TRY(add_gradient(c, t, &dist));
    }
    return SBP_OK;
}

static enum sbp_status add_states(struct sbp_compiler *c, int tensor, const struct sbp_dist *dist)
{
    struct sbp_program *program = c->program;
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    const int moments = sbp_graph_training_moments(&c->graph->training);
    const int64_t weights = plan->level < 3 ? plan->padded : plan->shard;
    SBP_TRY(add_state(c, SBP_USE_WEIGHT, tensor, dist, weights, program->weight_buffer));
    if (program->scope.versions > 1)
        SBP_TRY(add_state(c, SBP_USE_VERSION, tensor, dist, weights, program->other_version));
    if (!sums_chunks(c))
        SBP_TRY(add_gradient(c, tensor, dist));
    program->parameters += plan->local;
    if (program->bytes.sum > 0) /* no instruction reads it: no run has one */
        SBP_TRY(add_state(c, SBP_USE_SUM, tensor, dist,
                          plan->level < 2 ? plan->padded : plan->shard, c->sum));
    if (program->bytes.sum > 0 && sbp_parallel_hands_on(&program->parallel))
        SBP_TRY(add_state(c, SBP_USE_SUM, tensor, dist, plan->local, program->other_gradient));
    if (program->parallel.offload)
        return SBP_OK;
    if (program->bytes.master > 0)
        SBP_TRY(add_state(c, SBP_USE_MASTER, tensor, dist, plan->shard, program->master));
    if (program->bytes.gradient_master > 0) /* for the update (Myelin, V-B) */
        SBP_TRY(add_state(c, SBP_USE_MASTER, tensor, dist, plan->shard, program->gradient_master));
    if (moments > 0)
        SBP_TRY(add_state(c, SBP_USE_MOMENT, tensor, dist, plan->shard, program->first_moment));
    if (moments > 1)
        SBP_TRY(add_state(c, SBP_USE_MOMENT, tensor, dist, plan->shard, program->second_moment));
    return SBP_OK;
}

/* Master copies and moments go to the host; a bucket of them, with gradients converted to the
 * master's type, passes through the device (Myelin, section V.B). */
static enum sbp_status add_offload(struct sbp_compiler *c)
{
    struct sbp_program *program = c->program;
    const int64_t state = program->bytes.master +
                          sbp_graph_training_moments(&c->graph->training) * program->bytes.moment;
    int64_t updated = 0;
    for (int t = 0; t < c->graph->tensor_count; t++) {
        program->shard[t].begin = updated;
        updated += sbp_weight_updated(&program->shard[t], t);
    }
    for (int t = 0; t < c->graph->tensor_count; t++)
        program->shard[t].begin = program->shard[program->shard[t].leader].begin;
    if (!sbp_mul_i64(updated, state, &program->host_bytes))
        return sbp_fail(c->diag, SBP_E_RANGE, "memory: a host's states pass 2^63 bytes");
    if (program->host_bytes == 0)
        return SBP_OK;
    return sbp_emit_buffer(c, SBP_USE_BUCKET, SBP_BUFFER_REAL, -1, NULL,
                           sbp_buckets_of(program).buffer, &c->bucket);
}

/* Of the leaders of rounds, or of all others: these have places already. */
static enum sbp_status add_all_states(struct sbp_compiler *c, bool leaders)
{
    const struct sbp_scope *scope = &c->program->scope;
    for (int op = scope->first_op; op < scope->end_op; op++)
        for (int w = 0; w < c->graph->op[op].weight_count; w++) {
            const int tensor = c->graph->op[op].weight[w];
            const struct sbp_dist dist = sbp_strategy_weight(c->graph, c->mesh, c->strategy, op, w);
            if (c->program->weight_buffer[tensor] < 0 &&
                leaders == (c->program->shard[tensor].leader == tensor))
                SBP_TRY(add_states(c, tensor, &dist));
        }
    return SBP_OK;
}

enum sbp_status sbp_program_compile_weights(struct sbp_compiler *c)
{
    const struct sbp_scope *scope = &c->program->scope;
    for (int op = scope->first_op; op < scope->end_op; op++)
        for (int w = 0; w < c->graph->op[op].weight_count; w++)
            plan_weight(c, op, w);
    if (c->program->parallel.owner != SBP_OWNER_NONE)
        SBP_TRY(deal_out(c));
    SBP_TRY(add_all_states(c, true));
    SBP_TRY(add_all_states(c, false));
    SBP_TRY(add_gradients_together(c));
    return c->program->parallel.offload ? add_offload(c) : SBP_OK;
}

/* ---- communication ------------------------------------------------------------------------- */

/* Communication between shards and the whole, by `sharded`, or with the owner, to which a sum costs
 * what its broadcast costs, and a hand-over a message of each member. NULL when memory is out. */
static struct sbp_instr *add_exchange(struct sbp_compiler *c, enum sbp_instr_kind kind, int op,
                                      int tensor, enum sbp_collective sharded)
{
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    const enum sbp_owner owner = c->program->parallel.owner;
    struct sbp_instr *instr = sbp_emit_instr(c, kind, op, 0);
    if (instr == NULL)
        return NULL;
    instr->tensor = tensor;
    instr->box.kind = owner == SBP_OWNER_NONE        ? sharded
                      : owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL
                                                     : SBP_SEND_RECV;
    instr->box.axes = plan->shared;
    instr->box.elements = owner == SBP_OWNER_NONE ? plan->shard * plan->members : plan->local;
    return instr;
}

static enum sbp_status add_gather(struct sbp_compiler *c, int op, int tensor, int out)
{
    struct sbp_instr *instr = add_exchange(c, SBP_INSTR_GATHER, op, tensor, SBP_ALL_GATHER);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->cause = SBP_CAUSE_WEIGHT;
    instr->buffer[SBP_AT_IN] = c->program->weight_buffer[tensor];
    instr->buffer[SBP_AT_OUT] = out;
    return SBP_OK;
}

/* Whether operators read a copy of the weight: gathered, or in another type. */
static bool is_copied(const struct sbp_compiler *c, int tensor)
{
    return c->weight[tensor].level == 3 || c->program->bytes.compute > 0;
}

static enum sbp_status add_copy(struct sbp_compiler *c, int op, int index, int *buffer)
{
    const int tensor = c->graph->op[op].weight[index];
    const struct sbp_dist dist = sbp_strategy_weight(c->graph, c->mesh, c->strategy, op, index);
    SBP_TRY(sbp_emit_buffer(
        c, SBP_USE_GATHERED, SBP_BUFFER_REAL, tensor, &dist,
        c->weight[tensor].level == 3 ? c->weight[tensor].padded : c->weight[tensor].local, buffer));
    if (c->weight[tensor].level == 3)
        return add_gather(c, op, tensor, *buffer);
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_CONVERT, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->buffer[SBP_AT_IN] = c->program->weight_buffer[tensor];
    instr->buffer[SBP_AT_OUT] = *buffer;
    return SBP_OK;
}

/* Gathers the weights of a block when a pass comes to it. */
static enum sbp_status open_block(struct sbp_compiler *c, int block)
{
    const struct sbp_scope *scope = &c->program->scope;
    const bool forward = c->section == SBP_SECTION_FORWARD;
    if (c->open_block == block && c->open_forward == forward)
        return SBP_OK;
    c->open_block = block;
    c->open_forward = forward;
    c->program->groups++;
    for (int op = scope->first_op; op < scope->end_op; op++)
        for (int w = 0; c->block[op] == block && w < c->graph->op[op].weight_count; w++) {
            const int tensor = c->graph->op[op].weight[w];
            if (!is_copied(c, tensor))
                continue;
            SBP_TRY(add_copy(c, op, w, &c->gathered[tensor]));
            c->program->buffer[c->gathered[tensor]].group = c->program->groups;
        }
    return SBP_OK;
}

enum sbp_status sbp_program_gather_weights(struct sbp_compiler *c, int op, int *buffer)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const bool together = c->block[op] >= 0 && node->weight_count > 0;
    if (together)
        SBP_TRY(open_block(c, c->block[op]));
    for (int w = 0; w < node->weight_count; w++) {
        const int tensor = node->weight[w];
        buffer[w] = together ? c->gathered[tensor] : -1;
        if (!is_copied(c, tensor))
            buffer[w] = c->program->weight_buffer[tensor];
        else if (!together)
            SBP_TRY(add_copy(c, op, w, &buffer[w]));
    }
    return SBP_OK;
}

/* A message between replicas, or groups of a pyramid, with the sum of a weight's gradients. */
static enum sbp_status add_hand_on(struct sbp_compiler *c, enum sbp_instr_kind kind, int op,
                                   int tensor, enum sbp_section section)
{
    const enum sbp_section own = c->section;
    c->section = section;
    struct sbp_instr *instr = sbp_emit_instr(c, kind, op, 0);
    c->section = own;
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->stages = 2;
    instr->cause = SBP_CAUSE_WEIGHT_GRADIENT;
    instr->box.kind = SBP_SEND_RECV;
    instr->box.elements = c->weight[tensor].local;
    instr->buffer[kind == SBP_INSTR_PASS ? SBP_AT_IN : SBP_AT_OUT] =
        c->program->gradient_buffer[tensor];
    return SBP_OK;
}

enum sbp_status sbp_program_open_gradients(struct sbp_compiler *c, int op, int *buffer)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    for (int w = 0; w < node->weight_count; w++) {
        struct sbp_weight_plan *plan = &c->weight[node->weight[w]];
        buffer[w] = c->program->gradient_buffer[node->weight[w]];
        if (sbp_parallel_hands_on(&c->program->parallel) && plan->uses_left > 0)
            SBP_TRY(add_hand_on(c, SBP_INSTR_TAKE, op, node->weight[w], SBP_SECTION_BACKWARD));
        if (plan->level < 2)
            continue;
        const struct sbp_dist dist = sbp_strategy_weight(c->graph, c->mesh, c->strategy, op, w);
        if (plan->unreduced < 0)
            SBP_TRY(sbp_emit_buffer(c, SBP_USE_UNREDUCED, SBP_BUFFER_REAL, node->weight[w], &dist,
                                    plan->padded, &plan->unreduced));
        if (c->block[op] >= 0 && c->open_block == c->block[op] && !sbp_compiler_parts_backward(c))
            c->program->buffer[plan->unreduced].group = c->program->groups;
        buffer[w] = plan->unreduced;
    }
    return SBP_OK;
}

/* Room for the sum of other members' gradients that comes to a member, for the SCATTER that was
 * emitted last. */
static enum sbp_status add_incoming(struct sbp_compiler *c, int tensor)
{
    const int scatter = c->program->instr_count - 1;
    const struct sbp_dist *dist = &c->program->buffer[c->program->gradient_buffer[tensor]].dist;
    return sbp_emit_buffer(c, SBP_USE_UNREDUCED, SBP_BUFFER_REAL, tensor, dist,
                           c->weight[tensor].local,
                           &c->program->instr[scatter].buffer[SBP_AT_WORK]);
}

/* The sum over members. */
static enum sbp_status add_scatter(struct sbp_compiler *c, int op, int tensor)
{
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    struct sbp_instr *instr = add_exchange(c, SBP_INSTR_SCATTER, op, tensor, SBP_REDUCE_SCATTER);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->cause = SBP_CAUSE_WEIGHT_GRADIENT;
    instr->buffer[SBP_AT_OUT] = c->program->gradient_buffer[tensor];
    instr->buffer[SBP_AT_IN] =
        plan->unreduced >= 0 ? plan->unreduced : c->program->gradient_buffer[tensor];
    return c->program->parallel.owner == SBP_OWNER_HAND_OVER ? add_incoming(c, tensor) : SBP_OK;
}

static enum sbp_status add_tied_sum(struct sbp_compiler *c, int op, int tensor,
                                    enum sbp_collective kind, int stages)
{
    c->section = SBP_SECTION_STEP;
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_INNER, op, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->stages = stages;
    instr->cause = SBP_CAUSE_WEIGHT_GRADIENT;
    instr->box.kind = kind;
    instr->inner_elements = (double)c->weight[tensor].shard;
    instr->buffer[SBP_AT_OUT] = c->program->gradient_buffer[tensor];
    return SBP_OK;
}

/* Chunks of the device, and stages, that hold a tied weight add up its gradients once a step. A sum
 * within the device is not priced. */
static enum sbp_status add_tied_sums(struct sbp_compiler *c, int op, int tensor)
{
    const struct sbp_scope *scope = &c->program->scope;
    if (scope->copies != NULL && scope->copies[tensor] > 1)
        SBP_TRY(add_tied_sum(c, op, tensor, SBP_LOCAL, 1));
    return scope->holders != NULL && scope->holders[tensor] > 1
               ? add_tied_sum(c, op, tensor, SBP_ALL_REDUCE, scope->holders[tensor])
               : SBP_OK;
}

static enum sbp_status sum_gradient(struct sbp_compiler *c, int op, int index)
{
    const int tensor = c->graph->op[op].weight[index];
    struct sbp_weight_plan *plan = &c->weight[tensor];
    int buffer = c->program->gradient_buffer[tensor];
    if (sbp_parallel_hands_on(&c->program->parallel)) {
        SBP_TRY(add_hand_on(c, SBP_INSTR_PASS, op, tensor, SBP_SECTION_BACKWARD));
        SBP_TRY(add_hand_on(c, SBP_INSTR_TAKE, op, tensor, SBP_SECTION_STEP));
        SBP_TRY(add_hand_on(c, SBP_INSTR_PASS, op, tensor, SBP_SECTION_STEP));
    }
    if (plan->level < 2 || c->program->scope.micro_batches == 1)
        c->section = SBP_SECTION_STEP;
    if (plan->level > 0) {
        SBP_TRY(add_scatter(c, op, tensor));
    } else {
        const struct sbp_dist from =
            sbp_strategy_gradient(c->graph, c->mesh, c->strategy, op, index);
        const struct sbp_dist to = sbp_strategy_weight(c->graph, c->mesh, c->strategy, op, index);
        SBP_TRY(
            sbp_emit_boxing(c, op, tensor, &from, &to, SBP_CAUSE_WEIGHT_GRADIENT, true, &buffer));
    }
    plan->unreduced = -1;
    return add_tied_sums(c, op, tensor);
}

enum sbp_status sbp_program_close_gradients(struct sbp_compiler *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const enum sbp_section section = c->section;
    for (int w = 0; w < node->weight_count; w++) {
        int *left = &c->weight[node->weight[w]].uses_left;
        const int remaining = (*left < 0 ? -*left : *left) - 1;
        *left = -remaining;
        if (remaining == 0)
            SBP_TRY(sum_gradient(c, op, w));
        c->section = section;
    }
    return SBP_OK;
}

/* ---- update -------------------------------------------------------------------------------- */

static enum sbp_status add_norm(struct sbp_compiler *c, int *norm)
{
    const struct sbp_program *program = c->program;
    const sbp_axes all = (sbp_axes)(((uint64_t)1 << c->mesh->axis_count) - 1);
    const int stages = (int)program->parallel.pipeline;
    SBP_TRY(sbp_emit_statistics(c, 1, norm));
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_NORM, -1, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->buffer[SBP_AT_OUT] = *norm;
    if (stages == 1)
        return sbp_emit_reduce(c, -1, all, *norm, 0, SBP_CAUSE_SCALAR);
    instr = sbp_emit_instr(c, SBP_INSTR_INNER, -1, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->stages = stages;
    instr->cause = SBP_CAUSE_SCALAR;
    instr->box.kind = SBP_ALL_REDUCE;
    instr->box.axes = all;
    instr->inner_elements = 1;
    instr->statistic = true;
    instr->buffer[SBP_AT_OUT] = *norm;
    return SBP_OK;
}

static enum sbp_status add_update(struct sbp_compiler *c, int tensor, int norm)
{
    const struct sbp_program *program = c->program;
    const struct sbp_weight_plan *plan = &c->weight[tensor];
    struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_UPDATE, plan->first_user, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->buffer[SBP_AT_IN] = norm;
    instr->buffer[SBP_AT_W] = program->weight_buffer[tensor];
    instr->buffer[SBP_AT_W2] = program->master[tensor];
    instr->buffer[SBP_AT_DW] = program->gradient_buffer[tensor];
    instr->buffer[SBP_AT_DW2] = program->gradient_master[tensor];
    instr->buffer[SBP_AT_SAVED] = program->first_moment[tensor];
    instr->buffer[SBP_AT_SAVED2] = program->second_moment[tensor];
    return plan->level == 1 || plan->level == 2
               ? add_gather(c, plan->first_user, tensor, program->weight_buffer[tensor])
               : SBP_OK;
}

/* Brings states to the device, or takes them back. */
static enum sbp_status add_copy_of_states(struct sbp_compiler *c, enum sbp_instr_kind kind)
{
    if (c->bucket < 0)
        return SBP_OK;
    struct sbp_instr *instr = sbp_emit_instr(c, kind, -1, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->buffer[kind == SBP_INSTR_COPY_IN ? SBP_AT_OUT : SBP_AT_IN] = c->bucket;
    return SBP_OK;
}

enum sbp_status sbp_program_compile_updates(struct sbp_compiler *c)
{
    int norm = -1;
    c->section = SBP_SECTION_STEP;
    if (sbp_program_has_norm(&c->graph->training, &c->program->bytes))
        SBP_TRY(add_norm(c, &norm));
    SBP_TRY(add_copy_of_states(c, SBP_INSTR_COPY_IN));
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        if (c->weight[tensor].first_user >= 0)
            SBP_TRY(add_update(c, tensor, norm));
    return add_copy_of_states(c, SBP_INSTR_COPY_OUT);
}
