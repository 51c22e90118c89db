/* Model files: whatever is accepted has consistent sizes. */
#include <cjson/cJSON.h>
#include <stdlib.h>

#include "costmodel/model/graph.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct sbp_graph *graph)
{
    fuzz_check(graph->op_count >= 1 && graph->tensor_count >= 1, "a graph with operators");
    fuzz_check(graph->parameters >= 0, "a count of parameters");
    for (int i = 0; i < graph->tensor_count; i++)
        for (int j = 0; j < SBP_MAX_DIMS; j++)
            fuzz_check(graph->tensor[i].shape.size[j] >= 1, "sizes of at least 1");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct cJSON *root = NULL;
    struct sbp_diag diag = {0};
    struct sbp_json cursor;
    if (sbp_json_parse(text, "input", &root, &cursor, &diag) == SBP_OK) {
        struct sbp_graph graph;
        if (sbp_graph_read(&cursor, &graph) == SBP_OK) {
            check(&graph);
            sbp_graph_free(&graph);
        } else {
            fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
        }
    }
    cJSON_Delete(root);
    free(text);
    return 0;
}
