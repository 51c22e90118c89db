/* Runs of random strategies of one stage against one device, and runs that are refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/rank/context_run_priv.h"
#include "executor/rank/rank.h"
#include "executor/verify/reference_priv.h"
#include "executor/verify/verify.h"
#include "run_checks.h"

/* Operators that are mirrored on some level. */
static int count_mirrored(const struct plan *plan)
{
    int count = 0;
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_dist left =
            sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, op);
        count += sbp_dist_of_kind(&plan->mesh, &left, SBP_MIRRORED) != 0;
    }
    return count;
}

/* Axes that play a role of attention: queries split by sequence, or by heads that share keys. */
static int count_axes(const struct plan *plan, const char *name)
{
    int count = 0;
    for (int op = 0; op < plan->graph.op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++) {
            const struct sbp_op_entry *entry = plan->graph.op[op].entry;
            const int role = sbp_strategy_role(&plan->graph, &plan->strategy, op, axis);
            count += role >= 0 && role == sbp_op_role(entry, name);
        }
    return count;
}

/* ---- partial sums that live on --------------------------------------------------------------- */

/* The longest chain of operators behind each other that read and leave a partial sum of an axis in
 * the forward pass as it was compiled; the operator that begins the sum is its first. */
static int longest_sum(const struct plan *plan, int axis)
{
    const struct sbp_program *program = plan->program;
    int *length = calloc((size_t)program->buffer_count, sizeof *length), longest = 0;
    assert_non_null(length);
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int out = instr->buffer[SBP_AT_OUT];
        const bool computes = instr->kind == SBP_INSTR_FORWARD;
        if (instr->section != SBP_SECTION_FORWARD || out < 0 ||
            !(computes || instr->kind == SBP_INSTR_BOX) ||
            program->buffer[out].dist.axis[axis].kind != SBP_PARTIAL)
            continue;
        for (int at = SBP_AT_IN; at <= SBP_AT_IN3; at++) {
            const int in = instr->buffer[at];
            if (in >= 0 && program->buffer[in].dist.axis[axis].kind == SBP_PARTIAL &&
                length[in] > length[out])
                length[out] = length[in];
        }
        length[out] += computes;
        longest = length[out] > longest ? length[out] : longest;
    }
    free(length);
    return longest;
}

static int count_living_sums(const struct plan *plan)
{
    int count = 0;
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        count += longest_sum(plan, axis) > 1;
    return count;
}

/* ---- random plans ---------------------------------------------------------------------------- */

static void check_random(int kind, int most, bool cut, enum sbp_real real)
{
    const int count = draws(most);
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int mirrored = 0, contexts = 0, queries = 0, owned = 0, sums = 0;
    sbp_random_seed(&random, seed + (uint64_t)(2 * kind) + (real == SBP_F32));
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, kind, i % 2 == 0, cut, SBP_BOXING_FULL, real, model, &plan);
        struct sbp_run_options options = options_for(real, &random);
        options.labels = i % 3 == 2 ? SBP_LABELS_MASKED : SBP_LABELS_DRAWN;
        check_run(&plan, &options, model, &worst);
        mirrored += count_mirrored(&plan);
        contexts += count_axes(&plan, "context");
        queries += count_axes(&plan, "query");
        sums += count_living_sums(&plan);
        owned += plan.parallel.owner != SBP_OWNER_NONE;
        plan_close(&plan);
    }
    print_message(
        "seed %llu: %d plans, %d operators mirrored, %d axes of attention by context, "
        "%d by queries, %d of sums that live on, %d with owners, largest difference / bound %.3f\n",
        (unsigned long long)seed, count, mirrored, contexts, queries, sums, owned, worst);
    assert_true(!cut || count < 60 || owned >= count / 20);
    assert_true(mirrored >= count / 5);
    assert_true((kind != GPT && kind != LLAMA) || contexts >= count / 10);
    assert_true(kind != LLAMA || queries >= count / 10);
}

static void perceptrons_equal_one_device(void **state)
{
    (void)state;
    check_random(PERCEPTRON, 70, false, SBP_F64);
}

static void residual_perceptrons_equal_one_device(void **state)
{
    (void)state;
    check_random(RESIDUAL, 70, false, SBP_F64);
}

