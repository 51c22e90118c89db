#include "planner/outer/path_enumeration.h"

#include <math.h>

#include "base/clock.h"
#include "planner/bounds/message_passing.h"
#include "planner/labels/label.h"
#include "planner/limits.h"
#include "planner/solvers/minimax.h"

struct enumerator {
    struct sbp_path_enumeration *s;
    struct sbp_diag *diag;
    struct sbp_arena arena; /* holds spaces */
    struct sbp_arena pass;  /* holds one pass */
    struct sbp_solve_request request;
    struct sbp_path_weights weights[SBP_PATHS_MOST + 1];
    struct sbp_space space[SBP_PATHS_MOST + 1]; /* along the known paths, and along the mixture */
    int space_count;
    struct sbp_space mixed;
    struct sbp_path_weights mixed_weights;
    struct sbp_message_reduction reduction; /* choices that the mixture leaves */
    struct sbp_strategy trial;
    double goal_s, open_s; /* open_s: least bound of plans found that prove nothing */
    double proved_s;       /* lower bound, but for open_s */
    int64_t work;
    bool has_new_path;
};

static enum sbp_status make_space(struct enumerator *t, const struct sbp_path *path,
                                  struct sbp_path_weights *weights, struct sbp_space *space)
{
    struct sbp_solve_request request = t->request;
    SBP_TRY(sbp_path_weights_make(t->s->cut, path, &t->arena, weights, t->diag));
    request.weights = weights;
    SBP_TRY(sbp_space_make(t->s->cut, &request, NULL, NULL, space, t->diag));
    space->request = &t->request;
    return space->is_plain ? SBP_E_UNSUPPORTED : SBP_OK; /* it proves nothing */
}

/* Makes the spaces along the paths that are new since the last time. */
static enum sbp_status make_spaces(struct enumerator *t)
{
    const struct sbp_mixture *mixture = t->s->mixture;
    for (; t->space_count < mixture->path_count; t->space_count++)
        SBP_TRY(make_space(t, &mixture->known[t->space_count], &t->weights[t->space_count],
                           &t->space[t->space_count]));
    return SBP_OK;
}

/* ---- a plan that costs less along all known paths -------------------------------------------- */

/* Labels and prices a choice; *legal: it can be labelled and compiled. */
static enum sbp_status price(struct enumerator *t, const int *choice,
                             struct sbp_step_totals *totals, bool *legal)
{
    const struct sbp_cut *cut = t->s->cut;
    struct sbp_labelling labelling;
    struct sbp_diag refusal = {{0}};
    struct sbp_step step;
    *legal = false;
    SBP_TRY(sbp_label(&t->space[0], choice, t->request.asked.solver_options.seed, &t->trial,
                      &labelling));
    if (labelling.broken_class >= 0 || labelling.broken_rests > 0)
        return SBP_OK;
    enum sbp_status status = sbp_strategy_close(&cut->graph, &cut->mesh, &t->trial, &refusal);
    if (status != SBP_OK)
        return status == SBP_E_INPUT ? SBP_OK : status;
    status = sbp_cut_step(cut, &t->trial, true, &step, &refusal);
    if (status != SBP_OK)
        return status == SBP_E_INPUT ? SBP_OK : status;
    *totals = step.totals;
    *legal = true;
    sbp_step_free(&step);
    return SBP_OK;
}

static void offer(struct enumerator *t, double objective_s)
{
    t->s->offer(t->s->context, &t->trial, objective_s);
    t->goal_s = objective_s;
}

static bool fits(const struct enumerator *t, int64_t bytes)
{
    return bytes <= sbp_request_limit_bytes(&t->request.asked, t->s->cut->cluster);
}

/* Adds the longest path of the trial, which is longer than all known ones; where no path can be
 * added, the trial's cost along the known ones stays open. */
static enum sbp_status learn_path(struct enumerator *t, double largest, bool *more)
{
    struct sbp_mixture *mixture = t->s->mixture;
    const int before = mixture->path_count;
    bool unused;
    if (before < SBP_PATHS_MOST && mixture->plan_count < SBP_PATHS_MOST)
        SBP_TRY(sbp_mixture_add(mixture, &t->trial, &unused, t->diag));
    t->has_new_path = mixture->path_count > before;
    *more = !t->has_new_path;
    if (!t->has_new_path)
        t->open_s = fmin(t->open_s, largest);
    return SBP_OK;
}

