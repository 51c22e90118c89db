/* Bare tables: their rows are sizes and times alone.
 *
 * The OSU micro-benchmarks (OMB) print neither ranks nor an average. Every datatype has a head of
 * its own, and so is a table of its own here:
 *
 *     # OSU MPI-CUDA Allreduce Latency Test v7.4
 *     # Datatype: MPI_CHAR.
 *     # Size       Avg Latency(us)   [Min Latency(us)   Max Latency(us)   Iterations] [Validation]
 *     8                      12.68
 *
 * The CSV of aiconfigurator's collector has one row per run of nccl-tests with all devices in one
 * process, so on one node; sizes are elements, times milliseconds:
 *
 *     framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency
 *
 * Its last row is left out where the line does not end, since its time may be cut.
 */
#include <string.h>

#include "calib/logs/log_parts_priv.h"

/* --- OSU --- */

struct title {
    const char *text, *collective;
    bool is_per_rank; /* the size is what a rank gives to all, or to each */
    int ranks;        /* that the benchmark needs; 0: any */
};

/* The words between the library and "Latency Test". */
static const struct title titles[] = {
    {"Allreduce", "all_reduce", false, 0},
    {"Allgather", "all_gather", true, 0},
    {"Reduce_scatter", "reduce_scatter", false, 0},
    {"Reduce_scatter_block", "reduce_scatter", false, 0},
    {"All-to-All Personalized Exchange", "alltoall", true, 0},
    {"All-to-All", "alltoall", true, 0},
    {"Alltoall", "alltoall", true, 0},
    {"Broadcast", "broadcast", false, 0},
    {"", "sendrecv", false, 2},
};

static const struct {
    const char *part, *why;
} unpriced[] = {
    {"Non-", "it overlaps the operation with computing: run the blocking benchmark"},
    {"Bandwidth", "it streams windows of messages, whose single times it does not print: run "
                  "osu_latency"},
    {"Message Rate", "it streams windows of messages of many pairs: run osu_latency"},
    {"Multi", "several pairs or threads send at the same time: run osu_latency"},
    {"Persistent", "its requests are set up beforehand: run the blocking benchmark"},
};

static const char *why_unpriced(const char *title)
{
    for (size_t i = 0; i < sizeof unpriced / sizeof *unpriced; i++)
        if (strstr(title, unpriced[i].part) != NULL)
            return unpriced[i].why;
    return "this operation has no price in a cluster file";
}

/* Takes the collective of "Allgather Latency Test"; false: the title does not end so. */
static bool take_title(struct sbp_log_run *run, const char *title)
{
    static const char END[] = "Latency Test";
    const char *end = strstr(title, END);
    size_t length = end == NULL ? 0 : (size_t)(end - title);
    while (length > 0 && title[length - 1] == ' ')
        length--;
    for (size_t i = 0; end != NULL && i < sizeof titles / sizeof *titles; i++) {
        const struct title *known = &titles[i];
        if (strlen(known->text) != length || memcmp(known->text, title, length) != 0)
            continue;
        run->collective =
            sbp_log_collective_find(known->collective, (int)strlen(known->collective));
        run->is_per_rank = known->is_per_rank;
        run->fixed_ranks = known->ranks;
        return true;
    }
    return false;
}

/* Whether a library sends two-sided: "MPI", "MPI-CUDA", "NCCL", "RCCL-ROCM". */
static bool is_two_sided(struct sbp_log_word library)
{
    static const char *const names[] = {"MPI", "NCCL", "RCCL", "XCCL"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int length = (int)strlen(names[i]);
        if (library.length >= length && memcmp(library.at, names[i], (size_t)length) == 0 &&
            (library.length == length || library.at[length] == '-'))
            return true;
    }
    return false;
}

