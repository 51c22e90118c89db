/* Building a space, in parts: what may stay partial or whole between operators (resting_layouts.c),
 * what may be played (allowed_roles.c), variables and what they stand for (variables.c),
 * whether a tuple is legal (legality.c), the one tuple of the `megatron` space
 * (megatron.c), domains (domains.c), parts of them (subspace_domains.c); space_make.c puts them
 * together.
 *
 * A tuple under trial stands in the row behind a variable's accepted ones.
 */
#ifndef SBP_PLANNER_SPACE_DOMAIN_BUILD_H
#define SBP_PLANNER_SPACE_DOMAIN_BUILD_H

#include "planner/space/space.h"
#include "planner/space/group_prices.h"

/* What the tuples of a variable must obey: these roles' factors together divide a class. */
struct sbp_class_rule {
    int dim_class;
    unsigned roles; /* bit r: the variable's role r */
};
struct sbp_legality {
    int rule_count, capacity;
    struct sbp_class_rule *rule;
    unsigned illegal;               /* roles that split what cannot be split */
    unsigned batch;                 /* roles that split the batch */
    int op_count, *op;              /* sites that the variable decides, but for followers */
    const struct sbp_fix **fix;     /* (op_count) of each; NULL: none */
    const struct sbp_fix *rest_fix; /* of a rest variable; NULL: none */
};

/* What is needed only while the space is built. */
struct sbp_space_maker {
    struct sbp_space *space;
    const struct sbp_cut *cut;
    const struct sbp_megatron_mesh *megatron; /* NULL outside that space */
    struct sbp_diag *diag;
    bool *row_linear;                  /* (op_count) megatron: this linear is split by rows */
    struct sbp_class_limit *unlimited; /* (class_count) limits that limit nothing */
    struct sbp_legality legality;      /* of the variable at hand */
    unsigned looked_at;                /* parts of tuples, to read the clock now and then */
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

/* The role in which an operator of so many inputs goes on with partial sums; -1. */
int sbp_space_sum_role(const struct sbp_op_entry *entry, int inputs);
/* Fills space->goes_on and space->rests. E_MEMORY. */
enum sbp_status sbp_space_find_rests(struct sbp_space *space) SBP_MUST_USE;

/* Whether the space lets an operator play a role of its own accord. Spare roles are searched where
 * a fix names them. */
bool sbp_space_may_play(const struct sbp_space *space, int op, int role);
/* Roles that every operator of a variable plays together; bit r for role r of the variable. */
unsigned sbp_space_allowed_roles(const struct sbp_space *space, int variable);
/* Roles that, where one of them divides the variable's operators, rule last resorts out; of a space
 * that has such. */
unsigned sbp_space_dividing_roles(const struct sbp_space *space, int variable);
/* States that a rest variable may take: those that are asked for; else splits, B where its operator
 * leaves it so, and P where a reader goes on with partial sums (OneFlow, section 3.3). Domains of
 * operators must be there. */
unsigned sbp_space_allowed_rests(const struct sbp_space *space, int slot);
/* Where nothing divides an operator, its work may be repeated, or attention split by context: spare
 * roles that leave no partial sums. Where nothing divides what rests, it rests whole. */
unsigned sbp_space_last_resorts(const struct sbp_space *space, int variable);

/* Makes variables, keeps and transfers of the graph; domains stay empty. E_MEMORY. */
enum sbp_status sbp_space_connect(struct sbp_space *space) SBP_MUST_USE;

/* Arrays come out of the space's arena. E_MEMORY. */
enum sbp_status sbp_space_make_legality(struct sbp_space *space, int variable,
                                        struct sbp_legality *legality) SBP_MUST_USE;
/* Whether a variable's tuple under trial splits evenly so far what some roles (bits) have a part
 * in: more axes do not mend what does not divide. */
bool sbp_space_divides(const struct sbp_space *space, int variable,
                       const struct sbp_legality *legality, unsigned roles);
/* Whether a variable's tuple under trial gives the batch as many axes of a family as the request
 * says, where any role of the variable can. */
bool sbp_space_obeys_batch(const struct sbp_space *space, int variable,
                           const struct sbp_legality *legality, int family);
/* Whether a variable's tuple under trial, which divides and obeys that, is legal. */
bool sbp_space_is_legal(const struct sbp_space *space, int variable,
                        const struct sbp_legality *legality);

/* Megatron's pairs: a linear fed by a column-split one, through operators that keep the split, is
 * split by rows; others by columns. Fills row_linear. */
void sbp_megatron_pair(struct sbp_space_maker *maker);
/* Ways to choose for a variable, the first that is legal: convolutions and pools are data-parallel
 * on all devices (AutoDDL, section 5.2); the residual stream is split by tokens where the space
 * says so, else by features; linears that the tensor axes do not divide are data-parallel, too. */
enum sbp_megatron_way {
    SBP_MEGATRON_IMAGES,
    SBP_MEGATRON_TOKENS,
    SBP_MEGATRON_FEATURES,
    SBP_MEGATRON_DATA,
    SBP_MEGATRON_WAYS
};
bool sbp_megatron_goes(const struct sbp_space_maker *maker, int variable,
                       enum sbp_megatron_way way);
/* Writes a variable's choice into its trial row (family, role). Domains of operators must be there
 * where it is a rest state. */
void sbp_megatron_choose(const struct sbp_space_maker *maker, int variable,
                         enum sbp_megatron_way way, uint8_t *count);

/* All domains. E_INPUT for an empty one, E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_space_make_domains(struct sbp_space_maker *maker) SBP_MUST_USE;

/* Drops the tuples of domains that are not in the request's part. E_INPUT: one is left empty. */
enum sbp_status sbp_space_keep_part(struct sbp_space_maker *maker) SBP_MUST_USE;

#endif
