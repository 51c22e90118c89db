#include "executor/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "executor/verify/choices_priv.h"
#include "executor/verify/verify_priv.h"

/* ---- findings ------------------------------------------------------------------------------ */

bool sbp_verify_is_near(struct sbp_verify_outcome *outcome, double run, double reference,
                        double bound)
{
    const double difference = fabs(run - reference);
    if (bound > 0 && difference / bound > outcome->worst_ratio)
        outcome->worst_ratio = difference / bound;
    return isfinite(run) && isfinite(bound) && difference <= bound;
}

void sbp_verify_report(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                       int64_t index, double run, double reference, double bound)
{
    struct sbp_finding *first = &v->outcome.first;
    if (first->found)
        return;
    *first = (struct sbp_finding){.found = true,
                                  .index = index,
                                  .rank = rank,
                                  .step = v->rank->step,
                                  .run = run,
                                  .reference = reference,
                                  .bound = bound};
    (void)snprintf(first->what, sizeof first->what, "%s", what);
    (void)snprintf(first->tensor, sizeof first->tensor, "%s", tensor);
}

void sbp_verify_compare(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                        int64_t index, double run, double reference, double bound)
{
    if (!sbp_verify_is_near(&v->outcome, run, reference, bound))
        sbp_verify_report(v, what, tensor, rank, index, run, reference, bound);
}

double sbp_verify_bound(const struct sbp_verifier *v, double terms, double sum, double inherited)
{
    const double arithmetic = (sqrt(terms) + v->log2_ranks) * v->wide_u * sum;
    const double storing = v->u > v->wide_u ? (1 + v->log2_ranks) * v->u * sum / sqrt(terms) : 0;
    return inherited < 0 ? 0 : SBP_VERIFY_C * (arithmetic + storing + inherited);
}

struct sbp_spent sbp_verify_start_of_check(void)
{
    return (struct sbp_spent){sbp_thread_cpu_s(), sbp_clock_s()};
}

void sbp_verify_spend_since(struct sbp_verifier *v, struct sbp_spent start)
{
    v->spent.cpu_s += sbp_thread_cpu_s() - start.cpu_s;
    v->spent.wall_s += sbp_clock_s() - start.wall_s;
}

const char *sbp_verify_finding_text(const struct sbp_finding *finding, char *buffer, int size)
{
    (void)snprintf(buffer, (size_t)size,
                   "step %lld: %s%s%s, element %lld on rank %lld: run %.17g, reference %.17g, "
                   "difference %.3g, bound %.3g",
                   (long long)finding->step, finding->what, finding->tensor[0] ? " of " : "",
                   finding->tensor, (long long)finding->index, (long long)finding->rank,
                   finding->run, finding->reference, fabs(finding->run - finding->reference),
                   finding->bound);
    return buffer;
}

/* ---- hashes -------------------------------------------------------------------------------- */

enum sbp_status sbp_verify_hash_memory(struct sbp_verifier *v, const struct sbp_memory_ops *memory,
                                       const char *from, int64_t bytes, uint64_t *hash,
                                       struct sbp_diag *diag)
{
    const int64_t most = SBP_VERIFY_PIECE * (int64_t)sizeof(double);
    for (int64_t start = 0; start < bytes; start += most) {
        const int64_t length = bytes - start < most ? bytes - start : most;
        const enum sbp_status status = memory->to_host(v->piece, from + start, length);
        if (status != SBP_OK)
            return sbp_fail(diag, status, "copying from %s memory", memory->name);
        *hash = *hash * 0x100000001b3 ^ sbp_hash_bytes(v->piece, (uint64_t)length);
    }
    return SBP_OK;
}

/* Of this rank's part of a weight, and of its master copy, as they stand. */
enum sbp_status sbp_verify_hash_weight(struct sbp_verifier *v, int tensor, uint64_t *hash,
                                       struct sbp_diag *diag)
{
    struct sbp_rank *rank = v->rank;
    const struct sbp_program *program = rank->program;
    const int master = program->master[tensor];
    const int64_t count = sbp_rank_stretch(program, tensor, rank->rank).count;
    *hash = 0;
    SBP_TRY(sbp_verify_hash_memory(v, rank->device->memory,
                                   sbp_rank_shard(rank, tensor, program->weight_buffer[tensor]),
                                   count * rank->kernels->real_bytes, hash, diag));
    return master < 0
               ? SBP_OK
               : sbp_verify_hash_memory(v, rank->device->memory, sbp_rank_buffer(rank, master),
                                        count * rank->kernels->wide_bytes, hash, diag);
}

/* ---- opening and closing ------------------------------------------------------------------- */

