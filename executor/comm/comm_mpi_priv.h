/* The MPI library of the backend `mpi`: how it is started, and what its codes mean. */
#ifndef SBP_EXECUTOR_COMM_COMM_MPI_PRIV_H
#define SBP_EXECUTOR_COMM_COMM_MPI_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The one place where an MPI code becomes a status: E_BACKEND, by the name of the call. */
enum sbp_status sbp_mpi_check(struct sbp_diag *diag, const char *call, int code) SBP_MUST_USE;
#define SBP_MPI_TRY(diag, function, ...)                                                           \
    SBP_TRY(sbp_mpi_check((diag), #function, function(__VA_ARGS__)))

/* Starts the library unless it is; *started: the caller has to finalise it. E_USAGE: it does not
 * know the launcher; E_BACKEND. */
enum sbp_status sbp_mpi_start(bool *started, struct sbp_diag *diag) SBP_MUST_USE;
/* Fails with E_USAGE, and what to launch so many processes by. */
enum sbp_status sbp_mpi_refuse_launcher(int64_t processes, struct sbp_diag *diag) SBP_MUST_USE;
/* "Open MPI v4.1.4": the library's version as far as the first comma or line. */
void sbp_mpi_library(char *text, int size);
/* comm_mpi_device.c: whether the library takes buffers in a GPU's memory, asked as it runs. */
bool sbp_mpi_takes_devices(void);

#endif
