/* Properties of what a change of distribution costs, on random meshes of one to four levels, by
 * rings and by phases, with and without shared ports and measured curves; for the normal form and
 * for paths. Paths are also run by simulation, and compared with all sequences of steps. Paths are
 * the least there is where prices follow alpha and beta, slower levels stand outside of faster ones
 * and every axis can be split: drawn so with ORDERED.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/layout/boxing_path.h"
#include "tests/support/boxing_world.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED  UINT64_C(4206)
#define BYTES 4

/* --- random clusters and tensors --- */

enum { CURVES = 1, SMALL = 2, ORDERED = 4 };

/* Curves of every kind at a few sizes: multiples of the formula that never fall. */
static void draw_curves(struct sbp_random *random, int level, struct sbp_cluster *cluster)
{
    struct sbp_curves *curves = &cluster->curves;
    const struct sbp_level *at = &cluster->level[level];
    for (int kind = 0; kind < SBP_LOCAL; kind++) {
        if (oracle_below(random, 2) == 0)
            continue;
        for (int64_t members = 2; members <= 8; members *= 4) {
            struct sbp_curve *curve = &curves->curve[curves->curve_count++];
            *curve = (struct sbp_curve){(enum sbp_collective)kind, level, members,
                                        curves->point_count, 4};
            double slower = 0.5 + sbp_random_unit(random);
            for (int i = 0; i < 4; i++, slower *= 1 + sbp_random_unit(random)) {
                const double n = 16 * pow(8, i);
                curves->point[curves->point_count++] = (struct sbp_time_point){
                    n, slower * (1e-9 +
                                 sbp_collective_steps(curve->kind, (double)members) * at->alpha_s +
                                 sbp_collective_share(curve->kind, (double)members) * n *
                                     at->beta_s_per_byte)};
            }
        }
    }
}

/* The outermost level is the slowest; its ports alone are shared. */
static void order_levels(struct sbp_random *random, struct sbp_cluster *cluster)
{
    for (int i = cluster->level_count - 1; i > 0; i--) {
        struct sbp_level *inner = &cluster->level[i], *outer = inner - 1;
        outer->alpha_s = inner->alpha_s + 1e-8 * (double)oracle_below(random, 50);
        outer->beta_s_per_byte = inner->beta_s_per_byte + 1e-9 * (double)oracle_below(random, 50);
        inner->ports = 0;
    }
}

static struct sbp_cluster draw_cluster(struct sbp_random *random, unsigned flags)
{
    static const int64_t shapes[][4] = {{4, 1, 1, 1}, {6, 1, 1, 1}, {2, 2, 1, 1}, {2, 4, 1, 1},
                                        {4, 2, 1, 1}, {3, 2, 1, 1}, {2, 2, 2, 1}, {2, 1, 4, 1},
                                        {2, 3, 2, 1}, {2, 2, 2, 2}, {8, 8, 1, 1}, {2, 4, 2, 4}};
    const int64_t *size = shapes[oracle_below(random, flags & SMALL ? 9 : 12)];
    int levels = 1;
    for (int i = 0; i < SBP_MAX_LEVELS; i++)
        levels = size[i] > 1 ? i + 1 : levels;
    struct sbp_cluster cluster = oracle_cluster(levels, size);
    const bool ports = oracle_below(random, 2) == 0;
    cluster.collectives = (enum sbp_collective_model)oracle_below(random, 2);
    for (int i = 0; i < levels; i++) {
        cluster.level[i].alpha_s = 1e-8 * (double)oracle_below(random, 50);
        cluster.level[i].beta_s_per_byte = 1e-9 * (double)(1 + oracle_below(random, 50));
        cluster.level[i].ports = ports ? (int)oracle_below(random, 4) : 0;
        if (flags & CURVES)
            draw_curves(random, i, &cluster);
    }
    if (flags & ORDERED)
        order_levels(random, &cluster);
    return cluster;
}

/* Gives every axis a digit in the first dimension that has none in any. */
static void divide_all(const struct sbp_mesh *mesh, struct oracle_tensor *tensor)
{
    for (int i = 0; i < mesh->axis_count; i++) {
        sbp_axes splits = 0;
        for (int d = 0; d < SBP_MAX_DIMS; d++)
            splits |= tensor->split[d];
        if (splits >> i & 1)
            continue;
        tensor->split[0] |= (sbp_axes)1 << i;
        tensor->shape.size[0] *= mesh->axis[i].size;
    }
}

