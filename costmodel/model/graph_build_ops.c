/* Builders of norms, element-wise operators, sums and the loss. */
#include <string.h>

#include "costmodel/model/graph_build_priv.h"

/* --- norms --- */

enum sbp_status sbp_build_norm(struct sbp_builder *builder, const struct sbp_json *at,
                               enum sbp_op_kind kind, const char *name, int input, double epsilon)
{
    struct sbp_op_node *op = sbp_build_op(builder, kind, name);
    const struct sbp_shape shape = sbp_build_shape(builder, input);
    struct sbp_shape vector = sbp_build_vector(&shape);
    if (kind == SBP_OP_BATCHNORM) /* of a channel, whatever its width */
        sbp_build_set_dim(&vector, SBP_DIM_OUT_INNER, 1, SBP_NO_CLASS);
    sbp_build_reads(op, input);
    op->epsilon = epsilon;
    SBP_TRY(sbp_build_weight(builder, at, op, ".gain", &vector, 1, SBP_INIT_SPREAD));
    if (kind != SBP_OP_RMSNORM)
        SBP_TRY(sbp_build_weight(builder, at, op, ".shift", &vector, 0, SBP_INIT_SPREAD));
    return sbp_build_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_head_norm(struct sbp_builder *builder, const struct sbp_json *at,
                                    const char *name, int input, int64_t size, double epsilon)
{
    const struct sbp_shape shape = sbp_build_shape(builder, input);
    if (size > shape.size[SBP_DIM_INNER])
        return SBP_BUILD_REFUSE(at, "size",
                                "%lld features of heads that have %lld, legal are 1 to %lld",
                                (long long)size, (long long)shape.size[SBP_DIM_INNER],
                                (long long)shape.size[SBP_DIM_INNER]);
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_HEAD_NORM, name);
    struct sbp_shape gain = sbp_build_scalar();
    sbp_build_set_dim(&gain, SBP_DIM_OUT_INNER, size, SBP_NO_CLASS);
    sbp_build_reads(op, input);
    op->epsilon = epsilon;
    SBP_TRY(sbp_build_weight(builder, at, op, ".gain", &gain, 1, SBP_INIT_SPREAD));
    return sbp_build_output(builder, at, op, &shape);
}

/* --- element-wise --- */

/* The gate of a feature stands beside it. */
static enum sbp_status check_inner(const struct sbp_json *at, enum sbp_op_kind kind,
                                   const struct sbp_shape *shape)
{
    const int64_t inner = shape->size[SBP_DIM_INNER];
    if (kind == SBP_OP_SWIGLU && inner != 2)
        return SBP_BUILD_REFUSE(at, "inputs",
                                "swiglu needs an input of ffn x {gate, up}, this one has %lld x "
                                "%lld (its linear's out_heads is ffn, its out 2 x ffn)",
                                (long long)shape->size[SBP_DIM_FEATURE], (long long)inner);
    return SBP_OK;
}

