#include "costmodel/program/task_play.h"

#include <math.h>

/* Without a flush, steps that are played: the first fill the pipeline. */
enum { FIRST_STEPS = 4, MOST_STEPS = 64 };
static const double SAME_SHARE = 1e-12;

/* A stage as far as it has played. */
struct lane {
    int stage;
    const struct sbp_tasks *tasks;
    const double *length_s;
    double *begin_s, *end_s; /* of the last step */
    int64_t next;
    int64_t done[2]; /* forward, backward works, where arrivals decide */
    int step;        /* that it plays; -1: what is ahead of the first one */
    double free_s, link_free_s[2];
    double sums_free_s; /* of sums beside; < 0: there was none */
    /* After each step: when the stage was through, and its links. All that follows depends on them:
     * on its way is no message but the last one of a link. Where sums are handed on there are more,
     * so that the mean end of a step's tasks is kept as well. */
    double after_s[MOST_STEPS][4];
    double *arrival_s[2]; /* (chunks, micro_batches) of activations, of gradients; < 0: not sent */
    double *sum_s[2];     /* (tensor_count) of handed sums so far, of finished ones; likewise */
};

struct player {
    const struct sbp_step *step;
    int tensors;       /* whose sums stages hand on; 0: there are none */
    int phases;        /* steps after which all lists repeat */
    struct lane *lane; /* (stages) */
    int steps;
};

static bool is_due(const struct lane *lane)
{
    return sbp_tasks_have(lane->tasks, &lane->tasks->task[lane->next], lane->step,
                          lane->step < 0 ? SBP_ROUND_AHEAD : SBP_ROUND_WHOLE);
}

static void keep_times(const struct player *player, struct lane *lane)
{
    double *const after_s = lane->after_s[lane->step];
    int64_t played = 0;
    after_s[0] = lane->free_s;
    after_s[1] = lane->link_free_s[0];
    after_s[2] = lane->link_free_s[1];
    after_s[3] = 0;
    for (int64_t i = 0; i < lane->tasks->count && player->tensors > 0; i++)
        if (sbp_tasks_have(lane->tasks, &lane->tasks->task[i], lane->step, SBP_ROUND_WHOLE)) {
            after_s[3] += lane->end_s[i];
            played++;
        } else {
            lane->begin_s[i] = lane->end_s[i] = NAN;
        }
    after_s[3] /= (double)(played > 0 ? played : 1);
}

/* The stage goes on with its next task when the sums beside that it waits for are over. */
static void wait_for_sums(struct lane *lane)
{
    const int after = lane->tasks->task[lane->next].after;
    if (after > 0)
        lane->free_s = fmax(lane->free_s, lane->end_s[after - 1]);
}

/* Comes to the next task of its steps; NULL: it is through with all of them. */
static const struct sbp_instr *next_instr(const struct player *player, struct lane *lane)
{
    while (lane->step < player->steps) {
        while (lane->next < lane->tasks->count && !is_due(lane))
            lane->next++;
        if (lane->next < lane->tasks->count) {
            wait_for_sums(lane);
            return sbp_task_instr(player->step, lane->stage, &lane->tasks->task[lane->next]);
        }
        if (lane->step >= 0)
            keep_times(player, lane);
        if (++lane->step < player->steps)
            lane->next = 0;
    }
    return NULL;
}

static bool sums_stages(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_INNER && instr->stages > 1;
}

static bool holds(const struct player *player, int stage, int tensor)
{
    return tensor < 0 || sbp_step_holds(player->step, stage, tensor);
}

/* Plays the next task, after which the stage is free at free_s. */
static void pass_by(struct lane *lane, double begin_s, double end_s, double free_s)
{
    lane->begin_s[lane->next] = begin_s;
    lane->end_s[lane->next++] = end_s;
    lane->free_s = free_s;
}

/* Computes, or exchanges with the stage's own devices. */
static void work(struct lane *lane)
{
    const double end_s = lane->free_s + lane->length_s[lane->next];
    pass_by(lane, lane->free_s, end_s, end_s);
}

