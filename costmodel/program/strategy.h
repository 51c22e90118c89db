/* A labelled strategy: the role of every axis in every operator, and where outputs rest.
 *
 * "Labelled" means that axes are named; searches work on unlabelled counts (planner/space/space.h).
 * Between two operators every activation rests in a state for each axis. A split output rests in
 * that split or, gathered, whole. Partial sums rest in any split (reduce-scattered, as AutoDDL has
 * them all, section 4.2), whole (all-reduced, as Megatron without sequence parallelism) or partial
 * (OneFlow, section 3.3). A whole output rests whole or sliced. A consumer that needs another state
 * boxes the activation. The gradient rests in the dual state.
 *
 * A level mirrors (M) as a whole: either all of its devices repeat an operator's work and hold its
 * whole gradients, or none do.
 */
#ifndef SBP_COSTMODEL_PROGRAM_STRATEGY_H
#define SBP_COSTMODEL_PROGRAM_STRATEGY_H

#include "costmodel/model/graph.h"
#include "costmodel/model/op_cost.h"

/* How boxing goes from one distribution to another. */
#define SBP_BOXING_MAP(X)                                                                          \
    X(FULL, "full")   /* the normal form (costmodel/layout/boxing.h) */                            \
    X(PAPER, "paper") /* the three cases of AutoDDL, section 4.3 */                                \
    X(PATH, "path") /* the cheapest list by the cluster's prices (costmodel/layout/boxing_path.h)  \
                     */

#define SBP_BOXING_ENUM(name, text) SBP_BOXING_##name,
enum sbp_boxing_mode { SBP_BOXING_MAP(SBP_BOXING_ENUM) };
#undef SBP_BOXING_ENUM
const char *sbp_strategy_boxing_name(enum sbp_boxing_mode mode);
const char *const *sbp_strategy_boxing_names(void); /* NULL-terminated, in the order of the enum */

struct sbp_labels {
    uint8_t role[SBP_MAX_AXES]; /* index into the operator's roles */
};

#define SBP_ZERO_DEFAULT 255 /* the level of struct sbp_parallel */

struct sbp_strategy {
    enum sbp_boxing_mode boxing;
    struct sbp_labels *op; /* (op_count); followers' entries are ignored */
    struct sbp_dist *rest; /* (tensor_count) where each activation rests */
    sbp_axes *split;       /* (class_count) axes that split a class anywhere: the digits */
    uint8_t *zero;         /* (op_count) ZeRO level of its weights, 0 .. 3 or SBP_ZERO_DEFAULT */
};

/* Boxing `full`, every axis in an operator's first role, rest states still to be given. */
enum sbp_status sbp_strategy_alloc(const struct sbp_graph *graph, struct sbp_arena *arena,
                                   struct sbp_strategy *strategy) SBP_MUST_USE;

/* Copies `from` into arrays that sbp_strategy_alloc made for the same graph. */
void sbp_strategy_copy(const struct sbp_graph *graph, const struct sbp_strategy *from,
                       struct sbp_strategy *to);

/* The role that an operator plays on an axis, -1 where it has none (a follower whose input rests in
 * a state that it cannot run in). */
int sbp_strategy_role(const struct sbp_graph *graph, const struct sbp_strategy *strategy, int op,
                      int axis);
/* The axes on which it plays one of some roles; bit r: role r. */
sbp_axes sbp_strategy_axes(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                           const struct sbp_strategy *strategy, int op, unsigned roles);
/* Distributions of an operator's operands; a follower's are its input's rest state. */
struct sbp_dist sbp_strategy_input(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   const struct sbp_strategy *strategy, int op, int input);
struct sbp_dist sbp_strategy_weight(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op, int weight);
struct sbp_dist sbp_strategy_gradient(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                      const struct sbp_strategy *strategy, int op, int weight);
struct sbp_dist sbp_strategy_output(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op);

/* How many ways each role splits an operator: the product of the sizes of its axes. */
struct sbp_factor sbp_strategy_factor(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                      const struct sbp_strategy *strategy, int op);

/* Under boxing=paper an input that changes both its batch and its feature split passes through a
 * state that is split on every axis, features where it then becomes B (AutoDDL, section 4.3):
 * writes that state and returns true. False: the way from the rest state is direct, as it is from
 * one that is not all splits, which the paper does not know. */
bool sbp_strategy_waypoint(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                           const struct sbp_strategy *strategy, int op, int input,
                           struct sbp_dist *waypoint);

/* Counts the axes of an operator that separate operands which must lie together. `split`
 * (class_count): axes that split each class anywhere in the plan; role: of each axis. Heads of keys
 * must lie with the heads of queries that read them: an axis that splits both must have the same
 * digit in both, so that axes of role `query` come after those of role `head` (DESIGN.md, section
 * 4). Rows of an image must lie one behind the other, for halos to be the neighbours': axes that
 * split its height come before all others that do so elsewhere. */
int sbp_strategy_misplaced(const struct sbp_graph *graph, const struct sbp_mesh *mesh, int op,
                           const uint8_t role[SBP_MAX_AXES], const sbp_axes *split);

/* Whether an operator reads a tensor. */
bool sbp_strategy_is_read(const struct sbp_graph *graph, int tensor);

/* Fills strategy->split from roles and rest states and checks legality: roles exist, rests are
 * states that the output and its gradient can be boxed to (see above; a model's split input rests
 * in splits alone, and what nobody reads in no partial sums), levels are mirrored as a whole, tied
 * weights and their gradients agree, the product of
 * all axes that split a class anywhere divides it, and no axis is misplaced. E_INPUT names the
 * operator or class and what would be legal; E_MEMORY. */
enum sbp_status sbp_strategy_close(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                   struct sbp_strategy *strategy,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
