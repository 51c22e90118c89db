/* Broken logs must not enter a model: each kind is refused, or told, for its own reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/log_world.h"
#include "tests/support/unit.h"

#define RUN(AGE, COLLECTIVE, NODES, EACH) LOG_RUN(AGE, COLLECTIVE, NODES, EACH, 1 << 10, 1 << 26)
#define WORLD                             RUN(LOG_2022, "all_reduce", 2, 4)

static const struct log_world plain = {WORLD};

/* --- runs that failed --- */

static void test_failed(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } failures[] = {
        {"node01: Test NCCL failure common.cu:1012 'unhandled system error (run with "
         "NCCL_DEBUG=INFO for details) / '",
         "a system call"},
        {"node01: Test NCCL failure common.cu:1279 'remote process exited or there was a network "
         "error / '",
         "its network"},
        {"node01: Test CUDA failure common.cu:891 'invalid device ordinal'", "devices"},
        {"node01: Test NCCL failure all_reduce.cu:44 'unhandled cuda error'", "a device failed"},
        {"node01: Test timeout (30s) common.cu:410", "hangs"},
        {"Invalid number of GPUs: 8 requested but only 4 were found.", "as it has devices"},
        {"launch failed on node01: Couldn't allocate a port for PMI to use", "launcher"},
        {"start failed on node01: CXI alloc failed on cxi0: request exceeds ACs limits", "network"},
        {"prterun detected that one or more processes exited with non-zero status", "run again"},
        {"srun: error: node01: task 3: Exited with exit code 3", "run again"},
        {"slurmstepd: error: *** STEP 1.0 ON node01 CANCELLED AT 2026-07-01 ***", "ended"},
        {"mpirun noticed that process rank 3 exited on signal 11 (Segmentation fault).", "crashed"},
    };
    const struct log_world cut = {WORLD, .skip_from = 8, .skip_to = 99, .no_footer = true};
    for (size_t f = 0; f < sizeof failures / sizeof *failures; f++) {
        struct sbp_text text = {0};
        sbp_text_add(&text, "%s\n", failures[f].line);
        assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, failures[f].part, 0);
        log_world_print(&cut, &text); /* good rows, then the failure */
        sbp_text_add(&text, "%s\n .. node01 pid 4003: Test failure common.cu:1100\n",
                     failures[f].line);
        assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, failures[f].part, 0);
        /* Standard output may come behind standard error. */
        sbp_text_add(&text, "%s\n", failures[f].line);
        log_world_print(&cut, &text);
        assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, failures[f].part, 0);
    }
}

/* No bandwidth shows that the time of a small message is wrong; its other half may. */
static void test_halves_that_differ(void **state)
{
    (void)state;
    static const char *const times[] = {"60.0", "51.0", "364.7"};
    for (int i = 0; i < 3; i++) {
        struct sbp_text text = {0};
        sbp_text_add(
            &text,
            "#@ ranks=8 | nodes=2\n"
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
            "8 2 float sum -1 36.0 0.00 0.00 0 %s 0.00 0.00 0\n"
            "16 4 float sum -1 37.0 0.00 0.00 0 36.5 0.00 0.00 0\n",
            times[i]);
        if (i != 1)
            assert_told(text.bytes, SBP_LOG_HALVES_DIFFER, "1 time in place over 1.5 times");
        struct sbp_logs logs;
        struct sbp_measured measured;
        log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
        assert_true((log_world_note(&logs, SBP_LOG_HALVES_DIFFER) == NULL) == (i == 1));
        assert_int_equal(measured.count, 2);
        log_world_free(&logs, &measured);
        sbp_text_free(&text);
    }
}

