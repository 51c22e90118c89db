/* How the loss of a plan's ranks moves with their weights, beside what their gradients say.
 *
 * Ranks are threads of this process, which the test drives itself, as a run does. They set their
 * own blocks of the weights, by global index, before each pass over the same data, so that loss and
 * gradient are the distributed run's alone: no other device takes part.
 */
#ifndef SBP_TESTS_SLOPES_H
#define SBP_TESTS_SLOPES_H

#include "costmodel/program/task.h"

enum { MOST_SLOPE_RANKS = 8 };

/* How steep the loss is at w along a direction d: by losses, and by the gradient g. */
struct slope {
    double difference; /* from the losses at w + h d, w - h d, w + 2 h d and w - 2 h d */
    double spread;     /* between the differences over h and over 2 h; in h^2 of a smooth loss */
    double bend;       /* fourth difference of the losses / 2 h; in h^3 of a smooth loss */
    double product;    /* <g, d>; a replicated gradient counts as the mean of all members' */
    double size;       /* root of the sum of the squares of the product's terms */
};

struct slope_request {
    const struct sbp_step *step; /* of one stage and one micro-batch, in double, nothing sharded by
                                    ZeRO; 8 ranks at most */
    uint64_t seed;               /* of weights, data and the direction */
    double width;                /* h; elements of d are uniform in [-1, 1), */
    const bool *moves;           /* (tensor_count) of the weights that it moves; others are 0 */
};

/* Weights are the initial ones and a quarter of a standard normal value, so that no gain is 1 and
 * no bias 0. Fails the test on an error of a rank, where ranks have different losses, and without a
 * loss. */
void slopes_measure(const struct slope_request *request, struct slope *slope);

#endif
