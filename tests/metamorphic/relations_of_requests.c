#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/roles.h"
#include "planner/space/space_table.h"
#include "tests/metamorphic/relations.h"

/* ---- spaces --------------------------------------------------------------------------------- */

static bool a_space_costs_no_more_than_its_parts(struct world *world)
{
    const struct answer full = world_search(world);
    for (int space = 0; space < SBP_SPACES; space++) {
        if (space == SBP_SPACE_FULL || !sbp_space_is_part_of_full((enum sbp_space_kind)space))
            continue;
        world->request.space = (enum sbp_space_kind)space;
        const struct answer part = world_search(world);
        never_more(world, &full, &part);
    }
    return true;
}

static bool zero_costs_no_more_than_its_levels(struct world *world)
{
    static const enum sbp_space_kind parts[] = {SBP_SPACE_ZERO_1, SBP_SPACE_ZERO_2,
                                                SBP_SPACE_ZERO_3};
    world->request.space = SBP_SPACE_ZERO;
    const struct answer free = world_search(world);
    for (int i = 0; i < 3; i++) {
        world->request.space = parts[i];
        const struct answer part = world_search(world);
        never_more(world, &free, &part);
    }
    return true;
}

static bool boxing_by_the_paper_never_helps(struct world *world)
{
    world->request.space = SBP_SPACE_AUTODDL;
    const struct answer full = world_search(world);
    world->request.boxing = SBP_BOXING_PAPER;
    const struct answer paper = world_search(world);
    never_more(world, &full, &paper);
    return true;
}

static bool plans_that_run_are_never_cheaper(struct world *world)
{
    const struct answer any = world_search(world);
    world->request.runnable = true;
    const struct answer runs = world_search(world);
    never_more(world, &any, &runs);
    return true;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static bool one_stage_is_never_cheaper(struct world *world)
{
    const struct answer free = world_search(world);
    give(world, "pipeline", NULL, 1);
    const struct answer one = world_search(world);
    never_more(world, &free, &one);
    return true;
}

static bool a_number_of_stages_is_never_cheaper(struct world *world)
{
    const struct answer free = world_search(world);
    give(world, "pipeline", NULL, (double)devices_of(world));
    const struct answer given = world_search(world);
    never_more(world, &free, &given);
    return true;
}

static bool a_zero_level_is_never_cheaper(struct world *world)
{
    const struct answer free = world_search(world);
    for (int zero = 0; zero <= 3; zero++) {
        give(world, "zero", NULL, zero);
        const struct answer given = world_search(world);
        never_more(world, &free, &given);
    }
    return true;
}

/* Where memory binds, since nothing is recomputed where it does not. */
static bool a_recompute_is_never_cheaper(struct world *world)
{
    const struct answer whole = world_search(world);
    if (whole.device_bytes == 0)
        return false;
    world->request.memory_limit_bytes = whole.device_bytes * 9 / 10;
    const struct answer free = world_search(world);
    for (int again = 0; again < SBP_RECOMPUTES; again++) {
        give(world, "recompute", sbp_parallel_recompute_name((enum sbp_recompute)again), 0);
        const struct answer given = world_search(world);
        never_more(world, &free, &given);
    }
    return true;
}

static bool a_micro_batch_is_never_cheaper(struct world *world)
{
    const int batch = (int)number_of(world->model, "global_batch", 1);
    const struct answer free = world_search(world);
    for (int micro = 1; micro <= batch && micro <= 12; micro++) {
        if (batch % micro != 0)
            continue;
        give(world, "micro_batch", NULL, micro);
        const struct answer given = world_search(world);
        never_more(world, &free, &given);
    }
    return true;
}

static bool a_schedule_is_never_cheaper(struct world *world)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero-bubble", "message-driven"};
    give(world, "pipeline", NULL, 2);
    const struct answer free = world_search(world);
    for (int i = 0; i < 4; i++) {
        give(world, "schedule", schedules[i], 0);
        const struct answer given = world_search(world);
        never_more(world, &free, &given);
    }
    return true;
}

/* ---- limits --------------------------------------------------------------------------------- */

static bool a_limit_of_batch_splits_never_helps(struct world *world)
{
    const struct answer free = world_search(world);
    for (int most = 4; most >= 1; most /= 2) {
        world->request.max_batch_split = most;
        const struct answer limited = world_search(world);
        never_more(world, &free, &limited);
    }
    return true;
}

static bool a_memory_limit_never_helps(struct world *world)
{
    const struct answer free = world_search(world);
    if (free.device_bytes == 0)
        return false;
    for (int tenths = 9; tenths >= 3; tenths -= 2) {
        world->request.memory_limit_bytes = free.device_bytes * tenths / 10;
        const struct answer limited = world_search(world);
        never_more(world, &free, &limited);
    }
    return true;
}

/* ---- fixes ---------------------------------------------------------------------------------- */

/* An operator that chooses, with one of its own roles and no last resort; -1: the draw found none.
 */
