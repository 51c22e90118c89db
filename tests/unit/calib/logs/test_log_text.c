/* Tables of nccl-tests and rccl-tests of every age, with a known answer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "tests/support/log_world.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

static const struct {
    const char *name;
    enum sbp_collective kind;
    enum log_age since;
} collectives[] = {
    {"all_reduce", SBP_ALL_REDUCE, LOG_2017},         {"all_gather", SBP_ALL_GATHER, LOG_2017},
    {"reduce_scatter", SBP_REDUCE_SCATTER, LOG_2017}, {"broadcast", SBP_BROADCAST_COLL, LOG_2017},
    {"alltoall", SBP_ALL_TO_ALL, LOG_2021},           {"sendrecv", SBP_SEND_RECV, LOG_2021}};

/* The time of the formula, as far as the halves that count are printed. */
static double expected_s(const struct log_world *world, double size)
{
    const double out = log_world_time_us(world, size, 0), in = log_world_time_us(world, size, 1);
    const bool is_other =
        strcmp(world->collective, "alltoall") == 0 || strcmp(world->collective, "sendrecv") == 0;
    if (world->in_place_only)
        return in * 1e-6;
    if ((world->age == LOG_2017 && strcmp(world->collective, "broadcast") == 0) ||
        (world->age >= LOG_2022 && is_other && !world->unchecked))
        return out * 1e-6;
    return out > 1.5 * in ? in * 1e-6 : (out + in) / 2 * 1e-6;
}

/* Every point of the world's run, in order, from point[*at] on. */
static void assert_points(const struct log_world *world, enum sbp_collective kind,
                          const struct sbp_measured *measured, int *at)
{
    for (double asked = world->least; asked <= world->most; asked *= 2) {
        const double size = log_world_size(world, asked);
        if (size == 0)
            continue;
        assert_true(*at < measured->count);
        const struct sbp_measured_point *point = &measured->point[(*at)++];
        assert_int_equal(point->kind, kind);
        assert_int_equal(point->nodes, world->nodes);
        assert_int_equal(point->ranks_per_node, world->each);
        assert_true(point->bytes == size);
        /* Half a unit of the last digit: 0.05 us from 100 us on, 0.5 from 10 ms on; 0.5 us in the
         * first age. */
        const double s = expected_s(world, size);
        const double slack = world->age == LOG_2017 ? 0.5e-6
                             : s < 1e-4             ? 0.005e-6
                             : s < 1e-2             ? 0.05e-6
                                                    : 0.5e-6;
        if (!(fabs(point->time_s - s) <= 1.0001 * slack))
            fail_msg("%s of %.0f bytes, age %d: %.9g s is not %.9g s", world->collective, size,
                     world->age, point->time_s, s);
    }
}

/* Reads the world and checks every point; the logs are left for more questions. */
static void read_world(const struct log_world *world, enum sbp_collective kind, const char *name,
                       const struct sbp_log_options *options, struct sbp_logs *logs)
{
    struct sbp_text text = {0};
    struct sbp_measured measured;
    int at = 0;
    log_world_print(world, &text);
    log_world_read(text.bytes, name, options, logs, &measured);
    for (int n = 0; n < logs->note_count; n++)
        if (sbp_log_reasons[logs->note[n].reason].effect == SBP_LOG_REFUSED)
            fail_msg("age %d, %s: %s\n%s", world->age, world->collective, logs->note[n].text,
                     text.bytes);
    assert_int_equal(logs->table_count, 1);
    assert_points(world, kind, &measured, &at);
    assert_int_equal(at, measured.count);
    assert_int_equal(measured.count, log_world_rows(world));
    assert_null(log_world_note(logs, SBP_LOG_BROKEN_ROW));
    assert_null(log_world_note(logs, SBP_LOG_SHORTENED));
    sbp_points_free(&measured);
    sbp_text_free(&text);
}

static void test_ages(void **state)
{
    (void)state;
    static const int shapes[][2] = {{2, 4}, {1, 8}, {3, 1}, {5, 6}};
    int runs = 0;
    for (int age = 0; age < LOG_AGES; age++)
        for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                struct sbp_logs logs;
                if (age < (int)collectives[c].since)
                    continue;
                const struct log_world world = {LOG_RUN((enum log_age)age, collectives[c].name,
                                                        shapes[s][0], shapes[s][1], 8, 1 << 28)};
                read_world(&world, collectives[c].kind, "run.log", NULL, &logs);
                assert_int_equal(logs.table[0].ranks_from, SBP_LOG_LISTED);
                assert_null(log_world_note(&logs, SBP_LOG_NAME_GUESSED));
                sbp_logs_free(&logs);
                runs++;
            }
    assert_int_equal(runs, 4 * (4 + 4 + 6 + 6 + 6));
}

