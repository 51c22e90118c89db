#include "costmodel/program/step.h"

#include <math.h>
#include <string.h>

#include "costmodel/program/buckets.h"
#include "costmodel/program/price.h"
#include "costmodel/program/stage_layout.h"

#define MOST_MICRO_BATCHES (INT64_C(1) << 20) /* of a timeline */
#define ROUNDING           1e-12              /* of sums of a step's times */

/* One call of sbp_step_make. */
struct job {
    const struct sbp_step_request *request;
    struct sbp_step *step;
    struct sbp_diag *diag;
    struct sbp_scope scope; /* what all pieces have in common */
};

/* ---- programs ------------------------------------------------------------------------------ */

static bool same_operands(const struct job *job, int a, int b)
{
    const struct sbp_graph *graph = job->request->graph;
    const struct sbp_strategy *strategy = job->request->strategy;
    const struct sbp_op_node *one = &graph->op[a], *two = &graph->op[b];
    const size_t axes = (size_t)job->step->mesh.axis_count;
    if (one->site != two->site || strategy->zero[a] != strategy->zero[b] ||
        (one->output < 0) != (two->output < 0))
        return false;
    if (!one->entry->follows &&
        memcmp(strategy->op[a].role, strategy->op[b].role, axes * sizeof(uint8_t)) != 0)
        return false;
    for (int w = 0; w < one->weight_count; w++)
        if (job->step->holders[one->weight[w]] != job->step->holders[two->weight[w]])
            return false;
    return one->output < 0 || sbp_dist_equal(&job->step->mesh, &strategy->rest[one->output],
                                             &strategy->rest[two->output]);
}

/* Whether two pieces are the same work: repeats of the same operators in the same roles, with the
 * same neighbours. */
static bool same_piece(const struct job *job, int a, int b)
{
    const struct sbp_graph *graph = job->request->graph;
    const int *first = job->step->first;
    const int length = first[a + 1] - first[a];
    if (length != first[b + 1] - first[b] || (first[a] == 0) != (first[b] == 0) ||
        (first[a + 1] == graph->op_count) != (first[b + 1] == graph->op_count))
        return false;
    for (int i = 0; i < length; i++)
        if (!same_operands(job, first[a] + i, first[b] + i))
            return false;
    if (first[a] == 0 || first[b] == 0)
        return true;
    const struct sbp_dist *rest = job->request->strategy->rest;
    return sbp_dist_equal(&job->step->mesh, &rest[sbp_stages_crossing(graph, first[a])],
                          &rest[sbp_stages_crossing(graph, first[b])]);
}

static const int *copies_of(const struct sbp_step *step, const struct sbp_graph *graph, int piece)
{
    return step->copies == NULL
               ? NULL
               : step->copies + (int64_t)sbp_step_stage_of(step, piece) * graph->tensor_count;
}

static enum sbp_status compile_piece(struct job *job, int piece)
{
    struct sbp_step *step = job->step;
    const struct sbp_step_request *request = job->request;
    for (int other = 0; other < piece && !request->runs; other++)
        if (same_piece(job, other, piece)) {
            step->program_of[piece] = step->program_of[other];
            return SBP_OK;
        }
    struct sbp_scope scope = job->scope;
    scope.copies = copies_of(step, request->graph, piece);
    scope.versions = sbp_parallel_versions(&step->parallel, step->pieces, piece);
    scope.first_op = step->first[piece];
    scope.end_op = step->first[piece + 1];
    SBP_TRY(sbp_program_make_scope(request->graph, &step->cluster, &step->mesh, request->strategy,
                                   request->bytes, &scope, &step->program[step->program_count],
                                   job->diag));
    step->program_of[piece] = step->program_count++;
    return SBP_OK;
}

/* ---- costs of pieces ----------------------------------------------------------------------- */

static int64_t bytes_of_use(const struct sbp_program *program, enum sbp_buffer_use use)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].use == use)
            bytes += sbp_program_slot_bytes(program, i);
    return bytes;
}

