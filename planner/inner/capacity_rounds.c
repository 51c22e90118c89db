#include "planner/inner/cut_solve_priv.h"

#include <math.h>
#include <string.h>

#include "planner/bounds/lagrangian.h"
#include "planner/bounds/message_passing.h"
#include "planner/labels/label.h"
#include "planner/limits.h"

/* ---- from a choice to a priced strategy ----------------------------------------------------- */

enum sbp_status sbp_inner_price_trial(struct sbp_inner_job *job)
{
    const struct sbp_cut *cut = job->cut;
    struct sbp_step step;
    struct sbp_diag refusal = {{0}};
    SBP_TRY(sbp_strategy_close(&cut->graph, &cut->mesh, &job->trial.strategy, &refusal));
    SBP_TRY(sbp_cut_step(cut, &job->trial.strategy, true, &step, job->diag));
    const bool communication = job->request->asked.objective == SBP_COMMUNICATION;
    job->trial.objective_s = communication ? step.totals.communication_s : step.totals.step_s;
    job->trial.device_bytes = step.totals.device_bytes;
    job->least_bytes = fmin(job->least_bytes, (double)step.totals.device_bytes);
    sbp_step_free(&step);
    return SBP_OK;
}

void sbp_inner_keep_better(struct sbp_inner_job *job)
{
    const bool is_better = job->is_for_bytes && isfinite(job->best.objective_s)
                               ? job->trial.device_bytes < job->best.device_bytes
                               : job->trial.objective_s < job->best.objective_s;
    if (!is_better ||
        (job->trial.device_bytes > job->limit_bytes && !job->request->puts_memory_off))
        return;
    sbp_strategy_copy(&job->cut->graph, &job->trial.strategy, &job->best.strategy);
    job->best.objective_s = job->trial.objective_s;
    job->best.device_bytes = job->trial.device_bytes;
}

static void reset_class_limits(const struct sbp_inner_job *job)
{
    for (int c = 0; c < job->cut->graph.class_count; c++)
        job->class_limit[c] = sbp_space_class_unlimited(job->cut->graph.dim_class[c].size);
}

/* Limits a class to as many axes of each family as divide it together, the outermost first: labels
 * can then split it by the same axes everywhere. Returns whether the choice splits it by more. */
static bool limit_axes(const struct sbp_inner_job *job, int dim_class,
                       const struct sbp_class_limit *used)
{
    const struct sbp_mesh *mesh = &job->cut->mesh;
    uint8_t axes[SBP_MAX_AXES] = {0};
    int64_t left = job->cut->graph.dim_class[dim_class].size;
    bool narrows = false;
    for (int f = 0; f < mesh->family_count; f++) {
        for (; axes[f] < mesh->family[f].count && left % mesh->family[f].prime == 0; axes[f]++)
            left /= mesh->family[f].prime;
        narrows |= used->axes[f] > axes[f];
    }
    if (narrows)
        memcpy(job->class_limit[dim_class].axes, axes, sizeof axes);
    return narrows;
}

/* Limits a class to half of the parts that a variable of the choice makes of it. */
static bool halve_parts(const struct sbp_inner_job *job, int dim_class,
                        const struct sbp_class_limit *used)
{
    struct sbp_class_limit *limit = &job->class_limit[dim_class];
    limit->parts = (limit->parts < used->parts ? limit->parts : used->parts) / 2;
    return limit->parts >= 1;
}

/* Tightens the limit of a class whose labels do not divide it, so that the choice is not made
 * again. */
static bool tighten_class(const struct sbp_inner_job *job, bool by_axes, int dim_class,
                          const struct sbp_class_limit *used)
{
    const bool is_new = job->class_limit[dim_class].axes[0] == SBP_ANY_AXES;
    return (by_axes && is_new && limit_axes(job, dim_class, used)) ||
           halve_parts(job, dim_class, used);
}

/* ---- one round ------------------------------------------------------------------------------ */

enum verdict { FITS, TOO_LARGE, NOT_LABELLED, NO_CHOICE };

