#include "executor/actor/actor_check.h"

#include "base/math/numeric.h"
#include "base/text.h"

/* ---- form ---------------------------------------------------------------------------------- */

static const struct sbp_actor *producer_of(const struct sbp_actor_graph *graph, int read)
{
    return &graph->actor[graph->reg[graph->read[read].from].producer];
}

static bool is_ordered(const struct sbp_actor_graph *graph, const struct sbp_actor *actor)
{
    return sbp_actor_order(graph, actor->rank, actor->lane)->actor != NULL;
}

static enum sbp_status check_actor(const struct sbp_actor_graph *graph,
                                   const struct sbp_actor *actor, struct sbp_diag *diag)
{
    const char *name = actor->name;
    if (actor->rank < 0 || actor->rank >= graph->ranks)
        return sbp_fail(diag, SBP_E_INPUT, "actors: %s: rank %d, legal are 0 to %d", name,
                        actor->rank, graph->ranks - 1);
    if (actor->acts < 0)
        return sbp_fail(diag, SBP_E_INPUT, "actors: %s: %lld acts, legal are 0 and more", name,
                        (long long)actor->acts);
    if (actor->meeting >= graph->actors)
        return sbp_fail(diag, SBP_E_INPUT, "actors: %s: meeting %d, legal are 0 to %d", name,
                        actor->meeting, graph->actors - 1);
    if ((actor->meeting >= 0 || actor->lane == SBP_LANE_COLLECTIVE) && !is_ordered(graph, actor))
        return sbp_fail(diag, SBP_E_INPUT,
                        "actors: %s: lane %s of rank %d needs an order, for its actors meet others",
                        name, sbp_actor_lane_name(actor->lane), actor->rank);
    return SBP_OK;
}

static enum sbp_status check_register(const struct sbp_actor_graph *graph,
                                      const struct sbp_actor_register *reg, struct sbp_diag *diag)
{
    if (reg->quota >= 1 && reg->bytes >= 0)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT,
                    "actors: %s: a register of %d slots of %lld bytes, legal are 1 and more slots",
                    graph->actor[reg->producer].name, reg->quota, (long long)reg->bytes);
}

static bool is_pull(const struct sbp_actor *actor)
{
    return actor->lane == SBP_LANE_NETWORK;
}

static enum sbp_status check_read(const struct sbp_actor_graph *graph, int index,
                                  struct sbp_diag *diag)
{
    const struct sbp_actor_read *read = &graph->read[index];
    const struct sbp_actor *producer = producer_of(graph, index);
    const struct sbp_actor *consumer = &graph->actor[read->consumer];
    int64_t taken;
    if (sbp_actor_crosses(graph, index) != is_pull(consumer))
        return sbp_fail(diag, SBP_E_INPUT,
                        "actors: %s of rank %d reads %s of rank %d: pulls alone read of other "
                        "ranks, and of these alone",
                        consumer->name, consumer->rank, producer->name, producer->rank);
    if (read->takes < 1 || !sbp_mul_i64(consumer->acts, read->takes, &taken) ||
        taken != producer->acts)
        return sbp_fail(diag, SBP_E_INPUT,
                        "actors: %s takes %d at a time of %s in %lld acts: must be its %lld acts",
                        consumer->name, read->takes, producer->name, (long long)consumer->acts,
                        (long long)producer->acts);
    return SBP_OK;
}

/* A pull has what sbp_actor_add_pull gives it: its acts are the network lane's own. */
static enum sbp_status check_pull(const struct sbp_actor_graph *graph,
                                  const struct sbp_actor *actor, struct sbp_diag *diag)
{
    if (!is_pull(actor) ||
        (actor->first_read >= 0 && actor->first_read == actor->last_read &&
         actor->first_register >= 0 && actor->first_register == actor->last_register &&
         !is_ordered(graph, actor)))
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT,
                    "actors: %s: lane network takes pulls alone, and has no order", actor->name);
}

static enum sbp_status check_form(const struct sbp_actor_graph *graph, struct sbp_diag *diag)
{
    for (int a = 0; a < graph->actors; a++) {
        SBP_TRY(check_actor(graph, &graph->actor[a], diag));
        SBP_TRY(check_pull(graph, &graph->actor[a], diag));
    }
    for (int r = 0; r < graph->registers; r++)
        SBP_TRY(check_register(graph, &graph->reg[r], diag));
    for (int r = 0; r < graph->reads; r++)
        SBP_TRY(check_read(graph, r, diag));
    return SBP_OK;
}

