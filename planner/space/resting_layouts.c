/* Where tensors may rest partial (P) or whole (B) between operators in a first pass, as far as the
 * graph decides it. Layouts that hardly pay are left out here.
 *
 * Partial (OneFlow, section 3.3: in U V W, the sum of U V lives on through W). An output may rest
 * P only if every reader can go on with partial sums. A reader that cannot needs the tensor
 * reduced; a split rest then reduces it once, and the other readers take the split as a partial
 * sum for nothing (S -> P is local), so that a partial rest costs as much or more. On an axis that
 * rests P, readers play a role that takes sums. An operator goes on with sums
 * - with one input (linear, reshapes, ...) where that input may rest P: else its input is reduced
 * before it, and its output would be reduced once more;
 * - with several inputs (add) where two of them may rest P, whose sums are then reduced as one, or
 * where one of them and the output may. With one sum alone and a reduced output, the reduction
 * comes after instead of before, of as many elements.
 *
 * Whole. Where two readers or more want a tensor whole, it is gathered once for all of them, or
 * summed by one all-reduce. With one reader the gather would come before the rest instead of after
 * it, of as many elements, and followers of the rest would repeat their work. So where several
 * linears read what a follower leaves (queries, keys and values behind a norm), that has a rest of
 * its own: the norm works on a split, and what it leaves is gathered once.
 *
 * All of this assumes that collectives over two sets of axes cost at least as much as one over
 * both. Where latency makes two short rings cheaper than a long one, boxing=path decides how
 * boxing is cut.
 */
#include "costmodel/program/regather.h"
#include "planner/space/domain_build.h"
#include "planner/space/space_table.h"

/* One call of sbp_space_find_rests. */
struct finder {
    struct sbp_space *space;
    int *root; /* (tensor_count) tensor whose rest decides: followers leave theirs where their
                  input rests */
    int *readers, *whole; /* (tensor_count) of a root: all readers, those that may want it whole */
    bool *refused;        /* (tensor_count) of a root: some reader cannot go on with sums */
};

/* ---- operators ------------------------------------------------------------------------------ */

int sbp_space_sum_role(const struct sbp_op_entry *entry, int inputs)
{
    for (int r = 0; r < entry->role_count; r++) {
        bool sums = inputs > 0 && entry->role[r].output.kind == SBP_PARTIAL;
        for (int i = 0; i < inputs; i++)
            sums &= entry->role[r].input[i].kind == SBP_PARTIAL;
        if (sums)
            return r;
    }
    return -1;
}

/* Whether an operator may take an input (-1: leave its output) in a kind of state. */
static bool plays(const struct sbp_space *space, int op, int input, enum sbp_kind kind)
{
    const struct sbp_op_entry *entry = sbp_space_entry(space->graph, op);
    for (int r = 0; r < entry->role_count; r++) {
        const struct sbp_role *role = &entry->role[r];
        if ((input < 0 ? role->output : role->input[input]).kind == kind &&
            sbp_space_may_play(space, op, r))
            return true;
    }
    return false;
}

static bool *goes_on(const struct finder *f, int op)
{
    return &f->space->goes_on[f->space->graph->op[op].site];
}

/* The states of a tensor's root; repeats share those of their site. */
static uint8_t *rests(const struct finder *f, int tensor)
{
    const struct sbp_graph *graph = f->space->graph;
    const int root = f->root[tensor], producer = graph->tensor[root].producer;
    return &f->space->rests[producer < 0 ? root : graph->op[graph->op[producer].site].output];
}

static bool is_partial(const struct finder *f, int tensor)
{
    return (*rests(f, tensor) >> SBP_REST_PARTIAL & 1) != 0;
}

/* ---- partial sums --------------------------------------------------------------------------- */

static bool takes_sums(const struct finder *f, int op, int input)
{
    const struct sbp_op_entry *entry = sbp_space_entry(f->space->graph, op);
    return entry->follows ? sbp_space_sum_role(entry, 1) >= 0
                          : plays(f->space, op, input, SBP_PARTIAL);
}

static void note_readers(const struct finder *f)
{
    const struct sbp_graph *graph = f->space->graph;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            f->refused[f->root[graph->op[op].input[i]]] |= !takes_sums(f, op, i);
}

static bool may_go_on(const struct finder *f, int op)
{
    const struct sbp_op_node *node = &f->space->graph->op[op];
    int sums = 0;
    for (int i = 0; i < node->input_count; i++)
        sums += is_partial(f, node->input[i]);
    return sums > 1 || (sums == 1 && (node->input_count == 1 || is_partial(f, node->output)));
}

