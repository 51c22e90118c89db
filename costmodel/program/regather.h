/* Gathers once a tensor that several operators read, and once more for their weight gradients.
 * Input: a graph, and distributions of a tensor. Output: who gathers it again, and how it waits
 * until then.
 *
 * Under `regather` a tensor that rests whole waits as its operator produced it, split.
 * Megatron-LM's sequence parallelism keeps a norm's output so for the products behind it
 * (Korthikanti et al., 2022, section 4.2.2).
 */
#ifndef SBP_COSTMODEL_PROGRAM_REGATHER_H
#define SBP_COSTMODEL_PROGRAM_REGATHER_H

#include "costmodel/layout/distribution.h"
#include "costmodel/model/graph.h"

/* Finds what may be gathered once more, of tensors that are produced and read in first_op ..
 * end_op - 1: at least two backward passes read it, all of them for gradients of weights alone, and
 * it is not recomputed (segment: (op_count), -1 where an operator is in none). gatherer:
 * (tensor_count), of each the last of these readers, whose backward pass comes first, else -1. */
void sbp_regather_find(const struct sbp_graph *graph, int first_op, int end_op, const int *segment,
                       int *gatherer);

/* Whether the output of an operator that runs where its input rests may pay to rest elsewhere:
 * several linears read it, for which it is gathered once. Where all of them together write fewer
 * features than they read, as latent attention's down projections, that hardly pays. */
bool sbp_regather_rests_apart(const struct sbp_graph *graph, int op);

/* How a tensor waits that was produced in a distribution without partial sums and rests in
 * another: split where it was produced so and rests whole. Writes that to *kept and returns true;
 * false: as it rests. */
bool sbp_regather_kept(const struct sbp_mesh *mesh, const struct sbp_dist *produced,
                       const struct sbp_dist *rest, struct sbp_dist *kept);

#endif
