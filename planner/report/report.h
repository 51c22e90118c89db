/* Reports what a plan does and costs. Input: a plan, which is compiled once here. Output: text for
 * people or JSON for programs. The report owns the compiled step until it is freed. */
#ifndef SBP_PLANNER_REPORT_REPORT_H
#define SBP_PLANNER_REPORT_REPORT_H

#include <stdio.h>

#include "base/table.h"
#include "planner/inner/cut_solve.h"
#include "planner/plan/summary.h"
#include "planner/report/layout_line.h"

/* Cost in a step of the operators of a site, with all repeats. */
struct sbp_site_cost {
    double compute_s, communication_s;
    double forward_flops, backward_flops; /* over all devices */
    double parameters; /* of the model; a tied weight counts for its first user */
    double kept_bytes; /* on a device, live from forward to backward; a tensor that two operators
                          read counts for the first one */
};

/* A plan compiled, priced and added up by layer. sbp_report_free frees it; it must not be moved. */
struct sbp_report {
    const struct sbp_plan *plan; /* borrowed */
    struct sbp_step step;
    struct sbp_summary summary;
    struct sbp_arena arena;
    struct sbp_site_cost *site; /* (op_count) filled for sites */
    struct sbp_site_cost whole; /* cost that no operator owns */
    struct sbp_layout_line layout;
};
enum sbp_status sbp_report_make(const struct sbp_plan *plan, struct sbp_report *report,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_report_free(struct sbp_report *report);

/* How often an instruction of a piece's program runs in a step, on a device that has the piece. */
int64_t sbp_report_times(const struct sbp_report *report, int piece, const struct sbp_instr *instr);
/* Likewise, of the first piece that has a program (its number in the step): pieces that share it do
 * as much, but in a pyramid, where the first has most groups. */
int64_t sbp_report_program_times(const struct sbp_report *report, int program,
                                 const struct sbp_instr *instr);
/* A site's or the whole step's seconds, which are summed over stages, as the mean of stages: these
 * add up to the step with its bubble. */
double sbp_report_of_device_s(const struct sbp_report *report, double seconds);

/* Options that add to a report; 0: nothing is added. */
struct sbp_report_options {
    double tokens;              /* of the whole training */
    int64_t memory_limit_bytes; /* 0: the cluster's device memory */
};

/* Print lines for people: model, cluster, layout, step, memory; then a row for every layer. */
enum sbp_status sbp_report_print_model(const struct sbp_plan *plan, FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_cost(const struct sbp_report *report,
                                      const struct sbp_report_options *options,
                                      FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_layers(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
/* Print where the time goes; and, by stage, memory and time, with one row for stages that share
 * their programs. */
enum sbp_status sbp_report_print_time(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_stages(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
/* The rate, "455.6 tokens/s", or "99.2 images/s" or "samples/s" where a model reads no tokens. */
#define SBP_RATE_BYTES 64
const char *sbp_report_rate(const struct sbp_report *report, char *buffer);
/* "parameters 1.2 GiB, gradients ...": the parts of the memory that are not 0. */
#define SBP_PARTS_BYTES 256
const char *sbp_report_memory_parts(const struct sbp_summary *summary, char *buffer);
/* The name of the largest part. */
const char *sbp_report_largest_part(const struct sbp_summary *summary);

/* Puts the members model, layout, cost, memory, parallel and layers, and training where tokens are
 * given.
 */
void sbp_report_put(struct cJSON *json, const struct sbp_report *report,
                    const struct sbp_report_options *options, bool *failed);
/* Puts the member layers alone. */
void sbp_report_put_layers(struct cJSON *json, const struct sbp_report *report, bool *failed);

/* Text for people has four digits, since costs are not known better; JSON has all. */
#define SBP_REPORT_DIGITS      4
#define SBP_REPORT_MOST_DIGITS 9    /* in a table of plans, to tell them apart */
#define SBP_REPORT_ROUND_OFF   1e-6 /* plans whose times differ by less cost the same */
/* "2.497 ms"; at least 32 bytes. */
const char *sbp_report_seconds(double seconds, char *buffer);
/* The fewest digits by which the times of `count` plans, as sbp_report_ms_cell writes them, read
 * differently where they differ. */
int sbp_report_digits(const double *seconds, int count);
/* Adds a cell of milliseconds, without their unit. */
void sbp_report_ms_cell(struct sbp_table *table, double seconds, int digits);

#endif
