#include "tests/papers/memory_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

#define MOST_COLUMNS 32
#define VALUE_BYTES  1024

/* One line's values. */
struct line {
    int count;
    char value[MOST_COLUMNS][VALUE_BYTES];
};

/* Reads one value up to a comma or the line's end; a pair of quotes inside quotes is one. */
static const char *read_value(const char *at, char *value)
{
    const bool quoted = *at == '"';
    size_t length = 0;
    for (at += quoted; *at != '\0'; at++) {
        if (quoted && at[0] == '"' && at[1] != '"')
            break;
        if (!quoted && (*at == ',' || *at == '\n'))
            break;
        at += quoted && *at == '"';
        if (length + 1 < VALUE_BYTES)
            value[length++] = *at;
    }
    value[length] = '\0';
    return at + (quoted && *at == '"');
}

/* The line from `at` on; returns where the next one begins. */
static const char *read_line(const char *at, struct line *line)
{
    for (line->count = 0; line->count < MOST_COLUMNS; at++) {
        at = read_value(at, line->value[line->count++]);
        if (*at != ',')
            break;
    }
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

static const char *value_of(const struct line *names, const struct line *line, const char *name)
{
    for (int i = 0; i < names->count && i < line->count; i++)
        if (strcmp(names->value[i], name) == 0)
            return line->value[i];
    return "";
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t length = strlen(from) < size ? strlen(from) : size - 1;
    while (length > 0 && from[length - 1] == ' ')
        length--;
    memcpy(to, from, length);
    to[length] = '\0';
}

static int64_t whole_of(const struct line *names, const struct line *line, const char *name)
{
    int64_t whole = 0;
    return sbp_parse_int64(value_of(names, line, name), &whole) ? whole : 0;
}

/* GB as nvidia-smi's readers write it is 10^9; MB of PyTorch's allocator is 2^20. */
static double unit_bytes(const char *unit, const char *what)
{
    const bool allocator = strstr(what, "strategy") != NULL;
    if (strcmp(unit, "GiB") == 0)
        return 1073741824;
    if (strcmp(unit, "GB") == 0)
        return 1e9;
    return strcmp(unit, "MB") == 0 ? (allocator ? 1048576 : 1e6) : 0;
}

static void fill(const struct line *names, const struct line *line, struct memory_row *row)
{
    double value = 0;
    const char *measured = value_of(names, line, "mem_value");
    copy_text(row->id, sizeof row->id, value_of(names, line, "id"));
    copy_text(row->model, sizeof row->model, value_of(names, line, "model"));
    copy_text(row->what, sizeof row->what, value_of(names, line, "what"));
    copy_text(row->shard, sizeof row->shard, value_of(names, line, "dp_shard"));
    copy_text(row->recompute, sizeof row->recompute, value_of(names, line, "recompute"));
    copy_text(row->precision, sizeof row->precision, value_of(names, line, "precision"));
    copy_text(row->note, sizeof row->note, value_of(names, line, "note"));
    row->layers = whole_of(names, line, "layers");
    row->hidden = whole_of(names, line, "hidden");
    row->heads = whole_of(names, line, "heads");
    row->vocabulary = whole_of(names, line, "vocab");
    row->sequence = whole_of(names, line, "seq");
    row->devices = whole_of(names, line, "gpus");
    row->tensor = whole_of(names, line, "tp");
    row->pipeline = whole_of(names, line, "pp");
    row->data = whole_of(names, line, "dp");
    row->micro_batch = whole_of(names, line, "micro_batch");
    row->global_batch = whole_of(names, line, "global_batch");
    row->out_of_memory = strcmp(measured, "OOM") == 0;
    row->measured = strncmp(value_of(names, line, "kind"), "measured", 8) == 0;
    if (sbp_parse_double(measured, &value))
        row->bytes = value * unit_bytes(value_of(names, line, "mem_unit"), row->what);
}

static enum sbp_status parse(const char *text, struct memory_row **rows, int *count)
{
    struct line *lines = calloc(2, sizeof *lines);
    int lines_of_text = 0;
    for (const char *at = text; *at != '\0'; at++)
        lines_of_text += *at == '\n';
    *rows = calloc((size_t)lines_of_text + 1, sizeof **rows);
    *count = 0;
    if (lines != NULL && *rows != NULL) {
        const char *at = read_line(text, &lines[0]);
        while (*at != '\0') {
            at = read_line(at, &lines[1]);
            fill(&lines[0], &lines[1], &(*rows)[(*count)++]);
        }
    }
    const bool failed = lines == NULL || *rows == NULL;
    free(lines);
    return failed ? SBP_E_MEMORY : SBP_OK;
}

enum sbp_status memory_rows_read(const char *path, struct memory_row **rows, int *count,
                                 struct sbp_diag *diag)
{
    char *text = NULL;
    size_t length = 0;
    *rows = NULL;
    SBP_TRY(sbp_file_read(path, &text, &length, diag));
    const enum sbp_status status = parse(text, rows, count);
    free(text);
    return status;
}