/* Rotation takes features in pairs. */
enum sbp_status sbp_build_rotary(struct sbp_builder *builder, const struct sbp_json *at,
                                 const char *name, int input, int64_t size)
{
    const struct sbp_shape shape = sbp_build_shape(builder, input);
    const int64_t inner = shape.size[SBP_DIM_INNER];
    if (size % 2 != 0 && size != inner)
        return SBP_BUILD_REFUSE(at, "size",
                                "%lld features of each head are turned in pairs, legal is an even "
                                "number",
                                (long long)size);
    if (size % 2 != 0)
        return SBP_BUILD_REFUSE(at, "inputs",
                                "rotary needs heads of an even size, this input has %lld x %lld "
                                "features (heads x head size)",
                                (long long)shape.size[SBP_DIM_FEATURE], (long long)inner);
    if (size > inner)
        return SBP_BUILD_REFUSE(at, "size",
                                "%lld features of heads that have %lld, legal are 2 to %lld",
                                (long long)size, (long long)inner, (long long)inner);
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_ROTARY, name);
    sbp_build_reads(op, input);
    op->rotated = size;
    return sbp_build_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_elementwise(struct sbp_builder *builder, const struct sbp_json *at,
                                      enum sbp_op_kind kind, const char *name, int input,
                                      double probability)
{
    struct sbp_shape shape = sbp_build_shape(builder, input);
    SBP_TRY(check_inner(at, kind, &shape));
    struct sbp_op_node *op = sbp_build_op(builder, kind, name);
    sbp_build_reads(op, input);
    op->probability = probability;
    if (kind == SBP_OP_SWIGLU)
        shape.size[SBP_DIM_INNER] = 1;
    return sbp_build_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_add(struct sbp_builder *builder, const struct sbp_json *at,
                              const char *name, int left, int right)
{
    const struct sbp_shape a = sbp_build_shape(builder, left), b = sbp_build_shape(builder, right);
    const struct sbp_tensor *tensor = builder->graph->tensor;
    if (left == right)
        return SBP_BUILD_REFUSE(at, "inputs", "adds \"%s\" to itself", tensor[left].name);
    if (a.size[SBP_DIM_SEQUENCE] != b.size[SBP_DIM_SEQUENCE])
        return SBP_BUILD_REFUSE(at, "inputs", "\"%s\" has %lld rows a sample, \"%s\" has %lld",
                                tensor[left].name, (long long)a.size[SBP_DIM_SEQUENCE],
                                tensor[right].name, (long long)b.size[SBP_DIM_SEQUENCE]);
    if (memcmp(a.size, b.size, sizeof a.size) != 0)
        return SBP_BUILD_REFUSE(
            at, "inputs", "\"%s\" has %lld x %lld features, \"%s\" has %lld x %lld",
            tensor[left].name, (long long)a.size[SBP_DIM_FEATURE], (long long)a.size[SBP_DIM_INNER],
            tensor[right].name, (long long)b.size[SBP_DIM_FEATURE],
            (long long)b.size[SBP_DIM_INNER]);
    sbp_build_merge(builder, a.dim_class[SBP_DIM_SEQUENCE], b.dim_class[SBP_DIM_SEQUENCE]);
    sbp_build_merge(builder, a.dim_class[SBP_DIM_FEATURE], b.dim_class[SBP_DIM_FEATURE]);
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_ADD, name);
    sbp_build_reads(op, left);
    sbp_build_reads(op, right);
    return sbp_build_output(builder, at, op, &a);
}

/* --- loss --- */

/* Features of logits that are tokens: what follows a padded linear without mixing features keeps
 * the linear's padding. */
static int64_t valid_features(const struct sbp_builder *builder, int tensor)
{
    const struct sbp_graph *graph = builder->graph;
    const struct sbp_shape shape = sbp_build_shape(builder, tensor);
    int producer = graph->tensor[tensor].producer;
    while (producer >= 0 && graph->op[producer].entry->follows)
        producer = graph->tensor[graph->op[producer].input[0]].producer;
    if (producer < 0 || graph->op[producer].kind != SBP_OP_LINEAR)
        return sbp_build_features(&shape);
    const struct sbp_tensor *weight = &graph->tensor[graph->op[producer].weight[0]];
    return weight->valid_dim >= 0 ? weight->valid_rows : sbp_build_features(&shape);
}

enum sbp_status sbp_build_cross_entropy(struct sbp_builder *builder, const struct sbp_json *at,
                                        const char *name, int logits)
{
    const struct sbp_shape shape = sbp_build_shape(builder, logits);
    if (shape.size[SBP_DIM_INNER] != 1)
        return SBP_BUILD_REFUSE(
            at, "inputs", "logits of %lld heads x %lld: a loss needs unpacked features",
            (long long)shape.size[SBP_DIM_FEATURE], (long long)shape.size[SBP_DIM_INNER]);
    if (sbp_build_features(&shape) > INT32_MAX)
        return SBP_BUILD_REFUSE(at, "inputs",
                                "logits of %lld features: labels are 32-bit, legal are 1 to %d",
                                (long long)sbp_build_features(&shape), INT32_MAX);
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_CROSS_ENTROPY, name);
    sbp_build_reads(op, logits);
    op->valid_vocabulary = valid_features(builder, logits);
    builder->graph->loss = builder->graph->op_count - 1;
    return SBP_OK;
}
