/* Pairs of variables that a tensor goes between: what of two tuples decides its price.
 */
#ifndef SBP_PLANNER_PRICING_EDGE_KINDS_H
#define SBP_PLANNER_PRICING_EDGE_KINDS_H

#include "planner/pricing/pricing.h"

/* One end of a way: the state of the tensor under each role of the variable. */
struct sbp_pair_end {
    int variable, role_count;
    struct sbp_state state[SBP_MAX_ROLES];
};

/* A tensor on its way from a rest into an operator (transfer), or from the operator that made it
 * into its rest (keep). */
struct sbp_edge_ends {
    const struct sbp_space *space;
    struct sbp_pair_end from, to;
    int tensor;
    double there, back; /* times */
    bool is_keep, is_whole;
    bool goes_on; /* transfer: what rests partial is read as a partial sum */
};
struct sbp_edge_ends sbp_edge_of_input(const struct sbp_space *space,
                                       const struct sbp_transfer *transfer);
struct sbp_edge_ends sbp_edge_of_output(const struct sbp_space *space, const struct sbp_keep *keep);

/* Of a family's axes: what of their roles at both ends the price depends on; fields that it does
 * not depend on are 0, so that equal kinds are equal bytes. */
struct sbp_edge_kind {
    int8_t moves;      /* axes that change the dimension they split, at best; paper: in the batch */
    int8_t most_moves; /* axes that can, where more may cost less; else 0 */
    int8_t leave, gather;          /* axes that leave P, that become B, at best */
    int8_t trades, sum_trades;     /* axes that could stay B, or P, but can change places */
    int8_t from_splits, to_splits; /* axes that split the tensor at either end */
    int8_t lost;                   /* splits that can neither stay nor become P */
    uint8_t tags;                  /* bit t: there is a way where the rest has tag t */
    bool changes;                  /* paper: the split of the features does */
    bool parts; /* P -> B may be two steps: through a split that another axis gives up */
};
/* counts: of the family, by role (sbp_tuple_count). */
struct sbp_edge_kind sbp_edge_kind(const struct sbp_edge_ends *pair, const uint8_t *from_count,
                                   const uint8_t *to_count);
/* kind: (families); tag: of the rest at one end. SBP_FORBIDDEN where there is no way. */
double sbp_edge_kind_price_s(const struct sbp_edge_ends *pair, const struct sbp_edge_kind *kind,
                             int tag);

#endif
