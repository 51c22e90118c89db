/* sbplan-fit: reads published logs of collectives, or the samples of a calibration, fits a network
 * to them and writes a cluster file. It needs no ranks, no MPI and no BLAS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json_write.h"
#include "base/options.h"
#include "calib/output/compare.h"
#include "calib/output/fit_and_write.h"
#include "calib/logs/log.h"
#include "calib/output/network_text.h"

#define PROGRAM    "sbplan-fit"
#define NAME_BYTES 64

struct options {
    const char **log; /* (log_count) */
    int log_count;
    struct sbp_log_options said;
    const char *diff; /* NULL */
    struct sbp_network_options fit;
    const struct sbp_preset *preset;
    struct sbp_finish_options finish;
    int cluster_nodes;
    const char *of_samples; /* an option given that says nothing of logs; NULL */
    bool help;
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

static bool set_output(void *settings, const char *value)
{
    return sbp_finish_set_output(&((struct options *)settings)->finish, value);
}

static bool set_name(void *settings, const char *value)
{
    ((struct options *)settings)->finish.name = value;
    return *value != '\0' && strlen(value) < NAME_BYTES;
}

static bool set_preset(void *settings, const char *value)
{
    return (((struct options *)settings)->preset = sbp_preset_find(value)) != NULL;
}

static bool set_ports(void *settings, const char *value)
{
    return set_count(value, &((struct options *)settings)->fit.ports);
}

static bool set_cluster_nodes(void *settings, const char *value)
{
    return set_count(value, &((struct options *)settings)->cluster_nodes);
}

static bool set_method(void *settings, const char *value)
{
    struct options *options = settings;
    const bool is_legal = sbp_finish_set_method(&options->finish, value);
    options->fit.is_paper = options->finish.is_paper;
    return is_legal;
}

static bool set_statistic(void *settings, const char *value)
{
    ((struct options *)settings)->of_samples = "--statistic";
    return sbp_finish_set_statistic(&((struct options *)settings)->finish, value);
}

static bool set_weights(void *settings, const char *value)
{
    ((struct options *)settings)->of_samples = "--weights";
    return sbp_finish_set_weights(&((struct options *)settings)->finish, value);
}

static bool set_json(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->finish.json = true;
}

static bool set_quiet(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->finish.quiet = true;
}

static bool set_help(void *settings, const char *value)
{
    (void)value;
    return ((struct options *)settings)->help = true;
}

#define PRESETS                                                                                    \
    "p100, v100-16g, v100-32g, a100-40g, a100-80g, l40s, h100-sxm, h200-sxm, gh200, b200, gb200, " \
    "mi300x, mi355x"

static const struct sbp_option option_table[] = {
    {"--from", "LOG", "a file name",
     "log of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks; may be repeated; or the "
     "samples of one calibration",
     set_from},
    {"--nodes", "N", "1 to 1000000", "nodes of the runs, where a log does not say", set_nodes},
    {"--ranks-per-node", "N", "1 to 1000000", "ranks a node, where a log does not say",
     set_ranks_per_node},
    {"--diff", "FILE", "a file name",
     "say what changed from one calibration's samples to those of the only --from", set_diff},
    {"-o", "FILE", "a file name that does not end in .jsonl, as samples do", "write a cluster file",
     set_output},
    {"--device-preset", "NAME", PRESETS, "the devices, of which logs say nothing: needed with -o",
     set_preset},
    {"--method", "NAME", "curves, paper",
     "curves (default) or paper: one alpha and beta a network by plain least squares", set_method},
    {"--statistic", "NAME", "median and least",
     "of the repeats in samples: median (default) or least", set_statistic},
    {"--weights", "NAME", "relative, symmetric and none",
     "of the errors of --method paper over samples (default relative)", set_weights},
    {"--ports", "N", "1 to 1000000",
     "network ports of a node (default: each of its devices has one)", set_ports},
    {"--cluster-nodes", "N", "1 to 1000000",
     "nodes of the cluster file (default: the most that were measured)", set_cluster_nodes},
    {"--name", "NAME", "1 to 63 bytes", "of the cluster (default: the file's, or the samples')",
     set_name},
    {"--json", NULL, NULL, "print one JSON object instead of a table", set_json},
    {"--quiet", NULL, NULL, "print nothing but errors", set_quiet},
    {"--help", NULL, NULL, "print this", set_help},
    {NULL, NULL, NULL, NULL, NULL},
};

static void print_help(void)
{
    (void)printf(
        "Usage: " PROGRAM " --from LOG [--from LOG...] [options]\n"
        "Reads published logs of collectives, checks them, fits a network to them and says "
        "how well;\nwrites a cluster file. The samples of a calibration are fitted as measuring "
        "fits them.\n\n");
    sbp_options_print(option_table, stdout);
    (void)printf("Devices: " PRESETS ".\n");
}

/* --- the cluster file --- */

/* "dir/polaris.json": "polaris". */
static void name_of(const struct sbp_finish_options *options, char name[NAME_BYTES])
{
    const char *slash = strrchr(options->output, '/'), *file = options->output;
    if (options->name != NULL) {
        (void)snprintf(name, NAME_BYTES, "%s", options->name);
        return;
    }
    (void)snprintf(name, NAME_BYTES, "%s", slash == NULL ? file : slash + 1);
    const size_t length = strlen(name), cut = strlen(".json");
    if (length > cut && strcmp(name + length - cut, ".json") == 0)
        name[length - cut] = '\0';
}