static int draw_op(struct world *world, const struct sbp_graph *graph)
{
    const int op = world_pick(world, graph->op_count);
    return graph->op[op].site == op && !graph->op[op].entry->follows ? op : -1;
}

static struct sbp_fix fix_of(const struct sbp_graph *graph, int op)
{
    struct sbp_fix fix = {.zero = SBP_ANY};
    (void)snprintf(fix.layer, sizeof fix.layer, "%s", graph->op[op].name);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix.factor[role][level] = 1;
    return fix;
}

/* The roles that an operator has in a plan, as a fix; false: a last resort is among them. */
static bool fix_as_found(const struct sbp_plan *plan, int op, struct sbp_fix *fix)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    *fix = fix_of(&plan->cut.graph, op);
    for (int role = 0; role < entry->role_count; role++)
        for (int level = 0; level < plan->cut.stage.level_count; level++) {
            const int64_t factor = sbp_role_factor(&plan->cut, &plan->strategy, op, role, level);
            if (factor > 1 && entry->role[role].spare)
                return false;
            fix->factor[role][level] = factor;
        }
    return true;
}

static bool a_fix_of_what_is_found_changes_nothing(struct world *world)
{
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct answer free;
    struct sbp_fix fix;
    const bool found = world_find(world, &plan, &outcome, &free);
    const int op = found ? draw_op(world, &plan.cut.graph) : -1;
    const bool fixed = op >= 0 && fix_as_found(&plan, op, &fix);
    if (fixed)
        give(world, "pipeline", NULL, (double)plan.cut.parallel.pipeline);
    sbp_plan_free(&plan);
    if (!fixed)
        return false;
    world->request.fix = &fix;
    world->request.fix_count = 1;
    const struct answer again = world_search(world);
    costs_times(world, &free, 1, &again);
    return true;
}

/* A role that takes all devices of every level, in one stage. */
static bool a_fix_never_helps(struct world *world)
{
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct answer free;
    give(world, "pipeline", NULL, 1);
    const bool found = world_find(world, &plan, &outcome, &free);
    const int op = found ? draw_op(world, &plan.cut.graph) : -1;
    struct sbp_fix fix;
    bool fixed = op >= 0;
    if (fixed) {
        const struct sbp_op_entry *entry = plan.cut.graph.op[op].entry;
        const int role = world_pick(world, entry->role_count);
        fixed = !entry->role[role].spare;
        fix = fix_of(&plan.cut.graph, op);
        for (int level = 0; level < plan.cut.stage.level_count; level++)
            fix.factor[role][level] = plan.cut.stage.level[level].size;
    }
    sbp_plan_free(&plan);
    if (!fixed)
        return false;
    world->request.fix = &fix;
    world->request.fix_count = 1;
    const struct answer given = world_search(world);
    never_more(world, &free, &given);
    return true;
}

/* ---- solvers -------------------------------------------------------------------------------- */

static bool a_heuristic_never_beats_the_optimum(struct world *world)
{
    static const char *const names[] = {"coordinate-descent", "metropolis"};
    const struct answer best = world_search(world);
    for (int i = 0; i < 2; i++) {
        world->request.solver = sbp_solver_find(names[i]);
        world->request.solver_options =
            (struct sbp_solver_options){.max_evaluations = 2000, .restarts = 2};
        const struct answer other = world_search(world);
        never_more(world, &best, &other);
    }
    return true;
}

static bool a_seed_changes_no_optimum(struct world *world)
{
    const struct answer before = world_search(world);
    world->request.solver_options.seed = 1 + world->seed;
    const struct answer after = world_search(world);
    costs_times(world, &before, 1, &after);
    return true;
}

static bool less_communication_is_found_where_it_is_asked_for(struct world *world)
{
    give(world, "pipeline", NULL, 1);
    put_number(world->cluster, "gradient_overlap", 0);
    const struct answer time = world_search(world);
    world->request.objective = SBP_COMMUNICATION;
    const struct answer communication = world_search(world);
    never_more(world, &communication, &time);
    return true;
}

const struct relation relations_of_requests[] = {
    RELATION(a_space_costs_no_more_than_its_parts),
    RELATION(zero_costs_no_more_than_its_levels),
    RELATION(boxing_by_the_paper_never_helps),
    RELATION(plans_that_run_are_never_cheaper),
    RELATION(one_stage_is_never_cheaper),
    RELATION(a_number_of_stages_is_never_cheaper),
    RELATION(a_zero_level_is_never_cheaper),
    RELATION(a_recompute_is_never_cheaper),
    RELATION(a_micro_batch_is_never_cheaper),
    RELATION(a_schedule_is_never_cheaper),
    RELATION(a_limit_of_batch_splits_never_helps),
    RELATION(a_memory_limit_never_helps),
    RELATION(a_fix_of_what_is_found_changes_nothing),
    RELATION(a_fix_never_helps),
    RELATION(a_heuristic_never_beats_the_optimum),
    RELATION(a_seed_changes_no_optimum),
    RELATION(less_communication_is_found_where_it_is_asked_for),
    {.name = NULL},
};
