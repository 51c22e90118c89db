#include "executor/rank/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "executor/rank/boxing_run.h"
#include "executor/rank/rank_ops.h"

/* Streams of the data: weights use their tensor's index under the run's own seed. */
enum {
    STREAM_INPUT = 1,
    STREAM_OUTPUT_GRADIENT,
    STREAM_IDS,
    STREAM_LABELS,
};

static int64_t type_bytes(const struct sbp_rank *rank, enum sbp_buffer_type type)
{
    return type == SBP_BUFFER_REAL    ? rank->kernels->real_bytes
           : type == SBP_BUFFER_INT32 ? (int64_t)sizeof(int32_t)
                                      : 1;
}

void *sbp_rank_buffer(struct sbp_rank *rank, int buffer)
{
    if (buffer < 0)
        return NULL;
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    const int64_t end = at->offset_bytes + at->elements * type_bytes(rank, at->type);
    if (end > rank->high_water_bytes)
        rank->high_water_bytes = end;
    return rank->memory + at->offset_bytes;
}

void sbp_rank_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region)
{
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    const struct sbp_shape *shape = &rank->program->graph->tensor[at->tensor].shape;
    sbp_dist_region(&rank->layout, shape, &at->dist, rank->rank, region);
}

bool sbp_rank_leads(const struct sbp_rank *rank, sbp_axes axes)
{
    for (int axis = 0; axis < rank->program->mesh.axis_count; axis++)
        if (axes >> axis & 1 && sbp_mesh_coordinate(&rank->program->mesh, rank->rank, axis) != 0)
            return false;
    return true;
}

/* The rows of the padded dimension that count; the kernel knows padding in dimension 0 only. */
static int64_t valid_rows(const struct sbp_tensor *tensor)
{
    return tensor->valid_dim == 0 ? tensor->valid_rows : tensor->shape.size[0];
}

void sbp_rank_fill_weights(struct sbp_rank *rank)
{
    const struct sbp_graph *graph = rank->program->graph;
    for (int t = 0; t < graph->tensor_count; t++) {
        const int buffer = rank->program->weight_buffer[t];
        const struct sbp_tensor *tensor = &graph->tensor[t];
        if (buffer < 0)
            continue;
        struct sbp_region region;
        sbp_rank_region(rank, buffer, &region);
        rank->kernels->fill_normal(sbp_rank_buffer(rank, buffer), &region, tensor->init_mean,
                                   tensor->init_spread, rank->seed, (uint64_t)t,
                                   valid_rows(tensor));
    }
}

enum sbp_status sbp_rank_open(struct sbp_rank *rank, const struct sbp_program *program,
                              const struct sbp_device_ops *device, enum sbp_real real,
                              uint64_t seed, int64_t place, struct sbp_channel *channel,
                              struct sbp_diag *diag)
{
    *rank = (struct sbp_rank){.program = program,
                              .device = device,
                              .kernels = device->kernels(real),
                              .channel = channel,
                              .rank = place,
                              .seed = seed,
                              .grad_norm = -1,
                              .gradient_scale = 1};
    rank->layout =
        (struct sbp_layout){&program->mesh, program->graph->class_count, program->strategy.split};
    SBP_TRY(sbp_rank_check_matrices(rank, diag));
    rank->memory = device->memory->allocate(program->arena_bytes);
    if (rank->memory == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "rank %lld: no %lld bytes on device %s",
                        (long long)place, (long long)program->arena_bytes, device->name);
    return SBP_OK;
}

void sbp_rank_close(struct sbp_rank *rank)
{
    if (rank->memory != NULL)
        rank->device->memory->release(rank->memory);
    rank->memory = NULL;
}

/* Index tables: one entry a token of the block of dimensions 0 and 1. */
enum table { TABLE_IDS, TABLE_LABELS, TABLE_POSITIONS };

static int64_t valid_vocabulary(const struct sbp_graph *graph, enum table table)
{
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (table == TABLE_IDS && node->kind == SBP_OP_EMBEDDING)
            return graph->tensor[node->weight[0]].valid_rows;
        if (table == TABLE_LABELS && node->kind == SBP_OP_CROSS_ENTROPY)
            return node->valid_vocabulary;
    }
    return 1;
}

static int32_t table_entry(const struct sbp_rank *rank, enum table table, int64_t valid,
                           int64_t batch, int64_t position)
{
    if (table == TABLE_POSITIONS)
        return (int32_t)position;
    const uint64_t token = (uint64_t)(batch * rank->program->graph->sequence + position);
    const uint64_t stream = table == TABLE_IDS ? STREAM_IDS : STREAM_LABELS;
    return (int32_t)(sbp_random_bits_at(rank->step_seed, stream, token) % (uint64_t)valid);
}

