/* The layout of a plan that a target can express: of the degrees that its layers have, those that
 * cost least. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/export/export_modules.h"
#include "planner/export/export_priv.h"
#include "planner/plan/plan_diff.h"
#include "planner/plan/roles.h"
#include "planner/report/layout_line.h"
#include "planner/validate/layout_search.h"

#define MOST_DEGREES 16 /* distinct ones of a plan's layers */

/* ---- what cannot be said at all -------------------------------------------------------------- */

static bool names_model(const struct sbp_export_target *target, const char *architecture)
{
    if (target->models == NULL)
        return true;
    for (int i = 0; target->models[i] != NULL; i++)
        if (strcmp(target->models[i], architecture) == 0)
            return true;
    return false;
}

static enum sbp_status check_architecture(const struct sbp_export_target *target,
                                          const struct sbp_workload *workload,
                                          struct sbp_diag *diag)
{
    const char *name = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(workload->model_json, "architecture"));
    struct sbp_text legal = {0};
    if (names_model(target, name == NULL ? "" : name))
        return SBP_OK;
    for (int i = 0; target->models[i] != NULL; i++)
        sbp_text_add(&legal, "%s%s", i > 0 ? ", " : "", target->models[i]);
    const enum sbp_status status = sbp_fail(
        diag, SBP_E_INPUT, "model %s is none of the architectures that %s trains: %s",
        workload->model.name, target->trainer, legal.failed ? "see the help" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

/* Weights that PyTorch has as a matrix or a vector. */
static enum sbp_status check_layers(const struct sbp_export_target *target,
                                    const struct sbp_graph *graph, struct sbp_diag *diag)
{
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const bool is_plain = node->kind == SBP_OP_LINEAR || node->kind == SBP_OP_EMBEDDING ||
                              node->kind == SBP_OP_LAYERNORM || node->kind == SBP_OP_RMSNORM ||
                              node->kind == SBP_OP_HEAD_NORM;
        if (node->weight_count > 0 && !is_plain)
            return sbp_fail(diag, SBP_E_INPUT,
                            "layer %s (%s) has weights that %s does not say, legal are linear, "
                            "embedding and norms",
                            node->name, node->entry->name, target->what);
    }
    return SBP_OK;
}

enum sbp_status sbp_export_check_model(const struct sbp_export_target *target,
                                       const struct sbp_workload *workload, struct sbp_diag *diag)
{
    const unsigned by_layer = target->can & (SBP_EXPORT_BY_LAYER | SBP_EXPORT_WHOLE);
    SBP_TRY(check_architecture(target, workload, diag));
    return by_layer == SBP_EXPORT_BY_LAYER ? check_layers(target, &workload->model, diag) : SBP_OK;
}

bool sbp_export_is_tied(const struct sbp_export *export)
{
    return sbp_export_flag(export, "tied", sbp_export_is(export, "gpt"));
}

static enum sbp_status check(const struct sbp_export *export, const struct sbp_layout_line *layout,
                             struct sbp_diag *diag)
{
    const struct sbp_export_target *target = export->target;
    const struct sbp_parallel *parallel = &export->given->cut.parallel;
    SBP_TRY(sbp_export_check_model(target, &export->given->workload, diag));
    if (sbp_parallel_hands_on(parallel))
        return sbp_fail(diag, SBP_E_INPUT,
                        "schedule %s on %s is of no trainer, legal is a pipeline",
                        sbp_timeline_schedule_name(parallel->schedule),
                        parallel->pyramid ? "a pyramid" : "replicas");
    if (parallel->pipeline > 1 && (target->can & SBP_EXPORT_PIPELINE) == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "the plan has %lld stages, %s says none, legal are plans of one: sbplan "
                        "search --set pipeline=1",
                        (long long)parallel->pipeline, target->what);
    if (parallel->pipeline > 1 && (target->can & SBP_EXPORT_STAGES_UNTIED) != 0 &&
        sbp_export_is_tied(export))
        return sbp_fail(diag, SBP_E_INPUT,
                        "the plan has %lld stages and the model tied embeddings, %s has not both, "
                        "legal are plans of one stage: sbplan search --set pipeline=1",
                        (long long)parallel->pipeline, target->trainer);
    if (layout->context.common > 1 && (target->can & SBP_EXPORT_CONTEXT) == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "the plan splits sequences %lld ways (context parallel), %s says no such "
                        "split, legal are plans of none: sbplan price --cp 1",
                        (long long)layout->context.common, target->what);
    if (layout->expert.most > 1 && (target->can & SBP_EXPORT_EXPERT) == 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "the experts lie %lld ways apart, %s says no such split, legal are plans "
                        "of none: sbplan price --ep 1",
                        (long long)layout->expert.most, target->what);
    return SBP_OK;
}

