/* Convolutions by rows of images, which ranks fetch of each other, against one device. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "costmodel/model/halo.h"
#include "run_checks.h"

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

/* ---- what plans have ------------------------------------------------------------------------- */

/* Convolutions that are split by rows. */
struct seen {
    int plans, split;
    int uneven; /* of which members have another share of the outputs' rows than of the images' */
    int beyond; /* of which windows reach past the neighbours */
    int two;    /* split by two axes or more */
    int of[9];  /* by how many members */
    int again, several, staged; /* recomputed, of several micro-batches, in stages */
};

static sbp_axes height_axes(const struct plan *plan, int op)
{
    const int height = sbp_op_role(sbp_op(SBP_OP_CONV2D), "height");
    return plan->graph.op[op].kind != SBP_OP_CONV2D
               ? 0
               : sbp_strategy_axes(&plan->graph, &plan->mesh, &plan->strategy, op, 1u << height);
}

static int count_bits(sbp_axes axes)
{
    int bits = 0;
    for (; axes != 0; axes &= axes - 1)
        bits++;
    return bits;
}

static void count_split(const struct plan *plan, struct seen *seen)
{
    seen->plans++;
    for (int op = 0; op < plan->graph.op_count; op++) {
        const sbp_axes axes = height_axes(plan, op);
        const int64_t members = sbp_mesh_group_size(&plan->mesh, axes);
        if (members < 2)
            continue;
        const struct sbp_halo halo =
            sbp_halo_of(&plan->graph, &plan->graph.op[op], (double)members);
        seen->split++;
        seen->uneven += halo.out_rows * halo.stride != halo.rows;
        seen->beyond += halo.most.above > halo.rows || halo.most.below > halo.rows;
        seen->two += count_bits(axes) > 1;
        seen->of[members]++;
        seen->again += plan->parallel.recompute == SBP_RECOMPUTE_FULL;
        seen->several += plan->step.micro_batches > 1;
        seen->staged += plan->step.stages > 1;
    }
}

static void print_seen(enum sbp_real real, const struct seen *seen, double worst)
{
    print_message(
        "seed %llu, %s: %d plans, %d convolutions by rows: %d, %d, %d, %d, %d of 2, 3, "
        "4, 6, 8 members, %d of two axes, %d uneven, %d beyond neighbours; %d recomputed, "
        "%d of several micro-batches, %d in stages; largest difference / bound %.3f\n",
        (unsigned long long)seed, sbp_real_name(real), seen->plans, seen->split, seen->of[2],
        seen->of[3], seen->of[4], seen->of[6], seen->of[8], seen->two, seen->uneven, seen->beyond,
        seen->again, seen->several, seen->staged, worst);
}

/* ---- random plans ---------------------------------------------------------------------------- */

struct window {
    int kernel, stride, padding, height; /* of the images */
};

/* A window that makes so many rows; rows at the end may be left that none reaches. */
static struct window random_window(struct sbp_random *random, int rows)
{
    static const int kernels[] = {1, 2, 3, 3, 5, 7};
    struct window w;
    do {
        w.kernel = kernels[below(random, 6)];
        w.stride = 1 + below(random, 3);
        w.padding = below(random, w.kernel);
        w.height = (rows - 1) * w.stride + w.kernel - 2 * w.padding + below(random, w.stride);
    } while (w.height < 4 || (w.height % 2 != 0 && w.height % 3 != 0));
    return w;
}

static void add_conv(struct sbp_random *random, const char *name, const struct window *w,
                     struct sbp_text *text)
{
    sbp_text_add(text,
                 "{\"op\": \"conv2d\", \"name\": \"%s\", \"out\": 24, \"kernel\": [%d, 3], "
                 "\"stride\": [%d, 1], \"padding\": [%d, 1], \"bias\": %s}, ",
                 name, w->kernel, w->stride, w->padding, below(random, 2) ? "true" : "false");
}

/* Three convolutions, the second one in a sum with its own input; of images of few rows kernels
 * reach past neighbours. */
