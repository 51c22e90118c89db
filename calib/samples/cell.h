/* Cells, the pieces of work that a calibration measures one by one, and the samples of each.
 *
 * A cell is one piece of work of one size. A collective's cell says which shape its groups have
 * (nodes x ranks_per_node), how many groups of each node work at the same time, and how many bytes
 * they move. All sets of `nodes` neighbouring nodes work at once, too, since they share no port.
 *
 * A sample is the time of one repetition. The median of a cell's samples is settled when its 95 %
 * order-statistic interval lies within 5 % of it on either side, or after SBP_MAX_REPEATS (Hoefler
 * and Belli, Scientific Benchmarking, SC'15, rules 5 to 8).
 */
#ifndef SBP_CALIB_SAMPLES_CELL_H
#define SBP_CALIB_SAMPLES_CELL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/text.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/cluster/collective_kind.h"

enum sbp_cell_work {
    SBP_CELL_COLLECTIVE, /* wall time, the largest over all ranks */
    SBP_CELL_GEMM,       /* (m,k) x (k,n); compute is timed by the processor's own clock */
    SBP_CELL_COPY,       /* bytes read once and written once */
    SBP_CELL_LAUNCH,     /* the smallest product there is: the fixed cost of a call */
    SBP_CELL_PAIRS, /* round trips between disjoint pairs of ranks: finds slow ranks and links */
    SBP_CELL_SUSTAINED, /* a product again, after seconds of load: what power and heat leave */
    SBP_CELL_STREAM,    /* an element-wise sum: bytes of either operand and of the result */
    SBP_CELL_ATTENTION, /* causal flash attention, forward or backward */
    SBP_CELL_GELU,    /* GELU of so many bytes in fp32: bound by arithmetic where memory is fast */
    SBP_CELL_GROUPED, /* products of experts, one behind the other, each of matrices of its own */
    SBP_CELL_ROWS,    /* rows copied into the order of their experts */
    SBP_CELL_BESIDE,  /* a collective beside products: what it adds to their time; alone its own */
    SBP_CELL_HOST,    /* the smallest product: what the host takes to launch it ahead of a GPU */
    SBP_CELL_LINK,    /* bytes of a GPU copied to its host and back, all GPUs at a time */
};
#define SBP_CELL_WORKS 14

/* Causal flash attention over whole sequences in one element type; its backward pass is that of the
 * gradient of the input. */
struct sbp_attention_point {
    enum sbp_type type;
    enum sbp_pass pass;
    int64_t head_size, sequence, heads, batch;
};
int64_t sbp_cell_attention_rows(const struct sbp_attention_point *point); /* queries x heads */
double
sbp_cell_attention_flops(const struct sbp_attention_point *point); /* as sbp_op_work counts */

struct sbp_cell {
    enum sbp_cell_work work;
    enum sbp_collective kind;          /* of a collective, and beside products; not local */
    int nodes, ranks_per_node, groups; /* likewise; groups of a node at the same time */
    int64_t bytes; /* n of the cost formula, of a copy, a link, a stream, all rows, or one message
                      between a pair */
    int64_t row_bytes;  /* of a row; `bytes` is a multiple */
    enum sbp_type type; /* of a product */
    enum sbp_pass pass; /* whose operands a product has, as they lie in memory */
    int64_t m, n, k;    /* beside a collective, 0: none is */
    int64_t experts;    /* of grouped products: so many of these sizes each */
    int64_t load_s;     /* of a sustained product, before it is timed */
    int round;          /* of pairs */
    struct sbp_attention_point attention;
};

/* A product (m,k) x (k,n) in one element type. Of the gradient of an input the second factor lies
 * in memory as (n,k), of the gradient of a weight the first one as (k,m). */
struct sbp_gemm_point {
    enum sbp_type type;
    int64_t m, n, k;
    enum sbp_pass pass;
};
struct sbp_gemm_point sbp_cell_product(const struct sbp_cell *cell); /* one of grouped ones */
bool sbp_cell_product_same(const struct sbp_gemm_point *a, const struct sbp_gemm_point *b);

/* Of a collective that is timed beside products: whether it has none beside it. */
bool sbp_cell_is_alone(const struct sbp_cell *cell);

/* The operations of a cell's product, or of all of its products of experts. */
double sbp_cell_product_flops(const struct sbp_cell *cell);

bool sbp_cell_same(const struct sbp_cell *a, const struct sbp_cell *b);
/* Orders cells by kind of work, collective, shape, groups, then size, as tables show them. */
int sbp_cell_compare(const struct sbp_cell *a, const struct sbp_cell *b);
/* Rounds the bytes of a collective down to whole floats, as many for each member; never to 0. */
int64_t sbp_cell_whole_bytes(enum sbp_collective kind, int members, int64_t bytes);

/* "all-reduce of 2 x 4 ranks, 8 groups a node, 1 MiB"; returns buffer. */
#define SBP_CELL_NAME 128
const char *sbp_cell_name(const struct sbp_cell *cell, char *buffer);
/* Writes the members of a JSON object, without its braces. */
void sbp_cell_write(const struct sbp_cell *cell, struct sbp_text *text);
/* Reads the members that sbp_cell_write wrote; E_INPUT. */
enum sbp_status sbp_cell_read(const struct sbp_json *object, struct sbp_cell *cell) SBP_MUST_USE;

/* The most that any machine does, far above what is built: shorter times are faults of a clock or
 * of a file. */
#define SBP_LEAST_TIME_S          1e-9 /* of anything */
#define SBP_MOST_BUS_BYTES_PER_S  1e13 /* that a device sends: ten times NVLink 5 */
#define SBP_MOST_COPY_BYTES_PER_S 1e15 /* read and written: a hundred times a B200 */
#define SBP_MOST_FLOPS            1e18 /* hundreds of B200 in half precision */

/* The least seconds that a collective of so many members (>= 2), or a cell, can take by them. */
double sbp_cell_least_collective_s(enum sbp_collective kind, double members, double bytes);
double sbp_cell_least_s(const struct sbp_cell *cell);

#define SBP_MAX_REPEATS 100 /* as many as AutoDDL takes of every point (section 3.2) */

struct sbp_samples {
    int count;
    double time_s[SBP_MAX_REPEATS]; /* (count), in the order they were taken */
    double median_s, low_s, high_s; /* median and its interval; valid when count > 0 */
    bool settled;
};

/* Adds repetitions (beyond SBP_MAX_REPEATS they are dropped) and forms the median anew. */
void sbp_samples_add(struct sbp_samples *samples, const double *time_s, int count);

#endif
