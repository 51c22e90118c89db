/* The OSU benchmarks, nccl-tests' JSON, the collector's CSV; and any bytes at all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "tests/support/log_world.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

struct read {
    struct sbp_logs logs;
    struct sbp_measured measured;
};

static struct read read_text(const char *text, const struct sbp_log_options *options)
{
    struct read read;
    log_world_read(text, "run.log", options, &read.logs, &read.measured);
    return read;
}

static void read_free(struct read *read)
{
    log_world_free(&read->logs, &read->measured);
}

static void assert_point(const struct read *read, int at, double bytes, double time_us)
{
    assert_true(at < read->measured.count);
    assert_true(read->measured.point[at].bytes == bytes);
    assert_true(fabs(read->measured.point[at].time_s - time_us * 1e-6) < 1e-12);
}

static void assert_only(const struct read *read, enum sbp_log_reason reason, const char *part)
{
    const struct sbp_log_note *note = log_world_note(&read->logs, reason);
    if (note == NULL || strstr(note->text, part) == NULL)
        fail_msg("no \"%s\", but \"%s\"", part,
                 read->logs.note_count > 0 ? read->logs.note[0].text : "");
}

/* --- OSU --- */

/* Sizes on 4 x 8 ranks: what a rank gives to all, or to each peer, is a thirty-second of n. */
static void test_osu_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *title;
        enum sbp_collective kind;
        double scale;
    } titles[] = {
        {"MPI Allreduce Latency Test v5.6.2", SBP_ALL_REDUCE, 1},
        {"MPI-CUDA Allreduce Latency Test v7.4", SBP_ALL_REDUCE, 1},
        {"MPI Allgather Latency Test v5.8", SBP_ALL_GATHER, 32},
        {"MPI-ROCM Reduce_scatter Latency Test v7.2", SBP_REDUCE_SCATTER, 1},
        {"MPI Reduce_scatter_block Latency Test v7.5", SBP_REDUCE_SCATTER, 1},
        {"MPI All-to-All Personalized Exchange Latency Test v3.9", SBP_ALL_TO_ALL, 32},
        {"NCCL-CUDA All-to-All Personalized Exchange Latency Test v7.4", SBP_ALL_TO_ALL, 32},
        {"RCCL Broadcast Latency Test v7.3", SBP_BROADCAST_COLL, 1},
    };
    const struct sbp_log_options options = {.nodes = 4, .ranks_per_node = 8};
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        struct sbp_text text = {0};
        sbp_text_add(&text,
                     "\n# OSU %s\n# Size       Avg Latency(us)\n4                       5.47\n"
                     "1048576              3730.69\n",
                     titles[i].title);
        struct read read = read_text(text.bytes, &options);
        assert_int_equal(read.measured.count, 2);
        assert_int_equal(read.measured.point[0].kind, titles[i].kind);
        assert_int_equal(read.measured.point[0].nodes, 4);
        assert_int_equal(read.measured.point[0].ranks_per_node, 8);
        assert_point(&read, 0, 4 * titles[i].scale, 5.47);
        assert_point(&read, 1, 1048576 * titles[i].scale, 3730.69);
        assert_int_equal(read.logs.note_count, 0);
        read_free(&read);
        sbp_text_free(&text);
    }
}

