/* The devices of a stage by degree, and the fixes of layers that follow. */
#ifndef SBP_PLANNER_DEGREES_DEGREES_PRIV_H
#define SBP_PLANNER_DEGREES_DEGREES_PRIV_H

#include "planner/degrees/degrees.h"

/* Ways at each level of a stage, outermost first. */
struct sbp_degrees_ways {
    int64_t at[SBP_MAX_LEVELS];
};
bool sbp_degrees_is_attention(const struct sbp_op_node *node);
int64_t sbp_degrees_gcd(int64_t a, int64_t b);
int64_t sbp_degrees_total(const struct sbp_degrees_ways *ways);
/* Takes `count` ways out of `from`, innermost levels first; false: they do not share out, and
 * nothing is taken. */
bool sbp_degrees_take(int64_t count, struct sbp_degrees_ways *from, struct sbp_degrees_ways *taken);

/* The devices of a stage, parted by degree: their product at a level is its size. */
struct sbp_degrees_mesh {
    struct sbp_degrees_ways tensor, context, data;
};

/* "degrees: NAME: ...", E_INPUT. */
#define SBP_DEGREES_REFUSE(diag, ...) sbp_fail((diag), SBP_E_INPUT, "degrees: " __VA_ARGS__)

void sbp_degrees_note(struct sbp_degrees_plan *made, const char *format, ...) SBP_PRINTF(2, 3);

/* Makes the fixes of all layers of the plan's cut. E_INPUT, E_MEMORY. */
enum sbp_status sbp_degrees_fix_layers(const struct sbp_cut *cut,
                                       const struct sbp_degrees_mesh *mesh, struct sbp_arena *arena,
                                       struct sbp_degrees_plan *made,
                                       struct sbp_diag *diag) SBP_MUST_USE;

#endif
