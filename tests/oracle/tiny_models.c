#include "tiny_models.h"

#include <stdio.h>
#include <string.h>

/* What the layers so far end in. */
struct stream {
    struct sbp_random *random;
    struct small_text *text;
    int layers, weighted, most_weighted;
    char name[16]; /* "input" before the first layer */
    int features;  /* of all heads; channels of images */
    int inner;     /* > 1: behind heads, which element-wise sums do not meet */
    int sequence, height, width;
    bool is_first; /* no layer is written yet */
};

/* Begins a layer that reads `from`, and makes it the end of the stream; the caller closes it. */
static void put_layer(struct stream *s, const char *op, const char *from)
{
    snprintf(s->name, sizeof s->name, "l%d", s->layers);
    small_put(s->text, "%s{\"op\": \"%s\", \"name\": \"%s\"", s->is_first ? "" : ", ", op, s->name);
    if (from != NULL)
        small_put(s->text, ", \"inputs\": [\"%s\"]", from);
    s->layers++;
    s->is_first = false;
}

static int draw_size(struct sbp_random *random)
{
    return small_chance(random, 0.85) ? SMALL_PICK(random, 1, 2, 3, 4, 5, 6, 8, 9, 12)
                                      : SMALL_PICK(random, 30, 64, 256, 1024);
}

/* --- layers on rows of features --- */

static void put_linear(struct stream *s, const char *from, int out, int heads)
{
    put_layer(s, heads == 0 && small_chance(s->random, 0.1) ? "summa_linear" : "linear", from);
    small_put(s->text, ", \"out\": %d", out);
    if (heads > 0)
        small_put(s->text, ", \"out_heads\": %d", heads);
    small_put(s->text, ", \"bias\": %s}", small_chance(s->random, 0.3) ? "true" : "false");
    s->features = out;
    s->inner = heads > 0 ? out / heads : 1;
    s->weighted++;
}

static void put_elementwise(struct stream *s)
{
    static const char *const ops[] = {"relu", "gelu", "tanh"};
    const char *const op = ops[sbp_random_below(s->random, 3)];
    const bool drops = small_chance(s->random, 0.3);
    put_layer(s, drops ? "dropout" : op, NULL);
    small_put(s->text, drops ? ", \"p\": 0.5}" : "}");
}

static void put_norm(struct stream *s)
{
    put_layer(s, small_chance(s->random, 0.5) ? "layernorm" : "rmsnorm", NULL);
    small_put(s->text, "}");
}

static void put_sum(struct stream *s, const char *a, const char *b)
{
    put_layer(s, "add", NULL);
    small_put(s->text, ", \"inputs\": [\"%s\", \"%s\"]}", a, b);
}

/* The stream and a linear of it, or two linears of it, are summed. */
static void put_branches(struct stream *s)
{
    char from[16], beside[16];
    const int left = s->most_weighted - s->weighted;
    const int features = s->features;
    strcpy(from, s->name);
    strcpy(beside, s->name);
    if (left > 1 && small_chance(s->random, 0.4))
        put_linear(s, from, features, 0), strcpy(beside, s->name);
    put_linear(s, from, features, 0);
    if (small_chance(s->random, 0.3))
        put_elementwise(s);
    char own[16];
    strcpy(own, s->name);
    put_sum(s, beside, own);
}

static const char *context_of(struct stream *s)
{
    return small_chance(s->random, 0.5) ? "ring" : "gather";
}

static void put_attention(struct stream *s)
{
    const int heads = SMALL_PICK(s->random, 1, 2, 3, 4), size = SMALL_PICK(s->random, 1, 2, 4);
    put_linear(s, NULL, 3 * heads * size, heads);
    put_layer(s, "attention", NULL);
    small_put(s->text, ", \"heads\": %d, \"context\": \"%s\"}", heads, context_of(s));
    s->features = heads * size;
    s->inner = size;
}