static void random_images(struct sbp_random *random, enum sbp_real real, char *model)
{
    static const int heights[] = {24, 24, 12, 8};
    const int rows = heights[below(random, 4)], half = 1 + below(random, 3);
    const struct window first = random_window(random, rows);
    const struct window second = {2 * half + 1, 1, half, rows}, last = {3, 2, 1, rows};
    const bool is_short = sbp_real_bytes(real) < 4;
    const char *norm = !is_short && below(random, 2) ? "{\"op\": \"batchnorm\"}, " : "";
    const char *pool = is_short || below(random, 2) ? "{\"op\": \"flatten\"}"
                                                    : "{\"op\": \"avgpool\", \"global\": true}";
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "{\"name\": \"images\", \"global_batch\": 24, \"optimizer\": \"adam\", "
                 "\"clip_norm\": %s, \"input\": {\"height\": %d, \"width\": %d, \"channels\": "
                 "%d, \"split\": %s}, \"layers\": [",
                 below(random, 2) ? "0.5" : "0", first.height, 2 + below(random, 3),
                 below(random, 2) ? 24 : 12, below(random, 2) ? "true" : "false");
    add_conv(random, "first", &first, &text);
    sbp_text_add(&text, "%s{\"op\": \"relu\", \"name\": \"x\"}, ", norm);
    add_conv(random, "second", &second, &text);
    sbp_text_add(&text, "{\"op\": \"add\", \"inputs\": [\"second\", \"x\"]}, ");
    add_conv(random, "last", &last, &text);
    sbp_text_add(&text, "%s, {\"op\": \"linear\", \"out\": 24}, {\"op\": \"cross_entropy\"}]}",
                 pool);
    assert_false(text.failed);
    assert_true(snprintf(model, MODEL_BYTES, "%s", text.bytes) < MODEL_BYTES);
    sbp_text_free(&text);
}

/* Micro-batches, ZeRO, owners and recomputation in three of four plans of longer types. */
static void check_plans(enum sbp_real real, int plans, struct seen *seen)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 2100 + (uint64_t)real);
    for (int i = 0; i < plans; i++) {
        struct plan plan;
        random_images(&random, real, model);
        plan_open(&plan, model, random_levels(&random));
        if (i % 4 != 0 && sbp_real_bytes(real) > 2) {
            plan_cut_step(&plan, &random);
            plan_draw_owner(&plan, random);
        }
        plan_randomise(&plan, &random, i % 2 == 0, SBP_BOXING_FULL, real);
        struct sbp_run_options options = options_for(real, &random);
        options.steps = real == SBP_REAL_FP16 ? 8 : 2;
        check_run(&plan, &options, model, &worst);
        count_split(&plan, seen);
        plan_close(&plan);
    }
    print_seen(real, seen, worst);
}

static void double_precision_equals_one_device(void **state)
{
    struct seen seen = {0};
    const int plans = draws(84);
    (void)state;
    check_plans(SBP_F64, plans, &seen);
    assert_true(plans < 84 || (seen.of[2] > 10 && seen.of[3] > 2 && seen.of[4] + seen.of[6] > 0 &&
                               seen.uneven > 4 && seen.again > 4 && seen.several > 10));
}

static void shorter_types_equal_one_device(void **state)
{
    static const enum sbp_real reals[] = {SBP_F32, SBP_REAL_BF16, SBP_REAL_FP16};
    const int plans = draws(16);
    (void)state;
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        struct seen seen = {0};
        check_plans(reals[i], plans, &seen);
        assert_true(plans < 16 || seen.split > 2);
    }
}

static void stages_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct seen seen = {0};
    double worst = 0;
    const int plans = draws(30);
    (void)state;
    sbp_random_seed(&random, seed + 2150);
    for (int tries = 0; seen.plans < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_images(&random, SBP_F64, model);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 3 == 2 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F64);
            const struct sbp_run_options options = options_for(SBP_F64, &random);
            check_run(&plan, &options, model, &worst);
            count_split(&plan, &seen);
        }
        plan_close(&plan);
    }
    print_seen(SBP_F64, &seen, worst);
    assert_int_equal(seen.plans, plans);
    assert_true(plans < 30 || (seen.split > 10 && seen.staged > 6 && seen.several > 6));
}

/* ---- every window ---------------------------------------------------------------------------- */

