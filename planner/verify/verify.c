#include "planner/verify/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/verify/verify_priv.h"

enum sbp_status sbp_verify_refuse(const struct sbp_verification *c, const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sbp_fail(c->diag, SBP_E_INTERNAL,
                    "internal error: the plan fails its check: %s; no plan is written", text);
}

bool sbp_verify_near(double a, double b)
{
    return fabs(a - b) <= SBP_VERIFY_TOLERANCE * fmax(fabs(a), fabs(b));
}

const struct sbp_program *sbp_verify_program(const struct sbp_verification *c, int stage, int chunk)
{
    return sbp_step_program(c->step, sbp_verify_piece(c, stage, chunk));
}

int sbp_verify_piece(const struct sbp_verification *c, int stage, int chunk)
{
    int piece = 0;
    if (!sbp_verify_pyramid(c))
        return sbp_verify_replicates(c) ? chunk : chunk * c->step->stages + stage;
    for (int before = stage; before >= sbp_verify_copies(c, piece); piece++)
        before -= sbp_verify_copies(c, piece);
    return piece;
}

int sbp_verify_copies(const struct sbp_verification *c, int piece)
{
    return sbp_verify_pyramid(c)      ? (int)c->plan->cut.parallel.pipeline - piece
           : sbp_verify_replicates(c) ? c->step->stages
                                      : 1;
}

bool sbp_verify_pyramid(const struct sbp_verification *c)
{
    return c->plan->cut.parallel.pyramid;
}

bool sbp_verify_hands_on(const struct sbp_verification *c)
{
    return sbp_verify_pyramid(c) || sbp_verify_replicates(c);
}

bool sbp_verify_replicates(const struct sbp_verification *c)
{
    const struct sbp_parallel *parallel = &c->plan->cut.parallel;
    return parallel->pipeline > 1 && parallel->chunks > 1 &&
           (parallel->schedule == SBP_CDP_V1 || parallel->schedule == SBP_CDP_V2);
}

bool sbp_verify_counts(const struct sbp_instr *instr, int chunk)
{
    return chunk == 0 || instr->section != SBP_SECTION_STEP || instr->cause != SBP_CAUSE_SCALAR;
}

/* ---- how a step is cut in time and devices -------------------------------------------------- */

/* Checks that stages share out the outermost levels before they touch an inner one. */
static enum sbp_status check_levels(const struct sbp_verification *c)
{
    const struct sbp_cluster *whole = &c->plan->workload.cluster, *stage = &c->step->cluster;
    int64_t stages = 1;
    bool inside = false;
    if (stage->level_count != whole->level_count)
        return sbp_verify_refuse(c, "a stage has %d levels, the cluster %d", stage->level_count,
                                 whole->level_count);
    for (int i = 0; i < whole->level_count; i++) {
        const int64_t all = whole->level[i].size, own = stage->level[i].size;
        if (own < 1 || all % own != 0 || (inside && own != all))
            return sbp_verify_refuse(c, "a stage has %lld of the %lld members of level \"%s\"",
                                     (long long)own, (long long)all, whole->level[i].name);
        stages *= all / own;
        inside = inside || own > 1;
    }
    const int64_t given = c->plan->cut.parallel.pipeline;
    const int64_t groups = sbp_verify_pyramid(c) ? given * (given + 1) / 2 : given;
    if (stages != groups || c->step->stages != stages)
        return sbp_verify_refuse(c,
                                 "the levels hold %lld stages, the plan has %lld and its step %d",
                                 (long long)stages, (long long)groups, c->step->stages);
    return SBP_OK;
}

static bool is_prime(int64_t number)
{
    for (int64_t divisor = 2; divisor * divisor <= number; divisor++)
        if (number % divisor == 0)
            return false;
    return number > 1;
}

