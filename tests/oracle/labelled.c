#include "labelled.h"
#include "tests/searched_roles.h"

#include <math.h>
#include <string.h>

struct walk {
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    const struct sbp_request *request;
    sbp_axes data;             /* megatron: the axes of data parallelism */
    bool row[SBP_MAX_CLASSES]; /* megatron: (op_count) the second linear of a pair */
    /* megatron: (op_count) the operator itself, its partial sums, are split by tokens on tensor
     * axes; it is data-parallel on all axes. Last: the model's input. */
    bool tokens[SBP_MAX_CLASSES], token_rest[SBP_MAX_CLASSES + 1], data_alone[SBP_MAX_CLASSES];
    bool resort[SBP_MAX_CLASSES];      /* (op_count) no roles but spare ones divide it */
    bool rest_resort[SBP_MAX_CLASSES]; /* (op_count) nothing divides its output at rest */
    bool input_resort;                 /* nothing divides the model's input at rest */
    /* (op_count) full: goes on with partial sums; leaves what may rest partial, whole. */
    bool sums[SBP_MAX_CLASSES], partial_rest[SBP_MAX_CLASSES], whole_rest[SBP_MAX_CLASSES];
    bool wide;        /* sums go on and tensors rest whole wherever that is legal */
    int first_choice; /* the decision whose order of axes is fixed; -1: the model's input */
    struct sbp_strategy strategy;
    /* Which strategy the walk must equal (membership), or NULL. */
    const struct sbp_strategy *wanted;
    enum sbp_status (*visit)(struct walk *walk);
    void *context;
    int64_t visited, most;
};

static const struct sbp_op_entry *entry_of(const struct walk *walk, int op)
{
    return walk->graph->op[op].entry;
}

/* --- what a space allows on one axis --- */

static bool is_megatron(const struct walk *walk)
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
static void find_pairs(struct walk *walk)
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

