#include "executor/verify/reference_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "costmodel/program/cut.h"
#include "costmodel/program/stages.h"

/* With 16 bits many inputs of a relu are close to 0, and all of them as far as 8 deviations would
 * hide what is wrong. */
static const double EITHER = 8, EITHER_HALF = 5;

static bool is_output(const struct sbp_graph *graph, int tensor)
{
    return graph->tensor[tensor].kind == SBP_ACTIVATION && tensor != graph->input &&
           sbp_graph_consumers(graph, tensor, NULL, 0) == 0;
}

static bool is_split_input(const struct sbp_graph *graph, int tensor)
{
    return tensor == graph->input && graph->input_split;
}

static bool is_forward(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_FORWARD ||
           (instr->kind == SBP_INSTR_BOX && instr->cause == SBP_CAUSE_ACTIVATION);
}

static bool is_backward(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_BACKWARD || instr->kind == SBP_INSTR_INNER ||
           instr->kind == SBP_INSTR_ADD_GRADIENT ||
           (instr->kind == SBP_INSTR_BOX && instr->cause == SBP_CAUSE_ACTIVATION_GRADIENT);
}

int sbp_reference_end_instr(const struct sbp_program *program, int tensor)
{
    const bool output = is_output(program->graph, tensor);
    int found = -1;
    if (!output && !is_split_input(program->graph, tensor))
        return -1;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int out = instr->buffer[SBP_AT_OUT];
        if ((output ? is_forward : is_backward)(instr) && out >= 0 &&
            program->buffer[out].tensor == tensor)
            found = i;
    }
    return found;
}

