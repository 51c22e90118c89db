/* The cpu device, and what sbp_device says about devices that are not there. */
#include <string.h>

#include "executor/device/device.h"
#include "tests/support/unit.h"

static const struct sbp_device_ops *cpu(void)
{
    struct sbp_diag diag = {0};
    const struct sbp_device_ops *device = sbp_device("cpu", &diag);
    assert_non_null(device);
    assert_string_equal(device->name, "cpu");
    assert_string_equal(diag.text, "");
    return device;
}

static void test_memory(void **state)
{
    static const int64_t sizes[] = {0, 1, 63, 64, 65, 4097, 1 << 20};
    const struct sbp_device_ops *device = cpu();
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        unsigned char *memory = device->memory->allocate(sizes[s]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (int64_t i = 0; i < sizes[s]; i++)
            assert_int_equal(memory[i], 0);
        memset(memory, 0xff, (size_t)sizes[s]); /* so that reused memory is not zero by itself */
        device->memory->release(memory);
    }
    device->memory->release(NULL);
    assert_null(device->memory->allocate(-1));
    assert_null(device->memory->allocate(INT64_MAX));
}

static void test_copies(void **state)
{
    const struct sbp_device_ops *device = cpu();
    char back[8] = {0};
    (void)state;
    char *memory = device->memory->allocate(8);
    assert_non_null(memory);
    assert_int_equal(device->memory->from_host(memory, "abcdefg", 8), SBP_OK);
    assert_int_equal(device->finish(NULL), SBP_OK);
    assert_int_equal(device->memory->to_host(back, memory, 8), SBP_OK);
    assert_string_equal(back, "abcdefg");
    assert_int_equal(device->memory->to_host(NULL, NULL, 0), SBP_OK);
    assert_int_equal(device->memory->to_host(back, memory, -1), SBP_E_RANGE);
    device->memory->release(memory);
}

static void test_tables(void **state)
{
    const struct sbp_device_ops *device = cpu();
    (void)state;
    assert_int_equal(device->kernels(SBP_F32)->real, SBP_F32);
    assert_int_equal(device->kernels(SBP_F64)->real, SBP_F64);
    const double before_s = device->compute_s();
    volatile double sink = 0;
    while (device->compute_s() <= before_s) /* this thread's time moves when it works */
        sink = sink + 1;
    assert_true(before_s >= 0);
}

static void test_names(void **state)
{
    struct sbp_diag diag = {0};
    (void)state;
    /* The module can be loaded where CUDA is, with or without a GPU. */
    const struct sbp_device_ops *cuda = sbp_device("cuda", &diag);
    if (cuda == NULL)
        assert_non_null(strstr(diag.text, "device cuda: "));
    else
        assert_string_equal(cuda->name, "cuda");
    diag.text[0] = '\0';
    assert_null(sbp_device("tpu", &diag));
    assert_non_null(strstr(diag.text, "legal are auto, cpu and cuda"));
    assert_null(sbp_device("tpu", NULL));
    const struct sbp_device_ops *found = sbp_device("auto", NULL);
    assert_string_equal(found->name, cuda != NULL && cuda->count() > 0 ? "cuda" : "cpu");
    assert_int_equal(sbp_device_find("tpu", &cuda, NULL), SBP_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
