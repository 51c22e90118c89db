#include "tests/papers/memory_plan.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "costmodel/program/step.h"
#include "tests/papers/memory_strategy.h"
#include "tests/papers/setting.h"

/* Everything that a case becomes. */
struct run {
    struct cJSON *model_tree, *cluster_tree, *parallel_tree;
    struct sbp_graph graph;
    struct sbp_cluster cluster, stage;
    struct sbp_parallel parallel;
    struct sbp_mesh mesh;
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_step step;
};

static void read_files(const struct memory_case *question, struct run *run)
{
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0}; /* of no table that is used */
    struct sbp_json at;
    setting_must(sbp_json_parse(question->model.bytes, "model.json", &run->model_tree, &at, &diag),
                 &diag);
    setting_must(sbp_graph_read(&at, &run->graph), &diag);
    setting_must(
        sbp_json_parse(question->cluster.bytes, "cluster.json", &run->cluster_tree, &at, &diag),
        &diag);
    setting_must(sbp_cluster_read(&at, &arena, &run->cluster), &diag);
    sbp_arena_free(&arena);
    setting_must(
        sbp_json_parse(question->parallel.bytes, "parallel", &run->parallel_tree, &at, &diag),
        &diag);
    run->parallel = sbp_parallel_default(&run->graph);
    setting_must(sbp_parallel_read(&at, &run->parallel), &diag);
}

static void make_step(const struct memory_case *question, struct run *run)
{
    struct sbp_diag diag = {{0}};
    int level;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&run->graph.precision);
    setting_must(sbp_parallel_check(&run->parallel, &run->graph, &run->cluster, &diag), &diag);
    setting_must(
        sbp_parallel_stage_cluster(&run->parallel, &run->cluster, &run->stage, &level, &diag),
        &diag);
    setting_must(sbp_mesh_make(&run->stage, &run->mesh, &diag), &diag);
    setting_must(sbp_graph_set_micro_batch(&run->graph, run->parallel.micro_batch, &diag), &diag);
    setting_must(sbp_strategy_alloc(&run->graph, &run->arena, &run->strategy), &diag);
    memory_strategy_fill(&run->graph, &run->mesh, question, &run->strategy);
    setting_must(sbp_strategy_close(&run->graph, &run->mesh, &run->strategy, &diag), &diag);
    const struct sbp_step_request request = {.graph = &run->graph,
                                             .cluster = &run->cluster,
                                             .parallel = &run->parallel,
                                             .strategy = &run->strategy,
                                             .bytes = &bytes};
    setting_must(sbp_step_make(&request, &run->step, &diag), &diag);
}

/* The largest activation that an all-gather leaves. */
static double gathered_bytes(const struct sbp_program *program)
{
    int64_t most = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind != SBP_INSTR_BOX || instr->box.kind != SBP_ALL_GATHER)
            continue;
        const int64_t bytes = sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_OUT]);
        most = bytes > most ? bytes : most;
    }
    return (double)most;
}

static void tell_stage(const struct sbp_step *step, int index, struct memory_stage *stage)
{
    const struct sbp_stage_memory *memory = &step->memory[index];
    const struct sbp_program *program = &step->program[step->program_of[index]];
    *stage = (struct memory_stage){
        .state_bytes = (double)(memory->weight_bytes + memory->gradient_bytes +
                                memory->moment_bytes + memory->master_bytes),
        .gathered_bytes = gathered_bytes(program),
        .kept_bytes = (double)(memory->in_flight * memory->kept_bytes),
        .live_bytes = (double)((memory->in_flight - 1) * memory->kept_bytes) +
                      (double)(program->live_bytes - program->persistent_bytes),
        .device_bytes = (double)memory->device_bytes};
}

void memory_predict(const struct memory_case *question, struct memory_answer *answer)
{
    struct run run = {0};
    read_files(question, &run);
    make_step(question, &run);
    if (run.step.stages > MEMORY_MOST_STAGES)
        abort();
    answer->stages = run.step.stages;
    for (int s = 0; s < run.step.stages; s++)
        tell_stage(&run.step, s, &answer->stage[s]);
    sbp_step_free(&run.step);
    sbp_arena_free(&run.arena);
    sbp_graph_free(&run.graph);
    cJSON_Delete(run.model_tree);
    cJSON_Delete(run.cluster_tree);
    cJSON_Delete(run.parallel_tree);
}

double memory_most_bytes(const struct memory_answer *answer)
{
    double most = 0;
    for (int s = 0; s < answer->stages; s++)
        most = answer->stage[s].device_bytes > most ? answer->stage[s].device_bytes : most;
    return most;
}

void memory_case_free(struct memory_case *question)
{
    sbp_text_free(&question->model);
    sbp_text_free(&question->cluster);
    sbp_text_free(&question->parallel);
}
