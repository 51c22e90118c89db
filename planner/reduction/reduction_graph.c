#include <stdlib.h>
#include <string.h>

#include "planner/reduction/reduction_priv.h"

/* --- tables --- */

double *sbp_reduction_take_table(struct sbp_reducer *reducer, size_t entries)
{
    struct sbp_arena_budget *budget = reducer->source->arena.budget;
    if (!sbp_arena_budget_take(budget, entries * sizeof(double)))
        return NULL;
    double *table = malloc((entries + 1) * sizeof *table);
    if (table == NULL)
        sbp_arena_budget_return(budget, entries * sizeof(double));
    return table;
}

static void drop_table(const struct sbp_reducer *reducer, double *table, size_t entries)
{
    if (table != NULL)
        sbp_arena_budget_return(reducer->source->arena.budget, entries * sizeof(double));
    free(table);
}

static size_t entries_of(const struct sbp_reducer *reducer, int a, int b)
{
    return (size_t)reducer->variable[a].domain * (size_t)reducer->variable[b].domain;
}

static void drop_edge_table(struct sbp_reducer *reducer, struct sbp_reducer_edge *edge)
{
    drop_table(reducer, edge->owned, entries_of(reducer, edge->a, edge->b));
    edge->owned = NULL;
    edge->cost = NULL;
}

/* --- lists of edges --- */

static bool add_link(struct sbp_reducer *reducer, int variable, int edge)
{
    struct sbp_reducer_variable *v = &reducer->variable[variable];
    if (v->degree == v->room) {
        const int room = v->room < 4 ? 4 : 2 * v->room;
        int *list = SBP_TAKE(&reducer->scratch, int, room);
        if (list == NULL)
            return false;
        if (v->degree > 0)
            memcpy(list, v->edge, (size_t)v->degree * sizeof *list);
        v->edge = list;
        v->room = room;
    }
    v->edge[v->degree++] = edge;
    return true;
}

static void drop_link(struct sbp_reducer *reducer, int variable, int edge)
{
    struct sbp_reducer_variable *v = &reducer->variable[variable];
    for (int i = 0; i < v->degree; i++)
        if (v->edge[i] == edge) {
            v->edge[i] = v->edge[--v->degree];
            return;
        }
}

int sbp_reduction_find(const struct sbp_reducer *reducer, int a, int b)
{
    const bool swaps = reducer->variable[b].degree < reducer->variable[a].degree;
    const int from = swaps ? b : a, to = swaps ? a : b;
    const struct sbp_reducer_variable *v = &reducer->variable[from];
    for (int i = 0; i < v->degree; i++)
        if (sbp_reduction_other(&reducer->edge[v->edge[i]], from) == to)
            return v->edge[i];
    return -1;
}

void sbp_reduction_remove_edge(struct sbp_reducer *reducer, int edge)
{
    struct sbp_reducer_edge *e = &reducer->edge[edge];
    drop_edge_table(reducer, e);
    drop_link(reducer, e->a, edge);
    drop_link(reducer, e->b, edge);
    e->a = -1;
}

/* Adds a table (domain of a, domain of b) to the one of an edge between the two. */
static bool add_table(struct sbp_reducer *reducer, int edge, int a, const double *table)
{
    struct sbp_reducer_edge *e = &reducer->edge[edge];
    const int rows = reducer->variable[e->a].domain, columns = reducer->variable[e->b].domain;
    if (e->owned == NULL) {
        e->owned = sbp_reduction_take_table(reducer, (size_t)rows * (size_t)columns);
        if (e->owned == NULL)
            return false;
        memcpy(e->owned, e->cost, (size_t)rows * (size_t)columns * sizeof *e->owned);
        e->cost = e->owned;
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double *sum = &e->owned[(size_t)i * (size_t)columns + (size_t)j];
            const size_t at = e->a == a ? (size_t)i * (size_t)columns + (size_t)j
                                        : (size_t)j * (size_t)rows + (size_t)i;
            *sum = sbp_problem_add_costs(*sum, table[at]);
        }
    return true;
}