static bool delays(const struct sbp_step *step)
{
    return step != NULL && sbp_timeline_delays_gradients(step->parallel.schedule);
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* A sample's programs have no room for gradients, which nobody writes there. */
static struct sbp_element_bytes bytes_of_real(const struct sbp_reference *reference,
                                              enum sbp_real real)
{
    struct sbp_element_bytes bytes = sbp_program_run_bytes(real);
    if (reference->is_sampled)
        bytes.gradient = 0;
    return bytes;
}

/* What compiling the pieces takes. */
struct compiling {
    const struct sbp_cluster *cluster;
    const struct sbp_mesh *mesh;
    const struct sbp_strategy *strategy;
};

static enum sbp_status compile_piece(struct sbp_reference *reference, const struct compiling *c,
                                     int index, struct sbp_diag *diag)
{
    const struct sbp_element_bytes wide = bytes_of_real(reference, SBP_F64);
    const struct sbp_element_bytes narrow = bytes_of_real(reference, SBP_F32);
    struct sbp_reference_piece *piece = &reference->piece[index];
    struct sbp_scope scope = sbp_program_scope_whole(&reference->graph);
    scope.first_op = reference->layers.first[index];
    scope.end_op = reference->layers.first[index + 1];
    SBP_TRY(sbp_program_make_scope(&reference->graph, c->cluster, c->mesh, c->strategy, &wide,
                                   &scope, &piece->program, diag));
    return sbp_program_make_scope(&reference->graph, c->cluster, c->mesh, c->strategy, &narrow,
                                  &scope, &piece->shadow_program, diag);
}

static enum sbp_status compile(struct sbp_reference *reference, const struct sbp_cluster *cluster,
                               struct sbp_diag *diag)
{
    struct sbp_cluster one = *cluster;
    struct sbp_mesh mesh;
    struct sbp_strategy strategy;
    SBP_TRY(sbp_cluster_shrink(&one, 1, diag));
    SBP_TRY(sbp_mesh_make(&one, &mesh, diag));
    SBP_TRY(sbp_strategy_alloc(&reference->graph, &reference->arena, &strategy));
    SBP_TRY(sbp_strategy_close(&reference->graph, &mesh, &strategy, diag));
    const struct compiling c = {&one, &mesh, &strategy};
    for (int i = 0; i < reference->layers.pieces; i++)
        SBP_TRY(compile_piece(reference, &c, i, diag));
    return SBP_OK;
}

/* Tables have an output a row, everything else an output a column. */
static bool is_table(const struct sbp_graph *graph, int tensor)
{
    for (int op = 0; op < graph->op_count; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (graph->op[op].weight[w] == tensor && graph->op[op].kind == SBP_OP_EMBEDDING)
                return true;
    return false;
}

static bool is_weight(const struct sbp_reference *reference, int tensor)
{
    for (int i = 0; i < reference->layers.pieces; i++)
        if (reference->piece[i].program.weight_buffer[tensor] >= 0)
            return true;
    return false;
}

/* The first operator that reads a weight. */
static const struct sbp_op_node *reader_of(const struct sbp_graph *graph, int tensor)
{
    for (int op = 0; op < graph->op_count; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++)
            if (graph->op[op].weight[w] == tensor)
                return &graph->op[op];
    return NULL;
}

static struct sbp_magnitude_of magnitude_of(const struct sbp_reference *reference, int tensor)
{
    const struct sbp_graph *graph = &reference->graph;
    const struct sbp_op_node *reader = reader_of(graph, tensor);
    return (struct sbp_magnitude_of){.shape = &graph->tensor[tensor].shape,
                                     .by_row = is_table(graph, tensor),
                                     .is_sampled = reference->is_sampled,
                                     .keeps_all =
                                         reader != NULL && reader->kind == SBP_OP_LAYERNORM};
}

static enum sbp_status open_magnitude(struct sbp_reference *reference, int tensor)
{
    struct sbp_magnitude *magnitude = SBP_NEW(&reference->arena, struct sbp_magnitude, 1);
    const struct sbp_magnitude_of of = magnitude_of(reference, tensor);
    reference->magnitude[tensor] = magnitude;
    return magnitude == NULL ? SBP_E_MEMORY : sbp_magnitude_open(magnitude, &of);
}

/* Draws what is kept of all weights, of a bias as of the weight beside it. */
static void draw_outputs(struct sbp_reference *reference, int64_t step)
{
    enum { STREAM = 0x5a };
    const struct sbp_graph *graph = &reference->graph;
    const uint64_t of_step = sbp_random_bits_at(reference->rank.seed, STREAM, (uint64_t)step);
    for (int t = 0; t < graph->tensor_count; t++) {
        if (reference->magnitude[t] == NULL)
            continue;
        const int of = is_table(graph, t) ? t : reader_of(graph, t)->weight[0];
        sbp_magnitude_draw(reference->magnitude[t],
                           sbp_random_bits_at(of_step, STREAM, (uint64_t)of));
    }
}

static enum sbp_status open_output(struct sbp_reference *reference, int tensor)
{
    const int64_t *size = reference->graph.tensor[tensor].shape.size;
    const int64_t features = size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
    const int64_t tokens = size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE];
    struct sbp_reference_output *output =
        SBP_NEW(&reference->arena, struct sbp_reference_output, 1);
    reference->output[tensor] = output;
    if (output == NULL)
        return SBP_E_MEMORY;
    const int64_t all = tokens * reference->layers.times;
    output->features = features;
    output->value = SBP_NEW(&reference->arena, double, all *features);
    output->sum = SBP_NEW(&reference->arena, double, all *features);
    output->inherited = SBP_NEW(&reference->arena, double, all);
    return output->value == NULL || output->sum == NULL || output->inherited == NULL ? SBP_E_MEMORY
                                                                                     : SBP_OK;
}

static enum sbp_status open_sizes(struct sbp_reference *reference)
{
    const struct sbp_graph *graph = &reference->graph;
    reference->magnitude = SBP_NEW(&reference->arena, struct sbp_magnitude *, graph->tensor_count);
    reference->output =
        SBP_NEW(&reference->arena, struct sbp_reference_output *, graph->tensor_count);
    if (reference->magnitude == NULL || reference->output == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < graph->tensor_count; t++) {
        if (is_weight(reference, t))
            SBP_TRY(open_magnitude(reference, t));
        else if (is_output(graph, t) || is_split_input(graph, t))
            SBP_TRY(open_output(reference, t));
    }
    return SBP_OK;
}

static enum sbp_status open_delayed(struct sbp_reference *reference, const struct sbp_step *step)
{
    const struct sbp_graph *graph = &reference->graph;
    int64_t *elements = SBP_NEW(&reference->arena, int64_t, graph->tensor_count + 1);
    if (elements == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < graph->tensor_count; t++) {
        const int buffer = reference->program->weight_buffer[t];
        elements[t] = buffer < 0 ? 0 : reference->program->buffer[buffer].elements;
    }
    return sbp_delayed_open(&reference->delayed, step, elements, graph->tensor_count);
}

static void turn_to(struct sbp_reference *reference, int piece)
{
    const struct sbp_reference_piece *at = &reference->piece[piece];
    reference->program = &at->program;
    reference->shadow_program = &at->shadow_program;
    reference->rank.arena = &at->layout;
    reference->shadow.arena = &at->shadow_layout;
    sbp_rank_turn(&reference->rank, 0);
    sbp_rank_turn(&reference->shadow, 0);
}

/* The layout that needs the most memory, which all pieces take in turn. */
static const struct sbp_stage_layout *largest_layout(const struct sbp_reference *reference,
                                                     bool shadow)
{
    const struct sbp_stage_layout *largest = NULL;
    for (int i = 0; i < reference->layers.pieces; i++) {
        const struct sbp_reference_piece *piece = &reference->piece[i];
        const struct sbp_stage_layout *layout = shadow ? &piece->shadow_layout : &piece->layout;
        if (largest == NULL || layout->bytes > largest->bytes)
            largest = layout;
    }
    return largest;
}

/* Host memory and host kernels, whatever the run's device is. */
static enum sbp_status open_ranks(struct sbp_reference *reference, uint64_t seed,
                                  struct sbp_diag *diag)
{
    const struct sbp_device_ops *device = sbp_device("cpu", diag);
    if (device == NULL)
        return SBP_E_UNSUPPORTED;
    for (int i = 0; i < reference->layers.pieces; i++) {
        struct sbp_reference_piece *piece = &reference->piece[i];
        SBP_TRY(sbp_stage_layout_alone(&piece->program, &reference->arena, &piece->layout, diag));
        SBP_TRY(sbp_stage_layout_alone(&piece->shadow_program, &reference->arena,
                                       &piece->shadow_layout, diag));
    }
    SBP_TRY(sbp_rank_open(&reference->rank, largest_layout(reference, false), device, SBP_F64, seed,
                          0, NULL, diag));
    SBP_TRY(sbp_rank_open(&reference->shadow, largest_layout(reference, true), device, SBP_F32,
                          seed, 0, NULL, diag));
    turn_to(reference, 0);
    return SBP_OK;
}

/* Elements of what comes into a piece; 0: the model begins there. */
static int64_t boundary_elements(const struct sbp_reference *reference, int piece)
{
    const int op = reference->layers.first[piece];
    if (piece == 0)
        return 0;
    const struct sbp_graph *graph = &reference->graph;
    const int64_t *size = graph->tensor[sbp_stages_crossing(graph, op)].shape.size;
    return size[0] * size[1] * size[2] * size[3];
}

static int64_t most_boundary_elements(const struct sbp_reference *reference)
{
    int64_t most = 0;
    for (int i = 1; i < reference->layers.pieces; i++)
        most = boundary_elements(reference, i) > most ? boundary_elements(reference, i) : most;
    return most;
}

static enum sbp_status open_boundaries(struct sbp_reference *reference)
{
    const size_t most = (size_t)most_boundary_elements(reference);
    for (int i = 1; i < reference->layers.pieces; i++) {
        struct sbp_reference_piece *piece = &reference->piece[i];
        const size_t elements = (size_t)boundary_elements(reference, i);
        piece->in = calloc(elements, sizeof *piece->in);
        piece->shadow_in = calloc(elements, sizeof *piece->shadow_in);
        if (piece->in == NULL || piece->shadow_in == NULL)
            return SBP_E_MEMORY;
    }
    reference->back = calloc(most + 1, sizeof *reference->back);
    reference->shadow_back = calloc(most + 1, sizeof *reference->shadow_back);
    return reference->back == NULL || reference->shadow_back == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Graph and programs, without memory for the values in them. */
static enum sbp_status prepare(struct sbp_reference *reference, const struct sbp_reference_of *of,
                               struct sbp_diag *diag)
{
    struct sbp_arena *arena = &reference->arena;
    struct sbp_layers *layers = &reference->layers;
    const int64_t batch = of->graph->global_batch;
    reference->is_sampled = of->is_sampled;
    SBP_TRY(of->is_sampled
                ? sbp_layers_make(of->graph, of->step, arena, layers)
                : sbp_layers_whole(of->graph,
                                   delays(of->step) ? batch / of->step->micro_batches : batch,
                                   arena, layers));
    reference->piece = SBP_NEW(arena, struct sbp_reference_piece, layers->pieces);
    if (reference->piece == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_cut_graph(of->graph, layers->rows, arena, &reference->graph, diag));
    reference->graph.training = (struct sbp_training){.update = {.optimizer = SBP_SGD}};
    return compile(reference, of->cluster, diag);
}

enum sbp_status sbp_reference_open(struct sbp_reference *reference,
                                   const struct sbp_reference_of *of, struct sbp_diag *diag)
{
    const double u = sbp_real_roundoff(sbp_real_wide(of->real));
    *reference = (struct sbp_reference){
        .scale = hypot(u, 0x1p-53) / 0x1p-24, .real = of->real, .loss_scale = 1};
    enum sbp_status status = prepare(reference, of, diag);
    if (status == SBP_OK)
        status = open_ranks(reference, of->seed, diag);
    if (status == SBP_OK)
        status = open_sizes(reference);
    if (status == SBP_OK)
        status = open_boundaries(reference);
    if (status == SBP_OK && delays(of->step) && !of->is_sampled)
        status = open_delayed(reference, of->step);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory for the reference of the verification");
    if (status != SBP_OK)
        sbp_reference_close(reference);
    return status;
}

void sbp_reference_close(struct sbp_reference *reference)
{
    for (int t = 0; reference->magnitude != NULL && t < reference->graph.tensor_count; t++)
        if (reference->magnitude[t] != NULL)
            sbp_magnitude_close(reference->magnitude[t]);
    sbp_delayed_close(&reference->delayed);
    sbp_rank_close(&reference->rank);
    sbp_rank_close(&reference->shadow);
    for (int i = 0; reference->piece != NULL && i < reference->layers.pieces; i++) {
        sbp_program_free(&reference->piece[i].program);
        sbp_program_free(&reference->piece[i].shadow_program);
        free(reference->piece[i].in);
        free(reference->piece[i].shadow_in);
    }
    free(reference->back);
    free(reference->shadow_back);
    sbp_arena_free(&reference->arena);
    *reference = (struct sbp_reference){0};
}

/* Sizes that bounds are made of, and outputs with theirs. */
static double tensor_bytes(const struct sbp_reference *reference, int tensor, bool delays)
{
    const struct sbp_graph *graph = &reference->graph;
    const int64_t *size = graph->tensor[tensor].shape.size;
    const double elements = (double)(size[0] * size[1]) * (double)(size[2] * size[3]);
    const struct sbp_magnitude_of of = magnitude_of(reference, tensor);
    if (is_weight(reference, tensor))
        return sbp_magnitude_bytes(&of) + (delays ? sbp_delayed_bytes(elements) : 0);
    if (!is_output(graph, tensor) && !is_split_input(graph, tensor))
        return 0;
    return (double)reference->layers.times * /* value, sum, inherited */
           (2 * elements + (double)(size[0] * size[1])) * sizeof(double);
}

/* The largest arenas of a piece, and what crosses between pieces. */
static double arena_bytes(const struct sbp_reference *reference)
{
    double wide = 0, narrow = 0, crossing = (double)most_boundary_elements(reference);
    for (int i = 0; i < reference->layers.pieces; i++) {
        wide = fmax(wide, (double)reference->piece[i].program.arena_bytes);
        narrow = fmax(narrow, (double)reference->piece[i].shadow_program.arena_bytes);
        crossing += (double)boundary_elements(reference, i);
    }
    return wide + narrow + crossing * (sizeof(double) + sizeof(float));
}

static double passing_bytes(const struct sbp_reference *reference)
{
    double most = 0;
    for (int i = 0; i < reference->layers.pieces; i++) {
        const struct sbp_program *program = &reference->piece[i].program;
        for (int k = 0; k < program->instr_count; k++)
            most = fmax(
                most, sbp_magnitude_note_bytes(program, &program->instr[k], reference->is_sampled));
    }
    return most;
}

enum sbp_status sbp_reference_bytes(const struct sbp_reference_of *of, double *bytes,
                                    struct sbp_diag *diag)
{
    struct sbp_reference reference = {0};
    const enum sbp_status status = prepare(&reference, of, diag);
    if (status == SBP_OK) {
        *bytes = arena_bytes(&reference) + passing_bytes(&reference);
        for (int t = 0; t < reference.graph.tensor_count; t++)
            *bytes += tensor_bytes(&reference, t, delays(of->step) && !of->is_sampled);
    } else if (status == SBP_E_MEMORY) {
        sbp_fail(diag, status, "out of memory for the reference of the verification");
    }
    sbp_reference_close(&reference);
    return status;
}

void sbp_reference_begin_step(struct sbp_reference *reference)
{
    if (reference->delayed.step != NULL)
        sbp_delayed_begin_step(&reference->delayed);
}

/* What an operator reads, in double and single precision. */
static double *read_weight(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program->weight_buffer[tensor]);
}

static float *read_shadow_weight(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->shadow, reference->shadow_program->weight_buffer[tensor]);
}

