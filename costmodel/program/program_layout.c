/* Where a program's buffers lie: persistent ones, then the frame, then the rest.
 *
 * The frame holds what a micro-batch keeps between its forward and its backward pass. Several
 * micro-batches in flight have a frame each; all else is there once. At the turn from forward to
 * backward the frame is full. A sweep from the turn to the end gives a buffer the lowest hole when
 * it is born and takes it back after its last use, and so does a sweep from the turn back to the
 * begin, with birth and death exchanged. Holes are those in the frame, where what it keeps is not
 * born yet or has died, and above it; no buffer lies in both, since frames need not be neighbours
 * of what is above. Offsets are multiples of 64. */
#include "base/math/numeric.h"
#include "costmodel/program/holes.h"
#include "costmodel/program/program_compile_priv.h"

#define MOST_BYTES (INT64_C(1) << 62)

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

/* Slot sizes, and for each instruction linked lists of the buffers that are born and that die
 * there. */
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
        const bool fits = bytes >= 0 && bytes <= MOST_BYTES;
        slot_bytes[i] = fits ? sbp_program_slot_bytes(program, i) : 0;
        if (!fits || !sbp_add_i64(total, slot_bytes[i], &total) || total > MOST_BYTES)
            return sbp_fail(diag, SBP_E_RANGE,
                            "memory: a device's buffers pass 2^62 bytes, fewer are legal");
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
        if (buffer->first < 0 || buffer->last < 0)
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

/* Where buffers are while a sweep goes on: offsets within the frame, and above it. */
struct room {
    struct sbp_program *program;
    const struct calendar *calendar;
    int turn;      /* first instruction behind the forward pass */
    bool *is_kept; /* (buffer_count) */
    bool *in_frame;
    struct sbp_holes frame, above;
};

/* Every micro-batch has token ids and labels of its own, from its begin to its end. */
static bool is_kept(const struct sbp_buffer *buffer, int turn)
{
    return buffer->use == SBP_USE_INDEX ||
           (!sbp_program_buffer_persists(buffer) && buffer->first >= 0 && buffer->first < turn &&
            buffer->last >= turn);
}

/* Places what persists and what is kept, one after the other. */
static void place_held(struct room *room)
{
    struct sbp_program *program = room->program;
    program->persistent_bytes = program->kept_bytes = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        struct sbp_buffer *buffer = &program->buffer[i];
        const int64_t bytes = room->calendar->slot_bytes[i];
        room->is_kept[i] = room->in_frame[i] = is_kept(buffer, room->turn);
        if (!room->is_kept[i] && !sbp_program_buffer_persists(buffer))
            continue;
        int64_t *const end = room->is_kept[i] ? &program->kept_bytes : &program->persistent_bytes;
        buffer->offset_bytes = *end;
        *end += bytes;
    }
    program->frame_bytes[SBP_FRAME_KEPT] = program->kept_bytes;
}

static void enter(struct room *room, int buffer)
{
    struct sbp_buffer *const at = &room->program->buffer[buffer];
    const int64_t bytes = room->calendar->slot_bytes[buffer];
    if (room->is_kept[buffer] || sbp_program_buffer_persists(at))
        return;
    at->offset_bytes = sbp_holes_find(&room->frame, bytes);
    room->in_frame[buffer] = at->offset_bytes >= 0;
    if (!room->in_frame[buffer])
        at->offset_bytes = sbp_holes_take(&room->above, bytes);
}

static void leave(struct room *room, int buffer)
{
    const struct sbp_buffer *at = &room->program->buffer[buffer];
    const int64_t bytes = room->calendar->slot_bytes[buffer];
    if (bytes > 0 && !sbp_program_buffer_persists(at))
        sbp_holes_give_back(room->in_frame[buffer] ? &room->frame : &room->above, at->offset_bytes,
                            bytes);
}

static void sweep_to_end(struct room *room)
{
    const struct calendar *calendar = room->calendar;
    for (int t = room->turn; t < room->program->instr_count; t++) {
        for (int i = t > room->turn ? calendar->died[t - 1] : -1; i >= 0;
             i = calendar->next_died[i])
            leave(room, i);
        for (int i = calendar->born[t]; i >= 0; i = calendar->next_born[i])
            enter(room, i);
    }
}

/* What dies at the last instruction of the forward pass, or before, is not kept. */
static void sweep_to_begin(struct room *room)
{
    const struct calendar *calendar = room->calendar;
    for (int t = room->turn - 1; t >= 0; t--) {
        for (int i = t + 1 < room->turn ? calendar->born[t + 1] : -1; i >= 0;
             i = calendar->next_born[i])
            leave(room, i);
        for (int i = calendar->died[t]; i >= 0; i = calendar->next_died[i])
            enter(room, i);
    }
}

static void empty(struct room *room)
{
    room->frame.count = room->above.count = 0;
    room->above.top = 0;
}

/* Makes offsets within the arena out of those in the frame and above it. */
static void assemble(struct room *room, int64_t above_bytes)
{
    struct sbp_program *program = room->program;
    const int64_t frame = program->persistent_bytes, above = frame + program->kept_bytes;
    program->arena_bytes = above + above_bytes;
    for (int i = 0; i < program->buffer_count; i++) {
        struct sbp_buffer *buffer = &program->buffer[i];
        if (room->in_frame[i])
            buffer->offset_bytes += frame;
        else if (!sbp_program_buffer_persists(buffer) && buffer->first >= 0)
            buffer->offset_bytes += above;
    }
}

static enum sbp_status lay_out(struct sbp_program *program, const struct calendar *calendar,
                               struct sbp_arena *scratch)
{
    const int count = program->buffer_count + 1;
    struct room room = {.program = program,
                        .calendar = calendar,
                        .is_kept = SBP_NEW(scratch, bool, count),
                        .in_frame = SBP_NEW(scratch, bool, count),
                        .frame = {.hole = SBP_NEW(scratch, struct sbp_hole, count)},
                        .above = {.hole = SBP_NEW(scratch, struct sbp_hole, count)}};
    if (room.is_kept == NULL || room.in_frame == NULL || room.frame.hole == NULL ||
        room.above.hole == NULL)
        return SBP_E_MEMORY;
    while (room.turn < program->instr_count &&
           program->instr[room.turn].section == SBP_SECTION_FORWARD)
        room.turn++;
    place_held(&room);
    sweep_to_end(&room);
    const int64_t above_bytes = room.above.top;
    empty(&room);
    sweep_to_begin(&room);
    assemble(&room, above_bytes > room.above.top ? above_bytes : room.above.top);
    return SBP_OK;
}

enum sbp_status sbp_program_lay_out(struct sbp_program *program, struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    struct calendar calendar;
    sbp_arena_init(&scratch);
    int *group_end = SBP_NEW(&scratch, int, program->groups + 1);
    enum sbp_status status = group_end == NULL ? SBP_E_MEMORY : SBP_OK;
    if (status == SBP_OK) {
        find_lifetimes(program, group_end);
        status = make_calendar(program, &scratch, &calendar, diag);
    }
    if (status == SBP_OK)
        status = lay_out(program, &calendar, &scratch);
    if (status == SBP_OK)
        count_live(program, &calendar);
    sbp_arena_free(&scratch);
    return status;
}
