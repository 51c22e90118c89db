/* Whether a choice is legal: what it splits divides by its parts, within the limits on classes, and
 * it is what the request fixes.
 */
#include "planner/space_build.h"

struct sbp_factors sbp_space_factors(const struct sbp_space *space, int variable, int choice,
                                     int op)
{
    struct sbp_factors factors;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        factors.group[r] = sbp_group_one();
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, variable, choice, f);
        for (int r = 0; r < space->variable[variable].role_count; r++) {
            const int role = op < 0 ? r : space->op_role[op][r];
            for (int k = 0; k < count[r]; k++)
                factors.group[role].members[space->mesh->family[f].level] *=
                    (double)space->mesh->family[f].prime;
        }
    }
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        factors.factor[r] = sbp_group_size(&factors.group[r]);
    return factors;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Classes that a choice splits, and the roles whose axes do: all axes that split a class anywhere
 * in the plan have digits of their own in it, so the product of these roles' factors must divide
 * it. */
struct class_roles {
    int dim_class;
    unsigned roles;
};
enum { MOST_SPLIT = SBP_MAX_DIMS * (SBP_MAX_INPUTS + SBP_MAX_WEIGHTS + 1) };
struct split_classes {
    int count;
    bool illegal; /* a dimension is split that never is */
    struct class_roles of[MOST_SPLIT];
};

static void note_split(struct split_classes *classes, const struct sbp_shape *shape,
                       struct sbp_state state, int role, const struct sbp_factors *factors)
{
    if (state.kind != SBP_SPLIT || factors->factor[role] <= 1)
        return;
    const int dim_class = shape->dim_class[state.dim];
    if (dim_class == SBP_NO_CLASS) {
        classes->illegal = true;
        return;
    }
    int at = 0;
    while (at < classes->count && classes->of[at].dim_class != dim_class)
        at++;
    if (at == classes->count)
        classes->of[classes->count++] = (struct class_roles){dim_class, 0};
    classes->of[at].roles |= 1u << role;
}

static bool divide_classes(const struct sbp_space *space, const struct split_classes *classes,
                           const struct sbp_factors *factors)
{
    for (int i = 0; i < classes->count; i++) {
        const int dim_class = classes->of[i].dim_class;
        double parts = 1;
        for (int r = 0; r < SBP_MAX_ROLES; r++)
            if (classes->of[i].roles >> r & 1)
                parts *= factors->factor[r];
        if (parts > (double)space->class_limit[dim_class] ||
            space->graph->dim_class[dim_class].size % (int64_t)parts != 0)
            return false;
    }
    return !classes->illegal;
}

static bool op_divides(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_tensor *tensor = space->graph->tensor;
    struct split_classes classes = {.count = 0};
    for (int r = 0; r < node->entry->role_count; r++) {
        const struct sbp_role *role = &node->entry->role[r];
        if (factors->factor[r] <= 1)
            continue;
        for (int i = 0; i < node->input_count; i++)
            note_split(&classes, &tensor[node->input[i]].shape, role->input[i], r, factors);
        for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
            note_split(&classes, &tensor[node->weight[w]].shape, role->weight[w], r, factors);
        if (node->output >= 0)
            note_split(&classes, &tensor[node->output].shape, role->output, r, factors);
    }
    return divide_classes(space, &classes, factors);
}

/* A rest state must suit the tensor and every tensor that followers keep in the same state. */
static bool rest_divides(const struct sbp_space *space, int variable,
                         const struct sbp_factors *factors)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    for (int t = 0; t < space->graph->tensor_count && v->op < 0; t++) {
        struct split_classes classes = {.count = 0};
        for (int r = 0; space->slot[t] == variable && r < v->role_count; r++)
            note_split(&classes, &space->graph->tensor[t].shape, v->state[r], r, factors);
        if (!divide_classes(space, &classes, factors))
            return false;
    }
    return true;
}

/* ---- fixes and order ------------------------------------------------------------------------ */

/* Factor of a role at a level, in a choice that is being tried. */
static int64_t level_factor(const struct sbp_space *space, const uint8_t *count, int role,
                            int level)
{
    int64_t factor = 1;
    for (int f = 0; f < space->mesh->family_count; f++)
        for (int k = 0;
             space->mesh->family[f].level == level && k < count[f * SBP_MAX_ROLES + role]; k++)
            factor *= space->mesh->family[f].prime;
    return factor;
}