double *sbp_reference_weight(struct sbp_reference *reference, int tensor)
{
    return reference->delayed.step != NULL ? reference->delayed.newest[tensor]
                                           : read_weight(reference, tensor);
}

float *sbp_reference_shadow_weight(struct sbp_reference *reference, int tensor)
{
    return reference->delayed.step != NULL ? NULL : read_shadow_weight(reference, tensor);
}

static const double *gradient_of(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program->gradient_buffer[tensor]);
}

int64_t sbp_reference_place(const struct sbp_reference *reference, int tensor, int64_t index)
{
    return sbp_magnitude_place(reference->magnitude[tensor], index);
}

const double *sbp_reference_gradient(struct sbp_reference *reference, int tensor)
{
    if (reference->is_sampled)
        return reference->magnitude[tensor]->gradient;
    return reference->delayed.step != NULL ? reference->delayed.gradient[tensor]
                                           : gradient_of(reference, tensor);
}

double sbp_reference_sum(const struct sbp_reference *reference, int tensor, int64_t place)
{
    return reference->delayed.step != NULL ? reference->delayed.sum[tensor][place]
                                           : reference->magnitude[tensor]->sum[place];
}

double sbp_reference_inherited(const struct sbp_reference *reference, int tensor, int64_t place)
{
    if (reference->delayed.step == NULL)
        return sbp_magnitude_inherited(reference->magnitude[tensor], place);
    return reference->delayed.inherited[tensor][place];
}

