/* Prices of a space with several stages: the sum along any path of a step bounds it, and along its
 * critical path is the step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/paths/path_critical.h"
#include "planner/plan/plan.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

#define TWO_LEVELS LEVEL("o", 12) ", " LEVEL("i", 2)

/* A cut of a step at random, under a schedule or (SBP_SCHEDULES) any; refused where it does not fit
 * the model. */
static bool draw_cut(struct sbp_random *random, enum sbp_schedule schedule, struct sbp_plan *plan)
{
    static const int64_t stages[] = {1, 2, 2, 3, 4, 4};
    struct sbp_parallel parallel = sbp_parallel_default(&plan->cut.graph);
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = stages[sbp_random_below(random, 6)];
    parallel.micro_batch =
        plan->cut.graph.global_batch / (1 + (int64_t)sbp_random_below(random, 12));
    parallel.schedule = (enum sbp_schedule)sbp_random_below(random, SBP_MESSAGE_DRIVEN + 1);
    parallel.schedule = schedule < SBP_SCHEDULES ? schedule : parallel.schedule;
    parallel.stage_cut = (enum sbp_stage_cut)sbp_random_below(random, SBP_STAGE_CUTS);
    if (parallel.schedule == SBP_INTERLEAVED)
        parallel.chunks = 2 + (int64_t)sbp_random_below(random, 2);
    if (parallel.schedule == SBP_ZERO_BUBBLE || parallel.schedule == SBP_MESSAGE_DRIVEN)
        parallel.pipeline_limit = (int64_t)sbp_random_below(random, 7);
    parallel.zero = (int64_t)sbp_random_below(random, 4);
    parallel.recompute = (enum sbp_recompute)sbp_random_below(random, SBP_RECOMPUTES);
    parallel.recompute_every = 1 + (int64_t)sbp_random_below(random, 2);
    parallel.offload = sbp_random_below(random, 3) == 0;
    parallel.bucket_parameters = INT64_C(1) << (4 + sbp_random_below(random, 12));
    parallel.gather_blocks = sbp_random_below(random, 4) == 0;
    parallel.regather = sbp_random_below(random, 4) == 0;
    parallel.keep_sent = sbp_random_below(random, 4) == 0;
    parallel.gradient_overlap = 0.25 * (double)sbp_random_below(random, 4);
    if (parallel.offload && sbp_random_below(random, 2) == 0) {
        parallel.chunk_factor = 1 + (int64_t)sbp_random_below(random, 4);
        parallel.gradient_overlap = 0;
    }
    return sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK;
}

static bool draw_parallel(struct sbp_random *random, struct sbp_plan *plan)
{
    return draw_cut(random, SBP_SCHEDULES, plan);
}

/* --- any path --- */

/* Counts passes by their device, their collectives or their host instead, at random. */
static void shuffle_floors(struct sbp_random *random, struct sbp_path *path)
{
    double *const passes[3][3] = {{path->forward, path->forward_links, path->forward_host},
                                  {path->backward, path->backward_links, path->backward_host},
                                  {path->weight, path->weight_links, path->weight_host}};
    for (int pass = 0; pass < 3; pass++)
        for (int piece = 0; piece < path->pieces; piece++) {
            const double count =
                passes[pass][0][piece] + passes[pass][1][piece] + passes[pass][2][piece];
            const double share = sbp_random_below(random, 2) ? sbp_random_unit(random) : 1;
            const uint64_t floor = sbp_random_below(random, 3);
            for (int i = 0; i < 3; i++)
                passes[pass][i][piece] = 0;
            passes[pass][floor][piece] = share * count;
            passes[pass][(floor + 1) % 3][piece] = (1 - share) * count;
        }
}

