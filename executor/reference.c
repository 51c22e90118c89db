#include "executor/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/rank_ops.h"

static bool is_output(const struct sbp_graph *graph, int tensor)
{
    return graph->tensor[tensor].kind == SBP_ACTIVATION && tensor != graph->input &&
           sbp_graph_consumers(graph, tensor, NULL, 0) == 0;
}

int sbp_output_instr(const struct sbp_program *program, int tensor)
{
    int found = -1;
    if (!is_output(program->graph, tensor))
        return -1;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const bool makes = instr->kind == SBP_INSTR_FORWARD ||
                           (instr->kind == SBP_INSTR_BOX && instr->cause == SBP_CAUSE_ACTIVATION);
        const int out = instr->buffer[SBP_AT_OUT];
        if (makes && out >= 0 && program->buffer[out].tensor == tensor)
            found = i;
    }
    return found;
}

static int64_t elements_of(const struct sbp_tensor *tensor)
{
    int64_t elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= tensor->shape.size[dim]; /* the graph keeps them below 2^59 */
    return elements;
}

static enum sbp_status compile(struct sbp_reference *reference, const struct sbp_cluster *cluster,
                               struct sbp_diag *diag)
{
    struct sbp_cluster one = *cluster;
    struct sbp_mesh mesh;
    struct sbp_strategy strategy;
    const struct sbp_element_bytes bytes = sbp_element_bytes_run(SBP_F64);
    SBP_TRY(sbp_cluster_shrink(&one, 1, diag));
    SBP_TRY(sbp_mesh_make(&one, &mesh, diag));
    SBP_TRY(sbp_strategy_alloc(&reference->graph, &reference->arena, &strategy));
    SBP_TRY(sbp_strategy_close(&reference->graph, &mesh, &strategy, diag));
    return sbp_program_make(&reference->graph, &one, &mesh, &strategy, &bytes, &reference->program,
                            diag);
}

static enum sbp_status allocate(double **array, int64_t elements, struct sbp_diag *diag)
{
    *array = calloc((size_t)elements, sizeof **array);
    if (*array == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the reference of the verification");
    return SBP_OK;
}

static enum sbp_status allocate_all(struct sbp_reference *reference, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &reference->graph;
    reference->magnitude = SBP_NEW(&reference->arena, double *, graph->tensor_count);
    reference->output = SBP_NEW(&reference->arena, double *, graph->tensor_count);
    reference->output_magnitude = SBP_NEW(&reference->arena, double *, graph->tensor_count);
    reference->output_terms = SBP_NEW(&reference->arena, double, graph->tensor_count);
    if (reference->magnitude == NULL || reference->output == NULL ||
        reference->output_magnitude == NULL || reference->output_terms == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the reference of the verification");
    for (int t = 0; t < graph->tensor_count; t++) {
        if (reference->program.weight_buffer[t] >= 0)
            SBP_TRY(allocate(&reference->magnitude[t], elements_of(&graph->tensor[t]), diag));
        if (!is_output(graph, t))
            continue;
        SBP_TRY(allocate(&reference->output[t], elements_of(&graph->tensor[t]), diag));
        SBP_TRY(allocate(&reference->output_magnitude[t], elements_of(&graph->tensor[t]), diag));
    }
    return SBP_OK;
}

enum sbp_status sbp_reference_open(struct sbp_reference *reference, const struct sbp_graph *graph,
                                   const struct sbp_cluster *cluster, uint64_t seed,
                                   struct sbp_diag *diag)
{
    *reference = (struct sbp_reference){.graph = *graph};
    reference->graph.training = (struct sbp_training){.update = {.optimizer = SBP_SGD}};
    /* Host memory and host kernels, whatever the run's device is. */
    const struct sbp_device_ops *device = sbp_device("cpu", diag);
    enum sbp_status status = device == NULL ? SBP_E_UNSUPPORTED : SBP_OK;
    if (status == SBP_OK)
        status = compile(reference, cluster, diag);
    if (status == SBP_OK)
        status = sbp_rank_open(&reference->rank, &reference->program, device, SBP_F64, seed, 0,
                               NULL, diag);
    if (status == SBP_OK)
        status = allocate_all(reference, diag);
    if (status != SBP_OK)
        sbp_reference_close(reference);
    return status;
}

void sbp_reference_close(struct sbp_reference *reference)
{
    for (int t = 0; t < reference->graph.tensor_count; t++) {
        if (reference->magnitude != NULL)
            free(reference->magnitude[t]);
        if (reference->output != NULL)
            free(reference->output[t]);
        if (reference->output_magnitude != NULL)
            free(reference->output_magnitude[t]);
    }
    sbp_rank_close(&reference->rank);
    sbp_program_free(&reference->program);
    sbp_arena_free(&reference->arena);
    *reference = (struct sbp_reference){0};
}

double *sbp_reference_weight(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program.weight_buffer[tensor]);
}

double *sbp_reference_gradient(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program.gradient_buffer[tensor]);
}

