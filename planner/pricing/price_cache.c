#include "planner/pricing/price_cache.h"

#include <string.h>

#include "planner/limits.h"

/* Columns, and all that they depend on besides the entry and the variable. */
struct kept_columns {
    struct kept_columns *next;
    struct sbp_op_group group;
    enum sbp_owner owner;
    bool regather;
    struct sbp_columns columns;
};

struct sbp_cache_entry {
    struct sbp_cache_entry *next;
    int64_t pipeline, micro_batch;
    bool is_plain;
    int variable_count;                  /* 0: no domains yet */
    struct sbp_space_variable *variable; /* (variable_count) before choices are made */
    struct kept_columns **columns;       /* (variable_count) lists */
};

void sbp_price_cache_free(struct sbp_price_cache *cache)
{
    sbp_arena_free(&cache->arena);
    *cache = (struct sbp_price_cache){.arena.budget = cache->arena.budget};
}

void sbp_price_cache_trim(struct sbp_price_cache *cache)
{
    if (cache->arena.used_bytes > SBP_PRICING_CACHE_BYTES)
        sbp_price_cache_free(cache);
}

enum sbp_status sbp_cache_open(struct sbp_price_cache *cache, struct sbp_space *space)
{
    const struct sbp_parallel *parallel = space->parallel;
    struct sbp_cache_entry *entry = cache->first;
    while (entry != NULL &&
           (entry->pipeline != parallel->pipeline || entry->micro_batch != parallel->micro_batch))
        entry = entry->next;
    space->cache = cache;
    space->cache_entry = entry;
    if (entry != NULL)
        return SBP_OK;
    space->cache_entry = SBP_NEW(&cache->arena, struct sbp_cache_entry, 1);
    if (space->cache_entry == NULL)
        return SBP_E_MEMORY;
    *space->cache_entry = (struct sbp_cache_entry){
        .next = cache->first, .pipeline = parallel->pipeline, .micro_batch = parallel->micro_batch};
    cache->first = space->cache_entry;
    return SBP_OK;
}

/* ---- domains -------------------------------------------------------------------------------- */

bool sbp_cache_take_domains(struct sbp_space *space)
{
    const struct sbp_cache_entry *entry = space->cache_entry;
    if (entry == NULL || entry->variable_count == 0)
        return false;
    memcpy(space->variable, entry->variable,
           (size_t)entry->variable_count * sizeof *space->variable);
    space->is_plain = entry->is_plain;
    return true;
}

static enum sbp_status keep_tuples(const struct sbp_space *space, struct sbp_space_variable *v)
{
    struct sbp_arena *arena = &space->cache->arena;
    const size_t bytes = (size_t)v->tuple_count * (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    uint8_t *const count = SBP_TAKE(arena, uint8_t, bytes);
    uint8_t *const tag = SBP_TAKE(arena, uint8_t, v->tuple_count);
    if (count == NULL || tag == NULL)
        return SBP_E_MEMORY;
    memcpy(count, v->count, bytes);
    memcpy(tag, v->tag, (size_t)v->tuple_count);
    v->count = count;
    v->tag = tag;
    return SBP_OK;
}

enum sbp_status sbp_cache_keep_domains(const struct sbp_space *space)
{
    struct sbp_cache_entry *const entry = space->cache_entry;
    if (entry == NULL)
        return SBP_OK;
    entry->variable =
        SBP_TAKE(&space->cache->arena, struct sbp_space_variable, space->variable_count);
    entry->columns = SBP_NEW(&space->cache->arena, struct kept_columns *, space->variable_count);
    if (entry->variable == NULL || entry->columns == NULL)
        return SBP_E_MEMORY;
    memcpy(entry->variable, space->variable,
           (size_t)space->variable_count * sizeof *entry->variable);
    for (int v = 0; v < space->variable_count; v++)
        SBP_TRY(keep_tuples(space, &entry->variable[v]));
    entry->variable_count = space->variable_count;
    entry->is_plain = space->is_plain;
    return SBP_OK;
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Whether two groups cost the same in every tuple; their roles follow from operator and variable.
 */
static bool is_same(const struct kept_columns *kept, const struct sbp_space *space,
                    const struct sbp_op_group *group)
{
    return kept->owner == space->parallel->owner && kept->regather == space->parallel->regather &&
           kept->group.op == group->op && kept->group.boxed == group->boxed &&
           kept->group.boxed_output == group->boxed_output &&
           kept->group.keeps_block == group->keeps_block &&
           kept->group.keeps_copy == group->keeps_copy &&
           kept->group.keeps_half == group->keeps_half && kept->group.owned == group->owned &&
           kept->group.sharers == group->sharers &&
           kept->group.gradient_readers == group->gradient_readers &&
           kept->group.input_readers == group->input_readers &&
           memcmp(kept->group.holders, group->holders, sizeof group->holders) == 0;
}

enum sbp_status sbp_cache_columns(const struct sbp_space *space, int variable,
                                  const struct sbp_op_group *group, struct sbp_arena *arena,
                                  struct sbp_arithmetic_memo *memo, struct sbp_columns *columns)
{
    if (space->cache_entry == NULL)
        return sbp_pricing_make_columns(space, variable, group, arena, arena, memo, columns);
    struct kept_columns **const list = &space->cache_entry->columns[variable];
    for (const struct kept_columns *kept = *list; kept != NULL; kept = kept->next)
        if (is_same(kept, space, group)) {
            *columns = kept->columns;
            return SBP_OK;
        }
    struct sbp_arena *const cache = &space->cache->arena;
    struct kept_columns *const kept = SBP_NEW(cache, struct kept_columns, 1);
    if (kept == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_pricing_make_columns(space, variable, group, cache, arena, memo, columns));
    *kept = (struct kept_columns){.next = *list,
                                  .group = *group,
                                  .owner = space->parallel->owner,
                                  .regather = space->parallel->regather,
                                  .columns = *columns};
    *list = kept;
    return SBP_OK;
}
