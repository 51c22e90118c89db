/* AutoDDL, section 4.4.2: how volume and memory of a matrix product fall with the devices, for
 * one linear layer of n x n weights on n rows of input, compiled and priced by the cost model.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/program/price.h"
#include "tests/papers/paper.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"

#define SIDE        INT64_C(32768) /* n */
#define ELEMENT     4.0            /* bytes */
#define MOST_POINTS 6

/* One method on growing device counts; volume and memory of a device and step, in n^2 elements. */
struct curve {
    const char *name;
    int ways;   /* dimensions of the grid: p = side^ways */
    bool rings; /* a group of g sends (g-1)/g of what it passes; else all of it */
    int count;
    double devices[MOST_POINTS], volume[MOST_POINTS], memory[MOST_POINTS];
    double volume_exponent, scaled_exponent, memory_exponent;
};

static double in_squares(double elements)
{
    return elements / ((double)SIDE * (double)SIDE);
}

/* One layer whose input comes out of an earlier layer; plain SGD. */
static void model_read(struct setting_model *model, const char *op)
{
    setting_model_read(model,
                       "{\"name\": \"product\", \"global_batch\": %lld, \"input\": "
                       "{\"features\": %lld, \"split\": true}, \"optimizer\": \"sgd\", "
                       "\"layers\": [{\"op\": \"%s\", \"name\": \"product\", \"out\": %lld}]}",
                       (long long)SIDE, (long long)SIDE, op, (long long)SIDE);
}

/* Mesh axes in turn: the first share of them splits rows (batch), then columns, then the sum. */
static void set_roles(const struct sbp_graph *graph, const struct sbp_mesh *mesh, int ways,
                      struct sbp_strategy *strategy)
{
    static const char *const names[] = {"batch", "column", "row"};
    const struct sbp_op_node *node = &graph->op[0];
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const int way = axis / (mesh->axis_count / ways);
        strategy->op[0].role[axis] = (uint8_t)sbp_op_role(node->entry, names[way]);
        const struct sbp_state rest =
            way == 0 ? SBP_STATE_S(SBP_DIM_BATCH) : SBP_STATE_S(SBP_DIM_FEATURE);
        strategy->rest[graph->input].axis[axis] = rest;
        strategy->rest[node->output].axis[axis] = rest;
    }
}

static void measure(const struct setting_model *model, int64_t devices, struct curve *curve)
{
    const struct sbp_cluster cluster = setting_cluster(devices);
    const struct sbp_mesh mesh = setting_mesh(&cluster);
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&model->graph.precision);
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena;
    struct sbp_strategy strategy;
    struct sbp_program program;
    sbp_arena_init(&arena);
    setting_must(sbp_strategy_alloc(&model->graph, &arena, &strategy), &diag);
    set_roles(&model->graph, &mesh, curve->ways, &strategy);
    setting_must(sbp_strategy_close(&model->graph, &mesh, &strategy, &diag), &diag);
    setting_must(
        sbp_program_make(&model->graph, &cluster, &mesh, &strategy, &bytes, &program, &diag),
        &diag);
    const struct sbp_totals totals = sbp_program_totals(&program, &cluster);
    curve->volume[curve->count] = in_squares(totals.communication_bytes / ELEMENT);
    curve->memory[curve->count] = in_squares((double)totals.device_bytes / ELEMENT);
    sbp_program_free(&program);
    sbp_arena_free(&arena);
}

static double block(const double size[SBP_MAX_DIMS])
{
    return size[0] * size[1] * size[2] * size[3];
}

/* SUMMA has an operator of its own; its panels are collectives inside it. */
static void measure_summa(const struct setting_model *model, int64_t devices, struct curve *curve)
{
    const struct sbp_graph *graph = &model->graph;
    const struct sbp_op_entry *entry = graph->op[0].entry;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    struct sbp_factor factor = sbp_op_factor_one();
    const double side = sqrt((double)devices);
    factor.of[sbp_op_role(entry, "grid_row")] = side;
    factor.of[sbp_op_role(entry, "grid_column")] = side;

    double volume = 0, scratch = 0;
    const int count = sbp_op_inner(graph, 0, &factor, inner);
    for (int i = 0; i < count; i++)
        volume += inner[i].count * sbp_collective_share(inner[i].kind, side) * inner[i].elements;
    for (int pass = 0; pass < SBP_PASSES; pass++)
        scratch = fmax(scratch, sbp_op_scratch_elements(graph, 0, &factor, (enum sbp_pass)pass));
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, 0, &factor);
    const double held = block(sizes.input[0]) + block(sizes.weight[0]) + block(sizes.output);
    curve->volume[curve->count] = in_squares(volume);
    curve->memory[curve->count] = in_squares(scratch + 2 * held); /* gradients are as large */
}

/* Slope of log y over log x, least squares. */
static double exponent_of(int count, const double *x, const double *y)
{
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; i++) {
        const double u = log(x[i]), v = log(y[i]);
        sx += u;
        sy += v;
        sxx += u * u;
        sxy += u * v;
    }
    return (count * sxy - sx * sy) / (count * sxx - sx * sx);
}

