#include "planner/plan/plan.h"
#include "labelled_walk.h"

#include <math.h>
#include <string.h>

/* --- bounds on whole operators --- */

static int64_t parts_at(const struct walk *walk, int op, int role, int level)
{
    int64_t parts = 1;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if (role_on(walk, op, axis) == role && (level < 0 || walk->mesh->axis[axis].level == level))
            parts *= walk->mesh->axis[axis].size;
    return parts;
}

/* Whether an operator's output rests as a fix says. */
static bool keeps_rest(const struct walk *walk, int op, const struct sbp_fix *fix)
{
    static const int kinds[] = {[SBP_BROADCAST] = 3, [SBP_PARTIAL] = 4, [SBP_MIRRORED] = 5};
    const struct sbp_dist *rest = &walk->strategy.rest[walk->graph->op[op].output];
    int64_t parts[SBP_REST_STATES][SBP_MAX_LEVELS];
    for (int state = 0; state < SBP_REST_STATES; state++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            parts[state][level] = 1;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
        const struct sbp_state at = rest->axis[axis];
        parts[at.kind == SBP_SPLIT ? at.dim : kinds[at.kind]][walk->mesh->axis[axis].level] *=
            walk->mesh->axis[axis].size;
    }
    for (int state = 0; state < SBP_REST_STATES; state++)
        for (int level = 0; level < walk->mesh->level_count; level++)
            if (parts[state][level] != fix->rest[state][level])
                return false;
    return true;
}

static bool keeps_fixes(const struct walk *walk, int op)
{
    for (int i = 0; i < walk->request->fix_count; i++) {
        const struct sbp_fix *fix = &walk->request->fix[i];
        if (strcmp(fix->layer, walk->graph->op[walk->graph->op[op].site].name) != 0)
            continue;
        if (fix->rests && !keeps_rest(walk, op, fix))
            return false;
        for (int role = 0; role < entry_of(walk, op)->role_count; role++)
            for (int level = 0; level < walk->mesh->level_count; level++)
                if (fix->factor[role][level] != SBP_ANY &&
                    fix->factor[role][level] != parts_at(walk, op, role, level))
                    return false;
    }
    return true;
}

static bool keeps_batch_bound(const struct walk *walk, int op)
{
    const int64_t most = walk->request->max_batch_split;
    return most == 0 || walk->graph->op[op].kind != SBP_OP_LINEAR ||
           parts_at(walk, op, 0, -1) <= most;
}

/* A number for each state: splits by dimension, B, P. */
enum { RANKS = SBP_MAX_DIMS + 2 };
static int rank_of(struct sbp_state state)
{
    return state.kind == SBP_SPLIT       ? state.dim
           : state.kind == SBP_BROADCAST ? SBP_MAX_DIMS
                                         : SBP_MAX_DIMS + 1;
}

/* A repeat has as many axes of each family in each role, and in each split of its output's rest, as
 * its site; a follower repeats its rest, where that is a choice. */
static bool keeps_site(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const bool follows = entry_of(walk, op)->follows;
    if (node->site == op || (follows && !walk->whole_rest[op]))
        return true;
    int balance[SBP_MAX_AXES][SBP_MAX_ROLES + RANKS] = {{0}};
    for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
        int *const at = balance[walk->mesh->axis[axis].family];
        at[role_on(walk, op, axis)] += !follows;
        at[role_on(walk, node->site, axis)] -= !follows;
        const int site_output = walk->graph->op[node->site].output;
        at[SBP_MAX_ROLES + rank_of(walk->strategy.rest[node->output].axis[axis])]++;
        at[SBP_MAX_ROLES + rank_of(walk->strategy.rest[site_output].axis[axis])]--;
    }
    for (int family = 0; family < walk->mesh->family_count; family++)
        for (int i = 0; i < SBP_MAX_ROLES + RANKS; i++)
            if (balance[family][i] != 0)
                return false;
    return true;
}

/* --- the recursion --- */

static enum sbp_status walk_op(struct walk *walk, int op, int axis);

static bool is_wanted_rest(const struct walk *walk, int tensor, int axis)
{
    return walk->wanted == NULL || sbp_state_equal(walk->wanted->rest[tensor].axis[axis],
                                                   walk->strategy.rest[tensor].axis[axis]);
}

