#include "planner/validate/simplest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "planner/validate/layout_search.h"

#define ENOUGH    0.9  /* of the time: a search that the limit cut short ends after it */
#define ROUND_OFF 1e-6 /* of a step: a layout at the limit is still looked for */

/* ---- layouts, the simplest first ------------------------------------------------------------- */

static const int micro_batches[] = {1, 4};
static const struct layout {
    int tensor, pipeline, zero;
    enum sbp_recompute recompute;
} layouts[] = {
    {1, 1, 0, SBP_RECOMPUTE_NONE},  {1, 1, 1, SBP_RECOMPUTE_NONE},  {1, 1, 1, SBP_RECOMPUTE_FULL},
    {1, 1, 3, SBP_RECOMPUTE_NONE},  {1, 1, 3, SBP_RECOMPUTE_FULL},  {2, 1, 1, SBP_RECOMPUTE_NONE},
    {4, 1, 1, SBP_RECOMPUTE_NONE},  {8, 1, 1, SBP_RECOMPUTE_NONE},  {1, 2, 1, SBP_RECOMPUTE_NONE},
    {1, 4, 1, SBP_RECOMPUTE_NONE},  {1, 8, 1, SBP_RECOMPUTE_NONE},  {2, 2, 1, SBP_RECOMPUTE_NONE},
    {4, 2, 1, SBP_RECOMPUTE_NONE},  {4, 4, 1, SBP_RECOMPUTE_NONE},  {8, 2, 1, SBP_RECOMPUTE_NONE},
    {8, 4, 1, SBP_RECOMPUTE_NONE},  {8, 8, 1, SBP_RECOMPUTE_NONE},  {8, 8, 1, SBP_RECOMPUTE_FULL},
    {8, 16, 1, SBP_RECOMPUTE_NONE}, {8, 16, 1, SBP_RECOMPUTE_FULL},
};

static struct sbp_degrees degrees_of(const struct layout *layout, int micro_batch)
{
    struct sbp_degrees degrees = sbp_degrees_none();
    degrees.tensor = layout->tensor;
    degrees.pipeline = layout->pipeline;
    degrees.zero = layout->zero;
    degrees.recompute = (int)layout->recompute;
    degrees.sequence_parallel = layout->tensor > 1;
    degrees.micro_batch = micro_batch;
    return degrees;
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* Seconds of a layout; INFINITY where it is not legal, does not fit or takes longer than most_s. */
static enum sbp_status price(const struct sbp_plan *given, const struct sbp_degrees *degrees,
                             int64_t limit_bytes, double most_s,
                             const struct sbp_solver_options *options, double *step_s,
                             struct sbp_diag *diag)
{
    struct cJSON *model = cJSON_Duplicate(given->workload.model_json, true);
    struct cJSON *cluster = cJSON_Duplicate(given->workload.cluster_json, true);
    struct sbp_plan plan;
    struct sbp_diag why = {{0}};
    *step_s = INFINITY;
    if (model == NULL || cluster == NULL) {
        cJSON_Delete(model);
        cJSON_Delete(cluster);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
    SBP_TRY(sbp_plan_begin(model, "model", cluster, "cluster", &plan, diag));
    const enum sbp_status status =
        sbp_layout_search(&plan, degrees, limit_bytes, most_s, options, step_s, &why);
    sbp_plan_free(&plan);
    if (status == SBP_NO || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED)
        return SBP_OK;
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", why.text);
}

/* Whether time ended, at the latest in the layout before: a less simple one says nothing then. */
static bool is_over(const struct sbp_solver_options *options, double elapsed_s)
{
    return (options->time_limit_s > 0 && elapsed_s >= ENOUGH * options->time_limit_s) ||
           (options->stop != NULL && *options->stop != 0);
}

enum sbp_status sbp_simplest_find(const struct sbp_plan *plan, double step_s, int64_t limit_bytes,
                                  const struct sbp_solver_options *options,
                                  struct sbp_simplest *simplest, struct sbp_diag *diag)
{
    const double error = plan->workload.cluster.runtime.error, start_s = sbp_clock_s();
    const double most_s = step_s * (1 + error);
    *simplest = (struct sbp_simplest){.is_found = false};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && error > 0; i++)
        for (size_t m = 0; m < sizeof micro_batches / sizeof *micro_batches; m++) {
            const double elapsed_s = sbp_clock_s() - start_s;
            const struct sbp_solver_options left = sbp_solver_options_left(*options, elapsed_s, 0);
            if (is_over(options, elapsed_s))
                return SBP_OK;
            simplest->degrees = degrees_of(&layouts[i], micro_batches[m]);
            SBP_TRY(price(plan, &simplest->degrees, limit_bytes, most_s * (1 + ROUND_OFF), &left,
                          &simplest->step_s, diag));
            simplest->is_found = simplest->step_s <= most_s;
            if (simplest->is_found)
                return SBP_OK;
        }
    return SBP_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void add(char *buffer, const char *option, int64_t value, int64_t absent)
{
    const size_t length = strlen(buffer);
    if (value != absent)
        (void)snprintf(buffer + length, SBP_SIMPLEST_BYTES - length, "%s--%s %lld",
                       length > 0 ? " " : "", option, (long long)value);
}

const char *sbp_simplest_options(const struct sbp_simplest *simplest, char *buffer)
{
    const struct sbp_degrees *degrees = &simplest->degrees;
    buffer[0] = '\0';
    add(buffer, "tp", degrees->tensor, 1);
    add(buffer, "pp", degrees->pipeline, 1);
    add(buffer, "zero", degrees->zero, SBP_ANY);
    add(buffer, "micro-batch", degrees->micro_batch, 0);
    const size_t length = strlen(buffer);
    (void)snprintf(buffer + length, SBP_SIMPLEST_BYTES - length, "%s%s",
                   degrees->sequence_parallel ? " --sequence-parallel" : "",
                   degrees->recompute == SBP_RECOMPUTE_FULL ? " --recompute full" : "");
    return buffer;
}
