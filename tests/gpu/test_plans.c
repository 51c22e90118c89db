/* Random plans on GPUs, all ranks on those of this host, verified against one device in double:
 * strategies of one stage and pipelines, in single precision and in bfloat16.
 *
 * usage: PROGRAM [SEED]; SBP_TEST_PLANS: so many of them (8)
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/ranks/run/run_checks.h"

enum { DEFAULT_PLANS = 8 };

/* Every second plan of one stage has a ring of keys and values. */
static bool wants_ring(int number)
{
    return number % 4 == 2;
}

/* The first plans, which a stand-in may run, have operators that take it little time; of the others
 * of one stage every second one has what came later. */
static int sort_of(int number)
{
    static const int later[] = {MIXTURE, ENCODER, PATCHES, IMAGES, DEEPSEEK, GRIDS};
    static const int attending[] = {GPT, LLAMA, DEEPSEEK, ENCODER};
    if (wants_ring(number))
        return attending[number / 4 % 4];
    return number < DEFAULT_PLANS || number % 4 != 0 ? kind_of(number) : later[number / 4 % 6];
}

/* A model that takes a stand-in little time, on two or four ranks. */
static void open_small_ring(enum sbp_real real, struct sbp_random *random, char *model,
                            struct plan *plan)
{
    static const char *const keys[] = {
        "\"architecture\": \"gpt\", \"attention\": \"flash\"",
        "\"architecture\": \"gpt\", \"attention\": \"materialised\", \"attention_dropout\": 0.2",
        "\"architecture\": \"llama\", \"kv_heads\": 2, \"attention\": \"flash\", \"window\": 3, "
        "\"sinks\": true, \"ffn\": 16"};
    static const int levels[][3] = {{2, 0}, {4, 0}, {2, 2, 0}};
    (void)snprintf(model, MODEL_BYTES,
                   "{\"name\": \"small\", \"global_batch\": 4, \"sequence\": 8, \"layers\": 1, "
                   "\"hidden\": 16, \"heads\": 4, \"vocab\": 24, \"context\": \"ring\", %s}",
                   keys[sbp_random_below(random, 3)]);
    plan_open(plan, model, levels[sbp_random_below(random, 3)]);
    plan_randomise(plan, random, true, SBP_BOXING_FULL, real);
}

/* Draws a plan; false: the model or the mesh has no such stages, or no ring where it is to have
 * one. */
static bool open_plan(struct plan *plan, int number, enum sbp_real real, struct sbp_random *random,
                      char *model)
{
    const bool is_wide = number / 2 % 2 == 0 || wants_ring(number);
    if (number % 2 == 0) {
        if (wants_ring(number) && number < DEFAULT_PLANS)
            open_small_ring(real, random, model, plan);
        else
            open_random(random, sort_of(number), is_wide, true, SBP_BOXING_FULL, real, model, plan);
        if (!wants_ring(number) || has_ring(plan))
            return true;
        plan_close(plan);
        return false;
    }
    do
        random_model(random, kind_of(number), model, MODEL_BYTES);
    while (!is_measured(real, model));
    plan_open(plan, model, random_levels(random));
    if (plan_cut_stages(plan, random)) {
        plan_draw_owner(plan, *random);
        plan_randomise(plan, random, is_wide, SBP_BOXING_FULL, real);
        if (has_alike_ties(plan))
            return true;
    }
    plan_close(plan);
    return false;
}

static int wanted_plans(void)
{
    const char *text = getenv("SBP_TEST_PLANS");
    const int plans = text != NULL ? atoi(text) : DEFAULT_PLANS;
    assert_true(plans > 0);
    return plans;
}

static void plans_equal_one_device(void **state)
{
    const int wanted = wanted_plans();
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst[] = {0, 0};
    int plans = 0, rings = 0;
    (void)state;
    sbp_random_seed(&random, seed);
    for (int tries = 0; plans < wanted && tries < 20 * MOST_TRIES; tries++) {
        const bool is_half = plans / 4 % 2 == 1 && sort_of(plans) != IMAGES;
        const enum sbp_real real = is_half ? SBP_REAL_BF16 : SBP_F32;
        struct plan plan;
        if (!open_plan(&plan, plans, real, &random, model))
            continue;
        struct sbp_run_options options = options_for(real, &random);
        options.device = "cuda";
        check_run(&plan, &options, model, &worst[is_half]);
        rings += has_ring(&plan);
        plan_close(&plan);
        plans++;
    }
    print_message("seed %llu: %d plans on GPUs, %d with rings, largest difference / bound %.3f in "
                  "f32, %.3f in "
                  "bf16\n",
                  (unsigned long long)seed, plans, rings, worst[0], worst[1]);
    assert_int_equal(plans, wanted);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_equal_one_device)};
    return run_all(argc, argv, tests, 1);
}
