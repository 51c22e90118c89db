#include "executor/run/run_fault.h"

#include <math.h>
#include <stddef.h>
#include <unistd.h>

static const double SCALE = 1.0 + 1.0 / 64;
static const double LARGE = 49152; /* a number in all types, and its square where sums are formed */

static enum sbp_status begin_first_rows(struct sbp_rank *rank, struct sbp_diag *diag)
{
    return rank->micro_batch > 0 ? sbp_rank_begin_micro_batch(rank, 0, diag) : SBP_OK;
}

/* Turns to the next frame of the arena that lies elsewhere than the own one. */
static void turn_frame(struct sbp_rank *rank)
{
    const struct sbp_stage_layout *arena = rank->arena;
    const int64_t own = rank->frame;
    const int64_t frames = arena->turns != NULL ? arena->turns[rank->chunk] : arena->micro_batches;
    const int64_t(*frame_at)[SBP_FRAME_PARTS] =
        (const int64_t(*)[SBP_FRAME_PARTS]) & arena->frame_at[rank->chunk * arena->micro_batches];
    do
        rank->frame = (rank->frame + 1) % frames;
    while (rank->frame != own &&
           frame_at[rank->frame][SBP_FRAME_KEPT] == frame_at[own][SBP_FRAME_KEPT]);
}

enum sbp_status sbp_run_fault_before(struct sbp_run_fault *memory, enum sbp_fault fault,
                                     struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    if (fault == SBP_FAULT_SKIP)
        rank->channel->skip = true;
    rank->channel->shortens =
        fault == SBP_FAULT_COUNT && rank->rank == rank->program->mesh.devices - 1;
    if (fault == SBP_FAULT_LEAVE_OUT)
        rank->kernels->zero(sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_OUT]),
                            (int64_t)instr->inner_elements);
    rank->skips_copy = fault == SBP_FAULT_NO_COPY && rank->bucket == 2 && rank->step > 1;
    memory->micro_batch = rank->micro_batch;
    memory->frame = rank->frame;
    memory->version = rank->version;
    if (fault == SBP_FAULT_FRAME)
        turn_frame(rank);
    if (fault == SBP_FAULT_VERSION && rank->step > 1) /* at first both are the same */
        rank->version = 1 - rank->version;
    return fault == SBP_FAULT_ROWS ? begin_first_rows(rank, diag) : SBP_OK;
}

static bool is_last(const struct sbp_rank *rank)
{
    return rank->rank == rank->program->mesh.devices - 1;
}

enum sbp_status sbp_run_fault_begin_step(enum sbp_fault fault, struct sbp_rank *rank,
                                         struct sbp_diag *diag)
{
    if (fault != SBP_FAULT_LOSS_SCALE || rank->step != 1 || !is_last(rank))
        return SBP_OK;
    SBP_TRY(sbp_rank_read_state(rank, diag));
    rank->known.loss_scale /= 2;
    const enum sbp_status status =
        rank->device->memory->from_host(rank->state, &rank->known, sizeof rank->known);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "planting another loss scale");
}

/* Of the first token's first copy, which has one, and of the last copy; on a CPU. */
static void exchange_slots(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    int32_t *const table = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED3]);
    const int64_t numbers =
        rank->program->buffer[instr->buffer[SBP_AT_SAVED3]].elements / (int64_t)sizeof *table;
    const int32_t kept = table[1];
    table[1] = table[numbers - 1];
    table[numbers - 1] = kept;
}

/* Spoils an instruction's result on the stage's last rank, or never comes back from it. */
static void spoil_result(struct sbp_rank *rank, enum sbp_fault fault, const struct sbp_instr *instr)
{
    const int out = instr->buffer[SBP_AT_OUT];
    if (!is_last(rank))
        return;
    while (fault == SBP_FAULT_STALL)
        (void)pause();
    if (fault == SBP_FAULT_SLOT)
        exchange_slots(rank, instr);
    if (fault == SBP_FAULT_SCALE && out >= 0)
        rank->kernels->scale(sbp_rank_buffer(rank, out), SCALE,
                             rank->program->buffer[out].elements);
    if (fault == SBP_FAULT_ODD && out >= 0)
        rank->kernels->scale(sbp_rank_buffer(rank, out), (double)NAN, 1);
}

/* Writes a number count times, from element `first` on: by way of the device's memory, as kernels
 * want it. */
