#include "executor/verify/reference_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/program/cut.h"
#include "costmodel/program/stages.h"
#include "executor/rank/mixture.h"
#include "executor/verify/norm_groups_priv.h"
#include "executor/verify/shadows_priv.h"

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

/* ---- mixtures ------------------------------------------------------------------------------- */

int64_t sbp_reference_choices(const struct sbp_reference *reference, int op)
{
    const struct sbp_op_node *node = &reference->graph.op[op];
    const int64_t *size = reference->graph.tensor[node->input[0]].shape.size;
    return reference->layers.times * size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE] * node->moe.top_k;
}

/* Slots of all experts for the tokens of all ranks, which each have as many as the run's rank has:
 * a rank rounds up the number of its own. */
static double capacity_of(const struct sbp_graph *graph, int op, const struct sbp_step *step)
{
    const struct sbp_op_node *node = &graph->op[op];
    const int64_t *size = graph->tensor[node->input[0]].shape.size;
    int piece = 0;
    while (sbp_step_program(step, piece)->scope.end_op <= op)
        piece++;
    const struct sbp_rank_mixture of_rank =
        sbp_rank_mixture_of(sbp_step_program(step, piece), op, 0);
    const double tokens = (double)(size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE]);
    const double share = tokens * (double)node->moe.top_k / (double)of_rank.tokens.experts;
    return tokens / (double)of_rank.tokens.tokens * (double)of_rank.tokens.capacity / share;
}

/* Gives a graph's mixtures room for all copies that the run's ranks keep. */
static enum sbp_status widen_mixtures(struct sbp_graph *graph, const struct sbp_step *step,
                                      struct sbp_arena *arena)
{
    struct sbp_op_node *nodes = SBP_NEW(arena, struct sbp_op_node, graph->op_count);
    if (nodes == NULL)
        return SBP_E_MEMORY;
    memcpy(nodes, graph->op, (size_t)graph->op_count * sizeof *nodes);
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_MOE)
            nodes[op].moe.capacity = capacity_of(graph, op, step);
    graph->op = nodes;
    return SBP_OK;
}

