#include "calib/measure/job.h"

#include <string.h>

#include "base/launcher.h"
#include "base/table.h"
#include "base/text.h"
#include "calib/measure/perform.h"

#define REPEATS         12   /* of a cell that settles early, warm-ups included */
#define AROUND_S        1e-4 /* of a cell: barriers, agreeing on its times */
#define PAIR_TIMES      10
#define ATTENTION_SHARE 0.3  /* of the rate of products */
#define LOADED_S        0.5  /* of a product under load, behind it */
#define BESIDE_TIMES    4    /* what a collective beside products takes, with them and they alone */
#define LINK_RATE       1e10 /* bytes a second to a host and back */
#define HOUR_S          3600.0
#define MINUTE_S        60
#define SPARE_SHARE     0.2 /* of a job's time over the budget: starting, the last cell, fitting */
#define SPARE_S         120

/* --- the estimate --- */

static double port_bytes_per_s(const struct sbp_measure_job *job)
{
    const double nominal = job->settings->nominal_bytes_per_s;
    return nominal > 0 ? nominal : SBP_JOB_BYTES_PER_S;
}

static double collective_s(const struct sbp_measure_job *job, const struct sbp_cell *cell)
{
    const double members = (double)cell->nodes * cell->ranks_per_node;
    const double sharing = cell->nodes > 1 ? cell->groups : 1;
    return sbp_collective_steps(cell->kind, members) * SBP_JOB_LATENCY_S +
           sbp_collective_share(cell->kind, members) * (double)cell->bytes * sharing /
               port_bytes_per_s(job);
}

static double cell_s(const struct sbp_measure_job *job, const struct sbp_cell *cell)
{
    const struct sbp_product_list *products = sbp_sweep_products(job->layout.products);
    const struct sbp_cell message = {
        .kind = SBP_SEND_RECV, .nodes = 2, .ranks_per_node = 1, .groups = 1, .bytes = cell->bytes};
    switch (cell->work) {
    case SBP_CELL_COLLECTIVE:
        return AROUND_S + REPEATS * sbp_perform_calls(cell) * collective_s(job, cell);
    case SBP_CELL_PAIRS:
        return AROUND_S + PAIR_TIMES * 2 * collective_s(job, &message);
    case SBP_CELL_COPY:
    case SBP_CELL_GELU: /* as long as two copies (measured: AMD EPYC) */
        return AROUND_S + REPEATS * 2 * (double)cell->bytes / products->copy_bytes_per_s;
    case SBP_CELL_LINK:
        return AROUND_S + REPEATS * 2 * (double)cell->bytes / LINK_RATE;
    case SBP_CELL_SUSTAINED:
        return (double)cell->load_s + LOADED_S;
    case SBP_CELL_BESIDE:
        return AROUND_S +
               (sbp_cell_is_alone(cell) ? 1 : BESIDE_TIMES) * REPEATS * collective_s(job, cell);
    case SBP_CELL_ROWS: /* up to three times as long as a copy (measured: AMD EPYC) */
    case SBP_CELL_STREAM:
        return AROUND_S + REPEATS * 3 * (double)cell->bytes / products->copy_bytes_per_s;
    case SBP_CELL_ATTENTION:
        return AROUND_S + REPEATS * sbp_cell_attention_flops(&cell->attention) /
                              (ATTENTION_SHARE * products->flops);
    default:
        return AROUND_S + REPEATS * sbp_cell_product_flops(cell) / products->flops;
    }
}

/* --- the plan --- */

struct row {
    int cells;
    double time_s;
};

static void add_row(struct sbp_table *table, const char *work, const char *groups,
                    const struct row *row)
{
    char time[32];
    if (row->cells == 0)
        return;
    sbp_table_cell(table, "%s", work);
    sbp_table_cell(table, "%s", groups);
    sbp_table_cell(table, "%d", row->cells);
    sbp_table_cell(table, "%s", sbp_format_seconds(row->time_s, time));
}

static struct row sum_work(const struct sbp_measure_job *job, const struct sbp_sample_sweep *sweep,
                           const struct sbp_cell *like)
{
    struct row row = {0};
    for (int i = 0; i < sweep->count; i++) {
        const struct sbp_cell *cell = &sweep->cell[i];
        const bool is_same = like->work == SBP_CELL_COLLECTIVE
                                 ? cell->work == like->work && cell->nodes == like->nodes &&
                                       cell->ranks_per_node == like->ranks_per_node &&
                                       cell->groups == like->groups
                                 : cell->work == like->work;
        row.cells += is_same;
        row.time_s += is_same ? cell_s(job, cell) : 0;
    }
    return row;
}

