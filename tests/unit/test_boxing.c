/* Boxing by simulation: every rank's block of a small tensor is built from the wording of the
 * distributions, the steps are executed with plain loops over the members of a group, and the
 * outcome must be the target distribution of the same tensor, exactly (integers). Besides: the
 * normal form, the element counts of the cost formulas, and duality.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "costmodel/boxing.h"
#include "tests/unit/sbp_oracle.h"

#define SEED          UINT64_C(4204)
#define ROUNDS        1500
#define MOST_RANKS    16
#define MOST_ELEMENTS 600

/* What every rank holds of one logical tensor. */
struct world {
    const struct oracle_tensor *tensor;
    const int64_t *logical;
    int64_t ranks, count; /* elements a rank */
    int64_t *block[MOST_RANKS];
};

struct problem {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    struct sbp_dist from, to;
    struct oracle_tensor tensor;
};

static int64_t *numbers(int64_t count)
{
    int64_t *array = calloc((size_t)count + 1, sizeof *array);
    assert_non_null(array);
    return array;
}

static void world_drop(struct world *world)
{
    for (int64_t r = 0; r < world->ranks; r++)
        free(world->block[r]);
}

static void describe(const struct problem *p, const struct sbp_boxing *boxing)
{
    char from[128], to[128];
    print_message("mesh of %lld ranks, sizes %lld %lld %lld, splits %#x %#x %#x\n",
                  (long long)p->mesh.devices, (long long)p->tensor.shape.size[0],
                  (long long)p->tensor.shape.size[1], (long long)p->tensor.shape.size[2],
                  p->tensor.split[0], p->tensor.split[1], p->tensor.split[2]);
    for (int i = 0; i < p->mesh.axis_count; i++)
        print_message("  axis %d of %lld: %d(%d) -> %d(%d)\n", i, (long long)p->mesh.axis[i].size,
                      p->from.axis[i].kind, p->from.axis[i].dim, p->to.axis[i].kind,
                      p->to.axis[i].dim);
    for (int i = 0; boxing != NULL && i < boxing->count; i++)
        print_message("  %s over %#x: %s -> %s, %lld elements\n",
                      sbp_collective_name(boxing->step[i].kind), boxing->step[i].axes,
                      sbp_dist_text(&p->mesh, &boxing->step[i].from, from, sizeof from),
                      sbp_dist_text(&p->mesh, &boxing->step[i].to, to, sizeof to),
                      (long long)boxing->step[i].elements);
}

/* --- distributions in the flesh --- */

/* A rank's place among those that hold addends of the same elements. */
static int64_t place_among(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank)
{
    int64_t place = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            place = place * mesh->axis[i].size + oracle_coordinate(mesh, rank, i);
    return place;
}

static sbp_axes axes_of_kind(const struct sbp_mesh *mesh, const struct sbp_dist *dist, int kind)
{
    sbp_axes axes = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (dist->axis[i].kind == kind)
            axes |= (sbp_axes)1 << i;
    return axes;
}

/* Random addends; the last holder has what is missing to the sum. */
static int64_t addend(int64_t logical, int64_t element, int64_t place, int64_t holders)
{
    int64_t rest = logical;
    for (int64_t i = 0; i < holders; i++) {
        const int64_t draw =
            (int64_t)(sbp_counter_bits(SEED, (uint64_t)i, (uint64_t)element) % 2001) - 1000;
        if (i == place && i < holders - 1)
            return draw;
        if (i < holders - 1)
            rest -= draw;
    }
    return rest;
}

static void world_build(struct world *world, const struct oracle_tensor *tensor,
                        const struct sbp_dist *dist, const int64_t *logical)
{
    const struct sbp_mesh *mesh = tensor->layout.mesh;
    const sbp_axes partial = axes_of_kind(mesh, dist, SBP_PARTIAL);
    const int64_t holders = oracle_product(mesh, partial);
    *world = (struct world){.tensor = tensor, .logical = logical, .ranks = mesh->devices};
    for (int64_t r = 0; r < world->ranks; r++) {
        world->block[r] = numbers(oracle_size(&tensor->shape));
        world->count = oracle_block(&tensor->layout, &tensor->shape, dist, r, world->block[r]);
        for (int64_t i = 0; i < world->count; i++) {
            const int64_t at = world->block[r][i];
            world->block[r][i] = addend(logical[at], at, place_among(mesh, partial, r), holders);
        }
    }
}

