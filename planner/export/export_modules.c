/* Plans whose layers torchtitan can split one by one: all of them over the same data, context and
 * tensor axes, each in its own way over the tensor axes, llama alone.
 *
 * A module's states and boundaries may be any; what lies between modules is the model's own code:
 * the residual adds, which keep one layout from the first block to the last, heads, the embedding
 * and the loss, which torchtitan splits by heads and by vocabulary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/export/export_modules.h"
#include "planner/plan/roles.h"

/* ---- layouts over the tensor axes ------------------------------------------------------------ */

static enum sbp_export_lie lie_of(const struct sbp_state *state)
{
    switch ((enum sbp_kind)state->kind) {
    case SBP_BROADCAST:
        return SBP_EXPORT_LIES_WHOLE;
    case SBP_PARTIAL:
        return SBP_EXPORT_LIES_SUMMED;
    case SBP_MIRRORED:
        return SBP_EXPORT_LIES_MIRRORED;
    case SBP_SPLIT:
        break;
    }
    return state->dim == SBP_DIM_SEQUENCE  ? SBP_EXPORT_LIES_BY_TOKEN
           : state->dim == SBP_DIM_FEATURE ? SBP_EXPORT_LIES_BY_FEATURE
                                           : SBP_EXPORT_LIES_MIXED;
}

static enum sbp_export_lie lie_over(const struct sbp_plan *plan, sbp_axes axes,
                                    const struct sbp_dist *dist)
{
    enum sbp_export_lie lie = SBP_EXPORT_LIES_MIXED;
    bool first = true;
    for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++) {
        if ((axes >> axis & 1) == 0)
            continue;
        const enum sbp_export_lie here = lie_of(&dist->axis[axis]);
        lie = first || here == lie ? here : SBP_EXPORT_LIES_MIXED;
        first = false;
        if (lie == SBP_EXPORT_LIES_MIXED)
            return lie;
    }
    return lie;
}

enum sbp_export_lie sbp_export_lie_in(const struct sbp_export_modules *m, int op)
{
    const struct sbp_cut *cut = &m->plan->cut;
    const struct sbp_dist dist =
        sbp_strategy_input(&cut->graph, &cut->mesh, &m->plan->strategy, op, 0);
    return lie_over(m->plan, m->tensor, &dist);
}

enum sbp_export_lie sbp_export_lie_out(const struct sbp_export_modules *m, int op)
{
    const struct sbp_cut *cut = &m->plan->cut;
    const struct sbp_dist dist =
        sbp_strategy_output(&cut->graph, &cut->mesh, &m->plan->strategy, op);
    return lie_over(m->plan, m->tensor, &dist);
}

enum sbp_export_lie sbp_export_lie_rest(const struct sbp_export_modules *m, int op)
{
    const struct sbp_plan *plan = m->plan;
    return lie_over(plan, m->tensor, &plan->strategy.rest[plan->cut.graph.op[op].output]);
}

/* ---- data, context and tensor axes ----------------------------------------------------------- */

static bool splits(const struct sbp_dist *dist, int axis, int dim)
{
    return dist->axis[axis].kind == SBP_SPLIT && dist->axis[axis].dim == dim;
}

/* Whether an axis splits all that is made and all that rests by one dimension. */
static bool is_all_split(const struct sbp_plan *plan, int axis, int dim)
{
    const struct sbp_cut *cut = &plan->cut;
    const struct sbp_graph *graph = &cut->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const bool ends = graph->op[op].output < 0;
        const struct sbp_dist dist =
            ends ? sbp_strategy_input(graph, &cut->mesh, &plan->strategy, op, 0)
                 : sbp_strategy_output(graph, &cut->mesh, &plan->strategy, op);
        if (!splits(&dist, axis, dim) ||
            (!ends && !splits(&plan->strategy.rest[graph->op[op].output], axis, dim)))
            return false;
    }
    return true;
}

static void find_axes(struct sbp_export_modules *m)
{
    for (int axis = 0; axis < m->plan->cut.mesh.axis_count; axis++) {
        const sbp_axes bit = (sbp_axes)1 << axis;
        if (is_all_split(m->plan, axis, SBP_DIM_BATCH))
            continue;
        if (is_all_split(m->plan, axis, SBP_DIM_SEQUENCE))
            m->context |= bit;
        else
            m->tensor |= bit;
    }
}

static int64_t ways_at(const struct sbp_plan *plan, sbp_axes axes, int level)
{
    int64_t ways = 1;
    for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
        if ((axes >> axis & 1) != 0 && (level < 0 || plan->cut.mesh.axis[axis].level == level))
            ways *= plan->cut.mesh.axis[axis].size;
    return ways;
}

