/* Myelin, table II: the grid and the micro-batch that its authors found by tuning, for four sizes
 * and three frameworks, and those that the cost model finds by pricing every one.
 */
#include <math.h>
#include <stdio.h>

#include "tests/papers/paper.h"
#include "tests/papers/summit.h"

#define BATCH            16384
#define EFFICIENCY       0.55               /* results/myelin.md, fitted to figure 6 */
#define RESERVE_BYTES    INT64_C(377000000) /* the same: 520 GB measured, 501.9 compiled, 48 GPUs */
#define MEMORY_BYTES     17179869184.0
#define MOST_MICRO_BATCH 16
#define MOST_INTRA       12
#define MOST_CHOICES     8
#define SIZES            4

static const char *const names[SUMMIT_FRAMEWORKS] = {"Myelin", "DeepSpeed", "Megatron-LM"};

static const struct size {
    int billions, gpus;
    struct setting_gpt model;
    struct summit_grid theirs[SUMMIT_FRAMEWORKS]; /* table II; Myelin's G_intra is 1 */
} sizes[SIZES] = {
    {12, 48, {48, 4512, 24}, {{1, 6, 8, 8}, {3, 2, 8, 2}, {3, 16, 1, 8}}},
    {24, 96, {48, 6336, 36}, {{1, 12, 8, 4}, {3, 4, 8, 2}, {3, 16, 2, 1}}},
    {50, 192, {96, 6528, 48}, {{1, 24, 8, 4}, {3, 16, 4, 1}, {6, 32, 1, 8}}},
    {100, 384, {96, 9360, 60}, {{1, 48, 8, 2}, {3, 32, 4, 1}, {12, 32, 1, 4}}},
};

struct choice {
    struct summit_grid grid;
    struct summit_price price;
};

/* The choices of one size and framework. */
struct tuned {
    struct choice theirs, ours;
    int tried, fitting;
    /* At the G_inter and G_data of theirs, micro-batches that fit. */
    int count;
    struct choice micro[MOST_CHOICES];
};

static struct summit_price price(const struct size *size, int framework,
                                 const struct summit_grid *grid)
{
    const struct summit_setting setting = {.model = size->model,
                                           .batch = BATCH,
                                           .framework = (enum summit_framework)framework,
                                           .efficiency = EFFICIENCY,
                                           .reserve_bytes = RESERVE_BYTES};
    return summit_price(&setting, grid);
}

/* Returns the bytes that the states alone take. A grid that needs more than the memory for these is
 * not priced. */
static double state_bytes(const struct size *size, int framework, const struct summit_grid *grid)
{
    const double parameters =
        12.0 * size->model.layers * pow(size->model.hidden, 2) / (grid->intra * grid->inter);
    const double bytes[] = {4, 4 + 16.0 / grid->data, 20};
    return parameters * bytes[framework];
}

static bool same_grid(const struct summit_grid *a, const struct summit_grid *b)
{
    return a->intra == b->intra && a->inter == b->inter && a->data == b->data;
}

static void try_grid(const struct size *size, int framework, const struct summit_grid *grid,
                     struct tuned *tuned)
{
    const struct choice choice = {*grid, price(size, framework, grid)};
    if (!choice.price.legal)
        return;
    tuned->tried++;
    if (!choice.price.fits)
        return;
    tuned->fitting++;
    if (tuned->ours.price.step_s == 0 || choice.price.step_s < tuned->ours.price.step_s)
        tuned->ours = choice;
    if (same_grid(grid, &size->theirs[framework]) && tuned->count < MOST_CHOICES)
        tuned->micro[tuned->count++] = choice;
}

static struct tuned tune(const struct size *size, int framework)
{
    struct tuned tuned = {.theirs.grid = size->theirs[framework]};
    const int most_intra = framework == SUMMIT_MYELIN ? 1 : MOST_INTRA;
    tuned.theirs.price = price(size, framework, &tuned.theirs.grid);
    for (int intra = 1; intra <= most_intra; intra++)
        for (int inter = 1; inter <= size->model.layers; inter++) {
            struct summit_grid grid = {intra, inter, size->gpus / (intra * inter), 1};
            if (size->gpus % (intra * inter) != 0 ||
                state_bytes(size, framework, &grid) > MEMORY_BYTES)
                continue;
            for (; grid.micro_batch <= MOST_MICRO_BATCH; grid.micro_batch *= 2)
                try_grid(size, framework, &grid, &tuned);
        }
    return tuned;
}

