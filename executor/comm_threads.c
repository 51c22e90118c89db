/* The `threads` backend: ranks are threads of this process and read each other's buffers.
 *
 * A collective is a rendezvous in two barriers: every member posts its call, the last to arrive
 * compares the calls, everybody moves its share of the data, and nobody leaves before all have
 * moved. All waiting is on condition variables, since ranks usually outnumber cores. One lock
 * guards all bookkeeping (data moves outside it), which makes "every rank waits" an exact state: a
 * run that cannot go on ends with a reason instead of hanging.
 */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "executor/comm.h"

enum { MAX_RANKS = 1024, FOLD_BYTES = 8192 };

enum kind {
    BARRIER,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
};

static const char *const kind_names[] = {
    "barrier", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast",
};

/* What one member brings to a rendezvous. */
struct call {
    enum kind kind;
    enum sbp_real real;
    enum sbp_reduction reduction;
    int root;
    int64_t count;
    const void *send;
    void *receive;
};

/* Shared by its members; belongs to the list of its first member's endpoint. */
struct group {
    struct group *next;
    int *ranks;         /* (size), in group order */
    struct call *calls; /* (size), valid from the first barrier to the second */
    int size, key;
    int arrived;    /* at the barrier under way */
    uint64_t phase; /* barriers passed; tells a waiter that its own one is over */
    bool mismatch;  /* the calls of a rendezvous differed */
    pthread_cond_t passed;
};

struct message {
    struct message *next;
    int source, tag;
    int64_t bytes;
    unsigned char data[];
};

struct member {
    struct group *group;
    int index; /* of this rank in the group */
};

struct world;

/* One rank. `diag`, `members` and `status` are the rank's own; the rest is under the world's lock.
 */
struct sbp_comm {
    struct world *world;
    int rank;
    struct sbp_diag diag;
    struct member *members;
    int members_count, members_capacity;
    enum sbp_status status;
    struct sbp_diag main_diag; /* what the rank's main reported */

    struct group *groups; /* those whose first member this rank is */
    struct message *inbox, **inbox_end;
    pthread_cond_t delivered;
    const struct group *waits_at; /* barrier this rank waits at, for the report of a deadlock */
    bool waits_message, ended;
    int wanted_source, wanted_tag;
};

struct world {
    pthread_mutex_t lock;
    int ranks;
    struct sbp_comm *endpoints; /* (ranks) */
    struct group *all;          /* for barrier() */
    sbp_rank_main main;
    void *argument;

    int live;    /* ranks that have not ended */
    int blocked; /* of these, waiting for another one; decremented by who releases them */
    bool stopped, deadlock;
    int stopped_by;              /* rank, or -1 for the backend itself */
    enum sbp_status stop_status; /* OK while unknown: abort() was called, main has not returned */
    struct sbp_diag stop_diag;
};

/* Locking fails on a broken invariant only: the mutex is a plain one and no rank locks twice. */
static void lock(struct world *world)
{
    const int error = pthread_mutex_lock(&world->lock);
    assert(error == 0);
    (void)error;
}

static void unlock(struct world *world)
{
    const int error = pthread_mutex_unlock(&world->lock);
    assert(error == 0);
    (void)error;
}

static void wait_for(struct world *world, pthread_cond_t *condition)
{
    const int error = pthread_cond_wait(condition, &world->lock);
    assert(error == 0);
    (void)error;
}

static void wake(pthread_cond_t *condition)
{
    const int error = pthread_cond_broadcast(condition);
    assert(error == 0);
    (void)error;
}

/* Ends the run: the first reason counts, all waiting ranks look at the flag. Under the lock. */
static void stop(struct world *world, int rank, enum sbp_status status, const char *reason)
{
    if (world->stopped)
        return;
    world->stopped = true;
    world->stopped_by = rank;
    world->stop_status = status;
    (void)snprintf(world->stop_diag.text, sizeof world->stop_diag.text, "%s", reason);
    for (int r = 0; r < world->ranks; r++) {
        wake(&world->endpoints[r].delivered);
        for (struct group *group = world->endpoints[r].groups; group != NULL; group = group->next)
            wake(&group->passed);
    }
    wake(&world->all->passed);
}

