/* Tables of measured runs: whatever is read becomes a set, or is refused by line; its runs make
 * models and clusters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "planner/validate/run_set.h"
#include "planner/validate/runs_csv.h"
#include "tests/fuzz/fuzz.h"

#define MOST_PRICED 8

/* A set without its runs, as sbplan calibrate makes it. */
static const char set_text[] =
    "{\"format\": \"sbplan runs\", \"title\": \"t\", \"source\": \"s\", \"trainer\": \"t\", "
    "\"cluster\": {\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": 2, \"alpha_s\": "
    "1e-5, \"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": 4, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 8e10, \"flops\": {\"bf16\": "
    "3e14}, \"memory_bytes_per_s\": 2e12}}, \"model\": {\"architecture\": \"gpt\", \"layers\": 2, "
    "\"hidden\": 8, \"heads\": 2, \"vocab\": 16, \"sequence\": 4, \"global_batch\": 8}, \"run\": "
    "{\"gpus\": 8, \"gpus_per_node\": 4}, \"bounds\": {}}";

static void check_refusal(const struct sbp_diag *diag, const char *file)
{
    fuzz_check(strncmp(diag->text, file, strlen(file)) == 0, "a file in a refusal");
}

static void check(const struct sbp_run_set *set, const int *line)
{
    struct sbp_diag diag = {{0}};
    struct cJSON *model, *cluster;
    for (int i = 0; i < set->run_count; i++) {
        const struct sbp_run *run = &set->run[i];
        fuzz_check(run->line == line[i] && run->line > (i == 0 ? 1 : line[i - 1]), "a line");
        fuzz_check(run->id != NULL && run->id[0] != '\0', "a name");
        fuzz_check(run->devices > 0 && run->devices_per_node > 0, "devices");
        fuzz_check(isfinite(run->step_s) && run->step_s >= 0, "a step");
        if (i >= MOST_PRICED)
            continue;
        fuzz_check(sbp_run_set_model(set, i, &model, &diag) == SBP_OK, "a model");
        fuzz_check(sbp_run_set_cluster(set, i, &cluster, &diag) == SBP_OK, "a cluster");
        cJSON_Delete(model);
        cJSON_Delete(cluster);
    }
}

static void read_set(struct cJSON *root, const int *line)
{
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    if (sbp_run_set_take(root, "runs.csv", line, NULL, &set, &diag) == SBP_OK) {
        check(&set, line);
        sbp_run_set_free(&set);
        return;
    }
    check_refusal(&diag, "runs.csv: line ");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_file file = fuzz_file_open(data, size);
    struct sbp_arena arena = {0};
    struct cJSON *root = cJSON_Parse(set_text);
    const int *line;
    struct sbp_diag diag = {{0}};
    fuzz_check(root != NULL, "a set");
    if (sbp_runs_csv_read(file.path, &arena, root, &line, &diag) == SBP_OK) {
        read_set(root, line);
    } else {
        check_refusal(&diag, file.path);
        cJSON_Delete(root);
    }
    sbp_arena_free(&arena);
    (void)close(file.descriptor);
    return 0;
}
