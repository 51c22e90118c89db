/* Names, sizes and calls of a compiled program. */
#include "costmodel/program/program.h"

#include <math.h>

#define TEXT(name, text) text,
static const char *const instr_names[] = {SBP_INSTR_MAP(TEXT)};
static const char *const section_names[] = {SBP_SECTION_MAP(TEXT)};

const char *sbp_program_instr_name(enum sbp_instr_kind kind)
{
    return instr_names[kind];
}

const char *sbp_program_section_name(enum sbp_section section)
{
    return section_names[section];
}

const char *sbp_program_cause_name(enum sbp_cause cause)
{
    static const char *const names[] = {
        "none",   "activation", "activation-gradient", "weight-gradient", "operator", "scalar",
        "weight", "stage"};
    return names[cause];
}

static int64_t statistic_bytes(int64_t activation)
{
    return activation < 4 ? 4 : activation;
}

struct sbp_element_bytes sbp_program_element_bytes(const struct sbp_precision *precision)
{
    return (struct sbp_element_bytes){
        .weight = sbp_cluster_type_bytes(precision->param),
        .gradient = sbp_cluster_type_bytes(precision->grad),
        .master = precision->has_master ? sbp_cluster_type_bytes(precision->master) : 0,
        .gradient_master =
            precision->converts_gradient ? sbp_cluster_type_bytes(precision->master) : 0,
        .compute =
            precision->compute != precision->param ? sbp_cluster_type_bytes(precision->compute) : 0,
        .sum = precision->has_sum ? sbp_cluster_type_bytes(precision->accumulate) : 0,
        .loss =
            precision->loss != precision->activation ? sbp_cluster_type_bytes(precision->loss) : 0,
        .logit = precision->loss != precision->activation ? 0 : precision->logit_bytes,
        .moment = sbp_cluster_type_bytes(precision->moments),
        .activation = sbp_cluster_type_bytes(precision->activation),
        .reduce = sbp_cluster_type_bytes(precision->reduce),
        .statistic = statistic_bytes(sbp_cluster_type_bytes(precision->activation)),
        .scales_loss = precision->grad == SBP_FP16};
}

struct sbp_element_bytes sbp_program_run_bytes(enum sbp_real real)
{
    const int64_t bytes = sbp_real_bytes(real), wide = statistic_bytes(bytes);
    const int64_t master = bytes < wide ? wide : 0;
    return (struct sbp_element_bytes){.weight = bytes,
                                      .gradient = bytes,
                                      .moment = wide,
                                      .activation = bytes,
                                      .master = master,
                                      .gradient_master = master,
                                      .reduce = bytes,
                                      .statistic = wide,
                                      .scales_loss = real == SBP_REAL_FP16};
}

/* Whether a run in a type has the elements of a policy. */
static bool same_elements(const struct sbp_element_bytes *a, const struct sbp_element_bytes *b)
{
    return a->weight == b->weight && a->gradient == b->gradient && a->moment == b->moment &&
           a->activation == b->activation && a->master == b->master &&
           a->gradient_master == b->gradient_master && a->compute == b->compute &&
           a->sum == b->sum && a->loss == b->loss && a->reduce == b->reduce;
}

bool sbp_program_runs_policy(const struct sbp_precision *precision, enum sbp_real real)
{
    const struct sbp_element_bytes policy = sbp_program_element_bytes(precision);
    const struct sbp_element_bytes run = sbp_program_run_bytes(real);
    return same_elements(&policy, &run) && precision->products == precision->activation;
}

enum sbp_real sbp_program_run_real(const struct sbp_precision *precision,
                                   const struct sbp_cluster *cluster)
{
    const enum sbp_type rate = sbp_cluster_rate_type(cluster, precision->activation);
    const struct sbp_element_bytes policy = sbp_program_element_bytes(precision);
    const struct sbp_element_bytes half = sbp_program_run_bytes(SBP_REAL_BF16);
    if (!same_elements(&policy, &half))
        return SBP_F32;
    const bool has_rate = rate == SBP_BF16 || rate == SBP_FP16;
    const enum sbp_type type = has_rate ? rate : precision->activation;
    return type == SBP_FP16 ? SBP_REAL_FP16 : SBP_REAL_BF16;
}