/* An order holds each actor of its lane as often as it acts, and no other. */
static enum sbp_status check_order(const struct sbp_actor_graph *graph, int rank,
                                   enum sbp_actor_lane lane, int64_t *listed, struct sbp_diag *diag)
{
    const struct sbp_actor_order *order = sbp_actor_order(graph, rank, lane);
    for (int64_t i = 0; order->actor != NULL && i < order->count; i++) {
        const int a = order->actor[i];
        if (a < 0 || a >= graph->actors || graph->actor[a].rank != rank ||
            graph->actor[a].lane != lane)
            return sbp_fail(diag, SBP_E_INPUT,
                            "actors: order of lane %s of rank %d: entry %lld is no actor of it",
                            sbp_actor_lane_name(lane), rank, (long long)i);
        listed[a]++;
    }
    return SBP_OK;
}

static enum sbp_status check_orders(const struct sbp_actor_graph *graph, struct sbp_diag *diag)
{
    int64_t *listed = SBP_NEW(graph->arena, int64_t, graph->actors);
    if (listed == NULL)
        return SBP_E_MEMORY;
    for (int rank = 0; rank < graph->ranks; rank++)
        for (int lane = 0; lane < SBP_LANES; lane++)
            SBP_TRY(check_order(graph, rank, (enum sbp_actor_lane)lane, listed, diag));
    for (int a = 0; a < graph->actors; a++)
        if (is_ordered(graph, &graph->actor[a]) && listed[a] != graph->actor[a].acts)
            return sbp_fail(diag, SBP_E_INPUT,
                            "actors: order of lane %s of rank %d: has %s %lld times, must be its "
                            "%lld acts",
                            sbp_actor_lane_name(graph->actor[a].lane), graph->actor[a].rank,
                            graph->actor[a].name, (long long)listed[a],
                            (long long)graph->actor[a].acts);
    return SBP_OK;
}

/* ---- acting, as far as it goes ------------------------------------------------------------- */

/* How far each actor is: all that an act waits for follows from numbers of acts. */
struct progress {
    const struct sbp_actor_graph *graph;
    int64_t *done;    /* (actors) */
    int64_t *at;      /* (ranks, SBP_LANES) in the lane's order */
    int *next_member; /* (actors) in a ring; itself: it acts alone */
    int *queue;       /* (actors) to be looked at, a ring without repeats */
    bool *queued;     /* (actors) */
    int first, waiting;
};

/* Why an act cannot be: which other actor must act first. */
struct obstacle {
    int actor; /* -1: none */
    const char *why;
};

static int64_t lane_index(const struct sbp_actor *actor)
{
    return (int64_t)actor->rank * SBP_LANES + actor->lane;
}

/* The next actor of an order; -1: there is no order, or none is left. */
static int head_of(const struct progress *progress, const struct sbp_actor *actor)
{
    const struct sbp_actor_order *order =
        sbp_actor_order(progress->graph, actor->rank, actor->lane);
    const int64_t at = progress->at[lane_index(actor)];
    return order->actor != NULL && at < order->count ? order->actor[at] : -1;
}

/* The reason that keeps an actor from its next act, its meeting aside. */
static struct obstacle own_obstacle(const struct progress *progress, int a)
{
    const struct sbp_actor_graph *graph = progress->graph;
    const struct sbp_actor *actor = &graph->actor[a];
    const int64_t act = progress->done[a];
    const int head = head_of(progress, actor);
    if (head >= 0 && head != a)
        return (struct obstacle){head, "stands in its lane behind"};
    for (int r = actor->first_read; r >= 0; r = graph->read[r].next_of_consumer) {
        const int producer = graph->reg[graph->read[r].from].producer;
        if (progress->done[producer] < (act + 1) * graph->read[r].takes)
            return (struct obstacle){producer, "waits for what is made by"};
    }
    for (int g = actor->first_register; g >= 0; g = graph->reg[g].next)
        for (int r = graph->reg[g].first_read; r >= 0; r = graph->read[r].next_of_register) {
            const int consumer = graph->read[r].consumer;
            if (act - progress->done[consumer] * graph->read[r].takes >= graph->reg[g].quota)
                return (struct obstacle){consumer, "waits for a slot to be freed by"};
        }
    return (struct obstacle){-1, NULL};
}

