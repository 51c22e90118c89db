/* The strategy of every layer, as Megatron-LM splits a transformer (Shoeybi et al., 2020, section
 * 3; Korthikanti et al., 2022, section 4): linears in pairs by column and by row, attention by
 * heads, the embedding and the head by vocabulary, and what lies between by sequence or not at all.
 */
#include <stdio.h>

#include "planner/degrees/degrees_priv.h"

/* What a linear is to tensor parallelism. */
enum part {
    PART_WHOLE,  /* neither: its weights lie whole (down projections of latent attention) */
    PART_COLUMN, /* its output's features are split, up to a linear by row or to the loss */
    PART_ROW
};

struct builder {
    const struct sbp_cut *cut;
    const struct sbp_degrees_mesh *mesh;
    struct sbp_degrees_plan *made;
    struct sbp_fix *fix; /* (op_count) */
    uint8_t *part;       /* (op_count) enum part of a linear */
    bool experts_noted;
    struct sbp_diag *diag;
};

/* ---- pairs of linears ----------------------------------------------------------------------- */

/* Whether an operator leaves the features split as its inputs have them. */
static bool keeps_features(const struct sbp_op_node *node)
{
    return sbp_degrees_is_attention(node) || node->kind == SBP_OP_HEAD_NORM ||
           (node->entry->follows && node->weight_count == 0);
}

/* Marks the linears whose features come to a tensor unchanged as columns. Returns whether there is
 * one. The keys' rotary part, which all heads of latent attention share, is read whole. */
static bool mark_columns(struct builder *b, int tensor)
{
    const struct sbp_graph *graph = &b->cut->graph;
    const int op = graph->tensor[tensor].producer;
    bool found = false;
    if (op < 0)
        return false;
    if (graph->op[op].kind == SBP_OP_LINEAR && b->part[op] != PART_ROW) {
        b->part[op] = PART_COLUMN;
        return true;
    }
    if (!keeps_features(&graph->op[op]))
        return false;
    const bool latent = graph->op[op].kind == SBP_OP_LATENT_ATTENTION;
    for (int i = 0; i < graph->op[op].input_count - (latent ? 1 : 0); i++)
        found |= mark_columns(b, graph->op[op].input[i]);
    return found;
}

static void pair_linears(struct builder *b)
{
    const struct sbp_graph *graph = &b->cut->graph;
    for (int op = 0; op < graph->op_count; op++) {
        if (graph->op[op].kind == SBP_OP_LINEAR && mark_columns(b, graph->op[op].input[0]))
            b->part[op] = PART_ROW;
        if (graph->op[op].kind == SBP_OP_CROSS_ENTROPY)
            (void)mark_columns(b, graph->op[op].input[0]);
    }
}

/* ---- fixes ---------------------------------------------------------------------------------- */

enum { WHOLE = 3 }; /* a rest, after the splits S0, S1, S2 */

/* Multiplies ways into a role, and into the state in which its output then rests. */
static enum sbp_status play(struct builder *b, int op, const char *name,
                            const struct sbp_degrees_ways *ways, enum sbp_kind sum_rests, int dim,
                            struct sbp_fix *fix)
{
    const struct sbp_op_node *node = &b->cut->graph.op[op];
    const int role = sbp_op_role(node->entry, name);
    if (sbp_degrees_total(ways) == 1)
        return SBP_OK;
    if (role < 0)
        return SBP_DEGREES_REFUSE(b->diag, "dp: %s (%s) has no role %s", node->name,
                                  node->entry->name, name);
    const struct sbp_state left = node->entry->role[role].output;
    int rest = left.kind == SBP_SPLIT ? left.dim : WHOLE;
    if (left.kind == SBP_PARTIAL && sum_rests == SBP_SPLIT)
        rest = dim;
    for (int level = 0; level < b->cut->stage.level_count; level++) {
        fix->factor[role][level] *= ways->at[level];
        fix->rest[rest][level] *= ways->at[level];
    }
    return SBP_OK;
}

/* Plays a role whose partial sums are all-reduced, or reduce-scattered by sequence. */
static enum sbp_status play_summed(struct builder *b, int op, const char *name,
                                   const struct sbp_degrees_ways *ways, struct sbp_fix *fix)
{
    const bool sequence = b->made->degrees.sequence_parallel;
    return play(b, op, name, ways, sequence ? SBP_SPLIT : SBP_BROADCAST, SBP_DIM_SEQUENCE, fix);
}