/* Checks that axes of prime size make up the levels of a stage. */
static enum sbp_status check_mesh(const struct sbp_verification *c)
{
    const struct sbp_mesh *mesh = c->mesh, *other = &c->step->mesh;
    int64_t size[SBP_MAX_LEVELS] = {1, 1, 1, 1};
    if (mesh->axis_count != other->axis_count || mesh->axis_count > SBP_MAX_AXES)
        return sbp_verify_refuse(c, "the plan has %d axes, its step %d", mesh->axis_count,
                                 other->axis_count);
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const struct sbp_axis *a = &mesh->axis[axis];
        if (a->size != other->axis[axis].size || a->level != other->axis[axis].level ||
            a->level < 0 || a->level >= c->step->cluster.level_count || !is_prime(a->size) ||
            (axis > 0 && a->level < mesh->axis[axis - 1].level))
            return sbp_verify_refuse(c, "axis %d of size %lld at level %d is none of the cluster's",
                                     axis, (long long)a->size, a->level);
        size[a->level] *= a->size;
    }
    for (int i = 0; i < c->step->cluster.level_count; i++)
        if (size[i] != c->step->cluster.level[i].size)
            return sbp_verify_refuse(c, "the axes of level \"%s\" make %lld parts, it has %lld",
                                     c->step->cluster.level[i].name, (long long)size[i],
                                     (long long)c->step->cluster.level[i].size);
    return SBP_OK;
}

/* Checks that every key of the plan's parallel object is the step's. */
static enum sbp_status check_parallel(const struct sbp_verification *c)
{
    struct cJSON *mine = cJSON_CreateObject(), *other = cJSON_CreateObject();
    bool failed = mine == NULL || other == NULL;
    if (!failed) {
        sbp_parallel_write(mine, &c->plan->cut.parallel, &failed);
        sbp_parallel_write(other, &c->step->parallel, &failed);
    }
    const bool same = !failed && cJSON_Compare(mine, other, true);
    cJSON_Delete(mine);
    cJSON_Delete(other);
    if (failed)
        return SBP_E_MEMORY;
    if (!same)
        return sbp_verify_refuse(c, "the plan is cut in time otherwise than its step");
    const struct sbp_parallel *parallel = &c->plan->cut.parallel;
    if (parallel->micro_batch < 1 || c->graph->micro_batch != parallel->micro_batch ||
        c->graph->global_batch % parallel->micro_batch != 0)
        return sbp_verify_refuse(c,
                                 "micro-batches of %lld, the model holds %lld, the batch is %lld",
                                 (long long)parallel->micro_batch, (long long)c->graph->micro_batch,
                                 (long long)c->graph->global_batch);
    if (parallel->zero < 0 || parallel->zero > 3)
        return sbp_verify_refuse(c, "ZeRO level %lld, legal are 0 to 3", (long long)parallel->zero);
    return SBP_OK;
}

int sbp_verify_crossings(const struct sbp_verification *c, int op, int *one)
{
    const struct sbp_graph *graph = c->graph;
    int count = 0;
    *one = -1;
    for (int reader = op; reader < graph->op_count; reader++)
        for (int i = 0; i < graph->op[reader].input_count; i++) {
            const int tensor = graph->op[reader].input[i];
            if (graph->tensor[tensor].producer >= op || sbp_verify_is_free(c, tensor) ||
                tensor == *one)
                continue;
            *one = tensor;
            count++;
        }
    return count;
}

static enum sbp_status check_pieces(const struct sbp_verification *c)
{
    const struct sbp_step *step = c->step;
    const int *first = step->first;
    const int parts = sbp_verify_replicates(c) ? 1 : (int)c->plan->cut.parallel.pipeline;
    if (step->pieces != parts * (int)c->plan->cut.parallel.chunks ||
        step->replicates != sbp_verify_replicates(c) || step->pyramid != sbp_verify_pyramid(c))
        return sbp_verify_refuse(c, "%d pieces of %d stages of %lld chunks", step->pieces,
                                 step->stages, (long long)c->plan->cut.parallel.chunks);
    if (first[0] != 0 || first[step->pieces] != c->graph->op_count)
        return sbp_verify_refuse(c, "pieces cover operators %d to %d of %d", first[0],
                                 first[step->pieces], c->graph->op_count);
    for (int i = 1; i < step->pieces; i++) {
        if (first[i] <= first[i - 1] || first[i] >= c->graph->op_count)
            return sbp_verify_refuse(c, "piece %d begins at operator %d, the one before at %d", i,
                                     first[i], first[i - 1]);
        int tensor;
        const int crossings = sbp_verify_crossings(c, first[i], &tensor);
        if (crossings != 1)
            return sbp_verify_refuse(c, "%s: a piece begins where %d activations cross, not one",
                                     c->graph->op[first[i]].name, crossings);
    }
    return SBP_OK;
}

/* Counts groups of pieces that hold a weight; pieces i, i + groups, ... are one. count:
 * (tensor_count). */
