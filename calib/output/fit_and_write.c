#include "calib/output/fit_and_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "calib/output/calib_report.h"
#include "calib/output/cluster_file.h"

const char *const sbp_fit_methods[] = {"curves", "paper", NULL};

bool sbp_fit_and_write_set_output(void *field, const char *name)
{
    static const char lines[] = ".jsonl";
    const size_t length = strlen(name), cut = sizeof lines - 1;
    *(const char **)field = name;
    return length > 0 && (length < cut || strcmp(name + length - cut, lines) != 0);
}

/* Writes and prints by the options. network: the curves; NULL: alpha and beta alone. */
static enum sbp_status write_and_print(const struct sbp_calibration *found,
                                       const struct sbp_calibrated_network *network,
                                       const struct sbp_fit_and_write_options *options,
                                       struct sbp_diag *diag)
{
    struct sbp_calibrated calibrated;
    SBP_TRY(sbp_calibrate_fit(found, options->weights, network, &calibrated, diag));
    struct cJSON *json = sbp_cluster_file_of_calibration(found, &calibrated);
    enum sbp_status status = SBP_OK;
    if (options->output != NULL || options->json)
        status =
            sbp_cluster_file_write(json, options->output, found->samples_path, &found->measured,
                                   network == NULL ? NULL : &network->fit, diag);
    if (status == SBP_OK && options->json)
        status = sbp_json_print(json, stdout, diag);
    cJSON_Delete(json);
    if (status != SBP_OK || options->json || options->quiet)
        return status;
    status = sbp_calib_report(found, &calibrated, stdout);
    return status == SBP_OK ? status : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

static enum sbp_status finish(const struct sbp_calibration *found,
                              const struct sbp_fit_and_write_options *options,
                              struct sbp_diag *diag)
{
    if (options->method == SBP_METHOD_PAPER || sbp_calibrate_is_alone(found))
        return write_and_print(found, NULL, options, diag);
    struct sbp_calibrated_network *network = calloc(1, sizeof *network);
    if (network == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    enum sbp_status status = sbp_calibrate_network(found, network, diag);
    if (status == SBP_OK)
        status = write_and_print(found, network, options, diag);
    sbp_network_fit_free(&network->fit);
    free(network);
    return status;
}

void sbp_fit_and_write_name(const char *path, char *name, size_t size)
{
    (void)snprintf(name, size, "%s", sbp_file_name(path));
    const size_t length = strlen(name), cut = strlen(".json");
    if (length > cut && strcmp(name + length - cut, ".json") == 0)
        name[length - cut] = '\0';
}

/* Names the cluster by the option, else by the samples, else by a file. */
static void name_cluster(const struct sbp_fit_and_write_options *options,
                         struct sbp_calibration *found)
{
    char *name = found->origin.name;
    if (options->name != NULL)
        (void)snprintf(name, sizeof found->origin.name, "%s", options->name);
    else if (name[0] == '\0')
        sbp_fit_and_write_name(options->output != NULL ? options->output : found->samples_path,
                               name, sizeof found->origin.name);
}

enum sbp_status sbp_fit_and_write(const struct sbp_record *record,
                                  const struct sbp_fit_and_write_options *options,
                                  struct sbp_diag *diag)
{
    struct sbp_calibration found;
    enum sbp_status status = sbp_calibrate_collect(record, options->statistic, &found, diag);
    if (status == SBP_OK) {
        name_cluster(options, &found);
        status = finish(&found, options, diag);
    }
    sbp_calibrate_free(&found);
    return status;
}
