/* sbplan-fit: reads published logs of collectives, or the samples of a calibration, fits a network
 * to them and writes a cluster file. It needs no ranks, no MPI and no BLAS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/options.h"
#include "base/signals.h"
#include "base/text.h"
#include "calib/logs/log.h"
#include "calib/output/calib_report.h"
#include "calib/output/cluster_file.h"
#include "calib/output/compare.h"
#include "calib/output/fit_and_write.h"

#define PROGRAM    "sbplan-fit"
#define PRESET     "--device-preset"
#define NAME_BYTES 64

struct options {
    struct sbp_word_list log;
    struct sbp_log_options said;
    const char *diff; /* NULL */
    struct sbp_network_options fit;
    int preset; /* -1: none */
    struct sbp_fit_and_write_options finish;
    int statistic, weights; /* -1: not given */
    int cluster_nodes;
    bool help;
};

/* --- command line --- */

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct options, field)

static const struct sbp_option option_table[] = {
    {"--from", "LOG",
     "log of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks; may be repeated; or the "
     "samples of one calibration",
     FIELD(LIST, log)},
    {"--nodes", "N", "nodes of the runs, where a log does not say", FIELD(INT, said.nodes),
     .least = 1, .most = SBP_MOST_NODES},
    {"--ranks-per-node", "N", "ranks a node, where a log does not say",
     FIELD(INT, said.ranks_per_node), .least = 1, .most = SBP_MOST_RANKS_PER_NODE},
    {"--diff", "FILE",
     "say what changed from one calibration's samples to those of the only --from",
     FIELD(TEXT, diff)},
    {"-o", "FILE", "write a cluster file", FIELD(CHECKED, finish.output), SBP_FIT_AND_WRITE_OUTPUT},
    {PRESET, "NAME", "the devices, of which logs say nothing: needed with -o",
     FIELD(CHOICE, preset), .name_at = sbp_preset_name},
    {"--method", "NAME",
     "curves (default) or paper: one alpha and beta a network by plain least squares",
     FIELD(CHOICE, finish.method), .names = sbp_fit_methods},
    {"--statistic", "NAME", "of the repeats in samples: median (default) or least",
     FIELD(CHOICE, statistic), .names = sbp_points_statistics},
    {"--weights", "NAME", "of the errors of --method paper over samples (default relative)",
     FIELD(CHOICE, weights), .names = sbp_fit_weights_names},
    {"--ports", "N", "network ports of a node (default: each of its devices has one)",
     FIELD(INT, fit.ports), .least = 1, .most = SBP_MOST_RANKS_PER_NODE},
    {"--cluster-nodes", "N", "nodes of the cluster file (default: the most that were measured)",
     FIELD(INT, cluster_nodes), .least = 1, .most = SBP_MOST_NODES},
    {"--name", "NAME", "of the cluster (default: the file's, or the samples')",
     FIELD(TEXT, finish.name), .most = NAME_BYTES - 1},
    {"--json", NULL, "print one JSON object instead of a table", FIELD(FLAG, finish.json)},
    {"--quiet", NULL, "print nothing but errors", FIELD(FLAG, finish.quiet)},
    {"--help", NULL, "print this", FIELD(FLAG, help)},
    {.name = NULL},
};

static enum sbp_status read_options(int argc, char **argv, struct options *options,
                                    struct sbp_diag *diag)
{
    options->preset = options->statistic = options->weights = -1;
    SBP_TRY(sbp_options_read(option_table, argc, argv, options, NULL, diag));
    options->fit.is_paper = options->finish.method == SBP_METHOD_PAPER;
    if (options->statistic >= 0)
        options->finish.statistic = (enum sbp_statistic)options->statistic;
    if (options->weights >= 0)
        options->finish.weights = (enum sbp_fit_weights)options->weights;
    return SBP_OK;
}

/* "p100, v100-16g, ...": owned by the caller, NULL when memory is out. */
static char *list_presets(void)
{
    struct sbp_text names = {0};
    sbp_option_add_names(sbp_option_find(option_table, PRESET, strlen(PRESET)), &names);
    return names.bytes;
}

static void print_help(void)
{
    (void)printf(
        "Usage: " PROGRAM " --from LOG [--from LOG...] [options]\n"
        "Reads published logs of collectives, checks them, fits a network to them and says "
        "how well;\nwrites a cluster file. The samples of a calibration are fitted as measuring "
        "fits them.\n\n");
    sbp_options_print(option_table, stdout);
    char *presets = list_presets();
    (void)printf("Devices: %s.\n", presets == NULL ? "" : presets);
    free(presets);
}

/* --- the cluster file --- */

