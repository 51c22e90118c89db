/* Attention whose keys and values go round a ring: random plans and every model with it, against
 * one device; what is not passed on is found. */
#include <stdio.h>
#include <string.h>

#include "executor/run/run_memory.h"
#include "run_checks.h"

/* ---- what was drawn -------------------------------------------------------------------------- */

/* Rings of the plans that ran, by what makes them differ; recomputed: passes that run twice. */
struct rings {
    int plans, of[5]; /* of so many members; [0]: of more */
    int axes, beside_heads, beside_batch;
    int causal, all_keys, windows, sinks, shared_heads, latent, flash, kept, dropped, recomputed;
};

static bool is_recomputed(const struct plan *plan, int op)
{
    bool again = false;
    for (int piece = 0; piece < plan->step.pieces; piece++)
        for (int i = 0; i < plan->step.program[piece].instr_count; i++) {
            const struct sbp_instr *instr = &plan->step.program[piece].instr[i];
            again |= instr->op == op && instr->kind == SBP_INSTR_FORWARD &&
                     instr->section == SBP_SECTION_RECOMPUTE;
        }
    return again;
}

static void count_ring(const struct plan *plan, int op, struct rings *rings)
{
    const struct sbp_op_node *node = &plan->graph.op[op];
    int axes, others;
    const int64_t members = ways(plan, op, "context", &axes);
    rings->of[members < 5 ? members : 0]++;
    rings->axes += axes > 1;
    rings->beside_heads += ways(plan, op, "head", &others) > 1;
    rings->beside_batch += ways(plan, op, "batch", &others) > 1;
    rings->causal += node->attention.causal;
    rings->all_keys += !node->attention.causal;
    rings->windows += node->attention.own_window > 0;
    rings->sinks += node->weight_count > 0;
    rings->latent += node->kind == SBP_OP_LATENT_ATTENTION;
    rings->flash += node->attention.kind == SBP_ATTENTION_FLASH;
    rings->kept += node->attention.kind == SBP_ATTENTION_MATERIALISED;
    rings->dropped += node->attention.dropout > 0;
    rings->shared_heads += node->kind == SBP_OP_GROUPED_ATTENTION &&
                           plan->graph.tensor[node->input[0]].shape.size[SBP_DIM_FEATURE] >
                               plan->graph.tensor[node->input[1]].shape.size[SBP_DIM_FEATURE];
    rings->recomputed += is_recomputed(plan, op);
}

static void count_rings(const struct plan *plan, struct rings *rings)
{
    rings->plans++;
    for (int op = 0; op < plan->graph.op_count; op++)
        if (is_ring(plan, op))
            count_ring(plan, op, rings);
}

static void print_rings(enum sbp_real real, const struct rings *r, double worst)
{
    print_message("seed %llu, %s: %d plans, rings of 2: %d, 3: %d, 4: %d, more: %d, over several "
                  "axes %d, beside heads %d, beside batch %d; causal %d, not %d, windows %d, sinks "
                  "%d, shared heads %d, latent %d, flash %d, kept %d, dropped %d, recomputed %d; "
                  "largest difference / bound %.3f\n",
                  (unsigned long long)seed, sbp_real_name(real), r->plans, r->of[2], r->of[3],
                  r->of[4], r->of[0], r->axes, r->beside_heads, r->beside_batch, r->causal,
                  r->all_keys, r->windows, r->sinks, r->shared_heads, r->latent, r->flash, r->kept,
                  r->dropped, r->recomputed, worst);
}

/* ---- random plans ---------------------------------------------------------------------------- */

static const int with_attention[] = {GPT, LLAMA, ENCODER, LLAMA, DEEPSEEK};

/* One stage with micro-batches, ZeRO, owners and recomputation; every fourth plan without. */
static void check_plans(enum sbp_real real, int plans, struct rings *rings)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 2300 + (uint64_t)real);
    for (int tries = 0; rings->plans < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        const int kind = with_attention[rings->plans % 5];
        open_random(&random, kind, true, rings->plans % 4 != 0, SBP_BOXING_FULL, real, model,
                    &plan);
        if (has_ring(&plan)) {
            struct sbp_run_options options = options_for(real, &random);
            options.steps = real == SBP_REAL_FP16 ? 8 : 2;
            check_run(&plan, &options, model, &worst);
            count_rings(&plan, rings);
        }
        plan_close(&plan);
    }
    print_rings(real, rings, worst);
    assert_int_equal(rings->plans, plans);
}

