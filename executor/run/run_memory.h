/* What a run needs of a host's memory, and whether it is there.
 *
 * Linux hands out memory that is not there and ends a process, or another one, when it is touched;
 * so the need is compared first with what is free (base/machine.h). It is the ranks' arenas and
 * offloaded states, as the plan counts them, messages between stages on their way, in slots or as
 * the backend's copies, blocks of a ring as such copies, and what verification holds beside them.
 */
#ifndef SBP_EXECUTOR_RUN_RUN_MEMORY_H
#define SBP_EXECUTOR_RUN_RUN_MEMORY_H

#include "executor/run/message_lane.h"
#include "executor/verify/verify.h"

struct sbp_run_need {
    double bytes;        /* all that is counted */
    double verify_bytes; /* of these, for verification */
};

/* One host's ranks. */
struct sbp_run_host {
    char name[64];
    int ranks;
    int64_t free_bytes; /* the least that one of them sees; -1: unknown */
    struct sbp_run_need need;
};

/* Bytes of a rank's arena as the plan counts them. */
int64_t sbp_run_arena_bytes(const struct sbp_step *step, int stage);
/* The need of one rank; the first of all holds the reference of a verification. `verify`: what that
 * takes (sbp_verify_count), zeros without it. `arena`: the memory that arenas lie in; if that is a
 * device's they are not counted, nor are the blocks that its copies go through. */
struct sbp_run_need sbp_run_need_of(const struct sbp_step *step, int64_t rank,
                                    const struct sbp_verify_need *verify,
                                    const struct sbp_memory_ops *arena);
/* This host without ranks. */
void sbp_run_host_find(struct sbp_run_host *host);
void sbp_run_host_add(struct sbp_run_host *host, const struct sbp_run_need *need);
/* E_MEMORY says what the host's ranks need and what is free. */
enum sbp_status sbp_run_host_check(const struct sbp_run_host *host,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* The same of all ranks as threads of this process, which need *bytes. E_INPUT: too many ranks. */
enum sbp_status sbp_run_check_threads(const struct sbp_step *step,
                                      const struct sbp_verify_need *verify,
                                      const struct sbp_memory_ops *arena, double *bytes,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
