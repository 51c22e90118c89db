/* Settings that decide where and when work is done, and not what is summed in which order, train
 * the same bits: ZeRO levels, recomputation, boxing, stages.
 *
 * `threads` folds a sum over ranks in the order of the group, whatever the collective. So two plans
 * of one split agree to the bit where they add the same terms in the same order; where they do not
 * by design, the tests say so and see that bits do differ: a comparison that finds nothing then
 * would find nothing ever. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run_checks.h"
#include "trained.h"

enum { STEPS = 3 };

/* ---- plans and their variants -------------------------------------------------------------- */

/* A random plan, in stages where `staged`; false: it has none. Now and then widths leave padding in
 * shards. Models without a loss, whose gradients are no means over tokens, learn more slowly, or
 * they would leave all numbers. */
static bool open_drawn(struct sbp_random *random, int index, bool staged, char *model,
                       struct plan *plan)
{
    const bool odd = index % 8 == 4;
    random_model(random, odd ? ODD : kind_of(index), model, MODEL_BYTES);
    plan_open(plan, model, odd ? (const int[]){4, 0} : random_levels(random));
    if (!staged)
        plan_cut_step(plan, random);
    else if (!plan_cut_stages(plan, random))
        return false;
    if (plan->graph.loss < 0)
        plan->graph.training.update.learning_rate *= 1e-5;
    plan_randomise(plan, random, index % 2 == 0 && !odd, SBP_BOXING_FULL, SBP_F32);
    return true;
}

/* Levels from `least` to `most`, those of a table and the head that is tied to it alike. */
static void draw_levels(const struct plan *plan, struct sbp_random *random, int least, int most,
                        uint8_t *zero)
{
    const struct sbp_graph *graph = &plan->graph;
    int table_user = 0;
    for (int op = 0; op < graph->op_count; op++) {
        zero[op] = (uint8_t)(least + (int)sbp_random_below(random, (uint64_t)(most - least + 1)));
        if (graph->op[op].kind == SBP_OP_EMBEDDING)
            table_user = op;
        if (graph->op[op].transposed_weight)
            zero[op] = zero[table_user];
    }
}

/* The plan's step with other levels, another way to cut it, or another boxing. */
static void make_variant(const struct plan *plan, const struct sbp_parallel *parallel,
                         uint8_t *zero, enum sbp_boxing_mode boxing, struct sbp_step *step)
{
    struct sbp_strategy strategy = plan->strategy;
    strategy.zero = zero;
    strategy.boxing = boxing;
    plan_step(plan, parallel, &strategy, SBP_F32, step);
}

static void train_variant(const struct plan *plan, const struct sbp_parallel *parallel,
                          uint8_t *zero, enum sbp_boxing_mode boxing, struct trained *trained)
{
    struct sbp_step step;
    make_variant(plan, parallel, zero, boxing, &step);
    train(&step, STEPS, seed, trained);
    sbp_step_free(&step);
}

static void expect_alike(const struct plan *plan, const char *model, const char *what,
                         const struct trained *base, const struct trained *other)
{
    char text[256];
    if (trained_alike(base, other, text, (int)sizeof text))
        return;
    describe_plan(plan, model);
    fail_msg("%s, %d stages, %lld micro-batches: %s", what, plan->step.stages,
             (long long)plan->step.micro_batches, text);
}

/* ---- ZeRO ---------------------------------------------------------------------------------- */

static struct trained train_levels(struct plan *plan, struct sbp_random *random, int least,
                                   int most)
{
    struct trained trained;
    uint8_t *zero = SBP_NEW(&plan->arena, uint8_t, plan->graph.op_count);
    assert_non_null(zero);
    draw_levels(plan, random, least, most, zero);
    train_variant(plan, &plan->parallel, zero, SBP_BOXING_FULL, &trained);
    return trained;
}

/* Trains with levels between two bounds, layer by layer, and compares; closes. */
static void check_levels(struct plan *plan, const char *model, struct sbp_random *random, int least,
                         int most, const struct trained *base)
{
    char what[64];
    struct trained other = train_levels(plan, random, least, most);
    (void)snprintf(what, sizeof what, "ZeRO levels %d to %d", least, most);
    expect_alike(plan, model, what, base, &other);
    trained_free(&other);
}

