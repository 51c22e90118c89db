#include "executor/actor/actor_state.h"

#include <assert.h>
#include <stddef.h>

#include "base/math/numeric.h"

enum { WORD_BITS = 64 };

struct sbp_actor_counters {
    int64_t begun, ended;
    int missing;                /* inputs and credits for the next act */
    int bit;                    /* in its lane */
    struct sbp_actor_slot *in;  /* (takes of all reads) */
    struct sbp_actor_slot *out; /* (registers) */
};

/* ---- rings --------------------------------------------------------------------------------- */

static bool make_ring(struct sbp_actor_ring *ring, int room, struct sbp_arena *arena)
{
    *ring = (struct sbp_actor_ring){.slot = SBP_NEW(arena, int, room), .room = room};
    return ring->slot != NULL;
}

static void push(struct sbp_actor_ring *ring, int slot)
{
    assert(ring->count < ring->room && "credits never exceed the quota");
    int at = ring->first + ring->count++;
    at -= at >= ring->room ? ring->room : 0;
    ring->slot[at] = slot;
}

static int peek(const struct sbp_actor_ring *ring, int nth)
{
    int at = ring->first + nth;
    at -= at >= ring->room ? ring->room : 0;
    return ring->slot[at];
}

static int pop(struct sbp_actor_ring *ring)
{
    assert(ring->count > 0 && "counters never become negative");
    const int slot = ring->slot[ring->first];
    ring->first = ring->first + 1 == ring->room ? 0 : ring->first + 1;
    ring->count--;
    return slot;
}

/* ---- readiness ----------------------------------------------------------------------------- */

static struct sbp_actor_lane_state *lane_of(struct sbp_actor_state *state, int actor)
{
    return &state->lane[state->graph->actor[actor].lane];
}

bool sbp_actor_has_acts(const struct sbp_actor_state *state, int actor)
{
    return state->actor[actor].begun < state->graph->actor[actor].acts;
}

bool sbp_actor_is_ready(const struct sbp_actor_state *state, int actor)
{
    return state->actor[actor].missing == 0 && sbp_actor_has_acts(state, actor);
}

static void note_ready(struct sbp_actor_state *state, int actor)
{
    const int bit = state->actor[actor].bit;
    uint64_t *word = &lane_of(state, actor)->ready[bit / WORD_BITS];
    const uint64_t mask = UINT64_C(1) << bit % WORD_BITS;
    *word = sbp_actor_is_ready(state, actor) ? *word | mask : *word & ~mask;
}

static void add_missing(struct sbp_actor_state *state, int actor, int change)
{
    state->actor[actor].missing += change;
    assert(state->actor[actor].missing >= 0);
    note_ready(state, actor);
}

int sbp_actor_last_ready(const struct sbp_actor_state *state, enum sbp_actor_lane lane)
{
    const struct sbp_actor_lane_state *own = &state->lane[lane];
    for (int word = (own->actors + WORD_BITS - 1) / WORD_BITS - 1; word >= 0; word--)
        if (own->ready[word] != 0)
            return own->actor[word * WORD_BITS + WORD_BITS - 1 - __builtin_clzll(own->ready[word])];
    return -1;
}

/* ---- acts ---------------------------------------------------------------------------------- */

static struct sbp_actor_slot slot_of(const struct sbp_actor_state *state, int reg, int index)
{
    const int64_t bytes = state->graph->reg[reg].bytes;
    char *memory = state->output[reg].memory;
    return (struct sbp_actor_slot){memory == NULL ? NULL : memory + index * bytes, bytes, index};
}

/* Whether a read's slots are taken at this rank, and not by a pull of another one. */
static bool is_local(const struct sbp_actor_state *state, int read)
{
    return !sbp_actor_crosses(state->graph, read);
}

static void show_inputs(const struct sbp_actor_state *state, int actor, struct sbp_actor_slot *in)
{
    const struct sbp_actor_graph *graph = state->graph;
    for (int r = graph->actor[actor].first_read; r >= 0; r = graph->read[r].next_of_consumer)
        for (int k = 0; is_local(state, r) && k < graph->read[r].takes; k++)
            *in++ = slot_of(state, graph->read[r].from, peek(&state->arrived[r], k));
}

