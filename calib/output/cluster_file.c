#include "calib/output/cluster_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"

/* Latency of an NVLink hop under NCCL's simple protocol (NCCL, src/graph/tuning.cc, 3.4 us). */
#define LINK_ALPHA_S 3.4e-6

static struct cJSON *done(struct cJSON *root, bool failed)
{
    if (!failed)
        return root;
    cJSON_Delete(root);
    return NULL;
}

/* --- the network --- */

static void put_formula(struct cJSON *object, const struct sbp_formula *formula, bool *failed)
{
    static const char *const KEYS[SBP_NETWORK_TERMS] = {
        [SBP_LAUNCH] = "launch_s",
        [SBP_INTRA_STEP] = "intra_step_s",
        [SBP_INTER_STEP] = "inter_step_s",
        [SBP_INTRA_BYTE] = "intra_s_per_byte",
        [SBP_INTER_BYTE] = "inter_s_per_byte",
    };
    struct cJSON *at = sbp_json_put_object(object, "formula", failed);
    for (int i = 0; i < SBP_NETWORK_TERMS; i++)
        sbp_json_put_measured(at, KEYS[i], formula->coefficient[i], failed);
    sbp_json_put_measured(at, "error", formula->error, failed);
    sbp_json_put_measured(at, "beyond_error", formula->beyond_error, failed);
}

static void put_curve(struct cJSON *array, const struct sbp_shape_curve *curve, int points,
                      bool *failed)
{
    struct cJSON *at = sbp_json_push_object(array, failed);
    sbp_json_put_number(at, "nodes", (double)curve->nodes, failed);
    sbp_json_put_number(at, "ranks_per_node", (double)curve->ranks_per_node, failed);
    sbp_json_put_measured(at, "error", curve->error, failed);
    sbp_json_put_number(at, "points", points, failed);
    struct cJSON *segments = sbp_json_put_array(at, "segments", failed);
    for (int k = 0; k < curve->segment_count && !*failed; k++) {
        const struct sbp_segment *segment = &curve->segment[k];
        struct cJSON *item = sbp_json_push_object(segments, failed);
        sbp_json_put_number(item, "first_bytes", segment->first_bytes, failed);
        sbp_json_put_number(item, "last_bytes", segment->last_bytes, failed);
        sbp_json_put_measured(item, "alpha_s", segment->alpha_s, failed);
        sbp_json_put_measured(item, "beta_s_per_byte", segment->beta_s_per_byte, failed);
    }
}

static struct cJSON *network_json(const struct sbp_network_fit *fit)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    for (int kind = 0; kind < SBP_COLLECTIVES && !failed; kind++) {
        if (!fit->network.formula[kind].is_given)
            continue;
        struct cJSON *at =
            sbp_json_put_object(root, sbp_collective_name((enum sbp_collective)kind), &failed);
        put_formula(at, &fit->network.formula[kind], &failed);
        struct cJSON *curves = sbp_json_put_array(at, "curves", &failed);
        for (int s = 0; s < fit->network.curve_count && !failed; s++)
            if ((int)fit->network.curve[s].kind == kind)
                put_curve(curves, &fit->network.curve[s], fit->shapes.shape[s].points, &failed);
    }
    return done(root, failed);
}

/* --- levels --- */

static void put_level(struct cJSON *levels, const char *name, int size,
                      const struct sbp_network_level *level, int ports, const char *source,
                      bool *failed)
{
    struct cJSON *at = sbp_json_push_object(levels, failed);
    sbp_json_put_text(at, "name", name, failed);
    sbp_json_put_number(at, "size", size, failed);
    sbp_json_put_measured(at, "alpha_s", level->alpha_s, failed);
    sbp_json_put_measured(at, "beta_s_per_byte", level->beta_s_per_byte, failed);
    if (ports > 0)
        sbp_json_put_number(at, "ports", ports, failed);
    sbp_json_put_text(at, "source", source, failed);
}

/* Lists the level of nodes where groups over several nodes were measured, then that of devices.
 * link: the preset whose link counts where no group within a node was measured; NULL: the level
 * between nodes counts. nodes: of the cluster, 0: the most that were measured. device: the
 * innermost level's name. */
