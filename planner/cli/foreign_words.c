#include "planner/cli/foreign_words.h"

#include <ctype.h>
#include <string.h>

/* Words in lower case, with blanks around each and '_' for '-'. */
static const struct {
    const char *words, *advice;
} rows[] = {
    {" tensor tp tp_size tensor_parallel tensor_parallel_size tensor_model_parallel_size ",
     "tensor parallelism is searched; --pp N --tp N fixes its degree in search and price, --fix "
     "LAYER=column:N,... one layer"},
    {" data dp dp_size ddp data_parallel data_parallel_size replicas ",
     "data parallelism is searched; --pp N --dp N fixes its degree in search and price, --fix "
     "LAYER=batch:N,... one layer"},
    {" pp pp_size pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size stages "
     "pipeline_stages ",
     "stages are --pp N, or --set pipeline=N"},
    {" sp sequence_parallel sequence_parallelism ",
     "how tokens are split between layers is searched; --pp N --tp N --sequence-parallel splits "
     "them in search and price"},
    {" cp cp_size context_parallel context_parallel_size ulysses ring_attention ",
     "context parallelism is searched as a role of attention; --pp N --cp N fixes its degree"},
    {" ep ep_size expert_parallel expert_parallel_size expert_model_parallel_size ",
     "expert parallelism is searched as a role of the experts; --pp N --ep N fixes its degree"},
    {" fsdp fsdp2 hsdp full_shard zero3 zero_3 deepspeed sharding ",
     "FSDP shards as ZeRO 3 does: --set zero=3, or --space zero-3, which adds data parallelism "
     "alone"},
    {" zero1 zero_1 zero2 zero_2 zero_stage distributed_optimizer use_distributed_optimizer ",
     "ZeRO levels are --set zero=1, 2 or 3; the distributed optimizer of Megatron-LM is 1"},
    {" batch batch_size gbs global_batch_size train_batch_size ",
     "the batch is --set global_batch=N, in sequences a step"},
    {" mbs micro_batch_size microbatch microbatch_size ubs ",
     "a micro-batch is --set micro_batch_per_replica=N, or micro_batch=N of all replicas together"},
    {" seq seqlen seq_len seq_length sequence_length context_length max_length block_size ",
     "the length is --set sequence=N, in tokens"},
    {" dtype torch_dtype amp ", "types are --set precision=bf16, fp16, fp8, mixed or fp32"},
    {" bf16 fp16 fp32 mixed_precision ",
     "types are --set precision=bf16, fp16, fp8, mixed or fp32"},
    {" checkpoint checkpointing activation_checkpointing gradient_checkpointing "
     "recompute_granularity remat ",
     "activations are formed again by --set recompute=full, selective or attention"},
    {" nodes num_nodes nnodes hosts ",
     "nodes are the size of a level: --set cluster.levels[0].size=N is the outermost; --devices N "
     "takes fewer"},
    {" gpus num_gpus ngpus world_size gpus_per_node devices_per_node nproc_per_node ",
     "devices are the product of the sizes of the levels, --set cluster.levels[0].size=N the "
     "outermost; --devices N takes fewer"},
    {" mem memory gpu_memory hbm max_memory ",
     "memory of a device is --set cluster.device.memory_bytes=80G, or --memory-limit"},
    {" bandwidth bw nvlink ",
     "links are --set cluster.levels[0].beta_s_per_byte=X, seconds a byte, 0 the outermost level"},
    {" latency alpha ",
     "latency is --set cluster.levels[0].alpha_s=X, seconds, 0 the outermost level"},
    {" reserve reserve_bytes ", "the reserve is --set cluster.device.reserve_bytes=6G"},
    {" kernel_launch_s kernel_launch launch ",
     "the launch of a kernel is --set cluster.device.kernel_launch_s=X"},
    {" gemm efficiency gemm_efficiency mfu ",
     "the share of the peak that products reach is the cluster's, a list of shapes: --set "
     "cluster.device.gemm='[{\"m\": 4096, \"n\": 4096, \"k\": 4096, \"efficiency\": 0.6}]'"},
    {" overlap prefetch trainer framework ",
     "what the trainer overlaps is --runtime NAME, as sbplan list runtimes shows; of gradients "
     "alone --set gradient_overlap=0..1"},
};

#define LONGEST_WORD 48

const char *sbp_foreign_words_advice(const char *word, size_t length)
{
    char key[LONGEST_WORD + 3] = " ";
    size_t used = 1;
    for (; length > 0 && *word == '-'; length--)
        word++;
    if (length == 0 || length > LONGEST_WORD || memchr(word, ' ', length) != NULL)
        return NULL;
    for (size_t i = 0; i < length; i++)
        key[used++] = (char)(word[i] == '-' ? '_' : tolower((unsigned char)word[i]));
    key[used] = ' ';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(rows[i].words, key) != NULL)
            return rows[i].advice;
    return NULL;
}