/* A cluster, a tensor, and several of its distributions. */
struct setting {
    struct box_problem p;
    struct sbp_dist dist[3];
};

static void draw(struct sbp_random *random, unsigned flags, int count, struct setting *s)
{
    const int dims = 1 + (int)oracle_below(random, 3);
    struct sbp_diag diag;
    s->p.cluster = draw_cluster(random, flags);
    assert_int_equal(sbp_mesh_make(&s->p.cluster, &s->p.mesh, &diag), SBP_OK);
    for (int i = 0; i < count; i++)
        s->dist[i] = oracle_random_dist(random, &s->p.mesh, dims, false);
    oracle_random_tensor(random, &s->p.mesh, dims, s->dist, count, &s->p.tensor);
    if (flags & ORDERED)
        divide_all(&s->p.mesh, &s->p.tensor);
    s->p.tensor.layout = (struct sbp_layout){&s->p.mesh, SBP_MAX_DIMS, s->p.tensor.split};
    s->p.from = s->dist[0];
    s->p.to = s->dist[count > 1];
}

static double normal_s(const struct box_problem *p, const struct sbp_dist *from,
                       const struct sbp_dist *to, double bytes, struct sbp_boxing *boxing)
{
    if (sbp_boxing_make(&p->tensor.layout, &p->tensor.shape, from, to, boxing, NULL) != SBP_OK)
        return INFINITY;
    return sbp_boxing_s(&p->cluster, &p->mesh, boxing, bytes);
}

static double path_s(const struct box_problem *p, const struct sbp_dist *from,
                     const struct sbp_dist *to, double bytes, struct sbp_boxing *boxing)
{
    struct sbp_diag diag = {{0}};
    if (sbp_boxing_path(&p->cluster, &p->tensor.layout, &p->tensor.shape, bytes, from, to, boxing,
                        &diag) != SBP_OK)
        fail_msg("no path: %s", diag.text);
    return sbp_boxing_s(&p->cluster, &p->mesh, boxing, bytes);
}

/* --- steps, from the table of transitions --- */

/* The collective of one axis; -1: there is none. */
static int transition(struct sbp_state from, struct sbp_state to)
{
    if (to.kind == SBP_PARTIAL || from.kind == SBP_BROADCAST)
        return from.kind == SBP_PARTIAL ? -1 : SBP_LOCAL;
    if (from.kind == SBP_PARTIAL)
        return to.kind == SBP_SPLIT ? SBP_REDUCE_SCATTER : SBP_ALL_REDUCE;
    return to.kind == SBP_SPLIT ? SBP_ALL_TO_ALL : SBP_ALL_GATHER;
}

/* The one collective that leads from one distribution to another; -1: no single one does. */
static int single_step(const struct sbp_mesh *mesh, const struct sbp_dist *from,
                       const struct sbp_dist *to, sbp_axes *axes)
{
    int kind = -1;
    *axes = 0;
    for (int i = 0; i < mesh->axis_count; i++) {
        if (sbp_state_equal(from->axis[i], to->axis[i]))
            continue;
        const int own = transition(from->axis[i], to->axis[i]);
        if (own < 0 || (kind >= 0 && own != kind))
            return -1;
        kind = own;
        *axes |= (sbp_axes)1 << i;
    }
    return kind;
}

static int64_t local_of(const struct box_problem *p, const struct sbp_dist *dist)
{
    int64_t elements = oracle_size(&p->tensor.shape);
    for (int i = 0; i < p->mesh.axis_count; i++)
        elements /= dist->axis[i].kind == SBP_SPLIT ? p->mesh.axis[i].size : 1;
    return elements;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A list is a chain of single steps from here to there with the sizes of the formulas. */
static void check_chain(const struct box_problem *p, const struct sbp_dist *from,
                        const struct sbp_dist *to, const struct sbp_boxing *boxing)
{
    const struct sbp_dist *at = from;
    for (int i = 0; i < boxing->count; i++) {
        const struct sbp_boxing_step *step = &boxing->step[i];
        sbp_axes axes;
        assert_true(sbp_dist_equal(&p->mesh, at, &step->from));
        assert_int_equal(single_step(&p->mesh, &step->from, &step->to, &axes), step->kind);
        assert_int_equal(axes, step->axes);
        if (step->kind != SBP_LOCAL)
            assert_int_equal(step->elements,
                             larger(local_of(p, &step->from), local_of(p, &step->to)));
        else /* neighbouring local steps are one */
            assert_true(i == 0 || boxing->step[i - 1].kind != SBP_LOCAL);
        at = &step->to;
    }
    assert_true(sbp_dist_equal(&p->mesh, at, to));
}

/* --- properties of both --- */

static void test_identity_is_free(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < 500; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        draw(&random, round % 2 ? CURVES : 0, 1, &s);
        assert_true(normal_s(&s.p, &s.p.from, &s.p.from, BYTES, &boxing) == 0);
        assert_int_equal(boxing.count, 0);
        assert_true(path_s(&s.p, &s.p.from, &s.p.from, BYTES, &boxing) == 0);
        assert_int_equal(boxing.count, 0);
    }
}

