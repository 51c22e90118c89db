/* The reason why a layer cannot be split as somebody gave it, in words: a search would only say
 * that there is no legal strategy.
 */
#ifndef SBP_PLANNER_CLI_FIX_REASON_PRIV_H
#define SBP_PLANNER_CLI_FIX_REASON_PRIV_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* "role column splits block0.ffn (256) into 3 parts, which do not divide it". The reason is a level
 * whose members the factors do not divide, or a dimension; "" where neither is wrong, though the
 * strategy as a whole may still be illegal. Returns buffer. */
#define SBP_FIX_REASON_BYTES 240
const char *sbp_fix_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix,
                           char *buffer);

#endif