/* Level 1 sums a gradient over micro-batches where it is formed, and then over ranks, as level 0
 * does. Levels 2 and 3 must sum every micro-batch over ranks first: they hold shards alone. So with
 * one micro-batch all levels agree, else 0 with 1 and 2 with 3. Whether those pairs differ. */
static bool check_zero(struct plan *plan, const char *model, struct sbp_random *random)
{
    char text[256];
    struct trained whole = train_levels(plan, random, 0, 0);
    struct trained sharded = train_levels(plan, random, 3, 3);
    const bool differ = !trained_alike(&whole, &sharded, text, (int)sizeof text);
    check_levels(plan, model, random, 1, 1, &whole);
    check_levels(plan, model, random, 0, 1, &whole);
    check_levels(plan, model, random, 2, 2, &sharded);
    check_levels(plan, model, random, 2, 3, &sharded);
    if (plan->step.micro_batches == 1) {
        expect_alike(plan, model, "ZeRO level 3", &whole, &sharded);
        check_levels(plan, model, random, 0, 3, &whole);
    }
    trained_free(&whole);
    trained_free(&sharded);
    return differ;
}

static void zero_levels_train_the_same_bits(void **state)
{
    const int plans = draws(40);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, single = 0, differ = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2000);
    for (int tries = 0; checked < plans && tries < MOST_TRIES; tries++) {
        struct plan plan;
        if (open_drawn(&random, tries, tries % 4 == 3, model, &plan)) {
            checked++;
            single += plan.step.micro_batches == 1;
            differ += check_zero(&plan, model, &random);
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d of one micro-batch; in %d of the others levels 0 and 3 "
                  "differ\n",
                  (unsigned long long)seed, checked, single, differ);
    assert_int_equal(checked, plans);
    assert_true(single > plans / 8 && differ > (plans - single) / 2);
}

/* ---- owners -------------------------------------------------------------------------------- */

/* Owners sum every micro-batch over the ranks in their order, as ZeRO level 3 does. */
static void check_owners(struct plan *plan, const char *model)
{
    struct sbp_parallel parallel = plan->parallel;
    struct trained base;
    uint8_t *zero = SBP_NEW(&plan->arena, uint8_t, plan->graph.op_count);
    assert_non_null(zero);
    memset(zero, SBP_ZERO_DEFAULT, (size_t)plan->graph.op_count);
    parallel.zero = 3;
    train_variant(plan, &parallel, zero, SBP_BOXING_FULL, &base);
    parallel.zero = 0;
    for (int owner = SBP_OWNER_BROADCAST; owner < SBP_OWNERS; owner++) {
        struct trained other;
        parallel.owner = (enum sbp_owner)owner;
        train_variant(plan, &parallel, zero, SBP_BOXING_FULL, &other);
        expect_alike(plan, model, sbp_parallel_owner_name(parallel.owner), &base, &other);
        trained_free(&other);
    }
    trained_free(&base);
}

/* A norm is summed otherwise: each rank has the squares of what it owns. */
static void owners_train_the_same_bits(void **state)
{
    const int plans = draws(40);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, several = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2050);
    for (int tries = 0; checked < plans && tries < 2 * MOST_TRIES; tries++) {
        struct plan plan;
        if (open_drawn(&random, tries, tries % 4 == 3, model, &plan) && has_alike_ties(&plan)) {
            plan.graph.training.clip_norm = 0;
            check_owners(&plan, model);
            checked++;
            several += plan.step.micro_batches > 1;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d of several micro-batches\n", (unsigned long long)seed,
                  checked, several);
    assert_int_equal(checked, plans);
    assert_true(several > plans / 4);
}

/* ---- recomputation ------------------------------------------------------------------------- */

