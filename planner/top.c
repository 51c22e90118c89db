#include "planner/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "planner/search.h"

/* The choices that agree with `choice` before variable `at` and take none of the excluded values
 * there. Variable count: the choice alone is left, nothing to solve. */
struct part {
    const int *prefix;  /* (variable_count) of the choice that it was split from; NULL: the whole */
    int at;             /* variable */
    int excluded_count; /* values of it */
    const int *excluded;
    double bound; /* nothing in it costs less */
    double cost;  /* of choice; INFINITY while unsolved */
    int *choice;  /* (variable_count) the best of it; NULL while unsolved */
};

struct lawler {
    const struct sbp_problem *problem;
    const struct sbp_solver_options *options;
    struct sbp_top *top;
    struct sbp_diag *diag;
    int k;
    struct sbp_arena arena;
    struct sbp_problem restricted; /* shares edges and usages with problem */
    struct part *heap;             /* malloc'ed */
    int heap_count, heap_room;
    double *known; /* (k) costs of the cheapest choices that were seen, ascending */
    int known_count;
    double start_s;
};

static double part_key(const struct part *part)
{
    return part->choice != NULL ? part->cost : part->bound;
}

static bool push(struct lawler *lawler, const struct part *part)
{
    if (lawler->heap_count == lawler->heap_room) {
        const int room = lawler->heap_room == 0 ? 64 : 2 * lawler->heap_room;
        struct part *heap = realloc(lawler->heap, (size_t)room * sizeof *heap);
        if (heap == NULL)
            return false;
        lawler->heap = heap;
        lawler->heap_room = room;
    }
    int at = lawler->heap_count++;
    for (; at > 0 && part_key(part) < part_key(&lawler->heap[(at - 1) / 2]); at = (at - 1) / 2)
        lawler->heap[at] = lawler->heap[(at - 1) / 2];
    lawler->heap[at] = *part;
    return true;
}

static struct part pop(struct lawler *lawler)
{
    struct part *heap = lawler->heap;
    const struct part first = heap[0], last = heap[--lawler->heap_count];
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= lawler->heap_count)
            break;
        if (child + 1 < lawler->heap_count && part_key(&heap[child + 1]) < part_key(&heap[child]))
            child++;
        if (!(part_key(&heap[child]) < part_key(&last)))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

/* ---- solving a part ------------------------------------------------------------------------- */

static bool init_restricted(struct lawler *lawler)
{
    const struct sbp_problem *problem = lawler->problem;
    const int count = problem->variable_count;
    lawler->restricted = *problem;
    lawler->restricted.arena = (struct sbp_arena){0};
    lawler->restricted.variable = SBP_NEW(&lawler->arena, struct sbp_variable, count);
    if (lawler->restricted.variable == NULL)
        return false;
    for (int v = 0; v < count; v++) {
        lawler->restricted.variable[v] = problem->variable[v];
        lawler->restricted.variable[v].cost =
            SBP_NEW(&lawler->arena, double, problem->variable[v].domain);
        if (lawler->restricted.variable[v].cost == NULL)
            return false;
    }
    return true;
}

/* Costs of the part's choices, all others forbidden. False: a variable has nothing left. */
static bool restrict_costs(struct lawler *lawler, const struct part *part)
{
    const struct sbp_problem *problem = lawler->problem;
    for (int v = 0; v < problem->variable_count; v++) {
        const struct sbp_variable *source = &problem->variable[v];
        double *cost = lawler->restricted.variable[v].cost;
        memcpy(cost, source->cost, (size_t)source->domain * sizeof *cost);
        for (int k = 0; part->prefix != NULL && v < part->at && k < source->domain; k++)
            if (k != part->prefix[v])
                cost[k] = SBP_FORBIDDEN;
    }
    if (part->excluded_count == 0)
        return true;
    double *cost = lawler->restricted.variable[part->at].cost, least = INFINITY;
    for (int i = 0; i < part->excluded_count; i++)
        cost[part->excluded[i]] = SBP_FORBIDDEN;
    for (int k = 0; k < problem->variable[part->at].domain; k++)
        least = fmin(least, cost[k]);
    return least < SBP_FORBIDDEN;
}

