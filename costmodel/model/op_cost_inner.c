/* The collectives that an operator itself calls: statistics, keys and values, halo rows, experts,
 * SUMMA. */
#include "costmodel/model/op_cost_block_priv.h"

#include <assert.h>

/* ---- collectives inside --------------------------------------------------------------------- */

/* The list of collectives so far. Groups of one member are left out, and so is communication for
 * the gradient of a free input, which nobody computes (norms and losses compute it with other
 * gradients). */
struct inner_list {
    const struct sbp_graph *graph;
    const struct sbp_op_node *node;
    const struct sbp_factor *factor;
    bool no_input_gradient;
    struct sbp_op_inner *inner;
    int count;
};

/* The bit of a role that splits the operator, 0 of others. */
static unsigned role_bit(const struct inner_list *list, const char *role)
{
    const int index = sbp_op_role(list->node->entry, role);
    return index >= 0 && list->factor->of[index] > 1 ? 1u << index : 0;
}

static void add_entry(struct inner_list *list, struct sbp_op_inner entry)
{
    assert(list->count < SBP_MAX_INNER);
    list->inner[list->count++] = entry;
}

static void add_over_roles(struct inner_list *list, unsigned roles, enum sbp_pass pass,
                           enum sbp_collective kind, double elements, int count)
{
    if (roles == 0 || count <= 0)
        return;
    if (pass == SBP_PASS_INPUT_GRADIENT && list->no_input_gradient)
        return;
    add_entry(
        list,
        (struct sbp_op_inner){
            .pass = pass, .kind = kind, .roles = roles, .elements = elements, .count = count});
}

static void add_over(struct inner_list *list, const char *role, enum sbp_pass pass,
                     enum sbp_collective kind, double elements, int count)
{
    add_over_roles(list, role_bit(list, role), pass, kind, elements, count);
}

/* Sums or maxima of statistics over a role's members, a number of them a token. */
static void add_statistics(struct inner_list *list, const char *role, enum sbp_pass pass,
                           double elements)
{
    const int before = list->count;
    add_over(list, role, pass, SBP_ALL_REDUCE, elements, 1);
    if (list->count > before)
        list->inner[before].statistic = true;
}

static void inner_loss(struct inner_list *list)
{
    unsigned roles = 0;
    for (int r = 0; r < list->node->entry->role_count; r++)
        if (list->node->entry->role[r].output.kind == SBP_PARTIAL && list->factor->of[r] > 1)
            roles |= 1u << r;
    if (roles != 0)
        add_entry(list, (struct sbp_op_inner){.pass = SBP_PASS_FORWARD,
                                              .kind = SBP_ALL_REDUCE,
                                              .roles = roles,
                                              .elements = 1,
                                              .count = 1,
                                              .statistic = true,
                                              .scalar = true});
}

static void inner_context(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double ways = sbp_op_factor_of(list->node, list->factor, "context");
    const double own = sbp_op_own_keys(list->node, sizes);
    if (list->node->attention.ring) { /* the gradients travel one step further: home */
        add_over(list, "context", SBP_PASS_FORWARD, SBP_SEND_RECV, own, (int)ways - 1);
        add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV, own, (int)ways - 1);
        add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV, own, (int)ways);
        return;
    }
    add_over(list, "context", SBP_PASS_FORWARD, SBP_ALL_GATHER, ways * own, 1);
    add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_ALL_GATHER, ways * own, 1);
    add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_REDUCE_SCATTER, ways * own, 1);
}

/* A message of a pass, or one more of those that are as large. */
static void add_message(struct inner_list *list, enum sbp_pass pass, double elements)
{
    for (int i = 0; i < list->count; i++)
        if (list->inner[i].pass == pass && list->inner[i].elements == elements) {
            list->inner[i].count++;
            return;
        }
    add_over(list, "height", pass, SBP_SEND_RECV, elements, 1);
}

/* Rows of less are roundoff, where the search asks for rows that are not whole. */
static const double LEAST_ROWS = 1e-9;

/* A message a step (halo.h), as large as the member needs that fetches most in it: they have three
 * sizes at most, of all a member's rows or of what a reach leaves above or below. Backward is the
 * dual: gradients of the same rows go back and are added. */
static void inner_halo(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const struct sbp_halo halo = sbp_op_halo(list->graph, list->node, list->factor);
    for (int pass = SBP_PASS_FORWARD; pass <= SBP_PASS_INPUT_GRADIENT; pass++)
        for (double shift = 1; shift < halo.members; shift++) {
            const double rows = sbp_halo_message(&halo, shift);
            if (rows > LEAST_ROWS)
                add_message(list, (enum sbp_pass)pass, rows * sbp_op_row_elements(sizes));
        }
}