/* ---- a step -------------------------------------------------------------------------------- */

static struct sbp_lockstep lockstep(struct sbp_reference *reference)
{
    const bool half = sbp_real_bytes(reference->real) == 2;
    return (struct sbp_lockstep){
        .exact = &reference->rank,
        .shadow = &reference->shadow,
        .scale = reference->scale,
        .either = half ? EITHER_HALF : EITHER,
        .by_feature = half,
        .magnitude = reference->magnitude,
        .adds = reference->is_sampled,
        .share = reference->is_sampled ? 1 / (double)reference->layers.times : 1};
}

/* Terms of the mean loss: log sum exp(z - max) and target - max, each with the rounding of the
 * logits that it is made of; the sum of exponentials adds 1 (its relative error is an absolute one
 * of its logarithm). A token's loss has the gradient p - onehot in its logits, whose square is at
 * most 2: that times the logits' variance is what it inherits. */
static enum sbp_status note_loss(struct sbp_reference *reference, const struct sbp_instr *instr)
{
    struct sbp_rank *rank = &reference->rank;
    const struct sbp_lockstep both = lockstep(reference);
    const double *maxima = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    const double *sums = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED2]);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    double *variance = malloc((size_t)tokens * sizeof *variance);
    double sum = 0, inherited = 0;
    if (variance == NULL)
        return SBP_E_MEMORY;
    sbp_magnitude_token_variance(&both, instr, SBP_AT_IN, variance);
    for (int64_t t = 0; t < tokens; t++) {
        sum += 1 + fabs(log(sums[2 * t])) + fabs(sums[2 * t + 1]) + fabs(maxima[t]);
        inherited += 2 * variance[t];
    }
    free(variance);
    const double all = (double)(tokens * reference->layers.times);
    reference->loss_sum += sum / all;
    reference->loss_inherited = hypot(reference->loss_inherited, sqrt(inherited) / all);
    return SBP_OK;
}

