/* The strategy space: a graph on a mesh, as variables with unlabelled factor tuples.
 *
 * A tuple says, for each family of interchangeable axes (level and prime), how many of its axes
 * play each role. Variables are the operators that choose, and the rest states of outputs that a
 * producer may leave partial; everything else follows. A choice is a tuple and the ZeRO level of
 * the weights. Between two variables the cost is the least over all ways to line their axes up
 * (design, section 4, "Labels").
 *
 * Costs are weighted sums (planner/paths/path_weights.h): what a path through the step counts, of
 * operators by themselves and of tensors on their way between them. With several stages, or where
 * less hides than may, the sum is a lower bound of the step.
 */
#ifndef SBP_PLANNER_SPACE_SPACE_H
#define SBP_PLANNER_SPACE_SPACE_H

#include "costmodel/program/price.h"
#include "costmodel/program/cut.h"
#include "planner/problem/problem.h"
#include "planner/space/solve_request.h"
#include "planner/space/index_lists_priv.h"
#include "planner/paths/path_weights.h"

/* How a rest state was reached under boxing=paper (AutoDDL, section 4.3): partial sums became the
 * features' split (the general case and p0 = p0') or the batch's (p1 = p2'). */
enum sbp_rest_tag { SBP_REST_ANY, SBP_REST_FEATURE, SBP_REST_BATCH };

struct sbp_space_variable {
    int op;     /* site; -1: a rest state */
    int tensor; /* a rest state's tensor (of the site), else -1 */
    int role_count;
    struct sbp_state state[SBP_MAX_ROLES]; /* how each role leaves the output; a rest's state */
    unsigned allowed;                      /* bit r: a choice may play role r */
    /* What rests as it says may rest B or P: boxing into it and out of it then depends on both ends
     * and is priced with the pair, not with the operators. */
    bool rests_whole;
    int tuple_count;
    uint8_t *count; /* (tuple, family, role) */
    uint8_t *tag;   /* (tuple) enum sbp_rest_tag */
    int choice_count;
    int *tuple;     /* (choice) */
    uint8_t *zero;  /* (choice) level of the weights of its operators, that nothing else decides */
    double *cost_s; /* (choice) */
    double *bytes;  /* (points, choice) of memory, on a device of the point's stage; NULL: none */
};

/* A tensor on its way from where it rests into an operator's input. */
struct sbp_transfer {
    int from, to; /* variables */
    int op, input, tensor;
    double there, back; /* times that it goes on the path, repeats of the operator together */
};

/* An operator's output on its way into its rest state. */
struct sbp_keep {
    int op_variable, rest_variable, op;
    double there, back; /* as above */
};

/* How far a class may be split by any one variable. */
#define SBP_ANY_AXES 255
struct sbp_class_limit {
    int64_t parts;              /* most */
    uint8_t axes[SBP_MAX_AXES]; /* (family) most that split it; SBP_ANY_AXES: any */
};
/* parts: the class's size. */
struct sbp_class_limit sbp_space_class_unlimited(int64_t parts);

struct sbp_group_prices; /* planner/space/group_prices.h */
struct sbp_op_groups;
struct sbp_price_cache;
struct sbp_cache_shelf;

struct sbp_space {
    struct sbp_arena arena;
    const struct sbp_cut *cut;
    const struct sbp_graph *graph;
    const struct sbp_cluster *cluster; /* of a stage */
    const struct sbp_mesh *mesh;
    const struct sbp_solve_request *request;
    struct sbp_pricing pricing;
    const struct sbp_parallel *parallel;
    const struct sbp_path_weights *weights;
    int64_t micro_batches;
    bool moves_grow;     /* all-to-alls over more axes never cost less */
    double hidden_share; /* of the gradients' synchronisation, at most */
    double least_s;      /* where the request has a refuted_s: no strategy costs less */
    bool is_refuted;     /* that is reached: there are no choices */
    int variable_count, transfer_count, keep_count;
    struct sbp_space_variable *variable;
    struct sbp_transfer *transfer;
    struct sbp_keep *keep;
    int *op_variable;                  /* (op_count) -1: a follower */
    uint8_t (*op_role)[SBP_MAX_ROLES]; /* (op_count) variable's role -> operator's role */
    int *slot;                         /* (tensor_count) variable that says where it rests; -1 */
    bool *goes_on;  /* (op_count) a site may go on with partial sums (resting_layouts.c) */
    uint8_t *rests; /* (tensor_count) a site's output may rest B, P (bit SBP_REST_WHOLE, ...) */
    struct sbp_space_links links;
    struct sbp_class_limit *class_limit; /* (class_count) */
    struct sbp_group_prices *shapes;
    struct sbp_op_groups *groups;
    struct sbp_price_cache *store; /* planner/pricing/price_cache.h; NULL: none */
    struct sbp_cache_shelf *shelf;
};

/* A mesh for the `megatron` space: how many axes of each family go to data parallelism. */
struct sbp_megatron_mesh {
    int batch[SBP_MAX_AXES];
};
/* Data parallelism across the outermost level, tensor parallelism inside (AutoDDL, section 5, on
 * several devices a node). E_INPUT where the cluster has one level. */
