/* Lists the legal choices of every variable of a space. Input: graph, mesh, space rules. Output:
 * the domains in struct sbp_space.
 *
 * space_make.c takes these steps in order. It finds where tensors may rest partial or whole
 * (resting_layouts.c). It makes variables and edges (variables.c), finds the roles that each
 * variable may play (allowed_roles.c), and enumerates the tuples of these roles (domains.c), of
 * which it keeps the legal ones (legality.c). In the `megatron` spaces a variable has one tuple
 * (megatron.c).
 *
 * While a tuple is tried, it stands in the row behind the variable's accepted tuples.
 */
#ifndef SBP_PLANNER_SPACE_DOMAIN_BUILD_H
#define SBP_PLANNER_SPACE_DOMAIN_BUILD_H

#include "planner/space/group_prices.h"
#include "planner/space/space.h"

/* The factors of these roles together divide the size of a class. */
struct sbp_class_rule {
    int dim_class;
    unsigned roles; /* bit r: the variable's role r */
};
/* The rules that a variable's tuples obey. */
struct sbp_legality {
    int rule_count, capacity;
    struct sbp_class_rule *rule;
    unsigned illegal;               /* roles that split a dimension that cannot be split */
    unsigned batch;                 /* roles that split the batch */
    unsigned mirror;                /* the role that is mirrored; it takes levels as a whole */
    int op_count, *op;              /* sites that the variable decides, without followers */
    const struct sbp_fix **fix;     /* (op_count) of each; NULL: none */
    const struct sbp_fix *rest_fix; /* of a rest variable; NULL: none */
};

/* Ways to give the axes of one family to a variable's roles. */
struct sbp_family_ways {
    int count, room;
    uint8_t *row; /* (count, SBP_MAX_ROLES) */
    int *shape;   /* (count, binding rules) of the axes that each rule is about */
};

/* State that lives only while a space is built. */
struct sbp_space_maker {
    struct sbp_space *space;
    const struct sbp_cut *cut;
    const struct sbp_megatron_mesh *megatron; /* NULL outside of that space */
    struct sbp_diag *diag;
    bool *row_linear;                   /* (op_count) megatron: rows split this linear */
    struct sbp_class_limit *unlimited;  /* (class_count) limits that limit nothing */
    struct sbp_legality legality;       /* of the variable at hand */
    int binding;                        /* rules of that variable that some tuple may break */
    const struct sbp_class_rule **rule; /* (binding) */
    uint8_t *verdict; /* (binding, shapes) whether a rule allows a shape; 0: not known yet */
    struct sbp_family_ways ways[SBP_MAX_AXES]; /* (families) of that variable */
    bool checks;                               /* tuples that divide may be illegal */
    unsigned calls;                            /* of the enumeration */
    int most_tuples;                           /* of a variable that is enumerated */
};

/* States of a rest variable: the splits, which are always there, then B, P and M. */
enum {
    SBP_SPLIT_RESTS = SBP_DIM_FEATURE + 1,
    SBP_REST_WHOLE = SBP_SPLIT_RESTS,
    SBP_REST_PARTIAL,
    SBP_REST_MIRRORED
};

static inline const struct sbp_op_entry *sbp_space_entry(const struct sbp_graph *graph, int op)
{
    return graph->op[op].entry;
}

/* The request's fix of a layer, or of the layer whose output a rest variable holds. NULL: none. */
const struct sbp_fix *sbp_space_fix(const struct sbp_space *space, int op);
const struct sbp_fix *sbp_space_rest_fix(const struct sbp_space *space, int variable);

/* The role in which an operator of so many inputs takes and leaves partial sums; -1: none. */
int sbp_space_sum_role(const struct sbp_op_entry *entry, int inputs);
/* Fills space->goes_on and space->rests. E_MEMORY. */
enum sbp_status sbp_space_find_rests(struct sbp_space *space) SBP_MUST_USE;

/* Whether an operator may play a role: one of its space, one that goes on with partial sums, or one
 * that a fix names. */
bool sbp_space_may_play(const struct sbp_space *space, int op, int role);
/* Roles that every operator of a variable may play together; bit r for role r of the variable. */
unsigned sbp_space_allowed_roles(const struct sbp_space *space, int variable);
/* Roles that rule last resorts out where one of them divides the variable's operators; only for a
 * space that has last resorts. */
