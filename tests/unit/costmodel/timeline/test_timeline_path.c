/* Critical paths of random steps: as long as the step they were found in, and never longer than a
 * step of the same schedule with other times. */
#include <inttypes.h>
#include <math.h>

#include "base/math/random.h"
#include "costmodel/timeline/timeline_path.h"
#include "tests/support/unit.h"

enum { MOST_STAGES = 6, MOST_CHUNKS = 3 };

struct step {
    struct sbp_timeline_request request;
    struct sbp_stage_cost cost[MOST_STAGES * MOST_CHUNKS];
    struct sbp_stage_end end[MOST_STAGES];
};

/* Some stages have nothing to do, by a model of costs. */
static double draw_work(struct sbp_random *random)
{
    return sbp_random_below(random, 6) == 0 ? 0 : 0.5 + sbp_random_unit(random);
}

static void draw_times(struct sbp_random *random, struct step *step, bool sends)
{
    for (int i = 0; i < MOST_STAGES * MOST_CHUNKS; i++)
        step->cost[i] = (struct sbp_stage_cost){
            .forward_s = draw_work(random),
            .backward_input_s = draw_work(random),
            .backward_weight_s = draw_work(random),
            .recompute_s = sbp_random_below(random, 2) == 0 ? 0 : sbp_random_unit(random),
            .send_forward_s = sends ? sbp_random_unit(random) : 0,
            .send_backward_s = sends ? sbp_random_unit(random) : 0};
    for (int i = 0; i < MOST_STAGES; i++)
        step->end[i] = (struct sbp_stage_end){
            .sync_s = (sbp_random_below(random, 3) == 0 ? 30 : 1) * sbp_random_unit(random),
            .sync_overlap = sbp_random_below(random, 2) == 0 ? 0 : sbp_random_unit(random),
            .optimizer_s = sbp_random_unit(random)};
    step->request.stage = step->cost;
    step->request.end = step->end;
}

static void draw_step(struct sbp_random *random, enum sbp_schedule schedule, struct step *step)
{
    const int stages = 1 + (int)sbp_random_below(random, MOST_STAGES);
    const bool interleaved = schedule == SBP_INTERLEAVED;
    *step = (struct step){
        .request = {.schedule = schedule,
                    .stages = stages,
                    .micro_batches = 1 + (int)sbp_random_below(random, 12),
                    .chunks = interleaved ? 2 + (int)sbp_random_below(random, MOST_CHUNKS - 1) : 1,
                    .record = true}};
    if (interleaved)
        step->request.micro_batches *= stages;
    if (schedule == SBP_ZERO_BUBBLE && sbp_random_below(random, 2) == 0)
        step->request.pipeline_limit = 2 * stages - 1;
    draw_times(random, step, sbp_random_below(random, 3) > 0);
}