/* The same, in other clothes. */
static void test_formats(void **state)
{
    (void)state;
    static const char INFO[] = "node00:4000:4021 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P";
    const struct log_world base = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 8, 1 << 26)};
    struct log_world worlds[20];
    int count = 0;
    for (int i = 0; i < 20; i++)
        worlds[i] = base;
    worlds[count++].tag = "[1,0]<stdout>:";
    worlds[count++].tag = "[1,0]<stdout>: ";
    worlds[count++].tag = "[prterun-node00-4711@1,0]<stdout>: ";
    worlds[count++].tag = "0: ";
    worlds[count++].tag = " 0:  ";
    worlds[count++].tag = "[0] ";
    worlds[count++].tag = "    ";
    worlds[count++].tag = "> > ";
    worlds[count++].tag = "node07: ";
    worlds[count++].tag = "[2024-05-01 12:00:00] ";
    worlds[count++].tag = "[node07:4711]: ";
    worlds[count++].tag = "2024-05-01T12:00:00.123456Z ";
    worlds[count++].end = "\r\n";
    worlds[count++].end = "   \n\n";
    worlds[count++].noise = INFO;
    worlds[count++].noise = "Warning: Permanently added 'node01' to the list of known hosts.";
    worlds[count++].torn = INFO;
    worlds[count].by_iteration = true;
    worlds[count++].has_stamp = true;
    worlds[count].has_algorithm = true;
    worlds[count++].has_stamp = true;
    worlds[count++].in_place_only = true;
    assert_int_equal(count, 20);
    for (int i = 0; i < count; i++) {
        struct sbp_logs logs;
        read_world(&worlds[i], SBP_ALL_REDUCE, "run.log", NULL, &logs);
        sbp_logs_free(&logs);
    }
}

/* Several runs in a file, between lines of a launcher and a byte order mark before. */
static void test_tables(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    struct log_world world[6];
    int at = 0;
    sbp_text_add(&text, "\xef\xbb\xbf");
    for (int c = 0; c < 6; c++) {
        world[c] = (struct log_world){LOG_RUN(c % 2 == 0 ? LOG_2025 : LOG_2022, collectives[c].name,
                                              2 + c, 2, 1 << 10, 1 << 20)};
        log_world_print(&world[c], &text);
        sbp_text_add(&text, "\nsubmitting the next job\n$ mpirun -n 8 ./build/run\n\n");
    }
    log_world_read(text.bytes, "job.out", NULL, &logs, &measured);
    assert_int_equal(logs.table_count, 6);
    assert_int_equal(measured.source_count, 6);
    for (int c = 0; c < 6; c++) {
        assert_int_equal(logs.table[c].number, c);
        assert_false(logs.table[c].is_refused);
        assert_points(&world[c], collectives[c].kind, &measured, &at);
        assert_int_equal(measured.source[measured.point[at - 1].source].table, c);
    }
    assert_int_equal(at, measured.count);
    assert_string_equal(measured.source[0].library, "NCCL 2.28.7");
    assert_null(measured.source[1].library);
    assert_string_equal(measured.source[0].name, "job.out");
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

/* --- ranks, nodes, names that a log does not say --- */

static void test_inferred_ranks(void **state)
{
    (void)state;
    const uint64_t seed = 20260711;
    int exact = 0;
    struct sbp_random random = seeded(seed);
    for (int trial = 0; trial < 60; trial++) {
        const int each = 1 + (int)sbp_random_below(&random, 8);
        const int nodes = 2 + (int)sbp_random_below(&random, 20);
        const size_t c = sbp_random_below(&random, 3);
        const struct log_world world = {LOG_RUN(trial % 2 == 0 ? LOG_2022 : LOG_2025,
                                                collectives[c].name, nodes, each, 1 << 20,
                                                (double)((int64_t)1 << 33)),
                                        .no_list = true};
        struct sbp_logs logs;
        const struct sbp_log_options options = {.ranks_per_node = each};
        read_world(&world, collectives[c].kind, "run.log", &options, &logs);
        assert_int_equal(logs.table[0].ranks, nodes * each);
        exact += logs.table[0].ranks_from == SBP_LOG_INFERRED;
        sbp_logs_free(&logs);
    }
    assert_int_equal(exact, 60);
}

/* Where the bus bandwidth leaves several numbers open, ranks a node or a line of the file decide.
 */
static void test_open_ranks(void **state)
{
    (void)state;
    struct log_world world = {LOG_RUN(LOG_2022, "all_reduce", 500, 4, 1 << 20, 1 << 28),
                              .no_list = true};
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_print(&world, &text);
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_int_equal(measured.count, 0);
    assert_non_null(log_world_note(&logs, SBP_LOG_RANKS_UNKNOWN));
    log_world_free(&logs, &measured);
    const struct sbp_log_options options = {.nodes = 500, .ranks_per_node = 4};
    read_world(&world, SBP_ALL_REDUCE, "run.log", &options, &logs);
    assert_int_equal(logs.table[0].ranks_from, SBP_LOG_SAID);
    sbp_logs_free(&logs);
    sbp_text_free(&text);
}

static void read_said(const char *said, const struct log_world *world, const char *name,
                      struct sbp_logs *logs, struct sbp_measured *measured)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "%s\n", said);
    log_world_print(world, &text);
    log_world_read(text.bytes, name, NULL, logs, measured);
    sbp_text_free(&text);
}

