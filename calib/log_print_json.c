#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "calib/log_parts.h"

static void put(struct cJSON *object, const char *key, struct cJSON *item, bool *failed)
{
    if (item != NULL && cJSON_AddItemToObject(object, key, item))
        return;
    cJSON_Delete(item);
    *failed = true;
}

static void put_number(struct cJSON *object, const char *key, double value, bool *failed)
{
    put(object, key, cJSON_CreateNumber(value), failed);
}

/* Nothing where it is not known. */
static void put_text(struct cJSON *object, const char *key, const char *text, bool *failed)
{
    if (text != NULL)
        put(object, key, cJSON_CreateString(text), failed);
}

static struct cJSON *push_object(struct cJSON *array, bool *failed)
{
    struct cJSON *item = cJSON_CreateObject();
    if (item != NULL && array != NULL && cJSON_AddItemToArray(array, item))
        return item;
    cJSON_Delete(item);
    *failed = true;
    return NULL;
}

static void put_point(struct cJSON *array, const struct sbp_measured_point *point, bool *failed)
{
    struct cJSON *object = push_object(array, failed);
    put_number(object, "bytes", point->bytes, failed);
    put_number(object, "time_s", point->time_s, failed);
    put_number(object, "spread", point->spread, failed);
    if (point->first_use)
        put(object, "first_use", cJSON_CreateTrue(), failed);
}

static void put_table(struct cJSON *array, const struct sbp_logs *logs,
                      const struct sbp_log_table *table, bool *failed)
{
    static const char *const froms[] = {[SBP_LOG_UNKNOWN] = "unknown",
                                        [SBP_LOG_LISTED] = "list",
                                        [SBP_LOG_IMPLIED] = "benchmark",
                                        [SBP_LOG_INFERRED] = "columns",
                                        [SBP_LOG_SAID] = "said"};
    struct cJSON *object = push_object(array, failed);
    struct cJSON *points = cJSON_CreateArray();
    put_text(object, "file", logs->file[table->file], failed);
    put_number(object, "line", table->line, failed);
    put_text(object, "tool", sbp_log_tool_name(table->tool), failed);
    put_text(object, "collective",
             table->is_known ? sbp_collective_name(table->kind) : table->collective, failed);
    put_number(object, "ranks", table->ranks, failed);
    put_text(object, "ranks_from", froms[table->ranks_from], failed);
    put_number(object, "nodes", table->nodes, failed);
    put_number(object, "ranks_per_node", table->ranks_per_node, failed);
    put_text(object, "library", table->library, failed);
    put_text(object, "network", table->network, failed);
    put_text(object, "date", table->date, failed);
    put_number(object, "rows", table->rows, failed);
    put(object, "refused", cJSON_CreateBool(table->is_refused), failed);
    put(object, "points", points, failed);
    for (int i = 0; i < table->kept && !table->is_refused && !*failed; i++)
        put_point(points, &table->point[i], failed);
}

static void put_note(struct cJSON *array, const struct sbp_logs *logs,
                     const struct sbp_log_note *note, bool *failed)
{
    static const char *const effects[] = {[SBP_LOG_REFUSED] = "refused",
                                          [SBP_LOG_ROWS_LEFT_OUT] = "rows left out",
                                          [SBP_LOG_TOLD] = "told"};
    struct cJSON *object = push_object(array, failed);
    put_text(object, "file", logs->file[note->file], failed);
    put_number(object, "table", note->table, failed);
    put_number(object, "line", note->line, failed);
    put_text(object, "reason", sbp_log_reasons[note->reason].name, failed);
    put_text(object, "effect", effects[sbp_log_reasons[note->reason].effect], failed);
    put_text(object, "text", note->text, failed);
}

enum sbp_status sbp_logs_print_json(const struct sbp_logs *logs, struct cJSON *fit, FILE *out,
                                    struct sbp_diag *diag)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    struct cJSON *tables = cJSON_CreateArray(), *notes = cJSON_CreateArray();
    put(root, "tables", tables, &failed);
    put(root, "notes", notes, &failed);
    if (fit != NULL)
        put(root, "fit", fit, &failed);
    for (int t = 0; t < logs->table_count && !failed; t++)
        put_table(tables, logs, &logs->table[t], &failed);
    for (int n = 0; n < logs->note_count && !failed; n++)
        put_note(notes, logs, &logs->note[n], &failed);
    char *text = failed ? NULL : cJSON_Print(root);
    cJSON_Delete(root);
    if (text == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const bool is_done = fprintf(out, "%s\n", text) >= 0;
    free(text);
    return is_done ? SBP_OK : sbp_fail(diag, SBP_E_IO, "standard output cannot be written");
}
