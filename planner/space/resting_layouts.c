/* Where tensors may stay partial or whole between operators, as far as the graph decides it.
 *
 * Partial (OneFlow, section 3.3: of U V W, the sum of U V lives on through W): an operator that
 * leaves partial sums may hand them on, where every reader can go on with them. One reader that
 * cannot has them reduced; a rest that is split then does that once, and the others take the split
 * as a partial sum for nothing (S -> P is local), so that a partial rest costs as much or more. On
 * an axis that rests partial a reader plays a role that takes sums: what it would have reduced is
 * reduced where it is left (and has no digit to be scattered by where nothing else is split by it).
 * What goes on with sums:
 *
 *   of one input     (linear, reshapes, ...) where that input may rest partial: a tensor that does
 *                    not is reduced before, and what the operator makes of it would be once more.
 *   of several       (add) where two inputs may, whose sums are then reduced as one, or where one
 *                    may and the output may, too. With one sum alone, and an output that is
 *                    reduced, the reduction comes after instead of before, of as many elements.
 *
 * Whole: what two readers or more want whole is gathered once for all of them, or summed by one
 * all-reduce. With one reader, the gather comes before instead of after the rest, of as many
 * elements, and the operators that follow the rest repeat their work.
 *
 * In all of this a collective over some axes and one over others cost as one over all of them or
 * more. Where latency makes two rings over few cheaper than one over many, that is a matter of how
 * boxing is cut, which boxing=path decides.
 */
#include "planner/space/domain_build.h"
#include "planner/space/space_table.h"

/* One call of sbp_space_find_rests. */
struct finder {
    struct sbp_space *space;
    int *root; /* (tensor_count) whose rest decides: what followers leave rests with their input */
    int *readers, *whole; /* (tensor_count) of a root: all, those that may want it whole */
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

/* Whether an operator may, of its own accord, take an input (-1: leave its output) in a kind. */
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

/* States of a root, of the site's in repeats. */
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

/* Rules out what an operator, and the rest of what it leaves, cannot do in one of its repeats. */
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

/* The most that goes together: all may, but for what something rules out. */
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

static void find_readers(const struct finder *f)
{
    const struct sbp_graph *graph = f->space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        if (node->entry->follows && node->output >= 0)
            f->root[node->output] = f->root[node->input[0]];
        for (int i = 0; !node->entry->follows && i < node->input_count; i++) {
            f->readers[f->root[node->input[i]]]++;
            f->whole[f->root[node->input[i]]] += plays(f->space, op, i, SBP_BROADCAST);
        }
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
    if (f.root == NULL || f.readers == NULL || f.whole == NULL || f.refused == NULL ||
        space->goes_on == NULL || space->rests == NULL)
        return SBP_E_MEMORY;
    if (!sbp_space_rule(space->request->asked.space)->rests_freely)
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
