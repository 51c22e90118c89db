#include "planner/degrees/degrees_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/numeric.h"
#include "costmodel/program/stages.h"

struct sbp_degrees sbp_degrees_none(void)
{
    return (struct sbp_degrees){.zero = SBP_ANY, .recompute = SBP_ANY};
}

void sbp_degrees_note(struct sbp_degrees_plan *made, const char *format, ...)
{
    va_list arguments;
    if (made->note_count == SBP_DEGREES_NOTES)
        return;
    va_start(arguments, format);
    (void)vsnprintf(made->note[made->note_count++], SBP_DEGREES_NOTE_BYTES, format, arguments);
    va_end(arguments);
}

/* ---- defaults ------------------------------------------------------------------------------- */

static int64_t or_one(int64_t given)
{
    return given > 0 ? given : 1;
}

bool sbp_degrees_is_attention(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_ATTENTION || node->kind == SBP_OP_GROUPED_ATTENTION ||
           node->kind == SBP_OP_LATENT_ATTENTION;
}

static bool has_attention(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (sbp_degrees_is_attention(&graph->op[op]))
            return true;
    return false;
}

/* Experts of a layer, of which every layer that has some has as many; 0: the model has none. */
static int64_t expert_count(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_MOE)
            return graph->tensor[graph->op[op].weight[1]].shape.size[SBP_DIM_IN];
    return 0;
}

static int64_t device_count(const struct sbp_cluster *cluster)
{
    int64_t devices = 1; /* fits: the reader of clusters checks it */
    for (int level = 0; level < cluster->level_count; level++)
        devices *= cluster->level[level].size;
    return devices;
}

int sbp_degrees_layers(const struct sbp_graph *graph, int *layer)
{
    int count = 0;
    for (int op = 0; op < graph->op_count; op++) {
        char *end;
        const char *name = graph->op[op].name;
        const bool is_layer = strncmp(name, "block", 5) == 0 && name[5] >= '0' && name[5] <= '9';
        const long number = is_layer ? strtol(name + 5, &end, 10) : -1;
        layer[op] = is_layer && *end == '.' &&
                            number == (op > 0 && layer[op - 1] == number ? count - 1 : count)
                        ? (int)number
                        : -1;
        if (layer[op] == count)
            count++;
    }
    return count;
}

int sbp_degrees_block_layers(const struct sbp_graph *graph, const int *layer, const int *block)
{
    int most = 1, count = 0;
    for (int op = 0; op < graph->op_count; op++) {
        if (op == 0 || block[op] != block[op - 1])
            count = 0;
        count += block[op] >= 0 && layer[op] >= 0 && (count == 0 || layer[op] != layer[op - 1]);
        if (count > most)
            most = count;
    }
    return most;
}

/* ---- what fits ------------------------------------------------------------------------------ */

/* Looks no further than the root of the number: beyond it a divisor is the number over one below.
 */
int64_t sbp_degrees_next_divisor(int64_t number, int64_t d)
{
    int64_t next = d + 1;
    for (; next <= number / next; next++)
        if (number % next == 0)
            return next;
    for (int64_t other = number / next + 1; other > 0; other--)
        if (number % other == 0 && number / other > d)
            return number / other;
    return 0;
}

#define LEGAL_BYTES 96
/* "1, 2, 3, 4, 6, 12": divisors, as many as there is room for. Returns buffer. */
static const char *divisors(int64_t number, char *buffer)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int64_t d = sbp_degrees_next_divisor(number, 0); d > 0;
         d = sbp_degrees_next_divisor(number, d)) {
        if (used + 16 > LEGAL_BYTES) {
            (void)snprintf(buffer + used, LEGAL_BYTES - used, ", ...");
            break;
        }
        used += (size_t)snprintf(buffer + used, LEGAL_BYTES - used, "%s%lld", used > 0 ? ", " : "",
                                 (long long)d);
    }
    return buffer;
}

static enum sbp_status check_heads(const struct sbp_degrees *d, const struct sbp_graph *model,
                                   struct sbp_diag *diag)
{
    char legal[LEGAL_BYTES];
    for (int op = 0; op < model->op_count; op++) {
        const struct sbp_op_node *node = &model->op[op];
        if (!sbp_degrees_is_attention(node))
            continue;
        const int64_t heads = model->tensor[node->output].shape.size[SBP_DIM_FEATURE];
        if (heads % d->tensor != 0)
            return SBP_DEGREES_REFUSE(diag,
                                      "tp: %lld ways do not divide the %lld heads of %s, "
                                      "legal are %s",
                                      (long long)d->tensor, (long long)heads, node->name,
                                      divisors(heads, legal));
    }
    return SBP_OK;
}

