/* Published logs as measured collectives: what other people's benchmarks printed, read, checked and
 * brought to the sizes of costmodel/cluster/collective.h.
 *
 * Read are the tables of nccl-tests of every age and its JSON (-J), of rccl-tests, of the OSU
 * benchmarks, and the CSV of aiconfigurator's collector (which runs nccl-tests in one process). A
 * file may hold several tables, in any mix, between lines of launchers, of NCCL_DEBUG=INFO and of
 * whoever copied it; lines may bear a launcher's tag ("[1,0]<stdout>:", "0: ").
 *
 * Sizes. nccl-tests prints the larger of what a rank sends and receives in all: n itself. OSU
 * prints what a rank gives to an allgather and to each peer of an all-to-all: n is that times the
 * ranks; its other sizes are n.
 *
 * Times. nccl-tests times many launches back to back and prints two halves a row. A point takes
 * their mean, and it is told where in place took over 1.5 times as long; the in-place half alone
 * where the out-of-place one took over 1.5 times as long (the first use of a protocol:
 * `first_use`); the out-of-place half alone where only that one was checked for wrong values (an
 * all-to-all and a ring shift are not the same operation in place). OSU's time is the average over
 * iterations and ranks. sendrecv_perf is a ring shift, taken for a send-recv; osu_latency half a
 * round trip.
 *
 * Ranks are those of the device list; where a log has none, or not all of it, what the columns
 * give: size / (count x element) or bus bandwidth / bandwidth. Nodes are the host names of the
 * list. Where ranks of a host are each shown one device and all call it by the same number, several
 * names or buses that differ tell that the host is one node, or somebody who says how many nodes
 * there were. What a log does not say, the options may, or a line of the file itself, anywhere
 * above the tables,
 *     #@ ranks=64 | nodes=16 | collective=all_reduce | network=Socket
 * (any of the keys; ranks_per_node too; what follows a number in brackets is a remark, and a number
 * that does not stand alone, as in "1?", says nothing). What a log says itself is never replaced:
 * where both speak and differ, the table is refused.
 *
 * What is wrong with a log refuses a table, or leaves out rows, or is told (sbp_log_reasons says
 * which). Refused are failed runs also with the rows they printed first: what broke them may have
 * slowed them down before; runs with wrong values also where other sizes were right. Kept are the
 * whole rows of a table that was cut off or shortened by whoever published it: each stands for
 * itself, its own columns agree (bandwidth = size / time, bus bandwidth = bandwidth x factor of the
 * ranks). A shortened table shows in the printed average bus bandwidth; where that differs although
 * every size is there, numbers were changed, or rows of several runs stand together, and the table
 * is refused. So are rows behind the end of a table, whatever is said of the file: they are another
 * run's. OSU prints no average: there a gap between sizes shows, and sizes that fall are those of
 * several runs, which are refused.
 *
 * Between the tables of one call: of runs over several nodes, those over TCP sockets are refused
 * beside those over a fabric. Of two runs of one collective and shape, the one that takes over
 * twice as long at each of the largest sizes that both have is refused: it used another network, or
 * part of it; from 1.25 times on it is told. A copy of another table is refused.
 */
#ifndef SBP_CALIB_LOGS_LOG_H
#define SBP_CALIB_LOGS_LOG_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "calib/samples/points.h"

struct cJSON;

/* symbol, name in JSON, what becomes of it */
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
    X(NOT_PRICED, "not-priced", REFUSED) /* a benchmark of what has no price here */               \
    X(CPU_TIME, "cpu-time", REFUSED)                                                               \
    X(AVERAGE_DIFFERS, "average-differs", REFUSED)                                                 \
    X(SIZES_FALL, "sizes-fall", REFUSED)                                                           \
    X(ROWS_BEHIND, "rows-behind", REFUSED) /* the end of another table */                          \
    X(SOCKET_TWIN, "socket-twin", REFUSED)                                                         \
    X(SLOW_TWIN, "slow-twin", REFUSED)                                                             \
    X(COPY, "copy", REFUSED)                                                                       \
    X(SIZE_ZERO, "size-zero", ROWS_LEFT_OUT)                                                       \
    X(BROKEN_ROW, "broken-row", ROWS_LEFT_OUT)                                                     \
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
enum sbp_log_reason {
#define SBP_LOG_REASON_ENUM(name, text, effect) SBP_LOG_##name,
    SBP_LOG_REASON_MAP(SBP_LOG_REASON_ENUM)
#undef SBP_LOG_REASON_ENUM
};
struct sbp_log_reason_entry {
    const char *name;
    enum sbp_log_effect effect;
};
/* by enum sbp_log_reason */
extern const struct sbp_log_reason_entry sbp_log_reasons[];

enum sbp_log_tool { SBP_LOG_NCCL, SBP_LOG_RCCL, SBP_LOG_OSU, SBP_LOG_COLLECTOR };
const char *sbp_log_tool_name(enum sbp_log_tool tool);

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
    const char *text; /* what is wrong, and what to do */
};

struct sbp_logs {
    struct sbp_arena arena; /* owns what follows */
    int file_count, table_count, note_count;
    const char **file;
    struct sbp_log_table *table;
    struct sbp_log_note *note;
    int table_capacity, note_capacity;
};

/* For what logs do not say; 0: nothing. */
struct sbp_log_options {
    int nodes, ranks_per_node;
};

/* Reads the files in this order. On success every table's points that were not refused stand in
 * *measured (possibly none: ask logs->note why); the caller frees both, also after failure.
 * E_IO: a file cannot be read; E_MEMORY. A broken log is no failure. */
enum sbp_status sbp_logs_read(const char *const *path, int count,
                              const struct sbp_log_options *options, struct sbp_logs *logs,
                              struct sbp_measured *measured, struct sbp_diag *diag) SBP_MUST_USE;
/* The same over one text of `length` bytes named `name`. */
enum sbp_status sbp_logs_read_text(const char *text, size_t length, const char *name,
                                   const struct sbp_log_options *options, struct sbp_logs *logs,
                                   struct sbp_measured *measured,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_logs_free(struct sbp_logs *logs);

/* The table of what was read, then what was left out and what is to be known, a line each. E_IO,
 * E_MEMORY. */
enum sbp_status sbp_logs_print(const struct sbp_logs *logs, FILE *out) SBP_MUST_USE;
/* All of it as one JSON object: "tables" with their points, "notes" with their reasons, and "fit",
 * which is taken over, also on failure, and may be NULL. E_IO, E_MEMORY. */
enum sbp_status sbp_logs_print_json(const struct sbp_logs *logs, struct cJSON *fit, FILE *out,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* What was refused: `file: line N: what is wrong, what to do`, a line each. */
void sbp_logs_print_refusals(const struct sbp_logs *logs, FILE *out);

#endif
