#include <string.h>

#include "labelled_walk.h"
#include "tests/support/searched_roles.h"

/* --- what a space allows on one axis --- */

bool is_megatron(const struct walk *walk)
{
    const enum sbp_space_kind space = walk->request->space;
    return space == SBP_SPACE_MEGATRON || space == SBP_SPACE_MEGATRON_NODE ||
           space == SBP_SPACE_MEGATRON_3D;
}

/* Spaces in which work may be repeated where nothing divides it. */
static bool has_resorts(const struct walk *walk)
{
    return walk->request->space == SBP_SPACE_FULL || walk->request->space == SBP_SPACE_GSHARD;
}

static bool is_batch_alone(const struct walk *walk)
{
    switch (walk->request->space) {
    case SBP_SPACE_DATA_PARALLEL:
    case SBP_SPACE_ZERO:
    case SBP_SPACE_ZERO_1:
    case SBP_SPACE_ZERO_2:
    case SBP_SPACE_ZERO_3:
    case SBP_SPACE_MYELIN:
    case SBP_SPACE_CDP:
        return true;
    default:
        return false;
    }
}

/* A linear fed by the first of a pair through operators that leave its split alone is the second; a
 * tied head is split like its table, by the vocabulary. */
void find_pairs(struct walk *walk)
{
    const struct sbp_graph *graph = walk->graph;
    for (int op = 0; op < graph->op_count; op++) {
        int from = op;
        do {
            const int input = graph->op[from].input_count > 0 ? graph->op[from].input[0] : -1;
            from = input >= 0 ? graph->tensor[input].producer : -1;
        } while (from >= 0 &&
                 (graph->op[from].kind == SBP_OP_RELU || graph->op[from].kind == SBP_OP_GELU ||
                  graph->op[from].kind == SBP_OP_DROPOUT ||
                  graph->op[from].kind == SBP_OP_ATTENTION));
        walk->row[op] = graph->op[op].kind == SBP_OP_LINEAR && !graph->op[op].transposed_weight &&
                        from >= 0 && graph->op[from].kind == SBP_OP_LINEAR && !walk->row[from];
    }
}

static const char *tensor_role(const struct walk *walk, int op)
{
    if (walk->data_alone[op])
        return "batch";
    if (walk->tokens[op])
        return "sequence";
    switch (walk->graph->op[op].kind) {
    case SBP_OP_LINEAR:
        return walk->row[op] ? "row" : "column";
    case SBP_OP_EMBEDDING:
        return "vocab";
    case SBP_OP_ATTENTION:
        return "head";
    default:
        return "feature";
    }
}

static const struct sbp_fix *fix_of(const struct walk *walk, int op)
{
    for (int i = 0; i < walk->request->fix_count; i++)
        if (strcmp(walk->request->fix[i].layer, walk->graph->op[walk->graph->op[op].site].name) ==
            0)
            return &walk->request->fix[i];
    return NULL;
}

bool is_named(const struct walk *walk, int op, int role)
{
    const struct sbp_fix *fix = fix_of(walk, op);
    bool named = false;
    for (int level = 0; fix != NULL && level < walk->mesh->level_count; level++)
        named |= fix->factor[role][level] > 1;
    return walk->request->space == SBP_SPACE_FULL && named;
}

/* A role that takes partial sums on every input and leaves one. */
static bool is_sum_role(const struct walk *walk, int op, int role)
{
    const struct sbp_role *entry = &entry_of(walk, op)->role[role];
    bool sums = walk->graph->op[op].input_count > 0 && entry->output.kind == SBP_PARTIAL;
    for (int i = 0; i < walk->graph->op[op].input_count; i++)
        sums &= entry->input[i].kind == SBP_PARTIAL;
    return sums;
}

/* Spare roles are played where a fix names them, where sums may go on, and, but for partial sums,
 * where nothing else divides. */
bool spare_allowed(const struct walk *walk, int op, int role)
{
    const bool resort = fix_of(walk, op) == NULL && walk->resort[walk->graph->op[op].site] &&
                        entry_of(walk, op)->role[role].output.kind != SBP_PARTIAL &&
                        entry_of(walk, op)->role[role].output.kind != SBP_MIRRORED;
    return is_named(walk, op, role) || (has_resorts(walk) && resort) ||
           (walk->sums[op] && is_sum_role(walk, op, role));
}

/* Partial sums among what an operator reads or leaves; the loss is one anyway. */
static bool has_partial_sums(const struct walk *walk, int op, const struct sbp_role *role)
{
    bool partial = walk->graph->op[op].output >= 0 && role->output.kind == SBP_PARTIAL;
    for (int i = 0; i < walk->graph->op[op].input_count; i++)
        partial |= role->input[i].kind == SBP_PARTIAL;
    return partial;
}

