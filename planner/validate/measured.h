/* Which one constant would explain a step that took another time than its plan predicts.
 *
 * Input: a plan with its strategy, and a measured step time. Output: for each constant that people
 * rarely know (rates of arithmetic, memory and links, launches of the host, what hides), the value
 * at which the same plan's step is the measured one, all others being as they are.
 */
#ifndef SBP_PLANNER_VALIDATE_MEASURED_H
#define SBP_PLANNER_VALIDATE_MEASURED_H

#include "planner/plan/plan.h"

#define SBP_MEASURED_MAP(X)                                                                        \
    X(ARITHMETIC, "arithmetic") /* share of the rate that the cluster says */                      \
    X(MEMORY, "memory")         /* the same of reading and writing memory */                       \
    X(LINKS, "links")           /* the same of levels; measured curves have no such constant */    \
    X(HOST, "host")             /* seconds of a launch, where the step is too short */             \
    X(HIDING, "hiding")         /* share of all communication that hides, where it is too long */
#define SBP_MEASURED_ENUM(symbol, name) SBP_MEASURED_##symbol,
enum sbp_measured_step { SBP_MEASURED_MAP(SBP_MEASURED_ENUM) SBP_MEASURED_CAUSES };
#undef SBP_MEASURED_ENUM
const char *sbp_measured_name(enum sbp_measured_step cause);

struct sbp_measured_cause {
    bool explains; /* some value does; to a thousandth */
    double value;  /* it; without one 0 */
};

/* Tries rates from 1/50 of to 50 times the cluster's, launches up to 10 ms. cause:
 * (SBP_MEASURED_CAUSES). Fails as sbp_cut_make and sbp_cut_step. */
enum sbp_status sbp_measured_explain(const struct sbp_plan *plan, double measured_s,
                                     struct sbp_measured_cause *cause,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
