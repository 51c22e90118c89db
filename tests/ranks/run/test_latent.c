/* Latent attention, and decoders as DeepSeek's: runs by random plans against one device, gradients
 * against differences, and faults. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/program/runnable.h"
#include "executor/verify/reference_priv.h"
#include "run_checks.h"

/* ---- random plans ---------------------------------------------------------------------------- */

static const char *const role_names[] = {"batch", "head", "context", "mirror"};
enum { ROLES = sizeof role_names / sizeof role_names[0] };

/* Adds up on how many axes attention plays each role. */
static void count_roles(const struct plan *plan, int *seen)
{
    for (int op = 0; op < plan->graph.op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++)
            for (int r = 0; r < ROLES; r++)
                seen[r] += plan->graph.op[op].kind == SBP_OP_LATENT_ATTENTION &&
                           sbp_strategy_role(&plan->graph, &plan->strategy, op, axis) ==
                               sbp_op_role(plan->graph.op[op].entry, role_names[r]);
}

static void check_random(int count, bool cut, enum sbp_real real, int *seen)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 800 + (cut ? 1 : 0) + 2 * (uint64_t)real);
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, DEEPSEEK, i % 2 == 0, cut, SBP_BOXING_FULL, real, model, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, model, &worst);
        count_roles(&plan, seen);
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, count, worst);
}

static void decoders_equal_one_device(void **state)
{
    int seen[ROLES] = {0};
    (void)state;
    check_random(draws(10), false, SBP_F64, seen);
    check_random(draws(14), true, SBP_F64, seen);
    check_random(draws(8), true, SBP_F32, seen);
    for (int r = 0; r < ROLES; r++) {
        print_message(" %d %s%s", seen[r], role_names[r], r + 1 < ROLES ? "," : " axes\n");
        assert_true(seen[r] > 0);
    }
}

static void decoders_in_16_bits_equal_one_device(void **state)
{
    int seen[ROLES] = {0};
    (void)state;
    check_random(draws(6), true, SBP_REAL_BF16, seen);
    check_random(draws(6), true, SBP_REAL_FP16, seen);
}

static void pipelines_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int held = 0;
    (void)state;
    sbp_random_seed(&random, seed + 810);
    for (int tries = 0; held < draws(8) && tries < MOST_TRIES; tries++) {
        const enum sbp_real real = tries % 4 == 0 ? SBP_F32 : SBP_F64;
        struct plan plan;
        random_model(&random, DEEPSEEK, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (tries % 3 == 0 ? plan_cut_cyclic(&plan, &random) : plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, real);
            const struct sbp_run_options options = options_for(real, &random);
            if (has_alike_ties(&plan)) {
                check_run(&plan, &options, model, &worst);
                held++;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, held, worst);
    assert_int_equal(held, draws(8));
}

/* ---- a model of one block ---------------------------------------------------------------------
 */

static void write_model(char *model, const char *attention)
{
    (void)snprintf(model, MODEL_BYTES,
                   "{\"name\": \"latent\", \"global_batch\": 4, \"sequence\": 6, "
                   "\"architecture\": \"deepseek\", \"layers\": 1, \"hidden\": 6, \"heads\": 2, "
                   "\"q_rank\": 4, \"kv_rank\": 6, \"nope\": 3, \"rope\": 4, \"value\": 5, "
                   "\"dense_layers\": 1, \"ffn\": 8, \"experts\": 2, \"top_k\": 1, "
                   "\"expert_ffn\": 4, \"vocab\": 12, \"attention\": \"%s\"}",
                   attention);
}

/* The same role of every operator on all axes, but of attention. */
static void set_roles(struct plan *plan, const char *attention, enum sbp_real real)
{
    struct sbp_diag diag = {0};
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    for (int op = 0; op < plan->graph.op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++) {
            const struct sbp_op_node *node = &plan->graph.op[op];
            const char *name = node->kind == SBP_OP_LATENT_ATTENTION ? attention : "batch";
            plan->strategy.op[op].role[axis] = (uint8_t)sbp_op_role(node->entry, name);
            const bool by_rows = strcmp(name, "context") == 0; /* whose outputs stay split so */
            if (node->output >= 0)
                plan->strategy.rest[node->output].axis[axis] =
                    by_rows ? SBP_STATE_S(SBP_DIM_SEQUENCE) : SBP_STATE_S(SBP_DIM_BATCH);
        }
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
}

/* ---- gradients by differences -----------------------------------------------------------------
 */

static double loss_with(struct sbp_reference *reference, double *weight, double value)
{
    struct sbp_diag diag = {0};
    const double kept = *weight;
    *weight = value;
    expect_ok(sbp_reference_run(reference, 1, &diag), &diag);
    *weight = kept;
    return reference->loss;
}

static double difference(struct sbp_reference *reference, double *weight, double h)
{
    return (loss_with(reference, weight, *weight + h) - loss_with(reference, weight, *weight - h)) /
           (2 * h);
}

/* Of a random element of a weight; whether it is not 0. Two widths extrapolate to a width of 0. */
static bool check_gradient(struct sbp_reference *reference, struct sbp_random *random, int tensor)
{
    static const double H = 0x1p-13;
    const int buffer = reference->program->weight_buffer[tensor];
    const int64_t elements = reference->program->buffer[buffer].elements;
    const int64_t at = (int64_t)sbp_random_below(random, (uint64_t)elements);
    double *const weight = &sbp_reference_weight(reference, tensor)[at];
    (void)loss_with(reference, weight, *weight);
    const double gradient = sbp_reference_gradient(reference, tensor)[at];
    const double near =
        (4 * difference(reference, weight, H) - difference(reference, weight, 2 * H)) / 3;
    if (!(fabs(gradient - near) <= 2e-6 * (fabs(near) + 1e-3)))
        fail_msg("seed %llu, %s, element %lld: gradient %.12g, central difference %.12g",
                 (unsigned long long)seed, reference->graph.tensor[tensor].name, (long long)at,
                 gradient, near);
    return gradient != 0;
}

static void gradients_are_differences(void **state)
{
    static const char *const kinds[] = {"materialised", "flash"};
    enum { PICKS = 8 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 830);
    for (int kind = 0; kind < 2; kind++) {
        struct sbp_reference reference;
        struct sbp_diag diag = {0};
        struct plan plan;
        write_model(model, kinds[kind]);
        plan_open(&plan, model, (const int[]){2, 0});
        const struct sbp_reference_of of = {
            .graph = &plan.graph, .cluster = &plan.cluster, .seed = seed, .real = SBP_F64};
        expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
        assert_int_equal(sbp_rank_fill_weights(&reference.rank), SBP_OK);
        assert_int_equal(sbp_rank_fill_weights(&reference.shadow), SBP_OK);
        for (int t = 0; t < reference.graph.tensor_count; t++) {
            int held = 0;
            for (int i = 0; i < PICKS && reference.program->weight_buffer[t] >= 0; i++)
                held += check_gradient(&reference, &random, t);
            if (reference.program->weight_buffer[t] >= 0 && held == 0)
                fail_msg("seed %llu: all gradients of %s are 0", (unsigned long long)seed,
                         reference.graph.tensor[t].name);
        }
        sbp_reference_close(&reference);
        plan_close(&plan);
    }
}

/* ---- faults -----------------------------------------------------------------------------------
 */

static int find_instr(const struct plan *plan, enum sbp_instr_kind kind,
                      enum sbp_collective collective, enum sbp_section section)
{
    for (int i = 0; i < plan->program->instr_count; i++) {
        const struct sbp_instr *instr = &plan->program->instr[i];
        if (instr->kind == kind && instr->section == section && instr->op >= 0 &&
            plan->graph.op[instr->op].kind == SBP_OP_LATENT_ATTENTION &&
            (kind != SBP_INSTR_INNER || instr->box.kind == collective))
            return i;
    }
    fail_msg("no such instruction");
    return -1;
}

static void expect_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                         enum sbp_fault fault, int instr)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    plant_fault(&options, fault, 0, instr);
    run_plan(plan, &options, model, &result);
    if (!result.finding.found)
        fail_msg("fault %d in instruction %d went unnoticed", (int)fault, instr);
    sbp_run_free(&result);
}

