#include "cyclic_plans.h"

#include <math.h>
#include <string.h>

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

void place_together(const struct plan *plan, enum sbp_real real, struct plan *together)
{
    *together = *plan;
    together->cluster = plan->step.cluster;
    together->parallel.chunks = together->step.pieces;
    together->parallel.pipeline = 1;
    together->parallel.pyramid = false;
    plan_step(together, &together->parallel, NULL, real, &together->step);
}

static int compared_bits;

static void check_bits(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options = options_for(SBP_F32, random);
    struct sbp_run_result apart, single;
    struct plan together;
    options.steps = 2 * STEPS;
    options.verify = false;
    place_together(plan, SBP_F32, &together);
    run_plan(plan, &options, model, &apart);
    run_plan(&together, &options, model, &single);
    for (int step = 0; step < options.steps; step++) {
        const double a = apart.step[step].loss, b = single.step[step].loss;
        if (fabs(a - b) > 1e-14 * fabs(b)) {
            describe_plan(plan, model);
            fail_msg("step %d: a loss of %.17g on several groups, %.17g on one", step + 1, a, b);
        }
        compared_bits += !isnan(a);
    }
    sbp_run_free(&apart);
    sbp_run_free(&single);
    sbp_step_free(&together.step);
}

static int alike_steps;

/* A run predicts message by message: it takes no longer than the timeline, where sums wait for
 * whole chunks, and no shorter than any device computes. */
static void check_prediction(const struct plan *plan, struct sbp_random *random, const char *model)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    run_plan(plan, &options, model, &result);
    const double step_s = plan->step.totals.step_s, played_s = result.prediction.step_s;
    double least_s = 0;
    for (int d = 0; d < plan->step.timeline.devices; d++)
        least_s = fmax(least_s, plan->step.timeline.device[d].compute_s);
    if (played_s > step_s * (1 + 1e-9) || played_s < least_s * (1 - 1e-9)) {
        describe_plan(plan, model);
        fail_msg("played task by task a step takes %g s, the timeline says %g s, of which %g s are "
                 "passes",
                 played_s, step_s, least_s);
    }
    alike_steps += played_s > step_s * (1 - 1e-3);
    sbp_run_free(&result);
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

/* ---- what tests of one way to place stages hold ---------------------------------------------- */

void hold_to_recurrence(cut_function *cut, uint64_t offset, int plans, int narrow_plans)
{
    worst_of_recurrence = 0;
    for_placed(cut, offset, SBP_F64, plans, check_recurrence);
    for_placed(cut, offset + 100, SBP_F32, narrow_plans, check_recurrence);
    print_message("largest difference / bound %.3f\n", worst_of_recurrence);
}

void hold_to_bits(cut_function *cut, uint64_t offset, int plans, int least)
{
    compared_bits = 0;
    for_placed(cut, offset, SBP_F32, plans, check_bits);
    assert_true(compared_bits > least);
}

void hold_to_prediction(cut_function *cut, uint64_t offset, int plans, int least)
{
    alike_steps = 0;
    for_placed(cut, offset, SBP_F64, plans, check_prediction);
    print_message("%d of %d as long as the timeline\n", alike_steps, plans);
    assert_true(alike_steps > least);
}

/* ---- faults -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum sbp_fault fault;
    enum sbp_instr_kind kind;
    enum sbp_section section;
    const char *what; /* of the finding's text */
} faults[] = {
    [DROPPED] = {"dropped", SBP_FAULT_SKIP, SBP_INSTR_TAKE, SBP_SECTION_BACKWARD, "gradient"},
    [UNFINISHED] = {"unfinished", SBP_FAULT_SKIP, SBP_INSTR_TAKE, SBP_SECTION_STEP, "gradient"},
    [STALE] = {"stale", SBP_FAULT_STALE, SBP_INSTR_UPDATE, SBP_SECTION_STEP, "weight"},
    [LOST] = {"lost", SBP_FAULT_SKIP, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, ""},
};

static int planted, found;

/* The first instruction that a fault is of; the program's count of them: it has none. */
static int first_of(const struct sbp_program *program, enum cyclic_fault fault)
{
    int instr = 0;
    while (instr < program->instr_count && (program->instr[instr].kind != faults[fault].kind ||
                                            program->instr[instr].section != faults[fault].section))
        instr++;
    return instr;
}

void check_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                 enum cyclic_fault fault, int steps, int stage, int chunk)
{
    const struct sbp_program *program = sbp_step_chunk(&plan->step, stage, chunk);
    const int instr = first_of(program, fault);
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    if (instr == program->instr_count)
        return;
    options.steps = steps;
    plant_fault(&options, faults[fault].fault, chunk * plan->step.stages + stage, instr);
    run_plan(plan, &options, model, &result);
    planted++;
    if (result.finding.found) {
        char text[512];
        found++;
        (void)sbp_verify_finding_text(&result.finding, text, (int)sizeof text);
        if (strstr(text, faults[fault].what) == NULL) {
            describe_plan(plan, model);
            fail_msg("planted in %s, found as: %s", faults[fault].what, text);
        }
    }
    sbp_run_free(&result);
}

void hold_to_finding(cut_function *cut, uint64_t offset, int plans, enum cyclic_fault fault,
                     check_function *check, int least)
{
    planted = found = 0;
    for_placed(cut, offset, SBP_F64, plans, check);
    print_message("%s: %d planted, %d found\n", faults[fault].name, planted, found);
    assert_true(planted > least && 10 * found >= 8 * planted); /* a gradient may be zeros */
}

/* ---- odd values ---------------------------------------------------------------------------- */

bool draw_odd(const struct plan *plan, const struct sbp_program *program, int steps,
              struct sbp_random *random, struct sbp_run_options *options)
{
    int instr = program->instr_count - 1;
    while (instr >= 0 && (program->instr[instr].kind != SBP_INSTR_FORWARD ||
                          program->instr[instr].section != SBP_SECTION_FORWARD ||
                          plan->graph.op[program->instr[instr].op].kind != SBP_OP_LINEAR))
        instr--;
    if (instr < 0)
        return false;
    options->steps = 1 + (int)sbp_random_below(random, (uint64_t)steps);
    options->verify = sbp_random_below(random, 2) == 0;
    options->trace = sbp_random_below(random, 2) == 0;
    plant_fault(options, SBP_FAULT_ODD, 0, instr);
    return true;
}

bool ends_where_odd(const struct plan *plan, const struct sbp_program *program, int latest,
                    const struct sbp_run_options *options, const char *model)
{
    const int op = program->instr[options->fault_instr].op;
    struct sbp_run_result result;
    run_plan(plan, options, model, &result);
    const bool is_odd = result.odd.step > 0;
    if (is_odd) {
        assert_in_range(result.odd.step, 1, latest);
        assert_int_equal(result.steps, result.odd.step);
        assert_true(result.odd.layer.found);
        assert_string_equal(result.odd.layer.layer, plan->graph.op[op].name);
        for (int step = result.steps; step < options->steps; step++)
            assert_true(result.step[step].wall_s == 0);
    }
    sbp_run_free(&result);
    return is_odd;
}
