#include "executor/run/message_lane.h"

#include <assert.h>
#include <string.h>

#include "base/math/numeric.h"
#include "executor/actor/actor_check.h"

enum { TAG_TURN = 24, FIRST_TAG = 32 };

/* ---- the graph ----------------------------------------------------------------------------- */

/* Messages of a stage, by direction. */
struct traffic {
    int64_t passed[2], taken[2];
    int64_t bytes[2]; /* of the largest that it passes */
};

/* What the graph is made of. */
struct plan {
    const struct sbp_step *step;
    const struct sbp_tasks *tasks;
    struct traffic *traffic; /* (stages) */
};

static const struct sbp_instr *instr_of(const struct plan *plan, int stage, int64_t task)
{
    return sbp_task_instr(plan->step, stage, &plan->tasks[stage].task[task]);
}

/* Whether actors take it, whose orders are checked. An act belongs to a step, and without a flush a
 * message passes from one step to the next. There nobody waits to send, so that stages could wait
 * for each other by their lists alone: playing these for the prediction, before a run, finds that
 * (costmodel/program/task_play.h). */
static bool is_message(const struct plan *plan, const struct sbp_instr *instr)
{
    return (instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_RECEIVE) &&
           !sbp_timeline_delays_gradients(plan->step->parallel.schedule);
}

static int back_of(const struct sbp_instr *instr)
{
    return instr->section == SBP_SECTION_FORWARD ? 0 : 1;
}

static enum sbp_status count_message(const struct plan *plan, int stage, int64_t task)
{
    const struct sbp_instr *instr = instr_of(plan, stage, task);
    struct traffic *traffic = &plan->traffic[stage];
    const int back = back_of(instr);
    int64_t bytes;
    if (!is_message(plan, instr))
        return SBP_OK;
    if (instr->kind == SBP_INSTR_RECEIVE) {
        traffic->taken[back]++;
        return SBP_OK;
    }
    const struct sbp_program *program =
        sbp_step_chunk(plan->step, stage, plan->tasks[stage].task[task].chunk);
    if (!sbp_mul_i64(program->buffer[instr->buffer[SBP_AT_IN]].elements, program->bytes.activation,
                     &bytes))
        return SBP_E_RANGE;
    traffic->passed[back]++;
    traffic->bytes[back] = bytes > traffic->bytes[back] ? bytes : traffic->bytes[back];
    return SBP_OK;
}

static enum sbp_status count_messages(const struct plan *plan)
{
    for (int stage = 0; stage < plan->step->stages; stage++)
        for (int64_t i = 0; i < plan->tasks[stage].count; i++)
            SBP_TRY(count_message(plan, stage, i));
    return SBP_OK;
}

static int rank_of(const struct plan *plan, int stage, int64_t place)
{
    return (int)(stage * plan->step->mesh.devices + place);
}

/* The works of a rank, which take and pass. Of those that can begin the last one does. */
static void add_works(const struct plan *plan, int rank, struct sbp_message_plan *messages)
{
    static const char *const name[] = {"forward work", "backward work"};
    struct sbp_message_actors *own = &messages->rank[rank];
    for (int back = 0; back < 2; back++)
        own->pass[back] = own->take[back] = sbp_actor_add(
            &messages->graph, name[back], rank, SBP_LANE_COMPUTE, plan->step->micro_batches);
}

/* Actors of a rank: one passes all messages of a direction, one takes them. */
static void add_actors(const struct plan *plan, int stage, int rank,
                       struct sbp_message_plan *messages)
{
    static const char *const pass[] = {"send activations", "send gradients"};
    static const char *const take[] = {"receive activations", "receive gradients"};
    const struct traffic *traffic = &plan->traffic[stage];
    struct sbp_actor_graph *graph = &messages->graph;
    for (int back = 0; back < 2; back++) {
        struct sbp_message_actors *own = &messages->rank[rank];
        own->pass[back] = own->take[back] = -1;
        if (traffic->passed[back] > 0)
            own->pass[back] =
                sbp_actor_add(graph, pass[back], rank, SBP_LANE_COMPUTE, traffic->passed[back]);
        if (traffic->taken[back] > 0)
            own->take[back] =
                sbp_actor_add(graph, take[back], rank, SBP_LANE_COMPUTE, traffic->taken[back]);
    }
}