static void put_grouped_attention(struct stream *s)
{
    const int kv_heads = SMALL_PICK(s->random, 1, 2, 3),
              heads = kv_heads * SMALL_PICK(s->random, 1, 2);
    const int size = SMALL_PICK(s->random, 2, 4);
    char from[16], queries[16], keys[16];
    strcpy(from, s->name);
    put_linear(s, from, heads * size, heads);
    if (small_chance(s->random, 0.3)) {
        put_layer(s, "head_norm", NULL);
        small_put(s->text, "}");
    }
    if (small_chance(s->random, 0.3)) {
        put_layer(s, "rotary", NULL);
        small_put(s->text, "}");
    }
    strcpy(queries, s->name);
    put_linear(s, from, 2 * kv_heads * size, kv_heads);
    strcpy(keys, s->name);
    put_layer(s, "grouped_attention", NULL);
    small_put(s->text,
              ", \"inputs\": [\"%s\", \"%s\"], \"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, "
              "\"context\": \"%s\", \"sinks\": %s}",
              queries, keys, heads, kv_heads, size, context_of(s),
              small_chance(s->random, 0.4) ? "true" : "false");
    s->features = heads * size;
    s->inner = size;
}

static void put_latent_attention(struct stream *s)
{
    const int heads = SMALL_PICK(s->random, 1, 2, 3, 4);
    char from[16], queries[16], keys[16], rotary[16];
    strcpy(from, s->name);
    put_linear(s, from, 3 * heads, heads);
    strcpy(queries, s->name);
    put_linear(s, from, 4 * heads, heads);
    strcpy(keys, s->name);
    put_linear(s, from, 1, 1);
    strcpy(rotary, s->name);
    put_layer(s, "latent_attention", NULL);
    small_put(s->text,
              ", \"inputs\": [\"%s\", \"%s\", \"%s\"], \"heads\": %d, \"nope\": 2, \"rope\": 1, "
              "\"value\": 2}",
              queries, keys, rotary, heads);
    s->features = 2 * heads;
    s->inner = 2;
}

static void put_mixture(struct stream *s)
{
    const int experts = SMALL_PICK(s->random, 2, 3, 4, 6);
    put_layer(s, "moe", NULL);
    small_put(s->text,
              ", \"experts\": %d, \"top_k\": %d, \"ffn\": %d, \"capacity\": %s, \"gated\": %s, "
              "\"expert_bias\": %s, \"router_bias\": %s}",
              experts, SMALL_PICK(s->random, 1, 2), draw_size(s->random),
              small_chance(s->random, 0.5) ? "1" : "1.5",
              small_chance(s->random, 0.5) ? "true" : "false", experts == 3 ? "true" : "false",
              small_chance(s->random, 0.3) ? "true" : "false");
    s->weighted++;
}

static void put_gate(struct stream *s)
{
    const int ffn = draw_size(s->random);
    put_linear(s, NULL, 2 * ffn, ffn);
    put_layer(s, "swiglu", NULL);
    small_put(s->text, "}");
    s->features = ffn;
    s->inner = 1;
}

static void put_custom(struct stream *s)
{
    static const char *const roles[] = {
        "{\"name\": \"batch\", \"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"}",
        "{\"name\": \"batch\", \"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"}, "
        "{\"name\": \"channel\", \"input\": \"S2\", \"weight\": \"S2\", \"output\": \"S2\"}",
        "{\"name\": \"channel\", \"input\": \"S2\", \"weight\": \"S2\", \"output\": \"S2\"}, "
        "{\"name\": \"sequence\", \"input\": \"S1\", \"weight\": \"B\", \"output\": \"S1\"}",
    };
    put_layer(s, "custom", NULL);
    small_put(
        s->text,
        ", \"parameters\": %d, \"saved_bytes\": %d, \"roles\": [%s], \"flops\": {\"forward\": "
        "%d, \"input_gradient\": %d, \"weight_gradient\": %d}}",
        s->features, SMALL_PICK(s->random, 0, 4096), roles[sbp_random_below(s->random, 3)],
        SMALL_PICK(s->random, 100, 1000000), SMALL_PICK(s->random, 100, 1000000),
        SMALL_PICK(s->random, 100, 1000000));
    s->weighted++;
}

