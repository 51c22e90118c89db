/* The normal form of transitions: run by simulation (boxing_world.h), and compared with the table
 * of transitions, the element counts of the cost formulas, and the dual transition. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/boxing_world.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED   UINT64_C(4204)
#define ROUNDS 1500

/* --- the normal form, from the table of transitions --- */

struct moves {
    sbp_axes leave_partial, between_splits, to_broadcast, partial_to_broadcast, local;
    sbp_axes moving; /* all that need a collective */
};

static struct moves moves_of(const struct box_problem *p)
{
    struct moves m = {0};
    for (int i = 0; i < p->mesh.axis_count; i++) {
        const struct sbp_state from = p->from.axis[i], to = p->to.axis[i];
        const sbp_axes bit = (sbp_axes)1 << i;
        if (sbp_state_equal(from, to))
            continue;
        if (from.kind == SBP_PARTIAL)
            m.leave_partial |= bit;
        if (from.kind == SBP_SPLIT && to.kind == SBP_SPLIT)
            m.between_splits |= bit;
        if (to.kind == SBP_BROADCAST)
            m.to_broadcast |= bit;
        if (from.kind == SBP_PARTIAL && to.kind == SBP_BROADCAST)
            m.partial_to_broadcast |= bit;
        if (from.kind == SBP_BROADCAST || to.kind == SBP_PARTIAL)
            m.local |= bit;
    }
    m.moving = m.leave_partial | m.between_splits | m.to_broadcast;
    return m;
}

static int64_t local_of(const struct box_problem *p, const struct sbp_dist *dist)
{
    int64_t split = 1;
    for (int i = 0; i < p->mesh.axis_count; i++)
        split *= dist->axis[i].kind == SBP_SPLIT ? p->mesh.axis[i].size : 1;
    return oracle_size(&p->tensor.shape) / split;
}

static void check_step(const struct box_problem *p, const struct sbp_boxing *boxing, int at,
                       enum sbp_collective kind, sbp_axes axes)
{
    const struct sbp_boxing_step *step = &boxing->step[at];
    if (at >= boxing->count || step->kind != kind || step->axes != axes) {
        box_describe(p, boxing);
        fail_msg("step %d is not %s over %#x", at, sbp_collective_name(kind), axes);
    }
    const int64_t before = local_of(p, &step->from), after = local_of(p, &step->to);
    if (kind != SBP_LOCAL && step->elements != (before > after ? before : after)) {
        box_describe(p, boxing);
        fail_msg("step %d: %lld elements, %lld before and %lld after", at,
                 (long long)step->elements, (long long)before, (long long)after);
    }
}

static void check_normal_form(const struct box_problem *p, const struct sbp_boxing *boxing)
{
    const struct moves m = moves_of(p);
    int at = 0;
    if (m.moving != 0 && m.moving == m.partial_to_broadcast) {
        check_step(p, boxing, at++, SBP_ALL_REDUCE, m.moving);
    } else {
        if (m.leave_partial != 0)
            check_step(p, boxing, at++, SBP_REDUCE_SCATTER, m.leave_partial);
        if (m.between_splits != 0)
            check_step(p, boxing, at++, SBP_ALL_TO_ALL, m.between_splits);
        if (m.to_broadcast != 0)
            check_step(p, boxing, at++, SBP_ALL_GATHER, m.to_broadcast);
    }
    if (m.local != 0)
        check_step(p, boxing, at++, SBP_LOCAL, m.local);
    assert_int_equal(boxing->count, at);
    const struct sbp_dist *last = &p->from;
    for (int i = 0; i < boxing->count; i++) {
        assert_true(sbp_dist_equal(&p->mesh, &boxing->step[i].from, last));
        last = &boxing->step[i].to;
    }
    assert_true(sbp_dist_equal(&p->mesh, last, &p->to));
}

/* A refusal is right where something partial becomes whole beside another move, and some such axis
 * has no digit in any dimension. */
