/* Reports of a plan: text for people, JSON for programs, from the same compiled program.
 */
#ifndef SBP_PLANNER_REPORT_REPORT_H
#define SBP_PLANNER_REPORT_REPORT_H

#include <stdio.h>

#include "planner/inner/cut_solve.h"
#include "planner/plan/summary.h"

/* What the operators of a site, all repeats, cost in a step. */
struct sbp_site_cost {
    double compute_s, communication_s;
    double forward_flops, backward_flops; /* over all devices */
    double parameters;                    /* of the model; a tied weight's are its first user's */
    double kept_bytes; /* on a device, from forward to the operator's backward; what two operators
                          read is the one's that reads it first there */
};

/* A plan compiled, priced and added up by layer. Must not be moved. */
struct sbp_report {
    const struct sbp_plan *plan; /* borrowed */
    struct sbp_step step;
    struct sbp_summary summary;
    struct sbp_arena arena;
    struct sbp_site_cost *site; /* (operators) filled for sites */
    struct sbp_site_cost whole; /* what no operator owns */
};
enum sbp_status sbp_report_make(const struct sbp_plan *plan, struct sbp_report *report,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_report_free(struct sbp_report *report);

/* How often an instruction of a piece's program runs in a step, of one of the devices that have the
 * piece. */
int64_t sbp_report_times(const struct sbp_report *report, const struct sbp_instr *instr);

/* What an option adds to a report: 0 or NULL, nothing. */
struct sbp_report_options {
    double tokens;              /* of the whole training */
    int64_t memory_limit_bytes; /* 0: the cluster's device memory */
};

/* Lines for people: model, cluster, step, memory; then a row for every layer. */
enum sbp_status sbp_report_print_model(const struct sbp_plan *plan, FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_cost(const struct sbp_report *report,
                                      const struct sbp_report_options *options,
                                      FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_layers(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
/* Where the time goes; and, by stage, memory and time, stages that share their programs in a row.
 */
enum sbp_status sbp_report_print_time(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
enum sbp_status sbp_report_print_stages(const struct sbp_report *report, FILE *out) SBP_MUST_USE;
/* "455.6 tokens/s"; of a model that reads no tokens "99.2 images/s" or "samples/s". */
#define SBP_RATE_BYTES 64
const char *sbp_report_rate(const struct sbp_report *report, char *buffer);
/* "parameters 1.2 GiB, gradients ...": parts of the memory that are not 0. */
#define SBP_PARTS_BYTES 256
const char *sbp_report_memory_parts(const struct sbp_summary *summary, char *buffer);
/* The largest part, by name. */
const char *sbp_report_largest_part(const struct sbp_summary *summary);

/* Members model, cost, memory, parallel and layers of a JSON object, and training with tokens. */
void sbp_report_put(struct cJSON *json, const struct sbp_report *report,
                    const struct sbp_report_options *options, bool *failed);
/* The last of them. */
void sbp_report_put_layers(struct cJSON *json, const struct sbp_report *report, bool *failed);

/* "2.4968192 ms": as many digits as a comparison of strategies needs; at least 32 bytes. */
const char *sbp_report_seconds(double seconds, char *buffer);

#endif