static bool has_ended(const struct progress *progress, int a)
{
    return progress->done[a] == progress->graph->actor[a].acts;
}

/* The first obstacle of an actor and of those that it meets. */
static struct obstacle obstacle_of(const struct progress *progress, int a)
{
    const struct obstacle own = own_obstacle(progress, a);
    for (int m = progress->next_member[a]; own.actor < 0 && m != a; m = progress->next_member[m])
        if (own_obstacle(progress, m).actor >= 0)
            return (struct obstacle){m, "meets"};
    return own;
}

static void enqueue(struct progress *progress, int a)
{
    if (progress->queued[a])
        return;
    const int actors = progress->graph->actors;
    progress->queue[(progress->first + progress->waiting++) % actors] = a;
    progress->queued[a] = true;
}

static int dequeue(struct progress *progress)
{
    const int a = progress->queue[progress->first];
    progress->first = (progress->first + 1) % progress->graph->actors;
    progress->waiting--;
    progress->queued[a] = false;
    return a;
}

/* One act, and a look at all that may have waited for it. */
static void act(struct progress *progress, int a)
{
    const struct sbp_actor_graph *graph = progress->graph;
    const struct sbp_actor *actor = &graph->actor[a];
    progress->done[a]++;
    progress->at[lane_index(actor)]++;
    enqueue(progress, a);
    const int head = head_of(progress, actor);
    if (head >= 0)
        enqueue(progress, head);
    for (int r = actor->first_read; r >= 0; r = graph->read[r].next_of_consumer)
        enqueue(progress, graph->reg[graph->read[r].from].producer);
    for (int g = actor->first_register; g >= 0; g = graph->reg[g].next)
        for (int r = graph->reg[g].first_read; r >= 0; r = graph->read[r].next_of_register)
            enqueue(progress, graph->read[r].consumer);
}

static void act_if_free(struct progress *progress, int a)
{
    if (has_ended(progress, a) || obstacle_of(progress, a).actor >= 0)
        return;
    int m = a;
    do {
        act(progress, m);
        m = progress->next_member[m];
    } while (m != a);
}

static enum sbp_status open_progress(struct progress *progress, const struct sbp_actor_graph *graph)
{
    *progress = (struct progress){
        .graph = graph,
        .done = SBP_NEW(graph->arena, int64_t, graph->actors),
        .at = SBP_NEW(graph->arena, int64_t, (int64_t)graph->ranks * SBP_LANES),
        .next_member = SBP_NEW(graph->arena, int, graph->actors),
        .queue = SBP_NEW(graph->arena, int, graph->actors),
        .queued = SBP_NEW(graph->arena, bool, graph->actors),
    };
    const bool made = progress->done != NULL && progress->at != NULL &&
                      progress->next_member != NULL && progress->queue != NULL &&
                      progress->queued != NULL;
    return made ? SBP_OK : SBP_E_MEMORY;
}

/* Joins the actors of each meeting in a ring. */
static enum sbp_status join_members(struct progress *progress, struct sbp_diag *diag)
{
    const struct sbp_actor_graph *graph = progress->graph;
    int *last = SBP_NEW(graph->arena, int, graph->actors); /* (meetings); 0: none, else 1 more */
    if (last == NULL)
        return SBP_E_MEMORY;
    for (int a = 0; a < graph->actors; a++) {
        const struct sbp_actor *actor = &graph->actor[a];
        progress->next_member[a] = a;
        if (actor->meeting < 0)
            continue;
        const int before = last[actor->meeting] - 1;
        last[actor->meeting] = a + 1;
        if (before < 0)
            continue;
        if (graph->actor[before].acts != actor->acts)
            return sbp_fail(diag, SBP_E_INPUT, "actors: %s and %s meet, but not equally often",
                            graph->actor[before].name, actor->name);
        progress->next_member[a] = progress->next_member[before];
        progress->next_member[before] = a;
    }
    return SBP_OK;
}

