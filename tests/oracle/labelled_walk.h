/* The recursion over all labelled strategies, in parts: what a space allows (labelled_rules.c) and
 * the walk itself (labelled.c). Internal.
 */
#ifndef SBP_TESTS_LABELLED_WALK_H
#define SBP_TESTS_LABELLED_WALK_H

#include "labelled.h"

enum { MOST_CLASSES = 64 };

struct walk {
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    const struct sbp_request *request;
    sbp_axes data;             /* megatron: the axes of data parallelism */
    bool row[SBP_MAX_CLASSES]; /* megatron: (op_count) the second linear of a pair */
    /* megatron: (op_count) the operator itself, its partial sums, are split by tokens on tensor
     * axes; it is data-parallel on all axes. Last: the model's input. */
    bool tokens[SBP_MAX_CLASSES], token_rest[SBP_MAX_CLASSES + 1], data_alone[SBP_MAX_CLASSES];
    bool resort[SBP_MAX_CLASSES];      /* (op_count) no roles but spare ones divide it */
    bool rest_resort[SBP_MAX_CLASSES]; /* (op_count) nothing divides its output at rest */
    bool input_resort;                 /* nothing divides the model's input at rest */
    /* (op_count) full: goes on with partial sums; leaves what may rest partial, whole. */
    bool sums[SBP_MAX_CLASSES], partial_rest[SBP_MAX_CLASSES], whole_rest[SBP_MAX_CLASSES];
    bool wide;        /* sums go on and tensors rest whole wherever that is legal */
    int first_choice; /* the decision whose order of axes is fixed; -1: the model's input */
    struct sbp_strategy strategy;
    /* Which strategy the walk must equal (membership), or NULL. */
    const struct sbp_strategy *wanted;
    enum sbp_status (*visit)(struct walk *walk);
    void *context;
    int64_t visited, most;
};

/* The axes that split each class so far, kept so that the walk can go back to them. */
struct splits {
    sbp_axes axes[MOST_CLASSES];
};
struct splits keep_splits(const struct walk *walk);
void restore_splits(struct walk *walk, const struct splits *kept);

static inline const struct sbp_op_entry *entry_of(const struct walk *walk, int op)
{
    return walk->graph->op[op].entry;
}

bool is_megatron(const struct walk *walk);
/* The role of an operator on an axis so far; -1: none that goes with its first input. */
int role_on(const struct walk *walk, int op, int axis);

/* These functions say whether the space and the request allow a role or a rest on one axis. */
bool is_named(const struct walk *walk, int op, int role);
bool spare_allowed(const struct walk *walk, int op, int role);
bool role_allowed(const struct walk *walk, int op, int role, int axis);
bool rest_allowed(const struct walk *walk, int op, int dim, int axis);
bool reads_sums(const struct walk *walk, int op, int axis);

/* Note what a tensor's state, or all operands of a role, split; false: that is not legal. */
bool note(struct walk *walk, int tensor, int axis, struct sbp_state state);
bool note_role(struct walk *walk, int op, int axis, int role);

/* Before the recursion: pairs of linears, and for one choice of data axes the ways of a megatron
 * mesh; what nothing divides; what may rest partial or whole. */
void find_pairs(struct walk *walk);
void find_ways(struct walk *walk);
void find_resorts(struct walk *walk);
void find_rests(struct walk *walk);

#endif
