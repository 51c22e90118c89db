/* Cyclic data parallelism in time steps: which device computes which pass when, on which version of
 * the parameters, and what that costs in memory, devices and communication (Fournier and Oyallon,
 * Cyclic Data Parallelism, sections 3.2 and 4, table 1).
 *
 * A model has N stages j = 1 .. N and a step N micro-batches i = 1 .. N, counted from 1 as in the
 * paper; steps t and time steps count from 0. A time step is a forward or a backward pass of one
 * stage. The planner does not need these counts: they check its schedules in seconds
 * (costmodel/timeline/timeline.h), and a table of results prints them.
 */
#ifndef SBP_TESTS_PAPERS_CDP_COUNT_H
#define SBP_TESTS_PAPERS_CDP_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "costmodel/timeline/cdp_priv.h"
#include "costmodel/timeline/timeline.h"

/* F(i, j, t) = 2 N t + 2 (i - 1) + j - 1 and B(i, j, t) = 2 N t + 2 (i - 1) + 2 N - j. */
int64_t sbp_cdp_forward_slot(int n, int i, int j, int64_t t);
int64_t sbp_cdp_backward_slot(int n, int i, int j, int64_t t);

/* Sizes of one stage; all are equal. The paper's sizes: B Psi_A = n activation_bytes, Psi_P = n
 * parameter_bytes, B Psi_A^int = (n - 1) boundary_bytes. */
struct sbp_cdp_sizes {
    int64_t activation_bytes; /* of a micro-batch, from its forward to its backward pass */
    int64_t parameter_bytes;  /* with optimizer states, as the paper has it */
    int64_t boundary_bytes;   /* of a micro-batch, between two stages, one way */
};

/* Counted over the time steps of one steady step. The paper's table 1 follows, with where it is
 * only asymptotic or leaves something out:
 *
 * Activations on a device: single-device N B Psi_A, cyclic (N + 1)/2 B Psi_A; data-parallel and
 * zero B Psi_A; model-parallel B Psi_A / N; pipeline B Psi_A (on stage 1; stage j holds N - j + 1
 * micro-batches). "Half" is (N + 1)/(2 N): 62.5 % with N = 4.
 *
 * Parameters on a device: single-device N Psi_P, cyclic (N + 1)/2 Psi_P, both with a copy for each
 * micro-batch under way (shared, it is Psi_P); data-parallel Psi_P; else Psi_P / N. The table has
 * one version; where micro-batches share parameters, v1 and the stages j < N of v2 need two, since
 * backward passes need the version of their forward pass (the paper denies it for v2).
 *
 * Communication: the table gives the size of the tensors. As bytes that all devices send:
 * data-parallel 2 (N - 1) Psi_P with and without cycle; model-parallel 2 (N - 1) Psi_P, cyclic
 * exactly half; zero 3 (N - 1) Psi_P, 1.5 times the table's, and cyclic 2 (N - 1) Psi_P, since a
 * stage's states move at every time step but from F to B on stage N and from B to F on stage 1
 * (with optimizer states, as the paper has it). Activations: 2 N (B Psi_A^int), both ways.
 *
 * Rounds of communication between two time steps: collectives log2 N, cyclic 1.
 * Devices: 1; N; N^2, cyclic N (N + 1)/2; pipeline and zero N.
 */
struct sbp_cdp_count {
    int devices;
    int64_t activation_bytes;                                 /* most on a device */
    int64_t all_activation_bytes, least_all_activation_bytes; /* on all devices: most, least */
    int64_t parameter_bytes;                                  /* most on a device, one version */
    int versions;                 /* most versions of a stage's parameters on a device */
    int64_t parameter_sent_bytes; /* gradients, parameters, states; per step, all devices */
    int64_t boundary_sent_bytes;  /* activations and their gradients; per step, all devices */
    int rounds;                   /* most rounds of messages between two time steps */
};

/* Plays a schedule of n stages and n micro-batches time step by time step and counts. cyclic:
 * micro-batches start two time steps apart; otherwise all at once (a pipeline is always cyclic).
 * Scratch memory comes from the arena and is released. n in 1 .. 256, sizes in 0 .. 2^40. E_INPUT,
 * E_MEMORY. */
enum sbp_status sbp_cdp_count(int n, enum sbp_placement placement, bool cyclic,
                              enum sbp_cdp_rule rule, const struct sbp_cdp_sizes *sizes,
                              struct sbp_arena *arena, struct sbp_cdp_count *count,
                              struct sbp_diag *diag) SBP_MUST_USE;

#endif
