#include "planner/labels/label.h"

#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "base/math/random.h"
#include "planner/labels/label_score_priv.h"

/* One call of sbp_label. */
struct labeller {
    const struct sbp_space *space;
    const int *choice;
    struct sbp_arena arena;
    uint8_t *role; /* (variable, SBP_MAX_AXES) the labelling at hand */
    uint8_t *best_role;
    struct sbp_label_score score; /* of role */
    int *variable;                /* scratch: variables that are exchanged together */
    double bound_s;               /* the unlabelled price of all edges */
};

static enum sbp_status prepare(struct labeller *l)
{
    const struct sbp_space *space = l->space;
    l->role = SBP_NEW(&l->arena, uint8_t, space->variable_count * SBP_MAX_AXES);
    l->best_role = SBP_NEW(&l->arena, uint8_t, space->variable_count * SBP_MAX_AXES);
    l->variable = SBP_NEW(&l->arena, int, space->output_edge_count + 1);
    if (l->role == NULL || l->best_role == NULL || l->variable == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_label_score_init(&l->score, space, l->choice, &l->arena));
    for (int i = 0; i < space->input_edge_count; i++)
        l->bound_s += sbp_pricing_input_edge_s(space, &space->input_edge[i],
                                               l->choice[space->input_edge[i].from],
                                               l->choice[space->input_edge[i].to]);
    for (int i = 0; i < space->output_edge_count; i++)
        l->bound_s += sbp_pricing_output_edge_s(space, &space->output_edge[i],
                                                l->choice[space->output_edge[i].op_variable],
                                                l->choice[space->output_edge[i].rest_variable]);
    return SBP_OK;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* Compares legality first, then cost beyond round-off. */
static bool is_better(const struct sbp_label_value *a, const struct sbp_label_value *b)
{
    const int broken_a = a->broken_rests + a->broken_classes;
    const int broken_b = b->broken_rests + b->broken_classes;
    if (broken_a != broken_b)
        return broken_a < broken_b;
    return a->transfer_s < b->transfer_s * (1 - SBP_PRICING_ROUND_OFF);
}

static bool is_perfect(const struct labeller *l, const struct sbp_label_value *value)
{
    return value->broken_rests + value->broken_classes == 0 &&
           value->transfer_s <= l->bound_s * (1 + SBP_PRICING_ROUND_OFF);
}

/* ---- a first labelling ---------------------------------------------------------------------- */

static void label_in_order(const struct sbp_space *space, const int *choice, uint8_t *role)
{
    for (int v = 0; v < space->variable_count; v++)
        for (int f = 0; f < space->mesh->family_count; f++) {
            const uint8_t *count = sbp_space_count(space, v, choice[v], f);
            uint8_t *own = role + (size_t)v * SBP_MAX_AXES + space->mesh->family[f].first;
            for (int r = 0; r < space->variable[v].role_count; r++)
                for (int k = 0; k < count[r]; k++)
                    *own++ = (uint8_t)r;
        }
}

/* Gives each axis of a variable a role: first the roles that fit the axis, then the rest in order.
 * fits: (axis, role), the axis keeps its state. */
static void label_by_fit(const struct labeller *l, int variable, const bool (*fits)[SBP_MAX_ROLES])
{
    const struct sbp_space *space = l->space;
    const int roles = space->variable[variable].role_count;
    uint8_t *role = l->role + (size_t)variable * SBP_MAX_AXES;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const struct sbp_family *family = &space->mesh->family[f];
        uint8_t left[SBP_MAX_ROLES];
        bool given[SBP_MAX_AXES] = {false};
        memcpy(left, sbp_space_count(space, variable, l->choice[variable], f), SBP_MAX_ROLES);
        for (int pass = 0; pass < 2; pass++)
            for (int axis = family->first; axis < family->first + family->count; axis++)
                for (uint8_t r = 0; r < roles && !given[axis]; r++)
                    if (left[r] > 0 && (pass == 1 || fits[axis][r])) {
                        role[axis] = r;
                        left[r]--;
                        given[axis] = true;
                    }
    }
}

