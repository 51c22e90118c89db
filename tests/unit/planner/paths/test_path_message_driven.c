/* Paths through random message-driven steps, beside the timeline: never longer than a step,
 * whatever it takes, as long as the step between two stages, and mostly as long between more. */
#include <inttypes.h>
#include <math.h>

#include "base/math/random.h"
#include "costmodel/timeline/timeline.h"
#include "planner/limits.h"
#include "planner/paths/path_message_driven.h"
#include "tests/support/unit.h"

enum { MOST_STAGES = 7, DRAWS = 3000, OTHERS = 4, ARRAYS = 13 /* of a path, a piece a stage */ };

struct pipeline {
    struct sbp_timeline_request request;
    struct sbp_stage_cost cost[MOST_STAGES];
    struct sbp_stage_end end[MOST_STAGES];
    double sums[ARRAYS * MOST_STAGES]; /* of times */
    struct sbp_path times;
};

static void shape(int stages, double *sums, struct sbp_path *path)
{
    *path = (struct sbp_path){.pieces = stages,
                              .stages = stages,
                              .all = sums,
                              .forward = sums,
                              .backward = sums + stages,
                              .weight = sums + 2 * stages,
                              .sent = sums + 3 * stages,
                              .returned = sums + 4 * stages,
                              .forward_host = sums + 5 * stages,
                              .backward_host = sums + 6 * stages,
                              .weight_host = sums + 7 * stages,
                              .forward_links = sums + 8 * stages,
                              .backward_links = sums + 9 * stages,
                              .weight_links = sums + 10 * stages,
                              .end = sums + 11 * stages,
                              .sync = sums + 12 * stages};
    assert_int_equal(sbp_path_entries(path), ARRAYS * stages);
}

/* Some nothing, some large. */
static double draw_s(struct sbp_random *random)
{
    const double seconds = sbp_random_unit(random);
    return sbp_random_below(random, 4) == 0 ? 0 : seconds * seconds * seconds;
}

/* Draws times. The first stage sends nothing back and the last one sends nothing on, so these times
 * are 0. */
static void draw_times(struct sbp_random *random, struct pipeline *pipeline)
{
    const int stages = pipeline->request.stages;
    shape(stages, pipeline->sums, &pipeline->times);
    for (int s = 0; s < stages; s++) {
        struct sbp_path *times = &pipeline->times;
        times->forward[s] = draw_s(random);
        times->backward[s] = draw_s(random);
        times->weight[s] = draw_s(random);
        times->sent[s] = s + 1 < stages ? draw_s(random) : 0;
        times->returned[s] = s > 0 ? draw_s(random) : 0;
        times->end[s] = draw_s(random);
        pipeline->cost[s] = (struct sbp_stage_cost){.forward_s = times->forward[s],
                                                    .backward_input_s = times->backward[s],
                                                    .backward_weight_s = times->weight[s],
                                                    .send_forward_s = times->sent[s],
                                                    .send_backward_s = times->returned[s]};
        pipeline->end[s] = (struct sbp_stage_end){.optimizer_s = times->end[s]};
    }
    pipeline->request.stage = pipeline->cost;
    pipeline->request.end = pipeline->end;
}

static void draw_pipeline(struct sbp_random *random, struct pipeline *pipeline)
{
    *pipeline =
        (struct pipeline){.request = {.schedule = SBP_MESSAGE_DRIVEN,
                                      .stages = 2 + (int)sbp_random_below(random, MOST_STAGES - 1),
                                      .micro_batches = 1 + (int)sbp_random_below(random, 14),
                                      .pipeline_limit = (int)sbp_random_below(random, 9),
                                      .is_brief = true}};
    draw_times(random, pipeline);
}

static double step_s(const struct pipeline *pipeline)
{
    struct sbp_arena arena;
    struct sbp_timeline timeline;
    struct sbp_diag diag = {{0}};
    sbp_arena_init(&arena);
    if (sbp_timeline_simulate(&pipeline->request, &arena, &timeline, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const double seconds = timeline.makespan_s;
    sbp_arena_free(&arena);
    return seconds;
}

static double find(const struct pipeline *pipeline, struct sbp_path *path)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_path_driven(&pipeline->times, pipeline->request.micro_batches,
                                     pipeline->request.pipeline_limit, &arena, path),
                     SBP_OK);
    assert_int_equal(arena.used_bytes, 0);
    sbp_arena_free(&arena);
    return sbp_path_length_s(path, &pipeline->times);
}

static void check_bound(uint64_t seed, double length_s, double makespan_s)
{
    if (length_s > makespan_s * (1 + 1e-9))
        fail_msg("seed %" PRIu64 ": a path of %.15g above a step of %.15g", seed, length_s,
                 makespan_s);
}

static void test_paths(void **state)
{
    (void)state;
    int exact = 0;
    double shares = 0; /* of the steps, that their paths are long */
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct pipeline pipeline;
        struct sbp_random random;
        struct sbp_path path;
        double sums[ARRAYS * MOST_STAGES];
        sbp_random_seed(&random, seed);
        draw_pipeline(&random, &pipeline);
        shape(pipeline.request.stages, sums, &path);
        const double length_s = find(&pipeline, &path), makespan_s = step_s(&pipeline);
        check_bound(seed, length_s, makespan_s);
        const bool is_exact = length_s >= makespan_s * (1 - 1e-9);
        if (pipeline.request.stages == 2)
            assert_true(is_exact);
        exact += is_exact;
        shares += makespan_s > 0 ? length_s / makespan_s : 1;
        for (int i = 0; i < OTHERS; i++) {
            struct pipeline other = pipeline;
            draw_times(&random, &other);
            check_bound(seed, sbp_path_length_s(&path, &other.times), step_s(&other));
        }
    }
    print_message("%d steps, %d as long as their path, which is %.6f of a step in the mean\n",
                  DRAWS, exact, shares / DRAWS);
    assert_true(exact > DRAWS / 2);
    /* Without an end, a way out or what the limit holds back they are shorter now and then. */
    assert_true(shares > 0.9737 * DRAWS);
}

/* Steps of too many works leave the path as it is, and take no memory. */
static void test_many_works(void **state)
{
    (void)state;
    static const int64_t counts[] = {SBP_PATHS_DRIVEN_WORKS / 2 + 1, INT64_MAX};
    struct pipeline pipeline;
    struct sbp_random random;
    struct sbp_path path;
    double sums[ARRAYS * MOST_STAGES] = {0};
    sbp_random_seed(&random, 1);
    draw_pipeline(&random, &pipeline);
    shape(pipeline.request.stages, sums, &path);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sbp_arena arena;
        sbp_arena_init(&arena);
        path.all[0] = 7;
        assert_int_equal(sbp_path_driven(&pipeline.times, counts[i], 0, &arena, &path), SBP_OK);
        assert_true(path.all[0] == 7);
        assert_null(arena.head);
        sbp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_many_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
