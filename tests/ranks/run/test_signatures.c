/* Every operator of the catalogue in every role on an axis of two and of three ranks, and in every
 * pair of roles on two axes: gradients against differences of the ranks' own losses, and the run
 * against one device.
 *
 * All roles are tried whatever SBP_TEST_FEWER says; of pairs it takes one in so many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/program/runnable.h"
#include "run_checks.h"
#include "signature_plans.h"
#include "slopes.h"
#include "tests/support/fewer.h"

enum mesh_kind { TWO, THREE, TWO_BY_TWO, THREE_BY_TWO, MESHES };

/* Sizes of levels, of which each is an axis, and what they divide. */
static const struct {
    const char *name;
    int levels[3], axes, unit;
} meshes[MESHES] = {[TWO] = {"2", {2, 0}, 1, 4},
                    [THREE] = {"3", {3, 0}, 1, 3},
                    [TWO_BY_TWO] = {"2x2", {2, 2, 0}, 2, 4},
                    [THREE_BY_TWO] = {"3x2", {3, 2, 0}, 2, 6}};

struct coverage {
    int plans, directions;
    int narrowed, redrawn; /* widths after the first, and directions with other weights */
    int expected[MESHES], seen[MESHES];             /* signatures */
    bool of[MESHES][SBP_MAX_ROLES * SBP_MAX_ROLES]; /* by signature */
    double worst_error, worst_ratio;
};
static struct coverage covered[SBP_OP_KINDS];

/* ---- gradients ------------------------------------------------------------------------------- */

/* Whether losses have a kink within the width, or turn faster than it resolves. A gradient that is
 * too small makes no kink. */
static bool has_kink(const struct slope *slope)
{
    const double scale = fmax(slope->size, fabs(slope->difference));
    return slope->bend > 2e-7 * scale || slope->spread > 3e-5 * scale;
}

/* Whether a direction is nearly normal to the gradient: an error of a part of it would not show. */
static bool is_normal(const struct slope *slope)
{
    return fabs(slope->product) <= 1e-3 * slope->size;
}

static int mark_own(const struct sbp_graph *graph, int op, bool *moves)
{
    for (int w = 0; w < graph->op[op].weight_count; w++)
        moves[graph->op[op].weight[w]] = true;
    return graph->op[op].weight_count;
}

/* Weights of the operators that an operator reads from, and of those before them, the gradients of
 * which come through it. */
static int mark_front(const struct sbp_graph *graph, int op, bool *moves)
{
    int count = 0;
    for (int i = 0; i < graph->op[op].input_count; i++) {
        const int before = graph->tensor[graph->op[op].input[i]].producer;
        if (before >= 0)
            count += mark_own(graph, before, moves) + mark_front(graph, before, moves);
    }
    return count;
}

/* Fails the test where gradient and losses differ though there is no kink, and on a gradient of
 * zeros or of what is no number. */
static void expect_agreement(const struct plan *plan, const char *model, const struct slope *slope,
                             struct coverage *coverage)
{
    const double error = fabs(slope->difference - slope->product) / slope->size;
    if (isfinite(slope->product) && slope->size > 1e-6 && (has_kink(slope) || error <= 1e-8)) {
        if (!has_kink(slope))
            coverage->worst_error = fmax(coverage->worst_error, error);
        return;
    }
    describe_plan(plan, model);
    fail_msg("gradient along a direction %.12g, difference of losses %.12g, size %.3g",
             slope->product, slope->difference, slope->size);
}

/* Measures a slope over narrower widths while the losses have a kink within the last one; a
 * direction that is nearly normal to the gradient is of no use on any width. */
static void measure_slope(const struct plan *plan, const bool *moves, uint64_t drawn,
                          struct slope *slope, struct coverage *coverage)
{
    enum { WIDTHS = 3 };
    static const double widths[WIDTHS] = {0x1p-13, 0x1p-15, 0x1p-18};
    for (int i = 0; i < WIDTHS; i++) {
        const struct slope_request request = {
            .step = &plan->step, .seed = drawn, .width = widths[i], .moves = moves};
        slopes_measure(&request, slope);
        coverage->narrowed += i > 0;
        if (!has_kink(slope) || is_normal(slope))
            return;
    }
}

/* Other weights, data and another direction are drawn where losses keep a kink or the direction is
 * nearly normal to the gradient, never where gradient and losses differ. */
static void check_direction(const struct plan *plan, const bool *moves, uint64_t drawn,
                            const char *model, struct coverage *coverage)
{
    enum { DRAWS = 3 };
    coverage->directions++;
    for (int draw = 0; draw < DRAWS; draw++) {
        struct slope slope;
        measure_slope(plan, moves, drawn + (uint64_t)draw, &slope, coverage);
        expect_agreement(plan, model, &slope, coverage);
        if (!has_kink(&slope) && !is_normal(&slope))
            return;
        coverage->redrawn++;
    }
    describe_plan(plan, model);
    fail_msg("%d directions have a kink or are nearly normal to the gradient", DRAWS);
}