/* --- tables --- */

#define GRID_BYTES 48
static const char *grid_text(const struct summit_grid *grid, char *buffer)
{
    (void)snprintf(buffer, GRID_BYTES, "%d x %d x %d, %d", grid->intra, grid->inter, grid->data,
                   grid->micro_batch);
    return buffer;
}

static double over(const struct tuned *tuned)
{
    return tuned->theirs.price.step_s / tuned->ours.price.step_s - 1;
}

static void say_row(struct paper *paper, const struct size *size, int framework,
                    const struct tuned *tuned)
{
    char theirs[GRID_BYTES], ours[GRID_BYTES];
    const struct summit_price *a = &tuned->theirs.price, *b = &tuned->ours.price;
    paper_say(paper,
              "| %d | %s | %s | %s | %d of %d | %.1f | %.1f | %+.1f %% | bubble %.1f for %.1f, "
              "communication that shows %.1f for %.1f; %.1f for %.1f GiB |\n",
              size->billions, names[framework], grid_text(&tuned->theirs.grid, theirs),
              grid_text(&tuned->ours.grid, ours), tuned->fitting, tuned->tried, a->step_s,
              b->step_s, 100 * over(tuned), a->bubble_s, b->bubble_s, a->exposed_s, b->exposed_s,
              a->device_bytes / 1073741824.0, b->device_bytes / 1073741824.0);
}

static void table_tuned(struct paper *paper, struct tuned tuned[SIZES][SUMMIT_FRAMEWORKS])
{
    paper_say(paper,
              "## Table II\n\n"
              "G_intra x G_inter x G_data, micro-batch. Seconds of a batch by our prices, theirs "
              "and ours; in the last column theirs for\nours.\n\n");
    paper_table(paper,
                "| 10^9 | framework | theirs | ours | fit | theirs, s | ours, s | over | why "
                "they differ |");
    for (int i = 0; i < SIZES; i++)
        for (int f = 0; f < SUMMIT_FRAMEWORKS; f++) {
            say_row(paper, &sizes[i], f, &tuned[i][f]);
            paper_true(paper, "theirs fits", tuned[i][f].theirs.price.fits);
            paper_true(paper, "ours is the best", over(&tuned[i][f]) >= -1e-12);
        }
    paper_say(paper, "\n");
}

/* Whether Myelin could do with fewer stages. */
static bool fewer_stages_fit(const struct size *size)
{
    const struct summit_grid *theirs = &size->theirs[SUMMIT_MYELIN];
    for (int inter = 1; inter < theirs->inter; inter++) {
        const struct summit_grid grid = {1, inter, size->gpus / inter, 1};
        if (size->gpus % inter == 0 && state_bytes(size, SUMMIT_MYELIN, &grid) <= MEMORY_BYTES &&
            price(size, SUMMIT_MYELIN, &grid).fits)
            return true;
    }
    return false;
}

static void hold_tuned(struct paper *paper, struct tuned tuned[SIZES][SUMMIT_FRAMEWORKS])
{
    for (int i = 0; i < SIZES; i++) {
        const struct tuned *t = tuned[i];
        paper_true(paper, "Myelin's grid",
                   same_grid(&t[SUMMIT_MYELIN].theirs.grid, &t[SUMMIT_MYELIN].ours.grid));
        paper_true(paper, "Myelin's stages are the fewest that fit", !fewer_stages_fit(&sizes[i]));
        paper_within(paper, "Myelin's micro-batch costs", over(&t[SUMMIT_MYELIN]), 0, 0.04);
        paper_within(paper, "DeepSpeed's choice costs", over(&t[SUMMIT_DEEPSPEED]), 0, 0.12);
        if (sizes[i].billions < 100)
            paper_within(paper, "Megatron-LM's choice costs", over(&t[SUMMIT_MEGATRON]), 0, 0.15);
    }
    for (int i = 0; i < 2; i++)
        paper_true(paper, "DeepSpeed's G_data",
                   tuned[i][SUMMIT_DEEPSPEED].theirs.grid.data ==
                       tuned[i][SUMMIT_DEEPSPEED].ours.grid.data);
    paper_true(
        paper, "Megatron-LM's grid at 24 x 10^9",
        same_grid(&tuned[1][SUMMIT_MEGATRON].theirs.grid, &tuned[1][SUMMIT_MEGATRON].ours.grid));
}

