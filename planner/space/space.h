/* The strategy space: how every operator of a graph may be split over a mesh, and what that costs.
 *
 * A space is a list of variables. A variable is an operator that chooses its split, or a rest: the
 * distribution in which an output waits between its producer and its readers. Everything else
 * follows one of these. A variable's domain is a list of tuples, which say for each family of
 * interchangeable axes (same level, same prime) how many of them play each role; a choice is a
 * tuple together with a ZeRO level for the weights. Tuples do not name axes: the cost between two
 * variables is the least over all ways to line their axes up (DESIGN.md, section 4, "Labels").
 *
 * Costs are sums weighted by a path through the step (planner/paths/path_weights.h). With several
 * stages, or where less communication hides than may, the sum is a lower bound of the step.
 */
#ifndef SBP_PLANNER_SPACE_SPACE_H
#define SBP_PLANNER_SPACE_SPACE_H

#include "costmodel/program/cut.h"
#include "costmodel/program/price.h"
#include "planner/paths/path_weights.h"
#include "planner/problem/problem.h"
#include "planner/space/solve_request.h"

/* ---- lists by variable ---------------------------------------------------------------------- */

/* Items by key in the order in which they were added: for (int i = list.first[key]; i >= 0;
 * i = list.next[i]). Building a space so takes time in proportion to the model's length. */
struct sbp_list {
    int *first, *last; /* (keys) -1: none */
    int *next;         /* (items) -1: the last */
};
/* An empty list; its arrays come out of the arena. E_MEMORY. */
enum sbp_status sbp_space_list_init(struct sbp_list *list, int keys, int items,
                                    struct sbp_arena *arena) SBP_MUST_USE;
void sbp_space_list_add(struct sbp_list *list, int key, int item);

/* The parts of a space by variable. */
struct sbp_space_links {
    struct sbp_list ops;       /* operators that it decides, without followers */
    struct sbp_list followers; /* operators that run where their first input rests, by its slot */
    struct sbp_list tensors;   /* by slot */
    struct sbp_list output_edges; /* by rest variable */
    struct sbp_list readers;      /* input edges that begin there */
    struct sbp_list inputs;       /* input edges that end there */
};

/* ---- variables and edges -------------------------------------------------------------------- */

/* How a rest state was reached under boxing=paper (AutoDDL, section 4.3): partial sums became the
 * features' split (the general case and p0 = p0') or the batch's (p1 = p2'). */
enum sbp_rest_tag { SBP_REST_ANY, SBP_REST_FEATURE, SBP_REST_BATCH };

struct sbp_space_variable {
    int op;     /* the operator's site; -1: a rest */
    int tensor; /* the rest's tensor (of the site), else -1 */
    int role_count;
    struct sbp_state state[SBP_MAX_ROLES]; /* of the output under each role; of a rest itself */
    unsigned allowed;                      /* bit r: a choice may play role r */
    bool rests_whole; /* it may rest B, P or M: boxing then depends on both ends of an edge and is
                         priced with the edge, not with the operators */
    int tuple_count;
    uint8_t *count; /* (tuple, family, role) axes */
    uint8_t *tag;   /* (tuple) enum sbp_rest_tag */
    int choice_count;
    int *tuple; /* (choice) */
    uint8_t
        *zero; /* (choice) ZeRO level of its operators' weights, where nothing else decides it */
    double *cost_s; /* (choice) */
    double *bytes;  /* (memory stages, choice) on a device of that stage; NULL: none */
};

/* The way of a tensor from where it rests into an operator's input. */
struct sbp_input_edge {
    int from, to; /* variables */
    int op, input, tensor;
    double there, back; /* times on the path: forwards, and its gradient backwards; repeats of the
                           operator are added up */
};

/* The way of an operator's output into its rest. */
struct sbp_output_edge {
    int op_variable, rest_variable, op;
    double there, back; /* as above */
    double again;       /* times on the path that a rest is gathered once more (regather) */
};

