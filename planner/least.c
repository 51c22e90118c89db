#include "planner/least.h"

#include <stdlib.h>

#include "base/text.h"

/* Candidates that are compiled; bounds are close, so that few are mostly enough. */
enum { MOST_COMPILED = 100 };

static int by_bound(const void *left, const void *right)
{
    const struct sbp_least_candidate *a = left, *b = right;
    if (a->bound_bytes != b->bound_bytes)
        return a->bound_bytes < b->bound_bytes ? -1 : 1;
    return a->order - b->order;
}

/* Under a limit that nothing keeps a search compiles what needs least. */
static enum sbp_status compile(struct sbp_plan *plan, const struct sbp_request *request,
                               const struct sbp_parallel *parallel, int64_t *bytes,
                               struct sbp_diag *diag)
{
    struct sbp_request nothing_fits = *request;
    struct sbp_outcome outcome = {.needed_bytes = 0};
    struct sbp_diag refusal = {{0}};
    nothing_fits.memory_limit_bytes = 1;
    enum sbp_status status = sbp_plan_set_parallel(plan, parallel, &refusal);
    if (status == SBP_OK)
        status = sbp_optimise(plan, &nothing_fits, &outcome, &refusal);
    *bytes = status == SBP_OK && !outcome.stopped ? outcome.needed_bytes : 0;
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED
               ? SBP_OK
               : sbp_fail(diag, status, "%s", refusal.text);
}

/* Whether a limit (0: none) and a user leave time for a candidate, which then keeps to it. */
static bool has_time(struct sbp_solver_options *options, double limit_s, double start_s)
{
    const double left_s = limit_s - (sbp_clock_s() - start_s);
    if (limit_s > 0)
        options->time_limit_s = left_s;
    return (limit_s <= 0 || left_s > 0) && (options->stop == NULL || *options->stop == 0);
}

enum sbp_status sbp_least_find(struct sbp_plan *plan, const struct sbp_request *request,
                               struct sbp_least_candidate *candidate, int count, int64_t *bytes,
                               struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    struct sbp_request rest = *request;
    const double limit_s = request->solver_options.time_limit_s, start_s = sbp_clock_s();
    *bytes = 0;
    qsort(candidate, (size_t)count, sizeof *candidate, by_bound);
    for (int i = 0; i < count && i < MOST_COMPILED; i++) {
        int64_t needed = 0;
        if (*bytes > 0 && candidate[i].bound_bytes >= (double)*bytes)
            break;
        if (!has_time(&rest.solver_options, limit_s, start_s))
            break;
        SBP_TRY(compile(plan, &rest, &candidate[i].parallel, &needed, diag));
        if (needed <= 0 || (*bytes > 0 && needed >= *bytes))
            continue;
        *bytes = needed;
        *parallel = candidate[i].parallel;
    }
    return SBP_OK;
}