/* Some choices along one path. */
static void check_along(struct sbp_plan *plan, const struct sbp_path *path,
                        struct sbp_solve_request request, uint64_t seed, struct prices *prices)
{
    struct bench bench;
    struct sbp_diag diag = {{0}};
    struct sbp_random random;
    struct sbp_arena arena;
    struct sbp_path_weights weights;
    sbp_arena_init(&arena);
    sbp_random_seed(&random, seed);
    if (sbp_path_weights_make(&plan->cut, path, &arena, &weights, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    request.weights = &weights;
    bench_open(&bench, plan, &request);
    for (int i = 0; i < 3; i++)
        if (bench_draw(&bench, &random))
            check_price(plan, &bench, seed, prices);
    bench_close(&bench);
    sbp_arena_free(&arena);
}

/* The same where the trainer hides something, along other floors of the path, too. */
static void check_path(struct sbp_plan *plan, struct sbp_path *path,
                       struct sbp_solve_request request, uint64_t seed, struct prices *prices)
{
    struct sbp_random random;
    check_along(plan, path, request, seed, prices);
    if (!(plan->workload.cluster.runtime.host_s > 0) ||
        request.asked.objective == SBP_COMMUNICATION)
        return;
    sbp_random_seed(&random, seed + 1);
    shuffle_floors(&random, path);
    check_along(plan, path, request, seed, prices);
}

/* Forward over the stages before `turn`, all works of that one, and back to `end`. */
static struct sbp_path turn_at(const struct sbp_plan *plan, int turn, int end,
                               struct sbp_arena *arena)
{
    const struct sbp_parallel *const parallel = &plan->cut.parallel;
    const int stages = (int)parallel->pipeline;
    const double all = (double)sbp_parallel_micro_batches(parallel, &plan->cut.graph);
    struct sbp_path path;
    assert_int_equal(sbp_path_longest(&plan->cut, arena, &path), SBP_OK);
    memset(path.end, 0, (size_t)stages * sizeof *path.end);
    path.end[end] = 1;
    for (int piece = 0; piece < path.pieces; piece++) {
        const int stage = piece % stages;
        const bool passed = stage < turn && piece < stages;
        const bool late = parallel->schedule == SBP_ZERO_BUBBLE;
        path.forward[piece] = stage == turn ? all : passed;
        path.backward[piece] = stage == turn ? all : passed && stage >= end;
        path.weight[piece] = late && end < turn ? stage == end : path.backward[piece];
        path.sent[piece] = passed;
        path.returned[piece] = piece < stages && stage > end && stage <= turn;
    }
    return path;
}

/* The sum along any path bounds the step, and the model's bytes those of every stage. */
static void check_cut(struct sbp_plan *plan, struct sbp_solve_request request, uint64_t seed,
                      struct prices *prices)
{
    struct sbp_diag diag = {{0}};
    struct sbp_path path, times;
    const int stages = (int)plan->cut.parallel.pipeline;
    for (int turn = 0; turn < stages; turn++)
        for (int end = 0; end <= turn; end++) {
            path = turn_at(plan, turn, end, &plan->arena);
            check_path(plan, &path, request, seed, prices);
        }
    assert_int_equal(sbp_path_expected(&plan->cut, &plan->arena, &path, &diag), SBP_OK);
    check_path(plan, &path, request, seed, prices);
    if (sbp_path_of_step(&plan->cut, &plan->strategy, &plan->arena, &path, &times, &diag) == SBP_OK)
        check_path(plan, &path, request, seed, prices);
    request.asked.objective = SBP_COMMUNICATION;
    check_path(plan, &path, request, seed, prices);
}

/* A trainer that hides collectives behind arithmetic, or arithmetic behind collectives or launches.
 */
static void draw_runtime(struct sbp_random *random, struct sbp_runtime *runtime)
{
    runtime->host_s = 1e-8 * pow(10, 5 * sbp_random_unit(random));
    runtime->logit_bytes = (int64_t)sbp_random_below(random, 4);
    runtime->sends_block = sbp_random_below(random, 4) == 0;
    for (int i = 0; i < SBP_HIDINGS; i++)
        runtime->hidden[i] = sbp_random_below(random, 3) == 0 ? 1 : sbp_random_unit(random);
}

enum kind { EQUALS_STEP, BOUNDS_STEP, HIDES };

static void check_stages(const char *name, const char *model, enum kind kind, uint64_t first_seed,
                         int draws)
{
    struct prices prices = {.bounds_alone = kind != EQUALS_STEP};
    int cuts = 0;
    for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)draws; seed++) {
        struct sbp_plan plan;
        struct sbp_random random;
        struct sbp_diag diag = {{0}};
        struct sbp_path_weights weights;
        open_plan(model, TWO_LEVELS, &plan);
        sbp_random_seed(&random, seed);
        if (kind == HIDES)
            draw_runtime(&random, &plan.workload.cluster.runtime);
        const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                                  .asked.quick = true,
                                                  .zero_is_free =
                                                      sbp_random_below(&random, 2) == 0};
        if (draw_parallel(&random, &plan) &&
            sbp_path_weights_mean(&plan.cut, &plan.arena, &weights, &diag) == SBP_OK) {
            check_cut(&plan, request, seed, &prices);
            cuts++;
        }
        sbp_plan_free(&plan);
    }
    print_message("%-12s %d cuts, %d plans, sums at most %.3g %% below the step\n", name, cuts,
                  prices.run, 100 * prices.loosest);
    assert_true(prices.run > draws);
}

