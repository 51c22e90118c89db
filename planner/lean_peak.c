#include "planner/lean_peak.h"

#include <string.h>

enum sbp_status sbp_lean_peak_init(struct sbp_lean_peak *peak, const struct sbp_space *space,
                                   struct sbp_arena *arena)
{
    *peak = (struct sbp_lean_peak){.space = space,
                                   .variable = SBP_NEW(arena, int, space->variable_count + 1),
                                   .lives = SBP_NEW(arena, bool, space->graph->tensor_count + 1),
                                   .takes_to = SBP_NEW(arena, bool, space->variable_count + 1)};
    return peak->variable == NULL || peak->lives == NULL || peak->takes_to == NULL ? SBP_E_MEMORY
                                                                                   : SBP_OK;
}

/* Of the fullest stage, the chunk whose passes need most. */
static const struct sbp_program *fullest_program(const struct sbp_step *step)
{
    const int chunks = step->pieces / step->stages;
    int stage = 0, chunk = 0;
    for (int s = 1; s < step->stages; s++)
        if (step->memory[s].device_bytes > step->memory[stage].device_bytes)
            stage = s;
    const struct sbp_stage_cost *cost = &step->cost[stage * chunks];
    for (int c = 1; c < chunks; c++)
        if (cost[c].transient_bytes > cost[chunk].transient_bytes)
            chunk = c;
    return &step->program[step->program_of[chunk * step->stages + stage]];
}

static bool comes_and_goes(const struct sbp_buffer *buffer)
{
    return !sbp_buffer_persists(buffer) && buffer->first >= 0;
}

/* An instruction that the arena's last bytes are needed for; -1: what always lives takes all. */
static int find_instr(const struct sbp_program *program)
{
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        if (comes_and_goes(buffer) && buffer->elements > 0 &&
            buffer->offset_bytes + sbp_program_slot_bytes(program, i) == program->arena_bytes)
            return buffer->first;
    }
    return -1;
}

static void note(struct sbp_lean_peak *peak, int variable)
{
    if (variable >= 0)
        peak->takes_to[variable] = true;
}

/* Operators that read or write what lives decide on it, and so do the places where it rests. */
static void note_deciders(struct sbp_lean_peak *peak, int running_op)
{
    const struct sbp_graph *graph = peak->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        bool touches = op == running_op || (node->output >= 0 && peak->lives[node->output]);
        for (int i = 0; i < node->input_count; i++)
            touches |= node->input[i] >= 0 && peak->lives[node->input[i]];
        for (int i = 0; i < node->weight_count; i++)
            touches |= peak->lives[node->weight[i]];
        if (touches)
            note(peak, sbp_space_decider(peak->space, op));
    }
    for (int t = 0; t < graph->tensor_count; t++)
        if (peak->lives[t])
            note(peak, peak->space->slot[t]);
}

void sbp_lean_peak_find(struct sbp_lean_peak *peak, const struct sbp_step *step)
{
    const int variables = peak->space->variable_count;
    const struct sbp_program *program = fullest_program(step);
    const int at = find_instr(program);
    memset(peak->lives, 0, (size_t)peak->space->graph->tensor_count * sizeof *peak->lives);
    memset(peak->takes_to, 0, (size_t)variables * sizeof *peak->takes_to);
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *buffer = &program->buffer[i];
        if (comes_and_goes(buffer) && buffer->tensor >= 0 && buffer->first <= at &&
            at <= buffer->last)
            peak->lives[buffer->tensor] = true;
    }
    if (at >= 0)
        note_deciders(peak, program->instr[at].op);
    peak->count = 0;
    for (int v = 0; v < variables; v++)
        if (peak->takes_to[v])
            peak->variable[peak->count++] = v;
}