/* Collectives that gather keys and sum their gradients are left out, and results are off. */
static void faults_are_found(void **state)
{
    const enum sbp_section there = SBP_SECTION_FORWARD, back = SBP_SECTION_BACKWARD;
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed + 850);
    write_model(model, "flash");
    plan_open(&plan, model, (const int[]){2, 0});
    set_roles(&plan, "context", SBP_F64);
    const int faults[] = {find_instr(&plan, SBP_INSTR_INNER, SBP_ALL_GATHER, there),
                          find_instr(&plan, SBP_INSTR_INNER, SBP_ALL_GATHER, back),
                          find_instr(&plan, SBP_INSTR_INNER, SBP_REDUCE_SCATTER, back)};
    for (int i = 0; i < 3; i++)
        expect_fault(&plan, &random, model, SBP_FAULT_SKIP, faults[i]);
    expect_fault(&plan, &random, model, SBP_FAULT_SCALE,
                 find_instr(&plan, SBP_INSTR_FORWARD, 0, there));
    expect_fault(&plan, &random, model, SBP_FAULT_SCALE,
                 find_instr(&plan, SBP_INSTR_BACKWARD, 0, back));
    plan_close(&plan);
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static void odd_turned_features_are_refused(void **state)
{
    char model[MODEL_BYTES];
    (void)state;
    for (int rope = 2; rope < 4; rope++) {
        struct sbp_diag diag = {0};
        struct plan plan;
        (void)snprintf(
            model, sizeof model,
            "{\"name\": \"odd\", \"global_batch\": 4, \"sequence\": 4, \"layers\": ["
            "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 8, \"hidden\": 6}, "
            "{\"op\": \"linear\", \"name\": \"q\", \"out\": %d, \"out_heads\": 2, "
            "\"inputs\": [\"e\"]}, "
            "{\"op\": \"linear\", \"name\": \"kv\", \"out\": 6, \"out_heads\": 2, "
            "\"inputs\": [\"e\"]}, "
            "{\"op\": \"linear\", \"name\": \"kr\", \"out\": %d, \"inputs\": [\"e\"]}, "
            "{\"op\": \"latent_attention\", \"name\": \"a\", \"inputs\": [\"q\", \"kv\", "
            "\"kr\"], \"heads\": 2, \"nope\": 1, \"rope\": %d, \"value\": 2}]}",
            2 * (1 + rope), rope, rope);
        plan_open(&plan, model, (const int[]){2, 0});
        const enum sbp_status status = sbp_runnable_check(&plan.graph, &plan.parallel, &diag);
        if (rope == 2)
            expect_ok(status, &diag);
        else if (status != SBP_E_UNSUPPORTED || strstr(diag.text, "a: an odd number") == NULL)
            fail_msg("rope %d: %s", rope, diag.text);
        plan_close(&plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_equal_one_device),
        cmocka_unit_test(decoders_in_16_bits_equal_one_device),
        cmocka_unit_test(pipelines_equal_one_device),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(odd_turned_features_are_refused),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
