/* The JSON of a mesh and placements for PyTorch's DTensor, or for OneFlow's global tensors: of
 * every parameter by name, and of the operands of every layer, with the placements that their
 * gradients have there. dtensor_step.py trains by DTensor's.
 *
 * Dimensions are PyTorch's: a linear layer's weight is (outputs, inputs), an embedding's (rows,
 * features), an activation (batch, sequence, features), heads and what is within them side by side.
 * An axis of a mesh is a prime factor of a level. Between layers the gradient of a whole tensor is
 * whole here, so that work which is repeated leaves whole gradients; layers that read a whole
 * tensor and split the work leave partial sums of its gradient.
 */
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/export/export_priv.h"

#define VERSION 1

/* The names that a library has for placements. */
struct words {
    const char *format;              /* of the file */
    const char *split, *sum, *whole; /* split is followed by the dimension, as in "Shard(0)" */
};

static const struct words dtensor = {"sbplan dtensor", "Shard", "Partial()", "Replicate()"};
static const struct words oneflow = {"sbplan oneflow", "split", "partial_sum", "broadcast"};

struct writer {
    const struct sbp_plan *plan;
    const struct words *words;
    bool failed; /* memory is out */
};

/* ---- placements ------------------------------------------------------------------------------ */

static void push_placement(struct writer *w, struct cJSON *list, enum sbp_kind kind, int dim)
{
    char split[32];
    (void)snprintf(split, sizeof split, "%s(%d)", w->words->split, dim);
    sbp_json_push_text(list,
                       kind == SBP_SPLIT     ? split
                       : kind == SBP_PARTIAL ? w->words->sum
                                             : w->words->whole,
                       &w->failed);
}

static struct cJSON *push_list(struct writer *w, struct cJSON *lists)
{
    struct cJSON *list = cJSON_CreateArray();
    if (list == NULL || lists == NULL || !cJSON_AddItemToArray(lists, list)) {
        cJSON_Delete(list);
        w->failed = true;
        return NULL;
    }
    return list;
}

/* The dimension of a parameter in PyTorch: a linear layer's weight is stored transposed. */
static int dim_of(const struct sbp_tensor *tensor, bool transposed, int dim)
{
    const bool is_vector = tensor->shape.size[SBP_DIM_IN] == 1 && tensor->shape.size[1] == 1;
    return is_vector ? 0 : (dim == SBP_DIM_IN) == transposed ? 1 : 0;
}

/* Whether the role that an operator plays on an axis repeats its work. */
static bool repeats(const struct sbp_plan *plan, int op, int axis)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    const int role = sbp_strategy_role(&plan->cut.graph, &plan->strategy, op, axis);
    return role == sbp_op_role(entry, "replicate") || role == sbp_op_role(entry, "mirror");
}

/* Writes where an activation lies, and how its gradient does there. */
static void push_input(struct writer *w, struct cJSON *lists, struct cJSON *gradients, int op,
                       int input)
{
    const struct sbp_plan *plan = w->plan;
    const struct sbp_cut *cut = &plan->cut;
    const struct sbp_dist dist =
        sbp_strategy_input(&cut->graph, &cut->mesh, &plan->strategy, op, input);
    struct cJSON *placements = push_list(w, lists), *gradient = push_list(w, gradients);
    for (int axis = 0; axis < cut->mesh.axis_count && !w->failed; axis++) {
        const struct sbp_state state = dist.axis[axis];
        const bool is_summed = state.kind == SBP_BROADCAST && !repeats(plan, op, axis);
        push_placement(w, placements, (enum sbp_kind)state.kind, state.dim);
        push_placement(w, gradient,
                       state.kind == SBP_SPLIT ? SBP_SPLIT
                       : is_summed             ? SBP_PARTIAL
                                               : SBP_BROADCAST,
                       state.dim);
    }
}

