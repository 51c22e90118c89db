/* Shardings of llama's modules as torchtitan declares them (torchtitan/protocols/sharding.py), for
 * plans that export_modules.h reads. Its model fills in those of the degrees when the trainer
 * starts, over what a configuration says; overrides (torchtitan/config/override.py) come behind
 * that and before modules are built. */
#include <string.h>

#include "planner/export/export_modules.h"
#include "planner/export/export_priv.h"

static const char *const LAYOUTS[] = {
    [SBP_EXPORT_LIES_BY_TOKEN] = "TOKENS", [SBP_EXPORT_LIES_BY_FEATURE] = "FEATURES",
    [SBP_EXPORT_LIES_WHOLE] = "WHOLE",     [SBP_EXPORT_LIES_MIRRORED] = "MIRRORED",
    [SBP_EXPORT_LIES_SUMMED] = "SUMMED",
};

/* Of a module's weight, by what the module makes; torchtitan's are (outputs, inputs). */
static const char *const WEIGHTS[] = {
    [SBP_EXPORT_LIES_BY_TOKEN] = "spmd.R",  [SBP_EXPORT_LIES_BY_FEATURE] = "spmd.S(0)",
    [SBP_EXPORT_LIES_WHOLE] = "spmd.R",     [SBP_EXPORT_LIES_MIRRORED] = "spmd.I",
    [SBP_EXPORT_LIES_SUMMED] = "spmd.S(1)",
};

static void add_boundary(struct sbp_text *text, const char *module, const char *name,
                         enum sbp_export_lie comes, enum sbp_export_lie read)
{
    sbp_text_add(text, "        layer.%s.sharding_config = boundary(\"%s\", %s, %s)\n", module,
                 name, LAYOUTS[comes], LAYOUTS[read]);
}

/* A module whose input its parent has brought where it is read. */
static void add_inner(struct sbp_text *text, const char *module, enum sbp_export_lie made,
                      enum sbp_export_lie leaves)
{
    sbp_text_add(text, "        layer.%s.sharding_config = sharding(%s, %s, %s)\n", module,
                 WEIGHTS[made], LAYOUTS[made], LAYOUTS[leaves]);
}

static void add_module(struct sbp_text *text, const char *module, enum sbp_export_lie comes,
                       enum sbp_export_lie read, enum sbp_export_lie made,
                       enum sbp_export_lie leaves)
{
    sbp_text_add(text, "%s.sharding_config = sharding(%s, %s, %s, %s, %s)\n", module, WEIGHTS[made],
                 LAYOUTS[made], LAYOUTS[leaves], LAYOUTS[comes], LAYOUTS[read]);
}

static void add_attention(struct sbp_text *text, const struct sbp_export_modules *m,
                          const int *block)
{
    const enum sbp_export_lie normed = sbp_export_lie_rest(m, block[SBP_EXPORT_NORM1]);
    const int projection = block[SBP_EXPORT_PROJECTION];
    add_module(text, "        layer.attention_norm", m->residual, m->residual, m->residual, normed);
    add_boundary(text, "attention", "x_TD", normed, sbp_export_lie_in(m, block[SBP_EXPORT_Q]));
    add_module(text, "        layer.attention.wo", sbp_export_lie_out(m, block[SBP_EXPORT_HEADS]),
               sbp_export_lie_in(m, projection), sbp_export_lie_out(m, projection), m->residual);
}

static void add_feed_forward(struct sbp_text *text, const struct sbp_export_modules *m,
                             const int *block)
{
    const enum sbp_export_lie normed = sbp_export_lie_rest(m, block[SBP_EXPORT_NORM2]);
    const int up = block[SBP_EXPORT_GATE_UP], down = block[SBP_EXPORT_DOWN];
    const enum sbp_export_lie made = sbp_export_lie_out(m, up), leaves = sbp_export_lie_rest(m, up);
    add_module(text, "        layer.ffn_norm", m->residual, m->residual, m->residual, normed);
    add_boundary(text, "feed_forward", "x", normed, sbp_export_lie_in(m, up));
    add_inner(text, "feed_forward.w1", made, leaves);
    add_inner(text, "feed_forward.w3", made, leaves);
    add_module(text, "        layer.feed_forward.w2", leaves, sbp_export_lie_in(m, down),
               sbp_export_lie_out(m, down), m->residual);
}