/* What a call on a stopped run returns; group may be NULL. Under the lock. */
static enum sbp_status stopped_status(struct sbp_comm *comm, const struct group *group)
{
    const struct world *world = comm->world;
    const char *text = world->stop_diag.text;
    if (world->deadlock || (group != NULL && group->mismatch))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", text);
    if (world->stopped_by < 0)
        return sbp_fail(&comm->diag, SBP_E_PEER, "%s", text);
    return sbp_fail(&comm->diag, SBP_E_PEER, "rank %d: %.1000s", world->stopped_by, text);
}

static void add_ranks(struct sbp_text *text, const struct group *group)
{
    for (int i = 0; i < group->size; i++)
        sbp_text_add(text, "%s%d", i == 0 ? "{" : ",", group->ranks[i]);
    sbp_text_add(text, "}");
}

static void stop_with_text(struct world *world, struct sbp_text *text)
{
    const bool usable = text->bytes != NULL && !text->failed;
    stop(world, -1, SBP_E_BACKEND, usable ? text->bytes : "out of memory for the reason");
    sbp_text_free(text);
}

static void describe_wait(struct sbp_text *text, const struct sbp_comm *comm)
{
    sbp_text_add(text, "; rank %d ", comm->rank);
    if (comm->ended) {
        sbp_text_add(text, "has ended");
    } else if (comm->waits_message) {
        sbp_text_add(text, "waits for rank %d, tag %d", comm->wanted_source, comm->wanted_tag);
    } else if (comm->waits_at != NULL) {
        const struct group *group = comm->waits_at;
        enum kind kind = BARRIER;
        for (int i = 0; i < group->size; i++)
            kind = group->ranks[i] == comm->rank ? group->calls[i].kind : kind;
        sbp_text_add(text, "is in %s of ranks ", kind_names[kind]);
        add_ranks(text, group);
    }
}

/* Called after a rank began to wait or ended. Under the lock. */
static void check_deadlock(struct world *world)
{
    if (world->stopped || world->live == 0 || world->blocked < world->live)
        return;
    struct sbp_text text = {0};
    sbp_text_add(&text, "no rank can go on");
    for (int r = 0; r < world->ranks; r++)
        describe_wait(&text, &world->endpoints[r]);
    world->deadlock = true;
    stop_with_text(world, &text);
}

/* Barriers ---------------------------------------------------------------------------------- */

/* The last arrival at a barrier lets the others go. Under the lock. */
static void pass_barrier(struct world *world, struct group *group)
{
    world->blocked -= group->arrived - 1;
    group->arrived = 0;
    group->phase++;
    wake(&group->passed);
}

/* Waits until the barrier that this rank arrived at is over; false when the run stopped first.
 * `unconditional`: a stop is no reason to go. Under the lock. */
static bool wait_barrier(struct sbp_comm *comm, struct group *group, bool unconditional)
{
    struct world *world = comm->world;
    const uint64_t phase = group->phase;
    world->blocked++;
    comm->waits_at = group;
    check_deadlock(world);
    while (group->phase == phase && (unconditional || !world->stopped))
        wait_for(world, &group->passed);
    comm->waits_at = NULL;
    return group->phase != phase;
}

static bool same_call(const struct call *a, const struct call *b)
{
    return a->kind == b->kind && a->count == b->count && a->real == b->real &&
           a->reduction == b->reduction && a->root == b->root;
}

static void describe_call(struct sbp_text *text, int rank, const struct call *call)
{
    sbp_text_add(text, "rank %d calls %s of %lld %s", rank, kind_names[call->kind],
                 (long long)call->count, call->real == SBP_F32 ? "f32" : "f64");
    if (call->kind == ALL_REDUCE)
        sbp_text_add(text, " (%s)", call->reduction == SBP_SUM ? "sum" : "max");
    if (call->kind == BROADCAST)
        sbp_text_add(text, " (root %d)", call->root);
}

/* Stops the run when the members' calls differ. Under the lock. */
static bool calls_agree(struct world *world, struct group *group)
{
    int other = 1;
    while (other < group->size && same_call(&group->calls[0], &group->calls[other]))
        other++;
    if (other >= group->size)
        return true;
    struct sbp_text text = {0};
    describe_call(&text, group->ranks[0], &group->calls[0]);
    sbp_text_add(&text, ", ");
    describe_call(&text, group->ranks[other], &group->calls[other]);
    sbp_text_add(&text, ": collectives of group ");
    add_ranks(&text, group);
    sbp_text_add(&text, " do not match");
    group->mismatch = true;
    stop_with_text(world, &text);
    return false;
}

