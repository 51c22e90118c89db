/* Playing a schedule in a test. */
#ifndef SBP_TESTS_PLAYED_H
#define SBP_TESTS_PLAYED_H

#include "costmodel/timeline/timeline.h"
#include "tests/support/unit.h"

/* Cyclic data parallelism of stages whose costs and ends these are, recorded. */
static inline struct sbp_timeline_request cyclic_request(enum sbp_schedule schedule, int stages,
                                                         int micro_batches,
                                                         enum sbp_placement placement,
                                                         const struct sbp_stage_cost *cost,
                                                         const struct sbp_stage_end *end)
{
    return (struct sbp_timeline_request){.schedule = schedule,
                                         .stages = stages,
                                         .micro_batches = micro_batches,
                                         .placement = placement,
                                         .record = true,
                                         .stage = cost,
                                         .end = end};
}

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

/* Holds what is played to its order: the later is not before the earlier. */
#define after(later_s, earlier_s) after_at((later_s), (earlier_s), __LINE__)
static inline void after_at(double later_s, double earlier_s, int line)
{
    if (!(later_s >= earlier_s - 1e-9))
        fail_msg("line %d: %.17g is before %.17g", line, later_s, earlier_s);
}

#endif
