#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

enum sbp_status sbp_dual_ascent_init(struct sbp_dual_ascent *ascent, struct sbp_dual_state *state,
                                     const struct sbp_dual_blocks *blocks)
{
    struct sbp_dual *dual = state->dual;
    const size_t points = (size_t)dual->point_count + 1;
    *ascent = (struct sbp_dual_ascent){
        .state = state,
        .repair = {.state = state,
                   .blocks = blocks,
                   .relief = SBP_NEW(&dual->arena, struct sbp_dual_relief, dual->variable_count)},
        .choice = SBP_NEW(&dual->arena, int, dual->variable_count),
        .usage = SBP_NEW(&dual->arena, double, points),
        .average = SBP_NEW(&dual->arena, double, points),
        .scale = 1,
        .gainful = 1,
        .least = SBP_PROBLEM_DUAL_FIRST_LEAST};
    return ascent->repair.relief == NULL || ascent->choice == NULL || ascent->usage == NULL ||
                   ascent->average == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

double sbp_dual_ascent_excess(struct sbp_dual_ascent *ascent)
{
    const struct sbp_dual *dual = ascent->state->dual;
    double *usage = ascent->usage, sum = 0, most = -INFINITY;
    memset(usage, 0, ((size_t)dual->point_count + 1) * sizeof *usage);
    for (int v = 0; v < dual->variable_count; v++)
        for (int s = dual->live.begin[v]; s < dual->live.begin[v + 1]; s++) {
            const struct sbp_span *span = &dual->live.span[s];
            usage[span->first] += span->usage[ascent->choice[v]];
            usage[span->last] -= span->usage[ascent->choice[v]];
        }
    for (int p = 0; p < dual->point_count; p++) {
        sum += usage[p];
        usage[p] = sum - dual->problem->capacity;
        most = usage[p] > most ? usage[p] : most;
    }
    return most;
}

bool sbp_dual_ascent_try(struct sbp_dual_ascent *ascent)
{
    struct sbp_dual_state *state = ascent->state;
    sbp_dual_state_load(state, ascent->choice);
    if (sbp_dual_repair_run(&ascent->repair)) {
        sbp_dual_state_offer(state);
        (void)sbp_dual_descend(state);
        sbp_dual_state_offer(state);
    }
    return !state->dual->run->solution->stopped;
}

static void note_bound(struct sbp_dual_ascent *ascent, double bound)
{
    struct sbp_dual *dual = ascent->state->dual;
    if (bound > dual->bound + SBP_PROBLEM_DUAL_GAIN * fabs(bound)) {
        ascent->stalled = 0;
        ascent->gainful = ascent->scale;
        ascent->has_gained = true;
    } else if (++ascent->stalled > SBP_PROBLEM_DUAL_PATIENCE) {
        ascent->stalled = 0;
        ascent->scale *= SBP_PROBLEM_PRICE_DECAY;
        ascent->goes_back = true;
    }
    if (bound > dual->bound) {
        dual->bound = bound;
        memcpy(dual->best_price, dual->price, (size_t)dual->point_count * sizeof *dual->price);
    }
}

/* Begins anew with steps near those that last raised the bound. Behind a round that raised nothing,
 * the next one goes on to smaller steps. */
static void begin_round(struct sbp_dual_ascent *ascent)
{
    const double gainful = ascent->gainful, wider = ascent->least * SBP_PROBLEM_DUAL_LEAST_SCALE;
    const bool widens = !ascent->has_gained && wider > gainful * SBP_PROBLEM_DUAL_FIRST_LEAST;
    ascent->least = widens ? wider : gainful * SBP_PROBLEM_DUAL_LEAST_SCALE;
    ascent->has_gained = false;
    ascent->scale = gainful * SBP_PROBLEM_DUAL_NEW_SCALE;
    memset(ascent->average, 0, (size_t)ascent->state->dual->point_count * sizeof *ascent->average);
}

/* Polyak's step along the smoothed excess. */
static void step(struct sbp_dual_ascent *ascent, double bound)
{
    struct sbp_dual *dual = ascent->state->dual;
    const double best = fmin(dual->run->solution->cost, dual->run->upper_bound);
    const double target =
        best < INFINITY ? best : bound + SBP_PROBLEM_TARGET_RISE * fabs(bound) + 1e-300;
    const double old = ascent->iterations > 0 ? SBP_PROBLEM_DUAL_SMOOTHING : 0;
    double square = 0;
    for (int p = 0; p < dual->point_count; p++) {
        ascent->average[p] = old * ascent->average[p] + (1 - old) * ascent->usage[p];
        if (ascent->average[p] > 0 || dual->price[p] > 0)
            square += ascent->average[p] * ascent->average[p];
    }
    ascent->is_done = !(square > 0);
    if (ascent->scale < ascent->least)
        begin_round(ascent);
    if (ascent->is_done)
        return;
    const double rise = fmax(target - bound, SBP_PROBLEM_DUAL_LEAST_RISE * fabs(bound));
    const double length = ascent->scale * rise / square;
    const double *from = ascent->goes_back ? dual->best_price : dual->price;
    for (int p = 0; p < dual->point_count; p++)
        dual->price[p] = fmax(0, from[p] + length * ascent->average[p]);
    ascent->goes_back = false;
}

/* False when the search must stop. */
static bool iterate(struct sbp_dual_ascent *ascent)
{
    struct sbp_dual *dual = ascent->state->dual;
    sbp_dual_set_prices(dual, dual->price);
    const double bound = sbp_dual_pass(dual, ascent->iterations == 0 ? SBP_PROBLEM_DUAL_FIRST_PASSES
                                                                     : SBP_PROBLEM_DUAL_PASSES);
    if (dual->run->solution->stopped && ascent->iterations > 0)
        return false;
    note_bound(ascent, bound);
    sbp_dual_read(dual, ascent->choice);
    sbp_dual_relax(dual, ascent->choice);
    const double excess = sbp_dual_ascent_excess(ascent);
    const bool fits = dual->point_count == 0 || excess <= 0;
    if ((fits || ascent->iterations < SBP_PROBLEM_DUAL_EARLY ||
         ascent->iterations % SBP_PROBLEM_DUAL_TRY_EVERY == 0) &&
        !sbp_dual_ascent_try(ascent))
        return false;
    step(ascent, bound);
    ascent->iterations++;
    return true;
}

bool sbp_dual_ascent_run(struct sbp_dual_ascent *ascent, double work)
{
    struct sbp_dual *dual = ascent->state->dual;
    const double end = dual->work + work;
    while (!ascent->is_done && dual->work < end)
        if (!iterate(ascent))
            return false;
    return true;
}
