/* Computes the seconds and bytes of every choice of a space. Input: a space and path weights.
 * Output: cost columns, and the pairwise problem for a solver. Seconds and bytes are those of one
 * device, along the path that space->weights describes.
 *
 * Operators of one variable that cost alike form a group, which counts as often as the path through
 * the step runs it (op_groups.c). recompute.c finds the work that a backward pass repeats.
 * op_costs.c prices one operator in every tuple of its variable, part by part, as columns.
 * choice_costs.c weights the columns and adds them up to the cost of a choice, which is a tuple
 * with a ZeRO level. memory_model.c counts the bytes, edge_kinds.c prices pairs of choices, and
 * to_problem.c makes the pairwise problem.
 */
#ifndef SBP_PLANNER_PRICING_PRICING_H
#define SBP_PLANNER_PRICING_PRICING_H

#include "planner/space/group_prices.h"
#include "planner/space/space.h"

enum { SBP_ZERO_LEVELS = 4, SBP_NO_ROLE = 255 };

/* ---- recomputation -------------------------------------------------------------------------- */

/* The forward work that a backward pass repeats, by operator. */
struct sbp_recomputed {
    bool *in_segment;
    double *compute, *inner; /* (op_count) share of the arithmetic, of the collectives inside */
    uint8_t *boxed;          /* (op_count) bit i: input i is boxed again */
    uint8_t *boxed_late;     /* (op_count) bit i: once more, for the weights' gradients */
    uint8_t *enters;         /* (op_count) bit i: input i comes from outside of the segment */
    bool *boxed_output;      /* (op_count) the output is boxed again */
    int *gatherer; /* (op_count) the operator before whose backward pass the output is gathered
                      again, for it and the readers before it; -1: none */
    bool *left; /* (op_count) the kept output is read again: attention under selective recompute */
};
/* Arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_pricing_find_recomputed(const struct sbp_space *space, struct sbp_arena *arena,
                                            struct sbp_recomputed *recomputed) SBP_MUST_USE;

/* ---- groups of operators -------------------------------------------------------------------- */

/* Times on the path: forward passes, backward passes for gradients of inputs and of weights,
 * recomputations of each part, and copies of weights that are gathered or converted. */
struct sbp_op_counts {
    double forward, backward, weight;
    double recomputed_compute, recomputed_inner, recomputed_boxed[SBP_MAX_INPUTS];
    double recomputed_output;
    double copied;
};

/* Operators of one variable that cost alike, mostly the repeats of a layer. */
struct sbp_op_group {
    int op;                       /* one of them */
    bool follows;                 /* it runs where its input rests */
    uint8_t map[SBP_MAX_ROLES];   /* variable's role -> operator's; SBP_NO_ROLE */
    unsigned boxed;               /* bit i: boxing of input i is priced here, not with the edge */
    bool boxed_output;            /* likewise of the output */
    bool keeps_block, keeps_copy; /* it keeps its first input: at rest, gathered */
    bool keeps_half;              /* it keeps half of its output, as it leaves it */
    bool keeps_saved;             /* it keeps what it saves beside operands for its backward pass */
    unsigned owned;      /* bit w: weight w is synchronised and updated here, not by another user */
    unsigned lent;       /* bit w: an earlier user with the same ZeRO levels owns weight w */
    unsigned used_again; /* bit w: a later operator reads the owned weight w, too */
    int holders[SBP_MAX_WEIGHTS];   /* stages that hold a weight */
    uint8_t level[SBP_ZERO_LEVELS]; /* ZeRO level of the weights when the variable chooses one */
    struct sbp_op_counts device, links; /* of passes by their device, by their collectives alone */
    double end, sync; /* ends of a step; sums of gradients, as far as they may hide */
    int sharers;      /* readers that may share the input's copy, where it may rest whole; else 1 */
    /* Operators whose weight gradients may read the same block as this one's: of the output's
     * gradient; of the first input. 0: its own read none, or none that is known. */
    int gradient_readers, input_readers;
    /* (memory stages) operators; micro-batches whose activations are kept; others whose weight
     * gradients wait */
    double *held, *kept, *parked;
};