static bool is_named(const struct walk *walk, int op, int role)
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
static bool spare_allowed(const struct walk *walk, int op, int role)
{
    const bool resort = fix_of(walk, op) == NULL && walk->resort[walk->graph->op[op].site] &&
                        entry_of(walk, op)->role[role].output.kind != SBP_PARTIAL;
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

static bool role_allowed(const struct walk *walk, int op, int role, int axis)
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
static bool rest_allowed(const struct walk *walk, int op, int dim, int axis)
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

static bool divides(const struct walk *walk, int dim_class)
{
    int64_t parts = 1;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if ((walk->strategy.split[dim_class] >> axis & 1) != 0)
            parts *= walk->mesh->axis[axis].size;
    return walk->graph->dim_class[dim_class].size % parts == 0;
}

static bool note(struct walk *walk, int tensor, int axis, struct sbp_state state)
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

static int role_on(const struct walk *walk, int op, int axis)
{
    if (!entry_of(walk, op)->follows)
        return walk->strategy.op[op].role[axis];
    const struct sbp_state at = walk->strategy.rest[walk->graph->op[op].input[0]].axis[axis];
    for (int role = 0; role < entry_of(walk, op)->role_count; role++)
        if (sbp_state_equal(entry_of(walk, op)->role[role].input[0], at))
            return role;
    return -1;
}

/* Whether two users of a weight go together on an axis: they hold it in the same state, and work
 * that one repeats the other does, too. */
static bool users_agree(const struct walk *walk, int a, int weight_a, int role_a, int b,
                        int weight_b, int role_b)
{
    const struct sbp_role *left = &entry_of(walk, a)->role[role_a];
    const struct sbp_role *right = &entry_of(walk, b)->role[role_b];
    return sbp_state_equal(weight_state(walk, a, weight_a, role_a),
                           weight_state(walk, b, weight_b, role_b)) &&
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

/* What rests partial is read as a sum: a reader that would have it reduced has that done where the
 * sum is left, at the same cost but for latency. */
static bool reads_sums(const struct walk *walk, int op, int axis, int role)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    for (int i = 0; i < node->input_count && !walk->wide; i++)
        if (walk->strategy.rest[node->input[i]].axis[axis].kind == SBP_PARTIAL &&
            entry_of(walk, op)->role[role].input[i].kind != SBP_PARTIAL)
            return false;
    return true;
}

static bool note_role(struct walk *walk, int op, int axis, int role)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    for (int i = 0; i < node->input_count; i++)
        if (!note(walk, node->input[i], axis, entry_of(walk, op)->role[role].input[i]))
            return false;
    for (int w = 0; w < node->weight_count; w++)
        if (!note(walk, node->weight[w], axis, weight_state(walk, op, w, role)))
            return false;
    return weights_agree(walk, op, axis, role);
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

/* Whether roles of the axes, drawn from the first to the last, can go on to a whole strategy of one
 * operator and of those that it shares a weight with: any roles that are not spare, whether the
 * space has them or not. */
static bool divides_somehow(struct walk *walk, int op, int axis)
{
    if (axis == walk->mesh->axis_count)
        return true;
    sbp_axes before[64];
    const size_t bytes = (size_t)walk->graph->class_count * sizeof *before;
    bool possible = false;
    memcpy(before, walk->strategy.split, bytes);
    for (int role = 0; role < searched_roles(entry_of(walk, op)) && !possible; role++) {
        bool legal = true;
        for (int other = 0; other < walk->graph->op_count && legal; other++) {
            const int own = other == op ? role
                            : !shares_weight(walk, op, other)
                                ? -1
                                : agreeing_role(walk, op, other, role);
            const struct sbp_op_node *node = &walk->graph->op[other];
            if (own < 0)
                continue;
            const struct sbp_role *entry = &entry_of(walk, other)->role[own];
            for (int i = 0; i < node->input_count && legal; i++)
                legal = note(walk, node->input[i], axis, entry->input[i]);
            for (int w = 0; w < node->weight_count && legal; w++)
                legal = note(walk, node->weight[w], axis, weight_state(walk, other, w, own));
            legal = legal && (node->output < 0 || note(walk, node->output, axis, entry->output));
        }
        possible = legal && divides_somehow(walk, op, axis + 1);
        memcpy(walk->strategy.split, before, bytes);
    }
    return possible;
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

static bool rests_split_somehow(struct walk *walk, int tensor, int axis)
{
    if (axis == walk->mesh->axis_count)
        return true;
    sbp_axes before[64];
    const size_t bytes = (size_t)walk->graph->class_count * sizeof *before;
    bool possible = false;
    memcpy(before, walk->strategy.split, bytes);
    for (uint8_t dim = 0; dim < SBP_MAX_DIMS - 1 && !possible; dim++) {
        bool legal = rest_allowed(walk, walk->graph->tensor[tensor].producer, dim, axis);
        for (int t = 0; t < walk->graph->tensor_count && legal; t++)
            if (rests_with(walk, tensor, t))
                legal = note(walk, t, axis, SBP_STATE_S(dim));
        possible = legal && rests_split_somehow(walk, tensor, axis + 1);
        memcpy(walk->strategy.split, before, bytes);
    }
    return possible;
}

static void find_resorts(struct walk *walk)
{
    const int input = walk->graph->input;
    walk->input_resort = input >= 0 && has_resorts(walk) && !rests_split_somehow(walk, input, 0);
    for (int op = 0; op < walk->graph->op_count; op++)
        if (walk->graph->op[op].output >= 0 && has_resorts(walk))
            walk->rest_resort[op] = !rests_split_somehow(walk, walk->graph->op[op].output, 0);
    for (int op = 0; op < walk->graph->op_count; op++)
        if (!entry_of(walk, op)->follows && walk->graph->op[op].site == op)
            walk->resort[op] = !divides_somehow(walk, op, 0);
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

/* What holds for a site holds for its repeats: all of them, or any. */
static bool holds(const struct walk *walk, int op, bool any,
                  bool (*fact)(const struct walk *walk, int op))
{
    bool result = !any;
    for (int repeat = 0; repeat < walk->graph->op_count; repeat++)
        if (walk->graph->op[repeat].site == walk->graph->op[op].site)
            result = any ? result || fact(walk, repeat) : result && fact(walk, repeat);
    return result;
}

static bool is_gathered_once(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    if (node->entry->follows || node->output < 0)
        return false;
    return reads_of(walk, node->output).whole >= 2;
}

/* Wherever an operator has the role and whoever follows can run; what nobody reads stays no sum. */
static void find_wide_rests(struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        const struct sbp_op_node *node = &walk->graph->op[op];
        if (node->entry->follows)
            continue;
        walk->sums[op] = !node->transposed_weight;
        walk->whole_rest[op] = true;
        walk->partial_rest[op] = node->output >= 0 && reads_of(walk, node->output).count > 0;
    }
}

/* The largest set of sums that agrees with itself. */
static void find_rests(struct walk *walk)
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
    sbp_axes before[64];
    const size_t bytes = (size_t)walk->graph->class_count * sizeof *before;
    const struct sbp_op_node *node = &walk->graph->op[op];
    bool legal = true;
    memcpy(before, walk->strategy.split, bytes);
    for (int axis = 0; axis < walk->mesh->axis_count && legal; axis++)
        for (int r = 0; r < node->entry->role_count && legal; r++) {
            const struct sbp_role *role = &node->entry->role[r];
            if (role->spare || !role_allowed(walk, op, r, axis))
                continue;
            for (int i = 0; i < node->input_count && legal; i++)
                legal = note(walk, node->input[i], axis, role->input[i]);
            for (int w = 0; w < node->weight_count && legal; w++)
                legal = note(walk, node->weight[w], axis, weight_state(walk, op, w, r));
            legal = legal && (node->output < 0 || note(walk, node->output, axis, role->output));
        }
    memcpy(walk->strategy.split, before, bytes);
    return legal;
}

/* A tensor, and all that rest with it, whose tensor axes split tokens. */
static bool tokens_divide(struct walk *walk, int tensor)
{
    sbp_axes before[64];
    const size_t bytes = (size_t)walk->graph->class_count * sizeof *before;
    bool legal = true;
    memcpy(before, walk->strategy.split, bytes);
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        for (int t = 0; t < walk->graph->tensor_count && legal; t++)
            if (rests_with(walk, tensor, t) && (walk->data >> axis & 1) == 0)
                legal = note(walk, t, axis, SBP_STATE_S(SBP_DIM_SEQUENCE));
    memcpy(walk->strategy.split, before, bytes);
    return legal;
}

/* Tokens where they divide, else features; linears that these do not divide, by the batch. */
static void find_ways(struct walk *walk)
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

/* --- bounds on whole operators --- */

static int64_t parts_at(const struct walk *walk, int op, int role, int level)
{
    int64_t parts = 1;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if (role_on(walk, op, axis) == role && (level < 0 || walk->mesh->axis[axis].level == level))
            parts *= walk->mesh->axis[axis].size;
    return parts;
}

static bool keeps_fixes(const struct walk *walk, int op)
{
    for (int i = 0; i < walk->request->fix_count; i++) {
        const struct sbp_fix *fix = &walk->request->fix[i];
        if (strcmp(fix->layer, walk->graph->op[walk->graph->op[op].site].name) != 0)
            continue;
        for (int role = 0; role < entry_of(walk, op)->role_count; role++)
            for (int level = 0; level < walk->mesh->level_count; level++)
                if (fix->factor[role][level] != SBP_ANY &&
                    fix->factor[role][level] != parts_at(walk, op, role, level))
                    return false;
    }
    return true;
}

static bool keeps_batch_bound(const struct walk *walk, int op)
{
    const int64_t most = walk->request->max_batch_split;
    return most == 0 || walk->graph->op[op].kind != SBP_OP_LINEAR ||
           parts_at(walk, op, 0, -1) <= most;
}

/* A number for each state: splits by dimension, B, P. */
enum { RANKS = SBP_MAX_DIMS + 2 };
static int rank_of(struct sbp_state state)
{
    return state.kind == SBP_SPLIT       ? state.dim
           : state.kind == SBP_BROADCAST ? SBP_MAX_DIMS
                                         : SBP_MAX_DIMS + 1;
}

/* A repeat has as many axes of each family in each role, and in each split of its output's rest, as
 * its site; a follower has no choice to repeat. */
static bool keeps_site(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    if (node->site == op || entry_of(walk, op)->follows)
        return true;
    int balance[SBP_MAX_AXES][SBP_MAX_ROLES + RANKS] = {{0}};
    for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
        int *const at = balance[walk->mesh->axis[axis].family];
        at[role_on(walk, op, axis)]++;
        at[role_on(walk, node->site, axis)]--;
        const int site_output = walk->graph->op[node->site].output;
        at[SBP_MAX_ROLES + rank_of(walk->strategy.rest[node->output].axis[axis])]++;
        at[SBP_MAX_ROLES + rank_of(walk->strategy.rest[site_output].axis[axis])]--;
    }
    for (int family = 0; family < walk->mesh->family_count; family++)
        for (int i = 0; i < SBP_MAX_ROLES + RANKS; i++)
            if (balance[family][i] != 0)
                return false;
    return true;
}

