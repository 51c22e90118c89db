/* The order in which a best-first search looks at candidates: the least bound first; among equal
 * bounds the one of which more is known, so that plans are found early; then the older one.
 */
#ifndef SBP_PLANNER_OUTER_NODE_QUEUE_H
#define SBP_PLANNER_OUTER_NODE_QUEUE_H

#include "base/arena.h"
#include "base/status.h"

struct sbp_queued {
    double bound_s;
    int knowledge; /* enum sbp_knowledge: more comes first */
    int node;      /* index of the candidate: smaller ones come first */
};

/* A binary heap; zeroed it is empty. */
struct sbp_queue {
    struct sbp_arena *arena; /* where it grows */
    int count, room;
    struct sbp_queued *entry; /* the first comes first, the rest in the order of a heap */
};

/* E_MEMORY. */
enum sbp_status sbp_queue_push(struct sbp_queue *queue, struct sbp_queued entry) SBP_MUST_USE;
/* Takes the first off a queue that is not empty. */
struct sbp_queued sbp_queue_pop(struct sbp_queue *queue);

#endif