/* The world is the distribution of the logical tensor: replicas equal, addends sum up. */
static bool world_is(const struct world *world, const struct sbp_dist *dist)
{
    const struct oracle_tensor *t = world->tensor;
    const struct sbp_mesh *mesh = t->layout.mesh;
    const sbp_axes partial = axes_of_kind(mesh, dist, SBP_PARTIAL);
    const sbp_axes same = axes_of_kind(mesh, dist, SBP_BROADCAST);
    int64_t *at = numbers(oracle_size(&t->shape)), *sum = numbers(world->count);
    bool is = true;
    for (int64_t r = 0; r < world->ranks && is; r++) {
        is = oracle_block(&t->layout, &t->shape, dist, r, at) == world->count;
        memset(sum, 0, (size_t)world->count * sizeof *sum);
        for (int64_t o = 0; o < world->ranks && is; o++) {
            if (oracle_same_group(mesh, same, r, o))
                is = memcmp(world->block[o], world->block[r], (size_t)world->count * sizeof *sum) ==
                     0;
            if (oracle_same_group(mesh, partial, r, o))
                for (int64_t i = 0; i < world->count; i++)
                    sum[i] += world->block[o][i];
        }
        for (int64_t i = 0; i < world->count && is; i++)
            is = sum[i] == world->logical[at[i]];
    }
    free(at);
    free(sum);
    return is;
}

/* --- steps in the flesh --- */

static void permute(const struct sbp_permutation *p, int64_t count, const int64_t *src,
                    int64_t *dst)
{
    if (!p->needed) {
        memcpy(dst, src, (size_t)count * sizeof *dst);
        return;
    }
    int64_t product = 1;
    bool seen[4 * SBP_MAX_AXES] = {false};
    for (int i = 0; i < p->dims; i++) {
        product *= p->shape[i];
        assert_in_range(p->order[i], 0, p->dims - 1);
        assert_false(seen[p->order[i]]);
        seen[p->order[i]] = true;
    }
    assert_int_equal(product, count);
    for (int i = 0; i < p->dims; i++) { /* what stays together is merged: no idle dimension */
        assert_true(p->shape[i] > 1);
        assert_true(i == 0 || p->order[i] != p->order[i - 1] + 1);
    }
    assert_true(p->dims > 1);
    for (int64_t to = 0; to < count; to++) {
        int64_t index[4 * SBP_MAX_AXES], left = to, from = 0;
        for (int i = p->dims - 1; i >= 0; i--) {
            index[p->order[i]] = left % p->shape[p->order[i]];
            left /= p->shape[p->order[i]];
        }
        for (int i = 0; i < p->dims; i++)
            from = from * p->shape[i] + index[i];
        dst[to] = src[from];
    }
}

static int64_t members_of(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank, int64_t *member)
{
    int64_t count = 0;
    for (int64_t o = 0; o < mesh->devices; o++)
        if (oracle_same_group(mesh, axes, rank, o))
            member[count++] = o;
    return count;
}

