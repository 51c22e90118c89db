/* Prices of a space, in parts: which operators a variable decides and how often they count
 * (op_groups.c), what is formed again (recompute.c), what an operator costs in a tuple, part by
 * part (op_costs.c), the memory that it takes (memory_model.c), the cost of a choice of tuple and
 * ZeRO level that follows (choice_costs.c), and what two choices cost together (edge_kinds.c);
 * to_problem.c makes a pairwise problem of them.
 */
#ifndef SBP_PLANNER_PRICING_PRICING_H
#define SBP_PLANNER_PRICING_PRICING_H

#include "planner/space/space.h"
#include "planner/space/group_prices.h"

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
    bool *left; /* (op_count) its first output is read: attention under selective recompute */
};
/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_pricing_find_recomputed(const struct sbp_space *space, struct sbp_arena *arena,
                                            struct sbp_again *again) SBP_MUST_USE;

/* ---- works ---------------------------------------------------------------------------------- */

/* Operators that a variable decides and that cost alike: repeats, put together. */
struct sbp_op_group {
    int op;                       /* one of them */
    bool follows;                 /* runs where its input rests */
    uint8_t map[SBP_MAX_ROLES];   /* variable's role -> operator's; SBP_NO_ROLE */
    unsigned boxed;               /* bit i: boxing of input i is priced here, not with the pair */
    bool boxed_output;            /* likewise */
    bool keeps_block, keeps_copy; /* whether it keeps its first input, at rest and gathered */
    bool keeps_half;              /* of its output, as it leaves it */
    bool keeps_saved;             /* what it leaves for its backward pass beside operands */
    unsigned owned; /* bit w: weights that are synchronised and updated here, not by another user */
    unsigned lent;  /* likewise: others, of a user before it with the same ZeRO levels */
    unsigned used_again;            /* of the owned ones, those that a user after it reads, too */
    int holders[SBP_MAX_WEIGHTS];   /* stages that hold a weight */
    uint8_t level[SBP_ZERO_LEVELS]; /* ZeRO level of the weights when the variable chooses one */
    /* Times on the path: forward passes, backward passes for input gradients and for weights', what
     * is formed again of each part, copies of weights that are gathered or converted, ends of a
     * step. */
    double forward, backward, weight;
    double again_compute, again_inner, again_boxed[SBP_MAX_INPUTS], again_output;
    double copied, end;
    int sharers; /* readers that may share the input's copy, where it may rest whole; else 1 */
    double *held, *kept; /* (points) */
};

struct sbp_op_groups {
    int *first; /* (variable_count + 1) into work: a variable's stand together */
    struct sbp_op_group *work;
    int *of; /* (op_count) an operator's */
    /* (variable_count) elements x times of gradients that are added up where a variable's tensors
     * rest whole; elsewhere that is a constant. */
    double *added_elements;
    int *crossing; /* (pieces of the weights) what crosses before a piece where it may rest whole;
                      -1 */
    double constant_s;
    double *constant_bytes; /* (points) */
    double *kept_bytes; /* (op_count) of it, by the activations of a micro-batch that an operator
                           keeps; what several keep is the first one's */
    bool *goes_back;    /* (op_count) its backward pass does something, or hands something on */
    bool *kept_at_rest; /* (tensor_count) counted where it rests, once for all that read it */
};

/* Makes space->groups, and the times of transfers and keeps. Domains must be there. E_MEMORY. */
enum sbp_status sbp_pricing_make_groups(struct sbp_space *space) SBP_MUST_USE;

/* ---- what an operator costs in a tuple ------------------------------------------------------- */

/* Parts, of one micro-batch or once a step, on a device; seconds but where said. */
enum sbp_column {
    SBP_COLUMN_COMPUTE, /* of the forward pass, like the next two and boxing of inputs */
    SBP_COLUMN_INNER,
    SBP_COLUMN_BOX_OUT,
    SBP_COLUMN_BACK, /* of the backward pass: gradients of weights, and the rest */
    SBP_COLUMN_BACK_WEIGHT,
    SBP_COLUMN_CONVERT, /* of copies of all weights: at ZeRO levels 0 to 2, and 3 */
    SBP_COLUMN_GATHER,
    SBP_COLUMN_REDUCE, /* gradients of owned weights, whole and into shards */
    SBP_COLUMN_SCATTER,
    SBP_COLUMN_SHARE,        /* updated weights out of shards, levels 1 and 2 */
    SBP_COLUMN_STAGE_BLOCKS, /* sums with other stages: of blocks, of shards */
    SBP_COLUMN_STAGE_SHARDS,
    SBP_COLUMN_LOCAL, /* elements of owned weights: of blocks, of shards */
    SBP_COLUMN_SHARD,
    SBP_COLUMN_KEPT,   /* bytes of activations, beyond what no choice changes */
    SBP_COLUMN_BOX_IN, /* of each input */
    SBP_COLUMNS = SBP_COLUMN_BOX_IN + SBP_MAX_INPUTS
};

