/* Searches that say `optimal` held against every strategy that a plan can state for the same cut of
 * a step: on random tiny models nothing that `sbplan price` accepts may cost less. All strategies
 * are priced where there are few; else those near the plan that was found, and random ones.
 *
 * Arguments: seed, number of cases, the first of them (from 0), and 0 to leave out sums that nobody
 * reads. One seed and number, one case.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "costmodel/program/stages.h"
#include "every_strategy.h"
#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "tests/support/unit.h"
#include "tiny_models.h"

enum {
    MOST_ALL = 20000,  /* strategies of a case that are all priced */
    MOST_NEAR = 2500,  /* else prices around the plan that was found */
    MOST_RANDOM = 300, /* and random ones */
    MOST_CHEAPER = 24, /* that are remembered of those that cost less */
    MOST_VARIABLES = 512,
    WORST = 10,
    ALL_OPERATORS = 300 /* cases that have them all */
};

static uint64_t first_seed = 20260711;
static int case_count = 320, first_case = 0;
static bool leaves_sums = true; /* an output that nobody reads may rest partial */
static bool has_stages;         /* cases of several stages, where the model can be cut */

struct instance {
    uint64_t seed;
    struct small_text model, cluster;
    struct sbp_plan plan;
    struct sbp_request request;
    struct sbp_outcome outcome;
    struct every every;
    bool is_refused, is_exhaustive;
    char refusal[1024];
    double claim_s; /* no legal strategy costs less, says the search */
    int cheaper_count;
    struct cheaper {
        double cost_s;
        int at[MOST_VARIABLES];
    } cheaper[MOST_CHEAPER]; /* the cheapest first */
};

struct finding {
    int index;
    double claim_s, cost_s;
    char what[600];
};

struct tally {
    int optimal, feasible, refused, exhaustive, unread, unpriced, staged;
    int seen[SBP_OP_KINDS]; /* operators of each kind */
    int64_t priced;
    int finding_count;
    struct finding *finding;
};

/* --- a case --- */

static void search(struct instance *it)
{
    struct sbp_pool pool;
    struct sbp_diag why = {{0}};
    const enum sbp_status status =
        sbp_outer_search(&it->plan, &it->request, 1, &it->plan.arena, &pool, &it->outcome, &why);
    it->is_refused = status != SBP_OK || pool.count == 0;
    it->claim_s = status == SBP_OK ? it->outcome.lower_bound_s : INFINITY;
    snprintf(it->refusal, sizeof it->refusal, "%s",
             status != SBP_OK ? why.text : sbp_solver_status_name(it->outcome.status));
    if (!it->is_refused)
        it->plan.strategy = pool.plan[0].strategy;
}

/* Two stages or three, under any schedule whose prices bound the step; false: no such cut. */
static bool cut_into_stages(struct sbp_random *random, struct sbp_parallel parallel,
                            struct sbp_plan *plan)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_MESSAGE_DRIVEN};
    struct sbp_diag refusal = {{0}};
    parallel.pipeline = SMALL_PICK(random, 2, 2, 2, 3);
    parallel.schedule = schedules[sbp_random_below(random, 4)];
    parallel.stage_cut = (enum sbp_stage_cut)sbp_random_below(random, SBP_STAGE_CUTS);
    for (int more = 0; more < 2; more++, parallel.pipeline = 5 - parallel.pipeline) {
        int first[4];
        if (sbp_stages_cut(&plan->cut.graph, (int)parallel.pipeline, parallel.stage_cut, first,
                           &refusal) == SBP_OK &&
            sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK)
            return true;
    }
    return false;
}

