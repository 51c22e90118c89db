/* Measures plans beside each other. They take turns, round by round (A B C A B C ...), so that what
 * changes on the machine meanwhile hits all alike; the first steps of a round are dropped, and the
 * last one of a schedule without a flush, which begins nothing for a next one.
 *
 * A round counts as one observation, the median of its steps, since what disturbs one step of a
 * round disturbs the others, too. Over rounds stand the median and its interval by order
 * statistics (base/math/stats.h), which assumes no distribution. Plans are compared by their wall
 * time where each rank has a core, else by their replay (run_times.h), and by the time of a token
 * (image, sample), so that their batches may differ.
 */
#ifndef SBP_EXECUTOR_BENCH_H
#define SBP_EXECUTOR_BENCH_H

#include "executor/run/run.h"
#include "planner/plan/plan.h"

#define SBP_BENCH_CONFIDENCE 0.99
#define SBP_BENCH_ROUNDS     8 /* the fewest that give an interval of that confidence */

struct sbp_bench_options {
    int rounds, warmup, steps;  /* steps: of a round, that count; >= 1, 0, 1 */
    struct sbp_run_options run; /* of every run; its steps and its type are set by others here */
};

struct sbp_bench_plan {
    const char *file;
    struct sbp_plan plan;
    struct sbp_step step; /* made for a run in `real`; borrows from the plan */
    enum sbp_real real;
};

/* Seconds of a step. */
enum sbp_bench_metric {
    SBP_BENCH_REPLAY,
    SBP_BENCH_WALL,
    SBP_BENCH_COMPUTE,       /* of the slowest rank */
    SBP_BENCH_COMMUNICATION, /* wall time inside the backend, waiting included */
    SBP_BENCH_EXPOSED,       /* of the replay */
    SBP_BENCH_BUBBLE,        /* of the replay */
    SBP_BENCH_METRICS
};

struct sbp_bench_value {
    double median_s, low_s, high_s; /* the interval, or the range where rounds are too few */
};

struct sbp_bench_row {
    double *round_s[SBP_BENCH_METRICS]; /* (rounds), as they came */
    struct sbp_bench_value value[SBP_BENCH_METRICS];
    double predicted_s[SBP_BENCH_METRICS]; /* wall: as replay */
    int64_t units;                         /* tokens, images or samples of a step */
    int ranks;
    bool has_cores;                        /* one a rank, whenever it wants one */
    int64_t arena_bytes, high_water_bytes; /* of a rank: predicted, touched */
    /* The first step of a run, from 1, whose loss or norm is no number; 0: none. Steps after it
     * were not run, so that such a plan has no times and is compared with none. */
    int odd_step;
    const char *odd_what; /* of the run, what it was */
    bool is_apart; /* slower than the best one: their intervals, of the confidence, do not meet */
};

struct sbp_bench_result {
    struct sbp_arena arena; /* owns the arrays */
    bool filled;            /* this process ran rank 0 */
    int count, rounds;
    struct sbp_bench_row *row;      /* (count) */
    double *scratch;                /* (rounds) */
    enum sbp_bench_metric compared; /* wall or replay */
    bool is_confident;              /* rounds suffice for intervals of the confidence */
    int best; /* least median of the time of a unit; -1: no plan kept its numbers finite */
};

/* Steps of each run of a plan: the warmup, those that count, and what is dropped behind them. */
int sbp_bench_run_steps(const struct sbp_bench_options *options, const struct sbp_bench_plan *plan);
/* Refuses plans that cannot stand in one table, or cannot run, before any run: another model, or,
 * over mpi, another number of ranks than the first plan's; what sbp_run_check refuses. The message
 * begins with the file. */
enum sbp_status sbp_bench_check(const struct sbp_bench_plan *plans, int count,
                                const struct sbp_bench_options *options,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Runs all rounds; fails as sbp_run, and leaves nothing allocated then. Over mpi every process of
 * the launcher calls this, or sbp_bench_refuse. */
enum sbp_status sbp_bench(const struct sbp_bench_plan *plans, int count,
                          const struct sbp_bench_options *options, struct sbp_bench_result *result,
                          struct sbp_diag *diag) SBP_MUST_USE;
void sbp_bench_free(struct sbp_bench_result *result);
/* As sbp_run_refuse. */
enum sbp_status sbp_bench_refuse(enum sbp_status status, struct sbp_diag *diag) SBP_MUST_USE;

/* Parts of sbp_bench: an empty result, E_MEMORY; and, of rows with all their rounds, the values,
 * what is compared, the best, and who is apart. */
enum sbp_status sbp_bench_open(int count, int rounds, struct sbp_bench_result *result,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_bench_compare(struct sbp_bench_result *result);
/* Seconds of a unit: the median, low or high of what is compared. */
double sbp_bench_each_s(const struct sbp_bench_result *result, int row, double seconds);

#endif
