/* What the files share that call CUDA and NCCL. They are built into a module that is loaded when a
 * GPU is asked for (calib/measure/gpu.h), so that programs start without those libraries.
 */
#ifndef SBP_EXECUTOR_GPU_GPU_H
#define SBP_EXECUTOR_GPU_GPU_H

#include "executor/comm/comm.h"

/* The one place where a code of the CUDA runtime becomes a status: E_BACKEND with the call's name,
 * E_MEMORY where the device is full. */
enum sbp_status sbp_cuda_check(struct sbp_diag *diag, const char *call, int code) SBP_MUST_USE;

#define SBP_CUDA_TRY(diag, function, ...)                                                          \
    SBP_TRY(sbp_cuda_check((diag), #function, (int)function(__VA_ARGS__)))

/* Memory of the thread's current device. */
extern const struct sbp_memory_ops sbp_memory_cuda;

/* Runs this process as one rank of MPI_COMM_WORLD with a GPU of its own: the place among its host's
 * ranks chooses it. Collectives and messages are NCCL's, over device memory; MPI starts the ranks
 * and moves what host() moves. main runs with its device current. Fails as sbp_mpi_run does, and
 * with E_UNSUPPORTED on every rank, none ended by force, where a rank has no GPU or two have the
 * same one.
 *
 * Against comm.h one thing differs: the first message from one rank to another waits until that one
 * receives, because it makes the communicator of the two. */
enum sbp_status sbp_nccl_run(sbp_rank_main main, void *argument,
                             struct sbp_diag *diag) SBP_MUST_USE;

#endif
