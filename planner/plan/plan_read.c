/* Reads plans, and believes nothing in the file that can be worked out again. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/plan/input_kind.h"
#include "planner/plan/plan.h"
#include "planner/plan/plan_priv.h"
#include "planner/plan/request.h"
#include "planner/plan/roles.h"
#include "planner/plan/summary.h"

/* Share by which prices may differ: mathematics libraries disagree in the last digits. */
#define COST_TOLERANCE 1e-6

#define SEARCH_MOST     (INT64_C(1) << 53)
#define MOST_ALGORITHMS 16

/* --- head --- */

/* Checks that a member is a text, where there is one. */
static enum sbp_status optional_text(const struct sbp_json *object, const char *key)
{
    struct sbp_json member;
    const char *text;
    if (!sbp_json_has(object, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(object, key, &member));
    return sbp_json_string(&member, &text);
}

static enum sbp_status check_version(const struct sbp_json *root)
{
    static const char *const KEYS[] = {
        "format", "version",  "made_by",  "model_hash", "cluster_hash", "model",       "cluster",
        "search", "parallel", "strategy", "cost",       "memory",       "collectives", NULL};
    struct sbp_json member;
    const char *format;
    double version;
    SBP_TRY(sbp_json_member(root, "format", &member));
    SBP_TRY(sbp_json_string(&member, &format));
    if (strcmp(format, SBP_PLAN_FORMAT) != 0)
        return sbp_json_refuse(&member, "is not \"" SBP_PLAN_FORMAT "\": this is no plan file");
    SBP_TRY(sbp_json_member(root, "version", &member));
    SBP_TRY(sbp_json_double(&member, -INFINITY, INFINITY, &version));
    if (version < SBP_PLAN_VERSION || version > SBP_PLAN_VERSION)
        return sbp_json_refuse(&member, "version %g of the format, this sbplan reads version %d",
                               version, SBP_PLAN_VERSION);
    SBP_TRY(sbp_json_keys(root, KEYS));
    return optional_text(root, "made_by");
}

static enum sbp_status check_hash(const struct sbp_json *root, const char *key,
                                  const char *hash_key)
{
    struct sbp_json member, hash;
    const char *given;
    char found[SBP_HASH_BYTES];
    SBP_TRY(sbp_json_member(root, key, &member));
    SBP_TRY(sbp_json_member(root, hash_key, &hash));
    SBP_TRY(sbp_json_string(&hash, &given));
    if (!sbp_json_hash(member.node, found))
        return sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file);
    if (strcmp(given, found) != 0)
        return sbp_json_refuse(&hash,
                               "\"%.40s\" is not the hash of the %s in the file, which is %s: the "
                               "plan was made for another %s, search again",
                               given, key, found, key);
    return SBP_OK;
}

/* Without the key the plan keeps one stage and one micro-batch. */
static enum sbp_status read_parallel(const struct sbp_json *root, struct sbp_plan *plan)
{
    struct sbp_json member;
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_diag why = {{0}};
    if (!sbp_json_has(root, "parallel"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "parallel", &member));
    SBP_TRY(sbp_parallel_read(&member, &parallel));
    const enum sbp_status status = sbp_plan_cut(plan, &parallel, &why);
    return status == SBP_OK ? SBP_OK : sbp_fail(root->diag, status, "%s: %s", root->file, why.text);
}

static enum sbp_status read_inputs(const struct sbp_json *root, struct sbp_plan *plan)
{
    struct sbp_json model, cluster, search;
    SBP_TRY(check_hash(root, "model", "model_hash"));
    SBP_TRY(check_hash(root, "cluster", "cluster_hash"));
    SBP_TRY(sbp_json_member(root, "model", &model));
    SBP_TRY(sbp_json_member(root, "cluster", &cluster));
    plan->workload.model_json = cJSON_Duplicate(model.node, true);
    plan->workload.cluster_json = cJSON_Duplicate(cluster.node, true);
    bool complete = plan->workload.model_json != NULL && plan->workload.cluster_json != NULL;
    if (sbp_json_has(root, "search")) {
        SBP_TRY(sbp_json_member(root, "search", &search));
        plan->search = cJSON_Duplicate(search.node, true);
        complete = complete && plan->search != NULL;
    }
    if (!complete)
        return sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file);
    SBP_TRY(sbp_plan_load(&model, &cluster, plan));
    return read_parallel(root, plan);
}

