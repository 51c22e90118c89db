/* A small model for every operator of the catalogue, and plans in which it has given roles.
 *
 * A model's operator of interest, its target, is named "t", or is the last of its kind. Sizes are
 * multiples of a unit, which the ranks of a mesh must divide.
 */
#ifndef SBP_TESTS_SIGNATURE_PLANS_H
#define SBP_TESTS_SIGNATURE_PLANS_H

#include "run_plans.h"

struct signature_model {
    enum sbp_op_kind kind;
    const char *keys, *layers; /* NULL: the keys name an architecture */
};

extern const struct signature_model signature_models[];
extern const int signature_model_count;

/* As a model file. */
void signature_model_text(const struct signature_model *model, int unit, char *text, int size);
/* The operator of interest. */
int signature_target(const struct plan *plan, enum sbp_op_kind kind);

/* Draws the other operators' roles, and where activations rest, until a strategy is legal in which
 * the target has the role of each axis, and compiles it for a run in double. False: none was found;
 * `diag` says what was wrong with the last one, of those that were wrong by the target itself where
 * there are any. */
bool signature_plan(struct plan *plan, int target, const int *role, struct sbp_random *random,
                    struct sbp_diag *diag);

#endif
