
#include "base/file.h"
#include "base/table.h"
#include "base/text.h"
#include "calib/logs/log_parts.h"

static void add_row(const struct sbp_logs *logs, const struct sbp_log_table *from,
                    struct sbp_table *table)
{
    char least[32], most[32];
    sbp_table_cell(table, "%s", sbp_file_name(logs->file[from->file]));
    if (from->line > 0)
        sbp_table_cell(table, "%d", from->line);
    else
        sbp_table_cell(table, "-");
    sbp_table_cell(table, "%s", sbp_log_tool_name(from->tool));
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
    (void)fprintf(out, "%s: ", logs->file[note->file]);
    if (note->line > 0)
        (void)fprintf(out, "line %d: ", note->line);
    (void)fprintf(out, "%s\n", note->text);
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
