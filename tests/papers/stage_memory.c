#include "tests/papers/stage_memory.h"

#include "costmodel/program/program.h"
#include "costmodel/program/stages.h"

#define MOST_TENSORS 4096

static struct sbp_parallel parallel_of(const struct sbp_graph *graph,
                                       const struct pipeline_setting *setting)
{
    struct sbp_parallel parallel = sbp_parallel_default(graph);
    parallel.pipeline = setting->inter;
    parallel.micro_batch = setting->micro_batch;
    parallel.schedule = setting->schedule;
    parallel.recompute = SBP_RECOMPUTE_FULL;
    parallel.recompute_every = setting->every;
    parallel.offload = setting->offload;
    parallel.bucket_parameters = setting->bucket;
    return parallel;
}

static struct stage_memory compile(const struct sbp_graph *graph, const struct sbp_scope *scope,
                                   int in_flight)
{
    const struct sbp_cluster cluster = setting_cluster(1);
    const struct sbp_mesh mesh = setting_mesh(&cluster);
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_program program;
    struct stage_memory memory = {0};
    sbp_arena_init(&arena);
    setting_must(sbp_strategy_alloc(graph, &arena, &strategy), &diag);
    setting_must(sbp_strategy_close(graph, &mesh, &strategy, &diag), &diag);
    setting_must(
        sbp_program_make_scope(graph, &cluster, &mesh, &strategy, &bytes, scope, &program, &diag),
        &diag);
    const struct sbp_totals t = sbp_program_totals(&program, &cluster);
    for (int i = 0; i < graph->tensor_count; i++)
        if (program.weight_buffer[i] >= 0)
            memory.parameters += (double)sbp_graph_tensor_parameters(&graph->tensor[i]);
    memory.state_bytes = (double)(t.weight_bytes + t.gradient_bytes + t.master_bytes +
                                  t.moment_bytes + t.bucket_bytes);
    memory.kept_bytes = (double)program.kept_bytes;
    memory.activation_bytes =
        (double)t.activation_bytes + (in_flight - 1) * (double)program.kept_bytes;
    sbp_program_free(&program);
    sbp_arena_free(&arena);
    return memory;
}

struct stage_memory stage_memory_of(const struct pipeline_setting *setting, int stage,
                                    int in_flight)
{
    static int holders[MOST_TENSORS];
    int first[PIPELINE_MOST_STAGES + 1];
    const struct sbp_cluster whole = setting_cluster(setting->inter);
    struct sbp_diag diag = {{0}};
    struct setting_model model;
    setting_gpt_read(&model, &setting->model, setting->batch / setting->data);
    setting_must(sbp_graph_set_micro_batch(&model.graph, setting->micro_batch, &diag), &diag);
    const struct sbp_parallel parallel = parallel_of(&model.graph, setting);
    setting_must(sbp_stages_cut(&model.graph, setting->inter, SBP_CUT_BLOCKS, first, &diag), &diag);
    setting_must(sbp_stages_holders(&model.graph, setting->inter, setting->inter, first, holders),
                 &diag);
    const struct sbp_scope scope = {.first_op = first[stage],
                                    .end_op = first[stage + 1],
                                    .micro_batches =
                                        sbp_parallel_micro_batches(&parallel, &model.graph),
                                    .parallel = &parallel,
                                    .whole = &whole,
                                    .holders = holders};
    const struct stage_memory memory = compile(&model.graph, &scope, in_flight);
    setting_model_drop(&model);
    return memory;
}
