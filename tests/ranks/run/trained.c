#include "trained.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/comm/comm_staged.h"
#include "executor/rank/rank.h"
#include "executor/run/message_lane.h"
#include "tests/support/unit.h"

/* ---- training ------------------------------------------------------------------------------ */

struct trainee {
    struct sbp_arena arena;
    struct sbp_stage_layout layout;
    struct sbp_channel channel;
    struct sbp_messenger messenger;
    struct sbp_rank rank;
};

struct school {
    const struct sbp_step *step;
    struct sbp_arena arena;
    struct sbp_tasks *tasks; /* (stages) */
    struct sbp_message_plan messages;
    struct trainee *trainee; /* (ranks) */
    struct trained *trained; /* the first ranks of the first and the last stage write to it */
    uint64_t seed;
    const struct disturbance *disturbance; /* NULL: none */
};

static enum sbp_status open_trainee(const struct school *school, const struct sbp_comm_ops *ops,
                                    struct sbp_comm *comm, struct trainee *trainee,
                                    struct sbp_diag *diag)
{
    const int rank = ops->rank(comm), devices = (int)school->step->mesh.devices;
    const struct sbp_device_ops *device = sbp_device("cpu", diag);
    SBP_TRY(sbp_channel_open(&trainee->channel, ops, comm, school->step,
                             &school->tasks[rank / devices], device->kernels(SBP_F32),
                             &trainee->arena, diag));
    SBP_TRY(sbp_stage_layout_make(school->step, rank / devices, &trainee->arena, &trainee->layout,
                                  diag));
    const int64_t arena_bytes = trainee->layout.bytes;
    if (school->disturbance != NULL && school->disturbance->is_late == NULL)
        trainee->channel.by_host = false;
    sbp_message_lane_find(&trainee->messenger, &trainee->channel, device);
    trainee->layout.bytes += trainee->messenger.behind_bytes;
    SBP_TRY(sbp_rank_open(&trainee->rank, &trainee->layout, device, SBP_F32, school->seed,
                          rank % devices, &trainee->channel, diag));
    SBP_TRY(
        sbp_message_lane_reserve(&trainee->messenger, trainee->rank.memory + arena_bytes, diag));
    return sbp_rank_fill_weights(&trainee->rank);
}

enum sbp_status trained_do_task(struct sbp_rank *rank, const struct sbp_task *task,
                                struct sbp_diag *diag)
{
    sbp_rank_turn_to(rank, task);
    if (task->begins)
        SBP_TRY(sbp_rank_begin_work(rank, task, diag));
    SBP_TRY(sbp_rank_execute(rank, &rank->program->instr[task->instr], diag));
    if (task->ends)
        sbp_rank_end_work(rank, task);
    return SBP_OK;
}

static enum sbp_status do_works(const struct school *school, struct trainee *trainee,
                                struct sbp_message_lane *lane, struct sbp_diag *diag)
{
    for (;;) {
        int64_t first, end;
        SBP_TRY(sbp_message_lane_next(lane, &first, &end, diag));
        if (first == end)
            return SBP_OK;
        if (school->disturbance != NULL)
            school->disturbance->begins(school->disturbance->context,
                                        (int)(trainee - school->trainee),
                                        &lane->tasks->task[first]);
        for (int64_t i = first; i < end; i++)
            SBP_TRY(trained_do_task(&trainee->rank, &lane->tasks->task[i], diag));
    }
}

static enum sbp_status train_step(const struct school *school, struct trainee *trainee,
                                  int64_t step, struct sbp_diag *diag)
{
    struct sbp_message_lane lane;
    struct sbp_channel *channel = &trainee->channel;
    sbp_rank_begin_step(&trainee->rank, step);
    sbp_channel_begin_step(channel, 0, SBP_ROUND_WHOLE);
    SBP_TRY(sbp_message_lane_begin(&lane, &school->messages, &school->tasks[channel->stage],
                                   channel, &trainee->messenger, diag));
    const enum sbp_status status = do_works(school, trainee, &lane, diag);
    SBP_TRY(sbp_message_lane_end(&lane, status, diag));
    return sbp_channel_check(channel, diag);
}