bool role_allowed(const struct walk *walk, int op, int role, int axis)
{
    const struct sbp_role *entry = &entry_of(walk, op)->role[role];
    if (entry->spare)
        return spare_allowed(walk, op, role);
    const bool data = (walk->data >> axis & 1) != 0;
    if (is_batch_alone(walk))
        return strcmp(entry->name, "batch") == 0;
    if (is_megatron(walk))
        return strcmp(entry->name, data ? "batch" : tensor_role(walk, op)) == 0;
    switch (walk->request->space) {
    case SBP_SPACE_AUTODDL:
        return entry->paper;
    case SBP_SPACE_GSHARD:
        return !has_partial_sums(walk, op, entry);
    default:
        return true;
    }
}

/* Where a partial sum, or the model's input (op -1), may rest. */
bool rest_allowed(const struct walk *walk, int op, int dim, int axis)
{
    const bool data = (walk->data >> axis & 1) != 0;
    const bool tokens = walk->token_rest[op < 0 ? SBP_MAX_CLASSES : op];
    if (is_batch_alone(walk))
        return dim == SBP_DIM_BATCH;
    if (is_megatron(walk))
        return dim == (data ? SBP_DIM_BATCH : tokens ? SBP_DIM_SEQUENCE : SBP_DIM_FEATURE);
    return walk->request->space != SBP_SPACE_AUTODDL || dim != SBP_DIM_SEQUENCE;
}

/* --- legality, kept while choosing --- */

struct splits keep_splits(const struct walk *walk)
{
    struct splits kept;
    memcpy(kept.axes, walk->strategy.split, (size_t)walk->graph->class_count * sizeof *kept.axes);
    return kept;
}

void restore_splits(struct walk *walk, const struct splits *kept)
{
    memcpy(walk->strategy.split, kept->axes, (size_t)walk->graph->class_count * sizeof *kept->axes);
}

static bool divides(const struct walk *walk, int dim_class)
{
    int64_t parts = 1;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if ((walk->strategy.split[dim_class] >> axis & 1) != 0)
            parts *= walk->mesh->axis[axis].size;
    return walk->graph->dim_class[dim_class].size % parts == 0;
}

bool note(struct walk *walk, int tensor, int axis, struct sbp_state state)
{
    if (state.kind != SBP_SPLIT)
        return true;
    const int dim_class = walk->graph->tensor[tensor].shape.dim_class[state.dim];
    if (dim_class == SBP_NO_CLASS)
        return false;
    walk->strategy.split[dim_class] |= (sbp_axes)1 << axis;
    return divides(walk, dim_class);
}

static struct sbp_state weight_state(const struct walk *walk, int op, int weight, int role)
{
    struct sbp_state state = entry_of(walk, op)->role[role].weight[weight];
    if (walk->graph->op[op].transposed_weight && weight == 0 && state.kind == SBP_SPLIT)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

int role_on(const struct walk *walk, int op, int axis)
{
    if (!entry_of(walk, op)->follows)
        return walk->strategy.op[op].role[axis];
    const struct sbp_state at = walk->strategy.rest[walk->graph->op[op].input[0]].axis[axis];
    for (int role = 0; role < entry_of(walk, op)->role_count; role++)
        if (sbp_state_equal(entry_of(walk, op)->role[role].input[0], at))
            return role;
    return -1;
}

/* Whether two users of a weight go together on an axis: they hold it in the same state, split the
 * same dimension of their tokens where it is whole, and work that one repeats the other does, too.
 */
static bool users_agree(const struct walk *walk, int a, int weight_a, int role_a, int b,
                        int weight_b, int role_b)
{
    const struct sbp_role *left = &entry_of(walk, a)->role[role_a];
    const struct sbp_role *right = &entry_of(walk, b)->role[role_b];
    const struct sbp_state state = weight_state(walk, a, weight_a, role_a);
    return sbp_state_equal(state, weight_state(walk, b, weight_b, role_b)) &&
           (state.kind == SBP_SPLIT || strcmp(left->name, right->name) == 0) &&
           left->spare == right->spare;
}

/* An earlier user of the same weight must go together with this one. */
static bool weights_agree(const struct walk *walk, int op, int axis, int role)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    for (int other = 0; other < op; other++)
        for (int v = 0; v < walk->graph->op[other].weight_count; v++)
            for (int w = 0; w < node->weight_count; w++)
                if (walk->graph->op[other].weight[v] == node->weight[w] &&
                    !users_agree(walk, op, w, role, other, v, role_on(walk, other, axis)))
                    return false;
    return true;
}

