#include "calib/origin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"

/* The processor's name as Linux gives it, "unknown" elsewhere. */
static void find_cpu(char *cpu, size_t size)
{
    (void)snprintf(cpu, size, "unknown");
    FILE *in = fopen("/proc/cpuinfo", "r");
    if (in == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof line, in) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(cpu, size, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    (void)fclose(in); /* nothing was written */
}

/* Processors that a container's quota amounts to (control groups v2), rounded up; 0: no quota. */
static long quota_cores(void)
{
    FILE *in = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (in == NULL)
        return 0;
    long quota = 0, period = 0;
    const int read = fscanf(in, "%ld %ld", &quota, &period); /* "max 100000" reads nothing */
    (void)fclose(in);
    return read == 2 && quota > 0 && period > 0 ? (quota - 1) / period + 1 : 0;
}

static int count_cores(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN), quota = quota_cores();
    const long cores = quota > 0 && quota < online ? quota : online;
    return cores > 0 && cores < 1 << 20 ? (int)cores : 1;
}

static int64_t physical_bytes(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
}

static void find_host(struct sbp_calibration_origin *origin)
{
    struct utsname names;
    if (uname(&names) != 0)
        memset(&names, 0, sizeof names);
    (void)snprintf(origin->host, sizeof origin->host, "%.63s", names.nodename);
    (void)snprintf(origin->system, sizeof origin->system, "%.40s %.64s %.40s", names.sysname,
                   names.release, names.machine);
    for (char *c = origin->host; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("-._", *c) == NULL)
            *c = '_';
    if (origin->host[0] == '\0')
        (void)snprintf(origin->host, sizeof origin->host, "host");
    find_cpu(origin->cpu, sizeof origin->cpu);
    (void)snprintf(origin->compiler, sizeof origin->compiler, "%.90s", __VERSION__);
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL ||
        strftime(origin->date, sizeof origin->date, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        (void)snprintf(origin->date, sizeof origin->date, "unknown");
}

/* Ranks whose host has the same mark as this one's; *hosts counts the distinct marks. */
static int count_neighbours(const double *marks, int ranks, double own, int *hosts)
{
    int neighbours = 0;
    *hosts = 0;
    for (int i = 0; i < ranks; i++) {
        neighbours += marks[i] == own;
        int first = 0;
        while (marks[first] != marks[i])
            first++;
        *hosts += first == i;
    }
    return neighbours;
}

/* The fullest host and the least memory a rank count for all: a cluster has one kind of device. */
static enum sbp_status compare_hosts(const struct sbp_sampler *sampler, const double *marks,
                                     double own, struct sbp_calibration_origin *origin,
                                     struct sbp_diag *diag)
{
    const int here = count_neighbours(marks, origin->ranks, own, &origin->hosts);
    double values[] = {here, -count_cores(), -(double)(physical_bytes() / here)};
    SBP_TRY(sbp_sample_largest(sampler, values, 3, diag));
    origin->ranks_per_host = (int)values[0];
    origin->cores = (int)-values[1];
    origin->memory_bytes = (int64_t)-values[2];
    return SBP_OK;
}

enum sbp_status sbp_origin_find(const struct sbp_sampler *sampler,
                                struct sbp_calibration_origin *origin, struct sbp_diag *diag)
{
    find_host(origin);
    (void)snprintf(origin->backend, sizeof origin->backend, "%s", sampler->ops->name);
    origin->ranks = sampler->ops->size(sampler->comm);
    (void)snprintf(origin->name, sizeof origin->name, "%.40s-%d-ranks", origin->host,
                   origin->ranks);
    /* 52 bits: an integer that a double holds. */
    const uint64_t hash = sbp_hash_bytes(origin->host, strlen(origin->host));
    const double own = (double)(hash >> 12);
    double *marks = calloc((size_t)origin->ranks, sizeof *marks);
    if (marks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d ranks", origin->ranks);
    enum sbp_status status =
        sampler->ops->all_gather(sampler->comm, sampler->everybody, marks, &own, 1, SBP_F64);
    if (status != SBP_OK)
        status = sbp_fail(diag, status, "%s", sampler->ops->reason(sampler->comm));
    else
        status = compare_hosts(sampler, marks, own, origin, diag);
    free(marks);
    return status;
}
