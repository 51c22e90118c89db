#include "costmodel/program/holes.h"

#include <string.h>

int64_t sbp_holes_find(struct sbp_holes *holes, int64_t bytes)
{
    int i = 0;
    while (i < holes->count && holes->hole[i].bytes < bytes)
        i++;
    if (i == holes->count)
        return -1;
    struct sbp_hole *hole = &holes->hole[i];
    const int64_t offset = hole->offset;
    hole->offset += bytes;
    hole->bytes -= bytes;
    if (hole->bytes == 0) {
        memmove(hole, hole + 1, (size_t)(holes->count - i - 1) * sizeof *hole);
        holes->count--;
    }
    return offset;
}

int64_t sbp_holes_take(struct sbp_holes *holes, int64_t bytes)
{
    int64_t offset = sbp_holes_find(holes, bytes);
    if (offset >= 0)
        return offset;
    offset = holes->top;
    if (holes->count > 0) {
        const struct sbp_hole *last = &holes->hole[holes->count - 1];
        if (last->offset + last->bytes == holes->top) {
            offset = last->offset;
            holes->count--;
        }
    }
    holes->top = offset + bytes;
    return offset;
}

/* Joins a hole with the next one when they touch. */
static void merge_with_next(struct sbp_holes *holes, int at)
{
    if (at < 0 || at + 1 >= holes->count)
        return;
    struct sbp_hole *here = &holes->hole[at], *next = here + 1;
    if (here->offset + here->bytes != next->offset)
        return;
    here->bytes += next->bytes;
    memmove(next, next + 1, (size_t)(holes->count - at - 2) * sizeof *next);
    holes->count--;
}

void sbp_holes_give_back(struct sbp_holes *holes, int64_t offset, int64_t bytes)
{
    int at = 0;
    while (at < holes->count && holes->hole[at].offset < offset)
        at++;
    memmove(&holes->hole[at + 1], &holes->hole[at],
            (size_t)(holes->count - at) * sizeof *holes->hole);
    holes->hole[at] = (struct sbp_hole){offset, bytes};
    holes->count++;
    merge_with_next(holes, at);
    merge_with_next(holes, at - 1);
}
