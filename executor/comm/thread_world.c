#include "executor/comm/thread_world_priv.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/comm/comm_backend.h"

/* Shared by its members; belongs to the list of its first member's endpoint. */
struct sbp_thread_group {
    struct sbp_thread_group *next;
    int *ranks;                    /* (size), in group order */
    struct sbp_thread_call *calls; /* (size), valid from the first barrier to the second */
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

/* One rank. `comm` and what its main returned are the rank's own; the rest is under the world's
 * lock. */
struct endpoint {
    struct sbp_comm comm;
    enum sbp_status status;
    struct sbp_diag main_diag; /* what the rank's main reported */

    struct sbp_thread_group *groups; /* those whose first member this rank is */
    struct message *inbox, **inbox_end;
    pthread_cond_t delivered;
    const struct sbp_thread_group *waits_at; /* its barrier, for the report of a deadlock */
    bool waits_message, ended;
    int wanted_source, wanted_tag;
    void (*heard)(void *context); /* NULL: nobody listens */
    void *heard_context;
};

struct sbp_thread_world {
    pthread_mutex_t lock;
    int ranks;
    struct endpoint *endpoints;   /* (ranks) */
    struct sbp_thread_group *all; /* for barrier() */
    const struct sbp_comm_ops *ops;
    sbp_rank_main main;
    void *argument;

