#include "costmodel/program/strategy.h"

#include <string.h>

#include "costmodel/layout/boxing.h"

#define TEXT(symbol, text) text,
static const char *const boxing_names[] = {SBP_BOXING_MAP(TEXT) NULL};

const char *sbp_strategy_boxing_name(enum sbp_boxing_mode mode)
{
    return boxing_names[mode];
}

const char *const *sbp_strategy_boxing_names(void)
{
    return boxing_names;
}

enum sbp_status sbp_strategy_alloc(const struct sbp_graph *graph, struct sbp_arena *arena,
                                   struct sbp_strategy *strategy)
{
    strategy->boxing = SBP_BOXING_FULL;
    strategy->op = SBP_NEW(arena, struct sbp_labels, graph->op_count);
    strategy->rest = SBP_NEW(arena, struct sbp_dist, graph->tensor_count);
    strategy->split = SBP_NEW(arena, sbp_axes, graph->class_count);
    strategy->zero = SBP_NEW(arena, uint8_t, graph->op_count);
    if (strategy->op == NULL || strategy->rest == NULL || strategy->split == NULL ||
        strategy->zero == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        strategy->zero[op] = SBP_ZERO_DEFAULT;
    for (int t = 0; t < graph->tensor_count; t++)
        strategy->rest[t] = sbp_dist_all(SBP_STATE_B);
    return SBP_OK;
}

void sbp_strategy_copy(const struct sbp_graph *graph, const struct sbp_strategy *from,
                       struct sbp_strategy *to)
{
    to->boxing = from->boxing;
    memcpy(to->op, from->op, (size_t)graph->op_count * sizeof *to->op);
    memcpy(to->rest, from->rest, (size_t)graph->tensor_count * sizeof *to->rest);
    memcpy(to->split, from->split, (size_t)graph->class_count * sizeof *to->split);
    memcpy(to->zero, from->zero, (size_t)graph->op_count * sizeof *to->zero);
}

int sbp_strategy_role(const struct sbp_graph *graph, const struct sbp_strategy *strategy, int op,
                      int axis)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_entry *entry = node->entry;
    if (!entry->follows)
        return strategy->op[op].role[axis] < entry->role_count ? strategy->op[op].role[axis] : -1;
    const struct sbp_state state = strategy->rest[node->input[0]].axis[axis];
    for (int role = 0; role < entry->role_count; role++)
        if (sbp_state_equal(entry->role[role].input[0], state))
            return role;
    return -1;
}

sbp_axes sbp_strategy_axes(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                           const struct sbp_strategy *strategy, int op, unsigned roles)
{
    sbp_axes axes = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const int role = sbp_strategy_role(graph, strategy, op, axis);
        if (role >= 0 && (roles >> role & 1) != 0)
            axes |= (sbp_axes)1 << axis;
    }
    return axes;
}

struct sbp_factor sbp_strategy_factor(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                      const struct sbp_strategy *strategy, int op)
{
    struct sbp_factor factor = sbp_op_factor_one();
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const int role = sbp_strategy_role(graph, strategy, op, axis);
        if (role >= 0)
            factor.of[role] *= (double)mesh->axis[axis].size;
    }
    return factor;
}

/* The role's state of one kind of operand on every axis. */
enum operand { INPUT, WEIGHT, GRADIENT, OUTPUT };

static struct sbp_dist operand_dist(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op,
                                    enum operand operand, int index)
{
    const struct sbp_op_entry *entry = graph->op[op].entry;
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const int r = sbp_strategy_role(graph, strategy, op, axis);
        if (r < 0)
            continue;
        const struct sbp_role *role = &entry->role[r];
        dist.axis[axis] = operand == INPUT      ? role->input[index]
                          : operand == WEIGHT   ? role->weight[index]
                          : operand == GRADIENT ? role->gradient[index]
                                                : role->output;
    }
    return dist;
}

/* A tied weight is stored the other way round: in and out change places. */
static struct sbp_dist transpose(const struct sbp_mesh *mesh, struct sbp_dist dist)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (dist.axis[axis].kind == SBP_SPLIT)
            dist.axis[axis].dim = dist.axis[axis].dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return dist;
}

struct sbp_dist sbp_strategy_input(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   const struct sbp_strategy *strategy, int op, int input)
{
    return operand_dist(graph, mesh, strategy, op, INPUT, input);
}