/* First barrier: posts the call. After OK all members' calls are posted and agree, and they stay so
 * until `depart`. */
static enum sbp_status arrive(struct sbp_comm *comm, const struct member *member,
                              const struct call *call)
{
    struct world *world = comm->world;
    struct group *group = member->group;
    bool passed = false;
    enum sbp_status status = SBP_OK;
    lock(world);
    if (!world->stopped) {
        group->calls[member->index] = *call;
        if (++group->arrived < group->size) {
            passed = wait_barrier(comm, group, false);
        } else if (calls_agree(world, group)) {
            pass_barrier(world, group);
            passed = true;
        }
    }
    if (!passed)
        status = stopped_status(comm, group);
    unlock(world);
    return status;
}

/* Second barrier: nobody's buffers are in use after it. It ends even when the run is stopped: all
 * members only copy between the two barriers, and one that left early could free what others still
 * read. */
static void depart(struct sbp_comm *comm, struct group *group)
{
    lock(comm->world);
    if (++group->arrived < group->size)
        (void)wait_barrier(comm, group, true);
    else
        pass_barrier(comm->world, group);
    unlock(comm->world);
}

/* Moving data ------------------------------------------------------------------------------- */

static int64_t real_bytes(enum sbp_real real)
{
    return real == SBP_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(double);
}

/* Elements of `call->send` from `block` on; a member's view of another one's buffer. */
static const void *block_of(const struct call *call, int64_t first_element)
{
    return (const unsigned char *)call->send + first_element * real_bytes(call->real);
}

static void *place_in(void *buffer, int64_t first_element, enum sbp_real real)
{
    return (unsigned char *)buffer + first_element * real_bytes(real);
}

static void copy(void *to, const void *from, int64_t count, enum sbp_real real)
{
    if (count > 0)
        memcpy(to, from, (size_t)(count * real_bytes(real)));
}

/* sum += x; max takes x when it is larger or not a number, so that a NaN survives. */
#define DEFINE_FOLD(name, type)                                                                    \
    static void name(type *restrict sum, const type *restrict x, int64_t count,                    \
                     enum sbp_reduction reduction)                                                 \
    {                                                                                              \
        if (reduction == SBP_SUM) {                                                                \
            for (int64_t i = 0; i < count; i++)                                                    \
                sum[i] += x[i];                                                                    \
        } else {                                                                                   \
            for (int64_t i = 0; i < count; i++)                                                    \
                sum[i] = x[i] > sum[i] || x[i] != x[i] ? x[i] : sum[i];                            \
        }                                                                                          \
    }
DEFINE_FOLD(fold_f32, float)
DEFINE_FOLD(fold_f64, double)

/* result(count) = the members' elements from `first` on, folded in group order: the same bits
 * whoever folds, and for all-reduce and reduce-scatter alike. */
static void fold_members(void *result, const struct group *group, int64_t first, int64_t count)
{
    const struct call *calls = group->calls;
    copy(result, block_of(&calls[0], first), count, calls[0].real);
    for (int m = 1; m < group->size; m++) {
        const void *block = block_of(&calls[m], first);
        if (calls[m].real == SBP_F32)
            fold_f32(result, block, count, calls[m].reduction);
        else
            fold_f64(result, block, count, calls[m].reduction);
    }
}

/* First element of slice `index` when count elements are cut into `size` slices. */
static int64_t slice_first(int64_t count, int size, int index)
{
    const int64_t rest = count % size;
    return count / size * index + (index < rest ? index : rest);
}

/* Each member folds its slice of all buffers and writes it into all: a slice is touched by one
 * member only, so no second buffer is needed. */
static void move_all_reduce(const struct group *group, int index, const struct call *own)
{
    double folded[FOLD_BYTES / sizeof(double)];
    const int64_t step = FOLD_BYTES / real_bytes(own->real);
    const int64_t end = slice_first(own->count, group->size, index + 1);
    for (int64_t first = slice_first(own->count, group->size, index); first < end; first += step) {
        const int64_t count = end - first < step ? end - first : step;
        fold_members(folded, group, first, count);
        for (int m = 0; m < group->size; m++)
            copy(place_in(group->calls[m].receive, first, own->real), folded, count, own->real);
    }
}