/* A failed run between two that did not: these stay. */
static void test_failed_between(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2025, "all_reduce", 2, 4)};
    const struct log_world other = {RUN(LOG_2025, "alltoall", 2, 4)};
    struct sbp_text text = {0};
    log_world_print(&world, &text);
    sbp_text_add(&text, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
                        "# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 1\n"
                        "node01: Test NCCL failure common.cu:1279 'remote process exited'\n");
    log_world_print(&other, &text);
    assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, "remote process",
                        log_world_rows(&world) + log_world_rows(&other));
    log_world_print(&world, &text);
    sbp_text_add(&text, "# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 1\n#\n");
    assert_text_refused(&text, NULL, SBP_LOG_NO_ROWS, "no line says why", log_world_rows(&world));
    sbp_text_add(&text, "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor)\n"
                        "#  Rank  0 Group  0 Pid 7 on node00 device 0 [0x07] Quick\n"
                        "node01: Test NCCL failure common.cu:1279 'remote process exited'\n");
    log_world_print(&plain, &text); /* the same again, without names */
    assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, "remote process", log_world_rows(&plain));
    log_world_print(&world, &text);
    sbp_text_add(&text, "srun: error: node01: task 3: Exited with exit code 3\n");
    assert_text_refused(&text, NULL, SBP_LOG_FAILED_RUN, "a run failed", log_world_rows(&world));
}

static void test_nothing(void **state)
{
    (void)state;
    assert_refused("", NULL, SBP_LOG_NO_TABLE, "no table", 0);
    assert_refused("Failed tests:\n  - run_2.log: alltoall_perf (N=2)\n", NULL, SBP_LOG_NO_TABLE,
                   "no table", 0);
    static const struct {
        const char *start, *advice;
    } packed[] = {{"\x1f\x8b\x08\x08\n", "gunzip"},
                  {"\xfd\x37zXZ\n", "unxz"},
                  {"\x28\xb5\x2f\xfd\n", "unzstd"},
                  {"PK\x03\x04\n", "unzip"},
                  {"\xff\xfe#", "iconv"},
                  {"\xfe\xff#", "iconv"},
                  {"\x1f", "no table"}};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        assert_refused(packed[i].start, NULL, SBP_LOG_NO_TABLE, packed[i].advice, 0);
    assert_refused("highest\n70056\n14198\n14188\n", NULL, SBP_LOG_NO_TABLE, "no table", 0);
    assert_refused("\x7f"
                   "ELF\x01\x02\n\n",
                   NULL, SBP_LOG_NO_TABLE, "no table", 0);
    assert_refused("# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n# Using devices\n",
                   NULL, SBP_LOG_NO_ROWS, "before its first row", 0);
}

/* --- wrong values --- */

static void test_wrong_values(void **state)
{
    (void)state;
    struct log_world world = {WORLD, .wrong_row = 3};
    assert_world_refused(&world, NULL, SBP_LOG_WRONG_VALUES, "after 4096 bytes");
    world.age = LOG_2021; /* the largest error, not a number of elements */
    assert_world_refused(&world, NULL, SBP_LOG_WRONG_VALUES, "after 4096 bytes");
    assert_change_refused(&plain, "values : 0 OK", "values : 50 FAILED", SBP_LOG_WRONG_VALUES,
                          "50 results");
}

static void test_asterisk(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2021, "all_reduce", 2, 4)};
    struct sbp_text text = {0};
    log_world_print(&world, &text);
    log_text_replace(&text, "5e-07\n", "2e+00*\n");
    assert_text_refused(&text, NULL, SBP_LOG_WRONG_VALUES, "after 1024 bytes", 0);
}

/* --- other benchmarks, other times --- */

static void test_other_benchmarks(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2025, "all_reduce", 2, 4)};
    static const char *const names[] = {"reduce_perf", "gather_perf", "hypercube_perf",
                                        "alltoallv_perf", "new_perf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sbp_text text = {0};
        log_world_print(&world, &text);
        log_text_replace(&text, "all_reduce_perf", names[i]);
        assert_text_refused(&text, NULL, SBP_LOG_NOT_PRICED, "no price", 0);
    }
    assert_change_refused(&plain, "   time  ", "cputime  ", SBP_LOG_CPU_TIME, "-C");
}

