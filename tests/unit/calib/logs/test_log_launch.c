/* Launches that went wrong: one process, copies of a run, ranks on other nodes than is said, lists
 * of devices that do not belong to a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/log_world.h"
#include "tests/support/unit.h"

#define RUN(AGE, COLLECTIVE, NODES, EACH) LOG_RUN(AGE, COLLECTIVE, NODES, EACH, 1 << 10, 1 << 26)
#define WORLD                             RUN(LOG_2022, "all_reduce", 2, 4)

static const struct log_world plain = {WORLD};

static void assert_shape(const char *text, const struct sbp_log_options *options, int nodes,
                         int each)
{
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_read(text, "run.log", options, &logs, &measured);
    if (logs.note_count > 0)
        fail_msg("%s", logs.note[0].text);
    assert_true(measured.count > 0);
    assert_int_equal(measured.point[0].nodes, nodes);
    assert_int_equal(measured.point[0].ranks_per_node, each);
    log_world_free(&logs, &measured);
}

static void test_one_rank(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2022, "all_reduce", 1, 1)};
    const struct log_world listless = {RUN(LOG_2022, "all_reduce", 1, 1), .no_list = true};
    const struct sbp_log_options options = {.nodes = 2, .ranks_per_node = 4};
    assert_world_refused(&world, NULL, SBP_LOG_ONE_RANK, "MPI=1");
    assert_world_refused(&listless, NULL, SBP_LOG_ONE_RANK, "MPI=1");
    assert_world_refused(&listless, &options, SBP_LOG_ONE_RANK, "MPI=1");
}

/* Adds the first line; returns what follows. */
static const char *add_line(const char *lines, struct sbp_text *text)
{
    const size_t length = strcspn(lines, "\n") + 1;
    sbp_text_add(text, "%.*s", (int)length, lines);
    return lines + length;
}

/* Each line twice, the second time `lag` lines later. */
static void add_doubled(const char *lines, int lag, struct sbp_text *text)
{
    const char *second = lines;
    while (*second != '\0') {
        if (*lines != '\0')
            lines = add_line(lines, text);
        if (lag-- <= 0)
            second = add_line(second, text);
    }
}

/* Two processes, each by itself: their lines come one by one, every size twice; or their lists, one
 * behind the other, before the lines of their tables. One may be late: it has rows left when the
 * other has ended. */
static void test_copies(void **state)
{
    (void)state;
    const struct sbp_log_options two = {.nodes = 2};
    for (int ranks = 1; ranks <= 8; ranks += 7)
        for (int lag = 0; lag <= 5; lag += 5) {
            const struct log_world world = {RUN(LOG_2022, "all_reduce", 1, ranks)};
            struct sbp_text one = {0}, text = {0};
            log_world_print(&world, &one);
            const char *table = lag > 0 ? strstr(one.bytes, "#\n#    ") : one.bytes;
            const int lists = (int)(table - one.bytes);
            sbp_text_add(&text, "%.*s%.*s", lists, one.bytes, lists, one.bytes);
            add_doubled(table, lag, &text);
            assert_refused(text.bytes, NULL, SBP_LOG_COPIES, "rank 0 is listed more than once", 0);
            assert_refused(text.bytes, &two, SBP_LOG_COPIES, "rank 0 is listed more than once", 0);
            sbp_text_free(&one);
            sbp_text_free(&text);
        }
}

static void test_one_node(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2022, "all_reduce", 1, 8)};
    const struct sbp_log_options options = {.nodes = 2};
    struct sbp_text text = {0};
    assert_world_refused(&world, &options, SBP_LOG_ONE_NODE, "the options say 2 nodes");
    sbp_text_add(&text, "#@ ranks=16 | nodes=2\n");
    log_world_print(&world, &text);
    assert_text_refused(&text, NULL, SBP_LOG_ONE_NODE, "all 8 ranks ran on one, node00", 0);
}

