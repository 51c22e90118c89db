/* The arguments of Megatron-LM (megatron/training/arguments.py and the configuration classes from
 * which it makes flags), one a line, and the same of Megatron-Bridge, as assignments to the
 * configuration that a recipe makes.
 *
 * What `price --megatron` reads of them is planner/degrees/megatron.c. Megatron-FSDP's flag comes
 * before its strategy, which says more.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/export/export_priv.h"

/* ---- arguments ------------------------------------------------------------------------------- */

enum kind { SWITCH, NUMBER, WORD };

struct argument {
    const char *name; /* without dashes */
    enum kind kind;
    const char *value; /* "" of a switch */
};

#define MOST_ARGUMENTS 80
struct arguments {
    struct sbp_export *export;
    int count;
    struct argument argument[MOST_ARGUMENTS];
    bool failed;
};

static void SBP_PRINTF(4, 5)
    add(struct arguments *arguments, const char *name, enum kind kind, const char *format, ...)
{
    struct sbp_text text = {0};
    va_list list;
    va_start(list, format);
    sbp_text_add_list(&text, format, list);
    va_end(list);
    const char *value =
        text.failed ? NULL : sbp_arena_strdup(&arguments->export->arena, text.bytes);
    sbp_text_free(&text);
    arguments->failed |= value == NULL || arguments->count == MOST_ARGUMENTS;
    if (!arguments->failed)
        arguments->argument[arguments->count++] =
            (struct argument){.name = name, .kind = kind, .value = value};
}

static void add_switch(struct arguments *arguments, const char *name, bool given)
{
    if (given)
        add(arguments, name, SWITCH, "%s", "");
}

static void add_number(struct arguments *arguments, const char *name, int64_t value)
{
    add(arguments, name, NUMBER, "%lld", (long long)value);
}

/* Left out where it is 1, the trainer's default. */
static void add_degree(struct arguments *arguments, const char *name, int64_t value)
{
    if (value > 1)
        add_number(arguments, name, value);
}

static void add_word(struct arguments *arguments, const char *name, const char *word)
{
    add(arguments, name, WORD, "%s", word);
}

/* ---- the parallel part ----------------------------------------------------------------------- */

/* "Et*17|t*15,L": where layers are not shared out evenly. */
static void add_layout(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    struct sbp_text text = {0};
    sbp_text_add(&text, "E");
    for (int piece = 0; piece < export->pieces; piece++) {
        sbp_text_add(&text, "%s", piece > 0 ? "|" : "");
        if (export->layers[piece] > 0)
            sbp_text_add(&text, "t*%d", export->layers[piece]);
    }
    sbp_text_add(&text, ",L");
    arguments->failed |= text.failed;
    if (!text.failed)
        add_word(arguments, "pipeline-model-parallel-layout", text.bytes);
    sbp_text_free(&text);
}

static bool are_even(const struct sbp_export *export)
{
    for (int piece = 1; piece < export->pieces; piece++)
        if (export->layers[piece] != export->layers[0])
            return false;
    return true;
}

static void add_stages(struct arguments *arguments)
{
    const struct sbp_degrees *d = &arguments->export->degrees;
    add_degree(arguments, "pipeline-model-parallel-size", d->pipeline);
    if (!are_even(arguments->export))
        add_layout(arguments);
    else
        add_degree(arguments, "num-virtual-stages-per-pipeline-rank", d->chunks);
}

/* Levels 2 and 3 are Megatron-FSDP's. */
static void add_zero(struct arguments *arguments)
{
    static const char *const strategies[] = {NULL, NULL, "optim_grads", "optim_grads_params"};
    const int64_t level = arguments->export->degrees.zero;
    const struct sbp_runtime *runtime = &arguments->export->plan.workload.cluster.runtime;
    add_switch(arguments, "use-distributed-optimizer", level > 0);
    add_switch(arguments, "overlap-grad-reduce", runtime->hidden[SBP_HIDES_GRADIENTS] > 0);
    add_switch(arguments, "overlap-param-gather",
               level > 0 && runtime->hidden[SBP_HIDES_GRADIENTS] > 0 &&
                   runtime->hidden[SBP_HIDES_WEIGHTS] > 0);
    if (level < 2)
        return;
    add_switch(arguments, "use-megatron-fsdp", true);
    add_word(arguments, "data-parallel-sharding-strategy", strategies[level]);
    add_word(arguments, "ckpt-format", "fsdp_dtensor");
}

