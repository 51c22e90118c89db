/* An element type's operator table, of all families. */
#include <string.h>

#include "kernels/cuda/cuda.h"

#define FAMILIES(X)                                                                                \
    X(attention)                                                                                   \
    X(batchnorm)                                                                                   \
    X(conv2d)                                                                                      \
    X(elementwise)                                                                                 \
    X(gates)                                                                                       \
    X(latent_attention)                                                                            \
    X(layernorm)                                                                                   \
    X(layout)                                                                                      \
    X(linear)                                                                                      \
    X(mixture)                                                                                     \
    X(optimizer)                                                                                   \
    X(patches)                                                                                     \
    X(pool)                                                                                        \
    X(rmsnorm)                                                                                     \
    X(tokens)                                                                                      \
    X(vocabulary)

#define DECLARE(family)                                                                            \
    void sbp_cuda_fill_##family(struct sbp_cuda_kernels *kernels);                                 \
    int sbp_cuda_load_##family(void);
extern "C" {
FAMILIES(DECLARE)
}

int sbp_cuda_kernels_load(void)
{
    int error = 0;
#define LOAD(family)                                                                               \
    if (error == 0)                                                                                \
        error = sbp_cuda_load_##family();
    FAMILIES(LOAD)
#undef LOAD
    return error;
}

void sbp_cuda_kernels_make(struct sbp_cuda_kernels *kernels, enum sbp_real real)
{
    memset(kernels, 0, sizeof *kernels);
    kernels->real = real;
#define FILL(family) sbp_cuda_fill_##family(kernels);
    FAMILIES(FILL)
#undef FILL
}
