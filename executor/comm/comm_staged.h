/* A backend of host memory for ranks whose buffers lie on a device: each call goes through a copy
 * in host memory.
 */
#ifndef SBP_EXECUTOR_COMM_COMM_STAGED_H
#define SBP_EXECUTOR_COMM_COMM_STAGED_H

#include "executor/comm/comm.h"

/* *staged: an endpoint of the same ranks, of the inner one's name, whose buffers lie in `memory`.
 * One thread at a time may call it (is_shared is false, try_receive is E_UNSUPPORTED); its host is
 * the inner endpoint, which must outlive it. Blocks of memory for copies grow as calls want them.
 * E_MEMORY. */
enum sbp_status sbp_staged_open(const struct sbp_endpoint *inner,
                                const struct sbp_memory_ops *memory, struct sbp_endpoint *staged,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_staged_close(struct sbp_endpoint *staged); /* what was never opened is legal */

#endif