/* --- the recursion --- */

static enum sbp_status walk_op(struct walk *walk, int op, int axis);

static bool is_wanted_rest(const struct walk *walk, int tensor, int axis)
{
    return walk->wanted == NULL || sbp_state_equal(walk->wanted->rest[tensor].axis[axis],
                                                   walk->strategy.rest[tensor].axis[axis]);
}

/* Interchangeable axes stand in one order at the first decision; memory alone tells them apart
 * (which digits are packed before a collective). */
static bool in_order(const struct walk *walk, int decision, int tensor, int axis)
{
    if (walk->wanted != NULL || walk->request->memory_limit_bytes > 0 ||
        decision != walk->first_choice || axis == 0 ||
        walk->mesh->axis[axis].family != walk->mesh->axis[axis - 1].family ||
        (walk->data >> axis & 1) != (walk->data >> (axis - 1) & 1))
        return true;
    const int dim = rank_of(walk->strategy.rest[tensor].axis[axis]);
    const int last_dim = rank_of(walk->strategy.rest[tensor].axis[axis - 1]);
    if (decision < 0)
        return last_dim <= dim;
    const int role = walk->strategy.op[decision].role[axis];
    const int last_role = walk->strategy.op[decision].role[axis - 1];
    return last_role < role || (last_role == role && last_dim <= dim);
}

