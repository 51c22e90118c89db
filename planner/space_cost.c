/* Prices of the space: what an operator's choice costs by itself, and what two choices cost
 * together.
 *
 * A sum over these equals the price of the compiled program whenever axes can be labelled so that
 * every transfer reaches its least all-to-all; the tests hold the two against each other.
 */
#include <math.h>

#include "planner/space.h"

static double collective_s(const struct sbp_space *space, enum sbp_collective kind,
                           const struct sbp_group *group, double bytes)
{
    return sbp_collective_group_s(space->cluster, kind, group, bytes);
}

static double elements_of(const struct sbp_space *space, int tensor)
{
    const int64_t *size = space->graph->tensor[tensor].shape.size;
    return (double)size[0] * (double)size[1] * (double)size[2] * (double)size[3];
}

enum column { INPUT, WEIGHT, GRADIENT, OUTPUT };

static struct sbp_state state_of(const struct sbp_role *role, enum column column, int index)
{
    switch (column) {
    case INPUT:
        return role->input[index];
    case WEIGHT:
        return role->weight[index];
    case GRADIENT:
        return role->gradient[index];
    default:
        return role->output;
    }
}

/* All roles whose state, in a column of the catalogue, is of a kind. */
static struct sbp_group group_of(const struct sbp_op_entry *entry,
                                 const struct sbp_factors *factors, enum column column, int index,
                                 enum sbp_kind kind)
{
    struct sbp_group group = sbp_group_one();
    for (int r = 0; r < entry->role_count; r++)
        if (state_of(&entry->role[r], column, index).kind == kind)
            sbp_group_join(&group, &factors->group[r]);
    return group;
}

static double parts_of(const struct sbp_op_entry *entry, const struct sbp_factors *factors,
                       enum column column, int index)
{
    const struct sbp_group split = group_of(entry, factors, column, index, SBP_SPLIT);
    return sbp_group_size(&split);
}

/* ---- an operator's own costs ---------------------------------------------------------------- */

static bool is_free_input(const struct sbp_space *space, int op, int input)
{
    return space->graph->op[op].input[input] == space->graph->input && !space->graph->input_split;
}

/* Of blocks, little but their inputs is kept. */
static bool forms_blocks_again(const struct sbp_space *space)
{
    return space->parallel->recompute == SBP_RECOMPUTE_FULL ||
           space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
}

/* Forward passes of a step's micro-batch: two where all activations are formed again, and of half
 * of what products leave one more. */
static double forward_passes(const struct sbp_space *space)
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
        const struct sbp_group gather = group_of(entry, factors, INPUT, i, SBP_BROADCAST);
        const double n =
            elements_of(space, node->input[i]) / parts_of(entry, factors, INPUT, i) * bytes;
        const double again =
            space->parallel->regather && sbp_op_has_weight_phase(space->graph, op) ? 1 : 0;
        if (!is_free_input(space, op, i) &&
            !space->variable[space->slot[node->input[i]]].rests_whole)
            seconds +=
                (forward_passes(space) + again) * collective_s(space, SBP_ALL_GATHER, &gather, n) +
                collective_s(space, SBP_REDUCE_SCATTER, &gather, n);
    }
    if (node->output < 0 || space->variable[space->slot[node->output]].rests_whole)
        return seconds;
    const struct sbp_group partial = group_of(entry, factors, OUTPUT, 0, SBP_PARTIAL);
    const double n = elements_of(space, node->output) / parts_of(entry, factors, OUTPUT, 0) * bytes;
    return seconds + forward_passes(space) * collective_s(space, SBP_REDUCE_SCATTER, &partial, n) +
           collective_s(space, SBP_ALL_GATHER, &partial, n);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* A tied weight is synchronised and updated once: by its first user. */
static int first_user(const struct sbp_space *space, int op, int weight)
{
    return space->first_user[space->graph->op[op].weight[weight]];
}

static double local_weight(const struct sbp_space *space, int op, int weight,
                           const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return elements_of(space, node->weight[weight]) /
           parts_of(node->entry, factors, WEIGHT, weight);
}

