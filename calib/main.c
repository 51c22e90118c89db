/* sbplan-calibrate: measures this machine's ranks and writes a cluster file.
 *
 * Runs as every rank of an MPI job, or as all ranks of a process with the threads backend. All
 * ranks measure; the process that holds rank 0 fits, writes and prints.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "base/text.h"
#include "calib/origin.h"
#include "calib/report.h"
#include "calib/write.h"
#include "kernels/kernels.h"

#define PROGRAM       "sbplan-calibrate"
#define COMPUTE_SHARE 0.3 /* of the budget */

enum backend { BACKEND_AUTO, BACKEND_THREADS, BACKEND_MPI, BACKEND_NCCL, BACKENDS };
static const char *const backend_names[BACKENDS] = {"auto", "threads", "mpi", "nccl"};

struct options {
    const char *output;
    int64_t ranks; /* 0: not given */
    int64_t max_bytes, seed;
    double budget_s;
    enum backend backend;
    enum sbp_fit_weights weights;
    bool json, quiet, help;
};

/* --- command line --- */

static bool set_output(void *settings, const char *value)
{
    struct options *options = settings;
    options->output = value;
    return *value != '\0';
}

static bool set_ranks(void *settings, const char *value)
{
    struct options *options = settings;
    return sbp_parse_int64(value, &options->ranks) && options->ranks >= 2 && options->ranks <= 1024;
}

static bool set_backend(void *settings, const char *value)
{
    struct options *options = settings;
    for (int b = BACKEND_THREADS; b < BACKENDS; b++) {
        options->backend = (enum backend)b;
        if (strcmp(value, backend_names[b]) == 0)
            return true;
    }
    return false;
}

static bool set_max_bytes(void *settings, const char *value)
{
    struct options *options = settings;
    return sbp_parse_size(value, &options->max_bytes) &&
           options->max_bytes >= SBP_LEAST_MAX_BYTES && options->max_bytes <= SBP_LARGEST_MAX_BYTES;
}

static bool set_budget(void *settings, const char *value)
{
    struct options *options = settings;
    return sbp_parse_double(value, &options->budget_s) && options->budget_s > 0 &&
           options->budget_s <= 86400;
}

static bool set_method(void *settings, const char *value)
{
    (void)settings; /* there is one */
    return strcmp(value, "paper") == 0;
}

static bool set_weights(void *settings, const char *value)
{
    struct options *options = settings;
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++) {
        options->weights = (enum sbp_fit_weights)w;
        if (strcmp(value, sbp_fit_weights_name(options->weights)) == 0)
            return true;
    }
    return false;
}

static bool set_seed(void *settings, const char *value)
{
    struct options *options = settings;
    return sbp_parse_int64(value, &options->seed) && options->seed >= 0 &&
           options->seed < (int64_t)1 << 53;
}

static bool set_json(void *settings, const char *value)
{
    struct options *options = settings;
    (void)value;
    return options->json = true;
}

static bool set_quiet(void *settings, const char *value)
{
    struct options *options = settings;
    (void)value;
    return options->quiet = true;
}

static bool set_help(void *settings, const char *value)
{
    struct options *options = settings;
    (void)value;
    return options->help = true;
}

static const struct sbp_option option_table[] = {
    {"-o", "FILE", "a file name",
     "cluster file to write (default cluster.json); every sample goes beside it", set_output},
    {"-n", "RANKS", "2 to 1024", "ranks of the threads backend (default 4)", set_ranks},
    {"--backend", "NAME", "threads, mpi and nccl",
     "mpi (default when started by an MPI launcher), threads or nccl", set_backend},
    {"--max-bytes", "BYTES", "4K to 1G", "largest message (default 16M)", set_max_bytes},
    {"--budget-s", "SECONDS", "numbers above 0 up to 86400",
     "time for all measurements (default 30)", set_budget},
    {"--method", "NAME", "paper (curves are not in this version)",
     "how times become alpha and beta: paper (default), least squares over the collectives",
     set_method},
    {"--weights", "NAME", "relative, symmetric and none",
     "of the errors: relative to the measured time (default), symmetric (to both times) or none",
     set_weights},
    {"--seed", "NUMBER", "0 to 2^53", "of the order of measuring (default 1)", set_seed},
    {"--json", NULL, NULL, "print the cluster file instead of a table", set_json},
    {"--quiet", NULL, NULL, "print nothing but errors", set_quiet},
    {"--help", NULL, NULL, "print this", set_help},
    {NULL, NULL, NULL, NULL, NULL},
};

