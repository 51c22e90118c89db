
#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "calib/logs/log_parts.h"

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
    sbp_json_put_text(object, "tool", sbp_log_tool_name(table->tool), failed);
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
