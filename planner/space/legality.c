/* Legality of a tuple: its parts divide the sizes that it splits, within the limits on classes,
 * and it agrees with the request's fixes. */
#include "planner/space/domain_build.h"

/* ---- rules of sizes ------------------------------------------------------------------------- */

/* Makes room for one more rule. */
static enum sbp_status grow_rules(struct sbp_space *space, struct sbp_legality *legality)
{
    if (legality->rule_count < legality->capacity)
        return SBP_OK;
    legality->capacity = 2 * legality->capacity + 16;
    struct sbp_class_rule *grown =
        SBP_NEW(&space->arena, struct sbp_class_rule, legality->capacity);
    if (grown == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < legality->rule_count; i++)
        grown[i] = legality->rule[i];
    legality->rule = grown;
    return SBP_OK;
}

/* Adds a rule, once for each class and set of roles. */
static enum sbp_status add_rule(struct sbp_space *space, struct sbp_legality *legality,
                                struct sbp_class_rule rule)
{
    for (int i = 0; i < legality->rule_count; i++)
        if (legality->rule[i].dim_class == rule.dim_class && legality->rule[i].roles == rule.roles)
            return SBP_OK;
    SBP_TRY(grow_rules(space, legality));
    legality->rule[legality->rule_count++] = rule;
    return SBP_OK;
}

/* The classes of one operator or one tensor, and the roles that split each. */
enum { MOST_SPLIT = SBP_MAX_DIMS * (SBP_MAX_INPUTS + SBP_MAX_WEIGHTS + 1) };
struct split_classes {
    int count;
    unsigned illegal; /* roles that split a dimension that never is */
    struct sbp_class_rule of[MOST_SPLIT];
};

static void note_split(struct split_classes *classes, const struct sbp_shape *shape,
                       struct sbp_state state, int role)
{
    if (state.kind != SBP_SPLIT)
        return;
    const int dim_class = shape->dim_class[state.dim];
    if (dim_class == SBP_NO_CLASS) {
        classes->illegal |= 1u << role;
        return;
    }
    int at = 0;
    while (at < classes->count && classes->of[at].dim_class != dim_class)
        at++;
    if (at == classes->count)
        classes->of[classes->count++] = (struct sbp_class_rule){dim_class, 0};
    classes->of[at].roles |= 1u << role;
}

static enum sbp_status add_rules(struct sbp_space *space, struct sbp_legality *legality,
                                 const struct split_classes *classes)
{
    legality->illegal |= classes->illegal;
    for (int i = 0; i < classes->count; i++)
        SBP_TRY(add_rule(space, legality, classes->of[i]));
    return SBP_OK;
}

static enum sbp_status add_op(struct sbp_space *space, struct sbp_legality *legality, int variable,
                              int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_tensor *tensor = space->graph->tensor;
    struct split_classes classes = {.count = 0};
    for (int own = 0; own < space->variable[variable].role_count; own++) {
        const struct sbp_role *role = &node->entry->role[space->op_role[op][own]];
        for (int i = 0; i < node->input_count; i++)
            note_split(&classes, &tensor[node->input[i]].shape, role->input[i], own);
        for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
            note_split(&classes, &tensor[node->weight[w]].shape, role->weight[w], own);
        if (node->output >= 0)
            note_split(&classes, &tensor[node->output].shape, role->output, own);
    }
    legality->fix[legality->op_count] = sbp_space_fix(space, op);
    legality->op[legality->op_count++] = op;
    return add_rules(space, legality, &classes);
}

/* A rest must suit its tensor and every tensor that followers leave in the same state. */
static enum sbp_status add_tensor(struct sbp_space *space, struct sbp_legality *legality,
                                  int variable, int tensor)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    struct split_classes classes = {.count = 0};
    for (int r = 0; r < v->role_count; r++)
        note_split(&classes, &space->graph->tensor[tensor].shape, v->state[r], r);
    return add_rules(space, legality, &classes);
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