static void test_shapes(void **state)
{
    (void)state;
    const struct sbp_log_options four = {.nodes = 4}, one = {.nodes = 1};
    struct sbp_text text = {0};
    assert_world_refused(&plain, &four, SBP_LOG_SHAPE_DIFFERS, "the list of devices has 2");
    assert_world_refused(&plain, &one, SBP_LOG_SHAPE_DIFFERS, "1 node, but");
    assert_change_refused(&plain, "Rank  7 Group  0 Pid   4007 on     node01 device  3",
                          "Rank  7 Group  0 Pid   4007 on     node00 device  4", SBP_LOG_UNEVEN,
                          "from 3 to 5");
    assert_change_refused(&plain, "node01", "node00", SBP_LOG_HOSTS_REPEAT,
                          "node00 lists a device");
    assert_change_refused(&plain, "Rank  7 Group  0", "Rank  7 Group  1", SBP_LOG_GROUPS,
                          "2 groups");
    sbp_text_add(&text, "#@ ranks_per_node=2\n");
    log_world_print(&plain, &text);
    assert_text_refused(&text, NULL, SBP_LOG_SHAPE_DIFFERS, "2 ranks a node", 0);
}

/* As many nodes of four, whose ranks list these devices. */
static void print_devices(int nodes, const char *const device[4], struct sbp_text *text)
{
    const struct log_world world = {RUN(LOG_2022, "all_reduce", nodes, 4)};
    *text = (struct sbp_text){0};
    log_world_print(&world, text);
    for (int d = 0; d < 4; d++) {
        char as_printed[32];
        (void)snprintf(as_printed, sizeof as_printed, "device  %d [0000:%02x:00]", d, d);
        log_text_replace(text, as_printed, device[d]);
    }
}

/* Processes that are each shown one device call it 0. What tells them apart: buses, names of hosts,
 * where there are several; who says how many nodes there were. */
static void test_one_device_each(void **state)
{
    (void)state;
    static const char *const by_bus[] = {"device  0 [0000:00:00]", "device  0 [0000:01:00]",
                                         "device  0 [0000:02:00]", "device  0 [0000:03:00]"};
    static const char *const by_name[] = {"device  0 [0x01]", "device  0 [0x01]",
                                          "device  0 [0x01]", "device  0 [0x01]"};
    static const char *const no_bus[] = {"device  0 red", "device  0 green", "device  0 blue",
                                         "device  0 grey"};
    static const char *const by_half[] = {"device  0 [0x1b]", "device  0 [0x43]",
                                          "device  0 [0x1b]", "device  0 [0x43]"};
    static const char *const *const devices[] = {by_bus, by_name, by_half, no_bus};
    const struct sbp_log_options one = {.nodes = 1}, four = {.ranks_per_node = 4};
    const struct sbp_log_options two = {.ranks_per_node = 2}; /* said of other lists */
    for (int nodes = 1; nodes <= 2; nodes++)
        for (int i = 0; i < 4; i++) {
            struct sbp_text text;
            print_devices(nodes, devices[i], &text);
            assert_shape(text.bytes, nodes == 1 ? &one : NULL, nodes, 4);
            assert_shape(text.bytes, &four, nodes, 4);
            if (i == 0 || nodes == 2)
                assert_shape(text.bytes, NULL, nodes, 4);
            else
                for (int said = 0; said < 2; said++)
                    assert_refused(text.bytes, said ? &two : NULL, SBP_LOG_HOSTS_REPEAT,
                                   "say it with --nodes", 0);
            sbp_text_free(&text);
        }
}

/* Two processes of two devices each may be one node, or two of one name. */
static void test_two_devices_each(void **state)
{
    (void)state;
    static const char *const devices[] = {"device  0 [0000:00:00]", "device  1 [0000:01:00]",
                                          "device  0 [0000:02:00]", "device  1 [0000:03:00]"};
    const struct sbp_log_options options[] = {{.nodes = 1}, {.nodes = 2}, {.ranks_per_node = 4}};
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct sbp_text text;
        print_devices(nodes, devices, &text);
        assert_refused(text.bytes, NULL, SBP_LOG_HOSTS_REPEAT, "say it with --nodes", 0);
        assert_shape(text.bytes, &options[nodes - 1], nodes, 4);
        assert_shape(text.bytes, &options[2], nodes, 4);
        sbp_text_free(&text);
    }
}