static enum sbp_status allocate_outputs(struct sbp_verifier *v, int chunk)
{
    const struct sbp_program *program = v->rank->arena->program[chunk];
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const int64_t slot = sbp_verify_slot(v, chunk, t);
        const int end = sbp_reference_end_instr(program, t);
        v->end_instr[slot] = end;
        if (end < 0)
            continue;
        const int out = program->instr[end].buffer[SBP_AT_OUT];
        v->output[slot] = calloc((size_t)sbp_verify_outputs(v->channel->step),
                                 (size_t)program->buffer[out].elements * sizeof(double));
        if (v->output[slot] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* Room for weights of the step before, where a sample's reference may read them. */
static enum sbp_status allocate_older(struct sbp_verifier *v)
{
    v->older = calloc((size_t)v->slots + 1, sizeof *v->older);
    if (v->older == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++) {
        const struct sbp_program *program = v->rank->arena->program[chunk];
        for (int t = 0; t < program->graph->tensor_count; t++) {
            const int at = program->weight_buffer[t];
            void **older = &v->older[sbp_verify_slot(v, chunk, t)];
            *older = at < 0 ? NULL : malloc((size_t)sbp_program_buffer_bytes(program, at) + 1);
            if (at >= 0 && *older == NULL)
                return SBP_E_MEMORY;
        }
    }
    return SBP_OK;
}

static enum sbp_status allocate_chunks(struct sbp_verifier *v)
{
    v->end_instr = calloc((size_t)v->slots + 1, sizeof *v->end_instr);
    v->output = calloc((size_t)v->slots + 1, sizeof *v->output);
    v->updated = calloc((size_t)v->slots + 1, sizeof *v->updated);
    if (v->end_instr == NULL || v->output == NULL || v->updated == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < v->rank->arena->chunks; chunk++)
        SBP_TRY(allocate_outputs(v, chunk));
    SBP_TRY(sbp_choices_open(v));
    return v->is_sampled && sbp_timeline_delays_gradients(v->channel->step->parallel.schedule)
               ? allocate_older(v)
               : SBP_OK;
}

/* Elements of a piece's outputs of all micro-batches that are kept. */
static double output_elements(const struct sbp_step *step, const struct sbp_program *program)
{
    double elements = 0;
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const int end = sbp_reference_end_instr(program, t);
        if (end >= 0)
            elements += (double)sbp_verify_outputs(step) *
                        (double)program->buffer[program->instr[end].buffer[SBP_AT_OUT]].elements;
    }
    return elements;
}

/* Weights of a piece on a rank. */
static double weight_bytes(const struct sbp_program *program)
{
    double bytes = 0;
    for (int t = 0; t < program->graph->tensor_count; t++)
        if (program->weight_buffer[t] >= 0)
            bytes += (double)sbp_program_buffer_bytes(program, program->weight_buffer[t]);
    return bytes;
}

/* Outputs of a stage's chunks, weights that are kept, and the pieces that `allocate` makes. */
static double rank_bytes(const struct sbp_step *step, bool is_sampled, int stage)
{
    const bool keeps = is_sampled && sbp_timeline_delays_gradients(step->parallel.schedule);
    double bytes = 8.0 * SBP_VERIFY_PIECE * sizeof(double);
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        bytes += output_elements(step, program) * sizeof(double) + sbp_choices_bytes(program) +
                 (keeps ? weight_bytes(program) : 0);
    }
    return bytes;
}

enum sbp_status sbp_verify_count(const struct sbp_step *step, const struct sbp_cluster *cluster,
                                 enum sbp_real real, bool is_sampled, struct sbp_verify_need *need,
                                 struct sbp_diag *diag)
{
    const struct sbp_reference_of of = {.graph = step->program[0].graph,
                                        .cluster = cluster,
                                        .step = step,
                                        .real = real,
                                        .is_sampled = is_sampled};
    *need = (struct sbp_verify_need){0};
    for (int op = 0; op < of.graph->op_count && is_sampled; op++)
        if (of.graph->op[op].kind == SBP_OP_MOE)
            return sbp_fail(
                diag, SBP_E_UNSUPPORTED,
                "operator %s: --verify=sampled computes a step before it runs, and knows "
                "no experts of tokens then: full and shrunk are legal",
                of.graph->op[op].name);
    for (int stage = 0; stage < step->stages; stage++)
        need->rank_bytes = fmax(need->rank_bytes, rank_bytes(step, is_sampled, stage));
    return sbp_reference_bytes(&of, &need->reference_bytes, diag);
}

static enum sbp_status allocate(struct sbp_verifier *v)
{
    v->piece = malloc(SBP_VERIFY_PIECE * sizeof(double));
    v->rounded = malloc(SBP_VERIFY_PIECE * sizeof(double));
    v->loss = calloc((size_t)v->rank->program->mesh.devices, sizeof *v->loss);
    for (int i = 0; i < 3; i++) {
        v->before[i] = malloc(2 * SBP_VERIFY_PIECE * sizeof(double)); /* and after */
        if (v->before[i] == NULL)
            return SBP_E_MEMORY;
    }
    return v->piece == NULL || v->rounded == NULL || v->loss == NULL ? SBP_E_MEMORY
                                                                     : allocate_chunks(v);
}