static void add_shapes(struct sbp_table *table, const struct sbp_measure_job *job,
                       const struct sbp_sample_sweep *sweep)
{
    struct sbp_cell like = {.work = SBP_CELL_COLLECTIVE};
    for (like.nodes = 1; like.nodes <= job->layout.nodes; like.nodes++)
        for (like.ranks_per_node = 1; like.ranks_per_node <= job->layout.ranks_per_node;
             like.ranks_per_node++) {
            if (job->layout.nodes % like.nodes != 0 ||
                job->layout.ranks_per_node % like.ranks_per_node != 0)
                continue;
            const int most = job->layout.ranks_per_node / like.ranks_per_node;
            for (like.groups = 1; like.groups <= most; like.groups++) {
                char work[64], groups[32];
                const struct row row = sum_work(job, sweep, &like);
                (void)snprintf(work, sizeof work, "collectives of %d x %d", like.nodes,
                               like.ranks_per_node);
                (void)snprintf(groups, sizeof groups, "%d", like.groups);
                add_row(table, work, groups, &row);
            }
        }
}

static enum sbp_status print_rows(const struct sbp_measure_job *job,
                                  const struct sbp_sample_sweep *sweep, FILE *out)
{
    static const char *const titles[] = {"work (nodes x ranks a node)", "groups a node", "cells",
                                         "about"};
    static const struct {
        enum sbp_cell_work work;
        const char *name;
    } others[] = {{SBP_CELL_PAIRS, "pairs of ranks"},
                  {SBP_CELL_GEMM, "matrix products"},
                  {SBP_CELL_GROUPED, "products of experts"},
                  {SBP_CELL_COPY, "copy"},
                  {SBP_CELL_LAUNCH, "smallest product"},
                  {SBP_CELL_SUSTAINED, "sustained product"},
                  {SBP_CELL_STREAM, "element-wise sum"},
                  {SBP_CELL_GELU, "GELU"},
                  {SBP_CELL_ATTENTION, "attention"},
                  {SBP_CELL_ROWS, "rows by expert"},
                  {SBP_CELL_HOST, "launch by the host"},
                  {SBP_CELL_LINK, "copies to the host"},
                  {SBP_CELL_BESIDE, "collectives beside products"}};
    struct sbp_table table;
    sbp_table_init(&table, 4, titles);
    add_shapes(&table, job, sweep);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct sbp_cell like = {.work = others[i].work};
        const struct row row = sum_work(job, sweep, &like);
        add_row(&table, others[i].name, "-", &row);
    }
    const enum sbp_status status = sbp_table_print(&table, out, 2);
    sbp_table_free(&table);
    return status;
}

static bool print_sums(const struct sbp_measure_job *job, const struct sbp_sample_sweep *sweep,
                       FILE *out)
{
    char each[32], budget[32], rate[32];
    const int runs = (int)job->settings->runs;
    const double budget_s = job->settings->budget_s;
    double run_s = 0;
    for (int i = 0; i < sweep->count; i++)
        run_s += cell_s(job, &sweep->cell[i]);
    const double all_s = run_s * runs;
    const double taken_s = all_s < budget_s ? all_s : budget_s;
    (void)sbp_format_bytes(port_bytes_per_s(job), rate);
    return fprintf(out,
                   "%d cells a run, about %s if a port moves %s/s (--nominal) and a message takes "
                   "%.0f us\n",
                   sweep->count, sbp_format_seconds(run_s, each), rate,
                   1e6 * SBP_JOB_LATENCY_S) >= 0 &&
           fprintf(out, "%d run%s within --budget-s %s: about %.0f %% of all cells' time\n", runs,
                   runs == 1 ? "" : "s", sbp_format_seconds(budget_s, budget),
                   100 * taken_s / all_s) >= 0 &&
           fprintf(out, "%.4g node-hours: %d node%s for %s; %d cells are measured in any case\n",
                   taken_s * job->layout.nodes / HOUR_S, job->layout.nodes,
                   job->layout.nodes == 1 ? "" : "s", sbp_format_seconds(taken_s, each),
                   sweep->required) >= 0;
}

enum sbp_status sbp_job_print_plan(const struct sbp_measure_job *job, FILE *out,
                                   struct sbp_diag *diag)
{
    struct sbp_sample_sweep sweep;
    char most[32];
    SBP_TRY(sbp_sweep_init(&sweep, &job->layout, diag));
    const bool begun =
        fprintf(out, "%d node%s x %d rank%s, messages of 8 B to %s\n", job->layout.nodes,
                job->layout.nodes == 1 ? "" : "s", job->layout.ranks_per_node,
                job->layout.ranks_per_node == 1 ? "" : "s",
                sbp_format_bytes((double)job->layout.max_bytes, most)) >= 0;
    enum sbp_status status = begun ? print_rows(job, &sweep, out) : SBP_E_IO;
    if (status == SBP_OK && !print_sums(job, &sweep, out))
        status = SBP_E_IO;
    sbp_sweep_free(&sweep);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", sbp_status_text(status));
}

