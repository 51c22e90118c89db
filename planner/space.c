#include "planner/space.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* What is needed only while the space is built. */
struct maker {
    struct sbp_space *space;
    const struct sbp_plan *plan;
    const struct sbp_megatron_mesh *megatron;
    struct sbp_diag *diag;
    bool *row_linear; /* (op_count) megatron: this linear is split by rows */
    int64_t *sizes;   /* (class_count) of the classes: limits that limit nothing */
};

/* States of a rest variable: splits, which are always there, B and P. */
enum { SPLIT_RESTS = SBP_DIM_FEATURE + 1, REST_WHOLE = SPLIT_RESTS, REST_PARTIAL };

static const struct sbp_op_entry *entry_of(const struct sbp_graph *graph, int op)
{
    return graph->op[op].entry;
}

/* ---- roles ---------------------------------------------------------------------------------- */

static const struct sbp_fix *fix_of(const struct sbp_space *space, int op)
{
    for (int i = 0; op >= 0 && i < space->request->fix_count; i++)
        if (strcmp(space->request->fix[i].layer, space->graph->op[op].name) == 0)
            return &space->request->fix[i];
    return NULL;
}

/* An operator's own roles that a fix asks for; bit r for role r. */
static unsigned fixed_roles(const struct sbp_space *space, int op)
{
    const struct sbp_fix *fix = fix_of(space, space->graph->op[op].site);
    unsigned roles = 0;
    for (int r = 0; fix != NULL && r < entry_of(space->graph, op)->role_count; r++)
        for (int level = 0; level < space->mesh->level_count; level++)
            if (fix->factor[r][level] > 1)
                roles |= 1u << r;
    return roles;
}

/* Whether the space lets an operator play a role of its own accord. Spare roles are searched where
 * a fix names them. */
static bool may_play(const struct sbp_space *space, int op, int role)
{
    const struct sbp_role *entry = &entry_of(space->graph, op)->role[role];
    switch (space->request->space) {
    case SBP_SPACE_DATA_PARALLEL:
        return strcmp(entry->name, "batch") == 0;
    case SBP_SPACE_FULL:
        return !entry->spare || (fixed_roles(space, op) >> role & 1);
    default:
        return entry->paper;
    }
}

int sbp_space_zero(const struct sbp_space *space, int op)
{
    const struct sbp_fix *fix = fix_of(space, space->graph->op[op].site);
    return fix != NULL && fix->zero != SBP_ANY ? fix->zero : (int)space->parallel->zero;
}

bool sbp_space_query_roles(const struct sbp_op_node *node, int *head, int *query)
{
    *head = sbp_op_role(node->entry, "head");
    *query = sbp_op_role(node->entry, "query");
    return node->kind == SBP_OP_GROUPED_ATTENTION;
}

/* ---- variables and what they stand for ------------------------------------------------------ */

static int add_variable(struct sbp_space *space, int op, int tensor)
{
    struct sbp_space_variable *variable = &space->variable[space->variable_count];
    *variable = (struct sbp_space_variable){.op = op, .tensor = tensor};
    if (op >= 0) {
        const struct sbp_op_entry *entry = entry_of(space->graph, op);
        variable->role_count = entry->role_count;
        for (int r = 0; r < entry->role_count; r++)
            variable->state[r] = entry->role[r].output;
    } else {
        variable->role_count = SPLIT_RESTS;
        for (int dim = 0; dim <= SBP_DIM_FEATURE; dim++)
            variable->state[dim] = SBP_STATE_S((uint8_t)dim);
        variable->state[REST_WHOLE] = SBP_STATE_B;
        variable->state[REST_PARTIAL] = SBP_STATE_P;
    }
    return space->variable_count++;
}

/* The embedding that a tied linear shares its weight with; -1. */
static int tied_to(const struct sbp_graph *graph, int op)
{
    if (!graph->op[op].transposed_weight)
        return -1;
    for (int other = 0; other < graph->op_count; other++)
        if (graph->op[other].kind == SBP_OP_EMBEDDING &&
            graph->op[other].weight[0] == graph->op[op].weight[0])
            return other;
    return -1;
}

