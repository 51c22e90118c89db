#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/metamorphic/relations.h"

/* ---- spellings ------------------------------------------------------------------------------ */

/* The new name of a layer's old one. */
static void rename_text(struct cJSON *text, const struct cJSON *old_names)
{
    int place = 0;
    char name[16];
    for (const struct cJSON *old = old_names->child; old != NULL; old = old->next, place++) {
        if (strcmp(old->valuestring, text->valuestring) != 0)
            continue;
        (void)snprintf(name, sizeof name, "%c%d", 'z' - place, place);
        (void)cJSON_SetValuestring(text, name);
        return;
    }
}

static bool names_of_layers_change_nothing(struct world *world)
{
    struct cJSON *layers = cJSON_GetObjectItemCaseSensitive(world->model, "layers");
    if (!cJSON_IsArray(layers))
        return false;
    const struct answer before = world_search(world);
    struct cJSON *old_names = cJSON_CreateArray();
    for (const struct cJSON *layer = layers->child; layer != NULL; layer = layer->next)
        if (cJSON_HasObjectItem(layer, "name"))
            cJSON_AddItemToArray(old_names,
                                 cJSON_Duplicate(cJSON_GetObjectItem(layer, "name"), true));
    for (struct cJSON *layer = layers->child; layer != NULL; layer = layer->next) {
        static const char *const keys[] = {"name", "tied"};
        for (int i = 0; i < 2; i++)
            if (cJSON_HasObjectItem(layer, keys[i]))
                rename_text(cJSON_GetObjectItem(layer, keys[i]), old_names);
        const struct cJSON *inputs = cJSON_GetObjectItem(layer, "inputs");
        for (struct cJSON *input = inputs == NULL ? NULL : inputs->child; input != NULL;
             input = input->next)
            rename_text(input, old_names);
    }
    cJSON_Delete(old_names);
    const struct answer after = world_search(world);
    costs_times(world, &before, 1, &after);
    return true;
}

static void reverse_keys(struct cJSON *tree)
{
    const bool is_object = cJSON_IsObject(tree);
    struct cJSON *members = is_object ? cJSON_CreateObject() : NULL;
    for (struct cJSON *child = tree->child; child != NULL; child = child->next)
        reverse_keys(child);
    while (is_object && tree->child != NULL) {
        struct cJSON *last = cJSON_DetachItemViaPointer(tree, tree->child->prev);
        cJSON_AddItemToArray(members, last); /* it keeps its key */
    }
    while (is_object && members->child != NULL)
        cJSON_AddItemToArray(tree, cJSON_DetachItemViaPointer(members, members->child));
    cJSON_Delete(members);
}

static bool the_order_of_keys_changes_nothing(struct world *world)
{
    const struct answer before = world_search(world);
    reverse_keys(world->model);
    reverse_keys(world->cluster);
    const struct answer after = world_search(world);
    same_plan(world, &before, &after);
    return true;
}

/* The same number in other digits: 7e-6, 0.000007, 7000e-9. */
static bool the_spelling_of_numbers_changes_nothing(struct world *world)
{
    static const char *const spellings[] = {"%de-6", "0.00000%d", "%d000e-9", "%d.0E-06"};
    struct answer answer[4];
    const int digit = 1 + world_pick(world, 9);
    for (int i = 0; i < 4; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, spellings[i], digit);
        struct cJSON *number = cJSON_Parse(text);
        cJSON_ReplaceItemInObjectCaseSensitive(levels_of(world)->child, "alpha_s", number);
        answer[i] = world_search(world);
        same_plan(world, &answer[0], &answer[i]);
    }
    return true;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Sizes that every split of the devices divides: else a larger one may leave more choice. */
static bool longer_is_never_cheaper(struct world *world, const char *key)
{
    const double even = (double)devices_of(world) * (1 + world_pick(world, 2));
    if (world->kind == SMALL_LANGUAGE) /* which has no more positions */
        return false;
    put_number(world->model, key, even);
    const struct answer before = world_search(world);
    put_number(world->model, key, 2 * even);
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

static bool longer_sequences_are_never_cheaper(struct world *world)
{
    return longer_is_never_cheaper(world, "sequence");
}

static bool larger_batches_are_never_cheaper(struct world *world)
{
    return longer_is_never_cheaper(world, "global_batch");
}

/* The batch grows, and its micro-batches keep their size. */
static bool more_micro_batches_are_never_cheaper(struct world *world)
{
    const double even = (double)devices_of(world);
    put_number(world->model, "global_batch", even);
    give(world, "micro_batch", NULL, even);
    const struct answer before = world_search(world);
    put_number(world->model, "global_batch", 2 * even);
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

/* In one stage, since stages have to have blocks. */
static bool more_layers_are_never_cheaper(struct world *world)
{
    if (world->kind != SMALL_GPT)
        return false;
    give(world, "pipeline", NULL, 1);
    const struct answer before = world_search(world);
    put_number(world->model, "layers", 1 + number_of(world->model, "layers", 1));
    const struct answer after = world_search(world);
    never_more(world, &before, &after);
    return true;
}

const struct relation relations_of_models[] = {
    RELATION(names_of_layers_change_nothing),
    RELATION(the_order_of_keys_changes_nothing),
    RELATION(the_spelling_of_numbers_changes_nothing),
    RELATION(longer_sequences_are_never_cheaper),
    RELATION(larger_batches_are_never_cheaper),
    RELATION(more_micro_batches_are_never_cheaper),
    RELATION(more_layers_are_never_cheaper),
    {.name = NULL},
};
