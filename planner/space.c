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
};

static const struct sbp_op_entry *entry_of(const struct sbp_graph *graph, int op)
{
    return graph->op[op].entry;
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
        variable->role_count = 3;
        for (int dim = 0; dim <= SBP_DIM_FEATURE; dim++)
            variable->state[dim] = SBP_STATE_S((uint8_t)dim);
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

/* Whether an operator can leave its output partial, so that a rest state must be chosen. */
static bool leaves_partial(const struct sbp_op_entry *entry)
{
    for (int r = 0; r < entry->role_count; r++)
        if (entry->role[r].output.kind == SBP_PARTIAL && !entry->role[r].spare)
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
    } else if (!leaves_partial(entry)) {
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

/* Whether the parts that roles make of a tensor's dimensions divide them and keep the limits. */
static bool divides(const struct sbp_space *space, const struct sbp_shape *shape, int roles,
                    const struct sbp_state *states, size_t stride,
                    const struct sbp_factors *factors)
{
    double parts[SBP_MAX_DIMS] = {1, 1, 1, 1};
    for (int r = 0; r < roles; r++) {
        const struct sbp_state state =
            *(const struct sbp_state *)((const char *)states + (size_t)r * stride);
        if (state.kind == SBP_SPLIT)
            parts[state.dim] *= factors->factor[r];
    }
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const int dim_class = shape->dim_class[dim];
        if (parts[dim] == 1)
            continue;
        if (dim_class == SBP_NO_CLASS || parts[dim] > (double)space->class_limit[dim_class] ||
            space->graph->dim_class[dim_class].size % (int64_t)parts[dim] != 0)
            return false;
    }
    return true;
}

static bool op_divides(const struct sbp_space *space, int op, const struct sbp_factors *factors)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const struct sbp_op_entry *entry = entry_of(space->graph, op);
    const size_t stride = sizeof(struct sbp_role);
    const struct sbp_tensor *tensor = space->graph->tensor;
    for (int i = 0; i < node->input_count; i++)
        if (!divides(space, &tensor[node->input[i]].shape, entry->role_count,
                     &entry->role[0].input[i], stride, factors))
            return false;
    for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
        if (!divides(space, &tensor[node->weight[w]].shape, entry->role_count,
                     &entry->role[0].weight[w], stride, factors))
            return false;
    return node->output < 0 || divides(space, &tensor[node->output].shape, entry->role_count,
                                       &entry->role[0].output, stride, factors);
}

/* A rest state must suit the tensor and every tensor that followers keep in the same state. */
static bool rest_divides(const struct sbp_space *space, int variable,
                         const struct sbp_factors *factors)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    for (int t = 0; t < space->graph->tensor_count; t++)
        if (space->slot[t] == variable && v->op < 0 &&
            !divides(space, &space->graph->tensor[t].shape, v->role_count, v->state,
                     sizeof(struct sbp_state), factors))
            return false;
    return true;
}