/* How the replicas of a weight share its states (ZeRO: Rajbhandari et al., 2020, section 5; owners:
 * CDP, section 4.4), as costmodel/program_weights.c compiles it. */
struct replicas {
    struct sbp_group group;
    int level;           /* of ZeRO; 0 where there is one replica */
    double local, shard; /* elements that a device holds, and that it updates */
};

static struct replicas replicas_of(const struct sbp_space *space, int op, int weight,
                                   const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    struct replicas replicas = {
        .group = group_of(node->entry, factors, GRADIENT, weight, SBP_PARTIAL),
        .local = local_weight(space, op, weight, factors),
    };
    const double members = sbp_group_size(&replicas.group);
    if (members > 1)
        replicas.level = space->parallel->owner != SBP_OWNER_NONE
                             ? 3
                             : sbp_space_zero(space, first_user(space, op, weight));
    replicas.shard = replicas.level == 0 ? replicas.local : ceil(replicas.local / members);
    return replicas;
}

/* From shards or the owner to all replicas, or back. */
static double share_out_s(const struct sbp_space *space, const struct replicas *replicas,
                          enum sbp_collective kind, int64_t element_bytes)
{
    const double members = sbp_group_size(&replicas->group);
    const enum sbp_owner owner = space->parallel->owner;
    if (owner != SBP_OWNER_NONE)
        kind = owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL : SBP_SEND_RECV;
    const double elements = owner == SBP_OWNER_NONE ? replicas->shard * members : replicas->local;
    return collective_s(space, kind, &replicas->group, elements * (double)element_bytes);
}

/* Costs of a micro-batch, and of what happens once a step. */
struct parts_s {
    double micro_s, step_s;
};

static void add_weight_sync(const struct sbp_space *space, int op, int weight,
                            const struct replicas *replicas, struct parts_s *parts)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const double gather_s =
        replicas->level == 0 ? 0 : share_out_s(space, replicas, SBP_ALL_GATHER, bytes->weight);
    if (replicas->level == 3)
        parts->micro_s +=
            gather_s * (forward_passes(space) + sbp_op_forms_input_gradient(space->graph, op));
    if (first_user(space, op, weight) != op)
        return;
    const double sum_s = replicas->level == 0
                             ? collective_s(space, SBP_ALL_REDUCE, &replicas->group,
                                            replicas->local * (double)bytes->reduce)
                             : share_out_s(space, replicas, SBP_REDUCE_SCATTER, bytes->reduce);
    if (replicas->level >= 2 && space->micro_batches > 1)
        parts->micro_s += sum_s;
    else
        parts->step_s += sum_s * (1 - space->hidden_share);
    if (replicas->level == 1 || replicas->level == 2)
        parts->step_s += gather_s;
}

static void add_update(const struct sbp_space *space, int op, int weight,
                       const struct replicas *replicas, struct parts_s *parts)
{
    if (first_user(space, op, weight) != op)
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

static bool is_attention(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

static double compute_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const bool again = space->parallel->recompute == SBP_RECOMPUTE_ATTENTION &&
                       is_attention(space->graph->op[op].kind);
    const struct sbp_factor factor = factor_of(factors);
    double seconds = (forward_passes(space) + again) *
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
        const double passes = inner[i].pass == SBP_PASS_FORWARD ? forward_passes(space) : 1;
        seconds += passes * inner[i].count *
                   collective_s(space, inner[i].kind, &group,
                                inner[i].elements * (double)space->pricing.bytes.activation);
    }
    return seconds;
}