/* Axes of the same level and size that the walk has still to give a role to after this one. */
static int like_axes_left(const struct walk *walk, int axis)
{
    const struct sbp_axis *own = &walk->mesh->axis[axis];
    int count = 0;
    for (int next = axis + 1; next < walk->mesh->axis_count; next++)
        count +=
            walk->mesh->axis[next].level == own->level && walk->mesh->axis[next].size == own->size;
    return count;
}

/* The operator reads every partial rest of its inputs as a sum. A reader that needs the sum reduced
 * gets that at the operator that leaves the sum, at the same cost but for latency. Another axis of
 * the same level and size may take the place of this one. */
bool reads_sums(const struct walk *walk, int op, int axis)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const struct sbp_axis *own = &walk->mesh->axis[axis];
    for (int i = 0; i < node->input_count && !walk->wide; i++) {
        int unread = 0;
        for (int other = 0; other <= axis; other++) {
            if (walk->mesh->axis[other].level != own->level ||
                walk->mesh->axis[other].size != own->size)
                continue;
            const struct sbp_role *role = &entry_of(walk, op)->role[role_on(walk, op, other)];
            unread += walk->strategy.rest[node->input[i]].axis[other].kind == SBP_PARTIAL;
            unread -= role->input[i].kind == SBP_PARTIAL;
        }
        if (unread > like_axes_left(walk, axis))
            return false;
    }
    return true;
}

static bool note_operands(struct walk *walk, int op, int axis, int role)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    for (int i = 0; i < node->input_count; i++)
        if (!note(walk, node->input[i], axis, entry_of(walk, op)->role[role].input[i]))
            return false;
    for (int w = 0; w < node->weight_count; w++)
        if (!note(walk, node->weight[w], axis, weight_state(walk, op, w, role)))
            return false;
    return true;
}

bool note_role(struct walk *walk, int op, int axis, int role)
{
    return note_operands(walk, op, axis, role) && weights_agree(walk, op, axis, role);
}

/* Operands and result as the role leaves it. */
static bool note_all(struct walk *walk, int op, int axis, int role)
{
    const int output = walk->graph->op[op].output;
    return note_operands(walk, op, axis, role) &&
           (output < 0 || note(walk, output, axis, entry_of(walk, op)->role[role].output));
}

/* --- operators that nothing divides --- */

/* The role in which an operator holds a shared weight as another operator holds it in its own. */
static int agreeing_role(const struct walk *walk, int op, int other, int role)
{
    const struct sbp_state state = weight_state(walk, op, 0, role);
    const char *name = entry_of(walk, op)->role[role].name;
    for (int r = 0; r < entry_of(walk, other)->role_count; r++)
        if (sbp_state_equal(weight_state(walk, other, 0, r), state) &&
            (state.kind == SBP_SPLIT || strcmp(entry_of(walk, other)->role[r].name, name) == 0))
            return r;
    return -1;
}

static bool shares_weight(const struct walk *walk, int op, int other)
{
    const struct sbp_op_node *a = &walk->graph->op[op], *b = &walk->graph->op[other];
    return a->weight_count > 0 && b->weight_count > 0 && a->weight[0] == b->weight[0];
}

/* Whether an operator, and those that it shares a weight with, may play a role on an axis, whether
 * the space has it or not. */
static bool may_play(struct walk *walk, int op, int axis, int role)
{
    bool legal = true;
    for (int other = 0; other < walk->graph->op_count && legal; other++) {
        const int own = other == op                       ? role
                        : !shares_weight(walk, op, other) ? -1
                                                          : agreeing_role(walk, op, other, role);
        if (own >= 0)
            legal = note_all(walk, other, axis, own);
    }
    return legal;
}

/* Whether a tensor rests as another does: operators that follow lead from one to the other. */
static bool rests_with(const struct walk *walk, int tensor, int other)
{
    while (other >= 0 && other != tensor) {
        const int producer = walk->graph->tensor[other].producer;
        other = producer >= 0 && entry_of(walk, producer)->follows
                    ? walk->graph->op[producer].input[0]
                    : -1;
    }
    return other == tensor;
}

/* Whether a tensor, and those that rest with it, may be split by an axis. */
static bool may_rest(struct walk *walk, int tensor, int axis, int dim)
{
    bool legal = rest_allowed(walk, walk->graph->tensor[tensor].producer, dim, axis);
    for (int t = 0; t < walk->graph->tensor_count && legal; t++)
        if (rests_with(walk, tensor, t))
            legal = note(walk, t, axis, SBP_STATE_S((uint8_t)dim));
    return legal;
}

