#include "calib/logs/log.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "calib/logs/log_parts_priv.h"

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
        sbp_log_read_said(scan, text, number);
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
        sbp_log_read_said(scan, line, number);
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

/* Tells by the first bytes of a file how it is packed, and what to do; NULL: it is text. */
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

/* Adds the points of a table with their source, whose texts are copied, since they outlive the
 * logs; false: memory. */
static bool put_source(const struct sbp_logs *logs, const struct sbp_log_table *table,
                       struct sbp_measured *measured)
{
    const int place = measured->source_count++;
    struct sbp_measured_source *source = &measured->source[place];
    *source = (struct sbp_measured_source){.name = logs->file[table->file],
                                           .library = table->library,
                                           .network = table->network,
                                           .date = table->date,
                                           .table = table->number};
    for (int i = 0; i < table->kept; i++) {
        measured->point[measured->count] = table->point[i];
        measured->point[measured->count++].source = place;
    }
    const char **texts[] = {&source->name, &source->library, &source->network, &source->date};
    for (int i = 0; i < 4; i++)
        if (*texts[i] != NULL &&
            (*texts[i] = sbp_arena_strdup(&measured->arena, *texts[i])) == NULL)
            return false;
    return true;
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
        if (!logs->table[t].is_refused && logs->table[t].kept > 0 &&
            !put_source(logs, &logs->table[t], measured))
            return SBP_E_MEMORY;
    return SBP_OK;
}

static enum sbp_status begin(int files, struct sbp_logs *logs, struct sbp_measured *measured)
{
    *logs = (struct sbp_logs){.file = NULL};
    *measured = (struct sbp_measured){.count = 0};
    logs->file = SBP_NEW(&logs->arena, const char *, files);
    return logs->file == NULL ? SBP_E_MEMORY : SBP_OK;
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
    enum sbp_status status = begin(count, logs, measured);
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
    enum sbp_status status = begin(1, logs, measured);
    char *copy = malloc(length + 1);
    if (copy == NULL)
        status = SBP_E_MEMORY;
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
