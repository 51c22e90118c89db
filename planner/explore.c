#include "planner/explore.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "planner/candidates.h"
#include "planner/least.h"
#include "planner/mixture.h"
#include "planner/queue.h"
#include "planner/settle.h"
#include "planner/space_rules.h"
#include "planner/space_store.h"
#include "planner/view.h"

/* Candidates that are cut in parts, and what more of them may cost (a second or two). */
enum { FEW_CUTS = 8, CHEAP_WORK = 20000 };
#define CHEAP_EVALUATIONS INT64_C(100000000)
/* First plans that cost up to so many times the cheapest one's are worth improving first. */
#define NEAR 1.25

/* How much is known of a candidate. */
enum knowledge { LISTED, BOUNDED, RELAXED, TRIED, MIXED, SOLVED };

/* What a candidate's plan may be expected to cost, by its bound: dives go where that is least. */
static const double expected[] = {
    [LISTED] = 1.5, [BOUNDED] = 1.5, [RELAXED] = 1.02, [TRIED] = 1.6, [MIXED] = 1.6};
/* A plan that may cost more than this, by the bound of all that is open, is not dived for. */
#define FURTHEST_DIVE 2.0
/* Turns before the first dive. */
enum { FIRST_WAIT = 64 };
/* Where memory raises a bound by more than this, solving without its limit says little more. */
#define MOST_RELAXED 1.1
/* What a plan may cost, by its candidate's bound, that is looked for before any is known. */
#define FIRST_TRY 1.3

struct node {
    struct sbp_parallel parallel;
    const struct sbp_part *part; /* of its strategies; NULL: all */
    enum knowledge knowledge;
    double bound_s, time_s; /* with the limit of memory and without; time_s is of bases */
    int base; /* the candidate that keeps everything on the device, of the same schedule */
    bool is_base, is_bound_by_memory;
    double least_bytes;          /* of a device, by the model; 0: not known */
    struct sbp_mixture *mixture; /* of MIXED, what its paths have said; else NULL */
};

struct explorer {
    struct sbp_plan *plan;
    const struct sbp_request *request;
    struct sbp_outcome *out;
    struct sbp_diag *diag;
    struct sbp_arena arena;
    struct node *node; /* (node_count) */
    int node_count, node_room;
    struct sbp_queue queue; /* of what is open */
    struct sbp_queue dives; /* of what is open, by what plans are expected to cost */
    int turns, wait; /* taken by bounds since the last dive, and how many are before the next */
    struct sbp_ranking *ranking;
    struct sbp_ranking found; /* of the candidate at hand: its best plan */
    struct sbp_ranking first; /* the best of the first plans */
    double open_s;            /* the least bound of candidates that were solved without a proof */
    int cuts;                 /* candidates that were cut in parts */
    int64_t work;             /* since the first: operators of the candidates solved */
    int64_t first_cut_at;     /* evaluations */
    struct sbp_diag refusal;
    bool any_legal, memory_binds, is_too_large; /* of the candidate at hand */
    double start_s;
    struct sbp_space_store store;
    struct sbp_request asked; /* the request as candidates are solved by it */
};

/* Opens a candidate. */
static enum sbp_status push(struct explorer *e, int index)
{
    const struct node *const node = &e->node[index];
    struct sbp_queued entry = {
        .bound_s = node->bound_s, .knowledge = (int)node->knowledge, .node = index};
    SBP_TRY(sbp_queue_push(&e->queue, entry));
    entry.bound_s *= expected[node->knowledge];
    return node->knowledge > LISTED || !node->is_base ? sbp_queue_push(&e->dives, entry) : SBP_OK;
}

/* ---- plans found ---------------------------------------------------------------------------- */

static double ranked_s(const struct explorer *e)
{
    return e->ranking->count > 0 ? e->ranking->plan[0].objective_s : INFINITY;
}

static double best_s(const struct explorer *e)
{
    return fmin(fmin(ranked_s(e), sbp_ranking_goal_s(&e->first)), sbp_ranking_goal_s(&e->found));
}

/* Only plans that cost less are worth looking for. */
static double goal_s(const struct explorer *e)
{
    return fmin(sbp_ranking_goal_s(e->ranking), sbp_ranking_goal_s(&e->found));
}

/* Whether a candidate can no longer hold a plan that is looked for. */
static bool is_refuted(const struct explorer *e, double bound)
{
    return bound >= goal_s(e) * (1 - 1e-9);
}

/* ---- a candidate ---------------------------------------------------------------------------- */

static struct sbp_solver_options options_left(const struct explorer *e)
{
    struct sbp_solver_options options = e->request->solver_options;
    if (options.time_limit_s > 0)
        options.time_limit_s = fmax(1e-9, options.time_limit_s - (sbp_clock_s() - e->start_s));
    if (options.max_evaluations > 0)
        options.max_evaluations = options.max_evaluations > e->out->evaluations
                                      ? options.max_evaluations - e->out->evaluations
                                      : 1;
    return options;
}