static double shown_s(const struct sbp_program *program, const struct sbp_runtime *runtime,
                      const struct sbp_instr *instr)
{
    const enum sbp_op_kind kind =
        instr->op >= 0 ? program->graph->op[instr->op].kind : SBP_OP_KINDS;
    return instr->communication_s *
           (1 - sbp_price_hidden_share(runtime, instr->section, instr->cause, kind));
}

/* Sums up the passes of a micro-batch, by section, without messages to other stages. */
static void add_passes(const struct sbp_program *program, const struct sbp_runtime *runtime,
                       struct sbp_pass_time pass[SBP_SECTIONS])
{
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        struct sbp_pass_time *const time = &pass[instr->section];
        if (instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_PASS)
            continue;
        time->device_s += instr->compute_s + shown_s(program, runtime, instr);
        time->communication_s += instr->communication_s;
        time->launches += (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) &&
                          instr->compute_s > 0;
    }
}

void sbp_step_pass_times(const struct sbp_step *step, const struct sbp_runtime *runtime, int piece,
                         struct sbp_pass_time pass[SBP_SECTIONS])
{
    memset(pass, 0, SBP_SECTIONS * sizeof *pass);
    add_passes(sbp_step_program(step, piece), runtime, pass);
}

/* A sender that waits does what it sends as a part of its pass, and the message is there when the
 * pass is over. */
static void block_sends(struct sbp_stage_cost *cost)
{
    cost->forward_s += cost->send_forward_s;
    cost->backward_input_s += cost->send_backward_s;
    cost->send_forward_s = cost->send_backward_s = 0;
}

/* A message between replicas with all gradients of a chunk, as each stage passes it after its
 * backward pass. */
static double send_gradients_s(const struct sbp_program *program)
{
    double seconds = 0;
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].kind == SBP_INSTR_PASS &&
            program->instr[i].section == SBP_SECTION_BACKWARD)
            seconds += program->instr[i].communication_s;
    return seconds;
}

static struct sbp_stage_cost stage_cost_of(const struct sbp_program *program,
                                           const struct sbp_runtime *runtime, int64_t reserve_bytes)
{
    struct sbp_pass_time pass[SBP_SECTIONS] = {{0}};
    struct sbp_stage_cost cost = {0};
    add_passes(program, runtime, pass);
    cost.forward_s = sbp_runtime_pass_s(runtime, &pass[SBP_SECTION_FORWARD]);
    cost.recompute_s = sbp_runtime_pass_s(runtime, &pass[SBP_SECTION_RECOMPUTE]);
    cost.backward_input_s = sbp_runtime_pass_s(runtime, &pass[SBP_SECTION_BACKWARD]);
    cost.backward_weight_s = sbp_runtime_pass_s(runtime, &pass[SBP_SECTION_BACKWARD_WEIGHT]);
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind == SBP_INSTR_SEND)
            *(instr->section == SBP_SECTION_FORWARD ? &cost.send_forward_s
                                                    : &cost.send_backward_s) +=
                instr->communication_s;
    }
    if (runtime->sends_block)
        block_sends(&cost);
    cost.send_gradients_s = send_gradients_s(program);
    const int64_t held = program->persistent_bytes;
    cost.static_bytes = held + reserve_bytes;
    cost.kept_bytes = program->kept_bytes;
    cost.parked_inputs_bytes = program->frame_bytes[SBP_FRAME_INPUTS];
    cost.parked_gradients_bytes = program->frame_bytes[SBP_FRAME_GRADIENTS];
    cost.transient_bytes =
        program->arena_bytes - held - cost.kept_bytes - cost.parked_gradients_bytes;
    return cost;
}

/* Optimizer states in host memory, of all chunks of a stage. */
struct hosted {
    double parameters, bytes, buckets;
    double bucket;                  /* parameters: all buckets are of equal size */
    const struct sbp_program *most; /* the chunk with most parameters */
};

