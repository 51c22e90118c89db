/* The digit rule: which elements of a dimension a rank owns, and in which order it keeps them.
 *
 * A dimension of size D is read as a mixed-radix number: one digit for each mesh axis that splits
 * its class anywhere in the plan (mesh order, most significant first) and a rest (least
 * significant). An axis that splits the dimension in a tensor fixes its own digit to its
 * coordinate; the other digits and the rest run freely and make up the local index, in the same
 * order. Axes are therefore independent of each other (DESIGN.md, section 4).
 */
#ifndef SBP_BASE_MATH_DIGITS_H
#define SBP_BASE_MATH_DIGITS_H

#include <stdint.h>

#define SBP_MAX_AXES 32 /* prime factors of a mesh's devices; one bit each in a mask */
#define SBP_MAX_DIMS 4  /* of a tensor */

/* One dimension of one tensor on one rank. */
struct sbp_digits {
    int count;                   /* digits, the rest excluded */
    int64_t size[SBP_MAX_AXES];  /* radix of each digit, most significant first */
    int64_t fixed[SBP_MAX_AXES]; /* the coordinate that owns it, or -1: runs locally */
    int64_t rest;                /* radix of the least significant part, >= 1 */
};

/* A tensor's block on one rank: its dimensions row-major, the last fastest. A tensor with fewer
 * dimensions has count 0 and rest 1 in the others. */
struct sbp_region {
    struct sbp_digits dim[SBP_MAX_DIMS];
    int64_t first; /* the index in a larger tensor of what is index 0 of dimension 0 here; 0: there
                      is none */
};

/* Sizes saturate at INT64_MAX; the index functions below need sizes that fit. */
int64_t sbp_digits_global_size(const struct sbp_digits *digits);
int64_t sbp_digits_local_size(const struct sbp_digits *digits);
/* Global index of a local one, 0 <= local < local size. */
int64_t sbp_digits_global(const struct sbp_digits *digits, int64_t local);
/* Local index of a global one, or -1 when another rank owns it. */
int64_t sbp_digits_local(const struct sbp_digits *digits, int64_t global);
/* The owner of a global index among all that the fixed digits tell apart, both in mesh order, and
 * its local index there. */
int64_t sbp_digits_owner(const struct sbp_digits *digits, int64_t global, int64_t *local);

/* Elements of the block, and the row-major global index of a local element, `first` included. */
int64_t sbp_region_elements(const struct sbp_region *region);
int64_t sbp_region_global(const struct sbp_region *region, int64_t local);

#endif
