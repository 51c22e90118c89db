/* Verification by a sample of the gradients: it is a sample of the same reference, it passes what
 * is right, names the tensor of a planted fault, and holds a piece of the model at a time. */
#include <math.h>
#include <string.h>

#include "executor/verify/reference_priv.h"
#include "run_checks.h"

/* ---- the reference --------------------------------------------------------------------------- */

/* Gives the weights of the piece at hand as the whole reference has them. */
struct giver {
    struct sbp_reference *whole, *sampled;
    int visits;
};

static enum sbp_status give(void *context, const struct sbp_layers_pass *visit,
                            struct sbp_diag *diag)
{
    struct giver *const giver = context;
    (void)diag;
    for (int t = 0; t < giver->sampled->graph.tensor_count; t++) {
        const int buffer = giver->sampled->program->weight_buffer[t];
        if (buffer < 0)
            continue;
        const double *from = sbp_reference_weight(giver->whole, t);
        for (int64_t i = 0; i < giver->sampled->program->buffer[buffer].elements; i++) {
            sbp_reference_weight(giver->sampled, t)[i] = from[i];
            sbp_reference_shadow_weight(giver->sampled, t)[i] = (float)from[i];
        }
    }
    giver->visits += visit->goes_back;
    return SBP_OK;
}

static void open_both(const struct plan *plan, struct sbp_reference *whole,
                      struct sbp_reference *sampled)
{
    struct sbp_diag diag = {0};
    struct sbp_reference_of of = {
        .graph = &plan->graph, .cluster = &plan->cluster, .seed = 1, .real = SBP_F64};
    expect_ok(sbp_reference_open(whole, &of, &diag), &diag);
    of.is_sampled = true;
    expect_ok(sbp_reference_open(sampled, &of, &diag), &diag);
    assert_int_equal(sbp_rank_fill_weights(&whole->rank), SBP_OK);
    assert_int_equal(sbp_rank_fill_weights(&whole->shadow), SBP_OK);
}

static bool is_about(double a, double b, double sum)
{
    return fabs(a - b) <= 1e-12 * (fabs(sum) + 1e-30);
}

/* Bounds are estimates, by other rows at a time: of one model they differ little, element by
 * element they may. */
struct ratio {
    double sum; /* of logarithms */
    int64_t count;
};

static void compare_element(struct sbp_reference *whole, struct sbp_reference *sampled, int tensor,
                            int64_t at, struct ratio *ratio)
{
    const int64_t place = sbp_reference_place(sampled, tensor, at);
    const double sum = sbp_reference_sum(whole, tensor, at);
    const double inherited = sbp_reference_inherited(whole, tensor, at);
    const double own = sbp_reference_inherited(sampled, tensor, place);
    if (inherited > 0 && own > 0) {
        ratio->sum += log2(own / inherited);
        ratio->count++;
    }
    if (!is_about(sbp_reference_gradient(sampled, tensor)[place],
                  sbp_reference_gradient(whole, tensor)[at], sum) ||
        !is_about(sbp_reference_sum(sampled, tensor, place), sum, sum) ||
        (inherited < 0) != (own < 0))
        fail_msg("seed %llu, %s, element %lld: %.17g of %.17g and %.3g, whole %.17g of %.17g and "
                 "%.3g",
                 (unsigned long long)seed, whole->graph.tensor[tensor].name, (long long)at,
                 sbp_reference_gradient(sampled, tensor)[place],
                 sbp_reference_sum(sampled, tensor, place), own,
                 sbp_reference_gradient(whole, tensor)[at], sum, inherited);
}

/* Elements that are kept are the whole's. Returns how many these are, and marks them. */
static int64_t compare_tensor(struct sbp_reference *whole, struct sbp_reference *sampled,
                              int tensor, bool *seen, struct ratio *ratio)
{
    const int64_t elements = whole->program->buffer[whole->program->weight_buffer[tensor]].elements;
    int64_t kept = 0;
    for (int64_t i = 0; i < elements; i++) {
        if (sbp_reference_place(sampled, tensor, i) < 0)
            continue;
        compare_element(whole, sampled, tensor, i, ratio);
        kept++;
        seen[i] = true;
    }
    return kept;
}

/* What was compared. */
struct tally_of_samples {
    int64_t kept, all;
    int pieces, times;
    struct ratio ratio;
};

