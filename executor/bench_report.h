/* Prints how plans were measured beside each other and beside their predictions. Input: the plans
 * and the result of the benchmark. Output: text for people or JSON for programs on standard output.
 */
#ifndef SBP_EXECUTOR_BENCH_REPORT_H
#define SBP_EXECUTOR_BENCH_REPORT_H

#include "executor/bench.h"

struct sbp_bench_report {
    const struct sbp_bench_plan *plans;
    const struct sbp_bench_options *options;
    const struct sbp_bench_result *result;
};

/* E_IO, E_MEMORY. */
enum sbp_status sbp_bench_print(const struct sbp_bench_report *report,
                                struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_bench_print_json(const struct sbp_bench_report *report,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