struct sbp_dist sbp_strategy_weight(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op, int weight)
{
    const struct sbp_dist dist = operand_dist(graph, mesh, strategy, op, WEIGHT, weight);
    return graph->op[op].transposed_weight && weight == 0 ? transpose(mesh, dist) : dist;
}

struct sbp_dist sbp_strategy_gradient(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                      const struct sbp_strategy *strategy, int op, int weight)
{
    const struct sbp_dist dist = operand_dist(graph, mesh, strategy, op, GRADIENT, weight);
    return graph->op[op].transposed_weight && weight == 0 ? transpose(mesh, dist) : dist;
}

struct sbp_dist sbp_strategy_output(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op)
{
    return operand_dist(graph, mesh, strategy, op, OUTPUT, 0);
}

/* Axes on which the operator that made a tensor left it partial, whatever ran in its rest state
 * since. */
static sbp_axes partial_axes(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                             const struct sbp_strategy *strategy, int tensor)
{
    int op = graph->tensor[tensor].producer;
    while (op >= 0 && graph->op[op].entry->follows)
        op = graph->tensor[graph->op[op].input[0]].producer;
    if (op < 0)
        return 0;
    const struct sbp_dist output = sbp_strategy_output(graph, mesh, strategy, op);
    return sbp_dist_of_kind(mesh, &output, SBP_PARTIAL);
}

static bool all_split(const struct sbp_mesh *mesh, const struct sbp_dist *dist)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (dist->axis[axis].kind != SBP_SPLIT)
            return false;
    return true;
}

bool sbp_strategy_waypoint(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                           const struct sbp_strategy *strategy, int op, int input,
                           struct sbp_dist *waypoint)
{
    const int tensor = graph->op[op].input[input];
    const struct sbp_dist *rest = &strategy->rest[tensor];
    const struct sbp_dist want = sbp_strategy_input(graph, mesh, strategy, op, input);
    const sbp_axes features = sbp_dist_split(mesh, rest, SBP_DIM_FEATURE);
    const bool batch_stays =
        sbp_dist_split(mesh, rest, SBP_DIM_BATCH) == sbp_dist_split(mesh, &want, SBP_DIM_BATCH);
    /* AutoDDL's condition p1 = p2': axes on which features were split before partial sums joined
     * them do not count as p1. */
    const bool features_stay = features == sbp_dist_split(mesh, &want, SBP_DIM_FEATURE) &&
                               (features & partial_axes(graph, mesh, strategy, tensor)) == 0;
    if (strategy->boxing != SBP_BOXING_PAPER || batch_stays || features_stay ||
        !all_split(mesh, rest) || sbp_dist_of_kind(mesh, &want, SBP_PARTIAL) != 0)
        return false;
    *waypoint = want;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (want.axis[axis].kind != SBP_SPLIT)
            waypoint->axis[axis] = SBP_STATE_S(SBP_DIM_FEATURE);
    return true;
}

/* Whether a tensor rests nowhere: it arrives in the distribution that each reader wants. */
static bool is_free(const struct sbp_graph *graph, int tensor)
{
    return tensor == graph->input && !graph->input_split;
}

/* Records which axes split the tensor's classes; an axis may split one dimension once. */
static enum sbp_status note_splits(const struct sbp_mesh *mesh, const struct sbp_tensor *tensor,
                                   const struct sbp_dist *dist, struct sbp_strategy *strategy,
                                   struct sbp_diag *diag)
{
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const struct sbp_state state = dist->axis[axis];
        if (state.kind != SBP_SPLIT)
            continue;
        const int dim_class =
            state.dim < SBP_MAX_DIMS ? tensor->shape.dim_class[state.dim] : SBP_NO_CLASS;
        if (dim_class == SBP_NO_CLASS)
            return sbp_fail(diag, SBP_E_INPUT,
                            "strategy: %s: dimension %d cannot be split, axis %d does so",
                            tensor->name, state.dim, axis);
        strategy->split[dim_class] |= (sbp_axes)1 << axis;
    }
    return SBP_OK;
}

