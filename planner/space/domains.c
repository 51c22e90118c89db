/* Domains: all legal ways to give the axes of the mesh to the roles that a variable may play, and
 * the part of them that a subspace holds. */
#include <stdio.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/space/domain_build.h"
#include "planner/space/subspace.h"

/* ---- tuples --------------------------------------------------------------------------------- */

/* Adds the tuple in the trial row to a domain, once for each tag. */
enum sbp_status sbp_space_accept_tuple(struct sbp_space_maker *maker, int variable, int *capacity)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    const bool tags = space->request->asked.boxing == SBP_BOXING_PAPER && v->op < 0;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    for (int tag = tags ? SBP_REST_FEATURE : SBP_REST_ANY;
         tag <= (tags ? SBP_REST_BATCH : SBP_REST_ANY); tag++) {
        if (v->tuple_count + 2 > *capacity) {
            *capacity = 2 * *capacity + 64;
            uint8_t *count = SBP_NEW(&space->arena, uint8_t, (size_t)*capacity * row + 1);
            uint8_t *tag_of = SBP_NEW(&space->arena, uint8_t, *capacity);
            if (count == NULL || tag_of == NULL)
                return SBP_E_MEMORY;
            memcpy(count, v->count, (size_t)(v->tuple_count + 1) * row);
            memcpy(tag_of, v->tag, (size_t)v->tuple_count);
            v->count = count;
            v->tag = tag_of;
        }
        v->tag[v->tuple_count] = (uint8_t)tag;
        memcpy(v->count + (size_t)(v->tuple_count + 1) * row,
               v->count + (size_t)v->tuple_count * row, row);
        v->tuple_count++;
    }
    return SBP_OK;
}

static bool is_interrupted(struct sbp_space_maker *maker)
{
    return ++maker->calls % SBP_SPACE_CLOCK_PERIOD == 0 && sbp_space_interrupted(maker->space);
}

/* The row of a family in the tuple under trial. */
static uint8_t *trial_row(const struct sbp_space *space, int variable, int family)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const size_t row = (size_t)v->tuple_count * (size_t)space->mesh->family_count + (size_t)family;
    return v->count + row * SBP_MAX_ROLES;
}

static enum sbp_status note_call(struct sbp_space_maker *maker, int variable)
{
    if (is_interrupted(maker))
        return SBP_STOPPED;
    const bool goes_on = maker->space->variable[variable].tuple_count <= maker->most_tuples &&
                         maker->calls <= SBP_SPACE_MOST_CALLS;
    return goes_on ? SBP_OK : SBP_E_RANGE;
}

/* ---- ways of a family ----------------------------------------------------------------------- */

static enum sbp_status grow_ways(struct sbp_space *space, struct sbp_family_ways *ways, int rules)
{
    if (ways->count < ways->room)
        return SBP_OK;
    const int room = 2 * ways->room + 64;
    uint8_t *const row = SBP_TAKE(&space->arena, uint8_t, (size_t)room * SBP_MAX_ROLES);
    int *const shape = SBP_TAKE(&space->arena, int, (size_t)room *(size_t)rules + 1);
    if (row == NULL || shape == NULL)
        return SBP_E_MEMORY;
    if (ways->count > 0) {
        memcpy(row, ways->row, (size_t)ways->count * SBP_MAX_ROLES);
        memcpy(shape, ways->shape, (size_t)ways->count * (size_t)rules * sizeof *shape);
    }
    *ways = (struct sbp_family_ways){ways->count, room, row, shape};
    return SBP_OK;
}

/* Adds the way in the trial row. */
static enum sbp_status add_way(struct sbp_space_maker *maker, int variable, int family)
{
    struct sbp_space *const space = maker->space;
    struct sbp_family_ways *const ways = &maker->ways[family];
    const int rules = maker->binding;
    const uint8_t *const count = trial_row(space, variable, family);
    SBP_TRY(grow_ways(space, ways, rules));
    int *const shape = ways->shape + (size_t)ways->count * (size_t)rules;
    for (int i = 0; i < rules; i++) {
        const unsigned roles = maker->rule[i]->roles;
        shape[i] = 0;
        for (int r = 0; roles >> r != 0; r++)
            shape[i] += roles >> r & 1 ? count[r] * space->shapes->stride[family] : 0;
    }
    memcpy(ways->row + (size_t)ways->count * SBP_MAX_ROLES, count, SBP_MAX_ROLES);
    ways->count++;
    return SBP_OK;
}

