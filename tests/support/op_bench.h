/* One operator by itself, its tensors laid out by hand, and what must hold of its work. What does
 * not fails the test.
 */
#ifndef SBP_TESTS_UNIT_OP_BENCH_H
#define SBP_TESTS_UNIT_OP_BENCH_H

#include "costmodel/model/op_cost.h"

/* Tensors: inputs, weights, output. */
struct bench {
    struct sbp_graph graph;
    struct sbp_op_node node;
    struct sbp_tensor tensor[SBP_MAX_INPUTS + SBP_MAX_WEIGHTS + 1];
};

void bench_open(struct bench *bench, enum sbp_op_kind kind);
/* Each of one size a dimension: (batch, sequence, features, inner). */
void bench_input(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d);
void bench_weight(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d);
void bench_output(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d);

/* Roles that split, by name; ends with NULL. */
struct ways {
    const char *role;
    double ways;
};
#define WAYS(...) ((const struct ways[]){__VA_ARGS__, {NULL, 0}})
#define WHOLE     ((const struct ways[]){{NULL, 0}})

struct sbp_factor factor_of(const struct bench *bench, const struct ways *ways);
struct sbp_work work_of(const struct bench *bench, enum sbp_pass pass, const struct ways *ways);
struct sbp_op_kept kept_of(const struct bench *bench, const struct ways *ways);
double products_flops(const struct sbp_work *work);

/* The elements that the collectives of one kind move between the members of a role in a pass. */
struct moved {
    double elements; /* n x times */
    int calls;
};
struct moved moved_by(const struct bench *bench, const struct ways *ways, const char *role,
                      enum sbp_pass pass, enum sbp_collective kind);

/* Equal but for the rounding of sums. */
void must_equal(const char *what, double value, double expected);
void must_be_product(const char *what, const struct sbp_work *work, int index, double count,
                     double m, double n, double k);
void must_move(const char *what, struct moved moved, double elements, int calls);

/* Devices together do the whole's products, times what is repeated, in every pass. */
struct share {
    const char *what;
    struct ways ways[4];
    double repeated; /* members that do the same work */
};
void must_share(const struct bench *bench, const struct share *share);

#endif