/* Takes from an operator, and from the rest of its output, what it cannot do in one of its
 * repeats. */
static bool rule_out(const struct finder *f, int op)
{
    const struct sbp_op_node *node = &f->space->graph->op[op];
    bool changed = false;
    if (node->entry->follows || node->output < 0)
        return false;
    if (*goes_on(f, op) && !may_go_on(f, op)) {
        *goes_on(f, op) = false;
        changed = true;
    }
    if (is_partial(f, node->output) && (f->refused[node->output] || f->readers[node->output] == 0 ||
                                        !plays(f->space, op, -1, SBP_PARTIAL))) {
        *rests(f, node->output) &= (uint8_t) ~(1u << SBP_REST_PARTIAL);
        changed = true;
    }
    return changed;
}

/* Finds the largest consistent set: everything is allowed at first, then ruled out until nothing
 * changes. */
static void find_sums(const struct finder *f)
{
    const struct sbp_graph *graph = f->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (node->entry->follows || node->output < 0)
            continue;
        /* A tied head plays its embedding's roles, none of which reads sums. */
        *goes_on(f, op) =
            !node->transposed_weight && sbp_space_sum_role(node->entry, node->input_count) >= 0;
        *rests(f, node->output) |= 1u << SBP_REST_PARTIAL;
    }
    for (bool changed = true; changed;) {
        changed = false;
        note_readers(f);
        for (int op = 0; op < graph->op_count; op++)
            changed |= rule_out(f, op);
    }
}

/* ---- the whole graph ------------------------------------------------------------------------ */

static bool rests_apart(const struct finder *f, int op)
{
    return f->space->rests_apart[f->space->graph->op[op].site];
}

/* The tensor that decides where what a follower runs on rests, where its output rests apart. */
static int root_before(const struct finder *f, int tensor)
{
    const struct sbp_graph *graph = f->space->graph;
    const int op = graph->tensor[tensor].producer;
    return op >= 0 && graph->op[op].entry->follows ? f->root[graph->op[op].input[0]] : -1;
}

static void find_readers(const struct finder *f)
{
    const struct sbp_graph *graph = f->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (node->entry->follows && node->output >= 0 && !rests_apart(f, op))
            f->root[node->output] = f->root[node->input[0]];
        for (int i = 0; !node->entry->follows && i < node->input_count; i++)
            for (int t = f->root[node->input[i]]; t >= 0; t = root_before(f, t)) {
                f->readers[t]++;
                f->whole[t] += plays(f->space, op, i, SBP_BROADCAST);
            }
    }
}

/* Finds the followers whose outputs have a rest of their own, where the space knows more rests than
 * splits or the request gives one. */
static void find_apart(const struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const bool searches =
        space->is_open || sbp_space_rule(space->request->asked.space)->plays_spare;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_fix *fix = sbp_space_fix(space, op);
        if (graph->op[op].site != op || !graph->op[op].entry->follows || graph->op[op].output < 0)
            continue;
        space->rests_apart[op] =
            (fix != NULL && fix->rests) || (searches && sbp_regather_rests_apart(graph, op));
    }
}

enum sbp_status sbp_space_find_rests(struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    const size_t tensors = (size_t)graph->tensor_count + 1;
    const struct finder f = {.space = space,
                             .root = SBP_NEW(&space->arena, int, tensors),
                             .readers = SBP_NEW(&space->arena, int, tensors),
                             .whole = SBP_NEW(&space->arena, int, tensors),
                             .refused = SBP_NEW(&space->arena, bool, tensors)};
    space->goes_on = SBP_NEW(&space->arena, bool, graph->op_count + 1);
    space->rests = SBP_NEW(&space->arena, uint8_t, tensors);
    space->rests_apart = SBP_NEW(&space->arena, bool, graph->op_count + 1);
    if (f.root == NULL || f.readers == NULL || f.whole == NULL || f.refused == NULL ||
        space->goes_on == NULL || space->rests == NULL || space->rests_apart == NULL)
        return SBP_E_MEMORY;
    find_apart(space);
    if (!sbp_space_rule(space->request->asked.space)->plays_spare || space->is_open)
        return SBP_OK;
    for (int t = 0; t < graph->tensor_count; t++)
        f.root[t] = t;
    find_readers(&f);
    find_sums(&f);
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].producer >= 0 && f.root[t] == t && f.whole[t] > 1)
            *rests(&f, t) |= 1u << SBP_REST_WHOLE;
    return SBP_OK;
}
