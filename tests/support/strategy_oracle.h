/* Models from text, random labelled strategies, and which of them are legal, by the wording of the
 * contract: for the tests of strategies and of the programs that are compiled from them.
 */
#ifndef SBP_TESTS_UNIT_STRATEGY_ORACLE_H
#define SBP_TESTS_UNIT_STRATEGY_ORACLE_H

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "costmodel/program/strategy.h"
#include "tests/support/searched_roles.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/unit.h"

struct oracle_model {
    struct cJSON *tree;
    struct sbp_graph graph;
    struct sbp_diag diag;
};

static inline enum sbp_status oracle_model_parse(struct oracle_model *model, const char *text,
                                                 bool is_path)
{
    struct sbp_json root;
    memset(model, 0, sizeof *model);
    enum sbp_status status =
        is_path ? sbp_json_open(text, &model->tree, &root, &model->diag)
                : sbp_json_parse(text, "m.json", &model->tree, &root, &model->diag);
    if (status == SBP_OK)
        status = sbp_graph_read(&root, &model->graph);
    return status;
}

static inline void oracle_model_read(struct oracle_model *model, const char *text)
{
    if (oracle_model_parse(model, text, false) != SBP_OK)
        fail_msg("%s was refused: %s", text, model->diag.text);
}

static inline void oracle_model_open(struct oracle_model *model, const char *name)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/configs/models/%s.json", root == NULL ? "." : root, name);
    if (oracle_model_parse(model, path, true) != SBP_OK)
        fail_msg("%s", model->diag.text);
}

static inline void oracle_model_drop(struct oracle_model *model)
{
    sbp_graph_free(&model->graph);
    cJSON_Delete(model->tree);
}

static inline int oracle_op_named(const struct sbp_graph *graph, const char *name)
{
    for (int i = 0; i < graph->op_count; i++)
        if (strcmp(graph->op[i].name, name) == 0)
            return i;
    fail_msg("no operator %s", name);
    return -1;
}

static inline int oracle_role_named(enum sbp_op_kind kind, const char *name)
{
    const struct sbp_op_entry *entry = sbp_op(kind);
    for (int i = 0; i < entry->role_count; i++)
        if (strcmp(entry->role[i].name, name) == 0)
            return i;
    fail_msg("%s has no role %s", entry->name, name);
    return -1;
}

/* --- states of operands, from roles --- */

/* The role that an axis plays: a follower plays the one that fits what its input rests in; NULL
 * when there is none. */
static inline const struct sbp_role *
oracle_role(const struct sbp_graph *graph, const struct sbp_strategy *strategy, int op, int axis)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_entry *entry = node->entry;
    for (int i = 0; i < entry->role_count; i++) {
        if (entry->follows ? sbp_state_equal(entry->role[i].input[0],
                                             strategy->rest[node->input[0]].axis[axis])
                           : i == strategy->op[op].role[axis])
            return &entry->role[i];
    }
    return NULL;
}

/* A tied linear reads its weight transposed. */
static inline struct sbp_state oracle_stored(const struct sbp_op_node *node, int weight,
                                             struct sbp_state state)
{
    if (node->transposed_weight && weight == 0 && state.kind == SBP_SPLIT)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

static inline bool oracle_is_read(const struct sbp_graph *graph, int tensor)
{
    bool is_read = false;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            is_read |= graph->op[op].input[i] == tensor;
    return is_read;
}

/* --- legality --- */

struct oracle_legality {
    bool legal;
    sbp_axes split[SBP_MAX_CLASSES];
};

static inline void oracle_note(const struct sbp_graph *graph, struct oracle_legality *legality,
                               int tensor, struct sbp_state state, int axis)
{
    if (state.kind != SBP_SPLIT)
        return;
    const int dim_class = graph->tensor[tensor].shape.dim_class[state.dim];
    if (dim_class == SBP_NO_CLASS)
        legality->legal = false;
    else
        legality->split[dim_class] |= (sbp_axes)1 << axis;
}

static inline void oracle_note_op(const struct sbp_graph *graph,
                                  const struct sbp_strategy *strategy, int op, int axis,
                                  struct oracle_legality *legality)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_role *role = oracle_role(graph, strategy, op, axis);
    if (role == NULL) {
        legality->legal = false;
        return;
    }
    for (int i = 0; i < node->input_count; i++)
        oracle_note(graph, legality, node->input[i], role->input[i], axis);
    for (int i = 0; i < node->weight_count; i++)
        oracle_note(graph, legality, node->weight[i], oracle_stored(node, i, role->weight[i]),
                    axis);
    if (node->output < 0)
        return;
    oracle_note(graph, legality, node->output, role->output, axis);
    const struct sbp_state rest = strategy->rest[node->output].axis[axis];
    /* Splits stay or are gathered, sums rest anyhow, what is whole is whole or sliced. */
    legality->legal &= role->output.kind != SBP_SPLIT || rest.kind == SBP_BROADCAST ||
                       rest.kind == SBP_MIRRORED || sbp_state_equal(rest, role->output);
    legality->legal &= role->output.kind == SBP_PARTIAL || rest.kind != SBP_PARTIAL;
    /* A sum that nobody reads is never formed. */
    legality->legal &= rest.kind != SBP_PARTIAL || oracle_is_read(graph, node->output);
    oracle_note(graph, legality, node->output, rest, axis);
}