int64_t sbp_export_modules_ways(const struct sbp_export_modules *m, sbp_axes axes)
{
    return ways_at(m->plan, axes, -1);
}

bool sbp_export_modules_placed(const struct sbp_export_modules *m, const struct sbp_plan *plan)
{
    struct sbp_export_modules other = {.plan = plan};
    if (m->plan->cut.graph.op_count != plan->cut.graph.op_count ||
        m->plan->cut.mesh.axis_count != plan->cut.mesh.axis_count)
        return false;
    find_axes(&other);
    for (int level = 0; level < plan->cut.mesh.level_count; level++)
        if (ways_at(m->plan, m->tensor, level) != ways_at(plan, other.tensor, level) ||
            ways_at(m->plan, m->context, level) != ways_at(plan, other.context, level))
            return false;
    return true;
}

/* ---- what can be said ------------------------------------------------------------------------ */

static const char *const PARTS[SBP_EXPORT_PARTS] = {
    [SBP_EXPORT_NORM1] = "norm1",
    [SBP_EXPORT_Q] = "q",
    [SBP_EXPORT_Q_ROTARY] = "q_rotary",
    [SBP_EXPORT_KV] = "kv",
    [SBP_EXPORT_K_ROTARY] = "k_rotary",
    [SBP_EXPORT_HEADS] = "attention",
    [SBP_EXPORT_PROJECTION] = "projection",
    [SBP_EXPORT_ADD1] = "add1",
    [SBP_EXPORT_NORM2] = "norm2",
    [SBP_EXPORT_GATE_UP] = "gate_up",
    [SBP_EXPORT_SWIGLU] = "swiglu",
    [SBP_EXPORT_DOWN] = "down",
    [SBP_EXPORT_ADD2] = "add2",
};

bool sbp_export_block(const struct sbp_graph *graph, int first, int block[SBP_EXPORT_PARTS])
{
    for (int part = 0; part < SBP_EXPORT_PARTS; part++) {
        const char *name =
            first + part < graph->op_count ? strchr(graph->op[first + part].name, '.') : NULL;
        if (name == NULL || strcmp(name + 1, PARTS[part]) != 0)
            return false;
        block[part] = first + part;
    }
    return true;
}

static bool is_whole_or_split(enum sbp_export_lie lie)
{
    return lie != SBP_EXPORT_LIES_MIXED && lie != SBP_EXPORT_LIES_SUMMED;
}

/* Whether an add reads both operands, works and leaves its sum in one layout. */
static bool adds_in(const struct sbp_export_modules *m, int op, enum sbp_export_lie lie)
{
    return sbp_export_lie_in(m, op) == lie && sbp_export_lie_out(m, op) == lie &&
           sbp_export_lie_rest(m, op) == lie;
}

/* A linear layer that reads no sum. */
static bool is_linear_said(const struct sbp_export_modules *m, int op)
{
    return is_whole_or_split(sbp_export_lie_in(m, op)) &&
           sbp_export_lie_out(m, op) != SBP_EXPORT_LIES_MIXED;
}

static bool lies_by_feature(const struct sbp_export_modules *m, int op)
{
    return sbp_export_lie_out(m, op) == SBP_EXPORT_LIES_BY_FEATURE &&
           sbp_export_lie_rest(m, op) == SBP_EXPORT_LIES_BY_FEATURE;
}

static bool is_attention_said(const struct sbp_export_modules *m, const int *block)
{
    for (int part = SBP_EXPORT_Q; part < SBP_EXPORT_HEADS; part++)
        if (!lies_by_feature(m, block[part]))
            return false;
    return sbp_export_lie_in(m, block[SBP_EXPORT_Q]) == SBP_EXPORT_LIES_WHOLE &&
           sbp_export_lie_in(m, block[SBP_EXPORT_KV]) == SBP_EXPORT_LIES_WHOLE &&
           sbp_export_lie_out(m, block[SBP_EXPORT_HEADS]) == SBP_EXPORT_LIES_BY_FEATURE &&
           is_linear_said(m, block[SBP_EXPORT_PROJECTION]);
}