/* One convolution of images whose gradient is formed, all of it split by rows. */
static void open_window(const struct window *w, int levels, enum sbp_real real, struct plan *plan)
{
    const int mesh[][3] = {{levels, 0, 0}, {2, levels / 2, 0}};
    char model[MODEL_BYTES];
    struct sbp_diag diag = {0};
    (void)snprintf(model, sizeof model,
                   "{\"name\": \"window\", \"global_batch\": 2, \"input\": {\"height\": %d, "
                   "\"width\": 3, \"channels\": 2, \"split\": true}, \"layers\": [{\"op\": "
                   "\"conv2d\", \"name\": \"c\", \"out\": 2, \"kernel\": [%d, 2], \"stride\": "
                   "[%d, 1], \"padding\": [%d, 1], \"bias\": true}]}",
                   w->height, w->kernel, w->stride, w->padding);
    plan_open(plan, model, mesh[levels == 4]);
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    plan->strategy.rest[plan->graph.input] = sbp_dist_all(SBP_STATE_S(SBP_DIM_SEQUENCE));
    plan->strategy.rest[plan->graph.op[0].output] = sbp_dist_all(SBP_STATE_S(SBP_DIM_SEQUENCE));
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        plan->strategy.op[0].role[axis] = (uint8_t)sbp_op_role(sbp_op(SBP_OP_CONV2D), "height");
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
}

static bool next_window(struct window *w, int most_stride)
{
    if (++w->padding < w->kernel)
        return true;
    w->padding = 0;
    if (++w->stride <= most_stride)
        return true;
    w->stride = 1;
    return ++w->kernel <= 7;
}

static void check_heights(struct window w, int members, enum sbp_real real, struct seen *seen,
                          double *worst)
{
    char text[64];
    struct sbp_random random;
    sbp_random_seed(&random, seed + 2200);
    for (w.height = members; w.height <= 4 * members; w.height += members) {
        struct plan plan;
        const int room = w.height + 2 * w.padding - w.kernel;
        if (room < 0 || (room / w.stride + 1) % members != 0)
            continue;
        (void)snprintf(text, sizeof text, "kernel %d, stride %d, padding %d, height %d", w.kernel,
                       w.stride, w.padding, w.height);
        open_window(&w, members, real, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, text, worst);
        count_split(&plan, seen);
        plan_close(&plan);
    }
}

/* Kernels of 1 to 7 rows, strides of 1 to 3 and all paddings, of 1 to 4 rows a member. */
static void every_window_equals_one_device(void **state)
{
    struct seen seen = {0};
    struct window w = {1, 1, 0, 0};
    double worst = 0;
    (void)state;
    do
        for (int members = 2; members <= 4; members++)
            check_heights(w, members, SBP_F64, &seen, &worst);
    while (next_window(&w, 3));
    print_seen(SBP_F64, &seen, worst);
    assert_true(seen.beyond > 20 && seen.uneven > 20 && seen.two > 20);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Leaves out each message of rows by itself, and returns how many there were. */
static int skip_each(const struct plan *plan, const char *window, struct sbp_random *random)
{
    int skipped = 0;
    for (int i = 0; i < plan->program->instr_count; i++) {
        struct sbp_run_options options = options_for(SBP_F64, random);
        struct sbp_run_result result;
        if (plan->program->instr[i].kind != SBP_INSTR_INNER)
            continue;
        plant_fault(&options, SBP_FAULT_SKIP, 0, i);
        run_plan(plan, &options, window, &result);
        if (!result.finding.found)
            fail_msg("%s: instruction %d went unnoticed", window, i);
        skipped++;
        sbp_run_free(&result);
    }
    return skipped;
}

/* Rows, or their gradients, that are not exchanged: both ways in every window. */
static void faults_are_found(void **state)
{
    static const struct window windows[] = {
        {3, 1, 1, 12}, {7, 2, 3, 24}, {5, 1, 0, 16}, {7, 1, 3, 4}, {4, 2, 1, 16}};
    struct sbp_random random;
    int found = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2250);
    for (size_t n = 0; n < 2 * sizeof windows / sizeof windows[0]; n++) {
        char text[64];
        struct plan plan;
        const struct window *w = &windows[n / 2];
        const int members = n % 2 == 0 ? 2 : 4;
        (void)snprintf(text, sizeof text, "kernel %d, %d members", w->kernel, members);
        assert_int_equal(w->height % members, 0);
        open_window(w, members, SBP_F64, &plan);
        const int skipped = skip_each(&plan, text, &random);
        assert_true(skipped >= 2);
        found += skipped;
        plan_close(&plan);
    }
    print_message("%d faults found\n", found);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_equals_one_device),
        cmocka_unit_test(double_precision_equals_one_device),
        cmocka_unit_test(shorter_types_equal_one_device),
        cmocka_unit_test(stages_equal_one_device),
        cmocka_unit_test(faults_are_found),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
