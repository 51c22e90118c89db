#include "costmodel/program/stage_layout.h"

#include "base/math/numeric.h"
#include "costmodel/program/holes.h"

enum sbp_status sbp_stage_works(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                                struct sbp_timeline_work **work, int64_t *count,
                                struct sbp_diag *diag)
{
    const struct sbp_timeline_request request = sbp_step_timeline(step);
    return sbp_timeline_works(&request, stage, arena, work, count, diag);
}

/* ---- frames -------------------------------------------------------------------------------- */

/* Chunks whose frames differ by at most this share may have slots of one size. */
#define ALIKE (1.0 / 8)

/* One way to place frames. A part of a chunk's frames takes slots of a region. */
struct placing {
    struct sbp_stage_layout *layout;
    int64_t *slot_bytes; /* (chunks) of what is kept; other parts: their own */
    int *region_of;      /* (chunks) a chunk that stands for its region */
    struct sbp_holes (*region)[SBP_FRAME_PARTS]; /* (chunks) */
    struct sbp_hole *hole[SBP_FRAME_PARTS];      /* of all regions */
    int64_t (
        *end)[SBP_FRAME_PARTS]; /* (chunks) of the highest frame, in a slot that may be larger */
};

static int64_t bytes_of(const struct placing *p, int chunk, enum sbp_frame_part part)
{
    return part == SBP_FRAME_KEPT ? p->slot_bytes[chunk]
                                  : p->layout->program[chunk]->frame_bytes[part];
}

static void begin_part(struct placing *p, int64_t frame, int chunk, enum sbp_frame_part part)
{
    const int64_t bytes = bytes_of(p, chunk, part);
    int64_t *const end = &p->end[p->region_of[chunk]][part];
    if (bytes == 0)
        return;
    const int64_t at = sbp_holes_take(&p->region[p->region_of[chunk]][part], bytes);
    const int64_t own_end = at + p->layout->program[chunk]->frame_bytes[part];
    p->layout->frame_at[frame][part] = at;
    *end = own_end > *end ? own_end : *end;
}

static void end_part(struct placing *p, int64_t frame, int chunk, enum sbp_frame_part part)
{
    const int64_t bytes = bytes_of(p, chunk, part);
    if (bytes > 0)
        sbp_holes_give_back(&p->region[p->region_of[chunk]][part], p->layout->frame_at[frame][part],
                            bytes);
}

static void place_work(struct placing *p, int chunk, const struct sbp_timeline_work *work)
{
    const int64_t frame = chunk * p->layout->micro_batches + work->micro_batch;
    switch (work->kind) {
    case SBP_WORK_FORWARD:
        begin_part(p, frame, chunk, SBP_FRAME_KEPT);
        begin_part(p, frame, chunk, SBP_FRAME_INPUTS);
        break;
    case SBP_WORK_BACKWARD:
        begin_part(p, frame, chunk, SBP_FRAME_GRADIENTS);
        end_part(p, frame, chunk, SBP_FRAME_KEPT);
        break;
    default:
        end_part(p, frame, chunk, SBP_FRAME_INPUTS);
        end_part(p, frame, chunk, SBP_FRAME_GRADIENTS);
    }
}

/* The largest frame of a chunk that is about as large as this chunk's. */
static int64_t slot_alike(const struct sbp_stage_layout *layout, int chunk)
{
    const int64_t own = layout->program[chunk]->frame_bytes[SBP_FRAME_KEPT];
    int64_t largest = own;
    for (int other = 0; other < layout->chunks; other++) {
        const int64_t bytes = layout->program[other]->frame_bytes[SBP_FRAME_KEPT];
        if (bytes > largest && (double)(bytes - own) <= ALIKE * (double)bytes)
            largest = bytes;
    }
    return largest;
}

