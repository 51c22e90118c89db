/* The project's own kernels (kernels/cuda) as a calibration times them on a GPU: causal flash
 * attention in bf16, and rows copied into the order of their experts. Work lies in a stream when
 * these functions return.
 */
#ifndef SBP_CALIB_MEASURE_KERNELS_CUDA_H
#define SBP_CALIB_MEASURE_KERNELS_CUDA_H

#include "calib/samples/cell.h"

struct sbp_kernels_gpu; /* kernels and matrices of one device and stream */

/* Whether this build has the kernels. */
bool sbp_kernels_gpu_is_built(void);

/* copy_bytes: of the rows of any cell. stream: cudaStream_t. E_MEMORY, E_BACKEND, E_UNSUPPORTED:
 * not in this build; *work is NULL then. */
enum sbp_status sbp_kernels_gpu_open(struct sbp_kernels_gpu **work, int64_t copy_bytes,
                                     void *stream, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_kernels_gpu_close(struct sbp_kernels_gpu *work); /* NULL is legal */

/* The caller fills the queries, keys, values and output gradients on the device, so many bytes
 * each, with numbers of bf16. */
struct sbp_gpu_operands {
    unsigned char *qkv, *dy;
    int64_t qkv_bytes, dy_bytes;
};
struct sbp_gpu_operands sbp_kernels_gpu_operands(const struct sbp_kernels_gpu *work);

/* Makes ready what a cell reads and does not time: the saved statistics of a forward pass, the
 * order of rows. E_MEMORY, E_BACKEND. */
enum sbp_status sbp_kernels_gpu_prepare(struct sbp_kernels_gpu *work, const struct sbp_cell *cell,
                                        struct sbp_diag *diag) SBP_MUST_USE;
/* Does an attention cell's pass, or copies its rows to `to` from `from`. E_BACKEND. */
enum sbp_status sbp_kernels_gpu_launch(struct sbp_kernels_gpu *work, const struct sbp_cell *cell,
                                       void *to, const void *from,
                                       struct sbp_diag *diag) SBP_MUST_USE;

#endif