/* How far any one variable may split a dimension class. */
#define SBP_ANY_AXES 255
struct sbp_class_limit {
    int64_t parts;              /* at most */
    uint8_t axes[SBP_MAX_AXES]; /* (family) axes that split it at most; SBP_ANY_AXES: any number */
};
/* parts: the class's size. */
struct sbp_class_limit sbp_space_class_unlimited(int64_t parts);

struct sbp_group_prices; /* planner/space/group_prices.h */
struct sbp_op_groups;    /* planner/pricing/pricing.h */
struct sbp_price_cache;  /* planner/pricing/price_cache.h */
struct sbp_cache_entry;

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
    bool is_open;        /* operators play all roles, and tensors rest in all states, that plans may
                            state (sbp_space_opens) */
    bool moves_grow;     /* an all-to-all over more axes never costs less */
    double hidden_share; /* of the gradients' synchronisation, at most; 0 .. 1 */
    double least_s;  /* set where the request has a refuted_s, up to it: no strategy costs less */
    bool is_plain;   /* the mesh has too many tuples: domains hold plain ones alone, and nothing
                        that is worked out of them bounds the others */
    bool is_refuted; /* least_s reaches refuted_s: the variables have no choices */
    int variable_count, input_edge_count, output_edge_count;
    struct sbp_space_variable *variable;
    struct sbp_input_edge *input_edge;
    struct sbp_output_edge *output_edge;
    int *op_variable;                  /* (op_count) -1: a follower */
    uint8_t (*op_role)[SBP_MAX_ROLES]; /* (op_count) variable's role -> operator's role */
    int *slot;                         /* (tensor_count) variable that says where it rests; -1 */
    bool *goes_on;     /* (op_count) a site may go on with partial sums (resting_layouts.c) */
    bool *rests_apart; /* (op_count) a follower's output has a rest of its own, which its sites
                          share */
    uint8_t *rests;    /* (tensor_count) a site's output may rest B, P (bit SBP_REST_WHOLE, ...) */
    struct sbp_space_links links;
    struct sbp_class_limit *class_limit; /* (class_count) */
    struct sbp_group_prices *shapes;
    struct sbp_op_groups *groups;
    struct sbp_price_cache *cache; /* NULL: none */
    struct sbp_cache_entry *cache_entry;
};

/* ---- making a space ------------------------------------------------------------------------- */

/* A mesh for the `megatron` space: how many axes of each family go to data parallelism. */
struct sbp_megatron_mesh {
    int batch[SBP_MAX_AXES];
};
/* Data parallelism across the outermost level, tensor parallelism inside (AutoDDL, section 5, on
 * several devices a node). E_INPUT where the cluster has one level. */