static void test_own_line(void **state)
{
    (void)state;
    const struct log_world world = {LOG_RUN(LOG_2022, "all_gather", 16, 4, 1 << 12, 1 << 28),
                                    .no_list = true, .unchecked = true};
    static const struct {
        const char *said;
        enum sbp_log_reason reason;
        int line;
    } refused[] = {
        {"#@ note=nothing", SBP_LOG_COLLECTIVE_UNKNOWN, 6},
        {"#@ ranks=64 | nodes=16", SBP_LOG_COLLECTIVE_UNKNOWN, 6},
        {"#@ collective=all_gather", SBP_LOG_NODES_UNKNOWN, 2},
        {"#@ collective=all_gather | nodes=1?", SBP_LOG_NODES_UNKNOWN, 2},
        {"#@ collective=all_gather | nodes=2/4", SBP_LOG_NODES_UNKNOWN, 2},
        {"#@ collective=all_reduce | nodes=16", SBP_LOG_COLLECTIVE_DIFFERS, 1},
        {"#@ collective=all_gather | nodes=7", SBP_LOG_UNEVEN, 1},
        {"#@ collective=all_gather | ranks=32 | nodes=16", SBP_LOG_RANKS_DIFFER, 1},
    };
    struct sbp_logs logs;
    struct sbp_measured measured;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        read_said(refused[i].said, &world, "run.log", &logs, &measured);
        const struct sbp_log_note *note = log_world_note(&logs, refused[i].reason);
        if (note == NULL)
            fail_msg("%s: %s", refused[i].said, logs.note_count > 0 ? logs.note[0].text : "");
        assert_int_equal(note->line, refused[i].line);
        assert_int_equal(measured.count, 0);
        log_world_free(&logs, &measured);
    }
    read_said(
        "#@ source=a | ranks=64 (inferred) | nodes=16 (by hand) | collective=all_gather | b=c",
        &world, "run.log", &logs, &measured);
    assert_int_equal(measured.count, log_world_rows(&world));
    assert_int_equal(measured.point[0].nodes, 16);
    log_world_free(&logs, &measured);
    read_said("#@ nodes=16", &world, "results/all_gather_perf.1.log", &logs, &measured);
    assert_int_equal(measured.count, log_world_rows(&world));
    assert_non_null(log_world_note(&logs, SBP_LOG_NAME_GUESSED));
    log_world_free(&logs, &measured);
    read_said("#@ nodes=16\n+ srun -N 16 ./build/alltoall_perf -b 4K", &world, "all_gather.log",
              &logs, &measured);
    assert_int_equal(measured.point[0].kind, SBP_ALL_TO_ALL); /* the command is nearer */
    log_world_free(&logs, &measured);
}

/* A publisher's table: no settings, no list, no footer, perhaps no head. */
static void test_bare_tables(void **state)
{
    (void)state;
    struct log_world world = {LOG_RUN(LOG_2022, "reduce_scatter", 4, 8, 1 << 12, 1 << 28),
                              .no_list = true, .no_settings = true, .no_footer = true};
    const struct sbp_log_options options = {.nodes = 4};
    for (int has_head = 0; has_head < 2; has_head++) {
        struct sbp_logs logs;
        world.no_head = has_head == 0;
        read_world(&world, SBP_REDUCE_SCATTER, "run.log", &options, &logs);
        assert_non_null(log_world_note(&logs, SBP_LOG_NO_AVERAGE));
        sbp_logs_free(&logs);
    }
}

/* --- lists --- */

/* Lines of a list in the middle of which there are dots: the last rank tells how many there were,
 * as far as the columns allow. */
