#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "planner/cli/inputs.h"
#include "planner/cli/sweeps.h"
#include "planner/plan/plan_diff.h"
#include "planner/verify/verify.h"
#include "tests/metamorphic/relations.h"

/* ---- one plan ------------------------------------------------------------------------------- */

/* The search itself compares the price of its plan (world.c, measure). */
static bool a_second_opinion_accepts_what_is_found(struct world *world)
{
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct answer answer;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    const bool found = world_find(world, &plan, &outcome, &answer);
    if (found) {
        const enum sbp_status status = sbp_cut_step(&plan.cut, &plan.strategy, false, &step, &diag);
        const struct sbp_claim claim = {
            .plan = &plan, .step = &step, .request = &world->request, .outcome = &outcome};
        if (status != SBP_OK || sbp_verify_plan(&claim, &diag) != SBP_OK)
            world_break(world, "%s", diag.text);
        world->compared++;
        world->strict++;
        if (status == SBP_OK)
            sbp_step_free(&step);
    }
    sbp_plan_free(&plan);
    return found;
}

/* The text of a plan's file; the caller frees it. */
static char *text_of(struct world *world, const struct sbp_plan *plan)
{
    struct sbp_step step;
    struct cJSON *json = NULL;
    struct sbp_diag diag = {{0}};
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK) {
        world_break(world, "%s", diag.text);
        return NULL;
    }
    if (sbp_plan_json(plan, &step, &json, &diag) != SBP_OK)
        world_break(world, "%s", diag.text);
    char *text = json == NULL ? NULL : cJSON_Print(json);
    cJSON_Delete(json);
    sbp_step_free(&step);
    return text;
}

/* A file in memory; path (32). */
static int open_text(const char *text, char *path)
{
    const int file = memfd_create("text", 0);
    (void)snprintf(path, 32, "/proc/self/fd/%d", file);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror("a file in memory");
        abort();
    }
    return file;
}

static void read_again(struct world *world, const char *text)
{
    char path[32];
    struct sbp_plan again;
    struct sbp_diag diag = {{0}};
    const int file = open_text(text, path);
    if (sbp_plan_read(path, &again, &diag) == SBP_OK) {
        char *other = text_of(world, &again);
        if (other == NULL || strcmp(text, other) != 0)
            world_break(world, "a plan is written otherwise once it was read");
        free(other);
        sbp_plan_free(&again);
    } else {
        world_break(world, "%s", diag.text);
    }
    (void)close(file);
}

static bool a_plan_file_is_read_as_it_was_written(struct world *world)
{
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct answer answer;
    const bool found = world_find(world, &plan, &outcome, &answer);
    char *text = found ? text_of(world, &plan) : NULL;
    if (text != NULL)
        read_again(world, text);
    world->compared++;
    world->strict++;
    free(text);
    sbp_plan_free(&plan);
    return found;
}

/* ---- two plans ------------------------------------------------------------------------------ */

static bool the_same_search_finds_the_same_plan(struct world *world)
{
    struct sbp_plan plan, twin;
    struct sbp_outcome outcome;
    struct answer one, other;
    char change[SBP_PLAN_CHANGE_BYTES];
    const bool found = world_find(world, &plan, &outcome, &one);
    (void)world_find(world, &twin, &outcome, &other);
    same_plan(world, &one, &other);
    if (found && *sbp_plan_change(&plan, &twin, change) != '\0')
        world_break(world, "a plan differs from itself: %s", change);
    sbp_plan_free(&plan);
    sbp_plan_free(&twin);
    return found;
}

/* ---- command lines -------------------------------------------------------------------------- */

/* Searches what a command line names, whose operands are the world's files. */
static struct answer search_words(struct world *world, const struct sbp_arguments *words)
{
    char path[2][32];
    const char *operands[] = {path[0], path[1]};
    char *model = cJSON_Print(world->model), *cluster = cJSON_Print(world->cluster);
    const int files[] = {open_text(model, path[0]), open_text(cluster, path[1])};
    struct sbp_arguments arguments = *words;
    struct sbp_arena arena = {0};
    struct sbp_settings settings;
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    struct answer answer = {.cost_s = INFINITY};
    arguments.operands = (struct sbp_word_list){2, operands};
    if (sbp_inputs_read(&arguments, SBP_SPACE_FULL, &arena, &settings, &plan, &diag) == SBP_OK) {
        answer = world_explore(world, &plan, &outcome);
        sbp_plan_free(&plan);
    } else {
        world_break(world, "%s", diag.text);
    }
    sbp_inputs_free_settings(&settings);
    sbp_arena_free(&arena);
    for (int i = 0; i < 2; i++)
        (void)close(files[i]);
    free(model);
    free(cluster);
    return answer;
}

static bool all_devices_are_those_of_the_cluster(struct world *world)
{
    const struct answer whole = world_search(world);
    const struct sbp_arguments all = {.devices = devices_of(world)};
    const struct answer named = search_words(world, &all);
    same_plan(world, &whole, &named);
    return true;
}

/* A row of a sweep is the search of files with its values in them. */
static bool a_sweep_is_its_single_searches(struct world *world)
{
    const char *words[] = {"global_batch=2,4", "cluster.device.memory_bytes_per_s=1e9,3e10"};
    const struct sbp_word_list list = {2, words};
    struct sbp_sweeps sweeps;
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    if (sbp_sweeps_parse(&list, &arena, &sweeps, &diag) != SBP_OK || sweeps.row_count != 4)
        world_break(world, "four rows: %s", diag.text);
    for (int row = 0; row < 4 && !world->is_broken; row++) {
        struct sbp_arguments arguments = {0};
        if (sbp_sweeps_row(&sweeps, row, &arena, &arguments.row) != SBP_OK)
            break;
        const struct answer swept = search_words(world, &arguments);
        put_number(world->model, "global_batch", row < 2 ? 2 : 4);
        put_number(device_of(world), "memory_bytes_per_s", row % 2 == 0 ? 1e9 : 3e10);
        const struct answer single = world_search(world);
        same_plan(world, &swept, &single);
        put_number(world->model, "global_batch", 1);
    }
    sbp_arena_free(&arena);
    return true;
}

const struct relation relations_of_plans[] = {
    RELATION(a_second_opinion_accepts_what_is_found),
    RELATION(a_plan_file_is_read_as_it_was_written),
    RELATION(the_same_search_finds_the_same_plan),
    RELATION(all_devices_are_those_of_the_cluster),
    RELATION(a_sweep_is_its_single_searches),
    {.name = NULL},
};