/* --- the script --- */

/* Whether a shell takes the name literally. */
static bool is_plain(const char *name)
{
    for (; *name != '\0'; name++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/", *name) ==
            NULL)
            return false;
    return true;
}

static enum sbp_status check_names(const struct sbp_measure_settings *settings,
                                   struct sbp_diag *diag)
{
    const struct {
        const char *option, *name;
    } files[] = {
        {"-o", settings->finish.output}, {"--merge", settings->merge}, {"--diff", settings->diff}};
    for (int i = 0; i < 3; i++)
        if (files[i].name != NULL && !is_plain(files[i].name))
            return sbp_fail(diag, SBP_E_INPUT,
                            "%s %s: cannot stand in a job script, legal are letters, digits and "
                            "._-/",
                            files[i].option, files[i].name);
    return SBP_OK;
}

/* " --collectives all-reduce,send-recv" */
static void add_collectives(struct sbp_text *text, unsigned kinds)
{
    const char *before = " --collectives ";
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        if (kinds >> kind & 1) {
            sbp_text_add(text, "%s%s", before, sbp_collective_name((enum sbp_collective)kind));
            before = ",";
        }
}

/* Adds the options that matter beside sizes, time and order, where they are not the default. */
static void add_options(struct sbp_text *text, const struct sbp_measure_settings *settings)
{
    add_collectives(text, settings->kinds);
    if (settings->finish.method == SBP_METHOD_PAPER)
        sbp_text_add(text, " --method paper");
    if (settings->finish.statistic != SBP_OF_MEDIANS)
        sbp_text_add(text, " --statistic %s", sbp_points_statistics[settings->finish.statistic]);
    if (settings->finish.weights != SBP_FIT_RELATIVE)
        sbp_text_add(text, " --weights %s", sbp_fit_weights_names[settings->finish.weights]);
    if (settings->nominal_bytes_per_s > 0)
        sbp_text_add(text, " --nominal %.12g", settings->nominal_bytes_per_s);
    if (settings->merge != NULL)
        sbp_text_add(text, " --merge %s", settings->merge);
    if (settings->diff != NULL)
        sbp_text_add(text, " --diff %s", settings->diff);
    if (settings->finish.json)
        sbp_text_add(text, " --json");
    if (settings->finish.quiet)
        sbp_text_add(text, " --quiet");
}

static void add_script(struct sbp_text *text, const struct sbp_measure_job *job)
{
    const struct sbp_measure_settings *settings = job->settings;
    const int minutes = (int)((settings->budget_s * (1 + SPARE_SHARE) + SPARE_S) / MINUTE_S) + 1;
    sbp_text_add(text,
                 "#!/bin/sh\n"
                 "#SBATCH --job-name=sbplan-calibrate\n"
                 "#SBATCH --nodes=%d\n"
                 "#SBATCH --ntasks-per-node=%d\n",
                 job->layout.nodes, job->layout.ranks_per_node);
    if (settings->backend == SBP_BACKEND_NCCL)
        sbp_text_add(text, "#SBATCH --gpus-per-node=%d\n", job->layout.ranks_per_node);
    sbp_text_add(text,
                 "#SBATCH --exclusive\n"
                 "#SBATCH --time=%d:%02d:00\n"
                 "#SBATCH --output=%s.%%j.log\n",
                 minutes / 60, minutes % 60, settings->finish.output);
    sbp_text_add(
        text,
        "# Ended early, the same job goes on where it stopped; with --merge %s another one\n"
        "# measures on top. `srun --mpi=list` names the kinds of MPI that srun can start; without\n"
        "# --kill-on-bad-exit the others may wait for a rank that died until the job's time is "
        "up.\n"
        "srun --mpi=pmix --kill-on-bad-exit=1 --ntasks-per-node=%d \\\n"
        "    sbplan-calibrate --backend %s --max-bytes %lld --budget-s %.10g --runs %d --seed %lld "
        "-o %s",
        settings->finish.output, job->layout.ranks_per_node,
        settings->backend == SBP_BACKEND_NCCL ? "nccl" : "mpi", (long long)settings->max_bytes,
        settings->budget_s, (int)settings->runs, (long long)settings->seed,
        settings->finish.output);
    add_options(text, settings);
    sbp_text_add(text, "\n");
}

enum sbp_status sbp_job_print_sbatch(const struct sbp_measure_job *job, FILE *out,
                                     struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    SBP_TRY(check_names(job->settings, diag));
    add_script(&text, job);
    enum sbp_status status = SBP_OK;
    if (text.failed)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    else if (fputs(text.bytes, out) < 0)
        status = sbp_fail(diag, SBP_E_IO, "standard output: cannot be written");
    sbp_text_free(&text);
    return status;
}
