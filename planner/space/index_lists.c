#include "planner/space/index_lists_priv.h"

enum sbp_status sbp_list_init(struct sbp_list *list, int keys, int items, struct sbp_arena *arena)
{
    list->first = SBP_TAKE(arena, int, keys + 1);
    list->last = SBP_TAKE(arena, int, keys + 1);
    list->next = SBP_TAKE(arena, int, items + 1);
    if (list->first == NULL || list->last == NULL || list->next == NULL)
        return SBP_E_MEMORY;
    for (int key = 0; key <= keys; key++)
        list->first[key] = list->last[key] = -1;
    return SBP_OK;
}

void sbp_list_add(struct sbp_list *list, int key, int item)
{
    list->next[item] = -1;
    if (list->first[key] < 0)
        list->first[key] = item;
    else
        list->next[list->last[key]] = item;
    list->last[key] = item;
}