static enum sbp_status put(const struct sbp_rank *rank, const struct sbp_kernels *kernels, void *to,
                           int64_t first, int64_t count, double value, struct sbp_diag *diag)
{
    const struct sbp_memory_ops *memory = rank->device->memory;
    const float single = (float)value;
    const void *wide =
        rank->wide->real_bytes == sizeof single ? (const void *)&single : (const void *)&value;
    void *number = memory->allocate(rank->wide->real_bytes);
    if (number == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a planted fault");
    enum sbp_status status = memory->from_host(number, wide, rank->wide->real_bytes);
    for (int64_t i = first; status == SBP_OK && i < first + count; i++)
        kernels->from_wide((unsigned char *)to + i * kernels->real_bytes, number, 1);
    if (status == SBP_OK)
        status = rank->device->finish(diag);
    memory->release(number);
    return status;
}

static enum sbp_status spoil_element(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    const int out =
        instr->buffer[SBP_AT_OUT] >= 0 ? instr->buffer[SBP_AT_OUT] : instr->buffer[SBP_AT_DW];
    if (!is_last(rank) || rank->step != 2 || out < 0)
        return SBP_OK;
    const bool is_wide = rank->program->buffer[out].type == SBP_BUFFER_STATISTIC;
    return put(rank, is_wide ? rank->wide : rank->kernels, sbp_rank_buffer(rank, out), 0, 1,
               (double)INFINITY, diag);
}

static void copy(const struct sbp_rank *rank, void *to, const void *from, int64_t first,
                 int64_t count)
{
    const int64_t bytes = first * rank->kernels->real_bytes;
    const int order = 0;
    rank->kernels->permute((char *)to + bytes, (const char *)from + bytes, 1, &count, &order);
}

/* Keeps a weight that was gathered, or updated, in the first step, and brings it back in later
 * ones: of a gathered one the other members' shards, of an updated one all. */
static enum sbp_status bring_back(struct sbp_run_fault *memory, struct sbp_rank *rank,
                                  const struct sbp_instr *instr, struct sbp_diag *diag)
{
    const bool gathers = instr->kind == SBP_INSTR_GATHER;
    const int buffer = instr->buffer[gathers ? SBP_AT_OUT : SBP_AT_W];
    const struct sbp_weight_shard *shard = &rank->program->shard[instr->tensor];
    const int64_t elements = rank->program->buffer[buffer].elements;
    const int64_t place = sbp_mesh_group_place(&rank->program->mesh, shard->axes, rank->rank);
    const int64_t own = gathers ? place * shard->elements : elements;
    const int64_t after = gathers ? own + shard->elements : elements;
    void *const weight = sbp_rank_buffer(rank, buffer);
    if (memory->kept == NULL)
        memory->kept = rank->device->memory->allocate(elements * rank->kernels->real_bytes);
    if (memory->kept == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a planted fault");
    if (rank->step == 1) {
        copy(rank, memory->kept, weight, 0, elements);
        return SBP_OK;
    }
    copy(rank, weight, memory->kept, 0, own);
    copy(rank, weight, memory->kept, after, elements - after);
    return SBP_OK;
}

/* Large numbers of a buffer's own type, from an element of a shard on. */
static enum sbp_status set_large(struct sbp_rank *rank, int tensor, int buffer, int64_t first,
                                 struct sbp_diag *diag)
{
    unsigned char *const shard = sbp_rank_shard(rank, tensor, buffer);
    if (shard == NULL)
        return SBP_OK;
    const int64_t bytes = sbp_rank_element_bytes(rank, buffer);
    const struct sbp_kernels *kernels =
        bytes == rank->wide->real_bytes ? rank->wide : rank->kernels;
    return put(rank, kernels, shard, first, rank->program->shard[tensor].elements - first, LARGE,
               diag);
}

/* Behind the end of a shard and of its states, or in the last element of each before it. In half
 * precision after a step that did not overflow: one that does must change no state. */
static enum sbp_status set_all_large(struct sbp_rank *rank, int tensor, bool behind,
                                     struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    const int states[] = {program->weight_buffer[tensor], program->gradient_buffer[tensor],
                          program->first_moment[tensor], program->second_moment[tensor],
                          program->master[tensor]};
    const int64_t count = sbp_rank_stretch(program, tensor, rank->rank).count;
    SBP_TRY(sbp_rank_read_state(rank, diag));
    if ((!behind && count == 0) || (program->bytes.scales_loss && rank->known.good_steps == 0))
        return SBP_OK;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        SBP_TRY(set_large(rank, tensor, states[i], behind ? count : count - 1, diag));
    return SBP_OK;
}

enum sbp_status sbp_run_fault_after(struct sbp_run_fault *memory, enum sbp_fault fault,
                                    struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag)
{
    rank->channel->skip = rank->channel->shortens = rank->skips_copy = false;
    rank->micro_batch = memory->micro_batch;
    rank->frame = memory->frame;
    rank->version = memory->version;
    spoil_result(rank, fault, instr);
    if (fault == SBP_FAULT_INFINITY)
        SBP_TRY(spoil_element(rank, instr, diag));
    if (fault == SBP_FAULT_STALE)
        return bring_back(memory, rank, instr, diag);
    if (fault == SBP_FAULT_PADDING || fault == SBP_FAULT_LARGE)
        return set_all_large(rank, instr->tensor, fault == SBP_FAULT_PADDING, diag);
    return SBP_OK;
}

void sbp_run_fault_free(struct sbp_run_fault *memory, const struct sbp_rank *rank)
{
    if (memory->kept != NULL)
        rank->device->memory->release(memory->kept);
    memory->kept = NULL;
}
