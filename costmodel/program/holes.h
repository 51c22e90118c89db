/* Free stretches of memory that grows at its end: who asks gets the lowest one that is large
 * enough.
 *
 * The arena of a program and the frames of micro-batches are laid out with it, ahead of any run.
 */
#ifndef SBP_COSTMODEL_PROGRAM_HOLES_H
#define SBP_COSTMODEL_PROGRAM_HOLES_H

#include <stdint.h>

/* A stretch below the top. */
struct sbp_hole {
    int64_t offset, bytes;
};

struct sbp_holes {
    struct sbp_hole *hole; /* by offset; has room for one more than stretches that are taken */
    int count;
    int64_t top; /* end of the highest stretch that was ever taken */
};

/* The lowest hole of so many bytes, which it takes; -1: none is large enough. */
int64_t sbp_holes_find(struct sbp_holes *holes, int64_t bytes);
/* The same, or else the top, grown from a hole that touches it. */
int64_t sbp_holes_take(struct sbp_holes *holes, int64_t bytes);
/* Gives a stretch back; bytes > 0. */
void sbp_holes_give_back(struct sbp_holes *holes, int64_t offset, int64_t bytes);

#endif
