#include "executor/run/odd_layer.h"

#include <stdio.h>

#include "executor/rank/rank_states.h"

const char *sbp_odd_layer_text(const struct sbp_odd_layer *odd, int step, char *text, int size)
{
    (void)snprintf(text, (size_t)size, "layer %s: its %s holds NaN or infinity (step %d, rank %d)",
                   odd->layer, odd->what, step, odd->rank);
    return text;
}

bool sbp_odd_layer_precedes(const struct sbp_odd_layer *a, const struct sbp_odd_layer *b)
{
    if (a->found != b->found)
        return a->found;
    if (a->is_backward != b->is_backward)
        return b->is_backward;
    if (a->micro_batch != b->micro_batch)
        return a->micro_batch < b->micro_batch;
    if (a->op != b->op)
        return (a->op < b->op) != a->is_backward;
    if (a->instr != b->instr)
        return a->instr < b->instr;
    return a->rank < b->rank;
}

/* Squares of floats, which are summed in double, are below 1e77 each; the factor leaves a sum that
 * fits into a float again. */
static void sum_to_tell(const struct sbp_rank *rank, const void *reals, int64_t elements)
{
    rank->kernels->sum_squares(&rank->state->squares_at_hand, reals, elements, 1e-60);
}

void sbp_odd_layer_watch(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_rank_states at = sbp_rank_states(rank, instr);
    sum_to_tell(rank, at.gradient, at.count);
    rank->kernels->step_watch(rank->state, &rank->state->squares_at_hand);
}

/* Whether reals of the rank's device are finite. Fails as the device does. */
static enum sbp_status look_at(struct sbp_rank *rank, const void *reals, int64_t elements,
                               bool *is_finite, struct sbp_diag *diag)
{
    sum_to_tell(rank, reals, elements);
    rank->kernels->step_watch(rank->state, &rank->state->squares_at_hand);
    SBP_TRY(sbp_rank_read_state(rank, diag));
    *is_finite = rank->known.leaves_out == 0;
    return SBP_OK;
}

/* ---- the second look ------------------------------------------------------------------------- */

static bool holds_gradient(const struct sbp_buffer *buffer)
{
    return sbp_program_buffer_persists(buffer) && buffer->type == SBP_BUFFER_REAL &&
           (buffer->use == SBP_USE_GRADIENT || buffer->use == SBP_USE_SUM);
}

/* What the first look left behind would be found again where nobody writes, as behind a block's
 * end. Frames and what a micro-batch at work needs lie behind the states of all chunks. */
void sbp_odd_layer_clear(struct sbp_rank *rank)
{
    const struct sbp_stage_layout *arena = rank->arena;
    const int64_t states_bytes = arena->work_at - arena->frames_bytes;
    sbp_rank_turn_gradients(rank, 0); /* each buffer stands for itself */
    for (int chunk = 0; chunk < arena->chunks; chunk++) {
        sbp_rank_turn(rank, chunk);
        for (int b = 0; b < rank->program->buffer_count; b++)
            if (holds_gradient(&rank->program->buffer[b]))
                rank->kernels->zero(sbp_rank_buffer(rank, b), rank->program->buffer[b].elements);
    }
    rank->kernels->zero(rank->memory + states_bytes,
                        (arena->bytes - states_bytes) / rank->kernels->real_bytes);
}

/* Where instructions write values of a layer, not what they keep beside them: a maximum over what
 * one rank has may be -infinity. */
static const int written[] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3, SBP_AT_DW, SBP_AT_DW2};

enum { PLACES = sizeof written / sizeof *written };

static bool is_computed(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const bool is_elsewhere =
        instr->kind == SBP_INSTR_SCATTER && sbp_rank_updates(rank, instr->tensor) == 0;
    return instr->op >= 0 && !is_elsewhere &&
           (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD ||
            instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE ||
            instr->kind == SBP_INSTR_SCATTER || instr->kind == SBP_INSTR_ADD_GRADIENT);
}

/* Whether a later phase of the operator names the buffer, too: early ones do before it is written.
 */
static bool is_written_later(const struct sbp_program *program, int index, int buffer)
{
    const struct sbp_instr *instr = &program->instr[index];
    for (int i = index + 1; i < program->instr_count; i++) {
        const struct sbp_instr *later = &program->instr[i];
        for (int p = 0; p < PLACES; p++)
            if (later->op == instr->op && later->kind == instr->kind &&
                later->section == instr->section && later->buffer[written[p]] == buffer)
                return true;
    }
    return false;
}

/* Among values that the kernels' sum of squares can read: the loss of a run in 16 bits is wider. */
static bool is_value(const struct sbp_rank *rank, int index, int buffer)
{
    const struct sbp_program *program = rank->program;
    return buffer >= 0 && sbp_rank_element_bytes(rank, buffer) == rank->kernels->real_bytes &&
           (program->buffer[buffer].type == SBP_BUFFER_REAL ||
            program->buffer[buffer].type == SBP_BUFFER_STATISTIC) &&
           (program->buffer[buffer].tensor >= 0 || buffer == program->loss_buffer) &&
           !is_written_later(program, index, buffer);
}

static const char *name_value(const struct sbp_program *program, const struct sbp_instr *instr,
                              int place)
{
    if (instr->buffer[place] == program->loss_buffer)
        return "loss";
    if (instr->section == SBP_SECTION_FORWARD || instr->section == SBP_SECTION_RECOMPUTE)
        return "output";
    return instr->cause == SBP_CAUSE_WEIGHT_GRADIENT || place == SBP_AT_DW || place == SBP_AT_DW2
               ? "weight gradient"
               : "input gradient";
}

static void fill(const struct sbp_program *program, const struct sbp_task *task, int place,
                 struct sbp_odd_layer *odd)
{
    const struct sbp_instr *instr = &program->instr[task->instr];
    *odd = (struct sbp_odd_layer){.found = true,
                                  .op = instr->op,
                                  .instr = task->instr,
                                  .is_backward = task->work != SBP_WORK_FORWARD,
                                  .micro_batch = task->micro_batch};
    (void)snprintf(odd->layer, sizeof odd->layer, "%s", program->graph->op[instr->op].name);
    (void)snprintf(odd->what, sizeof odd->what, "%s", name_value(program, instr, place));
}

enum sbp_status sbp_odd_layer_look(struct sbp_rank *rank, const struct sbp_task *task,
                                   struct sbp_odd_layer *odd, struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_instr *instr = &program->instr[task->instr];
    for (int p = 0; p < PLACES && !odd->found && is_computed(rank, instr); p++) {
        const int buffer = instr->buffer[written[p]];
        bool is_finite = true;
        if (is_value(rank, task->instr, buffer))
            SBP_TRY(look_at(rank, sbp_rank_buffer(rank, buffer), program->buffer[buffer].elements,
                            &is_finite, diag));
        if (!is_finite)
            fill(program, task, written[p], odd);
    }
    return SBP_OK;
}
