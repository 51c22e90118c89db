/* A pairwise problem like the ones the planner builds, without the planner: the perceptron of
 * AutoDDL (arXiv 2301.06813, section 5.1) with layers of 32768, 16384, 4096, 2048 and 512 units.
 *
 * Each of the four linear layers splits 2^log2_devices devices into (batch, column, row) powers of
 * two; 2^12 devices give 91 strategies a layer. Costs are alpha-beta times of the layer's
 * reduce-scatter, all-gather and gradient all-reduce; an edge costs an all-to-all unless the
 * layouts meet.
 */
#ifndef SBP_TESTS_PERCEPTRON_H
#define SBP_TESTS_PERCEPTRON_H

#include "planner/problem/problem.h"

/* The problem may be freed whatever is returned. E_MEMORY. */
enum sbp_status perceptron_build(struct sbp_problem *problem, int log2_devices,
                                 double batch) SBP_MUST_USE;

#endif