static void test_osu_columns(void **state)
{
    (void)state;
    const struct sbp_log_options options = {.nodes = 2, .ranks_per_node = 4};
    struct read read = read_text(
        "Warning! Limiting max message size to: 65536. Increase -m, --mem-limit.\n"
        "# OSU MPI Allgather Latency Test v7.4\n# Datatype: MPI_CHAR.\n"
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        "
        "Validation P50 Tail Lat(us)\n"
        "1                       7.31              6.00              9.00        1000            "
        "  Pass             7.20\n"
        "node00: some warning of a transport\n"
        "2                       7.50              6.00              9.00        1000            "
        "  Pass             7.40\n"
        "# Datatype: MPI_INT.\n# Size       Avg Latency(us)\n4                       7.77\n",
        &options);
    assert_int_equal(read.measured.count, 3);
    assert_int_equal(read.logs.table_count, 2);
    assert_point(&read, 1, 16, 7.50);
    assert_point(&read, 2, 32, 7.77);
    read_free(&read);
    read =
        read_text("# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)        "
                  "Validation\n4     5.47     Pass\n8    5.60    Fail\n"
                  "DATA VALIDATION ERROR: osu_allreduce exited with status 1 on message size 8.\n",
                  &options);
    assert_only(&read, SBP_LOG_FAILED_RUN, "values were wrong");
    assert_int_equal(read.measured.count, 0);
    read_free(&read);
    read = read_text("# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)        "
                     "Validation\n4     5.47     Pass\n8    5.60    Fail\n",
                     &options);
    assert_only(&read, SBP_LOG_WRONG_VALUES, "after 8 bytes");
    read_free(&read);
}

/* Two ranks on one node, or one on each of two. */
static void test_osu_latency(void **state)
{
    (void)state;
    static const char text[] = "# OSU MPI Latency Test v5.6.2\n# Size          Latency (us)\n"
                               "0                       1.00\n1                       1.02\n"
                               "4194304               351.21\n";
    const struct sbp_log_options one = {.nodes = 1}, two = {.nodes = 2, .ranks_per_node = 1};
    const struct sbp_log_options many = {.nodes = 16, .ranks_per_node = 8};
    const struct sbp_log_options each = {.ranks_per_node = 8};
    const struct {
        const struct sbp_log_options *options;
        int nodes;
    } rows[] = {{&one, 1}, {&two, 2}, {&many, 2}};
    for (int i = 0; i < 3; i++) {
        struct read read = read_text(text, rows[i].options);
        assert_int_equal(read.measured.count, 2);
        assert_int_equal(read.measured.point[0].kind, SBP_SEND_RECV);
        assert_int_equal(read.measured.point[0].nodes, rows[i].nodes);
        assert_int_equal(read.measured.point[0].ranks_per_node, 2 / rows[i].nodes);
        assert_point(&read, 1, 4194304, 351.21);
        assert_only(&read, SBP_LOG_SIZE_ZERO, "1 row of size 0");
        read_free(&read);
    }
    struct read read = read_text(text, &each);
    assert_only(&read, SBP_LOG_NODES_UNKNOWN, "2 ranks");
    read_free(&read);
}

static void test_osu_refused(void **state)
{
    (void)state;
    static const struct {
        const char *title, *part;
    } rows[] = {
        {"MPI Bandwidth Test v5.6.2", "windows"},
        {"MPI-CUDA Bi-Directional Bandwidth Test v7.4", "windows"},
        {"MPI Multiple Bandwidth / Message Rate Test v7.4", "windows"},
        {"MPI Non-blocking Allreduce Latency Test v7.4", "overlaps"},
        {"MPI Allreduce Persistent Latency Test v7.4", "beforehand"},
        {"MPI Multi Latency Test v7.4", "at the same time"},
        {"MPI Gather Latency Test v7.4", "no price"},
        {"MPI Allgatherv Latency Test v7.4", "no price"},
        {"MPI_Put Latency Test v7.4", "no price"},
        {"UPC AllGather Latency Test v7.4", "no price"},
    };
    const struct sbp_log_options options = {.nodes = 2, .ranks_per_node = 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_text text = {0};
        sbp_text_add(&text, "# OSU %s\n# Size       Latency (us)\n4     5.47\n", rows[i].title);
        struct read read = read_text(text.bytes, &options);
        assert_only(&read, SBP_LOG_NOT_PRICED, rows[i].part);
        assert_int_equal(read.measured.count, 0);
        read_free(&read);
        sbp_text_free(&text);
    }
    struct read read = read_text("# OSU MPI Allreduce Latency Test v7.4\n# Size Avg Latency(us)\n"
                                 "4     5.47\n",
                                 NULL);
    assert_only(&read, SBP_LOG_RANKS_UNKNOWN, "--nodes N and --ranks-per-node N");
    read_free(&read);
    read = read_text("# OSU MPI Allreduce Latency Test v7.4\n# Size Avg Latency(us)\n", NULL);
    assert_only(&read, SBP_LOG_NO_ROWS, "before its first row");
    read_free(&read);
}

