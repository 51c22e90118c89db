/* The JSON of Galvatron (galvatron/core/runtime/hybrid_parallel_config.py): degrees, ZeRO 3 and
 * checkpoints layer by layer, all layers alike, and the layers of each stage. */
#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/export/export_priv.h"

/* "2,2,2": the same for every layer, in the trainer's way. */
static void put_layers(struct cJSON *json, const char *key, int64_t layers, int64_t value,
                       bool *failed)
{
    struct sbp_text text = {0};
    for (int64_t layer = 0; layer < layers; layer++)
        sbp_text_add(&text, "%s%lld", layer > 0 ? "," : "", (long long)value);
    *failed |= text.failed;
    if (!text.failed)
        sbp_json_put_text(json, key, text.bytes, failed);
    sbp_text_free(&text);
}

static void put_division(struct cJSON *json, const struct sbp_export *export, bool *failed)
{
    struct sbp_text text = {0};
    for (int piece = 0; piece < export->pieces; piece++)
        sbp_text_add(&text, "%s%d", piece > 0 ? "," : "", export->layers[piece]);
    *failed |= text.failed;
    if (!text.failed)
        sbp_json_put_text(json, "pp_division", text.bytes, failed);
    sbp_text_free(&text);
}

static void put_degrees(struct cJSON *json, const struct sbp_export *export, bool *failed)
{
    const struct sbp_degrees *d = &export->degrees;
    const struct sbp_cut *cut = &export->plan.cut;
    const int64_t layers = sbp_export_number(export, "layers", 0);
    sbp_json_put_number(json, "pp_deg", (double)d->pipeline, failed);
    put_layers(json, "tp_sizes_enc", layers, d->tensor, failed);
    put_layers(json, "tp_consecutive_flags", layers, 1, failed);
    put_layers(json, "cp_sizes_enc", layers, d->context, failed);
    put_layers(json, "dp_types_enc", layers, d->zero == 3, failed);
    put_layers(json, "use_sp", layers, 0, failed); /* Ulysses */
    put_layers(json, "checkpoint", layers, cut->parallel.recompute == SBP_RECOMPUTE_FULL, failed);
    sbp_json_put_number(json, "world_size", (double)sbp_cut_devices(cut), failed);
    sbp_json_put_number(json, "global_bsz", (double)cut->graph.global_batch, failed);
    sbp_json_put_number(json, "chunks",
                        (double)sbp_parallel_micro_batches(&cut->parallel, &cut->graph), failed);
    put_division(json, export, failed);
    sbp_json_put_text(json, "pipeline_type",
                      cut->parallel.schedule == SBP_GPIPE ? "gpipe" : "pipedream_flush", failed);
    sbp_json_put_text(json, "default_dp_type", d->zero == 0 ? "ddp" : "zero2", failed);
    sbp_json_put_number(json, "vtp", (double)d->tensor, failed);
    sbp_json_put_number(json, "vsp", 0, failed);
    sbp_json_put_number(json, "vcp", (double)d->context, failed);
    sbp_json_put_number(json, "vocab_sdp", d->zero == 3, failed);
}

enum sbp_status sbp_export_galvatron(struct sbp_export *export, struct sbp_text *text,
                                     struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    put_degrees(json, export, &failed);
    if (export->degrees.tensor > 1 && !export->degrees.sequence_parallel)
        failed |= sbp_export_lose(export, "the training script has to say: sequence_parallel "
                                          "false") != SBP_OK;
    return sbp_export_json(json, failed, text, diag);
}
