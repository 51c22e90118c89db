/* The model graph: operators, tensors and dimension classes, read from a model file.
 *
 * A model file names an architecture ("gpt", "llama", "resnet", ...) or lists layers; both become
 * the same graph. Operators stand in topological order, and every activation has one producer or is
 * the model's input. Layers that repeat (the blocks of a transformer) share a strategy: `site`
 * names the operator of the first repeat that stands for them all.
 */
#ifndef SBP_COSTMODEL_MODEL_GRAPH_H
#define SBP_COSTMODEL_MODEL_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json/json.h"
#include "base/math/numeric.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/cluster/collective.h"
#include "costmodel/model/op.h"
#include "costmodel/layout/distribution.h"

enum sbp_tensor_kind { SBP_ACTIVATION, SBP_WEIGHT };

struct sbp_tensor {
    char name[64];
    enum sbp_tensor_kind kind;
    struct sbp_shape shape;
    int producer;       /* operator; -1: a weight or the model's input */
    int64_t valid_rows; /* of a weight's dimension 0 (embedding) or 2 (untied head): padding
                           beyond it is no parameter; otherwise the size */
    int valid_dim;      /* which dimension that is; -1: no padding */
    double init_mean, init_spread; /* weights: constant (spread 0) or normal */
};

/* Costs of a user's own operator for the whole model batch; a role that splits any operand divides
 * all of them (DESIGN.md, section 4; AutoDDL, section 4.2.1). Index: enum sbp_pass. */
#define SBP_MAX_CUSTOM_COLLECTIVES 8
struct sbp_custom {
    struct sbp_op_entry entry;
    double flops[3], bytes[3];
    double time_s[3]; /* 0: from flops and bytes */
    double saved_bytes;
    int collective_count;
    struct sbp_custom_collective {
        int pass, role;
        enum sbp_collective kind;
        double bytes; /* n of the cost formula, of the whole operator */
        bool divided; /* by the parts that the other roles make */
    } collective[SBP_MAX_CUSTOM_COLLECTIVES];
};

struct sbp_op_node {
    char name[64];
    enum sbp_op_kind kind;
    const struct sbp_op_entry *entry; /* of the catalogue; a custom operator's own */
    int site;                         /* operator of the first repeat; itself when there is none */
    int repeats; /* how many operators have this one as site (0 when not a site) */
    int input_count, weight_count;
    int input[SBP_MAX_INPUTS];   /* tensors */
    int weight[SBP_MAX_WEIGHTS]; /* in the order of the catalogue's comments: linear: W, bias;
                                    embedding: table, positions, types; norm: gain, shift */
    int output;                  /* tensor; -1: the loss */
    bool transposed_weight;      /* linear whose W is an embedding table (tied): stored (out, in) */
    double epsilon;              /* layernorm */
    double probability;          /* dropout */
    int64_t rotated;             /* rotary: how many of the first features of each head */
    struct {
        bool causal;
        enum sbp_attention_kind kind;
        bool ring;      /* context axes pass keys and values round a ring instead of gathering */
        double dropout; /* on the probabilities */
        int64_t qk_size, value_size; /* of a head */
        int64_t window;              /* a query sees its last so many keys; 0: all before it */
        double windowed;             /* share of the equal layers that this stands for which have
                                        the window; the others see all keys */
        int64_t own_window;          /* of this very layer, which a run takes; 0: none */
    } attention;
    struct {
        int64_t kernel[2], stride[2], padding[2]; /* height, width; conv2d, pools, patches */
    } window;
    int64_t patches; /* patch_embedding: of an image, without the class token */
    /* Places in `weight` of what embedding and patch_embedding need not have; 0: it is not there */
    int bias, class_token, positions, types;
    struct {
        int64_t top_k;           /* experts that a token is sent to */
        double capacity;         /* slots / (tokens x top_k / experts), >= 1: the rest is padding */
        int64_t nodes_per_token; /* on which these experts lie at most; 0: any */
        int64_t groups;          /* of experts, each of one node; 0: nobody says which */
        bool sigmoid;            /* scores of experts, else a softmax */
    } moe;
    const struct sbp_custom *custom; /* NULL: not a custom operator */
    int64_t valid_vocabulary;        /* cross-entropy */
};

