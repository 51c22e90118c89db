/* Recomputation: the forward work of a segment that its backward pass repeats, where it reads the
 * results, and the boxing of inputs that are kept as they rested (costmodel/program/program.c
 * drops the rest). */
#include "costmodel/program/regather.h"
#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

/* Whether an operator's backward pass reads an input; whether it reads anything that the forward
 * pass left. */
static bool reads_input(const struct sbp_space *space, int op, int input)
{
    return sbp_pricing_kept_whole(space, op).inputs >> input & 1;
}

static bool reads_results(const struct sbp_space *space, int op)
{
    const struct sbp_graph *graph = space->graph;
    const struct sbp_op_kept kept = sbp_pricing_kept_whole(space, op);
    const bool goes_back = sbp_op_forms_input_gradient(graph, op) || graph->op[op].weight_count > 0;
    return goes_back && (kept.output || kept.elements > 0 || kept.statistics > 0 || kept.bytes > 0);
}

/* Notes the forward work of a segment's operator that is repeated; asked: the segment reads its
 * output. */
static void recompute_op(const struct sbp_space *space, int op, bool asked,
                         struct sbp_recomputed *recomputed)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const bool selective = space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
    const bool left = selective && sbp_pricing_is_attention(node->kind); /* its output is kept */
    const bool recomputes = !left && (asked || reads_results(space, op));
    const bool halved = selective && sbp_op_has_weight_phase(space->graph, op);
    recomputed->boxed_output[op] = !left && asked;
    recomputed->left[op] = left && asked;
    recomputed->inner[op] = recomputes ? 1 : 0;
    recomputed->compute[op] = recomputed->inner[op] * (halved ? 0.5 : 1);
    for (int i = 0; i < node->input_count; i++) {
        const bool later = space->parallel->regather && sbp_op_has_weight_phase(space->graph, op);
        if (recomputed->inner[op] > 0 || (!later && reads_input(space, op, i)))
            recomputed->boxed[op] |= (uint8_t)(1u << i);
    }
}

/* Walks the segments of a piece, last operator first; asked (tensor_count) is scratch. */
static void recompute_segments(const struct sbp_space *space, int first, int end,
                               const int *segment, bool *asked, struct sbp_recomputed *recomputed)
{
    const struct sbp_graph *graph = space->graph;
    for (int op = end - 1; op >= first; op--) {
        const struct sbp_op_node *node = &graph->op[op];
        if (segment[op] < 0)
            continue;
        recomputed->in_segment[op] = true;
        recompute_op(space, op, node->output >= 0 && asked[node->output], recomputed);
        for (int i = 0; i < node->input_count; i++) {
            const int producer = graph->tensor[node->input[i]].producer;
            if (((recomputed->boxed[op] | recomputed->boxed_late[op]) >> i & 1) == 0)
                continue;
            if (producer >= segment[op])
                asked[node->input[i]] = true;
            else
                recomputed->enters[op] |= (uint8_t)(1u << i);
        }
    }
}

static void rebox_inputs(const struct sbp_space *space, struct sbp_recomputed *recomputed)
{
    const struct sbp_graph *graph = space->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            if (sbp_op_has_weight_phase(graph, op) && reads_input(space, op, i))
                recomputed->boxed_late[op] |= (uint8_t)(1u << i);
}

/* Finds who gathers the outputs of a piece again; gatherer (tensor_count) is scratch. */
static void find_gatherers(const struct sbp_space *space, int first, int end, const int *segment,
                           int *gatherer, struct sbp_recomputed *recomputed)
{
    const struct sbp_graph *graph = space->graph;
    sbp_regather_find(graph, first, end, segment, gatherer);
    for (int op = first; op < end; op++)
        recomputed->gatherer[op] = graph->op[op].output < 0 ? -1 : gatherer[graph->op[op].output];
}

static void recompute_attention(const struct sbp_space *space, struct sbp_recomputed *recomputed)
{
    for (int op = 0; op < space->graph->op_count; op++)
        if (sbp_pricing_is_attention(space->graph->op[op].kind))
            recomputed->compute[op] = recomputed->inner[op] = 1;
}

static bool allocate(const struct sbp_space *space, struct sbp_arena *arena,
                     struct sbp_recomputed *recomputed)
{
    const int ops = space->graph->op_count;
    recomputed->in_segment = SBP_NEW(arena, bool, ops);
    recomputed->boxed_output = SBP_NEW(arena, bool, ops);
    recomputed->gatherer = SBP_TAKE(arena, int, ops);
    recomputed->left = SBP_NEW(arena, bool, ops);
    recomputed->compute = SBP_NEW(arena, double, ops);
    recomputed->inner = SBP_NEW(arena, double, ops);
    recomputed->boxed = SBP_NEW(arena, uint8_t, ops);
    recomputed->boxed_late = SBP_NEW(arena, uint8_t, ops);
    recomputed->enters = SBP_NEW(arena, uint8_t, ops);
    for (int op = 0; recomputed->gatherer != NULL && op < ops; op++)
        recomputed->gatherer[op] = -1;
    return recomputed->in_segment != NULL && recomputed->boxed_output != NULL &&
           recomputed->gatherer != NULL && recomputed->left != NULL &&
           recomputed->compute != NULL && recomputed->inner != NULL && recomputed->boxed != NULL &&
           recomputed->boxed_late != NULL && recomputed->enters != NULL;
}

enum sbp_status sbp_pricing_find_recomputed(const struct sbp_space *space, struct sbp_arena *arena,
                                            struct sbp_recomputed *recomputed)
{
    const struct sbp_graph *graph = space->graph;
    const struct sbp_path_weights *weights = space->weights;
    int *segment = SBP_NEW(arena, int, graph->op_count);
    bool *asked = SBP_NEW(arena, bool, graph->tensor_count);
    int *gatherer = SBP_TAKE(arena, int, graph->tensor_count + 1);
    *recomputed = (struct sbp_recomputed){0};
    if (!allocate(space, arena, recomputed) || segment == NULL || asked == NULL || gatherer == NULL)
        return SBP_E_MEMORY;
    if (space->parallel->regather)
        rebox_inputs(space, recomputed);
    if (space->parallel->recompute == SBP_RECOMPUTE_ATTENTION)
        recompute_attention(space, recomputed);
    for (int op = 0; op < graph->op_count; op++)
        segment[op] = -1;
    for (int piece = 0; piece < weights->pieces; piece++) {
        const int first = weights->first[piece], end = weights->first[piece + 1];
        if (sbp_pricing_recomputes(space)) {
            SBP_TRY(
                sbp_stages_segments(graph, first, end, space->parallel->recompute_every, segment));
            recompute_segments(space, first, end, segment, asked, recomputed);
        }
        if (space->parallel->regather)
            find_gatherers(space, first, end, segment, gatherer, recomputed);
    }
    return SBP_OK;
}