static void fit(struct curve *curve)
{
    double scaled[MOST_POINTS];
    for (int i = 0; i < curve->count; i++) {
        const double side = pow(curve->devices[i], 1.0 / curve->ways);
        scaled[i] = curve->volume[i] / (curve->rings ? 1 - 1 / side : 1);
    }
    curve->volume_exponent = exponent_of(curve->count, curve->devices, curve->volume);
    curve->scaled_exponent = exponent_of(curve->count, curve->devices, scaled);
    curve->memory_exponent = exponent_of(curve->count, curve->devices, curve->memory);
}

static void sweep(const struct setting_model *model, struct curve *curve, int64_t first,
                  int64_t factor,
                  void (*method)(const struct setting_model *, int64_t, struct curve *))
{
    for (int64_t p = first; p <= 32768; p *= factor) {
        curve->devices[curve->count] = (double)p;
        method(model, p, curve);
        curve->count++;
    }
    fit(curve);
}

/* Returns the least that any method sends, in n^2 elements. A device forms n^3/p products of each
 * of Y = XW, dX = dY W' and dW = X' dY. By Loomis and Whitney the elements that it touches obey
 * xwy, gwa, xgb >= (n^3/p)^2 (g = dY, a = dX, b = dW); their sum is least at x = w = g = 2y = 2a =
 * 2b, where it is 9 / 4^(1/3) (n^3/p)^(2/3). The device holds 6 n^2/p of them itself when each
 * matrix exists once. */
static double least_volume(double devices)
{
    return 9 / cbrt(4) / pow(devices, 2.0 / 3) - 6 / devices;
}

static void say_points(struct paper *paper, const struct curve *curve)
{
    for (int i = 0; i < curve->count; i++)
        paper_say(paper, "| %s | %.0f | %.5f | %.7g | %.5f | %.5f | %.7g |\n", curve->name,
                  curve->devices[i], curve->volume[i],
                  curve->volume[i] * pow(curve->devices[i], curve->ways == 3 ? 2.0 / 3 : 0.5),
                  least_volume(curve->devices[i]), curve->memory[i],
                  curve->memory[i] * pow(curve->devices[i], curve->ways == 3 ? 2.0 / 3 : 0.5));
}

/* The grids' closed formulas; q = side of the grid. 64-byte rounding of buffers is far below. */
static void hold_points(struct paper *paper, const struct curve *cube, const struct curve *grid,
                        const struct curve *summa)
{
    for (int i = 0; i < cube->count; i++) {
        const double q = cbrt(cube->devices[i]);
        paper_equal(paper, "3D: volume", cube->volume[i], 6 * (1 - 1 / q) / (q * q), 1e-12);
        paper_equal(paper, "3D: memory", cube->memory[i], (6 + 1 / q) / (q * q), 1e-9);
        paper_within(paper, "3D: volume over the bound", cube->volume[i],
                     least_volume(cube->devices[i]), 1.2 * least_volume(cube->devices[i]));
    }
    for (int i = 0; i < grid->count; i++) {
        const double q = sqrt(grid->devices[i]);
        paper_equal(paper, "2D: volume", grid->volume[i], 4 * (1 - 1 / q) / q, 1e-12);
        paper_equal(paper, "2D: memory", grid->memory[i], (5 + 2 / q) / q, 1e-9);
        paper_equal(paper, "SUMMA: volume", summa->volume[i], 6 / q, 1e-12);
        paper_equal(paper, "SUMMA: memory", summa->memory[i], 8 / (q * q), 1e-12);
        paper_true(paper, "2D: over the bound",
                   fmin(grid->volume[i], summa->volume[i]) > least_volume(grid->devices[i]));
    }
}

static void table_points(struct paper *paper, const struct curve *cube, const struct curve *grid,
                         const struct curve *summa)
{
    paper_say(paper,
              "One linear layer, n x n weights on n rows, n = %lld, forward and backward, plain "
              "SGD. 3D: roles batch, column and\nrow of p^(1/3) devices each; 2D: batch and column "
              "of p^(1/2), as in Megatron; both compiled by\n`sbp_program_make`, volume and memory "
              "from `sbp_program_totals`. SUMMA: `summa_linear` on p^(1/2) x p^(1/2),\nby "
              "`sbp_op_inner`, `sbp_op_sizes` and `sbp_op_scratch_elements`. In n^2 elements, a "
              "device; scaled: times\np^(2/3) for 3D, p^(1/2) for 2D and SUMMA.\n\n",
              (long long)SIDE);
    paper_table(paper, "| method | devices p | sent | scaled | lower bound | memory | scaled |");
    say_points(paper, cube);
    say_points(paper, grid);
    say_points(paper, summa);
    paper_say(
        paper,
        "\nThe lower bound is for all three products together: each device forms n^3/p terms "
        "of each, and the elements\nthat it must touch for that (Loomis and Whitney's "
        "inequality, as in Irony, Toledo and Tiskin 2004) are at least\n9/4^(1/3) "
        "(n^3/p)^(2/3), of which 6 n^2/p lie with it when every matrix exists once. The paper "
        "cites Scquizzato\nand Silvestri for its order. 3D stays within %.1f %% of it at "
        "32768 devices.\n\n",
        100 * (cube->volume[cube->count - 1] / least_volume(32768) - 1));
}

