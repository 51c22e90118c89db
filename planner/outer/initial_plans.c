#include "planner/outer/branch_and_bound_priv.h"

#include "base/clock.h"
#include "planner/limits.h"

/* Stages and a micro-batch, and the cost of their initial plan. */
struct sketch {
    int node; /* the first of them */
    double found_s;
};

static double left_s(const struct sbp_branch_and_bound *e)
{
    const double limit_s = SBP_OUTER_INITIAL_TIME * e->request->solver_options.time_limit_s;
    return limit_s > 0 ? limit_s - (sbp_clock_s() - e->start_s) : INFINITY;
}

/* Plans that cost useless_s or more are as good as none. */
static enum sbp_status solve_aligned(struct sbp_branch_and_bound *e, const struct sbp_node *node,
                                     bool batch_alone, double useless_s, struct sbp_outcome *found,
                                     struct sbp_diag *refusal)
{
    struct sbp_solve_request request = sbp_outer_request(e, node);
    struct sbp_path_weights weights;
    if (isfinite(left_s(e)))
        request.asked.solver_options.time_limit_s = fmax(1e-9, SBP_OUTER_SKETCH_TIME * left_s(e));
    request.batch_alone = batch_alone;
    request.deadline_s = 0; /* sooner: by the time limit */
    request.weights = &weights;
    SBP_TRY(sbp_outer_cut(e, &node->parallel, refusal));
    SBP_TRY(sbp_outer_plain_weights(e, &weights, refusal));
    if (isfinite(useless_s) && sbp_inner_is_bounded(&e->cut, &request))
        request.upper_bound_s = request.refuted_s = useless_s;
    return sbp_inner_solve_aligned(&e->cut, &request, &e->solve_arena, found, refusal);
}

/* Makes a candidate's initial plan, whose layers all split the batch alike; *found_s is INFINITY
 * without one. */
static enum sbp_status sketch_node(struct sbp_branch_and_bound *e, const struct sbp_node *node,
                                   bool batch_alone, double useless_s, double *found_s)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_outcome found;
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    const struct sbp_arena_mark plan_mark = sbp_arena_mark(&e->solve_arena);
    const enum sbp_status status = solve_aligned(e, node, batch_alone, useless_s, &found, &refusal);
    *found_s = status == SBP_OK ? found.objective_s : INFINITY;
    if (status == SBP_OK) {
        found.stopped = false; /* its share of the time is up, not the search's */
        sbp_outer_note_outcome(e, &found);
    }
    if (isfinite(*found_s))
        sbp_pool_offer(&e->first, &e->cut, &found.strategy,
                       &(struct sbp_pool_plan){.objective_s = *found_s});
    sbp_arena_release(&e->solve_arena, plan_mark);
    sbp_arena_release(&e->arena, mark);
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED ||
                   sbp_outer_leaves_out(e, status)
               ? SBP_OK
               : sbp_fail(e->diag, status, "%s", refusal.text);
}

static bool same_stages(const struct sbp_parallel *a, const struct sbp_parallel *b)
{
    return a->pipeline == b->pipeline && a->micro_batch == b->micro_batch;
}

/* The candidate with the stages and micro-batch of the first one that runs 1F1B, which keeps few
 * activations; else the first. */
static const struct sbp_node *plainest(const struct sbp_branch_and_bound *e, int first)
{
    for (int i = first;
         i < e->node_count && same_stages(&e->node[i].parallel, &e->node[first].parallel); i++)
        if (e->node[i].parallel.schedule == SBP_ONE_F_ONE_B)
            return &e->node[i];
    return &e->node[first];
}

/* The same that keeps least of its activations, without offload; NULL: there is none. */
static const struct sbp_node *leanest(const struct sbp_branch_and_bound *e, int first)
{
    for (int i = first;
         i < e->node_count && same_stages(&e->node[i].parallel, &e->node[first].parallel); i++) {
        const struct sbp_parallel *const parallel = &e->node[i].parallel;
        if (parallel->schedule == SBP_ONE_F_ONE_B && !parallel->offload &&
            parallel->recompute == SBP_RECOMPUTE_FULL)
            return &e->node[i];
    }
    return NULL;
}

/* Whether a candidate's bound is above what is searched first. */
static bool costs_too_much(const struct sbp_branch_and_bound *e, const struct sbp_node *node)
{
    return sbp_outer_is_refuted(e, node->bound_s) ||
           node->bound_s > SBP_OUTER_PROMISING_RATIO * sbp_pool_goal_s(&e->first);
}

