#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif

/* Under AddressSanitizer what was not handed out, or was released, is poisoned. */
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes)   ASAN_POISON_MEMORY_REGION(address, bytes)
#define UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define POISON(address, bytes)   ((void)(address), (void)(bytes))
#define UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 8 << 10, GROWTH_LIMIT_BYTES = 4 << 20 };

struct sbp_arena_block {
    struct sbp_arena_block *previous;
    size_t capacity_bytes, used_bytes;
    _Alignas(ALIGNMENT) unsigned char data[];
};

void sbp_arena_init(struct sbp_arena *arena)
{
    *arena = (struct sbp_arena){0};
}

/* ---- budgets -------------------------------------------------------------------------------- */

size_t sbp_arena_budget_left(const struct sbp_arena_budget *budget)
{
    return budget == NULL ? SIZE_MAX : budget->most_bytes - budget->held_bytes;
}

bool sbp_arena_budget_take(struct sbp_arena_budget *budget, size_t bytes)
{
    if (budget == NULL)
        return true;
    if (bytes > sbp_arena_budget_left(budget)) {
        budget->refused = true;
        return false;
    }
    budget->held_bytes += bytes;
    return true;
}

void sbp_arena_budget_return(struct sbp_arena_budget *budget, size_t bytes)
{
    if (budget != NULL)
        budget->held_bytes -= bytes;
}

/* ---- arenas --------------------------------------------------------------------------------- */

static void drop_head(struct sbp_arena *arena)
{
    struct sbp_arena_block *block = arena->head;
    arena->head = block->previous;
    sbp_arena_budget_return(arena->budget, sizeof *block + block->capacity_bytes);
    UNPOISON(block->data, block->capacity_bytes);
    free(block);
}

void sbp_arena_free(struct sbp_arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->head != NULL)
        drop_head(arena);
    arena->used_bytes = 0;
}

/* Blocks double up to a limit, so that n small allocations cost O(log n) calls of malloc. */
static bool add_block(struct sbp_arena *arena, size_t least_bytes)
{
    size_t capacity = FIRST_BLOCK_BYTES;
    if (arena->head != NULL && arena->head->capacity_bytes < GROWTH_LIMIT_BYTES)
        capacity = 2 * arena->head->capacity_bytes;
    else if (arena->head != NULL)
        capacity = GROWTH_LIMIT_BYTES;
    const size_t left = sbp_arena_budget_left(arena->budget);
    if (capacity < least_bytes || left < sizeof(struct sbp_arena_block) + capacity)
        capacity = least_bytes;
    if (capacity > SIZE_MAX - sizeof(struct sbp_arena_block))
        return false;
    if (!sbp_arena_budget_take(arena->budget, sizeof(struct sbp_arena_block) + capacity))
        return false;
    struct sbp_arena_block *block = malloc(sizeof *block + capacity);
    if (block == NULL) {
        sbp_arena_budget_return(arena->budget, sizeof *block + capacity);
        return false;
    }
    *block = (struct sbp_arena_block){.previous = arena->head, .capacity_bytes = capacity};
    POISON(block->data, capacity);
    arena->head = block;
    return true;
}

void *sbp_arena_take(struct sbp_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    /* Nothing still takes a slot: its address is then like no other's. */
    const size_t padding = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
    const size_t slot = bytes == 0 ? ALIGNMENT : bytes + padding;
    const struct sbp_arena_block *head = arena->head;
    if ((head == NULL || head->capacity_bytes - head->used_bytes < slot) && !add_block(arena, slot))
        return NULL;
    unsigned char *place = arena->head->data + arena->head->used_bytes;
    arena->head->used_bytes += slot;
    arena->used_bytes += slot;
    UNPOISON(place, bytes);
    return place;
}

void *sbp_arena_alloc(struct sbp_arena *arena, size_t count, size_t size)
{
    void *place = sbp_arena_take(arena, count, size);
    if (place != NULL)
        memset(place, 0, count * size);
    return place;
}

char *sbp_arena_strdup(struct sbp_arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = sbp_arena_alloc(arena, bytes, 1);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

struct sbp_arena_mark sbp_arena_mark(const struct sbp_arena *arena)
{
    return (struct sbp_arena_mark){
        .block = arena->head,
        .block_used_bytes = arena->head == NULL ? 0 : arena->head->used_bytes,
        .used_bytes = arena->used_bytes,
    };
}

void sbp_arena_release(struct sbp_arena *arena, struct sbp_arena_mark mark)
{
    while (arena->head != NULL && arena->head != mark.block)
        drop_head(arena);
    arena->used_bytes = mark.used_bytes;
    if (arena->head == NULL)
        return;
    POISON(arena->head->data + mark.block_used_bytes,
           arena->head->used_bytes - mark.block_used_bytes);
    arena->head->used_bytes = mark.block_used_bytes;
}
