/* Weights and paths of steps that are cut at random: what paths count of each operator,
 * micro-batches that stages keep beside the timeline of the whole step, which stages can be the
 * fullest; paths that no step is shorter than, whatever it takes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "costmodel/program/stages.h"
#include "planner/inner/cut_solve.h"
#include "planner/paths/path_critical.h"
#include "costmodel/timeline/works.h"
#include "planner/paths/path_weights.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

enum { DRAWS = 1000, DEVICES = 8, MOST_PIECES = 16, MOST_OPS = 256 };

static void open_plan(int blocks, struct sbp_plan *plan)
{
    char model[256];
    static const char *const cluster =
        "{\"name\": \"c\", \"levels\": [{\"name\": \"n\", \"size\": 8, \"alpha_s\": 1e-5, "
        "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": "
        "1e12}, \"memory_bytes_per_s\": 1e11}}";
    struct sbp_diag diag = {{0}};
    snprintf(model, sizeof model,
             "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": %d, \"hidden\": 64, "
             "\"heads\": 4, \"sequence\": 32, \"vocab\": 512, \"global_batch\": 48}",
             blocks);
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
    assert_true(plan->cut.graph.op_count <= MOST_OPS);
}

/* False: not legal. */
static bool draw_cut(struct sbp_random *random, struct sbp_plan *plan)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE, SBP_MESSAGE_DRIVEN};
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = INT64_C(1) << (1 + sbp_random_below(random, 3));
    parallel.micro_batch = INT64_C(1) << sbp_random_below(random, 5);
    parallel.schedule = schedules[sbp_random_below(random, 5)];
    parallel.chunks = 1;
    parallel.pipeline_limit = 0;
    if (parallel.schedule == SBP_INTERLEAVED)
        parallel.chunks = INT64_C(2) << sbp_random_below(random, 2);
    if (parallel.schedule == SBP_ZERO_BUBBLE || parallel.schedule == SBP_MESSAGE_DRIVEN)
        parallel.pipeline_limit = (int64_t)sbp_random_below(random, 20);
    const int64_t pieces = parallel.pipeline * parallel.chunks;
    return pieces <= MOST_PIECES && sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK &&
           sbp_stages_cut(&plan->cut.graph, (int)pieces, parallel.stage_cut,
                          (int[MOST_PIECES + 1]){0}, &refusal) == SBP_OK;
}

static void open_view(const struct sbp_plan *plan, struct sbp_random *random, struct sbp_path *path,
                      struct sbp_path_weights *weights, struct sbp_arena *arena)
{
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_path_longest(&plan->cut, arena, path), SBP_OK);
    for (int i = 0; i < 5 * path->pieces + path->stages; i++)
        path->all[i] = (double)sbp_random_below(random, 100);
    path->sent[path->pieces - 1] = path->returned[0] = 0;
    if (sbp_path_weights_make(&plan->cut, path, arena, weights, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* ---- what counts ---------------------------------------------------------------------------- */

static void check_path(const struct sbp_plan *plan, const struct sbp_path *path,
                       const struct sbp_path_weights *weights)
{
    assert_int_equal(weights->pieces, path->pieces);
    assert_int_equal(weights->first[0], 0);
    assert_int_equal(weights->first[weights->pieces], plan->cut.graph.op_count);
    for (int piece = 0; piece < path->pieces; piece++) {
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++) {
            assert_true(weights->forward[op] == path->forward[piece]);
            assert_true(weights->backward[op] == path->backward[piece]);
            assert_true(weights->weight[op] == path->weight[piece]);
            assert_true(weights->end[op] == path->end[piece % path->stages]);
        }
        if (piece > 0)
            assert_true(weights->crossed[piece] == path->sent[piece - 1] + path->returned[piece]);
    }
}

/* ---- what stages keep ----------------------------------------------------------------------- */

/* Works take what they take, and micro-batches of chunks are of any size. */
static void draw_costs(struct sbp_random *random, int count, struct sbp_stage_cost *cost)
{
    for (int i = 0; i < count; i++)
        cost[i] =
            (struct sbp_stage_cost){.forward_s = sbp_random_unit(random),
                                    .backward_input_s = sbp_random_unit(random),
                                    .backward_weight_s = sbp_random_unit(random),
                                    .send_forward_s = sbp_random_unit(random),
                                    .send_backward_s = sbp_random_unit(random),
                                    .kept_bytes = (int64_t)sbp_random_below(random, 1000),
                                    .transient_bytes = (int64_t)sbp_random_below(random, 3000)};
}

static void complain(const struct sbp_plan *plan, int stage, double kept, int in_flight)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    fail_msg("%s, %" PRId64 " stages of %" PRId64 " chunks, micro-batch %" PRId64 ", limit %" PRId64
             ": stage %d keeps %g, has %d in flight",
             sbp_timeline_schedule_name(parallel->schedule), parallel->pipeline, parallel->chunks,
             parallel->micro_batch, parallel->pipeline_limit, stage, kept, in_flight);
}

