/* A compiled program with all that it came from, and what must hold of any: memory without
 * overlaps, nothing read before it is written, calls that match the instructions, and prices
 * recomputed from the strategy alone with the paper's formulas. What does not hold fails the test.
 */
#ifndef SBP_TESTS_UNIT_PROGRAM_ORACLE_H
#define SBP_TESTS_UNIT_PROGRAM_ORACLE_H

#include "costmodel/program/program.h"
#include "tests/support/strategy_oracle.h"

/* Begins as zeroes with a model read into it. */
struct oracle_setting {
    struct oracle_model model;
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_program program;
};

/* The cluster's mesh, and an empty strategy of the model on it. */
void oracle_set_cluster(struct oracle_setting *s, const struct sbp_cluster *cluster);
/* Whether the strategy is legal; nothing fails. */
enum sbp_status oracle_close(struct oracle_setting *s);
/* Closes the strategy and compiles it. */
void oracle_compile(struct oracle_setting *s, const struct sbp_element_bytes *bytes);
void oracle_drop(struct oracle_setting *s);

/* Equal but for the rounding of sums. */
void oracle_near(const char *what, double value, double expected);

/* Returns the elements of a tensor that a device holds in a distribution. */
int64_t oracle_local_elements(const struct oracle_setting *s, int tensor,
                              const struct sbp_dist *dist);
/* Parts of a compiled program alone: its memory, what is read and written when, and its totals
 * (program_memory.c); its prices (program_prices.c). */
void oracle_check_memory(const struct oracle_setting *s);
void oracle_check_flow(const struct oracle_setting *s);
void oracle_check_totals(const struct oracle_setting *s);
void oracle_check_price(const struct oracle_setting *s);
/* All of the above, of a compiled program. */
void oracle_check_program(const struct oracle_setting *s);

#endif
