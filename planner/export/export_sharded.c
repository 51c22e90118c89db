/* Files of trainers that shard states over replicas: the JSON of DeepSpeed (deepspeed/runtime/
 * config.py) and the YAML of Accelerate (accelerate/commands/config/config_args.py). */
#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/export/export_priv.h"

/* ---- DeepSpeed ------------------------------------------------------------------------------- */

static void put_batches(struct cJSON *json, const struct sbp_export *export, bool *failed)
{
    const struct sbp_cut *cut = &export->plan.cut;
    sbp_json_put_number(json, "train_batch_size", (double)cut->graph.global_batch, failed);
    sbp_json_put_number(json, "train_micro_batch_size_per_gpu", (double)export->degrees.micro_batch,
                        failed);
    sbp_json_put_number(json, "gradient_accumulation_steps",
                        (double)sbp_parallel_micro_batches(&cut->parallel, &cut->graph), failed);
}

static void put_precision(struct cJSON *json, const struct sbp_export *export, bool *failed)
{
    const enum sbp_type compute = export->plan.cut.graph.precision.compute;
    if (compute == SBP_BF16 || compute == SBP_FP16)
        sbp_json_put_bool(sbp_json_put_object(json, compute == SBP_BF16 ? "bf16" : "fp16", failed),
                          "enabled", true, failed);
}

static void put_zero(struct cJSON *json, const struct sbp_export *export, bool *failed)
{
    const struct sbp_runtime *runtime = &export->plan.workload.cluster.runtime;
    struct cJSON *zero = sbp_json_put_object(json, "zero_optimization", failed);
    sbp_json_put_number(zero, "stage", (double)export->degrees.zero, failed);
    sbp_json_put_bool(zero, "overlap_comm", runtime->hidden[SBP_HIDES_GRADIENTS] > 0, failed);
    if (export->degrees.offload)
        sbp_json_put_text(sbp_json_put_object(zero, "offload_optimizer", failed), "device", "cpu",
                          failed);
}

enum sbp_status sbp_export_deepspeed(struct sbp_export *export, struct sbp_text *text,
                                     struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    const double clip_norm = export->plan.cut.graph.training.clip_norm;
    put_batches(json, export, &failed);
    put_precision(json, export, &failed);
    put_zero(json, export, &failed);
    if (export->degrees.tensor > 1)
        sbp_json_put_number(sbp_json_put_object(json, "tensor_parallel", &failed), "autotp_size",
                            (double)export->degrees.tensor, &failed);
    if (clip_norm > 0)
        sbp_json_put_number(json, "gradient_clipping", clip_norm, &failed);
    return sbp_export_json(json, failed, text, diag);
}

/* ---- Accelerate ------------------------------------------------------------------------------ */

enum sbp_status sbp_export_fsdp2(struct sbp_export *export, struct sbp_text *text,
                                 struct sbp_diag *diag)
{
    const struct sbp_degrees *d = &export->degrees;
    const enum sbp_type compute = export->plan.cut.graph.precision.compute;
    const bool recomputes = export->plan.cut.parallel.recompute == SBP_RECOMPUTE_FULL;
    sbp_text_add(text,
                 "compute_environment: LOCAL_MACHINE\n"
                 "distributed_type: FSDP\n"
                 "fsdp_config:\n"
                 "  fsdp_version: 2\n"
                 "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                 "  fsdp_reshard_after_forward: %s\n"
                 "  fsdp_activation_checkpointing: %s\n"
                 "  fsdp_offload_params: false\n"
                 "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
                 d->zero == 3 ? "true" : "false", recomputes ? "true" : "false");
    sbp_text_add(text, "mixed_precision: '%s'\n",
                 compute == SBP_BF16   ? "bf16"
                 : compute == SBP_FP16 ? "fp16"
                                       : "no");
    sbp_text_add(text, "num_machines: %lld\nnum_processes: %lld\n",
                 (long long)sbp_export_machines(&export->plan.workload.cluster),
                 (long long)sbp_cut_devices(&export->plan.cut));
    sbp_text_add(text,
                 "parallelism_config:\n"
                 "  parallelism_config_dp_replicate_size: 1\n"
                 "  parallelism_config_dp_shard_size: %lld\n"
                 "  parallelism_config_tp_size: %lld\n"
                 "  parallelism_config_cp_size: %lld\n",
                 (long long)d->data, (long long)d->tensor, (long long)d->context);
    return text->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}