static struct cJSON *levels_json(const struct sbp_network_fit *fit, const struct sbp_preset *link,
                                 int nodes, const char *device)
{
    static const char measured[] = "fitted to all measured collectives, for those not measured";
    bool failed = false;
    struct cJSON *levels = cJSON_CreateArray();
    struct sbp_network_level within = fit->within;
    const char *source = measured;
    if (!within.is_measured && link != NULL && link->link_bytes_per_s > 0) {
        within = (struct sbp_network_level){true, LINK_ALPHA_S, 1 / link->link_bytes_per_s};
        source = link->link;
    } else if (!within.is_measured) {
        within = fit->between;
        source = "not measured: taken for that between nodes";
    }
    const int size = nodes > 0 ? nodes : fit->nodes;
    const struct sbp_network_level *between = fit->between.is_measured ? &fit->between : &within;
    if (size > 1)
        put_level(levels, "node", size, between, fit->network.ports,
                  fit->between.is_measured ? measured : "not measured: taken for that within nodes",
                  &failed);
    put_level(levels, device, fit->ranks_per_node, &within, 0, source, &failed);
    return done(levels, failed || levels == NULL);
}

/* --- device --- */

/* Puts the members that measured devices and presets share; name NULL: none. */
static struct cJSON *put_device(struct cJSON *root, const char *name, int64_t memory_bytes,
                                const double flops[SBP_TYPES], double memory_bytes_per_s,
                                bool *failed)
{
    struct cJSON *device = sbp_json_put_object(root, "device", failed);
    sbp_json_put_text(device, "name", name, failed);
    sbp_json_put_number(device, "memory_bytes", (double)memory_bytes, failed);
    struct cJSON *rates = sbp_json_put_object(device, "flops", failed);
    for (int type = 0; type < SBP_TYPES; type++)
        if (flops[type] > 0)
            sbp_json_put_measured(rates, sbp_cluster_type_name((enum sbp_type)type), flops[type],
                                  failed);
    sbp_json_put_measured(device, "memory_bytes_per_s", memory_bytes_per_s, failed);
    return device;
}

static void put_preset(struct cJSON *root, const struct sbp_preset *preset, bool *failed)
{
    struct cJSON *device = put_device(root, preset->title, preset->memory_bytes, preset->flops,
                                      preset->memory_bytes_per_s, failed);
    sbp_json_put_number(device, "host_link_bytes_per_s", preset->host_link_bytes_per_s, failed);
    sbp_json_put_text(device, "source", preset->source, failed);
}

static void put_sizes(struct cJSON *object, const char *key, const int64_t *sizes, int count,
                      bool *failed)
{
    struct cJSON *array = sbp_json_put_array(object, key, failed);
    for (int i = 0; i < count; i++)
        sbp_json_push_number(array, (double)sizes[i], failed);
}

/* Shares of the peak on a grid. Forward has no pass, so that it serves backward where that has
 * none.
 */
static void put_grid(struct cJSON *grids, const char *const sizes[SBP_RATE_AXES],
                     enum sbp_type type, int pass, const struct sbp_grid_fit *fit,
                     double peak_flops, bool *failed)
{
    if (fit->timed == 0)
        return;
    struct cJSON *at = sbp_json_push_object(grids, failed);
    if (type != SBP_FP32)
        sbp_json_put_text(at, "type", sbp_cluster_type_name(type), failed);
    if (pass != SBP_PASS_FORWARD)
        sbp_json_put_text(at, "pass", sbp_device_pass_name((enum sbp_pass)pass), failed);
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        put_sizes(at, sizes[axis], fit->size[axis], fit->count[axis], failed);
    struct cJSON *shares = sbp_json_put_array(at, "efficiency", failed);
    for (int i = 0; i < sbp_grid_fit_rates(fit); i++)
        sbp_json_push_measured(
            shares, fmax(SBP_DEVICE_LEAST_SHARE, fmin(1, fit->flops[i] / peak_flops)), failed);
}

static void put_products(struct cJSON *device, const struct sbp_calibrated *calibrated,
                         bool *failed)
{
    static const char *const SIZES[] = {"m", "n", "k"};
    struct cJSON *array = sbp_json_put_array(device, "gemm_grids", failed);
    for (int i = 0; i < calibrated->grid_count; i++) {
        const struct sbp_product_grids *grids = &calibrated->grids[i];
        for (int pass = 0; pass < SBP_PASSES; pass++)
            put_grid(array, SIZES, grids->type, pass, &grids->pass[pass],
                     calibrated->flops[grids->type], failed);
    }
}

