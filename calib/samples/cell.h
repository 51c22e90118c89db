/* Cells: what a calibration measures, one by one.
 *
 * A cell is one piece of work of one size; its samples are repetitions of it behind a warm-up. A
 * collective's cell says which group shape (nodes x ranks_per_node), how many groups of each node
 * work at the same time, and how many bytes. All sets of `nodes` neighbouring nodes work at once,
 * too: they share no port.
 */
#ifndef SBP_CALIB_SAMPLES_CELL_H
#define SBP_CALIB_SAMPLES_CELL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/text.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/cluster/collective_kind.h"

enum sbp_cell_work {
    SBP_CELL_COLLECTIVE, /* all ranks' wall time, the largest counts */
    SBP_CELL_GEMM,       /* (m,k) x (k,n); the processor's own time, as of the other compute */
    SBP_CELL_COPY,       /* bytes read once and written once */
    SBP_CELL_LAUNCH,     /* the smallest product that is: what a call costs by itself */
    SBP_CELL_PAIRS, /* round trips between disjoint pairs of ranks: finds slow ranks and links */
};
#define SBP_CELL_WORKS 5

struct sbp_cell {
    enum sbp_cell_work work;
    enum sbp_collective kind;          /* of a collective; not local */
    int nodes, ranks_per_node, groups; /* of a collective; groups: of a node at the same time */
    int64_t bytes; /* of a collective: n of the cost formula; of a copy; of a message of pairs */
    enum sbp_type type; /* of a product */
    int64_t m, n, k;
    int round; /* of pairs */
};

bool sbp_cell_same(const struct sbp_cell *a, const struct sbp_cell *b);
/* Orders cells by kind of work, collective, shape, groups, then size: as tables show them. */
int sbp_cell_compare(const struct sbp_cell *a, const struct sbp_cell *b);
/* Bytes of a collective of about this size: whole floats, and as many for each member. */
int64_t sbp_cell_whole_bytes(enum sbp_collective kind, int members, int64_t bytes);

/* "all-reduce of 2 x 4 ranks, 8 groups a node, 1 MiB"; returns buffer. */
#define SBP_CELL_NAME 128
const char *sbp_cell_name(const struct sbp_cell *cell, char *buffer);
/* Its members of a JSON object, without braces: "all-reduce" in {"collective":...}. */
void sbp_cell_write(const struct sbp_cell *cell, struct sbp_text *text);
/* Reads what write wrote; E_INPUT. */
enum sbp_status sbp_cell_read(const struct sbp_json *object, struct sbp_cell *cell) SBP_MUST_USE;

#endif
