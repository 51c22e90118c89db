#include "planner/outer/step_cuts.h"

#include <math.h>
#include <string.h>

#include "costmodel/program/price.h"
#include "costmodel/program/runnable.h"
#include "planner/limits.h"
#include "planner/pricing/pricing.h"

/* Flops of the global batch on a piece; again: recomputed by its blocks. */
struct piece_flops {
    double forward, backward, again;
};

/* One way to cut the model into pieces, worked out when it is first asked for. */
struct cut {
    bool known, legal;
    struct piece_flops *piece; /* (pieces) */
    int *first;                /* (pieces + 1) */
};

struct lister {
    const struct sbp_cut *given;
    const struct sbp_request *request;
    struct sbp_outer open;                  /* open in the space and not given by the request */
    bool chunks, pipeline_limit, stage_cut; /* further keys that are open */
    bool attends;                           /* the model has attention */
    struct sbp_arena *arena;
    struct sbp_step_cuts *out;
    int room;
    int blocks;
    double flops_per_s;         /* of a device */
    double *forward, *backward; /* (op_count) flops of the global batch, at the peak */
    int *block;                 /* (op_count) */
    bool *again;           /* (op_count) recomputed with full recompute, in the piece at hand */
    struct cut *by_pieces; /* (op_count + 1, SBP_STAGE_CUTS) */
};

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Whether gradients of an operator need its input. */
static bool needs_input(const struct sbp_op_node *node)
{
    switch (node->kind) {
    case SBP_OP_LINEAR:
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM:
    case SBP_OP_GELU:
    case SBP_OP_SWIGLU:
    case SBP_OP_MOE:
    case SBP_OP_CONV2D:
        return true;
    default:
        return false;
    }
}

/* Flops that a piece recomputes: those of operators whose output the gradient of another operator
 * of the block needs, or whose output a recomputed operator needs. The last product of a block is
 * only added to what goes on, so that it is not recomputed. */
static double flops_again(const struct lister *l, int first, int end)
{
    const struct sbp_graph *graph = &l->given->graph;
    double flops = 0;
    for (int op = first; op < end; op++)
        l->again[op] = false;
    for (int op = end - 1; op >= first; op--) {
        flops += l->again[op] ? l->forward[op] : 0;
        for (int i = 0; i < graph->op[op].input_count; i++) {
            const int producer = graph->tensor[graph->op[op].input[i]].producer;
            if (producer >= first && l->block[producer] >= 0 && l->block[producer] == l->block[op])
                l->again[producer] |= l->again[op] || needs_input(&graph->op[op]);
        }
    }
    return flops;
}

static struct piece_flops piece_flops(const struct lister *l, int first, int end)
{
    struct piece_flops flops = {.again = flops_again(l, first, end)};
    for (int op = first; op < end; op++) {
        flops.forward += l->forward[op];
        flops.backward += l->backward[op];
    }
    return flops;
}

static enum sbp_status make_cut(const struct lister *l, int pieces,
                                const struct sbp_parallel *parallel, struct cut *cut)
{
    struct sbp_diag unsaid = {{0}};
    const struct sbp_graph *graph = &l->given->graph;
    cut->known = true;
    cut->first = SBP_NEW(l->arena, int, pieces + 1);
    cut->piece = SBP_NEW(l->arena, struct piece_flops, pieces);
    if (cut->first == NULL || cut->piece == NULL)
        return SBP_E_MEMORY;
    const enum sbp_status status = sbp_stages_cut_as(graph, pieces, parallel, cut->first, &unsaid);
    cut->legal = status == SBP_OK;
    for (int i = 0; i < pieces && cut->legal; i++)
        cut->piece[i] = piece_flops(l, cut->first[i], cut->first[i + 1]);
    return status == SBP_E_INPUT ? SBP_OK : status;
}

/* Finds the cut into pieces; NULL where the model cannot be cut so, or is too large to be cut
 * within blocks. */
