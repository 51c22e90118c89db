/* Prints what was read of logs: as tables with notes for people, or as JSON. */
#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/table.h"
#include "calib/logs/log_parts_priv.h"

static const char *tool_name(enum sbp_log_tool tool)
{
    static const char *const names[] = {[SBP_LOG_NCCL] = "nccl-tests",
                                        [SBP_LOG_RCCL] = "rccl-tests",
                                        [SBP_LOG_OSU] = "OSU",
                                        [SBP_LOG_COLLECTOR] = "aiconfigurator"};
    return names[tool];
}

/* --- for people --- */

static void add_row(const struct sbp_logs *logs, const struct sbp_log_table *from,
                    struct sbp_table *table)
{
    char least[32], most[32];
    sbp_table_cell(table, "%s", sbp_file_name(logs->file[from->file]));
    if (from->line > 0)
        sbp_table_cell(table, "%d", from->line);
    else
        sbp_table_cell(table, "-");
    sbp_table_cell(table, "%s", tool_name(from->tool));
    sbp_table_cell(table, "%s",
                   from->is_known ? sbp_collective_name(from->kind) : from->collective);
    if (from->nodes > 0)
        sbp_table_cell(table, "%d x %d", from->nodes, from->ranks_per_node);
    else if (from->ranks > 0)
        sbp_table_cell(table, "%d", from->ranks);
    else
        sbp_table_cell(table, "?");
    if (from->kept > 0)
        sbp_table_cell(table, "%s .. %s", sbp_format_bytes(from->least_bytes, least),
                       sbp_format_bytes(from->most_bytes, most));
    else
        sbp_table_cell(table, "-");
    sbp_table_cell(table, "%d", from->rows);
    sbp_table_cell(table, "%d", from->is_refused ? 0 : from->kept);
    sbp_table_cell(table, "%s", from->network == NULL ? "-" : from->network);
}

static enum sbp_status print_tables(const struct sbp_logs *logs, FILE *out)
{
    static const char *const titles[] = {"file",  "line", "tool",   "collective", "nodes x ranks",
                                         "bytes", "rows", "points", "network"};
    struct sbp_table table;
    sbp_table_init(&table, sizeof titles / sizeof *titles, titles);
    for (int t = 0; t < logs->table_count; t++)
        add_row(logs, &logs->table[t], &table);
    const enum sbp_status status =
        logs->table_count == 0 ? SBP_OK : sbp_table_print(&table, out, 0);
    sbp_table_free(&table);
    return status;
}

static void print_note(const struct sbp_logs *logs, const struct sbp_log_note *note, FILE *out)
{
    const char *file = logs->file[note->file];
    /* Whoever prints looks at ferror(out). */
    if (note->line > 0)
        (void)sbp_text_print_line(out, "%s: line %d: %s\n", file, note->line, note->text);
    else
        (void)sbp_text_print_line(out, "%s: %s\n", file, note->text);
}

static void print_notes(const struct sbp_logs *logs, enum sbp_log_effect effect, const char *title,
                        FILE *out)
{
    bool is_first = true;
    for (int n = 0; n < logs->note_count; n++) {
        const int table = logs->note[n].table;
        const bool is_moot =
            effect != SBP_LOG_REFUSED && table >= 0 && logs->table[table].is_refused;
        if (sbp_log_reasons[logs->note[n].reason].effect != effect || is_moot)
            continue;
        if (is_first && title != NULL)
            (void)fprintf(out, "\n%s\n", title);
        is_first = false;
        print_note(logs, &logs->note[n], out);
    }
}

enum sbp_status sbp_logs_print(const struct sbp_logs *logs, FILE *out)
{
    int kept = 0, rows = 0;
    for (int t = 0; t < logs->table_count; t++) {
        kept += logs->table[t].is_refused ? 0 : logs->table[t].kept;
        rows += logs->table[t].rows;
    }
    SBP_TRY(print_tables(logs, out));
    (void)fprintf(out, "%s%d point%s out of %d row%s of %d table%s in %d file%s\n",
                  logs->table_count == 0 ? "" : "\n", kept, kept == 1 ? "" : "s", rows,
                  rows == 1 ? "" : "s", logs->table_count, logs->table_count == 1 ? "" : "s",
                  logs->file_count, logs->file_count == 1 ? "" : "s");
    print_notes(logs, SBP_LOG_REFUSED, "Refused:", out);
    print_notes(logs, SBP_LOG_ROWS_LEFT_OUT, "Rows left out:", out);
    print_notes(logs, SBP_LOG_TOLD, "To be known:", out);
    return ferror(out) ? SBP_E_IO : SBP_OK;
}