/* Takes a slot of a register, which nobody may be reading. */
static int take_slot(struct sbp_actor_state *state, int reg)
{
    struct sbp_actor_output *output = &state->output[reg];
    const int slot = pop(&output->free);
    assert(output->readers[slot] == 0 && "no register is written while it is read");
    push(&output->written, slot);
    return slot;
}

void sbp_actor_begin(struct sbp_actor_state *state, int actor, struct sbp_act *act)
{
    const struct sbp_actor_graph *graph = state->graph;
    struct sbp_actor_counters *own = &state->actor[actor];
    struct sbp_actor_slot *out = own->out;
    show_inputs(state, actor, own->in);
    for (int g = graph->actor[actor].first_register; g >= 0; g = graph->reg[g].next) {
        *out++ = slot_of(state, g, take_slot(state, g));
        lane_of(state, actor)->away++;
        own->missing += state->output[g].free.count == 0;
    }
    *act = (struct sbp_act){.actor = actor, .number = own->begun++, .in = own->in, .out = own->out};
    note_ready(state, actor);
}

static void free_slot(struct sbp_actor_state *state, int reg, int slot)
{
    const int producer = state->graph->reg[reg].producer;
    push(&state->output[reg].free, slot);
    lane_of(state, producer)->away--;
    if (state->output[reg].free.count == 1)
        add_missing(state, producer, -1);
}

static bool *hold_of(struct sbp_actor_state *state, int read, int slot)
{
    const int reg = state->graph->read[read].from;
    return &state->output[reg]
                .held[(int64_t)state->ordinal[read] * state->graph->reg[reg].quota + slot];
}

/* Tells all readers of a register that its oldest slot under way is filled. All are counted before
 * the first of them can answer. */
static void fill_slot(struct sbp_actor_state *state, int reg, sbp_actor_post post, void *context)
{
    const struct sbp_actor_graph *graph = state->graph;
    struct sbp_actor_output *output = &state->output[reg];
    const int slot = pop(&output->written);
    for (int r = graph->reg[reg].first_read; r >= 0; r = graph->read[r].next_of_register) {
        assert(!*hold_of(state, r, slot));
        *hold_of(state, r, slot) = true;
        output->readers[slot]++;
    }
    if (output->readers[slot] == 0)
        free_slot(state, reg, slot);
    for (int r = graph->reg[reg].first_read; r >= 0; r = graph->read[r].next_of_register)
        post(context,
             is_local(state, r) ? graph->actor[graph->read[r].consumer].lane : SBP_LANE_NETWORK,
             (struct sbp_actor_message){SBP_ACTOR_REQ, r, slot});
}

static void post_ack(const struct sbp_actor_state *state, int read, int slot, sbp_actor_post post,
                     void *context)
{
    const struct sbp_actor_graph *graph = state->graph;
    post(context, graph->actor[graph->reg[graph->read[read].from].producer].lane,
         (struct sbp_actor_message){SBP_ACTOR_ACK, read, slot});
}

static void return_inputs(struct sbp_actor_state *state, int read, sbp_actor_post post,
                          void *context)
{
    const int takes = state->graph->read[read].takes;
    struct sbp_actor_ring *arrived = &state->arrived[read];
    const bool had = arrived->count >= takes;
    for (int k = 0; k < takes; k++)
        post_ack(state, read, pop(arrived), post, context);
    if (had && arrived->count < takes)
        add_missing(state, state->graph->read[read].consumer, 1);
}

void sbp_actor_end(struct sbp_actor_state *state, int actor, sbp_actor_post post, void *context)
{
    const struct sbp_actor *described = &state->graph->actor[actor];
    struct sbp_actor_counters *own = &state->actor[actor];
    own->ended++;
    assert(own->ended <= own->begun);
    lane_of(state, actor)->left--;
    for (int g = described->first_register; g >= 0; g = state->graph->reg[g].next)
        fill_slot(state, g, post, context);
    for (int r = described->first_read; r >= 0; r = state->graph->read[r].next_of_consumer)
        if (is_local(state, r))
            return_inputs(state, r, post, context);
}

