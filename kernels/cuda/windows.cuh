/* Windows that slide over images, as a launch carries them (struct sbp_windows). */
#ifndef SBP_KERNELS_CUDA_WINDOWS_CUH
#define SBP_KERNELS_CUDA_WINDOWS_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_windows {
    int channels, height, width, out_height, out_width;
    int kernel[2], stride[2], padding[2];
    int batch, above, below;
    const void *around;
};

static inline gpu_windows gpu_windows_of(const struct sbp_windows *of)
{
    gpu_windows w = {(int)of->channels,
                     (int)of->height,
                     (int)of->width,
                     (int)of->out_height,
                     (int)of->out_width,
                     {},
                     {},
                     {},
                     (int)of->batch,
                     (int)of->above,
                     (int)of->below,
                     of->around};
    for (int side = 0; side < 2; side++) {
        w.kernel[side] = (int)of->kernel[side];
        w.stride[side] = (int)of->stride[side];
        w.padding[side] = (int)of->padding[side];
    }
    return w;
}

#endif
