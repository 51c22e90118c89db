/* Prices of a space, in parts: what a choice costs by itself (space_cost.c), the memory that it
 * takes (space_memory.c), what two choices cost together (space_pairs.c); space_problem.c makes a
 * pairwise problem of them. Costs are in seconds, weighted as the objective is (space.h).
 */
#ifndef SBP_PLANNER_SPACE_PRICE_H
#define SBP_PLANNER_SPACE_PRICE_H

#include "planner/space.h"

double sbp_space_collective_s(const struct sbp_space *space, enum sbp_collective kind,
                              const struct sbp_group *group, double bytes);
/* Of the whole tensor. */
double sbp_space_elements(const struct sbp_space *space, int tensor);

/* Columns of the catalogue's roles. */
enum sbp_column {
    SBP_COLUMN_INPUT,
    SBP_COLUMN_WEIGHT,
    SBP_COLUMN_GRADIENT, /* of a weight */
    SBP_COLUMN_OUTPUT
};
/* All roles whose state, in a column, is of a kind. */
struct sbp_group sbp_space_group(const struct sbp_op_entry *entry,
                                 const struct sbp_factors *factors, enum sbp_column column,
                                 int index, enum sbp_kind kind);
/* Parts that the splits of a column make. */
double sbp_space_parts(const struct sbp_op_entry *entry, const struct sbp_factors *factors,
                       enum sbp_column column, int index);

/* Whether an input is the model's own and arrives as it is wanted, free of charge. */
bool sbp_space_free_input(const struct sbp_space *space, int op, int input);
/* Of blocks, little but their inputs is kept. */
bool sbp_space_forms_again(const struct sbp_space *space);
/* Forward passes of a step's micro-batch: two where all activations are formed again, and of half
 * of what products leave one more. */
double sbp_space_forward_passes(const struct sbp_space *space);
bool sbp_space_is_attention(enum sbp_op_kind kind);

/* How the replicas of a weight share its states (ZeRO: Rajbhandari et al., 2020, section 5; owners:
 * CDP, section 4.4), as costmodel/program_weights.c compiles it. */
struct sbp_replicas {
    struct sbp_group group;
    int level;           /* of ZeRO; 0 where there is one replica */
    double local, shard; /* elements that a device holds, and that it updates */
};
struct sbp_replicas sbp_space_replicas(const struct sbp_space *space, int op, int weight,
                                       const struct sbp_factors *factors);
/* A tied weight is synchronised and updated once: by its first user. */
int sbp_space_first_user(const struct sbp_space *space, int op, int weight);

/* Adds up what the operators that a variable decides cost in one of its choices: its own, repeats
 * included, and the followers that run where it rests. */
typedef double sbp_price_op(const struct sbp_space *space, int op,
                            const struct sbp_factors *factors);
double sbp_space_sum(const struct sbp_space *space, int variable, int choice, sbp_price_op *price);

/* Everything that no choice changes. */
double sbp_space_constant_s(const struct sbp_space *space);

/* Adds a transfer's costs to the cells of its edge: rows are its first variable's choices, or the
 * table's columns are (transposed). Scratch comes out of the arena. E_MEMORY. */
enum sbp_status sbp_space_fill_transfer(const struct sbp_space *space,
                                        const struct sbp_transfer *transfer, double *table,
                                        bool transposed, struct sbp_arena *arena) SBP_MUST_USE;
/* The same of what outputs cost on their way into a rest. */
enum sbp_status sbp_space_fill_keep(const struct sbp_space *space, const struct sbp_keep *keep,
                                    double *table, bool transposed,
                                    struct sbp_arena *arena) SBP_MUST_USE;

#endif