static enum sbp_status open_choices(struct sbp_reference *reference)
{
    const struct sbp_graph *graph = &reference->graph;
    int64_t most = 1;
    reference->given.table = SBP_NEW(&reference->arena, int32_t *, graph->op_count);
    if (reference->given.table == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++) {
        if (graph->op[op].kind != SBP_OP_MOE)
            continue;
        const int64_t experts = graph->tensor[graph->op[op].weight[0]].shape.size[SBP_DIM_OUT];
        most = experts > most ? experts : most;
        reference->given.table[op] =
            SBP_NEW(&reference->arena, int32_t, 2 * sbp_reference_choices(reference, op));
        if (reference->given.table[op] == NULL)
            return SBP_E_MEMORY;
    }
    reference->taken = SBP_NEW(&reference->arena, int32_t, most);
    reference->rank.given = reference->shadow.given = &reference->given;
    return reference->taken == NULL ? SBP_E_MEMORY : SBP_OK;
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

/* The inputs of compiling the pieces. */
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
            if (graph->op[op].weight[w] == tensor &&
                (graph->op[op].kind == SBP_OP_EMBEDDING ||
                 (graph->op[op].kind == SBP_OP_PATCH_EMBEDDING && w > 0 &&
                  w == graph->op[op].positions)))
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

/* Biases of experts, one behind the other in a tensor. */
static bool has_experts_biases(const struct sbp_graph *graph, const struct sbp_op_node *reader,
                               int tensor)
{
    return reader != NULL && reader->kind == SBP_OP_MOE && sbp_rank_biases_experts(graph, reader) &&
           tensor == reader->weight[3];
}

/* Both products of experts, and their biases. */
static int64_t blocks_of(const struct sbp_graph *graph, const struct sbp_op_node *reader,
                         int tensor)
{
    const bool experts = reader != NULL && reader->kind == SBP_OP_MOE &&
                         (tensor == reader->weight[1] || tensor == reader->weight[2]);
    return experts || has_experts_biases(graph, reader, tensor)
               ? graph->tensor[tensor].shape.size[0]
               : 1;
}

static struct sbp_magnitude_of magnitude_of(const struct sbp_reference *reference, int tensor)
{
    const struct sbp_graph *graph = &reference->graph;
    const struct sbp_op_node *reader = reader_of(graph, tensor);
    return (struct sbp_magnitude_of){
        .shape = &graph->tensor[tensor].shape,
        .blocks = blocks_of(graph, reader, tensor),
        .by_row = is_table(graph, tensor),
        .is_sampled = reference->is_sampled,
        .key = is_table(graph, tensor) || reader == NULL ? tensor : reader->weight[0],
        .keeps_all =
            reader != NULL &&
            (sbp_op_norm_sums(reader->kind) > 0 || reader->kind == SBP_OP_HEAD_NORM ||
             reader->kind == SBP_OP_GROUPED_ATTENTION || reader->kind == SBP_OP_BATCHNORM ||
             has_experts_biases(graph, reader, tensor) ||
             (reader->class_token > 0 && reader->weight[reader->class_token] == tensor))};
}

static enum sbp_status open_magnitude(struct sbp_reference *reference, int tensor)
{
    struct sbp_magnitude *magnitude = SBP_NEW(&reference->arena, struct sbp_magnitude, 1);
    const struct sbp_magnitude_of of = magnitude_of(reference, tensor);
    reference->magnitude[tensor] = magnitude;
    return magnitude == NULL ? SBP_E_MEMORY : sbp_magnitude_open(magnitude, &of);
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
    sbp_reference_turn(reference, 0);
    return SBP_OK;
}

/* Batch normalisation by the run's members and micro-batches; without a step all rows are one. */
static enum sbp_status open_groups(struct sbp_reference *reference, const struct sbp_step *step)
{
    if (step == NULL || !sbp_norm_groups_has(&reference->graph))
        return SBP_OK;
    reference->rank.groups = reference->shadow.groups = &reference->groups;
    return sbp_norm_groups_make(&reference->graph, step, &reference->arena, &reference->groups);
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
    if (of->step != NULL)
        SBP_TRY(widen_mixtures(&reference->graph, of->step, arena));
    reference->graph.training = (struct sbp_training){.update = {.optimizer = SBP_SGD}};
    return compile(reference, of->cluster, diag);
}

static bool sums_panels(const struct sbp_program *program)
{
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].kind == SBP_INSTR_INNER &&
            program->instr[i].box.kind == SBP_BROADCAST_COLL)
            return true;
    return false;
}

/* The factor on the variance that the shadow measures. SUMMA rounds to 16 bits behind each panel;
 * one device rounds once, at the end. 2 is by measurement, on grids of 4 and 8. */
static double variances_of(const struct sbp_reference_of *of)
{
    if (of->step == NULL || sbp_real_bytes(of->real) != 2)
        return 1;
    for (int p = 0; p < of->step->program_count; p++)
        if (sums_panels(&of->step->program[p]))
            return 2;
    return 1;
}

/* Whether several shadows measure round-off. */
static bool has_shadows(const struct sbp_reference_of *of)
{
    return sbp_real_bytes(of->real) == 2 && !of->is_sampled;
}