/* Slots of one size have a region; else all chunks share one, each with slots of its own size. */
static void choose_slots(struct placing *p, bool alike)
{
    for (int chunk = 0; chunk < p->layout->chunks; chunk++) {
        p->slot_bytes[chunk] = alike ? slot_alike(p->layout, chunk)
                                     : p->layout->program[chunk]->frame_bytes[SBP_FRAME_KEPT];
        p->region_of[chunk] = 0;
        while (alike && p->slot_bytes[p->region_of[chunk]] != p->slot_bytes[chunk])
            p->region_of[chunk]++;
    }
}

/* Every region has room for a hole behind each of its frames, and one before them. */
static void empty_regions(struct placing *p)
{
    int64_t room = 0;
    for (int region = 0; region < p->layout->chunks; region++) {
        for (int part = 0; part < SBP_FRAME_PARTS; part++) {
            p->region[region][part] = (struct sbp_holes){.hole = p->hole[part] + room};
            p->end[region][part] = 0;
        }
        for (int chunk = 0; chunk < p->layout->chunks; chunk++)
            room += p->region_of[chunk] == region ? p->layout->micro_batches : 0;
        room++;
    }
}

/* Places the frames that micro-batches take in turn, one behind the other. */
static void place_turns(struct placing *p)
{
    for (int chunk = 0; p->layout->turns != NULL && chunk < p->layout->chunks; chunk++)
        for (int64_t i = 0; i < p->layout->turns[chunk]; i++)
            begin_part(p, chunk * p->layout->micro_batches + i, chunk, SBP_FRAME_KEPT);
}

/* Sets the places of all frames within their regions; returns the bytes of these. */
static int64_t place_frames(struct placing *p, bool alike, int stages,
                            const struct sbp_timeline_work *work, int64_t count)
{
    int64_t bytes = 0;
    choose_slots(p, alike);
    empty_regions(p);
    place_turns(p);
    for (int64_t i = 0; i < count && p->layout->turns == NULL; i++)
        place_work(p, work[i].stage / stages, &work[i]);
    for (int chunk = 0; chunk < p->layout->chunks; chunk++)
        for (int part = 0; part < SBP_FRAME_PARTS; part++)
            bytes += p->end[chunk][part];
    return bytes;
}