/* Interchangeable axes stand in one order at the first decision; memory alone tells them apart
 * (which digits are packed before a collective). */
static bool in_order(const struct walk *walk, int decision, int tensor, int axis)
{
    if (walk->wanted != NULL || walk->request->memory_limit_bytes > 0 ||
        decision != walk->first_choice || axis == 0 ||
        walk->mesh->axis[axis].family != walk->mesh->axis[axis - 1].family ||
        (walk->data >> axis & 1) != (walk->data >> (axis - 1) & 1))
        return true;
    const int dim = rank_of(walk->strategy.rest[tensor].axis[axis]);
    const int last_dim = rank_of(walk->strategy.rest[tensor].axis[axis - 1]);
    if (decision < 0)
        return last_dim <= dim;
    const int role = walk->strategy.op[decision].role[axis];
    const int last_role = walk->strategy.op[decision].role[axis - 1];
    return last_role < role || (last_role == role && last_dim <= dim);
}

static enum sbp_status walk_rest(struct walk *walk, int op, int tensor, int axis,
                                 struct sbp_state state)
{
    const int dim_class = walk->graph->tensor[tensor].shape.dim_class[state.dim];
    if (state.kind == SBP_SPLIT && dim_class == SBP_NO_CLASS)
        return SBP_OK;
    const sbp_axes before = state.kind == SBP_SPLIT ? walk->strategy.split[dim_class] : 0;
    walk->strategy.rest[tensor].axis[axis] = state;
    enum sbp_status status = SBP_OK;
    if (note(walk, tensor, axis, state) && is_wanted_rest(walk, tensor, axis) &&
        in_order(walk, op, tensor, axis))
        status = walk_op(walk, op, axis + 1);
    if (state.kind == SBP_SPLIT)
        walk->strategy.split[dim_class] = before;
    return status;
}

/* Whether an operator has a role to play, on whatever axis, that leaves its output in a state. */
static bool may_leave(const struct walk *walk, int op, enum sbp_kind kind)
{
    for (int role = 0; role < entry_of(walk, op)->role_count; role++) {
        const struct sbp_role *entry = &entry_of(walk, op)->role[role];
        if (entry->output.kind == kind && (!entry->spare || spare_allowed(walk, op, role)))
            return true;
    }
    return false;
}

/* Whether a reader goes on with partial sums because a fix says so; those that follow cannot. */
static bool may_take_partial(const struct walk *walk, int tensor)
{
    for (int op = 0; op < walk->graph->op_count; op++)
        for (int i = 0; i < walk->graph->op[op].input_count; i++)
            for (int role = 0;
                 walk->graph->op[op].input[i] == tensor && role < entry_of(walk, op)->role_count;
                 role++)
                if (entry_of(walk, op)->role[role].input[i].kind == SBP_PARTIAL &&
                    is_named(walk, op, role))
                    return true;
    return false;
}

/* The output's rest on one axis, the role being chosen: as the operator leaves it; where it may
 * leave partial sums, also in another split, whole where it may leave its output whole, partial
 * where that is read. */
static enum sbp_status walk_output(struct walk *walk, int op, int axis, struct sbp_state state)
{
    const int tensor = walk->graph->op[op].output;
    if (tensor < 0)
        return walk_op(walk, op, axis + 1);
    const bool chooses =
        entry_of(walk, op)->follows
            ? walk->whole_rest[op]
            : may_leave(walk, op, SBP_PARTIAL) || walk->partial_rest[op] || walk->whole_rest[op];
    const bool whole = chooses && (may_leave(walk, op, SBP_BROADCAST) || walk->whole_rest[op] ||
                                   walk->rest_resort[walk->graph->op[op].site]);
    if (state.kind == SBP_SPLIT || !chooses)
        SBP_TRY(walk_rest(walk, op, tensor, axis, state));
    else
        for (int dim = 0; dim < SBP_MAX_DIMS - 1; dim++)
            if (rest_allowed(walk, op, dim, axis))
                SBP_TRY(walk_rest(walk, op, tensor, axis, SBP_STATE_S((uint8_t)dim)));
    if (whole)
        SBP_TRY(walk_rest(walk, op, tensor, axis, SBP_STATE_B));
    if (state.kind == SBP_PARTIAL && (walk->partial_rest[op] || may_take_partial(walk, tensor)))
        return walk_rest(walk, op, tensor, axis, SBP_STATE_P);
    return SBP_OK;
}

