/* The checks of compiled programs, one part after the other. */
#include <math.h>

#include "tests/support/program_oracle.h"
#include "tests/support/unit.h"

void oracle_set_cluster(struct oracle_setting *s, const struct sbp_cluster *cluster)
{
    struct sbp_diag diag = {{0}};
    s->cluster = *cluster;
    if (sbp_mesh_make(cluster, &s->mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_init(&s->arena);
    assert_int_equal(sbp_strategy_alloc(&s->model.graph, &s->arena, &s->strategy), SBP_OK);
}

enum sbp_status oracle_close(struct oracle_setting *s)
{
    struct sbp_diag diag = {{0}};
    return sbp_strategy_close(&s->model.graph, &s->mesh, &s->strategy, &diag);
}

void oracle_compile(struct oracle_setting *s, const struct sbp_element_bytes *bytes)
{
    struct sbp_diag diag = {{0}};
    if (sbp_strategy_close(&s->model.graph, &s->mesh, &s->strategy, &diag) != SBP_OK ||
        sbp_program_make(&s->model.graph, &s->cluster, &s->mesh, &s->strategy, bytes, &s->program,
                         &diag) != SBP_OK)
        fail_msg("%s: %s", s->model.graph.name, diag.text);
}

void oracle_drop(struct oracle_setting *s)
{
    sbp_program_free(&s->program);
    sbp_arena_free(&s->arena);
    oracle_model_drop(&s->model);
}

void oracle_near(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-11 * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, value, expected);
}

/* --- buffers hold what the strategy says --- */

int64_t oracle_local_elements(const struct oracle_setting *s, int tensor,
                              const struct sbp_dist *dist)
{
    int64_t elements = oracle_size(&s->model.graph.tensor[tensor].shape);
    for (int i = 0; i < s->mesh.axis_count; i++)
        if (dist->axis[i].kind == SBP_SPLIT)
            elements /= s->mesh.axis[i].size;
    return elements;
}

/* A sum hands its gradient on to both inputs, which are of one shape and of the same classes. */
static bool alike(const struct oracle_setting *s, int a, int b)
{
    const struct sbp_tensor *tensor = s->model.graph.tensor;
    if (a < 0 || b < 0)
        return a == b;
    for (int d = 0; d < SBP_MAX_DIMS; d++)
        if (tensor[a].shape.size[d] != tensor[b].shape.size[d] ||
            tensor[a].shape.dim_class[d] != tensor[b].shape.dim_class[d])
            return false;
    return true;
}

static void check_holds(const struct oracle_setting *s, int at, int slot, int tensor,
                        const struct sbp_dist *dist)
{
    const int i = s->program.instr[at].buffer[slot];
    char have[128], expected[128];
    assert_in_range(i, 0, s->program.buffer_count - 1);
    const struct sbp_buffer *buffer = &s->program.buffer[i];
    const struct sbp_dist held = sbp_dist_held(&s->mesh, dist);
    const int producer = s->model.graph.tensor[tensor].producer;
    const bool gradient = s->program.instr[at].kind == SBP_INSTR_BACKWARD ||
                          s->program.instr[at].cause == SBP_CAUSE_ACTIVATION_GRADIENT ||
                          (producer >= 0 && s->model.graph.op[producer].entry->in_place);
    if (!(gradient ? alike(s, buffer->tensor, tensor) : buffer->tensor == tensor) ||
        !sbp_dist_equal(&s->mesh, &buffer->dist, &held) ||
        buffer->elements != oracle_local_elements(s, tensor, dist))
        fail_msg("instruction %d, slot %d: tensor %d, %s, %lld elements; expected %d, %s, %lld", at,
                 slot, buffer->tensor, sbp_dist_text(&s->mesh, &buffer->dist, have, sizeof have),
                 (long long)buffer->elements, tensor,
                 sbp_dist_text(&s->mesh, dist, expected, sizeof expected),
                 (long long)oracle_local_elements(s, tensor, dist));
}

static void check_forward(const struct oracle_setting *s, int at)
{
    const struct sbp_instr *instr = &s->program.instr[at];
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_op_node *node = &graph->op[instr->op];
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist dist =
            sbp_strategy_input(graph, &s->mesh, &s->strategy, instr->op, i);
        if (node->kind != SBP_OP_CROSS_ENTROPY || instr->buffer[SBP_AT_IN] >= 0)
            check_holds(s, at, SBP_AT_IN + i, node->input[i], &dist);
    }
    for (int i = 0; i < node->weight_count; i++) {
        const struct sbp_dist dist =
            sbp_strategy_weight(graph, &s->mesh, &s->strategy, instr->op, i);
        check_holds(s, at, SBP_AT_W + i, node->weight[i], &dist);
    }
    if (node->output >= 0 && instr->buffer[SBP_AT_OUT] >= 0) {
        const struct sbp_dist dist = sbp_strategy_output(graph, &s->mesh, &s->strategy, instr->op);
        check_holds(s, at, SBP_AT_OUT, node->output, &dist);
    }
}

