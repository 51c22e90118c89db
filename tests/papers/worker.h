/* The activations that one worker holds over a forward and a backward pass, operator by operator,
 * and what workers hold together that pass one after the other.
 */
#ifndef SBP_TESTS_PAPERS_WORKER_H
#define SBP_TESTS_PAPERS_WORKER_H

#include "costmodel/cluster/cluster.h"
#include "costmodel/model/graph.h"

#define WORKER_MOST_OPS    1024
#define WORKER_MOST_STAGES 64
/* A staircase: bytes[i] are held from time begin[i] to begin[i + 1], the last to the pass's end. */
struct worker {
    int count;
    double total_s;
    double begin[2 * WORKER_MOST_OPS]; /* in parts of the pass, 0 .. 1 */
    double bytes[2 * WORKER_MOST_OPS];
    double peak_bytes, mean_bytes;
};

/* Times: the cost model's on a device of the cluster. An operator's kept bytes are there from the
 * begin of its forward to the end of its backward work. With states: the optimizer's moments too,
 * all the time, and gradients of weights from their operator's backward work on to the end. */
void worker_trace(const struct sbp_graph *graph, const struct sbp_cluster *cluster, bool states,
                  struct worker *worker);
/* Held at a time, any number: passes follow one another without a pause. */
double worker_at(const struct worker *worker, double time);
/* Mean over `workers` workers, each 1/workers of a pass behind the one before: at a time, and the
 * most at any. */
double worker_cyclic_at(const struct worker *worker, int workers, double time);
double worker_cyclic_peak(const struct worker *worker, int workers);

/* The model cut into stages of equal time, or of equal kept bytes, and its passes played in CDP's
 * time steps: the most held by all workers at one, of what one holds at the end of its forward pass
 * times workers; and the time of the slowest stage over the mean. */
struct worker_stages {
    double held_share, slowest;
};
struct worker_stages worker_stages(const struct worker *worker, int stages, bool by_bytes);

#endif