/* A tied head plays the transposed roles: the embedding's column (hidden) is the head's row, its
 * vocabulary the head's column. */
static void tie_roles(struct sbp_space *space, int op, int embedding)
{
    const struct sbp_op_entry *linear = entry_of(space->graph, op);
    const struct sbp_op_entry *table = entry_of(space->graph, embedding);
    for (uint8_t r = 0; r < table->role_count; r++) {
        struct sbp_state want = table->role[r].weight[0];
        if (want.kind == SBP_SPLIT)
            want.dim = want.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
        for (uint8_t k = 0; k < linear->role_count; k++) {
            const bool same_weight = sbp_state_equal(linear->role[k].weight[0], want);
            const bool same_name = strcmp(linear->role[k].name, table->role[r].name) == 0;
            if (same_weight && (want.kind == SBP_SPLIT || same_name))
                space->op_role[op][r] = k;
        }
    }
}

static void assign_op(struct sbp_space *space, int op)
{
    const struct sbp_graph *graph = space->graph;
    const int site = graph->op[op].site, embedding = tied_to(graph, op);
    for (uint8_t r = 0; r < SBP_MAX_ROLES; r++)
        space->op_role[op][r] = r;
    if (site != op) {
        space->op_variable[op] = space->op_variable[site];
    } else if (embedding >= 0) {
        space->op_variable[op] = space->op_variable[embedding];
        tie_roles(space, op, embedding);
    } else {
        space->op_variable[op] = add_variable(space, op, -1);
    }
}

/* Whether an operator can leave its output partial, or is told where it rests, so that a rest state
 * must be chosen. */
static bool chooses_rest(const struct sbp_space *space, int op)
{
    const struct sbp_op_entry *entry = entry_of(space->graph, op);
    const struct sbp_fix *fix = fix_of(space, space->graph->op[op].site);
    if (fix != NULL && fix->rests)
        return true;
    for (int r = 0; r < entry->role_count; r++)
        if (entry->role[r].output.kind == SBP_PARTIAL &&
            (!entry->role[r].spare || may_play(space, op, r)))
            return true;
    return false;
}

static void assign_slot(struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_op_entry *entry = entry_of(space->graph, op);
    if (entry->follows) {
        int *input = &space->slot[node->input[0]];
        if (*input < 0) /* the model's free input rests somewhere after all */
            *input = add_variable(space, -1, node->input[0]);
        if (node->output >= 0)
            space->slot[node->output] = *input;
    } else if (!chooses_rest(space, op)) {
        space->slot[node->output] = space->op_variable[op];
    } else if (node->site != op) {
        space->slot[node->output] = space->slot[space->graph->op[node->site].output];
    } else {
        const int rest = add_variable(space, -1, node->output);
        space->slot[node->output] = rest;
        space->keep[space->keep_count++] = (struct sbp_keep){
            .op_variable = space->op_variable[op], .rest_variable = rest, .op = op};
    }
}

/* Notes an input's way in; equal ones of repeated layers are counted together. */
static void add_transfer(struct sbp_space *space, int op, int input)
{
    const int tensor = space->graph->op[op].input[input];
    if (tensor == space->graph->input && !space->graph->input_split)
        return;
    const int from = space->slot[tensor], to = space->op_variable[op];
    const int site = space->graph->op[op].site;
    for (int i = 0; i < space->transfer_count; i++) {
        struct sbp_transfer *known = &space->transfer[i];
        if (known->from == from && known->to == to && known->input == input &&
            space->graph->op[known->op].site == site) {
            known->repeats++;
            return;
        }
    }
    space->transfer[space->transfer_count++] = (struct sbp_transfer){
        .from = from, .to = to, .op = op, .input = input, .tensor = tensor, .repeats = 1};
}

