/* A space that takes domains and prices from a cache equals the one that is made without. */
#include <inttypes.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "planner/pricing/price_cache.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

enum { CANDIDATES = 600 };

/* One of the candidates that a search of one plan goes through, mostly with stages and micro-batch
 * of one before. False: it does not fit the model. */
static bool draw_candidate(struct sbp_random *random, struct sbp_plan *plan)
{
    static const int64_t stages[] = {1, 2, 4};
    struct sbp_parallel parallel = sbp_parallel_default(&plan->cut.graph);
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = stages[sbp_random_below(random, 3)];
    parallel.micro_batch = plan->cut.graph.global_batch >> sbp_random_below(random, 2);
    parallel.schedule = (enum sbp_schedule)sbp_random_below(random, SBP_MESSAGE_DRIVEN + 1);
    parallel.stage_cut = (enum sbp_stage_cut)sbp_random_below(random, SBP_STAGE_CUTS);
    parallel.chunks = parallel.schedule == SBP_INTERLEAVED ? 2 : 1;
    parallel.zero = (int64_t)sbp_random_below(random, 4);
    parallel.recompute = (enum sbp_recompute)sbp_random_below(random, SBP_RECOMPUTES);
    parallel.recompute_every = 1 + (int64_t)sbp_random_below(random, 2);
    parallel.offload = sbp_random_below(random, 3) == 0;
    parallel.gather_blocks = sbp_random_below(random, 4) == 0;
    parallel.regather = sbp_random_below(random, 2) == 0;
    parallel.keep_sent = sbp_random_below(random, 4) == 0;
    if (sbp_random_below(random, 4) == 0)
        parallel.owner = (enum sbp_owner)sbp_random_below(random, SBP_OWNERS);
    return sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK;
}

static void check_variable(const struct sbp_space *with, const struct sbp_space *without,
                           int variable, uint64_t seed)
{
    const struct sbp_space_variable *const a = &with->variable[variable];
    const struct sbp_space_variable *const b = &without->variable[variable];
    const size_t choices = (size_t)b->choice_count, tuples = (size_t)b->tuple_count;
    const size_t row = (size_t)with->mesh->family_count * SBP_MAX_ROLES;
    const size_t points = (size_t)with->weights->memory_stages;
    const bool same = a->op == b->op && a->tensor == b->tensor && a->role_count == b->role_count &&
                      a->allowed == b->allowed && a->rests_whole == b->rests_whole &&
                      a->tuple_count == b->tuple_count && a->choice_count == b->choice_count &&
                      memcmp(a->count, b->count, tuples * row) == 0 &&
                      memcmp(a->tag, b->tag, tuples) == 0 &&
                      memcmp(a->tuple, b->tuple, choices * sizeof *a->tuple) == 0 &&
                      memcmp(a->zero, b->zero, choices) == 0;
    if (!same)
        fail_msg("seed %" PRIu64 ": choices of variable %d differ", seed, variable);
    if (memcmp(a->cost_s, b->cost_s, choices * sizeof *a->cost_s) != 0)
        fail_msg("seed %" PRIu64 ": costs of variable %d differ", seed, variable);
    if (memcmp(a->bytes, b->bytes, points * choices * sizeof *a->bytes) != 0)
        fail_msg("seed %" PRIu64 ": bytes of variable %d differ", seed, variable);
}

static void check_candidate(const struct sbp_plan *plan, struct sbp_solve_request request,
                            struct sbp_price_cache *store, uint64_t seed)
{
    struct sbp_space with, without;
    make_space(plan, &request, &without);
    struct sbp_solve_request sharing = request;
    sharing.store = store;
    make_space(plan, &sharing, &with);
    assert_non_null(with.cache_entry);
    assert_int_equal(with.variable_count, without.variable_count);
    for (int v = 0; v < with.variable_count; v++)
        check_variable(&with, &without, v, seed);
    sbp_space_free(&with);
    sbp_space_free(&without);
}

static void check_store(const char *model, const char *levels, struct sbp_solve_request request,
                        uint64_t seed)
{
    struct sbp_plan plan;
    struct sbp_random random;
    struct sbp_price_cache store = {.first = NULL};
    int seen = 0;
    sbp_random_seed(&random, seed);
    open_plan(model, levels, &plan);
    for (int i = 0; i < CANDIDATES; i++) {
        request.nothing_hides = sbp_random_below(&random, 4) == 0;
        request.every_level = sbp_random_below(&random, 4) == 0;
        if (!draw_candidate(&random, &plan))
            continue;
        check_candidate(&plan, request, &store, seed);
        seen++;
    }
    assert_true(seen > CANDIDATES / 4);
    sbp_price_cache_free(&store);
    sbp_plan_free(&plan);
}

#define SMALL(architecture, more)                                                                  \
    "{\"name\": \"s\", \"architecture\": \"" architecture "\", \"layers\": 4, \"hidden\": 64, "    \
    "\"heads\": 8, \"sequence\": 32, \"vocab\": 64, \"global_batch\": 16, \"precision\": "         \
    "\"mixed\"" more "}"

static void test_store(void **state)
{
    (void)state;
    static const char levels[] = LEVEL("o", 4) ", " LEVEL("i", 2);
    const struct sbp_solve_request full = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    const struct sbp_solve_request given = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    check_store(SMALL("gpt", ""), levels, full, 1);
    check_store(SMALL("gpt", ", \"tied\": false"), levels, given, 2);
    check_store(SMALL("llama", ", \"kv_heads\": 4, \"ffn\": 128"), levels, full, 3);
}

/* A narrowed space takes nothing from a cache of whole spaces, and leaves nothing in it. */
static void test_limited(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_price_cache store = {.first = NULL};
    struct sbp_diag diag = {{0}};
    const struct sbp_solve_request request = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .store = &store};
    open_plan(SMALL("gpt", ""), LEVEL("l", 4), &plan);
    struct sbp_class_limit limit[64];
    assert_true(plan.cut.graph.class_count <= 64);
    for (int c = 0; c < plan.cut.graph.class_count; c++)
        limit[c] = sbp_space_class_unlimited(plan.cut.graph.dim_class[c].size);
    limit[0].parts = 1;
    assert_int_equal(sbp_space_make(&plan.cut, &request, limit, NULL, &space, &diag), SBP_OK);
    assert_true(space.cache_entry == NULL && store.first == NULL);
    sbp_space_free(&space);
    sbp_price_cache_free(&store);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store),
                                       cmocka_unit_test(test_limited)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