/* Whether each axis from this one on can be given one of the first `count` ways (roles of an
 * operator, dimensions of a tensor) so that all go together. */
static bool goes_somehow(struct walk *walk, int subject, int axis, int count,
                         bool (*may_go)(struct walk *walk, int subject, int axis, int way))
{
    if (axis == walk->mesh->axis_count)
        return true;
    bool possible = false;
    for (int way = 0; way < count && !possible; way++) {
        const struct splits before = keep_splits(walk);
        possible = may_go(walk, subject, axis, way) &&
                   goes_somehow(walk, subject, axis + 1, count, may_go);
        restore_splits(walk, &before);
    }
    return possible;
}

static bool divides_somehow(struct walk *walk, int op)
{
    return goes_somehow(walk, op, 0, searched_roles(entry_of(walk, op)), may_play);
}

static bool rests_split_somehow(struct walk *walk, int tensor)
{
    return goes_somehow(walk, tensor, 0, SBP_MAX_DIMS - 1, may_rest);
}

void find_resorts(struct walk *walk)
{
    const int input = walk->graph->input;
    walk->input_resort = input >= 0 && has_resorts(walk) && !rests_split_somehow(walk, input);
    for (int op = 0; op < walk->graph->op_count; op++)
        if (walk->graph->op[op].output >= 0 && has_resorts(walk))
            walk->rest_resort[op] = !rests_split_somehow(walk, walk->graph->op[op].output);
    for (int op = 0; op < walk->graph->op_count; op++)
        if (!entry_of(walk, op)->follows && walk->graph->op[op].site == op)
            walk->resort[op] = !divides_somehow(walk, op);
}

/* --- sums that go on, tensors that are gathered once --- */

/* Reads of what rests where an operator leaves its output, by those that follow too. */
struct reads {
    int count, whole; /* by those that choose, and of these that may want it whole */
    bool all_take_sums;
};

static bool takes_sums(const struct walk *walk, int op, int input)
{
    for (int role = 0; role < entry_of(walk, op)->role_count; role++) {
        const struct sbp_role *entry = &entry_of(walk, op)->role[role];
        if (entry->input[input].kind == SBP_PARTIAL &&
            (!entry->spare || entry_of(walk, op)->follows || walk->sums[op]))
            return true;
    }
    return false;
}

static struct reads reads_of(const struct walk *walk, int tensor)
{
    struct reads reads = {.all_take_sums = true};
    for (int op = 0; op < walk->graph->op_count; op++)
        for (int i = 0; i < walk->graph->op[op].input_count; i++) {
            const struct sbp_op_entry *entry = entry_of(walk, op);
            bool wants_whole = false;
            if (!rests_with(walk, tensor, walk->graph->op[op].input[i]))
                continue;
            for (int role = 0; role < entry->role_count; role++)
                wants_whole |= entry->role[role].input[i].kind == SBP_BROADCAST &&
                               (!entry->role[role].spare || is_named(walk, op, role));
            reads.count += !entry->follows;
            reads.whole += !entry->follows && wants_whole;
            reads.all_take_sums &= takes_sums(walk, op, i);
        }
    return reads;
}

/* Whether what an operator reads or leaves may rest partial, as far as is known. */
static bool lives(const struct walk *walk, int tensor)
{
    int op = walk->graph->tensor[tensor].producer;
    while (op >= 0 && entry_of(walk, op)->follows)
        op = walk->graph->tensor[walk->graph->op[op].input[0]].producer;
    return op >= 0 && walk->partial_rest[op];
}

/* Two sums that become one, or one whose result is a sum that lives on; of one input, any. */
static bool sums_go_on(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    int sums = 0;
    bool can = false;
    for (int role = 0; role < node->entry->role_count; role++)
        can |= is_sum_role(walk, op, role);
    for (int i = 0; i < node->input_count; i++)
        sums += lives(walk, node->input[i]) ? 1 : 0;
    if (node->entry->follows || node->transposed_weight || !can || sums == 0)
        return false;
    return sums >= 2 || node->input_count == 1 || lives(walk, node->output);
}

/* Sums stay where they are left and every reader goes on with them. */
static bool output_lives(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    bool leaves = false;
    if (node->entry->follows || node->output < 0)
        return false;
    for (int role = 0; role < node->entry->role_count; role++)
        leaves |= node->entry->role[role].output.kind == SBP_PARTIAL &&
                  (!node->entry->role[role].spare || walk->sums[op] || is_named(walk, op, role));
    const struct reads reads = reads_of(walk, node->output);
    return leaves && reads.count > 0 && reads.all_take_sums;
}