static enum sbp_status find_cut(const struct lister *l, const struct sbp_parallel *parallel,
                                const struct cut **found)
{
    const int64_t pieces = sbp_parallel_pieces(parallel);
    *found = NULL;
    if (pieces > l->given->graph.op_count ||
        (l->open.pipeline && pieces > 1 && pieces > l->blocks &&
         l->given->graph.op_count > SBP_OUTER_FREE_CUT_OPERATORS))
        return SBP_OK;
    struct cut *cut = &l->by_pieces[pieces * SBP_STAGE_CUTS + parallel->stage_cut];
    if (!cut->known)
        SBP_TRY(make_cut(l, (int)pieces, parallel, cut));
    *found = cut->legal ? cut : NULL;
    return SBP_OK;
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* The longest path over a stage, in flops of one micro-batch. Late weight gradients (zero bubble)
 * are not on the way back. */
static double longest_path(const struct lister *l, const struct sbp_parallel *parallel,
                           const struct cut *cut)
{
    const int stages = (int)parallel->pipeline, chunks = (int)parallel->chunks;
    const double micro_batches = (double)sbp_parallel_micro_batches(parallel, &l->given->graph);
    const bool late = sbp_timeline_weights_wait(parallel->schedule);
    const double again = parallel->recompute == SBP_RECOMPUTE_FULL ? 1 : 0;
    double longest = 0, before = 0;
    for (int stage = 0; stage < stages; stage++) {
        double work = 0;
        for (int chunk = 0; chunk < chunks; chunk++) {
            const struct piece_flops *flops = &cut->piece[chunk * stages + stage];
            work += flops->forward + flops->backward + again * flops->again;
        }
        longest = fmax(longest, before + micro_batches * work);
        const struct piece_flops *passed = &cut->piece[stage];
        before += passed->forward + (late ? 0 : passed->backward + again * passed->again);
    }
    return longest / micro_batches;
}

static double bound_s(const struct lister *l, const struct sbp_parallel *parallel,
                      const struct cut *cut)
{
    if (l->request->objective != SBP_STEP_TIME || sbp_timeline_delays_gradients(parallel->schedule))
        return 0;
    const double devices = (double)sbp_cluster_devices(l->given->cluster);
    return longest_path(l, parallel, cut) * (double)parallel->pipeline / (devices * l->flops_per_s);
}

static double backward_flops(const struct sbp_pricing *pricing, int op)
{
    const struct sbp_graph *graph = pricing->graph;
    const bool weights = graph->op[op].weight_count > 0;
    const bool inputs =
        sbp_op_forms_input_gradient(graph, op) || (weights && !sbp_op_has_weight_phase(graph, op));
    return (inputs ? sbp_price_least_peak_flops(pricing, op, SBP_PASS_INPUT_GRADIENT) : 0) +
           (weights ? sbp_price_least_peak_flops(pricing, op, SBP_PASS_WEIGHT_GRADIENT) : 0);
}

static enum sbp_status measure_model(struct lister *l)
{
    const struct sbp_graph *graph = &l->given->graph;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, l->given->cluster, &bytes);
    const double probe = 1e18; /* flops, long against a launch */
    const double scale = (double)graph->global_batch / (double)graph->micro_batch;
    l->forward = SBP_NEW(l->arena, double, graph->op_count + 1);
    l->backward = SBP_NEW(l->arena, double, graph->op_count + 1);
    l->block = SBP_NEW(l->arena, int, graph->op_count + 1);
    l->again = SBP_NEW(l->arena, bool, graph->op_count + 1);
    l->by_pieces = SBP_NEW(l->arena, struct cut, (graph->op_count + 1) * SBP_STAGE_CUTS);
    if (l->forward == NULL || l->backward == NULL || l->block == NULL || l->again == NULL ||
        l->by_pieces == NULL)
        return SBP_E_MEMORY;
    l->blocks = sbp_stages_blocks(graph, l->block);
    l->flops_per_s = probe / (sbp_cluster_kernel_s(pricing.cluster, pricing.type, probe, 0) -
                              sbp_cluster_kernel_s(pricing.cluster, pricing.type, 0, 0));
    for (int op = 0; op < graph->op_count; op++) {
        const int site = graph->op[op].site;
        const bool measured = graph->op[op].custom != NULL; /* may be faster than its flops say */
        l->attends |= sbp_pricing_is_attention(graph->op[op].kind);
        if (site < op && sbp_op_works_alike(graph, op, site)) {
            l->forward[op] = l->forward[site];
            l->backward[op] = l->backward[site];
        } else if (!measured) {
            l->forward[op] = scale * sbp_price_least_peak_flops(&pricing, op, SBP_PASS_FORWARD);
            l->backward[op] = scale * backward_flops(&pricing, op);
        }
    }
    return SBP_OK;
}

/* ---- the list ------------------------------------------------------------------------------- */

static enum sbp_status add(struct lister *l, const struct sbp_parallel *parallel,
                           const struct cut *cut)
{
    struct sbp_step_cuts *out = l->out;
    struct sbp_diag unsaid = {{0}};
    if (sbp_parallel_check(parallel, &l->given->graph, l->given->cluster, &unsaid) != SBP_OK)
        return SBP_OK;
    if (out->count == l->room) {
        const int room = 2 * l->room + 64;
        struct sbp_step_cut *grown = SBP_NEW(l->arena, struct sbp_step_cut, room);
        if (grown == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < out->count; i++)
            grown[i] = out->candidate[i];
        out->candidate = grown;
        l->room = room;
    }
    out->candidate[out->count++] =
        (struct sbp_step_cut){.parallel = *parallel, .bound_s = bound_s(l, parallel, cut)};
    return SBP_OK;
}

