/* Where a program's buffers lie: persistent ones, then the frame, then the rest.
 *
 * The frame holds what a micro-batch keeps between its forward and its backward pass, and, where
 * weight gradients wait, what they read (enum sbp_frame_part). Several micro-batches in flight have
 * a frame each; all else is there once. At the turn from forward to backward the frame is full. A
 * sweep from the turn to the end gives a buffer the lowest hole when it is born and takes it back
 * after its last use, and so does a sweep from the turn back to the begin, with birth and death
 * exchanged; weight gradients that wait are a sweep of their own, since other micro-batches work
 * before them. Holes are those in the frame, where what it keeps is not born yet or has died, and
 * above it; no buffer lies in two parts, since those of a frame need not be neighbours. Offsets are
 * multiples of 64. */
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

/* Where buffers are while a sweep goes on: offsets within a part of the frame, or above it. */
struct room {
    struct sbp_program *program;
    const struct calendar *calendar;
    int turn;      /* first instruction behind the forward pass */
    int waits_at;  /* first one of the weight gradients that wait, or what follows them */
    bool *is_held; /* (buffer_count) persistent, or a part of the frame */
    int8_t *part;  /* (buffer_count) of the frame, where it lies; -1: not in it */
    struct sbp_holes frame[SBP_FRAME_PARTS], above;
};

static bool is_read_late(const struct room *room, int buffer)
{
    for (int i = room->waits_at; i < room->program->instr_count; i++)
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
            if (room->program->instr[i].buffer[k] == buffer)
                return true;
    return false;
}

/* The part of the frame that a buffer is of; -1: of none. Every micro-batch has token ids and
 * labels of its own, from its begin to its end. */
static int part_of(const struct room *room, int index)
{
    const struct sbp_buffer *buffer = &room->program->buffer[index];
    if (buffer->use == SBP_USE_INDEX)
        return is_read_late(room, index) ? SBP_FRAME_INPUTS : SBP_FRAME_KEPT;
    if (sbp_program_buffer_persists(buffer) || buffer->first < 0)
        return -1;
    if (buffer->first < room->turn && buffer->last >= room->turn)
        return buffer->last >= room->waits_at ? SBP_FRAME_INPUTS : SBP_FRAME_KEPT;
    return buffer->first >= room->turn && buffer->first < room->waits_at &&
                   buffer->last >= room->waits_at
               ? SBP_FRAME_GRADIENTS
               : -1;
}

/* Places what persists and what is of the frame, one after the other. */
static void place_held(struct room *room)
{
    struct sbp_program *program = room->program;
    int64_t *const frame_bytes = program->frame_bytes;
    program->persistent_bytes = 0;
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        frame_bytes[part] = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        struct sbp_buffer *buffer = &program->buffer[i];
        const int part = part_of(room, i);
        room->part[i] = (int8_t)part;
        room->is_held[i] = part >= 0 || sbp_program_buffer_persists(buffer);
        if (!room->is_held[i])
            continue;
        int64_t *const end = part >= 0 ? &frame_bytes[part] : &program->persistent_bytes;
        if (buffer->use == SBP_USE_BUCKET) /* the last that persists: weights come first */
            program->bucket_bytes = room->calendar->slot_bytes[i];
        buffer->offset_bytes =
            buffer->shares >= 0 ? program->buffer[buffer->shares].offset_bytes : *end;
        *end += room->calendar->slot_bytes[i];
    }
    program->kept_bytes = frame_bytes[SBP_FRAME_KEPT] + frame_bytes[SBP_FRAME_INPUTS];
}

static void enter(struct room *room, int buffer)
{
    struct sbp_buffer *const at = &room->program->buffer[buffer];
    const int64_t bytes = room->calendar->slot_bytes[buffer];
    if (room->is_held[buffer])
        return;
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        at->offset_bytes = sbp_holes_find(&room->frame[part], bytes);
        room->part[buffer] = (int8_t)part;
        if (at->offset_bytes >= 0)
            return;
    }
    room->part[buffer] = -1;
    at->offset_bytes = sbp_holes_take(&room->above, bytes);
}

