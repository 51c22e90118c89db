/* The configuration classes of torchtitan (torchtitan/config/configs.py), set by a function. Its
 * models bring the shardings of their modules themselves, those of the exported layout; other ones
 * are written behind it (export_shardings.c). */
#include "planner/export/export_priv.h"

/* ---- where stages begin ---------------------------------------------------------------------- */

/* ["tok_embeddings", "layers.0", ...] of a piece whose first layer is `first`. */
static void add_piece(struct sbp_text *text, const struct sbp_export *export, int piece, int first)
{
    const char *comma = "";
    sbp_text_add(text, "            [");
    if (piece == 0) {
        sbp_text_add(text, "\"tok_embeddings\"");
        comma = ", ";
    }
    for (int layer = first; layer < first + export->layers[piece]; layer++, comma = ", ")
        sbp_text_add(text, "%s\"layers.%d\"", comma, layer);
    if (piece == export->pieces - 1)
        sbp_text_add(text, "%s\"norm\", \"lm_head\"", comma);
    sbp_text_add(text, "],\n");
}

static void add_pipeline(struct sbp_text *text, const struct sbp_export *export)
{
    static const char *const schedules[SBP_SCHEDULES] = {
        [SBP_GPIPE] = "GPipe", [SBP_ONE_F_ONE_B] = "1F1B", [SBP_INTERLEAVED] = "Interleaved1F1B"};
    const struct sbp_cut *cut = &export->plan.cut;
    int first = 0;
    if (export->degrees.pipeline < 2)
        return;
    sbp_text_add(text, "        pipeline_parallel_degree=%lld,\n",
                 (long long)export->degrees.pipeline);
    sbp_text_add(text, "        pipeline_parallel_schedule=\"%s\",\n",
                 schedules[cut->parallel.schedule]);
    sbp_text_add(text, "        num_pp_microbatches=%lld,\n",
                 (long long)sbp_parallel_micro_batches(&cut->parallel, &cut->graph));
    sbp_text_add(text, "        module_fqns_per_model_part=[\n");
    for (int piece = 0; piece < export->pieces; first += export->layers[piece++])
        add_piece(text, export, piece, first);
    sbp_text_add(text, "        ],\n");
}

/* ---- classes --------------------------------------------------------------------------------- */

/* Without ZeRO weights are replicated; level 2 keeps them gathered until the backward pass. */
static void add_parallelism(struct sbp_text *text, const struct sbp_export *export)
{
    const struct sbp_degrees *d = &export->degrees;
    const bool sharded = d->zero > 0;
    sbp_text_add(text, "    config.parallelism = ParallelismConfig(\n");
    sbp_text_add(text, "        data_parallel_replicate_degree=%lld,\n",
                 (long long)(sharded ? 1 : d->data));
    sbp_text_add(text, "        data_parallel_shard_degree=%lld,\n",
                 (long long)(sharded ? d->data : 1));
    sbp_text_add(text, "        fsdp_reshard_after_forward=\"%s\",\n",
                 d->zero == 3 ? "always" : "never");
    sbp_text_add(text, "        tensor_parallel_degree=%lld,\n", (long long)d->tensor);
    sbp_text_add(text, "        enable_sequence_parallel=%s,\n",
                 d->sequence_parallel ? "True" : "False");
    sbp_text_add(text, "        context_parallel_degree=%lld,\n", (long long)d->context);
    sbp_text_add(text, "        expert_parallel_degree=%lld,\n", (long long)d->expert);
    add_pipeline(text, export);
    sbp_text_add(text, "    )\n");
}

/* CUDA graphs are for neither pipelines nor experts that lie apart. */
static void add_training(struct sbp_text *text, const struct sbp_export *export)
{
    const struct sbp_graph *graph = &export->plan.cut.graph;
    const struct sbp_degrees *d = &export->degrees;
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {
        {"num_tokens_per_microbatch_per_dp_rank", d->micro_batch * graph->sequence},
        {"num_tokens_per_train_step", graph->global_batch * graph->sequence},
        {"max_context_length", graph->sequence},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        sbp_text_add(text, "    config.training.%s = %lld\n", counts[i].key,
                     (long long)counts[i].value);
    sbp_text_add(text, "    config.training.mixed_precision_param = \"%s\"\n",
                 graph->precision.compute == SBP_FP32 ? "float32" : "bfloat16");
    if (d->pipeline > 1 || d->expert > 1)
        sbp_text_add(text, "    config.training.disable_cuda_graphs = True\n");
}

enum sbp_status sbp_export_torchtitan(struct sbp_export *export, struct sbp_text *text,
                                      struct sbp_diag *diag)
{
    static const char *const checkpoints[SBP_RECOMPUTES] = {
        [SBP_RECOMPUTE_NONE] = "None",
        [SBP_RECOMPUTE_SELECTIVE] = "SelectiveAC.Config()",
        [SBP_RECOMPUTE_FULL] = "FullAC.Config()"};
    sbp_text_add(text,
                 "%sfrom torchtitan.config import ParallelismConfig\n"
                 "%sfrom torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n",
                 export->by_module ? "from dataclasses import replace\n\n"
                                     "import spmd_types as spmd\n"
                                   : "",
                 export->by_module ? "from torchtitan.config.override import override\n" : "");
    sbp_export_add_sharding_imports(text, export);
    sbp_text_add(text, "\n\n"
                       "def configure(config):\n"
                       "    \"\"\"Sets a Trainer.Config, whose model is ");
    sbp_export_add_name(text, export);
    sbp_text_add(text, ", to the plan.\"\"\"\n");
    sbp_text_add(text, "    assert len(config.model_spec.model.layers) == %lld\n",
                 (long long)sbp_export_number(export, "layers", 0));
    add_parallelism(text, export);
    add_training(text, export);
    sbp_text_add(text, "    config.activation_checkpoint = %s\n",
                 checkpoints[export->plan.cut.parallel.recompute]);
    if (export->by_module)
        sbp_text_add(text, "    config.override.imports.append(f\"{__name__}.shard_modules\")\n");
    sbp_text_add(text, "    return config\n");
    sbp_export_add_shardings(text, export);
    return text->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}
