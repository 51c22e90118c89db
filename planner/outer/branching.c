#include "planner/limits.h"
#include "planner/outer/branch_and_bound_priv.h"

#include <string.h>

static enum sbp_status add_node(struct sbp_branch_and_bound *e, const struct sbp_node *node)
{
    if (e->node_count == e->node_room) {
        const int room = 2 * e->node_room + 64;
        struct sbp_node *nodes = SBP_NEW(&e->arena, struct sbp_node, room);
        if (nodes == NULL)
            return SBP_E_MEMORY;
        memcpy(nodes, e->node, (size_t)e->node_count * sizeof *nodes);
        e->node = nodes;
        e->node_room = room;
    }
    e->node[e->node_count] = *node;
    return sbp_outer_push(e, e->node_count++);
}

/* Whether a candidate may be divided: a few divisions for each plan asked for are enough where all
 * bounds are met; more are made while they are cheap. */
static bool may_cut(const struct sbp_branch_and_bound *e)
{
    return e->cuts < 2 * e->pool->most + SBP_OUTER_SPARE_DIVISIONS ||
           (e->work < SBP_OUTER_DIVISION_OPERATORS &&
            e->out->evaluations - e->first_cut_at < SBP_OUTER_DIVISION_EVALUATIONS);
}

/* Whether a part splits every layer in one way only. */
static bool has_one(const struct sbp_subspace *part)
{
    return part != NULL && part->at == part->plan->count;
}

/* Closes a candidate without a proof: its bound stays open. */
static void leave_open(struct sbp_branch_and_bound *e, double bound_s)
{
    if (!sbp_outer_is_refuted(e, bound_s))
        e->open_s = fmin(e->open_s, bound_s);
}

/* Divides a solved candidate into the parts that do not split every layer as its plan does and,
 * unless the plan is proved the cheapest that does, the part that does. */
static enum sbp_status cut_node(struct sbp_branch_and_bound *e, const struct sbp_node *solved,
                                const struct sbp_splits *split, bool is_proved)
{
    struct sbp_subspace *part = SBP_NEW(&e->arena, struct sbp_subspace, split->count + 1);
    if (part == NULL)
        return SBP_E_MEMORY;
    int count = sbp_subspace_cut(solved->part, split, &e->arena, part);
    if (count < 0)
        return SBP_E_MEMORY;
    if (!is_proved)
        part[count++] = (struct sbp_subspace){.plan = split, .at = split->count};
    if (e->cuts++ == 0)
        e->first_cut_at = e->out->evaluations;
    for (int i = 0; i < count; i++) {
        const struct sbp_node node = {
            .parallel = solved->parallel, .part = &part[i], .bound_s = solved->bound_s, .base = -1};
        SBP_TRY(add_node(e, &node));
    }
    return SBP_OK;
}

/* Describes a strategy of e->cut, which is of a part, by what tells plans apart: splits, step and
 * memory. */
static enum sbp_status describe(struct sbp_branch_and_bound *e, const struct sbp_subspace *part,
                                const struct sbp_strategy *strategy, struct sbp_pool_plan *ranked)
{
    struct sbp_step step;
    ranked->split = has_one(part) ? part->plan : sbp_subspace_splits(&e->cut, strategy, &e->arena);
    if (ranked->split == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_cut_step(&e->cut, strategy, false, &step, e->diag));
    ranked->step_s = step.totals.step_s;
    ranked->device_bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    return SBP_OK;
}

enum sbp_status sbp_outer_rank(struct sbp_branch_and_bound *e, struct sbp_pool *found,
                               const struct sbp_subspace *part, struct sbp_pool_plan *ranked)
{
    *ranked = (struct sbp_pool_plan){.objective_s = sbp_pool_goal_s(found)};
    if (found->count == 0)
        return SBP_OK;
    found->count = 0;
    const struct sbp_strategy *strategy = &found->plan[0].strategy;
    if (e->pool->most > 1)
        SBP_TRY(describe(e, part, strategy, ranked));
    sbp_pool_offer(e->pool, &e->cut, strategy, ranked);
    return SBP_OK;
}

enum sbp_status sbp_outer_close(struct sbp_branch_and_bound *e, int index)
{
    const struct sbp_node node = e->node[index];
    struct sbp_pool_plan best;
    SBP_TRY(sbp_outer_rank(e, &e->found, node.part, &best));
    const bool is_proved =
        isfinite(best.objective_s) && node.bound_s >= best.objective_s * (1 - SBP_INNER_ROUND_OFF);
    if (best.split != NULL && !has_one(node.part) && !sbp_outer_is_refuted(e, node.bound_s) &&
        may_cut(e))
        return cut_node(e, &node, best.split, is_proved);
    if (node.mixture != NULL)
        return sbp_outer_push(e, index);
    if (!(has_one(node.part) && is_proved))
        leave_open(e, node.bound_s);
    return SBP_OK;
}
