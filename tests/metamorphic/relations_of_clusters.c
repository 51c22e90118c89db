#include <math.h>

#include <cjson/cJSON.h>

#include "tests/metamorphic/relations.h"

/* ---- times ---------------------------------------------------------------------------------- */

static bool slower_never_helps(struct world *world, const char *key)
{
    const struct answer before = world_search(world);
    scale_levels(world, key, 2);
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

static bool doubled_alpha_never_helps(struct world *world)
{
    return slower_never_helps(world, "alpha_s");
}

static bool doubled_beta_never_helps(struct world *world)
{
    return slower_never_helps(world, "beta_s_per_byte");
}

static bool a_slower_level_never_helps(struct world *world)
{
    const struct answer before = world_search(world);
    struct cJSON *levels = levels_of(world);
    struct cJSON *level = cJSON_GetArrayItem(levels, world_pick(world, cJSON_GetArraySize(levels)));
    scale(level, world_pick(world, 2) == 0 ? "alpha_s" : "beta_s_per_byte", 3);
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

/* The inner level, a little faster per byte than the outer one, becomes a little slower. */
static bool a_level_that_falls_behind_never_helps(struct world *world)
{
    struct cJSON *outer = levels_of(world)->child, *inner = outer->next;
    if (inner == NULL)
        return false;
    cJSON_DeleteItemFromObjectCaseSensitive(outer, "ports");
    cJSON_DeleteItemFromObjectCaseSensitive(inner, "ports");
    put_number(inner, "beta_s_per_byte", 0.99 * number_of(outer, "beta_s_per_byte", 0));
    const struct answer before = world_search(world);
    put_number(inner, "beta_s_per_byte", 1.01 * number_of(outer, "beta_s_per_byte", 0));
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

static bool doubled_times_double_the_optimum(struct world *world)
{
    const struct answer before = world_search(world);
    scale_levels(world, "alpha_s", 2);
    scale_levels(world, "beta_s_per_byte", 2);
    scale_flops(world, 0.5);
    scale(device_of(world), "memory_bytes_per_s", 0.5);
    scale(device_of(world), "host_link_bytes_per_s", 0.5);
    scale(device_of(world), "kernel_launch_s", 2);
    const struct answer after = world_search(world);
    costs_times(world, &before, 2, &after);
    return true;
}

/* ---- devices -------------------------------------------------------------------------------- */

static bool faster_flops_never_hurt(struct world *world)
{
    const struct answer before = world_search(world);
    scale_flops(world, 2);
    const struct answer after = world_search(world);
    never_more(world, &after, &before);
    return true;
}

static bool faster_memory_never_hurts(struct world *world)
{
    const struct answer before = world_search(world);
    scale(device_of(world), "memory_bytes_per_s", 2);
    const struct answer after = world_search(world);
    never_more(world, &after, &before);
    return true;
}

static bool longer_launches_never_help(struct world *world)
{
    const struct answer before = world_search(world);
    put_number(device_of(world), "kernel_launch_s",
               1e-6 + number_of(device_of(world), "kernel_launch_s", 0));
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

/* fp64 is in no model's precision, bf16 in that of mixed ones alone. */
static bool a_rate_matters_for_its_type_alone(struct world *world)
{
    const struct cJSON *precision = cJSON_GetObjectItemCaseSensitive(world->model, "precision");
    const bool is_mixed = precision->valuestring[0] == 'm';
    struct cJSON *flops = cJSON_GetObjectItemCaseSensitive(device_of(world), "flops");
    put_number(flops, "fp64", 1e9);
    const struct answer before = world_search(world);
    scale(flops, "fp64", 2);
    if (!is_mixed)
        scale(flops, "bf16", 2);
    const struct answer after = world_search(world);
    same_plan(world, &before, &after);
    return true;
}

static bool more_memory_never_hurts(struct world *world)
{
    const struct answer whole = world_search(world);
    if (whole.device_bytes == 0)
        return false;
    put_number(device_of(world), "memory_bytes", floor(0.7 * (double)whole.device_bytes));
    const struct answer little = world_search(world);
    put_number(device_of(world), "memory_bytes", floor(0.9 * (double)whole.device_bytes));
    const struct answer more = world_search(world);
    never_more(world, &more, &little);
    never_more(world, &whole, &more);
    return true;
}

static bool memory_that_is_not_needed_changes_nothing(struct world *world)
{
    const struct answer whole = world_search(world);
    if (whole.device_bytes == 0)
        return false;
    put_number(device_of(world), "memory_bytes", (double)whole.device_bytes);
    const struct answer exact = world_search(world);
    costs_times(world, &whole, 1, &exact);
    return true;
}

static bool more_overlap_never_hurts(struct world *world)
{
    put_number(world->cluster, "gradient_overlap", 0);
    const struct answer none = world_search(world);
    put_number(world->cluster, "gradient_overlap", 0.5);
    const struct answer half = world_search(world);
    put_number(world->cluster, "gradient_overlap", 1);
    const struct answer all = world_search(world);
    never_more(world, &half, &none);
    never_more(world, &all, &half);
    return true;
}

static bool no_overlap_never_helps(struct world *world)
{
    put_number(world->cluster, "gradient_overlap", 0.7);
    const struct answer free = world_search(world);
    give(world, "gradient_overlap", NULL, 0);
    const struct answer none = world_search(world);
    never_more(world, &free, &none);
    return true;
}

/* ---- levels --------------------------------------------------------------------------------- */

static bool a_level_of_size_1_changes_nothing(struct world *world)
{
    const struct answer before = world_search(world);
    struct cJSON *levels = levels_of(world);
    struct cJSON *level = cJSON_CreateObject();
    cJSON_AddStringToObject(level, "name", "one");
    put_number(level, "size", 1);
    put_number(level, "alpha_s", 1e-3);
    put_number(level, "beta_s_per_byte", 1e-6);
    const int count = cJSON_GetArraySize(levels), place = world_pick(world, 1 + count);
    cJSON_AddItemToArray(levels, level);
    for (int i = place; i < count; i++) /* those behind it follow */
        cJSON_AddItemToArray(levels, cJSON_DetachItemFromArray(levels, place));
    const struct answer after = world_search(world);
    costs_times(world, &before, 1, &after);
    return true;
}

/* Two levels alike part the same devices, whichever is the outer one. Stages are parted at the
 * outer one first, so that there is one stage. */
static bool levels_that_are_alike_may_swap(struct world *world)
{
    struct cJSON *outer = levels_of(world)->child, *inner = outer->next;
    if (inner == NULL)
        return false;
    put_number(inner, "alpha_s", number_of(outer, "alpha_s", 0));
    put_number(inner, "beta_s_per_byte", number_of(outer, "beta_s_per_byte", 0));
    cJSON_DeleteItemFromObjectCaseSensitive(outer, "ports");
    cJSON_DeleteItemFromObjectCaseSensitive(inner, "ports");
    put_number(outer, "size", 2);
    put_number(inner, "size", 3);
    give(world, "pipeline", NULL, 1);
    const struct answer before = world_search(world);
    put_number(outer, "size", 3);
    put_number(inner, "size", 2);
    const struct answer after = world_search(world);
    costs_times(world, &before, 1, &after);
    return true;
}

static bool names_of_levels_change_nothing(struct world *world)
{
    const struct answer before = world_search(world);
    int at = 0;
    for (struct cJSON *level = levels_of(world)->child; level != NULL; level = level->next)
        cJSON_ReplaceItemInObjectCaseSensitive(level, "name",
                                               cJSON_CreateString(at++ == 0 ? "zz" : "aa"));
    const struct answer after = world_search(world);
    costs_times(world, &before, 1, &after);
    return true;
}

const struct relation relations_of_clusters[] = {
    RELATION(doubled_alpha_never_helps),
    RELATION(doubled_beta_never_helps),
    RELATION(a_slower_level_never_helps),
    RELATION(a_level_that_falls_behind_never_helps),
    RELATION(doubled_times_double_the_optimum),
    RELATION(faster_flops_never_hurt),
    RELATION(faster_memory_never_hurts),
    RELATION(longer_launches_never_help),
    RELATION(a_rate_matters_for_its_type_alone),
    RELATION(more_memory_never_hurts),
    RELATION(memory_that_is_not_needed_changes_nothing),
    RELATION(more_overlap_never_hurts),
    RELATION(no_overlap_never_helps),
    RELATION(a_level_of_size_1_changes_nothing),
    RELATION(levels_that_are_alike_may_swap),
    RELATION(names_of_levels_change_nothing),
    {.name = NULL},
};