static enum sbp_status write_cluster(const struct options *options, const struct sbp_logs *logs,
                                     const struct sbp_measured *measured,
                                     const struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    char name[NAME_BYTES];
    name_of(&options->finish, name);
    const struct sbp_network_file file = {.name = name,
                                          .preset = options->preset,
                                          .nodes = options->cluster_nodes,
                                          .measured = measured,
                                          .logs = logs};
    struct cJSON *json = sbp_network_file_json(fit, &file);
    const enum sbp_status status = sbp_json_write(json, options->finish.output, diag);
    cJSON_Delete(json);
    return status;
}

/* --- results --- */

/* Takes over nothing; fit NULL: nothing could be fitted. */
static enum sbp_status print_json(const struct sbp_logs *logs, const struct sbp_network_fit *fit,
                                  struct sbp_diag *diag)
{
    bool failed = false;
    struct cJSON *json = NULL;
    if (fit != NULL) {
        json = cJSON_CreateObject();
        sbp_json_put(json, "quality", sbp_network_quality_json(fit), &failed);
        sbp_json_put(json, "network", sbp_network_json(fit), &failed);
        sbp_json_put(json, "levels", sbp_network_levels_json(fit, NULL, 0, "gpu"), &failed);
    }
    if (failed) {
        cJSON_Delete(json);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
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
        status = sbp_network_print(fit, stdout);
    }
    if (status == SBP_OK && options->finish.output != NULL)
        (void)printf("\nwrote %s\n", options->finish.output);
    return status == SBP_OK ? status : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

/* --- samples --- */

/* What samples say themselves. */
static const char *find_log_option(const struct options *options)
{
    const struct {
        bool is_given;
        const char *name;
    } of_logs[] = {{options->said.nodes > 0, "--nodes"},
                   {options->said.ranks_per_node > 0, "--ranks-per-node"},
                   {options->preset != NULL, "--device-preset"},
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
    if (options->log_count != 1)
        return sbp_fail(diag, SBP_E_USAGE,
                        "samples are %s alone: one --from is legal, %d are given (samples of "
                        "several calibrations may stand in one file)",
                        options->diff == NULL ? "fitted" : "compared", options->log_count);
    if (wrong != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "%s is for logs, but %s holds samples, which say themselves what was "
                        "measured where",
                        wrong, options->log[0]);
    return SBP_OK;
}

/* Of a file of samples, or of the cluster file beside it. */
static enum sbp_status read_samples(const char *path, struct sbp_record *record,
                                    struct sbp_diag *diag)
{
    char record_path[4096];
    if (sbp_record_is(path))
        return sbp_record_read(path, record, diag);
    SBP_TRY(sbp_record_path(path, record_path, (int)sizeof record_path, diag));
    return sbp_record_read(record_path, record, diag);
}

/* With --diff only where a result is asked for. */
static enum sbp_status fit_samples(const struct options *options, const struct sbp_record *record,
                                   struct sbp_diag *diag)
{
    const struct sbp_finish_options *finish = &options->finish;
    if (options->diff != NULL && finish->output == NULL && !finish->json)
        return SBP_OK;
    SBP_TRY(sbp_finish(record, finish, diag));
    if (finish->output != NULL && !finish->json && !finish->quiet)
        (void)printf("wrote %s\n", finish->output);
    return SBP_OK;
}

static enum sbp_status compare(const struct options *options, const struct sbp_record *record,
                               struct sbp_diag *diag)
{
    const struct sbp_finish_options *finish = &options->finish;
    struct sbp_record older;
    SBP_TRY(read_samples(options->diff, &older, diag)); /* before anything is written */
    enum sbp_status status = fit_samples(options, record, diag);
    if (status == SBP_OK && !finish->quiet) /* standard output may hold JSON */
        status = sbp_compare_print(&older, record, finish->json ? stderr : stdout, diag);
    sbp_record_free(&older);
    return status;
}

static enum sbp_status use_samples(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_record record;
    SBP_TRY(check_samples(options, diag));
    SBP_TRY(read_samples(options->log[0], &record, diag));
    const enum sbp_status status = options->diff == NULL ? fit_samples(options, &record, diag)
                                                         : compare(options, &record, diag);
    sbp_record_free(&record);
    return status;
}

/* --- logs --- */

/* Logs too short for a curve are still told of, unless a file was asked for. */
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

static enum sbp_status use_logs(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_logs logs;
    struct sbp_measured measured;
    if (options->of_samples != NULL)
        return sbp_fail(diag, SBP_E_USAGE, "%s is for the samples of a calibration, not for logs",
                        options->of_samples);
    if (options->finish.output != NULL && options->preset == NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "-o needs --device-preset NAME, for logs say nothing of how fast devices "
                        "compute; legal are " PRESETS);
    enum sbp_status status =
        sbp_logs_read(options->log, options->log_count, &options->said, &logs, &measured, diag);
    if (status == SBP_OK)
        status = use(options, &logs, &measured, diag);
    sbp_measured_free(&measured);
    sbp_logs_free(&logs);
    return status;
}

static enum sbp_status run(const struct options *options, struct sbp_diag *diag)
{
    bool has_samples = options->diff != NULL;
    if (options->log_count == 0)
        return sbp_fail(diag, SBP_E_USAGE, "no --from LOG is given, see --help");
    for (int i = 0; i < options->log_count; i++) {
        has_samples = has_samples || sbp_record_is(options->log[i]);
        if (options->finish.output != NULL && strcmp(options->log[i], options->finish.output) == 0)
            return sbp_fail(diag, SBP_E_USAGE, "-o %s would overwrite what --from reads",
                            options->finish.output);
    }
    return (has_samples ? use_samples : use_logs)(options, diag);
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
