#include <math.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "calib/output/network_text.h"

/* NCCL's own, of an NVLink hop under its simple protocol (src/graph/tuning.cc, 3.4 us). */
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

struct cJSON *sbp_network_json(const struct sbp_network_fit *fit)
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

/* --- levels and device --- */

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

struct cJSON *sbp_network_levels_json(const struct sbp_network_fit *fit,
                                      const struct sbp_preset *link, int nodes, const char *device)
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

static struct cJSON *device_json(const struct sbp_preset *preset)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    sbp_json_put_text(root, "name", preset->title, &failed);
    sbp_json_put_number(root, "memory_bytes", (double)preset->memory_bytes, &failed);
    struct cJSON *flops = sbp_json_put_object(root, "flops", &failed);
    for (int type = 0; type < SBP_TYPES; type++)
        if (preset->flops[type] > 0)
            sbp_json_put_number(flops, sbp_cluster_type_name((enum sbp_type)type),
                                preset->flops[type], &failed);
    sbp_json_put_number(root, "memory_bytes_per_s", preset->memory_bytes_per_s, &failed);
    sbp_json_put_number(root, "host_link_bytes_per_s", preset->host_link_bytes_per_s, &failed);
    sbp_json_put_text(root, "source", preset->source, &failed);
    return done(root, failed);
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

struct cJSON *sbp_network_quality_json(const struct sbp_network_fit *fit)
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

/* --- the cluster file --- */

/* Every table that points came from, once. */
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

struct cJSON *sbp_network_file_json(const struct sbp_network_fit *fit,
                                    const struct sbp_network_file *file)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    const bool has_network = sbp_network_is_given(&fit->network);
    sbp_json_put_text(root, "name", file->name, &failed);
    sbp_json_put_text(root, "collectives", has_network ? "hierarchical" : "ring", &failed);
    sbp_json_put(root, "levels", sbp_network_levels_json(fit, file->preset, file->nodes, "gpu"),
                 &failed);
    sbp_json_put(root, "device", device_json(file->preset), &failed);
    if (has_network)
        sbp_json_put(root, "network", sbp_network_json(fit), &failed);
    struct cJSON *measured = sbp_json_put_object(root, "measured", &failed);
    sbp_json_put_text(measured, "method", has_network ? "curves" : "paper", &failed);
    sbp_json_put_text(measured, "version", SBP_VERSION, &failed);
    put_sources(measured, file->measured, &failed);
    if (file->logs != NULL)
        put_left_out(measured, file->logs, &failed);
    sbp_json_put(measured, "quality", sbp_network_quality_json(fit), &failed);
    return done(root, failed);
}
