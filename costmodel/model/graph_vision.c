/* Architectures on images: vit (Dosovitskiy et al., 2021), vgg (Simonyan and Zisserman, 2015),
 * resnet (He et al., 2016; v1.5: the stride stands at the 3 x 3 convolution), and face, a residual
 * backbone with a classification layer over identities (Deng et al., 2019; OneFlow, section 6.3.1).
 */
#include "costmodel/model/graph_read_priv.h"
#include "costmodel/model/graph_transformer_priv.h"

#include <stdio.h>

#define MOST_SIDE (INT64_C(1) << 20)

struct vision {
    int64_t image, channels, classes;
};

static enum sbp_status read_vision(const struct sbp_json *at, int64_t image, struct vision *vision)
{
    *vision = (struct vision){.image = image, .channels = 3, .classes = 1000};
    SBP_TRY(sbp_json_get_int64(at, "image", 1, MOST_SIDE, &vision->image));
    SBP_TRY(sbp_json_get_int64(at, "channels", 1, MOST_SIDE, &vision->channels));
    return sbp_json_get_int64(at, "classes", 1, INT32_MAX, &vision->classes);
}

/* Images have no sequence but the one that their patches make. */
static enum sbp_status check_sequence(const struct sbp_json *at, const struct sbp_graph *graph,
                                      int64_t tokens)
{
    if (!sbp_json_has(at, "sequence") || graph->sequence == tokens)
        return SBP_OK;
    return SBP_BUILD_REFUSE(at, "sequence", "%lld, but the images make %lld (leave it away)",
                            (long long)graph->sequence, (long long)tokens);
}

/* ---- vit ---- */

static enum sbp_status read_vit_sizes(struct sbp_blocks *blocks, struct sbp_transformer *t)
{
    const struct sbp_json *at = &blocks->at;
    const struct sbp_json heads = sbp_build_at(at, "heads");
    blocks->epsilon = 1e-6;
    SBP_TRY(sbp_build_require(at, "layers", SBP_MOST_BLOCKS, &t->blocks));
    SBP_TRY(sbp_build_require(at, "hidden", SBP_MOST_WIDTH, &t->hidden));
    SBP_TRY(sbp_build_require(at, "heads", SBP_MOST_WIDTH, &t->heads));
    t->ffn = 4 * t->hidden;
    SBP_TRY(sbp_json_get_int64(at, "ffn", 1, SBP_MOST_WIDTH, &t->ffn));
    SBP_TRY(sbp_json_get_bool(at, "qkv_bias", &t->qkv_bias));
    SBP_TRY(sbp_build_probability(at, "dropout", &blocks->dropout));
    SBP_TRY(sbp_build_probability(at, "attention_dropout", &t->attention_dropout));
    SBP_TRY(sbp_json_get_double(at, "epsilon", 1e-30, 1, &blocks->epsilon));
    if (t->hidden % t->heads == 0)
        return SBP_OK;
    return sbp_json_refuse(&heads, "%lld heads do not divide the hidden size %lld",
                           (long long)t->heads, (long long)t->hidden);
}