/* A factor of what gemm_grids give; it ends at 1. */
static void put_grouped(struct cJSON *device, const struct sbp_calibrated *calibrated, bool *failed)
{
    struct cJSON *factors = NULL;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        if (calibrated->grouped[pass].sizes == 0)
            continue;
        if (factors == NULL)
            factors = sbp_json_put_object(device, "grouped_efficiency", failed);
        sbp_json_put_measured(
            factors, sbp_device_pass_name((enum sbp_pass)pass),
            fmax(SBP_DEVICE_LEAST_SHARE, fmin(1, calibrated->grouped[pass].middle)), failed);
    }
}

static void put_attention(struct cJSON *device, const struct sbp_calibrated *calibrated,
                          bool *failed)
{
    static const char *const SIZES[] = {"head_size", "sequence", "rows"};
    const struct sbp_attention_fit *fit = &calibrated->attention;
    if (sbp_attention_fit_is_empty(fit))
        return;
    struct cJSON *grids = sbp_json_put_array(device, "attention_grids", failed);
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++)
        put_grid(grids, SIZES, fit->type, pass, &fit->grid[pass], calibrated->flops[fit->type],
                 failed);
}

/* Memory is as fast as what moved most of it a second: sums outrun the copies of some C libraries,
 * and a share ends at 1. */
static double memory_rate(const struct sbp_calibrated *calibrated)
{
    return fmax(calibrated->copy_bytes_per_s, calibrated->stream_bytes_per_s);
}

/* Copies whose rows a cache brings ahead may be as fast as the memory, not faster. */
static void put_dispatch(struct cJSON *device, const struct sbp_calibrated *calibrated,
                         bool *failed)
{
    if (calibrated->dispatch.sizes == 0)
        return;
    struct cJSON *at = sbp_json_put_object(device, "dispatch_efficiency", failed);
    put_sizes(at, "row_bytes", calibrated->dispatch.row_bytes, calibrated->dispatch.sizes, failed);
    struct cJSON *shares = sbp_json_put_array(at, "efficiency", failed);
    for (int i = 0; i < calibrated->dispatch.sizes; i++)
        sbp_json_push_measured(
            shares,
            fmax(SBP_DEVICE_LEAST_SHARE,
                 fmin(1, calibrated->dispatch.bytes_per_s[i] / memory_rate(calibrated))),
            failed);
}

static void put_own_device(struct cJSON *root, const struct sbp_calibration *calibration,
                           const struct sbp_calibrated *calibrated, bool *failed)
{
    const struct sbp_calibration_origin *origin = &calibration->origin;
    struct cJSON *device =
        put_device(root, sbp_calibrate_is_gpu(calibration) ? origin->device : NULL,
                   origin->memory_bytes, calibrated->flops, memory_rate(calibrated), failed);
    /* Kernels of a GPU follow each other, and times of products hold the gaps between them. */
    if (calibration->compute.launch_s > 0 && !sbp_calibrate_is_gpu(calibration))
        sbp_json_put_measured(device, "kernel_launch_s", calibration->compute.launch_s, failed);
    if (calibrated->host_link_bytes_per_s > 0)
        sbp_json_put_measured(device, "host_link_bytes_per_s", calibrated->host_link_bytes_per_s,
                              failed);
    if (calibrated->sustained > 0)
        sbp_json_put_measured(sbp_json_put_object(device, "sustained", failed),
                              sbp_cluster_type_name(calibration->compute.loaded.type),
                              calibrated->sustained, failed);
    if (calibrated->stream_bytes_per_s > 0)
        sbp_json_put_measured(device, "stream_efficiency",
                              calibrated->stream_bytes_per_s / memory_rate(calibrated), failed);
    if (calibrated->vector_operations_per_s > 0)
        sbp_json_put_measured(device, "vector_operations_per_s",
                              calibrated->vector_operations_per_s, failed);
    if (calibrated->hidden_of_all.sizes > 0)
        sbp_json_put_measured(device, "overlap_efficiency",
                              fmax(SBP_DEVICE_LEAST_SHARE, calibrated->hidden_of_all.middle),
                              failed);
    if (calibration->compute.host_s > 0)
        sbp_json_put_measured(device, "host_launch_s", calibration->compute.host_s, failed);
    put_dispatch(device, calibrated, failed);
    put_grouped(device, calibrated, failed);
    put_attention(device, calibrated, failed);
    put_products(device, calibrated, failed);
}

/* --- quality --- */

