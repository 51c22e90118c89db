#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>

#include <cjson/cJSON.h>

#include "small_instance.h"

void small_instance_complain(const struct small_instance *instance, const char *what)
{
    fail_msg("%s\nseed %" PRIu64 ", memory limit %" PRId64 "\n%s\n%s", what, instance->seed,
             instance->request.memory_limit_bytes, instance->model.model.text,
             instance->cluster.text);
}

void small_instance_open(struct small_instance *instance, enum small_kind kind, int linears,
                         int outer, int inner)
{
    struct sbp_random random;
    struct sbp_diag diag = {{0}};
    sbp_random_seed(&random, instance->seed);
    instance->model.linears = linears;
    small_model_draw(&random, kind, &instance->model);
    small_cluster_draw(&random, outer, inner, &instance->cluster);
    if (sbp_plan_begin(cJSON_Parse(instance->model.model.text), "model",
                       cJSON_Parse(instance->cluster.text), "cluster", &instance->plan,
                       &diag) != SBP_OK)
        small_instance_complain(instance, diag.text);
}

void small_instance_cut(struct small_instance *instance, const struct sbp_parallel *parallel)
{
    struct sbp_diag diag = {{0}};
    if (sbp_plan_set_parallel(&instance->plan, parallel, &diag) != SBP_OK)
        small_instance_complain(instance, diag.text);
}