/* Checks stages of several chunks. A stage is as full as at the fullest of its moments, which
 * counts the activations that are kept and the extra memory of the chunk that works. */
static void check_moments(const struct sbp_plan *plan, const struct sbp_path_weights *weights,
                          const struct sbp_stage_cost *cost, const struct sbp_timeline *timeline)
{
    const int stages = (int)plan->cut.parallel.pipeline, chunks = (int)plan->cut.parallel.chunks;
    double most[DEVICES] = {0};
    for (int i = 0; i < weights->moment_count; i++) {
        const struct sbp_moment *moment = &weights->moment[i];
        const int stage = moment->piece % stages, own = moment->piece / stages;
        double bytes = (double)cost[stage * chunks + own].transient_bytes;
        assert_true(moment->kept[own] >= 1);
        for (int chunk = 0; chunk < chunks; chunk++)
            bytes += moment->kept[chunk] * (double)cost[stage * chunks + chunk].kept_bytes;
        most[stage] = fmax(most[stage], bytes);
    }
    for (int i = 0; i < weights->memory_stages && chunks > 1; i++)
        assert_true(most[weights->stage[i]] ==
                    (double)timeline->device[weights->stage[i]].peak_bytes);
    assert_true(chunks > 1 || weights->moment_count == 0);
}

/* Micro-batches in flight that have not gone back, at most: their weight gradients may wait. */
static int most_ahead(const struct sbp_timeline_request *request, int stage,
                      struct sbp_arena *arena)
{
    struct sbp_timeline_work *work;
    struct sbp_diag diag = {{0}};
    int64_t count;
    int ahead = 0, most = 0;
    if (sbp_timeline_works(request, stage, arena, &work, &count, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int64_t i = 0; i < count; i++) {
        ahead += work[i].kind == SBP_WORK_FORWARD;
        most = ahead > most ? ahead : most;
        ahead -= work[i].kind == SBP_WORK_BACKWARD;
    }
    return most;
}

/* As many as are in flight; where stages do what has come, as many as can be in any timeline. */
static void check_kept(const struct sbp_plan *plan, const struct sbp_path_weights *weights,
                       struct sbp_random *random, struct sbp_arena *arena)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    const int stages = (int)parallel->pipeline, chunks = (int)parallel->chunks;
    struct sbp_stage_cost cost[MOST_PIECES];
    struct sbp_timeline timeline;
    struct sbp_diag diag = {{0}};
    draw_costs(random, stages * chunks, cost);
    struct sbp_timeline_request request =
        sbp_path_timeline(&plan->cut, sbp_parallel_micro_batches(parallel, &plan->cut.graph), cost);
    request.is_brief = true;
    if (sbp_timeline_simulate(&request, arena, &timeline, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int stage = 0; stage < stages; stage++) {
        const struct sbp_device_timeline *device = &timeline.device[stage];
        double kept = 0, bytes = 0;
        for (int chunk = 0; chunk < chunks; chunk++) {
            const double each = weights->kept[weights->first[chunk * stages + stage]];
            kept += each;
            bytes += each * (double)cost[stage * chunks + chunk].kept_bytes;
        }
        const bool is_driven = parallel->schedule == SBP_MESSAGE_DRIVEN;
        const int in_flight = is_driven || parallel->schedule == SBP_ZERO_BUBBLE
                                  ? most_ahead(&request, stage, arena)
                                  : device->in_flight;
        if (kept != in_flight || (is_driven && kept < device->in_flight))
            complain(plan, stage, kept, in_flight);
        const bool waits = parallel->schedule == SBP_ZERO_BUBBLE;
        const double parked = weights->parked[weights->first[stage]];
        assert_true(parked == (waits ? device->in_flight - kept : 0));
        assert_true(is_driven || bytes <= (double)device->peak_bytes);
    }
    check_moments(plan, weights, cost, &timeline);
}

/* ---- stages that can be the fullest --------------------------------------------------------- */

struct load {
    double held[MOST_OPS], kept[MOST_OPS], parked[MOST_OPS]; /* by site */
};

static void load_stages(const struct sbp_plan *plan, const struct sbp_path_weights *weights,
                        struct load *load)
{
    for (int stage = 0; stage < plan->cut.parallel.pipeline; stage++)
        load[stage] = (struct load){.held = {0}};
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++) {
            struct load *of = &load[piece % plan->cut.parallel.pipeline];
            of->held[plan->cut.graph.op[op].site] += 1;
            of->kept[plan->cut.graph.op[op].site] += weights->kept[op];
            of->parked[plan->cut.graph.op[op].site] += weights->parked[op];
        }
}

