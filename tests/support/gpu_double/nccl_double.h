/* What the stand-in's communicators (nccl_team_double.c) and their work (nccl_double.c) share. */
#ifndef SBP_TESTS_DOUBLES_NCCL_DOUBLE_H
#define SBP_TESTS_DOUBLES_NCCL_DOUBLE_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/support/gpu_double/gpu_double.h"

enum { MOST_MEMBERS = 16, PIECE_BYTES = 32 << 10, BOX_BYTES = 4 << 10 };

/* The call that a member is about to do; members must agree. */
struct call {
    int kind, type, reduction, root;
    uint64_t count;
};

/* A piece on its way from one member to another. */
struct box {
    atomic_int full;
    uint64_t total; /* of the whole message */
    uint64_t bytes;
    unsigned char data[BOX_BYTES];
};

/* Members who wait for each other. */
struct meeting {
    atomic_int arrived, generation;
};

struct segment {
    atomic_int joined, ready;
    struct meeting work, split;
    atomic_int device[MOST_MEMBERS];            /* and 1; 0: not there yet */
    int color[MOST_MEMBERS], key[MOST_MEMBERS]; /* of the split under way */
    struct call call[MOST_MEMBERS];
    unsigned char piece[MOST_MEMBERS][PIECE_BYTES];
    struct box box[MOST_MEMBERS][MOST_MEMBERS]; /* from, to */
};

/* Its caller's thread holds it, work that was enqueued, and what makes it: the last one frees it.
 */
struct ncclComm {
    struct segment *segment; /* NULL: it was not joined */
    char name[128];          /* of the segment */
    int rank, size, splits;
    int device, bus; /* device: of this process; bus: of the machine */
    bool blocks;
    struct ncclComm *parent; /* while it is split off it is aborted with this one; NULL: none */
    atomic_int state;        /* ncclResult_t of making it, or of its last split */
    atomic_int error;        /* ncclResult_t that work came to */
    atomic_int pending;      /* work that was enqueued */
    atomic_int making;       /* what makes it, or splits it */
    atomic_int holders;
    atomic_bool aborted;
};

/* Keeps the text that ncclGetLastError tells, and returns the code. */
ncclResult_t double_refuse(ncclResult_t code, const char *what);
/* Sleeps for a moment. */
void double_nap(void);
bool double_is_aborted(struct ncclComm *comm);
/* Somebody more holds a communicator, or one less. */
void double_hold(struct ncclComm *comm);
void double_drop(struct ncclComm *comm);
/* What NCCL tells of a stall that the environment asks for: an error, or that nothing has happened;
 * ncclSuccess: none. */
ncclResult_t double_stall_of(const char *call);
/* All members come to the meeting; or one's communicator is aborted. */
void double_meet(struct ncclComm *comm, struct meeting *meeting);

#endif
