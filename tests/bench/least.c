#include "tests/bench/least.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Whether two tasks are one instruction of several micro-batches. */
static bool is_same(const struct sbp_task *a, const struct sbp_task *b)
{
    return a->instr == b->instr && a->chunk == b->chunk && a->bucket == b->bucket;
}

/* out: (tasks); same: room for as many. */
static void level_stage(const struct sbp_tasks *tasks, const double *in, double *out, double *same)
{
    for (int64_t i = 0; i < tasks->count; i++) {
        size_t count = 0;
        for (int64_t k = 0; k < tasks->count; k++)
            if (is_same(&tasks->task[i], &tasks->task[k]))
                same[count++] = in[k];
        qsort(same, count, sizeof *same, compare);
        out[i] = (same[(count - 1) / 2] + same[count / 2]) / 2;
    }
}

enum sbp_status least_level(const struct sbp_step *step, struct least *least)
{
    for (int stage = 0; stage < step->stages; stage++) {
        const size_t count = (size_t)least->tasks[stage].count;
        double *const room = malloc((2 * count + 1) * sizeof *room);
        if (room == NULL)
            return SBP_E_MEMORY;
        level_stage(&least->tasks[stage], least->compute_s[stage], room, room + count);
        memcpy(least->compute_s[stage], room, count * sizeof *room);
        free(room);
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
