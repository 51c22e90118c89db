/* The file of samples: holds everything that was measured, a line a cell, appended as each is done.
 *
 * It is JSON lines. A session is one start of the program: a line that says where and how it ran, a
 * line a cell, and a last line when it came to its end. So a run that was killed continues where it
 * stopped (a new session that resumes the one before), an older file is merged by copying it to the
 * front, and a torn last line is dropped. A chain is a session with those that resume it.
 *
 *   {"sbplan_samples":1,"date":...,"nodes":2,"ranks_per_node":2,"seed":1,...,
 *    "host_of_rank":["n0","n0","n1","n1"]}
 *   {"run":0,"collective":"all-reduce","nodes":2,"ranks_per_node":2,"groups":1,"bytes":1024,
 *    "settled":true,"took_s":0.01,"s":[1.1e-5,...]}
 *   {"run":0,"pairs":0,"bytes":4096,"took_s":0.01,"between":[[0,1,1.1e-5],...]}
 *   {"end":"done","wall_s":12.5}
 */
#ifndef SBP_CALIB_SAMPLES_SAMPLE_FILE_H
#define SBP_CALIB_SAMPLES_SAMPLE_FILE_H

#include <stddef.h>

#include "base/arena.h"
#include "calib/samples/cell.h"
#include "calib/samples/origin.h"
#include "calib/samples/placement.h"

#define SBP_SAMPLE_FILE_KEY   "sbplan_samples"                 /* of every session's line */
#define SBP_SAMPLE_FILE_BEGIN "{\"" SBP_SAMPLE_FILE_KEY "\":1" /* of those that are written */
#define SBP_MAX_RUNS          100 /* passes over the cells in one chain */

struct sbp_sample_pair {
    int a, b;      /* ranks */
    double time_s; /* half a round trip */
};

/* One line of a cell. */
struct sbp_result {
    struct sbp_cell cell;
    int line;         /* of the file, from 1 */
    int session, run; /* run: pass over the cells, from 0, counted on through resumed sessions */
    bool settled;
    double took_s; /* with warm-ups */
    int count;
    const double *time_s;           /* (count), in the order they were taken */
    double median_s, low_s, high_s; /* the median of time_s and its interval */
    /* Compute: the rank that was slowest, and its median over the middle one of all ranks. */
    int slowest_rank; /* -1: not said */
    double slowest_ratio;
    int pair_count;
    const struct sbp_sample_pair *pair; /* (pair_count) */
};

struct sbp_session {
    struct sbp_calibration_origin origin;
    struct sbp_rank_placement placement; /* owned; no ranks: older files do not say */
    int chain;                           /* from 0 */
    bool is_last;     /* of the last chain, and every rank lay on the host that it had last */
    bool ended;       /* came to its end, by itself or by its time */
    double wall_s;    /* of an ended one */
    int first, count; /* results */
};

struct sbp_record {
    struct sbp_arena arena; /* owns the arrays and texts, but not placements */
    const char *path;
    int session_count, result_count;
    struct sbp_session *session;
    struct sbp_result *result;
    size_t whole_bytes; /* of the file; behind them is a torn line */
};

/* Reads a file into a record, which the caller frees. E_IO; E_INPUT: `path: line N: what is wrong`;
 * E_MEMORY. *record is empty on failure. */
enum sbp_status sbp_sample_file_read(const char *path, struct sbp_record *record,
                                     struct sbp_diag *diag) SBP_MUST_USE;
/* The same from text of `length` bytes; `path` is its name in messages. */
enum sbp_status sbp_sample_file_parse(const char *path, const char *text, size_t length,
                                      struct sbp_record *record,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_sample_file_free(struct sbp_record *record);
/* Whether a file can be read and its first line is that of a session, however JSON is laid out. */
bool sbp_sample_file_is(const char *path);

/* Whether the median is a time that a machine can take (sbp_cell_least_s); a clock too coarse gives
 * 0 s. Of pairs each time stands for itself. */
bool sbp_sample_file_is_possible(const struct sbp_result *result);

/* The lines, each with its newline; text->failed tells of memory. */
void sbp_sample_file_session_line(const struct sbp_calibration_origin *origin,
                                  const struct sbp_rank_placement *placement, bool resumes,
                                  struct sbp_text *text);
void sbp_sample_file_result_line(const struct sbp_result *result, struct sbp_text *text);
void sbp_sample_file_end_line(bool done, double wall_s, struct sbp_text *text);

/* The samples' file of a cluster file: path with ".json" replaced by ".samples.jsonl" (appended
 * where path does not end so); a path that ends in ".jsonl" is one itself. E_RANGE: longer than
 * size - 1 bytes. */
enum sbp_status sbp_sample_file_path(const char *path, char *record_path, int size,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