static void check_backward(const struct oracle_setting *s, int at)
{
    const struct sbp_instr *instr = &s->program.instr[at];
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_op_node *node = &graph->op[instr->op];
    if (node->output >= 0 && instr->buffer[SBP_AT_DY] >= 0) {
        const struct sbp_dist out = sbp_strategy_output(graph, &s->mesh, &s->strategy, instr->op);
        const struct sbp_dist dual = sbp_dist_dual(&s->mesh, &out);
        check_holds(s, at, SBP_AT_DY, node->output, &dual);
    }
    static const int outs[] = {SBP_AT_OUT, SBP_AT_OUT2, SBP_AT_OUT3};
    for (int i = 0; i < node->input_count; i++) {
        const struct sbp_dist in = sbp_strategy_input(graph, &s->mesh, &s->strategy, instr->op, i);
        const struct sbp_dist dual = sbp_dist_dual(&s->mesh, &in);
        if (instr->buffer[outs[i]] >= 0)
            check_holds(s, at, outs[i], node->input[i], &dual);
    }
}

static bool reads(const struct sbp_graph *graph, int op, int tensor)
{
    bool found = false;
    for (int i = 0; op >= 0 && i < graph->op[op].weight_count; i++)
        found |= graph->op[op].weight[i] == tensor;
    for (int i = 0; op >= 0 && i < graph->op[op].input_count; i++)
        found |= graph->op[op].input[i] == tensor;
    return found;
}

/* Whether two boxing steps belong to one list. */
static bool goes_on(const struct oracle_setting *s, int at, int next)
{
    const struct sbp_instr *a = &s->program.instr[at], *b = &s->program.instr[next];
    return next < s->program.instr_count && a->kind == b->kind && a->tensor == b->tensor &&
           a->cause == b->cause && sbp_dist_equal(&s->mesh, &a->box.to, &b->box.from);
}

/* A weight's gradient is summed in place: the list begins and ends where the update reads it, and
 * what it passes through are gradients. All-reduces stay where they are. */
static void check_sum(const struct oracle_setting *s, int at)
{
    const struct sbp_program *program = &s->program;
    const struct sbp_instr *instr = &program->instr[at];
    const int home = program->gradient_buffer[instr->tensor];
    const int in = instr->buffer[SBP_AT_IN], out = instr->buffer[SBP_AT_OUT];
    const bool first = !(at > 0 && goes_on(s, at - 1, at)), last = !goes_on(s, at, at + 1);
    assert_true(in == home || (!first && program->buffer[in].use == SBP_USE_UNREDUCED));
    assert_true(out == home || (!last && program->buffer[out].use == SBP_USE_UNREDUCED));
    assert_true((!first || in == home) && (!last || out == home));
    assert_true(in != out || instr->box.kind == SBP_ALL_REDUCE);
    if (!first)
        assert_int_equal(in, instr[-1].buffer[SBP_AT_OUT]);
    assert_int_equal(program->buffer[in].elements,
                     oracle_local_elements(s, instr->tensor, &instr->box.from));
    assert_int_equal(program->buffer[out].elements,
                     oracle_local_elements(s, instr->tensor, &instr->box.to));
}

static void check_box(const struct oracle_setting *s, int at)
{
    const struct sbp_instr *instr = &s->program.instr[at];
    const struct sbp_boxing_step *step = &instr->box;
    const struct sbp_shape *shape = &s->model.graph.tensor[instr->tensor].shape;
    const struct sbp_layout layout = {&s->mesh, s->model.graph.class_count, s->strategy.split};
    struct sbp_permutation pack, unpack;
    const int work = instr->buffer[SBP_AT_WORK], work2 = instr->buffer[SBP_AT_WORK2];
    assert_true(reads(&s->model.graph, instr->op, instr->tensor) ||
                s->model.graph.op[instr->op].output == instr->tensor);
    if (step->kind == SBP_LOCAL && instr->cause != SBP_CAUSE_WEIGHT_GRADIENT)
        return;
    sbp_boxing_pack(&layout, shape, step, &pack);
    sbp_boxing_unpack(&layout, shape, step, &unpack);
    if (pack.needed)
        assert_true(work >= 0 && s->program.buffer[work].elements >=
                                     oracle_local_elements(s, instr->tensor, &step->from));
    if (unpack.needed)
        assert_true(work2 >= 0 && s->program.buffer[work2].elements >=
                                      oracle_local_elements(s, instr->tensor, &step->to));
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT) {
        check_sum(s, at);
        return;
    }
    check_holds(s, at, SBP_AT_IN, instr->tensor, &step->from);
    check_holds(s, at, SBP_AT_OUT, instr->tensor, &step->to);
}