static void connect(struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    for (int t = 0; t < graph->tensor_count; t++)
        space->slot[t] = -1;
    if (graph->input >= 0 && graph->input_split)
        space->slot[graph->input] = add_variable(space, -1, graph->input);
    for (int op = 0; op < graph->op_count; op++) {
        space->op_variable[op] = -1;
        if (!entry_of(graph, op)->follows)
            assign_op(space, op);
        assign_slot(space, op);
    }
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; !entry_of(graph, op)->follows && i < graph->op[op].input_count; i++)
            add_transfer(space, op, i);
}

/* ---- domains -------------------------------------------------------------------------------- */

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

struct sbp_state sbp_space_output_state(const struct sbp_space *space, int op, int role)
{
    return entry_of(space->graph, op)->role[space->op_role[op][role]].output;
}

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
    for (int role = 0; role < entry_of(space->graph, op)->role_count; role++) {
        const int r = variable_role(space, variable, op, role);
        for (int level = 0; level < space->mesh->level_count; level++) {
            const int64_t want = fix->factor[role][level];
            if (want != SBP_ANY && (r < 0 ? 1 : level_factor(space, count, r, level)) != want)
                return false;
        }
    }
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
    const struct sbp_fix *fix = fix_of(space, op);
    const uint8_t *count = sbp_space_count(space, variable, choice, 0);
    return heads_stand_outside(space, op, count) &&
           (fix == NULL || obeys_fix(space, fix, variable, op, count));
}

/* The fix that says where a rest variable's tensor rests; NULL. */
static const struct sbp_fix *rest_fix(const struct sbp_space *space, int variable)
{
    for (int k = 0; k < space->keep_count; k++) {
        const struct sbp_fix *fix = fix_of(space, space->keep[k].op);
        if (space->keep[k].rest_variable == variable && fix != NULL && fix->rests)
            return fix;
    }
    return NULL;
}

static bool obeys_rest_fix(const struct sbp_space *space, int variable)
{
    const struct sbp_fix *fix = rest_fix(space, variable);
    const struct sbp_space_variable *v = &space->variable[variable];
    const uint8_t *count = sbp_space_count(space, variable, v->choice_count, 0);
    for (int r = 0; fix != NULL && r < SBP_REST_STATES; r++)
        for (int level = 0; level < space->mesh->level_count; level++)
            if (level_factor(space, count, r, level) != fix->rest[r][level])
                return false;
    return true;
}

static bool splits_batch(const struct sbp_space *space, int variable, int role)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    if (v->op < 0)
        return sbp_state_equal(v->state[role], SBP_STATE_S(SBP_DIM_BATCH));
    const struct sbp_role *played = &entry_of(space->graph, v->op)->role[role];
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

static bool choice_is_legal(const struct sbp_space *space, int variable)
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

/* Roles that every operator of a variable plays together; bit r for role r of the variable. */
static unsigned allowed_roles(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    unsigned allowed = 0;
    for (int op = v->op; op < space->graph->op_count; op++)
        for (int r = 0; space->op_variable[op] == variable && r < v->role_count; r++)
            if (may_play(space, op, space->op_role[op][r]))
                allowed |= 1u << r;
    return allowed;
}

/* Splits that the space lets tensors rest in. */
static unsigned allowed_splits(const struct sbp_space *space)
{
    switch (space->request->space) {
    case SBP_SPACE_DATA_PARALLEL:
        return 1u << SBP_DIM_BATCH;
    case SBP_SPACE_FULL:
        return 1u << SBP_DIM_BATCH | 1u << SBP_DIM_SEQUENCE | 1u << SBP_DIM_FEATURE;
    default:
        return 1u << SBP_DIM_BATCH | 1u << SBP_DIM_FEATURE;
    }
}

/* Whether an operator can run where its input rests in a state. */
static bool follows_in(const struct sbp_op_entry *entry, struct sbp_state state)
{
    for (int r = 0; r < entry->role_count; r++)
        if (sbp_state_equal(entry->role[r].input[0], state))
            return true;
    return false;
}