/* A product on absolute values: |x| |w| + |bias|, or backward |dy| |w|^T. */
static void absolute_product(struct sbp_reference *reference, const struct sbp_instr *instr,
                             double *const *operand, double *sum)
{
    const struct sbp_rank *rank = &reference->rank;
    const struct sbp_kernels *k = rank->kernels;
    const bool transposed = reference->graph.op[instr->op].transposed_weight;
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_OUT);
    const int64_t to = sbp_rank_features(rank, instr, SBP_AT_OUT);
    const int64_t from = sbp_rank_features(rank, instr, forward ? SBP_AT_IN : SBP_AT_DY);
    if (forward)
        (transposed ? k->linear_transposed_forward
                    : k->linear_forward)(sum, operand[0], operand[1], operand[2], tokens, from, to);
    else
        (transposed ? k->linear_transposed_backward_input
                    : k->linear_backward_input)(sum, operand[0], operand[1], tokens, to, from);
}

static enum sbp_status product_sum(struct sbp_reference *reference, const struct sbp_instr *instr,
                                   double *sum)
{
    struct sbp_rank *rank = &reference->rank;
    const int place[3] = {instr->kind == SBP_INSTR_FORWARD ? SBP_AT_IN : SBP_AT_DY, SBP_AT_W,
                          SBP_AT_W2};
    double *absolute[3] = {NULL, NULL, NULL};
    enum sbp_status status = SBP_OK;
    for (int i = 0; i < 3 && status == SBP_OK; i++) {
        const int buffer = instr->buffer[place[i]];
        if (buffer < 0)
            continue;
        const int64_t elements = rank->program->buffer[buffer].elements;
        absolute[i] = malloc((size_t)elements * sizeof(double));
        if (absolute[i] == NULL) {
            status = SBP_E_MEMORY;
        } else {
            memcpy(absolute[i], sbp_rank_buffer(rank, buffer), (size_t)elements * sizeof(double));
            rank->kernels->absolute(absolute[i], elements);
        }
    }
    if (status == SBP_OK)
        absolute_product(reference, instr, absolute, sum);
    for (int i = 0; i < 3; i++)
        free(absolute[i]);
    return status;
}

