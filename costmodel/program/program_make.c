/* The compiler of programs: forward and backward of a scope, messages, updates, layout, prices. */
#include "costmodel/program/program_compile_priv.h"

#include <string.h>

#include "costmodel/program/regather.h"
#include "costmodel/program/stages.h"

/* ---- messages between stages --------------------------------------------------------------- */

static enum sbp_status add_message(struct sbp_compiler *c, enum sbp_instr_kind kind, int tensor,
                                   int buffer)
{
    const bool is_local = sbp_parallel_shares_device(&c->program->parallel);
    struct sbp_instr *instr = sbp_emit_instr(c, kind, -1, 0);
    if (instr == NULL)
        return SBP_E_MEMORY;
    instr->tensor = tensor;
    instr->stages = is_local ? 1 : 2;
    instr->cause = SBP_CAUSE_STAGE;
    instr->box.kind = is_local ? SBP_LOCAL : SBP_SEND_RECV;
    instr->box.elements = c->program->buffer[buffer].elements;
    instr->buffer[kind == SBP_INSTR_SEND ? SBP_AT_IN : SBP_AT_OUT] = buffer;
    return SBP_OK;
}

static enum sbp_status add_receive(struct sbp_compiler *c, int tensor, const struct sbp_dist *dist,
                                   int *buffer)
{
    int mail = -1;
    SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, tensor, dist, buffer));
    if (sbp_parallel_shares_device(&c->program->parallel))
        SBP_TRY(sbp_emit_block(c, SBP_USE_MAIL, tensor, dist, &mail));
    SBP_TRY(add_message(c, SBP_INSTR_RECEIVE, tensor, *buffer));
    c->program->instr[c->program->instr_count - 1].buffer[SBP_AT_WORK] = mail;
    return SBP_OK;
}

/* The activation that crosses a boundary between operators; -1: the model begins or ends there. */
static enum sbp_status crossing_at(const struct sbp_compiler *c, int boundary, int *tensor)
{
    *tensor = -1;
    if (boundary <= 0 || boundary >= c->graph->op_count)
        return SBP_OK;
    *tensor = sbp_stages_crossing(c->graph, boundary);
    return *tensor >= 0 ? SBP_OK
                        : sbp_fail(c->diag, SBP_E_INPUT,
                                   "stages: %s: a stage begins where several activations cross, "
                                   "one is legal",
                                   c->graph->op[boundary].name);
}

/* ---- assembly ------------------------------------------------------------------------------ */

static int *filled(struct sbp_arena *arena, int count, int value)
{
    int *array = SBP_NEW(arena, int, count);
    for (int i = 0; array != NULL && i < count; i++)
        array[i] = value;
    return array;
}

static enum sbp_status prepare(struct sbp_compiler *c)
{
    struct sbp_program *program = c->program;
    struct sbp_arena *arena = &program->arena;
    const int tensors = c->graph->tensor_count, ops = c->graph->op_count;
    program->weight_buffer = filled(arena, tensors, -1);
    program->gradient_buffer = filled(arena, tensors, -1);
    program->other_version = filled(arena, tensors, -1);
    program->other_gradient = filled(arena, tensors, -1);
    program->first_moment = filled(arena, tensors, -1);
    program->second_moment = filled(arena, tensors, -1);
    program->master = filled(arena, tensors, -1);
    program->gradient_master = filled(arena, tensors, -1);
    program->shard = SBP_NEW(arena, struct sbp_weight_shard, tensors);
    program->ids_buffer = filled(arena, ops, -1);
    program->positions_buffer = filled(arena, ops, -1);
    program->labels_buffer = program->loss_buffer = -1;
    c->value = filled(arena, tensors, -1);
    c->gatherer = filled(arena, tensors, -1);
    c->kept = filled(arena, tensors, -1);
    c->gradient = filled(arena, tensors, -1);
    c->weight = SBP_NEW(arena, struct sbp_weight_plan, tensors);
    c->output = filled(arena, ops, -1);
    c->segment = filled(arena, ops, -1);
    c->half = filled(arena, ops, -1);
    c->block = filled(arena, ops, -1);
    c->gathered = filled(arena, tensors, -1);
    c->sum = filled(arena, tensors, -1);
    c->open_block = c->bucket = -1;
    int *inputs = filled(arena, ops * SBP_MAX_INPUTS, -1);
    int *saved = filled(arena, ops * 3, -1);
    if (program->weight_buffer == NULL || program->gradient_buffer == NULL ||
        program->other_version == NULL || program->other_gradient == NULL ||
        program->first_moment == NULL || program->second_moment == NULL ||
        program->master == NULL || program->gradient_master == NULL || program->shard == NULL ||
        program->ids_buffer == NULL || program->positions_buffer == NULL || c->value == NULL ||
        c->gatherer == NULL || c->kept == NULL || c->gradient == NULL || c->weight == NULL ||
        c->output == NULL || c->segment == NULL || c->half == NULL || c->block == NULL ||
        c->gathered == NULL || c->sum == NULL || inputs == NULL || saved == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tensors; t++) {
        c->weight[t].first_user = -1;
        program->shard[t] = (struct sbp_weight_shard){.owner = -1, .leader = t};
    }
    c->input = (int(*)[SBP_MAX_INPUTS])inputs;
    c->saved = (int(*)[3])saved;
    return SBP_OK;
}