/* What a work costs in each tuple of its variable. */
struct sbp_columns {
    const double *of[SBP_COLUMNS]; /* (tuple); NULL: 0 in every tuple */
};

/* Columns of a work of a variable, out of the arena; scratch may be released at once. E_MEMORY. */
enum sbp_status sbp_pricing_make_columns(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *work, struct sbp_arena *arena,
                                         struct sbp_arena *scratch,
                                         struct sbp_columns *columns) SBP_MUST_USE;

/* What is formed again before an operator's backward pass, which reads it, and nobody else counts:
 * inputs, as bits, and what it saves besides. */
struct sbp_formed {
    unsigned inputs;
    bool saved;
};
/* Bytes that neither persist nor are kept, at the least: of an operator's operands while it works
 * and while it goes back, and, from the backward pass of the last user of its weights to its own,
 * whole gradients of those that are used again. */
struct sbp_at_work {
    double most, back, held;
};
/* Of a work in each tuple of its variable: kept (tuple), SBP_COLUMN_KEPT; saved (tuple), bytes kept
 * beside operands beyond an even share, which no choice changes; working (tuple, ZeRO level of its
 * weights). E_MEMORY. */
enum sbp_status sbp_pricing_make_working(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *work,
                                         const struct sbp_formed *formed, struct sbp_arena *scratch,
                                         double *kept, double *saved,
                                         struct sbp_at_work *working) SBP_MUST_USE;

/* Prices all choices of all variables: tuples x levels that may be best. E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_pricing_make_choices(struct sbp_space *space) SBP_MUST_USE;

/* A choice's operator in numbers: shapes and factors by the operator's own roles. */
struct sbp_played {
    int shape[SBP_MAX_ROLES];
    struct sbp_factor factor;
};

/* ---- small parts ---------------------------------------------------------------------------- */

/* Elements of the whole tensor. */
double sbp_pricing_elements(const struct sbp_space *space, int tensor);
/* Whether an input is the model's own and arrives as it is wanted, free of charge. */
bool sbp_pricing_free_input(const struct sbp_space *space, int op, int input);
/* Whether all of a block is formed again but its inputs and, under selective recompute, halves of
 * what products left. */
bool sbp_pricing_recomputes(const struct sbp_space *space);
bool sbp_pricing_is_attention(enum sbp_op_kind kind);
/* Whether an operator has a backward pass of its own (costmodel/program/program_backward.c):
 * weights, or gradients of inputs. */
bool sbp_pricing_works_back(const struct sbp_graph *graph, int op);
/* Bytes of parameters, gradients and optimizer states on a device, of so many elements of blocks
 * and of shards under a ZeRO level; offloaded states are on the host. */
double sbp_pricing_state_bytes(const struct sbp_space *space, int level, double local,
                               double shard);
/* Whether an operator keeps its input because of its tuple: a linear does, as a copy of its own
 * when it is gathered (and not gathered once more for backward) or free, else as the block at rest,
 * which is counted once for all readers. What is formed again it does not keep. */
bool sbp_pricing_keeps_input(const struct sbp_space *space, const struct sbp_again *again, int op,
                             bool own_copy);
/* Whether what an operator that decides on itself saves beside its operands is kept, and counted in
 * even shares. */
bool sbp_pricing_keeps_saved(const struct sbp_space *space, const struct sbp_again *again, int op);
/* Whether it is formed again but for half of its output: a product under selective recompute. */
bool sbp_pricing_keeps_half(const struct sbp_space *space, const struct sbp_again *again, int op);
/* Fills in works->kept_at_rest, of false. E_MEMORY. */
enum sbp_status sbp_pricing_find_kept(const struct sbp_space *space, struct sbp_arena *scratch,
                                      bool *kept) SBP_MUST_USE;
/* What no choice changes: kept_bytes (op_count) of works, and with how often that is kept and the
 * rest, bytes (points); both of zeros. E_MEMORY. */
enum sbp_status sbp_pricing_sum_constant_bytes(const struct sbp_space *space,
                                               const struct sbp_again *again,
                                               struct sbp_arena *scratch, double *kept_bytes,
                                               double *bytes) SBP_MUST_USE;

#endif
