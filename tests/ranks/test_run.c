/* Runs of random strategies against one device, and planted faults that must be found.
 *
 * usage: test_run [SEED] */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/run.h"
#include "run_plans.h"

static struct sbp_run_options options_for(enum sbp_real real, uint64_t seed)
{
    return (struct sbp_run_options){.steps = 2,
                                    .verify = true,
                                    .real = real,
                                    .seed = seed,
                                    .backend = "threads",
                                    .device = "cpu"};
}

static void run_plan(const struct plan *plan, const struct sbp_run_options *options,
                     const char *model, struct sbp_run_result *result)
{
    struct sbp_diag diag = {0};
    const enum sbp_status status =
        sbp_run(&plan->program, &plan->cluster, options, result, &diag);
    if (status != SBP_OK)
        fail_msg("%s: %s\n%s", sbp_status_name(status), diag.text, model);
    assert_true(result->filled);
}

static void test_random(struct sbp_random *random, int kind, int count, enum sbp_real real)
{
    char model[4096], text[512];
    double worst = 0;
    for (int i = 0; i < count; i++) {
        struct plan plan;
        struct sbp_run_result result;
        random_model(random, kind, model, sizeof model);
        plan_open(&plan, model, random_levels(random));
        plan_randomise(&plan, random, real);
        const struct sbp_run_options options = options_for(real, sbp_random_next(random));
        run_plan(&plan, &options, model, &result);
        if (result.finding.found)
            printf("plan %d on %lld ranks: %s (worst ratio %g)\n%s\n", i,
                     (long long)plan.mesh.devices,
                     sbp_finding_text(&result.finding, text, sizeof text), result.worst_ratio, model);
        assert_int_equal(result.high_water_bytes, plan.program.arena_bytes);
        if (result.worst_ratio > worst)
            worst = result.worst_ratio;
        sbp_run_free(&result);
        plan_close(&plan);
    }
    printf("%d plans of kind %d: largest difference / bound %.3f\n", count, kind, worst);
}

int main(int argc, char **argv)
{
    struct sbp_random random;
    sbp_kernels_cpu_setup();
    sbp_random_seed(&random, argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    for (int kind = 0; kind < 3; kind++)
        test_random(&random, kind, 60, SBP_F64);
    for (int kind = 0; kind < 3; kind++)
        test_random(&random, kind, 20, SBP_F32);
    return 0;
}
