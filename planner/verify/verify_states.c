/* Checks roles, states at rest and digits of a strategy, by the catalogue's table and the shapes
 * alone. */
#include <string.h>

#include "base/math/numeric.h"
#include "planner/verify/verify_priv.h"

/* ---- distributions -------------------------------------------------------------------------- */

static bool same_state(struct sbp_state a, struct sbp_state b)
{
    return a.kind == b.kind && (a.kind != SBP_SPLIT || a.dim == b.dim);
}

bool sbp_verify_same(const struct sbp_verification *c, const struct sbp_dist *a,
                     const struct sbp_dist *b)
{
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        if (!same_state(a->axis[axis], b->axis[axis]))
            return false;
    return true;
}

struct sbp_dist sbp_verify_dual(const struct sbp_dist *dist)
{
    struct sbp_dist dual = *dist;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        if (dist->axis[axis].kind != SBP_SPLIT)
            dual.axis[axis].kind =
                dist->axis[axis].kind == SBP_BROADCAST ? SBP_PARTIAL : SBP_BROADCAST;
    return dual;
}

struct sbp_dist sbp_verify_held(const struct sbp_dist *dist)
{
    struct sbp_dist held = *dist;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        if (dist->axis[axis].kind == SBP_MIRRORED)
            held.axis[axis].kind = SBP_BROADCAST;
    return held;
}

int64_t sbp_verify_members(const struct sbp_verification *c, sbp_axes axes)
{
    int64_t members = 1;
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        members *= (axes >> axis & 1) != 0 ? c->mesh->axis[axis].size : 1;
    return members;
}

bool sbp_verify_is_free(const struct sbp_verification *c, int tensor)
{
    return c->graph->tensor[tensor].producer < 0 &&
           !(tensor == c->graph->input && c->graph->input_split);
}

static const struct sbp_role *role_of(const struct sbp_verification *c, int op, int axis)
{
    return &c->graph->op[op].entry->role[c->role[op][axis]];
}

static struct sbp_dist nowhere(void)
{
    struct sbp_dist dist;
    memset(&dist, 0, sizeof dist);
    return dist;
}

struct sbp_dist sbp_verify_input(const struct sbp_verification *c, int op, int input)
{
    struct sbp_dist dist = nowhere();
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        dist.axis[axis] = role_of(c, op, axis)->input[input];
    return dist;
}

struct sbp_dist sbp_verify_output(const struct sbp_verification *c, int op)
{
    struct sbp_dist dist = nowhere();
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        dist.axis[axis] = role_of(c, op, axis)->output;
    return dist;
}