/* Whether an operator can be split by sequence: not those of one token that stands for all. */
static bool splits_sequence(const struct builder *b, int op)
{
    const struct sbp_op_node *node = &b->cut->graph.op[op];
    return sbp_op_role(node->entry, "sequence") >= 0 &&
           b->cut->graph.tensor[node->output].shape.size[SBP_DIM_SEQUENCE] > 1;
}

/* What tensor parallelism leaves whole: split by sequence, or repeated by every member. */
static enum sbp_status play_whole(struct builder *b, int op, const struct sbp_degrees_ways *ways,
                                  struct sbp_fix *fix)
{
    const bool sequence = b->made->degrees.sequence_parallel && splits_sequence(b, op);
    return play_summed(b, op, sequence ? "sequence" : "replicate", ways, fix);
}

static int64_t ways_that_divide(int64_t size, int64_t ways)
{
    while (size % ways != 0 && ways > 1)
        ways = sbp_degrees_gcd(size, ways);
    return ways;
}

/* Heads of keys and values of a grouped attention, 0 of others. */
static int64_t key_heads(const struct sbp_graph *graph, int op)
{
    return graph->op[op].kind == SBP_OP_GROUPED_ATTENTION
               ? graph->tensor[graph->op[op].input[1]].shape.size[SBP_DIM_FEATURE]
               : 0;
}

/* Takes `count` ways out of `from`, outermost levels first. */
static void take_outer(int64_t count, struct sbp_degrees_ways *from, struct sbp_degrees_ways *taken)
{
    for (int level = 0; level < SBP_MAX_LEVELS; level++) {
        const int64_t take = sbp_degrees_gcd(count, from->at[level]);
        taken->at[level] = take;
        from->at[level] /= take;
        count /= take;
    }
}

static enum sbp_status refuse_features(struct builder *b, int op, const char *what, int64_t size)
{
    const bool vocabulary = b->cut->graph.op[op].kind == SBP_OP_EMBEDDING;
    const int64_t tensor = b->made->degrees.tensor;
    if (vocabulary)
        return SBP_DEGREES_REFUSE(b->diag,
                                  "tp: %lld ways do not divide the vocabulary of %lld, which "
                                  "--set vocab_multiple=N pads to a multiple",
                                  (long long)tensor, (long long)size);
    return SBP_DEGREES_REFUSE(b->diag,
                              "tp: %lld ways do not divide %s of %s (%lld), legal are divisors "
                              "of it",
                              (long long)tensor, what, b->cut->graph.op[op].name, (long long)size);
}

/* Heads by tensor axes. Where there are fewer heads of keys, these lie whole on the rest of them.
 */
static enum sbp_status fix_attention(struct builder *b, int op, struct sbp_fix *fix)
{
    const struct sbp_graph *graph = &b->cut->graph;
    const int64_t keys = key_heads(graph, op);
    const int64_t tensor = b->made->degrees.tensor;
    struct sbp_degrees_ways queries = b->mesh->tensor, shared;
    take_outer(keys > 0 ? ways_that_divide(keys, tensor) : tensor, &queries, &shared);
    SBP_TRY(play(b, op, "context", &b->mesh->context, SBP_BROADCAST, 0, fix));
    SBP_TRY(play(b, op, "head", &shared, SBP_BROADCAST, 0, fix));
    return play(b, op, "query", &queries, SBP_BROADCAST, 0, fix);
}

/* Whether a linear makes the keys and values of a grouped attention: as many features as heads. */
static bool makes_keys(const struct builder *b, int op, int64_t *heads)
{
    const struct sbp_graph *graph = &b->cut->graph;
    int tensor = graph->op[op].output;
    for (int next = op + 1; next < graph->op_count; next++) {
        const struct sbp_op_node *node = &graph->op[next];
        if (node->input_count > 1 && node->input[1] == tensor &&
            node->kind == SBP_OP_GROUPED_ATTENTION) {
            *heads = key_heads(graph, next);
            return true;
        }
        if (node->input_count == 1 && node->input[0] == tensor && keeps_features(node))
            tensor = node->output;
    }
    return false;
}

