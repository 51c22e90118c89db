#include "slopes.h"

#include <math.h>

#include "base/math/random.h"
#include "executor/rank/rank.h"
#include "tests/support/unit.h"
#include "trained.h"

/* Streams of random values, by tensor. */
enum { STREAM_WEIGHTS = 1 << 20, STREAM_DIRECTION = 2 << 20 };

/* Passes at w, w + h d, w - h d, and twice as far. */
enum { HERE, AHEAD, BEHIND, FAR_AHEAD, FAR_BEHIND, PASSES };

/* Each rank adds its part to the sums over all ranks. */
struct part {
    double loss[PASSES];
    double product, squares;
};

struct measurement {
    const struct slope_request *request;
    struct sbp_arena arena;
    struct sbp_tasks tasks;
    struct part part[MOST_SLOPE_RANKS];
};

/* A rank and the block of each weight that it begins from, and moves by. */
struct mover {
    const struct measurement *of;
    struct sbp_arena arena;
    struct sbp_stage_layout layout;
    struct sbp_channel channel;
    struct sbp_rank rank;
    double **base;      /* (tensor_count), NULL for what is no weight */
    double **direction; /* likewise, NULL for what it does not move */
};

static enum sbp_status open_rank(struct mover *mover, const struct sbp_comm_ops *ops,
                                 struct sbp_comm *comm, struct sbp_diag *diag)
{
    const struct slope_request *request = mover->of->request;
    const struct sbp_device_ops *device = sbp_device("cpu", diag);
    SBP_TRY(sbp_channel_open(&mover->channel, ops, comm, request->step, &mover->of->tasks,
                             device->kernels(SBP_F64), &mover->arena, diag));
    SBP_TRY(sbp_stage_layout_make(request->step, 0, &mover->arena, &mover->layout, diag));
    return sbp_rank_open(&mover->rank, &mover->layout, device, SBP_F64, request->seed,
                         ops->rank(comm), &mover->channel, diag);
}

static struct sbp_region region_of(const struct mover *mover, int buffer, int64_t *elements)
{
    struct sbp_region region;
    sbp_rank_region(&mover->rank, buffer, &region);
    *elements = sbp_region_elements(&region);
    return region;
}

/* A block of a weight by global index: the direction, uniform values in [-1, 1), or the initial
 * weight, moved off what initialisation makes equal. */
static double *draw_block(struct mover *mover, int tensor, bool is_direction)
{
    int64_t elements;
    const uint64_t seed = mover->of->request->seed;
    const int buffer = mover->rank.program->weight_buffer[tensor];
    const struct sbp_region region = region_of(mover, buffer, &elements);
    const double *initial = sbp_rank_buffer(&mover->rank, buffer);
    const uint64_t stream = (uint64_t)((is_direction ? STREAM_DIRECTION : STREAM_WEIGHTS) + tensor);
    double *values = SBP_NEW(&mover->arena, double, elements);
    for (int64_t i = 0; values != NULL && i < elements; i++) {
        const uint64_t at = (uint64_t)sbp_region_global(&region, i);
        values[i] = is_direction ? 2 * sbp_random_unit_at(seed, stream, at) - 1
                                 : initial[i] + 0.25 * sbp_random_normal_at(seed, stream, at);
    }
    return values;
}

