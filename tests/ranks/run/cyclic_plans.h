/* Random plans without a flush, for the tests of cyclic data parallelism. */
#ifndef SBP_TESTS_RUN_CYCLIC_PLANS_H
#define SBP_TESTS_RUN_CYCLIC_PLANS_H

#include "run_checks.h"

typedef bool cut_function(struct plan *plan, struct sbp_random *random);
typedef void check_function(const struct plan *plan, struct sbp_random *random, const char *model);

/* Calls `check` with so many random plans, whose stages `cut` places. Prints the seed; fails the
 * test unless both rules are among them, and plans of several stages. */
void for_placed(cut_function *cut, uint64_t offset, enum sbp_real real, int plans,
                check_function *check);

/* Checks for it: a drawn number of steps against the recurrence, whose largest difference / bound
 * is kept; and steps for which ranks do not stop, which train as those for which they do. */
extern double worst_of_recurrence;
check_function check_recurrence, check_running_on;
/* The same plan with all pieces on the devices of one stage, which does all micro-batches; the step
 * is the caller's to free. Steps train the same bits, but that losses of micro-batches are added up
 * in another order: counts them. */
void place_together(const struct plan *plan, enum sbp_real real, struct plan *together);
extern int compared_bits;
check_function check_bits;
/* A prediction is no longer than the timeline, and no shorter than what any device computes. Counts
 * those that are as long. */
extern int alike_steps;
check_function check_prediction;

#endif
