#include "tests/papers/memory_runs.h"

#include <stdio.h>
#include <string.h>

#define MIB 1048576.0
#define GIB 1073741824.0

/* ---- what the groups share ------------------------------------------------------------------ */

/* Nodes of eight devices; network and rates decide nothing here. */
static void write_cluster(struct sbp_text *text, int64_t devices, double reserve_bytes)
{
    const int64_t inner = devices < 8 ? devices : 8;
    sbp_text_add(
        text,
        "{\"name\": \"c\", \"levels\": ["
        "{\"name\": \"node\", \"size\": %lld, \"alpha_s\": 1e-5, \"beta_s_per_byte\": 4e-11}, "
        "{\"name\": \"device\", \"size\": %lld, \"alpha_s\": 4e-6, \"beta_s_per_byte\": 4e-12}], "
        "\"device\": {\"memory_bytes\": 1e15, \"reserve_bytes\": %.0f, \"flops\": "
        "{\"fp16\": 3e14, \"bf16\": 3e14, \"fp32\": 2e13}, \"memory_bytes_per_s\": 2e12, "
        "\"host_memory_bytes\": 1e15, \"host_link_bytes_per_s\": 1e10}}",
        (long long)(devices / inner), (long long)inner, reserve_bytes);
}

/* A model's sizes; the caller adds what else its runs have. */
static void write_sizes(struct sbp_text *text, const char *architecture,
                        const struct memory_row *row)
{
    sbp_text_add(text,
                 "{\"name\": \"m\", \"architecture\": \"%s\", \"layers\": %lld, \"hidden\": %lld, "
                 "\"heads\": %lld, \"sequence\": %lld, \"vocab\": %lld, \"global_batch\": %lld, ",
                 architecture, (long long)row->layers, (long long)row->hidden,
                 (long long)row->heads, (long long)row->sequence, (long long)row->vocabulary,
                 (long long)row->global_batch);
}

static bool has_note(const struct memory_row *row, const char *text)
{
    return strstr(row->note, text) != NULL;
}

static double most(const struct memory_row *row, const struct memory_answer *answer)
{
    (void)row;
    return memory_most_bytes(answer);
}

/* ---- BigScience ----------------------------------------------------------------------------- */

static void bigscience_ask(const struct memory_row *row, double reserve_bytes,
                           struct memory_case *question)
{
    const bool bf16 = strcmp(row->precision, "bf16") == 0;
    const bool zero = strcmp(row->shard, "zero1") == 0;
    *question = (struct memory_case){.tensor = row->tensor, .context = 1, .vocabulary_split = true};
    struct memory_row sizes = *row;
    if (sizes.heads == 0)
        sizes.heads = 96;
    write_sizes(&question->model, "gpt", &sizes);
    sbp_text_add(&question->model,
                 "\"precision\": {\"param\": \"%s\", \"master\": \"fp32\", \"accumulate\": \"%s\", "
                 "\"loss\": \"fp32\"}, \"clip_norm\": 1}",
                 bf16 ? "bf16" : "fp16", bf16 ? "fp32" : "fp16");
    write_cluster(&question->cluster, row->devices, reserve_bytes);
    sbp_text_add(
        &question->parallel,
        "{\"pipeline\": %lld, \"micro_batch\": %lld, \"schedule\": \"1f1b\", \"zero\": %d, "
        "\"recompute\": \"full\", \"keep_sent\": true}",
        (long long)row->pipeline, (long long)(row->micro_batch * row->data), zero ? 1 : 0);
}

/* ---- Myelin --------------------------------------------------------------------------------- */

/* Checkpoints every 2 layers: the factor of the stage's 2 next to the root of 48 (section V.A). */
static void myelin_ask(const struct memory_row *row, double reserve_bytes,
                       struct memory_case *question)
{
    const bool offload = strstr(row->shard, "offload") != NULL;
    *question = (struct memory_case){.tensor = 1, .context = 1, .vocabulary_split = true};
    write_sizes(&question->model, "gpt", row);
    sbp_text_add(&question->model,
                 "\"precision\": {\"param\": \"fp16\", \"master\": \"fp32\", \"loss\": \"fp32\"}}");
    write_cluster(&question->cluster, row->devices, reserve_bytes);
    sbp_text_add(&question->parallel,
                 "{\"pipeline\": %lld, \"micro_batch\": %lld, \"schedule\": \"message-driven\", "
                 "\"recompute\": \"full\", \"recompute_every\": 2, \"offload\": %s, "
                 "\"bucket_parameters\": 16000000}",
                 (long long)row->pipeline, (long long)(row->micro_batch * row->data),
                 offload ? "true" : "false");
}

