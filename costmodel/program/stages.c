#include "costmodel/program/stages.h"
#include "costmodel/model/op_cost.h"

#include <math.h>

/* ---- crossings ----------------------------------------------------------------------------- */

/* Whether a tensor that an operator reads was there before operator `op`. */
static bool comes_from_before(const struct sbp_graph *graph, int tensor, int op)
{
    const int producer = graph->tensor[tensor].producer;
    return producer < 0 ? tensor == graph->input && graph->input_split : producer < op;
}

int sbp_stages_crossing(const struct sbp_graph *graph, int op)
{
    int found = -1;
    for (int reader = op; reader < graph->op_count; reader++)
        for (int i = 0; i < graph->op[reader].input_count; i++) {
            const int tensor = graph->op[reader].input[i];
            if (!comes_from_before(graph, tensor, op) || tensor == found)
                continue;
            if (found >= 0)
                return -1;
            found = tensor;
        }
    return found;
}

/* cut[op]: one activation crosses before it. A tensor made by p and last read by l crosses before
 * p + 1 .. l: the sum of +1 and -1 over those. cut: (op_count + 1), zeroed. */
static enum sbp_status find_cuts(const struct sbp_graph *graph, struct sbp_arena *arena, bool *cut)
{
    int *last = SBP_NEW(arena, int, graph->tensor_count);
    int *change = SBP_NEW(arena, int, graph->op_count + 2);
    if (last == NULL || change == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            last[graph->op[op].input[i]] = op;
    for (int t = 0; t < graph->tensor_count; t++) {
        const int producer = graph->tensor[t].producer;
        const bool input = t == graph->input && graph->input_split;
        if (graph->tensor[t].kind != SBP_ACTIVATION || (producer < 0 && !input) ||
            last[t] <= producer)
            continue;
        change[producer + 1]++;
        change[last[t] + 1]--;
    }
    for (int op = 0, crossing = 0; op <= graph->op_count; op++) {
        crossing += change[op];
        cut[op] = op > 0 && op < graph->op_count && crossing == 1;
    }
    return SBP_OK;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Operators of a repeat, 0 unless operator `first` and those after it repeat as a whole. */
static int block_length(const struct sbp_graph *graph, int first)
{
    const int repeats = graph->op[first].repeats;
    int length = 0;
    if (graph->op[first].site != first || repeats < 2)
        return 0;
    for (int op = first + 1; op < graph->op_count && length == 0; op++)
        if (graph->op[op].site == first)
            length = op - first;
    if (length == 0 || first + (int64_t)repeats * length > graph->op_count)
        return 0;
    for (int op = first; op < first + repeats * length; op++)
        if (graph->op[op].site != first + (op - first) % length)
            return 0;
    return length;
}

int sbp_stages_blocks(const struct sbp_graph *graph, int *block)
{
    int count = 0;
    for (int op = 0; op < graph->op_count;) {
        const int length = block_length(graph, op);
        const int repeats = length == 0 ? 0 : graph->op[op].repeats;
        if (length == 0)
            block[op++] = -1;
        for (int i = 0; i < repeats * length; i++)
            block[op++] = count + i / length;
        count += repeats;
    }
    return count;
}

/* Units of recomputation: blocks, or the operators between a cut and the next operator with
 * weights, which keeps its input anyway. The loss is never among them. unit: (op_count), -1: none.
 */
static enum sbp_status find_units(const struct sbp_graph *graph, struct sbp_arena *arena, int *unit)
{
    if (sbp_stages_blocks(graph, unit) > 0)
        return SBP_OK;
    bool *cut = SBP_NEW(arena, bool, graph->op_count + 1);
    if (cut == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_cuts(graph, arena, cut));
    for (int op = 0, count = 0; op < graph->op_count; op++) {
        count += cut[op] && graph->op[op].weight_count > 0;
        unit[op] = op == graph->loss ? -1 : count;
    }
    return SBP_OK;
}

enum sbp_status sbp_stages_segments(const struct sbp_graph *graph, int first_op, int end_op,
                                    int64_t every, int *segment)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    int *unit = SBP_NEW(&arena, int, graph->op_count);
    enum sbp_status status = unit == NULL ? SBP_E_MEMORY : find_units(graph, &arena, unit);
    int64_t seen = 0; /* units since the last operator that is in none */
    for (int op = 0; op < graph->op_count && status == SBP_OK; op++) {
        segment[op] = -1;
        if (op < first_op || op >= end_op || unit[op] < 0) {
            seen = 0;
            continue;
        }
        const bool same = op > first_op && unit[op - 1] == unit[op];
        seen += same ? 0 : 1;
        segment[op] = same || (seen - 1) % every != 0 ? segment[op - 1] : op;
    }
    sbp_arena_free(&arena);
    return status;
}

/* ---- pieces -------------------------------------------------------------------------------- */

static int extra_block(int pieces, int extra, int piece)
{
    const int middle = pieces - 2;
    if (piece > 0 && piece < pieces - 1)
        return piece <= extra;
    return piece == 0 && extra > (middle > 0 ? middle : 0);
}

static void cut_blocks(const struct sbp_graph *graph, const int *block, int blocks, int pieces,
                       int *first)
{
    int next = 0; /* first block of the piece to come */
    first[0] = 0;
    for (int piece = 0, op = 0; piece + 1 < pieces; piece++) {
        next += blocks / pieces + extra_block(pieces, blocks % pieces, piece);
        while (op < graph->op_count && block[op] != next)
            op++;
        first[piece + 1] = op;
    }
    first[pieces] = graph->op_count;
}

/* Boundaries that a piece may end at, in order, the model's end last; 0 comes first. */
static int list_cuts(const struct sbp_graph *graph, const bool *cut, int *place)
{
    int count = 1;
    place[0] = 0;
    for (int op = 1; op <= graph->op_count; op++)
        if (cut[op] || op == graph->op_count)
            place[count++] = op;
    return count;
}

/* Adds one piece. before[i] is the least possible maximum of p - 1 pieces that end at the i-th
 * boundary, load[j] that of p pieces. As i grows, before[i] only grows and the load of the last
 * piece only shrinks; both grow with j. So the best i is where they cross, and it moves on with j.
 * Ties keep the earliest boundary. */
static void add_piece(const double *before, const double *sum, const int *place, int p, int width,
                      double *load, int *from)
{
    int cross = p - 1;
    for (int j = p; j < width; j++) {
        const double end = sum[place[j]];
        while (cross + 1 < j && before[cross] < end - sum[place[cross]])
            cross++;
        int best = cross;
        if (cross > p - 1 && fmax(before[cross - 1], end - sum[place[cross - 1]]) <=
                                 fmax(before[cross], end - sum[place[cross]]))
            best--;
        load[j] = fmax(before[best], end - sum[place[best]]);
        while (best > p - 1 && fmax(before[best - 1], end - sum[place[best - 1]]) == load[j])
            best--;
        from[j] = best;
    }
}

/* Exact: load[p][j] = least possible maximum of p pieces that end at the j-th boundary. */
static enum sbp_status cut_evenly(const struct sbp_graph *graph, struct sbp_arena *arena,
                                  const bool *cut, int pieces, int *first)
{
    int *place = SBP_NEW(arena, int, graph->op_count + 2);
    double *sum = SBP_NEW(arena, double, graph->op_count + 1);
    if (place == NULL || sum == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        sum[op + 1] = sum[op] + sbp_op_forward_flops(graph, op);
    const int width = list_cuts(graph, cut, place);
    double *load = SBP_NEW(arena, double, (int64_t)(pieces + 1) * width);
    int *from = SBP_NEW(arena, int, (int64_t)(pieces + 1) * width);
    if (load == NULL || from == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < (pieces + 1) * width; i++)
        load[i] = INFINITY;
    load[0] = 0;
    for (int p = 1; p <= pieces; p++)
        add_piece(load + (p - 1) * width, sum, place, p, width, load + p * width, from + p * width);
    if (isinf(load[pieces * width + width - 1]))
        return SBP_E_INPUT;
    first[pieces] = graph->op_count;
    for (int p = pieces, at = width - 1; p > 0; p--) {
        at = from[p * width + at];
        first[p - 1] = place[at];
    }
    return SBP_OK;
}

static enum sbp_status choose_cut(const struct sbp_graph *graph, struct sbp_arena *arena,
                                  int pieces, enum sbp_stage_cut how, int *first)
{
    int *block = SBP_NEW(arena, int, graph->op_count);
    bool *cut = SBP_NEW(arena, bool, graph->op_count + 1);
    if (block == NULL || cut == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_cuts(graph, arena, cut));
    const int blocks = sbp_stages_blocks(graph, block);
    if (blocks < pieces || how == SBP_CUT_FLOPS)
        return cut_evenly(graph, arena, cut, pieces, first);
    cut_blocks(graph, block, blocks, pieces, first);
    return SBP_OK;
}

enum sbp_status sbp_stages_cut(const struct sbp_graph *graph, int pieces, enum sbp_stage_cut cut,
                               int *first, struct sbp_diag *diag)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    const enum sbp_status status = choose_cut(graph, &arena, pieces, cut, first);
    sbp_arena_free(&arena);
    if (status == SBP_E_INPUT)
        return sbp_fail(diag, status,
                        "stages: %s: has fewer places where one activation crosses than %d stages "
                        "need",
                        graph->name, pieces);
    return status == SBP_OK ? sbp_stages_check(graph, pieces, first, diag)
                            : sbp_fail(diag, status, "out of memory while cutting stages");
}

/* The operator that block number `next` begins with; op_count behind the last block. */
static int block_begin(const struct sbp_graph *graph, const int *block, int next, int blocks)
{
    int op = 0;
    while (op < graph->op_count && block[op] != next)
        op++;
    if (next < blocks)
        return op;
    for (op = graph->op_count; op > 0 && block[op - 1] < 0; op--)
        continue; /* what follows the last block */
    return op;
}

static enum sbp_status cut_given(const struct sbp_graph *graph, int pieces, const int *block,
                                 int blocks, const struct sbp_parallel *parallel, int *first,
                                 struct sbp_diag *diag)
{
    int64_t total = 0;
    for (int piece = 0; piece < pieces; piece++)
        total += parallel->stage_blocks[piece];
    if (total != blocks)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: stage_cut: the pieces have %lld blocks, the model has %d",
                        (long long)total, blocks);
    first[0] = 0;
    for (int piece = 1, next = 0; piece < pieces; piece++) {
        next += parallel->stage_blocks[piece - 1];
        first[piece] = next == 0 ? first[piece - 1] : block_begin(graph, block, next, blocks);
        if (next == 0 && piece == 1)
            first[1] = block_begin(graph, block, 0, blocks);
        if (first[piece] <= first[piece - 1] || first[piece] >= graph->op_count)
            return sbp_fail(diag, SBP_E_INPUT,
                            "parallel: stage_cut: piece %d has no operator; 0 blocks are legal for "
                            "the first piece, which has the embedding, and the last, which has the "
                            "head",
                            first[piece] >= graph->op_count ? piece : piece - 1);
    }
    first[pieces] = graph->op_count;
    return SBP_OK;
}