/* The blocks of a segment, in layers. */
static int64_t segment_layers(struct arguments *arguments)
{
    const struct sbp_graph *graph = &arguments->export->plan.cut.graph;
    struct sbp_arena *arena = &arguments->export->arena;
    int *layer = SBP_NEW(arena, int, graph->op_count),
        *block = SBP_NEW(arena, int, graph->op_count);
    arguments->failed |= layer == NULL || block == NULL;
    if (arguments->failed)
        return 1;
    (void)sbp_degrees_layers(graph, layer);
    (void)sbp_stages_blocks(graph, block);
    return arguments->export->degrees.recompute_every *
           sbp_degrees_block_layers(graph, layer, block);
}

static void add_recompute(struct arguments *arguments)
{
    const struct sbp_degrees *d = &arguments->export->degrees;
    if (d->recompute == SBP_RECOMPUTE_ATTENTION) {
        add_word(arguments, "recompute-granularity", "selective");
        add_word(arguments, "recompute-modules", "core_attn");
    }
    if (d->recompute != SBP_RECOMPUTE_FULL)
        return;
    add_word(arguments, "recompute-granularity", "full");
    add_word(arguments, "recompute-method", "uniform");
    add_number(arguments, "recompute-num-layers", segment_layers(arguments));
}

static void add_parallel(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const struct sbp_degrees *d = &export->degrees;
    add_number(arguments, "tensor-model-parallel-size", d->tensor);
    add_switch(arguments, "sequence-parallel", d->sequence_parallel);
    add_stages(arguments);
    add_degree(arguments, "context-parallel-size", d->context);
    if (sbp_export_number(export, "experts", 0) > 0) {
        add_number(arguments, "expert-model-parallel-size", d->expert);
        add_number(arguments, "expert-tensor-parallel-size", d->expert_tensor);
    }
    add_number(arguments, "micro-batch-size", d->micro_batch);
    add_number(arguments, "global-batch-size", export->plan.cut.graph.global_batch);
    add_zero(arguments);
    add_recompute(arguments);
    add_switch(arguments, "use-precision-aware-optimizer", d->offload);
    add_switch(arguments, "optimizer-cpu-offload", d->offload);
}

/* ---- the model part -------------------------------------------------------------------------- */

static void add_precision(struct arguments *arguments)
{
    const enum sbp_export_precision precision = sbp_export_precision_of(&arguments->export->plan);
    const bool is_blocks = precision == SBP_EXPORT_MXFP8;
    add_switch(arguments, "bf16", precision != SBP_EXPORT_FP32 && precision != SBP_EXPORT_FP16);
    add_switch(arguments, "fp16", precision == SBP_EXPORT_FP16);
    if (precision != SBP_EXPORT_FP8 && !is_blocks)
        return;
    add_word(arguments, "fp8-format", is_blocks ? "e4m3" : "hybrid");
    add_word(arguments, "fp8-recipe", is_blocks ? "mxfp8" : "delayed");
}

static void add_sizes(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const int64_t hidden = sbp_export_number(export, "hidden", 0);
    const int64_t heads = sbp_export_number(export, "heads", 1);
    const int64_t ffn = sbp_export_number(export, "ffn", 4 * hidden);
    add_number(arguments, "num-layers", sbp_export_number(export, "layers", 0));
    add_number(arguments, "hidden-size", hidden);
    add_number(arguments, "ffn-hidden-size", sbp_export_number(export, "dense_ffn", ffn));
    add_number(arguments, "num-attention-heads", heads);
    add_number(arguments, "seq-length", export->plan.cut.graph.sequence);
    add_number(arguments, "max-position-embeddings",
               sbp_export_number(export, "positions", export->plan.cut.graph.sequence));
    add_number(arguments, "vocab-size", sbp_export_number(export, "vocab", 0));
    add_number(arguments, "make-vocab-size-divisible-by",
               sbp_export_number(export, "vocab_multiple", 1));
}

