#include "tests/metamorphic/world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/outer/branch_and_bound.h"
#include "planner/space/space_table.h"

/* One ring over several levels takes alpha from the level of the greatest beta: it may take less
 * time where a level gets slower, so that relations of times do not hold. */
static const bool draws_rings = true;

static void stop(const char *what)
{
    (void)fprintf(stderr, "%s\n", what);
    abort();
}

/* ---- drawing -------------------------------------------------------------------------------- */

static void draw_extras(struct world *world)
{
    static const double launch_s[] = {1e-7, 7e-7, 2e-6};
    if (!draws_rings)
        cJSON_ReplaceItemInObjectCaseSensitive(world->cluster, "collectives",
                                               cJSON_CreateString("hierarchical"));
    if (world_pick(world, 2) == 0)
        put_number(world->cluster, "gradient_overlap", 0.25 * world_pick(world, 5));
    if (world_pick(world, 2) == 0)
        put_number(device_of(world), "kernel_launch_s", launch_s[world_pick(world, 3)]);
}

void world_draw(struct world *world, const char *relation, uint64_t seed)
{
    static const int sizes[][2] = {{2, 1}, {3, 1}, {4, 1}, {2, 2}, {2, 3}};
    struct small_model model = {.linears = 2};
    struct small_text cluster;
    *world = (struct world){.relation = relation, .seed = seed};
    sbp_random_seed(&world->random, seed);
    const int *size = sizes[world_pick(world, 5)];
    world->kind = (enum small_kind)world_pick(world, SMALL_KINDS);
    small_model_draw(&world->random, world->kind, &model);
    small_cluster_draw(&world->random, size[0], size[1], false, &cluster);
    world->model = cJSON_Parse(model.text.text);
    world->cluster = cJSON_Parse(cluster.text);
    world->given = cJSON_CreateObject();
    if (world->model == NULL || world->cluster == NULL || world->given == NULL)
        stop("a small model or cluster is no JSON");
    draw_extras(world);
}

void world_free(struct world *world)
{
    cJSON_Delete(world->model);
    cJSON_Delete(world->cluster);
    cJSON_Delete(world->given);
}

static void print_tree(const char *name, const struct cJSON *tree)
{
    char *text = cJSON_PrintUnformatted(tree);
    printf("  %s: %s\n", name, text == NULL ? "" : text);
    free(text);
}

void world_break(struct world *world, const char *format, ...)
{
    va_list arguments;
    if (world->is_broken)
        return;
    world->is_broken = true;
    printf("BROKEN %s, seed %llu, space %s: ", world->relation, (unsigned long long)world->seed,
           sbp_request_space_name(world->request.space));
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    print_tree("model", world->model);
    print_tree("cluster", world->cluster);
    print_tree("given", world->given);
}

/* ---- searching ------------------------------------------------------------------------------ */

static uint64_t hash_of(const struct cJSON *plan)
{
    static const char *const keys[] = {"parallel", "strategy", "cost", "memory", "collectives"};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char *text = cJSON_Print(cJSON_GetObjectItemCaseSensitive(plan, keys[i]));
        if (text == NULL)
            stop("a plan without a member");
        hash = 31 * hash + sbp_hash_bytes(text, strlen(text));
        free(text);
    }
    return hash;
}

static void measure(struct world *world, const struct sbp_plan *plan, struct answer *answer)
{
    struct sbp_step step;
    struct cJSON *json = NULL;
    struct sbp_diag diag = {{0}};
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK ||
        sbp_plan_json(plan, &step, &json, &diag) != SBP_OK)
        stop(diag.text);
    answer->device_bytes = step.totals.device_bytes;
    answer->plan = hash_of(json);
    if (world->request.objective == SBP_STEP_TIME &&
        fabs(step.totals.step_s - answer->cost_s) > CLOSE * answer->cost_s)
        world_break(world, "the plan costs %.17g, the search says %.17g", step.totals.step_s,
                    answer->cost_s);
    cJSON_Delete(json);
    sbp_step_free(&step);
}

static struct answer no_plan(void)
{
    return (struct answer){.cost_s = INFINITY, .bound_s = INFINITY, .is_optimal = true};
}

/* Sets what the world gives of struct sbp_parallel; false: it is not legal. */
static bool set_given(struct world *world, struct sbp_plan *plan)
{
    const char *const *keys = sbp_parallel_keys();
    struct sbp_parallel parallel = plan->cut.parallel;
    struct sbp_diag diag = {{0}};
    struct sbp_json at;
    world->request.given = 0;
    for (int i = 0; keys[i] != NULL; i++)
        if (cJSON_HasObjectItem(world->given, keys[i]))
            world->request.given |= 1u << i;
    sbp_json_at(world->given, "given", &diag, &at);
    return sbp_parallel_read(&at, &parallel) == SBP_OK &&
           sbp_plan_cut(plan, &parallel, &diag) == SBP_OK &&
           sbp_space_begin(&world->request, plan, &diag) == SBP_OK;
}