static bool is_over(struct explorer *e)
{
    const struct sbp_solver_options *options = &e->request->solver_options;
    e->out->stopped |=
        (options->stop != NULL && *options->stop != 0) ||
        (options->time_limit_s > 0 && sbp_clock_s() - e->start_s >= options->time_limit_s) ||
        (options->max_evaluations > 0 && e->out->evaluations >= options->max_evaluations);
    return e->out->stopped;
}

/* A candidate without a legal strategy bounds nothing; the first one's reason is kept. */
static enum sbp_status note_refusal(struct explorer *e, const struct sbp_diag *refusal)
{
    if (e->refusal.text[0] == '\0')
        e->refusal = *refusal;
    return SBP_OK;
}

/* Whether candidates are solved without the limit of memory first. Heuristics bound nothing. */
static bool may_relax(const struct explorer *e)
{
    const struct sbp_solver *solver = e->request->solver;
    return (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           e->request->solver_options.max_evaluations == 0;
}

static bool is_to_relax(const struct explorer *e, const struct node *node)
{
    return node->knowledge == BOUNDED && may_relax(e) &&
           node->bound_s <= MOST_RELAXED * node->time_s;
}

/* What a candidate's spaces are made with: none of another candidate's is alive. */
static struct sbp_request request_of(struct explorer *e, const struct node *node)
{
    struct sbp_request request = e->asked;
    sbp_space_store_trim(&e->store);
    request.part = node->part;
    request.store = &e->store;
    request.puts_memory_off = is_to_relax(e, node);
    return request;
}

/* The view along the longest path, which needs no strategy. */
static enum sbp_status plain_view(struct explorer *e, struct sbp_view *view, struct sbp_diag *diag)
{
    struct sbp_path path;
    if (e->request->objective == SBP_COMMUNICATION)
        return sbp_view_mean(e->plan, &e->arena, view, diag);
    SBP_TRY(sbp_path_longest(e->plan, &e->arena, &path));
    return sbp_view_make(e->plan, &path, &e->arena, view, diag);
}

/* Bounds over strategies, with the limit of memory and without. SBP_OK with *legal false where the
 * candidate has none. Interrupted, it is as good as before and stays open. */
static enum sbp_status bound_node(struct explorer *e, struct node *node, bool *legal)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_request request = request_of(e, node);
    struct sbp_optimise_bound bound = {0};
    struct sbp_view view;
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    enum sbp_status status = sbp_plan_set_parallel(e->plan, &node->parallel, &refusal);
    if (status == SBP_OK)
        status = plain_view(e, &view, &refusal);
    request.view = &view;
    if (status == SBP_OK)
        status = sbp_optimise_bound(e->plan, &request, &bound, &refusal);
    sbp_arena_release(&e->arena, mark);
    *legal = status == SBP_OK || status == SBP_STOPPED;
    if (status == SBP_STOPPED) {
        e->out->stopped = true;
        return SBP_OK;
    }
    if (status == SBP_E_INPUT)
        return note_refusal(e, &refusal);
    if (status != SBP_OK)
        return sbp_fail(e->diag, status, "%s", refusal.text);
    e->any_legal = true;
    e->out->evaluations++;
    e->out->space_size_log10 = fmax(e->out->space_size_log10, bound.space_size_log10);
    node->bound_s = fmax(node->bound_s, bound.bound_s);
    node->time_s = bound.time_s;
    node->is_bound_by_memory = bound.bound_s > bound.time_s;
    node->least_bytes = bound.least_bytes;
    return SBP_OK;
}

static void add_point(struct sbp_outcome *out, int64_t evaluations, double elapsed_s, double best)
{
    if (out->curve_count < SBP_CURVE_POINTS)
        out->curve[out->curve_count++] = (struct sbp_curve_point){evaluations, elapsed_s, best};
}

/* How a better plan was come by: the solver's costs on the way, which are those of labelled plans
 * or a little less, down to the plan's. */
static void note_curve(struct explorer *e, const struct sbp_outcome *found)
{
    struct sbp_outcome *out = e->out;
    const int64_t before = out->evaluations - found->evaluations;
    const double now_s = sbp_clock_s() - e->start_s;
    double best = best_s(e);
    for (int i = 0; i < found->curve_count; i++) {
        const struct sbp_curve_point *point = &found->curve[i];
        if (!(point->best < best) || !(point->best > found->objective_s))
            continue;
        best = point->best;
        if (out->curve_count + 1 < SBP_CURVE_POINTS)
            add_point(out, before + point->evaluations,
                      fmin(now_s, now_s - found->wall_s + point->elapsed_s), best);
    }
    add_point(out, out->evaluations, now_s, found->objective_s);
}

