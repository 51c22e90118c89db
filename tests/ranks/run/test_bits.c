/* Settings that decide where and when work is done, and not what is summed in which order, train
 * the same bits: ZeRO levels, recomputation, boxing, stages.
 *
 * `threads` folds a sum over ranks in the order of the group, whatever the collective. So two plans
 * of one split agree to the bit where they add the same terms in the same order; where they do not
 * by design, the tests say so and see that bits do differ: a comparison that finds nothing then
 * would find nothing ever. */
#include <math.h>
#include <stdio.h>

#include "run_checks.h"
#include "trained.h"

enum { STEPS = 3 };

/* ---- plans and their variants -------------------------------------------------------------- */

/* A random plan, in stages where `staged`; false: it has none. Models without a loss, whose
 * gradients are no means over tokens, learn more slowly, or they would leave all numbers. */
static bool open_drawn(struct sbp_random *random, int index, bool staged, char *model,
                       struct plan *plan)
{
    random_model(random, index % 3, model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (!staged)
        plan_cut_step(plan, random);
    else if (!plan_cut_stages(plan, random))
        return false;
    if (plan->graph.loss < 0)
        plan->graph.training.update.learning_rate *= 1e-5;
    plan_randomise(plan, random, index % 2 == 0, SBP_BOXING_FULL, SBP_F32);
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
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    struct sbp_strategy strategy = plan->strategy;
    struct sbp_diag diag = {0};
    strategy.zero = zero;
    strategy.boxing = boxing;
    const struct sbp_step_request request = {.graph = &plan->graph,
                                             .cluster = &plan->cluster,
                                             .parallel = parallel,
                                             .strategy = &strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    expect_ok(sbp_step_make(&request, step, &diag), &diag);
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

static struct trained train_levels(const struct plan *plan, struct sbp_random *random, int least,
                                   int most)
{
    struct trained trained;
    uint8_t *zero = SBP_NEW((struct sbp_arena *)&plan->arena, uint8_t, plan->graph.op_count);
    assert_non_null(zero);
    draw_levels(plan, random, least, most, zero);
    train_variant(plan, &plan->parallel, zero, SBP_BOXING_FULL, &trained);
    return trained;
}

/* Trains with levels between two bounds, layer by layer, and compares; closes. */
static void check_levels(const struct plan *plan, const char *model, struct sbp_random *random,
                         int least, int most, const struct trained *base)
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
static bool check_zero(const struct plan *plan, const char *model, struct sbp_random *random)
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
    enum { PLANS = 40 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, single = 0, differ = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2000);
    for (int tries = 0; checked < PLANS && tries < MOST_TRIES; tries++) {
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
    assert_int_equal(checked, PLANS);
    assert_true(single > PLANS / 8 && differ > (PLANS - single) / 2);
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
    enum { PLANS = 40 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0;
    (void)state;
    sbp_random_seed(&random, seed + 2100);
    for (int tries = 0; checked < PLANS && tries < 2 * MOST_TRIES; tries++) {
        struct plan plan;
        if (open_drawn(&random, tries, tries % 4 == 3, model, &plan) && has_alike_ties(&plan)) {
            check_kept(&plan, model);
            checked++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d ways to keep each\n", (unsigned long long)seed, checked,
                  SBP_RECOMPUTES);
    assert_int_equal(checked, PLANS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_levels_train_the_same_bits),
        cmocka_unit_test(recomputing_trains_the_same_bits),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