/* Every slot holds a buffer of its kind; indices stand where an operator looks for them. */
static void check_slots(const struct oracle_setting *s, int at)
{
    const struct sbp_program *program = &s->program;
    const struct sbp_instr *instr = &program->instr[at];
    for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++) {
        if (instr->buffer[slot] < 0)
            continue;
        const enum sbp_buffer_use use = program->buffer[instr->buffer[slot]].use;
        const bool weight = slot >= SBP_AT_W && slot < SBP_AT_W + SBP_MAX_WEIGHTS;
        const bool gradient = slot >= SBP_AT_DW && slot < SBP_AT_DW + SBP_MAX_WEIGHTS;
        const bool work = slot == SBP_AT_WORK || slot == SBP_AT_WORK2;
        const bool copy =
            instr->kind == SBP_INSTR_UPDATE && (slot == SBP_AT_W2 || slot == SBP_AT_DW2);
        assert_int_equal(use == SBP_USE_MASTER, copy);
        assert_int_equal(use == SBP_USE_WEIGHT, weight && !copy);
        assert_true(!gradient || copy || use == SBP_USE_GRADIENT);
        assert_true(!work || use == SBP_USE_WORK);
        if (instr->kind == SBP_INSTR_UPDATE && (slot == SBP_AT_SAVED || slot == SBP_AT_SAVED2))
            assert_int_equal(use, SBP_USE_MOMENT);
    }
    if (instr->kind != SBP_INSTR_FORWARD && instr->kind != SBP_INSTR_BACKWARD)
        return;
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    if (node->kind == SBP_OP_EMBEDDING) {
        assert_true(program->ids_buffer[instr->op] >= 0);
        assert_int_equal(instr->buffer[SBP_AT_IN], program->ids_buffer[instr->op]);
        assert_int_equal(instr->buffer[SBP_AT_IN2], program->positions_buffer[instr->op]);
    }
    if (node->kind == SBP_OP_CROSS_ENTROPY) {
        assert_int_equal(instr->buffer[SBP_AT_IN2], program->labels_buffer);
        assert_true(program->labels_buffer >= 0);
    }
}

/* How many phases an operator has backward, by what it is. */
static int backward_phases(const struct oracle_setting *s, const struct sbp_op_node *node)
{
    const struct sbp_graph *graph = &s->model.graph;
    bool wanted = false;
    for (int i = 0; i < node->input_count; i++)
        wanted |= node->input[i] != graph->input || graph->input_split;
    switch (node->kind) {
    case SBP_OP_ADD:
        return 0;
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM:
        return 2;
    case SBP_OP_LINEAR:
    case SBP_OP_CONV2D:
    case SBP_OP_SUMMA_LINEAR:
        return wanted ? 2 : 1;
    case SBP_OP_MOE:
        return wanted ? 4 : 1;
    case SBP_OP_CUSTOM:
        return node->weight_count > 0 && wanted ? 2 : node->weight_count > 0 || wanted;
    case SBP_OP_EMBEDDING:
    case SBP_OP_PATCH_EMBEDDING:
    case SBP_OP_BATCHNORM:
        return 1;
    case SBP_OP_CROSS_ENTROPY: /* in a wider type, and back */
        return s->program.bytes.loss > 0 ? 2 : 1;
    default:
        return wanted;
    }
}

/* Phases of an operator come once each and in order; products without a gradient of their input to
 * form begin with the second. */