bool sbp_strategy_is_read(const struct sbp_graph *graph, int tensor)
{
    const int producer = graph->tensor[tensor].producer; /* readers come after it */
    for (int op = producer < 0 ? 0 : producer; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            if (graph->op[op].input[i] == tensor)
                return true;
    return false;
}

/* Whether axes are all of some levels. */
static bool are_levels(const struct sbp_mesh *mesh, sbp_axes axes)
{
    for (int a = 0; a < mesh->axis_count; a++)
        for (int b = 0; b < a; b++)
            if (mesh->axis[a].level == mesh->axis[b].level && (axes >> a & 1) != (axes >> b & 1))
                return false;
    return true;
}

/* A level mirrors as a whole: an operator or output that does on one of its axes does on all. */
static enum sbp_status check_mirrored(const struct sbp_mesh *mesh, const struct sbp_dist *dist,
                                      const char *name, struct sbp_diag *diag)
{
    return are_levels(mesh, sbp_dist_of_kind(mesh, dist, SBP_MIRRORED))
               ? SBP_OK
               : sbp_fail(
                     diag, SBP_E_INPUT,
                     "strategy: %s: is mirrored on some axes of a level, all or none are legal",
                     name);
}

/* Checks the rest state: the producer's splits stay or are gathered; only partial sums rest
 * partial, and only where an operator reads them. */
static enum sbp_status check_rest(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                  const struct sbp_strategy *strategy, int op,
                                  struct sbp_diag *diag)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_dist output = sbp_strategy_output(graph, mesh, strategy, op);
    const struct sbp_dist *rest = &strategy->rest[node->output];
    if (sbp_dist_of_kind(mesh, rest, SBP_PARTIAL) != 0 &&
        !sbp_strategy_is_read(graph, node->output))
        return sbp_fail(diag, SBP_E_INPUT,
                        "strategy: %s: the output rests partial and nothing reads it, B or a split "
                        "is legal",
                        node->name);
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const struct sbp_state a = output.axis[axis], b = rest->axis[axis];
        if (b.kind == SBP_PARTIAL && a.kind != SBP_PARTIAL)
            return sbp_fail(diag, SBP_E_INPUT,
                            "strategy: %s: the output rests partial on axis %d and is no partial "
                            "sum there, %s is legal",
                            node->name, axis,
                            a.kind == SBP_SPLIT ? "its split or B" : "B or a split");
        if (a.kind == SBP_SPLIT && b.kind == SBP_SPLIT && a.dim != b.dim)
            return sbp_fail(diag, SBP_E_INPUT,
                            "strategy: %s: axis %d splits dimension %d of the output, it cannot "
                            "rest split by dimension %d",
                            node->name, axis, a.dim, b.dim);
    }
    return SBP_OK;
}

static enum sbp_status check_roles(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   const struct sbp_strategy *strategy, int op,
                                   struct sbp_diag *diag)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (sbp_strategy_role(graph, strategy, op, axis) < 0)
            return sbp_fail(diag, SBP_E_INPUT, "strategy: %s: axis %d has no legal role in %s",
                            graph->op[op].name, axis, graph->op[op].entry->name);
    const struct sbp_dist output = sbp_strategy_output(graph, mesh, strategy, op);
    return check_mirrored(mesh, &output, graph->op[op].name, diag);
}

/* All users of a weight must hold it alike, and leave its gradient alike. */
static enum sbp_status check_weight(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op, int weight,
                                    int *first_user, struct sbp_diag *diag)
{
    const int tensor = graph->op[op].weight[weight];
    if (first_user[tensor] == 0) {
        first_user[tensor] = 1 + op;
        return SBP_OK;
    }
    const int other = first_user[tensor] - 1;
    const struct sbp_dist here = sbp_strategy_weight(graph, mesh, strategy, op, weight);
    const struct sbp_dist there = sbp_strategy_weight(graph, mesh, strategy, other, 0);
    const struct sbp_dist mine = sbp_strategy_gradient(graph, mesh, strategy, op, weight);
    const struct sbp_dist its = sbp_strategy_gradient(graph, mesh, strategy, other, 0);
    if (!sbp_dist_equal(mesh, &here, &there) || !sbp_dist_equal(mesh, &mine, &its))
        return sbp_fail(diag, SBP_E_INPUT,
                        "strategy: %s: shares its weight with %s and must split it alike",
                        graph->op[op].name, graph->op[other].name);
    return SBP_OK;
}

