/* Domains and prices that the spaces of several cuts share.
 *
 * Cuts that differ in their schedule alone have stages of the same devices and micro-batches of the
 * same size, so that the same tuples are legal and cost the same, part by part; only the number of
 * times that each part counts differs. The cache keeps domains and columns in one entry for each
 * pipeline degree and micro-batch until it is emptied.
 *
 * One cache serves one plan and one request; spaces with limits on classes, a megatron mesh or a
 * subspace do without. Any number of spaces may read it at once, and all must be freed before it is
 * trimmed or freed.
 */
#ifndef SBP_PLANNER_PRICING_PRICE_CACHE_H
#define SBP_PLANNER_PRICING_PRICE_CACHE_H

#include "planner/pricing/pricing.h"

struct sbp_price_cache {
    struct sbp_arena arena;
    struct sbp_cache_entry *first;
};
/* Accepts an empty cache ({0}). */
void sbp_price_cache_free(struct sbp_price_cache *cache);
/* Empties a cache that has grown above SBP_PRICING_CACHE_BYTES. */
void sbp_price_cache_trim(struct sbp_price_cache *cache);

/* Finds or makes the entry of the space's cut, space->cache_entry. E_MEMORY. */
enum sbp_status sbp_cache_open(struct sbp_price_cache *cache, struct sbp_space *space) SBP_MUST_USE;

/* Takes all domains from the entry; false where it has none yet. */
bool sbp_cache_take_domains(struct sbp_space *space);
/* Copies all domains into the entry. E_MEMORY. */
enum sbp_status sbp_cache_keep_domains(const struct sbp_space *space) SBP_MUST_USE;

/* Columns of a variable's group, made or out of the space's entry; without an entry they come out
 * of the arena. E_MEMORY. */
enum sbp_status sbp_cache_columns(const struct sbp_space *space, int variable,
                                  const struct sbp_op_group *group, struct sbp_arena *arena,
                                  struct sbp_arithmetic_memo *memo,
                                  struct sbp_columns *columns) SBP_MUST_USE;

#endif
