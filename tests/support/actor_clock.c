#include "tests/support/actor_clock.h"

#include "tests/support/unit.h"

struct clock {
    const struct sbp_actor_graph *graph;
    const double *length_s;
    struct sbp_actor_state *state; /* (ranks) */
    int64_t *at;                   /* (ranks, SBP_LANES) in orders */
    int *under_way;                /* (ranks, SBP_LANES) actor, and 1; 0: the lane is free */
    double *end_s;                 /* (actors) of the act under way; < 0: none */
    int64_t *ended;                /* (actors) */
    double now_s;
    struct actor_play *play;
};

/* Messages arrive at once, wherever their lane is. */
static void post(void *context, enum sbp_actor_lane lane, struct sbp_actor_message message)
{
    (void)lane;
    sbp_actor_deliver(context, message);
}

static int64_t lane_index(const struct clock *clock, int actor)
{
    return (int64_t)clock->graph->actor[actor].rank * SBP_LANES + clock->graph->actor[actor].lane;
}

static bool is_pull(const struct clock *clock, int actor)
{
    return clock->graph->actor[actor].lane == SBP_LANE_NETWORK;
}

static struct sbp_actor_state *state_of(const struct clock *clock, int actor)
{
    return &clock->state[clock->graph->actor[actor].rank];
}

static struct sbp_actor_state *producer_of_pull(const struct clock *clock, int actor)
{
    const struct sbp_actor_graph *graph = clock->graph;
    return state_of(clock, graph->reg[graph->read[graph->actor[actor].first_read].from].producer);
}

/* Whether the actor is what its lane does next. */
static bool is_next(const struct clock *clock, int actor)
{
    const struct sbp_actor *described = &clock->graph->actor[actor];
    const struct sbp_actor_state *state = state_of(clock, actor);
    const struct sbp_actor_order *order =
        sbp_actor_order(clock->graph, described->rank, described->lane);
    if (is_pull(clock, actor))
        return sbp_actor_is_ready(state, actor) && clock->end_s[actor] < 0 &&
               sbp_actor_to_serve(producer_of_pull(clock, actor), described->first_read).index >= 0;
    if (clock->under_way[lane_index(clock, actor)] > 0)
        return false;
    if (order->actor == NULL)
        return sbp_actor_last_ready(state, described->lane) == actor;
    const int64_t at = clock->at[lane_index(clock, actor)];
    return at < order->count && order->actor[at] == actor && sbp_actor_is_ready(state, actor);
}

static bool meets(const struct clock *clock, int actor, int other)
{
    const int meeting = clock->graph->actor[actor].meeting;
    return actor == other || (meeting >= 0 && clock->graph->actor[other].meeting == meeting);
}

static void begin(struct clock *clock, int actor)
{
    struct sbp_act act;
    sbp_actor_begin(state_of(clock, actor), actor, &act);
    clock->end_s[actor] = clock->now_s + clock->length_s[actor];
    if (!is_pull(clock, actor))
        clock->under_way[lane_index(clock, actor)] = actor + 1;
    clock->play->event[clock->play->events++] =
        (struct actor_event){actor, act.number, clock->now_s, clock->end_s[actor]};
}

/* With all that it meets. */
static bool begin_if_next(struct clock *clock, int actor)
{
    for (int a = 0; a < clock->graph->actors; a++)
        if (meets(clock, actor, a) && !is_next(clock, a))
            return false;
    for (int a = 0; a < clock->graph->actors; a++)
        if (meets(clock, actor, a))
            begin(clock, a);
    return true;
}

static void end(struct clock *clock, int actor)
{
    clock->end_s[actor] = -1;
    clock->ended[actor]++;
    if (is_pull(clock, actor)) {
        struct sbp_actor_state *producer = producer_of_pull(clock, actor);
        sbp_actor_serve(producer, clock->graph->actor[actor].first_read, post, producer);
    } else {
        clock->under_way[lane_index(clock, actor)] = 0;
        clock->at[lane_index(clock, actor)]++;
    }
    sbp_actor_end(state_of(clock, actor), actor, post, state_of(clock, actor));
}

/* The next time at which something ends; < 0: nothing is under way. */
static double next_end_s(const struct clock *clock)
{
    double next_s = -1;
    for (int a = 0; a < clock->graph->actors; a++)
        if (clock->end_s[a] >= 0 && (next_s < 0 || clock->end_s[a] < next_s))
            next_s = clock->end_s[a];
    return next_s;
}

static void play_all(struct clock *clock)
{
    const int actors = clock->graph->actors;
    do {
        for (int a = 0; a < actors; a++)
            if (clock->end_s[a] >= 0 && clock->end_s[a] <= clock->now_s)
                end(clock, a);
        for (bool moves = true; moves;) {
            moves = false;
            for (int a = 0; a < actors; a++)
                moves = begin_if_next(clock, a) || moves;
        }
        clock->now_s = next_end_s(clock);
    } while (clock->now_s >= 0);
}

static void open_clock(struct clock *clock, struct sbp_arena *arena)
{
    const struct sbp_actor_graph *graph = clock->graph;
    const int64_t lanes = (int64_t)graph->ranks * SBP_LANES;
    int64_t acts = 0;
    for (int a = 0; a < graph->actors; a++)
        acts += graph->actor[a].acts;
    clock->play->event = SBP_NEW(arena, struct actor_event, acts);
    clock->state = SBP_NEW(arena, struct sbp_actor_state, graph->ranks);
    clock->at = SBP_NEW(arena, int64_t, lanes);
    clock->under_way = SBP_NEW(arena, int, lanes);
    clock->end_s = SBP_NEW(arena, double, graph->actors);
    clock->ended = SBP_NEW(arena, int64_t, graph->actors);
    assert_true(clock->play->event != NULL && clock->state != NULL && clock->at != NULL);
    assert_true(clock->under_way != NULL && clock->end_s != NULL && clock->ended != NULL);
    for (int a = 0; a < graph->actors; a++)
        clock->end_s[a] = -1;
    for (int rank = 0; rank < graph->ranks; rank++)
        assert_int_equal(
            sbp_actor_open(&clock->state[rank], graph, rank, &sbp_device_host_memory, NULL, arena),
            SBP_OK);
}

struct actor_play actor_clock_play(const struct sbp_actor_graph *graph, const double *length_s,
                                   struct sbp_arena *arena)
{
    struct actor_play play = {0};
    struct clock clock = {.graph = graph, .length_s = length_s, .play = &play};
    open_clock(&clock, arena);
    play_all(&clock);
    for (int a = 0; a < graph->actors; a++)
        play.stuck = play.stuck || clock.ended[a] < graph->actor[a].acts;
    for (int rank = 0; rank < graph->ranks; rank++) {
        if (!play.stuck)
            sbp_actor_assert_home(&clock.state[rank]);
        sbp_actor_close(&clock.state[rank]);
    }
    return play;
}