static enum sbp_status copy_strategy(struct sbp_compiler *c, const struct sbp_strategy *strategy)
{
    struct sbp_program *program = c->program;
    struct sbp_strategy *copy = &program->strategy;
    SBP_TRY(sbp_strategy_alloc(c->graph, &program->arena, copy));
    copy->boxing = strategy->boxing;
    memcpy(copy->op, strategy->op, (size_t)c->graph->op_count * sizeof *copy->op);
    memcpy(copy->rest, strategy->rest, (size_t)c->graph->tensor_count * sizeof *copy->rest);
    memcpy(copy->split, strategy->split, (size_t)c->graph->class_count * sizeof *copy->split);
    memcpy(copy->zero, strategy->zero, (size_t)c->graph->op_count * sizeof *copy->zero);
    c->strategy = copy;
    c->layout = (struct sbp_layout){
        .mesh = c->mesh, .class_count = c->graph->class_count, .split = copy->split};
    return SBP_OK;
}

static enum sbp_status compile_forward(struct sbp_compiler *c)
{
    const struct sbp_scope *scope = &c->program->scope;
    int in, out;
    SBP_TRY(crossing_at(c, scope->first_op, &in));
    SBP_TRY(crossing_at(c, scope->end_op, &out));
    c->section = SBP_SECTION_FORWARD;
    if (in >= 0)
        SBP_TRY(add_receive(c, in, &c->strategy->rest[in], &c->value[in]));
    const int input = scope->first_op == 0 && c->graph->input_split ? c->graph->input : -1;
    if (input >= 0) {
        SBP_TRY(sbp_emit_block(c, SBP_USE_ACTIVATION, input, &c->strategy->rest[input],
                               &c->value[input]));
        struct sbp_instr *instr = sbp_emit_instr(c, SBP_INSTR_INPUT, -1, 0);
        if (instr == NULL)
            return SBP_E_MEMORY;
        instr->tensor = input;
        instr->buffer[SBP_AT_OUT] = c->value[input];
    }
    for (int op = scope->first_op; op < scope->end_op; op++)
        SBP_TRY(sbp_program_compile_forward(c, op));
    return out >= 0 ? add_message(c, SBP_INSTR_SEND, out, c->value[out]) : SBP_OK;
}

static enum sbp_status compile_backward(struct sbp_compiler *c)
{
    const struct sbp_scope *scope = &c->program->scope;
    int in, out;
    SBP_TRY(crossing_at(c, scope->first_op, &in));
    SBP_TRY(crossing_at(c, scope->end_op, &out));
    c->section = SBP_SECTION_BACKWARD;
    if (out >= 0) {
        const struct sbp_dist dual = sbp_dist_dual(c->mesh, &c->strategy->rest[out]);
        SBP_TRY(add_receive(c, out, &dual, &c->gradient[out]));
        if (c->program->parallel.keep_sent)
            c->program->instr[c->program->instr_count - 1].buffer[SBP_AT_IN] = c->value[out];
    }
    for (int op = scope->end_op - 1; op >= scope->first_op; op--)
        SBP_TRY(sbp_program_compile_backward(c, op));
    return in >= 0 ? add_message(c, SBP_INSTR_SEND, in, c->gradient[in]) : SBP_OK;
}