/* Lists the ways to give `left` axes of a family to the shared roles from `role` on. A branch ends
 * where its axes do not divide the sizes. */
static enum sbp_status list_shared(struct sbp_space_maker *maker, int variable, unsigned shared,
                                   int family, int role, int left)
{
    const struct sbp_space *space = maker->space;
    uint8_t *const count = trial_row(space, variable, family);
    const bool last = shared >> role >> 1 == 0; /* it takes what is left */
    SBP_TRY(note_call(maker, variable));
    for (int axes = last ? left : 0; axes <= left; axes++) {
        if (axes > 0 && !(shared >> role & 1))
            break;
        count[role] = (uint8_t)axes;
        if (axes > 0 && !sbp_space_divides(space, variable, &maker->legality, 1u << role))
            break;
        if (!last)
            SBP_TRY(list_shared(maker, variable, shared, family, role + 1, left - axes));
        else if (sbp_space_obeys_batch(space, variable, &maker->legality, family))
            SBP_TRY(add_way(maker, variable, family));
    }
    count[role] = 0;
    return SBP_OK;
}

/* Lists the ways of a family: those of roles that share it, then the mirrored role alone. */
static enum sbp_status list_ways(struct sbp_space_maker *maker, int variable, unsigned allowed,
                                 int family)
{
    const struct sbp_space *space = maker->space;
    const unsigned mirror = allowed & maker->legality.mirror;
    uint8_t *const count = trial_row(space, variable, family);
    maker->ways[family] = (struct sbp_family_ways){0};
    SBP_TRY(list_shared(maker, variable, allowed & ~mirror, family, 0,
                        space->mesh->family[family].count));
    for (int role = 0; mirror >> role != 0; role++) {
        if ((mirror >> role & 1) == 0)
            continue;
        count[role] = (uint8_t)space->mesh->family[family].count;
        if (sbp_space_obeys_batch(space, variable, &maker->legality, family))
            SBP_TRY(add_way(maker, variable, family));
        count[role] = 0;
    }
    return SBP_OK;
}

/* ---- all tuples ----------------------------------------------------------------------------- */

/* Enumerates the ways of this and later families after those of earlier ones. before: (binding
 * rules) shapes of the latter; shape: (families left, binding rules) scratch. */
static enum sbp_status enumerate(struct sbp_space_maker *maker, int variable, int family,
                                 const int *before, int *shape, int *capacity)
{
    const struct sbp_space *const space = maker->space;
    const struct sbp_family_ways *const ways = &maker->ways[family];
    const size_t rules = (size_t)maker->binding;
    if (family == space->mesh->family_count)
        return !maker->checks || sbp_space_is_legal(space, variable, &maker->legality)
                   ? sbp_space_accept_tuple(maker, variable, capacity)
                   : SBP_OK;
    for (int i = 0; i < ways->count; i++) {
        SBP_TRY(note_call(maker, variable));
        if (!sbp_space_add_shapes(maker, before, ways->shape + (size_t)i * rules, shape))
            continue;
        memcpy(trial_row(space, variable, family), ways->row + (size_t)i * SBP_MAX_ROLES,
               SBP_MAX_ROLES);
        SBP_TRY(enumerate(maker, variable, family + 1, shape, shape + rules, capacity));
    }
    memset(trial_row(space, variable, family), 0, SBP_MAX_ROLES);
    return SBP_OK;
}

/* Enumerates the ways to give all axes to the allowed roles. */
static enum sbp_status enumerate_all(struct sbp_space_maker *maker, int variable, unsigned allowed,
                                     int *capacity)
{
    struct sbp_space *const space = maker->space;
    const int families = space->mesh->family_count;
    SBP_TRY(sbp_space_find_binding(maker));
    const size_t rules = (size_t)maker->binding;
    int *const shape = SBP_NEW(&space->arena, int, (size_t)(families + 1) * rules + 1);
    if (shape == NULL)
        return SBP_E_MEMORY;
    space->variable[variable].allowed = allowed;
    maker->checks = sbp_space_may_be_illegal(space, variable, &maker->legality);
    for (int f = 0; f < families; f++)
        SBP_TRY(list_ways(maker, variable, allowed, f));
    return enumerate(maker, variable, 0, shape, shape + rules, capacity);
}

