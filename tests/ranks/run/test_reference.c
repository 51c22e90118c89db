/* Oracles of the verification's own: central differences, and single-precision updates. */
#include <malloc.h>
#include <math.h>
#include <string.h>

#include "base/math/half.h"
#include "executor/verify/reference_priv.h"
#include "executor/verify/shadows_priv.h"
#include "executor/verify/textbook_priv.h"
#include "executor/verify/together_priv.h"
#include "run_checks.h"

/* ---- the reference ------------------------------------------------------------------------- */

static double loss_with(struct sbp_reference *reference, double *weight, double value)
{
    struct sbp_diag diag = {0};
    const double kept = *weight;
    *weight = value;
    expect_ok(sbp_reference_run(reference, 1, &diag), &diag);
    *weight = kept;
    return reference->loss;
}

/* An element of a parameter and its gradient, before anything is moved. */
struct pick {
    int tensor;
    int64_t at;
    double gradient;
};

/* The loss moves by a gradient's element as its weight moves: central differences, of two widths so
 * that places where a relu bends in between tell themselves. */
static void check_pick(struct sbp_reference *reference, const char *model, const struct pick *pick,
                       int *checked)
{
    static const double H = 0x1p-14;
    double *weight = &sbp_reference_weight(reference, pick->tensor)[pick->at];
    const double value = *weight;
    const double near =
        (loss_with(reference, weight, value + H) - loss_with(reference, weight, value - H)) /
        (2 * H);
    const double far = (loss_with(reference, weight, value + 2 * H) -
                        loss_with(reference, weight, value - 2 * H)) /
                       (4 * H);
    if (fabs(near - far) > 1e-6 * (fabs(near) + 1e-3))
        return;
    ++*checked;
    if (!(fabs(pick->gradient - near) <= 2e-6 * (fabs(near) + 1e-3)))
        fail_msg("seed %llu, %s of %s, element %lld: gradient %.12g, central difference %.12g",
                 (unsigned long long)seed, reference->graph.tensor[pick->tensor].name, model,
                 (long long)pick->at, pick->gradient, near);
}

/* One element of every parameter. */
static void check_gradients(struct sbp_reference *reference, struct sbp_random *random,
                            const char *model, int *checked)
{
    enum { MOST = 64 };
    struct pick picks[MOST];
    int count = 0;
    for (int t = 0; t < reference->graph.tensor_count; t++) {
        const int buffer = reference->program->weight_buffer[t];
        if (buffer < 0)
            continue;
        const int64_t elements = reference->program->buffer[buffer].elements;
        const int64_t at = (int64_t)sbp_random_below(random, (uint64_t)elements);
        assert_true(count < MOST);
        picks[count++] = (struct pick){t, at, sbp_reference_gradient(reference, t)[at]};
    }
    for (int i = 0; i < count; i++)
        check_pick(reference, model, &picks[i], checked);
}

/* The verification trusts the reference's gradients, and takes the run's weights as they are: the
 * ones are held to its loss, the others (made block by block) to the loss of the run's first step.
 */
static void check_reference(const struct plan *plan, const char *model, struct sbp_random *random,
                            int *checked)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_reference reference;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    options.verify = false;
    run_plan(plan, &options, model, &result);
    const struct sbp_reference_of of = {
        .graph = &plan->graph, .cluster = &plan->cluster, .seed = options.seed, .real = SBP_F64};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    assert_int_equal(sbp_rank_fill_weights(&reference.rank), SBP_OK);
    assert_int_equal(sbp_rank_fill_weights(&reference.shadow), SBP_OK);
    expect_ok(sbp_reference_run(&reference, 1, &diag), &diag);
    if (!(fabs(reference.loss - result.step[0].loss) <= 1e-12 * fabs(reference.loss)))
        fail_msg("seed %llu, %s: loss %.17g, of one device %.17g", (unsigned long long)seed, model,
                 result.step[0].loss, reference.loss);
    check_gradients(&reference, random, model, checked);
    sbp_reference_close(&reference);
    sbp_run_free(&result);
}

