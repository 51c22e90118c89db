/* Operators without a product: what they read and write, and what all operators keep for backward,
 * against what autograd keeps.
 */
#include "tests/support/op_bench.h"
#include "tests/support/unit.h"

static void make_single(struct bench *bench, enum sbp_op_kind kind, int64_t inner)
{
    bench_open(bench, kind);
    bench_input(bench, 4, 6, 12, inner);
    if (kind == SBP_OP_CROSS_ENTROPY) {
        bench->node.output = -1;
        return;
    }
    for (int w = 0; w < sbp_op(kind)->weights; w++)
        bench_weight(bench, 1, 1, 12, 1);
    bench_output(bench, 4, 6, 12, 1);
}

/* Scalars a token: layer norm (sum, sum of squares), rms norm the squares; backward as many.
 * Cross-entropy: a maximum, then the sum of exponentials and the target's logit. */
static void test_statistics(void **state)
{
    (void)state;
    const struct {
        enum sbp_op_kind kind;
        const char *role;
        double forward, backward;
        int calls;
    } rows[] = {{SBP_OP_LAYERNORM, "hidden", 2, 2, 1},
                {SBP_OP_RMSNORM, "hidden", 1, 1, 1},
                {SBP_OP_CROSS_ENTROPY, "vocab", 3, 0, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, 1);
        const struct ways *ways = WAYS({"batch", 2}, {rows[i].role, 3});
        must_move("forward", moved_by(&bench, ways, rows[i].role, SBP_PASS_FORWARD, SBP_ALL_REDUCE),
                  rows[i].forward * 12, rows[i].calls);
        must_move("backward",
                  moved_by(&bench, ways, rows[i].role, SBP_PASS_INPUT_GRADIENT, SBP_ALL_REDUCE),
                  rows[i].backward * 12, rows[i].backward > 0 ? 1 : 0);
        must_move(
            "tokens alone",
            moved_by(&bench, WAYS({"batch", 4}), rows[i].role, SBP_PASS_FORWARD, SBP_ALL_REDUCE), 0,
            0);
    }
    /* Statistics of batch norm are the device's own: nothing is said. */
    struct bench bench;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    make_single(&bench, SBP_OP_BATCHNORM, 5);
    const struct sbp_factor factor = factor_of(&bench, WAYS({"batch", 2}, {"channel", 3}));
    assert_int_equal(sbp_op_inner(&bench.graph, 0, &factor, inner), 0);
}

/* Elements in and out of memory: what a kernel of its own reads and writes. */
static void test_streams(void **state)
{
    (void)state;
    const double n = 4 * 6 * 12;
    const struct {
        enum sbp_op_kind kind;
        int64_t inner;
        double forward, backward, mask;
    } rows[] = {
        {SBP_OP_RELU, 1, n + n, 2 * n + n, 0},           /* x, y; x, dy, dx */
        {SBP_OP_SWIGLU, 2, 2 * n + n, 3 * n + 2 * n, 0}, /* {gate, up}, y; those, dy, their d */
        {SBP_OP_RMSNORM, 1, 2 * n + n, 4 * n + n, 0},    /* x twice, y; x, dy twice, dx */
        {SBP_OP_BATCHNORM, 1, 2 * n + n, 4 * n + n, 0},
        {SBP_OP_DROPOUT, 1, n + n, n + n, n}, /* and a byte an element */
        {SBP_OP_FLATTEN, 1, n + n, n + n, 0},
        {SBP_OP_TANH, 1, n + n, 2 * n + n, 0}, /* backward: y, dy, dx */
        {SBP_OP_ROTARY, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, rows[i].inner);
        const struct sbp_work forward = work_of(&bench, SBP_PASS_FORWARD, WAYS({"batch", 2}));
        const struct sbp_work backward = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
        must_equal("forward", forward.elements * 2, rows[i].forward);
        must_equal("backward", backward.elements, rows[i].backward);
        must_equal("mask", forward.bytes * 2, rows[i].mask);
        must_equal("mask", backward.bytes, rows[i].mask);
        must_equal("with the input's", work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, WHOLE).elements,
                   0);
    }
}

/* Operations that kernels execute of an element; a calibration times those of GELU. */
static void test_operations(void **state)
{
    (void)state;
    const double n = 4 * 6 * 12;
    const struct {
        enum sbp_op_kind kind;
        double forward, backward;
    } rows[] = {
        {SBP_OP_GELU, SBP_DEVICE_GELU_OPERATIONS * n, 28 * n},
        {SBP_OP_DROPOUT, 32 * n, 2 * n},
        {SBP_OP_RELU, n, n},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, 1);
        const struct sbp_work forward = work_of(&bench, SBP_PASS_FORWARD, WAYS({"batch", 2}));
        const struct sbp_work backward = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
        must_equal("forward", forward.vector_operations * 2, rows[i].forward);
        must_equal("backward", backward.vector_operations, rows[i].backward);
    }
}

static void make_pool(struct bench *bench, enum sbp_op_kind kind, int64_t kernel)
{
    bench_open(bench, kind);
    bench_input(bench, 4, 18, 6, 18);
    bench_output(bench, 4, 18 / kernel, 6, 18 / kernel);
    for (int side = 0; side < 2; side++)
        bench->node.window.kernel[side] = bench->node.window.stride[side] = kernel;
}