/* Degrees that only transformers have. */
static enum sbp_status check_model(const struct sbp_degrees *d, const struct sbp_graph *model,
                                   struct sbp_diag *diag)
{
    const int64_t experts = expert_count(model);
    char legal[LEGAL_BYTES];
    if ((d->tensor > 1 || d->context > 1) && !has_attention(model))
        return SBP_DEGREES_REFUSE(diag,
                                  "%s: %s has no attention, of such a model dp, pp and zero alone "
                                  "are legal",
                                  d->tensor > 1 ? "tp" : "cp", model->name);
    if ((d->expert > 1 || (experts == 0 && d->expert_tensor != d->tensor)) && experts == 0)
        return SBP_DEGREES_REFUSE(diag, "%s: %s has no experts, 1 is legal",
                                  d->expert > 1 ? "ep" : "etp", model->name);
    if (d->expert > 1 && experts % d->expert != 0)
        return SBP_DEGREES_REFUSE(diag,
                                  "ep: %lld ways do not divide the %lld experts of a layer, "
                                  "legal are %s",
                                  (long long)d->expert, (long long)experts,
                                  divisors(experts, legal));
    if (d->tensor % d->expert_tensor != 0)
        return SBP_DEGREES_REFUSE(diag, "etp: %lld does not divide tp %lld, legal are %s",
                                  (long long)d->expert_tensor, (long long)d->tensor,
                                  divisors(d->tensor, legal));
    SBP_TRY(check_heads(d, model, diag));
    const int64_t parts = d->context * (d->sequence_parallel ? d->tensor : 1);
    if (model->sequence % parts != 0)
        return SBP_DEGREES_REFUSE(diag,
                                  "%s: the sequence of %lld tokens is split %lld ways%s, which do "
                                  "not divide it",
                                  d->context > 1 ? "cp" : "sequence-parallel",
                                  (long long)model->sequence, (long long)parts,
                                  d->sequence_parallel && d->context > 1 ? " by cp x tp" : "");
    return SBP_OK;
}

/* Completes dp, which takes the devices that are left. */
static enum sbp_status complete_data(struct sbp_degrees *d, const struct sbp_cluster *cluster,
                                     struct sbp_diag *diag)
{
    const int64_t devices = device_count(cluster);
    const int64_t groups = d->pyramid ? sbp_pyramid_groups(d->pipeline) : d->pipeline;
    int64_t parts;
    if (!sbp_mul_i64(d->tensor, groups, &parts) || !sbp_mul_i64(parts, d->context, &parts))
        parts = INT64_MAX;
    if (devices % parts != 0)
        return SBP_DEGREES_REFUSE(diag,
                                  "tp: tp %lld x pp %lld x cp %lld do not divide the %lld devices "
                                  "of cluster %s",
                                  (long long)d->tensor, (long long)d->pipeline,
                                  (long long)d->context, (long long)devices, cluster->name);
    const int64_t left = devices / parts;
    if (d->data > 0 && d->data != left)
        return SBP_DEGREES_REFUSE(
            diag,
            "dp: tp %lld x pp %lld x cp %lld leave %lld of the %lld devices "
            "of cluster %s, dp %lld is legal with --devices %.0f",
            (long long)d->tensor, (long long)d->pipeline, (long long)d->context, (long long)left,
            (long long)devices, cluster->name, (long long)d->data, (double)d->data * (double)parts);
    d->data = left;
    return SBP_OK;
}

/* The batch is whole micro-batches of all replicas. */
static enum sbp_status check_batch(const struct sbp_degrees *d, const struct sbp_graph *model,
                                   struct sbp_diag *diag)
{
    int64_t together;
    if (!sbp_mul_i64(d->micro_batch, d->data, &together))
        together = INT64_MAX;
    if (model->global_batch % together != 0)
        return SBP_DEGREES_REFUSE(diag,
                                  "micro-batch: %lld sequences on each of dp %lld replicas do not "
                                  "divide the global batch of %lld",
                                  (long long)d->micro_batch, (long long)d->data,
                                  (long long)model->global_batch);
    return SBP_OK;
}