static void check_phases(const struct oracle_setting *s)
{
    const struct sbp_graph *graph = &s->model.graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const int phases = backward_phases(s, node);
        int forward = 0, backward = 0, skipped = 0, parts = 1;
        for (int axis = 0; axis < s->mesh.axis_count; axis++)
            if (strcmp(oracle_role(graph, &s->strategy, op, axis)->name, "replicate") == 0)
                parts *= (int)s->mesh.axis[axis].size;
        for (int at = 0; at < s->program.instr_count; at++) {
            const struct sbp_instr *instr = &s->program.instr[at];
            if (instr->op == op && instr->kind == SBP_INSTR_FORWARD)
                assert_int_equal(instr->phase, forward++);
            if (instr->op != op || instr->kind != SBP_INSTR_BACKWARD)
                continue;
            skipped = backward == 0 ? instr->phase : skipped;
            assert_int_equal(instr->phase, skipped + backward++);
            assert_int_equal(instr->section,
                             sbp_op_has_weight_phase(graph, op) &&
                                     instr->phase == (node->kind == SBP_OP_MOE ? 3 : 1)
                                 ? SBP_SECTION_BACKWARD_WEIGHT
                                 : SBP_SECTION_BACKWARD);
            if (node->kind == SBP_OP_CROSS_ENTROPY) /* the mean over all tokens */
                oracle_near("factor", instr->factor,
                            1.0 / (double)(graph->global_batch * graph->sequence * parts));
        }
        const bool norm = node->kind == SBP_OP_LAYERNORM || node->kind == SBP_OP_RMSNORM;
        const bool three = node->kind == SBP_OP_CROSS_ENTROPY || node->kind == SBP_OP_MOE;
        const bool weights = phases == 1 && sbp_op_has_weight_phase(graph, op);
        assert_int_equal(forward, three ? 3 : norm ? 2 : 1);
        assert_int_equal(backward, phases);
        assert_int_equal(skipped, !weights ? 0 : node->kind == SBP_OP_MOE ? 3 : 1);
    }
}

/* Maxima of logits are maxima, everything else is a sum. */
static void check_reduction(const struct oracle_setting *s, int at)
{
    const struct sbp_instr *instr = &s->program.instr[at];
    const bool maxima = instr->cause == SBP_CAUSE_OPERATOR &&
                        s->model.graph.op[instr->op].kind == SBP_OP_CROSS_ENTROPY &&
                        s->program.instr[at - 1].phase == 0;
    assert_int_equal(instr->reduction, maxima);
}

/* Operators that only move bytes: what they read and write, once each. An update reads the
 * gradient, and reads and writes the parameter and its moments. */
static void check_moves(const struct oracle_setting *s, int at)
{
    const struct sbp_program *program = &s->program;
    const struct sbp_instr *instr = &program->instr[at];
    const bool operates = instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD;
    const enum sbp_op_kind op = operates ? program->graph->op[instr->op].kind : SBP_OP_KINDS;
    const bool update = instr->kind == SBP_INSTR_UPDATE && program->bytes.master == 0;
    if (op != SBP_OP_RELU && op != SBP_OP_GELU && op != SBP_OP_ADD && !update)
        return;
    double bytes = 0;
    for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++) {
        if (instr->buffer[slot] < 0 || (update && slot < SBP_AT_W))
            continue;
        const bool twice = update && slot != SBP_AT_DW;
        bytes += (twice ? 2 : 1) * (double)sbp_program_buffer_bytes(program, instr->buffer[slot]);
    }
    oracle_near("bytes moved", instr->compute_s, bytes / s->cluster.memory_bytes_per_s);
}

static void check_contents(const struct oracle_setting *s)
{
    check_phases(s);
    assert_int_equal(s->program.loss_buffer >= 0, s->model.graph.loss >= 0);
    assert_int_equal(s->program.labels_buffer >= 0, s->model.graph.loss >= 0);
    for (int op = 0; op < s->model.graph.op_count; op++)
        assert_int_equal(s->program.ids_buffer[op] >= 0,
                         s->model.graph.op[op].kind == SBP_OP_EMBEDDING);
    for (int at = 0; at < s->program.instr_count; at++) {
        check_slots(s, at);
        check_moves(s, at);
        if (s->program.instr[at].kind == SBP_INSTR_REDUCE)
            check_reduction(s, at);
    }

    const struct sbp_program *program = &s->program;
    for (int at = 0; at < program->instr_count; at++) {
        if (program->instr[at].kind == SBP_INSTR_FORWARD)
            check_forward(s, at);
        if (program->instr[at].kind == SBP_INSTR_BACKWARD)
            check_backward(s, at);
        if (program->instr[at].kind == SBP_INSTR_BOX)
            check_box(s, at);
    }
}

