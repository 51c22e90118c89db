#include "costmodel/program/task.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/math/numeric.h"
#include "costmodel/program/buckets.h"
#include "costmodel/program/task_beside_priv.h"

/* ---- the works ----------------------------------------------------------------------------- */

/* The tasks of a stage as far as they are listed. */
struct lister {
    const struct sbp_step *step;
    int stage;
    struct sbp_tasks *tasks;
    bool (*began)[SBP_WORK_KINDS]; /* (chunks) works of which there was one */
    int (*left)[SBP_WORK_KINDS];   /* (chunks) works that are still to come */
    bool **hides; /* (chunks, instructions) sums of gradients beside the backward pass */
};

/* The first instruction of the norm and the updates, which end a program. */
static int find_first_update(const struct sbp_program *program)
{
    int first = 0;
    while (first < program->instr_count && program->instr[first].kind != SBP_INSTR_NORM &&
           program->instr[first].kind != SBP_INSTR_COPY_IN &&
           program->instr[first].kind != SBP_INSTR_UPDATE)
        first++;
    return first;
}

/* Whether an instruction sums a gradient that is summed with its chunk of buckets. */
static bool is_bucket_sum(const struct sbp_program *program, const struct sbp_instr *instr)
{
    return program->parallel.chunk_factor > 0 && program->host_bytes > 0 &&
           instr->section == SBP_SECTION_STEP && instr->kind == SBP_INSTR_BOX &&
           instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && sbp_buckets_sums(program, instr->tensor);
}

/* With several stages sums of gradients wait until the stage has gone back, and others need not
 * wait for them. */
static bool runs_once(const struct sbp_program *program, int first_update, int index)
{
    const struct sbp_instr *instr = &program->instr[index];
    const bool waits = program->parallel.pipeline > 1 && !sbp_task_ends_unreduced(program, instr);
    return instr->section == SBP_SECTION_STEP &&
           (program->scope.micro_batches > 1 || waits || index >= first_update ||
            is_bucket_sum(program, instr));
}

static enum sbp_work_kind work_of(const struct sbp_program *program, int first_update, int index)
{
    const enum sbp_section section = program->instr[index].section;
    const bool waits = section == SBP_SECTION_BACKWARD_WEIGHT || section == SBP_SECTION_STEP;
    if (section == SBP_SECTION_FORWARD)
        return SBP_WORK_FORWARD;
    if (runs_once(program, first_update, index))
        return SBP_WORK_UPDATE;
    return waits && sbp_timeline_weights_wait(program->parallel.schedule) ? SBP_WORK_WEIGHT
                                                                          : SBP_WORK_BACKWARD;
}

static void add_task(struct lister *l, struct sbp_task task, int instr)
{
    task.instr = instr;
    l->tasks->task[l->tasks->count++] = task;
}

static void mark_ends(struct sbp_tasks *tasks, int64_t first)
{
    if (tasks->count == first)
        return;
    tasks->task[first].begins = true;
    tasks->task[tasks->count - 1].ends = true;
}

/* Whether a work reads the older of the two versions that its step may read. Under cdp-v2 the
 * micro-batches that begin before the stage's update do. */
static bool is_stale(const struct lister *l, const struct sbp_timeline_work *work)
{
    const int ahead = l->step->pieces - 1 - work->stage;
    return l->step->parallel.schedule == SBP_CDP_V1 ||
           (l->step->parallel.schedule == SBP_CDP_V2 &&
            work->micro_batch % l->step->micro_batches < ahead);
}

/* Whether a work of this kind does an instruction of a chunk; the chunk's last one that forms
 * gradients begins those of their sums that go beside. */
static bool does(const struct lister *l, int chunk, enum sbp_work_kind kind, int first_update,
                 int index)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, chunk);
    const enum sbp_work_kind forms =
        sbp_timeline_weights_wait(program->parallel.schedule) ? SBP_WORK_WEIGHT : SBP_WORK_BACKWARD;
    return l->hides[chunk][index] && program->instr[index].section == SBP_SECTION_STEP
               ? kind == forms && l->left[chunk][kind] == 0
               : kind == work_of(program, first_update, index);
}

