#include "costmodel/program/program_layout.h"

#include <string.h>

#include "base/math/numeric.h"

#define MOST_BYTES (INT64_C(1) << 62)

bool sbp_program_buffer_persists(const struct sbp_buffer *buffer)
{
    return buffer->use <= SBP_USE_INDEX;
}

int64_t sbp_program_buffer_bytes(const struct sbp_program *program, int buffer)
{
    const struct sbp_buffer *b = &program->buffer[buffer];
    int64_t element = program->bytes.activation;
    if (b->type == SBP_BUFFER_INT32)
        element = 4;
    else if (b->type == SBP_BUFFER_BYTE)
        element = 1;
    else if (b->type == SBP_BUFFER_LOSS)
        element = program->bytes.loss;
    else if ((b->use == SBP_USE_GATHERED || b->use == SBP_USE_UNREDUCED) &&
             program->bytes.compute > 0)
        element = program->bytes.compute;
    else if (b->use == SBP_USE_WEIGHT || b->use == SBP_USE_GATHERED)
        element = program->bytes.weight;
    else if (b->use == SBP_USE_GRADIENT || b->use == SBP_USE_UNREDUCED)
        element = program->bytes.gradient;
    else if (b->use == SBP_USE_SUM)
        element = program->bytes.sum;
    else if (b->use == SBP_USE_MOMENT)
        element = program->bytes.moment;
    else if (b->use == SBP_USE_MASTER)
        element = program->bytes.master;
    else if (b->use == SBP_USE_BUCKET)
        element = program->bytes.master + program->bytes.gradient_master +
                  sbp_graph_training_moments(&program->graph->training) * program->bytes.moment;
    int64_t bytes = 0;
    return sbp_mul_i64(b->elements, element, &bytes) ? bytes : -1;
}

static int64_t slot_of(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int64_t sbp_program_slot_bytes(const struct sbp_program *program, int buffer)
{
    return slot_of(sbp_program_buffer_bytes(program, buffer));
}

/* group_end: (groups + 1), zeros. */
static void find_lifetimes(struct sbp_program *program, int *group_end)
{
    for (int i = 0; i < program->instr_count; i++)
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++) {
            if (program->instr[i].buffer[k] < 0)
                continue;
            struct sbp_buffer *buffer = &program->buffer[program->instr[i].buffer[k]];
            if (buffer->first < 0)
                buffer->first = i;
            buffer->last = i;
        }
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].last > group_end[program->buffer[i].group])
            group_end[program->buffer[i].group] = program->buffer[i].last;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].group > 0 && program->buffer[i].first >= 0)
            program->buffer[i].last = group_end[program->buffer[i].group];
    /* The loss is read after the step. */
    if (program->loss_buffer >= 0)
        program->buffer[program->loss_buffer].last = program->instr_count - 1;
    for (int i = 0; i < program->buffer_count; i++)
        if (sbp_program_buffer_persists(&program->buffer[i])) {
            program->buffer[i].first = 0;
            program->buffer[i].last = program->instr_count - 1;
        }
}

/* A free stretch of the arena below the high-water mark. */
struct hole {
    int64_t offset, bytes;
};

struct heap {
    struct hole *hole; /* by offset */
    int count;
    int64_t top;
};

/* Lowest hole that is large enough, else the top (grown from a hole that touches it). */
static int64_t take(struct heap *heap, int64_t bytes)
{
    for (int i = 0; i < heap->count; i++) {
        struct hole *hole = &heap->hole[i];
        const bool at_top = hole->offset + hole->bytes == heap->top;
        if (hole->bytes < bytes && !at_top)
            continue;
        const int64_t offset = hole->offset;
        if (hole->bytes > bytes) {
            hole->offset += bytes;
            hole->bytes -= bytes;
        } else {
            if (offset + bytes > heap->top)
                heap->top = offset + bytes;
            memmove(hole, hole + 1, (size_t)(heap->count - i - 1) * sizeof *hole);
            heap->count--;
        }
        return offset;
    }
    const int64_t offset = heap->top;
    heap->top += bytes;
    return offset;
}

/* Joins a hole with the next one when they touch. */
static void merge_with_next(struct heap *heap, int at)
{
    if (at < 0 || at + 1 >= heap->count)
        return;
    struct hole *here = &heap->hole[at], *next = here + 1;
    if (here->offset + here->bytes != next->offset)
        return;
    here->bytes += next->bytes;
    memmove(next, next + 1, (size_t)(heap->count - at - 2) * sizeof *next);
    heap->count--;
}

static void give_back(struct heap *heap, int64_t offset, int64_t bytes)
{
    int at = 0;
    while (at < heap->count && heap->hole[at].offset < offset)
        at++;
    memmove(&heap->hole[at + 1], &heap->hole[at], (size_t)(heap->count - at) * sizeof *heap->hole);
    heap->hole[at] = (struct hole){offset, bytes};
    heap->count++;
    merge_with_next(heap, at);
    merge_with_next(heap, at - 1);
}

/* What buffers take, and, as linked lists, those that are born and those that die at an
 * instruction. */
struct calendar {
    int64_t *slot_bytes;        /* (buffer_count) */
    int *born, *died;           /* (instr_count) first buffer of the list, -1: none */
    int *next_born, *next_died; /* (buffer_count) */
};

