/* The graph builder: adds operators one by one and derives shapes and dimension classes from
 * inputs.
 *
 * Input is a graph with batch and sequence, output the graph's operators, tensors and classes.
 * Adding an operator adds its weights and its output's shape and merges the classes of dimensions
 * that must be split alike (union-find): adds, norms and the input side of linears make the
 * residual stream one class. sbp_build_close numbers the classes. The arrays are allocated once for
 * `most_ops` operators, so pointers into them stay valid. On errors the functions blame the given
 * cursor, or that member of it which is at fault.
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_BUILD_PRIV_H
#define SBP_COSTMODEL_MODEL_GRAPH_BUILD_PRIV_H

#include "costmodel/model/graph.h"

#define SBP_OP_NAME_BYTES 48 /* leaves room for ".positions" in a tensor's name */
/* Elements of a tensor, so that 8-byte elements stay within 2^62 bytes. */
#define SBP_MOST_ELEMENTS (INT64_C(1) << 59)
#define SBP_MOST_SIZE     (INT64_C(1) << 53) /* whole numbers that JSON holds exactly */
#define SBP_BUILD_CLASSES 10                 /* most of an operator: a custom one's */

struct sbp_builder {
    struct sbp_graph *graph;
    int op_capacity, tensor_capacity, class_capacity;
    int *parent;                       /* (class_capacity) union-find; a root is its own parent */
    int batch, sequence;               /* classes */
    enum sbp_attention_kind attention; /* of every attention in the model */
    double linear_spread;              /* of initial linear weights; 0: 1/sqrt(in) */
    bool linears_on_grid;              /* linears with weights of their own are SUMMA's */
};

/* Allocates the arrays in the graph's arena and reads from `at` whether linears are SUMMA's. The
 * graph's batch and sequence must be set. E_MEMORY, E_INPUT. */
enum sbp_status sbp_build_open(struct sbp_builder *builder, const struct sbp_json *at,
                               struct sbp_graph *graph, int most_ops) SBP_MUST_USE;
/* Numbers the classes and counts the parameters. E_INPUT: too many of either. */
enum sbp_status sbp_build_close(struct sbp_builder *builder,
                                const struct sbp_json *at) SBP_MUST_USE;

/* The cursor of a member where it exists, else the object's own: the place to blame. */
struct sbp_json sbp_build_at(const struct sbp_json *object, const char *key);
/* Refuses a member where it exists, else the object. */
#define SBP_BUILD_REFUSE(object, key, ...)                                                         \
    sbp_json_refuse((struct sbp_json[]){sbp_build_at((object), (key))}, __VA_ARGS__)
/* A size that must be there: 1 .. most. */
enum sbp_status sbp_build_require(const struct sbp_json *at, const char *key, int64_t most,
                                  int64_t *value) SBP_MUST_USE;
/* A probability with a default: at least 0 and less than 1. */
enum sbp_status sbp_build_probability(const struct sbp_json *at, const char *key,
                                      double *value) SBP_MUST_USE;
/* Output tensor of the operator added last. */
int sbp_build_last(const struct sbp_builder *builder);

/* Shape of the model's tokens, without features. */
struct sbp_shape sbp_build_tokens(const struct sbp_builder *builder);

struct sbp_build_input {
    int64_t rows; /* the sequence, or the height of images */
    int64_t features, width;
    bool image; /* names of the classes */
};
enum sbp_status sbp_build_input(struct sbp_builder *builder, const struct sbp_json *at,
                                const struct sbp_build_input *input) SBP_MUST_USE;

/* ---- parts of an operator, for graph_build_*.c ---- */

/* Initial values: weights of a GPT and embeddings are normal(0, 0.02), as in GPT-2. Biases and norm
 * gains (around 1) have the same spread instead of a constant, so that a bias that a run adds
 * twice, or a shard taken from the wrong place, shows in every number. */
#define SBP_INIT_SPREAD 0.02

int sbp_build_class(struct sbp_builder *builder, int64_t size, const char *format, ...)
    SBP_PRINTF(3, 4);
/* Merges two classes of one size. The older class names the union, so that a class is named where
 * it begins. */