static enum sbp_status write_cluster(const struct options *options, const struct sbp_logs *logs,
                                     const struct sbp_measured *measured,
                                     const struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    char name[NAME_BYTES];
    if (options->finish.name != NULL)
        (void)snprintf(name, sizeof name, "%s", options->finish.name);
    else
        sbp_fit_and_write_name(options->finish.output, name, sizeof name);
    const struct sbp_cluster_file_logs file = {.name = name,
                                               .preset = sbp_preset_at(options->preset),
                                               .nodes = options->cluster_nodes,
                                               .measured = measured,
                                               .logs = logs};
    struct cJSON *json = sbp_cluster_file_of_logs(fit, &file);
    const enum sbp_status status = sbp_cluster_file_write(
        json, options->finish.output, measured->source[0].name, measured, fit, diag);
    cJSON_Delete(json);
    return status;
}

/* --- results --- */

/* fit NULL: nothing could be fitted. */
static enum sbp_status print_json(const struct sbp_logs *logs, const struct sbp_network_fit *fit,
                                  struct sbp_diag *diag)
{
    struct cJSON *json = fit == NULL ? NULL : sbp_cluster_file_of_fit(fit);
    if (fit != NULL && json == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return sbp_logs_print_json(logs, json, stdout, diag);
}

static enum sbp_status report(const struct options *options, const struct sbp_logs *logs,
                              const struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    if (options->finish.json)
        return print_json(logs, fit, diag);
    if (options->finish.quiet) {
        sbp_logs_print_refusals(logs, stderr);
        return SBP_OK;
    }
    enum sbp_status status = sbp_logs_print(logs, stdout);
    if (status == SBP_OK && fit != NULL) {
        (void)printf("\n");
        status = sbp_calib_report_network(fit, stdout);
    }
    if (status == SBP_OK && options->finish.output != NULL)
        (void)sbp_text_print_line(stdout, "\nwrote %s\n", options->finish.output);
    return status == SBP_OK ? status : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

/* --- samples --- */

/* Finds an option for logs alone, since samples say these things themselves; NULL: none is given.
 */
static const char *find_log_option(const struct options *options)
{
    const struct {
        bool is_given;
        const char *name;
    } of_logs[] = {{options->said.nodes > 0, "--nodes"},
                   {options->said.ranks_per_node > 0, "--ranks-per-node"},
                   {options->preset >= 0, PRESET},
                   {options->fit.ports > 0, "--ports"},
                   {options->cluster_nodes > 0, "--cluster-nodes"}};
    for (size_t i = 0; i < sizeof of_logs / sizeof *of_logs; i++)
        if (of_logs[i].is_given)
            return of_logs[i].name;
    return NULL;
}

static enum sbp_status check_samples(const struct options *options, struct sbp_diag *diag)
{
    const char *wrong = find_log_option(options);
    if (options->log.count != 1)
        return sbp_fail(diag, SBP_E_USAGE,
                        "samples are %s alone: one --from is legal, %d are given (samples of "
                        "several calibrations may stand in one file)",
                        options->diff == NULL ? "fitted" : "compared", options->log.count);
    if (wrong != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "%s is for logs, but %s holds samples, which say themselves what was "
                        "measured where",
                        wrong, options->log.word[0]);
    return SBP_OK;
}

/* Reads a file of samples, or the one beside a cluster file. */
static enum sbp_status read_samples(const char *path, struct sbp_record *record,
                                    struct sbp_diag *diag)
{
    char record_path[4096];
    if (sbp_sample_file_is(path))
        return sbp_sample_file_read(path, record, diag);
    SBP_TRY(sbp_sample_file_path(path, record_path, (int)sizeof record_path, diag));
    return sbp_sample_file_read(record_path, record, diag);
}

/* Fits the samples; with --diff only where a result is asked for. */
static enum sbp_status fit_samples(const struct options *options, const struct sbp_record *record,
                                   struct sbp_diag *diag)
{
    const struct sbp_fit_and_write_options *finish = &options->finish;
    if (options->diff != NULL && finish->output == NULL && !finish->json)
        return SBP_OK;
    SBP_TRY(sbp_fit_and_write(record, finish, diag));
    if (finish->output != NULL && !finish->json && !finish->quiet)
        (void)sbp_text_print_line(stdout, "wrote %s\n", finish->output);
    return SBP_OK;
}

static enum sbp_status compare(const struct options *options, const struct sbp_record *record,
                               struct sbp_diag *diag)
{
    const struct sbp_fit_and_write_options *finish = &options->finish;
    struct sbp_record older;
    SBP_TRY(read_samples(options->diff, &older, diag)); /* before anything is written */
    enum sbp_status status = fit_samples(options, record, diag);
    if (status == SBP_OK && !finish->quiet) /* standard output may hold JSON */
        status = sbp_compare_print(&older, record, finish->json ? stderr : stdout, diag);
    sbp_sample_file_free(&older);
    return status;
}

static enum sbp_status use_samples(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_record record;
    SBP_TRY(check_samples(options, diag));
    SBP_TRY(read_samples(options->log.word[0], &record, diag));
    const enum sbp_status status = options->diff == NULL ? fit_samples(options, &record, diag)
                                                         : compare(options, &record, diag);
    sbp_sample_file_free(&record);
    return status;
}

/* --- logs --- */

/* Reports logs that are too short for a curve, too, unless a file was asked for. */
static enum sbp_status fit_and_report(const struct options *options, const struct sbp_logs *logs,
                                      const struct sbp_measured *measured, struct sbp_diag *diag)
{
    struct sbp_network_fit *fit = calloc(1, sizeof *fit);
    struct sbp_diag why = {0};
    if (fit == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    enum sbp_status status = sbp_network_fit(measured, &options->fit, fit, &why);
    const bool is_fitted = status == SBP_OK;
    if (status == SBP_E_INPUT && options->finish.output == NULL && !options->fit.is_paper)
        status = SBP_OK;
    if (status != SBP_OK)
        status = sbp_fail(diag, status, "%s", why.text);
    if (status == SBP_OK && options->finish.output != NULL)
        status = write_cluster(options, logs, measured, fit, diag);
    if (status == SBP_OK)
        status = report(options, logs, is_fitted ? fit : NULL, diag);
    sbp_network_fit_free(fit);
    free(fit);
    return status;
}

static enum sbp_status use(const struct options *options, const struct sbp_logs *logs,
                           const struct sbp_measured *measured, struct sbp_diag *diag)
{
    if (measured->count > 0)
        return fit_and_report(options, logs, measured, diag);
    sbp_logs_print_refusals(logs, stderr);
    return sbp_fail(diag, SBP_E_INPUT, "nothing of the log%s can be used",
                    logs->file_count == 1 ? "" : "s");
}

/* Refuses options for samples alone, and a cluster file without a device. */
static enum sbp_status check_logs(const struct options *options, struct sbp_diag *diag)
{
    if (options->statistic >= 0 || options->weights >= 0)
        return sbp_fail(diag, SBP_E_USAGE, "%s is for the samples of a calibration, not for logs",
                        options->statistic >= 0 ? "--statistic" : "--weights");
    if (options->finish.output == NULL || options->preset >= 0)
        return SBP_OK;
    char *presets = list_presets();
    const enum sbp_status status =
        sbp_fail(diag, SBP_E_USAGE,
                 "-o needs " PRESET " NAME, for logs say nothing of how fast devices "
                 "compute; legal are %s",
                 presets == NULL ? "those of --help" : presets);
    free(presets);
    return status;
}

static enum sbp_status use_logs(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_logs logs;
    struct sbp_measured measured;
    SBP_TRY(check_logs(options, diag));
    enum sbp_status status = sbp_logs_read(options->log.word, options->log.count, &options->said,
                                           &logs, &measured, diag);
    if (status == SBP_OK)
        status = use(options, &logs, &measured, diag);
    sbp_points_free(&measured);
    sbp_logs_free(&logs);
    return status;
}

static enum sbp_status run(const struct options *options, struct sbp_diag *diag)
{
    const char *output = options->finish.output;
    bool has_samples = options->diff != NULL;
    if (options->log.count == 0)
        return sbp_fail(diag, SBP_E_USAGE, "no --from LOG is given, see --help");
    for (int i = 0; i < options->log.count; i++) {
        has_samples = has_samples || sbp_sample_file_is(options->log.word[i]);
        if (output != NULL && sbp_file_is_same(options->log.word[i], output))
            return sbp_fail(diag, SBP_E_USAGE, "-o %s would overwrite what --from reads", output);
    }
    if (output != NULL)
        SBP_TRY(sbp_file_check_writable(output, diag));
    return (has_samples ? use_samples : use_logs)(options, diag);
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct options options = {.log.word = calloc((size_t)argc + 1, sizeof *options.log.word)};
    enum sbp_status status = sbp_signals_catch(SIG_DFL, &diag);
    if (options.log.word == NULL)
        status = sbp_fail(&diag, SBP_E_MEMORY, "out of memory");
    if (status == SBP_OK)
        status = read_options(argc, argv, &options, &diag);
    if (status == SBP_OK && options.help)
        print_help();
    else if (status == SBP_OK)
        status = run(&options, &diag);
    free(options.log.word);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SBP_OK)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status != SBP_OK)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