static double op_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const bool time = space->request->objective == SBP_STEP_TIME;
    struct parts_s parts = {inner_s(space, op, factors), 0};
    for (int w = 0; w < space->graph->op[op].weight_count; w++) {
        const struct replicas replicas = replicas_of(space, op, w, factors);
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
                                3 * elements_of(space, tensor) / parts *
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

/* Adds up what the operators that a variable decides cost in one of its choices: its own, repeats
 * included, and the followers that run where it rests. */
typedef double price_op(const struct sbp_space *space, int op, const struct sbp_factors *factors);

static double sum_over_ops(const struct sbp_space *space, int variable, int choice, price_op *price)
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
    return sum_over_ops(space, variable, choice, op_s) + fan_outs_s(space, variable, choice);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* What is certainly live together when the forward pass ends: weights and their states, what
 * backward reads of activations, gathered copies. A lower bound of the program's arena, so that
 * what it rules out is ruled out; the compiled program has the last word. */

/* Operators that keep their input in a form of their own, gathered or free: linears. */
static bool keeps_own_input(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR;
}

/* Whether backward reads the tensor in the block where it rests (or in one of the same size). */
static bool kept_at_rest(const struct sbp_graph *graph, int tensor)
{
    const struct sbp_factor whole = sbp_factor_one();
    const int producer = graph->tensor[tensor].producer;
    if (producer >= 0 && sbp_op_kept(graph, producer, &whole).output)
        return true;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++)
            if (node->input[i] == tensor && !keeps_own_input(node) &&
                (sbp_op_kept(graph, op, &whole).inputs >> i & 1))
                return true;
    }
    return false;
}

/* Bytes that an operator keeps beside its operands, over all devices; statistics are left out. */
static double saved_bytes(const struct sbp_graph *graph, int op, double element_bytes)
{
    const struct sbp_factor whole = sbp_factor_one();
    const struct sbp_op_kept kept = sbp_op_kept(graph, op, &whole);
    const bool statistics = !graph->op[op].entry->follows;
    return kept.bytes + (statistics ? kept.elements * element_bytes : 0);
}

/* The operator that reads a tensor and writes its output over it; -1. */
static int overwriter(const struct sbp_graph *graph, int tensor)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].entry->in_place && graph->op[op].input[0] == tensor)
            return op;
    return -1;
}

double sbp_space_constant_bytes(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const double element = (double)space->pricing.bytes.activation;
    double bytes = 0;
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].kind == SBP_ACTIVATION && overwriter(graph, t) < 0 &&
            kept_at_rest(graph, t))
            bytes += elements_of(space, t) * element;
    for (int op = 0; op < graph->op_count; op++)
        if (space->parallel->recompute != SBP_RECOMPUTE_ATTENTION ||
            !is_attention(graph->op[op].kind))
            bytes += saved_bytes(graph, op, element);
    if (forms_blocks_again(space))
        bytes = 0; /* inputs of segments are kept, and more than this knows of */
    return space->kept_weight * bytes / (double)space->mesh->devices;
}

/* A linear keeps its input: a copy of its own when it is gathered (and not gathered once more for
 * backward) or free, else the block at rest, which is counted once for all readers. */
static double kept_input_bytes(const struct sbp_space *space, int op,
                               const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_group gather = group_of(node->entry, factors, INPUT, 0, SBP_BROADCAST);
    int reader = -1;
    const int readers = sbp_graph_consumers(space->graph, node->input[0], &reader, 1);
    const double gathered = space->parallel->regather ? sbp_group_size(&gather) : 1;
    const bool own_copy = sbp_group_size(&gather) > gathered || is_free_input(space, op, 0);
    if (!own_copy && (readers > 1 || kept_at_rest(space->graph, node->input[0])))
        return 0;
    return elements_of(space, node->input[0]) / parts_of(node->entry, factors, INPUT, 0) /
           gathered * (double)space->pricing.bytes.activation;
}

/* Parameters, gradients and optimizer states of a weight; offloaded states are on the host. */
static double state_bytes(const struct sbp_space *space, const struct replicas *replicas)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const int moments = sbp_training_moments(&space->graph->training);
    const double states =
        (double)(bytes->master + bytes->gradient_master + moments * bytes->moment);
    return (replicas->level < 3 ? replicas->local : replicas->shard) * (double)bytes->weight +
           (replicas->level < 2 ? replicas->local : replicas->shard) *
               (double)(bytes->gradient + bytes->sum) +
           (space->parallel->offload ? 0 : replicas->shard * states);
}

