/* The `mpi` backend: a rank is a process of MPI_COMM_WORLD, a group is a communicator.
 *
 * The collectives are the library's own, so that what is calibrated and run is what the machine's
 * MPI does. Its counts are ints: larger buffers go in pieces, strided blocks as resized types. All
 * communicators return errors instead of ending the process.
 */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "base/signals.h"
#include "base/status.h"
#include "executor/comm/comm.h"
#include "executor/comm/comm_backend.h"
#include "executor/comm/comm_mpi_priv.h"

/* Elements of one MPI call, all blocks together: 1 GiB of double, far from where ints of bytes
 * overflow inside a library. A test build sets it small. */
#ifndef SBP_MPI_PIECE
#define SBP_MPI_PIECE ((int64_t)1 << 27)
#endif

struct member {
    MPI_Comm comm;
    int size;
};

/* A message that was sent and may still be in flight; it owns its bytes, unless they are lent. */
struct sending {
    struct sending *next;
    MPI_Request request;
    atomic_bool *left; /* whom the last piece of a lent one tells; NULL */
    unsigned char data[];
};

struct sbp_comm {
    MPI_Comm world; /* a duplicate, so that nobody else's messages are taken for ours */
    int rank, size;
    int largest_tag;
    bool shared; /* several threads may call MPI at a time */
    struct member *members;
    int members_count, members_capacity;
    pthread_mutex_t sends;                      /* lock of what follows */
    struct sending *in_flight, **in_flight_end; /* oldest first */
    void *scratch;                              /* reduce-scatter's packed pieces */
    int64_t scratch_bytes;
    MPI_Op half[SBP_REALS][2]; /* of types of 16 bits, by sbp_comm_reduction */
    struct sbp_diag diag;
};

static MPI_Datatype type_of(enum sbp_real real)
{
    return real == SBP_F32 ? MPI_FLOAT : real == SBP_F64 ? MPI_DOUBLE : MPI_UINT16_T;
}

static MPI_Op op_of(const struct sbp_comm *comm, enum sbp_real real,
                    enum sbp_comm_reduction reduction)
{
    if (sbp_comm_real_bytes(real) == 2)
        return comm->half[real][reduction];
    return reduction == SBP_SUM ? MPI_SUM : MPI_MAX;
}

/* MPI knows no numbers of 16 bits: these are its reductions of them. A NaN survives. */
#define DEFINE_HALF_OP(name, real, value)                                                          \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type)                        \
    {                                                                                              \
        const uint16_t *from = in;                                                                 \
        uint16_t *to = inout;                                                                      \
        (void)type;                                                                                \
        for (int i = 0; i < *count; i++) {                                                         \
            const float a = sbp_comm_load_half(from[i], real),                                     \
                        b = sbp_comm_load_half(to[i], real);                                       \
            to[i] = sbp_comm_store_half((value), real);                                            \
        }                                                                                          \
    }
DEFINE_HALF_OP(sum_bf16, SBP_REAL_BF16, a + b)
DEFINE_HALF_OP(sum_fp16, SBP_REAL_FP16, a + b)
DEFINE_HALF_OP(max_bf16, SBP_REAL_BF16, a > b || a != a ? a : b)
DEFINE_HALF_OP(max_fp16, SBP_REAL_FP16, a > b || a != a ? a : b)

static enum sbp_status open_half_ops(struct sbp_comm *comm)
{
    static MPI_User_function *const functions[SBP_REALS][2] = {
        [SBP_REAL_BF16] = {[SBP_SUM] = sum_bf16, [SBP_MAX] = max_bf16},
        [SBP_REAL_FP16] = {[SBP_SUM] = sum_fp16, [SBP_MAX] = max_fp16}};
    for (int i = 0; i < 2 * SBP_REALS; i++) {
        MPI_Op *const op = &comm->half[i / 2][i % 2];
        *op = MPI_OP_NULL;
        if (functions[i / 2][i % 2] != NULL)
            SBP_MPI_TRY(&comm->diag, MPI_Op_create, functions[i / 2][i % 2], 1, op);
    }
    return SBP_OK;
}

