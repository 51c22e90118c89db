/* Kernels with one mistake each, and the same without, for the test of the host's faults. */
#ifndef SBP_TESTS_GPU_PLANTED_H
#define SBP_TESTS_GPU_PLANTED_H

#include <stdint.h>

enum planted {
    PLANTED_NOTHING, /* a sum over a block, as it should be */
    PLANTED_NO_BARRIER,
    PLANTED_WRITES, /* two threads write one place of shared memory */
    PLANTED_WRITE_AFTER_READ,
    PLANTED_NO_SYNCWARP, /* within a warp */
    PLANTED_SYNCWARP,    /* the same with its barrier: no mistake */
    PLANTED_BLOCKS,      /* two blocks write one place of global memory */
    PLANTED_DIVERGENT_BARRIER,
    PLANTED_DIVERGENT_SHUFFLE,
    PLANTED_TWO_BARRIERS, /* half of the threads at one, half at another */
    PLANTED_EARLY_END,
    PLANTED_SOME_LANES,
    PLANTED_BEYOND_SHARED,
    PLANTED_BEYOND_BUFFER,
    PLANTED_UNALIGNED,   /* 16 bytes are read at an odd place */
    PLANTED_UNSET,       /* shared memory is read that nobody wrote */
    PLANTED_NO_BLOCKS_X, /* a grid without blocks, of each side */
    PLANTED_NO_BLOCKS_Y,
    PLANTED_NO_BLOCKS_Z,
    PLANTED_ORDER, /* the blocks say when they run */
    PLANTED_COUNT
};

/* to, from: 128 floats. The lines that go wrong end in a comment with the name. */
void sbp_planted_run(enum planted what, float *to, const float *from);
/* Called by the blocks of PLANTED_ORDER. */
void sbp_planted_note(int block);

#endif