struct sbp_op_groups {
    int *first; /* (variable_count + 1) into group: a variable's groups are adjacent */
    struct sbp_op_group *group;
    int *of; /* (op_count) an operator's group */
    /* (variable_count) elements x times of gradients that are added up where a variable's tensors
     * rest whole; elsewhere the additions are part of constant_s. */
    double *added_elements;
    int *crossing; /* (pieces) tensor that crosses before a piece, where it may rest whole; -1 */
    double constant_s;
    double *constant_bytes; /* (memory stages) */
    double *kept_bytes; /* (op_count) of constant_bytes, the activations of a micro-batch that an
                           operator keeps; the first of several keepers counts */
    bool *goes_back;    /* (op_count) its backward pass works, or hands a gradient on */
    bool *kept_at_rest; /* (tensor_count) counted where it rests, once for all readers */
    struct sbp_op_kept *kept_whole; /* (op_count) what its backward pass reads, not split */
};

/* Makes space->groups and the times of edges. Domains must be there. E_MEMORY. */
enum sbp_status sbp_pricing_make_groups(struct sbp_space *space) SBP_MUST_USE;

/* The share of a collective's time that adds to its pass: 1 less what the trainer may hide
 * (sbp_price_hidden_share), so that sums bound the step from below. op_kind: of the operator that
 * it is inside of. 1 where the objective is communication. */
double sbp_pricing_shown(const struct sbp_space *space, enum sbp_cause cause,
                         enum sbp_op_kind op_kind);

/* ---- costs of an operator in a tuple -------------------------------------------------------- */

/* Parts of a cost, of one micro-batch or once a step, on a device; seconds unless said otherwise.
 */
enum sbp_column {
    SBP_COLUMN_COMPUTE, /* of the forward pass, like the next two and boxing of inputs */
    SBP_COLUMN_INNER,   /* collectives inside the operator */
    SBP_COLUMN_BOX_OUT,
    SBP_COLUMN_BACK, /* of the backward pass for inputs, like the next two */
    SBP_COLUMN_BACK_INNER,
    SBP_COLUMN_BACK_BOX,
    SBP_COLUMN_BACK_WEIGHT, /* of gradients of weights */
    SBP_COLUMN_WEIGHT_INNER,
    SBP_COLUMN_CONVERT,     /* copies of all weights at ZeRO levels 0 to 2 */
    SBP_COLUMN_CONVERT_OWN, /* and at level 3, of those without replicas */
    SBP_COLUMN_GATHER,      /* of those with some */
    SBP_COLUMN_REDUCE,      /* gradients of owned weights: reduced whole, into shards */
    SBP_COLUMN_SCATTER,
    SBP_COLUMN_SHARE,        /* updated weights out of shards, levels 1 and 2 */
    SBP_COLUMN_STAGE_BLOCKS, /* sums with other stages: of blocks, of shards */
    SBP_COLUMN_STAGE_SHARDS,
    SBP_COLUMN_LOCAL, /* elements of owned weights: of blocks, of shards */
    SBP_COLUMN_SHARD,
    SBP_COLUMN_KEPT,   /* bytes of activations, beyond those that no choice changes */
    SBP_COLUMN_PARKED, /* bytes of operands that weight gradients read, at the least */
    SBP_COLUMN_BOX_IN, /* of each input */
    SBP_COLUMNS = SBP_COLUMN_BOX_IN + SBP_MAX_INPUTS
};

/* Costs of a group in each tuple of its variable. */
struct sbp_columns {
    const double *of[SBP_COLUMNS]; /* (tuple); NULL: 0 in every tuple */
};

/* Remembered arithmetic of the operator that was priced last. Zeroed it is empty. */
struct sbp_arithmetic_memo {
    int op;
    struct sbp_arithmetic *of; /* by hash */
};

/* Columns of a variable's group, out of the arena; scratch holds the memo too, and the rest of it
 * may be released at once. E_MEMORY. */
enum sbp_status sbp_pricing_make_columns(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *group, struct sbp_arena *arena,
                                         struct sbp_arena *scratch,
                                         struct sbp_arithmetic_memo *memo,
                                         struct sbp_columns *columns) SBP_MUST_USE;

/* Operands that are recomputed for an operator's backward pass and that no other operator counts:
 * inputs, as bits, and what it saves besides. */