bool sbp_reduction_put_edge(struct sbp_reducer *reducer, int edge, int a, int b, double *table,
                            bool is_partial)
{
    const int known = sbp_reduction_find(reducer, a, b);
    struct sbp_reducer_edge *e = &reducer->edge[edge];
    if (known >= 0) {
        const bool added = add_table(reducer, known, a, table);
        reducer->edge[known].is_partial |= is_partial;
        drop_table(reducer, table, entries_of(reducer, a, b));
        return added;
    }
    *e = (struct sbp_reducer_edge){
        .a = a, .b = b, .cost = table, .owned = table, .is_partial = is_partial};
    return add_link(reducer, a, edge) && add_link(reducer, b, edge);
}

/* --- values --- */

/* Leaves the rows, or columns, of an edge that belong to kept values of one of its ends. */
static bool keep_pairs(struct sbp_reducer *reducer, int edge, int variable, const int *kept,
                       int count)
{
    struct sbp_reducer_edge *e = &reducer->edge[edge];
    const bool is_first = e->a == variable;
    const int rows = reducer->variable[e->a].domain, columns = reducer->variable[e->b].domain;
    const int new_rows = is_first ? count : rows, new_columns = is_first ? columns : count;
    double *table = sbp_reduction_take_table(reducer, (size_t)new_rows * (size_t)new_columns);
    if (table == NULL)
        return false;
    for (int i = 0; i < new_rows; i++)
        for (int j = 0; j < new_columns; j++)
            table[(size_t)i * (size_t)new_columns + (size_t)j] =
                e->cost[(size_t)(is_first ? kept[i] : i) * (size_t)columns +
                        (size_t)(is_first ? j : kept[j])];
    drop_edge_table(reducer, e);
    e->owned = table;
    e->cost = table;
    return true;
}

bool sbp_reduction_keep_values(struct sbp_reducer *reducer, int variable, const int *kept,
                               int count)
{
    struct sbp_reducer_variable *v = &reducer->variable[variable];
    for (int i = 0; i < v->degree; i++)
        if (!keep_pairs(reducer, v->edge[i], variable, kept, count))
            return false;
    for (int k = 0; k < count; k++) {
        v->value[k] = v->value[kept[k]];
        v->cost[k] = v->cost[kept[k]];
        for (int s = 0; s < v->span_count; s++)
            v->span[s].usage[k] = v->span[s].usage[kept[k]];
    }
    v->domain = count;
    return true;
}

/* --- steps and the queue --- */

static size_t source_domain(const struct sbp_reducer *reducer, int variable)
{
    return variable < 0 ? 1 : (size_t)reducer->source->variable[variable].domain;
}

int *sbp_reduction_note_step(struct sbp_reducer *reducer, struct sbp_reduction_step step)
{
    struct sbp_reduction *reduction = reducer->reduction;
    step.map =
        SBP_NEW(&reduction->arena, int,
                source_domain(reducer, step.parent[0]) * source_domain(reducer, step.parent[1]));
    if (step.map == NULL)
        return NULL;
    reduction->step[reduction->step_count++] = step;
    reducer->variable[step.variable].is_gone = true;
    return step.map;
}

void sbp_reduction_mark(struct sbp_reducer *reducer, int variable)
{
    if (reducer->variable[variable].is_dirty)
        return;
    reducer->variable[variable].is_dirty = true;
    const int at = (reducer->queue_first + reducer->queue_count++) % reducer->variable_count;
    reducer->queue[at] = variable;
}

void sbp_reduction_mark_all(struct sbp_reducer *reducer)
{
    for (int v = 0; v < reducer->variable_count; v++)
        if (!reducer->variable[v].is_gone)
            sbp_reduction_mark(reducer, v);
}