/* Whether a recompute mode may be taken, and differs from those that recompute less. */
static bool is_of_use(const struct lister *l, enum sbp_recompute recompute)
{
    const unsigned asked = l->request->recomputes;
    if (asked != 0 && (asked >> recompute & 1) == 0)
        return false;
    return recompute != SBP_RECOMPUTE_ATTENTION || l->attends;
}

/* Adds the ways to recompute, to gather inputs once more and to offload; those without offload,
 * within them those that keep what was gathered, and within these those without recompute come
 * first. */
static enum sbp_status add_memory(struct lister *l, struct sbp_parallel parallel,
                                  const struct cut *cut)
{
    const bool may_offload = l->open.offload && l->given->cluster->host_link_bytes_per_s > 0;
    const int first = l->open.recompute ? 0 : (int)parallel.recompute;
    const int last = l->open.recompute ? SBP_RECOMPUTES - 1 : (int)parallel.recompute;
    const bool offloads = parallel.offload, regathers = parallel.regather;
    const int ways = (may_offload ? 2 : 1) * (l->open.regather ? 2 : 1);
    for (int way = 0; way < ways; way++)
        for (int again = first; again <= last; again++) {
            if (first < last && !is_of_use(l, (enum sbp_recompute)again))
                continue;
            parallel.recompute = (enum sbp_recompute)again;
            parallel.regather = l->open.regather ? way % 2 == 1 : regathers;
            parallel.offload = may_offload ? way / (l->open.regather ? 2 : 1) == 1 : offloads;
            SBP_TRY(add(l, &parallel, cut));
        }
    return SBP_OK;
}

/* ZeRO levels of the step that layers do not choose: of all of them; or, where that has to run, of
 * a weight that stages tie. */
static unsigned step_levels(const struct lister *l, const struct sbp_parallel *parallel)
{
    const bool ties = l->request->runnable && parallel->pipeline > 1 &&
                      sbp_graph_is_tied(&l->given->graph) &&
                      !sbp_request_gives(l->request, "zero") && parallel->chunk_factor == 0;
    if (l->open.per_layer_zero)
        return ties ? 0xf : 0;
    return l->open.zero_levels;
}

static enum sbp_status add_zero(struct lister *l, struct sbp_parallel parallel,
                                const struct cut *cut)
{
    const unsigned levels = step_levels(l, &parallel);
    if (levels == 0)
        return add_memory(l, parallel, cut);
    for (int level = 0; level <= 3; level++) {
        parallel.zero = level;
        if (levels >> level & 1)
            SBP_TRY(add_memory(l, parallel, cut));
    }
    return SBP_OK;
}

/* Adds stages of equally many blocks and, where that differs, of equally many flops. */
static enum sbp_status add_cuts(struct lister *l, struct sbp_parallel parallel)
{
    const size_t pieces = (size_t)sbp_parallel_pieces(&parallel);
    const struct cut *even, *by_flops;
    SBP_TRY(find_cut(l, &parallel, &even));
    if (even == NULL)
        return SBP_OK;
    SBP_TRY(add_zero(l, parallel, even));
    if (!l->stage_cut || pieces < 2)
        return SBP_OK;
    parallel.stage_cut = SBP_CUT_FLOPS;
    SBP_TRY(find_cut(l, &parallel, &by_flops));
    if (by_flops == NULL ||
        memcmp(even->first, by_flops->first, (pieces + 1) * sizeof *even->first) == 0)
        return SBP_OK;
    return add_zero(l, parallel, by_flops);
}

static enum sbp_status add_interleaved(struct lister *l, struct sbp_parallel parallel)
{
    const int64_t given = parallel.chunks;
    const int64_t most = l->chunks ? l->blocks / parallel.pipeline : given;
    for (int64_t chunks = l->chunks ? 2 : given; chunks <= most; chunks++) {
        parallel.chunks = chunks;
        if (chunks >= 2 && (!l->chunks || l->blocks % (chunks * parallel.pipeline) == 0))
            SBP_TRY(add_cuts(l, parallel));
    }
    return SBP_OK;
}

/* Adds the schedules of several stages. A zero bubble has as many micro-batches in flight as there
 * are stages (ZB-H1), or about twice as many (ZB-H2). */
static enum sbp_status add_schedules(struct lister *l, struct sbp_parallel parallel)
{
    const unsigned schedules = l->open.schedules != 0 ? l->open.schedules : 1u << parallel.schedule;
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++) {
        struct sbp_parallel one = parallel;
        one.schedule = (enum sbp_schedule)schedule;
        if (schedule == SBP_CDP_V1 && (schedules >> SBP_CDP_V2 & 1) != 0)
            continue; /* it takes as long, holds no less, and delays more gradients */
        if (!(schedules >> schedule & 1))
            continue;
        if (schedule == SBP_INTERLEAVED) {
            SBP_TRY(add_interleaved(l, one));
            continue;
        }
        if (l->chunks)
            one.chunks = 1;
        SBP_TRY(add_cuts(l, one));
        if (schedule == SBP_ZERO_BUBBLE && l->pipeline_limit) {
            one.pipeline_limit = 2 * one.pipeline - 1;
            SBP_TRY(add_cuts(l, one));
        }
    }
    return SBP_OK;
}

