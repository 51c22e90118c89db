#include "calib/samples/sample_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"

#define MOST_RANKS 1000000
#define MOST_S     1e9

/* --- writing --- */

/* Adds text as a JSON string; control characters become blanks, which no setting needs. */
static void add_quoted(struct sbp_text *text, const char *value)
{
    sbp_text_add(text, "\"");
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            sbp_text_add(text, "\\%c", *value);
        else
            sbp_text_add(text, "%c", (unsigned char)*value < ' ' ? ' ' : *value);
    }
    sbp_text_add(text, "\"");
}

static void add_word(struct sbp_text *text, const char *key, const char *value)
{
    sbp_text_add(text, ",\"%s\":", key);
    add_quoted(text, value);
}

static void add_settings(struct sbp_text *text, const char *settings)
{
    char line[sizeof((struct sbp_calibration_origin *)0)->settings];
    sbp_text_add(text, ",\"settings\":[");
    for (const char *at = settings; *at != '\0';) {
        const int length = (int)strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", length, at);
        sbp_text_add(text, "%s", at == settings ? "" : ",");
        add_quoted(text, line);
        at += length + (at[length] == '\n');
    }
    sbp_text_add(text, "]");
}

/* The fields of an origin that are kept as words of the same name. */
#define WORDS(X)                                                                                   \
    X(date)                                                                                        \
    X(host)                                                                                        \
    X(system)                                                                                      \
    X(cpu)                                                                                         \
    X(device)                                                                                      \
    X(compiler)                                                                                    \
    X(backend) X(library) X(driver) X(binding) X(launcher) X(job) X(nominal_from) X(name)

static void add_placement(struct sbp_text *text, const struct sbp_rank_placement *placement)
{
    sbp_text_add(text, ",\"host_of_rank\":[");
    for (int r = 0; r < placement->ranks; r++) {
        sbp_text_add(text, "%s", r == 0 ? "" : ",");
        add_quoted(text, placement->host[placement->node[r]]);
    }
    sbp_text_add(text, "]");
}

void sbp_sample_file_session_line(const struct sbp_calibration_origin *origin,
                                  const struct sbp_rank_placement *placement, bool resumes,
                                  struct sbp_text *text)
{
    sbp_text_add(text, SBP_SAMPLE_FILE_BEGIN ",\"resumes\":%s", resumes ? "true" : "false");
    add_word(text, "version", origin->version);
    add_word(text, "command", origin->command);
#define ADD_WORD(field) add_word(text, #field, origin->field);
    WORDS(ADD_WORD)
#undef ADD_WORD
    add_settings(text, origin->settings);
    sbp_text_add(text,
                 ",\"ranks\":%d,\"nodes\":%d,\"ranks_per_node\":%d,\"most_ranks_per_node\":%d,"
                 "\"cores\":%d,\"memory_bytes\":%lld",
                 origin->ranks, origin->hosts, origin->least_ranks_per_host, origin->ranks_per_host,
                 origin->cores, (long long)origin->memory_bytes);
    sbp_text_add(text,
                 ",\"max_bytes\":%lld,\"runs\":%d,\"seed\":%lld,\"budget_s\":%.9g,"
                 "\"nominal_bytes_per_s\":%.9g",
                 (long long)origin->max_bytes, origin->runs, (long long)origin->seed,
                 origin->budget_s, origin->nominal_bytes_per_s);
    if (placement->ranks > 0)
        add_placement(text, placement);
    sbp_text_add(text, "}\n");
}

void sbp_sample_file_result_line(const struct sbp_result *result, struct sbp_text *text)
{
    sbp_text_add(text, "{\"run\":%d,", result->run);
    sbp_cell_write(&result->cell, text);
    sbp_text_add(text, ",\"took_s\":%.3g", result->took_s);
    if (result->cell.work == SBP_CELL_PAIRS) {
        sbp_text_add(text, ",\"between\":[");
        for (int i = 0; i < result->pair_count; i++)
            sbp_text_add(text, "%s[%d,%d,%.4g]", i == 0 ? "" : ",", result->pair[i].a,
                         result->pair[i].b, result->pair[i].time_s);
    } else {
        if (result->slowest_rank >= 0)
            sbp_text_add(text, ",\"slowest_rank\":%d,\"slowest_ratio\":%.4g", result->slowest_rank,
                         result->slowest_ratio);
        sbp_text_add(text, ",\"settled\":%s,\"s\":[", result->settled ? "true" : "false");
        for (int i = 0; i < result->count; i++)
            sbp_text_add(text, "%s%.6g", i == 0 ? "" : ",", result->time_s[i]);
    }
    sbp_text_add(text, "]}\n");
}