static void references_hold(void **state)
{
    enum { KINDS = 6, MODELS = 12 };
    static const int kinds[KINDS] = {PERCEPTRON, RESIDUAL, GPT, GATED, LLAMA, GRIDS};
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, models = 0;
    (void)state;
    sbp_random_seed(&random, seed + 500);
    for (int tries = 0; models < MODELS && tries < MOST_TRIES; tries++) {
        struct plan plan;
        open_random(&random, kinds[models % KINDS], true, false, SBP_BOXING_FULL, SBP_F64, model,
                    &plan);
        if (plan.program->loss_buffer >= 0) {
            check_reference(&plan, model, &random, &checked);
            models++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d models, %d gradients are central differences\n",
                  (unsigned long long)seed, models, checked);
    assert_int_equal(models, MODELS);
    assert_true(checked > 5 * MODELS);
}

/* ---- a decoder, written out ---------------------------------------------------------------- */

enum { SEQUENCES = 3, PLACES = 10, TOKENS = SEQUENCES * PLACES, HIDDEN = 16, HEADS = 6, KEYS = 2 };
enum { SIZE = 6, FFN = 20, VOCABULARY = 32, BLOCKS = 3, WINDOW = 4, LAST = BLOCKS - 1 };

/* By a block's number and what follows it in the name, or by a name in no block. */
static const double *weight_of(struct sbp_reference *reference, int block, const char *name)
{
    char full[64];
    if (block < 0)
        (void)snprintf(full, sizeof full, "%s", name);
    else
        (void)snprintf(full, sizeof full, "block%d.%s", block, name);
    for (int t = 0; t < reference->graph.tensor_count; t++)
        if (strcmp(reference->graph.tensor[t].name, full) == 0)
            return sbp_reference_weight(reference, t);
    fail_msg("no weight %s", full);
    return NULL;
}

static void norm(double *y, const double *x, const double *gain, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(squares / n + 1e-5) * gain[i];
}

static void multiply(double *y, const double *x, const double *weight, int in, int out)
{
    for (int o = 0; o < out; o++) {
        y[o] = 0;
        for (int i = 0; i < in; i++)
            y[o] += x[i] * weight[i * out + o];
    }
}

/* A head's norm, and then its turn by the place in the sequence. */
static void turn(double *x, const double *gain, int place)
{
    double y[SIZE];
    norm(y, x, gain, SIZE);
    for (int i = 0; i < SIZE / 2; i++) {
        const double angle = place / pow(10000, 2.0 * i / SIZE);
        x[i] = y[i] * cos(angle) - y[i + SIZE / 2] * sin(angle);
        x[i + SIZE / 2] = y[i + SIZE / 2] * cos(angle) + y[i] * sin(angle);
    }
}

/* One head's mean of the values that the query at a place sees, from `first` on. */
static void attend(double *y, const double *q, const double *kv, double sink, int first, int place)
{
    double all = exp(sink), sum[SIZE] = {0};
    for (int j = first; j <= place; j++) {
        const double *key = kv + j * KEYS * 2 * SIZE;
        double score = 0;
        for (int i = 0; i < SIZE; i++)
            score += q[i] * key[i];
        const double p = exp(score / sqrt(SIZE));
        all += p;
        for (int i = 0; i < SIZE; i++)
            sum[i] += p * key[SIZE + i];
    }
    for (int i = 0; i < SIZE; i++)
        y[i] = sum[i] / all;
}

/* Adds to a token what its norms make of a product's output. */
static void add_normed(double *x, const double *out, const double *gain)
{
    double y[HIDDEN];
    norm(y, out, gain, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += y[i];
}

static void add_attention(struct sbp_reference *r, int block, double x[PLACES][HIDDEN])
{
    double q[PLACES][HEADS * SIZE], kv[PLACES][KEYS * 2 * SIZE], y[HEADS * SIZE], out[HIDDEN];
    for (int s = 0; s < PLACES; s++) {
        norm(out, x[s], weight_of(r, block, "norm1.gain"), HIDDEN);
        multiply(q[s], out, weight_of(r, block, "q.weight"), HIDDEN, HEADS * SIZE);
        multiply(kv[s], out, weight_of(r, block, "kv.weight"), HIDDEN, KEYS * 2 * SIZE);
        for (int h = 0; h < HEADS; h++)
            turn(q[s] + h * SIZE, weight_of(r, block, "q_norm.gain"), s);
        for (int h = 0; h < KEYS; h++)
            turn(kv[s] + h * 2 * SIZE, weight_of(r, block, "k_norm.gain"), s);
    }
    for (int s = 0; s < PLACES; s++) {
        const int first = block == LAST && s >= WINDOW ? s - WINDOW + 1 : 0;
        for (int h = 0; h < HEADS; h++)
            attend(y + h * SIZE, q[s] + h * SIZE, kv[0] + h / (HEADS / KEYS) * 2 * SIZE,
                   weight_of(r, block, "attention.sinks")[h], first, s);
        multiply(out, y, weight_of(r, block, "projection.weight"), HEADS * SIZE, HIDDEN);
        add_normed(x[s], out, weight_of(r, block, "norm1_after.gain"));
    }
}

static void add_gate(struct sbp_reference *r, int block, double *x)
{
    double normed[HIDDEN], both[2 * FFN], gated[FFN], out[HIDDEN];
    norm(normed, x, weight_of(r, block, "norm2.gain"), HIDDEN);
    multiply(both, normed, weight_of(r, block, "gate_up.weight"), HIDDEN, 2 * FFN);
    for (int i = 0; i < FFN; i++)
        gated[i] = both[2 * i] / (1 + exp(-both[2 * i])) * both[2 * i + 1];
    multiply(out, gated, weight_of(r, block, "down.weight"), FFN, HIDDEN);
    add_normed(x, out, weight_of(r, block, "norm2_after.gain"));
}

static double loss_of_token(struct sbp_reference *r, const double *x, int label)
{
    double normed[HIDDEN], logits[VOCABULARY], sum = 0;
    norm(normed, x, weight_of(r, -1, "final_norm.gain"), HIDDEN);
    multiply(logits, normed, weight_of(r, -1, "head.weight"), HIDDEN, VOCABULARY);
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp(logits[i]);
    return log(sum) - logits[label];
}

static double written_out_loss(struct sbp_reference *r)
{
    const int32_t *ids = sbp_rank_buffer(&r->rank, r->program->ids_buffer[0]);
    const int32_t *labels = sbp_rank_buffer(&r->rank, r->program->labels_buffer);
    const double *table = weight_of(r, -1, "embedding.table");
    double loss = 0, x[PLACES][HIDDEN];
    for (int first = 0; first < TOKENS; first += PLACES) {
        for (int s = 0; s < PLACES; s++)
            memcpy(x[s], table + ids[first + s] * HIDDEN, sizeof x[s]);
        for (int block = 0; block < BLOCKS; block++) {
            add_attention(r, block, x);
            for (int s = 0; s < PLACES; s++)
                add_gate(r, block, x[s]);
        }
        for (int s = 0; s < PLACES; s++)
            loss += loss_of_token(r, x[s], labels[first + s]);
    }
    return loss / TOKENS;
}

/* Gains differ from 1, so that each one shows. */
static void draw_gains(struct sbp_reference *reference, struct sbp_random *random)
{
    for (int t = 0; t < reference->graph.tensor_count; t++) {
        const char *end = strstr(reference->graph.tensor[t].name, ".gain");
        const int buffer = reference->program->weight_buffer[t];
        for (int64_t i = 0; end != NULL && i < reference->program->buffer[buffer].elements; i++)
            sbp_reference_weight(reference, t)[i] = 0.5 + sbp_random_unit(random);
    }
}

/* Groups of heads, their norms, turns and sinks, a window in the last of three blocks, gates. */
static void a_decoder_is_what_is_written_out(void **state)
{
    char model[MODEL_BYTES];
    struct plan plan;
    struct sbp_reference reference;
    struct sbp_diag diag = {0};
    struct sbp_random random;
    (void)state;
    (void)snprintf(
        model, sizeof model,
        "{\"name\": \"decoder\", \"architecture\": \"llama\", \"global_batch\": %d, "
        "\"sequence\": %d, \"layers\": %d, \"hidden\": %d, \"heads\": %d, "
        "\"kv_heads\": %d, \"head_dim\": %d, \"ffn\": %d, \"vocab\": %d, "
        "\"qk_norm\": true, \"sandwich_norm\": true, \"sinks\": true, "
        "\"attention\": \"flash\", \"window\": %d, \"window_layers\": 1, \"epsilon\": 1e-5}",
        SEQUENCES, PLACES, BLOCKS, HIDDEN, HEADS, KEYS, SIZE, FFN, VOCABULARY, WINDOW);
    sbp_random_seed(&random, seed + 520);
    plan_open(&plan, model, (const int[]){2, 0});
    const struct sbp_reference_of of = {
        .graph = &plan.graph, .cluster = &plan.cluster, .seed = seed, .real = SBP_F64};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    assert_int_equal(sbp_rank_fill_weights(&reference.rank), SBP_OK);
    assert_int_equal(sbp_rank_fill_weights(&reference.shadow), SBP_OK);
    draw_gains(&reference, &random);
    expect_ok(sbp_reference_run(&reference, 1, &diag), &diag);
    const double loss = written_out_loss(&reference);
    if (!(fabs(reference.loss - loss) <= 1e-12 * fabs(loss)))
        fail_msg("seed %llu: loss %.17g, written out %.17g", (unsigned long long)seed,
                 reference.loss, loss);
    sbp_reference_close(&reference);
    plan_close(&plan);
}

/* The root mean square of what the elements of all gradients inherit. */
static double inherited_mean(struct sbp_reference *reference)
{
    double squares = 0;
    int64_t elements = 0;
    for (int t = 0; t < reference->graph.tensor_count; t++) {
        const struct sbp_magnitude *m = reference->magnitude[t];
        for (int64_t i = 0; m != NULL && i < m->rows * m->columns; i++) {
            const double inherited = fmax(0, sbp_reference_inherited(reference, t, i));
            squares += inherited * inherited;
            elements++;
        }
    }
    return sqrt(squares / (double)elements);
}

/* Each shadow is another sample of errors of one size, beside the same gradients, and taken
 * together they show their mean. Those behind the first one look for what tokens have in common. */
static void check_shadows(struct sbp_reference *reference)
{
    double mean[SBP_SHADOWS], gradient[SBP_SHADOWS], squares = 0;
    struct sbp_diag diag = {0};
    const int tensor = reference->graph.op[0].weight[0];
    for (int i = 0; i < SBP_SHADOWS; i++) {
        reference->shadow_number = i;
        expect_ok(sbp_reference_run(reference, 1, &diag), &diag);
        mean[i] = inherited_mean(reference);
        gradient[i] = sbp_reference_gradient(reference, tensor)[0];
        assert_true(gradient[i] == gradient[0]);
        squares += mean[i] * mean[i];
        sbp_shadows_take(reference, i);
        assert_true(fabs(inherited_mean(reference) / sqrt(squares / (i + 1)) - 1) < 1e-9);
    }
    for (int i = 1; i < SBP_SHADOWS; i++) {
        const double other = mean[i + 1 < SBP_SHADOWS ? i + 1 : 1], common = mean[i] / mean[0];
        if (!(mean[i] != other && fabs(mean[i] / other - 1) < 0.2) || common < 0.8 || common > 1.35)
            fail_msg("seed %llu, %s: shadow %d shows %.6g, the next %.6g, the first %.6g",
                     (unsigned long long)seed, sbp_real_name(reference->real), i, mean[i], other,
                     mean[0]);
    }
}

/* Errors that all tokens share add up in a product whose other factor they share as well; those of
 * each token by itself do not. */
static void common_errors_add_up(void **state)
{
    enum { ROWS = 200, IN = 12, OUT = 40 };
    static double x[ROWS * IN], y[ROWS * OUT];
    static float shadow[ROWS * IN];
    const struct sbp_deviating erring = {x, shadow, ROWS, IN}, other = {y, NULL, ROWS, OUT};
    double factor[2], spread;
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 530);
    for (int i = 0; i < ROWS * OUT; i++)
        y[i] = 1 + 0.1 * sbp_random_unit(&random);
    for (int together = 0; together < 2; together++) {
        for (int i = 0; i < ROWS * IN; i++)
            shadow[i] = (float)(together ? 0.01 * (1 + i % IN) : sbp_random_unit(&random) - 0.5);
        assert_int_equal(sbp_together_product(&erring, &other, &factor[together]), SBP_OK);
    }
    spread = 4 * sqrt(2.0 / IN); /* of squares of sums of random terms */
    if (factor[0] > 1 + spread || fabs(factor[1] / ROWS - 1) > 0.7)
        fail_msg("seed %llu: factors %g and %g, not 1 and %d", (unsigned long long)seed, factor[0],
                 factor[1], ROWS);
}

static void shadows_are_samples(void **state)
{
    static const char *const models[] = {
        "{\"name\": \"m\", \"architecture\": \"gpt\", \"global_batch\": 8, \"sequence\": 32, "
        "\"layers\": 2, \"hidden\": 64, \"heads\": 4, \"ffn\": 128, \"vocab\": 96}",
        "{\"name\": \"m\", \"global_batch\": 96, \"sequence\": 1, \"input\": \"split\", "
        "\"layers\": ["
        "{\"op\": \"linear\", \"in\": 64, \"out\": 96}, {\"op\": \"relu\"}, "
        "{\"op\": \"linear\", \"out\": 48}, {\"op\": \"relu\"}, {\"op\": \"linear\", \"out\": "
        "32}]}"};
    static const enum sbp_real reals[] = {SBP_REAL_BF16, SBP_REAL_FP16};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sbp_reference reference;
        struct sbp_diag diag = {0};
        struct plan plan;
        plan_open(&plan, models[i / 2], (const int[]){2, 0});
        const struct sbp_reference_of of = {
            .graph = &plan.graph, .cluster = &plan.cluster, .seed = seed, .real = reals[i % 2]};
        expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
        assert_int_equal(sbp_rank_fill_weights(&reference.rank), SBP_OK);
        assert_int_equal(sbp_rank_fill_weights(&reference.shadow), SBP_OK);
        check_shadows(&reference);
        sbp_reference_close(&reference);
        plan_close(&plan);
    }
}

