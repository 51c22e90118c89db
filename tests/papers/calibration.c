/* Fits of published logs of collectives: how well they predict sizes and groups that they were not
 * shown, beside other ways to fit, and the paper's own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"
#include "calib/fit/lad.h"
#include "tests/papers/alps_counts.h"
#include "tests/papers/machines.h"
#include "tests/papers/paper.h"
#include "tests/papers/plot.h"
#include "tests/papers/setting.h"

#define MOST_SERIES 128
#define MOST_ERRORS 8192
/* Most mis-ordered pairs: of a machine beyond the falling ones, of all machines together in all. */
#define MOST_MIS_ORDERED 0.03
#define MOST_OFF         0.06 /* of all together */

static char folder[4096]; /* of the logs */

static void must(enum sbp_status status, const struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return;
    (void)fprintf(stderr, "calibration: %s\n", diag->text);
    exit(2);
}

static void fit_files(const char *const *file, bool is_paper, struct sbp_network_fit *fit)
{
    struct sbp_diag diag = {{0}};
    const struct sbp_network_options options = {.is_paper = is_paper};
    must(machine_fit(folder, file, &options, fit, &diag), &diag);
}

/* --- held-out sizes --- */

typedef double predict_fn(const struct sbp_curve_sample *kept, int count, double bytes);

static double interpolated_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    int next = 1;
    while (next < count - 1 && kept[next].bytes < bytes)
        next++;
    const struct sbp_curve_sample *a = &kept[next - 1], *b = &kept[next];
    if (bytes <= a->bytes)
        return a->time_s;
    return a->time_s + (bytes - a->bytes) * (b->time_s - a->time_s) / (b->bytes - a->bytes);
}

/* Errors of held-out sizes: of all points, and the mean of each series. */
struct tally {
    int points, series;
    double off[MOST_ERRORS], mean[MOST_SERIES];
};

static void hold_out(const struct sbp_measured_group *shape, predict_fn *predict,
                     struct tally *tally)
{
    double sum = 0;
    for (int half = 0; half < 2; half++) {
        struct sbp_curve_sample kept[SBP_MOST_CURVE_SAMPLES];
        int count = 0;
        for (int i = half; i < shape->count; i += 2)
            kept[count++] = shape->sample[i];
        for (int i = 1 - half; i < shape->count; i += 2) {
            const double off =
                fabs(predict(kept, count, shape->sample[i].bytes) / shape->sample[i].time_s - 1);
            if (tally->points == MOST_ERRORS || tally->series == MOST_SERIES)
                abort();
            tally->off[tally->points++] = off;
            sum += off;
        }
    }
    tally->mean[tally->series++] = sum / shape->count;
}

/* --- machines --- */

static void share_cell(struct paper *paper, const struct sbp_errors *errors)
{
    if (errors->count == 0)
        paper_say(paper, " - |");
    else
        paper_say(paper, " %.1f %% |", 100 * errors->median);
}

static double curve_s(const void *curve, const struct sbp_measured_group *shape, double bytes)
{
    (void)shape;
    return sbp_network_curve_s(curve, bytes);
}

/* The scatter around any curve: straight lines between neighbours, free to fall. */
static double straight_median(const struct sbp_network_fit *fit)
{
    static struct tally tally;
    tally = (struct tally){.points = 0};
    for (int s = 0; s < fit->shapes.count; s++)
        if (fit->shapes.shape[s].count >= 4)
            hold_out(&fit->shapes.shape[s], interpolated_s, &tally);
    return sbp_median(tally.off, tally.points);
}

/* The shares of pairs of all machines together, each pair of one machine. */
struct pooled_pairs {
    double pairs, mis_ordered, falling;
};

static void pool_pairs(const struct sbp_errors *errors, struct pooled_pairs *pooled)
{
    const double pairs = (double)errors->pairs;
    pooled->pairs += pairs;
    pooled->mis_ordered += pairs * errors->mis_ordered;
    pooled->falling += pairs * errors->falling;
}

/* Groups and curves of all machines, as if they were one's. */
struct pool {
    struct sbp_measured_group shape[SBP_NETWORK_CURVES];
    struct sbp_measured_groups shapes;
    struct sbp_network network; /* without formulas: no group is held out */
    struct pooled_pairs in_sample, held_out_sizes;
};

