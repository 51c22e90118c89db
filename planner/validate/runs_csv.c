#include "planner/validate/runs_csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"

#define CELL_BYTES 128
#define MOST_RUNS  10000

/* A table while it is read. */
struct table {
    const char *file;
    int line, columns;
    bool has_id;
    struct cJSON *names, *runs;
    bool failed; /* memory ran out */
    struct sbp_diag *diag;
};

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r';
}

/* Copies the next cell of a line without blanks around it; *at moves behind its comma, or becomes
 * NULL behind the last. */
static enum sbp_status next_cell(const struct table *table, const char **at, char *cell)
{
    const size_t whole = strcspn(*at, ",\n");
    const char *begin = *at, *end = *at + whole;
    while (begin < end && is_blank(*begin))
        begin++;
    while (end > begin && is_blank(end[-1]))
        end--;
    if (end - begin >= CELL_BYTES)
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: a cell has %d letters and more, legal are fewer", table->file,
                        table->line, CELL_BYTES);
    (void)snprintf(cell, CELL_BYTES, "%.*s", (int)(end - begin), begin);
    if (strchr(cell, '"') != NULL)
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: %s: cells have no quotes: legal are numbers, true, false and "
                        "words",
                        table->file, table->line, cell);
    *at = (*at)[whole] == ',' ? *at + whole + 1 : NULL;
    return SBP_OK;
}

static struct cJSON *value_of(const char *cell)
{
    char *end;
    const double number = strtod(cell, &end);
    if (cell[0] == '\0')
        return cJSON_CreateNull();
    if (strcmp(cell, "true") == 0 || strcmp(cell, "false") == 0)
        return cJSON_CreateBool(cell[0] == 't');
    return *end == '\0' && isfinite(number) ? cJSON_CreateNumber(number) : cJSON_CreateString(cell);
}

static void push(struct cJSON *array, struct cJSON *item, struct table *table)
{
    if (!cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        table->failed = true;
    }
}

static enum sbp_status read_names(struct table *table, const char *line)
{
    char cell[CELL_BYTES];
    while (line != NULL) {
        SBP_TRY(next_cell(table, &line, cell));
        if (cell[0] == '\0')
            return sbp_fail(table->diag, SBP_E_INPUT,
                            "%s: line %d: column %d has no name; legal are those of "
                            "docs/validate.md",
                            table->file, table->line, table->columns + 1);
        table->has_id |= strcmp(cell, "id") == 0;
        sbp_json_push_text(table->names, cell, &table->failed);
        table->columns++;
    }
    if (!table->has_id)
        sbp_json_push_text(table->names, "id", &table->failed);
    return SBP_OK;
}

static enum sbp_status read_run(struct table *table, const char *line)
{
    char cell[CELL_BYTES];
    int cells = 0;
    struct cJSON *run = cJSON_CreateArray();
    push(table->runs, run, table);
    for (; line != NULL && !table->failed; cells++) {
        SBP_TRY(next_cell(table, &line, cell));
        push(run, value_of(cell), table);
    }
    (void)snprintf(cell, sizeof cell, "line %d", table->line);
    if (!table->has_id && !table->failed)
        push(run, cJSON_CreateString(cell), table);
    if (cells != table->columns && !table->failed)
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: %d cells, legal are %d, as in its "
                        "first line",
                        table->file, table->line, cells, table->columns);
    return SBP_OK;
}

static enum sbp_status read_lines(struct table *table, const char *text)
{
    for (const char *line = text; line != NULL && !table->failed;) {
        const char *end = strchr(line, '\n');
        const size_t blanks = strspn(line, " \t\r");
        const bool says = line[blanks] != '\n' && line[blanks] != '\0' && line[blanks] != '#';
        table->line++;
        if (says)
            SBP_TRY(table->columns == 0 ? read_names(table, line) : read_run(table, line));
        if (cJSON_GetArraySize(table->runs) > MOST_RUNS)
            return sbp_fail(table->diag, SBP_E_INPUT, "%s: line %d: legal are %d runs", table->file,
                            table->line, MOST_RUNS);
        line = end == NULL ? NULL : end + 1;
    }
    if (!table->failed && cJSON_GetArraySize(table->runs) == 0)
        return sbp_fail(
            table->diag, SBP_E_INPUT,
            "%s: no runs: legal are a line of names, as in \"tp,pp,micro_batch,step_s\", "
            "and one line a run",
            table->file);
    return SBP_OK;
}

enum sbp_status sbp_runs_csv_read(const char *path, struct cJSON *root, struct sbp_diag *diag)
{
    char *text;
    size_t length;
    struct table table = {.file = path, .diag = diag};
    SBP_TRY(sbp_file_read(path, &text, &length, diag));
    table.names = sbp_json_put_array(root, "columns", &table.failed);
    table.runs = sbp_json_put_array(root, "runs", &table.failed);
    enum sbp_status status = SBP_OK;
    if (strlen(text) != length)
        status = sbp_fail(diag, SBP_E_INPUT, "%s: is no text", path);
    else if (!table.failed)
        status = read_lines(&table, text);
    free(text);
    if (status == SBP_OK && table.failed)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path);
    return status;
}