static double op_bytes(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    double total = 0;
    if (node->kind == SBP_OP_LINEAR && !forms_blocks_again(space))
        total = space->kept_weight * kept_input_bytes(space, op, factors);
    for (int w = 0; w < node->weight_count; w++) {
        const struct replicas replicas = replicas_of(space, op, w, factors);
        if (first_user(space, op, w) == op)
            total += space->step_weight * state_bytes(space, &replicas);
    }
    return total;
}

double sbp_space_unary_bytes(const struct sbp_space *space, int variable, int choice)
{
    return sum_over_ops(space, variable, choice, op_bytes);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Axes of a family by the dimension that they split, those in B and those in P. */
struct family_state {
    int split[SBP_MAX_DIMS], broadcast, partial;
};

static struct family_state family_state(const uint8_t *count, int roles,
                                        const struct sbp_state *states)
{
    struct family_state state = {{0}, 0, 0};
    for (int r = 0; r < roles; r++) {
        if (states[r].kind == SBP_SPLIT)
            state.split[states[r].dim] += count[r];
        else if (states[r].kind == SBP_PARTIAL)
            state.partial += count[r];
        else
            state.broadcast += count[r];
    }
    return state;
}

static void input_states(const struct sbp_space *space, const struct sbp_transfer *transfer,
                         struct sbp_state *states)
{
    const struct sbp_op_entry *entry = space->graph->op[transfer->op].entry;
    for (int r = 0; r < space->variable[transfer->to].role_count; r++)
        states[r] = entry->role[space->op_role[transfer->op][r]].input[transfer->input];
}

static int excess(int a, int b)
{
    return a > b ? a - b : 0;
}

/* Axes that must change the dimension they split, at best: what neither stays nor becomes B or P.
 */
static int least_moves(const struct family_state *from, const struct family_state *to)
{
    int left_over = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        left_over += excess(from->split[dim], to->split[dim]);
    return excess(left_over,
                  excess(to->broadcast, from->broadcast) + excess(to->partial, from->partial));
}

static void join_axes(const struct sbp_space *space, struct sbp_group *group, int family, int axes)
{
    for (int k = 0; k < axes; k++)
        group->members[space->mesh->family[family].level] *=
            (double)space->mesh->family[family].prime;
}

struct sbp_way sbp_space_way(const struct sbp_mesh *mesh, const struct sbp_dist *from,
                             const struct sbp_dist *to)
{
    sbp_axes from_split = 0, to_split = 0, leave = 0, move = 0, gather = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const sbp_axes bit = (sbp_axes)1 << axis;
        const struct sbp_state a = from->axis[axis], b = to->axis[axis];
        from_split |= a.kind == SBP_SPLIT ? bit : 0;
        to_split |= b.kind == SBP_SPLIT ? bit : 0;
        if (sbp_state_equal(a, b))
            continue;
        leave |= a.kind == SBP_PARTIAL ? bit : 0;
        move |= a.kind == SBP_SPLIT && b.kind == SBP_SPLIT ? bit : 0;
        gather |= b.kind == SBP_BROADCAST ? bit : 0;
    }
    return (struct sbp_way){
        .leave = sbp_group_of(mesh, leave),
        .move = sbp_group_of(mesh, move),
        .gather = sbp_group_of(mesh, gather),
        .all_reduced = leave != 0 && leave == gather && move == 0,
        .from_parts = (double)sbp_mesh_group_size(mesh, from_split),
        .to_parts = (double)sbp_mesh_group_size(mesh, to_split),
    };
}

/* Forward P leaves, splits move, B is gathered; backward, by duality, what was gathered leaves P
 * and what left P is gathered. */