static void add_to_pool(const struct sbp_network_fit *fit, struct pool *pool)
{
    if (pool->shapes.count + fit->shapes.count > SBP_NETWORK_CURVES)
        abort();
    pool->shapes.shape = pool->shape;
    for (int s = 0; s < fit->shapes.count; s++) {
        pool->shape[pool->shapes.count++] = fit->shapes.shape[s];
        pool->network.curve[pool->network.curve_count++] = fit->network.curve[s];
    }
    pool->shapes.points += fit->shapes.points;
    pool_pairs(&fit->quality.in_sample, &pool->in_sample);
    pool_pairs(&fit->quality.held_out_sizes, &pool->held_out_sizes);
}

static double share_of(double part, const struct pooled_pairs *pooled)
{
    return part / pooled->pairs;
}

static void say_pool(struct paper *paper, struct pool *pool)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_quality quality = {
        .shape = SBP_NEW(&arena, struct sbp_shape_quality, pool->shapes.count)};
    must(sbp_quality_judge(&pool->shapes, &pool->network, &arena, &quality, &diag), &diag);
    const struct {
        const char *name;
        double value, most;
    } claims[] = {
        {"all, in sample", quality.in_sample.median, MOST_OFF},
        {"all, held-out sizes", quality.held_out_sizes.median, MOST_OFF},
        {"all, mis-ordered", share_of(pool->in_sample.mis_ordered, &pool->in_sample),
         MOST_MIS_ORDERED},
        {"all, mis-ordered held-out sizes",
         share_of(pool->held_out_sizes.mis_ordered, &pool->held_out_sizes), MOST_MIS_ORDERED},
    };
    paper_say(paper,
              "| **all together** | %d, %d | %.1f %% | %.1f %% | - | - | - | %.1f %% | %.1f %% | "
              "%.1f %% | - | - | - |\n",
              pool->shapes.points, pool->shapes.count, 100 * claims[0].value, 100 * claims[1].value,
              100 * claims[2].value, 100 * claims[3].value,
              100 * share_of(pool->in_sample.falling, &pool->in_sample));
    for (int i = 0; i < 4; i++)
        (void)paper_within(paper, claims[i].name, claims[i].value, 0, claims[i].most);
    sbp_arena_free(&arena);
}

static void say_machine(struct paper *paper, const struct machine *machine,
                        const struct sbp_network_fit *curves)
{
    static struct sbp_network_fit line;
    fit_files(machine->file, true, &line);
    const struct sbp_quality *quality = &curves->quality;
    paper_say(paper, "| %s | %d, %d |", machine->name, curves->shapes.points, curves->shapes.count);
    share_cell(paper, &quality->in_sample);
    share_cell(paper, &quality->held_out_sizes);
    paper_say(paper, " %.1f %% |", 100 * straight_median(curves));
    share_cell(paper, &quality->between);
    share_cell(paper, &quality->beyond);
    paper_say(paper, " %.1f %% | %.1f %% | %.1f %% | %.0f %% | %.1f %% |",
              100 * quality->in_sample.mis_ordered, 100 * quality->held_out_sizes.mis_ordered,
              100 * quality->in_sample.falling, 100 * line.quality.in_sample.median,
              100 * line.quality.in_sample.mis_ordered);
    if (quality->noise > 0)
        paper_say(paper, " %.1f %% |\n", 100 * quality->noise);
    else
        paper_say(paper, " - |\n");
    const double most = MOST_MIS_ORDERED + quality->in_sample.falling;
    (void)paper_within(paper, machine->name, quality->held_out_sizes.median, 0, 0.1);
    (void)paper_within(paper, machine->name, quality->held_out_sizes.mis_ordered, 0, most);
    (void)paper_within(paper, machine->name, quality->in_sample.mis_ordered, 0, most);
    sbp_network_fit_free(&line);
}