static int *unset(struct sbp_arena *arena, int count)
{
    int *list = SBP_NEW(arena, int, count);
    for (int i = 0; list != NULL && i < count; i++)
        list[i] = -1;
    return list;
}

static enum sbp_status find_sizes(const struct sbp_program *program, int64_t *slot_bytes,
                                  struct sbp_diag *diag)
{
    int64_t total = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        const int64_t bytes = sbp_program_buffer_bytes(program, i);
        if (bytes < 0 || bytes > MOST_BYTES || !sbp_add_i64(total, slot_of(bytes), &total) ||
            total > MOST_BYTES)
            return sbp_fail(diag, SBP_E_RANGE,
                            "memory: a device's buffers pass 2^62 bytes, fewer are legal");
        slot_bytes[i] = slot_of(bytes);
    }
    return SBP_OK;
}

static enum sbp_status make_calendar(struct sbp_program *program, struct sbp_arena *scratch,
                                     struct calendar *calendar, struct sbp_diag *diag)
{
    *calendar =
        (struct calendar){.slot_bytes = SBP_NEW(scratch, int64_t, program->buffer_count + 1),
                          .born = unset(scratch, program->instr_count),
                          .died = unset(scratch, program->instr_count),
                          .next_born = unset(scratch, program->buffer_count),
                          .next_died = unset(scratch, program->buffer_count)};
    if (calendar->slot_bytes == NULL || calendar->born == NULL || calendar->died == NULL ||
        calendar->next_born == NULL || calendar->next_died == NULL)
        return SBP_E_MEMORY;
    for (int i = program->buffer_count - 1; i >= 0; i--) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        if (sbp_program_buffer_persists(buffer) || buffer->first < 0)
            continue;
        calendar->next_born[i] = calendar->born[buffer->first];
        calendar->born[buffer->first] = i;
        calendar->next_died[i] = calendar->died[buffer->last];
        calendar->died[buffer->last] = i;
    }
    return find_sizes(program, calendar->slot_bytes, diag);
}

/* live_bytes: most bytes that live at once, however they are laid out. */
static void count_live(struct sbp_program *program, const struct calendar *calendar)
{
    int64_t live = 0;
    program->live_bytes = 0;
    for (int t = 0; t < program->instr_count; t++) {
        for (int i = t > 0 ? calendar->died[t - 1] : -1; i >= 0; i = calendar->next_died[i])
            live -= calendar->slot_bytes[i];
        for (int i = calendar->born[t]; i >= 0; i = calendar->next_born[i])
            live += calendar->slot_bytes[i];
        if (live > program->live_bytes)
            program->live_bytes = live;
    }
}

static void sweep(struct sbp_program *program, const struct calendar *calendar, struct heap *heap)
{
    for (int i = 0; i < program->buffer_count; i++)
        if (sbp_program_buffer_persists(&program->buffer[i]))
            program->buffer[i].offset_bytes = take(heap, calendar->slot_bytes[i]);
    for (int t = 0; t < program->instr_count; t++) {
        for (int i = t > 0 ? calendar->died[t - 1] : -1; i >= 0; i = calendar->next_died[i])
            give_back(heap, program->buffer[i].offset_bytes, calendar->slot_bytes[i]);
        for (int i = calendar->born[t]; i >= 0; i = calendar->next_born[i])
            program->buffer[i].offset_bytes = take(heap, calendar->slot_bytes[i]);
    }
    program->arena_bytes = heap->top;
}

/* What persists, and what lives between the passes of a micro-batch: beside buffers whose lifetime
 * spans the turn, the token ids and labels that each micro-batch has of its own. */
static void sum_up(struct sbp_program *program, const int64_t *slot_bytes)
{
    int turn = 0;
    while (turn < program->instr_count && program->instr[turn].section == SBP_SECTION_FORWARD)
        turn++;
    program->persistent_bytes = program->kept_bytes = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        const int64_t bytes = slot_bytes[i];
        if (sbp_program_buffer_persists(buffer))
            program->persistent_bytes += bytes;
        else if (buffer->first < 0 || buffer->first >= turn || buffer->last < turn)
            continue;
        if (!sbp_program_buffer_persists(buffer) || buffer->use == SBP_USE_INDEX)
            program->kept_bytes += bytes;
    }
}

enum sbp_status sbp_program_lay_out(struct sbp_program *program, struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    struct calendar calendar;
    sbp_arena_init(&scratch);
    int *group_end = SBP_NEW(&scratch, int, program->groups + 1);
    struct heap heap = {.hole = SBP_NEW(&scratch, struct hole, program->buffer_count + 1)};
    enum sbp_status status = heap.hole == NULL || group_end == NULL ? SBP_E_MEMORY : SBP_OK;
    if (status == SBP_OK) {
        find_lifetimes(program, group_end);
        status = make_calendar(program, &scratch, &calendar, diag);
    }
    if (status == SBP_OK) {
        sweep(program, &calendar, &heap);
        count_live(program, &calendar);
        sum_up(program, calendar.slot_bytes);
        program->live_bytes += program->persistent_bytes;
    }
    sbp_arena_free(&scratch);
    return status;
}
