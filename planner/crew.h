/* Threads that share out independent work on a plan, each with a copy of the plan.
 *
 * A copy has shapes of its own, so that each may be set to another parallel
 * (sbp_plan_set_parallel); everything else that the plan owns is shared and only read. What the
 * turns leave must not depend on who took which: then it is the same for any number of threads.
 */
#ifndef SBP_PLANNER_CREW_H
#define SBP_PLANNER_CREW_H

#include "planner/plan/plan.h"

#define SBP_MOST_THREADS 64

struct sbp_crew {
    int count;
    struct sbp_plan **plan; /* (count) the plan itself, then copies, of whose arenas nothing may be
                               taken */
};

/* A crew of so many threads; 0: one for each processor (base/machine.h). Arrays come out
 * of the arena; plan and arena must outlive it. E_MEMORY. */
enum sbp_status sbp_crew_init(struct sbp_crew *crew, struct sbp_plan *plan, int threads,
                              struct sbp_arena *arena) SBP_MUST_USE;

/* Calls do_turn once for each turn, 0 .. turns - 1, begun in that order, several at once, each
 * with a plan that no other turn has meanwhile; returns when all are done. The caller is one of the
 * threads; those that cannot be had are done without. */
void sbp_crew_do(const struct sbp_crew *crew,
                 void (*do_turn)(void *context, int turn, struct sbp_plan *plan), void *context,
                 int turns);

#endif
