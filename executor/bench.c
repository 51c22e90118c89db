#include "executor/bench.h"

#include <math.h>
#include <string.h>

#include "base/math/stats.h"
#include "executor/run_report.h"
#include "planner/plan/summary.h"

struct bench {
    const struct sbp_bench_plan *plans;
    const struct sbp_bench_options *options;
    struct sbp_bench_result *result;
    double *step_s; /* (steps) of a round, to take the median of */
    enum sbp_status status;
    struct sbp_diag *diag;
};

/* ---- which plans --------------------------------------------------------------------------- */

static enum sbp_status check_model(const struct sbp_bench_plan *first,
                                   const struct sbp_bench_plan *plan, struct sbp_diag *diag)
{
    const struct sbp_graph *a = &first->plan.cut.graph, *b = &plan->plan.cut.graph;
    if (strcmp(a->name, b->name) == 0 && a->parameters == b->parameters)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT,
                    "%s: trains %s of %lld parameters, %s trains %s of %lld: plans of one model "
                    "are compared",
                    plan->file, b->name, (long long)b->parameters, first->file, a->name,
                    (long long)a->parameters);
}

static enum sbp_status check_ranks(const struct sbp_bench_plan *first,
                                   const struct sbp_bench_plan *plan, struct sbp_diag *diag)
{
    const int64_t a = sbp_cut_devices(&first->plan.cut), b = sbp_cut_devices(&plan->plan.cut);
    if (a == b)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT,
                    "%s: is for %lld ranks, %s for %lld: one launcher starts as many for all, "
                    "others run over threads",
                    plan->file, (long long)b, first->file, (long long)a);
}

int sbp_bench_run_steps(const struct sbp_bench_options *options, const struct sbp_bench_plan *plan)
{
    const bool drains = sbp_timeline_delays_gradients(plan->step.parallel.schedule);
    return options->warmup + options->steps + drains;
}

static struct sbp_run_options run_options(const struct sbp_bench_options *options,
                                          const struct sbp_bench_plan *plan)
{
    struct sbp_run_options run = options->run;
    run.steps = sbp_bench_run_steps(options, plan);
    run.real = plan->real;
    return run;
}

enum sbp_status sbp_bench_check(const struct sbp_bench_plan *plans, int count,
                                const struct sbp_bench_options *options, struct sbp_diag *diag)
{
    for (int i = 0; i < count; i++) {
        struct sbp_diag reason = {0};
        SBP_TRY(check_model(&plans[0], &plans[i], diag));
        if (strcmp(options->run.backend, "mpi") == 0)
            SBP_TRY(check_ranks(&plans[0], &plans[i], diag));
        const struct sbp_run_options run = run_options(options, &plans[i]);
        const enum sbp_status status = sbp_run_check(&plans[i].step, &run, &reason);
        if (status != SBP_OK)
            return sbp_fail(diag, status, "%s: %s", plans[i].file, reason.text);
    }
    return SBP_OK;
}

/* ---- a round ------------------------------------------------------------------------------- */

static double metric_of(const struct sbp_run_step *step, enum sbp_bench_metric metric)
{
    const double seconds[SBP_BENCH_METRICS] = {
        [SBP_BENCH_REPLAY] = step->replay_s,   [SBP_BENCH_WALL] = step->wall_s,
        [SBP_BENCH_COMPUTE] = step->compute_s, [SBP_BENCH_COMMUNICATION] = step->communication_s,
        [SBP_BENCH_EXPOSED] = step->exposed_s, [SBP_BENCH_BUBBLE] = step->bubble_s,
    };
    return seconds[metric];
}

static void keep_times(struct bench *bench, struct sbp_bench_row *row, int round,
                       const struct sbp_run_result *run)
{
    const struct sbp_bench_options *options = bench->options;
    for (int metric = 0; metric < SBP_BENCH_METRICS; metric++) {
        for (int i = 0; i < options->steps; i++)
            bench->step_s[i] =
                metric_of(&run->step[options->warmup + i], (enum sbp_bench_metric)metric);
        row->round_s[metric][round] = sbp_median(bench->step_s, options->steps);
    }
}

static void keep_prediction(struct sbp_bench_row *row, const struct sbp_run_result *run)
{
    const struct sbp_run_prediction *prediction = &run->prediction;
    row->predicted_s[SBP_BENCH_REPLAY] = row->predicted_s[SBP_BENCH_WALL] = prediction->step_s;
    row->predicted_s[SBP_BENCH_COMPUTE] = prediction->compute_s;
    row->predicted_s[SBP_BENCH_COMMUNICATION] = prediction->communication_s;
    row->predicted_s[SBP_BENCH_EXPOSED] = prediction->exposed_s;
    row->predicted_s[SBP_BENCH_BUBBLE] = prediction->bubble_s;
    row->ranks = run->ranks;
    row->has_cores = sbp_run_has_cores(run);
    row->arena_bytes = run->arena_bytes;
    row->high_water_bytes = run->high_water_bytes;
}

static enum sbp_status run_plan(struct bench *bench, int plan, int round)
{
    const struct sbp_bench_plan *measured = &bench->plans[plan];
    const struct sbp_run_options options = run_options(bench->options, measured);
    struct sbp_run_result run;
    SBP_TRY(
        sbp_run(&measured->step, &measured->plan.workload.cluster, &options, &run, bench->diag));
    bench->result->filled = run.filled;
    if (run.filled) {
        struct sbp_bench_row *const row = &bench->result->row[plan];
        if (row->odd_step == 0 && run.odd.step > 0) {
            row->odd_step = run.odd.step;
            row->odd_what = run.odd.what;
        }
        keep_prediction(row, &run);
        if (row->odd_step == 0)
            keep_times(bench, row, round, &run);
    }
    sbp_run_free(&run);
    return SBP_OK;
}

