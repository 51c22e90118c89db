/* The page of `sbplan report`: what plans do and cost, what was searched over a setting and what
 * was measured, as one HTML file that needs nothing else: no script, no font, no picture from
 * outside. It is well-formed XML, follows the reader's choice of light or dark, prints, and is the
 * same byte for byte for the same inputs.
 */
#ifndef SBP_PLANNER_PAGE_PAGE_H
#define SBP_PLANNER_PAGE_PAGE_H

#include "planner/report/price_interval.h"
#include "planner/report/report.h"

/* All borrowed. */
struct sbp_page_plan {
    const char *file;
    const struct sbp_plan *plan;
    const struct sbp_report *report;
    const struct sbp_price_interval *trust;
};

/* What another command printed with --json, as it was read. */
struct sbp_page_file {
    const char *name;
    const struct cJSON *json;
};

struct sbp_page {
    const char *command; /* that makes the page */
    int plan_count, sweep_count, run_count;
    const struct sbp_page_plan *plan;        /* (plan_count), at least one */
    const struct sbp_page_file *sweep, *run; /* (sweep_count), (run_count) */
};

/* Appends the page. E_INPUT: a sweep or a run says what such a file cannot, or the run is of
 * another model than any plan; E_MEMORY; the caller frees html either way. */
enum sbp_status sbp_page_write(const struct sbp_page *page, struct sbp_text *html,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif
