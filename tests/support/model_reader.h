/* Model files out of texts and of configs/models, for tests; a refusal fails the test. */
#ifndef SBP_TESTS_MODEL_READER_H
#define SBP_TESTS_MODEL_READER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "costmodel/model/graph.h"
#include "tests/support/unit.h"

struct model {
    struct cJSON *tree;
    struct sbp_graph graph;
    struct sbp_diag diag;
};

static inline enum sbp_status read_text(struct model *model, const char *text)
{
    struct sbp_json root;
    memset(model, 0, sizeof *model);
    enum sbp_status status = sbp_json_parse(text, "m.json", &model->tree, &root, &model->diag);
    if (status == SBP_OK)
        status = sbp_graph_read(&root, &model->graph);
    return status;
}

static inline void must_read(struct model *model, const char *text)
{
    if (read_text(model, text) != SBP_OK)
        fail_msg("%s was refused: %s", text, model->diag.text);
}

static inline void drop(struct model *model)
{
    sbp_graph_free(&model->graph);
    cJSON_Delete(model->tree);
}

static inline const char *source_root(void)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    return root == NULL ? "." : root;
}

/* Refused with a message that begins so, and nothing is left behind. */
static inline void must_refuse(const char *text, const char *expected)
{
    struct model model;
    const enum sbp_status status = read_text(&model, text);
    if (status != SBP_E_INPUT || strncmp(model.diag.text, expected, strlen(expected)) != 0)
        fail_msg("%s: status %d, said \"%s\", expected \"%s...\"", text, (int)status,
                 model.diag.text, expected);
    assert_null(model.graph.op);
    assert_null(model.graph.arena.head);
    drop(&model);
}

struct refusal {
    const char *text, *expected; /* a model, and how its refusal begins */
};

static inline void must_refuse_all(const struct refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++)
        must_refuse(refusals[i].text, refusals[i].expected);
}

static inline void must_open(struct model *model, const char *name)
{
    struct sbp_json root;
    char path[4096];
    memset(model, 0, sizeof *model);
    (void)snprintf(path, sizeof path, "%s/configs/models/%s.json", source_root(), name);
    if (sbp_json_open(path, &model->tree, &root, &model->diag) != SBP_OK ||
        sbp_graph_read(&root, &model->graph) != SBP_OK)
        fail_msg("%s", model->diag.text);
}

static inline const struct sbp_op_node *op_named(const struct sbp_graph *graph, const char *name)
{
    for (int i = 0; i < graph->op_count; i++)
        if (strcmp(graph->op[i].name, name) == 0)
            return &graph->op[i];
    fail_msg("no operator %s", name);
    return NULL;
}

static inline const struct sbp_shape *shape_of(const struct sbp_graph *graph, int tensor)
{
    assert_in_range(tensor, 0, graph->tensor_count - 1);
    return &graph->tensor[tensor].shape;
}

static inline void assert_shape(const struct sbp_shape *shape, int64_t a, int64_t b, int64_t c,
                                int64_t d)
{
    const int64_t *size = shape->size;
    if (size[0] != a || size[1] != b || size[2] != c || size[3] != d)
        fail_msg("(%lld, %lld, %lld, %lld), expected (%lld, %lld, %lld, %lld)", (long long)size[0],
                 (long long)size[1], (long long)size[2], (long long)size[3], (long long)a,
                 (long long)b, (long long)c, (long long)d);
}

#endif