static enum sbp_status walk_role(struct walk *walk, int op, int axis, int role)
{
    if (walk->wanted != NULL && !entry_of(walk, op)->follows &&
        walk->wanted->op[op].role[axis] != role)
        return SBP_OK;
    const struct splits before = keep_splits(walk);
    walk->strategy.op[op].role[axis] = (uint8_t)role;
    enum sbp_status status = SBP_OK;
    if (reads_sums(walk, op, axis) && note_role(walk, op, axis, role))
        status = walk_output(walk, op, axis, entry_of(walk, op)->role[role].output);
    restore_splits(walk, &before);
    return status;
}

/* AutoDDL, section 4.3: partial sums all join the features, or all join the batch where the reader
 * keeps the features as the writer split them (p1 = p2'). Chains only. */
static bool keeps_paper_paths(const struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        if (walk->graph->op[op].kind != SBP_OP_LINEAR)
            continue;
        int reader = op + 1;
        while (reader < walk->graph->op_count && entry_of(walk, reader)->follows)
            reader++;
        bool to_batch = false, to_features = false, features_stay = true;
        for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
            const struct sbp_state left = entry_of(walk, op)->role[role_on(walk, op, axis)].output;
            const int rest = walk->strategy.rest[walk->graph->op[op].output].axis[axis].dim;
            to_batch |= left.kind == SBP_PARTIAL && rest == SBP_DIM_BATCH;
            to_features |= left.kind == SBP_PARTIAL && rest == SBP_DIM_FEATURE;
            if (reader == walk->graph->op_count)
                continue;
            const struct sbp_state want =
                entry_of(walk, reader)->role[role_on(walk, reader, axis)].input[0];
            const struct sbp_state features = SBP_STATE_S(SBP_DIM_FEATURE);
            features_stay &= sbp_state_equal(left, features) == sbp_state_equal(want, features);
        }
        if (to_batch && (to_features || !features_stay))
            return false;
    }
    return true;
}

static int64_t parts_outside(const struct walk *walk, sbp_axes split, int axis)
{
    int64_t parts = 1;
    for (int outer = 0; outer < axis; outer++)
        if (split >> outer & 1)
            parts *= walk->mesh->axis[outer].size;
    return parts;
}

static sbp_axes class_splits(const struct walk *walk, int tensor, int dim)
{
    const int dim_class = walk->graph->tensor[tensor].shape.dim_class[dim];
    return dim_class == SBP_NO_CLASS ? 0 : walk->strategy.split[dim_class];
}

/* An axis that splits queries and keys has the same digit in both: as many parts are made outside
 * of it of the one as of the other, anywhere in the plan. */
static bool heads_line_up(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const sbp_axes queries = class_splits(walk, node->input[0], SBP_DIM_FEATURE);
    const sbp_axes keys = class_splits(walk, node->input[1], SBP_DIM_FEATURE);
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if (strcmp(node->entry->role[role_on(walk, op, axis)].name, "head") == 0 &&
            parts_outside(walk, queries, axis) != parts_outside(walk, keys, axis))
            return false;
    return true;
}

/* Rows of images lie one behind the other: no axis outside of one that splits a convolution's
 * height splits a height elsewhere. */
static bool rows_are_neighbours(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const sbp_axes rows = class_splits(walk, node->input[0], SBP_DIM_SEQUENCE) |
                          class_splits(walk, node->output, SBP_DIM_SEQUENCE);
    bool split_elsewhere = false;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
        const bool own = strcmp(node->entry->role[role_on(walk, op, axis)].name, "height") == 0;
        if (own && split_elsewhere)
            return false;
        split_elsewhere |= !own && (rows >> axis & 1) != 0;
    }
    return true;
}

static bool digits_line_up(const struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        const enum sbp_op_kind kind = walk->graph->op[op].kind;
        if ((kind == SBP_OP_GROUPED_ATTENTION || kind == SBP_OP_LATENT_ATTENTION) &&
            !heads_line_up(walk, op))
            return false;
        if (kind == SBP_OP_CONV2D && !rows_are_neighbours(walk, op))
            return false;
    }
    return true;
}