struct sbp_precision {
    enum sbp_type param, grad, master, moments, activation, reduce;
    enum sbp_type compute;    /* of the copies of parameters that operators read */
    enum sbp_type accumulate; /* of the sum of gradients over micro-batches */
    enum sbp_type loss;       /* in which cross-entropy works on its logits */
    enum sbp_type products;   /* in which layers with weights multiply; the activations' type, or
                                 fp8 */
    /* A master copy besides the parameters, and, for the update, the gradients converted to the
     * master's type and descaled: 4 and 4 of Myelin's 20 bytes a parameter (section V.B).
     * Gradients that are summed in the master's type are not converted. */
    bool has_master, converts_gradient;
    bool has_sum;        /* gradients are summed in a buffer of its own, of type `accumulate` */
    int64_t logit_bytes; /* of each logit, which the trainer of a cluster holds at its loss besides
                            the logit and its gradient (cluster/runtime.h); 0: no trainer */
};

struct sbp_training {
    struct sbp_update update; /* step and gradient_scale are the run's */
    double clip_norm;         /* 0: no clipping */
};

struct sbp_dim_class {
    char name[64]; /* "batch", "sequence", "hidden", "block0.heads", ... */
    int64_t size;
};

struct sbp_graph {
    struct sbp_arena arena; /* owns the arrays */
    char name[64];
    int64_t global_batch, sequence;
    int64_t micro_batch; /* of the global batch, what shapes hold; all of it as read */
    bool input_split;    /* "input": "split": the input comes out of an earlier layer */
    int input;           /* the model's input activation; -1: token ids (an embedding) */
    int op_count, tensor_count, class_count;
    struct sbp_op_node *op;
    struct sbp_tensor *tensor;
    struct sbp_dim_class *dim_class;
    struct sbp_precision precision;
    struct sbp_training training;
    int loss;           /* the cross-entropy operator, -1: a fixed output gradient */
    int64_t parameters; /* exact: padding rows are not counted, tied weights once */
};