/* Adds up the bytes of all devices. */
static double myelin_answer(const struct memory_row *row, const struct memory_answer *answer)
{
    double bytes = 0;
    for (int s = 0; s < answer->stages; s++)
        bytes += answer->stage[s].device_bytes;
    return bytes * (double)row->data;
}

/* ---- torchtitan ----------------------------------------------------------------------------- */

/* "cp=4" in the notes. */
static int64_t context_of(const struct memory_row *row)
{
    const char *at = strstr(row->note, "cp=");
    int64_t ways = 1;
    return at != NULL && sbp_parse_int64(at + 3, &ways) ? ways : 1;
}

static void llama_sizes(int64_t hidden, int64_t *kv_heads, int64_t *ffn)
{
    *kv_heads = 8;
    *ffn = hidden == 4096 ? 14336 : hidden == 8192 ? 28672 : 53248;
}

/* With pipeline stages weights stay whole between micro-batches and their gradients are summed
 * whole: ZeRO 1 of fp32 states. Micro-batches of a pipeline are as many as stages, virtual ones
 * included (the trainer's default). */
static void torchtitan_ask(const struct memory_row *row, double reserve_bytes,
                           struct memory_case *question)
{
    int64_t kv_heads, ffn;
    const bool fused = strncmp(row->id, "torchtitan_h200", 15) == 0;
    const bool interleaved = has_note(row, "Interleaved");
    const int64_t context = context_of(row), chunks = interleaved ? 2 : 1;
    const int64_t micro = row->micro_batch / row->pipeline;
    const bool selective = strncmp(row->recompute, "selective", 9) == 0;
    llama_sizes(row->hidden, &kv_heads, &ffn);
    *question = (struct memory_case){.tensor = row->tensor,
                                     .context = context,
                                     .sequence_parallel = true,
                                     .vocabulary_split = true};
    write_sizes(&question->model, "llama", row);
    sbp_text_add(&question->model,
                 "\"kv_heads\": %lld, \"ffn\": %lld, \"attention\": \"flash\", \"precision\": {%s, "
                 "\"activation\": \"bf16\", \"loss\": \"%s\"}, \"clip_norm\": 1}",
                 (long long)kv_heads, (long long)ffn,
                 row->pipeline > 1 ? "\"param\": \"bf16\", \"master\": \"fp32\", \"grad\": \"fp32\""
                                   : "\"param\": \"fp32\", \"compute\": \"bf16\"",
                 fused ? "bf16" : "fp32");
    write_cluster(&question->cluster, row->devices, reserve_bytes);
    sbp_text_add(&question->parallel,
                 "{\"pipeline\": %lld, \"chunks\": %lld, \"micro_batch\": %lld, \"schedule\": "
                 "\"%s\", \"zero\": %d, \"recompute\": \"%s\"%s, \"gather_blocks\": true, "
                 "\"keep_sent\": true}",
                 (long long)row->pipeline, (long long)chunks, (long long)(micro * row->data),
                 interleaved ? "interleaved" : "1f1b", row->pipeline > 1 ? 1 : 3,
                 selective ? "selective" : "full", selective ? ", \"recompute_every\": 2" : "");
}

/* ---- Galvatron ------------------------------------------------------------------------------ */

static void galvatron_ask(const struct memory_row *row, double reserve_bytes,
                          struct memory_case *question)
{
    const bool checkpoint = strcmp(row->recompute, "ckpt") == 0;
    *question = (struct memory_case){.tensor = row->tensor,
                                     .context = 1,
                                     .sequence_parallel = true,
                                     .vocabulary_split = strstr(row->id, "_vtp_") != NULL};
    write_sizes(&question->model, "llama", row);
    sbp_text_add(
        &question->model,
        "\"ffn\": 11008, \"attention\": \"materialised\", \"precision\": {\"param\": \"fp32\", "
        "\"compute\": \"bf16\", \"activation\": \"bf16\", \"loss\": \"fp32\"}, \"clip_norm\": 1}");
    write_cluster(&question->cluster, row->devices, reserve_bytes);
    sbp_text_add(
        &question->parallel,
        "{\"pipeline\": %lld, \"micro_batch\": %lld, \"schedule\": \"gpipe\", \"zero\": 3, "
        "\"recompute\": \"%s\", \"regather\": true, \"gather_blocks\": true, \"keep_sent\": true}",
        (long long)row->pipeline, (long long)row->global_batch, checkpoint ? "full" : "none");
}

