#include "calib/measure/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "base/options.h"
#include "calib/measure/measure.h"

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct sbp_measure_settings, field)

/* "all-reduce,send-recv" */
static bool set_collectives(void *field, const char *value)
{
    unsigned *kinds = field;
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

static const struct sbp_option option_table[] = {
    {"-o", "FILE",
     "cluster file to write (default cluster.json); every sample goes beside it, into "
     "cluster.samples.jsonl, as it is taken: killed, the same command goes on",
     FIELD(CHECKED, finish.output), SBP_FIT_AND_WRITE_OUTPUT},
    {"-n", "RANKS",
     "ranks of the threads backend (default 4); 1: a device alone, without collectives",
     FIELD(WHOLE, ranks), .least = 1, .most = 1024},
    {"--backend", "NAME",
     "mpi (default when started by an MPI launcher), threads, or nccl: a GPU for each rank that "
     "MPI starts",
     FIELD(CHOICE, backend), .names = sbp_backend_names},
    {"--max-bytes", "BYTES", "largest message (default 16M)", FIELD(SIZE, max_bytes),
     .least = SBP_SWEEP_LEAST_MAX_BYTES, .most = SBP_SWEEP_LARGEST_MAX_BYTES},
    {"--collectives", "LIST", "measure these alone, and hardly any compute (default: all)",
     FIELD(CHECKED, kinds), .set = set_collectives,
     .legal = "all-reduce, all-gather, reduce-scatter, all-to-all, send-recv, broadcast; with "
              "commas between"},
    {"--budget-s", "SECONDS", "time for all measurements (default 30)", FIELD(RATE, budget_s),
     .most = 86400},
    {"--runs", "N", "repeats of the whole; three tell a bad one (default 3)", FIELD(WHOLE, runs),
     .least = 1, .most = SBP_MAX_RUNS},
    {"--method", "NAME",
     "curves (default), by group shape, as --from fits logs; or paper: one alpha and beta by least "
     "squares over four collectives",
     FIELD(CHOICE, finish.method), .names = sbp_fit_methods},
    {"--statistic", "NAME",
     "of the repeats of a collective: median (default) or least, where other programs run beside",
     FIELD(CHOICE, finish.statistic), .names = sbp_points_statistics},
    {"--weights", "NAME",
     "of the errors of --method paper: relative to the measured time (default), symmetric (to both "
     "times) or none",
     FIELD(CHOICE, finish.weights), .names = sbp_fit_weights_names},
    {"--seed", "NUMBER", "of the order of measuring (default 1)", FIELD(WHOLE, seed),
     .most = (int64_t)1 << 53},
    {"--nominal", "BYTES",
     "bytes a second that a network port is sold for (default: what the system says)",
     FIELD(RATE, nominal_bytes_per_s), .most = 1000000000000000000},
    {"--merge", "FILE", "measure on top of an older calibration's samples", FIELD(TEXT, merge)},
    {"--diff", "FILE", "say what changed from an older calibration", FIELD(TEXT, diff)},
    {"--fresh", NULL, "drop an unfinished calibration instead of going on with it",
     FIELD(FLAG, fresh)},
    {"--dry-run", NULL, "print the plan of measurements and its node-hours, measure nothing",
     FIELD(FLAG, dry_run)},
    {"--print-sbatch", NULL, "print a job script for Slurm, measure nothing",
     FIELD(FLAG, print_sbatch)},
    {"--nodes", "N", "nodes of --dry-run and --print-sbatch (default 1)", FIELD(WHOLE, nodes),
     .least = 1, .most = SBP_MOST_NODES},
    {"--ranks-per-node", "N", "ranks on each of them (default 4)", FIELD(WHOLE, ranks_per_node),
     .least = 1, .most = SBP_MOST_RANKS_PER_NODE},
    {"--json", NULL, "print the cluster file instead of a table", FIELD(FLAG, finish.json)},
    {"--quiet", NULL, "print nothing but errors", FIELD(FLAG, finish.quiet)},
    {"--help", NULL, "print this", FIELD(FLAG, help)},
    {.name = NULL},
};

/* Refuses options that only together are wrong. */
static enum sbp_status check_settings(const struct sbp_measure_settings *settings,
                                      struct sbp_diag *diag)
{
    if ((settings->nodes > 0 || settings->ranks_per_node > 0) && !settings->dry_run &&
        !settings->print_sbatch)
        return sbp_fail(diag, SBP_E_USAGE,
                        "%s says what --dry-run or --print-sbatch plans for, neither is given; "
                        "measuring finds the nodes by itself",
                        settings->nodes > 0 ? "--nodes" : "--ranks-per-node");
    if (settings->finish.method == SBP_METHOD_PAPER && settings->kinds == 1u << SBP_BROADCAST_COLL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--method paper has no formula for a broadcast, and --collectives measures "
                        "nothing else: legal are all-reduce, all-gather, reduce-scatter, "
                        "all-to-all and send-recv beside it");
    return settings->backend == SBP_BACKEND_THREADS ? sbp_launcher_alone(diag) : SBP_OK;
}

enum sbp_status sbp_settings_read(int argc, char **argv, struct sbp_measure_settings *settings,
                                  struct sbp_diag *diag)
{
    *settings = (struct sbp_measure_settings){.finish = {.output = "cluster.json"},
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
