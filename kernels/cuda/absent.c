/* Stands for the kernels in a build without nvcc. */
#include "kernels/cuda/cuda.h"

int sbp_cuda_kernels_load(void)
{
    return 0;
}

void sbp_cuda_kernels_make(struct sbp_cuda_kernels *kernels, enum sbp_real real)
{
    *kernels = (struct sbp_cuda_kernels){.real = real};
}