/* A tied table lies (out, in): its linear reads it the other way round. */
static struct sbp_state stored(const struct sbp_op_node *node, int weight, struct sbp_state state)
{
    if (state.kind == SBP_SPLIT && weight == 0 && node->transposed_weight)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

struct sbp_dist sbp_verify_weight(const struct sbp_verification *c, int op, int weight)
{
    struct sbp_dist dist = nowhere();
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        dist.axis[axis] = stored(&c->graph->op[op], weight, role_of(c, op, axis)->weight[weight]);
    return dist;
}

/* Checks that a level's axes are mirrored together. */
static enum sbp_status check_mirrored(const struct sbp_verification *c, const char *name,
                                      const struct sbp_dist *dist)
{
    for (int level = 0; level < c->mesh->level_count; level++) {
        int axes = 0, mirrored = 0;
        for (int axis = 0; axis < c->mesh->axis_count; axis++)
            if (c->mesh->axis[axis].level == level) {
                axes++;
                mirrored += dist->axis[axis].kind == SBP_MIRRORED;
            }
        if (mirrored != 0 && mirrored != axes)
            return sbp_verify_refuse(c, "%s: %d of the %d axes of a level are mirrored", name,
                                     mirrored, axes);
    }
    return SBP_OK;
}

/* Axes on which a weight's gradient is a partial sum. */
static sbp_axes shared_by(const struct sbp_verification *c, int op, int weight)
{
    sbp_axes shared = 0;
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        if (role_of(c, op, axis)->gradient[weight].kind == SBP_PARTIAL)
            shared |= (sbp_axes)1 << axis;
    return shared;
}

struct sbp_factor sbp_verify_factor(const struct sbp_verification *c, int op)
{
    struct sbp_factor factor;
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        factor.of[role] = 1;
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        factor.of[c->role[op][axis]] *= (double)c->mesh->axis[axis].size;
    return factor;
}

enum sbp_status sbp_verify_block(const struct sbp_verification *c, int tensor,
                                 const struct sbp_dist *dist, int64_t *elements)
{
    const struct sbp_tensor *t = &c->graph->tensor[tensor];
    int64_t left[SBP_MAX_DIMS];
    memcpy(left, t->shape.size, sizeof left);
    for (int axis = 0; axis < c->mesh->axis_count; axis++) {
        const struct sbp_state state = dist->axis[axis];
        const int64_t parts = c->mesh->axis[axis].size;
        if (state.kind != SBP_SPLIT)
            continue;
        if (state.dim >= SBP_MAX_DIMS || left[state.dim] % parts != 0)
            return sbp_verify_refuse(c, "%s: axis %d makes %lld parts of %lld of dimension %d",
                                     t->name, axis, (long long)parts,
                                     (long long)left[state.dim % SBP_MAX_DIMS], state.dim);
        left[state.dim] /= parts;
    }
    *elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        if (!sbp_mul_i64(*elements, left[dim], elements))
            return sbp_verify_refuse(c, "%s: a block passes 2^63 elements", t->name);
    return SBP_OK;
}

enum sbp_status sbp_verify_note(struct sbp_verification *c, int tensor, const struct sbp_dist *dist)
{
    const struct sbp_tensor *t = &c->graph->tensor[tensor];
    for (int axis = 0; axis < c->mesh->axis_count; axis++) {
        const struct sbp_state state = dist->axis[axis];
        if (state.kind != SBP_SPLIT)
            continue;
        if (state.dim >= SBP_MAX_DIMS || t->shape.dim_class[state.dim] == SBP_NO_CLASS)
            return sbp_verify_refuse(c, "%s: axis %d splits dimension %d, which nothing may split",
                                     t->name, axis, state.dim);
        c->split[t->shape.dim_class[state.dim]] |= (sbp_axes)1 << axis;
    }
    return SBP_OK;
}

/* ---- roles ---------------------------------------------------------------------------------- */

/* Finds the role of an operator on an axis; a follower takes the one that reads the state in which
 * its input rests. */
static enum sbp_status find_role(struct sbp_verification *c, int op, int axis)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const struct sbp_op_entry *entry = node->entry;
    int role = c->strategy->op[op].role[axis];
    if (entry->follows) {
        const struct sbp_state rest = c->strategy->rest[node->input[0]].axis[axis];
        for (role = 0; role < entry->role_count; role++)
            if (same_state(entry->role[role].input[0], rest))
                break;
    }
    if (role >= entry->role_count)
        return sbp_verify_refuse(c, "%s: %s has no such role on axis %d", node->name, entry->name,
                                 axis);
    c->role[op][axis] = (uint8_t)role;
    return SBP_OK;
}

static enum sbp_status check_zero(const struct sbp_verification *c, int op)
{
    const uint8_t level = c->strategy->zero[op];
    if (level > 3 && level != SBP_ZERO_DEFAULT)
        return sbp_verify_refuse(c, "%s: ZeRO level %d, legal are 0 to 3", c->graph->op[op].name,
                                 level);
    return SBP_OK;
}

/* ---- rests ---------------------------------------------------------------------------------- */

/* Whether an output may rest in a state: a split stays or is gathered, a whole output stays or is
 * sliced, a partial sum may become anything. */
static bool may_rest(struct sbp_state made, struct sbp_state rest)
{
    switch (made.kind) {
    case SBP_SPLIT:
        return rest.kind == SBP_BROADCAST || rest.kind == SBP_MIRRORED || same_state(made, rest);
    case SBP_BROADCAST:
    case SBP_MIRRORED:
        return rest.kind != SBP_PARTIAL;
    default:
        return true;
    }
}

