/* A space as a pairwise problem: a variable for each of its variables, and costs of choices and of
 * pairs. */
#include <math.h>
#include <stdlib.h>

#include "planner/pricing/edge_tables.h"

/* A point of time stands for a memory stage, whose devices hold the memory. */
static enum sbp_status make_points(const struct sbp_space *space, struct sbp_interval **points)
{
    const int count = space->weights->memory_stages;
    *points = malloc((size_t)count * sizeof **points);
    for (int i = 0; *points != NULL && i < count; i++)
        (*points)[i] = (struct sbp_interval){.from = i, .to = i + 1};
    return *points == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Fills in a variable's costs and bytes; the first operator also bears the constant ones. */
static void fill_unary(const struct sbp_space *space, int variable, bool is_first,
                       struct sbp_variable *out)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const double constant = is_first ? sbp_pricing_constant_s(space) : 0;
    for (int c = 0; c < v->choice_count; c++)
        out->cost[c] = v->cost_s[c] + constant;
    for (int point = 0; point < out->interval_count; point++)
        for (int c = 0; c < v->choice_count; c++)
            out->usage[(size_t)point * (size_t)v->choice_count + (size_t)c] =
                sbp_space_unary_bytes(space, variable, c, point) +
                (is_first ? sbp_pricing_constant_bytes(space, point) : 0);
}

/* Whether a variable's choices take memory. A rest does where operators with weights, such as
 * norms, run in it. */
static bool takes_memory(const struct sbp_space *space, int variable)
{
    for (int point = 0; point < space->weights->memory_stages; point++)
        for (int c = 0; c < space->variable[variable].choice_count; c++)
            if (sbp_space_unary_bytes(space, variable, c, point) > 0)
                return true;
    return false;
}

static enum sbp_status add_unaries(const struct sbp_space *space, const struct sbp_interval *points,
                                   struct sbp_problem *problem)
{
    bool is_first = true;
    for (int v = 0; v < space->variable_count; v++) {
        const struct sbp_space_variable *variable = &space->variable[v];
        const char *name = variable->op >= 0 ? space->graph->op[variable->op].name
                                             : space->graph->tensor[variable->tensor].name;
        const bool uses =
            isfinite(problem->capacity) && (variable->op >= 0 || takes_memory(space, v));
        if (sbp_problem_add_variable(problem, name, variable->choice_count,
                                     uses ? space->weights->memory_stages : 0, points) != v)
            return SBP_E_MEMORY;
        fill_unary(space, v, is_first && variable->op >= 0, &problem->variable[v]);
        is_first &= variable->op < 0;
    }
    return SBP_OK;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static void add_to(double *cell, double cost)
{
    *cell = *cell >= SBP_FORBIDDEN || cost >= SBP_FORBIDDEN ? SBP_FORBIDDEN : *cell + cost;
}

/* A loop (the last operator of a repeated block feeds the first of the next) is a unary cost. */
static void add_loop(const struct sbp_space *space, const struct sbp_space_edge *edge,
                     struct sbp_problem *problem)
{
    const int variable = edge->ends.from.variable;
    const struct sbp_space_variable *v = &space->variable[variable];
    for (int c = 0; c < v->choice_count; c++)
        add_to(&problem->variable[variable].cost[c],
               sbp_edge_price_s(edge, v->tuple[c], v->tuple[c]));
}

static enum sbp_status add_edge(const struct sbp_space *space, const struct sbp_space_edge *edge,
                                struct sbp_problem *problem)
{
    const int a = edge->ends.from.variable, b = edge->ends.to.variable;
    const struct sbp_space_variable *from = &space->variable[a], *to = &space->variable[b];
    const size_t rows = (size_t)from->choice_count, columns = (size_t)to->choice_count;
    bool transposed = false;
    double *table = sbp_problem_edge_table(problem, a, b, &transposed);
    if (table == NULL)
        return SBP_E_MEMORY;
    for (size_t r = 0; r < rows && !sbp_space_interrupted(space); r++)
        for (size_t c = 0; c < columns; c++)
            add_to(&table[transposed ? c * rows + r : r * columns + c],
                   sbp_edge_price_s(edge, from->tuple[r], to->tuple[c]));
    return SBP_OK;
}

static enum sbp_status add_edges(const struct sbp_space *space, struct sbp_problem *problem)
{
    struct sbp_arena scratch = {.budget = space->arena.budget};
    struct sbp_space_edges edges;
    enum sbp_status status = sbp_pricing_make_edges(space, &scratch, &edges);
    for (int e = 0; status == SBP_OK && e < edges.count; e++) {
        const struct sbp_space_edge *edge = &edges.edge[e];
        if (sbp_edge_is_loop(edge))
            add_loop(space, edge, problem);
        else
            status = add_edge(space, edge, problem);
    }
    sbp_arena_free(&scratch);
    return status;
}

enum sbp_status sbp_pricing_problem(const struct sbp_space *space, double capacity_bytes,
                                    struct sbp_problem *problem, struct sbp_diag *diag)
{
    struct sbp_interval *points = NULL;
    enum sbp_status status = sbp_problem_init_within(
        problem, space->variable_count, space->input_edge_count + space->output_edge_count,
        space->arena.budget);
    if (status == SBP_OK) {
        problem->capacity = capacity_bytes;
        status = make_points(space, &points);
    }
    if (status == SBP_OK)
        status = add_unaries(space, points, problem);
    free(points);
    if (status == SBP_OK)
        status = add_edges(space, problem);
    if (status == SBP_OK && sbp_space_interrupted(space))
        status = SBP_STOPPED;
    if (status != SBP_OK) {
        sbp_problem_free(problem);
        return status == SBP_STOPPED
                   ? status
                   : sbp_fail(diag, status, "the search problem: %s", sbp_status_text(status));
    }
    return SBP_OK;
}
