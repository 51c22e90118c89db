/* sbplan-fit: reads published logs of collectives. It needs no ranks, no MPI and no BLAS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"
#include "calib/compare.h"
#include "calib/log.h"

#define PROGRAM "sbplan-fit"

struct options {
    const char **log; /* (log_count) */
    int log_count;
    struct sbp_log_options said;
    const char *diff; /* NULL */
    bool json, quiet, help;
};

/* --- command line --- */

static bool set_from(void *settings, const char *value)
{
    struct options *options = settings;
    options->log[options->log_count++] = value;
    return *value != '\0';
}

static bool set_count(const char *value, int *count)
{
    int64_t number;
    if (!sbp_parse_int64(value, &number) || number < 1 || number > 1000000)
        return false;
    *count = (int)number;
    return true;
}

static bool set_nodes(void *settings, const char *value)
{
    return set_count(value, &((struct options *)settings)->said.nodes);
}

static bool set_ranks_per_node(void *settings, const char *value)
{
    return set_count(value, &((struct options *)settings)->said.ranks_per_node);
}

static bool set_diff(void *settings, const char *value)
{
    ((struct options *)settings)->diff = value;
    return *value != '\0';
}

static bool set_json(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->json = true;
}

static bool set_quiet(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->quiet = true;
}

static bool set_help(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->help = true;
}

static const struct sbp_option option_table[] = {
    {"--from", "LOG", "a file name",
     "log of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks; may be repeated",
     set_from},
    {"--nodes", "N", "1 to 1000000", "nodes of the runs, where a log does not say", set_nodes},
    {"--ranks-per-node", "N", "1 to 1000000", "ranks a node, where a log does not say",
     set_ranks_per_node},
    {"--diff", "FILE", "a file name",
     "say what changed from one calibration's samples to those of the only --from", set_diff},
    {"--json", NULL, NULL, "print one JSON object instead of a table", set_json},
    {"--quiet", NULL, NULL, "print nothing but errors", set_quiet},
    {"--help", NULL, NULL, "print this", set_help},
    {NULL, NULL, NULL, NULL, NULL},
};

static void print_help(void)
{
    (void)printf("Usage: " PROGRAM " --from LOG [--from LOG...] [options]\n"
                 "Reads published logs of collectives, checks them and prints what they hold.\n\n");
    sbp_options_print(option_table, stdout);
}

/* --- results --- */

static enum sbp_status report(const struct options *options, const struct sbp_logs *logs,
                              const struct sbp_measured *measured, struct sbp_diag *diag)
{
    if (measured->count == 0) {
        sbp_logs_print_refusals(logs, stderr);
        return sbp_fail(diag, SBP_E_INPUT, "nothing of the log%s can be used",
                        logs->file_count == 1 ? "" : "s");
    }
    if (options->json)
        return sbp_logs_print_json(logs, stdout, diag);
    if (options->quiet) {
        sbp_logs_print_refusals(logs, stderr);
        return SBP_OK;
    }
    const enum sbp_status status = sbp_logs_print(logs, stdout);
    return status == SBP_OK ? status : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

static enum sbp_status read_samples(const char *path, struct sbp_record *record,
                                    struct sbp_diag *diag)
{
    char record_path[4096];
    SBP_TRY(sbp_record_path(path, record_path, (int)sizeof record_path, diag));
    return sbp_record_read(record_path, record, diag);
}

static enum sbp_status compare(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_record older, newer;
    if (options->log_count != 1)
        return sbp_fail(diag, SBP_E_USAGE,
                        "--diff compares with the samples of one --from, %d are given",
                        options->log_count);
    SBP_TRY(read_samples(options->diff, &older, diag));
    enum sbp_status status = read_samples(options->log[0], &newer, diag);
    if (status == SBP_OK) {
        status = sbp_compare_print(&older, &newer, stdout, diag);
        sbp_record_free(&newer);
    }
    sbp_record_free(&older);
    return status;
}

static enum sbp_status run(const struct options *options, struct sbp_diag *diag)
{
    if (options->diff != NULL)
        return compare(options, diag);
    struct sbp_logs logs;
    struct sbp_measured measured;
    if (options->log_count == 0)
        return sbp_fail(diag, SBP_E_USAGE, "no --from LOG is given, see --help");
    enum sbp_status status =
        sbp_logs_read(options->log, options->log_count, &options->said, &logs, &measured, diag);
    if (status == SBP_OK)
        status = report(options, &logs, &measured, diag);
    sbp_measured_free(&measured);
    sbp_logs_free(&logs);
    return status;
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct options options = {.log = calloc((size_t)argc + 1, sizeof *options.log)};
    enum sbp_status status =
        options.log == NULL ? sbp_fail(&diag, SBP_E_MEMORY, "out of memory")
                            : sbp_options_read(option_table, argc, argv, &options, NULL, &diag);
    if (status == SBP_OK && options.help)
        print_help();
    else if (status == SBP_OK)
        status = run(&options, &diag);
    free(options.log);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SBP_OK)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status != SBP_OK)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