/* ---- groups that hand sums on -------------------------------------------------------------- */

struct sbp_sum_route sbp_task_sum_route(const struct sbp_step *step, int stage, int chunk,
                                        const struct sbp_instr *instr, int64_t number,
                                        int micro_batch)
{
    const bool late = instr->section == SBP_SECTION_STEP, takes = instr->kind == SBP_INSTR_TAKE;
    const enum sbp_schedule schedule = step->parallel.schedule;
    return step->pyramid ? (takes ? sbp_pyramid_take : sbp_pyramid_pass)(
                               schedule, step->pieces, stage, number, micro_batch, late)
                         : (takes ? sbp_replicas_take : sbp_replicas_pass)(schedule, step->stages,
                                                                           chunk, stage, late);
}

/* A replica that finishes a sum passes it both ways right away. */
static enum sbp_work_kind handed_work_of(const struct lister *l, int chunk,
                                         const struct sbp_instr *instr)
{
    const bool finishes =
        l->step->replicates && instr->kind == SBP_INSTR_PASS &&
        sbp_task_sum_route(l->step, l->stage, chunk, instr, 0, 0).finished &&
        sbp_replicas_take(l->step->parallel.schedule, l->step->stages, chunk, l->stage, true).peer <
            0;
    if (instr->section == SBP_SECTION_FORWARD)
        return SBP_WORK_FORWARD;
    return instr->section == SBP_SECTION_STEP && !finishes ? SBP_WORK_UPDATE : SBP_WORK_BACKWARD;
}

static bool passes_by(const struct lister *l, const struct sbp_instr *instr,
                      const struct sbp_task *task)
{
    return (instr->kind == SBP_INSTR_TAKE || instr->kind == SBP_INSTR_PASS) &&
           sbp_task_sum_route(l->step, l->stage, task->chunk, instr, task->phase + task->is_ahead,
                              task->micro_batch)
                   .peer < 0;
}

/* A work of a replica, or of a group of a pyramid, whose works are of a step each. Under cdp-v2
 * what reads the newest weights of a stage follows from the micro-batch. */
static struct sbp_task handed_task(const struct lister *l, const struct sbp_timeline_work *work)
{
    const struct sbp_step *step = l->step;
    const bool updates = work->kind == SBP_WORK_UPDATE;
    const int chunk = sbp_step_chunk_of(step, work->stage), all = (int)step->micro_batches;
    const int micro_batch = updates         ? all - 1
                            : step->pyramid ? work->micro_batch % all
                                            : sbp_replicas_micro_batch(step->stages, l->stage);
    const int number = updates ? work->micro_batch : work->micro_batch / all - 1;
    return (struct sbp_task){.chunk = (int16_t)chunk,
                             .micro_batch = micro_batch,
                             .work = (uint8_t)work->kind,
                             .adds = work->kind == SBP_WORK_BACKWARD && micro_batch > 0,
                             .is_ahead = !updates,
                             .is_stale = step->parallel.schedule == SBP_CDP_V1 ||
                                         micro_batch < step->pieces - 1 - work->stage,
                             .phase = (int16_t)(step->pyramid ? number : 0)};
}

/* Backward works add to the sum so far of other stages, if there is one. */
static void add_handed_work(struct lister *l, const struct sbp_timeline_work *work)
{
    const int64_t first = l->tasks->count;
    const struct sbp_task task = handed_task(l, work);
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, task.chunk);
    for (int i = 0; i < program->instr_count; i++)
        if ((int)handed_work_of(l, task.chunk, &program->instr[i]) == work->kind &&
            !passes_by(l, &program->instr[i], &task))
            add_task(l, task, i);
    mark_ends(l->tasks, first);
}

