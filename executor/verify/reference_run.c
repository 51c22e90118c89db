/* A step of the reference, instruction by instruction beside its shadow. */
#include "executor/verify/reference_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "executor/rank/mixture.h"
#include "executor/verify/judge_priv.h"
#include "executor/verify/lone_keys_priv.h"

enum { STREAM_OUTPUTS = 0x5a }; /* of what a sample keeps */

/* With 16 bits many inputs of a relu are close to 0, and all of them as far as 8 deviations would
 * hide what is wrong. */
static const double EITHER = 8, EITHER_HALF = 5;

enum { PIECE = 512 }; /* elements that are rounded at a time */

/* Each shadow divides the grid of 16 bits by its own; the first one rounds as the run does. */
static const float STRETCH[SBP_SHADOWS] = {1, 0.94F, 0.87F, 0.81F, 0.76F};

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
        .share = reference->is_sampled ? 1 / (double)reference->layers.times : 1,
        .correlates = reference->shadow_number > 0};
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
        if (sums[2 * t] == 0)
            continue; /* the token is ignored */
        sum += 1 + fabs(log(sums[2 * t])) + fabs(sums[2 * t + 1]) + fabs(maxima[t]);
        inherited += 2 * variance[t];
    }
    free(variance);
    const double all = (double)(tokens * reference->layers.times);
    reference->loss_sum += sum / all;
    reference->loss_inherited = hypot(reference->loss_inherited, sqrt(inherited) / all);
    return SBP_OK;
}

static void absolute_windows(struct sbp_reference *reference, const struct sbp_instr *instr,
                             double *const *operand, double *sum)
{
    const struct sbp_rank *rank = &reference->rank;
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const struct sbp_windows windows = sbp_rank_windows(
        rank, instr, forward ? SBP_AT_IN : SBP_AT_OUT, forward ? SBP_AT_OUT : SBP_AT_DY);
    const int64_t out =
        reference->graph.tensor[reference->graph.op[instr->op].output].shape.size[SBP_DIM_FEATURE];
    if (forward)
        rank->kernels->conv2d_forward(sum, operand[0], operand[1], operand[2], &windows, out);
    else
        rank->kernels->conv2d_backward_input(sum, operand[0], operand[1], &windows, out);
}

/* A product on absolute values: |x| |w| + |bias|, or backward |dy| |w|^T. */
static void absolute_product(struct sbp_reference *reference, const struct sbp_instr *instr,
                             double *const *operand, double *sum)
{
    const struct sbp_rank *rank = &reference->rank;
    const struct sbp_kernels *k = rank->kernels;
    const bool transposed = reference->graph.op[instr->op].transposed_weight;
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    if (reference->graph.op[instr->op].kind == SBP_OP_CONV2D) {
        absolute_windows(reference, instr, operand, sum);
        return;
    }
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

static bool is_product(const struct sbp_reference *reference, const struct sbp_instr *instr)
{
    return instr->op >= 0 &&
           (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) &&
           (reference->graph.op[instr->op].kind == SBP_OP_LINEAR ||
            reference->graph.op[instr->op].kind == SBP_OP_SUMMA_LINEAR ||
            reference->graph.op[instr->op].kind == SBP_OP_CONV2D);
}

/* Terms that an element of a product sums. */
static double terms_of(const struct sbp_reference *reference, const struct sbp_instr *instr)
{
    const int from = instr->kind == SBP_INSTR_FORWARD ? SBP_AT_IN : SBP_AT_DY;
    const struct sbp_op_node *node = &reference->graph.op[instr->op];
    const int tensor = reference->program->buffer[instr->buffer[from]].tensor;
    if (node->kind != SBP_OP_CONV2D)
        return (double)sbp_rank_features(&reference->rank, instr, from);
    return (double)reference->graph.tensor[tensor].shape.size[SBP_DIM_FEATURE] *
           (double)(node->window.kernel[0] * node->window.kernel[1]);
}

/* Keeps a value that the step ends with. Where it is no product, it counts as its only term. */
static enum sbp_status keep_output(struct sbp_reference *reference, const struct sbp_instr *instr,
                                   struct sbp_reference_output *output)
{
    struct sbp_rank *rank = &reference->rank;
    const struct sbp_lockstep both = lockstep(reference);
    const int64_t tokens = sbp_rank_tokens(rank, instr, SBP_AT_OUT);
    const size_t bytes = (size_t)(tokens * output->features) * sizeof(double);
    const bool product = is_product(reference, instr);
    const int64_t first = rank->micro_batch * tokens;
    double *const value = output->value + first * output->features;
    double *const sum = output->sum + first * output->features;
    memcpy(value, sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]), bytes);
    sbp_magnitude_token_variance(&both, instr, SBP_AT_OUT, output->inherited + first);
    double mean = 0;
    for (int64_t t = first; t < first + tokens; t++)
        mean += output->inherited[t] / (double)tokens;
    for (int64_t t = first; t < first + tokens; t++) /* one sample of a token says too little */
        output->inherited[t] = sqrt(output->inherited[t] + mean);
    output->terms = product ? terms_of(reference, instr) : (double)output->features;
    if (product)
        return product_sum(reference, instr, sum);
    memcpy(sum, value, bytes);
    rank->kernels->absolute(sum, tokens * output->features);
    return SBP_OK;
}