static void note_outcome(struct explorer *e, const struct sbp_outcome *found)
{
    struct sbp_outcome *out = e->out;
    out->evaluations += found->evaluations;
    out->stopped |= found->stopped;
    e->memory_binds |= found->memory_binds;
    e->is_too_large |= found->is_too_large;
    out->unbounded = found->unbounded != NULL ? found->unbounded : out->unbounded;
    out->algorithm = found->algorithm != NULL ? found->algorithm : out->algorithm;
    out->space_size_log10 = fmax(out->space_size_log10, found->space_size_log10);
    if (found->objective_s < best_s(e))
        note_curve(e, found);
}

/* Before any plan is known, looking for the cheapest of a candidate that memory binds may take long
 * and end at a poor one: first only good ones are looked for. INFINITY: any. */
static double ceiling_s(const struct explorer *e, const struct node *node)
{
    const bool is_first = node->knowledge < TRIED && may_relax(e) && !is_to_relax(e, node) &&
                          isinf(goal_s(e)) && !(e->request->upper_bound_s > 0);
    return is_first ? FIRST_TRY * node->bound_s : INFINITY;
}

/* Solves along one path, or for what a device does whatever the path (NULL); better plans are kept.
 */
static enum sbp_status solve_along(struct explorer *e, const struct node *node,
                                   const struct sbp_path *path, struct sbp_outcome *found)
{
    struct sbp_view view;
    struct sbp_request request = request_of(e, node);
    struct sbp_diag refusal = {{0}};
    const double most_s = fmin(goal_s(e), ceiling_s(e, node));
    request.upper_bound_s = isfinite(most_s) ? most_s : e->request->upper_bound_s;
    request.solver_options = options_left(e);
    enum sbp_status status = SBP_OK;
    if (path != NULL) {
        request.view = &view;
        status = sbp_view_make(e->plan, path, &e->arena, &view, &refusal);
    }
    if (status == SBP_OK)
        status = sbp_optimise(e->plan, &request, found, &refusal);
    if (status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED) {
        *found =
            (struct sbp_outcome){.objective_s = INFINITY,
                                 .strategy_s = INFINITY,
                                 .lower_bound_s = status == SBP_E_INPUT ? INFINITY : -INFINITY};
        return note_refusal(e, &refusal);
    }
    if (status != SBP_OK)
        return sbp_fail(e->diag, status, "%s", refusal.text);
    note_outcome(e, found);
    if (isfinite(found->strategy_s) && !found->is_too_large)
        sbp_ranking_offer(&e->found, e->plan,
                          &(struct sbp_ranked){.objective_s = found->strategy_s});
    return SBP_OK;
}

/* By what was proved of a candidate; without the limit of memory it holds for a base's siblings,
 * too. Returns the bound. */
static double raise_bound(const struct explorer *e, struct node *node, double proved_s)
{
    if (is_to_relax(e, node))
        node->time_s = fmax(node->time_s, proved_s);
    node->bound_s = fmax(node->bound_s, proved_s);
    return node->bound_s;
}

static void offer_settled(void *context, double objective_s)
{
    struct explorer *e = context;
    if (objective_s < best_s(e))
        add_point(e->out, e->out->evaluations, sbp_clock_s() - e->start_s, objective_s);
    sbp_ranking_offer(&e->found, e->plan, &(struct sbp_ranked){.objective_s = objective_s});
}

