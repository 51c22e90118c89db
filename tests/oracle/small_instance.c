#include <inttypes.h>
#include <stdio.h>

#include "planner/plan/plan.h"
#include "oracle_plan.h"
#include "small_instance.h"
#include "tests/support/unit.h"

void small_instance_complain(const struct small_instance *instance, const char *format, ...)
{
    const struct sbp_request *const request = &instance->request;
    char what[1400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fail_msg("%s\nseed %" PRIu64 ", space %s, boxing %s, objective %s, memory limit %" PRId64
             ", batch split %" PRId64 "\n%s\n%s",
             what, instance->seed, sbp_request_space_name(request->space),
             request->boxing == SBP_BOXING_FULL ? "full" : "paper",
             request->objective == SBP_STEP_TIME ? "step time" : "communication",
             request->memory_limit_bytes, request->max_batch_split, instance->model.text.text,
             instance->cluster.text);
}

void small_instance_draw(struct small_instance *instance, enum small_kind kind, int linears,
                         int outer, int inner)
{
    struct sbp_random random;
    sbp_random_seed(&random, instance->seed);
    instance->model.linears = linears;
    small_model_draw(&random, kind, &instance->model);
    small_cluster_draw(&random, outer, inner, instance->is_measured, &instance->cluster);
}

void small_instance_open(struct small_instance *instance, enum small_kind kind, int linears,
                         int outer, int inner)
{
    small_instance_draw(instance, kind, linears, outer, inner);
    begin_plan(parsed(instance->model.text.text), parsed(instance->cluster.text), &instance->plan);
}

void small_instance_cut(struct small_instance *instance, const struct sbp_parallel *parallel)
{
    struct sbp_diag diag = {{0}};
    if (sbp_plan_cut(&instance->plan, parallel, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
}