/* Keeps a value that the step ends with. Where it is no product, it counts as its only term. */
static enum sbp_status keep_output(struct sbp_reference *reference, const struct sbp_instr *instr,
                                   struct sbp_reference_output *output)
{
    struct sbp_rank *rank = &reference->rank;
    const struct sbp_lockstep both = lockstep(reference);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_OUT);
    const size_t bytes = (size_t)(tokens * output->features) * sizeof(double);
    const bool product = instr->op >= 0 && reference->graph.op[instr->op].kind == SBP_OP_LINEAR &&
                         (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD);
    const int64_t first = rank->micro_batch * tokens;
    double *const value = output->value + first * output->features;
    double *const sum = output->sum + first * output->features;
    memcpy(value, sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]), bytes);
    sbp_magnitude_token_variance(&both, instr, SBP_AT_OUT, output->inherited + first);
    for (int64_t t = first; t < first + tokens; t++)
        output->inherited[t] = sqrt(output->inherited[t]);
    const int from = instr->kind == SBP_INSTR_FORWARD ? SBP_AT_IN : SBP_AT_DY;
    output->terms = (double)(product ? sbp_rank_features(rank, instr, from) : output->features);
    if (product)
        return product_sum(reference, instr, sum);
    memcpy(sum, value, bytes);
    rank->kernels->absolute(sum, tokens * output->features);
    return SBP_OK;
}

static enum sbp_status note_sizes(struct sbp_reference *reference, int index)
{
    const struct sbp_program *program = reference->program;
    const struct sbp_instr *instr = &program->instr[index];
    const struct sbp_lockstep both = lockstep(reference);
    const int out = instr->buffer[SBP_AT_OUT];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    if (tensor >= 0 && reference->output[tensor] != NULL &&
        sbp_reference_end_instr(program, tensor) == index)
        return keep_output(reference, instr, reference->output[tensor]);
    if (instr->kind != SBP_INSTR_BACKWARD)
        return SBP_OK;
    if (reference->graph.op[instr->op].kind == SBP_OP_CROSS_ENTROPY)
        return note_loss(reference, instr);
    return sbp_magnitude_note(&both, instr);
}

/* The shadow needs no parameter gradients, only what flows on. */
static bool shadow_needs(const struct sbp_instr *instr)
{
    return instr->kind != SBP_INSTR_BACKWARD || instr->buffer[SBP_AT_OUT] >= 0;
}