double sbp_space_way_s(const struct sbp_space *space, int tensor, const struct sbp_way *way)
{
    const double bytes = elements_of(space, tensor) * (double)space->pricing.bytes.activation;
    const double leave = sbp_group_size(&way->leave), gather = sbp_group_size(&way->gather);
    const double from = bytes / way->from_parts, to = bytes / way->to_parts;
    double there_s, back_s;
    if (way->all_reduced) {
        there_s = collective_s(space, SBP_ALL_REDUCE, &way->leave, from);
        back_s = collective_s(space, SBP_ALL_REDUCE, &way->leave, to);
    } else {
        there_s = collective_s(space, SBP_REDUCE_SCATTER, &way->leave, from) +
                  collective_s(space, SBP_ALL_TO_ALL, &way->move, from / leave) +
                  collective_s(space, SBP_ALL_GATHER, &way->gather, from / leave * gather);
        back_s = collective_s(space, SBP_REDUCE_SCATTER, &way->gather, to) +
                 collective_s(space, SBP_ALL_TO_ALL, &way->move, to / gather) +
                 collective_s(space, SBP_ALL_GATHER, &way->leave, to / gather * leave);
    }
    return space->micro_weight * (forward_passes(space) * there_s + back_s);
}

double sbp_space_moves_s(const struct sbp_space *space, int tensor, const struct sbp_group *group)
{
    const double n = elements_of(space, tensor) / (double)space->mesh->devices *
                     (double)space->pricing.bytes.activation;
    return space->micro_weight * (forward_passes(space) + 1) *
           collective_s(space, SBP_ALL_TO_ALL, group, n);
}

/* The least that each collective on the way can move, whichever axes are lined up; exact where a
 * family is one axis. */
static double least_way_s(const struct sbp_space *space, int tensor, const struct family_state *a,
                          const struct family_state *b)
{
    struct sbp_way way = {sbp_group_one(), sbp_group_one(), sbp_group_one(), true, 1, 1};
    struct sbp_group from = sbp_group_one(), to = sbp_group_one();
    bool changes = false;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const int leave = excess(a[f].partial, b[f].partial), moves = least_moves(&a[f], &b[f]);
        const int gather = excess(b[f].broadcast, a[f].broadcast);
        int new_splits = 0;
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            join_axes(space, &from, f, a[f].split[dim]);
            join_axes(space, &to, f, b[f].split[dim]);
            new_splits += excess(b[f].split[dim], a[f].split[dim]);
        }
        join_axes(space, &way.leave, f, leave);
        join_axes(space, &way.move, f, moves);
        join_axes(space, &way.gather, f, gather);
        changes |= leave > 0 || moves > 0 || gather > 0;
        way.all_reduced &= moves == 0 && leave == gather && (leave == 0 || new_splits == 0);
    }
    way.all_reduced &= changes;
    way.from_parts = sbp_group_size(&from);
    way.to_parts = sbp_group_size(&to);
    return sbp_space_way_s(space, tensor, &way);
}

/* AutoDDL, section 4.3: no all-to-all when the batch split stays (p0 = p0') or the features' does
 * (p1 = p2'), else groups of lcm(p0, p0') / gcd(p0, p0'). -1: not this rest state's path. */
static bool paper_moves(const struct sbp_space *space, int tag, const struct family_state *from,
                        const struct family_state *to, int *moves)
{
    bool batch_stays = true, features_stay = true;
    for (int f = 0; f < space->mesh->family_count; f++) {
        batch_stays &= from[f].split[SBP_DIM_BATCH] == to[f].split[SBP_DIM_BATCH];
        features_stay &= from[f].split[SBP_DIM_FEATURE] == to[f].split[SBP_DIM_FEATURE];
    }
    const bool free_by_batch = batch_stays && tag != SBP_REST_BATCH;
    const bool free_by_features = features_stay && tag != SBP_REST_FEATURE;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const int gap = from[f].split[SBP_DIM_BATCH] - to[f].split[SBP_DIM_BATCH];
        moves[f] = free_by_batch || free_by_features ? 0 : gap < 0 ? -gap : gap;
    }
    return free_by_batch || free_by_features || tag != SBP_REST_BATCH;
}

/* Prices of all-to-alls by how many axes of each family move: few, and asked for in every cell of a
 * table. */
struct move_prices {
    int stride[SBP_MAX_AXES]; /* of a family's number of axes */
    double *seconds;          /* negative: not yet known */
};

