/* What spaces share: candidates that differ in their schedule alone have stages of the same devices
 * and micro-batches of the same size, so that the same tuples are legal and cost the same, part by
 * part; only how often the parts count differs. A store keeps both, by pipeline degree and
 * micro-batch, until it is emptied.
 *
 * One store serves one plan and one request; spaces with limits on classes, a megatron mesh or a
 * part do without. Spaces read what the store holds: any number of them may be alive at once, and
 * all must be freed before the store is trimmed or freed.
 */
#ifndef SBP_PLANNER_PRICING_PRICE_CACHE_H
#define SBP_PLANNER_PRICING_PRICE_CACHE_H

#include "planner/pricing/pricing.h"

struct sbp_cache_shelf;

struct sbp_price_cache {
    struct sbp_arena arena;
    struct sbp_cache_shelf *first;
};
/* Accepts an empty store ({0}). */
void sbp_price_cache_free(struct sbp_price_cache *store);
/* Empties a store that has grown large (512 MiB). */
void sbp_price_cache_trim(struct sbp_price_cache *store);

/* Finds or makes the shelf of the space's candidate: space->shelf. E_MEMORY. */
enum sbp_status sbp_cache_open(struct sbp_price_cache *store, struct sbp_space *space) SBP_MUST_USE;

/* Takes all domains from the shelf; false where it has none yet. */
bool sbp_cache_take_domains(struct sbp_space *space);
/* Puts them there. E_MEMORY. */
enum sbp_status sbp_cache_keep_domains(const struct sbp_space *space) SBP_MUST_USE;

/* What a work of a variable costs in its tuples: made, or from the space's shelf. Without one, it
 * comes out of the arena. E_MEMORY. */
enum sbp_status sbp_cache_columns(const struct sbp_space *space, int variable,
                                  const struct sbp_op_group *work, struct sbp_arena *arena,
                                  struct sbp_columns *columns) SBP_MUST_USE;

#endif
