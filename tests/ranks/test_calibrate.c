/* The calibration program from outside: `test_calibrate PROGRAM [LAUNCHER...]` runs PROGRAM with
 * the threads backend, or behind the launcher, and reads what it wrote. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/math/stats.h"
#include "costmodel/cluster/cluster.h"
#include "tests/support/unit.h"

enum { RANKS = 3, MOST_POINTS = 64 };

struct context {
    char start[1024]; /* the command up to the options, quoted for a shell */
    char folder[64];
};

/* Runs the program in the folder; stdout and stderr go to files there. Returns the exit code. */
static int run(const struct context *context, const char *options)
{
    char command[2048];
    (void)snprintf(command, sizeof command, "cd %s && %s %s >out 2>err", context->folder,
                   context->start, options);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *read_in(const struct context *context, const char *name)
{
    char path[128], *text;
    size_t length;
    struct sbp_diag diag = {0};
    (void)snprintf(path, sizeof path, "%s/%s", context->folder, name);
    if (sbp_file_read(path, &text, &length, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return text;
}

static bool exists(const struct context *context, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", context->folder, name);
    return access(path, F_OK) == 0;
}

static void expect_done(const struct context *context, const char *options)
{
    const int code = run(context, options);
    char *errors = read_in(context, "err");
    if (code != 0)
        fail_msg("%s: exit code %d, expected 0: %s", options, code, errors);
    free(errors);
}

static void read_cluster(const struct context *context, struct sbp_cluster *cluster)
{
    char path[128];
    struct cJSON *root;
    struct sbp_json at;
    struct sbp_diag diag = {0};
    struct sbp_arena arena = {0};
    (void)snprintf(path, sizeof path, "%s/cluster.json", context->folder);
    if (sbp_json_open(path, &root, &at, &diag) != SBP_OK ||
        sbp_cluster_read(&at, &arena, cluster) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&arena);
    cJSON_Delete(root);
}

/* --- the fit from the raw samples, written again --- */

struct series {
    char kind[32];
    int members, count;
    double bytes, time_s[8];
};

/* The medians of the collectives' lines of the kinds that are fitted, all groups at the same time;
 * several runs of a cell count together as one series of medians. */
static int read_series(char *lines, struct series *series)
{
    int count = 0;
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        cJSON *root = cJSON_Parse(line);
        assert_non_null(root);
        const cJSON *kind = cJSON_GetObjectItem(root, "collective");
        if (kind != NULL && strcmp(kind->valuestring, "send-recv") != 0 &&
            strcmp(kind->valuestring, "broadcast") != 0) {
            struct series one = {.kind = ""};
            (void)snprintf(one.kind, sizeof one.kind, "%s", kind->valuestring);
            one.members = cJSON_GetObjectItem(root, "ranks_per_node")->valueint;
            one.bytes = cJSON_GetObjectItem(root, "bytes")->valuedouble;
            int i = 0;
            while (i < count && (strcmp(series[i].kind, one.kind) != 0 ||
                                 series[i].members != one.members || series[i].bytes != one.bytes))
                i++;
            assert_true(i < MOST_POINTS);
            if (i == count)
                series[count++] = one;
            const cJSON *times = cJSON_GetObjectItem(root, "s");
            double time_s[128];
            const int repeats = cJSON_GetArraySize(times);
            assert_in_range(repeats, 1, 100);
            for (int t = 0; t < repeats; t++)
                time_s[t] = cJSON_GetArrayItem(times, t)->valuedouble;
            series[i].time_s[series[i].count++] = sbp_median(time_s, repeats);
        }
        cJSON_Delete(root);
    }
    return count;
}

/* Normal equations of sum (x a + y b - 1)^2 with the columns over the measured time. */
static void solve(struct series *series, int count, double *alpha_s, double *beta)
{
    double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
    for (int i = 0; i < count; i++) {
        const double t = sbp_median(series[i].time_s, series[i].count);
        const double steps =
            (strcmp(series[i].kind, "all-reduce") == 0 ? 2 : 1) * (series[i].members - 1.0);
        const double x = steps / t, y = steps / series[i].members * series[i].bytes / t;
        xx += x * x;
        xy += x * y;
        yy += y * y;
        x1 += x;
        y1 += y;
    }
    *alpha_s = (x1 * yy - y1 * xy) / (xx * yy - xy * xy);
    *beta = (y1 * xx - x1 * xy) / (xx * yy - xy * xy);
}

static void test_cluster_file_follows_from_samples(void **state)
{
    const struct context *context = *state;
    expect_done(context, "--method paper --runs 1 --max-bytes 8K --budget-s 1.5");
    struct sbp_cluster cluster;
    read_cluster(context, &cluster);
    assert_int_equal(cluster.level_count, 1);
    assert_string_equal(cluster.level[0].name, "rank");
    assert_int_equal(cluster.level[0].size, RANKS);
    assert_true(cluster.flops[SBP_FP32] > 0 && cluster.flops[SBP_FP64] > 0);
    assert_true(cluster.memory_bytes > 0 && cluster.memory_bytes_per_s > 0);
    assert_true(cluster.rates.grid_count > 0);

    static struct series series[MOST_POINTS];
    memset(series, 0, sizeof series);
    char *lines = read_in(context, "cluster.samples.jsonl");
    const int count = read_series(lines, series);
    free(lines);
    assert_true(count >= 4 * 2); /* at least two sizes, four kinds; 3 ranks have one group size */
    double alpha_s, beta;
    solve(series, count, &alpha_s, &beta);
    const struct sbp_level *level = &cluster.level[0];
    print_message("alpha %g from %d points, file %g; beta %g, file %g\n", alpha_s, count,
                  level->alpha_s, beta, level->beta_s_per_byte);
    if (alpha_s >= 0 && beta >= 0) { /* else the file's are on the bound */
        assert_true(fabs(alpha_s - level->alpha_s) <= 1e-4 * alpha_s);
        assert_true(fabs(beta - level->beta_s_per_byte) <= 1e-4 * beta);
    } else {
        assert_true(level->alpha_s == 0 || level->beta_s_per_byte == 0);
    }
}

static void test_screen_shows_residuals(void **state)
{
    const struct context *context = *state;
    expect_done(context, "--method paper --max-bytes 4K --budget-s 0.5");
    char *out = read_in(context, "out");
    static const char *const expected[] = {"all-reduce",   "all-gather", "reduce-scatter",
                                           "all-to-all",   "send-recv",  "median error",
                                           "cluster.json", "FLOP/s"};
    for (int i = 0; i < (int)(sizeof expected / sizeof *expected); i++)
        if (strstr(out, expected[i]) == NULL)
            fail_msg("\"%s\" is not in the output:\n%s", expected[i], out);
    const bool crowded = sysconf(_SC_NPROCESSORS_ONLN) < RANKS;
    if (crowded && strstr(out, "share") == NULL)
        fail_msg("nothing says that ranks share cores:\n%s", out);
    free(out);
}

/* Without a word about it, by group shape; also of what AutoDDL has no formula for. */
static void test_curves_are_the_default(void **state)
{
    const struct context *context = *state;
    struct sbp_cluster cluster;
    expect_done(context, "--collectives broadcast --max-bytes 4K --budget-s 0.5");
    read_cluster(context, &cluster);
    assert_true(sbp_network_has(&cluster.network, SBP_BROADCAST_COLL));
    char *out = read_in(context, "out"), *file = read_in(context, "cluster.json");
    assert_non_null(strstr(out, "held-out sizes"));
    cJSON *root = cJSON_Parse(file);
    const cJSON *measured = cJSON_GetObjectItem(root, "measured");
    assert_string_equal(cJSON_GetObjectItem(measured, "method")->valuestring, "curves");
    assert_non_null(cJSON_GetObjectItem(measured, "quality"));
    assert_null(cJSON_GetObjectItem(measured, "fits"));
    cJSON_Delete(root);
    free(out);
    free(file);
}

static void test_json_is_the_file(void **state)
{
    const struct context *context = *state;
    expect_done(context, "--json --max-bytes 4K --budget-s 0.5");
    char *out = read_in(context, "out"), *file = read_in(context, "cluster.json");
    assert_string_equal(out, file);
    free(out);
    free(file);
}

static void test_quiet_says_nothing(void **state)
{
    const struct context *context = *state;
    expect_done(context, "--quiet --max-bytes 4K --budget-s 0.5");
    char *out = read_in(context, "out"), *errors = read_in(context, "err");
    assert_string_equal(out, "");
    assert_string_equal(errors, "");
    free(out);
    free(errors);
}

static void expect_refusal(const struct context *context, const char *options, const char *text)
{
    const int code = run(context, options);
    char *errors = read_in(context, "err");
    const char *end = strchr(errors, '\n');
    if (code != 2 || strstr(errors, text) == NULL || end == NULL || end[1] != '\0')
        fail_msg("%s: exit code %d, expected 2 and one line with \"%s\": %s", options, code, text,
                 errors);
    free(errors);
    if (exists(context, "cluster.json") || exists(context, "cluster.samples.jsonl"))
        fail_msg("%s: left a file behind", options);
}

static void test_failures_leave_nothing(void **state)
{
    const struct context *context = *state;
    static const struct {
        const char *options, *text;
    } cases[] = {
        {"-o absent/cluster.json", "absent/cluster.json: cannot be written"},
        {"-o .", "not a regular file"},
        {"--bugdet-s 1", "did you mean \"--budget-s\"?"},
        {"--budget-s 0", "legal"},
        {"--budget-s 1s", "legal"},
        {"--max-bytes 1", "from 4096 to 1073741824"},
        {"--max-bytes 99999999999999999999", "from 4096 to 1073741824"},
        {"-n 0", "1 to 1024"},
        {"-n", "needs a value"},
        {"--method curve", "curves, paper"},
        {"--method paper --collectives broadcast", "has no formula for a broadcast"},
        {"--backend shmem", "threads, mpi, nccl"},
        {"somewhere", "one word too many"},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        expect_refusal(context, cases[i].options, cases[i].text);
}

/* Not built, or no GPU. The last test: what sanitizers find in the libraries that are loaded here
 * is not ours. */
static void test_gpus_are_refused(void **state)
{
    assert_int_equal(setenv("ASAN_OPTIONS", "detect_leaks=0", 1), 0);
    assert_int_equal(setenv("TSAN_OPTIONS", "report_bugs=0", 1), 0);
    expect_refusal(*state, "--backend nccl", "backend nccl: ");
}

/* --- each test in an empty folder --- */

static int make_folder(void **state)
{
    struct context *context = *state;
    (void)snprintf(context->folder, sizeof context->folder, "/tmp/sbplan-calibrate-XXXXXX");
    return mkdtemp(context->folder) == NULL ? -1 : 0;
}

/* The folder must hold nothing else: temporary files would keep it from going. */
static int remove_folder(void **state)
{
    const struct context *context = *state;
    static const char *const names[] = {"out", "err", "cluster.json", "cluster.samples.jsonl"};
    for (int i = 0; i < 4; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", context->folder, names[i]);
        if (exists(context, names[i]) && unlink(path) != 0)
            return -1;
    }
    return rmdir(context->folder);
}

static bool add_word(char *line, size_t size, const char *word)
{
    const size_t used = strlen(line);
    const int added = snprintf(line + used, size - used, "'%s' ", word);
    return added > 0 && (size_t)added < size - used;
}

/* "PROGRAM -n 3", or "LAUNCHER... PROGRAM"; absolute, because it is run in another folder. */
static bool make_start(char *line, size_t size, int argc, char **argv)
{
    char *program = realpath(argv[1], NULL);
    bool fits = program != NULL;
    line[0] = '\0';
    for (int i = 2; i < argc; i++)
        fits = fits && add_word(line, size, argv[i]);
    fits = fits && add_word(line, size, program);
    if (argc == 2)
        fits = fits && add_word(line, size, "-n") && add_word(line, size, "3");
    free(program);
    return fits;
}

int main(int argc, char **argv)
{
    struct context context;
    if (argc < 2 || !make_start(context.start, sizeof context.start, argc, argv)) {
        (void)fprintf(stderr, "usage: test_calibrate PROGRAM [LAUNCHER...]\n");
        return 2;
    }
#define IN_FOLDER(test)                                                                            \
    cmocka_unit_test_prestate_setup_teardown(test, make_folder, remove_folder, &context)
    if (setenv("CUDA_VISIBLE_DEVICES", "", 1) != 0) /* what is refused is so with GPUs, too */
        return 2;
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_cluster_file_follows_from_samples),
        IN_FOLDER(test_screen_shows_residuals),
        IN_FOLDER(test_curves_are_the_default),
        IN_FOLDER(test_json_is_the_file),
        IN_FOLDER(test_quiet_says_nothing),
        IN_FOLDER(test_failures_leave_nothing),
        IN_FOLDER(test_gpus_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
