#include "costmodel/model/op.h"

#include <stddef.h>
#include <string.h>

#define B                                                                                          \
    {                                                                                              \
        SBP_BROADCAST, 0                                                                           \
    }
#define P                                                                                          \
    {                                                                                              \
        SBP_PARTIAL, 0                                                                             \
    }
#define M                                                                                          \
    {                                                                                              \
        SBP_MIRRORED, 0                                                                            \
    }
#define S(dim)                                                                                     \
    {                                                                                              \
        SBP_SPLIT, (dim)                                                                           \
    }
enum { BATCH = SBP_DIM_BATCH, SEQ = SBP_DIM_SEQUENCE, FEATURE = SBP_DIM_FEATURE };
enum { IN = SBP_DIM_IN, OUT = SBP_DIM_OUT };

/* Every member repeats the work on whole operands. Gradients are linear in the output's, which is
 * partial by duality, so the weights' gradients are partial, too. */
#define REPLICATE                                                                                  \
    {                                                                                              \
        .name = "replicate", .input = {B, B, B}, .weight = {B, B, B, B}, .gradient = {P, P, P, P}, \
        .output = B, .spare = true                                                                 \
    }
/* The same, where the output's gradient is whole: then so are those of the weights and of the
 * inputs, and nothing is summed. */
#define MIRROR                                                                                     \
    {                                                                                              \
        .name = "mirror", .input = {M, M, M}, .weight = {B, B, B, B}, .gradient = {B, B, B, B},    \
        .output = M, .spare = true                                                                 \
    }
#define REPEATED REPLICATE, MIRROR
/* Tokens split, weights whole: the roles that every operator on tokens has. Weights that an entry
 * does not have are never looked at. */
#define TOKENS(name_, dim, paper_)                                                                 \
    {                                                                                              \
        .name = (name_), .input = {S(dim), S(dim), S(dim)}, .weight = {B, B, B, B},                \
        .gradient = {P, P, P, P}, .output = S(dim), .paper = (paper_)                              \
    }
#define BY_BATCH    TOKENS("batch", BATCH, true)
#define BY_SEQUENCE TOKENS("sequence", SEQ, false)
#define BY_HEIGHT   TOKENS("height", SEQ, false)
#define BY_CONTEXT  TOKENS("context", SEQ, false)
/* The output's features split, and the weights with them. */
#define SPLIT_OUT(name_, inputs_)                                                                  \
    {                                                                                              \
        .name = (name_), .input = {inputs_, inputs_, inputs_},                                     \
        .weight = {S(OUT), S(OUT), S(OUT), S(OUT)}, .gradient = {S(OUT), S(OUT), S(OUT), S(OUT)},  \
        .output = S(FEATURE), .paper = true                                                        \
    }
#define FEATURES(name_) SPLIT_OUT(name_, S(FEATURE)) /* features of every operand alike */
#define COLUMN          SPLIT_OUT("column", B)
/* The features that a product sums over split: the output is a partial sum. */
#define ROW(name_)                                                                                 \
    {                                                                                              \
        .name = (name_), .input = {S(FEATURE)}, .weight = {S(IN), B, B},                           \
        .gradient = {S(IN), B, B}, .output = P, .paper = true                                      \
    }
/* Tokens and experts split by the same axes. */
#define APART(name_, dim, paper_)                                                                  \
    {                                                                                              \
        .name = (name_), .input = {S(dim)}, .weight = {B, S(0), S(0), B},                          \
        .gradient = {P, S(0), S(0), P}, .output = S(dim), .paper = (paper_)                        \
    }
/* A partial sum passes through an operator that is linear in its input: weights are whole, and one
 * member alone adds the bias (OneFlow, section 3.3). By duality the gradients of output and input
 * are whole; a weight's gradient is a product with the input and partial like it, a bias's is
 * whole. */