static void check_refusal(const struct box_problem *p, const struct sbp_diag *diag)
{
    const struct moves m = moves_of(p);
    const sbp_axes digits = p->tensor.split[0] | p->tensor.split[1] | p->tensor.split[2];
    if (m.partial_to_broadcast == 0 || m.moving == m.partial_to_broadcast ||
        (m.partial_to_broadcast & ~digits) == 0) {
        box_describe(p, NULL);
        fail_msg("refused: %s", diag->text);
    }
    assert_true(diag->text[0] != '\0');
}

/* --- random transitions --- */

enum task { ANY, INTO_REST, OUT_OF_REST, WEIGHT };

static void draw_problem(struct sbp_random *random, enum task task, struct box_problem *p)
{
    static const int64_t sizes[][3] = {{2, 2, 2}, {2, 3, 1}, {3, 2, 1}, {4, 2, 1}, {2, 4, 1},
                                       {6, 1, 1}, {2, 6, 1}, {1, 1, 1}, {3, 3, 1}, {2, 2, 4}};
    do {
        struct sbp_diag diag = {{0}};
        p->cluster = oracle_cluster(3, sizes[oracle_below(random, 10)]);
        assert_int_equal(sbp_mesh_make(&p->cluster, &p->mesh, &diag), SBP_OK);
        const int dims = 1 + (int)oracle_below(random, 3);
        struct sbp_dist pair[2];
        for (int j = 0; j < 2; j++)
            pair[j] = oracle_random_dist(random, &p->mesh, dims,
                                         (task == INTO_REST && j == 1) ||
                                             (task == OUT_OF_REST && j == 0));
        for (int i = 0; i < p->mesh.axis_count; i++) {
            if (task == INTO_REST && pair[0].axis[i].kind == SBP_BROADCAST)
                pair[0].axis[i] = SBP_STATE_P; /* operators leave splits and partial sums */
            if (task == OUT_OF_REST && pair[1].axis[i].kind == SBP_PARTIAL)
                pair[1].axis[i] = SBP_STATE_B;
            if (task == WEIGHT)
                pair[1].axis[i] =
                    pair[0].axis[i].kind == SBP_PARTIAL ? SBP_STATE_B : pair[0].axis[i];
        }
        oracle_random_tensor(random, &p->mesh, dims, pair, 2, &p->tensor);
        p->tensor.layout = (struct sbp_layout){&p->mesh, SBP_MAX_DIMS, p->tensor.split};
        p->from = pair[0];
        p->to = pair[1];
    } while (oracle_size(&p->tensor.shape) > BOX_MOST_ELEMENTS || p->mesh.devices > BOX_MOST_RANKS);
}

static double price_s(const struct box_problem *p, const struct sbp_boxing *boxing)
{
    double seconds = 0;
    for (int i = 0; i < boxing->count; i++)
        seconds += sbp_collective_s(&p->cluster, &p->mesh, boxing->step[i].kind,
                                    boxing->step[i].axes, 4 * (double)boxing->step[i].elements);
    return seconds;
}

static bool box(const struct box_problem *p, struct sbp_boxing *boxing)
{
    struct sbp_diag diag = {{0}};
    const enum sbp_status status =
        sbp_boxing_make(&p->tensor.layout, &p->tensor.shape, &p->from, &p->to, boxing, &diag);
    if (status == SBP_OK)
        return true;
    assert_int_equal(status, SBP_E_INPUT);
    check_refusal(p, &diag);
    return false;
}

static const enum sbp_collective dual_kind[] = {
    [SBP_ALL_REDUCE] = SBP_ALL_REDUCE,     [SBP_ALL_GATHER] = SBP_REDUCE_SCATTER,
    [SBP_REDUCE_SCATTER] = SBP_ALL_GATHER, [SBP_ALL_TO_ALL] = SBP_ALL_TO_ALL,
    [SBP_SEND_RECV] = SBP_SEND_RECV,       [SBP_LOCAL] = SBP_LOCAL,
};

/* The way back of a gradient: dual collectives in reverse over the same groups, at the same price
 * as long as nothing is sliced or padded. */