enum sbp_status sbp_degrees_complete(const struct sbp_degrees *asked,
                                     const struct sbp_workload *workload,
                                     struct sbp_degrees *degrees, struct sbp_diag *diag)
{
    struct sbp_degrees d = *asked;
    d.tensor = or_one(d.tensor);
    d.context = or_one(d.context);
    d.pipeline = or_one(d.pipeline);
    d.chunks = or_one(d.chunks);
    d.expert = or_one(d.expert);
    d.expert_tensor = d.expert_tensor > 0 ? d.expert_tensor : d.tensor;
    d.micro_batch = or_one(d.micro_batch);
    d.zero = d.zero == SBP_ANY ? 0 : d.zero;
    d.recompute = d.recompute == SBP_ANY ? SBP_RECOMPUTE_NONE : d.recompute;
    d.recompute_every = or_one(d.recompute_every);
    d.sequence_parallel = d.sequence_parallel && d.tensor > 1;
    SBP_TRY(complete_data(&d, &workload->cluster, diag));
    SBP_TRY(check_model(&d, &workload->model, diag));
    SBP_TRY(check_batch(&d, &workload->model, diag));
    *degrees = d;
    return SBP_OK;
}

int64_t sbp_degrees_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- where the devices go ------------------------------------------------------------------- */

int64_t sbp_degrees_total(const struct sbp_degrees_ways *ways)
{
    int64_t total = 1;
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        total *= ways->at[level];
    return total;
}

bool sbp_degrees_take(int64_t count, struct sbp_degrees_ways *from, struct sbp_degrees_ways *taken)
{
    struct sbp_degrees_ways left = *from;
    for (int level = SBP_MAX_LEVELS - 1; level >= 0; level--) {
        const int64_t there = left.at[level];
        const int64_t take = count % there == 0 ? there : there % count == 0 ? count : 1;
        taken->at[level] = take;
        left.at[level] /= take;
        count /= take;
    }
    if (count != 1)
        return false;
    *from = left;
    return true;
}

/* Parts the devices of a stage: tensor parallel innermost, then context, then data, as ranks of
 * Megatron-LM follow each other (order tp-cp-ep-dp-pp). */
static enum sbp_status place(const struct sbp_degrees *d, const struct sbp_cluster *stage,
                             struct sbp_degrees_mesh *mesh, struct sbp_diag *diag)
{
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        mesh->data.at[level] = level < stage->level_count ? stage->level[level].size : 1;
    const bool tensor = sbp_degrees_take(d->tensor, &mesh->data, &mesh->tensor);
    if (tensor && sbp_degrees_take(d->context, &mesh->data, &mesh->context))
        return SBP_OK;
    const int last = stage->level_count - 1;
    return SBP_DEGREES_REFUSE(diag,
                              "%s: %lld ways%s do not share out the levels of a stage, whose "
                              "innermost, \"%s\", has %lld members; a divisor or a multiple of "
                              "what is there is legal",
                              tensor ? "cp" : "tp", (long long)(tensor ? d->context : d->tensor),
                              tensor ? " beside tp" : "", stage->level[last].name,
                              (long long)stage->level[last].size);
}

/* ---- the step ------------------------------------------------------------------------------- */

/* The plan's schedule; chunks under the default one are interleaved. */
static enum sbp_schedule schedule_of(const struct sbp_degrees *d, const struct sbp_plan *plan)
{
    const enum sbp_schedule given = plan->cut.parallel.schedule;
    return d->chunks > 1 && given == SBP_ONE_F_ONE_B ? SBP_INTERLEAVED : given;
}

/* Refuses counts with which chunks cannot take turns; sbp_plan_cut refuses other schedules. */
static enum sbp_status check_chunks(const struct sbp_degrees *d, const struct sbp_plan *plan,
                                    struct sbp_diag *diag)
{
    if (schedule_of(d, plan) != SBP_INTERLEAVED)
        return SBP_OK;
    const int64_t batches = plan->workload.model.global_batch / (d->micro_batch * d->data);
    if (d->pipeline < 2)
        return SBP_DEGREES_REFUSE(diag, "vpp: %lld chunks take turns with pp 2 and more",
                                  (long long)d->chunks);
    if (batches % d->pipeline != 0)
        return SBP_DEGREES_REFUSE(diag,
                                  "vpp: interleaved stages work on %lld micro-batches, legal are "
                                  "multiples of pp %lld",
                                  (long long)batches, (long long)d->pipeline);
    return SBP_OK;
}

