#include "executor/run/sum_lane.h"

#include "base/clock.h"
#include "executor/actor/actor_check.h"

/* ---- the graph ----------------------------------------------------------------------------- */

static bool sums(const struct sbp_step *step, int stage, const struct sbp_task *task)
{
    return sbp_task_sums_beside(sbp_task_instr(step, stage, task), task);
}

static int count_sums(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks)
{
    int count = 0;
    for (int64_t i = 0; i < tasks->count; i++)
        count += sums(step, stage, &tasks->task[i]);
    return count;
}

/* An actor again and again: the order of a lane. */
static enum sbp_status set_order(struct sbp_sum_plan *plan, int rank, enum sbp_actor_lane lane,
                                 int actor, int count)
{
    int *order = SBP_NEW(plan->graph.arena, int, count);
    if (order == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < count; i++)
        order[i] = actor;
    sbp_actor_set_order(&plan->graph, rank, lane, order, count);
    return SBP_OK;
}

/* With a slot a sum the lane never waits for the rank. */
static enum sbp_status add_rank(struct sbp_sum_plan *plan, int rank, int count)
{
    struct sbp_actor_graph *graph = &plan->graph;
    plan->sum[rank] = plan->wait[rank] = -1;
    if (count == 0)
        return SBP_OK;
    const int sum = sbp_actor_add(graph, "sum of gradients", rank, SBP_LANE_COLLECTIVE, count);
    const int wait = sbp_actor_add(graph, "wait for a sum", rank, SBP_LANE_COMPUTE, count);
    (void)sbp_actor_add_read(graph, wait, sbp_actor_add_register(graph, sum, count, 0), 1);
    plan->sum[rank] = sum;
    plan->wait[rank] = wait;
    SBP_TRY(set_order(plan, rank, SBP_LANE_COLLECTIVE, sum, count));
    return set_order(plan, rank, SBP_LANE_COMPUTE, wait, count);
}

enum sbp_status sbp_sum_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_sum_plan *plan,
                                  struct sbp_diag *diag)
{
    const int devices = (int)step->mesh.devices, ranks = step->stages * devices;
    *plan = (struct sbp_sum_plan){.sum = SBP_NEW(arena, int, ranks),
                                  .wait = SBP_NEW(arena, int, ranks)};
    enum sbp_status status = plan->sum == NULL || plan->wait == NULL ? SBP_E_MEMORY : SBP_OK;
    sbp_actor_graph_init(&plan->graph, arena, ranks);
    for (int stage = 0; stage < step->stages; stage++) {
        const int count = count_sums(step, stage, &tasks[stage]);
        for (int place = 0; status == SBP_OK && place < devices; place++)
            status = add_rank(plan, stage * devices + place, count);
    }
    if (status == SBP_OK)
        return sbp_actor_check(&plan->graph, diag);
    return sbp_fail(diag, status, "out of memory for sums beside the optimizer");
}

/* ---- a rank's lane ------------------------------------------------------------------------- */

static enum sbp_status sum_timed(struct sbp_sum_lane *lane, int64_t index, struct sbp_diag *diag)
{
    const struct sbp_task *task = &lane->tasks->task[index];
    struct sbp_run_interval *interval = &lane->intervals[index];
    const double wall_s = sbp_clock_s(), exchange_s = lane->channel.wall_s;
    sbp_rank_turn_to(&lane->rank, task);
    SBP_TRY(sbp_rank_execute(&lane->rank, &lane->rank.program->instr[task->instr], diag));
    *interval = (struct sbp_run_interval){.start_s = wall_s - lane->step_start_s,
                                          .wall_s = sbp_clock_s() - wall_s,
                                          .communication_s = lane->channel.wall_s - exchange_s};
    return SBP_OK;
}

static enum sbp_status act(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    struct sbp_sum_lane *lane = context;
    const struct sbp_channel *channel = &lane->channel;
    (void)act;
    while (!sums(channel->step, channel->stage, &lane->tasks->task[lane->next]))
        lane->next++;
    return sum_timed(lane, lane->next++, diag);
}

enum sbp_status sbp_sum_lane_begin(struct sbp_sum_lane *lane, const struct sbp_sum_plan *plan,
                                   const struct sbp_rank *rank, const struct sbp_tasks *tasks,
                                   int64_t first, struct sbp_run_interval *intervals,
                                   double step_start_s, struct sbp_diag *diag)
{
    const struct sbp_channel *channel = rank->channel;
    *lane = (struct sbp_sum_lane){
        .wait = plan->wait[channel->ops->rank(channel->comm)],
        .rank = *rank,
        .channel = *channel,
        .tasks = tasks,
        .next = first,
        .intervals = intervals,
        .step_start_s = step_start_s,
        .job = {.graph = &plan->graph,
                .endpoint = {channel->ops, channel->comm},
                .memory = channel->ops->memory,
                .action = act,
                .context = lane},
    };
    lane->rank.channel = &lane->channel;
    lane->channel.post = NULL; /* the rank's own says for whom it waits */
    return sbp_actor_start(&lane->job, &lane->running, diag);
}

enum sbp_status sbp_sum_lane_wait(struct sbp_sum_lane *lane, struct sbp_diag *diag)
{
    struct sbp_act act;
    SBP_TRY(sbp_actor_enter(lane->running, lane->wait, &act, diag));
    sbp_actor_leave(lane->running, lane->wait);
    return SBP_OK;
}

enum sbp_status sbp_sum_lane_end(struct sbp_sum_lane *lane, struct sbp_channel *channel,
                                 enum sbp_status status, struct sbp_diag *diag)
{
    if (lane->running == NULL)
        return status;
    status = sbp_actor_finish(lane->running, status, diag);
    lane->running = NULL;
    channel->logged = lane->channel.logged;
    channel->wall_s = lane->channel.wall_s;
    channel->cpu_s = lane->channel.cpu_s;
    return status;
}
