/* What a user fixes leaves less to the search, so that no plan under a fix may cost less than what
 * the search without it says is the least: on shipped and tiny models, with random legal fixes of
 * all roles, and on examples where this once failed.
 *
 * Arguments: seed, number of random fixes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/space/space_table.h"
#include "tests/support/unit.h"
#include "tiny_models.h"

enum {
    FIXES_A_SEARCH = 4, /* that are held against one search without */
    TRIES = 20,         /* draws of a fix that the search takes */
    WORST = 10
};

static uint64_t first_seed = 20260711;
static int fix_count = 100;

struct setting {
    const char *model, *cluster; /* shipped; NULL: tiny ones */
    int64_t devices;             /* 0: all */
    int64_t pipeline, zero;      /* given; -1: open */
    bool is_bare;                /* the machine alone, without a trainer */
};

struct instance {
    struct setting setting;
    struct small_text model, cluster; /* of tiny ones */
    struct sbp_plan plan;
    struct sbp_request request;
    double claim_s; /* no plan costs less, says the search without a fix; -INFINITY: it says so of
                       common roles and rests alone, or of nothing */
    bool is_optimal;
};

struct finding {
    double claim_s, cost_s;
    char what[512];
};

struct tally {
    int searches, optimal, fixes, refused, finding_count;
    int64_t spare; /* fixes of roles that repeat work or let sums go on */
    struct finding *finding;
};

/* --- searches --- */

/* The cost of the best plan, INFINITY: there is none. */
static double search(struct instance *it, const struct sbp_fix *fix, struct sbp_outcome *outcome,
                     struct sbp_diag *why)
{
    struct sbp_request request = it->request;
    struct sbp_pool pool;
    struct sbp_arena arena;
    request.fix = fix;
    request.fix_count = fix != NULL;
    sbp_arena_init(&arena);
    *outcome = (struct sbp_outcome){.lower_bound_s = -INFINITY, .objective_s = INFINITY};
    const enum sbp_status status =
        sbp_outer_search(&it->plan, &request, 1, &arena, &pool, outcome, why);
    const double cost_s = status == SBP_OK && pool.count > 0 ? outcome->objective_s : INFINITY;
    sbp_arena_free(&arena);
    return cost_s;
}

static unsigned key_bit(const char *key)
{
    const char *const *const keys = sbp_parallel_keys();
    int i = 0;
    while (strcmp(keys[i], key) != 0)
        i++;
    return 1u << i;
}

static void begin(struct instance *it)
{
    struct sbp_plan *const plan = &it->plan;
    if (it->setting.model != NULL) {
        struct cJSON *const cluster = shipped("clusters", it->setting.cluster);
        if (it->setting.is_bare)
            cJSON_DeleteItemFromObjectCaseSensitive(cluster, "runtime");
        begin_plan(shipped("models", it->setting.model), cluster, plan);
    } else {
        begin_plan(parsed(it->model.text), parsed(it->cluster.text), plan);
    }
}