static double moves_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                      const int *moves, const struct move_prices *prices)
{
    int at = 0;
    for (int f = 0; prices != NULL && f < space->mesh->family_count; f++)
        at += moves[f] * prices->stride[f];
    if (prices != NULL && prices->seconds[at] >= 0)
        return prices->seconds[at];
    struct sbp_group group = sbp_group_one();
    for (int f = 0; f < space->mesh->family_count; f++)
        join_axes(space, &group, f, moves[f]);
    const double seconds = transfer->repeats * sbp_space_moves_s(space, transfer->tensor, &group);
    if (prices != NULL)
        prices->seconds[at] = seconds;
    return seconds;
}

static void states_from(const struct sbp_space *space, const struct sbp_transfer *transfer,
                        int choice, struct family_state *states)
{
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, transfer->from, choice, f),
                                 from->role_count, from->state);
}

static void states_to(const struct sbp_space *space, const struct sbp_transfer *transfer,
                      int choice, struct family_state *states)
{
    struct sbp_state want[SBP_MAX_ROLES];
    input_states(space, transfer, want);
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, transfer->to, choice, f),
                                 space->variable[transfer->to].role_count, want);
}

static double between_s(const struct sbp_space *space, const struct sbp_transfer *transfer, int tag,
                        const struct family_state *a, const struct family_state *b,
                        const struct move_prices *prices)
{
    int moves[SBP_MAX_AXES];
    for (int f = 0; f < space->mesh->family_count; f++)
        moves[f] = least_moves(&a[f], &b[f]);
    if (space->request->boxing == SBP_BOXING_PAPER && !paper_moves(space, tag, a, b, moves))
        return SBP_FORBIDDEN;
    if (space->variable[transfer->from].rests_whole)
        return transfer->repeats * least_way_s(space, transfer->tensor, a, b);
    return moves_s(space, transfer, moves, prices);
}

double sbp_space_transfer_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                            int from_choice, int to_choice)
{
    struct family_state a[SBP_MAX_AXES], b[SBP_MAX_AXES];
    states_from(space, transfer, from_choice, a);
    states_to(space, transfer, to_choice, b);
    return between_s(space, transfer, space->variable[transfer->from].tag[from_choice], a, b, NULL);
}

/* States in which an operator leaves its output, and in which the output rests. */
static void states_left(const struct sbp_space *space, const struct sbp_keep *keep, int choice,
                        struct family_state *states)
{
    const int roles = space->variable[keep->op_variable].role_count;
    struct sbp_state output[SBP_MAX_ROLES];
    for (int r = 0; r < roles; r++)
        output[r] = sbp_space_output_state(space, keep->op, r);
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] =
            family_state(sbp_space_count(space, keep->op_variable, choice, f), roles, output);
}

static void states_resting(const struct sbp_space *space, const struct sbp_keep *keep, int choice,
                           struct family_state *states)
{
    const struct sbp_space_variable *rest = &space->variable[keep->rest_variable];
    for (int f = 0; f < space->mesh->family_count; f++)
        states[f] = family_state(sbp_space_count(space, keep->rest_variable, choice, f),
                                 rest->role_count, rest->state);
}

static bool can_rest(const struct family_state *left, const struct family_state *resting, int tag)
{
    int gathered = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const bool fixed = (tag == SBP_REST_FEATURE && dim == SBP_DIM_BATCH) ||
                           (tag == SBP_REST_BATCH && dim == SBP_DIM_FEATURE);
        if (fixed && left->split[dim] != resting->split[dim])
            return false;
        gathered += excess(left->split[dim], resting->split[dim]);
    }
    return gathered <= resting->broadcast && resting->partial <= left->partial;
}

static double resting_s(const struct sbp_space *space, const struct sbp_keep *keep, int tag,
                        const struct family_state *left, const struct family_state *resting)
{
    const struct sbp_op_node *node = &space->graph->op[keep->op];
    for (int f = 0; f < space->mesh->family_count; f++)
        if (!can_rest(&left[f], &resting[f], tag))
            return SBP_FORBIDDEN;
    return space->variable[keep->rest_variable].rests_whole
               ? node->repeats * least_way_s(space, node->output, left, resting)
               : 0;
}