/* Seconds that a micro-batch would have to cost each stage besides for theirs to be the best. */
struct interval {
    double low, high;
};

static double passes(const struct choice *choice)
{
    return (double)BATCH / choice->grid.data / choice->grid.micro_batch + choice->grid.inter - 1;
}

static struct interval overhead_of(const struct tuned *tuned)
{
    struct interval interval = {0, INFINITY};
    for (int i = 0; i < tuned->count; i++) {
        const struct choice *other = &tuned->micro[i];
        const double slower = tuned->theirs.price.step_s - other->price.step_s,
                     fewer = passes(other) - passes(&tuned->theirs);
        if (fewer > 0)
            interval.low = fmax(interval.low, slower / fewer);
        else if (fewer < 0)
            interval.high = fmin(interval.high, slower / fewer);
    }
    return interval;
}

/* Returns what explains all four. */
static struct interval table_micro(struct paper *paper,
                                   struct tuned tuned[SIZES][SUMMIT_FRAMEWORKS])
{
    struct interval all = {0, INFINITY};
    paper_say(paper, "## Myelin's micro-batches\n\n");
    paper_table(paper, "| 10^9 | theirs | ours | theirs costs | best if a micro-batch cost each "
                       "stage besides |");
    for (int i = 0; i < SIZES; i++) {
        const struct tuned *t = &tuned[i][SUMMIT_MYELIN];
        const struct interval interval = overhead_of(t);
        all = (struct interval){fmax(all.low, interval.low), fmin(all.high, interval.high)};
        paper_say(paper, "| %d | %d | %d | %+.1f %% | %.0f ms", sizes[i].billions,
                  t->theirs.grid.micro_batch, t->ours.grid.micro_batch, 100 * over(t),
                  1e3 * interval.low);
        if (isfinite(interval.high))
            paper_say(paper, " to %.0f ms |\n", 1e3 * interval.high);
        else
            paper_say(paper, " and more: no larger one fits |\n");
    }
    paper_say(paper,
              "\nWhy they differ: to us products are as efficient on 512 rows as on 4,096, and a "
              "message costs its receiver nothing, so that the\nleast bubble wins. %.0f to %.0f ms "
              "that a micro-batch costs each stage besides, whatever its size, make all four of "
              "theirs the\nbest at once.\n\n",
              1e3 * all.low, 1e3 * all.high);
    paper_within(paper, "one overhead explains all four", all.low, 0.001, all.high);
    return all;
}

/* Compares the paper's choice of a framework with its choice for Myelin, as a ratio of step times,
 * when each pass of a micro-batch through a stage takes overhead_s longer. */
static double over_myelin(const struct tuned *tuned, int framework, double overhead_s)
{
    const struct choice *a = &tuned[framework].theirs, *b = &tuned[SUMMIT_MYELIN].theirs;
    return (a->price.step_s + passes(a) * overhead_s) / (b->price.step_s + passes(b) * overhead_s);
}

