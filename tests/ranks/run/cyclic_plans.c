#include "cyclic_plans.h"

enum { STEPS = 4 };

double worst_of_recurrence;

void check_recurrence(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options =
        options_for(plan->program->bytes.activation == 8 ? SBP_F64 : SBP_F32, random);
    options.steps = 1 + (int)sbp_random_below(random, 2 * STEPS);
    check_run(plan, &options, model, &worst_of_recurrence);
}

/* Verification stops ranks between steps; without it they go on with the next one. */
void check_running_on(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result stopped, running;
    options.steps = STEPS;
    run_plan(plan, &options, model, &stopped);
    options.verify = false;
    run_plan(plan, &options, model, &running);
    expect_same_steps(plan, &stopped, &running, model);
    sbp_run_free(&stopped);
    sbp_run_free(&running);
}

/* Outputs without a loss pull their weights the same way in every step, and soon overflow. */
static void slow_down(struct sbp_graph *graph)
{
    if (graph->op[graph->op_count - 1].kind != SBP_OP_CROSS_ENTROPY)
        graph->training.update.learning_rate *= 1e-3;
}

void for_placed(cut_function *cut, uint64_t offset, enum sbp_real real, int plans,
                check_function *check)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    int count = 0, several = 0, of_rule[2] = {0}, ties = 0;
    sbp_random_seed(&random, seed + offset);
    for (int tries = 0; count < plans && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        slow_down(&plan.graph);
        if (cut(&plan, &random)) {
            plan_draw_owner(&plan, random);
            plan_randomise(&plan, &random, tries % 2 == 0, SBP_BOXING_FULL, real);
            if (has_alike_ties(&plan)) {
                check(&plan, &random, model);
                count++;
                several += plan.step.pieces > 1;
                of_rule[plan.parallel.schedule == SBP_CDP_V2]++;
                ties += count_ties(&plan, false) > 0;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d plans, %d of several stages, %d cdp-v1, %d cdp-v2, %d with tied "
                  "weights\n",
                  (unsigned long long)seed, count, several, of_rule[0], of_rule[1], ties);
    assert_int_equal(count, plans);
    assert_true(several > plans / 3 && of_rule[0] > plans / 6 && of_rule[1] > plans / 6);
}