/* ---- messages ------------------------------------------------------------------------------ */

static void deliver_req(struct sbp_actor_state *state, int read, int slot)
{
    const struct sbp_actor_read *described = &state->graph->read[read];
    push(&state->arrived[read], slot);
    if (is_local(state, read) && state->arrived[read].count == described->takes)
        add_missing(state, described->consumer, -1);
}

static void deliver_ack(struct sbp_actor_state *state, int read, int slot)
{
    const int reg = state->graph->read[read].from;
    bool *hold = hold_of(state, read, slot);
    assert(*hold && "nobody acknowledges what it does not read");
    *hold = false;
    if (--state->output[reg].readers[slot] == 0)
        free_slot(state, reg, slot);
}

void sbp_actor_deliver(struct sbp_actor_state *state, struct sbp_actor_message message)
{
    if (message.kind == SBP_ACTOR_REQ)
        deliver_req(state, message.read, message.slot);
    else
        deliver_ack(state, message.read, message.slot);
}

/* The oldest slot of a ring; index < 0: it is empty. */
static struct sbp_actor_slot oldest_of(const struct sbp_actor_state *state, int reg,
                                       const struct sbp_actor_ring *ring)
{
    return ring->count == 0 ? (struct sbp_actor_slot){.index = -1}
                            : slot_of(state, reg, peek(ring, 0));
}

struct sbp_actor_slot sbp_actor_to_fill(const struct sbp_actor_state *state, int pull)
{
    const int reg = state->graph->actor[pull].first_register;
    return oldest_of(state, reg, &state->output[reg].written);
}

struct sbp_actor_slot sbp_actor_to_serve(const struct sbp_actor_state *state, int read)
{
    return oldest_of(state, state->graph->read[read].from, &state->arrived[read]);
}

void sbp_actor_serve(struct sbp_actor_state *state, int read, sbp_actor_post post, void *context)
{
    post_ack(state, read, pop(&state->arrived[read]), post, context);
    state->lane[SBP_LANE_NETWORK].away--;
}

/* ---- open and close ------------------------------------------------------------------------ */

static bool is_here(const struct sbp_actor_state *state, int actor)
{
    return state->graph->actor[actor].rank == state->rank;
}

static bool open_output(struct sbp_actor_state *state, int reg, struct sbp_arena *arena)
{
    const struct sbp_actor_graph *graph = state->graph;
    const int quota = graph->reg[reg].quota;
    struct sbp_actor_output *output = &state->output[reg];
    int64_t readers = 0, bytes = 0;
    for (int r = graph->reg[reg].first_read; r >= 0; r = graph->read[r].next_of_register)
        state->ordinal[r] = (int)readers++;
    const int64_t holds = readers * quota;
    output->readers = SBP_NEW(arena, int, quota);
    output->held = SBP_NEW(arena, bool, holds);
    if (!sbp_mul_i64(quota, graph->reg[reg].bytes, &bytes) || output->readers == NULL ||
        output->held == NULL || !make_ring(&output->free, quota, arena) ||
        !make_ring(&output->written, quota, arena))
        return false;
    for (int slot = 0; slot < quota; slot++)
        push(&output->free, slot);
    if (state->room != NULL) {
        output->memory = state->room + state->room_at;
        state->room_at += (bytes + 63) / 64 * 64;
    } else if (bytes > 0) {
        output->memory = state->memory->allocate(bytes);
    }
    return bytes == 0 || output->memory != NULL;
}

/* A read belongs to its consumer's rank; that of a pull also to where it reads. */
static bool open_read(struct sbp_actor_state *state, int read, struct sbp_arena *arena)
{
    const struct sbp_actor_graph *graph = state->graph;
    const struct sbp_actor_register *from = &graph->reg[graph->read[read].from];
    if (!is_here(state, from->producer))
        return true;
    if (is_local(state, read))
        state->actor[graph->read[read].consumer].missing++;
    else
        state->lane[SBP_LANE_NETWORK].away += graph->actor[from->producer].acts;
    return make_ring(&state->arrived[read], from->quota, arena);
}