/* Ranks 0 and 7 are in the first and the last stage. */
static const struct memory_stage *galvatron_stage(const struct memory_row *row,
                                                  const struct memory_answer *answer)
{
    return &answer->stage[strstr(row->id, "_r0_") != NULL ? 0 : answer->stages - 1];
}

static double galvatron_states(const struct memory_row *row, const struct memory_answer *answer)
{
    const struct memory_stage *stage = galvatron_stage(row, answer);
    return stage->state_bytes + stage->gathered_bytes;
}

static double galvatron_kept(const struct memory_row *row, const struct memory_answer *answer)
{
    return galvatron_stage(row, answer)->kept_bytes;
}

static double galvatron_peak(const struct memory_row *row, const struct memory_answer *answer)
{
    return galvatron_stage(row, answer)->live_bytes;
}

/* ---- OneFlow -------------------------------------------------------------------------------- */

/* Oneflow-Inc/DLPerf, OneFlow/LanguageModeling/GPT/README.md at 087255c: memory column. */
struct oneflow_run {
    const char *id;
    int64_t data, tensor, pipeline, micro_batch, global_batch, hidden, layers, heads, mib;
};
static const struct oneflow_run ONEFLOW[] = {
    {"DP_1x1x1_2_1536x16", 1, 1, 1, 2, 2, 1536, 16, 16, 11066},
    {"DP_8x1x1_16_1536x16", 8, 1, 1, 2, 16, 1536, 16, 16, 12404},
    {"DP_16x1x1_32_1536x16", 16, 1, 1, 2, 32, 1536, 16, 16, 12200},
    {"DP_32x1x1_64_1536x16", 32, 1, 1, 2, 64, 1536, 16, 16, 12208},
    {"MP_1x1x1_8_768x12", 1, 1, 1, 8, 8, 768, 12, 12, 7416},
    {"MP_1x8x1_16_1536x16", 1, 8, 1, 16, 16, 1536, 16, 16, 6264},
    {"MP_1x16x1_16_3072x16", 1, 16, 1, 16, 16, 3072, 16, 32, 8678},
    {"MP_1x32x1_16_3072x32", 1, 32, 1, 16, 16, 3072, 32, 32, 11256},
    {"2D_2x4x1_16_1536x16", 2, 4, 1, 8, 16, 1536, 16, 16, 6366},
    {"2D_4x2x1_16_1536x16", 4, 2, 1, 4, 16, 1536, 16, 16, 7368},
    {"2D_2x8x1_16_2304x24", 2, 8, 1, 8, 16, 2304, 24, 24, 6998},
    {"2D_4x8x1_32_2304x24", 4, 8, 1, 8, 32, 2304, 24, 24, 6996},
    {"DP_PP_8x1x4_512_1536x16", 8, 1, 4, 2, 512, 1536, 16, 16, 8712},
    {"MP_PP_1x8x4_512_2304x24", 1, 8, 4, 16, 512, 2304, 24, 24, 15670},
    {"2D_PP_2x4x4_512_2304x24", 2, 4, 4, 8, 512, 2304, 24, 24, 11958},
    {"2D_PP_2x8x2_512_2304x24", 2, 8, 2, 8, 512, 2304, 24, 24, 10708},
};
#define ONEFLOW_RUNS ((int)(sizeof ONEFLOW / sizeof *ONEFLOW))

int memory_runs_oneflow(struct memory_row *rows)
{
    for (int i = 0; rows != NULL && i < ONEFLOW_RUNS; i++) {
        const struct oneflow_run *run = &ONEFLOW[i];
        rows[i] = (struct memory_row){.layers = run->layers,
                                      .hidden = run->hidden,
                                      .heads = run->heads,
                                      .vocabulary = 50688, /* 50257 padded to 128 x 4 */
                                      .sequence = 2048,
                                      .devices = run->data * run->tensor * run->pipeline,
                                      .tensor = run->tensor,
                                      .pipeline = run->pipeline,
                                      .data = run->data,
                                      .micro_batch = run->micro_batch,
                                      .global_batch = run->global_batch,
                                      .bytes = (double)run->mib * MIB,
                                      .measured = true};
        (void)snprintf(rows[i].id, sizeof rows[i].id, "oneflow_%s", run->id);
    }
    return ONEFLOW_RUNS;
}

