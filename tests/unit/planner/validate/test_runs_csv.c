/* A table of measured runs: what it becomes, and that messages name line and column. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/validate/run_set.h"
#include "planner/validate/runs_csv.h"
#include "tests/support/text_file.h"
#include "tests/support/unit.h"

/* A set without its runs. */
static const char set_text[] =
    "{\"format\": \"sbplan runs\", \"title\": \"t\", \"source\": \"s\", \"trainer\": \"t\", "
    "\"cluster\": {\"name\": \"c\", \"levels\": [{\"name\": \"gpu\", \"size\": 8, \"alpha_s\": "
    "1e-6, \"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 8e10, \"flops\": "
    "{\"bf16\": 3e14}, \"memory_bytes_per_s\": 2e12}}, \"model\": {}, \"run\": {\"gpus\": 8, "
    "\"gpus_per_node\": 8}, \"bounds\": {}}";

struct read {
    struct sbp_arena arena;
    struct cJSON *root;
    const int *line;
    struct sbp_diag diag;
};

static enum sbp_status read_csv(const char *text, struct read *read)
{
    const struct text_file file = text_file_make(text);
    *read = (struct read){.root = cJSON_Parse(set_text)};
    assert_non_null(read->root);
    const enum sbp_status status =
        sbp_runs_csv_read(file.path, &read->arena, read->root, &read->line, &read->diag);
    text_file_remove(&file);
    return status;
}

static void free_csv(struct read *read)
{
    cJSON_Delete(read->root);
    sbp_arena_free(&read->arena);
}

static void assert_table(const char *text, const char *columns, const char *runs)
{
    struct read read;
    if (read_csv(text, &read) != SBP_OK)
        fail_msg("%s", read.diag.text);
    char *has_columns = cJSON_PrintUnformatted(cJSON_GetObjectItem(read.root, "columns"));
    char *has_runs = cJSON_PrintUnformatted(cJSON_GetObjectItem(read.root, "runs"));
    assert_string_equal(has_columns, columns);
    assert_string_equal(has_runs, runs);
    free(has_runs);
    free(has_columns);
    free_csv(&read);
}

static void test_table(void **state)
{
    (void)state;
    assert_table("# ours\ntp, sequence_parallel,recompute ,step_s\r\n\n4,true,,2.5e-1\n"
                 " 8 ,false, full, 3",
                 "[\"tp\",\"sequence_parallel\",\"recompute\",\"step_s\",\"id\"]",
                 "[[4,true,null,0.25,\"line 4\"],[8,false,\"full\",3,\"line 5\"]]");
    /* As spreadsheets write it, with names that are numbers, and hexadecimal ones are words. */
    assert_table("\xef\xbb\xbfid,tp\n17,1\n,2\ntrue,0x10\n", "[\"id\",\"tp\"]",
                 "[[\"17\",1],[\"line 3\",2],[\"true\",\"0x10\"]]");
}

static void assert_says(const struct sbp_diag *diag, const char *says)
{
    if (strstr(diag->text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag->text, says);
}

static void test_wrong_tables(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no runs"},
        {"tp,step_s\n# none\n", "no runs"},
        {"tp,step_s\n1,2\n1\n", "line 3: 1 cells, legal are 2"},
        {"tp,step_s\n1,2,3\n", "line 2: 3 cells, legal are 2"},
        {"tp,,step_s\n1,2,3\n", "line 1: column 2 has no name"},
        {"id,step_s\n\"a,b\",2\n", "line 2: \"a: cells have no quotes"},
        {"tp;step_s\n1;2\n", "line 1: column 1: \"tp;step_s\" is no name"},
        {"\n\ntp,step_s,tp\n1,2,1\n", "line 3: column 3: \"tp\" is column 1 as well"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read read;
        assert_int_equal(read_csv(rows[i].text, &read), SBP_E_INPUT);
        assert_says(&read.diag, rows[i].says);
        free_csv(&read);
    }
}

static void test_many_columns(void **state)
{
    (void)state;
    char text[64 * 4 + 1] = "";
    struct read read;
    for (int i = 0; i < 64; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "c%d,", i);
    assert_int_equal(read_csv(text, &read), SBP_E_INPUT);
    assert_says(&read.diag, "line 1: legal are up to 63 columns");
    free_csv(&read);
}

/* Values are refused where a person finds them. */
static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"tp,step_s\n1,1\n\nx,1\n",
         "runs.csv: line 4: column tp: \"x\" is not legal, legal is a whole number from 1 to "},
        {"tp,step_s\n0,1\n", "runs.csv: line 2: column tp: 0 is out of range, legal is a whole"},
        {"# a\ntp,step_s\n1,1s\n", "line 3: column step_s: \"1s\" is not legal, legal is a number"},
        {"tp,step_s\n1,1\n1,-1\n", "line 3: column step_s: -1 is out of range, legal is 1e-09 to"},
        {"sequence_parallel,step_s\nyes,1\n",
         "line 2: column sequence_parallel: \"yes\" is not legal, legal are true and false"},
        {"recompute,step_s\nall,1\n", "line 2: column recompute: unknown value \"all\""},
        {"stage_blocks,step_s\n3,1\n", "line 2: column stage_blocks: expected an array"},
        {"tp,step_s\n1,\n", "runs.csv: line 2: has no step_s"},
        {"gpus,step_s\n8,1\n12,1\n",
         "line 3: 12 gpus are not whole nodes of 8 gpus_per_node, legal are multiples of it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read read;
        struct sbp_run_set set;
        if (read_csv(rows[i].text, &read) != SBP_OK)
            fail_msg("%s", read.diag.text);
        assert_int_equal(sbp_run_set_take(read.root, "runs.csv", read.line, NULL, &set, &read.diag),
                         SBP_E_INPUT);
        read.root = NULL;
        assert_says(&read.diag, rows[i].says);
        free_csv(&read);
    }
}

/* Runs on a part of a node, unless a row says otherwise. */
static void test_part_of_node(void **state)
{
    (void)state;
    struct read read;
    struct sbp_run_set set;
    const char *text = "gpus,gpus_per_node,step_s\n4,,1\n16,,1\n4,2,1\n";
    if (read_csv(text, &read) != SBP_OK ||
        sbp_run_set_take(read.root, "runs.csv", read.line, NULL, &set, &read.diag) != SBP_OK)
        fail_msg("%s", read.diag.text);
    read.root = NULL;
    assert_int_equal(set.run[0].devices_per_node, 4);
    assert_int_equal(set.run[1].devices_per_node, 8);
    assert_int_equal(set.run[2].devices_per_node, 2);
    assert_int_equal(set.run[2].line, 4);
    sbp_run_set_free(&set);
    free_csv(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_many_columns), cmocka_unit_test(test_places),
        cmocka_unit_test(test_part_of_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