/* Whether a variable's operators may leave what rests in `slot` in a state. */
static bool is_left_in(const struct sbp_space *space, int slot, enum sbp_kind kind)
{
    for (int k = 0; k < space->keep_count; k++) {
        const struct sbp_keep *keep = &space->keep[k];
        const struct sbp_space_variable *v = &space->variable[keep->op_variable];
        for (int r = 0; keep->rest_variable == slot && r < v->role_count; r++)
            if (v->allowed >> r & 1 && sbp_space_output_state(space, keep->op, r).kind == kind)
                return true;
    }
    return false;
}

/* Whether a reader may take partial sums. */
static bool is_read_partial(const struct sbp_space *space, int slot)
{
    for (int i = 0; i < space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        const struct sbp_space_variable *v = &space->variable[transfer->to];
        const struct sbp_op_entry *entry = entry_of(space->graph, transfer->op);
        for (int r = 0; transfer->from == slot && r < v->role_count; r++)
            if (v->allowed >> r & 1 &&
                entry->role[space->op_role[transfer->op][r]].input[transfer->input].kind ==
                    SBP_PARTIAL)
                return true;
    }
    return false;
}

/* States in which every operator that follows its input can run; bit r for a rest's state r. */
static unsigned followed_states(const struct sbp_space *space, int slot)
{
    unsigned states = ~0u;
    for (int op = 0; op < space->graph->op_count; op++)
        for (int r = 0; entry_of(space->graph, op)->follows &&
                        space->slot[space->graph->op[op].input[0]] == slot && r < SBP_REST_STATES;
             r++)
            if (!follows_in(entry_of(space->graph, op), space->variable[slot].state[r]))
                states &= ~(1u << r);
    return states;
}

/* States that a rest variable may take: those that are asked for; else splits, B where its operator
 * leaves it so, and P where a reader goes on with partial sums (OneFlow, section 3.3). */
static unsigned allowed_rests(const struct sbp_space *space, int slot)
{
    unsigned allowed = allowed_splits(space);
    if (is_left_in(space, slot, SBP_BROADCAST))
        allowed |= 1u << REST_WHOLE;
    if (is_left_in(space, slot, SBP_PARTIAL) && is_read_partial(space, slot))
        allowed |= 1u << REST_PARTIAL;
    if (rest_fix(space, slot) != NULL)
        allowed = (1u << SBP_REST_STATES) - 1;
    return allowed & followed_states(space, slot);
}

/* Where nothing divides an operator, its work may be repeated, or attention split by context: spare
 * roles that leave no partial sums. Where nothing divides what rests, it rests whole. */
static unsigned last_resorts(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    unsigned roles = 0;
    if (v->op < 0)
        return space->request->space == SBP_SPACE_FULL && rest_fix(space, variable) == NULL
                   ? 1u << REST_WHOLE & followed_states(space, variable)
                   : 0;
    if (fix_of(space, v->op) != NULL)
        return 0;
    for (int r = 0; space->request->space == SBP_SPACE_FULL && r < v->role_count; r++)
        if (v->state[r].kind != SBP_PARTIAL && entry_of(space->graph, v->op)->role[r].spare)
            roles |= 1u << r;
    return roles;
}

/* Megatron: the one role besides batch that a variable plays, the first of these that it has. */
static int megatron_role(const struct maker *maker, int variable)
{
    static const char *const NAMES[] = {"vocab",   "head",    "column",
                                        "feature", "channel", "grid_column"};
    const struct sbp_space_variable *v = &maker->space->variable[variable];
    if (v->op < 0)
        return SBP_DIM_FEATURE;
    const struct sbp_op_entry *entry = entry_of(maker->space->graph, v->op);
    if (maker->row_linear[v->op])
        return sbp_op_role(entry, "row");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (sbp_op_role(entry, NAMES[i]) >= 0)
            return sbp_op_role(entry, NAMES[i]);
    return 0;
}