/* The members of a meeting wait for each other, which one lane cannot do. `seen`: (ranks) of which
 * meeting a rank had a member last, and 1. */
static enum sbp_status check_members(const struct progress *progress, int first, int *seen,
                                     bool *visited, struct sbp_diag *diag)
{
    const struct sbp_actor_graph *graph = progress->graph;
    for (int m = first; !visited[m]; m = progress->next_member[m]) {
        const struct sbp_actor *actor = &graph->actor[m];
        visited[m] = true;
        if (seen[actor->rank] == actor->meeting + 1)
            return sbp_fail(diag, SBP_E_INPUT,
                            "actors: %s of rank %d meets another one of that rank, must be of "
                            "different ranks",
                            actor->name, actor->rank);
        seen[actor->rank] = actor->meeting + 1;
    }
    return SBP_OK;
}

static enum sbp_status check_meetings(const struct progress *progress, struct sbp_diag *diag)
{
    const struct sbp_actor_graph *graph = progress->graph;
    int *seen = SBP_NEW(graph->arena, int, graph->ranks);
    bool *visited = SBP_NEW(graph->arena, bool, graph->actors);
    if (seen == NULL || visited == NULL)
        return SBP_E_MEMORY;
    for (int a = 0; a < graph->actors; a++)
        if (graph->actor[a].meeting >= 0)
            SBP_TRY(check_members(progress, a, seen, visited, diag));
    return SBP_OK;
}

/* ---- circles ------------------------------------------------------------------------------- */

static void add_act(struct sbp_text *text, const struct progress *progress, int a)
{
    const struct sbp_actor *actor = &progress->graph->actor[a];
    sbp_text_add(text, "%s (rank %d, %s, act %lld)", actor->name, actor->rank,
                 sbp_actor_lane_name(actor->lane), (long long)progress->done[a]);
}

/* Follows obstacles from an actor until one comes again, and says those of the circle. What cannot
 * act waits for what cannot act, so there is one. */
static enum sbp_status refuse(struct progress *progress, int a, struct sbp_diag *diag)
{
    enum { MOST_SAID = 8 };
    struct sbp_text text = {0};
    for (int k = 0; k < progress->graph->actors; k++)
        a = obstacle_of(progress, a).actor;
    const int first = a;
    int length = 0;
    sbp_text_add(&text, "actors wait for each other: ");
    add_act(&text, progress, first);
    do {
        const struct obstacle obstacle = obstacle_of(progress, a);
        a = obstacle.actor;
        if (++length <= MOST_SAID || a == first) {
            sbp_text_add(&text, length <= MOST_SAID ? "%s %s " : "%s ... %s ",
                         length > 1 ? ", which" : "", obstacle.why);
            add_act(&text, progress, a);
        }
    } while (a != first);
    const enum sbp_status status =
        text.failed ? SBP_E_MEMORY : sbp_fail(diag, SBP_E_INPUT, "%s", text.bytes);
    sbp_text_free(&text);
    return status;
}

static enum sbp_status check_progress(const struct sbp_actor_graph *graph, struct sbp_diag *diag)
{
    struct progress progress;
    SBP_TRY(open_progress(&progress, graph));
    SBP_TRY(join_members(&progress, diag));
    SBP_TRY(check_meetings(&progress, diag));
    for (int a = 0; a < graph->actors; a++)
        enqueue(&progress, a);
    while (progress.waiting > 0)
        act_if_free(&progress, dequeue(&progress));
    for (int a = 0; a < graph->actors; a++)
        if (!has_ended(&progress, a))
            return refuse(&progress, a, diag);
    return SBP_OK;
}

enum sbp_status sbp_actor_check(struct sbp_actor_graph *graph, struct sbp_diag *diag)
{
    if (graph->failed)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the graph of actors");
    const struct sbp_arena_mark mark = sbp_arena_mark(graph->arena);
    enum sbp_status status = check_form(graph, diag);
    if (status == SBP_OK)
        status = check_orders(graph, diag);
    if (status == SBP_OK)
        status = check_progress(graph, diag);
    sbp_arena_release(graph->arena, mark);
    graph->checked = status == SBP_OK;
    return status == SBP_E_MEMORY
               ? sbp_fail(diag, status, "out of memory for checking the graph of actors")
               : status;
}
