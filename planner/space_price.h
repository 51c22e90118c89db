/* Prices of a space, in parts: which operators a variable decides and how often they count
 * (space_works.c), what is formed again (space_again.c), what an operator costs in a tuple, part by
 * part (space_rows.c), the memory that it takes (space_memory.c), the cost of a choice of tuple and
 * ZeRO level that follows (space_cost.c), and what two choices cost together (space_pairs.c);
 * space_problem.c makes a pairwise problem of them.
 */
#ifndef SBP_PLANNER_SPACE_PRICE_H
#define SBP_PLANNER_SPACE_PRICE_H

#include "planner/space.h"
#include "planner/space_shapes.h"

enum { SBP_ZERO_LEVELS = 4, SBP_NO_ROLE = 255 };

/* ---- what is formed again ------------------------------------------------------------------- */

/* By operator, what a backward pass does once more of the forward pass. */
struct sbp_again {
    bool *in_segment;
    double *compute, *inner; /* (op_count) share of the arithmetic, of collectives inside */
    uint8_t *boxed;          /* (op_count) bit i: input i is boxed */
    uint8_t *boxed_late;     /* (op_count) bit i: once more, for the weights' gradients */
    uint8_t *enters;         /* (op_count) bit i: input i comes from outside of the segment */
    bool *boxed_output;
};
/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_space_find_again(const struct sbp_space *space, struct sbp_arena *arena,
                                     struct sbp_again *again) SBP_MUST_USE;

/* ---- works ---------------------------------------------------------------------------------- */

/* Operators that a variable decides and that cost alike: repeats, put together. */
struct sbp_space_work {
    int op;                       /* one of them */
    bool follows;                 /* runs where its input rests */
    uint8_t map[SBP_MAX_ROLES];   /* variable's role -> operator's; SBP_NO_ROLE */
    unsigned boxed;               /* bit i: boxing of input i is priced here, not with the pair */
    bool boxed_output;            /* likewise */
    bool keeps_block, keeps_copy; /* whether it keeps its first input, at rest and gathered */
    unsigned owned; /* bit w: weights that are synchronised and updated here, not by another user */
    int holders[SBP_MAX_WEIGHTS];   /* stages that hold a weight */
    uint8_t level[SBP_ZERO_LEVELS]; /* ZeRO level of the weights when the variable chooses one */
    /* Times on the path: forward passes, backward passes for input gradients and for weights', what
     * is formed again of each part, copies of weights that are gathered or converted, ends of a
     * step. */
    double forward, backward, weight;
    double again_compute, again_inner, again_boxed[SBP_MAX_INPUTS], again_output;
    double copied, end;
    double *held, *kept; /* (points) */
};

struct sbp_space_works {
    int *first; /* (variable_count + 1) into work: a variable's stand together */
    struct sbp_space_work *work;
    /* (variable_count) elements x times of gradients that are added up where a variable's tensors
     * rest whole; elsewhere that is a constant. */
    double *added_elements;
    double constant_s;
    double *constant_bytes; /* (points) */
    bool *kept_at_rest;     /* (tensor_count) counted where it rests, once for all that read it */
};

/* Makes space->works, and the times of transfers and keeps. Domains must be there. E_MEMORY. */
enum sbp_status sbp_space_make_works(struct sbp_space *space) SBP_MUST_USE;

/* ---- what an operator costs in a tuple ------------------------------------------------------- */

/* Of one micro-batch, or once a step, on a device; seconds but where said. */
struct sbp_row {
    double compute, inner, box_in[SBP_MAX_INPUTS], box_out; /* forward */
    double back, back_weight;   /* of the backward pass: gradients of weights, and the rest */
    double convert, gather;     /* of copies of all weights: at ZeRO levels 0 to 2, and 3 */
    double all_reduce, scatter; /* gradients of owned weights, whole and into shards */
    double share;               /* updated weights out of shards, levels 1 and 2 */
    double stage_sum[2];        /* with other stages: of blocks, of shards */
    double local, shard;        /* elements of owned weights: of blocks, of shards */
    double kept_bytes;          /* of activations, beyond what no choice changes */
};

/* (tuple) what a work of a variable costs in its tuples, out of the arena; scratch may be released
 * at once. E_MEMORY. */
enum sbp_status sbp_space_make_rows(const struct sbp_space *space, int variable,
                                    const struct sbp_space_work *work, struct sbp_arena *arena,
                                    struct sbp_arena *scratch, struct sbp_row **rows) SBP_MUST_USE;

/* Prices all choices of all variables: tuples x levels that may be best. E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_space_make_choices(struct sbp_space *space) SBP_MUST_USE;

/* A choice's operator in numbers: shapes and factors by the operator's own roles. */
struct sbp_played {
    int shape[SBP_MAX_ROLES];
    struct sbp_factor factor;
};

/* ---- small parts ---------------------------------------------------------------------------- */

/* Elements of the whole tensor. */
double sbp_space_elements(const struct sbp_space *space, int tensor);
/* Whether an input is the model's own and arrives as it is wanted, free of charge. */
bool sbp_space_free_input(const struct sbp_space *space, int op, int input);
/* Whether all of a block is formed again but its inputs and, under selective recompute, halves of
 * what products left. */
bool sbp_space_forms_again(const struct sbp_space *space);
bool sbp_space_is_attention(enum sbp_op_kind kind);
/* Bytes of parameters, gradients and optimizer states on a device, of so many elements of blocks
 * and of shards under a ZeRO level; offloaded states are on the host. */
double sbp_space_state_bytes(const struct sbp_space *space, int level, double local, double shard);
/* Whether an operator keeps its input because of its tuple: a linear does, as a copy of its own
 * when it is gathered (and not gathered once more for backward) or free, else as the block at rest,
 * which is counted once for all readers. */
bool sbp_space_keeps_input(const struct sbp_space *space, int op, bool own_copy);
/* Fills in works->kept_at_rest, of false. E_MEMORY. */
enum sbp_status sbp_space_find_kept(const struct sbp_space *space, struct sbp_arena *scratch,
                                    bool *kept) SBP_MUST_USE;
/* (points) what no choice changes. E_MEMORY. */
enum sbp_status sbp_space_sum_constant_bytes(const struct sbp_space *space,
                                             const struct sbp_again *again,
                                             double *bytes) SBP_MUST_USE;

#endif