/* Sums beside follow each other, while the stage goes on: as their gradients come or, of buckets,
 * whose gradients are all there, from the first one on. */
static void sum_beside(struct lane *lane)
{
    const bool follows =
        lane->sums_free_s >= 0 && sbp_task_sums_buckets(&lane->tasks->task[lane->next]);
    const double begin_s = follows ? lane->sums_free_s : fmax(lane->free_s, lane->sums_free_s);
    lane->sums_free_s = begin_s + lane->length_s[lane->next];
    pass_by(lane, begin_s, lane->sums_free_s, lane->free_s);
}

/* Where the message of a micro-batch of a step to a piece arrives. */
static double *arrival_of(const struct player *player, int64_t number, int piece, int back,
                          int micro_batch)
{
    const struct sbp_step *step = player->step;
    const int64_t frame = sbp_step_chunk_of(step, piece) * step->micro_batches + micro_batch;
    const int to = sbp_step_worker(step, piece, number, micro_batch);
    return &player->lane[to].arrival_s[back][frame];
}

/* Behind the last stage the next chunk of the first one goes on. */
static void send(struct player *player, int stage, const struct sbp_instr *instr)
{
    struct lane *const lane = &player->lane[stage];
    const struct sbp_task *task = &lane->tasks->task[lane->next];
    const int back = instr->section == SBP_SECTION_FORWARD ? 0 : 1;
    const int piece = sbp_step_piece(player->step, stage, task->chunk) + (back ? -1 : 1);
    const bool is_local = instr->box.kind == SBP_LOCAL; /* no link */
    const double begin_s = is_local ? lane->free_s : fmax(lane->free_s, lane->link_free_s[back]);
    const double end_s = begin_s + lane->length_s[lane->next];
    if (!is_local)
        lane->link_free_s[back] = end_s;
    *arrival_of(player, lane->step + task->is_ahead, piece, back, task->micro_batch) = end_s;
    pass_by(lane, begin_s, end_s, lane->free_s);
}

/* Whether the message is on its way. */
static bool receive(struct player *player, struct lane *lane, const struct sbp_instr *instr)
{
    const struct sbp_task *task = &lane->tasks->task[lane->next];
    const int back = instr->section == SBP_SECTION_FORWARD ? 0 : 1;
    const int piece = sbp_step_piece(player->step, lane->stage, task->chunk);
    double *const arrival_s =
        arrival_of(player, lane->step + task->is_ahead, piece, back, task->micro_batch);
    if (*arrival_s < 0)
        return false;
    const double there_s = fmax(lane->free_s, *arrival_s);
    *arrival_s = -1;
    pass_by(lane, lane->free_s, there_s, there_s);
    return true;
}

/* Passes a sum of gradients to another stage; links carry one message after the other. False:
 * that has not been played so far that it took the last one. */
static bool pass_sum(struct player *player, struct lane *lane, int tensor)
{
    const struct sbp_sum_route route =
        sbp_task_route(player->step, lane->stage, &lane->tasks->task[lane->next]);
    double *const arrival_s = &player->lane[route.peer].sum_s[route.finished][tensor];
    const double begin_s = fmax(lane->free_s, lane->link_free_s[0]);
    const double end_s = begin_s + lane->length_s[lane->next];
    if (*arrival_s >= 0)
        return false;
    *arrival_s = lane->link_free_s[0] = end_s;
    pass_by(lane, begin_s, end_s, lane->free_s);
    return true;
}

/* Whether the sum is on its way. */
static bool take_sum(struct player *player, struct lane *lane, int tensor)
{
    const struct sbp_sum_route route =
        sbp_task_route(player->step, lane->stage, &lane->tasks->task[lane->next]);
    double *const arrival_s = &lane->sum_s[route.finished][tensor];
    if (*arrival_s < 0)
        return false;
    const double there_s = fmax(lane->free_s, *arrival_s);
    *arrival_s = -1;
    pass_by(lane, lane->free_s, there_s, there_s);
    return true;
}

