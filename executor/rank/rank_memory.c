#include "executor/rank/rank_memory.h"

#include <stdlib.h>

#include "base/math/random.h"
#include "executor/rank/rank_states.h"

/* Streams of the data: weights use their tensor's index under the run's own seed. */
enum {
    STREAM_INPUT = 1,
    STREAM_OUTPUT_GRADIENT,
    STREAM_IDS,
    STREAM_LABELS,
};

/* ---- buffers -------------------------------------------------------------------------------- */

int64_t sbp_rank_element_bytes(const struct sbp_rank *rank, int buffer)
{
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    const bool is_wide =
        at->type == SBP_BUFFER_STATISTIC || at->use == SBP_USE_MOMENT || at->use == SBP_USE_MASTER;
    if (at->use == SBP_USE_BUCKET) /* of several states each */
        return sbp_program_buffer_bytes(rank->program, buffer) / at->elements;
    return at->type == SBP_BUFFER_INT32  ? (int64_t)sizeof(int32_t)
           : at->type == SBP_BUFFER_BYTE ? 1
           : is_wide                     ? rank->kernels->wide_bytes
                                         : rank->kernels->real_bytes;
}

void sbp_rank_turn(struct sbp_rank *rank, int chunk)
{
    rank->chunk = chunk;
    rank->bucket = 0;
    rank->program = rank->arena->program[chunk];
}

void sbp_rank_turn_version(struct sbp_rank *rank, int64_t updates)
{
    rank->version = (int)(updates & 1);
}

void sbp_rank_turn_gradients(struct sbp_rank *rank, int64_t step)
{
    rank->gradients = (int)(step & 1);
}

static int version_of(const struct sbp_rank *rank, int buffer)
{
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    const bool is_gradient = at->use == SBP_USE_GRADIENT;
    const int other = at->use == SBP_USE_WEIGHT ? rank->program->other_version[at->tensor]
                      : is_gradient             ? rank->program->other_gradient[at->tensor]
                                                : -1;
    return (is_gradient ? rank->gradients : rank->version) == 1 && other >= 0 ? other : buffer;
}

void *sbp_rank_buffer(struct sbp_rank *rank, int buffer)
{
    if (buffer < 0)
        return NULL;
    const struct sbp_buffer *at = &rank->program->buffer[version_of(rank, buffer)];
    const int64_t offset = sbp_stage_buffer_at(rank->arena, rank->chunk, rank->frame, at);
    const int64_t end = offset + at->elements * sbp_rank_element_bytes(rank, buffer);
    if (end > rank->high_water_bytes)
        rank->high_water_bytes = end;
    return rank->memory + offset;
}

enum sbp_status sbp_rank_to_host(const struct sbp_rank *rank, void *host, const void *device,
                                 int64_t bytes, struct sbp_diag *diag)
{
    const enum sbp_status status = rank->device->memory->to_host(host, device, bytes);
    return status == SBP_OK ? SBP_OK
                            : sbp_fail(diag, status, "copying from device %s", rank->device->name);
}

void sbp_rank_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region)
{
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    const struct sbp_shape *shape = &rank->program->graph->tensor[at->tensor].shape;
    sbp_dist_region(&rank->layout, shape, &at->dist, rank->rank, region);
}

void sbp_rank_batch_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region)
{
    sbp_rank_region(rank, buffer, region);
    region->first = rank->micro_batch * rank->program->graph->micro_batch;
}

/* Elements of a weight's block, without room for shards. */
static int64_t block_elements(const struct sbp_program *program, int tensor)
{
    return sbp_dist_local_elements(&program->mesh, &program->graph->tensor[tensor].shape,
                                   &program->buffer[program->weight_buffer[tensor]].dist);
}

/* Whether a place of the mesh owns a weight that has an owner. */
static bool owns(const struct sbp_program *program, int tensor, int64_t place)
{
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    return sbp_mesh_group_place(&program->mesh, shard->axes, place) == shard->owner;
}

int64_t sbp_rank_updates(const struct sbp_rank *rank, int tensor)
{
    const struct sbp_weight_shard *shard = &rank->program->shard[tensor];
    return shard->owner < 0 || owns(rank->program, tensor, rank->rank) ? shard->elements : 0;
}

