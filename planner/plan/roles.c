#include "planner/plan/roles.h"

#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"

/* The operator's role on an axis; -1 where it has none (a follower of the model's input). */
static int role_on_axis(const struct sbp_cut *cut, const struct sbp_strategy *strategy, int op,
                        int axis)
{
    const struct sbp_op_node *node = &cut->graph.op[op];
    const struct sbp_op_entry *entry = node->entry;
    if (!entry->follows)
        return strategy->op[op].role[axis];
    const struct sbp_state state = strategy->rest[node->input[0]].axis[axis];
    for (int role = 0; role < entry->role_count; role++)
        if (sbp_state_equal(entry->role[role].input[0], state))
            return role;
    return -1;
}

int64_t sbp_role_factor(const struct sbp_cut *cut, const struct sbp_strategy *strategy, int op,
                        int role, int level)
{
    int64_t factor = 1;
    for (int axis = 0; axis < cut->mesh.axis_count; axis++)
        if (cut->mesh.axis[axis].level == level && role_on_axis(cut, strategy, op, axis) == role)
            factor *= cut->mesh.axis[axis].size;
    return factor;
}

int64_t sbp_role_total(const struct sbp_plan *plan, int op, int role)
{
    int64_t factor = 1;
    for (int level = 0; level < plan->cut.mesh.level_count; level++)
        factor *= sbp_role_factor(&plan->cut, &plan->strategy, op, role, level);
    return factor;
}

struct cJSON *sbp_roles_json(const struct sbp_plan *plan, int op)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    struct cJSON *roles = cJSON_CreateObject();
    bool failed = roles == NULL;
    for (int role = 0; role < entry->role_count; role++) {
        if (sbp_role_total(plan, op, role) == 1)
            continue;
        struct cJSON *levels = sbp_json_put_array(roles, entry->role[role].name, &failed);
        for (int level = 0; level < plan->cut.mesh.level_count; level++)
            sbp_json_push_number(
                levels, (double)sbp_role_factor(&plan->cut, &plan->strategy, op, role, level),
                &failed);
    }
    if (!failed)
        return roles;
    cJSON_Delete(roles);
    return NULL;
}

/* Appends "word factor", or "word: " for a factor below 0; cuts at the end of the buffer. */
static int append(char *buffer, int used, const char *before, const char *word, int64_t factor)
{
    if (used >= SBP_ROLES_BYTES)
        return used;
    const size_t room = (size_t)(SBP_ROLES_BYTES - used);
    if (factor < 0)
        return used + snprintf(buffer + used, room, "%s%s: ", before, word);
    return used + snprintf(buffer + used, room, "%s%s %lld", before, word, (long long)factor);
}

static bool splits_at(const struct sbp_plan *plan, int op, int level)
{
    for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
        if (plan->cut.mesh.axis[axis].level == level &&
            role_on_axis(&plan->cut, &plan->strategy, op, axis) >= 0)
            return true;
    return false;
}

const char *sbp_roles_text(const struct sbp_plan *plan, int op, char *buffer)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    int used = 0;
    buffer[0] = '\0';
    for (int level = 0; level < plan->cut.mesh.level_count; level++) {
        if (!splits_at(plan, op, level))
            continue;
        if (plan->cut.mesh.level_count > 1)
            used =
                append(buffer, used, used > 0 ? " | " : "", plan->cut.stage.level[level].name, -1);
        const char *before = "";
        for (int role = 0; role < entry->role_count; role++) {
            const int64_t factor = sbp_role_factor(&plan->cut, &plan->strategy, op, role, level);
            if (factor == 1)
                continue;
            used = append(buffer, used, before, entry->role[role].name, factor);
            before = " x ";
        }
    }
    if (used == 0)
        (void)snprintf(buffer, SBP_ROLES_BYTES, "-");
    return buffer;
}

const char *sbp_role_totals_text(const struct sbp_plan *plan, int op, char *buffer)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    int used = 0;
    (void)snprintf(buffer, SBP_ROLES_BYTES, "whole");
    for (int role = 0; role < entry->role_count; role++) {
        const int64_t total = sbp_role_total(plan, op, role);
        if (total > 1)
            used = append(buffer, used, used > 0 ? " x " : "", entry->role[role].name, total);
    }
    return buffer;
}