static void test_short_list(void **state)
{
    (void)state;
    const struct log_world world = {LOG_RUN(LOG_2022, "all_reduce", 8, 8, 1 << 12, 1 << 28)};
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    const struct sbp_log_options options = {.ranks_per_node = 8};
    log_world_print(&world, &text);
    char *from = strstr(text.bytes, "#  Rank  3"), *to = strstr(text.bytes, "#  Rank 63");
    memmove(from + 4, to, strlen(to) + 1);
    memcpy(from, "...\n", 4);
    log_world_read(text.bytes, "run.log", &options, &logs, &measured);
    assert_int_equal(measured.count, log_world_rows(&world));
    assert_int_equal(measured.point[0].nodes, 8);
    assert_int_equal(logs.table[0].ranks_from, SBP_LOG_INFERRED);
    log_world_free(&logs, &measured);
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_non_null(log_world_note(&logs, SBP_LOG_NODES_UNKNOWN));
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

/* --- rows --- */

static void test_sizes_of_nothing(void **state)
{
    (void)state;
    const struct log_world world = {LOG_RUN(LOG_2022, "all_gather", 2, 4, 4, 1 << 20)};
    struct sbp_logs logs;
    read_world(&world, SBP_ALL_GATHER, "run.log", NULL, &logs);
    const struct sbp_log_note *note = log_world_note(&logs, SBP_LOG_SIZE_ZERO);
    assert_non_null(note);
    assert_non_null(strstr(note->text, "5 rows of size 0")); /* 4 to 64 bytes for 8 ranks */
    assert_int_equal(logs.table[0].rows, 19);
    sbp_logs_free(&logs);
}

static void test_first_use(void **state)
{
    (void)state;
    struct log_world world = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 10, 1 << 26),
                              .slow_first = 4};
    struct sbp_logs logs;
    read_world(&world, SBP_ALL_REDUCE, "run.log", NULL, &logs);
    assert_int_equal(logs.table[0].first_uses, 1);
    assert_true(logs.table[0].point[0].first_use);
    assert_true(logs.table[0].point[0].spread > 2.5);
    assert_false(logs.table[0].point[1].first_use);
    assert_true(fabs(logs.table[0].point[1].spread - 0.01) < 0.002);
    sbp_logs_free(&logs);
    world.slow_first = 1.4;
    read_world(&world, SBP_ALL_REDUCE, "run.log", NULL, &logs);
    assert_int_equal(logs.table[0].first_uses, 0);
    sbp_logs_free(&logs);
}

/* A digit of a row is changed: its columns no longer belong together. Cut short, it is none. */
static void test_broken_rows(void **state)
{
    (void)state;
    const struct log_world world = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 10, 1 << 26)};
    static const char *const damages[] = {
        "   733554432", "    33554432       8388609",
        "    33554432       8388608     float     sum      -1\n#"};
    for (int d = 0; d < 3; d++) {
        struct sbp_text text = {0};
        struct sbp_logs logs;
        struct sbp_measured measured;
        log_world_print(&world, &text);
        char *row = strstr(text.bytes, "    33554432 ");
        assert_non_null(row);
        memcpy(row, damages[d], strlen(damages[d])); /* another size, count; no cells */
        log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
        assert_int_equal(measured.count, log_world_rows(&world) - 1);
        assert_non_null(log_world_note(&logs, SBP_LOG_BROKEN_ROW));
        log_world_free(&logs, &measured);
        sbp_text_free(&text);
    }
}

/* As it comes out of a spreadsheet. */
static void test_tabs(void **state)
{
    (void)state;
    const struct log_world world = {LOG_RUN(LOG_2022, "all_reduce", 2, 4, 1 << 10, 1 << 26)};
    struct sbp_text text = {0};
    struct sbp_logs logs;
    struct sbp_measured measured;
    log_world_print(&world, &text);
    for (char *at = text.bytes; (at = strchr(at, ' ')) != NULL;)
        *at = '\t';
    log_world_read(text.bytes, "run.log", NULL, &logs, &measured);
    assert_int_equal(logs.note_count, 0);
    assert_int_equal(measured.count, log_world_rows(&world));
    assert_int_equal(measured.point[0].nodes, 2);
    log_world_free(&logs, &measured);
    sbp_text_free(&text);
}

/* Rows that replay a trace leave the out-of-place half blank. */
static void test_blank_half(void **state)
{
    (void)state;
    struct sbp_logs logs;
    struct sbp_measured measured;
    const struct sbp_log_options options = {.nodes = 1};
    log_world_read("# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
                   "     1048576        262144     float     sum      -1"
                   "                                    100.0   10.49   15.73       0\n",
                   "run.log", &options, &logs, &measured);
    assert_int_equal(measured.count, 1);
    assert_int_equal(measured.point[0].ranks_per_node, 4);
    assert_true(fabs(measured.point[0].time_s - 100e-6) < 1e-12);
    assert_true(measured.point[0].spread == 0);
    log_world_free(&logs, &measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ages),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_inferred_ranks),
        cmocka_unit_test(test_open_ranks),
        cmocka_unit_test(test_own_line),
        cmocka_unit_test(test_bare_tables),
        cmocka_unit_test(test_short_list),
        cmocka_unit_test(test_sizes_of_nothing),
        cmocka_unit_test(test_first_use),
        cmocka_unit_test(test_broken_rows),
        cmocka_unit_test(test_blank_half),
        cmocka_unit_test(test_tabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
