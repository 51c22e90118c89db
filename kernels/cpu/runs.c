#include "kernels/cpu/runs_priv.h"

int64_t sbp_cpu_digits_run(const struct sbp_digits *digits)
{
    int64_t run = digits->rest;
    for (int i = digits->count - 1; i >= 0; i--) {
        if (digits->size[i] == 1)
            continue;
        if (digits->fixed[i] >= 0)
            break;
        run *= digits->size[i];
    }
    return run;
}

int64_t sbp_cpu_region_run(const struct sbp_region *region)
{
    int64_t run = 1;
    for (int i = SBP_MAX_DIMS - 1; i >= 0; i--) {
        const int64_t dim_run = sbp_cpu_digits_run(&region->dim[i]);
        run *= dim_run;
        if (dim_run != sbp_digits_global_size(&region->dim[i]))
            break;
    }
    return run;
}
