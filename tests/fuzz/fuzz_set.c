/* Changes by --set, one a line: what is accepted leaves a model, a cluster and a cut of a step. */
#include <stdlib.h>

#include "tests/fuzz/fuzz_inputs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *line[8];
    struct fuzz_inputs inputs;
    struct sbp_diag diag = {{0}};
    const int count = fuzz_lines(text, line, 8);
    const struct sbp_word_list set = {count, (const char **)line};
    if (fuzz_inputs_open(&inputs, "tiny-gpt", "laptop-4", &set, &diag) == SBP_OK) {
        fuzz_check(inputs.plan.cut.graph.op_count >= 1, "a graph with operators");
        fuzz_check(sbp_cluster_devices(&inputs.plan.workload.cluster) >= 1, "devices");
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    fuzz_inputs_free(&inputs);
    free(text);
    return 0;
}