/* Rows of an allreduce under one head. */
static struct read read_osu(const char *rows)
{
    static const struct sbp_log_options options = {.nodes = 2, .ranks_per_node = 1};
    struct sbp_text text = {0};
    sbp_text_add(&text, "# OSU MPI Allreduce Latency Test v7.4\n# Size Avg Latency(us)\n%s", rows);
    struct read read = read_text(text.bytes, &options);
    sbp_text_free(&text);
    return read;
}

/* A rank is lost between sizes: no footer would show it. */
static void test_osu_failed(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "[17.5] [n7:42:0] select.c:634 UCX  ERROR no transport to n8: Destination is unreachable",
        "[17.5] [n7:42:0] ucc_schedule.h:198 UCC  ERROR failure in task 0x55d0, Unhandled error"};
    for (int i = 0; i < 2; i++) {
        struct sbp_text rows = {0};
        sbp_text_add(&rows, "4     5.47\n8     5.50\n%s\n", lines[i]);
        struct read read = read_osu(rows.bytes);
        assert_only(&read, SBP_LOG_FAILED_RUN, "run again");
        assert_int_equal(read.measured.count, 0);
        read_free(&read);
        sbp_text_free(&rows);
    }
    struct read read = read_osu("4     5.47\n8     5.50\n"
                                "[17.5] [n7:42:0] wireup.c:12 UCX  DEBUG no tcp to n8: Destination "
                                "is unreachable\n");
    assert_int_equal(read.logs.note_count, 0);
    assert_int_equal(read.measured.count, 2);
    read_free(&read);
}

/* OSU prints no average: sizes and times themselves show what is not as it was printed. */
static void test_osu_rows(void **state)
{
    (void)state;
    struct read read = read_osu("4  5.1\n8  5.2\n16  5.3\n32  5.4\n");
    assert_int_equal(read.measured.count, 4);
    assert_int_equal(read.logs.note_count, 0);
    read_free(&read);
    static const char *const broken[] = {"nan", "-nan", "7", "0x7.5", "-5.3", "1.0e300"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char rows[80];
        (void)snprintf(rows, sizeof rows, "4  5.1\n8  5.2\n16  %s\n", broken[i]);
        read = read_osu(rows);
        assert_only(&read, SBP_LOG_BROKEN_ROW, "1 row");
        assert_int_equal(read.measured.count, 2);
        read_free(&read);
    }
    read = read_osu("4  5.1\n8  5.2\n2 more processes have sent help message help-mpi\n16  5.3\n");
    assert_int_equal(read.measured.count, 3);
    assert_int_equal(read.logs.note_count, 0);
    read_free(&read);
    read = read_osu("4  5.1\n8  5.2\n64  5.3\n");
    assert_only(&read, SBP_LOG_SHORTENED, "between 8 and 64 bytes");
    assert_int_equal(read.measured.count, 3);
    read_free(&read);
    read = read_osu("4  5.1\n8  5.2\n4  9.3\n8  9.4\n");
    assert_only(&read, SBP_LOG_SIZES_FALL, "4 bytes stands behind one of 8");
    assert_int_equal(read.measured.count, 0);
    read_free(&read);
}

/* --- JSON --- */

/* A run of `processes` with two devices each, five to a node, as nccl-tests writes it. */
struct json {
    const char *program, *wrong, *time_key, *tail, *env;
    double average; /* 0: the right one */
    int rows;
    bool is_replay;
    bool sees_own, is_same_bus; /* every process calls its devices 0 and 1; they have one bus */
};