static struct hosted hosted_states(const struct sbp_step *step, int stage)
{
    struct hosted hosted = {0};
    int64_t most = 0;
    for (int chunk = 0; chunk < step->parallel.chunks; chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        const struct sbp_buckets buckets = sbp_buckets_of(program);
        hosted.parameters += (double)buckets.updated;
        hosted.bytes += (double)program->host_bytes;
        hosted.buckets += (double)buckets.count;
        if (buckets.updated > most)
            hosted.most = program;
        most = buckets.updated > most ? buckets.updated : most;
    }
    hosted.buckets = fmin(hosted.buckets, SBP_STEP_MOST_BUCKETS);
    hosted.bucket = hosted.buckets > 0 ? hosted.parameters / hosted.buckets : 0;
    return hosted;
}

/* Seconds to sum gradients of so many parameters that a device updates over replicas, priced like
 * the largest sum of the program's step section. 0 where there is none, or where each micro-batch
 * sums. */
static double chunk_sync_s(const struct job *job, const struct sbp_program *program,
                           double parameters)
{
    const struct sbp_step *step = job->step;
    const struct sbp_instr *largest = NULL;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && instr->section == SBP_SECTION_STEP &&
            instr->stages == 1 && (largest == NULL || instr->box.elements > largest->box.elements))
            largest = instr;
    }
    if (largest == NULL)
        return 0;
    const struct sbp_weight_shard *shard = &program->shard[largest->tensor];
    const int64_t owners = shard->owner < 0 ? 1 : sbp_mesh_group_size(&program->mesh, shard->axes);
    const double elements =
        (double)largest->box.elements * (double)owners / (double)shard->elements * parameters;
    return sbp_collective_s(&step->cluster, &step->mesh, largest->box.kind, largest->box.axes,
                            elements * (double)job->request->bytes->reduce);
}

/* Schedules a chunk's buckets after those of the chunk before, each with its share of the other
 * work at the end of a step. */
static void set_offload(const struct job *job, int stage, double extra_s)
{
    const struct sbp_step *step = job->step;
    const struct sbp_parallel *parallel = &step->parallel;
    struct sbp_offload *offload = &step->end[stage].offload;
    const struct hosted hosted = hosted_states(step, stage);
    if (!(hosted.buckets > 0))
        return;
    const struct sbp_pricing pricing =
        sbp_price_setup(job->request->graph, &step->cluster, job->request->bytes);
    offload->buckets = (int)hosted.buckets;
    offload->in_s = offload->out_s =
        hosted.bytes / hosted.buckets / job->request->cluster->host_link_bytes_per_s;
    offload->step_s = sbp_price_update_s(&pricing, hosted.bucket) + extra_s / hosted.buckets;
    if (parallel->chunk_factor == 0)
        return;
    offload->chunk_buckets = (int)fmin((double)parallel->chunk_factor, hosted.buckets);
    offload->chunk_sync_s = chunk_sync_s(job, hosted.most, hosted.bucket * offload->chunk_buckets);
    offload->last_chunk_sync_s =
        chunk_sync_s(job, hosted.most, hosted.bucket * (offload->buckets % offload->chunk_buckets));
}

/* Whether an instruction counts for this chunk: the sum of the norm over devices runs once for all.
 */
static bool counts(const struct sbp_instr *instr, int chunk)
{
    return chunk == 0 || instr->section != SBP_SECTION_STEP || instr->cause != SBP_CAUSE_SCALAR;
}

/* Sums up the part of a program that runs once a step: sums of gradients, which may overlap, and
 * the rest, which it returns without updates. Chunks of buckets (chunk_factor) are summed among
 * replicas; sums with other stages are not among them. */