static void add_gpt(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    add_word(arguments, "position-embedding-type", "learned_absolute");
    add_switch(arguments, "disable-bias-linear", !sbp_export_flag(export, "bias", true));
    add_switch(arguments, "untie-embeddings-and-output-weights",
               !sbp_export_flag(export, "tied", true));
}

/* Whether every layer has the model's window: which layers do, a model does not say. */
static bool has_window(const struct sbp_export *export)
{
    const int64_t layers = sbp_export_number(export, "layers", 0);
    return sbp_export_number(export, "window", 0) > 0 &&
           sbp_export_number(export, "window_layers", layers) == layers;
}

/* Scores of heads that no key has, and keys that a query sees beside its own. */
static void add_scores(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    if (sbp_export_flag(export, "sinks", false))
        add_word(arguments, "softmax-type", "learnable");
    if (has_window(export))
        add(arguments, "window-size", NUMBER, "%lld,0",
            (long long)sbp_export_number(export, "window", 0) - 1);
}

static void add_grouped(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const int64_t heads = sbp_export_number(export, "heads", 1);
    add_switch(arguments, "group-query-attention", true);
    add_number(arguments, "num-query-groups", sbp_export_number(export, "kv_heads", heads));
    add_number(
        arguments, "kv-channels",
        sbp_export_number(export, "head_dim", sbp_export_number(export, "hidden", 0) / heads));
    add_switch(arguments, "add-qkv-bias", sbp_export_flag(export, "qkv_bias", false));
    add_switch(arguments, "qk-layernorm", sbp_export_flag(export, "qk_norm", false));
    add_scores(arguments);
}

/* DeepSeek's attention: queries, keys and values out of vectors of low rank. */
static void add_latent(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    add_switch(arguments, "multi-latent-attention", true);
    if (sbp_export_number(export, "q_rank", 0) > 0)
        add_number(arguments, "q-lora-rank", sbp_export_number(export, "q_rank", 0));
    add_number(arguments, "kv-lora-rank", sbp_export_number(export, "kv_rank", 0));
    add_number(arguments, "qk-head-dim", sbp_export_number(export, "nope", 0));
    add_number(arguments, "qk-pos-emb-head-dim", sbp_export_number(export, "rope", 0));
    add_number(arguments, "v-head-dim", sbp_export_number(export, "value", 0));
    add_switch(arguments, "qk-layernorm", true);
}

/* Which layers have experts: all, or "([0]*3+[1]*58)", or every so many behind the dense ones. */
static void add_frequency(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const int64_t layers = sbp_export_number(export, "layers", 0);
    const int64_t dense = sbp_export_number(export, "dense_layers", 0);
    const int64_t every = sbp_export_number(export, "moe_every", 1);
    const int64_t left = (layers - dense) % every;
    if (dense + every == 1)
        return;
    if (every == 1)
        add(arguments, "moe-layer-freq", WORD, "([0]*%lld+[1]*%lld)", (long long)dense,
            (long long)(layers - dense));
    else
        add(arguments, "moe-layer-freq", WORD, "([0]*%lld+([0]*%lld+[1])*%lld+[0]*%lld)",
            (long long)dense, (long long)(every - 1), (long long)((layers - dense) / every),
            (long long)left);
}

/* Nodes that the experts of a layer lie on. */
static int64_t expert_nodes(const struct sbp_export *export)
{
    const struct sbp_degrees *d = &export->degrees;
    const struct sbp_cluster *cluster = &export->plan.workload.cluster;
    const int64_t own = sbp_cut_devices(&export->plan.cut) / sbp_export_machines(cluster);
    return d->expert * d->expert_tensor > own ? d->expert * d->expert_tensor / own : 1;
}

/* Groups of experts, of which a token chooses some: the model's, else those of a node; without
 * effect where it may choose all of them. */
static void add_groups(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const int64_t most = sbp_export_number(export, "nodes_per_token", 0);
    const int64_t groups = sbp_export_number(export, "expert_groups", expert_nodes(export));
    if (most == 0 || groups <= most)
        return;
    add_number(arguments, "moe-router-num-groups", groups);
    add_number(arguments, "moe-router-group-topk", most);
}

static void add_capacity(struct arguments *arguments)
{
    const double capacity = sbp_export_real(arguments->export, "capacity", 1);
    if (capacity <= 1)
        return;
    add(arguments, "moe-expert-capacity-factor", NUMBER, "%.17g", capacity);
    add_switch(arguments, "moe-pad-expert-input-to-capacity", true);
}