double sbp_space_keep_s(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                        int rest_choice)
{
    struct family_state left[SBP_MAX_AXES], resting[SBP_MAX_AXES];
    states_left(space, keep, op_choice, left);
    states_resting(space, keep, rest_choice, resting);
    return resting_s(space, keep, space->variable[keep->rest_variable].tag[rest_choice], left,
                     resting);
}

bool sbp_space_can_rest(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                        int rest_choice)
{
    return sbp_space_keep_s(space, keep, op_choice, rest_choice) < SBP_FORBIDDEN;
}

/* ---- the problem ---------------------------------------------------------------------------- */

/* Everything that no choice changes. */
static double constant_s(const struct sbp_space *space)
{
    double seconds = 0;
    if (space->graph->training.clip_norm > 0) {
        struct sbp_group all = sbp_group_one();
        for (int level = 0; level < space->cluster->level_count; level++)
            all.members[level] = (double)space->cluster->level[level].size;
        seconds += space->step_weight * collective_s(space, SBP_ALL_REDUCE, &all,
                                                     (double)space->pricing.bytes.activation);
    }
    for (int t = 0; space->request->objective == SBP_STEP_TIME && t < space->graph->tensor_count;
         t++)
        if (space->slot[t] >= 0 && !space->variable[space->slot[t]].rests_whole)
            seconds += fan_out_s(space, t, (double)space->mesh->devices);
    return seconds;
}

static enum sbp_status add_unaries(const struct sbp_space *space, struct sbp_problem *problem)
{
    const struct sbp_interval always = {0, 1};
    const double constant = constant_s(space);
    for (int v = 0; v < space->variable_count; v++) {
        const struct sbp_space_variable *variable = &space->variable[v];
        const char *name = variable->op >= 0 ? space->graph->op[variable->op].name
                                             : space->graph->tensor[variable->tensor].name;
        const bool uses = variable->op >= 0 && isfinite(problem->capacity);
        if (sbp_problem_add_variable(problem, name, variable->choice_count, uses ? 1 : 0,
                                     &always) != v)
            return SBP_E_MEMORY;
        struct sbp_variable *out = &problem->variable[v];
        for (int c = 0; c < variable->choice_count; c++) {
            out->cost[c] = sbp_space_unary_s(space, v, c) + (v == 0 ? constant : 0);
            if (uses)
                out->usage[c] = sbp_space_unary_bytes(space, v, c);
        }
    }
    return SBP_OK;
}

/* An operator fed by itself (a repeated block's last by the next one's): a unary cost. */
static void add_loop(const struct sbp_space *space, const struct sbp_transfer *transfer,
                     struct sbp_problem *problem)
{
    for (int c = 0; c < space->variable[transfer->from].choice_count; c++)
        problem->variable[transfer->from].cost[c] += sbp_space_transfer_s(space, transfer, c, c);
}

static void add_to(double *cell, double cost)
{
    *cell = *cell >= SBP_FORBIDDEN || cost >= SBP_FORBIDDEN ? SBP_FORBIDDEN : *cell + cost;
}

static double *cell_of(double *table, bool transposed, int rows, int columns, int r, int c)
{
    return &table[transposed ? (size_t)c * (size_t)rows + (size_t)r
                             : (size_t)r * (size_t)columns + (size_t)c];
}

/* NULL where there is no room for so many, or too many to be worth it. */
static struct move_prices *make_prices(const struct sbp_space *space, struct sbp_arena *arena)
{
    enum { MOST = 1 << 16 };
    struct move_prices *prices = SBP_NEW(arena, struct move_prices, 1);
    int size = 1;
    for (int f = 0; prices != NULL && f < space->mesh->family_count && size <= MOST; f++) {
        prices->stride[f] = size;
        size *= space->mesh->family[f].count + 1;
    }
    if (prices == NULL || size > MOST)
        return NULL;
    prices->seconds = SBP_NEW(arena, double, size);
    for (int i = 0; prices->seconds != NULL && i < size; i++)
        prices->seconds[i] = -1;
    return prices->seconds == NULL ? NULL : prices;
}

