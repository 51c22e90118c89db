/* Finds the cheapest list of collectives for a change of distribution when one collective may be
 * cut into several over fewer axes. Input: how many axes change how. Output: steps in order and
 * seconds.
 *
 * Cutting pays for two reasons. The start of a message costs alpha seconds; a ring over 2^k members
 * costs 2^k - 1 alphas, while k rings over pairs cost k. And where outer levels are slow, it pays
 * to scatter inside first. A group's price depends on how many axes of each family it has, so a set
 * of axes is a number here, whose digits are its counts by family.
 *
 * Lists have one form: slices of what is whole, reduce-scatters, then all-reduces and all-to-alls,
 * then all-gathers, and paddings to P at the end; each kind is cut into groups in any way.
 * Exchanging neighbours until a list has this form makes no block larger. So no list of any form
 * costs less where prices follow alpha and beta, the levels of rings have one order
 * (sbp_boxing_cut_prices.least) and every axis can be split.
 *
 * Three choices follow. An axis that can be split at both ends is split all the way, which makes no
 * group or block cost more. A sum over an axis is scattered, since two halves cost what an
 * all-reduce costs. The search decides whether an axis that stays P (or B) is scattered on the way
 * and padded again (or sliced and gathered).
 *
 * One case is not searched: where an axis cannot be split, an all-reduce that also covers it,
 * though it need not, may cost less, because its phases scatter what lists cannot. The tests hold
 * all that against all sequences of steps.
 */
#ifndef SBP_COSTMODEL_LAYOUT_BOXING_CUT_H
#define SBP_COSTMODEL_LAYOUT_BOXING_CUT_H

#include "base/arena.h"
#include "costmodel/cluster/collective.h"

/* Sets of axes of a mesh with more kinds of groups are not tabulated (two levels of 10^4 devices
 * have fewer). */
#define SBP_MOST_CUT_SETS 16384
#define SBP_CUT_KINDS     4

/* Prices of groups on a cluster. Not thread-safe: searches write to the scratch columns. */
struct sbp_boxing_cut_prices {
    const struct sbp_cluster *cluster; /* borrowed */
    const struct sbp_mesh *mesh;       /* borrowed */
    bool least;                        /* cuts are least among all lists, as said above */
    bool linear;                       /* no curves: seconds are start_s + per_byte_s * bytes */
    int set_count;
    int stride[SBP_MAX_AXES];     /* (family) of an axis of it in the number of a set */
    uint8_t *count;               /* (set_count, family) axes */
    double *members;              /* (set_count) product of the sizes */
    double *start_s, *per_byte_s; /* (SBP_CUT_KINDS, set_count) */
    double *best_s;               /* (set_count) scratch, */
    int *best_first, *best_count; /* of one search */
};

/* E_MEMORY; E_UNSUPPORTED, with no text: more than SBP_MOST_CUT_SETS sets. */
enum sbp_status sbp_boxing_cut_prices_make(const struct sbp_cluster *cluster,
                                           const struct sbp_mesh *mesh, struct sbp_arena *arena,
                                           struct sbp_boxing_cut_prices *prices) SBP_MUST_USE;

/* The change that is asked for, by sets of axes; together they are no more than the mesh has. */
struct sbp_boxing_cut_task {
    int sum;      /* P -> B with nothing to be split by in between: all-reduced */
    int rest;     /* P -> B that can be split in between */
    int leave;    /* P -> split */
    int move;     /* split -> another split */
    int gather;   /* split -> B */
    int partial;  /* P -> P that can be split in between */
    int whole;    /* B -> B that can be */
    double bytes; /* of the block where all that can be split is: the smallest on the way */
};

struct sbp_boxing_cut_step {
    enum sbp_collective kind;
    int set;
};
struct sbp_boxing_cut {
    double seconds;
    int partial, whole; /* which of these are split on the way, */
    int summed;         /* and which of `rest` are not, but all-reduced */
    int count;
    struct sbp_boxing_cut_step step[2 * SBP_MAX_AXES];
};

/* The cheapest list; among equal ones a short one. */
void sbp_boxing_cut_make(const struct sbp_boxing_cut_prices *prices,
                         const struct sbp_boxing_cut_task *task, struct sbp_boxing_cut *cut);

#endif