/* Whether the router chooses by sigmoids: where a decoder as DeepSeek's with a bias does not say
 * how, it does. */
static bool has_sigmoids(const struct sbp_export *export)
{
    const char *scoring = sbp_export_word(export, "scoring");
    if (scoring[0] != '\0')
        return strcmp(scoring, "sigmoid") == 0;
    return sbp_export_is(export, "deepseek") && sbp_export_flag(export, "router_bias", false);
}

/* Whether the router's bias balances the experts; one that is learned has no argument. */
static bool has_balancing_bias(const struct sbp_export *export)
{
    return has_sigmoids(export) && sbp_export_flag(export, "router_bias", false);
}

static void add_experts(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    const int64_t ffn =
        sbp_export_number(export, "expert_ffn", sbp_export_number(export, "ffn", 0));
    const int64_t shared = sbp_export_number(export, "shared_experts", 0);
    add_number(arguments, "num-experts", sbp_export_number(export, "experts", 0));
    add_number(arguments, "moe-router-topk", sbp_export_number(export, "top_k", 1));
    add_number(arguments, "moe-ffn-hidden-size", ffn);
    if (shared > 0)
        add_number(arguments, "moe-shared-expert-intermediate-size", shared * ffn);
    add_frequency(arguments);
    add_word(arguments, "moe-token-dispatcher-type", "alltoall");
    add_switch(arguments, "moe-grouped-gemm", true);
    add_groups(arguments);
    add_capacity(arguments);
    if (has_sigmoids(export))
        add_word(arguments, "moe-router-score-function", "sigmoid");
    if (has_balancing_bias(export))
        add_switch(arguments, "moe-router-enable-expert-bias", true);
}

/* Blocks with RMS norm, rotary positions and SwiGLU. */
static void add_modern(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    if (sbp_export_is(export, "deepseek"))
        add_latent(arguments);
    else
        add_grouped(arguments);
    if (sbp_export_number(export, "experts", 0) > 0)
        add_experts(arguments);
    add_switch(arguments, "swiglu", true);
    add_word(arguments, "normalization", "RMSNorm");
    add_word(arguments, "position-embedding-type", "rope");
    add_switch(arguments, "disable-bias-linear", true);
    add_switch(arguments, "untie-embeddings-and-output-weights",
               !sbp_export_flag(export, "tied", false));
}

/* Adam is the trainer's own. */
static void add_update(struct arguments *arguments)
{
    const struct sbp_training *training = &arguments->export->plan.cut.graph.training;
    if (training->update.optimizer == SBP_SGD) {
        add_word(arguments, "optimizer", "sgd");
        add(arguments, "sgd-momentum", NUMBER, "%.17g", training->update.momentum);
    }
    add(arguments, "clip-grad", NUMBER, "%.17g", training->clip_norm); /* else it is 1 */
}

static void add_model(struct arguments *arguments)
{
    const struct sbp_export *export = arguments->export;
    add_sizes(arguments);
    if (sbp_export_is(export, "gpt"))
        add_gpt(arguments);
    else
        add_modern(arguments);
    add(arguments, "norm-epsilon", NUMBER, "%g", sbp_export_real(export, "epsilon", 1e-5));
    add(arguments, "hidden-dropout", NUMBER, "%g", sbp_export_real(export, "dropout", 0));
    add(arguments, "attention-dropout", NUMBER, "%g",
        sbp_export_real(export, "attention_dropout", 0));
    add_word(arguments, "attention-backend",
             sbp_export_keeps_scores(export)           ? "unfused"
             : sbp_export_flag(export, "sinks", false) ? "fused"
                                                       : "flash");
    add_precision(arguments);
    add_update(arguments);
}