static const char *const mlp =
    "{\"name\": \"m\", \"global_batch\": 144, \"features\": 144, \"layers\": [{\"op\": "
    "\"linear\", \"out\": 288, \"bias\": true}, {\"op\": \"gelu\"}, {\"op\": \"linear\", "
    "\"out\": 144}, {\"op\": \"layernorm\"}, {\"op\": \"linear\", \"out\": 144, \"bias\": "
    "true}, "
    "{\"op\": \"dropout\", \"p\": 0.1}, {\"op\": \"linear\", \"out\": 288}, {\"op\": "
    "\"cross_entropy\"}]}";

static const char *const llama =
    "{\"name\": \"g\", \"architecture\": \"llama\", \"layers\": 4, \"hidden\": 144, \"heads\": "
    "36, \"kv_heads\": 12, \"ffn\": 288, \"sequence\": 36, \"vocab\": 144, \"global_batch\": 36}";
/* Two norms that two linears read each. */
static const char *const two_norms =
    "{\"name\": \"m\", \"global_batch\": 144, \"features\": 144, \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"u\", \"out\": 144, \"bias\": true}, "
    "{\"op\": \"layernorm\", \"name\": \"n\"}, "
    "{\"op\": \"linear\", \"name\": \"q\", \"inputs\": [\"n\"], \"out\": 144}, "
    "{\"op\": \"linear\", \"name\": \"k\", \"inputs\": [\"n\"], \"out\": 144}, "
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"q\", \"k\"]}, "
    "{\"op\": \"add\", \"name\": \"t\", \"inputs\": [\"s\", \"u\"]}, "
    "{\"op\": \"layernorm\", \"name\": \"o\"}, "
    "{\"op\": \"linear\", \"name\": \"g\", \"inputs\": [\"o\"], \"out\": 288}, "
    "{\"op\": \"linear\", \"name\": \"h\", \"inputs\": [\"o\"], \"out\": 288}, "
    "{\"op\": \"add\", \"inputs\": [\"g\", \"h\"]}, {\"op\": \"gelu\"}, "
    "{\"op\": \"linear\", \"out\": 144}]}";

static void test_stages(void **state)
{
    (void)state;
    check_stages("llama", llama, EQUALS_STEP, 4001, 30);
    check_stages("two norms", two_norms, EQUALS_STEP, 5001, 30);
    check_stages("gpt", GPT(4, ", \"clip_norm\": 1"), EQUALS_STEP, 1, 15);
    check_stages("gpt mixed", GPT(6, ", \"precision\": \"mixed\", \"dropout\": 0.1"), EQUALS_STEP,
                 1001, 15);
    check_stages("gpt untied", GPT(5, ", \"tied\": false, \"attention\": \"flash\""), EQUALS_STEP,
                 2001, 15);
    check_stages("mlp", mlp, EQUALS_STEP, 3001, 15);
}

static void test_hidden(void **state)
{
    (void)state;
    check_stages("gpt", GPT(4, ", \"clip_norm\": 1"), HIDES, 9001, 40);
    check_stages("gpt untied", GPT(5, ", \"tied\": false, \"attention\": \"flash\""), HIDES, 9501,
                 40);
    check_stages("mlp", mlp, HIDES, 10001, 60);
}