/* One device whose whole bus stands twice: nobody can say that these are two of one node. */
static void test_same_device(void **state)
{
    (void)state;
    static const char *const devices[][4] = {
        {"device  0 [0000:07:00]", "device  0 [0000:07:00]", "device  0 [0000:07:00]",
         "device  0 [0000:07:00]"},
        {"device  0 [0000:07:00]", "device  0 [0000:08:00]", "device  0 [0000:09:00]",
         "device  0 [0000:07:00]"},
        {"device  0 [0000:07:00]", "device  1 [0000:08:00]", "device  0 [0000:07:00]",
         "device  1 [0000:08:00]"},
        {"device  0 [0x07]", "device  1 [0x08]", "device  0 [0x07]", "device  1 [0x08]"}};
    const struct sbp_log_options options[] = {{.nodes = 0}, {.ranks_per_node = 4}};
    for (int i = 0; i < 4; i++)
        for (int nodes = 1; nodes <= 2; nodes++)
            for (int o = 0; o < 2; o++) {
                struct sbp_text text;
                print_devices(nodes, devices[i], &text);
                assert_text_refused(&text, &options[o], SBP_LOG_HOSTS_REPEAT,
                                    "lists a device more than once", 0);
            }
}

/* A list of one run above the table of another. */
static void test_mixed(void **state)
{
    (void)state;
    const struct log_world other = {RUN(LOG_2022, "all_reduce", 3, 4), .no_list = true,
                                    .no_settings = true};
    const struct log_world listless = {WORLD, .no_list = true};
    const struct sbp_log_options wrong = {.nodes = 3, .ranks_per_node = 4};
    struct sbp_text list = {0}, text = {0};
    log_world_print(&plain, &list);
    *strstr(list.bytes, "#\n#    ") = '\0';
    sbp_text_add(&text, "%s", list.bytes);
    log_world_print(&other, &text);
    assert_text_refused(&text, NULL, SBP_LOG_RANKS_DIFFER,
                        "has 8 ranks, but the columns are those of 12", 0);
    sbp_text_free(&list);
    sbp_text_add(&text, "#@ ranks=12 | nodes=3\n");
    log_world_print(&listless, &text);
    assert_text_refused(&text, NULL, SBP_LOG_RANKS_DIFFER, "12 ranks", 0);
    assert_world_refused(&listless, &wrong, SBP_LOG_UNEVEN, "8 ranks do not fill");
}

static void test_unknown(void **state)
{
    (void)state;
    const struct log_world ranks = {RUN(LOG_2022, "broadcast", 2, 4), .no_list = true};
    const struct log_world nodes = {WORLD, .no_list = true};
    const struct sbp_log_options three = {.ranks_per_node = 3};
    assert_world_refused(&ranks, NULL, SBP_LOG_RANKS_UNKNOWN, "--nodes N and --ranks-per-node N");
    assert_world_refused(&nodes, NULL, SBP_LOG_NODES_UNKNOWN, "8 ranks");
    assert_world_refused(&nodes, &three, SBP_LOG_UNEVEN, "3 ranks a node");
}

/* Two processes, each by itself, of which the second lists its devices when the first is under way.
 * Its rows behind the end of the first are of no list, so that no other line tells that it ran on
 * one node; its earlier rows stand among those of the first. */
static void test_rows_of_late_copy(void **state)
{
    (void)state;
    const struct log_world world = {RUN(LOG_2022, "all_reduce", 1, 8)};
    const struct sbp_log_options two = {.nodes = 2};
    struct sbp_text one = {0}, text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_print(&world, &one);
    const char *rest = strstr(one.bytes, "\n        2048") + 1;
    const int begun = (int)(rest - one.bytes);
    sbp_text_add(&text, "%.*s%.*s", begun, one.bytes, begun, one.bytes);
    add_doubled(rest, 5, &text);
    for (int said = 0; said < 2; said++) {
        log_world_read(text.bytes, "run.log", said ? &two : NULL, &logs, &measured);
        assert_int_equal(measured.count, said ? 0 : 1);
        assert_non_null(log_world_note(&logs, SBP_LOG_ROWS_BEHIND));
        assert_non_null(log_world_note(&logs, said ? SBP_LOG_ONE_NODE : SBP_LOG_AVERAGE_DIFFERS));
        log_world_free(&logs, &measured);
    }
    sbp_text_free(&one);
    sbp_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_one_node),        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_one_device_each), cmocka_unit_test(test_two_devices_each),
        cmocka_unit_test(test_same_device),     cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_unknown),         cmocka_unit_test(test_rows_of_late_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