/* States that a tensor passes through on its way to an operator have digits too. */
static inline void oracle_note_ways(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                    const struct sbp_strategy *strategy, int op, int axis,
                                    struct oracle_legality *legality)
{
    const struct sbp_op_node *node = &graph->op[op];
    struct sbp_dist via;
    for (int i = 0; i < node->input_count && legality->legal; i++)
        if ((node->input[i] != graph->input || graph->input_split) &&
            sbp_strategy_waypoint(graph, mesh, strategy, op, i, &via))
            oracle_note(graph, legality, node->input[i], via.axis[axis], axis);
}

/* Next to other exchanges, an axis goes from P to B by way of a split that the tensor has a digit
 * of that axis for. */
static inline bool oracle_has_way(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                  const struct oracle_legality *legality, int tensor,
                                  const struct sbp_dist *from, const struct sbp_dist *to)
{
    bool alone = true, homeless = false;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const struct sbp_state a = from->axis[axis], b = to->axis[axis];
        bool digit = false;
        for (int d = 0; d < SBP_MAX_DIMS; d++) {
            const int dim_class = graph->tensor[tensor].shape.dim_class[d];
            digit |= dim_class != SBP_NO_CLASS && (legality->split[dim_class] >> axis & 1) != 0;
        }
        if (a.kind == SBP_PARTIAL && b.kind == SBP_BROADCAST)
            homeless |= !digit;
        else if (!sbp_state_equal(a, b) && a.kind != SBP_BROADCAST && b.kind != SBP_PARTIAL)
            alone = false;
    }
    return alone || !homeless;
}

/* From an operator's output to its rest, from rests to inputs, and back in the dual states. */
static inline void oracle_judge_ways(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                     const struct sbp_strategy *strategy, int op,
                                     struct oracle_legality *legality)
{
    const struct sbp_op_node *node = &graph->op[op];
    for (int i = -1; i < node->input_count && legality->legal; i++) {
        const int tensor = i < 0 ? node->output : node->input[i];
        if (tensor < 0 || (tensor == graph->input && !graph->input_split))
            continue;
        struct sbp_dist from = strategy->rest[tensor], to = from;
        for (int axis = 0; axis < mesh->axis_count; axis++) {
            const struct sbp_role *role = oracle_role(graph, strategy, op, axis);
            if (i < 0)
                from.axis[axis] = role->output;
            else
                to.axis[axis] = role->input[i];
        }
        const struct sbp_dist back_from = sbp_dist_dual(mesh, &to);
        const struct sbp_dist back_to = sbp_dist_dual(mesh, &from);
        for (int axis = 0; axis < mesh->axis_count; axis++) {
            if (from.axis[axis].kind == SBP_MIRRORED)
                from.axis[axis] = SBP_STATE_B;
            if (to.axis[axis].kind == SBP_MIRRORED)
                to.axis[axis] = SBP_STATE_B;
        }
        legality->legal &= oracle_has_way(graph, mesh, legality, tensor, &from, &to) &&
                           oracle_has_way(graph, mesh, legality, tensor, &back_from, &back_to);
    }
}

/* A level is mirrored as a whole: by what operators leave, and where that rests. */
static inline void oracle_judge_levels(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                       const struct sbp_strategy *strategy, int one, int two,
                                       struct oracle_legality *legality)
{
    if (mesh->axis[one].level != mesh->axis[two].level)
        return;
    for (int op = 0; op < graph->op_count && legality->legal; op++)
        legality->legal &= (oracle_role(graph, strategy, op, one)->output.kind == SBP_MIRRORED) ==
                           (oracle_role(graph, strategy, op, two)->output.kind == SBP_MIRRORED);
    for (int tensor = 0; tensor < graph->tensor_count; tensor++)
        legality->legal &= (strategy->rest[tensor].axis[one].kind == SBP_MIRRORED) ==
                           (strategy->rest[tensor].axis[two].kind == SBP_MIRRORED);
}