enum sbp_status sbp_stages_cut_as(const struct sbp_graph *graph, int pieces,
                                  const struct sbp_parallel *parallel, int *first,
                                  struct sbp_diag *diag)
{
    struct sbp_arena arena;
    if (parallel->stage_blocks_count != pieces)
        return sbp_stages_cut(graph, pieces, parallel->stage_cut, first, diag);
    sbp_arena_init(&arena);
    int *block = SBP_NEW(&arena, int, graph->op_count);
    const enum sbp_status status =
        block == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory while cutting stages")
                      : cut_given(graph, pieces, block, sbp_stages_blocks(graph, block), parallel,
                                  first, diag);
    sbp_arena_free(&arena);
    return status == SBP_OK ? sbp_stages_check(graph, pieces, first, diag) : status;
}

enum sbp_status sbp_stages_check(const struct sbp_graph *graph, int pieces, const int *first,
                                 struct sbp_diag *diag)
{
    if (first[0] != 0 || first[pieces] != graph->op_count)
        return sbp_fail(diag, SBP_E_INPUT,
                        "stages: pieces cover operators %d to %d, all %d are "
                        "legal",
                        first[0], first[pieces], graph->op_count);
    for (int i = 1; i < pieces; i++) {
        if (first[i] <= first[i - 1] || first[i] >= graph->op_count)
            return sbp_fail(diag, SBP_E_INPUT,
                            "stages: piece %d begins at operator %d, legal are %d to %d", i,
                            first[i], first[i - 1] + 1, graph->op_count - 1);
        if (sbp_stages_crossing(graph, first[i]) < 0)
            return sbp_fail(diag, SBP_E_INPUT,
                            "stages: %s: a stage begins where several activations cross, one is "
                            "legal",
                            graph->op[first[i]].name);
    }
    return SBP_OK;
}

