/* The search: a model and a cluster in, the cheapest labelled strategy out.
 *
 * space (which strategies) -> pairwise problem -> solver -> labels -> exact price of the compiled
 * program. A plan is `optimal` only if its labelled price equals the bound of the unlabelled
 * search.
 */
#ifndef SBP_PLANNER_OPTIMISE_H
#define SBP_PLANNER_OPTIMISE_H

#include "planner/plan.h"
#include "planner/solver.h"

#define SBP_SPACE_MAP(X)                                                                           \
    X(FULL, "full", "every role of every operator: batch, sequence, column, row, head, vocab")     \
    X(AUTODDL, "autoddl", "AutoDDL's (p0, p1, p2) a layer: batch, column, row; outputs split")     \
    X(DATA_PARALLEL, "data-parallel", "batch splits alone")                                        \
    X(MEGATRON, "megatron", "one tensor x data mesh: column-split, then row-split layers")

enum sbp_space_kind {
#define SBP_SPACE_ENUM(name, text, summary) SBP_SPACE_##name,
    SBP_SPACE_MAP(SBP_SPACE_ENUM)
#undef SBP_SPACE_ENUM
        SBP_SPACES
};
const char *sbp_space_name(enum sbp_space_kind kind);
const char *sbp_space_summary(enum sbp_space_kind kind);
const char *const *sbp_space_names(void); /* NULL-terminated, in the order of the enum */

enum sbp_objective { SBP_STEP_TIME, SBP_COMMUNICATION };

/* A layer's strategy given by hand: how many ways each role splits it at each level, outermost
 * first; the product of a level's factors is the level's size. Roles by their catalogue names. */
#define SBP_ANY (-1)
struct sbp_fix {
    char layer[64];
    int64_t factor[SBP_MAX_ROLES][SBP_MAX_LEVELS]; /* by role index of the operator; SBP_ANY */
};

struct sbp_request {
    enum sbp_space_kind space;       /* default full */
    const struct sbp_solver *solver; /* NULL: exact, or coordinate-descent where exact refuses */
    enum sbp_objective objective;    /* default step time */
    enum sbp_boxing_mode boxing;     /* default full */
    int64_t max_batch_split;         /* bound on p0, total over levels; 0: none */
    int64_t memory_limit_bytes;      /* 0: the cluster's device memory */
    int fix_count;
    const struct sbp_fix *fix; /* (fix_count) */
    struct sbp_solver_options solver_options;
};

struct sbp_outcome {
    enum sbp_plan_status status;
    double objective_s;   /* of the plan found, INFINITY without one */
    double lower_bound_s; /* of the objective over the space; -INFINITY: none */
    int64_t evaluations;
    double wall_s;
    bool stopped;
    int64_t needed_bytes;    /* no plan: least memory per device that a strategy was seen to need */
    const char *algorithm;   /* the solver that answered */
    double space_size_log10; /* of the number of unlabelled strategies */
    int curve_count;
    struct sbp_curve_point curve[SBP_CURVE_POINTS];
};

/* Fills plan->strategy (plan->graph, cluster and mesh are set by sbp_plan_begin). Infeasible and
 * stopped are answers: SBP_OK with outcome->status; then plan->strategy is unusable. E_INPUT: the
 * space holds no legal strategy because sizes do not divide (named), or a fix is wrong;
 * E_UNSUPPORTED: the solver refuses the problem. */
enum sbp_status sbp_optimise(struct sbp_plan *plan, const struct sbp_request *request,
                             struct sbp_outcome *outcome, struct sbp_diag *diag) SBP_MUST_USE;

/* Builds the pairwise problem alone, split states folded away (for `solve`, benchmarks, tests). */
enum sbp_status sbp_optimise_problem(const struct sbp_plan *plan, const struct sbp_request *request,
                                     struct sbp_problem *problem,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
