/* Shared by the readers and judges of logs: words of lines, tables as printed, and notes on them.
 *
 * A reader turns a file into runs (struct sbp_log_run): a table as it stands in the file, with the
 * facts of the header before it and of the footer behind it. log_check.c judges a run and makes
 * points of its rows; log_twins.c compares the tables of a call. Only log.c calls all of them.
 */
#ifndef SBP_CALIB_LOGS_LOG_PARTS_PRIV_H
#define SBP_CALIB_LOGS_LOG_PARTS_PRIV_H

#include <stdint.h>

#include "calib/logs/log.h"

/* --- words (log_words.c) --- */

struct sbp_log_word {
    const char *at;
    int length;
};
#define SBP_LOG_MAX_WORDS 48

/* A number and half a unit of its last printed digit. */
struct sbp_log_number {
    double value, slack;
};

/* Splits a line at blanks into word (most); returns how many there are, up to `most`. */
int sbp_log_split(const char *line, struct sbp_log_word *word, int most);
bool sbp_log_word_is(struct sbp_log_word word, const char *text);
/* Reads digits alone, at most 2^53. */
bool sbp_log_word_whole(struct sbp_log_word word, double *whole);
/* Reads a decimal number, perhaps with an exponent; finite. */
bool sbp_log_word_number(struct sbp_log_word word, struct sbp_log_number *number);
/* The line behind a launcher's tag and blanks. */
const char *sbp_log_untagged(const char *line);
/* The line behind `start` and blanks where it begins so, else NULL. */
const char *sbp_log_after(const char *line, const char *start);
/* Reads the number behind the first `name` ("maxBytes "); false: there is none. */
bool sbp_log_named(const char *line, const char *name, double *value);
/* Copies at most `most` bytes so that they print as one line. NULL: memory. */
const char *sbp_log_copy(struct sbp_arena *arena, const char *at, int length, int most);
/* Gives array (capacity) room for one more than count; NULL: memory. */
void *sbp_log_grow(struct sbp_arena *arena, void *array, int count, int *capacity, size_t size);
#define SBP_LOG_GROW(arena, array, count, capacity)                                                \
    sbp_log_grow((arena), (array), (count), &(capacity), sizeof *(array))

/* --- collectives by their name in logs (log_collective.c) --- */

enum sbp_log_factor { SBP_LOG_FACTOR_TWICE, SBP_LOG_FACTOR_SHARED, SBP_LOG_FACTOR_ONE };
struct sbp_log_collective {
    const char *name; /* of the program, without "_perf" */
    bool is_priced;
    enum sbp_collective kind;   /* where it is priced */
    bool is_shared;             /* count is one rank's: size = ranks x count x element */
    bool reduces, is_rooted;    /* the columns redop and root say something */
    bool one_checked;           /* values are checked out of place only */
    enum sbp_log_factor factor; /* bus bandwidth / bandwidth: 2 (g-1)/g, (g-1)/g, 1 */
};
/* Ended by a NULL name. */
extern const struct sbp_log_collective sbp_log_collectives[];
/* Knows "all_reduce", "all_reduce_perf", "./build/all_reduce_perf_mpi", "osu_allreduce"; NULL:
 * unknown. */
const struct sbp_log_collective *sbp_log_collective_find(const char *name, int length);
/* The collective of the last word of the line that names a program of nccl-tests; NULL. */
const struct sbp_log_collective *sbp_log_collective_run(const char *line);
double sbp_log_factor_of(enum sbp_log_factor factor, double ranks);

/* --- a run --- */

enum { SBP_LOG_OUT_OF_PLACE, SBP_LOG_IN_PLACE, SBP_LOG_HALVES };
struct sbp_log_half {
    bool is_there, is_checked, is_wrong;
    struct sbp_log_number time_us, algbw, busbw; /* GB/s; bare runs have no bandwidths */
};
struct sbp_log_row {
    int line;
    double size_bytes, count;
    int element_bytes;       /* 0: unknown */
    bool reduces, is_rooted; /* the row names an operation, a root */
    struct sbp_log_half half[SBP_LOG_HALVES];
};

struct sbp_log_device { /* of one rank, or of the `ranks` ranks of a process from `rank` on */
    int rank, group, device, ranks;
    const char *host, *bus; /* bus: as printed, "[0x07]", "[0000:07:00]"; "": not said */
};