static double add_end(const struct job *job, const struct sbp_program *program, int chunk,
                      struct sbp_stage_end *end)
{
    const struct sbp_runtime *runtime = &job->request->cluster->runtime;
    double update_s = 0, extra_s = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->section != SBP_SECTION_STEP || !counts(instr, chunk) ||
            instr->kind == SBP_INSTR_PASS)
            continue;
        if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT &&
            (instr->stages == 1 || job->step->parallel.chunk_factor == 0))
            end->sync_s += instr->communication_s;
        else if (instr->kind == SBP_INSTR_UPDATE)
            update_s += instr->compute_s;
        else if (!sbp_program_is_host_copy(instr)) /* of buckets: struct sbp_offload has them */
            extra_s += instr->compute_s + shown_s(program, runtime, instr);
    }
    end->optimizer_s += update_s + extra_s;
    return extra_s;
}

static void set_stage_costs(const struct job *job, int stage)
{
    const struct sbp_step *step = job->step;
    const int chunks = sbp_step_chunks(step);
    const double overlap = sbp_parallel_hidden_share(&step->parallel, job->request->cluster);
    double extra_s = 0;
    int64_t bucket_bytes = 0; /* there is one, as large as the largest chunk's */
    for (int chunk = 0; chunk < chunks; chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        const int64_t bytes = bytes_of_use(program, SBP_USE_BUCKET);
        const int64_t shared = bytes < bucket_bytes ? bytes : bucket_bytes;
        const bool hands_on = sbp_step_hands_on(step);
        const int piece = sbp_step_piece(step, stage, chunk);
        struct sbp_stage_end *end = &step->end[hands_on ? piece : stage];
        step->cost[hands_on ? piece : stage * chunks + chunk] =
            stage_cost_of(program, &job->request->cluster->runtime,
                          (chunk == 0 ? step->cluster.reserve_bytes : 0) - shared);
        bucket_bytes += bytes - shared;
        extra_s += add_end(job, program, chunk, end);
        end->sync_overlap = overlap;
    }
    if (step->parallel.offload)
        set_offload(job, stage, extra_s);
    if (step->end[stage].offload.chunk_buckets > 0)
        step->end[stage].sync_overlap = 0;
}

struct sbp_timeline_request sbp_step_timeline(const struct sbp_step *step)
{
    const struct sbp_parallel *parallel = &step->parallel;
    return (struct sbp_timeline_request){.schedule = parallel->schedule,
                                         .stages = step->pyramid ? step->pieces : step->stages,
                                         .micro_batches = (int)step->micro_batches,
                                         .chunks = step->replicates ? 1 : sbp_step_chunks(step),
                                         .placement = step->pyramid      ? SBP_PLACE_GROUPS
                                                      : step->replicates ? SBP_PLACE_REPLICAS
                                                                         : SBP_PLACE_PIPELINE,
                                         .pipeline_limit = (int)parallel->pipeline_limit,
                                         .stage = step->cost,
                                         .end = step->end};
}

static enum sbp_status simulate(struct job *job)
{
    struct sbp_step *step = job->step;
    struct sbp_timeline_request request = sbp_step_timeline(step);
    request.record = job->request->record;
    request.is_brief = job->request->is_brief;
    return sbp_timeline_simulate(&request, &step->arena, &step->timeline, job->diag);
}

/* ---- totals -------------------------------------------------------------------------------- */

/* The share of what may hide in each section that its arithmetic is long enough for; at the end of
 * the step, all of it. */
static void find_hidden(const struct sbp_program *program, const struct sbp_runtime *runtime,
                        double share[SBP_SECTIONS])
{
    double compute_s[SBP_SECTIONS] = {0}, may_s[SBP_SECTIONS] = {0};
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        compute_s[instr->section] += instr->compute_s;
        may_s[instr->section] += instr->communication_s - shown_s(program, runtime, instr);
    }
    for (int i = 0; i < SBP_SECTIONS; i++)
        share[i] = may_s[i] > 0 && i != SBP_SECTION_STEP ? fmin(1, compute_s[i] / may_s[i]) : 1;
}

