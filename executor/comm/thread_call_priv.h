/* A collective call of the `threads` backend, and how each member moves its share of the data.
 *
 * Members meet in thread_world, which compares their calls. Between the two barriers of the meeting
 * every member runs sbp_thread_call_move on the same list of calls. Nothing here waits, and the
 * buffers are all that is shared.
 */
#ifndef SBP_EXECUTOR_COMM_THREAD_CALL_PRIV_H
#define SBP_EXECUTOR_COMM_THREAD_CALL_PRIV_H

#include <stdbool.h>

#include "base/text.h"
#include "executor/comm/comm.h"

enum sbp_thread_call_kind {
    SBP_THREAD_BARRIER,
    SBP_THREAD_ALL_REDUCE,
    SBP_THREAD_ALL_GATHER,
    SBP_THREAD_REDUCE_SCATTER,
    SBP_THREAD_REDUCE,
    SBP_THREAD_ALL_TO_ALL,
    SBP_THREAD_BROADCAST,
};
const char *sbp_thread_call_name(enum sbp_thread_call_kind kind);

/* One member's call. Buffers are those of the function in struct sbp_comm_ops; a call in place has
 * its buffer as both. */
struct sbp_thread_call {
    enum sbp_thread_call_kind kind;
    enum sbp_real real;
    enum sbp_comm_reduction reduction;
    int root; /* in group order */
    int64_t count;
    const void *send;
    void *receive;
};

/* Whether two members' calls are parts of one collective. */
bool sbp_thread_call_matches(const struct sbp_thread_call *a, const struct sbp_thread_call *b);
void sbp_thread_call_describe(struct sbp_text *text, int rank, const struct sbp_thread_call *call);

/* A member's share of a collective of calls(size), in group order, all of which match. All members
 * do this, in any order, while no buffer changes otherwise. */
void sbp_thread_call_move(const struct sbp_thread_call *calls, int size, int index);

#endif