/* Blocks are shared out evenly unless the plan says where stages begin. */
static enum sbp_status check_blocks(const struct sbp_degrees *d, const struct sbp_plan *plan,
                                    struct sbp_arena *arena, struct sbp_diag *diag)
{
    const struct sbp_graph *model = &plan->workload.model;
    int *block = SBP_NEW(arena, int, model->op_count);
    char legal[LEGAL_BYTES];
    if (block == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const int blocks = sbp_stages_blocks(model, block);
    const struct sbp_parallel cut = {
        .pipeline = d->pipeline, .chunks = d->chunks, .schedule = plan->cut.parallel.schedule};
    int64_t pieces;
    if (!sbp_mul_i64(sbp_parallel_parts(&cut), d->chunks, &pieces))
        pieces = INT64_MAX;
    if (blocks == 0 || blocks % pieces == 0 || plan->cut.parallel.stage_cut != SBP_CUT_BLOCKS ||
        plan->cut.parallel.stage_blocks_count > 0 || d->stage_blocks_count > 0)
        return SBP_OK;
    return SBP_DEGREES_REFUSE(diag,
                              "%s: %lld stages x %lld chunks do not divide the %d layers, legal "
                              "are %s, or the layers of each piece by --set stage_cut=N,N,...",
                              d->chunks > 1 ? "vpp" : "pp", (long long)sbp_parallel_parts(&cut),
                              (long long)d->chunks, blocks, divisors(blocks, legal));
}

/* What is not given of how the step is cut is as the plan has it. */
static struct sbp_degrees over_plan(const struct sbp_degrees *asked, const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    struct sbp_degrees d = *asked;
    d.pipeline = d.pipeline > 0 ? d.pipeline : parallel->pipeline;
    d.chunks = d.chunks > 0 ? d.chunks : parallel->chunks;
    d.pyramid = parallel->pyramid;
    d.zero = d.zero != SBP_ANY ? d.zero : parallel->zero;
    d.recompute = d.recompute != SBP_ANY ? d.recompute : (int)parallel->recompute;
    d.recompute_every = d.recompute_every > 0 ? d.recompute_every : parallel->recompute_every;
    return d;
}

static struct sbp_parallel parallel_of(const struct sbp_degrees *d, const struct sbp_plan *plan)
{
    struct sbp_parallel parallel = plan->cut.parallel;
    if (d->stage_blocks_count > 0) {
        parallel.stage_blocks_count = d->stage_blocks_count;
        memcpy(parallel.stage_blocks, d->stage_blocks, sizeof parallel.stage_blocks);
    }
    parallel.pipeline = d->pipeline;
    parallel.chunks = d->chunks;
    parallel.schedule = schedule_of(d, plan);
    parallel.micro_batch = d->micro_batch * d->data;
    parallel.zero = d->zero;
    parallel.gather_blocks |= d->zero == 3;
    parallel.recompute = (enum sbp_recompute)d->recompute;
    parallel.offload |= d->offload;
    parallel.recompute_every = d->recompute_every;
    parallel.regather |= d->sequence_parallel;
    return parallel;
}

enum sbp_status sbp_degrees_apply(const struct sbp_degrees *asked, struct sbp_plan *plan,
                                  struct sbp_arena *arena, struct sbp_degrees_plan *made,
                                  struct sbp_diag *diag)
{
    struct sbp_degrees_mesh mesh;
    memset(made, 0, sizeof *made);
    const struct sbp_degrees d = over_plan(asked, plan);
    SBP_TRY(sbp_degrees_complete(&d, &plan->workload, &made->degrees, diag));
    SBP_TRY(check_chunks(&made->degrees, plan, diag));
    SBP_TRY(check_blocks(&made->degrees, plan, arena, diag));
    const struct sbp_parallel parallel = parallel_of(&made->degrees, plan);
    SBP_TRY(sbp_plan_cut(plan, &parallel, diag));
    SBP_TRY(place(&made->degrees, &plan->cut.stage, &mesh, diag));
    return sbp_degrees_fix_layers(&plan->cut, &mesh, arena, made, diag);
}