/* ---- degrees of the plan --------------------------------------------------------------------- */

/* Degrees to try, each once. */
struct choices {
    int count;
    int64_t value[MOST_DEGREES];
};

static void add_choice(struct choices *choices, int64_t value)
{
    for (int i = 0; i < choices->count; i++)
        if (choices->value[i] == value)
            return;
    if (choices->count < MOST_DEGREES)
        choices->value[choices->count++] = value;
}

/* The degree of most layers first, then the others in between. */
static struct choices choices_of(const struct sbp_layout_degree *degree)
{
    struct choices choices = {0};
    add_choice(&choices, degree->common);
    for (int64_t value = degree->least; value <= degree->most; value *= 2)
        add_choice(&choices, value);
    add_choice(&choices, degree->most);
    return choices;
}

static struct choices zero_choices(const struct sbp_export *export,
                                   const struct sbp_layout_degree *zero)
{
    struct choices choices = {0};
    add_choice(&choices, export->target->zero[zero->common]);
    add_choice(&choices, export->target->zero[zero->least]);
    add_choice(&choices, export->target->zero[zero->most]);
    return choices;
}

/* Whether the target has the plan's schedule; else 1f1b stands for it. */
static bool has_schedule(const struct sbp_export *export, enum sbp_schedule schedule)
{
    return (export->target->schedules & SBP_EXPORT_SCHEDULE(schedule)) != 0;
}

static bool keeps_chunks(const struct sbp_export *export)
{
    const struct sbp_parallel *parallel = &export->given->cut.parallel;
    return parallel->schedule == SBP_INTERLEAVED && has_schedule(export, SBP_INTERLEAVED);
}

static int64_t sum_of(const int *blocks, int pieces)
{
    int64_t sum = 0;
    for (int piece = 0; piece < pieces; piece++)
        sum += blocks[piece];
    return sum;
}

/* Whether a trainer can have these pieces: all but the first and the last hold whole blocks. */
static bool are_whole(const struct sbp_layout_line *layout)
{
    for (int piece = 1; piece + 1 < layout->pieces; piece++)
        if (layout->blocks[piece] == 0)
            return false;
    return true;
}

/* The blocks of each piece, unless they are shared out evenly: those of the plan, or, where its
 * pieces are not the trainer's, nearly even ones. */
static void take_blocks(const struct sbp_layout_line *layout, struct sbp_degrees *degrees)
{
    const int64_t sum = sum_of(layout->blocks, layout->pieces);
    const int64_t pieces = degrees->pipeline * degrees->chunks;
    const bool kept = pieces == layout->pieces && are_whole(layout);
    bool even = true;
    if ((sum < pieces && !kept) || pieces > SBP_MOST_GIVEN_PIECES)
        return;
    for (int piece = 0; piece < pieces; piece++) {
        const int64_t blocks =
            kept ? layout->blocks[piece] : sum / pieces + (piece < sum % pieces ? 1 : 0);
        degrees->stage_blocks[piece] = (uint16_t)blocks;
        even &= blocks == degrees->stage_blocks[0];
    }
    degrees->stage_blocks_count = even ? 0 : (int)pieces;
}

