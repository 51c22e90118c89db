#include "calib/measure/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"
#include "calib/measure/measure.h"

static const char *const backend_names[SBP_CALIB_BACKENDS] = {"auto", "threads", "mpi", "nccl"};

/* --- values --- */

static bool set_number(const char *value, int64_t least, int64_t most, int64_t *number)
{
    return sbp_parse_int64(value, number) && *number >= least && *number <= most;
}

static bool set_path(const char *value, const char **path)
{
    *path = value;
    return *value != '\0';
}

static bool set_output(void *settings, const char *value)
{
    return sbp_finish_set_output(&((struct sbp_settings *)settings)->finish, value);
}

static bool set_merge(void *settings, const char *value)
{
    return set_path(value, &((struct sbp_settings *)settings)->merge);
}

static bool set_diff(void *settings, const char *value)
{
    return set_path(value, &((struct sbp_settings *)settings)->diff);
}

static bool set_ranks(void *settings, const char *value)
{
    return set_number(value, 2, 1024, &((struct sbp_settings *)settings)->ranks);
}

static bool set_nodes(void *settings, const char *value)
{
    return set_number(value, 1, 100000, &((struct sbp_settings *)settings)->nodes);
}

static bool set_ranks_per_node(void *settings, const char *value)
{
    return set_number(value, 1, 1024, &((struct sbp_settings *)settings)->ranks_per_node);
}

static bool set_runs(void *settings, const char *value)
{
    return set_number(value, 1, SBP_MAX_RUNS, &((struct sbp_settings *)settings)->runs);
}

static bool set_seed(void *settings, const char *value)
{
    return set_number(value, 0, ((int64_t)1 << 53) - 1, &((struct sbp_settings *)settings)->seed);
}

static bool set_backend(void *settings, const char *value)
{
    struct sbp_settings *into = settings;
    for (int b = SBP_CALIB_THREADS; b < SBP_CALIB_BACKENDS; b++) {
        into->backend = (enum sbp_calib_backend)b;
        if (strcmp(value, backend_names[b]) == 0)
            return true;
    }
    return false;
}

static bool set_max_bytes(void *settings, const char *value)
{
    struct sbp_settings *into = settings;
    return sbp_parse_size(value, &into->max_bytes) && into->max_bytes >= SBP_LEAST_MAX_BYTES &&
           into->max_bytes <= SBP_LARGEST_MAX_BYTES;
}

/* "all-reduce,send-recv" */
static bool set_collectives(void *settings, const char *value)
{
    unsigned *kinds = &((struct sbp_settings *)settings)->kinds;
    for (const char *at = value;; at++) {
        const size_t length = strcspn(at, ",");
        enum sbp_collective kind = (enum sbp_collective)0;
        while (kind < SBP_COLLECTIVES &&
               (kind == SBP_LOCAL || strlen(sbp_collective_name(kind)) != length ||
                strncmp(sbp_collective_name(kind), at, length) != 0))
            kind++;
        if (kind == SBP_COLLECTIVES)
            return false;
        *kinds |= 1u << kind;
        at += length;
        if (*at == '\0')
            return true;
    }
}

static bool set_budget(void *settings, const char *value)
{
    struct sbp_settings *into = settings;
    return sbp_parse_double(value, &into->budget_s) && into->budget_s > 0 &&
           into->budget_s <= 86400;
}

static bool set_nominal(void *settings, const char *value)
{
    struct sbp_settings *into = settings;
    return sbp_parse_double(value, &into->nominal_bytes_per_s) && into->nominal_bytes_per_s > 0 &&
           into->nominal_bytes_per_s < 1e18;
}

static bool set_method(void *settings, const char *value)
{
    return sbp_finish_set_method(&((struct sbp_settings *)settings)->finish, value);
}

static bool set_weights(void *settings, const char *value)
{
    return sbp_finish_set_weights(&((struct sbp_settings *)settings)->finish, value);
}

static bool set_statistic(void *settings, const char *value)
{
    return sbp_finish_set_statistic(&((struct sbp_settings *)settings)->finish, value);
}

#define SET_FLAG(name, flag)                                                                       \
    static bool set_##name(void *settings, const char *value)                                      \
    {                                                                                              \
        (void)value;                                                                               \
        return ((struct sbp_settings *)settings)->flag = true;                                     \
    }
SET_FLAG(dry_run, dry_run)
SET_FLAG(print_sbatch, print_sbatch)
SET_FLAG(fresh, fresh)
SET_FLAG(json, finish.json)
SET_FLAG(quiet, finish.quiet)
SET_FLAG(help, help)
#undef SET_FLAG

/* --- the table --- */