static enum sbp_status open_placing(struct placing *p, struct sbp_arena *arena)
{
    const int64_t chunks = p->layout->chunks, room = chunks * (p->layout->micro_batches + 1);
    p->slot_bytes = SBP_NEW(arena, int64_t, chunks);
    p->region_of = SBP_NEW(arena, int, chunks);
    p->region = sbp_arena_alloc(arena, (size_t)chunks, sizeof *p->region);
    p->end = sbp_arena_alloc(arena, (size_t)chunks, sizeof *p->end);
    if (p->slot_bytes == NULL || p->region_of == NULL || p->region == NULL || p->end == NULL)
        return SBP_E_MEMORY;
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        p->hole[part] = SBP_TAKE(arena, struct sbp_hole, room);
        if (p->hole[part] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* Takes the way that needs less: regions of slots have no gaps, but are fullest at different times.
 */
static void choose_places(struct placing *p, int stages, const struct sbp_timeline_work *work,
                          int64_t count)
{
    const int64_t in_slots =
        p->layout->chunks > 1 ? place_frames(p, true, stages, work, count) : INT64_MAX;
    if (place_frames(p, false, stages, work, count) > in_slots)
        (void)place_frames(p, true, stages, work, count);
}

/* ---- the arena ----------------------------------------------------------------------------- */

static int64_t frame_end(const struct sbp_program *program)
{
    int64_t end = program->persistent_bytes;
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        end += program->frame_bytes[part];
    return end;
}

/* Puts the states first, then the bucket, the regions, and the rest. */
static void stack(const struct placing *p)
{
    struct sbp_stage_layout *layout = p->layout;
    int64_t at = 0, work_bytes = 0, bucket_bytes = 0;
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        const struct sbp_program *program = layout->program[chunk];
        const int64_t besides = program->arena_bytes - frame_end(program);
        layout->states_at[chunk] = at;
        layout->host_at[chunk] = layout->host_bytes;
        layout->host_bytes += program->host_bytes;
        at += program->persistent_bytes - program->bucket_bytes;
        work_bytes = besides > work_bytes ? besides : work_bytes;
        if (program->bucket_bytes > bucket_bytes)
            bucket_bytes = program->bucket_bytes;
    }
    layout->bucket_at = at;
    at += bucket_bytes;
    for (int region = 0; region < layout->chunks; region++)
        for (int part = 0; part < SBP_FRAME_PARTS; part++) {
            for (int chunk = 0; chunk < layout->chunks; chunk++)
                for (int64_t m = 0; m < layout->micro_batches && p->region_of[chunk] == region; m++)
                    layout->frame_at[chunk * layout->micro_batches + m][part] += at;
            at += p->end[region][part];
            layout->frames_bytes += p->end[region][part];
        }
    layout->work_at = at;
    layout->bytes = at + work_bytes;
}

static enum sbp_status open_layout(struct sbp_stage_layout *layout, int chunks,
                                   int64_t micro_batches, struct sbp_arena *arena)
{
    *layout =
        (struct sbp_stage_layout){.chunks = chunks,
                                  .micro_batches = micro_batches,
                                  .program = SBP_NEW(arena, const struct sbp_program *, chunks),
                                  .states_at = SBP_NEW(arena, int64_t, chunks),
                                  .host_at = SBP_NEW(arena, int64_t, chunks)};
    layout->frame_at =
        sbp_arena_alloc(arena, (size_t)chunks * (size_t)micro_batches, sizeof *layout->frame_at);
    return layout->program == NULL || layout->states_at == NULL || layout->host_at == NULL ||
                   layout->frame_at == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

static enum sbp_status lay_out(struct sbp_stage_layout *layout, int stages,
                               const struct sbp_timeline_work *work, int64_t count)
{
    struct placing placing = {.layout = layout};
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    const enum sbp_status status = open_placing(&placing, &scratch);
    if (status == SBP_OK) {
        choose_places(&placing, stages, work, count);
        stack(&placing);
    }
    sbp_arena_free(&scratch);
    return status;
}

static enum sbp_status said(enum sbp_status status, struct sbp_diag *diag)
{
    return status == SBP_OK ? status
                            : sbp_fail(diag, status, "out of memory for the layout of a stage");
}

/* As many frames of a stage of the model as micro-batches that it begins before the first of them
 * comes back. False: memory is out. */
static bool take_turns(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                       struct sbp_stage_layout *layout)
{
    layout->turns = SBP_NEW(arena, int64_t, layout->chunks);
    for (int chunk = 0; layout->turns != NULL && chunk < layout->chunks; chunk++)
        layout->turns[chunk] =
            sbp_step_hands_on(step) ? 1 : step->pieces - sbp_step_piece(step, stage, chunk);
    return layout->turns != NULL;
}

enum sbp_status sbp_stage_layout_make(const struct sbp_step *step, int stage,
                                      struct sbp_arena *arena, struct sbp_stage_layout *layout,
                                      struct sbp_diag *diag)
{
    const int chunks = sbp_step_chunks(step);
    struct sbp_timeline_work *work;
    int64_t count;
    enum sbp_status status = open_layout(layout, chunks, step->micro_batches, arena);
    if (status != SBP_OK)
        return said(status, diag);
    for (int chunk = 0; chunk < chunks; chunk++)
        layout->program[chunk] = sbp_step_chunk(step, stage, chunk);
    if (sbp_timeline_delays_gradients(step->parallel.schedule) &&
        !take_turns(step, stage, arena, layout))
        return said(SBP_E_MEMORY, diag);
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    SBP_TRY(sbp_stage_works(step, stage, arena, &work, &count, diag));
    status = lay_out(layout, step->stages, work, count);
    sbp_arena_release(arena, mark);
    return said(status, diag);
}

enum sbp_status sbp_stage_layout_alone(const struct sbp_program *program, struct sbp_arena *arena,
                                       struct sbp_stage_layout *layout, struct sbp_diag *diag)
{
    static const struct sbp_timeline_work work[] = {
        {.kind = SBP_WORK_FORWARD}, {.kind = SBP_WORK_BACKWARD}, {.kind = SBP_WORK_WEIGHT}};
    enum sbp_status status = open_layout(layout, 1, 1, arena);
    if (status == SBP_OK) {
        layout->program[0] = program;
        status = lay_out(layout, 1, work, sizeof work / sizeof *work);
    }
    return said(status, diag);
}

/* ---- places -------------------------------------------------------------------------------- */

/* A program has persistent buffers, the bucket last, then a frame, part by part, then the rest. */
int64_t sbp_stage_buffer_at(const struct sbp_stage_layout *layout, int chunk, int64_t frame,
                            const struct sbp_buffer *buffer)
{
    const struct sbp_program *program = layout->program[chunk];
    const int64_t *const frame_at = layout->frame_at[chunk * layout->micro_batches + frame];
    int64_t offset = buffer->offset_bytes;
    if (buffer->use == SBP_USE_BUCKET)
        return layout->bucket_at;
    if (offset < program->persistent_bytes)
        return layout->states_at[chunk] + offset;
    offset -= program->persistent_bytes;
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        if (offset < program->frame_bytes[part])
            return frame_at[part] + offset;
        offset -= program->frame_bytes[part];
    }
    return layout->work_at + offset;
}

/* ---- slots of messages -------------------------------------------------------------------------
 */

enum { LEAST_SLOTS = 2 };

int sbp_stage_slots(const struct sbp_step *step)
{
    if (step->parallel.schedule != SBP_MESSAGE_DRIVEN)
        return LEAST_SLOTS;
    const int half = (step->timeline.device[0].in_flight + 1) / 2;
    return half > LEAST_SLOTS ? half : LEAST_SLOTS;
}

/* Bytes of what a chunk sends to the next, or back; 0: nothing, or in its own arena. */
static int64_t message_bytes(const struct sbp_program *program, bool back)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind == SBP_INSTR_SEND && instr->box.kind != SBP_LOCAL &&
            (instr->section != SBP_SECTION_FORWARD) == back)
            bytes = program->buffer[instr->buffer[SBP_AT_IN]].elements * program->bytes.activation;
    }
    return bytes;
}