static void move_all_gather(const struct group *group, const struct call *own)
{
    for (int m = 0; m < group->size; m++)
        copy(place_in(own->receive, own->count * m, own->real), block_of(&group->calls[m], 0),
             own->count, own->real);
}

static void move_reduce_scatter(const struct group *group, int index, const struct call *own)
{
    const int64_t step = FOLD_BYTES / real_bytes(own->real); /* stays in cache over the members */
    for (int64_t first = 0; first < own->count; first += step) {
        const int64_t count = own->count - first < step ? own->count - first : step;
        fold_members(place_in(own->receive, first, own->real), group, own->count * index + first,
                     count);
    }
}

static void move_all_to_all(const struct group *group, int index, const struct call *own)
{
    for (int m = 0; m < group->size; m++)
        copy(place_in(own->receive, own->count * m, own->real),
             block_of(&group->calls[m], own->count * index), own->count, own->real);
}

static void move_broadcast(const struct group *group, int index, const struct call *own)
{
    if (index != own->root)
        copy(own->receive, block_of(&group->calls[own->root], 0), own->count, own->real);
}

static void move_data(const struct group *group, int index, const struct call *own)
{
    switch (own->kind) {
    case BARRIER:
        break;
    case ALL_REDUCE:
        move_all_reduce(group, index, own);
        break;
    case ALL_GATHER:
        move_all_gather(group, own);
        break;
    case REDUCE_SCATTER:
        move_reduce_scatter(group, index, own);
        break;
    case ALL_TO_ALL:
        move_all_to_all(group, index, own);
        break;
    case BROADCAST:
        move_broadcast(group, index, own);
        break;
    }
}

static enum sbp_status check_call(struct sbp_comm *comm, int group, const struct call *call)
{
    int64_t bytes;
    if (group < 0 || group >= comm->members_count)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no group %d", kind_names[call->kind],
                        group);
    const int size = comm->members[group].group->size;
    if (call->count < 0 || __builtin_mul_overflow(call->count, (int64_t)size * 8, &bytes))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: count %lld is out of range",
                        kind_names[call->kind], (long long)call->count);
    if (call->count > 0 && (call->send == NULL || call->receive == NULL))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no buffer", kind_names[call->kind]);
    if (call->root < 0 || call->root >= size)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no member %d", kind_names[call->kind],
                        call->root);
    return SBP_OK;
}

static enum sbp_status collective(struct sbp_comm *comm, int group, const struct call *call)
{
    SBP_TRY(check_call(comm, group, call));
    const struct member *member = &comm->members[group];
    SBP_TRY(arrive(comm, member, call));
    move_data(member->group, member->index, call);
    depart(comm, member->group);
    return SBP_OK;
}

static enum sbp_status threads_all_reduce(struct sbp_comm *comm, int group, void *buffer,
                                          int64_t count, enum sbp_real real,
                                          enum sbp_reduction reduction)
{
    return collective(comm, group,
                      &(struct call){.kind = ALL_REDUCE,
                                     .real = real,
                                     .reduction = reduction,
                                     .count = count,
                                     .send = buffer,
                                     .receive = buffer});
}

static enum sbp_status threads_all_gather(struct sbp_comm *comm, int group, void *receive,
                                          const void *send, int64_t count, enum sbp_real real)
{
    return collective(
        comm, group,
        &(struct call){
            .kind = ALL_GATHER, .real = real, .count = count, .send = send, .receive = receive});
}

static enum sbp_status threads_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                              const void *send, int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct call){.kind = REDUCE_SCATTER,
                                     .real = real,
                                     .reduction = SBP_SUM,
                                     .count = count,
                                     .send = send,
                                     .receive = receive});
}

static enum sbp_status threads_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                          const void *send, int64_t count, enum sbp_real real)
{
    return collective(
        comm, group,
        &(struct call){
            .kind = ALL_TO_ALL, .real = real, .count = count, .send = send, .receive = receive});
}

static enum sbp_status threads_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                         int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct call){.kind = BROADCAST,
                                     .real = real,
                                     .root = root,
                                     .count = count,
                                     .send = buffer,
                                     .receive = buffer});
}

static enum sbp_status threads_barrier(struct sbp_comm *comm)
{
    const struct member everybody = {comm->world->all, comm->rank};
    return arrive(comm, &everybody, &(struct call){.kind = BARRIER});
}