/* Whether all stages that sum a tensor (-1: all stages) have come so far; then they do. */
static bool sum(struct player *player, int tensor)
{
    double begin_s = 0, length_s = 0;
    for (int stage = 0; stage < player->step->stages; stage++) {
        struct lane *const lane = &player->lane[stage];
        const struct sbp_instr *instr = next_instr(player, lane);
        if (!holds(player, stage, tensor))
            continue;
        if (instr == NULL || !sums_stages(instr) || instr->tensor != tensor)
            return false;
        begin_s = fmax(begin_s, lane->free_s);
        length_s = fmax(length_s, lane->length_s[lane->next]);
    }
    for (int stage = 0; stage < player->step->stages; stage++)
        if (holds(player, stage, tensor))
            pass_by(&player->lane[stage], begin_s, begin_s + length_s, begin_s + length_s);
    return true;
}

/* Whether arrivals decide what the stage does next. The last backward work is always its last
 * work, after which the list goes on. */
static bool is_driven(const struct player *player, const struct lane *lane)
{
    return sbp_tasks_are_driven(lane->tasks) && lane->done[1] < player->step->micro_batches;
}

/* Plays a stage's next task if it need not wait. */
static bool play_next(struct player *player, int stage)
{
    struct lane *const lane = &player->lane[stage];
    const struct sbp_instr *instr = next_instr(player, lane);
    if (instr == NULL)
        return false;
    if (sums_stages(instr))
        return sum(player, instr->tensor);
    if (instr->kind == SBP_INSTR_RECEIVE)
        return receive(player, lane, instr);
    if (instr->kind == SBP_INSTR_TAKE)
        return take_sum(player, lane, instr->tensor);
    if (instr->kind == SBP_INSTR_PASS)
        return pass_sum(player, lane, instr->tensor);
    if (instr->kind == SBP_INSTR_SEND)
        send(player, stage, instr);
    else if (lane->tasks->task[lane->next].is_beside)
        sum_beside(lane);
    else
        work(lane);
    return true;
}

/* ---- arrivals ------------------------------------------------------------------------------ */

/* When the message of a stage's next forward, or backward, work is there; INFINITY: not on its
 * way. */
static double next_arrival(const struct player *player, const struct lane *lane, int back)
{
    if (lane->done[back] == player->step->micro_batches)
        return INFINITY;
    const double arrival_s =
        *arrival_of(player, lane->step, lane->stage, back, (int)lane->done[back]);
    return arrival_s < 0 ? INFINITY : arrival_s;
}

/* When a stage can go on where arrivals decide. */
static double turn_of(const struct player *player, const struct lane *lane)
{
    return fmax(lane->free_s, fmin(next_arrival(player, lane, 0), next_arrival(player, lane, 1)));
}

/* Plays a whole work of the stage that can go on first: what others do later comes later. False:
 * no stage can. */
static bool drive(struct player *player)
{
    struct lane *first = NULL;
    double first_s = INFINITY;
    for (int stage = 0; stage < player->step->stages; stage++) {
        struct lane *const lane = &player->lane[stage];
        if (is_driven(player, lane) && turn_of(player, lane) < first_s) {
            first = lane;
            first_s = turn_of(player, lane);
        }
    }
    if (first == NULL)
        return false;
    const int back = next_arrival(player, first, 1) <= first_s;
    first->next = first->tasks->begin[back][first->done[back]++];
    const int64_t end = sbp_tasks_end(first->tasks, first->next);
    while (first->next < end && play_next(player, first->stage))
        ;
    return true;
}

/* Plays what needs no decision as far as it goes. */
static void play_lists(struct player *player)
{
    for (bool moves = true; moves;) {
        moves = false;
        for (int stage = 0; stage < player->step->stages; stage++)
            while (!is_driven(player, &player->lane[stage]) && play_next(player, stage))
                moves = true;
    }
}

/* ---- playing ------------------------------------------------------------------------------- */