bool sbp_export_keeps_states_whole(const struct sbp_export *export)
{
    return (export->target->can & SBP_EXPORT_SHARDS_ADAM) != 0 &&
           export->given->cut.graph.training.update.optimizer == SBP_SGD;
}

/* The degrees that all tries have in common. */
static struct sbp_degrees common_degrees(const struct sbp_export *export,
                                         const struct sbp_layout_line *layout)
{
    const struct sbp_parallel *parallel = &export->given->cut.parallel;
    const unsigned can = export->target->can;
    struct sbp_degrees d = sbp_degrees_none();
    d.pipeline = parallel->pipeline;
    d.chunks = keeps_chunks(export) && sum_of(layout->blocks, layout->pieces) >= layout->pieces
                   ? parallel->chunks
                   : 1;
    d.context = layout->context.common;
    d.expert = layout->expert.common;
    d.recompute = export->target->recompute[parallel->recompute];
    d.recompute_every = d.recompute == SBP_RECOMPUTE_FULL && (can & SBP_EXPORT_SEGMENTS) != 0
                            ? parallel->recompute_every
                            : 1;
    d.offload = parallel->offload && (can & SBP_EXPORT_OFFLOAD) != 0 &&
                !sbp_export_keeps_states_whole(export);
    take_blocks(layout, &d);
    return d;
}

bool sbp_export_has_experts(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_MOE)
            return true;
    return false;
}

int64_t sbp_export_zero_beside(const struct sbp_export *export, const struct sbp_degrees *d,
                               int64_t zero)
{
    const unsigned can = export->target->can;
    const bool shards =
        (can & SBP_EXPORT_SHARDS_GROUPS) != 0 && (d->context > 1 || d->tensor % d->expert != 0);
    const bool offloads = (can & SBP_EXPORT_OFFLOADS_SHARDS) != 0 && d->offload;
    if (sbp_export_keeps_states_whole(export))
        return 0;
    return zero == 0 && (shards || offloads) ? export->target->zero[1] : zero;
}

static struct sbp_degrees degrees_of(const struct sbp_export *export,
                                     const struct sbp_layout_line *layout, int64_t tensor,
                                     int64_t zero)
{
    const unsigned can = export->target->can;
    const bool experts = sbp_export_has_experts(&layout->plan->cut.graph);
    struct sbp_degrees d = common_degrees(export, layout);
    d.tensor = tensor;
    d.zero = sbp_export_zero_beside(export, &d, zero);
    if (experts)
        d.expert_tensor =
            tensor % layout->expert_tensor.common == 0 && (can & SBP_EXPORT_EXPERTS_WHOLE) == 0
                ? layout->expert_tensor.common
                : 1;
    d.sequence_parallel =
        (layout->sequence_parallel && (can & SBP_EXPORT_SEQUENCE_PARALLEL) != 0) ||
        (experts && tensor > 1 && (can & SBP_EXPORT_EXPERTS_BY_SEQUENCE) != 0);
    const int64_t replicas =
        sbp_cut_devices(&export->given->cut) / d.pipeline / (tensor * d.context);
    d.micro_batch = replicas > 0 ? export->given->cut.parallel.micro_batch / replicas : 1;
    return d;
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* Names the model's precision as the target has it: mixed where it has it not. False: no memory. */
static bool name_precision(const struct sbp_export *export, struct cJSON *model)
{
    enum sbp_export_precision precision = sbp_export_precision_of(export->given);
    if ((export->target->precisions >> precision & 1) == 0)
        precision = SBP_EXPORT_MIXED;
    cJSON_DeleteItemFromObjectCaseSensitive(model, "precision");
    return cJSON_AddStringToObject(model, "precision", sbp_export_precision_name(precision)) !=
           NULL;
}

/* Begins a plan of the same model and cluster, under the schedule of the given one where the target
 * has it. */
static enum sbp_status begin(const struct sbp_export *export, struct sbp_plan *plan,
                             struct sbp_diag *diag)
{
    const struct sbp_parallel *given = &export->given->cut.parallel;
    struct cJSON *model = cJSON_Duplicate(export->given->workload.model_json, true);
    struct cJSON *cluster = cJSON_Duplicate(export->given->workload.cluster_json, true);
    const bool keeps = (export->target->can & SBP_EXPORT_BY_LAYER) != 0;
    if (model == NULL || cluster == NULL || !(keeps || name_precision(export, model))) {
        cJSON_Delete(model);
        cJSON_Delete(cluster);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
    SBP_TRY(sbp_plan_begin(model, "model", cluster, "cluster", plan, diag));
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.gather_blocks = (export->target->can & SBP_EXPORT_UNITS) != 0;
    SBP_TRY(sbp_plan_cut(plan, &parallel, diag));
    if (given->pipeline < 2 || given->schedule == SBP_INTERLEAVED ||
        !has_schedule(export, given->schedule))
        return SBP_OK;
    parallel.pipeline = given->pipeline;
    parallel.stage_cut = given->stage_cut;
    parallel.schedule = given->schedule;
    parallel.micro_batch = given->micro_batch;
    return sbp_plan_cut(plan, &parallel, diag);
}

/* The most memory of a device, and the time of a step. */
static enum sbp_status measure(const struct sbp_plan *plan, double *step_s, int64_t *bytes,
                               struct sbp_diag *diag)
{
    struct sbp_step step;
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, true, &step, diag));
    *step_s = step.totals.step_s;
    *bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    return SBP_OK;
}

