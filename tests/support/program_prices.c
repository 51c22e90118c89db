/* Prices a compiled program from its strategy alone. */
#include <math.h>
#include <stdlib.h>

#include "costmodel/layout/boxing_path.h"
#include "tests/support/program_oracle.h"
#include "tests/support/unit.h"

struct expectation {
    double seconds[8]; /* by cause */
    double bytes, forward_elements;
};

/* AutoDDL, table 2, on the slowest level of the group, which is the outermost here. */
static void expect_times(const struct oracle_setting *s, enum sbp_cause cause,
                         enum sbp_collective kind, int times, sbp_axes axes, double bytes,
                         struct expectation *e)
{
    int level = SBP_MAX_LEVELS;
    for (int i = 0; i < s->mesh.axis_count; i++)
        if ((axes >> i & 1) != 0 && s->mesh.axis[i].level < level)
            level = s->mesh.axis[i].level;
    if (axes == 0)
        return;
    const double g = (double)oracle_product(&s->mesh, axes);
    const double rounds = kind == SBP_ALL_REDUCE ? 2 : 1;
    const double steps = kind == SBP_SEND_RECV ? 1 : rounds * (g - 1);
    const bool whole = kind == SBP_SEND_RECV || kind == SBP_BROADCAST_COLL; /* of n bytes, all */
    const double sent = whole ? bytes : rounds * (g - 1) / g * bytes;
    e->seconds[cause] += times * (steps * s->cluster.level[level].alpha_s +
                                  sent * s->cluster.level[level].beta_s_per_byte);
    e->bytes += times * sent;
    if (cause == SBP_CAUSE_ACTIVATION)
        e->forward_elements += sent / (double)s->program.bytes.activation;
}

static void expect(const struct oracle_setting *s, enum sbp_cause cause, bool all_reduce,
                   sbp_axes axes, double bytes, struct expectation *e)
{
    expect_times(s, cause, all_reduce ? SBP_ALL_REDUCE : SBP_ALL_GATHER, 1, axes, bytes, e);
}

/* Elements that a device holds. */
static double held_elements(const struct oracle_setting *s, int tensor, const struct sbp_dist *dist)
{
    return (double)oracle_local_elements(s, tensor, dist);
}

/* The normal form: sums are scattered, splits move, blocks are gathered, in this order; nothing but
 * sums that everybody wants whole is one all-reduce. */
static void expect_normal_form(const struct oracle_setting *s, enum sbp_cause cause, int tensor,
                               const struct sbp_dist *from, const struct sbp_dist *to,
                               struct expectation *e)
{
    sbp_axes leave = 0, whole = 0, moved = 0, gathered = 0;
    for (int i = 0; i < s->mesh.axis_count; i++) {
        const struct sbp_state a = from->axis[i], b = to->axis[i];
        const sbp_axes bit = (sbp_axes)1 << i;
        leave |= a.kind == SBP_PARTIAL && b.kind != SBP_PARTIAL ? bit : 0;
        whole |= a.kind == SBP_PARTIAL && b.kind == SBP_BROADCAST ? bit : 0;
        gathered |= a.kind == SBP_SPLIT && b.kind == SBP_BROADCAST ? bit : 0;
        moved |= a.kind == SBP_SPLIT && b.kind == SBP_SPLIT && a.dim != b.dim ? bit : 0;
    }
    const double n = held_elements(s, tensor, from) * (double)s->program.bytes.activation;
    const double shard = n / (double)oracle_product(&s->mesh, leave);
    if (leave == whole && moved == 0 && gathered == 0) {
        expect(s, cause, true, whole, n, e);
        return;
    }
    expect(s, cause, false, leave, n, e);
    expect(s, cause, false, moved, shard, e);
    expect(s, cause, false, gathered | whole,
           shard * (double)oracle_product(&s->mesh, gathered | whole), e);
}

/* The cheapest list (tests/unit/costmodel/layout/test_reshard.c holds it to all others) in the
 * types of the model's precision, whatever the program's are. */
static void expect_path(const struct oracle_setting *s, enum sbp_cause cause, int tensor,
                        const struct sbp_dist *from, const struct sbp_dist *to,
                        struct expectation *e)
{
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_layout layout = {&s->mesh, graph->class_count, s->strategy.split};
    const struct sbp_element_bytes policy = sbp_program_element_bytes(&graph->precision);
    const bool weight = cause == SBP_CAUSE_WEIGHT_GRADIENT;
    struct sbp_boxing boxing;
    assert_int_equal(sbp_boxing_path(&s->cluster, &layout, &graph->tensor[tensor].shape,
                                     (double)(weight ? policy.reduce : policy.activation), from, to,
                                     &boxing, NULL),
                     SBP_OK);
    for (int i = 0; i < boxing.count; i++)
        if (boxing.step[i].kind != SBP_LOCAL)
            expect_times(
                s, cause, boxing.step[i].kind, 1, boxing.step[i].axes,
                (double)boxing.step[i].elements *
                    (double)(weight ? s->program.bytes.reduce : s->program.bytes.activation),
                e);
}

