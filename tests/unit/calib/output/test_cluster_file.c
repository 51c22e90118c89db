/* From samples to files: what is written reads back as a cluster, and failures leave nothing. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "calib/output/cluster_file.h"
#include "tests/support/unit.h"

#define ALPHA_S 4e-6
#define BETA    2.5e-10

struct folder {
    char path[64];
};

static int make_folder(void **state)
{
    struct folder *folder = malloc(sizeof *folder);
    if (folder == NULL)
        return -1;
    (void)snprintf(folder->path, sizeof folder->path, "/tmp/sbplan-calib-XXXXXX");
    *state = folder;
    return mkdtemp(folder->path) == NULL ? -1 : 0;
}

/* Fails when a test left something behind. */
static int remove_folder(void **state)
{
    struct folder *folder = *state;
    const int status = rmdir(folder->path);
    free(folder);
    return status;
}

static void repeat(struct sbp_samples *samples, double time_s)
{
    const double times[] = {time_s, time_s * 1.01, time_s * 0.99, time_s, time_s};
    sbp_samples_add(samples, times, 5);
    sbp_samples_add(samples, times, 5);
}

/* Samples of a machine that follows the formulas: 4 ranks, 2 cores, 10 GFLOP/s on one shape and
 * half of it on the other, 4 GB/s. */
static void make_calibration(struct sbp_calibration *calibration)
{
    *calibration = (struct sbp_calibration){
        .samples_path = "x/c.samples.jsonl",
        .origin = {.name = "test-4-ranks", .host = "test", .date = "now", .backend = "threads"},
        .compute = {.gemm_count = 3,
                    .gemm = {{SBP_FP32, 100, 100, 100, SBP_PASS_FORWARD},
                             {SBP_FP32, 10, 100, 100, SBP_PASS_FORWARD},
                             {SBP_FP64, 8, 8, 8, SBP_PASS_FORWARD}},
                    .copy_bytes = 1000000}};
    struct sbp_calibration_origin *origin = &calibration->origin;
    origin->version = "0";
    origin->command = "test \"quoted\"";
    origin->ranks = origin->ranks_per_host = 4;
    origin->hosts = 1;
    origin->cores = 2;
    origin->memory_bytes = 1 << 30;
    repeat(&calibration->compute.samples[0], 2 * 1e6 / 4e9);
    repeat(&calibration->compute.samples[1], 2e6 / 10e9);
    repeat(&calibration->compute.samples[2], 2e5 / 5e9);
    repeat(&calibration->compute.samples[3], 1024 / 1e9);
    origin->least_ranks_per_host = 4;
    struct sbp_measured *measured = &calibration->measured;
    measured->point = SBP_NEW(&measured->arena, struct sbp_measured_point, SBP_FIT_KINDS * 3 * 7);
    assert_non_null(measured->point);
    for (int i = 0; i < SBP_FIT_KINDS * 3 * 7; i++) {
        const struct sbp_fit_point point = {.kind = (enum sbp_collective)(i % SBP_FIT_KINDS),
                                            .members = 2 + i / SBP_FIT_KINDS % 3,
                                            .bytes = (double)(1024 << i / SBP_FIT_KINDS / 3)};
        measured->point[measured->count++] =
            (struct sbp_measured_point){.kind = point.kind,
                                        .nodes = 1,
                                        .ranks_per_node = point.members,
                                        .groups = 4 / point.members,
                                        .bytes = point.bytes,
                                        .time_s = sbp_fit_predict_s(ALPHA_S, BETA, &point)};
    }
}

static void expect_near(const char *what, double found, double expected)
{
    if (!(fabs(found / expected - 1) < 1e-5))
        fail_msg("%s: %.9g, expected %.9g", what, found, expected);
}

static void path_in(const struct folder *folder, const char *name, char *path)
{
    (void)snprintf(path, 128, "%s/%s", folder->path, name);
}

static enum sbp_status write_cluster(const struct sbp_calibration *calibration,
                                     const struct sbp_calibrated *calibrated, const char *path,
                                     struct sbp_diag *diag)
{
    struct cJSON *json = sbp_cluster_file_of_calibration(calibration, calibrated);
    assert_non_null(json);
    const enum sbp_status status = sbp_cluster_file_write(json, path, calibration->samples_path,
                                                          &calibration->measured, NULL, diag);
    cJSON_Delete(json);
    return status;
}