struct sbp_stretch sbp_rank_share(const struct sbp_program *program, int tensor, int64_t place)
{
    const sbp_axes axes = program->shard[tensor].axes;
    const int64_t members = sbp_mesh_group_size(&program->mesh, axes);
    const int64_t all = block_elements(program, tensor);
    if (program->shard[tensor].owner >= 0)
        return owns(program, tensor, place) ? (struct sbp_stretch){0, all}
                                            : (struct sbp_stretch){all, 0};
    const int64_t most = (all + members - 1) / members;
    const int64_t first = most * sbp_mesh_group_place(&program->mesh, axes, place);
    const int64_t left = all > first ? all - first : 0;
    return (struct sbp_stretch){first < all ? first : all, left < most ? left : most};
}

struct sbp_stretch sbp_rank_stretch(const struct sbp_program *program, int tensor, int64_t place)
{
    return program->shard[tensor].level == 0
               ? (struct sbp_stretch){0, block_elements(program, tensor)}
               : sbp_rank_share(program, tensor, place);
}

void *sbp_rank_shard(struct sbp_rank *rank, int tensor, int buffer)
{
    const struct sbp_weight_shard *shard = &rank->program->shard[tensor];
    unsigned char *at = sbp_rank_buffer(rank, buffer);
    if (at == NULL || shard->level == 0 ||
        rank->program->buffer[buffer].elements == shard->elements)
        return at;
    const int64_t place = sbp_mesh_group_place(&rank->program->mesh, shard->axes, rank->rank);
    return at + place * shard->elements * rank->kernels->real_bytes;
}

bool sbp_rank_leads(const struct sbp_rank *rank, sbp_axes axes)
{
    for (int axis = 0; axis < rank->program->mesh.axis_count; axis++)
        if (axes >> axis & 1 && sbp_mesh_coordinate(&rank->program->mesh, rank->rank, axis) != 0)
            return false;
    return true;
}

static int64_t local_size(const struct sbp_rank *rank, const struct sbp_instr *instr, int place,
                          int dim)
{
    const struct sbp_buffer *buffer = &rank->program->buffer[instr->buffer[place]];
    return sbp_dist_local_size(&rank->program->mesh,
                               &rank->program->graph->tensor[buffer->tensor].shape, &buffer->dist,
                               dim);
}

int64_t sbp_rank_tokens(const struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return local_size(rank, instr, place, SBP_DIM_BATCH) *
           local_size(rank, instr, place, SBP_DIM_SEQUENCE);
}

int64_t sbp_rank_features(const struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return local_size(rank, instr, place, SBP_DIM_FEATURE) *
           local_size(rank, instr, place, SBP_DIM_INNER);
}

void sbp_rank_vocabulary(const struct sbp_rank *rank, int buffer, int dim,
                         struct sbp_digits *vocabulary)
{
    struct sbp_region region;
    sbp_rank_region(rank, buffer, &region);
    *vocabulary = region.dim[dim];
}

/* ---- their contents -------------------------------------------------------------------------- */

/* The rows of the padded dimension that count; the kernel knows padding in dimension 0 only. */
static int64_t valid_rows(const struct sbp_tensor *tensor)
{
    return tensor->valid_dim == 0 ? tensor->valid_rows : tensor->shape.size[0];
}

static void fill_block(const struct sbp_rank *rank, const struct sbp_kernels *kernels, int tensor,
                       void *block)
{
    const struct sbp_tensor *at = &rank->program->graph->tensor[tensor];
    struct sbp_region region;
    sbp_rank_region(rank, rank->program->weight_buffer[tensor], &region);
    kernels->fill_normal(block, &region, at->init_mean, at->init_spread, rank->seed,
                         (uint64_t)tensor, valid_rows(at), NULL);
}

/* A rank that holds a shard alone makes the block beside it for a moment. `kernels`: of the
 * shard's type. `hosted`: the shard is in host memory. */
static enum sbp_status fill_shard(struct sbp_rank *rank, const struct sbp_kernels *kernels,
                                  int tensor, void *shard, bool hosted)
{
    const struct sbp_stretch stretch = sbp_rank_stretch(rank->program, tensor, rank->rank);
    const struct sbp_memory_ops *memory = rank->device->memory;
    const int64_t bytes = kernels->real_bytes;
    const int order = 0;
    enum sbp_status status = SBP_OK;
    if (stretch.count == 0)
        return SBP_OK;
    char *block = memory->allocate(block_elements(rank->program, tensor) * bytes);
    if (block == NULL)
        return SBP_E_MEMORY;
    fill_block(rank, kernels, tensor, block);
    if (hosted)
        status = memory->to_host(shard, block + stretch.first * bytes, stretch.count * bytes);
    else
        kernels->permute(shard, block + stretch.first * bytes, 1, &stretch.count, &order);
    memory->release(block);
    return status;
}