static enum sbp_status add_stages(struct lister *l, struct sbp_parallel parallel)
{
    return parallel.pipeline > 1 || l->open.schedules == 0 ? add_schedules(l, parallel)
                                                           : add_cuts(l, parallel);
}

static enum sbp_status add_micro_batches(struct lister *l, struct sbp_parallel parallel)
{
    const int64_t batch = l->given->graph.global_batch;
    if (!l->open.micro_batch)
        return add_stages(l, parallel);
    for (int64_t count = 1; count <= batch && count <= SBP_OUTER_MICRO_BATCHES; count++) {
        parallel.micro_batch = batch / count;
        if (batch % count == 0 &&
            (l->request->replicas == 0 || parallel.micro_batch % l->request->replicas == 0))
            SBP_TRY(add_stages(l, parallel));
    }
    return SBP_OK;
}

static enum sbp_status add_all(struct lister *l)
{
    struct sbp_parallel parallel = l->given->parallel;
    const int64_t devices = sbp_cluster_devices(l->given->cluster);
    parallel.allow_delayed_gradients |= l->open.allow_delayed_gradients;
    if (!l->open.pipeline)
        return add_micro_batches(l, parallel);
    for (int64_t stages = l->open.least_stages;
         stages <= devices && stages <= l->given->graph.op_count; stages++) {
        struct sbp_cluster stage;
        struct sbp_diag unsaid = {{0}};
        int level;
        parallel.pipeline = stages;
        if (devices % sbp_parallel_groups(&parallel) == 0 &&
            sbp_parallel_stage_cluster(&parallel, l->given->cluster, &stage, &level, &unsaid) ==
                SBP_OK)
            SBP_TRY(add_micro_batches(l, parallel));
    }
    return SBP_OK;
}

/* Finds the keys that are open: those of the space that the request does not give. */
static void find_open(struct lister *l)
{
    const struct sbp_request *request = l->request;
    const struct sbp_parallel *given = &l->given->parallel;
    l->open = sbp_space_rule(request->space)->outer;
    l->stage_cut = l->open.pipeline && !sbp_request_gives(request, "stage_cut");
    l->open.pipeline &= !sbp_request_gives(request, "pipeline");
    l->open.micro_batch &= !sbp_request_gives(request, "micro_batch");
    l->open.recompute &= !sbp_request_gives(request, "recompute");
    l->open.regather &= !sbp_request_gives(request, "regather") && !request->quick;
    l->open.offload &= !sbp_request_gives(request, "offload");
    if (request->zero_levels != 0)
        l->open.zero_levels &= request->zero_levels;
    if (sbp_request_gives(request, "zero"))
        l->open.zero_levels = 1u << given->zero;
    if (sbp_request_gives(request, "schedule"))
        l->open.schedules = 1u << given->schedule;
    l->chunks = l->open.schedules != 0 && !sbp_request_gives(request, "chunks");
    l->pipeline_limit = l->open.schedules != 0 && !sbp_request_gives(request, "pipeline_limit");
}

enum sbp_status sbp_step_cuts_list(const struct sbp_cut *given, const struct sbp_request *request,
                                   struct sbp_arena *arena, struct sbp_step_cuts *candidates,
                                   struct sbp_diag *diag)
{
    struct lister l = {.given = given, .request = request, .arena = arena, .out = candidates};
    *candidates = (struct sbp_step_cuts){0};
    find_open(&l);
    enum sbp_status status = measure_model(&l);
    if (status == SBP_OK)
        status = add_all(&l);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "out of memory while listing what may be around a strategy");
    if (candidates->count > 0)
        return SBP_OK;
    /* Names what is wrong with the given keys. */
    SBP_TRY(sbp_parallel_check(&given->parallel, &given->graph, given->cluster, diag));
    if (given->parallel.schedule == SBP_INTERLEAVED && l.chunks)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: schedule: interleaved deals the model's %d blocks out evenly to "
                        "2 stages and more with 2 chunks and more each, which no cut does that the "
                        "other keys leave; legal are other schedules, or chunks and pipeline given",
                        l.blocks);
    return sbp_fail(diag, SBP_E_INPUT,
                    "parallel: no legal way to cut the step into %d stages or more and equal "
                    "micro-batches: fewer of the keys pipeline, micro_batch, schedule and chunks "
                    "may be given",
                    l.open.least_stages);
}
