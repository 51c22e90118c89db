/* Plan files: whatever is accepted can be written again. */
#include <cjson/cJSON.h>
#include <unistd.h>

#include "planner/plan/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_file file = fuzz_file_open(data, size);
    struct sbp_plan plan;
    struct sbp_diag diag = {0};
    if (sbp_plan_read(file.path, &plan, &diag) == SBP_OK) {
        struct sbp_step step;
        struct cJSON *json = NULL;
        fuzz_check(sbp_cut_step(&plan.cut, &plan.strategy, false, &step, &diag) == SBP_OK,
                   "a plan that compiles");
        fuzz_check(sbp_plan_json(&plan, &step, &json, &diag) == SBP_OK,
                   "a plan that can be written");
        sbp_step_free(&step);
        cJSON_Delete(json);
        sbp_plan_free(&plan);
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    (void)close(file.descriptor);
    return 0;
}
