/* What a choice costs by itself: compute, boxing that depends on it alone, synchronisation and
 * updates of weights.
 *
 * A sum over these and over pairs (space_pairs.c) equals the price of the compiled program whenever
 * axes can be labelled so that every transfer reaches its least all-to-all; the tests hold the two
 * against each other.
 */
#include <math.h>

#include "planner/space_price.h"

/* ---- what prices are made of ---------------------------------------------------------------- */

double sbp_space_collective_s(const struct sbp_space *space, enum sbp_collective kind,
                              const struct sbp_group *group, double bytes)
{
    return sbp_collective_group_s(space->cluster, kind, group, bytes);
}

double sbp_space_elements(const struct sbp_space *space, int tensor)
{
    const int64_t *size = space->graph->tensor[tensor].shape.size;
    return (double)size[0] * (double)size[1] * (double)size[2] * (double)size[3];
}

static struct sbp_state state_of(const struct sbp_role *role, enum sbp_column column, int index)
{
    switch (column) {
    case SBP_COLUMN_INPUT:
        return role->input[index];
    case SBP_COLUMN_WEIGHT:
        return role->weight[index];
    case SBP_COLUMN_GRADIENT:
        return role->gradient[index];
    default:
        return role->output;
    }
}

struct sbp_group sbp_space_group(const struct sbp_op_entry *entry,
                                 const struct sbp_factors *factors, enum sbp_column column,
                                 int index, enum sbp_kind kind)
{
    struct sbp_group group = sbp_group_one();
    for (int r = 0; r < entry->role_count; r++)
        if (state_of(&entry->role[r], column, index).kind == kind)
            sbp_group_join(&group, &factors->group[r]);
    return group;
}

double sbp_space_parts(const struct sbp_op_entry *entry, const struct sbp_factors *factors,
                       enum sbp_column column, int index)
{
    const struct sbp_group split = sbp_space_group(entry, factors, column, index, SBP_SPLIT);
    return sbp_group_size(&split);
}

/* ---- boxing --------------------------------------------------------------------------------- */

bool sbp_space_free_input(const struct sbp_space *space, int op, int input)
{
    return space->graph->op[op].input[input] == space->graph->input && !space->graph->input_split;
}

bool sbp_space_forms_again(const struct sbp_space *space)
{
    return space->parallel->recompute == SBP_RECOMPUTE_FULL ||
           space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
}

double sbp_space_forward_passes(const struct sbp_space *space)
{
    return space->parallel->recompute == SBP_RECOMPUTE_FULL        ? 2
           : space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE ? 1.5
                                                                   : 1;
}

/* Gathers of inputs, reduce-scatter of the output, and their duals on the way back; where rests may
 * be whole, these are priced with the pair. */
static double boxing_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_op_entry *entry = node->entry;
    const double bytes = (double)space->pricing.bytes.activation;
    double seconds = 0;
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_group gather =
            sbp_space_group(entry, factors, SBP_COLUMN_INPUT, i, SBP_BROADCAST);
        const double n = sbp_space_elements(space, node->input[i]) /
                         sbp_space_parts(entry, factors, SBP_COLUMN_INPUT, i) * bytes;
        const double again =
            space->parallel->regather && sbp_op_has_weight_phase(space->graph, op) ? 1 : 0;
        if (!sbp_space_free_input(space, op, i) &&
            !space->variable[space->slot[node->input[i]]].rests_whole)
            seconds += (sbp_space_forward_passes(space) + again) *
                           sbp_space_collective_s(space, SBP_ALL_GATHER, &gather, n) +
                       sbp_space_collective_s(space, SBP_REDUCE_SCATTER, &gather, n);
    }
    if (node->output < 0 || space->variable[space->slot[node->output]].rests_whole)
        return seconds;
    const struct sbp_group partial =
        sbp_space_group(entry, factors, SBP_COLUMN_OUTPUT, 0, SBP_PARTIAL);
    const double n = sbp_space_elements(space, node->output) /
                     sbp_space_parts(entry, factors, SBP_COLUMN_OUTPUT, 0) * bytes;
    return seconds +
           sbp_space_forward_passes(space) *
               sbp_space_collective_s(space, SBP_REDUCE_SCATTER, &partial, n) +
           sbp_space_collective_s(space, SBP_ALL_GATHER, &partial, n);
}

/* ---- weights -------------------------------------------------------------------------------- */

int sbp_space_first_user(const struct sbp_space *space, int op, int weight)
{
    return space->first_user[space->graph->op[op].weight[weight]];
}

static double local_weight(const struct sbp_space *space, int op, int weight,
                           const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return sbp_space_elements(space, node->weight[weight]) /
           sbp_space_parts(node->entry, factors, SBP_COLUMN_WEIGHT, weight);
}