static enum sbp_status fix_linear(struct builder *b, int op, struct sbp_fix *fix)
{
    const struct sbp_graph *graph = &b->cut->graph;
    const struct sbp_op_node *node = &graph->op[op];
    const int64_t tensor = b->made->degrees.tensor;
    const int64_t out = graph->tensor[node->output].shape.size[SBP_DIM_FEATURE];
    const int64_t in = graph->tensor[node->input[0]].shape.size[SBP_DIM_FEATURE];
    struct sbp_degrees_ways rest = b->mesh->tensor, split;
    int64_t heads = 0;
    if (b->part[op] == PART_WHOLE)
        return play_whole(b, op, &b->mesh->tensor, fix);
    if (b->part[op] == PART_ROW && in % tensor != 0)
        return refuse_features(b, op, "the input features", in);
    if (b->part[op] == PART_ROW)
        return play_summed(b, op, "row", &b->mesh->tensor, fix);
    if (!makes_keys(b, op, &heads) && out % tensor != 0)
        return refuse_features(b, op, "the output features", out);
    take_outer(heads > 0 ? ways_that_divide(heads, tensor) : tensor, &rest, &split);
    SBP_TRY(play(b, op, "column", &split, SBP_BROADCAST, 0, fix));
    return play(b, op, "replicate", &rest, SBP_BROADCAST, 0, fix);
}

static enum sbp_status fix_embedding(struct builder *b, int op, struct sbp_fix *fix)
{
    const struct sbp_graph *graph = &b->cut->graph;
    const int64_t vocabulary = graph->tensor[graph->op[op].weight[0]].shape.size[SBP_DIM_IN];
    if (vocabulary % b->made->degrees.tensor != 0)
        return refuse_features(b, op, "", vocabulary);
    return play_summed(b, op, "vocab", &b->mesh->tensor, fix);
}

/* ---- mixtures of experts -------------------------------------------------------------------- */

/* The ways of an expert layer. Megatron-LM gives experts neighbouring ranks, so those that do not
 * split an expert come before context, and context before data. */
struct expert_ways {
    struct sbp_degrees_ways column; /* of tensor: each expert is split */
    struct sbp_degrees_ways near;   /* of tensor and context: experts lie apart, by sequence */
    struct sbp_degrees_ways far;    /* of data: the same, by batch */
    struct sbp_degrees_ways tensor, context, data; /* what is left */
};

/* Takes as many of `count` ways as `from` has out of it and leaves the others. */
static bool take_common(int64_t *count, struct sbp_degrees_ways *from,
                        struct sbp_degrees_ways *taken)
{
    const int64_t common = sbp_degrees_gcd(*count, sbp_degrees_total(from));
    *count /= common;
    return sbp_degrees_take(common, from, taken);
}

static bool share_out_experts(const struct sbp_degrees *d, const struct sbp_degrees_mesh *mesh,
                              struct expert_ways *ways)
{
    struct sbp_degrees_ways context;
    int64_t left = d->expert;
    *ways =
        (struct expert_ways){.tensor = mesh->tensor, .context = mesh->context, .data = mesh->data};
    if (!sbp_degrees_take(d->expert_tensor, &ways->tensor, &ways->column) ||
        !take_common(&left, &ways->tensor, &ways->near) ||
        !take_common(&left, &ways->context, &context) ||
        !sbp_degrees_take(left, &ways->data, &ways->far))
        return false;
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        ways->near.at[level] *= context.at[level];
    return true;
}

static void note_experts(struct builder *b, const struct expert_ways *ways)
{
    const int64_t left = sbp_degrees_total(&ways->tensor);
    if (left > 1 && !b->made->degrees.sequence_parallel)
        sbp_degrees_note(b->made,
                         "etp: without sequence-parallel %lld tensor ranks repeat the "
                         "work of the experts",
                         (long long)left);
}

