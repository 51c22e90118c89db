/* Reads published logs: takes files that other people's benchmarks printed, checks them, and makes
 * points of calib/samples/points.h and notes on what is wrong with them. Each file is read as
 *
 *     log.c (files, lines) -> log_nccl.c, log_bare.c, log_json.c (runs) -> log_check.c (points)
 *     -> log_twins.c (tables beside each other)
 *
 * Formats. Known are the tables of nccl-tests of every age and its JSON (-J), of rccl-tests and of
 * the OSU benchmarks, and the CSV of aiconfigurator's collector (which runs nccl-tests in one
 * process). A file may hold several tables in any mix, between lines of launchers, of
 * NCCL_DEBUG=INFO and of whoever copied it; lines may bear a launcher's tag: "[1,0]<stdout>:" or
 * "0: ".
 *
 * Sizes. nccl-tests prints the larger of what a rank sends and receives in all: n of
 * costmodel/cluster/collective.h. OSU prints what a rank gives to an allgather and to each peer of
 * an all-to-all, so n is that times the ranks; its other sizes are n.
 *
 * Times. nccl-tests times many launches back to back, out of place and in place: two halves a row.
 * A point takes the mean of both halves, and a note tells where in place took over 1.5 times as
 * long. It takes the in-place half alone where the other one took over 1.5 times as long, as the
 * first use of a protocol does (`first_use`), and the out-of-place half alone where values were
 * checked there only: an all-to-all and a ring shift are not the same operation in place. OSU's
 * time is the average over iterations and ranks. sendrecv_perf, a ring shift, counts as a
 * send-recv; osu_latency is half a round trip.
 *
 * Shape. The list of devices gives the ranks; where it is missing or not whole, the columns do:
 * size / (count x element), or bus bandwidth / bandwidth. Nodes are the host names of the list.
 * Ranks of one host that each see one device call it by the same number; that the host is one node
 * is then told by buses that differ, by several host names, or by somebody who says how many nodes
 * there were. Options say what a log does not, or a line of the file itself, anywhere above the
 * tables:
 *
 *     #@ ranks=64 | nodes=16 | collective=all_reduce | network=Socket
 *
 * (any of the keys, ranks_per_node too; text in brackets behind a number is a remark, and a number
 * that does not stand alone, as "1?", counts for nothing). It never replaces what the log itself
 * says: where both speak and differ, the table is refused.
 *
 * Faults. sbp_log_reasons says of each whether it refuses a table, leaves out rows, or is told. A
 * failed run is refused with the rows that it printed first, since what broke it may have slowed
 * them down; a run with wrong values also where other sizes were right. Whole rows of a table that
 * was cut off or shortened stay, since each stands for itself and its columns agree (bandwidth =
 * size / time, bus bandwidth = bandwidth x factor of the ranks). Rows faster than any link
 * (calib/samples/cell.h) are left out. The printed average bus bandwidth shows that rows are
 * missing; where it differs although every size is there, numbers were changed or rows of several
 * runs mixed, and the table is refused. So are rows behind the end of a table: they are another
 * run's. OSU prints no average: there a gap between sizes shows missing rows, and sizes that fall
 * those of several runs, which are refused.
 *
 * Tables of one call are compared. Runs of several nodes over TCP sockets are refused beside runs
 * over a fabric. Of two runs of one collective and shape, the one that takes over twice as long at
 * each of the largest common sizes is refused, since it used another network or part of it;
 * from 1.25 times on it is told. A copy of another table is refused.
 */
#ifndef SBP_CALIB_LOGS_LOG_H
#define SBP_CALIB_LOGS_LOG_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "calib/samples/points.h"

struct cJSON;

/* symbol, name in JSON, effect */
#define SBP_LOG_REASON_MAP(X)                                                                      \
    X(NO_TABLE, "no-table", REFUSED)             /* the file holds none that is known */           \
    X(NOT_WHOLE_JSON, "not-whole-json", REFUSED) /* cut off, or not JSON of nccl-tests */          \
    X(FAILED_RUN, "failed-run", REFUSED)                                                           \
    X(NO_ROWS, "no-rows", REFUSED)                                                                 \
    X(WRONG_VALUES, "wrong-values", REFUSED)                                                       \
    X(ONE_RANK, "one-rank", REFUSED)                                                               \
    X(COPIES, "copies", REFUSED)     /* every process ran alone: built without MPI */              \
    X(ONE_NODE, "one-node", REFUSED) /* several nodes were said */                                 \
    X(SHAPE_DIFFERS, "shape-differs", REFUSED)                                                     \
    X(RANKS_DIFFER, "ranks-differ", REFUSED)                                                       \
    X(RANKS_UNKNOWN, "ranks-unknown", REFUSED)                                                     \
    X(NODES_UNKNOWN, "nodes-unknown", REFUSED)                                                     \
    X(UNEVEN, "uneven", REFUSED)             /* nodes with different numbers of ranks */           \
    X(HOSTS_REPEAT, "hosts-repeat", REFUSED) /* nodes of the same name */                          \
    X(GROUPS, "groups", REFUSED)             /* several at a time (NCCL_TESTS_SPLIT) */            \
    X(COLLECTIVE_UNKNOWN, "collective-unknown", REFUSED)                                           \
    X(COLLECTIVE_DIFFERS, "collective-differs", REFUSED)                                           \
    X(NOT_PRICED, "not-priced", REFUSED) /* a cluster file has no price for it */                  \
    X(CPU_TIME, "cpu-time", REFUSED)                                                               \
    X(AVERAGE_DIFFERS, "average-differs", REFUSED)                                                 \
    X(SIZES_FALL, "sizes-fall", REFUSED)                                                           \
    X(ROWS_BEHIND, "rows-behind", REFUSED) /* the end of another table */                          \
    X(SOCKET_TWIN, "socket-twin", REFUSED)                                                         \
    X(SLOW_TWIN, "slow-twin", REFUSED)                                                             \
    X(COPY, "copy", REFUSED)                                                                       \
    X(SIZE_ZERO, "size-zero", ROWS_LEFT_OUT)                                                       \
    X(BROKEN_ROW, "broken-row", ROWS_LEFT_OUT)                                                     \
    X(IMPOSSIBLE, "impossible-rate", ROWS_LEFT_OUT) /* faster than any link */                     \
    X(FIRST_USE, "first-use", TOLD)                                                                \
    X(HALVES_DIFFER, "halves-differ", TOLD)                                                        \
    X(CUT_OFF, "cut-off", TOLD)                                                                    \
    X(SHORTENED, "shortened", TOLD)                                                                \
    X(NO_AVERAGE, "no-average", TOLD)                                                              \
    X(BELOW_MINIMUM, "below-minimum", TOLD) /* of the run's own, NCCL_TESTS_MIN_BW */              \
    X(NOT_ALONE, "not-alone", TOLD)         /* launches grouped, or each waited for */             \
    X(SOCKETS, "sockets", TOLD)                                                                    \
    X(SLOWER, "slower", TOLD)                                                                      \
    X(NAME_GUESSED, "name-guessed", TOLD)