/* A transfer's costs, added to the cells of its edge. */
static enum sbp_status fill_transfer(const struct sbp_space *space,
                                     const struct sbp_transfer *transfer, double *table,
                                     bool transposed, struct sbp_arena *arena)
{
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    const int rows = from->choice_count, columns = space->variable[transfer->to].choice_count;
    const int families = space->mesh->family_count;
    struct family_state a[SBP_MAX_AXES];
    const struct move_prices *prices = make_prices(space, arena);
    struct family_state *to = SBP_NEW(arena, struct family_state, columns * families + 1);
    if (to == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < columns; c++)
        states_to(space, transfer, c, to + (size_t)c * (size_t)families);
    for (int r = 0; r < rows && !sbp_space_interrupted(space); r++) {
        states_from(space, transfer, r, a);
        for (int c = 0; c < columns; c++)
            add_to(cell_of(table, transposed, rows, columns, r, c),
                   between_s(space, transfer, from->tag[r], a, to + (size_t)c * (size_t)families,
                             prices));
    }
    return SBP_OK;
}

static enum sbp_status add_transfers(const struct sbp_space *space, struct sbp_problem *problem)
{
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < space->transfer_count && status == SBP_OK; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        if (transfer->from == transfer->to) {
            add_loop(space, transfer, problem);
            continue;
        }
        bool transposed = false;
        struct sbp_arena scratch;
        sbp_arena_init(&scratch);
        double *table = sbp_problem_edge_table(problem, transfer->from, transfer->to, &transposed);
        status = table == NULL ? SBP_E_MEMORY
                               : fill_transfer(space, transfer, table, transposed, &scratch);
        sbp_arena_free(&scratch);
    }
    return status;
}

/* What outputs cost on their way into a rest, added to the cells of its edge. */
static enum sbp_status fill_keep(const struct sbp_space *space, const struct sbp_keep *keep,
                                 double *table, bool transposed, struct sbp_arena *arena)
{
    const struct sbp_space_variable *rest = &space->variable[keep->rest_variable];
    const int rows = space->variable[keep->op_variable].choice_count;
    const int columns = rest->choice_count, families = space->mesh->family_count;
    struct family_state left[SBP_MAX_AXES];
    struct family_state *resting = SBP_NEW(arena, struct family_state, columns * families + 1);
    if (resting == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < columns; c++)
        states_resting(space, keep, c, resting + (size_t)c * (size_t)families);
    for (int r = 0; r < rows && !sbp_space_interrupted(space); r++) {
        states_left(space, keep, r, left);
        for (int c = 0; c < columns; c++)
            add_to(
                cell_of(table, transposed, rows, columns, r, c),
                resting_s(space, keep, rest->tag[c], left, resting + (size_t)c * (size_t)families));
    }
    return SBP_OK;
}

static enum sbp_status add_keeps(const struct sbp_space *space, struct sbp_problem *problem)
{
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < space->keep_count && status == SBP_OK; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        bool transposed = false;
        struct sbp_arena scratch;
        sbp_arena_init(&scratch);
        double *table =
            sbp_problem_edge_table(problem, keep->op_variable, keep->rest_variable, &transposed);
        status = table == NULL ? SBP_E_MEMORY : fill_keep(space, keep, table, transposed, &scratch);
        sbp_arena_free(&scratch);
    }
    return status;
}

enum sbp_status sbp_space_problem(const struct sbp_space *space, double capacity_bytes,
                                  struct sbp_problem *problem, struct sbp_diag *diag)
{
    enum sbp_status status =
        sbp_problem_init(problem, space->variable_count, space->transfer_count + space->keep_count);
    if (status == SBP_OK) {
        problem->capacity = capacity_bytes;
        status = add_unaries(space, problem);
    }
    if (status == SBP_OK)
        status = add_keeps(space, problem);
    if (status == SBP_OK)
        status = add_transfers(space, problem);
    if (status == SBP_OK && sbp_space_interrupted(space))
        status = SBP_STOPPED;
    if (status != SBP_OK) {
        sbp_problem_free(problem);
        return status == SBP_STOPPED
                   ? status
                   : sbp_fail(diag, status, "the search problem: %s", sbp_status_text(status));
    }
    return SBP_OK;
}