struct sbp_replicas sbp_space_replicas(const struct sbp_space *space, int op, int weight,
                                       const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    struct sbp_replicas replicas = {
        .group = sbp_space_group(node->entry, factors, SBP_COLUMN_GRADIENT, weight, SBP_PARTIAL),
        .local = local_weight(space, op, weight, factors),
    };
    const double members = sbp_group_size(&replicas.group);
    if (members > 1)
        replicas.level = space->parallel->owner != SBP_OWNER_NONE
                             ? 3
                             : sbp_space_zero(space, sbp_space_first_user(space, op, weight));
    replicas.shard = replicas.level == 0 ? replicas.local : ceil(replicas.local / members);
    return replicas;
}

/* From shards or the owner to all replicas, or back. */
static double share_out_s(const struct sbp_space *space, const struct sbp_replicas *replicas,
                          enum sbp_collective kind, int64_t element_bytes)
{
    const double members = sbp_group_size(&replicas->group);
    const enum sbp_owner owner = space->parallel->owner;
    if (owner != SBP_OWNER_NONE)
        kind = owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL : SBP_SEND_RECV;
    const double elements = owner == SBP_OWNER_NONE ? replicas->shard * members : replicas->local;
    return sbp_space_collective_s(space, kind, &replicas->group, elements * (double)element_bytes);
}

/* Costs of a micro-batch, and of what happens once a step. */
struct parts_s {
    double micro_s, step_s;
};

/* Passes of a micro-batch that read an operator's weights. */
static double weight_passes(const struct sbp_space *space, int op)
{
    return sbp_space_forward_passes(space) + sbp_op_forms_input_gradient(space->graph, op);
}

/* Weights whole where a pass reads them: gathered in the type that operators compute in, or
 * converted to it. */
static void add_weight_copies(const struct sbp_space *space, int op,
                              const struct sbp_replicas *replicas, struct parts_s *parts)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    double copy_s = 0;
    if (replicas->level == 3)
        copy_s = share_out_s(space, replicas, SBP_ALL_GATHER,
                             bytes->compute > 0 ? bytes->compute : bytes->weight);
    else if (bytes->compute > 0 && space->request->objective == SBP_STEP_TIME)
        copy_s = sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                      replicas->local * (double)(bytes->weight + bytes->compute));
    parts->micro_s += copy_s * weight_passes(space, op);
}

static void add_weight_sync(const struct sbp_space *space, int op, int weight,
                            const struct sbp_replicas *replicas, struct parts_s *parts)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    if (sbp_space_first_user(space, op, weight) != op)
        return;
    const double sum_s = replicas->level == 0
                             ? sbp_space_collective_s(space, SBP_ALL_REDUCE, &replicas->group,
                                                      replicas->local * (double)bytes->reduce)
                             : share_out_s(space, replicas, SBP_REDUCE_SCATTER, bytes->reduce);
    if (replicas->level >= 2 && space->micro_batches > 1)
        parts->micro_s += sum_s;
    else
        parts->step_s += sum_s * (1 - space->hidden_share);
    if (replicas->level == 1 || replicas->level == 2)
        parts->step_s += share_out_s(space, replicas, SBP_ALL_GATHER, bytes->weight);
}

static void add_update(const struct sbp_space *space, int op, int weight,
                       const struct sbp_replicas *replicas, struct parts_s *parts)
{
    if (sbp_space_first_user(space, op, weight) != op)
        return;
    parts->step_s += sbp_price_update_s(&space->pricing, replicas->shard);
    if (space->graph->training.clip_norm > 0)
        parts->step_s +=
            sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                 replicas->shard * (double)space->pricing.bytes.gradient);
}

/* ---- whole operators ------------------------------------------------------------------------ */

static struct sbp_factor factor_of(const struct sbp_factors *factors)
{
    struct sbp_factor factor;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        factor.of[r] = factors->factor[r];
    return factor;
}

bool sbp_space_is_attention(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

static double compute_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const bool again = space->parallel->recompute == SBP_RECOMPUTE_ATTENTION &&
                       sbp_space_is_attention(space->graph->op[op].kind);
    const struct sbp_factor factor = factor_of(factors);
    double seconds = (sbp_space_forward_passes(space) + again) *
                         sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_FORWARD) +
                     sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_WEIGHT_GRADIENT);
    if (sbp_op_forms_input_gradient(space->graph, op))
        seconds += sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_INPUT_GRADIENT);
    return seconds;
}

/* Collectives inside the operator, and of the loss. */
static double inner_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_factor factor = factor_of(factors);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(space->graph, op, &factor, inner);
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        struct sbp_group group = sbp_group_one();
        if (inner[i].pass == SBP_PASS_INPUT_GRADIENT &&
            !sbp_op_forms_input_gradient(space->graph, op))
            continue;
        for (int r = 0; r < SBP_MAX_ROLES; r++)
            if (inner[i].roles >> r & 1)
                sbp_group_join(&group, &factors->group[r]);
        const double passes =
            inner[i].pass == SBP_PASS_FORWARD ? sbp_space_forward_passes(space) : 1;
        seconds +=
            passes * inner[i].count *
            sbp_space_collective_s(space, inner[i].kind, &group,
                                   inner[i].elements * (double)space->pricing.bytes.activation);
    }
    return seconds;
}

