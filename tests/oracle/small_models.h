/* Random small models and clusters as JSON text, small enough that every labelled strategy can be
 * priced. One seed, one pair. */
#ifndef SBP_TESTS_SMALL_MODELS_H
#define SBP_TESTS_SMALL_MODELS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/math/random.h"
#include "base/status.h"

#define SMALL_MODELS_MAP(X)                                                                        \
    X(CHAIN, "chain")                                                                              \
    X(RESIDUAL, "residual")                                                                        \
    X(NORMED, "normed")                                                                            \
    X(TRANSFORMER, "transformer")                                                                  \
    X(LANGUAGE, "language")                                                                        \
    X(GPT, "gpt")

enum small_kind {
#define SMALL_ENUM(name, text) SMALL_##name,
    SMALL_MODELS_MAP(SMALL_ENUM)
#undef SMALL_ENUM
        SMALL_KINDS
};
const char *small_kind_name(enum small_kind kind);

struct small_text {
    char text[4096];
    int length;
};
/* Appends text and cuts off the part that does not fit: JSON is then not valid, and its reader
 * reports it. */
void small_put(struct small_text *text, const char *format, ...) SBP_PRINTF(2, 3);
/* The same for a text of so many bytes. */
void small_append(char *text, size_t size, const char *format, ...) SBP_PRINTF(3, 4);

static inline bool small_chance(struct sbp_random *random, double share)
{
    return sbp_random_unit(random) < share;
}

/* One of so many values, each as likely. */
int small_pick(struct sbp_random *random, const int *values, int count);
#define SMALL_PICK(random, ...)                                                                    \
    small_pick((random), (const int[]){__VA_ARGS__},                                               \
               (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

struct small_model {
    enum small_kind kind;
    int linears; /* of a chain: so many layers */
    struct small_text text;
};

/* A chain of linear layers, 2 .. 4, with bias and activations, is always feasible to enumerate on 2
 * to 8 devices when `axes` is small; the other kinds want one or two axes. */
void small_model_draw(struct sbp_random *random, enum small_kind kind, struct small_model *model);
/* One or two levels whose sizes are given, innermost last; inner == 1: one level. */
void small_cluster_draw(struct sbp_random *random, int outer, int inner, bool measured,
                        struct small_text *cluster);

#endif