/* Lines an operator up with the rest that its first input comes from. */
static void label_op(const struct labeller *l, int variable, const struct sbp_input_edge *edge)
{
    const struct sbp_space *space = l->space;
    const struct sbp_op_entry *entry = space->graph->op[edge->op].entry;
    const uint8_t *have = l->role + (size_t)edge->from * SBP_MAX_AXES;
    bool fits[SBP_MAX_AXES][SBP_MAX_ROLES] = {{false}};
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        for (int r = 0; r < space->variable[variable].role_count; r++)
            fits[axis][r] =
                sbp_state_equal(space->variable[edge->from].state[have[axis]],
                                entry->role[space->op_role[edge->op][r]].input[edge->input]);
    label_by_fit(l, variable, fits);
}

/* Lines a rest up with the output of its operator. */
static void label_rest(const struct labeller *l, const struct sbp_output_edge *edge)
{
    const struct sbp_space *space = l->space;
    const uint8_t *have = l->role + (size_t)edge->op_variable * SBP_MAX_AXES;
    bool fits[SBP_MAX_AXES][SBP_MAX_ROLES] = {{false}};
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        for (int r = 0; r < space->variable[edge->rest_variable].role_count; r++)
            fits[axis][r] = sbp_state_equal(sbp_space_output_state(space, edge->op, have[axis]),
                                            space->variable[edge->rest_variable].state[r]);
    label_by_fit(l, edge->rest_variable, fits);
}

/* Labels along the graph: operators by their inputs, rests by their producers. */
static void label_greedily(struct labeller *l)
{
    const struct sbp_space *space = l->space;
    label_in_order(space, l->choice, l->role);
    for (int op = 0; op < space->graph->op_count; op++) {
        const int variable = space->op_variable[op];
        if (space->graph->op[op].site != op)
            continue;
        for (int i = space->input_edge_count - 1; i >= 0; i--)
            if (variable >= 0 && space->input_edge[i].op == op && space->input_edge[i].input == 0 &&
                space->input_edge[i].from != variable && space->variable[variable].op == op)
                label_op(l, variable, &space->input_edge[i]);
        for (int i = 0; i < space->output_edge_count; i++)
            if (space->output_edge[i].op == op)
                label_rest(l, &space->output_edge[i]);
    }
}

/* ---- improvement ---------------------------------------------------------------------------- */

static void exchange(const struct labeller *l, int variable, int i, int j)
{
    uint8_t *role = l->role + (size_t)variable * SBP_MAX_AXES;
    const uint8_t kept = role[i];
    role[i] = role[j];
    role[j] = kept;
}

/* Lists the variable, and with `along` the rests of its outputs, of those that an exchange of axes
 * i and j changes; returns their number. */
static int list_changed(const struct labeller *l, int variable, bool along, int i, int j)
{
    const struct sbp_list *outputs = &l->score.output_edges;
    int count = 0, changed = 0;
    l->variable[count++] = variable;
    for (int k = outputs->first[variable]; along && k >= 0; k = outputs->next[k])
        l->variable[count++] = l->space->output_edge[k].rest_variable;
    for (int k = 0; k < count; k++) {
        const uint8_t *role = l->role + (size_t)l->variable[k] * SBP_MAX_AXES;
        if (role[i] != role[j])
            l->variable[changed++] = l->variable[k];
    }
    return changed;
}

static bool try_exchange(struct labeller *l, int variable, bool along, int i, int j)
{
    const int count = list_changed(l, variable, along, i, j);
    if (count == 0 || (along && l->score.output_edges.first[variable] < 0))
        return false;
    for (int k = 0; k < count; k++)
        exchange(l, l->variable[k], i, j);
    const struct sbp_label_value moved =
        sbp_label_score_change(&l->score, l->role, l->variable, count, i, j);
    if (is_better(&moved, &l->score.value)) {
        sbp_label_score_keep(&l->score, &moved);
        return true;
    }
    for (int k = 0; k < count; k++)
        exchange(l, l->variable[k], i, j);
    sbp_label_score_take_back(&l->score, l->role, l->variable, count, i, j);
    return false;
}

/* Whether the call's budget or the search's time is used up. */
static bool is_over(const struct labeller *l)
{
    return l->score.work >= SBP_LABELS_MOST_WORK || sbp_space_interrupted(l->space);
}

static bool improve_variable(struct labeller *l, int variable)
{
    const struct sbp_mesh *mesh = l->space->mesh;
    bool improved = false;
    for (int f = 0; f < mesh->family_count; f++) {
        const int first = mesh->family[f].first, end = first + mesh->family[f].count;
        for (int i = first; i < end; i++)
            for (int j = i + 1; j < end; j++)
                for (int along = 0; along < 2; along++)
                    improved |= try_exchange(l, variable, along == 1, i, j);
    }
    return improved;
}