static void put_errors(struct cJSON *object, const char *key, const struct sbp_errors *errors,
                       bool *failed)
{
    if (errors->count == 0)
        return;
    struct cJSON *at = sbp_json_put_object(object, key, failed);
    sbp_json_put_number(at, "points", errors->count, failed);
    sbp_json_put_measured(at, "median", errors->median, failed);
    sbp_json_put_measured(at, "nine_of_ten", errors->most, failed);
    sbp_json_put_measured(at, "mis_ordered_pairs", errors->mis_ordered, failed);
}

static void put_group(struct cJSON *array, const struct sbp_measured_group *shape,
                      const struct sbp_shape_quality *quality, bool *failed)
{
    struct cJSON *at = sbp_json_push_object(array, failed);
    sbp_json_put_text(at, "collective", sbp_collective_name(shape->kind), failed);
    sbp_json_put_number(at, "nodes", shape->nodes, failed);
    sbp_json_put_number(at, "ranks_per_node", shape->ranks_per_node, failed);
    sbp_json_put_number(at, "sizes", shape->count, failed);
    sbp_json_put_number(at, "tables", shape->tables, failed);
    if (quality == NULL)
        return;
    sbp_json_put_text(at, "method", sbp_curve_method_text(quality->method), failed);
    sbp_json_put_measured(at, "in_sample", quality->in_sample, failed);
    sbp_json_put_measured(at, "held_out_sizes", quality->held_out_sizes, failed);
    if (!isnan(quality->held_out_shape))
        sbp_json_put_measured(at, "held_out_group", quality->held_out_shape, failed);
}

static struct cJSON *quality_json(const struct sbp_network_fit *fit)
{
    bool failed = false;
    const struct sbp_quality *quality = &fit->quality;
    struct cJSON *root = cJSON_CreateObject();
    put_errors(root, "in_sample", &quality->in_sample, &failed);
    put_errors(root, "held_out_sizes", &quality->held_out_sizes, &failed);
    put_errors(root, "held_out_groups_between_others", &quality->between, &failed);
    put_errors(root, "held_out_groups_beyond_others", &quality->beyond, &failed);
    if (quality->in_sample.falling > 0)
        sbp_json_put_measured(root, "falling_pairs", quality->in_sample.falling, &failed);
    if (quality->noise > 0)
        sbp_json_put_measured(root, "noise_of_a_point", quality->noise, &failed);
    struct cJSON *groups = sbp_json_put_array(root, "groups", &failed);
    for (int s = 0; s < fit->shapes.count && !failed; s++)
        put_group(groups, &fit->shapes.shape[s], quality->shape == NULL ? NULL : &quality->shape[s],
                  &failed);
    struct cJSON *few = sbp_json_put_array(root, "groups_of_too_few_sizes", &failed);
    for (int s = 0; s < fit->shapes.few_count && !failed; s++)
        put_group(few, &fit->shapes.few[s], NULL, &failed);
    if (fit->shapes.over_count > 0)
        sbp_json_put_number(root, "groups_beyond_what_a_file_holds", fit->shapes.over_count,
                            &failed);
    return done(root, failed);
}

/* --- from logs --- */

/* Lists every table that points came from, once. */
static void put_sources(struct cJSON *object, const struct sbp_measured *measured, bool *failed)
{
    struct cJSON *array = sbp_json_put_array(object, "logs", failed);
    for (int i = 0; i < measured->source_count && !*failed; i++) {
        const struct sbp_measured_source *source = &measured->source[i];
        struct cJSON *at = sbp_json_push_object(array, failed);
        sbp_json_put_text(at, "file", sbp_file_name(source->name), failed);
        sbp_json_put_number(at, "table", source->table, failed);
        sbp_json_put_text(at, "library", source->library, failed);
        sbp_json_put_text(at, "network", source->network, failed);
        sbp_json_put_text(at, "date", source->date, failed);
    }
}

static void put_left_out(struct cJSON *object, const struct sbp_logs *logs, bool *failed)
{
    struct cJSON *array = sbp_json_put_array(object, "left_out", failed);
    for (int n = 0; n < logs->note_count && !*failed; n++) {
        const struct sbp_log_note *note = &logs->note[n];
        if (sbp_log_reasons[note->reason].effect == SBP_LOG_TOLD)
            continue;
        struct cJSON *at = sbp_json_push_object(array, failed);
        sbp_json_put_text(at, "file", sbp_file_name(logs->file[note->file]), failed);
        sbp_json_put_number(at, "line", note->line, failed);
        sbp_json_put_text(at, "reason", sbp_log_reasons[note->reason].name, failed);
    }
}