static enum sbp_status train_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    struct school *school = argument;
    struct trainee *trainee = &school->trainee[ops->rank(comm)];
    SBP_TRY(open_trainee(school, ops, comm, trainee, diag));
    for (int step = 0; step < school->trained->steps; step++) {
        SBP_TRY(train_step(school, trainee, step + 1, diag));
        SBP_TRY(sbp_rank_end_step(&trainee->rank, diag));
        if (ops->rank(comm) == ops->size(comm) - (int)school->step->mesh.devices)
            school->trained->loss[step] = sbp_rank_loss(&trainee->rank);
        if (ops->rank(comm) == 0)
            school->trained->norm[step] = trainee->rank.known.grad_norm;
    }
    return SBP_OK;
}

/* ---- disturbing ---------------------------------------------------------------------------- */

enum { MOST_RANKS = 16 };

/* What the backend's `try_receive` is called by: one school at a time. */
static struct {
    _Atomic(const struct sbp_comm_ops *) real;
    const struct school *school;
    int received[MOST_RANKS][2]; /* messages of other stages, by direction */
    int asked[MOST_RANKS];       /* whether all messages have left */
} late;

/* Requests are empty, and ranks of one stage do not try. */
static enum sbp_status try_receive_late(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                        int64_t bytes, bool *arrived)
{
    const struct sbp_comm_ops *real = atomic_load(&late.real);
    const struct disturbance *disturbance = late.school->disturbance;
    const int rank = real->rank(comm);
    const bool forward = peer < rank;
    int *const received = &late.received[rank][!forward];
    *arrived = false;
    if (bytes > 0 && disturbance->is_late(disturbance->context, rank, forward, *received))
        return SBP_OK;
    const enum sbp_status status = real->try_receive(comm, peer, tag, buffer, bytes, arrived);
    *received += bytes > 0 && *arrived;
    return status;
}

/* Messages are on their way until somebody has asked three times. */
static enum sbp_status leave_late(struct sbp_comm *comm, bool *all)
{
    int *const asked = &late.asked[atomic_load(&late.real)->rank(comm)];
    *all = ++*asked % 3 == 0;
    return SBP_OK;
}

/* What has come is not all that counts, so that it must be asked for again. */
static bool listen_in_vain(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    (void)comm;
    (void)heard;
    (void)context;
    return false;
}

static bool is_shared_never(const struct sbp_comm *comm)
{
    (void)comm;
    return false;
}

static enum sbp_status train_late(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    struct sbp_comm_ops own = *ops;
    own.try_receive = try_receive_late;
    own.have_left = leave_late;
    own.listen = listen_in_vain;
    if (late.school->disturbance->is_late == NULL)
        own.is_shared = is_shared_never;
    atomic_store(&late.real, ops);
    if (!late.school->disturbance->staged)
        return train_rank(&own, comm, argument, diag);
    const struct sbp_endpoint inner = {&own, comm};
    struct sbp_endpoint staged;
    SBP_TRY(sbp_staged_open(&inner, &sbp_device_host_memory, &staged, diag));
    const enum sbp_status status = train_rank(staged.ops, staged.comm, argument, diag);
    sbp_staged_close(&staged);
    return status;
}

/* ---- collecting ---------------------------------------------------------------------------- */

static int64_t elements_of(const struct sbp_graph *graph, int tensor)
{
    const int64_t *size = graph->tensor[tensor].shape.size;
    return size[0] * size[1] * size[2] * size[3];
}

static float *unset(int64_t elements)
{
    float *values = malloc((size_t)elements * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < elements; i++)
        values[i] = NAN;
    return values;
}

