/* The files of a channel share these: a member's rank, the log and the times of calls, the
 * backend's reason for a failure. */
#ifndef SBP_EXECUTOR_COMM_CHANNEL_PRIV_H
#define SBP_EXECUTOR_COMM_CHANNEL_PRIV_H

#include "executor/comm/channel.h"

/* Passes a status on, with the backend's own reason of it. */
enum sbp_status sbp_channel_backend(struct sbp_channel *channel, enum sbp_status status,
                                    const char *what, struct sbp_diag *diag) SBP_MUST_USE;
/* Logs an exchange. Calls beyond the program's list are only counted: the list has no entry to
 * compare them with. */
void sbp_channel_note(struct sbp_channel *channel, const struct sbp_exchange *exchange);
/* Counts what passed of the wall's and the thread's time since both were read. */
void sbp_channel_spend(struct sbp_channel *channel, double wall_s, double cpu_s);
/* The rank, of all stages, of a member of this rank's group by these axes. */
int sbp_channel_rank_of(const struct sbp_channel *channel, sbp_axes axes, int64_t member);

#endif