/* One solve of a space: choice, labels, price. */
struct round {
    double capacity_bytes; /* in: bytes of the memory model, INFINITY or SBP_FOR_BYTES */
    double modelled_bytes; /* bytes of the choice by the memory model */
    double bound_s;        /* lower bound of the choices that fit, or the goal where that is less */
    enum verdict verdict;
    int broken_class; /* not labelled: the class whose splits do not divide it; -1: none */
    struct sbp_class_limit used; /* the most that one variable splits that class by */
};

static enum sbp_status choose(struct sbp_inner_job *job, const struct sbp_space *space,
                              struct round *round, struct sbp_labelling *labelling)
{
    int *choice = NULL;
    const struct sbp_arena_mark mark = sbp_arena_mark(&job->scratch);
    enum sbp_status status = sbp_inner_note_interrupt(
        job, sbp_inner_solve_space(job, space, round->capacity_bytes, &choice, &round->bound_s));
    if (status == SBP_OK && choice != NULL) {
        status = sbp_label(space, choice, job->request->asked.solver_options.seed,
                           &job->trial.strategy, labelling);
        round->modelled_bytes = sbp_pricing_bytes(space, choice);
        round->verdict = NOT_LABELLED;
        round->broken_class = labelling->broken_class;
        round->used = labelling->used;
    }
    sbp_arena_release(&job->scratch, mark);
    return status;
}

static enum sbp_status try_round(struct sbp_inner_job *job, const struct sbp_space *space,
                                 double capacity_bytes, struct round *round)
{
    struct sbp_labelling labelling = {0};
    *round = (struct round){.capacity_bytes = capacity_bytes,
                            .bound_s = -INFINITY,
                            .verdict = NO_CHOICE,
                            .broken_class = -1};
    SBP_TRY(choose(job, space, round, &labelling));
    if (round->verdict == NO_CHOICE || labelling.broken_class >= 0 || labelling.broken_rests > 0)
        return SBP_OK;
    const enum sbp_status status = sbp_inner_price_trial(job);
    if (status == SBP_E_INPUT)
        return SBP_OK;
    SBP_TRY(status);
    sbp_inner_keep_better(job);
    round->verdict = job->trial.device_bytes <= job->limit_bytes ? FITS : TOO_LARGE;
    return SBP_OK;
}

/* ---- one space ------------------------------------------------------------------------------ */

/* The result of the rounds in one space. */
struct search {
    struct sbp_space space;
    double bound_s;
    double free_s; /* the bound without a limit of memory */
    bool is_infeasible, too_large;
    int broken_class;
    struct sbp_class_limit used; /* of broken_class */
    double cells;                /* cells of its tables over pairs */
};

/* Notes the compiled memory of the strategy that needs least by the model. */
static enum sbp_status note_need(struct sbp_inner_job *job, const struct sbp_space *space)
{
    struct round round;
    SBP_TRY(try_round(job, space, SBP_FOR_BYTES, &round));
    if (isinf(job->least_bytes))
        job->least_bytes = round.modelled_bytes + (double)job->cut->cluster->reserve_bytes;
    return SBP_OK;
}

/* Two capacities of the memory model: one whose plan fits the machine, with the bytes that it
 * leaves, and one whose plan does not, with the bytes that it lacks. */
struct bracket {
    double fits, left_bytes;
    double too_large, lacked_bytes;
};

static void note_round(const struct sbp_inner_job *job, const struct round *round,
                       struct bracket *bracket)
{
    const double left = (double)(job->limit_bytes - job->trial.device_bytes);
    if (round->verdict == TOO_LARGE) {
        bracket->too_large = fmin(round->capacity_bytes, round->modelled_bytes);
        bracket->lacked_bytes = -left;
    } else if (round->verdict == FITS) {
        bracket->fits = round->capacity_bytes;
        bracket->left_bytes = left;
    } else if (round->bound_s >= sbp_inner_goal_s(job) * (1 - SBP_INNER_ROUND_OFF)) {
        bracket->fits =
            round->capacity_bytes; /* no plan below that capacity is better than the known one */
    } else {
        bracket->too_large = round->capacity_bytes;
    }
}