enum sbp_log_effect { SBP_LOG_REFUSED, SBP_LOG_ROWS_LEFT_OUT, SBP_LOG_TOLD };
#define SBP_LOG_REASON_ENUM(name, text, effect) SBP_LOG_##name,
enum sbp_log_reason { SBP_LOG_REASON_MAP(SBP_LOG_REASON_ENUM) };
#undef SBP_LOG_REASON_ENUM
struct sbp_log_reason_entry {
    const char *name;
    enum sbp_log_effect effect;
};
/* By enum sbp_log_reason. */
extern const struct sbp_log_reason_entry sbp_log_reasons[];

enum sbp_log_tool { SBP_LOG_NCCL, SBP_LOG_RCCL, SBP_LOG_OSU, SBP_LOG_COLLECTOR };

/* Where a table's number of ranks comes from. */
enum sbp_log_ranks_from {
    SBP_LOG_UNKNOWN,
    SBP_LOG_LISTED,   /* in the list of devices */
    SBP_LOG_IMPLIED,  /* by the benchmark */
    SBP_LOG_INFERRED, /* from the columns */
    SBP_LOG_SAID,     /* by options or a line of the file's own */
};

struct sbp_log_table {
    int file, number; /* place in files; place in the file, from 0 */
    int line;         /* of the file where it begins, from 1; 0: of no line (JSON) */
    enum sbp_log_tool tool;
    const char *collective; /* as the tool calls it; "?" */
    bool is_known;          /* kind */
    enum sbp_collective kind;
    int ranks, nodes, ranks_per_node; /* 0: unknown */
    enum sbp_log_ranks_from ranks_from;
    const char *library, *network; /* NULL: not said */
    const char *date;
    int rows;                       /* read, whatever became of them */
    int kept, first_uses;           /* points */
    double least_bytes, most_bytes; /* n of the points; 0 without */
    bool is_refused;
    struct sbp_measured_point *point; /* (kept), also of a table refused beside another */
};

struct sbp_log_note {
    int file, table; /* table: place in tables, -1: the file's */
    int line;        /* 0: of no line */
    enum sbp_log_reason reason;
    const char *text; /* says what is wrong and what to do */
};

struct sbp_logs {
    struct sbp_arena arena; /* owns what follows */
    int file_count, table_count, note_count;
    const char **file;
    struct sbp_log_table *table;
    struct sbp_log_note *note;
    int table_capacity, note_capacity;
};

/* Said by the user where logs do not; 0: nothing. */
struct sbp_log_options {
    int nodes, ranks_per_node;
};

/* Reads files in the order of path (count). *measured gets the points of every table that was not
 * refused (possibly none: logs->note says why); the caller frees both, also after failure. E_IO: a
 * file cannot be read; E_MEMORY. A broken log is no failure. */
enum sbp_status sbp_logs_read(const char *const *path, int count,
                              const struct sbp_log_options *options, struct sbp_logs *logs,
                              struct sbp_measured *measured, struct sbp_diag *diag) SBP_MUST_USE;
/* The same over one text of `length` bytes named `name`. */
enum sbp_status sbp_logs_read_text(const char *text, size_t length, const char *name,
                                   const struct sbp_log_options *options, struct sbp_logs *logs,
                                   struct sbp_measured *measured,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_logs_free(struct sbp_logs *logs);

/* Prints the tables that were read, then the notes, a line each. E_IO, E_MEMORY. */
enum sbp_status sbp_logs_print(const struct sbp_logs *logs, FILE *out) SBP_MUST_USE;
/* Prints one JSON object: "tables" with their points, "notes" with their reasons, and "fit", which
 * is taken over, also on failure, and may be NULL. E_IO, E_MEMORY. */
enum sbp_status sbp_logs_print_json(const struct sbp_logs *logs, struct cJSON *fit, FILE *out,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* Prints a line for each refusal: `file: line N: what is wrong, what to do`. */
void sbp_logs_print_refusals(const struct sbp_logs *logs, FILE *out);

#endif
