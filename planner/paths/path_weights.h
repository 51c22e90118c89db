/* The weight of each operator along a path, and in the memory of its stage.
 *
 * A search can minimise sums over operators, but not the time of a pipelined step. The length of a
 * path (planner/paths/path.h) is such a sum: each operator's forward pass, backward pass and end of
 * the step, times its count on the path. It bounds the step from below. The search minimises it and
 * then prices the plan by the timeline.
 *
 * Memory is a sum per stage: the states that the stage holds, and the activations of as many
 * micro-batches as the schedule keeps in flight, however long the passes take. With several chunks
 * the sum also differs between the moments at which each chunk runs.
 */
#ifndef SBP_PLANNER_PATHS_PATH_WEIGHTS_H
#define SBP_PLANNER_PATHS_PATH_WEIGHTS_H

#include "planner/paths/path.h"

/* A moment at which a piece runs, and how many micro-batches' activations of each chunk its stage
 * keeps then, the piece's own among them. */
struct sbp_moment {
    int piece;
    double *kept; /* (chunks) */
};

struct sbp_path_weights {
    /* (op_count) counts on the path of an operator's forward pass, its backward pass for input
     * gradients (recomputation included), its pass for weight gradients, and its end of the step.
     * Repeated operators have entries of their own. */
    double *forward, *backward, *weight, *end;
    /* (op_count) the same three, of passes that count by their collectives alone. */
    double *forward_links, *backward_links, *weight_links;
    double *sync; /* (op_count) of the sum of gradients at its stage's end, as far as it may hide */
    double *crossed;    /* (pieces) messages, there and back, between a piece and the one before */
    double message_s;   /* lower bound of all those, whatever the strategy */
    double launch_s;    /* of the passes that count by their hosts' launches */
    double host_s;      /* lower bound of the path: its hosts launch every operator of its passes */
    int pieces, *first; /* (pieces + 1) operators where they begin (costmodel/program/step.h) */
    int memory_stages;  /* >= 1: stages that can be the fullest, the memory stages */
    int *stage;         /* (memory_stages) their numbers in the pipeline */
    int *point;         /* (op_count) memory stage of an operator; -1 where its stage is none */
    double *kept;       /* (op_count) micro-batches whose activations its stage keeps at a time */
    /* (op_count) those beside them that have gone back and whose weight gradients wait: of these
     * the stage still has what weight gradients read. 0 unless the schedule puts them off. */
    double *parked;
    /* With several chunks: moments of the memory stages. At any other moment of a piece no more of
     * any chunk is kept than at one of these. */
    int moment_count;
    struct sbp_moment *moment;
};

/* Weights along a path of the cut, allocated in the arena. E_INPUT: the model has too few places to
 * cut; E_MEMORY; fails as sbp_timeline_simulate. */
enum sbp_status sbp_path_weights_make(const struct sbp_cut *cut, const struct sbp_path *path,
                                      struct sbp_arena *arena, struct sbp_path_weights *weights,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* Weights of the mean over stages in place of a path: for communication, which adds up whether or
 * not it overlaps. Fails as sbp_path_weights_make. */
enum sbp_status sbp_path_weights_mean(const struct sbp_cut *cut, struct sbp_arena *arena,
                                      struct sbp_path_weights *weights,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
