/* Fitting a trainer: steps that a known trainer would take give its constants back, from another
 * start; noise is left over; runs that cannot be priced are named. */
#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "planner/configs/config_files.h"
#include "planner/validate/run_price.h"
#include "planner/validate/trainer_fit.h"
#include "tests/support/unit.h"

#define RUNS 12

static const char set_text[] =
    "{\"format\": \"sbplan runs\", \"title\": \"t\", \"source\": \"s\", \"trainer\": \"t\", "
    "\"cluster\": \"dgx-a100-8x8\", \"runtime\": \"megatron-core\", \"model\": {\"architecture\": "
    "\"gpt\", \"heads\": 16, \"vocab\": 51200, \"layers\": 4, \"precision\": \"mixed\", "
    "\"attention\": \"flash\"}, \"run\": {\"gpus_per_node\": 8}, \"bounds\": {}, \"columns\": "
    "[\"id\", \"hidden\", \"sequence\", \"global_batch\", \"gpus\", \"tp\", \"micro_batch\", "
    "\"step_s\"], \"runs\": ["
    "[\"a\", 1024, 256, 8, 8, 1, 1, 1], [\"b\", 2048, 1024, 16, 8, 1, 2, 1], "
    "[\"c\", 4096, 2048, 16, 8, 2, 2, 1], [\"d\", 8192, 2048, 64, 16, 4, 4, 1], "
    "[\"e\", 1024, 128, 16, 16, 1, 1, 1], [\"f\", 2048, 4096, 16, 16, 2, 1, 1], "
    "[\"g\", 8192, 1024, 128, 32, 8, 8, 1], [\"h\", 4096, 512, 64, 64, 1, 1, 1], "
    "[\"i\", 512, 256, 64, 8, 1, 8, 1], [\"j\", 6144, 2048, 32, 8, 8, 4, 1], "
    "[\"k\", 1024, 8192, 8, 8, 1, 1, 1], [\"l\", 512, 64, 8, 8, 1, 1, 1]]}";

static void open_set(struct sbp_arena *arena, struct sbp_run_set *set)
{
    struct sbp_diag diag = {{0}};
    struct cJSON *tree = cJSON_Parse(set_text);
    assert_non_null(tree);
    if (sbp_run_set_open_tree(tree, "runs", NULL, NULL, arena, set, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Puts in place of the measured steps those of the set's own trainer, each off by up to `noise`. */
static void measure(struct sbp_run_set *set, double noise, struct sbp_random *random)
{
    struct sbp_diag diag = {{0}};
    for (int i = 0; i < RUNS; i++) {
        struct sbp_run_price price;
        if (sbp_run_price(set, i, NULL, &price, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        set->run[i].step_s = price.step_s * (1 + noise * (2 * sbp_random_unit(random) - 1));
    }
}

static void set_number(struct sbp_run_set *set, const char *object, const char *key, double value)
{
    struct cJSON *runtime = cJSON_GetObjectItemCaseSensitive(set->cluster, "runtime");
    struct cJSON *at = object == NULL ? runtime : cJSON_GetObjectItemCaseSensitive(runtime, object);
    if (at == NULL)
        at = cJSON_AddObjectToObject(runtime, object);
    cJSON_DeleteItemFromObjectCaseSensitive(at, key);
    assert_non_null(cJSON_AddNumberToObject(at, key, value));
}

/* The trainer that the runs have. */
static void be_another(struct sbp_run_set *set)
{
    set_number(set, "reaches", "products", 0.71);
    set_number(set, "reaches", "streams", 0.55);
    set_number(set, NULL, "host_s", 6e-5);
    set_number(set, "hides", "gradients", 0.4);
}

static void fit_to(double noise, uint64_t seed, struct sbp_trainer_fit *fit)
{
    struct sbp_arena arena = {0};
    struct sbp_run_set set, truth;
    struct sbp_random random;
    struct sbp_diag diag = {{0}};
    sbp_random_seed(&random, seed);
    open_set(&arena, &set);
    open_set(&arena, &truth);
    be_another(&truth);
    measure(&truth, noise, &random);
    for (int i = 0; i < RUNS; i++)
        set.run[i].step_s = truth.run[i].step_s;
    if (sbp_trainer_fit_make(&set, NULL, fit, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_run_set_free(&truth);
    sbp_run_set_free(&set);
    sbp_arena_free(&arena);
}

static void test_known_trainer(void **state)
{
    (void)state;
    struct sbp_trainer_fit fit;
    fit_to(0, 1, &fit);
    print_message(
        "error %.2f %% before, %.3f %% fitted, %.2f %% left out; products %.3f, host %.3g\n",
        100 * fit.error_before, 100 * fit.error, 100 * fit.error_left_out,
        fit.value[SBP_FITTED_PRODUCTS], fit.value[SBP_FITTED_HOST]);
    assert_int_equal(fit.runs, RUNS);
    assert_true(fit.error_before > 0.1);
    assert_true(fit.error < 1e-5);
    assert_true(fit.error_left_out < 0.01);
    assert_true(fit.error <= fit.error_left_out && fit.error_left_out <= fit.most_left_out * 1.01);
    assert_true(fabs(fit.value[SBP_FITTED_PRODUCTS] - 0.71) < 1e-4);
    assert_true(fabs(fit.value[SBP_FITTED_STREAMS] - 0.55) < 1e-4);
    assert_true(fabs(fit.value[SBP_FITTED_HOST] - 6e-5) < 1e-8);
}

/* What is left is about the noise: a fit that followed it would leave less than half. */
static void test_noise(void **state)
{
    (void)state;
    const uint64_t seed = 20261126;
    struct sbp_trainer_fit fit;
    fit_to(0.1, seed, &fit);
    print_message("seed %llu: error %.2f %% fitted, %.2f %% left out\n", (unsigned long long)seed,
                  100 * fit.error, 100 * fit.error_left_out);
    assert_true(fit.error > 0.02 && fit.error < 0.06);
    assert_true(fit.error_left_out > fit.error && fit.error_left_out < 0.12);
}

/* Runs that cannot be priced are listed by name, each with its own reason; a few runs are enough.
 */
static void test_refused_runs(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    struct sbp_run_set set;
    struct sbp_trainer_fit fit;
    struct sbp_diag diag = {{0}};
    open_set(&arena, &set);
    set.run[1].degrees.tensor = 3;
    set.run[2].degrees.micro_batch = 5;
    set.run[4].step_s = 0;
    set.run[4].line = 17;
    assert_int_equal(sbp_trainer_fit_make(&set, NULL, &fit, &diag), SBP_E_INPUT); /* of a second */
    assert_int_equal(fit.refused, 3);
    assert_int_equal(fit.runs, RUNS - 3);
    assert_non_null(strstr(fit.refusal[0].text, "b: degrees: tp: tp 3"));
    assert_non_null(strstr(fit.refusal[1].text, "c: degrees: micro-batch: 5 sequences"));
    assert_string_equal(fit.refusal[2].text, "line 17: has no step_s");
    for (int i = 0; i < RUNS; i++)
        set.run[i].degrees.tensor = 3;
    diag.text[0] = '\0';
    assert_int_equal(sbp_trainer_fit_make(&set, NULL, &fit, &diag), SBP_E_INPUT);
    assert_int_equal(fit.refused, RUNS);
    assert_non_null(
        strstr(diag.text, "0 runs with a step can be priced, legal are 2 and more; a: "));
    assert_non_null(strstr(diag.text, "; and 9 more"));
    sbp_run_set_free(&set);
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_trainer),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_refused_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
