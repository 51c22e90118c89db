/* Bounds from below the bytes that a device needs at its fullest moment. Input: a space. Output:
 * bytes for each choice, and for the space as a whole, so that cuts which cannot fit are dropped
 * early.
 *
 * The memory model of a space (memory_model.c) counts only the bytes that live when a forward pass
 * has ended. Under recomputation, and where activations are few, a device is fullest in the
 * backward pass, while one operator works. It then holds everything that persists, the activations
 * that earlier operators keep, and the working memory of this operator, which depends on its
 * choice: gradients of its output and inputs, scratch, gathered weights and whole gradients. The
 * gradient of a tied weight lives from its last user's backward pass to its first user's. The most
 * over all operators is also a lower bound of the memory that the program needs, and mostly a
 * higher one. It takes longer to compute than the model's sum, so it is used where memory alone
 * decides.
 */
#ifndef SBP_PLANNER_PRICING_WORKING_SET_H
#define SBP_PLANNER_PRICING_WORKING_SET_H

#include "planner/space/space.h"

struct sbp_working {
    const struct sbp_space *space;
    double *recomputed; /* (op_count) bytes recomputed for operators before it */
    double *entered;    /* (op_count) of what it keeps, bytes that only recompute its segment */
    double *spent;      /* (op_count) at a segment's last operator: the entered bytes of all of it,
                           which are gone before it goes back */
    double **kept;  /* (variable_count)(memory stages, choice) activations that a choice keeps */
    double **saved; /* (variable_count)(memory stages, choice) of these, those that
                       sbp_pricing_bytes leaves out */
    double **own;   /* (group)(choice) needed besides while its operators work */
    double **back;  /* (group)(choice) likewise, while they go back */
    double **held;  /* (group)(choice) whole gradients of weights that others use again */
    double *beside; /* (pieces, chunks) micro-batches of each chunk that are kept while it works */
    int *holder;    /* (op_count) the group whose gradients are held while it goes back; -1: none */
    struct sbp_need *need; /* scratch: (variable_count), and (group) in three cases */
    struct sbp_need *need_at_work, *need_going_back, *need_held;
    double *removed, *gone; /* scratch: (group), (variable_count) */
};

/* Arrays come out of the arena; the space must outlive it. E_MEMORY. */
enum sbp_status sbp_working_init(struct sbp_working *working, const struct sbp_space *space,
                                 struct sbp_arena *arena) SBP_MUST_USE;

/* Bytes that a variable's operators need besides while they work, at the most. */
double sbp_working_own(const struct sbp_working *working, int variable, int choice);
/* Bytes on the fullest device that no full choice needs less of, without a reserve; each variable
 * counts its least by itself. only: (variable_count), of this full choice alone, and then never
 * less than sbp_pricing_bytes; NULL: of all. */
double sbp_working_least(struct sbp_working *working, const int *only);
/* Bans the choices that need more than most_bytes beside any others that are not banned; false
 * where nothing is left. first: (variable_count + 1) where each variable's choices begin in banned.
 */
bool sbp_working_ban(struct sbp_working *working, double most_bytes, const int *first,
                     uint8_t *banned);

#endif