unsigned sbp_space_dividing_roles(const struct sbp_space *space, int variable);
/* States that a rest variable may take, of those that followers run in: all that a plan may state
 * where the space is open or a fix names the rest; else splits, B where its operator leaves it so,
 * and P where a reader takes partial sums (OneFlow, section 3.3). The operators' domains must be
 * there. */
unsigned sbp_space_allowed_rests(const struct sbp_space *space, int slot);
/* Roles of a variable that nothing divides: its work is repeated, or attention is split by context;
 * none leaves partial sums. A rest that nothing divides rests whole. */
unsigned sbp_space_last_resorts(const struct sbp_space *space, int variable);

/* Makes variables and edges of the graph; domains stay empty. E_MEMORY. */
enum sbp_status sbp_space_connect(struct sbp_space *space) SBP_MUST_USE;

/* Collects a variable's rules. Arrays come out of the space's arena. E_MEMORY. */
enum sbp_status sbp_space_make_legality(struct sbp_space *space, int variable,
                                        struct sbp_legality *legality) SBP_MUST_USE;
/* Whether the tuple under trial splits evenly all classes in which some roles (bits) have a part.
 * More axes never mend what does not divide, so that the enumeration may cut here. */
bool sbp_space_divides(const struct sbp_space *space, int variable,
                       const struct sbp_legality *legality, unsigned roles);
/* Sets maker->rule and maker->verdict. E_MEMORY. */
enum sbp_status sbp_space_find_binding(struct sbp_space_maker *maker) SBP_MUST_USE;
/* Adds a way's shapes (binding rules) to those of earlier families. False where a rule breaks: what
 * it is about no longer divides. */
bool sbp_space_add_shapes(struct sbp_space_maker *maker, const int *before, const int *way,
                          int *shape);
/* Whether the tuple under trial gives the batch as many axes of a family as the request says; true
 * where no role of the variable splits the batch. */
bool sbp_space_obeys_batch(const struct sbp_space *space, int variable,
                           const struct sbp_legality *legality, int family);
/* Whether the tuple under trial, for which the two above hold, is legal; and whether some of the
 * variable's allowed roles may not be. */
bool sbp_space_may_be_illegal(const struct sbp_space *space, int variable,
                              const struct sbp_legality *legality);
bool sbp_space_is_legal(const struct sbp_space *space, int variable,
                        const struct sbp_legality *legality);

/* Megatron's pairs: rows split a linear that a column-split linear feeds through operators that
 * keep the split; columns split the others. Fills row_linear. */
void sbp_megatron_pair(struct sbp_space_maker *maker);
/* Ways to choose for a variable, of which the first legal one is taken: convolutions and pools are
 * data-parallel on all devices (AutoDDL, section 5.2); the residual stream is split by tokens where
 * the space says so, else by features; linears that the tensor axes do not divide are
 * data-parallel, too. */
enum sbp_megatron_way {
    SBP_MEGATRON_IMAGES,
    SBP_MEGATRON_TOKENS,
    SBP_MEGATRON_FEATURES,
    SBP_MEGATRON_DATA,
    SBP_MEGATRON_WAYS
};
/* Whether a way is one for a variable. */
bool sbp_megatron_goes(const struct sbp_space_maker *maker, int variable,
                       enum sbp_megatron_way way);
/* Writes a variable's choice into its trial row (family, role). A rest needs its operator's domain.
 */
void sbp_megatron_choose(const struct sbp_space_maker *maker, int variable,
                         enum sbp_megatron_way way, uint8_t *count);

/* Adds the tuple in the trial row to a domain with room for *capacity, once for each tag. E_MEMORY.
 */
enum sbp_status sbp_space_accept_tuple(struct sbp_space_maker *maker, int variable,
                                       int *capacity) SBP_MUST_USE;
/* Fills a domain with plain tuples of the allowed roles (plain_domains.c); resorts: roles that may
 * repeat what nothing divides. E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_space_fill_domain(struct sbp_space_maker *maker, int variable, unsigned allowed,
                                      unsigned resorts, int *capacity) SBP_MUST_USE;

/* Makes all domains. E_INPUT for an empty one, E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_space_make_domains(struct sbp_space_maker *maker) SBP_MUST_USE;
/* Drops the tuples that lie outside of the request's subspace. E_INPUT: a domain is left empty. */
enum sbp_status sbp_space_keep_part(struct sbp_space_maker *maker) SBP_MUST_USE;

#endif
