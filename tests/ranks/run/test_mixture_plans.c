/* Mixtures of experts: runs by random plans against one device. */
#include <stdlib.h>

#include "run_checks.h"

/* Axes on which mixtures play a role. */
static int count_role(const struct plan *plan, const char *name)
{
    int count = 0;
    for (int op = 0; op < plan->graph.op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++)
            count += plan->graph.op[op].kind == SBP_OP_MOE &&
                     sbp_strategy_role(&plan->graph, &plan->strategy, op, axis) ==
                         sbp_op_role(plan->graph.op[op].entry, name);
    return count;
}

static const char *const role_names[] = {"batch",           "sequence", "expert",
                                         "expert_sequence", "column",   "mirror"};
enum { ROLES = sizeof role_names / sizeof role_names[0] };

/* Adds up on how many axes mixtures played each role. */
static void check_random(int count, bool cut, enum sbp_real real, int *seen)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 700 + (cut ? 1 : 0) + 2 * (uint64_t)real);
    for (int i = 0; i < count; i++) {
        struct plan plan;
        open_random(&random, MIXTURE, i % 2 == 0, cut, SBP_BOXING_FULL, real, model, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, model, &worst);
        for (int r = 0; r < ROLES; r++)
            seen[r] += count_role(&plan, role_names[r]);
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, count, worst);
}

static void expect_roles(const int *seen)
{
    for (int r = 0; r < ROLES; r++) {
        print_message(" %d %s%s", seen[r], role_names[r], r + 1 < ROLES ? "," : " axes\n");
        assert_true(seen[r] > 0);
    }
}

/* How many plans each draw has; more by SBP_MIXTURES, a factor. */
static int plans(int count)
{
    const char *factor = getenv("SBP_MIXTURES");
    return factor == NULL ? count : count * atoi(factor);
}

static void mixtures_equal_one_device(void **state)
{
    int seen[ROLES] = {0};
    (void)state;
    check_random(plans(10), false, SBP_F64, seen);
    check_random(plans(12), true, SBP_F64, seen);
    check_random(plans(8), true, SBP_F32, seen);
    expect_roles(seen);
}

static void mixtures_in_16_bits_equal_one_device(void **state)
{
    int seen[ROLES] = {0};
    (void)state;
    check_random(plans(4), true, SBP_REAL_BF16, seen);
    check_random(plans(4), true, SBP_REAL_FP16, seen);
}

static void pipelines_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    int held = 0;
    (void)state;
    sbp_random_seed(&random, seed + 710);
    for (int tries = 0; held < plans(10) && tries < MOST_TRIES; tries++) {
        const enum sbp_real real = tries % 4 == 0 ? SBP_F32 : SBP_F64;
        struct plan plan;
        random_model(&random, MIXTURE, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (tries % 3 == 0 ? plan_cut_cyclic(&plan, &random) : plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, real);
            const struct sbp_run_options options = options_for(real, &random);
            check_run(&plan, &options, model, &worst);
            held++;
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, largest difference / bound %.3f\n",
                  (unsigned long long)seed, held, worst);
    assert_int_equal(held, plans(10));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures_equal_one_device),
        cmocka_unit_test(mixtures_in_16_bits_equal_one_device),
        cmocka_unit_test(pipelines_equal_one_device),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