/* A flat or two-level mesh of two axes and a tensor of 8 x 8 that both may split in either. */
static void draw_pairs(int64_t outer, int64_t inner, struct box_problem *p)
{
    struct sbp_diag diag;
    p->cluster = oracle_cluster(inner > 1 ? 2 : 1, (int64_t[]){outer, inner});
    assert_int_equal(sbp_mesh_make(&p->cluster, &p->mesh, &diag), SBP_OK);
    p->tensor = (struct oracle_tensor){.split = {3, 3},
                                       .shape = {{8, 8, 1, 1}, {0, 1, SBP_NO_CLASS, SBP_NO_CLASS}}};
    p->tensor.layout = (struct sbp_layout){&p->mesh, 2, p->tensor.split};
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

/* Gathering over the nodes is not gathering within them. */
static void test_levels_differ(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    draw_pairs(2, 2, &p);
    const struct sbp_level *node = &p.cluster.level[0], *device = &p.cluster.level[1];
    const struct sbp_dist split = {{SBP_STATE_S(0), SBP_STATE_S(0)}};
    const struct sbp_dist over_nodes = {{SBP_STATE_B, SBP_STATE_S(0)}};
    const struct sbp_dist within = {{SBP_STATE_S(0), SBP_STATE_B}};
    const double n = 32 * BYTES;
    near(normal_s(&p, &split, &over_nodes, BYTES, &boxing),
         node->alpha_s + n / 2 * node->beta_s_per_byte);
    near(normal_s(&p, &split, &within, BYTES, &boxing),
         device->alpha_s + n / 2 * device->beta_s_per_byte);
    p.cluster.level[0].ports = 1; /* both devices of a node gather over it */
    near(normal_s(&p, &split, &over_nodes, BYTES, &boxing),
         node->alpha_s + n * node->beta_s_per_byte);
    near(normal_s(&p, &split, &within, BYTES, &boxing),
         device->alpha_s + n / 2 * device->beta_s_per_byte);
}

/* Impossible transitions are refused: splits without digits, and in the normal form sums that have
 * nowhere to rest. */
static void test_undeliverable(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 1);
    int refused = 0;
    for (int round = 0; round < 1000; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        struct sbp_diag diag = {{0}};
        draw(&random, 0, 2, &s);
        const int axis = (int)oracle_below(&random, s.p.mesh.axis_count);
        const uint8_t dim = (uint8_t)oracle_below(&random, SBP_MAX_DIMS);
        struct sbp_dist *end = round % 2 ? &s.p.from : &s.p.to;
        end->axis[axis] = SBP_STATE_S(dim);
        if (s.p.tensor.split[dim] >> axis & 1)
            continue;
        refused++;
        assert_int_equal(sbp_boxing_make(&s.p.tensor.layout, &s.p.tensor.shape, &s.p.from, &s.p.to,
                                         &boxing, &diag),
                         SBP_E_INPUT);
        char expected[80];
        (void)snprintf(expected, sizeof expected,
                       "axis %d splits dimension %d, in which it has no digit", axis, dim);
        assert_string_equal(diag.text, expected);
        assert_int_equal(sbp_boxing_path(&s.p.cluster, &s.p.tensor.layout, &s.p.tensor.shape, BYTES,
                                         &s.p.from, &s.p.to, &boxing, NULL),
                         SBP_E_INPUT);
    }
    assert_true(refused > 200);
}

