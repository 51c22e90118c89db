#include "executor/actor/actor_lane_priv.h"

#include <assert.h>
#include <sched.h>
#include <time.h>

/* How often a lane lets others run before it goes to sleep, which costs it and who wakes it more:
 * on two busy cores an act between two ranks with two slots takes 3.2 us of CPU, 8.7 without
 * (`./dev bench actors`). */
enum { YIELDS = 4 };

static void lock(pthread_mutex_t *mutex)
{
    const int error = pthread_mutex_lock(mutex);
    assert(error == 0);
    (void)error;
}

static void unlock(pthread_mutex_t *mutex)
{
    const int error = pthread_mutex_unlock(mutex);
    assert(error == 0);
    (void)error;
}

/* A read has at most a req and an ack of each slot under way. */
static int64_t room_of(const struct sbp_actor_running *running, enum sbp_actor_lane id)
{
    const struct sbp_actor_graph *graph = running->state.graph;
    int64_t room = 0;
    for (int r = 0; r < graph->reads; r++) {
        const struct sbp_actor_register *from = &graph->reg[graph->read[r].from];
        const struct sbp_actor *producer = &graph->actor[from->producer];
        const struct sbp_actor *consumer = &graph->actor[graph->read[r].consumer];
        if (producer->rank == running->state.rank)
            room += (int64_t)from->quota * ((producer->lane == id) + (consumer->lane == id));
    }
    return room;
}

enum sbp_status sbp_actor_lane_open(struct sbp_actor_running *running, enum sbp_actor_lane id)
{
    struct sbp_actor_lane_run *lane = &running->lane[id];
    struct sbp_actor_mailbox *mailbox = &lane->mailbox;
    const int64_t room = room_of(running, id);
    lane->running = running;
    lane->id = id;
    lane->taken = SBP_NEW(&running->arena, struct sbp_actor_message, room);
    mailbox->message = SBP_NEW(&running->arena, struct sbp_actor_message, room);
    mailbox->room = (int)room;
    if (room > INT32_MAX || lane->taken == NULL || mailbox->message == NULL)
        return SBP_E_MEMORY;
    if (pthread_mutex_init(&mailbox->lock, NULL) != 0)
        return SBP_E_MEMORY;
    pthread_condattr_t clock;
    bool made = pthread_condattr_init(&clock) == 0;
    made = made && pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(&mailbox->filled, &clock) == 0;
    (void)pthread_condattr_destroy(&clock);
    lane->used = made;
    if (!made)
        (void)pthread_mutex_destroy(&mailbox->lock);
    return made ? SBP_OK : SBP_E_MEMORY;
}

void sbp_actor_lane_close(struct sbp_actor_lane_run *lane)
{
    if (!lane->used)
        return;
    (void)pthread_cond_destroy(&lane->mailbox.filled);
    (void)pthread_mutex_destroy(&lane->mailbox.lock);
    lane->used = false;
}

/* Whoever stops the run sets its flag first and pokes all lanes then, so that a lane which has read
 * the flag before that is woken. */
bool sbp_actor_lane_take(struct sbp_actor_lane_run *lane)
{
    struct sbp_actor_mailbox *mailbox = &lane->mailbox;
    if (!atomic_load_explicit(&mailbox->poked, memory_order_acquire))
        return true;
    lock(&mailbox->lock);
    struct sbp_actor_message *const full = mailbox->message;
    const int count = mailbox->count;
    mailbox->message = lane->taken;
    mailbox->count = 0;
    atomic_store_explicit(&mailbox->poked, false, memory_order_relaxed);
    unlock(&mailbox->lock);
    lane->taken = full;
    for (int i = 0; i < count; i++)
        sbp_actor_deliver(&lane->running->state, full[i]);
    return !atomic_load(&lane->running->stopped);
}

static struct timespec time_in(int64_t ns)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    ns += at.tv_nsec;
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

void sbp_actor_lane_wait(struct sbp_actor_lane_run *lane, int64_t most_ns)
{
    struct sbp_actor_mailbox *mailbox = &lane->mailbox;
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&mailbox->poked, memory_order_relaxed))
            return;
        (void)sched_yield();
    }
    const struct timespec until = time_in(most_ns);
    lock(&mailbox->lock);
    mailbox->asleep = true;
    int error = 0;
    while (!atomic_load_explicit(&mailbox->poked, memory_order_relaxed) && error == 0)
        error = most_ns > 0 ? pthread_cond_timedwait(&mailbox->filled, &mailbox->lock, &until)
                            : pthread_cond_wait(&mailbox->filled, &mailbox->lock);
    mailbox->asleep = false;
    unlock(&mailbox->lock);
}

/* Under the lock, which it gives back. */
static void wake(struct sbp_actor_mailbox *mailbox)
{
    const bool asleep = mailbox->asleep;
    atomic_store_explicit(&mailbox->poked, true, memory_order_release);
    unlock(&mailbox->lock);
    if (asleep)
        (void)pthread_cond_signal(&mailbox->filled);
}

void sbp_actor_lane_poke(struct sbp_actor_lane_run *lane)
{
    lock(&lane->mailbox.lock);
    wake(&lane->mailbox);
}

void sbp_actor_lane_post(void *context, enum sbp_actor_lane to, struct sbp_actor_message message)
{
    struct sbp_actor_lane_run *from = context;
    if (from->id == to) {
        sbp_actor_deliver(&from->running->state, message);
        return;
    }
    struct sbp_actor_mailbox *mailbox = &from->running->lane[to].mailbox;
    lock(&mailbox->lock);
    assert(mailbox->count < mailbox->room);
    mailbox->message[mailbox->count++] = message;
    wake(mailbox);
}

void sbp_actor_lane_fail(struct sbp_actor_running *running, enum sbp_status status,
                         const struct sbp_diag *diag)
{
    lock(&running->lock);
    if (running->status == SBP_OK) {
        running->status = status;
        running->diag = *diag;
    }
    unlock(&running->lock);
    atomic_store(&running->stopped, true);
    for (int id = 0; id < SBP_LANES; id++)
        if (running->lane[id].used)
            sbp_actor_lane_poke(&running->lane[id]);
}