struct answer world_explore(struct world *world, struct sbp_plan *plan, struct sbp_outcome *outcome)
{
    struct sbp_pool pool = {0};
    struct sbp_diag diag = {{0}};
    *outcome = (struct sbp_outcome){0};
    if (!set_given(world, plan))
        return no_plan();
    const enum sbp_status status =
        sbp_outer_search(plan, &world->request, 1, &plan->arena, &pool, outcome, &diag);
    if (status == SBP_E_INPUT)
        return no_plan();
    if (status != SBP_OK)
        stop(diag.text);
    struct answer answer = {.cost_s = INFINITY, .bound_s = outcome->lower_bound_s};
    if (pool.count == 0) {
        answer.is_optimal = outcome->status == SBP_PLAN_INFEASIBLE;
        answer.bound_s = answer.is_optimal ? INFINITY : answer.bound_s;
        return answer;
    }
    if (sbp_plan_cut(plan, &pool.plan[0].parallel, &diag) != SBP_OK)
        stop(diag.text);
    plan->strategy = pool.plan[0].strategy;
    answer.cost_s = pool.plan[0].objective_s;
    answer.is_optimal = outcome->status == SBP_PLAN_OPTIMAL;
    measure(world, plan, &answer);
    return answer;
}

bool world_find(struct world *world, struct sbp_plan *plan, struct sbp_outcome *outcome,
                struct answer *answer)
{
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Duplicate(world->model, true), "model",
                       cJSON_Duplicate(world->cluster, true), "cluster", plan, &diag) != SBP_OK) {
        world_break(world, "%s", diag.text);
        *answer = no_plan();
        *plan = (struct sbp_plan){0};
        return false;
    }
    *answer = world_explore(world, plan, outcome);
    return isfinite(answer->cost_s);
}

struct answer world_search(struct world *world)
{
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct answer answer;
    (void)world_find(world, &plan, &outcome, &answer);
    sbp_plan_free(&plan);
    return answer;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void compare(struct world *world, const struct answer *least, double factor,
                    const struct answer *other)
{
    if (!isfinite(other->cost_s))
        return;
    world->compared++;
    world->strict += least->is_optimal;
    if (factor * least->bound_s > other->cost_s * (1 + CLOSE))
        world_break(world, "%.12g (no less than %.12g) times %g, but %.12g of the other",
                    least->cost_s, least->bound_s, factor, other->cost_s);
}

void never_more(struct world *world, const struct answer *least, const struct answer *other)
{
    compare(world, least, 1, other);
}

void costs_times(struct world *world, const struct answer *one, double factor,
                 const struct answer *other)
{
    compare(world, one, factor, other);
    compare(world, other, 1 / factor, one);
}

void same_plan(struct world *world, const struct answer *one, const struct answer *other)
{
    world->compared++;
    world->strict += one->is_optimal;
    if (one->plan != other->plan)
        world_break(world, "two plans, of %.17g and %.17g", one->cost_s, other->cost_s);
}

/* ---- changes -------------------------------------------------------------------------------- */

int world_pick(struct world *world, int count)
{
    return (int)sbp_random_below(&world->random, (uint64_t)count);
}

double number_of(const struct cJSON *object, const char *key, double absent)
{
    const struct cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item == NULL ? absent : item->valuedouble;
}

void put_number(struct cJSON *object, const char *key, double value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    if (cJSON_AddNumberToObject(object, key, value) == NULL)
        stop("out of memory");
}

void scale(struct cJSON *object, const char *key, double factor)
{
    if (cJSON_HasObjectItem(object, key))
        put_number(object, key, factor * number_of(object, key, 0));
}

struct cJSON *levels_of(const struct world *world)
{
    return cJSON_GetObjectItemCaseSensitive(world->cluster, "levels");
}

struct cJSON *device_of(const struct world *world)
{
    return cJSON_GetObjectItemCaseSensitive(world->cluster, "device");
}

void scale_levels(const struct world *world, const char *key, double factor)
{
    for (struct cJSON *level = levels_of(world)->child; level != NULL; level = level->next)
        scale(level, key, factor);
}

void scale_flops(const struct world *world, double factor)
{
    struct cJSON *flops = cJSON_GetObjectItemCaseSensitive(device_of(world), "flops");
    scale(flops, "fp32", factor);
    scale(flops, "bf16", factor);
}

int64_t devices_of(const struct world *world)
{
    int64_t devices = 1;
    for (const struct cJSON *level = levels_of(world)->child; level != NULL; level = level->next)
        devices *= (int64_t)number_of(level, "size", 1);
    return devices;
}

void give(struct world *world, const char *key, const char *text, double number)
{
    cJSON_DeleteItemFromObjectCaseSensitive(world->given, key);
    cJSON_AddItemToObject(world->given, key,
                          text != NULL ? cJSON_CreateString(text) : cJSON_CreateNumber(number));
}