/* A line that tells of a failed run. */
struct sbp_log_failure {
    int line; /* 0: none */
    const char *text, *advice;
};

/* Said about a file by the options, or by whoever keeps it in its "#@" lines. */
struct sbp_log_said {
    int line; /* of the file; 0: options */
    int ranks, nodes, ranks_per_node;
    const struct sbp_log_collective *collective;
    const char *network;
};

struct sbp_log_run {
    enum sbp_log_tool tool;
    int line;          /* where it begins */
    bool is_announced; /* it began with lines of its own, not with a table's head */
    bool has_head, has_redop, has_root;
    bool is_bare;     /* rows are sizes and times alone */
    bool is_per_rank; /* sizes are per rank or peer */
    bool is_cpu_time;
    int head_line;
    const char *title;                                   /* as the log names it; NULL */
    const struct sbp_log_collective *collective;         /* that the run itself names; NULL */
    const struct sbp_log_collective *hint;               /* of a command line above; NULL */
    const char *not_priced;                              /* why the benchmark has no price; NULL */
    int fixed_ranks, fixed_nodes;                        /* that the benchmark implies; 0 */
    double threads, gpus, least_bytes, most_bytes, step; /* 0: not said */
    bool is_factor;                                      /* step multiplies sizes */
    double grouped;                                      /* launches in one group; 0, 1: alone */
    bool is_blocking;
    struct sbp_log_device *device;
    int device_count, device_capacity;
    int last_rank; /* the largest number of the list; 0 without */
    struct sbp_log_row *row;
    int row_count, row_capacity;
    int broken_rows, broken_line; /* rows that stop short, the first of them */
    int gap_line, list_gap_line;  /* "..." among the rows, the devices; 0 */
    int wrong_line;               /* the footer says that values were wrong; 0 */
    double wrong;
    int average_line; /* the footer's average; 0 */
    int behind_line;  /* the average of another run, behind which its rows stand; 0 */
    struct sbp_log_number average;
    bool is_below;                          /* the average failed the run's own minimum */
    bool is_over;                           /* a footer was read */
    struct sbp_log_failure failure, before; /* its own; of lines before it that began no table */
    const char *library, *date, *network;
    int network_trust; /* 0: nothing known .. 3: the connections themselves */
};

/* --- a file on its way in (log_scan.c) --- */

struct sbp_log_scan {
    struct sbp_arena arena; /* lives as long as the scan */
    const char *name;
    struct sbp_log_said said;
    struct sbp_log_run *run;
    int run_count, run_capacity;
    struct sbp_log_failure stray;          /* of no run */
    const struct sbp_log_collective *hint; /* the last program named */
    const char *network;                   /* said anywhere outside of runs */
    int network_trust;
    const char *json_error; /* why the JSON cannot be read; NULL */
    const char *packing;    /* how the file is packed, and what to do; NULL: it is text */
};

/* A new run, zeroed but for tool and line; NULL: memory. Earlier pointers to runs are invalid. */
struct sbp_log_run *sbp_log_begin(struct sbp_log_scan *scan, enum sbp_log_tool tool, int line);
/* The run under way, NULL before the first. */
struct sbp_log_run *sbp_log_current(struct sbp_log_scan *scan);
/* Appends; false: memory. */
bool sbp_log_add_row(struct sbp_log_scan *scan, struct sbp_log_run *run,
                     const struct sbp_log_row *row);
bool sbp_log_add_device(struct sbp_log_scan *scan, struct sbp_log_run *run,
                        const struct sbp_log_device *device);
/* Counts a row that cannot be read. */
void sbp_log_row_broken(struct sbp_log_run *run, int line);
/* Reads a "#@" line. */
void sbp_log_read_said(struct sbp_log_scan *scan, const char *line, int number);
/* Notes what is wrong; a reason that refuses marks the table. table -1: the file. E_MEMORY. */
enum sbp_status sbp_log_add_note(struct sbp_logs *logs, int file, int table, int line,
                                 enum sbp_log_reason reason, const char *format, ...)
    SBP_PRINTF(6, 7);

/* --- readers of untagged lines; E_MEMORY --- */

/* A whole file (log_json.c). */
bool sbp_log_is_json(const char *text);
enum sbp_status sbp_log_scan_json(struct sbp_log_scan *scan, const char *text);