static struct sbp_timeline simulate(const struct step *step, struct sbp_arena *arena)
{
    struct sbp_timeline timeline;
    struct sbp_diag diag = {{0}};
    if (sbp_timeline_simulate(&step->request, arena, &timeline, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return timeline;
}

/* The length of a path by a step's times. */
static double length_of(const struct sbp_timeline_path *path, const struct step *step)
{
    const int stages = step->request.stages, chunks = step->request.chunks;
    const bool late = step->request.schedule == SBP_ZERO_BUBBLE;
    const struct sbp_stage_end *end = &step->end[path->end];
    double length = (path->sums ? 1 : 1 - end->sync_overlap) * end->sync_s + end->optimizer_s;
    for (int v = 0; v < path->virtual_stages; v++) {
        const struct sbp_stage_cost *cost = &step->cost[v % stages * chunks + v / stages];
        length += (double)path->forward[v] * cost->forward_s +
                  (double)path->backward[v] * (cost->recompute_s + cost->backward_input_s +
                                               (late ? 0 : cost->backward_weight_s)) +
                  (double)path->weight[v] * cost->backward_weight_s +
                  (double)path->send_forward[v] * cost->send_forward_s +
                  (double)path->send_backward[v] * cost->send_backward_s;
    }
    return length;
}

/* Returns whether the step's path goes through a sum of gradients. */
static bool check_step(struct sbp_random *random, uint64_t seed, enum sbp_schedule schedule)
{
    struct step step, other;
    struct sbp_arena arena;
    struct sbp_timeline_path path;
    sbp_arena_init(&arena);
    draw_step(random, schedule, &step);
    const struct sbp_timeline timeline = simulate(&step, &arena);
    other = step;
    other.request.stage = other.cost;
    other.request.end = other.end;
    other.request.is_brief = true;
    const struct sbp_timeline brief = simulate(&other, &arena);
    assert_true(brief.makespan_s == timeline.makespan_s && brief.exposed_s == 0);
    assert_true(brief.interval_count == timeline.interval_count);
    if (sbp_timeline_critical(&step.request, &timeline, -1, &arena, &path) != SBP_OK)
        fail_msg("seed %" PRIu64 ": no path", seed);
    const double length = length_of(&path, &step);
    if (fabs(length - timeline.makespan_s) > 1e-9 * timeline.makespan_s)
        fail_msg("seed %" PRIu64 ", %s, %d stages, %d micro-batches: path %.15g, step %.15g", seed,
                 sbp_timeline_schedule_name(schedule), step.request.stages,
                 step.request.micro_batches, length, timeline.makespan_s);
    const bool sums = path.sums;
    for (int end = 0; end < step.request.stages; end++) {
        assert_int_equal(sbp_timeline_critical(&step.request, &timeline, end, &arena, &path),
                         SBP_OK);
        for (int i = 0; i < 5; i++) {
            other = step;
            draw_times(random, &other, true);
            const double makespan_s = simulate(&other, &arena).makespan_s;
            if (length_of(&path, &other) > makespan_s * (1 + 1e-9))
                fail_msg("seed %" PRIu64 ", %s: path %.15g above a step of %.15g", seed,
                         sbp_timeline_schedule_name(schedule), length_of(&path, &other),
                         makespan_s);
        }
    }
    sbp_arena_free(&arena);
    return sums;
}

static void test_paths(void **state)
{
    (void)state;
    static const enum sbp_schedule fixed[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                              SBP_ZERO_BUBBLE};
    for (int i = 0; i < 4; i++) {
        int sums = 0;
        for (uint64_t seed = 0; seed < 200; seed++) {
            struct sbp_random random;
            sbp_random_seed(&random, seed);
            sums += check_step(&random, seed, fixed[i]);
        }
        print_message("%-12s %d of 200 paths through a sum of gradients\n",
                      sbp_timeline_schedule_name(fixed[i]), sums);
        assert_true(sums >= 10 && sums <= 190);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct step step;
    struct sbp_arena arena;
    struct sbp_random random;
    struct sbp_timeline_path path;
    sbp_arena_init(&arena);
    sbp_random_seed(&random, 1);
    draw_step(&random, SBP_MESSAGE_DRIVEN, &step);
    struct sbp_timeline timeline = simulate(&step, &arena);
    assert_int_equal(sbp_timeline_critical(&step.request, &timeline, -1, &arena, &path),
                     SBP_E_UNSUPPORTED);
    draw_step(&random, SBP_ONE_F_ONE_B, &step);
    step.request.record = false;
    timeline = simulate(&step, &arena);
    assert_int_equal(sbp_timeline_critical(&step.request, &timeline, -1, &arena, &path),
                     SBP_E_UNSUPPORTED);
    step.request.record = step.request.sends_block = true;
    timeline = simulate(&step, &arena);
    assert_int_equal(sbp_timeline_critical(&step.request, &timeline, -1, &arena, &path),
                     SBP_E_UNSUPPORTED);
    assert_false(sbp_timeline_is_fixed(SBP_CDP_V2));
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