struct sbp_dispatch sbp_op_dispatch(const struct sbp_op_node *node,
                                    const struct sbp_runtime *runtime)
{
    if (node->kind != SBP_OP_MOE)
        return (struct sbp_dispatch){0};
    return (struct sbp_dispatch){.copies = (double)node->moe.top_k,
                                 .most_nodes = (double)node->moe.nodes_per_token,
                                 .once = runtime->dispatches_once || node->moe.nodes_per_token > 0};
}

static void inner_experts(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double sent = sbp_op_slots(list->node, sizes) * sizes->weight[1][1];
    const unsigned apart = role_bit(list, "expert") | role_bit(list, "expert_sequence");
    for (int pass = SBP_PASS_FORWARD; pass <= SBP_PASS_INPUT_GRADIENT; pass++)
        for (int way = 0; way < 2; way++) /* the experts work in between */
            add_over_roles(list, apart, (enum sbp_pass)pass, SBP_ALL_TO_ALL, sent, 1);
    if (list->no_input_gradient) /* the experts need dY for their weights */
        add_over_roles(list, apart, SBP_PASS_WEIGHT_GRADIENT, SBP_ALL_TO_ALL, sent, 1);
}

/* Forward, Y = XW, broadcasts panels of X in rows and of W in columns. dX = dY W^T broadcasts W's
 * and sums dX's in rows; dW = X^T dY broadcasts X's and sums dW's in columns; a sum costs the same
 * as a broadcast. A product (m, K) x (K, n) takes max(rows, columns) (columns - 1 + rows - 1) alpha
 * + (m K / rows + K n / columns) beta. The bytes are those of van de Geijn and Watts (1997, section
 * 3) and of Optimus (Xu et al., 2021, section 3.1) with as many panels as its square grid has; the
 * latency is that of the pipelined ring. */
static void inner_summa(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const struct sbp_op_grid grid = sbp_op_grid(list->node, list->factor, sizes);
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        add_over(list, "grid_column", (enum sbp_pass)pass, SBP_BROADCAST_COLL, grid.m * grid.width,
                 (int)grid.panels);
        add_over(list, "grid_row", (enum sbp_pass)pass, SBP_BROADCAST_COLL, grid.width * grid.n,
                 (int)grid.panels);
    }
}

static void inner_custom(struct inner_list *list, const struct sbp_graph *graph)
{
    const double element_bytes = (double)sbp_cluster_type_bytes(graph->precision.activation);
    const double batches = (double)graph->global_batch / (double)graph->micro_batch;
    const struct sbp_custom *custom = list->node->custom;
    for (int i = 0; i < custom->collective_count; i++) {
        const struct sbp_custom_collective *c = &custom->collective[i];
        const double parts = c->divided ? sbp_op_parts_of(list->node, list->factor, c->role) : 1;
        const double bytes = c->bytes / parts;
        add_over(list, custom->entry.role[c->role].name, (enum sbp_pass)c->pass, c->kind,
                 bytes / element_bytes / batches, 1);
    }
}

int sbp_op_inner(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                 struct sbp_op_inner inner[SBP_MAX_INNER])
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    struct inner_list list = {.graph = graph,
                              .node = node,
                              .factor = factor,
                              .no_input_gradient = !sbp_op_forms_input_gradient(graph, op),
                              .inner = inner};
    const double rows = sbp_op_tokens(sizes.input[0]);
    switch (node->kind) {
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM: {
        const double sums = sbp_op_norm_sums(node->kind) * rows;
        add_statistics(&list, "hidden", SBP_PASS_FORWARD, sums);
        add_statistics(&list, "hidden", SBP_PASS_INPUT_GRADIENT, sums);
        break;
    }
    case SBP_OP_CROSS_ENTROPY:
        add_statistics(&list, "vocab", SBP_PASS_FORWARD, rows);
        add_statistics(&list, "vocab", SBP_PASS_FORWARD, 2 * rows);
        inner_loss(&list);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        inner_context(&list, &sizes);
        break;
    case SBP_OP_CONV2D:
        inner_halo(&list, &sizes);
        break;
    case SBP_OP_MOE:
        inner_experts(&list, &sizes);
        break;
    case SBP_OP_SUMMA_LINEAR:
        inner_summa(&list, &sizes);
        break;
    case SBP_OP_CUSTOM:
        inner_custom(&list, graph);
        break;
    default:
        break;
    }
    return list.count;
}
