#include "planner/pricing/price_cache.h"

#include <string.h>

/* A store that holds more is emptied between candidates. */
static const size_t MOST_BYTES = (size_t)512 << 20;

/* Columns, and what they depend on beside shelf and variable. */
struct kept_columns {
    struct kept_columns *next;
    struct sbp_op_group work;
    enum sbp_owner owner;
    bool regather;
    struct sbp_columns columns;
};

struct sbp_cache_shelf {
    struct sbp_cache_shelf *next;
    int64_t pipeline, micro_batch;
    int variable_count;                  /* 0: no domains yet */
    struct sbp_space_variable *variable; /* (variable_count) before choices are made */
    struct kept_columns **columns;       /* (variable_count) lists */
};

void sbp_price_cache_free(struct sbp_price_cache *store)
{
    sbp_arena_free(&store->arena);
    *store = (struct sbp_price_cache){0};
}

void sbp_price_cache_trim(struct sbp_price_cache *store)
{
    if (store->arena.used_bytes > MOST_BYTES)
        sbp_price_cache_free(store);
}

enum sbp_status sbp_cache_open(struct sbp_price_cache *store, struct sbp_space *space)
{
    const struct sbp_parallel *parallel = space->parallel;
    struct sbp_cache_shelf *shelf = store->first;
    while (shelf != NULL &&
           (shelf->pipeline != parallel->pipeline || shelf->micro_batch != parallel->micro_batch))
        shelf = shelf->next;
    space->store = store;
    space->shelf = shelf;
    if (shelf != NULL)
        return SBP_OK;
    space->shelf = SBP_NEW(&store->arena, struct sbp_cache_shelf, 1);
    if (space->shelf == NULL)
        return SBP_E_MEMORY;
    *space->shelf = (struct sbp_cache_shelf){
        .next = store->first, .pipeline = parallel->pipeline, .micro_batch = parallel->micro_batch};
    store->first = space->shelf;
    return SBP_OK;
}

/* ---- domains -------------------------------------------------------------------------------- */

bool sbp_cache_take_domains(struct sbp_space *space)
{
    const struct sbp_cache_shelf *shelf = space->shelf;
    if (shelf == NULL || shelf->variable_count == 0)
        return false;
    memcpy(space->variable, shelf->variable,
           (size_t)shelf->variable_count * sizeof *space->variable);
    return true;
}

static enum sbp_status keep_tuples(const struct sbp_space *space, struct sbp_space_variable *v)
{
    struct sbp_arena *arena = &space->store->arena;
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
    struct sbp_cache_shelf *const shelf = space->shelf;
    if (shelf == NULL)
        return SBP_OK;
    shelf->variable =
        SBP_TAKE(&space->store->arena, struct sbp_space_variable, space->variable_count);
    shelf->columns = SBP_NEW(&space->store->arena, struct kept_columns *, space->variable_count);
    if (shelf->variable == NULL || shelf->columns == NULL)
        return SBP_E_MEMORY;
    memcpy(shelf->variable, space->variable,
           (size_t)space->variable_count * sizeof *shelf->variable);
    for (int v = 0; v < space->variable_count; v++)
        SBP_TRY(keep_tuples(space, &shelf->variable[v]));
    shelf->variable_count = space->variable_count;
    return SBP_OK;
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Whether two works cost the same in every tuple: roles follow from operator and variable. */
static bool is_same(const struct kept_columns *kept, const struct sbp_space *space,
                    const struct sbp_op_group *work)
{
    return kept->owner == space->parallel->owner && kept->regather == space->parallel->regather &&
           kept->work.op == work->op && kept->work.boxed == work->boxed &&
           kept->work.boxed_output == work->boxed_output &&
           kept->work.keeps_block == work->keeps_block &&
           kept->work.keeps_copy == work->keeps_copy && kept->work.keeps_half == work->keeps_half &&
           kept->work.owned == work->owned && kept->work.sharers == work->sharers &&
           memcmp(kept->work.holders, work->holders, sizeof work->holders) == 0;
}

enum sbp_status sbp_cache_columns(const struct sbp_space *space, int variable,
                                  const struct sbp_op_group *work, struct sbp_arena *arena,
                                  struct sbp_columns *columns)
{
    if (space->shelf == NULL)
        return sbp_pricing_make_columns(space, variable, work, arena, arena, columns);
    struct kept_columns **const list = &space->shelf->columns[variable];
    for (const struct kept_columns *kept = *list; kept != NULL; kept = kept->next)
        if (is_same(kept, space, work)) {
            *columns = kept->columns;
            return SBP_OK;
        }
    struct sbp_arena *const store = &space->store->arena;
    struct kept_columns *const kept = SBP_NEW(store, struct kept_columns, 1);
    if (kept == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_pricing_make_columns(space, variable, work, store, arena, columns));
    *kept = (struct kept_columns){.next = *list,
                                  .work = *work,
                                  .owner = space->parallel->owner,
                                  .regather = space->parallel->regather,
                                  .columns = *columns};
    *list = kept;
    return SBP_OK;
}