static enum sbp_status build_vit(struct sbp_blocks *blocks, const struct vision *vision,
                                 const struct sbp_transformer *t,
                                 const struct sbp_build_patches *patches)
{
    SBP_TRY(sbp_build_patches(&blocks->builder, &blocks->at, patches));
    int stream = sbp_build_last(&blocks->builder);
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", &stream));
    SBP_TRY(sbp_transformer_build(blocks, t, &stream));
    SBP_TRY(sbp_blocks_norm(blocks, t->norm, "final_norm", &stream));
    SBP_TRY(sbp_build_first_token(&blocks->builder, &blocks->at, "first_token", stream));
    stream = sbp_build_last(&blocks->builder);
    SBP_TRY(sbp_blocks_head(blocks, vision->classes, vision->classes, -1, true, stream));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

static enum sbp_status read_vit(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                enum sbp_attention_kind attention)
{
    struct vision vision;
    struct sbp_transformer t = {.norm = SBP_OP_LAYERNORM,
                                .attention = SBP_OP_ATTENTION,
                                .activation = SBP_OP_GELU,
                                .qkv_bias = true,
                                .projection_bias = true,
                                .ffn_bias = true};
    SBP_TRY(read_vision(&blocks->at, 224, &vision));
    SBP_TRY(read_vit_sizes(blocks, &t));
    struct sbp_build_patches patches = {.name = "patches",
                                        .height = vision.image,
                                        .width = vision.image,
                                        .channels = vision.channels,
                                        .hidden = t.hidden,
                                        .bias = true,
                                        .class_token = true,
                                        .positions = true};
    SBP_TRY(sbp_build_require(&blocks->at, "patch", MOST_SIDE, &patches.patch));
    const int64_t tokens = sbp_build_patch_tokens(&patches);
    SBP_TRY(check_sequence(&blocks->at, graph, tokens));
    graph->sequence = tokens;
    SBP_TRY(sbp_build_open(&blocks->builder, &blocks->at, graph,
                           6 + SBP_TRANSFORMER_OPS * (int)t.blocks));
    blocks->builder.attention = attention;
    blocks->builder.linear_spread = 0.02;
    return build_vit(blocks, &vision, &t, &patches);
}

const struct sbp_architecture sbp_graph_vit = {"vit",
                                               {"layers", "image", "channels", "classes", "patch",
                                                "hidden", "heads", "ffn", "dropout",
                                                "attention_dropout", "qkv_bias", "epsilon"},
                                               read_vit};

/* ---- convolutions ---- */

/* A square convolution, its norm and its relu, where it has them. */
struct conv {
    int64_t out, kernel, stride;
    bool bias, norm, relu;
};

static const char *suffixed(struct sbp_blocks *blocks, const char *part, char name[])
{
    (void)snprintf(name, SBP_OP_NAME_BYTES, "%s%s", blocks->prefix, part);
    return name;
}

static enum sbp_status convolve(struct sbp_blocks *blocks, const char *part, struct conv conv,
                                int *stream)
{
    char name[SBP_OP_NAME_BYTES], other[SBP_OP_NAME_BYTES];
    const int64_t padding = conv.kernel / 2;
    const struct sbp_build_window window = {.name = suffixed(blocks, part, name),
                                            .input = *stream,
                                            .kernel = {conv.kernel, conv.kernel},
                                            .stride = {conv.stride, conv.stride},
                                            .padding = {padding, padding},
                                            .out = conv.out,
                                            .bias = conv.bias};
    SBP_TRY(sbp_build_conv2d(&blocks->builder, &blocks->at, &window));
    *stream = sbp_build_last(&blocks->builder);
    (void)snprintf(other, sizeof other, "%.24s_norm", part);
    if (conv.norm)
        SBP_TRY(sbp_blocks_norm(blocks, SBP_OP_BATCHNORM, other, stream));
    (void)snprintf(other, sizeof other, "%.24s_relu", part);
    return conv.relu ? sbp_blocks_elementwise(blocks, SBP_OP_RELU, other, stream) : SBP_OK;
}

/* kernel 0: the whole image */
static enum sbp_status pool(struct sbp_blocks *blocks, enum sbp_op_kind kind, const char *part,
                            int64_t kernel, int64_t stride, int64_t padding, int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    const struct sbp_build_window window = {.name = suffixed(blocks, part, name),
                                            .input = *stream,
                                            .kernel = {kernel, kernel},
                                            .stride = {stride, stride},
                                            .padding = {padding, padding}};
    SBP_TRY(sbp_build_pool(&blocks->builder, &blocks->at, kind, &window));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

static enum sbp_status open_images(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                   const struct vision *vision, int most_ops, int *stream)
{
    const struct sbp_build_input input = {
        .rows = vision->image, .features = vision->channels, .width = vision->image, .image = true};
    SBP_TRY(check_sequence(&blocks->at, graph, 1));
    SBP_TRY(sbp_build_open(&blocks->builder, &blocks->at, graph, most_ops));
    SBP_TRY(sbp_build_input(&blocks->builder, &blocks->at, &input));
    *stream = graph->input;
    return SBP_OK;
}

static enum sbp_status flatten(struct sbp_blocks *blocks, int *stream)
{
    SBP_TRY(sbp_build_flatten(&blocks->builder, &blocks->at, "flatten", *stream));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

/* ---- vgg ---- */

enum { VGG_DEPTHS = 4, STAGES = 5 };
static const int VGG_DEPTH[VGG_DEPTHS] = {11, 13, 16, 19};
static const int VGG_LAYERS[VGG_DEPTHS][STAGES] = {
    {1, 1, 2, 2, 2}, {2, 2, 2, 2, 2}, {2, 2, 3, 3, 3}, {2, 2, 4, 4, 4}};
static const int64_t VGG_CHANNELS[STAGES] = {64, 128, 256, 512, 512};

static enum sbp_status vgg_convolutions(struct sbp_blocks *blocks, const int layers[STAGES],
                                        bool norm, int *stream)
{
    for (int stage = 0; stage < STAGES; stage++) {
        sbp_blocks_enter(blocks, "stage", stage + 1);
        for (int i = 0; i < layers[stage]; i++) {
            char part[16];
            (void)snprintf(part, sizeof part, "conv%d", i + 1);
            const struct conv conv = {.out = VGG_CHANNELS[stage],
                                      .kernel = 3,
                                      .stride = 1,
                                      .bias = true,
                                      .norm = norm,
                                      .relu = true};
            SBP_TRY(convolve(blocks, part, conv, stream));
        }
        SBP_TRY(pool(blocks, SBP_OP_MAXPOOL, "pool", 2, 2, 0, stream));
    }
    sbp_blocks_enter(blocks, NULL, 0);
    return SBP_OK;
}

/* Three linears, the last one over the classes. */
static enum sbp_status vgg_classifier(struct sbp_blocks *blocks, int64_t hidden, int64_t classes,
                                      int *stream)
{
    SBP_TRY(flatten(blocks, stream));
    for (int i = 1; i <= 2; i++) {
        const struct sbp_blocks_linear linear = {.out = hidden, .bias = true};
        sbp_blocks_enter(blocks, "fc", i);
        SBP_TRY(sbp_blocks_linear(blocks, "linear", linear, stream));
        SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_RELU, "relu", stream));
        SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", stream));
    }
    sbp_blocks_enter(blocks, NULL, 0);
    return sbp_blocks_head(blocks, classes, classes, -1, true, *stream);
}

static enum sbp_status read_vgg(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                enum sbp_attention_kind attention)
{
    const struct sbp_json *at = &blocks->at;
    struct vision vision;
    int64_t hidden = 4096;
    bool norm = false;
    int depth = -1, stream;
    (void)attention;
    blocks->epsilon = 1e-5;
    blocks->dropout = 0.5;
    SBP_TRY(read_vision(at, 224, &vision));
    SBP_TRY(sbp_blocks_depth(at, VGG_DEPTH, VGG_DEPTHS, &depth));
    SBP_TRY(sbp_json_get_int64(at, "hidden", 1, SBP_MOST_WIDTH, &hidden));
    SBP_TRY(sbp_json_get_bool(at, "batch_norm", &norm));
    SBP_TRY(sbp_build_probability(at, "dropout", &blocks->dropout));
    if (vision.image % 32 != 0)
        return SBP_BUILD_REFUSE(at, "image", "%lld: five pools of 2 need a multiple of 32",
                                (long long)vision.image);
    SBP_TRY(open_images(blocks, graph, &vision, 3 * 16 + STAGES + 9, &stream));
    SBP_TRY(vgg_convolutions(blocks, VGG_LAYERS[depth], norm, &stream));
    SBP_TRY(vgg_classifier(blocks, hidden, vision.classes, &stream));
    return sbp_build_close(&blocks->builder, at);
}

const struct sbp_architecture sbp_graph_vgg = {
    "vgg", {"depth", "image", "channels", "classes", "hidden", "batch_norm", "dropout"}, read_vgg};

/* ---- residual stages ---- */

/* One branch of a residual block, and what its first norm does. */
enum block { BASIC, BOTTLENECK, FACE };
#define MOST_OPS_OF_RESIDUAL 13

struct stage {
    enum block block;
    int64_t inner, out, stride; /* channels inside and at the end; of the first block */
    bool projects;              /* the first block's shortcut is a convolution */
};

static enum sbp_status branch(struct sbp_blocks *blocks, const struct stage *s, int64_t stride,
                              int *stream)
{
    const struct conv plain = {
        .out = s->inner, .kernel = 3, .stride = 1, .norm = true, .relu = true};
    struct conv first = plain, second = plain, third = plain;
    if (s->block == BOTTLENECK) {
        first.kernel = third.kernel = 1;
        second.stride = stride;
        third.out = s->out;
        third.relu = false;
        SBP_TRY(convolve(blocks, "conv1", first, stream));
        SBP_TRY(convolve(blocks, "conv2", second, stream));
        return convolve(blocks, "conv3", third, stream);
    }
    if (s->block == FACE) { /* a norm before, the stride behind (Deng et al., 2019) */
        SBP_TRY(sbp_blocks_norm(blocks, SBP_OP_BATCHNORM, "norm", stream));
        second.stride = stride;
    } else {
        first.stride = stride;
    }
    second.relu = false;
    SBP_TRY(convolve(blocks, "conv1", first, stream));
    return convolve(blocks, "conv2", second, stream);
}

static enum sbp_status residual(struct sbp_blocks *blocks, const struct stage *s, bool first,
                                int *stream)
{
    const int64_t stride = first ? s->stride : 1;
    int inside = *stream;
    SBP_TRY(branch(blocks, s, stride, &inside));
    if (first && s->projects) {
        const struct conv shortcut = {.out = s->out, .kernel = 1, .stride = stride, .norm = true};
        SBP_TRY(convolve(blocks, "shortcut", shortcut, stream));
    }
    SBP_TRY(sbp_blocks_add(blocks, "add", inside, stream));
    return s->block == FACE ? SBP_OK : sbp_blocks_elementwise(blocks, SBP_OP_RELU, "relu", stream);
}

/* The first block changes sizes; the others repeat each other. */
static enum sbp_status run_stage(struct sbp_blocks *blocks, int number, const struct stage *s,
                                 int count, int *stream)
{
    char part[24];
    int repeats = 0;
    for (int i = 0; i < count; i++) {
        if (i == 1)
            repeats = blocks->builder.graph->op_count;
        (void)snprintf(part, sizeof part, "stage%d.block", number);
        sbp_blocks_enter(blocks, part, i);
        SBP_TRY(residual(blocks, s, i == 0, stream));
    }
    sbp_blocks_enter(blocks, NULL, 0);
    if (count > 1)
        sbp_blocks_repeat(blocks, repeats, count - 1);
    return SBP_OK;
}

enum { RESIDUAL_STAGES = 4 };

static int residual_ops(const int layers[RESIDUAL_STAGES])
{
    int blocks = 0;
    for (int i = 0; i < RESIDUAL_STAGES; i++)
        blocks += layers[i];
    return MOST_OPS_OF_RESIDUAL * blocks + 16;
}

/* ---- resnet ---- */

enum { RESNET_DEPTHS = 5 };
static const int RESNET_DEPTH[RESNET_DEPTHS] = {18, 34, 50, 101, 152};
static const int RESNET_LAYERS[RESNET_DEPTHS][RESIDUAL_STAGES] = {
    {2, 2, 2, 2}, {3, 4, 6, 3}, {3, 4, 6, 3}, {3, 4, 23, 3}, {3, 8, 36, 3}};

static enum sbp_status resnet_stages(struct sbp_blocks *blocks, const int layers[RESIDUAL_STAGES],
                                     enum block block, int *stream)
{
    int64_t channels = 64;
    const struct conv stem = {.out = 64, .kernel = 7, .stride = 2, .norm = true, .relu = true};
    SBP_TRY(convolve(blocks, "conv", stem, stream));
    SBP_TRY(pool(blocks, SBP_OP_MAXPOOL, "pool", 3, 2, 1, stream));
    for (int i = 0; i < RESIDUAL_STAGES; i++) {
        const int64_t inner = INT64_C(64) << i, out = block == BOTTLENECK ? 4 * inner : inner;
        const struct stage stage = {.block = block,
                                    .inner = inner,
                                    .out = out,
                                    .stride = i == 0 ? 1 : 2,
                                    .projects = i > 0 || channels != out};
        SBP_TRY(run_stage(blocks, i + 1, &stage, layers[i], stream));
        channels = out;
    }
    return SBP_OK;
}

static enum sbp_status read_resnet(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                   enum sbp_attention_kind attention)
{
    struct vision vision;
    int depth = -1, stream;
    (void)attention;
    blocks->epsilon = 1e-5;
    SBP_TRY(read_vision(&blocks->at, 224, &vision));
    SBP_TRY(sbp_blocks_depth(&blocks->at, RESNET_DEPTH, RESNET_DEPTHS, &depth));
    const int *layers = RESNET_LAYERS[depth];
    SBP_TRY(open_images(blocks, graph, &vision, residual_ops(layers), &stream));
    SBP_TRY(resnet_stages(blocks, layers, RESNET_DEPTH[depth] < 50 ? BASIC : BOTTLENECK, &stream));
    SBP_TRY(pool(blocks, SBP_OP_AVGPOOL, "average", 0, 0, 0, &stream));
    SBP_TRY(sbp_blocks_head(blocks, vision.classes, vision.classes, -1, true, stream));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

const struct sbp_architecture sbp_graph_resnet = {
    "resnet", {"depth", "image", "channels", "classes"}, read_resnet};

/* ---- face ---- */

enum { FACE_DEPTHS = 4 };
static const int FACE_DEPTH[FACE_DEPTHS] = {18, 34, 50, 100};
static const int FACE_LAYERS[FACE_DEPTHS][RESIDUAL_STAGES] = {
    {2, 2, 2, 2}, {3, 4, 6, 3}, {3, 4, 14, 3}, {3, 13, 30, 3}};

/* The published backbone has parametric rectifiers; relu stands for them. */
static enum sbp_status face_backbone(struct sbp_blocks *blocks, const int layers[RESIDUAL_STAGES],
                                     int64_t embedding, int *stream)
{
    const struct conv stem = {.out = 64, .kernel = 3, .stride = 1, .norm = true, .relu = true};
    const struct sbp_blocks_linear linear = {.out = embedding, .bias = true};
    SBP_TRY(convolve(blocks, "conv", stem, stream));
    for (int i = 0; i < RESIDUAL_STAGES; i++) {
        const int64_t out = INT64_C(64) << i;
        const struct stage stage = {
            .block = FACE, .inner = out, .out = out, .stride = 2, .projects = true};
        SBP_TRY(run_stage(blocks, i + 1, &stage, layers[i], stream));
    }
    SBP_TRY(sbp_blocks_norm(blocks, SBP_OP_BATCHNORM, "norm", stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", stream));
    SBP_TRY(flatten(blocks, stream));
    SBP_TRY(sbp_blocks_linear(blocks, "embedding", linear, stream));
    return sbp_blocks_norm(blocks, SBP_OP_BATCHNORM, "embedding_norm", stream);
}

static enum sbp_status read_face(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                 enum sbp_attention_kind attention)
{
    const struct sbp_json *at = &blocks->at;
    struct vision vision;
    int64_t embedding = 512;
    int depth = 3, stream;
    (void)attention;
    blocks->epsilon = 1e-5;
    SBP_TRY(read_vision(at, 112, &vision));
    SBP_TRY(sbp_build_require(at, "classes", INT32_MAX, &vision.classes));
    SBP_TRY(sbp_blocks_depth(at, FACE_DEPTH, FACE_DEPTHS, &depth));
    SBP_TRY(sbp_json_get_int64(at, "embedding", 1, SBP_MOST_WIDTH, &embedding));
    SBP_TRY(sbp_build_probability(at, "dropout", &blocks->dropout));
    const int *layers = FACE_LAYERS[depth];
    SBP_TRY(open_images(blocks, graph, &vision, residual_ops(layers), &stream));
    SBP_TRY(face_backbone(blocks, layers, embedding, &stream));
    SBP_TRY(sbp_blocks_head(blocks, vision.classes, vision.classes, -1, false, stream));
    return sbp_build_close(&blocks->builder, at);
}

const struct sbp_architecture sbp_graph_face = {
    "face", {"depth", "image", "channels", "classes", "embedding", "dropout"}, read_face};