static enum sbp_status fix_experts(struct builder *b, int op, struct sbp_fix *fix)
{
    const struct sbp_degrees *d = &b->made->degrees;
    struct expert_ways ways;
    if (!share_out_experts(d, b->mesh, &ways))
        return SBP_DEGREES_REFUSE(b->diag,
                                  "ep: %lld ways do not share out dp %lld, cp %lld and what etp "
                                  "%lld leaves of tp %lld",
                                  (long long)d->expert, (long long)d->data, (long long)d->context,
                                  (long long)d->expert_tensor, (long long)d->tensor);
    if (!b->experts_noted)
        note_experts(b, &ways);
    b->experts_noted = true;
    SBP_TRY(play(b, op, "batch", &ways.data, SBP_BROADCAST, 0, fix));
    SBP_TRY(play(b, op, "expert", &ways.far, SBP_BROADCAST, 0, fix));
    SBP_TRY(play(b, op, "sequence", &ways.context, SBP_BROADCAST, 0, fix));
    SBP_TRY(play(b, op, "expert_sequence", &ways.near, SBP_BROADCAST, 0, fix));
    SBP_TRY(play_summed(b, op, "column", &ways.column, fix));
    return play_whole(b, op, &ways.tensor, fix);
}

/* ---- layers --------------------------------------------------------------------------------- */

static void begin_fix(const struct builder *b, int op, struct sbp_fix *fix)
{
    *fix = (struct sbp_fix){.rests = true, .zero = SBP_ANY};
    (void)snprintf(fix->layer, sizeof fix->layer, "%s", b->cut->graph.op[op].name);
    for (int level = 0; level < SBP_MAX_LEVELS; level++) {
        for (int role = 0; role < SBP_MAX_ROLES; role++)
            fix->factor[role][level] = 1;
        for (int rest = 0; rest < SBP_REST_STATES; rest++)
            fix->rest[rest][level] = 1;
    }
}

/* Whether sequence parallelism gathers a norm's output once, for several linears by column. */
static bool is_gathered_once(const struct builder *b, int op)
{
    const struct sbp_graph *graph = &b->cut->graph;
    int columns = 0;
    for (int reader = op + 1; reader < graph->op_count; reader++)
        columns +=
            b->part[reader] == PART_COLUMN && graph->op[reader].input[0] == graph->op[op].output;
    return b->made->degrees.sequence_parallel && columns > 1;
}

/* Batch and context stay as they split the tokens, what the tensor axes split is gathered. */
static void fix_gathered(const struct builder *b, int op, struct sbp_fix *fix)
{
    const int tokens = splits_sequence(b, op) ? SBP_DIM_SEQUENCE : WHOLE;
    begin_fix(b, op, fix);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = SBP_ANY;
    for (int level = 0; level < b->cut->stage.level_count; level++) {
        fix->rest[SBP_DIM_BATCH][level] = b->mesh->data.at[level];
        fix->rest[tokens][level] *= b->mesh->context.at[level];
        fix->rest[WHOLE][level] *= b->mesh->tensor.at[level];
    }
}

static enum sbp_status fix_layer(struct builder *b, int op, struct sbp_fix *fix)
{
    const struct sbp_op_node *node = &b->cut->graph.op[op];
    begin_fix(b, op, fix);
    if (node->kind == SBP_OP_MOE)
        return fix_experts(b, op, fix);
    SBP_TRY(play(b, op, "batch", &b->mesh->data, SBP_BROADCAST, 0, fix));
    if (sbp_degrees_is_attention(node))
        return fix_attention(b, op, fix);
    SBP_TRY(play(b, op, splits_sequence(b, op) ? "sequence" : "replicate", &b->mesh->context,
                 SBP_BROADCAST, 0, fix));
    if (node->kind == SBP_OP_LINEAR)
        return fix_linear(b, op, fix);
    if (node->kind == SBP_OP_EMBEDDING)
        return fix_embedding(b, op, fix);
    return play_whole(b, op, &b->mesh->tensor, fix);
}

enum sbp_status sbp_degrees_fix_layers(const struct sbp_cut *cut,
                                       const struct sbp_degrees_mesh *mesh, struct sbp_arena *arena,
                                       struct sbp_degrees_plan *made, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &cut->graph;
    struct builder b = {.cut = cut, .mesh = mesh, .made = made, .diag = diag};
    b.fix = SBP_NEW(arena, struct sbp_fix, graph->op_count);
    b.part = SBP_NEW(arena, uint8_t, graph->op_count);
    if (b.fix == NULL || b.part == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    pair_linears(&b);
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].site == op && !graph->op[op].entry->follows)
            SBP_TRY(fix_layer(&b, op, &b.fix[made->fix_count++]));
        else if (graph->op[op].site == op && is_gathered_once(&b, op))
            fix_gathered(&b, op, &b.fix[made->fix_count++]);
    made->fix = b.fix;
    return SBP_OK;
}