static enum sbp_status leaf(struct walk *walk)
{
    if (!digits_line_up(walk))
        return SBP_OK;
    if (walk->request->boxing == SBP_BOXING_PAPER && !keeps_paper_paths(walk))
        return SBP_OK;
    walk->visited++;
    if (walk->visited > walk->most)
        return SBP_STOPPED;
    return walk->visit == NULL ? SBP_OK : walk->visit(walk);
}

static enum sbp_status walk_op(struct walk *walk, int op, int axis)
{
    if (op == walk->graph->op_count)
        return leaf(walk);
    if (axis == walk->mesh->axis_count) {
        if (op >= 0 &&
            (!keeps_fixes(walk, op) || !keeps_batch_bound(walk, op) || !keeps_site(walk, op)))
            return SBP_OK;
        return walk_op(walk, op + 1, 0);
    }
    if (op < 0) {
        for (int dim = 0; dim < SBP_MAX_DIMS - 1; dim++)
            if (rest_allowed(walk, op, dim, axis))
                SBP_TRY(walk_rest(walk, op, walk->graph->input, axis, SBP_STATE_S((uint8_t)dim)));
        if (walk->input_resort)
            return walk_rest(walk, op, walk->graph->input, axis, SBP_STATE_B);
        return SBP_OK;
    }
    if (entry_of(walk, op)->follows) {
        const int role = role_on(walk, op, axis);
        return role < 0 ? SBP_OK : walk_role(walk, op, axis, role);
    }
    for (int role = 0; role < entry_of(walk, op)->role_count; role++)
        if (role_allowed(walk, op, role, axis))
            SBP_TRY(walk_role(walk, op, axis, role));
    return SBP_OK;
}

/* A free input has no resting place unless an operator runs wherever it rests. */
static bool input_rests(const struct sbp_graph *graph)
{
    if (graph->input < 0)
        return false;
    bool followed = graph->input_split;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            followed |= graph->op[op].input[i] == graph->input && graph->op[op].entry->follows;
    return followed;
}

/* Axes between nodes are the data's, axes inside are not. */
static bool is_node_mesh(const struct walk *walk, sbp_axes data)
{
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if ((data >> axis & 1) != (walk->mesh->axis[axis].level == 0))
            return false;
    return walk->mesh->level_count > 1;
}

static enum sbp_status walk_all(struct walk *walk)
{
    const struct sbp_graph *graph = walk->graph;
    const bool rests = input_rests(graph);
    find_resorts(walk);
    find_rests(walk);
    walk->first_choice = -1;
    if (!rests)
        for (walk->first_choice = 0;
             walk->first_choice < graph->op_count && entry_of(walk, walk->first_choice)->follows;)
            walk->first_choice++;
    if (!is_megatron(walk))
        return walk_op(walk, rests ? -1 : 0, 0);
    find_pairs(walk);
    for (sbp_axes data = 0; data >> walk->mesh->axis_count == 0; data++) {
        if (walk->request->space == SBP_SPACE_MEGATRON_NODE && !is_node_mesh(walk, data))
            continue;
        walk->data = data;
        find_ways(walk);
        SBP_TRY(walk_op(walk, rests ? -1 : 0, 0));
    }
    return SBP_OK;
}

static enum sbp_status start(const struct sbp_plan *plan, const struct sbp_request *request,
                             int64_t most, struct sbp_arena *arena, struct walk *walk)
{
    *walk = (struct walk){
        .graph = &plan->cut.graph, .mesh = &plan->cut.mesh, .request = request, .most = most};
    sbp_arena_init(arena);
    if (plan->cut.graph.class_count > MOST_CLASSES)
        return SBP_E_UNSUPPORTED;
    return sbp_strategy_alloc(&plan->cut.graph, arena, &walk->strategy);
}

/* --- what is done with every strategy --- */

int64_t labelled_count(const struct sbp_plan *plan, const struct sbp_request *request, int64_t most)
{
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, most, &arena, &walk);
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    return status == SBP_OK || status == SBP_STOPPED ? walk.visited : -1;
}

struct pricing {
    const struct sbp_plan *plan;
    int64_t memory_limit_bytes;
    struct labelled_best *best;
    struct sbp_diag *diag;
    labelled_visit *visit; /* NULL: nobody looks */
    void *context;
};

