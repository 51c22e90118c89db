/* Sorts measured points by group shape: one sample a size, the median over all tables that hold it.
 * Where groups of a node were also measured several at a time, those of the fewest count, since a
 * plan's prices add the cost of sharing (costmodel/cluster/collective.h).
 *
 * A cluster file holds SBP_NETWORK_CURVES shapes. Where more were measured, all shapes of a number
 * of nodes are left out, that number first whose neighbours lie nearest to each other, then numbers
 * of ranks a node in the same way; the least and the most of either stay.
 */
#ifndef SBP_CALIB_FIT_SHAPES_H
#define SBP_CALIB_FIT_SHAPES_H

#include "base/arena.h"
#include "calib/fit/curve_fit.h"
#include "calib/samples/points.h"

/* A shape with fewer sizes has no curve. */
#define SBP_LEAST_SHAPE_SIZES 3

struct sbp_measured_group {
    enum sbp_collective kind;
    int nodes, ranks_per_node;
    int count;                       /* sizes */
    struct sbp_curve_sample *sample; /* (count) sizes rise */
    int points, tables;              /* that the samples come from */
};

struct sbp_measured_groups {
    int count, few_count, over_count;
    struct sbp_measured_group *shape; /* (count) by kind, ranks a node, nodes */
    struct sbp_measured_group *few;   /* (few_count) of too few sizes */
    struct sbp_measured_group *over;  /* (over_count) beyond what a cluster file holds */
    int points;                       /* of the shapes with enough */
    double noise;                     /* median spread of the points that have one; 0: none has */
};

/* The arrays lie in the arena. E_INPUT: no shape has enough sizes, or one has more than
 * SBP_MOST_CURVE_SAMPLES; E_MEMORY. */
enum sbp_status sbp_shapes_group(const struct sbp_measured *measured, struct sbp_arena *arena,
                                 struct sbp_measured_groups *shapes,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* Samples of all shapes that have enough sizes. */
int sbp_shapes_samples(const struct sbp_measured_groups *shapes);

#endif