static enum sbp_status walk_rest(struct walk *walk, int op, int tensor, int axis,
                                 struct sbp_state state)
{
    const int dim_class = walk->graph->tensor[tensor].shape.dim_class[state.dim];
    if (state.kind == SBP_SPLIT && dim_class == SBP_NO_CLASS)
        return SBP_OK;
    const sbp_axes before = state.kind == SBP_SPLIT ? walk->strategy.split[dim_class] : 0;
    walk->strategy.rest[tensor].axis[axis] = state;
    enum sbp_status status = SBP_OK;
    if (note(walk, tensor, axis, state) && is_wanted_rest(walk, tensor, axis) &&
        in_order(walk, op, tensor, axis))
        status = walk_op(walk, op, axis + 1);
    if (state.kind == SBP_SPLIT)
        walk->strategy.split[dim_class] = before;
    return status;
}

/* Whether an operator has a role to play, on whatever axis, that leaves its output in a state. */
static bool may_leave(const struct walk *walk, int op, enum sbp_kind kind)
{
    for (int role = 0; role < entry_of(walk, op)->role_count; role++) {
        const struct sbp_role *entry = &entry_of(walk, op)->role[role];
        if (entry->output.kind == kind && (!entry->spare || spare_allowed(walk, op, role)))
            return true;
    }
    return false;
}

