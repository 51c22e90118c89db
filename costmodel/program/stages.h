/* Where a model can be cut: into stages of a pipeline, and into segments that are recomputed
 * together.
 *
 * A cut is a boundary between operators that exactly one activation crosses, so that neighbours
 * exchange one tensor. Pieces are ranges of operators in the model's order.
 */
#ifndef SBP_COSTMODEL_PROGRAM_STAGES_H
#define SBP_COSTMODEL_PROGRAM_STAGES_H

#include "costmodel/model/graph.h"
#include "costmodel/program/parallel.h"

/* The activation that crosses the boundary before operator `op`, made before it and read by it or
 * by a later one; -1 unless there is exactly one. The model's own input crosses, too, where it is
 * split and read later. */
int sbp_stages_crossing(const struct sbp_graph *graph, int op);

/* Marks repeated blocks (all operators that repeat, from the first one's site on): block[op] is the
 * number of the block that an operator belongs to, counted over the model, -1 outside of blocks.
 * Returns how many there are. block: (op_count). A model without repeats has none. */
int sbp_stages_blocks(const struct sbp_graph *graph, int *block);

/* Segments of `every` blocks within first_op .. end_op - 1: segment[op] = first operator of the one
 * that the operator is in, -1 outside of blocks. In a model without blocks every cut before an
 * operator with weights begins one. segment: (op_count). E_MEMORY. */
enum sbp_status sbp_stages_segments(const struct sbp_graph *graph, int first_op, int end_op,
                                    int64_t every, int *segment) SBP_MUST_USE;

/* Cuts the model into `pieces`: first[i] .. first[i + 1] - 1 is piece i, first: (pieces + 1).
 * By blocks they are shared out evenly, what comes before them goes to the first piece and what
 * comes after them to the last; where the number of blocks does not divide, the middle pieces have
 * one more than the others (ends carry embedding and head), the first and the last get one last. By
 * flops, or in a model with fewer blocks than pieces, any cut will do and the most forward flops of
 * a piece are as few as can be. E_INPUT: the model has too few legal cuts; E_MEMORY. */
enum sbp_status sbp_stages_cut(const struct sbp_graph *graph, int pieces, enum sbp_stage_cut cut,
                               int *first, struct sbp_diag *diag) SBP_MUST_USE;
/* The same as `parallel` says, which may give the blocks of each piece: what comes before the first
 * block goes to the first piece, what comes after the last to the last one. E_INPUT,
 * "parallel: stage_cut: ...", where the blocks given are not the model's, or a piece has no
 * operator.
 */
enum sbp_status sbp_stages_cut_as(const struct sbp_graph *graph, int pieces,
                                  const struct sbp_parallel *parallel, int *first,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* Checks boundaries that a user chose: ascending, first 0, last op_count, each a cut. E_INPUT. */
enum sbp_status sbp_stages_check(const struct sbp_graph *graph, int pieces, const int *first,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* How many stages hold each weight; pieces i and i + stages belong to one stage (chunks). holders:
 * (tensor_count). E_MEMORY. */
enum sbp_status sbp_stages_holders(const struct sbp_graph *graph, int pieces, int stages,
                                   const int *first, int *holders) SBP_MUST_USE;
/* How many chunks of a stage hold each weight. copies: (tensor_count). E_MEMORY. */
enum sbp_status sbp_stages_copies(const struct sbp_graph *graph, int pieces, int stages, int stage,
                                  const int *first, int *copies) SBP_MUST_USE;

#endif