/* Point to point ---------------------------------------------------------------------------- */

static enum sbp_status check_message(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                     int64_t bytes)
{
    if (peer < 0 || peer >= comm->world->ranks)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "message: no rank %d", peer);
    if (tag < 0)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "message: tag %d is negative", tag);
    if (bytes < 0 || bytes > PTRDIFF_MAX / 2 || (bytes > 0 && buffer == NULL))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "message: no buffer of %lld bytes",
                        (long long)bytes);
    return SBP_OK;
}

/* Appends to the receiver's inbox and releases it when this is what it waits for. */
static void deliver(struct world *world, struct sbp_comm *receiver, struct message *message)
{
    *receiver->inbox_end = message;
    receiver->inbox_end = &message->next;
    if (receiver->waits_message && receiver->wanted_source == message->source &&
        receiver->wanted_tag == message->tag) {
        receiver->waits_message = false;
        world->blocked--;
        wake(&receiver->delivered);
    }
}

static enum sbp_status threads_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                    int64_t bytes)
{
    SBP_TRY(check_message(comm, peer, tag, buffer, bytes));
    struct message *message = malloc(sizeof *message + (size_t)bytes);
    if (message == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "message of %lld bytes: out of memory",
                        (long long)bytes);
    message->next = NULL;
    message->source = comm->rank;
    message->tag = tag;
    message->bytes = bytes;
    if (bytes > 0)
        memcpy(message->data, buffer, (size_t)bytes);

    struct world *world = comm->world;
    enum sbp_status status = SBP_OK;
    lock(world);
    if (world->stopped)
        status = stopped_status(comm, NULL);
    else
        deliver(world, &world->endpoints[peer], message);
    unlock(world);
    if (status != SBP_OK)
        free(message);
    return status;
}

/* Takes the oldest message of (source, tag) out of the inbox; NULL when there is none. */
static struct message *take_message(struct sbp_comm *comm, int source, int tag)
{
    for (struct message **at = &comm->inbox; *at != NULL; at = &(*at)->next) {
        struct message *message = *at;
        if (message->source != source || message->tag != tag)
            continue;
        *at = message->next;
        if (comm->inbox_end == &message->next)
            comm->inbox_end = at;
        return message;
    }
    return NULL;
}

static struct message *wait_message(struct sbp_comm *comm, int source, int tag)
{
    struct world *world = comm->world;
    comm->wanted_source = source;
    comm->wanted_tag = tag;
    comm->waits_message = true;
    world->blocked++;
    check_deadlock(world);
    while (comm->waits_message && !world->stopped)
        wait_for(world, &comm->delivered);
    comm->waits_message = false;
    return take_message(comm, source, tag);
}

static enum sbp_status threads_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                       int64_t bytes)
{
    SBP_TRY(check_message(comm, peer, tag, buffer, bytes));
    struct world *world = comm->world;
    enum sbp_status status = SBP_OK;
    lock(world);
    struct message *message = world->stopped ? NULL : take_message(comm, peer, tag);
    if (message == NULL && !world->stopped)
        message = wait_message(comm, peer, tag);
    if (message == NULL) {
        status = stopped_status(comm, NULL);
    } else if (message->bytes != bytes) {
        status = sbp_fail(&comm->diag, SBP_E_BACKEND,
                          "rank %d expects %lld bytes from rank %d, tag %d; it sent %lld",
                          comm->rank, (long long)bytes, peer, tag, (long long)message->bytes);
        stop(world, -1, status, comm->diag.text);
    }
    unlock(world);
    if (status == SBP_OK && bytes > 0)
        memcpy(buffer, message->data, (size_t)bytes);
    free(message);
    return status;
}

/* Groups ------------------------------------------------------------------------------------ */

static void group_free(struct group *group)
{
    if (group == NULL)
        return;
    (void)pthread_cond_destroy(&group->passed);
    free(group->ranks);
    free(group->calls);
    free(group);
}

/* NULL when memory is out. */
static struct group *group_new(const int *ranks, int size, int key)
{
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    if (pthread_cond_init(&group->passed, NULL) != 0) {
        free(group);
        return NULL;
    }
    group->size = size;
    group->key = key;
    group->ranks = calloc((size_t)size, sizeof *group->ranks);
    group->calls = calloc((size_t)size, sizeof *group->calls);
    if (group->ranks == NULL || group->calls == NULL) {
        group_free(group);
        return NULL;
    }
    memcpy(group->ranks, ranks, (size_t)size * sizeof *ranks);
    return group;
}