/* What is kept, what is computed, gathered or boxed once more, and what comes together. */
static void check_kept(const struct plan *plan, const char *model)
{
    struct sbp_parallel parallel = plan->parallel;
    struct trained base;
    parallel.recompute = SBP_RECOMPUTE_NONE;
    parallel.regather = parallel.gather_blocks = parallel.keep_sent = false;
    train_variant(plan, &parallel, plan->strategy.zero, SBP_BOXING_FULL, &base);
    for (int kind = 0; kind < SBP_RECOMPUTES; kind++) {
        struct trained other;
        parallel.recompute = (enum sbp_recompute)kind;
        parallel.regather = kind % 2 == 0;
        parallel.gather_blocks = kind / 2 % 2 == 0;
        parallel.keep_sent = kind % 2 != 0 && plan->parallel.pipeline > 1;
        train_variant(plan, &parallel, plan->strategy.zero, SBP_BOXING_FULL, &other);
        expect_alike(plan, model, sbp_parallel_recompute_name(parallel.recompute), &base, &other);
        trained_free(&other);
    }
    trained_free(&base);
}

static void recomputing_trains_the_same_bits(void **state)
{
    const int plans = draws(40);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2100);
    for (int tries = 0; checked < plans && tries < 2 * MOST_TRIES; tries++) {
        struct plan plan;
        if (open_drawn(&random, tries, tries % 4 == 3, model, &plan) && has_alike_ties(&plan)) {
            check_kept(&plan, model);
            checked++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d ways to keep each\n", (unsigned long long)seed, checked,
                  SBP_RECOMPUTES);
    assert_int_equal(checked, plans);
}

/* ---- boxing -------------------------------------------------------------------------------- */

/* Whether an instruction sums over members, or spreads a value over them as the terms of a sum. */
static bool shapes_sums(const struct sbp_program *program, int instr)
{
    const struct sbp_instr *at = &program->instr[instr];
    if (at->kind != SBP_INSTR_BOX)
        return false;
    const struct sbp_mesh *mesh = &program->mesh;
    const sbp_axes before = sbp_dist_of_kind(mesh, &at->box.from, SBP_PARTIAL);
    const sbp_axes after = sbp_dist_of_kind(mesh, &at->box.to, SBP_PARTIAL);
    return before != after;
}

static int next_sum(const struct sbp_program *program, int from)
{
    while (from < program->instr_count && !shapes_sums(program, from))
        from++;
    return from;
}

static bool same_sum(const struct sbp_program *program, const struct sbp_instr *a,
                     const struct sbp_instr *b)
{
    const bool local = a->box.kind == SBP_LOCAL;
    return a->tensor == b->tensor && a->box.axes == b->box.axes &&
           local == (b->box.kind == SBP_LOCAL) &&
           (!local || (sbp_dist_equal(&program->mesh, &a->box.from, &b->box.from) &&
                       sbp_dist_equal(&program->mesh, &a->box.to, &b->box.to)));
}

/* Whether two programs sum the same tensors over the same groups, one after the other: what is
 * gathered and sent around in between moves values, and changes none. */
static bool sum_alike(const struct sbp_program *a, const struct sbp_program *b)
{
    int i = next_sum(a, 0), j = next_sum(b, 0);
    for (; i < a->instr_count && j < b->instr_count; i = next_sum(a, i + 1), j = next_sum(b, j + 1))
        if (!same_sum(a, &a->instr[i], &b->instr[j]))
            return false;
    return i == a->instr_count && j == b->instr_count;
}

enum outcome { SAME_LIST, SAME_SUMS, OTHER_SUMS };

/* The normal form against the cheapest path, which may sum over one axis after the other where the
 * normal form sums over both at once: (a + b) + (c + d) is not a + b + c + d. */
