#include "base/machine.h"

#include <stdio.h>
#include <unistd.h>

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
