/* How long searches take, and how that grows with devices, layers and levels: runs the program
 * itself on GPT-3 175B and on chains of different linear layers, and writes tables and plots.
 *
 * Usage: bench_scale SBPLAN [-o FOLDER] [--time-limit S] [gpt3 | devices | layers | levels]...
 * Ends with 1 when a program crashes, takes over LIMIT_S or gives an answer that is none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math/random.h"
#include "tests/bench/answer.h"
#include "tests/bench/inputs.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/papers/plot.h"

#define LIMIT_S 60.0 /* no search may take longer */
#define MODEL   "gpt3-175b"
#define CLUSTER "dgx-a100-8x8"

enum { RUNS = 3, BATCH = 4096, CHAIN_DEVICES = 64, MOST_POINTS = 16, MOST_OPTIONS = 6 };

struct bench {
    struct report_arguments arguments;
    struct inputs inputs;
    struct sbp_text page;
    char gpt3[INPUTS_PATH_BYTES]; /* the model */
    int broken;
};

/* A search and what it took; diag says why it is broken. */
struct run {
    bool good;
    double wall_s, cpu_s, peak_mib;
    struct answer answer;
    struct sbp_diag diag;
};

/* Points of a curve: sizes and seconds of the searches that were good. */
struct curve {
    int count;
    double x[MOST_POINTS], y[MOST_POINTS];
};

/* ---- searching ------------------------------------------------------------------------------ */

/* option: (up to MOST_OPTIONS) more words of the search, ended by NULL. */
static struct run search(struct bench *bench, const char *model, const char *cluster,
                         int64_t devices, const char *const *option)
{
    const char *words[8 + MOST_OPTIONS] = {bench->arguments.program, "search", model, cluster,
                                           "--json"};
    struct run run = {0};
    struct measured measured;
    int count = 5;
    while (*option != NULL)
        words[count++] = *option++;
    if (bench->arguments.time_limit != NULL) {
        words[count++] = "--time-limit";
        words[count++] = bench->arguments.time_limit;
    }
    enum sbp_status status = measure_run(words, LIMIT_S, &measured, &run.diag);
    if (status == SBP_OK)
        status = answer_read(&measured, devices, BATCH, &run.answer, &run.diag);
    run.good = status == SBP_OK;
    run.wall_s = measured.wall_s;
    run.cpu_s = measured.cpu_s;
    run.peak_mib = (double)measured.peak_bytes / (1 << 20);
    bench->broken += !run.good;
    measure_free(&measured);
    return run;
}

static struct run fail(struct bench *bench, const struct sbp_diag *diag)
{
    bench->broken++;
    return (struct run){.diag = *diag};
}