static void expect_way(const struct oracle_setting *s, enum sbp_cause cause, int tensor,
                       const struct sbp_dist *from, const struct sbp_dist *to,
                       struct expectation *e)
{
    (s->strategy.boxing == SBP_BOXING_PATH ? expect_path : expect_normal_form)(s, cause, tensor,
                                                                               from, to, e);
}

/* Expects the sum of a weight's gradient over the axes on which it is P. */
static void expect_sum(const struct oracle_setting *s, int op, int weight, sbp_axes partial,
                       double held, struct expectation *e)
{
    const struct sbp_graph *graph = &s->model.graph;
    if (s->strategy.boxing != SBP_BOXING_PATH) {
        expect(s, SBP_CAUSE_WEIGHT_GRADIENT, true, partial, held * (double)s->program.bytes.reduce,
               e);
        return;
    }
    const struct sbp_dist to = sbp_strategy_weight(graph, &s->mesh, &s->strategy, op, weight);
    struct sbp_dist from = to;
    for (int i = 0; i < s->mesh.axis_count; i++)
        if (partial >> i & 1)
            from.axis[i] = SBP_STATE_P;
    expect_path(s, SBP_CAUSE_WEIGHT_GRADIENT, graph->op[op].weight[weight], &from, &to, e);
}

/* The edges of an operator: rest -> input, output -> rest; backward the duals the other way. */
static void expect_edge(const struct oracle_setting *s, int tensor, const struct sbp_dist *from,
                        const struct sbp_dist *to, struct expectation *e)
{
    const struct sbp_dist back_from = sbp_dist_dual(&s->mesh, to);
    const struct sbp_dist back_to = sbp_dist_dual(&s->mesh, from);
    const struct sbp_dist held_from = sbp_dist_held(&s->mesh, from);
    const struct sbp_dist held_to = sbp_dist_held(&s->mesh, to);
    expect_way(s, SBP_CAUSE_ACTIVATION, tensor, &held_from, &held_to, e);
    expect_way(s, SBP_CAUSE_ACTIVATION_GRADIENT, tensor, &back_from, &back_to, e);
}

/* Local tokens, and the axes that split features or tokens, of what rests before an operator. */
static double tokens_of(const struct oracle_setting *s, int tensor, sbp_axes *features,
                        sbp_axes *batches)
{
    const struct sbp_graph *graph = &s->model.graph;
    const int64_t *size = graph->tensor[tensor].shape.size;
    int64_t tokens = size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE];
    *features = *batches = 0;
    for (int i = 0; i < s->mesh.axis_count; i++) {
        const struct sbp_state state = s->strategy.rest[tensor].axis[i];
        if (state.kind != SBP_SPLIT)
            continue;
        *(state.dim == SBP_DIM_FEATURE ? features : batches) |= (sbp_axes)1 << i;
        if (state.dim != SBP_DIM_FEATURE)
            tokens /= s->mesh.axis[i].size;
    }
    return (double)tokens;
}

/* Expects the collectives that the catalogue lists for any other operator
 * (tests/unit/costmodel/model/test_op_cost.c holds that list to the work of each operator). Without
 * a gradient to form, the gradient's collectives are left out. */
static void expect_listed(const struct oracle_setting *s, const struct sbp_op_node *node,
                          struct expectation *e)
{
    const int op = (int)(node - s->model.graph.op);
    struct sbp_factor factor = sbp_op_factor_one();
    struct sbp_op_inner inner[SBP_MAX_INNER];
    bool forms = node->kind == SBP_OP_RMSNORM || node->kind == SBP_OP_BATCHNORM;
    for (int axis = 0; axis < s->mesh.axis_count; axis++) {
        const struct sbp_role *role = oracle_role(&s->model.graph, &s->strategy, op, axis);
        factor.of[role - node->entry->role] *= (double)s->mesh.axis[axis].size;
    }
    for (int i = 0; i < node->input_count; i++)
        forms |= node->input[i] != s->model.graph.input || s->model.graph.input_split;
    const int count = sbp_op_inner(&s->model.graph, op, &factor, inner);
    for (int i = 0; i < count; i++) {
        sbp_axes axes = 0;
        for (int axis = 0; axis < s->mesh.axis_count; axis++) {
            const struct sbp_role *role = oracle_role(&s->model.graph, &s->strategy, op, axis);
            axes |=
                (inner[i].roles >> (role - node->entry->role) & 1u) != 0 ? (sbp_axes)1 << axis : 0;
        }
        if (inner[i].pass != SBP_PASS_INPUT_GRADIENT || forms)
            expect_times(s, SBP_CAUSE_OPERATOR, inner[i].kind, inner[i].count, axes,
                         inner[i].elements * (double)(inner[i].statistic
                                                          ? s->program.bytes.statistic
                                                          : s->program.bytes.activation),
                         e);
    }
}