static void say_machines(struct paper *paper)
{
    static struct sbp_network_fit fits[MACHINES]; /* own what the pool holds */
    static struct pool pool;
    paper_say(paper,
              "## Machines\n\nMedians of |predicted / measured - 1|. Held-out sizes: of every "
              "group each second size is predicted from the others; straight lines: the same "
              "by lines between the points that are left, which may fall. Held-out groups: a "
              "curve and its formula's share of it are left out, and it is predicted from "
              "the other groups, between them or beyond them. Mis-ordered: pairs of points "
              "that differ by over 1.2x and are put in the wrong order; falling are those of "
              "one group of which the smaller message took longer: no curve that rises orders "
              "them. The paper's method is one alpha and beta a network by plain least squares "
              "(AutoDDL, 3.2), in sample. Noise: in-place against out-of-place times. All "
              "together: medians over all machines' points, shares of all machines' pairs, of "
              "which none is of two machines.\n\n");
    paper_table(paper, "| machine | points, groups | in sample | held-out sizes | straight lines | "
                       "held-out groups between | beyond | mis-ordered in sample | of held-out "
                       "sizes | falling | paper: in sample | mis-ordered | noise |");
    for (int m = 0; m < MACHINES; m++) {
        fit_files(machines[m].file, false, &fits[m]);
        say_machine(paper, &machines[m], &fits[m]);
        add_to_pool(&fits[m], &pool);
    }
    say_pool(paper, &pool);
    for (int m = 0; m < MACHINES; m++)
        sbp_network_fit_free(&fits[m]);
    paper_say(paper, "\nLogs: ");
    for (int m = 0; m < MACHINES; m++)
        paper_say(paper, "%s%s (%s)", m == 0 ? "" : "; ", machines[m].name, machines[m].source);
    paper_say(paper, ".\n\n");
}

/* The machines of the list that miss what is asked of all, and why. */
static void say_misses(struct paper *paper)
{
    static struct sbp_network_fit fit;
    const struct machine *machine = &machines[MACHINE_MI300X_NODE];
    fit_files(machine->file, false, &fit);
    const struct sbp_measured_group *shape = &fit.shapes.shape[0];
    const struct sbp_errors *errors = &fit.quality.in_sample;
    struct sbp_measured_group part = *shape;
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_errors rest;
    while (part.count > 0 && part.sample->bytes < 1024) {
        part.sample++;
        part.count--;
    }
    const struct sbp_measured_groups parts = {.count = 1, .shape = &part};
    must(sbp_quality_errors(&parts, curve_s, &fit.network.curve[0], &arena, &rest, &diag), &diag);
    paper_say(
        paper,
        "MI300X: all-reduces of 128 to 512 B take 23 us, those of 1 to 128 KiB 14 us, by "
        "another algorithm. Of all pairs that differ by over 1.2x, %.1f %% fall, and any curve "
        "that rises mis-orders these; ours the other %.1f %%, too, as equal, since it is flat "
        "there. From 1 KiB on %.1f %% are mis-ordered. Curves that rise are kept all the "
        "same: a planner would otherwise be told to send more to be done sooner.\n\n",
        100 * errors->falling, 100 * (errors->mis_ordered - errors->falling),
        100 * rest.mis_ordered);
    (void)paper_within(paper, "MI300X, from 1 KiB on", rest.mis_ordered, 0, MOST_MIS_ORDERED);
    sbp_arena_free(&arena);
    sbp_network_fit_free(&fit);
    fit_files(machines[MACHINE_KESTREL].file, false, &fit);
    paper_say(paper,
              "Kestrel: between 4 KiB and 32 MiB a size's two halves differ by up to 3.2 times, "
              "and times fall with size. Lines between neighbouring points, which may, predict "
              "held-out sizes no better (%.1f %%) than curves that rise (%.1f %%).\n\n",
              100 * straight_median(&fit), 100 * fit.quality.held_out_sizes.median);
    (void)paper_within(paper, "Kestrel, over straight lines",
                       fit.quality.held_out_sizes.median - straight_median(&fit), -1, 0.01);
    sbp_network_fit_free(&fit);
}

/* --- ways to fit --- */

static double line_s(const struct sbp_curve_sample *kept, int count, bool is_weighted, double bytes)
{
    double one[SBP_MOST_CURVE_SAMPLES], size[SBP_MOST_CURVE_SAMPLES];
    double time_s[SBP_MOST_CURVE_SAMPLES], weight[SBP_MOST_CURVE_SAMPLES];
    double alpha_s = 0, beta_s_per_byte = 0;
    for (int i = 0; i < count; i++) {
        one[i] = 1;
        size[i] = kept[i].bytes;
        time_s[i] = kept[i].time_s;
        weight[i] = is_weighted ? 1 / kept[i].time_s : 1;
    }
    (void)sbp_fit_nonnegative(count, one, size, time_s, weight, &alpha_s, &beta_s_per_byte);
    return alpha_s + bytes * beta_s_per_byte;
}