static void close_half_ops(struct sbp_comm *comm)
{
    for (int i = 0; i < 2 * SBP_REALS; i++)
        if (comm->half[i / 2][i % 2] != MPI_OP_NULL)
            (void)MPI_Op_free(&comm->half[i / 2][i % 2]);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Collectives ------------------------------------------------------------------------------- */

/* Checks what MPI would not see (it gets ints) and gives the group. */
static enum sbp_status find_member(struct sbp_comm *comm, const char *call, int group,
                                   int64_t count, const void *buffer, const void *other,
                                   const struct member **member)
{
    if (group < 0 || group >= comm->members_count)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no group %d", call, group);
    *member = &comm->members[group];
    return sbp_comm_check_call(call, (*member)->size, count, buffer, other, &comm->diag);
}

/* Elements of one member's block that go in one call when all blocks of the group go with it. */
static int64_t piece_of(const struct member *member)
{
    return SBP_MPI_PIECE > member->size ? SBP_MPI_PIECE / member->size : 1;
}

static enum sbp_status mpi_all_reduce(struct sbp_comm *comm, int group, void *buffer, int64_t count,
                                      enum sbp_real real, enum sbp_comm_reduction reduction)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-reduce", group, count, buffer, buffer, &member));
    const MPI_Op op = op_of(comm, real, reduction);
    for (int64_t first = 0; first < count; first += SBP_MPI_PIECE)
        SBP_MPI_TRY(&comm->diag, MPI_Allreduce, MPI_IN_PLACE, sbp_comm_place(buffer, first, real),
                    (int)smaller(count - first, SBP_MPI_PIECE), type_of(real), op, member->comm);
    return SBP_OK;
}

static enum sbp_status check_root(struct sbp_comm *comm, const char *call,
                                  const struct member *member, int root)
{
    return root >= 0 && root < member->size
               ? SBP_OK
               : sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no member %d", call, root);
}

static enum sbp_status mpi_reduce(struct sbp_comm *comm, int group, int root, void *buffer,
                                  int64_t count, enum sbp_real real)
{
    const struct member *member;
    int own;
    SBP_TRY(find_member(comm, "reduce", group, count, buffer, buffer, &member));
    SBP_TRY(check_root(comm, "reduce", member, root));
    SBP_MPI_TRY(&comm->diag, MPI_Comm_rank, member->comm, &own);
    for (int64_t first = 0; first < count; first += SBP_MPI_PIECE) {
        void *const at = sbp_comm_place(buffer, first, real);
        SBP_MPI_TRY(&comm->diag, MPI_Reduce, own == root ? MPI_IN_PLACE : at,
                    own == root ? at : NULL, (int)smaller(count - first, SBP_MPI_PIECE),
                    type_of(real), op_of(comm, real, SBP_SUM), root, member->comm);
    }
    return SBP_OK;
}

static enum sbp_status mpi_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                     int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "broadcast", group, count, buffer, buffer, &member));
    SBP_TRY(check_root(comm, "broadcast", member, root));
    for (int64_t first = 0; first < count; first += SBP_MPI_PIECE)
        SBP_MPI_TRY(&comm->diag, MPI_Bcast, sbp_comm_place(buffer, first, real),
                    (int)smaller(count - first, SBP_MPI_PIECE), type_of(real), root, member->comm);
    return SBP_OK;
}

/* `piece` contiguous elements that repeat every `count`: a piece of each block. Freed by the
 * caller. */
static enum sbp_status strided_type(struct sbp_comm *comm, int64_t piece, int64_t count,
                                    enum sbp_real real, MPI_Datatype *type)
{
    MPI_Datatype row;
    SBP_MPI_TRY(&comm->diag, MPI_Type_contiguous, (int)piece, type_of(real), &row);
    enum sbp_status status = sbp_mpi_check(
        &comm->diag, "MPI_Type_create_resized",
        MPI_Type_create_resized(row, 0, (MPI_Aint)(count * sbp_comm_real_bytes(real)), type));
    const enum sbp_status freed = sbp_mpi_check(&comm->diag, "MPI_Type_free", MPI_Type_free(&row));
    SBP_TRY(status);
    status = freed == SBP_OK ? sbp_mpi_check(&comm->diag, "MPI_Type_commit", MPI_Type_commit(type))
                             : freed;
    if (status != SBP_OK)
        (void)MPI_Type_free(type);
    return status;
}