/* Marks the operators that are recomputed together. */
static enum sbp_status mark_segments(struct sbp_compiler *c)
{
    const struct sbp_program *program = c->program;
    const struct sbp_scope *scope = &program->scope;
    if (program->parallel.gather_blocks)
        (void)sbp_stages_blocks(c->graph, c->block);
    if (program->parallel.recompute != SBP_RECOMPUTE_FULL &&
        program->parallel.recompute != SBP_RECOMPUTE_SELECTIVE)
        return SBP_OK;
    return sbp_stages_segments(c->graph, scope->first_op, scope->end_op,
                               program->parallel.recompute_every, c->segment);
}

/* ---- what nobody needs of the work that is done again -------------------------------------- */

/* Slots that a forward instruction, a boxing step or a collective writes. */
static bool writes(const struct sbp_instr *instr, int slot)
{
    if (slot == SBP_AT_OUT)
        return true;
    return instr->kind == SBP_INSTR_FORWARD &&
           (slot == SBP_AT_SAVED || slot == SBP_AT_SAVED2 || slot == SBP_AT_SAVED3);
}

static bool is_needed(const struct sbp_instr *instr, const bool *needed, const bool *runs)
{
    if (instr->section != SBP_SECTION_RECOMPUTE)
        return true;
    if (instr->kind == SBP_INSTR_INNER)
        return runs[instr->op];
    for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++)
        if (instr->buffer[slot] >= 0 && writes(instr, slot) && needed[instr->buffer[slot]])
            return true;
    return false;
}

/* Finds the needed instructions, from the last one back; the other arrays are zeros. */
static void find_needed(const struct sbp_program *program, bool *is_kept, bool *needed, bool *runs)
{
    for (int i = program->instr_count - 1; i >= 0; i--) {
        const struct sbp_instr *instr = &program->instr[i];
        is_kept[i] = is_needed(instr, needed, runs);
        if (!is_kept[i])
            continue;
        if (instr->section == SBP_SECTION_RECOMPUTE && instr->kind == SBP_INSTR_FORWARD)
            runs[instr->op] = true;
        for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++)
            if (instr->buffer[slot] >= 0)
                needed[instr->buffer[slot]] = true;
    }
}

static void keep(struct sbp_program *program, const bool *is_kept)
{
    int kept = 0;
    for (int i = 0; i < program->instr_count; i++) {
        if (is_kept[i] && kept < i)
            program->instr[kept] = program->instr[i];
        kept += is_kept[i];
    }
    program->instr_count = kept;
}

/* Drops recomputation of a segment's last results: the segment that follows holds them. */
static enum sbp_status drop_unneeded(struct sbp_compiler *c)
{
    struct sbp_program *program = c->program;
    struct sbp_arena scratch;
    if (program->parallel.recompute == SBP_RECOMPUTE_NONE && !program->parallel.regather)
        return SBP_OK;
    sbp_arena_init(&scratch);
    bool *is_kept = SBP_NEW(&scratch, bool, program->instr_count + 1);
    bool *needed = SBP_NEW(&scratch, bool, program->buffer_count + 1);
    bool *runs = SBP_NEW(&scratch, bool, c->graph->op_count + 1); /* again */
    const bool fits = is_kept != NULL && needed != NULL && runs != NULL;
    if (fits) {
        find_needed(program, is_kept, needed, runs);
        keep(program, is_kept);
    }
    sbp_arena_free(&scratch);
    return fits ? SBP_OK : SBP_E_MEMORY;
}

/* ---- weight gradients that wait ------------------------------------------------------------- */