static void add_work(struct lister *l, const struct sbp_timeline_work *work)
{
    const int64_t first = l->tasks->count;
    const enum sbp_work_kind kind = (enum sbp_work_kind)work->kind;
    const int chunk = sbp_step_chunk_of(l->step, work->stage);
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, chunk);
    const int first_update = find_first_update(program);
    if (sbp_step_hands_on(l->step)) {
        add_handed_work(l, work);
        return;
    }
    struct sbp_task task = {.chunk = (int16_t)chunk,
                            .micro_batch = (int)(work->micro_batch % l->step->micro_batches),
                            .work = (uint8_t)kind,
                            .adds = kind != SBP_WORK_FORWARD && l->began[chunk][kind],
                            .is_ahead = work->micro_batch >= l->step->micro_batches,
                            .is_stale = is_stale(l, work)};
    l->left[chunk][kind]--;
    for (int i = 0; i < program->instr_count; i++) {
        task.is_beside = l->hides[chunk][i];
        if (does(l, chunk, kind, first_update, i))
            add_task(l, task, i);
    }
    mark_ends(l->tasks, first);
    l->began[chunk][kind] = true;
}

/* ---- the step's end ------------------------------------------------------------------------ */

/* All chunks do this before any of them goes on; the norm is summed over ranks once for all. */
enum phase { SUM_GRADIENTS, FORM_NORM, SUM_NORM, UPDATE, PHASES };

static enum phase phase_of(const struct sbp_program *program, int first_update, int index)
{
    const struct sbp_instr *instr = &program->instr[index];
    if (index < first_update)
        return SUM_GRADIENTS;
    if (instr->kind == SBP_INSTR_NORM)
        return FORM_NORM;
    return instr->cause == SBP_CAUSE_SCALAR ? SUM_NORM : UPDATE;
}

/* Chunks that hold one weight are summed when the last of them has its gradient. */
static bool waits_for_chunks(const struct lister *l, int chunk, const struct sbp_instr *instr)
{
    bool waits = false;
    if (instr->kind != SBP_INSTR_INNER || instr->box.kind != SBP_LOCAL)
        return false;
    for (int later = chunk + 1; later < sbp_step_chunks(l->step); later++)
        waits |= sbp_step_chunk(l->step, l->stage, later)->weight_buffer[instr->tensor] >= 0;
    return waits;
}

static struct sbp_task task_of_end(const struct lister *l, int chunk)
{
    return (struct sbp_task){.chunk = (int16_t)chunk,
                             .micro_batch = (int)l->step->micro_batches - 1,
                             .work = SBP_WORK_UPDATE};
}

/* Whether what an instruction does at the end of a step is done for a bucket: it copies states,
 * updates a part of a tensor, or gathers a weight whose last part has been updated. */
static bool is_of_bucket(const struct sbp_program *program, const struct sbp_buckets *buckets,
                         const struct sbp_instr *instr, int64_t bucket)
{
    if (sbp_program_is_host_copy(instr))
        return true;
    const struct sbp_bucket_part part = sbp_buckets_part(program, buckets, instr->tensor, bucket);
    return part.count > 0 && (instr->kind == SBP_INSTR_UPDATE ||
                              part.first + part.count == program->shard[instr->tensor].elements);
}

static int find_bucket_sum(const struct sbp_program *program, int tensor)
{
    int i = 0;
    while (!is_bucket_sum(program, &program->instr[i]) || program->instr[i].tensor != tensor)
        i++;
    return i;
}

/* The sums of the chunk that a bucket begins. */
static void add_sums(struct lister *l, const struct sbp_program *program,
                     const struct sbp_buckets *buckets, struct sbp_task task)
{
    const int64_t bucket = task.bucket - 1;
    const int64_t end = sbp_buckets_chunk_end(buckets, bucket, program->parallel.chunk_factor) *
                        buckets->parameters;
    const struct sbp_weight_shard *shard = program->shard;
    int64_t summed = bucket * buckets->parameters; /* so far, of all parameters */
    task.is_beside = true;
    for (int t = 0; t < program->graph->tensor_count && summed < end; t++) {
        if (!sbp_buckets_sums(program, t) || shard[t].begin + shard[t].elements <= summed ||
            shard[t].begin >= end)
            continue;
        const struct sbp_bucket_sum sum = sbp_buckets_sum(program, buckets, bucket, t);
        summed = shard[t].begin + sum.begin + sum.parameters;
        add_task(l, task, find_bucket_sum(program, t));
    }
}