/* Whether a small buffer lies in a large one. */
static bool lies_in(const void *small, const void *large, int64_t elements, enum sbp_real real)
{
    const char *begin = large, *at = small;
    return at >= begin && at < begin + elements * sbp_comm_real_bytes(real);
}

/* One piece of every block: elements first .. first + piece of each of the group's blocks. */
static enum sbp_status gather_piece(struct sbp_comm *comm, const struct member *member,
                                    void *receive, const void *send, int64_t first, int64_t piece,
                                    int64_t count, enum sbp_real real)
{
    MPI_Datatype strided;
    SBP_TRY(strided_type(comm, piece, count, real, &strided));
    const void *from = send == MPI_IN_PLACE ? send : sbp_comm_place_const(send, first, real);
    const int code = MPI_Allgather(from, (int)piece, type_of(real),
                                   sbp_comm_place(receive, first, real), 1, strided, member->comm);
    const enum sbp_status status = sbp_mpi_check(&comm->diag, "MPI_Allgather", code);
    const enum sbp_status freed =
        sbp_mpi_check(&comm->diag, "MPI_Type_free", MPI_Type_free(&strided));
    return status != SBP_OK ? status : freed;
}

static enum sbp_status mpi_all_gather(struct sbp_comm *comm, int group, void *receive,
                                      const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-gather", group, count, receive, send, &member));
    const int64_t piece = piece_of(member);
    if (lies_in(send, receive, member->size * count, real))
        send = MPI_IN_PLACE;
    if (count <= piece) {
        SBP_MPI_TRY(&comm->diag, MPI_Allgather, send, (int)count, type_of(real), receive,
                    (int)count, type_of(real), member->comm);
        return SBP_OK;
    }
    for (int64_t first = 0; first < count; first += piece)
        SBP_TRY(gather_piece(comm, member, receive, send, first, smaller(count - first, piece),
                             count, real));
    return SBP_OK;
}

static enum sbp_status exchange_piece(struct sbp_comm *comm, const struct member *member,
                                      void *receive, const void *send, int64_t first, int64_t piece,
                                      int64_t count, enum sbp_real real)
{
    MPI_Datatype strided;
    SBP_TRY(strided_type(comm, piece, count, real, &strided));
    const int code = MPI_Alltoall(sbp_comm_place_const(send, first, real), 1, strided,
                                  sbp_comm_place(receive, first, real), 1, strided, member->comm);
    const enum sbp_status status = sbp_mpi_check(&comm->diag, "MPI_Alltoall", code);
    const enum sbp_status freed =
        sbp_mpi_check(&comm->diag, "MPI_Type_free", MPI_Type_free(&strided));
    return status != SBP_OK ? status : freed;
}

static enum sbp_status mpi_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                      const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-to-all", group, count, receive, send, &member));
    const int64_t piece = piece_of(member);
    if (count <= piece) {
        SBP_MPI_TRY(&comm->diag, MPI_Alltoall, send, (int)count, type_of(real), receive, (int)count,
                    type_of(real), member->comm);
        return SBP_OK;
    }
    for (int64_t first = 0; first < count; first += piece)
        SBP_TRY(exchange_piece(comm, member, receive, send, first, smaller(count - first, piece),
                               count, real));
    return SBP_OK;
}

static enum sbp_status reserve_scratch(struct sbp_comm *comm, int64_t bytes)
{
    if (bytes <= comm->scratch_bytes)
        return SBP_OK;
    void *scratch = realloc(comm->scratch, (size_t)bytes);
    if (scratch == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "reduce-scatter of %lld bytes: out of memory",
                        (long long)bytes);
    comm->scratch = scratch;
    comm->scratch_bytes = bytes;
    return SBP_OK;
}

