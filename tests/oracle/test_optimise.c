/* The search against every labelled strategy of random small models: in each space, with every
 * boxing, within limits of memory. */
#include <math.h>
#include <stdio.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "search_check.h"
#include "tests/support/unit.h"

/* The most strategies of one instance: compiling and pricing them takes some 50 ms. */
enum { MOST_STRATEGIES = 3000 };

struct sweep {
    enum small_kind kind;
    int linears, outer, inner;
    int instances;
};

/* The same space and boxing for a list of sweeps. */
struct ground {
    enum sbp_space_kind space;
    enum sbp_boxing_mode boxing;
    bool is_measured; /* clusters have measured times, which need not grow with the members */
};

static void run_sweep(const struct sweep *sweep, struct ground ground, uint64_t seed)
{
    struct tally tally = {0};
    for (int draw = 0; tally.run < sweep->instances && draw < 40 * sweep->instances; draw++) {
        struct small_instance instance = {
            .seed = seed + (uint64_t)draw * 1000003,
            .is_measured = ground.is_measured,
            .request = {.space = ground.space, .quick = true, .boxing = ground.boxing}};
        instance.request.objective = draw % 2 == 0 ? SBP_STEP_TIME : SBP_COMMUNICATION;
        open_exact(&instance, sweep->kind, sweep->linears, sweep->outer, sweep->inner);
        check_search(&instance, MOST_STRATEGIES, &tally);
        sbp_plan_free(&instance.plan);
    }
    char what[64];
    snprintf(what, sizeof what, "%s %s on %dx%d", sbp_request_space_name(ground.space),
             small_kind_name(sweep->kind), sweep->outer, sweep->inner);
    print_tally(what, &tally);
}

static void run_sweeps(const struct sweep *sweeps, size_t count, struct ground ground,
                       uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        run_sweep(&sweeps[i], ground, seed + 1000 * i);
}
#define RUN_SWEEPS(sweeps, ground, seed)                                                           \
    run_sweeps((sweeps), sizeof(sweeps) / sizeof *(sweeps), (ground), (seed))

static void test_full(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 2, 2, 1, 20},       {SMALL_CHAIN, 3, 2, 1, 20},
        {SMALL_CHAIN, 4, 2, 1, 20},       {SMALL_CHAIN, 3, 3, 1, 20},
        {SMALL_CHAIN, 2, 4, 1, 20},       {SMALL_CHAIN, 2, 2, 2, 20},
        {SMALL_CHAIN, 3, 4, 1, 15},       {SMALL_CHAIN, 2, 6, 1, 20},
        {SMALL_CHAIN, 2, 8, 1, 10},       {SMALL_CHAIN, 2, 3, 2, 15},
        {SMALL_RESIDUAL, 0, 2, 1, 30},    {SMALL_RESIDUAL, 0, 3, 1, 20},
        {SMALL_RESIDUAL, 0, 4, 1, 30},    {SMALL_RESIDUAL, 0, 2, 2, 30},
        {SMALL_NORMED, 0, 2, 1, 20},      {SMALL_NORMED, 0, 4, 1, 20},
        {SMALL_TRANSFORMER, 0, 2, 1, 20}, {SMALL_TRANSFORMER, 0, 3, 1, 20},
        {SMALL_TRANSFORMER, 0, 4, 1, 15}, {SMALL_TRANSFORMER, 0, 2, 2, 15},
        {SMALL_LANGUAGE, 0, 2, 1, 20},    {SMALL_LANGUAGE, 0, 3, 1, 15},
        {SMALL_LANGUAGE, 0, 4, 1, 15},    {SMALL_GPT, 0, 2, 1, 10},
        {SMALL_GPT, 0, 3, 1, 10},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_FULL, SBP_BOXING_FULL, false}), 7);
}

static void test_measured(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 4, 1, 20},       {SMALL_CHAIN, 2, 8, 1, 20},
        {SMALL_CHAIN, 2, 2, 4, 20},       {SMALL_CHAIN, 3, 2, 2, 20},
        {SMALL_RESIDUAL, 0, 4, 1, 30},    {SMALL_RESIDUAL, 0, 2, 2, 30},
        {SMALL_RESIDUAL, 0, 8, 1, 10},    {SMALL_NORMED, 0, 4, 1, 20},
        {SMALL_TRANSFORMER, 0, 4, 1, 15}, {SMALL_TRANSFORMER, 0, 2, 2, 15},
        {SMALL_LANGUAGE, 0, 4, 1, 20},    {SMALL_LANGUAGE, 0, 2, 2, 15},
        {SMALL_GPT, 0, 2, 1, 10},         {SMALL_GPT, 0, 3, 1, 10},
    };
    const struct ground ground = {SBP_SPACE_FULL, SBP_BOXING_FULL, true};
    RUN_SWEEPS(sweeps, ground, 300007);
    /* The second is cheapest where a sum and a split of features trade axes on their way. */
    const struct sweep trade = {SMALL_CHAIN, 2, 8, 1, 2};
    run_sweep(&trade, ground, 189704553);
}

static void test_autoddl(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 2, 2, 15},       {SMALL_CHAIN, 4, 2, 1, 15},
        {SMALL_CHAIN, 3, 6, 1, 15},       {SMALL_CHAIN, 2, 8, 1, 15},
        {SMALL_RESIDUAL, 0, 4, 1, 15},    {SMALL_RESIDUAL, 0, 2, 2, 15},
        {SMALL_NORMED, 0, 4, 1, 15},      {SMALL_TRANSFORMER, 0, 4, 1, 15},
        {SMALL_TRANSFORMER, 0, 6, 1, 15}, {SMALL_LANGUAGE, 0, 2, 2, 15},
        {SMALL_GPT, 0, 2, 1, 15},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_AUTODDL, SBP_BOXING_FULL, false}), 100007);
}

