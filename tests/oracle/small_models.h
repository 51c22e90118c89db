/* Random small models and clusters as JSON text, small enough that every labelled strategy can be
 * priced. One seed, one pair. */
#ifndef SBP_TESTS_SMALL_MODELS_H
#define SBP_TESTS_SMALL_MODELS_H

#include <stdbool.h>

#include "base/math/random.h"

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
