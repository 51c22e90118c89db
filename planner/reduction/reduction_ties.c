#include <math.h>

#include "planner/limits.h"
#include "planner/reduction/reduction_priv.h"

/* --- arc consistency --- */

static bool has_partner(const struct sbp_reducer *reducer, const struct sbp_reducer_edge *edge,
                        int variable, int value)
{
    const struct sbp_reducer_variable *other =
        &reducer->variable[sbp_reduction_other(edge, variable)];
    for (int k = 0; k < other->domain; k++)
        if (sbp_reduction_cost(reducer, edge, variable, value, k) < SBP_FORBIDDEN)
            return true;
    return false;
}

static bool is_allowed(const struct sbp_reducer *reducer, int variable, int value)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    bool allowed = v->cost[value] < SBP_FORBIDDEN;
    for (int i = 0; i < v->degree && allowed; i++) {
        const struct sbp_reducer_edge *edge = &reducer->edge[v->edge[i]];
        allowed = !edge->is_partial || has_partner(reducer, edge, variable, value);
    }
    return allowed;
}

enum sbp_status sbp_reduction_make_consistent(struct sbp_reducer *reducer, bool *changed)
{
    sbp_reduction_mark_all(reducer);
    for (int v = sbp_reduction_next(reducer); v >= 0; v = sbp_reduction_next(reducer)) {
        int *kept = reducer->picked, count = 0;
        for (int k = 0; k < reducer->variable[v].domain; k++)
            if (is_allowed(reducer, v, k))
                kept[count++] = k;
        if (count == 0) {
            reducer->is_forbidden = true;
            return SBP_OK;
        }
        if (count < reducer->variable[v].domain) {
            if (!sbp_reduction_keep_values(reducer, v, kept, count))
                return SBP_E_MEMORY;
            sbp_reduction_mark_around(reducer, v);
            *changed = true;
        }
    }
    return SBP_OK;
}

/* --- ties --- */

/* Whether each value of the variable allows just one of the edge's other end; partner (domain):
 * which. */
static bool is_tied(const struct sbp_reducer *reducer, const struct sbp_reducer_edge *edge,
                    int variable, int *partner)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    const int others = reducer->variable[sbp_reduction_other(edge, variable)].domain;
    if (!edge->is_partial && others > 1)
        return false;
    for (int k = 0; k < v->domain; k++) {
        partner[k] = -1;
        for (int l = 0; l < others; l++) {
            if (sbp_reduction_cost(reducer, edge, variable, k, l) >= SBP_FORBIDDEN)
                continue;
            if (partner[k] >= 0)
                return false;
            partner[k] = l;
        }
        if (partner[k] < 0)
            return false; /* not consistent yet */
    }
    return true;
}

/* Moves an edge of `tied` to the variable that it follows. */
static bool move_edge(struct sbp_reducer *reducer, int edge, int variable, int tied,
                      const int *partner)
{
    const struct sbp_reducer_edge moved = reducer->edge[edge];
    const int other = sbp_reduction_other(&moved, tied);
    const int rows = reducer->variable[variable].domain, columns = reducer->variable[other].domain;
    double *table = sbp_reduction_take_table(reducer, (size_t)rows * (size_t)columns);
    if (table == NULL)
        return false;
    for (int k = 0; k < rows; k++)
        for (int l = 0; l < columns; l++)
            table[(size_t)k * (size_t)columns + (size_t)l] =
                sbp_reduction_cost(reducer, &moved, tied, partner[k], l);
    sbp_reduction_remove_edge(reducer, edge);
    return sbp_reduction_put_edge(reducer, edge, variable, other, table, moved.is_partial);
}

/* Notes which value of the source each one of the variable gives to the tied one. */
static bool note_tie(struct sbp_reducer *reducer, int variable, int tied, const int *partner)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    int *map = sbp_reduction_note_step(
        reducer,
        (struct sbp_reduction_step){.variable = tied, .parent = {variable, -1}, .is_tie = true});
    if (map == NULL)
        return false;
    for (int k = 0; k < v->domain; k++)
        map[v->value[k]] = reducer->variable[tied].value[partner[k]];
    return true;
}

static enum sbp_status merge(struct sbp_reducer *reducer, int edge, int variable,
                             const int *partner)
{
    struct sbp_reducer_variable *v = &reducer->variable[variable];
    const int tied = sbp_reduction_other(&reducer->edge[edge], variable);
    struct sbp_reducer_variable *t = &reducer->variable[tied];
    for (int k = 0; k < v->domain; k++)
        v->cost[k] = sbp_problem_add_costs(
            sbp_problem_add_costs(v->cost[k], t->cost[partner[k]]),
            sbp_reduction_cost(reducer, &reducer->edge[edge], variable, k, partner[k]));
    if (!note_tie(reducer, variable, tied, partner))
        return SBP_E_MEMORY;
    sbp_reduction_remove_edge(reducer, edge);
    while (t->degree > 0)
        if (!move_edge(reducer, t->edge[t->degree - 1], variable, tied, partner))
            return SBP_E_MEMORY;
    sbp_reduction_mark_around(reducer, variable);
    return SBP_OK;
}

/* Merges what follows the variable until nothing does. */
static enum sbp_status merge_followers(struct sbp_reducer *reducer, int variable, bool *changed)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    int *partner = reducer->picked;
    for (int i = 0; i < v->degree; i++)
        if (is_tied(reducer, &reducer->edge[v->edge[i]], variable, partner)) {
            SBP_TRY(merge(reducer, v->edge[i], variable, partner));
            *changed = true;
            i = -1; /* edges have moved */
        }
    return SBP_OK;
}

enum sbp_status sbp_reduction_merge_tied(struct sbp_reducer *reducer, bool *changed)
{
    sbp_reduction_mark_all(reducer);
    for (int v = sbp_reduction_next(reducer); v >= 0; v = sbp_reduction_next(reducer))
        if (!reducer->variable[v].is_gone)
            SBP_TRY(merge_followers(reducer, v, changed));
    return SBP_OK;
}

/* --- edges that are sums --- */

/* Whether the table is the sum of the terms that fold adds, to the last bit: a dear row would hide
 * what is off in a cheap one behind any tolerance. */
static bool is_separable(const double *cost, int rows, int columns)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const double entry = cost[(size_t)i * (size_t)columns + (size_t)j];
            const double row = cost[(size_t)i * (size_t)columns], column = cost[j] - cost[0];
            if (entry >= SBP_FORBIDDEN || entry != row + column)
                return false;
        }
    return true;
}

static void fold(struct sbp_reducer *reducer, int edge)
{
    const struct sbp_reducer_edge *e = &reducer->edge[edge];
    struct sbp_reducer_variable *a = &reducer->variable[e->a], *b = &reducer->variable[e->b];
    for (int i = 0; i < a->domain; i++)
        a->cost[i] += e->cost[(size_t)i * (size_t)b->domain];
    for (int j = 0; j < b->domain; j++)
        b->cost[j] += e->cost[j] - e->cost[0];
    sbp_reduction_remove_edge(reducer, edge);
}

void sbp_reduction_fold_separable(struct sbp_reducer *reducer)
{
    for (int e = 0; e < reducer->edge_count; e++) {
        const struct sbp_reducer_edge *edge = &reducer->edge[e];
        if (edge->a >= 0 && is_separable(edge->cost, reducer->variable[edge->a].domain,
                                         reducer->variable[edge->b].domain))
            fold(reducer, e);
    }
}
