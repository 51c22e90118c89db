/* Which operators, tensors and ways belong to a variable: lists, so that building a space takes
 * time in proportion to the model's length.
 */
#ifndef SBP_PLANNER_SPACE_INDEX_LISTS_PRIV_H
#define SBP_PLANNER_SPACE_INDEX_LISTS_PRIV_H

#include "base/arena.h"
#include "base/status.h"

/* Items by a key, in the order in which they were added: for (int i = list.first[key]; i >= 0;
 * i = list.next[i]). */
struct sbp_list {
    int *first, *last; /* (keys) -1: none */
    int *next;         /* (items) -1: the last */
};

/* All by variable. */
struct sbp_space_links {
    struct sbp_list ops;       /* operators that it decides, followers not among them */
    struct sbp_list followers; /* operators that run where their first input rests, by its slot */
    struct sbp_list tensors;   /* by slot */
    struct sbp_list keeps;     /* by rest variable */
    struct sbp_list readers;   /* transfers that begin there */
    struct sbp_list inputs;    /* transfers that end there */
};

/* Empty; arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_list_init(struct sbp_list *list, int keys, int items,
                              struct sbp_arena *arena) SBP_MUST_USE;
void sbp_list_add(struct sbp_list *list, int key, int item);

#endif