static void gpts_equal_one_device(void **state)
{
    (void)state;
    check_random(GPT, 70, false, SBP_F64);
}

static void gates_equal_one_device(void **state)
{
    (void)state;
    check_random(GATED, 20, false, SBP_F64);
    check_random(GATED, 10, true, SBP_F32);
}

static void llamas_equal_one_device(void **state)
{
    (void)state;
    check_random(LLAMA, 10, false, SBP_F64);
    check_random(LLAMA, 16, true, SBP_F64);
    check_random(LLAMA, 6, true, SBP_F32);
}

static void encoders_equal_one_device(void **state)
{
    (void)state;
    check_random(ENCODER, 6, false, SBP_F64);
    check_random(ENCODER, 6, true, SBP_F32);
}

static void patches_equal_one_device(void **state)
{
    (void)state;
    check_random(PATCHES, 10, false, SBP_F64);
    check_random(PATCHES, 6, true, SBP_F32);
}

static void write_dropping(char *model, const char *attention, double chance)
{
    (void)snprintf(model, MODEL_BYTES,
                   "{\"name\": \"parts\", \"global_batch\": 24, \"architecture\": \"gpt\", "
                   "\"layers\": 2, \"hidden\": 24, \"heads\": 12, \"sequence\": 12, \"vocab\": 24, "
                   "\"attention_dropout\": %g, \"attention\": \"%s\"}",
                   chance, attention);
}

/* A step's loss with so many samples in a micro-batch, on so many ranks; attention keeps its
 * probabilities or not, and drops them with a chance. */
static double loss_in_parts(const char *attention, double chance, int samples, int ranks)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct sbp_diag diag = {0};
    struct sbp_run_result result;
    struct plan plan;
    sbp_random_seed(&random, seed + 310);
    write_dropping(model, attention, chance);
    plan_open(&plan, model, (const int[]){ranks, 0});
    plan.parallel.micro_batch = samples;
    expect_ok(sbp_graph_set_micro_batch(&plan.graph, samples, &diag), &diag);
    plan_randomise(&plan, &random, true, SBP_BOXING_FULL, SBP_F64);
    struct sbp_run_options options = options_for(SBP_F64, &random);
    options.seed = seed;
    run_plan(&plan, &options, model, &result);
    assert_false(result.finding.found);
    const double loss = result.step[0].loss;
    sbp_run_free(&result);
    plan_close(&plan);
    return loss;
}

/* One device that draws the same mask for each micro-batch agrees with ranks that do, and one that
 * drops nothing with ranks that drop nothing. */
static void micro_batches_drop_the_same(void **state)
{
    static const char *const kinds[] = {"materialised", "flash"};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const double whole = loss_in_parts(kinds[kind], 0.4, 24, 2);
        const double parts[] = {loss_in_parts(kinds[kind], 0.4, 12, 4),
                                loss_in_parts(kinds[kind], 0.4, 6, 2)};
        const double undropped = loss_in_parts(kinds[kind], 0, 24, 2);
        if (!(fabs(undropped - whole) > 1e-6 * whole))
            fail_msg("seed %llu, %s: loss %.17g without dropout, %.17g with it",
                     (unsigned long long)seed, kinds[kind], undropped, whole);
        for (int i = 0; i < 2; i++)
            if (!(fabs(parts[i] - whole) <= 1e-12 * whole))
                fail_msg("seed %llu, %s: loss %.17g, in parts %.17g", (unsigned long long)seed,
                         kinds[kind], whole, parts[i]);
    }
}

/* What decides a mask, apart from an element's index. */
struct decided {
    uint64_t seed, stream;
};

/* Of both layers' attention, in the order of the program. */
static void find_decided(struct sbp_rank *rank, struct decided decided[2])
{
    int layers = 0;
    for (int i = 0; i < rank->program->instr_count; i++) {
        const struct sbp_instr *instr = &rank->program->instr[i];
        struct sbp_rank_attention_dropout at;
        if (instr->kind != SBP_INSTR_FORWARD || instr->section != SBP_SECTION_FORWARD ||
            rank->program->graph->op[instr->op].kind != SBP_OP_ATTENTION)
            continue;
        const struct sbp_attention_dropout *dropout =
            sbp_rank_find_attention_dropout(rank, instr, &at);
        assert_non_null(dropout);
        assert_true(dropout->p == 0.4 && layers < 2);
        decided[layers++] = (struct decided){dropout->seed, dropout->stream};
    }
    assert_int_equal(layers, 2);
}

