#include "calib/output/cluster_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "calib/output/network_text.h"

#define SETTLED_SPREAD 0.05 /* of a point over its runs */

void sbp_calibration_free(struct sbp_calibration *calibration)
{
    if (calibration == NULL)
        return;
    free(calibration->collectives.point);
    free(calibration->collectives.samples);
    calibration->collectives = (struct sbp_collective_times){0};
}

static enum sbp_status make_room(struct sbp_collective_times *times, int count,
                                 struct sbp_diag *diag)
{
    const size_t room = (size_t)count + 1;
    *times = (struct sbp_collective_times){.count = count,
                                           .point = calloc(room, sizeof *times->point),
                                           .samples = calloc(room, sizeof *times->samples)};
    if (times->point != NULL && times->samples != NULL)
        return SBP_OK;
    free(times->point);
    free(times->samples);
    *times = (struct sbp_collective_times){0};
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", count);
}

/* Points that AutoDDL's formulas tell: all groups of a node at the same time. */
static bool is_fitted(const struct sbp_measured_point *point, int ranks_per_node)
{
    return point->kind < SBP_FIT_KINDS && point->groups == ranks_per_node / point->ranks_per_node;
}

static enum sbp_status take_points(const struct sbp_measured *measured,
                                   struct sbp_calibration *calibration, struct sbp_diag *diag)
{
    const int ranks_per_node = calibration->origin.least_ranks_per_host;
    struct sbp_collective_times *times = &calibration->collectives;
    SBP_TRY(make_room(times, measured->count, diag));
    times->count = 0;
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        if (!is_fitted(point, ranks_per_node))
            continue;
        times->point[times->count] = (struct sbp_collective_point){
            point->kind, point->nodes * point->ranks_per_node, (int64_t)point->bytes};
        sbp_samples_add(&times->samples[times->count], &point->time_s, 1);
        times->samples[times->count++].settled = point->spread <= SETTLED_SPREAD;
    }
    return SBP_OK;
}

enum sbp_status sbp_calibration_of(const struct sbp_record *record, enum sbp_statistic statistic,
                                   struct sbp_calibration *calibration, struct sbp_diag *diag)
{
    const struct sbp_session *last = &record->session[record->session_count - 1];
    struct sbp_findings *findings = &calibration->findings;
    struct sbp_measured measured;
    struct sbp_runs runs;
    *calibration = (struct sbp_calibration){
        .origin = last->origin, .samples_path = record->path, .statistic = statistic};
    calibration->origin.wall_s = last->wall_s;
    SBP_TRY(sbp_points(record, statistic, &measured, &runs, diag));
    const enum sbp_status status = take_points(&measured, calibration, diag);
    sbp_compute_points(record, &runs, &calibration->compute);
    sbp_findings_of_runs(&runs, findings);
    sbp_arena_free(&measured.arena);
    SBP_TRY(status);
    sbp_findings_of_sessions(record, findings);
    sbp_findings_of_compute(record, findings);
    SBP_TRY(sbp_findings_of_pairs(record, sbp_calibration_is_crowded(calibration), findings, diag));
    sbp_findings_of_network(record, findings);
    return SBP_OK;
}

bool sbp_calibration_is_crowded(const struct sbp_calibration *calibration)
{
    return calibration->origin.ranks_per_host > calibration->origin.cores;
}

bool sbp_calibration_is_gpu(const struct sbp_calibration *calibration)
{
    return calibration->origin.device[0] != '\0';
}

/* --- from samples to parameters --- */

/* Medians of the points that were timed, of the kinds in a bit set. */
static int list_medians(const struct sbp_collective_times *times, unsigned kinds,
                        struct sbp_fit_point *points)
{
    int count = 0;
    for (int i = 0; i < times->count; i++) {
        const struct sbp_collective_point *point = &times->point[i];
        if (times->samples[i].count == 0 || !(kinds >> point->kind & 1))
            continue;
        points[count++] = (struct sbp_fit_point){point->kind, point->members, (double)point->bytes,
                                                 times->samples[i].median_s};
    }
    return count;
}

/* AutoDDL fits its four collectives together; where none was measured, messages stand for them.
 * points(times->count) is scratch. */
static enum sbp_status fit_together(const struct sbp_collective_times *times,
                                    struct sbp_fit_point *points, struct sbp_calibrated *calibrated,
                                    struct sbp_diag *diag)
{
    const unsigned messages = 1u << SBP_SEND_RECV;
    int count = list_medians(times, (1u << SBP_FIT_KINDS) - 1 - messages, points);
    calibrated->of_messages = count == 0;
    if (calibrated->of_messages)
        count = list_medians(times, messages, points);
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++)
        SBP_TRY(sbp_fit_points(points, count, (enum sbp_fit_weights)w, &calibrated->fit[w], diag));
    return SBP_OK;
}