/* The cost at which a choice is of no use any more. */
static double upper_bound(const struct lawler *lawler)
{
    const double asked = lawler->options->upper_bound;
    const double bound = asked > 0 || asked < 0 ? asked : INFINITY;
    return lawler->known_count == lawler->k ? fmin(bound, lawler->known[lawler->k - 1]) : bound;
}

static struct sbp_solver_options options_left(const struct lawler *lawler)
{
    struct sbp_solver_options options = *lawler->options;
    if (options.time_limit_s > 0)
        options.time_limit_s = fmax(1e-9, options.time_limit_s - (sbp_clock_s() - lawler->start_s));
    if (options.max_evaluations > 0)
        options.max_evaluations = options.max_evaluations > lawler->top->evaluations
                                      ? options.max_evaluations - lawler->top->evaluations
                                      : 1;
    options.upper_bound = upper_bound(lawler);
    return options;
}

static void note_known(struct lawler *lawler, double cost)
{
    int at = lawler->known_count < lawler->k ? lawler->known_count++ : lawler->k - 1;
    for (; at > 0 && lawler->known[at - 1] > cost; at--)
        lawler->known[at] = lawler->known[at - 1];
    lawler->known[at] = cost;
}

/* Nothing of the part will be listed; what it holds costs at least this. */
static void leave_out(struct lawler *lawler, double bound)
{
    lawler->top->lower_bound = fmin(lawler->top->lower_bound, bound);
}

static enum sbp_status keep_solution(struct lawler *lawler, struct part *part,
                                     const struct sbp_solution *solution)
{
    const size_t count = (size_t)lawler->problem->variable_count;
    part->bound = fmax(part->bound, solution->lower_bound);
    if (solution->choice == NULL) {
        const bool proved = solution->status == SBP_PLAN_INFEASIBLE;
        leave_out(lawler, proved ? INFINITY : part->bound);
        return SBP_OK;
    }
    part->choice = SBP_NEW(&lawler->arena, int, count);
    if (part->choice == NULL)
        return SBP_E_MEMORY;
    memcpy(part->choice, solution->choice, count * sizeof *part->choice);
    part->cost = solution->cost;
    note_known(lawler, part->cost);
    return push(lawler, part) ? SBP_OK : SBP_E_MEMORY;
}

/* Solves the part and puts it back on the heap when something in it may be listed. */
static enum sbp_status solve_part(struct lawler *lawler, struct part *part)
{
    struct sbp_top *top = lawler->top;
    if (!restrict_costs(lawler, part))
        return SBP_OK;
    if (top->stopped || part->bound >= upper_bound(lawler)) {
        leave_out(lawler, part->bound);
        return SBP_OK;
    }
    const struct sbp_solver_options options = options_left(lawler);
    struct sbp_solution solution;
    SBP_TRY(sbp_solve_exact(&lawler->restricted, &options, &solution, lawler->diag));
    top->evaluations += solution.evaluations;
    top->stopped |= solution.stopped;
    if (part->prefix == NULL) {
        top->status = solution.status;
        top->shortfall = solution.shortfall;
    }
    const enum sbp_status status = keep_solution(lawler, part, &solution);
    sbp_solution_free(&solution);
    return status;
}

/* ---- splitting it --------------------------------------------------------------------------- */