/* Reductions take no derived types, so the blocks' pieces are packed side by side. */
static enum sbp_status reduce_piece(struct sbp_comm *comm, const struct member *member,
                                    void *receive, const void *send, int64_t first, int64_t piece,
                                    int64_t count, enum sbp_real real)
{
    SBP_TRY(reserve_scratch(comm, piece * member->size * sbp_comm_real_bytes(real)));
    for (int m = 0; m < member->size; m++)
        memcpy(sbp_comm_place(comm->scratch, piece * m, real),
               sbp_comm_place_const(send, count * m + first, real),
               (size_t)(piece * sbp_comm_real_bytes(real)));
    SBP_MPI_TRY(&comm->diag, MPI_Reduce_scatter_block, comm->scratch,
                sbp_comm_place(receive, first, real), (int)piece, type_of(real),
                op_of(comm, real, SBP_SUM), member->comm);
    return SBP_OK;
}

static enum sbp_status mpi_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                          const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "reduce-scatter", group, count, receive, send, &member));
    const int64_t piece = piece_of(member);
    /* A result that is to lie in what is sent needs the copy that pieces make: MPI_IN_PLACE puts it
     * at the front. */
    if (count <= piece && !lies_in(receive, send, member->size * count, real)) {
        SBP_MPI_TRY(&comm->diag, MPI_Reduce_scatter_block, send, receive, (int)count, type_of(real),
                    op_of(comm, real, SBP_SUM), member->comm);
        return SBP_OK;
    }
    for (int64_t first = 0; first < count; first += piece)
        SBP_TRY(reduce_piece(comm, member, receive, send, first, smaller(count - first, piece),
                             count, real));
    return SBP_OK;
}

static enum sbp_status mpi_barrier(struct sbp_comm *comm)
{
    SBP_MPI_TRY(&comm->diag, MPI_Barrier, comm->world);
    return SBP_OK;
}

/* Point to point ---------------------------------------------------------------------------- */

/* Frees the messages that have arrived, oldest first; with `all` it waits for every one. Under the
 * lock. */
static enum sbp_status finish_sends(struct sbp_comm *comm, bool all)
{
    while (comm->in_flight != NULL) {
        struct sending *sending = comm->in_flight;
        int done = 1;
        if (all)
            SBP_MPI_TRY(&comm->diag, MPI_Wait, &sending->request, MPI_STATUS_IGNORE);
        else
            SBP_MPI_TRY(&comm->diag, MPI_Test, &sending->request, &done, MPI_STATUS_IGNORE);
        if (!done)
            break;
        comm->in_flight = sending->next;
        if (comm->in_flight == NULL)
            comm->in_flight_end = &comm->in_flight;
        if (sending->left != NULL)
            atomic_store(sending->left, true);
        free(sending);
    }
    return SBP_OK;
}

/* The caller goes on whether or not the receiver is there, since two ranks may send to each other
 * before either receives: so a copy is sent, or what is lent. Under the lock. */
static enum sbp_status send_piece(struct sbp_comm *comm, int peer, int tag, const void *data,
                                  int bytes, bool copies, atomic_bool *left)
{
    struct sending *sending = malloc(sizeof *sending + (copies ? (size_t)bytes : 0));
    if (sending == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "message of %d bytes: out of memory", bytes);
    sending->next = NULL;
    sending->left = left;
    if (copies && bytes > 0)
        memcpy(sending->data, data, (size_t)bytes);
    const int code = MPI_Isend(copies ? sending->data : data, bytes, MPI_BYTE, peer, tag,
                               comm->world, &sending->request);
    if (code != MPI_SUCCESS) {
        free(sending);
        return sbp_mpi_check(&comm->diag, "MPI_Isend", code);
    }
    *comm->in_flight_end = sending;
    comm->in_flight_end = &sending->next;
    return SBP_OK;
}

/* A message is pieces up to and with the first short one (it may be empty), so that a receiver that
 * expects another length always notices. */