enum sbp_status sbp_reference_open(struct sbp_reference *reference,
                                   const struct sbp_reference_of *of, struct sbp_diag *diag)
{
    const double u = sbp_real_roundoff(sbp_real_wide(of->real));
    *reference =
        (struct sbp_reference){.scale = sqrt(variances_of(of)) * hypot(u, 0x1p-53) / 0x1p-24,
                               .real = of->real,
                               .loss_scale = 1};
    enum sbp_status status = prepare(reference, of, diag);
    if (status == SBP_OK)
        status = open_ranks(reference, of->seed, diag);
    if (status == SBP_OK)
        status = open_sizes(reference);
    if (status == SBP_OK)
        status = open_groups(reference, of->step);
    if (status == SBP_OK)
        status = open_boundaries(reference);
    if (status == SBP_OK && of->step != NULL)
        status = open_choices(reference);
    if (status == SBP_OK && delays(of->step) && !of->is_sampled)
        status = open_delayed(reference, of->step);
    if (status == SBP_OK && has_shadows(of))
        status = sbp_shadows_open(reference);
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

/* Bytes that the mean of several shadows takes for a tensor. */
static double mean_bytes(const struct sbp_reference *reference, int tensor, bool delays)
{
    const struct sbp_graph *graph = &reference->graph;
    const int64_t *size = graph->tensor[tensor].shape.size;
    const double tokens = (double)(size[0] * size[1]);
    const struct sbp_magnitude_of of = magnitude_of(reference, tensor);
    if (is_weight(reference, tensor))
        return sizeof(double) *
               (delays ? tokens * (double)(size[2] * size[3]) : sbp_magnitude_numbers(&of));
    if (!is_output(graph, tensor) && !is_split_input(graph, tensor))
        return 0;
    return (double)reference->layers.times * tokens * sizeof(double);
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

/* Bytes of the product of absolute values that a step ends with. */
static double product_bytes(const struct sbp_program *program, int index)
{
    const struct sbp_instr *instr = &program->instr[index];
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const int out = instr->buffer[SBP_AT_OUT], weight = instr->buffer[SBP_AT_W];
    const int from = instr->buffer[forward ? SBP_AT_IN : SBP_AT_DY];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    if (tensor < 0 || from < 0 || weight < 0 || sbp_reference_end_instr(program, tensor) != index)
        return 0;
    return (double)(program->buffer[from].elements + program->buffer[weight].elements) *
           sizeof(double);
}

static double passing_bytes(const struct sbp_reference *reference)
{
    double most = 0;
    for (int i = 0; i < reference->layers.pieces; i++) {
        const struct sbp_program *program = &reference->piece[i].program;
        for (int k = 0; k < program->instr_count; k++)
            most = fmax(most, fmax(product_bytes(program, k),
                                   sbp_magnitude_note_bytes(program, &program->instr[k],
                                                            reference->is_sampled)));
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
            *bytes += tensor_bytes(&reference, t, delays(of->step) && !of->is_sampled) +
                      (has_shadows(of) ? mean_bytes(&reference, t, delays(of->step)) : 0);
        for (int op = 0; op < reference.graph.op_count; op++)
            if (reference.graph.op[op].kind == SBP_OP_MOE)
                *bytes += 2 * sizeof(int32_t) * (double)sbp_reference_choices(&reference, op);
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

void sbp_reference_turn(struct sbp_reference *reference, int piece)
{
    const struct sbp_reference_piece *at = &reference->piece[piece];
    reference->program = &at->program;
    reference->shadow_program = &at->shadow_program;
    reference->rank.arena = &at->layout;
    reference->shadow.arena = &at->shadow_layout;
    sbp_rank_turn(&reference->rank, 0);
    sbp_rank_turn(&reference->shadow, 0);
}

double *sbp_reference_weight(struct sbp_reference *reference, int tensor)
{
    return reference->delayed.step != NULL ? reference->delayed.newest[tensor]
                                           : sbp_reference_read(reference, tensor);
}

float *sbp_reference_shadow_weight(struct sbp_reference *reference, int tensor)
{
    return reference->delayed.step != NULL ? NULL : sbp_reference_read_shadow(reference, tensor);
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
                                           : sbp_reference_formed(reference, tensor);
}

double sbp_reference_sum(const struct sbp_reference *reference, int tensor, int64_t place)
{
    return reference->delayed.step != NULL ? reference->delayed.sum[tensor][place]
                                           : reference->magnitude[tensor]->sum[place];
}

/* Rows of a sample that give a weight its gradient: tokens, or places of an image. */
static double rows_of(const struct sbp_graph *graph, const struct sbp_op_node *reader)
{
    const int64_t *size = graph->tensor[reader->output].shape.size;
    const bool image = reader->kind == SBP_OP_CONV2D || reader->kind == SBP_OP_BATCHNORM;
    return (double)size[SBP_DIM_SEQUENCE] * (image ? (double)size[SBP_DIM_INNER] : 1);
}

double sbp_reference_terms(const struct sbp_reference *reference, int tensor)
{
    const struct sbp_graph *graph = &reference->graph;
    const struct sbp_op_node *reader = reader_of(graph, tensor);
    const double rows = (double)graph->global_batch * rows_of(graph, reader);
    const double experts = (double)blocks_of(graph, reader, tensor);
    return experts > 1 ? fmax(1, rows * (double)reader->moe.top_k / experts) : rows;
}

double sbp_reference_inherited(const struct sbp_reference *reference, int tensor, int64_t place)
{
    if (reference->delayed.step == NULL)
        return sbp_magnitude_inherited(reference->magnitude[tensor], place);
    return reference->delayed.inherited[tensor][place];
}
