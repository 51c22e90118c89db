#include "calib/logs/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "calib/logs/log_parts.h"

const struct sbp_log_reason_entry sbp_log_reasons[] = {
#define SBP_LOG_REASON_ENTRY(name, text, effect) [SBP_LOG_##name] = {text, SBP_LOG_##effect},
    SBP_LOG_REASON_MAP(SBP_LOG_REASON_ENTRY)
#undef SBP_LOG_REASON_ENTRY
};

const char *sbp_log_tool_name(enum sbp_log_tool tool)
{
    static const char *const names[] = {[SBP_LOG_NCCL] = "nccl-tests",
                                        [SBP_LOG_RCCL] = "rccl-tests",
                                        [SBP_LOG_OSU] = "OSU",
                                        [SBP_LOG_COLLECTOR] = "aiconfigurator"};
    return names[tool];
}

/* --- runs --- */

struct sbp_log_run *sbp_log_begin(struct sbp_log_scan *scan, enum sbp_log_tool tool, int line)
{
    struct sbp_log_run *run =
        SBP_LOG_GROW(&scan->arena, scan->run, scan->run_count, scan->run_capacity);
    if (run == NULL)
        return NULL;
    scan->run = run;
    run += scan->run_count++;
    *run = (struct sbp_log_run){
        .tool = tool, .line = line, .head_line = line, .hint = scan->hint, .before = scan->stray};
    scan->stray = (struct sbp_log_failure){0};
    scan->hint = NULL;
    return run;
}

struct sbp_log_run *sbp_log_current(struct sbp_log_scan *scan)
{
    return scan->run_count == 0 ? NULL : &scan->run[scan->run_count - 1];
}

bool sbp_log_add_row(struct sbp_log_scan *scan, struct sbp_log_run *run,
                     const struct sbp_log_row *row)
{
    struct sbp_log_row *rows =
        SBP_LOG_GROW(&scan->arena, run->row, run->row_count, run->row_capacity);
    if (rows == NULL)
        return false;
    run->row = rows;
    run->row[run->row_count++] = *row;
    return true;
}

bool sbp_log_add_device(struct sbp_log_scan *scan, struct sbp_log_run *run,
                        const struct sbp_log_device *device)
{
    struct sbp_log_device *devices =
        SBP_LOG_GROW(&scan->arena, run->device, run->device_count, run->device_capacity);
    if (devices == NULL)
        return false;
    run->device = devices;
    run->device[run->device_count++] = *device;
    run->last_rank = device->rank > run->last_rank ? device->rank : run->last_rank;
    return true;
}

/* --- what is said about a file --- */

/* A number that stands alone, but for a remark in brackets: "64 (inferred)", not "1?", "2/4/8". */
static int said_number(const char *value)
{
    const size_t digits = strspn(value, "0123456789");
    const char *rest = value + digits;
    rest += strspn(rest, " \t\r");
    if (digits == 0 || digits > 8 || (*rest != '\0' && *rest != '|' && *rest != '('))
        return 0;
    return atoi(value);
}