static enum sbp_status check_rest(struct sbp_verification *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    if (node->output < 0)
        return SBP_OK;
    const struct sbp_dist made = sbp_verify_output(c, op);
    const struct sbp_dist *rest = &c->strategy->rest[node->output];
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        if (!may_rest(made.axis[axis], rest->axis[axis]))
            return sbp_verify_refuse(c, "%s: its output cannot rest so on axis %d", node->name,
                                     axis);
    SBP_TRY(check_mirrored(c, node->name, &made));
    SBP_TRY(check_mirrored(c, node->name, rest));
    SBP_TRY(sbp_verify_note(c, node->output, &made));
    return sbp_verify_note(c, node->output, rest);
}

static enum sbp_status check_model_input(struct sbp_verification *c)
{
    const int input = c->graph->input;
    if (input < 0 || !c->graph->input_split)
        return SBP_OK;
    const struct sbp_dist *rest = &c->strategy->rest[input];
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        if (rest->axis[axis].kind != SBP_SPLIT)
            return sbp_verify_refuse(c, "the model's input rests unsplit on axis %d", axis);
    return sbp_verify_note(c, input, rest);
}

/* ---- weights -------------------------------------------------------------------------------- */

static int level_of(const struct sbp_verification *c, int op)
{
    const struct sbp_parallel *parallel = &c->plan->cut.parallel;
    if (parallel->owner != SBP_OWNER_NONE)
        return 3;
    return c->strategy->zero[op] == SBP_ZERO_DEFAULT ? (int)parallel->zero : c->strategy->zero[op];
}

enum sbp_status sbp_verify_hold(struct sbp_verification *c, int first, int end,
                                struct sbp_held_weight *held)
{
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        held[tensor] = (struct sbp_held_weight){.op = -1};
    for (int op = first; op < end; op++)
        for (int w = 0; w < c->graph->op[op].weight_count; w++) {
            struct sbp_held_weight *h = &held[c->graph->op[op].weight[w]];
            if (h->uses++ > 0)
                continue;
            const struct sbp_dist dist = sbp_verify_weight(c, op, w);
            h->op = op;
            h->index = w;
            h->shared = shared_by(c, op, w);
            h->members = sbp_verify_members(c, h->shared);
            h->level = h->members > 1 ? level_of(c, op) : 0;
            SBP_TRY(sbp_verify_block(c, c->graph->op[op].weight[w], &dist, &h->local));
            const bool shards = h->level > 0 && c->plan->cut.parallel.owner == SBP_OWNER_NONE;
            h->shard = shards ? (h->local - 1) / h->members + 1 : h->local;
            h->padded = shards ? h->shard * h->members : h->local;
        }
    return SBP_OK;
}

/* Checks that all users of a weight hold it, and leave its gradient, alike. */
static enum sbp_status check_ties(struct sbp_verification *c)
{
    struct sbp_held_weight *held =
        SBP_NEW(&c->scratch, struct sbp_held_weight, c->graph->tensor_count);
    if (held == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_verify_hold(c, 0, c->graph->op_count, held));
    for (int op = 0; op < c->graph->op_count; op++)
        for (int w = 0; w < c->graph->op[op].weight_count; w++) {
            const struct sbp_held_weight *h = &held[c->graph->op[op].weight[w]];
            const struct sbp_dist mine = sbp_verify_weight(c, op, w);
            const struct sbp_dist other = sbp_verify_weight(c, h->op, h->index);
            if (!sbp_verify_same(c, &mine, &other) || shared_by(c, op, w) != h->shared)
                return sbp_verify_refuse(c, "%s and %s share a weight and hold it differently",
                                         c->graph->op[h->op].name, c->graph->op[op].name);
        }
    return SBP_OK;
}

/* ---- fixes ---------------------------------------------------------------------------------- */

