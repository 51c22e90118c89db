/* Counts of a cyclic schedule (tests/papers/cdp_count.h), for stages of one size. */
#ifndef SBP_TESTS_CDP_COUNTS_H
#define SBP_TESTS_CDP_COUNTS_H

#include "tests/papers/cdp_count.h"
#include "tests/support/unit.h"

static const struct sbp_cdp_sizes cdp_count_sizes = {
    .activation_bytes = 1000, .parameter_bytes = 70, .boundary_bytes = 3};

static inline struct sbp_cdp_count cdp_count_of(int n, enum sbp_placement placement, bool cyclic,
                                                enum sbp_cdp_rule rule)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_cdp_count count;
    if (sbp_cdp_count(n, placement, cyclic, rule, &cdp_count_sizes, &arena, &count, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&arena);
    return count;
}

#endif