static enum sbp_status close_op(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                struct sbp_strategy *strategy, int op, int *first_user,
                                struct sbp_diag *diag)
{
    const struct sbp_op_node *node = &graph->op[op];
    SBP_TRY(check_roles(graph, mesh, strategy, op, diag));
    for (int i = 0; i < node->input_count; i++) {
        struct sbp_dist dist = sbp_strategy_input(graph, mesh, strategy, op, i);
        SBP_TRY(note_splits(mesh, &graph->tensor[node->input[i]], &dist, strategy, diag));
        if (!is_free(graph, node->input[i]) &&
            sbp_strategy_waypoint(graph, mesh, strategy, op, i, &dist))
            SBP_TRY(note_splits(mesh, &graph->tensor[node->input[i]], &dist, strategy, diag));
    }
    for (int w = 0; w < node->weight_count; w++) {
        const struct sbp_dist dist = sbp_strategy_weight(graph, mesh, strategy, op, w);
        SBP_TRY(note_splits(mesh, &graph->tensor[node->weight[w]], &dist, strategy, diag));
        SBP_TRY(check_weight(graph, mesh, strategy, op, w, first_user, diag));
    }
    if (node->output < 0)
        return SBP_OK;
    SBP_TRY(check_rest(graph, mesh, strategy, op, diag));
    SBP_TRY(check_mirrored(mesh, &strategy->rest[node->output], node->name, diag));
    const struct sbp_tensor *output = &graph->tensor[node->output];
    const struct sbp_dist made = sbp_strategy_output(graph, mesh, strategy, op);
    SBP_TRY(note_splits(mesh, output, &made, strategy, diag));
    return note_splits(mesh, output, &strategy->rest[node->output], strategy, diag);
}

static enum sbp_status check_classes(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                     const struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    for (int c = 0; c < graph->class_count; c++) {
        const int64_t parts = sbp_mesh_group_size(mesh, strategy->split[c]);
        if (graph->dim_class[c].size % parts != 0)
            return sbp_fail(diag, SBP_E_INPUT,
                            "strategy: %s: the axes that split it anywhere in the plan make %lld "
                            "parts, which do not divide its size %lld",
                            graph->dim_class[c].name, (long long)parts,
                            (long long)graph->dim_class[c].size);
    }
    return SBP_OK;
}

static sbp_axes splits_of(const struct sbp_graph *graph, int tensor, int dim, const sbp_axes *split)
{
    const int dim_class = graph->tensor[tensor].shape.dim_class[dim];
    return dim_class == SBP_NO_CLASS ? 0 : split[dim_class];
}

static int misplaced_heads(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                           const struct sbp_op_node *node, const uint8_t *role,
                           const sbp_axes *split)
{
    const sbp_axes queries = splits_of(graph, node->input[0], SBP_DIM_FEATURE, split);
    const sbp_axes keys = splits_of(graph, node->input[1], SBP_DIM_FEATURE, split);
    int count = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const struct sbp_role *r = &node->entry->role[role[axis]];
        const sbp_axes outside = ((sbp_axes)1 << axis) - 1;
        if (!sbp_state_equal(r->input[0], SBP_STATE_S(SBP_DIM_FEATURE)) ||
            !sbp_state_equal(r->input[1], SBP_STATE_S(SBP_DIM_FEATURE)))
            continue;
        count += sbp_mesh_group_size(mesh, queries & outside) !=
                 sbp_mesh_group_size(mesh, keys & outside);
    }
    return count;
}

static int misplaced_rows(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                          const struct sbp_op_node *node, const uint8_t *role,
                          const sbp_axes *split)
{
    const sbp_axes rows = splits_of(graph, node->input[0], SBP_DIM_SEQUENCE, split) |
                          splits_of(graph, node->output, SBP_DIM_SEQUENCE, split);
    sbp_axes own = 0;
    int count = 0;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (sbp_state_equal(node->entry->role[role[axis]].input[0], SBP_STATE_S(SBP_DIM_SEQUENCE)))
            own |= (sbp_axes)1 << axis;
    for (sbp_axes left = own; left != 0; left &= left - 1) {
        const sbp_axes outside = (left & -left) - 1;
        count += (rows & ~own & outside) != 0;
    }
    return count;
}

int sbp_strategy_misplaced(const struct sbp_graph *graph, const struct sbp_mesh *mesh, int op,
                           const uint8_t role[SBP_MAX_AXES], const sbp_axes *split)
{
    const struct sbp_op_node *node = &graph->op[op];
    switch (node->kind) {
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        return misplaced_heads(graph, mesh, node, role, split);
    case SBP_OP_CONV2D:
        return misplaced_rows(graph, mesh, node, role, split);
    default:
        return 0;
    }
}

