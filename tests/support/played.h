/* Playing a schedule in a test. */
#ifndef SBP_TESTS_PLAYED_H
#define SBP_TESTS_PLAYED_H

#include "costmodel/timeline/timeline.h"
#include "tests/support/unit.h"

/* The timeline of a request that must be legal; arrays are the arena's. */
static inline struct sbp_timeline simulate(const struct sbp_timeline_request *request,
                                           struct sbp_arena *arena)
{
    struct sbp_diag diag = {{0}};
    struct sbp_timeline timeline;
    if (sbp_timeline_simulate(request, arena, &timeline, &diag) != SBP_OK)
        fail_msg("a legal request was refused: %s", diag.text);
    return timeline;
}

/* Holds seconds of a play to those of a formula. */
#define near(got, want) near_at((got), (want), __LINE__)
static inline void near_at(double got, double want, int line)
{
    const double difference = got > want ? got - want : want - got;
    if (difference > 1e-9 * (1 + want))
        fail_msg("line %d: got %.17g, want %.17g", line, got, want);
}

#endif