static bool open_actor(struct sbp_actor_state *state, int actor, struct sbp_arena *arena)
{
    const struct sbp_actor_graph *graph = state->graph;
    const struct sbp_actor *described = &graph->actor[actor];
    struct sbp_actor_lane_state *lane = &state->lane[described->lane];
    int64_t ins = 0, outs = 0;
    for (int r = described->first_read; r >= 0; r = graph->read[r].next_of_consumer)
        ins += graph->read[r].takes;
    for (int g = described->first_register; g >= 0; g = graph->reg[g].next)
        outs++;
    struct sbp_actor_counters *own = &state->actor[actor];
    own->in = SBP_NEW(arena, struct sbp_actor_slot, ins);
    own->out = SBP_NEW(arena, struct sbp_actor_slot, outs);
    own->bit = lane->actors;
    lane->actor[lane->actors++] = actor;
    lane->left += described->acts;
    return own->in != NULL && own->out != NULL;
}

static bool open_lanes(struct sbp_actor_state *state, struct sbp_arena *arena)
{
    int count[SBP_LANES] = {0};
    for (int a = 0; a < state->graph->actors; a++)
        count[state->graph->actor[a].lane] += is_here(state, a);
    for (int l = 0; l < SBP_LANES; l++) {
        state->lane[l].actor = SBP_NEW(arena, int, count[l]);
        state->lane[l].ready = SBP_NEW(arena, uint64_t, count[l] / WORD_BITS + 1);
        if (state->lane[l].actor == NULL || state->lane[l].ready == NULL)
            return false;
    }
    return true;
}

static bool open_all(struct sbp_actor_state *state, struct sbp_arena *arena)
{
    const struct sbp_actor_graph *graph = state->graph;
    bool made = open_lanes(state, arena);
    for (int a = 0; made && a < graph->actors; a++)
        made = !is_here(state, a) || open_actor(state, a, arena);
    for (int g = 0; made && g < graph->registers; g++)
        made = !is_here(state, graph->reg[g].producer) || open_output(state, g, arena);
    for (int r = 0; made && r < graph->reads; r++)
        made = open_read(state, r, arena);
    for (int a = 0; made && a < graph->actors; a++)
        if (is_here(state, a))
            note_ready(state, a);
    return made;
}

enum sbp_status sbp_actor_open(struct sbp_actor_state *state, const struct sbp_actor_graph *graph,
                               int rank, const struct sbp_memory_ops *memory, void *room,
                               struct sbp_arena *arena)
{
    *state = (struct sbp_actor_state){
        .graph = graph,
        .memory = memory,
        .room = room,
        .rank = rank,
        .output = SBP_NEW(arena, struct sbp_actor_output, graph->registers),
        .arrived = SBP_NEW(arena, struct sbp_actor_ring, graph->reads),
        .ordinal = SBP_NEW(arena, int, graph->reads),
        .actor = SBP_NEW(arena, struct sbp_actor_counters, graph->actors),
    };
    const bool made = state->output != NULL && state->arrived != NULL && state->ordinal != NULL &&
                      state->actor != NULL;
    return made && open_all(state, arena) ? SBP_OK : SBP_E_MEMORY;
}

void sbp_actor_close(struct sbp_actor_state *state)
{
    for (int g = 0; state->output != NULL && g < state->graph->registers; g++)
        if (state->output[g].memory != NULL && state->room == NULL)
            state->memory->release(state->output[g].memory);
    *state = (struct sbp_actor_state){0};
}

bool sbp_actor_is_home(const struct sbp_actor_state *state, enum sbp_actor_lane lane)
{
    return state->lane[lane].left == 0 && state->lane[lane].away == 0;
}

void sbp_actor_assert_home(const struct sbp_actor_state *state)
{
    for (int lane = 0; lane < SBP_LANES; lane++)
        assert(sbp_actor_is_home(state, (enum sbp_actor_lane)lane) && "all acts have ended");
    for (int g = 0; g < state->graph->registers; g++)
        assert(state->output[g].free.count == state->output[g].free.room && "all slots are home");
    for (int r = 0; r < state->graph->reads; r++)
        assert(state->arrived[r].count == 0 && "all that was sent was read");
    (void)state;
}