/* The next capacity to try: below too_large by the bytes that were lacked until one fits; then
 * between the two, closer to the one that missed the limit by less. */
static double next_capacity(const struct bracket *bracket, double least)
{
    const double wide = bracket->too_large - bracket->fits;
    if (bracket->fits < 0)
        return bracket->too_large - bracket->lacked_bytes > least
                   ? bracket->too_large - bracket->lacked_bytes
                   : (bracket->too_large + least) / 2;
    const double missed = bracket->left_bytes + bracket->lacked_bytes;
    const double part = missed > 0 ? bracket->left_bytes / missed : 0.5;
    return bracket->fits + wide * fmin(1 - SBP_INNER_LEAST_PART, fmax(SBP_INNER_LEAST_PART, part));
}

/* Whether the bracket is too narrow for another trial. */
static bool is_narrow(const struct sbp_inner_job *job, const struct bracket *bracket, double least)
{
    const double below = bracket->fits < 0 ? least : bracket->fits;
    return bracket->too_large - below <= SBP_INNER_NARROW * bracket->too_large ||
           (bracket->fits >= 0 &&
            bracket->left_bytes <= SBP_INNER_NARROW * (double)job->limit_bytes);
}

static bool is_solved_at_once(const struct sbp_space *space)
{
    return sbp_message_cells(space) <= SBP_INNER_SCAN_CELLS;
}

/* Tries capacities in even steps from one that fits up to the room, where solving is quick: the
 * memory that a program needs beyond the model differs from choice to choice, so that a larger
 * capacity may hold a better plan that fits. */
static enum sbp_status scan(struct sbp_inner_job *job, const struct sbp_space *space, double fits)
{
    const double room = sbp_inner_room_bytes(job);
    if (!is_solved_at_once(space))
        return SBP_OK;
    for (int i = 1; i < SBP_INNER_SCAN_STEPS && !job->outcome->stopped; i++) {
        struct round round;
        SBP_TRY(try_round(job, space, fits + (room - fits) * i / SBP_INNER_SCAN_STEPS, &round));
    }
    return SBP_OK;
}

/* Looks for the largest capacity whose plan fits: the memory model is a lower bound, and its best
 * choice within the room was too large once compiled. */
static enum sbp_status try_capacities(struct sbp_inner_job *job, const struct sbp_space *space,
                                      double least, struct bracket bracket)
{
    for (int i = 0; i < SBP_INNER_CAPACITY_TRIALS && !job->outcome->stopped; i++) {
        struct round round;
        if (is_narrow(job, &bracket, least))
            break;
        SBP_TRY(try_round(job, space, next_capacity(&bracket, least), &round));
        note_round(job, &round, &bracket);
    }
    return scan(job, space, bracket.fits < 0 ? least : bracket.fits);
}

/* Searches under the memory limit. The plan of least memory by the model comes first: mostly it
 * fits, if it is slow. Where it does not, other capacities are tried only if that is quick, for
 * other candidates may fit. */
static enum sbp_status search_within_room(struct sbp_inner_job *job, struct search *search)
{
    struct round round;
    struct bracket bracket = {.fits = -1, .left_bytes = 0};
    SBP_TRY(try_round(job, &search->space, SBP_FOR_BYTES, &round));
    const double least = round.modelled_bytes * (1 + SBP_INNER_ROUND_OFF);
    const bool may_fit =
        round.verdict != TOO_LARGE || sbp_message_cells(&search->space) <= SBP_INNER_TRIAL_CELLS;
    if (job->outcome->stopped)
        return SBP_OK;
    job->most_table_evaluations = SBP_INNER_BOUND_EVALUATIONS;
    SBP_TRY(try_round(job, &search->space, sbp_inner_room_bytes(job), &round));
    search->bound_s = fmax(search->bound_s, round.bound_s);
    search->broken_class = round.broken_class;
    search->used = round.used;
    search->is_infeasible = round.verdict == NO_CHOICE && isinf(round.bound_s) && round.bound_s > 0;
    note_round(job, &round, &bracket);
    job->most_table_evaluations = SBP_INNER_TRIAL_EVALUATIONS;
    return round.verdict == TOO_LARGE && may_fit && !job->sketches
               ? try_capacities(job, &search->space, least, bracket)
               : SBP_OK;
}