/* Tensors that live shorter than the rest: those without a gradient, those of operators that never
 * go back, and those that only serve recomputation. */
static void test_short_lives(void **state)
{
    (void)state;
    static const char *const given =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 144, \"precision\": \"mixed\", "
        "\"input\": \"split\", "
        "\"features\": 144, \"layers\": [{\"op\": \"linear\", \"out\": 288, \"bias\": true}, "
        "{\"op\": "
        "\"gelu\"}, {\"op\": \"linear\", \"out\": 144}, {\"op\": \"layernorm\"}, {\"op\": "
        "\"linear\", \"out\": 144}, {\"op\": \"cross_entropy\"}]}";
    static const char *const weightless =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 4, \"features\": 144, \"layers\": "
        "[{\"op\": \"tanh\"}, {\"op\": \"relu\", \"name\": \"r\"}, {\"op\": \"linear\", \"out\": "
        "144}, {\"op\": \"add\", \"inputs\": [\"r\", \"linear2\"]}, {\"op\": \"linear\", \"out\": "
        "144}, "
        "{\"op\": \"dropout\", \"p\": 0.1}, {\"op\": \"linear\", \"out\": 36}]}";
    static const char *const pooled =
        "{\"name\": \"m\", \"global_batch\": 72, \"input\": {\"height\": 24, \"width\": 24, "
        "\"channels\": 3}, \"layers\": [{\"op\": \"conv2d\", \"out\": 48, \"kernel\": 3, "
        "\"padding\": 1}, {\"op\": \"maxpool\", \"kernel\": 2}, {\"op\": \"dropout\", \"p\": 0.1}, "
        "{\"op\": \"conv2d\", \"out\": 96, \"kernel\": 3, \"padding\": 1}, {\"op\": \"avgpool\", "
        "\"kernel\": 2}, {\"op\": \"relu\"}, {\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": "
        "48}, {\"op\": \"cross_entropy\"}]}";
    static const char *const shrunk =
        "{\"name\": \"m\", \"global_batch\": 72, \"input\": {\"height\": 24, \"width\": 24, "
        "\"channels\": 3}, \"layers\": [{\"op\": \"maxpool\", \"kernel\": 4}, {\"op\": "
        "\"dropout\", "
        "\"p\": 0.1}, {\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": 12}]}";
    static const char *const summed =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 4, \"features\": 144, \"layers\": "
        "[{\"op\": \"linear\", \"out\": 144}, {\"op\": \"linear\", \"out\": 36}, {\"op\": "
        "\"linear\", \"out\": 36}]}";
    check_stages("given", given, BOUNDS_STEP, 4001, 200);
    check_stages("weightless", weightless, BOUNDS_STEP, 5001, 40);
    check_stages("pooled", pooled, BOUNDS_STEP, 6001, 40);
    check_stages("shrunk", shrunk, BOUNDS_STEP, 7001, 40);
    check_stages("summed", summed, BOUNDS_STEP, 8001, 150);
}

/* --- weight gradients that wait --- */

/* Shares of what a compiled stage parks of a micro-batch that the model has; with_some: cuts in
 * which weight gradients wait. */
struct parked {
    int cuts, with_some, stages;
    double shares;
};

static double bytes_of(const struct sbp_space *space, const int *choice, int point)
{
    double bytes = sbp_pricing_constant_bytes(space, point);
    for (int v = 0; v < space->variable_count; v++)
        bytes += sbp_space_unary_bytes(space, v, choice[v], point);
    return bytes;
}

/* `more` parks one micro-batch more than `bench`: the difference is what the model parks of one,
 * which is no more than the compiled stage does. */
