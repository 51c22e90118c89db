/* Prices of edges between choices, which name no axis, against a walk over all ways to name the
 * axes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "planner/pricing/edge_kinds.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

enum { DRAWS = 600 };

/* A tensor with two readers, which may rest whole, and partial sums of theirs. */
#define FAN(size)                                                                                  \
    "{\"name\": \"f\", \"global_batch\": " size ", \"input\": \"split\", \"features\": " size      \
    ", \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": " size                          \
    "}, {\"op\": \"linear\", \"name\": \"b\", \"inputs\": [\"a\"], \"out\": " size                 \
    "}, {\"op\": \"linear\", \"name\": \"c\", \"inputs\": [\"a\"], \"out\": " size                 \
    "}, {\"op\": \"add\", \"inputs\": [\"b\", \"c\"]}, {\"op\": \"linear\", \"out\": " size "}]}"

/* One way to name the axes. */
struct naming {
    const struct sbp_space *space;
    const struct sbp_edge_ends *ends;
    struct sbp_dist from;
    uint8_t role[SBP_MAX_AXES]; /* of each axis at the other end */
    double least_s;             /* of all that were looked at */
};

/* Roles of a choice, along each family in order. */
static void name_in_order(const struct sbp_space *space, int variable, int choice, uint8_t *role)
{
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_space_count(space, variable, choice, f);
        int axis = space->mesh->family[f].first;
        for (uint8_t r = 0; r < space->variable[variable].role_count; r++)
            for (int k = 0; k < count[r]; k++)
                role[axis++] = r;
    }
}

static struct sbp_dist dist_of(const struct sbp_space *space, const struct sbp_edge_end *end,
                               const uint8_t *role)
{
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    for (int axis = 0; axis < space->mesh->axis_count; axis++)
        dist.axis[axis] = end->state[role[axis]];
    return dist;
}

/* Splits stay or are gathered, and nothing but sums rests partial. */
static bool can_rest(const struct sbp_space *space, const struct sbp_dist *from,
                     const struct sbp_dist *to)
{
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const struct sbp_state left = from->axis[axis], rest = to->axis[axis];
        if ((left.kind == SBP_SPLIT && rest.kind != SBP_BROADCAST && rest.kind != SBP_MIRRORED &&
             !sbp_state_equal(left, rest)) ||
            (left.kind != SBP_PARTIAL && rest.kind == SBP_PARTIAL))
            return false;
    }
    return true;
}

static double named_s(const struct naming *n)
{
    const struct sbp_edge_ends *ends = n->ends;
    const struct sbp_dist to = dist_of(n->space, &ends->to, n->role);
    if (ends->is_output && !can_rest(n->space, &n->from, &to))
        return INFINITY;
    const struct sbp_way way = sbp_pricing_way(n->space, &n->from, &to);
    if (ends->is_whole)
        return sbp_pricing_way_s(n->space, ends->tensor, &way, ends->there, ends->back);
    const struct sbp_input_edge edge = {
        .tensor = ends->tensor, .there = ends->there, .back = ends->back};
    return ends->is_output ? 0 : sbp_pricing_moves_s(n->space, &edge, way.there.move);
}

static void swap(uint8_t *a, uint8_t *b)
{
    const uint8_t kept = *a;
    *a = *b;
    *b = kept;
}

/* All orders of the roles from an axis on, each family's by itself. */
static void name_all(struct naming *n, int axis)
{
    const struct sbp_mesh *mesh = n->space->mesh;
    bool seen[SBP_MAX_ROLES] = {false};
    if (axis == mesh->axis_count) {
        n->least_s = fmin(n->least_s, named_s(n));
        return;
    }
    const struct sbp_family *family = &mesh->family[mesh->axis[axis].family];
    for (int other = axis; other < family->first + family->count; other++) {
        if (seen[n->role[other]])
            continue;
        seen[n->role[other]] = true;
        swap(&n->role[axis], &n->role[other]);
        name_all(n, axis + 1);
        swap(&n->role[axis], &n->role[other]);
    }
}

/* Whether an end is mirrored, on all axes then: there is one way to name them. */
static bool is_mirrored(const struct sbp_space *space, const struct naming *n)
{
    const struct sbp_dist to = dist_of(space, &n->ends->to, n->role);
    return n->from.axis[0].kind == SBP_MIRRORED || to.axis[0].kind == SBP_MIRRORED;
}

/* The price of two choices is that of the cheapest way to name the axes, or no more than that. */
static void check_pair(const struct sbp_space *space, const struct sbp_edge_ends *ends, int from,
                       int to, double price_s, bool is_exact, int *least)
{
    uint8_t role[SBP_MAX_AXES] = {0};
    struct naming n = {.space = space, .ends = ends, .least_s = INFINITY};
    name_in_order(space, ends->from.variable, from, role);
    n.from = dist_of(space, &ends->from, role);
    name_in_order(space, ends->to.variable, to, n.role);
    name_all(&n, 0);
    *least += n.least_s > 0;
    is_exact |= space->mesh->family_count == 1 && is_mirrored(space, &n);
    if ((is_exact && price_s < n.least_s * (1 - 1e-12)) || price_s > n.least_s * (1 + 1e-12))
        fail_msg("choices %d and %d of variables %d and %d: %.17g s, the cheapest way takes %.17g",
                 from, to, ends->from.variable, ends->to.variable, price_s, n.least_s);
}

