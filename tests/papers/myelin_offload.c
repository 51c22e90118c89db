/* Myelin, section V.B, by runs: a GPT trains on CPU ranks with its optimizer states on the device
 * and in host memory; what its arenas hold beside what is predicted. Only bytes are in the file:
 * they are the same on every machine. */
#include "base/text.h"
#include "executor/run/run.h"
#include "tests/papers/paper.h"
#include "tests/papers/setting.h"

enum {
    LAYERS = 8,
    HIDDEN = 256,
    HEADS = 8,
    SEQUENCE = 64,
    VOCABULARY = 4096,
    BATCH = 4,
    STEPS = 2
};

/* A grid of G_inter stages of G_data replicas each. */
struct grid {
    int inter, data;
    int64_t bucket;
    int64_t factor; /* all-reduces of so many buckets beside the optimizer; 0: before it */
};

/* One run: what is predicted and what was held, the most of a stage. */
struct trained {
    struct sbp_stage_memory states; /* of the stage with most parameters */
    int64_t predicted_bytes, predicted_host_bytes;
    int64_t device_bytes, host_bytes; /* measured */
    double loss;                      /* of the last step */
};

static void read_model(struct setting_model *model)
{
    setting_model_read(model,
                       "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": %d, "
                       "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"vocab\": %d, "
                       "\"global_batch\": %d, \"precision\": \"mixed\", \"optimizer\": \"adam\"}",
                       LAYERS, HIDDEN, HEADS, SEQUENCE, VOCABULARY, BATCH);
}

static struct sbp_parallel parallel_of(const struct sbp_graph *graph, const struct grid *grid,
                                       bool offload)
{
    struct sbp_parallel parallel = sbp_parallel_default(graph);
    parallel.pipeline = grid->inter;
    parallel.micro_batch = grid->data; /* a sequence a replica */
    parallel.schedule = SBP_ONE_F_ONE_B;
    parallel.recompute = SBP_RECOMPUTE_FULL;
    parallel.offload = offload;
    parallel.bucket_parameters = grid->bucket;
    parallel.chunk_factor = offload ? grid->factor : 0;
    return parallel;
}

/* Every operator splits the batch over the replicas. */
static void make_step(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                      const struct sbp_parallel *parallel, struct sbp_arena *arena,
                      struct sbp_step *step)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_REAL_BF16);
    struct sbp_cluster stage;
    struct sbp_strategy strategy;
    struct sbp_diag diag = {{0}};
    int level;
    setting_must(sbp_parallel_stage_cluster(parallel, cluster, &stage, &level, &diag), &diag);
    const struct sbp_mesh mesh = setting_mesh(&stage);
    setting_must(sbp_strategy_alloc(graph, arena, &strategy), &diag);
    for (int t = 0; t < graph->tensor_count; t++)
        strategy.rest[t] = sbp_dist_all(SBP_STATE_S(SBP_DIM_BATCH));
    setting_must(sbp_strategy_close(graph, &mesh, &strategy, &diag), &diag);
    const struct sbp_step_request request = {.graph = graph,
                                             .cluster = cluster,
                                             .parallel = parallel,
                                             .strategy = &strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    setting_must(sbp_step_make(&request, step, &diag), &diag);
}

static int largest_stage(const struct sbp_step *step)
{
    int largest = 0;
    for (int stage = 1; stage < step->stages; stage++)
        if (step->memory[stage].parameters > step->memory[largest].parameters)
            largest = stage;
    return largest;
}

static struct trained run(const struct sbp_step *step, const struct sbp_cluster *cluster)
{
    const struct sbp_run_options options = {
        .steps = STEPS, .real = SBP_REAL_BF16, .seed = 1, .backend = "threads", .device = "cpu"};
    struct sbp_run_result result;
    struct sbp_diag diag = {{0}};
    setting_must(sbp_run(step, cluster, &options, &result, &diag), &diag);
    const struct trained trained = {.states = step->memory[largest_stage(step)],
                                    .predicted_bytes = step->totals.device_bytes,
                                    .predicted_host_bytes = step->totals.host_bytes,
                                    .device_bytes = result.high_water_bytes,
                                    .host_bytes = result.host_high_water_bytes,
                                    .loss = result.step[STEPS - 1].loss};
    sbp_run_free(&result);
    return trained;
}

static struct trained train(const struct grid *grid, bool offload)
{
    struct setting_model model;
    struct sbp_arena arena = {0};
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    struct sbp_cluster cluster = setting_cluster((int64_t)grid->inter * grid->data);
    cluster.host_link_bytes_per_s = 1e10;
    read_model(&model);
    setting_must(sbp_graph_set_micro_batch(&model.graph, grid->data, &diag), &diag);
    const struct sbp_parallel parallel = parallel_of(&model.graph, grid, offload);
    make_step(&model.graph, &cluster, &parallel, &arena, &step);
    const struct trained trained = run(&step, &cluster);
    sbp_step_free(&step);
    sbp_arena_free(&arena);
    setting_model_drop(&model);
    return trained;
}