static void check_parked_step(struct sbp_plan *plan, const struct bench *bench,
                              const struct bench *more, uint64_t seed, struct parked *parked)
{
    struct sbp_diag diag = {{0}};
    struct sbp_labelling labelling;
    struct sbp_step step;
    if (!label_choice(plan, &bench->space, bench->choice, seed, &labelling) ||
        sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, &diag) != SBP_OK)
        return; /* a transfer may need a digit that nothing of its tensor has */
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    for (int p = 0; p < bench->space.weights->memory_stages; p++) {
        const int stage = bench->space.weights->stage[p];
        const double compiled = (double)step.memory[stage].parked_bytes;
        const double modelled =
            bytes_of(&more->space, bench->choice, p) - bytes_of(&bench->space, bench->choice, p);
        if (modelled > compiled + 1e-9 * (double)step.totals.device_bytes)
            fail_msg("seed %" PRIu64 ": stage %d parks %.17g bytes, modelled %.17g", seed, stage,
                     compiled, modelled);
        parked->shares += compiled > 0 ? modelled / compiled : 1;
        parked->stages++;
    }
    sbp_step_free(&step);
}

static void check_parked_cut(struct sbp_plan *plan, struct sbp_random *random, uint64_t seed,
                             struct parked *parked)
{
    struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct sbp_path_weights weights, with_one;
    struct bench bench, more;
    struct sbp_diag diag = {{0}};
    struct sbp_path path;
    bool some = false;
    if (sbp_path_longest(&plan->cut, &plan->arena, &path) != SBP_OK ||
        sbp_path_weights_make(&plan->cut, &path, &plan->arena, &weights, &diag) != SBP_OK ||
        sbp_path_weights_make(&plan->cut, &path, &plan->arena, &with_one, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        some |= weights.parked[op] > 0;
        with_one.parked[op] += 1;
    }
    request.weights = &weights;
    bench_open(&bench, plan, &request);
    struct sbp_solve_request request_more = request;
    request_more.weights = &with_one;
    bench_open(&more, plan, &request_more);
    for (int i = 0; i < 8; i++)
        if (bench_draw(&bench, random))
            check_parked_step(plan, &bench, &more, seed, parked);
    bench_close(&more);
    bench_close(&bench);
    parked->cuts++;
    parked->with_some += some;
}

/* Zero bubble alone. least_share: of what stages park, which the model has in the mean. */
static void check_parked(const char *name, const char *model, int draws, double least_share)
{
    struct parked parked = {0};
    for (uint64_t seed = 11001; seed < 11001 + (uint64_t)draws; seed++) {
        struct sbp_plan plan;
        struct sbp_random random;
        open_plan(model, TWO_LEVELS, &plan);
        sbp_random_seed(&random, seed);
        if (draw_cut(&random, SBP_ZERO_BUBBLE, &plan))
            check_parked_cut(&plan, &random, seed, &parked);
        sbp_plan_free(&plan);
    }
    const double share = parked.shares / parked.stages;
    print_message("%-12s %d cuts, %d with weight gradients that wait, %d stages: modelled is %.3g "
                  "%% of what waits in the mean\n",
                  name, parked.cuts, parked.with_some, parked.stages, 100 * share);
    assert_true(parked.stages > draws);
    assert_true(parked.with_some > draws / 4);
    assert_true(share >= least_share);
}

/* Operands that weight gradients read, each with what may share its block: products of one input,
 * gradients that sums hand on to several products, in place, to one reader or to many; what a
 * convolution or a mixture saves; inputs that are free. */
static void test_parked(void **state)
{
    (void)state;
    static const char *const shared =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 4, \"features\": 144, \"layers\": "
        "[{\"op\": \"linear\", \"name\": \"a\", \"out\": 144}, {\"op\": \"linear\", \"name\": "
        "\"b\", \"out\": 144}, {\"op\": \"linear\", \"name\": \"c\", \"inputs\": [\"a\"], \"out\": "
        "144}, {\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"b\", \"c\"]}, {\"op\": \"relu\", "
        "\"name\": \"r\"}, {\"op\": \"linear\", \"name\": \"d\", \"out\": 144}, {\"op\": \"add\", "
        "\"name\": \"t\", \"inputs\": [\"r\", \"d\"]}, {\"op\": \"linear\", \"name\": \"e\", "
        "\"out\": 72}, {\"op\": \"linear\", \"name\": \"f\", \"inputs\": [\"t\"], \"out\": 72}, "
        "{\"op\": \"add\", \"inputs\": [\"e\", \"f\"]}, {\"op\": \"linear\", \"out\": 36}]}";
    static const char *const mixture =
        "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 4, \"features\": 144, \"layers\": "
        "[{\"op\": \"linear\", \"name\": \"a\", \"out\": 144}, {\"op\": \"moe\", \"name\": \"m\", "
        "\"experts\": 12, \"top_k\": 2, \"ffn\": 288}, {\"op\": \"linear\", \"name\": \"u\", "
        "\"inputs\": [\"a\"], \"out\": 144}, {\"op\": \"add\", \"name\": \"s\", \"inputs\": "
        "[\"m\", "
        "\"u\"]}, {\"op\": \"add\", \"name\": \"t\", \"inputs\": [\"a\", \"s\"]}, {\"op\": "
        "\"linear\", \"out\": 144}, {\"op\": \"gelu\"}, {\"op\": \"linear\", \"out\": 36}]}";
    static const char *const convolved =
        "{\"name\": \"m\", \"global_batch\": 72, \"input\": {\"height\": 24, \"width\": 24, "
        "\"channels\": 3}, \"layers\": [{\"op\": \"conv2d\", \"name\": \"a\", \"out\": 48, "
        "\"kernel\": 3, \"padding\": 1}, {\"op\": \"relu\", \"name\": \"r\"}, {\"op\": \"conv2d\", "
        "\"name\": \"b\", \"out\": 48, \"kernel\": 3, \"padding\": 1}, {\"op\": \"add\", "
        "\"inputs\": [\"r\", \"b\"]}, {\"op\": \"relu\"}, {\"op\": \"conv2d\", \"out\": 48, "
        "\"kernel\": 3, \"padding\": 1}, {\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": "
        "48}]}";
    check_parked("shared", shared, 120, 0.5);
    check_parked("mixture", mixture, 120, 0.65);
    check_parked("convolved", convolved, 60, 0.8);
    check_parked("gpt", GPT(6, ", \"precision\": \"mixed\", \"dropout\": 0.1"), 40, 0.85);
}

/* --- critical paths --- */

/* Seconds of a path's messages in a compiled step. */
static double messages_of(const struct sbp_path *path, const struct sbp_step *step)
{
    const int chunks = step->pieces / step->stages;
    double seconds = 0;
    for (int piece = 0; piece < path->pieces; piece++) {
        const struct sbp_stage_cost *const cost =
            &step->cost[piece % step->stages * chunks + piece / step->stages];
        seconds += path->sent[piece] * cost->send_forward_s +
                   path->returned[piece] * cost->send_backward_s;
    }
    return seconds;
}

struct criticals {
    int run, exact; /* of exact ones the path is the step, and the sum over operators the path */
    double loosest; /* of the others */
};

/* The cost of a choice along a path by the prices of its space, with what its labels add. */
static double sum_along(struct sbp_plan *plan, const struct bench *drawn,
                        const struct sbp_path_weights *weights, uint64_t seed)
{
    struct bench along;
    struct sbp_labelling labelling;
    struct sbp_solve_request request = *drawn->space.request;
    request.weights = weights;
    bench_open(&along, plan, &request);
    assert_true(label_choice(plan, &along.space, drawn->choice, seed, &labelling));
    const double labels_add_s = labelling.transfer_s - promised_s(&along.space, drawn->choice);
    const double sum_s = sbp_problem_cost(&along.problem, drawn->choice) + labels_add_s;
    bench_close(&along);
    return sum_s;
}

/* The sum along a plan's own critical path is its step, but for labels and messages that cost more
 * than the least; the longest path that is known is never above it. */
static void check_critical(struct sbp_plan *plan, const struct bench *bench, uint64_t seed,
                           struct criticals *criticals)
{
    struct sbp_diag diag = {{0}};
    struct sbp_labelling labelling;
    struct sbp_path path, times;
    struct sbp_path_weights weights;
    struct sbp_step step;
    if (!label_choice(plan, &bench->space, bench->choice, seed, &labelling))
        return;
    if (sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, &diag) != SBP_OK ||
        sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK ||
        sbp_path_of_step(&plan->cut, &plan->strategy, &plan->arena, &path, &times, &diag) !=
            SBP_OK ||
        sbp_path_weights_make(&plan->cut, &path, &plan->arena, &weights, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    const double length_s = sbp_path_length_s(&path, &times), step_s = step.totals.step_s;
    const double messages_s = messages_of(&path, &step);
    sbp_step_free(&step);
    criticals->run++;
    criticals->loosest = fmax(criticals->loosest, 1 - length_s / step_s);
    if (length_s > step_s * (1 + 1e-9))
        fail_msg("seed %" PRIu64 ", %s: path %.15g, step %.15g", seed,
                 sbp_timeline_schedule_name(plan->cut.parallel.schedule), length_s, step_s);
    if (fabs(length_s - step_s) > 1e-9 * step_s)
        return; /* works that take no time leave gaps: the longest path instead */
    const double sum_s = sum_along(plan, bench, &weights, seed) + messages_s - weights.message_s;
    if (fabs(sum_s - step_s) > 1e-9 * step_s)
        fail_msg("seed %" PRIu64 ", %s: sum along the critical path %.15g, step %.15g", seed,
                 sbp_timeline_schedule_name(plan->cut.parallel.schedule), sum_s, step_s);
    criticals->exact++;
}

/* A random cut under a schedule, at least two stages, of what a critical path accounts for. */
static bool draw_scheduled(struct sbp_random *random, enum sbp_schedule schedule,
                           struct sbp_plan *plan)
{
    struct sbp_diag refusal = {{0}};
    if (!draw_parallel(random, plan))
        return false;
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.schedule = schedule;
    parallel.pipeline = parallel.pipeline > 1 ? parallel.pipeline : 2;
    parallel.chunks = schedule == SBP_INTERLEAVED ? 2 : 1;
    parallel.pipeline_limit = 0;
    if (schedule == SBP_ZERO_BUBBLE && sbp_random_below(random, 2) > 0)
        parallel.pipeline_limit = 2 * parallel.pipeline - 1;
    if (schedule == SBP_MESSAGE_DRIVEN)
        parallel.pipeline_limit = (int64_t)sbp_random_below(random, 7);
    parallel.offload = parallel.gather_blocks = false;
    parallel.chunk_factor = 0;
    parallel.gradient_overlap = 0;
    return sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK;
}

static void check_criticals(const char *name, const char *model, enum sbp_schedule schedule,
                            int draws)
{
    struct criticals criticals = {0, 0, 0};
    for (uint64_t seed = 1; seed <= (uint64_t)draws; seed++) {
        struct sbp_plan plan;
        struct sbp_random random;
        struct bench bench;
        const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                                  .asked.quick = true};
        open_plan(model, TWO_LEVELS, &plan);
        sbp_random_seed(&random, seed);
        if (draw_scheduled(&random, schedule, &plan)) {
            bench_open(&bench, &plan, &request);
            if (bench_draw(&bench, &random))
                check_critical(&plan, &bench, seed, &criticals);
            bench_close(&bench);
        }
        sbp_plan_free(&plan);
    }
    print_message("%-12s %-14s %d plans, %d as long as the sum along their critical path, the path "
                  "at most %.3g %% below the step\n",
                  name, sbp_timeline_schedule_name(schedule), criticals.run, criticals.exact,
                  100 * criticals.loosest);
    assert_true(criticals.run > draws / 8);
    if (schedule != SBP_MESSAGE_DRIVEN)
        assert_int_equal(criticals.exact, criticals.run);
}

static void test_criticals(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE, SBP_MESSAGE_DRIVEN};
    for (int i = 0; i < 5; i++) {
        check_criticals("gpt", GPT(4, ", \"clip_norm\": 1"), schedules[i], 40);
        check_criticals("gpt untied", GPT(6, ", \"tied\": false, \"precision\": \"mixed\""),
                        schedules[i], 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),      cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_short_lives), cmocka_unit_test(test_parked),
        cmocka_unit_test(test_criticals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
