#include "small_models.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
#define SMALL_NAME(name, text) text,
    SMALL_MODELS_MAP(SMALL_NAME)
#undef SMALL_NAME
};

const char *small_kind_name(enum small_kind kind)
{
    return kind_names[kind];
}

void small_put(struct small_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int room = (int)sizeof text->text - text->length;
    const int written = vsnprintf(text->text + text->length, (size_t)room, format, arguments);
    va_end(arguments);
    text->length += written < room ? written : room - 1;
}

void small_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

int small_pick(struct sbp_random *random, const int *values, int count)
{
    return values[sbp_random_below(random, (uint64_t)count)];
}

static const char *yes_no(bool value)
{
    return value ? "true" : "false";
}

static void put_head(struct sbp_random *random, struct small_text *text, int features, int batch,
                     int sequence)
{
    small_put(text, "{\"name\": \"small\", \"global_batch\": %d, \"sequence\": %d, ", batch,
              sequence);
    if (features > 0)
        small_put(text, "\"features\": %d, \"input\": \"%s\", ", features,
                  small_chance(random, 0.5) ? "split" : "free");
    small_put(text, "\"precision\": \"%s\", \"layers\": [",
              small_chance(random, 0.7) ? "fp32" : "mixed");
}

static void put_linear(struct sbp_random *random, struct small_text *text, const char *name, int in,
                       int out)
{
    small_put(text, "{\"op\": \"linear\", \"name\": \"%s\", \"in\": %d, \"out\": %d, \"bias\": %s}",
              name, in, out, yes_no(small_chance(random, 0.4)));
}

static void put_activation(struct sbp_random *random, struct small_text *text)
{
    if (small_chance(random, 0.5))
        small_put(text, ", {\"op\": \"%s\"}",
                  ((const char *const[]){"relu", "gelu"})[sbp_random_below(random, 2)]);
}

static void put_tail(struct sbp_random *random, struct small_text *text)
{
    if (small_chance(random, 0.5))
        small_put(text, ", {\"op\": \"cross_entropy\", \"name\": \"loss\"}");
    small_put(text, "]}");
}

/* Sizes with few and with many divisors, so that divisibility binds now and then. */
static int draw_size(struct sbp_random *random)
{
    return SMALL_PICK(random, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 1024);
}

static int draw_batch(struct sbp_random *random)
{
    return SMALL_PICK(random, 1, 2, 3, 4, 6, 8, 12, 24, 64, 512);
}

static int draw_sequence(struct sbp_random *random)
{
    return SMALL_PICK(random, 1, 1, 1, 1, 2, 3, 4, 6, 8);
}

static void draw_chain(struct sbp_random *random, struct small_model *model)
{
    struct small_text *const text = &model->text;
    int in = draw_size(random);
    put_head(random, text, in, draw_batch(random), draw_sequence(random));
    for (int i = 0; i < model->linears; i++) {
        const int out = draw_size(random);
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        small_put(text, i > 0 ? ", " : "");
        put_linear(random, text, name, in, out);
        put_activation(random, text);
        in = out;
    }
    put_tail(random, text);
}

/* One linear, a branch of one or two, and the sum of both ways. */
static void draw_residual(struct sbp_random *random, struct small_model *model, bool normed)
{
    struct small_text *const text = &model->text;
    const int size = draw_size(random), wide = draw_size(random);
    const bool around_input = small_chance(random, 0.3), two = small_chance(random, 0.6);
    put_head(random, text, size, draw_batch(random), draw_sequence(random));
    if (!around_input) {
        put_linear(random, text, "stem", size, size);
        small_put(text, ", ");
    }
    if (normed)
        small_put(text, "{\"op\": \"layernorm\", \"name\": \"norm\"}, ");
    if (two) {
        put_linear(random, text, "up", size, wide);
        put_activation(random, text);
        small_put(text, ", ");
    }
    put_linear(random, text, "down", two ? wide : size, size);
    small_put(text, ", {\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"%s\", \"down\"]}",
              around_input ? "input" : "stem");
    if (small_chance(random, 0.4)) {
        small_put(text, ", ");
        put_linear(random, text, "out", size, draw_size(random));
    }
    put_tail(random, text);
}

static void draw_transformer(struct sbp_random *random, struct small_model *model)
{
    struct small_text *const text = &model->text;
    const int heads = SMALL_PICK(random, 2, 3, 4, 6), hidden = heads * SMALL_PICK(random, 2, 4);
    put_head(random, text, hidden, draw_batch(random), SMALL_PICK(random, 1, 2, 3, 4));
    if (small_chance(random, 0.5))
        small_put(text, "{\"op\": \"layernorm\", \"name\": \"norm\"}, ");
    small_put(text,
              "{\"op\": \"linear\", \"name\": \"qkv\", \"in\": %d, \"out\": %d, \"out_heads\": %d, "
              "\"bias\": %s}, {\"op\": \"attention\", \"name\": \"attention\", \"heads\": %d}, ",
              hidden, 3 * hidden, heads, yes_no(small_chance(random, 0.5)), heads);
    put_linear(random, text, "projection", hidden, hidden);
    if (small_chance(random, 0.5))
        small_put(
            text,
            ", {\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"input\", \"projection\"]}");
    put_tail(random, text);
}