void sbp_sample_file_end_line(bool done, double wall_s, struct sbp_text *text)
{
    sbp_text_add(text, "{\"end\":\"%s\",\"wall_s\":%.6g}\n", done ? "done" : "time", wall_s);
}

/* --- reading --- */

struct reader {
    struct sbp_record *record;
    struct sbp_diag *diag;
    int session_room, result_room;
    int line; /* that is read, from 1 */
};

static enum sbp_status no_memory(const struct reader *reader)
{
    return sbp_fail(reader->diag, SBP_E_MEMORY, "%s: out of memory", reader->record->path);
}

/* Copies an array to twice the room, in the arena that owns the record. NULL: no memory. */
static void *grown(struct sbp_arena *arena, const void *old, int count, size_t size, int *room)
{
    *room = *room == 0 ? 16 : 2 * *room;
    void *larger = sbp_arena_alloc(arena, (size_t)*room, size);
    if (larger != NULL && count > 0)
        memcpy(larger, old, (size_t)count * size);
    return larger;
}

static enum sbp_status walk(const struct sbp_json *list, int index, struct sbp_json *at)
{
    return index == 0 ? sbp_json_element(list, 0, at) : sbp_json_next(list, index, at);
}

static enum sbp_status get_int(const struct sbp_json *object, const char *key, int least,
                               int *value)
{
    int64_t wide = *value;
    SBP_TRY(sbp_json_get_int64(object, key, least, MOST_RANKS, &wide));
    *value = (int)wide;
    return SBP_OK;
}

