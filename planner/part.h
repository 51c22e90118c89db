/* Parts of a space of strategies: what is left of it without some of its plans.
 *
 * The plans other than a given one fall into disjoint parts, one per layer that splits its axes by
 * itself: they split the layers before it alike and it otherwise (Lawler, Management Science 18,
 * 1972). The best of the best of the parts is the next best plan. Plans that split every layer
 * alike are the same plan here: labels, where outputs rest and ZeRO levels make no other one.
 */
#ifndef SBP_PLANNER_PART_H
#define SBP_PLANNER_PART_H

#include "planner/plan.h"

/* How an operator is split: how many ways each of its roles takes at each level. */
struct sbp_split {
    int64_t factor[SBP_MAX_ROLES][SBP_MAX_LEVELS];
};

struct sbp_part {
    const struct sbp_split *split; /* (op_count) */
    int at;                        /* operators before it are split so; op_count: all are */
    int without_count;
    const struct sbp_split *without; /* (without_count) in none of which operator `at` is split */
};

/* The plan's strategy, by operator (op_count), 1 where none of an operator's own is; out of the
 * arena, NULL when memory is out. */
struct sbp_split *sbp_plan_splits(const struct sbp_plan *plan, struct sbp_arena *arena);
/* Whether two plans of as many operators split every layer alike. */
bool sbp_splits_equal(const struct sbp_split *a, const struct sbp_split *b, int op_count);

/* Cuts what is left of a part (NULL: of the space) without the plans that split every layer as
 * `split` says, one of which is in it: fills part (op_count) and returns how many there are, -1
 * when memory is out. `split` is kept by the parts. */
int sbp_part_cut(const struct sbp_graph *graph, const struct sbp_part *whole,
                 const struct sbp_split *split, struct sbp_arena *arena, struct sbp_part *part);

#endif
