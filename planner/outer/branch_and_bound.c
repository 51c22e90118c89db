#include "planner/outer/branch_and_bound.h"

#include <limits.h>

#include "base/clock.h"
#include "planner/limits.h"
#include "planner/outer/branch_and_bound_priv.h"
#include "planner/outer/step_cuts.h"

/* Expected cost of a candidate's plan over its bound: dives go where that cost is least. */
static const double expected[] = {[SBP_LISTED] = SBP_OUTER_EXPECTED_RATIO,
                                  [SBP_BOUNDED] = SBP_OUTER_EXPECTED_RATIO,
                                  [SBP_RELAXED] = SBP_OUTER_EXPECTED_RATIO_RELAXED,
                                  [SBP_TRIED] = SBP_OUTER_EXPECTED_RATIO_TRIED,
                                  [SBP_MIXED] = SBP_OUTER_EXPECTED_RATIO_TRIED};

enum sbp_status sbp_outer_cut(struct sbp_branch_and_bound *e, const struct sbp_parallel *parallel,
                              struct sbp_diag *diag)
{
    const struct sbp_workload *const workload = &e->given->workload;
    sbp_arena_release(&e->cut_arena, (struct sbp_arena_mark){0});
    return sbp_cut_make(&workload->model, &workload->cluster, parallel, &e->cut_arena, &e->cut,
                        diag);
}

/* ---- what is open ---------------------------------------------------------------------------- */

/* Where weight gradients wait, every stage holds as many micro-batches, so that there is no stage
 * to spare: what did not fit without the memory limit says little of what does. */
static double expected_ratio(const struct sbp_node *node)
{
    const bool says_little =
        node->knowledge == SBP_RELAXED && sbp_timeline_weights_wait(node->parallel.schedule);
    return expected[says_little ? SBP_BOUNDED : node->knowledge];
}

enum sbp_status sbp_outer_push(struct sbp_branch_and_bound *e, int index)
{
    const struct sbp_node *const node = &e->node[index];
    struct sbp_queued entry = {
        .bound_s = node->bound_s, .knowledge = (int)node->knowledge, .node = index};
    SBP_TRY(sbp_queue_push(&e->queue, entry));
    entry.bound_s *= expected_ratio(node);
    return node->knowledge > SBP_LISTED || !node->is_base ? sbp_queue_push(&e->dives, entry)
                                                          : SBP_OK;
}

bool sbp_outer_is_over(struct sbp_branch_and_bound *e)
{
    const struct sbp_solver_options *options = &e->request->solver_options;
    if (options->progress != NULL)
        options->progress(options->progress_context, e->out->evaluations, sbp_outer_best_s(e),
                          sbp_clock_s() - e->start_s);
    e->out->stopped |=
        (options->stop != NULL && *options->stop != 0) ||
        sbp_clock_s() - e->start_s >= sbp_outer_limit_s(e) ||
        (options->max_evaluations > 0 && e->out->evaluations >= options->max_evaluations);
    return e->out->stopped;
}

/* Opens the siblings of a base that memory binds; without the limit none of them takes less time
 * than the base. Where memory does not bind, recompute and offload only cost time, so that siblings
 * matter only if several plans are asked for. */
static enum sbp_status open_siblings(struct sbp_branch_and_bound *e, int base)
{
    if (!e->node[base].is_base || e->node[base].siblings_are_open)
        return SBP_OK;
    e->node[base].siblings_are_open = true;
    for (int i = base + 1; i < e->node_count && e->node[i].base == base; i++) {
        e->node[i].bound_s = fmax(e->node[i].bound_s, e->node[base].time_s);
        SBP_TRY(sbp_outer_push(e, i));
    }
    return SBP_OK;
}

/* ---- one candidate --------------------------------------------------------------------------- */

static enum sbp_status look_at_listed(struct sbp_branch_and_bound *e, int index)
{
    struct sbp_node *const node = &e->node[index];
    bool legal = false;
    const double listed_s = node->bound_s;
    SBP_TRY(sbp_outer_bound(e, node, &legal));
    node->knowledge = SBP_BOUNDED;
    node->bound_s = fmax(node->bound_s, listed_s);
    node->time_s = fmax(node->time_s, listed_s);
    if (!legal)
        return SBP_OK;
    if (node->bound_s > node->time_s || e->pool->most > 1)
        SBP_TRY(open_siblings(e, index));
    return isfinite(node->bound_s) ? sbp_outer_push(e, index) : SBP_OK;
}