static void put_half(struct sbp_text *text, const struct json *json, double size, double time_us,
                     bool is_last, double *sum)
{
    const double algbw = size / time_us / 1e3, busbw = algbw * 2 * 19 / 20;
    *sum += busbw;
    sbp_text_add(text, "{\"%s\":%f,\"alg_bw\":%f,\"bus_bw\":%f,\"nwrong\":%s}%s", json->time_key,
                 time_us, algbw, busbw, json->wrong, is_last ? "" : ",");
}

static void put_json(struct sbp_text *text, const struct json *json)
{
    double sum = 0;
    sbp_text_add(
        text,
        "{\"version\":3,\"start_time\":\"2026-07-01 10:00:00\",\"args\":[\"%s\",\"-b\",\"8\"],"
        "\"env\":[\"SECRET=hunter2\"%s],\"nccl_version\":22907,\"config\":{\"nthreads\":1,"
        "\"ngpus\":2,\"minimum_bytes\":1024,\"maximum_bytes\":8192,\"step_factor\":2,"
        "\"aggregated_iterations\":1,\"blocking_collectives\":\"false\",\"devices\":[",
        json->program, json->env);
    for (int p = 0; p < 10; p++)
        sbp_text_add(text,
                     "%s{\"rank\":%d,\"group\":0,\"pid\":%d,\"hostname\":\"node%d\",\"device\":%d,"
                     "\"device_hex\":\"0000:%02x:00\",\"device_info\":\"Quick\\/Device\"}",
                     p == 0 ? "" : ",", 2 * p, 100 + p, p / 5, json->sees_own ? 0 : p % 5 * 2,
                     json->is_same_bus ? 7 : p % 5);
    sbp_text_add(text, "]},\"results\":[");
    for (int i = 0; i < json->rows; i++) {
        const double size = ldexp(1024, i);
        sbp_text_add(text,
                     "%s{\"size\":%.0f,\"count\":%.0f,\"type\":\"float\",\"redop\":\"sum\","
                     "\"root\":\"    -1\",\"out_of_place\":",
                     i == 0 ? "" : ",", size, size / 4);
        if (json->is_replay)
            sbp_text_add(text, "null,");
        else
            put_half(text, json, size, 20.5 + i, false, &sum);
        sbp_text_add(text, "\"in_place\":");
        put_half(text, json, size, 20 + i, true, &sum);
        sbp_text_add(text, ",\"actual_iterations\":20,\"experiment_name\":\"\"}");
    }
    const double average =
        json->average > 0 ? json->average : sum / ((json->is_replay ? 1 : 2) * json->rows);
    sbp_text_add(text, "]%s", json->tail == NULL ? "" : json->tail);
    if (json->tail == NULL)
        sbp_text_add(text,
                     ",\"out_of_bounds\":{\"count\":0,\"okay\":\"true\"},\"average_bus_bandwidth\":"
                     "{\"bandwidth\":%f,\"okay\":\"unchecked\"},\"errors\":[\"\"],"
                     "\"end_time\":\"2026-07-01 10:00:09\"}",
                     average);
}

static const struct json good = {.program = ".\\/build\\/all_reduce_perf",
                                 .wrong = "0.000000",
                                 .time_key = "time",
                                 .env = "",
                                 .rows = 4};

static struct read read_json(const struct json *json)
{
    struct sbp_text text = {0};
    put_json(&text, json);
    struct read read = read_text(text.bytes, NULL);
    sbp_text_free(&text);
    return read;
}

static void test_json(void **state)
{
    (void)state;
    struct json json = good;
    json.env = ",\"NCCL_NET=Socket\"";
    struct read read = read_json(&json);
    assert_int_equal(read.measured.count, 4);
    assert_int_equal(read.measured.point[0].kind, SBP_ALL_REDUCE);
    assert_int_equal(read.measured.point[0].nodes, 2);
    assert_int_equal(read.measured.point[0].ranks_per_node, 10);
    assert_point(&read, 0, 1024, 20.25);
    assert_point(&read, 3, 8192, 23.25);
    assert_string_equal(read.measured.source[0].library, "NCCL 2.29.7");
    assert_string_equal(read.measured.source[0].date, "2026-07-01 10:00:00");
    assert_string_equal(read.measured.source[0].network, "Socket");
    for (int n = 0; n < read.logs.note_count; n++)
        assert_null(strstr(read.logs.note[n].text, "hunter2"));
    read_free(&read);
    json = good;
    json.is_replay = true;
    read = read_json(&json);
    assert_point(&read, 0, 1024, 20);
    read_free(&read);
    json = good;
    json.sees_own = true;
    read = read_json(&json);
    assert_int_equal(read.measured.count, 4);
    assert_int_equal(read.measured.point[0].ranks_per_node, 10);
    read_free(&read);
}