static enum sbp_status judge_kinds(const struct sbp_collective_times *times,
                                   struct sbp_fit_point *points, struct sbp_calibrated *calibrated,
                                   struct sbp_diag *diag)
{
    const struct sbp_fit *fit = &calibrated->fit[calibrated->weights];
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        const int count = list_medians(times, 1u << kind, points);
        SBP_TRY(sbp_fit_judge(fit->alpha_s, fit->beta_s_per_byte, points, count,
                              &calibrated->kind_error[kind], diag));
        struct sbp_fit *alone = &calibrated->alone[kind];
        /* A kind that is not determined by itself has no fit of its own: that is no failure. */
        if (sbp_fit_points(points, count, calibrated->weights, alone, NULL) != SBP_OK)
            *alone = (struct sbp_fit){0};
    }
    return SBP_OK;
}

static void count_points(const struct sbp_collective_times *times,
                         struct sbp_calibrated *calibrated)
{
    for (int i = 0; i < times->count; i++) {
        calibrated->points += times->samples[i].count > 0;
        calibrated->settled += times->samples[i].settled;
        calibrated->kind_settled[times->point[i].kind] += times->samples[i].settled;
    }
}

static void rate_compute(const struct sbp_compute_times *times, struct sbp_calibrated *calibrated)
{
    const struct sbp_samples *copy = &times->samples[0];
    int products[SBP_TYPES] = {0};
    if (copy->count > 0)
        calibrated->copy_bytes_per_s = 2 * (double)times->copy_bytes / copy->median_s;
    for (int i = 0; i < times->gemm_count; i++) {
        const struct sbp_gemm_point *gemm = &times->gemm[i];
        const struct sbp_samples *samples = &times->samples[i + 1];
        if (samples->count == 0)
            continue;
        const double flops = 2 * (double)gemm->m * (double)gemm->n * (double)gemm->k;
        calibrated->gemm_flops[i] = flops / samples->median_s;
        calibrated->flops[gemm->type] =
            fmax(calibrated->flops[gemm->type], calibrated->gemm_flops[i]);
        if (++products[gemm->type] > products[calibrated->grid_type])
            calibrated->grid_type = gemm->type;
    }
}

/* Without a time, or with times of 0 s alone, which come from a clock too coarse. */
static enum sbp_status check_rates(const struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    const struct {
        double rate;
        const char *work;
    } needed[] = {{calibrated->flops[SBP_FP32], "fp32 product"},
                  {calibrated->flops[SBP_FP64], "fp64 product"},
                  {calibrated->copy_bytes_per_s, "copy"}};
    for (int i = 0; i < 3; i++)
        if (!(needed[i].rate > 0) || !isfinite(needed[i].rate))
            return sbp_fail(diag, SBP_E_INPUT,
                            "calibrate: no %s has a time above 0 s, of which rates are formed: was "
                            "it cut short, is the processor's clock working?",
                            needed[i].work);
    return SBP_OK;
}