static bool rests_whole(const struct walk *walk)
{
    const int input = walk->graph->input;
    for (int axis = 0; axis < walk->mesh->axis_count && walk->input_resort; axis++)
        if (walk->strategy.rest[input].axis[axis].kind != SBP_SPLIT)
            return true;
    for (int op = 0; op < walk->graph->op_count; op++)
        for (int axis = 0; axis < walk->mesh->axis_count; axis++)
            if (walk->graph->op[op].output >= 0 &&
                walk->strategy.rest[walk->graph->op[op].output].axis[axis].kind != SBP_SPLIT)
                return true;
    return false;
}

static enum sbp_status price(struct walk *walk)
{
    struct pricing *const pricing = walk->context;
    struct labelled_best *const best = pricing->best;
    const struct sbp_plan *const plan = pricing->plan;
    const struct splits before = keep_splits(walk);
    walk->strategy.boxing = walk->request->boxing;
    struct sbp_diag refusal = {{0}};
    if (sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &walk->strategy, &refusal) !=
        SBP_OK) {
        restore_splits(walk, &before);
        walk->visited--;
        /* The paper's way between two rests may split a class further than both ends do; a sum over
         * an axis that splits nothing of its tensor cannot be formed next to other changes. */
        return walk->request->boxing == SBP_BOXING_PAPER || rests_whole(walk)
                   ? SBP_OK
                   : sbp_fail(pricing->diag, SBP_E_INTERNAL, "%s", refusal.text);
    }
    struct sbp_step step;
    SBP_TRY(sbp_cut_step(&plan->cut, &walk->strategy, false, &step, pricing->diag));
    const struct sbp_step_totals totals = step.totals;
    if (pricing->visit != NULL)
        pricing->visit(pricing->context, &walk->strategy, &totals);
    sbp_step_free(&step);
    restore_splits(walk, &before);
    const double objective =
        walk->request->objective == SBP_STEP_TIME ? totals.step_s : totals.communication_s;
    best->unlimited_s = fmin(best->unlimited_s, objective);
    if (totals.device_bytes < best->least_device_bytes)
        best->least_device_bytes = totals.device_bytes;
    if (totals.device_bytes <= pricing->memory_limit_bytes && objective < best->objective_s) {
        best->objective_s = objective;
        best->device_bytes = totals.device_bytes;
    }
    return SBP_OK;
}

static enum sbp_status visit_all(const struct sbp_plan *plan, const struct sbp_request *request,
                                 bool wide, int64_t most, labelled_visit *visit, void *context,
                                 struct labelled_best *best, struct sbp_diag *diag)
{
    *best = (struct labelled_best){
        .objective_s = INFINITY, .unlimited_s = INFINITY, .least_device_bytes = INT64_MAX};
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, most, &arena, &walk);
    struct pricing pricing = {plan,
                              request->memory_limit_bytes > 0 ? request->memory_limit_bytes
                                                              : plan->workload.cluster.memory_bytes,
                              best,
                              diag,
                              visit,
                              context};
    walk.wide = wide;
    walk.visit = price;
    walk.context = &pricing;
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    best->visited = walk.visited;
    best->gave_up = status == SBP_STOPPED;
    return best->gave_up ? SBP_OK : status;
}

enum sbp_status labelled_each(const struct sbp_plan *plan, const struct sbp_request *request,
                              int64_t most, labelled_visit *visit, void *context,
                              struct labelled_best *best, struct sbp_diag *diag)
{
    return visit_all(plan, request, false, most, visit, context, best, diag);
}

enum sbp_status labelled_search(const struct sbp_plan *plan, const struct sbp_request *request,
                                int64_t most, struct labelled_best *best, struct sbp_diag *diag)
{
    return visit_all(plan, request, false, most, NULL, NULL, best, diag);
}

enum sbp_status labelled_search_wide(const struct sbp_plan *plan, const struct sbp_request *request,
                                     int64_t most, struct labelled_best *best,
                                     struct sbp_diag *diag)
{
    return visit_all(plan, request, true, most, NULL, NULL, best, diag);
}

enum sbp_status labelled_check(const struct sbp_plan *plan, const struct sbp_request *request,
                               const struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, INT64_MAX, &arena, &walk);
    walk.wanted = strategy;
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    SBP_TRY(status);
    return walk.visited > 0
               ? SBP_OK
               : sbp_fail(diag, SBP_E_INPUT, "the strategy is none of the space's labelled ones");
}