static void test_json_refused(void **state)
{
    (void)state;
    enum { CASES = 8 };
    static const char failed[] =
        ",\"errors\":[\"unhandled\"],\"end_time\":\"2026-07-01 10:00:09\"}";
    struct json json[CASES];
    static const struct {
        enum sbp_log_reason reason;
        const char *part;
    } expected[CASES] = {
        {SBP_LOG_WRONG_VALUES, "after 1024 bytes"}, {SBP_LOG_CPU_TIME, "-C"},
        {SBP_LOG_AVERAGE_DIFFERS, "100 GB/s"},      {SBP_LOG_FAILED_RUN, "aborted"},
        {SBP_LOG_NOT_WHOLE_JSON, "aborted"},        {SBP_LOG_NOT_PRICED, "no price"},
        {SBP_LOG_SHORTENED, "2 of 4 sizes"},        {SBP_LOG_HOSTS_REPEAT, "more than once"}};
    for (int i = 0; i < CASES; i++)
        json[i] = good;
    json[0].wrong = "3.000000";
    json[1].time_key = "cpu_time";
    json[2].average = 100;
    json[3].tail = failed;
    json[4].tail = ""; /* left open */
    json[5].program = "alltoallv_perf";
    json[6].rows = 2;
    json[6].average = 0.001;
    json[7].sees_own = json[7].is_same_bus = true;
    for (int i = 0; i < CASES; i++) {
        struct read read = read_json(&json[i]);
        assert_only(&read, expected[i].reason, expected[i].part);
        read_free(&read);
    }
    struct read read = read_text("{\"a\": 1}", NULL);
    assert_only(&read, SBP_LOG_NO_TABLE, "nccl-tests (text and JSON)");
    read_free(&read);
}

/* --- CSV --- */

static void test_collector(void **state)
{
    (void)state;
    struct read read = read_text(
        "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n"
        "TRTLLM,2.27.3,Quick Device,all_gather,NCCL,half,2,256,0.00898\n"
        "TRTLLM,2.27.3,Quick Device,all_gather,NCCL,half,2,512,0.00908\r\n"
        "TRTLLM,2.27.3,Quick Device,all_gather,NCCL,int8,2,512,0.00910\n"
        "TRTLLM,2.27.3,Quick Device,alltoall,NCCL,half,8,1024,0.0105\n"
        "of another program, which has commas, too\n",
        NULL);
    assert_int_equal(read.logs.table_count, 3);
    assert_int_equal(read.measured.count, 4);
    assert_point(&read, 0, 512, 8.98);
    assert_point(&read, 1, 1024, 9.08);
    assert_point(&read, 2, 512, 9.10);
    assert_point(&read, 3, 2048, 10.5);
    assert_int_equal(read.measured.point[3].kind, SBP_ALL_TO_ALL);
    assert_int_equal(read.measured.point[3].nodes, 1);
    assert_int_equal(read.measured.point[3].ranks_per_node, 8);
    assert_string_equal(read.measured.source[0].library, "NCCL 2.27.3");
    read_free(&read);
}

