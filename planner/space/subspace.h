/* Parts of a space of strategies, from which the next best plan is found.
 *
 * All plans but a given one fall into disjoint parts, one for each layer that chooses its split:
 * the plans of a part split the layers before it as the given plan does and this layer otherwise
 * (Lawler, Management Science 18, 1972). The best plan over all parts is the next best plan. Two
 * plans count as one if they split every layer alike, whatever their labels, rests and ZeRO levels.
 */
#ifndef SBP_PLANNER_SPACE_SUBSPACE_H
#define SBP_PLANNER_SPACE_SUBSPACE_H

#include "costmodel/program/cut.h"

/* How an operator is split: how many ways each of its roles takes at each level. */
struct sbp_split {
    int op;
    int64_t factor[SBP_MAX_ROLES][SBP_MAX_LEVELS];
};

/* How a plan splits the layers that choose by themselves, in the order of the model. */
struct sbp_splits {
    int count;
    struct sbp_split *layer; /* (count) */
};

struct sbp_subspace {
    const struct sbp_splits *plan; /* the plan that it excludes */
    int at; /* layers before this one are split as in the plan; plan->count: all */
    int without_count;
    const struct sbp_split *without; /* (without_count) splits that layer `at` may not take */
};

/* How a strategy splits its layers, out of the arena; NULL when memory is out. */
struct sbp_splits *sbp_subspace_splits(const struct sbp_cut *cut,
                                       const struct sbp_strategy *strategy,
                                       struct sbp_arena *arena);
/* Whether two plans split every layer alike. */
bool sbp_subspace_splits_equal(const struct sbp_splits *a, const struct sbp_splits *b);

/* Takes `plan` out of a part that holds it (NULL: out of the whole space) and cuts the remainder
 * into part (plan->count). The parts borrow `plan`. Returns their number, -1 when memory is out. */
int sbp_subspace_cut(const struct sbp_subspace *whole, const struct sbp_splits *plan,
                     struct sbp_arena *arena, struct sbp_subspace *part);
/* Whether a strategy of the part may split an operator like this. */
bool sbp_subspace_has(const struct sbp_subspace *part, const struct sbp_split *split);

#endif
