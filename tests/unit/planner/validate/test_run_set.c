/* Sets of published runs: what a file becomes, what is refused, and that the files that are shipped
 * can be read. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/configs/config_files.h"
#include "planner/validate/validation.h"
#include "tests/support/text_file.h"
#include "tests/support/unit.h"

#define CLUSTER                                                                                    \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": 9, \"alpha_s\": 1e-5, "         \
    "\"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": 9, \"alpha_s\": 1e-6, "            \
    "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 1e11, \"flops\": {\"fp32\": "    \
    "1e13}, \"memory_bytes_per_s\": 1e12}}"
#define HEAD                                                                                       \
    "{\"format\": \"sbplan runs\", \"title\": \"t\", \"source\": \"s\", \"trainer\": \"none\", "   \
    "\"cluster\": " CLUSTER ", "
#define MODEL                                                                                      \
    "\"model\": {\"architecture\": \"gpt\", \"hidden\": 64, \"heads\": 8, \"vocab\": 128, "        \
    "\"sequence\": 32, \"global_batch\": 16}, "

/* Reads a text as a file. */
static enum sbp_status read_text(const char *text, struct sbp_run_set *set, struct sbp_diag *diag)
{
    const struct text_file file = text_file_make(text);
    const enum sbp_status status = sbp_run_set_read(file.path, NULL, set, diag);
    text_file_remove(&file);
    return status;
}

static void assert_refused(const char *text, const char *expected)
{
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    assert_int_equal(read_text(text, &set, &diag), SBP_E_INPUT);
    if (strstr(diag.text, expected) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, expected);
}

#define RUNS                                                                                       \
    "\"run\": {\"gpus_per_node\": 4, \"tp\": 2}, \"bounds\": {\"error\": 0.5}, \"columns\": "      \
    "[\"id\", \"layers\", \"gpus\", \"micro_batch\", \"vocab_multiple\", \"recompute\", "          \
    "\"step_s\"], \"runs\": [[\"a\", 2, 8, 1, 2, \"none\", 0.5], [\"b\", 2, 8, 2, 4, \"full\", "   \
    "0.25], [\"c\", 4, 8, 1, 2, null, 1], [\"d\", 2, 4, 1, 2, null, 1]]}"

static void test_fields(void **state)
{
    (void)state;
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    assert_int_equal(read_text(HEAD MODEL RUNS, &set, &diag), SBP_OK);
    assert_int_equal(set.run_count, 4);
    assert_string_equal(set.run[1].id, "b");
    assert_int_equal(set.run[1].degrees.tensor, 2);
    assert_int_equal(set.run[1].degrees.micro_batch, 2);
    assert_int_equal(set.run[1].degrees.recompute, SBP_RECOMPUTE_FULL);
    assert_int_equal(set.run[2].degrees.recompute, SBP_ANY);
    assert_true(set.run[1].step_s == 0.25 && set.bounds.error == 0.5);
    /* a and b train one model on as many devices, whatever its vocabulary is padded to */
    assert_int_equal(set.group_count, 3);
    assert_int_equal(set.run[1].group, set.run[0].group);
    assert_int_not_equal(set.run[2].group, set.run[0].group);
    assert_int_not_equal(set.run[3].group, set.run[0].group);
    sbp_run_set_free(&set);
}

