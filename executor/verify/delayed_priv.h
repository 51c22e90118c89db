/* Cyclic data parallelism as its paper states it (Fournier and Oyallon, section 3.2), on one
 * device: theta_{t+1} = theta_t - gamma/N sum_i grad f_i(theta^_{i,t}), theta^_{i,t} of stage j =
 * u_ij(theta_t, theta_{t-1}) of stage j, u_ij(a, b) = b under cdp-v1, and under cdp-v2 a where j >=
 * N - i + 1 and b elsewhere. Stages j and micro-batches i count from 1. theta_{-1} is theta_0. With
 * more micro-batches than the N stages the mean is over all of them. Stages are the pieces of the
 * model, wherever they are placed. Other optimizers than SGD take
 * the same sum of gradients.
 *
 * It knows which stage an operator is of, and nothing of orders, works or versions in memory. A
 * weight that several stages read is, for each of them, theta of that stage.
 */
#ifndef SBP_EXECUTOR_VERIFY_DELAYED_PRIV_H
#define SBP_EXECUTOR_VERIFY_DELAYED_PRIV_H

#include "costmodel/program/step.h"

struct sbp_delayed {
    const struct sbp_step *step; /* borrowed: its stages, schedule and micro-batches */
    int tensors;
    /* Whole weights, row-major; NULL for what is none. */
    double **newest, **older;  /* (tensors) theta_t, theta_{t-1} */
    double **gradient;         /* (tensors) of the micro-batches so far */
    double **sum, **inherited; /* (tensors) of the absolute values of its terms; of the deviations
                                  of errors that these bring along, -1: none, it is exactly 0 */
};

/* elements: (tensors) of each weight, 0 for what is none. On failure (E_MEMORY) close it all the
 * same. */
enum sbp_status sbp_delayed_open(struct sbp_delayed *delayed, const struct sbp_step *step,
                                 const int64_t *elements, int tensors) SBP_MUST_USE;
void sbp_delayed_close(struct sbp_delayed *delayed);
/* Bytes of all that for so many elements. */
double sbp_delayed_bytes(double elements);

/* theta_t becomes theta_{t-1}; the caller fills `newest`. */
void sbp_delayed_begin_step(struct sbp_delayed *delayed);
/* Whether micro-batch i (from 0) of a step (from 1) reads theta_t in an operator. */
bool sbp_delayed_reads_newest(const struct sbp_step *step, int64_t number, int64_t micro_batch,
                              int op);
/* What micro-batch i (from 0) of a step (from 1) reads of a weight in an operator. */
const double *sbp_delayed_weight(const struct sbp_delayed *delayed, int64_t step,
                                 int64_t micro_batch, int op, int tensor);

#endif
