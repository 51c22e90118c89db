/* Bytes of activations that each operator's forward pass adds to what backward will read. */
#ifndef SBP_TESTS_PAPERS_KEPT_H
#define SBP_TESTS_PAPERS_KEPT_H

#include "costmodel/model/graph.h"

/* bytes: (op_count). Each kept tensor counts once, with the operator that makes it; the model's
 * input with the first one that keeps it. One device, the model's activation type. */
void kept_bytes(const struct sbp_graph *graph, double *bytes);

#endif