static enum sbp_status mpi_lend(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                int64_t bytes, atomic_bool *left)
{
    SBP_TRY(sbp_comm_check_message(comm->size, peer, tag, comm->largest_tag, buffer, bytes,
                                   &comm->diag));
    (void)pthread_mutex_lock(&comm->sends);
    enum sbp_status status = finish_sends(comm, false);
    int64_t piece = SBP_MPI_PIECE;
    for (int64_t first = 0; status == SBP_OK && piece == SBP_MPI_PIECE; first += piece) {
        piece = smaller(bytes - first, SBP_MPI_PIECE);
        status = send_piece(comm, peer, tag, bytes > 0 ? (const char *)buffer + first : buffer,
                            (int)piece, left == NULL, piece < SBP_MPI_PIECE ? left : NULL);
    }
    (void)pthread_mutex_unlock(&comm->sends);
    return status;
}

static enum sbp_status mpi_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                int64_t bytes)
{
    return mpi_lend(comm, peer, tag, buffer, bytes, NULL);
}

static bool mpi_takes_devices(const struct sbp_comm *comm)
{
    (void)comm;
    return sbp_mpi_takes_devices();
}

static enum sbp_status receive_piece(struct sbp_comm *comm, int peer, int tag, void *data,
                                     int bytes)
{
    MPI_Status arrived;
    int got = 0;
    SBP_MPI_TRY(&comm->diag, MPI_Recv, data, bytes, MPI_BYTE, peer, tag, comm->world, &arrived);
    SBP_MPI_TRY(&comm->diag, MPI_Get_count, &arrived, MPI_BYTE, &got);
    if (got != bytes)
        return sbp_fail(&comm->diag, SBP_E_BACKEND,
                        "rank %d expects %d bytes from rank %d, tag %d; it sent %d", comm->rank,
                        bytes, peer, tag, got);
    return SBP_OK;
}

static enum sbp_status mpi_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                   int64_t bytes)
{
    SBP_TRY(sbp_comm_check_message(comm->size, peer, tag, comm->largest_tag, buffer, bytes,
                                   &comm->diag));
    int64_t piece = SBP_MPI_PIECE;
    for (int64_t first = 0; piece == SBP_MPI_PIECE; first += piece) {
        piece = smaller(bytes - first, SBP_MPI_PIECE);
        SBP_TRY(receive_piece(comm, peer, tag, bytes > 0 ? (char *)buffer + first : buffer,
                              (int)piece));
    }
    (void)pthread_mutex_lock(&comm->sends);
    const enum sbp_status status = finish_sends(comm, false);
    (void)pthread_mutex_unlock(&comm->sends);
    return status;
}

static bool mpi_is_shared(const struct sbp_comm *comm)
{
    return comm->shared;
}

/* A message that has begun to come is received to its end. */
static enum sbp_status mpi_try_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                       int64_t bytes, bool *arrived)
{
    int there = 0;
    *arrived = false;
    SBP_TRY(sbp_comm_check_message(comm->size, peer, tag, comm->largest_tag, buffer, bytes,
                                   &comm->diag));
    SBP_MPI_TRY(&comm->diag, MPI_Iprobe, peer, tag, comm->world, &there, MPI_STATUS_IGNORE);
    if (!there)
        return SBP_OK;
    SBP_TRY(mpi_receive(comm, peer, tag, buffer, bytes));
    *arrived = true;
    return SBP_OK;
}

/* Long messages wait for the receiver's answer (rendezvous), which MPI sees when it is called. */
static enum sbp_status mpi_have_left(struct sbp_comm *comm, bool *all)
{
    (void)pthread_mutex_lock(&comm->sends);
    const enum sbp_status status = finish_sends(comm, false);
    *all = comm->in_flight == NULL;
    (void)pthread_mutex_unlock(&comm->sends);
    return status;
}

/* MPI calls nobody back. */
static bool mpi_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    (void)comm;
    (void)heard;
    (void)context;
    return false;
}

/* Groups ------------------------------------------------------------------------------------ */

