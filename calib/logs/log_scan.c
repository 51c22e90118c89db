/* Collects what a file holds: the runs that readers find, with their rows and devices, the lines of
 * whoever keeps the file, and notes on faults. Readers and judges both build on it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "calib/logs/log_parts_priv.h"

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

void sbp_log_row_broken(struct sbp_log_run *run, int line)
{
    run->broken_line = run->broken_rows++ == 0 ? line : run->broken_line;
}

/* --- lines by whoever keeps a file --- */

/* Reads a number that stands alone, but for a remark in brackets: "64 (inferred)", not "1?",
 * "2/4/8".
 */
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

void sbp_log_read_said(struct sbp_log_scan *scan, const char *line, int number)
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

/* --- notes --- */

const struct sbp_log_reason_entry sbp_log_reasons[] = {
#define SBP_LOG_REASON_ENTRY(name, text, effect) [SBP_LOG_##name] = {text, SBP_LOG_##effect},
    SBP_LOG_REASON_MAP(SBP_LOG_REASON_ENTRY)
#undef SBP_LOG_REASON_ENTRY
};

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