/* Adds the slots of one side for what a stage sends in a direction. False: they are too many. */
static bool add_side(const struct sbp_step *step, int stage, bool back, int64_t *bytes)
{
    int64_t messages = 0, largest = 0, side;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const int64_t own = message_bytes(sbp_step_chunk(step, stage, chunk), back);
        messages += own > 0 ? step->micro_batches : 0;
        largest = own > largest ? own : largest;
    }
    const int64_t slots = sbp_stage_slots(step), quota = messages < slots ? messages : slots;
    return sbp_mul_i64(quota, largest, &side) && sbp_add_i64(side, 63, &side) &&
           sbp_add_i64(*bytes, side / 64 * 64, bytes);
}

int64_t sbp_stage_slot_bytes(const struct sbp_step *step, int stage)
{
    const int before = (stage + step->stages - 1) % step->stages;
    const int behind = (stage + 1) % step->stages;
    int64_t bytes = 0;
    if (step->stages == 1 || sbp_timeline_delays_gradients(step->parallel.schedule))
        return 0;
    const bool fits = add_side(step, stage, false, &bytes) && add_side(step, stage, true, &bytes) &&
                      add_side(step, before, false, &bytes) && add_side(step, behind, true, &bytes);
    return fits ? bytes : INT64_MAX;
}
