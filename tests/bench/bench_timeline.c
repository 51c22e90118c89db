/* Times simulated steps, schedule by schedule: unequal stages, sends and synchronisation that cost
 * something, so that every play which the exposed times need is played. Times are the thread's CPU
 * times, which others on the machine disturb least. Checks nothing. */
#include <stdio.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "base/table.h"
#include "costmodel/timeline/timeline.h"

enum { REPETITIONS = 20, STAGES = 64, CHUNKS = 2 };

static struct sbp_stage_cost cost[STAGES * CHUNKS];
static struct sbp_stage_end end[STAGES];

static void set_costs(void)
{
    struct sbp_random random;
    sbp_random_seed(&random, 0);
    for (int i = 0; i < STAGES * CHUNKS; i++)
        cost[i] = (struct sbp_stage_cost){
            .forward_s = 1e-3 * (1 + sbp_random_unit(&random)),
            .backward_input_s = 1e-3 * (1 + sbp_random_unit(&random)),
            .backward_weight_s = 1e-3 * (1 + sbp_random_unit(&random)),
            .recompute_s = 1e-3 * sbp_random_unit(&random),
            .send_forward_s = 1e-4 * sbp_random_unit(&random),
            .send_backward_s = 1e-4 * sbp_random_unit(&random),
            .kept_bytes = 1 << 20,
        };
    for (int i = 0; i < STAGES; i++)
        end[i] = (struct sbp_stage_end){.sync_s = 1e-2, .optimizer_s = 1e-3};
}

static struct sbp_timeline_request request_of(enum sbp_schedule schedule, int stages,
                                              int micro_batches, bool record)
{
    return (struct sbp_timeline_request){.schedule = schedule,
                                         .stages = stages,
                                         .micro_batches = micro_batches,
                                         .chunks = schedule == SBP_INTERLEAVED ? CHUNKS : 1,
                                         .record = record,
                                         .stage = cost,
                                         .end = end};
}

/* The fastest of a few simulations; negative when one fails. */
static double time_simulation(const struct sbp_timeline_request *request, struct sbp_diag *diag)
{
    double best_s = -1;
    for (int i = 0; i < REPETITIONS; i++) {
        struct sbp_arena arena = {0};
        struct sbp_timeline timeline;
        const double begin_s = sbp_thread_cpu_s();
        const enum sbp_status status = sbp_timeline_simulate(request, &arena, &timeline, diag);
        const double took_s = sbp_thread_cpu_s() - begin_s;
        sbp_arena_free(&arena);
        if (status != SBP_OK)
            return -1;
        if (best_s < 0 || took_s < best_s)
            best_s = took_s;
    }
    return best_s;
}

static enum sbp_status time_all(struct sbp_table *table, struct sbp_diag *diag)
{
    static const int sizes[][2] = {{8, 64}, {16, 256}, {64, 512}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < SBP_SCHEDULES; k++) {
            sbp_table_cell(table, "%d", sizes[i][0]);
            sbp_table_cell(table, "%d", sizes[i][1]);
            sbp_table_cell(table, "%s", sbp_timeline_schedule_name((enum sbp_schedule)k));
            for (int record = 0; record <= 1; record++) {
                const struct sbp_timeline_request request =
                    request_of((enum sbp_schedule)k, sizes[i][0], sizes[i][1], record);
                const double took_s = time_simulation(&request, diag);
                if (took_s < 0)
                    return SBP_E_INPUT;
                sbp_table_cell(table, "%.2f", took_s * 1e3);
            }
        }
    return SBP_OK;
}

int main(void)
{
    static const char *const titles[] = {"stages", "micro-batches", "schedule", "ms",
                                         "with intervals (ms)"};
    struct sbp_diag diag = {{0}};
    struct sbp_table table;
    set_costs();
    sbp_table_init(&table, 5, titles);
    enum sbp_status status = time_all(&table, &diag);
    if (status == SBP_OK) {
        printf("one step of unequal stages, %d chunks where interleaved; CPU time, the fastest of "
               "%d\n",
               CHUNKS, REPETITIONS);
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    if (status != SBP_OK)
        fprintf(stderr, "bench_timeline: %s\n",
                diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