/* Whether a reader goes on with partial sums because a fix says so; those that follow cannot. */
static bool may_take_partial(const struct walk *walk, int tensor)
{
    for (int op = 0; op < walk->graph->op_count; op++)
        for (int i = 0; i < walk->graph->op[op].input_count; i++)
            for (int role = 0;
                 walk->graph->op[op].input[i] == tensor && role < entry_of(walk, op)->role_count;
                 role++)
                if (entry_of(walk, op)->role[role].input[i].kind == SBP_PARTIAL &&
                    is_named(walk, op, role))
                    return true;
    return false;
}

/* The output's rest on one axis, the role being chosen: as the operator leaves it; where it may
 * leave partial sums, also in another split, whole where it may leave its output whole, partial
 * where that is read. */
static enum sbp_status walk_output(struct walk *walk, int op, int axis, struct sbp_state state)
{
    const int tensor = walk->graph->op[op].output;
    if (tensor < 0)
        return walk_op(walk, op, axis + 1);
    const bool chooses =
        !entry_of(walk, op)->follows &&
        (may_leave(walk, op, SBP_PARTIAL) || walk->partial_rest[op] || walk->whole_rest[op]);
    const bool whole = chooses && (may_leave(walk, op, SBP_BROADCAST) || walk->whole_rest[op] ||
                                   walk->rest_resort[walk->graph->op[op].site]);
    if (state.kind == SBP_SPLIT || !chooses)
        SBP_TRY(walk_rest(walk, op, tensor, axis, state));
    else
        for (int dim = 0; dim < SBP_MAX_DIMS - 1; dim++)
            if (rest_allowed(walk, op, dim, axis))
                SBP_TRY(walk_rest(walk, op, tensor, axis, SBP_STATE_S((uint8_t)dim)));
    if (whole)
        SBP_TRY(walk_rest(walk, op, tensor, axis, SBP_STATE_B));
    if (state.kind == SBP_PARTIAL && (walk->partial_rest[op] || may_take_partial(walk, tensor)))
        return walk_rest(walk, op, tensor, axis, SBP_STATE_P);
    return SBP_OK;
}

static enum sbp_status walk_role(struct walk *walk, int op, int axis, int role)
{
    if (walk->wanted != NULL && !entry_of(walk, op)->follows &&
        walk->wanted->op[op].role[axis] != role)
        return SBP_OK;
    sbp_axes before[64];
    if (walk->graph->class_count > 64)
        return SBP_E_UNSUPPORTED;
    memcpy(before, walk->strategy.split, (size_t)walk->graph->class_count * sizeof *before);
    walk->strategy.op[op].role[axis] = (uint8_t)role;
    enum sbp_status status = SBP_OK;
    if (reads_sums(walk, op, axis, role) && note_role(walk, op, axis, role))
        status = walk_output(walk, op, axis, entry_of(walk, op)->role[role].output);
    memcpy(walk->strategy.split, before, (size_t)walk->graph->class_count * sizeof *before);
    return status;
}

/* AutoDDL, section 4.3: partial sums all join the features, or all join the batch where the reader
 * keeps the features as the writer split them (p1 = p2'). Chains only. */
static bool keeps_paper_paths(const struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        if (walk->graph->op[op].kind != SBP_OP_LINEAR)
            continue;
        int reader = op + 1;
        while (reader < walk->graph->op_count && entry_of(walk, reader)->follows)
            reader++;
        bool to_batch = false, to_features = false, features_stay = true;
        for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
            const struct sbp_state left = entry_of(walk, op)->role[role_on(walk, op, axis)].output;
            const int rest = walk->strategy.rest[walk->graph->op[op].output].axis[axis].dim;
            to_batch |= left.kind == SBP_PARTIAL && rest == SBP_DIM_BATCH;
            to_features |= left.kind == SBP_PARTIAL && rest == SBP_DIM_FEATURE;
            if (reader == walk->graph->op_count)
                continue;
            const struct sbp_state want =
                entry_of(walk, reader)->role[role_on(walk, reader, axis)].input[0];
            const struct sbp_state features = SBP_STATE_S(SBP_DIM_FEATURE);
            features_stay &= sbp_state_equal(left, features) == sbp_state_equal(want, features);
        }
        if (to_batch && (to_features || !features_stay))
            return false;
    }
    return true;
}

