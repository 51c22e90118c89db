#include "calib/measure/row_order.h"

#include "base/math/random.h"

static int expert_of(struct sbp_random *random)
{
    return (int)sbp_random_below(random, SBP_ROW_EXPERTS);
}

/* Draws every row's expert twice, to count them and to place them, so that none is kept. */
void sbp_row_order(int32_t *row, int32_t rows, uint64_t seed)
{
    int32_t next[SBP_ROW_EXPERTS + 1] = {0};
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    for (int32_t i = 0; i < rows; i++)
        next[expert_of(&random) + 1]++;
    for (int expert = 1; expert < SBP_ROW_EXPERTS; expert++)
        next[expert] += next[expert - 1];
    sbp_random_seed(&random, seed);
    for (int32_t i = 0; i < rows; i++)
        row[next[expert_of(&random)]++] = i;
}
