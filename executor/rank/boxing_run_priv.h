/* Runs one step of a boxing plan on a rank: pack, exchange, unpack, or a local copy.
 *
 * Boxing changes the distribution of a tensor between two operators (OneFlow; DESIGN.md, section
 * 4). Which elements move where follows from the digit rule alone (base/math/digits.h); the
 * permutations come from the boxing planner (costmodel/layout/boxing.h), the exchange goes through
 * the channel.
 */
#ifndef SBP_EXECUTOR_RANK_BOXING_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_BOXING_RUN_PRIV_H

#include "executor/comm/channel.h"

struct sbp_boxing_run {
    const struct sbp_layout *layout;
    const struct sbp_shape *shape; /* of the logical tensor */
    const struct sbp_boxing_step *step;
    int64_t rank;
    const void *in; /* this rank's block in step->from */
    void *out;      /* and in step->to; may be `in` for an all-reduce */
    void *pack;     /* as large as `in`; NULL where sbp_boxing_pack needs nothing */
    void *unpack;   /* as large as `out`; NULL where sbp_boxing_unpack needs nothing */
};

/* Collective over the step's group (a LOCAL step: over nobody). */
enum sbp_status sbp_boxing_execute(const struct sbp_boxing_run *run, struct sbp_channel *channel,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