static void leave(struct room *room, int buffer)
{
    const struct sbp_buffer *at = &room->program->buffer[buffer];
    const int64_t bytes = room->calendar->slot_bytes[buffer];
    const int part = room->part[buffer];
    if (bytes > 0 && !sbp_program_buffer_persists(at))
        sbp_holes_give_back(part >= 0 ? &room->frame[part] : &room->above, at->offset_bytes, bytes);
}

static void sweep_forth(struct room *room, int from, int to)
{
    const struct calendar *calendar = room->calendar;
    for (int t = from; t < to; t++) {
        for (int i = t > from ? calendar->died[t - 1] : -1; i >= 0; i = calendar->next_died[i])
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

/* Begins a sweep with full frames and nothing above them; keeps the highest top so far. */
static void empty(struct room *room, int64_t *above_bytes)
{
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        room->frame[part].count = 0;
    *above_bytes = room->above.top > *above_bytes ? room->above.top : *above_bytes;
    room->above.count = 0;
    room->above.top = 0;
}

/* Makes offsets within the arena out of those in the parts of the frame and above it. */
static void assemble(struct room *room, int64_t above_bytes)
{
    struct sbp_program *program = room->program;
    int64_t begin[SBP_FRAME_PARTS + 1] = {program->persistent_bytes};
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        begin[part + 1] = begin[part] + program->frame_bytes[part];
    program->arena_bytes = begin[SBP_FRAME_PARTS] + above_bytes;
    for (int i = 0; i < program->buffer_count; i++) {
        struct sbp_buffer *buffer = &program->buffer[i];
        if (room->part[i] >= 0)
            buffer->offset_bytes += begin[room->part[i]];
        else if (!sbp_program_buffer_persists(buffer) && buffer->first >= 0)
            buffer->offset_bytes += begin[SBP_FRAME_PARTS];
    }
}

static enum sbp_status open_room(struct room *room, struct sbp_arena *scratch)
{
    const int count = room->program->buffer_count + 1;
    bool fits = true;
    room->is_held = SBP_NEW(scratch, bool, count);
    room->part = SBP_NEW(scratch, int8_t, count);
    room->above.hole = SBP_NEW(scratch, struct sbp_hole, count);
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        room->frame[part].hole = SBP_NEW(scratch, struct sbp_hole, count);
        fits &= room->frame[part].hole != NULL;
    }
    return fits && room->is_held != NULL && room->part != NULL && room->above.hole != NULL
               ? SBP_OK
               : SBP_E_MEMORY;
}

/* Finds the instructions where the forward pass ends and where work begins that may wait. */
static void find_turns(struct room *room)
{
    const struct sbp_program *program = room->program;
    const bool waits = sbp_timeline_weights_wait(program->parallel.schedule);
    while (room->turn < program->instr_count &&
           program->instr[room->turn].section == SBP_SECTION_FORWARD)
        room->turn++;
    room->waits_at = waits ? room->turn : program->instr_count;
    while (room->waits_at < program->instr_count &&
           program->instr[room->waits_at].section != SBP_SECTION_BACKWARD_WEIGHT &&
           program->instr[room->waits_at].section != SBP_SECTION_STEP)
        room->waits_at++;
}

static enum sbp_status lay_out(struct sbp_program *program, const struct calendar *calendar,
                               struct sbp_arena *scratch)
{
    struct room room = {.program = program, .calendar = calendar};
    int64_t above_bytes = 0;
    SBP_TRY(open_room(&room, scratch));
    find_turns(&room);
    place_held(&room);
    sweep_forth(&room, room.turn, room.waits_at);
    empty(&room, &above_bytes);
    sweep_forth(&room, room.waits_at, program->instr_count);
    empty(&room, &above_bytes);
    sweep_to_begin(&room);
    empty(&room, &above_bytes);
    assemble(&room, above_bytes);
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