/* A weight is gathered while states of its bucket are still to go back. */
static void add_buckets(struct lister *l, int chunk, const struct sbp_buckets *buckets)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, chunk);
    const int64_t factor = program->parallel.chunk_factor;
    struct sbp_task task = task_of_end(l, chunk);
    int first = find_first_update(program);
    while (program->instr[first].kind != SBP_INSTR_COPY_IN)
        first++;
    for (int64_t bucket = 0; bucket < buckets->count; bucket++) {
        task.bucket = (int)bucket + 1;
        if (factor > 0 && bucket % factor == 0)
            add_sums(l, program, buckets, task);
        for (int i = first; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            task.bucket = instr->kind == SBP_INSTR_GATHER ? 0 : (int)bucket + 1;
            if (is_of_bucket(program, buckets, instr, bucket))
                add_task(l, task, i);
        }
    }
}

static void add_phase(struct lister *l, int chunk, enum phase phase)
{
    const struct sbp_program *program = sbp_step_chunk(l->step, l->stage, chunk);
    const int first_update = find_first_update(program);
    const struct sbp_task task = task_of_end(l, chunk);
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    if (phase == UPDATE && buckets.count > 0) {
        add_buckets(l, chunk, &buckets);
        return;
    }
    for (int i = 0; i < program->instr_count; i++)
        if (work_of(program, first_update, i) == SBP_WORK_UPDATE && !l->hides[chunk][i] &&
            phase_of(program, first_update, i) == phase &&
            !is_bucket_sum(program, &program->instr[i]) &&
            !waits_for_chunks(l, chunk, &program->instr[i]))
            add_task(l, task, i);
}

/* The first chunk is the last to form its norm, which is that of all chunks and goes on to the
 * sum. */
static void add_end(struct lister *l)
{
    const int64_t first = l->tasks->count;
    const int chunks = sbp_step_chunks(l->step);
    for (int phase = 0; phase < PHASES; phase++)
        for (int i = 0; i < chunks; i++) {
            const int chunk = phase == FORM_NORM ? chunks - 1 - i : i;
            if (phase != SUM_NORM || chunk == 0)
                add_phase(l, chunk, (enum phase)phase);
        }
    mark_ends(l->tasks, first);
}

/* ---- the list ------------------------------------------------------------------------------ */

static enum sbp_status open_lister(struct lister *l, const struct sbp_timeline_work *work,
                                   int64_t count, struct sbp_arena *scratch)
{
    const size_t chunks = (size_t)sbp_step_chunks(l->step);
    l->began = sbp_arena_alloc(scratch, chunks, sizeof *l->began);
    l->left = sbp_arena_alloc(scratch, chunks, sizeof *l->left);
    l->hides = SBP_NEW(scratch, bool *, chunks);
    if (l->began == NULL || l->left == NULL || l->hides == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < count; i++)
        l->left[sbp_step_chunk_of(l->step, work[i].stage)][work[i].kind]++;
    for (size_t chunk = 0; chunk < chunks; chunk++)
        SBP_TRY(sbp_task_beside_find(l->step, l->stage, (int)chunk, scratch, &l->hides[chunk]));
    return SBP_OK;
}

static enum sbp_status list(struct lister *l, const struct sbp_timeline_work *work, int64_t count,
                            struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    enum sbp_status status = open_lister(l, work, count, &scratch);
    for (int64_t i = 0; status == SBP_OK && i < count; i++)
        add_work(l, &work[i]);
    if (status == SBP_OK && !sbp_step_hands_on(l->step))
        add_end(l);
    if (status == SBP_OK)
        status = sbp_task_beside_link(l->step, l->stage, l->tasks, &scratch, diag);
    sbp_arena_free(&scratch);
    return status;
}