static enum sbp_status count_groups(struct sbp_verification *c, int groups, int *count)
{
    const struct sbp_step *step = c->step;
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        count[tensor] = 0;
    for (int group = 0; group < groups; group++) {
        const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
        bool *held = SBP_NEW(&c->scratch, bool, c->graph->tensor_count);
        if (held == NULL)
            return SBP_E_MEMORY;
        for (int piece = group; piece < step->pieces; piece += groups)
            for (int op = step->first[piece]; op < step->first[piece + 1]; op++)
                for (int w = 0; w < c->graph->op[op].weight_count; w++)
                    held[c->graph->op[op].weight[w]] = true;
        for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
            count[tensor] += held[tensor];
        sbp_arena_release(&c->scratch, mark);
    }
    return SBP_OK;
}

/* Checks that there are as many micro-batches as pieces, on each replica all of these, that a
 * pyramid's schedule has no flush, and that each weight is in one piece. */
static enum sbp_status check_groups(const struct sbp_verification *c)
{
    const enum sbp_schedule schedule = c->plan->cut.parallel.schedule;
    if (!sbp_verify_hands_on(c))
        return SBP_OK;
    if (c->micro_batches != c->step->pieces ||
        (sbp_verify_replicates(c) && c->step->pieces != c->step->stages))
        return sbp_verify_refuse(c, "%d groups hand on sums of %d pieces, of %lld micro-batches",
                                 c->step->stages, c->step->pieces, (long long)c->micro_batches);
    if ((schedule != SBP_CDP_V1 && schedule != SBP_CDP_V2) ||
        (sbp_verify_pyramid(c) && c->plan->cut.parallel.chunks != 1))
        return sbp_verify_refuse(c, "a pyramid of %lld chunks a stage under schedule %s",
                                 (long long)c->plan->cut.parallel.chunks,
                                 sbp_timeline_schedule_name(schedule));
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        if (c->pieces_of[tensor] > 1)
            return sbp_verify_refuse(c, "%s: %d pieces whose sums are handed on hold it",
                                     c->graph->tensor[tensor].name, c->pieces_of[tensor]);
    return SBP_OK;
}

static enum sbp_status count_holders(struct sbp_verification *c)
{
    const struct sbp_step *step = c->step;
    SBP_TRY(count_groups(c, (int)c->plan->cut.parallel.pipeline, c->holders));
    SBP_TRY(count_groups(c, step->pieces, c->pieces_of));
    SBP_TRY(check_groups(c));
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        if (c->holders[tensor] != step->holders[tensor])
            return sbp_verify_refuse(c, "%s: %d stages hold it, the step says %d",
                                     c->graph->tensor[tensor].name, c->holders[tensor],
                                     step->holders[tensor]);
    return SBP_OK;
}

/* ---- programs that pieces share ------------------------------------------------------------- */

static bool same_shape(const struct sbp_verification *c, int a, int b)
{
    const struct sbp_shape *one = &c->graph->tensor[a].shape, *two = &c->graph->tensor[b].shape;
    return memcmp(one->size, two->size, sizeof one->size) == 0;
}

/* Whether two operators are the same work on the same blocks. */
static bool same_work(const struct sbp_verification *c, int a, int b)
{
    const struct sbp_op_node *one = &c->graph->op[a], *two = &c->graph->op[b];
    bool same = one->kind == two->kind && one->custom == two->custom &&
                one->input_count == two->input_count && one->weight_count == two->weight_count &&
                (one->output < 0) == (two->output < 0) &&
                c->strategy->zero[a] == c->strategy->zero[b];
    for (int axis = 0; axis < c->mesh->axis_count && same; axis++)
        same = c->role[a][axis] == c->role[b][axis];
    for (int i = 0; i < one->input_count && same; i++)
        same = same_shape(c, one->input[i], two->input[i]) &&
               sbp_verify_same(c, &c->strategy->rest[one->input[i]],
                               &c->strategy->rest[two->input[i]]);
    for (int w = 0; w < one->weight_count && same; w++)
        same = same_shape(c, one->weight[w], two->weight[w]) &&
               c->holders[one->weight[w]] == c->holders[two->weight[w]];
    if (same && one->output >= 0)
        same = same_shape(c, one->output, two->output) &&
               sbp_verify_same(c, &c->strategy->rest[one->output], &c->strategy->rest[two->output]);
    return same;
}

