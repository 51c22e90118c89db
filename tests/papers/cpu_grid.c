#include "tests/papers/cpu_grid.h"

#include "tests/papers/memory_strategy.h"

enum { THEIR_HIDDEN = 4512, THEIR_BYTES = 2, BUCKET = 1 << 14, CHUNK = 4 };
static const double THEIR_FLOPS = 0.55 * 1.25e14; /* results/myelin.md, fitted to figure 6 */
static const double FLOPS_OF_MEMORY = 5; /* a rank's products beside a byte that it streams */
static const double WORDS = 3e11;

const char *const cpu_grid_names[SUMMIT_FRAMEWORKS] = {"Myelin", "DeepSpeed", "Megatron-LM"};

static void read_model(const struct cpu_grid_setting *setting, struct setting_model *model)
{
    setting_model_read(model,
                       "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": %d, "
                       "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"vocab\": %d, "
                       "\"vocab_multiple\": %d, \"tied\": false, \"dropout\": 0, "
                       "\"global_batch\": %d, \"optimizer\": %s}",
                       setting->model.layers, setting->model.hidden, setting->model.heads,
                       setting->sequence, setting->vocabulary, setting->vocabulary, setting->batch,
                       setting->optimizer);
}

/* What summit-v100 has, slower: bytes of a layer grow with its width, products with its square; a
 * link's begin takes the time of as large a share of a sequence's activations. */
static void make_cluster(const struct cpu_grid_setting *setting, const struct summit_grid *grid,
                         struct sbp_cluster *cluster)
{
    const double bytes = (double)sbp_program_run_bytes(setting->real).activation / THEIR_BYTES;
    const double width = (double)setting->model.hidden / THEIR_HIDDEN;
    const double slower = THEIR_FLOPS / setting->flops * width / bytes;
    const double smaller = (double)setting->sequence / SETTING_GPT_SEQUENCE * width * bytes;
    summit_cluster(grid, cluster);
    for (int i = 0; i < cluster->level_count; i++) {
        cluster->level[i].alpha_s *= slower * smaller;
        cluster->level[i].beta_s_per_byte *= slower;
    }
    cluster->host_link_bytes_per_s /= slower;
    cluster->flops[SBP_FP32] = setting->flops;
    cluster->flops[SBP_FP64] = setting->flops / 2;
    cluster->memory_bytes_per_s = setting->flops / FLOPS_OF_MEMORY;
}

static struct sbp_parallel parallel_of(const struct cpu_grid_setting *setting,
                                       const struct summit_grid *grid,
                                       const struct sbp_graph *graph)
{
    struct sbp_parallel parallel = sbp_parallel_default(graph);
    parallel.pipeline = grid->inter;
    parallel.micro_batch = (int64_t)grid->micro_batch * grid->data;
    parallel.schedule = setting->framework == SUMMIT_MYELIN ? SBP_MESSAGE_DRIVEN : SBP_ONE_F_ONE_B;
    parallel.zero = setting->framework == SUMMIT_DEEPSPEED ? 1 : 0;
    if (setting->plain)
        return parallel;
    parallel.recompute = SBP_RECOMPUTE_FULL;
    parallel.offload = setting->framework == SUMMIT_MYELIN;
    parallel.bucket_parameters = BUCKET;
    parallel.chunk_factor = parallel.offload ? CHUNK : 0;
    return parallel;
}

static void make_strategy(struct cpu_grid *at, const struct summit_grid *grid,
                          const struct sbp_parallel *parallel)
{
    const struct memory_case layout = {
        .tensor = grid->intra, .context = 1, .vocabulary_split = true};
    struct sbp_diag diag = {{0}};
    struct sbp_cluster stage;
    int level;
    setting_must(sbp_parallel_stage_cluster(parallel, &at->cluster, &stage, &level, &diag), &diag);
    const struct sbp_mesh mesh = setting_mesh(&stage);
    setting_must(sbp_strategy_alloc(&at->model.graph, &at->arena, &at->strategy), &diag);
    memory_strategy_fill(&at->model.graph, &mesh, &layout, &at->strategy);
    setting_must(sbp_strategy_close(&at->model.graph, &mesh, &at->strategy, &diag), &diag);
}

void cpu_grid_open(struct cpu_grid *at, const struct cpu_grid_setting *setting,
                   const struct summit_grid *grid)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(setting->real);
    struct sbp_diag diag = {{0}};
    *at = (struct cpu_grid){.step = {.stages = 0}};
    read_model(setting, &at->model);
    make_cluster(setting, grid, &at->cluster);
    const struct sbp_parallel parallel = parallel_of(setting, grid, &at->model.graph);
    setting_must(sbp_parallel_check(&parallel, &at->model.graph, &at->cluster, &diag), &diag);
    setting_must(sbp_graph_set_micro_batch(&at->model.graph, parallel.micro_batch, &diag), &diag);
    make_strategy(at, grid, &parallel);
    const struct sbp_step_request request = {.graph = &at->model.graph,
                                             .cluster = &at->cluster,
                                             .parallel = &parallel,
                                             .strategy = &at->strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    setting_must(sbp_step_make(&request, &at->step, &diag), &diag);
}

void cpu_grid_close(struct cpu_grid *at)
{
    sbp_step_free(&at->step);
    sbp_arena_free(&at->arena);
    setting_model_drop(&at->model);
}

void cpu_grid_figure_11(enum summit_framework framework, int times, double flops,
                        struct cpu_grid_setting *setting, struct summit_grid *grid)
{
    static const struct summit_grid grids[SUMMIT_FRAMEWORKS] = {
        [SUMMIT_MYELIN] = {.intra = 1, .inter = 6, .data = 2, .micro_batch = 2},
        [SUMMIT_DEEPSPEED] = {.intra = 3, .inter = 2, .data = 2, .micro_batch = 1},
        [SUMMIT_MEGATRON] = {.intra = 3, .inter = 4, .data = 1, .micro_batch = 2}};
    *grid = grids[framework];
    grid->data *= times;
    *setting = (struct cpu_grid_setting){.model = {.layers = 12, .hidden = 48, .heads = 6},
                                         .sequence = 32,
                                         .vocabulary = 192,
                                         .batch = 96 * times,
                                         .optimizer = "\"adamw\"",
                                         .framework = framework,
                                         .real = SBP_F32,
                                         .flops = flops};
}

double cpu_grid_training_s(const struct cpu_grid_setting *setting, double step_s)
{
    return WORDS * step_s / ((double)setting->batch * setting->sequence);
}
