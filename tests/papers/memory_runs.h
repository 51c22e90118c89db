/* Groups of measured runs: what a row of a group asks of sbplan, and which of its numbers stands
 * beside the measured one.
 *
 * Rows of a group differ in nothing but their own configuration; what a runtime takes for itself
 * (CUDA context, NCCL, allocator) is the reserve of the group's cluster.
 */
#ifndef SBP_TESTS_PAPERS_MEMORY_RUNS_H
#define SBP_TESTS_PAPERS_MEMORY_RUNS_H

#include "tests/papers/memory_plan.h"
#include "tests/papers/memory_rows.h"

#define MEMORY_MOST_GROUPS 8
struct memory_group {
    const char *name, *title, *text, *prefix; /* of the rows' names */
    const char *unit;
    double unit_bytes;
    int digits;                        /* printed */
    double reserve_bytes, limit_bytes; /* of a device */
    double mean_bound, worst_bound;
    const char *suffix;         /* of the rows' names; "" for all */
    double out_of_memory_bound; /* share of the runs out of memory that must not fit */
    enum { MEMORY_ALL_STAGES, MEMORY_ONE_STAGE, MEMORY_MORE_STAGES } stages;
    void (*ask)(const struct memory_row *row, double reserve_bytes, struct memory_case *question);
    double (*answer)(const struct memory_row *row, const struct memory_answer *answer);
};
extern const struct memory_group memory_groups[];
extern const int memory_group_count;

/* Runs that are printed in a published table rather than in the rows' file: writes them after
 * counting (NULL: counts). */
int memory_runs_oneflow(struct memory_row *rows);

bool memory_group_has(const struct memory_group *group, const struct memory_row *row);
/* Why a row of no group is in none; NULL: for no reason. */
const char *memory_row_unused(const struct memory_row *row);
double memory_run_predict(const struct memory_group *group, const struct memory_row *row);

#endif