static enum sbp_status show(void *context, const int *choice, double largest, double *below,
                            bool *more)
{
    struct enumerator *t = context;
    struct sbp_step_totals totals;
    const int variables = t->mixed.variable_count;
    bool legal;
    int *original = SBP_NEW(&t->pass, int, variables + 1);
    if (original == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        original[v] = t->reduction.original[v][choice[v]];
    SBP_TRY(price(t, original, &totals, &legal));
    const bool is_plan = legal && fits(t, totals.device_bytes);
    const bool is_better = legal && totals.step_s < t->goal_s;
    t->s->memory_binds |= is_better && !is_plan;
    if (is_better && is_plan)
        offer(t, totals.step_s);
    if (legal && totals.step_s > largest * (1 + SBP_INNER_ROUND_OFF))
        SBP_TRY(learn_path(t, largest, more));
    else if (!is_plan)
        t->open_s = fmin(t->open_s, largest);
    *below = fmin(*below, fmin(t->goal_s, t->open_s) * (1 - SBP_INNER_ROUND_OFF));
    return SBP_OK;
}

/* ---- passes --------------------------------------------------------------------------------- */

static enum sbp_status make_problems(struct enumerator *t, int count, struct sbp_problem *problem)
{
    for (int i = 0; i < count; i++) {
        struct sbp_space narrow;
        SBP_TRY(sbp_message_restrict(&t->space[i], &t->reduction, &t->pass, &narrow));
        SBP_TRY(sbp_pricing_problem(&narrow, INFINITY, &problem[i], t->diag));
    }
    return SBP_OK;
}

static struct sbp_solver_options options_left(const struct enumerator *t)
{
    struct sbp_solver_options options = t->request.asked.solver_options;
    if (t->request.deadline_s > 0)
        options.time_limit_s = fmax(1e-9, t->request.deadline_s - sbp_clock_s());
    return options;
}

/* Searches the choices that the mixture leaves along all known paths; their spaces are made when
 * they are first needed. */
static enum sbp_status search_left(struct enumerator *t, double below_s, bool *done)
{
    SBP_TRY(make_spaces(t));
    const int count = t->space_count;
    struct sbp_minimax_result result = {.done = false};
    struct sbp_problem *problem = SBP_NEW(&t->pass, struct sbp_problem, count);
    if (problem == NULL)
        return SBP_E_MEMORY;
    enum sbp_status status = make_problems(t, count, problem);
    const struct sbp_minimax minimax = {.paths = count,
                                        .problem = problem,
                                        .below = below_s * (1 - SBP_INNER_ROUND_OFF),
                                        .most_work = SBP_OUTER_PATHS_WORK - t->work,
                                        .options = options_left(t),
                                        .show = show,
                                        .context = t};
    if (status == SBP_OK)
        status = sbp_minimax_solve(&minimax, &result, t->diag);
    t->s->evaluations += result.evaluations;
    t->work += result.work;
    t->s->stopped |= result.stopped;
    *done = result.done;
    for (int i = 0; i < count; i++)
        sbp_problem_free(&problem[i]);
    return status;
}

/* Searches below a cost. *done: no plan costs less, but for what is open. */
static enum sbp_status search_below(struct enumerator *t, double below_s, bool *done)
{
    t->has_new_path = false;
    SBP_TRY(sbp_message_narrow(&t->mixed, below_s, &t->pass, &t->reduction));
    t->s->evaluations += t->reduction.evaluations;
    t->work += t->reduction.evaluations;
    t->s->stopped |= t->reduction.stopped;
    *done = t->reduction.is_settled;
    if (*done || t->reduction.stopped || t->mixed.variable_count > SBP_PROBLEM_MINIMAX_VARIABLES ||
        sbp_message_cells(&t->reduction.space) > SBP_OUTER_PATHS_CELLS)
        return SBP_OK;
    return search_left(t, below_s, done);
}

static double left_s(const struct enumerator *t)
{
    return fmin(t->goal_s, t->open_s);
}

/* Raises the proved bound by growing shares of the gap: far below the best plan few choices are
 * left to look at, and plans found there are good ones. */
static enum sbp_status enumerate(struct enumerator *t)
{
    double share = SBP_OUTER_PATHS_FIRST_SHARE;
    bool done = true;
    SBP_TRY(sbp_strategy_alloc(&t->s->cut->graph, &t->arena, &t->trial));
    SBP_TRY(make_space(t, &t->s->mixture->best, &t->mixed_weights, &t->mixed));
    while ((done || t->has_new_path) && t->proved_s < left_s(t) && !t->s->stopped &&
           t->work < SBP_OUTER_PATHS_WORK) {
        const double gap_s = left_s(t) - t->proved_s;
        const double below_s = share < 1 ? t->proved_s + share * gap_s : left_s(t);
        const struct sbp_arena_mark mark = sbp_arena_mark(&t->pass);
        SBP_TRY(search_below(t, below_s, &done));
        sbp_arena_release(&t->pass, mark);
        if (done)
            t->proved_s = fmin(below_s, left_s(t));
        if (done)
            share *= 2;
    }
    return SBP_OK;
}

enum sbp_status sbp_path_enumerate(struct sbp_path_enumeration *enumeration, struct sbp_diag *diag)
{
    struct sbp_diag refusal = {{0}};
    struct enumerator t = {.s = enumeration,
                           .diag = &refusal,
                           .arena.budget = enumeration->request->asked.search_memory,
                           .pass.budget = enumeration->request->asked.search_memory,
                           .request = *enumeration->request,
                           .goal_s = enumeration->goal_s,
                           .open_s = INFINITY,
                           .proved_s = enumeration->bound_s};
    enumeration->evaluations = 0;
    enumeration->stopped = enumeration->memory_binds = false;
    t.request.every_level = true;
    t.request.asked.solver_options.progress = NULL;
    const enum sbp_status status = enumerate(&t);
    enumeration->bound_s = t.proved_s; /* a pass that failed does not undo the earlier ones */
    for (int i = 0; i < t.space_count; i++)
        sbp_space_free(&t.space[i]);
    sbp_space_free(&t.mixed);
    sbp_arena_free(&t.arena);
    sbp_arena_free(&t.pass);
    enumeration->stopped |= status == SBP_STOPPED;
    if (status == SBP_E_UNSUPPORTED || status == SBP_E_INPUT || status == SBP_STOPPED)
        return SBP_OK;
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", refusal.text);
}
