/* Steps from one labelled strategy of a space to another, drawn at random.
 *
 * The labels of all variables (planner/space/space.h) at once: a step gives an axis another role,
 * leaves the tensors of a stretch of the model in one state, lets two axes of a variable change
 * places, gives weights another ZeRO level, or lets an axis do everywhere what another one does, so
 * that a class is split by it nowhere or everywhere. Every choice that is reached is one of the
 * space's. Whether the labels are legal together is the caller's to find out (sbp_strategy_close).
 * Internal to lean_walk.c and label_any.c.
 */
#ifndef SBP_PLANNER_LABELS_LABEL_WALK_H
#define SBP_PLANNER_LABELS_LABEL_WALK_H

#include "base/random.h"
#include "planner/space/space.h"

struct sbp_label_set {
    int *choice;   /* (variable) of the roles' counts and a ZeRO level */
    uint8_t *role; /* (variable, SBP_MAX_AXES) */
};

struct sbp_label_walk {
    const struct sbp_space *space;
    struct sbp_random random;
    struct sbp_label_set now, next;
    int focus_count;  /* 0: none */
    const int *focus; /* variables that most steps begin at; the caller's */
};

/* Arrays come out of the arena; `now` is still to be given, and what the walk is focused on, if
 * anything. The space has axes. E_MEMORY. */
enum sbp_status sbp_label_walk_init(struct sbp_label_walk *walk, const struct sbp_space *space,
                                    uint64_t seed, struct sbp_arena *arena) SBP_MUST_USE;
/* Stands where a strategy is; false: it is not of the space, and `now` is no labelling. */
bool sbp_label_walk_at(struct sbp_label_walk *walk, const struct sbp_strategy *strategy);
/* Stands at one choice of each variable, the axes of each family in the order of the roles. */
void sbp_label_walk_in_order(struct sbp_label_walk *walk, const int *choice);
/* Draws a step into `next`; false: there is none that way. Either way sbp_label_walk_end follows.
 */
bool sbp_label_walk_draw(struct sbp_label_walk *walk);
/* Whether the space has ways between what the step changes and what that stands beside. */
bool sbp_label_walk_goes_together(const struct sbp_label_walk *walk);
/* Stands at `next` from now on, or stays. */
void sbp_label_walk_end(struct sbp_label_walk *walk, bool is_taken);

#endif