/* Every weight is updated once, after the last write to its gradient and after the norm. */
static void check_updates(const struct oracle_setting *s)
{
    const struct sbp_program *program = &s->program;
    const struct sbp_graph *graph = &s->model.graph;
    int updates = 0, weights = 0, norms = 0;
    for (int t = 0; t < graph->tensor_count; t++)
        weights += graph->tensor[t].kind == SBP_WEIGHT;
    for (int at = 0; at < program->instr_count; at++) {
        const struct sbp_instr *instr = &program->instr[at];
        norms += instr->kind == SBP_INSTR_NORM;
        if (instr->kind != SBP_INSTR_UPDATE)
            continue;
        updates++;
        assert_true(reads(graph, instr->op, instr->tensor));
        assert_int_equal(norms, sbp_program_has_norm(&graph->training, &program->bytes));
        assert_int_equal(instr->buffer[SBP_AT_W], program->weight_buffer[instr->tensor]);
        assert_int_equal(instr->buffer[SBP_AT_DW], program->gradient_buffer[instr->tensor]);
        assert_int_equal(instr->buffer[SBP_AT_SAVED], program->first_moment[instr->tensor]);
        assert_int_equal(instr->buffer[SBP_AT_SAVED2], program->second_moment[instr->tensor]);
        for (int later = at + 1; later < program->instr_count; later++)
            for (int slot = 0; slot < SBP_INSTR_BUFFERS; slot++)
                assert_true(program->instr[later].buffer[slot] != instr->buffer[SBP_AT_DW] &&
                            program->instr[later].buffer[slot] != instr->buffer[SBP_AT_W]);
    }
    assert_int_equal(updates, weights);
    const int moments = sbp_graph_training_moments(&graph->training);
    for (int t = 0; t < graph->tensor_count; t++) {
        const bool weight = graph->tensor[t].kind == SBP_WEIGHT;
        assert_int_equal(program->weight_buffer[t] >= 0, weight);
        assert_int_equal(program->gradient_buffer[t] >= 0, weight);
        assert_int_equal(program->first_moment[t] >= 0, weight && moments > 0);
        assert_int_equal(program->second_moment[t] >= 0, weight && moments > 1);
    }
}

/* --- calls --- */

static bool is_statistic(const struct sbp_program *program, const struct sbp_instr *instr)
{
    return program->buffer[instr->buffer[SBP_AT_OUT]].type == SBP_BUFFER_STATISTIC;
}

static void check_calls(const struct oracle_setting *s)
{
    struct sbp_arena arena = {0};
    struct sbp_call *calls;
    int count, next = 0;
    assert_int_equal(sbp_program_calls(&s->program, &arena, &calls, &count), SBP_OK);
    for (int at = 0; at < s->program.instr_count; at++) {
        const struct sbp_instr *instr = &s->program.instr[at];
        const bool communicates = (instr->kind == SBP_INSTR_BOX && instr->box.kind != SBP_LOCAL) ||
                                  instr->kind == SBP_INSTR_REDUCE || instr->kind == SBP_INSTR_INNER;
        if (!communicates || instr->box.axes == 0) {
            oracle_near("a silent instruction", instr->communication_s, 0);
            continue;
        }
        assert_in_range(next, 0, count - 1);
        const struct sbp_call *call = &calls[next++];
        const int64_t g = oracle_product(&s->mesh, instr->box.axes);
        assert_int_equal(call->kind, instr->box.kind);
        assert_int_equal(call->axes, instr->box.axes);
        assert_int_equal(call->instr, at);
        if (instr->kind == SBP_INSTR_INNER) { /* oracle_check_price knows what it costs */
            for (int k = 1; k < instr->times; k++)
                assert_int_equal(calls[next++].instr, at);
            continue;
        }
        assert_int_equal(call->count * (call->kind == SBP_ALL_REDUCE ? 1 : g), instr->box.elements);
        if (instr->kind == SBP_INSTR_REDUCE) {
            assert_int_equal(call->kind, SBP_ALL_REDUCE);
            assert_int_equal(call->count, s->program.buffer[instr->buffer[SBP_AT_OUT]].elements);
        }
        const enum sbp_cause cause = instr->cause;
        assert_true(cause != SBP_CAUSE_NONE);
        oracle_near("call",
                    sbp_collective_s(&s->cluster, &s->mesh, call->kind, call->axes,
                                     (double)instr->box.elements *
                                         (double)(cause == SBP_CAUSE_WEIGHT_GRADIENT
                                                      ? s->program.bytes.reduce
                                                  : is_statistic(&s->program, instr)
                                                      ? s->program.bytes.statistic
                                                      : s->program.bytes.activation)),
                    instr->communication_s);
    }
    assert_int_equal(next, count);
    sbp_arena_free(&arena);
}

/* --- all of them --- */

void oracle_check_program(const struct oracle_setting *s)
{
    oracle_check_memory(s);
    oracle_check_flow(s);
    check_contents(s);
    check_updates(s);
    check_calls(s);
    oracle_check_totals(s);
    oracle_check_price(s);
}
