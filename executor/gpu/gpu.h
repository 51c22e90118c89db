/* GPUs: memory on a device by CUDA, and the `nccl` communication backend.
 *
 * The files of this folder are built into a module that is loaded only when a GPU is asked for
 * (calib/measure/gpu.h), so that programs start on machines without CUDA and NCCL.
 */
#ifndef SBP_EXECUTOR_GPU_GPU_H
#define SBP_EXECUTOR_GPU_GPU_H

#include "executor/comm/comm.h"
#include "kernels/cuda/cuda.h"

/* Turns a code of the CUDA runtime into a status: E_MEMORY when the device is full, else E_BACKEND
 * with the call's name. */
enum sbp_status sbp_cuda_check(struct sbp_diag *diag, const char *call, int code) SBP_MUST_USE;

#define SBP_CUDA_TRY(diag, function, ...)                                                          \
    SBP_TRY(sbp_cuda_check((diag), #function, (int)function(__VA_ARGS__)))

/* The calls of sbp_memory_cuda, with the reason of a failure: E_MEMORY, E_RANGE (bytes < 0), else
 * E_BACKEND. cudaMalloc aligns to 256 bytes; *memory is NULL on failure. */
enum sbp_status sbp_cuda_allocate(int64_t bytes, void **memory, struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_cuda_copy(void *to, const void *from, int64_t bytes, bool to_host,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* Memory of the thread's current device. */
extern const struct sbp_memory_ops sbp_memory_cuda;

/* Makes the context that launches kernels on the current device: its multiprocessors, and scratch
 * of `stream` (cudaStream_t). E_MEMORY; E_UNSUPPORTED where the build has no kernels. On failure
 * nothing is left allocated. */
enum sbp_status sbp_gpu_context_open(struct sbp_cuda *cuda, void *stream,
                                     struct sbp_diag *diag) SBP_MUST_USE;
void sbp_gpu_context_close(struct sbp_cuda *cuda);

/* Makes a GPU of the host current, by this rank's place among the host's ranks; ranks that a
 * launcher gave a device each see one. All ranks call it. *refused, the same on all ranks:
 * E_UNSUPPORTED where a rank has no GPU or two have the same one, and why says which. Else it fails
 * as the endpoint does, or with E_MEMORY, by diag. */
enum sbp_status sbp_gpu_choose(const struct sbp_endpoint *host, enum sbp_status *refused,
                               struct sbp_diag *why, struct sbp_diag *diag) SBP_MUST_USE;

/* Runs this process as one rank of MPI_COMM_WORLD. sbp_gpu_choose makes its GPU current while main
 * runs. NCCL moves collectives and messages between device memories, on streams of its own: what is
 * sent is there before a call, and what comes is there behind it, unless work_on has given another
 * stream, which orders both; MPI starts the ranks and moves the messages of host(). Fails as
 * sbp_mpi_run does. Where a rank has no GPU, or two ranks have the same one, every rank returns
 * E_UNSUPPORTED and none is killed.
 *
 * One promise of comm.h does not hold: the first message from one rank to another waits until that
 * one receives, because the two build a communicator for it. */
enum sbp_status sbp_nccl_run(sbp_rank_main main, void *argument,
                             struct sbp_diag *diag) SBP_MUST_USE;

#endif
