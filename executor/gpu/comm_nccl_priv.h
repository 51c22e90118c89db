/* What a rank of the `nccl` backend has, and what its collectives (comm_nccl.c), its communicators
 * (teams_nccl.c) and its messages (messages_nccl.c) ask of each other.
 *
 * Functions that can fail leave the reason in the rank's diag: E_MEMORY, else E_BACKEND, or as the
 * host endpoint does.
 */
#ifndef SBP_EXECUTOR_GPU_COMM_NCCL_PRIV_H
#define SBP_EXECUTOR_GPU_COMM_NCCL_PRIV_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

#include "base/status.h"
#include "executor/gpu/gpu.h"
#include "executor/gpu/waves.h"

/* Ranks, in order, that share a communicator. */
struct sbp_nccl_team {
    ncclComm_t nccl; /* NULL: not made, or given back */
    int *ranks;
    struct sbp_wave_group who; /* of these ranks */
};

struct sbp_comm {
    struct sbp_endpoint host;
    int rank, size;
    cudaStream_t own;    /* where calls are waited for */
    cudaStream_t stream; /* of all calls but the transfers of messages: the own one, or a lane's */
    bool is_aborted;
    struct member *members; /* of its groups, comm_nccl.c's */
    int members_count, members_capacity;
    struct sbp_nccl_team
        *teams; /* as they were made; the first one is the world's, if any split: of no group */
    int teams_count, teams_capacity;
    ncclComm_t splitting; /* where NCCL puts the communicator of the split under way */
    struct sbp_nccl_messages *messages; /* messages_nccl.c's; NULL: not opened */
    struct sbp_diag diag;
};

/* comm_nccl.c ------------------------------------------------------------------------------- */

/* The one place where a code of NCCL becomes a status; nccl: NULL, or where it was, which is asked
 * until a call that does not block is through. */
enum sbp_status sbp_nccl_check(struct sbp_diag *diag, ncclComm_t nccl, const char *call,
                               ncclResult_t code) SBP_MUST_USE;

#define SBP_NCCL_TRY(diag, nccl, function, ...)                                                    \
    SBP_TRY(sbp_nccl_check((diag), (nccl), #function, function(__VA_ARGS__)))

/* Copies the reason of a failure of the host endpoint, which keeps a text of its own. */
enum sbp_status sbp_nccl_check_host(struct sbp_comm *comm, enum sbp_status status) SBP_MUST_USE;

/* Waits for a stream and looks for errors of nccl meanwhile, which is NULL where the work is none
 * of NCCL's. A failure aborts all communicators. */
enum sbp_status sbp_nccl_wait(struct sbp_comm *comm, ncclComm_t nccl,
                              cudaStream_t stream) SBP_MUST_USE;

/* Waits for all that the calls' stream was given, and looks for errors of all communicators. */
enum sbp_status sbp_nccl_settle(struct sbp_comm *comm) SBP_MUST_USE;

/* The end of a call, which waits for its stream; a rank that has lanes waits for those later. */
enum sbp_status sbp_nccl_end_call(struct sbp_comm *comm, ncclComm_t nccl,
                                  cudaStream_t stream) SBP_MUST_USE;

/* teams_nccl.c ------------------------------------------------------------------------------ */

typedef enum sbp_status sbp_nccl_visit(struct sbp_comm *comm, ncclComm_t nccl);

/* Makes a communicator with those who have the same id, and gives one back. Collective over them.
 * blocks: to make it, as its calls later. */
enum sbp_status sbp_nccl_join(struct sbp_comm *comm, const ncclUniqueId *id, int size, int index,
                              bool blocks, ncclComm_t *made) SBP_MUST_USE;
enum sbp_status sbp_nccl_leave(struct sbp_comm *comm, ncclComm_t nccl) SBP_MUST_USE;

/* As name_groups of comm.h. Before the first team. */
enum sbp_status sbp_nccl_name_groups(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                     int count) SBP_MUST_USE;
/* The team of some ranks, which they make where it is not there. *found: until the next one. */
enum sbp_status sbp_nccl_team(struct sbp_comm *comm, const struct sbp_wave_group *who, int key,
                              const struct sbp_nccl_team **found) SBP_MUST_USE;
enum sbp_status sbp_nccl_teams_visit(struct sbp_comm *comm, sbp_nccl_visit *visit) SBP_MUST_USE;
/* Gives all communicators back. Collective over all ranks. */
enum sbp_status sbp_nccl_teams_close(struct sbp_comm *comm) SBP_MUST_USE;
/* Gives back memory of the host alone. */
void sbp_nccl_teams_free(struct sbp_comm *comm);

/* messages_nccl.c --------------------------------------------------------------------------- */

/* Makes comm->messages, without any channel. On failure free what is there. */
enum sbp_status sbp_nccl_messages_open(struct sbp_comm *comm) SBP_MUST_USE;

/* Waits for what channels have under way and closes them. All ranks call it. */
enum sbp_status sbp_nccl_messages_close(struct sbp_comm *comm) SBP_MUST_USE;

/* Gives back memory of the host alone: a device that failed might never answer. NULL is legal. */
void sbp_nccl_messages_free(struct sbp_comm *comm);

/* Calls `visit` for the communicator of each open channel, until it fails. */
enum sbp_status sbp_nccl_messages_visit(struct sbp_comm *comm, sbp_nccl_visit *visit) SBP_MUST_USE;

/* Has messages by the host leave, which some libraries move only while they are called. */
enum sbp_status sbp_nccl_messages_look(struct sbp_comm *comm) SBP_MUST_USE;

/* As send and receive of comm.h, but for what gpu.h says of the first message. */
enum sbp_status sbp_nccl_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                              int64_t bytes) SBP_MUST_USE;
enum sbp_status sbp_nccl_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                 int64_t bytes) SBP_MUST_USE;
/* As by_host of comm.h. */
enum sbp_status sbp_nccl_by_host(struct sbp_comm *comm, bool by_host,
                                 int64_t largest_bytes) SBP_MUST_USE;

#endif