/* --- strategy --- */

/* Finds an array with an element for each axis. */
static enum sbp_status axis_array(const struct sbp_json *object, const char *key,
                                  const struct sbp_mesh *mesh, struct sbp_json *array)
{
    int count = 0;
    SBP_TRY(sbp_json_member(object, key, array));
    SBP_TRY(sbp_json_length(array, &count));
    if (count != mesh->axis_count)
        return sbp_json_refuse(array, "has %d elements, the cluster has %d axes", count,
                               mesh->axis_count);
    return SBP_OK;
}

static enum sbp_status read_rest(const struct sbp_json *object, const char *key,
                                 const struct sbp_mesh *mesh, struct sbp_dist *rest)
{
    static const char *const NAMES[] = {"S0", "S1", "S2", "S3", "B", "P", "M", NULL};
    static const struct sbp_state STATES[] = {SBP_STATE_S(0), SBP_STATE_S(1), SBP_STATE_S(2),
                                              SBP_STATE_S(3), SBP_STATE_B,    SBP_STATE_P,
                                              SBP_STATE_M};
    struct sbp_json states, element;
    int choice;
    SBP_TRY(axis_array(object, key, mesh, &states));
    *rest = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        SBP_TRY(sbp_json_element(&states, axis, &element));
        SBP_TRY(sbp_json_choice(&element, NAMES, &choice));
        rest->axis[axis] = STATES[choice];
    }
    return SBP_OK;
}

static enum sbp_status read_labels(const struct sbp_json *layer, const struct sbp_plan *plan,
                                   int op)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    const char *names[SBP_MAX_ROLES + 1] = {0};
    struct sbp_json labels, element, roles;
    int choice;
    for (int role = 0; role < entry->role_count; role++)
        names[role] = entry->role[role].name;
    SBP_TRY(axis_array(layer, "axes", &plan->cut.mesh, &labels));
    for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++) {
        SBP_TRY(sbp_json_element(&labels, axis, &element));
        SBP_TRY(sbp_json_choice(&element, names, &choice));
        plan->strategy.op[op].role[axis] = (uint8_t)choice;
    }
    SBP_TRY(sbp_json_member(layer, "roles", &roles));
    struct cJSON *expected = sbp_roles_json(plan, op);
    if (expected == NULL)
        return sbp_fail(layer->diag, SBP_E_MEMORY, "%s: out of memory", layer->file);
    const bool same = cJSON_Compare(roles.node, expected, true);
    cJSON_Delete(expected);
    return same ? SBP_OK : sbp_json_refuse(&roles, "do not match \"axes\"");
}

static enum sbp_status expect_text(const struct sbp_json *object, const char *key,
                                   const char *expected)
{
    struct sbp_json member;
    const char *text = "";
    SBP_TRY(sbp_json_member(object, key, &member));
    SBP_TRY(sbp_json_string(&member, &text));
    if (strcmp(text, expected) != 0)
        return sbp_json_refuse(&member, "\"%.60s\" stands where the model has \"%s\"", text,
                               expected);
    return SBP_OK;
}

static enum sbp_status read_layer(const struct sbp_json *layer, const struct sbp_plan *plan, int op)
{
    static const char *const KEYS[] = {"name", "op", "rest", "roles", "axes", "zero", NULL};
    static const char *const FOLLOWER_KEYS[] = {"name", "op", "rest", "zero", NULL};
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    const bool follows = node->entry->follows;
    SBP_TRY(sbp_json_keys(layer, follows ? FOLLOWER_KEYS : KEYS));
    SBP_TRY(expect_text(layer, "name", node->name));
    SBP_TRY(expect_text(layer, "op", node->entry->name));
    if (!follows)
        SBP_TRY(read_labels(layer, plan, op));
    int64_t zero = SBP_ZERO_DEFAULT;
    SBP_TRY(sbp_json_get_int64(layer, "zero", 0, 3, &zero));
    plan->strategy.zero[op] = (uint8_t)zero;
    if (node->output < 0)
        return SBP_OK;
    return read_rest(layer, "rest", &plan->cut.mesh, &plan->strategy.rest[node->output]);
}