/* A choice; of two draws one is the last, which mirrors all levels where the space is open. */
static int draw_choice(struct sbp_random *random, const struct sbp_space_variable *v)
{
    return sbp_random_below(random, 2) == 0
               ? v->choice_count - 1
               : (int)sbp_random_below(random, (uint64_t)v->choice_count);
}

/* ahead: times that tensors go there for each time that they go back. Prices are bounds, maybe
 * loose, where more axes may move for less, on several levels where ahead is not 1, and where whole
 * outputs may be sliced. */
static void check_pairs(const char *model, const char *levels, double ahead, bool is_open,
                        uint64_t seed)
{
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_random random;
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                              .asked.quick = !is_open};
    int least = 0;
    sbp_random_seed(&random, seed);
    open_plan(model, levels, &plan);
    make_space(&plan, &request, &space);
    const bool is_exact =
        space.moves_grow && !is_open && (ahead == 1 || plan.cut.mesh.level_count == 1);
    for (int k = 0; k < space.output_edge_count; k++)
        space.output_edge[k].there *= ahead;
    for (int t = 0; t < space.input_edge_count; t++)
        space.input_edge[t].there *= ahead;
    for (int e = 0; e < space.output_edge_count + space.input_edge_count; e++) {
        const int t = e - space.output_edge_count;
        const struct sbp_edge_ends ends = t < 0 ? sbp_edge_of_output(&space, &space.output_edge[e])
                                                : sbp_edge_of_input(&space, &space.input_edge[t]);
        const struct sbp_space_variable *const before = &space.variable[ends.from.variable];
        const struct sbp_space_variable *const after = &space.variable[ends.to.variable];
        for (int i = 0; i < DRAWS && ends.from.variable != ends.to.variable; i++) {
            const int from = draw_choice(&random, before), to = draw_choice(&random, after);
            const double price_s =
                t < 0 ? sbp_pricing_output_edge_s(&space, &space.output_edge[e], from, to)
                      : sbp_pricing_input_edge_s(&space, &space.input_edge[t], from, to);
            if (price_s < SBP_FORBIDDEN)
                check_pair(&space, &ends, from, to, price_s, is_exact, &least);
        }
    }
    assert_true(least > 100);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* A collective's measured times with 2 and 4 members; the rest by alpha and beta. */
#define MEASURED(kind, two, four)                                                                  \
    "\"" kind "\": [{\"members\": 2, \"points\": [[1e3, " two "e-6], [1e9, " two                   \
    "]]}, {\"members\": 4, \"points\": [[1e3, " four "e-6], [1e9, " four "]]}]"
#define MEASURED_LEVEL(curves)                                                                     \
    "{\"name\": \"l\", \"size\": 8, \"alpha_s\": 1e-6, \"beta_s_per_byte\": 1e-9, \"curves\": "    \
    "{" curves "}}"

static void test_pairs(void **state)
{
    (void)state;
    static const char *const clusters[] = {
        LEVEL("l", 8),
        LEVEL("o", 4) ", " LEVEL("i", 4),
        LEVEL("a", 2) ", " LEVEL("b", 2) ", " LEVEL("c", 3),
        "{\"name\": \"o\", \"size\": 4, \"alpha_s\": 1e-5, \"beta_s_per_byte\": 8e-11, \"ports\": "
        "1}, {\"name\": \"i\", \"size\": 4, \"alpha_s\": 3e-6, \"beta_s_per_byte\": 7e-12}",
        MEASURED_LEVEL(MEASURED("all-reduce", "5", "5")),
        MEASURED_LEVEL(MEASURED("all-reduce", "0.7", "0.7")),
        MEASURED_LEVEL(MEASURED("all-reduce", "0.3", "0.2")),
        MEASURED_LEVEL(MEASURED("all-to-all", "5", "1")),
        MEASURED_LEVEL(
            MEASURED("all-gather", "4", "0.5") ", " MEASURED("reduce-scatter", "6", "2")),
        MEASURED_LEVEL(MEASURED("all-to-all", "3", "0.3")) ", " LEVEL("i", 4)};
    for (uint64_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (uint64_t ahead = 1; ahead <= 3; ahead++)
            check_pairs(FAN("512"), clusters[c], (double)ahead, ahead % 2 == 0,
                        100 * (ahead - 1) + c);
    check_pairs(GPT(1, ""), LEVEL("l", 4), 1, false, 10);
    check_pairs(GPT(1, ""), LEVEL("l", 4), 1, true, 15);
    check_pairs(GPT(1, ""), LEVEL("o", 2) ", " LEVEL("i", 4), 1, false, 11);
    check_pairs(GPT(1, ""), LEVEL("o", 2) ", " LEVEL("i", 4), 2, true, 14);
    /* Trades pay on one level, too: of axes of another size, of what is formed again. */
    check_pairs(FAN("576"), LEVEL("l", 24), 1, false, 12);
    check_pairs(FAN("512"), LEVEL("l", 8), 2, false, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