struct cJSON *sbp_cluster_file_of_logs(const struct sbp_network_fit *fit,
                                       const struct sbp_cluster_file_logs *file)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    const bool has_network = sbp_network_is_given(&fit->network);
    sbp_json_put_text(root, "name", file->name, &failed);
    sbp_json_put_text(root, "collectives", has_network ? "hierarchical" : "ring", &failed);
    sbp_json_put(root, "levels", levels_json(fit, file->preset, file->nodes, "gpu"), &failed);
    put_preset(root, file->preset, &failed);
    if (has_network)
        sbp_json_put(root, "network", network_json(fit), &failed);
    struct cJSON *measured = sbp_json_put_object(root, "measured", &failed);
    sbp_json_put_text(measured, "method", has_network ? "curves" : "paper", &failed);
    sbp_json_put_text(measured, "version", SBP_VERSION, &failed);
    put_sources(measured, file->measured, &failed);
    if (file->logs != NULL)
        put_left_out(measured, file->logs, &failed);
    sbp_json_put(measured, "quality", quality_json(fit), &failed);
    return done(root, failed);
}

struct cJSON *sbp_cluster_file_of_fit(const struct sbp_network_fit *fit)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    sbp_json_put(root, "quality", quality_json(fit), &failed);
    sbp_json_put(root, "network", network_json(fit), &failed);
    sbp_json_put(root, "levels", levels_json(fit, NULL, 0, "gpu"), &failed);
    return done(root, failed);
}

/* --- from a calibration --- */