static void open_instance(struct instance *it, int index)
{
    struct sbp_random random;
    struct sbp_diag diag = {{0}};
    it->seed = first_seed * 1000003 + (uint64_t)index;
    sbp_random_seed(&random, it->seed);
    tiny_model_draw(&random, &it->model);
    tiny_cluster_draw(&random, &it->cluster);
    struct sbp_plan *const plan = &it->plan;
    if (sbp_plan_begin(parsed(it->model.text), "model", parsed(it->cluster.text), "cluster", plan,
                       &diag) != SBP_OK)
        fail_msg("case %d: %s\n%s\n%s", index, diag.text, it->model.text, it->cluster.text);
    struct sbp_parallel parallel = plan->cut.parallel;
    tiny_parallel_draw(&random, plan->cut.graph.global_batch, &parallel);
    if (!(has_stages && cut_into_stages(&random, parallel, plan)) &&
        sbp_plan_cut(plan, &parallel, &diag) != SBP_OK)
        fail_msg("case %d: %s", index, diag.text);
    it->request = (struct sbp_request){
        .space = SBP_SPACE_FULL,
        .given = ~0u,
        .objective = sbp_random_unit(&random) < 0.8 ? SBP_STEP_TIME : SBP_COMMUNICATION};
    it->cheaper_count = 0;
    it->is_exhaustive = false;
    search(it);
    every_open(&plan->cut, it->request.objective, leaves_sums, &it->every);
    assert_true(it->every.variable_count <= MOST_VARIABLES);
}

static void close_instance(struct instance *it)
{
    every_close(&it->every);
    sbp_plan_free(&it->plan);
}

/* What `sbplan price` says of the choices, the least as it claims; INFINITY: it refuses them. */
static double accepted_s(struct instance *it, const int *at, struct sbp_diag *why)
{
    struct sbp_request request = it->request;
    struct sbp_outcome outcome;
    struct sbp_pool pool;
    struct sbp_arena arena;
    struct sbp_fix *const fix = calloc((size_t)it->plan.cut.graph.op_count + 1, sizeof *fix);
    assert_non_null(fix);
    memcpy(it->every.at, at, (size_t)it->every.variable_count * sizeof *at);
    request.fix = fix;
    request.fix_count = every_fixes(&it->every, fix);
    request.memory_limit_bytes = INT64_C(1) << 60;
    sbp_arena_init(&arena);
    const enum sbp_status status =
        sbp_outer_search(&it->plan, &request, 1, &arena, &pool, &outcome, why);
    const double cost_s = status == SBP_OK && pool.count > 0 ? outcome.objective_s : INFINITY;
    sbp_arena_free(&arena);
    free(fix);
    return cost_s;
}

/* --- what costs less --- */

static double limit_s(const struct instance *it)
{
    return isfinite(it->claim_s) ? it->claim_s * (1 - CLOSE) : it->claim_s;
}

/* Keeps the cheapest few that cost less than what the search says is the least. */
static void remember(struct every *every, void *context)
{
    struct instance *const it = context;
    const double cost_s = every_price(every);
    int place = it->cheaper_count;
    if (!(cost_s < limit_s(it)))
        return;
    while (place > 0 && it->cheaper[place - 1].cost_s > cost_s)
        place--;
    if (place == MOST_CHEAPER)
        return;
    it->cheaper_count += it->cheaper_count < MOST_CHEAPER;
    memmove(&it->cheaper[place + 1], &it->cheaper[place],
            (size_t)(it->cheaper_count - place - 1) * sizeof *it->cheaper);
    it->cheaper[place].cost_s = cost_s;
    memcpy(it->cheaper[place].at, every->at, (size_t)every->variable_count * sizeof *every->at);
}

/* The variables of an operator begin at `start`; the next one's index. */
static int next_layer(const struct every *every, int start)
{
    int v = start;
    while (v < every->variable_count && every->variable[v].op == every->variable[start].op)
        v++;
    return v;
}

static int layer_starts(const struct every *every, int *start)
{
    int count = 0;
    for (int v = 0; v < every->variable_count; v = next_layer(every, v))
        start[count++] = v;
    return count;
}