/* A path can sum up by itself what has no digit to rest in. */
static void test_path_of_what_cannot_rest(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    draw_pairs(4, 1, &p);
    p.tensor.split[0] = p.tensor.split[1] = 1; /* the second axis has no digit */
    p.from = (struct sbp_dist){{SBP_STATE_P, SBP_STATE_P}};
    p.to = (struct sbp_dist){{SBP_STATE_S(0), SBP_STATE_B}};
    assert_true(isinf(normal_s(&p, &p.from, &p.to, BYTES, &boxing)));
    const double a = p.cluster.level[0].alpha_s, b = p.cluster.level[0].beta_s_per_byte;
    const double n = 64 * BYTES; /* scatter first, so that the all-reduce has half */
    near(path_s(&p, &p.from, &p.to, BYTES, &boxing), a + n / 2 * b + 2 * a + n / 2 * b);
    check_chain(&p, &p.from, &p.to, &boxing);
    box_simulate(&p, &boxing);
}

/* Without curves a gather costs what a scatter costs, so the gradient's way back costs what the way
 * there does: by paths always, in the normal form where nothing is sliced or padded. */
static void test_duality(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 2);
    int normal = 0;
    for (int round = 0; round < 1500; round++) {
        struct setting s;
        struct sbp_boxing there, back;
        draw(&random, 0, 2, &s);
        const struct sbp_dist from = sbp_dist_dual(&s.p.mesh, &s.p.to);
        const struct sbp_dist to = sbp_dist_dual(&s.p.mesh, &s.p.from);
        const double seconds = normal_s(&s.p, &s.p.from, &s.p.to, BYTES, &there);
        const double dual = normal_s(&s.p, &from, &to, BYTES, &back);
        assert_int_equal(isinf(seconds), isinf(dual));
        if (isfinite(seconds) &&
            (there.count == 0 || there.step[there.count - 1].kind != SBP_LOCAL)) {
            near(dual, seconds);
            normal++;
        }
        near(path_s(&s.p, &from, &to, BYTES, &back),
             path_s(&s.p, &s.p.from, &s.p.to, BYTES, &there));
    }
    assert_true(normal > 100);
}

static void test_more_bytes_cost_no_less(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 3);
    for (int round = 0; round < 600; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        draw(&random, round % 3 ? CURVES : 0, 2, &s);
        double normal = 0, path = 0;
        for (double bytes = 0.25; bytes < 5000; bytes *= 1.5 + sbp_random_unit(&random)) {
            const double more = normal_s(&s.p, &s.p.from, &s.p.to, bytes, &boxing);
            assert_true(more >= normal * (1 - 1e-12));
            normal = more;
            const double more_path = path_s(&s.p, &s.p.from, &s.p.to, bytes, &boxing);
            assert_true(more_path >= path * (1 - 1e-12));
            path = more_path;
        }
    }
}

/* --- the triangle inequality --- */

/* Three alphas at once over four members, two in two hops over pairs: the normal form's detour is
 * cheaper, and the path takes it. */
static void test_detour_by_pairs(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    draw_pairs(4, 1, &p);
    const double a = p.cluster.level[0].alpha_s, b = p.cluster.level[0].beta_s_per_byte;
    const double n = 64 * BYTES;
    const struct sbp_dist partial = {{SBP_STATE_P, SBP_STATE_P}};
    const struct sbp_dist half = {{SBP_STATE_S(0), SBP_STATE_P}};
    const struct sbp_dist split = {{SBP_STATE_S(0), SBP_STATE_S(0)}};
    const double direct = normal_s(&p, &partial, &split, BYTES, &boxing);
    const double first = normal_s(&p, &partial, &half, BYTES, &boxing);
    const double second = normal_s(&p, &half, &split, BYTES, &boxing);
    near(direct, 3 * a + 0.75 * n * b);
    near(first + second, 2 * a + 0.75 * n * b);
    assert_true(first + second < direct);
    near(path_s(&p, &partial, &split, BYTES, &boxing), 2 * a + 0.75 * n * b);
    assert_int_equal(boxing.count, 2);
    p.cluster.level[0].alpha_s = 0; /* then one step is as good, and shorter */
    (void)path_s(&p, &partial, &split, BYTES, &boxing);
    assert_int_equal(boxing.count, 1);
}

/* Pairs save alpha inside of nodes; between them there is none to be saved, so that the nodes' ring
 * is a phase of the last pair's. */