/* What a rank passes goes to the same place of the stage after, or before. */
static void connect(const struct plan *plan, int stage, int64_t place,
                    struct sbp_message_plan *messages)
{
    const int stages = plan->step->stages;
    struct sbp_actor_graph *graph = &messages->graph;
    for (int back = 0; back < 2; back++) {
        const int to = rank_of(plan, (stage + (back ? stages - 1 : 1)) % stages, place);
        const int pass = messages->rank[rank_of(plan, stage, place)].pass[back];
        const int take = messages->rank[to].take[back];
        if (pass < 0 || take < 0)
            continue;
        const int64_t acts = graph->failed ? 1 : graph->actor[pass].acts;
        const int quota = acts < messages->slots ? (int)acts : messages->slots;
        const int sent =
            sbp_actor_add_register(graph, pass, quota, plan->traffic[stage].bytes[back]);
        (void)sbp_actor_add_read(graph, take, sbp_actor_add_pull(graph, sent, to, quota), 1);
    }
}

/* Messages in the order of the stage's tasks. */
static enum sbp_status set_order(const struct plan *plan, int stage, int rank,
                                 struct sbp_message_plan *messages)
{
    const struct traffic *traffic = &plan->traffic[stage];
    const struct sbp_message_actors *actors = &messages->rank[rank];
    int64_t count = 0;
    int *order =
        SBP_NEW(messages->graph.arena, int,
                traffic->passed[0] + traffic->passed[1] + traffic->taken[0] + traffic->taken[1]);
    if (order == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < plan->tasks[stage].count; i++) {
        const struct sbp_instr *instr = instr_of(plan, stage, i);
        if (is_message(plan, instr))
            order[count++] = instr->kind == SBP_INSTR_SEND ? actors->pass[back_of(instr)]
                                                           : actors->take[back_of(instr)];
    }
    sbp_actor_set_order(&messages->graph, rank, SBP_LANE_COMPUTE, order, count);
    return SBP_OK;
}

static enum sbp_status draw(const struct plan *plan, struct sbp_arena *arena,
                            struct sbp_message_plan *messages)
{
    const int64_t devices = plan->step->mesh.devices;
    const int ranks = rank_of(plan, plan->step->stages, 0);
    sbp_actor_graph_init(&messages->graph, arena, ranks);
    messages->rank = SBP_NEW(arena, struct sbp_message_actors, ranks);
    if (messages->rank == NULL)
        return SBP_E_MEMORY;
    for (int rank = 0; rank < ranks; rank++) {
        const int stage = (int)(rank / devices);
        if (sbp_tasks_are_driven(&plan->tasks[stage]))
            add_works(plan, rank, messages);
        else
            add_actors(plan, stage, rank, messages);
    }
    for (int rank = 0; rank < ranks; rank++) {
        const int stage = (int)(rank / devices);
        connect(plan, stage, rank % devices, messages);
        if (!sbp_tasks_are_driven(&plan->tasks[stage]))
            SBP_TRY(set_order(plan, stage, rank, messages));
    }
    return SBP_OK;
}

enum sbp_status sbp_message_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                      struct sbp_arena *arena, struct sbp_message_plan *messages,
                                      struct sbp_diag *diag)
{
    const struct plan plan = {
        .step = step, .tasks = tasks, .traffic = SBP_NEW(arena, struct traffic, step->stages)};
    *messages = (struct sbp_message_plan){.slots = sbp_stage_slots(step)};
    enum sbp_status status = plan.traffic == NULL ? SBP_E_MEMORY : count_messages(&plan);
    if (status == SBP_OK)
        status = draw(&plan, arena, messages);
    if (status == SBP_OK)
        return sbp_actor_check(&messages->graph, diag);
    return sbp_fail(diag, status, "messages between stages: %s", sbp_status_text(status));
}

/* ---- who takes messages, and slots ---------------------------------------------------------- */

void sbp_message_lane_find(struct sbp_messenger *messenger, const struct sbp_channel *channel,
                           const struct sbp_device_ops *device)
{
    const struct sbp_endpoint own = {channel->ops, channel->comm}, host = own.ops->host(own.comm);
    const bool is_driven = channel->step->parallel.schedule == SBP_MESSAGE_DRIVEN;
    *messenger = (struct sbp_messenger){.device = device};
    if (own.ops->is_shared(own.comm))
        messenger->endpoint = own;
    else if (is_driven && channel->by_host && host.ops->is_shared(host.comm))
        messenger->endpoint = host;
    else
        return;
    messenger->slot_bytes = sbp_stage_slot_bytes(channel->step, channel->stage);
    messenger->behind_bytes = messenger->endpoint.ops == own.ops ? messenger->slot_bytes : 0;
}