/* Whether what mixtures left is worth the look, and its prices bound the step. */
static bool may_settle(struct explorer *e, const struct node *node)
{
    const struct sbp_solver *solver = e->request->solver;
    return e->plan->parallel.pipeline > 1 && e->ranking->most == 1 && isfinite(goal_s(e)) &&
           !is_refuted(e, node->bound_s) && !is_over(e) &&
           e->request->solver_options.max_evaluations == 0 &&
           (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           sbp_space_rule(e->request->space)->mesh == SBP_MESH_FREE &&
           sbp_optimise_bounds(e->plan, &e->asked);
}

/* Along the path that work alone would make the longest, along those of the plans found, then along
 * mixtures of all of these, as long as each says something new. */
static enum sbp_status solve_mixtures(struct explorer *e, struct node *node,
                                      struct sbp_mixture *mixture)
{
    SBP_TRY(sbp_mixture_begin(e->plan, &e->arena, mixture, e->diag));
    for (int i = 0; i < SBP_MOST_ROUNDS && !is_over(e); i++) {
        struct sbp_outcome found;
        const struct sbp_arena_mark mark = sbp_arena_mark(&e->plan->arena);
        bool more = false;
        SBP_TRY(solve_along(e, node, &mixture->path, &found));
        const double bound_s = raise_bound(e, node, found.lower_bound_s);
        sbp_mixture_note(mixture, found.lower_bound_s);
        if (!is_refuted(e, bound_s))
            SBP_TRY(isfinite(found.strategy_s)
                        ? sbp_mixture_add(mixture, &e->plan->strategy, &more, e->diag)
                        : sbp_mixture_skip(mixture, &more));
        sbp_arena_release(&e->plan->arena, mark); /* the best is kept elsewhere */
        if (!more)
            break;
    }
    return SBP_OK;
}

static enum sbp_status solve_paths(struct explorer *e, struct node *node)
{
    struct sbp_mixture mixture;
    if (e->request->objective == SBP_COMMUNICATION) {
        struct sbp_outcome found;
        SBP_TRY(solve_along(e, node, NULL, &found));
        (void)raise_bound(e, node, found.lower_bound_s);
        return SBP_OK;
    }
    SBP_TRY(solve_mixtures(e, node, &mixture));
    if (e->is_too_large || !may_settle(e, node))
        return SBP_OK;
    node->mixture = SBP_NEW(&e->arena, struct sbp_mixture, 1);
    if (node->mixture == NULL)
        return SBP_E_MEMORY;
    *node->mixture = mixture;
    node->knowledge = MIXED;
    return SBP_OK;
}

/* What the candidate's paths say is kept while it waits to be settled. */
static enum sbp_status solve_node(struct explorer *e, struct node *node)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    SBP_TRY(sbp_plan_set_parallel(e->plan, &node->parallel, e->diag));
    SBP_TRY(solve_paths(e, node));
    e->work += e->cuts > 0 ? e->plan->graph.op_count : 0;
    if (node->mixture == NULL)
        sbp_arena_release(&e->arena, mark);
    return SBP_OK;
}

/* Where mixtures leave a gap: plans that are good along all paths, one after the other. */
static enum sbp_status settle_node(struct explorer *e, struct node *node)
{
    struct sbp_request request = request_of(e, node);
    request.solver_options = options_left(e);
    if (request.solver_options.time_limit_s > 0)
        request.deadline_s = sbp_clock_s() + request.solver_options.time_limit_s;
    struct sbp_settling settling = {.plan = e->plan,
                                    .request = &request,
                                    .mixture = node->mixture,
                                    .goal_s = goal_s(e),
                                    .bound_s = node->bound_s,
                                    .offer = offer_settled,
                                    .context = e};
    SBP_TRY(sbp_plan_set_parallel(e->plan, &node->parallel, e->diag));
    SBP_TRY(sbp_settle(&settling, e->diag));
    node->mixture = NULL; /* there is no more to be said */
    e->out->evaluations += settling.evaluations;
    e->out->stopped |= settling.stopped;
    node->bound_s = fmax(node->bound_s, settling.bound_s);
    return SBP_OK;
}

/* ---- what is left of a candidate ------------------------------------------------------------ */

static enum sbp_status add_node(struct explorer *e, const struct node *node)
{
    if (e->node_count == e->node_room) {
        const int room = 2 * e->node_room + 64;
        struct node *nodes = SBP_NEW(&e->arena, struct node, room);
        if (nodes == NULL)
            return SBP_E_MEMORY;
        memcpy(nodes, e->node, (size_t)e->node_count * sizeof *nodes);
        e->node = nodes;
        e->node_room = room;
    }
    e->node[e->node_count] = *node;
    return push(e, e->node_count++);
}

/* One cut for each plan that is asked for is enough where all bounds are met; else more of them are
 * made while they are cheap. */
static bool may_cut(const struct explorer *e)
{
    return e->cuts < 2 * e->ranking->most + FEW_CUTS ||
           (e->work < CHEAP_WORK && e->out->evaluations - e->first_cut_at < CHEAP_EVALUATIONS);
}

/* Whether a candidate splits every layer in one way. */
static bool has_one(const struct node *node)
{
    return node->part != NULL && node->part->at == node->part->plan->count;
}

/* Nothing more is done about what a bound leaves open. */
static void leave_open(struct explorer *e, double bound_s)
{
    if (!is_refuted(e, bound_s))
        e->open_s = fmin(e->open_s, bound_s);
}

/* The parts of a solved candidate without its plan, and, where the plan may not be the cheapest
 * that splits every layer as it does, those plans. */
static enum sbp_status cut_node(struct explorer *e, const struct node *solved,
                                const struct sbp_splits *split, bool is_settled)
{
    struct sbp_part *part = SBP_NEW(&e->arena, struct sbp_part, split->count + 1);
    if (part == NULL)
        return SBP_E_MEMORY;
    int count = sbp_part_cut(solved->part, split, &e->arena, part);
    if (count < 0)
        return SBP_E_MEMORY;
    if (!is_settled)
        part[count++] = (struct sbp_part){.plan = split, .at = split->count};
    if (e->cuts++ == 0)
        e->first_cut_at = e->out->evaluations;
    for (int i = 0; i < count; i++) {
        const struct node node = {
            .parallel = solved->parallel, .part = &part[i], .bound_s = solved->bound_s, .base = -1};
        SBP_TRY(add_node(e, &node));
    }
    return SBP_OK;
}

