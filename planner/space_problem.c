/* The space as a pairwise problem: a variable for each of its own, costs of choices and of pairs.
 */
#include <math.h>

#include "planner/space_price.h"

static enum sbp_status add_unaries(const struct sbp_space *space, struct sbp_problem *problem)
{
    const struct sbp_interval always = {0, 1};
    const double constant = sbp_space_constant_s(space);
    for (int v = 0; v < space->variable_count; v++) {
        const struct sbp_space_variable *variable = &space->variable[v];
        const char *name = variable->op >= 0 ? space->graph->op[variable->op].name
                                             : space->graph->tensor[variable->tensor].name;
        const bool uses = variable->op >= 0 && isfinite(problem->capacity);
        if (sbp_problem_add_variable(problem, name, variable->choice_count, uses ? 1 : 0,
                                     &always) != v)
            return SBP_E_MEMORY;
        struct sbp_variable *out = &problem->variable[v];
        for (int c = 0; c < variable->choice_count; c++) {
            out->cost[c] = sbp_space_unary_s(space, v, c) + (v == 0 ? constant : 0);
            if (uses)
                out->usage[c] = sbp_space_unary_bytes(space, v, c);
        }
    }
    return SBP_OK;
}

/* An operator fed by itself (a repeated block's last by the next one's): a unary cost. */
static void add_loop(const struct sbp_space *space, const struct sbp_transfer *transfer,
                     struct sbp_problem *problem)
{
    for (int c = 0; c < space->variable[transfer->from].choice_count; c++)
        problem->variable[transfer->from].cost[c] += sbp_space_transfer_s(space, transfer, c, c);
}

static enum sbp_status add_transfers(const struct sbp_space *space, struct sbp_problem *problem)
{
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < space->transfer_count && status == SBP_OK; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        if (transfer->from == transfer->to) {
            add_loop(space, transfer, problem);
            continue;
        }
        bool transposed = false;
        struct sbp_arena scratch;
        sbp_arena_init(&scratch);
        double *table = sbp_problem_edge_table(problem, transfer->from, transfer->to, &transposed);
        status = table == NULL
                     ? SBP_E_MEMORY
                     : sbp_space_fill_transfer(space, transfer, table, transposed, &scratch);
        sbp_arena_free(&scratch);
    }
    return status;
}

static enum sbp_status add_keeps(const struct sbp_space *space, struct sbp_problem *problem)
{
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < space->keep_count && status == SBP_OK; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        bool transposed = false;
        struct sbp_arena scratch;
        sbp_arena_init(&scratch);
        double *table =
            sbp_problem_edge_table(problem, keep->op_variable, keep->rest_variable, &transposed);
        status = table == NULL ? SBP_E_MEMORY
                               : sbp_space_fill_keep(space, keep, table, transposed, &scratch);
        sbp_arena_free(&scratch);
    }
    return status;
}

enum sbp_status sbp_space_problem(const struct sbp_space *space, double capacity_bytes,
                                  struct sbp_problem *problem, struct sbp_diag *diag)
{
    enum sbp_status status =
        sbp_problem_init(problem, space->variable_count, space->transfer_count + space->keep_count);
    if (status == SBP_OK) {
        problem->capacity = capacity_bytes;
        status = add_unaries(space, problem);
    }
    if (status == SBP_OK)
        status = add_keeps(space, problem);
    if (status == SBP_OK)
        status = add_transfers(space, problem);
    if (status == SBP_OK && sbp_space_interrupted(space))
        status = SBP_STOPPED;
    if (status != SBP_OK) {
        sbp_problem_free(problem);
        return status == SBP_STOPPED
                   ? status
                   : sbp_fail(diag, status, "the search problem: %s", sbp_status_text(status));
    }
    return SBP_OK;
}
