/* The least thread CPU time of each task of a step in a few runs, which others on the machine
 * disturb least. Of the ranks of a stage, which do equal work, the least counts, too. */
#ifndef SBP_TESTS_BENCH_LEAST_H
#define SBP_TESTS_BENCH_LEAST_H

#include "executor/run/run.h"

struct least {
    struct sbp_tasks *tasks; /* (stages) */
    double **compute_s;      /* (stages, tasks) */
};

/* Before the first run. Arrays are the arena's. E_MEMORY, or as sbp_tasks_make. */
enum sbp_status least_open(const struct sbp_step *step, struct sbp_arena *arena,
                           struct least *least, struct sbp_diag *diag) SBP_MUST_USE;
/* Runs two steps over threads in single precision and lowers the times to those of the second. The
 * run, with its trace, is the caller's to free. Fails as sbp_run. */
enum sbp_status least_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                          struct least *least, struct sbp_run_result *run,
                          struct sbp_diag *diag) SBP_MUST_USE;
/* After the last run: micro-batches do equal work, so that each task of an instruction takes the
 * median of them; what differs between them is the machine's. E_MEMORY. */
enum sbp_status least_level(const struct sbp_step *step, struct least *least) SBP_MUST_USE;
/* Of all tasks of a rank of each stage. */
double least_sum(const struct sbp_step *step, const struct least *least);

#endif