/* Model keys of both forms: name, global_batch, sequence (default 1), precision ("fp32", "mixed",
 * "bf16" which is "mixed", "fp16", or an object {"param", "grad", "master", "moments",
 * "activation", "reduce", "accumulate", "loss"}: param defaults to fp32, grad, activation and
 * compute to param, moments to master, else param, reduce to grad, accumulate to grad, loss to
 * activation; without a master of another type than param there is no copy), optimizer ("adam"
 * default, "adamw", "sgd", or an object {"name", "learning_rate", "momentum", "beta1", "beta2",
 * "epsilon", "weight_decay"}), clip_norm, attention
 * ("materialised" default, "flash"), linears ("plain" default; "summa": every linear is a
 * summa_linear, but for those that are tied), notes (anything, for people).
 *
 * Layer-list form: layers: [{"op", "name"?, "inputs"?: [names], ...}]; inputs default to the
 * previous layer's output, "input" names the model's. That is input: "free" or "split" with
 * features (default: `in` of a linear that reads it), or an object: {features, sequence?, split?}
 * or images {height, width, channels, split?}. Keys by operator, ? marks optional ones:
 *
 *   linear             in?, out, out_heads? (features = heads, inner = out / heads), bias? (false);
 *                      or tied: NAME of an embedding
 *   summa_linear       in?, out, out_heads?, bias? (false)
 *   embedding          vocab, hidden, positions?, types?; ids of its own; no inputs
 *   patch_embedding    patch, hidden, bias? class_token? positions? (true); the images; no inputs
 *   layernorm, rmsnorm, batchnorm   epsilon? (1e-5)
 *   head_norm          size? (all) features of each head, epsilon?
 *   relu, gelu, tanh, add, flatten, first_token, cross_entropy
 *   dropout            p
 *   swiglu             input (ffn, {gate, up}), a linear's with out_heads = ffn, out = 2 ffn
 *   rotary             size? (all) even number of features of each head; works in place
 *   attention          heads; input (heads, {q, k, v} x size)
 *   grouped_attention  heads, kv_heads? (heads), head_dim, window? (none), sinks? (false); inputs
 *                      (heads, head_dim), (kv_heads, 2 head_dim)
 *   latent_attention   heads, nope, rope, value; inputs (heads, nope + rope), (heads, nope +
 *                      value), (rope, 1)
 *   all attention      causal? (true), dropout? (0), context? ("gather", "ring")
 *   moe                experts, top_k, ffn, capacity? (1), nodes_per_token?, expert_groups?,
 *                      scoring? ("softmax", "sigmoid"), gated? (true), router_bias? (false),
 *                      expert_bias? (false)
 *   conv2d             out, kernel, stride? (1), padding? (0), bias? (false); sides are a number
 *                      or [height, width]
 *   maxpool, avgpool   kernel, stride? (kernel), padding?; or global: true
 *   custom             roles: [{name, input, weight, gradient?, output}], states "B", "P", "S0" to
 *                      "S3", one for all operands or a list; weights: [[in, out] or [out]] or
 *                      parameters: N (as [N]: S2 splits it); out?, out_heads?; flops, bytes,
 *                      time_s: {forward, input_gradient, weight_gradient}, of the model batch;
 *                      saved_bytes; collectives: [{pass, role, kind, bytes, divided? (true)}]
 *
 * Architecture form: "architecture" and, besides the keys of both forms (? marks optional ones):
 *
 *   gpt       layers, hidden, heads, vocab, vocab_multiple? (1), positions? (sequence), ffn? (4
 *             hidden), dropout?, attention_dropout? (0), tied? bias? (true), epsilon? (1e-5),
 *             context?: pre-norm blocks, final norm, head, cross-entropy, as GPT-2
 *   llama     as gpt without positions and bias; kv_heads? (heads), head_dim? (hidden / heads),
 *             ffn, qkv_bias? projection_bias? ffn_bias? qk_norm? tied? (false): rmsnorm, rotary,
 *             grouped attention, swiglu; sandwich_norm? (false): also norms behind attention and
 *             feed-forward; window? tokens that a query sees in window_layers? (all) of the layers
 *             (every layer is priced as their mean); sinks? (false): a score of
 *             each head that no key has, a weight of its attention
 *   mixtral   as llama; ffn of an expert, experts, top_k, capacity? (1), nodes_per_token?
 *             expert_groups? scoring? router_bias? expert_bias? (false), shared_experts?
 *             dense_layers? (0), moe_every? (1) layer after them has experts, the others are of
 *             width dense_ffn
 *   deepseek  layers, hidden, heads, vocab, ...; q_rank?, kv_rank, nope, rope, value;
 *             dense_layers? (0) of width ffn, then experts, top_k, expert_ffn, shared_experts? (0)
 *   bert      as gpt; positions? (512), types? (2), epsilon? (1e-12), head? ("pooler": of the first
 *             token, no loss; "mlm"): post-norm
 *   vit       layers, hidden, heads, patch, image? (224), channels? (3), classes? (1000), ffn?
 *   vgg       depth (11, 13, 16, 19), image?, channels?, classes?, hidden? (4096), batch_norm?
 *             (false), dropout? (0.5)
 *   resnet    depth (18, 34, 50, 101, 152), image?, channels?, classes?
 *   face      classes, depth? (100; 18, 34, 50), image? (112), embedding? (512)
 *   mlp       layers, hidden, features, classes? (none: no loss), bias? (true), dropout?
 *   wide-deep sequence (ids a sample), vocab, wide_vocab? (vocab), hidden, features, layers, ffn
 *
 * Every output but the last layer's must be read by a layer, and a loss is the last layer. On
 * failure nothing is left allocated. */
enum sbp_status sbp_graph_read(const struct sbp_json *at, struct sbp_graph *graph) SBP_MUST_USE;
void sbp_graph_free(struct sbp_graph *graph);
/* Sets the shapes of a micro-batch: the batch class and all activations get this size. E_INPUT
 * unless it divides the global batch. */
enum sbp_status sbp_graph_set_micro_batch(struct sbp_graph *graph, int64_t sequences,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* Whether a linear multiplies by an embedding's table. */
bool sbp_graph_is_tied(const struct sbp_graph *graph);
/* Operators that read a tensor, weights included: how many, and the first `capacity` of them in
 * `ops` (may be NULL when capacity is 0). */
int sbp_graph_consumers(const struct sbp_graph *graph, int tensor, int *ops, int capacity);

/* Elements of a weight that are parameters: without padding. */
int64_t sbp_graph_tensor_parameters(const struct sbp_tensor *tensor);
/* Moments that the optimizer keeps for each parameter: 0, 1 (sgd with momentum) or 2. */
int sbp_graph_training_moments(const struct sbp_training *training);

#endif
