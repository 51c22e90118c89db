/* Which groups of ranks are made at the same time: ncclCommSplit is called by all ranks, and each
 * of them comes to one new communicator by a call, so that a call makes groups that share no rank.
 */
#ifndef SBP_EXECUTOR_GPU_WAVES_H
#define SBP_EXECUTOR_GPU_WAVES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A group: its ranks in order; the same ranks in another order are another group. */
struct sbp_wave_group {
    const int *ranks; /* (count), borrowed */
    int count;
};

bool sbp_wave_group_equal(const struct sbp_wave_group *a, const struct sbp_wave_group *b);

/* A rank's place in a group; -1: none. */
int sbp_wave_group_place(const struct sbp_wave_group *group, int rank);

/* wave: (count) becomes the wave of each group, which goes into the first one that has none of its
 * ranks yet; *waves: how many there are. Ranks that list the groups of a mesh axis by axis get a
 * wave an axis. Ranks of groups are under `ranks`. E_MEMORY. */
enum sbp_status sbp_waves_make(const struct sbp_wave_group *groups, int count, int ranks, int *wave,
                               int *waves) SBP_MUST_USE;

#endif