/* GPT-3 on a cluster of so many levels. */
static struct run search_gpt3(struct bench *bench, const int64_t *sizes, int levels,
                              const char *option, const char *value)
{
    struct sbp_diag diag = {{0}};
    char cluster[INPUTS_PATH_BYTES];
    int64_t devices = 1;
    for (int i = 0; i < levels; i++)
        devices *= sizes[i];
    if (inputs_cluster(&bench->inputs, CLUSTER, sizes, levels, cluster, &diag) != SBP_OK)
        return fail(bench, &diag);
    return search(bench, bench->gpt3, cluster, devices, (const char *[]){option, value, NULL});
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Ends a row whose first cells are there already, and shows it. */
static void end_row(struct bench *bench, const char *label, const struct run *run)
{
    char verdict[32], step[32] = "";
    if (run->answer.has_plan)
        (void)sbp_format_seconds(run->answer.step_s, step);
    (void)answer_verdict(&run->answer, verdict);
    if (run->good)
        sbp_text_add(&bench->page, "%s | %s | %s |", verdict, step, run->answer.plan);
    else
        sbp_text_add(&bench->page, "broken | | %.160s |", run->diag.text);
    sbp_text_add(&bench->page, " %.3f | %.3f | %.0f |\n", run->wall_s, run->cpu_s, run->peak_mib);
    (void)printf("%-28s %7.3f s (%7.3f s of processor) %6.0f MiB  %s\n", label, run->wall_s,
                 run->cpu_s, run->peak_mib, run->good ? verdict : run->diag.text);
    (void)fflush(stdout);
}

static void open_table(struct bench *bench, const char *first)
{
    sbp_text_add(&bench->page,
                 "| %s | answer | step | plan | wall (s) | processor (s) | memory (MiB) |\n"
                 "| --- | --- | --- | --- | --- | --- | --- |\n",
                 first);
}

static void add_point(struct curve *curve, double x, const struct run *run)
{
    if (!run->good || curve->count == MOST_POINTS)
        return;
    curve->x[curve->count] = x;
    curve->y[curve->count++] = run->wall_s;
}

/* ---- GPT-3 ---------------------------------------------------------------------------------- */

static const char peer[] =
    "Beside it Calculon (calculon-ai/calculon, commit caa4b11), which searches the same model, "
    "with a\n"
    "batch of one sequence a device, one strategy for all layers and neither embedding nor head, "
    "on\n"
    "the same kind of machine with two worker processes:\n\n"
    "| devices | configurations | wall (s) | best step |\n| --- | --- | --- | --- |\n"
    "| 64 | 88,484 | 690 | 11.41 s |\n| 512 | 166,012 | 644 | 11.83 s |\n"
    "| 4,096 | 177,804 | 672 | 11.83 s |\n\n";

static void bench_gpt3(struct bench *bench)
{
    static const int64_t nodes[] = {512, 2048};
    sbp_text_add(&bench->page, "## GPT-3 175B, three runs each\n\n");
    open_table(bench, "nodes x devices");
    for (int i = 0; i < 2 * RUNS; i++) {
        const int64_t sizes[] = {nodes[i / RUNS], 8};
        char label[64];
        const struct run run = search_gpt3(bench, sizes, 2, NULL, NULL);
        (void)snprintf(label, sizeof label, "%" PRId64 " x 8", sizes[0]);
        sbp_text_add(&bench->page, "| %s | ", label);
        end_row(bench, label, &run);
    }
    sbp_text_add(&bench->page, "\n%s", peer);
}

/* ---- growth --------------------------------------------------------------------------------- */

static void draw(struct bench *bench, const char *name, const struct plot *plot)
{
    struct sbp_text svg = {0};
    plot_write(plot, &svg);
    bench->broken += !report_write(&bench->arguments, name, &svg);
    sbp_text_free(&svg);
    sbp_text_add(&bench->page, "\n![%s](%s)\n\n", plot->title, name);
}

static const struct plot_axis seconds = {"search (s)", 0.001, 100, 10, true};

static void bench_devices(struct bench *bench)
{
    struct curve curve = {0};
    sbp_text_add(&bench->page, "## Growth with devices\n\nGPT-3 175B on nodes of 8 devices.\n\n");
    open_table(bench, "devices");
    for (int64_t nodes = 1; nodes <= 2048; nodes *= 2) {
        const int64_t sizes[] = {nodes, 8};
        char label[64];
        const struct run run = search_gpt3(bench, sizes, 2, NULL, NULL);
        (void)snprintf(label, sizeof label, "%" PRId64 " devices", 8 * nodes);
        sbp_text_add(&bench->page, "| %" PRId64 " | ", 8 * nodes);
        end_row(bench, label, &run);
        add_point(&curve, (double)(8 * nodes), &run);
    }
    const struct plot_series series = {"GPT-3 175B", curve.count, curve.x, curve.y, 0, false, true};
    draw(bench, "scale-devices.svg",
         &(struct plot){"Time of a search against devices",
                        {"devices", 8, 16384, 4, true},
                        seconds,
                        1,
                        &series});
}

/* Layers of different sizes, seeded: widths are multiples of 64, so that every split divides. */
static bool make_chain(struct bench *bench, int layers, char *path, struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    struct sbp_random random;
    char name[64];
    sbp_random_seed(&random, 0);
    sbp_text_add(&text,
                 "{\"name\": \"chain-%d\", \"global_batch\": %d, \"precision\": \"mixed\",\n"
                 " \"layers\": [\n",
                 layers, BATCH);
    int64_t in = 1024;
    for (int i = 0; i < layers; i++) {
        const int64_t out = 64 * (4 + (int64_t)sbp_random_below(&random, 21));
        sbp_text_add(&text,
                     "  {\"op\": \"linear\", \"name\": \"fc%d\", \"in\": %" PRId64
                     ", \"out\": %" PRId64 "}%s\n",
                     i, in, out, i + 1 < layers ? "," : "");
        in = out;
    }
    sbp_text_add(&text, " ]}\n");
    (void)snprintf(name, sizeof name, "chain-%d.json", layers);
    const bool good = inputs_write(&bench->inputs, name, &text, path, diag) == SBP_OK;
    sbp_text_free(&text);
    return good;
}

/* Free, then with three fifths of the memory that the free plan takes. */
static void bench_chain(struct bench *bench, int layers, struct curve *curves)
{
    static const int64_t sizes[] = {CHAIN_DEVICES / 8, 8};
    struct sbp_diag diag = {{0}};
    char model[INPUTS_PATH_BYTES], cluster[INPUTS_PATH_BYTES], label[64], limit[32];
    const char *options[MOST_OPTIONS + 1] = {"--set", "pipeline=1", "--set", "micro_batch=4096",
                                             NULL,    limit};
    struct run run;
    if (!make_chain(bench, layers, model, &diag) ||
        inputs_cluster(&bench->inputs, CLUSTER, sizes, 2, cluster, &diag) != SBP_OK)
        run = fail(bench, &diag);
    else
        run = search(bench, model, cluster, CHAIN_DEVICES, options);
    (void)snprintf(label, sizeof label, "%d different, free", layers);
    sbp_text_add(&bench->page, "| %s | ", label);
    end_row(bench, label, &run);
    add_point(&curves[0], layers, &run);
    if (!run.good || !run.answer.has_plan)
        return;
    const int64_t used = run.answer.device_bytes - run.answer.reserve_bytes;
    (void)snprintf(limit, sizeof limit, "%" PRId64, run.answer.reserve_bytes + used / 5 * 3);
    options[4] = "--memory-limit";
    run = search(bench, model, cluster, CHAIN_DEVICES, options);
    (void)snprintf(label, sizeof label, "%d different, 3/5 of it", layers);
    sbp_text_add(&bench->page, "| %s | ", label);
    end_row(bench, label, &run);
    add_point(&curves[1], layers, &run);
}

static void bench_layers(struct bench *bench)
{
    static const int lengths[] = {10, 30, 100, 300, 1000};
    static const int64_t sizes[] = {64, 8};
    struct curve curve[3] = {{0}};
    sbp_text_add(
        &bench->page,
        "## Growth with layers\n\nGPT-3 175B with other numbers of blocks, which share their "
        "strategies, on 64 x 8 devices; chains of\nlinear layers of different sizes on "
        "8 x 8 in one stage and one micro-batch, with all their memory and with three fifths of "
        "what "
        "the plan then takes beside the trainer's reserve.\n\n");
    open_table(bench, "layers");
    for (int layers = 12; layers <= 384; layers *= 2) {
        char label[64], option[32];
        (void)snprintf(option, sizeof option, "layers=%d", layers);
        const struct run run = search_gpt3(bench, sizes, 2, "--set", option);
        (void)snprintf(label, sizeof label, "%d blocks alike", layers);
        sbp_text_add(&bench->page, "| %s | ", label);
        end_row(bench, label, &run);
        add_point(&curve[2], layers, &run);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        bench_chain(bench, lengths[i], curve);
    const struct plot_series series[] = {
        {"chain, free", curve[0].count, curve[0].x, curve[0].y, 0, false, true},
        {"chain, memory binds", curve[1].count, curve[1].x, curve[1].y, 1, false, true},
        {"GPT-3, blocks alike", curve[2].count, curve[2].x, curve[2].y, 2, true, true}};
    draw(
        bench, "scale-layers.svg",
        &(struct plot){
            "Time of a search against layers", {"layers", 10, 1000, 10, true}, seconds, 3, series});
}

static void bench_levels(struct bench *bench)
{
    static const struct {
        const char *label;
        int count;
        int64_t size[4];
    } clusters[] = {{"4096", 1, {4096}},
                    {"512 x 8", 2, {512, 8}},
                    {"64 x 8 x 8", 3, {64, 8, 8}},
                    {"8 x 8 x 8 x 8", 4, {8, 8, 8, 8}}};
    sbp_text_add(&bench->page,
                 "## Growth with levels\n\nGPT-3 175B on 4,096 devices. Each level further out has "
                 "twice the latency and half the bandwidth.\n\n");
    open_table(bench, "levels");
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        const struct run run = search_gpt3(bench, clusters[i].size, clusters[i].count, NULL, NULL);
        sbp_text_add(&bench->page, "| %s | ", clusters[i].label);
        end_row(bench, clusters[i].label, &run);
    }
    sbp_text_add(&bench->page, "\n");
}

/* ---- all ------------------------------------------------------------------------------------ */

static void add_head(struct bench *bench)
{
    sbp_text_add(&bench->page,
                 "# Times of searches against sizes\n\nMade by `./dev bench scale` of ");
    report_add_machine(&bench->page);
    sbp_text_add(
        &bench->page,
        ".\nEach row is one run of `sbplan search MODEL CLUSTER --json`, from reading "
        "the files to the priced plan,\none process on one core: its wall time, its processor time "
        "and the most memory that was resident.\nGPT-3 175B is `configs/models/" MODEL
        ".json` with a global batch of %d sequences; clusters are\n`" CLUSTER
        "` with other level sizes. The answer is `optimal`, or how far the plan is above\nthe "
        "proven bound at most; a star says that this holds among common roles and rests, else it "
        "holds\nover every role of every operator (docs/search.md).\n\n",
        BATCH);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct bench *bench);
    } parts[] = {{"gpt3", bench_gpt3},
                 {"devices", bench_devices},
                 {"layers", bench_layers},
                 {"levels", bench_levels}};
    static struct bench bench;
    struct sbp_diag diag = {{0}};
    if (!report_read_arguments(argc, argv, &bench.arguments))
        return 2;
    enum sbp_status status = inputs_open(&bench.inputs, &diag);
    if (status == SBP_OK)
        status = inputs_model(&bench.inputs, MODEL, BATCH, 0, bench.gpt3, &diag);
    if (status != SBP_OK) {
        (void)fprintf(stderr, "bench_scale: %s\n", diag.text);
        return 2;
    }
    add_head(&bench);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (report_wants(&bench.arguments, parts[i].name))
            parts[i].run(&bench);
    const bool written = report_write(&bench.arguments, "scale.md", &bench.page);
    inputs_close(&bench.inputs);
    sbp_text_free(&bench.page);
    return bench.broken > 0 || !written;
}
