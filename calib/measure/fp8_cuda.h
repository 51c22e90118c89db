/* Products in fp8 on a GPU, by cuBLASLt: E4M3 factors, of gradients E5M2 (Micikevicius et al.,
 * 2022, section 3), one scale a factor, sums in fp32, results in bf16.
 *
 * Tensor cores of Hopper take fp8 factors only where the summed dimension is contiguous in both, so
 * these lie so in every pass: a (m,k) and b (n,k), row-major, as trainers write them beside their
 * casts. Casts and transposed copies are no part of a product. Forward products sum fast, those of
 * gradients exactly, as trainers choose.
 */
#ifndef SBP_CALIB_MEASURE_FP8_CUDA_H
#define SBP_CALIB_MEASURE_FP8_CUDA_H

#include "calib/samples/cell.h"

struct sbp_fp8; /* of one device and thread */

/* Whether the library has a way to multiply in fp8 on the current device. Where anything fails, it
 * has none. */
bool sbp_fp8_is_offered(void);

/* E_MEMORY, E_BACKEND; *fp8 is NULL then. */
enum sbp_status sbp_fp8_open(struct sbp_fp8 **fp8, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_fp8_close(struct sbp_fp8 *fp8); /* NULL is legal */

/* Asks the library for its way to multiply matrices of the product's sizes and pass, which the next
 * multiplications take. E_BACKEND: there is none, or it fails. */
enum sbp_status sbp_fp8_plan(struct sbp_fp8 *fp8, const struct sbp_gemm_point *product,
                             struct sbp_diag *diag) SBP_MUST_USE;
/* y (m,n) row-major in bf16 = a b', by the last plan, in the stream (cudaStream_t). Pointers into
 * the device's memory, at multiples of 16 bytes. E_BACKEND. */
enum sbp_status sbp_fp8_multiply(struct sbp_fp8 *fp8, void *y, const void *a, const void *b,
                                 void *stream, struct sbp_diag *diag) SBP_MUST_USE;

#endif