/* fp32 variables, computed with in fp16; every block is formed again (checkpoint_activations). */
static void oneflow_ask(const struct memory_row *row, double reserve_bytes,
                        struct memory_case *question)
{
    *question = (struct memory_case){.tensor = row->tensor, .context = 1, .vocabulary_split = true};
    write_sizes(&question->model, "gpt", row);
    sbp_text_add(&question->model,
                 "\"dropout\": 0.1, \"attention_dropout\": 0.1, \"precision\": {\"param\": "
                 "\"fp32\", \"compute\": \"fp16\", \"activation\": \"fp16\"}, \"clip_norm\": 1}");
    write_cluster(&question->cluster, row->devices, reserve_bytes);
    sbp_text_add(&question->parallel,
                 "{\"pipeline\": %lld, \"micro_batch\": %lld, \"schedule\": \"%s\", "
                 "\"pipeline_limit\": %lld, \"recompute\": \"full\"}",
                 (long long)row->pipeline, (long long)(row->micro_batch * row->data),
                 row->pipeline > 1 ? "message-driven" : "1f1b",
                 row->pipeline > 1 ? (long long)(2 * row->pipeline) : 0LL);
}

/* ---- the groups ----------------------------------------------------------------------------- */

const struct memory_group memory_groups[] = {
    {.name = "BigScience",
     .title = "BigScience, Megatron-DeepSpeed",
     .prefix = "bigscience_",
     .suffix = "",
     .text =
         "GPT of 18 to 206 G parameters on A100-80GB; `nvidia-smi`'s most, first and last "
         "stages. Modelled: ZeRO 1 with\nfp16 parameters and gradients and 16 bytes a parameter "
         "in shards; under bf16, fp32 sums of gradients\nbesides (DeepSpeed's BF16_Optimizer); "
         "every block formed again; 1F1B; a tied table of 250,880 rows on\nthe first and the last "
         "stage, split by tensor parallelism; a residual stream that every device holds whole;\n"
         "what a stage sent, kept until the micro-batch comes back; a loss in fp32. 96 heads where "
         "none are stated. Reserve:\n9 GB (CUDA context 1.3 to 1.6, buckets, NCCL, what the "
         "allocator holds besides), for all rows. The run out of\nmemory that fits, "
         "bigscience_142, has as many parameters a device as bigscience_136, which took 67 GB.",
     .unit = "GB",
     .unit_bytes = 1e9,
     .digits = 1,
     .reserve_bytes = 9e9,
     .limit_bytes = 80e9,
     .mean_bound = 0.06,
     .worst_bound = 0.15,
     .out_of_memory_bound = 0.8,
     .ask = bigscience_ask,
     .answer = most},
    {.name = "torchtitan",
     .title = "torchtitan, FSDP2",
     .prefix = "torchtitan_",
     .suffix = "",
     .text =
         "Llama 3.1 of 8, 70 and 405 G parameters on H100 and H200; most bytes reserved by "
         "PyTorch's allocator.\nModelled: fp32 states in shards, bf16 copies gathered by the block "
         "(with stages: bf16 copies and fp32 sums of\ngradients held whole); sequence parallelism; "
         "keys and values gathered over context axes; flash attention;\nselective recompute (what "
         "attention and every second product left) or full; as many micro-batches as\nstages; the "
         "loss in fp32 (compiled, in bf16, in the H200 runs). fp8 products keep what bf16 ones do. "
         "Reserve:\n11 GiB (blocks that the allocator caches, weights gathered ahead, buffers of "
         "reduce-scatters), for all rows.",
     .unit = "GiB",
     .unit_bytes = GIB,
     .digits = 1,
     .reserve_bytes = 11 * GIB,
     .limit_bytes = 95 * GIB,
     .mean_bound = 0.07,
     .worst_bound = 0.17,
     .ask = torchtitan_ask,
     .answer = most},
    {.name = "Galvatron, states",
     .title = "Galvatron, model states",
     .prefix = "galvatron_",
     .suffix = "_ms",
     .text =
         "Slices of Llama 2 7B on 8 devices; bytes allocated after the backward pass (profiler of "
         "Hetu-Galvatron).\nModelled: ZeRO 3 of fp32 parameters, gradients and moments, and one "
         "buffer of the size of a gathered\nactivation, which Megatron keeps. No reserve: the "
         "allocator's own count.",
     .unit = "MiB",
     .unit_bytes = MIB,
     .digits = 0,
     .mean_bound = 0.07,
     .worst_bound = 0.15,
     .ask = galvatron_ask,
     .answer = galvatron_states},
    {.name = "Galvatron, activations",
     .title = "Galvatron, activations",
     .prefix = "galvatron_",
     .suffix = "_act",
     .text = "The same runs: bytes allocated in the forward pass of all micro-batches (GPipe). "
             "Modelled: what backward\nreads, probabilities of attention included; inputs of "
             "columns kept split by sequence.",
     .unit = "MiB",
     .unit_bytes = MIB,
     .digits = 0,
     .mean_bound = 0.09,
     .worst_bound = 0.2,
     .ask = galvatron_ask,
     .answer = galvatron_kept},
    {.name = "Galvatron, peak",
     .title = "Galvatron, peak of activations",
     .prefix = "galvatron_",
     .suffix = "_act_peak",
     .text = "The same runs: most bytes allocated during the backward pass, less those after it. "
             "Modelled: most that lives\nat once beside the states, whatever the layout; gradients "
             "in shards count as states all the time. A model of one\nlayer has no block that "
             "repeats: nothing of it is formed again, hence the two runs that are 40 % too low.",
     .unit = "MiB",
     .unit_bytes = MIB,
     .digits = 0,
     .mean_bound = 0.12,
     .worst_bound = 0.45,
     .ask = galvatron_ask,
     .answer = galvatron_peak},
    {.name = "OneFlow, one stage",
     .title = "OneFlow, one stage",
     .prefix = "oneflow_",
     .suffix = "",
     .text = "GPT of DLPerf on V100-16GB; memory of a device by `nvidia-smi` "
             "(Oneflow-Inc/DLPerf, OneFlow/LanguageModeling/GPT,\nREADME at 087255c). Modelled: "
             "fp32 variables computed with in fp16, Adam, every block formed again, "
             "materialised\nattention with dropout. Reserve: 1900 MiB, for all rows.",
     .unit = "MiB",
     .unit_bytes = MIB,
     .digits = 0,
     .reserve_bytes = 1900 * MIB,
     .mean_bound = 0.08,
     .worst_bound = 0.15,
     .stages = MEMORY_ONE_STAGE,
     .ask = oneflow_ask,
     .answer = most},
    {.name = "OneFlow, pipelines",
     .title = "OneFlow, pipelines",
     .prefix = "oneflow_",
     .suffix = "",
     .text = "The same table's runs of several stages, 2x4x4 with 11,838 to 11,958 MiB among them. "
             "Modelled besides: as many\nmicro-batches in flight as OneFlow's compiler gives "
             "buffers to, twice the stages, on every stage. It stays\ntoo low by 2 to 3 GB: "
             "registers that its actors hold for more than one micro-batch are not modelled.",
     .unit = "MiB",
     .unit_bytes = MIB,
     .digits = 0,
     .reserve_bytes = 1900 * MIB,
     .mean_bound = 0.3,
     .worst_bound = 0.35,
     .stages = MEMORY_MORE_STAGES,
     .ask = oneflow_ask,
     .answer = most},
    {.name = "Myelin",
     .title = "Myelin, all devices together",
     .prefix = "myelin_mem_",
     .suffix = "",
     .text = "12 G parameters on 48 V100, without and with optimizer states in host memory "
             "(section V.B). Modelled: 20 bytes a\nparameter, or 4 and a bucket of 16 M "
             "parameters; a checkpoint every 2 layers; message-driven stages. No reserve.",
     .unit = "GB",
     .unit_bytes = 1e9,
     .digits = 2,
     .mean_bound = 0.06,
     .worst_bound = 0.08,
     .ask = myelin_ask,
     .answer = myelin_answer},
};
const int memory_group_count = (int)(sizeof memory_groups / sizeof *memory_groups);

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool memory_group_has(const struct memory_group *group, const struct memory_row *row)
{
    const size_t length = strlen(row->id), tail = strlen(group->suffix);
    if (group->stages != MEMORY_ALL_STAGES &&
        (row->pipeline > 1) != (group->stages == MEMORY_MORE_STAGES))
        return false;
    return begins_with(row->id, group->prefix) && length >= tail &&
           strcmp(row->id + length - tail, group->suffix) == 0;
}

const char *memory_row_unused(const struct memory_row *row)
{
    static const struct {
        const char *prefix, *why;
    } reasons[] = {
        {"cdp_vit", "batch size not stated"},
        {"bs_104b", "data-parallel ways not stated"},
        {"bs_200b", "layout not stated"},
        {"bs_52b", "layers and hidden size not stated"},
        {"tr8_32n", "its authors mark it as misconfigured"},
        {"metis_", "sizes of the model not stated"},
    };
    if (!row->measured)
        return "computed by its authors, not measured";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (begins_with(row->id, reasons[i].prefix))
            return reasons[i].why;
    return NULL;
}

double memory_run_predict(const struct memory_group *group, const struct memory_row *row)
{
    struct memory_case question;
    struct memory_answer answer;
    group->ask(row, group->reserve_bytes, &question);
    memory_predict(&question, &answer);
    memory_case_free(&question);
    return group->answer(row, &answer);
}
