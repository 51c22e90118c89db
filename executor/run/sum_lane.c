#include "executor/run/sum_lane.h"

#include <time.h>

#include "base/clock.h"
#include "executor/actor/actor_check.h"

/* ---- the graph ----------------------------------------------------------------------------- */

static int count_sums(const struct sbp_tasks *tasks)
{
    int count = 0;
    for (int64_t i = 0; i < tasks->count; i++)
        count += tasks->task[i].is_beside;
    return count;
}

/* The lane sums again and again. */
static enum sbp_status set_order(struct sbp_actor_graph *graph, int rank, int sum, int count)
{
    int *order = SBP_NEW(graph->arena, int, count);
    if (order == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < count; i++)
        order[i] = sum;
    sbp_actor_set_order(graph, rank, SBP_LANE_COLLECTIVE, order, count);
    return SBP_OK;
}

/* With a slot a sum neither waits for the other but where the rank does. */
static enum sbp_status add_rank(struct sbp_sum_plan *plan, int rank, int count)
{
    struct sbp_actor_graph *graph = &plan->graph;
    plan->give[rank] = plan->wait[rank] = -1;
    if (count == 0)
        return SBP_OK;
    const int give = sbp_actor_add(graph, "a gradient", rank, SBP_LANE_COMPUTE, count);
    const int sum = sbp_actor_add(graph, "sum of gradients", rank, SBP_LANE_COLLECTIVE, count);
    const int wait = sbp_actor_add(graph, "wait for a sum", rank, SBP_LANE_COMPUTE, count);
    (void)sbp_actor_add_read(graph, sum, sbp_actor_add_register(graph, give, count, 0), 1);
    (void)sbp_actor_add_read(graph, wait, sbp_actor_add_register(graph, sum, count, 0), 1);
    plan->give[rank] = give;
    plan->wait[rank] = wait;
    return set_order(graph, rank, sum, count);
}

enum sbp_status sbp_sum_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_sum_plan *plan,
                                  struct sbp_diag *diag)
{
    const int devices = (int)step->mesh.devices, ranks = step->stages * devices;
    *plan = (struct sbp_sum_plan){.give = SBP_NEW(arena, int, ranks),
                                  .wait = SBP_NEW(arena, int, ranks)};
    enum sbp_status status = plan->give == NULL || plan->wait == NULL ? SBP_E_MEMORY : SBP_OK;
    sbp_actor_graph_init(&plan->graph, arena, ranks);
    for (int stage = 0; stage < step->stages; stage++) {
        const int count = count_sums(&tasks[stage]);
        for (int place = 0; status == SBP_OK && place < devices; place++)
            status = add_rank(plan, stage * devices + place, count);
    }
    if (status == SBP_OK)
        return sbp_actor_check(&plan->graph, diag);
    return sbp_fail(diag, status, "out of memory for sums of gradients beside");
}

/* ---- a rank's lane ------------------------------------------------------------------------- */

/* As long as a rank needs to spoil what a sum still reads. */
static void sleep_late(void)
{
    const struct timespec late = {.tv_nsec = 20 * 1000 * 1000};
    (void)nanosleep(&late, NULL);
}

static enum sbp_status sum_timed(struct sbp_sum_lane *lane, int64_t index, struct sbp_diag *diag)
{
    const struct sbp_task *task = &lane->tasks->task[index];
    struct sbp_run_interval *interval = &lane->intervals[index];
    const double wall_s = sbp_clock_s(), exchange_s = lane->channel.wall_s;
    if (lane->is_late)
        sleep_late();
    sbp_channel_turn(&lane->channel, index);
    sbp_rank_turn_to(&lane->rank, task);
    lane->rank.adds = task->adds;
    SBP_TRY(sbp_rank_execute(&lane->rank, &lane->rank.program->instr[task->instr], diag));
    *interval = (struct sbp_run_interval){.start_s = wall_s - lane->step_start_s,
                                          .wall_s = sbp_clock_s() - wall_s,
                                          .communication_s = lane->channel.wall_s - exchange_s};
    return SBP_OK;
}