/* What is known of the candidate's plan beside its objective, where it is to be told from others.
 */
static enum sbp_status describe_found(struct explorer *e, const struct node *node,
                                      struct sbp_ranked *found)
{
    struct sbp_step step;
    found->split = has_one(node) ? node->part->plan : sbp_plan_splits(e->plan, &e->arena);
    if (found->split == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_plan_step(e->plan, &e->plan->strategy, &step, e->diag));
    found->step_s = step.totals.step_s;
    found->device_bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    return SBP_OK;
}

/* Ranks the candidate's best plan, which becomes the plan's strategy. */
static void rank_found(struct explorer *e, const struct sbp_ranked *found)
{
    const double upper_s = e->request->upper_bound_s;
    e->plan->strategy = e->found.plan[0].strategy;
    if (!(upper_s > 0 && found->objective_s >= upper_s))
        sbp_ranking_offer(e->ranking, e->plan, found);
}

/* Ranks the candidate's plan. What is left of it stays open, to be settled or where more than one
 * plan is asked for. */
static enum sbp_status close_node(struct explorer *e, int index)
{
    const struct node node = e->node[index];
    const bool several = e->ranking->most > 1, is_found = e->found.count > 0;
    struct sbp_ranked found = {.objective_s = sbp_ranking_goal_s(&e->found)};
    if (is_found)
        e->plan->strategy = e->found.plan[0].strategy;
    if (several && is_found)
        SBP_TRY(describe_found(e, &node, &found));
    if (is_found)
        rank_found(e, &found);
    e->found.count = 0;
    const bool is_settled = is_found && node.bound_s >= found.objective_s * (1 - 1e-9);
    if (several && is_found && !has_one(&node) && !is_refuted(e, node.bound_s) && may_cut(e))
        return cut_node(e, &node, found.split, is_settled);
    if (node.mixture != NULL)
        return push(e, index);
    if (!(has_one(&node) && is_settled))
        leave_open(e, node.bound_s);
    return SBP_OK;
}

/* ---- the search ----------------------------------------------------------------------------- */

/* Siblings of a base that memory binds: none takes less time than the base would without the limit.
 * Where it does not bind, what recomputes or offloads only takes longer: of no use unless plans
 * behind the best are asked for. */
static enum sbp_status push_siblings(struct explorer *e, int base)
{
    for (int i = base + 1; i < e->node_count && e->node[i].base == base; i++) {
        e->node[i].bound_s = fmax(e->node[i].bound_s, e->node[base].time_s);
        SBP_TRY(push(e, i));
    }
    return SBP_OK;
}

static enum sbp_status look_at_listed(struct explorer *e, int index)
{
    struct node *const node = &e->node[index];
    bool legal = false;
    const double listed_s = node->bound_s;
    SBP_TRY(bound_node(e, node, &legal));
    node->knowledge = BOUNDED;
    node->bound_s = fmax(node->bound_s, listed_s);
    node->time_s = fmax(node->time_s, listed_s);
    node->is_bound_by_memory |= e->ranking->most > 1;
    if (!legal)
        return SBP_OK;
    if (node->is_base && node->is_bound_by_memory)
        SBP_TRY(push_siblings(e, index));
    return isfinite(node->bound_s) ? push(e, index) : SBP_OK;
}

/* What was solved without the limit of memory, which binds; some of the plans may fit. */
static enum sbp_status put_off(struct explorer *e, int index)
{
    struct node *const node = &e->node[index];
    const struct sbp_ranked found = {.objective_s = sbp_ranking_goal_s(&e->found)};
    if (e->found.count > 0 && e->ranking->most == 1)
        rank_found(e, &found);
    e->found.count = 0;
    node->knowledge = RELAXED;
    if (node->is_base && !node->is_bound_by_memory)
        SBP_TRY(push_siblings(e, index));
    return push(e, index);
}

/* Plans that more dives find are better by less and less. */
static void end_dive(struct explorer *e)
{
    e->wait *= e->turns >= e->wait && isfinite(goal_s(e)) ? 2 : 1;
    e->turns = 0;
}

