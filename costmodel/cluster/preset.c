#include "costmodel/cluster/preset.h"

#include <stddef.h>

#define GIB INT64_C(1073741824)
#define GB  INT64_C(1000000000)

static const struct sbp_preset presets[] = {
    {
        .name = "p100",
        .title = "NVIDIA P100 16 GB, PCIe",
        .memory_bytes = 16 * GIB,
        .flops = {[SBP_FP32] = 9.3e12, [SBP_FP64] = 4.7e12, [SBP_FP16] = 1.87e13},
        .memory_bytes_per_s = 7.32e11,
        .host_link_bytes_per_s = 1.6e10,
        .link_bytes_per_s = 1.6e10,
        .source = "data sheet of the NVIDIA Tesla P100 (PCIe)",
        .link = "PCIe 3.0 x16",
    },
    {
        .name = "v100-16g",
        .title = "NVIDIA V100 16 GB, SXM2",
        .memory_bytes = 16 * GIB,
        .flops = {[SBP_FP32] = 1.57e13, [SBP_FP64] = 7.8e12, [SBP_FP16] = 1.25e14},
        .memory_bytes_per_s = 9e11,
        .host_link_bytes_per_s = 1.6e10,
        .link_bytes_per_s = 1.5e11,
        .source = "data sheet of the NVIDIA V100 (SXM2); fp16 of the tensor cores",
        .link = "NVLink 2.0, six links of 25 GB/s a direction",
    },
    {
        .name = "v100-32g",
        .title = "NVIDIA V100 32 GB, SXM2",
        .memory_bytes = 32 * GIB,
        .flops = {[SBP_FP32] = 1.57e13, [SBP_FP64] = 7.8e12, [SBP_FP16] = 1.25e14},
        .memory_bytes_per_s = 9e11,
        .host_link_bytes_per_s = 1.6e10,
        .link_bytes_per_s = 1.5e11,
        .source = "data sheet of the NVIDIA V100 (SXM2); fp16 of the tensor cores",
        .link = "NVLink 2.0, six links of 25 GB/s a direction",
    },
    {
        .name = "a100-40g",
        .title = "NVIDIA A100 40 GB, SXM4",
        .memory_bytes = 40 * GIB,
        .flops =
            {[SBP_FP32] = 1.95e13, [SBP_FP64] = 9.7e12, [SBP_BF16] = 3.12e14, [SBP_FP16] = 3.12e14},
        .memory_bytes_per_s = 1.555e12,
        .host_link_bytes_per_s = 3.2e10,
        .link_bytes_per_s = 3e11,
        .source = "data sheet of the NVIDIA A100 (SXM), without sparsity; fp32 and fp64 without "
                  "tensor cores",
        .link = "NVLink 3.0, 600 GB/s, half of it in each direction",
    },
    {
        .name = "a100-80g",
        .title = "NVIDIA A100 80 GB, SXM4",
        .memory_bytes = 80 * GIB,
        .flops =
            {[SBP_FP32] = 1.95e13, [SBP_FP64] = 9.7e12, [SBP_BF16] = 3.12e14, [SBP_FP16] = 3.12e14},
        .memory_bytes_per_s = 2.039e12,
        .host_link_bytes_per_s = 3.2e10,
        .link_bytes_per_s = 3e11,
        .source = "data sheet of the NVIDIA A100 (SXM), without sparsity; fp32 and fp64 without "
                  "tensor cores",
        .link = "NVLink 3.0, 600 GB/s, half of it in each direction",
    },
    {
        .name = "l40s",
        .title = "NVIDIA L40S 48 GB",
        .memory_bytes = 48 * GIB,
        .flops = {[SBP_FP32] = 9.16e13, [SBP_BF16] = 3.62e14, [SBP_FP16] = 3.62e14},
        .memory_bytes_per_s = 8.64e11,
        .host_link_bytes_per_s = 3.2e10,
        .link_bytes_per_s = 3.2e10,
        .source = "data sheet of the NVIDIA L40S, without sparsity",
        .link = "PCIe 4.0 x16",
    },
    {
        .name = "h100-sxm",
        .title = "NVIDIA H100 80 GB, SXM",
        .memory_bytes = 80 * GIB,
        .flops =
            {[SBP_FP32] = 6.7e13, [SBP_FP64] = 3.4e13, [SBP_BF16] = 9.89e14, [SBP_FP16] = 9.89e14},
        .memory_bytes_per_s = 3.35e12,
        .host_link_bytes_per_s = 6.4e10,
        .link_bytes_per_s = 4.5e11,
        .source = "data sheet of the NVIDIA H100 (SXM), without sparsity; fp32 and fp64 without "
                  "tensor cores",
        .link = "NVLink 4.0, 900 GB/s, half of it in each direction",
    },
    {
        .name = "h200-sxm",
        .title = "NVIDIA H200 141 GB, SXM",
        .memory_bytes = 141 * GB,
        .flops =
            {[SBP_FP32] = 6.7e13, [SBP_FP64] = 3.4e13, [SBP_BF16] = 9.89e14, [SBP_FP16] = 9.89e14},
        .memory_bytes_per_s = 4.8e12,
        .host_link_bytes_per_s = 6.4e10,
        .link_bytes_per_s = 4.5e11,
        .source = "data sheet of the NVIDIA H200 (SXM), without sparsity; fp32 and fp64 without "
                  "tensor cores",
        .link = "NVLink 4.0, 900 GB/s, half of it in each direction",
    },
    {
        .name = "gh200",
        .title = "NVIDIA GH200, 96 GB HBM3",
        .memory_bytes = 96 * GB,
        .flops =
            {[SBP_FP32] = 6.7e13, [SBP_FP64] = 3.4e13, [SBP_BF16] = 9.9e14, [SBP_FP16] = 9.9e14},
        .memory_bytes_per_s = 4e12,
        .host_link_bytes_per_s = 4.5e11,
        .link_bytes_per_s = 4.5e11,
        .source = "data sheet of the NVIDIA GH200, without sparsity; fp32 and fp64 without tensor "
                  "cores; host link: NVLink-C2C, 900 GB/s both ways",
        .link = "NVLink 4.0, 900 GB/s, half of it in each direction",
    },
    {
        .name = "b200",
        .title = "NVIDIA B200, one of eight of an HGX B200",
        .memory_bytes = 180 * GB,
        .flops =
            {[SBP_FP32] = 7.5e13, [SBP_FP64] = 3.7e13, [SBP_BF16] = 2.25e15, [SBP_FP16] = 2.25e15},
        .memory_bytes_per_s = 8e12,
        .host_link_bytes_per_s = 6.4e10,
        .link_bytes_per_s = 9e11,
        .source = "an eighth of the data sheet of the NVIDIA HGX B200, without sparsity; fp32 and "
                  "fp64 without tensor cores; host link: PCIe 5.0 x16",
        .link = "NVLink 5.0, 1.8 TB/s, half of it in each direction",
    },
    {
        .name = "gb200",
        .title = "NVIDIA GB200, one of the two GPUs",
        .memory_bytes = 186 * GB,
        .flops = {[SBP_FP32] = 8e13, [SBP_FP64] = 4e13, [SBP_BF16] = 2.5e15, [SBP_FP16] = 2.5e15},
        .memory_bytes_per_s = 8e12,
        .host_link_bytes_per_s = 2.25e11,
        .link_bytes_per_s = 9e11,
        .source = "half of the data sheet of the NVIDIA GB200, without sparsity; fp32 and fp64 "
                  "without tensor cores; host link: half of NVLink-C2C's 450 GB/s a direction",
        .link = "NVLink 5.0, 1.8 TB/s, half of it in each direction",
    },
    {
        .name = "mi300x",
        .title = "AMD MI300X 192 GB",
        .memory_bytes = 192 * GB,
        .flops = {[SBP_FP32] = 1.634e14,
                  [SBP_FP64] = 8.17e13,
                  [SBP_BF16] = 1.3074e15,
                  [SBP_FP16] = 1.3074e15},
        .memory_bytes_per_s = 5.3e12,
        .host_link_bytes_per_s = 6.4e10,
        .link_bytes_per_s = 4.48e11,
        .source = "data sheet of the AMD Instinct MI300X, without sparsity, fp32 and fp64 of "
                  "vectors; host link: PCIe 5.0 x16",
        .link = "Infinity Fabric, seven links of 64 GB/s a direction",
    },
    {
        .name = "mi355x",
        .title = "AMD MI355X 288 GB",
        .memory_bytes = 288 * GB,
        .flops =
            {[SBP_FP32] = 1.573e14, [SBP_FP64] = 7.86e13, [SBP_BF16] = 2.5e15, [SBP_FP16] = 2.5e15},
        .memory_bytes_per_s = 8e12,
        .host_link_bytes_per_s = 6.4e10,
        .link_bytes_per_s = 5.376e11,
        .source = "data sheet of the AMD Instinct MI355X, without sparsity, fp32 and fp64 of "
                  "vectors; host link: PCIe 5.0 x16",
        .link = "Infinity Fabric, seven links of 76.8 GB/s a direction",
    },
};

const struct sbp_preset *sbp_preset_at(int place)
{
    const int count = (int)(sizeof presets / sizeof *presets);
    return place >= 0 && place < count ? &presets[place] : NULL;
}

const char *sbp_preset_name(int place)
{
    const struct sbp_preset *preset = sbp_preset_at(place);
    return preset == NULL ? NULL : preset->name;
}