static bool is_block_said(const struct sbp_export_modules *m, const int *block)
{
    const enum sbp_export_lie residual = m->residual;
    return is_whole_or_split(sbp_export_lie_rest(m, block[SBP_EXPORT_NORM1])) &&
           is_attention_said(m, block) && adds_in(m, block[SBP_EXPORT_ADD1], residual) &&
           is_whole_or_split(sbp_export_lie_rest(m, block[SBP_EXPORT_NORM2])) &&
           is_linear_said(m, block[SBP_EXPORT_GATE_UP]) &&
           is_whole_or_split(sbp_export_lie_rest(m, block[SBP_EXPORT_GATE_UP])) &&
           is_linear_said(m, block[SBP_EXPORT_DOWN]) &&
           adds_in(m, block[SBP_EXPORT_ADD2], residual);
}

/* The embedding in front of the blocks; final norm, head and loss behind them. */
static bool are_ends_said(const struct sbp_export_modules *m, int behind)
{
    const struct sbp_graph *graph = &m->plan->cut.graph;
    return behind + 3 == graph->op_count && graph->op[0].kind == SBP_OP_EMBEDDING &&
           graph->op[behind].kind == SBP_OP_RMSNORM &&
           graph->op[behind + 1].kind == SBP_OP_LINEAR &&
           graph->op[behind + 2].kind == SBP_OP_CROSS_ENTROPY &&
           sbp_export_lie_out(m, 0) == SBP_EXPORT_LIES_SUMMED &&
           (m->residual == SBP_EXPORT_LIES_BY_TOKEN || m->residual == SBP_EXPORT_LIES_WHOLE ||
            m->residual == SBP_EXPORT_LIES_MIRRORED) &&
           is_whole_or_split(sbp_export_lie_rest(m, behind)) &&
           sbp_export_lie_in(m, behind + 1) == SBP_EXPORT_LIES_WHOLE &&
           lies_by_feature(m, behind + 1) &&
           sbp_export_lie_in(m, behind + 2) == SBP_EXPORT_LIES_BY_FEATURE;
}

bool sbp_export_modules_of(const struct sbp_plan *plan, struct sbp_export_modules *m)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    int block[SBP_EXPORT_PARTS], op = 1;
    *m = (struct sbp_export_modules){.plan = plan};
    if (graph->op_count < 4 || graph->op[0].output < 0)
        return false;
    find_axes(m);
    if (m->tensor == 0)
        return false;
    m->residual = sbp_export_lie_rest(m, 0);
    for (; sbp_export_block(graph, op, block); op += SBP_EXPORT_PARTS)
        if (!is_block_said(m, block))
            return false;
    return are_ends_said(m, op);
}

/* Lets an output that rests neither as it is made nor as it is read rest as it is read, if it is a
 * sum, else as it is made. */
static void straighten(const struct sbp_export_modules *m, int op, int reader,
                       struct sbp_strategy *strategy)
{
    const struct sbp_cut *cut = &m->plan->cut;
    const enum sbp_export_lie made = sbp_export_lie_out(m, op), rest = sbp_export_lie_rest(m, op);
    if (rest == sbp_export_lie_in(m, reader) || (rest == made && rest != SBP_EXPORT_LIES_SUMMED))
        return;
    const struct sbp_dist dist =
        made == SBP_EXPORT_LIES_SUMMED
            ? sbp_strategy_input(&cut->graph, &cut->mesh, &m->plan->strategy, reader, 0)
            : sbp_strategy_output(&cut->graph, &cut->mesh, &m->plan->strategy, op);
    strategy->rest[cut->graph.op[op].output] = dist;
}

void sbp_export_modules_straighten(const struct sbp_export_modules *m,
                                   struct sbp_strategy *strategy)
{
    static const enum sbp_export_part ways[][2] = {
        {SBP_EXPORT_HEADS, SBP_EXPORT_PROJECTION},
        {SBP_EXPORT_PROJECTION, SBP_EXPORT_ADD1},
        {SBP_EXPORT_SWIGLU, SBP_EXPORT_DOWN},
        {SBP_EXPORT_DOWN, SBP_EXPORT_ADD2},
    };
    int block[SBP_EXPORT_PARTS];
    for (int op = 1; sbp_export_block(&m->plan->cut.graph, op, block); op += SBP_EXPORT_PARTS)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
            straighten(m, block[ways[way][0]], block[ways[way][1]], strategy);
}

bool sbp_export_modules_repeat(const struct sbp_export_modules *m)
{
    const struct sbp_graph *graph = &m->plan->cut.graph;
    for (int op = 1; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_LINEAR) {
            const enum sbp_export_lie out = sbp_export_lie_out(m, op);
            if (out != SBP_EXPORT_LIES_BY_FEATURE && out != SBP_EXPORT_LIES_SUMMED)
                return true;
        }
    return false;
}
