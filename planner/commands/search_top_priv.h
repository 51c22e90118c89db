/* The answer of `search --top K`: several plans in one table, by layout, each checked and, with -o,
 * written.
 *
 * Nothing is written before all of them are checked and every text of a file is there.
 */
#ifndef SBP_PLANNER_COMMANDS_SEARCH_TOP_PRIV_H
#define SBP_PLANNER_COMMANDS_SEARCH_TOP_PRIV_H

#include "base/text.h"
#include "planner/commands/search_session_priv.h"

/* One of the plans, best first; its model and cluster are the search's. Must not be moved. */
struct sbp_alternative {
    struct sbp_plan plan;
    struct sbp_outcome outcome; /* optimal where it costs no more than the search's bound */
    struct sbp_report report;
    struct sbp_text file; /* name of its file; empty */
    struct sbp_text text; /* content of its file */
};

struct sbp_search_top {
    struct sbp_search_job *job; /* borrowed */
    int count;
    struct sbp_alternative *plan;
};

/* Checks the options beside --top. E_USAGE: one that --top excludes. */
enum sbp_status sbp_top_check_options(const struct sbp_arguments *arguments,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Checks the plans of the job's pool and makes the texts of their files. May be freed either way.
 */
enum sbp_status sbp_search_top_open(struct sbp_search_job *job, struct sbp_search_top *all,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_search_top_free(struct sbp_search_top *all);

/* Writes plan.json, plan-2.json, ..., all or none; nothing without -o. */
enum sbp_status sbp_search_top_write(struct sbp_search_top *all,
                                     struct sbp_diag *diag) SBP_MUST_USE;
/* Prints a row for each plan, below the layout that it shares with others, and what is known of
 * those that are not listed. */
enum sbp_status sbp_search_top_print(const struct sbp_search_top *all) SBP_MUST_USE;
/* Puts the member "top". */
void sbp_search_top_put(struct cJSON *json, const struct sbp_search_top *all, bool *failed);

#endif