/* What a run's results bear that stores in this type. Factors in TF32 are rounded as they are read,
 * to three bits more than bfloat16 has. */
static enum sbp_real rounded_to(const struct sbp_kernels *kernels)
{
    return kernels->rounds_to_tf32 ? SBP_REAL_BF16 : kernels->real;
}

static void judge_choice(void *context, int op, int64_t copy, double run, double best,
                         const struct sbp_reference_score *size)
{
    struct sbp_verifier *const v = context;
    sbp_verify_compare(v, "choice of experts", v->rank->program->graph->op[op].name, 0, copy, run,
                       best, sbp_verify_bound(v, size->terms, size->sum, size->inherited));
}

static enum sbp_status open_reference(struct sbp_verifier *v, const struct sbp_cluster *cluster,
                                      struct sbp_diag *diag)
{
    struct sbp_reference *reference = malloc(sizeof *reference);
    if (reference == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    const struct sbp_reference_of of = {.graph = v->rank->program->graph,
                                        .cluster = cluster,
                                        .step = v->channel->step,
                                        .seed = v->rank->seed,
                                        .real = rounded_to(v->rank->kernels),
                                        .is_sampled = v->is_sampled};
    const enum sbp_status status = sbp_reference_open(reference, &of, diag);
    if (status != SBP_OK) {
        free(reference);
        return status;
    }
    reference->post = v->channel->post;
    reference->rank.labels = reference->shadow.labels = v->rank->labels;
    reference->judge = judge_choice;
    reference->judge_context = v;
    v->reference = reference;
    return SBP_OK;
}

enum sbp_status sbp_verify_open(struct sbp_rank *rank, const struct sbp_cluster *cluster,
                                bool is_sampled, struct sbp_verifier **verifier,
                                struct sbp_diag *diag)
{
    const struct sbp_graph *graph = rank->program->graph;
    struct sbp_verifier *v = calloc(1, sizeof *v);
    *verifier = NULL;
    if (v == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    v->rank = rank;
    v->channel = rank->channel;
    v->is_sampled = is_sampled;
    v->u = sbp_real_roundoff(rounded_to(rank->kernels));
    v->wide_u = sbp_real_roundoff(rank->wide->real);
    v->scaler = sbp_loss_scaler(rank->program->bytes.scales_loss);
    v->ranks = (int)(rank->channel->step->stages * rank->program->mesh.devices);
    v->log2_ranks = log2((double)v->ranks);
    v->slots = sbp_verify_slot(v, rank->arena->chunks, 0);
    v->tokens = graph->global_batch * graph->sequence;
    enum sbp_status status = allocate(v);
    if (status == SBP_OK && is_sampled)
        status = sbp_layers_make(graph, v->channel->step, &v->arena, &v->layers);
    if (status == SBP_OK)
        status = sbp_verify_note_hosted(v, diag);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory for the verification");
    if (status == SBP_OK && sbp_verify_leads(v))
        status = open_reference(v, cluster, diag);
    if (status == SBP_OK)
        *verifier = v;
    else
        sbp_verify_close(v);
    return status;
}

void sbp_verify_close(struct sbp_verifier *v)
{
    if (v == NULL)
        return;
    if (v->reference != NULL)
        sbp_reference_close(v->reference);
    free(v->reference);
    for (int64_t i = 0; v->output != NULL && i < v->slots; i++)
        free(v->output[i]);
    for (int64_t i = 0; v->older != NULL && i < v->slots; i++)
        free(v->older[i]);
    free(v->older);
    sbp_choices_close(v);
    free(v->output);
    free(v->end_instr);
    free(v->updated);
    for (int chunk = 0; v->hosted != NULL && chunk < v->rank->arena->chunks; chunk++)
        free(v->hosted[chunk]);
    free(v->hosted);
    for (int i = 0; i < 3; i++)
        free(v->before[i]);
    free(v->rounded);
    free(v->loss);
    free(v->piece);
    sbp_arena_free(&v->arena);
    free(v);
}

void sbp_verify_remeasure(struct sbp_verifier *v, bool remeasures)
{
    v->remeasures = remeasures;
}

const struct sbp_verify_outcome *sbp_verify_outcome(const struct sbp_verifier *v)
{
    return &v->outcome;
}

struct sbp_spent sbp_verify_spent(const struct sbp_verifier *v)
{
    return v == NULL ? (struct sbp_spent){0} : v->spent;
}