/* Cost from which on an initial plan changes nothing: it is no promising one, nor the best with so
 * many stages. */
static double useless_s(const struct sbp_branch_and_bound *e, double best_s)
{
    const double most_s = e->request->most_s > 0 ? e->request->most_s : INFINITY;
    return fmin(most_s, fmax(best_s, SBP_OUTER_PROMISING_RATIO * sbp_pool_goal_s(&e->first)));
}

/* Makes initial plans for every number of stages, with smaller and smaller micro-batches until
 * several in a row cost more than the best: one alone may be a number that few devices divide. */
static enum sbp_status sketch_all(struct sbp_branch_and_bound *e, bool batch_alone,
                                  struct sketch *sketch, int *count)
{
    const struct sbp_parallel *last = NULL;
    double best_s = INFINITY; /* with so many stages */
    int worse = 0;            /* in a row */
    for (int i = 0; i < e->node_count && !sbp_outer_is_over(e) && left_s(e) > 0; i++) {
        const struct sbp_parallel *const parallel = &e->node[i].parallel;
        const bool goes_on = last != NULL && last->pipeline == parallel->pipeline;
        const double most_s = useless_s(e, goes_on ? best_s : INFINITY);
        if (goes_on &&
            (worse == SBP_OUTER_SKETCH_PATIENCE || last->micro_batch == parallel->micro_batch))
            continue;
        struct sketch *const next = &sketch[(*count)++];
        const struct sbp_node *const node = plainest(e, i);
        *next = (struct sketch){.node = i, .found_s = INFINITY};
        if (!costs_too_much(e, node))
            SBP_TRY(sketch_node(e, node, batch_alone, most_s, &next->found_s));
        const struct sbp_node *const lean = batch_alone ? leanest(e, i) : NULL;
        if (isinf(next->found_s) && lean != NULL && !costs_too_much(e, lean))
            SBP_TRY(sketch_node(e, lean, true, most_s, &next->found_s));
        best_s = goes_on ? best_s : INFINITY;
        worse = next->found_s > best_s ? worse + 1 : 0;
        best_s = fmin(best_s, next->found_s);
        last = parallel;
    }
    return SBP_OK;
}

/* On a large mesh plans by batch alone, which take milliseconds, come first: others may not come in
 * time. */
static enum sbp_status sketch_twice(struct sbp_branch_and_bound *e, struct sketch *sketch,
                                    int *count)
{
    if (e->given->cut.mesh.axis_count > SBP_OUTER_SMALL_AXES)
        SBP_TRY(sketch_all(e, true, sketch, count));
    return sketch_all(e, false, sketch, count);
}

/* Opens the bases with the stages and micro-batch of the first. */
static enum sbp_status open_bases(struct sbp_branch_and_bound *e, int first)
{
    for (int i = first;
         i < e->node_count && same_stages(&e->node[i].parallel, &e->node[first].parallel); i++)
        if (e->node[i].is_base)
            SBP_TRY(sbp_outer_push(e, i));
    return SBP_OK;
}

enum sbp_status sbp_outer_rank_first(struct sbp_branch_and_bound *e)
{
    struct sbp_pool_plan unused;
    if (e->first.count == 0)
        return SBP_OK;
    SBP_TRY(sbp_outer_cut(e, &e->first.plan[0].parallel, e->diag));
    return sbp_outer_rank(e, &e->first, NULL, &unused);
}

enum sbp_status sbp_outer_open_promising(struct sbp_branch_and_bound *e)
{
    int count = 0;
    struct sketch *const sketch = SBP_NEW(&e->arena, struct sketch, 2 * (int64_t)e->node_count);
    if (sketch == NULL)
        return SBP_E_MEMORY;
    if (sbp_outer_proves(e) && sbp_space_rule(e->request->space)->mesh == SBP_MESH_FREE)
        SBP_TRY(sketch_twice(e, sketch, &count));
    if (e->pool->most > 1) /* the order of parts is by bounds alone */
        return SBP_OK;
    const double promising_s = SBP_OUTER_PROMISING_RATIO * sbp_pool_goal_s(&e->first);
    for (int i = 0; i < count; i++)
        if (isfinite(sketch[i].found_s) && sketch[i].found_s <= promising_s)
            SBP_TRY(open_bases(e, sketch[i].node));
    return sbp_outer_rank_first(e);
}