static enum sbp_status look_at(struct explorer *e, int index)
{
    if (e->node[index].knowledge == LISTED)
        return look_at_listed(e, index);
    struct node *const node = &e->node[index];
    const enum knowledge before = node->knowledge;
    e->memory_binds = e->is_too_large = false;
    SBP_TRY(before == MIXED ? settle_node(e, node) : solve_node(e, node));
    if (e->is_too_large)
        return put_off(e, index);
    end_dive(e);
    if (before < TRIED && e->found.count == 0 && isfinite(ceiling_s(e, node))) {
        node->knowledge = TRIED;
        return push(e, index);
    }
    if (node->mixture == NULL)
        node->knowledge = SOLVED;
    if (node->is_base && before == BOUNDED && e->memory_binds && !node->is_bound_by_memory)
        SBP_TRY(push_siblings(e, index));
    return close_node(e, index);
}

/* Takes what more has become known of since off a queue's head. */
static void drop_stale(const struct explorer *e, struct sbp_queue *queue)
{
    while (queue->count > 0 &&
           (int)e->node[queue->entry[0].node].knowledge != queue->entry[0].knowledge)
        (void)sbp_queue_pop(queue);
}

/* The open candidate with the least bound, which proves, or, in a dive, the one whose plan is
 * expected to cost least, which rules others out. A dive goes on until a candidate is solved.
 * False: nothing is left. */
static bool next_open(struct explorer *e, struct sbp_queued *next)
{
    drop_stale(e, &e->queue);
    drop_stale(e, &e->dives);
    const bool dives = e->turns >= e->wait && e->queue.count > 0 && e->dives.count > 0 &&
                       e->dives.entry[0].bound_s <= FURTHEST_DIVE * e->queue.entry[0].bound_s;
    struct sbp_queue *const queue = dives ? &e->dives : &e->queue;
    e->turns += dives ? 0 : 1;
    if (queue->count == 0)
        return false;
    *next = sbp_queue_pop(queue);
    return true;
}

/* Looks at what is queued as far as that is not known better than `most`: else it is dropped. */
static enum sbp_status search(struct explorer *e, enum knowledge most)
{
    struct sbp_queued next;
    while (!is_over(e) && next_open(e, &next)) {
        if (!is_refuted(e, next.bound_s) && next.knowledge <= (int)most)
            SBP_TRY(look_at(e, next.node));
    }
    drop_stale(e, &e->queue);
    if (e->queue.count > 0)
        e->open_s = fmin(e->open_s, e->queue.entry[0].bound_s);
    return SBP_OK;
}

/* ---- first plans ---------------------------------------------------------------------------- */

/* Stages and a micro-batch, and what a first plan of theirs costs. */
struct sketch {
    int node; /* the first of them */
    double found_s;
};

static enum sbp_status optimise_aligned(struct explorer *e, const struct node *node,
                                        struct sbp_outcome *found, struct sbp_diag *refusal)
{
    struct sbp_request request = request_of(e, node);
    struct sbp_view view;
    request.solver_options = options_left(e);
    request.view = &view;
    SBP_TRY(sbp_plan_set_parallel(e->plan, &node->parallel, refusal));
    SBP_TRY(plain_view(e, &view, refusal));
    return sbp_optimise_aligned(e->plan, &request, found, refusal);
}

/* A plan of a candidate whose layers all split the batch alike; *found_s is INFINITY without one.
 */
static enum sbp_status sketch_node(struct explorer *e, const struct node *node, double *found_s)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_outcome found;
    const struct sbp_arena_mark mark = sbp_arena_mark(&e->arena);
    const struct sbp_arena_mark plan_mark = sbp_arena_mark(&e->plan->arena);
    const enum sbp_status status = optimise_aligned(e, node, &found, &refusal);
    *found_s = status == SBP_OK ? found.objective_s : INFINITY;
    if (isfinite(*found_s)) {
        note_outcome(e, &found);
        sbp_ranking_offer(&e->first, e->plan, &(struct sbp_ranked){.objective_s = *found_s});
    }
    sbp_arena_release(&e->plan->arena, plan_mark);
    sbp_arena_release(&e->arena, mark);
    return status == SBP_OK || status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED
               ? SBP_OK
               : sbp_fail(e->diag, status, "%s", refusal.text);
}

static bool same_stages(const struct sbp_parallel *a, const struct sbp_parallel *b)
{
    return a->pipeline == b->pipeline && a->micro_batch == b->micro_batch;
}

/* Of the candidates with the stages and micro-batch of the first, the one with the plainest
 * schedule that keeps few activations. */
static const struct node *plainest(const struct explorer *e, int first)
{
    for (int i = first;
         i < e->node_count && same_stages(&e->node[i].parallel, &e->node[first].parallel); i++)
        if (e->node[i].parallel.schedule == SBP_ONE_F_ONE_B)
            return &e->node[i];
    return &e->node[first];
}

