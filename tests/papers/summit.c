#include "tests/papers/summit.h"

#include <math.h>
#include <stdio.h>

#include "costmodel/program/step.h"
#include "tests/papers/memory_strategy.h"

#define NODE_GPUS   6
#define SOCKET_GPUS 3
#define BUCKET      (INT64_C(16) << 20)
#define CHUNK       4 /* buckets of an all-reduce: best in section V.C, with 2 */

/* The level of summit-v100 that links of a group belong to: nodes, sockets, GPUs. */
enum { NODE, SOCKET, GPU };

static struct sbp_level level_of(const struct sbp_cluster *summit, const char *name, int size,
                                 int link, double shared)
{
    struct sbp_level level = summit->level[link];
    (void)snprintf(level.name, sizeof level.name, "%s", name);
    level.size = size;
    level.beta_s_per_byte *= fmax(1, shared);
    level.ports = 0;
    return level;
}

/* Devices of a layer: within a socket; within a node, where a ring's hops between sockets are the
 * slower to begin and NVLink is the narrower; or on several nodes, whose rings have all ports. */
static struct sbp_level tensor_level(const struct sbp_cluster *summit, int intra)
{
    const bool nodes = intra > NODE_GPUS, socket = SOCKET_GPUS % intra == 0;
    struct sbp_level level = level_of(summit, "layer", intra, nodes ? NODE : GPU, 1);
    if (!nodes && !socket)
        level.alpha_s = summit->level[SOCKET].alpha_s;
    return level;
}

/* Groups of replicas have as many members a node as replicas begin there; the other groups of the
 * node share its ports. */
static double replicas_share(const struct sbp_cluster *summit, const struct summit_grid *grid)
{
    const int replica = grid->intra * grid->inter;
    const double members = replica < NODE_GPUS ? (double)NODE_GPUS / replica : 1;
    return NODE_GPUS / members / summit->level[NODE].ports;
}

void summit_cluster(const struct summit_grid *grid, struct sbp_cluster *cluster)
{
    struct sbp_cluster summit;
    setting_cluster_named("summit-v100", &summit);
    *cluster = summit;
    cluster->level_count = 0;
    const bool within = grid->intra * grid->inter <= NODE_GPUS;
    cluster->level[cluster->level_count++] =
        level_of(&summit, "stage", grid->inter, within ? SOCKET : NODE, 1);
    cluster->level[cluster->level_count++] =
        level_of(&summit, "replica", grid->data, NODE, replicas_share(&summit, grid));
    if (grid->intra > 1)
        cluster->level[cluster->level_count++] = tensor_level(&summit, grid->intra);
}

/* "ac ... the factor of N / G_inter closest to sqrt(N)" (section V.A). */
static int checkpoint_factor(int layers, int inter)
{
    const int blocks = layers / inter;
    int best = 1;
    for (int factor = 1; factor <= blocks; factor++)
        if (blocks % factor == 0 && fabs(factor - sqrt(layers)) < fabs(best - sqrt(layers)))
            best = factor;
    return best;
}

static struct sbp_parallel parallel_of(const struct summit_setting *setting,
                                       const struct summit_grid *grid,
                                       const struct sbp_graph *graph)
{
    struct sbp_parallel parallel = sbp_parallel_default(graph);
    parallel.pipeline = grid->inter;
    parallel.micro_batch = (int64_t)grid->micro_batch * grid->data;
    parallel.schedule = SBP_ONE_F_ONE_B;
    parallel.recompute = SBP_RECOMPUTE_FULL;
    if (setting->framework == SUMMIT_DEEPSPEED) {
        parallel.zero = 1;
        parallel.keep_sent = true;
    }
    if (setting->framework != SUMMIT_MYELIN)
        return parallel;
    parallel.schedule = SBP_MESSAGE_DRIVEN;
    parallel.recompute_every = checkpoint_factor(setting->model.layers, grid->inter);
    parallel.offload = true;
    parallel.bucket_parameters = BUCKET;
    parallel.chunk_factor = CHUNK;
    return parallel;
}

static bool divides(const struct summit_setting *setting, const struct summit_grid *grid)
{
    const bool placed = NODE_GPUS % grid->intra == 0 || grid->intra % NODE_GPUS == 0;
    return placed && setting->model.layers % grid->inter == 0 &&
           setting->model.heads % grid->intra == 0 &&
           setting->batch % (grid->data * grid->micro_batch) == 0;
}

/* The vocabulary is padded to what the ways divide, as Megatron does. */
static void read_model(const struct summit_setting *setting, const struct summit_grid *grid,
                       struct setting_model *model)
{
    setting_model_read(model,
                       "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": %d, "
                       "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"vocab\": %d, "
                       "\"vocab_multiple\": %d, \"global_batch\": %d, \"precision\": \"mixed\"}",
                       setting->model.layers, setting->model.hidden, setting->model.heads,
                       SETTING_GPT_SEQUENCE, SETTING_GPT_VOCAB, 128 * grid->intra, setting->batch);
}

static void make_step(const struct summit_setting *setting, const struct summit_grid *grid,
                      struct setting_model *model, struct summit_price *price)
{
    const struct memory_case layout = {
        .tensor = grid->intra, .context = 1, .vocabulary_split = true};
    struct sbp_diag diag = {{0}};
    struct sbp_cluster cluster, stage;
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_step step;
    int level;
    sbp_arena_init(&arena);
    summit_cluster(grid, &cluster);
    cluster.reserve_bytes = setting->reserve_bytes;
    setting_cluster_efficiency(setting->efficiency, &cluster);
    const struct sbp_parallel parallel = parallel_of(setting, grid, &model->graph);
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&model->graph.precision);
    setting_must(sbp_parallel_check(&parallel, &model->graph, &cluster, &diag), &diag);
    setting_must(sbp_parallel_stage_cluster(&parallel, &cluster, &stage, &level, &diag), &diag);
    const struct sbp_mesh mesh = setting_mesh(&stage);
    setting_must(sbp_graph_set_micro_batch(&model->graph, parallel.micro_batch, &diag), &diag);
    setting_must(sbp_strategy_alloc(&model->graph, &arena, &strategy), &diag);
    memory_strategy_fill(&model->graph, &mesh, &layout, &strategy);
    setting_must(sbp_strategy_close(&model->graph, &mesh, &strategy, &diag), &diag);
    const struct sbp_step_request request = {.graph = &model->graph,
                                             .cluster = &cluster,
                                             .parallel = &parallel,
                                             .strategy = &strategy,
                                             .bytes = &bytes};
    setting_must(sbp_step_make(&request, &step, &diag), &diag);
    *price = (struct summit_price){.legal = true,
                                   .fits = step.totals.fits_device && step.totals.fits_host,
                                   .step_s = step.totals.step_s,
                                   .bubble_s = step.totals.bubble_s,
                                   .exposed_s = step.totals.exposed_s,
                                   .device_bytes = (double)step.totals.device_bytes};
    sbp_step_free(&step);
    sbp_arena_free(&arena);
}

struct summit_price summit_price(const struct summit_setting *setting,
                                 const struct summit_grid *grid)
{
    struct summit_price price = {0};
    struct setting_model model;
    if (!divides(setting, grid))
        return price;
    read_model(setting, grid, &model);
    make_step(setting, grid, &model, &price);
    setting_model_drop(&model);
    return price;
}