/* No two of two runs, two steps of each, and two layers have the same mask. Losses do not tell:
 * with the seed and the step the tokens change, too. */
static void masks_are_drawn_anew(void **state)
{
    char model[MODEL_BYTES];
    struct decided decided[8];
    struct plan plan;
    (void)state;
    write_dropping(model, "flash", 0.4);
    plan_open(&plan, model, (const int[]){2, 0});
    for (int run = 0; run < 2; run++) {
        struct sbp_diag diag = {0};
        struct sbp_reference reference;
        const struct sbp_reference_of of = {.graph = &plan.graph,
                                            .cluster = &plan.cluster,
                                            .seed = seed + (uint64_t)run,
                                            .real = SBP_F64};
        expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
        for (int step = 0; step < 2; step++) {
            sbp_rank_turn_data(&reference.rank, step + 1);
            find_decided(&reference.rank, decided + 4 * run + 2 * step);
        }
        sbp_reference_close(&reference);
    }
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < a; b++)
            assert_false(decided[a].seed == decided[b].seed &&
                         decided[a].stream == decided[b].stream);
    plan_close(&plan);
}

/* Batch normalisation is by each rank's images of a micro-batch, which one device follows. */
static void images_equal_one_device(void **state)
{
    (void)state;
    check_random(IMAGES, 10, false, SBP_F64);
    check_random(IMAGES, 6, true, SBP_F64);
    check_random(IMAGES, 3, true, SBP_F32);
}

/* Micro-batches one after the other, states in shards, and work done once more. */
static void cut_steps_equal_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++)
        check_random(kind, 60, true, SBP_F64);
}

static void single_precision_equals_one_device(void **state)
{
    (void)state;
    for (int kind = PERCEPTRON; kind <= GPT; kind++)
        check_random(kind, 15, kind == GPT, SBP_F32);
}

/* Calls of a kind that follow one of the same kind on the same tensor: what the normal form would
 * have done at once. */
static int count_cuts(const struct sbp_program *program)
{
    int cuts = 0;
    for (int i = 1; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i], *before = instr - 1;
        cuts += instr->kind == SBP_INSTR_BOX && before->kind == SBP_INSTR_BOX &&
                instr->tensor == before->tensor && instr->box.kind == before->box.kind &&
                instr->box.kind != SBP_LOCAL;
    }
    return cuts;
}