static int64_t parts_outside(const struct walk *walk, sbp_axes split, int axis)
{
    int64_t parts = 1;
    for (int outer = 0; outer < axis; outer++)
        if (split >> outer & 1)
            parts *= walk->mesh->axis[outer].size;
    return parts;
}

static sbp_axes class_splits(const struct walk *walk, int tensor, int dim)
{
    const int dim_class = walk->graph->tensor[tensor].shape.dim_class[dim];
    return dim_class == SBP_NO_CLASS ? 0 : walk->strategy.split[dim_class];
}

/* An axis that splits queries and keys has the same digit in both: as many parts are made outside
 * of it of the one as of the other, anywhere in the plan. */
static bool heads_line_up(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const sbp_axes queries = class_splits(walk, node->input[0], SBP_DIM_FEATURE);
    const sbp_axes keys = class_splits(walk, node->input[1], SBP_DIM_FEATURE);
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if (strcmp(node->entry->role[role_on(walk, op, axis)].name, "head") == 0 &&
            parts_outside(walk, queries, axis) != parts_outside(walk, keys, axis))
            return false;
    return true;
}

/* Rows of images lie one behind the other: no axis outside of one that splits a convolution's
 * height splits a height elsewhere. */
static bool rows_are_neighbours(const struct walk *walk, int op)
{
    const struct sbp_op_node *node = &walk->graph->op[op];
    const sbp_axes rows = class_splits(walk, node->input[0], SBP_DIM_SEQUENCE) |
                          class_splits(walk, node->output, SBP_DIM_SEQUENCE);
    bool split_elsewhere = false;
    for (int axis = 0; axis < walk->mesh->axis_count; axis++) {
        const bool own = strcmp(node->entry->role[role_on(walk, op, axis)].name, "height") == 0;
        if (own && split_elsewhere)
            return false;
        split_elsewhere |= !own && (rows >> axis & 1) != 0;
    }
    return true;
}

static bool digits_line_up(const struct walk *walk)
{
    for (int op = 0; op < walk->graph->op_count; op++) {
        const enum sbp_op_kind kind = walk->graph->op[op].kind;
        if ((kind == SBP_OP_GROUPED_ATTENTION || kind == SBP_OP_LATENT_ATTENTION) &&
            !heads_line_up(walk, op))
            return false;
        if (kind == SBP_OP_CONV2D && !rows_are_neighbours(walk, op))
            return false;
    }
    return true;
}

static enum sbp_status leaf(struct walk *walk)
{
    if (!digits_line_up(walk))
        return SBP_OK;
    if (walk->request->boxing == SBP_BOXING_PAPER && !keeps_paper_paths(walk))
        return SBP_OK;
    walk->visited++;
    if (walk->visited > walk->most)
        return SBP_STOPPED;
    return walk->visit == NULL ? SBP_OK : walk->visit(walk);
}

static enum sbp_status walk_op(struct walk *walk, int op, int axis)
{
    if (op == walk->graph->op_count)
        return leaf(walk);
    if (axis == walk->mesh->axis_count) {
        if (op >= 0 &&
            (!keeps_fixes(walk, op) || !keeps_batch_bound(walk, op) || !keeps_site(walk, op)))
            return SBP_OK;
        return walk_op(walk, op + 1, 0);
    }
    if (op < 0) {
        for (int dim = 0; dim < SBP_MAX_DIMS - 1; dim++)
            if (rest_allowed(walk, op, dim, axis))
                SBP_TRY(walk_rest(walk, op, walk->graph->input, axis, SBP_STATE_S((uint8_t)dim)));
        if (walk->input_resort)
            return walk_rest(walk, op, walk->graph->input, axis, SBP_STATE_B);
        return SBP_OK;
    }
    if (entry_of(walk, op)->follows) {
        const int role = role_on(walk, op, axis);
        return role < 0 ? SBP_OK : walk_role(walk, op, axis, role);
    }
    for (int role = 0; role < entry_of(walk, op)->role_count; role++)
        if (role_allowed(walk, op, role, axis))
            SBP_TRY(walk_role(walk, op, axis, role));
    return SBP_OK;
}