enum sbp_status sbp_message_lane_reserve(struct sbp_messenger *messenger, void *behind,
                                         struct sbp_diag *diag)
{
    const int64_t bytes = messenger->slot_bytes;
    if (bytes == 0)
        return SBP_OK;
    messenger->slots =
        messenger->behind_bytes > 0 ? behind : messenger->device->allocate_host(bytes);
    return messenger->slots != NULL
               ? SBP_OK
               : sbp_fail(diag, SBP_E_MEMORY, "no %lld bytes of host memory for messages",
                          (long long)bytes);
}

void sbp_message_lane_release(struct sbp_messenger *messenger)
{
    if (messenger->slots != NULL && messenger->behind_bytes == 0)
        messenger->device->release_host(messenger->slots);
}

/* ---- a rank's lane ------------------------------------------------------------------------- */

/* Begins to act, unless the work that acts is under way. */
static enum sbp_status enter(struct sbp_message_lane *lane, int actor, struct sbp_diag *diag)
{
    if (lane->is_acting)
        return lane->act.actor == actor
                   ? SBP_OK
                   : sbp_fail(diag, SBP_E_INTERNAL, "a work takes or passes what is another's");
    SBP_TRY(sbp_actor_enter(lane->running, actor, &lane->act, diag));
    lane->is_acting = true;
    lane->has_taken = false;
    return SBP_OK;
}

static void leave(struct sbp_message_lane *lane)
{
    sbp_actor_leave(lane->running, lane->act.actor);
    lane->is_acting = false;
}

/* A work has not taken, or not passed, its message: others would wait for it, or get another. */
static enum sbp_status left_out(const struct sbp_message_lane *lane, struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_INTERNAL, "actors: a message of %s is left out",
                    lane->job.graph->actor[lane->act.actor].name);
}

static void note_slot(struct sbp_message_lane *lane, const struct sbp_actor_slot *slot)
{
    const int64_t end = (char *)slot->memory - (char *)lane->messenger->slots + slot->bytes;
    if (end > lane->high_water_bytes)
        lane->high_water_bytes = end;
}

static enum sbp_status pass(void *context, bool forward, const void *buffer, int64_t bytes,
                            struct sbp_diag *diag)
{
    struct sbp_message_lane *lane = context;
    SBP_TRY(enter(lane, lane->actors->pass[forward ? 0 : 1], diag));
    if (sbp_tasks_are_driven(lane->tasks) && !lane->has_taken)
        return left_out(lane, diag);
    const struct sbp_actor_slot *slot = &lane->act.out[0];
    assert(bytes <= slot->bytes);
    note_slot(lane, slot);
    const enum sbp_status status =
        lane->messenger->device->memory->to_host(slot->memory, buffer, bytes);
    leave(lane);
    return status;
}

/* The work that takes a message acts until it has passed the next one. */
static enum sbp_status take(void *context, bool forward, void *buffer, int64_t bytes,
                            struct sbp_diag *diag)
{
    struct sbp_message_lane *lane = context;
    SBP_TRY(enter(lane, lane->actors->take[forward ? 0 : 1], diag));
    const struct sbp_actor_slot *slot = &lane->act.in[0];
    assert(bytes <= slot->bytes);
    note_slot(lane, slot);
    const enum sbp_status status =
        lane->messenger->device->memory->from_host(buffer, slot->memory, bytes);
    lane->has_taken = true;
    if (!sbp_tasks_are_driven(lane->tasks))
        leave(lane);
    return status;
}

static bool has_messages(const struct sbp_message_actors *actors)
{
    return actors->pass[0] >= 0 || actors->pass[1] >= 0 || actors->take[0] >= 0 ||
           actors->take[1] >= 0;
}