enum sbp_status sbp_space_make_legality(struct sbp_space *space, int variable,
                                        struct sbp_legality *legality)
{
    const struct sbp_graph *graph = space->graph;
    const struct sbp_list *ops = &space->links.ops, *tensors = &space->links.tensors;
    int sites = 0;
    for (int op = ops->first[variable]; op >= 0; op = ops->next[op])
        sites += graph->op[op].site == op;
    *legality = (struct sbp_legality){
        .op = SBP_NEW(&space->arena, int, sites),
        .fix = SBP_NEW(&space->arena, const struct sbp_fix *, sites),
        .rest_fix = sbp_space_rest_fix(space, variable),
    };
    if (legality->op == NULL || legality->fix == NULL)
        return SBP_E_MEMORY;
    for (int r = 0; r < space->variable[variable].role_count; r++)
        legality->batch |= splits_batch(space, variable, r) ? 1u << r : 0;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        legality->mirror |= space->variable[variable].state[r].kind == SBP_MIRRORED ? 1u << r : 0;
    for (int op = ops->first[variable]; op >= 0; op = ops->next[op])
        if (graph->op[op].site == op)
            SBP_TRY(add_op(space, legality, variable, op));
    for (int t = tensors->first[variable]; t >= 0 && space->variable[variable].op < 0;
         t = tensors->next[t])
        SBP_TRY(add_tensor(space, legality, variable, t));
    return SBP_OK;
}

/* The shape of all axes that the tuple under trial gives to some roles. */
static int shape_of(const struct sbp_space *space, const uint8_t *count, unsigned roles)
{
    int shape = 0;
    for (int r = 0; r < SBP_MAX_ROLES && roles >> r != 0; r++)
        for (int f = 0; f < space->mesh->family_count && roles >> r & 1; f++)
            shape += count[f * SBP_MAX_ROLES + r] * space->shapes->stride[f];
    return shape;
}

static bool is_within(const struct sbp_space *space, int shape, const struct sbp_class_limit *limit)
{
    bool within = space->shapes->size[shape] <= (double)limit->parts;
    for (int f = 0; f < space->mesh->family_count && within; f++)
        within =
            limit->axes[f] == SBP_ANY_AXES ||
            shape / space->shapes->stride[f] % (space->mesh->family[f].count + 1) <= limit->axes[f];
    return within;
}

static bool obeys_rule(const struct sbp_space *space, const struct sbp_class_rule *rule, int shape)
{
    const int64_t parts = (int64_t)space->shapes->size[shape];
    return space->graph->dim_class[rule->dim_class].size % parts == 0 &&
           is_within(space, shape, &space->class_limit[rule->dim_class]);
}

bool sbp_space_divides(const struct sbp_space *space, int variable,
                       const struct sbp_legality *legality, unsigned roles)
{
    const uint8_t *count =
        sbp_tuple_count(space, variable, space->variable[variable].tuple_count, 0);
    if ((legality->illegal & roles) != 0 && shape_of(space, count, legality->illegal & roles) > 0)
        return false;
    for (int i = 0; i < legality->rule_count; i++) {
        const struct sbp_class_rule *rule = &legality->rule[i];
        if ((rule->roles & roles) != 0 &&
            !obeys_rule(space, rule, shape_of(space, count, rule->roles)))
            return false;
    }
    return true;
}

/* If all axes together divide a class within its limits, so does any part of them: such a rule
 * needs no check. */
enum sbp_status sbp_space_find_binding(struct sbp_space_maker *maker)
{
    struct sbp_space *const space = maker->space;
    const struct sbp_legality *const legality = &maker->legality;
    const int shapes = space->shapes->count;
    maker->binding = 0;
    maker->rule = SBP_TAKE(&space->arena, const struct sbp_class_rule *, legality->rule_count + 1);
    if (maker->rule == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < legality->rule_count; i++)
        if (!obeys_rule(space, &legality->rule[i], shapes - 1))
            maker->rule[maker->binding++] = &legality->rule[i];
    maker->verdict = SBP_NEW(&space->arena, uint8_t, (size_t)maker->binding * (size_t)shapes + 1);
    return maker->verdict == NULL ? SBP_E_MEMORY : SBP_OK;
}

enum { OBEYED = 1, BROKEN };

bool sbp_space_add_shapes(struct sbp_space_maker *maker, const int *before, const int *way,
                          int *shape)
{
    uint8_t *verdict = maker->verdict;
    for (int i = 0; i < maker->binding; i++, verdict += maker->space->shapes->count) {
        shape[i] = before[i] + way[i];
        if (verdict[shape[i]] == 0)
            verdict[shape[i]] =
                obeys_rule(maker->space, maker->rule[i], shape[i]) ? OBEYED : BROKEN;
        if (verdict[shape[i]] == BROKEN)
            return false;
    }
    return true;
}