/* The variable's role that stands for an operator's own; -1: none, the operator never plays it. */
static int variable_role(const struct sbp_space *space, int variable, int op, int role)
{
    for (int r = 0; r < space->variable[variable].role_count; r++)
        if (space->op_role[op][r] == role)
            return r;
    return -1;
}

static bool obeys_fix(const struct sbp_space *space, const struct sbp_fix *fix, int variable,
                      int op, const uint8_t *count)
{
    for (int role = 0; role < sbp_space_entry(space->graph, op)->role_count; role++) {
        const int r = variable_role(space, variable, op, role);
        for (int level = 0; level < space->mesh->level_count; level++) {
            const int64_t want = fix->factor[role][level];
            if (want != SBP_ANY && (r < 0 ? 1 : level_factor(space, count, r, level)) != want)
                return false;
        }
    }
    return true;
}

static bool obeys_rest_fix(const struct sbp_space *space, int variable)
{
    const struct sbp_fix *fix = sbp_space_rest_fix(space, variable);
    const struct sbp_space_variable *v = &space->variable[variable];
    const uint8_t *count = sbp_space_count(space, variable, v->choice_count, 0);
    for (int r = 0; fix != NULL && r < SBP_REST_STATES; r++)
        for (int level = 0; level < space->mesh->level_count; level++)
            if (level_factor(space, count, r, level) != fix->rest[r][level])
                return false;
    return true;
}

/* Heads are split by outer axes than queries alone; within a family labels see to that. */
static bool heads_stand_outside(const struct sbp_space *space, int op, const uint8_t *count)
{
    int head, query;
    bool queries = false;
    if (!sbp_space_query_roles(&space->graph->op[op], &head, &query))
        return true;
    for (int f = 0; f < space->mesh->family_count; f++) {
        if (queries && count[f * SBP_MAX_ROLES + head] > 0)
            return false;
        queries |= count[f * SBP_MAX_ROLES + query] > 0;
    }
    return true;
}

static bool splits_batch(const struct sbp_space *space, int variable, int role)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    if (v->op < 0)
        return sbp_state_equal(v->state[role], SBP_STATE_S(SBP_DIM_BATCH));
    const struct sbp_role *played = &sbp_space_entry(space->graph, v->op)->role[role];
    bool splits = sbp_state_equal(played->output, SBP_STATE_S(SBP_DIM_BATCH));
    for (int i = 0; i < space->graph->op[v->op].input_count; i++)
        splits |= sbp_state_equal(played->input[i], SBP_STATE_S(SBP_DIM_BATCH));
    return splits;
}

/* As many axes split the batch as the request says, where any role of the variable can. */
static bool obeys_batch_axes(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    bool can = false, obeys = true;
    for (int f = 0; space->request->batch_axes != NULL && f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, variable, v->choice_count, f);
        int axes = 0;
        for (int r = 0; r < v->role_count; r++) {
            can |= splits_batch(space, variable, r);
            axes += splits_batch(space, variable, r) ? count[r] : 0;
        }
        obeys &= axes == space->request->batch_axes[f];
    }
    return obeys || !can;
}

/* ---- the whole choice ----------------------------------------------------------------------- */

/* The choice under trial, looked at through an operator that it decides. */
static bool choice_suits_op(const struct sbp_space *space, int variable, int op)
{
    const int choice = space->variable[variable].choice_count; /* the trial row */
    const struct sbp_factors factors = sbp_space_factors(space, variable, choice, op);
    if (!op_divides(space, op, &factors))
        return false;
    const int64_t most = space->request->max_batch_split;
    if (most > 0 && space->graph->op[op].weight_count > 0 && factors.factor[0] > (double)most)
        return false;
    const struct sbp_fix *fix = sbp_space_fix(space, op);
    const uint8_t *count = sbp_space_count(space, variable, choice, 0);
    return heads_stand_outside(space, op, count) &&
           (fix == NULL || obeys_fix(space, fix, variable, op, count));
}

bool sbp_space_is_legal(const struct sbp_space *space, int variable)
{
    if (!obeys_batch_axes(space, variable))
        return false;
    const int choice = space->variable[variable].choice_count;
    for (int op = 0; op < space->graph->op_count; op++)
        if (space->op_variable[op] == variable && space->graph->op[op].site == op &&
            !choice_suits_op(space, variable, op))
            return false;
    const struct sbp_factors factors = sbp_space_factors(space, variable, choice, -1);
    return rest_divides(space, variable, &factors) && obeys_rest_fix(space, variable);
}
