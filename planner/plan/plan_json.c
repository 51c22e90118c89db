/* Writes plans. planner/plan/plan_read.c reads them; configs/schema/plan.schema.json is the format.
 */
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/plan/plan.h"
#include "planner/plan/roles.h"
#include "planner/plan/summary.h"

/* The name of a state in files: "S0" splits dimension 0. */
static const char *state_name(struct sbp_state state)
{
    static const char *const splits[SBP_MAX_DIMS] = {"S0", "S1", "S2", "S3"};
    if (state.kind == SBP_SPLIT)
        return splits[state.dim];
    return state.kind == SBP_PARTIAL ? "P" : state.kind == SBP_MIRRORED ? "M" : "B";
}

/* --- strategy --- */

static void put_dist(struct cJSON *object, const char *key, const struct sbp_mesh *mesh,
                     const struct sbp_dist *dist, bool *failed)
{
    struct cJSON *states = sbp_json_put_array(object, key, failed);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        sbp_json_push_text(states, state_name(dist->axis[axis]), failed);
}

static void put_axes(struct cJSON *strategy, const struct sbp_plan *plan, bool *failed)
{
    struct cJSON *axes = sbp_json_put_array(strategy, "axes", failed);
    for (int i = 0; i < plan->cut.mesh.axis_count; i++) {
        const struct sbp_axis *axis = &plan->cut.mesh.axis[i];
        struct cJSON *item = sbp_json_push_object(axes, failed);
        sbp_json_put_text(item, "level", plan->cut.stage.level[axis->level].name, failed);
        sbp_json_put_number(item, "size", (double)axis->size, failed);
    }
}

/* A follower has no labels: where its input rests decides its roles. */
static void put_layer(struct cJSON *layers, const struct sbp_plan *plan, int op, bool *failed)
{
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    const struct sbp_op_entry *entry = node->entry;
    struct cJSON *layer = sbp_json_push_object(layers, failed);
    sbp_json_put_text(layer, "name", node->name, failed);
    sbp_json_put_text(layer, "op", entry->name, failed);
    if (!entry->follows) {
        sbp_json_put(layer, "roles", sbp_roles_json(plan, op), failed);
        struct cJSON *axes = sbp_json_put_array(layer, "axes", failed);
        for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
            sbp_json_push_text(axes, entry->role[plan->strategy.op[op].role[axis]].name, failed);
    }
    if (plan->strategy.zero[op] != SBP_ZERO_DEFAULT)
        sbp_json_put_number(layer, "zero", plan->strategy.zero[op], failed);
    if (node->output >= 0)
        put_dist(layer, "rest", &plan->cut.mesh, &plan->strategy.rest[node->output], failed);
}

static void put_strategy(struct cJSON *parent, const struct sbp_plan *plan, bool *failed)
{
    struct cJSON *strategy = sbp_json_put_object(parent, "strategy", failed);
    sbp_json_put_text(strategy, "boxing", sbp_strategy_boxing_name(plan->strategy.boxing), failed);
    put_axes(strategy, plan, failed);
    if (plan->cut.graph.input >= 0)
        put_dist(strategy, "input", &plan->cut.mesh, &plan->strategy.rest[plan->cut.graph.input],
                 failed);
    struct cJSON *layers = sbp_json_put_array(strategy, "layers", failed);
    for (int op = 0; op < plan->cut.graph.op_count && !*failed; op++)
        put_layer(layers, plan, op, failed);
}

/* --- collectives --- */

static void put_call(struct cJSON *list, const struct sbp_step *step, int index,
                     const struct sbp_call *call, bool *failed)
{
    const struct sbp_program *program = &step->program[index];
    struct cJSON *item = sbp_json_push_object(list, failed);
    sbp_json_put_text(item, "kind", sbp_collective_name(call->kind), failed);
    struct cJSON *axes = sbp_json_put_array(item, "axes", failed);
    for (int axis = 0; axis < program->mesh.axis_count; axis++)
        if (call->axes >> axis & 1)
            sbp_json_push_number(axes, axis, failed);
    sbp_json_put_number(item, "members", (double)sbp_mesh_group_size(&program->mesh, call->axes),
                        failed);
    sbp_json_put_number(item, "count", (double)call->count, failed);
    sbp_json_put_text(item, "cause", sbp_program_cause_name(program->instr[call->instr].cause),
                      failed);
    if (step->pieces > 1)
        sbp_json_put_number(item, "program", index, failed);
}

static bool put_calls(struct cJSON *list, const struct sbp_step *step, int program)
{
    struct sbp_arena scratch;
    struct sbp_call *calls = NULL;
    int count = 0;
    sbp_arena_init(&scratch);
    bool failed = sbp_program_calls(&step->program[program], &scratch, &calls, &count) != SBP_OK;
    for (int i = 0; i < count && !failed; i++)
        put_call(list, step, program, &calls[i], &failed);
    sbp_arena_free(&scratch);
    return !failed;
}

struct cJSON *sbp_plan_collectives(const struct sbp_step *step)
{
    struct cJSON *list = cJSON_CreateArray();
    bool complete = list != NULL;
    for (int p = 0; p < step->program_count && complete; p++)
        complete = put_calls(list, step, p);
    if (complete)
        return list;
    cJSON_Delete(list);
    return NULL;
}

/* --- the whole --- */

static void put_inputs(struct cJSON *json, const struct sbp_plan *plan, bool *failed)
{
    char model[SBP_HASH_BYTES], cluster[SBP_HASH_BYTES];
    if (!sbp_json_hash(plan->workload.model_json, model) ||
        !sbp_json_hash(plan->workload.cluster_json, cluster)) {
        *failed = true;
        return;
    }
    sbp_json_put_text(json, "model_hash", model, failed);
    sbp_json_put_text(json, "cluster_hash", cluster, failed);
    sbp_json_put(json, "model", cJSON_Duplicate(plan->workload.model_json, true), failed);
    sbp_json_put(json, "cluster", cJSON_Duplicate(plan->workload.cluster_json, true), failed);
    if (plan->search != NULL)
        sbp_json_put(json, "search", cJSON_Duplicate(plan->search, true), failed);
}

enum sbp_status sbp_plan_json(const struct sbp_plan *plan, const struct sbp_step *step,
                              struct cJSON **json, struct sbp_diag *diag)
{
    const struct sbp_summary summary = sbp_summary_make(plan, step);
    struct cJSON *root = cJSON_CreateObject();
    bool failed = root == NULL;
    sbp_json_put_text(root, "format", SBP_PLAN_FORMAT, &failed);
    sbp_json_put_number(root, "version", SBP_PLAN_VERSION, &failed);
    sbp_json_put_text(root, "made_by", "sbplan " SBP_VERSION, &failed);
    put_inputs(root, plan, &failed);
    sbp_summary_put_parallel(root, &plan->cut.parallel, &failed);
    put_strategy(root, plan, &failed);
    sbp_summary_put_cost(root, &summary, &failed);
    sbp_summary_put_memory(root, &summary, &failed);
    sbp_json_put(root, "collectives", sbp_plan_collectives(step), &failed);
    *json = failed ? NULL : root;
    if (!failed)
        return SBP_OK;
    cJSON_Delete(root);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory while writing the plan");
}