enum sbp_status sbp_calibrate(const struct sbp_calibration *calibration,
                              enum sbp_fit_weights weights,
                              const struct sbp_calibrated_network *network,
                              struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    const struct sbp_collective_times *times = &calibration->collectives;
    *calibrated = (struct sbp_calibrated){.weights = weights, .network = network};
    struct sbp_fit_point *points = calloc((size_t)times->count + 1, sizeof *points);
    if (points == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d points", times->count);
    struct sbp_diag why = {0};
    enum sbp_status status = fit_together(times, points, calibrated, &why);
    if (status == SBP_OK)
        status = judge_kinds(times, points, calibrated, &why);
    free(points);
    if (status == SBP_E_INPUT && network != NULL)
        memset(calibrated->fit, 0, sizeof calibrated->fit);
    else if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", why.text);
    count_points(times, calibrated);
    rate_compute(&calibration->compute, calibrated);
    return check_rates(calibrated, diag);
}

/* --- the cluster file --- */

static void add_levels(bool *failed, cJSON *root, const struct sbp_calibration *calibration,
                       const struct sbp_calibrated *calibrated)
{
    cJSON *level = sbp_json_push_object(sbp_json_put_array(root, "levels", failed), failed);
    sbp_json_put_text(level, "name", "rank", failed);
    sbp_json_put_number(level, "size", calibration->origin.ranks, failed);
    const struct sbp_fit *fit = &calibrated->fit[calibrated->weights];
    sbp_json_put_measured(level, "alpha_s", fit->alpha_s, failed);
    sbp_json_put_measured(level, "beta_s_per_byte", fit->beta_s_per_byte, failed);
    sbp_json_put_number(level, "ports", 1, failed);
}

static void add_network(bool *failed, cJSON *root, const struct sbp_network_fit *network)
{
    sbp_json_put_text(root, "collectives", "hierarchical", failed);
    sbp_json_put(root, "levels", sbp_network_levels_json(network, NULL, 0, "rank"), failed);
    sbp_json_put(root, "network", sbp_network_json(network), failed);
}

static void add_device(bool *failed, cJSON *root, const struct sbp_calibration *calibration,
                       const struct sbp_calibrated *calibrated)
{
    const double grid_flops = calibrated->flops[calibrated->grid_type];
    cJSON *device = sbp_json_put_object(root, "device", failed);
    if (sbp_calibration_is_gpu(calibration))
        sbp_json_put_text(device, "name", calibration->origin.device, failed);
    sbp_json_put_number(device, "memory_bytes", (double)calibration->origin.memory_bytes, failed);
    cJSON *flops = sbp_json_put_object(device, "flops", failed);
    for (int type = 0; type < SBP_TYPES; type++)
        if (calibrated->flops[type] > 0)
            sbp_json_put_measured(flops, sbp_cluster_type_name((enum sbp_type)type),
                                  calibrated->flops[type], failed);
    sbp_json_put_measured(device, "memory_bytes_per_s", calibrated->copy_bytes_per_s, failed);
    if (calibration->compute.launch_s > 0)
        sbp_json_put_measured(device, "kernel_launch_s", calibration->compute.launch_s, failed);
    cJSON *gemms = sbp_json_put_array(device, "gemm", failed);
    for (int i = 0; i < calibration->compute.gemm_count; i++) {
        const struct sbp_gemm_point *gemm = &calibration->compute.gemm[i];
        if (gemm->type != calibrated->grid_type || !(calibrated->gemm_flops[i] > 0))
            continue;
        cJSON *element = sbp_json_push_object(gemms, failed);
        sbp_json_put_number(element, "m", (double)gemm->m, failed);
        sbp_json_put_number(element, "n", (double)gemm->n, failed);
        sbp_json_put_number(element, "k", (double)gemm->k, failed);
        sbp_json_put_measured(element, "efficiency", calibrated->gemm_flops[i] / grid_flops,
                              failed);
        if (gemm->type != SBP_FP32)
            sbp_json_put_text(element, "type", sbp_cluster_type_name(gemm->type), failed);
    }
}

/* "NAME=value" lines as an object. */
static void add_settings(bool *failed, cJSON *measured, const char *settings)
{
    cJSON *object = sbp_json_put_object(measured, "settings", failed);
    char name[256], value[sizeof((struct sbp_calibration_origin *)0)->settings];
    for (const char *at = settings; *at != '\0';) {
        const int length = (int)strcspn(at, "\n"), key = (int)strcspn(at, "=\n");
        (void)snprintf(name, sizeof name, "%.*s", key, at);
        (void)snprintf(value, sizeof value, "%.*s", length > key ? length - key - 1 : 0,
                       at + key + (length > key));
        sbp_json_put_text(object, name, value, failed);
        at += length + (at[length] == '\n');
    }
}

static void add_findings(bool *failed, cJSON *measured, const struct sbp_findings *findings)
{
    cJSON *list = sbp_json_put_array(measured, "findings", failed);
    for (int i = 0; i < findings->count; i++)
        sbp_json_push_text(list, findings->line[i], failed);
}

static void add_origin(bool *failed, cJSON *measured, const struct sbp_calibration *calibration)
{
    const struct sbp_calibration_origin *origin = &calibration->origin;
    const bool crowded = sbp_calibration_is_crowded(calibration);
    sbp_json_put_text(measured, "date", origin->date, failed);
    sbp_json_put_text(measured, "command", origin->command, failed);
    sbp_json_put_text(measured, "version", origin->version, failed);
    sbp_json_put_text(measured, "compiler", origin->compiler, failed);
    sbp_json_put_text(measured, "host", origin->host, failed);
    sbp_json_put_text(measured, "system", origin->system, failed);
    sbp_json_put_text(measured, "cpu", origin->cpu, failed);
    sbp_json_put_text(measured, "backend", origin->backend, failed);
    sbp_json_put_text(measured, "library", origin->library, failed);
    sbp_json_put_text(measured, "driver", origin->driver, failed);
    sbp_json_put_text(measured, "binding", origin->binding, failed);
    if (origin->launcher[0] != '\0')
        sbp_json_put_text(measured, "launcher", origin->launcher, failed);
    if (origin->job[0] != '\0')
        sbp_json_put_text(measured, "job", origin->job, failed);
    add_settings(failed, measured, origin->settings);
    sbp_json_put_number(measured, "ranks", origin->ranks, failed);
    sbp_json_put_number(measured, "hosts", origin->hosts, failed);
    sbp_json_put_number(measured, "ranks_per_host", origin->ranks_per_host, failed);
    sbp_json_put_number(measured, "cores", origin->cores, failed);
    sbp_json_put_bool(measured, "oversubscribed", crowded, failed);
    sbp_json_put_text(
        measured, "communication_clock",
        crowded ? "wall time, largest over ranks; it holds waiting for a core, because there "
                  "are more ranks than cores"
                : "wall time, largest over ranks",
        failed);
    sbp_json_put_text(measured, "communication_times", sbp_statistic_names[calibration->statistic],
                      failed);
    if (sbp_calibration_is_gpu(calibration))
        sbp_json_put_text(measured, "device", origin->device, failed);
    sbp_json_put_text(
        measured, "compute_clock",
        sbp_calibration_is_gpu(calibration) ? "events of the GPU, largest over ranks"
        : crowded ? "thread CPU time, largest over ranks: the rate of a rank that has a core "
                    "to itself, which ranks here share"
                  : "thread CPU time, largest over ranks",
        failed);
    sbp_json_put_number(measured, "seed", (double)origin->seed, failed);
    sbp_json_put_measured(measured, "budget_s", origin->budget_s, failed);
    sbp_json_put_measured(measured, "wall_s", origin->wall_s, failed);
}

static void add_error(bool *failed, cJSON *object, const struct sbp_fit_error *error)
{
    sbp_json_put_measured(object, "median_relative_error", error->median, failed);
    sbp_json_put_measured(object, "max_relative_error", error->max, failed);
    sbp_json_put_measured(object, "predicted_to_measured", error->ratio, failed);
}

static void add_fit(bool *failed, cJSON *object, const struct sbp_fit *fit)
{
    sbp_json_put_measured(object, "alpha_s", fit->alpha_s, failed);
    sbp_json_put_measured(object, "beta_s_per_byte", fit->beta_s_per_byte, failed);
    add_error(failed, object, &fit->error);
}

/* Every way of weighting, so that another one can be taken without measuring again. */
static void add_fits(bool *failed, cJSON *measured, const struct sbp_calibration *calibration,
                     const struct sbp_calibrated *calibrated)
{
    sbp_json_put_text(measured, "method", calibrated->network == NULL ? "paper" : "curves", failed);
    sbp_json_put_text(measured, "weights", sbp_fit_weights_names[calibrated->weights], failed);
    sbp_json_put_number(measured, "points", calibrated->points, failed);
    sbp_json_put_number(measured, "points_planned", calibration->collectives.count, failed);
    sbp_json_put_number(measured, "points_settled", calibrated->settled, failed);
    if (calibrated->fit[calibrated->weights].error.points == 0)
        return;
    cJSON *fits = sbp_json_put_object(measured, "fits", failed);
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++)
        add_fit(failed, sbp_json_put_object(fits, sbp_fit_weights_names[w], failed),
                &calibrated->fit[w]);
}

