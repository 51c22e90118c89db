/* Which experts the tokens of a run went to, and which copies found a slot.
 *
 * Two experts whose scores are nearly the same may be ranked one way by the run and the other way
 * by a reference in double; what follows then has little in common. So the reference takes the
 * run's experts, and each of them is judged: by the reference's own scores it is as good as the one
 * in its place would be, but for what round-off may do to the two. What is dropped has no
 * tolerance: it follows from the experts by the rule in kernels.h, on each rank's tokens alone, and
 * must be the same, and so must be what ranks that repeat a token's work choose.
 */
#ifndef SBP_EXECUTOR_VERIFY_CHOICES_PRIV_H
#define SBP_EXECUTOR_VERIFY_CHOICES_PRIV_H

#include "executor/verify/verify_priv.h"

/* On every rank: keeps what an instruction chose; nothing of others. Fails as the device does. */
enum sbp_status sbp_choices_keep(struct sbp_verifier *v, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;
/* All ranks give theirs of the step to rank 0, which checks what does not depend on scores and
 * fills the reference's tables. Fails as the channel does; E_MEMORY. */
enum sbp_status sbp_choices_collect(struct sbp_verifier *v, struct sbp_diag *diag) SBP_MUST_USE;
/* Room on a rank for what its chunks choose in two steps; bytes of it. */
enum sbp_status sbp_choices_open(struct sbp_verifier *v) SBP_MUST_USE;
void sbp_choices_close(struct sbp_verifier *v);
double sbp_choices_bytes(const struct sbp_program *program);

#endif
