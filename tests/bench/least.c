#include "tests/bench/least.h"

#include <math.h>

enum sbp_status least_open(const struct sbp_step *step, struct sbp_arena *arena,
                           struct least *least, struct sbp_diag *diag)
{
    least->tasks = SBP_NEW(arena, struct sbp_tasks, step->stages);
    least->compute_s = SBP_NEW(arena, double *, step->stages);
    if (least->tasks == NULL || least->compute_s == NULL)
        return SBP_E_MEMORY;
    for (int stage = 0; stage < step->stages; stage++) {
        SBP_TRY(sbp_tasks_make(step, stage, arena, &least->tasks[stage], diag));
        least->compute_s[stage] = SBP_NEW(arena, double, least->tasks[stage].count);
        if (least->compute_s[stage] == NULL)
            return SBP_E_MEMORY;
        for (int64_t i = 0; i < least->tasks[stage].count; i++)
            least->compute_s[stage][i] = INFINITY;
    }
    return SBP_OK;
}

enum sbp_status least_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                          struct least *least, struct sbp_run_result *run, struct sbp_diag *diag)
{
    const struct sbp_run_options options = {
        .steps = 2, .trace = true, .real = SBP_F32, .backend = "threads", .device = "cpu"};
    SBP_TRY(sbp_run(step, cluster, &options, run, diag));
    for (int rank = 0; rank < run->ranks; rank++) {
        const int stage = (int)(rank / step->mesh.devices);
        const struct sbp_run_interval *interval = run->intervals + rank * run->most_tasks;
        for (int64_t i = 0; i < run->tasks[stage].count; i++)
            least->compute_s[stage][i] = fmin(least->compute_s[stage][i], interval[i].compute_s);
    }
    return SBP_OK;
}

double least_sum(const struct sbp_step *step, const struct least *least)
{
    double sum_s = 0;
    for (int stage = 0; stage < step->stages; stage++)
        for (int64_t i = 0; i < least->tasks[stage].count; i++)
            sum_s += least->compute_s[stage][i];
    return sum_s;
}
