/* Arenas: memory that lives and dies together (one configuration, one candidate, one plan).
 *
 * Blocks grow on demand; nothing is freed one by one. Not thread-safe: one arena, one thread.
 */
#ifndef SBP_BASE_ARENA_H
#define SBP_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that all arenas of one piece of work may hold together. Not for several threads at once. */
struct sbp_arena_budget {
    size_t most_bytes; /* of their blocks */
    size_t held_bytes;
    bool refused; /* an arena asked for more; the work may set it back */
};

struct sbp_arena {
    struct sbp_arena_block *head;    /* newest block; NULL when empty */
    size_t used_bytes;               /* handed out, alignment included */
    struct sbp_arena_budget *budget; /* that it takes from, which must outlive it; NULL: none */
};

/* A position to return to; everything allocated later is released together. */
struct sbp_arena_mark {
    struct sbp_arena_block *block;
    size_t block_used_bytes;
    size_t used_bytes;
};

/* A zeroed struct sbp_arena is empty and ready, without a budget; init does just that. */
void sbp_arena_init(struct sbp_arena *arena);
/* Frees what the arena holds and gives it back to its budget, which it keeps. Accepts NULL and an
 * empty arena. */
void sbp_arena_free(struct sbp_arena *arena);

/* count * size zeroed bytes, aligned to 16; NULL when the product overflows or memory or the
 * arena's budget is out.
 * A count of 0 gives a valid pointer to nothing. */
void *sbp_arena_alloc(struct sbp_arena *arena, size_t count, size_t size);
/* The same without zeroing: for much that is written before it is read. */
void *sbp_arena_take(struct sbp_arena *arena, size_t count, size_t size);
/* A copy of text in the arena; NULL when memory is out. */
char *sbp_arena_strdup(struct sbp_arena *arena, const char *text);

struct sbp_arena_mark sbp_arena_mark(const struct sbp_arena *arena);
void sbp_arena_release(struct sbp_arena *arena, struct sbp_arena_mark mark);

/* Takes bytes that no arena holds from a budget, and gives them back. False: they are more than is
 * left. NULL: there is no budget, and all may be taken. */
bool sbp_arena_budget_take(struct sbp_arena_budget *budget, size_t bytes);
void sbp_arena_budget_return(struct sbp_arena_budget *budget, size_t bytes);
/* Bytes that are left; SIZE_MAX without a budget. */
size_t sbp_arena_budget_left(const struct sbp_arena_budget *budget);

#define SBP_NEW(arena, type, count)                                                                \
    ((type *)sbp_arena_alloc((arena), (size_t)(count), sizeof(type)))
#define SBP_TAKE(arena, type, count)                                                               \
    ((type *)sbp_arena_take((arena), (size_t)(count), sizeof(type)))

#endif