/* Says whether a fact holds for all repeats of an operator's site, or for any of them. */
static bool holds(const struct walk *walk, int op, bool any,
                  bool (*fact)(const struct walk *walk, int op))
{
    bool result = !any;
    for (int repeat = 0; repeat < walk->graph->op_count; repeat++)
        if (walk->graph->op[repeat].site == walk->graph->op[op].site)
            result = any ? result || fact(walk, repeat) : result && fact(walk, repeat);
    return result;
}

/* Of operators that follow those whose output several linears read, which write as many features
 * together: it may rest elsewhere. */
static bool is_gathered_once(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    int linears = 0;
    if (node->output < 0)
        return false;
    const int64_t *size = walk->graph->tensor[node->output].shape.size;
    int64_t missing = size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
    for (int reader = 0; reader < walk->graph->op_count; reader++) {
        const struct sbp_op_node *linear = &walk->graph->op[reader];
        if (linear->kind != SBP_OP_LINEAR || linear->input[0] != node->output)
            continue;
        size = walk->graph->tensor[linear->output].shape.size;
        missing -= size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
        linears++;
    }
    return node->entry->follows ? linears >= 2 && missing <= 0
                                : reads_of(walk, node->output).whole >= 2;
}

/* Wherever an operator has the role and whoever follows can run; what nobody reads stays no sum. */
static void find_wide_rests(struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        const struct sbp_op_node *node = &walk->graph->op[op];
        walk->whole_rest[op] = !node->entry->follows || holds(walk, op, true, is_gathered_once);
        if (node->entry->follows)
            continue;
        walk->sums[op] = !node->transposed_weight;
        walk->partial_rest[op] = node->output >= 0 && reads_of(walk, node->output).count > 0;
    }
}

/* The largest set of sums that agrees with itself. */
void find_rests(struct walk *walk)
{
    const int ops = walk->graph->op_count;
    if (walk->request->space != SBP_SPACE_FULL)
        return;
    if (walk->wide) {
        find_wide_rests(walk);
        return;
    }
    for (int op = 0; op < ops; op++) {
        walk->sums[op] = walk->partial_rest[op] = true;
        walk->whole_rest[op] = holds(walk, op, true, is_gathered_once);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int op = 0; op < ops; op++) {
            const bool sums = walk->sums[op] && holds(walk, op, false, sums_go_on);
            changed |= sums != walk->sums[op];
            walk->sums[op] = sums;
        }
        for (int op = 0; op < ops; op++) {
            const bool rest = walk->partial_rest[op] && holds(walk, op, false, output_lives);
            changed |= rest != walk->partial_rest[op];
            walk->partial_rest[op] = rest;
        }
    }
}

/* --- one mesh for all: the way of each operator --- */

static bool mesh_divides_op(struct walk *walk, int op)
{
    const struct splits before = keep_splits(walk);
    bool legal = true;
    for (int axis = 0; axis < walk->mesh->axis_count && legal; axis++)
        for (int role = 0; role < entry_of(walk, op)->role_count && legal; role++)
            if (!entry_of(walk, op)->role[role].spare && role_allowed(walk, op, role, axis))
                legal = note_all(walk, op, axis, role);
    restore_splits(walk, &before);
    return legal;
}

/* A tensor, and all that rest with it, whose tensor axes split tokens. */
static bool tokens_divide(struct walk *walk, int tensor)
{
    const struct splits before = keep_splits(walk);
    bool legal = true;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        for (int t = 0; t < walk->graph->tensor_count && legal; t++)
            if (rests_with(walk, tensor, t) && (walk->data >> axis & 1) == 0)
                legal = note(walk, t, axis, SBP_STATE_S(SBP_DIM_SEQUENCE));
    restore_splits(walk, &before);
    return legal;
}

/* Tokens where they divide, else features; linears that these do not divide, by the batch. */
void find_ways(struct walk *walk)
{
    const struct sbp_graph *graph = walk->graph;
    const bool by_tokens = walk->request->space == SBP_SPACE_MEGATRON_3D;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        walk->data_alone[op] = false;
        walk->tokens[op] = by_tokens && node->kind == SBP_OP_ADD;
        if (walk->tokens[op] && !mesh_divides_op(walk, op))
            walk->tokens[op] = false;
        if (node->kind == SBP_OP_LINEAR && !node->transposed_weight && !mesh_divides_op(walk, op))
            walk->data_alone[op] = true;
        walk->token_rest[op] = by_tokens && node->output >= 0 && tokens_divide(walk, node->output);
    }
    walk->token_rest[SBP_MAX_CLASSES] =
        by_tokens && graph->input >= 0 && tokens_divide(walk, graph->input);
}