static const char *said_value(const char *line, const char *key)
{
    const size_t length = strlen(key);
    for (const char *at = line + 2; at != NULL; at = strchr(at, '|')) {
        at += strspn(at, "| \t");
        if (strncmp(at, key, length) == 0 && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

static void read_said(struct sbp_log_scan *scan, const char *line, int number)
{
    struct {
        const char *key;
        int *value;
    } numbers[] = {{"ranks", &scan->said.ranks},
                   {"nodes", &scan->said.nodes},
                   {"ranks_per_node", &scan->said.ranks_per_node}};
    scan->said.line = number;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *value = said_value(line, numbers[i].key);
        if (value != NULL)
            *numbers[i].value = said_number(value);
    }
    const char *name = said_value(line, "collective"), *network = said_value(line, "network");
    if (name != NULL)
        scan->said.collective = sbp_log_collective_find(name, (int)strcspn(name, " \t|"));
    if (network != NULL)
        scan->said.network = sbp_log_copy(&scan->arena, network, (int)strcspn(network, " \t|"), 31);
    sbp_log_network_sign(line, true, &scan->network, &scan->network_trust, &scan->arena);
}

/* --- lines --- */

struct readers {
    struct sbp_log_nccl nccl;
    struct sbp_log_csv csv;
};

static enum sbp_status take_line(struct sbp_log_scan *scan, struct readers *readers,
                                 const char *line, int number)
{
    bool is_taken = false;
    const char *text = sbp_log_untagged(line);
    if (strncmp(text, "#@", 2) == 0) {
        read_said(scan, text, number);
        return SBP_OK;
    }
    SBP_TRY(sbp_log_osu_line(scan, text, number, &is_taken));
    if (!is_taken)
        SBP_TRY(sbp_log_csv_line(scan, &readers->csv, text, number, &is_taken));
    return is_taken ? SBP_OK : sbp_log_nccl_line(scan, &readers->nccl, text, number);
}

static void take_said_lines(struct sbp_log_scan *scan, char *text)
{
    int number = 1;
    for (char *line = text; strncmp(line, "#@", 2) == 0; number++) {
        const size_t length = strcspn(line, "\n");
        const char end = line[length];
        line[length] = '\0';
        read_said(scan, line, number);
        line[length] = end;
        line += length + (end != '\0');
    }
}

static enum sbp_status scan_text(struct sbp_log_scan *scan, char *text, size_t length)
{
    struct readers readers = {.csv = {.is_on = false}};
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '\0' ? '?' : text[i] == '\t' ? ' ' : text[i];
    if (sbp_log_is_json(text)) {
        take_said_lines(scan, text);
        return sbp_log_scan_json(scan, text);
    }
    int number = 1;
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        readers.csv.is_torn = next == NULL;
        SBP_TRY(take_line(scan, &readers, line, number));
    }
    sbp_log_row_drop(&readers.nccl.pending, sbp_log_current(scan));
    return SBP_OK;
}

/* --- files --- */

enum sbp_status sbp_log_add_note(struct sbp_logs *logs, int file, int table, int line,
                                 enum sbp_log_reason reason, const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct sbp_log_note *notes =
        SBP_LOG_GROW(&logs->arena, logs->note, logs->note_count, logs->note_capacity);
    const char *copy = sbp_arena_strdup(&logs->arena, text);
    if (notes == NULL || copy == NULL)
        return SBP_E_MEMORY;
    logs->note = notes;
    logs->note[logs->note_count++] = (struct sbp_log_note){
        .file = file, .table = table, .line = line, .reason = reason, .text = copy};
    if (table >= 0 && sbp_log_reasons[reason].effect == SBP_LOG_REFUSED)
        logs->table[table].is_refused = true;
    return SBP_OK;
}

/* What a file is packed in by its first bytes, and what to do; NULL: nothing. */
static const char *packing_of(const char *text)
{
    static const struct {
        const char *start, *advice;
    } packings[] = {{"\x1f\x8b", "compressed; unpack it first (gunzip)"},
                    {"\xfd\x37zXZ", "compressed; unpack it first (unxz)"},
                    {"\x28\xb5\x2f\xfd", "compressed; unpack it first (unzstd)"},
                    {"PK\x03\x04", "an archive; unpack it first (unzip)"},
                    {"\xff\xfe", "UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
                    {"\xfe\xff", "UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"}};
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (strncmp(text, packings[i].start, strlen(packings[i].start)) == 0)
            return packings[i].advice;
    return NULL;
}

/* text: ends in NUL and is changed. */
static enum sbp_status read_one(struct sbp_logs *logs, const char *name, char *text, size_t length,
                                const struct sbp_log_options *options)
{
    struct sbp_log_scan scan = {.name = name, .packing = packing_of(text)};
    const int file = logs->file_count++;
    logs->file[file] = sbp_arena_strdup(&logs->arena, name);
    enum sbp_status status = logs->file[file] == NULL ? SBP_E_MEMORY : SBP_OK;
    if (status == SBP_OK)
        status = scan_text(&scan, text, length);
    if (status == SBP_OK)
        status = sbp_log_check(logs, file, &scan, options);
    sbp_arena_free(&scan.arena);
    return status;
}

/* --- points --- */

static void put_source(const struct sbp_logs *logs, const struct sbp_log_table *table,
                       struct sbp_measured *measured)
{
    const int source = measured->source_count++;
    measured->source[source] = (struct sbp_measured_source){.name = logs->file[table->file],
                                                            .library = table->library,
                                                            .network = table->network,
                                                            .date = table->date,
                                                            .table = table->number};
    for (int i = 0; i < table->kept; i++) {
        measured->point[measured->count] = table->point[i];
        measured->point[measured->count++].source = source;
    }
}

/* Texts of a source outlive the logs. */
static bool copy_texts(struct sbp_measured *measured)
{
    bool is_whole = true;
    for (int s = 0; s < measured->source_count; s++) {
        struct sbp_measured_source *source = &measured->source[s];
        const char **texts[] = {&source->name, &source->library, &source->network, &source->date};
        for (int t = 0; t < 4; t++)
            if (*texts[t] != NULL) {
                *texts[t] = sbp_arena_strdup(&measured->arena, *texts[t]);
                is_whole = is_whole && *texts[t] != NULL;
            }
    }
    return is_whole;
}

static enum sbp_status gather(const struct sbp_logs *logs, struct sbp_measured *measured)
{
    size_t points = 0;
    for (int t = 0; t < logs->table_count; t++)
        points += logs->table[t].is_refused ? 0 : (size_t)logs->table[t].kept;
    measured->point = SBP_NEW(&measured->arena, struct sbp_measured_point, points);
    measured->source = SBP_NEW(&measured->arena, struct sbp_measured_source, logs->table_count);
    if (measured->point == NULL || measured->source == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < logs->table_count; t++)
        if (!logs->table[t].is_refused && logs->table[t].kept > 0)
            put_source(logs, &logs->table[t], measured);
    return copy_texts(measured) ? SBP_OK : SBP_E_MEMORY;
}

static enum sbp_status finish(enum sbp_status status, struct sbp_logs *logs,
                              struct sbp_measured *measured, struct sbp_diag *diag)
{
    if (status == SBP_OK)
        status = sbp_log_compare(logs);
    if (status == SBP_OK)
        status = gather(logs, measured);
    return status == SBP_E_MEMORY ? sbp_fail(diag, status, "out of memory") : status;
}

enum sbp_status sbp_logs_read(const char *const *path, int count,
                              const struct sbp_log_options *options, struct sbp_logs *logs,
                              struct sbp_measured *measured, struct sbp_diag *diag)
{
    *logs = (struct sbp_logs){.file = NULL};
    *measured = (struct sbp_measured){.count = 0};
    logs->file = SBP_NEW(&logs->arena, const char *, count);
    enum sbp_status status = logs->file == NULL ? SBP_E_MEMORY : SBP_OK;
    for (int i = 0; i < count && status == SBP_OK; i++) {
        char *text;
        size_t length;
        status = sbp_file_read(path[i], &text, &length, diag);
        if (status != SBP_OK)
            break;
        status = read_one(logs, path[i], text, length, options);
        free(text);
    }
    return finish(status, logs, measured, diag);
}

enum sbp_status sbp_logs_read_text(const char *text, size_t length, const char *name,
                                   const struct sbp_log_options *options, struct sbp_logs *logs,
                                   struct sbp_measured *measured, struct sbp_diag *diag)
{
    *logs = (struct sbp_logs){.file = NULL};
    *measured = (struct sbp_measured){.count = 0};
    logs->file = SBP_NEW(&logs->arena, const char *, 1);
    char *copy = malloc(length + 1);
    enum sbp_status status = copy == NULL || logs->file == NULL ? SBP_E_MEMORY : SBP_OK;
    if (status == SBP_OK) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        status = read_one(logs, name, copy, length, options);
    }
    free(copy);
    return finish(status, logs, measured, diag);
}

void sbp_logs_free(struct sbp_logs *logs)
{
    sbp_arena_free(&logs->arena);
    *logs = (struct sbp_logs){.file = NULL};
}
