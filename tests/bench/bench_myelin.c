/* Myelin's figure 11, small (tests/papers/cpu_grid.h): three trainers on 12 to 48 ranks, which are
 * threads; their steps by the least thread CPU time of each task in a few runs, played with the
 * prices of communication, beside those by prices alone. One factor scales the speed of ranks: that
 * which equals the arithmetic of a first run of Myelin. Fails where Myelin is not the first. */
#include <stdio.h>

#include "base/table.h"
#include "kernels/kernels.h"
#include "tests/bench/least.h"
#include "tests/papers/cpu_grid.h"

enum { RUNS = 4, SIZES = 3, FIRST_RANKS = 12 };

/* Of one trainer and size. */
struct times {
    double priced_days, replayed_days;
    double speed; /* of ranks, by which priced and replayed arithmetic are equal */
};

static enum sbp_status replay(struct cpu_grid *at, struct times *times, double *step_s,
                              struct sbp_diag *diag)
{
    struct sbp_run_prediction played, priced;
    struct least least;
    SBP_TRY(least_open(&at->step, &at->arena, &least, diag));
    for (int i = 0; i < RUNS; i++) {
        struct sbp_run_result run;
        SBP_TRY(least_run(&at->step, &at->cluster, &least, &run, diag));
        sbp_run_free(&run);
    }
    SBP_TRY(sbp_run_replay(&at->step, least.tasks, least.compute_s, &at->arena, &played, diag));
    SBP_TRY(sbp_run_predict(&at->step, least.tasks, &at->arena, &priced, diag));
    const double ratio = (priced.step_s - priced.exposed_s - priced.bubble_s) /
                         (least_sum(&at->step, &least) / at->step.stages);
    times->speed = at->cluster.flops[SBP_FP32] * ratio;
    *step_s = played.step_s;
    return SBP_OK;
}

static enum sbp_status time_grid(int framework, int size, double flops, struct times *times,
                                 struct sbp_diag *diag)
{
    struct cpu_grid_setting setting;
    struct summit_grid grid;
    struct cpu_grid at;
    double step_s = 0;
    cpu_grid_figure_11((enum summit_framework)framework, 1 << size, flops, &setting, &grid);
    cpu_grid_open(&at, &setting, &grid);
    const enum sbp_status status = replay(&at, times, &step_s, diag);
    times->priced_days = cpu_grid_training_s(&setting, at.step.totals.step_s) / 86400;
    times->replayed_days = cpu_grid_training_s(&setting, step_s) / 86400;
    cpu_grid_close(&at);
    return status;
}

static void add_row(struct sbp_table *table, int size, int framework, const struct times *times,
                    const struct times *first)
{
    sbp_table_cell(table, "%d", FIRST_RANKS << size);
    sbp_table_cell(table, "%s", cpu_grid_names[framework]);
    sbp_table_cell(table, "%.1f", times->priced_days);
    sbp_table_cell(table, "%.1f", times->replayed_days);
    sbp_table_cell(table, "%+.1f %%", 100 * (times->replayed_days / times->priced_days - 1));
    sbp_table_cell(table, "%.1f %%", 100 * (times->priced_days / first->priced_days - 1));
    sbp_table_cell(table, "%.1f %%", 100 * (times->replayed_days / first->replayed_days - 1));
    sbp_table_cell(table, "%.2f", times->speed / 1e9);
}

static enum sbp_status time_all(struct sbp_table *table, bool *leads, struct sbp_diag *diag)
{
    static const double GUESS = 4e9;
    struct times first;
    SBP_TRY(time_grid(SUMMIT_MYELIN, 0, GUESS, &first, diag));
    const double flops = first.speed;
    for (int size = 0; size < SIZES; size++)
        for (int framework = 0; framework < SUMMIT_FRAMEWORKS; framework++) {
            struct times times;
            SBP_TRY(time_grid(framework, size, flops, &times, diag));
            first = framework == SUMMIT_MYELIN ? times : first;
            *leads = *leads && times.replayed_days >= first.replayed_days;
            add_row(table, size, framework, &times, &first);
        }
    return SBP_OK;
}

int main(void)
{
    static const char *const titles[] = {"ranks",        "trainer",
                                         "days, priced", "replayed",
                                         "off",          "longer than Myelin, priced",
                                         "replayed",     "GFLOP/s of a rank"};
    struct sbp_diag diag = {{0}};
    struct sbp_table table;
    bool leads = true;
    sbp_table_init(&table, (int)(sizeof titles / sizeof *titles), titles);
    enum sbp_status status = time_all(&table, &leads, &diag);
    if (status == SBP_OK) {
        printf("days for 3 x 10^11 words; replayed: the least of %d steps, task by task\n", RUNS);
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    if (status != SBP_OK)
        fprintf(stderr, "bench_myelin: %s\n",
                diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    else if (!leads)
        printf("FAILED: another trainer is before Myelin\n");
    return status != SBP_OK ? sbp_status_exit_code(status) : leads ? 0 : 1;
}
