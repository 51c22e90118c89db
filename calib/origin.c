#include "calib/origin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/machine.h"
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
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    double values[] = {here, -machine.cores, -(double)(machine.memory_bytes / here)};
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