/* Lists of paths, of activations and of weight gradients, for runs in either precision. */
static void paths_equal_one_device(void **state)
{
    const int plans = draws(60);
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int cuts = 0;
    (void)state;
    sbp_random_seed(&random, seed + 300);
    for (int i = 0; i < plans; i++) {
        struct plan plan;
        const enum sbp_real real = i % 5 == 0 ? SBP_F32 : SBP_F64;
        open_random(&random, i % 3, i % 2 == 0, i % 3 == 2, SBP_BOXING_PATH, real, model, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        cuts += count_cuts(plan.program);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d cuts, largest difference / bound %.3f\n",
                  (unsigned long long)seed, plans, cuts, worst);
    assert_true(cuts > 2 * plans);
}

/* Splits the batch over the first axes. Over the others (OneFlow, section 3.3) a product leaves a
 * sum, and those behind it and an addition pass it on to the last of the model. */
static void let_sums_live(struct plan *plan, int batch_axes)
{
    struct sbp_diag diag = {0};
    const struct sbp_graph *graph = &plan->graph;
    expect_ok(sbp_strategy_alloc(graph, &plan->arena, &plan->strategy), &diag);
    plan->strategy.rest[graph->input] = sbp_dist_all(SBP_STATE_B);
    for (int op = 0; op < graph->op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++) {
            const bool batch = axis < batch_axes, last = op == graph->op_count - 1;
            const int role = sbp_op_role(graph->op[op].entry, batch     ? "batch"
                                                              : op == 0 ? "row"
                                                                        : "partial");
            plan->strategy.op[op].role[axis] = (uint8_t)role;
            plan->strategy.rest[graph->op[op].output].axis[axis] =
                batch  ? SBP_STATE_S(SBP_DIM_BATCH)
                : last ? SBP_STATE_S(SBP_DIM_FEATURE)
                       : SBP_STATE_P;
        }
    expect_ok(sbp_strategy_close(graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, SBP_F64, &plan->step);
    plan->program = plan->step.program;
}

/* Forward the sum of the first product is one of four operators; its gradients are whole. */
static void sums_that_live_on_equal_one_device(void **state)
{
    static const char model[] =
        "{\"name\": \"uvw\", \"global_batch\": 24, \"optimizer\": \"adam\", \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"u\", \"in\": 48, \"out\": 24, \"bias\": true}, "
        "{\"op\": \"linear\", \"name\": \"v\", \"out\": 24, \"bias\": true}, "
        "{\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"v\", \"u\"]}, "
        "{\"op\": \"linear\", \"name\": \"w\", \"out\": 16}]}";
    static const struct {
        int levels[3], batch_axes;
    } cases[] = {{{2, 0}, 0}, {{4, 0}, 0}, {{4, 0}, 1}, {{2, 2, 0}, 1}};
    struct sbp_random random;
    double worst = 0;
    (void)state;
    sbp_random_seed(&random, seed + 400);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        plan_open(&plan, model, cases[i].levels);
        let_sums_live(&plan, cases[i].batch_axes);
        for (int axis = 0; axis < plan.mesh.axis_count; axis++)
            assert_int_equal(longest_sum(&plan, axis), axis < cases[i].batch_axes ? 0 : 4);
        const struct sbp_run_options options = options_for(SBP_F64, &random);
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: largest difference / bound %.3f\n", (unsigned long long)seed, worst);
    assert_true(worst > 0);
}

/* The kernel's gradient is a sum over members that its bias has whole: one goes to shards after
 * every micro-batch, the other stays and is added up. */
static void sums_of_images_equal_one_device(void **state)
{
    static const char model[] =
        "{\"name\": \"images\", \"global_batch\": 24, \"optimizer\": \"adam\", \"input\": {"
        "\"height\": 4, \"width\": 4, \"channels\": 8}, \"layers\": ["
        "{\"op\": \"conv2d\", \"name\": \"u\", \"out\": 8, \"kernel\": 3, \"padding\": 1, "
        "\"bias\": true}, "
        "{\"op\": \"conv2d\", \"name\": \"v\", \"out\": 8, \"kernel\": 2, \"bias\": true}]}";
    struct sbp_random random;
    struct sbp_diag diag = {0};
    struct plan plan;
    double worst = 0;
    (void)state;
    sbp_random_seed(&random, seed + 425);
    plan_open(&plan, model, (const int[]){2, 0});
    plan.parallel.zero = 2;
    plan.parallel.micro_batch = 8;
    expect_ok(sbp_graph_set_micro_batch(&plan.graph, 8, &diag), &diag);
    let_sums_live(&plan, 0);
    const struct sbp_op_node *last = &plan.graph.op[plan.graph.op_count - 1];
    assert_int_equal(plan.program->shard[last->weight[0]].level, 2);
    assert_int_equal(plan.program->shard[last->weight[1]].level, 0);
    const struct sbp_run_options options = options_for(SBP_F64, &random);
    check_run(&plan, &options, model, &worst);
    plan_close(&plan);
    assert_true(worst > 0);
}

/* The score of a query that sees one key has no gradient but round-off. */
static void lone_keys_equal_one_device(void **state)
{
    static const char *const models[] = {
        "{\"name\": \"window\", \"global_batch\": 24, \"architecture\": \"llama\", \"layers\": 1, "
        "\"hidden\": 24, \"heads\": 24, \"kv_heads\": 12, \"head_dim\": 2, \"ffn\": 24, "
        "\"sequence\": 24, \"vocab\": 24, \"window\": 1, \"qk_norm\": true, "
        "\"attention\": \"flash\"}",
        "{\"name\": \"token\", \"global_batch\": 24, \"architecture\": \"gpt\", \"layers\": 2, "
        "\"hidden\": 24, \"heads\": 12, \"sequence\": 1, \"vocab\": 24}"};
    enum { RUNS = 24 };
    struct sbp_random random;
    double worst = 0;
    (void)state;
    sbp_random_seed(&random, seed + 450);
    for (int i = 0; i < RUNS; i++) {
        const enum sbp_real real = i / 2 % 2 ? SBP_F32 : SBP_F64;
        struct plan plan;
        plan_open(&plan, models[i % 2], (const int[]){2, 0});
        plan_randomise(&plan, &random, false, SBP_BOXING_FULL, real);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, models[i % 2], &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: largest difference / bound %.3f\n", (unsigned long long)seed, worst);
    assert_true(worst < 0.8); /* round-off that is counted leaves room */
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Refused before any rank touches memory. */
static void too_large_a_run_is_refused(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct plan plan;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    (void)state;
    sbp_random_seed(&random, seed + 600);
    open_random(&random, PERCEPTRON, false, false, SBP_BOXING_FULL, SBP_F32, model, &plan);
    struct sbp_run_options options = options_for(SBP_F32, &random);
    options.verify = false;
    plan.step.memory[0].device_bytes = (int64_t)1 << 50;
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag), SBP_E_MEMORY);
    assert_non_null(strstr(diag.text, " on host "));
    plan_close(&plan);
}

/* Ranks that share a model may fit where the one device that holds all of it does not. */
static void too_large_a_verification_is_refused(void **state)
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
    const struct sbp_run_options options = options_for(SBP_F32, &random);
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag), SBP_E_MEMORY);
    assert_non_null(
        strstr(diag.text, "to verify; full takes the most, sampled less, shrunk the least), "));
    plan_close(&plan);
}