static bool improve_once(struct labeller *l)
{
    bool improved = false;
    for (int v = 0; v < l->space->variable_count; v++) {
        if (is_perfect(l, &l->score.value) || is_over(l))
            return false;
        improved |= improve_variable(l, v);
    }
    return improved;
}

/* Exchanges random axes within families, for the next start. */
static void shake(const struct labeller *l, struct sbp_random *random)
{
    const struct sbp_space *space = l->space;
    for (int v = 0; v < space->variable_count; v++)
        for (int f = 0; f < space->mesh->family_count; f++) {
            const struct sbp_family *family = &space->mesh->family[f];
            for (int i = family->count - 1; i > 0; i--) {
                const int j = (int)sbp_random_below(random, (uint64_t)i + 1);
                if (sbp_random_below(random, SBP_LABELS_SHAKE_ONE_IN) == 0)
                    exchange(l, v, family->first + i, family->first + j);
            }
        }
}

static struct sbp_label_value search_labels(struct labeller *l, uint64_t seed, int *broken_class)
{
    const size_t bytes = (size_t)l->space->variable_count * SBP_MAX_AXES;
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    struct sbp_label_value best = {.transfer_s = INFINITY, .broken_rests = 1 << 20};
    for (int start = 0;
         start < SBP_LABELS_STARTS && !is_perfect(l, &best) && (start == 0 || !is_over(l));
         start++) {
        if (start == 0)
            label_greedily(l);
        else if (start == 1)
            label_in_order(l->space, l->choice, l->role);
        else
            memcpy(l->role, l->best_role, bytes);
        if (start > 1)
            shake(l, &random);
        sbp_label_score_all(&l->score, l->role);
        while (!is_perfect(l, &l->score.value) && improve_once(l))
            continue;
        if (start == 0 || is_better(&l->score.value, &best)) {
            best = l->score.value;
            *broken_class = sbp_label_score_broken_class(&l->score);
            memcpy(l->best_role, l->role, bytes);
        }
    }
    return best;
}

/* ---- result --------------------------------------------------------------------------------- */

static void write_labels(const struct sbp_space *space, const int *choice, const uint8_t *role,
                         struct sbp_strategy *strategy)
{
    strategy->boxing = space->request->asked.boxing;
    for (int op = 0; op < space->graph->op_count; op++) {
        const int variable = space->op_variable[op], decider = sbp_space_decider(space, op);
        const int chosen = decider < 0 ? 0 : space->variable[decider].zero[choice[decider]];
        const int zero = sbp_space_zero(space, op, chosen);
        strategy->zero[op] = zero == space->parallel->zero ? SBP_ZERO_DEFAULT : (uint8_t)zero;
        for (int axis = 0; variable >= 0 && axis < space->mesh->axis_count; axis++)
            strategy->op[op].role[axis] = space->op_role[op][role[variable * SBP_MAX_AXES + axis]];
    }
    for (int t = 0; t < space->graph->tensor_count; t++) {
        const int variable = space->slot[t];
        for (int axis = 0; variable >= 0 && axis < space->mesh->axis_count; axis++)
            strategy->rest[t].axis[axis] =
                space->variable[variable].state[role[variable * SBP_MAX_AXES + axis]];
    }
}

enum sbp_status sbp_label(const struct sbp_space *space, const int *choice, uint64_t seed,
                          struct sbp_strategy *strategy, struct sbp_labelling *labelling)
{
    struct labeller l = {.space = space, .choice = choice, .arena.budget = space->arena.budget};
    enum sbp_status status = prepare(&l);
    if (status == SBP_OK) {
        int broken_class = -1;
        const struct sbp_label_value value = search_labels(&l, seed, &broken_class);
        *labelling = (struct sbp_labelling){.transfer_s = value.transfer_s,
                                            .broken_rests = value.broken_rests,
                                            .broken_class = broken_class};
        if (broken_class >= 0)
            labelling->used = sbp_label_score_used(&l.score, l.best_role, broken_class);
        write_labels(space, choice, l.best_role, strategy);
    }
    sbp_arena_free(&l.arena);
    return status;
}
