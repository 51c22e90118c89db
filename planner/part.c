#include "planner/part.h"

#include <string.h>

#include "planner/roles.h"

/* Whether an earlier operator's table is its weight, which decides how it is split. */
static bool is_tied(const struct sbp_graph *graph, int op)
{
    for (int other = 0; other < op && graph->op[op].transposed_weight; other++)
        if (graph->op[other].weight_count > 0 &&
            graph->op[other].weight[0] == graph->op[op].weight[0])
            return true;
    return false;
}

static bool splits_by_itself(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    return node->site == op && !node->entry->follows && !is_tied(graph, op);
}

struct sbp_split *sbp_plan_splits(const struct sbp_plan *plan, struct sbp_arena *arena)
{
    const struct sbp_graph *graph = &plan->graph;
    struct sbp_split *split = SBP_NEW(arena, struct sbp_split, graph->op_count + 1);
    for (int op = 0; split != NULL && op < graph->op_count; op++)
        for (int role = 0; role < SBP_MAX_ROLES; role++)
            for (int level = 0; level < SBP_MAX_LEVELS; level++)
                split[op].factor[role][level] =
                    splits_by_itself(graph, op) ? sbp_role_factor(plan, op, role, level) : 1;
    return split;
}

bool sbp_splits_equal(const struct sbp_split *a, const struct sbp_split *b, int op_count)
{
    return memcmp(a, b, (size_t)op_count * sizeof *a) == 0;
}

/* What operator `at` of a new part is not: as the plan has it, and what it is not already. */
static bool leave_out(const struct sbp_part *whole, struct sbp_arena *arena, struct sbp_part *part)
{
    const int known = whole != NULL && whole->at == part->at ? whole->without_count : 0;
    struct sbp_split *without = SBP_NEW(arena, struct sbp_split, known + 1);
    if (without == NULL)
        return false;
    if (known > 0)
        memcpy(without, whole->without, (size_t)known * sizeof *without);
    without[known] = part->split[part->at];
    part->without = without;
    part->without_count = known + 1;
    return true;
}

int sbp_part_cut(const struct sbp_graph *graph, const struct sbp_part *whole,
                 const struct sbp_split *split, struct sbp_arena *arena, struct sbp_part *part)
{
    int count = 0;
    for (int op = whole == NULL ? 0 : whole->at; op < graph->op_count; op++) {
        if (!splits_by_itself(graph, op))
            continue;
        part[count] = (struct sbp_part){.split = split, .at = op};
        if (!leave_out(whole, arena, &part[count++]))
            return -1;
    }
    return count;
}