/* A buffer of initial values, which is a shard from some ZeRO level on. A weight's are those of its
 * master copy, rounded, wherever that is. */
static enum sbp_status fill_states(struct sbp_rank *rank, const struct sbp_kernels *kernels,
                                   int tensor, int buffer, int sharded_from)
{
    if (rank->program->shard[tensor].level >= sharded_from)
        return fill_shard(rank, kernels, tensor, sbp_rank_buffer(rank, buffer), false);
    fill_block(rank, kernels, tensor, sbp_rank_buffer(rank, buffer));
    return SBP_OK;
}

static enum sbp_status fill_chunk(struct sbp_rank *rank)
{
    for (int t = 0; t < rank->program->graph->tensor_count; t++) {
        const int buffer = rank->program->weight_buffer[t], master = rank->program->master[t];
        const int other = rank->program->other_version[t];
        if (buffer >= 0)
            SBP_TRY(fill_states(rank, rank->kernels, t, buffer, 3));
        if (other >= 0)
            SBP_TRY(fill_states(rank, rank->kernels, t, other, 3));
        if (master >= 0)
            SBP_TRY(fill_states(rank, rank->wide, t, master, 1));
        if (buffer >= 0 && rank->program->host_bytes > 0 && rank->program->bytes.master > 0)
            SBP_TRY(fill_shard(rank, rank->wide, t,
                               sbp_rank_hosted(rank, 0, rank->program->shard[t].begin), true));
    }
    return SBP_OK;
}

enum sbp_status sbp_rank_fill_weights(struct sbp_rank *rank)
{
    for (int chunk = 0; chunk < rank->arena->chunks; chunk++) {
        sbp_rank_turn(rank, chunk);
        SBP_TRY(fill_chunk(rank));
    }
    return SBP_OK;
}

/* Index tables: one entry a token of the block of dimensions 0 and 1. */
enum table { TABLE_IDS, TABLE_LABELS, TABLE_POSITIONS };

/* The model's first table of tokens, or its loss, says how many rows are valid. */
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

/* The label of an id: far from it, and that of no other where they are no multiples of 5. */
static uint64_t label_of(uint64_t id)
{
    return 5 * id + 3;
}

static int32_t table_entry(const struct sbp_rank *rank, enum table table, int64_t valid,
                           int64_t batch, int64_t position)
{
    enum { ONE_IN = 8, MASKED_IN = 7, IGNORED = -1 }; /* labels that are drawn all the same */
    if (table == TABLE_POSITIONS)
        return (int32_t)position;
    const uint64_t token = (uint64_t)(batch * rank->program->graph->sequence + position);
    const uint64_t stream = table == TABLE_IDS ? STREAM_IDS : STREAM_LABELS;
    const uint64_t drawn = sbp_random_bits_at(rank->step_seed, stream, token);
    const bool is_of_id = table == TABLE_LABELS && rank->labels == SBP_LABELS_OF_IDS;
    if (table == TABLE_LABELS && rank->labels == SBP_LABELS_MASKED && (drawn >> 32) % MASKED_IN > 0)
        return IGNORED;
    if (!is_of_id || (drawn >> 32) % ONE_IN == 0)
        return (int32_t)(drawn % (uint64_t)valid);
    const int64_t ids = valid_vocabulary(rank->program->graph, TABLE_IDS);
    const uint64_t id = (uint64_t)table_entry(rank, TABLE_IDS, ids, batch, position);
    return (int32_t)(label_of(id) % (uint64_t)valid);
}

static enum sbp_status fill_table(struct sbp_rank *rank, enum table table, int64_t valid,
                                  int buffer, struct sbp_diag *diag)
{
    if (buffer < 0)
        return SBP_OK;
    struct sbp_region region;
    sbp_rank_batch_region(rank, buffer, &region);
    const int64_t rows = sbp_digits_local_size(&region.dim[SBP_DIM_BATCH]);
    const int64_t columns = sbp_digits_local_size(&region.dim[SBP_DIM_SEQUENCE]);
    const size_t bytes = (size_t)(rows * columns) * sizeof(int32_t);
    int32_t *entries = malloc(bytes);
    if (entries == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for token ids");
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            entries[row * columns + column] =
                table_entry(rank, table, valid,
                            region.first + sbp_digits_global(&region.dim[SBP_DIM_BATCH], row),
                            sbp_digits_global(&region.dim[SBP_DIM_SEQUENCE], column));
    const enum sbp_status status =
        rank->device->memory->from_host(sbp_rank_buffer(rank, buffer), entries, (int64_t)bytes);
    free(entries);
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "copying token ids to device %s", rank->device->name);
}

