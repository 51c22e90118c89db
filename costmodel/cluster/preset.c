#include "costmodel/cluster/preset.h"

#include <stddef.h>

#define GIB INT64_C(1073741824)
#define GB  INT64_C(1000000000)

/* FLOP/s by type; 0: the device has none. */
#define RATES(fp32, fp64, bf16, fp16)                                                              \
    {                                                                                              \
        [SBP_FP32] = (fp32), [SBP_FP64] = (fp64), [SBP_BF16] = (bf16), [SBP_FP16] = (fp16)         \
    }

/* In each row: name, title, memory, FLOP/s, then bytes/s of memory, host link and links within a
 * node, then the source and the kind of the links. */
static const struct sbp_preset presets[] = {
    {"p100", "NVIDIA P100 16 GB, PCIe", 16 * GIB, RATES(9.3e12, 4.7e12, 0, 1.87e13), 7.32e11,
     1.6e10, 1.6e10, "data sheet of the NVIDIA Tesla P100 (PCIe)", "PCIe 3.0 x16"},
    {"v100-16g", "NVIDIA V100 16 GB, SXM2", 16 * GIB, RATES(1.57e13, 7.8e12, 0, 1.25e14), 9e11,
     1.6e10, 1.5e11, "data sheet of the NVIDIA V100 (SXM2); fp16 of the tensor cores",
     "NVLink 2.0, six links of 25 GB/s a direction"},
    {"v100-32g", "NVIDIA V100 32 GB, SXM2", 32 * GIB, RATES(1.57e13, 7.8e12, 0, 1.25e14), 9e11,
     1.6e10, 1.5e11, "data sheet of the NVIDIA V100 (SXM2); fp16 of the tensor cores",
     "NVLink 2.0, six links of 25 GB/s a direction"},
    {"a100-40g", "NVIDIA A100 40 GB, SXM4", 40 * GIB, RATES(1.95e13, 9.7e12, 3.12e14, 3.12e14),
     1.555e12, 3.2e10, 3e11,
     "data sheet of the NVIDIA A100 (SXM), without sparsity; fp32 and fp64 without tensor cores",
     "NVLink 3.0, 600 GB/s, half of it in each direction"},
    {"a100-80g", "NVIDIA A100 80 GB, SXM4", 80 * GIB, RATES(1.95e13, 9.7e12, 3.12e14, 3.12e14),
     2.039e12, 3.2e10, 3e11,
     "data sheet of the NVIDIA A100 (SXM), without sparsity; fp32 and fp64 without tensor cores",
     "NVLink 3.0, 600 GB/s, half of it in each direction"},
    {"l40s", "NVIDIA L40S 48 GB", 48 * GIB, RATES(9.16e13, 0, 3.62e14, 3.62e14), 8.64e11, 3.2e10,
     3.2e10, "data sheet of the NVIDIA L40S, without sparsity", "PCIe 4.0 x16"},
    {"h100-sxm", "NVIDIA H100 80 GB, SXM", 80 * GIB, RATES(6.7e13, 3.4e13, 9.89e14, 9.89e14),
     3.35e12, 6.4e10, 4.5e11,
     "data sheet of the NVIDIA H100 (SXM), without sparsity; fp32 and fp64 without tensor cores",
     "NVLink 4.0, 900 GB/s, half of it in each direction"},
    {"h200-sxm", "NVIDIA H200 141 GB, SXM", 141 * GB, RATES(6.7e13, 3.4e13, 9.89e14, 9.89e14),
     4.8e12, 6.4e10, 4.5e11,
     "data sheet of the NVIDIA H200 (SXM), without sparsity; fp32 and fp64 without tensor cores",
     "NVLink 4.0, 900 GB/s, half of it in each direction"},
    {"gh200", "NVIDIA GH200, 96 GB HBM3", 96 * GB, RATES(6.7e13, 3.4e13, 9.9e14, 9.9e14), 4e12,
     4.5e11, 4.5e11,
     "data sheet of the NVIDIA GH200, without sparsity; fp32 and fp64 without tensor cores; host "
     "link: NVLink-C2C, 900 GB/s both ways",
     "NVLink 4.0, 900 GB/s, half of it in each direction"},
    {"b200", "NVIDIA B200, one of eight of an HGX B200", 180 * GB,
     RATES(7.5e13, 3.7e13, 2.25e15, 2.25e15), 8e12, 6.4e10, 9e11,
     "an eighth of the data sheet of the NVIDIA HGX B200, without sparsity; fp32 and fp64 without "
     "tensor cores; host link: PCIe 5.0 x16",
     "NVLink 5.0, 1.8 TB/s, half of it in each direction"},
    {"gb200", "NVIDIA GB200, one of the two GPUs", 186 * GB, RATES(8e13, 4e13, 2.5e15, 2.5e15),
     8e12, 2.25e11, 9e11,
     "half of the data sheet of the NVIDIA GB200, without sparsity; fp32 and fp64 without tensor "
     "cores; host link: half of NVLink-C2C's 450 GB/s a direction",
     "NVLink 5.0, 1.8 TB/s, half of it in each direction"},
    {"mi300x", "AMD MI300X 192 GB", 192 * GB, RATES(1.634e14, 8.17e13, 1.3074e15, 1.3074e15),
     5.3e12, 6.4e10, 4.48e11,
     "data sheet of the AMD Instinct MI300X, without sparsity, fp32 and fp64 of vectors; host "
     "link: PCIe 5.0 x16",
     "Infinity Fabric, seven links of 64 GB/s a direction"},
    {"mi355x", "AMD MI355X 288 GB", 288 * GB, RATES(1.573e14, 7.86e13, 2.5e15, 2.5e15), 8e12,
     6.4e10, 5.376e11,
     "data sheet of the AMD Instinct MI355X, without sparsity, fp32 and fp64 of vectors; host "
     "link: PCIe 5.0 x16",
     "Infinity Fabric, seven links of 76.8 GB/s a direction"},
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