/* Checks that the output rests on a level's axes in as many ways as are fixed for each state. */
static enum sbp_status check_fixed_rest(const struct sbp_verification *c, const struct sbp_fix *fix,
                                        int op)
{
    static const struct sbp_state STATES[SBP_REST_STATES] = {{SBP_SPLIT, SBP_DIM_BATCH},
                                                             {SBP_SPLIT, SBP_DIM_SEQUENCE},
                                                             {SBP_SPLIT, SBP_DIM_FEATURE},
                                                             {SBP_BROADCAST, 0},
                                                             {SBP_PARTIAL, 0},
                                                             {SBP_MIRRORED, 0}};
    const int tensor = c->graph->op[op].output;
    for (int i = 0; tensor >= 0 && i < SBP_REST_STATES; i++)
        for (int level = 0; level < c->mesh->level_count; level++) {
            int64_t ways = 1;
            for (int axis = 0; axis < c->mesh->axis_count; axis++)
                if (c->mesh->axis[axis].level == level &&
                    same_state(c->strategy->rest[tensor].axis[axis], STATES[i]))
                    ways *= c->mesh->axis[axis].size;
            if (ways != fix->rest[i][level])
                return sbp_verify_refuse(c, "%s: its output is fixed to rest otherwise at \"%s\"",
                                         c->graph->op[op].name, c->step->cluster.level[level].name);
        }
    return SBP_OK;
}

static enum sbp_status check_fix(const struct sbp_verification *c, const struct sbp_fix *fix,
                                 int op)
{
    const struct sbp_op_entry *entry = c->graph->op[op].entry;
    for (int role = 0; role < entry->role_count; role++)
        for (int level = 0; level < c->mesh->level_count; level++) {
            int64_t factor = 1;
            for (int axis = 0; axis < c->mesh->axis_count; axis++)
                if (c->mesh->axis[axis].level == level && c->role[op][axis] == role)
                    factor *= c->mesh->axis[axis].size;
            if (fix->factor[role][level] != SBP_ANY && fix->factor[role][level] != factor)
                return sbp_verify_refuse(c,
                                         "%s: role %s is fixed to %lld at level \"%s\" and is %lld",
                                         c->graph->op[op].name, entry->role[role].name,
                                         (long long)fix->factor[role][level],
                                         c->step->cluster.level[level].name, (long long)factor);
        }
    const int zero = c->strategy->zero[op] == SBP_ZERO_DEFAULT ? (int)c->plan->cut.parallel.zero
                                                               : c->strategy->zero[op];
    if (fix->zero != SBP_ANY && zero != fix->zero)
        return sbp_verify_refuse(c, "%s: ZeRO is fixed to %d and is %d", c->graph->op[op].name,
                                 fix->zero, zero);
    return fix->rests ? check_fixed_rest(c, fix, op) : SBP_OK;
}

/* Whether an operator is fixed by itself: repeats are fixed as their sites are, followers also by
 * themselves. */
static bool has_own_fix(const struct sbp_verification *c, int op)
{
    bool has = false;
    for (int i = 0; c->graph->op[op].entry->follows && i < c->request->fix_count; i++)
        has |= strcmp(c->graph->op[op].name, c->request->fix[i].layer) == 0;
    return has;
}

static enum sbp_status check_fixes(const struct sbp_verification *c)
{
    for (int i = 0; c->request != NULL && i < c->request->fix_count; i++)
        for (int op = 0; op < c->graph->op_count; op++) {
            const int fixed = has_own_fix(c, op) ? op : c->graph->op[op].site;
            if (strcmp(c->graph->op[fixed].name, c->request->fix[i].layer) == 0)
                SBP_TRY(check_fix(c, &c->request->fix[i], op));
        }
    return SBP_OK;
}

/* ---- digits --------------------------------------------------------------------------------- */

/* The digit of an index of a class that an axis has, -1: none (base/math/digits.h). Digits of axes
 * that split the class come first, in mesh order and most significant first. */
static int64_t digit_of(const struct sbp_verification *c, int dim_class, int64_t index, int axis)
{
    int64_t left = c->graph->dim_class[dim_class].size;
    const sbp_axes split = c->split[dim_class];
    for (int a = 0; a < c->mesh->axis_count; a++) {
        if ((split >> a & 1) == 0)
            continue;
        left /= c->mesh->axis[a].size;
        if (a == axis)
            return index / left % c->mesh->axis[a].size;
    }
    return -1;
}

static int class_of(const struct sbp_verification *c, int tensor, int dim)
{
    return c->graph->tensor[tensor].shape.dim_class[dim];
}