static void put_dist(struct writer *w, struct cJSON *object, const char *key,
                     const struct sbp_dist *dist)
{
    struct cJSON *list = sbp_json_put_array(object, key, &w->failed);
    for (int axis = 0; axis < w->plan->cut.mesh.axis_count && !w->failed; axis++)
        push_placement(w, list, (enum sbp_kind)dist->axis[axis].kind, dist->axis[axis].dim);
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* The operator that a weight is named after. */
static int owner_of(const struct sbp_graph *graph, int tensor, int *weight)
{
    for (int op = 0; op < graph->op_count; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (graph->op[op].weight[w] == tensor) {
                *weight = w;
                return op;
            }
    return -1;
}

static bool is_transposed(const struct sbp_graph *graph, int tensor)
{
    int weight = 0;
    const int op = owner_of(graph, tensor, &weight);
    return op >= 0 && graph->op[op].kind == SBP_OP_LINEAR && weight == 0;
}

static void push_parameter(struct writer *w, struct cJSON *list, int tensor,
                           const struct sbp_dist *dist)
{
    const struct sbp_graph *graph = &w->plan->cut.graph;
    const bool transposed = is_transposed(graph, tensor);
    for (int axis = 0; axis < w->plan->cut.mesh.axis_count && !w->failed; axis++)
        push_placement(w, list, (enum sbp_kind)dist->axis[axis].kind,
                       dim_of(&graph->tensor[tensor], transposed, dist->axis[axis].dim));
}

/* Writes how sbplan run fills a parameter, by index, in the order of its rows or columns; rows from
 * `rows` on are 0. dtensor_step.py begins with the same values. */
static void put_initial(struct cJSON *object, const struct sbp_tensor *tensor, int stream,
                        bool transposed, bool *failed)
{
    struct cJSON *initial = sbp_json_put_object(object, "initial", failed);
    sbp_json_put_number(initial, "stream", stream, failed);
    sbp_json_put_number(initial, "mean", tensor->init_mean, failed);
    sbp_json_put_number(initial, "spread", tensor->init_spread, failed);
    sbp_json_put_bool(initial, "transposed", transposed, failed);
    if (tensor->valid_dim == 0)
        sbp_json_put_number(initial, "rows", (double)tensor->valid_rows, failed);
}

static void put_parameter(struct writer *w, struct cJSON *parameters, int tensor)
{
    const struct sbp_plan *plan = w->plan;
    const struct sbp_cut *cut = &plan->cut;
    bool *failed = &w->failed;
    const struct sbp_tensor *at = &cut->graph.tensor[tensor];
    const int64_t *size = at->shape.size;
    const int64_t rows = size[0] * size[1], columns = size[2] * size[3];
    const bool transposed = is_transposed(&cut->graph, tensor);
    int weight = 0;
    const int op = owner_of(&cut->graph, tensor, &weight);
    const struct sbp_dist dist =
        sbp_strategy_weight(&cut->graph, &cut->mesh, &plan->strategy, op, weight);
    struct cJSON *object = sbp_json_put_object(parameters, at->name, failed);
    struct cJSON *shape = sbp_json_put_array(object, "shape", failed);
    if (rows > 1)
        sbp_json_push_number(shape, (double)(transposed ? columns : rows), failed);
    sbp_json_push_number(shape, (double)(transposed ? rows : columns), failed);
    push_parameter(w, sbp_json_put_array(object, "placements", failed), tensor, &dist);
    put_initial(object, at, tensor, transposed, failed);
}

/* The placements of a gradient as the backward pass leaves it. One member alone adds a bias, or
 * positions, to a partial sum. */
static void push_gradient(struct writer *w, struct cJSON *lists, int op, int weight)
{
    const struct sbp_plan *plan = w->plan;
    const struct sbp_cut *cut = &plan->cut;
    const struct sbp_dist output =
        sbp_strategy_output(&cut->graph, &cut->mesh, &plan->strategy, op);
    struct sbp_dist gradient =
        sbp_strategy_gradient(&cut->graph, &cut->mesh, &plan->strategy, op, weight);
    for (int axis = 0; axis < cut->mesh.axis_count; axis++) {
        if (gradient.axis[axis].kind == SBP_PARTIAL && repeats(plan, op, axis))
            gradient.axis[axis] = SBP_STATE_B;
        else if (weight > 0 && output.axis[axis].kind == SBP_PARTIAL &&
                 cut->graph.op[op].output >= 0)
            gradient.axis[axis] = SBP_STATE_P;
    }
    push_parameter(w, push_list(w, lists), cut->graph.op[op].weight[weight], &gradient);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void put_attributes(struct cJSON *layer, const struct sbp_graph *graph, int op, bool *failed)
{
    const struct sbp_op_node *node = &graph->op[op];
    if (node->kind == SBP_OP_LAYERNORM || node->kind == SBP_OP_RMSNORM)
        sbp_json_put_number(layer, "epsilon", node->epsilon, failed);
    if (node->kind == SBP_OP_DROPOUT)
        sbp_json_put_number(layer, "probability", node->probability, failed);
    if (node->kind == SBP_OP_CROSS_ENTROPY)
        sbp_json_put_number(layer, "vocabulary", (double)node->valid_vocabulary, failed);
    if (node->kind != SBP_OP_ATTENTION)
        return;
    sbp_json_put_number(layer, "head_size", (double)node->attention.qk_size, failed);
    sbp_json_put_bool(layer, "causal", node->attention.causal, failed);
    if (node->attention.dropout > 0)
        sbp_json_put_number(layer, "dropout", node->attention.dropout, failed);
}

static void put_operands(struct writer *w, struct cJSON *layer, int op)
{
    const struct sbp_graph *graph = &w->plan->cut.graph;
    bool *failed = &w->failed;
    const struct sbp_op_node *node = &graph->op[op];
    struct cJSON *inputs = sbp_json_put_array(layer, "inputs", failed);
    struct cJSON *lie = sbp_json_put_array(layer, "input_placements", failed);
    struct cJSON *back = sbp_json_put_array(layer, "input_gradients", failed);
    for (int i = 0; i < node->input_count && !*failed; i++) {
        sbp_json_push_text(inputs, graph->tensor[node->input[i]].name, failed);
        push_input(w, lie, back, op, i);
    }
    struct cJSON *names = sbp_json_put_array(layer, "parameters", failed);
    struct cJSON *gradients = sbp_json_put_array(layer, "parameter_gradients", failed);
    for (int i = 0; i < node->weight_count && !*failed; i++) {
        sbp_json_push_text(names, graph->tensor[node->weight[i]].name, failed);
        push_gradient(w, gradients, op, i);
    }
}

static void push_layer(struct writer *w, struct cJSON *layers, int op)
{
    const struct sbp_plan *plan = w->plan;
    const struct sbp_cut *cut = &plan->cut;
    bool *failed = &w->failed;
    const struct sbp_op_node *node = &cut->graph.op[op];
    const struct sbp_dist output =
        sbp_strategy_output(&cut->graph, &cut->mesh, &plan->strategy, op);
    struct cJSON *layer = sbp_json_push_object(layers, failed);
    sbp_json_put_text(layer, "name", node->name, failed);
    sbp_json_put_text(layer, "op", node->entry->name, failed);
    put_operands(w, layer, op);
    put_dist(w, layer, "output_placements", &output);
    put_attributes(layer, &cut->graph, op, failed);
    if (node->output < 0)
        return;
    sbp_json_put_text(layer, "output", cut->graph.tensor[node->output].name, failed);
    put_dist(w, layer, "rest_placements", &plan->strategy.rest[node->output]);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_mesh(struct cJSON *json, const struct sbp_cut *cut, bool *failed)
{
    struct cJSON *mesh = sbp_json_put_object(json, "mesh", failed);
    struct cJSON *shape = sbp_json_put_array(mesh, "shape", failed);
    struct cJSON *names = sbp_json_put_array(mesh, "names", failed);
    for (int axis = 0; axis < cut->mesh.axis_count; axis++) {
        char name[96];
        (void)snprintf(name, sizeof name, "%s%d", cut->stage.level[cut->mesh.axis[axis].level].name,
                       axis);
        sbp_json_push_number(shape, (double)cut->mesh.axis[axis].size, failed);
        sbp_json_push_text(names, name, failed);
    }
}

static void put_training(struct cJSON *json, const struct sbp_graph *graph, bool *failed)
{
    static const char *const optimizers[] = {
        [SBP_SGD] = "sgd", [SBP_ADAM] = "adam", [SBP_ADAMW] = "adamw"};
    const struct sbp_update *update = &graph->training.update;
    struct cJSON *training = sbp_json_put_object(json, "training", failed);
    sbp_json_put_number(training, "global_batch", (double)graph->global_batch, failed);
    sbp_json_put_number(training, "micro_batch", (double)graph->micro_batch, failed);
    sbp_json_put_number(training, "sequence", (double)graph->sequence, failed);
    sbp_json_put_text(training, "optimizer", optimizers[update->optimizer], failed);
    sbp_json_put_number(training, "learning_rate", update->learning_rate, failed);
    sbp_json_put_number(training, "momentum", update->momentum, failed);
    sbp_json_put_number(training, "beta1", update->beta1, failed);
    sbp_json_put_number(training, "beta2", update->beta2, failed);
    sbp_json_put_number(training, "epsilon", update->epsilon, failed);
    sbp_json_put_number(training, "weight_decay", update->weight_decay, failed);
    sbp_json_put_number(training, "clip_norm", graph->training.clip_norm, failed);
}

static struct cJSON *file_of(struct writer *w)
{
    const struct sbp_graph *graph = &w->plan->cut.graph;
    struct cJSON *json = cJSON_CreateObject();
    bool *failed = &w->failed;
    *failed = json == NULL;
    sbp_json_put_text(json, "format", w->words->format, failed);
    sbp_json_put_number(json, "version", VERSION, failed);
    sbp_json_put_text(json, "model", graph->name, failed);
    put_mesh(json, &w->plan->cut, failed);
    put_training(json, graph, failed);
    struct cJSON *parameters = sbp_json_put_object(json, "parameters", failed);
    for (int tensor = 0; tensor < graph->tensor_count && !*failed; tensor++)
        if (graph->tensor[tensor].kind == SBP_WEIGHT)
            put_parameter(w, parameters, tensor);
    if (graph->input >= 0)
        sbp_json_put_text(json, "input", graph->tensor[graph->input].name, failed);
    if (graph->input >= 0)
        sbp_json_put_number(json, "input_features",
                            (double)(graph->tensor[graph->input].shape.size[2] *
                                     graph->tensor[graph->input].shape.size[3]),
                            failed);
    struct cJSON *layers = sbp_json_put_array(json, "layers", failed);
    for (int op = 0; op < graph->op_count && !*failed; op++)
        push_layer(w, layers, op);
    return json;
}

static enum sbp_status write(const struct sbp_export *export, const struct words *words,
                             struct sbp_text *text, struct sbp_diag *diag)
{
    struct writer w = {.plan = &export->plan, .words = words};
    struct cJSON *json = file_of(&w);
    return sbp_export_json(json, w.failed, text, diag);
}

enum sbp_status sbp_export_dtensor(struct sbp_export *export, struct sbp_text *text,
                                   struct sbp_diag *diag)
{
    return write(export, &dtensor, text, diag);
}

enum sbp_status sbp_export_oneflow(struct sbp_export *export, struct sbp_text *text,
                                   struct sbp_diag *diag)
{
    return write(export, &oneflow, text, diag);
}