/* Puts a candidate off whose plan without the memory limit does not fit: the limit binds. Ranks the
 * plan that was found on the way, if one fits. */
static enum sbp_status put_off(struct sbp_branch_and_bound *e, int index)
{
    struct sbp_pool_plan unused;
    if (e->pool->most == 1)
        SBP_TRY(sbp_outer_rank(e, &e->found, NULL, &unused));
    e->found.count = 0;
    e->node[index].knowledge = SBP_RELAXED;
    SBP_TRY(open_siblings(e, index));
    return sbp_outer_push(e, index);
}

/* Ends a dive and doubles the wait once a plan is known: further dives improve it less and less. */
static void end_dive(struct sbp_branch_and_bound *e)
{
    e->wait *= isfinite(sbp_outer_goal_s(e)) ? 2 : 1;
    e->turns = 0;
    e->is_dive = false;
}

static enum sbp_status look_at(struct sbp_branch_and_bound *e, int index)
{
    if (e->node[index].knowledge == SBP_LISTED)
        return look_at_listed(e, index);
    struct sbp_node *const node = &e->node[index];
    const enum sbp_knowledge before = node->knowledge;
    e->memory_binds = e->is_too_large = false;
    SBP_TRY(before == SBP_MIXED ? sbp_outer_enumerate_paths(e, node) : sbp_outer_solve(e, node));
    if (e->is_too_large)
        return put_off(e, index);
    if (e->is_dive)
        end_dive(e);
    if (before < SBP_TRIED && e->found.count == 0 && isfinite(sbp_outer_ceiling_s(e, node))) {
        node->knowledge = SBP_TRIED;
        return sbp_outer_push(e, index);
    }
    if (node->mixture == NULL)
        node->knowledge = SBP_SOLVED;
    if (e->memory_binds)
        SBP_TRY(open_siblings(e, index));
    return sbp_outer_close(e, index);
}

/* ---- which comes next ------------------------------------------------------------------------ */

/* Takes outdated entries off a queue's head: those of candidates of which more is known by now. */
static void drop_stale(const struct sbp_branch_and_bound *e, struct sbp_queue *queue)
{
    while (queue->count > 0 &&
           (int)e->node[queue->entry[0].node].knowledge != queue->entry[0].knowledge)
        (void)sbp_queue_pop(queue);
}

/* Takes candidates off the head of the dives that will hardly fit: compiled plans of others needed
 * `overhead` times as much as modelled. */
static void drop_large(struct sbp_branch_and_bound *e)
{
    const double most = (double)sbp_request_limit_bytes(e->request, &e->given->workload.cluster) /
                        fmax(1, e->overhead);
    drop_stale(e, &e->dives);
    while (e->dives.count > 0 && e->node[e->dives.entry[0].node].least_bytes > most) {
        (void)sbp_queue_pop(&e->dives);
        drop_stale(e, &e->dives);
    }
}

/* Takes the open candidate with the least bound, which raises the bound of the search, or, in a
 * dive, the one whose plan is expected to cost least, which refutes others. A dive lasts until a
 * candidate is solved. Returns false when nothing is left. */
static bool next_open(struct sbp_branch_and_bound *e, struct sbp_queued *next)
{
    drop_stale(e, &e->queue);
    drop_large(e);
    e->is_dive = e->turns >= e->wait && e->queue.count > 0 && e->dives.count > 0 &&
                 e->dives.entry[0].bound_s <= SBP_OUTER_DIVE_RATIO * e->queue.entry[0].bound_s;
    struct sbp_queue *const queue = e->is_dive ? &e->dives : &e->queue;
    if (queue->count == 0)
        return false;
    *next = sbp_queue_pop(queue);
    if (!e->is_dive)
        e->turns += next->knowledge > SBP_LISTED ? SBP_OUTER_TURNS_PER_SOLVE : 1;
    return true;
}

/* Looks at the queued candidates of which no more than `most` is known and drops the rest. Ends
 * when `patience` candidates in a row were solved in vain. */