/* Grows a domain by the choice in its trial row, once per tag. */
static enum sbp_status accept_choice(struct maker *maker, int variable, int *capacity)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    const bool tags = space->request->boxing == SBP_BOXING_PAPER && v->op < 0;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    for (int tag = tags ? SBP_REST_FEATURE : SBP_REST_ANY;
         tag <= (tags ? SBP_REST_BATCH : SBP_REST_ANY); tag++) {
        if (v->choice_count + 2 > *capacity) {
            *capacity = 2 * *capacity + 64;
            uint8_t *count = SBP_NEW(&space->arena, uint8_t, (size_t)*capacity * row + 1);
            uint8_t *tag_of = SBP_NEW(&space->arena, uint8_t, *capacity);
            if (count == NULL || tag_of == NULL)
                return SBP_E_MEMORY;
            memcpy(count, v->count, (size_t)(v->choice_count + 1) * row);
            memcpy(tag_of, v->tag, (size_t)v->choice_count);
            v->count = count;
            v->tag = tag_of;
        }
        v->tag[v->choice_count] = (uint8_t)tag;
        memcpy(v->count + (size_t)(v->choice_count + 1) * row,
               v->count + (size_t)v->choice_count * row, row);
        v->choice_count++;
    }
    return SBP_OK;
}

/* All ways to hand the axes of family f and later ones to the allowed roles. */
static enum sbp_status enumerate(struct maker *maker, int variable, unsigned allowed, int family,
                                 int role, int left, int *capacity)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    if (sbp_space_interrupted(space))
        return SBP_STOPPED;
    if (family == space->mesh->family_count)
        return choice_is_legal(space, variable) ? accept_choice(maker, variable, capacity) : SBP_OK;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    const size_t at = (size_t)family * SBP_MAX_ROLES + (size_t)role;
    const bool last = allowed >> role >> 1 == 0;
    const int next_family = last ? family + 1 : family;
    const int next_role = last ? 0 : role + 1;
    for (int count = last ? left : 0; count <= left; count++) {
        if (count > 0 && !(allowed >> role & 1))
            break;
        v->count[(size_t)v->choice_count * row + at] = (uint8_t)count;
        const int next_left =
            last ? (next_family < space->mesh->family_count ? space->mesh->family[next_family].count
                                                            : 0)
                 : left - count;
        SBP_TRY(enumerate(maker, variable, allowed, next_family, next_role, next_left, capacity));
        v->count[(size_t)v->choice_count * row + at] = 0;
    }
    return SBP_OK;
}

static enum sbp_status single_megatron_choice(struct maker *maker, int variable, int *capacity)
{
    struct sbp_space *space = maker->space;
    uint8_t *count = space->variable[variable].count;
    const int op = space->variable[variable].op;
    const int named = op < 0 ? SBP_DIM_BATCH : sbp_op_role(entry_of(space->graph, op), "batch");
    const int batch = named < 0 ? 0 : named;
    const int role = megatron_role(maker, variable);
    for (int f = 0; f < space->mesh->family_count; f++) {
        count[f * SBP_MAX_ROLES + batch] = (uint8_t)maker->megatron->batch[f];
        count[f * SBP_MAX_ROLES + role] =
            (uint8_t)(space->mesh->family[f].count - maker->megatron->batch[f]);
    }
    return choice_is_legal(space, variable) ? accept_choice(maker, variable, capacity) : SBP_OK;
}

/* "batch 4, sequence 64, hidden 768": what the variable's tensor could be split by. */
static const char *splittable_sizes(const struct sbp_space *space,
                                    const struct sbp_space_variable *v, char *text, int size)
{
    const struct sbp_op_node *node = v->op >= 0 ? &space->graph->op[v->op] : NULL;
    const int of_op = node == NULL ? -1 : node->input_count > 0 ? node->input[0] : node->output;
    const struct sbp_shape *shape = &space->graph->tensor[node == NULL ? v->tensor : of_op].shape;
    int used = 0;
    text[0] = '\0';
    for (int dim = 0; dim < SBP_MAX_DIMS && used < size; dim++)
        if (shape->dim_class[dim] != SBP_NO_CLASS && shape->size[dim] > 1)
            used += snprintf(text + used, (size_t)(size - used), "%s%s %lld", used > 0 ? ", " : "",
                             space->graph->dim_class[shape->dim_class[dim]].name,
                             (long long)shape->size[dim]);
    return text;
}