/* Blanks around the commas of a CSV say nothing. */
static void test_collector_blanks(void **state)
{
    (void)state;
    struct read read = read_text("framework, version,device ,op_name, kernel_source,nccl_dtype,\t"
                                 "num_gpus, message_size, latency \r\n"
                                 " T, 2, D, all_gather , NCCL, half, 2, 256, 0.00898 \r\n"
                                 "T ,2,D,all_gather,NCCL,half,2,512\t,0.00908\n",
                                 NULL);
    assert_int_equal(read.logs.table_count, 1);
    assert_int_equal(read.logs.note_count, 0);
    assert_int_equal(read.measured.count, 2);
    assert_point(&read, 0, 512, 8.98);
    assert_point(&read, 1, 1024, 9.08);
    assert_string_equal(read.measured.source[0].library, "NCCL 2");
    read_free(&read);
}

/* 4 GiB by two devices in 9 us: no link carries that. */
static void test_impossible_rates(void **state)
{
    (void)state;
    static const char head[] =
        "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n";
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "%sT,2,D,all_reduce,NCCL,half,2,256,0.01\n"
                 "T,2,D,all_reduce,NCCL,half,2,2147483648,0.009\n"
                 "T,2,D,all_reduce,NCCL,half,2,4294967296,0.0000009\n",
                 head);
    struct read read = read_text(text.bytes, NULL);
    assert_only(&read, SBP_LOG_IMPOSSIBLE, "2 rows faster than any machine");
    assert_int_equal(read.logs.note[0].line, 3);
    assert_int_equal(read.measured.count, 1);
    assert_int_equal(read.measured.point[0].line, 2);
    read_free(&read);
    sbp_text_free(&text);
    sbp_text_add(&text, "%sT,2,D,all_reduce,NCCL,half,2,2147483648,0.009\n", head);
    read = read_text(text.bytes, NULL);
    assert_only(&read, SBP_LOG_NO_ROWS, "1 faster than any link");
    read_free(&read);
    sbp_text_free(&text);
}

static void test_collector_rows(void **state)
{
    (void)state;
    static const char *const broken[] = {"half,2,512,nan", "half,0,512,0.01", "half,2,-5,0.01",
                                         "tern,2,512,0.01"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        for (int first = 0; first < 2; first++) {
            static const char row[] = "T,2,D,all_reduce,NCCL,half,2,256,0.01\n";
            struct sbp_text text = {0};
            sbp_text_add(&text,
                         "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,"
                         "message_size,latency\n%sT,2,D,all_reduce,NCCL,%s\n%s",
                         first == 1 ? "" : row, broken[i], first == 1 ? row : "");
            struct read read = read_text(text.bytes, NULL);
            assert_only(&read, first == 1 ? SBP_LOG_NO_ROWS : SBP_LOG_BROKEN_ROW, "1 row");
            assert_int_equal(read.measured.count, 1);
            read_free(&read);
            sbp_text_free(&text);
        }
}

/* Cut anywhere in its last row, a file keeps the rows before and tells of that one by its line: the
 * number that was cut reads as another one. */
static void test_collector_cut(void **state)
{
    (void)state;
    static const char rows[] =
        "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n"
        "T,2,D,all_reduce,NCCL,half,2,256,0.0125\n";
    static const char last[] = "T,2,D,all_reduce,NCCL,half,2,512,0.0126";
    for (size_t cut = 2; cut < sizeof last; cut++) {
        struct sbp_text text = {0};
        sbp_text_add(&text, "%s%.*s", rows, (int)cut, last);
        struct read read = read_text(text.bytes, NULL);
        assert_int_equal(read.measured.count, 1);
        assert_only(&read, SBP_LOG_BROKEN_ROW, "1 row that stops short");
        assert_int_equal(read.logs.note[0].line, 3);
        read_free(&read);
        sbp_text_free(&text);
    }
}

/* --- any bytes --- */

/* Rules that every answer keeps, whatever was read. */
static void check(const struct read *read)
{
    const struct sbp_measured *measured = &read->measured;
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        assert_true(point->time_s > 0 && isfinite(point->time_s));
        assert_true(point->bytes > 0 && isfinite(point->bytes));
        assert_true(point->spread >= 0 && isfinite(point->spread));
        assert_true(point->nodes >= 1 && point->ranks_per_node >= 1);
        assert_true(point->nodes * point->ranks_per_node >= 2);
        assert_true(point->source >= 0 && point->source < measured->source_count);
        assert_int_not_equal(point->kind, SBP_LOCAL);
    }
    /* A file that gives nothing says why. */
    assert_true(measured->count > 0 || read->logs.note_count > 0);
}