/* A copy of an operand's absolute values; NULL when memory is out. */
static double *absolute_of(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    const int buffer = instr->buffer[place];
    const int64_t elements = rank->program->buffer[buffer].elements;
    const double *from = sbp_rank_buffer(rank, buffer);
    double *copy = malloc((size_t)elements * sizeof *copy);
    for (int64_t i = 0; copy != NULL && i < elements; i++)
        copy[i] = fabs(from[i]);
    return copy;
}

static double *magnitude_of(const struct sbp_reference *reference, const struct sbp_instr *instr,
                            int weight)
{
    const struct sbp_op_node *node = &reference->graph.op[instr->op];
    return weight < node->weight_count ? reference->magnitude[node->weight[weight]] : NULL;
}

static enum sbp_status linear_magnitude(struct sbp_reference *reference,
                                        const struct sbp_instr *instr)
{
    struct sbp_rank *rank = &reference->rank;
    const struct sbp_kernels *k = rank->kernels;
    double *x = absolute_of(rank, instr, SBP_AT_IN), *dy = absolute_of(rank, instr, SBP_AT_DY);
    if (x != NULL && dy != NULL)
        (reference->graph.op[instr->op].transposed_weight ? k->linear_transposed_backward_weight
                                                          : k->linear_backward_weight)(
            magnitude_of(reference, instr, 0), magnitude_of(reference, instr, 1), x, dy,
            sbp_rank_tokens(rank, instr, SBP_AT_IN), sbp_rank_features(rank, instr, SBP_AT_IN),
            sbp_rank_features(rank, instr, SBP_AT_DY), instr->factor == 1.0);
    const enum sbp_status status = x != NULL && dy != NULL ? SBP_OK : SBP_E_MEMORY;
    free(x);
    free(dy);
    return status;
}

static enum sbp_status embedding_magnitude(struct sbp_reference *reference,
                                           const struct sbp_instr *instr)
{
    struct sbp_rank *rank = &reference->rank;
    struct sbp_digits vocabulary;
    const struct sbp_op_node *node = &reference->graph.op[instr->op];
    double *dy = absolute_of(rank, instr, SBP_AT_DY);
    if (dy == NULL)
        return SBP_E_MEMORY;
    sbp_rank_vocabulary(rank, instr->buffer[SBP_AT_DW], SBP_DIM_IN, &vocabulary);
    const int64_t positions =
        node->weight_count > 1 ? reference->graph.tensor[node->weight[1]].shape.size[0] : 0;
    rank->kernels->embedding_backward(
        magnitude_of(reference, instr, 0), magnitude_of(reference, instr, 1),
        sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]),
        sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN2]), dy,
        sbp_rank_tokens(rank, instr, SBP_AT_DY), sbp_rank_features(rank, instr, SBP_AT_DY),
        positions, &vocabulary, instr->factor == 1.0);
    free(dy);
    return SBP_OK;
}

/* dgain sums dy (x - mean) rstd: x and the mean are terms of their own; dshift sums dy. */
static void layernorm_magnitude(struct sbp_reference *reference, const struct sbp_instr *instr)
{
    struct sbp_rank *rank = &reference->rank;
    const double *x = sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]);
    const double *dy = sbp_rank_buffer(rank, instr->buffer[SBP_AT_DY]);
    const double *sums = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    double *gain = magnitude_of(reference, instr, 0), *shift = magnitude_of(reference, instr, 1);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    const int64_t features = sbp_rank_features(rank, instr, SBP_AT_IN);
    memset(gain, 0, (size_t)features * sizeof *gain);
    memset(shift, 0, (size_t)features * sizeof *shift);
    for (int64_t t = 0; t < tokens; t++) {
        const double mean = sums[2 * t] / (double)features;
        const double variance = fmax(0, sums[2 * t + 1] / (double)features - mean * mean);
        const double scale = 1 / sqrt(variance + reference->graph.op[instr->op].epsilon);
        for (int64_t i = 0; i < features; i++) {
            const int64_t at = t * features + i;
            gain[i] += fabs(dy[at]) * (fabs(x[at]) + fabs(mean)) * scale;
            shift[i] += fabs(dy[at]);
        }
    }
}