/* Opens a rank of a plan for a model of layers, of which one is named `wide`. */
static void expect_refused(const char *input, const char *layers,
                           const struct sbp_device_ops *device, const char *what)
{
    char model[MODEL_BYTES];
    struct sbp_diag diag = {0};
    struct sbp_random random;
    struct sbp_rank rank;
    struct sbp_stage_layout layout;
    struct plan plan;
    assert_in_range(snprintf(model, sizeof model,
                             "{\"name\": \"long\", \"precision\": \"fp32\", \"global_batch\": 2, "
                             "\"input\": %s, \"layers\": [%s]}",
                             input, layers),
                    1, sizeof model - 1);
    sbp_random_seed(&random, seed);
    plan_open(&plan, model, (const int[]){2, 0});
    plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
    expect_ok(sbp_stage_layout_make(&plan.step, 0, &plan.arena, &layout, &diag), &diag);
    const enum sbp_status status =
        sbp_rank_open(&rank, &layout, device, SBP_F32, 1, 0, NULL, &diag);
    if (status != SBP_E_UNSUPPORTED || strstr(diag.text, "operator wide has ") == NULL ||
        strstr(diag.text, what) == NULL)
        fail_msg("%s: %s: %s", layers, sbp_status_name(status), diag.text);
    plan_close(&plan);
}

#define TOKENS      "\"free\", \"sequence\": 1"
#define PIXELS(...) "{\"height\": 128, \"width\": 64, \"channels\": " __VA_ARGS__ "}"
#define WIDE(op)    "{\"op\": \"" op "\", \"name\": \"wide\", "

