/* The working set of operators against a second source: on one device nothing is boxed, and the
 * model equals what lives in the program but for small buffers. test_choice_costs.c and
 * test_space_stages.c check that it never exceeds a program, whatever the strategy. */
#include "planner/plan/plan.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

#define ONE_DEVICE LEVEL("a", 1)

/* The modelled share of what lives in the program of the only strategy. */
static double modelled_share(const char *model, const char *levels, int zero,
                             enum sbp_recompute recompute, int micro_batches)
{
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_working working;
    struct sbp_labelling labelling;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_DATA_PARALLEL,
                                              .every_level = true};
    open_plan(model, levels, &plan);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.micro_batch = plan.cut.graph.global_batch / micro_batches;
    parallel.recompute = recompute;
    parallel.zero = zero;
    if (sbp_plan_cut(&plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    make_space(&plan, &request, &space);
    const int *const choice = SBP_NEW(&space.arena, int, space.variable_count + 1);
    assert_non_null(choice);
    assert_true(label_choice(&plan, &space, choice, 0, &labelling));
    if (sbp_strategy_close(&plan.cut.graph, &plan.cut.mesh, &plan.strategy, &diag) != SBP_OK ||
        sbp_cut_step(&plan.cut, &plan.strategy, false, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(sbp_working_init(&working, &space, &space.arena), SBP_OK);
    const double bytes = sbp_working_least(&working, choice);
    assert_true(sbp_working_least(&working, NULL) == bytes);
    const double share = bytes / (double)step.program[0].live_bytes;
    print_message("ZeRO %d, %s recompute, %d micro-batches: %.0f bytes are %.2f %% of what lives\n",
                  zero, sbp_parallel_recompute_name(recompute), micro_batches, bytes, 100 * share);
    sbp_step_free(&step);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
    return share;
}

/* Halves of products that selective recomputation brings back are not modelled. */
static void check_model(const char *model)
{
    for (int recompute = 0; recompute < SBP_RECOMPUTES; recompute++)
        for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
            const bool is_close = recompute != SBP_RECOMPUTE_SELECTIVE;
            const double share =
                modelled_share(model, ONE_DEVICE, 0, (enum sbp_recompute)recompute, micro_batches);
            assert_true(share <= 1);
            assert_true(share > (is_close ? 0.997 : 0.87));
        }
}

static void test_one_device(void **state)
{
    (void)state;
    check_model(GPT(4, ""));
    check_model(GPT(4, ", \"precision\": \"mixed\""));
    check_model(GPT(4, ", \"tied\": false"));
}

/* With a wide vocabulary the head needs most. */
#define WIDE(more)                                                                                 \
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "   \
    "\"sequence\": 36, \"vocab\": 4608, \"global_batch\": 12" more "}"

/* The batch split over all devices is one strategy, too: nothing is boxed, but weights are gathered
 * and gradients shared out, those of a tied table after both of its users. */
static void test_data_parallel(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        for (int recompute = 0; recompute < SBP_RECOMPUTES; recompute++)
            for (int m = 0; m < 4; m++) {
                static const char *const models[] = {GPT(4, ""), GPT(4, ", \"tied\": false"),
                                                     WIDE(""), WIDE(", \"tied\": false")};
                const double share = modelled_share(models[m], LEVEL("a", 4), zero,
                                                    (enum sbp_recompute)recompute, 3);
                const bool is_close = recompute != SBP_RECOMPUTE_SELECTIVE;
                assert_true(share <= 1);
                assert_true(share > (is_close ? 0.998 : 0.85));
            }
}

/* Models that begin without weights: never more than lives, whatever is cut. */
static void test_beginnings(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"name\": \"m\", \"global_batch\": 36, \"features\": 144, \"layers\": [{\"op\": "
        "\"tanh\"}, {\"op\": \"linear\", \"out\": 12}]}",
        "{\"name\": \"m\", \"global_batch\": 3600, \"features\": 36, \"input\": \"split\", "
        "\"layers\": [{\"op\": \"linear\", \"out\": 4}, {\"op\": \"cross_entropy\"}]}",
        "{\"name\": \"m\", \"global_batch\": 3600, \"features\": 36, \"layers\": [{\"op\": "
        "\"gelu\"}, {\"op\": \"dropout\", \"p\": 0.1}, {\"op\": \"linear\", \"out\": 4}]}",
        "{\"name\": \"m\", \"global_batch\": 36, \"input\": {\"height\": 24, \"width\": 24, "
        "\"channels\": 3}, \"layers\": [{\"op\": \"maxpool\", \"kernel\": 4}, {\"op\": "
        "\"flatten\"}, "
        "{\"op\": \"linear\", \"out\": 12}]}",
    };
    static const double least[] = {0.83, 0.98, 0.66, 0.28};
    for (int m = 0; m < 4; m++)
        for (int recompute = 0; recompute < SBP_RECOMPUTES; recompute++) {
            const double share =
                modelled_share(models[m], ONE_DEVICE, 0, (enum sbp_recompute)recompute, 3);
            assert_true(share > least[m] && share <= 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device),
                                       cmocka_unit_test(test_data_parallel),
                                       cmocka_unit_test(test_beginnings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
