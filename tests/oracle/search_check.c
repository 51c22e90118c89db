#include "planner/plan/plan.h"
#include "search_check.h"

#include <inttypes.h>

#include "labelled.h"
#include "oracle_plan.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

void check_plan(struct small_instance *instance, const struct sbp_outcome *outcome)
{
    struct sbp_plan *const plan = &instance->plan;
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, &diag) != SBP_OK)
        small_instance_complain(instance, "illegal plan: %s", diag.text);
    if (labelled_check(plan, &instance->request, &plan->strategy, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    const struct sbp_totals totals = compiled_totals(plan);
    const bool time = instance->request.objective == SBP_STEP_TIME;
    const double objective = time ? totals.step_s : totals.communication_s;
    if (!is_close(objective, outcome->objective_s))
        small_instance_complain(instance, "plan costs %.17g, outcome says %.17g", objective,
                                outcome->objective_s);
    const int64_t limit = instance->request.memory_limit_bytes;
    if (limit > 0 && totals.device_bytes > limit)
        small_instance_complain(instance, "plan needs %" PRId64 " bytes of %" PRId64,
                                totals.device_bytes, limit);
}

static void compare(struct small_instance *instance, const struct labelled_best *best,
                    const struct sbp_outcome *outcome, struct tally *tally)
{
    const double least = best->objective_s, found = outcome->objective_s;
    const double bound = outcome->lower_bound_s, slack = CLOSE * least;
    if (outcome->status == SBP_PLAN_INFEASIBLE || isinf(found)) {
        if (!isinf(least))
            small_instance_complain(instance, "%s, but %.17g in %" PRId64 " bytes exists",
                                    sbp_solver_status_name(outcome->status), least,
                                    best->device_bytes);
        tally->infeasible++;
        return;
    }
    check_plan(instance, outcome);
    if (found < least - slack)
        small_instance_complain(instance, "found %.17g below the least of all, %.17g", found,
                                least);
    if (bound > least + slack)
        small_instance_complain(instance, "bound %.17g above the least of all, %.17g", bound,
                                least);
    if (outcome->status == SBP_PLAN_OPTIMAL && found > least + slack)
        small_instance_complain(instance, "`optimal` %.17g, but %.17g exists", found, least);
    if (outcome->status == SBP_PLAN_OPTIMAL)
        tally->optimal++;
    else
        tally->loose++;
    tally->plans_off += found > least + slack;
    tally->bounds_off += bound < least - slack;
    tally->plan_gap = fmax(tally->plan_gap, found / least - 1);
    tally->bound_gap = fmax(tally->bound_gap, 1 - bound / least);
}

/* A goal below the least time is refuted by time alone: the bound is then a time from the goal to
 * the least, since costs are added until they refute it. Above it nothing changes, except that one
 * of several meshes may be refuted. */
static void check_refuted(struct small_instance *instance, const struct sbp_inner_bound *whole)
{
    struct sbp_inner_bound refuted, not_refuted;
    struct sbp_diag diag = {{0}};
    struct sbp_solve_request request = {.asked = instance->request};
    if (!(whole->time_s > 0))
        return;
    request.refuted_s = whole->time_s * (1 - 1e-6);
    if (sbp_inner_bound(&instance->plan.cut, &request, &refuted, &diag) != SBP_OK)
        small_instance_complain(instance, "no bound below: %s", diag.text);
    request.refuted_s = whole->time_s * (1 + 1e-6);
    if (sbp_inner_bound(&instance->plan.cut, &request, &not_refuted, &diag) != SBP_OK)
        small_instance_complain(instance, "no bound above: %s", diag.text);
    const bool is_between =
        refuted.time_s >= whole->time_s * (1 - 1e-6) &&
        (refuted.time_s < whole->time_s || is_close(refuted.time_s, whole->time_s));
    if (!is_between || refuted.bound_s != refuted.time_s || refuted.least_bytes > 0)
        small_instance_complain(instance, "refuted by %.17g and %.17g, least time %.17g",
                                refuted.time_s, refuted.bound_s, whole->time_s);
    const bool is_same = not_refuted.bound_s == whole->bound_s;
    const bool is_of_a_mesh =
        not_refuted.bound_s >= request.refuted_s && not_refuted.bound_s < whole->bound_s;
    if (not_refuted.time_s != whole->time_s || !(is_same || is_of_a_mesh))
        small_instance_complain(instance, "not refuted, but bounded by %.17g instead of %.17g",
                                not_refuted.bound_s, whole->bound_s);
}

/* The bound without a search, and searches below what was found and just above it. */
static void check_goals(struct small_instance *instance, const struct labelled_best *best,
                        const struct sbp_outcome *outcome)
{
    struct sbp_inner_bound bound;
    struct sbp_outcome below, above;
    struct sbp_diag diag = {{0}};
    struct sbp_solve_request request = {.asked = instance->request};
    if (sbp_inner_bound(&instance->plan.cut, &request, &bound, &diag) != SBP_OK)
        small_instance_complain(instance, "no bound: %s", diag.text);
    if (bound.time_s > bound.bound_s || bound.bound_s > best->objective_s * (1 + CLOSE))
        small_instance_complain(instance,
                                "bounds %.17g and, with memory, %.17g, the least of all %.17g",
                                bound.time_s, bound.bound_s, best->objective_s);
    if (bound.least_bytes > (double)best->least_device_bytes)
        small_instance_complain(instance, "bound of %.17g bytes, %" PRId64 " do", bound.least_bytes,
                                best->least_device_bytes);
    check_refuted(instance, &bound);
    if (isinf(outcome->objective_s) || !(outcome->objective_s > 0))
        return;
    request.upper_bound_s = outcome->objective_s;
    if (solve_as(&instance->plan, &request, &below, &diag) != SBP_OK)
        small_instance_complain(instance, "below %.17g: %s", request.upper_bound_s, diag.text);
    if (outcome->status == SBP_PLAN_OPTIMAL &&
        (isfinite(below.objective_s) || below.status != SBP_PLAN_NONE_CHEAPER ||
         below.lower_bound_s < outcome->objective_s * (1 - CLOSE)))
        small_instance_complain(instance, "below the optimum %.17g: %s, %.17g, bound %.17g",
                                outcome->objective_s, sbp_solver_status_name(below.status),
                                below.objective_s, below.lower_bound_s);
    request.upper_bound_s *= 1 + 1e-6;
    if (solve_as(&instance->plan, &request, &above, &diag) != SBP_OK)
        small_instance_complain(instance, "below %.17g: %s", request.upper_bound_s, diag.text);
    if (outcome->status == SBP_PLAN_OPTIMAL && !is_close(above.objective_s, outcome->objective_s))
        small_instance_complain(instance, "just above the optimum %.17g: %s, %.17g",
                                outcome->objective_s, sbp_solver_status_name(above.status),
                                above.objective_s);
}

void open_exact(struct small_instance *instance, enum small_kind kind, int linears, int outer,
                int inner)
{
    small_instance_open(instance, kind, linears, outer, inner);
    instance->request.solver = sbp_solver_find("exact");
    instance->request.solver_options.seed = instance->seed;
}

void check_search(struct small_instance *instance, int64_t most, struct tally *tally)
{
    struct sbp_plan *const plan = &instance->plan;
    struct sbp_diag diag = {{0}}, refusal = {{0}};
    const int64_t count = labelled_count(plan, &instance->request, most);
    assert_true(count >= 0);
    if (count > most) {
        tally->skipped++;
        return;
    }
    struct labelled_best best;
    if (labelled_search(plan, &instance->request, most, &best, &diag) != SBP_OK)
        small_instance_complain(instance, "a labelled strategy is refused: %s", diag.text);
    struct sbp_outcome outcome;
    const enum sbp_status status = solve_plan(plan, &instance->request, &outcome, &refusal);
    tally->run++;
    tally->strategies += best.visited;
    if (status == SBP_E_INPUT && best.visited == 0)
        tally->refused++;
    else if (status != SBP_OK)
        small_instance_complain(instance, "%s: %s, %" PRId64 " strategies exist",
                                sbp_status_name(status), refusal.text, best.visited);
    else
        compare(instance, &best, &outcome, tally);
    if (status == SBP_OK && best.visited > 0)
        check_goals(instance, &best, &outcome);
}

void print_tally(const char *what, const struct tally *tally)
{
    print_message("%-34s %4d run, %3d too large, %7" PRId64
                  " strategies: %4d optimal, %3d feasible, "
                  "%3d infeasible, %3d refused; plans off %d (most %.3g %%), bounds off %d "
                  "(most %.3g %%)\n",
                  what, tally->run, tally->skipped, tally->strategies, tally->optimal, tally->loose,
                  tally->infeasible, tally->refused, tally->plans_off, 100 * tally->plan_gap,
                  tally->bounds_off, 100 * tally->bound_gap);
}
