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

/* Gathers of inputs, reduce-scatter of the output, and their duals on the way back. */
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
        if (!is_free_input(space, op, i))
            seconds += collective_s(space, SBP_ALL_GATHER, &gather, n) +
                       collective_s(space, SBP_REDUCE_SCATTER, &gather, n);
    }
    if (node->output < 0)
        return seconds;
    const struct sbp_group partial = group_of(entry, factors, OUTPUT, 0, SBP_PARTIAL);
    const double n = elements_of(space, node->output) / parts_of(entry, factors, OUTPUT, 0) * bytes;
    return seconds + collective_s(space, SBP_REDUCE_SCATTER, &partial, n) +
           collective_s(space, SBP_ALL_GATHER, &partial, n);
}

/* A tied weight is synchronised and updated once: by its first user. */
static bool owns_weight(const struct sbp_space *space, int op, int weight)
{
    const int tensor = space->graph->op[op].weight[weight];
    for (int other = 0; other < op; other++)
        for (int w = 0; w < space->graph->op[other].weight_count; w++)
            if (space->graph->op[other].weight[w] == tensor)
                return false;
    return true;
}

static double local_weight(const struct sbp_space *space, int op, int weight,
                           const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return elements_of(space, node->weight[weight]) /
           parts_of(node->entry, factors, WEIGHT, weight);
}

static double gradient_sync_s(const struct sbp_space *space, int op,
                              const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    double seconds = 0;
    for (int w = 0; w < node->weight_count; w++) {
        if (!owns_weight(space, op, w))
            continue;
        const struct sbp_group partial = group_of(node->entry, factors, GRADIENT, w, SBP_PARTIAL);
        seconds +=
            collective_s(space, SBP_ALL_REDUCE, &partial,
                         local_weight(space, op, w, factors) * (double)space->pricing.bytes.reduce);
    }
    return seconds;
}

static struct sbp_factor factor_of(const struct sbp_factors *factors)
{
    struct sbp_factor factor;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        factor.of[r] = factors->factor[r];
    return factor;
}

/* Whether the operator computes a gradient of its input at all (program.c decides alike). */
static bool computes_input_gradient(const struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    if (node->input_count == 0)
        return false;
    return node->kind == SBP_OP_LAYERNORM || node->kind == SBP_OP_CROSS_ENTROPY ||
           !is_free_input(space, op, 0);
}

static double compute_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_factor factor = factor_of(factors);
    double seconds = sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_FORWARD) +
                     sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_WEIGHT_GRADIENT);
    if (computes_input_gradient(space, op))
        seconds += sbp_price_pass_s(&space->pricing, op, &factor, SBP_PASS_INPUT_GRADIENT);
    for (int w = 0; w < node->weight_count; w++) {
        if (!owns_weight(space, op, w))
            continue;
        const double parameters = local_weight(space, op, w, factors);
        seconds += sbp_price_update_s(&space->pricing, parameters);
        if (space->graph->training.clip_norm > 0)
            seconds += sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                            parameters * (double)space->pricing.bytes.gradient);
    }
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
        for (int r = 0; r < SBP_MAX_ROLES; r++)
            if (inner[i].roles >> r & 1)
                sbp_group_join(&group, &factors->group[r]);
        seconds += inner[i].count *
                   collective_s(space, inner[i].kind, &group,
                                inner[i].elements * (double)space->pricing.bytes.activation);
    }
    return seconds;
}