/* Whether two uses of a weight hold the same block and leave the same kind of gradient. */
static inline bool oracle_uses_agree(const struct sbp_graph *graph,
                                     const struct sbp_strategy *strategy, int a, int b, int axis)
{
    const struct sbp_op_node *first = &graph->op[a], *second = &graph->op[b];
    const struct sbp_role *one = oracle_role(graph, strategy, a, axis);
    const struct sbp_role *two = oracle_role(graph, strategy, b, axis);
    if (one == NULL || two == NULL || first->weight_count == 0 || second->weight_count == 0 ||
        first->weight[0] != second->weight[0])
        return true;
    return sbp_state_equal(oracle_stored(first, 0, one->weight[0]),
                           oracle_stored(second, 0, two->weight[0])) &&
           one->gradient[0].kind == two->gradient[0].kind;
}

static inline void oracle_judge(const struct sbp_graph *graph, const struct sbp_mesh *mesh,
                                const struct sbp_strategy *strategy,
                                struct oracle_legality *legality)
{
    memset(legality, 0, sizeof *legality);
    legality->legal = true;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        for (int op = 0; op < graph->op_count; op++) {
            oracle_note_op(graph, strategy, op, axis, legality);
            for (int other = 0; other < op; other++)
                legality->legal &= oracle_uses_agree(graph, strategy, other, op, axis);
        }
        if (graph->input >= 0 && graph->input_split) {
            const struct sbp_state rest = strategy->rest[graph->input].axis[axis];
            legality->legal &= rest.kind == SBP_SPLIT;
            oracle_note(graph, legality, graph->input, rest, axis);
        }
    }
    for (int op = 0; op < graph->op_count; op++)
        for (int axis = 0; axis < mesh->axis_count; axis++)
            oracle_note_ways(graph, mesh, strategy, op, axis, legality);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        for (int other = 0; other < axis; other++)
            oracle_judge_levels(graph, mesh, strategy, other, axis, legality);
    for (int op = 0; op < graph->op_count; op++)
        oracle_judge_ways(graph, mesh, strategy, op, legality);
    for (int i = 0; i < graph->class_count; i++)
        legality->legal &= graph->dim_class[i].size % oracle_product(mesh, legality->split[i]) == 0;
}

/* --- random strategies --- */

/* Labels at random, rests that keep what the producer splits; a tied linear mostly takes the role
 * that its table has. Sequences of one are not split, or hardly anything would be legal. */
static inline void oracle_draw(struct sbp_random *random, const struct sbp_graph *graph,
                               const struct sbp_mesh *mesh, struct sbp_strategy *strategy)
{
    const uint8_t row = (uint8_t)oracle_role_named(SBP_OP_LINEAR, "row");
    const uint8_t column = (uint8_t)oracle_role_named(SBP_OP_LINEAR, "column");
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        if (graph->input >= 0) {
            const int64_t draw = oracle_below(random, graph->sequence > 1 ? 3 : 2);
            strategy->rest[graph->input].axis[axis] =
                SBP_STATE_S((uint8_t)(draw == 1   ? SBP_DIM_FEATURE
                                      : draw == 2 ? 1
                                                  : 0));
        }
        for (int op = 0; op < graph->op_count; op++) {
            const struct sbp_op_node *node = &graph->op[op];
            const struct sbp_op_entry *entry = node->entry;
            uint8_t *role = &strategy->op[op].role[axis];
            const struct sbp_state *from = &strategy->rest[node->input[0]].axis[axis];
            do
                *role = (uint8_t)oracle_below(random, searched_roles(entry));
            while (graph->sequence == 1 && strcmp(entry->role[*role].name, "sequence") == 0);
            if (node->transposed_weight && oracle_below(random, 8) > 0) {
                const struct sbp_role *table = oracle_role(graph, strategy, 0, axis);
                if (table->weight[0].kind == SBP_SPLIT)
                    *role = table->weight[0].dim == SBP_DIM_IN ? column : row;
                else if (*role == column || *role == row)
                    *role = 0;
            }
            if (node->output < 0)
                continue;
            struct sbp_state rest = entry->follows ? *from : entry->role[*role].output;
            while (rest.kind != SBP_SPLIT || (graph->sequence == 1 && rest.dim == SBP_DIM_SEQUENCE))
                rest = SBP_STATE_S((uint8_t)oracle_below(random, 3));
            strategy->rest[node->output].axis[axis] = rest;
        }
    }
}

/* As oracle_draw, but for any role, and with outputs that now and then rest whole, and partial
 * where they are sums; followers go along where they can. */
