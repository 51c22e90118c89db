#include "executor/gpu/waves.h"

#include <stdlib.h>
#include <string.h>

bool sbp_wave_group_equal(const struct sbp_wave_group *a, const struct sbp_wave_group *b)
{
    return a->count == b->count &&
           memcmp(a->ranks, b->ranks, (size_t)a->count * sizeof *a->ranks) == 0;
}

int sbp_wave_group_place(const struct sbp_wave_group *group, int rank)
{
    for (int i = 0; i < group->count; i++)
        if (group->ranks[i] == rank)
            return i;
    return -1;
}

/* Whether none of the group's ranks is taken. taken: (ranks). */
static bool is_free(const struct sbp_wave_group *group, const bool *taken)
{
    for (int i = 0; i < group->count; i++)
        if (taken[group->ranks[i]])
            return false;
    return true;
}

enum sbp_status sbp_waves_make(const struct sbp_wave_group *groups, int count, int ranks, int *wave,
                               int *waves)
{
    bool *const taken = count > 0 ? calloc((size_t)count * (size_t)ranks, sizeof *taken) : NULL;
    *waves = 0;
    if (count > 0 && taken == NULL)
        return SBP_E_MEMORY;
    for (int g = 0; g < count; g++) {
        int at = 0;
        while (!is_free(&groups[g], &taken[(size_t)at * (size_t)ranks]))
            at++;
        for (int i = 0; i < groups[g].count; i++)
            taken[(size_t)at * (size_t)ranks + (size_t)groups[g].ranks[i]] = true;
        wave[g] = at;
        *waves = at + 1 > *waves ? at + 1 : *waves;
    }
    free(taken);
    return SBP_OK;
}