static enum sbp_status refuse_empty(const struct maker *maker, int variable)
{
    const struct sbp_space *space = maker->space;
    const struct sbp_space_variable *v = &space->variable[variable];
    const char *name =
        v->op >= 0 ? space->graph->op[v->op].name : space->graph->tensor[v->tensor].name;
    const struct sbp_fix *fix = fix_of(space, v->op);
    if (rest_fix(space, variable) != NULL)
        return sbp_fail(maker->diag, SBP_E_INPUT,
                        "fix: %s: its output cannot rest like this: a level's factors multiply to "
                        "its size, splits divide the output's sizes, and operators that follow it "
                        "run on splits and B",
                        rest_fix(space, variable)->layer);
    if (fix != NULL)
        return sbp_fail(maker->diag, SBP_E_INPUT,
                        "fix: %s: no legal strategy of space %s has these factors; a level's "
                        "factors multiply to its size and divide the layer's dimensions",
                        name, sbp_space_name(space->request->space));
    char sizes[128];
    return sbp_fail(maker->diag, SBP_E_INPUT,
                    "model: %s: no strategy of space %s splits it over %lld devices: the parts "
                    "that a split makes must divide the size (%s)",
                    name, sbp_space_name(space->request->space), (long long)space->mesh->devices,
                    splittable_sizes(space, v, sizes, (int)sizeof sizes));
}

static int axes_of_family(const struct sbp_mesh *mesh, int family)
{
    return family < mesh->family_count ? mesh->family[family].count : 0;
}

static enum sbp_status enumerate_all(struct maker *maker, int variable, unsigned allowed,
                                     int *capacity)
{
    maker->space->variable[variable].allowed = allowed;
    return enumerate(maker, variable, allowed, 0, 0, axes_of_family(maker->space->mesh, 0),
                     capacity);
}

/* Whether sizes alone, without limits on classes, leave nothing but the last resorts. */
static enum sbp_status lacks_choices(struct maker *maker, int variable, unsigned allowed,
                                     int *capacity, bool *lacks)
{
    struct sbp_space *space = maker->space;
    int64_t *const limits = space->class_limit;
    space->class_limit = maker->sizes;
    const enum sbp_status status = enumerate_all(maker, variable, allowed, capacity);
    space->class_limit = limits;
    *lacks = space->variable[variable].choice_count == 0;
    space->variable[variable].choice_count = 0;
    memset(space->variable[variable].count, 0, (size_t)space->mesh->family_count * SBP_MAX_ROLES);
    return status;
}

static enum sbp_status make_domain(struct maker *maker, int variable)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    int capacity = 64;
    bool lacks = false;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    v->count = SBP_NEW(&space->arena, uint8_t, (size_t)capacity * row + 1);
    v->tag = SBP_NEW(&space->arena, uint8_t, capacity);
    if (v->count == NULL || v->tag == NULL)
        return SBP_E_MEMORY;
    const unsigned allowed =
        v->op >= 0 ? allowed_roles(space, variable) : allowed_rests(space, variable);
    const unsigned resorts = maker->megatron != NULL ? 0 : last_resorts(space, variable);
    if (v->op < 0 && (allowed | resorts) >> SPLIT_RESTS != 0)
        v->role_count = SBP_REST_STATES;
    if (maker->megatron != NULL) {
        v->allowed = allowed;
        SBP_TRY(single_megatron_choice(maker, variable, &capacity));
    } else {
        SBP_TRY(enumerate_all(maker, variable, allowed, &capacity));
    }
    if (v->choice_count == 0 && resorts != 0) {
        SBP_TRY(lacks_choices(maker, variable, allowed, &capacity, &lacks));
        if (lacks)
            SBP_TRY(enumerate_all(maker, variable, allowed | resorts, &capacity));
    }
    if (v->op < 0 && v->allowed >> SPLIT_RESTS == 0)
        v->role_count = SPLIT_RESTS;
    for (int r = 0; r < v->role_count; r++)
        v->rests_whole |= v->allowed >> r & 1 && v->state[r].kind != SBP_SPLIT;
    return v->choice_count > 0 ? SBP_OK : refuse_empty(maker, variable);
}