static double plain_line_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return line_s(kept, count, false, bytes);
}

static double weighted_line_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return line_s(kept, count, true, bytes);
}

static double segments_s(const struct sbp_curve_sample *kept, int count,
                         enum sbp_curve_method method, int segments, double bytes)
{
    struct sbp_diag diag = {{0}};
    struct sbp_curve_fit fit;
    must(sbp_curve_fit_with(kept, count, method, segments, &fit, &diag), &diag);
    return sbp_curve_fit_s(&fit, bytes);
}

static double absolute_line_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return segments_s(kept, count, SBP_CURVE_LAD, 1, bytes);
}

static double two_squares_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return segments_s(kept, count, SBP_CURVE_SQUARES, 2, bytes);
}

static double two_absolute_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return segments_s(kept, count, SBP_CURVE_LAD, 2, bytes);
}

static double three_squares_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return segments_s(kept, count, SBP_CURVE_SQUARES, 3, bytes);
}

static double three_absolute_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    return segments_s(kept, count, SBP_CURVE_LAD, 3, bytes);
}

static double chosen_s(const struct sbp_curve_sample *kept, int count, double bytes)
{
    struct sbp_diag diag = {{0}};
    struct sbp_curve_fit fit;
    must(sbp_curve_fit(kept, count, &fit, &diag), &diag);
    return sbp_curve_fit_s(&fit, bytes);
}

static void say_way(struct paper *paper, const struct sbp_network_fit *fits, const char *name,
                    predict_fn *predict, double most)
{
    static struct tally tally;
    tally = (struct tally){.points = 0};
    for (int m = 0; m < MACHINES; m++)
        for (int s = 0; s < fits[m].shapes.count; s++)
            if (fits[m].shapes.shape[s].count >= 8)
                hold_out(&fits[m].shapes.shape[s], predict, &tally);
    const double series = sbp_median(tally.mean, tally.series);
    const double points = sbp_median(tally.off, tally.points);
    paper_say(paper, "| %s | %.1f %% | %.1f %% |\n", name, 100 * points, 100 * series);
    (void)paper_within(paper, name, points, 0, most);
    (void)paper_within(paper, name, series, 0, most);
}

static void say_ways(struct paper *paper)
{
    static struct sbp_network_fit fits[MACHINES];
    for (int m = 0; m < MACHINES; m++)
        fit_files(machines[m].file, false, &fits[m]);
    paper_say(paper, "## Ways to fit a curve\n\nErrors of held-out sizes over the groups of all "
                     "machines that were measured at eight sizes or more.\n\n");
    paper_table(paper, "| curve | median of all points | median over groups of the mean |");
    say_way(paper, fits, "a line, plain least squares", plain_line_s, 10);
    say_way(paper, fits, "a line, relative least squares", weighted_line_s, 0.2);
    say_way(paper, fits, "a line, relative least absolute deviations", absolute_line_s, 0.2);
    say_way(paper, fits, "two segments, least squares", two_squares_s, 0.1);
    say_way(paper, fits, "two segments, least absolute deviations", two_absolute_s, 0.1);
    say_way(paper, fits, "three segments, least squares", three_squares_s, 0.06);
    say_way(paper, fits, "three segments, least absolute deviations", three_absolute_s, 0.06);
    say_way(paper, fits, "**three segments, chosen by held-out sizes (used)**", chosen_s, 0.06);
    say_way(paper, fits, "straight lines between all points", interpolated_s, 0.1);
    paper_say(paper, "\n");
    for (int m = 0; m < MACHINES; m++)
        sbp_network_fit_free(&fits[m]);
}

/* --- other groups --- */