void sbp_build_merge(struct sbp_builder *builder, int a, int b);
void sbp_build_rename_class(struct sbp_builder *builder, int dim_class, const char *format, ...)
    SBP_PRINTF(3, 4);

/* A shape of four ones that are never split, to be filled in. */
struct sbp_shape sbp_build_scalar(void);
void sbp_build_set_dim(struct sbp_shape *shape, int dim, int64_t size, int dim_class);
struct sbp_shape sbp_build_shape(const struct sbp_builder *builder, int tensor);
int64_t sbp_build_features(const struct sbp_shape *shape); /* times inner */
/* The tokens of a shape with other features. */
struct sbp_shape sbp_build_with_features(const struct sbp_shape *tokens, int64_t features,
                                         int dim_class, int64_t inner);
/* A vector over the features of an activation: bias, gain, shift. */
struct sbp_shape sbp_build_vector(const struct sbp_shape *activation);
/* False: more than SBP_MOST_ELEMENTS. */
bool sbp_build_count(const int64_t size[SBP_MAX_DIMS], int64_t *elements);

/* A node without operands. */
struct sbp_op_node *sbp_build_op(struct sbp_builder *builder, enum sbp_op_kind kind,
                                 const char *name);
void sbp_build_reads(struct sbp_op_node *op, int tensor);
/* Refuses to read a tensor twice: the operator would have two gradients for it. */
enum sbp_status sbp_build_distinct(const struct sbp_builder *builder, const struct sbp_json *at,
                                   const int *input, int count) SBP_MUST_USE;
/* `part` is appended to the operator's name: ".weight". */
enum sbp_status sbp_build_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                 struct sbp_op_node *op, const char *part,
                                 const struct sbp_shape *shape, double mean,
                                 double spread) SBP_MUST_USE;
enum sbp_status sbp_build_bias(struct sbp_builder *builder, const struct sbp_json *at,
                               struct sbp_op_node *op, const struct sbp_shape *output) SBP_MUST_USE;
enum sbp_status sbp_build_output(struct sbp_builder *builder, const struct sbp_json *at,
                                 struct sbp_op_node *op,
                                 const struct sbp_shape *shape) SBP_MUST_USE;
/* Spread of a product's initial weights: keeps the scale of activations from layer to layer, unless
 * the model has one spread for all. */
double sbp_build_spread(const struct sbp_builder *builder, double terms);

/* ---- products ---- */

struct sbp_build_linear {
    const char *name;
    int input;         /* tensor */
    int64_t out;       /* ignored when tied */
    int64_t heads;     /* out = heads x inner; 0: inner is 1 */
    int64_t valid_out; /* less than out: the rest is padding; 0: all valid */
    bool bias;
    bool summa;            /* summa_linear: no table */
    int table;             /* embedding table that is its weight, transposed; -1: its own */
    const char *out_class; /* name of the output's class; NULL: "NAME.out" */
};
enum sbp_status sbp_build_linear(struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_linear *linear) SBP_MUST_USE;

struct sbp_build_embedding {
    const char *name;
    int64_t vocab, valid_vocab; /* rows of the table, and those that are tokens */
    int64_t hidden;
    int64_t positions, types; /* rows of the position and token type tables, 0: none */
};
/* Every embedding reads ids of its own. */
enum sbp_status sbp_build_embedding(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_embedding *embedding) SBP_MUST_USE;

struct sbp_build_moe {
    const char *name;
    int input;
    int64_t experts, top_k, ffn;
    double capacity;         /* >= 1 */
    int64_t nodes_per_token; /* 0: any */
    int64_t groups;          /* of experts; 0: nobody says which */
    bool sigmoid;            /* scores, else a softmax */
    bool gated;              /* {gate, up}, as swiglu */
    bool router_bias, expert_bias;
};
/* Reads what says how the router chooses: nodes_per_token (of top_k), expert_groups, scoring,
 * router_bias. */
enum sbp_status sbp_build_read_router(const struct sbp_json *at,
                                      struct sbp_build_moe *moe) SBP_MUST_USE;
enum sbp_status sbp_build_moe(struct sbp_builder *builder, const struct sbp_json *at,
                              const struct sbp_build_moe *moe) SBP_MUST_USE;