/* All choices of one layer, or of two, or as many as there is room for. */
static void change_layers(struct instance *it, int first, int second, int64_t most)
{
    int variable[2 * SBP_MAX_AXES], count = 0;
    for (int v = first; v < next_layer(&it->every, first); v++)
        variable[count++] = v;
    for (int v = second; second >= 0 && v < next_layer(&it->every, second); v++)
        variable[count++] = v;
    (void)every_walk(&it->every, variable, count, most, remember, it);
}

static void random_choices(struct instance *it, struct sbp_random *random, bool near)
{
    struct every *const every = &it->every;
    int before[MOST_VARIABLES];
    memcpy(before, every->at, sizeof before[0] * (size_t)every->variable_count);
    for (int v = 0; v < every->variable_count; v++)
        if (!near || sbp_random_below(random, (uint64_t)every->variable_count) < 3)
            every->at[v] = (int)sbp_random_below(random, (uint64_t)every->variable[v].count);
    remember(every, it);
    memcpy(every->at, before, sizeof before[0] * (size_t)every->variable_count);
}

/* Steps to the cheapest neighbour while there is a cheaper one. */
static void look_near(struct instance *it, struct sbp_random *random)
{
    int start[MOST_VARIABLES];
    const int layers = layer_starts(&it->every, start);
    double last_s = INFINITY;
    for (int round = 0; round < 3; round++) {
        for (int a = 0; a < layers; a++)
            change_layers(it, start[a], -1, MOST_NEAR / 4);
        const int pairs = layers * (layers - 1) / 2;
        for (int a = 0; a < layers && round == 0; a++)
            for (int b = a + 1; b < layers; b++)
                change_layers(it, start[a], start[b], MOST_NEAR / pairs);
        for (int i = 0; i < MOST_RANDOM; i++)
            random_choices(it, random, i % 2 == 0);
        if (it->cheaper_count == 0 || it->cheaper[0].cost_s >= last_s)
            return;
        last_s = it->cheaper[0].cost_s;
        memcpy(it->every.at, it->cheaper[0].at,
               (size_t)it->every.variable_count * sizeof *it->every.at);
    }
}

static void look_for_cheaper(struct instance *it, struct tally *tally)
{
    struct every *const every = &it->every;
    int all[MOST_VARIABLES];
    struct sbp_random random;
    sbp_random_seed(&random, it->seed + 1);
    for (int v = 0; v < every->variable_count; v++)
        all[v] = v;
    const bool is_read = !it->is_refused && every_read(every, &it->plan.strategy);
    if (!it->is_refused && (!is_read || !is_close(every_price(every), it->outcome.objective_s)))
        tally->unread++;
    it->is_exhaustive = every_walk(every, all, every->variable_count, MOST_ALL, NULL, NULL);
    if (it->is_exhaustive)
        (void)every_walk(every, all, every->variable_count, MOST_ALL, remember, it);
    else
        look_near(it, &random);
}

/* --- what is told --- */

static const char *state_name(struct sbp_state state)
{
    static const char *const splits[] = {"S0", "S1", "S2", "S3"};
    static const char *const others[] = {
        [SBP_BROADCAST] = "B", [SBP_PARTIAL] = "P", [SBP_MIRRORED] = "M"};
    return state.kind == SBP_SPLIT ? splits[state.dim] : others[state.kind];
}

/* "linear l0: column S2 -> replicate B", of every choice that differs. */
static void tell_differences(const struct instance *it, const int *found, const int *cheaper,
                             char *what, size_t size)
{
    const struct sbp_graph *const graph = &it->plan.cut.graph;
    for (int v = 0; v < it->every.variable_count; v++) {
        const struct every_variable *const variable = &it->every.variable[v];
        const struct every_choice a = variable->choice[found[v]];
        const struct every_choice b = variable->choice[cheaper[v]];
        if (found[v] == cheaper[v])
            continue;
        if (variable->op < 0) {
            small_append(what, size, "; input: %s -> %s", state_name(a.rest), state_name(b.rest));
            continue;
        }
        const struct sbp_op_entry *const entry = graph->op[variable->op].entry;
        small_append(what, size, "; %s %s: %s %s -> %s %s", entry->name,
                     graph->op[variable->op].name, entry->role[a.role].name, state_name(a.rest),
                     entry->role[b.role].name, state_name(b.rest));
    }
}