static enum sbp_status single_megatron_tuple(struct sbp_space_maker *maker, int variable,
                                             int *capacity)
{
    struct sbp_space *space = maker->space;
    for (int way = 0; way < SBP_MEGATRON_WAYS; way++) {
        if (!sbp_megatron_goes(maker, variable, (enum sbp_megatron_way)way))
            continue;
        sbp_megatron_choose(maker, variable, (enum sbp_megatron_way)way,
                            space->variable[variable].count);
        if (sbp_space_divides(space, variable, &maker->legality, ~0u) &&
            sbp_space_is_legal(space, variable, &maker->legality))
            return sbp_space_accept_tuple(maker, variable, capacity);
    }
    return SBP_OK;
}

/* Whether sizes alone, without limits on classes or on the batch's axes, leave only last resorts.
 */
static enum sbp_status lacks_tuples(struct sbp_space_maker *maker, int variable, unsigned allowed,
                                    int *capacity, bool *lacks)
{
    struct sbp_space *space = maker->space;
    struct sbp_class_limit *const limits = space->class_limit;
    const struct sbp_solve_request *const request = space->request;
    struct sbp_solve_request unbound = *request;
    unbound.batch_axes = NULL;
    space->request = &unbound;
    space->class_limit = maker->unlimited;
    const enum sbp_status status = enumerate_all(maker, variable, allowed, capacity);
    space->class_limit = limits;
    space->request = request;
    *lacks = space->variable[variable].tuple_count == 0;
    space->variable[variable].tuple_count = 0;
    memset(space->variable[variable].count, 0, (size_t)space->mesh->family_count * SBP_MAX_ROLES);
    return status;
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* Sizes for a message: "batch 4, sequence 64, hidden 768". */
struct sizes {
    char text[128];
    int used, count;
    int dim_class[SBP_MAX_DIMS * SBP_MAX_ROLES]; /* (count) */
};

/* Adds the size of the dimension that a state splits, once for each class. */
static void add_size(const struct sbp_graph *graph, int tensor, struct sbp_state state,
                     struct sizes *sizes)
{
    const int room = (int)sizeof sizes->text - sizes->used;
    if (tensor < 0 || state.kind != SBP_SPLIT || room <= 0)
        return;
    const struct sbp_shape *shape = &graph->tensor[tensor].shape;
    const int dim_class = shape->dim_class[state.dim];
    bool is_new = dim_class != SBP_NO_CLASS && sizes->count < SBP_MAX_DIMS * SBP_MAX_ROLES;
    for (int i = 0; i < sizes->count; i++)
        is_new &= sizes->dim_class[i] != dim_class;
    if (!is_new)
        return;
    sizes->dim_class[sizes->count++] = dim_class;
    sizes->used +=
        snprintf(sizes->text + sizes->used, (size_t)room, "%s%s %lld", sizes->count > 1 ? ", " : "",
                 graph->dim_class[dim_class].name, (long long)shape->size[state.dim]);
}

/* How a role splits a weight: a tied table is stored transposed. */
static struct sbp_state weight_state(const struct sbp_op_node *node, const struct sbp_role *role,
                                     int weight)
{
    struct sbp_state state = role->weight[weight];
    if (state.kind == SBP_SPLIT && weight == 0 && node->transposed_weight)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

/* Lists the sizes that a variable's roles split; for a rest, those of its tensor. */
static void list_sizes(const struct sbp_space *space, int variable, struct sizes *sizes)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    for (int r = 0; r < v->role_count; r++) {
        if (!(v->allowed >> r & 1))
            continue;
        if (v->op < 0) {
            add_size(space->graph, v->tensor, v->state[r], sizes);
            continue;
        }
        const struct sbp_op_node *node = &space->graph->op[v->op];
        const struct sbp_role *role = &node->entry->role[space->op_role[v->op][r]];
        for (int i = 0; i < node->input_count; i++)
            add_size(space->graph, node->input[i], role->input[i], sizes);
        for (int w = 0; w < node->weight_count; w++)
            add_size(space->graph, node->weight[w], weight_state(node, role, w), sizes);
        add_size(space->graph, node->output, role->output, sizes);
    }
}

/* Whether a size of the list is that of a vocabulary, which may be padded. */
static bool has_vocabulary(const struct sbp_graph *graph, const struct sizes *sizes)
{
    for (int i = 0; i < sizes->count; i++)
        if (strcmp(graph->dim_class[sizes->dim_class[i]].name, "vocab") == 0)
            return true;
    return false;
}

static enum sbp_status refuse_empty(const struct sbp_space_maker *maker, int variable)
{
    const struct sbp_space *space = maker->space;
    const struct sbp_space_variable *v = &space->variable[variable];
    const char *name =
        v->op >= 0 ? space->graph->op[v->op].name : space->graph->tensor[v->tensor].name;
    const struct sbp_fix *fix = sbp_space_fix(space, v->op);
    if (space->is_plain)
        return sbp_fail(maker->diag, SBP_E_UNSUPPORTED,
                        "%s: %s: has too many ways to be split over %lld devices to look at all, "
                        "and none of the plain ones is legal",
                        space->graph->name, name, (long long)space->mesh->devices);
    if (sbp_space_rest_fix(space, variable) != NULL)
        return sbp_fail(maker->diag, SBP_E_INPUT,
                        "fix: %s: its output cannot rest like this: a level's factors multiply to "
                        "its size, splits divide the output's sizes, and operators that follow it "
                        "run on splits and B",
                        sbp_space_rest_fix(space, variable)->layer);
    struct sizes sizes = {.text = ""};
    list_sizes(space, variable, &sizes);
    const bool is_part = space->graph->micro_batch < space->graph->global_batch;
    const char *of = is_part ? "of a micro-batch: " : "";
    if (fix != NULL)
        return sbp_fail(maker->diag, SBP_E_INPUT,
                        "fix: %s: no legal strategy of space %s%s has these factors; a level's "
                        "factors multiply to its size and divide the layer's dimensions (%s%s), "
                        "and layers that share a weight split it alike",
                        name, sbp_request_space_name(space->request->asked.space),
                        space->request->asked.runnable ? " that --runnable allows" : "", of,
                        sizes.text);
    return sbp_fail(maker->diag, SBP_E_INPUT,
                    "%s: %s: no strategy of space %s splits it over %lld devices: the parts that a "
                    "split makes must divide the size (%s%s)%s",
                    space->graph->name, name, sbp_request_space_name(space->request->asked.space),
                    (long long)space->mesh->devices, of, sizes.text,
                    has_vocabulary(space->graph, &sizes)
                        ? "; vocab_multiple=N pads a language model's vocabulary"
                        : "");
}

/* ---- a variable's domain -------------------------------------------------------------------- */

/* Enumerates the allowed roles, and last resorts where no dividing role gives a tuple. */
static enum sbp_status enumerate_domain(struct sbp_space_maker *maker, int variable,
                                        unsigned allowed, unsigned resorts, int *capacity)
{
    const struct sbp_space_variable *v = &maker->space->variable[variable];
    unsigned dividing = allowed;
    bool lacks = false;
    if (resorts != 0)
        dividing = v->op >= 0 ? sbp_space_dividing_roles(maker->space, variable)
                              : allowed & ((1u << SBP_SPLIT_RESTS) - 1);
    /* Roles that divide nothing, such as going on with sums, always give a tuple. */
    if ((allowed & ~dividing) == 0) {
        SBP_TRY(enumerate_all(maker, variable, allowed, capacity));
        if (v->tuple_count > 0 || resorts == 0)
            return SBP_OK;
    }
    SBP_TRY(lacks_tuples(maker, variable, dividing, capacity, &lacks));
    if (!lacks && (allowed & ~dividing) == 0)
        return SBP_OK;
    return enumerate_all(maker, variable, lacks ? allowed | resorts : allowed, capacity);
}

static enum sbp_status make_domain(struct sbp_space_maker *maker, int variable)
{
    struct sbp_space *space = maker->space;
    struct sbp_space_variable *v = &space->variable[variable];
    int capacity = 64;
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    v->count = SBP_NEW(&space->arena, uint8_t, (size_t)capacity * row + 1);
    v->tag = SBP_NEW(&space->arena, uint8_t, capacity);
    if (v->count == NULL || v->tag == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_space_make_legality(space, variable, &maker->legality));
    const unsigned allowed = v->op >= 0 ? sbp_space_allowed_roles(space, variable)
                                        : sbp_space_allowed_rests(space, variable);
    const unsigned resorts =
        maker->megatron != NULL ? 0 : sbp_space_last_resorts(space, variable) & ~allowed;
    if (v->op < 0 && (allowed | resorts) >> SBP_SPLIT_RESTS != 0)
        v->role_count = SBP_REST_STATES;
    if (maker->megatron != NULL) {
        v->allowed = allowed;
        SBP_TRY(single_megatron_tuple(maker, variable, &capacity));
    } else if (space->is_plain) {
        const unsigned roles =
            space->request->batch_alone ? allowed & maker->legality.batch : allowed;
        SBP_TRY(sbp_space_fill_domain(maker, variable, roles,
                                      sbp_space_last_resorts(space, variable), &capacity));
    } else {
        SBP_TRY(enumerate_domain(maker, variable, allowed, resorts, &capacity));
    }
    if (v->op < 0 && v->allowed >> SBP_SPLIT_RESTS == 0)
        v->role_count = SBP_SPLIT_RESTS;
    for (int r = 0; r < v->role_count; r++)
        v->rests_whole |= v->allowed >> r & 1 && v->state[r].kind != SBP_SPLIT;
    return v->tuple_count > 0 ? SBP_OK : refuse_empty(maker, variable);
}

static enum sbp_status make_domains(struct sbp_space_maker *maker)
{
    for (int pass = 0; pass < 2; pass++)
        for (int v = 0; v < maker->space->variable_count; v++)
            if ((maker->space->variable[v].op >= 0) == (pass == 0))
                SBP_TRY(make_domain(maker, v));
    return SBP_OK;
}

/* Empties all domains. */
static void forget_domains(struct sbp_space *space)
{
    for (int v = 0; v < space->variable_count; v++) {
        space->variable[v].tuple_count = 0;
        space->variable[v].rests_whole = false;
    }
}

/* Where an operator has too many tuples, all keep to plain ones, so that they line up. */
enum sbp_status sbp_space_make_domains(struct sbp_space_maker *maker)
{
    struct sbp_space *const space = maker->space;
    const struct sbp_arena_mark mark = sbp_arena_mark(&space->arena);
    maker->most_tuples = space->request->draws_few ? SBP_SPACE_FEW_TUPLES : SBP_SPACE_MOST_TUPLES;
    space->is_plain = space->request->batch_alone;
    const enum sbp_status status = make_domains(maker);
    if (status != SBP_E_RANGE)
        return status;
    sbp_arena_release(&space->arena, mark);
    forget_domains(space);
    space->is_plain = true;
    return make_domains(maker);
}

/* ---- subspaces ------------------------------------------------------------------------------ */

static struct sbp_split split_of(const struct sbp_space *space, int variable, int tuple)
{
    struct sbp_split split = {.op = space->variable[variable].op};
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            split.factor[role][level] = 1;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const struct sbp_family *family = &space->mesh->family[f];
        const uint8_t *count = sbp_tuple_count(space, variable, tuple, f);
        for (int role = 0; role < space->variable[variable].role_count; role++)
            for (int k = 0; k < count[role]; k++)
                split.factor[role][family->level] *= family->prime;
    }
    return split;
}

/* Keeps the tuples that lie in the subspace by the variable's first operator; others are tied to
 * it. */
static void keep_tuples(struct sbp_space *space, int variable)
{
    struct sbp_space_variable *v = &space->variable[variable];
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    int left = 0;
    for (int tuple = 0; tuple < v->tuple_count; tuple++) {
        const struct sbp_split split = split_of(space, variable, tuple);
        if (!sbp_subspace_has(space->request->part, &split))
            continue;
        memmove(v->count + (size_t)left * row, v->count + (size_t)tuple * row, row);
        v->tag[left++] = v->tag[tuple];
    }
    v->tuple_count = left;
}

enum sbp_status sbp_space_keep_part(struct sbp_space_maker *maker)
{
    struct sbp_space *space = maker->space;
    for (int v = 0; v < space->variable_count && space->request->part != NULL; v++) {
        if (space->variable[v].op < 0)
            continue;
        keep_tuples(space, v);
        if (space->variable[v].tuple_count == 0)
            return sbp_fail(maker->diag, SBP_E_INPUT, "%s: is split in no other way",
                            space->graph->op[space->variable[v].op].name);
    }
    return SBP_OK;
}