static enum sbp_status begin(struct sbp_log_scan *scan, const char *rest, int number)
{
    struct sbp_log_word word;
    struct sbp_log_run *run = sbp_log_begin(scan, SBP_LOG_OSU, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    run->is_bare = true;
    const bool is_named = sbp_log_split(rest, &word, 1) == 1 && is_two_sided(word);
    const char *title = is_named ? word.at + word.length : rest;
    while (*title == ' ')
        title++;
    const char *version = strstr(title, " v");
    const int length = version == NULL ? (int)strlen(title) : (int)(version - title);
    run->title = sbp_log_copy(&scan->arena, title, length, 60);
    if (run->title == NULL)
        return SBP_E_MEMORY;
    if (!is_named || !take_title(run, run->title))
        run->not_priced = why_unpriced(run->title);
    return SBP_OK;
}

/* Begins a table of its own where the head repeats, for another datatype. */
static enum sbp_status take_head(struct sbp_log_scan *scan, struct sbp_log_run *run, int number)
{
    if (run->row_count > 0) {
        const struct sbp_log_run same = *run;
        run = sbp_log_begin(scan, SBP_LOG_OSU, number);
        if (run == NULL)
            return SBP_E_MEMORY;
        run->is_bare = true;
        run->title = same.title;
        run->collective = same.collective;
        run->is_per_rank = same.is_per_rank;
        run->fixed_ranks = same.fixed_ranks;
        run->not_priced = same.not_priced;
    }
    run->has_head = true;
    run->head_line = number;
    return SBP_OK;
}

/* Reads size and average, perhaps more numbers, "Pass" or "Fail". */
static bool read_row(const char *line, int number, struct sbp_log_row *row)
{
    struct sbp_log_word word[16];
    const int count = sbp_log_split(line, word, 16);
    *row = (struct sbp_log_row){.line = number};
    struct sbp_log_half *half = &row->half[SBP_LOG_OUT_OF_PLACE];
    if (count < 2 || !sbp_log_word_whole(word[0], &row->size_bytes) ||
        memchr(word[1].at, '.', (size_t)word[1].length) == NULL ||
        !sbp_log_word_number(word[1], &half->time_us))
        return false;
    half->is_there = true;
    for (int i = 2; i < count; i++) {
        half->is_checked = half->is_checked || sbp_log_word_is(word[i], "Pass");
        half->is_wrong = half->is_wrong || sbp_log_word_is(word[i], "Fail");
    }
    return true;
}

/* Whether a line is a size and a broken time, "1024    nan"; launchers' own lines begin with
 * numbers, too. */
static bool is_broken_row(const char *line)
{
    struct sbp_log_word word[2];
    double size;
    return sbp_log_split(line, word, 2) == 2 && sbp_log_word_whole(word[0], &size) &&
           (strchr("0123456789.+-", word[1].at[0]) != NULL || sbp_log_word_is(word[1], "nan") ||
            sbp_log_word_is(word[1], "inf"));
}

enum sbp_status sbp_log_osu_line(struct sbp_log_scan *scan, const char *line, int number,
                                 bool *is_taken)
{
    struct sbp_log_run *run = sbp_log_current(scan);
    struct sbp_log_row row;
    const char *title = sbp_log_after(line, "# OSU ");
    *is_taken = true;
    if (title != NULL)
        return begin(scan, title, number);
    const bool is_open = run != NULL && run->tool == SBP_LOG_OSU;
    if (is_open && strncmp(line, "# Size", 6) == 0)
        return take_head(scan, run, number);
    if (is_open && run->has_head && read_row(line, number, &row))
        return sbp_log_add_row(scan, run, &row) ? SBP_OK : SBP_E_MEMORY;
    *is_taken = is_open && run->has_head && is_broken_row(line);
    if (*is_taken)
        sbp_log_row_broken(run, number);
    return SBP_OK;
}

/* --- the collector's CSV --- */

#define HEAD                                                                                       \
    "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency"
enum { VERSION = 1, OPERATION = 3, TYPE = 5, DEVICES, ELEMENTS, LATENCY, FIELDS };

/* Whether a line begins with the names of the head, blanks apart. */
static bool is_head(const char *line)
{
    for (const char *known = HEAD; *known != '\0'; line++)
        if (*line != ' ' && *line != '\t' && *line != *known++)
            return false;
    return true;
}

/* Splits at commas, with blanks around them, none quoted; false: not as many fields as the head
 * has. */
static bool split_fields(const char *line, struct sbp_log_word *field)
{
    const char *at = line;
    for (int i = 0; i < FIELDS; i++) {
        at += strspn(at, " \t");
        const char *end = at + strcspn(at, ",\r");
        field[i] = (struct sbp_log_word){at, (int)(end - at)};
        while (field[i].length > 0 && strchr(" \t", at[field[i].length - 1]) != NULL)
            field[i].length--;
        at = end;
        if (i + 1 < FIELDS && *at++ != ',')
            return false;
    }
    return *at != ',';
}

/* The run that the row continues: the same operation, devices and type; else a new one. */
static struct sbp_log_run *csv_run_of(struct sbp_log_scan *scan, const struct sbp_log_word *field,
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

/* Reads devices, size and time; false: they are not of a run. */
static bool read_csv_row(const struct sbp_log_word *field, struct sbp_log_row *row, double *devices)
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

/* Whether a line begins as the row before did. */
static bool is_csv_row(const struct sbp_log_csv *csv, const char *line)
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
    *is_taken = is_head(line);
    csv->is_on = csv->is_on || *is_taken;
    if (*is_taken || !csv->is_on)
        return SBP_OK;
    const bool is_whole = split_fields(line, field);
    *is_taken = is_whole || is_csv_row(csv, line);
    if (!*is_taken)
        return SBP_OK;
    if (is_whole)
        csv->framework = field[0];
    if (is_whole && !csv->is_torn && read_csv_row(field, &row, &devices)) {
        run = csv_run_of(scan, field, number, devices, row.element_bytes);
        return run != NULL && sbp_log_add_row(scan, run, &row) ? SBP_OK : SBP_E_MEMORY;
    }
    if (run == NULL || run->tool != SBP_LOG_COLLECTOR)
        run = sbp_log_begin(scan, SBP_LOG_COLLECTOR, number);
    if (run == NULL)
        return SBP_E_MEMORY;
    sbp_log_row_broken(run, number);
    return SBP_OK;
}