static void put_block(struct stream *s)
{
    const int left = s->most_weighted - s->weighted;
    const int what = (int)sbp_random_below(s->random, 14);
    const bool plain = s->inner == 1;
    if (plain && small_chance(s->random, 0.15))
        put_norm(s);
    if (what < 2 && plain)
        put_branches(s);
    else if (what == 2)
        put_attention(s);
    else if (what <= 4 && left >= 2)
        put_grouped_attention(s);
    else if (what == 5 && left >= 3)
        put_latent_attention(s);
    else if (what <= 7 && plain)
        put_mixture(s);
    else if (what == 8)
        put_gate(s);
    else if (what == 9 && plain)
        put_custom(s);
    else
        put_linear(s, NULL, draw_size(s->random), 0);
    if (s->inner == 1 && small_chance(s->random, 0.3))
        put_elementwise(s);
}

/* Blocks until there are enough weights, then perhaps one token and a loss. */
static void put_rows(struct stream *s)
{
    while (s->weighted < s->most_weighted)
        put_block(s);
    if (s->sequence > 1 && s->inner == 1 && small_chance(s->random, 0.15)) {
        put_layer(s, "first_token", NULL);
        small_put(s->text, "}");
    }
    if (s->inner == 1 && s->features > 1 && small_chance(s->random, 0.4)) {
        put_layer(s, "cross_entropy", NULL);
        small_put(s->text, "}");
    }
    small_put(s->text, "]}");
}

/* --- models --- */

static void put_head(struct stream *s)
{
    static const char *const optimizers[] = {"\"adam\"", "\"adamw\"", "\"sgd\"",
                                             "{\"name\": \"sgd\", \"momentum\": 0.9}"};
    static const char *const precisions[] = {"fp32", "fp32", "fp32",  "fp32",  "fp32",
                                             "fp32", "fp8",  "mixed", "mixed", "fp8"};
    small_put(s->text, "{\"name\": \"tiny\", \"global_batch\": %d, \"optimizer\": %s, ",
              small_chance(s->random, 0.9) ? SMALL_PICK(s->random, 1, 2, 3, 4, 6, 8, 12) : 512,
              optimizers[sbp_random_below(s->random, 4)]);
    small_put(s->text, "\"precision\": \"%s\", ", precisions[sbp_random_below(s->random, 10)]);
    if (small_chance(s->random, 0.2))
        small_put(s->text, "\"clip_norm\": 1, ");
    if (small_chance(s->random, 0.3))
        small_put(s->text, "\"attention\": \"flash\", ");
}

static void draw_features(struct stream *s)
{
    s->features = draw_size(s->random);
    small_put(s->text, "\"sequence\": %d, \"features\": %d, \"input\": \"%s\", \"layers\": [",
              s->sequence, s->features, small_chance(s->random, 0.4) ? "split" : "free");
    put_rows(s);
}

static void draw_tokens(struct stream *s)
{
    const int hidden = draw_size(s->random),
              vocab = SMALL_PICK(s->random, 2, 5, 6, 8, 12, 64, 100000);
    small_put(s->text, "\"sequence\": %d, \"layers\": [", s->sequence);
    put_layer(s, "embedding", NULL);
    small_put(s->text, ", \"vocab\": %d, \"hidden\": %d", vocab, hidden);
    if (small_chance(s->random, 0.3))
        small_put(s->text, ", \"positions\": %d", s->sequence);
    if (small_chance(s->random, 0.2))
        small_put(s->text, ", \"types\": 2");
    small_put(s->text, "}");
    s->features = hidden;
    s->weighted++;
    if (small_chance(s->random, 0.6)) {
        put_rows(s);
        return;
    }
    while (s->weighted + 1 < s->most_weighted)
        small_chance(s->random, 0.5) ? put_branches(s) : put_linear(s, NULL, hidden, 0);
    if (small_chance(s->random, 0.3))
        put_norm(s);
    put_layer(s, "linear", NULL);
    small_put(s->text, ", \"tied\": \"l0\"}");
    s->features = vocab;
    s->weighted = s->most_weighted;
    put_rows(s);
}