static enum sbp_status check_program_of(const struct sbp_verification *c, int piece)
{
    const struct sbp_step *step = c->step;
    const int index = step->program_of[piece], first = step->first[piece];
    if (index < 0 || index >= step->program_count)
        return sbp_verify_refuse(c, "piece %d has program %d of %d", piece, index,
                                 step->program_count);
    const struct sbp_scope *scope = &step->program[index].scope;
    const int length = step->first[piece + 1] - first;
    bool same = scope->end_op - scope->first_op == length &&
                (scope->first_op == 0) == (first == 0) &&
                (scope->end_op == c->graph->op_count) == (first + length == c->graph->op_count);
    for (int i = 0; i < length && same; i++)
        same = same_work(c, scope->first_op + i, first + i);
    if (!same || scope->micro_batches != c->micro_batches)
        return sbp_verify_refuse(c, "piece %d, from %s on, has the program of other work", piece,
                                 c->graph->op[first].name);
    return SBP_OK;
}

static enum sbp_status check_cut(struct sbp_verification *c)
{
    SBP_TRY(check_levels(c));
    SBP_TRY(check_mesh(c));
    SBP_TRY(check_parallel(c));
    SBP_TRY(check_pieces(c));
    c->micro_batches = c->graph->global_batch / c->plan->cut.parallel.micro_batch;
    return count_holders(c);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static enum sbp_status check_answer(const struct sbp_verification *c)
{
    const struct sbp_step_totals *totals = &c->step->totals;
    const struct sbp_outcome *outcome = c->outcome;
    if (outcome == NULL)
        return SBP_OK;
    const bool communication = c->request != NULL && c->request->objective == SBP_COMMUNICATION;
    const double cost_s = communication ? totals->communication_s : totals->step_s;
    if (!sbp_verify_near(outcome->objective_s, cost_s))
        return sbp_verify_refuse(c, "the search promises %.17g s, the plan costs %.17g s",
                                 outcome->objective_s, cost_s);
    if (outcome->lower_bound_s > cost_s * (1 + SBP_VERIFY_TOLERANCE))
        return sbp_verify_refuse(c, "its lower bound of %.17g s is above its %.17g s",
                                 outcome->lower_bound_s, cost_s);
    if (outcome->status != SBP_PLAN_OPTIMAL && outcome->status != SBP_PLAN_FEASIBLE)
        return sbp_verify_refuse(c, "there is a plan and the status is %s",
                                 sbp_solver_status_name(outcome->status));
    if (outcome->status == SBP_PLAN_OPTIMAL && !sbp_verify_near(outcome->lower_bound_s, cost_s))
        return sbp_verify_refuse(c,
                                 "it is called optimal with a bound of %.17g s below its %.17g s",
                                 outcome->lower_bound_s, cost_s);
    return SBP_OK;
}

static enum sbp_status check(struct sbp_verification *c)
{
    c->role = (uint8_t(*)[SBP_MAX_AXES])SBP_NEW(&c->scratch, uint8_t,
                                                (size_t)c->graph->op_count * SBP_MAX_AXES);
    c->split = SBP_NEW(&c->scratch, sbp_axes, c->graph->class_count);
    c->holders = SBP_NEW(&c->scratch, int, c->graph->tensor_count);
    c->pieces_of = SBP_NEW(&c->scratch, int, c->graph->tensor_count);
    if (c->role == NULL || c->split == NULL || c->holders == NULL || c->pieces_of == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(check_cut(c));
    SBP_TRY(sbp_verify_states(c));
    for (int piece = 0; piece < c->step->pieces; piece++)
        SBP_TRY(check_program_of(c, piece));
    SBP_TRY(sbp_verify_flow(c));
    SBP_TRY(sbp_verify_digits(c));
    SBP_TRY(sbp_verify_memory(c));
    SBP_TRY(sbp_verify_price(c));
    SBP_TRY(sbp_verify_time(c));
    return check_answer(c);
}

enum sbp_status sbp_verify_plan(const struct sbp_claim *claim, struct sbp_diag *diag)
{
    struct sbp_verification checker = {
        .plan = claim->plan,
        .graph = &claim->plan->cut.graph,
        .strategy = &claim->plan->strategy,
        .mesh = &claim->plan->cut.mesh,
        .step = claim->step,
        .request = claim->request,
        .outcome = claim->outcome,
        .bytes = sbp_program_element_bytes(&claim->plan->cut.graph.precision),
        .diag = diag};
    const enum sbp_status status = check(&checker);
    sbp_arena_free(&checker.scratch);
    return status == SBP_E_MEMORY ? sbp_fail(diag, status, "out of memory while checking a plan")
                                  : status;
}
