#include <math.h>

#include "planner/reduction/reduction_priv.h"

/* The most by which an edge costs more with one value of the variable than with another. */
static double edge_excess(const struct sbp_reducer *reducer, const struct sbp_reducer_edge *edge,
                          int variable, int one, int another)
{
    const int others = reducer->variable[sbp_reduction_other(edge, variable)].domain;
    double most = -INFINITY;
    for (int l = 0; l < others; l++) {
        const double theirs = sbp_reduction_cost(reducer, edge, variable, another, l);
        if (theirs >= SBP_FORBIDDEN)
            continue;
        const double ours = sbp_reduction_cost(reducer, edge, variable, one, l);
        most = fmax(most, sbp_problem_usable(ours) - theirs);
        if (most == INFINITY)
            break;
    }
    return most;
}

/* Whether one value is as good as another whatever the neighbours choose. */
static bool is_as_good(const struct sbp_reducer *reducer, int variable, int one, int another)
{
    const struct sbp_reducer_variable *v = &reducer->variable[variable];
    for (int s = 0; s < v->span_count; s++)
        if (v->span[s].usage[one] > v->span[s].usage[another])
            return false;
    double excess = v->cost[one] - v->cost[another];
    for (int i = 0; i < v->degree && excess < INFINITY; i++) {
        const double part =
            edge_excess(reducer, &reducer->edge[v->edge[i]], variable, one, another);
        excess += part;
    }
    return excess <= 0;
}

/* Lists the values that no other one that is listed is as good as. */
static int list_best(const struct sbp_reducer *reducer, int variable, int *kept)
{
    int count = 0;
    for (int k = 0; k < reducer->variable[variable].domain; k++)
        kept[count++] = k;
    for (int i = 0; i < count;) {
        bool dominated = false;
        for (int j = 0; j < count && !dominated; j++)
            dominated = j != i && is_as_good(reducer, variable, kept[j], kept[i]);
        if (!dominated) {
            i++;
            continue;
        }
        count--;
        for (int j = i; j < count; j++)
            kept[j] = kept[j + 1];
    }
    return count;
}

enum sbp_status sbp_reduction_drop_dominated(struct sbp_reducer *reducer, bool *changed)
{
    sbp_reduction_mark_all(reducer);
    for (int v = sbp_reduction_next(reducer); v >= 0; v = sbp_reduction_next(reducer)) {
        const int count = list_best(reducer, v, reducer->picked);
        if (count == reducer->variable[v].domain)
            continue;
        if (!sbp_reduction_keep_values(reducer, v, reducer->picked, count))
            return SBP_E_MEMORY;
        sbp_reduction_mark_around(reducer, v);
        *changed = true;
    }
    return SBP_OK;
}
