/* Builders of attention: one packed projection, grouped queries, latent. */
#include "costmodel/model/graph_build_priv.h"

/* Features (heads) and inner sizes that each kind of attention reads, and names of its inputs. */
struct wanted {
    int64_t features, inner;
    const char *what;
};

static int wanted_inputs(const struct sbp_build_attention *a, struct wanted want[SBP_MAX_INPUTS])
{
    if (a->kind == SBP_OP_GROUPED_ATTENTION) {
        want[0] = (struct wanted){a->heads, a->head_size, "queries"};
        want[1] = (struct wanted){a->kv_heads, 2 * a->head_size, "keys and values"};
        return 2;
    }
    want[0] = (struct wanted){a->heads, a->nope + a->rope, "queries"};
    want[1] = (struct wanted){a->heads, a->nope + a->value, "keys and values"};
    want[2] = (struct wanted){a->rope, 1, "rotary keys"};
    return 3;
}

static enum sbp_status check_packed(const struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_attention *a)
{
    const struct sbp_shape packed = sbp_build_shape(builder, a->input[0]);
    if (packed.size[SBP_DIM_FEATURE] == a->heads && packed.size[SBP_DIM_INNER] % 3 == 0)
        return SBP_OK;
    return SBP_BUILD_REFUSE(at, "heads",
                            "%lld heads need a packed input of %lld x (3 x head size) features, "
                            "this one has %lld x %lld (the projection's out_heads)",
                            (long long)a->heads, (long long)a->heads,
                            (long long)packed.size[SBP_DIM_FEATURE],
                            (long long)packed.size[SBP_DIM_INNER]);
}

static enum sbp_status check_inputs(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_attention *a)
{
    struct wanted want[SBP_MAX_INPUTS];
    const int count = wanted_inputs(a, want);
    const struct sbp_shape first = sbp_build_shape(builder, a->input[0]);
    for (int i = 0; i < count; i++) {
        const struct sbp_shape shape = sbp_build_shape(builder, a->input[i]);
        if (shape.size[SBP_DIM_FEATURE] != want[i].features ||
            shape.size[SBP_DIM_INNER] != want[i].inner)
            return SBP_BUILD_REFUSE(
                at, "inputs", "the %s need %lld x %lld features, \"%s\" has %lld x %lld",
                want[i].what, (long long)want[i].features, (long long)want[i].inner,
                builder->graph->tensor[a->input[i]].name, (long long)shape.size[SBP_DIM_FEATURE],
                (long long)shape.size[SBP_DIM_INNER]);
        if (shape.size[SBP_DIM_SEQUENCE] != first.size[SBP_DIM_SEQUENCE])
            return SBP_BUILD_REFUSE(
                at, "inputs", "the %s have %lld tokens a sequence, the queries %lld", want[i].what,
                (long long)shape.size[SBP_DIM_SEQUENCE], (long long)first.size[SBP_DIM_SEQUENCE]);
        sbp_build_merge(builder, first.dim_class[SBP_DIM_SEQUENCE],
                        shape.dim_class[SBP_DIM_SEQUENCE]);
    }
    return sbp_build_distinct(builder, at, a->input, count);
}

static enum sbp_status check(struct sbp_builder *builder, const struct sbp_json *at,
                             const struct sbp_build_attention *a)
{
    const struct sbp_json kv_heads = sbp_build_at(at, "kv_heads");
    if (a->kind == SBP_OP_ATTENTION)
        SBP_TRY(check_packed(builder, at, a));
    else if (a->window > 0 && !a->causal)
        return SBP_BUILD_REFUSE(at, "window", "attention over a window is causal");
    else if (a->kind == SBP_OP_GROUPED_ATTENTION && a->heads % a->kv_heads != 0)
        return sbp_json_refuse(&kv_heads, "%lld key and value heads do not divide the %lld heads",
                               (long long)a->kv_heads, (long long)a->heads);
    else
        SBP_TRY(check_inputs(builder, at, a));
    const struct sbp_shape queries = sbp_build_shape(builder, a->input[0]);
    const int64_t scores[SBP_MAX_DIMS] = {queries.size[0], queries.size[1], queries.size[1],
                                          a->heads};
    int64_t elements;
    if (!sbp_build_count(scores, &elements))
        return sbp_json_refuse(at, "its scores are more than 2^59 elements");
    return SBP_OK;
}

/* Heads of queries and of keys are classes of their own: one key head serves several queries' where
 * it is grouped, and the same one where it is latent. */
static void name_heads(struct sbp_builder *builder, const struct sbp_build_attention *a)
{
    const int heads = sbp_build_shape(builder, a->input[0]).dim_class[SBP_DIM_FEATURE];
    sbp_build_rename_class(builder, heads, "%s.heads", a->name);
    if (a->kind == SBP_OP_ATTENTION)
        return;
    const int keys = sbp_build_shape(builder, a->input[1]).dim_class[SBP_DIM_FEATURE];
    if (a->kind == SBP_OP_LATENT_ATTENTION)
        sbp_build_merge(builder, heads, keys);
    else
        sbp_build_rename_class(builder, keys, "%s.kv_heads", a->name);
}

static void set_sizes(struct sbp_op_node *op, const struct sbp_build_attention *a, int64_t inner)
{
    if (a->kind == SBP_OP_LATENT_ATTENTION) {
        op->attention.qk_size = a->nope + a->rope;
        op->attention.value_size = a->value;
    } else {
        op->attention.qk_size = op->attention.value_size =
            a->kind == SBP_OP_ATTENTION ? inner / 3 : a->head_size;
    }
}

/* A score of each head that joins the softmax's sum and has no value (gpt-oss). */
static enum sbp_status add_sinks(struct sbp_builder *builder, const struct sbp_json *at,
                                 struct sbp_op_node *op, const struct sbp_shape *queries)
{
    struct sbp_shape sinks = sbp_build_vector(queries);
    sinks.size[SBP_DIM_OUT_INNER] = 1;
    return sbp_build_weight(builder, at, op, ".sinks", &sinks, 0, SBP_INIT_SPREAD);
}

enum sbp_status sbp_build_attention(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_attention *a)
{
    SBP_TRY(check(builder, at, a));
    struct sbp_op_node *op = sbp_build_op(builder, a->kind, a->name);
    struct sbp_shape shape = sbp_build_shape(builder, a->input[0]);
    for (int i = 0; i < sbp_op(a->kind)->inputs; i++)
        sbp_build_reads(op, a->input[i]);
    op->attention.causal = a->causal;
    op->attention.ring = a->ring;
    op->attention.dropout = a->dropout;
    op->attention.kind = builder->attention;
    op->attention.window = a->window;
    op->attention.windowed = a->windowed;
    op->attention.own_window = a->own_window;
    set_sizes(op, a, shape.size[SBP_DIM_INNER]);
    name_heads(builder, a);
    if (a->sinks)
        SBP_TRY(add_sinks(builder, at, op, &shape));
    shape.size[SBP_DIM_INNER] = op->attention.value_size;
    return sbp_build_output(builder, at, op, &shape);
}
