/* The sweep: the plan of measurements. It lists every cell of a layout of ranks, in an order by
 * which the cells done so far are as useful as they can be whenever the time ends.
 *
 * - Group shapes: every divisor of the nodes x every divisor of the ranks on each, from 2 ranks.
 * - Groups of a node at the same time: one, and as many as there is room for; where a node has one
 *   rank in each, every divisor between, so that sharing its ports is measured, not assumed.
 * - Sizes: 8 B, 16 B, ... up to max_bytes; first some far apart, then those between (as SKaMPI
 *   refines: Reussner et al., "SKaMPI: a detailed, accurate MPI benchmark", 1998).
 * - Compute: a copy, products of linear layers over a grid, those of experts, the smallest product,
 *   an element-wise sum, and GELU, attention over a grid and rows put in the order of experts where
 *   there are kernels of them.
 * - Overlap: all-reduces, all-gathers and reduce-scatters of large messages beside products, in the
 *   widest shapes within a node, between nodes and of both, all groups at once.
 * - Pairs: rounds of a tournament, all ranks of a node, then all nodes by each of their ranks.
 *
 * The first stage holds the cells that a cluster file needs (the widest shapes within a node and
 * between nodes, alone and with all groups at once, at few sizes) and the pairs, which find slow
 * ranks and links.
 */
#ifndef SBP_CALIB_SAMPLES_SWEEP_H
#define SBP_CALIB_SAMPLES_SWEEP_H

#include "calib/samples/cell.h"

#define SBP_SWEEP_LEAST_BYTES       ((int64_t)8)
#define SBP_SWEEP_LEAST_MAX_BYTES   ((int64_t)4 << 10)
#define SBP_SWEEP_LARGEST_MAX_BYTES ((int64_t)1 << 30)
#define SBP_SWEEP_STAGES            6

/* The compute that is timed of one kind of processor, and what of it some lack, as bits. */
enum sbp_products { SBP_PRODUCTS_CPU, SBP_PRODUCTS_GPU };
enum sbp_lack {
    SBP_LACKS_FP8 = 1,
    SBP_LACKS_KERNELS = 2, /* of attention and rows */
    SBP_LACKS_LANE = 4,    /* of collectives beside products */
};
#define SBP_LACKS 3
struct sbp_product_shape {
    enum sbp_type type;
    int64_t m, n, k;
};
/* Linear layers of so many tokens, inputs and outputs: all combinations whose products have no more
 * multiplications than `most` are timed, forward and backward. */
struct sbp_layer_list {
    enum sbp_type type;
    int token_counts, features;
    const int64_t *tokens, *feature; /* (token_counts), (features), both rising */
    double most;
};
/* Linear layers of which every expert has one: all combinations with the tokens that each gets are
 * timed, in the type of training. Sizes are some of those of the layers, so that a single product
 * of the same ones is timed, too. */
struct sbp_expert_list {
    int64_t experts;
    int token_counts, layers;
    const int64_t *tokens;       /* (token_counts) */
    const int64_t (*feature)[2]; /* (layers): inputs, outputs */
};
/* All combinations are timed, forward and backward, in the type of training. Each has the same
 * rows: heads beside each other in memory, and as many sequences as make them. */
struct sbp_attention_list {
    int head_sizes, sequences;
    const int64_t *head_size, *sequence; /* (head_sizes), (sequences), both rising */
    int64_t heads, rows;
};
struct sbp_product_list {
    int count, required; /* so many at the front are timed whatever the time: one a type */
    const struct sbp_product_shape *shape; /* (count), forward: they tell the peak of each type */
    enum sbp_type training;                /* of experts and attention */
    int layer_lists;
    const struct sbp_layer_list *layers; /* (layer_lists), of a type each */
    const struct sbp_expert_list *experts;
    double small;                    /* multiplications up to which a product counts as small */
    int64_t copy_bytes;              /* beyond a rank's caches; less where memory is scarce */
    bool sustains;                   /* the first product is timed under load, too */
    bool has_host;                   /* that launches work ahead of the processor */
    struct sbp_product_shape beside; /* collectives; one of the products above */
    bool has_gelu;                   /* there is a kernel of it */
    double flops, copy_bytes_per_s;  /* that an estimate of the time assumes */
    const struct sbp_attention_list *attention;
    int row_sizes;
    const int64_t *row_bytes; /* (row_sizes), rising: of copies into another order */
};
const struct sbp_product_list *sbp_sweep_products(enum sbp_products products);
/* The most bytes of y(m,n) = a(m,k) b(k,n) over a list, from the values before on; grouped products
 * have theirs beside each other. */
void sbp_sweep_product_bytes(const struct sbp_product_list *list, int64_t *y_bytes,
                             int64_t *a_bytes, int64_t *b_bytes);

/* How ranks lie on nodes, and up to which size to measure. */
struct sbp_sweep_options {
    int nodes, ranks_per_node; /* of the emptiest node; further ranks of others wait */
    int64_t max_bytes;         /* SBP_SWEEP_LEAST_MAX_BYTES .. SBP_SWEEP_LARGEST_MAX_BYTES */
    int64_t copy_bytes; /* of the copy: the least over nodes; a stream's operands have half */
    enum sbp_products products;
    unsigned kinds;  /* 0: everything; else a bit for each collective to measure, with only the
                        required compute */
    unsigned lacks;  /* bits of enum sbp_lack: cells that the processor of a rank cannot do */
    double budget_s; /* of all runs: decides how long the load before a sustained product is */
};

struct sbp_sample_sweep {
    struct sbp_sweep_options options;
    int count;
    int required;                    /* so many at the front are measured whatever the time */
    struct sbp_cell *cell;           /* (count), by stage; owned */
    int first[SBP_SWEEP_STAGES + 1]; /* of each stage */
};

/* One rank has compute alone. E_MEMORY; E_RANGE: a million cells and more. */
enum sbp_status sbp_sweep_init(struct sbp_sample_sweep *sweep,
                               const struct sbp_sweep_options *options,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_sweep_free(struct sbp_sample_sweep *sweep);

/* The order of pass `run` over the cells into order (count): stages in order, each shuffled by seed
 * and run; in run 0 the required cells stay in front, as they are. */
void sbp_sweep_order(const struct sbp_sample_sweep *sweep, uint64_t seed, int run, int *order);

/* The partner of a rank (node, local rank) in a round of pairs; false: it waits. */
bool sbp_sweep_partner(const struct sbp_sweep_options *options, int round, int node, int local,
                       int *partner_node, int *partner_local);

#endif
