/* sbplan-fit: reads published logs of collectives, fits a network to them and writes a cluster
 * file. It needs no ranks, no MPI and no BLAS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/options.h"
#include "base/text.h"
#include "calib/compare.h"
#include "calib/json_put.h"
#include "calib/log.h"
#include "calib/network_text.h"

#define PROGRAM    "sbplan-fit"
#define NAME_BYTES 64

struct options {
    const char **log; /* (log_count) */
    int log_count;
    struct sbp_log_options said;
    const char *diff; /* NULL */
    struct sbp_network_options fit;
    const struct sbp_preset *preset;
    const char *output, *name;
    int cluster_nodes;
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

static bool set_output(void *settings, const char *value)
{
    ((struct options *)settings)->output = value;
    return *value != '\0';
}

static bool set_name(void *settings, const char *value)
{
    ((struct options *)settings)->name = value;
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
    ((struct options *)settings)->fit.is_paper = strcmp(value, "paper") == 0;
    return strcmp(value, "paper") == 0 || strcmp(value, "curves") == 0;
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

#define PRESETS                                                                                    \
    "p100, v100-16g, v100-32g, a100-40g, a100-80g, l40s, h100-sxm, h200-sxm, gh200, b200, gb200, " \
    "mi300x, mi355x"

static const struct sbp_option option_table[] = {
    {"--from", "LOG", "a file name",
     "log of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks; may be repeated",
     set_from},
    {"--nodes", "N", "1 to 1000000", "nodes of the runs, where a log does not say", set_nodes},
    {"--ranks-per-node", "N", "1 to 1000000", "ranks a node, where a log does not say",
     set_ranks_per_node},
    {"--diff", "FILE", "a file name",
     "say what changed from one calibration's samples to those of the only --from", set_diff},
    {"-o", "FILE", "a file name", "write a cluster file", set_output},
    {"--device-preset", "NAME", PRESETS, "the devices, of which logs say nothing: needed with -o",
     set_preset},
    {"--method", "NAME", "curves, paper",
     "curves (default) or paper: one alpha and beta a network by plain least squares", set_method},
    {"--ports", "N", "1 to 1000000",
     "network ports of a node (default: each of its devices has one)", set_ports},
    {"--cluster-nodes", "N", "1 to 1000000",
     "nodes of the cluster file (default: the most that were measured)", set_cluster_nodes},
    {"--name", "NAME", "1 to 63 bytes", "of the cluster (default: the file's)", set_name},
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
        "how well;\nwrites a cluster file.\n\n");
    sbp_options_print(option_table, stdout);
    (void)printf("Devices: " PRESETS ".\n");
}

/* --- the cluster file --- */

/* "dir/polaris.json": "polaris". */
static void name_of(const struct options *options, char name[NAME_BYTES])
{
    const char *path = options->name != NULL ? options->name : options->output;
    const char *slash = options->name != NULL ? NULL : strrchr(path, '/');
    (void)snprintf(name, NAME_BYTES, "%s", slash == NULL ? path : slash + 1);
    const size_t length = strlen(name), cut = strlen(".json");
    if (options->name == NULL && length > cut && strcmp(name + length - cut, ".json") == 0)
        name[length - cut] = '\0';
}

static enum sbp_status write_cluster(const struct options *options, const struct sbp_logs *logs,
                                     const struct sbp_measured *measured,
                                     const struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    char name[NAME_BYTES], *json;
    struct sbp_text text = {0};
    name_of(options, name);
    const struct sbp_network_file file = {.name = name,
                                          .preset = options->preset,
                                          .nodes = options->cluster_nodes,
                                          .measured = measured,
                                          .logs = logs};
    SBP_TRY(sbp_network_file_text(fit, &file, &json, diag));
    sbp_text_add(&text, "%s\n", json);
    free(json);
    const enum sbp_status status =
        text.failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory for %s", options->output)
                    : sbp_file_write(options->output, text.bytes, text.length, diag);
    sbp_text_free(&text);
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
    if (options->json)
        return print_json(logs, fit, diag);
    if (options->quiet) {
        sbp_logs_print_refusals(logs, stderr);
        return SBP_OK;
    }
    enum sbp_status status = sbp_logs_print(logs, stdout);
    if (status == SBP_OK && fit != NULL) {
        (void)printf("\n");
        status = sbp_network_print(fit, stdout);
    }
    if (status == SBP_OK && options->output != NULL)
        (void)printf("\nwrote %s\n", options->output);
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
    if (status == SBP_E_INPUT && options->output == NULL && !options->fit.is_paper)
        status = SBP_OK;
    if (status != SBP_OK)
        status = sbp_fail(diag, status, "%s", why.text);
    if (status == SBP_OK && options->output != NULL)
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

static enum sbp_status run(const struct options *options, struct sbp_diag *diag)
{
    if (options->diff != NULL)
        return compare(options, diag);
    struct sbp_logs logs;
    struct sbp_measured measured;
    if (options->log_count == 0)
        return sbp_fail(diag, SBP_E_USAGE, "no --from LOG is given, see --help");
    if (options->output != NULL && options->preset == NULL)
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