static void mutate(struct sbp_text *text, struct sbp_random *random)
{
    static const char letters[] = "0123456789.-+e# \n\t[]:,\"{}*Nn";
    const int changes = 1 + (int)sbp_random_below(random, 12);
    for (int c = 0; c < changes && text->length > 16; c++) {
        const size_t at = sbp_random_below(random, text->length);
        const size_t span = 1 + sbp_random_below(random, 40);
        const size_t length = at + span < text->length ? span : text->length - at;
        switch (sbp_random_below(random, 4)) {
        case 0: /* another letter */
            text->bytes[at] = letters[sbp_random_below(random, sizeof letters - 1)];
            break;
        case 1: /* any byte */
            text->bytes[at] = (char)sbp_random_below(random, 256);
            break;
        case 2: /* some are gone */
            memmove(text->bytes + at, text->bytes + at + length, text->length - at - length + 1);
            text->length -= length;
            break;
        default: /* some stand elsewhere, too */
            memmove(text->bytes + at,
                    text->bytes + sbp_random_below(random, text->length - length + 1), length);
        }
    }
    if (sbp_random_below(random, 4) == 0)
        text->length = sbp_random_below(random, text->length + 1);
}

static void print_any(struct sbp_text *text, struct sbp_random *random)
{
    static const char *const names[] = {"all_reduce", "all_gather", "alltoall", "sendrecv"};
    const struct log_world world = {LOG_RUN((enum log_age)sbp_random_below(random, LOG_AGES),
                                            names[sbp_random_below(random, 4)],
                                            1 + (int)sbp_random_below(random, 3),
                                            1 + (int)sbp_random_below(random, 4), 8, 1 << 16),
                                    .has_stamp = sbp_random_below(random, 4) == 0,
                                    .by_iteration = sbp_random_below(random, 4) == 0};
    if (sbp_random_below(random, 6) == 0)
        sbp_text_add(text, "#@ ranks=8 | nodes=2 | collective=all_reduce\n");
    switch (sbp_random_below(random, 6)) {
    case 0:
        put_json(text, &good);
        break;
    case 1:
        sbp_text_add(text, "# OSU MPI Allgather Latency Test v7.4\n# Size  Avg Latency(us)\n"
                           "1       7.31\n2       7.50\n4       8.00\n");
        break;
    default:
        log_world_print(&world, text);
    }
}

static void test_mutations(void **state)
{
    (void)state;
    const uint64_t seed = 77001;
    const struct sbp_log_options options = {.nodes = 2, .ranks_per_node = 4}, none = {0};
    int kept = 0;
    struct sbp_random random = seeded(seed);
    for (int trial = 0; trial < 4000; trial++) {
        struct sbp_text text = {0};
        struct read read;
        struct sbp_diag diag = {{0}};
        print_any(&text, &random);
        mutate(&text, &random);
        assert_int_equal(sbp_logs_read_text(text.bytes, text.length, "run.log",
                                            trial % 2 == 0 ? &options : &none, &read.logs,
                                            &read.measured, &diag),
                         SBP_OK);
        check(&read);
        kept += read.measured.count > 0;
        read_free(&read);
        sbp_text_free(&text);
    }
    assert_true(kept > 500); /* not all of them are refused for one early reason */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_osu_sizes),
        cmocka_unit_test(test_osu_columns),
        cmocka_unit_test(test_osu_latency),
        cmocka_unit_test(test_osu_refused),
        cmocka_unit_test(test_osu_failed),
        cmocka_unit_test(test_osu_rows),
        cmocka_unit_test(test_collector_blanks),
        cmocka_unit_test(test_impossible_rates),
        cmocka_unit_test(test_collector_rows),
        cmocka_unit_test(test_collector_cut),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_collector),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