static enum sbp_status read_axes(const struct sbp_json *strategy, const struct sbp_plan *plan)
{
    static const char *const KEYS[] = {"level", "size", NULL};
    struct sbp_json axes, element, member;
    int64_t size;
    SBP_TRY(axis_array(strategy, "axes", &plan->cut.mesh, &axes));
    for (int i = 0; i < plan->cut.mesh.axis_count; i++) {
        const struct sbp_axis *axis = &plan->cut.mesh.axis[i];
        SBP_TRY(sbp_json_element(&axes, i, &element));
        SBP_TRY(sbp_json_keys(&element, KEYS));
        SBP_TRY(expect_text(&element, "level", plan->cut.stage.level[axis->level].name));
        SBP_TRY(sbp_json_member(&element, "size", &member));
        SBP_TRY(sbp_json_int64(&member, axis->size, axis->size, &size));
    }
    return SBP_OK;
}

static enum sbp_status read_layers(const struct sbp_json *strategy, const struct sbp_plan *plan)
{
    struct sbp_json layers, layer;
    int count = 0;
    SBP_TRY(sbp_json_member(strategy, "layers", &layers));
    SBP_TRY(sbp_json_length(&layers, &count));
    if (count != plan->cut.graph.op_count)
        return sbp_json_refuse(&layers, "has %d layers, the model has %d", count,
                               plan->cut.graph.op_count);
    for (int op = 0; op < count; op++) {
        if (op == 0)
            SBP_TRY(sbp_json_element(&layers, op, &layer));
        else
            SBP_TRY(sbp_json_next(&layers, op, &layer));
        SBP_TRY(read_layer(&layer, plan, op));
    }
    return SBP_OK;
}

static enum sbp_status read_strategy(const struct sbp_json *root, struct sbp_plan *plan)
{
    static const char *const KEYS[] = {"boxing", "axes", "input", "layers", NULL};
    struct sbp_json strategy, member;
    int boxing = 0;
    SBP_TRY(sbp_json_member(root, "strategy", &strategy));
    SBP_TRY(sbp_json_keys(&strategy, KEYS));
    if (sbp_strategy_alloc(&plan->cut.graph, &plan->arena, &plan->strategy) != SBP_OK)
        return sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file);
    SBP_TRY(sbp_json_member(&strategy, "boxing", &member));
    SBP_TRY(sbp_json_choice(&member, sbp_strategy_boxing_names(), &boxing));
    plan->strategy.boxing = (enum sbp_boxing_mode)boxing;
    SBP_TRY(read_axes(&strategy, plan));
    if (plan->cut.graph.input >= 0)
        SBP_TRY(read_rest(&strategy, "input", &plan->cut.mesh,
                          &plan->strategy.rest[plan->cut.graph.input]));
    SBP_TRY(read_layers(&strategy, plan));
    struct sbp_diag why = {0};
    const enum sbp_status status =
        sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, &why);
    return status == SBP_OK ? SBP_OK : sbp_fail(root->diag, status, "%s: %s", root->file, why.text);
}

/* --- costs, memory, collectives --- */