static bool covers(const struct load *a, const struct load *b)
{
    bool covers = true;
    for (int op = 0; op < MOST_OPS; op++)
        covers &= a->held[op] >= b->held[op] && a->kept[op] >= b->kept[op] &&
                  a->parked[op] >= b->parked[op];
    return covers;
}

/* Whatever sites hold, keep and park, a memory stage needs no less than any stage. */
static void check_fullest(const struct load *load, int stages,
                          const struct sbp_path_weights *weights, struct sbp_random *random)
{
    double bytes[DEVICES] = {0}, most = 0, most_checked = 0;
    for (int op = 0; op < MOST_OPS; op++) {
        const double held = sbp_random_unit(random), kept = sbp_random_unit(random);
        const double parked = 2 * sbp_random_unit(random);
        for (int stage = 0; stage < stages; stage++)
            bytes[stage] += held * load[stage].held[op] + kept * load[stage].kept[op] +
                            parked * load[stage].parked[op];
    }
    for (int stage = 0; stage < stages; stage++)
        most = fmax(most, bytes[stage]);
    for (int i = 0; i < weights->memory_stages; i++)
        most_checked = fmax(most_checked, bytes[weights->stage[i]]);
    if (most_checked < most * (1 - 1e-9))
        fail_msg("a stage needs %.17g, no memory stage more than %.17g", most, most_checked);
}

static void check_points(const struct sbp_plan *plan, const struct sbp_path_weights *weights,
                         struct sbp_random *random)
{
    static struct load load[DEVICES];
    const int stages = (int)plan->cut.parallel.pipeline;
    int point_of[DEVICES];
    load_stages(plan, weights, load);
    for (int i = 0; i < 4; i++)
        check_fullest(load, stages, weights, random);
    for (int stage = 0; stage < stages; stage++) {
        point_of[stage] = -1;
        for (int i = 0; i < weights->memory_stages; i++) {
            const bool is_point = weights->stage[i] == stage;
            point_of[stage] = is_point ? i : point_of[stage];
            for (int k = 0; is_point && k < weights->memory_stages; k++)
                assert_int_equal(covers(&load[weights->stage[k]], &load[stage]), k == i);
        }
    }
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
            assert_int_equal(weights->point[op], point_of[piece % stages]);
}

/* Blocks that stages share evenly, or not. */
static void run_cuts(int blocks, int *seen)
{
    struct sbp_plan plan;
    open_plan(blocks, &plan);
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct sbp_random random;
        struct sbp_arena arena;
        struct sbp_path path;
        struct sbp_path_weights weights;
        sbp_random_seed(&random, seed);
        if (!draw_cut(&random, &plan))
            continue;
        sbp_arena_init(&arena);
        open_view(&plan, &random, &path, &weights, &arena);
        check_path(&plan, &path, &weights);
        check_kept(&plan, &weights, &random, &arena);
        check_points(&plan, &weights, &random);
        sbp_arena_free(&arena);
        seen[plan.cut.parallel.schedule]++;
    }
    sbp_plan_free(&plan);
}