/* A file of a calibration, read back by search's reader. */
struct read_back {
    char path[128];
    struct cJSON *root;
    struct sbp_arena arena;
    struct sbp_cluster cluster;
};

static void open_file(const struct folder *folder, const struct sbp_calibration *calibration,
                      struct read_back *file)
{
    struct sbp_calibrated calibrated;
    struct sbp_json at;
    *file = (struct read_back){0};
    assert_int_equal(sbp_calibrate_fit(calibration, SBP_FIT_RELATIVE, NULL, &calibrated, NULL),
                     SBP_OK);
    path_in(folder, "c.json", file->path);
    assert_int_equal(write_cluster(calibration, &calibrated, file->path, NULL), SBP_OK);
    assert_int_equal(sbp_json_open(file->path, &file->root, &at, NULL), SBP_OK);
    assert_int_equal(sbp_cluster_read(&at, &file->arena, &file->cluster), SBP_OK);
}

static void close_file(struct read_back *file)
{
    sbp_arena_free(&file->arena);
    cJSON_Delete(file->root);
    assert_int_equal(unlink(file->path), 0);
}

/* Seconds that the file's device is said to take for a product of so many rows, in any pass: only
 * forward was timed. */
static double product_s(const struct sbp_cluster *cluster, double rows)
{
    struct sbp_device_product product = {SBP_FP32, SBP_PASS_FORWARD, rows, 100, 100, 1, false};
    const double time_s = sbp_cluster_product_s(cluster, &product);
    for (int pass = SBP_PASS_INPUT_GRADIENT; pass < SBP_PASSES; pass++) {
        product.pass = (enum sbp_pass)pass;
        expect_near("backward", sbp_cluster_product_s(cluster, &product), time_s);
    }
    return time_s;
}

static void expect_cluster(const struct read_back *file)
{
    const struct sbp_cluster *cluster = &file->cluster;
    assert_int_equal(cluster->level_count, 1);
    assert_string_equal(cluster->level[0].name, "rank");
    assert_int_equal(cluster->level[0].size, 4);
    expect_near("alpha", cluster->level[0].alpha_s, ALPHA_S);
    expect_near("beta", cluster->level[0].beta_s_per_byte, BETA);
    expect_near("fp32", cluster->flops[SBP_FP32], 10e9);
    expect_near("fp64", cluster->flops[SBP_FP64], 1e9);
    expect_near("copy", cluster->memory_bytes_per_s, 4e9);
    assert_int_equal(cluster->rates.efficiency_count, 0);
    assert_int_equal(sbp_device_rate_points(cluster->rates.grid, cluster->rates.grid_count), 2);
    expect_near("best shape", product_s(cluster, 100), 2e6 / 10e9);
    expect_near("other shape", product_s(cluster, 10), 2e5 / 5e9);
    expect_near("between them", product_s(cluster, sqrt(1000)), 2e4 * sqrt(1000) / sqrt(50e18));
    const cJSON *measured = cJSON_GetObjectItem(file->root, "measured");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(measured, "oversubscribed")));
    assert_string_equal(cJSON_GetObjectItem(measured, "command")->valuestring, "test \"quoted\"");
    assert_string_equal(cJSON_GetObjectItem(measured, "samples")->valuestring, "c.samples.jsonl");
}

static void test_file_reads_back(void **state)
{
    struct sbp_calibration calibration;
    struct read_back file;
    make_calibration(&calibration);
    open_file(*state, &calibration, &file);
    expect_cluster(&file);
    close_file(&file);
    sbp_calibrate_free(&calibration);
}

/* Attention of a machine that does it at a third of its fp32 rate forward and a quarter backward,
 * whatever the sizes, and element-wise sums at 0.8 of the copy's rate. */