/* The work that an instruction belongs to, in order. */
static int work_of(const struct sbp_instr *instr)
{
    static const int works[SBP_SECTIONS] = {[SBP_SECTION_FORWARD] = 0,
                                            [SBP_SECTION_RECOMPUTE] = 1,
                                            [SBP_SECTION_BACKWARD] = 1,
                                            [SBP_SECTION_BACKWARD_WEIGHT] = 2,
                                            [SBP_SECTION_STEP] = 3};
    return works[instr->section];
}

/* Brings the instructions into the order of their works, and keeps that within a work. */
static enum sbp_status part_backward(struct sbp_compiler *c)
{
    enum { WORKS = 4 };
    struct sbp_program *program = c->program;
    const int count = program->instr_count;
    int placed = 0;
    if (!sbp_compiler_parts_backward(c))
        return SBP_OK;
    struct sbp_instr *parted = SBP_NEW(&program->arena, struct sbp_instr, count + 1);
    if (parted == NULL)
        return SBP_E_MEMORY;
    for (int work = 0; work < WORKS; work++)
        for (int i = 0; i < count; i++)
            if (work_of(&program->instr[i]) == work)
                parted[placed++] = program->instr[i];
    program->instr = parted;
    return SBP_OK;
}

static enum sbp_status compile(struct sbp_compiler *c, const struct sbp_strategy *strategy)
{
    SBP_TRY(prepare(c));
    SBP_TRY(copy_strategy(c, strategy));
    SBP_TRY(mark_segments(c));
    if (c->program->parallel.regather)
        sbp_regather_find(c->graph, c->program->scope.first_op, c->program->scope.end_op,
                          c->segment, c->gatherer);
    SBP_TRY(sbp_program_compile_weights(c));
    SBP_TRY(compile_forward(c));
    SBP_TRY(compile_backward(c));
    SBP_TRY(sbp_program_compile_updates(c));
    SBP_TRY(drop_unneeded(c));
    SBP_TRY(part_backward(c));
    return sbp_program_lay_out(c->program, c->diag);
}

static enum sbp_status assemble(struct sbp_compiler *c, const struct sbp_cluster *cluster,
                                const struct sbp_strategy *strategy)
{
    struct sbp_paths paths;
    if (strategy->boxing != SBP_BOXING_PATH)
        return compile(c, strategy);
    SBP_TRY(sbp_paths_init(&paths, cluster, c->mesh, c->diag));
    c->paths = &paths;
    const enum sbp_status status = compile(c, strategy);
    c->paths = NULL;
    sbp_paths_free(&paths);
    return status;
}

struct sbp_scope sbp_program_scope_whole(const struct sbp_graph *graph)
{
    return (struct sbp_scope){.end_op = graph->op_count, .micro_batches = 1};
}

enum sbp_status
sbp_program_make_scope(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                       const struct sbp_mesh *mesh, const struct sbp_strategy *strategy,
                       const struct sbp_element_bytes *bytes, const struct sbp_scope *scope,
                       struct sbp_program *program, struct sbp_diag *diag)
{
    *program =
        (struct sbp_program){.graph = graph, .scope = *scope, .mesh = *mesh, .bytes = *bytes};
    program->parallel = scope->parallel == NULL ? sbp_parallel_default(graph) : *scope->parallel;
    program->scope.parallel = NULL; /* there is a copy */
    struct sbp_compiler compiler = {.program = program,
                                    .graph = graph,
                                    .mesh = &program->mesh,
                                    .policy = sbp_program_element_bytes(&graph->precision),
                                    .diag = diag};
    enum sbp_status status = assemble(&compiler, cluster, strategy);
    if (status == SBP_OK)
        sbp_program_price(program, cluster);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while compiling the plan");
    if (status != SBP_OK)
        sbp_program_free(program);
    return status;
}

enum sbp_status sbp_program_make(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                 const struct sbp_mesh *mesh, const struct sbp_strategy *strategy,
                                 const struct sbp_element_bytes *bytes, struct sbp_program *program,
                                 struct sbp_diag *diag)
{
    const struct sbp_scope whole = sbp_program_scope_whole(graph);
    return sbp_program_make_scope(graph, cluster, mesh, strategy, bytes, &whole, program, diag);
}