/* Gives what the setting says, and searches without a fix. */
static void open_instance(struct instance *it)
{
    struct sbp_plan *const plan = &it->plan;
    struct sbp_diag diag = {{0}};
    begin(it);
    struct sbp_parallel parallel = plan->cut.parallel;
    it->request = (struct sbp_request){.space = SBP_SPACE_FULL, .objective = SBP_STEP_TIME};
    if (it->setting.pipeline >= 0) {
        parallel.pipeline = it->setting.pipeline;
        it->request.given |= key_bit("pipeline");
    }
    if (it->setting.zero >= 0) {
        parallel.zero = it->setting.zero;
        it->request.given |= key_bit("zero");
    }
    if (it->setting.devices > 0 &&
        sbp_cluster_shrink(&plan->workload.cluster, it->setting.devices, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    if (sbp_plan_cut(plan, &parallel, &diag) != SBP_OK ||
        sbp_space_begin(&it->request, plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_outcome outcome;
    const bool is_found = isfinite(search(it, NULL, &outcome, &diag));
    it->claim_s = is_found && !outcome.is_narrow ? outcome.lower_bound_s : -INFINITY;
    it->is_optimal = is_found && outcome.status == SBP_PLAN_OPTIMAL;
}

/* --- fixes --- */

static struct sbp_fix fix_of(const char *layer)
{
    struct sbp_fix fix = {.layer = "", .rests = false, .zero = SBP_ANY};
    snprintf(fix.layer, sizeof fix.layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix.factor[role][level] = SBP_ANY;
    return fix;
}

static int op_named(const struct sbp_graph *graph, const char *name)
{
    for (int op = 0; op < graph->op_count; op++)
        if (strcmp(graph->op[op].name, name) == 0)
            return op;
    fail_msg("no layer %s", name);
    return -1;
}

static int random_layer(struct sbp_random *random, const struct sbp_graph *graph)
{
    for (;;) {
        const int op = (int)sbp_random_below(random, (uint64_t)graph->op_count);
        if (graph->op[op].site == op && !graph->op[op].entry->follows)
            return op;
    }
}

static int random_role(struct sbp_random *random, const struct sbp_op_entry *entry)
{
    for (;;) {
        const int role = (int)sbp_random_below(random, (uint64_t)entry->role_count);
        if (entry->role[role].spare || small_chance(random, 0.4))
            return role;
    }
}

static int64_t random_divisor(struct sbp_random *random, int64_t number)
{
    for (;;) {
        const int64_t divisor = 1 + (int64_t)sbp_random_below(random, (uint64_t)number);
        if (number % divisor == 0)
            return divisor;
    }
}

/* One role, or two that share the devices; often a role divides one level alone. */
static struct sbp_fix draw_fix(struct sbp_random *random, const struct instance *it)
{
    const struct sbp_cut *const cut = &it->plan.cut;
    const int op = random_layer(random, &cut->graph);
    const struct sbp_op_entry *const entry = cut->graph.op[op].entry;
    struct sbp_fix fix = fix_of(cut->graph.op[op].name);
    int64_t left[SBP_MAX_LEVELS];
    for (int level = 0; level < cut->stage.level_count; level++)
        left[level] = cut->stage.level[level].size;
    for (int roles = small_chance(random, 0.3) ? 2 : 1; roles > 0; roles--) {
        const int role = random_role(random, entry);
        const int alone = small_chance(random, 0.5)
                              ? (int)sbp_random_below(random, (uint64_t)cut->stage.level_count)
                              : -1;
        for (int level = 0; level < cut->stage.level_count; level++)
            if (fix.factor[role][level] == SBP_ANY) {
                fix.factor[role][level] =
                    alone >= 0 && alone != level ? 1 : random_divisor(random, left[level]);
                left[level] /= fix.factor[role][level];
            }
    }
    return fix;
}

/* As --fix has it: "fc1=batch:2/1,replicate:1/4". */
static void tell_fix(const struct instance *it, const struct sbp_fix *fix, char *what, size_t size)
{
    const struct sbp_cut *const cut = &it->plan.cut;
    const struct sbp_op_entry *const entry = cut->graph.op[op_named(&cut->graph, fix->layer)].entry;
    const char *between = "=";
    small_append(what, size, " --fix %s", fix->layer);
    for (int role = 0; role < entry->role_count; role++) {
        if (fix->factor[role][0] == SBP_ANY)
            continue;
        small_append(what, size, "%s%s", between, entry->role[role].name);
        for (int level = 0; level < cut->stage.level_count; level++)
            small_append(what, size, "%s%" PRId64, level == 0 ? ":" : "/",
                         fix->factor[role][level]);
        between = ",";
    }
}

static void tell_setting(const struct instance *it, char *what, size_t size)
{
    const struct setting *const setting = &it->setting;
    small_append(what, size, "search %s %s", setting->model != NULL ? setting->model : "MODEL",
                 setting->model != NULL ? setting->cluster : "CLUSTER");
    if (setting->devices > 0)
        small_append(what, size, " --devices %" PRId64, setting->devices);
    if (setting->pipeline >= 0)
        small_append(what, size, " --set pipeline=%" PRId64, setting->pipeline);
    if (setting->zero >= 0)
        small_append(what, size, " --set zero=%" PRId64, setting->zero);
}

/* Searches under the fix; false: the search refuses it. */
static bool check_fix(struct instance *it, const struct sbp_fix *fix, struct tally *tally)
{
    struct sbp_outcome outcome;
    struct sbp_diag why = {{0}};
    const double cost_s = search(it, fix, &outcome, &why);
    if (isinf(cost_s))
        return false;
    const struct sbp_op_node *const node =
        &it->plan.cut.graph.op[op_named(&it->plan.cut.graph, fix->layer)];
    tally->fixes++;
    for (int role = 0; role < node->entry->role_count; role++)
        for (int level = 0; level < it->plan.cut.stage.level_count; level++)
            if (node->entry->role[role].spare && fix->factor[role][level] > 1) {
                tally->spare++;
                level = role = SBP_MAX_ROLES;
            }
    if (!(cost_s < it->claim_s * (1 - CLOSE)))
        return true;
    struct finding *const finding = &tally->finding[tally->finding_count++];
    *finding = (struct finding){.claim_s = it->claim_s, .cost_s = cost_s};
    tell_setting(it, finding->what, sizeof finding->what);
    tell_fix(it, fix, finding->what, sizeof finding->what);
    printf("%s (%s): %s %.9g s, %.9g s under it (%.3g %% less)\n", finding->what, node->entry->name,
           it->is_optimal ? "optimal" : "bound", it->claim_s, cost_s,
           100 * (1 - cost_s / it->claim_s));
    if (it->setting.model == NULL)
        printf("  MODEL   %s\n  CLUSTER %s\n", it->model.text, it->cluster.text);
    return true;
}

/* --- cases --- */

static const char *const shipped_models[] = {"tiny-mlp",    "tiny-gpt", "wide-deep",
                                             "autoddl-mlp", "vgg-13",   "autoddl-attention"};
static const char *const shipped_clusters[] = {"laptop-4", "gcp-a100-2x4", "gcp-a100-2x8",
                                               "a100-sxm-8", "dgx-a100-8x8"};

static void draw_setting(struct sbp_random *random, struct instance *it)
{
    struct setting *const setting = &it->setting;
    *setting = (struct setting){.pipeline = -1, .zero = -1};
    if (small_chance(random, 0.6)) {
        setting->model = shipped_models[sbp_random_below(random, 6)];
        setting->cluster = shipped_clusters[sbp_random_below(random, 5)];
        if (small_chance(random, 0.3))
            setting->devices = SMALL_PICK(random, 2, 4);
    } else {
        tiny_model_draw(random, &it->model);
        tiny_cluster_draw(random, &it->cluster);
    }
    if (small_chance(random, 0.6))
        setting->pipeline = 1;
    if (small_chance(random, 0.3))
        setting->zero = SMALL_PICK(random, 0, 1, 2, 3);
}

static void check_random(struct sbp_random *random, struct tally *tally)
{
    static struct instance it; /* large */
    draw_setting(random, &it);
    open_instance(&it);
    tally->searches++;
    tally->optimal += it.is_optimal;
    for (int i = 0; i < FIXES_A_SEARCH && tally->fixes < fix_count; i++)
        for (int tried = 0; tried < TRIES && isfinite(it.claim_s); tried++) {
            const struct sbp_fix fix = draw_fix(random, &it);
            if (check_fix(&it, &fix, tally))
                break;
            tally->refused++;
        }
    sbp_plan_free(&it.plan);
}

/* The most that is saved, first. */
static int by_share(const void *left, const void *right)
{
    const struct finding *const a = left, *const b = right;
    const double x = a->cost_s / a->claim_s, y = b->cost_s / b->claim_s;
    return (x > y) - (x < y);
}

static void tell_worst(struct tally *tally)
{
    qsort(tally->finding, (size_t)tally->finding_count, sizeof *tally->finding, by_share);
    for (int i = 0; i < tally->finding_count && i < WORST; i++)
        printf("worst %d: %s: %.9g s, %.9g s\n", i + 1, tally->finding[i].what,
               tally->finding[i].claim_s, tally->finding[i].cost_s);
}

static void test_random_fixes(void **state)
{
    (void)state;
    struct sbp_random random;
    struct tally tally = {.finding = calloc((size_t)fix_count + 1, sizeof *tally.finding)};
    assert_non_null(tally.finding);
    sbp_random_seed(&random, first_seed);
    while (tally.fixes < fix_count)
        check_random(&random, &tally);
    tell_worst(&tally);
    printf("seed %" PRIu64 ": %d searches, %d optimal; %d fixes, %" PRId64
           " of spare roles, %d refused; %d help\n",
           first_seed, tally.searches, tally.optimal, tally.fixes, tally.spare, tally.refused,
           tally.finding_count);
    free(tally.finding);
    assert_int_equal(tally.finding_count, 0);
}

static void test_examples(void **state)
{
    (void)state;
    static const struct {
        struct setting setting;
        const char *layer, *role;
        int64_t factor[2];
    } cases[] = {
        {{"wide-deep", "dgx-a100-8x8", 0, -1, -1, true}, "flatten", "replicate", {2, 1}},
        {{"wide-deep", "gcp-a100-2x8", 0, -1, -1, true}, "logit", "partial", {2, 1}},
        {{"tiny-gpt", "gcp-a100-2x4", 0, 1, -1, true}, "embedding", "replicate", {2, 2}},
        {{"tiny-mlp", "gcp-a100-2x8", 0, 1, -1, true}, "fc3", "replicate", {1, 2}},
    };
    struct finding findings[4];
    struct tally tally = {.finding = findings};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct instance it; /* large */
        it.setting = cases[i].setting;
        open_instance(&it);
        assert_true(it.is_optimal);
        struct sbp_fix fix = fix_of(cases[i].layer);
        const struct sbp_graph *const graph = &it.plan.cut.graph;
        const int role =
            sbp_op_role(graph->op[op_named(graph, cases[i].layer)].entry, cases[i].role);
        assert_true(role >= 0);
        memcpy(fix.factor[role], cases[i].factor, sizeof cases[i].factor);
        assert_true(check_fix(&it, &fix, &tally));
        sbp_plan_free(&it.plan);
    }
    assert_int_equal(tally.finding_count, 0);
}

int main(int count, char **argument)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples),
                                       cmocka_unit_test(test_random_fixes)};
    if (count > 1)
        first_seed = strtoull(argument[1], NULL, 10);
    if (count > 2)
        fix_count = atoi(argument[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
