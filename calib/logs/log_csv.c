/* The CSV of aiconfigurator's collector: one row per run of nccl-tests with all devices in one
 * process (so on one node); sizes are elements, times milliseconds. A last row without a line's end
 * is left out, since its time may be cut.
 *
 *     framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency
 */
#include <string.h>

#include "calib/logs/log_parts.h"

#define HEAD                                                                                       \
    "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency"
enum { VERSION = 1, OPERATION = 3, TYPE = 5, DEVICES, ELEMENTS, LATENCY, FIELDS };

/* Fields between commas, none quoted; false: not as many as the head has. */
static bool split_fields(const char *line, struct sbp_log_word *field)
{
    const char *at = line;
    for (int i = 0; i < FIELDS; i++) {
        field[i] = (struct sbp_log_word){at, (int)strcspn(at, ",\r")};
        at += field[i].length;
        if (i + 1 < FIELDS && *at++ != ',')
            return false;
    }
    return *at != ',';
}

/* The run that the row goes on with: the same operation, devices and type. */
static struct sbp_log_run *run_of(struct sbp_log_scan *scan, const struct sbp_log_word *field,
                                  int number, double devices, int element_bytes)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    if (run != NULL && run->tool == SBP_LOG_COLLECTOR && run->row_count > 0 &&
        run->fixed_ranks == (int)devices &&
        run->row[run->row_count - 1].element_bytes == element_bytes &&
        sbp_log_word_is(field[OPERATION], run->title))
        return run;
    run = sbp_log_begin(scan, SBP_LOG_COLLECTOR, number);
    if (run == NULL)
        return NULL;
    run->is_bare = run->has_head = true;
    run->fixed_ranks = (int)devices;
    run->fixed_nodes = 1;
    run->title = sbp_log_copy(&scan->arena, field[OPERATION].at, field[OPERATION].length, 40);
    run->collective = sbp_log_collective_find(field[OPERATION].at, field[OPERATION].length);
    char library[48];
    (void)snprintf(library, sizeof library, "NCCL %.*s",
                   field[VERSION].length < 32 ? field[VERSION].length : 32, field[VERSION].at);
    run->library = sbp_log_copy(&scan->arena, library, (int)strlen(library), 47);
    return run->title == NULL || run->library == NULL ? NULL : run;
}

/* Devices, size and time; false: they are not of a run. */
static bool read_row(const struct sbp_log_word *field, struct sbp_log_row *row, double *devices)
{
    double elements;
    struct sbp_log_half *half = &row->half[SBP_LOG_OUT_OF_PLACE];
    row->element_bytes = sbp_log_element_bytes(field[TYPE].at, field[TYPE].length);
    if (row->element_bytes == 0 || !sbp_log_word_whole(field[DEVICES], devices) || *devices < 1 ||
        *devices > 1e6 || !sbp_log_word_whole(field[ELEMENTS], &elements) ||
        !sbp_log_word_number(field[LATENCY], &half->time_us))
        return false;
    row->size_bytes = elements * row->element_bytes;
    half->time_us.value *= 1e3;
    half->time_us.slack *= 1e3;
    half->is_there = true;
    return true;
}

/* Begins as the row before did. */
static bool is_row(const struct sbp_log_csv *csv, const char *line)
{
    const int length = csv->framework.length;
    return length > 0 && strncmp(line, csv->framework.at, (size_t)length + 1) == 0;
}

enum sbp_status sbp_log_csv_line(struct sbp_log_scan *scan, struct sbp_log_csv *csv,
                                 const char *line, int number, bool *is_taken)
{
    struct sbp_log_word field[FIELDS];
    double devices;
    struct sbp_log_row row = {.line = number};
    struct sbp_log_run *run = sbp_log_current(scan);
    *is_taken = sbp_log_after(line, HEAD) != NULL;
    csv->is_on = csv->is_on || *is_taken;
    if (*is_taken || !csv->is_on)
        return SBP_OK;
    const bool is_whole = split_fields(line, field);
    *is_taken = is_whole || is_row(csv, line);
    if (!*is_taken)
        return SBP_OK;
    if (is_whole)
        csv->framework = field[0];
    if (is_whole && !csv->is_torn && read_row(field, &row, &devices)) {
        run = run_of(scan, field, number, devices, row.element_bytes);
        return run != NULL && sbp_log_add_row(scan, run, &row) ? SBP_OK : SBP_E_MEMORY;
    }
    if (run == NULL || run->tool != SBP_LOG_COLLECTOR)
        run = sbp_log_begin(scan, SBP_LOG_COLLECTOR, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    sbp_log_row_broken(run, number);
    return SBP_OK;
}
