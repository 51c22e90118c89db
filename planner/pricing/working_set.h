/* What a device needs while an operator works.
 *
 * The memory model of a space (memory_model.c) is a sum: what lives when a forward pass has ended.
 * Under recomputation, and where activations are few, most is needed in the backward pass, at one
 * operator: what persists, the activations that operators before it keep, and what the operator
 * itself needs to work, by its own choice: gradients of its output and inputs, scratch, gathered
 * weights, whole gradients, those of a tied weight from its last user's backward pass to its first
 * one's. The most of that over all operators is a lower bound of the program's arena, too, and
 * mostly a better one. It is dearer than the sum, and asked for where memory is all that counts.
 */
#ifndef SBP_PLANNER_PRICING_WORKING_SET_H
#define SBP_PLANNER_PRICING_WORKING_SET_H

#include "planner/space/space.h"

struct sbp_working {
    const struct sbp_space *space;
    double *formed;  /* (op_count) bytes formed again for operators before it */
    double *entered; /* (op_count) of what it keeps, bytes that only form its segment again */
    double *spent;   /* (op_count) of a segment's last operator: those of all of it, which are gone
                        before it goes back */
    double **kept;   /* (variable_count)(points, choice) activations kept because of a choice */
    double *
        *saved;    /* (variable_count)(points, choice) of them, what sbp_pricing_bytes leaves out */
    double **own;  /* (work)(choice) needed besides while the work is done */
    double **back; /* (work)(choice) likewise, while it goes back */
    double **held; /* (work)(choice) whole gradients of its weights that others use again */
    double *beside; /* (pieces, chunks) micro-batches of each chunk that are kept while it works */
    int *holder;    /* (op_count) the work whose gradients are held while it goes back; -1: none */
    struct sbp_need *need; /* (variable_count), (work) in three cases: scratch */
    struct sbp_need *need_at_work, *need_going_back, *need_held;
    double *removed, *gone; /* (work), (variable_count): scratch */
};

/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_working_init(struct sbp_working *working, const struct sbp_space *space,
                                 struct sbp_arena *arena) SBP_MUST_USE;

/* Bytes that a variable's operators need besides while they work, at the most. */
double sbp_working_own(const struct sbp_working *working, int variable, int choice);
/* Bytes that no choices need less than on the fullest device, with no reserve: of every variable by
 * itself what is least. only (variable_count): of these choices alone, and then never less than
 * sbp_pricing_bytes; NULL: of all. */
double sbp_working_least(struct sbp_working *working, const int *only);

#endif
