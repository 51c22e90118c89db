/* The shares of its peak that a device reaches in products, attention, streams and copies of rows.
 *
 * Input is the "device" object of a cluster file. Shares of products come as scattered shapes or on
 * grids, by type and pass; those of flash attention on grids by head size, sequence and rows; those
 * of rows in another order by the bytes of a row. What a file does not give counts as 1, the peak.
 * cluster.h turns shares into seconds. All functions are pure; tables are read only.
 */
#ifndef SBP_COSTMODEL_CLUSTER_DEVICE_H
#define SBP_COSTMODEL_CLUSTER_DEVICE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/json/json.h"
#include "base/status.h"

enum sbp_type { SBP_FP32, SBP_FP64, SBP_BF16, SBP_FP16, SBP_FP8 };
#define SBP_TYPES        5
#define SBP_STORED_TYPES 4 /* in which tensors lie; fp8 is a type of products alone */

enum sbp_pass { SBP_PASS_FORWARD, SBP_PASS_INPUT_GRADIENT, SBP_PASS_WEIGHT_GRADIENT };
#define SBP_PASSES 3

#define SBP_DEVICE_LEAST_SHARE 1e-9 /* of the peak; keeps times finite */

/* The type and pass that a table was measured for; -1: any. */
struct sbp_rate_scope {
    int type, pass;
};

/* Measured share of the peak rate that a (m, k) x (k, n) product reaches. */
struct sbp_efficiency {
    struct sbp_rate_scope scope;
    int64_t m, n, k;
    double share; /* SBP_DEVICE_LEAST_SHARE .. 1 */
};

/* Shares of the peak over three sizes: m, n and k of a product; head size, sequence and rows of
 * attention; bytes of a row, and two axes of one size each. */
#define SBP_RATE_AXES 3
struct sbp_rate_grid {
    struct sbp_rate_scope scope;
    int count[SBP_RATE_AXES];
    const double *log_size[SBP_RATE_AXES]; /* (count) rising natural logarithms */
    const double *log_share;               /* (count[0], count[1], count[2]) row-major, <= 0 */
};

/* Attention with materialised scores, as kernels of its own. */
struct sbp_unfused_attention {
    double forward_passes, backward_passes; /* over the scores, between memory and arithmetic */
    double share;                           /* of the peak, of its products */
};

/* Copied by value with its cluster: the tables are borrowed and live in the arena of
 * sbp_device_rates_read. Zeroed: everything at the peak. */
struct sbp_device_rates {
    int efficiency_count, grid_count, attention_count;
    const struct sbp_efficiency *efficiency; /* (efficiency_count) */
    const struct sbp_rate_grid *grid;        /* (grid_count) of products */
    const struct sbp_rate_grid *attention;   /* (attention_count) of flash attention */
    const struct sbp_rate_grid *dispatch;    /* of memory bandwidth; NULL: rows are a stream */
    /* Factors, 0: not given, which means 1. */
    double pass_share[SBP_PASSES];    /* of products in a pass, beside the tables */
    double grouped_share[SBP_PASSES]; /* of the products of experts, besides */
    double attention_share;           /* of fused attention */
    double sustained[SBP_TYPES];      /* of products and attention: what a power limit leaves */
    double stream_share;              /* of memory bandwidth, where a kernel streams */
    double dispatch_share;            /* of rows in another order, beside their table */
    /* The rate of element-wise kernels in 4-byte types; 0: memory alone bounds them. */
    double vector_operations_per_s;
    /* What a machine leaves to every trainer. */
    double overlap_share; /* of a communication's time, the most that hides behind arithmetic: what
                             it takes from products beside it shows; 0: not given, which means 1 */
    double host_launch_s; /* that a host takes to launch an operator's pass at least; default 0 */
    struct {
        double multiple, share; /* a contiguous size that the multiple does not divide is slower */
    } alignment;
    struct sbp_unfused_attention unfused; /* share 0: not given */
};