/* One try of degrees. */
struct candidate {
    struct sbp_degrees degrees;
    double step_s;
    int64_t bytes;
    bool fits;
};

static enum sbp_status price(const struct sbp_export *export, const struct sbp_degrees *degrees,
                             const struct sbp_solver_options *options, struct sbp_plan *plan,
                             struct candidate *candidate, struct sbp_diag *diag)
{
    double step_s;
    SBP_TRY(begin(export, plan, diag));
    enum sbp_status status = sbp_layout_search(plan, degrees, INT64_MAX, 0, options, &step_s, diag);
    if (status == SBP_OK)
        status = sbp_degrees_complete(degrees, &plan->workload, &candidate->degrees, diag);
    if (status == SBP_OK)
        status = measure(plan, &candidate->step_s, &candidate->bytes, diag);
    if (status != SBP_OK) {
        sbp_plan_free(plan);
        return status;
    }
    candidate->fits = candidate->bytes <= plan->workload.cluster.memory_bytes;
    return SBP_OK;
}

static bool is_better(const struct candidate *one, const struct candidate *other)
{
    return one->fits != other->fits ? one->fits : one->step_s < other->step_s;
}

/* Tries all degrees; the best ones are *best. E_INPUT: none is legal, with the reason of the first.
 */
static enum sbp_status try_all(const struct sbp_export *export,
                               const struct sbp_layout_line *layout,
                               const struct sbp_solver_options *options, struct candidate *best,
                               struct sbp_diag *diag)
{
    const struct choices tensor = choices_of(&layout->tensor);
    const struct choices zero = zero_choices(export, &layout->zero);
    struct sbp_diag first = {{0}};
    bool found = false;
    for (int i = 0; i < tensor.count * zero.count; i++) {
        struct candidate tried = {0};
        struct sbp_plan plan;
        struct sbp_diag why = {{0}};
        const struct sbp_degrees degrees =
            degrees_of(export, layout, tensor.value[i / zero.count], zero.value[i % zero.count]);
        const enum sbp_status status = price(export, &degrees, options, &plan, &tried, &why);
        if (i == 0)
            first = why;
        if (status != SBP_OK && status != SBP_NO && status != SBP_E_INPUT &&
            status != SBP_E_UNSUPPORTED)
            return sbp_fail(diag, status, "%s", why.text);
        if (status != SBP_OK)
            continue;
        sbp_plan_free(&plan);
        if (!found || is_better(&tried, best))
            *best = tried;
        found = true;
    }
    return found ? SBP_OK : sbp_fail(diag, SBP_E_INPUT, "%s", first.text);
}