static enum outcome check_boxing(const struct plan *plan, const char *model, bool *differ)
{
    struct sbp_step step;
    struct trained normal, path;
    char text[256];
    make_variant(plan, &plan->parallel, plan->strategy.zero, SBP_BOXING_PATH, &step);
    enum outcome outcome = SAME_LIST;
    for (int s = 0; s < step.stages; s++) {
        const struct sbp_program *a = sbp_step_program(&plan->step, s);
        const struct sbp_program *b = sbp_step_program(&step, s);
        if (!sum_alike(a, b))
            outcome = OTHER_SUMS;
        else if (a->instr_count != b->instr_count && outcome == SAME_LIST)
            outcome = SAME_SUMS;
    }
    train(&plan->step, STEPS, seed, &normal);
    train(&step, STEPS, seed, &path);
    if (outcome == OTHER_SUMS)
        *differ = !trained_alike(&normal, &path, text, (int)sizeof text);
    else
        expect_alike(plan, model, "boxing by the cheapest path", &normal, &path);
    trained_free(&normal);
    trained_free(&path);
    sbp_step_free(&step);
    return outcome;
}

static void boxing_trains_the_same_bits(void **state)
{
    const int plans = draws(60);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, differ = 0, count[3] = {0};
    (void)state;
    sbp_random_seed(&random, seed + 2200);
    for (int tries = 0; checked < plans && tries < 2 * MOST_TRIES; tries++) {
        struct plan plan;
        if (open_drawn(&random, tries, tries % 4 == 3, model, &plan) && has_alike_ties(&plan)) {
            bool other = false;
            count[check_boxing(&plan, model, &other)]++;
            differ += other;
            checked++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans; boxing has another list of the same sums in %d, other sums "
                  "in %d, other bits in %d of these\n",
                  (unsigned long long)seed, checked, count[SAME_SUMS], count[OTHER_SUMS], differ);
    assert_int_equal(checked, plans);
    assert_true(count[SAME_SUMS] > 0 && differ > 0);
}

/* ---- stages -------------------------------------------------------------------------------- */

/* The plan's split of the same micro-batches in one stage, on a stage's cluster. */
static void open_alone(const struct plan *plan, const char *model, const int *levels,
                       struct plan *alone)
{
    struct sbp_diag diag = {0};
    plan_open(alone, model, levels);
    alone->graph.training = plan->graph.training;
    alone->parallel = plan->parallel;
    alone->parallel.pipeline = alone->parallel.chunks = 1;
    alone->parallel.schedule =
        plan->parallel.schedule == SBP_GPIPE ? SBP_GPIPE : SBP_ONE_F_ONE_B; /* order of sums */
    alone->parallel.pipeline_limit = 0;
    alone->strategy = plan->strategy;
    expect_ok(sbp_graph_set_micro_batch(&alone->graph, plan->parallel.micro_batch, &diag), &diag);
    make_variant(alone, &alone->parallel, plan->strategy.zero, plan->strategy.boxing, &alone->step);
}

/* Each element to 16 roundings of the largest: both sums have the same terms. */
static void expect_near(const struct sbp_graph *graph, int tensor, const float *a, const float *b)
{
    const int64_t *size = graph->tensor[tensor].shape.size;
    const int64_t elements = size[0] * size[1] * size[2] * size[3];
    float largest = 0;
    for (int64_t i = 0; i < elements; i++)
        largest = fmaxf(largest, fabsf(a[i]));
    for (int64_t i = 0; i < elements; i++)
        if (!(fabsf(a[i] - b[i]) <= 16 * 0x1p-24F * largest))
            fail_msg("seed %llu: gradient of %s, element %lld: %.9g and %.9g",
                     (unsigned long long)seed, graph->tensor[tensor].name, (long long)i,
                     (double)a[i], (double)b[i]);
}

static bool is_tied(const struct plan *plan, int tensor)
{
    int pieces = 0;
    for (int piece = 0; piece < plan->step.pieces; piece++)
        pieces += plan->step.program[piece].weight_buffer[tensor] >= 0;
    return pieces > 1;
}

/* The first step from the same weights: the loss and the gradients of what one stage holds are the
 * same bits. A tied weight's are sums over both uses, in one stage micro-batch by micro-batch (and
 * token by token, in the table), in several pieces each use by itself; and the norm is summed stage
 * by stage. Those agree to rounding. */
static void check_first_step(const struct plan *plan, const char *model, const struct trained *one,
                             const struct trained *several)
{
    const struct sbp_graph *graph = &plan->graph;
    if (memcmp(&one->loss[0], &several->loss[0], sizeof one->loss[0]) != 0)
        fail_msg("seed %llu, %s: loss %.17g in one stage, %.17g in several",
                 (unsigned long long)seed, model, one->loss[0], several->loss[0]);
    if (!(fabs(one->norm[0] - several->norm[0]) <= 16 * 0x1p-24 * fabs(one->norm[0])))
        fail_msg("seed %llu, %s: norm %.17g in one stage, %.17g in several",
                 (unsigned long long)seed, model, one->norm[0], several->norm[0]);
    for (int t = 0; t < graph->tensor_count; t++) {
        if (one->gradient[t] == NULL)
            continue;
        const int64_t at = trained_difference(graph, t, one->gradient[t], several->gradient[t]);
        if (at >= 0 && !is_tied(plan, t))
            fail_msg("seed %llu, %s: gradient of %s, element %lld: %.9g in one stage, %.9g in "
                     "several",
                     (unsigned long long)seed, model, graph->tensor[t].name, (long long)at,
                     (double)one->gradient[t][at], (double)several->gradient[t][at]);
        expect_near(graph, t, one->gradient[t], several->gradient[t]);
    }
}

static void check_stages(const struct plan *plan, const char *model, const int *levels)
{
    struct plan alone;
    struct trained one, several;
    open_alone(plan, model, levels, &alone);
    train(&alone.step, 1, seed, &one);
    train(&plan->step, 1, seed, &several);
    check_first_step(plan, model, &one, &several);
    trained_free(&one);
    trained_free(&several);
    plan_close(&alone);
}

/* Where neither a tied weight nor a norm that clips is summed otherwise, all of the training. */
static void check_untied(struct plan *plan, const char *model, const int *levels)
{
    struct plan alone;
    struct trained one, several;
    char text[256];
    open_alone(plan, model, levels, &alone);
    train(&alone.step, STEPS, seed, &one);
    train(&plan->step, STEPS, seed, &several);
    memcpy(several.norm, one.norm, STEPS * sizeof *one.norm);
    if (!trained_alike(&one, &several, text, (int)sizeof text)) {
        describe_plan(plan, model);
        fail_msg("one stage and %d: %s", plan->step.stages, text);
    }
    trained_free(&one);
    trained_free(&several);
    plan_close(&alone);
}

static void stages_train_the_same_bits(void **state)
{
    enum { TIES = 4 };
    const int plans = draws(60);
    static const int levels[][4] = {{2, 2, 0}, {2, 3, 0}, {3, 2, 0}, {2, 2, 2, 0}};
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, ties = 0, clipped = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2300);
    for (int tries = 0; checked < plans && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        const int *const all = levels[sbp_random_below(&random, 4)];
        random_model(&random, ties < TIES ? GPT : kind_of(tries), model, MODEL_BYTES);
        plan_open(&plan, model, all);
        if (plan.graph.loss < 0)
            plan.graph.training.update.learning_rate *= 1e-5;
        if (plan_cut_stages(&plan, &random) && plan.parallel.pipeline == all[0]) {
            plan_randomise(&plan, &random, tries % 2 == 0, SBP_BOXING_FULL, SBP_F32);
            const bool tied = count_ties(&plan, false) > 0;
            if (has_alike_ties(&plan) && (tied || ties >= TIES)) {
                check_stages(&plan, model, all + 1);
                ties += tied;
                clipped += plan.graph.training.clip_norm > 0;
                checked++;
                plan.graph.training.clip_norm *= 1e30; /* a norm that never clips */
                if (!tied)
                    check_untied(&plan, model, all + 1);
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d pipelines, %d with tied weights, %d that clip\n",
                  (unsigned long long)seed, checked, ties, clipped);
    assert_int_equal(checked, plans);
    assert_true(ties >= TIES && clipped > plans / 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_levels_train_the_same_bits),
        cmocka_unit_test(owners_train_the_same_bits),
        cmocka_unit_test(recomputing_trains_the_same_bits),
        cmocka_unit_test(boxing_trains_the_same_bits),
        cmocka_unit_test(stages_train_the_same_bits),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