static const struct sbp_option option_table[] = {
    {"-o", "FILE", "a file name that does not end in .jsonl, as samples do",
     "cluster file to write (default cluster.json); every sample goes beside it, into "
     "cluster.samples.jsonl, as it is taken: killed, the same command goes on",
     set_output},
    {"-n", "RANKS", "2 to 1024", "ranks of the threads backend (default 4)", set_ranks},
    {"--backend", "NAME", "threads, mpi and nccl",
     "mpi (default when started by an MPI launcher), threads, or nccl: a GPU for each rank that "
     "MPI "
     "starts",
     set_backend},
    {"--max-bytes", "BYTES", "4K to 1G", "largest message (default 16M)", set_max_bytes},
    {"--collectives", "LIST",
     "all-reduce, all-gather, reduce-scatter, all-to-all, send-recv, broadcast; with commas "
     "between",
     "measure these alone, and hardly any compute (default: all)", set_collectives},
    {"--budget-s", "SECONDS", "numbers above 0 up to 86400",
     "time for all measurements (default 30)", set_budget},
    {"--runs", "N", "1 to 100", "repeats of the whole; three tell a bad one (default 3)", set_runs},
    {"--method", "NAME", "curves and paper",
     "curves (default), by group shape, as --from fits logs; or paper: one alpha and beta by least "
     "squares over four collectives",
     set_method},
    {"--statistic", "NAME", "median and least",
     "of the repeats of a collective: median (default) or least, where other programs run beside",
     set_statistic},
    {"--weights", "NAME", "relative, symmetric and none",
     "of the errors of --method paper: relative to the measured time (default), symmetric (to both "
     "times) or none",
     set_weights},
    {"--seed", "NUMBER", "0 to 2^53", "of the order of measuring (default 1)", set_seed},
    {"--nominal", "BYTES", "numbers above 0",
     "bytes a second that a network port is sold for (default: what the system says)", set_nominal},
    {"--merge", "FILE", "a file name", "measure on top of an older calibration's samples",
     set_merge},
    {"--diff", "FILE", "a file name", "say what changed from an older calibration", set_diff},
    {"--fresh", NULL, NULL, "drop an unfinished calibration instead of going on with it",
     set_fresh},
    {"--dry-run", NULL, NULL, "print the plan of measurements and its node-hours, measure nothing",
     set_dry_run},
    {"--print-sbatch", NULL, NULL, "print a job script for Slurm, measure nothing",
     set_print_sbatch},
    {"--nodes", "N", "1 to 100000", "nodes of --dry-run and --print-sbatch (default 1)", set_nodes},
    {"--ranks-per-node", "N", "1 to 1024", "ranks on each of them (default 4)", set_ranks_per_node},
    {"--json", NULL, NULL, "print the cluster file instead of a table", set_json},
    {"--quiet", NULL, NULL, "print nothing but errors", set_quiet},
    {"--help", NULL, NULL, "print this", set_help},
    {NULL, NULL, NULL, NULL, NULL},
};

/* What only several options together make wrong. */
static enum sbp_status check_settings(const struct sbp_settings *settings, struct sbp_diag *diag)
{
    if ((settings->nodes > 0 || settings->ranks_per_node > 0) && !settings->dry_run &&
        !settings->print_sbatch)
        return sbp_fail(diag, SBP_E_USAGE,
                        "%s says what --dry-run or --print-sbatch plans for, neither is given; "
                        "measuring finds the nodes by itself",
                        settings->nodes > 0 ? "--nodes" : "--ranks-per-node");
    if (settings->finish.is_paper && settings->kinds == 1u << SBP_BROADCAST_COLL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--method paper has no formula for a broadcast, and --collectives measures "
                        "nothing else: legal are all-reduce, all-gather, reduce-scatter, "
                        "all-to-all and send-recv beside it");
    return settings->backend == SBP_CALIB_THREADS ? sbp_launcher_alone(diag) : SBP_OK;
}

enum sbp_status sbp_settings_read(int argc, char **argv, struct sbp_settings *settings,
                                  struct sbp_diag *diag)
{
    *settings = (struct sbp_settings){.finish = {.output = "cluster.json"},
                                      .max_bytes = (int64_t)16 << 20,
                                      .runs = 3,
                                      .seed = 1,
                                      .budget_s = 30};
    SBP_TRY(sbp_options_read(option_table, argc, argv, settings, NULL, diag));
    if (settings->help)
        return SBP_OK;
    return check_settings(settings, diag);
}

void sbp_settings_help(void)
{
    (void)printf("Usage: sbplan-calibrate [options]\n"
                 "       mpirun -n RANKS sbplan-calibrate [options]\n"
                 "       srun --mpi=pmix --kill-on-bad-exit=1 sbplan-calibrate [options]\n"
                 "Measures collectives, matrix products and memory of the ranks and writes a "
                 "cluster file.\n\n");
    sbp_options_print(option_table, stdout);
}