/* The group of these ranks and key, made by whoever comes first. Under the lock. */
static struct group *find_group(struct world *world, const int *ranks, int size, int key)
{
    struct group **list = &world->endpoints[ranks[0]].groups;
    for (struct group *group = *list; group != NULL; group = group->next)
        if (group->size == size && group->key == key &&
            memcmp(group->ranks, ranks, (size_t)size * sizeof *ranks) == 0)
            return group;
    struct group *group = group_new(ranks, size, key);
    if (group != NULL) {
        group->next = *list;
        *list = group;
    }
    return group;
}

/* This rank's place among `ranks`, each of which must be a rank and occur once; -1 otherwise. */
static int own_index(const struct sbp_comm *comm, const int *ranks, int count)
{
    bool seen[MAX_RANKS] = {false};
    int index = -1;
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->world->ranks || seen[ranks[i]])
            return -1;
        seen[ranks[i]] = true;
        if (ranks[i] == comm->rank)
            index = i;
    }
    return index;
}

static enum sbp_status reserve_member(struct sbp_comm *comm)
{
    if (comm->members_count < comm->members_capacity)
        return SBP_OK;
    if (comm->members_capacity > INT32_MAX / 2)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "too many groups");
    const int capacity = comm->members_capacity == 0 ? 16 : 2 * comm->members_capacity;
    struct member *members = realloc(comm->members, (size_t)capacity * sizeof *members);
    if (members == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "%d groups: out of memory", capacity);
    comm->members = members;
    comm->members_capacity = capacity;
    return SBP_OK;
}

/* Does not wait for the other members: the first collective does. */
static enum sbp_status threads_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                     int *group)
{
    struct world *world = comm->world;
    if (count < 1 || count > world->ranks)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "group of %d of %d ranks", count, world->ranks);
    const int index = own_index(comm, ranks, count);
    if (index < 0)
        return sbp_fail(&comm->diag, SBP_E_BACKEND,
                        "group: ranks must be different, under %d, and include rank %d",
                        world->ranks, comm->rank);
    SBP_TRY(reserve_member(comm));

    enum sbp_status status = SBP_OK;
    lock(world);
    struct group *shared = find_group(world, ranks, count, key);
    if (world->stopped)
        status = stopped_status(comm, NULL);
    else if (shared == NULL)
        status = sbp_fail(&comm->diag, SBP_E_MEMORY, "group of %d ranks: out of memory", count);
    unlock(world);
    SBP_TRY(status);
    *group = comm->members_count++;
    comm->members[*group] = (struct member){shared, index};
    return SBP_OK;
}

/* Endpoint and run -------------------------------------------------------------------------- */

static int threads_rank(const struct sbp_comm *comm)
{
    return comm->rank;
}

static int threads_size(const struct sbp_comm *comm)
{
    return comm->world->ranks;
}

static void threads_abort(struct sbp_comm *comm, const char *reason)
{
    (void)sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", reason);
    lock(comm->world);
    stop(comm->world, comm->rank, SBP_OK, reason);
    unlock(comm->world);
}

static const char *threads_reason(const struct sbp_comm *comm)
{
    return comm->diag.text;
}

static void threads_library(const struct sbp_comm *comm, char *text, int size)
{
    (void)comm;
    (void)size;
    text[0] = '\0';
}

static const struct sbp_comm_ops threads_ops = {
    .name = "threads",
    .rank = threads_rank,
    .size = threads_size,
    .group = threads_group,
    .all_reduce = threads_all_reduce,
    .all_gather = threads_all_gather,
    .reduce_scatter = threads_reduce_scatter,
    .all_to_all = threads_all_to_all,
    .broadcast = threads_broadcast,
    .send = threads_send,
    .receive = threads_receive,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .reason = threads_reason,
    .library = threads_library,
};

/* The best text there is for a failure of a rank's main. */
static const char *failure_text(const struct sbp_comm *comm)
{
    if (comm->main_diag.text[0] != '\0')
        return comm->main_diag.text;
    if (comm->diag.text[0] != '\0')
        return comm->diag.text;
    return sbp_status_text(comm->status);
}