enum sbp_status sbp_message_lane_begin(struct sbp_message_lane *lane,
                                       const struct sbp_message_plan *messages,
                                       const struct sbp_tasks *tasks, struct sbp_channel *channel,
                                       const struct sbp_messenger *messenger, struct sbp_diag *diag)
{
    *lane = (struct sbp_message_lane){
        .actors = &messages->rank[channel->ops->rank(channel->comm)],
        .tasks = tasks,
        .channel = channel,
        .messenger = messenger,
        .job = {.graph = &messages->graph,
                .endpoint = messenger->endpoint,
                .first_tag = FIRST_TAG,
                .memory = &sbp_device_host_memory,
                .room = messenger->slots},
        .carrier = {.pass = pass, .take = take, .context = lane},
        .together = sbp_tasks_are_driven(tasks) ? sbp_channel_work_axes(channel, tasks) : 0,
    };
    if (!has_messages(lane->actors) || messenger->endpoint.ops == NULL)
        return SBP_OK;
    SBP_TRY(sbp_actor_start(&lane->job, &lane->running, diag));
    channel->carrier = &lane->carrier;
    return SBP_OK;
}

/* ---- what comes next ----------------------------------------------------------------------- */

/* A rank that does works in one order with this one; the first of them decides. */
static int companion(const struct sbp_message_lane *lane, int64_t member)
{
    const struct sbp_channel *channel = lane->channel;
    const int64_t place =
        sbp_mesh_group_rank(&channel->step->mesh, lane->together, channel->place, member);
    return sbp_channel_rank(channel, channel->stage, place);
}

static enum sbp_status decide(struct sbp_message_lane *lane, int *actor, struct sbp_diag *diag)
{
    struct sbp_channel *channel = lane->channel;
    const int64_t members = sbp_mesh_group_size(&channel->step->mesh, lane->together);
    SBP_TRY(sbp_actor_await(lane->running, actor, diag));
    const bool back = *actor == lane->actors->take[1];
    for (int64_t member = 1; member < members; member++)
        SBP_TRY(
            sbp_channel_send(channel, companion(lane, member), TAG_TURN, &back, sizeof back, diag));
    return SBP_OK;
}

static enum sbp_status follow(struct sbp_message_lane *lane, int *actor, struct sbp_diag *diag)
{
    bool back;
    SBP_TRY(
        sbp_channel_receive(lane->channel, companion(lane, 0), TAG_TURN, &back, sizeof back, diag));
    *actor = lane->actors->take[back];
    return SBP_OK;
}

/* Notes that the rank waits for the stage before, or behind where no activations are left: it may
 * be for either. */
static void note_waiting(const struct sbp_message_lane *lane)
{
    const struct sbp_channel *channel = lane->channel;
    const bool back = lane->done[0] == channel->step->micro_batches;
    sbp_post_task(channel->post, (int)lane->tasks->begin[back][lane->done[back]]);
    sbp_post_wait(channel->post,
                  sbp_channel_rank(channel, channel->stage + (back ? 1 : -1), channel->place));
}

/* Begins the work whose message has come. */
static enum sbp_status choose(struct sbp_message_lane *lane, struct sbp_diag *diag)
{
    const struct sbp_channel *channel = lane->channel;
    const int rank = channel->ops->rank(channel->comm);
    int actor;
    note_waiting(lane);
    SBP_TRY(companion(lane, 0) == rank ? decide(lane, &actor, diag) : follow(lane, &actor, diag));
    SBP_TRY(enter(lane, actor, diag));
    sbp_post_wait(channel->post, SBP_WAITS_NOT);
    const int back = actor == lane->actors->take[1];
    lane->at = lane->tasks->begin[back][lane->done[back]++];
    sbp_channel_turn(lane->channel, lane->at);
    return SBP_OK;
}

enum sbp_status sbp_message_lane_next(struct sbp_message_lane *lane, int64_t *first, int64_t *end,
                                      struct sbp_diag *diag)
{
    const bool chooses = lane->running != NULL && sbp_tasks_are_driven(lane->tasks) &&
                         lane->done[1] < lane->channel->step->micro_batches;
    if (lane->is_acting)
        return left_out(lane, diag);
    if (chooses)
        SBP_TRY(choose(lane, diag));
    *first = lane->at;
    if (lane->at < lane->tasks->count)
        lane->at = sbp_tasks_end(lane->tasks, lane->at);
    *end = lane->at;
    return SBP_OK;
}

enum sbp_status sbp_message_lane_end(struct sbp_message_lane *lane, enum sbp_status status,
                                     struct sbp_diag *diag)
{
    if (lane->running == NULL)
        return status;
    lane->channel->carrier = NULL;
    return sbp_actor_finish(lane->running, status, diag);
}
