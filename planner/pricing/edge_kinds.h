/* Prices the communication between an operator and where a tensor waits. Input: an edge, which
 * names two variables of a space, and a choice of roles at either end. Output: seconds for that
 * pair of choices.
 *
 * An input edge leads from a resting place (a rest) into an operator, an output edge from an
 * operator to the rest of its output. Axes of one level and size can be exchanged; they form a
 * family. So a price depends on a few counts for each family of axes, called the edge's kind in
 * that family. The price is the least over all ways to line the axes up.
 */
#ifndef SBP_PLANNER_PRICING_EDGE_KINDS_H
#define SBP_PLANNER_PRICING_EDGE_KINDS_H

#include "planner/pricing/pricing.h"

/* One end of an edge: the state of the tensor under each role of the variable. */
struct sbp_edge_end {
    int variable, role_count;
    struct sbp_state state[SBP_MAX_ROLES];
};

struct sbp_edge_ends {
    const struct sbp_space *space;
    struct sbp_edge_end from, to;
    int tensor;
    double there, back; /* times on the path */
    double again;       /* times that a rest is gathered once more from what was produced */
    bool is_output;     /* an output edge, else an input edge */
    bool is_whole;      /* the tensor may rest B, P or M: the edge carries all of its boxing */
    bool goes_on;       /* input edge: the operator reads a partial rest as a partial sum */
};
struct sbp_edge_ends sbp_edge_of_input(const struct sbp_space *space,
                                       const struct sbp_input_edge *edge);
struct sbp_edge_ends sbp_edge_of_output(const struct sbp_space *space,
                                        const struct sbp_output_edge *edge);

/* All that a price depends on of a family's roles at both ends. "At best": with the axes lined up
 * so that the number is least. Fields that a price does not depend on are 0, so that equal kinds
 * are equal bytes. */
struct sbp_edge_kind {
    int8_t moves;      /* axes that change the dimension they split, at best; paper: in the batch */
    int8_t most_moves; /* axes that can, where more may cost less; else 0 */
    int8_t leave, gather;           /* axes that leave P, that become B, at best */
    int8_t back_leave, back_gather; /* likewise of the gradient, on its way back */
    int8_t trades, sum_trades;      /* axes that could stay B, or P, but can change places */
    int8_t from_splits, to_splits;  /* axes that split the tensor at either end */
    int8_t lost;                    /* splits that can neither stay nor become P */
    uint8_t tags;                   /* bit t: there is a way where the rest has tag t */
    bool changes;                   /* paper: the split of the features changes */
    bool leaves_sums;               /* some axes begin as P: what rests whole waits whole */
    bool parts; /* P -> B may be two steps: through a split that another axis gives up */
};
/* counts: of the family, by role (sbp_tuple_count). */
struct sbp_edge_kind sbp_edge_kind(const struct sbp_edge_ends *ends, const uint8_t *from_count,
                                   const uint8_t *to_count);
/* Seconds. kind: (families); tag: of the rest at one end. SBP_FORBIDDEN where there is no way. */
double sbp_edge_kind_price_s(const struct sbp_edge_ends *ends, const struct sbp_edge_kind *kind,
                             int tag);

#endif