void sbp_rank_begin_step(struct sbp_rank *rank, int64_t step)
{
    rank->kernels->step_begin(rank->state, rank->program->bytes.scales_loss);
    rank->is_decided = rank->is_read = false;
    rank->norm = NULL;
    rank->step = step;
    sbp_rank_turn_data(rank, step);
    sbp_rank_turn_version(rank, step - 1);
    sbp_rank_turn_gradients(rank, step);
}

void sbp_rank_turn_data(struct sbp_rank *rank, int64_t step)
{
    rank->step_seed = sbp_random_bits_at(rank->seed, UINT64_MAX, (uint64_t)step);
}

enum sbp_status sbp_rank_begin_micro_batch(struct sbp_rank *rank, int64_t micro_batch,
                                           struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_graph *graph = program->graph;
    rank->micro_batch = micro_batch;
    for (int op = 0; op < graph->op_count; op++) {
        const int ids = program->ids_buffer[op], positions = program->positions_buffer[op];
        if (ids >= 0)
            SBP_TRY(fill_table(rank, TABLE_IDS, graph->tensor[graph->op[op].weight[0]].valid_rows,
                               ids, diag));
        SBP_TRY(fill_table(rank, TABLE_POSITIONS, 0, positions, diag)); /* no vocabulary */
    }
    return fill_table(rank, TABLE_LABELS, valid_vocabulary(graph, TABLE_LABELS),
                      program->labels_buffer, diag);
}

/* Standard normal data by global index; a partial tensor's value stands on one member. */
void sbp_rank_fill_data(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const uint64_t stream = instr->kind == SBP_INSTR_INPUT ? STREAM_INPUT : STREAM_OUTPUT_GRADIENT;
    const int buffer = instr->buffer[SBP_AT_OUT];
    const struct sbp_buffer *at = &rank->program->buffer[buffer];
    void *out = sbp_rank_buffer(rank, buffer);
    if (!sbp_rank_leads(rank, sbp_dist_of_kind(&rank->program->mesh, &at->dist, SBP_PARTIAL))) {
        rank->kernels->zero(out, at->elements);
        return;
    }
    struct sbp_region region;
    sbp_rank_batch_region(rank, buffer, &region);
    rank->kernels->fill_normal(out, &region, 0, 1, rank->step_seed, stream, INT64_MAX,
                               instr->kind == SBP_INSTR_INPUT ? NULL : rank->state);
}

/* The run of tokens from local row `row` on that follow each other, and the patch of the first. */
static int64_t run_of(const struct sbp_digits *rows, int64_t row, int64_t *first)
{
    const int64_t size = sbp_digits_local_size(rows);
    int64_t count = 1;
    *first = sbp_digits_global(rows, row);
    while (row + count < size && sbp_digits_global(rows, row + count) == *first + count)
        count++;
    return count;
}

void sbp_rank_fill_patches(struct sbp_rank *rank, const struct sbp_instr *instr,
                           const struct sbp_patches *patches)
{
    const int64_t all = sbp_digits_global_size(patches->rows);
    const int64_t rows = sbp_digits_local_size(patches->rows);
    char *to = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    struct sbp_region region;
    sbp_rank_batch_region(rank, instr->buffer[SBP_AT_OUT], &region);
    for (int64_t b = 0; b < patches->batch; b++) {
        const int64_t image = region.first + sbp_digits_global(&region.dim[SBP_DIM_BATCH], b);
        for (int64_t row = 0, count; row < rows; row += count) {
            int64_t first;
            count = run_of(patches->rows, row, &first);
            const int64_t left_out = patches->class_token && first == 0 ? 1 : 0;
            const int64_t filled = count - left_out;
            const struct sbp_region run = {
                .dim = {{.rest = filled}, {.rest = 1}, {.rest = 1}, {.rest = patches->pixels}},
                .first = image * all + first + left_out};
            if (filled > 0)
                rank->kernels->fill_normal(to, &run, 0, 1, rank->step_seed, STREAM_INPUT, INT64_MAX,
                                           NULL);
            to += filled * patches->pixels * rank->kernels->real_bytes;
        }
    }
}
