/* What a search is asked for: the space of strategies, the objective, bounds and wishes.
 */
#ifndef SBP_PLANNER_PLAN_REQUEST_H
#define SBP_PLANNER_PLAN_REQUEST_H

#include "base/clock.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/model/op.h"
#include "costmodel/program/strategy.h"
#include "planner/problem/solver.h"

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
const char *sbp_space_summary(enum sbp_space_kind kind); /* planner/space/space_table.c */
const char *const *sbp_request_space_names(void); /* NULL-terminated, in the order of the enum */

enum sbp_objective { SBP_STEP_TIME, SBP_COMMUNICATION };

/* A layer's strategy given by hand: how many ways each role splits it at each level, outermost
 * first; the product of a level's factors is the level's size. Roles by their catalogue names. */
#define SBP_ANY         (-1)
#define SBP_REST_STATES 5 /* S0, S1, S2, B, P */
struct sbp_fix {
    char layer[64];
    int64_t factor[SBP_MAX_ROLES][SBP_MAX_LEVELS]; /* by role index of the operator; SBP_ANY */
    bool rests; /* where the output rests is given as well: ways that each state takes */
    int64_t rest[SBP_REST_STATES][SBP_MAX_LEVELS];
    int zero; /* ZeRO level of its weights; SBP_ANY: the plan's */
};

struct sbp_request {
    enum sbp_space_kind space;       /* default full */
    const struct sbp_solver *solver; /* NULL: exact, or coordinate-descent where exact refuses */
    enum sbp_objective objective;    /* default step time */
    enum sbp_boxing_mode boxing;     /* default full */
    int64_t max_batch_split;         /* bound on p0, total over levels; 0: none */
    int64_t memory_limit_bytes;      /* 0: the cluster's device memory */
    unsigned given; /* keys of sbp_parallel_keys, bit by place, that the plan's parallel keeps */
    bool runnable;  /* only plans that the executor runs: nothing around the strategy */
    int fix_count;
    const struct sbp_fix *fix; /* (fix_count) */
    struct sbp_solver_options solver_options;
};

/* Whether the user gave a key of --set; key: one of sbp_parallel_keys. */
bool sbp_request_gives(const struct sbp_request *request, const char *key);

/* What a device may hold. */
static inline int64_t sbp_request_limit_bytes(const struct sbp_request *request,
                                              const struct sbp_cluster *cluster)
{
    return request->memory_limit_bytes > 0 ? request->memory_limit_bytes : cluster->memory_bytes;
}

#endif
