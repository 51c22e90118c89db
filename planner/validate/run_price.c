#include "planner/validate/run_price.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

#include "costmodel/model/op_cost.h"
#include "costmodel/program/stages.h"
#include "planner/validate/layout_search.h"

/* How steps of the set are cut beside the degrees. */
static enum sbp_status set_parallel(const struct sbp_run_set *set, struct sbp_plan *plan,
                                    struct sbp_diag *diag)
{
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_json at;
    const struct cJSON *object = sbp_run_set_parallel(set);
    if (object == NULL)
        return SBP_OK;
    sbp_json_at(object, set->file, diag, &at);
    SBP_TRY(sbp_parallel_read(&at, &parallel));
    return sbp_plan_cut(plan, &parallel, diag);
}

/* The layers of each piece, where the embedding and the head count as a layer. */
static enum sbp_status share_layers(const struct sbp_plan *plan, struct sbp_degrees *degrees,
                                    struct sbp_arena *arena, struct sbp_diag *diag)
{
    const struct sbp_graph *model = &plan->workload.model;
    const int64_t pieces = (degrees->pipeline > 0 ? degrees->pipeline : 1) *
                           (degrees->chunks > 0 ? degrees->chunks : 1);
    int *block = SBP_NEW(arena, int, model->op_count);
    if (block == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const int blocks = sbp_stages_blocks(model, block);
    const int64_t each = (blocks + 2) / pieces;
    if (pieces < 2 || pieces > SBP_MOST_GIVEN_PIECES || each * pieces != blocks + 2)
        return sbp_fail(diag, SBP_E_INPUT,
                        "counts_ends: %lld pieces do not share out %d layers and 2, legal are "
                        "divisors from 2 to %d",
                        (long long)pieces, blocks, SBP_MOST_GIVEN_PIECES);
    degrees->stage_blocks_count = (int)pieces;
    for (int64_t piece = 0; piece < pieces; piece++)
        degrees->stage_blocks[piece] =
            (uint16_t)(each - (piece == 0 || piece == pieces - 1 ? 1 : 0));
    return SBP_OK;
}

/* Published shares of the peak count all scores of attention, those that a causal one never forms
 * among them (Narayanan et al., 2021, appendix). The model is of no other use afterwards. */
static double peak_seconds(struct sbp_plan *plan)
{
    struct sbp_graph *model = &plan->workload.model;
    const bool twice = plan->cut.parallel.recompute == SBP_RECOMPUTE_FULL;
    for (int op = 0; op < model->op_count; op++)
        model->op[op].attention.causal = false;
    const double flops = sbp_op_model_flops(model) * (twice ? 4.0 / 3 : 1);
    return sbp_cluster_kernel_s(&plan->workload.cluster, model->precision.compute,
                                flops / (double)sbp_cut_devices(&plan->cut), 0);
}

static void price_memory(const struct sbp_step *step, bool of_last_stage,
                         struct sbp_run_price *price)
{
    const struct sbp_stage_memory *stage = &step->memory[step->stages - 1];
    for (int i = 0; !of_last_stage && i < step->stages; i++)
        if (step->memory[i].device_bytes > stage->device_bytes)
            stage = &step->memory[i];
    price->memory_bytes = (double)stage->device_bytes;
    price->settled_bytes =
        (double)(stage->weight_bytes + stage->gradient_bytes + stage->moment_bytes +
                 stage->master_bytes + stage->reserve_bytes);
}

static enum sbp_status price_plan(const struct sbp_run_set *set, double reserve_bytes,
                                  struct sbp_plan *plan, struct sbp_run_price *price,
                                  struct sbp_diag *diag)
{
    struct sbp_step step;
    SBP_TRY(sbp_cut_step(&plan->cut, &plan->strategy, true, &step, diag));
    price->step_s = step.totals.step_s;
    price_memory(&step, set->of_last_stage, price);
    price->memory_bytes += reserve_bytes;
    price->settled_bytes += reserve_bytes;
    sbp_step_free(&step);
    price->peak_s = peak_seconds(plan);
    return SBP_OK;
}

/* Finds the layout of a run in a plan of its model and cluster, which the caller frees. */
static enum sbp_status find_layout(const struct sbp_run_set *set, int run, const atomic_int *stop,
                                   struct sbp_plan *plan, struct sbp_diag *diag)
{
    struct sbp_degrees degrees = set->run[run].degrees;
    const struct sbp_solver_options options = {.stop = stop};
    double step_s;
    SBP_TRY(set_parallel(set, plan, diag));
    if (set->run[run].counts_ends)
        SBP_TRY(share_layers(plan, &degrees, &plan->arena, diag));
    /* Memory limits nothing, for the run ran. */
    return sbp_layout_search(plan, &degrees, INT64_MAX, 0, &options, &step_s, diag);
}

/* On failure there is no plan. */
static enum sbp_status make_plan(const struct sbp_run_set *set, int run, const atomic_int *stop,
                                 struct sbp_plan *plan, struct sbp_diag *why)
{
    struct cJSON *model, *cluster;
    SBP_TRY(sbp_run_set_model(set, run, &model, why));
    enum sbp_status status = sbp_run_set_cluster(set, run, &cluster, why);
    if (status != SBP_OK) {
        cJSON_Delete(model);
        return status;
    }
    status = sbp_plan_begin(model, "model", cluster, "cluster", plan, why);
    if (status == SBP_OK) {
        status = find_layout(set, run, stop, plan, why);
        if (status != SBP_OK)
            sbp_plan_free(plan);
    }
    return status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED ? SBP_NO : status;
}

enum sbp_status sbp_run_price(const struct sbp_run_set *set, int run, const atomic_int *stop,
                              struct sbp_run_price *price, struct sbp_diag *why)
{
    struct sbp_plan plan;
    SBP_TRY(make_plan(set, run, stop, &plan, why));
    const enum sbp_status status = price_plan(set, set->run[run].reserve_bytes, &plan, price, why);
    sbp_plan_free(&plan);
    return status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED ? SBP_NO : status;
}

/* ---- a layout under other constants ---------------------------------------------------------- */

struct sbp_run_layout {
    struct sbp_plan plan;
};

void sbp_run_layout_free(struct sbp_run_layout *layout)
{
    if (layout == NULL)
        return;
    sbp_plan_free(&layout->plan);
    free(layout);
}

enum sbp_status sbp_run_layout_find(const struct sbp_run_set *set, int run, const atomic_int *stop,
                                    struct sbp_run_layout **layout, struct sbp_diag *why)
{
    *layout = calloc(1, sizeof **layout);
    if (*layout == NULL)
        return sbp_fail(why, SBP_E_MEMORY, "%s: out of memory", set->file);
    const enum sbp_status status = make_plan(set, run, stop, &(*layout)->plan, why);
    if (status == SBP_OK)
        return SBP_OK;
    free(*layout);
    *layout = NULL;
    return status;
}

static enum sbp_status step_under(const struct sbp_plan *plan, const struct sbp_cluster *cluster,
                                  struct sbp_arena *arena, double *step_s, struct sbp_diag *diag)
{
    struct sbp_cut cut;
    struct sbp_step step;
    SBP_TRY(sbp_cut_make(&plan->workload.model, cluster, &plan->cut.parallel, arena, &cut, diag));
    SBP_TRY(sbp_cut_step(&cut, &plan->strategy, true, &step, diag));
    *step_s = step.totals.step_s;
    sbp_step_free(&step);
    return SBP_OK;
}

enum sbp_status sbp_run_layout_price(const struct sbp_run_set *set, int run,
                                     const struct sbp_run_layout *layout, double *step_s,
                                     struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json at;
    struct sbp_cluster cluster;
    struct sbp_arena arena = {0};
    SBP_TRY(sbp_run_set_cluster(set, run, &tree, diag));
    sbp_json_at(tree, set->file, diag, &at);
    enum sbp_status status = sbp_cluster_read(&at, &arena, &cluster);
    if (status == SBP_OK)
        status = step_under(&layout->plan, &cluster, &arena, step_s, diag);
    sbp_arena_free(&arena);
    cJSON_Delete(tree);
    return status;
}