/* Checks, head by head, that a device with a head of queries has the keys which that head reads. */
static enum sbp_status check_heads(const struct sbp_verification *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const int queries = class_of(c, node->input[0], SBP_DIM_FEATURE);
    const int keys = class_of(c, node->input[1], SBP_DIM_FEATURE);
    for (int axis = 0; axis < c->mesh->axis_count; axis++) {
        const struct sbp_role *role = role_of(c, op, axis);
        if (role->input[0].kind != SBP_SPLIT || role->input[0].dim != SBP_DIM_FEATURE ||
            role->input[1].kind != SBP_SPLIT || role->input[1].dim != SBP_DIM_FEATURE)
            continue;
        const int64_t heads = c->graph->dim_class[queries].size;
        const int64_t group = heads / c->graph->dim_class[keys].size;
        for (int64_t head = 0; head < heads; head++)
            if (digit_of(c, queries, head, axis) != digit_of(c, keys, head / group, axis))
                return sbp_verify_refuse(c,
                                         "%s: on axis %d head %lld lies with another device than "
                                         "its keys",
                                         node->name, axis, (long long)head);
    }
    return SBP_OK;
}

/* Checks that the devices split an image's rows in order, into runs. */
static enum sbp_status check_rows(const struct sbp_verification *c, int op, int tensor)
{
    const int rows = class_of(c, tensor, SBP_DIM_SEQUENCE);
    int64_t last = 0;
    if (rows == SBP_NO_CLASS)
        return SBP_OK;
    for (int64_t row = 0; row < c->graph->dim_class[rows].size; row++) {
        int64_t owner = 0;
        for (int axis = 0; axis < c->mesh->axis_count; axis++) {
            const struct sbp_state state = role_of(c, op, axis)->input[0];
            if (state.kind == SBP_SPLIT && state.dim == SBP_DIM_SEQUENCE)
                owner = owner * c->mesh->axis[axis].size + digit_of(c, rows, row, axis);
        }
        if (owner < last)
            return sbp_verify_refuse(c, "%s: row %lld lies before a row that comes first",
                                     c->graph->op[op].name, (long long)row);
        last = owner;
    }
    return SBP_OK;
}

static enum sbp_status check_composite(const struct sbp_verification *c, int op)
{
    switch (c->graph->op[op].kind) {
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        return check_heads(c, op);
    case SBP_OP_CONV2D:
        SBP_TRY(check_rows(c, op, c->graph->op[op].input[0]));
        return check_rows(c, op, c->graph->op[op].output);
    default:
        return SBP_OK;
    }
}

enum sbp_status sbp_verify_digits(const struct sbp_verification *c)
{
    for (int i = 0; i < c->graph->class_count; i++) {
        const struct sbp_dim_class *dim_class = &c->graph->dim_class[i];
        const int64_t parts = sbp_verify_members(c, c->split[i]);
        if (c->split[i] != c->strategy->split[i])
            return sbp_verify_refuse(c, "%s: axes %#x split it, the strategy says %#x",
                                     dim_class->name, (unsigned)c->split[i],
                                     (unsigned)c->strategy->split[i]);
        if (dim_class->size % parts != 0)
            return sbp_verify_refuse(c, "%s: all axes that split it make %lld parts of %lld",
                                     dim_class->name, (long long)parts, (long long)dim_class->size);
    }
    for (int op = 0; op < c->graph->op_count; op++)
        SBP_TRY(check_composite(c, op));
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static enum sbp_status check_operands(struct sbp_verification *c, int op)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist dist = sbp_verify_input(c, op, i);
        SBP_TRY(sbp_verify_note(c, node->input[i], &dist));
    }
    for (int w = 0; w < node->weight_count; w++) {
        const struct sbp_dist dist = sbp_verify_weight(c, op, w);
        SBP_TRY(sbp_verify_note(c, node->weight[w], &dist));
    }
    return check_rest(c, op);
}

enum sbp_status sbp_verify_states(struct sbp_verification *c)
{
    SBP_TRY(check_model_input(c));
    for (int op = 0; op < c->graph->op_count; op++) {
        for (int axis = 0; axis < c->mesh->axis_count; axis++)
            SBP_TRY(find_role(c, op, axis));
        SBP_TRY(check_zero(c, op));
        SBP_TRY(check_operands(c, op));
    }
    SBP_TRY(check_ties(c));
    return check_fixes(c);
}