static void test_short_lists(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    draw_pairs(4, 4, &p);
    p.cluster.collectives = SBP_MODEL_HIERARCHICAL;
    p.tensor.split[0] = 15;
    p.tensor.shape.size[0] = 16;
    struct sbp_level *node = &p.cluster.level[0], *device = &p.cluster.level[1];
    node->alpha_s = 0;
    const double n = 128 * BYTES;
    const struct sbp_dist partial = sbp_dist_all(SBP_STATE_P), split = sbp_dist_all(SBP_STATE_S(0));
    near(path_s(&p, &partial, &split, BYTES, &boxing), 2 * device->alpha_s +
                                                           0.75 * n * device->beta_s_per_byte +
                                                           0.75 * n / 4 * node->beta_s_per_byte);
    assert_int_equal(boxing.count, 2);
}

static void test_triangles(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 4);
    int broken = 0;
    for (int round = 0; round < 1500; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        draw(&random, round % 2 == 0 ? SMALL | ORDERED : ORDERED, 3, &s);
        const struct sbp_dist *a = &s.dist[0], *b = &s.dist[1], *c = &s.dist[2];
        const double direct = path_s(&s.p, a, c, BYTES, &boxing);
        check_chain(&s.p, a, c, &boxing);
        const double detour =
            path_s(&s.p, a, b, BYTES, &boxing) + path_s(&s.p, b, c, BYTES, &boxing);
        if (!(direct <= detour * (1 + 1e-12))) {
            box_describe(&s.p, &boxing);
            fail_msg("round %d: %.17g s, by a detour %.17g s", round, direct, detour);
        }
        const double normal = normal_s(&s.p, a, c, BYTES, &boxing);
        assert_true(direct <= normal);
        broken +=
            normal > (normal_s(&s.p, a, b, BYTES, &boxing) + normal_s(&s.p, b, c, BYTES, &boxing)) *
                         (1 + 1e-12);
    }
    assert_true(broken > 20); /* the normal form has no such property */
}

/* --- paths --- */

/* Least costs between all distributions, by trying every single step and then every stop on the
 * way. */
struct all_pairs {
    int count;
    struct sbp_dist dist[256];
    double seconds[256][256];
};

static void list_dists(const struct box_problem *p, struct all_pairs *all)
{
    all->count = 1;
    all->dist[0] = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < p->mesh.axis_count; axis++) {
        const int before = all->count;
        for (uint8_t option = 0; option <= SBP_MAX_DIMS; option++) {
            struct sbp_state state = SBP_STATE_P;
            if (option < SBP_MAX_DIMS) {
                if (!(p->tensor.split[option] >> axis & 1))
                    continue;
                state = SBP_STATE_S(option);
            }
            for (int i = 0; i < before; i++) {
                assert_true(all->count < 256);
                all->dist[all->count] = all->dist[i];
                all->dist[all->count++].axis[axis] = state;
            }
        }
    }
}

static void try_all(const struct box_problem *p, struct all_pairs *all)
{
    for (int i = 0; i < all->count; i++)
        for (int j = 0; j < all->count; j++) {
            sbp_axes axes;
            const int kind = single_step(&p->mesh, &all->dist[i], &all->dist[j], &axes);
            const double n =
                BYTES * (double)larger(local_of(p, &all->dist[i]), local_of(p, &all->dist[j]));
            all->seconds[i][j] = i == j     ? 0
                                 : kind < 0 ? INFINITY
                                            : sbp_collective_s(&p->cluster, &p->mesh,
                                                               (enum sbp_collective)kind, axes, n);
        }
    for (int k = 0; k < all->count; k++)
        for (int i = 0; i < all->count; i++)
            for (int j = 0; j < all->count; j++)
                all->seconds[i][j] =
                    fmin(all->seconds[i][j], all->seconds[i][k] + all->seconds[k][j]);
}

static void test_against_all_sequences(void **state)
{
    (void)state;
    struct all_pairs *all = malloc(sizeof *all);
    assert_non_null(all);
    struct sbp_random random = seeded(SEED + 5);
    for (int round = 0; round < 60; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        draw(&random, SMALL | ORDERED, 2, &s);
        list_dists(&s.p, all);
        try_all(&s.p, all);
        for (int trial = 0; trial < 60; trial++) {
            const int i = (int)oracle_below(&random, all->count);
            const int j = (int)oracle_below(&random, all->count);
            const double seconds = path_s(&s.p, &all->dist[i], &all->dist[j], BYTES, &boxing);
            if (!(fabs(seconds - all->seconds[i][j]) <= 1e-11 * seconds)) {
                box_describe(&s.p, &boxing);
                fail_msg("round %d: path %.17g s, all sequences %.17g s", round, seconds,
                         all->seconds[i][j]);
            }
        }
    }
    free(all);
}

