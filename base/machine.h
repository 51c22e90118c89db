/* The share of this machine that a program may use: the online processors and the built-in memory,
 * less the limits of a container.
 */
#ifndef SBP_BASE_MACHINE_H
#define SBP_BASE_MACHINE_H

#include <stdint.h>

/* Where a container sees its own control group (version 2); without one nothing is limited. */
#define SBP_CONTROL_GROUP "/sys/fs/cgroup"

struct sbp_machine {
    int cores;            /* >= 1; a quota of processor time is rounded up */
    int64_t memory_bytes; /* 0: unknown */
};

/* `control_group` is a folder with cpu.max and memory.max; they may be missing. */
void sbp_machine_find(const char *control_group, struct sbp_machine *machine);

#endif