/* `holder`: of the operators; each counts once. */
static void count_holders(const struct sbp_graph *graph, int begin, int end, int holder, int *seen,
                          int *holders)
{
    for (int op = begin; op < end; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++) {
            const int tensor = graph->op[op].weight[w];
            if (seen[tensor] == holder + 1)
                continue;
            seen[tensor] = holder + 1;
            holders[tensor]++;
        }
}

enum sbp_status sbp_stages_holders(const struct sbp_graph *graph, int pieces, int stages,
                                   const int *first, int *holders)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    int *seen = SBP_NEW(&arena, int, graph->tensor_count);
    for (int t = 0; t < graph->tensor_count; t++)
        holders[t] = 0;
    for (int stage = 0; seen != NULL && stage < stages; stage++)
        for (int piece = stage; piece < pieces; piece += stages)
            count_holders(graph, first[piece], first[piece + 1], stage, seen, holders);
    sbp_arena_free(&arena);
    return seen == NULL ? SBP_E_MEMORY : SBP_OK;
}

enum sbp_status sbp_stages_copies(const struct sbp_graph *graph, int pieces, int stages, int stage,
                                  const int *first, int *copies)
{
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    int *seen = SBP_NEW(&arena, int, graph->tensor_count);
    for (int t = 0; t < graph->tensor_count; t++)
        copies[t] = 0;
    for (int piece = stage; seen != NULL && piece < pieces; piece += stages)
        count_holders(graph, first[piece], first[piece + 1], piece, seen, copies);
    sbp_arena_free(&arena);
    return seen == NULL ? SBP_E_MEMORY : SBP_OK;
}