/* Takes back what the cheaper one does not need to be cheaper, layer by layer. */
static void shrink(struct instance *it, const int *found, int *cheaper)
{
    int kept[MOST_VARIABLES];
    struct sbp_diag why;
    const size_t bytes = (size_t)it->every.variable_count * sizeof *kept;
    for (int v = 0, end; v < it->every.variable_count; v = end) {
        end = next_layer(&it->every, v);
        memcpy(kept, cheaper, bytes);
        memcpy(cheaper + v, found + v, (size_t)(end - v) * sizeof *cheaper);
        if (memcmp(kept, cheaper, bytes) == 0)
            continue;
        memcpy(it->every.at, cheaper, bytes);
        if (!(every_price(&it->every) < limit_s(it)) || isinf(accepted_s(it, cheaper, &why)))
            memcpy(cheaper, kept, bytes);
    }
}

static void tell_whole(struct instance *it, const int *at)
{
    memcpy(it->every.at, at, (size_t)it->every.variable_count * sizeof *at);
    struct cJSON *const json = every_json(&it->every);
    char *const text = cJSON_PrintUnformatted(json);
    printf("  objective %s\n  model    %s\n  cluster  %s\n  strategy %s\n",
           it->request.objective == SBP_STEP_TIME ? "step-time" : "communication", it->model.text,
           it->cluster.text, text);
    cJSON_free(text);
    cJSON_Delete(json);
}

/* The cheapest that `sbplan price` accepts; NULL: it refuses all that were remembered. Where it
 * asks more than the choices cost, it has left something out itself, the way that the input rests.
 */
static struct cheaper *best_accepted(struct instance *it, double *price_s, struct sbp_diag *why)
{
    for (int i = 0; i < it->cheaper_count; i++) {
        *price_s = accepted_s(it, it->cheaper[i].at, why);
        if (isfinite(*price_s))
            return &it->cheaper[i];
    }
    return NULL;
}

static void count_case(const struct instance *it, struct tally *tally)
{
    const struct sbp_graph *const graph = &it->plan.cut.graph;
    tally->refused += it->is_refused;
    tally->optimal += !it->is_refused && it->outcome.status == SBP_PLAN_OPTIMAL;
    tally->feasible += !it->is_refused && it->outcome.status != SBP_PLAN_OPTIMAL;
    tally->exhaustive += it->is_exhaustive;
    tally->staged += it->plan.cut.parallel.pipeline > 1;
    tally->priced += it->every.priced;
    for (int op = 0; op < graph->op_count; op++)
        tally->seen[graph->op[op].kind]++;
}

/* found: the choices of the search's plan; NULL: it has none. */
static void tell(struct instance *it, int index, const int *found, struct cheaper *cheaper,
                 double price_s, struct tally *tally)
{
    struct finding *const finding = &tally->finding[tally->finding_count++];
    *finding = (struct finding){.index = index, .claim_s = it->claim_s, .cost_s = cheaper->cost_s};
    if (found != NULL) {
        shrink(it, found, cheaper->at);
        tell_differences(it, found, cheaper->at, finding->what, sizeof finding->what);
    } else
        small_append(finding->what, sizeof finding->what, "; %.200s", it->refusal);
    printf("case %d: %s %.9g s, there is %.9g s (%.3g %% less)%s%s\n", index,
           it->is_refused ? "refused" : sbp_solver_status_name(it->outcome.status), it->claim_s,
           cheaper->cost_s, 100 * (1 - cheaper->cost_s / it->claim_s),
           it->is_exhaustive ? ", of all" : "", finding->what);
    if (price_s > cheaper->cost_s * (1 + CLOSE))
        printf("  price says %.9g s\n", price_s);
}