static bool same(const void *a, const void *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

/* A rank's block, or shard, of a tensor. */
static void collect(struct sbp_rank *rank, int tensor, int buffer, bool is_shard, float *whole)
{
    const struct sbp_program *program = rank->program;
    const float *from =
        is_shard ? sbp_rank_shard(rank, tensor, buffer) : sbp_rank_buffer(rank, buffer);
    const struct sbp_dist *dist = &program->buffer[buffer].dist;
    const struct sbp_shape *shape = &program->graph->tensor[tensor].shape;
    const int64_t block = sbp_dist_local_elements(&program->mesh, shape, dist);
    const struct sbp_stretch stretch =
        is_shard ? sbp_rank_stretch(program, tensor, rank->rank) : (struct sbp_stretch){0, block};
    struct sbp_region region;
    sbp_dist_region(&rank->layout, shape, dist, rank->rank, &region);
    for (int64_t i = 0; i < stretch.count; i++) {
        float *const at = &whole[sbp_region_global(&region, stretch.first + i)];
        if (!isnan(*at) && !same(at, &from[i], sizeof *at))
            fail_msg("%s: replicas differ: %.9g and %.9g on place %lld",
                     program->graph->tensor[tensor].name, (double)*at, (double)from[i],
                     (long long)rank->rank);
        *at = from[i];
    }
}

/* Of the chunk at hand. */
static void collect_chunk(struct sbp_rank *rank, struct trained *trained)
{
    const struct sbp_program *program = rank->program;
    for (int t = 0; t < trained->graph->tensor_count; t++) {
        if (program->weight_buffer[t] < 0)
            continue;
        if (trained->weight[t] == NULL) {
            trained->weight[t] = unset(elements_of(trained->graph, t));
            trained->gradient[t] = unset(elements_of(trained->graph, t));
        }
        const int level = program->shard[t].level;
        collect(rank, t, program->weight_buffer[t], level == 3, trained->weight[t]);
        collect(rank, t, program->gradient_buffer[t], level > 0, trained->gradient[t]);
    }
}

static void collect_all(struct sbp_rank *rank, struct trained *trained)
{
    for (int chunk = 0; chunk < rank->arena->chunks; chunk++) {
        sbp_rank_turn(rank, chunk);
        collect_chunk(rank, trained);
    }
}

static void allocate(const struct sbp_step *step, int steps, struct trained *trained)
{
    const struct sbp_graph *graph = step->program[0].graph;
    const size_t tensors = (size_t)graph->tensor_count;
    *trained = (struct trained){.graph = graph,
                                .steps = steps,
                                .loss = calloc((size_t)steps, sizeof(double)),
                                .norm = calloc((size_t)steps, sizeof(double)),
                                .weight = calloc(tensors, sizeof(float *)),
                                .gradient = calloc(tensors, sizeof(float *))};
    assert_true(trained->loss != NULL && trained->norm != NULL && trained->weight != NULL &&
                trained->gradient != NULL);
}

static enum sbp_status open_school(struct school *school, struct sbp_diag *diag)
{
    const struct sbp_step *step = school->step;
    school->tasks = SBP_NEW(&school->arena, struct sbp_tasks, step->stages);
    assert_non_null(school->tasks);
    for (int stage = 0; stage < step->stages; stage++)
        SBP_TRY(sbp_tasks_make(step, stage, &school->arena, &school->tasks[stage], diag));
    return sbp_message_plan_make(step, school->tasks, &school->arena, &school->messages, diag);
}

/* Runs the ranks, and keeps what they have learned. */
static void run_school(struct school *school, sbp_rank_main main)
{
    const int ranks = school->step->stages * (int)school->step->mesh.devices;
    struct sbp_diag diag = {0};
    school->trainee = calloc((size_t)ranks, sizeof *school->trainee);
    assert_non_null(school->trainee);
    enum sbp_status status = open_school(school, &diag);
    if (status == SBP_OK)
        status = sbp_threads_run(ranks, main, school, &diag);
    if (status != SBP_OK)
        fail_msg("%s: %s", sbp_status_name(status), diag.text);
    for (int r = 0; r < ranks; r++) {
        struct trainee *trainee = &school->trainee[r];
        const int64_t bytes = (trainee->rank.high_water_bytes + 63) / 64 * 64;
        assert_int_equal(bytes, school->step->memory[trainee->channel.stage].device_bytes);
        collect_all(&trainee->rank, school->trained);
        sbp_message_lane_release(&trainee->messenger);
        sbp_rank_close(&trainee->rank);
        sbp_arena_free(&trainee->arena);
    }
    free(school->trainee);
    sbp_arena_free(&school->arena);
}

void train(const struct sbp_step *step, int steps, uint64_t seed, struct trained *trained)
{
    struct school school = {.step = step, .trained = trained, .seed = seed};
    allocate(step, steps, trained);
    run_school(&school, train_rank);
}

/* Lanes of messages ended each step only when all of theirs had left. */
static void expect_lanes_that_stayed(const struct school *school, int steps)
{
    const bool has_lanes = school->disturbance->is_late != NULL && school->step->stages > 1;
    for (int rank = 0; rank < school->step->stages * school->step->mesh.devices; rank++)
        assert_int_equal(late.asked[rank], has_lanes ? 3 * steps : 0);
}

void train_disturbed(const struct sbp_step *step, int steps, uint64_t seed,
                     const struct disturbance *disturbance, struct trained *trained)
{
    struct school school = {
        .step = step, .trained = trained, .seed = seed, .disturbance = disturbance};
    allocate(step, steps, trained);
    assert_in_range(step->stages * step->mesh.devices, 1, MOST_RANKS);
    memset(late.received, 0, sizeof late.received);
    memset(late.asked, 0, sizeof late.asked);
    late.school = &school;
    run_school(&school, train_late);
    expect_lanes_that_stayed(&school, steps);
}

void trained_free(struct trained *trained)
{
    for (int t = 0; t < trained->graph->tensor_count; t++) {
        free(trained->weight[t]);
        free(trained->gradient[t]);
    }
    free(trained->weight);
    free(trained->gradient);
    free(trained->loss);
    free(trained->norm);
}

/* ---- comparing ----------------------------------------------------------------------------- */

int64_t trained_difference(const struct sbp_graph *graph, int tensor, const float *a,
                           const float *b)
{
    for (int64_t i = 0; i < elements_of(graph, tensor); i++)
        if (isnan(a[i]) || !same(&a[i], &b[i], sizeof a[i]))
            return i;
    return -1;
}

static bool tensors_alike(const struct trained *a, const char *what, float *const *of_a,
                          float *const *of_b, char *text, int size)
{
    for (int t = 0; t < a->graph->tensor_count; t++) {
        if (of_a[t] == NULL)
            continue;
        const int64_t at = trained_difference(a->graph, t, of_a[t], of_b[t]);
        if (at < 0)
            continue;
        (void)snprintf(text, (size_t)size, "%s of %s, element %lld: %.9g and %.9g", what,
                       a->graph->tensor[t].name, (long long)at, (double)of_a[t][at],
                       (double)of_b[t][at]);
        return false;
    }
    return true;
}

bool trained_alike(const struct trained *a, const struct trained *b, char *text, int size)
{
    for (int i = 0; i < a->steps; i++)
        if (!same(&a->loss[i], &b->loss[i], sizeof *a->loss) ||
            !same(&a->norm[i], &b->norm[i], sizeof *a->norm)) {
            (void)snprintf(text, (size_t)size,
                           "step %d: losses %.17g and %.17g, norms %.17g, %.17g", i + 1, a->loss[i],
                           b->loss[i], a->norm[i], b->norm[i]);
            return false;
        }
    return tensors_alike(a, "gradient", a->gradient, b->gradient, text, size) &&
           tensors_alike(a, "weight", a->weight, b->weight, text, size);
}
