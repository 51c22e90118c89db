/* Parts of a space of strategies: what is left of it without some of its plans.
 *
 * The plans other than a given one fall into disjoint parts, one per layer that splits its axes by
 * itself: they split the layers before it alike and it otherwise (Lawler, Management Science 18,
 * 1972). The best of the best of the parts is the next best plan. Plans that split every layer
 * alike are the same plan here: labels, where outputs rest and ZeRO levels make no other one.
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
    const struct sbp_splits *plan; /* that it was cut from */
    int at;                        /* its first so many layers are split so; plan->count: all */
    int without_count;
    const struct sbp_split *without; /* (without_count) in none of which layer `at` is split */
};

/* Out of the arena; NULL when memory is out. */
struct sbp_splits *sbp_subspace_splits(const struct sbp_cut *cut,
                                       const struct sbp_strategy *strategy,
                                       struct sbp_arena *arena);
/* Whether two plans split every layer alike. */
bool sbp_subspace_splits_equal(const struct sbp_splits *a, const struct sbp_splits *b);

/* Cuts what is left of a part (NULL: of the space) without the plans that split every layer as
 * `plan`, which is in it: fills part (plan->count), which keep `plan`, and returns how many there
 * are, -1 when memory is out. */
int sbp_subspace_cut(const struct sbp_subspace *whole, const struct sbp_splits *plan,
                     struct sbp_arena *arena, struct sbp_subspace *part);
/* Whether a strategy of the part may split an operator so. */
bool sbp_subspace_has(const struct sbp_subspace *part, const struct sbp_split *split);

#endif