enum { ROWS = 864 };
static void add_attention(struct sbp_compute_times *compute)
{
    for (int i = 0; i < 8; i++) {
        const bool forward = i < 4;
        const int size = i & 1 ? 64 : 32, sequence = i & 2 ? 48 : 16, heads = 9;
        const double scores = ROWS * (sequence + 1) / 2.0;
        compute->attention[compute->attention_count] = (struct sbp_attention_point){
            SBP_FP32, forward ? SBP_PASS_FORWARD : SBP_PASS_INPUT_GRADIENT,
            size,     sequence,
            heads,    ROWS / (heads * sequence)};
        repeat(&compute->attention_samples[compute->attention_count++],
               scores * (forward ? 4 * size + 6 : 10 * size + 6) / (10e9 / (forward ? 3 : 4)));
    }
    compute->stream_bytes = 1000000;
    compute->stream_s = 3 * 1e6 / (0.8 * 4e9);
}

/* Seconds that the file's device is said to take for causal flash attention. */
static double attention_s(const struct sbp_cluster *cluster, enum sbp_pass pass, double size,
                          double sequence, double rows)
{
    const struct sbp_device_attention attention = {SBP_FP32, pass, size, sequence, rows};
    const double flops =
        rows * (sequence + 1) / 2 * (pass == SBP_PASS_FORWARD ? 4 * size + 6 : 10 * size + 6);
    return sbp_cluster_attention_s(cluster, &attention, flops, 0);
}

static void test_attention_reads_back(void **state)
{
    struct sbp_calibration calibration;
    struct read_back file;
    make_calibration(&calibration);
    add_attention(&calibration.compute);
    open_file(*state, &calibration, &file);
    const struct sbp_cluster *cluster = &file.cluster;
    assert_int_equal(
        sbp_device_rate_points(cluster->rates.attention, cluster->rates.attention_count), 8);
    expect_near("streams", cluster->rates.stream_share, 0.8);
    /* Heads on the grid and between its sizes, a sequence between. */
    for (double size = 32; size <= 64; size += 8) {
        const double rows = 7 * 40;
        expect_near("forward", attention_s(cluster, SBP_PASS_FORWARD, size, 40, rows),
                    rows * 41 / 2 * (4 * size + 6) / (10e9 / 3));
        expect_near("backward", attention_s(cluster, SBP_PASS_INPUT_GRADIENT, size, 40, rows),
                    rows * 41 / 2 * (10 * size + 6) / (10e9 / 4));
    }
    close_file(&file);
    sbp_calibrate_free(&calibration);
}

/* Whichever of both moves more, an element-wise sum of the file takes the time that was measured.
 */
static void test_streams_take_their_time(void **state)
{
    static const double of_copy[] = {0.5, 1, 1.4};
    for (size_t i = 0; i < sizeof of_copy / sizeof *of_copy; i++) {
        struct sbp_calibration calibration;
        struct read_back file;
        make_calibration(&calibration);
        calibration.compute.stream_bytes = 1000000;
        calibration.compute.stream_s = 3 * 1e6 / (of_copy[i] * 4e9);
        open_file(*state, &calibration, &file);
        expect_near("a sum", sbp_cluster_kernel_s(&file.cluster, SBP_FP32, 0, 3 * 1e6),
                    calibration.compute.stream_s);
        close_file(&file);
        sbp_calibrate_free(&calibration);
    }
}

/* Shares are of the best product of attention's type: without one there are none. */
static void test_attention_of_an_unknown_peak(void **state)
{
    (void)state;
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    add_attention(&calibration.compute);
    for (int i = 0; i < calibration.compute.attention_count; i++)
        calibration.compute.attention[i].type = SBP_BF16;
    struct sbp_calibrated calibrated;
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_RELATIVE, NULL, &calibrated, NULL),
                     SBP_OK);
    assert_true(sbp_attention_fit_is_empty(&calibrated.attention));
    sbp_calibrate_free(&calibration);
}

/* An operator of the model takes the time per element that GELU took. */
static void test_gelu_takes_its_time(void **state)
{
    struct sbp_calibration calibration;
    struct read_back file;
    make_calibration(&calibration);
    calibration.compute.gelu_bytes = 4000000;
    calibration.compute.gelu_s = 2e-3; /* twice what 4 GB/s take */
    open_file(*state, &calibration, &file);
    expect_near("GELU", sbp_cluster_vector_s(&file.cluster, SBP_FP32, 20 * 1e6), 2e-3);
    expect_near("GELU of doubles", sbp_cluster_vector_s(&file.cluster, SBP_FP64, 20 * 1e6), 4e-3);
    close_file(&file);
    sbp_calibrate_free(&calibration);
}