/* A free input has no resting place unless an operator runs wherever it rests. */
static bool input_rests(const struct sbp_graph *graph)
{
    if (graph->input < 0)
        return false;
    bool followed = graph->input_split;
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            followed |= graph->op[op].input[i] == graph->input && graph->op[op].entry->follows;
    return followed;
}

/* Axes between nodes are the data's, axes inside are not. */
static bool is_node_mesh(const struct walk *walk, sbp_axes data)
{
    for (int axis = 0; axis < walk->mesh->axis_count; axis++)
        if ((data >> axis & 1) != (walk->mesh->axis[axis].level == 0))
            return false;
    return walk->mesh->level_count > 1;
}

static enum sbp_status walk_all(struct walk *walk)
{
    const struct sbp_graph *graph = walk->graph;
    const bool rests = input_rests(graph);
    find_resorts(walk);
    find_rests(walk);
    walk->first_choice = -1;
    if (!rests)
        for (walk->first_choice = 0;
             walk->first_choice < graph->op_count && entry_of(walk, walk->first_choice)->follows;)
            walk->first_choice++;
    if (!is_megatron(walk))
        return walk_op(walk, rests ? -1 : 0, 0);
    find_pairs(walk);
    for (sbp_axes data = 0; data >> walk->mesh->axis_count == 0; data++) {
        if (walk->request->space == SBP_SPACE_MEGATRON_NODE && !is_node_mesh(walk, data))
            continue;
        walk->data = data;
        find_ways(walk);
        SBP_TRY(walk_op(walk, rests ? -1 : 0, 0));
    }
    return SBP_OK;
}

static enum sbp_status start(const struct sbp_plan *plan, const struct sbp_request *request,
                             int64_t most, struct sbp_arena *arena, struct walk *walk)
{
    *walk =
        (struct walk){.graph = &plan->graph, .mesh = &plan->mesh, .request = request, .most = most};
    sbp_arena_init(arena);
    return sbp_strategy_alloc(&plan->graph, arena, &walk->strategy);
}

/* --- what is done with every strategy --- */

int64_t labelled_count(const struct sbp_plan *plan, const struct sbp_request *request, int64_t most)
{
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, most, &arena, &walk);
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    return status == SBP_OK || status == SBP_STOPPED ? walk.visited : -1;
}

struct pricing {
    const struct sbp_plan *plan;
    int64_t memory_limit_bytes;
    struct labelled_best *best;
    struct sbp_diag *diag;
    labelled_visit *visit; /* NULL: nobody looks */
    void *context;
};

static bool rests_whole(const struct walk *walk)
{
    const int input = walk->graph->input;
    for (int axis = 0; axis < walk->mesh->axis_count && walk->input_resort; axis++)
        if (walk->strategy.rest[input].axis[axis].kind != SBP_SPLIT)
            return true;
    for (int op = 0; op < walk->graph->op_count; op++)
        for (int axis = 0; axis < walk->mesh->axis_count; axis++)
            if (walk->graph->op[op].output >= 0 &&
                walk->strategy.rest[walk->graph->op[op].output].axis[axis].kind != SBP_SPLIT)
                return true;
    return false;
}

