/* Cyclic data parallelism: table 1, and figure 4, the activations of a worker over time. */
#include <math.h>
#include <stdio.h>

#include "tests/papers/cdp_count.h"
#include "tests/papers/paper.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"
#include "tests/papers/worker.h"

/* --- table 1 --- */

/* Theirs as functions of N, in units of B Psi_A, Psi_P and, for volumes, Psi_P and B Psi_A^int. */
struct row {
    const char *name;
    enum sbp_placement placement;
    bool cyclic;
    const char *activations, *parameters, *volume, *steps, *devices; /* as printed */
    const char *why;
};

static const struct row rows[] = {
    {"Single-GPU DP", SBP_PLACE_SINGLE, false, "N", "N", "-", "-", "1", ""},
    {"+ cyclic", SBP_PLACE_SINGLE, true, "(N+1)/2", "(N+1)/2", "-", "-", "1", ""},
    {"Multi-GPU DP", SBP_PLACE_DATA, false, "1", "1", "P", "O(log N)", "N", ""},
    {"+ cyclic", SBP_PLACE_DATA, true, "1", "1", "P", "O(1)", "N", ""},
    {"DP with MP", SBP_PLACE_PYRAMID, false, "1/N", "1/N", "P + A", "O(log N)", "N^2", ""},
    {"+ cyclic", SBP_PLACE_PYRAMID, true, "1/N", "1/N", "P/2 + A", "O(1)", "N (N+1)/2", ""},
    {"PP", SBP_PLACE_PIPELINE, true, "1", "1/N", "A", "O(1)", "N",
     "a stage shared by micro-batches needs a second version of its parameters"},
    {"ZeRO-DP", SBP_PLACE_ZERO, false, "1", "1/N", "P", "O(log N)", "N",
     "parameters travel forward and backward, gradients once: 3 (N-1) for DP's 2 (N-1); the text "
     "grants 1.5"},
    {"+ cyclic", SBP_PLACE_ZERO, true, "1", "1/N", "P", "O(1)", "N",
     "states change hands 2N - 1 times a step, which is P only for large N; and as above, "
     "versions"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static struct sbp_cdp_count count_of(const struct row *row, int n, enum sbp_cdp_rule rule)
{
    const struct sbp_cdp_sizes sizes = {
        .activation_bytes = 1 << 20, .parameter_bytes = 1 << 20, .boundary_bytes = 1 << 20};
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena;
    struct sbp_cdp_count count;
    sbp_arena_init(&arena);
    setting_must(sbp_cdp_count(n, row->placement, row->cyclic, rule, &sizes, &arena, &count, &diag),
                 &diag);
    sbp_arena_free(&arena);
    return count;
}

/* Ours in the table's units. A volume of P is what data parallelism sends, 2 (N - 1) Psi_P; a
 * volume of A is every boundary tensor of a step once forward and once backward. */
struct measured {
    double activations, parameters, parameter_volume, boundary_volume, devices;
    int rounds, versions[2];
};

static struct measured measured_of(const struct row *row, int n)
{
    const struct sbp_cdp_count count = count_of(row, n, SBP_CDP_RULE_V2);
    const double stage = 1 << 20, model = n * stage, boundary = (n - 1) * stage;
    return (struct measured){
        .activations = (double)count.activation_bytes / model,
        .parameters = (double)count.parameter_bytes / model,
        .parameter_volume = (double)count.parameter_sent_bytes / (2 * (n - 1) * model),
        .boundary_volume = (double)count.boundary_sent_bytes / (2 * n * boundary),
        .devices = count.devices,
        .rounds = count.rounds,
        .versions = {count_of(row, n, SBP_CDP_RULE_V1).versions, count.versions},
    };
}

/* Returns the numbers of table 1; the volume of ZeRO uses the text's 1.5. */
static struct measured expected_of(const struct row *row, int n)
{
    const double inverse = 1.0 / n, half = (n + 1) / 2.0;
    const bool cyclic = row->cyclic;
    switch (row->placement) {
    case SBP_PLACE_SINGLE:
        return (struct measured){cyclic ? half : n, cyclic ? half : n, 0, 0, 1, 0, {0, 0}};
    case SBP_PLACE_DATA:
        return (struct measured){1, 1, 1, 0, n, 0, {0, 0}};
    case SBP_PLACE_PYRAMID:
        return (struct measured){inverse, inverse, cyclic ? 0.5 : 1, 1, cyclic ? n * half : n * n,
                                 0,       {0, 0}};
    case SBP_PLACE_PIPELINE:
        return (struct measured){1, inverse, 0, 1, n, 0, {0, 0}};
    default:
        return (struct measured){1, inverse, cyclic ? 1 : 1.5, 0, n, 0, {0, 0}};
    }
}

static void hold_row(struct paper *paper, const struct row *row, int n)
{
    const struct measured ours = measured_of(row, n), theirs = expected_of(row, n);
    const double most_rounds = row->cyclic ? 1 : ceil(log2(n));
    paper_equal(paper, "table 1: activations", ours.activations, theirs.activations, 1e-12);
    paper_equal(paper, "table 1: parameters", ours.parameters, theirs.parameters, 1e-12);
    paper_equal(paper, "table 1: parameter volume", ours.parameter_volume, theirs.parameter_volume,
                1e-12);
    paper_equal(paper, "table 1: boundary volume", ours.boundary_volume, theirs.boundary_volume,
                1e-12);
    paper_equal(paper, "table 1: devices", ours.devices, theirs.devices, 1e-12);
    paper_within(paper, "table 1: rounds", ours.rounds, 0, most_rounds);
}

static void table_1(struct paper *paper)
{
    const int n = 8;
    paper_say(
        paper,
        "## Table 1\n\n"
        "Theirs, in N: activations a GPU in B Psi_A, parameters a GPU in Psi_P, volume with P = "
        "Psi_P and A = B Psi_A^int,\nrounds of messages between two time steps, GPUs. Ours: "
        "`sbp_cdp_count` plays a step of N stages time step by time\nstep and counts; P is "
        "what data parallelism sends in all, 2 (N-1) Psi_P. Printed for N = 8, held for N = 2 "
        "to 32.\n\n");
    paper_table(paper,
                "| implementation | theirs | ours, N = 8: activations | parameters | volume | "
                "rounds | GPUs | versions, v1 / v2 | why they differ |");
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        const struct measured ours = measured_of(row, n);
        for (int k = 2; k <= 32; k++)
            hold_row(paper, row, k);
        paper_say(
            paper,
            "| %s | %s; %s; %s; %s; %s | %g | %g | %.4g P + %.4g A | %d | %g | %d / %d | %s |\n",
            row->name, row->activations, row->parameters, row->volume, row->steps, row->devices,
            ours.activations, ours.parameters, ours.parameter_volume, ours.boundary_volume,
            ours.rounds, ours.devices, ours.versions[0], ours.versions[1], row->why);
    }
    paper_say(paper,
              "\nSection 3.2 says of v2 that no second copy of the parameters is needed; a "
              "micro-batch that went forward on\nthe old version and comes back after the "
              "update needs it. Only replicas that get new parameters in\ntime do without.\n\n");
}

/* --- figure 4 --- */

#define SIZES   3
#define SAMPLES 161
static const int workers[SIZES] = {4, 8, 32};

#define BATCH 32 /* not given; the peaks are near their 3.9 GB with it */
struct subject {
    const char *name, *architecture;
    const char *theirs;           /* at N = 32 */
    double alone_low, alone_high; /* bounds of ours at N = 32 */
    double states_low, states_high;
};
static const struct subject subjects[] = {
    {"ResNet-50", "\"resnet\", \"depth\": 50", "30 %", 0.31, 0.38, 0.28, 0.36},
    {"ViT-B/16", "\"vit\", \"layers\": 12, \"hidden\": 768, \"heads\": 12, \"patch\": 16",
     "42 %; 41 % by its 3.9 and 2.3 GB", 0.47, 0.5, 0.40, 0.44},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };
static struct worker alone[SUBJECTS], with_states[SUBJECTS], elsewhere;

/* Images of ImageNet in single precision, as the paper trains them: SGD with momentum. */
static void subject_read(struct setting_model *model, const struct subject *subject)
{
    setting_model_read(
        model,
        "{\"name\": \"%s\", \"architecture\": %s, \"image\": 224, \"classes\": 1000, "
        "\"global_batch\": %d, \"precision\": \"fp32\", \"optimizer\": {\"name\": "
        "\"sgd\", \"momentum\": 0.9}}",
        subject->name, subject->architecture, BATCH);
}

static double saved(const struct worker *worker, int count)
{
    return 1 - worker_cyclic_peak(worker, count) / worker->peak_bytes;
}

static void table_figure(struct paper *paper)
{
    paper_say(
        paper,
        "## Figure 4: activations of a worker\n\n"
        "Memory saved by N workers that start 1/N of a step apart, over workers that start "
        "together. Ours: bytes from\n`sbp_op_kept`, times from `sbp_price_pass_s` on an "
        "A100 (fp32), batch 32. Peaks in GB. \"With states\": the\npaper says that it subtracts "
        "the parameters; we read that the momentum of SGD stays in its curve, and\ngradients "
        "from their making to the update.\n\n");
    paper_table(paper,
                "| model | N | theirs | ours: peak, DP | peak, CDP | saved | with states: DP "
                "| CDP | saved |");
    for (int i = 0; i < SUBJECTS; i++)
        for (int j = 0; j < SIZES; j++) {
            const int n = workers[j];
            paper_say(paper, "| %s | %d | %s | %.2f | %.2f | %.1f %% | %.2f | %.2f | %.1f %% |\n",
                      subjects[i].name, n, n == 32 ? subjects[i].theirs : "-",
                      alone[i].peak_bytes / 1e9, worker_cyclic_peak(&alone[i], n) / 1e9,
                      100 * saved(&alone[i], n), with_states[i].peak_bytes / 1e9,
                      worker_cyclic_peak(&with_states[i], n) / 1e9,
                      100 * saved(&with_states[i], n));
        }
    for (int i = 0; i < SUBJECTS; i++) {
        paper_within(paper, "figure 4: saved", saved(&alone[i], 32), subjects[i].alone_low,
                     subjects[i].alone_high);
        paper_within(paper, "figure 4: saved, with states", saved(&with_states[i], 32),
                     subjects[i].states_low, subjects[i].states_high);
        paper_true(paper, "figure 4: more workers, more saved",
                   saved(&alone[i], 4) < saved(&alone[i], 8) &&
                       saved(&alone[i], 8) < saved(&alone[i], 32));
    }
    paper_true(paper, "figure 4: the ResNet saves less",
               saved(&alone[0], 32) < saved(&alone[1], 32));
    paper_say(paper, "\n");
}

/* Nothing fitted: the batch at which the peak is 3.9 GB, and what is then held cyclically. */
static void say_gigabytes(struct paper *paper)
{
    const double states = with_states[1].peak_bytes - alone[1].peak_bytes;
    const double scale = (3.9e9 - states) / alone[1].peak_bytes;
    const double rest = worker_cyclic_peak(&with_states[1], 32) - worker_cyclic_peak(&alone[1], 32);
    const double cyclic = (worker_cyclic_peak(&alone[1], 32) * scale + rest) / 1e9;
    paper_within(paper, "ViT-B/16 at a peak of 3.9 GB, cyclic", cyclic, 2.2, 2.4);
    paper_say(
        paper,
        "ViT-B/16 at the batch whose peak is their 3.9 GB, with states: %.2f GB, %.0f %% saved; "
        "theirs is 2.3 GB, 41 %%.\n\nWhy they differ: activations alone save (N-1)/(2N) of a "
        "network whose layers are all alike, 48.4 %% for N = 32,\nwhich ViT-B/16 is but for its "
        "ends. What is not activation dilutes it. The ResNet keeps most bytes in\nits first, "
        "fast layers, so they are held for longer than half of the step's peak would be.\n\n",
        cyclic, 100 * (1 - cyclic / 3.9));
}

static void table_devices(struct paper *paper)
{
    static const struct {
        const char *cluster, *device;
    } machines[] = {{"piz-daint-p100", "P100"}, {"summit-v100", "V100"}, {"dgx-a100-8x8", "A100"}};
    paper_say(paper, "The paper does not name its GPU. Saved by N = 32 on others, activations "
                     "alone:\n\n");
    paper_table(paper, "| model | P100 | V100 | A100 |");
    for (int i = 0; i < SUBJECTS; i++) {
        struct setting_model model;
        subject_read(&model, &subjects[i]);
        paper_say(paper, "| %s |", subjects[i].name);
        for (int k = 0; k < 3; k++) {
            struct sbp_cluster cluster;
            setting_cluster_named(machines[k].cluster, &cluster);
            worker_trace(&model.graph, &cluster, false, &elsewhere);
            paper_within(paper, machines[k].device, saved(&elsewhere, 32), subjects[i].alone_low,
                         subjects[i].alone_high);
            paper_say(paper, " %.1f %% |", 100 * saved(&elsewhere, 32));
        }
        paper_say(paper, "\n");
        setting_model_drop(&model);
    }
    paper_say(paper, "\n");
}

static void table_stages(struct paper *paper)
{
    paper_say(
        paper,
        "## Stages\n\n"
        "The same models cut into N stages and played in the time steps of the schedule "
        "(`sbp_cdp_forward_slot`,\n`sbp_cdp_backward_slot`), where a stage's activations come "
        "and go at once. Equal stages save (N-1)/(2N).\n\n");
    paper_table(paper,
                "| model | N | (N-1)/(2N) | stages of equal time: saved | slowest over mean | "
                "of equal bytes: saved | slowest over mean |");
    for (int i = 0; i < SUBJECTS; i++)
        for (int j = 0; j < SIZES; j++) {
            const int n = workers[j];
            const struct worker_stages by_time = worker_stages(&alone[i], n, false);
            const struct worker_stages by_bytes = worker_stages(&alone[i], n, true);
            const double ideal = (n - 1) / (2.0 * n);
            paper_within(paper, "stages of equal time", 1 - by_time.held_share, 0.2, ideal + 0.05);
            paper_say(paper, "| %s | %d | %.1f %% | %.1f %% | %.2f | %.1f %% | %.2f |\n",
                      subjects[i].name, n, 100 * ideal, 100 * (1 - by_time.held_share),
                      by_time.slowest, 100 * (1 - by_bytes.held_share), by_bytes.slowest);
        }
    paper_say(paper, "\nStages of equal bytes save the half in theory, but a time step lasts as "
                     "long as the slowest stage.\n\n");
}

/* --- pictures --- */

static void draw(struct paper *paper, int at, const char *file, const char *title)
{
    static double x[SAMPLES], together[SAMPLES], cyclic[SIZES][SAMPLES], half[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        x[i] = (double)i / (SAMPLES - 1);
        together[i] = worker_at(&alone[at], x[i]) / 1e9;
        half[i] = alone[at].peak_bytes / 2e9;
        for (int j = 0; j < SIZES; j++)
            cyclic[j][i] = worker_cyclic_at(&alone[at], workers[j], x[i]) / 1e9;
    }
    const struct plot_series series[] = {
        {"DP", SAMPLES, x, together, 1, false, false},
        {"CDP, N = 4", SAMPLES, x, cyclic[0], 2, true, false},
        {"CDP, N = 8", SAMPLES, x, cyclic[1], 3, true, false},
        {"CDP, N = 32", SAMPLES, x, cyclic[2], 0, true, false},
        {"half of DP's peak", SAMPLES, x, half, 4, false, false},
    };
    const struct plot plot = {title,
                              {"time (share of a step)", 0, 1, 0.2, false},
                              {"activations of a worker (GB)", 0, 5, 1, false},
                              5,
                              series};
    plot_write(&plot, paper_picture(paper, file, title));
}

static void trace(void)
{
    struct sbp_cluster cluster;
    setting_cluster_named("dgx-a100-8x8", &cluster);
    for (int i = 0; i < SUBJECTS; i++) {
        struct setting_model model;
        subject_read(&model, &subjects[i]);
        worker_trace(&model.graph, &cluster, false, &alone[i]);
        worker_trace(&model.graph, &cluster, true, &with_states[i]);
        setting_model_drop(&model);
    }
}

int main(int argc, char **argv)
{
    struct paper paper;
    paper_open(&paper, "cdp", "Cyclic data parallelism: costs and activation memory");
    trace();
    table_1(&paper);
    table_figure(&paper);
    say_gigabytes(&paper);
    draw(&paper, 0, "cdp-resnet-50", "ResNet-50, 32 images a worker");
    draw(&paper, 1, "cdp-vit-b-16", "ViT-B/16, 32 images a worker");
    table_devices(&paper);
    table_stages(&paper);
    return paper_close(&paper, argc, argv);
}
