/* Sizes of a mixture of experts on a rank, and what it keeps (mixture_run_priv.h). */
#ifndef SBP_EXECUTOR_RANK_MIXTURE_H
#define SBP_EXECUTOR_RANK_MIXTURE_H

#include "executor/rank/rank_memory.h"

struct sbp_rank_mixture {
    struct sbp_routing tokens; /* the local ones; its capacity is of them */
    int64_t slots;             /* S */
    int64_t experts, members;  /* held here; over which all of them are split */
    int64_t hidden, ffn, gates;
    struct sbp_digits held; /* which experts of all the local ones are */
    bool biases_router;     /* the fourth weight begins with a bias of each expert's score, */
    bool adds_bias;         /* which scores include, */
    bool chooses_by_bias;   /* or which has no part in scores, and no gradient; */
    bool biases_experts;    /* behind it follow those of both products of experts: */
    int64_t first_bias;     /* of the first local column of expert 0's first product, */
    int64_t second_bias;    /* and of its second one, in that weight; from expert to expert: */
    int64_t first_apart;    /* of the first products; `hidden` of the second ones */
    sbp_axes parts; /* that split the experts' products, of which one adds the second bias */
};

/* Of an operator in a program, on the rank at a place of its mesh. */
struct sbp_rank_mixture sbp_rank_mixture_of(const struct sbp_program *program, int op,
                                            int64_t place);
/* Whether the fourth weight of a mixture has biases of the experts' products: a row of each expert,
 * which has room for them. A bias of the router alone is one row, which with one expert looks like
 * the row of that expert, but is shorter. */
bool sbp_rank_biases_experts(const struct sbp_graph *graph, const struct sbp_op_node *node);
/* Where the copy stands that has the slot `slot`, 0 to C - 1, of an expert: as in a table. */
int64_t sbp_rank_mixture_slot(const struct sbp_rank_mixture *mixture, int64_t expert, int64_t slot);

/* Blocks of what forward keeps. */
struct sbp_rank_kept {
    void *copies, *first, *activation, *second, *scores;
    int32_t *table;
};
struct sbp_rank_kept sbp_rank_mixture_kept(struct sbp_rank *rank, const struct sbp_instr *instr,
                                           const struct sbp_rank_mixture *mixture);

#endif
