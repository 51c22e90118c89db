#include "calib/fit/quality.h"

#include <math.h>
#include <string.h>

#include "base/math/stats.h"
#include "calib/fit/tier_fit.h"

#define DIFFERS     1.2  /* pairs that are ordered */
#define MOST_SHARE  0.9  /* of the points whose error an error bar covers */
#define LEAST_ERROR 0.01 /* of a curve: nothing is measured better */
#define FEW_SIZES   8    /* below, half of them say nothing of the other half */
/* The error of a formula that no shape which it was not shown could test. */
#define UNTRIED_ERROR 0.5
/* The most pairs to look at; of more every n-th is taken. */
#define MOST_PAIRS 4000000.0

/* A measured point and its prediction. */
struct trial {
    const struct sbp_measured_group *shape;
    double bytes, measured, predicted;
};

struct trials {
    int count;
    struct trial *trial; /* (samples of all shapes) */
};

static enum sbp_status make_trials(const struct sbp_measured_groups *shapes,
                                   struct sbp_arena *arena, struct trials *trials,
                                   struct sbp_diag *diag)
{
    const int samples = sbp_shapes_samples(shapes);
    *trials = (struct trials){.trial = SBP_NEW(arena, struct trial, samples)};
    if (trials->trial == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", samples);
    return SBP_OK;
}

static void try_one(struct trials *trials, const struct sbp_measured_group *shape, int sample,
                    double predicted)
{
    const struct sbp_curve_sample *measured = &shape->sample[sample];
    if (!isnan(predicted))
        trials->trial[trials->count++] =
            (struct trial){shape, measured->bytes, measured->time_s, predicted};
}

static double off(const struct trials *trials, int i)
{
    return fabs(trials->trial[i].predicted / trials->trial[i].measured - 1);
}

/* Counts the pairs that are put in the wrong order, and those that no rising curve can order. */
static void count_pairs(const struct trials *trials, struct sbp_errors *errors)
{
    const double all = 0.5 * trials->count * trials->count;
    const int step = all > MOST_PAIRS ? (int)(all / MOST_PAIRS) + 1 : 1;
    int64_t pairs = 0, wrong = 0, falling = 0;
    for (int i = 0; i < trials->count; i++)
        for (int j = i % step; j < i; j += step) {
            const struct trial *longer = &trials->trial[i], *shorter = &trials->trial[j];
            if (longer->measured < shorter->measured) {
                longer = &trials->trial[j];
                shorter = &trials->trial[i];
            }
            if (longer->measured <= DIFFERS * shorter->measured)
                continue;
            pairs++;
            wrong += longer->predicted <= shorter->predicted;
            falling += longer->shape == shorter->shape && longer->bytes < shorter->bytes;
        }
    errors->pairs = pairs;
    errors->mis_ordered = pairs > 0 ? (double)wrong / (double)pairs : 0;
    errors->falling = pairs > 0 ? (double)falling / (double)pairs : 0;
}

static enum sbp_status sum_up(const struct trials *trials, struct sbp_arena *arena,
                              struct sbp_errors *errors, struct sbp_diag *diag)
{
    *errors = (struct sbp_errors){.count = trials->count};
    if (trials->count == 0)
        return SBP_OK;
    double *values = SBP_NEW(arena, double, trials->count);
    if (values == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", trials->count);
    for (int i = 0; i < trials->count; i++)
        values[i] = off(trials, i);
    errors->median = sbp_median(values, trials->count); /* sorts */
    errors->most = values[(int)ceil(MOST_SHARE * trials->count) - 1];
    count_pairs(trials, errors);
    return SBP_OK;
}

/* The error e that nine of ten predictions keep, either way: t / (1 + e) .. t (1 + e). */
static double bar(const struct trials *trials, int from, double *scratch)
{
    const int count = trials->count - from;
    for (int i = 0; i < count; i++) {
        const struct trial *trial = &trials->trial[from + i];
        const double ratio = trial->predicted / trial->measured;
        scratch[i] = fmax(ratio, 1 / ratio) - 1;
    }
    (void)sbp_median(scratch, count); /* sorts */
    return scratch[(int)ceil(MOST_SHARE * (count - 1))];
}

static double median_off(const struct trials *trials, int from, double *scratch)
{
    const int count = trials->count - from;
    for (int i = 0; i < count; i++)
        scratch[i] = off(trials, from + i);
    return count > 0 ? sbp_median(scratch, count) : NAN;
}

enum sbp_status sbp_quality_errors(const struct sbp_measured_groups *shapes,
                                   sbp_predict_fn *predict, const void *model,
                                   struct sbp_arena *arena, struct sbp_errors *errors,
                                   struct sbp_diag *diag)
{
    struct trials trials;
    SBP_TRY(make_trials(shapes, arena, &trials, diag));
    for (int s = 0; s < shapes->count; s++)
        for (int i = 0; i < shapes->shape[s].count; i++) {
            const struct sbp_measured_group *shape = &shapes->shape[s];
            try_one(&trials, shape, i, predict(model, shape, shape->sample[i].bytes));
        }
    return sum_up(&trials, arena, errors, diag);
}

/* --- in sample and held-out sizes --- */

/* Scratch of one judgement. */
struct judge {
    const struct sbp_measured_groups *shapes;
    struct sbp_network *network;
    struct sbp_arena *arena;
    struct sbp_quality *quality;
    double *scratch; /* (samples of a shape) */
    struct sbp_diag *diag;
};

static enum sbp_status judge_curves(struct judge *judge)
{
    struct trials trials;
    SBP_TRY(make_trials(judge->shapes, judge->arena, &trials, judge->diag));
    for (int s = 0; s < judge->shapes->count; s++) {
        const struct sbp_measured_group *shape = &judge->shapes->shape[s];
        const int from = trials.count;
        for (int i = 0; i < shape->count; i++)
            try_one(&trials, shape, i,
                    sbp_network_curve_s(&judge->network->curve[s], shape->sample[i].bytes));
        judge->quality->shape[s].in_sample = median_off(&trials, from, judge->scratch);
    }
    return sum_up(&trials, judge->arena, &judge->quality->in_sample, judge->diag);
}

/* Predicts every step-th size from the others. */
static enum sbp_status hold_out_from(const struct sbp_measured_group *shape, int first, int step,
                                     struct trials *trials, struct sbp_diag *diag)
{
    struct sbp_curve_sample kept[SBP_MOST_CURVE_SAMPLES];
    struct sbp_curve_fit fit;
    int count = 0;
    for (int i = 0; i < shape->count; i++)
        if (i % step != first)
            kept[count++] = shape->sample[i];
    SBP_TRY(sbp_curve_fit(kept, count, &fit, diag));
    for (int i = first; i < shape->count; i += step)
        try_one(trials, shape, i, sbp_curve_fit_s(&fit, shape->sample[i].bytes));
    return SBP_OK;
}

/* Nothing asks a curve for less than its smallest size, which tells latency alone: of few sizes, a
 * line of the others may meet 0 there, and be off by any factor. */
static int first_held_out(const struct sbp_measured_group *shape)
{
    return shape->count < FEW_SIZES ? 1 : 0;
}

static enum sbp_status hold_out_sizes(struct judge *judge)
{
    struct trials trials;
    SBP_TRY(make_trials(judge->shapes, judge->arena, &trials, judge->diag));
    for (int s = 0; s < judge->shapes->count; s++) {
        const struct sbp_measured_group *shape = &judge->shapes->shape[s];
        const int from = trials.count, step = shape->count < FEW_SIZES ? shape->count : 2;
        for (int first = first_held_out(shape); first < step; first++)
            SBP_TRY(hold_out_from(shape, first, step, &trials, judge->diag));
        judge->quality->shape[s].held_out_sizes = median_off(&trials, from, judge->scratch);
        judge->network->curve[s].error = fmax(LEAST_ERROR, bar(&trials, from, judge->scratch));
    }
    return sum_up(&trials, judge->arena, &judge->quality->held_out_sizes, judge->diag);
}

/* --- held-out shapes --- */

/* Copies the network without one curve, and fits the formula of its kind anew. */
static enum sbp_status without(const struct judge *judge, int shape, struct sbp_network *rest)
{
    const enum sbp_collective kind = judge->shapes->shape[shape].kind;
    SBP_TRY(sbp_tier_fit(judge->shapes, judge->network, kind, shape, &rest->formula[kind],
                         judge->diag));
    rest->ports = judge->network->ports;
    for (int s = 0; s < judge->network->curve_count; s++)
        if (s != shape)
            rest->curve[rest->curve_count++] = judge->network->curve[s];
    return SBP_OK;
}

/* Whether a shape lies between others of its kind, within a node or across nodes as it does, by
 * nodes and by members a node. */
static bool is_between(const struct judge *judge, int shape)
{
    const struct sbp_measured_group *own = &judge->shapes->shape[shape];
    bool fewer = false, more = false, inner = false, outer = false;
    for (int s = 0; s < judge->shapes->count; s++) {
        const struct sbp_measured_group *other = &judge->shapes->shape[s];
        if (s == shape || other->kind != own->kind || (other->nodes > 1) != (own->nodes > 1) ||
            sbp_network_sets_aside(judge->network, &judge->network->curve[s]))
            continue;
        fewer |= other->nodes <= own->nodes;
        more |= other->nodes >= own->nodes;
        inner |= other->ranks_per_node <= own->ranks_per_node;
        outer |= other->ranks_per_node >= own->ranks_per_node;
    }
    return fewer && more && inner && outer;
}

static enum sbp_status hold_out_shape(struct judge *judge, int s, struct trials *trials)
{
    const struct sbp_measured_group *shape = &judge->shapes->shape[s];
    const int from = trials->count;
    struct sbp_network *rest = SBP_NEW(judge->arena, struct sbp_network, 1);
    if (rest == NULL)
        return sbp_fail(judge->diag, SBP_E_MEMORY, "out of memory for a network");
    SBP_TRY(without(judge, s, rest));
    for (int i = 0; i < shape->count && sbp_network_covers(rest, shape->kind, shape->nodes); i++)
        try_one(trials, shape, i,
                sbp_network_price(rest, shape->kind, shape->nodes, shape->ranks_per_node,
                                  shape->sample[i].bytes)
                    .seconds);
    judge->quality->shape[s].held_out_shape = median_off(trials, from, judge->scratch);
    return SBP_OK;
}

/* Shapes that are set aside count only where they were measured, so they are not held out. */
static enum sbp_status hold_out_kind(struct judge *judge, enum sbp_collective kind,
                                     struct trials *between, struct trials *beyond)
{
    const int first_between = between->count, first_beyond = beyond->count;
    for (int s = 0; s < judge->shapes->count; s++)
        if (judge->shapes->shape[s].kind == kind &&
            !sbp_network_sets_aside(judge->network, &judge->network->curve[s]))
            SBP_TRY(hold_out_shape(judge, s, is_between(judge, s) ? between : beyond));
    struct sbp_formula *formula = &judge->network->formula[kind];
    formula->error = between->count > first_between ? bar(between, first_between, judge->scratch)
                                                    : UNTRIED_ERROR;
    formula->beyond_error = fmax(formula->error, beyond->count > first_beyond
                                                     ? bar(beyond, first_beyond, judge->scratch)
                                                     : UNTRIED_ERROR);
    return SBP_OK;
}

static enum sbp_status hold_out_shapes(struct judge *judge)
{
    struct trials between, beyond;
    SBP_TRY(make_trials(judge->shapes, judge->arena, &between, judge->diag));
    SBP_TRY(make_trials(judge->shapes, judge->arena, &beyond, judge->diag));
    for (int s = 0; s < judge->shapes->count; s++)
        judge->quality->shape[s].held_out_shape = NAN;
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        if (sbp_network_has(judge->network, (enum sbp_collective)kind))
            SBP_TRY(hold_out_kind(judge, (enum sbp_collective)kind, &between, &beyond));
    SBP_TRY(sum_up(&between, judge->arena, &judge->quality->between, judge->diag));
    return sum_up(&beyond, judge->arena, &judge->quality->beyond, judge->diag);
}

enum sbp_status sbp_quality_judge(const struct sbp_measured_groups *shapes,
                                  struct sbp_network *network, struct sbp_arena *arena,
                                  struct sbp_quality *quality, struct sbp_diag *diag)
{
    quality->noise = shapes->noise;
    struct judge judge = {shapes, network, arena, quality, NULL, diag};
    judge.scratch = SBP_NEW(arena, double, sbp_shapes_samples(shapes));
    if (judge.scratch == NULL || quality->shape == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d groups", shapes->count);
    SBP_TRY(judge_curves(&judge));
    SBP_TRY(hold_out_sizes(&judge));
    return hold_out_shapes(&judge);
}