/* Those who hand sums on all make their own updates; of finished sums one has its own and one more
 * ends a way. A group alone hands nothing on. */
double sbp_step_times(const struct sbp_step *step, int piece, const struct sbp_instr *instr)
{
    const bool once = instr->section == SBP_SECTION_STEP;
    const int copies = sbp_step_copies(step, piece);
    if (instr->kind == SBP_INSTR_PASS && (once || copies == 1))
        return once && copies > 1 ? copies - 2 : 0;
    return once ? copies : (double)step->micro_batches;
}

/* Seconds and bytes of one piece in a step. */
static void add_piece(const struct job *job, int piece, struct sbp_step_totals *totals)
{
    const struct sbp_program *program = sbp_step_program(job->step, piece);
    const int chunk = sbp_step_chunk_of(job->step, piece);
    const struct sbp_runtime *runtime = &job->request->cluster->runtime;
    double share[SBP_SECTIONS];
    find_hidden(program, runtime, share);
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const bool once = instr->section == SBP_SECTION_STEP;
        if (!counts(instr, chunk))
            continue;
        const double times = sbp_step_times(job->step, piece, instr);
        double *const compute_s = once                                      ? &totals->optimizer_s
                                  : instr->section == SBP_SECTION_RECOMPUTE ? &totals->recompute_s
                                                                            : &totals->compute_s;
        *compute_s += times * instr->compute_s;
        totals->by_cause_s[instr->cause] += times * instr->communication_s;
        totals->hidden_by_cause_s[instr->cause] +=
            times * share[instr->section] *
            (instr->communication_s - shown_s(program, runtime, instr));
        totals->communication_bytes +=
            times * sbp_price_traffic_bytes(program, &job->step->cluster, instr);
    }
}

/* Seconds of messages with sums of a piece's gradients in a step: so far, and finished. */
static double handed_s(const struct sbp_step *step, int piece)
{
    const int copies = sbp_step_copies(step, piece);
    return copies > 1
               ? (double)(step->micro_batches + copies - 2) * step->cost[piece].send_gradients_s
               : 0;
}

static void sum_times(const struct job *job)
{
    struct sbp_step *step = job->step;
    struct sbp_step_totals *totals = &step->totals;
    const double stages = step->stages;
    double sync_s = 0, send_s = 0, beside_s = 0;
    for (int piece = 0; piece < step->pieces; piece++)
        add_piece(job, piece, totals);
    for (int i = 0; i < (step->pyramid ? step->pieces : step->stages); i++)
        sync_s += sbp_step_copies(step, i) * step->end[i].sync_s + handed_s(step, i);
    if (!job->request->cluster->runtime.sends_block) /* else they are a part of their passes */
        send_s = totals->by_cause_s[SBP_CAUSE_STAGE];
    for (int cause = 0; cause < SBP_CAUSES; cause++) {
        totals->by_cause_s[cause] /= stages;
        totals->hidden_by_cause_s[cause] /= stages;
        totals->communication_s += totals->by_cause_s[cause];
        beside_s += totals->hidden_by_cause_s[cause];
    }
    totals->compute_s /= stages;
    totals->recompute_s /= stages;
    totals->optimizer_s /= stages;
    totals->communication_bytes /= stages;
    totals->step_s = step->timeline.makespan_s;
    if (job->request->is_brief)
        return;
    const double exposed_s =
        fmin(totals->communication_s - (sync_s + send_s) / stages + step->timeline.exposed_s,
             totals->communication_s) -
        beside_s;
    totals->exposed_s = fabs(exposed_s) > ROUNDING * totals->step_s ? exposed_s : 0;
    totals->hidden_s = totals->communication_s - totals->exposed_s;
    double *const hidden_s = totals->hidden_by_cause_s;
    if (!job->request->cluster->runtime.sends_block)
        hidden_s[SBP_CAUSE_STAGE] =
            fmin(fmax(totals->by_cause_s[SBP_CAUSE_STAGE] - step->timeline.exposed_send_s, 0),
                 totals->hidden_s - beside_s);
    hidden_s[SBP_CAUSE_WEIGHT_GRADIENT] += totals->hidden_s - beside_s - hidden_s[SBP_CAUSE_STAGE];
    const double idle_s = totals->step_s - totals->compute_s - totals->recompute_s -
                          totals->optimizer_s - totals->exposed_s;
    totals->bubble_s = idle_s > ROUNDING * totals->step_s ? idle_s : 0;
}

