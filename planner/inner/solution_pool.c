#include "planner/inner/solution_pool.h"
#include "planner/limits.h"

#include <math.h>

enum sbp_status sbp_pool_init(struct sbp_pool *pool, const struct sbp_graph *graph,
                              struct sbp_arena *arena, int most)
{
    *pool = (struct sbp_pool){.most = most,
                              .plan = SBP_NEW(arena, struct sbp_pool_plan, most),
                              .rest_s = -INFINITY,
                              .left_s = INFINITY};
    if (pool->plan == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < most; i++)
        SBP_TRY(sbp_strategy_alloc(graph, arena, &pool->plan[i].strategy));
    return SBP_OK;
}

double sbp_pool_goal_s(const struct sbp_pool *pool)
{
    return pool->count > 0 && pool->count == pool->most ? pool->plan[pool->most - 1].objective_s
                                                        : INFINITY;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) <= SBP_INNER_ROUND_OFF * fmax(a, b);
}

/* Whether two plans are the same, found twice or cut in ways that make no difference. */
static bool is_same_plan(const struct sbp_pool_plan *a, const struct sbp_pool_plan *b)
{
    if (a->split == NULL || b->split == NULL)
        return false;
    const bool same_step = is_close(a->step_s, b->step_s) && a->device_bytes == b->device_bytes &&
                           a->parallel.pipeline == b->parallel.pipeline &&
                           a->parallel.micro_batch == b->parallel.micro_batch;
    return a->split == b->split || ((same_step || sbp_parallel_equal(&a->parallel, &b->parallel)) &&
                                    sbp_subspace_splits_equal(a->split, b->split));
}

/* Takes a plan off the list and keeps its strategy's arrays behind the last. */
static void remove_at(struct sbp_pool *pool, int at)
{
    const struct sbp_pool_plan removed = pool->plan[at];
    pool->count--;
    for (int i = at; i < pool->count; i++)
        pool->plan[i] = pool->plan[i + 1];
    pool->plan[pool->count] = removed;
}

/* Removes the same plan where it costs more. Returns whether the same plan is listed at no higher
 * cost. */
static bool is_listed(struct sbp_pool *pool, const struct sbp_pool_plan *offered)
{
    bool listed = false;
    for (int i = pool->count - 1; i >= 0; i--) {
        if (!is_same_plan(&pool->plan[i], offered))
            continue;
        if (pool->plan[i].objective_s <= offered->objective_s)
            listed = true;
        else
            remove_at(pool, i);
    }
    return listed;
}

void sbp_pool_offer(struct sbp_pool *pool, const struct sbp_cut *cut,
                    const struct sbp_strategy *strategy, const struct sbp_pool_plan *offered)
{
    struct sbp_pool_plan taken = *offered;
    taken.parallel = cut->parallel;
    if (is_listed(pool, &taken))
        return;
    if (pool->count == pool->most) {
        const double last_s = pool->plan[pool->most - 1].objective_s;
        pool->left_s = fmin(pool->left_s, fmax(last_s, taken.objective_s));
        if (taken.objective_s >= last_s)
            return;
        pool->count--;
    }
    int at = pool->count++;
    taken.strategy = pool->plan[at].strategy;
    sbp_strategy_copy(&cut->graph, strategy, &taken.strategy);
    for (; at > 0 && pool->plan[at - 1].objective_s > taken.objective_s; at--)
        pool->plan[at] = pool->plan[at - 1];
    pool->plan[at] = taken;
}

void sbp_pool_close(struct sbp_pool *pool, double open_s)
{
    open_s = fmin(open_s, pool->left_s);
    pool->proved = 0;
    while (pool->proved < pool->count &&
           pool->plan[pool->proved].objective_s * (1 - SBP_INNER_ROUND_OFF) <= open_s)
        pool->proved++;
    pool->rest_s = fmin(open_s, sbp_pool_goal_s(pool));
}
