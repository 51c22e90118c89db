#include "planner/outer/node_queue.h"

#include <stdbool.h>
#include <string.h>

static bool comes_before(const struct sbp_queued *a, const struct sbp_queued *b)
{
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s;
    if (a->knowledge != b->knowledge)
        return a->knowledge > b->knowledge;
    return a->node < b->node;
}

static void swap(struct sbp_queued *a, struct sbp_queued *b)
{
    const struct sbp_queued kept = *a;
    *a = *b;
    *b = kept;
}

static enum sbp_status grow(struct sbp_queue *queue)
{
    const int room = 2 * queue->room + 64;
    struct sbp_queued *entry = SBP_NEW(queue->arena, struct sbp_queued, room);
    if (entry == NULL)
        return SBP_E_MEMORY;
    if (queue->count > 0)
        memcpy(entry, queue->entry, (size_t)queue->count * sizeof *entry);
    queue->entry = entry;
    queue->room = room;
    return SBP_OK;
}

enum sbp_status sbp_queue_push(struct sbp_queue *queue, struct sbp_queued entry)
{
    if (queue->count == queue->room)
        SBP_TRY(grow(queue));
    int at = queue->count++;
    struct sbp_queued *heap = queue->entry;
    heap[at] = entry;
    for (; at > 0 && comes_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
    return SBP_OK;
}

struct sbp_queued sbp_queue_pop(struct sbp_queue *queue)
{
    struct sbp_queued *heap = queue->entry;
    const struct sbp_queued first = heap[0];
    heap[0] = heap[--queue->count];
    for (int at = 0;;) {
        int child = 2 * at + 1;
        if (child + 1 < queue->count && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (child >= queue->count || !comes_before(&heap[child], &heap[at]))
            return first;
        swap(&heap[child], &heap[at]);
        at = child;
    }
}