/* Along the target's own weights, and along those in front of it. False: the target lacks weights
 * that its kind may have, as heads do without sinks. */
static bool check_gradients(const struct plan *plan, int target, uint64_t drawn, const char *model,
                            struct coverage *coverage)
{
    const struct sbp_graph *graph = &plan->graph;
    const struct sbp_op_entry *entry = graph->op[target].entry;
    bool *own = calloc((size_t)graph->tensor_count, sizeof *own);
    bool *front = calloc((size_t)graph->tensor_count, sizeof *front);
    assert_true(own != NULL && front != NULL);
    const bool has_own = mark_own(graph, target, own) > 0;
    const bool has_front = mark_front(graph, target, front) > 0;
    if (has_own)
        check_direction(plan, own, drawn, model, coverage);
    if (has_front)
        check_direction(plan, front, drawn, model, coverage);
    free(own);
    free(front);
    assert_true(has_front == (entry->inputs > 0));
    return has_own == (entry->weights > 0);
}

/* ---- signatures ------------------------------------------------------------------------------ */

/* The target's roles on the axes, by the number of a signature. */
static void roles_of(const struct sbp_op_entry *entry, int axes, int number, int *role)
{
    role[0] = axes == 1 ? number : number / entry->role_count;
    role[1] = number % entry->role_count;
}

static void open_signature(enum mesh_kind mesh, const struct signature_model *of, int number,
                           struct sbp_random *random, char *model, struct plan *plan, int *target)
{
    int role[2];
    struct sbp_diag why = {0};
    const struct sbp_op_entry *entry = sbp_op(of->kind);
    sbp_random_seed(random, seed + 100000 * (uint64_t)mesh +
                                100 * (uint64_t)(of - signature_models) + (uint64_t)number);
    signature_model_text(of, meshes[mesh].unit, model, MODEL_BYTES);
    plan_open(plan, model, meshes[mesh].levels);
    *target = signature_target(plan, of->kind);
    roles_of(entry, meshes[mesh].axes, number, role);
    if (!signature_plan(plan, *target, role, random, &why))
        fail_msg("seed %llu, %s on %s: %s%s%s: no legal plan: %s", (unsigned long long)seed,
                 entry->name, meshes[mesh].name, entry->role[role[0]].name,
                 meshes[mesh].axes > 1 ? ", " : "",
                 meshes[mesh].axes > 1 ? entry->role[role[1]].name : "", why.text);
}

static void check_signature(enum mesh_kind mesh, const struct signature_model *of, int number)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct plan plan;
    int target;
    struct coverage *coverage = &covered[of->kind];
    open_signature(mesh, of, number, &random, model, &plan, &target);
    struct sbp_run_options options = options_for(SBP_F64, &random);
    options.steps = 1;
    if (check_gradients(&plan, target, options.seed, model, coverage) &&
        !coverage->of[mesh][number]) {
        coverage->of[mesh][number] = true;
        coverage->seen[mesh]++;
    }
    check_run(&plan, &options, model, &coverage->worst_ratio);
    coverage->plans++;
    plan_close(&plan);
}

/* An operator that is not run is refused, with a text that says so. */
static void expect_refused(const struct signature_model *of)
{
    char model[MODEL_BYTES], text[128];
    struct plan plan;
    struct sbp_diag diag = {0};
    signature_model_text(of, 4, model, MODEL_BYTES);
    plan_open(&plan, model, (const int[]){2, 0});
    assert_int_equal(sbp_runnable_check(&plan.graph, NULL, &diag), SBP_E_UNSUPPORTED);
    (void)snprintf(text, sizeof text, "%s is searched and priced, not run", sbp_op(of->kind)->name);
    assert_non_null(strstr(diag.text, text));
    plan_close(&plan);
}

/* Whether a signature is one of those that are drawn, one in so many. These are diagonals of the
 * pairs, at most as far apart as there are roles, so that each role is drawn on either axis. */
static bool is_drawn(const struct sbp_op_entry *entry, enum mesh_kind mesh, int number, int of_many)
{
    int role[2];
    const int apart = of_many < entry->role_count ? of_many : entry->role_count;
    roles_of(entry, meshes[mesh].axes, number, role);
    return ((uint64_t)(role[0] + role[1]) + seed) % (uint64_t)apart == 0;
}