static double op_s(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    double seconds = gradient_sync_s(space, op, factors) + inner_s(space, op, factors);
    if (!space->graph->op[op].entry->follows)
        seconds += boxing_s(space, op, factors);
    if (space->request->objective == SBP_STEP_TIME)
        seconds += compute_s(space, op, factors);
    return seconds;
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

/* Adding up the gradients that several consumers give for a tensor. */
static double fan_out_s(const struct sbp_space *space, int tensor)
{
    int given = 0;
    if (tensor == space->graph->input && !space->graph->input_split)
        return 0;
    for (int op = 0; op < space->graph->op_count; op++)
        for (int i = 0; i < space->graph->op[op].input_count; i++)
            given += space->graph->op[op].input[i] == tensor;
    if (given < 2)
        return 0;
    return (given - 1) *
           sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                3 * elements_of(space, tensor) / (double)space->mesh->devices *
                                    (double)space->pricing.bytes.activation);
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
    return sum_over_ops(space, variable, choice, op_s);
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

double sbp_space_constant_bytes(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const double element = (double)space->pricing.bytes.activation;
    double bytes = 0;
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].kind == SBP_ACTIVATION && kept_at_rest(graph, t))
            bytes += elements_of(space, t) * element;
    for (int op = 0; op < graph->op_count; op++)
        bytes += saved_bytes(graph, op, element);
    return bytes / (double)space->mesh->devices;
}

/* A linear keeps its input: a copy of its own when it is gathered or free, else the block at rest,
 * which is counted once for all readers. */
static double kept_input_bytes(const struct sbp_space *space, int op,
                               const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_group gather = group_of(node->entry, factors, INPUT, 0, SBP_BROADCAST);
    int reader = -1;
    const int readers = sbp_graph_consumers(space->graph, node->input[0], &reader, 1);
    const bool own_copy = sbp_group_size(&gather) > 1 || is_free_input(space, op, 0);
    if (!own_copy && (readers > 1 || kept_at_rest(space->graph, node->input[0])))
        return 0;
    return elements_of(space, node->input[0]) / parts_of(node->entry, factors, INPUT, 0) *
           (double)space->pricing.bytes.activation;
}

static double op_bytes(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const int moments = sbp_training_moments(&space->graph->training);
    const double a_parameter =
        (double)(bytes->weight + bytes->gradient + bytes->sum + bytes->master +
                 bytes->gradient_master + moments * bytes->moment);
    double total = node->kind == SBP_OP_LINEAR ? kept_input_bytes(space, op, factors) : 0;
    for (int w = 0; w < node->weight_count; w++)
        if (owns_weight(space, op, w))
            total += a_parameter * local_weight(space, op, w, factors);
    return total;
}