static enum sbp_status price(struct walk *walk)
{
    struct pricing *const pricing = walk->context;
    struct labelled_best *const best = pricing->best;
    const struct sbp_plan *const plan = pricing->plan;
    sbp_axes split[64];
    memcpy(split, walk->strategy.split, (size_t)plan->graph.class_count * sizeof *split);
    walk->strategy.boxing = walk->request->boxing;
    struct sbp_diag refusal = {{0}};
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &walk->strategy, &refusal) != SBP_OK) {
        memcpy(walk->strategy.split, split, (size_t)plan->graph.class_count * sizeof *split);
        walk->visited--;
        /* The paper's way between two rests may split a class further than both ends do; a sum over
         * an axis that splits nothing of its tensor cannot be formed next to other changes. */
        return walk->request->boxing == SBP_BOXING_PAPER || rests_whole(walk)
                   ? SBP_OK
                   : sbp_fail(pricing->diag, SBP_E_INTERNAL, "%s", refusal.text);
    }
    struct sbp_step step;
    SBP_TRY(sbp_plan_step(plan, &walk->strategy, &step, pricing->diag));
    const struct sbp_step_totals totals = step.totals;
    if (pricing->visit != NULL)
        pricing->visit(pricing->context, &walk->strategy, &totals);
    sbp_step_free(&step);
    memcpy(walk->strategy.split, split, (size_t)plan->graph.class_count * sizeof *split);
    const double objective =
        walk->request->objective == SBP_STEP_TIME ? totals.step_s : totals.communication_s;
    best->unlimited_s = fmin(best->unlimited_s, objective);
    if (totals.device_bytes < best->least_device_bytes)
        best->least_device_bytes = totals.device_bytes;
    if (totals.device_bytes <= pricing->memory_limit_bytes && objective < best->objective_s) {
        best->objective_s = objective;
        best->device_bytes = totals.device_bytes;
    }
    return SBP_OK;
}

static enum sbp_status visit_all(const struct sbp_plan *plan, const struct sbp_request *request,
                                 bool wide, int64_t most, labelled_visit *visit, void *context,
                                 struct labelled_best *best, struct sbp_diag *diag)
{
    *best = (struct labelled_best){
        .objective_s = INFINITY, .unlimited_s = INFINITY, .least_device_bytes = INT64_MAX};
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, most, &arena, &walk);
    struct pricing pricing = {
        plan,
        request->memory_limit_bytes > 0 ? request->memory_limit_bytes : plan->cluster.memory_bytes,
        best,
        diag,
        visit,
        context};
    walk.wide = wide;
    walk.visit = price;
    walk.context = &pricing;
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    best->visited = walk.visited;
    best->gave_up = status == SBP_STOPPED;
    return best->gave_up ? SBP_OK : status;
}

enum sbp_status labelled_each(const struct sbp_plan *plan, const struct sbp_request *request,
                              int64_t most, labelled_visit *visit, void *context,
                              struct labelled_best *best, struct sbp_diag *diag)
{
    return visit_all(plan, request, false, most, visit, context, best, diag);
}

enum sbp_status labelled_search(const struct sbp_plan *plan, const struct sbp_request *request,
                                int64_t most, struct labelled_best *best, struct sbp_diag *diag)
{
    return visit_all(plan, request, false, most, NULL, NULL, best, diag);
}

enum sbp_status labelled_search_wide(const struct sbp_plan *plan, const struct sbp_request *request,
                                     int64_t most, struct labelled_best *best,
                                     struct sbp_diag *diag)
{
    return visit_all(plan, request, true, most, NULL, NULL, best, diag);
}

enum sbp_status labelled_check(const struct sbp_plan *plan, const struct sbp_request *request,
                               const struct sbp_strategy *strategy, struct sbp_diag *diag)
{
    struct walk walk;
    struct sbp_arena arena;
    enum sbp_status status = start(plan, request, INT64_MAX, &arena, &walk);
    walk.wanted = strategy;
    if (status == SBP_OK)
        status = walk_all(&walk);
    sbp_arena_free(&arena);
    SBP_TRY(status);
    return walk.visited > 0
               ? SBP_OK
               : sbp_fail(diag, SBP_E_INPUT, "the strategy is none of the space's labelled ones");
}