#define PARTIAL                                                                                    \
    {                                                                                              \
        .name = "partial", .input = {P, P}, .weight = {B, B}, .gradient = {P, B}, .output = P,     \
        .spare = true                                                                              \
    }
/* Element-wise: whatever splits the operand splits the result. */
#define ELEMENTWISE BY_BATCH, BY_SEQUENCE, FEATURES("feature"), REPEATED
/* The same of operators that are linear in their operands. */
#define LINEARLY BY_BATCH, BY_SEQUENCE, FEATURES("feature"), PARTIAL, REPEATED

/* Name, numbers of activations and of weights, and all roles. */
#define ENTRY(name_, inputs_, weights_, ...)                                                       \
    .name = (name_), .inputs = (inputs_), .weights = (weights_),                                   \
    .role_count = sizeof(struct sbp_role[]){__VA_ARGS__} / sizeof(struct sbp_role),                \
    .role = {__VA_ARGS__}

static const struct sbp_op_entry catalogue[SBP_OP_KINDS] = {
    /* Y = XW. The bias follows the output's features. On a row axis every member holds it but one
     * adds it; its gradient comes whole out of dY, which is B there (DESIGN.md, section 2, idea 3).
     */
    [SBP_OP_LINEAR] = {.runs = true,
                       ENTRY("linear", 1, 2, BY_BATCH, BY_SEQUENCE, COLUMN, ROW("row"), PARTIAL,
                             REPEATED)},
    /* Weights: table (vocabulary, hidden), then rows that are added: positions, token types. Such a
     * row is touched by the tokens of one split only, so its gradient is partial under batch and
     * sequence alike. */
    [SBP_OP_EMBEDDING] = {.runs = true,
                          ENTRY("embedding", 0, 3, BY_BATCH, BY_SEQUENCE, COLUMN, ROW("vocab"),
                                REPEATED)},
    [SBP_OP_RELU] = {.follows = true, .runs = true, ENTRY("relu", 1, 0, ELEMENTWISE)},
    [SBP_OP_GELU] = {.follows = true, .runs = true, ENTRY("gelu", 1, 0, ELEMENTWISE)},
    [SBP_OP_TANH] = {.follows = true, .runs = true, ENTRY("tanh", 1, 0, ELEMENTWISE)},
    /* Linear: every member has the same mask. */
    [SBP_OP_DROPOUT] = {.follows = true, .runs = true, ENTRY("dropout", 1, 0, LINEARLY)},
    /* Legal on partial sums too: the sum of sums. */
    [SBP_OP_ADD] = {.runs = true, ENTRY("add", 2, 0, LINEARLY)},
    /* Two scalars a token (one of rmsnorm) are all-reduced over the axes of the hidden role. */
    [SBP_OP_LAYERNORM] = {.follows = true,
                          .runs = true,
                          ENTRY("layernorm", 1, 2, BY_BATCH, BY_SEQUENCE, FEATURES("hidden"),
                                REPEATED)},
    [SBP_OP_RMSNORM] = {.follows = true,
                        .runs = true,
                        ENTRY("rmsnorm", 1, 1, BY_BATCH, BY_SEQUENCE, FEATURES("hidden"),
                              REPEATED)},
    /* Root mean square of each head by itself; all heads have one gain (Qwen3's queries, keys). */
    [SBP_OP_HEAD_NORM] = {.follows = true,
                          .runs = true,
                          ENTRY("head_norm", 1, 1, BY_BATCH, BY_SEQUENCE,
                                {.name = "head",
                                 .input = {S(FEATURE)},
                                 .weight = {B},
                                 .gradient = {P},
                                 .output = S(FEATURE),
                                 .paper = true},
                                REPEATED)},
    /* silu(gate) x up: the input's inner dimension holds {gate, up}. */
    [SBP_OP_SWIGLU] = {.follows = true, .runs = true, ENTRY("swiglu", 1, 0, ELEMENTWISE)},
    /* Rotates queries and keys in place, by angles that every device knows: free. */
    [SBP_OP_ROTARY] = {.follows = true,
                       .in_place = true,
                       .runs = true,
                       ENTRY("rotary", 1, 0, LINEARLY)},
    /* Context splits queries by sequence; keys and values are gathered or passed round a ring
     * inside the operator (sbp_op_inner). It is a spare role: a split of heads costs less where
     * all of them have keys of their own. */
    [SBP_OP_ATTENTION] =
        {.runs = true,
         ENTRY("attention", 1, 0, BY_BATCH, FEATURES("head"),
               {.name = "context", .input = {S(SEQ)}, .output = S(SEQ), .spare = true}, REPEATED)},
    /* Inputs: queries (heads, head size), keys and values (kv heads, 2 x head size); weight: a sink
     * of each head, where it has them (gpt-oss). Where the heads are split further than the kv
     * heads, the low digits of the heads are `query` axes: keys and values are whole there, and
     * their gradients partial (DESIGN.md, section 4). */
    [SBP_OP_GROUPED_ATTENTION] = {.runs = true,
                                  ENTRY("grouped_attention", 2, 1, BY_BATCH, FEATURES("head"),
                                        BY_CONTEXT,
                                        {.name = "query",
                                         .input = {S(FEATURE), B},
                                         .weight = {S(OUT)},
                                         .gradient = {S(OUT)},
                                         .output = S(FEATURE)},
                                        REPEATED)},
    /* Inputs: queries (heads, nope + rope), keys and values (heads, nope + value), and the rotary
     * part of the keys, which all heads share (DeepSeek-V2, section 2.1). */
    [SBP_OP_LATENT_ATTENTION] = {.runs = true,
                                 ENTRY("latent_attention", 3, 0, BY_BATCH,
                                       {.name = "head",
                                        .input = {S(FEATURE), S(FEATURE), B},
                                        .output = S(FEATURE),
                                        .paper = true},
                                       BY_CONTEXT, REPEATED)},
    /* The maximum and (sum of exponentials, target logit) are all-reduced over vocabulary axes. */
    [SBP_OP_CROSS_ENTROPY] =
        {.follows = true,
         .runs = true,
         ENTRY("cross_entropy",
               1, 0, {.name = "batch", .input = {S(BATCH)}, .output = P, .paper = true},
               {.name = "sequence", .input = {S(SEQ)}, .output = P},
               {.name = "vocab", .input = {S(FEATURE)}, .output = B, .paper = true}, REPEATED)},
    /* Height: rows split; what windows reach of others' rows is fetched, and its gradient sent
       back. */
    [SBP_OP_CONV2D] = {.runs = true,
                       ENTRY("conv2d", 1, 2, BY_BATCH, BY_HEIGHT, COLUMN, ROW("row"), PARTIAL,
                             REPEATED)},
    /* Statistics are of the device's own images (AutoDDL trains so, as data parallelism does). */
    [SBP_OP_BATCHNORM] = {.follows = true,
                          .runs = true,
                          ENTRY("batchnorm", 1, 2, BY_BATCH, BY_HEIGHT, FEATURES("channel"),
                                REPEATED)},
    [SBP_OP_MAXPOOL] = {.runs = true,
                        ENTRY("maxpool", 1, 0, BY_BATCH, FEATURES("channel"), REPEATED)},
    [SBP_OP_AVGPOOL] = {.runs = true,
                        ENTRY("avgpool", 1, 0, BY_BATCH, FEATURES("channel"), PARTIAL, REPEATED)},
    /* The token that stands for a sequence: (batch, sequence, hidden, 1) to (batch, 1, hidden, 1).
     */
    [SBP_OP_FIRST_TOKEN] = {.runs = true,
                            ENTRY("first_token", 1, 0, BY_BATCH, FEATURES("feature"), PARTIAL,
                                  REPEATED)},
    /* (batch, height, channels, width) to (batch, 1, channels, height x width). */
    [SBP_OP_FLATTEN] = {.runs = true,
                        ENTRY("flatten", 1, 0, BY_BATCH, FEATURES("channel"), PARTIAL, REPEATED)},
    /* Reads the model's images; weights: kernel (patch pixels x colours, 1, hidden, 1), bias, class
     * token, positions. */
    [SBP_OP_PATCH_EMBEDDING] = {.runs = true,
                                ENTRY("patch_embedding", 0, 4, BY_BATCH, BY_SEQUENCE, COLUMN,
                                      REPEATED)},
    /* Weights: router (hidden, 1, experts, 1), first (experts, hidden, feed-forward, {gate, up}),
     * second (experts, feed-forward, hidden, 1). Expert and expert_sequence: tokens, by batch or by
     * sequence, and experts split by the same axes, tokens travel to their experts and back
     * (all-to-all). Column: every expert's feed-forward split, the output partial; so is the
     * router's gradient, which each member's part of the experts' outputs gives. A router bias (1,
     * 1, experts, 1) is optional (DeepSeek-V3, 2.1.2). Biases of the experts (experts, 1, {gate,
     * up} x feed-forward + hidden, 1) are its like and stand in its place, with the router's as one
     * more of each (gpt-oss): every member holds all of them, 1/hidden of the experts. */
    [SBP_OP_MOE] = {.runs = true,
                    ENTRY("moe", 1, 4, BY_BATCH, BY_SEQUENCE, APART("expert", BATCH, true),
                          APART("expert_sequence", SEQ, false),
                          {.name = "column",
                           .input = {B},
                           .weight = {B, S(2), S(1), B},
                           .gradient = {P, S(2), S(1), P},
                           .output = P,
                           .paper = true},
                          REPEATED)},
    /* A grid of rows (tokens) and columns (features): panels of X are broadcast along the columns'
     * axes, panels of W along the rows' (van de Geijn and Watts, 1997; AutoDDL, section 4.2.1). The
     * bias lies with the columns; rows hold it alike. */
    [SBP_OP_SUMMA_LINEAR] = {.runs = true,
                             ENTRY("summa_linear", 1, 2, BY_BATCH,
                                   {.name = "grid_row",
                                    .input = {S(BATCH)},
                                    .weight = {S(IN), B},
                                    .gradient = {S(IN), P},
                                    .output = S(BATCH),
                                    .paper = true},
                                   FEATURES("grid_column"), PARTIAL, REPEATED)},
    /* A model file's own: the node has an entry of its own in place of this one. */
    [SBP_OP_CUSTOM] = {.name = "custom", .inputs = 1, .weights = 1},
};

#define TEXT(symbol, text) text,
static const char *const names[] = {SBP_OP_MAP(TEXT) NULL};

const struct sbp_op_entry *sbp_op(enum sbp_op_kind kind)
{
    return &catalogue[kind];
}

int sbp_op_norm_sums(enum sbp_op_kind kind)
{
    return kind == SBP_OP_LAYERNORM ? 2 : kind == SBP_OP_RMSNORM ? 1 : 0;
}

int sbp_op_forward_phases(enum sbp_op_kind kind)
{
    return kind == SBP_OP_CROSS_ENTROPY || kind == SBP_OP_MOE ? 3
           : sbp_op_norm_sums(kind) > 0                       ? 2
                                                              : 1;
}

int sbp_op_weight_phase(enum sbp_op_kind kind)
{
    return kind == SBP_OP_MOE ? 3 : 1;
}

int sbp_op_role(const struct sbp_op_entry *entry, const char *name)
{
    for (int role = 0; role < entry->role_count; role++)
        if (strcmp(entry->role[role].name, name) == 0)
            return role;
    return -1;
}

const char *const *sbp_op_names(void)
{
    return names;
}