/* Terms of the mean loss: log sum exp(z - max) and target - max, each with the rounding of the
 * logits that it is made of; the sum of exponentials adds 1 (its relative error is an absolute one
 * of its logarithm). */
static void loss_magnitude(struct sbp_reference *reference, const struct sbp_instr *instr)
{
    struct sbp_rank *rank = &reference->rank;
    const double *maxima = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    const double *sums = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED2]);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    double sum = 0;
    for (int64_t t = 0; t < tokens; t++)
        sum += 1 + fabs(log(sums[2 * t])) + fabs(sums[2 * t + 1]) + fabs(maxima[t]);
    reference->loss_magnitude = sum / (double)tokens;
}

static enum sbp_status note_magnitudes(struct sbp_reference *reference,
                                       const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_BACKWARD)
        return SBP_OK;
    const enum sbp_op_kind kind = reference->graph.op[instr->op].kind;
    if (kind == SBP_OP_CROSS_ENTROPY)
        loss_magnitude(reference, instr);
    if (!sbp_rank_is_weight_gradient(instr))
        return SBP_OK;
    if (kind == SBP_OP_LINEAR)
        return linear_magnitude(reference, instr);
    if (kind == SBP_OP_EMBEDDING)
        return embedding_magnitude(reference, instr);
    layernorm_magnitude(reference, instr);
    return SBP_OK;
}

/* |x| |w| + |bias| for a product; elsewhere the largest |element| stands for what was summed. */
static enum sbp_status output_magnitude(struct sbp_reference *reference,
                                        const struct sbp_instr *instr, int tensor)
{
    struct sbp_rank *rank = &reference->rank;
    const struct sbp_op_node *node = &reference->graph.op[instr->op];
    const int64_t elements = elements_of(&reference->graph.tensor[tensor]);
    double *to = reference->output_magnitude[tensor], largest = 0;
    if (node->kind == SBP_OP_LINEAR) {
        const struct sbp_kernels *k = rank->kernels;
        const bool has_bias = instr->buffer[SBP_AT_W2] >= 0;
        double *x = absolute_of(rank, instr, SBP_AT_IN), *w = absolute_of(rank, instr, SBP_AT_W);
        double *bias = has_bias ? absolute_of(rank, instr, SBP_AT_W2) : NULL;
        const bool ready = x != NULL && w != NULL && (bias != NULL || !has_bias);
        const int64_t in = sbp_rank_features(rank, instr, SBP_AT_IN);
        if (ready)
            (node->transposed_weight ? k->linear_transposed_forward : k->linear_forward)(
                to, x, w, bias, sbp_rank_tokens(rank, instr, SBP_AT_IN), in,
                sbp_rank_features(rank, instr, SBP_AT_OUT));
        reference->output_terms[tensor] = (double)in;
        free(x);
        free(w);
        free(bias);
        return ready ? SBP_OK : SBP_E_MEMORY;
    }
    for (int64_t i = 0; i < elements; i++)
        largest = fmax(largest, fabs(reference->output[tensor][i]));
    for (int64_t i = 0; i < elements; i++)
        to[i] = largest;
    reference->output_terms[tensor] = (double)sbp_rank_features(rank, instr, SBP_AT_OUT);
    return SBP_OK;
}

static enum sbp_status keep_output(struct sbp_reference *reference, int index)
{
    const struct sbp_program *program = &reference->program;
    const int out = program->instr[index].buffer[SBP_AT_OUT];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    if (tensor < 0 || reference->output[tensor] == NULL ||
        sbp_output_instr(program, tensor) != index)
        return SBP_OK;
    memcpy(reference->output[tensor], sbp_rank_buffer(&reference->rank, out),
           (size_t)program->buffer[out].elements * sizeof(double));
    return output_magnitude(reference, &program->instr[index], tensor);
}

enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag)
{
    SBP_TRY(sbp_rank_begin_step(&reference->rank, step, diag));
    for (int i = 0; i < reference->program.instr_count; i++) {
        const struct sbp_instr *instr = &reference->program.instr[i];
        if (instr->kind == SBP_INSTR_UPDATE || instr->kind == SBP_INSTR_NORM)
            continue;
        SBP_TRY(sbp_rank_execute(&reference->rank, instr, diag));
        if (keep_output(reference, i) != SBP_OK || note_magnitudes(reference, instr) != SBP_OK)
            return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the verification");
    }
    return sbp_rank_loss(&reference->rank, &reference->loss, diag);
}