static double number_at(const struct cJSON *object, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static void test_files_of_a_run(void **state)
{
    (void)state;
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    struct cJSON *model, *cluster;
    assert_int_equal(read_text(HEAD "\"network\": {\"ports\": 2, \"port_bytes_per_s\": 5e9}, "
                                    "\"memory\": {\"reserve_bytes\": 1e9}, " MODEL RUNS,
                               &set, &diag),
                     SBP_OK);
    assert_int_equal(sbp_run_set_model(&set, 2, &model, &diag), SBP_OK);
    assert_true(number_at(model, "layers") == 4 && number_at(model, "hidden") == 64);
    assert_null(cJSON_GetObjectItemCaseSensitive(model, "gpus"));
    assert_int_equal(sbp_run_set_cluster(&set, 2, &cluster, &diag), SBP_OK);
    const struct cJSON *levels = cJSON_GetObjectItemCaseSensitive(cluster, "levels");
    const struct cJSON *node = cJSON_GetArrayItem(levels, 0), *gpu = cJSON_GetArrayItem(levels, 1);
    assert_true(number_at(node, "size") == 2 && number_at(gpu, "size") == 4);
    assert_true(number_at(node, "ports") == 2 && number_at(node, "beta_s_per_byte") == 2e-10);
    assert_true(number_at(cJSON_GetObjectItemCaseSensitive(cluster, "device"), "reserve_bytes") ==
                1e9);
    cJSON_Delete(model);
    cJSON_Delete(cluster);
    sbp_run_set_free(&set);
}

/* A column says more of its run than the model that all runs share; null leaves the model's. */
static void test_column_replaces_model_key(void **state)
{
    (void)state;
    static const double sequences[] = {256, 32};
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    assert_int_equal(read_text(HEAD MODEL
                               "\"bounds\": {}, \"columns\": [\"id\", \"sequence\", \"gpus\", "
                               "\"step_s\"], \"runs\": [[\"a\", 256, 8, 1], [\"b\", null, 8, 1]]}",
                               &set, &diag),
                     SBP_OK);
    for (int run = 0; run < 2; run++) {
        struct cJSON *model;
        int times = 0;
        assert_int_equal(sbp_run_set_model(&set, run, &model, &diag), SBP_OK);
        for (const struct cJSON *key = model->child; key != NULL; key = key->next)
            times += strcmp(key->string, "sequence") == 0;
        assert_true(number_at(model, "sequence") == sequences[run]);
        assert_int_equal(times, 1);
        cJSON_Delete(model);
    }
    assert_int_equal(set.group_count, 2); /* two models */
    sbp_run_set_free(&set);
}

#define BOUNDS  "\"bounds\": {}, "
#define COLUMNS "\"columns\": [\"id\", \"layers\", \"gpus\", \"step_s\"], "

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("[]", "expected an object");
    assert_refused("{\"format\": \"sbplan plan\"}", "format: unknown value \"sbplan plan\"");
    assert_refused(HEAD "\"modell\": {}}", "unknown key \"modell\", did you mean \"model\"?");
    assert_refused(HEAD MODEL BOUNDS "\"columns\": [], \"runs\": []}",
                   "columns: has 0 columns, legal are 1 to 64");
    assert_refused(HEAD MODEL BOUNDS "\"columns\": [\"id\", \"id\"], \"runs\": [[\"a\", \"a\"]]}",
                   "columns[1]: \"id\" is column 0 as well");
    assert_refused(HEAD MODEL BOUNDS COLUMNS "\"runs\": []}", "runs: has 0 runs");
    assert_refused(HEAD MODEL BOUNDS COLUMNS "\"runs\": [[\"a\", 1, 1]]}",
                   "runs[0]: has 3 cells, legal are 4, one for each column");
    assert_refused(HEAD MODEL BOUNDS COLUMNS "\"runs\": [[\"a\", 1, 0, 1]]}", "runs[0][2]");
    assert_refused(HEAD MODEL BOUNDS COLUMNS "\"runs\": [[\"a\", 1, 1, null]]}",
                   "runs[0]: has no step_s, memory_bytes or settled_bytes");
    assert_refused(HEAD MODEL BOUNDS COLUMNS "\"runs\": [[\"a\", 1, null, 1]]}",
                   "runs[0]: has no gpus");
    assert_refused(HEAD MODEL BOUNDS "\"run\": {\"gpus_per_node\": 3}, " COLUMNS
                                     "\"runs\": [[\"a\", 1, 4, 1]]}",
                   "4 gpus are not whole nodes of 3 gpus_per_node");
    assert_refused(HEAD MODEL BOUNDS "\"run\": {\"layers\": 3}, " COLUMNS "\"runs\": []}",
                   "run: unknown key \"layers\"");
    assert_refused(HEAD MODEL "\"bounds\": {\"error\": -1}, " COLUMNS "\"runs\": []}",
                   "bounds.error");
    assert_refused(HEAD "\"model\": 3, " BOUNDS COLUMNS "\"runs\": []}",
                   "model: is no object of keys of a model file");
    assert_refused(HEAD MODEL BOUNDS "\"run\": {\"recompute\": \"some\"}, " COLUMNS "\"runs\": []}",
                   "run.recompute: unknown value \"some\"");
}

/* A run whose degrees its model does not have is said to be refused, and the others are priced. */
static void test_run_that_cannot_be_expressed(void **state)
{
    (void)state;
    struct sbp_run_set set;
    struct sbp_validation validation;
    struct sbp_diag diag = {{0}};
    assert_int_equal(read_text(HEAD MODEL
                               "\"bounds\": {\"error\": 100}, \"columns\": [\"id\", \"layers\", "
                               "\"gpus\", \"tp\", \"step_s\"], \"runs\": [[\"a\", 2, 4, 4, 1e-3], "
                               "[\"b\", 2, 3, 3, 1e-3]]}",
                               &set, &diag),
                     SBP_OK);
    assert_int_equal(sbp_validation_make(&set, NULL, &validation, &diag), SBP_OK);
    assert_null(validation.refused[0]);
    assert_non_null(strstr(validation.refused[1], "degrees: tp"));
    assert_int_equal(validation.refused_count, 1);
    assert_int_equal(validation.time.count, 1);
    assert_true(validation.price[0].step_s > validation.price[0].peak_s);
    assert_false(validation.holds); /* the file allows no run that is refused */
    assert_string_equal(validation.check[0].figure, "refused");
    sbp_validation_free(&validation);
    sbp_run_set_free(&set);
}

/* Every file of configs/runs is read, and says of every run what it measured. */
static void test_shipped(void **state)
{
    (void)state;
    char folder[4096], path[8192];
    struct sbp_arena arena = {0};
    int count = 0;
    (void)snprintf(folder, sizeof folder, "%s/configs/runs", getenv("SBP_SOURCE_ROOT"));
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        struct sbp_run_set set;
        struct sbp_diag diag = {{0}};
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (sbp_run_set_open(path, NULL, &arena, &set, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        count++;
        sbp_run_set_free(&set);
    }
    (void)closedir(files);
    sbp_arena_free(&arena);
    assert_true(count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_files_of_a_run),
        cmocka_unit_test(test_column_replaces_model_key),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_run_that_cannot_be_expressed),
        cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