static enum sbp_status check_collectives(const struct sbp_json *root, const struct sbp_step *step)
{
    struct sbp_json list, element;
    int count = 0;
    SBP_TRY(sbp_json_member(root, "collectives", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    struct cJSON *expected = sbp_plan_collectives(step);
    if (expected == NULL)
        return sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file);
    const struct cJSON *given = list.node->child, *right = expected->child;
    int index = 0;
    for (; given != NULL && right != NULL && cJSON_Compare(given, right, true); index++) {
        given = given->next;
        right = right->next;
    }
    enum sbp_status status = SBP_OK;
    if (given != NULL && right != NULL) {
        status = sbp_json_element(&list, index, &element);
        char *text = cJSON_PrintUnformatted(right);
        if (status == SBP_OK)
            status = sbp_json_refuse(&element, "is not what the strategy compiles to: %s",
                                     text == NULL ? "something else" : text);
        cJSON_free(text);
    } else if (given != NULL || right != NULL) {
        status = sbp_json_refuse(&list, "lists %d collectives, the strategy compiles to %d", count,
                                 cJSON_GetArraySize(expected));
    }
    cJSON_Delete(expected);
    return status;
}

/* Compares every number of an object, and of the objects in it, with the expected one; they may
 * differ by the share `tolerance`. */
static enum sbp_status check_numbers(const struct sbp_json *object, const struct cJSON *expected,
                                     double tolerance)
{
    struct sbp_json member;
    double given = 0;
    for (const struct cJSON *item = expected->child; item != NULL; item = item->next) {
        SBP_TRY(sbp_json_member(object, item->string, &member));
        if (cJSON_IsObject(item)) {
            SBP_TRY(check_numbers(&member, item, tolerance));
            continue;
        }
        SBP_TRY(sbp_json_double(&member, 0, INFINITY, &given));
        if (fabs(given - item->valuedouble) > tolerance * item->valuedouble)
            return sbp_json_refuse(&member, "says %.17g, the strategy's is %.17g", given,
                                   item->valuedouble);
    }
    if (cJSON_GetArraySize(object->node) != cJSON_GetArraySize(expected))
        return sbp_json_refuse(object, "has %d members where there are %d",
                               cJSON_GetArraySize(object->node), cJSON_GetArraySize(expected));
    return SBP_OK;
}

static enum sbp_status check_cost_and_memory(const struct sbp_json *root,
                                             const struct sbp_summary *summary)
{
    struct sbp_json member;
    struct cJSON *expected = cJSON_CreateObject();
    bool failed = expected == NULL;
    sbp_summary_put_cost(expected, summary, &failed);
    sbp_summary_put_memory(expected, summary, &failed);
    enum sbp_status status =
        failed ? sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file) : SBP_OK;
    for (const struct cJSON *item = failed ? NULL : expected->child;
         item != NULL && status == SBP_OK; item = item->next) {
        status = sbp_json_member(root, item->string, &member);
        if (status == SBP_OK)
            status = check_numbers(&member, item,
                                   strcmp(item->string, "memory") == 0 ? 0 : COST_TOLERANCE);
    }
    cJSON_Delete(expected);
    return status;
}

/* Checks members of the search that nothing follows from; they are shown and kept. */
static enum sbp_status check_record(const struct sbp_json *search)
{
    static const struct {
        const char *key;
        int64_t least, most;
    } NUMBERS[] = {{"seed", 0, SEARCH_MOST},
                   {"evaluations", 0, SEARCH_MOST},
                   {"memory_limit_bytes", 1, SEARCH_MOST},
                   {"max_batch_split", 1, SEARCH_MOST},
                   {"rank", 1, SEARCH_MOST}};
    const char *algorithms[MOST_ALGORITHMS + 2] = {"none"};
    int64_t number;
    int choice;
    bool flag;
    for (int i = 0; i < MOST_ALGORITHMS && sbp_solvers[i].name != NULL; i++)
        algorithms[i + 1] = sbp_solvers[i].name;
    SBP_TRY(sbp_json_get_bool(search, "stopped", &flag));
    SBP_TRY(sbp_json_get_bool(search, "left_out", &flag));
    SBP_TRY(sbp_json_get_bool(search, "plain", &flag));
    SBP_TRY(sbp_json_get_choice(search, "space", sbp_request_space_names(), &choice));
    SBP_TRY(sbp_json_get_choice(search, "algorithm", algorithms, &choice));
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        SBP_TRY(
            sbp_json_get_int64(search, NUMBERS[i].key, NUMBERS[i].least, NUMBERS[i].most, &number));
    SBP_TRY(optional_text(search, "covers"));
    return optional_text(search, "command");
}