/* What a backend promises: `sent` blocks in, received block out; count: elements sent. */
static int64_t exchange(const struct sbp_mesh *mesh, const struct sbp_boxing_step *step,
                        int64_t rank, int64_t count, int64_t *const *sent, int64_t *got)
{
    int64_t member[MOST_RANKS], me = 0;
    const int64_t g = members_of(mesh, step->axes, rank, member);
    while (member[me] != rank)
        me++;
    const int64_t part = count / g;
    switch (step->kind) {
    case SBP_ALL_REDUCE:
        for (int64_t i = 0; i < count * g; i++)
            got[i % count] += sent[member[i / count]][i % count];
        return count;
    case SBP_REDUCE_SCATTER:
        assert_int_equal(count % g, 0);
        for (int64_t i = 0; i < count; i++)
            got[i % part] += sent[member[i / part]][me * part + i % part];
        return part;
    case SBP_ALL_TO_ALL:
        assert_int_equal(count % g, 0);
        for (int64_t i = 0; i < count; i++)
            got[i] = sent[member[i / part]][me * part + i % part];
        return count;
    case SBP_ALL_GATHER:
        for (int64_t i = 0; i < count * g; i++)
            got[i] = sent[member[i / count]][i % count];
        return count * g;
    default:
        fail_msg("no exchange: %s", sbp_collective_name(step->kind));
        return 0;
    }
}

/* Slices, zero padding, and keeping on one member: element by element, by ownership. */
static int64_t local_step(const struct oracle_tensor *t, const struct sbp_boxing_step *step,
                          int64_t rank, const int64_t *src, int64_t *dst)
{
    const struct sbp_mesh *mesh = t->layout.mesh;
    int64_t *have = numbers(oracle_size(&t->shape)), *want = numbers(oracle_size(&t->shape));
    const int64_t haves = oracle_block(&t->layout, &t->shape, &step->from, rank, have);
    const int64_t wants = oracle_block(&t->layout, &t->shape, &step->to, rank, want);
    bool keeps = true;
    for (int i = 0; i < mesh->axis_count; i++)
        if (step->from.axis[i].kind == SBP_BROADCAST && step->to.axis[i].kind == SBP_PARTIAL)
            keeps &= oracle_coordinate(mesh, rank, i) == 0;
    for (int64_t i = 0, j = 0; i < wants; i++) {
        while (j < haves && have[j] < want[i])
            j++;
        dst[i] = keeps && j < haves && have[j] == want[i] ? src[j] : 0;
    }
    free(have);
    free(want);
    return wants;
}

static void run_step(struct world *world, const struct sbp_boxing_step *step)
{
    const struct oracle_tensor *t = world->tensor;
    const struct sbp_mesh *mesh = t->layout.mesh;
    const int64_t size = oracle_size(&t->shape);
    int64_t *sent[MOST_RANKS], *got = numbers(size), *next[MOST_RANKS];
    struct sbp_permutation pack, unpack;
    int64_t count = 0;
    if (step->kind != SBP_LOCAL) {
        sbp_boxing_pack(&t->layout, &t->shape, step, &pack);
        sbp_boxing_unpack(&t->layout, &t->shape, step, &unpack);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        sent[r] = numbers(size);
        next[r] = numbers(size);
        if (step->kind != SBP_LOCAL)
            permute(&pack, world->count, world->block[r], sent[r]);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        if (step->kind == SBP_LOCAL) {
            count = local_step(t, step, r, world->block[r], next[r]);
            continue;
        }
        memset(got, 0, (size_t)size * sizeof *got);
        count = exchange(mesh, step, r, world->count, sent, got);
        permute(&unpack, count, got, next[r]);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        free(sent[r]);
        free(world->block[r]);
        world->block[r] = next[r];
    }
    free(got);
    world->count = count;
}

static void simulate(const struct problem *p, const struct sbp_boxing *boxing)
{
    int64_t *logical = numbers(oracle_size(&p->tensor.shape));
    for (int64_t i = 0; i < oracle_size(&p->tensor.shape); i++)
        logical[i] = 100 + 7 * i;
    struct world world;
    world_build(&world, &p->tensor, &p->from, logical);
    if (!world_is(&world, &p->from))
        fail_msg("the simulation is wrong");
    for (int i = 0; i < boxing->count; i++) {
        run_step(&world, &boxing->step[i]);
        if (!world_is(&world, &boxing->step[i].to)) {
            describe(p, boxing);
            fail_msg("step %d does not lead to what it says", i);
        }
    }
    if (!world_is(&world, &p->to)) {
        describe(p, boxing);
        fail_msg("the steps do not lead to the target");
    }
    world_drop(&world);
    free(logical);
}