/* Finds the works between which arrivals decide. */
static enum sbp_status find_begins(const struct sbp_step *step, struct sbp_arena *arena,
                                   struct sbp_tasks *tasks)
{
    for (int back = 0; back < 2; back++) {
        tasks->begin[back] = SBP_NEW(arena, int64_t, step->micro_batches);
        if (tasks->begin[back] == NULL)
            return SBP_E_MEMORY;
    }
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_task *task = &tasks->task[i];
        if (task->begins && task->work != SBP_WORK_UPDATE)
            tasks->begin[task->work == SBP_WORK_BACKWARD][task->micro_batch] = i;
    }
    return SBP_OK;
}

/* Tasks of a stage, at most; false: they are too many. A bucket has its copies, and a part and a
 * sum of one tensor more than there are. */
static bool count_most(const struct sbp_step *step, int stage, int64_t *most)
{
    int64_t instrs = 0, buckets = 0;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        instrs += program->instr_count;
        buckets += 4 * sbp_buckets_of(program).count;
    }
    return sbp_mul_i64(instrs, step->micro_batches, most) && sbp_add_i64(*most, buckets, most) &&
           *most <= INT32_MAX;
}

/* A gradient that is summed beside the optimizer takes one all-reduce, and nothing else waits for
 * it. Levels of ZeRO, and paths of several collectives, have others. */
static enum sbp_status check_sums(const struct sbp_program *program, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = program->graph;
    if (program->parallel.chunk_factor == 0 || program->host_bytes == 0)
        return SBP_OK;
    if (sbp_program_has_norm(&graph->training, &program->bytes))
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "plan: parallel: chunk_factor: all gradients are summed before their norm, "
                        "0 runs, or a model without clip_norm in a type that scales no loss");
    for (int t = 0; t < graph->tensor_count; t++) {
        int others = 0, sums = 0;
        for (int i = 0; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            const bool one = instr->box.kind == SBP_ALL_REDUCE && instr->times == 1;
            if (instr->tensor == t && is_bucket_sum(program, instr))
                *(one ? &sums : &others) += 1;
        }
        if (program->shard[t].level > 0 || others > 0 || sums != sbp_buckets_sums(program, t))
            return sbp_fail(diag, SBP_E_UNSUPPORTED,
                            "plan: parallel: chunk_factor: the gradient of %s is not summed by one "
                            "all-reduce: 0 runs, or zero 0 and boxing full",
                            graph->tensor[t].name);
    }
    return SBP_OK;
}

/* The timeline prices no more buckets than that one by one. */
static enum sbp_status check_buckets(const struct sbp_step *step, int stage, struct sbp_diag *diag)
{
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        const int64_t count = sbp_buckets_of(program).count;
        SBP_TRY(check_sums(program, diag));
        if (count > SBP_STEP_MOST_BUCKETS)
            return sbp_fail(diag, SBP_E_RANGE,
                            "parallel: bucket_parameters: %lld makes %lld buckets, up to %d run",
                            (long long)program->parallel.bucket_parameters, (long long)count,
                            SBP_STEP_MOST_BUCKETS);
    }
    return SBP_OK;
}

enum sbp_status sbp_tasks_make(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                               struct sbp_tasks *tasks, struct sbp_diag *diag)
{
    struct lister lister = {.step = step, .stage = stage, .tasks = tasks};
    struct sbp_timeline_work *work;
    int64_t count, most;
    *tasks = (struct sbp_tasks){
        .phases =
            step->pyramid ? sbp_pyramid_period(step->pieces, sbp_step_piece(step, stage, 0)) : 1};
    SBP_TRY(check_buckets(step, stage, diag));
    SBP_TRY(sbp_stage_works(step, stage, arena, &work, &count, diag));
    if (!count_most(step, stage, &most))
        return sbp_fail(diag, SBP_E_RANGE, "a step of %lld micro-batches has more than 2^31 tasks",
                        (long long)step->micro_batches);
    tasks->task = SBP_NEW(arena, struct sbp_task, most + 1);
    enum sbp_status status = tasks->task == NULL ? SBP_E_MEMORY : list(&lister, work, count, diag);
    if (status == SBP_OK && sbp_timeline_is_driven(step->parallel.schedule, step->stages, stage))
        status = find_begins(step, arena, tasks);
    return status == SBP_OK ? status : sbp_fail(diag, status, "out of memory for a step's tasks");
}

