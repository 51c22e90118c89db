#include "costmodel/op.h"

#include <stddef.h>

#define B                                                                                          \
    {                                                                                              \
        SBP_BROADCAST, 0                                                                           \
    }
#define P                                                                                          \
    {                                                                                              \
        SBP_PARTIAL, 0                                                                             \
    }
#define S(dim)                                                                                     \
    {                                                                                              \
        SBP_SPLIT, (dim)                                                                           \
    }
enum { BATCH = SBP_DIM_BATCH, SEQ = SBP_DIM_SEQUENCE, FEATURE = SBP_DIM_FEATURE };
enum { IN = SBP_DIM_IN, OUT = SBP_DIM_OUT };

/* Element-wise: whatever splits the operand splits the result. */
#define ELEMENTWISE(inputs_)                                                                       \
    .inputs = (inputs_), .role_count = 3,                                                          \
    .role = {{.name = "batch", .input = {S(BATCH), S(BATCH)}, .output = S(BATCH), .paper = true},  \
             {.name = "sequence", .input = {S(SEQ), S(SEQ)}, .output = S(SEQ)},                    \
             {.name = "feature",                                                                   \
              .input = {S(FEATURE), S(FEATURE)},                                                   \
              .output = S(FEATURE),                                                                \
              .paper = true}}

static const struct sbp_op_entry catalogue[SBP_OP_KINDS] = {
    /* Y = XW: the bias follows the output's features; on a row axis every member holds it, one adds
     * it, and its gradient comes whole out of dY, which is B there (design, idea 3). */
    [SBP_OP_LINEAR] = {.name = "linear",
                       .inputs = 1,
                       .weights = 2,
                       .role_count = 4,
                       .role = {{.name = "batch",
                                 .input = {S(BATCH)},
                                 .weight = {B, B},
                                 .gradient = {P, P},
                                 .output = S(BATCH),
                                 .paper = true},
                                {.name = "sequence",
                                 .input = {S(SEQ)},
                                 .weight = {B, B},
                                 .gradient = {P, P},
                                 .output = S(SEQ)},
                                {.name = "column",
                                 .input = {B},
                                 .weight = {S(OUT), S(OUT)},
                                 .gradient = {S(OUT), S(OUT)},
                                 .output = S(FEATURE),
                                 .paper = true},
                                {.name = "row",
                                 .input = {S(FEATURE)},
                                 .weight = {S(IN), B},
                                 .gradient = {S(IN), B},
                                 .output = P,
                                 .paper = true}}},
    /* Weights: table (vocabulary, hidden), positions (rows, hidden). A position row is touched by
     * the tokens of one split only, so its gradient is partial under batch and sequence alike. */
    [SBP_OP_EMBEDDING] =
        {.name = "embedding",
         .inputs = 0,
         .weights = 2,
         .role_count = 4,
         .role = {{.name = "batch",
                   .weight = {B, B},
                   .gradient = {P, P},
                   .output = S(BATCH),
                   .paper = true},
                  {.name = "sequence", .weight = {B, B}, .gradient = {P, P}, .output = S(SEQ)},
                  {.name = "column",
                   .weight = {S(OUT), S(OUT)},
                   .gradient = {S(OUT), S(OUT)},
                   .output = S(FEATURE),
                   .paper = true},
                  {.name = "vocab",
                   .weight = {S(IN), B},
                   .gradient = {S(IN), B},
                   .output = P,
                   .paper = true}}},
    [SBP_OP_RELU] = {.name = "relu", .follows = true, ELEMENTWISE(1)},
    [SBP_OP_GELU] = {.name = "gelu", .follows = true, ELEMENTWISE(1)},
    [SBP_OP_DROPOUT] = {.name = "dropout", .follows = true, ELEMENTWISE(1)},
    [SBP_OP_ADD] = {.name = "add", ELEMENTWISE(2)},
    /* Two scalars a token are all-reduced over the axes of the hidden role. */
    [SBP_OP_LAYERNORM] = {.name = "layernorm",
                          .inputs = 1,
                          .weights = 2,
                          .follows = true,
                          .role_count = 3,
                          .role = {{.name = "batch",
                                    .input = {S(BATCH)},
                                    .weight = {B, B},
                                    .gradient = {P, P},
                                    .output = S(BATCH),
                                    .paper = true},
                                   {.name = "sequence",
                                    .input = {S(SEQ)},
                                    .weight = {B, B},
                                    .gradient = {P, P},
                                    .output = S(SEQ)},
                                   {.name = "hidden",
                                    .input = {S(FEATURE)},
                                    .weight = {S(OUT), S(OUT)},
                                    .gradient = {S(OUT), S(OUT)},
                                    .output = S(FEATURE),
                                    .paper = true}}},
    [SBP_OP_ATTENTION] =
        {.name = "attention",
         .inputs = 1,
         .role_count = 2,
         .role = {{.name = "batch", .input = {S(BATCH)}, .output = S(BATCH), .paper = true},
                  {.name = "head", .input = {S(FEATURE)}, .output = S(FEATURE), .paper = true}}},
    /* The maximum and (sum of exponentials, target logit) are all-reduced over vocabulary axes. */
    [SBP_OP_CROSS_ENTROPY] =
        {.name = "cross_entropy",
         .inputs = 1,
         .follows = true,
         .role_count = 3,
         .role = {{.name = "batch", .input = {S(BATCH)}, .output = P, .paper = true},
                  {.name = "sequence", .input = {S(SEQ)}, .output = P},
                  {.name = "vocab", .input = {S(FEATURE)}, .output = B, .paper = true}}},
};

static const char *const names[] = {
#define SBP_OP_TEXT(name, text) text,
    SBP_OP_MAP(SBP_OP_TEXT)
#undef SBP_OP_TEXT
        NULL,
};

const struct sbp_op_entry *sbp_op(enum sbp_op_kind kind)
{
    return &catalogue[kind];
}

const char *const *sbp_op_names(void)
{
    return names;
}
