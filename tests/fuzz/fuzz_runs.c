/* Sets of published runs: whatever is accepted makes the model and the cluster of its runs. */
#include <stdlib.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "planner/validate/run_set.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct sbp_run_set *set)
{
    struct sbp_diag diag = {{0}};
    struct cJSON *model, *cluster;
    for (int i = 0; i < set->run_count && i < 8; i++) {
        fuzz_check(set->run[i].id != NULL && set->run[i].devices > 0, "a name and devices");
        fuzz_check(set->run[i].group >= 0 && set->run[i].group < set->group_count, "a group");
        fuzz_check(sbp_run_set_model(set, i, &model, &diag) == SBP_OK, "a model");
        fuzz_check(sbp_run_set_cluster(set, i, &cluster, &diag) == SBP_OK, "a cluster");
        cJSON_Delete(model);
        cJSON_Delete(cluster);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_file file = fuzz_file_open(data, size);
    struct sbp_run_set set;
    struct sbp_diag diag = {{0}};
    if (sbp_run_set_read(file.path, NULL, &set, &diag) == SBP_OK)
        check(&set);
    else
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    sbp_run_set_free(&set);
    (void)close(file.descriptor);
    return 0;
}