/* Norms: two sums a token, forward and backward. Cross-entropy: a maximum, then two sums, forward
 * only; and the loss over the axes that split tokens. */
static void expect_inside(const struct oracle_setting *s, const struct sbp_op_node *node,
                          struct expectation *e)
{
    const double element = (double)s->program.bytes.statistic;
    sbp_axes features, batches;
    if (node->kind != SBP_OP_LAYERNORM && node->kind != SBP_OP_CROSS_ENTROPY) {
        expect_listed(s, node, e);
        return;
    }
    const double tokens = tokens_of(s, node->input[0], &features, &batches);
    const double first = node->kind == SBP_OP_LAYERNORM ? 2 : 1;
    expect(s, SBP_CAUSE_OPERATOR, true, features, first * tokens * element, e);
    expect(s, SBP_CAUSE_OPERATOR, true, features, 2 * tokens * element, e);
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        expect(s, SBP_CAUSE_SCALAR, true, batches, element, e);
}

static void expect_op(const struct oracle_setting *s, int op, bool *reduced, struct expectation *e)
{
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_op_node *node = &graph->op[op];
    struct sbp_dist in[SBP_MAX_INPUTS], out;
    sbp_axes partial[SBP_MAX_WEIGHTS] = {0};
    double held[SBP_MAX_WEIGHTS];
    for (int i = 0; i < node->weight_count; i++)
        held[i] = (double)oracle_size(&graph->tensor[node->weight[i]].shape);
    for (int axis = 0; axis < s->mesh.axis_count; axis++) {
        const struct sbp_role *role = oracle_role(graph, &s->strategy, op, axis);
        for (int i = 0; i < SBP_MAX_INPUTS; i++)
            in[i].axis[axis] = role->input[i];
        out.axis[axis] = role->output;
        for (int i = 0; i < node->weight_count; i++) {
            partial[i] |= role->gradient[i].kind == SBP_PARTIAL ? (sbp_axes)1 << axis : 0;
            if (role->weight[i].kind == SBP_SPLIT)
                held[i] /= (double)s->mesh.axis[axis].size;
        }
    }
    for (int i = 0; i < node->input_count; i++)
        if (node->input[i] != graph->input || graph->input_split)
            expect_edge(s, node->input[i], &s->strategy.rest[node->input[i]], &in[i], e);
    if (node->output >= 0)
        expect_edge(s, node->output, &out, &s->strategy.rest[node->output], e);
    for (int i = 0; i < node->weight_count; i++) {
        if (!reduced[node->weight[i]])
            expect_sum(s, op, i, partial[i], held[i], e);
        reduced[node->weight[i]] = true;
    }
    expect_inside(s, node, e);
}

void oracle_check_price(const struct oracle_setting *s)
{
    const struct sbp_graph *graph = &s->model.graph;
    struct expectation e = {{0}, 0, 0};
    bool *reduced = calloc((size_t)graph->tensor_count, sizeof *reduced);
    assert_non_null(reduced);
    for (int op = 0; op < graph->op_count; op++)
        expect_op(s, op, reduced, &e);
    free(reduced);
    if (sbp_program_has_norm(&graph->training, &s->program.bytes)) /* one scalar over all ranks */
        expect(s, SBP_CAUSE_SCALAR, true, ((sbp_axes)1 << s->mesh.axis_count) - 1,
               (double)s->program.bytes.statistic, &e);
    const struct sbp_totals totals = sbp_program_totals(&s->program, &s->cluster);
    double communication_s = 0;
    for (int cause = SBP_CAUSE_ACTIVATION; cause <= SBP_CAUSE_SCALAR; cause++) {
        oracle_near(sbp_program_cause_name((enum sbp_cause)cause), totals.by_cause_s[cause],
                    e.seconds[cause]);
        communication_s += e.seconds[cause];
    }
    oracle_near("communication", totals.communication_s, communication_s);
    oracle_near("bytes", totals.communication_bytes, e.bytes);
    oracle_near("elements", totals.forward_activation_elements, e.forward_elements);
}