static void add_kinds(bool *failed, cJSON *measured, const struct sbp_calibrated *calibrated)
{
    cJSON *kinds = sbp_json_put_array(measured, "collectives", failed);
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        const struct sbp_fit *alone = &calibrated->alone[kind];
        cJSON *element = sbp_json_push_object(kinds, failed);
        sbp_json_put_text(element, "kind", sbp_collective_name((enum sbp_collective)kind), failed);
        sbp_json_put_bool(element, "fitted", (kind == SBP_SEND_RECV) == calibrated->of_messages,
                          failed);
        sbp_json_put_number(element, "points", calibrated->kind_error[kind].points, failed);
        sbp_json_put_number(element, "points_settled", calibrated->kind_settled[kind], failed);
        add_error(failed, element, &calibrated->kind_error[kind]);
        if (alone->error.points > 0)
            add_fit(failed, sbp_json_put_object(element, "alone", failed), alone);
    }
}

struct cJSON *sbp_calibration_json(const struct sbp_calibration *calibration,
                                   const struct sbp_calibrated *calibrated)
{
    bool failed = false;
    cJSON *root = cJSON_CreateObject();
    sbp_json_put_text(root, "name", calibration->origin.name, &failed);
    if (calibrated->network == NULL)
        add_levels(&failed, root, calibration, calibrated);
    else
        add_network(&failed, root, &calibrated->network->fit);
    add_device(&failed, root, calibration, calibrated);
    cJSON *measured = sbp_json_put_object(root, "measured", &failed);
    add_origin(&failed, measured, calibration);
    sbp_json_put_text(measured, "samples", sbp_file_name(calibration->samples_path), &failed);
    add_fits(&failed, measured, calibration, calibrated);
    add_kinds(&failed, measured, calibrated);
    add_findings(&failed, measured, &calibration->findings);
    if (calibrated->network != NULL)
        sbp_json_put(measured, "quality", sbp_network_quality_json(&calibrated->network->fit),
                     &failed);
    if (!failed)
        return root;
    cJSON_Delete(root);
    return NULL;
}