/* Rounds as the run stores: gradients with their loss scale. */
static void round_shadow(const struct sbp_reference *reference, float *x, int64_t n, double scale)
{
    enum { PIECE = 512 };
    const struct sbp_kernels *half = sbp_kernels_cpu(reference->real);
    uint16_t stored[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = n - i < PIECE ? n - i : PIECE;
        reference->shadow.kernels->scale(x + i, scale, count);
        half->from_wide(stored, x + i, count);
        half->to_wide(x + i, stored, count);
        reference->shadow.kernels->scale(x + i, 1 / scale, count);
    }
}

/* What an instruction leaves in tensors; statistics are not rounded. */
static void round_results(struct sbp_reference *reference, const struct sbp_instr *instr)
{
    static const int places[] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3, SBP_AT_SAVED};
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    for (int i = 0; i < 4 && sbp_real_bytes(reference->real) == 2; i++) {
        const int at = instr->buffer[places[i]];
        const struct sbp_buffer *buffer = reference->shadow_program->buffer + (at < 0 ? 0 : at);
        if (at >= 0 && buffer->type == SBP_BUFFER_REAL && (forward || places[i] != SBP_AT_SAVED))
            round_shadow(reference, sbp_rank_buffer(&reference->shadow, at), buffer->elements,
                         forward ? 1 : reference->loss_scale);
    }
}

static bool bends(enum sbp_op_kind kind)
{
    return kind == SBP_OP_RELU || kind == SBP_OP_GELU;
}

/* An instruction without the gradients of weights, of which a sample is formed elsewhere
 * (sbp_magnitude_note). False: then there is nothing left to do. */
static bool leave_gradients(const struct sbp_instr *instr, struct sbp_instr *rest)
{
    *rest = *instr;
    rest->buffer[SBP_AT_DW] = rest->buffer[SBP_AT_DW2] = -1;
    return instr->kind != SBP_INSTR_BACKWARD || instr->buffer[SBP_AT_DW] < 0 ||
           instr->buffer[SBP_AT_OUT] >= 0;
}

/* In both precisions. */
static enum sbp_status execute(struct sbp_reference *reference, const struct sbp_instr *instr,
                               struct sbp_diag *diag)
{
    struct sbp_instr rest;
    if (reference->is_sampled && !leave_gradients(instr, &rest))
        return SBP_OK;
    const struct sbp_instr *what = reference->is_sampled ? &rest : instr;
    SBP_TRY(sbp_rank_execute(&reference->rank, what, diag));
    if (!shadow_needs(instr))
        return SBP_OK;
    SBP_TRY(sbp_rank_execute(&reference->shadow, what, diag));
    round_results(reference, instr);
    return SBP_OK;
}

static enum sbp_status run_instr(struct sbp_reference *reference, int index, struct sbp_diag *diag)
{
    const struct sbp_instr *instr = &reference->program->instr[index];
    const struct sbp_lockstep both = lockstep(reference);
    enum sbp_status status = SBP_OK;
    if (instr->kind == SBP_INSTR_FORWARD && bends(reference->graph.op[instr->op].kind))
        status = sbp_magnitude_bend_shadow(&both, instr);
    SBP_TRY(execute(reference, instr, diag));
    if (status == SBP_OK)
        status = note_sizes(reference, index);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "out of memory for the verification");
}

/* Between pieces: what one sends lies where another one receives it. */
static void hand_on(struct sbp_reference *reference, int piece, const struct sbp_instr *instr)
{
    const bool sends = instr->kind == SBP_INSTR_SEND;
    const bool forward = instr->section == SBP_SECTION_FORWARD;
    const struct sbp_reference_piece *to = &reference->piece[piece + (sends ? 1 : 0)];
    double *const wide = forward ? to->in : reference->back;
    float *const narrow = forward ? to->shadow_in : reference->shadow_back;
    const int buffer = instr->buffer[sends ? SBP_AT_IN : SBP_AT_OUT];
    const size_t elements = (size_t)reference->program->buffer[buffer].elements;
    double *const exact = sbp_rank_buffer(&reference->rank, buffer);
    float *const shadow = sbp_rank_buffer(&reference->shadow, buffer);
    memcpy(sends ? wide : exact, sends ? exact : wide, elements * sizeof *wide);
    memcpy(sends ? narrow : shadow, sends ? shadow : narrow, elements * sizeof *narrow);
}