static void say_exponent(struct paper *paper, const char *what, const char *theirs, double expected,
                         double ours, double tolerance, const char *why)
{
    paper_within(paper, what, ours, expected - tolerance, expected + tolerance);
    paper_say(paper, "| %s | %s | %.4f | %.4f to %.4f | %s |\n", what, theirs, ours,
              expected - tolerance, expected + tolerance, why);
}

static void table_exponents(struct paper *paper, const struct curve *cube, const struct curve *grid,
                            const struct curve *summa)
{
    const char *const share =
        "a ring of g members sends (g-1)/g of what it passes; divided out below";
    const char *const none = "";
    paper_say(paper, "## Exponents of p, fitted\n\n");
    paper_table(paper, "| what | theirs | ours | bound | why they differ |");
    say_exponent(paper, "3D: sent", "-2/3 (section 4.4.2)", -2.0 / 3, cube->volume_exponent, 0.08,
                 share);
    say_exponent(paper, "3D: sent, per (g-1)/g", "-2/3", -2.0 / 3, cube->scaled_exponent, 1e-9,
                 none);
    say_exponent(paper, "3D: memory", "-2/3 (section 4.4.2)", -2.0 / 3, cube->memory_exponent, 0.01,
                 "the resting output, n^2/p, falls faster");
    say_exponent(paper, "2D: sent", "-1/2 (section 1)", -0.5, grid->volume_exponent, 0.04, share);
    say_exponent(paper, "2D: sent, per (g-1)/g", "-1/2", -0.5, grid->scaled_exponent, 1e-9, none);
    say_exponent(paper, "2D: memory", "-1/2 (section 1)", -0.5, grid->memory_exponent, 0.02,
                 "blocks of n^2/p fall faster");
    say_exponent(paper, "SUMMA: sent", "-1/2 (2D, section 5)", -0.5, summa->volume_exponent, 1e-9,
                 none);
    say_exponent(paper, "SUMMA: memory", "-", -1, summa->memory_exponent, 0.02,
                 "all operands are split p ways: \"it can alleviate the memory issues better\" "
                 "(section 5.2.3)");
    paper_say(paper, "\n");
}

static void draw(struct paper *paper, const struct curve *cube, const struct curve *grid,
                 const struct curve *summa)
{
    double bound[MOST_POINTS];
    for (int i = 0; i < cube->count; i++)
        bound[i] = least_volume(cube->devices[i]);
    const struct plot_series sent[] = {
        {"SUMMA", summa->count, summa->devices, summa->volume, 2, false, true},
        {"2D (Megatron)", grid->count, grid->devices, grid->volume, 1, false, true},
        {"3D (AutoDDL)", cube->count, cube->devices, cube->volume, 0, false, true},
        {"lower bound", cube->count, cube->devices, bound, 4, true, false},
    };
    const struct plot_series held[] = {
        {"2D (Megatron)", grid->count, grid->devices, grid->memory, 1, false, true},
        {"3D (AutoDDL)", cube->count, cube->devices, cube->memory, 0, false, true},
        {"SUMMA", summa->count, summa->devices, summa->memory, 2, false, true},
    };
    const struct plot_axis devices = {"devices", 8, 32768, 8, true};
    const struct plot volume = {
        "Sent by a device in a step", devices, {"elements / n²", 0.001, 10, 10, true}, 4, sent};
    const struct plot memory = {
        "Memory of a device", devices, {"elements / n²", 0.0001, 10, 10, true}, 3, held};
    plot_write(&volume, paper_picture(paper, "autoddl-sent", "volume over devices"));
    plot_write(&memory, paper_picture(paper, "autoddl-memory", "memory over devices"));
}

int main(int argc, char **argv)
{
    struct paper paper;
    struct setting_model linear, grids;
    struct curve cube = {.name = "3D", .ways = 3, .rings = true},
                 grid = {.name = "2D", .ways = 2, .rings = true};
    struct curve summa = {.name = "SUMMA", .ways = 2};
    paper_open(&paper, "autoddl", "AutoDDL: volume and memory of a matrix product");
    model_read(&linear, "linear");
    model_read(&grids, "summa_linear");
    sweep(&linear, &cube, 8, 8, measure);
    sweep(&linear, &grid, 16, 4, measure);
    sweep(&grids, &summa, 16, 4, measure_summa);
    setting_model_drop(&linear);
    setting_model_drop(&grids);

    table_exponents(&paper, &cube, &grid, &summa);
    paper_say(&paper, "## Points\n\n");
    table_points(&paper, &cube, &grid, &summa);
    draw(&paper, &cube, &grid, &summa);
    hold_points(&paper, &cube, &grid, &summa);
    return paper_close(&paper, argc, argv);
}
