/* What training leaves behind: every bit of it, where verification holds values to bounds.
 *
 * Ranks are threads of this process, which the test drives itself, as a run does. */
#ifndef SBP_TESTS_TRAINED_H
#define SBP_TESTS_TRAINED_H

#include "executor/rank/rank.h"

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

/* Executes one task of a rank's step, and begins and ends the work that it belongs to. */
enum sbp_status trained_do_task(struct sbp_rank *rank, const struct sbp_task *task,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* What a test does to messages, and sees of works. */
struct disturbance {
    /* NULL: the backend lets one thread of a rank alone communicate. Else whether a message that
     * has come from another stage is not there yet, for the rank: activations (forward) or
     * gradients, the first of all steps is 0. Asked again and again, by the rank's thread of
     * messages. */
    bool (*is_late)(void *context, int rank, bool forward, int number);
    /* A rank begins a work, or the step's end. By the rank's thread. */
    void (*begins)(void *context, int rank, const struct sbp_task *task);
    void *context;
    bool staged; /* buffers are a device's for the backend: it copies them */
};
/* The same, disturbed. Of one test at a time. */
void train_disturbed(const struct sbp_step *step, int steps, uint64_t seed,
                     const struct disturbance *disturbance, struct trained *trained);

/* Whether two of the same model have the same bits in losses, norms, weights and gradients, all of
 * them numbers; else says where they differ first. */
bool trained_alike(const struct trained *a, const struct trained *b, char *text, int size);
/* The first element of a tensor that differs between whole arrays of it, or is no number; -1. */
int64_t trained_difference(const struct sbp_graph *graph, int tensor, const float *a,
                           const float *b);

#endif
