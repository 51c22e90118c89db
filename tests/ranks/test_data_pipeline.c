/* The data pipeline of actors trains as its stages in turn do: the same weights, to the bit, with
 * one slot, two and more. */
#include <string.h>

#include "tests/support/data_pipeline.h"
#include "tests/support/unit.h"

static const struct data_shape shape = {.batch = 16, .features = 32, .steps = 40};
enum { WEIGHTS = 32 * 32 };

static void trains_as_stages_in_turn(void **state)
{
    (void)state;
    struct data_pipeline pipeline;
    struct sbp_diag diag = {{0}};
    float expected[WEIGHTS];
    assert_int_equal(data_pipeline_open(&pipeline, &shape, &diag), SBP_OK);
    assert_int_equal(data_pipeline_in_turn(&pipeline, &diag), SBP_OK);
    memcpy(expected, pipeline.weights, sizeof expected);
    for (int slots = 1; slots <= 4; slots++) {
        data_pipeline_reset(&pipeline);
        assert_int_equal(data_pipeline_run(&pipeline, slots, &diag), SBP_OK);
        assert_memory_equal(pipeline.weights, expected, sizeof expected);
    }
    /* One batch over and over gives other weights. */
    data_pipeline_reset(&pipeline);
    assert_int_equal(data_pipeline_synthetic(&pipeline, &diag), SBP_OK);
    assert_memory_not_equal(pipeline.weights, expected, sizeof expected);
    data_pipeline_close(&pipeline);
}

/* A file that ends too early ends the training. */
static void ends_with_the_file(void **state)
{
    (void)state;
    struct data_pipeline pipeline;
    struct sbp_diag diag = {{0}};
    assert_int_equal(data_pipeline_open(&pipeline, &shape, &diag), SBP_OK);
    pipeline.shape.steps++;
    assert_int_equal(data_pipeline_run(&pipeline, 2, &diag), SBP_E_IO);
    assert_string_equal(diag.text, "step 40: read failed");
    data_pipeline_close(&pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_as_stages_in_turn),
        cmocka_unit_test(ends_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