    int live;    /* ranks that have not ended */
    int blocked; /* of these, waiting for another one; decremented by who releases them */
    bool stopped, deadlock;
    int stopped_by;              /* rank, or -1 for the backend itself */
    enum sbp_status stop_status; /* OK while unknown: abort() was called, main has not returned */
    struct sbp_diag stop_diag;
};

static struct endpoint *endpoint_of(const struct sbp_comm *comm)
{
    return &comm->world->endpoints[comm->rank];
}

/* Locking fails on a broken invariant only: the mutex is a plain one and no rank locks twice. */
static void lock(struct sbp_thread_world *world)
{
    const int error = pthread_mutex_lock(&world->lock);
    assert(error == 0);
    (void)error;
}

static void unlock(struct sbp_thread_world *world)
{
    const int error = pthread_mutex_unlock(&world->lock);
    assert(error == 0);
    (void)error;
}

static void wait_for(struct sbp_thread_world *world, pthread_cond_t *condition)
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

/* Under the lock. */
static void tell_listener(const struct endpoint *endpoint)
{
    if (endpoint->heard != NULL)
        endpoint->heard(endpoint->heard_context);
}

/* Ends the run: the first reason counts, all waiting ranks look at the flag. Under the lock. */
static void stop(struct sbp_thread_world *world, int rank, enum sbp_status status,
                 const char *reason)
{
    if (world->stopped)
        return;
    world->stopped = true;
    world->stopped_by = rank;
    world->stop_status = status;
    (void)snprintf(world->stop_diag.text, sizeof world->stop_diag.text, "%s", reason);
    for (int r = 0; r < world->ranks; r++) {
        wake(&world->endpoints[r].delivered);
        tell_listener(&world->endpoints[r]);
        for (struct sbp_thread_group *group = world->endpoints[r].groups; group != NULL;
             group = group->next)
            wake(&group->passed);
    }
    wake(&world->all->passed);
}

/* The status that a call returns on a stopped run; group may be NULL. Under the lock. */
static enum sbp_status stopped_status(struct sbp_comm *comm, const struct sbp_thread_group *group)
{
    const struct sbp_thread_world *world = comm->world;
    const char *text = world->stop_diag.text;
    if (world->deadlock || (group != NULL && group->mismatch))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", text);
    if (world->stopped_by < 0)
        return sbp_fail(&comm->diag, SBP_E_PEER, "%s", text);
    return sbp_fail(&comm->diag, SBP_E_PEER, "rank %d: %.1000s", world->stopped_by, text);
}

static void add_ranks(struct sbp_text *text, const struct sbp_thread_group *group)
{
    for (int i = 0; i < group->size; i++)
        sbp_text_add(text, "%s%d", i == 0 ? "{" : ",", group->ranks[i]);
    sbp_text_add(text, "}");
}

static void stop_with_text(struct sbp_thread_world *world, struct sbp_text *text)
{
    const bool usable = text->bytes != NULL && !text->failed;
    stop(world, -1, SBP_E_BACKEND, usable ? text->bytes : "out of memory for the reason");
    sbp_text_free(text);
}

static void describe_wait(struct sbp_text *text, const struct endpoint *at)
{
    sbp_text_add(text, "; rank %d ", at->comm.rank);
    if (at->ended) {
        sbp_text_add(text, "has ended");
    } else if (at->waits_message) {
        sbp_text_add(text, "waits for rank %d, tag %d", at->wanted_source, at->wanted_tag);
    } else if (at->waits_at != NULL) {
        const struct sbp_thread_group *group = at->waits_at;
        enum sbp_thread_call_kind kind = SBP_THREAD_BARRIER;
        for (int i = 0; i < group->size; i++)
            kind = group->ranks[i] == at->comm.rank ? group->calls[i].kind : kind;
        sbp_text_add(text, "is in %s of ranks ", sbp_thread_call_name(kind));
        add_ranks(text, group);
    }
}

/* Called after a rank began to wait or ended. Under the lock. */
static void check_deadlock(struct sbp_thread_world *world)
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
static void pass_barrier(struct sbp_thread_world *world, struct sbp_thread_group *group)
{
    world->blocked -= group->arrived - 1;
    group->arrived = 0;
    group->phase++;
    wake(&group->passed);
}

/* Waits until the barrier that this rank arrived at is over; false when the run stopped first.
 * `unconditional`: a stop is no reason to go. Under the lock. */
static bool wait_barrier(struct sbp_comm *comm, struct sbp_thread_group *group, bool unconditional)
{
    struct sbp_thread_world *world = comm->world;
    const uint64_t phase = group->phase;
    world->blocked++;
    endpoint_of(comm)->waits_at = group;
    check_deadlock(world);
    while (group->phase == phase && (unconditional || !world->stopped))
        wait_for(world, &group->passed);
    endpoint_of(comm)->waits_at = NULL;
    return group->phase != phase;
}

/* Stops the run when the members' calls differ. Under the lock. */
static bool calls_agree(struct sbp_thread_world *world, struct sbp_thread_group *group)
{
    int other = 1;
    while (other < group->size && sbp_thread_call_matches(&group->calls[0], &group->calls[other]))
        other++;
    if (other >= group->size)
        return true;
    struct sbp_text text = {0};
    sbp_thread_call_describe(&text, group->ranks[0], &group->calls[0]);
    sbp_text_add(&text, ", ");
    sbp_thread_call_describe(&text, group->ranks[other], &group->calls[other]);
    sbp_text_add(&text, ": collectives of group ");
    add_ranks(&text, group);
    sbp_text_add(&text, " do not match");
    group->mismatch = true;
    stop_with_text(world, &text);
    return false;
}

/* First barrier: posts the call. After OK all members' calls are posted and agree, and they stay so
 * until `depart`. */
static enum sbp_status arrive(struct sbp_comm *comm, const struct sbp_thread_member *member,
                              const struct sbp_thread_call *call)
{
    struct sbp_thread_world *world = comm->world;
    struct sbp_thread_group *group = member->group;
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
static void depart(struct sbp_comm *comm, struct sbp_thread_group *group)
{
    lock(comm->world);
    if (++group->arrived < group->size)
        (void)wait_barrier(comm, group, true);
    else
        pass_barrier(comm->world, group);
    unlock(comm->world);
}

enum sbp_status sbp_thread_meet(struct sbp_comm *comm, const struct sbp_thread_member *member,
                                const struct sbp_thread_call *call)
{
    SBP_TRY(arrive(comm, member, call));
    sbp_thread_call_move(member->group->calls, member->size, member->index);
    depart(comm, member->group);
    return SBP_OK;
}

enum sbp_status sbp_thread_meet_all(struct sbp_comm *comm)
{
    const struct sbp_thread_member everybody = {comm->world->all, comm->ranks, comm->rank};
    return arrive(comm, &everybody, &(struct sbp_thread_call){.kind = SBP_THREAD_BARRIER});
}

/* Messages ---------------------------------------------------------------------------------- */

/* Appends to the receiver's inbox and releases it when this is what it waits for. */
static void deliver(struct sbp_thread_world *world, struct endpoint *receiver,
                    struct message *message)
{
    *receiver->inbox_end = message;
    receiver->inbox_end = &message->next;
    if (receiver->waits_message && receiver->wanted_source == message->source &&
        receiver->wanted_tag == message->tag) {
        receiver->waits_message = false;
        world->blocked--;
        wake(&receiver->delivered);
    }
    tell_listener(receiver);
}

enum sbp_status sbp_thread_post(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                int64_t bytes)
{
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

    struct sbp_thread_world *world = comm->world;
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
static struct message *take_message(struct endpoint *receiver, int source, int tag)
{
    for (struct message **at = &receiver->inbox; *at != NULL; at = &(*at)->next) {
        struct message *message = *at;
        if (message->source != source || message->tag != tag)
            continue;
        *at = message->next;
        if (receiver->inbox_end == &message->next)
            receiver->inbox_end = at;
        return message;
    }
    return NULL;
}

static struct message *wait_message(struct sbp_thread_world *world, struct endpoint *receiver,
                                    int source, int tag)
{
    receiver->wanted_source = source;
    receiver->wanted_tag = tag;
    receiver->waits_message = true;
    world->blocked++;
    check_deadlock(world);
    while (receiver->waits_message && !world->stopped)
        wait_for(world, &receiver->delivered);
    receiver->waits_message = false;
    return take_message(receiver, source, tag);
}

/* Takes the oldest message of (peer, tag), and waits for it if that is wanted. NULL: there is none,
 * or the run has stopped. Under the lock. */
static struct message *find_message(struct sbp_comm *comm, int peer, int tag, bool waits)
{
    struct sbp_thread_world *world = comm->world;
    struct endpoint *receiver = endpoint_of(comm);
    struct message *message = world->stopped ? NULL : take_message(receiver, peer, tag);
    if (message == NULL && waits && !world->stopped)
        message = wait_message(world, receiver, peer, tag);
    return message;
}

/* Stops the run when a message has not the bytes that are wanted. Under the lock. */
static enum sbp_status check_bytes(struct sbp_comm *comm, const struct message *message,
                                   int64_t bytes)
{
    if (message->bytes == bytes)
        return SBP_OK;
    const enum sbp_status status = sbp_fail(
        &comm->diag, SBP_E_BACKEND, "rank %d expects %lld bytes from rank %d, tag %d; it sent %lld",
        comm->rank, (long long)bytes, message->source, message->tag, (long long)message->bytes);
    stop(comm->world, -1, status, comm->diag.text);
    return status;
}

static enum sbp_status fetch(struct sbp_comm *comm, int peer, int tag, void *buffer, int64_t bytes,
                             bool waits, bool *arrived)
{
    struct sbp_thread_world *world = comm->world;
    enum sbp_status status = SBP_OK;
    lock(world);
    struct message *message = find_message(comm, peer, tag, waits);
    if (message != NULL)
        status = check_bytes(comm, message, bytes);
    else if (world->stopped)
        status = stopped_status(comm, NULL);
    unlock(world);
    *arrived = status == SBP_OK && message != NULL;
    if (*arrived && bytes > 0)
        memcpy(buffer, message->data, (size_t)bytes);
    free(message);
    return status;
}

enum sbp_status sbp_thread_fetch(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                 int64_t bytes)
{
    bool arrived;
    return fetch(comm, peer, tag, buffer, bytes, true, &arrived);
}

enum sbp_status sbp_thread_try_fetch(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                     int64_t bytes, bool *arrived)
{
    return fetch(comm, peer, tag, buffer, bytes, false, arrived);
}

void sbp_thread_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    lock(comm->world);
    endpoint_of(comm)->heard = heard;
    endpoint_of(comm)->heard_context = context;
    unlock(comm->world);
}

/* Groups ------------------------------------------------------------------------------------ */

static void group_free(struct sbp_thread_group *group)
{
    if (group == NULL)
        return;
    (void)pthread_cond_destroy(&group->passed);
    free(group->ranks);
    free(group->calls);
    free(group);
}

/* NULL when memory is out. */
static struct sbp_thread_group *group_new(const int *ranks, int size, int key)
{
    struct sbp_thread_group *group = calloc(1, sizeof *group);
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
static struct sbp_thread_group *find_group(struct sbp_thread_world *world, const int *ranks,
                                           int size, int key)
{
    struct sbp_thread_group **list = &world->endpoints[ranks[0]].groups;
    for (struct sbp_thread_group *group = *list; group != NULL; group = group->next)
        if (group->size == size && group->key == key &&
            memcmp(group->ranks, ranks, (size_t)size * sizeof *ranks) == 0)
            return group;
    struct sbp_thread_group *group = group_new(ranks, size, key);
    if (group != NULL) {
        group->next = *list;
        *list = group;
    }
    return group;
}

enum sbp_status sbp_thread_join(struct sbp_comm *comm, const int *ranks, int size, int index,
                                int key, int *handle)
{
    struct sbp_thread_world *world = comm->world;
    struct sbp_thread_member *members = sbp_comm_reserve_group(
        comm->members, sizeof *members, comm->members_count, &comm->members_capacity, &comm->diag);
    if (members == NULL)
        return SBP_E_MEMORY;
    comm->members = members;
    enum sbp_status status = SBP_OK;
    lock(world);
    struct sbp_thread_group *shared = find_group(world, ranks, size, key);
    if (world->stopped)
        status = stopped_status(comm, NULL);
    else if (shared == NULL)
        status = sbp_fail(&comm->diag, SBP_E_MEMORY, "group of %d ranks: out of memory", size);
    unlock(world);
    SBP_TRY(status);
    *handle = comm->members_count++;
    comm->members[*handle] = (struct sbp_thread_member){shared, size, index};
    return SBP_OK;
}

/* Run --------------------------------------------------------------------------------------- */

void sbp_thread_stop(struct sbp_comm *comm, const char *reason)
{
    lock(comm->world);
    stop(comm->world, comm->rank, SBP_OK, reason);
    unlock(comm->world);
}

/* The best text there is for a failure of a rank's main. */
static const char *failure_text(const struct endpoint *endpoint)
{
    if (endpoint->main_diag.text[0] != '\0')
        return endpoint->main_diag.text;
    if (endpoint->comm.diag.text[0] != '\0')
        return endpoint->comm.diag.text;
    return sbp_status_text(endpoint->status);
}

static void *rank_thread(void *argument)
{
    struct endpoint *own = argument;
    struct sbp_thread_world *world = own->comm.world;
    own->status = world->main(world->ops, &own->comm, world->argument, &own->main_diag);
    lock(world);
    own->ended = true;
    world->live--;
    if (own->status != SBP_OK)
        stop(world, own->comm.rank, own->status, failure_text(own));
    if (world->stopped_by == own->comm.rank && world->stop_status == SBP_OK)
        world->stop_status = own->status == SBP_OK ? SBP_E_BACKEND : own->status;
    check_deadlock(world);
    unlock(world);
    return NULL;
}

static void endpoint_free(struct endpoint *endpoint)
{
    while (endpoint->groups != NULL) {
        struct sbp_thread_group *group = endpoint->groups;
        endpoint->groups = group->next;
        group_free(group);
    }
    while (endpoint->inbox != NULL) {
        struct message *message = endpoint->inbox;
        endpoint->inbox = message->next;
        free(message);
    }
    free(endpoint->comm.members);
    (void)pthread_cond_destroy(&endpoint->delivered);
}

static void world_free(struct sbp_thread_world *world)
{
    for (int r = 0; r < world->ranks; r++)
        endpoint_free(&world->endpoints[r]);
    free(world->endpoints);
    group_free(world->all);
    (void)pthread_mutex_destroy(&world->lock);
}

static bool make_everybody(struct sbp_thread_world *world, int ranks)
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
static enum sbp_status world_init(struct sbp_thread_world *world, int ranks, struct sbp_diag *diag)
{
    if (pthread_mutex_init(&world->lock, NULL) != 0)
        return sbp_fail(diag, SBP_E_MEMORY, "threads: no lock");
    world->endpoints = calloc((size_t)ranks, sizeof *world->endpoints);
    bool made = world->endpoints != NULL && make_everybody(world, ranks);
    while (made && world->ranks < ranks) {
        struct endpoint *endpoint = &world->endpoints[world->ranks];
        endpoint->comm = (struct sbp_comm){.world = world, .rank = world->ranks, .ranks = ranks};
        endpoint->inbox_end = &endpoint->inbox;
        made = pthread_cond_init(&endpoint->delivered, NULL) == 0;
        world->ranks += made;
    }
    if (made)
        return SBP_OK;
    world_free(world);
    return sbp_fail(diag, SBP_E_MEMORY, "threads: out of memory for %d ranks", ranks);
}

/* Starts and joins the ranks; those that already run are released when a later one cannot start. */
static void run_ranks(struct sbp_thread_world *world, pthread_t *threads)
{
    int started = 0;
    int error = 0;
    while (started < world->ranks && error == 0) {
        error = pthread_create(&threads[started], NULL, rank_thread, &world->endpoints[started]);
        started += error == 0;
    }
    if (error != 0) {
        char text[128];
        (void)snprintf(text, sizeof text, "threads: cannot start rank %d of %d: %s", started,
                       world->ranks, strerror(error));
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

enum sbp_status sbp_thread_world_run(int ranks, const struct sbp_comm_ops *ops, sbp_rank_main main,
                                     void *argument, struct sbp_diag *diag)
{
    struct sbp_thread_world world = {
        .ops = ops, .main = main, .argument = argument, .live = ranks, .stopped_by = -1};
    SBP_TRY(world_init(&world, ranks, diag));
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
