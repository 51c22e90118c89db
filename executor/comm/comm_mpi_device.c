/* Whether the MPI library reads and writes the memory of GPUs. It stands alone, so that tests on a
 * stand-in give an answer of their own. */
#include <mpi.h>

#include "executor/comm/comm_mpi_priv.h"

/* Open MPI declares its extensions in a header of their own, MPICH in mpi.h. */
#if defined(SBP_MPI_EXT)
#include <mpi-ext.h>
#endif

/* The library of the run may be another build than that of the headers, whose
 * MPIX_CUDA_AWARE_SUPPORT therefore says nothing. */
bool sbp_mpi_takes_devices(void)
{
#if defined(SBP_MPI_QUERIES)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}