static enum sbp_status take_best(struct sbp_export *export, const struct sbp_layout_line *layout,
                                 const struct sbp_solver_options *options, struct sbp_diag *diag)
{
    struct candidate best;
    SBP_TRY(try_all(export, layout, options, &best, diag));
    const struct sbp_degrees degrees = best.degrees;
    SBP_TRY(price(export, &degrees, options, &export->plan, &best, diag));
    export->degrees = best.degrees;
    export->exported_s = best.step_s;
    export->exported_bytes = best.bytes;
    return SBP_OK;
}

/* ---- layers one by one ----------------------------------------------------------------------- */

/* Whether layers or rests are other ones than in the given plan. */
static bool differs(const struct sbp_export *export, const struct sbp_plan *plan)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    char one[SBP_ROLES_BYTES], two[SBP_ROLES_BYTES];
    for (int op = 0; op < graph->op_count; op++)
        if (strcmp(sbp_roles_text(export->given, op, one), sbp_roles_text(plan, op, two)) != 0 ||
            (graph->op[op].output >= 0 && !sbp_plan_rests_alike(export->given, op, plan, op)))
            return true;
    return false;
}

/* Lays degrees out and splits layers as the given plan does; ZeRO levels are the degrees'. A weight
 * that is whole over the tensor axes is sharded over them here and not there: then level 0 alone.
 * NO: the trainer has these degrees on other devices, or all of it is said by the degrees. */
