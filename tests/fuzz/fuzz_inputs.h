/* The inputs of a command line, opened as the commands open them: what strategies, --fix and --set
 * are read against.
 */
#ifndef SBP_TESTS_FUZZ_INPUTS_H
#define SBP_TESTS_FUZZ_INPUTS_H

#include "planner/cli/inputs.h"
#include "tests/fuzz/fuzz.h"

struct fuzz_inputs {
    struct sbp_arena arena;
    struct sbp_settings settings;
    struct sbp_plan plan;
};

/* A shipped model and cluster with the changes of --set. May be freed either way. */
static inline enum sbp_status fuzz_inputs_open(struct fuzz_inputs *inputs, const char *model,
                                               const char *cluster, const struct sbp_word_list *set,
                                               struct sbp_diag *diag)
{
    const char *operands[] = {model, cluster};
    const struct sbp_arguments arguments = {.operands = {2, operands}, .set = *set};
    *inputs = (struct fuzz_inputs){0};
    return sbp_inputs_read(&arguments, SBP_SPACE_FULL, &inputs->arena, &inputs->settings,
                           &inputs->plan, diag);
}

static inline void fuzz_inputs_free(struct fuzz_inputs *inputs)
{
    sbp_plan_free(&inputs->plan);
    sbp_inputs_free_settings(&inputs->settings);
    sbp_arena_free(&inputs->arena);
}

#endif