/* Takes the choice of least memory, whatever it costs. */
static enum sbp_status search_for_bytes(struct sbp_inner_job *job, struct search *search)
{
    struct round round;
    SBP_TRY(try_round(job, &search->space, SBP_FOR_BYTES, &round));
    search->broken_class = round.broken_class;
    search->used = round.used;
    search->too_large = isfinite(job->best.objective_s); /* no other round can need less */
    return SBP_OK;
}

/* Whether the axes of every family play one role, so that they can be labelled in one way. */
static bool has_one_label(const struct sbp_space *space, int variable)
{
    bool has_one = true;
    for (int f = 0; f < space->mesh->family_count; f++)
        for (int role = 0; role < SBP_MAX_ROLES; role++) {
            const int count = sbp_space_count(space, variable, 0, f)[role];
            has_one &= count == 0 || count == space->mesh->family[f].count;
        }
    return has_one;
}

/* Whether every ZeRO level is in the space: levels that the memory model rules out may need less
 * once compiled. One device has nothing to shard at any level. */
static bool has_every_level(const struct sbp_inner_job *job, const struct sbp_space *space)
{
    return !job->request->zero_is_free || job->request->every_level || space->mesh->devices == 1;
}

/* Whether the space holds one strategy alone, so that no other can fit. On a Megatron mesh all
 * layers are labelled alike. */
static bool has_one_strategy(const struct sbp_inner_job *job, const struct sbp_space *space)
{
    bool has_one = has_every_level(job, space);
    for (int v = 0; v < space->variable_count && has_one; v++)
        has_one = space->variable[v].choice_count == 1 &&
                  (job->megatron != NULL || has_one_label(space, v));
    return has_one;
}

/* Keeps the strategy of the first bound: what makes it dearer than modelled, its path through the
 * step, tightens the next one. */
static void note_attained(struct sbp_inner_job *job, const struct round *round)
{
    if ((round->verdict != FITS && round->verdict != TOO_LARGE) ||
        isfinite(job->attained.objective_s))
        return;
    sbp_strategy_copy(&job->cut->graph, &job->trial.strategy, &job->attained.strategy);
    job->attained.objective_s = job->trial.objective_s;
}

/* Solves without a capacity first, which is quick and mostly enough; then under the memory limit.
 */
static enum sbp_status search_space(struct sbp_inner_job *job, struct search *search)
{
    struct sbp_lagrangian_bound bound;
    struct round round;
    if (job->is_for_bytes)
        return search_for_bytes(job, search);
    SBP_TRY(sbp_lagrangian_bound(&search->space, sbp_inner_room_bytes(job), &job->scratch, &bound));
    search->bound_s = bound.bound_s;
    search->free_s = bound.time_s;
    search->is_infeasible = isinf(bound.bound_s);
    if (search->is_infeasible || sbp_inner_is_hopeless(job, bound.bound_s))
        return SBP_OK;
    SBP_TRY(try_round(job, &search->space, INFINITY, &round));
    note_attained(job, &round);
    search->bound_s = fmax(search->bound_s, round.bound_s);
    search->free_s = fmax(search->free_s, round.bound_s);
    search->broken_class = round.broken_class;
    search->used = round.used;
    search->too_large = round.verdict == TOO_LARGE;
    if (!search->too_large || job->request->puts_memory_off || job->outcome->stopped)
        return SBP_OK;
    if (!has_one_strategy(job, &search->space))
        return search_within_room(job, search);
    search->bound_s = INFINITY;
    return SBP_OK;
}

/* Whether the memory limit raised the bound while the bound without it leaves room for a better
 * plan. */
