/* The network lane of a rank: pulls what its actors read of other ranks, and serves their pulls.
 *
 * It is the only one of the lanes that sends and receives. Each pull has two tags: an empty message
 * asks for the next content, another one brings it. A pull asks as soon as it has a free slot; the
 * answer may be long in coming, and meanwhile other pulls go on.
 */
#include "executor/actor/actor_lane_priv.h"

/* Backends that cannot tell when a message comes are asked again, soon at first. */
enum { FIRST_NAP_NS = 20 * 1000, LONGEST_NAP_NS = 200 * 1000 };

struct network {
    struct sbp_actor_lane_run *lane;
    struct sbp_actor_state *state;
    struct sbp_endpoint endpoint;
    int first_tag;
    int *served; /* (served_count) reads of other ranks' pulls */
    int served_count;
    struct sbp_diag *diag;
};

static enum sbp_status check(const struct network *network, enum sbp_status status)
{
    const struct sbp_endpoint *endpoint = &network->endpoint;
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(network->diag, status, "%s", endpoint->ops->reason(endpoint->comm));
}

static int ask_tag(const struct network *network, int read)
{
    return network->first_tag + 2 * read;
}

static int content_tag(const struct network *network, int read)
{
    return ask_tag(network, read) + 1;
}

static int producer_rank(const struct network *network, int read)
{
    const struct sbp_actor_graph *graph = network->state->graph;
    return graph->actor[graph->reg[graph->read[read].from].producer].rank;
}

static int consumer_rank(const struct network *network, int read)
{
    const struct sbp_actor_graph *graph = network->state->graph;
    return graph->actor[graph->read[read].consumer].rank;
}

static enum sbp_status send(const struct network *network, int peer, int tag,
                            const struct sbp_actor_slot *slot)
{
    const struct sbp_endpoint *endpoint = &network->endpoint;
    return check(network,
                 endpoint->ops->send(endpoint->comm, peer, tag, slot->memory, slot->bytes));
}

static enum sbp_status try_receive(const struct network *network, int peer, int tag,
                                   const struct sbp_actor_slot *slot, bool *arrived)
{
    const struct sbp_endpoint *endpoint = &network->endpoint;
    return check(network, endpoint->ops->try_receive(endpoint->comm, peer, tag, slot->memory,
                                                     slot->bytes, arrived));
}

/* Sends what is filled to those who have asked for it. */
static enum sbp_status serve(const struct network *network, int read, bool *moved)
{
    const struct sbp_actor_slot nothing = {.memory = NULL};
    const int peer = consumer_rank(network, read);
    for (;;) {
        const struct sbp_actor_slot slot = sbp_actor_to_serve(network->state, read);
        bool asked = false;
        if (slot.index >= 0)
            SBP_TRY(try_receive(network, peer, ask_tag(network, read), &nothing, &asked));
        if (!asked)
            return SBP_OK;
        SBP_TRY(send(network, peer, content_tag(network, read), &slot));
        sbp_actor_serve(network->state, read, sbp_actor_lane_post, network->lane);
        *moved = true;
    }
}

/* Asks for as much as there are free slots for, and receives what has come. */
static enum sbp_status pull(const struct network *network, int actor, bool *moved)
{
    const struct sbp_actor_slot nothing = {.memory = NULL};
    const int read = network->state->graph->actor[actor].first_read;
    const int peer = producer_rank(network, read);
    for (;;) {
        struct sbp_act act;
        for (; sbp_actor_is_ready(network->state, actor); *moved = true) {
            sbp_actor_begin(network->state, actor, &act);
            SBP_TRY(send(network, peer, ask_tag(network, read), &nothing));
        }
        const struct sbp_actor_slot slot = sbp_actor_to_fill(network->state, actor);
        bool arrived = false;
        if (slot.index >= 0)
            SBP_TRY(try_receive(network, peer, content_tag(network, read), &slot, &arrived));
        if (!arrived)
            return SBP_OK;
        sbp_actor_end(network->state, actor, sbp_actor_lane_post, network->lane);
        *moved = true;
    }
}

/* One look at everything; *moved: something came of it. */
static enum sbp_status turn(const struct network *network, bool *moved)
{
    const struct sbp_actor_lane_state *own = &network->state->lane[SBP_LANE_NETWORK];
    for (int i = 0; i < network->served_count; i++)
        SBP_TRY(serve(network, network->served[i], moved));
    for (int i = 0; i < own->actors; i++)
        SBP_TRY(pull(network, own->actor[i], moved));
    return SBP_OK;
}

static void heard(void *lane)
{
    sbp_actor_lane_poke(lane);
}

/* Stays until everything has left: the rank may compute for long before it communicates again, and
 * whoever receives a message that does not come can serve nobody meanwhile. */
static enum sbp_status see_off(const struct network *network)
{
    const struct sbp_endpoint *endpoint = &network->endpoint;
    bool all = endpoint->ops->have_left == NULL;
    while (!all && sbp_actor_lane_take(network->lane)) {
        SBP_TRY(check(network, endpoint->ops->have_left(endpoint->comm, &all)));
        if (!all)
            sbp_actor_lane_wait(network->lane, FIRST_NAP_NS);
    }
    return SBP_OK;
}

static enum sbp_status play(const struct network *network, bool hears)
{
    struct sbp_actor_lane_run *lane = network->lane;
    int64_t nap_ns = FIRST_NAP_NS;
    while (!sbp_actor_is_home(network->state, SBP_LANE_NETWORK)) {
        bool moved = false;
        if (!sbp_actor_lane_take(lane))
            return SBP_OK;
        SBP_TRY(turn(network, &moved));
        nap_ns = moved ? FIRST_NAP_NS : nap_ns < LONGEST_NAP_NS ? 2 * nap_ns : nap_ns;
        if (!moved && !sbp_actor_is_home(network->state, SBP_LANE_NETWORK))
            sbp_actor_lane_wait(lane, hears ? 0 : nap_ns);
    }
    return see_off(network);
}

static bool is_served(const struct network *network, int read)
{
    return producer_rank(network, read) == network->state->rank &&
           consumer_rank(network, read) != network->state->rank;
}

static enum sbp_status list_served(struct network *network)
{
    const int reads = network->state->graph->reads;
    network->served = SBP_NEW(&network->lane->running->arena, int, reads);
    if (network->served == NULL)
        return sbp_fail(network->diag, SBP_E_MEMORY, "out of memory for the network lane");
    for (int r = 0; r < reads; r++)
        if (is_served(network, r))
            network->served[network->served_count++] = r;
    return SBP_OK;
}

enum sbp_status sbp_actor_network_play(struct sbp_actor_lane_run *lane, struct sbp_diag *diag)
{
    const struct sbp_actor_job *job = lane->running->job;
    struct network network = {.lane = lane,
                              .state = &lane->running->state,
                              .endpoint = job->endpoint,
                              .first_tag = job->first_tag,
                              .diag = diag};
    SBP_TRY(list_served(&network));
    const struct sbp_comm_ops *ops = network.endpoint.ops;
    const bool hears = ops->listen(network.endpoint.comm, heard, lane);
    const enum sbp_status status = play(&network, hears);
    (void)ops->listen(network.endpoint.comm, NULL, NULL);
    return status;
}