static void draw_language(struct sbp_random *random, struct small_model *model)
{
    struct small_text *const text = &model->text;
    const int hidden = draw_size(random), vocab = draw_size(random) + SMALL_PICK(random, 0, 0, 1);
    put_head(random, text, 0, draw_batch(random), SMALL_PICK(random, 1, 2, 3, 4));
    small_put(text,
              "{\"op\": \"embedding\", \"name\": \"tokens\", \"vocab\": %d, \"hidden\": %d%s}, ",
              vocab, hidden, small_chance(random, 0.5) ? ", \"positions\": 8" : "");
    if (small_chance(random, 0.4))
        small_put(text, "{\"op\": \"layernorm\", \"name\": \"norm\"}, ");
    if (small_chance(random, 0.4)) {
        put_linear(random, text, "fc", hidden, hidden);
        small_put(text, ", ");
    }
    if (small_chance(random, 0.6))
        small_put(text, "{\"op\": \"linear\", \"name\": \"head\", \"tied\": \"tokens\"}");
    else
        put_linear(random, text, "head", hidden, vocab);
    put_tail(random, text);
}

/* Sequences of one token and batches of one sequence keep the number of strategies down. */
static void draw_gpt(struct sbp_random *random, struct small_model *model)
{
    const int heads = SMALL_PICK(random, 2, 3, 4);
    const bool tied = small_chance(random, 0.6);
    small_put(&model->text,
              "{\"name\": \"small\", \"architecture\": \"gpt\", \"layers\": %d, \"hidden\": %d, "
              "\"heads\": %d, \"sequence\": %d, \"vocab\": %d, \"global_batch\": %d, \"tied\": %s, "
              "\"bias\": %s, \"precision\": \"fp32\"}",
              SMALL_PICK(random, 1, 2, 3), heads * SMALL_PICK(random, 2, 4, 8), heads,
              SMALL_PICK(random, 1, 5), SMALL_PICK(random, 8, 12, 31, 60),
              SMALL_PICK(random, 1, 2, 4, 6), yes_no(tied), yes_no(small_chance(random, 0.5)));
}

void small_model_draw(struct sbp_random *random, enum small_kind kind, struct small_model *model)
{
    model->kind = kind;
    model->text = (struct small_text){.length = 0};
    if (kind == SMALL_CHAIN)
        draw_chain(random, model);
    else if (kind == SMALL_RESIDUAL || kind == SMALL_NORMED)
        draw_residual(random, model, kind == SMALL_NORMED);
    else if (kind == SMALL_TRANSFORMER)
        draw_transformer(random, model);
    else if (kind == SMALL_LANGUAGE)
        draw_language(random, model);
    else
        draw_gpt(random, model);
}

static double draw_log(struct sbp_random *random, double least, double decades)
{
    double value = least;
    for (double left = decades * sbp_random_unit(random); left > 0; left -= 0.1)
        value *= 1.2589254117941673;
    return value;
}

/* Measured times of some collectives, by twos and fours, that need not grow with the members. */
static void put_curves(struct sbp_random *random, int size, struct small_text *cluster)
{
    static const char *const kinds[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"};
    const char *between = "";
    small_put(cluster, ", \"curves\": {");
    for (int kind = 0; kind < 4; kind++) {
        if (SMALL_PICK(random, 0, 1, 2) == 0)
            continue;
        small_put(cluster, "%s\"%s\": [", between, kinds[kind]);
        for (int members = 2; members <= 4 && members <= size; members += 2) {
            const double latency_s = draw_log(random, 1e-8, 3);
            small_put(cluster, "%s{\"members\": %d, \"points\": [[100, %.3g], [1000000, %.3g]]}",
                      members > 2 ? ", " : "", members, latency_s,
                      latency_s + draw_log(random, 1e-6, 3));
        }
        small_put(cluster, "]");
        between = ", ";
    }
    small_put(cluster, "}");
}

static void put_level(struct sbp_random *random, const char *name, int size, double least_alpha_s,
                      double decades, int ports, bool measured, struct small_text *cluster)
{
    const double alpha_s = draw_log(random, least_alpha_s, decades);
    const double beta_s_per_byte = draw_log(random, 1e-11, 2);
    small_put(cluster,
              "{\"name\": \"%s\", \"size\": %d, \"alpha_s\": %.3g, \"beta_s_per_byte\": %.3g, "
              "\"ports\": %d",
              name, size, alpha_s, beta_s_per_byte, ports > 0 ? ports : SMALL_PICK(random, 1, 2));
    if (measured)
        put_curves(random, size, cluster);
    small_put(cluster, "}");
}

void small_cluster_draw(struct sbp_random *random, int outer, int inner, bool measured,
                        struct small_text *cluster)
{
    *cluster = (struct small_text){.length = 0};
    small_put(cluster, "{\"name\": \"small\", \"collectives\": \"%s\", \"levels\": [",
              SMALL_PICK(random, 1, 2) == 1 ? "ring" : "hierarchical");
    if (inner > 1) {
        put_level(random, "node", outer, 1e-7, 3, 0, measured, cluster);
        small_put(cluster, ", ");
    }
    put_level(random, "device", inner > 1 ? inner : outer, 1e-9, 4, 1, measured, cluster);
    small_put(cluster, "], ");
    small_put(cluster,
              "\"device\": {\"memory_bytes\": 1000000000000, \"flops\": {\"fp32\": %.3g, \"bf16\": "
              "%.3g}, "
              "\"memory_bytes_per_s\": %.3g}}",
              draw_log(random, 1e9, 4), draw_log(random, 1e10, 4), draw_log(random, 1e9, 3));
}