/* A line of nccl-tests, or whatever stands between its lines (log_nccl.c). */
struct sbp_log_columns {
    bool is_known;
    bool has_redop, has_root, has_wrong, is_ms;
    int halves, width; /* cells of a half */
};
struct sbp_log_pending { /* a row that other output cut in two */
    bool is_there;
    struct sbp_log_row row;
    int cell;
};
struct sbp_log_nccl {
    struct sbp_log_columns columns;
    struct sbp_log_pending pending;
};
enum sbp_status sbp_log_nccl_line(struct sbp_log_scan *scan, struct sbp_log_nccl *nccl,
                                  const char *line, int number);

/* Its rows (log_rows.c): the columns of a head, and whether the line is a row or continues one. */
bool sbp_log_head(const char *line, struct sbp_log_columns *columns, bool *is_cpu_time);
enum sbp_log_row_state { SBP_LOG_NO_ROW, SBP_LOG_ROW_BEGUN, SBP_LOG_ROW_WHOLE };
enum sbp_log_row_state sbp_log_row_read(const struct sbp_log_columns *columns, const char *line,
                                        int number, struct sbp_log_pending *pending);
/* The bytes of an element type by its name; 0: unknown. */
int sbp_log_element_bytes(const char *name, int length);
/* Gives up on the pending row and counts it as broken. */
void sbp_log_row_drop(struct sbp_log_pending *pending, struct sbp_log_run *run);

/* A line of a bare table (log_bare.c); *is_taken: it is one. */
enum sbp_status sbp_log_osu_line(struct sbp_log_scan *scan, const char *line, int number,
                                 bool *is_taken);
struct sbp_log_csv {
    bool is_on;                    /* the head was seen */
    bool is_torn;                  /* the coming line has no end: its last number may be cut */
    struct sbp_log_word framework; /* of the last row, in the text */
};
enum sbp_status sbp_log_csv_line(struct sbp_log_scan *scan, struct sbp_log_csv *csv,
                                 const char *line, int number, bool *is_taken);

/* Lines that tell of the network and of failures (log_signs.c). is_said: the line is about the
 * file, by whoever keeps it. */
void sbp_log_network_sign(const char *line, bool is_said, const char **network, int *trust,
                          struct sbp_arena *arena);
bool sbp_log_is_socket(const char *network);
bool sbp_log_failure_sign(const char *line, const char **advice);

/* --- judges; E_MEMORY. A refusal is a note, no error. --- */

/* Refuses a run that no cluster ran as one, by its list of devices (log_shape.c). */
enum sbp_status sbp_log_check_list(struct sbp_logs *logs, int table, const struct sbp_log_run *run,
                                   const struct sbp_log_said *said,
                                   const struct sbp_log_options *options);
/* Finds the collective of a run by, in this order: its own name, what is said, the columns, a
 * command above it, the file's name (log_collective.c). */
enum sbp_status sbp_log_find_collective(struct sbp_logs *logs, int table,
                                        const struct sbp_log_run *run,
                                        const struct sbp_log_said *said,
                                        const struct sbp_log_collective **collective);
/* Finds the ranks and nodes of a run for its table (log_shape.c). */
enum sbp_status sbp_log_find_shape(struct sbp_logs *logs, int table, const struct sbp_log_run *run,
                                   const struct sbp_log_said *said,
                                   const struct sbp_log_options *options,
                                   const struct sbp_log_collective *collective);
/* The number of ranks by which the columns of most rows agree; 0: none, or any from *low to *high,
 * which are 0 where the columns say nothing (log_ranks.c). */
int sbp_log_infer_ranks(const struct sbp_log_run *run, const struct sbp_log_collective *collective,
                        int *low, int *high);
/* Whether a row's own columns belong together, for so many ranks (0: unknown). */
bool sbp_log_row_agrees(const struct sbp_log_row *row, const struct sbp_log_collective *collective,
                        int ranks);
/* Makes the tables, points and notes of one file (log_check.c). */
enum sbp_status sbp_log_check(struct sbp_logs *logs, int file, const struct sbp_log_scan *scan,
                              const struct sbp_log_options *options);
/* Compares the tables with each other (log_twins.c). */
enum sbp_status sbp_log_compare(struct sbp_logs *logs);

#endif