double **sbp_tasks_lengths(const struct sbp_step *step, const struct sbp_tasks *tasks,
                           double *const *compute_s, struct sbp_arena *arena)
{
    double **length_s = SBP_NEW(arena, double *, step->stages);
    for (int stage = 0; length_s != NULL && stage < step->stages; stage++) {
        length_s[stage] = SBP_NEW(arena, double, tasks[stage].count + 1);
        if (length_s[stage] == NULL)
            return NULL;
        for (int64_t i = 0; i < tasks[stage].count; i++) {
            const struct sbp_task_price price = sbp_task_price(step, stage, &tasks[stage].task[i]);
            length_s[stage][i] =
                price.communication_s + (compute_s == NULL ? price.compute_s : compute_s[stage][i]);
        }
    }
    return length_s;
}

static enum sbp_status refuse(struct player *player, struct sbp_diag *diag)
{
    for (int stage = 0; stage < player->step->stages; stage++) {
        struct lane *const lane = &player->lane[stage];
        const struct sbp_instr *instr = next_instr(player, lane);
        if (instr != NULL)
            return sbp_fail(diag, SBP_E_INTERNAL,
                            "stages wait for each other: stage %d at task %lld, %s of micro-batch "
                            "%d",
                            stage, (long long)lane->next, sbp_program_instr_name(instr->kind),
                            lane->tasks->task[lane->next].micro_batch);
    }
    return SBP_OK;
}