static enum sbp_status fill_table(struct sbp_rank *rank, enum table table, int buffer,
                                  struct sbp_diag *diag)
{
    if (buffer < 0)
        return SBP_OK;
    struct sbp_region region;
    sbp_rank_region(rank, buffer, &region);
    const int64_t rows = sbp_digits_local_size(&region.dim[SBP_DIM_BATCH]);
    const int64_t columns = sbp_digits_local_size(&region.dim[SBP_DIM_SEQUENCE]);
    const int64_t valid = valid_vocabulary(rank->program->graph, table);
    const size_t bytes = (size_t)(rows * columns) * sizeof(int32_t);
    int32_t *entries = malloc(bytes);
    if (entries == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for token ids");
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            entries[row * columns + column] =
                table_entry(rank, table, valid, sbp_digits_global(&region.dim[SBP_DIM_BATCH], row),
                            sbp_digits_global(&region.dim[SBP_DIM_SEQUENCE], column));
    const enum sbp_status status =
        rank->device->memory->from_host(sbp_rank_buffer(rank, buffer), entries, (int64_t)bytes);
    free(entries);
    return status;
}

enum sbp_status sbp_rank_begin_step(struct sbp_rank *rank, int64_t step, struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    rank->step = step;
    rank->step_seed = sbp_random_bits_at(rank->seed, UINT64_MAX, (uint64_t)step);
    SBP_TRY(fill_table(rank, TABLE_IDS, program->ids_buffer, diag));
    SBP_TRY(fill_table(rank, TABLE_LABELS, program->labels_buffer, diag));
    return fill_table(rank, TABLE_POSITIONS, program->positions_buffer, diag);
}

/* Standard normal data by global index; a partial tensor's value stands on one member. */
static enum sbp_status fill_data(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 uint64_t stream)
{
    const int buffer = instr->buffer[SBP_AT_OUT];
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    void *out = sbp_rank_buffer(rank, buffer);
    if (!sbp_rank_leads(rank, sbp_dist_of_kind(&rank->program->mesh, &at->dist, SBP_PARTIAL))) {
        rank->kernels->zero(out, at->elements);
        return SBP_OK;
    }
    struct sbp_region region;
    sbp_rank_region(rank, buffer, &region);
    rank->kernels->fill_normal(out, &region, 0, 1, rank->step_seed, stream, INT64_MAX);
    return SBP_OK;
}

static enum sbp_status run_input(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    (void)diag;
    return fill_data(rank, instr, STREAM_INPUT);
}

static enum sbp_status run_output_gradient(struct sbp_rank *rank, const struct sbp_instr *instr,
                                           struct sbp_diag *diag)
{
    (void)diag;
    return fill_data(rank, instr, STREAM_OUTPUT_GRADIENT);
}

static enum sbp_status run_box(struct sbp_rank *rank, const struct sbp_instr *instr,
                               struct sbp_diag *diag)
{
    const struct sbp_boxing_run run = {
        .layout = &rank->layout,
        .shape = &rank->program->graph->tensor[instr->tensor].shape,
        .step = &instr->box,
        .rank = rank->rank,
        .in = sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]),
        .out = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]),
        .pack = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]),
        .unpack = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK2]),
    };
    return sbp_boxing_execute(&run, rank->channel, diag);
}

static enum sbp_status run_reduce(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    const struct sbp_exchange exchange = {
        .kind = SBP_ALL_REDUCE,
        .axes = instr->box.axes,
        .reduction = instr->reduction == 0 ? SBP_SUM : SBP_MAX,
        .receive = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]),
        .count = rank->program->buffer[instr->buffer[SBP_AT_OUT]].elements,
    };
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

static enum sbp_status run_add_gradient(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_diag *diag)
{
    (void)diag;
    const int out = instr->buffer[SBP_AT_OUT];
    rank->kernels->add(sbp_rank_buffer(rank, out), sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]),
                       sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN2]),
                       rank->program->buffer[out].elements);
    return SBP_OK;
}

static enum sbp_status read_real(const struct sbp_rank *rank, const void *at, double *value)
{
    float single = 0;
    if (rank->kernels->real == SBP_F64)
        return rank->device->memory->to_host(value, at, sizeof *value);
    SBP_TRY(rank->device->memory->to_host(&single, at, sizeof single));
    *value = (double)single;
    return SBP_OK;
}