/* Rows take the time that was measured, in whatever order they were, those between by their bytes;
 * faster than the memory they cannot be. */
static void test_rows_take_their_time(void **state)
{
    static const struct {
        int64_t row_bytes;
        double of_copy;
    } rows[] = {{4096, 0.6}, {512, 0.15}, {65536, 1.2}};
    struct sbp_calibration calibration;
    struct read_back file;
    make_calibration(&calibration);
    for (int i = 0; i < 3; i++) {
        calibration.compute.rows[i] = (struct sbp_cell){
            .work = SBP_CELL_ROWS, .bytes = 65536, .row_bytes = rows[i].row_bytes};
        repeat(&calibration.compute.rows_samples[i], 2 * 65536 / (rows[i].of_copy * 4e9));
    }
    calibration.compute.rows_count = 3;
    open_file(*state, &calibration, &file);
    for (int i = 0; i < 3; i++)
        expect_near("rows", sbp_cluster_rows_s(&file.cluster, 1e6, (double)rows[i].row_bytes),
                    1e6 / (fmin(1, rows[i].of_copy) * 4e9));
    expect_near("between", sbp_cluster_rows_s(&file.cluster, 1e6, sqrt(512.0 * 4096)),
                1e6 / (sqrt(0.15 * 0.6) * 4e9));
    close_file(&file);
    sbp_calibrate_free(&calibration);
}

/* Products of experts at these shares of single ones, of three sizes a pass; one that has no single
 * product beside it says nothing. */
static void add_experts(struct sbp_compute_times *compute, const double share[SBP_PASSES])
{
    static const double off[] = {1, 0.9, 1.2};
    for (int pass = 0; pass < SBP_PASSES; pass++)
        for (int i = 0; i < 3 && share[pass] > 0; i++) {
            struct sbp_gemm_point single = {SBP_FP32, 20 << i, 50, 60, (enum sbp_pass)pass};
            compute->gemm[compute->gemm_count] = single;
            repeat(&compute->samples[++compute->gemm_count], 1e-4 * (1 << i));
            compute->grouped[compute->grouped_count] = (struct sbp_grouped_point){single, 7};
            repeat(&compute->grouped_samples[compute->grouped_count++],
                   7e-4 * (1 << i) / (share[pass] * off[i]));
            single.m++;
            compute->grouped[compute->grouped_count] = (struct sbp_grouped_point){single, 7};
            repeat(&compute->grouped_samples[compute->grouped_count++], 1e-9);
        }
}

static double experts_s(const struct sbp_cluster *cluster, enum sbp_pass pass, bool grouped)
{
    const struct sbp_device_product product = {SBP_FP32, pass, 20, 50, 60, 1, grouped};
    return sbp_cluster_product_s(cluster, &product);
}

static void test_experts_take_their_time(void **state)
{
    static const double cases[][SBP_PASSES] = {{0.8, 0.6, 0.7}, {0.8, 0, 0.7}, {0.8, 1.3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_calibration calibration;
        struct read_back file;
        make_calibration(&calibration);
        add_experts(&calibration.compute, cases[i]);
        open_file(*state, &calibration, &file);
        for (int pass = 0; pass < SBP_PASSES; pass++) {
            const double share = cases[i][pass] > 0 ? fmin(1, cases[i][pass]) : 1;
            expect_near("experts", experts_s(&file.cluster, (enum sbp_pass)pass, true),
                        experts_s(&file.cluster, (enum sbp_pass)pass, false) / share);
        }
        close_file(&file);
        sbp_calibrate_free(&calibration);
    }
}

static void test_failures_name_the_file(void **state)
{
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    struct sbp_calibrated calibrated;
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_SYMMETRIC, NULL, &calibrated, NULL),
                     SBP_OK);
    char path[128];
    path_in(*state, "c.json", path);
    assert_int_equal(mkdir(path, 0700), 0); /* cannot be written as a file, by nobody */
    struct sbp_diag diag = {0};
    assert_int_equal(write_cluster(&calibration, &calibrated, path, &diag), SBP_E_IO);
    assert_non_null(strstr(diag.text, path));
    assert_int_equal(rmdir(path), 0);
    path_in(*state, "absent/c.json", path);
    assert_int_equal(write_cluster(&calibration, &calibrated, path, NULL), SBP_E_IO);
    sbp_calibrate_free(&calibration);
}