static enum sbp_status
price_modules(const struct sbp_export *export, const struct sbp_export_modules *modules,
              const struct sbp_degrees *degrees, const struct sbp_solver_options *options,
              struct sbp_plan *plan, struct candidate *candidate, struct sbp_diag *diag)
{
    SBP_TRY(price(export, degrees, options, plan, candidate, diag));
    const struct sbp_graph *graph = &plan->cut.graph;
    const bool can = sbp_export_modules_placed(modules, plan) && differs(export, plan) &&
                     (degrees->zero == 0 || !sbp_export_modules_repeat(modules));
    enum sbp_status status = can ? SBP_OK : SBP_NO;
    uint8_t *zero = SBP_NEW(&plan->arena, uint8_t, graph->op_count);
    if (zero == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    if (status == SBP_OK) {
        memcpy(zero, plan->strategy.zero, (size_t)graph->op_count);
        sbp_strategy_copy(graph, &export->given->strategy, &plan->strategy);
        sbp_export_modules_straighten(modules, &plan->strategy);
        memcpy(plan->strategy.zero, zero, (size_t)graph->op_count);
        status = measure(plan, &candidate->step_s, &candidate->bytes, diag);
    }
    if (status != SBP_OK)
        sbp_plan_free(plan);
    else
        candidate->fits = candidate->bytes <= plan->workload.cluster.memory_bytes;
    return status;
}

static struct sbp_degrees modules_degrees(const struct sbp_export *export,
                                          const struct sbp_layout_line *layout,
                                          const struct sbp_export_modules *modules, int64_t zero)
{
    struct sbp_layout_line own = *layout;
    own.context.common = sbp_export_modules_ways(modules, modules->context);
    own.sequence_parallel = modules->residual == SBP_EXPORT_LIES_BY_TOKEN;
    return degrees_of(export, &own, sbp_export_modules_ways(modules, modules->tensor), zero);
}

/* Keeps layers as they are split where the trainer can, at the best of the plan's ZeRO levels. NO:
 * it cannot. */
static enum sbp_status take_modules(struct sbp_export *export, const struct sbp_layout_line *layout,
                                    const struct sbp_solver_options *options, struct sbp_diag *diag)
{
    const struct choices zero = zero_choices(export, &layout->zero);
    struct sbp_export_modules modules;
    struct candidate best = {0};
    struct sbp_degrees degrees = {0};
    bool found = false;
    if ((export->target->can & SBP_EXPORT_BY_MODULE) == 0 || !sbp_export_is(export, "llama") ||
        !sbp_export_modules_of(export->given, &modules))
        return SBP_NO;
    for (int i = 0; i < zero.count; i++) {
        struct candidate tried = {0};
        struct sbp_plan plan;
        const struct sbp_degrees asked = modules_degrees(export, layout, &modules, zero.value[i]);
        const enum sbp_status status =
            price_modules(export, &modules, &asked, options, &plan, &tried, diag);
        if (status == SBP_E_MEMORY)
            return status;
        if (status != SBP_OK)
            continue;
        sbp_plan_free(&plan);
        if (!found || is_better(&tried, &best)) {
            best = tried;
            degrees = asked;
        }
        found = true;
    }
    if (!found)
        return SBP_NO;
    SBP_TRY(price_modules(export, &modules, &degrees, options, &export->plan, &best, diag));
    export->degrees = best.degrees;
    export->by_module = true;
    return SBP_OK;
}

static enum sbp_status take_layout(struct sbp_export *export, const struct sbp_layout_line *layout,
                                   const struct sbp_solver_options *options, struct sbp_diag *diag)
{
    const enum sbp_status status = take_modules(export, layout, options, diag);
    return status == SBP_NO ? take_best(export, layout, options, diag) : status;
}

/* ---- what the training script has to say ----------------------------------------------------- */

/* Training that a file does not say. */
static enum sbp_status leave_training(struct sbp_export *export)
{
    const unsigned can = export->target->can;
    const struct sbp_training *training = &export->plan.cut.graph.training;
    if ((can & SBP_EXPORT_BY_LAYER) != 0)
        return SBP_OK;
    if (training->update.optimizer == SBP_SGD && (can & SBP_EXPORT_SAYS_OPTIMIZER) == 0)
        SBP_TRY(sbp_export_lose(export, "the training script has to say: optimizer sgd"));
    if (training->clip_norm > 0 && (can & SBP_EXPORT_SAYS_CLIP) == 0)
        SBP_TRY(sbp_export_lose(export, "the training script has to say: clip_norm %.6g",
                                training->clip_norm));
    if (sbp_export_real(export, "capacity", 1) > 1 && (can & SBP_EXPORT_SAYS_CAPACITY) == 0)
        SBP_TRY(
            sbp_export_lose(export, "the model's capacity is not written, both prices have it"));
    return strcmp(sbp_export_word(export, "linears"), "summa") == 0
               ? sbp_export_lose(export, "the model's linears is not written, both prices have it")
               : SBP_OK;
}

/* Lists what the training script has to say as the plan does. */
static enum sbp_status leave_to_script(struct sbp_export *export)
{
    const struct sbp_parallel *parallel = &export->plan.cut.parallel;
    SBP_TRY(leave_training(export));
    if ((export->target->can & SBP_EXPORT_SCRIPT_BATCH) != 0)
        SBP_TRY(sbp_export_lose(
            export,
            "the training script has to say: %lld %s a step, %lld on each replica at a time",
            (long long)export->plan.cut.graph.global_batch,
            export->plan.cut.graph.sequence > 1 ? "sequences" : "samples",
            (long long)export->degrees.micro_batch));
    const bool is_default = (export->target->can & SBP_EXPORT_BY_LAYER) != 0 &&
                            sbp_export_precision_of(&export->plan) == SBP_EXPORT_FP32;
    if ((export->target->can & SBP_EXPORT_SCRIPT_PRECISION) != 0 && !is_default)
        SBP_TRY(sbp_export_lose(export, "the training script has to say: precision %s",
                                sbp_export_precision_name(sbp_export_precision_of(&export->plan))));
    if ((export->target->can & SBP_EXPORT_SCRIPT_RECOMPUTE) != 0 &&
        parallel->recompute != SBP_RECOMPUTE_NONE)
        SBP_TRY(sbp_export_lose(export, "the training script has to say: %s recompute",
                                sbp_parallel_recompute_name(parallel->recompute)));
    return SBP_OK;
}

/* Every layer as it is, and of the step what the placements say: nothing of where states lie. */
static enum sbp_status keep_layers(struct sbp_export *export, struct sbp_diag *diag)
{
    const bool whole = (export->target->can & SBP_EXPORT_WHOLE) != 0;
    SBP_TRY(begin(export, &export->plan, diag));
    struct sbp_plan *plan = &export->plan;
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.micro_batch = export->given->cut.parallel.micro_batch;
    if (whole)
        parallel = export->given->cut.parallel;
    SBP_TRY(sbp_plan_cut(plan, &parallel, diag));
    const struct sbp_graph *graph = &plan->cut.graph;
    SBP_TRY(sbp_strategy_alloc(graph, &plan->arena, &plan->strategy));
    sbp_strategy_copy(graph, &export->given->strategy, &plan->strategy);
    for (int op = 0; op < graph->op_count && !whole; op++)
        plan->strategy.zero[op] = SBP_ZERO_DEFAULT;
    export->degrees = sbp_degrees_none();
    export->degrees.micro_batch = parallel.micro_batch;
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Layers whose first operator lies in each piece. */
static const int *count_layers(const struct sbp_graph *graph, const int *first, int pieces,
                               struct sbp_arena *arena)
{
    int *layers = SBP_NEW(arena, int, pieces), *layer = SBP_NEW(arena, int, graph->op_count);
    if (layers == NULL || layer == NULL)
        return NULL;
    (void)sbp_degrees_layers(graph, layer);
    for (int piece = 0; piece < pieces; piece++)
        for (int op = first[piece]; op < first[piece + 1]; op++)
            layers[piece] += layer[op] >= 0 && (op == 0 || layer[op - 1] != layer[op]);
    return layers;
}

static enum sbp_status layout_of(struct sbp_export *export, const struct sbp_plan *plan,
                                 struct sbp_layout_line *layout, double *step_s, int64_t *bytes,
                                 struct sbp_diag *diag)
{
    struct sbp_step step;
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, true, &step, diag));
    *step_s = step.totals.step_s;
    *bytes = step.totals.device_bytes;
    enum sbp_status status = sbp_layout_line_make(plan, step.first, &export->arena, layout);
    export->layers = count_layers(&plan->cut.graph, step.first, step.pieces, &export->arena);
    sbp_step_free(&step);
    if (export->layers == NULL)
        status = SBP_E_MEMORY;
    return status == SBP_E_MEMORY ? sbp_fail(diag, status, "out of memory") : status;
}

