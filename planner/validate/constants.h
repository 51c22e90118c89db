/* Which one constant would explain a step that took another time than its plan predicts.
 *
 * Input: a plan with its strategy, and a measured step time. Output: for each constant that people
 * rarely know (rates of arithmetic, memory and links, launches of the host, what hides), the value
 * at which the same plan's step is the measured one, all others being as they are.
 */
#ifndef SBP_PLANNER_VALIDATE_CONSTANTS_H
#define SBP_PLANNER_VALIDATE_CONSTANTS_H

#include "planner/plan/plan.h"

#define SBP_CONSTANT_MAP(X)                                                                        \
    X(ARITHMETIC, "arithmetic") /* share of the rate that the cluster says */                      \
    X(MEMORY, "memory")         /* the same of reading and writing memory */                       \
    X(LINKS, "links")           /* the same of levels; measured curves have no such constant */    \
    X(HOST, "host")             /* seconds of a launch, where the step is too short */             \
    X(HIDING, "hiding")         /* share of all communication that hides, where it is too long */
#define SBP_CONSTANT_ENUM(symbol, name) SBP_CONSTANT_##symbol,
enum sbp_constant { SBP_CONSTANT_MAP(SBP_CONSTANT_ENUM) SBP_CONSTANTS };
#undef SBP_CONSTANT_ENUM
const char *sbp_constant_name(enum sbp_constant cause);

struct sbp_constant_value {
    bool explains; /* some value does; to a thousandth */
    double value;  /* it; without one 0 */
};

/* Tries rates from 1/50 of to 50 times the cluster's, launches up to 10 ms. cause:
 * (SBP_CONSTANTS). Fails as sbp_cut_make and sbp_cut_step. */
enum sbp_status sbp_constants_explain(const struct sbp_plan *plan, double measured_s,
                                      struct sbp_constant_value *cause,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
