/* Why a layer cannot be split as somebody gave it, in words, before a search says that it cannot.
 */
#ifndef SBP_PLANNER_CLI_FIX_REASON_PRIV_H
#define SBP_PLANNER_CLI_FIX_REASON_PRIV_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* "role column splits block0.ffn (256) into 3 parts, which do not divide it": a level whose members
 * the factors do not divide, or a dimension. "" where nothing of the kind is wrong; then the whole
 * may be illegal all the same. Returns buffer. */
#define SBP_FIX_REASON_BYTES 240
const char *sbp_fix_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix,
                           char *buffer);

#endif