static enum sbp_status parse(int argc, char **argv, struct options *options, struct sbp_diag *diag)
{
    *options = (struct options){
        .output = "cluster.json", .max_bytes = (int64_t)16 << 20, .seed = 1, .budget_s = 30};
    SBP_TRY(sbp_options_read(option_table, argc, argv, options, NULL, diag));
    return options->backend == BACKEND_THREADS && !options->help ? sbp_launcher_alone(diag)
                                                                 : SBP_OK;
}

static void print_help(void)
{
    (void)printf("Usage: " PROGRAM " [options]\n"
                 "       mpirun -n RANKS " PROGRAM " [options]\n"
                 "Measures collectives, matrix products and memory of this machine's ranks and "
                 "writes a cluster file.\n\n");
    sbp_options_print(option_table, stdout);
}

/* --- measuring --- */

/* What main and the ranks of this process share. Ranks read the first part; only rank 0 writes the
 * rest. */
struct calibration_run {
    const struct options *options;
    const char *command;

    bool is_root; /* this process holds rank 0 */
    struct sbp_calibration found;
    enum sbp_status verdict; /* of rank 0, found before measuring */
    struct sbp_diag diag;
};

/* Finds out before the measurements, not after them, that the result cannot be written. */
static enum sbp_status check_output(const char *path, struct sbp_diag *diag)
{
    struct stat file;
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode))
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: not a regular file", path);
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL ? 1 : (int)(slash - path) + 1;
    if (length >= (int)sizeof folder)
        return sbp_fail(diag, SBP_E_IO, "%.80s...: the path is too long", path);
    (void)snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path);
    if (access(folder, W_OK | X_OK) != 0)
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    return SBP_OK;
}

static enum sbp_status check_run(const struct options *options, int ranks, struct sbp_diag *diag)
{
    if (ranks < 2)
        return sbp_fail(diag, SBP_E_USAGE,
                        "there is 1 rank, collectives need 2: start it with mpirun -n RANKS, or "
                        "use --backend threads -n RANKS");
    if (options->ranks > 0 && options->ranks != ranks)
        return sbp_fail(diag, SBP_E_USAGE, "-n %lld, but the launcher started %d ranks",
                        (long long)options->ranks, ranks);
    return check_output(options->output, diag);
}

/* All ranks learn whether rank 0 lets the run go on. */
static enum sbp_status agree(const struct sbp_sampler *sampler, bool mine, bool *all,
                             struct sbp_diag *diag)
{
    double refused = mine ? 0 : 1;
    SBP_TRY(sbp_sample_largest(sampler, &refused, 1, diag));
    *all = refused < 1;
    return SBP_OK;
}

static enum sbp_status measure(const struct calibration_run *run, struct sbp_sampler *sampler,
                               struct sbp_calibration *mine, struct sbp_diag *diag)
{
    const struct options *options = run->options;
    const double start_s = sbp_clock_s();
    struct sbp_calibration_origin *origin = &mine->origin;
    SBP_TRY(sbp_origin_find(sampler, origin, diag));
    origin->version = SBP_VERSION;
    origin->command = run->command;
    origin->seed = (uint64_t)options->seed;
    origin->budget_s = options->budget_s;
    SBP_TRY(sbp_collective_times_init(&mine->collectives, origin->ranks, options->max_bytes, diag));
    sampler->budget_s = COMPUTE_SHARE * options->budget_s;
    sampler->label = "matrix products";
    SBP_TRY(sbp_measure_compute(sampler, &mine->compute, diag));
    sampler->budget_s = options->budget_s - (sbp_clock_s() - start_s);
    sampler->label = "collectives";
    SBP_TRY(sbp_measure_collectives(sampler, &mine->collectives, diag));
    origin->wall_s = sbp_clock_s() - start_s;
    return SBP_OK;
}