/* Reads the keys below of a device; others are left alone. docs/cluster-file.md says what they
 * mean.
 *   "gemm"                [{"m", "n", "k", "efficiency", "type"?, "pass"?}...]
 *   "gemm_grids"          [{"type"?, "pass"?, "m", "n", "k", "efficiency", "source"?}...]: three
 *                         lists of sizes, rising, and shares of all their combinations, k fastest
 *   "attention_grids"     [{"type"?, "pass"?, "head_size", "sequence", "rows", "efficiency",
 *                         "source"?}...], rows fastest
 *   "pass_efficiency", "grouped_efficiency"
 *                         {"forward"?, "input_gradient"?, "weight_gradient"?}
 *   "alignment"           {"multiple", "efficiency"}
 *   "unfused_attention"   {"forward_passes", "backward_passes", "efficiency"}
 *   "stream_efficiency"
 *   "dispatch_efficiency" {"row_bytes", "efficiency", "source"?}: sizes, rising, and their shares
 *   "vector_operations_per_s" 1 .. 1e30
 *   "overlap_efficiency"
 *   "host_launch_s"       0 .. 1
 *   "sustained"           of all types, or {type: share...}
 * Tables are made in the arena and live as long as it. E_INPUT: a share outside 1e-9 .. 1, sizes
 * that do not rise, a wrong number of shares, two grids of one type and pass; E_MEMORY. */
enum sbp_status sbp_device_rates_read(const struct sbp_json *device, struct sbp_arena *arena,
                                      struct sbp_device_rates *rates) SBP_MUST_USE;
/* These keys, NULL-terminated. */
extern const char *const sbp_device_rate_keys[];

/* The value of "unfused_attention". E_INPUT. */
enum sbp_status sbp_device_read_unfused(const struct sbp_json *object,
                                        struct sbp_unfused_attention *unfused) SBP_MUST_USE;

const char *sbp_device_pass_name(enum sbp_pass pass); /* "forward", "input_gradient", ... */

/* A product (m, k) x (k, n). */
struct sbp_device_product {
    enum sbp_type type;
    enum sbp_pass pass;
    double m, n, k;
    double elements; /* moved between memory and arithmetic; 0: m k + k n + m n */
    bool grouped;    /* one of several alike in one kernel, as experts' are */
};
/* Share of the peak that a product reaches, 0 < share <= 1: the table's, times the factors that
 * apply. The table is the one that fits type and pass best; a half-precision type takes the
 * other's, then one without a type. Scattered shapes of quite another type serve where nothing else
 * is given, but no such grid: where units differ, so do the sizes at which they are busy. A grid
 * goes before scattered shapes of the same fit.
 *
 * On a grid ln(share) is linear in ln(m), ln(n) and ln(k) within each cell, so times are powers of
 * sizes between measured ones. Beyond the largest size the share stays; below the least one the
 * time does, for a kernel fills its smallest tile anyway. The share of scattered shapes is their
 * average weighted by inverse squared distance in (ln m, ln n, ln k) (Shepard, 1968).
 *
 * Contiguous sizes are n and k, of a weight gradient m and n. */
double sbp_device_product_share(const struct sbp_device_rates *rates,
                                const struct sbp_device_product *product);
/* The same of flash attention: `rows` are queries times heads on the device. The share is one of
 * the flops that sbp_op_work counts. */
struct sbp_device_attention {
    enum sbp_type type;
    enum sbp_pass pass;
    double head_size, sequence, rows;
};
double sbp_device_attention_share(const struct sbp_device_rates *rates,
                                  const struct sbp_device_attention *attention);

/* Share of memory bandwidth that copies of rows of so many bytes reach in another order, as those
 * of tokens to their experts; beyond the largest size the share stays, below the least one the time
 * of a row does. 0: the device says none, so that they stream as other kernels. */
double sbp_device_dispatch_share(const struct sbp_device_rates *rates, double row_bytes);

/* Flops of one score of attention: q . k and p v forward; backward dP = dy v', dV = p' dy, dQ = ds
 * k and dK = ds' q, and with flash attention q . k again (Dao et al., 2022, algorithm 4); and those
 * of the softmax. Shares of attention are of these. */
double sbp_device_score_flops(enum sbp_pass pass, double qk_size, double value_size, bool flash);

/* Operations that GELU takes of an element forward, as sbp_op_work counts them: calibrations time
 * it for the rate of element-wise kernels. */
#define SBP_DEVICE_GELU_OPERATIONS 20

/* The most that either reaches in a pass, whatever its sizes are. */
double sbp_device_most_product_share(const struct sbp_device_rates *rates, enum sbp_type type,
                                     enum sbp_pass pass);
double sbp_device_most_attention_share(const struct sbp_device_rates *rates, enum sbp_type type,
                                       enum sbp_pass pass);
/* Shares on several grids together. */
int64_t sbp_device_rate_points(const struct sbp_rate_grid *grids, int count);

/* A factor that may not be given. */
static inline double sbp_device_factor(double given)
{
    return given > 0 ? given : 1;
}

#endif
