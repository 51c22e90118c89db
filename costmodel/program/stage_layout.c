#include "costmodel/program/stage_layout.h"

#include "costmodel/program/holes.h"

enum sbp_status sbp_stage_works(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                                struct sbp_timeline_work **work, int64_t *count,
                                struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &step->parallel;
    const struct sbp_timeline_request request = {
        .schedule = parallel->schedule,
        .stages = step->stages,
        .micro_batches = (int)step->micro_batches,
        .chunks = parallel->schedule == SBP_INTERLEAVED ? sbp_step_chunks(step) : 1,
        .pipeline_limit = (int)parallel->pipeline_limit};
    return sbp_timeline_works(&request, stage, arena, work, count, diag);
}

/* ---- frames -------------------------------------------------------------------------------- */

/* The regions of the parts of frames. */
struct regions {
    struct sbp_stage_layout *layout;
    struct sbp_holes region[SBP_FRAME_PARTS];
};

static void begin_part(struct regions *regions, int64_t frame, int chunk, enum sbp_frame_part part)
{
    const int64_t bytes = regions->layout->program[chunk]->frame_bytes[part];
    if (bytes > 0)
        regions->layout->frame_at[frame][part] = sbp_holes_take(&regions->region[part], bytes);
}

static void end_part(struct regions *regions, int64_t frame, int chunk, enum sbp_frame_part part)
{
    const int64_t bytes = regions->layout->program[chunk]->frame_bytes[part];
    if (bytes > 0)
        sbp_holes_give_back(&regions->region[part], regions->layout->frame_at[frame][part], bytes);
}

static void place_work(struct regions *regions, int chunk, const struct sbp_timeline_work *work)
{
    const int64_t frame = chunk * regions->layout->micro_batches + work->micro_batch;
    if (work->kind == SBP_WORK_FORWARD)
        begin_part(regions, frame, chunk, SBP_FRAME_KEPT);
    else
        end_part(regions, frame, chunk, SBP_FRAME_KEPT);
}

/* Sets the places of all frames within their regions. */
static enum sbp_status place_frames(struct regions *regions, int stages,
                                    const struct sbp_timeline_work *work, int64_t count,
                                    struct sbp_arena *arena)
{
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        regions->region[part].hole = SBP_NEW(arena, struct sbp_hole, count + 1);
        if (regions->region[part].hole == NULL)
            return SBP_E_MEMORY;
    }
    for (int64_t i = 0; i < count; i++)
        place_work(regions, work[i].stage / stages, &work[i]);
    return SBP_OK;
}

/* ---- the arena ----------------------------------------------------------------------------- */

static int64_t frame_end(const struct sbp_program *program)
{
    int64_t end = program->persistent_bytes;
    for (int part = 0; part < SBP_FRAME_PARTS; part++)
        end += program->frame_bytes[part];
    return end;
}

/* Puts the states first, then the regions, then the rest. */
static void stack(struct regions *regions)
{
    struct sbp_stage_layout *layout = regions->layout;
    int64_t at = 0, work_bytes = 0;
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        const struct sbp_program *program = layout->program[chunk];
        const int64_t besides = program->arena_bytes - frame_end(program);
        layout->states_at[chunk] = at;
        at += program->persistent_bytes;
        work_bytes = besides > work_bytes ? besides : work_bytes;
    }
    for (int part = 0; part < SBP_FRAME_PARTS; part++) {
        for (int64_t i = 0; i < layout->chunks * layout->micro_batches; i++)
            layout->frame_at[i][part] += at;
        at += regions->region[part].top;
        layout->frames_bytes += regions->region[part].top;
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
                                  .states_at = SBP_NEW(arena, int64_t, chunks)};
    layout->frame_at =
        sbp_arena_alloc(arena, (size_t)chunks * (size_t)micro_batches, sizeof *layout->frame_at);
    return layout->program == NULL || layout->states_at == NULL || layout->frame_at == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

static enum sbp_status lay_out(struct sbp_stage_layout *layout, int stages,
                               const struct sbp_timeline_work *work, int64_t count)
{
    struct regions regions = {.layout = layout};
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    const enum sbp_status status = place_frames(&regions, stages, work, count, &scratch);
    sbp_arena_free(&scratch);
    if (status == SBP_OK)
        stack(&regions);
    return status;
}

static enum sbp_status said(enum sbp_status status, struct sbp_diag *diag)
{
    return status == SBP_OK ? status
                            : sbp_fail(diag, status, "out of memory for the layout of a stage");
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
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    SBP_TRY(sbp_stage_works(step, stage, arena, &work, &count, diag));
    status = lay_out(layout, step->stages, work, count);
    sbp_arena_release(arena, mark);
    return said(status, diag);
}

enum sbp_status sbp_stage_layout_alone(const struct sbp_program *program, struct sbp_arena *arena,
                                       struct sbp_stage_layout *layout, struct sbp_diag *diag)
{
    static const struct sbp_timeline_work work[] = {{.kind = SBP_WORK_FORWARD},
                                                    {.kind = SBP_WORK_BACKWARD}};
    enum sbp_status status = open_layout(layout, 1, 1, arena);
    if (status == SBP_OK) {
        layout->program[0] = program;
        status = lay_out(layout, 1, work, sizeof work / sizeof *work);
    }
    return said(status, diag);
}
