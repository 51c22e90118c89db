/* The request of a search, as the user states it: the space of strategies, the objective, limits,
 * and what is fixed beforehand. How one solve then goes is planner/space/solve_request.h.
 */
#ifndef SBP_PLANNER_PLAN_REQUEST_H
#define SBP_PLANNER_PLAN_REQUEST_H

#include "base/arena.h"
#include "base/clock.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/model/op.h"
#include "costmodel/program/strategy.h"
#include "planner/solvers/solver.h"

#define SBP_SPACE_MAP(X)                                                                           \
    X(FULL, "full")                                                                                \
    X(AUTODDL, "autoddl")                                                                          \
    X(DATA_PARALLEL, "data-parallel")                                                              \
    X(ZERO, "zero")                                                                                \
    X(ZERO_1, "zero-1")                                                                            \
    X(ZERO_2, "zero-2")                                                                            \
    X(ZERO_3, "zero-3")                                                                            \
    X(MEGATRON, "megatron")                                                                        \
    X(MEGATRON_NODE, "megatron-node")                                                              \
    X(MEGATRON_3D, "megatron-3d")                                                                  \
    X(GSHARD, "gshard")                                                                            \
    X(SUMMA, "summa")                                                                              \
    X(MYELIN, "myelin")                                                                            \
    X(CDP, "cdp")

enum sbp_space_kind {
#define SBP_SPACE_ENUM(name, text) SBP_SPACE_##name,
    SBP_SPACE_MAP(SBP_SPACE_ENUM)
#undef SBP_SPACE_ENUM
        SBP_SPACES
};
const char *sbp_request_space_name(enum sbp_space_kind kind);
const char *const *sbp_request_space_names(void); /* NULL-terminated, in the order of the enum */

enum sbp_objective { SBP_STEP_TIME, SBP_COMMUNICATION };

/* A layer's strategy given by hand: how many ways each role splits the layer at each level,
 * outermost first. The factors of a level multiply to the level's size. */
#define SBP_ANY         (-1)
#define SBP_REST_STATES 6 /* states of an output: S0, S1, S2, B, P, M */
struct sbp_fix {
    char layer[64];
    int64_t factor[SBP_MAX_ROLES][SBP_MAX_LEVELS]; /* by the operator's role index; or SBP_ANY */
    bool rests;                                    /* `rest` is given as well */
    int64_t rest[SBP_REST_STATES][SBP_MAX_LEVELS]; /* ways that each state splits the output */
    int zero; /* ZeRO level of its weights; SBP_ANY: the plan's */
};

struct sbp_request {
    enum sbp_space_kind space;       /* default full */
    const struct sbp_solver *solver; /* NULL: exact, or coordinate-descent where exact refuses */
    enum sbp_objective objective;    /* default step time */
    enum sbp_boxing_mode boxing;     /* default full */
    int64_t max_batch_split;         /* most ways to split the batch, over all levels; 0: any */
    double most_s;                   /* only plans that cost less are looked for; 0: any */
    int64_t memory_limit_bytes;      /* 0: the cluster's device memory */
    unsigned given; /* a bit for each key of sbp_parallel_keys that the user fixed */
    unsigned zero_levels, recomputes; /* a bit for each that may be taken; 0: any */
    bool runnable;                    /* only plans that the executor can run */
    bool quick;      /* of space full, the first pass alone (planner/space/solve_request.h) */
    bool plan_alone; /* where it is proved that no plan fits, nobody asks which memory would do */
    bool is_fixed;   /* fixes say how every layer is split: no plan is sought beforehand */
    int64_t
        replicas; /* of such fixes: micro-batches are shared out evenly over them; 0: not given */
    int fix_count;
    const struct sbp_fix *fix; /* (fix_count) */
    struct sbp_solver_options solver_options;
    struct sbp_arena_budget *search_memory; /* what the search itself may hold; NULL: any amount */
};

/* The bit of a key in `given`; 0: no key of the step. */
unsigned sbp_request_bit(const char *key);
/* Whether the user gave a key of --set; key: one of sbp_parallel_keys. */
bool sbp_request_gives(const struct sbp_request *request, const char *key);

/* Bytes that a device may hold. */
static inline int64_t sbp_request_limit_bytes(const struct sbp_request *request,
                                              const struct sbp_cluster *cluster)
{
    return request->memory_limit_bytes > 0 ? request->memory_limit_bytes : cluster->memory_bytes;
}

#endif