static void double_precision_equals_one_device(void **state)
{
    struct rings r = {0};
    const int plans = draws(60);
    (void)state;
    check_plans(SBP_F64, plans, &r);
    assert_true(plans < 60 ||
                (r.of[2] > 3 && r.of[3] > 3 && r.of[4] > 0 && r.axes > 0 && r.beside_heads > 0 &&
                 r.beside_batch > 0 && r.causal > 3 && r.all_keys > 3 && r.windows > 3 &&
                 r.sinks > 3 && r.shared_heads > 3 && r.latent > 3 && r.flash > 3 && r.kept > 3 &&
                 r.dropped > 3 && r.recomputed > 3));
}

static void shorter_types_equal_one_device(void **state)
{
    static const enum sbp_real reals[] = {SBP_F32, SBP_REAL_BF16, SBP_REAL_FP16};
    const int plans = draws(20);
    (void)state;
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        struct rings rings = {0};
        check_plans(reals[i], plans, &rings);
        assert_true(plans < 20 || (rings.flash > 0 && rings.kept > 0 && rings.latent > 0));
    }
}

static void stages_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct tally tally = {0};
    struct rings rings = {0};
    double worst = 0;
    const int plans = draws(40);
    (void)state;
    sbp_random_seed(&random, seed + 2350);
    for (int tries = 0; tally.plans < plans && tries < 60 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, with_attention[tries % 5], model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 3 == 2 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_randomise(&plan, &random, true, SBP_BOXING_FULL, SBP_F64);
            if (has_ring(&plan) && has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                count_plan(&tally, &plan);
                count_rings(&plan, &rings);
            }
        }
        plan_close(&plan);
    }
    print_rings(SBP_F64, &rings, worst);
    assert_int_equal(tally.plans, plans);
    assert_true(plans < 40 || (tally.several > 20 && rings.of[2] > 0 && rings.of[3] > 0));
}

/* Groups of replicas and of a pyramid, which hand sums of gradients on. */
static void replicas_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct rings rings = {0};
    double worst = 0;
    const int plans = draws(12);
    (void)state;
    sbp_random_seed(&random, seed + 2370);
    for (int tries = 0; rings.plans < plans && tries < 60 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, rings.plans % 2 == 0 ? LLAMA : GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 2 ? plan_cut_replicas : plan_cut_pyramid)(&plan, &random)) {
            plan_randomise(&plan, &random, true, SBP_BOXING_FULL, SBP_F64);
            if (has_ring(&plan)) {
                struct sbp_run_options options = options_for(SBP_F64, &random);
                options.steps = 4;
                check_run(&plan, &options, model, &worst);
                count_rings(&plan, &rings);
            }
        }
        plan_close(&plan);
    }
    print_rings(SBP_F64, &rings, worst);
    assert_int_equal(rings.plans, plans);
}

/* ---- one layer ------------------------------------------------------------------------------- */

enum { SEQUENCE = 240 };

/* The parts of a model that decide of its attention: causal, and not. */
#define LLAMA "\"architecture\": \"llama\", \"kv_heads\": 2, \"head_dim\": 8, \"tied\": false, "
#define BERT  "\"architecture\": \"bert\", \"head\": \"mlm\", "

/* Attention by context on all of a mesh, everything else by sequence. */
static void open_layer(const char *keys, const int *levels, enum sbp_real real, char *model,
                       struct plan *plan)
{
    struct sbp_diag diag = {0};
    (void)snprintf(model, MODEL_BYTES,
                   "{\"name\": \"layer\", \"global_batch\": 2, \"sequence\": %d, \"layers\": 1, "
                   "\"hidden\": 32, \"heads\": 4, \"ffn\": 16, \"vocab\": 24, "
                   "\"context\": \"ring\", %s}",
                   SEQUENCE, keys);
    plan_open(plan, model, levels);
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->graph.op[op];
        const int context = sbp_op_role(node->entry, "context");
        const int role = context >= 0 ? context : sbp_op_role(node->entry, "sequence");
        for (int axis = 0; axis < plan->mesh.axis_count && role >= 0; axis++)
            plan->strategy.op[op].role[axis] = (uint8_t)role;
        if (node->output >= 0)
            plan->strategy.rest[node->output] =
                sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, op);
    }
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
}

/* Every mask in rings of two to six members, whose blocks are of two tiles in those of two and
 * three and less than one in others; fewer draws have each ring once. In 16 bits all masks are
 * causal: BERT's gradients of queries, of nearly equal probabilities, pass the bound with gathered
 * keys, too. */