static void add_memory(const struct sbp_program *program, const struct sbp_cluster *cluster,
                       struct sbp_stage_memory *memory)
{
    const struct sbp_totals totals = sbp_program_totals(program, cluster);
    memory->weight_bytes += totals.weight_bytes;
    memory->gradient_bytes += totals.gradient_bytes;
    memory->moment_bytes += totals.moment_bytes;
    memory->master_bytes += totals.master_bytes;
    if (totals.bucket_bytes > memory->bucket_bytes) /* chunks share it */
        memory->bucket_bytes = totals.bucket_bytes;
    memory->host_bytes += program->host_bytes;
    memory->parameters += program->parameters;
}

/* Where arrivals decide, a run can have other ones than the timeline: all that the first stage has
 * injected may wait for the stages behind. Stages of the model that share a device without a flush
 * have a frame for each micro-batch that is ahead, and one. */
static int most_in_flight(const struct sbp_step *step, int stage)
{
    const int first = step->timeline.device[0].in_flight;
    if (sbp_step_hands_on(step))
        return sbp_step_chunks(step);
    if (sbp_step_chunks(step) > 1 && sbp_timeline_delays_gradients(step->parallel.schedule))
        return step->pieces * (step->pieces + 1) / 2;
    return sbp_timeline_is_driven(step->parallel.schedule, step->stages, stage)
               ? first
               : step->timeline.device[stage].in_flight;
}

/* Bytes of a device's arena and reserve. Frames that differ in size may leave gaps, parts of them
 * are not fullest at the same time in a short step, and arrivals may be others, which the timeline
 * does not see. */
static enum sbp_status device_bytes(const struct job *job, int stage, int64_t *bytes)
{
    struct sbp_step *step = job->step;
    const int chunks = sbp_step_chunks(step);
    int64_t held = 0, transient = 0;
    struct sbp_stage_layout layout;
    *bytes = step->timeline.device[stage].peak_bytes;
    if (chunks == 1 && step->parallel.schedule != SBP_ZERO_BUBBLE &&
        !sbp_timeline_is_driven(step->parallel.schedule, step->stages, stage))
        return SBP_OK;
    for (int chunk = 0; chunk < chunks; chunk++) {
        const struct sbp_stage_cost *cost = sbp_step_cost(step, stage, chunk);
        held += cost->static_bytes;
        transient = cost->transient_bytes > transient ? cost->transient_bytes : transient;
    }
    const struct sbp_arena_mark mark = sbp_arena_mark(&step->arena);
    SBP_TRY(sbp_stage_layout_make(step, stage, &step->arena, &layout, job->diag));
    sbp_arena_release(&step->arena, mark);
    *bytes = held + layout.frames_bytes + transient;
    return SBP_OK;
}