void sbp_program_free(struct sbp_program *program)
{
    if (program == NULL)
        return;
    sbp_arena_free(&program->arena);
    *program = (struct sbp_program){0};
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

bool sbp_program_buffer_persists(const struct sbp_buffer *buffer)
{
    return buffer->use <= SBP_USE_INDEX;
}

int64_t sbp_program_buffer_bytes(const struct sbp_program *program, int buffer)
{
    const struct sbp_buffer *b = &program->buffer[buffer];
    int64_t element = program->bytes.activation;
    if (b->type == SBP_BUFFER_INT32)
        element = 4;
    else if (b->type == SBP_BUFFER_BYTE)
        element = 1;
    else if (b->type == SBP_BUFFER_LOSS)
        element = program->bytes.loss;
    else if (b->type == SBP_BUFFER_STATISTIC)
        element = program->bytes.statistic;
    else if ((b->use == SBP_USE_GATHERED || b->use == SBP_USE_UNREDUCED) &&
             program->bytes.compute > 0)
        element = program->bytes.compute;
    else if (b->use == SBP_USE_WEIGHT || b->use == SBP_USE_VERSION || b->use == SBP_USE_GATHERED)
        element = program->bytes.weight;
    else if (b->use == SBP_USE_GRADIENT || b->use == SBP_USE_UNREDUCED)
        element = program->bytes.gradient;
    else if (b->use == SBP_USE_SUM)
        element = program->bytes.sum;
    else if (b->use == SBP_USE_MOMENT)
        element = program->bytes.moment;
    else if (b->use == SBP_USE_MASTER)
        element = program->bytes.master;
    else if (b->use == SBP_USE_BUCKET)
        element = program->bytes.master + program->bytes.gradient_master +
                  sbp_graph_training_moments(&program->graph->training) * program->bytes.moment;
    int64_t bytes = 0;
    return sbp_mul_i64(b->elements, element, &bytes) ? bytes : -1;
}

static int64_t slot_of(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int64_t sbp_program_slot_bytes(const struct sbp_program *program, int buffer)
{
    return program->buffer[buffer].shares >= 0 ? 0
                                               : slot_of(sbp_program_buffer_bytes(program, buffer));
}

/* ---- calls --------------------------------------------------------------------------------- */

bool sbp_program_is_call(const struct sbp_instr *instr)
{
    switch (instr->kind) {
    case SBP_INSTR_BOX:
    case SBP_INSTR_REDUCE:
    case SBP_INSTR_INNER:
    case SBP_INSTR_GATHER:
    case SBP_INSTR_SCATTER:
    case SBP_INSTR_SEND:
    case SBP_INSTR_PASS:
        return instr->box.kind != SBP_LOCAL;
    default:
        return false;
    }
}

bool sbp_program_is_operators_own(const struct sbp_program *program, const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_INNER || instr->cause != SBP_CAUSE_OPERATOR)
        return false;
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    return node->kind == SBP_OP_SUMMA_LINEAR || node->attention.ring;
}

enum sbp_status sbp_program_calls(const struct sbp_program *program, struct sbp_arena *arena,
                                  struct sbp_call **calls, int *count)
{
    int64_t most = 0;
    for (int i = 0; i < program->instr_count; i++)
        most += sbp_program_is_call(&program->instr[i]) ? program->instr[i].times : 0;
    *calls = SBP_NEW(arena, struct sbp_call, most + 1);
    if (*calls == NULL)
        return SBP_E_MEMORY;
    *count = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (!sbp_program_is_call(instr))
            continue;
        const bool whole = instr->box.kind == SBP_ALL_REDUCE || instr->box.kind == SBP_SEND_RECV ||
                           instr->box.kind == SBP_BROADCAST_COLL;
        const int64_t members = sbp_mesh_group_size(&program->mesh, instr->box.axes);
        const int64_t elements = instr->kind == SBP_INSTR_INNER
                                     ? (int64_t)ceil(instr->inner_elements)
                                     : instr->box.elements;
        for (int k = 0; k < instr->times; k++)
            (*calls)[(*count)++] = (struct sbp_call){.kind = instr->box.kind,
                                                     .axes = instr->box.axes,
                                                     .count = whole ? elements : elements / members,
                                                     .instr = i,
                                                     .stages = instr->stages,
                                                     .statistic = instr->statistic,
                                                     .tensor = instr->tensor};
    }
    return SBP_OK;
}