static void *rank_thread(void *argument)
{
    struct sbp_comm *comm = argument;
    struct world *world = comm->world;
    comm->status = world->main(&threads_ops, comm, world->argument, &comm->main_diag);
    lock(world);
    comm->ended = true;
    world->live--;
    if (comm->status != SBP_OK)
        stop(world, comm->rank, comm->status, failure_text(comm));
    if (world->stopped_by == comm->rank && world->stop_status == SBP_OK)
        world->stop_status = comm->status == SBP_OK ? SBP_E_BACKEND : comm->status;
    check_deadlock(world);
    unlock(world);
    return NULL;
}

static void endpoint_free(struct sbp_comm *comm)
{
    while (comm->groups != NULL) {
        struct group *group = comm->groups;
        comm->groups = group->next;
        group_free(group);
    }
    while (comm->inbox != NULL) {
        struct message *message = comm->inbox;
        comm->inbox = message->next;
        free(message);
    }
    free(comm->members);
    (void)pthread_cond_destroy(&comm->delivered);
}

static void world_free(struct world *world)
{
    for (int r = 0; r < world->ranks; r++)
        endpoint_free(&world->endpoints[r]);
    free(world->endpoints);
    group_free(world->all);
    (void)pthread_mutex_destroy(&world->lock);
}

static bool make_everybody(struct world *world, int ranks)
{
    int *all = calloc((size_t)ranks, sizeof *all);
    if (all == NULL)
        return false;
    for (int r = 0; r < ranks; r++)
        all[r] = r;
    world->all = group_new(all, ranks, 0);
    free(all);
    return world->all != NULL;
}

/* On failure nothing is left behind. */
static enum sbp_status world_init(struct world *world, int ranks, sbp_rank_main rank_main,
                                  void *argument, struct sbp_diag *diag)
{
    *world = (struct world){.main = rank_main, .argument = argument, .live = ranks};
    world->stopped_by = -1;
    if (pthread_mutex_init(&world->lock, NULL) != 0)
        return sbp_fail(diag, SBP_E_MEMORY, "threads: no lock");
    world->endpoints = calloc((size_t)ranks, sizeof *world->endpoints);
    bool made = world->endpoints != NULL && make_everybody(world, ranks);
    while (made && world->ranks < ranks) {
        struct sbp_comm *comm = &world->endpoints[world->ranks];
        comm->world = world;
        comm->rank = world->ranks;
        comm->inbox_end = &comm->inbox;
        made = pthread_cond_init(&comm->delivered, NULL) == 0;
        world->ranks += made;
    }
    if (made)
        return SBP_OK;
    world_free(world);
    return sbp_fail(diag, SBP_E_MEMORY, "threads: out of memory for %d ranks", ranks);
}

/* Starts and joins the ranks; those that already run are released when a later one cannot start. */
static void run_ranks(struct world *world, pthread_t *threads)
{
    int started = 0;
    int error = 0;
    while (started < world->ranks && error == 0) {
        error = pthread_create(&threads[started], NULL, rank_thread, &world->endpoints[started]);
        started += error == 0;
    }
    if (error != 0) {
        char text[128];
        (void)snprintf(text, sizeof text, "threads: cannot start rank %d of %d (error %d)", started,
                       world->ranks, error);
        lock(world);
        stop(world, -1, SBP_E_BACKEND, text);
        unlock(world);
    }
    for (int r = 0; r < started; r++) {
        const int joined = pthread_join(threads[r], NULL);
        assert(joined == 0);
        (void)joined;
    }
}

enum sbp_status sbp_threads_run(int ranks, sbp_rank_main main, void *argument,
                                struct sbp_diag *diag)
{
    if (ranks < 1 || ranks > MAX_RANKS)
        return sbp_fail(diag, SBP_E_RANGE, "threads: %d ranks, legal are 1 to %d", ranks,
                        (int)MAX_RANKS);
    struct world world;
    SBP_TRY(world_init(&world, ranks, main, argument, diag));
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    enum sbp_status status = SBP_OK;
    if (threads == NULL) {
        status = sbp_fail(diag, SBP_E_MEMORY, "threads: out of memory for %d ranks", ranks);
    } else {
        run_ranks(&world, threads);
        if (world.stopped)
            status = sbp_fail(diag, world.stop_status, "%s", world.stop_diag.text);
    }
    free(threads);
    world_free(&world);
    return status;
}