/* From all that the cluster file is fitted to. */
static void say_alps_counts(struct paper *paper)
{
    static struct sbp_network_fit fit;
    paper_say(paper, "Rank counts between these and beyond, of which the logs are not beside the "
                     "sources (tests/papers/alps_counts.c holds their times), predicted from all "
                     "five, as configs/clusters/alps.json does:\n\n");
    paper_table(paper, "| ranks | median error |");
    fit_files(machines[MACHINE_ALPS].file, false, &fit);
    for (int i = 0; i < ALPS_COUNTS; i++) {
        char what[64];
        const double error = alps_error(&alps_counts[i], &fit.network);
        (void)snprintf(what, sizeof what, "Alps, %d ranks", alps_counts[i].ranks);
        paper_say(paper, "| %d | %.1f %% |\n", alps_counts[i].ranks, 100 * error);
        (void)paper_within(paper, what, error, 0, 0.2);
    }
    paper_say(
        paper,
        "\nThe source holds ten configurations, of which four have no wrong values at any rank "
        "count. The other three, each fitted to its own five, as measured once: "
        "NCCL_CROSS_NIC=1 with plugin 1.9.2 8.6, 5.5, 20.4, 17.5 and 16.1 %%; "
        "FI_CXI_DEFAULT_CQ_SIZE and others 9.8, 8.0, 33.7, 12.3 and 6.2 %% (plugin 1.13.0), 9.5, "
        "7.5, 17.1, 20.1 and 10.8 %% (1.9.2). None of the four ran twice; two of them differ, size "
        "by size, by 0.7 to 2.9 %% in the median up to 16 ranks and by 6 to 31 %% from 32 on, most "
        "at 128 (the longer time over the shorter, of all pairs and sizes).\n\n");
    sbp_network_fit_free(&fit);
}

static void say_alps(struct paper *paper)
{
    static struct sbp_network_fit fit;
    const struct machine *alps = &machines[MACHINE_ALPS];
    paper_say(paper, "## Groups that were not measured\n\nAll-reduces of Alps, each rank count "
                     "predicted from the others: the inner ones from neighbours sixteen times "
                     "apart, the last one beyond four times fewer.\n\n");
    paper_table(paper, "| ranks | median error |");
    static const int ranks[] = {4, 16, 64, 256, 1024};
    for (int left_out = 1; left_out < 5; left_out++) {
        const char *files[MACHINE_MOST_FILES];
        machine_without(alps, left_out, files);
        fit_files(files, false, &fit);
        const double error = machine_error_on(folder, &fit, alps->file[left_out]);
        paper_say(paper, "| %d | %.1f %% |\n", ranks[left_out], 100 * error);
        (void)paper_within(paper, alps->file[left_out], error, 0, 0.2);
        sbp_network_fit_free(&fit);
    }
    paper_say(paper, "\n");
    say_alps_counts(paper);
}

static double bus_gb_per_s(int ranks, double bytes, double seconds)
{
    return 2.0 * (ranks - 1) / ranks * bytes / seconds * 1e-9;
}

static void say_two_nodes(struct paper *paper)
{
    static struct sbp_network_fit fit;
    const char *const both[] = {machine_two_nodes[0], machine_eight_nodes[0], NULL};
    const double bytes = 8589934592;
    paper_say(paper, "## Two nodes\n\nnccl-tests, issue 309: all-reduces of 8 GiB over 2 x 8 and "
                     "8 x 8 H100. The bus bandwidth of two nodes is that of trees, which send a "
                     "byte once over a port, and says nothing of eight. With both logs it is set "
                     "aside; with the two nodes alone the price is told as not to be trusted.\n\n");
    paper_table(paper, "| fitted to | nodes | bus bandwidth predicted, GB/s |");
    fit_files(both, false, &fit);
    for (int nodes = 2; nodes <= 16; nodes *= 2) {
        const double s = sbp_network_fit_s(&fit, SBP_ALL_REDUCE, nodes, 8, bytes);
        paper_say(paper, "| both | %d | %.0f |\n", nodes, bus_gb_per_s(8 * nodes, bytes, s));
    }
    const double eight =
        bus_gb_per_s(64, bytes, sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 8, 8, bytes));
    (void)paper_within(paper, "eight nodes", eight, 310, 335);
    sbp_network_fit_free(&fit);
    fit_files(machine_two_nodes, false, &fit);
    const double from_two =
        bus_gb_per_s(64, bytes, sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 8, 8, bytes));
    paper_say(paper, "| two nodes | 8 | %.0f |\n\n", from_two);
    (void)paper_within(paper, "eight nodes from two", from_two, 200, 335);
    sbp_network_fit_free(&fit);
}

/* --- pictures --- */

#define MOST_DRAWN 128

/* A group's points, its curve, and what is off. */
struct drawn {
    char name[64];
    int points, line;
    double bytes[MOST_DRAWN], time_us[MOST_DRAWN], ratio[MOST_DRAWN];
    double line_bytes[MOST_DRAWN], line_us[MOST_DRAWN];
};

