#include "executor/run/message_lane.h"

#include <assert.h>
#include <string.h>

#include "base/math/numeric.h"
#include "executor/actor/actor_check.h"

enum { FIRST_TAG = 32, LEAST_SLOTS = 2 };

/* ---- the graph ----------------------------------------------------------------------------- */

/* Messages of a stage, by direction. */
struct traffic {
    int64_t passed[2], taken[2];
    int64_t bytes[2]; /* of the largest that it passes */
};

/* What the graphs with more and more slots are made of. */
struct plan {
    const struct sbp_step *step;
    const struct sbp_tasks *tasks;
    int64_t real_bytes;
    struct traffic *traffic; /* (stages) */
};

static const struct sbp_instr *instr_of(const struct plan *plan, int stage, int64_t task)
{
    return sbp_task_instr(plan->step, stage, &plan->tasks[stage].task[task]);
}

static bool is_message(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_RECEIVE;
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
    if (instr->kind == SBP_INSTR_RECEIVE)
        traffic->taken[back]++;
    if (instr->kind != SBP_INSTR_SEND)
        return SBP_OK;
    const struct sbp_program *program =
        sbp_step_chunk(plan->step, stage, plan->tasks[stage].task[task].chunk);
    if (!sbp_mul_i64(program->buffer[instr->buffer[SBP_AT_IN]].elements, plan->real_bytes, &bytes))
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
        const int sent =
            sbp_actor_add_register(graph, pass, messages->slots, plan->traffic[stage].bytes[back]);
        (void)sbp_actor_add_read(graph, take, sbp_actor_add_pull(graph, sent, to, messages->slots),
                                 1);
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
        if (is_message(instr))
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
    for (int rank = 0; rank < ranks; rank++)
        add_actors(plan, (int)(rank / devices), rank, messages);
    for (int rank = 0; rank < ranks; rank++) {
        connect(plan, (int)(rank / devices), rank % devices, messages);
        SBP_TRY(set_order(plan, (int)(rank / devices), rank, messages));
    }
    return SBP_OK;
}

static int64_t most_messages(const struct plan *plan)
{
    int64_t most = 0;
    for (int stage = 0; stage < plan->step->stages; stage++)
        for (int back = 0; back < 2; back++)
            if (plan->traffic[stage].passed[back] > most)
                most = plan->traffic[stage].passed[back];
    return most;
}

/* Twice as many slots while stages wait for each other; with a slot a message they never wait to
 * send. */
static enum sbp_status draw_checked(const struct plan *plan, struct sbp_arena *arena,
                                    struct sbp_message_plan *messages, struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    for (int slots = LEAST_SLOTS;; slots *= 2) {
        struct sbp_diag circle = {{0}};
        messages->slots = slots;
        SBP_TRY(draw(plan, arena, messages));
        const enum sbp_status status = sbp_actor_check(&messages->graph, &circle);
        if (status != SBP_E_INPUT || slots >= most_messages(plan))
            return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", circle.text);
        sbp_arena_release(arena, mark);
    }
}

enum sbp_status sbp_message_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                      int64_t real_bytes, struct sbp_arena *arena,
                                      struct sbp_message_plan *messages, struct sbp_diag *diag)
{
    const struct plan plan = {.step = step,
                              .tasks = tasks,
                              .real_bytes = real_bytes,
                              .traffic = SBP_NEW(arena, struct traffic, step->stages)};
    *messages = (struct sbp_message_plan){.slots = 0};
    enum sbp_status status = plan.traffic == NULL ? SBP_E_MEMORY : count_messages(&plan);
    if (status == SBP_OK)
        status = draw_checked(&plan, arena, messages, diag);
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "messages between stages: %s", sbp_status_text(status));
}

/* ---- a rank's lane ------------------------------------------------------------------------- */

static enum sbp_status pass(void *context, bool forward, const void *buffer, int64_t bytes,
                            struct sbp_diag *diag)
{
    struct sbp_message_lane *lane = context;
    const int actor = lane->actors->pass[forward ? 0 : 1];
    struct sbp_act act;
    SBP_TRY(sbp_actor_enter(lane->running, actor, &act, diag));
    assert(bytes <= act.out[0].bytes);
    const enum sbp_status status = lane->job.memory->from_host(act.out[0].memory, buffer, bytes);
    sbp_actor_leave(lane->running, actor);
    return status;
}

static enum sbp_status take(void *context, bool forward, void *buffer, int64_t bytes,
                            struct sbp_diag *diag)
{
    struct sbp_message_lane *lane = context;
    const int actor = lane->actors->take[forward ? 0 : 1];
    struct sbp_act act;
    SBP_TRY(sbp_actor_enter(lane->running, actor, &act, diag));
    assert(bytes <= act.in[0].bytes);
    const enum sbp_status status = lane->job.memory->to_host(buffer, act.in[0].memory, bytes);
    sbp_actor_leave(lane->running, actor);
    return status;
}

static bool has_messages(const struct sbp_message_actors *actors)
{
    return actors->pass[0] >= 0 || actors->pass[1] >= 0 || actors->take[0] >= 0 ||
           actors->take[1] >= 0;
}

enum sbp_status sbp_message_lane_begin(struct sbp_message_lane *lane,
                                       const struct sbp_message_plan *messages,
                                       struct sbp_channel *channel, struct sbp_diag *diag)
{
    const struct sbp_comm_ops *ops = channel->ops;
    *lane = (struct sbp_message_lane){
        .actors = &messages->rank[ops->rank(channel->comm)],
        .job = {.graph = &messages->graph,
                .endpoint = {ops, channel->comm},
                .first_tag = FIRST_TAG,
                .memory = ops->memory},
        .carrier = {.pass = pass, .take = take, .context = lane},
    };
    if (!has_messages(lane->actors) || !ops->is_shared(channel->comm))
        return SBP_OK;
    SBP_TRY(sbp_actor_start(&lane->job, &lane->running, diag));
    channel->carrier = &lane->carrier;
    return SBP_OK;
}

enum sbp_status sbp_message_lane_end(struct sbp_message_lane *lane, struct sbp_channel *channel,
                                     enum sbp_status status, struct sbp_diag *diag)
{
    if (lane->running == NULL)
        return status;
    channel->carrier = NULL;
    return sbp_actor_finish(lane->running, status, diag);
}
