#include "executor/actor/actor_run.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "executor/actor/actor_lane_priv.h"

/* ---- one lane ------------------------------------------------------------------------------ */

/* What the lane does next; -1: it has to wait. */
static int next_actor(const struct sbp_actor_lane_run *lane)
{
    const struct sbp_actor_state *state = &lane->running->state;
    const struct sbp_actor_order *order = sbp_actor_order(state->graph, state->rank, lane->id);
    if (order->actor == NULL)
        return sbp_actor_last_ready(state, lane->id);
    const int head = lane->at < order->count ? order->actor[lane->at] : -1;
    return head >= 0 && sbp_actor_is_ready(state, head) ? head : -1;
}

static enum sbp_status act(struct sbp_actor_lane_run *lane, int actor, struct sbp_diag *diag)
{
    const struct sbp_actor_job *job = lane->running->job;
    struct sbp_act act;
    sbp_actor_begin(&lane->running->state, actor, &act);
    SBP_TRY(job->action(job->context, &act, diag));
    sbp_actor_end(&lane->running->state, actor, sbp_actor_lane_post, lane);
    lane->at++;
    return SBP_OK;
}

static enum sbp_status play(struct sbp_actor_lane_run *lane, struct sbp_diag *diag)
{
    while (!sbp_actor_is_home(&lane->running->state, lane->id)) {
        if (!sbp_actor_lane_take(lane))
            return SBP_OK;
        const int actor = next_actor(lane);
        if (actor >= 0)
            SBP_TRY(act(lane, actor, diag));
        else if (!sbp_actor_is_home(&lane->running->state, lane->id))
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
        sbp_actor_lane_fail(lane, status, &diag);
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

/* Starts the lanes but the caller's own, plays that one, and joins the others. */
static void run_lanes(struct sbp_actor_running *running)
{
    pthread_t thread[SBP_LANES];
    bool started[SBP_LANES] = {false};
    int own = 0;
    while (own < SBP_LANES && !running->lane[own].used)
        own++;
    for (int id = own + 1; id < SBP_LANES; id++) {
        struct sbp_actor_lane_run *lane = &running->lane[id];
        const int error = lane->used ? pthread_create(&thread[id], NULL, lane_thread, lane) : 0;
        started[id] = lane->used && error == 0;
        struct sbp_diag diag = {{0}};
        if (error != 0)
            sbp_actor_lane_fail(lane,
                                sbp_fail(&diag, SBP_E_BACKEND, "actors: no thread for lane %s: %s",
                                         sbp_actor_lane_name(lane->id), strerror(error)),
                                &diag);
    }
    if (own < SBP_LANES)
        (void)lane_thread(&running->lane[own]);
    for (int id = 0; id < SBP_LANES; id++)
        if (started[id]) {
            const int joined = pthread_join(thread[id], NULL);
            assert(joined == 0);
            (void)joined;
        }
}

static enum sbp_status run_rank(struct sbp_actor_running *running, struct sbp_diag *diag)
{
    const struct sbp_actor_job *job = running->job;
    const struct sbp_endpoint *endpoint = &job->endpoint;
    const int rank = endpoint->ops == NULL ? 0 : endpoint->ops->rank(endpoint->comm);
    enum sbp_status status =
        sbp_actor_open(&running->state, job->graph, rank, job->memory, &running->arena);
    if (status == SBP_OK)
        status = open_lanes(running);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "out of memory for the actors of rank %d", rank);
    run_lanes(running);
    if (running->status != SBP_OK)
        return sbp_fail(diag, running->status, "%s", running->diag.text);
    sbp_actor_assert_home(&running->state);
    return SBP_OK;
}

enum sbp_status sbp_actor_run(const struct sbp_actor_job *job, struct sbp_diag *diag)
{
    struct sbp_actor_running running = {.job = job, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (!job->graph->checked)
        return sbp_fail(diag, SBP_E_INTERNAL, "actors: they run after they are checked");
    const enum sbp_status status = run_rank(&running, diag);
    for (int id = 0; id < SBP_LANES; id++)
        sbp_actor_lane_close(&running.lane[id]);
    sbp_actor_close(&running.state);
    sbp_arena_free(&running.arena);
    return status;
}