void sbp_logs_print_refusals(const struct sbp_logs *logs, FILE *out)
{
    print_notes(logs, SBP_LOG_REFUSED, NULL, out);
}

/* --- JSON --- */

static void put_point(struct cJSON *array, const struct sbp_measured_point *point, bool *failed)
{
    struct cJSON *object = sbp_json_push_object(array, failed);
    sbp_json_put_number(object, "bytes", point->bytes, failed);
    sbp_json_put_number(object, "time_s", point->time_s, failed);
    sbp_json_put_number(object, "spread", point->spread, failed);
    if (point->first_use)
        sbp_json_put(object, "first_use", cJSON_CreateTrue(), failed);
}

static void put_table(struct cJSON *array, const struct sbp_logs *logs,
                      const struct sbp_log_table *table, bool *failed)
{
    static const char *const froms[] = {[SBP_LOG_UNKNOWN] = "unknown",
                                        [SBP_LOG_LISTED] = "list",
                                        [SBP_LOG_IMPLIED] = "benchmark",
                                        [SBP_LOG_INFERRED] = "columns",
                                        [SBP_LOG_SAID] = "said"};
    struct cJSON *object = sbp_json_push_object(array, failed);
    sbp_json_put_text(object, "file", logs->file[table->file], failed);
    sbp_json_put_number(object, "line", table->line, failed);
    sbp_json_put_text(object, "tool", tool_name(table->tool), failed);
    sbp_json_put_text(object, "collective",
                      table->is_known ? sbp_collective_name(table->kind) : table->collective,
                      failed);
    sbp_json_put_number(object, "ranks", table->ranks, failed);
    sbp_json_put_text(object, "ranks_from", froms[table->ranks_from], failed);
    sbp_json_put_number(object, "nodes", table->nodes, failed);
    sbp_json_put_number(object, "ranks_per_node", table->ranks_per_node, failed);
    sbp_json_put_text(object, "library", table->library, failed);
    sbp_json_put_text(object, "network", table->network, failed);
    sbp_json_put_text(object, "date", table->date, failed);
    sbp_json_put_number(object, "rows", table->rows, failed);
    sbp_json_put(object, "refused", cJSON_CreateBool(table->is_refused), failed);
    struct cJSON *points = sbp_json_put_array(object, "points", failed);
    for (int i = 0; i < table->kept && !table->is_refused && !*failed; i++)
        put_point(points, &table->point[i], failed);
}

static void put_note(struct cJSON *array, const struct sbp_logs *logs,
                     const struct sbp_log_note *note, bool *failed)
{
    static const char *const effects[] = {[SBP_LOG_REFUSED] = "refused",
                                          [SBP_LOG_ROWS_LEFT_OUT] = "rows left out",
                                          [SBP_LOG_TOLD] = "told"};
    struct cJSON *object = sbp_json_push_object(array, failed);
    sbp_json_put_text(object, "file", logs->file[note->file], failed);
    sbp_json_put_number(object, "table", note->table, failed);
    sbp_json_put_number(object, "line", note->line, failed);
    sbp_json_put_text(object, "reason", sbp_log_reasons[note->reason].name, failed);
    sbp_json_put_text(object, "effect", effects[sbp_log_reasons[note->reason].effect], failed);
    sbp_json_put_text(object, "text", note->text, failed);
}

enum sbp_status sbp_logs_print_json(const struct sbp_logs *logs, struct cJSON *fit, FILE *out,
                                    struct sbp_diag *diag)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    struct cJSON *tables = sbp_json_put_array(root, "tables", &failed);
    struct cJSON *notes = sbp_json_put_array(root, "notes", &failed);
    if (fit != NULL)
        sbp_json_put(root, "fit", fit, &failed);
    for (int t = 0; t < logs->table_count && !failed; t++)
        put_table(tables, logs, &logs->table[t], &failed);
    for (int n = 0; n < logs->note_count && !failed; n++)
        put_note(notes, logs, &logs->note[n], &failed);
    const enum sbp_status status = sbp_json_print(failed ? NULL : root, out, diag);
    cJSON_Delete(root);
    return status;
}
