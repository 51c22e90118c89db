#include "planner/reduction/reduction.h"

#include <string.h>

#include "base/math/random.h"
#include "planner/limits.h"
#include "planner/reduction/reduction_priv.h"

/* --- rules in turn --- */

static enum sbp_status merge_all(struct sbp_reducer *reducer)
{
    bool changed = true;
    while (changed && !reducer->is_forbidden) {
        changed = false;
        SBP_TRY(sbp_reduction_make_consistent(reducer, &changed));
        if (!reducer->is_forbidden)
            SBP_TRY(sbp_reduction_merge_tied(reducer, &changed));
    }
    return SBP_OK;
}

static enum sbp_status apply_rules(struct sbp_reducer *reducer)
{
    bool changed = true;
    for (int round = 0; changed && round < SBP_PROBLEM_REDUCTION_ROUNDS; round++) {
        changed = false;
        SBP_TRY(merge_all(reducer));
        if (reducer->is_forbidden)
            return SBP_OK;
        sbp_reduction_fold_separable(reducer);
        SBP_TRY(sbp_reduction_join_usages(reducer));
        SBP_TRY(sbp_reduction_drop_dominated(reducer, &changed));
        SBP_TRY(sbp_reduction_fold_unused(reducer, &changed));
    }
    return SBP_OK;
}

/* --- what is left --- */

/* Tables that were shared out, to find equal ones: open addressing, a power of two of slots. */
struct tables {
    double **table;
    size_t *entries;
    int *columns; /* equal entries of another shape are another table */
    size_t slots;
};

/* *shared: a table that is equal to the edge's and outlives the reduction. */
static enum sbp_status share_table(struct sbp_reducer *reducer, int edge, struct tables *tables,
                                   double **shared)
{
    const struct sbp_reducer_edge *e = &reducer->edge[edge];
    const int columns = reducer->variable[e->b].domain;
    const size_t entries = (size_t)reducer->variable[e->a].domain * (size_t)columns;
    size_t at = sbp_hash_bytes(e->cost, entries * sizeof *e->cost) & (tables->slots - 1);
    for (; tables->table[at] != NULL; at = (at + 1) & (tables->slots - 1))
        if (tables->entries[at] == entries && tables->columns[at] == columns &&
            memcmp(tables->table[at], e->cost, entries * sizeof *e->cost) == 0) {
            *shared = tables->table[at];
            return SBP_OK;
        }
    *shared = e->owned == NULL ? reducer->source->edge[edge].cost
                               : SBP_TAKE(&reducer->reduction->arena, double, entries);
    if (*shared == NULL)
        return SBP_E_MEMORY;
    if (e->owned != NULL)
        memcpy(*shared, e->owned, entries * sizeof *e->owned);
    tables->table[at] = *shared;
    tables->entries[at] = entries;
    tables->columns[at] = columns;
    return SBP_OK;
}

static enum sbp_status add_variable(struct sbp_reducer *reducer, int variable)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    struct sbp_reduction *reduction = reducer->reduction;
    struct sbp_problem *problem = &reduction->problem;
    const struct sbp_arena_mark mark = sbp_arena_mark(&reducer->scratch);
    struct sbp_interval *interval = SBP_NEW(&reducer->scratch, struct sbp_interval, v->span_count);
    int *value = SBP_TAKE(&reduction->arena, int, v->domain);
    if (interval == NULL || value == NULL)
        return SBP_E_MEMORY;
    for (int s = 0; s < v->span_count; s++)
        interval[s] = (struct sbp_interval){v->span[s].first, v->span[s].last};
    const int index = sbp_problem_add_variable(problem, reducer->source->variable[variable].name,
                                               v->domain, v->span_count, interval);
    sbp_arena_release(&reducer->scratch, mark);
    if (index < 0)
        return SBP_E_MEMORY;
    struct sbp_variable *made = &problem->variable[index];
    memcpy(made->cost, v->cost, (size_t)v->domain * sizeof *v->cost);
    for (int s = 0; s < v->span_count; s++)
        memcpy(made->usage + (size_t)s * (size_t)v->domain, v->span[s].usage,
               (size_t)v->domain * sizeof *made->usage);
    memcpy(value, v->value, (size_t)v->domain * sizeof *value);
    reduction->variable[index] = variable;
    reduction->value[index] = value;
    return SBP_OK;
}

