/* What a backward pass forms again: of a segment, the forward work whose results the pass reads,
 * and of inputs that are kept as they rested, their boxing (costmodel/program/program.c drops the
 * rest).
 */
#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

/* Whether the backward pass of an operator reads an input; what it left besides. */
static bool reads_input(const struct sbp_graph *graph, int op, int input)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    return sbp_op_kept(graph, op, &whole).inputs >> input & 1;
}

static bool reads_results(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_op_kept kept = sbp_op_kept(graph, op, &whole);
    return kept.output || kept.elements > 0 || kept.bytes > 0;
}

/* The forward pass of a segment's operator; asked: whether its output is read in the segment. */
static void form_op(const struct sbp_space *space, int op, bool asked, struct sbp_again *again)
{
    const struct sbp_op_node *node = &space->graph->op[op];
    const bool selective = space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
    const bool left = selective && sbp_space_is_attention(node->kind); /* it is kept */
    const bool formed = !left && (asked || reads_results(space->graph, op));
    const bool halved = selective && sbp_op_has_weight_phase(space->graph, op);
    again->boxed_output[op] = !left && asked;
    again->left[op] = left && asked;
    again->inner[op] = formed ? 1 : 0;
    again->compute[op] = again->inner[op] * (halved ? 0.5 : 1);
    for (int i = 0; i < node->input_count; i++) {
        const bool later = space->parallel->regather && sbp_op_has_weight_phase(space->graph, op);
        if (again->inner[op] > 0 || (!later && reads_input(space->graph, op, i)))
            again->boxed[op] |= (uint8_t)(1u << i);
    }
}

/* A piece's segments, last operator first; asked (tensor_count) is scratch. */
static void form_segments(const struct sbp_space *space, int first, int end, const int *segment,
                          bool *asked, struct sbp_again *again)
{
    const struct sbp_graph *graph = space->graph;
    for (int op = end - 1; op >= first; op--) {
        const struct sbp_op_node *node = &graph->op[op];
        if (segment[op] < 0)
            continue;
        again->in_segment[op] = true;
        form_op(space, op, node->output >= 0 && asked[node->output], again);
        for (int i = 0; i < node->input_count; i++) {
            const int producer = graph->tensor[node->input[i]].producer;
            if (((again->boxed[op] | again->boxed_late[op]) >> i & 1) == 0)
                continue;
            if (producer >= segment[op])
                asked[node->input[i]] = true;
            else
                again->enters[op] |= (uint8_t)(1u << i);
        }
    }
}

static void box_again(const struct sbp_space *space, struct sbp_again *again)
{
    const struct sbp_graph *graph = space->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            if (sbp_op_has_weight_phase(graph, op) && reads_input(graph, op, i))
                again->boxed_late[op] |= (uint8_t)(1u << i);
}

static void form_attention(const struct sbp_space *space, struct sbp_again *again)
{
    for (int op = 0; op < space->graph->op_count; op++)
        if (sbp_space_is_attention(space->graph->op[op].kind))
            again->compute[op] = again->inner[op] = 1;
}

static bool allocate(const struct sbp_space *space, struct sbp_arena *arena,
                     struct sbp_again *again)
{
    const int ops = space->graph->op_count;
    again->in_segment = SBP_NEW(arena, bool, ops);
    again->boxed_output = SBP_NEW(arena, bool, ops);
    again->left = SBP_NEW(arena, bool, ops);
    again->compute = SBP_NEW(arena, double, ops);
    again->inner = SBP_NEW(arena, double, ops);
    again->boxed = SBP_NEW(arena, uint8_t, ops);
    again->boxed_late = SBP_NEW(arena, uint8_t, ops);
    again->enters = SBP_NEW(arena, uint8_t, ops);
    return again->in_segment != NULL && again->boxed_output != NULL && again->left != NULL &&
           again->compute != NULL && again->inner != NULL && again->boxed != NULL &&
           again->boxed_late != NULL && again->enters != NULL;
}

enum sbp_status sbp_space_find_again(const struct sbp_space *space, struct sbp_arena *arena,
                                     struct sbp_again *again)
{
    const struct sbp_graph *graph = space->graph;
    const struct sbp_view *view = space->view;
    int *segment = SBP_NEW(arena, int, graph->op_count);
    bool *asked = SBP_NEW(arena, bool, graph->tensor_count);
    *again = (struct sbp_again){0};
    if (!allocate(space, arena, again) || segment == NULL || asked == NULL)
        return SBP_E_MEMORY;
    if (space->parallel->regather)
        box_again(space, again);
    if (space->parallel->recompute == SBP_RECOMPUTE_ATTENTION)
        form_attention(space, again);
    for (int piece = 0; sbp_space_forms_again(space) && piece < view->pieces; piece++) {
        const int first = view->first[piece], end = view->first[piece + 1];
        SBP_TRY(sbp_stages_segments(graph, first, end, space->parallel->recompute_every, segment));
        form_segments(space, first, end, segment, asked, again);
    }
    return SBP_OK;
}
