/* The memory that a search names where nothing fits: how far above what is proved to be needed, and
 * whether a search with that limit has a plan. Runs the program itself.
 *
 * Usage: bench_needed SBPLAN [-o FOLDER] [--time-limit S] [MODEL...]
 * Ends with 1 when a program crashes, takes over LIMIT_S, gives an answer that is none, or finds no
 * plan within what it named.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/math/stats.h"
#include "tests/bench/answer.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"

#define LIMIT_S    60.0   /* no search may take longer */
#define TOO_LITTLE "1000" /* bytes of a device */

enum { MODELS = 8, CLUSTERS = 3, MOST_WORDS = 12 };

static const struct {
    const char *name;
    int64_t batch;
} models[MODELS] = {{"tiny-gpt", 8},        {"gpt2-small", 8},  {"bert-large", 256},
                    {"llama-3.1-8b", 1024}, {"vit-b-16", 4096}, {"vgg-13", 128},
                    {"resnet-50", 256},     {"face", 1024}};

static const struct {
    const char *name;
    int64_t devices;
} clusters[CLUSTERS] = {{"h100-sxm-8", 8}, {"gcp-a100-2x16", 32}, {"dgx-a100-8x8", 64}};

struct bench {
    struct report_arguments arguments;
    struct sbp_text table;
    int pairs, broken, count;
    double above[MODELS * CLUSTERS]; /* (count) what is proved, as shares */
    double slowest_s;
};

/* A search within a limit of memory; E_INPUT: it is broken. */
static enum sbp_status search(struct bench *bench, int model, int cluster, const char *limit,
                              struct answer *answer, double *wall_s, struct sbp_diag *diag)
{
    struct measured measured;
    const char *words[MOST_WORDS] = {
        bench->arguments.program, "search", models[model].name, clusters[cluster].name, "--json",
        "--memory-limit",         limit};
    if (bench->arguments.time_limit != NULL) {
        words[7] = "--time-limit";
        words[8] = bench->arguments.time_limit;
    }
    enum sbp_status status = measure_run(words, LIMIT_S, &measured, diag);
    if (status == SBP_OK)
        status =
            answer_read(&measured, clusters[cluster].devices, models[model].batch, answer, diag);
    *wall_s = measured.wall_s;
    if (measured.wall_s > bench->slowest_s)
        bench->slowest_s = measured.wall_s;
    measure_free(&measured);
    return status;
}

/* Searches within the memory that an earlier search named as needed. E_INPUT: it finds no plan, so
 * the named number is wrong. */
static enum sbp_status search_within(struct bench *bench, int model, int cluster,
                                     int64_t needed_bytes, double *wall_s, struct sbp_diag *diag)
{
    char limit[32];
    struct answer answer;
    (void)snprintf(limit, sizeof limit, "%" PRId64, needed_bytes);
    SBP_TRY(search(bench, model, cluster, limit, &answer, wall_s, diag));
    return answer.has_plan
               ? SBP_OK
               : sbp_fail(diag, SBP_E_INPUT, "no plan within the %s bytes that it named", limit);
}

static enum sbp_status run_pair(struct bench *bench, int model, int cluster, struct sbp_diag *diag)
{
    struct answer answer;
    double wall_s, within_s;
    char needed[32], bound[32];
    SBP_TRY(search(bench, model, cluster, TOO_LITTLE, &answer, &wall_s, diag));
    if (answer.needed_bytes <= 0 || answer.needed_bound_bytes <= 0)
        return sbp_fail(diag, SBP_E_INPUT, "names no memory");
    SBP_TRY(search_within(bench, model, cluster, answer.needed_bytes, &within_s, diag));
    const double named = (double)answer.needed_bytes;
    const double above = named / (double)answer.needed_bound_bytes - 1;
    bench->above[bench->count++] = above;
    sbp_text_add(&bench->table, "| %s | %s | %s | %s | %.1f %% | %s | %.1f | %.1f |\n",
                 models[model].name, clusters[cluster].name, sbp_format_bytes(named, needed),
                 sbp_format_bytes((double)answer.needed_bound_bytes, bound), 100 * above,
                 answer.dominates, wall_s, within_s);
    (void)printf("%-14s %-14s %12s, %5.1f %% above the bound, %5.1f s\n", models[model].name,
                 clusters[cluster].name, needed, 100 * above, wall_s);
    return SBP_OK;
}

static int count_within(const double *share, int count, double most)
{
    int within = 0;
    for (int i = 0; i < count; i++)
        within += share[i] <= most;
    return within;
}

static void add_head(struct bench *bench, struct sbp_text *page)
{
    sbp_text_add(page, "# The memory that is named where nothing fits\n\nMade by `./dev bench "
                       "needed`, ");
    report_add_machine(page);
    sbp_text_add(
        page,
        ".\n\nEvery search was told that a device has " TOO_LITTLE
        " bytes. It answers that nothing fits, and names the memory\nof a plan that would "
        "do, and what no plan does with less than. That plan is the least, as compiled, of those "
        "that\nneed least by the memory model; others may do with less. Beside it: how far "
        "that is above what is proved, what\nmost of it is, how long the answer takes, and how "
        "long a search that is given just what was named, which has a\nplan in every row.\n\n");
    if (bench->count > 0)
        sbp_text_add(
            page,
            "%d pairs, %d broken. Above what is proved: %.1f %% in the median, at most 10 %% in "
            "%d, 25 %% in %d. The slowest\nsearch took %.1f s.\n\n",
            bench->pairs, bench->broken, 100 * sbp_median(bench->above, bench->count),
            count_within(bench->above, bench->count, 0.1),
            count_within(bench->above, bench->count, 0.25), bench->slowest_s);
    sbp_text_add(page, "| model | cluster | named | none with less than | above it | most of it | "
                       "s | with that limit (s) |\n"
                       "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

static void try_pair(struct bench *bench, int model, int cluster)
{
    struct sbp_diag diag = {{0}};
    bench->pairs++;
    if (run_pair(bench, model, cluster, &diag) != SBP_OK) {
        bench->broken++;
        sbp_text_add(&bench->table, "| %s | %s | broken | | | %.160s | | |\n", models[model].name,
                     clusters[cluster].name, diag.text);
        (void)printf("%-14s %-14s %s\n", models[model].name, clusters[cluster].name, diag.text);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct sbp_text page = {0};
    if (!report_read_arguments(argc, argv, &bench.arguments))
        return 2;
    for (int model = 0; model < MODELS; model++)
        for (int cluster = 0; cluster < CLUSTERS; cluster++)
            if (report_wants(&bench.arguments, models[model].name))
                try_pair(&bench, model, cluster);
    add_head(&bench, &page);
    sbp_text_add(&page, "%s", bench.table.bytes == NULL ? "" : bench.table.bytes);
    page.failed |= bench.table.failed;
    const bool written = report_write(&bench.arguments, "needed.md", &page);
    sbp_text_free(&page);
    sbp_text_free(&bench.table);
    return bench.broken > 0 || !written;
}