static void draw_group(const struct sbp_network_fit *fit, int s, struct drawn *drawn)
{
    const struct sbp_measured_group *shape = &fit->shapes.shape[s];
    (void)snprintf(drawn->name, sizeof drawn->name, "%s %dx%d", sbp_collective_name(shape->kind),
                   shape->nodes, shape->ranks_per_node);
    for (int i = 0; i < shape->count && i < MOST_DRAWN; i++) {
        const double predicted_s =
            sbp_network_curve_s(&fit->network.curve[s], shape->sample[i].bytes);
        drawn->bytes[i] = shape->sample[i].bytes;
        drawn->time_us[i] = 1e6 * shape->sample[i].time_s;
        drawn->ratio[i] = predicted_s / shape->sample[i].time_s;
        drawn->points = i + 1;
    }
    const double low = shape->sample[0].bytes, high = shape->sample[shape->count - 1].bytes;
    for (drawn->line = 0; drawn->line < 100; drawn->line++) {
        const double bytes = low * pow(high / low, drawn->line / 99.0);
        drawn->line_bytes[drawn->line] = bytes;
        drawn->line_us[drawn->line] = 1e6 * sbp_network_curve_s(&fit->network.curve[s], bytes);
    }
}

#define MOST_GROUPS 8

static void draw_machine(struct paper *paper, int machine, const char *name, const char *caption,
                         const char *title)
{
    static struct sbp_network_fit fit;
    static struct drawn drawn[MOST_GROUPS];
    struct plot_series series[2 * MOST_GROUPS];
    fit_files(machines[machine].file, false, &fit);
    const int count = fit.shapes.count < MOST_GROUPS ? fit.shapes.count : MOST_GROUPS;
    for (int s = 0; s < count; s++) {
        draw_group(&fit, s, &drawn[s]);
        series[s] = (struct plot_series){.name = drawn[s].name,
                                         .count = drawn[s].points,
                                         .x = drawn[s].bytes,
                                         .y = drawn[s].time_us,
                                         .colour = s % 6};
        series[count + s] = (struct plot_series){.name = "",
                                                 .count = drawn[s].line,
                                                 .x = drawn[s].line_bytes,
                                                 .y = drawn[s].line_us,
                                                 .colour = s % 6};
    }
    const struct plot plot = {
        .title = title,
        .x = {.label = "bytes", .low = 1, .high = 1e10, .tick = 100, .logarithmic = true},
        .y = {.label = "us", .low = 1, .high = 1e7, .tick = 10, .logarithmic = true},
        .count = 2 * count,
        .series = series};
    plot_write_loose(&plot, count, paper_picture(paper, name, caption));
    for (int s = 0; s < count; s++)
        series[s].y = drawn[s].ratio;
    const struct plot rest = {.title = title,
                              .x = plot.x,
                              .y = {.label = "predicted / measured",
                                    .low = 0.125,
                                    .high = 8,
                                    .tick = 2,
                                    .logarithmic = true},
                              .count = count,
                              .series = series};
    char residuals[64];
    (void)snprintf(residuals, sizeof residuals, "%s-residuals", name);
    plot_write_loose(&rest, count, paper_picture(paper, residuals, "What the curves leave"));
    sbp_network_fit_free(&fit);
}

int main(int argc, char **argv)
{
    struct paper paper;
    setting_shared_path("data/logs", folder, sizeof folder);
    if (!machine_has_logs(folder) || !sbp_lad_is_available()) {
        (void)printf("skipped: %s\n", sbp_lad_is_available() ? "no logs" : "no GLPK");
        return 77; /* meson: skipped */
    }
    paper_open(&paper, "calibration", "Fits of published logs of collectives");
    say_machines(&paper);
    say_misses(&paper);
    say_ways(&paper);
    say_alps(&paper);
    say_two_nodes(&paper);
    paper_say(&paper, "## Pictures\n\n");
    draw_machine(&paper, MACHINE_POLARIS, "calibration-polaris", "Polaris: points and curves",
                 "Polaris, NCCL 2.18");
    draw_machine(&paper, MACHINE_ALPS, "calibration-alps", "Alps: points and curves",
                 "Alps, all-reduce");
    return paper_close(&paper, argc, argv);
}