enum sbp_status sbp_megatron_node_mesh(const struct sbp_cut *cut,
                                       struct sbp_megatron_mesh *megatron,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Enumerates domains. class_limit (class_count) may be NULL; megatron only for that space. E_INPUT
 * when a variable's domain is empty, naming the layer and its sizes; SBP_STOPPED. */
enum sbp_status sbp_space_make(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                               const struct sbp_class_limit *class_limit,
                               const struct sbp_megatron_mesh *megatron, struct sbp_space *space,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_space_free(struct sbp_space *space);

/* The pairwise problem of a space: variables in the same order. SBP_STOPPED. */
enum sbp_status sbp_pricing_problem(const struct sbp_space *space, double capacity_bytes,
                                    struct sbp_problem *problem,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* Whether the request's flag asks to stop, or its time is up; building then ends with SBP_STOPPED.
 */
static inline bool sbp_space_interrupted(const struct sbp_space *space)
{
    return sbp_solve_is_interrupted(space->request);
}

static inline const uint8_t *sbp_tuple_count(const struct sbp_space *space, int variable, int tuple,
                                             int family)
{
    const size_t row = (size_t)tuple * (size_t)space->mesh->family_count + (size_t)family;
    return space->variable[variable].count + row * SBP_MAX_ROLES;
}

static inline const uint8_t *sbp_space_count(const struct sbp_space *space, int variable,
                                             int choice, int family)
{
    return sbp_tuple_count(space, variable, space->variable[variable].tuple[choice], family);
}

/* How an operator that a variable decides leaves its output, by the variable's role (a tied head
 * plays the embedding's roles transposed). */
struct sbp_state sbp_space_output_state(const struct sbp_space *space, int op, int role);

/* Roles of grouped attention that split the heads of queries, keys and values, and of queries
 * alone; false for other operators. Head axes stand outside of query axes (design, section 4). */
bool sbp_space_query_roles(const struct sbp_op_node *node, int *head, int *query);

/* The variable that decides how an operator runs: its own, or where its first input rests; -1:
 * none. */
static inline int sbp_space_decider(const struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return node->entry->follows ? space->slot[node->input[0]] : space->op_variable[op];
}

/* ZeRO level of an operator's weights under its variable's choice of a level; 0 .. 3. */
int sbp_space_zero(const struct sbp_space *space, int op, int chosen);

/* Cost of a variable's choice by itself, and the bytes that it takes on a point of the weights. */
static inline double sbp_space_unary_s(const struct sbp_space *space, int variable, int choice)
{
    return space->variable[variable].cost_s[choice];
}
static inline double sbp_space_unary_bytes(const struct sbp_space *space, int variable, int choice,
                                           int point)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    return v->bytes == NULL ? 0
                            : v->bytes[(size_t)point * (size_t)v->choice_count + (size_t)choice];
}
/* What no choice changes (op_groups.c, memory_model.c). */
double sbp_pricing_constant_s(const struct sbp_space *space);
double sbp_pricing_constant_bytes(const struct sbp_space *space, int point);
/* The most that a full choice takes of a device, over all points. */
double sbp_pricing_bytes(const struct sbp_space *space, const int *choice);

/* Axes that change on the way from one distribution to another, as shapes
 * (planner/space/group_prices.h): they leave P, change the dimension they split, end in B. Parts:
 * that the splits at either end make of the tensor. */
struct sbp_way {
    int leave, move, gather;
    bool all_reduced; /* nothing but P -> B changes */
    double from_parts, to_parts;
};
/* The way between labelled distributions. */
struct sbp_way sbp_pricing_way(const struct sbp_space *space, const struct sbp_dist *from,
                               const struct sbp_dist *to);
/* Boxing there and, for the gradient, back, so many times, in normal form
 * (costmodel/layout/boxing.h). */
double sbp_pricing_way_s(const struct sbp_space *space, int tensor, const struct sbp_way *way,
                         double there, double back);
/* What a transfer between two choices costs beside its ends: all-to-alls, and all boxing of tensors
 * that may rest whole. SBP_FORBIDDEN when the path does not exist. */
double sbp_pricing_input_edge_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                                int from_choice, int to_choice);
/* All-to-alls of a transfer over a group of a shape, there and back. */
double sbp_pricing_moves_s(const struct sbp_space *space, const struct sbp_transfer *transfer,
                           int shape);
/* What an output costs on its way into a rest that may be whole; 0 into another. SBP_FORBIDDEN when
 * it cannot rest there. */
double sbp_pricing_output_edge_s(const struct sbp_space *space, const struct sbp_keep *keep,
                                 int op_choice, int rest_choice);
/* Whether an output in a choice of its operator can rest in a choice of the rest variable: splits
 * stay or are gathered, partial sums go anywhere, and nothing else becomes partial. */
bool sbp_pricing_can_rest(const struct sbp_space *space, const struct sbp_keep *keep, int op_choice,
                          int rest_choice);

#endif