static void add_block(struct sbp_text *text, const struct sbp_export_modules *m, const int *block)
{
    add_attention(text, m, block);
    add_feed_forward(text, m, block);
}

/* Adds runs of blocks that are sharded alike, layers first .. last - 1. Repeats are. */
static void add_blocks(struct sbp_text *text, const struct sbp_export_modules *m)
{
    const struct sbp_graph *graph = &m->plan->cut.graph;
    int block[SBP_EXPORT_PARTS];
    for (int op = 1, layer = 0; sbp_export_block(graph, op, block);) {
        const int site = graph->op[op].site, first = layer;
        int next[SBP_EXPORT_PARTS];
        do {
            op += SBP_EXPORT_PARTS;
            layer++;
        } while (sbp_export_block(graph, op, next) && graph->op[op].site == site);
        sbp_text_add(text, "    for layer in model.layers[%d:%d]:\n", first, layer);
        add_block(text, m, block);
    }
}

void sbp_export_add_sharding_imports(struct sbp_text *text, const struct sbp_export *export)
{
    if (!export->by_module)
        return;
    sbp_text_add(text, "from torchtitan.models.common.decoder_sharding import (\n"
                       "    dense_activation_placement,\n"
                       "    dense_param_placement,\n"
                       "    dense_sequence_parallel_placement,\n"
                       ")\n"
                       "from torchtitan.models.llama3.model import Llama3Model\n"
                       "from torchtitan.protocols.sharding import ShardingConfig\n\n"
                       "TOKENS = dense_sequence_parallel_placement()\n"
                       "FEATURES = dense_activation_placement(tp=spmd.S(-1), cp=spmd.S(0))\n"
                       "WHOLE = dense_activation_placement(tp=spmd.R, cp=spmd.S(0))\n"
                       "MIRRORED = dense_activation_placement(tp=spmd.I, cp=spmd.S(0))\n"
                       "SUMMED = dense_activation_placement(tp=spmd.P, cp=spmd.S(0))\n\n\n"
                       "def boundary(name, comes, read):\n"
                       "    return ShardingConfig(in_src_shardings={name: comes}, "
                       "in_dst_shardings={name: read})\n\n\n"
                       "def sharding(weight, made, leaves, comes=None, read=None):\n"
                       "    return ShardingConfig(\n"
                       "        state_shardings={\"weight\": dense_param_placement(tp=weight)},\n"
                       "        in_src_shardings=comes and {\"input\": comes},\n"
                       "        in_dst_shardings=read and {\"input\": read},\n"
                       "        out_src_shardings=made,\n"
                       "        out_dst_shardings=leaves,\n"
                       "    )\n");
}

/* The final norm brings its output where the head reads it, as torchtitan's does. */
void sbp_export_add_shardings(struct sbp_text *text, const struct sbp_export *export)
{
    struct sbp_export_modules m;
    if (!export->by_module || !sbp_export_modules_of(&export->plan, &m))
        return;
    sbp_text_add(text,
                 "\n\n@override(target=Llama3Model.Config, description=\"shardings of the plan\")\n"
                 "def shard_modules(model):\n"
                 "    \"\"\"Called behind update_from_config, which fills in those of the "
                 "degrees.\"\"\"\n"
                 "    model.tok_embeddings.sharding_config = replace(\n"
                 "        model.tok_embeddings.sharding_config, out_dst_shardings=%s\n"
                 "    )\n",
                 LAYOUTS[m.residual]);
    add_blocks(text, &m);
    add_module(text, "    model.norm", m.residual, m.residual, m.residual, SBP_EXPORT_LIES_WHOLE);
    sbp_text_add(text, "    return model\n");
}
