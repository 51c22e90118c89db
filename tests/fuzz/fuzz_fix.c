/* Words of --fix, one a line: what is accepted names layers and factors of at least 1. */
#include <stdlib.h>

#include "tests/fuzz/fuzz_inputs.h"

static void check(const struct sbp_fix *fix, int levels)
{
    fuzz_check(fix->layer[0] != '\0', "a layer");
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < levels; level++)
            fuzz_check(fix->factor[role][level] >= 1 || fix->factor[role][level] == SBP_ANY,
                       "a factor");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_inputs inputs;
    const struct sbp_word_list none = {0};
    char *text = fuzz_text(data, size), *line[8];
    struct sbp_arena arena = {0};
    const struct sbp_fix *fix = NULL;
    struct sbp_diag diag = {{0}};
    int count = 0;
    const int lines = fuzz_lines(text, line, 8);
    const struct sbp_word_list words = {lines, (const char **)line};
    if (inputs.plan.cut.graph.op_count == 0)
        fuzz_check(fuzz_inputs_open(&inputs, "tiny-gpt", "gcp-a100-2x4", &none, &diag) == SBP_OK,
                   "inputs");
    if (sbp_fixes_parse(&inputs.plan, &words, &arena, &fix, &count, &diag) == SBP_OK) {
        fuzz_check(count == lines, "a fix for each word");
        for (int i = 0; i < count; i++)
            check(&fix[i], inputs.plan.cut.stage.level_count);
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    sbp_arena_free(&arena);
    free(text);
    return 0;
}