static void check_case(int index, bool is_told_whole, struct tally *tally)
{
    static struct instance it; /* large */
    int found[MOST_VARIABLES] = {0};
    struct sbp_diag why = {{0}};
    double price_s = INFINITY;
    open_instance(&it, index);
    const bool is_read = !it.is_refused && every_read(&it.every, &it.plan.strategy);
    memcpy(found, it.every.at, (size_t)it.every.variable_count * sizeof *found);
    look_for_cheaper(&it, tally);
    count_case(&it, tally);
    struct cheaper *const cheaper = best_accepted(&it, &price_s, &why);
    if (cheaper == NULL && it.cheaper_count > 0) {
        tally->unpriced++;
        printf("case %d: price refuses what costs %.9g of %.9g: %s\n", index, it.cheaper[0].cost_s,
               it.claim_s, why.text);
    }
    if (cheaper != NULL)
        tell(&it, index, is_read ? found : NULL, cheaper, price_s, tally);
    if (is_told_whole && it.cheaper_count > 0)
        tell_whole(&it, cheaper != NULL ? cheaper->at : it.cheaper[0].at);
    close_instance(&it);
}

/* The most that is saved, first. */
static int by_share(const void *left, const void *right)
{
    const struct finding *const a = left, *const b = right;
    const double x = a->cost_s / a->claim_s, y = b->cost_s / b->claim_s;
    return (x > y) - (x < y);
}

static void check_cases(struct tally *total)
{
    struct tally tally = {.finding = calloc((size_t)case_count + 1, sizeof *tally.finding)};
    struct tally again = {.finding = calloc((size_t)case_count + WORST, sizeof *again.finding)};
    assert_true(tally.finding != NULL && again.finding != NULL);
    for (int i = first_case; i < first_case + case_count; i++)
        check_case(i, case_count == 1, &tally);
    qsort(tally.finding, (size_t)tally.finding_count, sizeof *tally.finding, by_share);
    for (int i = 0; i < tally.finding_count && i < WORST; i++)
        check_case(tally.finding[i].index, true, &again);
    printf("seed %" PRIu64 ", cases %d to %d: %d optimal, %d feasible, %d refused; %d "
           "exhaustive, %" PRId64 " strategies priced; %d beaten, %d by what price refuses, "
           "%d plans not read\n",
           first_seed, first_case, first_case + case_count - 1, tally.optimal, tally.feasible,
           tally.refused, tally.exhaustive, tally.priced, tally.finding_count, tally.unpriced,
           tally.unread);
    for (int kind = 0; kind < SBP_OP_KINDS && !has_stages; kind++)
        if (tally.seen[kind] == 0 && case_count >= ALL_OPERATORS)
            fail_msg("no case has the operator %s", sbp_op((enum sbp_op_kind)kind)->name);
    free(tally.finding);
    free(again.finding);
    assert_int_equal(tally.unread, 0);
    assert_int_equal(tally.finding_count, 0);
    *total = tally;
}

static void test_every_role(void **state)
{
    (void)state;
    struct tally tally;
    has_stages = false;
    check_cases(&tally);
}

static void test_every_role_in_stages(void **state)
{
    (void)state;
    struct tally tally;
    has_stages = true;
    check_cases(&tally);
    printf("%d of several stages\n", tally.staged);
    if (case_count >= ALL_OPERATORS)
        assert_true(tally.staged >= case_count / 3);
}

int main(int count, char **argument)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_role),
                                       cmocka_unit_test(test_every_role_in_stages)};
    if (count > 1)
        first_seed = strtoull(argument[1], NULL, 10);
    if (count > 2)
        case_count = atoi(argument[2]);
    if (count > 3)
        first_case = atoi(argument[3]);
    if (count > 4)
        leaves_sums = atoi(argument[4]) != 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