static void check_dual(const struct box_problem *p, const struct sbp_boxing *forward)
{
    struct box_problem back = *p;
    back.from = sbp_dist_dual(&p->mesh, &p->to);
    back.to = sbp_dist_dual(&p->mesh, &p->from);
    back.tensor.layout = (struct sbp_layout){&back.mesh, SBP_MAX_DIMS, back.tensor.split};
    struct sbp_boxing backward;
    if (!box(&back, &backward))
        fail_msg("there is a way forward and none back");
    check_normal_form(&back, &backward);
    box_simulate(&back, &backward);
    assert_int_equal(backward.count, forward->count);
    const int moving = forward->count -
                       (forward->count > 0 && forward->step[forward->count - 1].kind == SBP_LOCAL);
    for (int i = 0; i < moving; i++) {
        assert_int_equal(backward.step[i].kind, dual_kind[forward->step[moving - 1 - i].kind]);
        assert_int_equal(backward.step[i].axes, forward->step[moving - 1 - i].axes);
    }
    const double there = price_s(p, forward), again = price_s(&back, &backward);
    if (moving == forward->count && fabs(there - again) > 1e-12 * there)
        fail_msg("forward costs %.17g s, backward %.17g s", there, again);
}

static void run_task(enum task task, uint64_t seed, int refusals_allowed)
{
    struct sbp_random random = seeded(seed);
    int refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct box_problem p;
        struct sbp_boxing boxing;
        draw_problem(&random, task, &p);
        if (!box(&p, &boxing)) {
            refused++;
            continue;
        }
        assert_in_range(boxing.count, 0, SBP_MAX_BOXING_STEPS);
        check_normal_form(&p, &boxing);
        box_simulate(&p, &boxing);
        check_dual(&p, &boxing);
    }
    print_message("%d refused\n", refused);
    assert_true(refused <= refusals_allowed);
}

static void test_any(void **state)
{
    (void)state;
    run_task(ANY, SEED, ROUNDS / 2);
}

static void test_producers(void **state)
{
    (void)state;
    run_task(INTO_REST, SEED + 1, 0);
}

static void test_consumers(void **state)
{
    (void)state;
    run_task(OUT_OF_REST, SEED + 2, 0);
}

static void test_weight_gradients(void **state)
{
    (void)state;
    run_task(WEIGHT, SEED + 3, 0);
}

static void test_identity_is_free(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 4);
    for (int round = 0; round < 500; round++) {
        struct box_problem p;
        struct sbp_boxing boxing;
        draw_problem(&random, ANY, &p);
        p.to = p.from;
        assert_true(box(&p, &boxing));
        assert_int_equal(boxing.count, 0);
    }
}

/* Edges without B in the source and P in the target cost what the paper's chain costs; the order
 * makes the all-to-all move the smallest shard: (P, S0, S1) -> (S1, S1, B) on 2x2x2. */
static void test_by_hand(void **state)
{
    (void)state;
    struct box_problem p = {.cluster = oracle_cluster(1, (int64_t[]){8})};
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_mesh_make(&p.cluster, &p.mesh, &diag), SBP_OK);
    p.tensor = (struct oracle_tensor){
        .split = {2, 7},
        .shape = {{16, 32, 1, 1}, {0, 1, SBP_NO_CLASS, SBP_NO_CLASS}},
    };
    p.tensor.layout = (struct sbp_layout){&p.mesh, 2, p.tensor.split};
    p.from = (struct sbp_dist){{SBP_STATE_P, SBP_STATE_S(0), SBP_STATE_S(1)}};
    p.to = (struct sbp_dist){{SBP_STATE_S(1), SBP_STATE_S(1), SBP_STATE_B}};
    struct sbp_boxing boxing;
    assert_true(box(&p, &boxing));
    const struct {
        enum sbp_collective kind;
        sbp_axes axes;
        int64_t elements;
    } rows[] = {{SBP_REDUCE_SCATTER, 1, 512 / 4},
                {SBP_ALL_TO_ALL, 2, 512 / 8},
                {SBP_ALL_GATHER, 4, 512 / 4}};
    assert_int_equal(boxing.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(boxing.step[i].kind, rows[i].kind);
        assert_int_equal(boxing.step[i].axes, rows[i].axes);
        assert_int_equal(boxing.step[i].elements, rows[i].elements);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),   cmocka_unit_test(test_identity_is_free),
        cmocka_unit_test(test_any),       cmocka_unit_test(test_producers),
        cmocka_unit_test(test_consumers), cmocka_unit_test(test_weight_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
