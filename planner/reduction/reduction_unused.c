#include <math.h>

#include "planner/limits.h"
#include "planner/reduction/reduction_priv.h"

/* What is left of a variable beside its one or two neighbours. */
struct fold {
    int variable, parent[2], edge[2];
    int *map;
};

/* The least cost of the variable beside values of its parents, and the value that attains it. */
static double least_beside(const struct sbp_reducer *reducer, const struct fold *fold, int first,
                           int second, int *best)
{
    const struct sbp_reducer_variable *v = &reducer->variable[fold->variable];
    double least = INFINITY;
    *best = 0;
    for (int k = 0; k < v->domain; k++) {
        double cost = v->cost[k];
        if (fold->parent[0] >= 0)
            cost = sbp_problem_add_costs(cost,
                                         sbp_reduction_cost(reducer, &reducer->edge[fold->edge[0]],
                                                            fold->variable, k, first));
        if (fold->parent[1] >= 0)
            cost = sbp_problem_add_costs(cost,
                                         sbp_reduction_cost(reducer, &reducer->edge[fold->edge[1]],
                                                            fold->variable, k, second));
        if (cost < least) {
            least = cost;
            *best = k;
        }
    }
    return least;
}

/* A variable without neighbours takes its cheapest value. Where none is allowed, no choice is. */
static void fold_alone(struct sbp_reducer *reducer, const struct fold *fold)
{
    int best;
    const double least = least_beside(reducer, fold, 0, 0, &best);
    if (least >= SBP_FORBIDDEN)
        reducer->is_forbidden = true;
    else
        reducer->constant += least;
    fold->map[0] = reducer->variable[fold->variable].value[best];
}

/* A variable with one neighbour goes into its costs. */
static void fold_into(struct sbp_reducer *reducer, const struct fold *fold)
{
    struct sbp_reducer_variable *parent = &reducer->variable[fold->parent[0]];
    for (int i = 0; i < parent->domain; i++) {
        int best;
        const double least = least_beside(reducer, fold, i, 0, &best);
        fold->map[parent->value[i]] = reducer->variable[fold->variable].value[best];
        parent->cost[i] = sbp_problem_add_costs(parent->cost[i], least);
    }
    sbp_reduction_remove_edge(reducer, fold->edge[0]);
}

/* A variable between two neighbours becomes an edge between them. */
static bool fold_between(struct sbp_reducer *reducer, const struct fold *fold)
{
    const int a = fold->parent[0], b = fold->parent[1];
    const struct sbp_reducer_variable *first = &reducer->variable[a],
                                      *second = &reducer->variable[b];
    const size_t rows = (size_t)first->domain, columns = (size_t)second->domain;
    const size_t source_columns = (size_t)reducer->source->variable[b].domain;
    double *table = sbp_reduction_take_table(reducer, rows * columns);
    bool is_partial = false;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            int best;
            const double least = least_beside(reducer, fold, (int)i, (int)j, &best);
            table[i * columns + j] = least;
            is_partial |= least >= SBP_FORBIDDEN;
            fold->map[(size_t)first->value[i] * source_columns + (size_t)second->value[j]] =
                reducer->variable[fold->variable].value[best];
        }
    sbp_reduction_remove_edge(reducer, fold->edge[0]);
    sbp_reduction_remove_edge(reducer, fold->edge[1]);
    return sbp_reduction_put_edge(reducer, fold->edge[0], a, b, table, is_partial);
}

/* Whether the variable may go: it uses nothing, and the edge that it would become is not much
 * larger than those that it has. */
static bool may_fold(const struct sbp_reducer *reducer, int variable)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    if (v->is_gone || v->span_count > 0 || v->degree > 2)
        return false;
    if (v->degree < 2)
        return true;
    const double first =
        reducer->variable[sbp_reduction_other(&reducer->edge[v->edge[0]], variable)].domain;
    const double second =
        reducer->variable[sbp_reduction_other(&reducer->edge[v->edge[1]], variable)].domain;
    return first * second <= SBP_PROBLEM_FOLD_GROWTH * v->domain * (first + second);
}

static enum sbp_status fold_variable(struct sbp_reducer *reducer, int variable)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    struct fold fold = {.variable = variable, .parent = {-1, -1}};
    const int degree = v->degree;
    for (int i = 0; i < degree; i++) {
        fold.edge[i] = v->edge[i];
        fold.parent[i] = sbp_reduction_other(&reducer->edge[v->edge[i]], variable);
    }
    sbp_reduction_mark_around(reducer, variable);
    fold.map = sbp_reduction_note_step(
        reducer, (struct sbp_reduction_step){.variable = variable,
                                             .parent = {fold.parent[0], fold.parent[1]}});
    if (fold.map == NULL)
        return SBP_E_MEMORY;
    if (degree == 2)
        return fold_between(reducer, &fold) ? SBP_OK : SBP_E_MEMORY;
    if (degree == 1)
        fold_into(reducer, &fold);
    else
        fold_alone(reducer, &fold);
    return SBP_OK;
}

enum sbp_status sbp_reduction_fold_unused(struct sbp_reducer *reducer, bool *changed)
{
    sbp_reduction_mark_all(reducer);
    for (int v = sbp_reduction_next(reducer); v >= 0; v = sbp_reduction_next(reducer)) {
        if (!may_fold(reducer, v))
            continue;
        SBP_TRY(fold_variable(reducer, v));
        *changed = true;
    }
    return SBP_OK;
}
