/* Building a space, in parts: what may be played (space_roles.c), variables and what they stand for
 * (space_variables.c), whether a choice is legal (space_legal.c), the one choice of the `megatron`
 * space (space_megatron.c), domains (space_domains.c); space.c puts them together.
 *
 * A choice under trial stands in the row behind a variable's accepted choices.
 */
#ifndef SBP_PLANNER_SPACE_BUILD_H
#define SBP_PLANNER_SPACE_BUILD_H

#include "planner/space.h"

/* What is needed only while the space is built. */
struct sbp_space_maker {
    struct sbp_space *space;
    const struct sbp_plan *plan;
    const struct sbp_megatron_mesh *megatron; /* NULL outside that space */
    struct sbp_diag *diag;
    bool *row_linear; /* (op_count) megatron: this linear is split by rows */
    int64_t *sizes;   /* (class_count) of the classes: limits that limit nothing */
};

/* States of a rest variable: splits, which are always there, B and P. */
enum { SBP_SPLIT_RESTS = SBP_DIM_FEATURE + 1, SBP_REST_WHOLE = SBP_SPLIT_RESTS, SBP_REST_PARTIAL };

static inline const struct sbp_op_entry *sbp_space_entry(const struct sbp_graph *graph, int op)
{
    return graph->op[op].entry;
}

/* The fix of a layer; of a rest variable, that says where its tensor rests. NULL: none. */
const struct sbp_fix *sbp_space_fix(const struct sbp_space *space, int op);
const struct sbp_fix *sbp_space_rest_fix(const struct sbp_space *space, int variable);

/* Whether the space lets an operator play a role of its own accord. Spare roles are searched where
 * a fix names them. */
bool sbp_space_may_play(const struct sbp_space *space, int op, int role);
/* Roles that every operator of a variable plays together; bit r for role r of the variable. */
unsigned sbp_space_allowed_roles(const struct sbp_space *space, int variable);
/* States that a rest variable may take: those that are asked for; else splits, B where its operator
 * leaves it so, and P where a reader goes on with partial sums (OneFlow, section 3.3). Domains of
 * operators must be there. */
unsigned sbp_space_allowed_rests(const struct sbp_space *space, int slot);
/* Where nothing divides an operator, its work may be repeated, or attention split by context: spare
 * roles that leave no partial sums. Where nothing divides what rests, it rests whole. */
unsigned sbp_space_last_resorts(const struct sbp_space *space, int variable);

/* Makes variables, keeps and transfers of the graph; domains stay empty. */
void sbp_space_connect(struct sbp_space *space);

/* Whether a variable's choice under trial is legal. */
bool sbp_space_is_legal(const struct sbp_space *space, int variable);

/* Megatron's pairs: a linear fed by a column-split one, through operators that keep the split, is
 * split by rows; others by columns. Fills row_linear. */
void sbp_megatron_pair(struct sbp_space_maker *maker);
/* Writes the one choice of a variable into its trial row (family, role). */
void sbp_megatron_choose(const struct sbp_space_maker *maker, int variable, uint8_t *count);

/* All domains. E_INPUT for an empty one, E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_space_make_domains(struct sbp_space_maker *maker) SBP_MUST_USE;

#endif