static bool is_raised_by_memory(const struct sbp_inner_job *job, const struct search *search)
{
    return job->bounds && search->bound_s * (1 - SBP_INNER_ROUND_OFF) > search->free_s &&
           !sbp_inner_is_hopeless(job, search->free_s);
}

double sbp_inner_space_size_log10(const struct sbp_space *space)
{
    double digits = 0;
    for (int v = 0; v < space->variable_count; v++) {
        const struct sbp_space_variable *variable = &space->variable[v];
        if (variable->op >= 0)
            digits += log10(space->is_refuted ? variable->tuple_count : variable->choice_count);
    }
    return digits;
}

/* Searches the space within the class limits. */
static enum sbp_status search_limited(struct sbp_inner_job *job, struct search *search,
                                      struct sbp_diag *diag)
{
    *search = (struct search){.bound_s = -INFINITY, .free_s = -INFINITY, .broken_class = -1};
    enum sbp_status status = sbp_space_make(job->cut, job->request, job->class_limit, job->megatron,
                                            &search->space, diag);
    if (status != SBP_OK)
        return sbp_inner_note_interrupt(job, status);
    job->outcome->space_size_log10 = sbp_inner_space_size_log10(&search->space);
    job->outcome->is_plain |= search->space.is_plain;
    if (search->space.is_refuted) {
        search->bound_s = search->space.least_s;
        sbp_space_free(&search->space);
        return SBP_OK;
    }
    search->cells = sbp_message_cells(&search->space);
    status = search_space(job, search);
    if (status == SBP_OK && search->is_infeasible && !job->outcome->stopped)
        status = note_need(job, &search->space);
    sbp_space_free(&search->space);
    return status;
}

/* *broken: the labels do not divide a class, which may be tightened. */
static enum sbp_status search_round(struct sbp_inner_job *job, bool is_first, struct search *search,
                                    bool *too_large, bool *broken)
{
    struct sbp_diag refusal = {{0}};
    const enum sbp_status status = search_limited(job, search, &refusal);
    *broken = false;
    if (status == SBP_E_INPUT && !is_first)
        return SBP_OK;
    if (status != SBP_OK)
        return sbp_fail(job->diag, status, "%s", refusal.text);
    job->outcome->memory_binds |= search->too_large || search->is_infeasible;
    *too_large |= search->too_large;
    *broken = !job->outcome->stopped && search->broken_class >= 0;
    return SBP_OK;
}

static bool is_enough(const struct sbp_inner_job *job, double bound_s)
{
    return sbp_inner_is_good(job, bound_s) || sbp_inner_is_hopeless(job, bound_s) ||
           ((job->sketches || job->is_for_bytes) && isfinite(job->best.objective_s));
}

/* The first round alone bounds the space. Rounds with tightened classes only look for a plan: by
 * axes first, then by parts, if the first way found no good plan and rounds are quick. */
enum sbp_status sbp_inner_search_space(struct sbp_inner_job *job, double *bound_s, bool *too_large)
{
    struct search first;
    bool any_broken;
    reset_class_limits(job);
    SBP_TRY(search_round(job, true, &first, too_large, &any_broken));
    *bound_s = fmax(*bound_s, first.bound_s);
    job->is_misled = first.broken_class >= 0;
    job->cells = first.cells;
    job->outcome->memory_binds |= is_raised_by_memory(job, &first);
    for (int way = 0; way < 2 && any_broken && !job->outcome->stopped; way++) {
        struct search last = {.broken_class = first.broken_class, .used = first.used};
        bool broken = true;
        reset_class_limits(job);
        for (int i = 1; i < SBP_INNER_TIGHTENINGS && broken &&
                        tighten_class(job, way == 1, last.broken_class, &last.used);
             i++)
            SBP_TRY(search_round(job, false, &last, too_large, &broken));
        if (is_enough(job, *bound_s) || first.cells > SBP_INNER_SCAN_CELLS)
            break;
    }
    return SBP_OK;
}
