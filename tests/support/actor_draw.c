#include "tests/support/actor_draw.h"

#include "tests/support/unit.h"

enum { MOST_ACTS = 12 };

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

static void draw_actors(struct sbp_random *random, struct sbp_actor_graph *graph)
{
    static const int acts[] = {2, 4, 6, 12};
    const int count = 2 + below(random, 9);
    for (int a = 0; a < count; a++)
        (void)sbp_actor_add(graph, "actor", below(random, graph->ranks),
                            below(random, 2) == 0 ? SBP_LANE_COMPUTE : SBP_LANE_COPY_IN,
                            acts[below(random, 4)]);
}

/* An edge mostly from an earlier actor to a later one, where their acts allow one. */
static void draw_edge(struct sbp_random *random, struct sbp_actor_graph *graph, int actors)
{
    int from = below(random, actors), to = below(random, actors);
    if (from > to && below(random, 12) > 0) {
        const int first = to;
        to = from;
        from = first;
    }
    const int64_t made = graph->actor[from].acts, taken = graph->actor[to].acts;
    if (from == to || made % taken != 0 || made / taken > 3)
        return;
    const int takes = (int)(made / taken);
    int reg = sbp_actor_add_register(graph, from, 1 + below(random, 3), 4);
    if (graph->actor[from].rank != graph->actor[to].rank)
        reg = sbp_actor_add_pull(graph, reg, graph->actor[to].rank, 1 + below(random, 3));
    (void)sbp_actor_add_read(graph, to, reg, takes);
    const int again = below(random, actors); /* a register with two readers */
    if (graph->actor[again].acts == taken && again != from &&
        graph->actor[again].rank == graph->actor[to].rank)
        (void)sbp_actor_add_read(graph, again, reg, takes);
}

/* An order of a lane in which acts mostly come as soon as data could: by the share of its acts that
 * an actor has done, with some exchanged. */
static void draw_order(struct sbp_random *random, struct sbp_actor_graph *graph, int rank,
                       enum sbp_actor_lane lane, int actors)
{
    int *order = SBP_NEW(graph->arena, int, ACTOR_DRAW_MOST *MOST_ACTS + 1);
    int64_t count = 0;
    for (int part = 0; part < MOST_ACTS; part++)
        for (int a = 0; a < actors; a++)
            if (graph->actor[a].rank == rank && graph->actor[a].lane == lane &&
                (part + 1) * graph->actor[a].acts / MOST_ACTS >
                    part * graph->actor[a].acts / MOST_ACTS)
                order[count++] = a;
    for (int swaps = below(random, 3); count > 1 && swaps > 0; swaps--) {
        const int at = below(random, (int)count - 1);
        const int first = order[at];
        order[at] = order[at + 1];
        order[at + 1] = first;
    }
    sbp_actor_set_order(graph, rank, lane, order, count);
}

static bool may_meet(const struct sbp_actor *a, const struct sbp_actor *b, bool copies_meet)
{
    return a->meeting < 0 && b->meeting < 0 && a->rank != b->rank && a->acts == b->acts &&
           (copies_meet || (a->lane == SBP_LANE_COMPUTE && b->lane == SBP_LANE_COMPUTE));
}

/* Pairs of actors of different ranks that act equally often meet now and then. */
static void draw_meetings(struct sbp_random *random, struct sbp_actor_graph *graph, int actors,
                          bool copies_meet)
{
    int meetings = 0;
    for (int a = 0; a < actors; a++)
        for (int b = a + 1; b < actors; b++)
            if (may_meet(&graph->actor[a], &graph->actor[b], copies_meet) &&
                below(random, 4) == 0) {
                sbp_actor_set_meeting(graph, a, meetings);
                sbp_actor_set_meeting(graph, b, meetings++);
            }
}

static bool has_meeting(const struct sbp_actor_graph *graph, int rank, enum sbp_actor_lane lane)
{
    for (int a = 0; a < graph->actors; a++)
        if (graph->actor[a].rank == rank && graph->actor[a].lane == lane &&
            graph->actor[a].meeting >= 0)
            return true;
    return false;
}

void actor_draw(struct sbp_random *random, int ranks, bool copies_meet, struct sbp_arena *arena,
                struct sbp_actor_graph *graph)
{
    sbp_actor_graph_init(graph, arena, ranks);
    draw_actors(random, graph);
    const int actors = graph->actors;
    for (int edges = below(random, 2 * actors); edges > 0; edges--)
        draw_edge(random, graph, actors);
    draw_meetings(random, graph, actors, copies_meet);
    for (int rank = 0; rank < graph->ranks; rank++)
        for (int lane = 0; lane < SBP_LANES; lane++)
            if (lane != SBP_LANE_NETWORK &&
                (has_meeting(graph, rank, (enum sbp_actor_lane)lane) || below(random, 2) == 0))
                draw_order(random, graph, rank, (enum sbp_actor_lane)lane, actors);
    assert_false(graph->failed);
    assert_true(graph->actors <= ACTOR_DRAW_MOST);
}
