/* The score of a labelling: the cost of its edges, and how much of it is not legal. A labelling is
 * scored as a whole, then change by change: an exchange of roles touches few edges. Parts of
 * label.c.
 */
#ifndef SBP_PLANNER_LABELS_LABEL_SCORE_PRIV_H
#define SBP_PLANNER_LABELS_LABEL_SCORE_PRIV_H

#include "planner/space/space.h"

struct sbp_label_value {
    double transfer_s;
    int broken_rests; /* with misplaced axes of operators */
    int broken_classes;
};

/* The cost of an edge under a labelling, and the axes on which it is not legal. */
struct sbp_label_item {
    double seconds;
    int broken;
};

struct sbp_label_score {
    const struct sbp_space *space;
    const int *choice;
    struct sbp_arena *arena;
    int *class_count;               /* (variable, role) number of classes that the role splits */
    int **classes;                  /* (variable, role)(class_count) which */
    int item_count;                 /* input edges, then output edges */
    struct sbp_label_item *item;    /* (item_count) of the labelling at hand */
    int *uses;                      /* (class, axis) variables that split the class by the axis */
    sbp_axes *split;                /* (class) */
    bool *broken;                   /* (class) its splits do not divide it */
    struct sbp_list output_edges;   /* by the operator's variable */
    int placed_count, *placed;      /* operators whose axes may be misplaced */
    struct sbp_label_value value;   /* of the labelling at hand */
    int misplaced, trial_misplaced; /* axes, now and under trial */
    /* The change under trial. */
    int changed_count, *changed; /* items */
    struct sbp_label_item *trial;
    int *stamp, now; /* (item_count) number of the change that touched it last */
    int64_t work;    /* items scored so far */
};

/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_label_score_init(struct sbp_label_score *score, const struct sbp_space *space,
                                     const int *choice, struct sbp_arena *arena) SBP_MUST_USE;
/* Scores the whole labelling, role: (variable, SBP_MAX_AXES), into score->value. */
void sbp_label_score_all(struct sbp_label_score *score, const uint8_t *role);
/* The value after an exchange of axes i and j of some variables, which role holds already. The
 * caller then keeps the change, or restores role and takes the change back. */
struct sbp_label_value sbp_label_score_change(struct sbp_label_score *score, const uint8_t *role,
                                              const int *variable, int count, int i, int j);
void sbp_label_score_keep(struct sbp_label_score *score, const struct sbp_label_value *value);
void sbp_label_score_take_back(struct sbp_label_score *score, const uint8_t *role,
                               const int *variable, int count, int i, int j);
/* A class whose splits do not divide it; -1: none. */
int sbp_label_score_broken_class(const struct sbp_label_score *score);
/* The most that one variable splits a class by itself: parts, and axes of each family. */
struct sbp_class_limit sbp_label_score_used(const struct sbp_label_score *score,
                                            const uint8_t *role, int dim_class);

#endif