static void compare_step(struct sbp_reference *whole, struct sbp_reference *sampled, int64_t step,
                         bool *const *seen, struct tally_of_samples *tally)
{
    struct sbp_diag diag = {0};
    struct giver giver = {.whole = whole, .sampled = sampled};
    sampled->fetch = give;
    sampled->fetch_context = &giver;
    expect_ok(sbp_reference_run(whole, step, &diag), &diag);
    expect_ok(sbp_reference_run(sampled, step, &diag), &diag);
    assert_int_equal(giver.visits, sampled->layers.pieces * sampled->layers.times);
    assert_true(isnan(whole->loss) || is_about(sampled->loss, whole->loss, whole->loss));
    for (int t = 0; t < whole->graph.tensor_count; t++)
        if (seen[t] != NULL) {
            tally->kept += compare_tensor(whole, sampled, t, seen[t], &tally->ratio);
            tally->all += whole->program->buffer[whole->program->weight_buffer[t]].elements;
        }
}

/* Steps draw other outputs, so that all are compared in the end. */
static void compare_steps(const struct plan *plan, int steps, struct tally_of_samples *tally)
{
    struct sbp_reference whole, sampled;
    struct sbp_arena arena;
    open_both(plan, &whole, &sampled);
    sbp_arena_init(&arena);
    bool **seen = SBP_NEW(&arena, bool *, whole.graph.tensor_count);
    assert_non_null(seen);
    for (int t = 0; t < whole.graph.tensor_count; t++) {
        const int buffer = whole.program->weight_buffer[t];
        if (buffer >= 0)
            seen[t] = SBP_NEW(&arena, bool, whole.program->buffer[buffer].elements);
    }
    for (int step = 1; step <= steps; step++)
        compare_step(&whole, &sampled, step, seen, tally);
    tally->pieces += sampled.layers.pieces;
    tally->times += (int)sampled.layers.times;
    for (int t = 0; t < whole.graph.tensor_count && steps > 60; t++)
        for (int64_t i = 0;
             seen[t] != NULL && i < whole.program->buffer[whole.program->weight_buffer[t]].elements;
             i++)
            assert_true(seen[t][i]);
    sbp_arena_free(&arena);
    sbp_reference_close(&whole);
    sbp_reference_close(&sampled);
}

