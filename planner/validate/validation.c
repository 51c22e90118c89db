#include "planner/validate/validation.h"

#include <math.h>

static enum sbp_status out_of_memory(const struct sbp_run_set *set, struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", set->file);
}

static enum sbp_status price_runs(const atomic_int *stop, struct sbp_validation *v,
                                  struct sbp_diag *diag)
{
    for (int i = 0; i < v->set->run_count; i++) {
        struct sbp_diag why = {{0}};
        if (stop != NULL && *stop != 0)
            return SBP_STOPPED;
        const enum sbp_status status = sbp_run_price(v->set, i, stop, &v->price[i], &why);
        if (status == SBP_OK)
            continue;
        if (status != SBP_NO)
            return sbp_fail(diag, status, "%s: run %s: %s", v->set->file, v->set->run[i].id,
                            why.text);
        v->refused[i] = sbp_arena_strdup(&v->arena, why.text);
        v->refused_count++;
        if (v->refused[i] == NULL)
            return out_of_memory(v->set, diag);
    }
    return SBP_OK;
}

/* ---- figures -------------------------------------------------------------------------------- */

/* What is compared of a run: 0 where it is not known. */
enum side { STEP, UTILISATION, MEMORY, SETTLED };

static double predicted_of(const struct sbp_run_price *price, enum side side)
{
    const double value[] = {[STEP] = price->step_s,
                            [UTILISATION] = price->peak_s,
                            [MEMORY] = price->memory_bytes,
                            [SETTLED] = price->settled_bytes};
    return value[side];
}

static double measured_of(const struct sbp_run *run, enum side side)
{
    const double value[] = {[STEP] = run->step_s,
                            [UTILISATION] = run->step_s,
                            [MEMORY] = run->memory_bytes,
                            [SETTLED] = run->settled_bytes};
    return value[side];
}

static enum sbp_status compare(struct sbp_validation *v, enum side side,
                               struct sbp_agreement *agreement, struct sbp_diag *diag)
{
    double *predicted = SBP_NEW(&v->arena, double, v->set->run_count);
    double *measured = SBP_NEW(&v->arena, double, v->set->run_count);
    int *group = SBP_NEW(&v->arena, int, v->set->run_count);
    int count = 0;
    if (predicted == NULL || measured == NULL || group == NULL)
        return out_of_memory(v->set, diag);
    for (int i = 0; i < v->set->run_count; i++) {
        if (v->refused[i] != NULL || measured_of(&v->set->run[i], side) <= 0)
            continue;
        predicted[count] = predicted_of(&v->price[i], side);
        measured[count] = measured_of(&v->set->run[i], side);
        group[count++] = v->set->run[i].group;
    }
    return sbp_agreement_make(predicted, measured, group, count, &v->arena, agreement, diag);
}

/* ---- bounds --------------------------------------------------------------------------------- */

static void check(struct sbp_validation *v, const char *figure, double value, double bound,
                  bool is_least)
{
    if (isnan(bound))
        return;
    v->check[v->check_count++] = (struct sbp_validation_check){
        .figure = figure,
        .value = value,
        .bound = bound,
        .holds = is_least ? value >= bound : value <= bound}; /* false of NAN */
    v->holds = v->holds && v->check[v->check_count - 1].holds;
}

static void check_all(struct sbp_validation *v)
{
    const struct sbp_run_figures *bounds = &v->set->bounds;
    v->holds = true;
    check(v, "refused", v->refused_count, bounds->refused, false);
    if (v->refused_count == v->set->run_count)
        return; /* nothing is priced that could be judged */
    check(v, "error", v->time.error, bounds->error, false);
    check(v, "rank", v->time.groups > 0 ? v->time.group_rank : v->time.rank, bounds->rank, true);
    check(v, "regret", v->time.regret, bounds->regret, false);
    check(v, "memory_error", v->memory.error, bounds->memory_error, false);
    check(v, "settled_error", v->settled.median_error, bounds->settled_error, false);
}

static enum sbp_status make(const atomic_int *stop, struct sbp_validation *v, struct sbp_diag *diag)
{
    v->price = SBP_NEW(&v->arena, struct sbp_run_price, v->set->run_count);
    v->refused = SBP_NEW(&v->arena, const char *, v->set->run_count);
    if (v->price == NULL || v->refused == NULL)
        return out_of_memory(v->set, diag);
    SBP_TRY(price_runs(stop, v, diag));
    SBP_TRY(compare(v, STEP, &v->time, diag));
    SBP_TRY(compare(v, UTILISATION, &v->constant, diag));
    SBP_TRY(compare(v, MEMORY, &v->memory, diag));
    SBP_TRY(compare(v, SETTLED, &v->settled, diag));
    v->utilisation = 1 / v->constant.factor;
    check_all(v);
    return SBP_OK;
}

enum sbp_status sbp_validation_make(const struct sbp_run_set *set, const atomic_int *stop,
                                    struct sbp_validation *validation, struct sbp_diag *diag)
{
    *validation = (struct sbp_validation){.set = set};
    const enum sbp_status status = make(stop, validation, diag);
    if (status != SBP_OK)
        sbp_validation_free(validation);
    return status;
}

void sbp_validation_free(struct sbp_validation *validation)
{
    if (validation == NULL)
        return;
    sbp_arena_free(&validation->arena);
    *validation = (struct sbp_validation){0};
}
