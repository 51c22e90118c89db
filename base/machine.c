#include "base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"

/* The numbers that a control file begins with; "max" is none. */
static int read_numbers(const char *folder, const char *name, long long *first, long long *second)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return 0;
    const int count = fscanf(in, "%lld %lld", first, second);
    (void)fclose(in); /* nothing was written */
    return count;
}

static int64_t least(int64_t limit, int64_t there)
{
    return limit > 0 && limit < there ? limit : there;
}

void sbp_machine_find(const char *control_group, struct sbp_machine *machine)
{
    long long quota = 0, period = 0, bytes = 0, none;
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (read_numbers(control_group, "cpu.max", &quota, &period) == 2 && quota > 0 && period > 0)
        cores = least((quota - 1) / period + 1, cores);
    machine->cores = cores > 0 && cores < 1 << 20 ? (int)cores : 1;

    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    machine->memory_bytes = pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
    if (read_numbers(control_group, "memory.max", &bytes, &none) == 1)
        machine->memory_bytes = least(bytes, machine->memory_bytes);
}

int64_t sbp_machine_space_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX)
        return INT64_MAX; /* RLIM_INFINITY is above */
    return (int64_t)limit.rlim_cur;
}

static enum sbp_status refuse_space(int64_t bytes, const char *what, struct sbp_diag *diag)
{
    char needs[32], limit[32];
    const int64_t most = sbp_machine_space_limit();
    if (most == INT64_MAX)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: need %s of address space: %s", what,
                        sbp_format_bytes((double)bytes, needs), strerror(errno));
    return sbp_fail(diag, SBP_E_MEMORY,
                    "%s: need %s of address space on top of the program's own, the limit is %s "
                    "for all (ulimit -v)",
                    what, sbp_format_bytes((double)bytes, needs),
                    sbp_format_bytes((double)most, limit));
}

enum sbp_status sbp_machine_reserve(int64_t bytes, const char *what, void **space,
                                    struct sbp_diag *diag)
{
    *space = NULL;
    if (bytes <= 0)
        return SBP_OK;
    void *reserved =
        mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return refuse_space(bytes, what, diag);
    *space = reserved;
    return SBP_OK;
}

void sbp_machine_release(void *space, int64_t bytes)
{
    if (space != NULL)
        (void)munmap(space, (size_t)bytes); /* fails on what was not reserved alone */
}
