/* Round-off of attention where a query sees one key. Internal. */
#ifndef SBP_EXECUTOR_VERIFY_LONE_KEYS_PRIV_H
#define SBP_EXECUTOR_VERIFY_LONE_KEYS_PRIV_H

#include "executor/verify/magnitude_priv.h"

/* After the BACKWARD instruction of an attention, in both precisions: gradients of queries that see
 * one key, and of keys that are seen by such alone, deviate in the shadow by at least the unit
 * roundoff of both terms of the score's gradient. */
void sbp_lone_keys_deviate(const struct sbp_lockstep *both, const struct sbp_instr *instr);

#endif
