/* Hugging Face configs: whatever is imported reads as a model file. */
#include <cjson/cJSON.h>
#include <stdlib.h>

#include "costmodel/model/graph.h"
#include "planner/import/hf.h"
#include "tests/fuzz/fuzz.h"

static void import(const struct sbp_json *config, const struct sbp_import_options *options,
                   struct sbp_diag *diag)
{
    struct cJSON *model = NULL;
    struct sbp_graph graph;
    struct sbp_json at;
    if (sbp_import_hf(config, options, &model, diag) == SBP_OK) {
        sbp_json_at(model, "model", diag, &at);
        fuzz_check(sbp_graph_read(&at, &graph) == SBP_OK, diag->text);
        fuzz_check(graph.op_count >= 1, "a graph with operators");
        sbp_graph_free(&graph);
    } else {
        fuzz_check(model == NULL && diag->text[0] != '\0', "nothing but a reason");
    }
    cJSON_Delete(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sbp_import_options options[] = {
        {.precision = "mixed", .global_batch = 8, .sequence = 64},
        {.name = "images", .global_batch = 8, .vocab_multiple = 1}};
    char *text = fuzz_text(data, size);
    struct cJSON *root = NULL;
    struct sbp_diag diag = {{0}};
    struct sbp_json config;
    if (sbp_json_parse(text, "input", &root, &config, &diag) == SBP_OK)
        for (int i = 0; i < 2; i++)
            import(&config, &options[i], &diag);
    cJSON_Delete(root);
    free(text);
    return 0;
}