static enum sbp_status write_real(const struct sbp_rank *rank, void *at, double value)
{
    const float single = (float)value;
    return rank->kernels->real == SBP_F64
               ? rank->device->memory->from_host(at, &value, sizeof value)
               : rank->device->memory->from_host(at, &single, sizeof single);
}

/* Squares of a gradient's block; a block that several ranks hold counts for one. */
static enum sbp_status add_squares(struct sbp_rank *rank, int buffer, void *scratch, double *sum)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_buffer *gradient = &program->buffer[buffer];
    const sbp_axes replicas = sbp_dist_of_kind(&program->mesh, &gradient->dist, SBP_BROADCAST);
    double squares = 0;
    rank->kernels->sum_squares(scratch, sbp_rank_buffer(rank, buffer), gradient->elements,
                               1.0 / (double)sbp_mesh_group_size(&program->mesh, replicas));
    SBP_TRY(rank->device->finish());
    SBP_TRY(read_real(rank, scratch, &squares));
    *sum += squares;
    return SBP_OK;
}

static enum sbp_status run_norm(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag)
{
    (void)diag;
    void *out = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]);
    double sum = 0;
    for (int t = 0; t < rank->program->graph->tensor_count; t++)
        if (rank->program->gradient_buffer[t] >= 0)
            SBP_TRY(add_squares(rank, rank->program->gradient_buffer[t], out, &sum));
    rank->grad_norm = -1; /* until the sum over ranks is read, by the first update */
    return write_real(rank, out, sum);
}

/* The program's sum of squares, reduced by now, becomes the norm and the clipping factor. */
static enum sbp_status read_norm(struct sbp_rank *rank, const struct sbp_instr *update)
{
    const double clip = rank->program->graph->training.clip_norm;
    double sum = 0;
    SBP_TRY(rank->device->finish());
    SBP_TRY(read_real(rank, sbp_rank_buffer(rank, update->buffer[SBP_AT_IN]), &sum));
    rank->grad_norm = sqrt(sum);
    rank->gradient_scale = rank->grad_norm > clip ? clip / rank->grad_norm : 1;
    return SBP_OK;
}

enum sbp_status sbp_rank_prepare_update(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_update *update, struct sbp_diag *diag)
{
    const struct sbp_training *training = &rank->program->graph->training;
    if (training->clip_norm > 0 && rank->grad_norm < 0) {
        const enum sbp_status status = read_norm(rank, instr);
        if (status != SBP_OK)
            return sbp_fail(diag, status, "reading the norm of the gradients");
    }
    *update = training->update;
    update->step = rank->step;
    update->gradient_scale = rank->gradient_scale;
    return SBP_OK;
}

static enum sbp_status run_update(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag)
{
    struct sbp_update update;
    SBP_TRY(sbp_rank_prepare_update(rank, instr, &update, diag));
    rank->kernels->update(sbp_rank_buffer(rank, instr->buffer[SBP_AT_W]),
                          sbp_rank_buffer(rank, instr->buffer[SBP_AT_DW]),
                          sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]),
                          sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED2]),
                          rank->program->buffer[instr->buffer[SBP_AT_W]].elements, &update);
    return SBP_OK;
}

enum sbp_status sbp_rank_execute(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag)
{
    static enum sbp_status (*const run[])(struct sbp_rank *, const struct sbp_instr *,
                                          struct sbp_diag *) = {
        [SBP_INSTR_INPUT] = run_input,
        [SBP_INSTR_FORWARD] = sbp_rank_forward,
        [SBP_INSTR_BACKWARD] = sbp_rank_backward,
        [SBP_INSTR_BOX] = run_box,
        [SBP_INSTR_REDUCE] = run_reduce,
        [SBP_INSTR_ADD_GRADIENT] = run_add_gradient,
        [SBP_INSTR_OUTPUT_GRADIENT] = run_output_gradient,
        [SBP_INSTR_NORM] = run_norm,
        [SBP_INSTR_UPDATE] = run_update,
    };
    return run[instr->kind](rank, instr, diag);
}

enum sbp_status sbp_rank_loss(struct sbp_rank *rank, double *loss, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = rank->program->graph;
    *loss = NAN;
    if (rank->program->loss_buffer < 0)
        return SBP_OK;
    const enum sbp_status status =
        read_real(rank, sbp_rank_buffer(rank, rank->program->loss_buffer), loss);
    *loss /= (double)(graph->global_batch * graph->sequence);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "reading the loss");
}
