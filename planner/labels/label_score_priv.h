/* How good a labelling is: what its transfers cost, and what of it is not legal. Judged as a whole,
 * then change by change: an exchange of roles touches few transfers. Internal to label.c.
 */
#ifndef SBP_PLANNER_LABELS_LABEL_SCORE_PRIV_H
#define SBP_PLANNER_LABELS_LABEL_SCORE_PRIV_H

#include "planner/space/space.h"

struct sbp_label_value {
    double transfer_s;
    int broken_rests; /* with misplaced axes of operators */
    int broken_classes;
};

/* Transfers, then keeps: what a labelling makes of each. */
struct sbp_label_item {
    double seconds;
    int broken;
};

struct sbp_label_score {
    const struct sbp_space *space;
    const int *choice;
    struct sbp_arena *arena;
    int *class_count; /* (variable, role) how many classes the role splits */
    int **classes;    /* (variable, role) which */
    int item_count;
    struct sbp_label_item *item; /* (item_count) of the labelling at hand */
    int *uses;                   /* (class, axis) variables that split the class by the axis */
    sbp_axes *split;             /* (class) */
    bool *broken;                /* (class) its splits do not divide it */
    struct sbp_list keeps;       /* by the operator's variable */
    int placed_count, *placed;   /* operators whose axes may be misplaced */
    struct sbp_label_value score;
    int misplaced, trial_misplaced; /* axes, now and under trial */
    /* Of a change under trial. */
    int changed_count, *changed; /* items */
    struct sbp_label_item *trial;
    int *stamp, now; /* (item_count) of the change that touched it last */
    int64_t work;    /* items that were looked at */
};

/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_label_score_init(struct sbp_label_score *judge, const struct sbp_space *space,
                                     const int *choice, struct sbp_arena *arena) SBP_MUST_USE;
/* role: (variable, SBP_MAX_AXES). The whole labelling, kept in judge->score. */
void sbp_label_score_all(struct sbp_label_score *judge, const uint8_t *role);
/* The score with axes i and j of some variables exchanged, which role has already; then that is
 * either kept or, role being as it was again, taken back. */
struct sbp_label_value sbp_label_score_change(struct sbp_label_score *judge, const uint8_t *role,
                                              const int *variable, int count, int i, int j);
void sbp_label_score_keep(struct sbp_label_score *judge, const struct sbp_label_value *score);
void sbp_label_score_take_back(struct sbp_label_score *judge, const uint8_t *role,
                               const int *variable, int count, int i, int j);
/* A class whose splits do not divide it; -1: none. */
int sbp_label_score_broken_class(const struct sbp_label_score *judge);
/* The most that one variable splits a class by itself: parts, and axes of each family. */
struct sbp_class_limit sbp_label_score_used(const struct sbp_label_score *judge,
                                            const uint8_t *role, int dim_class);

#endif
