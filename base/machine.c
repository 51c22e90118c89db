#include "base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"

enum { PATH_BYTES = 4096 };

/* The numbers that a control file begins with; "max" is none. */
static int read_numbers(const char *folder, const char *name, long long *first, long long *second)
{
    char path[PATH_BYTES + 64];
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

/* ---- free memory ---------------------------------------------------------------------------- */

/* The number behind a word that begins a line: "MemAvailable:", "inactive_file"; -1: none. */
static int64_t find_number(const char *folder, const char *name, const char *word)
{
    char path[PATH_BYTES + 64], line[256];
    long long number = -1;
    const size_t length = strlen(word);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "r");
    while (in != NULL && number < 0 && fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, word, length) == 0 && line[length] == ' ' &&
            sscanf(line + length, "%lld", &number) != 1)
            number = -1;
    if (in != NULL)
        (void)fclose(in); /* nothing was written */
    return number;
}

/* How the two versions call a group's files. */
struct group_files {
    const char *folder; /* below the control groups */
    const char *limit, *usage, *droppable;
};
static const struct group_files versions[] = {
    {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
    {"", "memory.max", "memory.current", "inactive_file"}};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bytes that a group's limit leaves; INT64_MAX without one. */
static int64_t left_in(const char *group, const struct group_files *files)
{
    long long limit = 0, usage = 0, none;
    if (read_numbers(group, files->limit, &limit, &none) != 1 || limit <= 0 ||
        read_numbers(group, files->usage, &usage, &none) != 1)
        return INT64_MAX;
    const int64_t droppable = find_number(group, "memory.stat", files->droppable);
    const int64_t held = usage - (droppable > 0 ? droppable : 0);
    return held < limit ? limit - (held > 0 ? held : 0) : 0;
}

/* The least that a group and its parents leave. Where a container sees its own group as the root,
 * the path leads nowhere, and the root alone says something. */
static int64_t left_up_from(const char *root, const char *path, const struct group_files *files)
{
    char group[PATH_BYTES];
    const int base = snprintf(group, sizeof group, "%s%s", root, files->folder);
    if (base < 0 || base >= PATH_BYTES)
        return INT64_MAX;
    (void)snprintf(group + base, sizeof group - (size_t)base, "%s", path);
    int64_t left = left_in(group, files);
    for (char *end = strrchr(group, '/'); end != NULL && end - group >= base;
         end = strrchr(group, '/')) {
        *end = '\0';
        left = smaller(left_in(group, files), left);
    }
    return left;
}

/* "4:memory:/a/b" of version 1, "0::/a/b" of version 2: the path, or NULL for other lines. */
static const char *path_of(char *line, int version)
{
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL)
        return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    return strcmp(controllers + 1, version == 1 ? "memory" : "") == 0 ? path : NULL;
}

static int64_t left_in_groups(const char *processes, const char *control_group, int version)
{
    const struct group_files *files = &versions[version - 1];
    char name[PATH_BYTES], line[PATH_BYTES];
    int64_t left = left_up_from(control_group, "", files);
    (void)snprintf(name, sizeof name, "%s/self/cgroup", processes);
    FILE *in = fopen(name, "r");
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        const char *path = path_of(line, version);
        if (path != NULL)
            left = smaller(left_up_from(control_group, path, files), left);
    }
    if (in != NULL)
        (void)fclose(in); /* nothing was written */
    return left;
}

int64_t sbp_machine_free_bytes(const char *processes, const char *control_group)
{
    const int64_t kib = find_number(processes, "meminfo", "MemAvailable:");
    int64_t left = kib >= 0 && kib <= INT64_MAX >> 10 ? kib << 10 : INT64_MAX;
    for (int version = 1; version <= 2; version++)
        left = smaller(left_in_groups(processes, control_group, version), left);
    return left == INT64_MAX ? -1 : left;
}

/* ---- address space -------------------------------------------------------------------------- */

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
