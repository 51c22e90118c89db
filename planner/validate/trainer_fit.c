#include "planner/validate/trainer_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"
#include "planner/validate/least_error.h"
#include "planner/validate/run_price.h"

#define LEAST_REACH     0.2  /* kernels that reach less are at fault in another way */
#define MOST_HOST_S     3e-4 /* of an operator; Python takes some 100 us */
#define TELLING         2e-3 /* change of the error by which runs say something of a constant */
#define WORTH           2e-3 /* of the error, for which a constant moves over its whole range */
#define RUNS_A_CONSTANT 2
#define MOST_FOLDS      10  /* fits without some of the runs */
#define MOST_FACTOR     100 /* between a step and its prediction: else it is another unit */
#define NINE_OF_TEN     0.9
#define PLACE_BYTES     32
#define MOST_SAID       3 /* reasons in one message */

/* Where a constant stands in a runtime, and what is legal; absent: where a runtime does not say. */
static const struct {
    const char *object, *key, *name;
    double least, most, absent;
    bool is_rate; /* times go with its inverse */
} constants[SBP_FITTED] = {
    [SBP_FITTED_PRODUCTS] = {"reaches", "products", "reaches.products", LEAST_REACH, 1, 1, true},
    [SBP_FITTED_HOST] = {NULL, "host_s", "host_s", 0, MOST_HOST_S, 0, false},
    [SBP_FITTED_STREAMS] = {"reaches", "streams", "reaches.streams", LEAST_REACH, 1, 1, true},
    [SBP_FITTED_GRADIENTS] = {"hides", "gradients", "hides.gradients", 0, 1, 0, false},
    [SBP_FITTED_ACTIVATIONS] = {"hides", "activations", "hides.activations", 0, 1, 0, false},
    [SBP_FITTED_ATTENTION] = {"reaches", "attention", "reaches.attention", LEAST_REACH, 1, 1, true},
};

const char *sbp_trainer_fit_name(enum sbp_fitted constant)
{
    return constants[constant].name;
}

/* ---- constants in a runtime ------------------------------------------------------------------ */

static struct cJSON *object_of(struct cJSON *parent, const char *key, bool *failed)
{
    struct cJSON *found = cJSON_GetObjectItemCaseSensitive(parent, key);
    return found != NULL ? found : sbp_json_put_object(parent, key, failed);
}

static struct cJSON *runtime_of(struct sbp_run_set *set, bool *failed)
{
    struct cJSON *runtime = object_of(set->cluster, "runtime", failed);
    if (!*failed && cJSON_GetObjectItemCaseSensitive(runtime, "name") == NULL)
        sbp_json_put_text(runtime, "name", "fitted", failed);
    return runtime;
}

static double read_constant(const struct cJSON *runtime, int at)
{
    const struct cJSON *object =
        constants[at].object == NULL
            ? runtime
            : cJSON_GetObjectItemCaseSensitive(runtime, constants[at].object);
    const struct cJSON *value = cJSON_GetObjectItemCaseSensitive(object, constants[at].key);
    return cJSON_IsNumber(value) ? value->valuedouble : constants[at].absent;
}

static void write_constant(struct cJSON *runtime, int at, double value, bool *failed)
{
    struct cJSON *object =
        constants[at].object == NULL ? runtime : object_of(runtime, constants[at].object, failed);
    cJSON_DeleteItemFromObjectCaseSensitive(object, constants[at].key);
    sbp_json_put_number(object, constants[at].key, value, failed);
}

/* ---- prices ---------------------------------------------------------------------------------- */

struct fitter {
    struct sbp_run_set *set;
    const atomic_int *stop;
    struct sbp_run_layout **layout; /* (runs) of those that can be expressed */
    int *run;                       /* (runs) their numbers in the set */
    double *error;                  /* (runs) room for those that count */
    int runs;
    int folds, fold; /* every folds-th run from `fold` on does not count; fold -1: all count */
    int most_free;   /* constants */
    struct sbp_trainer_fit *fit;
    struct sbp_diag *diag;
};

