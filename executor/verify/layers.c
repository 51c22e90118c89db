#include "executor/verify/layers_priv.h"

#include "costmodel/program/stages.h"
#include "executor/verify/norm_groups_priv.h"

enum sbp_status sbp_layers_whole(const struct sbp_graph *graph, int64_t rows,
                                 struct sbp_arena *arena, struct sbp_layers *layers)
{
    *layers = (struct sbp_layers){.pieces = 1,
                                  .first = SBP_NEW(arena, int, 2),
                                  .rows = rows,
                                  .times = graph->global_batch / rows};
    if (layers->first == NULL)
        return SBP_E_MEMORY;
    layers->first[1] = graph->op_count;
    return SBP_OK;
}

/* The most rows of a micro-batch that are no more tokens than go through at a time; at least one.
 * Images that share statistics go through together. */
static int64_t rows_of(const struct sbp_graph *graph)
{
    if (sbp_norm_groups_has(graph))
        return graph->micro_batch;
    for (int64_t rows = graph->micro_batch; rows > 1; rows--)
        if (graph->micro_batch % rows == 0 && rows * graph->sequence <= SBP_LAYERS_TOKENS)
            return rows;
    return 1;
}

static bool begins(const struct sbp_graph *graph, const struct sbp_step *step, int op)
{
    for (int piece = 1; step != NULL && piece < step->pieces; piece++)
        if (step->first[piece] == op)
            return true;
    return graph->op[op].weight_count > 0 && sbp_stages_crossing(graph, op) >= 0;
}

enum sbp_status sbp_layers_make(const struct sbp_graph *graph, const struct sbp_step *step,
                                struct sbp_arena *arena, struct sbp_layers *layers)
{
    const int64_t rows = rows_of(graph);
    *layers = (struct sbp_layers){.pieces = 1,
                                  .first = SBP_NEW(arena, int, graph->op_count + 1),
                                  .rows = rows,
                                  .times = graph->global_batch / rows};
    if (layers->first == NULL)
        return SBP_E_MEMORY;
    for (int op = 1; op < graph->op_count; op++)
        if (begins(graph, step, op))
            layers->first[layers->pieces++] = op;
    layers->first[layers->pieces] = graph->op_count;
    return SBP_OK;
}

enum sbp_status sbp_layers_visit(const struct sbp_layers *layers,
                                 enum sbp_status (*visit)(void *context,
                                                          const struct sbp_layers_pass *visit,
                                                          struct sbp_diag *diag),
                                 void *context, struct sbp_diag *diag)
{
    const int last = layers->pieces - 1;
    for (int64_t m = 0; m < layers->times; m++) {
        for (int piece = 0; piece < last; piece++)
            SBP_TRY(visit(context, &(struct sbp_layers_pass){m, piece, false, m == 0}, diag));
        for (int piece = last; piece >= 0; piece--)
            SBP_TRY(visit(
                context, &(struct sbp_layers_pass){m, piece, true, m == 0 && piece == last}, diag));
    }
    return SBP_OK;
}

bool sbp_layers_meets(const struct sbp_layers *layers, const struct sbp_graph *graph, int piece,
                      int op, int w)
{
    const int tensor = graph->op[op].weight[w];
    for (int other = layers->first[piece]; other <= op; other++)
        for (int i = 0; i < graph->op[other].weight_count; i++)
            if (graph->op[other].weight[i] == tensor)
                return other == op && i == w;
    return false;
}