struct sbp_recomputed_operands {
    unsigned inputs;
    bool saved;
};
/* Bytes that neither persist nor are kept, at the least: of an operator's operands while it works,
 * and while it goes back; and of whole gradients of weights that are used again, from the backward
 * pass of their last user to its own. */
struct sbp_at_work {
    double most, back, held;
};
/* For each tuple of a group's variable. kept: (tuple), SBP_COLUMN_KEPT; saved: (tuple), bytes kept
 * beside operands beyond an even share, which no choice changes; working: (tuple, ZeRO level of the
 * weights). E_MEMORY. */
enum sbp_status sbp_pricing_make_working(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *group,
                                         const struct sbp_recomputed_operands *recomputed,
                                         double *kept, double *saved,
                                         struct sbp_at_work *working) SBP_MUST_USE;

/* Prices all choices of all variables: tuples x ZeRO levels that may be best. E_MEMORY,
 * SBP_STOPPED. */
enum sbp_status sbp_pricing_make_choices(struct sbp_space *space) SBP_MUST_USE;

/* ---- memory and small parts ----------------------------------------------------------------- */

/* Elements of the whole tensor. */
double sbp_pricing_elements(const struct sbp_space *space, int tensor);
/* Whether an input is the model's own and arrives as it is wanted, free of charge. */
bool sbp_pricing_free_input(const struct sbp_space *space, int op, int input);
/* Whether a backward pass recomputes all of a block but its inputs and, under selective recompute,
 * halves of the products' outputs. */
bool sbp_pricing_recomputes(const struct sbp_space *space);
bool sbp_pricing_is_attention(enum sbp_op_kind kind);
/* The tensors that the backward pass reads of an operator that is not split. */
static inline struct sbp_op_kept sbp_pricing_kept_whole(const struct sbp_space *space, int op)
{
    return space->groups->kept_whole[op];
}
/* Bytes of what an operator keeps beside its operands. */
double sbp_pricing_saved_bytes(const struct sbp_space *space, const struct sbp_op_kept *kept);
/* Whether an operator has a backward pass of its own (costmodel/program/program_backward.c):
 * weights, or gradients of inputs. */
bool sbp_pricing_works_back(const struct sbp_graph *graph, int op);
/* Bytes of parameters, gradients and optimizer states on a device of a memory stage, of so many
 * elements of blocks and of shards under a ZeRO level; offloaded states are on the host. */
double sbp_pricing_state_bytes(const struct sbp_space *space, int stage, int level, double local,
                               double shard);
/* Whether an operator's tuple decides that it keeps its input. A linear does: as a copy of its own
 * where the input is gathered (and not gathered once more for the backward pass) or free, else as
 * the block at rest, unless that is counted once for all readers. Recomputed inputs are not kept.
 */
bool sbp_pricing_keeps_input(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                             int op, bool own_copy);
/* Whether an operator that is no follower keeps what it saves beside operands; counted in even
 * shares. */
bool sbp_pricing_keeps_saved(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                             int op);
/* (op_count) sbp_op_group's gradient_readers and input_readers, zeros before. An operator that adds
 * or works in place hands its output's gradient on to whatever no other reads (give_gradient in
 * costmodel/program/program_backward.c). E_MEMORY. */
enum sbp_status sbp_pricing_count_late_readers(const struct sbp_graph *graph,
                                               struct sbp_arena *scratch, int *gradient_readers,
                                               int *input_readers) SBP_MUST_USE;
/* Whether all but half of an output is recomputed: of a product under selective recompute. */
bool sbp_pricing_keeps_half(const struct sbp_space *space, const struct sbp_recomputed *recomputed,
                            int op);
/* Sets groups->kept_at_rest, which is all false. E_MEMORY. */
enum sbp_status sbp_pricing_find_kept(const struct sbp_space *space, struct sbp_arena *scratch,
                                      bool *kept) SBP_MUST_USE;
/* Bytes that no choice changes: kept_bytes (op_count) of groups, and bytes (memory stages), which
 * add these up as often as they are kept, what is saved beside operands as often as it is parked,
 * and the rest. Both are zeros before. E_MEMORY. */
enum sbp_status sbp_pricing_sum_constant_bytes(const struct sbp_space *space,
                                               const struct sbp_recomputed *recomputed,
                                               struct sbp_arena *scratch, double *kept_bytes,
                                               double *bytes) SBP_MUST_USE;

#endif
