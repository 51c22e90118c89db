/* What training leaves behind: every bit of it, where verification holds values to bounds.
 *
 * Ranks are threads of this process, which the test drives itself, as a run does. */
#ifndef SBP_TESTS_TRAINED_H
#define SBP_TESTS_TRAINED_H

#include "costmodel/program/step.h"

/* After the last step, in single precision; whole tensors, row-major. */
struct trained {
    const struct sbp_graph *graph; /* borrowed */
    int steps;
    double *loss, *norm;        /* (steps); NaN: no loss; -1: no clipping */
    float **weight, **gradient; /* (tensor_count), NULL for what is no parameter */
};

/* Trains from the seed's weights on its data. Fails the test where replicas of a weight or of a
 * gradient differ, and on an error of a rank. */
void train(const struct sbp_step *step, int steps, uint64_t seed, struct trained *trained);
void trained_free(struct trained *trained);

/* Whether two of the same model have the same bits in losses, norms, weights and gradients, all of
 * them numbers; else says where they differ first. */
bool trained_alike(const struct trained *a, const struct trained *b, char *text, int size);
/* The first element of a tensor that differs between whole arrays of it, or is no number; -1. */
int64_t trained_difference(const struct sbp_graph *graph, int tensor, const float *a,
                           const float *b);

#endif