static void samples_are_of_the_whole(void **state)
{
    enum { PLANS = 30 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct tally_of_samples tally = {0};
    (void)state;
    sbp_random_seed(&random, seed + 50);
    for (int i = 0; i < PLANS; i++) {
        struct plan plan;
        open_random(&random, i % 4, true, i % 4 != 3, SBP_BOXING_FULL, SBP_F64, model, &plan);
        compare_steps(&plan, i == 0 ? 80 : 2, &tally);
        plan_close(&plan);
    }
    const double wider = exp2(tally.ratio.sum / (double)tally.ratio.count);
    print_message("seed %llu: %d plans of %d pieces and %d times, %lld of %lld elements kept, "
                  "inherited errors are %.3f of the whole's\n",
                  (unsigned long long)seed, PLANS, tally.pieces, tally.times, (long long)tally.kept,
                  (long long)tally.all, wider);
    assert_true(wider > 0.8 && wider < 1.25);
    assert_true(tally.pieces > 2 * PLANS && tally.times > PLANS * 3 / 2);
    assert_true(tally.kept < tally.all * 3 / 4);
}

/* Without a flush pieces of the step read weights of different steps: a piece that goes over an
 * addition, which two activations cross, is cut where the step is. */
static void pieces_are_within_those_of_the_step(void **state)
{
    static const char model[] =
        "{\"name\": \"skip\", \"precision\": \"fp32\", \"global_batch\": 8, \"layers\": "
        "[{\"op\": \"linear\", \"name\": \"a\", \"in\": 8, \"out\": 8}, {\"op\": \"relu\"}, "
        "{\"op\": \"linear\", \"name\": \"b\", \"out\": 8}, {\"op\": \"add\", \"name\": \"sum\", "
        "\"inputs\": [\"b\", \"a\"]}, {\"op\": \"linear\", \"name\": \"c\", \"out\": 8}]}";
    int first[] = {0, 1, 5};
    const struct sbp_step step = {.pieces = 2, .first = first};
    struct sbp_layers layers;
    struct plan plan;
    (void)state;
    plan_open(&plan, model, (const int[]){2, 0});
    assert_int_equal(sbp_layers_make(&plan.graph, NULL, &plan.arena, &layers), SBP_OK);
    assert_int_equal(layers.pieces, 2);
    assert_int_equal(layers.first[1], 4);
    assert_int_equal(sbp_layers_make(&plan.graph, &step, &plan.arena, &layers), SBP_OK);
    assert_int_equal(layers.pieces, 3);
    assert_int_equal(layers.first[1], 1);
    assert_int_equal(layers.first[2], 4);
    plan_close(&plan);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define LINEAR(name) "{\"op\": \"linear\", \"name\": \"" name "\", \"out\": 1024}"
#define DEEP(end)                                                                                  \
    "{\"name\": \"deep\", \"precision\": \"fp32\", \"global_batch\": 64, \"sequence\": 1, "        \
    "\"input\": \"free\", \"layers\": [{\"op\": \"linear\", \"name\": \"fc1\", \"in\": 1024, "     \
    "\"out\": 1024}, {\"op\": \"gelu\"}, " LINEAR("fc2") ", {\"op\": \"gelu\"}, " LINEAR(          \
        "fc3") ", {\"op\": \"gelu\"}, " LINEAR("fc4") ", {\"op\": \"gelu\"}, " LINEAR("fc5") end   \
        "]}"

static const char deep[] = DEEP(", {\"op\": \"cross_entropy\"}"), lossless[] = DEEP("");

static double counted_bytes(const struct plan *plan, bool is_sampled)
{
    const struct sbp_reference_of of = {.graph = &plan->graph,
                                        .cluster = &plan->cluster,
                                        .real = SBP_F32,
                                        .is_sampled = is_sampled};
    struct sbp_diag diag = {0};
    double bytes;
    expect_ok(sbp_reference_bytes(&of, &bytes, &diag), &diag);
    return bytes;
}

/* 12 bytes a parameter of the largest of five layers, and 16 of one in 32 of all: a seventh of the
 * whole reference's 32 of all. */
static void a_sample_takes_less(void **state)
{
    struct plan plan;
    (void)state;
    plan_open(&plan, deep, (const int[]){2, 0});
    const double whole = counted_bytes(&plan, false), sample = counted_bytes(&plan, true);
    if (!(sample < whole / 7 && sample > 12 * 1024 * 1024))
        fail_msg("counted are %.0f bytes, of the whole %.0f", sample, whole);
    plan_close(&plan);
}

/* An output's bound is a product of absolute values, of the weight's as well. */
static void products_of_outputs_are_counted(void **state)
{
    struct plan with, without;
    (void)state;
    plan_open(&with, deep, (const int[]){2, 0});
    plan_open(&without, lossless, (const int[]){2, 0});
    for (int sampled = 0; sampled < 2; sampled++)
        assert_true(counted_bytes(&without, sampled) > counted_bytes(&with, sampled) + 7e6);
    plan_close(&with);
    plan_close(&without);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* How a step is cut; false: there is no such plan. */
typedef bool (*cut)(struct plan *plan, struct sbp_random *random);

static bool cut_one_stage(struct plan *plan, struct sbp_random *random)
{
    plan_cut_step(plan, random);
    plan_draw_owner(plan, *random);
    return true;
}

static bool draw_plan(struct sbp_random *random, int kind, cut cuts, enum sbp_real real,
                      char *model, struct plan *plan)
{
    random_model(random, kind, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (!cuts(plan, random))
        return false;
    plan_randomise(plan, random, false, SBP_BOXING_FULL, real);
    return has_alike_ties(plan);
}

static void check_right_runs(cut cuts, enum sbp_real real, int most, uint64_t stream)
{
    const int count = draws(most);
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int runs = 0;
    sbp_random_seed(&random, seed + 100 + stream);
    for (int tries = 0; runs < count && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        if (draw_plan(&random, tries % 3, cuts, real, model, &plan)) {
            struct sbp_run_options options = options_for(real, &random);
            options.sampled = true;
            check_run(&plan, &options, model, &worst);
            runs++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d runs in %s, largest difference / bound %.3f\n",
                  (unsigned long long)seed, runs, sbp_real_name(real), worst);
    assert_int_equal(runs, count);
    assert_true(worst > 0);
}

static void right_runs_pass(void **state)
{
    (void)state;
    check_right_runs(cut_one_stage, SBP_F64, 40, 0);
    check_right_runs(plan_cut_stages, SBP_F64, 40, 1);
    check_right_runs(cut_one_stage, SBP_F32, 15, 2);
    check_right_runs(plan_cut_stages, SBP_F32, 15, 3);
    check_right_runs(plan_cut_stages, SBP_REAL_BF16, 15, 4);
    check_right_runs(plan_cut_stages, SBP_REAL_FP16, 15, 5);
}

/* Without a flush, where gradients are of two states of the weights. */
static void right_cyclic_runs_pass(void **state)
{
    (void)state;
    check_right_runs(plan_cut_cyclic, SBP_F64, 40, 6);
    check_right_runs(plan_cut_on_device, SBP_F64, 25, 7);
    check_right_runs(plan_cut_replicas, SBP_F64, 25, 8);
    check_right_runs(plan_cut_cyclic, SBP_F32, 15, 9);
    check_right_runs(plan_cut_cyclic, SBP_REAL_BF16, 15, 10);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A sum of the gradient of a weight that a product or a norm reads; rows of a table may be zeros.
 */
static bool sums_gradient(const struct plan *plan, const struct sbp_instr *instr)
{
    const bool scatters = instr->kind == SBP_INSTR_SCATTER;
    if (!scatters && !(instr->kind == SBP_INSTR_BOX && instr->cause == SBP_CAUSE_WEIGHT_GRADIENT))
        return false;
    return instr->box.kind != SBP_LOCAL && plan->graph.op[instr->op].kind != SBP_OP_EMBEDDING;
}

static int find_sum(const struct plan *plan, struct sbp_random *random, int *stage)
{
    int found = -1, seen = 0;
    *stage = (int)sbp_random_below(random, (uint64_t)plan->step.stages);
    for (int i = 0; i < plan->step.program[*stage].instr_count; i++)
        if (sums_gradient(plan, &plan->step.program[*stage].instr[i]) &&
            sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    return found;
}

static void check_named(const struct plan *plan, struct sbp_random *random, const char *model,
                        int stage, int instr)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    char text[512];
    const char *tensor = plan->graph.tensor[plan->step.program[stage].instr[instr].tensor].name;
    options.sampled = true;
    plant_fault(&options, SBP_FAULT_SKIP, stage, instr);
    run_plan(plan, &options, model, &result);
    const struct sbp_finding *finding = &result.finding;
    if (!finding->found || strcmp(finding->what, "gradient") != 0 ||
        strcmp(finding->tensor, tensor) != 0 || finding->step != 1) {
        describe_plan(plan, model);
        fail_msg("a gradient of %s that is not summed: %s", tensor,
                 finding->found ? sbp_verify_finding_text(finding, text, (int)sizeof text)
                                : "went unnoticed");
    }
    sbp_run_free(&result);
}

static void gradients_that_are_not_summed_are_named(void **state)
{
    enum { FAULTS = 40 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    (void)state;
    sbp_random_seed(&random, seed + 300);
    for (int tries = 0; planted < FAULTS && tries < 10 * MOST_TRIES; tries++) {
        struct plan plan;
        if (draw_plan(&random, tries % 3, tries % 2 == 0 ? plan_cut_stages : cut_one_stage, SBP_F64,
                      model, &plan)) {
            int stage;
            const int instr = find_sum(&plan, &random, &stage);
            if (instr >= 0) {
                check_named(&plan, &random, model, stage, instr);
                planted++;
            }
        }
        plan_close(&plan);
    }
    assert_int_equal(planted, FAULTS);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Ranks that share a layer may fit where the one device that holds it does not. */
static void too_large_a_layer_is_refused(void **state)
{
    static const char model[] =
        "{\"name\": \"large\", \"precision\": \"fp32\", \"global_batch\": 2, \"sequence\": 1, "
        "\"input\": \"free\", \"layers\": [{\"op\": \"linear\", \"name\": \"wide\", "
        "\"in\": 8589934592, \"out\": 64, \"bias\": false}]}";
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    struct sbp_random random;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed);
    plan_open(&plan, model, (const int[]){2, 0});
    plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
    plan.step.memory[0].device_bytes = 1 << 20;
    struct sbp_run_options options = options_for(SBP_F32, &random);
    options.sampled = true;
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag), SBP_E_MEMORY);
    assert_non_null(strstr(diag.text, "to verify; full takes the most, sampled less"));
    plan_close(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_of_the_whole),
        cmocka_unit_test(pieces_are_within_those_of_the_step),
        cmocka_unit_test(a_sample_takes_less),
        cmocka_unit_test(products_of_outputs_are_counted),
        cmocka_unit_test(right_runs_pass),
        cmocka_unit_test(right_cyclic_runs_pass),
        cmocka_unit_test(gradients_that_are_not_summed_are_named),
        cmocka_unit_test(too_large_a_layer_is_refused),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