static void test_pools(void **state)
{
    (void)state;
    const double in = 4 * 18 * 6 * 18;
    struct bench bench;
    make_pool(&bench, SBP_OP_MAXPOOL, 3);
    struct sbp_work work = work_of(&bench, SBP_PASS_FORWARD, WAYS({"batch", 2}, {"channel", 3}));
    must_equal("comparisons", work.vector_flops * 6, in); /* windows side by side */
    must_equal("elements", work.elements * 6, in + in / 9);
    must_equal("indices", work.bytes * 6, in / 9);
    must_equal("kept", kept_of(&bench, WHOLE).bytes, in / 9);
    work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
    must_equal("one element a window", work.vector_flops, in / 9);
    make_pool(&bench, SBP_OP_MAXPOOL, 18); /* 324 places do not fit a byte */
    must_equal("kept", kept_of(&bench, WHOLE).bytes, 4 * in / 324);
    make_pool(&bench, SBP_OP_AVGPOOL, 3);
    must_equal("additions", work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE).vector_flops, in);
    must_equal("kept", kept_of(&bench, WHOLE).bytes, 0);
}

/* --- what is kept --- */

/* Against PyTorch's autograd (tools/autograd/derivatives.yaml), per element n of the input, row t
 * of it (batch x sequence) and channel c; inputs as in `inputs`.
 *
 *   operator        PyTorch keeps                     here
 *   relu            result                            input: as large, not shared with its reader
 *   gelu            self                              the same
 *   dropout         mask (bool)                       the same
 *   layernorm       input, mean, rstd                 the same
 *   rmsnorm         input, rstd (fused)               the same
 *   batchnorm       input, save_mean, save_invstd     the same
 *   swiglu          gate, up, silu(gate) (two ops)    gate, up: one kernel (Megatron-LM's)
 *   maxpool         self, indices (8 bytes)           a byte an output: its place in the window
 *   avgpool         self (for its shape)              nothing
 *   flatten, add    nothing                           the same
 *   rotary          cosines and sines (a table)       nothing
 *   cross_entropy   log_softmax result                logits, as large; three numbers a row
 *   linear, conv2d  input, weight                     the same (conv2d: halo rows besides)
 *   attention       q, k, v, probabilities; mask and  the same, and the output, which the next
 *                   their product with dropout        linear keeps anyway
 *   flash           q, k, v, output, log-sum-exp      the same
 */
static void test_kept(void **state)
{
    (void)state;
    const double n = 4 * 6 * 12, t = 4 * 6, c = 12;
    const struct {
        enum sbp_op_kind kind;
        int64_t inner;
        unsigned inputs;
        double statistics, bytes;
    } rows[] = {
        {SBP_OP_RELU, 1, 1, 0, 0},    {SBP_OP_GELU, 1, 1, 0, 0},
        {SBP_OP_DROPOUT, 1, 0, 0, n}, {SBP_OP_LAYERNORM, 1, 1, 2 * t, 0},
        {SBP_OP_RMSNORM, 1, 1, t, 0}, {SBP_OP_BATCHNORM, 5, 1, 2 * c, 0},
        {SBP_OP_SWIGLU, 2, 1, 0, 0},  {SBP_OP_AVGPOOL, 1, 0, 0, 0},
        {SBP_OP_FLATTEN, 1, 0, 0, 0}, {SBP_OP_ROTARY, 1, 0, 0, 0},
        {SBP_OP_ADD, 1, 0, 0, 0},     {SBP_OP_CROSS_ENTROPY, 1, 1, 3 * t, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, rows[i].inner);
        const struct sbp_op_kept whole = kept_of(&bench, WHOLE);
        const struct sbp_op_kept half = kept_of(&bench, WAYS({"batch", 2}));
        assert_int_equal(whole.inputs, rows[i].inputs);
        assert_false(whole.output);
        must_equal(sbp_op(rows[i].kind)->name, whole.statistics, rows[i].statistics);
        must_equal(sbp_op(rows[i].kind)->name, whole.bytes, rows[i].bytes);
        if (rows[i].kind != SBP_OP_BATCHNORM) /* numbers a channel do not share out */
            must_equal(sbp_op(rows[i].kind)->name, half.statistics * 2, rows[i].statistics);
    }
}

/* A root a head and token; tanh's derivative is 1 - y^2. */
static void test_kept_others(void **state)
{
    (void)state;
    struct bench bench;
    make_single(&bench, SBP_OP_HEAD_NORM, 5);
    struct sbp_op_kept kept = kept_of(&bench, WAYS({"head", 3}));
    assert_int_equal(kept.inputs, 1);
    must_equal("head norm", kept.statistics, 4 * 6 * 12 / 3.0);
    make_single(&bench, SBP_OP_TANH, 1);
    kept = kept_of(&bench, WHOLE);
    assert_true(kept.output && kept.inputs == 0);
    make_single(&bench, SBP_OP_FIRST_TOKEN, 1);
    bench.tensor[bench.node.output].shape.size[SBP_DIM_SEQUENCE] = 1;
    kept = kept_of(&bench, WHOLE);
    assert_true(!kept.output && kept.inputs == 0);
    must_equal("copy a token", work_of(&bench, SBP_PASS_FORWARD, WHOLE).elements, 2 * 4 * 12);
    must_equal("among zeros", work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE).elements,
               4 * 12 + 4 * 6 * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_streams),
        cmocka_unit_test(test_operations), cmocka_unit_test(test_pools),
        cmocka_unit_test(test_kept),       cmocka_unit_test(test_kept_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