static enum sbp_status check_places(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    for (int op = 0; op < graph->op_count; op++) {
        if (sbp_strategy_misplaced(graph, mesh, op, strategy->op[op].role, strategy->split) == 0)
            continue;
        const bool rows = graph->op[op].kind == SBP_OP_CONV2D;
        return sbp_fail(diag, SBP_E_INPUT,
                        "strategy: %s: axes that split %s must come before all others that split "
                        "them anywhere in the plan",
                        graph->op[op].name, rows ? "rows of images" : "heads of queries and keys");
    }
    return SBP_OK;
}

/* The input of a model that is cut out of a deeper one rests like any other output. */
static enum sbp_status close_input(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    if (graph->input < 0)
        return SBP_OK;
    const struct sbp_dist *rest = &strategy->rest[graph->input];
    if (is_free(graph, graph->input))
        return check_mirrored(mesh, rest, graph->tensor[graph->input].name, diag);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (rest->axis[axis].kind != SBP_SPLIT)
            return sbp_fail(diag, SBP_E_INPUT,
                            "strategy: %s: the model's input rests unsplit on axis %d, a split is "
                            "legal",
                            graph->tensor[graph->input].name, axis);
    return note_splits(mesh, &graph->tensor[graph->input], rest, strategy, diag);
}

/* Checks the way from rest to reader and, for the gradient, the way back in the dual states. */
static enum sbp_status check_way(const struct sbp_graph *graph, const struct sbp_layout *layout,
                                 int op, int tensor, const struct sbp_dist *from,
                                 const struct sbp_dist *to, struct sbp_diag *diag)
{
    const struct sbp_shape *shape = &graph->tensor[tensor].shape;
    const struct sbp_dist held_from = sbp_dist_held(layout->mesh, from);
    const struct sbp_dist held_to = sbp_dist_held(layout->mesh, to);
    const struct sbp_dist dual_from = sbp_dist_dual(layout->mesh, from);
    const struct sbp_dist dual_to = sbp_dist_dual(layout->mesh, to);
    struct sbp_boxing boxing;
    struct sbp_diag why = {{0}};
    enum sbp_status status = sbp_boxing_make(layout, shape, &held_from, &held_to, &boxing, &why);
    if (status == SBP_OK)
        status = sbp_boxing_make(layout, shape, &dual_to, &dual_from, &boxing, &why);
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "strategy: %s: %s", graph->op[op].name, why.text);
}

/* Every transition between splits and the states of operators exists, and so does every path. The
 * normal form alone lacks one: next to other changes, a sum over an axis that can split nothing of
 * the tensor. */
static enum sbp_status check_ways(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                  const struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    const struct sbp_layout layout = {mesh, graph->class_count, strategy->split};
    if (strategy->boxing == SBP_BOXING_PATH)
        return SBP_OK;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        for (int i = 0; i < node->input_count; i++) {
            const struct sbp_dist *rest = &strategy->rest[node->input[i]];
            const struct sbp_dist want = sbp_strategy_input(graph, mesh, strategy, op, i);
            if (!is_free(graph, node->input[i]) && !all_split(mesh, rest))
                SBP_TRY(check_way(graph, &layout, op, node->input[i], rest, &want, diag));
        }
        if (node->output < 0 || all_split(mesh, &strategy->rest[node->output]))
            continue;
        const struct sbp_dist output = sbp_strategy_output(graph, mesh, strategy, op);
        SBP_TRY(check_way(graph, &layout, op, node->output, &output, &strategy->rest[node->output],
                          diag));
    }
    return SBP_OK;
}

enum sbp_status sbp_strategy_close(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    int *first_user = SBP_NEW(&scratch, int, graph->tensor_count);
    enum sbp_status status = first_user == NULL ? SBP_E_MEMORY : SBP_OK;
    for (int c = 0; c < graph->class_count; c++)
        strategy->split[c] = 0;
    if (status == SBP_OK)
        status = close_input(graph, mesh, strategy, diag);
    for (int op = 0; op < graph->op_count && status == SBP_OK; op++)
        status = close_op(graph, mesh, strategy, op, first_user, diag);
    if (status == SBP_OK)
        status = check_classes(graph, mesh, strategy, diag);
    if (status == SBP_OK)
        status = check_places(graph, mesh, strategy, diag);
    if (status == SBP_OK)
        status = check_ways(graph, mesh, strategy, diag);
    sbp_arena_free(&scratch);
    return status;
}
