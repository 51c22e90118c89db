/* Reduces intervals of time to the fewest points at which usage must be checked.
 *
 * Only maximal live sets matter: usage grows at starts and shrinks at ends, so that one point after
 * each run of starts is enough. Points at which every choice fits are dropped; an unlimited
 * capacity leaves none. Where intervals of one variable overlap their usages are added up, so that
 * its spans share no point.
 */
#ifndef SBP_PLANNER_PROBLEM_LIVE_RANGES_H
#define SBP_PLANNER_PROBLEM_LIVE_RANGES_H

#include "planner/problem/problem.h"

/* An interval in points: first <= p < last. */
struct sbp_span {
    int first, last;
    const double *usage; /* (domain) */
};

struct sbp_live {
    int point_count;
    int *begin;            /* (variable_count + 1): v has spans begin[v] <= s < begin[v + 1] */
    struct sbp_span *span; /* of all variables */
};

/* Points are numbered in order of time. Arrays are allocated in the arena, usages borrowed from the
 * problem. E_MEMORY. */
enum sbp_status sbp_live_build(const struct sbp_problem *problem, struct sbp_arena *arena,
                               struct sbp_live *live) SBP_MUST_USE;

/* Adds (sign 1) or removes (-1) the usage of variable = value at every point. */
static inline void sbp_live_add(const struct sbp_live *live, int variable, int value, double sign,
                                double *usage)
{
    for (int s = live->begin[variable]; s < live->begin[variable + 1]; s++)
        for (int p = live->span[s].first; p < live->span[s].last; p++)
            usage[p] += sign * live->span[s].usage[value];
}

#endif