/* Reads a string of any length and cuts it to the field; absent, the field stays empty. */
static enum sbp_status get_word(const struct sbp_json *object, const char *key, char *value,
                                size_t size)
{
    struct sbp_json at;
    const char *text;
    if (!sbp_json_has(object, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(object, key, &at));
    SBP_TRY(sbp_json_string(&at, &text));
    (void)snprintf(value, size, "%s", text);
    return SBP_OK;
}

static enum sbp_status get_kept(const struct reader *reader, const struct sbp_json *object,
                                const char *key, const char **value)
{
    struct sbp_json at;
    const char *text = "";
    if (sbp_json_has(object, key)) {
        SBP_TRY(sbp_json_member(object, key, &at));
        SBP_TRY(sbp_json_string(&at, &text));
    }
    *value = sbp_arena_strdup(&reader->record->arena, text);
    return *value == NULL ? no_memory(reader) : SBP_OK;
}

static enum sbp_status read_settings(const struct sbp_json *object, char *settings, size_t size)
{
    struct sbp_json list, at;
    const char *text;
    int count;
    size_t used = 0;
    if (!sbp_json_has(object, "settings"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(object, "settings", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    for (int i = 0; i < count; i++) {
        SBP_TRY(walk(&list, i, &at));
        SBP_TRY(sbp_json_string(&at, &text));
        if (used + strlen(text) + 2 > size)
            break;
        used += (size_t)snprintf(settings + used, size - used, "%s%s", i == 0 ? "" : "\n", text);
    }
    return SBP_OK;
}

static enum sbp_status read_counts(const struct sbp_json *object,
                                   struct sbp_calibration_origin *origin)
{
    int64_t seed = 1;
    SBP_TRY(get_int(object, "ranks", 1, &origin->ranks));
    SBP_TRY(get_int(object, "nodes", 1, &origin->hosts));
    SBP_TRY(get_int(object, "ranks_per_node", 1, &origin->least_ranks_per_host));
    SBP_TRY(get_int(object, "most_ranks_per_node", 1, &origin->ranks_per_host));
    SBP_TRY(get_int(object, "cores", 1, &origin->cores));
    SBP_TRY(get_int(object, "runs", 1, &origin->runs));
    SBP_TRY(sbp_json_get_int64(object, "memory_bytes", 0, (int64_t)1 << 53, &origin->memory_bytes));
    SBP_TRY(sbp_json_get_int64(object, "max_bytes", 1, (int64_t)1 << 40, &origin->max_bytes));
    SBP_TRY(sbp_json_get_int64(object, "seed", 0, (int64_t)1 << 53, &seed));
    origin->seed = (uint64_t)seed;
    SBP_TRY(sbp_json_get_double(object, "budget_s", 0, MOST_S, &origin->budget_s));
    SBP_TRY(
        sbp_json_get_double(object, "nominal_bytes_per_s", 0, 1e18, &origin->nominal_bytes_per_s));
    if ((int64_t)origin->hosts * origin->least_ranks_per_host > origin->ranks)
        return sbp_json_refuse(object, "%d nodes of at least %d ranks, but %d ranks in all",
                               origin->hosts, origin->least_ranks_per_host, origin->ranks);
    return SBP_OK;
}

static enum sbp_status read_hosts(const struct sbp_json *list, int ranks,
                                  char (*host)[SBP_HOST_NAME])
{
    struct sbp_json at;
    const char *text;
    for (int i = 0; i < ranks; i++) {
        SBP_TRY(walk(list, i, &at));
        SBP_TRY(sbp_json_string(&at, &text));
        (void)snprintf(host[i], SBP_HOST_NAME, "%s", text);
    }
    return SBP_OK;
}

static enum sbp_status read_placement(const struct reader *reader, const struct sbp_json *object,
                                      int ranks, struct sbp_rank_placement *placement)
{
    struct sbp_json list;
    int count;
    if (!sbp_json_has(object, "host_of_rank"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(object, "host_of_rank", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    if (count != ranks)
        return sbp_json_refuse(&list, "%d hosts, but %d ranks", count, ranks);
    char(*host)[SBP_HOST_NAME] = calloc((size_t)ranks, sizeof *host);
    if (host == NULL)
        return no_memory(reader);
    enum sbp_status status = read_hosts(&list, ranks, host);
    if (status == SBP_OK)
        status = sbp_placement_of(host, ranks, placement, reader->diag);
    free(host);
    return status;
}

static enum sbp_status read_session(struct reader *reader, const struct sbp_json *object)
{
    struct sbp_record *record = reader->record;
    if (record->session_count == reader->session_room) {
        record->session = grown(&record->arena, record->session, record->session_count,
                                sizeof *record->session, &reader->session_room);
        if (record->session == NULL)
            return no_memory(reader);
    }
    struct sbp_session *session = &record->session[record->session_count];
    *session = (struct sbp_session){.first = record->result_count};
    struct sbp_calibration_origin *origin = &session->origin;
    origin->hosts = origin->least_ranks_per_host = origin->ranks_per_host = 1;
    origin->ranks = 2;
    origin->cores = origin->runs = 1;
    SBP_TRY(read_counts(object, origin));
    SBP_TRY(get_kept(reader, object, "version", &origin->version));
    SBP_TRY(get_kept(reader, object, "command", &origin->command));
#define GET_WORD(field) SBP_TRY(get_word(object, #field, origin->field, sizeof origin->field));
    WORDS(GET_WORD)
#undef GET_WORD
    SBP_TRY(read_settings(object, origin->settings, sizeof origin->settings));
    bool resumes = false;
    int64_t version = 1;
    SBP_TRY(sbp_json_get_int64(object, SBP_SAMPLE_FILE_KEY, 1, 1, &version));
    SBP_TRY(sbp_json_get_bool(object, "resumes", &resumes));
    if (record->session_count > 0)
        session->chain = record->session[record->session_count - 1].chain + (resumes ? 0 : 1);
    SBP_TRY(read_placement(reader, object, origin->ranks, &session->placement));
    record->session_count++;
    return SBP_OK;
}

static enum sbp_status read_times(struct reader *reader, const struct sbp_json *object,
                                  struct sbp_result *result)
{
    struct sbp_json list, at;
    struct sbp_samples samples = {0};
    SBP_TRY(sbp_json_member(object, "s", &list));
    SBP_TRY(sbp_json_length(&list, &result->count));
    if (result->count < 1 || result->count > SBP_MAX_REPEATS)
        return sbp_json_refuse(&list, "%d times, legal are 1 to %d", result->count,
                               SBP_MAX_REPEATS);
    double *time_s = SBP_NEW(&reader->record->arena, double, result->count);
    if (time_s == NULL)
        return no_memory(reader);
    for (int i = 0; i < result->count; i++) {
        SBP_TRY(walk(&list, i, &at));
        SBP_TRY(sbp_json_double(&at, 0, MOST_S, &time_s[i]));
    }
    result->time_s = time_s;
    sbp_samples_add(&samples, time_s, result->count);
    result->median_s = samples.median_s;
    result->low_s = samples.low_s;
    result->high_s = samples.high_s;
    SBP_TRY(sbp_json_get_bool(object, "settled", &result->settled));
    SBP_TRY(get_int(object, "slowest_rank", 0, &result->slowest_rank));
    return sbp_json_get_double(object, "slowest_ratio", 0, MOST_S, &result->slowest_ratio);
}

static enum sbp_status read_pair(const struct sbp_json *list, int ranks,
                                 struct sbp_sample_pair *pair)
{
    struct sbp_json at;
    int64_t a, b;
    SBP_TRY(sbp_json_element(list, 0, &at));
    SBP_TRY(sbp_json_int64(&at, 0, ranks - 1, &a));
    SBP_TRY(sbp_json_element(list, 1, &at));
    SBP_TRY(sbp_json_int64(&at, 0, ranks - 1, &b));
    SBP_TRY(sbp_json_element(list, 2, &at));
    pair->a = (int)a;
    pair->b = (int)b;
    return sbp_json_double(&at, 0, MOST_S, &pair->time_s);
}

static enum sbp_status read_pairs(struct reader *reader, const struct sbp_json *object,
                                  struct sbp_result *result)
{
    struct sbp_json list, at;
    SBP_TRY(sbp_json_member(object, "between", &list));
    SBP_TRY(sbp_json_length(&list, &result->pair_count));
    struct sbp_sample_pair *pair =
        SBP_NEW(&reader->record->arena, struct sbp_sample_pair, result->pair_count);
    if (pair == NULL)
        return no_memory(reader);
    const int ranks = reader->record->session[result->session].origin.ranks;
    for (int i = 0; i < result->pair_count; i++) {
        SBP_TRY(walk(&list, i, &at));
        SBP_TRY(read_pair(&at, ranks, &pair[i]));
    }
    result->pair = pair;
    return SBP_OK;
}

static enum sbp_status read_result(struct reader *reader, const struct sbp_json *object)
{
    struct sbp_record *record = reader->record;
    if (record->session_count == 0)
        return sbp_json_refuse(object, "a measurement before the line of its session "
                                       "(\"sbplan_samples\")");
    if (record->result_count == reader->result_room) {
        record->result = grown(&record->arena, record->result, record->result_count,
                               sizeof *record->result, &reader->result_room);
        if (record->result == NULL)
            return no_memory(reader);
    }
    struct sbp_session *session = &record->session[record->session_count - 1];
    struct sbp_result *result = &record->result[record->result_count];
    *result = (struct sbp_result){
        .line = reader->line, .session = record->session_count - 1, .slowest_rank = -1};
    SBP_TRY(sbp_cell_read(object, &result->cell));
    SBP_TRY(get_int(object, "run", 0, &result->run));
    if (result->run >= SBP_MAX_RUNS)
        return sbp_json_refuse(object, "run %d, legal are 0 to %d", result->run, SBP_MAX_RUNS - 1);
    SBP_TRY(sbp_json_get_double(object, "took_s", 0, MOST_S, &result->took_s));
    const bool is_pairs = result->cell.work == SBP_CELL_PAIRS;
    SBP_TRY((is_pairs ? read_pairs : read_times)(reader, object, result));
    record->result_count++;
    session->count++;
    return SBP_OK;
}

static enum sbp_status read_end(struct reader *reader, const struct sbp_json *object)
{
    struct sbp_record *record = reader->record;
    if (record->session_count == 0)
        return sbp_json_refuse(object, "an end before the line of its session");
    struct sbp_session *session = &record->session[record->session_count - 1];
    session->ended = true;
    return sbp_json_get_double(object, "wall_s", 0, MOST_S, &session->wall_s);
}

static enum sbp_status read_line(struct reader *reader, const char *line)
{
    char name[PATH_MAX + 32];
    struct cJSON *root;
    struct sbp_json at;
    (void)snprintf(name, sizeof name, "%s: line %d", reader->record->path, reader->line);
    SBP_TRY(sbp_json_parse(line, name, &root, &at, reader->diag));
    enum sbp_status status;
    if (sbp_json_has(&at, SBP_SAMPLE_FILE_KEY))
        status = read_session(reader, &at);
    else
        status = (sbp_json_has(&at, "end") ? read_end : read_result)(reader, &at);
    cJSON_Delete(root);
    return status;
}

static void mark_last(struct sbp_record *record)
{
    const struct sbp_session *last = &record->session[record->session_count - 1];
    for (int i = 0; i < record->session_count; i++) {
        struct sbp_session *session = &record->session[i];
        session->is_last = session->chain == last->chain &&
                           sbp_placement_same(&session->placement, &last->placement);
    }
}

enum sbp_status sbp_sample_file_parse(const char *path, const char *text, size_t length,
                                      struct sbp_record *record, struct sbp_diag *diag)
{
    *record = (struct sbp_record){.path = NULL};
    struct reader reader = {.record = record, .diag = diag};
    record->path = sbp_arena_strdup(&record->arena, path);
    char *line = SBP_NEW(&record->arena, char, length + 1);
    enum sbp_status status = record->path == NULL || line == NULL ? no_memory(&reader) : SBP_OK;
    for (reader.line = 1; status == SBP_OK; reader.line++) {
        const char *start = text + record->whole_bytes;
        const char *end = memchr(start, '\n', length - record->whole_bytes);
        if (end == NULL)
            break; /* torn, or nothing is left */
        memcpy(line, start, (size_t)(end - start));
        line[end - start] = '\0';
        status = strlen(line) == (size_t)(end - start)
                     ? read_line(&reader, line)
                     : sbp_fail(diag, SBP_E_INPUT, "%s: line %d: a NUL byte", path, reader.line);
        record->whole_bytes += (size_t)(end - start) + 1;
    }
    if (status == SBP_OK && record->session_count == 0)
        status =
            sbp_fail(diag, SBP_E_INPUT,
                     "%s: no line of a session (\"sbplan_samples\"): no file of samples", path);
    if (status != SBP_OK) {
        sbp_sample_file_free(record);
        return status;
    }
    mark_last(record);
    return SBP_OK;
}

enum sbp_status sbp_sample_file_read(const char *path, struct sbp_record *record,
                                     struct sbp_diag *diag)
{
    char *text;
    size_t length;
    *record = (struct sbp_record){.path = NULL};
    SBP_TRY(sbp_file_read(path, &text, &length, diag));
    const enum sbp_status status = sbp_sample_file_parse(path, text, length, record, diag);
    free(text);
    return status;
}

void sbp_sample_file_free(struct sbp_record *record)
{
    if (record == NULL)
        return;
    for (int i = 0; i < record->session_count; i++)
        sbp_placement_free(&record->session[i].placement);
    sbp_arena_free(&record->arena);
    *record = (struct sbp_record){.path = NULL};
}

bool sbp_sample_file_is_possible(const struct sbp_result *result)
{
    return result->median_s >= sbp_cell_least_s(&result->cell);
}

bool sbp_sample_file_is(const char *path)
{
    char *line = NULL;
    size_t room = 0;
    struct cJSON *root = NULL;
    struct sbp_json at;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    const bool is_one = getline(&line, &room, file) > 0 &&
                        sbp_json_parse(line, path, &root, &at, NULL) == SBP_OK &&
                        sbp_json_has(&at, SBP_SAMPLE_FILE_KEY);
    cJSON_Delete(root);
    free(line);
    (void)fclose(file); /* nothing was written */
    return is_one;
}

enum sbp_status sbp_sample_file_path(const char *path, char *record_path, int size,
                                     struct sbp_diag *diag)
{
    static const char lines[] = ".jsonl", json[] = ".json", samples[] = ".samples.jsonl";
    const size_t length = strlen(path);
    const bool is_one =
        length >= sizeof lines - 1 && strcmp(path + length - (sizeof lines - 1), lines) == 0;
    size_t stem = length;
    if (!is_one && length >= sizeof json - 1 &&
        strcmp(path + length - (sizeof json - 1), json) == 0)
        stem -= sizeof json - 1;
    if (stem + sizeof samples > (size_t)size)
        return sbp_fail(diag, SBP_E_RANGE, "%.80s...: the path is too long", path);
    (void)snprintf(record_path, (size_t)size, "%.*s%s", (int)stem, path, is_one ? "" : samples);
    return SBP_OK;
}
