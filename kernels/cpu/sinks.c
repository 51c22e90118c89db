#include "kernels/cpu/sinks_priv.h"

#include <assert.h>

#include "kernels/cpu/rows_priv.h"

real CPU(sink_of)(const struct cpu_attention *attention, int64_t index)
{
    if (attention->groups == NULL || attention->groups->sinks == NULL)
        return -(real)INFINITY;
    assert(attention->shape->kind == SBP_ATTENTION_FLASH); /* kernels.h: no other has sinks */
    return load(((const stored *)attention->groups->sinks)[index % attention->shape->heads]);
}

/* Over the queries of one sequence. */
static double head_gradient(const struct cpu_attention *attention, int64_t index, const stored *dy,
                            const stored *y, const real *log_sums)
{
    const struct cpu_head_at at = cpu_head_at(attention, index);
    const real sink = CPU(sink_of)(attention, index);
    double sum = 0;
    for (int64_t row = 0; row < attention->queries.rows; row++) {
        const int64_t from = at.y + row * attention->y_stride;
        const double share = (double)real_exp(sink - log_sums[at.saved + row]);
        sum -= share * CPU(row_dot)(dy + from, y + from, attention->shape->head_size);
    }
    return sum;
}

void CPU(sink_gradients)(const struct cpu_attention *attention, const void *dy, const void *y,
                         const void *log_sums)
{
    const struct sbp_attention_groups *groups = attention->groups;
    const int64_t heads = attention->shape->heads;
    if (groups->sinks == NULL || groups->sink_gradients == NULL ||
        cpu_has_begun(&attention->queries))
        return;
    for (int64_t head = 0; head < heads; head++) {
        stored *const to = (stored *)groups->sink_gradients + head;
        double sum = groups->adds ? (double)load(*to) : 0;
        for (int64_t b = 0; b < attention->shape->batch; b++)
            sum += head_gradient(attention, b * heads + head, dy, y, log_sums);
        *to = store((real)sum);
    }
}