/* ---- calls --------------------------------------------------------------------------------- */

/* The calls of a chunk's program. */
struct chunk_calls {
    struct sbp_call *call;
    int count;
    int *first; /* (instr_count) of the first call of each instruction; -1: it has none */
};

/* Lists the calls of one instruction, which follow each other in the program's own list. */
static void add_calls(const struct chunk_calls *once, int instr, struct sbp_call *calls, int *count)
{
    for (int c = once->first[instr]; c >= 0 && c < once->count && once->call[c].instr == instr; c++)
        calls[(*count)++] = once->call[c];
}

static enum sbp_status open_chunk(const struct sbp_program *program, struct sbp_arena *arena,
                                  struct chunk_calls *calls)
{
    SBP_TRY(sbp_program_calls(program, arena, &calls->call, &calls->count));
    calls->first = SBP_NEW(arena, int, program->instr_count + 1);
    if (calls->first == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < program->instr_count; i++)
        calls->first[i] = -1;
    for (int c = calls->count - 1; c >= 0; c--)
        calls->first[calls->call[c].instr] = c;
    return SBP_OK;
}

/* Calls of all chunks, and how many a step has at most. */
static enum sbp_status open_chunks(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                                   struct chunk_calls **chunk, int64_t *most)
{
    const int chunks = sbp_step_chunks(step);
    int64_t once = 0, sums = 0;
    *chunk = SBP_NEW(arena, struct chunk_calls, chunks);
    if (*chunk == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < chunks; c++) {
        SBP_TRY(open_chunk(sbp_step_chunk(step, stage, c), arena, &(*chunk)[c]));
        once += (*chunk)[c].count;
        sums += sbp_buckets_of(sbp_step_chunk(step, stage, c)).count;
    }
    return sbp_mul_i64(once, step->micro_batches, most) && sbp_add_i64(*most, sums, most) &&
                   *most <= INT32_MAX
               ? SBP_OK
               : SBP_E_RANGE;
}

static struct sbp_bucket_sum sum_of(const struct sbp_program *program, const struct sbp_task *task)
{
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    return sbp_buckets_sum(program, &buckets, task->bucket - 1, program->instr[task->instr].tensor);
}

/* Lists the calls that an operator makes as it goes, which the instructions before it stand for:
 * those before a product of SUMMA for one call a panel each, those before attention by a ring for
 * one a block, the last of which, of gradients alone, takes them home. This lists the calls panel
 * by panel, or block by block: in each panel X's call comes first, but W's where the product forms
 * X's gradient. */
static void add_own(const struct sbp_program *program, const struct chunk_calls *once, int end,
                    struct sbp_call *calls, int *count)
{
    const struct sbp_instr *to = &program->instr[end];
    const bool reversed = to->kind == SBP_INSTR_BACKWARD && to->phase == 0 &&
                          program->graph->op[to->op].kind == SBP_OP_SUMMA_LINEAR;
    int first = end, rounds = 0;
    while (first > 0 && sbp_program_is_operators_own(program, &program->instr[first - 1])) {
        first--;
        rounds = program->instr[first].times > rounds ? program->instr[first].times : rounds;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = first; i < end; i++) {
            const int from = reversed ? first + end - 1 - i : i;
            if (round < program->instr[from].times)
                calls[(*count)++] = once->call[once->first[from]];
        }
}