static inline void oracle_draw_wide(struct sbp_random *random, const struct sbp_graph *graph,
                                    const struct sbp_mesh *mesh, struct sbp_strategy *strategy)
{
    oracle_draw(random, graph, mesh, strategy);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        for (int op = 0; op < graph->op_count; op++) {
            const struct sbp_op_node *node = &graph->op[op];
            const struct sbp_role *role;
            if (!node->entry->follows && oracle_below(random, 3) == 0)
                strategy->op[op].role[axis] =
                    (uint8_t)oracle_below(random, node->entry->role_count);
            role = oracle_role(graph, strategy, op, axis);
            if (node->output < 0 || role == NULL)
                continue;
            const int64_t draw = oracle_below(random, 4);
            struct sbp_state rest = role->output;
            if (draw == 0)
                rest = SBP_STATE_B;
            else if (rest.kind != SBP_SPLIT && !(rest.kind == SBP_PARTIAL && draw == 1))
                rest = SBP_STATE_S(oracle_below(random, 2) == 0 ? SBP_DIM_BATCH : SBP_DIM_FEATURE);
            strategy->rest[node->output].axis[axis] = rest;
        }
}

/* Perceptrons with and without biases, and small transformers, all of extents rich in 2 and 3. */
static const char *const oracle_models[] = {
    "{\"name\": \"chain\", \"global_batch\": 24, \"precision\": \"fp32\", \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 24, \"out\": 48},"
    "{\"op\": \"relu\"}, {\"op\": \"linear\", \"name\": \"b\", \"in\": 48, \"out\": 72},"
    "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"name\": \"c\", \"in\": 72, \"out\": 24}]}",
    "{\"name\": \"biased\", \"global_batch\": 24, \"precision\": \"mixed\", \"optimizer\": "
    "{\"name\": \"sgd\", \"momentum\": 0.9}, \"input\": \"split\", \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 48, \"out\": 24, \"bias\": true},"
    "{\"op\": \"gelu\"}, {\"op\": \"dropout\", \"p\": 0.1},"
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 24, \"out\": 48, \"bias\": true}]}",
    "{\"name\": \"classifier\", \"global_batch\": 12, \"sequence\": 12, \"precision\": \"fp32\","
    "\"clip_norm\": 1.0, \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 12, \"out\": 24, \"bias\": true},"
    "{\"op\": \"layernorm\", \"name\": \"n\"},"
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 24, \"out\": 24, \"bias\": true},"
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"n\", \"b\"]},"
    "{\"op\": \"linear\", \"name\": \"c\", \"in\": 24, \"out\": 36},"
    "{\"op\": \"cross_entropy\", \"name\": \"loss\"}]}",
    "{\"name\": \"tied\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 48, \"heads\": 12,"
    "\"sequence\": 24, \"vocab\": 45, \"vocab_multiple\": 48, \"global_batch\": 24, "
    "\"dropout\": 0.1, \"precision\": \"fp32\", \"clip_norm\": 1.0}",
    "{\"name\": \"untied\", \"architecture\": \"gpt\", \"layers\": 1, \"hidden\": 48, \"heads\": "
    "12,"
    "\"sequence\": 24, \"vocab\": 72, \"global_batch\": 24, \"tied\": false, \"bias\": false,"
    "\"attention\": \"flash\", \"optimizer\": \"sgd\", \"precision\": \"mixed\"}",
};
#define ORACLE_MODELS 5

/* Every other operator of the catalogue: a mixture of experts with grouped and latent attention,
 * images, and layers of SUMMA and of a user's own. */