static enum sbp_status open_lanes(struct player *player, const struct sbp_tasks *tasks,
                                  double *const *length_s, struct sbp_arena *arena,
                                  struct sbp_play *play)
{
    const struct sbp_step *step = player->step;
    const int64_t frames = sbp_step_chunks(step) * step->micro_batches;
    player->tensors = sbp_step_hands_on(step) ? sbp_step_program(step, 0)->graph->tensor_count : 0;
    player->lane = SBP_NEW(arena, struct lane, step->stages);
    play->begin_s = SBP_NEW(arena, double *, step->stages);
    play->end_s = SBP_NEW(arena, double *, step->stages);
    if (player->lane == NULL || play->begin_s == NULL || play->end_s == NULL)
        return SBP_E_MEMORY;
    for (int stage = 0; stage < step->stages; stage++) {
        struct lane *const lane = &player->lane[stage];
        *lane = (struct lane){
            .stage = stage,
            .tasks = &tasks[stage],
            .length_s = length_s[stage],
            .begin_s = SBP_NEW(arena, double, tasks[stage].count + 1),
            .end_s = SBP_NEW(arena, double, tasks[stage].count + 1),
            .arrival_s = {SBP_NEW(arena, double, frames), SBP_NEW(arena, double, frames)},
            .sum_s = {SBP_NEW(arena, double, player->tensors + 1),
                      SBP_NEW(arena, double, player->tensors + 1)}};
        play->begin_s[stage] = lane->begin_s;
        play->end_s[stage] = lane->end_s;
        if (lane->begin_s == NULL || lane->end_s == NULL || lane->arrival_s[0] == NULL ||
            lane->arrival_s[1] == NULL || lane->sum_s[0] == NULL || lane->sum_s[1] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* Plays so many steps from the begin. */
static enum sbp_status play_steps(struct player *player, int steps, struct sbp_diag *diag)
{
    const struct sbp_step *step = player->step;
    const int64_t frames = sbp_step_chunks(step) * step->micro_batches;
    player->steps = steps;
    for (int stage = 0; stage < step->stages; stage++) {
        struct lane *const lane = &player->lane[stage];
        lane->next = lane->done[0] = lane->done[1] = 0;
        lane->step = sbp_timeline_delays_gradients(step->parallel.schedule) ? -1 : 0;
        lane->free_s = lane->link_free_s[0] = lane->link_free_s[1] = 0;
        lane->sums_free_s = -1;
        for (int64_t i = 0; i < frames; i++)
            lane->arrival_s[0][i] = lane->arrival_s[1][i] = -1;
        for (int t = 0; t < player->tensors; t++)
            lane->sum_s[0][t] = lane->sum_s[1][t] = -1;
    }
    do
        play_lists(player);
    while (drive(player));
    return refuse(player, diag);
}

/* Whether all stages and links are as they were so many steps before, and equally much later: then
 * all later steps repeat. */
static bool repeats(const struct player *player, int period, double *step_s)
{
    const int last = player->steps - 1;
    const double all_s = player->lane[0].after_s[last][0];
    const double lag_s = all_s - player->lane[0].after_s[last - period][0];
    for (int stage = 0; stage < player->step->stages; stage++)
        for (int i = 0; i < 4; i++) {
            const double now_s = player->lane[stage].after_s[last][i];
            const double before_s = player->lane[stage].after_s[last - period][i];
            if (now_s > 0 && fabs(now_s - before_s - lag_s) > SAME_SHARE * all_s)
                return false; /* 0: a link without messages, or nothing is kept */
        }
    *step_s = lag_s / period;
    return true;
}

/* Stages that wait for each other may repeat only after a few steps, and so do those that take
 * turns. */
static bool is_steady(const struct player *player, double *step_s)
{
    for (int period = player->phases; period < player->steps - 1; period += player->phases)
        if (repeats(player, period, step_s))
            return true;
    return false;
}

/* Stages may never be steady: the longest mean of a stage over the later half of the steps. */
static double mean_step_s(const struct player *player)
{
    const int last = player->steps - 1, half = player->steps / 2;
    double most_s = 0;
    for (int stage = 0; stage < player->step->stages; stage++) {
        const struct lane *lane = &player->lane[stage];
        most_s = fmax(most_s, (lane->after_s[last][0] - lane->after_s[last - half][0]) / half);
    }
    return most_s;
}

/* Counts times from the first task of the step that was played last. */
static void count_from_step(const struct player *player, const struct sbp_play *play)
{
    double first_s = INFINITY;
    for (int stage = 0; stage < player->step->stages;
         stage++) /* what is not in it counts as none */
        for (int64_t i = 0; i < player->lane[stage].tasks->count; i++)
            first_s = fmin(first_s, play->begin_s[stage][i]);
    for (int stage = 0; stage < player->step->stages; stage++)
        for (int64_t i = 0; i < player->lane[stage].tasks->count; i++) {
            play->begin_s[stage][i] -= first_s;
            play->end_s[stage][i] -= first_s;
        }
}

/* Plays more and more steps until they take equally long. */
static enum sbp_status play_steady(struct player *player, struct sbp_play *play,
                                   struct sbp_diag *diag)
{
    bool is_over = false;
    for (int steps = FIRST_STEPS; !is_over; steps *= 2) {
        SBP_TRY(play_steps(player, steps, diag));
        is_over = is_steady(player, &play->step_s);
        if (!is_over && 2 * steps > MOST_STEPS) {
            play->step_s = mean_step_s(player);
            is_over = true;
        }
    }
    count_from_step(player, play);
    return SBP_OK;
}

/* Steps after which all lists repeat together; no more than are played. */
static int common_phases(const struct sbp_step *step, const struct sbp_tasks *tasks)
{
    int phases = 1;
    for (int stage = 0; stage < step->stages; stage++) {
        const int own = sbp_tasks_steps(&tasks[stage]);
        int all = phases;
        while (all % own != 0 && all < MOST_STEPS)
            all += phases;
        phases = all;
    }
    return phases;
}

enum sbp_status sbp_tasks_play(const struct sbp_step *step, const struct sbp_tasks *tasks,
                               double *const *length_s, struct sbp_arena *arena,
                               struct sbp_play *play, struct sbp_diag *diag)
{
    struct player player = {.step = step};
    *play = (struct sbp_play){0};
    player.phases = common_phases(step, tasks);
    if (open_lanes(&player, tasks, length_s, arena, play) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the times of a step");
    if (sbp_timeline_delays_gradients(step->parallel.schedule))
        return play_steady(&player, play, diag);
    SBP_TRY(play_steps(&player, 1, diag));
    for (int stage = 0; stage < step->stages; stage++)
        play->step_s = fmax(play->step_s, player.lane[stage].free_s);
    return SBP_OK;
}