void sbp_reduction_mark_around(struct sbp_reducer *reducer, int variable)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    for (int i = 0; i < v->degree; i++)
        sbp_reduction_mark(reducer, sbp_reduction_other(&reducer->edge[v->edge[i]], variable));
}

int sbp_reduction_next(struct sbp_reducer *reducer)
{
    if (reducer->queue_count == 0)
        return -1;
    const int variable = reducer->queue[reducer->queue_first];
    reducer->queue_first = (reducer->queue_first + 1) % reducer->variable_count;
    reducer->queue_count--;
    reducer->variable[variable].is_dirty = false;
    return variable;
}

/* --- begin and end --- */

static bool copy_variable(struct sbp_reducer *reducer, int variable)
{
    const struct sbp_variable *source = &reducer->source->variable[variable];
    struct sbp_reducer_variable *v = &reducer->variable[variable];
    v->domain = source->domain;
    v->value = SBP_TAKE(&reducer->scratch, int, source->domain);
    v->cost = SBP_TAKE(&reducer->scratch, double, source->domain);
    if (v->value == NULL || v->cost == NULL)
        return false;
    for (int k = 0; k < source->domain; k++)
        v->value[k] = k;
    memcpy(v->cost, source->cost, (size_t)source->domain * sizeof *v->cost);
    return true;
}

static bool has_forbidden(const double *cost, size_t entries)
{
    for (size_t i = 0; i < entries; i++)
        if (cost[i] >= SBP_FORBIDDEN)
            return true;
    return false;
}

static bool copy_edge(struct sbp_reducer *reducer, int edge)
{
    const struct sbp_edge *source = &reducer->source->edge[edge];
    reducer->edge[edge] = (struct sbp_reducer_edge){
        .a = source->a,
        .b = source->b,
        .cost = source->cost,
        .is_partial = has_forbidden(source->cost, sbp_problem_entries(reducer->source, source))};
    return add_link(reducer, source->a, edge) && add_link(reducer, source->b, edge);
}

enum sbp_status sbp_reduction_begin(struct sbp_reducer *reducer, struct sbp_reduction *reduction)
{
    const struct sbp_problem *source = reduction->source;
    const int variables = source->variable_count, edges = source->edge_count;
    *reducer = (struct sbp_reducer){.source = source,
                                    .reduction = reduction,
                                    .scratch.budget = source->arena.budget,
                                    .variable_count = variables,
                                    .edge_count = edges};
    reducer->variable = SBP_NEW(&reducer->scratch, struct sbp_reducer_variable, variables);
    reducer->edge = SBP_NEW(&reducer->scratch, struct sbp_reducer_edge, edges);
    reducer->queue = SBP_NEW(&reducer->scratch, int, (size_t)variables + 1);
    reduction->step = SBP_NEW(&reduction->arena, struct sbp_reduction_step, variables);
    if (reducer->variable == NULL || reducer->edge == NULL || reducer->queue == NULL ||
        reduction->step == NULL)
        return SBP_E_MEMORY;
    int largest = 1;
    for (int v = 0; v < variables; v++) {
        if (!copy_variable(reducer, v))
            return SBP_E_MEMORY;
        largest = source->variable[v].domain > largest ? source->variable[v].domain : largest;
    }
    reducer->picked = SBP_NEW(&reducer->scratch, int, largest);
    if (reducer->picked == NULL)
        return SBP_E_MEMORY;
    for (int e = 0; e < edges; e++)
        if (!copy_edge(reducer, e))
            return SBP_E_MEMORY;
    return sbp_live_build(source, &reducer->scratch, &reducer->live);
}

void sbp_reduction_end(struct sbp_reducer *reducer)
{
    for (int e = 0; reducer->edge != NULL && e < reducer->edge_count; e++)
        if (reducer->edge[e].a >= 0 && reducer->edge[e].owned != NULL)
            drop_edge_table(reducer, &reducer->edge[e]);
    sbp_arena_free(&reducer->scratch);
}