static void put_convolution(struct stream *s, int out)
{
    const int kernel = SMALL_PICK(s->random, 1, 3);
    put_layer(s, "conv2d", NULL);
    small_put(s->text, ", \"out\": %d, \"kernel\": %d, \"padding\": %d, \"bias\": %s}", out, kernel,
              kernel / 2, small_chance(s->random, 0.3) ? "true" : "false");
    s->features = out;
    s->weighted++;
    if (small_chance(s->random, 0.3)) {
        put_layer(s, "batchnorm", NULL);
        small_put(s->text, "}");
    }
    if (small_chance(s->random, 0.3)) {
        put_layer(s, "relu", NULL);
        small_put(s->text, "}");
    }
}

static void put_pool(struct stream *s)
{
    const bool is_global = small_chance(s->random, 0.3);
    put_layer(s, small_chance(s->random, 0.5) ? "maxpool" : "avgpool", NULL);
    if (is_global)
        s->height = s->width = 1, small_put(s->text, ", \"global\": true}");
    else
        s->height /= 2, s->width /= 2, small_put(s->text, ", \"kernel\": 2}");
}

static void draw_images(struct stream *s)
{
    s->features = SMALL_PICK(s->random, 1, 3, 4, 6);
    s->height = s->width = SMALL_PICK(s->random, 4, 6, 8);
    small_put(s->text,
              "\"input\": {\"height\": %d, \"width\": %d, \"channels\": %d, \"split\": %s}, "
              "\"layers\": [",
              s->height, s->width, s->features, small_chance(s->random, 0.4) ? "true" : "false");
    put_convolution(s, draw_size(s->random));
    while (s->weighted < s->most_weighted && small_chance(s->random, 0.6)) {
        char from[16], own[16];
        strcpy(from, s->name);
        put_convolution(s, small_chance(s->random, 0.5) ? s->features : draw_size(s->random));
        strcpy(own, s->name);
        if (small_chance(s->random, 0.3) && s->weighted < s->most_weighted) {
            put_convolution(s, s->features);
            char last[16];
            strcpy(last, s->name);
            put_sum(s, own, last);
        }
        (void)from;
    }
    if (small_chance(s->random, 0.5))
        put_pool(s);
    if (small_chance(s->random, 0.6)) {
        put_layer(s, "flatten", NULL);
        small_put(s->text, "}");
        s->inner = s->height * s->width;
        s->features *= s->inner;
        if (s->weighted < s->most_weighted)
            put_rows(s);
        else
            small_put(s->text, "]}");
    } else
        small_put(s->text, "]}");
}

static void draw_patches(struct stream *s)
{
    s->features = draw_size(s->random);
    small_put(s->text, "\"input\": {\"height\": 4, \"width\": 4, \"channels\": 3}, \"layers\": [");
    put_layer(s, "patch_embedding", NULL);
    small_put(
        s->text,
        ", \"patch\": 2, \"hidden\": %d, \"bias\": %s, \"class_token\": %s, \"positions\": %s}",
        s->features, small_chance(s->random, 0.5) ? "true" : "false",
        small_chance(s->random, 0.5) ? "true" : "false",
        small_chance(s->random, 0.5) ? "true" : "false");
    s->sequence = 4;
    s->weighted++;
    put_rows(s);
}