static enum sbp_status set_constants(const struct fitter *f, const double value[SBP_FITTED])
{
    bool failed = false;
    struct cJSON *runtime = runtime_of(f->set, &failed);
    for (int at = 0; at < SBP_FITTED && !failed; at++)
        if (value[at] != read_constant(runtime, at))
            write_constant(runtime, at, value[at], &failed);
    return failed ? sbp_fail(f->diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

/* Predicted step / measured one. */
static enum sbp_status ratio_of_run(const struct fitter *f, int place, double *ratio)
{
    double step_s;
    SBP_TRY(sbp_run_layout_price(f->set, f->run[place], f->layout[place], &step_s, f->diag));
    *ratio = step_s / f->set->run[f->run[place]].step_s;
    return SBP_OK;
}

static bool is_left_out(const struct fitter *f, int place)
{
    return f->fold >= 0 && place % f->folds == f->fold;
}

static int runs_that_count(const struct fitter *f)
{
    int count = 0;
    for (int i = 0; i < f->runs; i++)
        count += !is_left_out(f, i);
    return count;
}

/* error: (runs that count). */
static enum sbp_status errors_of_runs(const struct fitter *f, const double value[SBP_FITTED],
                                      double *error)
{
    int count = 0;
    if (f->stop != NULL && *f->stop != 0)
        return SBP_STOPPED;
    SBP_TRY(set_constants(f, value));
    for (int i = 0; i < f->runs; i++) {
        double ratio;
        if (is_left_out(f, i))
            continue;
        SBP_TRY(ratio_of_run(f, i, &ratio));
        error[count++] = ratio - 1;
    }
    return SBP_OK;
}

/* The mean error of the runs that count. */
static enum sbp_status mean_error(const struct fitter *f, const double value[SBP_FITTED],
                                  double *error)
{
    const int count = runs_that_count(f);
    double sum = 0;
    SBP_TRY(errors_of_runs(f, value, f->error));
    for (int i = 0; i < count; i++)
        sum += fabs(f->error[i]);
    *error = sum / count;
    return SBP_OK;
}

/* ---- the fit --------------------------------------------------------------------------------- */

/* Where a value stands in its range, from 0 to 1; shares of rates as the time that they take, of
 * which steps are a sum. */
static double place_of(int at, double value)
{
    const double least = constants[at].least, most = constants[at].most;
    return constants[at].is_rate ? (1 / value - 1 / most) / (1 / least - 1 / most)
                                 : (value - least) / (most - least);
}

static double value_at(int at, double place)
{
    const double least = constants[at].least, most = constants[at].most;
    return constants[at].is_rate ? 1 / (1 / most + place * (1 / least - 1 / most))
                                 : least + place * (most - least);
}

struct descent {
    const struct fitter *f;
    double *value; /* (SBP_FITTED) */
    int free[SBP_FITTED], free_count;
};

static void place_free(const struct descent *descent, const double *at)
{
    for (int i = 0; i < descent->free_count; i++) {
        const int constant = descent->free[i];
        if (at[i] != place_of(constant, descent->value[constant]))
            descent->value[constant] = value_at(constant, at[i]);
    }
}

static enum sbp_status errors_at(void *context, const double *at, double *error)
{
    const struct descent *descent = context;
    place_free(descent, at);
    return errors_of_runs(descent->f, descent->value, error);
}

/* Constants that are free come in their order, as many as the runs that count allow. */
static enum sbp_status descend(const struct fitter *f, double value[SBP_FITTED], double *error)
{
    struct descent descent = {.f = f, .value = value};
    double at[SBP_FITTED] = {0};
    for (int i = 0; i < SBP_FITTED && descent.free_count < f->most_free; i++)
        if (f->fit->is_free[i]) {
            at[descent.free_count] = place_of(i, value[i]);
            descent.free[descent.free_count++] = i;
        }
    const struct sbp_least_error problem = {.coordinates = descent.free_count,
                                            .points = runs_that_count(f),
                                            .hold = WORTH,
                                            .errors = errors_at,
                                            .context = &descent};
    SBP_TRY(sbp_least_error_find(&problem, at, f->diag));
    place_free(&descent, at);
    return mean_error(f, value, error);
}

/* A constant is free where its ends give other errors than its start, as long as there are runs
 * enough. */
static enum sbp_status find_free(const struct fitter *f)
{
    struct sbp_trainer_fit *fit = f->fit;
    for (int at = 0; at < SBP_FITTED; at++) {
        double value[SBP_FITTED], least, most;
        memcpy(value, fit->before, sizeof value);
        value[at] = constants[at].least;
        SBP_TRY(mean_error(f, value, &least));
        value[at] = constants[at].most;
        SBP_TRY(mean_error(f, value, &most));
        const double moves = fmax(fabs(least - fit->error_before), fabs(most - fit->error_before));
        fit->is_free[at] = moves > TELLING && fit->free_count < f->most_free;
        fit->free_count += fit->is_free[at];
    }
    return SBP_OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Predicts the runs of one fold by a fit without them, from the same start. factors: (runs). */
static enum sbp_status leave_out_fold(const struct fitter *f, double *factors)
{
    double value[SBP_FITTED], ratio;
    memcpy(value, f->fit->before, sizeof value);
    SBP_TRY(descend(f, value, &ratio));
    SBP_TRY(set_constants(f, value));
    for (int i = f->fold; i < f->runs; i += f->folds) {
        SBP_TRY(ratio_of_run(f, i, &ratio));
        f->fit->error_left_out += fabs(ratio - 1) / f->runs;
        factors[i] = fmax(ratio, 1 / ratio);
    }
    return SBP_OK;
}

static enum sbp_status leave_out(struct fitter *f, double *factors)
{
    const int most_free = f->most_free;
    f->folds = f->runs < MOST_FOLDS ? f->runs : MOST_FOLDS;
    for (f->fold = 0; f->fold < f->folds; f->fold++) {
        const int without = (f->runs - f->fold + f->folds - 1) / f->folds;
        f->most_free = (f->runs - without) / RUNS_A_CONSTANT;
        SBP_TRY(leave_out_fold(f, factors));
    }
    f->fold = -1;
    f->most_free = most_free;
    qsort(factors, (size_t)f->runs, sizeof *factors, by_size);
    f->fit->most_left_out = factors[(int)ceil(NINE_OF_TEN * f->runs) - 1] - 1;
    return set_constants(f, f->fit->value);
}

/* "line 3" of a run in a table, else its name. */
static const char *place_of_run(const struct sbp_run *run, char line[PLACE_BYTES])
{
    if (run->line == 0)
        return run->id;
    (void)snprintf(line, PLACE_BYTES, "line %d", run->line);
    return line;
}

/* Refuses steps that no constant explains. */
static enum sbp_status check_units(const struct fitter *f)
{
    double ratio;
    char line[PLACE_BYTES];
    for (int i = 0; i < f->runs; i++) {
        const struct sbp_run *run = &f->set->run[f->run[i]];
        SBP_TRY(ratio_of_run(f, i, &ratio));
        if (ratio > MOST_FACTOR || ratio < 1.0 / MOST_FACTOR)
            return sbp_fail(f->diag, SBP_E_INPUT,
                            "%s: %s: column step_s: %g s, and %g s are predicted: legal are "
                            "seconds, up to %d times more or less",
                            f->set->file, place_of_run(run, line), run->step_s, ratio * run->step_s,
                            MOST_FACTOR);
    }
    return SBP_OK;
}

static enum sbp_status fit_runs(struct fitter *f, double *factors)
{
    struct sbp_trainer_fit *fit = f->fit;
    bool failed = false;
    const struct cJSON *runtime = runtime_of(f->set, &failed);
    if (failed)
        return sbp_fail(f->diag, SBP_E_MEMORY, "out of memory");
    for (int at = 0; at < SBP_FITTED; at++)
        fit->value[at] = fit->before[at] = read_constant(runtime, at);
    SBP_TRY(mean_error(f, fit->before, &fit->error_before));
    f->most_free = f->runs / RUNS_A_CONSTANT;
    SBP_TRY(check_units(f));
    SBP_TRY(find_free(f));
    SBP_TRY(descend(f, fit->value, &fit->error));
    return leave_out(f, factors);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Where a reason tells of a key of the model that is a column of the table, the text from that
 * key on; else NULL. */
static const char *column_in(const struct sbp_run_set *set, const char *why)
{
    static const char model[] = "model: ";
    const char *key = why + strlen(model);
    if (strncmp(why, model, strlen(model)) != 0)
        return NULL;
    for (int i = 0; i < set->column_count; i++) {
        const size_t length = strlen(set->column[i]);
        if (strncmp(key, set->column[i], length) == 0 && key[length] == ':')
            return key;
    }
    return NULL;
}

static void refuse_run(struct fitter *f, int run, const char *why)
{
    char line[PLACE_BYTES];
    struct sbp_trainer_fit *fit = f->fit;
    const char *place = place_of_run(&f->set->run[run], line), *column = column_in(f->set, why);
    if (fit->refused < SBP_FIT_REFUSALS)
        (void)sbp_fail(&fit->refusal[fit->refused], SBP_NO, "%s: %s%s", place,
                       column != NULL ? "column " : "", column != NULL ? column : why);
    fit->refused++;
}

static enum sbp_status refuse_all(const struct fitter *f)
{
    const struct sbp_trainer_fit *fit = f->fit;
    struct sbp_text text = {0};
    for (int i = 0; i < fit->refused && i < MOST_SAID; i++)
        sbp_text_add(&text, "; %s", fit->refusal[i].text);
    if (fit->refused > MOST_SAID)
        sbp_text_add(&text, "; and %d more", fit->refused - MOST_SAID);
    const enum sbp_status status =
        text.failed ? sbp_fail(f->diag, SBP_E_MEMORY, "%s: out of memory", f->set->file)
                    : sbp_fail(f->diag, SBP_E_INPUT,
                               "%s: %d runs with a step can be priced, legal are 2 and more%s",
                               f->set->file, f->runs, text.bytes == NULL ? "" : text.bytes);
    sbp_text_free(&text);
    return status;
}

/* Finds the layouts of the runs that have a step and can be priced. */
static enum sbp_status find_layouts(struct fitter *f)
{
    for (int i = 0; i < f->set->run_count; i++) {
        struct sbp_diag why = {{0}};
        if (f->stop != NULL && *f->stop != 0)
            return SBP_STOPPED;
        if (!(f->set->run[i].step_s > 0)) {
            refuse_run(f, i, "has no step_s");
            continue;
        }
        const enum sbp_status status =
            sbp_run_layout_find(f->set, i, f->stop, &f->layout[f->runs], &why);
        if (status == SBP_OK)
            f->run[f->runs++] = i;
        else if (status == SBP_NO)
            refuse_run(f, i, why.text);
        else
            return sbp_fail(f->diag, status, "%s", why.text);
    }
    return f->runs >= 2 ? SBP_OK : refuse_all(f);
}

enum sbp_status sbp_trainer_fit_make(struct sbp_run_set *set, const atomic_int *stop,
                                     struct sbp_trainer_fit *fit, struct sbp_diag *diag)
{
    struct fitter f = {.set = set, .stop = stop, .fold = -1, .fit = fit, .diag = diag};
    *fit = (struct sbp_trainer_fit){.runs = 0};
    f.layout = calloc((size_t)set->run_count, sizeof(struct sbp_run_layout *));
    f.run = calloc((size_t)set->run_count, sizeof *f.run);
    f.error = calloc((size_t)set->run_count, sizeof *f.error);
    double *factors = calloc((size_t)set->run_count, sizeof *factors);
    enum sbp_status status = SBP_OK;
    if (f.layout == NULL || f.run == NULL || f.error == NULL || factors == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", set->file);
    if (status == SBP_OK)
        status = find_layouts(&f);
    if (status == SBP_OK)
        status = fit_runs(&f, factors);
    fit->runs = f.runs;
    for (int i = 0; i < f.runs; i++)
        sbp_run_layout_free(f.layout[i]);
    free(factors);
    free(f.error);
    free(f.run);
    free(f.layout);
    return status;
}