/* ---- fixes and order ------------------------------------------------------------------------ */

/* The factor of a role at a level in the tuple under trial. */
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

/* The variable's role for an operator's own role; -1: the operator never plays it. */
static int variable_role(const struct sbp_space *space, int variable, int op, int role)
{
    for (int r = 0; r < space->variable[variable].role_count; r++)
        if (space->op_role[op][r] == role)
            return r;
    return -1;
}

static bool obeys_fix(const struct sbp_space *space, int variable, int op,
                      const struct sbp_fix *fix, const uint8_t *count)
{
    for (int role = 0; fix != NULL && role < sbp_space_entry(space->graph, op)->role_count;
         role++) {
        const int r = variable_role(space, variable, op, role);
        for (int level = 0; level < space->mesh->level_count; level++) {
            const int64_t want = fix->factor[role][level];
            if (want != SBP_ANY && (r < 0 ? 1 : level_factor(space, count, r, level)) != want)
                return false;
        }
    }
    return true;
}

static bool obeys_rest_fix(const struct sbp_space *space, const struct sbp_fix *fix,
                           const uint8_t *count)
{
    for (int r = 0; fix != NULL && r < SBP_REST_STATES; r++)
        for (int level = 0; level < space->mesh->level_count; level++)
            if (level_factor(space, count, r, level) != fix->rest[r][level])
                return false;
    return true;
}

/* Head axes must stand outside of axes that split queries alone; within a family labels see to it.
 */
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

bool sbp_space_obeys_batch(const struct sbp_space *space, int variable,
                           const struct sbp_legality *legality, int family)
{
    const uint8_t *count =
        sbp_tuple_count(space, variable, space->variable[variable].tuple_count, family);
    int axes = 0;
    if (space->request->batch_axes == NULL || legality->batch == 0)
        return true;
    for (int r = 0; r < space->variable[variable].role_count; r++)
        axes += legality->batch >> r & 1 ? count[r] : 0;
    return axes == space->request->batch_axes[family];
}

/* Whether all of a level's axes are mirrored, or none. */
static bool mirrors_levels(const struct sbp_space *space, const struct sbp_legality *legality,
                           const uint8_t *count)
{
    int axes[SBP_MAX_LEVELS] = {0}, mirrored[SBP_MAX_LEVELS] = {0};
    for (int f = 0; f < space->mesh->family_count && legality->mirror != 0; f++) {
        const struct sbp_family *family = &space->mesh->family[f];
        axes[family->level] += family->count;
        for (int r = 0; legality->mirror >> r != 0; r++)
            mirrored[family->level] += legality->mirror >> r & 1 ? count[f * SBP_MAX_ROLES + r] : 0;
    }
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        if (mirrored[level] != 0 && mirrored[level] != axes[level])
            return false;
    return true;
}

/* ---- the whole tuple ------------------------------------------------------------------------ */

/* Whether the tuple under trial suits an operator that it decides. */
static bool suits_op(const struct sbp_space *space, int variable,
                     const struct sbp_legality *legality, int i, const uint8_t *count)
{
    const int op = legality->op[i];
    const int64_t most = space->request->asked.max_batch_split;
    if (most > 0 && space->graph->op[op].weight_count > 0 &&
        space->shapes->size[shape_of(space, count, legality->batch)] > (double)most)
        return false;
    return heads_stand_outside(space, op, count) &&
           obeys_fix(space, variable, op, legality->fix[i], count);
}

bool sbp_space_may_be_illegal(const struct sbp_space *space, int variable,
                              const struct sbp_legality *legality)
{
    bool may = (legality->mirror & space->variable[variable].allowed) != 0 ||
               legality->rest_fix != NULL || space->request->asked.max_batch_split > 0;
    for (int i = 0; i < legality->op_count; i++)
        may |= legality->fix[i] != NULL ||
               space->graph->op[legality->op[i]].kind == SBP_OP_GROUPED_ATTENTION;
    return may;
}

bool sbp_space_is_legal(const struct sbp_space *space, int variable,
                        const struct sbp_legality *legality)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const uint8_t *count = sbp_tuple_count(space, variable, v->tuple_count, 0);
    if (!mirrors_levels(space, legality, count) ||
        !obeys_rest_fix(space, legality->rest_fix, count))
        return false;
    for (int i = 0; i < legality->op_count; i++)
        if (!suits_op(space, variable, legality, i, count))
            return false;
    return true;
}
