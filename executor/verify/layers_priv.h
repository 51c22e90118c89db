/* How a sampled verification goes through a model: piece by piece, some rows of the batch at a
 * time, so that the reference holds the weights and activations of one piece.
 *
 * Input is the model's graph. A piece begins where one activation crosses, before an operator with
 * weights, or where one of the step's does: a transformer's block, the embedding, the head. All
 * ranks make the same list of visits, as all of them have weights to give.
 */
#ifndef SBP_EXECUTOR_VERIFY_LAYERS_PRIV_H
#define SBP_EXECUTOR_VERIFY_LAYERS_PRIV_H

#include "costmodel/program/step.h"

enum { SBP_LAYERS_TOKENS = 256 }; /* that go through the reference at a time, if rows are shorter */

struct sbp_layers {
    int pieces;
    int *first;   /* (pieces + 1) operators, as in struct sbp_step */
    int64_t rows; /* of the batch at a time */
    int64_t times;
};

/* The model in one piece; arrays are the arena's. E_MEMORY. */
enum sbp_status sbp_layers_whole(const struct sbp_graph *graph, int64_t rows,
                                 struct sbp_arena *arena, struct sbp_layers *layers) SBP_MUST_USE;
/* In many, each of which is in one piece of the step (NULL: of all of the model); rows divide the
 * graph's micro-batch. E_MEMORY. */
enum sbp_status sbp_layers_make(const struct sbp_graph *graph, const struct sbp_step *step,
                                struct sbp_arena *arena, struct sbp_layers *layers) SBP_MUST_USE;

/* The forward pass of a piece alone, or all of it: then the forward pass comes once more, of the
 * last piece for the first time. */
struct sbp_layers_pass {
    int64_t micro_batch; /* of so many `times` */
    int piece;
    bool goes_back;
    bool is_first; /* of the piece in the step */
};

/* Makes all visits of a step, in order; ends with the first failure. */
enum sbp_status sbp_layers_visit(const struct sbp_layers *layers,
                                 enum sbp_status (*visit)(void *context,
                                                          const struct sbp_layers_pass *visit,
                                                          struct sbp_diag *diag),
                                 void *context, struct sbp_diag *diag) SBP_MUST_USE;

/* Whether an operator is the first of its piece that reads its w-th weight. */
bool sbp_layers_meets(const struct sbp_layers *layers, const struct sbp_graph *graph, int piece,
                      int op, int w);

#endif
