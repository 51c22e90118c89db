#include "planner/space/subspace.h"

#include <string.h>

#include "planner/plan/roles.h"

/* Whether an earlier operator shares its weight and so decides how it is split. */
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

struct sbp_splits *sbp_subspace_splits(const struct sbp_cut *cut,
                                       const struct sbp_strategy *strategy, struct sbp_arena *arena)
{
    const struct sbp_graph *graph = &cut->graph;
    struct sbp_splits *splits = SBP_NEW(arena, struct sbp_splits, 1);
    int count = 0;
    for (int op = 0; op < graph->op_count; op++)
        count += splits_by_itself(graph, op);
    if (splits == NULL || (splits->layer = SBP_NEW(arena, struct sbp_split, count + 1)) == NULL)
        return NULL;
    for (int op = 0; op < graph->op_count; op++) {
        if (!splits_by_itself(graph, op))
            continue;
        struct sbp_split *split = &splits->layer[splits->count++];
        split->op = op;
        for (int role = 0; role < SBP_MAX_ROLES; role++)
            for (int level = 0; level < SBP_MAX_LEVELS; level++)
                split->factor[role][level] = sbp_role_factor(cut, strategy, op, role, level);
    }
    return splits;
}

static bool is_same_split(const struct sbp_split *a, const struct sbp_split *b)
{
    return a->op == b->op && memcmp(a->factor, b->factor, sizeof a->factor) == 0;
}

bool sbp_subspace_splits_equal(const struct sbp_splits *a, const struct sbp_splits *b)
{
    bool equal = a->count == b->count;
    for (int i = 0; equal && i < a->count; i++)
        equal = is_same_split(&a->layer[i], &b->layer[i]);
    return equal;
}

/* Lists the splits that layer `at` of a new part may not take: the plan's, and those that the
 * whole excludes already. */
static bool leave_out(const struct sbp_subspace *whole, struct sbp_arena *arena,
                      struct sbp_subspace *part)
{
    const int known = whole != NULL && whole->at == part->at ? whole->without_count : 0;
    struct sbp_split *without = SBP_NEW(arena, struct sbp_split, known + 1);
    if (without == NULL)
        return false;
    if (known > 0)
        memcpy(without, whole->without, (size_t)known * sizeof *without);
    without[known] = part->plan->layer[part->at];
    part->without = without;
    part->without_count = known + 1;
    return true;
}

int sbp_subspace_cut(const struct sbp_subspace *whole, const struct sbp_splits *plan,
                     struct sbp_arena *arena, struct sbp_subspace *part)
{
    int count = 0;
    for (int at = whole == NULL ? 0 : whole->at; at < plan->count; at++) {
        part[count] = (struct sbp_subspace){.plan = plan, .at = at};
        if (!leave_out(whole, arena, &part[count++]))
            return -1;
    }
    return count;
}

bool sbp_subspace_has(const struct sbp_subspace *part, const struct sbp_split *split)
{
    int at = 0;
    while (at < part->plan->count && part->plan->layer[at].op != split->op)
        at++;
    if (at < part->at)
        return is_same_split(split, &part->plan->layer[at]);
    for (int i = 0; at == part->at && i < part->without_count; i++)
        if (is_same_split(split, &part->without[i]))
            return false;
    return true;
}