double sbp_space_unary_bytes(const struct sbp_space *space, int variable, int choice)
{
    return sum_over_ops(space, variable, choice, op_bytes);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Axes of a family by the dimension that they split, and those in B. */
struct family_state {
    int split[SBP_MAX_DIMS], broadcast;
};

static struct family_state family_state(const uint8_t *count, int roles,
                                        const struct sbp_state *states)
{
    struct family_state state = {{0}, 0};
    for (int r = 0; r < roles; r++) {
        if (states[r].kind == SBP_SPLIT)
            state.split[states[r].dim] += count[r];
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

/* Axes that must change the dimension they split, at best: what neither stays nor becomes B. */
static int least_moves(const struct family_state *from, const struct family_state *to)
{
    int left_over = 0;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        if (from->split[dim] > to->split[dim])
            left_over += from->split[dim] - to->split[dim];
    return left_over > to->broadcast ? left_over - to->broadcast : 0;
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

double sbp_space_transfer_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                            int from_choice, int to_choice)
{
    const struct sbp_space_variable *from = &space->variable[transfer->from];
    const struct sbp_space_variable *to = &space->variable[transfer->to];
    struct family_state a[SBP_MAX_AXES], b[SBP_MAX_AXES];
    struct sbp_state want[SBP_MAX_ROLES];
    int moves[SBP_MAX_AXES];
    input_states(space, transfer, want);
    for (int f = 0; f < space->mesh->family_count; f++) {
        a[f] = family_state(sbp_space_count(space, transfer->from, from_choice, f),
                            from->role_count, from->state);
        b[f] =
            family_state(sbp_space_count(space, transfer->to, to_choice, f), to->role_count, want);
        moves[f] = least_moves(&a[f], &b[f]);
    }
    if (space->request->boxing == SBP_BOXING_PAPER &&
        !paper_moves(space, from->tag[from_choice], a, b, moves))
        return SBP_FORBIDDEN;
    struct sbp_group group = sbp_group_one();
    for (int f = 0; f < space->mesh->family_count; f++)
        for (int k = 0; k < moves[f]; k++)
            group.members[space->mesh->family[f].level] *= (double)space->mesh->family[f].prime;
    const double n = elements_of(space, transfer->tensor) / (double)space->mesh->devices *
                     (double)space->pricing.bytes.activation;
    return 2 * transfer->repeats * collective_s(space, SBP_ALL_TO_ALL, &group, n);
}

bool sbp_space_can_rest(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                        int rest_choice)
{
    const struct sbp_space_variable *rest = &space->variable[keep->rest_variable];
    const int roles = space->variable[keep->op_variable].role_count;
    struct sbp_state output[SBP_MAX_ROLES];
    for (int r = 0; r < roles; r++)
        output[r] = sbp_space_output_state(space, keep->op, r);
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, keep->op_variable, op_choice, f);
        const struct family_state a = family_state(count, roles, output);
        const struct family_state b =
            family_state(sbp_space_count(space, keep->rest_variable, rest_choice, f),
                         rest->role_count, rest->state);
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            const bool fixed =
                (rest->tag[rest_choice] == SBP_REST_FEATURE && dim == SBP_DIM_BATCH) ||
                (rest->tag[rest_choice] == SBP_REST_BATCH && dim == SBP_DIM_FEATURE);
            if (a.split[dim] > b.split[dim] || (fixed && a.split[dim] != b.split[dim]))
                return false;
        }
    }
    return true;
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
        seconds +=
            collective_s(space, SBP_ALL_REDUCE, &all, (double)space->pricing.bytes.activation);
    }
    for (int t = 0; space->request->objective == SBP_STEP_TIME && t < space->graph->tensor_count;
         t++)
        seconds += fan_out_s(space, t);
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

static enum sbp_status add_transfers(const struct sbp_space *space, struct sbp_problem *problem)
{
    for (int i = 0; i < space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        if (transfer->from == transfer->to) {
            add_loop(space, transfer, problem);
            continue;
        }
        bool transposed = false;
        double *table = sbp_problem_edge_table(problem, transfer->from, transfer->to, &transposed);
        if (table == NULL)
            return SBP_E_MEMORY;
        const int rows = space->variable[transfer->from].choice_count;
        const int columns = space->variable[transfer->to].choice_count;
        for (int r = 0; r < rows && !sbp_space_interrupted(space); r++)
            for (int c = 0; c < columns; c++)
                add_to(transposed ? &table[(size_t)c * (size_t)rows + (size_t)r]
                                  : &table[(size_t)r * (size_t)columns + (size_t)c],
                       sbp_space_transfer_s(space, transfer, r, c));
    }
    return SBP_OK;
}

static enum sbp_status add_keeps(const struct sbp_space *space, struct sbp_problem *problem)
{
    for (int i = 0; i < space->keep_count; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        bool transposed = false;
        double *table =
            sbp_problem_edge_table(problem, keep->op_variable, keep->rest_variable, &transposed);
        if (table == NULL)
            return SBP_E_MEMORY;
        const int rows = space->variable[keep->op_variable].choice_count;
        const int columns = space->variable[keep->rest_variable].choice_count;
        for (int r = 0; r < rows && !sbp_space_interrupted(space); r++)
            for (int c = 0; c < columns; c++)
                if (!sbp_space_can_rest(space, keep, r, c))
                    table[transposed ? (size_t)c * (size_t)rows + (size_t)r
                                     : (size_t)r * (size_t)columns + (size_t)c] = SBP_FORBIDDEN;
    }
    return SBP_OK;
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
