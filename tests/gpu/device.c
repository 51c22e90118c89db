#include "tests/gpu/device.h"

#include <inttypes.h>
#include <math.h>

#include "base/math/half.h"

bool device_begin(struct device *device, struct check *check)
{
    if (check->kernels->real == SBP_F64)
        return false;
    *device = (struct device){.check = check, .twin = sbp_kernels_cpu(SBP_F64)};
    sbp_cuda_kernels_make(&device->kernels, check->kernels->real);
    /* Often one, on which loops have several turns. */
    device->cuda.multiprocessors = (int)check_integer(check, 0, 3);
    device->cuda.multiprocessors += device->cuda.multiprocessors == 0;
    device->cuda.shared_bytes = device_shared_bytes();
    device->cuda.scratch = check_bytes(check, SBP_CUDA_SCRATCH_BYTES);
    device->cuda.scratch_bytes = SBP_CUDA_SCRATCH_BYTES;
    device_order(check->seed);
    return true;
}

static void *place(struct device *device, enum sbp_real real, const double *values, int64_t n)
{
    struct check *check = device->check;
    const int64_t bytes = sbp_real_bytes(real);
    const int64_t skipped = check_integer(check, 0, 3) > 0 ? 0 : check_integer(check, 1, 7);
    void *reals = check_bytes(check, (n + skipped) * bytes);
    char *first = (char *)reals + skipped * bytes;
    for (int64_t i = 0; i < n; i++)
        sbp_half_put(real, first, i, values == NULL ? (double)NAN : values[i]);
    return first;
}

void *device_reals(struct device *device, const double *values, int64_t n)
{
    return place(device, device->check->kernels->real, values, n);
}

void *device_wide(struct device *device, const double *values, int64_t n)
{
    return place(device, SBP_F32, values, n);
}

void device_same(const struct device *device, const char *what, const void *got, const void *want,
                 int64_t bytes)
{
    const unsigned char *one = got, *other = want;
    if (check_memory.wait != NULL)
        check_memory.wait();
    for (int64_t i = 0; i < bytes; i++)
        if (one[i] != other[i])
            fail_msg("%s: byte %" PRId64 " of %" PRId64 " differs (SBP_TEST_SEED=%" PRIu64 ")",
                     what, i, bytes, device->check->seed);
}

int64_t device_columns(struct check *check, int64_t most)
{
    const int64_t wide = check_integer(check, 1, most / 8) * 8;
    switch (check_integer(check, 0, 3)) {
    case 0:
        return check_size(check, 20);
    case 1:
        return check_size(check, most);
    default:
        return wide;
    }
}