static const char *const oracle_wide_models[] = {
    "{\"name\": \"experts\", \"global_batch\": 24, \"sequence\": 24, \"precision\": \"mixed\","
    "\"clip_norm\": 1.0, \"layers\": ["
    "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 48, \"hidden\": 48, \"types\": 2},"
    "{\"op\": \"rmsnorm\", \"name\": \"n\"},"
    "{\"op\": \"linear\", \"name\": \"q\", \"out\": 96, \"out_heads\": 24},"
    "{\"op\": \"head_norm\", \"name\": \"hn\"}, {\"op\": \"rotary\", \"name\": \"r\"},"
    "{\"op\": \"linear\", \"name\": \"kv\", \"inputs\": [\"n\"], \"out\": 96, \"out_heads\": 12},"
    "{\"op\": \"grouped_attention\", \"name\": \"a\", \"inputs\": [\"r\", \"kv\"], \"heads\": 24,"
    "\"kv_heads\": 12, \"head_dim\": 4, \"dropout\": 0.1, \"window\": 5},"
    "{\"op\": \"linear\", \"name\": \"o\", \"out\": 48},"
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"o\", \"e\"]},"
    "{\"op\": \"moe\", \"name\": \"m\", \"experts\": 12, \"top_k\": 2, \"ffn\": 24,"
    "\"capacity\": 1.25, \"expert_bias\": true},"
    "{\"op\": \"linear\", \"name\": \"up\", \"out\": 96, \"out_heads\": 48},"
    "{\"op\": \"swiglu\", \"name\": \"g\"}, {\"op\": \"linear\", \"name\": \"down\", \"out\": 48},"
    "{\"op\": \"cross_entropy\", \"name\": \"loss\"}]}",
    "{\"name\": \"latent\", \"global_batch\": 24, \"sequence\": 24, \"precision\": \"fp32\","
    "\"attention\": \"flash\", \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"x\", \"in\": 48, \"out\": 48},"
    "{\"op\": \"linear\", \"name\": \"q\", \"out\": 72, \"out_heads\": 12},"
    "{\"op\": \"linear\", \"name\": \"kv\", \"inputs\": [\"x\"], \"out\": 96, \"out_heads\": 12},"
    "{\"op\": \"linear\", \"name\": \"kr\", \"inputs\": [\"x\"], \"out\": 2},"
    "{\"op\": \"latent_attention\", \"name\": \"a\", \"inputs\": [\"q\", \"kv\", \"kr\"],"
    "\"heads\": 12, \"nope\": 4, \"rope\": 2, \"value\": 4, \"context\": \"ring\"},"
    "{\"op\": \"tanh\", \"name\": \"t\"},"
    "{\"op\": \"summa_linear\", \"name\": \"z\", \"out\": 96},"
    "{\"op\": \"linear\", \"name\": \"l\", \"out\": 48},"
    "{\"op\": \"custom\", \"name\": \"c\", \"out\": 48, \"weights\": [[48, 48]],"
    "\"roles\": [{\"name\": \"batch\", \"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"},"
    "{\"name\": \"column\", \"input\": \"B\", \"weight\": \"S2\", \"output\": \"S2\"}],"
    "\"flops\": {\"forward\": 1e6, \"input_gradient\": 1e6, \"weight_gradient\": 1e6},"
    "\"saved_bytes\": 9216, \"collectives\": [{\"pass\": \"forward\", \"role\": \"batch\","
    "\"kind\": \"all-gather\", \"bytes\": 9216}]}]}",
    "{\"name\": \"images\", \"global_batch\": 24, \"precision\": \"fp32\", \"input\":"
    "{\"height\": 24, \"width\": 24, \"channels\": 12}, \"layers\": ["
    "{\"op\": \"conv2d\", \"name\": \"c1\", \"out\": 24, \"kernel\": 3, \"padding\": 1},"
    "{\"op\": \"batchnorm\", \"name\": \"b1\"}, {\"op\": \"relu\", \"name\": \"r1\"},"
    "{\"op\": \"maxpool\", \"name\": \"p\", \"kernel\": 2},"
    "{\"op\": \"conv2d\", \"name\": \"c2\", \"out\": 24, \"kernel\": 3, \"padding\": 1,"
    "\"bias\": true}, {\"op\": \"avgpool\", \"name\": \"g\", \"kernel\": 2},"
    "{\"op\": \"flatten\", \"name\": \"f\"}, {\"op\": \"linear\", \"name\": \"l\", \"out\": 48},"
    "{\"op\": \"cross_entropy\", \"name\": \"loss\"}]}",
    "{\"name\": \"patches\", \"global_batch\": 24, \"precision\": \"fp32\", \"input\":"
    "{\"height\": 24, \"width\": 24, \"channels\": 3}, \"layers\": ["
    "{\"op\": \"patch_embedding\", \"name\": \"e\", \"patch\": 4, \"hidden\": 48,"
    "\"class_token\": false}, {\"op\": \"layernorm\", \"name\": \"n\"},"
    "{\"op\": \"first_token\", \"name\": \"t\"}, {\"op\": \"linear\", \"name\": \"l\", \"out\": "
    "48},"
    "{\"op\": \"cross_entropy\", \"name\": \"loss\"}]}",
};
#define ORACLE_WIDE_MODELS 4

static const int64_t oracle_meshes[][3] = {{2, 2, 1}, {2, 3, 1}, {3, 2, 1}, {4, 1, 1}, {6, 1, 1},
                                           {2, 2, 2}, {1, 1, 1}, {2, 1, 1}, {1, 12, 1}};
#define ORACLE_MESHES 9

#endif