static enum sbp_status sum_memory(const struct job *job)
{
    struct sbp_step *step = job->step;
    struct sbp_step_totals *totals = &step->totals;
    const int chunks = sbp_step_chunks(step);
    const bool has_slots = job->request->cluster->runtime.has_slots;
    for (int stage = 0; stage < step->stages; stage++) {
        struct sbp_stage_memory *memory = &step->memory[stage];
        SBP_TRY(device_bytes(job, stage, &memory->device_bytes));
        for (int chunk = 0; chunk < chunks; chunk++) {
            const struct sbp_stage_cost *cost = sbp_step_cost(step, stage, chunk);
            add_memory(sbp_step_chunk(step, stage, chunk), &step->cluster, memory);
            memory->kept_bytes += cost->kept_bytes / chunks;
            memory->parked_bytes += cost->parked_inputs_bytes + cost->parked_gradients_bytes;
            if (cost->transient_bytes > memory->transient_bytes)
                memory->transient_bytes = cost->transient_bytes;
        }
        memory->message_bytes = has_slots ? sbp_stage_slot_bytes(step, stage) : 0;
        if (!sbp_add_i64(memory->device_bytes, memory->message_bytes, &memory->device_bytes))
            return sbp_fail(job->diag, SBP_E_RANGE, "memory: a device's bytes pass 2^63");
        memory->reserve_bytes = step->cluster.reserve_bytes;
        memory->in_flight = most_in_flight(step, stage);
        if (memory->device_bytes > totals->device_bytes)
            totals->device_bytes = memory->device_bytes;
        if (memory->host_bytes > totals->host_bytes)
            totals->host_bytes = memory->host_bytes;
    }
    totals->fits_device = totals->device_bytes <= step->cluster.memory_bytes;
    totals->fits_host = step->cluster.host_memory_bytes == 0 ||
                        totals->host_bytes <= step->cluster.host_memory_bytes;
    return SBP_OK;
}

/* ---- assembly ------------------------------------------------------------------------------ */

static enum sbp_status check(const struct sbp_step_request *request, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = request->graph;
    const struct sbp_parallel *parallel = request->parallel;
    SBP_TRY(sbp_parallel_check(parallel, graph, request->cluster, diag));
    if (graph->micro_batch != parallel->micro_batch)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: the graph holds %lld sequences, %lld are legal",
                        (long long)graph->micro_batch, (long long)parallel->micro_batch);
    if (sbp_parallel_micro_batches(parallel, graph) > MOST_MICRO_BATCHES)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: makes %lld micro-batches, at most %lld are legal",
                        (long long)sbp_parallel_micro_batches(parallel, graph),
                        (long long)MOST_MICRO_BATCHES);
    return SBP_OK;
}