static void test_paths_deliver(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 6);
    int longer = 0;
    for (int round = 0; round < 1500; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        do
            draw(&random, round % 3 == 0 ? CURVES : round % 3 == 1 ? ORDERED : 0, 2, &s);
        while (s.p.mesh.devices > BOX_MOST_RANKS ||
               oracle_size(&s.p.tensor.shape) > BOX_MOST_ELEMENTS);
        (void)path_s(&s.p, &s.p.from, &s.p.to, BYTES, &boxing);
        check_chain(&s.p, &s.p.from, &s.p.to, &boxing);
        box_simulate(&s.p, &boxing);
        longer += boxing.count > 3;
    }
    assert_true(longer > 50);
}

/* Sums over nodes of what all devices of a node hold alike: a slice each, then gathered. */
static void test_slice_before_the_network(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    struct sbp_diag diag;
    p.cluster = oracle_cluster(2, (int64_t[]){2, 4});
    for (int i = 0; i < 2; i++) {
        p.cluster.level[i].alpha_s = 0;
        p.cluster.level[i].beta_s_per_byte = i == 0 ? 1e-9 : 1e-11;
    }
    assert_int_equal(sbp_mesh_make(&p.cluster, &p.mesh, &diag), SBP_OK);
    p.tensor = (struct oracle_tensor){
        .split = {7}, .shape = {{8, 1, 1, 1}, {0, SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS}}};
    p.tensor.layout = (struct sbp_layout){&p.mesh, 1, p.tensor.split};
    p.from = (struct sbp_dist){{SBP_STATE_P, SBP_STATE_B, SBP_STATE_B}};
    p.to = (struct sbp_dist){{SBP_STATE_B, SBP_STATE_B, SBP_STATE_B}};
    const double n = 8 * BYTES;
    near(path_s(&p, &p.from, &p.to, BYTES, &boxing), n / 4 * 1e-9 + 0.75 * n * 1e-11);
    const enum sbp_collective kinds[] = {SBP_LOCAL, SBP_ALL_REDUCE, SBP_ALL_GATHER};
    assert_int_equal(boxing.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(boxing.step[i].kind, kinds[i]);
    box_simulate(&p, &boxing);
}

/* Where more bytes are all that costs, cutting gains nothing: without alpha, on one level, a path
 * that can neither slice nor keep partial sums costs what the normal form does. */
static void test_no_gain_without_alpha(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 8);
    for (int round = 0; round < 500; round++) {
        struct setting s;
        struct sbp_boxing boxing;
        do
            draw(&random, ORDERED, 2, &s);
        while (s.p.cluster.level_count > 1);
        s.p.cluster.level[0].alpha_s = 0;
        for (int i = 0; i < s.p.mesh.axis_count; i++) {
            if (s.p.from.axis[i].kind == SBP_BROADCAST)
                s.p.from.axis[i] = SBP_STATE_P;
            if (s.p.to.axis[i].kind == SBP_PARTIAL)
                s.p.to.axis[i] = SBP_STATE_B;
        }
        const double path = path_s(&s.p, &s.p.from, &s.p.to, BYTES, &boxing);
        near(path, normal_s(&s.p, &s.p.from, &s.p.to, BYTES, &boxing));
    }
}

/* Twelve axes, and tensors that all of them split in two dimensions. */
static void draw_many(struct sbp_random *random, struct box_problem *p, struct sbp_dist *dist,
                      int count)
{
    struct sbp_diag diag;
    p->cluster = oracle_cluster(2, (int64_t[]){512, 8});
    assert_int_equal(sbp_mesh_make(&p->cluster, &p->mesh, &diag), SBP_OK);
    p->tensor = (struct oracle_tensor){
        .split = {4095, 4095}, .shape = {{4096, 8192, 1, 1}, {0, 1, SBP_NO_CLASS, SBP_NO_CLASS}}};
    p->tensor.layout = (struct sbp_layout){&p->mesh, 2, p->tensor.split};
    for (int i = 0; i < count; i++)
        dist[i] = oracle_random_dist(random, &p->mesh, 2, false);
}