static const struct sbp_fix *fix_of(const struct sbp_space *space, int op)
{
    for (int i = 0; op >= 0 && i < space->request->fix_count; i++)
        if (strcmp(space->request->fix[i].layer, space->graph->op[op].name) == 0)
            return &space->request->fix[i];
    return NULL;
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

static bool obeys_fix(const struct sbp_space *space, const struct sbp_fix *fix, int op,
                      const uint8_t *count)
{
    for (int r = 0; r < entry_of(space->graph, op)->role_count; r++)
        for (int level = 0; level < space->mesh->level_count; level++) {
            const int64_t want = fix->factor[space->op_role[op][r]][level];
            if (want != SBP_ANY && level_factor(space, count, r, level) != want)
                return false;
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
    return fix == NULL || obeys_fix(space, fix, op, sbp_space_count(space, variable, choice, 0));
}

static bool choice_is_legal(const struct sbp_space *space, int variable)
{
    const int choice = space->variable[variable].choice_count;
    for (int op = 0; op < space->graph->op_count; op++)
        if (space->op_variable[op] == variable && space->graph->op[op].site == op &&
            !choice_suits_op(space, variable, op))
            return false;
    const struct sbp_factors factors = sbp_space_factors(space, variable, choice, -1);
    return rest_divides(space, variable, &factors);
}

/* Roles that the space lets a variable play; bit r for role r. */
static unsigned allowed_roles(const struct sbp_space *space, int variable)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const enum sbp_space_kind kind = space->request->space;
    if (kind == SBP_SPACE_DATA_PARALLEL)
        return 1;
    unsigned allowed = 0;
    for (int r = 0; r < v->role_count; r++) {
        const struct sbp_role *role = v->op >= 0 ? &entry_of(space->graph, v->op)->role[r] : NULL;
        const bool paper = role != NULL ? role->paper : r != SBP_DIM_SEQUENCE;
        if ((kind == SBP_SPACE_FULL && (role == NULL || !role->spare)) || paper)
            allowed |= 1u << r;
    }
    return allowed;
}

/* Megatron: the one role besides batch that a variable plays. */
static int megatron_role(const struct maker *maker, int variable)
{
    const struct sbp_space_variable *v = &maker->space->variable[variable];
    if (v->op < 0)
        return SBP_DIM_FEATURE;
    const struct sbp_op_entry *entry = entry_of(maker->space->graph, v->op);
    const char *name = "feature";
    if (maker->space->graph->op[v->op].kind == SBP_OP_LINEAR)
        name = maker->row_linear[v->op] ? "row" : "column";
    else if (maker->space->graph->op[v->op].kind == SBP_OP_EMBEDDING)
        name = "vocab";
    else if (maker->space->graph->op[v->op].kind == SBP_OP_ATTENTION)
        name = "head";
    for (int r = 0; r < entry->role_count; r++)
        if (strcmp(entry->role[r].name, name) == 0)
            return r;
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
    const int role = megatron_role(maker, variable);
    for (int f = 0; f < space->mesh->family_count; f++) {
        count[f * SBP_MAX_ROLES] = (uint8_t)maker->megatron->batch[f];
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

static enum sbp_status make_domain(struct maker *maker, int variable)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    int capacity = 64;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    v->count = SBP_NEW(&space->arena, uint8_t, (size_t)capacity * row + 1);
    v->tag = SBP_NEW(&space->arena, uint8_t, capacity);
    if (v->count == NULL || v->tag == NULL)
        return SBP_E_MEMORY;
    if (maker->megatron != NULL)
        SBP_TRY(single_megatron_choice(maker, variable, &capacity));
    else
        SBP_TRY(enumerate(maker, variable, allowed_roles(space, variable), 0, 0,
                          space->mesh->family_count > 0 ? space->mesh->family[0].count : 0,
                          &capacity));
    return v->choice_count > 0 ? SBP_OK : refuse_empty(maker, variable);
}

/* ---- assembly ------------------------------------------------------------------------------- */

/* Megatron's pairs: a linear fed by a column-split one, through element-wise operators or
 * attention, is split by rows; others by columns. */
static void pair_linears(struct maker *maker)
{
    const struct sbp_graph *graph = maker->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        if (graph->op[op].kind != SBP_OP_LINEAR)
            continue;
        int at = graph->tensor[graph->op[op].input[0]].producer;
        while (at >= 0 &&
               (graph->op[at].kind == SBP_OP_RELU || graph->op[at].kind == SBP_OP_GELU ||
                graph->op[at].kind == SBP_OP_DROPOUT || graph->op[at].kind == SBP_OP_ATTENTION))
            at = graph->tensor[graph->op[at].input[0]].producer;
        maker->row_linear[op] =
            at >= 0 && graph->op[at].kind == SBP_OP_LINEAR && !maker->row_linear[at];
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
    space->class_limit = SBP_NEW(&space->arena, int64_t, graph->class_count + 1);
    uint8_t *roles = SBP_NEW(&space->arena, uint8_t, (ops + 1) * SBP_MAX_ROLES);
    maker->row_linear = SBP_NEW(&space->arena, bool, ops + 1);
    if (space->variable == NULL || space->transfer == NULL || space->keep == NULL ||
        space->op_variable == NULL || space->slot == NULL || space->class_limit == NULL ||
        roles == NULL || maker->row_linear == NULL)
        return SBP_E_MEMORY;
    space->op_role = (uint8_t(*)[SBP_MAX_ROLES])roles;
    for (int c = 0; c < graph->class_count; c++)
        space->class_limit[c] = class_limit != NULL ? class_limit[c] : graph->dim_class[c].size;
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
    for (int v = 0; v < space->variable_count; v++)
        SBP_TRY(make_domain(maker, v));
    return SBP_OK;
}

enum sbp_status sbp_space_make(const struct sbp_plan *plan, const struct sbp_request *request,
                               const int64_t *class_limit, const struct sbp_megatron_mesh *megatron,
                               struct sbp_space *space, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&plan->graph.precision);
    *space = (struct sbp_space){.graph = &plan->graph,
                                .cluster = &plan->cluster,
                                .mesh = &plan->mesh,
                                .request = request,
                                .pricing = sbp_pricing_make(&plan->graph, &plan->cluster, &bytes)};
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