/* Collective over the ranks of `set`, not over the world. */
static enum sbp_status make_member(struct sbp_comm *comm, MPI_Group everybody, const int *ranks,
                                   int count, int key, MPI_Comm *made)
{
    MPI_Group set;
    SBP_MPI_TRY(&comm->diag, MPI_Group_incl, everybody, count, ranks, &set);
    const enum sbp_status status = sbp_mpi_check(
        &comm->diag, "MPI_Comm_create_group", MPI_Comm_create_group(comm->world, set, key, made));
    const enum sbp_status freed =
        sbp_mpi_check(&comm->diag, "MPI_Group_free", MPI_Group_free(&set));
    SBP_TRY(status);
    SBP_TRY(freed);
    SBP_MPI_TRY(&comm->diag, MPI_Comm_set_errhandler, *made, MPI_ERRORS_RETURN);
    return SBP_OK;
}

static bool is_among(int rank, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

static enum sbp_status mpi_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                 int *group)
{
    if (count < 1 || count > comm->size || !is_among(comm->rank, ranks, count))
        return sbp_fail(&comm->diag, SBP_E_BACKEND,
                        "group: ranks must be different, under %d, and include rank %d", comm->size,
                        comm->rank);
    if (key < 0 || key > comm->largest_tag)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "group: key %d, legal are 0 to %d", key,
                        comm->largest_tag);
    struct member *members = sbp_comm_reserve_group(
        comm->members, sizeof *members, comm->members_count, &comm->members_capacity, &comm->diag);
    if (members == NULL)
        return SBP_E_MEMORY;
    comm->members = members;
    MPI_Group everybody;
    MPI_Comm made = MPI_COMM_NULL;
    SBP_MPI_TRY(&comm->diag, MPI_Comm_group, comm->world, &everybody);
    const enum sbp_status status = make_member(comm, everybody, ranks, count, key, &made);
    const enum sbp_status freed =
        sbp_mpi_check(&comm->diag, "MPI_Group_free", MPI_Group_free(&everybody));
    SBP_TRY(status);
    SBP_TRY(freed);
    *group = comm->members_count++;
    comm->members[*group] = (struct member){made, count};
    return SBP_OK;
}

/* Endpoint ---------------------------------------------------------------------------------- */

static int mpi_rank(const struct sbp_comm *comm)
{
    return comm->rank;
}

static int mpi_size(const struct sbp_comm *comm)
{
    return comm->size;
}

static void end_all(int rank, enum sbp_status status, const char *reason)
{
    (void)fprintf(stderr, "rank %d: %s\n", rank, reason);
    (void)fflush(stderr);
    sbp_signals_restore(); /* the launcher sends this rank one, too, and the reason is said */
    (void)MPI_Abort(MPI_COMM_WORLD, sbp_status_exit_code(status));
}

static void mpi_abort(struct sbp_comm *comm, const char *reason)
{
    (void)sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", reason);
    end_all(comm->rank, SBP_E_BACKEND, reason);
}

static const char *mpi_reason(const struct sbp_comm *comm)
{
    return comm->diag.text;
}

static void mpi_library(const struct sbp_comm *comm, char *text, int size)
{
    (void)comm;
    sbp_mpi_library(text, size);
}

static const struct sbp_comm_ops mpi_ops;

static struct sbp_endpoint mpi_host(struct sbp_comm *comm)
{
    return (struct sbp_endpoint){&mpi_ops, comm};
}

static const struct sbp_comm_ops mpi_ops = {
    .name = "mpi",
    .memory = &sbp_device_host_memory,
    .host = mpi_host,
    .rank = mpi_rank,
    .size = mpi_size,
    .group = mpi_group,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_to_all = mpi_all_to_all,
    .reduce = mpi_reduce,
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .receive = mpi_receive,
    .takes_devices = mpi_takes_devices,
    .lend = mpi_lend,
    .is_shared = mpi_is_shared,
    .try_receive = mpi_try_receive,
    .have_left = mpi_have_left,
    .listen = mpi_listen,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .reason = mpi_reason,
    .library = mpi_library,
};

