#include "calib/measure/origin_find.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "calib/samples/system.h"

/* --- where the ranks lie --- */

/* A name travels as the doubles that its bytes fill, since a gather moves bits. */
enum { NAME_DOUBLES = SBP_HOST_NAME / sizeof(double) };

static void own_name(char *name)
{
    struct utsname names;
    memset(name, 0, SBP_HOST_NAME);
    const bool is_known = uname(&names) == 0 && names.nodename[0] != '\0';
    const char *found = is_known ? names.nodename : "host";
    for (int i = 0; i < SBP_HOST_NAME - 1 && found[i] != '\0'; i++)
        name[i] = found[i];
}

enum sbp_status sbp_origin_find_placement(const struct sbp_sampler *sampler,
                                          struct sbp_rank_placement *placement,
                                          struct sbp_diag *diag)
{
    const int ranks = sampler->ops->size(sampler->comm);
    union {
        char text[SBP_HOST_NAME];
        double moved[NAME_DOUBLES];
    } own;
    own_name(own.text);
    *placement = (struct sbp_rank_placement){0};
    char(*names)[SBP_HOST_NAME] = calloc((size_t)ranks, sizeof *names);
    if (names == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the names of %d ranks", ranks);
    enum sbp_status status = sbp_sampler_gather(sampler, own.moved, NAME_DOUBLES, names, diag);
    if (status == SBP_OK)
        status = sbp_placement_of(names, ranks, placement, diag);
    free(names);
    return status;
}

/* --- hosts and software --- */

/* Reads the processor's name as Linux gives it, "unknown" elsewhere. */
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

/* Takes the least memory of a rank and the fewest cores for all, since a cluster file knows one
 * kind of device. */
static enum sbp_status compare_hosts(const struct sbp_sampler *sampler,
                                     const struct sbp_rank_placement *placement,
                                     const struct sbp_processor *processor,
                                     struct sbp_calibration_origin *origin, struct sbp_diag *diag)
{
    const int rank = sampler->ops->rank(sampler->comm);
    int here = 0;
    for (int r = 0; r < placement->ranks; r++)
        here += placement->node[r] == placement->node[rank];
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    const int64_t own_bytes =
        processor->memory_bytes > 0 ? processor->memory_bytes : machine.memory_bytes / here;
    double values[] = {-machine.cores, -(double)own_bytes};
    SBP_TRY(sbp_sampler_largest(sampler, values, 2, diag));
    origin->cores = (int)-values[0];
    origin->memory_bytes = (int64_t)-values[1];
    return SBP_OK;
}

static void find_software(struct sbp_endpoint ranks, struct sbp_calibration_origin *origin)
{
    static const char none[] = "";
    ranks.ops->library(ranks.comm, origin->library, (int)sizeof origin->library);
    sbp_system_driver(none, origin->driver, (int)sizeof origin->driver);
    sbp_system_binding(origin->binding, (int)sizeof origin->binding);
    if (strcmp(ranks.ops->name, "threads") != 0)
        sbp_system_launcher(ranks.ops->size(ranks.comm), origin->launcher,
                            (int)sizeof origin->launcher);
    sbp_system_job(origin->job, (int)sizeof origin->job);
    sbp_system_settings(environ, origin->settings, (int)sizeof origin->settings);
    (void)sbp_system_network(none, &origin->nominal_bytes_per_s, origin->nominal_from,
                             (int)sizeof origin->nominal_from); /* none: 0 and "" */
}

enum sbp_status sbp_origin_find(const struct sbp_sampler *sampler,
                                const struct sbp_rank_placement *placement,
                                struct sbp_endpoint ranks, const struct sbp_processor *processor,
                                struct sbp_calibration_origin *origin, struct sbp_diag *diag)
{
    find_host(origin);
    find_software(ranks, origin);
    (void)snprintf(origin->backend, sizeof origin->backend, "%s", ranks.ops->name);
    (void)snprintf(origin->device, sizeof origin->device, "%s", processor->name);
    origin->ranks = placement->ranks;
    origin->hosts = placement->nodes;
    origin->ranks_per_host = placement->most_ranks;
    origin->least_ranks_per_host = placement->least_ranks;
    (void)snprintf(origin->name, sizeof origin->name, "%.40s-%d-ranks", origin->host,
                   origin->ranks);
    return compare_hosts(sampler, placement, processor, origin, diag);
}