/* What search would refuse is not written: the folder is empty behind it. */
static void test_unreadable_is_not_written(void **state)
{
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    struct sbp_measured_source source = {.name = "x/c.samples.jsonl"};
    calibration.measured.source = &source;
    struct sbp_calibrated calibrated;
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_RELATIVE, NULL, &calibrated, NULL),
                     SBP_OK);
    char path[128];
    path_in(*state, "c.json", path);
    struct sbp_diag diag = {0};
    calibrated.fit[SBP_FIT_RELATIVE].alpha_s = 2e6;
    calibration.measured.point[5].line = 7;
    calibration.measured.point[5].time_s = 3e6;
    assert_int_equal(write_cluster(&calibration, &calibrated, path, &diag), SBP_E_INPUT);
    assert_memory_equal(diag.text, "x/c.samples.jsonl: ", 19);
    if (strstr(diag.text, "levels[0].alpha_s: 2000000 is out of range") == NULL ||
        strstr(diag.text, "its longest x/c.samples.jsonl: line 7: ") == NULL)
        fail_msg("%s", diag.text);
    calibrated.fit[SBP_FIT_RELATIVE].alpha_s = NAN;
    assert_int_equal(write_cluster(&calibration, &calibrated, path, NULL), SBP_E_INPUT);
    sbp_calibrate_free(&calibration);
}

/* Messages stand for collectives where none was measured. */
static void test_messages_alone(void **state)
{
    (void)state;
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    struct sbp_calibrated calibrated;
    struct sbp_measured *measured = &calibration.measured;
    int messages = 0;
    for (int i = 0; i < measured->count; i++)
        if (measured->point[i].kind == SBP_SEND_RECV)
            measured->point[messages++] = measured->point[i];
    measured->count = messages;
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_RELATIVE, NULL, &calibrated, NULL),
                     SBP_OK);
    assert_true(calibrated.of_messages);
    expect_near("alpha", calibrated.fit[SBP_FIT_RELATIVE].alpha_s, ALPHA_S);
    expect_near("beta", calibrated.fit[SBP_FIT_RELATIVE].beta_s_per_byte, BETA);
    sbp_calibrate_free(&calibration);
}

static void test_too_few_samples_are_refused(void **state)
{
    (void)state;
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    struct sbp_calibrated calibrated;
    calibration.measured.count = 1;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_RELATIVE, NULL, &calibrated, &diag),
                     SBP_E_INPUT);
    assert_true(diag.text[0] != '\0');
    sbp_calibrate_free(&calibration);
}

/* A calibration that ended before its copies says nothing of memory. */
static void test_missing_compute_is_named(void **state)
{
    (void)state;
    struct sbp_calibration calibration;
    make_calibration(&calibration);
    struct sbp_calibrated calibrated;
    struct sbp_diag diag = {0};
    calibration.compute.samples[0] = (struct sbp_samples){0};
    assert_int_equal(sbp_calibrate_fit(&calibration, SBP_FIT_RELATIVE, NULL, &calibrated, &diag),
                     SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "no copy has a time"));
    sbp_calibrate_free(&calibration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_reads_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_attention_reads_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_streams_take_their_time, make_folder, remove_folder),
        cmocka_unit_test(test_attention_of_an_unknown_peak),
        cmocka_unit_test_setup_teardown(test_gelu_takes_its_time, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_rows_take_their_time, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_experts_take_their_time, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_failures_name_the_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_unreadable_is_not_written, make_folder, remove_folder),
        cmocka_unit_test(test_messages_alone),
        cmocka_unit_test(test_too_few_samples_are_refused),
        cmocka_unit_test(test_missing_compute_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
