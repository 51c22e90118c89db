#include "planner/validate/runs_csv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "planner/validate/run_set.h"

#define CELL_BYTES   128
#define MOST_COLUMNS (SBP_RUN_SET_MOST_COLUMNS - 1) /* a set has the column id */
#define MOST_RUNS    10000

/* A table while it is read. */
struct table {
    const char *file;
    int line, columns, count;
    int id_column; /* from 0; -1: runs are called after their lines */
    int *line_of;  /* (MOST_RUNS) */
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
    double number;
    if (cell[0] == '\0')
        return cJSON_CreateNull();
    if (strcmp(cell, "true") == 0 || strcmp(cell, "false") == 0)
        return cJSON_CreateBool(cell[0] == 't');
    return sbp_parse_double(cell, &number) ? cJSON_CreateNumber(number) : cJSON_CreateString(cell);
}

static void push(struct cJSON *array, struct cJSON *item, struct table *table)
{
    if (!cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        table->failed = true;
    }
}

/* ---- the line of names ----------------------------------------------------------------------- */

/* A key of a model file, or a column of a set. */
static bool is_name(const char *cell)
{
    for (const char *at = cell; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    return cell[0] != '\0';
}

/* The column of a name, from 0; -1: there is none yet. */
static int column_of(const struct table *table, const char *name)
{
    const struct cJSON *column;
    int at = 0;
    cJSON_ArrayForEach(column, table->names)
    {
        if (strcmp(column->valuestring, name) == 0)
            return at;
        at++;
    }
    return -1;
}

static enum sbp_status check_name(const struct table *table, const char *name)
{
    const int column = table->columns + 1, before = column_of(table, name) + 1;
    const char *file = table->file;
    if (name[0] == '\0')
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: column %d has no name; legal are those of docs/validate.md",
                        file, table->line, column);
    if (!is_name(name))
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: column %d: \"%.60s\" is no name: legal are letters, digits "
                        "and _, with commas between columns",
                        file, table->line, column, name);
    if (before > 0)
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: column %d: \"%s\" is column %d as well, legal is once", file,
                        table->line, column, name, before);
    if (column > MOST_COLUMNS)
        return sbp_fail(table->diag, SBP_E_INPUT, "%s: line %d: legal are up to %d columns", file,
                        table->line, MOST_COLUMNS);
    return SBP_OK;
}

static enum sbp_status read_names(struct table *table, const char *line)
{
    char cell[CELL_BYTES];
    while (line != NULL) {
        SBP_TRY(next_cell(table, &line, cell));
        SBP_TRY(check_name(table, cell));
        sbp_json_push_text(table->names, cell, &table->failed);
        table->columns++;
    }
    table->id_column = column_of(table, "id");
    if (table->id_column < 0)
        sbp_json_push_text(table->names, "id", &table->failed);
    return SBP_OK;
}

/* ---- lines of runs --------------------------------------------------------------------------- */

static struct cJSON *name_of_line(const struct table *table)
{
    char name[32];
    (void)snprintf(name, sizeof name, "line %d", table->line);
    return cJSON_CreateString(name);
}

static enum sbp_status read_run(struct table *table, const char *line)
{
    char cell[CELL_BYTES];
    int cells = 0;
    struct cJSON *run = cJSON_CreateArray();
    if (table->count == MOST_RUNS) {
        cJSON_Delete(run);
        return sbp_fail(table->diag, SBP_E_INPUT, "%s: line %d: legal are up to %d runs",
                        table->file, table->line, MOST_RUNS);
    }
    push(table->runs, run, table);
    table->line_of[table->count++] = table->line;
    for (; line != NULL && !table->failed; cells++) {
        SBP_TRY(next_cell(table, &line, cell));
        if (cells != table->id_column)
            push(run, value_of(cell), table);
        else
            push(run, cell[0] == '\0' ? name_of_line(table) : cJSON_CreateString(cell), table);
    }
    if (table->id_column < 0 && !table->failed)
        push(run, name_of_line(table), table);
    if (cells != table->columns && !table->failed)
        return sbp_fail(table->diag, SBP_E_INPUT,
                        "%s: line %d: %d cells, legal are %d, as in its first line", table->file,
                        table->line, cells, table->columns);
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
        line = end == NULL ? NULL : end + 1;
    }
    if (!table->failed && table->count == 0)
        return sbp_fail(
            table->diag, SBP_E_INPUT,
            "%s: no runs: legal are a line of names, as in \"tp,pp,micro_batch,step_s\", "
            "and one line a run",
            table->file);
    return SBP_OK;
}

/* Spreadsheets put a byte order mark before the first name. */
static const char *behind_mark(const char *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    return strncmp(text, mark, strlen(mark)) == 0 ? text + strlen(mark) : text;
}

enum sbp_status sbp_runs_csv_read(const char *path, struct sbp_arena *arena, struct cJSON *root,
                                  const int **line, struct sbp_diag *diag)
{
    char *text;
    size_t length;
    struct table table = {.file = path, .id_column = -1, .diag = diag};
    table.line_of = SBP_NEW(arena, int, MOST_RUNS);
    if (table.line_of == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path);
    SBP_TRY(sbp_file_read(path, &text, &length, diag));
    table.names = sbp_json_put_array(root, "columns", &table.failed);
    table.runs = sbp_json_put_array(root, "runs", &table.failed);
    enum sbp_status status = SBP_OK;
    if (strlen(text) != length)
        status = sbp_fail(diag, SBP_E_INPUT, "%s: is no text", path);
    else if (!table.failed)
        status = read_lines(&table, behind_mark(text));
    free(text);
    if (status == SBP_OK && table.failed)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path);
    *line = table.line_of;
    return status;
}