/* Reads the bound; leaves it where it is missing or null, which says that none is known. */
static enum sbp_status read_bound(const struct sbp_json *search, double *bound_s)
{
    const struct cJSON *bound = cJSON_GetObjectItemCaseSensitive(search->node, "lower_bound_s");
    return cJSON_IsNull(bound) ? SBP_OK
                               : sbp_json_get_double(search, "lower_bound_s", 0, INFINITY, bound_s);
}

/* The status and bound of the search must agree with the plan's cost; the bound itself is believed.
 */
static enum sbp_status check_search(const struct sbp_json *root, const struct sbp_summary *summary)
{
    static const char *const KEYS[] = {"status",          "stopped",     "space",
                                       "objective",       "objective_s", "seed",
                                       "evaluations",     "algorithm",   "command",
                                       "lower_bound_s",   "rank",        "memory_limit_bytes",
                                       "max_batch_split", "covers",      "left_out",
                                       "plain",           NULL};
    static const char *const STATUSES[] = {"feasible", "optimal", NULL};
    static const char *const OBJECTIVES[] = {"step-time", "communication", NULL};
    struct sbp_json search;
    int optimal = 0, communication = 0;
    if (!sbp_json_has(root, "search"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "search", &search));
    SBP_TRY(sbp_json_keys(&search, KEYS));
    SBP_TRY(check_record(&search));
    SBP_TRY(sbp_json_get_choice(&search, "status", STATUSES, &optimal));
    SBP_TRY(sbp_json_get_choice(&search, "objective", OBJECTIVES, &communication));
    const double cost_s = communication ? summary->totals.communication_s : summary->totals.step_s;
    double objective_s = cost_s, bound_s = optimal ? -INFINITY : 0;
    SBP_TRY(sbp_json_get_double(&search, "objective_s", 0, INFINITY, &objective_s));
    SBP_TRY(read_bound(&search, &bound_s));
    if (fabs(objective_s - cost_s) > COST_TOLERANCE * cost_s)
        return sbp_json_refuse(&search, "objective_s is %.17g, the strategy's is %.17g",
                               objective_s, cost_s);
    if (bound_s > cost_s * (1 + COST_TOLERANCE))
        return sbp_json_refuse(&search, "lower_bound_s is %.17g, the plan costs %.17g: less",
                               bound_s, cost_s);
    if (optimal && bound_s < cost_s * (1 - COST_TOLERANCE))
        return sbp_json_refuse(&search, "status is optimal, which takes a lower_bound_s of %.17g",
                               cost_s);
    return SBP_OK;
}

static enum sbp_status check_results(const struct sbp_json *root, const struct sbp_plan *plan)
{
    struct sbp_step step;
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, false, &step, root->diag));
    const struct sbp_summary summary = sbp_summary_make(plan, &step);
    enum sbp_status status = check_collectives(root, &step);
    if (status == SBP_OK)
        status = check_cost_and_memory(root, &summary);
    if (status == SBP_OK)
        status = check_search(root, &summary);
    sbp_step_free(&step);
    return status;
}

enum sbp_status sbp_plan_read(const char *path, struct sbp_plan *plan, struct sbp_diag *diag)
{
    struct cJSON *root;
    struct sbp_json at;
    *plan = (struct sbp_plan){0};
    SBP_TRY(sbp_input_kind_open(path, SBP_INPUT_PLAN, &root, &at, diag));
    enum sbp_status status = check_version(&at);
    if (status == SBP_OK)
        status = read_inputs(&at, plan);
    if (status == SBP_OK)
        status = read_strategy(&at, plan);
    if (status == SBP_OK)
        status = check_results(&at, plan);
    cJSON_Delete(root);
    if (status != SBP_OK)
        sbp_plan_free(plan);
    return status;
}
