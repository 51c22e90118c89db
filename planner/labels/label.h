/* Labels: which axis of a family plays which role, for the whole graph at once.
 *
 * A solved space says how many axes of each family play each role. Labels name these axes such that
 * every input edge moves as little as the unlabelled price promised, every output rests where its
 * producer left it, and the axes that split a dimension class anywhere in the plan divide its size
 * (DESIGN.md, section 4, "Labels").
 */
#ifndef SBP_PLANNER_LABELS_LABEL_H
#define SBP_PLANNER_LABELS_LABEL_H

#include "planner/space/space.h"

struct sbp_labelling {
    double transfer_s; /* of labelled edges, as the space counts them */
    int broken_rests;  /* axes on which an output cannot rest where its variable says, and misplaced
                          ones (sbp_strategy_misplaced) */
    int broken_class;  /* a class whose splits do not divide it, -1: none */
    struct sbp_class_limit used; /* the most that one variable splits that class by */
};

/* Labels a full choice of the space's variables and writes it into *strategy (allocated by
 * sbp_strategy_alloc). Greedy along the graph, then pairwise exchanges from several seeded starts;
 * stops as soon as the unlabelled price is reached. E_MEMORY. */
enum sbp_status sbp_label(const struct sbp_space *space, const int *choice, uint64_t seed,
                          struct sbp_strategy *strategy,
                          struct sbp_labelling *labelling) SBP_MUST_USE;

#endif
