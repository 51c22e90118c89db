#include "calib/samples/products.h"

/* First what every run times, whatever its budget; then a grid, and what layers of hidden size 768
 * and 1024 look like whole, split by column, split by row and with few tokens. */
static const struct sbp_gemm_point cpu_shapes[] = {
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

/* The same for a GPU. Most in bf16, whose shares of the peak are those of training: a grid, what
 * layers of hidden size 1024 and 4096 look like whole and split 8 ways, and a vocabulary's. */
static const struct sbp_gemm_point gpu_shapes[] = {
    {SBP_BF16, 8192, 8192, 8192},  {SBP_FP16, 8192, 8192, 8192}, {SBP_FP32, 4096, 4096, 4096},
    {SBP_FP64, 4096, 4096, 4096},  {SBP_BF16, 512, 512, 512},    {SBP_BF16, 512, 512, 2048},
    {SBP_BF16, 512, 512, 8192},    {SBP_BF16, 512, 2048, 512},   {SBP_BF16, 512, 2048, 2048},
    {SBP_BF16, 512, 2048, 8192},   {SBP_BF16, 512, 8192, 512},   {SBP_BF16, 512, 8192, 2048},
    {SBP_BF16, 512, 8192, 8192},   {SBP_BF16, 2048, 512, 512},   {SBP_BF16, 2048, 512, 2048},
    {SBP_BF16, 2048, 512, 8192},   {SBP_BF16, 2048, 2048, 512},  {SBP_BF16, 2048, 2048, 2048},
    {SBP_BF16, 2048, 2048, 8192},  {SBP_BF16, 2048, 8192, 512},  {SBP_BF16, 2048, 8192, 2048},
    {SBP_BF16, 2048, 8192, 8192},  {SBP_BF16, 8192, 512, 512},   {SBP_BF16, 8192, 512, 2048},
    {SBP_BF16, 8192, 512, 8192},   {SBP_BF16, 8192, 2048, 512},  {SBP_BF16, 8192, 2048, 2048},
    {SBP_BF16, 8192, 2048, 8192},  {SBP_BF16, 8192, 8192, 512},  {SBP_BF16, 8192, 8192, 2048},
    {SBP_BF16, 128, 128, 128},     {SBP_BF16, 256, 256, 256},    {SBP_BF16, 1024, 1024, 1024},
    {SBP_BF16, 4096, 4096, 4096},  {SBP_BF16, 16, 4096, 4096},   {SBP_BF16, 64, 4096, 4096},
    {SBP_BF16, 256, 4096, 4096},   {SBP_BF16, 4096, 6144, 4096}, {SBP_BF16, 4096, 14336, 4096},
    {SBP_BF16, 4096, 4096, 14336}, {SBP_BF16, 4096, 768, 4096},  {SBP_BF16, 4096, 1792, 4096},
    {SBP_BF16, 4096, 4096, 1792},  {SBP_BF16, 4096, 512, 4096},  {SBP_BF16, 4096, 4096, 512},
    {SBP_BF16, 2048, 3072, 1024},  {SBP_BF16, 2048, 4096, 1024}, {SBP_BF16, 2048, 1024, 4096},
    {SBP_BF16, 2048, 32768, 1024}, {SBP_FP16, 2048, 2048, 2048}, {SBP_FP32, 1024, 1024, 1024},
    {SBP_FP32, 2048, 2048, 2048},  {SBP_FP64, 2048, 2048, 2048},
};

enum {
    CPU_SHAPES = sizeof cpu_shapes / sizeof *cpu_shapes,
    GPU_SHAPES = sizeof gpu_shapes / sizeof *gpu_shapes,
};
_Static_assert((int)CPU_SHAPES <= SBP_MAX_EFFICIENCIES, "shapes fit the tables");
_Static_assert((int)GPU_SHAPES <= SBP_MAX_EFFICIENCIES, "shapes fit the tables");

static const struct sbp_product_list lists[] = {
    [SBP_PRODUCTS_CPU] = {.count = CPU_SHAPES,
                          .required = 2,
                          .shape = cpu_shapes,
                          .small = 256.0 * 256 * 256,
                          .copy_bytes = (int64_t)64 << 20,
                          .flops = 1e10,
                          .copy_bytes_per_s = 1e10},
    [SBP_PRODUCTS_GPU] = {.count = GPU_SHAPES,
                          .required = 4,
                          .shape = gpu_shapes,
                          .small = 1024.0 * 1024 * 1024,
                          .copy_bytes = (int64_t)512 << 20,
                          .flops = 1e14,
                          .copy_bytes_per_s = 1e12},
};

const struct sbp_product_list *sbp_sweep_products(enum sbp_products products)
{
    return &lists[products];
}