struct shape {
    int outer, inner;
};

/* Some of every kind of model on each mesh. */
static void run_kinds(enum sbp_space_kind space, const struct shape *meshes, size_t count,
                      int instances, uint64_t seed)
{
    for (size_t m = 0; m < count; m++)
        for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++) {
            const struct sweep sweep = {kind, 3, meshes[m].outer, meshes[m].inner, instances};
            run_sweep(&sweep, (struct ground){space, SBP_BOXING_FULL, false},
                      seed + 1000 * m + 100 * (uint64_t)kind);
        }
}
#define RUN_KINDS(space, meshes, instances, seed)                                                  \
    run_kinds((space), (meshes), sizeof(meshes) / sizeof *(meshes), (instances), (seed))

static void test_baselines(void **state)
{
    (void)state;
    static const enum sbp_space_kind spaces[] = {SBP_SPACE_DATA_PARALLEL, SBP_SPACE_MEGATRON,
                                                 SBP_SPACE_MEGATRON_3D};
    static const struct shape meshes[] = {{2, 1}, {4, 1}, {2, 2}, {6, 1}, {8, 1}};
    for (uint64_t s = 0; s < 3; s++)
        RUN_KINDS(spaces[s], meshes, 5, 200007 + 10000 * s);
}

static void test_node_mesh(void **state)
{
    (void)state;
    static const struct shape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {2, 4}};
    RUN_KINDS(SBP_SPACE_MEGATRON_NODE, meshes, 5, 240007);
}

static void test_gshard(void **state)
{
    (void)state;
    static const struct shape meshes[] = {{2, 1}, {4, 1}, {2, 2}, {6, 1}};
    RUN_KINDS(SBP_SPACE_GSHARD, meshes, 4, 250007);
}

/* Where sizes bind, the paper's ways between layers bind too. */
static void test_paper_sizes(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {SMALL_CHAIN, 3, 4, 1, 15},
        {SMALL_CHAIN, 2, 8, 1, 15},
        {SMALL_CHAIN, 3, 6, 1, 15},
        {SMALL_CHAIN, 3, 2, 2, 15},
    };
    RUN_SWEEPS(sweeps, ((struct ground){SBP_SPACE_AUTODDL, SBP_BOXING_PAPER, false}), 300007);
}

/* --- memory limits, against all labelled strategies --- */

/* A limit on the way from what every strategy needs to what the best takes; below the least of all
 * nothing fits. */
static void run_limited(struct small_instance *instance, double share, struct tally *tally)
{
    struct labelled_best best;
    struct sbp_diag diag = {{0}};
    if (labelled_count(&instance->plan, &instance->request, MOST_STRATEGIES) > MOST_STRATEGIES)
        return;
    if (labelled_search(&instance->plan, &instance->request, MOST_STRATEGIES, &best, &diag) !=
        SBP_OK)
        small_instance_complain(instance, "a labelled strategy is refused: %s", diag.text);
    if (best.visited == 0)
        return;
    const double room = (double)(best.device_bytes - best.least_device_bytes);
    instance->request.memory_limit_bytes =
        share < 0 ? best.least_device_bytes - 1
                  : best.least_device_bytes + (int64_t)floor(share * room);
    check_search(instance, MOST_STRATEGIES, tally);
}

static void run_limits(const struct sweep *sweep, enum sbp_space_kind space, uint64_t seed)
{
    static const double shares[] = {-1, 0, 0.3, 0.7, 0.99};
    struct tally tally = {0};
    for (int draw = 0; draw < sweep->instances; draw++) {
        struct small_instance instance = {.seed = seed + (uint64_t)draw * 999983,
                                          .request = {.space = space, .quick = true}};
        open_exact(&instance, sweep->kind, sweep->linears, sweep->outer, sweep->inner);
        run_limited(&instance, shares[draw % 5], &tally);
        sbp_plan_free(&instance.plan);
    }
    char what[64];
    snprintf(what, sizeof what, "memory %s %s on %dx%d", sbp_request_space_name(space),
             small_kind_name(sweep->kind), sweep->outer, sweep->inner);
    print_tally(what, &tally);
}

static void test_memory(void **state)
{
    (void)state;
    static const struct sweep full[] = {{SMALL_CHAIN, 3, 2, 1, 30},
                                        {SMALL_RESIDUAL, 0, 2, 1, 30},
                                        {SMALL_TRANSFORMER, 0, 2, 1, 30},
                                        {SMALL_LANGUAGE, 0, 4, 1, 30}};
    static const struct sweep paper[] = {{SMALL_CHAIN, 3, 4, 1, 30}, {SMALL_GPT, 0, 2, 1, 30}};
    for (uint64_t i = 0; i < 4; i++)
        run_limits(&full[i], SBP_SPACE_FULL, 77 + 1000 * i);
    for (uint64_t i = 0; i < 2; i++)
        run_limits(&paper[i], SBP_SPACE_AUTODDL, 50077 + 1000 * i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),      cmocka_unit_test(test_measured),
        cmocka_unit_test(test_autoddl),   cmocka_unit_test(test_baselines),
        cmocka_unit_test(test_node_mesh), cmocka_unit_test(test_gshard),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_paper_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