/* Writes "NAME=value" lines as an object. */
static void put_settings(struct cJSON *measured, const char *settings, bool *failed)
{
    struct cJSON *object = sbp_json_put_object(measured, "settings", failed);
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

static void put_findings(struct cJSON *measured, const struct sbp_sample_findings *findings,
                         bool *failed)
{
    struct cJSON *list = sbp_json_put_array(measured, "findings", failed);
    for (int i = 0; i < findings->count; i++)
        sbp_json_push_text(list, findings->line[i], failed);
}

static void put_calibration(struct cJSON *measured, const struct sbp_calibration *calibration,
                            bool *failed)
{
    const struct sbp_calibration_origin *origin = &calibration->origin;
    const bool crowded = sbp_calibrate_is_crowded(calibration);
    const char *const words[][2] = {
        {"date", origin->date},         {"command", origin->command}, {"version", origin->version},
        {"compiler", origin->compiler}, {"host", origin->host},       {"system", origin->system},
        {"cpu", origin->cpu},           {"backend", origin->backend}, {"library", origin->library},
        {"driver", origin->driver},     {"binding", origin->binding}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        sbp_json_put_text(measured, words[i][0], words[i][1], failed);
    if (origin->launcher[0] != '\0')
        sbp_json_put_text(measured, "launcher", origin->launcher, failed);
    if (origin->job[0] != '\0')
        sbp_json_put_text(measured, "job", origin->job, failed);
    put_settings(measured, origin->settings, failed);
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
    sbp_json_put_text(measured, "communication_times",
                      sbp_points_statistics[calibration->statistic], failed);
    if (sbp_calibrate_is_gpu(calibration))
        sbp_json_put_text(measured, "device", origin->device, failed);
    sbp_json_put_text(
        measured, "compute_clock",
        sbp_calibrate_is_gpu(calibration) ? "events of the GPU, largest over ranks"
        : crowded ? "thread CPU time, largest over ranks: the rate of a rank that has a core "
                    "to itself, which ranks here share"
                  : "thread CPU time, largest over ranks",
        failed);
    sbp_json_put_number(measured, "seed", (double)origin->seed, failed);
    sbp_json_put_measured(measured, "budget_s", origin->budget_s, failed);
    sbp_json_put_measured(measured, "wall_s", origin->wall_s, failed);
}

/* What stands behind single numbers of the device: shares that hide by collective, and how long the
 * load was that left the sustained rate. */
static void put_details(struct cJSON *measured, const struct sbp_calibration *calibration,
                        const struct sbp_calibrated *calibrated, bool *failed)
{
    struct cJSON *hidden = NULL;
    if (calibrated->sustained > 0)
        sbp_json_put_number(measured, "load_s", (double)calibration->compute.load_s, failed);
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        if (calibrated->hidden[kind].sizes == 0)
            continue;
        if (hidden == NULL)
            hidden = sbp_json_put_object(measured, "overlap", failed);
        sbp_json_put_measured(hidden, sbp_collective_name((enum sbp_collective)kind),
                              calibrated->hidden[kind].middle, failed);
    }
}

static void put_error(struct cJSON *object, const struct sbp_fit_error *error, bool *failed)
{
    sbp_json_put_measured(object, "median_relative_error", error->median, failed);
    sbp_json_put_measured(object, "max_relative_error", error->max, failed);
    sbp_json_put_measured(object, "predicted_to_measured", error->ratio, failed);
}

static void put_fit(struct cJSON *object, const struct sbp_fit *fit, bool *failed)
{
    sbp_json_put_measured(object, "alpha_s", fit->alpha_s, failed);
    sbp_json_put_measured(object, "beta_s_per_byte", fit->beta_s_per_byte, failed);
    put_error(object, &fit->error, failed);
}

/* Writes every way of weighting, so that another one can be taken without measuring again. */
static void put_fits(struct cJSON *measured, const struct sbp_calibrated *calibrated, bool *failed)
{
    sbp_json_put_text(measured, "method", calibrated->network == NULL ? "paper" : "curves", failed);
    sbp_json_put_text(measured, "weights", sbp_fit_weights_names[calibrated->weights], failed);
    sbp_json_put_number(measured, "points", calibrated->points, failed);
    sbp_json_put_number(measured, "points_planned", calibrated->points, failed);
    sbp_json_put_number(measured, "points_settled", calibrated->settled, failed);
    if (calibrated->fit[calibrated->weights].error.points == 0)
        return;
    struct cJSON *fits = sbp_json_put_object(measured, "fits", failed);
    for (int w = 0; w < SBP_FIT_WEIGHTS; w++)
        put_fit(sbp_json_put_object(fits, sbp_fit_weights_names[w], failed), &calibrated->fit[w],
                failed);
}

static void put_kinds(struct cJSON *measured, const struct sbp_calibrated *calibrated, bool *failed)
{
    struct cJSON *kinds = sbp_json_put_array(measured, "collectives", failed);
    for (int kind = 0; kind < (int)SBP_FIT_KINDS; kind++) {
        const struct sbp_fit *alone = &calibrated->alone[kind];
        struct cJSON *element = sbp_json_push_object(kinds, failed);
        sbp_json_put_text(element, "kind", sbp_collective_name((enum sbp_collective)kind), failed);
        sbp_json_put_bool(element, "fitted", (kind == SBP_SEND_RECV) == calibrated->of_messages,
                          failed);
        sbp_json_put_number(element, "points", calibrated->kind_error[kind].points, failed);
        sbp_json_put_number(element, "points_settled", calibrated->kind_settled[kind], failed);
        put_error(element, &calibrated->kind_error[kind], failed);
        if (alone->error.points > 0)
            put_fit(sbp_json_put_object(element, "alone", failed), alone, failed);
    }
}

struct cJSON *sbp_cluster_file_of_calibration(const struct sbp_calibration *calibration,
                                              const struct sbp_calibrated *calibrated)
{
    bool failed = false;
    const struct sbp_calibrated_network *network = calibrated->network;
    struct cJSON *root = cJSON_CreateObject();
    sbp_json_put_text(root, "name", calibration->origin.name, &failed);
    if (network == NULL) {
        const struct sbp_fit *fit = &calibrated->fit[calibrated->weights];
        const struct sbp_network_level level = {true, fit->alpha_s, fit->beta_s_per_byte};
        put_level(sbp_json_put_array(root, "levels", &failed), "rank", calibration->origin.ranks,
                  &level, 1, NULL, &failed);
    } else {
        sbp_json_put_text(root, "collectives", "hierarchical", &failed);
        sbp_json_put(root, "levels", levels_json(&network->fit, NULL, 0, "rank"), &failed);
        sbp_json_put(root, "network", network_json(&network->fit), &failed);
    }
    put_own_device(root, calibration, calibrated, &failed);
    struct cJSON *measured = sbp_json_put_object(root, "measured", &failed);
    put_calibration(measured, calibration, &failed);
    put_details(measured, calibration, calibrated, &failed);
    sbp_json_put_text(measured, "samples", sbp_file_name(calibration->samples_path), &failed);
    if (!sbp_calibrate_is_alone(calibration)) {
        put_fits(measured, calibrated, &failed);
        put_kinds(measured, calibrated, &failed);
    }
    put_findings(measured, &calibration->findings, &failed);
    if (network != NULL)
        sbp_json_put(measured, "quality", quality_json(&network->fit), &failed);
    return done(root, failed);
}
