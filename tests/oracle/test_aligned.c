/* The cheapest plan whose layers all split the batch alike, against all such labelled strategies.
 */
#include <math.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "oracle_plan.h"
#include "search_check.h"
#include "tests/support/unit.h"

struct aligned {
    const struct sbp_plan *plan;
    int batch[SBP_MAX_AXES]; /* (family) axes that split it */
    double least_s;
};

/* As many axes as divide a micro-batch, the outermost first. */
static void align(struct aligned *aligned, const struct sbp_plan *plan)
{
    int64_t parts = 1;
    *aligned = (struct aligned){.plan = plan, .least_s = INFINITY};
    for (int f = 0; f < plan->cut.mesh.family_count; f++)
        while (aligned->batch[f] < plan->cut.mesh.family[f].count &&
               plan->cut.graph.micro_batch % (parts * plan->cut.mesh.family[f].prime) == 0) {
            parts *= plan->cut.mesh.family[f].prime;
            aligned->batch[f]++;
        }
}

static bool is_aligned(const struct aligned *aligned, const struct sbp_strategy *strategy)
{
    const struct sbp_graph *graph = &aligned->plan->cut.graph;
    for (int f = 0; f < aligned->plan->cut.mesh.family_count; f++) {
        const struct sbp_family *family = &aligned->plan->cut.mesh.family[f];
        for (int op = 0; op < graph->op_count; op++) {
            int played = 0, rests = 0;
            for (int axis = family->first; axis < family->first + family->count; axis++) {
                played += strategy->op[op].role[axis] == 0; /* batch comes first */
                rests += sbp_state_equal(strategy->rest[graph->op[op].output].axis[axis],
                                         SBP_STATE_S(SBP_DIM_BATCH));
            }
            if (!graph->op[op].entry->follows &&
                (played != aligned->batch[f] || rests != aligned->batch[f]))
                return false;
        }
    }
    return true;
}

static void keep_aligned(void *context, const struct sbp_strategy *strategy,
                         const struct sbp_step_totals *totals)
{
    struct aligned *const aligned = context;
    if (is_aligned(aligned, strategy))
        aligned->least_s = fmin(aligned->least_s, totals->step_s);
}

/* Whether there is such a plan. */
static bool check_aligned(struct small_instance *instance)
{
    struct aligned aligned;
    struct labelled_best best;
    const struct sbp_solve_request request = {.asked = instance->request};
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    align(&aligned, &instance->plan);
    if (labelled_each(&instance->plan, &instance->request, 200000, keep_aligned, &aligned, &best,
                      &diag) != SBP_OK ||
        sbp_inner_solve_aligned(&instance->plan.cut, &request, &instance->plan.arena, &outcome,
                                &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    instance->plan.strategy = outcome.strategy;
    if (best.gave_up)
        return false;
    if (isinf(outcome.lower_bound_s) == 0 || outcome.status == SBP_PLAN_OPTIMAL)
        small_instance_complain(instance, "aligned plans bound nothing, but %.17g",
                                outcome.lower_bound_s);
    if (isinf(aligned.least_s) && isinf(outcome.objective_s))
        return false;
    check_plan(instance, &outcome);
    if (!is_aligned(&aligned, &instance->plan.strategy))
        small_instance_complain(instance, "layers split the batch differently");
    if (!is_close(outcome.objective_s, aligned.least_s))
        small_instance_complain(instance, "aligned: found %.17g, least %.17g", outcome.objective_s,
                                aligned.least_s);
    return true;
}

static void test_aligned(void **state)
{
    (void)state;
    static const struct {
        enum small_kind kind;
        int outer, inner, instances;
    } cases[] = {{SMALL_CHAIN, 2, 2, 60}, {SMALL_CHAIN, 6, 1, 60}, {SMALL_RESIDUAL, 2, 2, 30}};
    int found = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < cases[i].instances; k++) {
            struct small_instance instance = {
                .seed = 1000 * i + (uint64_t)k,
                .request = {.space = SBP_SPACE_AUTODDL, .quick = true}};
            open_exact(&instance, cases[i].kind, 3, cases[i].outer, cases[i].inner);
            found += check_aligned(&instance);
            sbp_plan_free(&instance.plan);
        }
    assert_true(found > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_aligned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