static enum sbp_status allocate(struct job *job)
{
    struct sbp_step *step = job->step;
    struct sbp_arena *arena = &step->arena;
    step->micro_batches = sbp_parallel_micro_batches(&step->parallel, job->request->graph);
    step->stages = (int)sbp_parallel_groups(&step->parallel);
    step->pieces = (int)sbp_parallel_pieces(&step->parallel);
    step->replicates = sbp_parallel_replicates(&step->parallel);
    step->pyramid = step->parallel.pyramid;
    step->first = SBP_NEW(arena, int, step->pieces + 1);
    step->program_of = SBP_NEW(arena, int, step->pieces);
    step->holders = SBP_NEW(arena, int, job->request->graph->tensor_count + 1);
    step->program = SBP_NEW(arena, struct sbp_program, step->pieces);
    step->cost = SBP_NEW(arena, struct sbp_stage_cost, step->pieces);
    step->end = SBP_NEW(arena, struct sbp_stage_end, step->stages);
    step->memory = SBP_NEW(arena, struct sbp_stage_memory, step->stages);
    return step->first == NULL || step->program_of == NULL || step->holders == NULL ||
                   step->program == NULL || step->cost == NULL || step->end == NULL ||
                   step->memory == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

/* Checks, beside sbp_parallel_check, what depends on the run's type and on the strategy. */
static enum sbp_status check_handed(const struct job *job)
{
    const struct sbp_graph *graph = job->request->graph;
    const bool pyramid = job->step->pyramid;
    const char *who = pyramid ? "groups of a pyramid" : "replicas";
    for (int op = 0; op < graph->op_count; op++)
        if (job->request->strategy->zero[op] != SBP_ZERO_DEFAULT &&
            job->request->strategy->zero[op] != 0)
            return sbp_fail(job->diag, SBP_E_INPUT,
                            "parallel: zero: %s shards its states, %s have all of their "
                            "weights' states: 0 is legal",
                            graph->op[op].name, who);
    return job->request->bytes->scales_loss
               ? sbp_fail(job->diag, SBP_E_INPUT,
                          "parallel: %s: %s form no norm of all gradients, by which a step that "
                          "overflows in f16 is found: %s is legal, or another type",
                          pyramid ? "pyramid" : "pipeline", who, pyramid ? "false" : "1")
               : SBP_OK;
}

static enum sbp_status count_holders(const struct job *job)
{
    struct sbp_step *step = job->step;
    const struct sbp_graph *graph = job->request->graph;
    SBP_TRY(sbp_stages_holders(graph, step->pieces, (int)step->parallel.pipeline, step->first,
                               step->holders));
    if (sbp_step_hands_on(step))
        return check_handed(job);
    if (step->pieces == step->stages)
        return SBP_OK;
    step->copies = SBP_NEW(&step->arena, int, (int64_t)step->stages * graph->tensor_count + 1);
    for (int stage = 0; step->copies != NULL && stage < step->stages; stage++)
        SBP_TRY(sbp_stages_copies(graph, step->pieces, step->stages, stage, step->first,
                                  step->copies + (int64_t)stage * graph->tensor_count));
    return step->copies == NULL ? SBP_E_MEMORY : SBP_OK;
}

static enum sbp_status cut(struct job *job)
{
    struct sbp_step *step = job->step;
    const struct sbp_step_request *request = job->request;
    if (request->first == NULL) {
        SBP_TRY(sbp_stages_cut_as(request->graph, step->pieces, &step->parallel, step->first,
                                  job->diag));
    } else {
        memcpy(step->first, request->first, (size_t)(step->pieces + 1) * sizeof *step->first);
        SBP_TRY(sbp_stages_check(request->graph, step->pieces, step->first, job->diag));
    }
    return count_holders(job);
}

static enum sbp_status assemble(struct job *job)
{
    struct sbp_step *step = job->step;
    const struct sbp_step_request *request = job->request;
    int level;
    SBP_TRY(check(request, job->diag));
    SBP_TRY(sbp_parallel_stage_cluster(&step->parallel, request->cluster, &step->cluster, &level,
                                       job->diag));
    SBP_TRY(sbp_mesh_make(&step->cluster, &step->mesh, job->diag));
    SBP_TRY(allocate(job));
    SBP_TRY(cut(job));
    job->scope = (struct sbp_scope){.micro_batches = step->micro_batches,
                                    .parallel = &step->parallel,
                                    .whole = request->cluster,
                                    .holders = step->holders};
    for (int piece = 0; piece < step->pieces; piece++)
        SBP_TRY(compile_piece(job, piece));
    for (int piece = 0; piece < step->pieces; piece++) /* chunks of a stage together */
        if (sbp_step_chunk_of(step, piece) == 0)
            set_stage_costs(job, sbp_step_stage_of(step, piece));
    SBP_TRY(simulate(job));
    sum_times(job);
    return sum_memory(job);
}

enum sbp_status sbp_step_make(const struct sbp_step_request *request, struct sbp_step *step,
                              struct sbp_diag *diag)
{
    *step = (struct sbp_step){.parallel = *request->parallel};
    struct job job = {.request = request, .step = step, .diag = diag};
    const enum sbp_status status = assemble(&job);
    if (status == SBP_E_MEMORY && diag->text[0] == '\0')
        sbp_fail(diag, status, "out of memory while compiling a step");
    if (status != SBP_OK)
        sbp_step_free(step);
    return status;
}

void sbp_step_free(struct sbp_step *step)
{
    if (step == NULL)
        return;
    for (int i = 0; i < step->program_count; i++)
        sbp_program_free(&step->program[i]);
    sbp_arena_free(&step->arena);
    *step = (struct sbp_step){0};
}