static double state_bytes(const struct sbp_stage_memory *memory)
{
    return (double)(memory->weight_bytes + memory->gradient_bytes + memory->master_bytes +
                    memory->moment_bytes + memory->bucket_bytes);
}

/* A run without and one with: what is measured is what is predicted, and the same is learned. */
static void hold(struct paper *paper, const struct grid *grid, const struct trained *without,
                 const struct trained *with)
{
    const double phi = (double)with->states.parameters, bucket = (double)grid->bucket;
    paper_equal(paper, "measured, without", (double)without->device_bytes,
                (double)without->predicted_bytes, 0);
    paper_equal(paper, "measured, with", (double)with->device_bytes, (double)with->predicted_bytes,
                0);
    paper_equal(paper, "host memory", (double)with->host_bytes, (double)with->predicted_host_bytes,
                0);
    paper_equal(paper, "host memory, 12 phi", (double)with->host_bytes, 12 * phi, 0);
    paper_equal(paper, "20 phi", state_bytes(&without->states), 20 * phi, 1e-3);
    paper_equal(paper, "4 phi + 16 bsize", state_bytes(&with->states), 4 * phi + 16 * bucket, 1e-3);
    paper_true(paper, "the same loss", with->loss == without->loss);
}

static void row(struct paper *paper, const struct grid *grid)
{
    const struct trained without = train(grid, false), with = train(grid, true);
    char text[8][32];
    hold(paper, grid, &without, &with);
    paper_say(paper, "| %d x %d | %s | %lld | %s | %s | %.2f | %s | %s | %s | %s | %.2f | %s |\n",
              grid->inter, grid->data, sbp_format_bytes((double)grid->bucket * 16, text[0]),
              (long long)grid->factor, sbp_format_bytes(state_bytes(&without.states), text[1]),
              sbp_format_bytes(state_bytes(&with.states), text[2]),
              state_bytes(&without.states) / state_bytes(&with.states),
              sbp_format_bytes((double)without.predicted_bytes, text[3]),
              sbp_format_bytes((double)without.device_bytes, text[4]),
              sbp_format_bytes((double)with.predicted_bytes, text[5]),
              sbp_format_bytes((double)with.device_bytes, text[6]),
              (double)without.device_bytes / (double)with.device_bytes,
              sbp_format_bytes((double)with.host_bytes, text[7]));
}

static void rows(struct paper *paper)
{
    static const struct grid grids[] = {{1, 1, 1 << 20, 0}, {1, 1, 1 << 18, 0}, {1, 2, 1 << 18, 4},
                                        {2, 1, 1 << 18, 0}, {2, 2, 1 << 18, 2}, {4, 1, 1 << 18, 0}};
    paper_table(paper,
                "| G_inter x G_data | bucket | k | states | with offload | saved | "
                "device, predicted | measured | with offload, predicted | measured | saved | "
                "host, measured |");
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        row(paper, &grids[i]);
}

int main(int argc, char **argv)
{
    struct paper paper;
    paper_open(&paper, "myelin_offload", "Myelin: optimizer states in host memory, run");
    paper_say(
        &paper,
        "A GPT of %d layers, %d wide, %d words, in bfloat16 with fp32 master copies and Adam, "
        "%d sequences of %d tokens,\nfull recomputing, 1F1B, trains %d steps on CPU ranks "
        "(`sbp_run`, threads), first with all states on the device, then\nwith master copies "
        "and moments in host memory (section V.B). Device: the most of a rank; states and "
        "host: the stage\nwith most parameters. Measured is the end of what a rank has "
        "touched of its arena, and of host memory; both are held\nto the prediction to the "
        "byte, and the loss of the last step to the same bits with and without. k: buckets "
        "of one\nall-reduce beside the optimizer (V.C), 0: none is beside it.\n\n",
        LAYERS, HIDDEN, VOCABULARY, BATCH, SEQUENCE, STEPS);
    rows(&paper);
    paper_say(
        &paper,
        "\nStates are 20 bytes a parameter, and 4 with 16 a parameter of the bucket; theirs "
        "save 5 times with small buckets, and\n4.0 times with activations (520 to 130 GB of 12 "
        "x 10^9 parameters, [myelin.md](myelin.md)). Why ours save less: so small a\nmodel "
        "has more activations beside its states, and a bucket is a larger part of it.\n");
    return paper_close(&paper, argc, argv);
}