static double op_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const bool time = space->request->objective == SBP_STEP_TIME;
    struct parts_s parts = {inner_s(space, op, factors), 0};
    for (int w = 0; w < space->graph->op[op].weight_count; w++) {
        const struct sbp_replicas replicas = sbp_space_replicas(space, op, w, factors);
        add_weight_copies(space, op, &replicas, &parts);
        add_weight_sync(space, op, w, &replicas, &parts);
        if (time)
            add_update(space, op, w, &replicas, &parts);
    }
    if (!space->graph->op[op].entry->follows)
        parts.micro_s += boxing_s(space, op, factors);
    if (time)
        parts.micro_s += compute_s(space, op, factors);
    return space->micro_weight * parts.micro_s + space->step_weight * parts.step_s;
}

/* A follower's factors, by its own roles, out of the state that it runs in. */
static struct sbp_factors follower_factors(const struct sbp_space *space, int op, int variable,
                                           int choice)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_op_entry *entry = space->graph->op[op].entry;
    const struct sbp_factors of_slot = sbp_space_factors(space, variable, choice, -1);
    struct sbp_factors factors = {0};
    for (int r = 0; r < SBP_MAX_ROLES; r++) {
        factors.group[r] = sbp_group_one();
        factors.factor[r] = 1;
    }
    for (int r = 0; r < entry->role_count; r++) {
        for (int s = 0; s < v->role_count; s++)
            if (sbp_state_equal(v->state[s], entry->role[r].input[0]))
                sbp_group_join(&factors.group[r], &of_slot.group[s]);
        factors.factor[r] = sbp_group_size(&factors.group[r]);
    }
    return factors;
}

/* ---- a variable's choice -------------------------------------------------------------------- */

/* Adding up the gradients that several consumers give for a tensor that rests in so many parts. */
static double fan_out_s(const struct sbp_space *space, int tensor, double parts)
{
    int given = 0;
    if (tensor == space->graph->input && !space->graph->input_split)
        return 0;
    for (int op = 0; op < space->graph->op_count; op++)
        for (int i = 0; i < space->graph->op[op].input_count; i++)
            given += space->graph->op[op].input[i] == tensor;
    if (given < 2)
        return 0;
    return space->micro_weight * (given - 1) *
           sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                3 * sbp_space_elements(space, tensor) / parts *
                                    (double)space->pricing.bytes.activation);
}

/* Where tensors may rest whole, how much there is to add depends on the choice. */
static double fan_outs_s(const struct sbp_space *space, int variable, int choice)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    if (!v->rests_whole || space->request->objective != SBP_STEP_TIME)
        return 0;
    const struct sbp_factors factors = sbp_space_factors(space, variable, choice, -1);
    double parts = 1, seconds = 0;
    for (int r = 0; r < v->role_count; r++)
        if (v->state[r].kind == SBP_SPLIT)
            parts *= factors.factor[r];
    for (int t = 0; t < space->graph->tensor_count; t++)
        if (space->slot[t] == variable)
            seconds += fan_out_s(space, t, parts);
    return seconds;
}

double sbp_space_sum(const struct sbp_space *space, int variable, int choice, sbp_price_op *price)
{
    double sum = 0;
    for (int op = 0; op < space->graph->op_count; op++) {
        const struct sbp_op_node *node = &space->graph->op[op];
        if (space->op_variable[op] == variable && node->site == op) {
            const struct sbp_factors factors = sbp_space_factors(space, variable, choice, op);
            sum += node->repeats * price(space, op, &factors);
        } else if (node->entry->follows && space->slot[node->input[0]] == variable) {
            const struct sbp_factors factors = follower_factors(space, op, variable, choice);
            sum += price(space, op, &factors);
        }
    }
    return sum;
}

double sbp_space_unary_s(const struct sbp_space *space, int variable, int choice)
{
    return sbp_space_sum(space, variable, choice, op_s) + fan_outs_s(space, variable, choice);
}

double sbp_space_constant_s(const struct sbp_space *space)
{
    double seconds = 0;
    if (space->graph->training.clip_norm > 0) {
        struct sbp_group all = sbp_group_one();
        for (int level = 0; level < space->cluster->level_count; level++)
            all.members[level] = (double)space->cluster->level[level].size;
        seconds +=
            space->step_weight * sbp_space_collective_s(space, SBP_ALL_REDUCE, &all,
                                                        (double)space->pricing.bytes.activation);
    }
    for (int t = 0; space->request->objective == SBP_STEP_TIME && t < space->graph->tensor_count;
         t++)
        if (space->slot[t] >= 0 && !space->variable[space->slot[t]].rests_whole)
            seconds += fan_out_s(space, t, (double)space->mesh->devices);
    return seconds;
}