enum sbp_status sbp_tasks_calls(const struct sbp_step *step, int stage,
                                const struct sbp_tasks *tasks, struct sbp_arena *arena,
                                struct sbp_call **calls, int *count)
{
    struct chunk_calls *chunk;
    int64_t most;
    SBP_TRY(open_chunks(step, stage, arena, &chunk, &most));
    *calls = SBP_NEW(arena, struct sbp_call, most + 1);
    if (*calls == NULL)
        return SBP_E_MEMORY;
    *count = 0;
    for (int64_t t = 0; t < tasks->count; t++) {
        const struct sbp_task *task = &tasks->task[t];
        const struct sbp_program *program = sbp_step_chunk(step, stage, task->chunk);
        const struct chunk_calls *once = &chunk[task->chunk];
        const int first = *count;
        if (!sbp_program_is_operators_own(program, &program->instr[task->instr])) {
            add_own(program, once, task->instr, *calls, count);
            add_calls(once, task->instr, *calls, count);
        }
        for (int c = first; c < *count; c++) {
            (*calls)[c].instr = (int)t;
            if (sbp_task_sums_buckets(task))
                (*calls)[c].count = sum_of(program, task).elements;
        }
    }
    return SBP_OK;
}

/* ---- prices -------------------------------------------------------------------------------- */

/* Whether no other tensor of a bucket comes before a part of one. */
static bool begins_bucket(const struct sbp_bucket_part *part)
{
    return part->at == 0;
}

struct sbp_task_price sbp_task_price(const struct sbp_step *step, int stage,
                                     const struct sbp_task *task)
{
    const struct sbp_program *program = sbp_step_chunk(step, stage, task->chunk);
    const struct sbp_instr *instr = &program->instr[task->instr];
    struct sbp_task_price price = {instr->compute_s, instr->communication_s};
    if (task->bucket == 0)
        return price;
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    if (sbp_task_sums_buckets(task)) {
        price.communication_s = sbp_collective_s(
            &step->cluster, &step->mesh, instr->box.kind, instr->box.axes,
            (double)sum_of(program, task).parameters * (double)program->bytes.reduce);
        return price;
    }
    if (sbp_program_is_host_copy(instr)) {
        price.compute_s *=
            (double)sbp_buckets_size(&buckets, task->bucket - 1) / (double)buckets.updated;
        return price;
    }
    const double launch_s = step->cluster.kernel_launch_s;
    const struct sbp_bucket_part part =
        sbp_buckets_part(program, &buckets, instr->tensor, task->bucket - 1);
    price.compute_s = (instr->compute_s - launch_s) * (double)part.count /
                          (double)program->shard[instr->tensor].elements +
                      (begins_bucket(&part) ? launch_s : 0);
    return price;
}

/* ---- names ------------------------------------------------------------------------------- */

static void name_instr(const struct sbp_program *program, const struct sbp_instr *instr, char *name,
                       int size)
{
    const bool collective = instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE;
    const char *of = instr->tensor >= 0 ? program->graph->tensor[instr->tensor].name
                     : instr->op >= 0   ? program->graph->op[instr->op].name
                                        : "";
    const char *what =
        collective ? sbp_collective_name(instr->box.kind) : sbp_program_instr_name(instr->kind);
    if (instr->phase > 0)
        (void)snprintf(name, (size_t)size, "%s %s.%d", what, of, instr->phase);
    else
        (void)snprintf(name, (size_t)size, "%s%s%s", what, of[0] == '\0' ? "" : " ", of);
}

void sbp_task_name(const struct sbp_program *program, const struct sbp_task *task, char *name,
                   int size)
{
    name_instr(program, &program->instr[task->instr], name, size);
    const size_t used = strlen(name);
    if (program->scope.micro_batches > 1 && (int)used < size && task->work != SBP_WORK_UPDATE)
        (void)snprintf(name + used, (size_t)size - used, " [%d]", task->micro_batch);
    if (task->bucket > 0 && (int)used < size)
        (void)snprintf(name + used, (size_t)size - used, " {%d}", task->bucket - 1);
}