static enum sbp_status draw_blocks(struct mover *mover)
{
    const struct sbp_program *program = mover->rank.program;
    const int tensors = program->graph->tensor_count;
    SBP_TRY(sbp_rank_fill_weights(&mover->rank));
    mover->base = SBP_NEW(&mover->arena, double *, tensors);
    mover->direction = SBP_NEW(&mover->arena, double *, tensors);
    if (mover->base == NULL || mover->direction == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tensors; t++) {
        const bool moves = mover->of->request->moves[t];
        if (program->weight_buffer[t] < 0)
            continue;
        if ((mover->base[t] = draw_block(mover, t, false)) == NULL ||
            (moves && (mover->direction[t] = draw_block(mover, t, true)) == NULL))
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* Sets all weights, so far along the direction. */
static void move(struct mover *mover, double by)
{
    struct sbp_rank *rank = &mover->rank;
    for (int t = 0; t < rank->program->graph->tensor_count; t++) {
        int64_t elements;
        if (mover->base[t] == NULL)
            continue;
        (void)region_of(mover, rank->program->weight_buffer[t], &elements);
        const double *d = mover->direction[t];
        double *weight = sbp_rank_buffer(rank, rank->program->weight_buffer[t]);
        for (int64_t i = 0; i < elements; i++)
            weight[i] = mover->base[t][i] + (d == NULL ? 0 : by * d[i]);
    }
}

/* The first step, again and again: the data and masks stay, and updates go to weights that are set
 * anew. */
static enum sbp_status pass(struct mover *mover, double by, double *loss, struct sbp_diag *diag)
{
    const struct sbp_tasks *tasks = &mover->of->tasks;
    move(mover, by);
    sbp_rank_begin_step(&mover->rank, 1);
    sbp_channel_begin_step(&mover->channel, 0, SBP_ROUND_WHOLE);
    for (int64_t i = 0; i < tasks->count; i++)
        SBP_TRY(trained_do_task(&mover->rank, &tasks->task[i], diag));
    SBP_TRY(sbp_rank_end_step(&mover->rank, diag));
    *loss = sbp_rank_loss(&mover->rank);
    return sbp_channel_check(&mover->channel, diag);
}

/* How many ranks hold the same block. */
static int64_t replicas(const struct sbp_program *program, int buffer)
{
    const sbp_axes whole =
        sbp_dist_of_kind(&program->mesh, &program->buffer[buffer].dist, SBP_BROADCAST);
    return sbp_mesh_group_size(&program->mesh, whole);
}

/* This rank's part of the product of gradient and direction. */
static void multiply(struct mover *mover, struct part *part)
{
    struct sbp_rank *rank = &mover->rank;
    for (int t = 0; t < rank->program->graph->tensor_count; t++) {
        const double *d = mover->direction[t];
        if (d == NULL)
            continue;
        int64_t elements;
        const int buffer = rank->program->gradient_buffer[t];
        const double *gradient = sbp_rank_buffer(rank, buffer);
        const double members = (double)replicas(rank->program, buffer);
        (void)region_of(mover, buffer, &elements);
        for (int64_t i = 0; i < elements; i++) {
            part->product += gradient[i] * d[i] / members;
            part->squares += gradient[i] * d[i] * gradient[i] * d[i] / members;
        }
    }
}

static enum sbp_status measure(struct mover *mover, struct part *part, struct sbp_diag *diag)
{
    static const double times[PASSES] = {0, 1, -1, 2, -2};
    SBP_TRY(draw_blocks(mover));
    for (int i = 0; i < PASSES; i++) {
        SBP_TRY(pass(mover, times[i] * mover->of->request->width, &part->loss[i], diag));
        if (i == HERE)
            multiply(mover, part);
    }
    return SBP_OK;
}

static enum sbp_status rank_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct measurement *measurement = argument;
    struct mover mover = {.of = measurement};
    enum sbp_status status = open_rank(&mover, ops, comm, diag);
    if (status == SBP_OK) {
        status = measure(&mover, &measurement->part[ops->rank(comm)], diag);
        sbp_rank_close(&mover.rank);
    }
    sbp_arena_free(&mover.arena);
    return status;
}

/* NaN, of a model without a loss, is no loss. */
static void expect_one_loss(const struct measurement *measurement, int ranks)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int r = 0; r < ranks; r++) {
            const double loss = measurement->part[r].loss[pass];
            if (!(loss == measurement->part[0].loss[pass]))
                fail_msg("rank %d has the loss %.17g, the first one %.17g", r, loss,
                         measurement->part[0].loss[pass]);
        }
}

/* Two central differences, of the widths h and 2 h, make one without the term in h^2 (Richardson).
 */
static void compare_losses(const struct measurement *measurement, struct slope *slope)
{
    const double *loss = measurement->part[0].loss, width = measurement->request->width;
    const double near = (loss[AHEAD] - loss[BEHIND]) / (2 * width);
    const double far = (loss[FAR_AHEAD] - loss[FAR_BEHIND]) / (4 * width);
    const double fourth =
        loss[FAR_AHEAD] - 4 * loss[AHEAD] + 6 * loss[HERE] - 4 * loss[BEHIND] + loss[FAR_BEHIND];
    slope->difference = (4 * near - far) / 3;
    slope->spread = fabs(near - far);
    slope->bend = fabs(fourth) / (2 * width);
}

void slopes_measure(const struct slope_request *request, struct slope *slope)
{
    const int ranks = (int)request->step->mesh.devices;
    struct measurement measurement = {.request = request};
    struct sbp_diag diag = {0};
    assert_in_range(ranks, 1, MOST_SLOPE_RANKS);
    assert_true(request->step->stages == 1 && request->step->micro_batches == 1);
    enum sbp_status status =
        sbp_tasks_make(request->step, 0, &measurement.arena, &measurement.tasks, &diag);
    if (status == SBP_OK)
        status = sbp_threads_run(ranks, rank_main, &measurement, &diag);
    sbp_arena_free(&measurement.arena);
    if (status != SBP_OK)
        fail_msg("%s: %s", sbp_status_name(status), diag.text);
    expect_one_loss(&measurement, ranks);
    *slope = (struct slope){0};
    compare_losses(&measurement, slope);
    for (int r = 0; r < ranks; r++) {
        slope->product += measurement.part[r].product;
        slope->size += measurement.part[r].squares;
    }
    slope->size = sqrt(slope->size);
}
