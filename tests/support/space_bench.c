#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

void open_plan(const char *model, const char *levels, struct sbp_plan *plan)
{
    char cluster[1024];
    snprintf(cluster, sizeof cluster,
             "{\"name\": \"c\", \"levels\": [%s], \"device\": {\"memory_bytes\": 1e15, \"flops\": "
             "{\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e11, \"kernel_launch_s\": 3e-6, "
             "\"host_link_bytes_per_s\": 1e10}}",
             levels);
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
}

void make_space(const struct sbp_plan *plan, const struct sbp_solve_request *request,
                struct sbp_space *space)
{
    struct sbp_diag diag = {{0}};
    if (sbp_space_make(&plan->cut, request, NULL, NULL, space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

void bench_open(struct bench *bench, const struct sbp_plan *plan,
                const struct sbp_solve_request *request)
{
    struct sbp_diag diag = {{0}};
    make_space(plan, request, &bench->space);
    if (sbp_pricing_problem(&bench->space, INFINITY, &bench->problem, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(sbp_working_init(&bench->working, &bench->space, &bench->space.arena), SBP_OK);
    bench->least_bytes = sbp_working_least(&bench->working, NULL);
    bench->choice = calloc((size_t)bench->space.variable_count + 1, sizeof *bench->choice);
    assert_non_null(bench->choice);
}

void bench_close(struct bench *bench)
{
    free(bench->choice);
    sbp_problem_free(&bench->problem);
    sbp_space_free(&bench->space);
}

/* A resting place of what the chosen operator leaves: the first from a random one on. */
static void draw_rest(struct bench *bench, const struct sbp_output_edge *edge,
                      struct sbp_random *random)
{
    const int rests = bench->space.variable[edge->rest_variable].choice_count;
    const int from = (int)sbp_random_below(random, (uint64_t)rests);
    for (int i = 0; i < rests; i++) {
        const int rest = (from + i) % rests;
        if (!sbp_pricing_can_rest(&bench->space, edge, bench->choice[edge->op_variable], rest))
            continue;
        bench->choice[edge->rest_variable] = rest;
        return;
    }
}

bool bench_draw(struct bench *bench, struct sbp_random *random)
{
    const struct sbp_space *const space = &bench->space;
    for (int tries = 0; tries < 200; tries++) {
        for (int v = 0; v < space->variable_count; v++)
            bench->choice[v] =
                (int)sbp_random_below(random, (uint64_t)space->variable[v].choice_count);
        for (int k = 0; k < space->output_edge_count; k++)
            draw_rest(bench, &space->output_edge[k], random);
        if (sbp_problem_cost(&bench->problem, bench->choice) < SBP_FORBIDDEN)
            return true;
    }
    return false;
}

bool label_choice(struct sbp_plan *plan, const struct sbp_space *space, const int *choice,
                  uint64_t seed, struct sbp_labelling *labelling)
{
    assert_int_equal(sbp_strategy_alloc(&plan->cut.graph, &plan->arena, &plan->strategy), SBP_OK);
    assert_int_equal(sbp_label(space, choice, seed, &plan->strategy, labelling), SBP_OK);
    return labelling->broken_class < 0 && labelling->broken_rests == 0;
}

double promised_s(const struct sbp_space *space, const int *choice)
{
    double promised_s = 0;
    for (int i = 0; i < space->input_edge_count; i++) {
        const struct sbp_input_edge *const edge = &space->input_edge[i];
        promised_s += sbp_pricing_input_edge_s(space, edge, choice[edge->from], choice[edge->to]);
    }
    for (int k = 0; k < space->output_edge_count; k++) {
        const struct sbp_output_edge *const edge = &space->output_edge[k];
        promised_s += sbp_pricing_output_edge_s(space, edge, choice[edge->op_variable],
                                                choice[edge->rest_variable]);
    }
    return promised_s;
}

/* Whether a sum over operators is the step, not a bound of it: with one stage whose works follow
 * each other, what is hidden known, and each weight updated by itself. */
static bool sums_exactly(const struct sbp_space *space)
{
    const struct sbp_parallel *parallel = space->parallel;
    return (parallel->pipeline == 1 || space->request->asked.objective == SBP_COMMUNICATION) &&
           !sbp_timeline_delays_gradients(parallel->schedule) && !parallel->offload &&
           !(space->hidden_share > 0) &&
           !(parallel->gather_blocks && parallel->recompute_every > 1);
}

/* In every stage whose memory is checked, the model's bytes are no more than its devices take. */
static void check_bytes(const struct sbp_space *space, const int *choice,
                        const struct sbp_step *step, uint64_t seed, struct prices *prices)
{
    double most_bytes = 0;
    for (int point = 0; point < space->weights->memory_stages; point++) {
        const struct sbp_stage_memory *const memory = &step->memory[space->weights->stage[point]];
        const int64_t device_bytes = memory->device_bytes - memory->reserve_bytes;
        double bytes = sbp_pricing_constant_bytes(space, point);
        for (int v = 0; v < space->variable_count; v++)
            bytes += sbp_space_unary_bytes(space, v, choice[v], point);
        if (bytes > (double)device_bytes * (1 + 1e-9))
            fail_msg("seed %" PRIu64 ": stage %d: modelled %.17g bytes, the plan takes %" PRId64,
                     seed, space->weights->stage[point], bytes, device_bytes);
        most_bytes = fmax(most_bytes, bytes);
    }
    prices->least_bytes = fmin(prices->least_bytes, most_bytes / (double)step->totals.device_bytes);
}

/* A plan that fits is made of choices that are never banned. */
static void check_ban(const struct bench *bench, double device_bytes, uint64_t seed)
{
    const struct sbp_space *space = &bench->space;
    struct sbp_working working = bench->working;
    int *first = calloc((size_t)space->variable_count + 1, sizeof *first);
    assert_non_null(first);
    for (int v = 0; v < space->variable_count; v++)
        first[v + 1] = first[v] + space->variable[v].choice_count;
    uint8_t *banned = calloc((size_t)first[space->variable_count] + 1, sizeof *banned);
    assert_non_null(banned);
    bool left = sbp_working_ban(&working, device_bytes * (1 + 1e-9), first, banned);
    for (int v = 0; v < space->variable_count; v++)
        left &= banned[first[v] + bench->choice[v]] == 0;
    if (!left)
        fail_msg("seed %" PRIu64 ": a plan of %.17g bytes is banned", seed, device_bytes);
    free(first);
    free(banned);
}

/* The modelled working set is no less than the memory model and no more than the plan takes; the
 * least over all choices is no more than either. */
static void check_working(const struct bench *bench, const struct sbp_step *step, uint64_t seed,
                          struct prices *prices)
{
    struct sbp_working working = bench->working;
    const int64_t reserve_bytes = step->memory[0].reserve_bytes;
    const double device_bytes = (double)(step->totals.device_bytes - reserve_bytes);
    const double bytes = sbp_working_least(&working, bench->choice);
    const double model_bytes = sbp_pricing_bytes(&bench->space, bench->choice);
    if (bytes > device_bytes * (1 + 1e-9) || bytes < model_bytes * (1 - 1e-9) ||
        bench->least_bytes > bytes * (1 + 1e-9))
        fail_msg("seed %" PRIu64 ": at work %.17g bytes, least %.17g, kept %.17g, the plan takes "
                 "%.17g",
                 seed, bytes, bench->least_bytes, model_bytes, device_bytes);
    check_ban(bench, device_bytes, seed);
    prices->working_bytes += bytes / device_bytes;
    prices->least_of_all_bytes =
        fmax(prices->least_of_all_bytes, bench->least_bytes / device_bytes);
}

/* The step of a labelled plan; false where the plan is not legal: a sum over an axis that splits
 * nothing of its tensor, next to other changes. */
static bool compile(struct sbp_plan *plan, uint64_t seed, struct sbp_step *step)
{
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, &diag) != SBP_OK) {
        if (strstr(diag.text, "no dimension of the tensor has a digit") == NULL)
            fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
        return false;
    }
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, step, &diag) != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, diag.text);
    return true;
}

void check_price(struct sbp_plan *plan, const struct bench *bench, uint64_t seed,
                 struct prices *prices)
{
    const struct sbp_space *const space = &bench->space;
    struct sbp_labelling labelling;
    struct sbp_step step;
    if (!label_choice(plan, space, bench->choice, seed, &labelling) ||
        !compile(plan, seed, &step)) {
        prices->not_labelled++;
        return;
    }
    const struct sbp_step_totals totals = step.totals;
    check_bytes(space, bench->choice, &step, seed, prices);
    check_working(bench, &step, seed, prices);
    sbp_step_free(&step);
    const double cost_s =
        space->request->asked.objective == SBP_STEP_TIME ? totals.step_s : totals.communication_s;
    const double priced_s = sbp_problem_cost(&bench->problem, bench->choice);
    const double gap_s = labelling.transfer_s - promised_s(space, bench->choice);
    const double labelled_s = priced_s + gap_s;
    if (gap_s < -1e-9 * cost_s ||
        (!sbp_timeline_delays_gradients(plan->cut.parallel.schedule) &&
         labelled_s > cost_s * (1 + 1e-9)) ||
        (!prices->bounds_alone && sums_exactly(space) && labelled_s < cost_s * (1 - 1e-9)))
        fail_msg("seed %" PRIu64 ": plan %.17g, problem %.17g, labels add %.17g", seed, cost_s,
                 priced_s, gap_s);
    prices->run++;
    prices->equal += gap_s <= 1e-12 * cost_s;
    prices->largest_gap = fmax(prices->largest_gap, gap_s / cost_s);
    prices->loosest = fmax(prices->loosest, 1 - labelled_s / cost_s);
}
