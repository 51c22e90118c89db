#include "planner/space/space_table.h"

#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/limits.h"
#include "planner/space/space.h"

/* ---- roles ---------------------------------------------------------------------------------- */

static bool plays_any(const struct sbp_op_entry *entry, int role)
{
    return !entry->role[role].spare;
}

static bool plays_paper(const struct sbp_op_entry *entry, int role)
{
    return entry->role[role].paper;
}

static bool plays_batch(const struct sbp_op_entry *entry, int role)
{
    return strcmp(entry->role[role].name, "batch") == 0;
}

/* Between products, tokens split the residual stream. */
static bool plays_megatron_3d(const struct sbp_op_entry *entry, int role)
{
    return entry->role[role].paper || strcmp(entry->role[role].name, "sequence") == 0;
}

/* Roles that neither take nor leave partial sums; the loss may, which every program sums. */
static bool plays_whole(const struct sbp_op_entry *entry, int role)
{
    const struct sbp_role *played = &entry->role[role];
    bool partial = played->output.kind == SBP_PARTIAL && entry != sbp_op(SBP_OP_CROSS_ENTROPY);
    for (int i = 0; i < entry->inputs; i++)
        partial |= played->input[i].kind == SBP_PARTIAL;
    return !partial && !played->spare;
}

/* Linears with weights of their own play SUMMA's grid, other operators any role. */
static bool plays_grid(const struct sbp_op_entry *entry, int role)
{
    const char *name = entry->role[role].name;
    if (entry == sbp_op(SBP_OP_SUMMA_LINEAR))
        return strcmp(name, "grid_row") == 0 || strcmp(name, "grid_column") == 0;
    return !entry->role[role].spare;
}

static bool resorts_to_spare(const struct sbp_op_entry *entry, int role)
{
    const struct sbp_role *played = &entry->role[role];
    return played->spare && played->output.kind != SBP_PARTIAL &&
           played->output.kind != SBP_MIRRORED;
}