static void draw_architecture(struct stream *s)
{
    const int sequence = SMALL_PICK(s->random, 1, 2, 4),
              vocab = SMALL_PICK(s->random, 5, 8, 12, 50000);
    switch (sbp_random_below(s->random, 5)) {
    case 0:
    case 1:
        small_put(
            s->text,
            "\"architecture\": \"wide-deep\", \"layers\": %d, \"sequence\": %d, \"vocab\": %d, "
            "\"hidden\": %d, \"features\": %d, \"ffn\": %d, \"dropout\": %s}",
            SMALL_PICK(s->random, 1, 2, 3), SMALL_PICK(s->random, 1, 2, 3, 6), vocab,
            SMALL_PICK(s->random, 1, 2, 4), SMALL_PICK(s->random, 1, 3, 4),
            SMALL_PICK(s->random, 4, 6, 9, 1024), small_chance(s->random, 0.5) ? "0.5" : "0");
        break;
    case 2:
        small_put(s->text,
                  "\"architecture\": \"gpt\", \"layers\": %d, \"hidden\": %d, \"heads\": 2, "
                  "\"sequence\": %d, \"vocab\": %d, \"tied\": %s}",
                  SMALL_PICK(s->random, 1, 2), SMALL_PICK(s->random, 4, 6, 64), sequence, vocab,
                  small_chance(s->random, 0.5) ? "true" : "false");
        break;
    case 3:
        small_put(s->text,
                  "\"architecture\": \"mlp\", \"layers\": %d, \"hidden\": %d, \"features\": %d, "
                  "\"classes\": %d, \"bias\": %s}",
                  SMALL_PICK(s->random, 1, 2, 3), draw_size(s->random), draw_size(s->random),
                  SMALL_PICK(s->random, 2, 3, 4, 8),
                  small_chance(s->random, 0.5) ? "true" : "false");
        break;
    default:
        small_put(s->text,
                  "\"architecture\": \"bert\", \"layers\": 1, \"hidden\": %d, \"heads\": 2, "
                  "\"sequence\": %d, \"vocab\": %d, \"positions\": 4}",
                  SMALL_PICK(s->random, 4, 6), sequence, vocab);
        break;
    }
}

void tiny_model_draw(struct sbp_random *random, struct small_text *model)
{
    struct stream s = {.random = random, .text = model, .name = "input", .is_first = true};
    const int what = (int)sbp_random_below(random, 20);
    *model = (struct small_text){.length = 0};
    s.most_weighted = SMALL_PICK(random, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4);
    s.sequence = SMALL_PICK(random, 1, 1, 1, 2, 2, 3, 4);
    s.inner = 1;
    put_head(&s);
    if (what < 9)
        draw_features(&s);
    else if (what < 13)
        draw_tokens(&s);
    else if (what < 17)
        draw_images(&s);
    else if (what < 18)
        draw_patches(&s);
    else
        draw_architecture(&s);
}

/* --- clusters and cuts --- */

/* Between two powers of ten. */
static double draw_power(struct sbp_random *random, int least, int most)
{
    static const double digits[] = {1, 2, 5};
    double value = digits[sbp_random_below(random, 3)];
    const int power = least + (int)sbp_random_below(random, (uint64_t)(most - least));
    for (int i = 0; i < power; i++)
        value *= 10;
    for (int i = 0; i > power; i--)
        value /= 10;
    return value;
}

static void put_level(struct sbp_random *random, const char *name, int size, int speed,
                      struct small_text *text)
{
    static const int alpha[3][2] = {{-9, -7}, {-7, -5}, {-5, -2}};
    static const int beta[3][2] = {{-13, -11}, {-11, -9}, {-9, -5}};
    small_put(text, "{\"name\": \"%s\", \"size\": %d, \"alpha_s\": %.3g, \"beta_s_per_byte\": %.3g",
              name, size,
              small_chance(random, 0.1) ? 0 : draw_power(random, alpha[speed][0], alpha[speed][1]),
              draw_power(random, beta[speed][0], beta[speed][1]));
    if (small_chance(random, 0.3))
        small_put(text, ", \"ports\": %d", SMALL_PICK(random, 1, 2));
    small_put(text, "}");
}