/* What is left of a part without its best choice: one part for every variable that may differ. */
static enum sbp_status split(struct lawler *lawler, const struct part *part)
{
    const int first = part->prefix == NULL ? 0 : part->at;
    for (int v = first; v < lawler->problem->variable_count; v++) {
        if (lawler->problem->variable[v].domain == 1)
            continue;
        const int inherited = v == part->at ? part->excluded_count : 0;
        int *excluded = SBP_NEW(&lawler->arena, int, inherited + 1);
        if (excluded == NULL)
            return SBP_E_MEMORY;
        if (inherited > 0)
            memcpy(excluded, part->excluded, (size_t)inherited * sizeof *excluded);
        excluded[inherited] = part->choice[v];
        const struct part rest = {.prefix = part->choice,
                                  .at = v,
                                  .excluded_count = inherited + 1,
                                  .excluded = excluded,
                                  .bound = part->bound,
                                  .cost = INFINITY};
        if (!push(lawler, &rest))
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* Without a proof of its part's best a choice may turn up late: it is put where it belongs. */
static void list_choice(struct lawler *lawler, const struct part *part)
{
    struct sbp_top *top = lawler->top;
    const size_t count = (size_t)top->variable_count, bytes = count * sizeof *top->choice;
    int at = top->count++;
    for (; at > 0 && top->cost[at - 1] > part->cost; at--) {
        top->cost[at] = top->cost[at - 1];
        memcpy(top->choice + (size_t)at * count, top->choice + (size_t)(at - 1) * count, bytes);
    }
    memcpy(top->choice + (size_t)at * count, part->choice, bytes);
    top->cost[at] = part->cost;
}

/* Parts come off the heap cheapest first; a solved one is next on the list. */
static enum sbp_status enumerate(struct lawler *lawler)
{
    struct sbp_top *top = lawler->top;
    const struct part whole = {.bound = -INFINITY, .cost = INFINITY};
    if (!push(lawler, &whole))
        return SBP_E_MEMORY;
    while (lawler->heap_count > 0 && top->count < lawler->k) {
        struct part part = pop(lawler);
        if (part.choice == NULL) {
            SBP_TRY(solve_part(lawler, &part));
            continue;
        }
        list_choice(lawler, &part);
        if (top->count < lawler->k)
            SBP_TRY(split(lawler, &part));
        else
            leave_out(lawler, part.bound); /* the rest of its part */
    }
    while (lawler->heap_count > 0)
        leave_out(lawler, pop(lawler).bound);
    return SBP_OK;
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* A place in the list is proved when nothing that is left out can be cheaper, in this order. */
static void judge(struct sbp_top *top, int k)
{
    while (top->proved < top->count && top->cost[top->proved] <= top->lower_bound)
        top->proved++;
    if (top->count == 0)
        return;
    const bool all = top->proved == top->count && (top->count == k || !top->stopped);
    top->status = all ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
}

static enum sbp_status prepare(struct lawler *lawler)
{
    const size_t count = (size_t)lawler->problem->variable_count, k = (size_t)lawler->k;
    lawler->top->choice = calloc(k * (count + 1), sizeof *lawler->top->choice);
    lawler->top->cost = calloc(k, sizeof *lawler->top->cost);
    lawler->known = SBP_NEW(&lawler->arena, double, k);
    const bool enough = lawler->top->choice != NULL && lawler->top->cost != NULL &&
                        lawler->known != NULL && init_restricted(lawler);
    return enough ? SBP_OK : SBP_E_MEMORY;
}

enum sbp_status sbp_solve_top(const struct sbp_problem *problem,
                              const struct sbp_solver_options *options, int k, struct sbp_top *top,
                              struct sbp_diag *diag)
{
    *top = (struct sbp_top){.variable_count = problem->variable_count,
                            .lower_bound = INFINITY,
                            .status = SBP_PLAN_TIME_LIMIT};
    struct lawler lawler = {.problem = problem,
                            .options = options,
                            .top = top,
                            .diag = diag,
                            .k = k,
                            .start_s = sbp_clock_s()};
    sbp_arena_init(&lawler.arena);
    enum sbp_status status = prepare(&lawler);
    if (status == SBP_OK)
        status = enumerate(&lawler);
    free(lawler.heap);
    sbp_arena_free(&lawler.arena);
    if (status != SBP_OK) {
        sbp_top_free(top);
        return status == SBP_E_MEMORY ? sbp_fail(diag, status, "top: out of memory") : status;
    }
    judge(top, k);
    top->wall_s = sbp_clock_s() - lawler.start_s;
    return SBP_OK;
}

void sbp_top_free(struct sbp_top *top)
{
    if (top == NULL)
        return;
    free(top->choice);
    free(top->cost);
    *top = (struct sbp_top){0};
}