/* Operators first: where outputs may rest depends on what they and their readers may play. */
static enum sbp_status make_domains(struct maker *maker)
{
    for (int pass = 0; pass < 2; pass++)
        for (int v = 0; v < maker->space->variable_count; v++)
            if ((maker->space->variable[v].op >= 0) == (pass == 0))
                SBP_TRY(make_domain(maker, v));
    return SBP_OK;
}

/* ---- assembly ------------------------------------------------------------------------------- */

static bool is_split_by_column(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_LINEAR || node->kind == SBP_OP_CONV2D;
}

/* Operators that leave the features' split of their first input alone. */
static bool keeps_features(const struct sbp_op_node *node)
{
    switch (node->kind) {
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
    case SBP_OP_MAXPOOL:
    case SBP_OP_AVGPOOL:
    case SBP_OP_FLATTEN:
    case SBP_OP_BATCHNORM:
        return true;
    default:
        return node->entry->follows && node->weight_count == 0;
    }
}

/* Megatron's pairs: a linear fed by a column-split one, through operators that keep the split, is
 * split by rows; others by columns. */
static void pair_linears(struct maker *maker)
{
    const struct sbp_graph *graph = maker->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        if (!is_split_by_column(&graph->op[op]))
            continue;
        int at = graph->tensor[graph->op[op].input[0]].producer;
        while (at >= 0 && graph->op[at].input_count > 0 && keeps_features(&graph->op[at]))
            at = graph->tensor[graph->op[at].input[0]].producer;
        maker->row_linear[op] =
            at >= 0 && is_split_by_column(&graph->op[at]) && !maker->row_linear[at];
    }
}

static enum sbp_status check_fixes(const struct sbp_space *space, struct sbp_diag *diag)
{
    for (int i = 0; i < space->request->fix_count; i++) {
        bool found = false;
        for (int op = 0; op < space->graph->op_count && !found; op++)
            found = strcmp(space->graph->op[op].name, space->request->fix[i].layer) == 0 &&
                    space->op_variable[op] >= 0 && space->graph->op[op].site == op;
        if (!found)
            return sbp_fail(diag, SBP_E_INPUT,
                            "fix: %s: no layer of this name chooses a strategy of its own",
                            space->request->fix[i].layer);
    }
    return SBP_OK;
}

/* Roles and rests that are given together must go together. */
static enum sbp_status check_rests(const struct sbp_space *space, struct sbp_diag *diag)
{
    for (int k = 0; k < space->keep_count; k++) {
        const struct sbp_keep *keep = &space->keep[k];
        const int rests = space->variable[keep->rest_variable].choice_count;
        bool found = rest_fix(space, keep->rest_variable) == NULL;
        for (int c = 0; c < space->variable[keep->op_variable].choice_count && !found; c++)
            for (int r = 0; r < rests && !found; r++)
                found = sbp_space_can_rest(space, keep, c, r);
        if (!found)
            return sbp_fail(diag, SBP_E_INPUT,
                            "fix: %s: its output cannot rest like this: splits stay or rest B, "
                            "partial sums rest split, B or P, what is whole rests B or split",
                            space->graph->op[keep->op].name);
    }
    return SBP_OK;
}