/* For every number of stages, smaller and smaller micro-batches until the next one costs more. */
static enum sbp_status sketch_all(struct explorer *e, struct sketch *sketch, int *count)
{
    const struct sbp_parallel *last = NULL;
    double last_s = INFINITY;
    bool passed = false;
    *count = 0;
    for (int i = 0; i < e->node_count && !is_over(e); i++) {
        const struct sbp_parallel *const parallel = &e->node[i].parallel;
        const bool goes_on = last != NULL && last->pipeline == parallel->pipeline;
        if (goes_on && (passed || last->micro_batch == parallel->micro_batch))
            continue;
        struct sketch *const next = &sketch[(*count)++];
        next->node = i;
        SBP_TRY(sketch_node(e, plainest(e, i), &next->found_s));
        passed = goes_on && next->found_s > last_s;
        last_s = next->found_s;
        last = parallel;
    }
    return SBP_OK;
}

/* Ranks the best first plan, where it is the best of all. */
static enum sbp_status offer_first(struct explorer *e)
{
    const struct sbp_ranked *first = &e->first.plan[0];
    struct sbp_ranked found = {.objective_s = first->objective_s};
    if (sbp_ranking_goal_s(&e->first) >= ranked_s(e))
        return SBP_OK;
    SBP_TRY(sbp_plan_set_parallel(e->plan, &first->parallel, e->diag));
    e->plan->strategy = first->strategy;
    if (e->ranking->most > 1)
        SBP_TRY(describe_found(e, &(struct node){.part = NULL}, &found));
    sbp_ranking_offer(e->ranking, e->plan, &found);
    return SBP_OK;
}