/* The next sum of the list, from a task on. */
static int64_t find_sum(const struct sbp_tasks *tasks, int64_t from)
{
    while (!tasks->task[from].is_beside)
        from++;
    return from;
}

static enum sbp_status act(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    struct sbp_sum_lane *lane = context;
    (void)act;
    const int64_t at = find_sum(lane->tasks, lane->next);
    lane->next = at + 1;
    return sum_timed(lane, at, diag);
}

enum sbp_status sbp_sum_lane_begin(struct sbp_sum_lane *lane, const struct sbp_sum_plan *plan,
                                   const struct sbp_rank *rank, const struct sbp_tasks *tasks,
                                   struct sbp_run_interval *intervals, double step_start_s,
                                   struct sbp_diag *diag)
{
    const struct sbp_channel *channel = rank->channel;
    const int own = channel->ops->rank(channel->comm);
    *lane = (struct sbp_sum_lane){
        .give = plan->give[own],
        .wait = plan->wait[own],
        .is_late = plan->is_late,
        .rank = *rank,
        .channel = *channel,
        .tasks = tasks,
        .intervals = intervals,
        .step_start_s = step_start_s,
        .job = {.graph = &plan->graph,
                .endpoint = {channel->ops, channel->comm},
                .memory = channel->ops->memory,
                .action = act,
                .context = lane},
    };
    lane->rank.channel = &lane->channel;
    lane->channel.logged = 0;
    lane->channel.post = NULL; /* the rank's own says for whom it waits */
    return sbp_actor_start(&lane->job, &lane->running, diag);
}

static enum sbp_status enter_and_leave(struct sbp_sum_lane *lane, int actor, struct sbp_diag *diag)
{
    struct sbp_act act;
    SBP_TRY(sbp_actor_enter(lane->running, actor, &act, diag));
    sbp_actor_leave(lane->running, actor);
    return SBP_OK;
}

enum sbp_status sbp_sum_lane_give(struct sbp_sum_lane *lane, int64_t index, struct sbp_diag *diag)
{
    const struct sbp_tasks *tasks = lane->tasks;
    const bool all = sbp_task_sums_buckets(&tasks->task[index]);
    if (index < lane->given)
        return SBP_OK;
    for (int64_t i = index; i < (all ? tasks->count : index + 1); i++)
        if (tasks->task[i].is_beside) {
            SBP_TRY(enter_and_leave(lane, lane->give, diag));
            lane->given = i + 1;
        }
    return SBP_OK;
}

enum sbp_status sbp_sum_lane_wait(struct sbp_sum_lane *lane, int64_t after, struct sbp_post *post,
                                  struct sbp_diag *diag)
{
    enum sbp_status status = SBP_OK;
    const double from_s = sbp_clock_s();
    while (status == SBP_OK && lane->waited < after) {
        const int64_t at = find_sum(lane->tasks, lane->waited);
        const struct sbp_instr *instr =
            sbp_task_instr(lane->channel.step, lane->channel.stage, &lane->tasks->task[at]);
        sbp_post_task(post, (int)at);
        sbp_post_wait_group(post, &(struct sbp_members){.axes = instr->box.axes});
        status = enter_and_leave(lane, lane->wait, diag);
        lane->waited = at + 1;
    }
    sbp_post_wait(post, SBP_WAITS_NOT);
    lane->waited_s += sbp_clock_s() - from_s;
    return status;
}

enum sbp_status sbp_sum_lane_end(struct sbp_sum_lane *lane, struct sbp_rank *rank,
                                 enum sbp_status status, struct sbp_diag *diag)
{
    if (lane->running == NULL)
        return status;
    status = sbp_actor_finish(lane->running, status, diag);
    lane->running = NULL;
    rank->channel->logged += lane->channel.logged;
    if (lane->rank.high_water_bytes > rank->high_water_bytes)
        rank->high_water_bytes = lane->rank.high_water_bytes;
    return status;
}