enum sbp_status sbp_export_make(const struct sbp_plan *given,
                                const struct sbp_export_target *target,
                                const struct sbp_solver_options *options, struct sbp_export *export,
                                struct sbp_diag *diag)
{
    struct sbp_layout_line layout;
    *export = (struct sbp_export){.target = target, .given = given};
    SBP_TRY(layout_of(export, given, &layout, &export->given_s, &export->given_bytes, diag));
    export->given_pieces = layout.pieces;
    export->given_blocks = layout.blocks;
    SBP_TRY(check(export, &layout, diag));
    SBP_TRY((target->can & SBP_EXPORT_BY_LAYER) != 0 ? keep_layers(export, diag)
                                                     : take_layout(export, &layout, options, diag));
    SBP_TRY(layout_of(export, &export->plan, &layout, &export->exported_s, &export->exported_bytes,
                      diag));
    export->pieces = layout.pieces;
    export->blocks = layout.blocks;
    enum sbp_status status = sbp_export_compare(export);
    if (status == SBP_OK)
        status = leave_to_script(export);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "out of memory");
}

void sbp_export_free(struct sbp_export *export)
{
    if (export == NULL)
        return;
    sbp_plan_free(&export->plan);
    sbp_arena_free(&export->arena);
    *export = (struct sbp_export){0};
}