static enum sbp_status calibrate_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                      void *argument, struct sbp_diag *diag)
{
    struct calibration_run *run = argument;
    const int rank = ops->rank(comm), ranks = ops->size(comm);
    struct sbp_sampler sampler = {.ops = ops,
                                  .comm = comm,
                                  .seed = (uint64_t)run->options->seed,
                                  .progress = rank == 0 && !run->options->quiet};
    int *everybody = calloc((size_t)ranks, sizeof *everybody);
    if (everybody == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d ranks", ranks);
    for (int i = 0; i < ranks; i++)
        everybody[i] = i;
    enum sbp_status status = ops->group(comm, everybody, ranks, 0, &sampler.everybody);
    free(everybody);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", ops->reason(comm));

    if (rank == 0) {
        run->is_root = true;
        run->verdict = check_run(run->options, ranks, &run->diag);
    }
    bool go;
    SBP_TRY(agree(&sampler, rank != 0 || run->verdict == SBP_OK, &go, diag));
    if (!go)
        return SBP_OK; /* rank 0 says why */
    struct sbp_calibration mine = {0};
    status = measure(run, &sampler, &mine, diag);
    if (status == SBP_OK && rank == 0)
        run->found = mine;
    else
        sbp_calibration_free(&mine);
    return status;
}

/* --- results --- */

static enum sbp_status print_json(const struct sbp_calibration *found,
                                  const struct sbp_calibrated *calibrated, const char *output,
                                  struct sbp_diag *diag)
{
    char samples_path[4096], *text;
    SBP_TRY(sbp_samples_path(output, samples_path, (int)sizeof samples_path, diag));
    SBP_TRY(sbp_calibration_text(found, calibrated, samples_path, &text, diag));
    const bool done = puts(text) >= 0;
    free(text);
    return done ? SBP_OK : sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
}

static enum sbp_status print_table(const struct sbp_calibration *found,
                                   const struct sbp_calibrated *calibrated, const char *output,
                                   struct sbp_diag *diag)
{
    char samples_path[4096];
    SBP_TRY(sbp_samples_path(output, samples_path, (int)sizeof samples_path, diag));
    SBP_TRY(sbp_calibration_print(found, calibrated, stdout));
    if (printf("wrote %s and %s\n", output, samples_path) < 0)
        return sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
    return SBP_OK;
}

static enum sbp_status finish(const struct calibration_run *run, struct sbp_diag *diag)
{
    const struct options *options = run->options;
    struct sbp_calibrated calibrated;
    SBP_TRY(sbp_calibrate(&run->found, options->weights, &calibrated, diag));
    SBP_TRY(sbp_calibration_write(&run->found, &calibrated, options->output, diag));
    if (options->json)
        return print_json(&run->found, &calibrated, options->output, diag);
    if (options->quiet)
        return SBP_OK;
    return print_table(&run->found, &calibrated, options->output, diag);
}

static enum sbp_status run_ranks(struct calibration_run *run, struct sbp_diag *diag)
{
    const struct options *options = run->options;
    const bool launched = sbp_launcher_rank() >= 0;
    if (options->backend == BACKEND_MPI || (options->backend == BACKEND_AUTO && launched))
        return sbp_mpi_run(calibrate_rank, run, diag);
    if (options->backend == BACKEND_NCCL)
        return sbp_nccl_run(calibrate_rank, run, diag);
    return sbp_threads_run(options->ranks > 0 ? (int)options->ranks : 4, calibrate_rank, run, diag);
}

static enum sbp_status calibrate(const struct options *options, const char *command,
                                 struct sbp_diag *diag)
{
    struct calibration_run run = {.options = options, .command = command};
    sbp_kernels_cpu_setup();
    enum sbp_status status = run_ranks(&run, diag);
    if (status == SBP_OK && run.is_root)
        status = run.verdict == SBP_OK ? finish(&run, diag)
                                       : sbp_fail(diag, run.verdict, "%s", run.diag.text);
    sbp_calibration_free(&run.found);
    return status;
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct options options;
    struct sbp_text command = {0};
    for (int i = 0; i < argc; i++)
        sbp_text_add(&command, "%s%s", i == 0 ? "" : " ", argv[i]);
    enum sbp_status status = parse(argc, argv, &options, &diag);
    if (status == SBP_OK && command.failed)
        status = sbp_fail(&diag, SBP_E_MEMORY, "out of memory");
    const bool speaks = sbp_launcher_rank() <= 0;
    if (status == SBP_OK && options.help) {
        if (speaks)
            print_help();
    } else if (status == SBP_OK) {
        status = calibrate(&options, command.bytes, &diag);
    }
    sbp_text_free(&command);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SBP_OK)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status != SBP_OK && speaks)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    if (status != SBP_OK)
        sbp_launcher_yield();
    return sbp_status_exit_code(status);
}
