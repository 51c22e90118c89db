/* Optimizer steps as the textbooks write them, in double, with a bound on what a run may be off. */
#ifndef SBP_EXECUTOR_VERIFY_TEXTBOOK_PRIV_H
#define SBP_EXECUTOR_VERIFY_TEXTBOOK_PRIV_H

#include "kernels/kernels.h"

/* A parameter with its optimizer state. */
struct sbp_parameter {
    double weight, first, second;
};

/* A step's constants, for runs of unit roundoff u. */
struct sbp_textbook {
    struct sbp_update update;
    double u, correction1, correction2; /* 1 - beta^step */
};
struct sbp_textbook sbp_textbook_make(const struct sbp_update *update, double u);

/* The parameter after one step, and for each part a bound on the difference to the same step taken
 * in arithmetic of unit roundoff u. First-order error analysis: every operation adds a relative
 * error u of its result, inherited errors are carried through the formula; what cancels (a decay
 * against a gradient, a momentum against it) keeps the error of its parts. */
void sbp_textbook_update(const struct sbp_textbook *textbook, double gradient,
                         const struct sbp_parameter *before, struct sbp_parameter *after,
                         struct sbp_parameter *bound);

#endif
