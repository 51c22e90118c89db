/* The share of this machine that a program may use: the online processors, the built-in memory and
 * what of it is free, less the limits of a container; and the address space of this process.
 */
#ifndef SBP_BASE_MACHINE_H
#define SBP_BASE_MACHINE_H

#include <stdint.h>

#include "base/status.h"

/* Where a container sees its own control group (version 2); without one nothing is limited. */
#define SBP_CONTROL_GROUP "/sys/fs/cgroup"
#define SBP_PROCESSES     "/proc"

struct sbp_machine {
    int cores;            /* >= 1; a quota of processor time is rounded up */
    int64_t memory_bytes; /* 0: unknown */
};

/* `control_group` is a folder with cpu.max and memory.max; they may be missing. */
void sbp_machine_find(const char *control_group, struct sbp_machine *machine);

/* Bytes that processes may take before the system has none left: what it has available, or what a
 * limit of this process's control groups leaves, their parents' included, whichever is least. Files
 * that the system can drop count as free. `processes` has meminfo and self/cgroup; `control_group`
 * has the groups of version 2, and those of version 1 in its folder memory. -1: unknown. */
int64_t sbp_machine_free_bytes(const char *processes, const char *control_group);

/* Bytes of address space that a process may have (ulimit -v); INT64_MAX without a limit. */
int64_t sbp_machine_space_limit(void);
/* Reserves address space, without memory behind it, to be released before its users want it; 0
 * bytes are none. E_MEMORY says that `what` needs so much, and the limit. */
enum sbp_status sbp_machine_reserve(int64_t bytes, const char *what, void **space,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_machine_release(void *space, int64_t bytes); /* nothing for NULL */

#endif