static void too_large_a_matrix_is_refused(void **state)
{
    static const char *const models[][2] = {
        {TOKENS, WIDE("linear") "\"in\": 8589934592, \"out\": 2, \"bias\": false}"},
        {TOKENS, "{\"op\": \"linear\", \"in\": 2, \"out\": 4}, " WIDE(
                     "moe") "\"experts\": 2, \"top_k\": 1, \"ffn\": 8589934592}"},
        {PIXELS("1048576"), WIDE("conv2d") "\"out\": 2, \"kernel\": [128, 64]}"},
        {PIXELS("2"), WIDE("conv2d") "\"out\": 1048576, \"kernel\": [128, 64]}"},
        {PIXELS("2") ", \"sequence\": 2",
         WIDE("patch_embedding") "\"patch\": 64, \"hidden\": 8589934592, \"class_token\": false}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        expect_refused(models[i][0], models[i][1], &sbp_device_cpu, "a matrix with a side of ");
}

static const struct sbp_kernels *with_little_room(enum sbp_real real)
{
    static struct sbp_kernels kernels; /* one test uses it */
    kernels = *sbp_kernels_cpu(real);
    kernels.most_experts = 3;
    kernels.largest_column = 63;
    return &kernels;
}

static void too_little_room_is_refused(void **state)
{
    static const char *const models[][3] = {
        {TOKENS,
         "{\"op\": \"linear\", \"in\": 2, \"out\": 4}, " WIDE(
             "moe") "\"experts\": 4, \"top_k\": 1, \"ffn\": 8}",
         "4 experts, device cpu has kernels for 3 at most"},
        {PIXELS("8"), WIDE("conv2d") "\"out\": 8, \"kernel\": 4}", "has room for 63 at most"},
        {PIXELS("128"), WIDE("batchnorm") "\"epsilon\": 1e-5}", "has room for 63 at most"},
        {PIXELS("2") ", \"sequence\": 2",
         WIDE("patch_embedding") "\"patch\": 64, \"hidden\": 128, \"class_token\": false}",
         "has room for 63 at most"},
    };
    (void)state;
    struct sbp_device_ops device = sbp_device_cpu;
    device.kernels = with_little_room;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        expect_refused(models[i][0], models[i][1], &device, models[i][2]);
}

static const struct sbp_kernels *without_convolutions(enum sbp_real real)
{
    static struct sbp_kernels kernels; /* one test uses it */
    kernels = *sbp_kernels_cpu(real);
    kernels.conv2d_forward = NULL;
    return &kernels;
}

static void a_missing_kernel_is_refused(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_diag diag = {0};
    struct sbp_random random;
    struct sbp_rank rank;
    struct sbp_stage_layout layout;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed);
    struct sbp_device_ops device = *sbp_device("cpu", &diag);
    device.kernels = without_convolutions;
    open_random(&random, IMAGES, false, false, SBP_BOXING_FULL, SBP_F32, model, &plan);
    expect_ok(sbp_stage_layout_make(&plan.step, 0, &plan.arena, &layout, &diag), &diag);
    const enum sbp_status status =
        sbp_rank_open(&rank, &layout, &device, SBP_F32, 1, 0, NULL, &diag);
    if (status != SBP_E_UNSUPPORTED ||
        strstr(diag.text, "device cpu has no kernel of conv2d in f32") == NULL)
        fail_msg("%s: %s", sbp_status_name(status), diag.text);
    plan_close(&plan);
}

static void no_bound_no_agreement(void **state)
{
    struct sbp_verify_outcome outcome = {0};
    (void)state;
    assert_true(sbp_verify_is_near(&outcome, 1, 2, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, 2.5, 1));
    assert_false(sbp_verify_is_near(&outcome, (double)NAN, 1, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, (double)NAN, 1));
    assert_false(sbp_verify_is_near(&outcome, 1, 1, (double)NAN));
    assert_false(sbp_verify_is_near(&outcome, 1, 1, (double)INFINITY));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perceptrons_equal_one_device),
        cmocka_unit_test(residual_perceptrons_equal_one_device),
        cmocka_unit_test(gpts_equal_one_device),
        cmocka_unit_test(gates_equal_one_device),
        cmocka_unit_test(llamas_equal_one_device),
        cmocka_unit_test(encoders_equal_one_device),
        cmocka_unit_test(patches_equal_one_device),
        cmocka_unit_test(images_equal_one_device),
        cmocka_unit_test(cut_steps_equal_one_device),
        cmocka_unit_test(micro_batches_drop_the_same),
        cmocka_unit_test(masks_are_drawn_anew),
        cmocka_unit_test(single_precision_equals_one_device),
        cmocka_unit_test(paths_equal_one_device),
        cmocka_unit_test(sums_that_live_on_equal_one_device),
        cmocka_unit_test(sums_of_images_equal_one_device),
        cmocka_unit_test(lone_keys_equal_one_device),
        cmocka_unit_test(too_large_a_run_is_refused),
        cmocka_unit_test(too_large_a_verification_is_refused),
        cmocka_unit_test(too_large_a_matrix_is_refused),
        cmocka_unit_test(too_little_room_is_refused),
        cmocka_unit_test(a_missing_kernel_is_refused),
        cmocka_unit_test(no_bound_no_agreement),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
