/* Reads the JSON that nccl-tests writes beside its table (-J FILE; src/util.cu, version 3).
 *
 * Traps: truth values are strings, NaN is "nan"; `devices` has an entry per process, not per
 * device; a run that was aborted leaves the file open (since 2.18.5 closed, but without an
 * average). Of `env`, which holds the whole environment, only settings of the network are read.
 */
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json.h"
#include "calib/logs/log_parts_priv.h"

#define PRINTED_SLACK 0.5e-6 /* numbers have six decimals */

static const struct cJSON *member(const struct cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool number(const struct cJSON *object, const char *key, double *value)
{
    const struct cJSON *item = member(object, key);
    if (!cJSON_IsNumber(item))
        return false;
    *value = item->valuedouble;
    return true;
}

/* Reads a whole number from 0 on that fits an int. */
static int whole(const struct cJSON *object, const char *key, int absent)
{
    double value;
    return number(object, key, &value) && value >= 0 && value <= 1e8 ? (int)value : absent;
}

static bool is_text(const struct cJSON *object, const char *key, const char *text)
{
    const struct cJSON *item = member(object, key);
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

static const char *copy_text(struct sbp_arena *arena, const struct cJSON *item, int most)
{
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0')
        return NULL;
    return sbp_log_copy(arena, item->valuestring, (int)strlen(item->valuestring), most);
}

static const char *skip_said(const char *text)
{
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (strncmp(text, "#@", 2) != 0)
            return text;
        text += strcspn(text, "\n");
    }
}

bool sbp_log_is_json(const char *text)
{
    const char *at = skip_said(text);
    if (*at != '{')
        return false;
    at += 1 + strspn(at + 1, " \t\r\n");
    return *at == '"' || *at == '\0';
}

/* --- rows --- */

static bool read_half(const struct cJSON *half, struct sbp_log_half *into, bool *is_cpu_time)
{
    double time, algbw, busbw;
    const bool has_time = number(half, "time", &time);
    if (!has_time && number(half, "cpu_time", &time))
        *is_cpu_time = true;
    else if (!has_time)
        return false;
    if (!number(half, "alg_bw", &algbw) || !number(half, "bus_bw", &busbw))
        return false;
    double wrong = 0;
    into->is_there = true;
    into->time_us = (struct sbp_log_number){time, PRINTED_SLACK};
    into->algbw = (struct sbp_log_number){algbw, PRINTED_SLACK};
    into->busbw = (struct sbp_log_number){busbw, PRINTED_SLACK};
    into->is_checked = number(half, "nwrong", &wrong);
    into->is_wrong = wrong != 0;
    return true;
}

static enum sbp_status read_result(struct sbp_log_scan *scan, struct sbp_log_run *run,
                                   const struct cJSON *result)
{
    struct sbp_log_row row = {.line = 0};
    const struct cJSON *type = member(result, "type"), *redop = member(result, "redop");
    const struct cJSON *root = member(result, "root");
    const struct cJSON *halves[] = {member(result, "out_of_place"), member(result, "in_place")};
    bool is_whole = number(result, "size", &row.size_bytes) && row.size_bytes >= 0 &&
                    number(result, "count", &row.count) && row.count >= 0;
    for (int h = 0; h < SBP_LOG_HALVES; h++)
        if (cJSON_IsObject(halves[h]))
            is_whole = read_half(halves[h], &row.half[h], &run->is_cpu_time) && is_whole;
    if (cJSON_IsString(type))
        row.element_bytes =
            sbp_log_element_bytes(type->valuestring, (int)strlen(type->valuestring));
    row.reduces = cJSON_IsString(redop) && redop->valuestring[0] != '\0' &&
                  strcmp(redop->valuestring, "none") != 0;
    row.is_rooted = cJSON_IsString(root) && root->valuestring[0] != '\0' &&
                    strchr(root->valuestring, '-') == NULL;
    if (!is_whole || (!row.half[0].is_there && !row.half[1].is_there)) {
        run->broken_rows++;
        return SBP_OK;
    }
    return sbp_log_add_row(scan, run, &row) ? SBP_OK : SBP_E_MEMORY;
}

/* --- header and footer --- */

static enum sbp_status read_devices(struct sbp_log_scan *scan, struct sbp_log_run *run,
                                    const struct cJSON *devices)
{
    const double ranks = run->threads * run->gpus;
    const struct cJSON *item;
    cJSON_ArrayForEach(item, devices)
    {
        const char *bus = copy_text(&scan->arena, member(item, "device_hex"), 32);
        const struct sbp_log_device device = {
            .rank = whole(item, "rank", -1),
            .group = whole(item, "group", 0),
            .device = whole(item, "device", 0),
            .ranks = ranks >= 1 && ranks <= 1e6 ? (int)ranks : 1,
            .host = copy_text(&scan->arena, member(item, "hostname"), 255),
            .bus = bus == NULL ? "" : bus,
        };
        if (device.rank >= 0 && device.host != NULL && !sbp_log_add_device(scan, run, &device))
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

static enum sbp_status read_config(struct sbp_log_scan *scan, struct sbp_log_run *run,
                                   const struct cJSON *config)
{
    (void)number(config, "nthreads", &run->threads);
    (void)number(config, "ngpus", &run->gpus);
    (void)number(config, "minimum_bytes", &run->least_bytes);
    (void)number(config, "maximum_bytes", &run->most_bytes);
    run->is_factor = number(config, "step_factor", &run->step);
    if (!run->is_factor)
        (void)number(config, "step_bytes", &run->step);
    (void)number(config, "aggregated_iterations", &run->grouped);
    run->is_blocking = is_text(config, "blocking_collectives", "true");
    return read_devices(scan, run, member(config, "devices"));
}

static void read_footer(struct sbp_log_run *run, const struct cJSON *root)
{
    const struct cJSON *average = member(root, "average_bus_bandwidth");
    const struct cJSON *bounds = member(root, "out_of_bounds");
    if (number(average, "bandwidth", &run->average.value)) {
        run->average.slack = PRINTED_SLACK;
        run->average_line = 1;
        run->is_below = is_text(average, "okay", "false");
    } else {
        run->failure = (struct sbp_log_failure){
            1, "the results have no average: the run was aborted", "run again"};
    }
    (void)number(bounds, "count", &run->wrong);
    if (is_text(bounds, "okay", "false") || run->wrong > 0)
        run->wrong_line = 1;
}

static void read_program(struct sbp_log_scan *scan, struct sbp_log_run *run,
                         const struct cJSON *args)
{
    const struct cJSON *program = cJSON_GetArrayItem(args, 0);
    if (!cJSON_IsString(program))
        return;
    const char *name = sbp_file_name(program->valuestring);
    run->title = sbp_log_copy(&scan->arena, name, (int)strlen(name), 40);
    run->collective = sbp_log_collective_find(name, (int)strlen(name));
}

static void read_origin(struct sbp_log_scan *scan, struct sbp_log_run *run,
                        const struct cJSON *root)
{
    const struct cJSON *setting;
    const int code = whole(root, "nccl_version", 0);
    const int wide = code >= 10000 ? 10000 : 1000;
    char library[48];
    (void)snprintf(library, sizeof library, "NCCL %d.%d.%d", code / wide, code % wide / 100,
                   code % 100);
    run->library = code > 0 ? sbp_arena_strdup(&scan->arena, library) : NULL;
    run->date = copy_text(&scan->arena, member(root, "start_time"), 24);
    cJSON_ArrayForEach(setting, member(root, "env"))
    {
        if (cJSON_IsString(setting) && strncmp(setting->valuestring, "NCCL_", 5) == 0)
            sbp_log_network_sign(setting->valuestring, false, &run->network, &run->network_trust,
                                 &scan->arena);
    }
}

static enum sbp_status read_run(struct sbp_log_scan *scan, const struct cJSON *root)
{
    struct sbp_log_run *run = sbp_log_begin(scan, SBP_LOG_NCCL, 0);
    const struct cJSON *result;
    if (run == NULL)
        return SBP_E_MEMORY;
    run->is_announced = run->has_head = true;
    read_program(scan, run, member(root, "args"));
    read_origin(scan, run, root);
    SBP_TRY(read_config(scan, run, member(root, "config")));
    cJSON_ArrayForEach(result, member(root, "results"))
    {
        SBP_TRY(read_result(scan, run, result));
    }
    read_footer(run, root);
    return SBP_OK;
}

enum sbp_status sbp_log_scan_json(struct sbp_log_scan *scan, const char *text)
{
    struct sbp_diag diag = {{0}};
    struct sbp_json cursor;
    struct cJSON *root = NULL;
    enum sbp_status status = sbp_json_parse(skip_said(text), scan->name, &root, &cursor, &diag);
    if (status == SBP_OK) {
        if (cJSON_IsArray(member(root, "results")) || cJSON_IsObject(member(root, "config")))
            status = read_run(scan, root);
    } else if (status == SBP_E_INPUT) {
        const size_t name = strlen(scan->name);
        const char *why = strncmp(diag.text, scan->name, name) == 0 ? diag.text + name : diag.text;
        scan->json_error = sbp_log_copy(&scan->arena, why + strspn(why, ": "),
                                        (int)strlen(why + strspn(why, ": ")), 200);
        status = scan->json_error == NULL ? SBP_E_MEMORY : SBP_OK;
    }
    cJSON_Delete(root);
    return status;
}