static void long_blocks_equal_one_device(void **state)
{
    static const enum sbp_real reals[] = {SBP_F64, SBP_F32, SBP_REAL_BF16};
    static const int levels[][4] = {{2, 0}, {3, 0}, {4, 0}, {2, 3, 0}};
    static const char *const keys[] = {
        BERT "\"attention\": \"flash\"", LLAMA "\"attention\": \"flash\"",
        LLAMA "\"attention\": \"flash\", \"window\": 70, \"sinks\": true",
        LLAMA "\"attention\": \"materialised\", \"window\": 150, \"attention_dropout\": 0.2",
        LLAMA "\"attention\": \"materialised\""};
    struct sbp_random random;
    char model[MODEL_BYTES];
    (void)state;
    sbp_random_seed(&random, seed + 2400);
    for (size_t r = 0; r < sizeof reals / sizeof reals[0]; r++) {
        const int first = reals[r] == SBP_REAL_BF16 ? 1 : 0, kinds = 5 - first;
        double worst = 0;
        for (int n = 0; n < draws(4 * kinds); n++) {
            struct plan plan;
            open_layer(keys[first + (n % 4 + n / 4) % kinds], levels[n % 4], reals[r], model,
                       &plan);
            const struct sbp_run_options options = options_for(reals[r], &random);
            check_run(&plan, &options, model, &worst);
            plan_close(&plan);
        }
        print_message("%s: largest difference / bound %.3f\n", sbp_real_name(reals[r]), worst);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Blocks that are not passed on, forward and backward, and results that are off by less than
 * bfloat16 tells. */
static void faults_are_found(void **state)
{
    static const enum sbp_fault faults[] = {SBP_FAULT_SKIP, SBP_FAULT_SCALE};
    static const enum sbp_real reals[] = {SBP_F64, SBP_REAL_BF16};
    static const int levels[][2] = {{2, 0}, {3, 0}, {4, 0}};
    struct sbp_random random;
    int found = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2450);
    for (int n = 0; n < 18; n++) {
        struct plan plan;
        char model[MODEL_BYTES];
        open_layer(n % 2 ? LLAMA "\"attention\": \"flash\""
                         : LLAMA "\"attention\": \"materialised\"",
                   levels[n / 2 % 3], reals[n / 6 % 2], model, &plan);
        for (int i = 0; i < plan.program->instr_count; i++) {
            const struct sbp_instr *instr = &plan.program->instr[i];
            if ((instr->kind != SBP_INSTR_FORWARD && instr->kind != SBP_INSTR_BACKWARD) ||
                !is_ring(&plan, instr->op))
                continue;
            struct sbp_run_options options = options_for(reals[n / 6 % 2], &random);
            struct sbp_run_result result;
            plant_fault(&options, faults[n / 12], 0, i);
            run_plan(&plan, &options, model, &result);
            if (!result.finding.found)
                fail_msg("seed %llu: fault %d in instruction %d of %s went unnoticed",
                         (unsigned long long)seed, faults[n / 12], i, model);
            found++;
            sbp_run_free(&result);
        }
        plan_close(&plan);
    }
    print_message("%d faults found\n", found);
    assert_int_equal(found, 18 * 2); /* a pass forward and one backward */
}

/* Copies of blocks on their way are needed beside the arena: three of keys and values, and four of
 * their gradients. */
static void copies_of_blocks_are_needed(void **state)
{
    const int64_t block =
        2 * (SEQUENCE / 4) * 2 * 2 * 8; /* of 2 sequences and 2 heads of keys, values */
    const struct sbp_verify_need none = {0};
    char model[MODEL_BYTES];
    struct plan plan;
    (void)state;
    open_layer(LLAMA "\"attention\": \"flash\"", (const int[]){4, 0}, SBP_F32, model, &plan);
    const struct sbp_run_need need = sbp_run_need_of(&plan.step, 1, &none, &sbp_device_host_memory);
    const double expected = (double)(sbp_run_arena_bytes(&plan.step, 0) + 7 * block * 4);
    if (!(need.bytes == expected))
        fail_msg("%.0f bytes are needed, expected %.0f", need.bytes, expected);
    plan_close(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_precision_equals_one_device),
        cmocka_unit_test(shorter_types_equal_one_device),
        cmocka_unit_test(stages_equal_one_device),
        cmocka_unit_test(replicas_equal_one_device),
        cmocka_unit_test(long_blocks_equal_one_device),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(copies_of_blocks_are_needed),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