static enum sbp_status search(struct sbp_branch_and_bound *e, enum sbp_knowledge most, int patience)
{
    struct sbp_queued next;
    int vain = 0;
    while (vain < patience && !sbp_outer_is_over(e) && !sbp_outer_is_spent(e) &&
           next_open(e, &next)) {
        const double before_s = sbp_outer_goal_s(e);
        if (sbp_outer_is_refuted(e, next.bound_s) || next.knowledge > (int)most)
            continue;
        SBP_TRY(look_at(e, next.node));
        vain += next.knowledge > SBP_LISTED ? 1 : 0;
        if (sbp_outer_goal_s(e) < before_s)
            vain = 0;
    }
    return SBP_OK;
}

/* Opens the bases that were not looked at yet and the candidates that wait for path enumeration. */
static enum sbp_status open_rest(struct sbp_branch_and_bound *e)
{
    for (int i = 0; i < e->node_count; i++)
        if ((e->node[i].is_base && e->node[i].knowledge == SBP_LISTED) ||
            e->node[i].mixture != NULL)
            SBP_TRY(sbp_outer_push(e, i));
    return SBP_OK;
}

/* Searches the promising candidates first, then all. Path enumeration waits for the second pass,
 * since a better plan may refute its candidates. */
static enum sbp_status search_all(struct sbp_branch_and_bound *e)
{
    SBP_TRY(search(e, SBP_TRIED, SBP_OUTER_FIRST_PATIENCE));
    SBP_TRY(open_rest(e));
    return search(e, SBP_MIXED, INT_MAX);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whether two candidates share a base: they differ in recompute, regather and offload alone, and
 * the first takes the least time. Offload may save time where kernel launches take some, for states
 * are updated by buckets, with fewer launches than there are weights. */
static bool same_base(const struct sbp_branch_and_bound *e, const struct sbp_parallel *a,
                      const struct sbp_parallel *b)
{
    struct sbp_parallel moved = *a;
    moved.recompute = b->recompute;
    moved.regather = b->regather;
    if (!(e->given->workload.cluster.kernel_launch_s > 0))
        moved.offload = b->offload;
    return sbp_parallel_equal(&moved, b);
}

/* Opens a pass over all candidates; the plans that an earlier one ranked stay. */
static enum sbp_status begin(struct sbp_branch_and_bound *e)
{
    struct sbp_step_cuts list;
    struct sbp_request request = *e->request;
    request.quick |= e->solve.is_first_pass;
    e->node = NULL;
    e->node_count = 0;
    e->queue = e->dives = (struct sbp_queue){0};
    e->open_s = INFINITY;
    e->turns = 0;
    SBP_TRY(sbp_step_cuts_list(&e->given->cut, &request, &e->arena, &list, e->diag));
    e->node = SBP_NEW(&e->arena, struct sbp_node, list.count);
    e->queue.arena = &e->arena;
    e->dives.arena = &e->arena;
    e->wait = SBP_OUTER_TURNS_BEFORE_DIVE;
    if (e->node == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_pool_init(&e->found, &e->given->workload.model, &e->arena, 1));
    SBP_TRY(sbp_pool_init(&e->first, &e->given->workload.model, &e->arena, 1));
    e->node_count = e->node_room = list.count;
    for (int i = 0; i < list.count; i++) {
        const struct sbp_step_cut *from = &list.candidate[i];
        const bool is_base =
            i == 0 || !same_base(e, &from->parallel, &list.candidate[i - 1].parallel);
        e->node[i] = (struct sbp_node){.parallel = from->parallel,
                                       .bound_s = from->bound_s,
                                       .is_base = is_base,
                                       .base = is_base ? i : e->node[i - 1].base};
    }
    return SBP_OK;
}

static void conclude(struct sbp_branch_and_bound *e)
{
    struct sbp_outcome *out = e->out;
    out->objective_s = sbp_outer_best_s(e);
    out->lower_bound_s = fmin(e->open_s, out->objective_s);
    out->wall_s = sbp_clock_s() - e->start_s;
    sbp_pool_close(e->pool, e->open_s);
    if (e->pool->count == 0) {
        const double most_bytes =
            (double)sbp_request_limit_bytes(e->request, &e->given->workload.cluster) *
            (1 + SBP_CAPACITY_ROUND_OFF);
        const bool too_little = isfinite(out->least_bytes) && out->least_bytes > most_bytes;
        out->status =
            too_little || sbp_outer_is_infeasible(e) ? SBP_PLAN_INFEASIBLE : SBP_PLAN_TIME_LIMIT;
        return;
    }
    out->status = e->pool->proved > 0 ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    if (e->pool->proved > 0)
        out->lower_bound_s = out->objective_s;
}

static enum sbp_status search_pass(struct sbp_branch_and_bound *e)
{
    SBP_TRY(begin(e));
    if (e->pool->count == 0 && !e->request->is_fixed)
        SBP_TRY(sbp_outer_open_promising(e));
    SBP_TRY(search_all(e));
    drop_stale(e, &e->queue);
    if (e->queue.count > 0)
        e->open_s = fmin(e->open_s, e->queue.entry[0].bound_s);
    return sbp_outer_rank_first(e);
}

/* Passes do not share domains. */
static void set_pass(struct sbp_branch_and_bound *e, bool is_first)
{
    e->solve.is_first_pass = is_first;
    sbp_price_cache_free(&e->cache);
}

/* Searches the common roles and rests of an open space: their plan refutes most of what is left. */
static enum sbp_status search_first_pass(struct sbp_branch_and_bound *e)
{
    if (!sbp_space_rule(e->request->space)->plays_spare || !sbp_outer_proves(e) ||
        e->pool->most > 1 || e->request->quick || e->request->is_fixed)
        return SBP_OK;
    set_pass(e, true);
    SBP_TRY(search_pass(e));
    set_pass(e, false);
    e->has_passed = !e->out->stopped;
    e->first_open_s = e->open_s;
    return SBP_OK;
}

/* A search that has no memory for its own lists ends with what it has. */
static enum sbp_status search_passes(struct sbp_branch_and_bound *e)
{
    enum sbp_status status = search_first_pass(e);
    if (status == SBP_OK)
        status = search_pass(e);
    if (!sbp_outer_leaves_out(e, status))
        return status;
    e->open_s = -INFINITY;
    return SBP_OK;
}

static enum sbp_status run_search(struct sbp_branch_and_bound *e)
{
    SBP_TRY(search_passes(e));
    /* Where time or work ended, what the first pass proved is the better answer. */
    if ((e->out->stopped || sbp_outer_is_spent(e)) && e->pool->count > 0 &&
        e->first_open_s > e->open_s) {
        e->out->is_narrow = true;
        e->open_s = e->first_open_s;
    }
    if (!e->any_legal && e->pool->count == 0 && !e->out->stopped && !e->out->left_out &&
        e->request->most_s == 0)
        return sbp_fail(e->diag, SBP_E_INPUT, "%s", e->refusal.text);
    if (e->pool->count == 0 && !(e->request->plan_alone && sbp_outer_is_infeasible(e))) {
        const enum sbp_status status = sbp_outer_take_least_memory(e);
        if (status != SBP_OK && !sbp_outer_leaves_out(e, status))
            return status;
    }
    conclude(e);
    return SBP_OK;
}

enum sbp_status sbp_outer_search(const struct sbp_plan *given, const struct sbp_request *request,
                                 int most, struct sbp_arena *arena, struct sbp_pool *pool,
                                 struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    *outcome = (struct sbp_outcome){.objective_s = INFINITY, .lower_bound_s = -INFINITY};
    struct sbp_branch_and_bound e = {.given = given,
                                     .plans = arena,
                                     .request = request,
                                     .out = outcome,
                                     .diag = diag,
                                     .pool = pool,
                                     .open_s = INFINITY,
                                     .first_open_s = -INFINITY,
                                     .start_s = sbp_clock_s(),
                                     .cut_arena.budget = request->search_memory,
                                     .solve_arena.budget = request->search_memory,
                                     .arena.budget = request->search_memory,
                                     .cache.arena.budget = request->search_memory,
                                     .solve = {.asked = *request}};
    /* Sums beside the optimizer run over whole gradients (costmodel/program/runnable.h). */
    const bool must_be_whole = request->runnable && given->cut.parallel.chunk_factor > 0;
    e.solve.zero_is_free = sbp_space_rule(request->space)->outer.per_layer_zero &&
                           !sbp_request_gives(request, "zero") && !must_be_whole;
    enum sbp_status status = sbp_pool_init(pool, &given->workload.model, arena, most);
    if (status == SBP_OK)
        status = run_search(&e);
    for (int i = 0; i < pool->count; i++)
        pool->plan[i].split = NULL; /* its arena is freed below */
    sbp_price_cache_free(&e.cache);
    sbp_arena_free(&e.cut_arena);
    sbp_arena_free(&e.solve_arena);
    sbp_arena_free(&e.arena);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while searching");
    return status;
}