static enum sbp_status allocate(struct maker *maker, const int64_t *class_limit)
{
    struct sbp_space *space = maker->space;
    const struct sbp_graph *graph = space->graph;
    const int ops = graph->op_count;
    space->variable = SBP_NEW(&space->arena, struct sbp_space_variable, 2 * ops + 2);
    space->transfer = SBP_NEW(&space->arena, struct sbp_transfer, SBP_MAX_INPUTS * ops + 1);
    space->keep = SBP_NEW(&space->arena, struct sbp_keep, ops + 1);
    space->op_variable = SBP_NEW(&space->arena, int, ops + 1);
    space->slot = SBP_NEW(&space->arena, int, graph->tensor_count + 1);
    space->first_user = SBP_NEW(&space->arena, int, graph->tensor_count + 1);
    space->class_limit = SBP_NEW(&space->arena, int64_t, graph->class_count + 1);
    uint8_t *roles = SBP_NEW(&space->arena, uint8_t, (ops + 1) * SBP_MAX_ROLES);
    maker->row_linear = SBP_NEW(&space->arena, bool, ops + 1);
    maker->sizes = SBP_NEW(&space->arena, int64_t, graph->class_count + 1);
    if (space->variable == NULL || space->transfer == NULL || space->keep == NULL ||
        space->op_variable == NULL || space->slot == NULL || space->first_user == NULL ||
        space->class_limit == NULL || roles == NULL || maker->row_linear == NULL ||
        maker->sizes == NULL)
        return SBP_E_MEMORY;
    for (int op = ops - 1; op >= 0; op--)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            space->first_user[graph->op[op].weight[w]] = op;
    space->op_role = (uint8_t(*)[SBP_MAX_ROLES])roles;
    for (int c = 0; c < graph->class_count; c++) {
        maker->sizes[c] = graph->dim_class[c].size;
        space->class_limit[c] = class_limit != NULL ? class_limit[c] : maker->sizes[c];
    }
    return SBP_OK;
}

static enum sbp_status build(struct maker *maker, const int64_t *class_limit)
{
    struct sbp_space *space = maker->space;
    if (space->request->boxing == SBP_BOXING_PAPER && space->request->space == SBP_SPACE_FULL)
        return sbp_fail(maker->diag, SBP_E_USAGE,
                        "--set boxing=paper: the paper's rule knows batch and feature splits only, "
                        "legal with --space autoddl, megatron and data-parallel");
    SBP_TRY(allocate(maker, class_limit));
    pair_linears(maker);
    connect(space);
    SBP_TRY(check_fixes(space, maker->diag));
    SBP_TRY(make_domains(maker));
    return check_rests(space, maker->diag);
}

/* Micro-batches whose activations the first stage keeps at a time, about. */
static double in_flight(const struct sbp_parallel *parallel, double micro_batches)
{
    if (parallel->schedule == SBP_GPIPE)
        return micro_batches;
    const double limit = parallel->pipeline_limit > 0 ? (double)parallel->pipeline_limit
                                                      : (double)parallel->pipeline;
    return fmin(micro_batches, limit);
}

static void weigh(struct sbp_space *space, const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const double stages = (double)parallel->pipeline;
    space->parallel = parallel;
    space->micro_batches = sbp_parallel_micro_batches(parallel, &plan->graph);
    space->micro_weight =
        ((double)space->micro_batches + (stages - 1) / (double)parallel->chunks) / stages;
    space->step_weight = 1 / stages;
    space->kept_weight = in_flight(parallel, (double)space->micro_batches) / stages;
    if (space->request->objective == SBP_STEP_TIME && !space->request->nothing_hides)
        space->hidden_share = parallel->gradient_overlap >= 0 ? parallel->gradient_overlap
                                                              : plan->cluster.gradient_overlap;
}

enum sbp_status sbp_space_make(const struct sbp_plan *plan, const struct sbp_request *request,
                               const int64_t *class_limit, const struct sbp_megatron_mesh *megatron,
                               struct sbp_space *space, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&plan->graph.precision);
    *space = (struct sbp_space){.graph = &plan->graph,
                                .cluster = &plan->stage,
                                .mesh = &plan->mesh,
                                .request = request,
                                .pricing = sbp_pricing_make(&plan->graph, &plan->stage, &bytes)};
    weigh(space, plan);
    struct maker maker = {.space = space, .plan = plan, .megatron = megatron, .diag = diag};
    const enum sbp_status status = build(&maker, class_limit);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while enumerating strategies");
    if (status != SBP_OK)
        sbp_space_free(space);
    return status;
}

void sbp_space_free(struct sbp_space *space)
{
    if (space == NULL)
        return;
    sbp_arena_free(&space->arena);
    *space = (struct sbp_space){0};
}