/* Gives an operator the weights that the recurrence says. */
static void load_weights(struct sbp_reference *reference, int op)
{
    const struct sbp_op_node *node = &reference->graph.op[op];
    const struct sbp_rank *rank = &reference->rank;
    for (int w = 0; w < node->weight_count; w++) {
        const int tensor = node->weight[w];
        const double *from =
            sbp_delayed_weight(&reference->delayed, rank->step, rank->micro_batch, op, tensor);
        double *const exact = read_weight(reference, tensor);
        float *const shadow = read_shadow_weight(reference, tensor);
        const int64_t elements =
            reference->program->buffer[reference->program->weight_buffer[tensor]].elements;
        for (int64_t i = 0; i < elements; i++) {
            exact[i] = from[i];
            shadow[i] = (float)from[i];
        }
    }
}

/* Adds a micro-batch to the gradients, and to their sizes. Its errors may be those of others, since
 * all read the same weights. */
static void add_gradients(struct sbp_reference *reference)
{
    struct sbp_delayed *const delayed = &reference->delayed;
    const bool first = reference->rank.micro_batch == 0;
    for (int t = 0; t < delayed->tensors; t++) {
        const int64_t elements =
            delayed->gradient[t] == NULL
                ? 0
                : reference->program->buffer[reference->program->weight_buffer[t]].elements;
        const double *gradient = elements > 0 ? gradient_of(reference, t) : NULL;
        for (int64_t i = 0; i < elements; i++) {
            const double inherited = sbp_magnitude_inherited(reference->magnitude[t], i);
            const double before = first ? -1 : delayed->inherited[t][i];
            delayed->gradient[t][i] = (first ? 0 : delayed->gradient[t][i]) + gradient[i];
            delayed->sum[t][i] = (first ? 0 : delayed->sum[t][i]) + reference->magnitude[t]->sum[i];
            delayed->inherited[t][i] = inherited < 0 ? before : fmax(before, 0) + inherited;
        }
    }
}

/* An instruction at its place between others. */
static enum sbp_status run_at(struct sbp_reference *reference, int piece, int index,
                              struct sbp_diag *diag)
{
    const struct sbp_instr *instr = &reference->program->instr[index];
    sbp_post_pulse(reference->post);
    if (reference->delayed.step != NULL && instr->op >= 0)
        load_weights(reference, instr->op);
    if (instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_RECEIVE) {
        hand_on(reference, piece, instr);
        return SBP_OK;
    }
    return instr->kind == SBP_INSTR_UPDATE ? SBP_OK : run_instr(reference, index, diag);
}

static enum sbp_status visit_piece(void *context, const struct sbp_visit *visit,
                                   struct sbp_diag *diag)
{
    struct sbp_reference *const reference = context;
    const struct sbp_task task = {.work = SBP_WORK_FORWARD, .micro_batch = (int)visit->micro_batch};
    turn_to(reference, visit->piece);
    if (reference->is_sampled)
        SBP_TRY(reference->fetch(reference->fetch_context, visit, diag));
    SBP_TRY(sbp_rank_begin_work(&reference->rank, &task, diag));
    SBP_TRY(sbp_rank_begin_work(&reference->shadow, &task, diag));
    for (int i = 0; i < reference->program->instr_count; i++)
        if (visit->goes_back || reference->program->instr[i].section == SBP_SECTION_FORWARD)
            SBP_TRY(run_at(reference, visit->piece, i, diag));
    if (reference->delayed.step != NULL)
        add_gradients(reference);
    return visit->goes_back ? sbp_rank_end_work(&reference->rank, &task, diag) : SBP_OK;
}

enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag)
{
    sbp_rank_begin_step(&reference->rank, step);
    sbp_rank_begin_step(&reference->shadow, step);
    reference->loss_sum = reference->loss_inherited = 0;
    if (reference->is_sampled)
        draw_outputs(reference, step);
    SBP_TRY(sbp_layers_visit(&reference->layers, visit_piece, reference, diag));
    turn_to(reference, reference->layers.pieces - 1); /* which has the loss */
    reference->loss = sbp_rank_loss(&reference->rank);
    return SBP_OK;
}
