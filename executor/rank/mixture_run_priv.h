/* Mixtures of experts on a rank: a token's experts, copies of it to their slots, the experts, and
 * the sum over them.
 *
 * A rank's tokens are a group of their own (Lepikhin et al., GShard, 2020, section 2.2): each
 * expert has as many slots for them as the cost model counts, and copies that find none are
 * dropped. Slots stand by the member that holds the expert, then by expert. Where experts lie
 * apart, two all-to-alls of all slots, full or not, bring copies there and back.
 *
 * What forward keeps (S slots of all experts or, where they lie apart, of the own ones for all
 * members' tokens; H hidden features, F local ones of the feed-forward, G gates, E experts):
 *     copies(S,H) by expert | first(S,F,G) | activation(S,F) | second(S,H) as sent back |
 * scores(T,E) Backward's phases 0 to 2 leave in place of `first`, of `second` and of the scores the
 * gradients that phase 3 multiplies, `second`'s by expert. Room for one product's gradient is taken
 * from scratch, some features at a time.
 */
#ifndef SBP_EXECUTOR_RANK_MIXTURE_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_MIXTURE_RUN_PRIV_H

#include "executor/rank/mixture.h"

/* Instructions FORWARD and BACKWARD, in their phases. */
void sbp_rank_mix(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_mix_backward(struct sbp_rank *rank, const struct sbp_instr *instr);
/* An INNER instruction: all slots to the members that hold their experts (phase 0), or back (1).
 * Fails as the backend does. */
enum sbp_status sbp_rank_send_copies(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
