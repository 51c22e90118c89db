#include "planner/plan/plan.h"
#include "tests/papers/transformer.h"

#include <math.h>

#define MOST_PARTS      16 /* none of the models fits with more */
#define FIT_PARTS       4  /* the most that fit, of both (results/autoddl_transformer.md) */
#define FIT_MICRO_BATCH 16 /* the same */

/* The best strategy with so many parts and sequences a micro-batch, whatever memory it takes. */
static struct transformer try_micro_batch(const struct transformer_setting *setting,
                                          struct sbp_plan *plan, int64_t parts, int64_t micro_batch)
{
    const struct sbp_request request = {
        .space = setting->space, .max_batch_split = parts, .memory_limit_bytes = TRIAL_ANY_MEMORY};
    struct transformer tried = {.parts = parts, .micro_batch = micro_batch};
    if (!trial_cut(plan, setting->stages, micro_batch))
        return tried;
    tried.trial = trial_search(plan, &request);
    tried.found =
        tried.trial.found && tried.trial.totals.device_bytes <= plan->workload.cluster.memory_bytes;
    if (tried.found)
        (void)trial_tuple(plan, "block0.qkv", tried.qkv);
    return tried;
}

/* Larger micro-batches until one fits no more; the smallest may leave layers nothing to divide. */
static struct transformer try_parts(const struct transformer_setting *setting,
                                    struct sbp_plan *plan, int64_t parts)
{
    struct transformer best = {.parts = parts};
    if (setting->micro_batch > 0)
        return try_micro_batch(setting, plan, parts, setting->micro_batch);
    for (int64_t size = parts; size <= plan->cut.graph.global_batch; size *= 2) {
        const struct transformer tried = try_micro_batch(setting, plan, parts, size);
        if (!best.found && !best.trial.found)
            best = tried;
        if (tried.found)
            best = tried;
        else if (tried.trial.found)
            break;
        if (best.found && setting->least_micro_batch)
            break;
    }
    return best;
}

struct transformer transformer_search(const struct transformer_setting *setting)
{
    const struct trial_setting trial = {.model = setting->model,
                                        .cluster = setting->cluster,
                                        .devices = setting->devices,
                                        .global_batch = setting->batch,
                                        .alpha_scale = setting->machine.alpha_scale,
                                        .beta_scale = setting->machine.beta_scale,
                                        .efficiency = setting->machine.efficiency};
    struct transformer found = {0};
    struct sbp_plan plan;
    trial_open(&trial, &plan);
    const int64_t devices = sbp_cluster_devices(&plan.workload.cluster);
    const int64_t ways = devices / setting->stages, most = ways < MOST_PARTS ? ways : MOST_PARTS,
                  first = setting->parts > 0 ? setting->parts : most;
    for (int64_t parts = first; parts >= 1 && !found.found; parts /= 2) {
        found = try_parts(setting, &plan, parts);
        if (setting->parts > 0)
            break;
    }
    sbp_plan_free(&plan);
    return found;
}

/* Seconds of table 3's wide model as it is searched on 128 nodes, in one stage. */
static double wide_s(enum sbp_space_kind space, struct machine machine)
{
    const struct transformer_setting setting = {.model = "autoddl-20l",
                                                .cluster = "piz-daint-p100",
                                                .devices = 128,
                                                .batch = 1024,
                                                .stages = 1,
                                                .space = space,
                                                .parts = FIT_PARTS,
                                                .micro_batch = FIT_MICRO_BATCH,
                                                .machine = machine};
    return transformer_search(&setting).trial.totals.step_s;
}

/* A step is linear in beta and in what products take, as long as its strategy is the same: the two
 * strategies' slopes make two equations. */
struct machine transformer_fit(void)
{
    static const enum sbp_space_kind spaces[] = {SBP_SPACE_MEGATRON, SBP_SPACE_AUTODDL};
    const struct machine file = {1, 1, 1}, slow_network = {1, 2, 1}, slow_products = {1, 1, 0.5};
    double by_beta[2], by_products[2], missing[2];
    for (int i = 0; i < 2; i++) {
        const double file_s = wide_s(spaces[i], file);
        by_beta[i] = wide_s(spaces[i], slow_network) - file_s;
        by_products[i] = wide_s(spaces[i], slow_products) - file_s;
        missing[i] = (i == 0 ? TRANSFORMER_MEGATRON_S : TRANSFORMER_AUTODDL_S) - file_s;
    }
    const double determinant = by_beta[0] * by_products[1] - by_beta[1] * by_products[0];
    return (struct machine){
        .alpha_scale = 1,
        .beta_scale = 1 + (missing[0] * by_products[1] - missing[1] * by_products[0]) / determinant,
        .efficiency = 1 / (1 + (by_beta[0] * missing[1] - by_beta[1] * missing[0]) / determinant)};
}

void gains_draw(const struct gains_plot *gains, struct sbp_text *svg)
{
    static const char *const names[] = {"communication: theirs", "ours, cluster file",
                                        "ours, fitted",          "step: theirs",
                                        "ours, cluster file",    "ours, fitted"};
    double y[2 * GAINS_KINDS][GAINS_POINTS];
    struct plot_series series[2 * GAINS_KINDS];
    for (int k = 0; k < 2 * GAINS_KINDS; k++) {
        const bool is_step = k >= GAINS_KINDS;
        const struct gains *saved = gains->saved[k % GAINS_KINDS];
        for (int i = 0; i < GAINS_POINTS; i++)
            y[k][i] = 100 * (is_step ? saved[i].step : saved[i].communication);
        series[k] = (struct plot_series){names[k],        GAINS_POINTS, gains->nodes, y[k],
                                         k % GAINS_KINDS, is_step,      true};
    }
    const struct plot plot = {gains->title,
                              {"nodes", gains->nodes[0], gains->nodes[GAINS_POINTS - 1], 2, true},
                              {"per cent", 0, gains->most, 10, false},
                              2 * GAINS_KINDS,
                              series};
    plot_write(&plot, svg);
}
