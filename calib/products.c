#include "calib/products.h"

/* First what every run times, whatever its budget; then a grid, and what layers of hidden size 768
 * and 1024 look like whole, split by column, split by row and with few tokens. */
static const struct sbp_gemm_point shapes[] = {
    {SBP_FP32, 256, 256, 256},    {SBP_FP64, 256, 256, 256},  {SBP_FP32, 64, 64, 64},
    {SBP_FP32, 64, 64, 256},      {SBP_FP32, 64, 64, 1024},   {SBP_FP32, 64, 256, 64},
    {SBP_FP32, 64, 256, 256},     {SBP_FP32, 64, 256, 1024},  {SBP_FP32, 64, 1024, 64},
    {SBP_FP32, 64, 1024, 256},    {SBP_FP32, 64, 1024, 1024}, {SBP_FP32, 256, 64, 64},
    {SBP_FP32, 256, 64, 256},     {SBP_FP32, 256, 64, 1024},  {SBP_FP32, 256, 256, 64},
    {SBP_FP32, 256, 256, 1024},   {SBP_FP32, 256, 1024, 64},  {SBP_FP32, 256, 1024, 256},
    {SBP_FP32, 256, 1024, 1024},  {SBP_FP32, 1024, 64, 64},   {SBP_FP32, 1024, 64, 256},
    {SBP_FP32, 1024, 64, 1024},   {SBP_FP32, 1024, 256, 64},  {SBP_FP32, 1024, 256, 256},
    {SBP_FP32, 1024, 256, 1024},  {SBP_FP32, 1024, 1024, 64}, {SBP_FP32, 1024, 1024, 256},
    {SBP_FP32, 1024, 1024, 1024}, {SBP_FP32, 32, 32, 32},     {SBP_FP32, 128, 128, 128},
    {SBP_FP32, 512, 512, 512},    {SBP_FP32, 16, 1024, 1024}, {SBP_FP32, 1024, 16, 1024},
    {SBP_FP32, 1024, 1024, 16},   {SBP_FP32, 256, 768, 192},  {SBP_FP32, 64, 768, 768},
    {SBP_FP32, 256, 576, 768},    {SBP_FP32, 64, 3072, 768},  {SBP_FP32, 64, 768, 3072},
    {SBP_FP64, 512, 512, 512},    {SBP_FP32, 256, 768, 768},  {SBP_FP32, 256, 2304, 768},
    {SBP_FP32, 256, 3072, 768},   {SBP_FP32, 256, 768, 3072}, {SBP_FP32, 768, 3072, 256},
    {SBP_FP64, 256, 3072, 768},   {SBP_FP32, 128, 8192, 768},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
_Static_assert((int)SHAPES <= SBP_MAX_EFFICIENCIES, "shapes fit the tables");

const struct sbp_gemm_point *sbp_gemm_shapes(int *count)
{
    *count = SHAPES;
    return shapes;
}