static void say_reasons(struct paper *paper, struct tuned tuned[SIZES][SUMMIT_FRAMEWORKS],
                        struct interval overhead)
{
    const struct tuned *last = tuned[SIZES - 1];
    const double megatron = over_myelin(last, SUMMIT_MEGATRON, 0),
                 deepspeed = over_myelin(last, SUMMIT_DEEPSPEED, 0);
    paper_say(
        paper,
        "## The other frameworks\n\n"
        "Myelin: memory and the divisors of the batch leave no smaller G_inter, and a larger one "
        "has a longer bubble: the same grid in all\nfour. DeepSpeed: as many GPUs hold a replica "
        "for 12 and 24 x 10^9; ours gives more of them to stages, whose messages hide, and\n"
        "fewer to a layer, whose sums do not. For 50 and 100 x 10^9 ours fits 8 replicas where "
        "theirs has 4, with %.1f and %.1f of 16 GiB: what\nour memory model leaves out of "
        "DeepSpeed must be the rest. Megatron-LM: the same grid for 24 x 10^9; elsewhere theirs "
        "has one replica\nwhere two fit by our memory model, in %.1f to %.1f GiB, and as two did "
        "for 24 x 10^9.\n\n",
        tuned[2][SUMMIT_DEEPSPEED].ours.price.device_bytes / 1073741824.0,
        last[SUMMIT_DEEPSPEED].ours.price.device_bytes / 1073741824.0,
        tuned[0][SUMMIT_MEGATRON].ours.price.device_bytes / 1073741824.0,
        last[SUMMIT_MEGATRON].ours.price.device_bytes / 1073741824.0);
    paper_table(paper, "| 100 x 10^9, at their grids | theirs (VII.B) | ours | with that cost of a "
                       "micro-batch | why they differ |");
    paper_say(paper,
              "| Megatron-LM over Myelin | 2.46 | %.2f | %.2f to %.2f | sums of 12 ways cross "
              "between nodes: %.0f s show |\n"
              "| DeepSpeed over Myelin | 1.18 | %.2f | %.2f to %.2f | %.0f micro-batches a replica "
              "for %.0f; and its sends block (section I), ours hide |\n\n",
              megatron, over_myelin(last, SUMMIT_MEGATRON, overhead.low),
              over_myelin(last, SUMMIT_MEGATRON, overhead.high),
              last[SUMMIT_MEGATRON].theirs.price.exposed_s, deepspeed,
              over_myelin(last, SUMMIT_DEEPSPEED, overhead.low),
              over_myelin(last, SUMMIT_DEEPSPEED, overhead.high),
              (double)BATCH / last[SUMMIT_DEEPSPEED].theirs.grid.data /
                  last[SUMMIT_DEEPSPEED].theirs.grid.micro_batch,
              (double)BATCH / last[SUMMIT_MYELIN].theirs.grid.data /
                  last[SUMMIT_MYELIN].theirs.grid.micro_batch);
    paper_within(paper, "DeepSpeed over Myelin, with the overhead",
                 over_myelin(last, SUMMIT_DEEPSPEED, overhead.high), 1, 1.25);
    paper_within(paper, "Megatron-LM over Myelin", megatron, 1.9, 2.8);
    paper_within(paper, "DeepSpeed over Myelin", deepspeed, 0.9, 1.18);
}

int main(int argc, char **argv)
{
    static struct tuned tuned[SIZES][SUMMIT_FRAMEWORKS];
    struct paper paper;
    paper_open(&paper, "myelin_tuning", "Myelin: tuning by price");
    paper_say(&paper,
              "Batches of %d sequences of 512 tokens on Summit, `summit-v100`; products at %.0f %% "
              "of peak ([myelin.md](myelin.md)); %.2f GB of a\nGPU are the runtime's, by the "
              "paper's 520 GB of section V.B. Every grid of G_intra up to %d, G_inter that divides "
              "the layers and\nmicro-batches to %d whose sizes divide is compiled and priced "
              "(`tests/papers/summit.c`); the fastest that fits 16 GiB is ours.\n\n"
              "| framework | priced as |\n| --- | --- |\n"
              "| Myelin | message-driven, optimizer states in host memory, buckets of 16 Mi, "
              "all-reduces of 4 of them beside the optimizer, checkpoints every factor of "
              "N/G_inter nearest to sqrt(N) blocks |\n"
              "| DeepSpeed | 1F1B, ZeRO-1, a checkpoint a block, stages keep what they sent |\n"
              "| Megatron-LM | 1F1B, all states on each replica, a checkpoint a block |\n\n",
              BATCH, 100 * EFFICIENCY, 1e-9 * (double)RESERVE_BYTES, MOST_INTRA, MOST_MICRO_BATCH);
    for (int i = 0; i < SIZES; i++)
        for (int f = 0; f < SUMMIT_FRAMEWORKS; f++)
            tuned[i][f] = tune(&sizes[i], f);
    table_tuned(&paper, tuned);
    const struct interval overhead = table_micro(&paper, tuned);
    say_reasons(&paper, tuned, overhead);
    hold_tuned(&paper, tuned);
    return paper_close(&paper, argc, argv);
}
