/* Strategy files, as `sbplan price` reads them: what is accepted is searched around, and the plan
 * withstands the second opinion. */
#include <unistd.h>

#include "planner/outer/branch_and_bound.h"
#include "planner/verify/verify.h"
#include "tests/fuzz/fuzz_inputs.h"

static void check_plan(struct sbp_plan *plan, const struct sbp_pool_plan *found,
                       const struct sbp_request *request)
{
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    fuzz_check(sbp_plan_cut(plan, &found->parallel, &diag) == SBP_OK, "a cut of the pool");
    plan->strategy = found->strategy;
    fuzz_check(sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) == SBP_OK,
               "a plan that compiles");
    const struct sbp_claim claim = {.plan = plan, .step = &step, .request = request};
    fuzz_check(sbp_verify_plan(&claim, &diag) == SBP_OK, diag.text);
    sbp_step_free(&step);
}

static void price(struct fuzz_inputs *inputs, const struct sbp_fix *fix, int count)
{
    const struct sbp_request request = {
        .boxing = inputs->settings.boxing,
        .space = inputs->settings.boxing == SBP_BOXING_PAPER ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL,
        .memory_limit_bytes = INT64_C(1) << 60,
        .given = ~0u,
        .fix = fix,
        .fix_count = count,
        .solver_options = {.time_limit_s = 1}};
    struct sbp_pool pool = {0};
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    if (sbp_outer_search(&inputs->plan, &request, 1, &inputs->plan.arena, &pool, &outcome, &diag) !=
        SBP_OK)
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    else if (pool.count > 0)
        check_plan(&inputs->plan, &pool.plan[0], &request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_file file = fuzz_file_open(data, size);
    const struct sbp_word_list none = {0};
    const struct sbp_fix *fix = NULL;
    struct fuzz_inputs inputs;
    struct sbp_diag diag = {{0}};
    int count = 0;
    fuzz_check(fuzz_inputs_open(&inputs, "tiny-mlp", "laptop-4", &none, &diag) == SBP_OK, "inputs");
    if (sbp_inputs_read_around(&inputs.plan, &inputs.settings, file.path, &diag) == SBP_OK &&
        sbp_fixes_read(&inputs.plan, file.path, &inputs.arena, &fix, &count, &diag) == SBP_OK)
        price(&inputs, fix, count);
    else
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    fuzz_inputs_free(&inputs);
    (void)close(file.descriptor);
    return 0;
}
