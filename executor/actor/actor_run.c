#include "executor/actor/actor_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "executor/actor/actor_lane_priv.h"

/* ---- one lane ------------------------------------------------------------------------------ */

/* The actor that the lane takes next; -1: it has to wait. */
static int next_actor(const struct sbp_actor_lane_run *lane)
{
    const struct sbp_actor_state *state = &lane->running->state;
    const struct sbp_actor_order *order = sbp_actor_order(state->graph, state->rank, lane->id);
    if (order->actor == NULL)
        return sbp_actor_last_ready(state, lane->id);
    const int head = lane->at < order->count ? order->actor[lane->at] : -1;
    return head >= 0 && sbp_actor_is_ready(state, head) ? head : -1;
}

static void end_act(struct sbp_actor_lane_run *lane, int actor)
{
    sbp_actor_end(&lane->running->state, actor, sbp_actor_lane_post, lane);
    lane->at++;
}

static enum sbp_status act(struct sbp_actor_lane_run *lane, int actor, struct sbp_diag *diag)
{
    const struct sbp_actor_job *job = lane->running->job;
    struct sbp_act act;
    sbp_actor_begin(&lane->running->state, actor, &act);
    SBP_TRY(job->action(job->context, &act, diag));
    end_act(lane, actor);
    return SBP_OK;
}

static bool is_home(const struct sbp_actor_lane_run *lane)
{
    return sbp_actor_is_home(&lane->running->state, lane->id);
}

static enum sbp_status play(struct sbp_actor_lane_run *lane, struct sbp_diag *diag)
{
    while (!is_home(lane)) {
        if (!sbp_actor_lane_take(lane))
            return SBP_OK;
        const int actor = next_actor(lane);
        if (actor >= 0)
            SBP_TRY(act(lane, actor, diag));
        else if (!is_home(lane))
            sbp_actor_lane_wait(lane, 0);
    }
    return SBP_OK;
}

static void *lane_thread(void *argument)
{
    struct sbp_actor_lane_run *lane = argument;
    struct sbp_diag diag = {{0}};
    const enum sbp_status status =
        lane->id == SBP_LANE_NETWORK ? sbp_actor_network_play(lane, &diag) : play(lane, &diag);
    if (status != SBP_OK)
        sbp_actor_lane_fail(lane->running, status, &diag);
    return NULL;
}

/* ---- all lanes ----------------------------------------------------------------------------- */

/* Lanes on which nothing happens, neither acts nor what others fetch, have no thread. */
static enum sbp_status open_lanes(struct sbp_actor_running *running)
{
    for (int id = 0; id < SBP_LANES; id++)
        if (!sbp_actor_is_home(&running->state, (enum sbp_actor_lane)id))
            SBP_TRY(sbp_actor_lane_open(running, (enum sbp_actor_lane)id));
    return SBP_OK;
}

/* The first lane from `first` on that has something to do; SBP_LANES: none has. */
static int first_lane(const struct sbp_actor_running *running, int first)
{
    while (first < SBP_LANES && !running->lane[first].used)
        first++;
    return first;
}

static enum sbp_status open_running(struct sbp_actor_running *running,
                                    const struct sbp_actor_job *job, struct sbp_diag *diag)
{
    const struct sbp_endpoint *endpoint = &job->endpoint;
    const int rank = endpoint->ops == NULL ? 0 : endpoint->ops->rank(endpoint->comm);
    *running = (struct sbp_actor_running){.job = job, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (!job->graph->checked)
        return sbp_fail(diag, SBP_E_INTERNAL, "actors: they run after they are checked");
    enum sbp_status status =
        sbp_actor_open(&running->state, job->graph, rank, job->memory, job->room, &running->arena);
    if (status == SBP_OK)
        status = open_lanes(running);
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "out of memory for the actors of rank %d", rank);
}

/* Starts a thread for each lane from `first` on; where one cannot start, all end. */
static void start_lanes(struct sbp_actor_running *running, int first)
{
    for (int id = first_lane(running, first); id < SBP_LANES; id = first_lane(running, id + 1)) {
        struct sbp_actor_lane_run *lane = &running->lane[id];
        struct sbp_diag diag = {{0}};
        const int error = pthread_create(&running->thread[id], NULL, lane_thread, lane);
        running->started[id] = error == 0;
        if (error != 0)
            sbp_actor_lane_fail(running,
                                sbp_fail(&diag, SBP_E_BACKEND, "actors: no thread for lane %s: %s",
                                         sbp_actor_lane_name(lane->id), strerror(error)),
                                &diag);
    }
}

static void join_lanes(struct sbp_actor_running *running)
{
    for (int id = 0; id < SBP_LANES; id++)
        if (running->started[id]) {
            const int joined = pthread_join(running->thread[id], NULL);
            assert(joined == 0);
            (void)joined;
        }
}

/* After the lanes have ended. */
static enum sbp_status outcome_of(const struct sbp_actor_running *running, struct sbp_diag *diag)
{
    if (running->status != SBP_OK)
        return sbp_fail(diag, running->status, "%s", running->diag.text);
    sbp_actor_assert_home(&running->state);
    return SBP_OK;
}