static bool chooses(const struct sbp_reference *reference, const struct sbp_instr *instr)
{
    return reference->judge != NULL && instr->kind == SBP_INSTR_FORWARD && instr->phase == 0 &&
           reference->graph.op[instr->op].kind == SBP_OP_MOE;
}

static enum sbp_status note_sizes(struct sbp_reference *reference, int index)
{
    const struct sbp_program *program = reference->program;
    const struct sbp_instr *instr = &program->instr[index];
    const struct sbp_lockstep both = lockstep(reference);
    const int out = instr->buffer[SBP_AT_OUT];
    const int tensor = out < 0 ? -1 : program->buffer[out].tensor;
    if (chooses(reference, instr))
        SBP_TRY(sbp_judge_choices(reference, &both, instr));
    if (tensor >= 0 && reference->output[tensor] != NULL &&
        sbp_reference_end_instr(program, tensor) == index)
        SBP_TRY(keep_output(reference, instr, reference->output[tensor]));
    if (instr->kind != SBP_INSTR_BACKWARD) /* a norm's forms gradients of weights besides */
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

/* Values of the run's type are kept. Others are rounded on the grid of that type divided by
 * `stretch`, where what was rounded before stays as it is. */
static void round_piece(const struct sbp_kernels *half, float stretch, float *x, int64_t count)
{
    float nearest[PIECE], other[PIECE];
    uint16_t stored[PIECE];
    for (int64_t i = 0; i < count; i++)
        other[i] = x[i] * stretch;
    half->from_wide(stored, x, count);
    half->to_wide(nearest, stored, count);
    half->from_wide(stored, other, count);
    half->to_wide(other, stored, count);
    for (int64_t i = 0; i < count; i++)
        x[i] = nearest[i] == x[i] || !isfinite(nearest[i]) ? nearest[i] : other[i] / stretch;
}

/* Rounds as the run stores: gradients with their loss scale. */
static void round_shadow(const struct sbp_reference *reference, float *x, int64_t n, double scale)
{
    const struct sbp_kernels *half = sbp_kernels_cpu(reference->real);
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = n - i < PIECE ? n - i : PIECE;
        reference->shadow.kernels->scale(x + i, scale, count);
        round_piece(half, STRETCH[reference->shadow_number], x + i, count);
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

/* Gradients that a mixture's backward pass leaves in place of what forward kept: of scores first,
 * then of both products. What scratch has of them in between is rounded where it arrives. */
static void round_mixture(struct sbp_reference *reference, const struct sbp_instr *instr)
{
    if (sbp_real_bytes(reference->real) > 2 || instr->kind != SBP_INSTR_BACKWARD ||
        reference->graph.op[instr->op].kind != SBP_OP_MOE)
        return;
    const struct sbp_rank_mixture m = sbp_rank_mixture_of(reference->program, instr->op, 0);
    const struct sbp_rank_kept kept = sbp_rank_mixture_kept(&reference->shadow, instr, &m);
    const double scale = reference->loss_scale;
    if (instr->phase == 0)
        round_shadow(reference, kept.scores, m.tokens.tokens * m.tokens.experts, scale);
    if (instr->phase != 1)
        return;
    round_shadow(reference, kept.first, m.slots * m.ffn * m.gates, scale);
    round_shadow(reference, kept.second, m.slots * m.hidden, scale);
}

static bool bends(enum sbp_op_kind kind)
{
    return kind == SBP_OP_RELU || kind == SBP_OP_GELU || kind == SBP_OP_TANH ||
           kind == SBP_OP_SWIGLU || kind == SBP_OP_MAXPOOL || kind == SBP_OP_BATCHNORM;
}

static bool attends(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

/* An instruction without the gradients of weights, of which a sample is formed elsewhere
 * (sbp_magnitude_note). False: then there is nothing left to do. */
static bool leave_gradients(const struct sbp_instr *instr, struct sbp_instr *rest)
{
    *rest = *instr;
    for (int w = 0; w < SBP_MAX_WEIGHTS; w++)
        rest->buffer[SBP_AT_DW + w] = -1;
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
    if (instr->kind == SBP_INSTR_BACKWARD && attends(reference->graph.op[instr->op].kind)) {
        const struct sbp_lockstep both = lockstep(reference);
        sbp_lone_keys_deviate(&both, instr);
    }
    round_results(reference, instr);
    round_mixture(reference, instr);
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
        double *const exact = sbp_reference_read(reference, tensor);
        float *const shadow = sbp_reference_read_shadow(reference, tensor);
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
        const double *gradient = elements > 0 ? sbp_reference_formed(reference, t) : NULL;
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

static enum sbp_status visit_piece(void *context, const struct sbp_layers_pass *visit,
                                   struct sbp_diag *diag)
{
    struct sbp_reference *const reference = context;
    const struct sbp_task task = {.work = SBP_WORK_FORWARD, .micro_batch = (int)visit->micro_batch};
    sbp_reference_turn(reference, visit->piece);
    if (reference->is_sampled)
        SBP_TRY(reference->fetch(reference->fetch_context, visit, diag));
    SBP_TRY(sbp_rank_begin_work(&reference->rank, &task, diag));
    SBP_TRY(sbp_rank_begin_work(&reference->shadow, &task, diag));
    for (int i = 0; i < reference->program->instr_count; i++)
        if (visit->goes_back || reference->program->instr[i].section == SBP_SECTION_FORWARD)
            SBP_TRY(run_at(reference, visit->piece, i, diag));
    if (reference->delayed.step != NULL)
        add_gradients(reference);
    if (visit->goes_back)
        sbp_rank_end_work(&reference->rank, &task);
    return SBP_OK;
}

enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag)
{
    sbp_rank_begin_step(&reference->rank, step);
    sbp_rank_begin_step(&reference->shadow, step);
    const uint64_t number =
        sbp_random_bits_at(reference->rank.seed, STREAM_OUTPUTS, (uint64_t)step);
    reference->loss_sum = reference->loss_inherited = 0;
    for (int t = 0; reference->is_sampled && t < reference->graph.tensor_count; t++)
        if (reference->magnitude[t] != NULL)
            sbp_magnitude_draw(reference->magnitude[t], number);
    SBP_TRY(sbp_layers_visit(&reference->layers, visit_piece, reference, diag));
    sbp_reference_turn(reference, reference->layers.pieces - 1); /* which has the loss */
    SBP_TRY(sbp_rank_read_state(&reference->rank, diag));
    reference->loss = sbp_rank_loss(&reference->rank);
    return SBP_OK;
}
