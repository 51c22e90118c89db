/* The second opinion on what is promised of a plan: each figure of memory, time and proof that is
 * changed alone is refused.
 */
#include <math.h>
#include <stdio.h>

#include "tests/support/check_bench.h"
#include "tests/support/unit.h"

/* ---- memory --------------------------------------------------------------------------------- */

static struct sbp_stage_memory *any_memory(struct bench *b)
{
    return &b->step.memory[bench_below(b, b->step.stages)];
}

static bool fewer_parameters(struct bench *b)
{
    any_memory(b)->weight_bytes -= 64;
    return true;
}

static bool more_gradients(struct bench *b)
{
    any_memory(b)->gradient_bytes += 64;
    return true;
}

static bool fewer_moments(struct bench *b)
{
    any_memory(b)->moment_bytes /= 2;
    return !b->plan.cut.parallel.offload && b->plan.cut.graph.training.update.optimizer != SBP_SGD;
}

static bool more_masters(struct bench *b)
{
    any_memory(b)->master_bytes += 4;
    return true;
}

static bool more_messages(struct bench *b)
{
    any_memory(b)->message_bytes += 64;
    return true;
}

static bool smaller_device(struct bench *b)
{
    any_memory(b)->device_bytes -= 64;
    return b->step.parallel.chunks == 1;
}

static bool smaller_total(struct bench *b)
{
    b->step.totals.device_bytes--;
    return true;
}

static bool lower_limit(struct bench *b)
{
    b->request.memory_limit_bytes = b->step.totals.device_bytes - 1;
    return true;
}

static bool more_in_flight(struct bench *b)
{
    any_memory(b)->in_flight++;
    return b->step.parallel.chunks == 1;
}

/* ---- times and bytes ------------------------------------------------------------------------ */

static bool less_communication(struct bench *b)
{
    b->step.totals.communication_s *= 1 - 1e-6;
    return b->step.totals.communication_s > 0;
}

static bool less_by_cause(struct bench *b)
{
    double *seconds = &b->step.totals.by_cause_s[SBP_CAUSE_WEIGHT_GRADIENT];
    *seconds *= 1 - 1e-6;
    return *seconds > 0;
}

static bool less_compute(struct bench *b)
{
    b->step.totals.compute_s *= 1 - 1e-6;
    return true;
}

static bool fewer_bytes(struct bench *b)
{
    b->step.totals.communication_bytes -= 4;
    return true;
}

static bool shorter_step(struct bench *b)
{
    b->step.totals.step_s *= 1 - 1e-6;
    b->outcome.objective_s = b->step.totals.step_s;
    b->outcome.lower_bound_s = -INFINITY;
    b->outcome.status = SBP_PLAN_FEASIBLE;
    return true;
}

static bool faster_stage(struct bench *b)
{
    b->step.cost[bench_below(b, b->step.pieces)].forward_s *= 1 - 1e-6;
    return true;
}

static bool faster_end(struct bench *b)
{
    const int ends = b->step.pieces < b->step.stages ? b->step.pieces : b->step.stages;
    b->step.end[bench_below(b, ends)].optimizer_s *= 1 - 1e-6;
    return true;
}

static bool faster_bucket(struct bench *b)
{
    struct sbp_offload *offload = &b->step.end[bench_below(b, b->step.stages)].offload;
    offload->step_s *= 1 - 1e-6;
    return offload->buckets > 0;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static bool better_objective(struct bench *b)
{
    b->outcome.objective_s *= 1 - 1e-6;
    return true;
}

static bool bound_above(struct bench *b)
{
    b->outcome.status = SBP_PLAN_FEASIBLE;
    b->outcome.lower_bound_s = b->outcome.objective_s * (1 + 1e-6);
    return true;
}

static bool optimal_without_proof(struct bench *b)
{
    b->outcome.status = SBP_PLAN_OPTIMAL;
    b->outcome.lower_bound_s = b->outcome.objective_s * (1 - 1e-6);
    return true;
}

static bool infeasible_plan(struct bench *b)
{
    b->outcome.status = SBP_PLAN_INFEASIBLE;
    return true;
}

static const struct corruption CORRUPTIONS[] = {
    {"fewer parameters", NULL, fewer_parameters, "memory: parameters"},
    {"more gradients", NULL, more_gradients, "memory: gradients"},
    {"fewer moments", NULL, fewer_moments, "memory: moments"},
    {"more master copies", NULL, more_masters, "memory: master copies"},
    {"more messages", NULL, more_messages, "memory: messages"},
    {"a smaller device", NULL, smaller_device, "memory: a device holds"},
    {"a smaller total", NULL, smaller_total, "memory: the fullest stage"},
    {"a lower limit", NULL, lower_limit, "and has"},
    {"more in flight", NULL, more_in_flight, "stage"},
    {"less communication", NULL, less_communication, "price: communication"},
    {"less for one cause", NULL, less_by_cause, "price: weight-gradient"},
    {"less compute", NULL, less_compute, "price: compute"},
    {"fewer bytes sent", NULL, fewer_bytes, "price: communication in bytes"},
    {"a shorter step", NULL, shorter_step, "step takes"},
    {"a faster stage", NULL, faster_stage, "a micro-batch is"},
    {"a faster end", NULL, faster_end, "the optimizer takes"},
    {"a faster bucket", NULL, faster_bucket, "its states pass"},
    {"a better objective", NULL, better_objective, "promises"},
    {"a bound above the plan", NULL, bound_above, "above its"},
    {"optimal without a proof", NULL, optimal_without_proof, "called optimal"},
    {"infeasible with a plan", NULL, infeasible_plan, "status"},
};

static void test_figures_are_checked(void **state)
{
    (void)state;
    check_corruptions(CORRUPTIONS, sizeof CORRUPTIONS / sizeof *CORRUPTIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures_are_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