/* Whether first plans are of use: solvers that are asked for, and budgets, go to the search. */
static bool may_sketch(const struct explorer *e)
{
    const struct sbp_solver *solver = e->request->solver;
    return (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           e->request->solver_options.max_evaluations == 0 &&
           sbp_space_rule(e->request->space)->mesh == SBP_MESH_FREE;
}

static enum sbp_status push_near(struct explorer *e, const struct sketch *sketch)
{
    for (int i = sketch->node;
         i < e->node_count && same_stages(&e->node[i].parallel, &e->node[sketch->node].parallel);
         i++)
        if (e->node[i].is_base)
            SBP_TRY(push(e, i));
    return SBP_OK;
}

/* Whether the cheapest first plan splits nothing but the batch: only then is it near to what its
 * candidate can do. */
static bool splits_batch_alone(const struct explorer *e)
{
    const struct sbp_parallel *first = &e->first.plan[0].parallel;
    const int64_t devices = sbp_cluster_devices(&e->plan->cluster);
    return e->first.count > 0 && first->micro_batch % (devices / first->pipeline) == 0;
}

/* Where bounds are weak, most of what comes first by its bound is far from good. What has the
 * cheapest first plans is searched before: then a good plan is there early, and refutes the rest.
 */
static enum sbp_status search_near(struct explorer *e)
{
    int count = 0;
    struct sketch *const sketch = SBP_NEW(&e->arena, struct sketch, e->node_count);
    if (sketch == NULL)
        return SBP_E_MEMORY;
    if (may_sketch(e))
        SBP_TRY(sketch_all(e, sketch, &count));
    if (e->ranking->most > 1) /* parts of candidates compete with other candidates' */
        return SBP_OK;
    SBP_TRY(offer_first(e));
    const double near_s = NEAR * sbp_ranking_goal_s(&e->first);
    for (int i = 0; i < count && splits_batch_alone(e); i++)
        if (isfinite(sketch[i].found_s) && sketch[i].found_s <= near_s)
            SBP_TRY(push_near(e, &sketch[i]));
    return search(e, TRIED); /* what is MIXED may be refuted before it is settled */
}

/* Candidates that stand together but for recompute, offload and ZeRO share a base, the first. */
static bool same_schedule(const struct sbp_parallel *a, const struct sbp_parallel *b)
{
    return a->pipeline == b->pipeline && a->micro_batch == b->micro_batch &&
           a->schedule == b->schedule && a->chunks == b->chunks && a->stage_cut == b->stage_cut &&
           a->pipeline_limit == b->pipeline_limit && a->zero == b->zero;
}

static enum sbp_status begin(struct explorer *e)
{
    struct sbp_parallel_candidates list;
    SBP_TRY(sbp_candidates_list(e->plan, e->request, &e->arena, &list, e->diag));
    e->node = SBP_NEW(&e->arena, struct node, list.count);
    e->queue.arena = &e->arena;
    e->dives.arena = &e->arena;
    e->wait = FIRST_WAIT;
    if (e->node == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_ranking_init(&e->found, e->plan, 1));
    SBP_TRY(sbp_ranking_init(&e->first, e->plan, 1));
    e->node_count = e->node_room = list.count;
    for (int i = 0; i < list.count; i++) {
        const struct sbp_parallel_candidate *from = &list.candidate[i];
        const bool is_base =
            i == 0 || !same_schedule(&from->parallel, &list.candidate[i - 1].parallel);
        e->node[i] = (struct node){.parallel = from->parallel,
                                   .bound_s = from->bound_s,
                                   .is_base = is_base,
                                   .base = is_base ? i : e->node[i - 1].base};
    }
    return SBP_OK;
}

/* What was not looked at yet, or waits to be settled. */
static enum sbp_status push_rest(struct explorer *e)
{
    for (int i = 0; i < e->node_count; i++)
        if ((e->node[i].is_base && e->node[i].knowledge == LISTED) || e->node[i].mixture != NULL)
            SBP_TRY(push(e, i));
    return SBP_OK;
}

static void conclude(struct explorer *e)
{
    struct sbp_outcome *out = e->out;
    out->objective_s = best_s(e);
    out->lower_bound_s = fmin(e->open_s, out->objective_s);
    out->wall_s = sbp_clock_s() - e->start_s;
    sbp_ranking_close(e->ranking, e->open_s);
    if (e->ranking->count == 0) {
        out->status = isinf(e->open_s) && e->open_s > 0 && !out->stopped ? SBP_PLAN_INFEASIBLE
                                                                         : SBP_PLAN_TIME_LIMIT;
        return;
    }
    out->status = e->ranking->proved > 0 ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    if (e->ranking->proved > 0)
        out->lower_bound_s = out->objective_s;
}

/* What finding that out may take of a search's time limit. */
#define LIMIT_SHARE 0.1

/* Where nothing fits, the candidates that were looked at say what would. */
static enum sbp_status find_least(struct explorer *e)
{
    int count = 0;
    struct sbp_request request = e->asked;
    struct sbp_least_candidate *candidate =
        SBP_NEW(&e->arena, struct sbp_least_candidate, e->node_count);
    if (candidate == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < e->node_count; i++)
        if (e->node[i].least_bytes > 0 && isfinite(e->node[i].least_bytes))
            candidate[count++] =
                (struct sbp_least_candidate){i, e->node[i].parallel, e->node[i].least_bytes};
    e->out->least_bytes = INFINITY;
    for (int i = 0; i < count; i++)
        e->out->least_bytes = fmin(e->out->least_bytes, candidate[i].bound_bytes);
    request.solver_options.time_limit_s *= LIMIT_SHARE; /* the search may have used all of it up */
    request.solver_options.max_evaluations = 0;
    return sbp_least_find(e->plan, &request, candidate, count, &e->out->needed_bytes,
                          &e->out->needed_by, e->diag);
}

static enum sbp_status explore(struct explorer *e)
{
    SBP_TRY(begin(e));
    const struct sbp_parallel given = e->plan->parallel;
    SBP_TRY(search_near(e));
    SBP_TRY(push_rest(e));
    SBP_TRY(search(e, MIXED));
    SBP_TRY(offer_first(e));
    const struct sbp_ranked *best = e->ranking->count > 0 ? &e->ranking->plan[0] : NULL;
    if (!e->any_legal && best == NULL && !e->out->stopped)
        return sbp_fail(e->diag, SBP_E_INPUT, "%s", e->refusal.text);
    conclude(e);
    if (best == NULL) {
        SBP_TRY(find_least(e));
        return sbp_plan_set_parallel(e->plan, &given, e->diag);
    }
    e->plan->strategy = best->strategy;
    return sbp_plan_set_parallel(e->plan, &best->parallel, e->diag);
}

enum sbp_status sbp_explore_top(struct sbp_plan *plan, const struct sbp_request *request, int most,
                                struct sbp_ranking *ranking, struct sbp_outcome *outcome,
                                struct sbp_diag *diag)
{
    *outcome = (struct sbp_outcome){.objective_s = INFINITY, .lower_bound_s = -INFINITY};
    struct explorer e = {.plan = plan,
                         .request = request,
                         .out = outcome,
                         .diag = diag,
                         .ranking = ranking,
                         .open_s = INFINITY,
                         .start_s = sbp_clock_s(),
                         .asked = *request};
    e.asked.zero_is_free = !request->runnable &&
                           sbp_space_rule(request->space)->outer.per_layer_zero &&
                           !sbp_request_gives(request, "zero");
    enum sbp_status status = sbp_ranking_init(ranking, plan, most);
    if (status == SBP_OK)
        status = explore(&e);
    for (int i = 0; i < ranking->count; i++)
        ranking->plan[i].split = NULL; /* its arena ends here */
    sbp_space_store_free(&e.store);
    sbp_arena_free(&e.arena);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while searching");
    return status;
}

enum sbp_status sbp_explore(struct sbp_plan *plan, const struct sbp_request *request,
                            struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    struct sbp_ranking ranking;
    return sbp_explore_top(plan, request, 1, &ranking, outcome, diag);
}