static enum sbp_status run_rounds(struct bench *bench)
{
    for (int round = 0; round < bench->options->rounds; round++)
        for (int plan = 0; plan < bench->result->count; plan++)
            SBP_TRY(run_plan(bench, plan, round));
    return SBP_OK;
}

/* MPI starts once a process: runs begin and end within it. A failure that the others do not see has
 * ended them by now. */
static enum sbp_status rank_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct bench *bench = argument;
    (void)ops;
    (void)comm;
    (void)diag;
    bench->status =
        bench->status == SBP_OK ? run_rounds(bench) : sbp_run_refuse(bench->status, bench->diag);
    return SBP_OK;
}

enum sbp_status sbp_bench_refuse(enum sbp_status status, struct sbp_diag *diag)
{
    struct bench bench = {.status = status, .diag = diag};
    SBP_TRY(sbp_mpi_run(rank_main, &bench, diag));
    return bench.status;
}

/* ---- the table ----------------------------------------------------------------------------- */

double sbp_bench_each_s(const struct sbp_bench_result *result, int row, double seconds)
{
    return seconds / (double)result->row[row].units;
}

static double median_each_s(const struct sbp_bench_result *result, int row)
{
    return sbp_bench_each_s(result, row, result->row[row].value[result->compared].median_s);
}

static void summarise(struct sbp_bench_result *result, struct sbp_bench_row *row)
{
    for (int metric = 0; metric < SBP_BENCH_METRICS; metric++) {
        struct sbp_bench_value *const value = &row->value[metric];
        memcpy(result->scratch, row->round_s[metric],
               (size_t)result->rounds * sizeof *result->scratch);
        value->median_s = sbp_median(result->scratch, result->rounds);
        result->is_confident = sbp_median_interval(
            result->scratch, result->rounds, SBP_BENCH_CONFIDENCE, &value->low_s, &value->high_s);
    }
}

static void find_best(struct sbp_bench_result *result)
{
    result->best = -1;
    for (int i = 0; i < result->count; i++)
        if (result->row[i].odd_step == 0 &&
            (result->best < 0 || median_each_s(result, i) < median_each_s(result, result->best)))
            result->best = i;
}

static void tell_apart(struct sbp_bench_result *result)
{
    const double best_s = sbp_bench_each_s(
        result, result->best, result->row[result->best].value[result->compared].high_s);
    for (int i = 0; i < result->count; i++)
        result->row[i].is_apart =
            result->is_confident &&
            (result->row[i].odd_step > 0 ||
             sbp_bench_each_s(result, i, result->row[i].value[result->compared].low_s) > best_s);
}

void sbp_bench_compare(struct sbp_bench_result *result)
{
    result->compared = SBP_BENCH_WALL;
    for (int i = 0; i < result->count; i++) {
        summarise(result, &result->row[i]);
        if (!result->row[i].has_cores)
            result->compared = SBP_BENCH_REPLAY;
    }
    find_best(result);
    if (result->best >= 0)
        tell_apart(result);
}

enum sbp_status sbp_bench_open(int count, int rounds, struct sbp_bench_result *result,
                               struct sbp_diag *diag)
{
    *result = (struct sbp_bench_result){.count = count, .rounds = rounds};
    result->row = SBP_NEW(&result->arena, struct sbp_bench_row, count);
    result->scratch = SBP_NEW(&result->arena, double, rounds);
    bool complete = result->row != NULL && result->scratch != NULL;
    for (int i = 0; complete && i < count; i++)
        for (int metric = 0; metric < SBP_BENCH_METRICS; metric++) {
            double *const round_s = SBP_NEW(&result->arena, double, rounds);
            result->row[i].round_s[metric] = round_s;
            complete = complete && round_s != NULL;
        }
    if (complete)
        return SBP_OK;
    sbp_bench_free(result);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the measured times");
}

static enum sbp_status open_bench(struct bench *bench, int count)
{
    struct sbp_bench_result *result = bench->result;
    SBP_TRY(sbp_bench_open(count, bench->options->rounds, result, bench->diag));
    bench->step_s = SBP_NEW(&result->arena, double, bench->options->steps);
    for (int i = 0; i < count; i++)
        (void)sbp_summary_unit(&bench->plans[i].plan.cut.graph, &result->row[i].units);
    return bench->step_s != NULL
               ? SBP_OK
               : sbp_fail(bench->diag, SBP_E_MEMORY, "out of memory for the measured times");
}

enum sbp_status sbp_bench(const struct sbp_bench_plan *plans, int count,
                          const struct sbp_bench_options *options, struct sbp_bench_result *result,
                          struct sbp_diag *diag)
{
    struct bench bench = {.plans = plans, .options = options, .result = result, .diag = diag};
    enum sbp_status status = SBP_OK;
    bench.status = open_bench(&bench, count);
    if (strcmp(options->run.backend, "mpi") == 0)
        status = sbp_mpi_run(rank_main, &bench, diag);
    else if (bench.status == SBP_OK)
        bench.status = run_rounds(&bench);
    status = status == SBP_OK ? bench.status : status;
    if (status != SBP_OK)
        sbp_bench_free(result);
    else if (result->filled)
        sbp_bench_compare(result);
    return status;
}

void sbp_bench_free(struct sbp_bench_result *result)
{
    sbp_arena_free(&result->arena);
    *result = (struct sbp_bench_result){0};
}