/* The last variable: what every choice costs and uses. */
static enum sbp_status add_constant(struct sbp_reducer *reducer)
{
    struct sbp_problem *problem = &reducer->reduction->problem;
    const int points = reducer->live.point_count;
    struct sbp_interval *interval = SBP_NEW(&reducer->scratch, struct sbp_interval, points);
    int count = 0;
    if (interval == NULL)
        return SBP_E_MEMORY;
    for (int p = 0; p < points; p++)
        if (count > 0 && interval[count - 1].to == p && reducer->base[p] == reducer->base[p - 1])
            interval[count - 1].to++;
        else if (reducer->base[p] > 0)
            interval[count++] = (struct sbp_interval){p, p + 1};
    const int index = sbp_problem_add_variable(problem, "constant", 1, count, interval);
    if (index < 0)
        return SBP_E_MEMORY;
    problem->variable[index].cost[0] = reducer->constant;
    for (int i = 0; i < count; i++)
        problem->variable[index].usage[i] = reducer->base[interval[i].from];
    return SBP_OK;
}

static enum sbp_status add_edges(struct sbp_reducer *reducer, const int *index)
{
    struct sbp_problem *problem = &reducer->reduction->problem;
    struct tables tables = {.slots = 16};
    while (tables.slots < 2 * (size_t)reducer->edge_count)
        tables.slots *= 2;
    tables.table = SBP_NEW(&reducer->scratch, double *, tables.slots);
    tables.entries = SBP_NEW(&reducer->scratch, size_t, tables.slots);
    tables.columns = SBP_NEW(&reducer->scratch, int, tables.slots);
    if (tables.table == NULL || tables.entries == NULL || tables.columns == NULL)
        return SBP_E_MEMORY;
    for (int e = 0; e < reducer->edge_count; e++) {
        double *table;
        if (reducer->edge[e].a < 0)
            continue;
        SBP_TRY(share_table(reducer, e, &tables, &table));
        if (!sbp_problem_share_table(problem, index[reducer->edge[e].a], index[reducer->edge[e].b],
                                     table))
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

static enum sbp_status build(struct sbp_reducer *reducer)
{
    struct sbp_reduction *reduction = reducer->reduction;
    const int variables = reducer->variable_count;
    int *index = SBP_NEW(&reducer->scratch, int, variables), left = 0, edges = 0;
    if (index == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        if (!reducer->variable[v].is_gone)
            index[v] = left++;
    for (int e = 0; e < reducer->edge_count; e++)
        edges += reducer->edge[e].a >= 0;
    SBP_TRY(sbp_problem_init_within(&reduction->problem, left + 1, edges,
                                    reducer->source->arena.budget));
    reduction->problem.capacity = reducer->source->capacity;
    reduction->variable = SBP_NEW(&reduction->arena, int, left);
    reduction->value = SBP_NEW(&reduction->arena, int *, left);
    if (reduction->variable == NULL || reduction->value == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        if (!reducer->variable[v].is_gone)
            SBP_TRY(add_variable(reducer, v));
    SBP_TRY(add_constant(reducer));
    return add_edges(reducer, index);
}

enum sbp_status sbp_reduction_make(const struct sbp_problem *source,
                                   struct sbp_reduction *reduction)
{
    struct sbp_reducer reducer;
    *reduction = (struct sbp_reduction){.source = source, .arena.budget = source->arena.budget};
    enum sbp_status status = sbp_reduction_begin(&reducer, reduction);
    if (status == SBP_OK)
        status = apply_rules(&reducer);
    reduction->is_forbidden = reducer.is_forbidden;
    if (status == SBP_OK && !reducer.is_forbidden)
        status = build(&reducer);
    sbp_reduction_end(&reducer);
    return status;
}

void sbp_reduction_free(struct sbp_reduction *reduction)
{
    if (reduction == NULL)
        return;
    sbp_problem_free(&reduction->problem);
    sbp_arena_free(&reduction->arena);
    *reduction = (struct sbp_reduction){0};
}

void sbp_reduction_complete(const struct sbp_reduction *reduction, const int *reduced, int *choice)
{
    for (int v = 0; v + 1 < reduction->problem.variable_count; v++)
        choice[reduction->variable[v]] = reduction->value[v][reduced[v]];
    for (int i = reduction->step_count - 1; i >= 0; i--) {
        const struct sbp_reduction_step *step = &reduction->step[i];
        const int first = step->parent[0], second = step->parent[1];
        size_t at = first < 0 ? 0 : (size_t)choice[first];
        if (second >= 0)
            at = at * (size_t)reduction->source->variable[second].domain + (size_t)choice[second];
        choice[step->variable] = step->map[at];
    }
}