/* Counts the signatures that are drawn of an operator for its first model. */
static void check_model(enum mesh_kind mesh, const struct signature_model *of, int of_many,
                        bool is_first)
{
    const struct sbp_op_entry *entry = sbp_op(of->kind);
    const int roles = entry->role_count;
    if (!entry->runs)
        expect_refused(of);
    for (int n = 0; entry->runs && n < (meshes[mesh].axes == 1 ? roles : roles * roles); n++)
        if (is_drawn(entry, mesh, n, of_many)) {
            covered[of->kind].expected[mesh] += is_first;
            check_signature(mesh, of, n);
        }
}

/* Every role of an operator that runs is drawn on every axis, and every signature that is drawn has
 * all of the operator's gradients in one of its models. */
static void expect_covered(enum mesh_kind mesh, enum sbp_op_kind kind)
{
    const struct sbp_op_entry *entry = sbp_op(kind);
    const struct coverage *of = &covered[kind];
    const bool is_whole = meshes[mesh].axes == 1;
    if (entry->runs && (is_whole ? of->expected[mesh] != entry->role_count
                                 : of->expected[mesh] < entry->role_count))
        fail_msg("%s: %d signatures of %d roles on %s ranks are drawn", entry->name,
                 of->expected[mesh], entry->role_count, meshes[mesh].name);
    if (of->seen[mesh] != of->expected[mesh])
        fail_msg("%s: %d of %d signatures on %s ranks have all of the operator's gradients",
                 entry->name, of->seen[mesh], of->expected[mesh], meshes[mesh].name);
}

static void check_mesh(enum mesh_kind mesh, int of_many)
{
    bool has_model[SBP_OP_KINDS] = {false};
    for (int i = 0; i < signature_model_count; i++) {
        const enum sbp_op_kind kind = signature_models[i].kind;
        check_model(mesh, &signature_models[i], of_many, !has_model[kind]);
        has_model[kind] = true;
    }
    for (int kind = 0; kind < SBP_OP_KINDS; kind++) {
        if (!has_model[kind])
            fail_msg("no model of signature_plans.c has the operator %s",
                     sbp_op((enum sbp_op_kind)kind)->name);
        expect_covered(mesh, (enum sbp_op_kind)kind);
    }
}

static void every_role_on_two_ranks(void **state)
{
    (void)state;
    check_mesh(TWO, 1);
}

static void every_role_on_three_ranks(void **state)
{
    (void)state;
    check_mesh(THREE, 1);
}

static void every_pair_of_roles_on_two_by_two_ranks(void **state)
{
    (void)state;
    check_mesh(TWO_BY_TWO, one_in());
}

static void every_pair_of_roles_on_three_by_two_ranks(void **state)
{
    (void)state;
    check_mesh(THREE_BY_TWO, one_in());
}

static void print_covered(const struct sbp_op_entry *entry, const struct coverage *of)
{
    print_message("%-18s %d roles:", entry->name, entry->role_count);
    for (int mesh = 0; mesh < MESHES; mesh++)
        print_message(" %d/%d", of->seen[mesh], of->expected[mesh]);
    print_message(entry->runs ? "; %d plans, largest error %.1e, %d times narrower, %d other "
                                "weights, difference / bound %.3f\n"
                              : "; searched and priced, not run\n",
                  of->plans, of->worst_error, of->narrowed, of->redrawn, of->worst_ratio);
}

/* Prints what was covered. A kink is as rare as the data make it, so that few of all directions
 * (4,144 unless there are fewer pairs) may have narrower widths or other weights. */
static void few_directions_are_measured_again(void **state)
{
    enum { MOST_NARROWED = 100, MOST_REDRAWN = 8 };
    int directions = 0, narrowed = 0, redrawn = 0;
    (void)state;
    print_message("seed %llu, signatures on", (unsigned long long)seed);
    for (int mesh = 0; mesh < MESHES; mesh++)
        print_message(" %s", meshes[mesh].name);
    print_message(" ranks\n");
    for (int kind = 0; kind < SBP_OP_KINDS; kind++) {
        print_covered(sbp_op((enum sbp_op_kind)kind), &covered[kind]);
        directions += covered[kind].directions;
        narrowed += covered[kind].narrowed;
        redrawn += covered[kind].redrawn;
    }
    print_message("%d directions, %d times narrower (at most %d), %d other weights (at most %d)\n",
                  directions, narrowed, MOST_NARROWED, redrawn, MOST_REDRAWN);
    assert_in_range(narrowed, 0, MOST_NARROWED);
    assert_in_range(redrawn, 0, MOST_REDRAWN);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_role_on_two_ranks),
        cmocka_unit_test(every_role_on_three_ranks),
        cmocka_unit_test(every_pair_of_roles_on_two_by_two_ranks),
        cmocka_unit_test(every_pair_of_roles_on_three_by_two_ranks),
        cmocka_unit_test(few_directions_are_measured_again),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
