#include "executor/actor/actor_graph.h"

#include <limits.h>
#include <math.h>
#include <string.h>

const char *sbp_actor_lane_name(enum sbp_actor_lane lane)
{
#define LANE_NAME(symbol, name) name,
    static const char *const names[] = {SBP_LANE_MAP(LANE_NAME)};
#undef LANE_NAME
    return names[lane];
}

void sbp_actor_graph_init(struct sbp_actor_graph *graph, struct sbp_arena *arena, int ranks)
{
    *graph = (struct sbp_actor_graph){.arena = arena, .ranks = ranks};
    graph->order = SBP_NEW(arena, struct sbp_actor_order, (int64_t)ranks * SBP_LANES);
    graph->failed = graph->order == NULL;
}

/* Room for one more entry of an array, which may move. The index of the entry, or -1. */
static int add_entry(struct sbp_actor_graph *graph, void **array, size_t entry_bytes, int *count,
                     int *room)
{
    if (!graph->failed && *count == *room) {
        const int larger = *room == 0 ? 16 : *room > INT_MAX / 2 ? INT_MAX : 2 * *room;
        void *moved = sbp_arena_alloc(graph->arena, (size_t)larger, entry_bytes);
        graph->failed = moved == NULL || larger == *count;
        if (!graph->failed && *count > 0)
            memcpy(moved, *array, (size_t)*count * entry_bytes);
        *array = graph->failed ? *array : moved;
        *room = graph->failed ? *room : larger;
    }
    graph->checked = false;
    return graph->failed ? -1 : (*count)++;
}

int sbp_actor_add(struct sbp_actor_graph *graph, const char *name, int rank,
                  enum sbp_actor_lane lane, int64_t acts)
{
    void *array = graph->actor;
    const int index =
        add_entry(graph, &array, sizeof *graph->actor, &graph->actors, &graph->actors_room);
    graph->actor = array;
    if (index < 0)
        return 0;
    graph->actor[index] = (struct sbp_actor){.name = name,
                                             .rank = rank,
                                             .lane = lane,
                                             .acts = acts,
                                             .meeting = -1,
                                             .first_read = -1,
                                             .last_read = -1,
                                             .first_register = -1,
                                             .last_register = -1};
    return index;
}

int sbp_actor_add_register(struct sbp_actor_graph *graph, int producer, int quota, int64_t bytes)
{
    void *array = graph->reg;
    const int index =
        add_entry(graph, &array, sizeof *graph->reg, &graph->registers, &graph->registers_room);
    graph->reg = array;
    if (index < 0)
        return 0;
    struct sbp_actor *const actor = &graph->actor[producer];
    graph->reg[index] = (struct sbp_actor_register){.producer = producer,
                                                    .quota = quota,
                                                    .bytes = bytes,
                                                    .first_read = -1,
                                                    .last_read = -1,
                                                    .next = -1};
    if (actor->last_register < 0)
        actor->first_register = index;
    else
        graph->reg[actor->last_register].next = index;
    actor->last_register = index;
    return index;
}

int sbp_actor_add_read(struct sbp_actor_graph *graph, int consumer, int from, int takes)
{
    void *array = graph->read;
    const int index =
        add_entry(graph, &array, sizeof *graph->read, &graph->reads, &graph->reads_room);
    graph->read = array;
    if (index < 0)
        return 0;
    struct sbp_actor *const actor = &graph->actor[consumer];
    struct sbp_actor_register *const reg = &graph->reg[from];
    graph->read[index] = (struct sbp_actor_read){.from = from,
                                                 .consumer = consumer,
                                                 .takes = takes,
                                                 .next_of_consumer = -1,
                                                 .next_of_register = -1};
    if (actor->last_read < 0)
        actor->first_read = index;
    else
        graph->read[actor->last_read].next_of_consumer = index;
    if (reg->last_read < 0)
        reg->first_read = index;
    else
        graph->read[reg->last_read].next_of_register = index;
    actor->last_read = reg->last_read = index;
    return index;
}

int sbp_actor_add_pull(struct sbp_actor_graph *graph, int from, int rank, int quota)
{
    if (graph->failed)
        return 0;
    const struct sbp_actor *producer = &graph->actor[graph->reg[from].producer];
    const int64_t bytes = graph->reg[from].bytes;
    const int pull = sbp_actor_add(graph, producer->name, rank, SBP_LANE_NETWORK, producer->acts);
    if (!graph->failed)
        (void)sbp_actor_add_read(graph, pull, from, 1);
    return graph->failed ? 0 : sbp_actor_add_register(graph, pull, quota, bytes);
}

void sbp_actor_set_order(struct sbp_actor_graph *graph, int rank, enum sbp_actor_lane lane,
                         const int *actor, int64_t count)
{
    graph->checked = false;
    if (!graph->failed)
        graph->order[(int64_t)rank * SBP_LANES + lane] = (struct sbp_actor_order){actor, count};
}

double sbp_actor_graph_bytes(const struct sbp_actor_graph *graph, int rank)
{
    double bytes = 0;
    for (int i = 0; i < graph->registers; i++)
        if (graph->actor[graph->reg[i].producer].rank == rank)
            bytes += 64 * ceil((double)graph->reg[i].quota * (double)graph->reg[i].bytes / 64);
    return bytes;
}

void sbp_actor_set_meeting(struct sbp_actor_graph *graph, int actor, int meeting)
{
    graph->checked = false;
    if (!graph->failed)
        graph->actor[actor].meeting = meeting;
}