static void test_named_otherwise(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2025, "alltoall", 2, 4)};
    struct sbp_text text = {0};
    log_world_print(&world, &text);
    log_text_replace(&text, "alltoall_perf", "all_reduce_perf");
    assert_text_refused(&text, NULL, SBP_LOG_COLLECTIVE_DIFFERS, "all_reduce is said", 0);
}

/* --- not all of it, or not as it was --- */

static void test_average(void **state)
{
    (void)state;
    struct log_world world = {WORLD, .shift_average = 0.4};
    assert_world_refused(&world, NULL, SBP_LOG_AVERAGE_DIFFERS, "numbers were changed");
    world.shift_average = 0.004; /* less than digits explain */
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_print(&world, &text);
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_int_equal(measured.count, log_world_rows(&world));
    assert_int_equal(logs.note_count, 0);
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

static void assert_world_told(const struct log_world *world, enum sbp_log_reason reason,
                              const char *part)
{
    struct sbp_text text = {0};
    log_world_print(world, &text);
    assert_text_told(&text, reason, part);
}

/* Rows that whoever published a log copied from others behind its end: no option is about them. */
static void test_rows_behind(void **state)
{
    (void)state;
    const struct log_world other = {RUN(LOG_2022, "all_reduce", 4, 4), .no_list = true,
                                    .no_settings = true, .no_head = true, .no_footer = true};
    const struct sbp_log_options two = {.nodes = 2};
    struct sbp_text text = {0};
    log_world_print(&plain, &text);
    sbp_text_add(&text, "\nThe same on four nodes:\n");
    log_world_print(&other, &text);
    assert_refused(text.bytes, NULL, SBP_LOG_ROWS_BEHIND, "another run", log_world_rows(&plain));
    assert_refused(text.bytes, &two, SBP_LOG_ROWS_BEHIND, "another run", log_world_rows(&plain));
    log_text_replace(&text, "Rank  0 ", "Rank  first "); /* the order of the list decides nothing */
    log_text_replace(&text, "Rank  7 ", "Rank  0 ");
    log_text_replace(&text, "Rank  first ", "Rank  7 ");
    assert_text_refused(&text, NULL, SBP_LOG_ROWS_BEHIND, "another run", log_world_rows(&plain));
    log_world_print(&plain, &text);
    sbp_text_add(&text, "  10 12 ranks of both nodes\n");
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_int_equal(logs.table_count, 1); /* of words that only begin like a row */
    assert_int_equal(measured.count, log_world_rows(&plain));
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

static void test_missing_rows(void **state)
{
    (void)state;
    const struct log_world cut = {WORLD, .skip_from = 8, .skip_to = 99, .no_footer = true};
    const struct log_world shortened = {WORLD, .skip_from = 8, .skip_to = 10};
    const struct log_world unsaid = {WORLD, .skip_from = 8, .skip_to = 10, .no_settings = true};
    const struct log_world last = {WORLD, .skip_from = 12, .skip_to = 99, .no_settings = true};
    const struct log_world endless = {WORLD, .no_footer = true};
    assert_world_told(&cut, SBP_LOG_CUT_OFF, "after 7 of 17 sizes");
    assert_world_told(&shortened, SBP_LOG_SHORTENED, "14 of 17 sizes");
    assert_world_told(&unsaid, SBP_LOG_SHORTENED, "taken out");
    assert_world_told(&last, SBP_LOG_SHORTENED, "taken out");
    assert_world_told(&endless, SBP_LOG_NO_AVERAGE, "no average");
}

/* The file ends anywhere: what is read is what was written, and nothing is silent. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    log_world_print(&plain, &text);
    const size_t whole = text.length;
    for (size_t length = 0; length < whole; length += 7) {
        struct sbp_logs logs;
        struct sbp_measured measured;
        const char kept = text.bytes[length];
        text.bytes[length] = '\0';
        log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
        text.bytes[length] = kept;
        const bool ends_in_footer = strstr(text.bytes, "# Avg") < text.bytes + length;
        if (!ends_in_footer && logs.note_count == 0)
            fail_msg("nothing is told of a log that ends after %zu of %zu bytes", length, whole);
        for (int i = 0; i < measured.count; i++) {
            const double size = measured.point[i].bytes;
            const double s =
                (log_world_time_us(&plain, size, 0) + log_world_time_us(&plain, size, 1)) / 2e6;
            assert_true(measured.point[i].time_s > 0.99 * s && measured.point[i].time_s < 1.01 * s);
        }
        log_world_free(&logs, &measured);
    }
    sbp_text_free(&text);
}

static void test_settings_told(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    log_world_print(&plain, &text);
    log_text_replace(&text, "agg iters: 1 ", "agg iters: 4 ");
    assert_text_told(&text, SBP_LOG_NOT_ALONE, "groups of 4");
    log_world_print(&plain, &text);
    log_text_replace(&text, "# Using devices",
                     "# Blocking Enabled: wait for completion and barrier after "
                     "each collective \n# Using devices");
    assert_text_told(&text, SBP_LOG_NOT_ALONE, "waited for");
    log_world_print(&plain, &text);
    char *average = strstr(text.bytes, "Avg bus bandwidth");
    average[strcspn(average, "\n") - 1] = '\0';
    struct sbp_text failed = {0};
    sbp_text_add(&failed, "%s FAILED\n", text.bytes);
    assert_told(failed.bytes, SBP_LOG_BELOW_MINIMUM, "NCCL_TESTS_MIN_BW");
    sbp_text_free(&failed);
    sbp_text_free(&text);
}

/* --- beside each other --- */

static void print_over(const struct log_world *world, const char *line, struct sbp_text *text)
{
    struct log_world on = *world;
    on.noise = line;
    log_world_print(&on, text);
}

static void test_networks(void **state)
{
    (void)state;
    static const struct {
        const char *line, *network;
    } lines[] = {
        {"node00:1:2 [0] NCCL INFO Using network Socket", "Socket"},
        {"node00:1:2 [0] NCCL INFO Using network AWS Libfabric", "OFI"},
        {"node00:1:2 [0] NCCL INFO Using network IBext_v8", "IB"},
        {"node00:1:2 [0] NCCL INFO Using network GPUDirectTCPX_v7", "GPUDirectTCPX_v7"},
        {"node00:1:2 [0] NCCL INFO Channel 00/0 : 7[3] -> 8[0] [send] via NET/Socket/0", "Socket"},
        {"node00:1:2 [0] NCCL INFO Channel 00/0 : 7[3] -> 8[0] via NET/AWS Libfabric/0/GDRDMA",
         "OFI"},
        {"node00:1:2 [0] NCCL INFO Channel 00/0 : 7[3] -> 8[0] [receive] via NET/IB/0", "IB"},
        {"node00:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa;ofi_rxr", "OFI"},
        {"node00:1:2 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm", "Socket"},
        {"node00:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:172.31.16.64<0>", NULL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct sbp_text text = {0};
        struct sbp_logs logs;
        struct sbp_measured measured;
        sbp_text_add(&text, "%s\n", lines[i].line);
        print_over(&plain, lines[i].line, &text);
        log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
        const char *found = measured.source[0].network;
        if (lines[i].network == NULL ? found != NULL
                                     : found == NULL || strcmp(found, lines[i].network) != 0)
            fail_msg("%s: %s", lines[i].line, found == NULL ? "unknown" : found);
        const bool is_socket = found != NULL && strcmp(found, "Socket") == 0;
        assert_true((log_world_note(&logs, SBP_LOG_SOCKETS) != NULL) == is_socket);
        log_world_free(&logs, &measured);
        sbp_text_free(&text);
    }
}

static void test_socket_twin(void **state)
{
    (void)state;
    const struct log_world small = {RUN(LOG_2022, "all_reduce", 4, 4)};
    struct sbp_text text = {0};
    print_over(&small, "node00:1:2 [0] NCCL INFO Using network Socket", &text);
    print_over(&plain, "node00:1:2 [0] NCCL INFO Using network IB", &text);
    assert_text_refused(&text, NULL, SBP_LOG_SOCKET_TWIN, "over IB", log_world_rows(&plain));
}

static void test_slow_twin(void **state)
{
    (void)state;
    struct log_world slow = {WORLD, .slow = 2.5};
    struct sbp_text text = {0};
    for (int order = 0; order < 2; order++) {
        log_world_print(order == 0 ? &plain : &slow, &text);
        log_world_print(order == 0 ? &slow : &plain, &text);
        assert_text_refused(&text, NULL, SBP_LOG_SLOW_TWIN, "2.5 times as long",
                            log_world_rows(&plain));
    }
    slow.slow = 1.5;
    log_world_print(&plain, &text);
    log_world_print(&slow, &text);
    assert_text_told(&text, SBP_LOG_SLOWER, "1.5 times as long");
    log_world_print(&plain, &text);
    log_world_print(&plain, &text);
    assert_text_refused(&text, NULL, SBP_LOG_COPY, "a copy", log_world_rows(&plain));
}

/* From 16 MiB on alone; sizes below 1 MiB count only where there are too few from there on. */
static void test_slow_end_twin(void **state)
{
    (void)state;
    const struct log_world begun = {WORLD, .skip_from = 15, .skip_to = 17, .no_footer = true};
    const struct log_world end = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 24, 1 << 26),
                                  .no_list = true,
                                  .no_settings = true,
                                  .no_head = true,
                                  .no_footer = true,
                                  .slow = 2.5};
    struct sbp_text text = {0};
    log_world_print(&plain, &text);
    log_world_print(&begun, &text);
    log_world_print(&end, &text);
    assert_text_refused(&text, NULL, SBP_LOG_SLOW_TWIN, "2.5 times as long",
                        log_world_rows(&plain));
}

/* Both end at 1 MiB, as OSU's collectives do, or where three sizes from 128 KiB on are left. */
static void test_slow_small_twin(void **state)
{
    (void)state;
    for (int most = 1 << 19; most <= 1 << 20; most *= 2) {
        const struct log_world fast = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 11, most)};
        const struct log_world slow = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 10, most),
                                       .slow = 2.5};
        struct sbp_text text = {0};
        log_world_print(&slow, &text);
        log_world_print(&fast, &text);
        assert_text_refused(&text, NULL, SBP_LOG_SLOW_TWIN, "2.5 times as long",
                            log_world_rows(&fast));
    }
}

/* Slow at small messages, or of another shape: no twin. */
static void test_no_twin(void **state)
{
    (void)state;
    const struct log_world other = {RUN(LOG_2022, "all_reduce", 4, 4), .slow = 5};
    struct log_world small = {WORLD, .slow = 5};
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    small.most = 1 << 18;
    log_world_print(&plain, &text);
    log_world_print(&other, &text);
    log_world_print(&small, &text);
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_int_equal(measured.source_count, 3);
    assert_int_equal(logs.note_count, 0);
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_failed_between),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_asterisk),
        cmocka_unit_test(test_other_benchmarks),
        cmocka_unit_test(test_named_otherwise),
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_rows_behind),
        cmocka_unit_test(test_missing_rows),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_settings_told),
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_socket_twin),
        cmocka_unit_test(test_slow_twin),
        cmocka_unit_test(test_slow_end_twin),
        cmocka_unit_test(test_slow_small_twin),
        cmocka_unit_test(test_no_twin),
        cmocka_unit_test(test_halves_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
