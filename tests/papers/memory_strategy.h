/* A case's labelled strategy (tests/papers/memory_plan.h). */
#ifndef SBP_TESTS_PAPERS_MEMORY_STRATEGY_H
#define SBP_TESTS_PAPERS_MEMORY_STRATEGY_H

#include "costmodel/program/strategy.h"
#include "tests/papers/memory_plan.h"

/* `mesh` is a stage's own; the strategy is allocated, and still to be closed. */
void memory_strategy_fill(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                          const struct memory_case *question, struct sbp_strategy *strategy);

#endif
