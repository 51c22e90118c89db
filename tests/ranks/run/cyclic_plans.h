/* Random plans without a flush, for the tests of cyclic data parallelism. */
#ifndef SBP_TESTS_RUN_CYCLIC_PLANS_H
#define SBP_TESTS_RUN_CYCLIC_PLANS_H

#include "run_checks.h"

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
 * is the caller's to free. */
void place_together(const struct plan *plan, enum sbp_real real, struct plan *together);

/* So many plans in double, and so many in single precision with the offset + 100, against the
 * recurrence; prints the largest difference / bound. */
void hold_to_recurrence(cut_function *cut, uint64_t offset, int plans, int narrow_plans);
/* The same bits as the same plan placed together, but that losses of micro-batches are added up in
 * another order; more than `least` losses must be compared. */
void hold_to_bits(cut_function *cut, uint64_t offset, int plans, int least);
/* Predictions no longer than the timeline, and no shorter than what any device computes; more than
 * `least` must be as long as the timeline. */
void hold_to_prediction(cut_function *cut, uint64_t offset, int plans, int least);

/* A sum so far that is added to nothing; zeros for a finished sum; the weights of the first step,
 * whatever it updates; zeros for activations. */
enum cyclic_fault { DROPPED, UNFINISHED, STALE, LOST };

/* Plants a fault in the first instruction that it is of, if there is one, in a stage's chunk. What
 * a run of so many steps finds must be called by its name. */
void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                 enum cyclic_fault fault, int steps, int stage, int chunk);
/* Counts the faults that `check` plants by check_fault: more than `least` must be, and most found.
 */
void hold_to_finding(cut_function *cut, uint64_t offset, int plans, enum cyclic_fault fault,
                     check_function *check, int least);

/* Draws a run of up to so many steps with NaN in the last linear layer of a program, whose piece is
 * the caller's to set; false: it has none, and nothing is drawn. */
bool draw_odd(const struct plan *plan, const struct sbp_program *program, int steps,
              struct sbp_random *random, struct sbp_run_options *options);
/* Whether the run saw NaN, which a dropout or the rank's own roles may drop: then it must end with
 * that step, `latest` at the latest, name the layer, and report no step behind it. */
bool ends_where_odd(const struct plan *plan, const struct sbp_program *program, int latest,
                    const struct sbp_run_options *options, const char *model);

#endif