enum sbp_status sbp_megatron_node_mesh(const struct sbp_cut *cut,
                                       struct sbp_megatron_mesh *megatron,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Enumerates and prices all domains. class_limit: (class_count), NULL for none; megatron: for that
 * space alone. The cut and the request must outlive the space; on failure nothing needs freeing.
 * E_INPUT where a domain is empty, naming the layer and its sizes; E_USAGE, E_MEMORY, SBP_STOPPED.
 */
enum sbp_status sbp_space_make(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                               const struct sbp_class_limit *class_limit,
                               const struct sbp_megatron_mesh *megatron, struct sbp_space *space,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_space_free(struct sbp_space *space);

/* The pairwise problem of a space, with its variables in the same order; the caller frees it.
 * E_MEMORY, E_UNSUPPORTED, SBP_STOPPED. */
enum sbp_status sbp_pricing_problem(const struct sbp_space *space, double capacity_bytes,
                                    struct sbp_problem *problem,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* Whether the user or the deadline asks to stop; building then ends with SBP_STOPPED. */
static inline bool sbp_space_interrupted(const struct sbp_space *space)
{
    return sbp_solve_is_interrupted(space->request);
}

/* ---- reading a space ------------------------------------------------------------------------ */

/* Axes of a family by role, (SBP_MAX_ROLES), in a tuple; in a choice. */
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

/* How an operator leaves its output under a role of the variable that decides how it runs (a tied
 * head plays the embedding's roles transposed). */
struct sbp_state sbp_space_output_state(const struct sbp_space *space, int op, int role);

/* Roles of grouped attention that split the heads of queries, keys and values, and of queries
 * alone; false for other operators. Head axes stand outside of query axes (DESIGN.md, section 4).
 */
bool sbp_space_query_roles(const struct sbp_op_node *node, int *head, int *query);

/* The variable that decides how an operator runs: its own, or where its first input rests; -1:
 * none. */
static inline int sbp_space_decider(const struct sbp_space *space, int op)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    return node->entry->follows ? space->slot[node->input[0]] : space->op_variable[op];
}

/* ZeRO level of an operator's weights, 0 .. 3, where its variable chose a level. */
int sbp_space_zero(const struct sbp_space *space, int op, int chosen);

/* Bytes that a variable's choice takes in a memory stage. */
static inline double sbp_space_unary_bytes(const struct sbp_space *space, int variable, int choice,
                                           int stage)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    return v->bytes == NULL ? 0
                            : v->bytes[(size_t)stage * (size_t)v->choice_count + (size_t)choice];
}
/* Costs and bytes that no choice changes (op_groups.c, memory_model.c). */
double sbp_pricing_constant_s(const struct sbp_space *space);
double sbp_pricing_constant_bytes(const struct sbp_space *space, int stage);
/* Bytes that a full choice takes of the fullest memory stage's devices. */
double sbp_pricing_bytes(const struct sbp_space *space, const int *choice);

/* ---- costs of edges ------------------------------------------------------------------------- */

/* The axes that change on the way from one distribution to another, as shapes
 * (planner/space/group_prices.h): those that leave P, those that change the dimension they split,
 * those that end in B. */
struct sbp_leg {
    int leave, move, gather;
    bool all_reduced; /* nothing but P -> B changes */
    double parts;     /* into which the splits where it begins cut the tensor */
};
/* The way of a tensor between two distributions, and that of its gradient between their duals. */
struct sbp_way {
    struct sbp_leg there, back;
    bool leaves_sums; /* some axis begins as P */
};
/* The way between labelled distributions. */
struct sbp_way sbp_pricing_way(const struct sbp_space *space, const struct sbp_dist *from,
                               const struct sbp_dist *to);
/* Boxing so many times there and, for the gradient, back, in normal form
 * (costmodel/layout/boxing.h). */
double sbp_pricing_way_s(const struct sbp_space *space, int tensor, const struct sbp_way *way,
                         double there, double back);
/* Gathering the axes that end in B so many times more, of a tensor that waits as it was produced
 * (costmodel/program/regather.h). */
double sbp_pricing_gather_again_s(const struct sbp_space *space, int tensor,
                                  const struct sbp_way *way, double again);
/* Cost of an input edge between two choices, without what its ends cost by themselves: all-to-alls,
 * and all boxing of tensors that may rest whole. SBP_FORBIDDEN where there is no way. */
double sbp_pricing_input_edge_s(const struct sbp_space *space, const struct sbp_input_edge *edge,
                                int from_choice, int to_choice);
/* All-to-alls of an input edge over a group of a shape, there and back. */
double sbp_pricing_moves_s(const struct sbp_space *space, const struct sbp_input_edge *edge,
                           int shape);
/* Cost of an output's way into a rest that may be whole; 0 into another. SBP_FORBIDDEN where it
 * cannot rest there. */
double sbp_pricing_output_edge_s(const struct sbp_space *space, const struct sbp_output_edge *edge,
                                 int op_choice, int rest_choice);
/* Whether an output can rest so: splits stay or are gathered, partial sums may become anything, and
 * nothing else becomes partial. */
bool sbp_pricing_can_rest(const struct sbp_space *space, const struct sbp_output_edge *edge,
                          int op_choice, int rest_choice);

#endif