static void close_running(struct sbp_actor_running *running)
{
    for (int id = 0; id < SBP_LANES; id++)
        sbp_actor_lane_close(&running->lane[id]);
    sbp_actor_close(&running->state);
    sbp_arena_free(&running->arena);
}

enum sbp_status sbp_actor_run(const struct sbp_actor_job *job, struct sbp_diag *diag)
{
    struct sbp_actor_running running;
    enum sbp_status status = open_running(&running, job, diag);
    if (status == SBP_OK) {
        const int own = first_lane(&running, 0);
        start_lanes(&running, own + 1);
        if (own < SBP_LANES)
            (void)lane_thread(&running.lane[own]);
        join_lanes(&running);
        status = outcome_of(&running, diag);
    }
    close_running(&running);
    return status;
}

/* ---- a caller that goes through its acts by itself ----------------------------------------- */

enum sbp_status sbp_actor_start(const struct sbp_actor_job *job, struct sbp_actor_running **running,
                                struct sbp_diag *diag)
{
    *running = malloc(sizeof **running);
    if (*running == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for actors");
    const enum sbp_status status = open_running(*running, job, diag);
    if (status == SBP_OK) {
        start_lanes(*running, SBP_LANE_COMPUTE + 1);
        return SBP_OK;
    }
    close_running(*running);
    free(*running);
    *running = NULL;
    return status;
}

/* sbp_actor_finish has the reason. */
static enum sbp_status outcome_so_far(struct sbp_actor_running *running)
{
    return atomic_load(&running->stopped) ? SBP_E_PEER : SBP_OK;
}

/* Whether an actor may act next; without an order, whether it has acts left. */
static bool is_next(const struct sbp_actor_lane_run *lane, int actor)
{
    const struct sbp_actor_state *state = &lane->running->state;
    const struct sbp_actor_order *order = sbp_actor_order(state->graph, state->rank, lane->id);
    return order->actor == NULL ? sbp_actor_has_acts(state, actor)
                                : lane->at < order->count && order->actor[lane->at] == actor;
}

static enum sbp_status check_next(const struct sbp_actor_lane_run *lane, int actor,
                                  struct sbp_diag *diag)
{
    return is_next(lane, actor) ? SBP_OK
                                : sbp_fail(diag, SBP_E_INTERNAL, "actors: %s does not come next",
                                           lane->running->state.graph->actor[actor].name);
}

enum sbp_status sbp_actor_await(struct sbp_actor_running *running, int *actor,
                                struct sbp_diag *diag)
{
    struct sbp_actor_lane_run *lane = &running->lane[SBP_LANE_COMPUTE];
    if (running->state.lane[SBP_LANE_COMPUTE].left == 0)
        return sbp_fail(diag, SBP_E_INTERNAL, "actors: all acts are over");
    while (sbp_actor_lane_take(lane) && (*actor = next_actor(lane)) < 0)
        sbp_actor_lane_wait(lane, 0);
    return outcome_so_far(running);
}

enum sbp_status sbp_actor_enter(struct sbp_actor_running *running, int actor, struct sbp_act *act,
                                struct sbp_diag *diag)
{
    struct sbp_actor_lane_run *lane = &running->lane[SBP_LANE_COMPUTE];
    SBP_TRY(check_next(lane, actor, diag));
    while (sbp_actor_lane_take(lane) && !sbp_actor_is_ready(&running->state, actor))
        sbp_actor_lane_wait(lane, 0);
    SBP_TRY(outcome_so_far(running));
    sbp_actor_begin(&running->state, actor, act);
    return SBP_OK;
}

void sbp_actor_leave(struct sbp_actor_running *running, int actor)
{
    end_act(&running->lane[SBP_LANE_COMPUTE], actor);
}

/* Others would wait for an act that the caller has left out. */
static enum sbp_status check_all_done(const struct sbp_actor_running *running,
                                      struct sbp_diag *diag)
{
    const struct sbp_actor_lane_run *lane = &running->lane[SBP_LANE_COMPUTE];
    const struct sbp_actor_lane_state *compute = &running->state.lane[SBP_LANE_COMPUTE];
    for (int i = 0; i < compute->actors && compute->left > 0; i++)
        if (is_next(lane, compute->actor[i]))
            return sbp_fail(diag, SBP_E_INTERNAL, "actors: %s is left out",
                            running->state.graph->actor[compute->actor[i]].name);
    return SBP_OK;
}

enum sbp_status sbp_actor_finish(struct sbp_actor_running *running, enum sbp_status status,
                                 struct sbp_diag *diag)
{
    if (running == NULL)
        return SBP_OK;
    struct sbp_actor_lane_run *lane = &running->lane[SBP_LANE_COMPUTE];
    if (status == SBP_OK)
        status = check_all_done(running, diag);
    if (status != SBP_OK)
        sbp_actor_lane_fail(running, status, diag);
    while (lane->used && !is_home(lane) && sbp_actor_lane_take(lane) && !is_home(lane))
        sbp_actor_lane_wait(lane, 0);
    join_lanes(running);
    status = outcome_of(running, diag);
    close_running(running);
    free(running);
    return status;
}
