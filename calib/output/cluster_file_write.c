/* Reads a cluster file back before it is put in place, and says whose times lead to what no reader
 * takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "calib/output/cluster_file.h"

/* Some of the measured points: those of one kind, or of one group shape of it. */
struct part {
    bool is_one_kind, is_one_shape;
    enum sbp_collective kind;
    int64_t nodes, ranks_per_node;
};

/* Finds the points behind "network.all-reduce.curves[3].error" and the like, as the reader names a
 * place; false: the place comes of no collective. */
static bool find_part(const char *refusal, const struct sbp_network_fit *fit, struct part *part)
{
    char key[64];
    *part = (struct part){.is_one_kind = false};
    for (int kind = 0; kind < SBP_COLLECTIVES && !part->is_one_kind; kind++) {
        (void)snprintf(key, sizeof key, ": network.%s.",
                       sbp_collective_name((enum sbp_collective)kind));
        const char *place = strstr(refusal, key);
        if (place == NULL)
            continue;
        part->is_one_kind = true;
        part->kind = (enum sbp_collective)kind;
        int curve = -1;
        (void)sscanf(place + strlen(key), "curves[%d]", &curve);
        for (int i = 0; fit != NULL && i < fit->network.curve_count && curve >= 0; i++) {
            const struct sbp_shape_curve *at = &fit->network.curve[i];
            if (at->kind != part->kind || curve-- > 0)
                continue;
            part->is_one_shape = true;
            part->nodes = at->nodes;
            part->ranks_per_node = at->ranks_per_node;
        }
    }
    return part->is_one_kind || strstr(refusal, ": levels[") != NULL;
}

static bool is_of(const struct part *part, const struct sbp_measured_point *point)
{
    return (!part->is_one_kind || point->kind == part->kind) &&
           (!part->is_one_shape ||
            (point->nodes == part->nodes && point->ranks_per_node == part->ranks_per_node));
}

/* "s.jsonl: line 5: all-reduce of 2 x 4 ranks, 8 B in 1e-05 s" */
static void add_point(struct sbp_text *text, const struct sbp_measured *measured,
                      const struct sbp_measured_point *point)
{
    char size[32];
    sbp_text_add(text, "%.120s: ", measured->source[point->source].name);
    if (point->line > 0)
        sbp_text_add(text, "line %d: ", point->line);
    sbp_text_add(text, "%s of %d x %d ranks, %s in %.3g s", sbp_collective_name(point->kind),
                 point->nodes, point->ranks_per_node, sbp_format_bytes(point->bytes, size),
                 point->time_s);
}

/* Adds the shortest and the longest of the times that lead to the refusal. */
static void add_cause(struct sbp_text *text, const char *refusal,
                      const struct sbp_measured *measured, const struct sbp_network_fit *fit)
{
    struct part part;
    const struct sbp_measured_point *shortest = NULL, *longest = NULL;
    if (!find_part(refusal, fit, &part))
        return;
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        if (!is_of(&part, point))
            continue;
        shortest = shortest == NULL || point->time_s < shortest->time_s ? point : shortest;
        longest = longest == NULL || point->time_s > longest->time_s ? point : longest;
    }
    if (shortest == NULL)
        return;
    sbp_text_add(text, "; its shortest time is ");
    add_point(text, measured, shortest);
    sbp_text_add(text, ", its longest ");
    add_point(text, measured, longest);
}

enum sbp_status sbp_cluster_file_write(const struct cJSON *json, const char *path,
                                       const char *source, const struct sbp_measured *measured,
                                       const struct sbp_network_fit *fit, struct sbp_diag *diag)
{
    struct sbp_cluster cluster;
    struct sbp_arena arena = {0};
    struct sbp_json at;
    struct cJSON *root = NULL;
    struct sbp_diag why = {0};
    char *text = json == NULL ? NULL : sbp_json_text(json);
    if (text == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory for a cluster file", source);
    enum sbp_status status = sbp_json_parse(text, "cluster file", &root, &at, &why);
    if (status == SBP_OK)
        status = sbp_cluster_read(&at, &arena, &cluster);
    sbp_arena_free(&arena);
    cJSON_Delete(root);
    if (status == SBP_OK) {
        status = path == NULL ? SBP_OK : sbp_file_write(path, text, strlen(text), diag);
    } else {
        struct sbp_text message = {0};
        sbp_text_add(&message, "%.200s: what it gives is no %s", source, why.text);
        if (status == SBP_E_INPUT)
            add_cause(&message, why.text, measured, fit);
        status = sbp_fail(diag, status, "%s", message.failed ? why.text : message.bytes);
        sbp_text_free(&message);
    }
    free(text);
    return status;
}