/* ---- norms, element-wise ---- */

/* layernorm, batchnorm, rmsnorm over all features. */
enum sbp_status sbp_build_norm(struct sbp_builder *builder, const struct sbp_json *at,
                               enum sbp_op_kind kind, const char *name, int input,
                               double epsilon) SBP_MUST_USE;
/* rmsnorm over the first `size` features of each head, with one gain for all heads. */
enum sbp_status sbp_build_head_norm(struct sbp_builder *builder, const struct sbp_json *at,
                                    const char *name, int input, int64_t size,
                                    double epsilon) SBP_MUST_USE;
/* Turns the first `size` features of each head. */
enum sbp_status sbp_build_rotary(struct sbp_builder *builder, const struct sbp_json *at,
                                 const char *name, int input, int64_t size) SBP_MUST_USE;
/* relu, gelu, tanh, dropout (with its probability), swiglu ((ffn, {gate, up}) to ffn). */
enum sbp_status sbp_build_elementwise(struct sbp_builder *builder, const struct sbp_json *at,
                                      enum sbp_op_kind kind, const char *name, int input,
                                      double probability) SBP_MUST_USE;
enum sbp_status sbp_build_add(struct sbp_builder *builder, const struct sbp_json *at,
                              const char *name, int left, int right) SBP_MUST_USE;
enum sbp_status sbp_build_cross_entropy(struct sbp_builder *builder, const struct sbp_json *at,
                                        const char *name, int logits) SBP_MUST_USE;

/* ---- attention ---- */

struct sbp_build_attention {
    const char *name;
    enum sbp_op_kind kind; /* attention, grouped_attention, latent_attention */
    int input[SBP_MAX_INPUTS];
    int64_t heads;
    int64_t kv_heads, head_size; /* of grouped attention */
    int64_t nope, rope, value;   /* of latent attention: parts of a head (DeepSeek-V2, 2.1) */
    int64_t window;              /* of grouped attention, in `windowed` of the layers; 0: none */
    double windowed;
    int64_t own_window; /* of this one, which may stand for others */
    double dropout;
    bool causal, ring, sinks; /* sinks: of grouped attention, a score of each head without a key */
};
enum sbp_status sbp_build_attention(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_attention *attention) SBP_MUST_USE;

/* ---- images: (batch, height, channels, width) ---- */

struct sbp_build_window {
    const char *name;
    int input;
    int64_t kernel[2], stride[2], padding[2]; /* height, width */
    int64_t out;                              /* conv2d: channels */
    bool bias;                                /* conv2d */
};
enum sbp_status sbp_build_conv2d(struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_window *window) SBP_MUST_USE;
/* maxpool, avgpool; a kernel of 0 x 0 covers the whole image (or sequence). */
enum sbp_status sbp_build_pool(struct sbp_builder *builder, const struct sbp_json *at,
                               enum sbp_op_kind kind,
                               const struct sbp_build_window *window) SBP_MUST_USE;
/* flatten; first_token. */
enum sbp_status sbp_build_flatten(struct sbp_builder *builder, const struct sbp_json *at,
                                  const char *name, int input) SBP_MUST_USE;
enum sbp_status sbp_build_first_token(struct sbp_builder *builder, const struct sbp_json *at,
                                      const char *name, int input) SBP_MUST_USE;

struct sbp_build_patches {
    const char *name;
    int64_t height, width, channels; /* of the model's images */
    int64_t patch, hidden;
    bool bias, class_token, positions;
};
/* Tokens that the patches and the class token make. */
int64_t sbp_build_patch_tokens(const struct sbp_build_patches *patches);
enum sbp_status sbp_build_patches(struct sbp_builder *builder, const struct sbp_json *at,
                                  const struct sbp_build_patches *patches) SBP_MUST_USE;

/* ---- a user's own operator ---- */

/* Reads `at` (the layer, keys checked) and adds it; see graph.h for its keys. */
extern const char *const sbp_build_custom_keys[];
enum sbp_status sbp_build_custom(struct sbp_builder *builder, const struct sbp_json *at,
                                 const char *name, const int *input, int input_count) SBP_MUST_USE;

#endif