/* A grid is replicated where its layer's sizes keep it from taking all devices. */
static bool resorts_to_grids(const struct sbp_op_entry *entry, int role)
{
    if (entry == sbp_op(SBP_OP_SUMMA_LINEAR))
        return plays_batch(entry, role);
    return resorts_to_spare(entry, role);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define SPLIT(dim)   (1u << SBP_DIM_##dim)
#define BY_BATCH     SPLIT(BATCH)
#define BY_FEATURES  (SPLIT(BATCH) | SPLIT(FEATURE))
#define BY_ALL       (SPLIT(BATCH) | SPLIT(SEQUENCE) | SPLIT(FEATURE))
#define LEVEL(z)     (1u << (z))
#define SCHEDULE(s)  (1u << SBP_##s)
#define BATCH_STAGES .least_stages = 1, .micro_batch = true, .recompute = true

static const struct sbp_space_rule rules[SBP_SPACES] = {
    [SBP_SPACE_FULL] = {.summary = "every role of every operator: batch, sequence, column, row, "
                                   "head, vocab",
                        .plays = plays_any,
                        .splits = BY_ALL,
                        .resorts = resorts_to_spare,
                        .divides = plays_any,
                        .plays_spare = true,
                        .outer = {BATCH_STAGES, .pipeline = true, .offload = true, .regather = true,
                                  .zero_levels = LEVEL(0) | LEVEL(1) | LEVEL(2) | LEVEL(3),
                                  .per_layer_zero = true,
                                  .schedules = SCHEDULE(ONE_F_ONE_B) | SCHEDULE(INTERLEAVED) |
                                               SCHEDULE(ZERO_BUBBLE) | SCHEDULE(GPIPE) |
                                               SCHEDULE(MESSAGE_DRIVEN)}},
    [SBP_SPACE_AUTODDL] = {.summary = "AutoDDL's (p0, p1, p2) a layer: batch, column, row; outputs "
                                      "split",
                           .plays = plays_paper,
                           .splits = BY_FEATURES,
                           .outer = {.least_stages = 1, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_DATA_PARALLEL] = {.summary = "batch splits alone",
                                 .plays = plays_batch,
                                 .splits = BY_BATCH,
                                 .outer = {BATCH_STAGES, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_ZERO] = {.summary = "batch splits alone, states sharded by the best ZeRO level",
                        .plays = plays_batch,
                        .splits = BY_BATCH,
                        .outer = {BATCH_STAGES, .zero_levels = LEVEL(1) | LEVEL(2) | LEVEL(3)}},
    [SBP_SPACE_ZERO_1] = {.summary = "batch splits alone, optimizer states sharded",
                          .plays = plays_batch,
                          .splits = BY_BATCH,
                          .outer = {BATCH_STAGES, .zero_levels = LEVEL(1)}},
    [SBP_SPACE_ZERO_2] = {.summary = "batch splits alone, gradients sharded as well",
                          .plays = plays_batch,
                          .splits = BY_BATCH,
                          .outer = {BATCH_STAGES, .zero_levels = LEVEL(2)}},
    [SBP_SPACE_ZERO_3] = {.summary = "batch splits alone, parameters sharded as well",
                          .plays = plays_batch,
                          .splits = BY_BATCH,
                          .outer = {BATCH_STAGES, .zero_levels = LEVEL(3)}},
    [SBP_SPACE_MEGATRON] = {.summary = "one tensor x data mesh, the best: column-split, then "
                                       "row-split layers",
                            .plays = plays_paper,
                            .splits = BY_FEATURES,
                            .mesh = SBP_MESH_BEST,
                            .outer = {BATCH_STAGES, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_MEGATRON_NODE] = {.summary = "that mesh as it is mostly run: tensor parallelism "
                                            "inside a node, data parallelism across nodes",
                                 .plays = plays_paper,
                                 .splits = BY_FEATURES,
                                 .mesh = SBP_MESH_NODE,
                                 .outer = {BATCH_STAGES, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_MEGATRON_3D] = {.summary = "tensor x data x pipeline, tokens split between products "
                                          "(sequence parallelism), optimizer sharded",
                               .plays = plays_megatron_3d,
                               .splits = BY_ALL,
                               .mesh = SBP_MESH_BEST,
                               .splits_tokens = true,
                               .outer = {BATCH_STAGES, .pipeline = true,
                                         .zero_levels = LEVEL(0) | LEVEL(1),
                                         .schedules =
                                             SCHEDULE(ONE_F_ONE_B) | SCHEDULE(INTERLEAVED)}},
    [SBP_SPACE_GSHARD] = {.summary = "no operator takes or leaves partial sums: no row, no vocab",
                          .plays = plays_whole,
                          .splits = BY_ALL,
                          .resorts = resorts_to_spare,
                          /* as in full, which so holds every plan of this space */
                          .divides = plays_any,
                          .outer = {BATCH_STAGES, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_SUMMA] = {.summary = "every linear on a 2D grid, by panels of both operands; other "
                                    "operators as in full",
                         .plays = plays_grid,
                         .resorts = resorts_to_grids,
                         .divides = plays_grid,
                         .splits = BY_ALL,
                         .linears_on_grid = true,
                         .outer = {BATCH_STAGES, .zero_levels = LEVEL(0)}},
    [SBP_SPACE_MYELIN] = {.summary = "pipeline x data, message-driven; optimizer states may be in "
                                     "host memory",
                          .plays = plays_batch,
                          .splits = BY_BATCH,
                          .outer = {BATCH_STAGES, .pipeline = true, .offload = true,
                                    .zero_levels = LEVEL(0),
                                    .schedules = SCHEDULE(MESSAGE_DRIVEN)}},
    [SBP_SPACE_CDP] = {.summary = "pipeline x data, cyclic: gradients are a step late",
                       .plays = plays_batch,
                       .splits = BY_BATCH,
                       .outer = {.least_stages = 2,
                                 .micro_batch = true,
                                 .recompute = true,
                                 .pipeline = true,
                                 .zero_levels = LEVEL(0),
                                 .schedules = SCHEDULE(CDP_V1) | SCHEDULE(CDP_V2),
                                 .allow_delayed_gradients = true}},
};

const struct sbp_space_rule *sbp_space_rule(enum sbp_space_kind kind)
{
    return &rules[kind];
}

bool sbp_space_is_part_of_full(enum sbp_space_kind kind)
{
    return !rules[kind].linears_on_grid && !rules[kind].outer.allow_delayed_gradients;
}

double sbp_space_open_tuples(const struct sbp_cut *cut)
{
    double tuples = 1;
    int choosers = 0;
    for (int op = 0; op < cut->graph.op_count; op++)
        choosers += cut->graph.op[op].site == op && !cut->graph.op[op].entry->follows;
    for (int f = 0; f < cut->mesh.family_count; f++)
        for (int r = 1; r < SBP_MAX_ROLES - 1; r++) /* `mirror` takes levels: few more */
            tuples *= (double)(cut->mesh.family[f].count + r) / r;
    return choosers * tuples;
}

bool sbp_space_opens(const struct sbp_solve_request *request, const struct sbp_cut *cut)
{
    return rules[request->asked.space].plays_spare && !request->is_first_pass &&
           !request->asked.quick &&
           (request->labelled || sbp_space_open_tuples(cut) <= SBP_SPACE_MOST_OPEN_TUPLES);
}

const char *sbp_space_summary(enum sbp_space_kind kind)
{
    return rules[kind].summary;
}

/* ---- the model ------------------------------------------------------------------------------ */

static bool has_grid(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_SUMMA_LINEAR)
            return true;
    return false;
}

enum sbp_status sbp_space_change_model(enum sbp_space_kind kind, struct cJSON *model,
                                       struct sbp_diag *diag)
{
    if (!rules[kind].linears_on_grid)
        return SBP_OK;
    cJSON_DeleteItemFromObjectCaseSensitive(model, "linears");
    if (cJSON_AddStringToObject(model, "linears", "summa") == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return SBP_OK;
}

/* ---- the step around the strategy ----------------------------------------------------------- */

static int lowest(unsigned bits)
{
    int bit = 0;
    while (!(bits >> bit & 1))
        bit++;
    return bit;
}

/* Sets the ZeRO level; spaces named after ZeRO allow the levels that they name. */
static enum sbp_status begin_zero(const struct sbp_request *request, struct sbp_parallel *parallel,
                                  struct sbp_diag *diag)
{
    const unsigned levels = sbp_space_rule(request->space)->outer.zero_levels;
    if (!sbp_request_gives(request, "zero")) {
        parallel->zero = lowest(levels);
        return SBP_OK;
    }
    if ((levels & LEVEL(0)) != 0 || (levels >> parallel->zero & 1) != 0)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT,
                    "parallel: zero: level %lld is not of space %s, legal is %d%s",
                    (long long)parallel->zero, sbp_request_space_name(request->space),
                    lowest(levels), (levels & (levels - 1)) != 0 ? " and more" : "");
}

static enum sbp_status begin_schedule(const struct sbp_request *request,
                                      struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    const struct sbp_outer *outer = &sbp_space_rule(request->space)->outer;
    parallel->allow_delayed_gradients |= outer->allow_delayed_gradients;
    if (outer->schedules == 0 || (outer->schedules >> parallel->schedule & 1) != 0)
        return SBP_OK;
    if (!sbp_request_gives(request, "schedule")) {
        parallel->schedule = (enum sbp_schedule)lowest(outer->schedules);
        return SBP_OK;
    }
    /* The free search takes whatever is given. */
    if (request->space == SBP_SPACE_FULL)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT, "parallel: schedule: %s is none of space %s, %s is",
                    sbp_timeline_schedule_name(parallel->schedule),
                    sbp_request_space_name(request->space),
                    sbp_timeline_schedule_name((enum sbp_schedule)lowest(outer->schedules)));
}

/* The least divisor of a number from `least` on; 0: none. Divisors come in pairs around the root.
 */
static int64_t next_divisor(int64_t number, int64_t least)
{
    int64_t next = 0;
    for (int64_t small = 1; small <= number / small; small++) {
        if (number % small != 0)
            continue;
        if (small >= least)
            return small;
        if (number / small >= least)
            next = number / small;
    }
    return next;
}

/* Sets the fewest stages that divide the outermost level with more than one member, and enough
 * micro-batches for all of them. */
static enum sbp_status begin_stages(const struct sbp_request *request,
                                    const struct sbp_workload *workload,
                                    struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    const int least = sbp_space_rule(request->space)->outer.least_stages;
    int level = 0;
    if (parallel->pipeline < least && sbp_request_gives(request, "pipeline"))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pipeline: space %s is of pipelines, %d stages and more are "
                        "legal",
                        sbp_request_space_name(request->space), least);
    while (level + 1 < workload->cluster.level_count && workload->cluster.level[level].size == 1)
        level++;
    if (parallel->pipeline < least)
        parallel->pipeline = next_divisor(workload->cluster.level[level].size, least);
    if (parallel->pipeline == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "cluster: levels: space %s is of pipelines, %d devices and more are legal",
                        sbp_request_space_name(request->space), least);
    const int64_t batch = workload->model.global_batch;
    const int64_t micro_batches = next_divisor(batch, parallel->pipeline);
    if (least > 1 && micro_batches > 0 && !sbp_request_gives(request, "micro_batch"))
        parallel->micro_batch = batch / micro_batches;
    return SBP_OK;
}

enum sbp_status sbp_space_begin(const struct sbp_request *request, struct sbp_plan *plan,
                                struct sbp_diag *diag)
{
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_megatron_mesh mesh;
    if (sbp_space_rule(request->space)->linears_on_grid && !has_grid(&plan->workload.model))
        return sbp_fail(diag, SBP_E_INPUT,
                        "model: layers: no linear with weights of its own, space summa is of such");
    if (sbp_space_rule(request->space)->mesh == SBP_MESH_NODE)
        SBP_TRY(sbp_megatron_node_mesh(&plan->cut, &mesh, diag));
    SBP_TRY(begin_zero(request, &parallel, diag));
    SBP_TRY(begin_schedule(request, &parallel, diag));
    SBP_TRY(begin_stages(request, &plan->workload, &parallel, diag));
    return sbp_plan_cut(plan, &parallel, diag);
}
