/* What the members of a group of threads call together, and how each moves its share of the data
 * once all calls are known.
 *
 * Nothing here waits or is shared but the buffers: between the two barriers of a rendezvous every
 * member runs sbp_thread_call_move on the same list of calls.
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
    SBP_THREAD_ALL_TO_ALL,
    SBP_THREAD_BROADCAST,
};
const char *sbp_thread_call_name(enum sbp_thread_call_kind kind);

/* What one member brings to a rendezvous; buffers as the function of struct sbp_comm_ops takes
 * them, those that work in place as both. */
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