static void test_cuts(void **state)
{
    (void)state;
    int seen[SBP_SCHEDULES] = {0};
    for (int blocks = 5; blocks <= 8; blocks++)
        run_cuts(blocks, seen);
    for (int schedule = 0; schedule <= SBP_MESSAGE_DRIVEN; schedule++)
        assert_true(seen[schedule] >= DRAWS / 20);
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* The times of works, messages and ends, for the timeline and in the shape of a path. */
struct times {
    struct sbp_stage_cost cost[MOST_PIECES];
    struct sbp_stage_end end[DEVICES];
    struct sbp_path path;
};

/* Some take nothing, some long. */
static double draw_s(struct sbp_random *random)
{
    const double seconds = sbp_random_unit(random);
    return sbp_random_below(random, 4) == 0 ? 0 : seconds * seconds * seconds;
}

static void set_costs(const struct sbp_plan *plan, struct times *times)
{
    const struct sbp_path *path = &times->path;
    const int chunks = (int)plan->cut.parallel.chunks;
    for (int piece = 0; piece < path->pieces; piece++)
        times->cost[piece % path->stages * chunks + piece / path->stages] =
            (struct sbp_stage_cost){.forward_s = path->forward[piece],
                                    .backward_input_s = path->backward[piece],
                                    .backward_weight_s = path->weight[piece],
                                    .send_forward_s = path->sent[piece],
                                    .send_backward_s = path->returned[piece]};
    for (int stage = 0; stage < path->stages; stage++)
        times->end[stage] = (struct sbp_stage_end){.optimizer_s = path->end[stage]};
}

static void draw_times(const struct sbp_plan *plan, struct sbp_random *random,
                       struct sbp_arena *arena, struct times *times)
{
    struct sbp_path *path = &times->path;
    assert_int_equal(sbp_path_longest(&plan->cut, arena, path), SBP_OK);
    for (int piece = 0; piece < path->pieces; piece++) {
        const bool is_last = piece == path->pieces - 1;
        path->forward[piece] = draw_s(random);
        path->backward[piece] = draw_s(random);
        path->weight[piece] = draw_s(random);
        path->sent[piece] = is_last ? 0 : draw_s(random);
        path->returned[piece] = piece == 0 ? 0 : draw_s(random);
    }
    for (int stage = 0; stage < path->stages; stage++)
        path->end[stage] = 5 * draw_s(random);
    set_costs(plan, times);
}

static double step_s(const struct sbp_plan *plan, const struct times *times,
                     struct sbp_arena *arena)
{
    struct sbp_timeline timeline;
    struct sbp_diag diag = {{0}};
    struct sbp_timeline_request request = sbp_path_timeline(
        &plan->cut, sbp_parallel_micro_batches(&plan->cut.parallel, &plan->cut.graph), times->cost);
    request.end = times->end;
    request.is_brief = true;
    if (sbp_timeline_simulate(&request, arena, &timeline, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return timeline.makespan_s;
}

/* Returns whether one of the two is as long as the step. */
static bool check_paths(const struct sbp_plan *plan, struct sbp_random *random,
                        struct sbp_arena *arena)
{
    struct sbp_path longest, expected;
    struct sbp_diag diag = {{0}};
    struct times times;
    draw_times(plan, random, arena, &times);
    assert_int_equal(sbp_path_longest(&plan->cut, arena, &longest), SBP_OK);
    const size_t used_bytes = arena->used_bytes;
    assert_int_equal(sbp_path_longest(&plan->cut, arena, &expected), SBP_OK);
    const size_t path_bytes = arena->used_bytes - used_bytes;
    if (sbp_path_expected(&plan->cut, arena, &expected, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(arena->used_bytes, used_bytes + 2 * path_bytes); /* the path alone is kept */
    const double seconds = step_s(plan, &times, arena);
    const double one_s = sbp_path_length_s(&longest, &times.path);
    const double other_s = sbp_path_length_s(&expected, &times.path);
    if (!(one_s <= seconds * (1 + 1e-9) && other_s <= seconds * (1 + 1e-9)))
        fail_msg("%s, %d stages: paths of %.12g and %.12g, a step of %.12g",
                 sbp_timeline_schedule_name(plan->cut.parallel.schedule), longest.stages, one_s,
                 other_s, seconds);
    return fmax(one_s, other_s) >= seconds * (1 - 1e-9);
}

/* Where the last stage and the end after the path take longest, its path is the step. */
static void check_longest(const struct sbp_plan *plan, struct sbp_random *random,
                          struct sbp_arena *arena)
{
    struct sbp_path longest;
    struct times times;
    assert_int_equal(sbp_path_longest(&plan->cut, arena, &longest), SBP_OK);
    draw_times(plan, random, arena, &times);
    const int last = longest.stages - 1;
    for (int piece = last; piece < longest.pieces; piece += longest.stages) {
        times.path.forward[piece] = times.path.backward[piece] = 10;
        times.path.weight[piece] = plan->cut.parallel.schedule == SBP_ZERO_BUBBLE ? 50 : 10;
    }
    for (int stage = 0; stage <= last; stage++)
        times.path.end[stage] = longest.end[stage] * 100;
    set_costs(plan, &times);
    const double length_s = sbp_path_length_s(&longest, &times.path);
    const double seconds = step_s(plan, &times, arena);
    if (!(fabs(length_s / seconds - 1) < 1e-9))
        fail_msg("%s, %d stages: a path of %.12g, a step of %.12g",
                 sbp_timeline_schedule_name(plan->cut.parallel.schedule), longest.stages, length_s,
                 seconds);
}

static void test_paths(void **state)
{
    (void)state;
    int seen[SBP_SCHEDULES] = {0}, met[SBP_SCHEDULES] = {0};
    struct sbp_plan plan;
    open_plan(8, &plan);
    for (uint64_t seed = 0; seed < 4 * DRAWS; seed++) {
        struct sbp_random random;
        struct sbp_arena arena;
        sbp_random_seed(&random, seed);
        if (!draw_cut(&random, &plan))
            continue;
        sbp_arena_init(&arena);
        met[plan.cut.parallel.schedule] += check_paths(&plan, &random, &arena);
        if (plan.cut.parallel.chunks == 1 && plan.cut.parallel.schedule != SBP_MESSAGE_DRIVEN)
            check_longest(&plan, &random, &arena);
        seen[plan.cut.parallel.schedule]++;
        sbp_arena_free(&arena);
    }
    for (int schedule = 0; schedule <= SBP_MESSAGE_DRIVEN; schedule++) {
        print_message("%-14s %4d steps, %d as long as a path\n",
                      sbp_timeline_schedule_name((enum sbp_schedule)schedule), seen[schedule],
                      met[schedule]);
        assert_true(seen[schedule] >= DRAWS / 20 && met[schedule] > 0);
    }
    sbp_plan_free(&plan);
}

/* Paths through sums of gradients; pieces that a path counts by their hosts, and by their
 * collectives. */
struct floors {
    int sums, hosts, links, sums_each;
};

/* A plan's own path is as long as its step, whether some of its end hides, outlasts what hides it
 * or is in host memory, and whether devices, hosts or links take longest. */
static void check_step(struct sbp_plan *plan, const struct sbp_parallel *how, struct floors *seen)
{
    /* Mirrored layers sum no gradients. */
    const struct sbp_request request = {.space = SBP_SPACE_FULL, .quick = true};
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_outcome found;
    struct sbp_step step;
    struct sbp_path path, times;
    struct sbp_diag diag = {{0}};
    parallel.pipeline = how->pipeline;
    parallel.micro_batch = 4;
    parallel.schedule = how->schedule;
    parallel.chunks = how->chunks;
    parallel.gradient_overlap = how->gradient_overlap;
    parallel.zero = how->zero;
    parallel.offload = how->offload;
    if (sbp_plan_cut(plan, &parallel, &diag) != SBP_OK ||
        solve_plan(plan, &request, &found, &diag) != SBP_OK ||
        sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK ||
        sbp_path_of_step(&plan->cut, &plan->strategy, &plan->arena, &path, &times, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const double length_s = sbp_path_length_s(&path, &times);
    if (fabs(length_s - step.totals.step_s) > 1e-9 * step.totals.step_s)
        fail_msg("%s, %" PRId64 " stages, overlap %g, offload %d: a path of %.12g, a step of %.12g",
                 sbp_timeline_schedule_name(how->schedule), how->pipeline, how->gradient_overlap,
                 how->offload, length_s, step.totals.step_s);
    for (int stage = 0; stage < path.stages; stage++)
        seen->sums += path.sync[stage] > 0;
    for (int piece = 0; piece < path.pieces; piece++) {
        seen->hosts += path.forward_host[piece] > 0;
        seen->links += path.forward_links[piece] > 0 && path.backward_links[piece] > 0;
        seen->sums_each += path.weight_links[piece] > 0;
    }
    sbp_step_free(&step);
}

static void test_steps(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE};
    static const double overlaps[] = {0, 0.01, 1};
    struct floors seen = {0};
    struct sbp_plan plan;
    open_plan(8, &plan);
    plan.workload.cluster.host_link_bytes_per_s = 1e10;
    for (int i = 0; i < 4; i++)
        for (int variant = 0; variant < 24; variant++) {
            struct sbp_runtime *const runtime = &plan.workload.cluster.runtime;
            runtime->host_s = variant / 6 % 2 == 1 ? 1e-4 : 0;
            runtime->hidden[SBP_HIDES_GRADIENTS] = 1;
            runtime->hidden[SBP_HIDES_ACTIVATIONS] = variant % 2;
            check_step(&plan,
                       &(struct sbp_parallel){.pipeline = 4,
                                              .schedule = schedules[i],
                                              .chunks = schedules[i] == SBP_INTERLEAVED ? 2 : 1,
                                              .gradient_overlap = overlaps[variant % 3],
                                              .zero = variant / 12 == 1 ? 2 : 0,
                                              .offload = variant / 3 % 2 == 1},
                       &seen);
        }
    print_message(
        "%d paths through sums of gradients; pieces: %d by hosts, %d by links, %d by sums\n",
        seen.sums, seen.hosts, seen.links, seen.sums_each);
    assert_true(seen.sums > 0 && seen.hosts > 0 && seen.links > 0 && seen.sums_each > 0);
    sbp_plan_free(&plan);
}

/* ---- the mean ------------------------------------------------------------------------------- */

/* Checks the mean weights: a device does its share of all works and messages, and all stages are
 * alike. */
static void test_mean(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_arena arena;
    struct sbp_path_weights weights;
    struct sbp_diag diag = {{0}};
    open_plan(8, &plan);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.pipeline = 4;
    parallel.micro_batch = 4; /* 12 of them */
    sbp_arena_init(&arena);
    assert_int_equal(sbp_plan_cut(&plan, &parallel, &diag), SBP_OK);
    assert_int_equal(sbp_path_weights_mean(&plan.cut, &arena, &weights, &diag), SBP_OK);
    double messages_s = 0;
    for (int piece = 1; piece < 4; piece++) {
        assert_true(weights.crossed[piece] == 2 * 12 / 4.0);
        messages_s += weights.crossed[piece] *
                      sbp_path_message_s(&plan.cut,
                                         sbp_stages_crossing(&plan.cut.graph, weights.first[piece]),
                                         (double)plan.cut.mesh.devices);
    }
    assert_true(messages_s > 0 && fabs(weights.message_s / messages_s - 1) < 1e-12);
    for (int op = 0; op < plan.cut.graph.op_count; op++) {
        assert_true(weights.forward[op] == 3 && weights.backward[op] == 3 &&
                    weights.weight[op] == 3);
        assert_true(weights.end[op] == 0.25);
    }
    sbp_arena_free(&arena);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_paths),
                                       cmocka_unit_test(test_steps), cmocka_unit_test(test_mean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