static void put_unfused(struct sbp_random *random, struct small_text *text)
{
    small_put(text,
              ", \"unfused_attention\": {\"forward_passes\": %d.5, \"backward_passes\": %d.5, "
              "\"efficiency\": %.3g}",
              SMALL_PICK(random, 1, 6), SMALL_PICK(random, 2, 9), draw_power(random, -1, 0));
}

/* A trainer that hides some of the communication, may wait for its hosts, its messages or its
 * kernels' launches, and reaches a part of what the device can. */
static void put_runtime(struct sbp_random *random, struct small_text *cluster)
{
    small_put(cluster, ", \"runtime\": {\"name\": \"tiny\", \"hides\": {");
    for (int i = 0; i < SBP_HIDINGS; i++)
        small_put(cluster, "%s\"%s\": %.2g", i == 0 ? "" : ", ",
                  sbp_runtime_hiding_name((enum sbp_hiding)i),
                  small_chance(random, 0.4) ? sbp_random_unit(random) : 0);
    small_put(cluster, "}, \"messages\": \"%s\"", small_chance(random, 0.4) ? "block" : "overlap");
    if (small_chance(random, 0.4))
        small_put(cluster, ", \"host_s\": %.3g", draw_power(random, -9, -5));
    if (small_chance(random, 0.3))
        small_put(cluster, ", \"launch_s\": %.3g", draw_power(random, -9, -5));
    if (small_chance(random, 0.4))
        small_put(cluster,
                  ", \"reaches\": {\"products\": %.3g, \"attention\": %.3g, \"streams\": %.3g}",
                  draw_power(random, -2, 0), draw_power(random, -2, 0), draw_power(random, -1, 0));
    if (small_chance(random, 0.3))
        put_unfused(random, cluster);
    small_put(cluster, "}");
}

/* The grid of a type, of all passes or of one. */
static void put_typed_grid(struct sbp_random *random, int place, struct small_text *text)
{
    static const char *const types[] = {"fp32", "bf16", "fp8"};
    small_put(text,
              ", {\"type\": \"%s\"%s, \"m\": [1], \"n\": [4], \"k\": [2, 8], "
              "\"efficiency\": [%.3g, %.3g]}",
              types[place], small_chance(random, 0.3) ? ", \"pass\": \"input_gradient\"" : "",
              draw_power(random, -2, 0), draw_power(random, -2, 0));
}

/* Shares of the peak that jump about, as no device's do: choices then hang on them. */
static void put_rates(struct sbp_random *random, struct small_text *text)
{
    small_put(text, ", \"gemm_grids\": [{\"m\": [2, 16], \"n\": [1, 4], \"k\": [3, 8], "
                    "\"efficiency\": [");
    for (int i = 0; i < 8; i++)
        small_put(text, "%s%.3g", i > 0 ? ", " : "", draw_power(random, -2, 0));
    small_put(text, "]}");
    for (int i = 0; i < 3; i++)
        if (small_chance(random, 0.3))
            put_typed_grid(random, i, text);
    small_put(text,
              ", {\"pass\": \"weight_gradient\", \"m\": [1], \"n\": [2, 4], \"k\": [1], "
              "\"efficiency\": [%.3g, %.3g]}]",
              draw_power(random, -2, 0), draw_power(random, -2, 0));
    small_put(text,
              ", \"attention_grids\": [{\"head_size\": [1], \"sequence\": [1], \"rows\": [4, "
              "16], \"efficiency\": [%.3g, %.3g]}]",
              draw_power(random, -2, 0), draw_power(random, -2, 0));
    if (small_chance(random, 0.5))
        put_unfused(random, text);
    if (small_chance(random, 0.5))
        small_put(
            text,
            ", \"dispatch_efficiency\": {\"row_bytes\": [4, 16], \"efficiency\": [%.3g, %.3g]}",
            draw_power(random, -2, 0), draw_power(random, -2, 0));
    if (small_chance(random, 0.5))
        small_put(text, ", \"sustained\": %.3g", draw_power(random, -1, 0));
    else
        small_put(text, ", \"sustained\": {\"fp32\": %.3g, \"bf16\": %.3g, \"fp8\": %.3g}",
                  draw_power(random, -1, 0), draw_power(random, -1, 0), draw_power(random, -1, 0));
    if (small_chance(random, 0.3))
        small_put(text, ", \"overlap_efficiency\": %.3g, \"host_launch_s\": %.3g",
                  draw_power(random, -1, 0), draw_power(random, -9, -5));
    small_put(text,
              ", \"stream_efficiency\": %.3g, \"vector_operations_per_s\": %.3g, "
              "\"pass_efficiency\": {\"input_gradient\": 0.7}, \"grouped_efficiency\": "
              "{\"forward\": 0.3}, \"alignment\": {\"multiple\": 2, \"efficiency\": 0.5}",
              draw_power(random, -1, 0), draw_power(random, 8, 12));
}

