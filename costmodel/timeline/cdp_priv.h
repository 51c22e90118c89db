/* The versions of parameters that cyclic data parallelism reads (Fournier and Oyallon, Cyclic Data
 * Parallelism, section 3.2). Stages j = 1 .. n and micro-batches i = 1, 2, ... count from 1 as in
 * the paper, steps t from 0.
 */
#ifndef SBP_COSTMODEL_TIMELINE_CDP_PRIV_H
#define SBP_COSTMODEL_TIMELINE_CDP_PRIV_H

#include <stdbool.h>
#include <stdint.h>

/* v1: every micro-batch of step t reads the parameters theta_{t-1}. v2: micro-batch i reads theta_t
 * on the stages j >= N - i + 1, which are there in time, and theta_{t-1} on the others. */
enum sbp_cdp_rule { SBP_CDP_RULE_V1, SBP_CDP_RULE_V2 };

/* Whether micro-batch i reads theta_t (true) or theta_{t-1} on stage j of n. Holds as well for more
 * micro-batches than stages. */
static inline bool sbp_cdp_fresh(enum sbp_cdp_rule rule, int n, int i, int j)
{
    return rule == SBP_CDP_RULE_V2 && j >= n - i + 1;
}
/* Share of the (i, j) pairs of a step that are not fresh: 1 for v1, (n - 1)/(2 m) for v2. */
static inline double sbp_cdp_stale_share(enum sbp_cdp_rule rule, int n, int micro_batches)
{
    int64_t stale = 0;
    for (int i = 1; i <= micro_batches; i++)
        for (int j = 1; j <= n; j++)
            stale += !sbp_cdp_fresh(rule, n, i, j);
    return (double)stale / ((double)n * micro_batches);
}

#endif
