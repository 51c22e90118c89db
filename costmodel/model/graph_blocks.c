#include "costmodel/model/graph_blocks_priv.h"

#include <stdio.h>

/* ---- names and repeats ---- */

void sbp_blocks_enter(struct sbp_blocks *blocks, const char *part, int64_t number)
{
    blocks->number = number;
    if (part == NULL)
        blocks->prefix[0] = '\0';
    else
        (void)snprintf(blocks->prefix, sizeof blocks->prefix, "%s%lld.", part, (long long)number);
}

struct name {
    char text[SBP_OP_NAME_BYTES];
};

static struct name name_of(const struct sbp_blocks *blocks, const char *part)
{
    struct name name;
    (void)snprintf(name.text, sizeof name.text, "%s%s", blocks->prefix, part);
    return name;
}

void sbp_blocks_repeat(struct sbp_blocks *blocks, int first, int64_t count)
{
    struct sbp_graph *graph = blocks->builder.graph;
    if (count < 1)
        return;
    const int added = graph->op_count - first, per_block = added / (int)count;
    for (int i = 0; i < per_block; i++)
        graph->op[first + i].repeats = (int)count;
    for (int i = per_block; i < added; i++) {
        graph->op[first + i].site = first + i % per_block;
        graph->op[first + i].repeats = 0;
    }
}

/* ---- layers ---- */

enum sbp_status sbp_blocks_linear(struct sbp_blocks *blocks, const char *part,
                                  struct sbp_blocks_linear linear, int *stream)
{
    const struct name name = name_of(blocks, part);
    const struct name out = name_of(blocks, linear.out_class == NULL ? "" : linear.out_class);
    const struct sbp_build_linear spec = {.name = name.text,
                                          .input = *stream,
                                          .out = linear.out,
                                          .heads = linear.heads,
                                          .bias = linear.bias,
                                          .table = -1,
                                          .out_class = linear.out_class == NULL ? NULL : out.text};
    SBP_TRY(sbp_build_linear(&blocks->builder, &blocks->at, &spec));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

enum sbp_status sbp_blocks_head(struct sbp_blocks *blocks, int64_t classes, int64_t padded,
                                int table, bool bias, int stream)
{
    const struct sbp_build_linear head = {.name = "head",
                                          .input = stream,
                                          .out = padded,
                                          .valid_out = classes,
                                          .bias = bias,
                                          .table = table};
    SBP_TRY(sbp_build_linear(&blocks->builder, &blocks->at, &head));
    return sbp_build_cross_entropy(&blocks->builder, &blocks->at, "loss",
                                   sbp_build_last(&blocks->builder));
}

enum sbp_status sbp_blocks_norm(struct sbp_blocks *blocks, enum sbp_op_kind kind, const char *part,
                                int *stream)
{
    const struct name name = name_of(blocks, part);
    SBP_TRY(
        sbp_build_norm(&blocks->builder, &blocks->at, kind, name.text, *stream, blocks->epsilon));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

enum sbp_status sbp_blocks_elementwise(struct sbp_blocks *blocks, enum sbp_op_kind kind,
                                       const char *part, int *stream)
{
    const struct name name = name_of(blocks, part);
    const double probability = kind == SBP_OP_DROPOUT ? blocks->dropout : 0;
    if (kind == SBP_OP_DROPOUT && probability <= 0)
        return SBP_OK;
    SBP_TRY(sbp_build_elementwise(&blocks->builder, &blocks->at, kind, name.text, *stream,
                                  probability));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

enum sbp_status sbp_blocks_add(struct sbp_blocks *blocks, const char *part, int branch, int *stream)
{
    const struct name name = name_of(blocks, part);
    SBP_TRY(sbp_build_add(&blocks->builder, &blocks->at, name.text, *stream, branch));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

/* ---- keys ---- */

enum sbp_status sbp_blocks_depth(const struct sbp_json *at, const int *depths, int count,
                                 int *choice)
{
    int64_t depth;
    char legal[96];
    int used = 0;
    if (*choice >= 0 && !sbp_json_has(at, "depth"))
        return SBP_OK;
    SBP_TRY(sbp_build_require(at, "depth", SBP_MOST_SIZE, &depth));
    legal[0] = '\0';
    for (int i = 0; i < count; i++) {
        if (depth == depths[i]) {
            *choice = i;
            return SBP_OK;
        }
        used += snprintf(legal + used, sizeof legal - (size_t)used, "%s%d", i == 0 ? "" : ", ",
                         depths[i]);
    }
    return SBP_BUILD_REFUSE(at, "depth", "%lld is no published depth, legal are %s",
                            (long long)depth, legal);
}