void tiny_cluster_draw(struct sbp_random *random, struct small_text *cluster)
{
    static const int shapes[][2] = {{1, 2}, {1, 2}, {1, 2}, {1, 3}, {1, 3}, {1, 4}, {1, 5},
                                    {1, 6}, {1, 8}, {2, 2}, {2, 3}, {3, 2}, {4, 2}};
    const int *const shape = shapes[sbp_random_below(random, sizeof shapes / sizeof *shapes)];
    const int speed = (int)sbp_random_below(random, 3);
    if (small_chance(random, 0.3)) {
        small_cluster_draw(random, shape[0] > 1 ? shape[0] : shape[1], shape[0] > 1 ? shape[1] : 1,
                           small_chance(random, 0.5), cluster);
        return;
    }
    *cluster = (struct small_text){.length = 0};
    small_put(cluster, "{\"name\": \"tiny\", \"collectives\": \"%s\", \"levels\": [",
              small_chance(random, 0.5) ? "ring" : "hierarchical");
    if (shape[0] > 1) {
        put_level(random, "node", shape[0], speed, cluster);
        small_put(cluster, ", ");
    }
    put_level(random, "device", shape[1], (int)sbp_random_below(random, (uint64_t)speed + 1),
              cluster);
    small_put(
        cluster,
        "], \"device\": {\"memory_bytes\": 1000000000000, \"memory_bytes_per_s\": %.3g, \"flops\": "
        "{\"fp32\": %.3g, \"bf16\": %.3g",
        draw_power(random, 8, 13), draw_power(random, 8, 14), draw_power(random, 8, 14));
    if (small_chance(random, 0.3))
        small_put(cluster, ", \"fp8\": %.3g", draw_power(random, 8, 14));
    small_put(cluster, "}");
    if (small_chance(random, 0.3))
        small_put(cluster, ", \"kernel_launch_s\": 2e-6");
    if (small_chance(random, 0.4))
        put_rates(random, cluster);
    small_put(cluster, "}");
    if (small_chance(random, 0.4))
        put_runtime(random, cluster);
    small_put(cluster, "}");
}

void tiny_parallel_draw(struct sbp_random *random, int64_t global_batch,
                        struct sbp_parallel *parallel)
{
    if (small_chance(random, 0.3) && global_batch % 2 == 0)
        parallel->micro_batch = global_batch / 2;
    if (small_chance(random, 0.3))
        parallel->zero = SMALL_PICK(random, 1, 2, 3);
    if (small_chance(random, 0.2))
        parallel->regather = true;
    if (small_chance(random, 0.15))
        parallel->recompute =
            small_chance(random, 0.5) ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_ATTENTION;
}