/* Every table of a model reads the samples' ids: the same where it has as many rows. */
static void tables_read_the_same_ids(void **state)
{
    enum { ROWS = 97, SAMPLES = 8, IDS = 5 };
    static const char model[] =
        "{\"name\": \"tables\", \"architecture\": \"wide-deep\", \"global_batch\": 8, "
        "\"sequence\": 5, \"vocab\": 97, \"hidden\": 4, \"features\": 3, \"layers\": 2, "
        "\"ffn\": 8, \"precision\": \"fp32\"}";
    struct sbp_reference reference;
    struct sbp_diag diag = {0};
    struct plan plan;
    const int32_t *ids[2];
    int tables = 0, sum = 0;
    (void)state;
    plan_open(&plan, model, (const int[]){2, 0});
    const struct sbp_reference_of of = {
        .graph = &plan.graph, .cluster = &plan.cluster, .seed = seed, .real = SBP_F64};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    expect_ok(sbp_rank_begin_micro_batch(&reference.rank, 0, &diag), &diag);
    for (int op = 0; op < plan.graph.op_count; op++)
        if (plan.graph.op[op].kind == SBP_OP_EMBEDDING && tables < 2)
            ids[tables++] = sbp_rank_buffer(&reference.rank, reference.program->ids_buffer[op]);
    assert_int_equal(tables, 2);
    for (int i = 0; i < SAMPLES * IDS; i++) {
        assert_true(ids[0][i] >= 0 && ids[0][i] < ROWS && ids[1][i] == ids[0][i]);
        sum += ids[0][i];
    }
    assert_true(sum > SAMPLES * IDS * ROWS / 4);
    sbp_reference_close(&reference);
    plan_close(&plan);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
/* Bytes that the C library has handed out; sanitizers hand out their own. */
static double allocated(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

static void check_counted(bool is_sampled, enum sbp_real real, double operands)
{
    static const char model[] =
        "{\"name\": \"large\", \"precision\": \"fp32\", \"global_batch\": 256, \"sequence\": 1, "
        "\"input\": \"free\", \"layers\": [{\"op\": \"linear\", \"name\": \"fc1\", "
        "\"in\": 2048, \"out\": 1024}, {\"op\": \"gelu\"}, {\"op\": \"linear\", "
        "\"name\": \"fc2\", \"out\": 512}, {\"op\": \"cross_entropy\"}]}";
    struct sbp_reference reference;
    struct sbp_diag diag = {0};
    struct plan plan;
    double counted;
    plan_open(&plan, model, (const int[]){2, 0});
    const double before = allocated();
    const struct sbp_reference_of of = {.graph = &plan.graph,
                                        .cluster = &plan.cluster,
                                        .seed = 1,
                                        .real = real,
                                        .is_sampled = is_sampled};
    expect_ok(sbp_reference_open(&reference, &of, &diag), &diag);
    const double taken = allocated() - before;
    expect_ok(sbp_reference_bytes(&of, &counted, &diag), &diag);
    if (before > 0 && !(fabs(taken + operands - counted) <= 0.01 * counted))
        fail_msg("sampled %d: opening takes %.0f bytes, counted are %.0f with %.0f of operands",
                 is_sampled, taken, counted, operands);
    sbp_reference_close(&reference);
    plan_close(&plan);
}

/* Counted from compiled programs: what opening allocates, the operands of one product, of which a
 * sample has 32 features, and 64 sums for each feature of its wider one. */
static void counted_bytes_are_allocated(void **state)
{
    (void)state;
    const double operands = 256 * (2048 + 1024) * 8 + 64 * 2048 * 8;
    check_counted(false, SBP_F32, operands);
    check_counted(false, SBP_REAL_BF16, operands);
    check_counted(true, SBP_F32, 256 * (2048 * 8 + 32 * 20));
}
#else
static void counted_bytes_are_allocated(void **state)
{
    (void)state;
    skip();
}
#endif

/* ---- updates ------------------------------------------------------------------------------- */

static struct sbp_update random_update(struct sbp_random *random)
{
    return (struct sbp_update){.optimizer = (enum sbp_optimizer)sbp_random_below(random, 3),
                               .learning_rate = 0.1 * sbp_random_unit(random),
                               .momentum = sbp_random_below(random, 2) ? 0.9 : 0,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .weight_decay = sbp_random_below(random, 2) ? 0.1 : 0,
                               .gradient_scale = sbp_random_below(random, 2) ? 1 : 0.3,
                               .loss_scale = 1,
                               .step = 1 + (int64_t)sbp_random_below(random, 5)};
}

/* A value of any size, so that gradients cancel against decay and moments, and vanish. */
static float random_value(struct sbp_random *random)
{
    const double power = 24 * sbp_random_unit(random) - 20;
    const double value = sbp_random_below(random, 16) == 0 ? 0 : pow(10, power);
    return (float)(sbp_random_below(random, 2) ? value : -value);
}

static bool off_bound(double run, double reference, double bound)
{
    return !(fabs(run - reference) <= bound);
}

/* The single-precision kernel stays within the textbook's bound; a rate off by 1 % does not. */
static void updates_follow_the_textbook(void **state)
{
    enum { ROUNDS = 20000 };
    const struct sbp_kernels *kernels = sbp_kernels_cpu(SBP_F32);
    struct sbp_random random;
    int found = 0, moved = 0;
    (void)state;
    sbp_random_seed(&random, seed + 7);
    for (int i = 0; i < ROUNDS; i++) {
        struct sbp_update update = random_update(&random);
        const struct sbp_textbook textbook = sbp_textbook_make(&update, 0x1p-24);
        const float gradient = random_value(&random);
        float weight = random_value(&random), first = random_value(&random);
        float second = fabsf(random_value(&random));
        const struct sbp_parameter before = {(double)weight, (double)first, (double)second};
        float wrong[3] = {weight, first, second};
        struct sbp_parameter after, bound;
        sbp_textbook_update(&textbook, (double)gradient, &before, &after, &bound);
        kernels->update(&weight, NULL, &gradient, NULL, &first, &second, 1, &update, NULL);
        if (off_bound((double)weight, after.weight, bound.weight) ||
            off_bound((double)first, after.first, bound.first) ||
            off_bound((double)second, after.second, bound.second))
            fail_msg("seed %llu, optimizer %d, step %lld, w %g m %g v %g g %g: kernel (%.9g, %.9g, "
                     "%.9g), textbook (%.9g, %.9g, %.9g), bounds (%.3g, %.3g, %.3g)",
                     (unsigned long long)seed, (int)update.optimizer, (long long)update.step,
                     before.weight, before.first, before.second, (double)gradient, (double)weight,
                     (double)first, (double)second, after.weight, after.first, after.second,
                     bound.weight, bound.first, bound.second);
        update.learning_rate *= 1.01;
        kernels->update(&wrong[0], NULL, &gradient, NULL, &wrong[1], &wrong[2], 1, &update, NULL);
        if (fabs(after.weight - before.weight) > 1e-3 * fabs(before.weight)) {
            moved++;
            found += off_bound((double)wrong[0], after.weight, bound.weight);
        }
    }
    assert_true(moved > ROUNDS / 20);
    assert_true(found > moved * 9 / 10);
}

/* Updates of 16-bit weights are those of their master copies, whose rounded values they become. */
static void updates_of_16_bits_are_their_masters(void **state)
{
    enum { ROUNDS = 2000 };
    static const enum sbp_real reals[] = {SBP_REAL_BF16, SBP_REAL_FP16};
    const struct sbp_kernels *wide = sbp_kernels_cpu(SBP_F32);
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 8);
    for (int i = 0; i < ROUNDS; i++) {
        const struct sbp_kernels *kernels = sbp_kernels_cpu(reals[i % 2]);
        const struct sbp_update update = random_update(&random);
        const float drawn = random_value(&random), weight = random_value(&random);
        const float first = random_value(&random), second = fabsf(random_value(&random));
        double gradient16, weight16, rounded; /* room for any real */
        float converted, own[3] = {weight, first, second}, master[3] = {weight, first, second};
        kernels->from_wide(&gradient16, &drawn, 1);
        const float gradient = (float)sbp_half_get(reals[i % 2], &gradient16, 0);
        wide->update(&own[0], NULL, &gradient, NULL, &own[1], &own[2], 1, &update, NULL);
        kernels->update(&weight16, &master[0], &gradient16, &converted, &master[1], &master[2], 1,
                        &update, NULL);
        kernels->from_wide(&rounded, &own[0], 1);
        if (memcmp(own, master, sizeof own) != 0 ||
            memcmp(&weight16, &rounded, sizeof(uint16_t)) != 0)
            fail_msg("seed %llu, optimizer %d: masters (%g, %g, %g), in 32 bits (%g, %g, %g)",
                     (unsigned long long)seed, (int)update.optimizer, (double)master[0],
                     (double)master[1], (double)master[2], (double)own[0], (double)own[1],
                     (double)own[2]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_hold),
        cmocka_unit_test(a_decoder_is_what_is_written_out),
        cmocka_unit_test(common_errors_add_up),
        cmocka_unit_test(shadows_are_samples),
        cmocka_unit_test(tables_read_the_same_ids),
        cmocka_unit_test(counted_bytes_are_allocated),
        cmocka_unit_test(updates_follow_the_textbook),
        cmocka_unit_test(updates_of_16_bits_are_their_masters),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