static void test_many_axes(void **state)
{
    (void)state;
    struct box_problem p;
    struct sbp_boxing boxing;
    int better = 0;
    struct sbp_random random = seeded(SEED + 7);
    for (int round = 0; round < 200; round++) {
        struct sbp_dist d[3];
        draw_many(&random, &p, d, 3);
        const double normal = normal_s(&p, &d[0], &d[2], BYTES, &boxing);
        const double direct = path_s(&p, &d[0], &d[2], BYTES, &boxing);
        check_chain(&p, &d[0], &d[2], &boxing);
        const double detour =
            path_s(&p, &d[0], &d[1], BYTES, &boxing) + path_s(&p, &d[1], &d[2], BYTES, &boxing);
        const struct sbp_dist from = sbp_dist_dual(&p.mesh, &d[2]);
        const struct sbp_dist to = sbp_dist_dual(&p.mesh, &d[0]);
        assert_true(direct <= normal && direct <= detour * (1 + 1e-12));
        near(path_s(&p, &from, &to, BYTES, &boxing), direct);
        better += direct < normal * 0.9;
    }
    assert_true(better > 100);
}

static void must_be_same_list(const struct sbp_mesh *mesh, const struct sbp_boxing *a,
                              const struct sbp_boxing *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_int_equal(a->step[i].kind, b->step[i].kind);
        assert_int_equal(a->step[i].axes, b->step[i].axes);
        assert_int_equal(a->step[i].elements, b->step[i].elements);
        assert_true(sbp_dist_equal(mesh, &a->step[i].to, &b->step[i].to));
    }
}

/* Three tensors by turns: as drawn, of twice the size, and with digits for half of the axes, which
 * are all that the distribution of a sum shows. */
static void turn_tensor(int turn, struct box_problem *p)
{
    p->tensor.shape.size[0] = turn == 1 ? 8192 : 4096;
    p->tensor.split[0] = p->tensor.split[1] = turn == 2 ? 63 : 4095;
}

/* A repeated question has the same answer, whatever was asked in between. */
static void test_known_paths(void **state)
{
    (void)state;
    enum { QUESTIONS = 300, TENSORS = 3 };
    struct box_problem p;
    struct sbp_paths paths;
    struct sbp_dist d[2 * QUESTIONS];
    struct sbp_random random = seeded(SEED + 9);
    draw_many(&random, &p, d, 2 * QUESTIONS);
    d[0] = sbp_dist_all(SBP_STATE_P);
    d[1] = sbp_dist_all(SBP_STATE_B);
    assert_int_equal(sbp_paths_init(&paths, &p.cluster, &p.mesh, NULL), SBP_OK);
    for (int round = 0; round < 3 * QUESTIONS; round++) {
        const int question = round % 5 == 0 ? 0 : round % QUESTIONS;
        const struct sbp_dist *from = &d[2 * question], *to = from + 1;
        const double bytes = round % 7 ? BYTES : 2 * BYTES;
        struct sbp_boxing alone, known;
        turn_tensor(question == 0 ? round % TENSORS : round % 2, &p);
        (void)path_s(&p, from, to, bytes, &alone);
        assert_int_equal(sbp_paths_find(&paths, &p.tensor.layout, &p.tensor.shape, bytes, from, to,
                                        &known, NULL),
                         SBP_OK);
        must_be_same_list(&p.mesh, &known, &alone);
    }
    assert_true(paths.known_count > QUESTIONS && paths.known_count < 2 * QUESTIONS);
    sbp_paths_free(&paths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_is_free),
        cmocka_unit_test(test_levels_differ),
        cmocka_unit_test(test_undeliverable),
        cmocka_unit_test(test_path_of_what_cannot_rest),
        cmocka_unit_test(test_duality),
        cmocka_unit_test(test_more_bytes_cost_no_less),
        cmocka_unit_test(test_detour_by_pairs),
        cmocka_unit_test(test_short_lists),
        cmocka_unit_test(test_triangles),
        cmocka_unit_test(test_against_all_sequences),
        cmocka_unit_test(test_paths_deliver),
        cmocka_unit_test(test_slice_before_the_network),
        cmocka_unit_test(test_no_gain_without_alpha),
        cmocka_unit_test(test_many_axes),
        cmocka_unit_test(test_known_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