/* Keys of the model that the arguments say, or that no trainer needs to be told. */
static const char *const WRITTEN[] = {"architecture",
                                      "name",
                                      "notes",
                                      "layers",
                                      "hidden",
                                      "heads",
                                      "kv_heads",
                                      "head_dim",
                                      "ffn",
                                      "dense_ffn",
                                      "expert_ffn",
                                      "vocab",
                                      "positions",
                                      "vocab_multiple",
                                      "sequence",
                                      "global_batch",
                                      "precision",
                                      "attention",
                                      "optimizer",
                                      "clip_norm",
                                      "dropout",
                                      "tied",
                                      "bias",
                                      "epsilon",
                                      "attention_dropout",
                                      "qk_norm",
                                      "q_rank",
                                      "kv_rank",
                                      "nope",
                                      "rope",
                                      "value",
                                      "experts",
                                      "top_k",
                                      "shared_experts",
                                      "dense_layers",
                                      "moe_every",
                                      "sinks",
                                      "capacity",
                                      "linears", /* export_layout.c names it */
                                      "nodes_per_token",
                                      "expert_groups",
                                      "scoring"};
enum { ALWAYS = sizeof WRITTEN / sizeof *WRITTEN };

/* Adds the keys that the arguments say of some models, and lists all others. */
static enum sbp_status lose_keys(struct sbp_export *export)
{
    const char *written[ALWAYS + 5] = {0};
    int count = ALWAYS;
    memcpy(written, WRITTEN, sizeof WRITTEN);
    if (has_window(export)) {
        written[count++] = "window";
        written[count++] = "window_layers";
    }
    if (has_balancing_bias(export))
        written[count++] = "router_bias";
    if (!sbp_export_is(export, "deepseek"))
        written[count++] = "qkv_bias";
    return sbp_export_lose_keys(export, written);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The part of Megatron-Bridge's configuration that holds an argument. Sizes of the model are the
 * recipe's, which are checked. */
enum part { ASSERT, MODEL, TRAIN, DDP, OPTIMIZER };
static const struct {
    const char *name; /* as Megatron-LM has it */
    enum part part;
    const char *key; /* NULL: the name, with underscores */
} bridge[] = {
    {"tensor-model-parallel-size", MODEL, NULL},
    {"sequence-parallel", MODEL, NULL},
    {"pipeline-model-parallel-size", MODEL, NULL},
    {"num-virtual-stages-per-pipeline-rank", MODEL, "virtual_pipeline_model_parallel_size"},
    {"pipeline-model-parallel-layout", MODEL, NULL},
    {"context-parallel-size", MODEL, NULL},
    {"expert-model-parallel-size", MODEL, NULL},
    {"expert-tensor-parallel-size", MODEL, NULL},
    {"recompute-granularity", MODEL, NULL},
    {"recompute-method", MODEL, NULL},
    {"recompute-num-layers", MODEL, NULL},
    {"seq-length", MODEL, "seq_length"},
    {"micro-batch-size", TRAIN, NULL},
    {"global-batch-size", TRAIN, NULL},
    {"use-distributed-optimizer", DDP, NULL},
    {"overlap-grad-reduce", DDP, NULL},
    {"overlap-param-gather", DDP, NULL},
    {"use-megatron-fsdp", DDP, NULL},
    {"data-parallel-sharding-strategy", DDP, NULL},
    {"moe-expert-capacity-factor", MODEL, NULL},
    {"moe-pad-expert-input-to-capacity", MODEL, NULL},
    {"moe-router-num-groups", MODEL, NULL},
    {"moe-router-group-topk", MODEL, NULL},
    {"window-size", MODEL, NULL},
    {"softmax-type", MODEL, NULL},
    {"optimizer", OPTIMIZER, NULL},
    {"sgd-momentum", OPTIMIZER, NULL},
    {"clip-grad", OPTIMIZER, NULL},
    {"use-precision-aware-optimizer", OPTIMIZER, NULL},
    {"optimizer-cpu-offload", OPTIMIZER, NULL},
    {"num-layers", ASSERT, NULL},
    {"hidden-size", ASSERT, NULL},
    {"ffn-hidden-size", ASSERT, NULL},
    {"num-attention-heads", ASSERT, NULL},
    {"num-query-groups", ASSERT, NULL},
};

static void add_key(struct sbp_text *text, const char *name, const char *key)
{
    if (key != NULL)
        sbp_text_add(text, "%s", key);
    for (const char *at = name; key == NULL && *at != '\0'; at++)
        sbp_text_add(text, "%c", *at == '-' ? '_' : *at);
}

static void add_value(struct sbp_text *text, const struct argument *argument)
{
    const char *quote = argument->kind == WORD ? "\"" : "";
    sbp_text_add(text, "%s%s%s", quote, argument->kind == SWITCH ? "True" : argument->value, quote);
}

static void add_assignment(struct sbp_text *text, const struct argument *argument)
{
    static const char *const parts[] = {"model", "model", "train", "ddp", "optimizer"};
    size_t i = 0;
    while (i < sizeof bridge / sizeof *bridge && strcmp(bridge[i].name, argument->name) != 0)
        i++;
    const bool is_module = strcmp(argument->name, "recompute-modules") == 0;
    if (is_module)
        sbp_text_add(text, "    cfg.model.recompute_modules = [\"%s\"]\n", argument->value);
    if (i == sizeof bridge / sizeof *bridge)
        return;
    const bool is_check = bridge[i].part == ASSERT;
    sbp_text_add(text, "    %scfg.%s.", is_check ? "assert " : "", parts[bridge[i].part]);
    add_key(text, argument->name, bridge[i].key);
    sbp_text_add(text, " %s ", is_check ? "==" : "=");
    add_value(text, argument);
    sbp_text_add(text, "\n");
}

/* Sets back what recipes set and a plan does not ask for. */
static void add_defaults(struct sbp_text *text)
{
    static const char *const lines[] = {"model.sequence_parallel = False",
                                        "model.pipeline_model_parallel_size = 1",
                                        "model.virtual_pipeline_model_parallel_size = None",
                                        "model.pipeline_model_parallel_layout = None",
                                        "model.context_parallel_size = 1",
                                        "model.recompute_granularity = None",
                                        "model.recompute_method = None",
                                        "model.recompute_num_layers = None",
                                        "ddp.use_distributed_optimizer = False",
                                        "ddp.overlap_grad_reduce = False",
                                        "ddp.overlap_param_gather = False",
                                        "ddp.use_megatron_fsdp = False",
                                        "ddp.data_parallel_sharding_strategy = \"no_shard\"",
                                        "optimizer.use_precision_aware_optimizer = False",
                                        "optimizer.optimizer_cpu_offload = False"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        sbp_text_add(text, "    cfg.%s\n", lines[i]);
}

enum sbp_status sbp_export_megatron_bridge(struct sbp_export *export, struct sbp_text *text,
                                           struct sbp_diag *diag)
{
    static const char *const precisions[SBP_EXPORT_PRECISIONS] = {
        [SBP_EXPORT_MIXED] = "bf16_mixed",
        [SBP_EXPORT_FP16] = "fp16_mixed",
        [SBP_EXPORT_FP8] = "bf16_with_fp8_delayed_scaling_mixed",
        [SBP_EXPORT_MXFP8] = "bf16_with_mxfp8_mixed"};
    struct arguments arguments = {.export = export};
    add_parallel(&arguments);
    add_model(&arguments);
    sbp_text_add(text, "def configure(cfg):\n"
                       "    \"\"\"Sets the configuration of a recipe, which is of ");
    sbp_export_add_name(text, export);
    sbp_text_add(text, ", to the plan.\"\"\"\n");
    add_defaults(text);
    for (int i = 0; i < arguments.count; i++)
        add_assignment(text, &arguments.argument[i]);
    sbp_text_add(text, "    cfg.mixed_precision = \"%s\"\n",
                 precisions[sbp_export_precision_of(&export->plan)]);
    sbp_text_add(text, "    cfg.dataset.seq_length = %lld\n",
                 (long long)export->plan.cut.graph.sequence);
    sbp_text_add(text, "    cfg.optimizer.use_distributed_optimizer = "
                       "cfg.ddp.use_distributed_optimizer\n    return cfg\n");
    return arguments.failed || text->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory")
                                            : SBP_OK;
}

enum sbp_status sbp_export_megatron(struct sbp_export *export, struct sbp_text *text,
                                    struct sbp_diag *diag)
{
    struct arguments arguments = {.export = export};
    add_parallel(&arguments);
    add_model(&arguments);
    for (int i = 0; i < arguments.count; i++) {
        const struct argument *argument = &arguments.argument[i];
        sbp_text_add(text, "--%s%s%s\n", argument->name, argument->kind == SWITCH ? "" : " ",
                     argument->value);
    }
    if (arguments.failed || text->failed || lose_keys(export) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return SBP_OK;
}