/* --- the normal form, from the table of transitions --- */

struct moves {
    sbp_axes leave_partial, between_splits, to_broadcast, partial_to_broadcast, local;
    sbp_axes moving; /* all that need a collective */
};

static struct moves moves_of(const struct problem *p)
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

static int64_t local_of(const struct problem *p, const struct sbp_dist *dist)
{
    int64_t split = 1;
    for (int i = 0; i < p->mesh.axis_count; i++)
        split *= dist->axis[i].kind == SBP_SPLIT ? p->mesh.axis[i].size : 1;
    return oracle_size(&p->tensor.shape) / split;
}

static void check_step(const struct problem *p, const struct sbp_boxing *boxing, int at,
                       enum sbp_collective kind, sbp_axes axes)
{
    const struct sbp_boxing_step *step = &boxing->step[at];
    if (at >= boxing->count || step->kind != kind || step->axes != axes) {
        describe(p, boxing);
        fail_msg("step %d is not %s over %#x", at, sbp_collective_name(kind), axes);
    }
    const int64_t before = local_of(p, &step->from), after = local_of(p, &step->to);
    if (kind != SBP_LOCAL && step->elements != (before > after ? before : after)) {
        describe(p, boxing);
        fail_msg("step %d: %lld elements, %lld before and %lld after", at,
                 (long long)step->elements, (long long)before, (long long)after);
    }
}

static void check_normal_form(const struct problem *p, const struct sbp_boxing *boxing)
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
static void check_refusal(const struct problem *p, const struct sbp_diag *diag)
{
    const struct moves m = moves_of(p);
    const sbp_axes digits = p->tensor.split[0] | p->tensor.split[1] | p->tensor.split[2];
    if (m.partial_to_broadcast == 0 || m.moving == m.partial_to_broadcast ||
        (m.partial_to_broadcast & ~digits) == 0) {
        describe(p, NULL);
        fail_msg("refused: %s", diag->text);
    }
    assert_true(diag->text[0] != '\0');
}

/* --- random transitions --- */

enum task { ANY, INTO_REST, OUT_OF_REST, WEIGHT };

static void draw_problem(struct sbp_random *random, enum task task, struct problem *p)
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
    } while (oracle_size(&p->tensor.shape) > MOST_ELEMENTS || p->mesh.devices > MOST_RANKS);
}

static double price_s(const struct problem *p, const struct sbp_boxing *boxing)
{
    double seconds = 0;
    for (int i = 0; i < boxing->count; i++)
        seconds += sbp_collective_s(&p->cluster, &p->mesh, boxing->step[i].kind,
                                    boxing->step[i].axes, 4 * (double)boxing->step[i].elements);
    return seconds;
}

static bool box(const struct problem *p, struct sbp_boxing *boxing)
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
static void check_dual(const struct problem *p, const struct sbp_boxing *forward)
{
    struct problem back = *p;
    back.from = sbp_dist_dual(&p->mesh, &p->to);
    back.to = sbp_dist_dual(&p->mesh, &p->from);
    back.tensor.layout = (struct sbp_layout){&back.mesh, SBP_MAX_DIMS, back.tensor.split};
    struct sbp_boxing backward;
    if (!box(&back, &backward))
        fail_msg("there is a way forward and none back");
    check_normal_form(&back, &backward);
    simulate(&back, &backward);
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
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    int refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct problem p;
        struct sbp_boxing boxing;
        draw_problem(&random, task, &p);
        if (!box(&p, &boxing)) {
            refused++;
            continue;
        }
        assert_in_range(boxing.count, 0, SBP_MAX_BOXING_STEPS);
        check_normal_form(&p, &boxing);
        simulate(&p, &boxing);
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
        struct problem p;
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
    struct problem p = {.cluster = oracle_cluster(1, (int64_t[]){8})};
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