/* A run ------------------------------------------------------------------------------------- */

static enum sbp_status comm_init(struct sbp_comm *comm, struct sbp_diag *diag)
{
    *comm = (struct sbp_comm){.world = MPI_COMM_NULL, .sends = PTHREAD_MUTEX_INITIALIZER};
    comm->in_flight_end = &comm->in_flight;
    /* Duplicates inherit it, and calls on groups raise their errors here. */
    SBP_MPI_TRY(diag, MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    SBP_MPI_TRY(diag, MPI_Comm_dup, MPI_COMM_WORLD, &comm->world);
    SBP_MPI_TRY(diag, MPI_Comm_rank, comm->world, &comm->rank);
    SBP_MPI_TRY(diag, MPI_Comm_size, comm->world, &comm->size);
    int *tag = NULL;
    int found = 0;
    int provided = MPI_THREAD_SINGLE;
    SBP_MPI_TRY(diag, MPI_Query_thread, &provided);
    comm->shared = provided == MPI_THREAD_MULTIPLE;
    SBP_MPI_TRY(diag, MPI_Comm_get_attr, comm->world, MPI_TAG_UB, &tag, &found);
    comm->largest_tag = found ? *tag : 32767; /* the least that the standard allows */
    return open_half_ops(comm);
}

/* Collective; waits until everything sent has left. Frees what it can on failure, too. */
static enum sbp_status comm_free(struct sbp_comm *comm)
{
    enum sbp_status status = finish_sends(comm, true);
    for (int m = 0; m < comm->members_count; m++) {
        const int code = MPI_Comm_free(&comm->members[m].comm);
        status = status != SBP_OK ? status : sbp_mpi_check(&comm->diag, "MPI_Comm_free", code);
    }
    close_half_ops(comm);
    const int code = MPI_Comm_free(&comm->world);
    status = status != SBP_OK ? status : sbp_mpi_check(&comm->diag, "MPI_Comm_free", code);
    free(comm->members);
    free(comm->scratch);
    return status;
}

/* The best text there is for a failure. */
static const char *failure_text(const struct sbp_comm *comm, const struct sbp_diag *diag,
                                enum sbp_status status)
{
    if (diag->text[0] != '\0')
        return diag->text;
    return comm->diag.text[0] != '\0' ? comm->diag.text : sbp_status_text(status);
}

/* An MPI library that does not know the launcher takes every process for a job of its own. */
static enum sbp_status check_launcher(const struct sbp_comm *comm, struct sbp_diag *diag)
{
    const int64_t processes = sbp_launcher_size();
    return comm->size > 1 || processes <= 1 ? SBP_OK : sbp_mpi_refuse_launcher(processes, diag);
}

/* Runs main and ends all ranks when it fails; comes back from that only if MPI_Abort does. */
static enum sbp_status run_rank(sbp_rank_main rank_main, void *argument, struct sbp_diag *diag)
{
    struct sbp_comm comm;
    struct sbp_diag own = {0};
    enum sbp_status status = comm_init(&comm, &own);
    if (status == SBP_OK && check_launcher(&comm, diag) != SBP_OK) {
        (void)comm_free(&comm);
        return SBP_E_USAGE; /* all see it: none has to end the others */
    }
    if (status == SBP_OK)
        status = rank_main(&mpi_ops, &comm, argument, &own);
    if (status == SBP_OK)
        status = comm_free(&comm);
    if (status == SBP_OK)
        return SBP_OK;
    const char *text = failure_text(&comm, &own, status);
    end_all(comm.rank, status, text);
    return sbp_fail(diag, status, "%s", text);
}

enum sbp_status sbp_mpi_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    bool started;
    enum sbp_status status = sbp_mpi_start(&started, diag);
    if (status == SBP_OK)
        status = run_rank(main, argument, diag);
    if (started && status != SBP_OK)
        (void)MPI_Finalize();
    else if (started)
        status = sbp_mpi_check(diag, "MPI_Finalize", MPI_Finalize());
    return status;
}
